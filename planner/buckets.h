/* PlanBuckets: parameters cut into buckets by size, where a framework does not go by its units.
 *
 * Parameters are taken in the order in which their modules name them, or backwards; a bucket
 * closes with the parameter that fills it. So a layer may be cut anywhere between two of its
 * parameters, differently from layer to layer. */
#pragma once
#include "planner/model.h"
#include "planner/tensor.h"
#include <glib.h>
G_BEGIN_DECLS

#define PLAN_MAX_LAYER_TENSORS 16 /* parameters of a dense layer */
#define PLAN_MAX_OUTER 3          /* parameters before the layers, or behind them */

typedef struct
{
  PlanTensor before[PLAN_MAX_OUTER], layer[PLAN_N_TENSORS], after[PLAN_MAX_OUTER];
  guint n_before, n_layer, n_after; /* of one rank of a tensor-parallel group, as they are named */
  gint64 layers;
  guint32 *number; /* of every parameter's bucket, before, layer by layer, after */
  guint32 *first;  /* parameter of every bucket; it ends where a parameter has another number */
  guint n, n_all;  /* buckets, parameters */
} PlanBuckets;

/* In which order a layer's modules name their parameters. */
typedef enum
{
  PLAN_NAMING_PROJ_FIRST, /* attention's projection before the rest: tensor-list.h */
  PLAN_NAMING_BY_USE,
  PLAN_NAMING_NORMS_LAST, /* attention, feed-forward network, then the norms before them */
} PlanNaming;

typedef struct
{
  PlanNaming naming;
  guint64 closes_at; /* elements */
  gboolean is_backwards;
  gboolean parts_shared; /* a shared embedding closes its bucket */
  gint64 vocab;
  guint64 tp;
} PlanBucketRule;

void plan_buckets_init (PlanBuckets *self, const PlanModel *model, const PlanBucketRule *rule);
void plan_buckets_clear (PlanBuckets *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (PlanBuckets, plan_buckets_clear)

/* The parameters of a layer, in the order in which they are named; returns how many. */
guint plan_buckets_layer (const PlanModel *model, const PlanBucketRule *rule,
                          PlanTensor *out_tensors);

/* A parameter by its place among all, and the layer it is in: -1 where in none. */
const PlanTensor *plan_buckets_tensor (const PlanBuckets *self, guint at, gint64 *out_layer);

/* The bucket of the i-th parameter of a layer; of those around the layers. */
guint32 plan_buckets_of_layer (const PlanBuckets *self, gint64 layer, guint i);
guint32 plan_buckets_before (const PlanBuckets *self, guint i);
guint32 plan_buckets_after (const PlanBuckets *self, guint i);

/* Whether a bucket ends between that parameter and the one before it, in any layer. */
gboolean plan_buckets_cut_layer (const PlanBuckets *self, guint i);

/* One rank's part of a tensor: matrices are split over a tensor-parallel group by what they make
 * (rows) or by what they read (columns), tables by rows of the vocabulary; the rest is whole. */
PlanTensor plan_buckets_part (const PlanModel *model, PlanTensorRole role, gint64 vocab,
                              guint64 tp);

G_END_DECLS
