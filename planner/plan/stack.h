/* PlanStack: how a framework behaves, as data.
 *
 * Lowering and the memory model read this record and never the framework's name. Behaviour changed
 * over time: there is one record for each state between two changes. Each framework has a file of
 * its own, stack-NAME.c, with its newest record and its history. */
#pragma once
#include "planner/cluster/cluster.h"
#include "planner/plan/plan.h"
#include "planner/plan/stack-choices.h"
#include "planner/schedule/schedule.h"
#include <glib.h>
G_BEGIN_DECLS

/* What becomes of a sequence that a tensor-parallel group has gathered. */
typedef enum
{
  PLAN_SEQUENCES_ANEW,   /* it is freed, and gathered again in the backward pass */
  PLAN_SEQUENCES_KEPT,   /* it stays for the backward pass */
  PLAN_SEQUENCES_STATIC, /* it is gathered again, always into the same static buffers */
} PlanSequences;

/* How attention reads keys and values that several query heads share. */
typedef enum
{
  PLAN_KEYS_SHARED,
  PLAN_KEYS_REPEATED, /* copied for each query head */
  PLAN_KEYS_PAIRED,   /* kept twice: among the heads of qkv, and side by side */
} PlanKeys;

/* Whose kernels the ops of a layer run on. */
typedef enum
{
  PLAN_KERNELS_OF_LIBRARIES,
  /* This program's own. Norms add residuals, too, in both passes; the device counts the rows of
   * each expert, and sorts them once; the host waits for the counts on GPUs alone, to issue a GEMM
   * for each expert; on processors they take fp32 scratch, which the schedule declares. */
  PLAN_KERNELS_OWN,
} PlanKernels;

/* What gives memory to the tensors of a step. */
typedef enum
{
  PLAN_ALLOCATOR_ARENA,      /* one region; each tensor has its place before the first step */
  PLAN_ALLOCATOR_CACHING,    /* PyTorch's, which keeps what was freed and cuts it anew */
  PLAN_ALLOCATOR_EXPANDABLE, /* the same, with segments that grow in place */
} PlanAllocator;

/* When an allocator may give away memory that another stream used. */
typedef enum
{
  PLAN_STREAMS_WAITED,   /* at once: events order the streams */
  PLAN_STREAMS_POOLS,    /* never to others: gathers and reductions have pools of their own */
  PLAN_STREAMS_RECORDED, /* when the collective has ended: record_stream */
} PlanStreams;

/* How the ops of a layer run. */
typedef struct
{
  gboolean recomputes_outputs; /* recompute of a module makes its output again, too, which nobody
                                  reads */
  /* Op-by-op recompute (op-sac) does not know cuDNN's attention and repeats it; on Blackwell. */
  gboolean repeats_cudnn_attention;
  PlanKeys keys;
  PlanSequences sequences;
  gboolean ampere_attention; /* attention is flash-attention 2, whose kernels are made for Ampere */
  gboolean separate_gate;    /* a gated activation keeps the activated gate, unless compiled */
  PlanKernels kernels;
  gboolean exchanges_beside; /* the backward pass gathers and reduces sequences beside a GEMM */
  gboolean rounds_to_tf32;   /* GEMMs of fp32 factors use the device's tf32 units */
} PlanStackLayer;

/* The allocator, and memory outside of it. */
typedef struct
{
  guint64 allocation_bytes; /* allocations are rounded up to a multiple of this */
  PlanAllocator allocator;
  PlanStreams streams;
  gboolean registers_pools; /* nccl_ub registers the pools of units, but not embedding and head */
  guint64 gemm_bytes;    /* workspace that the first GEMM of each pass takes; 0: in fixed_bytes */
  guint64 fixed_bytes;   /* live all the time and in no buffer: workspaces, tables, metadata */
  guint64 context_bytes; /* outside the allocator: context and libraries */
  guint64 communicator_bytes; /* outside the allocator, for each group of more than one rank */
} PlanStackMemory;

typedef struct
{
  gboolean stages_by_cost;    /* layers are dealt out by their cost, else evenly */
  PlanFill fill;              /* how many micro batches a pipeline needs */
  gboolean trades_in_turn;    /* two stages send to each other one after the other */
  gboolean aligns_reductions; /* later stages reduce only after they have sent the last gradient */
  gboolean awaits_sent;       /* compute waits at once for the output that a virtual stage sends */
  gboolean deals_rest;        /* layers that do not divide: the first stages have one more each */
  gboolean waits_on_device;   /* compute waits for exchanges, and the host issues on */
  gboolean loads_at_begin;    /* all micro batches are copied to the device before the first pass */
  /* Gradients stay whole up to the last micro batch; then units are reduced one after another.
   * Weights that a forward pass does not free stay up to there, too. */
  gboolean holds_gradients;
} PlanStackPipeline;

/* The host that issues ops. */
typedef struct
{
  gint64 launch_ns[PLAN_N_LAUNCHES]; /* time to issue one op, by class */
  guint8 kernels[PLAN_N_LAUNCHES];   /* kernels that one op starts; 0: 1 */
  /* The host waits for the device when it loads a micro batch: always; if it has documents. */
  gboolean waits_at_load, waits_if_packed;
  gboolean takes_no_processors; /* communicators take no SMs (NCCL_CTA_POLICY_ZERO) */
} PlanStackHost;

typedef struct
{
  const char *name, *source;
  gint64 id;             /* PLAN_STACK_MEGATRON_FSDP, ... */
  gint64 oldest, newest; /* yyyymmdd: the span that is known; no date in a plan means `newest` */
  gint64 vocab_multiple; /* times tp: the vocabulary is padded to a multiple of it */
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

/* Device memory outside the allocator while a schedule runs. */
guint64 plan_stack_outside_bytes (const PlanStack *self, const PlanSchedule *schedule);

/* Whether a tied embedding's gradient is summed over its two stages before the ranks of a stage
 * reduce it. That is so if buckets are modules, as these are cut into shards differently on both
 * stages. */
gboolean plan_stack_sums_shared_first (const PlanStack *self);

/* What the loss of a plan leaves in memory. */
PlanLoss plan_stack_loss (const PlanStack *self, const Plan *plan);

/* The stack that a plan names, as it was at the date that it gives; UNSUPPORTED if it is not
 * modelled. */
const PlanStack *plan_stack_of (const Plan *plan, PlanDeviceKind device, GError **error);

/* The stacks that are modelled, in a fixed order. */
guint plan_stack_n (void);
const PlanStack *plan_stack_get (guint i);

gint64 plan_stack_padded_vocab (const PlanStack *self, gint64 vocab, gint64 tp);

G_END_DECLS
