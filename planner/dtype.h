/* PlanDtype: number formats and their bytes. Rounding to them is the kernels' business. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

/* X (ID, "name", bits of an element, elements that share a scale byte; 0: none). With its scales,
 * mxfp8 is e4m3 and nvfp4 e2m1. */
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

/* Finds a format by its name; `what` names the thing being read, for the error. */
gboolean plan_dtype_parse (const char *text, const char *what, PlanDtype *out_dtype,
                           GError **error);

/* Bytes of `count` elements with their scales, rounded up to whole bytes. The caller guarantees
 * that it fits. */
guint64 plan_dtype_bytes (PlanDtype dtype, guint64 count);

G_END_DECLS
