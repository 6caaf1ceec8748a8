/* What the files of the CPU kernels share. */
#pragma once
#include "exec/kernels.h"
#include <glib.h>
G_BEGIN_DECLS

/* Kernels work on pieces of this many elements, widened to fp32 on the stack. */
#define EXEC_CPU_BLOCK 256

/* `count` elements from element `at` of an array, in fp32: the array itself or `storage`. */
const float *exec_cpu_read (const void *array, PlanDtype dtype, guint64 at, guint64 count,
                            float *storage);

/* Rounds `count` values once, into element `at` of an array and those after it. */
void exec_cpu_write (void *array, PlanDtype dtype, guint64 at, guint64 count, const float *values);

/* Sums are kept in this many parts, element i in part i mod EXEC_CPU_LANES: a fixed order that
 * vectorises. */
#define EXEC_CPU_LANES 8

/* exec/kernels-cpu-norm.c */
float exec_cpu_total (const float sum[EXEC_CPU_LANES]);
void exec_cpu_rmsnorm (const ExecArgs *args);
void exec_cpu_rmsnorm_bwd (const ExecArgs *args);
void exec_cpu_layernorm (const ExecArgs *args);
void exec_cpu_layernorm_bwd (const ExecArgs *args);
void exec_cpu_head_norm (const ExecArgs *args);
void exec_cpu_head_norm_bwd (const ExecArgs *args);

/* exec/kernels-cpu-activation.c */
void exec_cpu_swiglu (const ExecArgs *args);
void exec_cpu_swiglu_bwd (const ExecArgs *args);
void exec_cpu_activate (const ExecArgs *args);
void exec_cpu_activate_bwd (const ExecArgs *args);

/* exec/kernels-cpu-quantize.c; a block is of elements that share a scale, 0 where all do. */
guint exec_cpu_block (PlanDtype dtype);
void exec_cpu_quantize (const ExecArgs *args);

/* By a scale that is known before: `count` elements of operand 0 from element `at` on; raises the
 * largest magnitude of its site. */
void exec_cpu_write_scaled (const ExecArgs *args, guint scale, guint64 at, guint64 count,
                            const float *values);
void exec_cpu_param_amax (const ExecArgs *args);
void exec_cpu_param_quantize (const ExecArgs *args);
void exec_cpu_rescale (const ExecArgs *args);
void exec_cpu_transpose (const ExecArgs *args);
void exec_cpu_dequantize (const void *array, PlanDtype dtype, const float *scale, guint64 count,
                          float *out);
void exec_cpu_dequantize_apart (const ExecArgs *args, guint operand, guint64 rows, guint64 cols,
                                float *out);

/* exec/kernels-cpu-attention.c */
void exec_cpu_rope (const ExecArgs *args);
void exec_cpu_attention (const ExecArgs *args);
void exec_cpu_attention_bwd (const ExecArgs *args);

G_END_DECLS
