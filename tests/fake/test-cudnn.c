/* SPDX-License-Identifier: Apache-2.0 */
/* cuDNN's attention on a fake device, whose cuDNN runs its graphs operation by operation, against
 * the CPU's kernels. */
#include "config.h"

#include "exec/cuda/attention-cudnn.h"
#include "exec/kernels.h"
#include "exec/number.h"
#include "planner/error.h"
#include "planner/scratch.h"
#include "tests/fake/cuda-fake.h"
#include "tests/fake/include/cuda_runtime_api.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What attention reads and makes, forwards and backwards, in host memory. */
typedef struct
{
  ExecAttentionShape shape;
  guint64 qkv_count, out_count, lse_count;
  guint8 *qkv, *out, *dout, *dqkv;
  float *lse;
} Case;

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

static void
case_init (Case *self, const ExecAttentionShape *shape, guint32 seed)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (seed);
  const guint64 rows = (guint64)(shape->batch * shape->seq);

  *self = (Case){ .shape = *shape };
  self->qkv_count = rows * (guint64)((shape->heads + 2 * shape->kv_heads) * shape->head_dim);
  self->out_count = rows * (guint64)(shape->heads * shape->head_dim);
  self->lse_count = rows * (guint64)shape->heads;
  self->qkv = random_numbers (rand, shape->dtype, self->qkv_count);
  self->dout = random_numbers (rand, shape->dtype, self->out_count);
  self->out = g_malloc0 (self->out_count * 2);
  self->dqkv = g_malloc0 (self->qkv_count * 2);
  self->lse = g_new0 (float, self->lse_count);
}

static void
case_clear (Case *self)
{
  g_free (self->qkv);
  g_free (self->out);
  g_free (self->dout);
  g_free (self->dqkv);
  g_free (self->lse);
}

/* By the CPU's kernels. */
static void
run_on_cpu (Case *self)
{
  const ExecAttentionShape *s = &self->shape;
  const gint64 dims[] = { s->batch, s->seq, s->heads, s->kv_heads, s->head_dim, s->seq };
  PlanOp op = { .kind = PLAN_OP_ATTENTION };
  g_autofree float *work = NULL;
  ExecArgs args = { .op = &op };

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

static void *
to_device (const void *from, guint64 bytes)
{
  void *made;

  ck_assert_int_eq (cudaMalloc (&made, MAX (bytes, 1)), cudaSuccess);
  if (from != NULL)
    ck_assert_int_eq (cudaMemcpy (made, from, bytes, cudaMemcpyHostToDevice), cudaSuccess);
  return made;
}

/* One pass by cuDNN, in the workspace that it asks for. */
static void
run_pass (ExecAttention *attention, const ExecAttentionShape *shape,
          const ExecAttentionOperands *operands, cudaStream_t stream)
{
  g_autoptr (GError) error = NULL;
  ExecAttentionOperands all = *operands;
  guint64 bytes;

  ck_assert_msg (exec_attention_workspace (attention, shape, &bytes, &error), "%s",
                 error != NULL ? error->message : "");
  all.workspace = to_device (NULL, bytes);
  ck_assert_msg (exec_attention_run (attention, shape, &all, stream, &error), "%s",
                 error != NULL ? error->message : "");
  ck_assert_int_eq (cudaStreamSynchronize (stream), cudaSuccess);
  ck_assert_int_eq (cudaFree (all.workspace), cudaSuccess);
}

static void
run_on_cudnn (Case *self, ExecAttention *attention)
{
  ExecAttentionShape shape = self->shape;
  cudaStream_t stream;
  const ExecAttentionOperands operands = { .qkv = to_device (self->qkv, self->qkv_count * 2),
                                           .out = to_device (NULL, self->out_count * 2),
                                           .lse = to_device (NULL, self->lse_count * 4),
                                           .dout = to_device (self->dout, self->out_count * 2),
                                           .dqkv = to_device (NULL, self->qkv_count * 2) };

  ck_assert_int_eq (cudaStreamCreate (&stream), cudaSuccess);
  shape.is_backward = FALSE;
  run_pass (attention, &shape, &operands, stream);
  shape.is_backward = TRUE;
  run_pass (attention, &shape, &operands, stream);
  cudaMemcpy (self->out, operands.out, self->out_count * 2, cudaMemcpyDeviceToHost);
  cudaMemcpy (self->lse, operands.lse, self->lse_count * 4, cudaMemcpyDeviceToHost);
  cudaMemcpy (self->dqkv, operands.dqkv, self->qkv_count * 2, cudaMemcpyDeviceToHost);
  cudaFree ((void *)operands.qkv);
  cudaFree (operands.out);
  cudaFree (operands.lse);
  cudaFree ((void *)operands.dout);
  cudaFree (operands.dqkv);
  ck_assert_int_eq (cudaStreamDestroy (stream), cudaSuccess);
}

/* Size of a difference, as a share of the size of what it should be. */
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
  { 1, 1, 1, 1, 8, PLAN_DTYPE_BF16, FALSE, FALSE },
  { 2, 5, 2, 2, 8, PLAN_DTYPE_BF16, FALSE, FALSE },
  { 1, 17, 4, 2, 16, PLAN_DTYPE_BF16, FALSE, FALSE },
  { 3, 9, 6, 1, 8, PLAN_DTYPE_BF16, FALSE, FALSE },
  { 2, 32, 8, 2, 24, PLAN_DTYPE_FP16, FALSE, FALSE },
  { 1, 33, 3, 3, 40, PLAN_DTYPE_FP16, FALSE, FALSE },
  { 1, 17, 4, 2, 16, PLAN_DTYPE_BF16, FALSE, TRUE },
  { 1, 19, 2, 2, 16, PLAN_DTYPE_FP16, FALSE, TRUE },
};

START_TEST (cudnn_attention_equals_cpu)
{
  const ExecAttentionShape *shape = &shapes[_i];
  const double unit = shape->dtype == PLAN_DTYPE_BF16 ? 0x1p-8 : 0x1p-11; /* of roundings */
  Case cudnn, cpu;

  fake_cuda_reset ();
  case_init (&cudnn, shape, (guint32)_i);
  case_init (&cpu, shape, (guint32)_i);
  {
    g_autoptr (ExecAttention) attention = exec_attention_new (NULL);

    run_on_cudnn (&cudnn, attention);
  }
  run_on_cpu (&cpu);
  ck_assert_double_le (difference (cudnn.lse, cpu.lse, PLAN_DTYPE_FP32, cpu.lse_count), 1e-6);
  ck_assert_double_le (difference (cudnn.out, cpu.out, shape->dtype, cpu.out_count), unit);
  ck_assert_double_le (difference (cudnn.dqkv, cpu.dqkv, shape->dtype, cpu.qkv_count),
                       (shape->seq > 1 ? 2 : 1) * unit);
  case_clear (&cudnn);
  case_clear (&cpu);
  ck_assert_str_eq (fake_cuda_finish (), "");
}
END_TEST

/* A shape is planned once: as many descriptors are there after the second time as after the first.
 */
START_TEST (cudnn_plans_are_kept)
{
  g_autoptr (ExecAttention) attention = NULL;
  guint64 first, second, other;
  ExecAttentionShape shape = shapes[2];

  fake_cuda_reset ();
  attention = exec_attention_new (NULL);
  shape.is_backward = TRUE;
  ck_assert (exec_attention_workspace (attention, &shape, &first, NULL));
  ck_assert (exec_attention_workspace (attention, &shape, &second, NULL));
  shape.seq *= 2;
  ck_assert (exec_attention_workspace (attention, &shape, &other, NULL));
  ck_assert_uint_eq (first, second);
  ck_assert_uint_gt (other, first);
  g_clear_pointer (&attention, exec_attention_free);
  ck_assert_str_eq (fake_cuda_finish (), "");
}
END_TEST

/* qkv is written on another stream, and nothing orders the two. */
START_TEST (cudnn_missing_event_is_found)
{
  const ExecAttentionShape shape = shapes[1];
  g_autoptr (ExecAttention) attention = NULL;
  cudaStream_t streams[2];
  Case one;
  ExecAttentionOperands operands = { NULL };

  fake_cuda_reset ();
  case_init (&one, &shape, 1);
  attention = exec_attention_new (NULL);
  for (guint i = 0; i < 2; i++)
    ck_assert_int_eq (cudaStreamCreateWithFlags (&streams[i], cudaStreamNonBlocking), cudaSuccess);
  operands.qkv = to_device (one.qkv, one.qkv_count * 2);
  operands.out = to_device (NULL, one.out_count * 2);
  operands.lse = to_device (NULL, one.lse_count * 4);
  operands.workspace = to_device (NULL, 256);
  ck_assert_int_eq (cudaMemsetAsync ((void *)operands.qkv, 0, one.qkv_count * 2, streams[0]),
                    cudaSuccess);
  ck_assert (exec_attention_run (attention, &shape, &operands, streams[1], NULL));
  ck_assert_msg (strstr (fake_cuda_error (), "cuDNN graph") != NULL
                     && strstr (fake_cuda_error (), "nothing orders the two") != NULL,
                 "%s", fake_cuda_error ());
  case_clear (&one);
}
END_TEST

static const struct
{
  ExecAttentionShape shape;
  const char *message;
} refused[] = {
  { { 1, 4, 2, 2, 8, PLAN_DTYPE_FP32, FALSE, FALSE }, "cuDNN's attention is in bf16 or fp16" },
  { { 1, 4, 3, 2, 8, PLAN_DTYPE_BF16, FALSE, FALSE },
    "cuDNN's attention has as many query heads for each key head" },
  { { 1, 4, 2, 2, 12, PLAN_DTYPE_BF16, FALSE, FALSE },
    "cuDNN's attention has heads of a multiple of 8 elements" },
};

START_TEST (cudnn_refuses_by_reason)
{
  g_autoptr (ExecAttention) attention = NULL;
  g_autoptr (GError) error = NULL;
  guint64 bytes;

  fake_cuda_reset ();
  attention = exec_attention_new (NULL);
  ck_assert (!exec_attention_workspace (attention, &refused[_i].shape, &bytes, &error));
  ck_assert (g_error_matches (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED));
  ck_assert_str_eq (error->message, refused[_i].message);
  g_clear_pointer (&attention, exec_attention_free);
  ck_assert_str_eq (fake_cuda_finish (), "");
}
END_TEST

/* cuDNN's own words are in the message. */
START_TEST (cudnn_errors_say_why)
{
  g_autoptr (ExecAttention) attention = NULL;
  g_autoptr (GError) error = NULL, unknown = NULL;
  const ExecAttentionShape shape = shapes[1];
  ExecAttentionOperands operands = { NULL };
  Case one;
  guint64 bytes;

  fake_cuda_reset ();
  case_init (&one, &shape, 1);
  attention = exec_attention_new (NULL);
  operands.qkv = to_device (one.qkv, one.qkv_count * 2);
  operands.out = (guint8 *)operands.qkv + 2;
  operands.lse = (guint8 *)operands.qkv + 2;
  ck_assert (!exec_attention_run (attention, &shape, &operands, NULL, &error));
  ck_assert (g_error_matches (error, PLAN_ERROR, PLAN_ERROR_BACKEND));
  ck_assert_msg (g_str_has_prefix (error->message, "cudnnBackendExecute (")
                     && strstr (error->message, "is not aligned to 16 bytes") != NULL,
                 "%s", error->message);
  ck_assert (!exec_attention_ask (&shape, "H300", &bytes, &unknown));
  ck_assert_str_eq (unknown->message,
                    "'H300' is not a GPU that attention is known for: A100, H100, H200 or B200");
  cudaFree ((void *)operands.qkv);
  case_clear (&one);
  g_clear_pointer (&attention, exec_attention_free);
  ck_assert_str_eq (fake_cuda_finish (), "");
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("cudnn");
  TCase *tcase = tcase_create ("cudnn");
  SRunner *runner;
  int failed;

  tcase_add_loop_test (tcase, cudnn_attention_equals_cpu, 0, G_N_ELEMENTS (shapes));
  tcase_add_test (tcase, cudnn_plans_are_kept);
  tcase_add_test (tcase, cudnn_missing_event_is_found);
  tcase_add_loop_test (tcase, cudnn_refuses_by_reason, 0, G_N_ELEMENTS (refused));
  tcase_add_test (tcase, cudnn_errors_say_why);
  suite_add_tcase (suite, tcase);
  runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
