/* SPDX-License-Identifier: Apache-2.0 */
/* The NCCL backend, on a fake NCCL and fake GPUs: ranks are threads with a device each, which find
 * each other through the communicator of threads. */
#include "config.h"

#include "exec/nccl/comm-nccl-private.h"
#include "exec/number/number.h"
#include "planner/base/error.h"
#include "tests/fake/cuda-fake.h"
#include "tests/fake/nccl-fake.h"
#include "tests/fake/nccl-meeting.h"
#include "tests/fake/nccl-ranks.h"
#include "tests/share.h"

#include <check.h>
#include <cuda_runtime_api.h>
#include <math.h>
#include <nccl.h>
#include <stdlib.h>
#include <string.h>

#define DEVICE_BYTES (G_GUINT64_CONSTANT (1) << 30)
#define LONG_S 120
#define SHORT_S 3 /* the deadline where a rank is lost; longer than a rank waits for a CPU */

static gboolean leaves_early; /* of leave_group */

static void
begin (guint devices)
{
  fake_cuda_reset ();
  fake_cuda_set_machine (devices, DEVICE_BYTES, 9, 0);
  fake_nccl_reset ();
  nccl_options = (ExecNcclOptions){ .timeout_s = LONG_S };
  nccl_gpu_step = 1;
  nccl_begin_rank = NULL;
}

/* Checks that nothing is left on the fake devices, and that nothing was used out of order. */
static void
finish (void)
{
  ck_assert_str_eq (fake_cuda_finish (), "");
}

static void
check_no_error (const Rank *ranks, guint n)
{
  for (guint i = 0; i < n; i++)
    ck_assert_msg (ranks[i].error == NULL, "rank %u: %s", i,
                   ranks[i].error != NULL ? ranks[i].error->message : "");
}

/* --- the host's memory -------------------------------------------------------------------- */

static gpointer
call_on_host (gpointer data)
{
  Rank *self = data;

  for (guint round = 0; round < ROUNDS; round++)
    if (!rank_call_all (self))
      break;
  return NULL;
}

START_TEST (nccl_host_memory_equals_naive)
{
  static const guint64 counts[] = { 0, 1, 7, 257, 13200 };
  const guint n
      = 1 + (guint)(_i + 4) % MAX_RANKS; /* the first case, of which every share is, has 5 */
  const PlanDtype dtype = _i / MAX_RANKS ? PLAN_DTYPE_BF16 : PLAN_DTYPE_FP32;

  /* The last count is for 5 ranks alone: their parts of the stage that host memory goes through
   * have no room for it, so that it passes in two pieces. */
  for (guint c = 0; c < (n == 5 ? 5 : 4); c++)
    {
      Rank ranks[MAX_RANKS];

      begin (n);
      init_ranks (ranks, n, (guint32)_i, dtype, counts[c], FALSE);
      run_on_nccl (call_on_host, ranks, n);
      check_ranks (ranks, n);
      clear_ranks (ranks, n);
      finish ();
    }
}
END_TEST

/* --- the device's memory ------------------------------------------------------------------ */

static gpointer
call_on_own_device (gpointer data)
{
  Rank *self = data;

  call_on_device (self, self->comm);
  return NULL;
}

START_TEST (nccl_device_memory_equals_naive)
{
  static const guint64 counts[] = { 0, 1, 3, 7, 255, 257 };
  const guint n = 1 + (guint)_i % MAX_RANKS;
  const PlanDtype dtype = _i / MAX_RANKS ? PLAN_DTYPE_BF16 : PLAN_DTYPE_FP32;

  for (guint c = 0; c < G_N_ELEMENTS (counts); c++)
    {
      Rank ranks[MAX_RANKS];

      begin (n);
      nccl_options.is_registered = c % 2 == 0;
      nccl_options.spares_sms = c % 4 == 0;
      init_ranks (ranks, n, (guint32)_i, dtype, counts[c], TRUE);
      run_on_nccl (call_on_own_device, ranks, n);
      check_ranks (ranks, n);
      ck_assert_uint_eq (fake_nccl_symmetric (), nccl_options.is_registered ? 6 : 0);
      ck_assert_uint_eq (fake_nccl_by_copy_engine (), nccl_options.spares_sms ? 2 : 0);
      clear_ranks (ranks, n);
      finish ();
    }
}
END_TEST

/* Finds the largest of the ranks' numbers twice: in the host's memory, and on a stream. */
static gpointer
find_largest (gpointer data)
{
  Rank *self = data;
  ExecComm *comm = self->comm;
  const guint64 bytes = rank_bytes (self, self->count);
  cudaStream_t stream = NULL;
  Arrays arrays;
  void *memory = take_arrays (self, &arrays);

  memcpy (self->reduced, self->in, bytes);
  if (memory != NULL
      && check_cuda (self, cudaStreamCreateWithFlags (&stream, cudaStreamNonBlocking))
      && comm->ops->all_reduce_max (comm, self->reduced, self->count, self->dtype, NULL,
                                    &self->error)
      && check_cuda (
          self, cudaMemcpyAsync (arrays.largest, self->in, bytes, cudaMemcpyHostToDevice, stream))
      && comm->ops->all_reduce_max (comm, arrays.largest, self->count, self->dtype, stream,
                                    &self->error)
      && check_cuda (self, cudaMemcpyAsync (self->largest, arrays.largest, bytes,
                                            cudaMemcpyDeviceToHost, stream)))
    check_cuda (self, cudaStreamSynchronize (stream));
  cudaStreamDestroy (stream);
  comm->ops->give_back (comm, memory);
  return NULL;
}

/* Where one rank has a NaN, no rank finds a finite number, so that a weight that is NaN is not
 * hidden by the others. */
START_TEST (nccl_largest_hides_no_nan)
{
  const PlanDtype dtype = _i == 0 ? PLAN_DTYPE_FP32 : PLAN_DTYPE_BF16;
  const float values[3][6] = { { 1, NAN, 3, 0, -3, -1 },
                               { 2, 1, INFINITY, -1, -2, -NAN },
                               { -9, 7, NAN, -0.5f, -INFINITY, -2 } };
  Rank ranks[3];

  begin (3);
  init_ranks (ranks, 3, 1, dtype, 6, TRUE);
  for (guint i = 0; i < 3; i++)
    exec_number_narrow (ranks[i].in, dtype, values[i], 6);
  run_on_nccl (find_largest, ranks, 3);
  for (guint i = 0; i < 3; i++)
    for (guint on_stream = 0; on_stream < 2; on_stream++)
      {
        float found[6];

        ck_assert_msg (ranks[i].error == NULL, "%s", ranks[i].error ? ranks[i].error->message : "");
        exec_number_widen (found, on_stream ? ranks[i].largest : ranks[i].reduced, dtype, 6);
        ck_assert (found[0] == 2 && found[3] == 0 && found[4] == -2);
        ck_assert (!isfinite (found[1]) && !isfinite (found[2]) && !isfinite (found[5]));
      }
  clear_ranks (ranks, 3);
  finish ();
}
END_TEST

/* Checks that sums are no further from those in rank order than `bound` times the sum of
 * magnitudes, and counts those that are different. */
static void
compare_sums (const Rank *ranks, guint n, double bound, guint *different)
{
  const guint64 all = n * ranks->count, size = rank_bytes (ranks, 1);

  for (guint64 i = 0; i < all; i++)
    {
      guint8 bytes[8];
      float sum, term, made;
      double magnitude = 0;

      slow_sum (ranks, n, i, bytes);
      exec_number_widen (&sum, bytes, ranks->dtype, 1);
      exec_number_widen (&made, ranks->reduced + i * size, ranks->dtype, 1);
      for (guint rank = 0; rank < n; rank++)
        {
          exec_number_widen (&term, ranks[rank].in + i * size, ranks->dtype, 1);
          magnitude += fabs ((double)term);
        }
      *different += made != sum;
      ck_assert_msg (fabs ((double)made - (double)sum) <= bound * magnitude,
                     "element %" G_GUINT64_FORMAT ": %g is not %g, of %g", i, (double)made,
                     (double)sum, magnitude);
    }
}

START_TEST (nccl_sums_are_within_the_bound)
{
  static const PlanDtype dtypes[] = { PLAN_DTYPE_FP32, PLAN_DTYPE_BF16, PLAN_DTYPE_FP16 };
  const guint n = 1 + (guint)_i % MAX_RANKS;
  Rank ranks[MAX_RANKS];

  for (guint d = 0; d < G_N_ELEMENTS (dtypes); d++)
    for (guint is_symmetric = 0; is_symmetric < 2; is_symmetric++)
      {
        guint different = 0;

        begin (n);
        nccl_options.is_registered = is_symmetric;
        init_ranks (ranks, n, (guint32)_i, dtypes[d], 300,
                    dtypes[d] == PLAN_DTYPE_FP16); /* other sums of fp16 would overflow */
        run_on_nccl (call_on_own_device, ranks, n);
        check_no_error (ranks, n);
        compare_sums (ranks, n, exec_comm_nccl_sum_error (n, dtypes[d], is_symmetric), &different);
        /* Sums of more than two ranks depend on the order, so that there is something to bound. But
         * those of fp16 are exact here, and those in symmetric memory, rounded to bf16 once, may be
         * equal. */
        ck_assert_int_eq (different > 0,
                          n > 2 && dtypes[d] != PLAN_DTYPE_FP16
                              && !(is_symmetric && dtypes[d] == PLAN_DTYPE_BF16 && different == 0));
        clear_ranks (ranks, n);
        finish ();
      }
}
END_TEST

/* --- groups ------------------------------------------------------------------------------- */

static guint split; /* index of the split that ranks are in */

/* Calls all collectives in two groups of the same ranks, which must not share a communicator. */
static gpointer
call_in_groups (gpointer data)
{
  Rank *self = data;
  const struct TestSplit *shape = &splits[split];
  ExecComm *all = self->comm, *twin;
  ExecComm *group = exec_comm_group (all, "inner", shape->size, shape->stride, &self->error);

  if (group == NULL)
    return NULL;
  call_on_device (self, group);
  self->comm = all;
  twin = exec_comm_group (all, "gather", shape->size, shape->stride, &self->error);
  if (twin != NULL && twin != group && self->error == NULL)
    call_on_device (self, twin);
  else if (self->error == NULL)
    self->error = g_error_new_literal (PLAN_ERROR, PLAN_ERROR_CORRUPT, "groups share");
  if (self->error == NULL)
    all->ops->barrier (all, &self->error);
  self->comm = all;
  return NULL;
}

START_TEST (nccl_groups_equal_naive)
{
  const guint n = 8;
  Rank ranks[MAX_RANKS];

  begin (n);
  split = (guint)_i;
  nccl_options.is_registered = TRUE;
  init_ranks (ranks, n, (guint32)_i, PLAN_DTYPE_BF16, 100, TRUE);
  run_on_nccl (call_in_groups, ranks, n);
  check_no_error (ranks, n);
  for (guint i = 0; i < n; i++)
    {
      ranks[i].comm = g_new0 (ExecComm, 1);
      *ranks[i].comm
          = (ExecComm){ .rank = i / splits[_i].stride % splits[_i].size, .ranks = splits[_i].size };
    }
  check_groups (ranks, n, (guint)_i);
  for (guint i = 0; i < n; i++)
    g_free (ranks[i].comm);
  clear_ranks (ranks, n);
  finish ();
}
END_TEST

/* --- what goes wrong ---------------------------------------------------------------------- */

/* Rank 0 calls something else than the others, on the device. */
static gpointer
disagree (gpointer data)
{
  Rank *self = data;
  const ExecCommOps *ops = self->comm->ops;
  ExecComm *comm = self->comm;
  Arrays arrays;
  cudaStream_t stream = NULL;
  void *memory = take_arrays (self, &arrays);

  check_cuda (self, cudaStreamCreateWithFlags (&stream, cudaStreamNonBlocking));
  comm->node = 12;
  comm->unit = 3;
  rank_prepare (self);
  copy_arrays (self, &arrays, TRUE, stream);
  if (comm->rank == 0)
    ops->all_reduce (comm, arrays.reduced, self->count, self->dtype, stream, &self->error);
  else
    ops->all_gather (comm, arrays.gathered, arrays.in, self->count, self->dtype, stream,
                     &self->error);
  cudaStreamSynchronize (stream);
  cudaStreamDestroy (stream);
  ops->give_back (comm, memory);
  return NULL;
}

START_TEST (nccl_mismatch_names_both)
{
  Rank ranks[3];

  begin (3);
  init_ranks (ranks, 3, 1, PLAN_DTYPE_FP32, 5, TRUE);
  run_on_nccl (disagree, ranks, 3);
  for (guint i = 0; i < 3; i++)
    {
      ck_assert (g_error_matches (ranks[i].error, PLAN_ERROR, PLAN_ERROR_BACKEND));
      ck_assert_msg (strstr (ranks[i].error->message,
                             "rank 0 calls ncclAllReduce of 5 of type 7, operation 0, rank 1 calls "
                             "ncclAllGather of 20 of type 1"),
                     "%s", ranks[i].error->message);
    }
  clear_ranks (ranks, 3);
  finish ();
}
END_TEST

/* Gathers up to ten times, until something is wrong, and waits for the end of each as the device
 * backend does, asking for lost ranks meanwhile. */
static gpointer
gather_on (gpointer data)
{
  Rank *self = data;
  ExecComm *comm = self->comm;
  Arrays arrays;
  cudaStream_t stream = NULL;
  void *memory = take_arrays (self, &arrays);
  gboolean ok = memory != NULL
                && check_cuda (self, cudaStreamCreateWithFlags (&stream, cudaStreamNonBlocking));

  if (ok)
    rank_prepare (self);
  ok = ok && copy_arrays (self, &arrays, TRUE, stream);
  for (guint i = 0; ok && i < 10; i++)
    {
      comm->node = 12;
      comm->unit = (gint64)i;
      ok = comm->ops->all_gather (comm, arrays.gathered, arrays.in, self->count, self->dtype,
                                  stream, &self->error);
      while (ok && cudaStreamQuery (stream) == cudaErrorNotReady)
        ok = comm->ops->check (comm, &self->error);
    }
  if (stream != NULL)
    {
      cudaStreamSynchronize (stream);
      cudaStreamDestroy (stream);
    }
  if (memory != NULL)
    comm->ops->give_back (comm, memory);
  return NULL;
}

static const struct
{
  FakeNcclLoss how;
  const char *message;
} losses[] = {
  { FAKE_NCCL_SILENT, "all_gather (op 12, unit 6) among 4 ranks has not ended after 3 s: a rank "
                      "is lost, or late" },
  { FAKE_NCCL_STALLS, "all_gather (op 12, unit 6) among 4 ranks has not ended after 3 s: a rank "
                      "is lost, or late" },
  { FAKE_NCCL_CLOSES, "remote process exited or there was a network error" },
};

/* The rank is lost when it begins its seventh gather, which is unit 6: one call comes before them,
 * which makes the communicator. */
START_TEST (nccl_lost_rank_ends_the_others)
{
  Rank ranks[4];

  begin (4);
  nccl_options.timeout_s = SHORT_S;
  init_ranks (ranks, 4, 1, PLAN_DTYPE_FP32, 5, TRUE);
  fake_nccl_lose (2, 1 + 6, losses[_i].how);
  run_on_nccl (gather_on, ranks, 4);
  for (guint i = 0; i < 4; i++)
    if (i != 2)
      {
        ck_assert_ptr_nonnull (ranks[i].error);
        ck_assert_msg (g_str_has_prefix (ranks[i].error->message, "rank ")
                           && strstr (ranks[i].error->message, losses[_i].message) != NULL,
                       "%s", ranks[i].error->message);
      }
  clear_ranks (ranks, 4);
  finish ();
}
END_TEST

static gpointer
gather_on_beside_a_group (gpointer data)
{
  Rank *self = data;

  if (exec_comm_group (self->comm, "inner", 2, 1, &self->error) == NULL)
    return NULL;
  return gather_on (self);
}

/* The kernels of one communicator stand still, and an abort waits for all that the GPU does. So all
 * communicators are told to abort before the end of any is waited for. */
START_TEST (nccl_groups_are_aborted_together)
{
  Rank ranks[4];

  begin (4);
  nccl_options.timeout_s = SHORT_S;
  init_ranks (ranks, 4, 1, PLAN_DTYPE_FP32, 5, TRUE);
  fake_nccl_lose (2, 2 + 6, FAKE_NCCL_STALLS);
  run_on_nccl (gather_on_beside_a_group, ranks, 4);
  for (guint i = 0; i < 4; i++)
    if (i != 2)
      ck_assert (ranks[i].error != NULL && strstr (ranks[i].error->message, "a rank is lost"));
  clear_ranks (ranks, 4);
  finish ();
}
END_TEST

/* Opens NCCL's communicator of one rank, whose calls need not wait for others. */
static ncclComm_t
open_alone (const char *meeting)
{
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclResult_t state = ncclInProgress;
  ncclUniqueId id = { { 0 } };
  ncclComm_t comm;

  config.blocking = 0;
  g_strlcpy (id.internal, meeting, sizeof id.internal);
  ck_assert_int_eq (ncclCommInitRankConfig (&comm, 1, id, 0, &config), ncclInProgress);
  while (state == ncclInProgress)
    ck_assert_int_eq (ncclCommGetAsyncError (comm, &state), ncclSuccess);
  ck_assert_int_eq (state, ncclSuccess);
  return comm;
}

/* NCCL makes a window after the call for it has returned ncclSuccess: the window is there once
 * ncclCommGetAsyncError does not say ncclInProgress any more. */
START_TEST (nccl_window_is_made_later)
{
  ncclResult_t state = ncclInProgress;
  ncclWindow_t window = NULL;
  ncclComm_t comm;
  void *memory;

  begin (1);
  comm = open_alone ("a");
  ck_assert_int_eq (ncclMemAlloc (&memory, NCCL_WIN_REQUIRED_ALIGNMENT), ncclSuccess);
  ck_assert_int_eq (ncclCommWindowRegister (comm, memory, NCCL_WIN_REQUIRED_ALIGNMENT, &window,
                                            NCCL_WIN_COLL_SYMMETRIC),
                    ncclSuccess);
  while (state == ncclInProgress)
    ck_assert_int_eq (ncclCommGetAsyncError (comm, &state), ncclSuccess);
  ck_assert_ptr_nonnull (window);
  ck_assert_int_eq (ncclCommWindowDeregister (comm, window), ncclSuccess);
  ck_assert_int_eq (ncclCommDestroy (comm), ncclSuccess);
  ck_assert_int_eq (ncclMemFree (memory), ncclSuccess);
  finish ();
}
END_TEST

/* The fake reports an abort that would wait for ever: for the kernel of a communicator that is to
 * be aborted next (_i 0), or for a graph with the communicator's calls to be destroyed (_i 1). */
START_TEST (nccl_abort_that_never_ends_is_found)
{
  ncclComm_t comms[2];
  cudaStream_t stream;
  cudaGraph_t graph = NULL;
  void *memory;

  begin (1);
  comms[0] = open_alone ("a");
  comms[1] = open_alone ("b");
  ck_assert_int_eq (cudaMalloc (&memory, 16), cudaSuccess);
  ck_assert_int_eq (cudaStreamCreateWithFlags (&stream, cudaStreamNonBlocking), cudaSuccess);
  if (_i == 0)
    fake_nccl_lose (0, 0, FAKE_NCCL_STALLS);
  else
    ck_assert_int_eq (cudaStreamBeginCapture (stream, cudaStreamCaptureModeThreadLocal),
                      cudaSuccess);
  ncclAllReduce (memory, memory, 1, ncclFloat32, ncclSum, comms[1], stream);
  if (_i == 1)
    ck_assert_int_eq (cudaStreamEndCapture (stream, &graph), cudaSuccess);
  ncclCommAbort (comms[0]);
  ncclCommAbort (comms[1]);
  ck_assert_msg (strstr (fake_cuda_error (), _i == 0
                                                 ? "waits for a collective of another communicator"
                                                 : "waits for a graph that has calls of it")
                     != NULL,
                 "%s", fake_cuda_error ());
  if (graph != NULL)
    cudaGraphDestroy (graph);
  cudaStreamDestroy (stream);
  cudaFree (memory);
}
END_TEST

static gpointer
abort_last (gpointer data)
{
  Rank *self = data;

  if (self->comm->rank == 3)
    g_set_error_literal (&self->error, PLAN_ERROR, PLAN_ERROR_BACKEND, "out of luck");
  else
    self->comm->ops->barrier (self->comm, &self->error);
  return NULL;
}

START_TEST (nccl_abort_wakes_the_others)
{
  Rank ranks[4];

  begin (4);
  init_ranks (ranks, 4, 1, PLAN_DTYPE_FP32, 5, TRUE);
  run_on_nccl (abort_last, ranks, 4);
  for (guint i = 0; i < 3; i++)
    ck_assert_str_eq (ranks[i].error->message, "rank 3 failed: out of luck");
  clear_ranks (ranks, 4);
  finish ();
}
END_TEST

/* Gathers on one stream what was written on another, with nothing that orders the two. */
static gpointer
forget_event (gpointer data)
{
  Rank *self = data;
  ExecComm *comm = self->comm;
  cudaStream_t streams[2];
  Arrays arrays;
  void *memory = take_arrays (self, &arrays);

  for (guint i = 0; i < 2; i++)
    check_cuda (self, cudaStreamCreateWithFlags (&streams[i], cudaStreamNonBlocking));
  check_cuda (self, cudaMemsetAsync (arrays.in, 0, rank_bytes (self, self->count), streams[0]));
  comm->ops->all_gather (comm, arrays.gathered, arrays.in, self->count, self->dtype, streams[1],
                         &self->error);
  for (guint i = 0; i < 2; i++)
    cudaStreamDestroy (streams[i]);
  comm->ops->give_back (comm, memory);
  return NULL;
}

START_TEST (nccl_missing_event_is_found)
{
  Rank ranks[2];

  begin (2);
  init_ranks (ranks, 2, 1, PLAN_DTYPE_FP32, 5, TRUE);
  run_on_nccl (forget_event, ranks, 2);
  check_no_error (ranks, 2);
  ck_assert_msg (strstr (fake_cuda_error (), "ncclAllGather") != NULL
                     && strstr (fake_cuda_error (), "nothing orders the two") != NULL,
                 "%s", fake_cuda_error ());
  clear_ranks (ranks, 2);
}
END_TEST

/* Gathers in a group, and copies what was gathered from another stream: behind an event that is
 * recorded in the group, or behind the group, which is never ended. */
static gpointer
leave_group (gpointer data)
{
  Rank *self = data;
  const NcclComm *comm = (const NcclComm *)self->comm;
  cudaStream_t streams[2];
  cudaEvent_t event;
  Arrays arrays;
  void *memory = take_arrays (self, &arrays);

  for (guint i = 0; i < 2; i++)
    check_cuda (self, cudaStreamCreateWithFlags (&streams[i], cudaStreamNonBlocking));
  check_cuda (self, cudaEventCreateWithFlags (&event, cudaEventDisableTiming));
  check_cuda (self, cudaMemsetAsync (arrays.in, 0, rank_bytes (self, self->count), streams[0]));
  ncclGroupStart ();
  ncclAllGather (arrays.in, arrays.gathered, rank_bytes (self, self->count), ncclUint8,
                 comm->handle, streams[0]);
  check_cuda (self, cudaEventRecord (event, streams[0]));
  if (leaves_early)
    exec_comm_nccl_settle ((NcclComm *)self->comm, ncclGroupEnd (), "a group", &self->error);
  check_cuda (self, cudaStreamWaitEvent (streams[1], event, 0));
  check_cuda (self, cudaMemcpyAsync (arrays.gathered_in_place, arrays.gathered,
                                     rank_bytes (self, self->count), cudaMemcpyDeviceToDevice,
                                     streams[1]));
  for (guint i = 0; i < 2; i++)
    {
      check_cuda (self, cudaStreamSynchronize (streams[i]));
      cudaStreamDestroy (streams[i]);
    }
  cudaEventDestroy (event);
  self->comm->ops->give_back (self->comm, memory);
  return NULL;
}

START_TEST (nccl_groups_that_are_left_are_found)
{
  static const char *const texts[]
      = { "a communicator is finalized in a group of calls that is not ended",
          "nothing orders the two" };
  Rank ranks[2];

  begin (2);
  leaves_early = _i == 1;
  init_ranks (ranks, 2, 1, PLAN_DTYPE_FP32, 5, TRUE);
  run_on_nccl (leave_group, ranks, 2);
  ck_assert_msg (strstr (fake_cuda_error (), texts[_i]) != NULL, "%s", fake_cuda_error ());
  clear_ranks (ranks, 2);
}
END_TEST

static gpointer
do_nothing (gpointer data)
{
  return NULL;
}

static guint
count_ids (void)
{
  guint n = 0;

  for (const char *at = fake_cuda_log (); (at = strstr (at, "NCCL id")); at++)
    n++;
  return n;
}

/* For each id NCCL listens in a thread until all ranks have come. To an id of another rank than 0
 * none would come. */
START_TEST (nccl_rank_0_alone_makes_an_id)
{
  Rank ranks[3];

  begin (3);
  init_ranks (ranks, 3, 1, PLAN_DTYPE_FP32, 5, TRUE);
  run_on_nccl (do_nothing, ranks, 3);
  ck_assert_uint_eq (count_ids (), 1);
  for (guint i = 0; i < 3; i++)
    ck_assert_ptr_null (ranks[i].error);
  clear_ranks (ranks, 3);
  finish ();
}
END_TEST

START_TEST (nccl_shared_gpu_is_refused)
{
  Rank ranks[2];

  begin (2);
  nccl_gpu_step = 0;
  init_ranks (ranks, 2, 1, PLAN_DTYPE_FP32, 5, TRUE);
  run_on_nccl (do_nothing, ranks, 2);
  for (guint i = 0; i < 2; i++)
    {
      ck_assert_ptr_nonnull (ranks[i].error);
      ck_assert_msg (strstr (ranks[i].error->message, "ranks 0 and 1 both use GPU ")
                         && strstr (ranks[i].error->message, "NCCL needs one for each"),
                     "%s", ranks[i].error->message);
    }
  clear_ranks (ranks, 2);
  finish ();
}
END_TEST

/* A launcher may show each process its own GPU alone, which is the first that the process sees. */
START_TEST (nccl_ranks_may_see_a_gpu_each)
{
  Rank ranks[4];

  begin (4);
  nccl_begin_rank = fake_cuda_show;
  init_ranks (ranks, 4, 1, PLAN_DTYPE_FP32, 5, TRUE);
  run_on_nccl (call_on_own_device, ranks, 4);
  check_ranks (ranks, 4);
  clear_ranks (ranks, 4);
  finish ();
}
END_TEST

START_TEST (nccl_missing_gpu_ends_all)
{
  Rank ranks[2];

  begin (0);
  init_ranks (ranks, 2, 1, PLAN_DTYPE_FP32, 5, TRUE);
  run_on_nccl (do_nothing, ranks, 2);
  for (guint i = 0; i < 2; i++)
    ck_assert_msg (strstr (ranks[i].error->message, "cudaGetDeviceCount (&visible): "), "%s",
                   ranks[i].error->message);
  clear_ranks (ranks, 2);
  finish ();
}
END_TEST

START_TEST (nccl_old_library_is_refused)
{
  Rank rank;

  begin (1);
  fake_nccl_set_version (22703);
  init_ranks (&rank, 1, 1, PLAN_DTYPE_FP32, 5, TRUE);
  run_on_nccl (do_nothing, &rank, 1);
  ck_assert (g_error_matches (rank.error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED));
  ck_assert_str_eq (rank.error->message,
                    "NCCL here is 2.27.3, and this program was built with 2.28.9: it needs that or "
                    "a newer one");
  clear_ranks (&rank, 1);
  finish ();
}
END_TEST

static gpointer
sum_bytes (gpointer data)
{
  Rank *self = data;

  self->comm->ops->all_reduce (self->comm, self->reduced, 1, PLAN_DTYPE_E4M3, (void *)8,
                               &self->error);
  return NULL;
}

START_TEST (nccl_sums_of_small_formats_are_refused)
{
  Rank rank;

  begin (1);
  init_ranks (&rank, 1, 1, PLAN_DTYPE_FP32, 5, TRUE);
  run_on_nccl (sum_bytes, &rank, 1);
  ck_assert (g_error_matches (rank.error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED));
  ck_assert_str_eq (rank.error->message, "NCCL sums fp32, bf16 and fp16 here, not e4m3");
  clear_ranks (&rank, 1);
  finish ();
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("nccl");
  TCase *tcase = tcase_create ("nccl");
  SRunner *runner;
  int failed;

  tcase_set_timeout (tcase, 120);
  test_add_runs (tcase, nccl_host_memory_equals_naive, 2 * MAX_RANKS);
  tcase_add_loop_test (tcase, nccl_largest_hides_no_nan, 0, 2);
  test_add_runs (tcase, nccl_device_memory_equals_naive, 2 * MAX_RANKS);
  test_add_runs (tcase, nccl_sums_are_within_the_bound, MAX_RANKS);
  tcase_add_loop_test (tcase, nccl_groups_equal_naive, 0, N_SPLITS);
  tcase_add_test (tcase, nccl_mismatch_names_both);
  tcase_add_loop_test (tcase, nccl_lost_rank_ends_the_others, 0, G_N_ELEMENTS (losses));
  tcase_add_test (tcase, nccl_groups_are_aborted_together);
  tcase_add_test (tcase, nccl_window_is_made_later);
  tcase_add_loop_test (tcase, nccl_abort_that_never_ends_is_found, 0, 2);
  tcase_add_test (tcase, nccl_abort_wakes_the_others);
  tcase_add_test (tcase, nccl_missing_event_is_found);
  tcase_add_loop_test (tcase, nccl_groups_that_are_left_are_found, 0, 2);
  tcase_add_test (tcase, nccl_rank_0_alone_makes_an_id);
  tcase_add_test (tcase, nccl_shared_gpu_is_refused);
  tcase_add_test (tcase, nccl_ranks_may_see_a_gpu_each);
  tcase_add_test (tcase, nccl_missing_gpu_ends_all);
  tcase_add_test (tcase, nccl_old_library_is_refused);
  tcase_add_test (tcase, nccl_sums_of_small_formats_are_refused);
  nccl_add_meeting_tests (tcase);
  suite_add_tcase (suite, tcase);
  runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
