/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/fake/nccl-meeting.h"

#include "exec/nccl/comm-nccl-private.h"
#include "planner/base/error.h"
#include "tests/fake/cuda-fake.h"
#include "tests/fake/nccl-fake.h"
#include "tests/fake/nccl-ranks.h"

#include <string.h>

#define LONG_S 120
#define SHORT_S 3 /* the deadline; a rank may wait for a CPU that long */

static void
begin (guint devices)
{
  fake_cuda_reset ();
  fake_cuda_set_machine (devices, G_GUINT64_CONSTANT (1) << 30, 9, 0);
  fake_nccl_reset ();
  nccl_options = (ExecNcclOptions){ .timeout_s = LONG_S };
  nccl_gpu_step = 1;
  nccl_begin_rank = NULL;
}

static void
finish (void)
{
  ck_assert_str_eq (fake_cuda_finish (), "");
}

/* Meets again and again by small collectives in host memory, as a run does between steps. */
static gpointer
meet_on (gpointer data)
{
  Rank *self = data;
  ExecComm *comm = self->comm;
  g_autofree guint32 *all = g_new0 (guint32, comm->ranks);
  float flag = 0, one = 1;
  gboolean ok = TRUE;

  if (comm->rank == 2)
    comm->timeout_s = SHORT_S;
  for (guint i = 0; ok && i < 10; i++)
    ok = comm->ops->barrier (comm, &self->error)
         && comm->ops->all_reduce_max (comm, &flag, 1, PLAN_DTYPE_FP32, NULL, &self->error)
         && comm->ops->all_gather (comm, all, &all[comm->rank], 1, PLAN_DTYPE_I32, NULL,
                                   &self->error)
         && comm->ops->all_reduce (comm, &one, 1, PLAN_DTYPE_FP32, NULL, &self->error);
  return NULL;
}

/* Between two steps a rank's thread does not block inside the driver: it gets another rank's
 * failure long before the deadline, whichever of the collectives that rank is lost in. */
START_TEST (nccl_host_is_never_kept_by_the_driver)
{
  Rank ranks[4];

  begin (4);
  init_ranks (ranks, 4, 1, PLAN_DTYPE_FP32, 5, TRUE);
  fake_nccl_lose (2, 5 + (guint)_i, FAKE_NCCL_STALLS);
  run_on_nccl (meet_on, ranks, 4);
  for (guint i = 0; i < 4; i++)
    {
      ck_assert_ptr_nonnull (ranks[i].error);
      ck_assert_msg (
          g_str_has_prefix (ranks[i].error->message, i == 2 ? "rank 2: " : "rank 2 failed: ")
              && strstr (ranks[i].error->message, "of the host's memory")
              && strstr (ranks[i].error->message, "has not ended after 3 s"),
          "%s", ranks[i].error->message);
    }
  clear_ranks (ranks, 4);
  finish ();
}
END_TEST

/* --- a launcher that says all in the environment ------------------------------------------ */

static char *meeting;
static gboolean is_nccls;

static gpointer
run_launched (gpointer data)
{
  Rank *self = data;
  const ExecLaunch launch = {
    .rank = self->comm->rank, .ranks = self->comm->ranks, .meeting = meeting, .is_nccls = is_nccls
  };
  ExecNcclOptions own = nccl_options;

  own.local_rank = launch.rank;
  self->comm = exec_comm_nccl_open_launched (&launch, &own, &self->error);
  if (self->comm == NULL)
    return NULL;
  for (guint round = 0; round < ROUNDS && rank_call_all (self);)
    round++;
  if (self->error != NULL)
    self->comm->ops->abort (self->comm, self->error->message);
  self->comm->ops->close (self->comm);
  return NULL;
}

static void
launch_three (Rank *ranks)
{
  ExecComm places[3];

  init_ranks (ranks, 3, 1, PLAN_DTYPE_BF16, 33, FALSE);
  for (guint i = 0; i < 3; i++)
    {
      places[i] = (ExecComm){ .rank = i, .ranks = 3 };
      ranks[i].comm = &places[i];
    }
  run_ranks (run_launched, ranks, 3);
}

START_TEST (nccl_launched_ranks_meet)
{
  Rank ranks[3];

  begin (3);
  is_nccls = _i == 1;
  meeting = is_nccls ? g_strdup ("127.0.0.1:29501") : test_free_meeting ();
  if (is_nccls)
    g_setenv ("NCCL_COMM_ID", meeting, TRUE);
  launch_three (ranks);
  g_unsetenv ("NCCL_COMM_ID");
  g_clear_pointer (&meeting, g_free);
  check_ranks (ranks, 3);
  clear_ranks (ranks, 3);
  finish ();
}
END_TEST

static const struct
{
  guint rank, calls; /* the NCCL calls that the rank makes before it dies */
  const char *call, *missing;
} deaths[] = {
  { 2, 0, "ncclCommInitRankConfig", "" },
  { 0, 1, "ncclAllGather", ", by which ranks find each other," },
};

/* A process dies while communicators are made, or before its first collective, when it loads
 * weights: the others end by their deadline, and each names it. */
START_TEST (nccl_dead_rank_is_named)
{
  g_autofree char *expected
      = g_strdup_printf ("no sign of rank %u on %s%s within 3 s", deaths[_i].rank,
                         g_get_host_name (), deaths[_i].missing);
  Rank ranks[3];

  begin (3);
  is_nccls = FALSE;
  meeting = test_free_meeting ();
  nccl_options.timeout_s = SHORT_S;
  fake_nccl_lose (deaths[_i].rank, deaths[_i].calls, FAKE_NCCL_DIES);
  launch_three (ranks);
  g_clear_pointer (&meeting, g_free);
  for (guint i = 0; i < 3; i++)
    {
      g_autofree char *own = g_strdup_printf ("rank %u: %s among 3 ranks", i, deaths[_i].call);

      ck_assert_ptr_nonnull (ranks[i].error);
      ck_assert_msg (
          g_str_has_prefix (ranks[i].error->message, own)
              && (i == deaths[_i].rank || g_str_has_suffix (ranks[i].error->message, expected)),
          "%s", ranks[i].error->message);
    }
  clear_ranks (ranks, 3);
  finish ();
}
END_TEST

/* --- by MPI ------------------------------------------------------------------------------- */

static ExecCommOps rolling;

static gboolean
call_roll (ExecComm *self, GError **error)
{
  g_set_error_literal (error, PLAN_ERROR, PLAN_ERROR_BACKEND, "no sign of rank 2 on b");
  return FALSE;
}

static gpointer
meet_by_roll (gpointer data)
{
  ExecComm *carrier = ((NcclComm *)((Rank *)data)->comm)->world->carrier;

  carrier->ops = &rolling;
  return meet_on (data);
}

/* Which rank is missing is asked of the communicator that carries NCCL's start, if that knows. */
START_TEST (nccl_carrier_calls_the_roll)
{
  ExecComm *any;
  Rank ranks[3];

  ck_assert (exec_comm_threads_open (1, &any, NULL));
  rolling = *any->ops;
  rolling.roll = call_roll;
  any->ops->close (any);
  begin (3);
  init_ranks (ranks, 3, 1, PLAN_DTYPE_FP32, 5, TRUE);
  fake_nccl_lose (2, 5, FAKE_NCCL_SILENT);
  run_on_nccl (meet_by_roll, ranks, 3);
  ck_assert_ptr_nonnull (ranks[2].error);
  ck_assert_msg (
      g_str_has_suffix (ranks[2].error->message, "has not ended after 3 s: no sign of rank 2 on b"),
      "%s", ranks[2].error->message);
  clear_ranks (ranks, 3);
  finish ();
}
END_TEST

/* Issues far more operations than a stream takes behind a gather that never ends, as many micro
 * batches do. */
static gpointer
issue_on (gpointer data)
{
  Rank *self = data;
  ExecComm *comm = self->comm;
  Arrays arrays;
  cudaStream_t stream = NULL;
  void *memory = take_arrays (self, &arrays);

  rank_prepare (self);
  comm->node = 12;
  if (memory != NULL
      && check_cuda (self, cudaStreamCreateWithFlags (&stream, cudaStreamNonBlocking))
      && copy_arrays (self, &arrays, TRUE, stream)
      && comm->ops->all_gather (comm, arrays.gathered, arrays.in, self->count, self->dtype, stream,
                                &self->error))
    for (guint i = 0; i < 3000 && self->error == NULL; i++)
      check_cuda (self, cudaMemsetAsync (arrays.reduced, 0, 4, stream));
  if (self->error == NULL)
    comm->ops->check (comm, &self->error);
  cudaStreamSynchronize (stream);
  cudaStreamDestroy (stream);
  if (memory != NULL)
    comm->ops->give_back (comm, memory);
  return NULL;
}

START_TEST (nccl_rank_in_the_driver_is_watched)
{
  Rank ranks[4];

  begin (4);
  nccl_options.timeout_s = SHORT_S;
  init_ranks (ranks, 4, 1, PLAN_DTYPE_FP32, 5, TRUE);
  fake_nccl_lose (2, 1, FAKE_NCCL_STALLS);
  run_on_nccl (issue_on, ranks, 4);
  for (guint i = 0; i < 4; i++)
    ck_assert_msg (ranks[i].error != NULL
                       && strstr (ranks[i].error->message,
                                  "all_gather (op 12, unit 0) among 4 ranks has not ended after"),
                   "rank %u: %s", i, ranks[i].error != NULL ? ranks[i].error->message : "");
  clear_ranks (ranks, 4);
  finish ();
}
END_TEST

/* Makes registered memory, or a group, that not all ranks make. */
static gpointer
make_in_vain (gpointer data)
{
  Rank *self = data;
  ExecComm *comm = self->comm;

  if (nccl_options.is_registered)
    ck_assert_ptr_null (comm->ops->take (comm, 64, &self->error));
  else
    ck_assert_ptr_null (exec_comm_group (comm, "inner", 2, 1, &self->error));
  ck_assert_uint_eq (fake_nccl_owed (), 0);
  return NULL;
}

START_TEST (nccl_writes_nothing_after_a_failure)
{
  Rank ranks[4];

  begin (4);
  nccl_options.timeout_s = SHORT_S;
  nccl_options.is_registered = _i == 1;
  init_ranks (ranks, 4, 1, PLAN_DTYPE_FP32, 5, TRUE);
  fake_nccl_lose (2, _i == 1 ? 2 : 1, FAKE_NCCL_SILENT);
  run_on_nccl (make_in_vain, ranks, 4);
  for (guint i = 0; i < 4; i++)
    ck_assert (ranks[i].error != NULL && strstr (ranks[i].error->message, "a rank is lost"));
  clear_ranks (ranks, 4);
  finish ();
}
END_TEST

void
nccl_add_meeting_tests (TCase *tcase)
{
  tcase_add_loop_test (tcase, nccl_host_is_never_kept_by_the_driver, 0, 2);
  tcase_add_loop_test (tcase, nccl_launched_ranks_meet, 0, 2);
  tcase_add_loop_test (tcase, nccl_dead_rank_is_named, 0, G_N_ELEMENTS (deaths));
  tcase_add_test (tcase, nccl_carrier_calls_the_roll);
  tcase_add_test (tcase, nccl_rank_in_the_driver_is_watched);
  tcase_add_loop_test (tcase, nccl_writes_nothing_after_a_failure, 0, 2);
}
