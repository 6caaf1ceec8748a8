/* SPDX-License-Identifier: Apache-2.0 */
/* cuDNN's attention on the first CUDA device against the CPU's kernels, and its speed there for the
 * attention of known models, as information on stderr. */
#include "config.h"

#include "tests/fake/attention-compare.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>

/* Llama 3.2 1B, Llama 3 8B and a long context of it. */
static const ExecAttentionShape models[] = {
  { 4, 4096, 32, 8, 64, PLAN_DTYPE_BF16, FALSE, FALSE, 0 },
  { 4, 4096, 32, 8, 128, PLAN_DTYPE_BF16, FALSE, FALSE, 0 },
  { 1, 32768, 32, 8, 128, PLAN_DTYPE_BF16, FALSE, FALSE, 0 },
};

START_TEST (gpu_measures_attention) { attention_compare_speed (&models[_i], 20, stderr); }
END_TEST

int
main (void)
{
  int devices = 0;

  if (cudaGetDeviceCount (&devices) != cudaSuccess || devices == 0)
    {
      puts ("1..0 # SKIP no CUDA device");
      return EXIT_SUCCESS;
    }
  Suite *suite = suite_create ("cudnn on a GPU");
  TCase *tcase = tcase_create ("speed");
  tcase_set_timeout (tcase, 300);
  tcase_add_loop_test (tcase, gpu_measures_attention, 0, G_N_ELEMENTS (models));
  suite_add_tcase (suite, attention_compare_case (NULL, NULL));
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_set_fork_status (runner, CK_NOFORK); /* a CUDA context does not survive a fork */
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
