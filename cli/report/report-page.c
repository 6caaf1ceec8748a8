/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/report/report-page.h"

#include "advise/training.h"
#include "advise/workspaces.h"
#include "cli/io/prediction-tables.h"
#include "cli/plot/plot-kinds.h"
#include "cli/report/report-html.h"
#include "cli/report/report-parts.h"
#include "planner/base/error.h"
#include "planner/emit/emit.h"
#include "plots/plot.h"

#include <math.h>

/* What the page is made from, and the page. */
typedef struct
{
  CliReport page;
  const AdviseQuery *query;
  const AdviseChoice *choice;
  AdviseAnswer *best;
  AdviseInput input; /* of the best answer; borrowed */
} Page;

static void
add_best (Page *self)
{
  g_autoptr (GArray) card = cli_query_card (self->query, self->choice);
  g_autofree char *title = cli_query_title (self->query, self->choice);
  cli_html_add (self->page.html, "<section>\n<h1>", title, "</h1>\n");
  if (!self->query->result.is_whole)
    cli_report_add_paragraph (&self->page,
                              "The search was interrupted: these are the best so far.");
  cli_report_add_rows (&self->page, card);
}

static void
add_answers (Page *self)
{
  g_autoptr (CliTable) table = cli_query_table (self->query, self->choice->input);
  g_autoptr (GArray) reasons = cli_query_reasons (self->query, self->choice);
  cli_report_add_heading (&self->page, "Answers, best first");
  cli_report_add_table (&self->page, table);
  cli_report_add_paragraph (&self->page, CLI_QUERY_GROUPS);
  cli_report_add_rows (&self->page, reasons);
}

static const PlanFound *
found_at (const Page *self, guint i)
{
  return &g_array_index (self->query->result.found, PlanFound, i);
}

#define LEAST_RADIUS 2.0
#define MOST_RADIUS 8.0

/* Radius of a mark: at most half the distance to the nearest other mark, so that none covers
 * another. */
static double
radius_of (const GArray *marks, guint i)
{
  const PlotMark *mark = &g_array_index (marks, PlotMark, i);
  double nearest = 2 * MOST_RADIUS;
  for (guint k = 0; k < marks->len; k++)
    {
      const PlotMark *other = &g_array_index (marks, PlotMark, k);
      if (k != i)
        nearest = MIN (nearest, hypot (mark->x - other->x, mark->y - other->y));
    }
  return MAX (nearest / 2, LEAST_RADIUS);
}

/* Circles on the points of the front, each with its plan as a tooltip. The caller frees. */
static char *
mark_front (const Page *self, const GArray *marks)
{
  GString *more = g_string_new (NULL);
  for (guint i = 0; i < marks->len; i++)
    {
      const PlotMark *mark = &g_array_index (marks, PlotMark, i);
      const PlanFound *found = found_at (self, mark->point);
      g_autofree char *plan = advise_query_differences (&found->plan, &self->choice->input->plan);
      g_autofree char *words = g_strdup_printf (
          "%.1f ms, to fit into %.0f MiB: %s", 1e-6 * (double)found->score.time_ns,
          advise_mib (found->score.memory_bytes), *plan ? plan : "the defaults");
      char x[G_ASCII_DTOSTR_BUF_SIZE], y[G_ASCII_DTOSTR_BUF_SIZE], r[G_ASCII_DTOSTR_BUF_SIZE];
      g_ascii_formatd (x, sizeof x, "%.2f", mark->x);
      g_ascii_formatd (y, sizeof y, "%.2f", mark->y);
      g_ascii_formatd (r, sizeof r, "%.2f", radius_of (marks, i));
      cli_html_add (more, "<g class=\"point\"><title>", words, "</title>");
      g_string_append_printf (more, "<circle cx=\"%s\" cy=\"%s\" r=\"%s\"/></g>\n", x, y, r);
    }
  return g_string_free (more, FALSE);
}

static CliTable *
front_table (const Page *self)
{
  static const CliColumn columns[] = { { "point", TRUE },
                                       { "needed_mib", TRUE },
                                       { "device_mib", TRUE },
                                       { "step_ms", TRUE },
                                       { "plan", FALSE } };
  CliTable *table = cli_table_new (columns, G_N_ELEMENTS (columns));
  g_autoptr (GArray) front = plan_search_front (&self->query->result);
  for (guint i = 0; i < front->len; i++)
    {
      const PlanFound *found = found_at (self, g_array_index (front, guint, i));
      g_autofree char *plan = advise_query_differences (&found->plan, &self->choice->input->plan);
      cli_table_add_int (table, i + 1);
      cli_table_add_real (table, advise_mib (found->score.memory_bytes), 0);
      cli_table_add_real (table, advise_mib (found->score.device_bytes), 0);
      cli_table_add_real (table, 1e-6 * (double)found->score.time_ns, 1);
      cli_table_add (table, plan);
    }
  return table;
}

static gboolean
add_front (Page *self, GError **error)
{
  g_autofree char *path = cli_report_picture_path (&self->page);
  g_autoptr (CliTable) table = front_table (self);
  g_autoptr (GArray) marks = NULL;
  cli_report_add_heading (&self->page, "Memory against time");
  g_autofree char *words = g_strdup_printf (
      "Plans that no other one beats in both, up to %.0f %% more time than the best takes. "
      "needed_mib is what a device has to have for a plan to fit with a probability of %g; "
      "device_mib is what the plan is predicted to take. The numbers in the picture are those of "
      "the table; pointing at a mark shows its plan, too.",
      self->choice->question->front, self->choice->p_fits);
  cli_report_add_paragraph (&self->page, words);
  if (!cli_plot_front (self->query, self->choice, path, NULL, &marks, error))
    return FALSE;
  g_autofree char *more = mark_front (self, marks);
  if (!cli_report_add_picture (&self->page, "front", "memory against throughput", more, error))
    return FALSE;
  cli_report_add_table (&self->page, table);
  return TRUE;
}

/* Adds a table and frees it. */
static void
take_table (Page *self, CliTable *table)
{
  cli_report_add_table (&self->page, table);
  cli_table_free (table);
}

static gboolean
add_breakdown (Page *self, GError **error)
{
  g_autofree char *path = cli_report_picture_path (&self->page);
  const AdvisePrediction *p = &self->best->prediction;
  cli_report_add_heading (&self->page, "Where time and memory go");
  if (!cli_plot_answers (self->query, self->choice->input, path, NULL, error)
      || !cli_report_add_picture (&self->page, "breakdown",
                                  "time and memory of each answer by part", "", error))
    return FALSE;
  g_autofree char *whose
      = p->stages->len > 0
            ? g_strdup_printf ("Of the best, its stage %u, which takes most memory:", p->fullest)
            : g_strdup ("Of the best:");
  cli_report_add_paragraph (&self->page, whose);
  take_table (self, cli_table_of_time (p));
  take_table (self, cli_table_of_compute (p));
  take_table (self, cli_table_of_memory (p));
  return TRUE;
}

/* Adds time and memory of the best plan over a step. Where the step has too many ops, the page says
 * so instead. */
static gboolean
add_step (Page *self, GError **error)
{
  g_autofree char *path = cli_report_picture_path (&self->page);
  AdvisePrediction *p = &self->best->prediction;
  const gboolean can_expand = advise_prediction_can_expand (p);
  const gboolean has_stages = p->stages->len > 0;
  g_autofree char *label = advise_plan_label (&p->of->plan);
  g_autofree char *title = cli_plot_title (&self->input, label, NULL);
  const guint64 capacity_bytes = self->input.cluster->memory_bytes;
  g_autoptr (GError) why = NULL;
  if (!advise_prediction_expand (p, &self->input, can_expand ? error : &why) && can_expand)
    return FALSE;
  cli_report_add_heading (&self->page, "The best over a step");
  if (why)
    {
      g_autofree char *words = g_strdup_printf ("Not op by op: %s.", why->message);
      cli_report_add_paragraph (&self->page, words);
    }
  if (can_expand
      && (!cli_plot_time (p, title, path, NULL, error)
          || !cli_report_add_picture (&self->page, "timeline", "what runs when in a step", "",
                                      error)))
    return FALSE;
  return !(can_expand || has_stages)
         || (cli_plot_memory (p, capacity_bytes, title, path, NULL, error)
             && cli_report_add_picture (
                 &self->page, "memory",
                 has_stages ? "time and memory of each stage" : "memory over a step", "", error));
}

static void
add_sureness (Page *self)
{
  const AdvisePrediction *p = &self->best->prediction;
  g_autoptr (GArray) rows = cli_rows_new ();
  g_autofree char *error_range = advise_describe_uncertainty (p);
  g_autofree char *costs = advise_describe_costs (p);
  g_autofree char *workspace = advise_describe_workspace (p->of, p->schedule);
  g_autofree char *counts = cli_query_counts (self->query, self->choice);
  g_autofree char *left_out = g_strjoinv (", ", (char **)advise_training_left_out ());
  cli_report_add_heading (&self->page, "How sure");
  cli_rows_add (rows, "step", "%s", error_range);
  cli_rows_add (rows, "", "%s", costs);
  if (p->p_fits >= 0)
    cli_rows_add (rows, "memory", "it fits with a probability of %.3f; %g is asked for", p->p_fits,
                  self->choice->p_fits);
  else
    cli_rows_add (rows, "memory", "%s",
                  p->fits ? "it is predicted to fit; how surely is not known"
                          : "it is not predicted to fit");
  if (workspace)
    cli_rows_add (rows, "", "%s", workspace);
  cli_rows_add (rows, "left out", "times are of steps alone, without %s", left_out);
  cli_rows_add (rows, "searched", "%s", counts);
  cli_report_add_rows (&self->page, rows);
}

static void
add_script (Page *self)
{
  const PlanEmitSubject subject
      = { .of = self->best->prediction.of, .cluster_spec = self->input.cluster_spec };
  g_autofree char *note = NULL;
  g_autoptr (GError) why = NULL;
  g_autofree char *script = plan_emit_natural (PLAN_EMIT_RUNTIME_OF_STACK, &subject, &note, &why);
  g_autofree char *plan = plan_emit_plan (&subject);
  cli_report_add_heading (&self->page, "To start it");
  if (note || why)
    cli_report_add_paragraph (&self->page, note ? note : why->message);
  if (script)
    cli_html_add (self->page.html, "<pre>", script, "</pre>\n");
  cli_report_add_heading (&self->page, "The plan, as --plan reads it");
  cli_html_add (self->page.html, "<pre>", plan, "</pre>\n");
}

static void
add_question (Page *self)
{
  const AdviseInput *input = self->choice->input;
  g_autoptr (GArray) rows = cli_rows_new ();
  g_autofree char *cluster = advise_cluster_name (input->cluster);
  cli_report_add_heading (&self->page, "What was asked");
  cli_rows_add (rows, "model", "%s", input->model->name);
  cli_rows_add (rows, "cluster", "%s, %" G_GINT64_FORMAT " x %s", cluster,
                plan_cluster_devices (input->cluster), input->cluster->device_name);
  cli_rows_add (rows, "memory", "%.0f MiB on each device, with a probability of %g",
                advise_mib (self->choice->memory_bytes), self->choice->p_fits);
  cli_rows_add (rows, "command", "fsdplan report %s", self->choice->question->words);
  cli_rows_add (rows, "made by", "fsdplan %s", PACKAGE_VERSION);
  cli_report_add_rows (&self->page, rows);
}

static gboolean
add_body (Page *self, GError **error)
{
  add_best (self);
  add_answers (self);
  if (!add_front (self, error) || !add_breakdown (self, error) || !add_step (self, error))
    return FALSE;
  add_sureness (self);
  add_script (self);
  add_question (self);
  return TRUE;
}

char *
cli_report_page (AdviseQuery *query, const AdviseChoice *choice, GError **error)
{
  Page self = { .query = query,
                .choice = choice,
                .best = &g_array_index (query->answers, AdviseAnswer, 0),
                .input = *choice->input };
  g_autofree char *title = cli_query_title (query, choice);
  if (!cli_report_begin (&self.page, title, error))
    return NULL;
  self.input.plan = self.best->found->plan;
  const gboolean ok = add_body (&self, error);
  return cli_report_end (&self.page, ok);
}
