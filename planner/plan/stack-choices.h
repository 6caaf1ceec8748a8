/* Parts of PlanStack: what a framework chooses, by subject. */
#pragma once
#include "planner/base/dtype.h"
#include "planner/plan/placing.h"
#include "planner/plan/stack-weights.h"
#include <glib.h>
G_BEGIN_DECLS

/* Classes of ops by what issuing one costs the host, which depends on what the framework does
 * around it. */
typedef enum
{
  PLAN_LAUNCH_KERNEL, /* an element-wise kernel */
  /* A GEMM in a module's forward pass, with its share of the module's own work. */
  PLAN_LAUNCH_PRODUCT,
  PLAN_LAUNCH_QUANTISED_PRODUCT, /* the same, with scales to keep */
  /* A GEMM that reads a gradient: one call of the framework issues a module's two. */
  PLAN_LAUNCH_GRADIENT,
  PLAN_LAUNCH_QUANTISED_GRADIENT,
  PLAN_LAUNCH_ATTENTION,
  PLAN_LAUNCH_COLLECTIVE, /* a bucket's collective: hooks, buffers, events and the call */
  PLAN_N_LAUNCHES
} PlanLaunch;

/* What a loss leaves in memory for each logit, beside the logits themselves. */
typedef enum
{
  /* Nothing: logits become their gradient. If logits are capped, a softmax and a gradient; with
   * separate kernels, fp32 images of both as well. */
  PLAN_LOSS_IN_PLACE,
  PLAN_LOSS_IMAGE, /* an fp32 softmax, and while that is made a second fp32 image */
  PLAN_LOSS_EAGER, /* fp32 logits, then their softmax; two fp32 gradients before they are rounded */
  /* The fp32 logits in place of the logits, then a softmax that becomes the gradient. */
  PLAN_LOSS_SHARDED,
  PLAN_LOSS_ROUNDED, /* a softmax in the logits' own format, then the gradient */
} PlanLoss;

/* How many micro batches a pipeline needs at least. */
typedef enum
{
  PLAN_FILL_ANY,
  PLAN_FILL_BUT_ONE, /* pp - 1 */
  PLAN_FILL_ALL,     /* pp, unless it is interleaved */
} PlanFill;

/* When a loss is PLAN_LOSS_ROUNDED. */
typedef enum
{
  PLAN_ROUNDED_NEVER,
  PLAN_ROUNDED_IF_FUSED,    /* ce_fusion=on */
  PLAN_ROUNDED_IF_COMPILED, /* compile=on */
} PlanRoundedLoss;

/* Fields that the framework offers. documents: doc_tokens. narrow_moments: both moments in bf16
 * beside fp32 weights. pipelines: 1F1B. */
typedef struct
{
  gboolean max_pool, documents, fine_grained, fused_masters, narrow_moments, pipelines;
} PlanStackOffers;

/* Which parameters share a bucket, and how they lie in it. */
typedef struct
{
  guint64 elements;          /* buckets that are not units close at this; 0: all are modules */
  guint64 elements_per_rank; /* they close at this times the ranks, if that is more */
  gboolean fill_backwards;   /* buckets are filled from the last parameter to the first */
  gboolean units_below_full; /* strategies optim and optim_grads reduce and gather by unit, too */
  gint64 comm_unit_floor;    /* elements; least communication unit of comm_unit=auto */
  PlanNaming naming;         /* order in which parameters are packed */
  PlanPacking packing;
  /* Elements; buckets are padded to a multiple of this, and of the shards. */
  guint64 shard_multiple;
} PlanStackBuckets;

/* How gradients are reduced, and for how long they live. */
typedef struct
{
  guint64 reduce_bytes;  /* bytes in the weights' format that are reduced together; 0: a unit */
  gboolean sums_at_once; /* strategy=optim: all gradients are all-reduced by one call at the end */
  gint64 queued_reductions; /* most reductions in flight; 0: the communication unit decides */
  /* A unit's gradients are moved to the bucket when all of them are there. */
  gboolean are_collected;
  gboolean are_dropped;    /* sharded gradients are freed when the next step begins */
  gboolean autograd_stays; /* gradients stay as autograd leaves them until the backward pass ends */
  /* grad_sync=last keeps whole gradients in grad_comm's format, not in the weights'. */
  gboolean keeps_as_reduced;
  gboolean keeps_half; /* whole gradients in the weights' format, too, unless strategy=optim */
  gint64 pooled_units; /* double_buffer: units whose gradients live at the same time */
  /* Pooled buffers are free when the reduction is queued, not when it has ended. */
  gboolean frees_pooled_early;
  gboolean scales_hybrid; /* HFSDP scales gradients by 1 / ranks, too */
} PlanStackGrads;

typedef struct
{
  gboolean casts_grads;    /* to the main weights' format, until they are next zeroed */
  gboolean widens_moments; /* the optimizer works on fp32 copies of narrow moments */
  gboolean late_moments;   /* memory of moments is allocated in the first update */
  gboolean clips_in_place; /* gradients are scaled where they lie, by kernels of their own */
  gboolean waits_for_norm; /* the host waits for the gradient norm */
  gint64 tensor_ns;        /* host time for each parameter tensor after that wait */
  guint8 update_kernels;   /* kernels that the update of a unit starts; 0: 1 */
} PlanStackOptimizer;

typedef struct
{
  PlanLoss kind;
  PlanRoundedLoss rounded;
  gint64 chunks; /* default of the framework's configurations; 0: it has no loss in chunks */
  /* Autograd does each chunk: the weight's gradient is rounded, then added to a sum in grad_comm's
   * format; the input's gradient is added to a sum in fp32; the logits stay until the next chunk's
   * have been made; the head is gathered again after all chunks. */
  gboolean joins_pieces;
  gboolean keeps_logits; /* the fp32 logits, until the loss's backward pass ends */
} PlanStackLoss;

G_END_DECLS
