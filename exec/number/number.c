/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/number/number.h"

#include "exec/number/wide.h"

#include <string.h>

/* Elements converted by a loop of fixed length, which compilers turn into vector code. */
#define BLOCK 16

/* Rounds to nearest, ties to even; numbers that are too large become infinite. */
guint16
exec_number_to_fp16 (float value)
{
  guint32 word, sign, magnitude;
  float scaled;

  memcpy (&word, &value, sizeof word);
  sign = word >> 16 & 0x8000;
  magnitude = word & 0x7fffffffu;
  if (magnitude > 0x7f800000u)
    return (guint16)(sign | 0x7e00);
  if (magnitude >= 0x477ff000u) /* half way from 65504, the largest, to the next */
    return (guint16)(sign | 0x7c00);
  if (magnitude < 0x38800000u) /* subnormal, below 2^-14: a multiple of 2^-24 */
    {
      memcpy (&scaled, &magnitude, sizeof scaled);
      scaled += 0.5f; /* rounds, as the last bit of a float in [0.5, 1) is 2^-24 */
      memcpy (&magnitude, &scaled, sizeof magnitude);
      return (guint16)(sign | (magnitude - 0x3f000000u));
    }
  return (guint16)(sign | (magnitude - 0x38000000u + 0xfff + (magnitude >> 13 & 1)) >> 13);
}

static EXEC_WIDE void
widen_blocks (float *restrict out, const guint16 *restrict in, guint64 blocks)
{
  for (; blocks-- > 0; out += BLOCK, in += BLOCK)
    for (guint i = 0; i < BLOCK; i++)
      out[i] = exec_number_from_bf16 (in[i]);
}

static EXEC_WIDE void
narrow_blocks (guint16 *restrict out, const float *restrict in, guint64 blocks)
{
  for (; blocks-- > 0; out += BLOCK, in += BLOCK)
    for (guint i = 0; i < BLOCK; i++)
      out[i] = exec_number_to_bf16 (in[i]);
}

void
exec_number_widen (float *out, const void *in, PlanDtype dtype, guint64 count)
{
  const guint16 *bits = in;
  guint64 i = 0;

  if (dtype == PLAN_DTYPE_FP32)
    {
      memmove (out, in, count * sizeof *out);
      return;
    }
  if (dtype == PLAN_DTYPE_FP16)
    {
      for (; i < count; i++)
        out[i] = exec_number_from_fp16 (bits[i]);
      return;
    }
  g_assert (dtype == PLAN_DTYPE_BF16);
  widen_blocks (out, bits, count / BLOCK);
  for (i = count / BLOCK * BLOCK; i < count; i++)
    out[i] = exec_number_from_bf16 (bits[i]);
}

void
exec_number_narrow (void *out, PlanDtype dtype, const float *in, guint64 count)
{
  guint16 *bits = out;
  guint64 i = 0;

  if (dtype == PLAN_DTYPE_FP32)
    {
      memmove (out, in, count * sizeof *in);
      return;
    }
  if (dtype == PLAN_DTYPE_FP16)
    {
      for (; i < count; i++)
        bits[i] = exec_number_to_fp16 (in[i]);
      return;
    }
  g_assert (dtype == PLAN_DTYPE_BF16);
  narrow_blocks (bits, in, count / BLOCK);
  for (i = count / BLOCK * BLOCK; i < count; i++)
    bits[i] = exec_number_to_bf16 (in[i]);
}
