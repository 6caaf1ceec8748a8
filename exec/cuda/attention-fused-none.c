/* SPDX-License-Identifier: Apache-2.0 */
/* Takes the place of attention-fused.c in a build without cuDNN. */
#include "config.h"

#include "exec/cuda/attention-fused.h"

#include "exec/cuda/attention-batched.h"

gboolean
exec_cuda_fused_open (G_GNUC_UNUSED const ExecDeviceNeeds *needs, G_GNUC_UNUSED GError **error)
{
  return TRUE;
}

void
exec_cuda_fused_close (void)
{
}

int
exec_cuda_fused_attention (const ExecArgs *args, void *stream)
{
  return exec_cuda_batched_attention (args, stream);
}

int
exec_cuda_fused_attention_bwd (const ExecArgs *args, void *stream)
{
  return exec_cuda_batched_attention_bwd (args, stream);
}

guint
exec_cuda_fused_version (void)
{
  return 0;
}
