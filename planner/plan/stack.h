/* PlanStack: how a framework behaves, as data.
 *
 * Lowering and the memory model read this record and never the framework's name.
 * Behaviour changed over time: there is one record per state between two changes. A framework has a
 * file of its own, stack-NAME.c: its record and its past. */
#pragma once
#include "planner/cluster/cluster.h"
#include "planner/plan/plan.h"
#include "planner/plan/stack-choices.h"
#include "planner/schedule/schedule.h"
#include <glib.h>
G_BEGIN_DECLS

/* What becomes of sequences that a tensor-parallel group has gathered. */
typedef enum
{
  PLAN_SEQUENCES_ANEW,   /* the backward pass gathers them again */
  PLAN_SEQUENCES_KEPT,   /* they stay for the backward pass */
  PLAN_SEQUENCES_STATIC, /* gathered again, each time into the same buffers */
} PlanSequences;

/* Keys and values, where several query heads share one of each. */
typedef enum
{
  PLAN_KEYS_SHARED,
  PLAN_KEYS_REPEATED, /* for each query head */
  PLAN_KEYS_PAIRED,   /* kept once more, side by side, and beside all heads */
} PlanKeys;

/* How the ops of a layer are done. */
typedef struct
{
  gboolean recomputes_outputs; /* recomputing a module computes its output again, for nothing */
  gboolean repeats_cudnn_attention; /* op-sac does not know it: Blackwell's, there */
  PlanKeys keys;
  PlanSequences sequences;
  gboolean ampere_attention;     /* by flash-attention 2, whose kernels are made for Ampere */
  gboolean separate_gate;        /* a gated activation keeps the activated gate; not if compiled */
  gboolean adds_in_norms;        /* kernels of norms do the residual sums before and behind them */
  gboolean exchanges_beside;     /* going backward, sequences travel beside a product */
  gboolean maps_count_rows;      /* of each expert: the host does not; they are sorted once */
  gboolean rounds_to_tf32;       /* products of fp32 factors use the device's tf32 units */
  gboolean needs_kernel_scratch; /* kernels take fp32 scratch from the schedule (CPU) */
} PlanStackLayer;

/* The allocator, and what is outside of it. */
typedef struct
{
  guint64 allocation_bytes;     /* every allocation is rounded up to this */
  gboolean is_caching;          /* reserved memory follows a caching allocator, else an arena */
  gboolean pools_per_stream;    /* what is gathered or reduced is taken on the stream of it */
  gboolean records_streams;     /* blocks that collectives used come free once these are over */
  gboolean expandable_segments; /* that allocator's segments grow in place */
  gboolean registers_pools;     /* nccl_ub is for units' buffers: embedding and head have others */
  guint64 gemm_bytes;           /* taken by the first GEMM of either pass; in fixed_bytes if 0 */
  guint64 fixed_bytes;        /* live all the time and in no buffer: workspaces, tables, metadata */
  guint64 context_bytes;      /* device memory outside the allocator: context and libraries, */
  guint64 communicator_bytes; /* and for each group of more than one rank */
} PlanStackMemory;

typedef struct
{
  gboolean stages_by_cost;    /* layers are dealt out so, else evenly */
  gboolean is_filled;         /* needs a micro batch for each stage but one */
  gboolean trades_in_turn;    /* what stages send one another travels one after the other */
  gboolean aligns_reductions; /* of later stages: they begin once the last gradient has been sent */
  gboolean awaits_sent;       /* compute waits at once for what a virtual stage sends forward */
} PlanStackPipeline;

/* The host that issues ops. */
typedef struct
{
  gint64 launch_ns[PLAN_N_LAUNCHES];       /* to issue one op */
  guint8 kernels[PLAN_N_LAUNCHES];         /* that one op starts; 0: 1 */
  gboolean waits_at_load, waits_if_packed; /* for the device; of documents */
  gboolean takes_no_processors;            /* communicators are made with NCCL_CTA_POLICY_ZERO */
} PlanStackHost;

typedef struct
{
  const char *name, *source;
  gint64 id;             /* PLAN_STACK_MEGATRON_FSDP, ... */
  gint64 oldest, newest; /* yyyymmdd: what is known; the newest is meant when no date is given */
  gint64 vocab_multiple; /* vocabulary is padded to this, times tp */
  PlanStackOffers offers;
  PlanStackBuckets buckets;
  PlanStackWeights weights;
  PlanStackGrads grads;
  PlanStackOptimizer optimizer;
  PlanStackLoss loss;
  PlanStackLayer layer;
  PlanStackMemory memory;
  PlanStackPipeline pipeline;
  PlanStackHost host;
} PlanStack;

/* Device memory outside the allocator while that schedule runs. */
guint64 plan_stack_outside_bytes (const PlanStack *self, const PlanSchedule *schedule);

/* Whether a matrix that two stages of a pipeline share is summed over them before the ranks of a
 * stage reduce it: buckets by module are not cut alike on both stages. */
gboolean plan_stack_sums_shared_first (const PlanStack *self);

/* What the loss of that plan leaves there. */
PlanLoss plan_stack_loss (const PlanStack *self, const Plan *plan);

/* The stack a plan names, as it was at the date it gives; UNSUPPORTED where it is not modelled. */
const PlanStack *plan_stack_of (const Plan *plan, PlanDeviceKind device, GError **error);

/* The modelled stacks, in a fixed order. */
guint plan_stack_n (void);
const PlanStack *plan_stack_get (guint i);

gint64 plan_stack_padded_vocab (const PlanStack *self, gint64 vocab, gint64 tp);

G_END_DECLS
