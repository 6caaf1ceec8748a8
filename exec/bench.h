/* ExecBench: ops timed one by one.
 *
 * Each is a schedule of its own, of that op alone and repeated, which is walked as any plan's is:
 * what is timed is what will run. Which ops there are is what plans are lowered to; their sizes are
 * a grid from small to large. */
#pragma once
#include "exec/exec.h"
#include <glib.h>
G_BEGIN_DECLS

/* An op by its kind, its dims, and the formats of those operands that it has (refs[i].array >= 0).
 */
typedef struct
{
  PlanOp op;
  PlanDtype dtype[PLAN_MAX_REFS];
  guint ranks;  /* that compute side by side, or take part in a collective */
  guint stride; /* from one of those that take part to the next; all others do the same meanwhile */
  guint nodes;  /* that they lie on */
} ExecBenchOp;

/* What plans for so many ranks on processors are made of, the quickest first. Between several nodes
 * collectives are of all ranks, of those of a node, and of one of each. */
GArray *exec_bench_ops (const PlanCluster *cluster, GError **error);

/* About how long one takes, on a machine that is not too slow; and how often it is timed where that
 * much time is meant for it. The same on all ranks. */
double exec_bench_guess_ns (const ExecBenchOp *self);
guint exec_bench_repeats (const ExecBenchOp *self, double share_ns);

/* The schedule of one rank: `repeats` of the op, after some that warm up. */
#define EXEC_BENCH_WARM_UP 2
PlanSchedule *exec_bench_schedule (const ExecBenchOp *self, guint rank, guint ranks, guint repeats);

/* Quantiles of what was seen, by nearest rank. Where other programs took the processor away, so
 * that an op that computes took longer than its own work, all are brought down to that in
 * proportion. */
typedef struct
{
  gint64 p10_ns, q1_ns, median_ns, q3_ns, p90_ns;
  guint n;
  gint64 wall_ns, own_ns; /* of all repeats, and what this rank computed of them */
} ExecBenchTimes;

/* Sorts what it is given. `work_ns`: the mean that was computed for one; 0: as long as it took. */
ExecBenchTimes exec_bench_summarise (gint64 *ns, guint n, gint64 work_ns);

/* What walks need beside a schedule: the smallest plan that is there. */
typedef struct
{
  ExecJob job;
  PlanModel *model;
  Plan plan;
} ExecBenchFrame;

gboolean exec_bench_frame_init (ExecBenchFrame *self, const PlanCluster *cluster,
                                const ExecKernels *kernels, GError **error);
void exec_bench_frame_clear (ExecBenchFrame *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (ExecBenchFrame, exec_bench_frame_clear)

/* One rank's part; all ranks of `comm` take one. As in exec_run_schedule, who owns the communicator
 * aborts it when this fails. */
gboolean exec_bench_run (const ExecBenchFrame *frame, const ExecBenchOp *op, guint repeats,
                         ExecComm *comm, ExecBenchTimes *out_times, GError **error);

/* All ranks as threads of this process; the times are those that rank 0 saw. */
gboolean exec_bench_run_threads (const ExecBenchFrame *frame, const ExecBenchOp *op, guint repeats,
                                 guint ranks, ExecBenchTimes *out_times, GError **error);

G_END_DECLS
