/* Rounding to and from storage formats, to nearest even, bit for bit as hardware does. */
#pragma once
#include "planner/dtype.h"
#include <glib.h>
G_BEGIN_DECLS

float exec_number_from_bf16 (guint16 bits);
guint16 exec_number_to_bf16 (float value);

float exec_number_from_fp16 (guint16 bits);
guint16 exec_number_to_fp16 (float value);

/* `count` elements; from or to fp32, bf16 or fp16. */
void exec_number_widen (float *out, const void *in, PlanDtype dtype, guint64 count);
void exec_number_narrow (void *out, PlanDtype dtype, const float *in, guint64 count);

G_END_DECLS
