/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/walk/stragglers.h"

#include <stdlib.h>
#include <string.h>

void
exec_rank_time (const ExecResult *result, gint64 steps, ExecRankTime *out)
{
  const gint64 skipped = steps > 1 ? 1 : 0, n = steps - skipped;
  /* Clears padding, too, because the bytes of the struct are sent to other ranks. */
  memset (out, 0, sizeof *out);
  if (result->trace)
    out->memory = result->trace->memory;
  for (gint64 s = skipped; s < steps; s++)
    {
      out->step_ns += result->step_ns[s] / n;
      out->own_ns += result->own_ns[s] / n;
      out->longest_step_ns = MAX (out->longest_step_ns, result->step_ns[s]);
    }
}

ExecRankTime *
exec_rank_times_gather (ExecComm *comm, const ExecRankTime *own, GError **error)
{
  g_autofree ExecRankTime *all = g_new0 (ExecRankTime, comm->ranks);
  if (!comm->ops->all_gather (comm, all, own, sizeof *own, PLAN_DTYPE_U8, NULL, error))
    return NULL;
  return g_steal_pointer (&all);
}

static int
compare_ns (const void *a, const void *b)
{
  const gint64 x = *(const gint64 *)a, y = *(const gint64 *)b;
  return (x > y) - (x < y);
}

static gint
slower_first (gconstpointer a, gconstpointer b, gpointer times)
{
  const guint x = *(const guint *)a, y = *(const guint *)b;
  const gint64 x_ns = ((const ExecRankTime *)times)[x].own_ns;
  const gint64 y_ns = ((const ExecRankTime *)times)[y].own_ns;
  return x_ns != y_ns ? (x_ns < y_ns) - (x_ns > y_ns) : (x > y) - (x < y);
}

double
exec_stragglers_over_pct (const ExecStragglers *self, const ExecRankTime *time)
{
  return self->median_own_ns > 0 ? 100 * ((double)time->own_ns / (double)self->median_own_ns - 1)
                                 : 0;
}

void
exec_stragglers_init (ExecStragglers *self, const ExecRankTime *times, guint ranks)
{
  g_autofree gint64 *sorted = g_new (gint64, ranks);
  *self = (ExecStragglers){ .stragglers = g_array_new (FALSE, FALSE, sizeof (guint)) };
  for (guint r = 0; r < ranks; r++)
    sorted[r] = times[r].own_ns;
  qsort (sorted, ranks, sizeof *sorted, compare_ns);
  self->median_own_ns = sorted[(ranks - 1) / 2];
  if (sorted[0] > 0)
    self->spread_pct = 100 * ((double)sorted[ranks - 1] / (double)sorted[0] - 1);
  for (guint r = 0; r < ranks; r++)
    {
      if (times[r].own_ns > times[self->slowest].own_ns)
        self->slowest = r;
      if (exec_stragglers_over_pct (self, &times[r]) > EXEC_STRAGGLES_PCT)
        g_array_append_val (self->stragglers, r);
    }
  g_array_sort_with_data (self->stragglers, slower_first, (gpointer)times);
}

void
exec_stragglers_clear (ExecStragglers *self)
{
  g_clear_pointer (&self->stragglers, g_array_unref);
}
