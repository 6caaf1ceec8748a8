/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "advise/predict.h"
#include "cli/io/commands.h"
#include "cli/plot/plot-kinds.h"
#include "cli/plot/plot-run.h"
#include "planner/base/error.h"
#include "planner/base/text.h"
#include "planner/base/units.h"
#include "plots/plot.h"

#include <stdio.h>
#include <string.h>

#define USUAL_TOP 4
#define MAX_TOP PLOT_MAX_BARS
#define USUAL_FRONT 30.0
#define MAX_FRONT 10000.0

static gboolean
plot_prediction (CliPlot *self, gboolean is_timeline, char **out_text, GError **error)
{
  g_auto (AdviseInput) input = { 0 };
  g_auto (AdvisePrediction) prediction = { 0 };
  if (!cli_input_read (&self->options, NULL, &input, error)
      || !advise_predict (&input, &prediction, error)
      || ((is_timeline || prediction.stages->len == 0)
          && !advise_prediction_expand (&prediction, &input, error)))
    return FALSE;
  g_autofree char *label = advise_plan_label (&prediction.of->plan);
  g_autofree char *title = cli_plot_title (&input, label, NULL);
  if (is_timeline)
    return cli_plot_time (&prediction, title, self->path, out_text, error);
  return cli_plot_memory (&prediction, input.cluster->memory_bytes, title, self->path, out_text,
                          error);
}

/* Draws timeline or memory: of a prediction, or of a stored run beside its measurement. */
static gboolean
plot_subject (CliPlot *self, gboolean is_timeline, char **out_text, GError **error)
{
  g_auto (CliStoredRun) run = { 0 };
  if (!self->run)
    return plot_prediction (self, is_timeline, out_text, error);
  if (!cli_stored_run_load (&self->options, self->run, &run, error)
      || !cli_stored_run_load_traces (&self->options, &run, error))
    return FALSE;
  if (is_timeline)
    return cli_stored_run_plot_timeline (&run, self->path, out_text, error);
  return plot_memory (run.simulated, run.measured, run.schedule, run.title, self->path, out_text,
                      error);
}

static gboolean
plot_one_timeline (CliPlot *self, char **out_text, GError **error)
{
  return plot_subject (self, TRUE, out_text, error);
}

static gboolean
plot_one_memory (CliPlot *self, char **out_text, GError **error)
{
  return plot_subject (self, FALSE, out_text, error);
}

/* Options that only some pictures take. */
enum
{
  TAKES_RUN = 1 << 0,
  TAKES_SWEEP = 1 << 1,
  TAKES_SIZES = 1 << 2,
  TAKES_TOP = 1 << 3,
  TAKES_PLANS = 1 << 4,
  TAKES_FROM = 1 << 5,
  TAKES_SEARCH = 1 << 6,
};

static const struct
{
  const char *name;
  gboolean (*draw) (CliPlot *self, char **out_text, GError **error);
  guint takes;
} kinds[] = {
  { "timeline", plot_one_timeline, TAKES_RUN },
  { "memory", plot_one_memory, TAKES_RUN },
  { "pareto", cli_plot_pareto, TAKES_SWEEP | TAKES_SEARCH },
  { "tradeoff", cli_plot_tradeoff, TAKES_SWEEP },
  { "breakdown", cli_plot_breakdown, TAKES_SWEEP | TAKES_SEARCH | TAKES_TOP | TAKES_PLANS },
  { "scaling", cli_plot_scaling, TAKES_SWEEP | TAKES_SIZES },
  { "loss", cli_plot_loss, TAKES_RUN | TAKES_PLANS },
  { "accuracy", cli_plot_accuracy, TAKES_FROM },
};

#define KINDS "timeline|memory|pareto|tradeoff|breakdown|scaling|loss|accuracy"
#define KINDS_IN_WORDS "timeline, memory, pareto, tradeoff, breakdown, scaling, loss or accuracy"

/* The pictures that take an option, as "pareto, tradeoff and scaling"; the caller frees. */
static char *
who_takes (guint what)
{
  g_autoptr (GPtrArray) names = g_ptr_array_new ();
  for (guint i = 0; i < G_N_ELEMENTS (kinds); i++)
    if (kinds[i].takes & what)
      g_ptr_array_add (names, (gpointer)kinds[i].name);
  const char *const last = g_ptr_array_steal_index (names, names->len - 1);
  if (names->len == 0)
    return g_strdup (last);
  g_ptr_array_add (names, NULL);
  g_autofree char *others = g_strjoinv (", ", (char **)names->pdata);
  return g_strdup_printf ("%s and %s", others, last);
}

static gboolean
check_options (const CliPlot *self, guint takes, GError **error)
{
  const struct
  {
    const char *name;
    gboolean is_given;
    guint what;
  } options[] = {
    { "--run", self->run != NULL, TAKES_RUN },
    { "--sweep", self->sweeps != NULL, TAKES_SWEEP },
    { "--gpus", self->gpus != NULL, TAKES_SIZES },
    { "--weak", self->weak, TAKES_SIZES },
    { "--top", self->top_text != NULL, TAKES_TOP },
    { "--only", self->question.only != NULL, TAKES_SEARCH },
    { "--allow", self->question.allow != NULL, TAKES_SEARCH },
    { "--headroom", self->question.headroom != NULL, TAKES_SEARCH },
    { "--memory", self->question.memory != NULL, TAKES_SEARCH },
    { "--p-fits", self->question.p_fits != NULL, TAKES_SEARCH },
    { "--front", self->front_text != NULL, TAKES_SEARCH },
    { "--from", self->from != NULL, TAKES_FROM },
    { "--of", self->of != NULL, TAKES_FROM },
    { "--by", self->by != NULL, TAKES_FROM },
    { "naming a plan or a log", *self->plans != NULL, TAKES_PLANS },
  };
  for (guint i = 0; i < G_N_ELEMENTS (options); i++)
    if (options[i].is_given && !(takes & options[i].what))
      {
        g_autofree char *who = who_takes (options[i].what);
        g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s is for %s", options[i].name, who);
        return FALSE;
      }
  return TRUE;
}

static gboolean
draw (const char *name, CliPlot *self, char **out_text, GError **error)
{
  guint kind = 0;
  while (kind < G_N_ELEMENTS (kinds) && strcmp (name, kinds[kind].name) != 0)
    kind++;
  if (kind == G_N_ELEMENTS (kinds))
    {
      g_autofree char *shown = plan_text_quote (name);
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "there is no picture %s: " KINDS_IN_WORDS,
                   shown);
      return FALSE;
    }
  gint64 top = USUAL_TOP;
  if (!check_options (self, kinds[kind].takes, error)
      || (self->top_text
          && !plan_units_parse_int (self->top_text, "--top", 1, MAX_TOP, &top, error))
      || (self->front_text
          && !plan_units_parse_percent (self->front_text, "--front", 0, MAX_FRONT,
                                        &self->question.front, error)))
    return FALSE;
  self->top = (gint)top;
  return kinds[kind].draw (self, out_text, error);
}

static void
plot_clear (CliPlot *self)
{
  cli_options_clear (&self->options);
  g_free (self->path);
  g_free (self->run);
  g_free (self->top_text);
  g_free (self->front_text);
  g_free (self->gpus);
  g_free (self->from);
  g_free (self->of);
  g_free (self->by);
  g_strfreev (self->sweeps);
  g_strfreev (self->question.only);
  g_free (self->question.allow);
  g_free (self->question.headroom);
  g_free (self->question.memory);
  g_free (self->question.p_fits);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (CliPlot, plot_clear)

/* Adds query's options for the space, for the pictures that search it. */
static void
add_search_options (AdviseQuestion *question, char **out_front, CliContext *context)
{
  const GOptionEntry entries[] = {
    { "only", 0, 0, G_OPTION_ARG_STRING_ARRAY, &question->only,
      "of pareto and breakdown, as query takes it: search these values of a field only",
      "FIELD=V1,V2,…" },
    { "allow", 0, 0, G_OPTION_ARG_STRING, &question->allow,
      "likewise: beyond exact sums and states on the device", "CLASS,…" },
    { "memory", 0, 0, G_OPTION_ARG_STRING, &question->memory,
      "likewise: what a plan may take on a device", "SIZE" },
    { "headroom", 0, 0, G_OPTION_ARG_STRING, &question->headroom,
      "likewise: part of it that stays free", "PERCENT" },
    { "p-fits", 0, 0, G_OPTION_ARG_STRING, &question->p_fits,
      "likewise: probability with which a plan has to fit; 0.95 by default", "P|PERCENT" },
    { "front", 0, 0, G_OPTION_ARG_STRING, out_front,
      "likewise: how far the front goes beyond the best's time; 30 by default", "PERCENT" },
    G_OPTION_ENTRY_NULL,
  };
  cli_context_add (context, entries);
}

static void
add_picture_options (CliPlot *self, CliContext *context)
{
  const GOptionEntry entries[] = {
    { "output", 'o', 0, G_OPTION_ARG_FILENAME, &self->path,
      "the picture, by its extension svg, png, pdf or txt; without it, text on the terminal",
      "FILE" },
    { "run", 0, 0, G_OPTION_ARG_STRING, &self->run,
      "a stored run in place of a plan, simulated beside measured; for timeline, memory and loss",
      "ID" },
    { "sweep", 0, 0, G_OPTION_ARG_STRING_ARRAY, &self->sweeps,
      "what pareto, tradeoff, breakdown and scaling (strategy by default) vary; a field alone "
      "takes "
      "all of its values; without it pareto and breakdown draw what query finds",
      "FIELD[=V1,V2,…]" },
    { "gpus", 0, 0, G_OPTION_ARG_STRING, &self->gpus,
      "sizes for scaling: 8..1024 doubles, 8,24,64 lists; from the cluster's size on by default",
      "SIZES" },
    { "weak", 0, 0, G_OPTION_ARG_NONE, &self->weak,
      "scaling: the global batch is for the smallest size and grows with it", NULL },
    { "top", 0, 0, G_OPTION_ARG_STRING, &self->top_text,
      "breakdown: so many of the best plans, if none are named or swept; 4 by default", "N" },
    { "from", 0, 0, G_OPTION_ARG_FILENAME, &self->from,
      "accuracy: a table in place of the stored runs, as validate --rows --format=csv prints it; "
      "or - "
      "for standard input",
      "FILE" },
    { "of", 0, 0, G_OPTION_ARG_STRING, &self->of,
      "accuracy: what of the table is drawn: step_ms by default, or allocated_mib, "
      "max_allocated_mib, reserved_mib, device_mib",
      "NAME" },
    { "by", 0, 0, G_OPTION_ARG_STRING, &self->by,
      "accuracy: the column whose values have a colour each; stack, source or group by default",
      "COLUMN" },
    G_OPTION_ENTRY_NULL,
  };
  cli_context_add (context, entries);
}

int
cmd_plot (int argc, char **argv, GError **error)
{
  g_auto (CliPlot) self = { .question = { .front = USUAL_FRONT } };
  g_autofree char *text = NULL;
  g_autoptr (CliContext) context
      = cli_context_new (KINDS " [PLAN…|LOG…]",
                         "draw a picture: where a step's time and memory go, or how plans compare");
  add_picture_options (&self, context);
  add_search_options (&self.question, &self.front_text, context);
  cli_options_add (&self.options, context);
  cli_context_describe (
      context, "timeline and memory show one plan over a step; pareto, tradeoff, breakdown "
               "and scaling compare several; accuracy compares predictions with runs. "
               "breakdown takes plans as --plan does; loss draws what runs measured, "
               "and takes logs of run --log, and stored runs as @runID.");
  if (!cli_context_parse (context, &argc, &argv, error))
    return *error ? CLI_FAILED : CLI_DONE;
  if (argc < 2)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "plot: one picture is needed: " KINDS_IN_WORDS);
      return CLI_FAILED;
    }
  self.plans = argv + 2;
  if (!draw (argv[1], &self, &text, error))
    return CLI_FAILED;
  if (text)
    fputs (text, stdout);
  return CLI_DONE;
}
