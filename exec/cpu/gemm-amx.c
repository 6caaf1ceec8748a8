/* SPDX-License-Identifier: Apache-2.0 */
/* Products of bf16 factors by the matrix units of x86 processors. Factors are packed into tiles of
 * 1 KiB, padded with zeros: of 16 rows of the first and 32 terms each, and of 16 columns of the
 * second, whose terms lie in pairs. A product is made 32 x 32 elements at a time, every element
 * summed by the unit over ascending terms.
 *
 * Of the factor with fewer lines, rows or columns of the product, a block is packed that stays in
 * the second cache. Of the other one a pair of runs of 16 lines after the other passes by it, so
 * few terms at once that what is used again soon stays in the first cache: the unit waits for loads
 * from further away, and for stores beside such loads even longer. Sums over terms so far lie
 * beside the block. */
#include "config.h"

#include "exec/cpu/pool.h"
#include "exec/kernels.h"
#include "exec/number/number.h"

#ifdef HAVE_AMX
#include <cpuid.h>
#include <immintrin.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TILE 16  /* rows, or columns, or pairs of terms */
#define TERMS 32 /* of a tile */
#define PAIR 32  /* two tiles: rows and columns that are made at once */

#define DEPTH 32  /* tiles of terms in a run, which a block has */
#define STEP 8    /* of them at once */
#define BLOCK 512 /* pairs of tiles in a block */
/* Pairs of runs of lines that are packed at once: lines below one another are read in four or
 * eight lines of the cache each time. */
#define GROUP 8

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

/* Terms of a line lie side by side in `in` (`is_along`) or below one another; lines are rows of the
 * product if it `is_first`. */
typedef struct
{
  const guint16 *in;
  gint64 lines, terms;
  gboolean is_along, is_first;
  Tile *room;
} Factor;

/* Of 16 lines, of which none need to be there, and 32 terms. Terms of a line lie side by side in
 * tiles of the first factor, in pairs below one another in those of the second. */
static WIDE void
pack_tile (const Factor *self, gint64 line, gint64 term, Tile *out)
{
  const gint64 lines = MAX (0, self->lines - line), terms = self->terms - term;
  __m512i row[TILE];

  if (self->is_along)
    load_rows (row, self->in + line * self->terms + term, self->terms, lines, terms);
  else
    load_pairs (row, self->in + term * self->lines + line, self->lines, terms, lines);
  if (self->is_along != self->is_first)
    transpose (row);
  for (guint i = 0; i < TILE; i++)
    _mm512_storeu_si512 ((*out)[i], row[i]);
}

/* Asks for what packing those lines will read next. */
static WIDE void
fetch (const Factor *self, gint64 line, gint64 lines, gint64 term)
{
  const gint64 end = MIN (line + lines, self->lines), last = MIN (term + TERMS, self->terms);

  if (self->is_along)
    for (gint64 i = line; i < end && term < last; i++)
      _mm_prefetch (self->in + i * self->terms + term, _MM_HINT_T0);
  else
    for (gint64 i = term; i < last; i++)
      for (gint64 j = line; j < end; j += PAIR)
        _mm_prefetch (self->in + i * self->lines + j, _MM_HINT_T0);
}

/* `pairs` of runs of lines from `line` on over `depth` tiles of terms: the two tiles of a pair
 * beside one another, a pair's after another's. */
static WIDE void
pack (const Factor *self, gint64 line, gint64 pairs, gint64 from, gint64 depth, Tile *out)
{
  const gint64 wide = self->is_along ? 1 : GROUP;

  for (gint64 first = 0; first < pairs; first += wide)
    for (gint64 i = 0; i < depth; i++)
      {
        const gint64 count = MIN (wide, pairs - first), term = (from + i) * TERMS;

        if (i + 1 < depth)
          fetch (self, line + first * PAIR, count * PAIR, term + TERMS);
        for (gint64 pair = first; pair < first + count; pair++)
          for (gint64 half = 0; half < 2; half++)
            pack_tile (self, line + pair * PAIR + half * TILE, term,
                       out + (pair * depth + i) * 2 + half);
      }
}

typedef struct
{
  Factor near, far; /* of the first a block is kept */
  gint64 m, n;
  gboolean adds; /* to what is in `out` */
  float *out;
  guint16 *rounded; /* where sums over all terms go, to bf16; NULL: to `out` */
} Product;

/* 32 x 32 sums: where those over earlier terms are, if there are any, and where they go then. */
typedef struct
{
  const float *in;
  float *out;
  guint16 *rounded;
  gint64 in_step, out_step, rounded_step; /* between rows */
  gint64 rows, cols;                      /* that are within the product */
  gboolean in_has_room, out_has_room;     /* for all of them, wherever the product ends */
} Sums;

static WIDE void
multiply (float *out, gint64 out_step, const float *in, gint64 in_step, const Tile *a,
          const Tile *b, gint64 depth)
{
  const gsize in_bytes = (gsize)in_step * sizeof *in, out_bytes = (gsize)out_step * sizeof *out;

  __asm__ volatile("" ::: "memory"); /* the header does not say that loads of tiles read it */
  if (in != NULL)
    {
      _tile_loadd (0, in, in_bytes);
      _tile_loadd (1, in + TILE, in_bytes);
      _tile_loadd (2, in + TILE * in_step, in_bytes);
      _tile_loadd (3, in + TILE * in_step + TILE, in_bytes);
    }
  else
    {
      _tile_zero (0);
      _tile_zero (1);
      _tile_zero (2);
      _tile_zero (3);
    }
  for (gint64 i = 0; i < 2 * depth; i += 2)
    {
      _tile_loadd (6, b + i, 64);
      _tile_loadd (4, a + i, 64);
      _tile_dpbf16ps (0, 4, 6);
      _tile_loadd (7, b + i + 1, 64);
      _tile_dpbf16ps (1, 4, 7);
      _tile_loadd (5, a + i + 1, 64);
      _tile_dpbf16ps (2, 5, 6);
      _tile_dpbf16ps (3, 5, 7);
    }
  _tile_stored (0, out, out_bytes);
  _tile_stored (1, out + TILE, out_bytes);
  _tile_stored (2, out + TILE * out_step, out_bytes);
  _tile_stored (3, out + TILE * out_step + TILE, out_bytes);
}

/* As exec_number_to_bf16, in the lower half of each lane. */
static inline WIDE __m512i
round_lanes (__m512 value)
{
  const __m512i bits = _mm512_castps_si512 (value), upper = _mm512_srli_epi32 (bits, 16);
  const __m512i half = _mm512_add_epi32 (_mm512_set1_epi32 (0x7fff),
                                         _mm512_and_si512 (upper, _mm512_set1_epi32 (1)));

  return _mm512_mask_or_epi32 (_mm512_srli_epi32 (_mm512_add_epi32 (bits, half), 16),
                               _mm512_cmp_ps_mask (value, value, _CMP_UNORD_Q), upper,
                               _mm512_set1_epi32 (0x40));
}

static WIDE void
put_rounded (const Sums *self, float sum[PAIR][PAIR])
{
  const gint64 rows = MIN (PAIR, self->rows);
  const __mmask32 cols = self->cols < PAIR ? (1u << self->cols) - 1 : 0xffffffffu;

  for (gint64 i = 0; i < rows; i++)
    {
      const __m256i left = _mm512_cvtepi32_epi16 (round_lanes (_mm512_loadu_ps (sum[i])));
      const __m256i right = _mm512_cvtepi32_epi16 (round_lanes (_mm512_loadu_ps (sum[i] + TILE)));

      _mm512_mask_storeu_epi16 (self->rounded + i * self->rounded_step, cols,
                                _mm512_inserti64x4 (_mm512_castsi256_si512 (left), right, 1));
    }
}

/* Tiles are loaded and stored whole, so what lies at the product's edge goes by way of `sum`. */
static WIDE void
make (const Sums *self, const Tile *a, const Tile *b, gint64 depth)
{
  const gint64 rows = MIN (PAIR, self->rows), cols = MIN (PAIR, self->cols);
  const gboolean is_whole = rows == PAIR && cols == PAIR;
  const gboolean comes_over = self->in != NULL && !is_whole && !self->in_has_room;
  const gboolean goes_over = self->rounded != NULL || (!is_whole && !self->out_has_room);
  float sum[PAIR][PAIR];

  for (gint64 i = 0; comes_over && i < rows; i++)
    memcpy (sum[i], self->in + i * self->in_step, (gsize)cols * sizeof *sum[i]);
  multiply (goes_over ? sum[0] : self->out, goes_over ? PAIR : self->out_step,
            comes_over ? sum[0] : self->in, comes_over ? PAIR : self->in_step, a, b, depth);
  if (self->rounded != NULL)
    put_rounded (self, sum);
  for (gint64 i = 0; goes_over && self->rounded == NULL && i < rows; i++)
    memcpy (self->out + i * self->out_step, sum[i], (gsize)cols * sizeof *sum[i]);
}

/* Of the near factor: pairs of runs of lines from the `top`th on, over a run of tiles of terms. */
typedef struct
{
  gint64 top, pairs, from, depth;
  gboolean is_first, is_last; /* that the sums get, and that they get of this product */
  Tile *tiles;                /* of STEP after the other */
  float *sums;                /* of each pair with one of the other factor, a thread's own */
} Block;

static Sums
sums_of (const Product *self, const Block *block, gint64 pair, gint64 far_line, gint64 step,
         gint64 end)
{
  const gint64 near_line = (block->top + pair) * PAIR;
  const gint64 row = self->near.is_first ? near_line : far_line;
  const gint64 col = self->near.is_first ? far_line : near_line, at = row * self->n + col;
  float *so_far = block->sums + pair * PAIR * PAIR;
  Sums sums = { .rows = self->m - row, .cols = self->n - col };

  if (step > 0 || !block->is_first)
    {
      sums.in = step > 0 ? so_far : self->out + at;
      sums.in_step = step > 0 ? PAIR : self->n;
      sums.in_has_room = step > 0;
    }
  if (end == block->depth && block->is_last && self->rounded != NULL)
    {
      sums.rounded = self->rounded + at;
      sums.rounded_step = self->n;
    }
  else
    {
      sums.out = end < block->depth ? so_far : self->out + at;
      sums.out_step = end < block->depth ? PAIR : self->n;
      sums.out_has_room = end < block->depth;
    }
  return sums;
}

/* A pair of runs of lines of the far factor by all of the block. */
static WIDE void
multiply_block (const Product *self, const Block *block, gint64 far_line, const Tile *far)
{
  for (gint64 step = 0; step < block->depth; step += STEP)
    for (gint64 pair = 0; pair < block->pairs; pair++)
      {
        const gint64 depth = MIN (STEP, block->depth - step);
        const Tile *near = block->tiles + 2 * (step * block->pairs + pair * depth);
        const Sums sums = sums_of (self, block, pair, far_line, step, step + depth);

        make (&sums, self->near.is_first ? near : far + 2 * step,
              self->near.is_first ? far + 2 * step : near, depth);
      }
}

static gint64
divide_up (gint64 a, gint64 b)
{
  return (a + b - 1) / b;
}

/* How the near factor is cut: into parts that are as good as equal. */
typedef struct
{
  gint64 pairs, depth;         /* of the whole */
  gint64 run, block, n_blocks; /* tiles of terms, and pairs of runs of lines */
  gint64 sums;                 /* floats of a thread, 0 where runs are short */
  gint64 workers;              /* threads that there is room for; 0: not even for one */
} Cut;

static gint64
near_tiles (const Cut *cut)
{
  return cut->block * 2 * cut->run;
}

static gint64
room_bytes (const Factor *self)
{
  return self->lines * self->terms * (gint64)sizeof (float);
}

/* Threads whose sums lie beside the near factor's tiles, and whose group of pairs has a place among
 * the far one's, of which all are kept where more than one block needs them. */
static gint64
workers_of (const Product *self, const Cut *cut)
{
  const gint64 far_pairs = divide_up (self->far.lines, PAIR), tile = (gint64)sizeof (Tile);
  const gint64 beside = room_bytes (&self->near) - near_tiles (cut) * tile;
  const gint64 places = room_bytes (&self->far) / (2 * cut->run * tile);
  const gint64 by_sums
      = cut->sums > 0 ? beside / (cut->sums * (gint64)sizeof (float)) : (gint64)G_MAXINT;

  if (beside < 0 || places < (cut->n_blocks > 1 ? far_pairs : MIN (GROUP, far_pairs)))
    return 0;
  return cut->n_blocks > 1 ? by_sums : MIN (by_sums, MAX (places / GROUP, 1));
}

static Cut
cut_of (const Product *self)
{
  Cut cut = { .pairs = divide_up (self->near.lines, PAIR),
              .depth = divide_up (self->near.terms, TERMS) };

  cut.run = divide_up (cut.depth, divide_up (cut.depth, DEPTH));
  cut.n_blocks = divide_up (cut.pairs * cut.run, BLOCK);
  cut.block = divide_up (cut.pairs, cut.n_blocks);
  cut.sums = cut.run > STEP ? cut.block * PAIR * PAIR : 0;
  cut.workers = workers_of (self, &cut);
  return cut;
}

/* Eight tiles of 16 rows of 64 bytes. In static memory: the compiler's header does not say how much
 * of this the instruction reads. */
static const TileConfig config = { .palette = 1,
                                   .row_bytes = { 64, 64, 64, 64, 64, 64, 64, 64 },
                                   .rows = { 16, 16, 16, 16, 16, 16, 16, 16 } };

/* A block and what is made by it. */
typedef struct
{
  const Product *product;
  const Cut *cut;
  const Block *block;
} Work;

/* A group of pairs of the near factor over some of the block's terms. */
static WIDE void
pack_part (gpointer data, guint64 part, guint worker)
{
  const Work *self = data;
  const Block *block = self->block;
  const gint64 groups = divide_up (block->pairs, GROUP);
  const gint64 step = (gint64)part / groups * STEP, pair = (gint64)part % groups * GROUP;
  const gint64 depth = MIN (STEP, block->depth - step);

  pack (&self->product->near, (block->top + pair) * PAIR, MIN (GROUP, block->pairs - pair),
        block->from + step, depth, block->tiles + 2 * (step * block->pairs + pair * depth));
}

/* A group of pairs of the far factor by all of the block. Its tiles of a run are kept where more
 * than one block needs them. */
static WIDE void
multiply_part (gpointer data, guint64 part, guint worker)
{
  const Work *self = data;
  const Factor *far = &self->product->far;
  const gint64 pairs = divide_up (far->lines, PAIR), first = (gint64)part * GROUP;
  const gint64 end = MIN (first + GROUP, pairs);
  const gint64 place = self->cut->n_blocks > 1 ? first : (gint64)worker * GROUP;
  Block block = *self->block;
  Tile *tiles = far->room + place * 2 * block.depth;

  block.sums += (gint64)worker * self->cut->sums;
  _tile_loadconfig (&config);
  if (block.top == 0)
    pack (far, first * PAIR, end - first, block.from, block.depth, tiles);
  for (gint64 pair = first; pair < end; pair++)
    multiply_block (self->product, &block, pair * PAIR, tiles + (pair - first) * 2 * block.depth);
  _tile_release ();
}

static void
multiply_all (const Product *self, const Cut *cut)
{
  const guint64 groups = (guint64)divide_up (divide_up (self->far.lines, PAIR), GROUP);

  for (gint64 from = 0; from < cut->depth; from += cut->run)
    for (gint64 top = 0; top < cut->pairs; top += cut->block)
      {
        const Block block = { .top = top,
                              .pairs = MIN (cut->block, cut->pairs - top),
                              .from = from,
                              .depth = MIN (cut->run, cut->depth - from),
                              .is_first = from == 0 && !self->adds,
                              .is_last = from + cut->run >= cut->depth,
                              .tiles = self->near.room,
                              .sums = (float *)(void *)(self->near.room + near_tiles (cut)) };
        Work work = { self, cut, &block };

        exec_pool_run ((guint64)(divide_up (block.depth, STEP) * divide_up (block.pairs, GROUP)),
                       G_MAXUINT, pack_part, &work);
        exec_pool_run (groups, (guint)cut->workers, multiply_part, &work);
      }
}

/* Not wide itself: a compiler may use the wide registers anywhere in a function that says it is,
 * before it asked whether there are any. */
gboolean
exec_gemm_amx (gint64 m, gint64 n, gint64 k, int layout, const void *a, const void *b,
               gboolean adds, float *out, guint16 *rounded, float *a_room, float *b_room)
{
  const Factor first = { a, m, k, layout != 2, TRUE, (Tile *)(void *)a_room };
  const Factor second = { b, n, k, layout == 1, FALSE, (Tile *)(void *)b_room };
  const Product product = { .near = m <= n ? first : second,
                            .far = m <= n ? second : first,
                            .m = m,
                            .n = n,
                            .adds = adds,
                            .out = out,
                            .rounded = rounded };

  if (!exec_gemm_amx_open ())
    return FALSE;
  const Cut cut = cut_of (&product);
  if (cut.workers == 0)
    return FALSE;
  multiply_all (&product, &cut);
  return TRUE;
}

#else

gboolean
exec_gemm_amx_open (void)
{
  return FALSE;
}

gboolean
exec_gemm_amx (gint64 m, gint64 n, gint64 k, int layout, const void *a, const void *b,
               gboolean adds, float *out, guint16 *rounded, float *a_room, float *b_room)
{
  return FALSE;
}

#endif
