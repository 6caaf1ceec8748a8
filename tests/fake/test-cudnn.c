/* SPDX-License-Identifier: Apache-2.0 */
/* cuDNN's attention on a fake device, whose cuDNN runs graphs operation by operation, compared with
 * the CPU's kernels. */
#include "config.h"

#include "planner/base/error.h"
#include "tests/fake/attention-compare.h"
#include "tests/fake/cuda-fake.h"
#include "tests/fake/cudnn-fake.h"

#include <check.h>
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

/* Checks that everything has been freed, and that nothing went wrong. */
static void
assert_finished (void)
{
  ck_assert_str_eq (fake_cuda_finish (), "");
}

static const ExecAttentionShape grouped = { 1, 17, 4, 2, 16, PLAN_DTYPE_BF16, FALSE, FALSE, 0 };
static const ExecAttentionShape small = { 2, 5, 2, 2, 8, PLAN_DTYPE_BF16, FALSE, FALSE, 0 };

/* A shape is planned once: after the second time there are as many descriptors as after the
 * first. */
START_TEST (cudnn_plans_are_kept)
{
  g_autoptr (ExecAttention) attention = NULL;
  guint64 first, second, other;
  ExecAttentionShape shape = grouped;

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
  const ExecAttentionShape shape = small;
  g_autoptr (ExecAttention) attention = NULL;
  cudaStream_t streams[2];
  AttentionCase one;
  ExecAttentionOperands operands = { NULL };

  fake_cuda_reset ();
  attention_case_init (&one, &shape, 1);
  attention = exec_attention_new (NULL);
  for (guint i = 0; i < 2; i++)
    ck_assert_int_eq (cudaStreamCreateWithFlags (&streams[i], cudaStreamNonBlocking), cudaSuccess);
  operands.qkv = attention_to_device (one.qkv, one.qkv_count * 2);
  operands.out = attention_to_device (NULL, one.out_count * 2);
  operands.lse = attention_to_device (NULL, one.lse_count * 4);
  operands.workspace = attention_to_device (NULL, 256);
  ck_assert_int_eq (cudaMemsetAsync ((void *)operands.qkv, 0, one.qkv_count * 2, streams[0]),
                    cudaSuccess);
  ck_assert (exec_attention_run (attention, &shape, &operands, streams[1], NULL));
  ck_assert_msg (strstr (fake_cuda_error (), "cuDNN graph") != NULL
                     && strstr (fake_cuda_error (), "nothing orders the two") != NULL,
                 "%s", fake_cuda_error ());
  attention_case_clear (&one);
}
END_TEST

static const struct
{
  ExecAttentionShape shape;
  const char *message;
} refused[] = {
  { { 1, 4, 2, 2, 8, PLAN_DTYPE_FP32, FALSE, FALSE, 0 }, "cuDNN's attention is in bf16 or fp16" },
  { { 1, 4, 3, 2, 8, PLAN_DTYPE_BF16, FALSE, FALSE, 0 },
    "cuDNN's attention needs the same number of query heads for each key head" },
  { { 1, 4, 2, 2, 12, PLAN_DTYPE_BF16, FALSE, FALSE, 0 },
    "cuDNN's attention has heads of a multiple of 8 elements" },
};

/* Versions with the fault, and those before and after. */
START_TEST (cudnn_versions_that_err_are_refused)
{
  static const struct
  {
    guint version;
    gint64 seq;
    gboolean is_backward;
    const char *message;
  } cases[] = {
    { 0, 128, FALSE,
      "cuDNN's attention needs libcudnn.so.9, which is not found: NVIDIA's package cudnn9, or pip "
      "install nvidia-cudnn-cu12 with its folder in LD_LIBRARY_PATH" },
    { 90501, 128, TRUE,
      "cuDNN's attention is taken from version 9.8.0 on, and goes wrong backwards below 9.6" },
    { 90701, 100, FALSE,
      "cuDNN's attention is taken from version 9.8.0 on, and goes wrong backwards below 9.6" },
    { 90800, 100, FALSE, NULL },
    { 90900, 100, FALSE, NULL },
    { 91000, 128, FALSE, "cuDNN's attention is wrong in versions 9.10.0 and 9.10.1" },
    { 91001, 128, TRUE, "cuDNN's attention is wrong in versions 9.10.0 and 9.10.1" },
    { 91002, 100, FALSE, NULL },
    { 91002, 256, TRUE, NULL },
    { 91500, 100, TRUE,
      "cuDNN's attention goes wrong backwards up to version 9.15.0 where tokens are no multiple of "
      "128" },
    { 91501, 100, TRUE, NULL },
    { 91900, 1, TRUE, "cuDNN's attention has more than one token backwards" },
    { 91900, 1, FALSE, NULL },
  };

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++)
    {
      const ExecAttentionShape shape
          = { 1, cases[i].seq, 4, 2, 16, PLAN_DTYPE_BF16, cases[i].is_backward, FALSE, 0 };
      g_autoptr (GError) error = NULL;

      fake_cudnn_set (cases[i].version, 0);
      ck_assert_int_eq (exec_attention_check_shape (&shape, &error), !cases[i].message);
      ck_assert_pstr_eq (error ? error->message : NULL, cases[i].message);
    }
  fake_cudnn_set (91900, 0);
}
END_TEST

/* A plan's workspace counts where it is larger than its engine said. */
START_TEST (cudnn_plans_say_what_they_want)
{
  guint64 bytes[2];

  fake_cuda_reset ();
  for (guint i = 0; i < 2; i++)
    {
      g_autoptr (ExecAttention) attention = exec_attention_new (NULL);

      fake_cudnn_set (91900, 512 * i);
      ck_assert (exec_attention_workspace (attention, &small, &bytes[i], NULL));
    }
  ck_assert_uint_eq (bytes[1], bytes[0] + 512);
  fake_cudnn_set (91900, 0);
  ck_assert_str_eq (fake_cuda_finish (), "");
}
END_TEST

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
  const ExecAttentionShape shape = small;
  ExecAttentionOperands operands = { NULL };
  AttentionCase one;
  guint64 bytes;

  fake_cuda_reset ();
  attention_case_init (&one, &shape, 1);
  attention = exec_attention_new (NULL);
  operands.qkv = attention_to_device (one.qkv, one.qkv_count * 2);
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
  attention_case_clear (&one);
  g_clear_pointer (&attention, exec_attention_free);
  ck_assert_str_eq (fake_cuda_finish (), "");
}
END_TEST

START_TEST (cudnn_measures)
{
  g_autofree char *text = NULL;
  size_t bytes;
  FILE *file = open_memstream (&text, &bytes);

  fake_cuda_reset ();
  attention_compare_speed (&grouped, 1, file);
  fclose (file);
  ck_assert_msg (g_str_has_prefix (text, "# attention 1 x 17 4/2 heads of 16: ")
                     && strstr (text, " TFLOP/s\n# attention_bwd 1 x 17 4/2 heads of 16: ") != NULL,
                 "%s", text);
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

  tcase_add_test (tcase, cudnn_plans_are_kept);
  tcase_add_test (tcase, cudnn_missing_event_is_found);
  tcase_add_test (tcase, cudnn_versions_that_err_are_refused);
  tcase_add_test (tcase, cudnn_plans_say_what_they_want);
  tcase_add_loop_test (tcase, cudnn_refuses_by_reason, 0, G_N_ELEMENTS (refused));
  tcase_add_test (tcase, cudnn_errors_say_why);
  tcase_add_test (tcase, cudnn_measures);
  suite_add_tcase (suite, tcase);
  suite_add_tcase (suite, attention_compare_case (fake_cuda_reset, assert_finished));
  runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
