/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU as a device. An op runs when it is issued, so streams, events and waiting do nothing. */
#include "config.h"

#include "exec/cpu/pool.h"
#include "exec/device.h"
#include "exec/kernels.h"
#include "planner/base/error.h"
#include "planner/base/units.h"
#include "planner/schedule/arena.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* Most bytes that are read or written at once, on devices whose memory is staged. */
#define PIECE_BYTES (G_GUINT64_CONSTANT (8) << 20)

#define LARGE_PAGE (2 << 20)

typedef struct
{
  ExecDevice device;
  const ExecKernels *kernels;
  GPtrArray *staged; /* memory staged in this section */
  gint64 begin_ns;
  GArray *stamps; /* gint64 */
} CpuDevice;

static gint64
now_ns (void)
{
  struct timespec t;
  clock_gettime (CLOCK_MONOTONIC, &t);
  return (gint64)t.tv_sec * G_GINT64_CONSTANT (1000000000) + t.tv_nsec;
}

static void
cpu_close (ExecDevice *device)
{
  CpuDevice *self = (CpuDevice *)device;
  g_ptr_array_unref (self->staged);
  g_array_unref (self->stamps);
  free (device->memory);
  free (device->host);
  g_free (device->scales);
  exec_pool_close ();
  g_free (self);
}

/* Allocates memory in huge pages where possible: with small pages a step spends more time on page
 * faults and TLB misses than on the data. */
static void *
take_memory (guint64 bytes)
{
  void *memory = NULL;
  const gsize alignment = bytes < LARGE_PAGE ? PLAN_ARENA_ALIGNMENT : LARGE_PAGE;
  if (posix_memalign (&memory, alignment, MAX (bytes, 1)) != 0)
    return NULL;
#ifdef MADV_HUGEPAGE
  if (bytes >= LARGE_PAGE)
    madvise (memory, bytes, MADV_HUGEPAGE); /* only advice: without huge pages nothing breaks */
#endif
  return memory;
}

static ExecDevice *
cpu_open (const ExecDeviceNeeds *needs, GError **error)
{
  CpuDevice *self;
  if (!exec_pool_open (needs->threads, error))
    return NULL;
  void *memory = take_memory (needs->memory_bytes), *host = take_memory (needs->host_bytes);
  if (!memory || !host)
    {
      exec_pool_close ();
      free (memory);
      free (host);
      g_autofree char *size = plan_units_format_size (needs->memory_bytes + needs->host_bytes);
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INFEASIBLE, "rank %u: this machine has no %s left",
                   needs->comm->rank, size);
      return NULL;
    }
  self = g_new0 (CpuDevice, 1);
  self->device = (ExecDevice){ .ops = needs->kernels->device,
                               .memory = memory,
                               .host = host,
                               .scales = g_new0 (float, plan_schedule_n_buffer_ids (needs->schedule)
                                                            + needs->more_scales + 1) };
  self->kernels = needs->kernels;
  self->staged = g_ptr_array_new_with_free_func (g_free);
  self->stamps = g_array_new (FALSE, FALSE, sizeof (gint64));
  return &self->device;
}

static void *
cpu_stream (ExecDevice *device, PlanStream stream)
{
  return NULL;
}

static gboolean
cpu_run (ExecDevice *device, const ExecArgs *args, PlanStream stream, GError **error)
{
  ((const CpuDevice *)device)->kernels->run[args->op->kind](args);
  return TRUE;
}

static gboolean
cpu_fill (ExecDevice *device, void *at, int byte, guint64 bytes, PlanStream stream, GError **error)
{
  memset (at, byte, bytes);
  return TRUE;
}

static gboolean
cpu_copy (ExecDevice *device, void *to, const void *from, guint64 bytes, PlanStream stream,
          GError **error)
{
  memcpy (to, from, bytes);
  return TRUE;
}

static void *
cpu_stage (ExecDevice *device, guint64 bytes, GError **error)
{
  void *block = g_malloc (bytes);
  g_ptr_array_add (((CpuDevice *)device)->staged, block);
  return block;
}

static gboolean
cpu_record_or_wait (ExecDevice *device, guint32 event, PlanStream stream, GError **error)
{
  return TRUE;
}

static gboolean
cpu_sync (ExecDevice *device, guint32 event, GError **error)
{
  return TRUE;
}

static gboolean
cpu_settle_or_finish (ExecDevice *device, GError **error)
{
  return TRUE;
}

static gboolean
cpu_begin (ExecDevice *device, gboolean is_timed, GError **error)
{
  CpuDevice *self = (CpuDevice *)device;
  g_ptr_array_set_size (self->staged, 0);
  g_array_set_size (self->stamps, 0);
  self->begin_ns = now_ns ();
  return TRUE;
}

static gboolean
cpu_stamp (ExecDevice *device, PlanStream stream, guint *out_stamp, GError **error)
{
  CpuDevice *self = (CpuDevice *)device;
  const gint64 at_ns = now_ns () - self->begin_ns;
  *out_stamp = self->stamps->len;
  g_array_append_val (self->stamps, at_ns);
  return TRUE;
}

static gint64
cpu_stamp_ns (ExecDevice *device, guint stamp)
{
  return g_array_index (((const CpuDevice *)device)->stamps, gint64, stamp);
}

const ExecDeviceOps exec_device_cpu = {
  .is_immediate = TRUE,
  .open_comms = exec_comm_threads_open,
  .open = cpu_open,
  .close = cpu_close,
  .stream = cpu_stream,
  .run = cpu_run,
  .fill = cpu_fill,
  .copy = cpu_copy,
  .stage = cpu_stage,
  .put = cpu_copy,
  .get = cpu_copy,
  .record = cpu_record_or_wait,
  .wait = cpu_record_or_wait,
  .sync = cpu_sync,
  .settle = cpu_settle_or_finish,
  .finish = cpu_settle_or_finish,
  .begin = cpu_begin,
  .stamp = cpu_stamp,
  .stamp_ns = cpu_stamp_ns,
};

/* --- for any device ---------------------------------------------------------------------- */

/* Stages memory for the pieces of a read or write. */
static void *
stage_piece (ExecDevice *self, guint64 bytes, GError **error)
{
  return self->ops->begin (self, FALSE, error)
             ? self->ops->stage (self, MIN (PIECE_BYTES, bytes), error)
             : NULL;
}

gboolean
exec_device_write (ExecDevice *self, void *to, const void *from, guint64 bytes, GError **error)
{
  void *piece = stage_piece (self, bytes, error);
  for (guint64 at = 0, n; piece && at < bytes; at += n)
    {
      n = MIN (PIECE_BYTES, bytes - at);
      memcpy (piece, (const guint8 *)from + at, n);
      if (!self->ops->put (self, (guint8 *)to + at, piece, n, PLAN_STREAM_COMPUTE, error)
          || !self->ops->settle (self, error))
        return FALSE;
    }
  return piece != NULL;
}

gboolean
exec_device_read (ExecDevice *self, void *to, const void *from, guint64 bytes, GError **error)
{
  void *piece = stage_piece (self, bytes, error);
  for (guint64 at = 0, n; piece && at < bytes; at += n)
    {
      n = MIN (PIECE_BYTES, bytes - at);
      if (!self->ops->get (self, piece, (const guint8 *)from + at, n, PLAN_STREAM_COMPUTE, error)
          || !self->ops->settle (self, error))
        return FALSE;
      memcpy ((guint8 *)to + at, piece, n);
    }
  return piece != NULL;
}
