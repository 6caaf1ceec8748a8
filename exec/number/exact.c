/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/number/exact.h"

#include "exec/number/wide.h"

#include <math.h>
#include <string.h>

/* The value is the sum of limb[i] * 2^(32 i - 298); 2^-298 is the square of the smallest float. The
 * largest square is below 2^256, so terms reach limbs 0 to 17, and limb CARRY takes what is carried
 * out of them. Limb NANS counts terms that are NaN or infinite: merging adds such counts, so they
 * never return to 0. */
#define LIMB_BITS 32
#define LIMB_MASK G_GINT64_CONSTANT (0xffffffff)
#define LOWEST_EXPONENT (-298)
#define CARRY (EXEC_EXACT_LIMBS - 2)
#define NANS (EXEC_EXACT_LIMBS - 1)

/* |value| = mantissa * 2^(exponent - 149); FALSE for NaN and infinity. */
static gboolean
split (float value, guint64 *out_mantissa, guint *out_exponent)
{
  guint32 word, exponent;

  memcpy (&word, &value, sizeof word);
  exponent = word >> 23 & 0xff;
  if (exponent == 0xff)
    return FALSE;
  *out_mantissa = (word & 0x7fffffu) | (exponent > 0 ? 0x800000u : 0);
  *out_exponent = exponent > 0 ? exponent - 1 : 0;
  return TRUE;
}

void
exec_exact_add_float (ExecExact *self, float value)
{
  guint64 mantissa;
  guint exponent;

  if (!split (value, &mantissa, &exponent))
    {
      self->limb[NANS]++;
      return;
    }

  guint shift = exponent - 149 - LOWEST_EXPONENT;
  gint64 *limb = self->limb + shift / LIMB_BITS;
  gint64 sign = signbit (value) ? -1 : 1;

  mantissa <<= shift % LIMB_BITS;
  limb[0] += sign * (gint64)(mantissa & LIMB_MASK);
  limb[1] += sign * (gint64)(mantissa >> LIMB_BITS);
}

void
exec_exact_add_square (ExecExact *self, float value)
{
  guint64 mantissa;
  guint exponent;

  if (!split (value, &mantissa, &exponent))
    {
      self->limb[NANS]++;
      return;
    }

  guint shift = 2 * exponent;
  gint64 *limb = self->limb + shift / LIMB_BITS;
  guint64 square = mantissa * mantissa; /* 48 bits, shifted over three limbs */
  guint64 above = square >> (LIMB_BITS - shift % LIMB_BITS);

  limb[0] += (gint64)(square << shift % LIMB_BITS & LIMB_MASK);
  limb[1] += (gint64)(above & LIMB_MASK);
  limb[2] += (gint64)(above >> LIMB_BITS);
}

/* A sum of squares, slice by slice: from every square the multiple of a grid is taken, then from
 * the rest the multiple of a finer grid, until nothing is left. A grid is so coarse that a double
 * holds any sum of MAX_SQUARES of its multiples: adding them never rounds, whatever the order. */
#define SLICE_BITS 40
#define MAX_SQUARES 256
#define LANES 8

/* Takes one slice off all squares, which are replaced by their rests. Returns the sum of the slice;
 * out_left: whether a rest is not 0. */
static EXEC_WIDE double
take_slice (double *squares, guint count, double grid, gboolean *out_left)
{
  const double rounder = 0x1.8p52 * grid; /* adding and subtracting it rounds to the grid */
  double sum[LANES] = { 0 }, left[LANES] = { 0 };

  for (guint i = 0; i < count; i += LANES)
    for (guint l = 0; l < LANES; l++)
      {
        double taken = squares[i + l] + rounder - rounder, rest = squares[i + l] - taken;

        sum[l] += taken;
        left[l] = rest != 0 ? 1 : left[l];
        squares[i + l] = rest;
      }
  for (guint l = 1; l < LANES; l++)
    {
      sum[0] += sum[l];
      left[0] += left[l];
    }
  *out_left = left[0] > 0;
  return sum[0];
}

/* Takes the first two slices in one pass over the values. FALSE if more is left. */
static EXEC_WIDE gboolean
take_two (const float *values, guint count, double grid, double out_sums[2])
{
  const double rounder = 0x1.8p52 * grid, finer = rounder / ((guint64)1 << SLICE_BITS);
  double first[LANES] = { 0 }, second[LANES] = { 0 }, left[LANES] = { 0 };

  for (guint i = 0; i < count; i += LANES)
    for (guint l = 0; l < LANES; l++)
      {
        const double square = (double)values[i + l] * (double)values[i + l];
        const double taken = square + rounder - rounder, rest = square - taken;
        const double then = rest + finer - finer;

        first[l] += taken;
        second[l] += then;
        left[l] = rest != then ? 1 : left[l];
      }
  for (guint l = 1; l < LANES; l++)
    {
      first[0] += first[l];
      second[0] += second[l];
      left[0] += left[l];
    }
  out_sums[0] = first[0];
  out_sums[1] = second[0];
  return left[0] == 0;
}

/* Adds a multiple of 2^LOWEST_EXPONENT that is below 2^270. */
static void
add_double (ExecExact *self, double value)
{
  int exponent;
  double fraction = frexp (fabs (value), &exponent);
  gint64 sign = value < 0 ? -1 : 1;

  exponent = MAX (exponent - 53, LOWEST_EXPONENT);
  fraction = ldexp (fabs (value), -exponent); /* an integer below 2^53 */

  guint shift = (guint)(exponent - LOWEST_EXPONENT);
  guint64 mantissa = (guint64)fraction, low = mantissa & LIMB_MASK, high = mantissa >> LIMB_BITS;
  gint64 *limb = self->limb + shift / LIMB_BITS;

  low <<= shift % LIMB_BITS;
  high <<= shift % LIMB_BITS;
  limb[0] += sign * (gint64)(low & LIMB_MASK);
  limb[1] += sign * (gint64)((low >> LIMB_BITS) + (high & LIMB_MASK));
  limb[2] += sign * (gint64)(high >> LIMB_BITS);
}

/* The bits of the largest |value|; infinities and NaNs are larger than all numbers. */
static EXEC_WIDE guint32
largest_magnitude (const float *values, guint count)
{
  guint32 lane[LANES] = { 0 }, max = 0;

  for (guint i = 0; i < count; i += LANES)
    {
      guint32 words[LANES];

      memcpy (words, values + i, sizeof words);
      for (guint l = 0; l < LANES; l++)
        lane[l] = MAX (lane[l], words[l] & 0x7fffffffu);
    }
  for (guint l = 0; l < LANES; l++)
    max = MAX (max, lane[l]);
  return max;
}

static EXEC_WIDE void
square (double *out, const float *values, guint count)
{
  for (guint i = 0; i < count; i++)
    out[i] = (double)values[i] * (double)values[i];
}

void
exec_exact_add_squares (ExecExact *self, const float *values, guint count)
{
  guint whole = count - count % LANES;
  guint32 word = largest_magnitude (values, whole);
  gboolean left = word > 0;
  double squares[MAX_SQUARES], sums[2];
  float largest;
  int exponent;

  g_assert (count <= MAX_SQUARES);
  memcpy (&largest, &word, sizeof largest);
  if (!isfinite (largest))
    {
      whole = 0;
      left = FALSE;
    }
  for (guint i = whole; i < count; i++)
    exec_exact_add_square (self, values[i]);
  if (!left)
    return;
  frexp (largest, &exponent);
  exponent = 2 * exponent - SLICE_BITS; /* squares are below 2^(2 exponent) */
  if (take_two (values, whole, ldexp (1, exponent), sums))
    {
      add_double (self, sums[0]);
      add_double (self, sums[1]);
      return;
    }
  square (squares, values, whole);
  for (; left; exponent -= SLICE_BITS)
    add_double (self, take_slice (squares, whole, ldexp (1, exponent), &left));
}

void
exec_exact_merge (ExecExact *self, const ExecExact *other)
{
  gint64 carry = 0;

  /* Limbs are carried meanwhile, so that the merged sum has room for 2^30 additions again. */
  for (guint i = 0; i < CARRY; i++)
    {
      gint64 low = (self->limb[i] & LIMB_MASK) + (other->limb[i] & LIMB_MASK) + (carry & LIMB_MASK);
      gint64 high
          = (self->limb[i] >> LIMB_BITS) + (other->limb[i] >> LIMB_BITS) + (carry >> LIMB_BITS);

      self->limb[i] = low & LIMB_MASK;
      carry = high + (low >> LIMB_BITS);
    }
  self->limb[CARRY] += other->limb[CARRY] + carry;
  self->limb[NANS] += other->limb[NANS];
}

/* Negates the value, which is not 0 and whose limbs are carried. */
static void
negate (ExecExact *self)
{
  ExecExact zero = { 0 };

  for (guint i = 0; i <= CARRY; i++)
    self->limb[i] = -self->limb[i];
  exec_exact_merge (self, &zero);
}

double
exec_exact_value (const ExecExact *self)
{
  ExecExact sum = { 0 };
  guint top = CARRY, bits;
  guint64 head, tail = 0;

  if (self->limb[NANS] != 0)
    return NAN;
  exec_exact_merge (&sum, self);
  gboolean is_negative = sum.limb[CARRY] < 0;
  if (is_negative)
    negate (&sum);

  while (top > 0 && sum.limb[top] == 0)
    top--;
  head = (guint64)sum.limb[top];
  if (head == 0)
    return 0;

  /* The first 64 bits of the value. Of the bits after them it matters only whether one is set. */
  bits = 64 - (guint)__builtin_clzll (head);
  head <<= 64 - bits;
  int exponent = LOWEST_EXPONENT + LIMB_BITS * (int)top + (int)bits - 64;
  for (guint i = 1; i <= top; i++)
    {
      guint64 limb = (guint64)sum.limb[top - i];
      int at = 64 - (int)bits - LIMB_BITS * (int)i; /* place of its lowest bit in `head` */

      if (at >= 0)
        head |= limb << at;
      else if (at > -LIMB_BITS)
        {
          head |= limb >> -at;
          tail |= limb << (64 + at);
        }
      else
        tail |= limb;
    }
  double value = ldexp ((double)(head | (tail != 0)), exponent);
  return is_negative ? -value : value;
}
