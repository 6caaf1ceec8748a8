/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/number/number.h"
#include "exec/walk/links.h"
#include "planner/base/error.h"
#include "tests/unit/test-comm-ranks.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static gpointer
thread_call_all (gpointer data)
{
  Rank *self = data;

  for (guint round = 0; round < ROUNDS; round++)
    if (!rank_call_all (self))
      break;
  self->comm->ops->close (self->comm);
  return NULL;
}

START_TEST (comm_threads_equal_naive)
{
  static const guint64 counts[] = { 0, 1, 3, 7, 255, 257, 1001 };
  guint n = 1 + (guint)_i % MAX_RANKS;
  PlanDtype dtype = _i / MAX_RANKS % 2 ? PLAN_DTYPE_BF16 : PLAN_DTYPE_FP32;
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);

  for (guint c = 0; c < G_N_ELEMENTS (counts); c++)
    {
      ExecComm *comms[MAX_RANKS];
      Rank ranks[MAX_RANKS];

      ck_assert (exec_comm_threads_open (n, comms, NULL));
      for (guint i = 0; i < n; i++)
        rank_init (&ranks[i], rand, comms[i], dtype, counts[c], FALSE);
      run_ranks (thread_call_all, ranks, n);
      check_ranks (ranks, n);
      for (guint i = 0; i < n; i++)
        rank_clear (&ranks[i]);
    }
}
END_TEST

/* Collectives in this rank's group of a split, with a barrier of all ranks after each round. The
 * split follows from the count. */
static gpointer
thread_call_in_group (gpointer data)
{
  Rank *self = data;
  ExecComm *all = self->comm;
  const guint split = self->count % N_SPLITS;

  for (guint round = 0; round < ROUNDS; round++)
    {
      self->comm
          = exec_comm_group (all, "some", splits[split].size, splits[split].stride, &self->error);
      if (!self->comm || !rank_call_all (self) || !all->ops->barrier (all, &self->error))
        break;
    }
  return NULL;
}

START_TEST (comm_groups_equal_naive)
{
  const guint n = 8;
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  ExecComm *comms[MAX_RANKS];
  Rank ranks[MAX_RANKS];

  ck_assert (exec_comm_threads_open (n, comms, NULL));
  for (guint i = 0; i < n; i++)
    {
      rank_init (&ranks[i], rand, comms[i], PLAN_DTYPE_BF16, 5 * 20 + (guint64)_i, FALSE);
      ranks[i].comm = comms[i];
    }
  run_ranks (thread_call_in_group, ranks, n);
  check_groups (ranks, n, (guint)_i);
  for (guint i = 0; i < n; i++)
    {
      comms[i]->ops->close (comms[i]);
      rank_clear (&ranks[i]);
    }
}
END_TEST

/* Ranks 0 to 2 wait in their pairs, rank 2 for rank 3, which aborts: the groups of all of them
 * fail, with its reason. */
static gpointer
thread_abort_beside_groups (gpointer data)
{
  Rank *self = data;
  ExecComm *all = self->comm, *pair = exec_comm_group (all, "pair", 2, 1, &self->error);

  if (all->rank == 3)
    all->ops->abort (all, "out of luck");
  else
    while (pair->ops->barrier (pair, &self->error))
      ;
  return NULL;
}

START_TEST (comm_abort_wakes_groups)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (5);
  g_autoptr (GError) error = NULL;
  ExecComm *comms[4];
  Rank ranks[4];

  ck_assert (exec_comm_threads_open (4, comms, NULL));
  for (guint i = 0; i < 4; i++)
    rank_init (&ranks[i], rand, comms[i], PLAN_DTYPE_FP32, 1, FALSE);
  run_ranks (thread_abort_beside_groups, ranks, 4);
  for (guint i = 0; i < 3; i++)
    ck_assert_str_eq (ranks[i].error->message, "rank 3 failed: out of luck");
  ck_assert (exec_comm_group (comms[0], "all", 4, 1, &error) == comms[0]);
  ck_assert (exec_comm_group (comms[0], "all", 4, 1, &error) == comms[0]);
  ck_assert (!exec_comm_group (comms[0], "three", 3, 1, &error));
  ck_assert_str_eq (error->message, "4 ranks cannot be split into groups of 3 that are 1 apart");
  for (guint i = 0; i < 4; i++)
    {
      comms[i]->ops->close (comms[i]);
      rank_clear (&ranks[i]);
    }
}
END_TEST

START_TEST (comm_self_copies)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (3);
  Rank rank;

  rank_init (&rank, rand, exec_comm_self_open (), PLAN_DTYPE_BF16, 77, FALSE);
  ck_assert (rank_call_all (&rank));
  check_ranks (&rank, 1);
  rank.comm->ops->abort (rank.comm, "no reason");
  ck_assert (!rank_call_all (&rank));
  ck_assert_str_eq (rank.error->message, "rank 0 failed: no reason");
  rank.comm->ops->close (rank.comm);
  rank_clear (&rank);
}
END_TEST

/* all_reduce of counts that the ranks do not divide. */
static gpointer
thread_all_reduce (gpointer data)
{
  Rank *self = data;

  memcpy (self->reduced, self->in, rank_bytes (self, self->count));
  self->comm->ops->all_reduce (self->comm, self->reduced, self->count, self->dtype, NULL,
                               &self->error);
  self->comm->ops->close (self->comm);
  return NULL;
}

/* A NaN is the largest of all, whichever rank has it; numbers may be less than 0. */
START_TEST (comm_max_keeps_nan)
{
  const float a[] = { 1, NAN, 0, 5, INFINITY, -3 }, b[] = { 2, 3, NAN, 4, NAN, -2 };
  const void *const in[] = { a, b };
  float out[6];

  exec_comm_max (out, in, 2, 6, PLAN_DTYPE_FP32);
  ck_assert_float_eq (out[0], 2);
  ck_assert_float_eq (out[3], 5);
  ck_assert_float_eq (out[5], -2);
  ck_assert (isnan (out[1]) && isnan (out[2]) && isnan (out[4]));
}
END_TEST

START_TEST (comm_all_reduce_odd_counts)
{
  guint n = 1 + (guint)_i % MAX_RANKS;
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);

  for (guint64 count = 0; count < 20; count++)
    {
      ExecComm *comms[MAX_RANKS];
      Rank ranks[MAX_RANKS];

      ck_assert (exec_comm_threads_open (n, comms, NULL));
      for (guint i = 0; i < n; i++)
        rank_init (&ranks[i], rand, comms[i], PLAN_DTYPE_BF16, count, FALSE);
      run_ranks (thread_all_reduce, ranks, n);
      for (guint rank = 0; rank < n; rank++)
        {
          ck_assert_ptr_null (ranks[rank].error);
          for (guint64 i = 0; i < count; i++)
            {
              guint16 sum;

              slow_sum (ranks, n, i, &sum);
              ck_assert_mem_eq (ranks[rank].reduced + 2 * i, &sum, sizeof sum);
            }
        }
      for (guint i = 0; i < n; i++)
        rank_clear (&ranks[i]);
    }
}
END_TEST

/* The last rank aborts while or before the others wait for it. */
static gpointer
thread_abort_last (gpointer data)
{
  Rank *self = data;
  ExecComm *comm = self->comm;

  if (comm->rank + 1 == comm->ranks)
    comm->ops->abort (comm, "out of luck");
  else if (!rank_call_all (self))
    {
      g_clear_error (&self->error);
      comm->ops->barrier (comm, &self->error);
    }
  return NULL;
}

/* A ring of ranks, each with one communicator for the next rank and another one for the previous
 * rank. What a rank sends by its "next" the other one receives by its "prev"; even ranks send
 * first. */
static gpointer
thread_ring (gpointer data)
{
  Rank *self = data;
  ExecComm *comm = self->comm;
  const guint n = comm->ranks;
  char next_name[] = "next", prev_name[] = "prev";
  const PlanGroup groups[] = { { .name = next_name, .size = n, .stride = 1 },
                               { .name = prev_name, .size = n, .stride = 1 } };
  ExecComm *next = exec_links_find (comm, &groups[0], &self->error);
  ExecComm *prev = next ? exec_links_find (comm, &groups[1], &self->error) : NULL;

  if (prev && prev == next)
    self->error = g_error_new_literal (PLAN_ERROR, PLAN_ERROR_CORRUPT, "links share");
  for (guint i = 0; i < 2 && prev && !self->error; i++)
    if (comm->rank % 2 == i)
      next->ops->trade (next, NULL, self->in, self->count, self->dtype, (comm->rank + 1) % n, NULL,
                        &self->error);
    else
      prev->ops->trade (prev, self->gathered, NULL, self->count, self->dtype,
                        (comm->rank + n - 1) % n, NULL, &self->error);
  return NULL;
}

START_TEST (comm_links_of_a_ring_are_two)
{
  const guint n = 3 + (guint)_i;
  g_autoptr (GRand) rand = g_rand_new_with_seed (5);
  ExecComm *comms[MAX_RANKS];
  Rank ranks[MAX_RANKS];

  ck_assert (exec_comm_threads_open (n, comms, NULL));
  for (guint i = 0; i < n; i++)
    rank_init (&ranks[i], rand, comms[i], PLAN_DTYPE_FP32, 9, FALSE);
  run_ranks (thread_ring, ranks, n);
  for (guint i = 0; i < n; i++)
    {
      ck_assert_msg (!ranks[i].error, "%s", ranks[i].error ? ranks[i].error->message : "");
      ck_assert_mem_eq (ranks[i].gathered, ranks[(i + n - 1) % n].in, 9 * sizeof (float));
    }
  for (guint i = 0; i < n; i++)
    {
      comms[i]->ops->close (comms[i]);
      rank_clear (&ranks[i]);
    }
}
END_TEST

/* Of three ranks the last one fails while the first two trade with it: one waits to receive, the
 * other one for its send to be received. */
static gpointer
thread_trade_in_vain (gpointer data)
{
  Rank *self = data;
  ExecComm *comm = self->comm;

  if (comm->rank == 2)
    comm->ops->abort (comm, "out of luck");
  else
    comm->ops->trade (comm, comm->rank == 0 ? self->gathered : NULL,
                      comm->rank == 1 ? self->in : NULL, self->count, self->dtype, 2, NULL,
                      &self->error);
  return NULL;
}

/* Rank 1 sends two elements, of which rank 0 receives one. */
static gpointer
thread_trade_unlike_counts (gpointer data)
{
  Rank *self = data;
  ExecComm *comm = self->comm;

  comm->ops->trade (comm, comm->rank == 0 ? self->gathered : NULL,
                    comm->rank == 1 ? self->in : NULL, comm->rank + 1, self->dtype, 1 - comm->rank,
                    NULL, &self->error);
  return NULL;
}

START_TEST (comm_trades_fail_together)
{
  static const GThreadFunc functions[] = { thread_trade_in_vain, thread_trade_unlike_counts };
  static const char *const reasons[]
      = { "out of luck", "sends something else than this one takes" };
  const guint n = _i == 0 ? 3 : 2;
  g_autoptr (GRand) rand = g_rand_new_with_seed (5);
  ExecComm *comms[MAX_RANKS];
  Rank ranks[MAX_RANKS];

  ck_assert (exec_comm_threads_open (n, comms, NULL));
  for (guint i = 0; i < n; i++)
    rank_init (&ranks[i], rand, comms[i], PLAN_DTYPE_FP32, 9, FALSE);
  run_ranks (functions[_i], ranks, n);
  for (guint i = 0; i < n; i++)
    {
      if (i < 2)
        ck_assert (ranks[i].error && strstr (ranks[i].error->message, reasons[_i]));
      comms[i]->ops->close (comms[i]);
      rank_clear (&ranks[i]);
    }
}
END_TEST

START_TEST (comm_abort_wakes_the_others)
{
  guint n = 2 + (guint)_i % (MAX_RANKS - 1);
  g_autoptr (GRand) rand = g_rand_new_with_seed (5);
  g_autofree char *reason = g_strdup_printf ("rank %u failed: out of luck", n - 1);
  ExecComm *comms[MAX_RANKS];
  Rank ranks[MAX_RANKS];

  ck_assert (exec_comm_threads_open (n, comms, NULL));
  for (guint i = 0; i < n; i++)
    rank_init (&ranks[i], rand, comms[i], PLAN_DTYPE_FP32, 9, FALSE);
  run_ranks (thread_abort_last, ranks, n);
  for (guint i = 0; i + 1 < n; i++)
    {
      ck_assert (g_error_matches (ranks[i].error, PLAN_ERROR, PLAN_ERROR_BACKEND));
      ck_assert_str_eq (ranks[i].error->message, reason);
    }
  for (guint i = 0; i < n; i++)
    {
      comms[i]->ops->close (comms[i]);
      rank_clear (&ranks[i]);
    }
}
END_TEST

/* Rank 0 is done before the others are. */
static gpointer
thread_close_first (gpointer data)
{
  Rank *self = data;
  ExecComm *comm = self->comm;

  if (comm->rank > 0)
    comm->ops->barrier (comm, &self->error);
  comm->ops->close (comm);
  return NULL;
}

/* Rank 0 calls something else than the others. */
static gpointer
thread_disagree (gpointer data)
{
  Rank *self = data;
  ExecComm *comm = self->comm;

  if (comm->rank > 0)
    comm->ops->all_reduce (comm, self->reduced, self->count, self->dtype, NULL, &self->error);
  else
    comm->ops->barrier (comm, &self->error);
  return NULL;
}

START_TEST (comm_errors_name_a_rank)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (5);
  ExecComm *comms[3];
  Rank ranks[3];

  ck_assert (exec_comm_threads_open (3, comms, NULL));
  for (guint i = 0; i < 3; i++)
    rank_init (&ranks[i], rand, comms[i], PLAN_DTYPE_FP32, 1, FALSE);
  run_ranks (thread_close_first, ranks, 3);
  ck_assert_ptr_null (ranks[0].error);
  for (guint i = 1; i < 3; i++)
    ck_assert_ptr_nonnull (ranks[i].error);
  for (guint i = 0; i < 3; i++)
    rank_clear (&ranks[i]);

  ck_assert (exec_comm_threads_open (3, comms, NULL));
  for (guint i = 0; i < 3; i++)
    rank_init (&ranks[i], rand, comms[i], PLAN_DTYPE_FP32, 1, FALSE);
  run_ranks (thread_disagree, ranks, 3);
  for (guint i = 0; i < 3; i++)
    {
      ck_assert_ptr_nonnull (ranks[i].error);
      ck_assert_ptr_nonnull (strstr (ranks[i].error->message, "do not call the same collective"));
      comms[i]->ops->close (comms[i]);
      rank_clear (&ranks[i]);
    }
}
END_TEST

START_TEST (comm_no_rank_is_an_error)
{
  g_autoptr (GError) error = NULL;

  ck_assert (!exec_comm_threads_open (0, NULL, &error));
  ck_assert (g_error_matches (error, PLAN_ERROR, PLAN_ERROR_INVALID));
}
END_TEST

/* fp32 inside, one rounding at the end. */
START_TEST (comm_sum_rounds_once)
{
  float one = 1, little = 0x1p-9f;
  guint16 in[3], out;
  const void *terms[] = { &in[0], &in[1], &in[2] };

  exec_number_narrow (&in[0], PLAN_DTYPE_BF16, &one, 1);
  exec_number_narrow (&in[1], PLAN_DTYPE_BF16, &little, 1);
  exec_number_narrow (&in[2], PLAN_DTYPE_BF16, &little, 1);
  little *= 1.5f;
  exec_number_narrow (&in[2], PLAN_DTYPE_BF16, &little, 1);
  exec_comm_sum (&out, terms, 3, 1, PLAN_DTYPE_BF16);
  ck_assert_float_eq (exec_number_from_bf16 (out), 1 + 0x1p-7f);
  exec_comm_sum (&in[0], terms, 3, 1, PLAN_DTYPE_BF16); /* into one of the terms */
  ck_assert_uint_eq (in[0], out);
}
END_TEST

START_TEST (comm_knows_launchers)
{
  static const char *const names[]
      = { "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS" };

  for (guint i = 0; i < G_N_ELEMENTS (names); i++)
    g_unsetenv (names[i]);
  ck_assert (!exec_comm_mpi_is_launched ());
  g_setenv ("OMPI_COMM_WORLD_SIZE", "1", TRUE);
  ck_assert (!exec_comm_mpi_is_launched ());
  g_setenv ("OMPI_COMM_WORLD_SIZE", "2", TRUE);
  ck_assert (exec_comm_mpi_is_launched ());
  g_unsetenv ("OMPI_COMM_WORLD_SIZE");
  g_setenv ("SLURM_NTASKS", "4", TRUE); /* an allocation alone starts nothing */
  ck_assert (!exec_comm_mpi_is_launched ());
  g_setenv ("PMIX_RANK", "0", TRUE);
  ck_assert (exec_comm_mpi_is_launched ());
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("comm");
  TCase *tcase = tcase_create ("comm");
  SRunner *runner;
  int failed;

  tcase_set_timeout (tcase, 60);
  tcase_add_loop_test (tcase, comm_threads_equal_naive, 0, 2 * MAX_RANKS);
  tcase_add_test (tcase, comm_max_keeps_nan);
  tcase_add_loop_test (tcase, comm_all_reduce_odd_counts, 0, MAX_RANKS);
  tcase_add_test (tcase, comm_self_copies);
  tcase_add_loop_test (tcase, comm_groups_equal_naive, 0, N_SPLITS);
  tcase_add_test (tcase, comm_abort_wakes_groups);
  tcase_add_loop_test (tcase, comm_abort_wakes_the_others, 0, 3 * (MAX_RANKS - 1));
  tcase_add_loop_test (tcase, comm_links_of_a_ring_are_two, 0, MAX_RANKS - 2);
  tcase_add_loop_test (tcase, comm_trades_fail_together, 0, 2);
  tcase_add_test (tcase, comm_errors_name_a_rank);
  tcase_add_test (tcase, comm_no_rank_is_an_error);
  tcase_add_test (tcase, comm_sum_rounds_once);
  tcase_add_test (tcase, comm_knows_launchers);
  suite_add_tcase (suite, tcase);
  runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
