/* PlanStack: how a framework behaves, as data.
 *
 * Lowering and the memory model read this record and never the framework's name.
 * Behaviour changed over time: there is one record per state between two changes. */
#pragma once
#include "planner/cluster/cluster.h"
#include "planner/plan/placing.h"
#include "planner/plan/plan.h"
#include "planner/schedule/schedule.h"
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

typedef struct
{
  const char *name, *source;
  gint64 id;               /* PLAN_STACK_MEGATRON_FSDP, ... */
  gint64 oldest, newest;   /* yyyymmdd: what is known; the newest is meant when no date is given */
  gint64 vocab_multiple;   /* vocabulary is padded to this, times tp */
  guint64 bucket_elements; /* a bucket that is no unit's closes at that many, or at */
  guint64 bucket_elements_per_rank; /* this times the ranks; 0: one per module */
  gboolean cuts_backwards;          /* buckets by size fill from the last parameter to the first */
  gint64 comm_unit_floor;           /* elements; least communication unit when it is `auto` */
  gboolean has_max_pool, has_documents;         /* double_buffer=max_pool; doc_tokens */
  gboolean has_fine_grained, has_fused_masters; /* fields that can be asked for */
  gboolean units_below_full; /* optim and optim_grads reduce and gather by unit */
  PlanNaming naming;         /* the order in which parameters are packed */
  PlanPacking packing;
  guint64 shard_multiple; /* elements; a packed bucket is a multiple of this and of the shards */
  PlanOuterWeights outer; /* embedding and head */
  gboolean gathers_each_pass; /* optim_grads gathers in each forward pass, not once per step */
  gboolean gathers_in_turn, gathers_in_grads; /* what stays: as it is used; mxfp8 in grads' place */
  gboolean rounds_as_gathered; /* no rounded weights at rest: main weights are, as they travel */
  gboolean copies_gathered;    /* out of the buffer that was gathered into, to the parameters */
  gboolean gathers_at_once;    /* what stays whole is, by one call with buffers of its own */
  gint64 units_ahead;          /* gathered ahead of their use; 0: by the communication unit */
  guint64 reduce_bytes;        /* of gradients in the weights' format together; 0: a unit's */
  gboolean sums_at_once;    /* strategy=optim: all gradients everywhere, by one call at the end */
  gint64 queued_reductions; /* in flight at most; 0: by the communication unit */
  gboolean collects_grads;  /* a unit's gradients are moved once all of them are there */
  gboolean drops_grads;     /* sharded gradients live from their reduction to the next step */
  gboolean autograd_stays; /* gradients as autograd leaves them stay until the backward pass ends */
  gboolean keeps_half_grads;   /* also whole ones in the weights' format, but for strategy=optim */
  gboolean registers_pools;    /* nccl_ub is for units' buffers: embedding and head have others */
  gint64 pooled_grad_units;    /* units whose gradients live at once under double_buffer */
  gboolean frees_pooled_early; /* their buffers are free once the reduction is queued, not over */
  gboolean scales_hybrid;      /* by 1/ranks, where shards are split between replicas, too */
  gboolean prefetches_past_head;                 /* the output layer gathers units nobody needs */
  gboolean transposes_forward, keeps_transposes; /* fp8 weights: in that pass too; for a step */
  gboolean repeats_outer_gather; /* shards between replicas are gathered for both passes */
  gboolean casts_grads;          /* to the format of the main weights, until next zeroed */
  gboolean widens_moments;       /* the optimizer works on fp32 copies of narrow moments */
  gboolean late_moments;         /* it takes their memory when it first works */
  gboolean has_narrow_moments;   /* bf16 for both beside fp32 weights */
  gboolean recomputes_outputs;   /* recomputing a module computes its output again, for nothing */
  PlanLoss loss;
  gboolean rounds_fused_loss, rounds_compiled_loss; /* PLAN_LOSS_ROUNDED if ce_fusion, if compile */
  gint64 loss_chunks;    /* what its own configurations say; 0: it knows no pieces */
  gboolean joins_pieces; /* autograd does each: its weight gradient is rounded, then added to one in
                            the format of the reduction, its input's to one in fp32; the logits
                            outlive it by the next one's; the head is gathered anew behind all */
  gboolean repeats_cudnn_attention; /* op-sac does not know it: Blackwell's, there */
  gboolean repeats_keys;            /* keys and values are repeated for each query head */
  gboolean pairs_keys;           /* attention keeps keys and values once more, beside all heads */
  gboolean keeps_logits;         /* the fp32 ones, up to the end of the loss's backward pass */
  gboolean separate_gate;        /* a gated activation keeps the activated gate; not if compiled */
  gboolean quantises_on_use;     /* fp8 copies of weights and activations live for one product */
  gboolean keeps_gathered;       /* sequences stay gathered for the backward pass */
  gboolean exchanges_beside;     /* going backward, sequences travel beside a product */
  gboolean quantises_units;      /* parameters in squares go through a buffer of the whole unit */
  gboolean static_gathers;       /* sequences are gathered into buffers that stay */
  gboolean adds_in_norms;        /* kernels of norms do the residual sums before and behind them */
  gboolean needs_kernel_scratch; /* kernels take fp32 scratch from the schedule (CPU) */
  gboolean maps_count_rows;      /* of each expert: the host does not; they are sorted once */
  guint64 allocation_bytes;      /* every allocation is rounded up to this */
  gboolean caching_allocator;    /* reserved memory follows a caching allocator, else an arena */
  gboolean pools_per_stream;     /* what is gathered or reduced is taken on the stream of it */
  gboolean records_streams;      /* blocks that collectives used come free once these are over */
  gboolean expandable_segments;  /* that allocator's segments grow in place */
  guint64 product_work_bytes; /* taken by the first product of either pass; in fixed_bytes if 0 */
  guint64 fixed_bytes;        /* live all the time and in no buffer: workspaces, tables, metadata */
  guint64 context_bytes;      /* device memory outside the allocator: context and libraries, */
  guint64 communicator_bytes; /* and for each group of more than one rank */
  gboolean takes_no_processors;      /* communicators are made with NCCL_CTA_POLICY_ZERO */
  gboolean rounds_to_tf32;           /* products of fp32 factors use the device's tf32 units */
  gboolean ampere_attention;         /* by flash-attention 2, whose kernels are made for Ampere */
  gint64 launch_ns[PLAN_N_LAUNCHES]; /* host time to issue one op */
  guint8 kernels[PLAN_N_LAUNCHES], update_kernels; /* that one op, a unit's update, starts; 0: 1 */
  gboolean has_pipelines, stages_by_cost; /* under 1F1B; layers dealt out so, else evenly */
  gboolean fills_pipeline;                /* needs a micro batch for each stage but one */
  gboolean trades_in_turn;    /* what stages send one another travels one after the other */
  gboolean aligns_reductions; /* of later stages: they begin once the last gradient has been sent */
  gboolean awaits_sent;       /* compute waits at once for what a virtual stage sends forward */
  gboolean waits_at_load, waits_if_packed, waits_for_norm; /* the host; of documents; to read it */
  gboolean clips_in_place; /* gradients are scaled where they lie, by kernels of their own */
  gint64 tensor_ns;        /* and what it then does for the optimizer with each parameter tensor */
  /* Where what is gathered at once are lists: parameters of a unit; of each, for each rank's piece
   * of it, what the host does before they are sent, and to copy it from where it arrived. */
  gint64 unit_tensors, piece_ns, copy_ns;
} PlanStack;

/* Device memory outside the allocator while that schedule runs. */
guint64 plan_stack_outside_bytes (const PlanStack *self, const PlanSchedule *schedule);

/* What the loss of that plan leaves there. */
PlanLoss plan_stack_loss (const PlanStack *self, const Plan *plan);

/* The stack a plan names, as it was at the date it gives; UNSUPPORTED where it is not modelled. */
const PlanStack *plan_stack_of (const Plan *plan, PlanDeviceKind device, GError **error);

/* The modelled stacks, in a fixed order. */
guint plan_stack_n (void);
const PlanStack *plan_stack_get (guint i);

gint64 plan_stack_padded_vocab (const PlanStack *self, gint64 vocab, gint64 tp);

G_END_DECLS
