/* SPDX-License-Identifier: Apache-2.0 */
/* GEMMs in fp32 by OpenBLAS, or another CBLAS, tile by tile on the rank's threads. */
#include "config.h"

#include "exec/cpu/pool.h"
#include "exec/cpu/tiles.h"
#include "exec/kernels.h"

#include <cblas.h>

/* Present in OpenBLAS; any other CBLAS links without it. */
void openblas_set_num_threads (int count) __attribute__ ((weak));
char *openblas_get_config (void) __attribute__ ((weak));

typedef struct
{
  gint64 m, n, k;
  int layout;
  ExecTiles tiles;
  const float *a, *b;
  float *out;
} Product;

void
exec_gemm_open (void)
{
  /* The rank's own threads call the library, each for a tile. The library's threads would give
   * other sums than its single thread does, and there would be more threads than processors. */
  if (openblas_set_num_threads != NULL)
    openblas_set_num_threads (1);
}

const char *
exec_gemm_name (void)
{
  return openblas_get_config != NULL ? openblas_get_config () : "CBLAS";
}

static void
multiply_tile (gpointer data, guint64 part, guint worker)
{
  const Product *self = data;
  const ExecTile tile = exec_tiles_at (&self->tiles, part);
  const gint64 lda = self->layout == 2 ? self->m : self->k;
  const gint64 ldb = self->layout == 1 ? self->k : self->n;

  cblas_sgemm (CblasRowMajor, self->layout == 2 ? CblasTrans : CblasNoTrans,
               self->layout == 1 ? CblasTrans : CblasNoTrans, (int)tile.rows, (int)tile.cols,
               (int)self->k, 1.0f, self->a + (self->layout == 2 ? tile.row : tile.row * lda),
               (int)lda, self->b + (self->layout == 1 ? tile.col * ldb : tile.col), (int)ldb, 0.0f,
               self->out + tile.row * self->n + tile.col, (int)self->n);
}

void
exec_gemm_fp32 (gint64 m, gint64 n, gint64 k, int layout, const float *a, const float *b,
                float *out)
{
  Product self = { m, n, k, layout, exec_tiles_of (m, n), a, b, out };

  g_assert (m <= G_MAXINT && n <= G_MAXINT && k <= G_MAXINT);
  exec_pool_run (self.tiles.n, G_MAXUINT, multiply_tile, &self);
}
