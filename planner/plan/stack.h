/* PlanStack: how a framework behaves, as data.
 *
 * Lowering and the memory model read this record and never the framework's name. Behaviour changed
 * over time: there is one record for each state between two changes. Each framework has a file of
 * its own, stack-NAME.c, with its newest record and its history. */
#pragma once
#include "planner/cluster/cluster.h"
#include "planner/plan/plan.h"
#include "planner/plan/stack-choices.h"
#include "planner/plan/stack-grads.h"
#include "planner/plan/stack-issue.h"
#include "planner/plan/stack-layer.h"
#include "planner/plan/stack-weights.h"
#include "planner/schedule/schedule.h"
#include <glib.h>
G_BEGIN_DECLS

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

/* The allocator, and memory outside of it. */
typedef struct
{
  guint64 allocation_bytes; /* allocations are rounded up to a multiple of this */
  PlanAllocator allocator;
  PlanStreams streams;
  guint64 gemm_bytes;    /* workspace that the first GEMM of each pass takes; 0: in fixed_bytes */
  guint64 fixed_bytes;   /* live all the time and in no buffer: workspaces, tables, metadata */
  guint64 context_bytes; /* outside the allocator: context and libraries */
  guint64 communicator_bytes; /* outside the allocator, for each group of more than one rank */
  gboolean is_host_memory;    /* processors: offloaded buffers take device memory, too */
} PlanStackMemory;

typedef struct
{
  const char *name, *source;
  gint64 id;             /* PLAN_STACK_MEGATRON_FSDP, ... */
  gint64 oldest, newest; /* yyyymmdd: the span that is known; no date in a plan means `newest` */
  gint64 vocab_multiple; /* times tp: the vocabulary is padded to a multiple of it */
  PlanOffers offers;
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

/* Device memory outside the allocator while a schedule runs: of contexts and communicators and, on
 * processors, of offloaded buffers. */
guint64 plan_stack_outside_bytes (const PlanStack *self, const PlanSchedule *schedule);

/* Whether a tied embedding's gradient is summed over its two stages before the ranks of a stage
 * reduce it. That is so if buckets are modules, as these are cut into shards differently on both
 * stages. */
gboolean plan_stack_sums_shared_first (const PlanStack *self);

/* Whether a tensor-parallel rank's slice of a quantised parameter has scales of its own, so that
 * ranks agree on magnitudes with those alone that share the slice. Our own kernels read a slice as
 * a matrix; frameworks are taken to agree among all ranks of a stage. */
gboolean plan_stack_scales_slices (const PlanStack *self, const Plan *plan);

/* Whether a unit's gradients are moved to the bucket together (PLAN_GRADS_COLLECTED). */
gboolean plan_stack_collects (const PlanStack *self);

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
