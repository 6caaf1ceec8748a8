/* Conversion from and to storage formats, which rounds to nearest, ties to even: bit for bit as
 * GPUs do, but for the bits of NaNs. */
#pragma once
#include "planner/base/dtype.h"
#include <glib.h>
#include <string.h>
G_BEGIN_DECLS

static inline guint32
exec_number_word (float value)
{
  guint32 word;

  memcpy (&word, &value, sizeof word);
  return word;
}

static inline float
exec_number_of_word (guint32 word)
{
  float value;

  memcpy (&value, &word, sizeof value);
  return value;
}

static inline float
exec_number_from_bf16 (guint16 bits)
{
  return exec_number_of_word ((guint32)bits << 16);
}

static inline guint16
exec_number_to_bf16 (float value)
{
  const guint32 word = exec_number_word (value);
  const guint32 rounded = word + 0x7fffu + (word >> 16 & 1); /* a carry makes infinity */
  const guint32 quiet = word | 0x400000u; /* NaN, which rounding could make infinite */
  return (guint16)(((word & 0x7fffffffu) > 0x7f800000u ? quiet : rounded) >> 16);
}

/* Every fp16 number is a float: normal ones by adding to the exponent, subnormal ones by a
 * product. */
static inline float
exec_number_from_fp16 (guint16 bits)
{
  const guint32 rest = bits & 0x7fff, sign = (guint32)(bits & 0x8000) << 16;
  const guint32 small = exec_number_word ((float)(gint32)rest * 0x1p-24f);
  const guint32 normal = (rest << 13) + (rest >= 0x7c00 ? 0x70000000u : 0x38000000u);

  return exec_number_of_word ((rest < 0x400 ? small : normal) | sign);
}

/* e4m3 has no infinity and one NaN of each sign. */
static inline float
exec_number_from_e4m3 (guint8 bits)
{
  const guint32 rest = bits & 0x7f, sign = (guint32)(bits & 0x80) << 24;
  const guint32 small = exec_number_word ((float)(gint32)rest * 0x1p-9f);
  const guint32 finite = (rest < 8 ? small : (rest << 20) + 0x3c000000u) | sign;

  return exec_number_of_word (rest == 0x7f ? 0x7fc00000u : finite);
}

/* e5m2 is the upper byte of fp16. */
static inline float
exec_number_from_e5m2 (guint8 bits)
{
  return exec_number_from_fp16 ((guint16)((bits & 0x7f) > 0x7c ? 0x7e00 : bits << 8));
}

guint16 exec_number_to_fp16 (float value);

/* exec/number/number-small.c. Conversion to e4m3, e5m2 and e2m1 (in the lower four bits) saturates
 * at the largest number. e8m0 is a power of two; exec_number_to_e8m0_up gives the smallest that is
 * not below the value. */
guint8 exec_number_to_e4m3 (double value);
guint8 exec_number_to_e5m2 (double value);
guint8 exec_number_to_e2m1 (double value);
float exec_number_from_e2m1 (guint8 bits);
guint8 exec_number_to_e8m0_up (double value);
double exec_number_from_e8m0 (guint8 bits);

/* e4m3 and e5m2 with one scale: a stored number times the scale is the value. */
float exec_number_largest (const float *in, guint64 count); /* largest magnitude; NaN if one is */
void exec_number_widen_scaled (float *out, PlanDtype dtype, const guint8 *in, float scale,
                               guint64 count);
void exec_number_narrow_scaled (guint8 *out, PlanDtype dtype, const float *in, float scale,
                                guint64 count);

/* The scale for e4m3 numbers of which `largest` is the largest magnitude: `largest` over the
 * format's largest number, increased until its lowest three bits are zero. Then the largest number
 * is stored exactly, and narrowing widened numbers again gives the same scale and bits. */
float exec_number_scale (float largest);

/* Convert `count` elements between fp32 and a storage format: fp32, bf16 or fp16. */
void exec_number_widen (float *out, const void *in, PlanDtype dtype, guint64 count);
void exec_number_narrow (void *out, PlanDtype dtype, const float *in, guint64 count);

G_END_DECLS
