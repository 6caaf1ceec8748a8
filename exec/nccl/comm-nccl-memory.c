/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of this rank that NCCL's kernels and copy engines reach from every rank: a window of each
 * communicator where the machine has symmetric memory, else registered for zero-copy. */
#include "config.h"

#include "exec/nccl/comm-nccl-try.h"
#include "planner/base/error.h"
#include "planner/base/units.h"

static void
block_clear (NcclBlock *block)
{
  if (block->registrations == NULL)
    cudaFree (block->memory);
  else
    ncclMemFree (block->memory);
  g_clear_pointer (&block->registrations, g_array_unref);
}

static gboolean
make_registration (NcclComm *self, const NcclBlock *block, NcclRegistration *out, GError **error)
{
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
  NCCL_TRY (self,
            ncclCommWindowRegister (self->handle, block->memory, block->bytes, &out->window,
                                    NCCL_WIN_COLL_SYMMETRIC),
            error);
#endif
  if (out->window == NULL) /* no symmetric memory here */
    NCCL_TRY (self, ncclCommRegister (self->handle, block->memory, block->bytes, &out->handle),
              error);
  return TRUE;
}

/* Registers a block with a communicator, all of whose ranks do so at once: windows have as many
 * bytes on each. After a failure a thread of NCCL's may write to `made` until the abort has
 * ended. */
static gboolean
register_block (NcclComm *self, NcclBlock *block, GError **error)
{
  NcclRegistration made = { .comm = self };

  if (block->registrations == NULL)
    return TRUE;
  if (!make_registration (self, block, &made, error))
    {
      exec_comm_nccl_end_abort (self->world);
      return FALSE;
    }
  g_array_append_val (block->registrations, made);
  return TRUE;
}

gboolean
exec_comm_nccl_register_blocks (NcclComm *self, GError **error)
{
  GArray *blocks = self->world->blocks;

  for (guint i = 0; i < blocks->len; i++)
    if (!register_block (self, &g_array_index (blocks, NcclBlock, i), error))
      return FALSE;
  return TRUE;
}

static ncclResult_t
deregister_window (const NcclComm *comm, ncclWindow_t window)
{
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
  return ncclCommWindowDeregister (comm->handle, window);
#else
  return ncclInvalidUsage; /* no window was ever made */
#endif
}

/* Drops a communicator's registrations of a block. One that was aborted has dropped them by
 * itself. */
static void
forget (NcclBlock *block, const NcclComm *comm)
{
  for (guint i = 0; block->registrations != NULL && i < block->registrations->len; i++)
    {
      const NcclRegistration *made = &g_array_index (block->registrations, NcclRegistration, i);
      ncclResult_t result = ncclSuccess;

      if (made->comm != comm)
        continue;
      if (comm->handle != NULL && made->window != NULL)
        result = deregister_window (comm, made->window);
      else if (comm->handle != NULL)
        result = ncclCommDeregister (comm->handle, made->handle);
      if (result != ncclSuccess && result != ncclInProgress)
        g_warning ("NCCL does not deregister memory among %s: %s", comm->name,
                   ncclGetErrorString (result));
      g_array_remove_index (block->registrations, i--);
    }
}

void
exec_comm_nccl_forget_blocks (NcclComm *self)
{
  for (guint i = 0; i < self->world->blocks->len; i++)
    forget (&g_array_index (self->world->blocks, NcclBlock, i), self);
}

void
exec_comm_nccl_free_blocks (NcclWorld *world)
{
  for (guint i = 0; i < world->blocks->len; i++)
    block_clear (&g_array_index (world->blocks, NcclBlock, i));
  g_array_set_size (world->blocks, 0);
}

/* Raises *bytes to the most that any rank asks for, in whole windows. */
static gboolean
agree_on_bytes (NcclComm *self, guint64 *bytes, GError **error)
{
  g_autofree guint64 *all = g_new0 (guint64, self->comm.ranks);

  all[self->comm.rank] = *bytes;
  if (!exec_comm_nccl_host_gather (self, all, &all[self->comm.rank], sizeof *bytes, error))
    return FALSE;
  for (guint rank = 0; rank < self->comm.ranks; rank++)
    *bytes = MAX (*bytes, all[rank]);
  *bytes = plan_units_round_up (MAX (*bytes, 1), NCCL_WIN_REQUIRED_ALIGNMENT);
  return TRUE;
}

static gboolean
take_block (const NcclWorld *world, NcclBlock *block, GError **error)
{
  g_autofree char *size = plan_units_format_size (block->bytes);
  void *memory = NULL;
  const char *why = NULL;

  if (world->options.is_registered)
    {
      const ncclResult_t result = ncclMemAlloc (&memory, block->bytes);

      why = result != ncclSuccess ? ncclGetErrorString (result) : NULL;
      block->registrations = g_array_new (FALSE, FALSE, sizeof (NcclRegistration));
    }
  else
    {
      const cudaError_t result = cudaMalloc (&memory, block->bytes);

      why = result != cudaSuccess ? cudaGetErrorString (result) : NULL;
    }
  block->memory = memory;
  if (why == NULL)
    return TRUE;
  g_clear_pointer (&block->registrations, g_array_unref);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INFEASIBLE, "rank %u: GPU %d has no %s left: %s",
               world->rank, world->device, size, why);
  return FALSE;
}

void *
exec_comm_nccl_take (ExecComm *comm, guint64 bytes, GError **error)
{
  INSIDE (comm);
  NcclComm *self = (NcclComm *)comm;
  NcclWorld *world = self->world;
  NcclBlock block = { .bytes = bytes };

  if (!exec_comm_nccl_is_usable (self, error)
      || (world->options.is_registered && !agree_on_bytes (self, &block.bytes, error))
      || !take_block (world, &block, error))
    return NULL;
  for (guint i = 0; i < world->comms->len; i++)
    if (!register_block (world->comms->pdata[i], &block, error))
      {
        block_clear (&block);
        return NULL;
      }
  g_array_append_val (world->blocks, block);
  return block.memory;
}

void
exec_comm_nccl_give_back (ExecComm *comm, void *memory)
{
  INSIDE (comm);
  NcclWorld *world = ((NcclComm *)comm)->world;

  exec_comm_nccl_end_abort (world); /* until then NCCL may use the memory */
  for (guint i = 0; i < world->blocks->len; i++)
    {
      NcclBlock *block = &g_array_index (world->blocks, NcclBlock, i);

      if (block->memory != memory)
        continue;
      for (guint c = world->comms->len; c-- > 0;)
        forget (block, world->comms->pdata[c]);
      block_clear (block);
      g_array_remove_index (world->blocks, i);
      return;
    }
}
