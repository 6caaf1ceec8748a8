/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/kernels.h"

#include <cblas.h>

/* Present where the library is OpenBLAS; any other CBLAS links as well. */
void openblas_set_num_threads (int count) __attribute__ ((weak));
char *openblas_get_config (void) __attribute__ ((weak));

void
exec_gemm_open (void)
{
  /* One thread per rank: sums of one and of several threads differ. */
  if (openblas_set_num_threads != NULL)
    openblas_set_num_threads (1);
}

const char *
exec_gemm_name (void)
{
  return openblas_get_config != NULL ? openblas_get_config () : "CBLAS";
}

void
exec_gemm_fp32 (gint64 m, gint64 n, gint64 k, int layout, const float *a, const float *b,
                float *out)
{
  gint64 lda = layout == 2 ? m : k;
  gint64 ldb = layout == 1 ? k : n;

  g_assert (m <= G_MAXINT && n <= G_MAXINT && k <= G_MAXINT);
  cblas_sgemm (CblasRowMajor, layout == 2 ? CblasTrans : CblasNoTrans,
               layout == 1 ? CblasTrans : CblasNoTrans, (int)m, (int)n, (int)k, 1.0f, a, (int)lda,
               b, (int)ldb, 0.0f, out, (int)n);
}
