/* What the files of the frameworks share: a record with its past, and figures that hold for
 * several.
 *
 * What issuing an op costs a host that runs Python is assumed. Published: a small kernel of
 * PyTorch's costs 10 to 20 us (TransformerEngine PR #1016); a te.Linear, forward and backward,
 * 0.57 ms in bf16 and 2.07 ms in fp8 in 2023 (issue #445: three GEMMs), greatly reduced since
 * (issue #2126), taken as half; hooks of a unit up to 1 ms in FSDP2 (PyTorch issue #173680), here
 * two collectives of 250 us. Half and a quarter were chosen with the level of two logged runs in
 * sight (A11 and D2 of the memory tests), not solved for. Where nothing else is said, a framework's
 * host costs what eager PyTorch's does.
 *
 * Products of fp32 factors run in tf32 where Transformer Engine does them
 * (common/gemm/cublaslt_gemm.cu). */
#pragma once
#include "planner/plan/stack-history.h"
#include "planner/plan/stack.h"
G_BEGIN_DECLS

/* Outside the allocator, or the runtime's arena: a context with its modules and library handles,
 * assumed; and NCCL's buffers, of 24 channels (the log of Megatron-LM PR #3067) a ring's and a
 * tree's, 4 MiB each for the Simple protocol (NCCL_BUFFSIZE) and about one for the others. */
#define PLAN_STACK_CONTEXT_BYTES (768 * PLAN_MIB)
#define PLAN_STACK_COMMUNICATOR_BYTES (240 * PLAN_MIB)

/* `undo` gives back what held before the change. Where there is none, the change is outside of what
 * is modelled, and the summary says what it did. */
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

/* A framework: its newest state, what changed before that, oldest first, and its releases. */
typedef struct
{
  PlanStack newest;
  const PlanStackStep *steps;
  guint n_steps, n_releases;
  const PlanStackRelease *releases;
} PlanFramework;

/* Documents are of Megatron-LM, for both of its stacks. */
#define PLAN_STACK_DOCUMENTS \
  { \
    20260628, "Megatron-LM PR #5298", "attention can stay within documents (doc_tokens)" \
  }

extern const PlanFramework plan_framework_megatron_fsdp, plan_framework_megatron,
    plan_framework_fsdp2, plan_framework_fsdp1, plan_framework_nanotron, plan_framework_native;

const PlanFramework *plan_framework_of (gint64 stack);

/* What held on that day. */
const PlanStack *plan_stack_at (const PlanStack *newest, gint64 date);

G_END_DECLS
