/* ExecWeights: the weights of a folder of safetensors files, as Hugging Face keeps them, by this
 * program's names and layouts. */
#pragma once
#include "planner/model/model.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct _ExecWeights ExecWeights;

/* Refuses a folder that lacks a tensor of the model, or has one of another shape or one that is
 * none of the model's. */
ExecWeights *exec_weights_open (const char *folder, const PlanModel *model, GError **error);
void exec_weights_free (ExecWeights *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (ExecWeights, exec_weights_free)

/* `count` elements of a parameter from element `first` on. `rows` of the vocabulary beyond the
 * model's are zero. */
void exec_weights_read (const ExecWeights *self, PlanTensorRole role, gint64 layer, guint64 first,
                        guint64 count, float *out);

G_END_DECLS
