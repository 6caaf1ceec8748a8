/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives on host memory, for what is small or rare: before and after training, and the meeting
 * before a step. Data goes piece by piece through pinned memory and device memory, gathered by NCCL
 * as bytes; sums are made on the host, in rank order.
 *
 * Two things are avoided on purpose. A copy to or from pageable memory keeps the thread in the
 * driver until the stream has got there (CUDA's "API synchronization behavior"), so a lost rank
 * would never be noticed. And ncclSend connects every pair of ranks, with buffers for each
 * (p2pnChannels in NCCL's enqueue.cc), so even what is for one rank is gathered by all. A trade
 * and an exchange do use ncclSend, because in them a rank sends to one other alone. */
#include "config.h"

#include "exec/nccl/comm-nccl-try.h"

#include <math.h>
#include <string.h>

/* Bytes of a stage, which holds the pieces of all ranks, and behind them a vote. */
#define STAGE_BYTES (G_GUINT64_CONSTANT (256) << 10)
#define VOTE_BYTES 64

gboolean
exec_comm_nccl_take_stage (NcclWorld *world, GError **error)
{
  for (guint i = 0; i < G_N_ELEMENTS (world->stage); i++)
    {
      CUDA_TRY (cudaMalloc ((void **)&world->stage[i], STAGE_BYTES + VOTE_BYTES), error);
      CUDA_TRY (cudaMallocHost ((void **)&world->pinned[i], STAGE_BYTES + VOTE_BYTES), error);
    }
  return TRUE;
}

/* Bytes of one rank's piece: at least one, whatever the number of ranks. */
static guint64
piece_bytes (const NcclComm *self)
{
  return STAGE_BYTES / self->comm.ranks;
}

static gboolean
copy_in (NcclWorld *world, const void *in, guint64 n, GError **error)
{
  memcpy (world->pinned[0], in, n);
  CUDA_TRY_OUTSIDE (
      world,
      cudaMemcpyAsync (world->stage[0], world->pinned[0], n, cudaMemcpyHostToDevice, world->stream),
      error);
  return TRUE;
}

/* Copies n bytes of a stage to pinned[1], and waits until the stream has done all it was given. */
static gboolean
copy_out (NcclComm *self, guint stage, guint64 n, const char *call, GError **error)
{
  NcclWorld *world = self->world;

  CUDA_TRY_OUTSIDE (world,
                    cudaMemcpyAsync (world->pinned[1], world->stage[stage], n,
                                     cudaMemcpyDeviceToHost, world->stream),
                    error);
  return exec_comm_nccl_follow (self, call, world->stream, error)
         && exec_comm_nccl_wait (self, world->stream, error);
}

/* Gathers the n bytes at `in` of every rank into pinned[1]. */
static gboolean
gather_piece (NcclComm *self, const void *in, guint64 n, const char *call, GError **error)
{
  NcclWorld *world = self->world;

  if (!copy_in (world, in, n, error))
    return FALSE;
  NCCL_TRY (
      self,
      ncclAllGather (world->stage[0], world->stage[1], n, ncclUint8, self->handle, world->stream),
      error);
  return copy_out (self, 1, n * self->comm.ranks, call, error);
}

/* All ranks bring `all` bytes; out = bytes [from, from + bytes) of every rank's, in rank order. */
static gboolean
gather (NcclComm *self, guint8 *out, const guint8 *in, guint64 all, guint64 from, guint64 bytes,
        const char *call, GError **error)
{
  for (guint64 at = 0; at < all; at += piece_bytes (self))
    {
      const guint64 n = MIN (piece_bytes (self), all - at);
      const guint64 begin = MAX (at, from), end = MIN (at + n, from + bytes);

      if (!gather_piece (self, in + at, n, call, error))
        return FALSE;
      for (guint rank = 0; rank < self->comm.ranks && begin < end; rank++)
        memcpy (out + rank * bytes + begin - from, self->world->pinned[1] + rank * n + begin - at,
                end - begin);
    }
  return TRUE;
}

gboolean
exec_comm_nccl_host_gather (NcclComm *self, void *out, const void *in, guint64 bytes,
                            GError **error)
{
  return gather (self, out, in, bytes, 0, bytes, "all_gather of the host's memory", error);
}

gboolean
exec_comm_nccl_host_exchange (NcclComm *self, void *out, const void *in, guint64 bytes,
                              GError **error)
{
  return gather (self, out, in, bytes * self->comm.ranks, bytes * self->comm.rank, bytes,
                 "all_to_all of the host's memory", error);
}

/* Passes one piece on. A rank that only gives waits as well, because the next piece goes through
 * the same memory. */
static gboolean
pass_piece (NcclComm *self, guint8 *out, guint from, const guint8 *in, guint to, guint64 n,
            GError **error)
{
  const char *call = "send and receive of the host's memory";
  NcclWorld *world = self->world;

  if (in != NULL && !copy_in (world, in, n, error))
    return FALSE;
  NCCL_TRY (self,
            exec_comm_nccl_pass (self, out != NULL ? world->stage[1] : NULL, from,
                                 in != NULL ? world->stage[0] : NULL, to, n, world->stream),
            error);
  if (out == NULL)
    return exec_comm_nccl_follow (self, call, world->stream, error)
           && exec_comm_nccl_wait (self, world->stream, error);
  if (!copy_out (self, 1, n, call, error))
    return FALSE;
  memcpy (out, world->pinned[1], n);
  return TRUE;
}

gboolean
exec_comm_nccl_host_pass (NcclComm *self, void *out, guint from, const void *in, guint to,
                          guint64 bytes, GError **error)
{
  for (guint64 at = 0; at < bytes; at += STAGE_BYTES)
    if (!pass_piece (self, out != NULL ? (guint8 *)out + at : NULL, from,
                     in != NULL ? (const guint8 *)in + at : NULL, to, MIN (STAGE_BYTES, bytes - at),
                     error))
      return FALSE;
  return TRUE;
}

static void
fold_all (const NcclComm *self, ExecCommFold fold, void *out, const guint8 *in, guint64 count,
          PlanDtype dtype)
{
  g_autofree const void **pieces = g_new (const void *, self->comm.ranks);

  for (guint rank = 0; rank < self->comm.ranks; rank++)
    pieces[rank] = in + rank * plan_dtype_bytes (dtype, count);
  fold (out, pieces, self->comm.ranks, count, dtype);
}

gboolean
exec_comm_nccl_host_scatter (NcclComm *self, ExecCommFold fold, void *out, const void *in,
                             guint64 count, PlanDtype dtype, GError **error)
{
  const guint64 bytes = plan_dtype_bytes (dtype, count);
  g_autofree guint8 *received = g_malloc (self->comm.ranks * bytes + 1);

  if (!exec_comm_nccl_host_exchange (self, received, in, bytes, error))
    return FALSE;
  fold_all (self, fold, out, received, count, dtype);
  return TRUE;
}

gboolean
exec_comm_nccl_host_reduce (NcclComm *self, ExecCommFold fold, void *buf, guint64 count,
                            PlanDtype dtype, GError **error)
{
  const guint64 bytes = plan_dtype_bytes (dtype, count);
  g_autofree guint8 *received = g_malloc (self->comm.ranks * bytes + 1);

  if (!exec_comm_nccl_host_gather (self, received, buf, bytes, error))
    return FALSE;
  fold_all (self, fold, buf, received, count, dtype);
  return TRUE;
}

/* The maximum by NCCL's all-reduce, which takes as few hops as its tree has, while a gather's grow
 * with the number of ranks. NaNs become infinity, as in nccl_all_reduce_max. */
gboolean
exec_comm_nccl_host_max (NcclComm *self, float *buf, guint64 count, GError **error)
{
  NcclWorld *world = self->world;
  const guint64 limit = STAGE_BYTES / sizeof *buf;

  for (guint64 at = 0; at < count; at += limit)
    {
      const guint64 n = MIN (limit, count - at);

      for (guint64 i = at; i < at + n; i++)
        buf[i] = isnan (buf[i]) ? INFINITY : buf[i];
      if (!copy_in (world, buf + at, n * sizeof *buf, error))
        return FALSE;
      NCCL_TRY (self,
                ncclAllReduce (world->stage[0], world->stage[0], n, ncclFloat32, ncclMax,
                               self->handle, world->stream),
                error);
      if (!copy_out (self, 0, n * sizeof *buf, "all_reduce_max of the host's memory", error))
        return FALSE;
      memcpy (buf + at, world->pinned[1], n * sizeof *buf);
    }
  return TRUE;
}

/* The answer is copied to the host by the time of the next vote, when the GPU has the step in
 * between to do, so that it does not wait for the host, nor the host for it. No other call uses
 * these parts of the stages. */
gboolean
exec_comm_nccl_vote (ExecComm *comm, gboolean yes, gboolean *out_before, GError **error)
{
  INSIDE (comm);
  NcclComm *self = (NcclComm *)comm;
  NcclWorld *world = self->world;
  float *vote = (float *)(gpointer)(world->pinned[0] + STAGE_BYTES);
  float *answer = (float *)(gpointer)(world->pinned[1] + STAGE_BYTES);
  void *stage = world->stage[0] + STAGE_BYTES;

  if (!exec_comm_nccl_is_usable (self, error) || !exec_comm_nccl_wait (self, world->stream, error))
    return FALSE;
  *out_before = world->has_voted && *answer > 0;
  world->has_voted = TRUE;
  *vote = yes ? 1 : 0;
  CUDA_TRY_OUTSIDE (
      world, cudaMemcpyAsync (stage, vote, sizeof *vote, cudaMemcpyHostToDevice, world->stream),
      error);
  NCCL_TRY (self,
            ncclAllReduce (stage, stage, 1, ncclFloat32, ncclMax, self->handle, world->stream),
            error);
  CUDA_TRY_OUTSIDE (
      world, cudaMemcpyAsync (answer, stage, sizeof *answer, cudaMemcpyDeviceToHost, world->stream),
      error);
  return exec_comm_nccl_follow (self, "vote", world->stream, error);
}
