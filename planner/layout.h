/* PlanLayout: which parameters share a bucket, in what order and with what padding.
 *
 * Made from a model and a resolved plan; rules in README.md of this folder. Every
 * bucket is cut into equal shards; parameters are views into their bucket. */
#pragma once
#include "planner/model.h"
#include "planner/plan.h"
#include "planner/stack.h"
#include <glib.h>
G_BEGIN_DECLS

typedef enum
{
  PLAN_BUCKET_EMBEDDING,
  PLAN_BUCKET_HEAD,  /* final norm and output layer */
  PLAN_BUCKET_LAYER, /* one per layer, all alike */
  PLAN_BUCKET_PLAIN, /* what a layer with quantised weights keeps in the format of activations */
  PLAN_N_BUCKETS
} PlanBucketKind;

typedef struct
{
  PlanTensor tensor;
  guint64 offset; /* element in the bucket where the tensor starts */
} PlanSlot;

typedef struct
{
  guint n_slots; /* 0: the model has no such bucket */
  PlanSlot slots[PLAN_N_TENSORS];
  guint64 raw;    /* elements of parameters */
  guint64 padded; /* elements with padding: a multiple of the shard count */
  gint64 units;   /* how many such buckets there are */
} PlanBucket;

typedef struct
{
  PlanBucket buckets[PLAN_N_BUCKETS];
  guint64 shards; /* parts a bucket is cut into; 1 where nothing is sharded */
} PlanLayout;

/* The plan must be resolved. `data_parallel` ranks in all hold the tensors of one rank of a
 * tensor-parallel group. */
void plan_layout_init (PlanLayout *self, const PlanModel *model, const PlanStack *stack,
                       const Plan *plan, gint64 data_parallel);

/* The slot of a role and the bucket it lies in; NULL if the model lacks it. */
const PlanSlot *plan_layout_slot (const PlanLayout *self, PlanTensorRole role,
                                  PlanBucketKind *out_kind);

gboolean plan_layout_has (const PlanLayout *self, PlanBucketKind kind);

G_END_DECLS
