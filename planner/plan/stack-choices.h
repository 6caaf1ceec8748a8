/* Parts of PlanStack: what a framework chooses, by what it is about. */
#pragma once
#include "planner/base/dtype.h"
#include "planner/plan/placing.h"
#include <glib.h>
G_BEGIN_DECLS

/* What issuing an op costs the host depends on what the framework does around it. */
typedef enum
{
  PLAN_LAUNCH_KERNEL,            /* anything element by element */
  PLAN_LAUNCH_PRODUCT,           /* a module's product: its share of the module's own work */
  PLAN_LAUNCH_QUANTISED_PRODUCT, /* the same with scales to keep */
  PLAN_LAUNCH_GRADIENT, /* a product that reads a gradient: one call issues a module's two */
  PLAN_LAUNCH_QUANTISED_GRADIENT,
  PLAN_LAUNCH_ATTENTION,
  PLAN_LAUNCH_COLLECTIVE, /* a bucket: hooks, buffers, events and the call */
  PLAN_N_LAUNCHES
} PlanLaunch;

/* How long the weights that are no unit's stay whole, where weights are sharded. */
typedef enum
{
  PLAN_OUTER_STAYS,      /* always */
  PLAN_OUTER_DROPS,      /* but while the optimizer works */
  PLAN_OUTER_EACH_PASS,  /* from the beginning of a forward pass to the end of the backward one */
  PLAN_OUTER_OWN_GROUPS, /* each while it is used; the head from there to its backward pass */
} PlanOuterWeights;

/* What a loss leaves in memory, per logit, beside the logits themselves. */
typedef enum
{
  PLAN_LOSS_IN_PLACE, /* nothing: they become their gradient; where they are bounded, a softmax and
                         a gradient; in separate kernels, fp32 images of both too */
  PLAN_LOSS_IMAGE,    /* an fp32 softmax, and while it is made a second fp32 image */
  PLAN_LOSS_EAGER,    /* fp32 logits, then their softmax; two fp32 gradients before it is rounded */
  PLAN_LOSS_SHARDED,  /* fp32 logits in place of theirs, then a softmax that becomes the gradient */
  PLAN_LOSS_ROUNDED,  /* as much again in their own format, then the gradient */
} PlanLoss;

/* How weights that stay whole from step to step become so after an update. */
typedef enum
{
  PLAN_WHOLE_AS_UPDATED, /* each bucket beside the update of the next */
  PLAN_WHOLE_IN_TURN,    /* each bucket when the one before it is used */
  PLAN_WHOLE_AT_ONCE,    /* all by one call, with buffers of its own */
} PlanWholeWeights;

/* When the loss is PLAN_LOSS_ROUNDED. */
typedef enum
{
  PLAN_ROUNDED_NEVER,
  PLAN_ROUNDED_IF_FUSED,    /* ce_fusion=on */
  PLAN_ROUNDED_IF_COMPILED, /* compile=on */
} PlanRoundedLoss;

/* Plan fields that can be asked for; doc_tokens is `documents`, narrow moments are bf16 for both
 * beside fp32 weights, pipelines are 1F1B. */
typedef struct
{
  gboolean max_pool, documents, fine_grained, fused_masters, narrow_moments, pipelines;
} PlanStackOffers;

/* Which parameters lie together. */
typedef struct
{
  guint64 elements;          /* a bucket that is no unit's closes at that many, or at */
  guint64 elements_per_rank; /* this times the ranks; 0: one per module */
  gboolean fill_backwards;   /* by size: from the last parameter to the first */
  gboolean units_below_full; /* optim and optim_grads reduce and gather by unit */
  gint64 comm_unit_floor;    /* elements; least communication unit when it is `auto` */
  PlanNaming naming;         /* the order in which parameters are packed */
  PlanPacking packing;
  guint64 shard_multiple; /* elements; a packed bucket is a multiple of this and of the shards */
} PlanStackBuckets;

/* How weights become whole, and for how long. */
typedef struct
{
  PlanOuterWeights outer;        /* embedding and head */
  gboolean gathers_each_pass;    /* optim_grads gathers in each forward pass, not once per step */
  PlanWholeWeights whole;        /* strategy=optim, or a pass of optim_grads */
  gboolean gathers_in_grads;     /* mxfp8 in the place of gradients */
  gboolean rounds_as_gathered;   /* no rounded weights at rest: main weights are, as they travel */
  gboolean copies_gathered;      /* out of the buffer that was gathered into, to the parameters */
  gint64 units_ahead;            /* gathered ahead of their use; 0: by the communication unit */
  gboolean repeats_outer_gather; /* shards between replicas are gathered for both passes */
  gboolean prefetches_past_head; /* the output layer gathers units nobody needs */
  gboolean transposes_forward, keeps_transposes; /* fp8 weights: in that pass too; for a step */
  gboolean quantises_units;  /* parameters in squares go through a buffer of the whole unit */
  gboolean quantises_on_use; /* fp8 copies of weights and activations live for one product */
  /* Where what is gathered at once are lists: parameters of a unit; of each, for each rank's piece
   * of it, what the host does before they are sent, and to copy it from where it arrived. */
  gint64 unit_tensors, piece_ns, copy_ns;
} PlanStackWeights;

/* How gradients are reduced, and for how long they live. */
typedef struct
{
  guint64 reduce_bytes;     /* in the weights' format, together; 0: a unit's */
  gboolean sums_at_once;    /* strategy=optim: all gradients everywhere, by one call at the end */
  gint64 queued_reductions; /* in flight at most; 0: by the communication unit */
  gboolean are_collected;   /* a unit's are moved once all of them are there */
  gboolean are_dropped;     /* sharded ones live from their reduction to the next step */
  gboolean autograd_stays;  /* as autograd leaves them they stay until the backward pass ends */
  gboolean keeps_half;      /* also whole ones in the weights' format, but for strategy=optim */
  gint64 pooled_units;      /* units whose gradients live at once under double_buffer */
  gboolean frees_pooled_early; /* their buffers are free once the reduction is queued, not over */
  gboolean scales_hybrid;      /* by 1/ranks, where shards are split between replicas, too */
} PlanStackGrads;

typedef struct
{
  gboolean casts_grads;    /* to the format of the main weights, until next zeroed */
  gboolean widens_moments; /* it works on fp32 copies of narrow moments */
  gboolean late_moments;   /* it takes their memory when it first works */
  gboolean clips_in_place; /* gradients are scaled where they lie, by kernels of their own */
  gboolean waits_for_norm; /* the host, to read it */
  gint64 tensor_ns;        /* what the host then does for it with each parameter tensor */
  guint8 update_kernels;   /* that a unit's update starts; 0: 1 */
} PlanStackOptimizer;

typedef struct
{
  PlanLoss kind;
  PlanRoundedLoss rounded;
  gint64 chunks;         /* what its own configurations say; 0: it knows no pieces */
  gboolean joins_pieces; /* autograd does each: its weight gradient is rounded, then added to one in
                            the format of the reduction, its input's to one in fp32; the logits
                            outlive it by the next one's; the head is gathered anew behind all */
  gboolean keeps_logits; /* the fp32 ones, up to the end of the loss's backward pass */
} PlanStackLoss;

G_END_DECLS
