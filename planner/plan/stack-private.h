/* What the files of the frameworks share: a record with its history, and figures that hold for
 * several.
 *
 * Host time to issue an op from Python is assumed, from published times:
 *
 * - a small kernel of PyTorch's: 10 to 20 us (TransformerEngine PR #1016);
 * - the three GEMMs of te.Linear, forward and backward: half of 0.57 ms in bf16 and of 2.07 ms in
 * fp8, measured in 2023 (issue #445) and greatly reduced since (issue #2126);
 * - hooks of a unit in FSDP2: two collectives of 250 us each, of up to 1 ms (PyTorch issue
 * #173680).
 *
 * The half and the quarter were chosen with the times of two logged runs known (A11 and D2 of the
 * memory tests), not fitted to them. If nothing else is said, a framework's host costs what eager
 * PyTorch's does.
 *
 * GEMMs of fp32 factors run in tf32 where Transformer Engine runs them
 * (common/gemm/cublaslt_gemm.cu). */
#pragma once
#include "planner/plan/stack-history.h"
#include "planner/plan/stack.h"
G_BEGIN_DECLS

/* Device memory outside the allocator, or outside the runtime's arena. Assumed: a context with its
 * modules and library handles. NCCL's buffers: 24 channels (the log of Megatron-LM PR #3067), each
 * with buffers of a ring and of a tree, of 4 MiB for the Simple protocol (NCCL_BUFFSIZE) and about
 * 1 MiB for the others. */
#define PLAN_STACK_CONTEXT_BYTES (768 * PLAN_MIB)
#define PLAN_STACK_COMMUNICATOR_BYTES (240 * PLAN_MIB)

/* A change in a framework's history. `undo` restores what held before it. NULL: the change is
 * outside of what is modelled, and its summary says what it did. */
typedef struct
{
  PlanStackChange change;
  void (*undo) (PlanStack *stack);
} PlanStackStep;

/* A release branch, and the day it left the main branch. */
typedef struct
{
  const char *name;
  gint64 date;
} PlanStackRelease;

/* A framework: its newest state, the changes that led to it, oldest first, and its releases. */
typedef struct
{
  PlanStack newest;
  const PlanStackStep *steps;
  guint n_steps, n_releases;
  const PlanStackRelease *releases;
} PlanFramework;

/* Ops of Megatron-LM's routers and dispatchers at d98e8a64, counted as PyTorch 2.15 dispatches them
 * on a CPU, without views, on 2026-11-26. By score: topk_routing_with_score_function, the auxiliary
 * loss with its log, and the counts of a biased router (moe_utils.py, router.py). Fused:
 * Transformer Engine's three kernels each way, and what is left around them (router.py 933 to 975).
 * Counts: the sums and copies to the host of MoEAlltoAllTokenDispatcher.preprocess. Lists:
 * _DeepepManager, _indices_to_multihot. Recipes that fuse the router fuse the lists, too: they have
 * both
 * --moe-router-fusion and --enable-experimental (Megatron-MoE-ModelZoo at b0b92ff, model_configs).
 */
#define PLAN_STACK_MEGATRON_ROUTING \
  { \
    .by_softmax = { 22, 10 }, .by_sigmoid = { 33, 25 }, .fused = { 7, 6 }, .groups = { 9, 0 }, \
    .counts = { 10, 0 }, \
    .lists \
        = { 13, \
            5 } \
  }

/* The change that brought doc_tokens to Megatron-LM, for both of its stacks. */
#define PLAN_STACK_DOCUMENTS \
  { \
    20260628, "Megatron-LM PR #5298", "attention can stay within documents (doc_tokens)" \
  }

/* The change that took Transformer Engine's cross entropy away from both. */
#define PLAN_STACK_TE_LOSS \
  { \
    20260603, "Megatron-LM PR #5115", \
        "Transformer Engine's cross entropy (ce_fusion=te) is switched off for want of stability" \
  }

extern const PlanFramework plan_framework_megatron_fsdp, plan_framework_megatron,
    plan_framework_fsdp2, plan_framework_fsdp1, plan_framework_nanotron, plan_framework_native;

const PlanFramework *plan_framework_of (gint64 stack);

/* The state of a stack on a given day. */
const PlanStack *plan_stack_at (const PlanStack *newest, gint64 date);

G_END_DECLS
