/* PlanBuckets: parameters cut into buckets by size, for frameworks whose buckets are not units.
 *
 * Parameters are taken in the order in which their modules name them, or in reverse, and a bucket
 * is closed by the parameter that fills it. So a bucket may begin and end anywhere and span several
 * layers. Buckets that hold the same parameters of equally many layers are of one kind. */
#pragma once
#include "planner/layout/packing.h"
#include "planner/model/model.h"
#include "planner/model/tensor.h"
#include <glib.h>
G_BEGIN_DECLS

#define PLAN_MAX_LAYER_TENSORS 16 /* most parameters of a dense layer */
#define PLAN_MAX_OUTER 4          /* most parameters before the layers, and behind them */

typedef enum
{
  PLAN_BUCKET_EMBEDDING, /* or the bucket that holds the first parameter */
  PLAN_BUCKET_HEAD,  /* final norm and output layer, or the bucket that holds the last parameter */
  PLAN_BUCKET_LAYER, /* the parameters of one layer */
  PLAN_BUCKET_PLAIN, /* parameters of a layer with quantised weights that stay in the format of
                        activations */
  PLAN_BUCKET_EXPERTS,   /* the experts of a layer; the rest of it is then LAYER */
  PLAN_BUCKET_DENSE,     /* a layer without experts, in a model that also has layers with experts */
  PLAN_BUCKET_RECURRENT, /* one with a state in place of attention, in a model that has others, too
                          */
  PLAN_BUCKET_ATTENTION, /* by a pattern, one of attention alone, in a model that has others, too */
  PLAN_BUCKET_EXPERTS_PLAIN, /* what PLAIN is to LAYER, to the last four */
  PLAN_BUCKET_DENSE_PLAIN,
  PLAN_BUCKET_RECURRENT_PLAIN,
  PLAN_BUCKET_ATTENTION_PLAIN,
  /* Further kinds where buckets go by size. PART: parameters of layers alone, one kind for each
   * parameter that a bucket may begin with, and for those that virtual stages cut off. OUTER_PART:
   * all others. */
  PLAN_BUCKET_PART,
  PLAN_BUCKET_OUTER_PART = PLAN_BUCKET_PART + PLAN_MAX_LAYER_TENSORS + 1,
  PLAN_N_BUCKETS = PLAN_BUCKET_OUTER_PART + 2 * PLAN_MAX_OUTER
} PlanBucketKind;

static inline gboolean
plan_bucket_is_unit (PlanBucketKind kind)
{
  return kind >= PLAN_BUCKET_LAYER && kind < PLAN_BUCKET_OUTER_PART;
}

/* The kinds that hold a layer, apart from its experts and from what stays unquantised, one for each
 * kind of layers. */
static inline gboolean
plan_bucket_is_main (PlanBucketKind kind)
{
  return kind == PLAN_BUCKET_LAYER || (kind >= PLAN_BUCKET_DENSE && kind <= PLAN_BUCKET_ATTENTION);
}

/* The kinds that ranks share which have the same experts. */
static inline gboolean
plan_bucket_is_of_experts (PlanBucketKind kind)
{
  return kind == PLAN_BUCKET_EXPERTS || kind == PLAN_BUCKET_EXPERTS_PLAIN;
}

/* The bucket of what stays unquantised beside such a kind, or beside experts; and the kind beside
 * such a bucket, or itself for any other. */
static inline PlanBucketKind
plan_bucket_plain (PlanBucketKind main)
{
  return main == PLAN_BUCKET_LAYER ? PLAN_BUCKET_PLAIN
                                   : main + PLAN_BUCKET_EXPERTS_PLAIN - PLAN_BUCKET_EXPERTS;
}

static inline PlanBucketKind
plan_bucket_main (PlanBucketKind kind)
{
  return kind == PLAN_BUCKET_PLAIN ? PLAN_BUCKET_LAYER
         : kind >= PLAN_BUCKET_EXPERTS_PLAIN && kind <= PLAN_BUCKET_ATTENTION_PLAIN
             ? kind + PLAN_BUCKET_EXPERTS - PLAN_BUCKET_EXPERTS_PLAIN
             : kind;
}

/* One bucket: the parameters with places [first, first + n) among all. */
typedef struct
{
  PlanBucketKind kind;
  guint32 first, n;
  gint64 unit; /* the lowest layer that it reaches into; 0 for buckets outside the layers */
} PlanBucketSpan;

typedef struct
{
  /* Parameters as one tensor-parallel rank holds them, in the order of their names. */
  PlanTensor before[PLAN_MAX_OUTER], layer[PLAN_N_TENSORS], after[PLAN_MAX_OUTER];
  guint n_before, n_layer, n_after;
  gint64 layers;
  PlanBucketSpan *spans; /* all buckets, in the order in which they fill */
  guint32 *number;       /* the bucket of every parameter: those before the layers, then layer by
                            layer, then those behind */
  guint64 *offset;       /* of every parameter in its bucket */
  guint n, n_all;        /* number of buckets; of parameters */
  guint64 padded[PLAN_N_BUCKETS]; /* elements of a kind, with padding */
} PlanBuckets;

typedef struct
{
  PlanNaming naming;
  guint64 closes_at;     /* elements that fill a bucket */
  gboolean is_backwards; /* parameters are taken from the last to the first */
  gboolean parts_shared; /* a shared embedding closes its bucket */
  gint64 vocab;
  guint64 tp, ep, etp;
  PlanPackingRule packing;
} PlanBucketRule;

void plan_buckets_init (PlanBuckets *self, const PlanModel *model, const PlanBucketRule *rule);
void plan_buckets_clear (PlanBuckets *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (PlanBuckets, plan_buckets_clear)

/* Lists the parameters of a layer, in the order of their names. Returns how many there are. */
guint plan_buckets_layer (const PlanModel *model, const PlanBucketRule *rule, gint64 layer,
                          PlanTensor *out_tensors);

/* The parameter at a place among all. Sets `out_layer` to its layer, -1 for one outside the
 * layers. */
const PlanTensor *plan_buckets_tensor (const PlanBuckets *self, guint at, gint64 *out_layer);

/* The layer whose virtual stage holds a parameter: its own layer, the first one for parameters
 * before the layers, the last one for parameters behind them. */
gint64 plan_buckets_layer_of (const PlanBuckets *self, guint at);

/* The place of a parameter among all; n_all where the model lacks it. */
guint plan_buckets_find (const PlanBuckets *self, PlanTensorRole role, gint64 layer);

/* Buckets that recur: [from, from + n) come `count` times in a row, each time `step` layers
 * further on. A count below 2 means that none recur. */
typedef struct
{
  guint from, n, count;
  gint64 step;
} PlanBucketCycle;

PlanBucketCycle plan_buckets_cycle (const PlanBuckets *self);

/* One rank's part of a tensor. Matrices are split over the tensor-parallel group of the experts or
 * of the rest, by outputs (rows) or by inputs (columns), and tables by rows of the vocabulary.
 * All other tensors stay whole. */
PlanTensor plan_buckets_part (const PlanModel *model, PlanTensorRole role,
                              const PlanBucketRule *rule);

G_END_DECLS
