/* Parts of PlanStack: gradients, and the optimizer that reads them. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

/* What becomes of gradients as autograd writes them. */
typedef enum
{
  PLAN_GRADS_ADDED, /* each is added to the bucket as soon as it is there */
  /* A unit's are moved to the bucket when all are there. Sharded ones are freed when the next step
   * begins. */
  PLAN_GRADS_COLLECTED,
  PLAN_GRADS_COLLECTED_WIDE, /* the same; whole ones, as grad_sync=last keeps them, are in the
                                format of grad_comm */
  /* They stay until the backward pass ends, and, unless strategy=optim, so does a copy of the
   * bucket in the weights' format. With strategy=optim all are all-reduced by one call at the end.
   */
  PLAN_GRADS_LEFT,
} PlanGrads;

/* With double_buffer, how many units' gradients live at the same time, and when the memory of one
 * is free. */
typedef enum
{
  PLAN_GRAD_POOL_AWAITED, /* two; when the reduction has ended */
  PLAN_GRAD_POOL_QUEUED,  /* two; when the reduction is queued */
  PLAN_GRAD_POOL_ONE,     /* one; when the reduction is queued */
} PlanGradPool;

/* GEMMs that add to main gradients (grad_accum_fusion) and leave an unused gradient of each shape
 * for autograd. */
typedef enum
{
  PLAN_UNUSED_NOT_KEPT,
  PLAN_UNUSED_OF_LAYERS,
  PLAN_UNUSED_OF_ALL, /* that of the output layer, too */
} PlanUnused;

/* How gradients are reduced, and for how long they live. */
typedef struct
{
  PlanGrads fresh;
  PlanGradPool pool;
  PlanUnused unused;
  guint64 reduce_bytes;     /* bytes in the weights' format that are reduced together; 0: a unit */
  gint64 queued_reductions; /* most reductions in flight; 0: the communication unit decides */
} PlanStackGrads;

/* How an optimizer works. */
typedef enum
{
  PLAN_OPTIMIZER_FUSED, /* one pass over a unit clips and updates */
  /* Megatron's distributed one: it casts gradients to the main weights' format until they are next
   * zeroed, widens narrow moments to fp32 copies, and the host waits for the gradient norm. */
  PLAN_OPTIMIZER_DISTRIBUTED,
  /* torch.optim's: it allocates moments in its first step; gradients are scaled where they lie, by
   * kernels of their own. */
  PLAN_OPTIMIZER_TORCH,
} PlanOptimizerKind;

/* How the host works on its share of the optimizer (offload_optimizer). */
typedef enum
{
  PLAN_HOST_WIDE,  /* in fp32, before the device begins with its own share (Megatron-LM) */
  PLAN_HOST_ALIKE, /* as the device does, in the formats of its state, and beside it */
} PlanHostShare;

typedef struct
{
  PlanOptimizerKind kind;
  PlanHostShare host;
  gint64 tensor_ns;      /* host time for each parameter tensor after the wait for the norm */
  guint8 update_kernels; /* kernels that the update of a unit starts; 0: 1 */
} PlanStackOptimizer;

G_END_DECLS
