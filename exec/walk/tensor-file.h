/* ExecTensorFile: a safetensors file, mapped; its tensors are read widened, piece by piece. */
#pragma once
#include "planner/model/safetensors.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  char *path;
  GMappedFile *file;
  PlanSafetensors *header;
} ExecTensorFile;

ExecTensorFile *exec_tensor_file_open (const char *path, GError **error);
void exec_tensor_file_free (ExecTensorFile *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (ExecTensorFile, exec_tensor_file_free)

/* Whether elements of that format can be read. */
gboolean exec_tensor_file_is_readable (PlanDtype dtype);

/* `count` elements from element `first` on, every `stride`th. */
void exec_tensor_file_read (const ExecTensorFile *self, const PlanSafetensor *tensor, guint64 first,
                            guint64 stride, guint64 count, float *out);

G_END_DECLS
