/* SPDX-License-Identifier: Apache-2.0 */
/* The NCCL backend on this machine's GPUs, one for each rank; skipped without one. */
#include "config.h"

#include "tests/fake/nccl-ranks.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

static guint n_gpus;

static gpointer
call_on_host (gpointer data)
{
  rank_call_all (data);
  return NULL;
}

static gpointer
call_on_own_device (gpointer data)
{
  Rank *self = data;

  call_on_device (self, self->comm);
  return NULL;
}

static void
run_and_check (GThreadFunc function, PlanDtype dtype, guint64 count, gboolean is_registered)
{
  Rank ranks[MAX_RANKS];

  nccl_options = (ExecNcclOptions){ .timeout_s = 60,
                                    .is_registered = is_registered,
                                    .spares_sms = is_registered };
  init_ranks (ranks, n_gpus, 1, dtype, count, function == call_on_own_device);
  run_on_nccl (function, ranks, n_gpus);
  check_ranks (ranks, n_gpus);
  clear_ranks (ranks, n_gpus);
}

START_TEST (nccl_gpu_equals_naive)
{
  const PlanDtype dtype = _i % 2 ? PLAN_DTYPE_BF16 : PLAN_DTYPE_FP32;

  run_and_check (call_on_own_device, dtype, 1000, FALSE);
  run_and_check (call_on_own_device, dtype, 1000, TRUE);
  run_and_check (call_on_host, dtype, 257, FALSE);
}
END_TEST

int
main (void)
{
  Suite *suite;
  TCase *tcase;
  SRunner *runner;
  int failed, count;

  if (cudaGetDeviceCount (&count) != cudaSuccess || count == 0)
    {
      puts ("1..0 # SKIP no CUDA device");
      return EXIT_SUCCESS;
    }
  n_gpus = MIN ((guint)count, MAX_RANKS);
  suite = suite_create ("nccl on GPUs");
  tcase = tcase_create ("nccl");
  tcase_set_timeout (tcase, 600);
  tcase_add_loop_test (tcase, nccl_gpu_equals_naive, 0, 2);
  suite_add_tcase (suite, tcase);
  runner = srunner_create (suite);
  srunner_set_fork_status (runner, CK_NOFORK); /* CUDA does not outlive a fork */
  srunner_run_all (runner, CK_ENV);
  failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
