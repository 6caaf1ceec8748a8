/* ExecWeights: the weights of a folder, by this program's names and layouts: of safetensors files,
 * as Hugging Face keeps them, or of a checkpoint of a run. */
#pragma once
#include "exec/walk/checkpoint.h"
#include "planner/model/model.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct _ExecWeights ExecWeights;

/* Refuses a folder that lacks a tensor of the model, or has one of another shape or one that is
 * none of the model's, which is kept. */
ExecWeights *exec_weights_open (const char *folder, const PlanModel *model, GError **error);

/* Takes the checkpoint over, whether it fails or not. */
ExecWeights *exec_weights_of_checkpoint (ExecCheckpoint *checkpoint, const PlanModel *model,
                                         GError **error);
void exec_weights_free (ExecWeights *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (ExecWeights, exec_weights_free)

/* `count` elements of a parameter from element `first` on. `rows` of the vocabulary beyond the
 * model's are zero. */
gboolean exec_weights_read (const ExecWeights *self, PlanTensorRole role, gint64 layer,
                            guint64 first, guint64 count, float *out, GError **error);

G_END_DECLS
