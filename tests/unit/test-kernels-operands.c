/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/unit/test-kernels-operands.h"

#include "exec/number/number.h"
#include "planner/schedule/scratch.h"

#include <check.h>
#include <math.h>
#include <string.h>

static const ExecConstants usual = {
  .norm_eps = 1e-5,
  .rope = { .theta = 10000 },
  .lr = 1e-2,
  .beta1 = 0.9,
  .beta2 = 0.95,
  .adam_eps = 1e-8,
  .weight_decay = 0.1,
  .max_norm = 0.5,
  .step = 3,
};

ExecConstants constants;
PlanManner manner;
guint64 turn;

static void
begin (void)
{
  constants = usual;
  manner = (PlanManner){ 0 };
  turn = 0;
}

TCase *
kernels_case (const char *name)
{
  TCase *tcase = tcase_create (name);
  tcase_add_checked_fixture (tcase, begin, NULL);
  return tcase;
}

void
tensor_clear (Tensor *self)
{
  g_free (self->data);
  g_free (self->value);
}

/* For results: every byte 0xff, which is NaN in all formats, so that what is not written shows. */
Tensor
tensor_blank (PlanDtype dtype, guint64 count)
{
  guint64 bytes = plan_dtype_bytes (dtype, count);
  Tensor self = { .dtype = dtype, .count = count, .data = g_malloc (MAX (bytes, 1)) };

  memset (self.data, 0xff, bytes);
  return self;
}

Tensor
tensor_random (GRand *rand, PlanDtype dtype, guint64 count, double scale)
{
  Tensor self = tensor_blank (dtype, count);
  guint8 *at = self.data;

  self.value = g_new (double, count);
  for (guint64 i = 0; i < count; i++, at += plan_dtype_bytes (dtype, 1))
    {
      float value
          = (float)(scale
                    * (g_rand_double_range (rand, -1, 1) + g_rand_double_range (rand, -1, 1)));

      exec_number_narrow (at, dtype, &value, 1);
      exec_number_widen (&value, at, dtype, 1);
      self.value[i] = (double)value;
    }
  return self;
}

Tensor
tensor_tokens (GRand *rand, guint64 count, gint32 from, gint32 vocab)
{
  Tensor self = tensor_blank (PLAN_DTYPE_I32, count);

  for (guint64 i = 0; i < count; i++)
    ((gint32 *)self.data)[i] = g_rand_int_range (rand, from, vocab);
  return self;
}

Tensor
tensor_copy (const Tensor *other)
{
  Tensor self = *other;

  self.data = g_memdup2 (other->data, plan_dtype_bytes (other->dtype, other->count));
  self.value = NULL;
  return self;
}

double
tensor_get (const Tensor *self, guint64 i)
{
  float value;

  exec_number_widen (&value, (guint8 *)self->data + plan_dtype_bytes (self->dtype, i), self->dtype,
                     1);
  return (double)value;
}

/* |got - want| is at most `bound` of the largest |want|, plus the rounding of the stored format. */
void
check_close (const Tensor *got, const double *want, double bound, const char *what)
{
  double largest = 1e-30, rounding = got->dtype == PLAN_DTYPE_BF16 ? 0x1.01p-8 : 0x1p-24;

  for (guint64 i = 0; i < got->count; i++)
    largest = fmax (largest, fabs (want[i]));
  for (guint64 i = 0; i < got->count; i++)
    {
      double value = tensor_get (got, i), limit = bound * largest + rounding * fabs (want[i]);

      ck_assert_msg (fabs (value - want[i]) <= limit,
                     "%s[%" G_GUINT64_FORMAT "] is %g instead of %g, %g off where %g is allowed",
                     what, i, value, want[i], fabs (value - want[i]), limit);
    }
}

/* Runs a kernel with exactly the scratch it asked for. */
void
run_kernel (PlanOpKind kind, const Tensor *const *operands, const gint64 *dims, PlanDtype matrices)
{
  PlanOp op = { .kind = kind };
  ExecArgs args = { .op = &op, .manner = &manner, .constants = &constants, .turn = turn };
  guint64 elements = plan_scratch_elements (kind, dims, matrices);
  g_autofree float *scratch = elements > 0 ? g_new (float, elements) : NULL;

  memcpy (op.dims, dims, plan_op_n_dims (kind) * sizeof *dims);
  for (guint i = 0; i < plan_op_n_refs (kind); i++)
    {
      gboolean is_scratch = plan_op_ref_access (kind, i) == 's';

      if (!is_scratch && operands[i] == NULL)
        continue;
      args.ptr[i] = is_scratch ? scratch : operands[i]->data;
      args.dtype[i] = is_scratch ? PLAN_DTYPE_FP32 : operands[i]->dtype;
      args.scale[i] = is_scratch ? NULL : operands[i]->scale;
    }
  exec_kernels_cpu.run[kind](&args);
}

PlanDtype
format_of (int seed)
{
  return seed % 2 ? PLAN_DTYPE_BF16 : PLAN_DTYPE_FP32;
}

double
gain_of (double weight)
{
  return weight + manner.value[PLAN_MANNER_ONE_PLUS];
}

gint64
between (GRand *rand, gint32 low, gint32 high)
{
  return g_rand_int_range (rand, low, high + 1);
}

/* Gradient of sum (dout * out) with respect to one input, by central differences. */
double *
slow_gradient (Forward forward, Pass *pass, guint input, guint64 count, const double *dout)
{
  double *gradient = g_new0 (double, count), *in = pass->in[input], h = 1e-5;

  for (guint64 i = 0; i < count; i++)
    {
      double kept = in[i];

      for (int sign = -1; sign <= 1; sign += 2)
        {
          in[i] = kept + sign * h;
          forward (pass);
          for (guint64 k = 0; k < pass->out_count; k++)
            gradient[i] += sign * dout[k] * pass->out[k] / (2 * h);
        }
      in[i] = kept;
    }
  return gradient;
}
