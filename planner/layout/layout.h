/* PlanLayout: which parameters share a bucket, in what order and with what padding.
 *
 * It is made from a model and a resolved plan. Every bucket is cut into equal shards; parameters
 * are views into their bucket. */
#pragma once
#include "planner/layout/buckets.h"
#include "planner/model/layer-kinds.h"
#include "planner/model/model.h"
#include "planner/plan/plan.h"
#include "planner/plan/stack.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  PlanTensor tensor;
  guint64 offset; /* element in the bucket where the tensor starts */
  gint64 layer;   /* layer of the tensor, counted from the bucket's unit */
} PlanSlot;

typedef struct
{
  guint n_slots;  /* 0 where buckets go by size; PlanBuckets then has the parameters */
  guint64 raw;    /* elements of parameters */
  guint64 padded; /* elements with padding: a multiple of the shard count */
  guint64 shards; /* number of shards; 1 where nothing is sharded */
  gint64 units;   /* number of such buckets */
  gint64 length;  /* number of elements in their buffer arrays, which are indexed by layer; some may
                     be unused */
} PlanBucket;

typedef struct
{
  PlanBucket buckets[PLAN_N_BUCKETS];
  guint64 shards;   /* shards of buckets without experts */
  gboolean by_size; /* buckets go by size (PlanBuckets) and not by unit */
  PlanBucketRule rule;
  PlanBucketKind of_kind[PLAN_N_LAYER_KINDS]; /* see plan_layout_main */
  PlanBucketKind pooled; /* see plan_layout_is_pooled; its units are `pool_step` layers apart */
  gint64 pool_step;
  PlanSlot slots[PLAN_BUCKET_PART][PLAN_N_TENSORS]; /* of buckets that go by unit */
} PlanLayout;

/* Whether weights of such a bucket are gathered in the format of activations into the buffer of
 * their gradients, and stay there until the first pass has quantised them. */
gboolean plan_layout_lends_grads (PlanBucketKind kind, const PlanStack *stack, const Plan *plan);

/* Whether a bucket's weights are quantised by the optimizer, and gathered so. */
gboolean plan_layout_quantises (PlanBucketKind kind, const PlanStack *stack, const Plan *plan);

/* The number of ranks that hold the same experts. */
gint64 plan_layout_expert_data_parallel (const Plan *plan, gint64 data_parallel);

/* Makes the layout of a resolved plan. `data_parallel` ranks in all hold the tensors of one
 * tensor-parallel rank. */
void plan_layout_init (PlanLayout *self, const PlanModel *model, const PlanStack *stack,
                       const Plan *plan, gint64 data_parallel);

/* The slot of a parameter and the bucket it lies in. NULL if the model lacks it, or buckets go by
 * size. */
const PlanSlot *plan_layout_slot (const PlanLayout *self, PlanTensorRole role,
                                  PlanBucketKind *out_kind);

/* Everything in a bucket of that kind: PlanSlot, by offset. `buckets` is needed only where buckets
 * go by size. The caller frees. */
GArray *plan_layout_slots (const PlanLayout *self, const PlanBuckets *buckets, PlanBucketKind kind);

/* "weights.layer": what a bucket's buffers and events are called; the caller frees. */
char *plan_layout_bucket_name (PlanBucketKind kind, const char *what);

/* The bucket of what belongs to no expert of a kind of layers; LAYER where buckets go by size. */
PlanBucketKind plan_layout_main (const PlanLayout *self, guint kind);

gboolean plan_layout_has (const PlanLayout *self, PlanBucketKind kind);

/* Whether a pool of buffers, where a plan has one, serves a kind of bucket. It serves the most
 * units that are alike, of equally many those of the first one (FixedPoolAllocator in
 * Megatron-FSDP's param_and_grad_buffer.py); others come and go as without a pool. */
gboolean plan_layout_is_pooled (const PlanLayout *self, PlanBucketKind kind);

/* Elements of a communication unit: the plan's value, or what `auto` comes to. */
gint64 plan_layout_comm_unit (const PlanLayout *self, const PlanStack *stack, const Plan *plan);

/* Elements of a layer's experts, with their padding. */
static inline guint64
plan_layout_of_experts (const PlanBucket *buckets)
{
  return buckets[PLAN_BUCKET_EXPERTS].padded + buckets[PLAN_BUCKET_EXPERTS_PLAIN].padded;
}

G_END_DECLS
