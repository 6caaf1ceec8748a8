/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/fake/cuda-fake.h"
#include "tests/fake/include/cuda_runtime_api.h"
#include "tests/fake/order.h"
#include "tests/fake/planted.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Tests of the fake device itself: it computes as a device does, and reports mistakes that a device
 * does not. */

#define OK(call) ck_assert_int_eq (call, cudaSuccess)

/* 64 numbers on the device and in pinned memory, two streams and an event: made before each test
 * and freed after it. */
static float *in, *out, *pinned;
static cudaStream_t one, two;
static cudaEvent_t event;
static gboolean backwards; /* whether the threads of a block run backwards */

static void
set_up (void)
{
  fake_cuda_reset ();
  OK (cudaMalloc ((void **)&in, 256));
  OK (cudaMalloc ((void **)&out, 256));
  OK (cudaMallocHost ((void **)&pinned, 256));
  OK (cudaStreamCreateWithFlags (&one, cudaStreamNonBlocking));
  OK (cudaStreamCreateWithFlags (&two, cudaStreamNonBlocking));
  OK (cudaEventCreateWithFlags (&event, cudaEventDisableTiming));
}

static void
set_up_backwards (void)
{
  set_up ();
  backwards = TRUE;
  fake_cuda_run_backwards (TRUE);
}

/* Frees everything; returns what went wrong, or "". */
static const char *
finish (void)
{
  cudaDeviceSynchronize ();
  cudaFree (in);
  cudaFree (out);
  cudaFreeHost (pinned);
  cudaStreamDestroy (one);
  cudaStreamDestroy (two);
  cudaEventDestroy (event);
  return fake_cuda_finish ();
}

static void
read_out (float values[64])
{
  OK (cudaDeviceSynchronize ());
  OK (cudaMemcpy (values, out, 256, cudaMemcpyDeviceToHost));
}

/* --- kernels ------------------------------------------------------------------------------ */

START_TEST (fake_runs_barriers_and_shuffles)
{
  float values[64];

  OK (planted_reverse (out, one));
  read_out (values);
  for (guint i = 0; i < 64; i++)
    ck_assert (values[i] == (float)(63 - i));
  OK (planted_shuffle_down (out, one));
  read_out (values);
  for (guint i = 0; i < 64; i++)
    ck_assert (values[i] == (float)(i % 32 == 31 ? i : i + 1));
  OK (planted_dynamic (out, 256, one));
  read_out (values);
  for (guint i = 0; i < 64; i++)
    ck_assert (values[i] == (float)(63 - i));
  ck_assert_str_eq (finish (), "");
}
END_TEST

START_TEST (fake_adds_atomically)
{
  float values[64];

  OK (planted_reverse (in, one));
  OK (cudaMemsetAsync (out, 0, 256, one));
  OK (planted_sum (out, in, 64, one));
  read_out (values);
  ck_assert (values[0] == 63 * 64 / 2);
  ck_assert_str_eq (finish (), "");
}
END_TEST

/* In any order of threads, some read what has not been written yet. */
START_TEST (fake_shows_a_missing_barrier)
{
  float values[64];
  guint wrong = 0;

  OK (planted_no_barrier (out, one));
  read_out (values);
  for (guint i = 0; i < 64; i++)
    wrong += isnan (values[i]) != 0;
  ck_assert_uint_eq (wrong, 32);
}
END_TEST

static const struct
{
  int (*run) (float *out, void *stream);
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
  ck_assert_int_eq (mistakes[_i].run (out, one), cudaErrorLaunchFailure);
  ck_assert_str_eq (fake_cuda_error (), mistakes[_i].error);
  ck_assert_int_eq (planted_reverse (out, one),
                    cudaErrorLaunchFailure); /* every later launch fails, too */
  set_up ();
  OK (planted_reverse (out, one));
  ck_assert_str_eq (finish (), "");
}
END_TEST

static int
within_warps_with (float *to, void *stream)
{
  return planted_within_warps (to, TRUE, stream);
}

static int
within_warps_without (float *to, void *stream)
{
  return planted_within_warps (to, FALSE, stream);
}

static int
two_rounds_with (float *to, void *stream)
{
  return planted_two_rounds (to, TRUE, stream);
}

static int
two_rounds_without (float *to, void *stream)
{
  return planted_two_rounds (to, FALSE, stream);
}

/* Races, by the thread that comes first in the running order and the one that is in conflict with
 * it. */
static const struct
{
  int (*run) (float *out, void *stream);
  const char *forwards, *backwards;
} races[] = {
  { planted_reverse, "", "" },
  { within_warps_with, "", "" },
  { two_rounds_with, "", "" },
  { planted_no_barrier,
    "no_barrier, block 0 0: thread 32 writes shared memory, which thread 31 reads: nothing orders "
    "the two",
    "no_barrier, block 0 0: thread 31 writes shared memory, which thread 32 reads: nothing orders "
    "the two" },
  { planted_one_slot,
    "one_slot, block 0 0: thread 1 writes shared memory, which thread 0 writes: nothing orders the "
    "two",
    "one_slot, block 0 0: thread 62 writes shared memory, which thread 63 writes: nothing orders "
    "the two" },
  { planted_both_blocks,
    "both_blocks, block 1 0: thread 0 writes 1 bytes at 0 of memory 2 (256 bytes), which thread 0 "
    "of another block writes: nothing orders the two",
    "both_blocks, block 1 0: thread 63 writes 1 bytes at 252 of memory 2 (256 bytes), which thread "
    "63 of another block writes: nothing orders the two" },
  { planted_read_beside_atomics,
    "read_beside_atomics, block 0 0: thread 5 reads 1 bytes at 0 of memory 2 (256 bytes), which "
    "thread 0 writes: nothing orders the two",
    "read_beside_atomics, block 0 0: thread 5 reads 1 bytes at 0 of memory 2 (256 bytes), which "
    "thread 63 writes: nothing orders the two" },
  { within_warps_without,
    "within_warps, block 0 0: thread 0 reads shared memory, which thread 1 writes: nothing orders "
    "the two",
    "within_warps, block 0 0: thread 63 reads shared memory, which thread 62 writes: nothing "
    "orders the two" },
  { two_rounds_without,
    "two_rounds, block 0 0: thread 32 reads shared memory, which thread 31 writes: nothing orders "
    "the two",
    "two_rounds, block 0 0: thread 31 reads shared memory, which thread 32 writes: nothing orders "
    "the two" },
};

START_TEST (fake_finds_races)
{
  OK (cudaMemsetAsync (out, 0, 256, one));
  OK (races[_i].run (out, one));
  ck_assert_str_eq (fake_cuda_error (),
                    ""); /* races are not looked for before fake_cuda_find_races */
  fake_cuda_find_races (TRUE);
  OK (races[_i].run (out, one));
  OK (cudaMemsetAsync (out, 0, 256, one));
  ck_assert_str_eq (finish (), backwards ? races[_i].backwards : races[_i].forwards);
}
END_TEST

/* --- memory that kernels must not touch --------------------------------------------------- */

/* Errors name the first thread to fail in the order of running: forwards 0 to 63, or backwards. */
static void
check_refused (int code, const char *forwards_error, const char *backwards_error)
{
  ck_assert_int_eq (code, cudaErrorIllegalAddress);
  ck_assert_str_eq (fake_cuda_error (), backwards ? backwards_error : forwards_error);
  ck_assert_int_eq (cudaGetLastError (), cudaErrorIllegalAddress);
  ck_assert_int_eq (cudaDeviceSynchronize (), cudaErrorIllegalAddress); /* the error stays */
}

START_TEST (fake_sees_writes_beyond_the_end)
{
  OK (cudaMemsetAsync (in, 0, 256, one));
  check_refused (planted_copy (out + 1, in, 64, one),
                 "copy, block 0 0: thread 63 writes 4 bytes at 256 of memory 2 (256 bytes): beyond "
                 "its end",
                 "copy, block 0 0: thread 63 writes 4 bytes at 256 of memory 2 (256 bytes): beyond "
                 "its end");
}
END_TEST

/* The read may be one instruction or two, as the compiler chooses. */
START_TEST (fake_sees_reads_beyond_the_end_of_structs)
{
  ck_assert_int_eq (planted_copy_quads (out, in + 4, 64, one), cudaErrorIllegalAddress);
  ck_assert (
      g_str_has_prefix (fake_cuda_error (), "copy_quads, block 0 0: thread 15 reads ")
      && g_str_has_suffix (fake_cuda_error (), " at 256 of memory 1 (256 bytes): beyond its end"));
}
END_TEST

START_TEST (fake_sees_long_copies)
{
  check_refused (planted_copy_long (out, in + 6, 66, one),
                 "copy_long, block 0 0: thread 9 reads 24 bytes at 240 of memory 1 (256 bytes): "
                 "beyond its end",
                 "copy_long, block 0 0: thread 10 reads 24 bytes at 264 of memory 1 (256 bytes): "
                 "beyond its end");
}
END_TEST

START_TEST (fake_sees_freed_memory)
{
  OK (cudaFree (in));
  check_refused (planted_copy (out, in, 64, one),
                 "copy, block 0 0: thread 0 reads 4 bytes of freed memory 1",
                 "copy, block 0 0: thread 63 reads 4 bytes of freed memory 1");
}
END_TEST

START_TEST (fake_sees_host_memory)
{
  g_autofree float *host = g_new0 (float, 64);

  check_refused (planted_copy (out, host, 64, one),
                 "copy, block 0 0: thread 0 reads 4 bytes of memory that is not a device's",
                 "copy, block 0 0: thread 63 reads 4 bytes of memory that is not a device's");
}
END_TEST

/* Clang copies structs by calls that do not tell their alignment. */
#ifndef __clang__
START_TEST (fake_sees_wide_accesses_that_are_not_aligned)
{
  ck_assert_int_eq (planted_copy_quads (out, in + 1, 32, one), cudaErrorIllegalAddress);
  ck_assert (g_str_has_suffix (fake_cuda_error (), " bytes at once, at no multiple of that"));
}
END_TEST
#endif

int
main (void)
{
  Suite *suite = suite_create ("cuda-fake");
  static const struct
  {
    const char *name;
    SFun setup;
  } orders[] = { { "forwards", set_up }, { "backwards", set_up_backwards } };
  SRunner *runner;
  int failed;

  for (guint i = 0; i < G_N_ELEMENTS (orders); i++)
    {
      TCase *tcase = tcase_create (orders[i].name);

      tcase_add_checked_fixture (tcase, orders[i].setup, NULL);
      tcase_add_test (tcase, fake_runs_barriers_and_shuffles);
      tcase_add_test (tcase, fake_adds_atomically);
      tcase_add_test (tcase, fake_shows_a_missing_barrier);
      tcase_add_loop_test (tcase, fake_reports_mistakes, 0, G_N_ELEMENTS (mistakes));
      tcase_add_loop_test (tcase, fake_finds_races, 0, G_N_ELEMENTS (races));
      tcase_add_test (tcase, fake_sees_writes_beyond_the_end);
      tcase_add_test (tcase, fake_sees_reads_beyond_the_end_of_structs);
      tcase_add_test (tcase, fake_sees_long_copies);
      tcase_add_test (tcase, fake_sees_freed_memory);
      tcase_add_test (tcase, fake_sees_host_memory);
#ifndef __clang__
      tcase_add_test (tcase, fake_sees_wide_accesses_that_are_not_aligned);
#endif
      suite_add_tcase (suite, tcase);
    }
  runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
