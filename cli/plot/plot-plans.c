/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures of several plans: all combinations of swept fields, the best of a space, or plans that
 * the user names. */
#include "config.h"

#include "cli/plot/plot-kinds.h"

#include "advise/predict.h"
#include "advise/workspaces.h"
#include "cli/io/sweep.h"
#include "cli/query/query.h"
#include "planner/base/error.h"
#include "plots/plot.h"

#include <string.h>

#define QUERY_TOP 5 /* answers that query gives without --top */

/* Whether a field is in every label of a plan; titles name the other fields. */
static gboolean
is_in_label (PlanField field)
{
  return field == PLAN_STRATEGY || field == PLAN_MBS || field == PLAN_COMPUTE
         || field == PLAN_MAIN_GRADS || field == PLAN_GRAD_COMM;
}

gboolean
cli_plot_swept_field (const char *sweep, PlanField *out_field, GError **error)
{
  g_auto (GStrv) halves = g_strsplit (sweep, "=", 2);
  return plan_field_parse (halves[0] ? halves[0] : "", out_field, error);
}

static gboolean
is_swept (PlanField field, char *const *sweeps)
{
  PlanField swept;
  for (; sweeps && *sweeps; sweeps++)
    if (cli_plot_swept_field (*sweeps, &swept, NULL) && swept == field)
      return TRUE;
  return FALSE;
}

static void
append_field (GString *text, const Plan *plan, PlanField field)
{
  g_autofree char *value = plan_field_print (field, plan->value[field]);
  g_string_append_printf (text, "%s%s=%s", text->len > 0 ? " " : "", plan_field_name (field),
                          value);
}

char *
cli_plot_title (const AdviseInput *input, const char *label, char *const *sweeps)
{
  GString *title = g_string_new (NULL);
  g_autoptr (GString) fields = g_string_new (label);
  Plan initial;
  plan_init (&initial);
  for (PlanField f = 0; f < PLAN_N_FIELDS; f++)
    if (input->plan.value[f] != initial.value[f] && !is_swept (f, sweeps)
        && !(label && is_in_label (f)))
      append_field (fields, &input->plan, f);
  g_string_append_printf (title, "%s on %s (%" G_GINT64_FORMAT " x %s)%s%s", input->model->name,
                          input->cluster->name, plan_cluster_devices (input->cluster),
                          input->cluster->device_name, fields->len > 0 ? ": " : "", fields->str);
  return g_string_free (title, FALSE);
}

gboolean
cli_plot_read (const CliPlot *self, char *const *sweeps, AdviseInput *out_input, GError **error)
{
  if (!cli_input_read (&self->options, NULL, out_input, error))
    return FALSE;
  return is_swept (PLAN_GBS, sweeps) || cli_query_check (out_input, error);
}

void
cli_plot_add_refused (char **title, guint n_refused, guint n, const GError *first)
{
  if (n_refused == 0)
    return;
  g_autofree char *before = *title;
  const char *const why = first->message;
  const char *const colon = g_str_has_prefix (why, "rule ") ? strchr (why, ':') : NULL;
  *title = colon ? g_strdup_printf ("%s\nleft out: %u of %u; the first breaks the %.*s", before,
                                    n_refused, n, (int)(colon - why), why)
                 : g_strdup_printf ("%s\nleft out: %u of %u; the first because: %s", before,
                                    n_refused, n, why);
}

gboolean
cli_plot_refuse (guint n, const GError *first, GError **error)
{
  if (n == 1)
    g_propagate_error (error, g_error_copy (first));
  else
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_INFEASIBLE,
                 "none of these %u plans is allowed, the first because: %s", n, first->message);
  return FALSE;
}

/* Predictions of all combinations that are legal. */
typedef struct
{
  GArray *predictions; /* AdvisePrediction */
  GArray *plans;       /* Plan: before it was resolved */
  guint n_refused;
  GError *why; /* why the first one was refused */
} Swept;

static void
clear_prediction (gpointer data)
{
  advise_prediction_clear (data);
}

static void
swept_clear (Swept *self)
{
  g_clear_pointer (&self->predictions, g_array_unref);
  g_clear_pointer (&self->plans, g_array_unref);
  g_clear_error (&self->why);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Swept, swept_clear)

static const AdvisePrediction *
prediction_at (const GArray *predictions, guint i)
{
  return &g_array_index (predictions, AdvisePrediction, i);
}

static gboolean
predict_plans (const AdviseInput *input, const GArray *plans, Swept *self, GError **error)
{
  self->predictions = g_array_new (FALSE, FALSE, sizeof (AdvisePrediction));
  self->plans = g_array_new (FALSE, FALSE, sizeof (Plan));
  g_array_set_clear_func (self->predictions, clear_prediction);
  for (guint i = 0; i < plans->len; i++)
    {
      AdvisePrediction prediction = { 0 };
      AdviseInput one = *input; /* borrows the input's members */
      one.plan = g_array_index (plans, Plan, i);
      if (advise_predict (&one, &prediction, self->why ? NULL : &self->why))
        {
          g_array_append_val (self->predictions, prediction);
          g_array_append_val (self->plans, one.plan);
        }
      else
        self->n_refused++;
    }
  return self->predictions->len > 0 || cli_plot_refuse (self->n_refused, self->why, error);
}

static double
gib (guint64 bytes)
{
  return advise_mib (bytes) / 1024.0;
}

/* Reads the plan and predicts all combinations of the sweeps. */
static gboolean
sweep_plans (const CliPlot *self, char *const *sweeps, AdviseInput *input, Swept *out_swept,
             GError **error)
{
  if (!cli_plot_read (self, sweeps, input, error))
    return FALSE;
  g_autoptr (GArray) plans = cli_sweep (&input->plan, sweeps, error);
  return plans && predict_plans (input, plans, out_swept, error);
}

/* The label of a plan, as "optim_grads mbs=1 recompute=full": strategy, micro batch and the other
 * fields that differ from `base`. The caller frees. */
static char *
label_of (const Plan *resolved, const Plan *plan, const Plan *base)
{
  GString *label = g_string_new (plan_field_names (PLAN_STRATEGY)[resolved->value[PLAN_STRATEGY]]);
  append_field (label, resolved, PLAN_MBS);
  for (PlanField f = 0; f < PLAN_N_FIELDS; f++)
    if (plan->value[f] != base->value[f] && f != PLAN_STRATEGY && f != PLAN_MBS)
      append_field (label, plan, f);
  return g_string_free (label, FALSE);
}

static gboolean
sweep_pareto (CliPlot *self, char **out_text, GError **error)
{
  g_auto (AdviseInput) input = { 0 };
  g_auto (Swept) swept = { 0 };
  g_autoptr (GArray) points = g_array_new (FALSE, FALSE, sizeof (PlotPoint));
  g_autoptr (GPtrArray) labels = g_ptr_array_new_with_free_func (g_free);
  char *const *sweeps = self->sweeps;
  if (!sweep_plans (self, sweeps, &input, &swept, error))
    return FALSE;
  for (guint i = 0; i < swept.predictions->len; i++)
    {
      const AdvisePrediction *p = prediction_at (swept.predictions, i);
      g_autofree char *fields = cli_describe_swept (&g_array_index (swept.plans, Plan, i), sweeps);
      g_autofree char *label = label_of (&p->of->plan, &input.plan, &input.plan);
      g_ptr_array_add (labels, g_strjoin (" ", label, *fields ? fields : NULL, NULL));
      const PlotPoint point = { .label = labels->pdata[i],
                                .memory_gib = gib (p->trace->memory.device),
                                .tokens_per_s = p->tokens_per_s_per_gpu,
                                .fits = p->fits };
      g_array_append_val (points, point);
    }
  g_autofree char *title = cli_plot_title (&input, NULL, sweeps);
  cli_plot_add_refused (&title, swept.n_refused, swept.n_refused + swept.plans->len, swept.why);
  return plot_pareto ((const PlotPoint *)(gpointer)points->data, points->len,
                      gib (input.cluster->memory_bytes), "memory of the fullest rank", title,
                      self->path, out_text, error);
}

/* The question for a search that finds the same answers as query. */
static AdviseQuestion
question_of (const CliPlot *self)
{
  AdviseQuestion question = self->question;
  question.set = self->options.set;
  question.db = self->options.db;
  question.apart = ADVISE_APART;
  question.keeps_nothing = TRUE;
  return question;
}

/* The label of a plan that was found: its strategy and all that is to be set, as on the card of
 * query. The caller frees. */
static char *
label_of_found (const Plan *found, const Plan *asked)
{
  g_autofree char *settings = advise_query_differences (found, asked);
  if (found->value[PLAN_STRATEGY] != asked->value[PLAN_STRATEGY])
    return g_steal_pointer (&settings);
  return g_strjoin (*settings ? ", " : "",
                    plan_field_names (PLAN_STRATEGY)[found->value[PLAN_STRATEGY]], settings, NULL);
}

/* Adds a point for every plan that a search scored, up to where its front ends. Those on the front
 * are labelled, if `labels` is given. Found plans are sorted by time, so the rest can be skipped.
 */
static void
add_found (const AdviseInput *input, const PlanSearchResult *result, GArray *points,
           GPtrArray *labels)
{
  const double devices = (double)plan_cluster_devices (input->cluster);
  g_autoptr (GArray) front = plan_search_front (result);
  for (guint i = 0, next = 0; i < result->found->len; i++)
    {
      const PlanFound *found = &g_array_index (result->found, PlanFound, i);
      const gboolean is_front = next < front->len && g_array_index (front, guint, next) == i;
      const double tokens = (double)(found->plan.value[PLAN_GBS] * found->plan.value[PLAN_SEQ]);
      if (found->score.time_ns > result->front_ns)
        break;
      next += is_front;
      char *label = is_front && labels ? label_of_found (&found->plan, &input->plan) : NULL;
      if (label)
        g_ptr_array_add (labels, label);
      const PlotPoint point
          = { .label = label,
              .memory_gib = gib (found->score.memory_bytes),
              .tokens_per_s = 1e9 * tokens / (double)found->score.time_ns / devices,
              .fits = TRUE };
      g_array_append_val (points, point);
    }
}

gboolean
cli_plot_front (const AdviseQuery *query, const AdviseChoice *choice, const char *path,
                char **out_text, GArray **out_marks, GError **error)
{
  g_autoptr (GArray) points = g_array_new (FALSE, FALSE, sizeof (PlotPoint));
  g_autoptr (GPtrArray) labels = g_ptr_array_new_with_free_func (g_free);
  const double capacity = gib (choice->memory_bytes);
  add_found (choice->input, &query->result, points, out_marks ? NULL : labels);
  g_autofree char *setting = cli_plot_title (choice->input, NULL, NULL);
  g_autofree char *title = g_strdup_printf ("%s\nthe front of %" G_GUINT64_FORMAT " plans", setting,
                                            query->result.total);
  g_autofree char *memory
      = g_strdup_printf ("memory to fit into with a probability of %g", choice->p_fits);
  if (!plot_pareto ((const PlotPoint *)(gpointer)points->data, points->len, capacity, memory, title,
                    path, out_text, error))
    return FALSE;
  if (out_marks)
    *out_marks
        = plot_pareto_marks ((const PlotPoint *)(gpointer)points->data, points->len, capacity);
  return TRUE;
}

/* Draws the front of a search, the same that query prints for these options: of time and the memory
 * that plans need to fit. */
static gboolean
search_pareto (CliPlot *self, char **out_text, GError **error)
{
  const AdviseQuestion question = question_of (self);
  g_auto (AdviseInput) input = { 0 };
  g_auto (AdviseQuery) query = { 0 };
  AdviseChoice choice;
  if (!cli_plot_read (self, NULL, &input, error)
      || !cli_query_choose (&choice, &question, &input, error)
      || !advise_query_ask (&choice, QUERY_TOP, &query, error))
    return FALSE;
  if (query.answers->len == 0)
    return advise_query_refuse (&choice, error);
  return cli_plot_front (&query, &choice, self->path, out_text, NULL, error);
}

gboolean
cli_plot_pareto (CliPlot *self, char **out_text, GError **error)
{
  return (self->sweeps ? sweep_pareto : search_pareto) (self, out_text, error);
}

/* Draws a line for each value of the second field; values of the first field label its points. */
gboolean
cli_plot_tradeoff (CliPlot *self, char **out_text, GError **error)
{
  g_auto (AdviseInput) input = { 0 };
  g_auto (Swept) swept = { 0 };
  g_autoptr (GArray) points = g_array_new (FALSE, FALSE, sizeof (PlotTradeoffPoint));
  g_autoptr (GPtrArray) words = g_ptr_array_new_with_free_func (g_free);
  const guint n_sweeps = self->sweeps ? g_strv_length (self->sweeps) : 0;
  PlanField fields[2] = { 0 };
  if (n_sweeps < 1 || n_sweeps > G_N_ELEMENTS (fields))
    {
      g_set_error (
          error, PLAN_ERROR, PLAN_ERROR_INVALID,
          "tradeoff: one or two fields are to vary, as in --sweep recompute --sweep mbs=1,2");
      return FALSE;
    }
  for (guint i = 0; i < n_sweeps; i++)
    if (!cli_plot_swept_field (self->sweeps[i], &fields[i], error))
      return FALSE;
  if (!sweep_plans (self, self->sweeps, &input, &swept, error))
    return FALSE;
  for (guint i = 0; i < swept.predictions->len; i++)
    {
      const AdvisePrediction *p = prediction_at (swept.predictions, i);
      const Plan *plan = &g_array_index (swept.plans, Plan, i);
      GString *line = g_string_new (NULL);
      if (n_sweeps > 1)
        append_field (line, plan, fields[1]);
      g_ptr_array_add (words, plan_field_print (fields[0], plan->value[fields[0]]));
      g_ptr_array_add (words, g_string_free (line, FALSE));
      const PlotTradeoffPoint point = { .line = words->pdata[2 * i + 1],
                                        .label = words->pdata[2 * i],
                                        .memory_bytes = p->trace->memory.device,
                                        .step_ns = p->trace->step_ns };
      g_array_append_val (points, point);
    }
  g_autofree char *setting = cli_plot_title (&input, NULL, self->sweeps);
  g_autofree char *title
      = g_strdup_printf ("%s; at the points: %s", setting, plan_field_name (fields[0]));
  cli_plot_add_refused (&title, swept.n_refused, swept.n_refused + swept.plans->len, swept.why);
  return plot_tradeoff ((const PlotTradeoffPoint *)(gpointer)points->data, points->len,
                        input.cluster->memory_bytes, title, self->path, out_text, error);
}

/* Finds the best plans, as query does. */
static GArray *
find_best (const CliPlot *self, const AdviseInput *input, GError **error)
{
  const AdviseQuestion question = question_of (self);
  g_autoptr (GArray) plans = g_array_new (FALSE, FALSE, sizeof (Plan));
  g_auto (AdviseQuery) query = { 0 };
  AdviseChoice choice;
  if (!cli_query_choose (&choice, &question, input, error)
      || !advise_query_ask (&choice, (guint)self->top, &query, error))
    return NULL;
  for (guint i = 0; i < query.answers->len; i++)
    g_array_append_val (plans, g_array_index (query.answers, AdviseAnswer, i).found->plan);
  if (plans->len > 0)
    return g_steal_pointer (&plans);
  advise_query_refuse (&choice, error);
  return NULL;
}

/* The plan that labels are relative to: the base resolved, if it can be. */
static Plan
resolved_base (const AdviseInput *input)
{
  g_autoptr (PlanCase) of = advise_case (input, &input->plan, NULL);
  return of ? of->plan : input->plan;
}

gboolean
cli_plot_answers (const AdviseQuery *query, const AdviseInput *input, const char *path,
                  char **out_text, GError **error)
{
  g_autoptr (GPtrArray) labels = g_ptr_array_new_with_free_func (g_free);
  g_autoptr (GArray) bars = g_array_new (FALSE, FALSE, sizeof (PlotBreakdown));
  for (guint i = 0; i < MIN (query->answers->len, PLOT_MAX_BARS); i++)
    {
      const AdviseAnswer *answer = &g_array_index (query->answers, AdviseAnswer, i);
      const AdvisePrediction *p = &answer->prediction;
      g_ptr_array_add (labels, g_strdup_printf ("%u", i + 1));
      const PlotBreakdown bar = { .label = labels->pdata[i], .trace = p->trace };
      g_array_append_val (bars, bar);
    }
  g_autofree char *title = cli_plot_title (input, NULL, NULL);
  return plot_breakdown ((const PlotBreakdown *)(gpointer)bars->data, bars->len,
                         input->cluster->memory_bytes, title, path, out_text, error);
}

/* Reads the plans on the command line, each with its own model and cluster if it has them. */
static gboolean
read_plans (const CliPlot *self, AdviseInput *out_first, Swept *out_swept, GPtrArray *labels,
            GError **error)
{
  out_swept->predictions = g_array_new (FALSE, FALSE, sizeof (AdvisePrediction));
  g_array_set_clear_func (out_swept->predictions, clear_prediction);
  for (char *const *word = self->plans; *word; word++)
    {
      g_auto (AdviseInput) input = { 0 };
      AdvisePrediction prediction = { 0 };
      CliOptions one = self->options; /* borrows the options' members */
      one.plan = *word;
      if (!cli_input_read (&one, NULL, &input, error)
          || !advise_predict (&input, &prediction, error))
        {
          g_prefix_error (error, "plan %s: ", *word);
          return FALSE;
        }
      g_array_append_val (out_swept->predictions, prediction);
      g_autofree char *label = advise_plan_label (&prediction.of->plan);
      g_autofree char *name = g_path_get_basename (*word);
      g_ptr_array_add (labels, g_strdup_printf ("%s: %s", name, label));
      if (word == self->plans)
        {
          *out_first = input;
          input = (AdviseInput){ 0 };
        }
    }
  return TRUE;
}

/* Finds the plans to draw: the swept ones, or else the best. */
static gboolean
find_plans (const CliPlot *self, AdviseInput *input, Swept *out_swept, GPtrArray *labels,
            GError **error)
{
  Plan base;
  if (self->sweeps)
    {
      if (!sweep_plans (self, self->sweeps, input, out_swept, error))
        return FALSE;
      base = input->plan;
    }
  else
    {
      if (!cli_plot_read (self, NULL, input, error))
        return FALSE;
      base = resolved_base (input);
      g_autoptr (GArray) best = find_best (self, input, error);
      if (!best || !predict_plans (input, best, out_swept, error))
        return FALSE;
    }
  for (guint i = 0; i < out_swept->plans->len; i++)
    g_ptr_array_add (labels, label_of (&prediction_at (out_swept->predictions, i)->of->plan,
                                       &g_array_index (out_swept->plans, Plan, i), &base));
  return TRUE;
}

gboolean
cli_plot_breakdown (CliPlot *self, char **out_text, GError **error)
{
  g_auto (AdviseInput) input = { 0 };
  g_auto (Swept) swept = { 0 };
  g_autoptr (GPtrArray) labels = g_ptr_array_new_with_free_func (g_free);
  g_autoptr (GArray) bars = g_array_new (FALSE, FALSE, sizeof (PlotBreakdown));
  const gboolean are_named = self->plans && *self->plans;
  if (are_named && (self->sweeps || self->options.plan || self->options.from_megatron))
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "breakdown: plans are named, or swept, or found: use one");
      return FALSE;
    }
  if (are_named ? !read_plans (self, &input, &swept, labels, error)
                : !find_plans (self, &input, &swept, labels, error))
    return FALSE;
  for (guint i = 0; i < labels->len; i++)
    {
      const PlotBreakdown bar
          = { .label = labels->pdata[i], .trace = prediction_at (swept.predictions, i)->trace };
      g_array_append_val (bars, bar);
    }
  if (are_named) /* fields of the first plan say nothing about the others */
    plan_init (&input.plan);
  g_autofree char *title = cli_plot_title (&input, NULL, self->sweeps);
  if (!are_named)
    cli_plot_add_refused (&title, swept.n_refused, swept.n_refused + swept.plans->len, swept.why);
  return plot_breakdown ((const PlotBreakdown *)(gpointer)bars->data, bars->len,
                         input.cluster->memory_bytes, title, self->path, out_text, error);
}
