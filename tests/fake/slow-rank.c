/* SPDX-License-Identifier: Apache-2.0 */
/* A library to load before the BLAS library: on the rank that SLOW_RANK names, every product is
 * computed so many times that the rank is slow, whatever else the machine does. */
#include "config.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define TIMES 200

typedef void (*Sgemm) (int, int, int, int, int, int, float, const float *, int, const float *, int,
                       float, float *, int);

void cblas_sgemm (int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                  const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc);

static int
is_slow (void)
{
  const char *slow = getenv ("SLOW_RANK"), *rank = getenv ("OMPI_COMM_WORLD_RANK");
  if (!rank)
    rank = getenv ("PMIX_RANK");
  return slow && rank && strcmp (slow, rank) == 0;
}

/* fsdplan calls it with beta 0, so computing the product again changes nothing. */
void
cblas_sgemm (int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float *a,
             int lda, const float *b, int ldb, float beta, float *c, int ldc)
{
  static Sgemm real;
  if (!real)
    {
      void *symbol = dlsym (RTLD_NEXT, "cblas_sgemm");
      memcpy (&real, &symbol, sizeof real);
    }
  for (int i = 0; i < (is_slow () && beta == 0 ? TIMES : 1); i++)
    real (order, trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
