/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures of one plan's prediction; of a pipeline, of its stages. */
#include "config.h"

#include "cli/plot/plot-kinds.h"

#include "plots/plot.h"

/* Draws the stages side by side; of more stages than a picture holds, some at equal distances. */
static gboolean
plot_stages (const AdvisePrediction *p, guint64 capacity_bytes, const char *title, const char *path,
             char **out_text, GError **error)
{
  g_autoptr (GPtrArray) labels = g_ptr_array_new_with_free_func (g_free);
  g_autoptr (GArray) bars = g_array_new (FALSE, FALSE, sizeof (PlotBreakdown));
  const guint n = MIN (p->stages->len, PLOT_MAX_BARS);
  for (guint i = 0; i < n; i++)
    {
      const guint stage = n > 1 ? i * (p->stages->len - 1) / (n - 1) : 0;
      const AdviseStage *of = &g_array_index (p->stages, AdviseStage, stage);
      g_autofree char *layers = advise_stage_describe (of);
      g_ptr_array_add (labels, g_strdup_printf ("stage %u: %s", stage, layers));
      const PlotBreakdown bar = { .label = labels->pdata[i], .trace = of->totals };
      g_array_append_val (bars, bar);
    }
  return plot_breakdown ((const PlotBreakdown *)(gpointer)bars->data, bars->len, capacity_bytes,
                         title, path, out_text, error);
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
