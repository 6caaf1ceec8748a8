/* ExecWeights: initial weights by our parameters and layouts, read from a folder of safetensors
 * files in Hugging Face's layout or from a checkpoint of a run. */
#pragma once
#include "exec/walk/checkpoint.h"
#include "planner/model/model.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct _ExecWeights ExecWeights;

/* Opens a folder. Refused if a tensor of the model is missing or has another shape, or if the files
 * have one that the model lacks. Keeps `model`, which must outlive it. */
ExecWeights *exec_weights_open (const char *folder, const PlanModel *model, GError **error);

/* Takes ownership of the checkpoint, also on failure. */
ExecWeights *exec_weights_of_checkpoint (ExecCheckpoint *checkpoint, const PlanModel *model,
                                         GError **error);
void exec_weights_free (ExecWeights *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (ExecWeights, exec_weights_free)

/* Reads `count` elements of a parameter from element `first` on. Rows beyond the model's vocabulary
 * are zero. */
gboolean exec_weights_read (const ExecWeights *self, PlanTensorRole role, gint64 layer,
                            guint64 first, guint64 count, float *out, GError **error);

G_END_DECLS
