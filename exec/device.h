/* ExecDevice: where one rank's ops run: memory, streams and events, and copies in and out.
 *
 * The walk calls it in issue order and makes all decisions. An op may be complete when its call
 * returns (CPU) or when its stream reaches it (GPU). The host waits only where the schedule says so
 * and between sections; until then, data that it copies in or out lies in staged memory. A device
 * is opened by the thread that uses it; every `open` is followed by a `close`, after failures
 * too. */
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
  const PlanSchedule *schedule; /* whose ops, events and buffers the device is for */
  ExecComm *comm; /* of all ranks: says which GPU is this rank's and whether a rank is lost */
  guint64 memory_bytes, host_bytes;
  guint threads;          /* of a rank on a CPU; 0: one */
  guint more_scales;      /* scales beside one per buffer */
  gboolean is_registered; /* memory comes from the communicator, where it can register any */
  gboolean is_deterministic;
  gboolean keeps_steps; /* steps will be kept, see `keep` */
} ExecDeviceNeeds;

/* Backends embed this as the first member of their own struct. */
struct _ExecDevice
{
  const ExecDeviceOps *ops;
  guint8 *memory; /* the rank's memory, of memory_bytes bytes */
  guint8 *host;   /* memory of the host that the device copies to and from, of host_bytes bytes */
  float *scales; /* outside `memory`: one per buffer id, for formats with one scale per tensor; then
                    `more_scales` */
};

struct _ExecDeviceOps
{
  gboolean is_immediate; /* every op is complete when its call returns */

  /* Makes communicators for `ranks` threads of this process that share one machine's devices; see
   * exec_comm_threads_open. */
  gboolean (*open_comms) (guint ranks, ExecComm **out_comms, GError **error);

  ExecDevice *(*open) (const ExecDeviceNeeds *needs, GError **error);
  void (*close) (ExecDevice *self);

  /* The stream to pass to collectives; NULL where memory is the host's. */
  void *(*stream) (ExecDevice *self, PlanStream stream);

  gboolean (*run) (ExecDevice *self, const ExecArgs *args, PlanStream stream, GError **error);
  gboolean (*fill) (ExecDevice *self, void *at, int byte, guint64 bytes, PlanStream stream,
                    GError **error);
  gboolean (*copy) (ExecDevice *self, void *to, const void *from, guint64 bytes, PlanStream stream,
                    GError **error);

  /* Host memory that is valid until this section ends; `put` and `get` copy to and from such
   * memory. What `get` copies is there after the next `settle`, or `sync` with an event recorded
   * after it. */
  void *(*stage) (ExecDevice *self, guint64 bytes, GError **error);
  gboolean (*put) (ExecDevice *self, void *to, const void *staged, guint64 bytes, PlanStream stream,
                   GError **error);
  gboolean (*get) (ExecDevice *self, void *staged, const void *from, guint64 bytes,
                   PlanStream stream, GError **error);

  gboolean (*record) (ExecDevice *self, guint32 event, PlanStream stream, GError **error);
  gboolean (*wait) (ExecDevice *self, guint32 event, PlanStream stream, GError **error);

  /* The host waits: `sync` for an event, `settle` for copies in and out, `finish` for everything.
   * Meanwhile the communicator may find that another rank is lost. */
  gboolean (*sync) (ExecDevice *self, guint32 event, GError **error);
  gboolean (*settle) (ExecDevice *self, GError **error);
  gboolean (*finish) (ExecDevice *self, GError **error);

  /* Begins a section: staged memory may be reused. With `is_timed` stamps count from now on. */
  gboolean (*begin) (ExecDevice *self, gboolean is_timed, GError **error);

  /* Keeps a step and runs it again (a CUDA graph). Between `keep` and the next `launch` ops,
   * collectives and copies are recorded instead of run; that launch and all later ones run them,
   * with the constants given to it. All ranks call both together, between a `begin` and a `settle`;
   * each launch reads the staged memory anew. A second `keep` ends a first part of the step and
   * begins the rest: then `settle` waits for the first part, unless the rest has copies, too. Where
   * steps may be kept, `vary` is called with the step's constants before its ops. NULL: the device
   * cannot keep steps. */
  gboolean (*vary) (ExecDevice *self, const ExecConstants *constants, GError **error);
  gboolean (*keep) (ExecDevice *self, GError **error);
  gboolean (*launch) (ExecDevice *self, const ExecConstants *constants, GError **error);

  /* Bytes of the device in use by anyone: contexts, libraries and other ranks too. NULL: memory is
   * the host's. */
  gboolean (*taken) (ExecDevice *self, guint64 *out_bytes, GError **error);

  /* Takes the time at which the stream reaches this point. `stamp_ns` says it by the stamp's
   * number, once `finish` has returned. */
  gboolean (*stamp) (ExecDevice *self, PlanStream stream, guint *out_stamp, GError **error);
  gint64 (*stamp_ns) (ExecDevice *self, guint stamp);
};

/* The CPU: runs an op when it is issued, by the table's `run`. */
extern const ExecDeviceOps exec_device_cpu;

/* Copies in or out piece by piece through staged memory, and waits. Reuses staged memory, so only
 * between steps, after `finish`. */
gboolean exec_device_write (ExecDevice *self, void *to, const void *from, guint64 bytes,
                            GError **error);
gboolean exec_device_read (ExecDevice *self, void *to, const void *from, guint64 bytes,
                           GError **error);

G_END_DECLS
