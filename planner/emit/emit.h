/* PlanEmit: writes a plan for other programs: command lines, calls and job scripts.
 *
 * These are pure functions from values to text. A plan that the target cannot express is an error
 * that names every offending field and what to use instead; nothing is left out silently. */
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

/* The trainer that a job script starts. */
typedef enum
{
  PLAN_EMIT_RUNTIME_OF_STACK,
  PLAN_EMIT_RUNTIME_MEGATRON,
  PLAN_EMIT_RUNTIME_FSDPLAN,
} PlanEmitRuntime;

typedef struct
{
  const PlanCase *of;
  const char *cluster_spec; /* the words for the case's cluster; NULL where it has none */
} PlanEmitSubject;

/* The names of all kinds, in their order, NULL-terminated. */
const char *const *plan_emit_kinds (void);

gboolean plan_emit_kind_parse (const char *name, PlanEmitKind *out_kind, GError **error);

/* The natural kind: what users of the plan's stack start on such a cluster. */
PlanEmitKind plan_emit_kind_of (const Plan *plan, const PlanCluster *cluster);

gboolean plan_emit_runtime_parse (const char *name, PlanEmitRuntime *out_runtime, GError **error);

/* Writes the plan as text. `runtime` is for job scripts only. UNSUPPORTED where the target cannot
 * express the plan, INVALID where `runtime` is given for another kind. */
char *plan_emit (PlanEmitKind kind, PlanEmitRuntime runtime, const PlanEmitSubject *subject,
                 GError **error);

/* Writes the natural kind or, where that cannot express the plan, the stack's call for models of
 * one's own. Only in the second case `out_note` is set, to a sentence that says so. */
char *plan_emit_natural (PlanEmitRuntime runtime, const PlanEmitSubject *subject, char **out_note,
                         GError **error);

/* Writes the plan as --plan reads it: "# plan HASH", then model, cluster and fields. */
char *plan_emit_plan (const PlanEmitSubject *subject);

G_END_DECLS
