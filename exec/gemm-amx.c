/* SPDX-License-Identifier: Apache-2.0 */
/* Products of bf16 factors by the matrix units of x86 processors. Both factors are packed into
 * tiles of 1 KiB, padded with zeros: of 16 rows of the first and 32 terms each, and of 16 columns
 * of the second, whose terms lie in pairs. A product is made 32 x 32 elements at a time, every
 * element summed over DEPTH terms by the unit, over runs of so many in ascending order. */
#include "config.h"

#include "exec/kernels.h"
#include "exec/number.h"

#ifdef HAVE_AMX
#include <cpuid.h>
#include <immintrin.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TILE 16  /* rows, or columns, or pairs of terms */
#define TERMS 32 /* of a tile */
#define PAIR 32  /* two tiles: rows and columns that are made at once */
/* Tiles of terms in a run, of which two columns of tiles stay in the nearest cache; rows of the
 * product whose tiles of a run stay in the next one. */
#define DEPTH 32
#define HEIGHT 512

#define ARCH_REQ_XCOMP_PERM 0x1023
#define XFEATURE_XTILEDATA 18

#define WIDE __attribute__ ((target ("avx512f,avx512bw,avx512vl,amx-tile,amx-bf16")))

typedef guint16 Tile[TILE][TERMS];

/* As the processor wants it. */
typedef struct
{
  guint8 palette, start_row, reserved[14];
  guint16 row_bytes[16];
  guint8 rows[16];
} TileConfig;

static gboolean is_open;

static gboolean
has_units (void)
{
  guint a, b, c, d;

  return __get_cpuid_count (7, 0, &a, &b, &c, &d) && (d >> 22 & 1) && (d >> 24 & 1)
         && __builtin_cpu_supports ("avx512bw") && __builtin_cpu_supports ("avx512vl")
         && syscall (SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

gboolean
exec_gemm_amx_open (void)
{
  static gsize asked;

  if (g_once_init_enter (&asked))
    {
      is_open = has_units ();
      g_once_init_leave (&asked, 1);
    }
  return is_open;
}

/* Rows of 16 dwords become columns. */
static WIDE void
transpose (__m512i row[TILE])
{
  __m512i t[TILE];

  for (guint i = 0; i < TILE; i += 2)
    {
      t[i] = _mm512_unpacklo_epi32 (row[i], row[i + 1]);
      t[i + 1] = _mm512_unpackhi_epi32 (row[i], row[i + 1]);
    }
  for (guint i = 0; i < TILE; i += 4)
    for (guint j = 0; j < 2; j++)
      {
        row[i + 2 * j] = _mm512_unpacklo_epi64 (t[i + j], t[i + j + 2]);
        row[i + 2 * j + 1] = _mm512_unpackhi_epi64 (t[i + j], t[i + j + 2]);
      }
  for (guint i = 0; i < TILE; i += 8)
    for (guint j = 0; j < 4; j++)
      {
        t[i + j] = _mm512_shuffle_i32x4 (row[i + j], row[i + j + 4], 0x88);
        t[i + j + 4] = _mm512_shuffle_i32x4 (row[i + j], row[i + j + 4], 0xdd);
      }
  for (guint j = 0; j < 8; j++)
    {
      row[j] = _mm512_shuffle_i32x4 (t[j], t[j + 8], 0x88);
      row[j + 8] = _mm512_shuffle_i32x4 (t[j], t[j + 8], 0xdd);
    }
}

/* `count` elements, at most 32, and zeros. */
static WIDE __m512i
load (const guint16 *from, gint64 count)
{
  return _mm512_maskz_loadu_epi16 (count >= TERMS ? 0xffffffffu : (1u << count) - 1, from);
}

/* Up to 16 rows of up to 32 elements, `step` apart. */
static WIDE void
load_rows (__m512i row[TILE], const guint16 *from, gint64 step, gint64 rows, gint64 count)
{
  for (gint64 i = 0; i < TILE; i++)
    row[i] = i < rows ? load (from + i * step, count) : _mm512_setzero_si512 ();
}

/* Up to 32 rows of up to 16 elements, `step` apart, as 16 rows of pairs of elements that were below
 * one another. */
static WIDE void
load_pairs (__m512i row[TILE], const guint16 *from, gint64 step, gint64 rows, gint64 count)
{
  const __mmask32 mask = count >= TILE ? 0xffffu : (1u << count) - 1;

  for (gint64 i = 0; i < TILE; i++)
    {
      __m256i upper = _mm256_setzero_si256 (), lower = upper;

      if (2 * i < rows)
        upper = _mm256_maskz_loadu_epi16 ((__mmask16)mask, from + 2 * i * step);
      if (2 * i + 1 < rows)
        lower = _mm256_maskz_loadu_epi16 ((__mmask16)mask, from + (2 * i + 1) * step);
      row[i] = _mm512_or_si512 (_mm512_cvtepu16_epi32 (upper),
                                _mm512_slli_epi32 (_mm512_cvtepu16_epi32 (lower), 16));
    }
}

/* Tiles of a factor: of its lines (rows of the product, or columns) in runs of 16, all terms of a
 * run one tile after the other. Terms of a line lie side by side in `in` (`is_along`) or below one
 * another, and in a tile side by side (`is_first`) or in pairs below one another. */
static WIDE void
pack (Tile *out, const guint16 *in, gint64 lines, gint64 terms, gboolean is_along,
      gboolean is_first)
{
  __m512i row[TILE];

  for (gint64 line = 0; line < lines; line += TILE)
    for (gint64 term = 0; term < terms; term += TERMS, out++)
      {
        if (is_along)
          load_rows (row, in + line * terms + term, terms, lines - line, terms - term);
        else
          load_pairs (row, in + term * lines + line, lines, terms - term, lines - line);
        if (is_along != is_first)
          transpose (row);
        memcpy (out, row, sizeof *out);
      }
}

typedef struct
{
  gint64 m, n, depth; /* depth in tiles */
  Tile *a, *b;
  float *out;
  guint16 *rounded; /* where the last run of terms goes, to bf16; NULL: to `out` */
} Product;

/* Two runs of rows by two of columns over `depth` tiles. */
static WIDE void
multiply (float sum[PAIR][PAIR], const Tile *a, const Tile *b, gint64 step, gint64 depth)
{
  _tile_zero (0);
  _tile_zero (1);
  _tile_zero (2);
  _tile_zero (3);
  for (gint64 i = 0; i < depth; i++)
    {
      _tile_loadd (4, a + i, 64);
      _tile_loadd (5, a + step + i, 64);
      _tile_loadd (6, b + i, 64);
      _tile_loadd (7, b + step + i, 64);
      _tile_dpbf16ps (0, 4, 6);
      _tile_dpbf16ps (1, 4, 7);
      _tile_dpbf16ps (2, 5, 6);
      _tile_dpbf16ps (3, 5, 7);
    }
  _tile_stored (0, &sum[0][0], sizeof sum[0]);
  _tile_stored (1, &sum[0][TILE], sizeof sum[0]);
  _tile_stored (2, &sum[TILE][0], sizeof sum[0]);
  _tile_stored (3, &sum[TILE][TILE], sizeof sum[0]);
}

/* What lies within the product; added to earlier runs of terms. */
static WIDE void
put (const Product *self, gint64 row, gint64 col, gboolean adds, gboolean is_last,
     float sum[PAIR][PAIR])
{
  const gint64 rows = MIN (PAIR, self->m - row), cols = MIN (PAIR, self->n - col);

  for (gint64 i = 0; i < rows; i++)
    {
      const gint64 at = (row + i) * self->n + col;
      guint16 rounded[PAIR];

      for (gint64 j = 0; adds && j < cols; j++)
        sum[i][j] = self->out[at + j] + sum[i][j];
      if (!is_last || !self->rounded)
        {
          memcpy (self->out + at, sum[i], (gsize)cols * sizeof *self->out);
          continue;
        }
      for (guint j = 0; j < PAIR; j++)
        rounded[j] = exec_number_to_bf16 (sum[i][j]);
      memcpy (self->rounded + at, rounded, (gsize)cols * sizeof *rounded);
    }
}

static WIDE void
multiply_all (const Product *self)
{
  float sum[PAIR][PAIR];

  for (gint64 from = 0; from < self->depth; from += DEPTH)
    for (gint64 top = 0; top < self->m; top += HEIGHT)
      for (gint64 col = 0; col < self->n; col += PAIR)
        for (gint64 row = top; row < MIN (top + HEIGHT, self->m); row += PAIR)
          {
            multiply (sum, self->a + row / TILE * self->depth + from,
                      self->b + col / TILE * self->depth + from, self->depth,
                      MIN (DEPTH, self->depth - from));
            put (self, row, col, from > 0, from + DEPTH >= self->depth, sum);
          }
}

/* Tiles of lines in pairs of runs. */
static gint64
count_tiles (gint64 lines, gint64 depth)
{
  return (lines + PAIR - 1) / PAIR * 2 * depth;
}

static WIDE void
configure_tiles (void)
{
  TileConfig config = { .palette = 1 };

  for (guint i = 0; i < 8; i++)
    {
      config.row_bytes[i] = 64;
      config.rows[i] = TILE;
    }
  _tile_loadconfig (&config);
}

WIDE gboolean
exec_gemm_amx (gint64 m, gint64 n, gint64 k, int layout, const void *a, const void *b, float *out,
               guint16 *rounded, float *a_room, float *b_room)
{
  const gint64 depth = (k + TERMS - 1) / TERMS, a_tiles = count_tiles (m, depth),
               b_tiles = count_tiles (n, depth);

  if (!exec_gemm_amx_open () || a_tiles * (gint64)sizeof (Tile) > m * k * (gint64)sizeof (float)
      || b_tiles * (gint64)sizeof (Tile) > n * k * (gint64)sizeof (float))
    return FALSE;

  Product product = { m, n, depth, (Tile *)(void *)a_room, (Tile *)(void *)b_room, out, rounded };
  pack (product.a, a, m, k, layout != 2, TRUE);
  pack (product.b, b, n, k, layout == 1, FALSE);
  /* The last run of an odd number has no partner. */
  for (gint64 i = (m + TILE - 1) / TILE * depth; i < a_tiles; i++)
    memset (product.a[i], 0, sizeof (Tile));
  for (gint64 i = (n + TILE - 1) / TILE * depth; i < b_tiles; i++)
    memset (product.b[i], 0, sizeof (Tile));
  configure_tiles ();
  multiply_all (&product);
  _tile_release ();
  return TRUE;
}

#else

gboolean
exec_gemm_amx_open (void)
{
  return FALSE;
}

gboolean
exec_gemm_amx (gint64 m, gint64 n, gint64 k, int layout, const void *a, const void *b, float *out,
               guint16 *rounded, float *a_room, float *b_room)
{
  return FALSE;
}

#endif
