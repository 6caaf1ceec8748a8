/* PlanDtype: number formats and their bytes. Rounding to them is the kernels' business. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

/* X (ID, "name", bits of an element, elements that share a scale byte; 0: none). mxfp8 is
 * e4m3 and nvfp4 e2m1, with their scales. fp8-1x128 and fp8-128x128 are e4m3 with fp32 scales: one
 * for 128 elements of a row, or for a square (plan_dtype_square_scales). */
#define PLAN_DTYPE_LIST(X) \
  X (FP32, "fp32", 32, 0) \
  X (BF16, "bf16", 16, 0) \
  X (FP16, "fp16", 16, 0) \
  X (E4M3, "e4m3", 8, 0) \
  X (E5M2, "e5m2", 8, 0) \
  X (E8M0, "e8m0", 8, 0) \
  X (E2M1, "e2m1", 4, 0) \
  X (MXFP8, "mxfp8", 8, 32) \
  X (NVFP4, "nvfp4", 4, 16) \
  X (FP8_1X128, "fp8-1x128", 8, 32) \
  X (FP8_128X128, "fp8-128x128", 8, 1024) \
  X (I32, "i32", 32, 0) \
  X (I64, "i64", 64, 0) \
  X (U8, "u8", 8, 0)

typedef enum
{
#define X(id, name, bits, block) PLAN_DTYPE_##id,
  PLAN_DTYPE_LIST (X)
#undef X
      PLAN_N_DTYPES
} PlanDtype;

const char *plan_dtype_name (PlanDtype dtype);
guint plan_dtype_bits (PlanDtype dtype); /* of an element, without scales */
guint
plan_dtype_block (PlanDtype dtype); /* elements of a row that share a scale; 0: no block scales */

/* Finds a format by its name; `what` names the thing being read, for the error. */
gboolean plan_dtype_parse (const char *text, const char *what, PlanDtype *out_dtype,
                           GError **error);

/* Bytes of `count` elements with their scales, rounded up to whole bytes. The caller guarantees
 * that it fits. */
guint64 plan_dtype_bytes (PlanDtype dtype, guint64 count);

#define PLAN_DTYPE_SIDE 128 /* elements on each side of a square with one scale */

/* The number of fp32 scales of a matrix in squares. Each row of squares begins at a multiple of 16
 * bytes, as cuBLASLt wants. plan_dtype_bytes has room for them where squares are whole. */
guint64 plan_dtype_square_scales (guint64 rows, guint64 cols);
guint64 plan_dtype_squares_apart (guint64 cols); /* from a row of squares to the next */

G_END_DECLS
