/* SPDX-License-Identifier: Apache-2.0 */
/* Number formats of eight bits and fewer, as the OCP's specifications of 8-bit floating point and
 * of microscaling formats define them. Values are passed as doubles, which are precise enough for
 * every quotient that is rounded here: a float over a power of two, or over a scale. */
#include "config.h"

#include "exec/number/number.h"

#include "exec/number/wide.h"

#include <float.h>
#include <math.h>
#include <string.h>

typedef struct
{
  int fraction; /* bits of the fraction */
  int bias;
  double max; /* the largest number; larger ones become this */
  guint8 sign, nan;
} Format;

static const Format e4m3 = { 3, 7, 448, 0x80, 0x7f };
static const Format e5m2 = { 2, 15, 57344, 0x80, 0x7e };
static const Format e2m1 = { 1, 1, 6, 0x8, 0x7 }; /* no NaN: the scale is NaN instead */

/* Elements converted by a loop of fixed length, which compilers turn into vector code. */
#define BLOCK 16

/* 2^exponent, made from its bits. */
static double
power_of_two (int exponent)
{
  guint64 bits = (guint64)(exponent + 1023) << 52;
  double value;

  memcpy (&value, &bits, sizeof value);
  return value;
}

/* Rounds to nearest, ties to even, by adding a number so large that the sum's last bit is the
 * format's last bit. There is no branch; for a NaN the rounded code is computed and discarded. */
static inline guint8
narrow (const Format *format, double value)
{
  const double size = fabs (value), magnitude = size < format->max ? size : format->max;
  const gint64 least = 1024 - format->bias;
  guint64 bits, sum_bits;
  double place, sum;

  memcpy (&bits, &value, sizeof bits);
  const guint8 sign = bits >> 63 ? format->sign : 0;
  memcpy (&bits, &magnitude, sizeof bits);
  gint64 exponent = (gint64)(bits >> 52);
  exponent = exponent > least ? exponent : least;
  const guint64 place_bits = (guint64)(exponent - format->fraction + 52) << 52;
  memcpy (&place, &place_bits, sizeof place);
  sum = magnitude + place;
  memcpy (&sum_bits, &sum, sizeof sum_bits);
  /* a fraction that rounds up to 1 carries into the exponent */
  const guint8 code
      = (guint8)(((exponent - least) << format->fraction) + (gint64)(sum_bits - place_bits));
  return (guint8)(sign | (isnan (value) ? format->nan : code));
}

guint8
exec_number_to_e4m3 (double value)
{
  return narrow (&e4m3, value);
}

guint8
exec_number_to_e5m2 (double value)
{
  return narrow (&e5m2, value);
}

guint8
exec_number_to_e2m1 (double value)
{
  return narrow (&e2m1, value);
}

float
exec_number_from_e2m1 (guint8 bits)
{
  static const float magnitudes[] = { 0, 0.5f, 1, 1.5f, 2, 3, 4, 6 };
  const float value = magnitudes[bits & 7];

  return bits & e2m1.sign ? -value : value;
}

guint8
exec_number_to_e8m0_up (double value)
{
  int exponent;
  double fraction = frexp (value, &exponent); /* in [1/2, 1) */

  if (isnan (value) || isinf (value))
    return 0xff;
  if (value <= 0)
    return 0;
  if (fraction == 0.5)
    exponent--;
  return (guint8)CLAMP (exponent + 127, 0, 254);
}

double
exec_number_from_e8m0 (guint8 bits)
{
  return bits == 0xff ? NAN : power_of_two (bits - 127);
}

float
exec_number_scale (float largest)
{
  float scale = largest / (float)e4m3.max;
  guint32 bits;

  if (largest == 0 || !isfinite (largest))
    return largest == 0 ? 1 : largest;
  scale = fmaxf (scale, FLT_MIN);
  memcpy (&bits, &scale, sizeof bits);
  bits = (bits + 7) & ~7u;
  memcpy (&scale, &bits, sizeof scale);
  return scale;
}

/* Compares magnitudes by their bits, in which a NaN is larger than any number. */
EXEC_WIDE float
exec_number_largest (const float *in, guint64 count)
{
  guint32 lane[BLOCK] = { 0 }, word;
  float largest;
  guint64 i = 0;

  for (; i + BLOCK <= count; i += BLOCK)
    {
      guint32 words[BLOCK];

      memcpy (words, in + i, sizeof words);
      for (guint l = 0; l < BLOCK; l++)
        lane[l] = MAX (lane[l], words[l] & 0x7fffffffu);
    }
  for (; i < count; i++)
    {
      memcpy (&word, in + i, sizeof word);
      lane[0] = MAX (lane[0], word & 0x7fffffffu);
    }
  for (guint l = 1; l < BLOCK; l++)
    lane[0] = MAX (lane[0], lane[l]);
  memcpy (&largest, lane, sizeof largest);
  return largest;
}

static EXEC_WIDE void
widen_blocks (float *restrict out, gboolean is_e4m3, const guint8 *restrict in, float scale,
              guint64 blocks)
{
  for (; blocks-- > 0; out += BLOCK, in += BLOCK)
    if (is_e4m3)
      for (guint i = 0; i < BLOCK; i++)
        out[i] = exec_number_from_e4m3 (in[i]) * scale;
    else
      for (guint i = 0; i < BLOCK; i++)
        out[i] = exec_number_from_e5m2 (in[i]) * scale;
}

void
exec_number_widen_scaled (float *out, PlanDtype dtype, const guint8 *in, float scale, guint64 count)
{
  const gboolean is_e4m3 = dtype == PLAN_DTYPE_E4M3;

  widen_blocks (out, is_e4m3, in, scale, count / BLOCK);
  for (guint64 i = count / BLOCK * BLOCK; i < count; i++)
    out[i] = (is_e4m3 ? exec_number_from_e4m3 (in[i]) : exec_number_from_e5m2 (in[i])) * scale;
}

static EXEC_WIDE void
narrow_blocks (guint8 *restrict out, gboolean is_e4m3, const float *restrict in, double scale,
               guint64 blocks)
{
  for (; blocks-- > 0; out += BLOCK, in += BLOCK)
    if (is_e4m3)
      for (guint i = 0; i < BLOCK; i++)
        out[i] = narrow (&e4m3, (double)in[i] / scale);
    else
      for (guint i = 0; i < BLOCK; i++)
        out[i] = narrow (&e5m2, (double)in[i] / scale);
}

void
exec_number_narrow_scaled (guint8 *out, PlanDtype dtype, const float *in, float scale,
                           guint64 count)
{
  const Format *format = dtype == PLAN_DTYPE_E4M3 ? &e4m3 : &e5m2;

  narrow_blocks (out, dtype == PLAN_DTYPE_E4M3, in, (double)scale, count / BLOCK);
  for (guint64 i = count / BLOCK * BLOCK; i < count; i++)
    out[i] = narrow (format, (double)in[i] / (double)scale);
}
