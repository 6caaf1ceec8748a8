/* ExecComm: collectives among the ranks of a run, or of a group of them.
 *
 * Every rank calls the same functions in the same order. Reductions add up in fp32, in rank order,
 * and round once to the buffer's format, so all backends give the same bits; except NCCL's on
 * streams, which add in an order of their own (exec_comm_nccl_sum_error). A rank that fails calls
 * `abort`; the calls of the others then fail instead of waiting for it.
 *
 * Given a stream (ExecDeviceOps.stream), memory is the device's and the collective is complete when
 * the stream reaches it; without one memory is the host's and the collective is complete when the
 * call returns. Backends for devices take both. */
#pragma once
#include "planner/base/dtype.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct _ExecComm ExecComm;
typedef struct _ExecPlacement ExecPlacement;

typedef struct
{
  void *out;
  const void *in;
  guint64 count;
  PlanDtype dtype;
} ExecCommPart; /* one of several gathers or reductions */

typedef struct
{
  const char *name;
  const char *summary;
  gboolean has_graphs;       /* collectives on streams can be recorded by ExecDeviceOps.keep */
  gboolean has_graphs_apart; /* each rank records its own graph; FALSE: all ranks, which then share
                                a GPU, record one together */

  /* out = every rank's `count` elements, in rank order. `in` may be this rank's place inside
   * `out`. */
  gboolean (*all_gather) (ExecComm *self, void *out, const void *in, guint64 count, PlanDtype dtype,
                          void *stream, GError **error);

  /* out = this rank's `count` elements of the sum over ranks of `in` (count x ranks elements).
   * `out` may be this rank's place inside `in`. */
  gboolean (*reduce_scatter) (ExecComm *self, void *out, const void *in, guint64 count,
                              PlanDtype dtype, void *stream, GError **error);

  /* out = the `count` elements that each rank has for this one, in rank order. `in` and `out` must
   * not overlap. */
  gboolean (*all_to_all) (ExecComm *self, void *out, const void *in, guint64 count, PlanDtype dtype,
                          void *stream, GError **error);

  /* out = the `count` elements `in` of the rank `distance` before this one; the rank before rank 0
   * is the last. `in` and `out` must not overlap. */
  gboolean (*exchange) (ExecComm *self, void *out, const void *in, guint64 count, PlanDtype dtype,
                        guint distance, void *stream, GError **error);

  /* `n` all_gathers on one stream, or with `reduces` reduce_scatters, as one call. NULL: each takes
   * a call of its own. */
  gboolean (*together) (ExecComm *self, gboolean reduces, const ExecCommPart *parts, guint n,
                        void *stream, GError **error);

  /* buf = the sum over ranks of `buf`; element by element the largest value of all ranks, and NaN
   * or infinity where a rank has a NaN. */
  gboolean (*all_reduce) (ExecComm *self, void *buf, guint64 count, PlanDtype dtype, void *stream,
                          GError **error);
  gboolean (*all_reduce_max) (ExecComm *self, void *buf, guint64 count, PlanDtype dtype,
                              void *stream, GError **error);
  gboolean (*barrier) (ExecComm *self, GError **error);

  /* Tells all ranks whether this one says yes, and waits for nothing but the answer to the vote
   * before: whether any rank said yes then. NULL: all_reduce_max is as good. */
  gboolean (*vote) (ExecComm *self, gboolean yes, gboolean *out_before, GError **error);

  /* Sends `count` elements to rank `peer` and receives as many from it. `in` may be NULL if the
   * peer's `out` is, and `out` if its `in` is. Only these two ranks call it. NULL: no pipelines. */
  gboolean (*trade) (ExecComm *self, void *out, const void *in, guint64 count, PlanDtype dtype,
                     guint peer, void *stream, GError **error);

  /* Fails if what was issued can no longer end because another rank is lost. NULL: that is not
   * checked. */
  gboolean (*check) (ExecComm *self, GError **error);

  /* Calls the roll when another library's collective does not end: waits until all ranks have
   * called this; fails after the timeout and names those that have not. NULL: there is no roll, as
   * among threads, of which none is lost alone. */
  gboolean (*roll) (ExecComm *self, GError **error);

  /* `settle`: the host waits until every collective that was issued has ended. `follow`: from now
   * on `settle` also waits for the work issued on `stream`, which errors call `what`. NULL: nothing
   * is ever pending. */
  gboolean (*settle) (ExecComm *self, GError **error);
  gboolean (*follow) (ExecComm *self, const char *what, void *stream, GError **error);

  /* Allocates device memory that collectives reach without a copy, and frees it. NULL: any memory
   * will do. */
  void *(*take) (ExecComm *self, guint64 bytes, GError **error);
  void (*give_back) (ExecComm *self, void *memory);

  /* See exec_comm_group. NULL: there is only one rank. */
  ExecComm *(*group) (ExecComm *self, guint size, guint stride, GError **error);
  void (*abort) (ExecComm *self, const char *why);
  void (*close) (ExecComm *self);
} ExecCommOps;

/* Backends embed this as the first member of their own struct. */
struct _ExecComm
{
  const ExecCommOps *ops;
  guint rank, ranks;
  guint32 node;     /* the op that the next call is for, named by errors that come late */
  gint64 unit;      /* the unit of that op */
  guint gpu;        /* number of the GPU of this host that this rank uses */
  guint sms;        /* SMs of a GPU that a collective holds while it runs; 0: unknown or none */
  guint gather_sms; /* SMs that a gather in registered memory holds */
  guint timeout_s;  /* how long a call waits for other ranks before it fails; 0: forever */
  const ExecPlacement *placement; /* the ranks' hosts, for messages; NULL: not known */
  GPtrArray *groups;              /* ExecCommGroup: the groups made so far; NULL: none */
};

/* The communicator of this rank's group of `size` ranks, every `stride`th (a PlanGroup). Groups
 * that differ in `name` alone have communicators of their own, so that their collectives do not
 * wait for each other. All ranks ask for the same groups in the same order; asking again returns
 * the same one. The first group that consists of all ranks is `self`. Groups are closed with `self`
 * and fail when it is aborted. */
ExecComm *exec_comm_group (ExecComm *self, const char *name, guint size, guint stride,
                           GError **error);

/* For backends. The first gives the number, from 0, of the group that a rank belongs to; the second
 * closes all groups of a communicator; the others are the ranks so many places before and behind
 * this one in the ring of all. */
guint exec_comm_group_of (guint rank, guint size, guint stride);
void exec_comm_close_groups (ExecComm *self);
guint exec_comm_behind (const ExecComm *self, guint distance);
guint exec_comm_ahead (const ExecComm *self, guint distance);

/* The communicator of a single rank, whose collectives are copies; `ranks` communicators for
 * `ranks` threads of this process; each is closed by its own thread. */
ExecComm *exec_comm_self_open (void);
gboolean exec_comm_threads_open (guint ranks, ExecComm **out_comms, GError **error);

ExecComm *exec_comm_mpi_open (GError **error); /* UNSUPPORTED in a build without MPI */
gboolean exec_comm_mpi_is_launched (void);     /* by an MPI launcher, as its environment says */

/* Combines `ranks` arrays of `count` elements into one: their sum, in rank order, in fp32, rounded
 * once; their largest element, NaN where one of them is. */
typedef void (*ExecCommFold) (void *out, const void *const *in, guint ranks, guint64 count,
                              PlanDtype dtype);
void exec_comm_sum (void *out, const void *const *in, guint ranks, guint64 count, PlanDtype dtype);
void exec_comm_max (void *out, const void *const *in, guint ranks, guint64 count, PlanDtype dtype);

G_END_DECLS
