/* ExecStragglers: how far apart the times of a run's ranks are, and who holds the others up.
 *
 * A collective makes all ranks wait for the last one, so steps take the same everywhere; what tells
 * is a rank's own time, outside of collectives. */
#pragma once
#include "exec/comm.h"
#include "exec/walk/exec.h"
#include <glib.h>
G_BEGIN_DECLS

/* A straggler's own time is more than this over the median of all. */
#define EXEC_STRAGGLES_PCT 20

/* Means of one rank's steps; the first pays for warming up and is left out where there are more.
 * Beside them what it took. */
typedef struct
{
  gint64 step_ns, own_ns;
  gint64 longest_step_ns;
  PlanMemory memory;
} ExecRankTime;

typedef struct
{
  guint slowest;
  gint64 median_own_ns; /* of the ranks', the lower of two */
  double spread_pct;    /* slowest over fastest */
  GArray *stragglers;   /* guint, slowest first */
} ExecStragglers;

void exec_rank_time (const ExecResult *result, gint64 steps, ExecRankTime *out);

/* Every rank's, by rank; collective. The caller frees. */
ExecRankTime *exec_rank_times_gather (ExecComm *comm, const ExecRankTime *own, GError **error);

void exec_stragglers_init (ExecStragglers *self, const ExecRankTime *times, guint ranks);
void exec_stragglers_clear (ExecStragglers *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (ExecStragglers, exec_stragglers_clear)

/* How much longer than the median, in per cent. */
double exec_stragglers_over_pct (const ExecStragglers *self, const ExecRankTime *time);

G_END_DECLS
