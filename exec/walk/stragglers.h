/* ExecStragglers: how far the ranks' times are apart, and which ranks hold the others up.
 *
 * Collectives make all ranks wait for the slowest one, so a step takes equally long on all of them.
 * What identifies a straggler is a rank's own time, outside of collectives. */
#pragma once
#include "exec/comm.h"
#include "exec/walk/exec.h"
#include <glib.h>
G_BEGIN_DECLS

/* A rank is a straggler when its own time exceeds the median of all ranks by more than this. */
#define EXEC_STRAGGLES_PCT 20

/* Times of one rank's steps, and the memory that the rank used. Where there are several steps the
 * first is left out, since it warms up. */
typedef struct
{
  gint64 step_ns, own_ns; /* mean of the steps, and of the parts outside of collectives */
  gint64 longest_step_ns;
  PlanMemory memory;
} ExecRankTime;

typedef struct
{
  guint slowest;
  gint64 median_own_ns; /* median of the ranks' own times, the lower of the two middle ones */
  double spread_pct;    /* how much longer the slowest rank takes than the fastest */
  GArray *stragglers;   /* guint ranks, slowest first */
} ExecStragglers;

void exec_rank_time (const ExecResult *result, gint64 steps, ExecRankTime *out);

/* The times of all ranks, indexed by rank. A collective: all ranks call it. The caller frees. */
ExecRankTime *exec_rank_times_gather (ExecComm *comm, const ExecRankTime *own, GError **error);

void exec_stragglers_init (ExecStragglers *self, const ExecRankTime *times, guint ranks);
void exec_stragglers_clear (ExecStragglers *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (ExecStragglers, exec_stragglers_clear)

/* How much longer than the median a rank's own time is, in per cent. */
double exec_stragglers_over_pct (const ExecStragglers *self, const ExecRankTime *time);

G_END_DECLS
