/* What the parts of emit share: reasons against, and Megatron-LM's command before it is laid out.
 */
#pragma once
#include "planner/emit.h"
#include <glib.h>
G_BEGIN_DECLS

/* The version whose flags and arguments are written. */
#define PLAN_EMIT_VERSION "Megatron-LM main at d98e8a64 (2026-08-22)"

/* X (ID, "NAME"): arrays of the script, in order. */
#define PLAN_EMIT_GROUP_LIST(X) \
  X (MODEL, "MODEL") \
  X (BATCH, "BATCH") \
  X (PRECISION, "PRECISION") \
  X (SHARDING, "SHARDING") \
  X (MEMORY, "MEMORY") \
  X (DATA, "DATA") \
  X (TRAINING, "TRAINING")

typedef enum
{
#define X(id, name) PLAN_EMIT_GROUP_##id,
  PLAN_EMIT_GROUP_LIST (X)
#undef X
      PLAN_EMIT_N_GROUPS
} PlanEmitGroup;

/* Lines of shell text: "--flag value" in the groups, "NAME=value" in the environment. */
typedef struct
{
  GPtrArray *groups[PLAN_EMIT_N_GROUPS];
  GPtrArray *environment;
  gboolean unsets_connections; /* Megatron-FSDP refuses CUDA_DEVICE_MAX_CONNECTIONS=1 */
} PlanEmitCommand;

void plan_emit_command_clear (PlanEmitCommand *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (PlanEmitCommand, plan_emit_command_clear)

/* Megatron-LM's flags for a plan; what they cannot say is added to `reasons`. */
void plan_emit_megatron (const PlanEmitSubject *subject, PlanEmitCommand *out_command,
                         GPtrArray *reasons);

/* The part on the model: lines of flags. */
void plan_emit_megatron_model (const PlanModel *model, gint64 seq, GPtrArray *lines,
                               GPtrArray *reasons);

/* Adds a reason if `is_so`. */
void plan_emit_refuse (GPtrArray *reasons, gboolean is_so, const char *format, ...)
    G_GNUC_PRINTF (3, 4);

/* Adds what neither Megatron-FSDP nor, where the target takes it, stack=megatron can say. */
void plan_emit_refuse_common (const PlanEmitSubject *subject, gboolean takes_megatron,
                              GPtrArray *reasons);

void plan_emit_line (GPtrArray *lines, const char *format, ...) G_GNUC_PRINTF (2, 3);

/* Comments: the plan, and what is surprising about it. */
void plan_emit_head (GString *text, const PlanEmitSubject *subject, PlanEmitKind kind);

/* "torchrun" with its options for these nodes; one node needs no address. `separator` stands where
 * a line may end; the caller frees. */
char *plan_emit_torchrun (const PlanCluster *cluster, const char *separator);

/* Scripts around a command. */
char *plan_emit_script_megatron (const PlanEmitSubject *subject, const PlanEmitCommand *command);
char *plan_emit_script_line (const PlanEmitSubject *subject, const PlanEmitCommand *command);
char *plan_emit_script_line_own (const PlanEmitSubject *subject);
char *plan_emit_script_slurm (const PlanEmitSubject *subject, const PlanEmitCommand *command);
char *plan_emit_script_slurm_own (const PlanEmitSubject *subject);

char *plan_emit_fully_shard (const PlanEmitSubject *subject, GPtrArray *reasons);

G_END_DECLS
