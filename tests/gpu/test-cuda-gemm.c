/* SPDX-License-Identifier: Apache-2.0 */
/* cuBLASLt's products on the first CUDA device against the plain kernel's, and their speed there,
 * as information on stderr. */
#include "config.h"

#include "tests/fake/gemm-compare.h"
#include "tests/gpu/gpu-there.h"

#include <check.h>
#include <cuda_runtime_api.h>
#include <stdlib.h>

/* A layer of Llama 3 8B for 8192 tokens: forwards, the gradients of inputs, of weights. Then odd
 * sizes, and fp32. */
static const GemmCase products[] = {
  { 8192, 6144, 4096, 1, PLAN_DTYPE_BF16, PLAN_DTYPE_BF16 },
  { 8192, 28672, 4096, 1, PLAN_DTYPE_BF16, PLAN_DTYPE_BF16 },
  { 8192, 4096, 14336, 1, PLAN_DTYPE_BF16, PLAN_DTYPE_BF16 },
  { 8192, 4096, 28672, 0, PLAN_DTYPE_BF16, PLAN_DTYPE_BF16 },
  { 28672, 4096, 8192, 2, PLAN_DTYPE_FP32, PLAN_DTYPE_BF16 },
  { 8192, 8192, 8192, 1, PLAN_DTYPE_BF16, PLAN_DTYPE_BF16 },
  { 1000, 777, 333, 0, PLAN_DTYPE_BF16, PLAN_DTYPE_BF16 },
  { 4096, 4096, 4096, 1, PLAN_DTYPE_FP32, PLAN_DTYPE_FP32 },
};

START_TEST (gpu_multiplies) { gemm_compare (&products[_i], 20, stderr); }
END_TEST

int
main (void)
{
  if (!gpu_is_there ())
    {
      puts ("1..0 # SKIP no CUDA device");
      return EXIT_SUCCESS;
    }
  Suite *suite = suite_create ("products on a GPU");
  TCase *tcase = tcase_create ("gemm");
  tcase_set_timeout (tcase, 300);
  tcase_add_loop_test (tcase, gpu_multiplies, 0, G_N_ELEMENTS (products));
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
