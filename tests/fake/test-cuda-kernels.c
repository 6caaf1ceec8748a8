/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/cuda/kernels/kernels.h"
#include "tests/fake/compare.h"
#include "tests/fake/cuda-fake.h"
#include "tests/fake/include/cuda_runtime_api.h"

#include <stdlib.h>

/* exec/cuda's kernels on the fake device. */

static void
copy (void *to, const void *from, guint64 bytes)
{
  ck_assert_int_eq (cudaMemcpy (to, from, bytes, cudaMemcpyDefault), cudaSuccess);
}

static const char *
wait_for_all (void)
{
  return cudaDeviceSynchronize () != cudaSuccess || *fake_cuda_error () != '\0' ? fake_cuda_error ()
                                                                                : NULL;
}

static void *
take (guint64 bytes)
{
  void *memory = NULL;

  ck_assert_int_eq (cudaMalloc (&memory, bytes), cudaSuccess);
  return memory;
}

static void
give (void *memory)
{
  ck_assert_int_eq (cudaFree (memory), cudaSuccess);
}

static const CompareDevice fake = {
  .take = take,
  .give = give,
  .copy = copy,
  .wait = wait_for_all,
};

static void
run_forwards (void)
{
  fake_cuda_reset ();
  fake_cuda_find_races (TRUE);
}

static void
run_backwards (void)
{
  fake_cuda_reset ();
  fake_cuda_run_backwards (TRUE);
}

START_TEST (fake_logs_each_launch)
{
  ExecConstants constants = { .norm_eps = 1e-5, .rope = { .theta = 10000 }, .step = 1 };
  PlanOp count = { .dims = { 300 } }, matrix = { .dims = { 2, 300 } };
  PlanOp heads = { .dims = { 2, 2, 2, 1, 16, 0 } };
  ExecArgs args = { .op = &count, .constants = &constants };
  cudaStream_t one, two;
  float *memory = take (PLAN_MAX_REFS * 4800);

  ck_assert_int_eq (cudaStreamCreateWithFlags (&one, cudaStreamNonBlocking), cudaSuccess);
  ck_assert_int_eq (cudaStreamCreateWithFlags (&two, cudaStreamNonBlocking), cudaSuccess);
  for (guint i = 0; i < PLAN_MAX_REFS; i++)
    args.ptr[i] = memory + i * 1200;
  ck_assert_int_eq (exec_cuda_zero (&args, one), 0);
  ck_assert_int_eq (exec_cuda_cast (&args, one), 0);
  args.dtype[0] = PLAN_DTYPE_BF16;
  ck_assert_int_eq (exec_cuda_cast (&args, one), 0);
  ck_assert_int_eq (exec_cuda_accumulate (&args, two), 0);
  ck_assert_int_eq (exec_cuda_add (&args, two), 0);
  ck_assert_int_eq (exec_cuda_adamw (&args, two), 0);
  args.op = &matrix;
  args.ptr[4] = args.ptr[5] = NULL; /* no scale is known in advance */
  ck_assert_int_eq (exec_cuda_rmsnorm (&args, one), 0);
  ck_assert_int_eq (exec_cuda_swiglu (&args, one), 0);
  ck_assert_int_eq (exec_cuda_swiglu_bwd (&args, one), 0);
  args.op = &heads;
  args.ptr[PLAN_REF_ROPE_places] = NULL;
  ck_assert_int_eq (exec_cuda_rope (&args, one), 0);
  ck_assert_str_eq (fake_cuda_log (), "memset 1200 stream 1\n"
                                      "memcpy 1200 device to device stream 1\n"
                                      "cast grid 1 1 block 256 shared 0 stream 1\n"
                                      "add grid 1 1 block 256 shared 0 stream 2\n"
                                      "add grid 1 1 block 256 shared 0 stream 2\n"
                                      "adamw grid 1 1 block 256 shared 0 stream 2\n"
                                      "rmsnorm<false> grid 2 1 block 64 shared 0 stream 1\n"
                                      "swiglu grid 1 2 block 64 shared 0 stream 1\n"
                                      "swiglu_bwd grid 1 2 block 64 shared 0 stream 1\n"
                                      "rope grid 1 1 block 256 shared 0 stream 1\n");
}
END_TEST

START_TEST (fake_measures)
{
  FILE *file = tmpfile ();
  guint lines = 0, kernels;
  int c;

  ck_assert_ptr_nonnull (file);
  kernels = compare_speed (&fake, 1, 1, file);
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
  const char *ptx = g_getenv ("FAKE_CUDA_PTX"); /* a folder of PTX: tests/release/ptx.sh */
  const guint n_orders = ptx ? 1 : G_N_ELEMENTS (orders);
  SRunner *runner;
  int failed;

  if (ptx)
    printf ("# %u kernels run as PTX\n", fake_cuda_run_ptx (ptx));
  for (guint i = 0; i < n_orders; i++)
    {
      TCase *tcase = tcase_create (orders[i].name);

      tcase_set_timeout (tcase, 120);
      tcase_add_checked_fixture (tcase, orders[i].setup, NULL);
      tcase_add_test (tcase, fake_logs_each_launch);
      if (i == 0) /* its numbers depend on no order */
        tcase_add_test (tcase, fake_measures);
      suite_add_tcase (suite, tcase);
      compare_add_tests (suite, &fake, orders[i].setup);
    }
  runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
