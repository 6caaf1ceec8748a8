/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/walk/tensor-file.h"

#include "exec/number/number.h"
#include "planner/base/error.h"
#include "planner/base/text.h"

#include <string.h>

void
exec_tensor_file_free (ExecTensorFile *self)
{
  if (!self)
    return;
  g_clear_pointer (&self->header, plan_safetensors_free);
  g_clear_pointer (&self->file, g_mapped_file_unref);
  g_free (self->path);
  g_free (self);
}

static const guint8 *
bytes_of (const ExecTensorFile *self)
{
  return (const guint8 *)g_mapped_file_get_contents (self->file);
}

ExecTensorFile *
exec_tensor_file_open (const char *path, GError **error)
{
  g_autoptr (ExecTensorFile) self = g_new0 (ExecTensorFile, 1);
  self->path = g_strdup (path);
  if (!(self->file = plan_text_map_file (path, error)))
    return NULL;
  self->header = plan_safetensors_parse (bytes_of (self), g_mapped_file_get_length (self->file),
                                         path, error);
  return self->header ? g_steal_pointer (&self) : NULL;
}

gboolean
exec_tensor_file_is_readable (PlanDtype dtype)
{
  return dtype == PLAN_DTYPE_FP32 || dtype == PLAN_DTYPE_BF16 || dtype == PLAN_DTYPE_FP16;
}

void
exec_tensor_file_read (const ExecTensorFile *self, const PlanSafetensor *tensor, guint64 first,
                       guint64 stride, guint64 count, float *out)
{
  const guint64 size = plan_dtype_bytes (tensor->dtype, 1);
  const guint8 *in = bytes_of (self) + tensor->begin + first * size;
  for (guint64 i = 0; i < count; i++)
    {
      guint64 element = 0; /* a copy, because tensors in the file need not be aligned */
      memcpy (&element, in + i * stride * size, size);
      exec_number_widen (&out[i], &element, tensor->dtype, 1);
    }
}
