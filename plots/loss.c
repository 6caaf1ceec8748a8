/* SPDX-License-Identifier: Apache-2.0 */
/* Losses of runs by step, and their evaluations. */
#include "config.h"

#include "planner/base/error.h"
#include "plots/plot-private.h"

#include <math.h>

static const char script[] =
#include "plots/loss.gp.inc"
    ;

#define MAX_RUNS 8 /* more could not be told apart */
#define MOST_POINTS 600

/* The number of steps that are drawn as one point, their mean. */
static guint
steps_per_point (const PlotLossRun *run)
{
  return (run->n + MOST_POINTS - 1) / MOST_POINTS;
}

/* Appends the losses, with a gap where one is not a number. */
static void
append_losses (GString *data, const PlotLossRun *run)
{
  const guint of_point = steps_per_point (run);
  for (guint from = 0; from < run->n; from += of_point)
    {
      const guint to = MIN (from + of_point, run->n);
      double step = 0, loss = 0;
      for (guint i = from; i < to; i++)
        {
          step += (double)run->steps[i].step / (to - from);
          loss += run->steps[i].loss / (to - from);
        }
      if (isfinite (loss))
        {
          plot_append_real (data, step, 1);
          g_string_append_c (data, ' ');
          plot_append_real (data, loss, 6);
        }
      g_string_append_c (data, '\n');
    }
}

static void
append_evaluations (GString *data, const PlotLossRun *run)
{
  for (guint i = 0; i < run->n; i++)
    if (isfinite (run->steps[i].eval_loss))
      {
        g_string_append_printf (data, "%" G_GINT64_FORMAT " ", run->steps[i].step);
        plot_append_real (data, run->steps[i].eval_loss, 6);
        g_string_append_c (data, '\n');
      }
}

static gboolean
has_losses (const PlotLossRun *run)
{
  for (guint i = 0; i < run->n; i++)
    if (isfinite (run->steps[i].loss))
      return TRUE;
  return FALSE;
}

static gboolean
has_evaluations (const PlotLossRun *run)
{
  for (guint i = 0; i < run->n; i++)
    if (isfinite (run->steps[i].eval_loss))
      return TRUE;
  return FALSE;
}

static GString *
make_data (const PlotLossRun *runs, guint n_runs)
{
  GString *data = g_string_new (NULL);
  for (guint k = 0; k < n_runs; k++)
    {
      g_autofree char *losses = g_strdup_printf ("run%u", k + 1);
      g_autofree char *evaluations = g_strdup_printf ("eval%u", k + 1);
      plot_begin_block (data, losses, "step loss");
      append_losses (data, &runs[k]);
      if (!has_evaluations (&runs[k]))
        continue;
      plot_begin_block (data, evaluations, "step eval_loss");
      append_evaluations (data, &runs[k]);
    }
  return data;
}

char *
plot_loss_data (const PlotLossRun *runs, guint n_runs)
{
  return g_string_free (make_data (runs, n_runs), FALSE);
}

static gboolean
check (const PlotLossRun *runs, guint n_runs, GError **error)
{
  if (n_runs == 0 || n_runs > MAX_RUNS)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "cannot draw the losses of %u runs: 1 to %d can be told apart", n_runs,
                   MAX_RUNS);
      return FALSE;
    }
  for (guint k = 0; k < n_runs; k++)
    if (!has_losses (&runs[k]))
      {
        g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                     "cannot draw the losses of %s: it has no step with a finite loss",
                     runs[k].label);
        return FALSE;
      }
  return TRUE;
}

static void
set_keys (const PlotLossRun *runs, guint n_runs, PlotFigure *figure)
{
  guint n_evaluated = 0;
  /* gnuplot reads the first element even of a loop that never runs */
  g_string_append_printf (figure->settings,
                          "n_runs = %u\narray key[%u]\narray evaluated[%u]\nevaluated[1] = 1\n",
                          n_runs, n_runs, n_runs);
  for (guint k = 0; k < n_runs; k++)
    {
      g_autofree char *key = g_strdup_printf ("key[%u]", k + 1);
      plot_figure_set_text (figure, key, runs[k].label);
      if (has_evaluations (&runs[k]))
        g_string_append_printf (figure->settings, "evaluated[%u] = %u\n", ++n_evaluated, k + 1);
    }
  g_string_append_printf (figure->settings, "n_evaluated = %u\n", n_evaluated);
}

/* Steps from the first to the last of all runs. */
static gint64
n_steps (const PlotLossRun *runs, guint n_runs)
{
  gint64 first = G_MAXINT64, last = G_MININT64;
  for (guint k = 0; k < n_runs; k++)
    for (guint i = 0; i < runs[k].n; i++)
      {
        first = MIN (first, runs[k].steps[i].step);
        last = MAX (last, runs[k].steps[i].step);
      }
  return last - first;
}

gboolean
plot_loss (const PlotLossRun *runs, guint n_runs, const char *title, const char *path,
           char **out_text, GError **error)
{
  g_auto (PlotFigure) figure = { 0 };
  g_autofree char *note = NULL;
  guint most = 1;
  if (!plot_figure_init (&figure, path, script, error) || !check (runs, n_runs, error))
    return FALSE;
  for (guint k = 0; k < n_runs; k++)
    most = MAX (most, steps_per_point (&runs[k]));
  if (most > 1)
    note = g_strdup_printf ("each point is the mean of up to %u steps", most);
  figure.data = g_string_free (make_data (runs, n_runs), FALSE);
  plot_figure_set_title (&figure, title, note);
  set_keys (runs, n_runs, &figure);
  plot_figure_set_real (&figure, "n_steps", (double)n_steps (runs, n_runs));
  return plot_figure_draw (&figure, out_text, error);
}
