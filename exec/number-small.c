/* SPDX-License-Identifier: Apache-2.0 */
/* Formats of eight bits and fewer, as the OCP's "8-bit floating point" and "microscaling formats"
 * define them. Values come as doubles, which hold every quotient that is rounded here exactly
 * enough: a float over a power of two, or over a scale. */
#include "config.h"

#include "exec/number.h"

#include <float.h>
#include <math.h>
#include <string.h>

typedef struct
{
  int fraction; /* bits */
  int bias;
  double max; /* what is larger becomes this */
  guint8 sign, nan;
} Format;

static const Format e4m3 = { 3, 7, 448, 0x80, 0x7f };
static const Format e5m2 = { 2, 15, 57344, 0x80, 0x7e };
static const Format e2m1 = { 1, 1, 6, 0x8, 0x7 }; /* has no NaN: its scale must say so */

/* 2^exponent, by its bits: this is done for every element. */
static double
power_of_two (int exponent)
{
  guint64 bits = (guint64)(exponent + 1023) << 52;
  double value;

  memcpy (&value, &bits, sizeof value);
  return value;
}

static guint8
narrow (const Format *format, double value)
{
  guint8 sign = signbit (value) ? format->sign : 0;
  double magnitude = MIN (fabs (value), format->max);
  guint64 bits;
  int exponent, units;

  if (isnan (value))
    return format->nan | sign;
  memcpy (&bits, &magnitude, sizeof bits);
  exponent = MAX ((int)(bits >> 52) - 1023, 1 - format->bias);
  /* to nearest, ties to even */
  units = (int)rint (magnitude * power_of_two (format->fraction - exponent));
  /* a fraction that is full makes the exponent one larger, by adding up */
  return (guint8)(sign | (((exponent + format->bias - 1) << format->fraction) + units));
}

static float
widen (const Format *format, guint8 bits)
{
  int magnitude = bits & (format->sign - 1), exponent = magnitude >> format->fraction;
  int units = magnitude & ((1 << format->fraction) - 1);
  double value = exponent == 0 ? units : units + (1 << format->fraction);

  value *= power_of_two (MAX (exponent, 1) - format->bias - format->fraction);
  return (float)(bits & format->sign ? -value : value);
}

guint8
exec_number_to_e4m3 (double value)
{
  return narrow (&e4m3, value);
}

float
exec_number_from_e4m3 (guint8 bits)
{
  return (bits & 0x7f) == e4m3.nan ? NAN : widen (&e4m3, bits);
}

guint8
exec_number_to_e5m2 (double value)
{
  return narrow (&e5m2, value);
}

float
exec_number_from_e5m2 (guint8 bits)
{
  if ((bits & 0x7f) > 0x7c)
    return NAN;
  return (bits & 0x7f) == 0x7c ? (bits & 0x80 ? -INFINITY : INFINITY) : widen (&e5m2, bits);
}

guint8
exec_number_to_e2m1 (double value)
{
  return narrow (&e2m1, value);
}

float
exec_number_from_e2m1 (guint8 bits)
{
  return widen (&e2m1, bits);
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

float
exec_number_largest (const float *in, guint64 count)
{
  float largest = 0;

  for (guint64 i = 0; i < count && !isnan (largest); i++)
    if (!(fabsf (in[i]) <= largest))
      largest = fabsf (in[i]);
  return largest;
}

void
exec_number_widen_scaled (float *out, const guint8 *in, float scale, guint64 count)
{
  for (guint64 i = 0; i < count; i++)
    out[i] = exec_number_from_e4m3 (in[i]) * scale;
}

void
exec_number_narrow_scaled (guint8 *out, const float *in, float scale, guint64 count)
{
  for (guint64 i = 0; i < count; i++)
    out[i] = exec_number_to_e4m3 ((double)in[i] / (double)scale);
}
