/* ExecTensorFile: a safetensors file mapped into memory, from which elements are read as fp32. */
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

/* Whether elements of a number format can be read. */
gboolean exec_tensor_file_is_readable (PlanDtype dtype);

/* Reads `count` elements of a tensor, every `stride`th from element `first` on. */
void exec_tensor_file_read (const ExecTensorFile *self, const PlanSafetensor *tensor, guint64 first,
                            guint64 stride, guint64 count, float *out);

G_END_DECLS
