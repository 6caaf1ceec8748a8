/* What the files of the CPU kernels share. */
#pragma once
#include "exec/kernels.h"
#include "exec/number/wide.h"
#include <glib.h>
#include <math.h>
#include <string.h>
G_BEGIN_DECLS

/* Kernels work on pieces of this many elements, widened to fp32 on the stack. */
#define EXEC_CPU_BLOCK 256

/* Reads `count` elements from element `at` on as fp32: the array itself, or a copy in `storage`. */
const float *exec_cpu_read (const void *array, PlanDtype dtype, guint64 at, guint64 count,
                            float *storage);

/* Writes `count` values from element `at` of an array on, each rounded once. */
void exec_cpu_write (void *array, PlanDtype dtype, guint64 at, guint64 count, const float *values);

/* Read and write elements of an operand. */
const float *exec_cpu_read_ref (const ExecArgs *args, guint operand, guint64 at, guint64 count,
                                float *storage);
void exec_cpu_write_ref (const ExecArgs *args, guint operand, guint64 at, guint64 count,
                         const float *values);

/* Raises operand `amax`, where it exists, to the largest magnitude of values as `operand` stores
 * them; and stores them as well. */
void exec_cpu_raise (const ExecArgs *args, guint operand, guint amax, guint64 count,
                     const float *values);
void exec_cpu_write_raising (const ExecArgs *args, guint operand, guint amax, guint64 at,
                             guint64 count, const float *values);

/* Elements of one thread's part: some ten microseconds of work, more than handing it over takes. */
#define EXEC_CPU_PART 16384

/* Computes rows, or elements, `from` to `to` - 1. */
typedef void (*ExecCpuRange) (const ExecArgs *args, guint64 from, guint64 to);
typedef void ExecCpuKernel (const ExecArgs *args);

/* Divides `count` rows of `width` elements, or single elements (1), among the rank's threads.
 * Ranges of single elements begin at multiples of EXEC_CPU_BLOCK. */
void exec_cpu_spread (const ExecArgs *args, guint64 count, guint64 width, ExecCpuRange run);

/* Divides columns among threads, for kernels that sum each column over `rows` rows. */
void exec_cpu_spread_columns (const ExecArgs *args, guint64 rows, guint64 cols, ExecCpuRange run);

/* A sum is kept in this many parts, element i in part i mod it: a fixed order that vectorises. */
#define EXEC_CPU_LANES 8

/* e^x with an error below 2^-22 of it. It has no branches, so that loops over it vectorise, which
 * with libm's they do not. x is split into n log 2 + r with |r| < 0.35; e^r is a polynomial; 2^n is
 * multiplied in two halves, as it may be too small or too large for one float. */
#ifndef EXEC_CPU_EXP
#define EXEC_CPU_EXP exec_cpu_exp
static inline float
exec_cpu_exp (float x)
{
  const float rounder = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
  x = x < -104.0f ? -104.0f : x;
  x = x > 89.0f ? 89.0f : x;
  const float rounded = x * 1.44269504f + rounder, n = rounded - rounder;
  const float r = x - n * 0.693359375f + n * 2.12194440e-4f; /* log 2 = 0.693359375 - 0.00021... */
  float power = 1.9875691500e-4f, low, high;
  power = power * r + 1.3981999507e-3f;
  power = power * r + 8.3334519073e-3f;
  power = power * r + 4.1665795894e-2f;
  power = power * r + 1.6666665459e-1f;
  power = power * r + 5.0000001201e-1f;
  power = power * (r * r) + r + 1.0f;
  guint32 word;
  memcpy (&word, &rounded, sizeof word);
  const gint32 exponent = (gint32)(word - 0x4b400000u);
  const guint32 half = (guint32)(exponent >> 1), rest = (guint32)exponent - half;
  word = (half + 127) << 23;
  memcpy (&low, &word, sizeof low);
  word = (rest + 127) << 23;
  memcpy (&high, &word, sizeof high);
  return power * low * high;
}
#endif

/* exec/cpu/kernels-cpu-row.c: operations on `count` elements of a row. */
float exec_cpu_largest (const float *in, guint64 count);
void exec_cpu_exp_row (float *out, const float *in, guint64 count, float scale, float minus,
                       float sum[EXEC_CPU_LANES]);
void exec_cpu_divide_row (float *row, guint64 count, float divisor);
void exec_cpu_add_products (float sum[EXEC_CPU_LANES], const float *a, const float *b,
                            guint64 count);

/* exec/cpu/kernels-cpu-norm.c */
float exec_cpu_total (const float sum[EXEC_CPU_LANES]);
ExecCpuKernel exec_cpu_rmsnorm, exec_cpu_add_rmsnorm, exec_cpu_rmsnorm_bwd;
ExecCpuKernel exec_cpu_layernorm, exec_cpu_add_layernorm, exec_cpu_layernorm_bwd;
ExecCpuKernel exec_cpu_head_norm, exec_cpu_head_norm_bwd;

/* exec/cpu/kernels-cpu.c. A rank may have a part of the vocabulary, of `count` entries.
 * exec_cpu_vocab_here: how many of these are not padding. exec_cpu_vocab_find: which of these an
 * entry of the whole vocabulary is, or -1. */
guint64 exec_cpu_vocab_here (const ExecArgs *args, guint64 count);
gint64 exec_cpu_vocab_find (const ExecArgs *args, gint32 entry, guint64 count);
void exec_cpu_gemm (const ExecArgs *args);
void exec_cpu_gemm_add (const ExecArgs *args);

/* exec/cpu/kernels-cpu-activation.c */
ExecCpuKernel exec_cpu_swiglu, exec_cpu_swiglu_bwd, exec_cpu_activate, exec_cpu_activate_bwd;

/* Makes at most EXEC_CPU_BLOCK elements of a row of what swiglu_quantize, or swiglu_bwd_quantize,
 * quantises, rounded to the format of `in`. Returns `out`. */
const float *exec_cpu_made (const ExecArgs *args, guint64 row, guint64 col, guint64 count,
                            float *out);

/* exec/cpu/kernels-cpu-loss.c */
void exec_cpu_row_stat (const ExecArgs *args);
void exec_cpu_cross_entropy (const ExecArgs *args);
void exec_cpu_cross_entropy_bwd (const ExecArgs *args);
void exec_cpu_loss_grad (const ExecArgs *args);

/* exec/cpu/kernels-cpu-quantize.c */
void exec_cpu_quantize (const ExecArgs *args);

/* Quantises elements `at` to `at + count` of a norm's output by their site's scale, and raises the
 * site's largest magnitude. */
void exec_cpu_write_scaled (const ExecArgs *args, guint scale, guint64 at, guint64 count,
                            const float *values);
void exec_cpu_param_amax (const ExecArgs *args);
void exec_cpu_param_quantize (const ExecArgs *args);
void exec_cpu_param_amax_of_one (const ExecArgs *args);
void exec_cpu_param_quantize_of_one (const ExecArgs *args);
void exec_cpu_rescale (const ExecArgs *args);
void exec_cpu_transpose (const ExecArgs *args);

/* Widens a matrix in a format with scales to fp32. */
void exec_cpu_dequantize (const void *array, PlanDtype dtype, const float *scale, guint64 rows,
                          guint64 cols, float *out);

/* The same for an operand whose block scales are in an array of their own (args->blocks). */
void exec_cpu_dequantize_apart (const ExecArgs *args, guint operand, guint64 rows, guint64 cols,
                                float *out);

/* exec/cpu/kernels-cpu-optimizer.c */
ExecCpuKernel exec_cpu_norm_sq, exec_cpu_clip, exec_cpu_sgd, exec_cpu_balance;

/* exec/cpu/kernels-cpu-dropout.c */
ExecCpuKernel exec_cpu_dropout, exec_cpu_dropout_add, exec_cpu_dropout_bwd;

/* exec/cpu/kernels-cpu-positions.c */
ExecCpuKernel exec_cpu_positions, exec_cpu_positions_bwd;

G_END_DECLS
