/* SimAdjustments: what measured runs taught about the cost model's parameters.
 *
 * A set of factors on a device's default parameters. Each stands for one physical effect and holds
 * for all runs, or for those on one GPU, one framework's stack, one site's machines. Beside them:
 * how far predictions were off on runs that were left out of the fit, what those runs were, how
 * much further off are predictions of what is unlike them, and how far memory was off. The text
 * form is what a store keeps: print (parse (x)) = x. */
#pragma once
#include "sim/cost/cost-params.h"
#include <glib.h>
G_BEGIN_DECLS

/* X (ID, "name", "meaning", least factor, most). Parameters of one effect move together. */
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

/* What a factor or an error holds for; NULL: any. */
typedef struct
{
  char *gpu, *stack, *site;
} SimScope;

typedef struct
{
  SimScope scope;
  SimEffect effect;
  double factor;
  double error; /* of its logarithm: one standard deviation */
} SimFactor;

/* Of runs that were not fitted to, four of five were predicted within `pct`. */
typedef struct
{
  SimScope scope;
  double pct;
  guint runs;
} SimUncertainty;

#define SIM_ENOUGH_RUNS 5 /* to speak of a spread */

/* X (ID, "name", "what lies between a prediction and the runs that were seen"). */
#define SIM_DISTANCE_LIST(X) \
  X (GPU, "gpu", "a GPU without runs") \
  X (STACK, "stack", "a stack without runs") \
  X (SIZE, "size", "each doubling of the devices of the stack's largest run") \
  X (EXPOSED, "exposed", "a step that is exposed communication alone") \
  X (NETWORK, "network", "the same on a network of a rate without runs") \
  X (MODE, "mode", "each mode that the stack's runs lack, or the GPU's") \
  X (CHOICE, "choice", "two plans for one task, in how their times compare: adds to nothing")

typedef enum
{
#define X(id, name, meaning) SIM_DISTANCE_##id,
  SIM_DISTANCE_LIST (X)
#undef X
      SIM_N_DISTANCES
} SimDistance;

/* What it adds, as the root of the sum of squares, to the per cent that four of five such
 * predictions lie within; `runs` is 0 for what was assumed. */
typedef struct
{
  double pct;
  guint runs;
} SimErrorRange;

/* The runs of a GPU or of a stack that parameters were fitted to. */
typedef struct
{
  SimScope scope;
  guint runs;
  gint64 devices; /* of the largest */
  char *modes;    /* comma-separated words: what they did; NULL: nothing worth a word */
  char *networks; /* comma-separated: Gbit/s of a device, where there were several nodes */
} SimSeen;

/* Scale of errors of reserved memory, as shares: of all of it, and of what of it does not stay
 * between steps. Their law is that of plan_accuracy_share_below. */
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

/* Whether something said of a scope holds for these; NULL: not known. */
gboolean sim_scope_holds (const SimScope *scope, const char *gpu, const char *stack,
                          const char *site);

SimAdjustments *sim_adjustments_new (const char *id);
void sim_adjustments_free (SimAdjustments *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SimAdjustments, sim_adjustments_free)

/* Copies the scope's names. */
void sim_adjustments_add_factor (SimAdjustments *self, SimFactor factor);
void sim_adjustments_add_uncertainty (SimAdjustments *self, SimUncertainty uncertainty);
void sim_adjustments_add_seen (SimAdjustments *self, SimSeen seen);
void sim_adjustments_add_memory (SimAdjustments *self, SimMemoryError error);

/* Adds what `other` says of what was seen, of distances and of memory. */
void sim_adjustments_add_uncertainties (SimAdjustments *self, const SimAdjustments *other);

/* Text: a line "parameters ID", then lines that begin with "factor", "uncertainty", "seen",
 * "distance" or "memory"; `name` is for errors. */
char *sim_adjustments_print (const SimAdjustments *self);
SimAdjustments *sim_adjustments_parse (const char *text, const char *name, GError **error);

/* Changes one device's parameters into what holds for it on that stack and site (NULL: none that is
 * known). The id is this set's, which must outlive them. Shares of a rate stay below 1. */
void sim_adjustments_apply (const SimAdjustments *self, const char *gpu, const char *stack,
                            const char *site, SimParams *params);

/* The same for one effect alone, by a factor that is given. */
void sim_effect_apply (SimEffect effect, double factor, SimParams *params);

G_END_DECLS
