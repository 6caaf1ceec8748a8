/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cuda's kernels on the first CUDA device, and their speed there, as information on stderr. */
#include "config.h"

#include "tests/fake/compare.h"

#include <cuda_runtime.h>
#include <stdlib.h>
#include <string.h>

static void
check (cudaError_t code, const char *call)
{
  ck_assert_msg (code == cudaSuccess, "%s: %s", call, cudaGetErrorString (code));
}

static void *
take (guint64 bytes)
{
  void *memory = NULL;

  check (cudaMalloc (&memory, bytes), "cudaMalloc");
  return memory;
}

static void
give (void *memory)
{
  check (cudaFree (memory), "cudaFree");
}

static void
copy (void *to, const void *from, guint64 bytes)
{
  check (cudaMemcpy (to, from, bytes, cudaMemcpyDefault), "cudaMemcpy");
}

static const char *
wait_for_all (void)
{
  cudaError_t code = cudaDeviceSynchronize ();

  return code == cudaSuccess ? NULL : cudaGetErrorString (code);
}

static const CompareDevice gpu = {
  .own_math = TRUE,
  .take = take,
  .give = give,
  .copy = copy,
  .wait = wait_for_all,
};

START_TEST (gpu_measures)
{
  compare_speed (&gpu, 32768, 20,
                 stderr); /* matrices of 256 MiB, several times what a cache holds */
}
END_TEST

int
main (int argc, char **argv)
{
  int devices = 0, failed;
  SRunner *runner;
  Suite *suite;
  TCase *speed;

  if (argc > 1 && strcmp (argv[1], "--cases") == 0) /* each to be run by itself: CK_RUN_CASE */
    {
      compare_print_cases ();
      return EXIT_SUCCESS;
    }
  if (cudaGetDeviceCount (&devices) != cudaSuccess || devices == 0)
    {
      puts ("1..0 # SKIP no CUDA device");
      return EXIT_SUCCESS;
    }
  suite = suite_create ("cuda-kernels");
  compare_add_tests (suite, &gpu, NULL);
  speed = tcase_create ("speed");
  tcase_set_tags (speed, "speed"); /* CK_EXCLUDE_TAGS=speed: under a sanitizer */
  tcase_add_test (speed, gpu_measures);
  suite_add_tcase (suite, speed);
  runner = srunner_create (suite);
  srunner_set_fork_status (runner, CK_NOFORK); /* a CUDA context does not survive a fork */
  srunner_run_all (runner, CK_ENV);
  failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
