/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/cpu/pool.h"
#include "exec/kernels.h"

#include <cblas.h>

/* Present where the library is OpenBLAS; any other CBLAS links as well. */
void openblas_set_num_threads (int count) __attribute__ ((weak));
char *openblas_get_config (void) __attribute__ ((weak));

/* The library's sums differ with the sizes it is called for, so a product is cut into tiles by its
 * own size alone: as many as MOST_TILES, of a side that keeps most of the library's pace. */
#define SIDE 256
#define MOST_TILES 32

typedef struct
{
  gint64 m, n, k, side;
  int layout;
  const float *a, *b;
  float *out;
} Product;

void
exec_gemm_open (void)
{
  /* The rank's own threads call it, each for a tile: sums of one and of several of the library's
   * differ, and there would be more of them than processors. */
  if (openblas_set_num_threads != NULL)
    openblas_set_num_threads (1);
}

const char *
exec_gemm_name (void)
{
  return openblas_get_config != NULL ? openblas_get_config () : "CBLAS";
}

static gint64
tiles_along (gint64 lines, gint64 side)
{
  return (lines + side - 1) / side;
}

static void
multiply_tile (gpointer data, guint64 part, guint worker)
{
  const Product *self = data;
  const gint64 across = tiles_along (self->n, self->side);
  const gint64 row = (gint64)part / across * self->side, col = (gint64)part % across * self->side;
  const gint64 rows = MIN (self->side, self->m - row), cols = MIN (self->side, self->n - col);
  const gint64 lda = self->layout == 2 ? self->m : self->k;
  const gint64 ldb = self->layout == 1 ? self->k : self->n;

  cblas_sgemm (CblasRowMajor, self->layout == 2 ? CblasTrans : CblasNoTrans,
               self->layout == 1 ? CblasTrans : CblasNoTrans, (int)rows, (int)cols, (int)self->k,
               1.0f, self->a + (self->layout == 2 ? row : row * lda), (int)lda,
               self->b + (self->layout == 1 ? col * ldb : col), (int)ldb, 0.0f,
               self->out + row * self->n + col, (int)self->n);
}

void
exec_gemm_fp32 (gint64 m, gint64 n, gint64 k, int layout, const float *a, const float *b,
                float *out)
{
  Product self = { m, n, k, SIDE, layout, a, b, out };

  g_assert (m <= G_MAXINT && n <= G_MAXINT && k <= G_MAXINT);
  while (tiles_along (m, self.side) * tiles_along (n, self.side) > MOST_TILES)
    self.side *= 2;
  exec_pool_run ((guint64)(tiles_along (m, self.side) * tiles_along (n, self.side)), G_MAXUINT,
                 multiply_tile, &self);
}
