/* SPDX-License-Identifier: Apache-2.0 */
/* What cuDNN itself says of attention's graphs, for GPUs that are not there. Prints a row per
 * shipped model and GPU: bytes of workspace forwards, backwards, and backwards if deterministic.
 * cuDNN loads the driver's library; without a driver the toolkit's stub stands for it. */
#include "config.h"

#include "exec/cuda/attention-cudnn.h"
#include "planner/base/error.h"
#include "planner/model/model.h"
#include "planner/model/preset.h"
#include "planner/schedule/scratch.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

/* Backward kernels for heads of over 128 elements are Hopper's alone. */
static gboolean
is_supported (const ExecAttentionShape *shape, const char *gpu)
{
  return shape->head_dim <= 128 || !shape->is_backward || g_str_equal (gpu, "H100")
         || g_str_equal (gpu, "H200");
}

/* What plans set aside is enough; for sequences of whole tiles it is at most 1 KiB too much. */
static void
check_planned (const ExecAttentionShape *shape, const char *gpu, guint64 bytes)
{
  const gint64 dims[]
      = { shape->batch, shape->seq, shape->heads, shape->kv_heads, shape->head_dim };
  const gint64 capability = g_str_equal (gpu, "A100") ? 80 : g_str_equal (gpu, "B200") ? 100 : 90;
  const guint64 planned
      = shape->is_backward
            ? plan_scratch_attention_elements (dims, capability, shape->is_deterministic) * 4
            : PLAN_SCRATCH_CUDNN_ELEMENTS * 4;

  ck_assert_uint_ge (planned, bytes);
  if (shape->seq % 64 == 0 && shape->seq >= 128)
    ck_assert_uint_le (planned, bytes + 1024);
}

static guint64
ask (const ExecAttentionShape *shape, const char *gpu, const char *who)
{
  g_autoptr (GError) error = NULL;
  guint64 bytes = 0;
  const gboolean ok = exec_attention_ask (shape, gpu, &bytes, &error);

  ck_assert_msg (ok == is_supported (shape, gpu), "%s on %s, %s: %s", who, gpu,
                 shape->is_backward ? "backwards" : "forwards", ok ? "supported" : error->message);
  ck_assert (ok || g_error_matches (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED));
  if (ok)
    check_planned (shape, gpu, bytes);
  return bytes;
}

/* cuDNN takes a window wherever it takes all keys, in as much workspace, so plans need not know
 * about windows. */
static void
check_window (const ExecAttentionShape *shape, const char *gpu, const char *who, guint64 bytes)
{
  ExecAttentionShape windowed = *shape;

  windowed.window = MAX (shape->seq / 4, 1);
  ck_assert_uint_eq (ask (&windowed, gpu, who), bytes);
}

START_TEST (cudnn_takes_the_shipped_models)
{
  const char *name = plan_model_presets ()[_i];
  g_autoptr (PlanModel) model = plan_model_new_preset (name, NULL);

  guint64 hopper[3] = { 0 };

  if (!plan_model_attends_plainly (model))
    return;
  for (const char *const *gpu = exec_attention_gpus (); *gpu != NULL; gpu++)
    {
      guint64 bytes[3];

      for (guint pass = 0; pass < G_N_ELEMENTS (bytes); pass++)
        {
          const ExecAttentionShape shape = { .batch = 1,
                                             .seq = MIN (model->max_seq, 4096),
                                             .heads = model->heads,
                                             .kv_heads = model->kv_heads,
                                             .head_dim = model->head_dim,
                                             .dtype = PLAN_DTYPE_BF16,
                                             .is_backward = pass > 0,
                                             .is_deterministic = pass > 1 };

          bytes[pass] = ask (&shape, *gpu, name);
          if (model->window > 0)
            check_window (&shape, *gpu, name, bytes[pass]);
        }
      /* What is stored is by architecture, so H100 and H200, which have the same, must agree. */
      if (g_str_equal (*gpu, "H100"))
        memcpy (hopper, bytes, sizeof hopper);
      if (g_str_equal (*gpu, "H200"))
        ck_assert_mem_eq (bytes, hopper, sizeof hopper);
      printf ("# cuDNN %u %s %s: %" G_GUINT64_FORMAT " %" G_GUINT64_FORMAT " %" G_GUINT64_FORMAT
              "\n",
              exec_attention_version (), *gpu, name, bytes[0], bytes[1], bytes[2]);
    }
}
END_TEST

#define MIB (G_GUINT64_CONSTANT (1) << 20)

/* What cuDNN 9.19 says, and other versions need not. `bytes` is what it takes beyond statistics of
 * rows and, unless deterministic, the gradient of queries in fp32: gradients of grouped heads, and
 * details of its engines. */
static const struct
{
  ExecAttentionShape shape;
  const char *gpu;
  guint64 bytes;
} known[] = {
  { { 4, 4096, 32, 8, 128, PLAN_DTYPE_BF16, FALSE, FALSE, 0 }, "H200", 256 },
  { { 4, 4096, 32, 8, 128, PLAN_DTYPE_BF16, TRUE, FALSE, 0 }, "H200", 256 * MIB },
  { { 4, 4096, 32, 8, 128, PLAN_DTYPE_BF16, TRUE, FALSE, 0 }, "B200", 256 * MIB },
  { { 4, 4096, 32, 8, 128, PLAN_DTYPE_BF16, TRUE, FALSE, 0 }, "A100", 512 * MIB },
  { { 4, 4096, 32, 8, 128, PLAN_DTYPE_BF16, TRUE, TRUE, 0 }, "H200", 4352 * MIB },
  { { 8, 2048, 32, 8, 64, PLAN_DTYPE_BF16, TRUE, FALSE, 0 }, "H200", 128 * MIB },
  { { 1, 131072, 64, 8, 128, PLAN_DTYPE_FP16, TRUE, FALSE, 0 }, "H200", 4096 * MIB },
};

START_TEST (cudnn_says_what_it_said)
{
  const ExecAttentionShape *shape = &known[_i].shape;
  const guint64 rows = (guint64)(shape->batch * shape->heads * shape->seq);
  guint64 inner = 0, bytes;

  if (exec_attention_version () != 91900)
    return;
  if (shape->is_backward)
    inner = 4 * rows + (shape->is_deterministic ? 0 : 4 * rows * (guint64)shape->head_dim);
  bytes = ask (shape, known[_i].gpu, "a known shape");
  ck_assert_uint_ge (bytes, inner + known[_i].bytes);
  ck_assert_uint_le (bytes, inner + known[_i].bytes + 4096);
}
END_TEST

/* Odd lengths and sizes; one key head for all. */
START_TEST (cudnn_takes_odd_shapes)
{
  static const ExecAttentionShape odd[] = {
    { 1, 17, 4, 2, 64, PLAN_DTYPE_BF16, FALSE, FALSE, 0 },
    { 2, 1000, 8, 8, 80, PLAN_DTYPE_FP16, FALSE, FALSE, 0 },
    { 1, 4095, 16, 1, 96, PLAN_DTYPE_BF16, FALSE, FALSE, 0 },
    { 1, 1, 2, 2, 112, PLAN_DTYPE_BF16, FALSE, FALSE, 0 },
  };

  for (const char *const *gpu = exec_attention_gpus (); *gpu != NULL; gpu++)
    for (guint i = 0; i < G_N_ELEMENTS (odd); i++)
      for (guint pass = 0; pass < 2; pass++)
        {
          ExecAttentionShape shape = odd[i];

          shape.is_backward = pass > 0;
          check_window (&shape, *gpu, "an odd window", ask (&shape, *gpu, "an odd shape"));
        }
}
END_TEST

/* cuDNN unloads the compiler that it made kernels with, and what that allocated stays. */
#ifdef __SANITIZE_ADDRESS__
const char *__asan_default_options (void);

const char *
__asan_default_options (void)
{
  return "detect_leaks=0";
}
#endif

int
main (void)
{
  Suite *suite;
  TCase *tcase;
  SRunner *runner;
  int failed;

  if (!exec_attention_load_driver (NULL))
    {
      puts ("1..0 # SKIP neither a driver nor the toolkit's stub of one");
      return EXIT_SUCCESS;
    }
  suite = suite_create ("cudnn asked");
  tcase = tcase_create ("cudnn asked");
  tcase_set_timeout (tcase, 300);
  tcase_add_loop_test (tcase, cudnn_takes_the_shipped_models, 0,
                       (int)g_strv_length ((char **)plan_model_presets ()));
  tcase_add_loop_test (tcase, cudnn_says_what_it_said, 0, G_N_ELEMENTS (known));
  tcase_add_test (tcase, cudnn_takes_odd_shapes);
  suite_add_tcase (suite, tcase);
  runner = srunner_create (suite);
  srunner_set_fork_status (runner, CK_NOFORK); /* cuDNN is loaded once */
  srunner_run_all (runner, CK_ENV);
  failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
