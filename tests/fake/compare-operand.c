/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/fake/compare-operand.h"

#include "exec/cpu/kernels-cpu-private.h"
#include "exec/number/exact.h"
#include "exec/number/number.h"

#include <math.h>
#include <string.h>

#define GUARD 64 /* bytes before and behind the array */

static gboolean
is_number (PlanDtype dtype)
{
  return dtype == PLAN_DTYPE_FP32 || dtype == PLAN_DTYPE_BF16 || dtype == PLAN_DTYPE_FP16;
}

PlanDtype
compare_format (GRand *rand)
{
  static const PlanDtype formats[] = { PLAN_DTYPE_FP32, PLAN_DTYPE_BF16, PLAN_DTYPE_FP16 };

  return formats[g_rand_int_range (rand, 0, G_N_ELEMENTS (formats))];
}

/* --- random contents ---------------------------------------------------------------------- */

/* NaNs that rounding would turn into infinity or zero, ties to even, overflow, the smallest; and
 * the same of fp16. */
static const guint32 hard_words[] = {
  0x7f800001, 0xff80ffff, 0x7fffffff, 0xffffffff, 0x7f800000, 0xff800000, 0x3f808000, 0x3f818000,
  0x3f807fff, 0x3f808001, 0x7f7fffff, 0xff7f8000, 0x00000001, 0x80008000, 0x007fffff, 0x80000000,
  0x3f801000, 0x3f803000, 0x3f800fff, 0x477fefff, 0x477ff000, 0x33000000, 0xb3000001, 0x387fefff,
};

static void
fill_bits (CompareOperand *self, guint8 *at, GRand *rand)
{
  for (guint64 i = 0; i < self->count; i++)
    {
      guint32 word = g_rand_int_range (rand, 0, 4) == 0
                         ? hard_words[g_rand_int_range (rand, 0, G_N_ELEMENTS (hard_words))]
                         : g_rand_int (rand);
      if (self->draw == COMPARE_MAGNITUDES)
        word &= 0x7fffffff;
      guint16 high = (guint16)(word >> 16);

      if (self->dtype == PLAN_DTYPE_BF16 || self->dtype == PLAN_DTYPE_FP16)
        memcpy (at + 2 * i, &high, sizeof high);
      else
        memcpy (at + 4 * i, &word, sizeof word);
    }
}

/* Half of them are half way between two of 4 bits. n * (1 / n) is not 1 in doubles for these n. */
static void
fill_ties (CompareOperand *self, guint8 *at, GRand *rand)
{
  static const gint32 units[] = { 49, 103, 107, 161 };
  gint32 unit = units[g_rand_int_range (rand, 0, G_N_ELEMENTS (units))];

  for (guint64 i = 0; i < self->count; i++)
    {
      gint32 odd = 2 * g_rand_int_range (rand, -16, 16) + 1;
      float value = i == 0 ? 448.0f * (float)unit
                           : (float)ldexp (odd * unit, g_rand_int_range (rand, -12, 4));

      exec_number_narrow (at + plan_dtype_bytes (self->dtype, i), self->dtype, &value, 1);
    }
}

static void
fill_numbers (CompareOperand *self, guint8 *at, GRand *rand)
{
  for (guint64 i = 0; i < self->count; i++)
    {
      double number = self->draw == COMPARE_POSITIVE ? g_rand_double_range (rand, 0.2, 2)
                      : self->draw == COMPARE_UNIT   ? g_rand_double_range (rand, -1, 1)
                      : self->draw == COMPARE_WIDE
                          ? g_rand_double_range (rand, -12, 12)
                          : g_rand_double_range (rand, -3, 3) * g_rand_double (rand);
      float value = (float)number;

      exec_number_narrow (at + plan_dtype_bytes (self->dtype, i), self->dtype, &value, 1);
    }
}

static void
fill_indices (CompareOperand *self, guint8 *at, GRand *rand)
{
  for (guint64 i = 0; i < self->count; i++)
    {
      gboolean is_absent = self->has_minus && g_rand_int_range (rand, 0, 5) == 0;
      gint32 index = is_absent ? -1 : g_rand_int_range (rand, 0, self->limit);

      memcpy (at + sizeof index * i, &index, sizeof index);
    }
}

static void
fill_places (const CompareOperand *self, guint8 *at, GRand *rand)
{
  gint32 place = 0;
  for (guint64 i = 0; i < self->count; i++)
    {
      const gboolean begins = i % (guint64)self->limit == 0 || g_rand_int_range (rand, 0, 8) == 0;
      place = begins ? 0 : place + 1;
      memcpy (at + i * sizeof place, &place, sizeof place);
    }
}

/* Moves what it is worth between each limb and the next, as where sums of both signs were added and
 * not carried. */
static void
loosen (ExecExact *sum, GRand *rand)
{
  for (guint i = 0; i + 2 < EXEC_EXACT_LIMBS; i++)
    {
      const gint64 moved = g_rand_int_range (rand, -1000, 1000);
      sum->limb[i] += moved * (G_GINT64_CONSTANT (1) << 32);
      sum->limb[i + 1] -= moved;
    }
}

static void
fill_sums (CompareOperand *self, guint8 *at, GRand *rand)
{
  for (guint64 i = 0; i + EXEC_EXACT_LIMBS <= self->count; i += EXEC_EXACT_LIMBS)
    {
      ExecExact sum = { 0 }, some = { 0 };
      gint32 terms = g_rand_int_range (rand, 0, 4); /* 0: the sum of nothing */

      for (gint32 k = 0; k < terms; k++)
        exec_exact_add_square (&some, (float)ldexp (g_rand_double_range (rand, 1, 2),
                                                    g_rand_int_range (rand, -149, 20)));
      exec_exact_merge (&sum, &some);
      if (g_rand_boolean (rand))
        loosen (&sum, rand);
      memcpy (at + i * sizeof (gint64), &sum, sizeof sum);
    }
}

/* What quantize makes of small numbers. */
static void
fill_narrow (CompareOperand *self, guint8 *at, GRand *rand)
{
  PlanOp op = { .kind = PLAN_OP_QUANTIZE, .dims = { 1, (gint64)self->count } };
  CompareOperand numbers = { .draw = COMPARE_SMALL, .count = self->count };
  g_autofree guint8 *in = g_malloc (self->count * sizeof (float));

  fill_numbers (&numbers, in, rand);
  exec_cpu_quantize (&(ExecArgs){ .op = &op,
                                  .ptr = { at, NULL, in },
                                  .dtype = { self->dtype },
                                  .scale = { &self->want_scale } });
}

static void
fill_words (CompareOperand *self, guint8 *at, GRand *rand)
{
  for (guint64 done = 0; done < self->bytes; done += sizeof (guint32))
    {
      const guint32 word = g_rand_int (rand);

      memcpy (at + done, &word, sizeof word);
    }
}

static void
fill (CompareOperand *self, guint8 *at, GRand *rand)
{
  if (self->draw == COMPARE_BITS
      && (self->dtype == PLAN_DTYPE_I32 || self->dtype == PLAN_DTYPE_I64))
    {
      fill_words (self, at, rand);
      return;
    }
  if (!is_number (self->dtype) && self->draw < COMPARE_INDEX && self->draw != COMPARE_BYTES)
    {
      fill_narrow (self, at, rand);
      return;
    }
  switch (self->draw)
    {
    case COMPARE_BITS:
    case COMPARE_MAGNITUDES:
      fill_bits (self, at, rand);
      return;
    case COMPARE_TIES:
      fill_ties (self, at, rand);
      return;
    case COMPARE_SMALL:
    case COMPARE_UNIT:
    case COMPARE_WIDE:
    case COMPARE_POSITIVE:
      fill_numbers (self, at, rand);
      return;
    case COMPARE_INDEX:
      fill_indices (self, at, rand);
      return;
    case COMPARE_SUM:
      fill_sums (self, at, rand);
      return;
    case COMPARE_PLACES:
      fill_places (self, at, rand);
      return;
    case COMPARE_BYTES:
      memset (at, 0x5a, self->bytes);
      return;
    }
}

/* --- tiles of scales ---------------------------------------------------------------------- */

/* The cuBLAS documentation, 1D block scaling: tiles of 128 rows by 4, in row order; in one, row
 * 32 i + j of column c is at 16 j + 4 i + c. */
void
compare_tile_scales (guint8 *scales, guint64 rows, guint64 cols, gboolean is_back)
{
  g_autofree guint8 *from = g_memdup2 (scales, rows * cols);

  if (rows % 128 != 0 || cols % 4 != 0)
    return;
  for (guint64 row = 0; row < rows; row++)
    for (guint64 col = 0; col < cols; col++)
      {
        guint64 tile = row / 128 * (cols / 4) + col / 4, i = row % 128 / 32, j = row % 32;
        guint64 tiled = 512 * tile + 16 * j + 4 * i + col % 4, plain = row * cols + col;

        scales[is_back ? plain : tiled] = from[is_back ? tiled : plain];
      }
}

static void
tile (const CompareOperand *self, guint8 *allocation, gboolean is_back)
{
  const guint block = plan_dtype_block (self->dtype);

  if (block > 0 && self->rows > 0 && self->cols % block == 0)
    compare_tile_scales (allocation + self->at + plan_dtype_bits (self->dtype) * self->count / 8,
                         self->rows, self->cols / block, is_back);
}

/* Copies the contents to the device, which has scales in tiles. */
static void
send (const CompareOperand *self, const CompareDevice *device, guint64 bytes)
{
  g_autofree guint8 *tiled = g_memdup2 (self->before, bytes);

  tile (self, tiled, FALSE);
  device->copy (self->device, tiled, bytes);
}

/* --- life --------------------------------------------------------------------------------- */

static guint64
whole_bytes (const CompareOperand *self)
{
  return self->at + self->bytes + GUARD;
}

/* Arrays of numbers may begin at any number of the allocation, so that kernels meet unaligned
 * operands. */
void
compare_operand_init (CompareOperand *self, const CompareDevice *device, GRand *rand)
{
  guint64 whole;

  self->bytes = plan_dtype_bytes (self->dtype, self->count);
  self->at = GUARD;
  if (!self->is_aligned && is_number (self->dtype) && g_rand_int_range (rand, 0, 3) == 0)
    self->at += plan_dtype_bytes (self->dtype, (guint64)g_rand_int_range (rand, 1, 16));
  whole = whole_bytes (self);
  self->before = g_malloc (whole);
  memset (self->before, 0xa5, whole);
  fill (self, self->before + self->at, rand);
  self->want = g_memdup2 (self->before, whole);
  self->got = g_malloc (whole);
  self->device = device->take (whole);
  send (self, device, whole);
  self->device_scale = device->take (2 * sizeof *self->device_scale);
  device->copy (self->device_scale, &self->want_scale, sizeof self->want_scale);
}

void
compare_operand_clear (CompareOperand *self, const CompareDevice *device)
{
  g_free (self->before);
  g_free (self->want);
  g_free (self->got);
  device->give (self->device);
  device->give (self->device_scale);
}

void
compare_operand_keep (CompareOperand *self, const CompareDevice *device)
{
  memcpy (self->before, self->want, whole_bytes (self));
  send (self, device, whole_bytes (self));
}

void
compare_operand_fetch (CompareOperand *self, const CompareDevice *device)
{
  device->copy (self->got, self->device, whole_bytes (self));
  tile (self, self->got, TRUE);
  device->copy (&self->got_scale, self->device_scale, sizeof self->got_scale);
}

/* --- comparison --------------------------------------------------------------------------- */

static double
value_at (const CompareOperand *self, const guint8 *memory, guint64 i)
{
  const guint8 *at = memory + self->at;
  float value;

  if (!is_number (self->dtype))
    return 0;
  exec_number_widen (&value, at + plan_dtype_bytes (self->dtype, i), self->dtype, 1);
  return (double)value;
}

void
compare_operands_run (CompareOperand *const *operands, guint n, const ExecArgs *args,
                      ExecCudaLaunch launch, const CompareDevice *device)
{
  const PlanOpKind kind = args->op->kind;
  ExecArgs cpu = *args, cuda = *args;
  for (guint i = 0; i < n; i++)
    if (operands[i] != NULL)
      {
        cpu.ptr[i] = operands[i]->want + operands[i]->at;
        cuda.ptr[i] = operands[i]->device + operands[i]->at;
        cpu.dtype[i] = cuda.dtype[i] = operands[i]->dtype;
      }
  exec_kernels_cpu.run[kind](&cpu);
  const int code = launch (&cuda, NULL);
  const char *error = device->wait ();
  ck_assert_msg (code == 0 && error == NULL, "%s: launch gives %d, %s", plan_op_name (kind), code,
                 error ? error : "");
  for (guint i = 0; i < n; i++)
    if (operands[i] != NULL)
      compare_operand_fetch (operands[i], device);
}

double
compare_operand_want (const CompareOperand *self, guint64 i)
{
  return value_at (self, self->want, i);
}

double
compare_operand_largest (const CompareOperand *self)
{
  double largest = 0;

  for (guint64 i = 0; i < self->count; i++)
    largest = fmax (largest, fabs (compare_operand_want (self, i)));
  return largest;
}

/* Whether two numbers of unlike bits are within the bound. */
static gboolean
is_within (CompareBound bound, double got, double want)
{
  double most = bound.absolute + bound.relative * fabs (want);

  return most > 0 && fabs (got - want) <= most;
}

/* Only elements that are wrong are told to Check, which writes every assertion to a file. */
static void
check_numbers (const CompareOperand *self, CompareBound bound, const char *what)
{
  guint64 size = plan_dtype_bytes (self->dtype, 1);

  for (guint64 i = 0; i < self->count; i++)
    {
      double got = value_at (self, self->got, i), want = value_at (self, self->want, i);

      if (memcmp (self->got + self->at + i * size, self->want + self->at + i * size, size) != 0
          && !(bound.any_nan && isnan (got) && isnan (want)) && !is_within (bound, got, want))
        ck_abort_msg ("%s[%" G_GUINT64_FORMAT "] is %a instead of %a (%g + %g)", what, i, got, want,
                      bound.absolute, bound.relative);
    }
}

static void
check_sums (const CompareOperand *self, CompareBound bound, const char *what)
{
  for (guint64 i = 0; i < self->count; i += EXEC_EXACT_LIMBS)
    {
      const ExecExact *got = (const ExecExact *)(self->got + self->at) + i / EXEC_EXACT_LIMBS;
      const ExecExact *want = (const ExecExact *)(self->want + self->at) + i / EXEC_EXACT_LIMBS;
      double got_value = exec_exact_value (got), want_value = exec_exact_value (want);

      if (memcmp (got, want, sizeof *got) != 0 && !is_within (bound, got_value, want_value))
        ck_abort_msg ("%s is %a instead of %a (%g + %g), or of other limbs", what, got_value,
                      want_value, bound.absolute, bound.relative);
    }
}

/* e4m3 and e5m2 have NaNs of both signs, and any will do. Nor does it matter what a block of nvfp4
 * holds if its scale, or the tensor's, is not a number. */
static gboolean
is_same_nan (const CompareOperand *self, guint64 i)
{
  guint8 got = self->got[self->at + i], want = self->want[self->at + i];
  const guint8 *scales = self->want + self->at + self->count / 2;

  if (self->dtype == PLAN_DTYPE_NVFP4)
    return !isfinite (self->want_scale) || (i < self->count / 2 && (scales[i / 8] & 0x7f) == 0x7f);
  if (self->dtype == PLAN_DTYPE_E5M2)
    return (got & 0x7f) > 0x7c && (want & 0x7f) > 0x7c;
  return (self->dtype == PLAN_DTYPE_E4M3 || self->dtype == PLAN_DTYPE_MXFP8) && (got & 0x7f) == 0x7f
         && (want & 0x7f) == 0x7f;
}

static void
check_bytes (const CompareOperand *self, const char *what)
{
  for (guint64 i = 0; i < self->bytes; i++)
    if (self->got[self->at + i] != self->want[self->at + i] && !is_same_nan (self, i))
      ck_abort_msg ("%s: byte %" G_GUINT64_FORMAT " of %" G_GUINT64_FORMAT
                    " is %02x instead of %02x",
                    what, i, self->bytes, self->got[self->at + i], self->want[self->at + i]);
  ck_assert_msg (memcmp (&self->got_scale, &self->want_scale, sizeof self->got_scale) == 0
                     || (isnan (self->got_scale) && isnan (self->want_scale)),
                 "%s: its scale is %a instead of %a", what, (double)self->got_scale,
                 (double)self->want_scale);
}

void
compare_operand_check (const CompareOperand *self, CompareBound bound, const char *what)
{
  guint64 end = self->at + self->bytes;

  ck_assert_msg (memcmp (self->got, self->before, self->at) == 0
                     && memcmp (self->got + end, self->before + end, GUARD) == 0,
                 "%s: written outside", what);
  if (is_number (self->dtype))
    check_numbers (self, bound, what);
  else if (self->dtype == PLAN_DTYPE_I64 && self->count >= EXEC_EXACT_LIMBS)
    check_sums (self, bound, what);
  else
    check_bytes (self, what);
}
