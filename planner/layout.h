/* PlanLayout: which parameters share a bucket, in what order and with what padding.
 *
 * Made from a model and a resolved plan; rules in README.md of this folder. Every
 * bucket is cut into equal shards; parameters are views into their bucket. */
#pragma once
#include "planner/buckets.h"
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
  /* Where buckets go by size: the further parts of a layer, and of what is around the layers. A
   * bucket is made of whole parts. */
  PLAN_BUCKET_PART,
  PLAN_BUCKET_OUTER_PART = PLAN_BUCKET_PART + PLAN_MAX_LAYER_TENSORS - 1,
  PLAN_N_BUCKETS = PLAN_BUCKET_OUTER_PART + 2 * PLAN_MAX_OUTER
} PlanBucketKind;

static inline gboolean
plan_bucket_is_unit (PlanBucketKind kind)
{
  return kind >= PLAN_BUCKET_LAYER && kind < PLAN_BUCKET_OUTER_PART;
}

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
  guint64 shards;   /* parts a bucket is cut into; 1 where nothing is sharded */
  gboolean by_size; /* what is reduced together is a bucket of PlanBuckets, not a unit */
  PlanBucketRule rule;
} PlanLayout;

/* The plan must be resolved. `data_parallel` ranks in all hold the tensors of one rank of a
 * tensor-parallel group. */
void plan_layout_init (PlanLayout *self, const PlanModel *model, const PlanStack *stack,
                       const Plan *plan, gint64 data_parallel);

/* The slot of a role and the bucket it lies in; NULL if the model lacks it. */
const PlanSlot *plan_layout_slot (const PlanLayout *self, PlanTensorRole role,
                                  PlanBucketKind *out_kind);

/* "weights.layer": what a bucket's buffers and events are called; the caller frees. */
char *plan_layout_bucket_name (PlanBucketKind kind, const char *what);

gboolean plan_layout_has (const PlanLayout *self, PlanBucketKind kind);

G_END_DECLS
