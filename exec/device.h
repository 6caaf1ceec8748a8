/* ExecDevice: where one rank's ops run: its memory, streams, events and the ways in and out.
 *
 * The walk calls it in issue order and decides everything else. An op may be done when its call
 * returns (the CPU), or when its stream gets there. The host waits where the schedule says so and
 * between sections; what it copies in and out passes through staged memory until then. Opened by
 * the thread that uses it; every `open` is followed by a `close`, after failures too. */
#pragma once
#include "exec/comm.h"
#include "planner/schedule/schedule.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct _ExecKernels ExecKernels;
typedef struct _ExecArgs ExecArgs;
typedef struct _ExecConstants ExecConstants;
typedef struct _ExecDevice ExecDevice;
typedef struct _ExecDeviceOps ExecDeviceOps;

typedef struct
{
  const ExecKernels *kernels;
  const PlanSchedule *schedule; /* its ops, events, and how many buffers there are */
  ExecComm *comm;               /* of all ranks: which GPU is this rank's, whether one is lost */
  guint64 memory_bytes;
  guint threads;          /* of a rank on processors; 0: one */
  guint more_scales;      /* beside those of buffers */
  gboolean is_registered; /* with the communicator, where that knows how to */
  gboolean is_deterministic;
  gboolean keeps_steps; /* `keep` will be called */
} ExecDeviceNeeds;

/* Devices put this first in a struct of their own. */
struct _ExecDevice
{
  const ExecDeviceOps *ops;
  guint8 *memory; /* memory_bytes of it */
  float *scales;  /* one per buffer id, then `more_scales`, beside the memory: of formats that have
                     one per tensor */
};

struct _ExecDeviceOps
{
  gboolean is_immediate; /* everything is done when its call returns */

  /* Communicators for as many threads of this process, whose devices are the same machine's; see
   * exec_comm_threads_open. */
  gboolean (*open_comms) (guint ranks, ExecComm **out_comms, GError **error);

  ExecDevice *(*open) (const ExecDeviceNeeds *needs, GError **error);
  void (*close) (ExecDevice *self);

  /* What collectives are given: NULL where memory is the host's. */
  void *(*stream) (ExecDevice *self, PlanStream stream);

  gboolean (*run) (ExecDevice *self, const ExecArgs *args, PlanStream stream, GError **error);
  gboolean (*fill) (ExecDevice *self, void *at, int byte, guint64 bytes, PlanStream stream,
                    GError **error);
  gboolean (*copy) (ExecDevice *self, void *to, const void *from, guint64 bytes, PlanStream stream,
                    GError **error);

  /* Memory of the host that lasts until this section ends; put and get take what lies in it. What
   * `get` copies is there after the next settle, or sync with an event behind it. */
  void *(*stage) (ExecDevice *self, guint64 bytes, GError **error);
  gboolean (*put) (ExecDevice *self, void *to, const void *staged, guint64 bytes, PlanStream stream,
                   GError **error);
  gboolean (*get) (ExecDevice *self, void *staged, const void *from, guint64 bytes,
                   PlanStream stream, GError **error);

  gboolean (*record) (ExecDevice *self, guint32 event, PlanStream stream, GError **error);
  gboolean (*wait) (ExecDevice *self, guint32 event, PlanStream stream, GError **error);

  /* The host waits: for an event, for what was copied in and out, for everything. Meanwhile a comm
   * may find that another rank is lost. */
  gboolean (*sync) (ExecDevice *self, guint32 event, GError **error);
  gboolean (*settle) (ExecDevice *self, GError **error);
  gboolean (*finish) (ExecDevice *self, GError **error);

  /* Begins a section: staged memory is free again. Where `is_timed`, stamps count from now. */
  gboolean (*begin) (ExecDevice *self, gboolean is_timed, GError **error);

  /* What a step is made of, issued once and run again and again: from `keep` on ops, collectives
   * and copies are not run but kept, up to the next `launch`, which runs all of them, as every
   * later one does, with the constants it is given. All ranks call them together, between a `begin`
   * and a `settle`; staged memory that is copied from is read at each launch. Where steps may be
   * kept `vary` comes before the ops of each, with the constants of that step. NULL: the device
   * keeps nothing. */
  gboolean (*vary) (ExecDevice *self, const ExecConstants *constants, GError **error);
  gboolean (*keep) (ExecDevice *self, GError **error);
  gboolean (*launch) (ExecDevice *self, const ExecConstants *constants, GError **error);

  /* Bytes that are in use on the device, by anyone: with its context, libraries and other ranks on
   * it. NULL: memory is the host's. */
  gboolean (*taken) (ExecDevice *self, guint64 *out_bytes, GError **error);

  /* When the stream gets here; the number to ask for it by, once everything is finished. */
  gboolean (*stamp) (ExecDevice *self, PlanStream stream, guint *out_stamp, GError **error);
  gint64 (*stamp_ns) (ExecDevice *self, guint stamp);
};

/* Runs an op when it is issued, by a table's `run`. */
extern const ExecDeviceOps exec_device_cpu;

/* Copies in or out at once, piece by piece, through staged memory, which begins anew: between steps
 * only, once everything is finished. */
gboolean exec_device_write (ExecDevice *self, void *to, const void *from, guint64 bytes,
                            GError **error);
gboolean exec_device_read (ExecDevice *self, void *to, const void *from, guint64 bytes,
                           GError **error);

G_END_DECLS
