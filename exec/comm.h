/* ExecComm: collectives among the ranks of a run, or of a group of them.
 *
 * Every rank calls the same functions in the same order. Reductions sum in fp32 in
 * rank order and round once to the buffer's format (`rank_order_fp32`), so all
 * backends give the same bits. A rank that fails calls abort; the others' calls
 * then return an error instead of waiting for it.
 *
 * With a stream (ExecDeviceOps.stream) memory is the device's and the collective is
 * done when the stream gets there; without one it is the host's, and done when the
 * call returns. Where there are streams, both are there. */
#pragma once
#include "planner/base/dtype.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct _ExecComm ExecComm;
typedef struct _ExecPlacement ExecPlacement;

typedef struct
{
  const char *name;
  const char *summary;
  gboolean has_graphs;       /* what streams are given can be kept by ExecDeviceOps.keep */
  gboolean has_graphs_apart; /* by each rank for itself; else by one for all, who share a GPU */

  /* out = every rank's `count` elements in rank order; `in` may lie inside `out` in its place. */
  gboolean (*all_gather) (ExecComm *self, void *out, const void *in, guint64 count, PlanDtype dtype,
                          void *stream, GError **error);

  /* out = this rank's `count` elements of the sum of the ranks' `in` (count x ranks elements);
   * `out` may be this rank's own place inside `in`. */
  gboolean (*reduce_scatter) (ExecComm *self, void *out, const void *in, guint64 count,
                              PlanDtype dtype, void *stream, GError **error);

  /* out = from every rank, in rank order, its `count` elements for this one; apart from `in`. */
  gboolean (*all_to_all) (ExecComm *self, void *out, const void *in, guint64 count, PlanDtype dtype,
                          void *stream, GError **error);

  gboolean (*all_reduce) (ExecComm *self, void *buf, guint64 count, PlanDtype dtype, void *stream,
                          GError **error);

  /* buf = element by element the largest of the ranks', which on GPUs are no less than 0; where one
   * is a NaN, that, or infinity. */
  gboolean (*all_reduce_max) (ExecComm *self, void *buf, guint64 count, PlanDtype dtype,
                              void *stream, GError **error);
  gboolean (*barrier) (ExecComm *self, GError **error);

  /* This rank's `count` elements to rank `peer`, as many of that one's here; `in` or `out` is NULL
   * where the peer has the other one NULL. Only these two call it. NULL: there are no pipelines. */
  gboolean (*trade) (ExecComm *self, void *out, const void *in, guint64 count, PlanDtype dtype,
                     guint peer, void *stream, GError **error);

  /* Whether what was issued can still end: another rank may be lost. NULL: it can. */
  gboolean (*check) (ExecComm *self, GError **error);

  /* The host waits until all that was issued has ended; what is issued on a stream, as a whole, is
   * one more thing that can end. NULL: there is nothing to know. */
  gboolean (*settle) (ExecComm *self, GError **error);
  gboolean (*follow) (ExecComm *self, const char *what, void *stream, GError **error);

  /* Memory of the device that collectives reach without a copy; NULL: they reach any. */
  void *(*take) (ExecComm *self, guint64 bytes, GError **error);
  void (*give_back) (ExecComm *self, void *memory);

  /* See exec_comm_group; NULL where there is one rank. */
  ExecComm *(*group) (ExecComm *self, guint size, guint stride, GError **error);
  void (*abort) (ExecComm *self, const char *why);
  void (*close) (ExecComm *self);
} ExecCommOps;

/* Backends put this first in a struct of their own. */
struct _ExecComm
{
  const ExecCommOps *ops;
  guint rank, ranks;
  guint32 node;     /* of the schedule, that the next call is for: a late error names it */
  gint64 unit;      /* and its unit */
  guint gpu;        /* of this machine's, the one that this rank uses */
  guint sms;        /* of a GPU's, that a collective holds while it runs; 0: not known, or none */
  guint gather_sms; /* the same of gathers in registered memory */
  guint timeout_s;  /* how long a call waits for other ranks before it fails; 0: for ever */
  const ExecPlacement *placement; /* names their hosts in messages; NULL: not known */
  GPtrArray *groups;              /* ExecCommGroup, made so far; NULL: none */
};

/* The communicator of `size` ranks, every `stride`th, around this one (a PlanGroup), that `name`
 * uses: collectives of another name do not wait for its own. All ranks ask for the same groups in
 * the same order; what was made before is given again, and the first that has all ranks is this
 * communicator itself. It is closed with the one that it is a group of, and fails when that is
 * aborted. */
ExecComm *exec_comm_group (ExecComm *self, const char *name, guint size, guint stride,
                           GError **error);

/* For backends: the group that a rank belongs to, counted from 0; closing what was made. */
guint exec_comm_group_of (guint rank, guint size, guint stride);
void exec_comm_close_groups (ExecComm *self);

/* One rank: copies. */
ExecComm *exec_comm_self_open (void);

/* `ranks` communicators for `ranks` threads of this process; each is closed by its own thread. */
gboolean exec_comm_threads_open (guint ranks, ExecComm **out_comms, GError **error);

/* This process's rank of MPI_COMM_WORLD; exec/mpi. NULL with UNSUPPORTED in a build without MPI. */
ExecComm *exec_comm_mpi_open (GError **error);

/* TRUE when an MPI launcher started this process (its environment says so). */
gboolean exec_comm_mpi_is_launched (void);

/* Makes one array of `count` elements of `ranks` of them. */
typedef void (*ExecCommFold) (void *out, const void *const *in, guint ranks, guint64 count,
                              PlanDtype dtype);

/* Their sum, in order, in fp32, rounded once. */
void exec_comm_sum (void *out, const void *const *in, guint ranks, guint64 count, PlanDtype dtype);

/* The largest; where one is a NaN, that. */
void exec_comm_max (void *out, const void *const *in, guint ranks, guint64 count, PlanDtype dtype);

G_END_DECLS
