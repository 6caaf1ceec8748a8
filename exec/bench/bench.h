/* ExecBench: ops timed one by one.
 *
 * Each is a schedule of its own, of that op alone and repeated, which is walked as any plan's is:
 * what is timed is what will run. Which ops there are is what plans are lowered to; their sizes are
 * a grid from small to large. */
#pragma once
#include "exec/walk/exec.h"
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
  ExecAlone params; /* of an op on parameters, or on moments with scales; n is 0 elsewhere */

  /* How it is timed, which exec_bench_complete finds. Operands are used in `turns`, so that each
   * has left the nearest caches when its turn comes. A device that runs ops by itself is given
   * something else to do before each `batch` of them, which writes pause_bytes, and often enough:
   * when it is done they are all issued, and wait for nothing but each other. */
  PlanDeviceKind device;
  double slower;   /* what arithmetic in its format takes, of that in bf16; 0: as much */
  guint64 scratch; /* elements */
  guint turns, batch, pauses;
  guint64 pause_bytes;
} ExecBenchOp;

/* Ops that cannot be timed, by reason, and how many; 0: it is not known. */
typedef struct
{
  char *why;
  guint n;
} ExecBenchRefusal;

GArray *exec_bench_refusals_new (void);
void exec_bench_refuse (GArray *refusals, const char *why, guint n);

/* What plans for so many ranks on such devices are made of, the quickest first, with operands of no
 * more than `max_bytes` together (0: as the device lets). Between several nodes collectives are of
 * all ranks, of those of a node, and of one of each. What the device has no format for is refused.
 */
GArray *exec_bench_ops (const PlanCluster *cluster, guint64 max_bytes, GArray *refusals,
                        GError **error);
void exec_bench_complete (ExecBenchOp *self, const PlanCluster *cluster, guint64 max_bytes);

/* About how long one takes, on a machine that is not too slow; and how many batches are timed where
 * that much time is meant for it. The same on all ranks. */
double exec_bench_guess_ns (const ExecBenchOp *self);
guint exec_bench_repeats (const ExecBenchOp *self, double share_ns);

/* The schedule of one rank: `repeats` batches of the op, after some that warm up. */
#define EXEC_BENCH_WARM_UP 2
PlanSchedule *exec_bench_schedule (const ExecBenchOp *self, guint rank, guint ranks, guint repeats);

/* Quantiles of what was seen, by nearest rank; of batches it is their mean. Where other programs
 * took the processor away, so that an op that computes took longer than its own work, all are
 * brought down to that in proportion. */
typedef struct
{
  gint64 p10_ns, q1_ns, median_ns, q3_ns, p90_ns;
  guint n;                /* ops; 0: it was refused */
  gint64 wall_ns, own_ns; /* of all repeats, and what this rank computed of them */
} ExecBenchTimes;

/* Sorts what it is given. `work_ns`: the mean that was computed for one; 0: as long as it took. */
ExecBenchTimes exec_bench_summarise (gint64 *ns, guint n, gint64 work_ns);

/* What walks need beside a schedule: the smallest plan that is there. */
typedef struct
{
  ExecJob job; /* its `join` is the caller's to set */
  PlanModel *model;
  PlanCase *of;
} ExecBenchFrame;

gboolean exec_bench_frame_init (ExecBenchFrame *self, const PlanCluster *cluster,
                                const ExecKernels *kernels, GError **error);
void exec_bench_frame_clear (ExecBenchFrame *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (ExecBenchFrame, exec_bench_frame_clear)

/* Whether the device here takes it; else why not. The kernels are open. */
gboolean exec_bench_check (const ExecBenchFrame *frame, const ExecBenchOp *op, GError **error);

/* One rank's part; all ranks of `comm` take one. Where a rank has no memory for it all leave it
 * out: out_times->n is 0, and out_why, the caller's, says why, or that it was another rank. As in
 * exec_run_schedule, who owns the communicator aborts it when this fails. */
gboolean exec_bench_run (const ExecBenchFrame *frame, const ExecBenchOp *op, guint repeats,
                         ExecComm *comm, ExecBenchTimes *out_times, char **out_why, GError **error);

/* What one rank does with its communicator. */
typedef gboolean (*ExecBenchRank) (ExecComm *comm, gpointer user_data, GError **error);

/* All ranks, as threads of this process; the same of a rank that is there. Meanwhile libraries of
 * the device stay open. */
gboolean exec_bench_on_threads (const ExecBenchFrame *frame, guint ranks, ExecBenchRank run,
                                gpointer user_data, GError **error);
gboolean exec_bench_on_rank (const ExecBenchFrame *frame, ExecComm *comm, ExecBenchRank run,
                             gpointer user_data, GError **error);

G_END_DECLS
