/* ExecBench: times ops one by one.
 *
 * Each op gets a schedule of its own, which repeats it alone and is walked like any plan's, so what
 * is timed is what will run. The ops are those that plans are lowered to; their sizes form a grid
 * from small to large. */
#pragma once
#include "exec/walk/exec.h"
#include <glib.h>
G_BEGIN_DECLS

/* An op: its kind, dims, and the number formats of the operands it has (refs[i].array >= 0). */
typedef struct
{
  PlanOp op;
  PlanDtype dtype[PLAN_MAX_REFS];
  guint ranks;      /* ranks that run it at the same time, or take part in a collective */
  guint stride;     /* distance between ranks of a group; other groups do the same meanwhile */
  guint nodes;      /* nodes that they are on */
  ExecAlone params; /* of an op on parameters, or on moments with scales; else n is 0 */

  /* How it is timed, set by exec_bench_complete. There are `turns` copies of the operands, used in
   * turns, so that each has left the nearest caches when it is used again. On a device that runs
   * ops asynchronously, `fillers` writes of filler_bytes come before each `batch` of ops: by the
   * time they are done, the whole batch is issued and its ops wait only for each other. */
  PlanDeviceKind device;
  double slowdown; /* how many times as long its arithmetic takes as in bf16; 0: as long */
  guint64 scratch; /* in elements */
  guint turns, batch, fillers;
  guint64 filler_bytes;
} ExecBenchOp;

/* Why some ops cannot be timed, and how many they are; 0: unknown. */
typedef struct
{
  char *why;
  guint n;
} ExecBenchRefusal;

GArray *exec_bench_refusals_new (void);
void exec_bench_refuse (GArray *refusals, const char *why, guint n);

/* The ops of plans for this cluster, the quickest first, whose operands take no more than
 * `max_bytes` together (0: a default for the device). With several nodes, collectives are those of
 * all ranks, of the ranks of one node, and of one rank per node. Plans in formats that the device
 * lacks are added to `refusals`. */
GArray *exec_bench_ops (const PlanCluster *cluster, guint64 max_bytes, GArray *refusals,
                        GError **error);
void exec_bench_complete (ExecBenchOp *self, const PlanCluster *cluster, guint64 max_bytes);

/* exec_bench_guess_ns: a cautious guess of the op's time: today's machines take less.
 * exec_bench_repeats: how many batches to time in share_ns. Both are the same on all ranks. */
double exec_bench_guess_ns (const ExecBenchOp *self);
guint exec_bench_repeats (const ExecBenchOp *self, double share_ns);

/* The schedule of one rank: some batches to warm up, then `repeats` batches of the op. */
#define EXEC_BENCH_WARM_UP 2
PlanSchedule *exec_bench_schedule (const ExecBenchOp *self, guint rank, guint ranks, guint repeats);

/* Quantiles of measured times, by nearest rank; a batch counts by its mean. Where other programs
 * used the processor, so that the median is longer than the CPU time of an op, all times are scaled
 * so that the median is that CPU time. */
typedef struct
{
  gint64 p10_ns, q1_ns, median_ns, q3_ns, p90_ns;
  guint n;        /* number of ops; 0: refused */
  gint64 wall_ns; /* of all repeats */
  gint64 own_ns;  /* CPU time of this rank in them; wall_ns where that is not known */
} ExecBenchTimes;

/* Sorts `ns`. `work_ns`: mean CPU time of one op; 0: equal to the measured time. */
ExecBenchTimes exec_bench_summarise (gint64 *ns, guint n, gint64 work_ns);

/* What walks need beside a schedule: a case of the smallest model. */
typedef struct
{
  ExecJob job; /* the caller may set its `join` */
  PlanModel *model;
  PlanCase *of;
} ExecBenchFrame;

gboolean exec_bench_frame_init (ExecBenchFrame *self, const PlanCluster *cluster,
                                const ExecKernels *kernels, GError **error);
void exec_bench_frame_clear (ExecBenchFrame *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (ExecBenchFrame, exec_bench_frame_clear)

/* Whether the device can run the op, or an error that says why not. The kernels must be open. */
gboolean exec_bench_check (const ExecBenchFrame *frame, const ExecBenchOp *op, GError **error);

/* Times an op; all ranks of `comm` call it together. If any of them lacks memory, all skip the op:
 * out_times->n is 0, and the caller frees out_why, which says why or that another rank lacks it. As
 * with exec_run_schedule, the owner of the communicator aborts it when this fails. */
gboolean exec_bench_run (const ExecBenchFrame *frame, const ExecBenchOp *op, guint repeats,
                         ExecComm *comm, ExecBenchTimes *out_times, char **out_why, GError **error);

/* What one rank does with its communicator. */
typedef gboolean (*ExecBenchRank) (ExecComm *comm, gpointer user_data, GError **error);

/* Run a function on all ranks as threads of this process, or on the rank that this process is.
 * Libraries of the device stay open meanwhile. */
gboolean exec_bench_on_threads (const ExecBenchFrame *frame, guint ranks, ExecBenchRank run,
                                gpointer user_data, GError **error);
gboolean exec_bench_on_rank (const ExecBenchFrame *frame, ExecComm *comm, ExecBenchRank run,
                             gpointer user_data, GError **error);

G_END_DECLS
