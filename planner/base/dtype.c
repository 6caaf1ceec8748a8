/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/base/dtype.h"

#include "planner/base/error.h"
#include "planner/base/text.h"

static const char *const names[] = {
#define X(id, name, bits, block) name,
  PLAN_DTYPE_LIST (X)
#undef X
      NULL
};

static const guint8 widths[] = {
#define X(id, name, bits, block) bits,
  PLAN_DTYPE_LIST (X)
#undef X
};

static const guint16 blocks[] = {
#define X(id, name, bits, block) block,
  PLAN_DTYPE_LIST (X)
#undef X
};

const char *
plan_dtype_name (PlanDtype dtype)
{
  g_return_val_if_fail ((guint)dtype < PLAN_N_DTYPES, NULL);
  return names[dtype];
}

guint
plan_dtype_bits (PlanDtype dtype)
{
  g_return_val_if_fail ((guint)dtype < PLAN_N_DTYPES, 0);
  return widths[dtype];
}

guint
plan_dtype_block (PlanDtype dtype)
{
  switch ((int)dtype)
    {
    case PLAN_DTYPE_MXFP8:
      return 32;
    case PLAN_DTYPE_NVFP4:
      return 16;
    case PLAN_DTYPE_FP8_1X128:
    case PLAN_DTYPE_FP8_128X128:
      return PLAN_DTYPE_SIDE;
    default:
      return 0;
    }
}

gboolean
plan_dtype_parse (const char *text, const char *what, PlanDtype *out_dtype, GError **error)
{
  for (guint i = 0; i < PLAN_N_DTYPES; i++)
    if (g_str_equal (text, names[i]))
      {
        *out_dtype = (PlanDtype)i;
        return TRUE;
      }
  g_autofree char *shown = plan_text_quote (text);
  g_autofree char *hint = plan_text_suggest (text, names);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: %s is not a number format: %s", what,
               shown, hint);
  return FALSE;
}

guint64
plan_dtype_bytes (PlanDtype dtype, guint64 count)
{
  const guint64 bits = plan_dtype_bits (dtype);
  const guint64 block = blocks[dtype];
  const guint64 scales = block ? count / block + (count % block != 0) : 0;
  return count / 8 * bits + (count % 8 * bits + 7) / 8 + scales;
}

guint64
plan_dtype_squares_apart (guint64 cols)
{
  return (cols + 4 * PLAN_DTYPE_SIDE - 1) / (4 * PLAN_DTYPE_SIDE) * 4;
}

guint64
plan_dtype_square_scales (guint64 rows, guint64 cols)
{
  return (rows + PLAN_DTYPE_SIDE - 1) / PLAN_DTYPE_SIDE * plan_dtype_squares_apart (cols);
}
