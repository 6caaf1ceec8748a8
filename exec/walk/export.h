/* exec_export: weights as a folder that Hugging Face transformers reads: config.json and
 * safetensors files.
 *
 * All is written to a folder of another name beside it, which gets its own once it is complete. No
 * more than one tensor is in memory. */
#pragma once
#include "exec/walk/weights.h"
#include "planner/model/model-config-write.h"
#include <glib.h>
G_BEGIN_DECLS

/* Bytes of tensors of a file, unless a single one is larger: what transformers writes. */
#define EXEC_EXPORT_SHARD_BYTES G_GUINT64_CONSTANT (5000000000)

typedef struct
{
  PlanArchitecture architecture;
  guint tensors, files;
  guint64 bytes; /* of tensors */
} ExecExported;

/* Whether a folder can be made there: nothing is, or an empty one. Better known early. */
gboolean exec_export_check (const char *folder, GError **error);

/* FP32, BF16 or FP16. */
gboolean exec_export_hf (const ExecWeights *weights, const PlanModel *model, PlanDtype dtype,
                         guint64 shard_bytes, const char *folder, ExecExported *out_exported,
                         GError **error);

G_END_DECLS
