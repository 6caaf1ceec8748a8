/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/fake/nccl-ranks.h"

#include "planner/base/error.h"

#include <check.h>

ExecNcclOptions nccl_options;
static GThreadFunc body;
guint nccl_gpu_step = 1;
void (*nccl_begin_rank) (guint rank);

/* Opens a rank's communicator over the threads', runs the test's body, closes. */
static gpointer
run_rank (gpointer data)
{
  Rank *self = data;
  ExecComm *carrier = self->comm;
  ExecNcclOptions own = nccl_options;
  ExecComm *comm;

  own.local_rank = carrier->rank * nccl_gpu_step;
  if (nccl_begin_rank != NULL)
    nccl_begin_rank (carrier->rank);
  comm = exec_comm_nccl_open (carrier, &own, &self->error);
  if (comm == NULL)
    {
      carrier->ops->abort (carrier, self->error->message);
      carrier->ops->close (carrier);
      return NULL;
    }
  self->comm = comm;
  body (self);
  if (self->error != NULL)
    comm->ops->abort (comm, self->error->message);
  comm->ops->close (comm);
  return NULL;
}

void
run_on_nccl (GThreadFunc function, Rank *ranks, guint n)
{
  ExecComm *comms[MAX_RANKS];

  ck_assert (exec_comm_threads_open (n, comms, NULL));
  for (guint i = 0; i < n; i++)
    ranks[i].comm = comms[i];
  body = function;
  run_ranks (run_rank, ranks, n);
}

/* Draws the numbers that `n` ranks put into their collectives, `count` elements of a format for
 * each rank. */
void
init_ranks (Rank *ranks, guint n, guint32 seed, PlanDtype dtype, guint64 count, gboolean is_exact)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (seed);

  for (guint i = 0; i < n; i++)
    {
      ExecComm place = { .rank = i, .ranks = n };

      rank_init (&ranks[i], rand, &place, dtype, count, is_exact);
    }
}

void
clear_ranks (Rank *ranks, guint n)
{
  for (guint i = 0; i < n; i++)
    rank_clear (&ranks[i]);
}

gboolean
check_cuda (Rank *self, cudaError_t result)
{
  if (result != cudaSuccess && self->error == NULL)
    self->error = g_error_new_literal (PLAN_ERROR, PLAN_ERROR_BACKEND, cudaGetErrorString (result));
  return result == cudaSuccess;
}

gboolean
copy_arrays (Rank *self, const Arrays *arrays, gboolean to_device, cudaStream_t stream)
{
  const guint64 all = rank_bytes (self, self->comm->ranks * self->count);
  const guint64 own = rank_bytes (self, self->count);
  const struct
  {
    guint8 *host, *device;
    guint64 bytes;
  } copies[] = {
    { self->in, arrays->in, all },
    { self->gathered, arrays->gathered, all },
    { self->gathered_in_place, arrays->gathered_in_place, all },
    { self->scattered, arrays->scattered, own },
    { self->scattered_in_place, arrays->scattered_in_place, all },
    { self->reduced, arrays->reduced, all },
    { self->exchanged, arrays->exchanged, all },
    { self->largest, arrays->largest, all },
    { self->passed, arrays->passed, all },
    { self->traded, arrays->traded, 2 * own },
  };

  for (guint i = 0; i < G_N_ELEMENTS (copies); i++)
    if (!check_cuda (self, to_device
                               ? cudaMemcpyAsync (copies[i].device, copies[i].host, copies[i].bytes,
                                                  cudaMemcpyHostToDevice, stream)
                               : cudaMemcpyAsync (copies[i].host, copies[i].device, copies[i].bytes,
                                                  cudaMemcpyDeviceToHost, stream)))
      return FALSE;
  return TRUE;
}

/* Gathers, or reduces, twice: by a call each, or, in two of four sizes, by one call for both. */
static gboolean
call_twice (Rank *self, gboolean reduces, const ExecCommPart *parts, cudaStream_t stream)
{
  ExecComm *comm = self->comm;
  gboolean ok = TRUE;

  if ((self->count & 2) != 0)
    return comm->ops->together (comm, reduces, parts, 2, stream, &self->error);
  for (guint i = 0; ok && i < 2; i++)
    ok = (reduces ? comm->ops->reduce_scatter : comm->ops->all_gather) (
        comm, parts[i].out, parts[i].in, parts[i].count, parts[i].dtype, stream, &self->error);
  return ok;
}

static gboolean
call_all_on (Rank *self, const Arrays *arrays, cudaStream_t stream)
{
  ExecComm *comm = self->comm;
  const ExecCommOps *ops = comm->ops;
  const PlanDtype dtype = self->dtype;
  const guint64 count = self->count, all = comm->ranks * count;
  const guint64 own = comm->rank * rank_bytes (self, count);
  guint8 *gathered = arrays->gathered_in_place, *scattered = arrays->scattered_in_place;
  GError **error = &self->error;
  const ExecCommPart gathers[] = { { arrays->gathered, arrays->in, count, dtype },
                                   { gathered, gathered + own, count, dtype } };
  const ExecCommPart scatters[] = { { arrays->scattered, arrays->in, count, dtype },
                                    { scattered + own, scattered, count, dtype } };

  return call_twice (self, FALSE, gathers, stream) && call_twice (self, TRUE, scatters, stream)
         && ops->all_reduce (comm, arrays->reduced, all, dtype, stream, error)
         && ops->all_reduce_max (comm, arrays->largest, all, dtype, stream, error)
         && ops->all_to_all (comm, arrays->exchanged, arrays->in, count, dtype, stream, error)
         && rank_pass_all (self, arrays->passed, arrays->in, stream)
         && rank_trade_all (self, arrays->traded, arrays->in, stream) && ops->check (comm, error);
}

void *
take_arrays (Rank *self, Arrays *arrays)
{
  const guint64 each = rank_bytes (self, MAX (self->comm->ranks, 2) * self->count) + 64;
  guint8 *memory = self->comm->ops->take (self->comm, 10 * each, &self->error);

  if (memory != NULL)
    *arrays = (Arrays){ .in = memory,
                        .gathered = memory + each,
                        .gathered_in_place = memory + 2 * each,
                        .scattered = memory + 3 * each,
                        .scattered_in_place = memory + 4 * each,
                        .reduced = memory + 5 * each,
                        .exchanged = memory + 6 * each,
                        .largest = memory + 7 * each,
                        .traded = memory + 8 * each,
                        .passed = memory + 9 * each };
  return memory;
}

void
call_on_device (Rank *self, ExecComm *comm)
{
  ExecComm *all = self->comm;
  cudaStream_t stream = NULL;
  Arrays arrays;
  void *memory = take_arrays (self, &arrays);

  self->comm = comm;
  rank_prepare (self);
  if (memory != NULL
      && check_cuda (self, cudaStreamCreateWithFlags (&stream, cudaStreamNonBlocking)))
    if (copy_arrays (self, &arrays, TRUE, stream) && call_all_on (self, &arrays, stream)
        && copy_arrays (self, &arrays, FALSE, stream))
      check_cuda (self, cudaStreamSynchronize (stream));
  if (stream != NULL)
    cudaStreamDestroy (stream);
  if (memory != NULL)
    all->ops->give_back (all, memory);
}
