/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/fake/nccl-meeting.h"

#include "tests/fake/cuda-fake.h"
#include "tests/fake/nccl-fake.h"
#include "tests/fake/nccl-ranks.h"

#include <string.h>

#define LONG_S 120
#define SHORT_S 3 /* a rank may wait for a processor that long */

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

/* Meets again and again by what is small and of the host, as a run does between steps. */
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

/* Between two steps a rank's thread is not inside the driver: what another rank says is heard long
 * before the deadline, whichever of the collectives that one is lost in. */
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
  self->comm->ops->close (self->comm);
  return NULL;
}

START_TEST (nccl_launched_ranks_meet)
{
  ExecComm places[3];
  Rank ranks[3];

  begin (3);
  init_ranks (ranks, 3, 1, PLAN_DTYPE_BF16, 33, FALSE);
  for (guint i = 0; i < 3; i++)
    {
      places[i] = (ExecComm){ .rank = i, .ranks = 3 };
      ranks[i].comm = &places[i];
    }
  is_nccls = _i == 1;
  meeting = is_nccls ? g_strdup ("127.0.0.1:29501") : test_free_meeting ();
  if (is_nccls)
    g_setenv ("NCCL_COMM_ID", meeting, TRUE);
  run_ranks (run_launched, ranks, 3);
  g_unsetenv ("NCCL_COMM_ID");
  g_clear_pointer (&meeting, g_free);
  check_ranks (ranks, 3);
  clear_ranks (ranks, 3);
  finish ();
}
END_TEST

void
nccl_add_meeting_tests (TCase *tcase)
{
  tcase_add_loop_test (tcase, nccl_host_is_never_kept_by_the_driver, 0, 2);
  tcase_add_loop_test (tcase, nccl_launched_ranks_meet, 0, 2);
}
