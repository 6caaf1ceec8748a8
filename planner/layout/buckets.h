/* PlanBuckets: parameters cut into buckets by size, where a framework does not go by its units.
 *
 * Parameters are taken in the order in which their modules name them, or backwards; a bucket
 * closes with the parameter that fills it. So a bucket may begin and end anywhere, and span
 * several layers. Those that hold the same parameters of as many layers are alike: of one kind. */
#pragma once
#include "planner/layout/packing.h"
#include "planner/model/model.h"
#include "planner/model/tensor.h"
#include <glib.h>
G_BEGIN_DECLS

#define PLAN_MAX_LAYER_TENSORS 16 /* parameters of a dense layer */
#define PLAN_MAX_OUTER 3          /* parameters before the layers, or behind them */

typedef enum
{
  PLAN_BUCKET_EMBEDDING, /* or whatever holds the first parameter */
  PLAN_BUCKET_HEAD,      /* final norm and output layer, or whatever else holds the last one */
  PLAN_BUCKET_LAYER,     /* one per layer, all alike */
  PLAN_BUCKET_PLAIN,   /* what a layer with quantised weights keeps in the format of activations */
  PLAN_BUCKET_EXPERTS, /* of a layer that has any, where LAYER is the rest of it */
  PLAN_BUCKET_DENSE,   /* one per layer without experts, beside layers that have them */
  /* Where buckets go by size: further kinds that hold parameters of layers alone, and others. There
   * is one for each parameter that a bucket begins with, and those that virtual stages cut off. */
  PLAN_BUCKET_PART,
  PLAN_BUCKET_OUTER_PART = PLAN_BUCKET_PART + PLAN_MAX_LAYER_TENSORS + 1,
  PLAN_N_BUCKETS = PLAN_BUCKET_OUTER_PART + 2 * PLAN_MAX_OUTER
} PlanBucketKind;

static inline gboolean
plan_bucket_is_unit (PlanBucketKind kind)
{
  return kind >= PLAN_BUCKET_LAYER && kind < PLAN_BUCKET_OUTER_PART;
}

/* One bucket: the parameters [first, first + n) of all. */
typedef struct
{
  PlanBucketKind kind;
  guint32 first, n;
  gint64 unit; /* the lowest layer that it reaches into; 0 where its kind is no unit's */
} PlanBucketSpan;

typedef struct
{
  PlanTensor before[PLAN_MAX_OUTER], layer[PLAN_N_TENSORS], after[PLAN_MAX_OUTER];
  guint n_before, n_layer, n_after; /* of one rank of a tensor-parallel group, as they are named */
  gint64 layers;
  PlanBucketSpan *spans;          /* by number, in the order in which they fill */
  guint32 *number;                /* of every parameter's bucket, before, layer by layer, after */
  guint64 *offset;                /* of every parameter in its bucket */
  guint n, n_all;                 /* buckets, parameters */
  guint64 padded[PLAN_N_BUCKETS]; /* elements of a kind, with padding */
} PlanBuckets;

typedef struct
{
  PlanNaming naming;
  guint64 closes_at; /* elements */
  gboolean is_backwards;
  gboolean parts_shared; /* a shared embedding closes its bucket */
  gint64 vocab;
  guint64 tp, ep, etp;
  PlanPackingRule packing;
} PlanBucketRule;

void plan_buckets_init (PlanBuckets *self, const PlanModel *model, const PlanBucketRule *rule);
void plan_buckets_clear (PlanBuckets *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (PlanBuckets, plan_buckets_clear)

/* The parameters of a layer, in the order in which they are named; returns how many. */
guint plan_buckets_layer (const PlanModel *model, const PlanBucketRule *rule, gint64 layer,
                          PlanTensor *out_tensors);

/* A parameter by its place among all, and the layer it is in: -1 where in none. */
const PlanTensor *plan_buckets_tensor (const PlanBuckets *self, guint at, gint64 *out_layer);

/* The layer in whose virtual stage a parameter is: its own, the first one for those before the
 * layers, the last one for those behind. */
gint64 plan_buckets_layer_of (const PlanBuckets *self, guint at);

/* The place of a parameter among all; n_all where the model lacks it. */
guint plan_buckets_find (const PlanBuckets *self, PlanTensorRole role, gint64 layer);

/* Buckets [from, from + n) are followed by `count - 1` times as many that are like them, `step`
 * layers further each time. A count below 2: nothing recurs. */
typedef struct
{
  guint from, n, count;
  gint64 step;
} PlanBucketCycle;

PlanBucketCycle plan_buckets_cycle (const PlanBuckets *self);

/* One rank's part of a tensor: matrices are split over a tensor-parallel group, that of the experts
 * or of the rest, by what they make (rows) or by what they read (columns), tables by rows of the
 * vocabulary; what is left is whole. */
PlanTensor plan_buckets_part (const PlanModel *model, PlanTensorRole role,
                              const PlanBucketRule *rule);

G_END_DECLS
