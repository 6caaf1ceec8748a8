/* Compiles the evaluator and its kernels in double precision: the compiler includes this file
 * before their sources (-include), and float and the fp32 format then mean double. Sums need not be
 * exact here: an ExecExact holds a plain double in its first limb. */
#pragma once
#include "exec/number/exact.h"
#include "exec/number/number.h"
#include "planner/base/dtype.h"
#include <glib.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static inline guint64
double_bytes (PlanDtype dtype, guint64 count)
{
  return dtype == PLAN_DTYPE_FP32 ? count * sizeof (double) : plan_dtype_bytes (dtype, count);
}

static inline double
double_sum (const ExecExact *self)
{
  double sum;
  memcpy (&sum, self->limb, sizeof sum);
  return sum;
}

static inline void
double_add (ExecExact *self, double value)
{
  value += double_sum (self);
  memcpy (self->limb, &value, sizeof value);
}

static inline void
double_add_squares (ExecExact *self, const double *values, guint count)
{
  for (guint i = 0; i < count; i++)
    double_add (self, values[i] * values[i]);
}

static inline void
double_merge (ExecExact *self, const ExecExact *other)
{
  double_add (self, double_sum (other));
}

static inline void
double_copy (void *out, const void *in, PlanDtype dtype, guint64 count)
{
  g_assert (dtype == PLAN_DTYPE_FP32);
  memmove (out, in, count * sizeof (double));
}

/* Takes the place of conversions from and to eight bits, which are never called here. */
static inline double
double_never (const void *values, double scale, guint64 count)
{
  (void)values, (void)scale, (void)count;
  g_assert_not_reached ();
}

#define plan_dtype_bytes double_bytes
#define exec_number_widen(out, in, dtype, count) double_copy (out, in, dtype, count)
#define exec_number_narrow(out, dtype, in, count) double_copy (out, in, dtype, count)
#define exec_number_widen_scaled(out, dtype, in, scale, count) \
  ((void)(out), double_never (in, scale, count))
#define exec_number_narrow_scaled(out, dtype, in, scale, count) \
  ((void)(out), double_never (in, scale, count))
#define exec_number_largest(values, count) double_never (values, 1, count)
#define exec_exact_value double_sum
#define exec_exact_add_float double_add
#define exec_exact_add_squares double_add_squares
#define exec_exact_merge double_merge
#define float double
#define EXEC_CPU_EXP exp
#define erfcf erfc
#define fabsf fabs
#define fminf fmin
#define expf exp
#define tanhf tanh
#define logf log
#define log1pf log1p
#define expm1f expm1
#define sqrtf sqrt
