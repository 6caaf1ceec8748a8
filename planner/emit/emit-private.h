/* Shared by the files of emit: targets and reasons against them, and Megatron-LM's command. */
#pragma once
#include "planner/emit/emit.h"
#include <glib.h>
G_BEGIN_DECLS

/* The version for which flags and arguments are written. */
#define PLAN_EMIT_VERSION "Megatron-LM main at d98e8a64 (2026-08-22)"

/* X (ID, "NAME"): the arrays of flags in the script, in order. */
#define PLAN_EMIT_GROUP_LIST(X) \
  X (MODEL, "MODEL") \
  X (BATCH, "BATCH") \
  X (PRECISION, "PRECISION") \
  X (SHARDING, "SHARDING") \
  X (EXPERTS, "EXPERTS") \
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

/* Fills in Megatron-LM's flags for a plan; adds to `reasons` what they cannot express. */
void plan_emit_megatron (const PlanEmitSubject *subject, PlanEmitCommand *out_command,
                         GPtrArray *reasons);

/* Adds the flags for the model. */
void plan_emit_megatron_model (const PlanModel *model, gint64 seq, GPtrArray *lines,
                               GPtrArray *reasons);

/* Adds a reason if `is_so`. */
void plan_emit_refuse (GPtrArray *reasons, gboolean is_so, const char *format, ...)
    G_GNUC_PRINTF (3, 4);

/* A field that a target can express: by its own options, or by the program around the call. */
typedef struct
{
  PlanField field;
  guint64 values;  /* PLAN_EMIT_ANY, or a bit per value that can be expressed */
  const char *own; /* what the program around does about it; NULL where the file expresses it */
} PlanEmitSaid;

#define PLAN_EMIT_ANY G_MAXUINT64
#define PLAN_EMIT_ONLY(field, id) (G_GUINT64_CONSTANT (1) << PLAN_##field##_##id)
/* clang-format off */
#define CAN_SAY(field) { PLAN_##field, PLAN_EMIT_ANY, NULL }
#define CAN_ONLY(field, id) { PLAN_##field, PLAN_EMIT_ONLY (field, id), NULL }
#define IS_OWN(field, how) { PLAN_##field, PLAN_EMIT_ANY, how }
/* clang-format on */

/* A program for which files are written, and the fields that it can express. Any other field must
 * have its default. */
typedef struct
{
  const char *name;    /* "torchtitan" */
  const char *version; /* "torchtitan main at b5bcd76c (2026-08-21)" */
  guint stacks;        /* a bit per stack that it runs */
  const PlanEmitSaid *said;
  guint n_said;
} PlanEmitTarget;

/* Adds a reason for every field and stack that the target cannot express, and for a cluster without
 * GPUs. */
void plan_emit_refuse_target (const PlanEmitSubject *subject, const PlanEmitTarget *target,
                              GPtrArray *reasons);

/* Adds reasons for what only Megatron-LM's own programs support: experts, latent attention. */
void plan_emit_refuse_experts (const PlanModel *model, GPtrArray *reasons);

/* Comments on what the program around must do about fields that differ from their defaults. */
void plan_emit_own (GString *text, const PlanEmitSubject *subject, const PlanEmitTarget *target);

/* "# For VERSION, with NCCL VERSION", without a line end. */
void plan_emit_for (GString *text, const PlanEmitSubject *subject, const char *version);

/* "True" or "False". */
const char *plan_emit_python (gboolean is_so);

/* A real number with a decimal point, so that YAML and Python read it as one; the caller frees. */
char *plan_emit_real (double value);

/* "torch.float32": PyTorch's name of fp32, fp16 or bf16. */
const char *plan_emit_torch_dtype (PlanDtype dtype);

/* Adds reasons for formats that PyTorch's own sharding does not take. */
void plan_emit_refuse_torch (const PlanEmitSubject *subject, GPtrArray *reasons);

/* Python that calls of PyTorch share: the batch, the recompute policy, the optimizer. */
void plan_emit_torch_imports (GString *text, const PlanEmitSubject *subject);
void plan_emit_torch_batch (GString *text, const PlanEmitSubject *subject);
void plan_emit_torch_policy (GString *text, const PlanEmitSubject *subject);
void plan_emit_torch_optimizer (GString *text, const PlanEmitSubject *subject);

/* The number of layers that are recomputed. */
gint64 plan_emit_recomputed (const PlanEmitSubject *subject);

/* Adds reasons for what neither Megatron-FSDP nor, where the target supports it, stack=megatron can
 * express. */
void plan_emit_refuse_common (const PlanEmitSubject *subject, gboolean takes_megatron,
                              GPtrArray *reasons);

void plan_emit_line (GPtrArray *lines, const char *format, ...) G_GNUC_PRINTF (2, 3);

/* Comments with the plan and its hazards. */
void plan_emit_head (GString *text, const PlanEmitSubject *subject, PlanEmitKind kind);

/* "torchrun" with its options for these nodes; a single node needs no address. `separator` is put
 * where a line may end; the caller frees. */
char *plan_emit_torchrun (const PlanCluster *cluster, const char *separator);

/* Scripts around a command. */
char *plan_emit_script_megatron (const PlanEmitSubject *subject, const PlanEmitCommand *command);
char *plan_emit_script_line (const PlanEmitSubject *subject, const PlanEmitCommand *command);
char *plan_emit_script_line_own (const PlanEmitSubject *subject);
char *plan_emit_script_slurm (const PlanEmitSubject *subject, const PlanEmitCommand *command);
char *plan_emit_script_slurm_own (const PlanEmitSubject *subject);

/* A job script that writes a file and starts a program on it; submitted in its folder. */
char *plan_emit_script_slurm_file (const PlanEmitSubject *subject, const char *file,
                                   const char *name, const char *environment, const char *program,
                                   const char *folder);

/* The whole file; adds to `reasons` what it cannot express. The caller frees. */
char *plan_emit_accelerate (const PlanEmitSubject *subject, GPtrArray *reasons);
char *plan_emit_bridge (const PlanEmitSubject *subject, GPtrArray *reasons);
char *plan_emit_fsdp1 (const PlanEmitSubject *subject, GPtrArray *reasons);
char *plan_emit_fsdp2 (const PlanEmitSubject *subject, GPtrArray *reasons);
char *plan_emit_megatron_fsdp (const PlanEmitSubject *subject, GPtrArray *reasons);
char *plan_emit_nanotron (const PlanEmitSubject *subject, GPtrArray *reasons);
char *plan_emit_torchtitan (const PlanEmitSubject *subject, GPtrArray *reasons);

G_END_DECLS
