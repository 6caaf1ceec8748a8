/* PlanEmit: a plan as what starts it elsewhere: command lines, calls and job scripts.
 *
 * Pure functions from values to text. What the target cannot say is an error that names every field
 * in the way and what would be right; nothing is left out in silence. */
#pragma once
#include "planner/case/case.h"
#include <glib.h>
G_BEGIN_DECLS

/* X (ID, "name", "what it is") */
#define PLAN_EMIT_LIST(X) \
  X (MEGATRON, "megatron", "a script that starts Megatron-LM, with every flag") \
  X (TORCHRUN, "torchrun", "Megatron-LM's command alone, on one line") \
  X (BRIDGE, "bridge", "Megatron-Bridge's configuration, in Python") \
  X (MEGATRON_FSDP, "megatron_fsdp", \
     "Megatron-FSDP's call for models of one's own, in Python: its fully_shard") \
  X (TORCHTITAN, "torchtitan", "torchtitan's configuration, in Python, as it reads it") \
  X (FSDP2, "fsdp2", "PyTorch's calls of fully_shard for models of one's own, in Python") \
  X (FSDP1, "fsdp1", "PyTorch's FullyShardedDataParallel for models of one's own, in Python") \
  X (ACCELERATE, "accelerate", "Accelerate's configuration of FSDP 1 or 2, in YAML") \
  X (NANOTRON, "nanotron", "nanotron's configuration, in YAML") \
  X (MPIRUN, "mpirun", "fsdplan run's command alone, on one line") \
  X (SLURM, "slurm", "a job for sbatch, around what the plan's stack starts") \
  X (PLAN, "plan", "the plan itself, as --plan reads it")

typedef enum
{
#define X(id, name, summary) PLAN_EMIT_##id,
  PLAN_EMIT_LIST (X)
#undef X
      PLAN_EMIT_N_KINDS
} PlanEmitKind;

/* What a job starts. */
typedef enum
{
  PLAN_EMIT_RUNTIME_OF_STACK,
  PLAN_EMIT_RUNTIME_MEGATRON,
  PLAN_EMIT_RUNTIME_FSDPLAN,
} PlanEmitRuntime;

typedef struct
{
  const PlanCase *of;
  const char *cluster_spec; /* the words for its cluster; NULL where that has none */
} PlanEmitSubject;

/* NULL-terminated names, in that order. */
const char *const *plan_emit_kinds (void);

gboolean plan_emit_kind_parse (const char *name, PlanEmitKind *out_kind, GError **error);

/* The natural one of the plan's stack on that cluster. */
PlanEmitKind plan_emit_kind_of (const Plan *plan, const PlanCluster *cluster);

gboolean plan_emit_runtime_parse (const char *name, PlanEmitRuntime *out_runtime, GError **error);

/* The text; `runtime` matters to jobs only. UNSUPPORTED where the target cannot express the plan,
 * INVALID where `runtime` is given for another kind. */
char *plan_emit (PlanEmitKind kind, PlanEmitRuntime runtime, const PlanEmitSubject *subject,
                 GError **error);

/* The same as the natural kind of the plan's stack, or, where that cannot express the plan, as the
 * stack's call for models of one's own; `out_note` says so, and is left alone otherwise. */
char *plan_emit_natural (PlanEmitRuntime runtime, const PlanEmitSubject *subject, char **out_note,
                         GError **error);

/* "# plan HASH", model, cluster and fields, as --plan reads them. */
char *plan_emit_plan (const PlanEmitSubject *subject);

G_END_DECLS
