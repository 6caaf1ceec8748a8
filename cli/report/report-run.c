/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/report/report-run.h"

#include "cli/plot/plot-kinds.h"
#include "cli/report/report-html.h"
#include "cli/report/report-parts.h"
#include "plots/plot.h"

#include <math.h>

typedef struct
{
  CliReport page;
  CliStoredRun *run;
} Page;

/* Begins the page with what ran, where and how it ended. */
static void
add_summary (Page *self, const char *title)
{
  const DbRun *row = &self->run->row;
  g_autoptr (GArray) rows = cli_rows_new ();
  g_auto (GStrv) settings = g_strsplit (row->settings ? row->settings : "not recorded", "\n", -1);
  g_autofree char *setting_words = g_strchomp (g_strjoinv (" ", settings));
  cli_html_add (self->page.html, "<section>\n<h1>", title, "</h1>\n");
  cli_rows_add (rows, "state", "%s, begun %s", row->state, row->created);
  if (row->message)
    cli_rows_add (rows, "message", "%s", row->message);
  cli_rows_add (rows, "on", "%s, host %s", row->device, row->host);
  cli_rows_add (rows, "ran",
                "%" G_GINT64_FORMAT " steps on %" G_GINT64_FORMAT " ranks, joined by %s",
                row->steps, row->ranks, row->comm);
  cli_rows_add (rows, "data", "%s, seed %" G_GINT64_FORMAT, row->data ? row->data : "not recorded",
                row->seed);
  cli_rows_add (rows, "settings", "%s", setting_words);
  cli_rows_add (rows, "made by", "fsdplan %s, backend %s; this page by %s", row->program_version,
                row->backend, PACKAGE_VERSION);
  cli_report_add_rows (&self->page, rows);
}

static void
add_pair (CliTable *table, const char *what, double predicted, double measured)
{
  cli_table_add (table, what);
  cli_table_add_real (table, predicted, 3);
  cli_table_add_real (table, measured, 3);
  if (measured > 0)
    cli_table_add_real (table, 100 * (predicted - measured) / measured, 1);
  else
    cli_table_add (table, NULL);
}

/* The table of predicted and measured values that `fsdplan run` prints. */
static CliTable *
comparison (const CliStoredRun *run)
{
  static const CliColumn columns[] = {
    { "quantity", FALSE }, { "predicted", TRUE }, { "measured", TRUE }, { "error_pct", TRUE }
  };
  CliTable *table = cli_table_new (columns, G_N_ELEMENTS (columns));
  if (run->row.measured_step_ns > 0)
    add_pair (table, "step_ms", 1e-6 * (double)run->row.predicted_step_ns,
              1e-6 * (double)run->row.measured_step_ns);
  if (!run->simulated)
    return table;
  const PlanMemory *p = &run->simulated->memory, *m = &run->measured->memory;
  add_pair (table, "allocated_mib", advise_mib (p->allocated), advise_mib (m->allocated));
  add_pair (table, "max_allocated_mib", advise_mib (p->max_allocated),
            advise_mib (m->max_allocated));
  add_pair (table, "reserved_mib", advise_mib (p->reserved), advise_mib (m->reserved));
  for (guint c = 0; c < PLAN_N_CATEGORIES; c++)
    if (p->by_category[c] || m->by_category[c])
      {
        g_autofree char *what = g_strdup_printf ("%s at peak", plan_category_name (c));
        add_pair (table, what, advise_mib (p->by_category[c]), advise_mib (m->by_category[c]));
      }
  return table;
}

/* `why`: why there is no trace to compare; NULL where there is one. */
static void
add_comparison (Page *self, const GError *why)
{
  g_autoptr (CliTable) table = comparison (self->run);
  g_autofree char *words = g_strdup_printf (
      "What was predicted when the run began, by the set of parameters %s, beside "
      "what was measured; times in milliseconds, memory in MiB of a rank.",
      self->run->row.params_id ? self->run->row.params_id : "not recorded");
  cli_report_add_heading (&self->page, "Predicted and measured");
  cli_report_add_paragraph (&self->page, words);
  cli_report_add_table (&self->page, table);
  if (why)
    cli_report_add_paragraph (&self->page, why->message);
}

#define MOST_ROWS 20 /* of the table of steps; half are the first and half the last steps */

static CliTable *
step_table (const GArray *steps)
{
  static const CliColumn columns[] = { { "step", TRUE },
                                       { "loss", TRUE },
                                       { "grad_norm", TRUE },
                                       { "step_ms", TRUE },
                                       { "eval_loss", TRUE } };
  CliTable *table = cli_table_new (columns, G_N_ELEMENTS (columns));
  for (guint i = 0; i < steps->len; i++)
    {
      const DbStep *step = &g_array_index (steps, DbStep, i);
      const gboolean is_left_out = i >= MOST_ROWS / 2 && i + MOST_ROWS / 2 < steps->len;
      const double values[]
          = { step->loss, step->grad_norm, 1e-6 * (double)step->step_ns, step->eval_loss };
      if (is_left_out)
        continue;
      cli_table_add_int (table, step->step);
      for (guint v = 0; v < G_N_ELEMENTS (values); v++)
        if (isfinite (values[v]))
          cli_table_add_real (table, values[v], v == 2 ? 3 : 5);
        else
          cli_table_add (table, NULL);
    }
  return table;
}

static gboolean
add_losses (Page *self, GError **error)
{
  const GArray *steps = self->run->steps;
  g_autofree char *path = cli_report_picture_path (&self->page);
  g_autofree char *label = g_strdup_printf ("run %" G_GINT64_FORMAT, self->run->row.id);
  g_autoptr (CliTable) table = step_table (steps);
  g_autoptr (GArray) points = g_array_new (FALSE, FALSE, sizeof (PlotLossStep));
  gboolean has_loss = FALSE;
  for (guint i = 0; i < steps->len; i++)
    {
      const DbStep *from = &g_array_index (steps, DbStep, i);
      const PlotLossStep step = { from->step, from->loss, from->eval_loss };
      g_array_append_val (points, step);
      has_loss = has_loss || isfinite (from->loss);
    }
  const PlotLossRun line
      = { label, (const PlotLossStep *)(gconstpointer)points->data, points->len };
  cli_report_add_heading (&self->page, "Losses");
  if (steps->len == 0)
    cli_report_add_paragraph (&self->page, "No step was stored.");
  if (has_loss
      && (!plot_loss (&line, 1, "loss by step", path, NULL, error)
          || !cli_report_add_picture (&self->page, "loss", "loss by step", "", error)))
    return FALSE;
  if (steps->len > MOST_ROWS)
    {
      g_autofree char *words
          = g_strdup_printf ("The first and last %d of %u steps:", MOST_ROWS / 2, steps->len);
      cli_report_add_paragraph (&self->page, words);
    }
  if (steps->len > 0)
    cli_report_add_table (&self->page, table);
  return TRUE;
}

static gboolean
add_step (Page *self, GError **error)
{
  const CliStoredRun *run = self->run;
  g_autofree char *path = cli_report_picture_path (&self->page);
  if (!run->measured)
    return TRUE;
  cli_report_add_heading (&self->page, "A step, simulated and measured");
  return cli_stored_run_plot_timeline (run, path, NULL, error)
         && cli_report_add_picture (&self->page, "timeline", "what runs when in a step", "", error)
         && plot_memory (run->simulated, run->measured, run->schedule, run->title, path, NULL,
                         error)
         && cli_report_add_picture (&self->page, "memory", "memory over a step", "", error);
}

static void
add_plan (Page *self)
{
  const DbRun *row = &self->run->row;
  g_autofree char *text = g_strdup_printf ("model=%s\n%s", row->model_text, row->plan_text);
  cli_report_add_heading (&self->page, "The plan");
  cli_html_add (self->page.html, "<pre>", text, "</pre>\n");
  cli_report_add_heading (&self->page, "The machines");
  cli_html_add (self->page.html, "<pre>", row->cluster_text, "</pre>\n");
}

char *
cli_report_run (CliStoredRun *run, const CliOptions *options, GError **error)
{
  Page self = { .run = run };
  g_autoptr (GError) why = NULL;
  g_autofree char *cluster = advise_cluster_name (run->input.cluster);
  g_autofree char *title = g_strdup_printf ("Run %" G_GINT64_FORMAT ": %s on %s", run->row.id,
                                            run->input.model->name, cluster);
  if (!cli_report_begin (&self.page, title, error))
    return NULL;
  cli_stored_run_load_traces (options, run, &why);
  add_summary (&self, title);
  add_comparison (&self, why);
  const gboolean ok = add_losses (&self, error) && add_step (&self, error);
  add_plan (&self);
  return cli_report_end (&self.page, ok);
}
