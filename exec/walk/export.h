/* exec_export: weights as a folder that Hugging Face transformers reads: config.json and
 * safetensors files.
 *
 * All files are written to a temporary folder beside the target, which is renamed once it is
 * complete. At most one tensor is in memory at a time. */
#pragma once
#include "exec/walk/weights.h"
#include "planner/model/model-config-write.h"
#include <glib.h>
G_BEGIN_DECLS

/* Most bytes of tensors in one file, unless a single tensor is larger: the limit of
 * transformers. */
#define EXEC_EXPORT_SHARD_BYTES G_GUINT64_CONSTANT (5000000000)

typedef struct
{
  PlanArchitecture architecture;
  guint tensors, files;
  guint64 bytes; /* of tensors */
} ExecExported;

/* Checks that a folder can be made there: nothing or an empty folder is in its place. Called before
 * long work, so that it does not fail at its end. */
gboolean exec_export_check (const char *folder, GError **error);

/* Writes the folder; `dtype` is FP32, BF16 or FP16. */
gboolean exec_export_hf (const ExecWeights *weights, const PlanModel *model, PlanDtype dtype,
                         guint64 shard_bytes, const char *folder, ExecExported *out_exported,
                         GError **error);

G_END_DECLS
