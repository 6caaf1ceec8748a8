/* SPDX-License-Identifier: Apache-2.0 */
/* In builds without oneDNN, bf16 factors are widened and multiplied in fp32. */
#include "config.h"

#include "exec/kernels.h"

gboolean
exec_gemm_bf16_is_available (void)
{
  return FALSE;
}

const char *
exec_gemm_bf16_name (void)
{
  return NULL;
}

void
exec_gemm_bf16 (gint64 m, gint64 n, gint64 k, int layout, const void *a, const void *b,
                gboolean adds, float *out, guint16 *rounded)
{
  (void)m, (void)n, (void)k, (void)layout, (void)a, (void)b, (void)adds, (void)out, (void)rounded;
  g_assert_not_reached ();
}
