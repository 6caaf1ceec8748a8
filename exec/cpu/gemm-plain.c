/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products without a library, tile by tile from packed blocks of the factors. Every element
 * is summed over ascending k, whatever the sizes. */
#include "config.h"

#include "exec/cpu/pool.h"
#include "exec/kernels.h"

#define TILE_M 4
#define TILE_N 16
#define BLOCK_N (4 * TILE_N)
#define BLOCK_K 256
#define BLOCK_M 256 /* rows of the part that one thread computes */

typedef struct
{
  gint64 m, n, k;
  gint64 a_row, a_col, b_row, b_col; /* distances between neighbouring elements */
  const float *a, *b;
  float *out;
} Product;

void
exec_gemm_open (void)
{
}

const char *
exec_gemm_name (void)
{
  return "plain C";
}

/* packed[p][j] = b[p0 + p][j0 + j], 0 beyond the last column. */
static void
pack_b (const Product *self, gint64 p0, gint64 depth, gint64 j0, float packed[][BLOCK_N])
{
  gint64 width = MIN (BLOCK_N, self->n - j0);

  for (gint64 p = 0; p < depth; p++)
    for (gint64 j = 0; j < BLOCK_N; j++)
      packed[p][j] = j < width ? self->b[(p0 + p) * self->b_row + (j0 + j) * self->b_col] : 0.0f;
}

/* packed[p][i] = a[i0 + i][p0 + p], 0 beyond the last row. */
static void
pack_a (const Product *self, gint64 i0, gint64 p0, gint64 depth, float packed[][TILE_M])
{
  gint64 height = MIN (TILE_M, self->m - i0);

  for (gint64 p = 0; p < depth; p++)
    for (gint64 i = 0; i < TILE_M; i++)
      packed[p][i] = i < height ? self->a[(i0 + i) * self->a_row + (p0 + p) * self->a_col] : 0.0f;
}

/* sum[i][j] += a[.][i] b[.][j0 + j] */
static void
multiply_tile (gint64 depth, const float a[][TILE_M], const float b[][BLOCK_N], gint64 j0,
               float sum[TILE_M][TILE_N])
{
  for (gint64 p = 0; p < depth; p++)
    for (guint i = 0; i < TILE_M; i++)
      for (guint j = 0; j < TILE_N; j++)
        sum[i][j] += a[p][i] * b[p][j0 + j];
}

static void
update_tile (const Product *self, gint64 i0, gint64 j0, gboolean is_first, gint64 depth,
             const float a[][TILE_M], const float b[][BLOCK_N], gint64 b_column)
{
  gint64 height = MIN (TILE_M, self->m - i0), width = MIN (TILE_N, self->n - j0);
  float sum[TILE_M][TILE_N] = { { 0 } };

  if (!is_first)
    for (gint64 i = 0; i < height; i++)
      for (gint64 j = 0; j < width; j++)
        sum[i][j] = self->out[(i0 + i) * self->n + j0 + j];
  multiply_tile (depth, a, b, b_column, sum);
  for (gint64 i = 0; i < height; i++)
    for (gint64 j = 0; j < width; j++)
      self->out[(i0 + i) * self->n + j0 + j] = sum[i][j];
}

/* Computes one part: up to BLOCK_M rows of BLOCK_N columns. */
static void
multiply_part (gpointer data, guint64 part, guint worker)
{
  const Product *self = data;
  const gint64 down = (self->m + BLOCK_M - 1) / BLOCK_M;
  const gint64 j0 = (gint64)part / down * BLOCK_N, first = (gint64)part % down * BLOCK_M;
  const gint64 end = MIN (self->n, j0 + BLOCK_N), last = MIN (self->m, first + BLOCK_M);
  float packed_a[BLOCK_K][TILE_M], packed_b[BLOCK_K][BLOCK_N];

  for (gint64 p0 = 0; p0 == 0 || p0 < self->k; p0 += BLOCK_K)
    {
      gint64 depth = MIN (BLOCK_K, self->k - p0);

      pack_b (self, p0, depth, j0, packed_b);
      for (gint64 i0 = first; i0 < last; i0 += TILE_M)
        {
          pack_a (self, i0, p0, depth, packed_a);
          for (gint64 j = j0; j < end; j += TILE_N)
            update_tile (self, i0, j, p0 == 0, depth, packed_a, packed_b, j - j0);
        }
    }
}

void
exec_gemm_fp32 (gint64 m, gint64 n, gint64 k, int layout, const float *a, const float *b,
                float *out)
{
  Product product = { .m = m,
                      .n = n,
                      .k = k,
                      .a_row = layout == 2 ? 1 : k,
                      .a_col = layout == 2 ? m : 1,
                      .b_row = layout == 1 ? 1 : n,
                      .b_col = layout == 1 ? k : 1,
                      .a = a,
                      .b = b,
                      .out = out };
  const gint64 down = (m + BLOCK_M - 1) / BLOCK_M, across = (n + BLOCK_N - 1) / BLOCK_N;

  exec_pool_run ((guint64)(down * across), G_MAXUINT, multiply_part, &product);
}
