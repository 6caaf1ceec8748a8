/* SimAdjustments: what measured runs taught about the cost model's parameters.
 *
 * A set of factors on a device's default parameters. Each stands for one physical effect and holds
 * for all runs, or for those on one GPU, one framework's stack, one site's machines. Beside them:
 * how far predictions were off on runs that were left out of the fit. The text form is what a store
 * keeps: print (parse (x)) = x. */
#pragma once
#include "sim/cost-params.h"
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

typedef struct
{
  char *id;
  GArray *factors;       /* SimFactor */
  GArray *uncertainties; /* SimUncertainty */
} SimAdjustments;

SimAdjustments *sim_adjustments_new (const char *id);
void sim_adjustments_free (SimAdjustments *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SimAdjustments, sim_adjustments_free)

/* Copies the scope's names. */
void sim_adjustments_add_factor (SimAdjustments *self, SimFactor factor);
void sim_adjustments_add_uncertainty (SimAdjustments *self, SimUncertainty uncertainty);

/* Text: a line "parameters ID", then "factor …" and "uncertainty …" lines; `name` is for errors. */
char *sim_adjustments_print (const SimAdjustments *self);
SimAdjustments *sim_adjustments_parse (const char *text, const char *name, GError **error);

/* Changes one device's parameters into what holds for it on that stack and site (NULL: none that is
 * known). The id is this set's, which must outlive them. Shares of a rate stay below 1. */
void sim_adjustments_apply (const SimAdjustments *self, const char *gpu, const char *stack,
                            const char *site, SimParams *params);

/* The same for one effect alone, by a factor that is given. */
void sim_effect_apply (SimEffect effect, double factor, SimParams *params);

/* The closest that is known: of this GPU and stack, the stack, the GPU, all; below 0: nothing. */
double sim_adjustments_uncertainty_pct (const SimAdjustments *self, const char *gpu,
                                        const char *stack);

G_END_DECLS
