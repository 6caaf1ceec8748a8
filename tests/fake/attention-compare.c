/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/fake/attention-compare.h"

#include "exec/kernels.h"
#include "exec/number/number.h"
#include "planner/schedule/scratch.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <string.h>

static guint8 *
random_numbers (GRand *rand, PlanDtype dtype, guint64 count)
{
  g_autofree float *values = g_new (float, count);
  guint8 *numbers = g_malloc (plan_dtype_bytes (dtype, count));

  for (guint64 i = 0; i < count; i++)
    values[i] = (float)g_rand_double_range (rand, -2, 2);
  exec_number_narrow (numbers, dtype, values, count);
  return numbers;
}

void
attention_case_init (AttentionCase *self, const ExecAttentionShape *shape, guint32 seed)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (seed);
  const guint64 rows = (guint64)(shape->batch * shape->seq);

  *self = (AttentionCase){ .shape = *shape };
  self->qkv_count = rows * (guint64)((shape->heads + 2 * shape->kv_heads) * shape->head_dim);
  self->out_count = rows * (guint64)(shape->heads * shape->head_dim);
  self->lse_count = rows * (guint64)shape->heads;
  self->qkv = random_numbers (rand, shape->dtype, self->qkv_count);
  self->dout = random_numbers (rand, shape->dtype, self->out_count);
  self->out = g_malloc0 (self->out_count * 2);
  self->dqkv = g_malloc0 (self->qkv_count * 2);
  self->lse = g_new0 (float, self->lse_count);
}

void
attention_case_clear (AttentionCase *self)
{
  g_free (self->qkv);
  g_free (self->out);
  g_free (self->dout);
  g_free (self->dqkv);
  g_free (self->lse);
}

/* Runs both passes by the CPU's kernels. */
static void
run_on_cpu (AttentionCase *self)
{
  const ExecAttentionShape *s = &self->shape;
  const gint64 dims[] = { s->batch, s->seq, s->heads, s->kv_heads, s->head_dim, s->seq };
  PlanOp op = { .kind = PLAN_OP_ATTENTION };
  g_autofree float *work = NULL;
  const PlanManner manner
      = { { [PLAN_MANNER_WINDOW] = (double)s->window, [PLAN_MANNER_SCALAR] = self->scalar } };
  ExecArgs args = { .op = &op, .manner = &manner };

  memcpy (op.dims, dims, sizeof dims);
  work = g_new (float, plan_scratch_elements (PLAN_OP_ATTENTION_BWD, op.dims, s->dtype));
  for (guint i = 0; i < PLAN_MAX_REFS; i++)
    args.dtype[i] = s->dtype;
  args.ptr[0] = self->out;
  args.ptr[1] = self->lse;
  args.ptr[2] = self->qkv;
  args.ptr[3] = work;
  exec_kernels_cpu.run[PLAN_OP_ATTENTION](&args);
  op.kind = PLAN_OP_ATTENTION_BWD;
  args.ptr[0] = self->dqkv;
  args.ptr[1] = self->dout;
  args.ptr[2] = self->out;
  args.ptr[3] = self->lse;
  args.ptr[4] = self->qkv;
  args.ptr[5] = work;
  exec_kernels_cpu.run[PLAN_OP_ATTENTION_BWD](&args);
}

void *
attention_to_device (const void *from, guint64 bytes)
{
  void *made;

  ck_assert_int_eq (cudaMalloc (&made, MAX (bytes, 1)), cudaSuccess);
  if (from != NULL)
    ck_assert_int_eq (cudaMemcpy (made, from, bytes, cudaMemcpyHostToDevice), cudaSuccess);
  return made;
}

/* Runs one pass by cuDNN, in the workspace that it asks for. Returns FALSE where this version of
 * cuDNN is known to get the pass wrong. */
static gboolean
run_pass (ExecAttention *attention, const ExecAttentionShape *shape,
          const ExecAttentionOperands *operands, cudaStream_t stream)
{
  g_autoptr (GError) error = NULL;
  ExecAttentionOperands all = *operands;
  guint64 bytes;

  if (!exec_attention_check_shape (shape, NULL))
    return FALSE;
  ck_assert_msg (exec_attention_workspace (attention, shape, &bytes, &error), "%s",
                 error != NULL ? error->message : "");
  all.workspace = attention_to_device (NULL, bytes);
  ck_assert_msg (exec_attention_run (attention, shape, &all, stream, &error), "%s",
                 error != NULL ? error->message : "");
  ck_assert_int_eq (cudaStreamSynchronize (stream), cudaSuccess);
  ck_assert_int_eq (cudaFree (all.workspace), cudaSuccess);
  return TRUE;
}

static ExecAttentionOperands
operands_of (const AttentionCase *self)
{
  return (ExecAttentionOperands){ .qkv = attention_to_device (self->qkv, self->qkv_count * 2),
                                  .out = attention_to_device (NULL, self->out_count * 2),
                                  .lse = attention_to_device (NULL, self->lse_count * 4),
                                  .dout = attention_to_device (self->dout, self->out_count * 2),
                                  .dqkv = attention_to_device (NULL, self->qkv_count * 2),
                                  .scalar = self->scalar };
}

static void
free_operands (const ExecAttentionOperands *operands)
{
  cudaFree ((void *)operands->qkv);
  cudaFree (operands->out);
  cudaFree (operands->lse);
  cudaFree ((void *)operands->dout);
  cudaFree (operands->dqkv);
}

/* Runs both passes by cuDNN, and puts the results into `self`. */
static void
run_on_cudnn (AttentionCase *self, ExecAttention *attention, gboolean out_did[2])
{
  const ExecAttentionOperands operands = operands_of (self);
  ExecAttentionShape shape = self->shape;
  cudaStream_t stream;

  ck_assert_int_eq (cudaStreamCreate (&stream), cudaSuccess);
  shape.is_backward = FALSE;
  out_did[0] = run_pass (attention, &shape, &operands, stream);
  shape.is_backward = TRUE;
  out_did[1] = out_did[0] && run_pass (attention, &shape, &operands, stream);
  cudaMemcpy (self->out, operands.out, self->out_count * 2, cudaMemcpyDeviceToHost);
  cudaMemcpy (self->lse, operands.lse, self->lse_count * 4, cudaMemcpyDeviceToHost);
  cudaMemcpy (self->dqkv, operands.dqkv, self->qkv_count * 2, cudaMemcpyDeviceToHost);
  free_operands (&operands);
  ck_assert_int_eq (cudaStreamDestroy (stream), cudaSuccess);
}

/* The norm of the difference of two arrays, as a share of the norm of the expected one. */
static double
difference (const void *is, const void *should_be, PlanDtype dtype, guint64 count)
{
  double apart = 0, all = 0;

  for (guint64 i = 0; i < count; i++)
    {
      const guint64 at = plan_dtype_bytes (dtype, i);
      float a, b;

      exec_number_widen (&a, (const guint8 *)is + at, dtype, 1);
      exec_number_widen (&b, (const guint8 *)should_be + at, dtype, 1);
      apart += pow ((double)a - (double)b, 2);
      all += pow ((double)b, 2);
    }
  return isnan (apart) ? INFINITY : sqrt (apart / all);
}

static const ExecAttentionShape shapes[] = {
  { 1, 1, 1, 1, 8, PLAN_DTYPE_BF16, FALSE, FALSE, 0 },
  { 2, 5, 2, 2, 8, PLAN_DTYPE_BF16, FALSE, FALSE, 0 },
  { 1, 17, 4, 2, 16, PLAN_DTYPE_BF16, FALSE, FALSE, 0 },
  { 3, 9, 6, 1, 8, PLAN_DTYPE_BF16, FALSE, FALSE, 0 },
  { 2, 32, 8, 2, 24, PLAN_DTYPE_FP16, FALSE, FALSE, 0 },
  { 1, 33, 3, 3, 40, PLAN_DTYPE_FP16, FALSE, FALSE, 0 },
  { 1, 17, 4, 2, 16, PLAN_DTYPE_BF16, FALSE, TRUE, 0 },
  { 1, 19, 2, 2, 16, PLAN_DTYPE_FP16, FALSE, TRUE, 0 },
  { 2, 17, 4, 2, 16, PLAN_DTYPE_BF16, FALSE, FALSE, 5 },
  { 1, 33, 2, 2, 8, PLAN_DTYPE_FP16, FALSE, FALSE, 1 },
  { 1, 19, 2, 1, 16, PLAN_DTYPE_BF16, FALSE, TRUE, 18 },
};

START_TEST (cudnn_attention_equals_cpu)
{
  const ExecAttentionShape *shape = &shapes[_i];
  const double unit
      = shape->dtype == PLAN_DTYPE_BF16 ? 0x1p-8 : 0x1p-11; /* the relative error of one rounding */
  g_autoptr (ExecAttention) attention = NULL;
  g_autoptr (GError) error = NULL;
  AttentionCase cudnn, cpu;
  gboolean did[2];

  attention_case_init (&cudnn, shape, (guint32)_i);
  attention_case_init (&cpu, shape, (guint32)_i);
  cudnn.scalar = cpu.scalar = _i % 2 == 0 ? 0 : 7;
  attention = exec_attention_new (&error);
  ck_assert_msg (attention != NULL, "%s", error != NULL ? error->message : "");
  run_on_cudnn (&cudnn, attention, did);
  g_clear_pointer (&attention, exec_attention_free);
  run_on_cpu (&cpu);
  if (did[0])
    {
      ck_assert_double_le (difference (cudnn.lse, cpu.lse, PLAN_DTYPE_FP32, cpu.lse_count), 1e-6);
      ck_assert_double_le (difference (cudnn.out, cpu.out, shape->dtype, cpu.out_count), unit);
    }
  if (did[1])
    ck_assert_double_le (difference (cudnn.dqkv, cpu.dqkv, shape->dtype, cpu.qkv_count), 2 * unit);
  if (exec_attention_version () >= 91900) /* earlier versions have known faults */
    ck_assert (did[0] && did[1] == (shape->seq > 1));
  attention_case_clear (&cudnn);
  attention_case_clear (&cpu);
}
END_TEST

TCase *
attention_compare_case (SFun setup, SFun teardown)
{
  TCase *tcase = tcase_create ("attention");

  tcase_add_checked_fixture (tcase, setup, teardown);
  tcase_add_loop_test (tcase, cudnn_attention_equals_cpu, 0, G_N_ELEMENTS (shapes));
  return tcase;
}

/* --- speed -------------------------------------------------------------------------------- */

static double
time_pass (ExecAttention *attention, const ExecAttentionShape *shape,
           const ExecAttentionOperands *operands, guint repeats)
{
  cudaEvent_t begin, end;
  float ms = 0;

  ck_assert_int_eq (cudaEventCreate (&begin), cudaSuccess);
  ck_assert_int_eq (cudaEventCreate (&end), cudaSuccess);
  for (guint i = 0; i <= repeats; i++)
    {
      if (i == 1) /* the first call does not count */
        ck_assert_int_eq (cudaEventRecord (begin, NULL), cudaSuccess);
      ck_assert (exec_attention_run (attention, shape, operands, NULL, NULL));
    }
  ck_assert_int_eq (cudaEventRecord (end, NULL), cudaSuccess);
  ck_assert_int_eq (cudaEventSynchronize (end), cudaSuccess);
  ck_assert_int_eq (cudaEventElapsedTime (&ms, begin, end), cudaSuccess);
  ck_assert_int_eq (cudaEventDestroy (begin), cudaSuccess);
  ck_assert_int_eq (cudaEventDestroy (end), cudaSuccess);
  return (double)ms / repeats;
}

/* FLOPs of a pass: the products of scores and values, two forwards and five backwards, each halved
 * by causality. */
static double
flops_of (const ExecAttentionShape *s)
{
  const double product = (double)(s->batch * s->heads * s->head_dim) * (double)(s->seq * s->seq);

  return (s->is_backward ? 5 : 2) * product;
}

void
attention_compare_speed (const ExecAttentionShape *given, guint repeats, FILE *out)
{
  g_autoptr (ExecAttention) attention = exec_attention_new (NULL);
  ExecAttentionShape shape = *given;
  ExecAttentionOperands operands;
  AttentionCase one;

  attention_case_init (&one, given, 1);
  operands = operands_of (&one);
  for (guint pass = 0; pass < 2; pass++)
    {
      guint64 bytes;

      shape.is_backward = pass > 0;
      ck_assert (exec_attention_workspace (attention, &shape, &bytes, NULL));
      operands.workspace = attention_to_device (NULL, bytes);
      const double ms = time_pass (attention, &shape, &operands, repeats);
      fprintf (out,
               "# %s %" G_GINT64_FORMAT " x %" G_GINT64_FORMAT " %" G_GINT64_FORMAT
               "/%" G_GINT64_FORMAT " heads of %" G_GINT64_FORMAT ": %.3f ms %.0f TFLOP/s\n",
               pass > 0 ? "attention_bwd" : "attention", shape.batch, shape.seq, shape.heads,
               shape.kv_heads, shape.head_dim, ms, flops_of (&shape) / ms / 1e9);
      ck_assert_int_eq (cudaFree (operands.workspace), cudaSuccess);
    }
  free_operands (&operands);
  attention_case_clear (&one);
}
