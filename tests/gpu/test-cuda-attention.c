/* SPDX-License-Identifier: Apache-2.0 */
/* Attention by products in batches on the first CUDA device against the CPU's, and its speed there,
 * as information on stderr. */
#include "config.h"

#include "tests/fake/batched-compare.h"
#include "tests/gpu/gpu-there.h"

#include <check.h>
#include <cuda_runtime_api.h>
#include <stdlib.h>

/* Heads of over 128 elements have no backward pass in cuDNN but on Hopper, fp32 none at all. Then
 * odd sizes, and little room. */
static const BatchedCase sizes[] = {
  { 1, 2048, 32, 8, 128, PLAN_DTYPE_BF16, PLAN_DTYPE_BF16, 0, 0, 0, 0 },
  { 2, 1024, 16, 16, 64, PLAN_DTYPE_BF16, PLAN_DTYPE_BF16, 0, 0, 0, 0 },
  { 1, 2048, 8, 4, 256, PLAN_DTYPE_BF16, PLAN_DTYPE_BF16, 0, 0, 0, 0 },
  { 1, 1024, 8, 2, 128, PLAN_DTYPE_FP32, PLAN_DTYPE_FP32, 0, 0, 0, 0 },
  { 2, 1000, 6, 2, 80, PLAN_DTYPE_BF16, PLAN_DTYPE_FP32, 100, 0, 0, 0 },
  { 3, 17, 8, 1, 12, PLAN_DTYPE_FP32, PLAN_DTYPE_FP32, 3, 0, 0, 0 },
  { 1, 2048, 16, 16, 192, PLAN_DTYPE_BF16, PLAN_DTYPE_BF16, 0, 0, 128, 0 },
  { 1, 2048, 8, 4, 256, PLAN_DTYPE_BF16, PLAN_DTYPE_BF16, 0, 1024, 0, BATCHED_BOUNDED },
  { 1, 2048, 32, 32, 128, PLAN_DTYPE_BF16, PLAN_DTYPE_BF16, 0, 0, 0,
    BATCHED_SLOPES | BATCHED_DROPOUT },
};

START_TEST (gpu_attends) { batched_compare (&sizes[_i], 10, stderr); }
END_TEST

START_TEST (gpu_attends_at_odd_sizes)
{
  const BatchedCase one = batched_case_random ((guint32)_i);
  batched_compare (&one, 0, NULL);
}
END_TEST

int
main (void)
{
  if (!gpu_is_there ())
    {
      puts ("1..0 # SKIP no CUDA device");
      return EXIT_SUCCESS;
    }
  Suite *suite = suite_create ("attention by batches on a GPU");
  TCase *tcase = tcase_create ("attention");
  tcase_set_timeout (tcase, 300);
  tcase_add_loop_test (tcase, gpu_attends, 0, G_N_ELEMENTS (sizes));
  tcase_add_loop_test (tcase, gpu_attends_at_odd_sizes, 0, 60);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
