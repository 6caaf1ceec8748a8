/* SimAdjustments: a fitted set of corrections of the cost model.
 *
 * Factors multiply a device's default parameters: each is for one physical effect, and for all runs
 * or those of one GPU, stack or site. Errors are those of predictions: of step times for runs left
 * out of the fit, what is added for runs of other kinds, and of memory. print (parse (x)) = x. */
#pragma once
#include "sim/cost/cost-params.h"
#include <glib.h>
G_BEGIN_DECLS

/* X (ID, "name", "meaning", least factor, most). A factor applies to all parameters of its
 * effect. */
#define SIM_EFFECT_LIST(X) \
  X (PRODUCT_BF16, "product.bf16", "rate of products in bf16, fp16 and fp32", 0.4, 1.6) \
  X (PRODUCT_FP8, "product.fp8", "rate of products in fp8 and fp4", 0.4, 1.6) \
  X (SUSTAINED, "product.sustained", "what a long run keeps of a product's rate timed alone", 0.4, \
     1) \
  X (ATTENTION, "attention", "rate of attention, both passes", 0.2, 1.6) \
  X (TRAFFIC, "traffic", "bandwidth of everything bound by memory", 0.2, 1.4) \
  X (LAUNCH, "launch", "what issuing an op costs the host", 0.02, 20) \
  X (LINKS, "links", "bandwidth of collectives inside a node", 0.3, 1.4) \
  X (NETWORK, "network", "bandwidth of collectives between nodes", 0.05, 1.25) \
  X (RETAKE, "retake", "what giving memory back and taking it again costs the host", 0.1, 5) \
  X (SHARED, "shared", "processors that products miss beside collectives", 0.1, 2)

typedef enum
{
#define X(id, name, meaning, least, most) SIM_EFFECT_##id,
  SIM_EFFECT_LIST (X)
#undef X
      SIM_N_EFFECTS
} SimEffect;

const char *sim_effect_name (SimEffect effect);
const char *sim_effect_meaning (SimEffect effect);
double sim_effect_least (SimEffect effect);
double sim_effect_most (SimEffect effect);

/* The runs that a factor or an error holds for; NULL: any. `models` is "dense" or "experts". */
typedef struct
{
  char *gpu, *stack, *site, *models;
} SimScope;

typedef struct
{
  SimScope scope;
  SimEffect effect;
  double factor, error; /* error: standard deviation of the factor's logarithm */
} SimFactor;

/* Four of five runs that were left out of the fit were predicted within `pct` per cent. */
typedef struct
{
  SimScope scope;
  double pct;
  guint runs, sources; /* sources: how many published them; 0: they are the user's own */
} SimUncertainty;

#define SIM_ENOUGH_RUNS 5 /* fewest runs from which a spread is taken */
/* X (ID, "name", "how a predicted run may differ from the runs that were seen"). */
#define SIM_DISTANCE_LIST(X) \
  X (GPU, "gpu", "a GPU without runs") \
  X (STACK, "stack", "a stack without runs") \
  X (SOURCE, "source", "the offset of a source without runs: other machines and software") \
  X (EXPERTS, "source_of_experts", "the same of models with experts") \
  X (SIZE, "size", "each doubling of the devices of the stack's largest run") \
  X (EXPOSED, "exposed", "a step that is exposed communication alone") \
  X (NETWORK, "network", "the same on a network whose rate no run has") \
  X (MODE, "mode", "each mode that the stack's runs lack, or the GPU's") \
  X (CHOICE, "choice", "the ratio of two plans' times for one task; added to no time's error")

typedef enum
{
#define X(id, name, meaning) SIM_DISTANCE_##id,
  SIM_DISTANCE_LIST (X)
#undef X
      SIM_N_DISTANCES
} SimDistance;

/* Four of five predictions lie within `pct` per cent. Differences add up as the root of the sum of
 * their squares. `runs`: how many runs it was found from; 0: it was assumed. */
typedef struct
{
  double pct;
  guint runs, sources; /* sources: 0 where they do not matter */
} SimErrorRange;

/* The runs of a GPU or of a stack that the parameters were fitted to. */
typedef struct
{
  SimScope scope;
  guint runs;
  gint64 devices; /* of the largest run */
  char *modes;    /* comma-separated: what the runs did ("mode" in the glossary); may be NULL */
  char *networks; /* comma-separated: Gbit/s per device of the runs on several nodes */
  char *sources;  /* comma-separated: who published them */
} SimSeen;

/* The scale of errors of reserved memory, as shares of all of it and of the part that does not stay
 * between steps. Their distribution: plan_accuracy_share_below. */
typedef struct
{
  SimScope scope;
  double whole, passing;
  guint runs;
} SimMemoryError;

typedef struct
{
  char *id;
  GArray *factors;       /* SimFactor */
  GArray *uncertainties; /* SimUncertainty */
  GArray *seen;          /* SimSeen */
  GArray *memory;        /* SimMemoryError */
  SimErrorRange distances[SIM_N_DISTANCES];
} SimAdjustments;

/* Whether a scope includes runs on this GPU, of this stack and site; NULL: it is not known. */
gboolean sim_scope_holds (const SimScope *scope, const char *gpu, const char *stack,
                          const char *site);

SimAdjustments *sim_adjustments_new (const char *id);
void sim_adjustments_free (SimAdjustments *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SimAdjustments, sim_adjustments_free)

/* These copy the strings of the scope. */
void sim_adjustments_add_factor (SimAdjustments *self, SimFactor factor);
void sim_adjustments_add_uncertainty (SimAdjustments *self, SimUncertainty uncertainty);
void sim_adjustments_add_seen (SimAdjustments *self, SimSeen seen);
void sim_adjustments_add_memory (SimAdjustments *self, SimMemoryError error);

/* Adds what `other` knows of the runs seen, of distances and of memory. */
void sim_adjustments_add_uncertainties (SimAdjustments *self, const SimAdjustments *other);

/* The text form: a line "parameters ID", then lines that begin with "factor", "uncertainty",
 * "seen", "distance" or "memory". `name` is for error messages. */
char *sim_adjustments_print (const SimAdjustments *self);
SimAdjustments *sim_adjustments_parse (const char *text, const char *name, GError **error);

/* Multiplies a device's parameters by the factors that hold on that stack and site (NULL: unknown),
 * keeping shares of a rate below 1. They point to the set's id, so it must outlive them. */
void sim_adjustments_apply (const SimAdjustments *self, const char *gpu, const char *stack,
                            const char *site, SimParams *params);

/* Applies one effect by a given factor. */
void sim_effect_apply (SimEffect effect, double factor, SimParams *params);

G_END_DECLS
