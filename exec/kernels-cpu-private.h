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

/* exec/kernels-cpu-attention.c */
void exec_cpu_rope (const ExecArgs *args);
void exec_cpu_attention (const ExecArgs *args);
void exec_cpu_attention_bwd (const ExecArgs *args);

G_END_DECLS
