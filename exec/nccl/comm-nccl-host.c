/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory: piece by piece through the device, where it is moved as bytes; sums are made here,
 * in rank order. For what is small or rare: before and after training, and the barrier. */
#include "config.h"

#include "exec/nccl/comm-nccl-private.h"

#include <string.h>

/* What all ranks' pieces pass through at once. */
#define STAGE_BYTES (G_GUINT64_CONSTANT (256) << 10)

static gboolean
take_stage (NcclWorld *world, GError **error)
{
  for (guint i = 0; i < G_N_ELEMENTS (world->stage); i++)
    if (world->stage[i] == NULL)
      CUDA_TRY (cudaMalloc ((void **)&world->stage[i], STAGE_BYTES), error);
  return TRUE;
}

/* Bytes of a rank's piece; any number of ranks fits, a byte each. */
static guint64
piece_bytes (const NcclComm *self)
{
  return STAGE_BYTES / self->comm.ranks;
}

/* Copies `n` bytes from or to each rank's place, which lie `stride` bytes apart here. */
static gboolean
copy_out (const NcclComm *self, guint8 *out, guint64 stride, guint64 n, GError **error)
{
  CUDA_TRY (cudaMemcpy2DAsync (out, stride, self->world->stage[1], n, n, self->comm.ranks,
                               cudaMemcpyDeviceToHost, self->world->stream),
            error);
  return TRUE;
}

static gboolean
copy_in (const NcclComm *self, const guint8 *in, guint64 stride, guint64 n, GError **error)
{
  CUDA_TRY (cudaMemcpy2DAsync (self->world->stage[0], n, in, stride, n, self->comm.ranks,
                               cudaMemcpyHostToDevice, self->world->stream),
            error);
  return TRUE;
}

/* What the stream was given has ended. */
static gboolean
finish (NcclComm *self, const char *call, GError **error)
{
  const cudaStream_t stream = self->world->stream;

  return exec_comm_nccl_follow (self, call, stream, error)
         && exec_comm_nccl_wait (self, stream, error);
}

gboolean
exec_comm_nccl_host_gather (NcclComm *self, void *out, const void *in, guint64 bytes,
                            GError **error)
{
  NcclWorld *world = self->world;

  if (!take_stage (world, error))
    return FALSE;
  for (guint64 at = 0; at < bytes; at += piece_bytes (self))
    {
      const guint64 n = MIN (piece_bytes (self), bytes - at);

      CUDA_TRY (cudaMemcpyAsync (world->stage[0], (const guint8 *)in + at, n,
                                 cudaMemcpyHostToDevice, world->stream),
                error);
      NCCL_TRY (self,
                ncclAllGather (world->stage[0], world->stage[1], n, ncclUint8, self->handle,
                               world->stream),
                error);
      if (!copy_out (self, (guint8 *)out + at, bytes, n, error)
          || !finish (self, "all_gather of the host's memory", error))
        return FALSE;
    }
  return TRUE;
}

/* The n bytes at `in`, and at each further rank's place, to every rank. */
static gboolean
exchange_piece (NcclComm *self, guint8 *out, guint64 out_stride, const guint8 *in,
                guint64 in_stride, guint64 n, GError **error)
{
  NcclWorld *world = self->world;

  if (!copy_in (self, in, in_stride, n, error))
    return FALSE;
  NCCL_TRY (self,
            exec_comm_nccl_exchange (self, world->stage[1], world->stage[0], n, world->stream),
            error);
  return copy_out (self, out, out_stride, n, error)
         && finish (self, "all_to_all of the host's memory", error);
}

gboolean
exec_comm_nccl_host_exchange (NcclComm *self, void *out, const void *in, guint64 bytes,
                              GError **error)
{
  if (!take_stage (self->world, error))
    return FALSE;
  for (guint64 at = 0; at < bytes; at += piece_bytes (self))
    if (!exchange_piece (self, (guint8 *)out + at, bytes, (const guint8 *)in + at, bytes,
                         MIN (piece_bytes (self), bytes - at), error))
      return FALSE;
  return TRUE;
}

gboolean
exec_comm_nccl_host_scatter (NcclComm *self, ExecCommFold fold, void *out, const void *in,
                             guint64 count, PlanDtype dtype, GError **error)
{
  const guint ranks = self->comm.ranks;
  const guint64 limit = MAX (piece_bytes (self) / plan_dtype_bytes (dtype, 1), 1);
  const guint64 stride = plan_dtype_bytes (dtype, count);
  g_autofree guint8 *received = g_malloc (STAGE_BYTES);
  g_autofree const void **pieces = g_new (const void *, ranks);

  if (!take_stage (self->world, error))
    return FALSE;
  for (guint64 at = 0; at < count; at += limit)
    {
      const guint64 n = MIN (limit, count - at), bytes = plan_dtype_bytes (dtype, n);
      const guint64 from = plan_dtype_bytes (dtype, at);

      if (!exchange_piece (self, received, bytes, (const guint8 *)in + from, stride, bytes, error))
        return FALSE;
      for (guint rank = 0; rank < ranks; rank++)
        pieces[rank] = received + rank * bytes;
      fold ((guint8 *)out + from, pieces, ranks, n, dtype);
    }
  return TRUE;
}

/* Every rank folds a part of a copy that all divide. */
gboolean
exec_comm_nccl_host_reduce (NcclComm *self, ExecCommFold fold, void *buf, guint64 count,
                            PlanDtype dtype, GError **error)
{
  const guint64 ranks = self->comm.ranks, part = (count + ranks - 1) / ranks;
  const guint64 bytes = plan_dtype_bytes (dtype, part), used = plan_dtype_bytes (dtype, count);
  g_autofree guint8 *copy = g_malloc0 (MAX (ranks * bytes, 1));
  guint8 *own = copy + self->comm.rank * bytes;

  memcpy (copy, buf, used);
  if (!exec_comm_nccl_host_scatter (self, fold, own, copy, part, dtype, error)
      || !exec_comm_nccl_host_gather (self, copy, own, bytes, error))
    return FALSE;
  memcpy (buf, copy, used);
  return TRUE;
}
