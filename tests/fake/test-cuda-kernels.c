/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/cuda/kernels.h"
#include "tests/fake/compare.h"
#include "tests/fake/cuda-fake.h"
#include "tests/fake/planted.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* exec/cuda's kernels on the fake device, and the fake device itself. */

static void
copy (void *to, const void *from, guint64 bytes)
{
  memcpy (to, from, bytes);
}

static const char *
wait_for_all (void)
{
  return *fake_cuda_error () != '\0' ? fake_cuda_error () : NULL;
}

static void *
take (guint64 bytes)
{
  return g_malloc (bytes);
}

static const CompareDevice fake = {
  .take = take,
  .give = g_free,
  .copy = copy,
  .wait = wait_for_all,
};

static void
run_forwards (void)
{
  fake_cuda_reset ();
}

static void
run_backwards (void)
{
  fake_cuda_reset ();
  fake_cuda_run_backwards (TRUE);
}

START_TEST (fake_logs_each_launch)
{
  ExecConstants constants = { .norm_eps = 1e-5, .rope_theta = 10000, .step = 1 };
  PlanOp count = { .dims = { 300 } }, matrix = { .dims = { 2, 300 } };
  PlanOp heads = { .dims = { 2, 2, 2, 1, 16, 0 } };
  ExecArgs args = { .op = &count, .constants = &constants };
  g_autofree float *memory = g_new0 (float, 7 * 1200);

  for (guint i = 0; i < PLAN_MAX_REFS; i++)
    args.ptr[i] = memory + i * 1200;
  ck_assert_int_eq (exec_cuda_zero (&args, (void *)0x10), 0);
  ck_assert_int_eq (exec_cuda_cast (&args, (void *)0x10), 0);
  args.dtype[0] = PLAN_DTYPE_BF16;
  ck_assert_int_eq (exec_cuda_cast (&args, (void *)0x10), 0);
  ck_assert_int_eq (exec_cuda_accumulate (&args, (void *)0x20), 0);
  ck_assert_int_eq (exec_cuda_add (&args, (void *)0x20), 0);
  ck_assert_int_eq (exec_cuda_adamw (&args, (void *)0x20), 0);
  args.op = &matrix;
  ck_assert_int_eq (exec_cuda_rmsnorm (&args, (void *)0x10), 0);
  ck_assert_int_eq (exec_cuda_swiglu (&args, (void *)0x10), 0);
  ck_assert_int_eq (exec_cuda_swiglu_bwd (&args, (void *)0x10), 0);
  args.op = &heads;
  ck_assert_int_eq (exec_cuda_rope (&args, (void *)0x10), 0);
  ck_assert_str_eq (fake_cuda_log (), "memset 1200 stream 0x10\n"
                                      "memcpy 1200 stream 0x10\n"
                                      "cast grid 1 1 block 256 shared 0 stream 0x10\n"
                                      "add grid 1 1 block 256 shared 0 stream 0x20\n"
                                      "add grid 1 1 block 256 shared 0 stream 0x20\n"
                                      "adamw grid 1 1 block 256 shared 0 stream 0x20\n"
                                      "rmsnorm grid 2 1 block 64 shared 0 stream 0x10\n"
                                      "swiglu grid 1 2 block 64 shared 0 stream 0x10\n"
                                      "swiglu_bwd grid 1 2 block 64 shared 0 stream 0x10\n"
                                      "rope grid 1 1 block 256 shared 0 stream 0x10\n");
}
END_TEST

START_TEST (fake_runs_barriers_and_shuffles)
{
  float out[64];

  ck_assert_int_eq (planted_reverse (out), FAKE_CUDA_SUCCESS);
  for (guint i = 0; i < 64; i++)
    ck_assert (out[i] == (float)(63 - i));
  ck_assert_int_eq (planted_shuffle_down (out), FAKE_CUDA_SUCCESS);
  for (guint i = 0; i < 64; i++)
    ck_assert (out[i] == (float)(i % 32 == 31 ? i : i + 1));
  ck_assert_str_eq (fake_cuda_error (), "");
}
END_TEST

/* Whichever thread comes first reads what is not there yet. */
START_TEST (fake_shows_a_missing_barrier)
{
  float out[64];
  guint wrong = 0;

  ck_assert_int_eq (planted_no_barrier (out), FAKE_CUDA_SUCCESS);
  for (guint i = 0; i < 64; i++)
    wrong += isnan (out[i]) != 0;
  ck_assert_uint_eq (wrong, 32);
}
END_TEST

static const struct
{
  int (*run) (float *out);
  const char *error;
} mistakes[] = {
  { planted_half_barrier, "half_barrier, block 0 0: thread 0 waits for ever at a barrier; 32 "
                          "threads wait, 32 have ended" },
  { planted_two_barriers, "two_barriers, block 0 0: thread 0 waits for ever at a barrier; 64 "
                          "threads wait, 0 have ended" },
  { planted_half_shuffle, "half_shuffle, block 0 0: thread 0 waits for ever at a shuffle; 32 "
                          "threads wait, 32 have ended" },
};

START_TEST (fake_reports_mistakes)
{
  float out[64];

  ck_assert_int_eq (mistakes[_i].run (out), FAKE_CUDA_LAUNCH_FAILURE);
  ck_assert_str_eq (fake_cuda_error (), mistakes[_i].error);
  ck_assert_int_eq (planted_reverse (out), FAKE_CUDA_SUCCESS); /* and goes on */
  ck_assert (out[0] == 63);
}
END_TEST

START_TEST (fake_measures)
{
  FILE *file = tmpfile ();
  guint lines = 0, kernels;
  int c;

  ck_assert_ptr_nonnull (file);
  kernels = compare_speed (&fake, 1, file);
  rewind (file);
  while ((c = fgetc (file)) != EOF)
    lines += c == '\n';
  fclose (file);
  ck_assert_uint_eq (lines, kernels);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("cuda-kernels");
  static const struct
  {
    const char *name;
    SFun setup;
  } orders[] = { { "forwards", run_forwards }, { "backwards", run_backwards } };
  SRunner *runner;
  int failed;

  for (guint i = 0; i < G_N_ELEMENTS (orders); i++)
    {
      TCase *tcase = tcase_create (orders[i].name);

      tcase_add_checked_fixture (tcase, orders[i].setup, NULL);
      tcase_add_test (tcase, fake_logs_each_launch);
      tcase_add_test (tcase, fake_runs_barriers_and_shuffles);
      tcase_add_test (tcase, fake_shows_a_missing_barrier);
      tcase_add_test (tcase, fake_measures);
      tcase_add_loop_test (tcase, fake_reports_mistakes, 0, G_N_ELEMENTS (mistakes));
      suite_add_tcase (suite, tcase);
      compare_add_tests (suite, &fake, orders[i].setup);
    }
  runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
