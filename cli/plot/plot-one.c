/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures of one plan's prediction; of a pipeline, of its stages. */
#include "config.h"

#include "cli/plot/plot-kinds.h"

#include "plots/plot.h"

/* Chooses the stages of a picture in `out`, in order, and returns how many: all, or of more than it
 * holds the first and the last, the fullest, which decides whether the plan fits, and others at
 * about equal distances. */
static guint
choose_stages (const AdvisePrediction *p, guint out[static PLOT_MAX_BARS])
{
  const guint last = p->stages->len - 1, n = MIN (p->stages->len, PLOT_MAX_BARS);
  guint nearest = 1;
  for (guint i = 0; i < n; i++)
    {
      out[i] = n > 1 ? i * last / (n - 1) : 0;
      if (i > 0 && i < n - 1
          && ABS ((gint)out[i] - (gint)p->fullest) < ABS ((gint)out[nearest] - (gint)p->fullest))
        nearest = i;
    }
  if (n > 2 && p->fullest > 0 && p->fullest < last)
    out[nearest] = p->fullest;
  return n;
}

/* Draws the stages side by side. */
static gboolean
plot_stages (const AdvisePrediction *p, guint64 capacity_bytes, const char *title, const char *path,
             char **out_text, GError **error)
{
  g_autoptr (GPtrArray) labels = g_ptr_array_new_with_free_func (g_free);
  g_autoptr (GArray) bars = g_array_new (FALSE, FALSE, sizeof (PlotBreakdown));
  guint stages[PLOT_MAX_BARS];
  const guint n = choose_stages (p, stages);
  g_autofree char *some = n < p->stages->len
                              ? g_strdup_printf ("%s\n%u of %u stages, with the fullest, stage %u",
                                                 title, n, p->stages->len, p->fullest)
                              : g_strdup (title);
  for (guint i = 0; i < n; i++)
    {
      const AdviseStage *of = &g_array_index (p->stages, AdviseStage, stages[i]);
      g_autofree char *layers = advise_stage_describe (of);
      g_ptr_array_add (labels, g_strdup_printf ("stage %u: %s", stages[i], layers));
      const PlotBreakdown bar = { .label = labels->pdata[i], .trace = of->totals };
      g_array_append_val (bars, bar);
    }
  return plot_breakdown ((const PlotBreakdown *)(gpointer)bars->data, bars->len, capacity_bytes,
                         some, path, out_text, error);
}

gboolean
cli_plot_time (const AdvisePrediction *p, const char *title, const char *path, char **out_text,
               GError **error)
{
  if (p->expanded->len > 0)
    return plot_pipeline ((const PlanTraceView *)(gconstpointer)p->expanded->data, NULL,
                          p->expanded->len, title, path, out_text, error);
  return plot_timeline (p->trace, NULL, p->schedule, title, path, out_text, error);
}

gboolean
cli_plot_memory (const AdvisePrediction *p, guint64 capacity_bytes, const char *title,
                 const char *path, char **out_text, GError **error)
{
  if (p->stages->len > 0)
    return plot_stages (p, capacity_bytes, title, path, out_text, error);
  return plot_memory (p->trace, NULL, p->schedule, title, path, out_text, error);
}
