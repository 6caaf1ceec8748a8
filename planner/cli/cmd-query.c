/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/cli/commands.h"
#include "planner/cli/options.h"
#include "planner/cli/output.h"
#include "planner/cli/predict.h"
#include "planner/error.h"
#include "planner/search.h"
#include "planner/units.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* What is asked, beside the plan's own options. */
typedef struct
{
  char **only;
  char *memory, *headroom, *allow;
  gint top;
} Question;

/* One answer: a plan, those that cost the same, and how it does. */
typedef struct
{
  const PlanFound *found;
  guint n_equal;
  gboolean is_free[PLAN_N_FIELDS]; /* what differs among those */
  CliPrediction prediction;
} Answer;

static void
answer_clear (gpointer data)
{
  cli_prediction_clear (&((Answer *)data)->prediction);
}

static void
question_clear (Question *self)
{
  g_strfreev (self->only);
  g_free (self->memory);
  g_free (self->headroom);
  g_free (self->allow);
}

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Question, question_clear)

static volatile sig_atomic_t is_interrupted;

static void
interrupt (int signal_number)
{
  is_interrupted = 1;
}

static gboolean
score (const Plan *resolved, gpointer user_data, PlanScore *out_score)
{
  return cli_score (user_data, resolved, out_score, NULL);
}

static gboolean
show_progress (guint64 done, guint64 total, gpointer user_data)
{
  if (isatty (STDERR_FILENO))
    fprintf (stderr, "\r%5.1f %% of %" G_GUINT64_FORMAT " plans",
             100.0 * (double)done / (double)total, total);
  return !is_interrupted;
}

/* Fields that --set, --plan and the like have fixed: those that differ from a plan's defaults, and
 * those named. */
static gboolean
find_pinned (const CliOptions *options, const Plan *plan, gboolean *out_pinned, GError **error)
{
  Plan initial;
  plan_init (&initial);
  for (PlanField f = 0; f < PLAN_N_FIELDS; f++)
    out_pinned[f] = plan->value[f] != initial.value[f];
  for (char **s = options->set; s && *s; s++)
    {
      g_auto (GStrv) halves = g_strsplit (*s, "=", 2);
      PlanField field;
      if (!plan_field_parse (halves[0], &field, error))
        return FALSE;
      out_pinned[field] = TRUE;
    }
  return TRUE;
}

/* "FIELD=V1,V2": only these values. */
static gboolean
restrict_to (PlanSpace *space, const char *text, GError **error)
{
  g_auto (GStrv) halves = g_strsplit (text, "=", 2);
  PlanField field;
  if (!halves[0] || !halves[1])
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "--only: '%s' is not FIELD=VALUE[,VALUE…]", text);
      return FALSE;
    }
  if (!plan_field_parse (halves[0], &field, error))
    return FALSE;
  g_auto (GStrv) words = g_strsplit (halves[1], ",", -1);
  g_autoptr (GArray) values = g_array_new (FALSE, FALSE, sizeof (gint64));
  for (char **w = words; *w; w++)
    {
      Plan plan;
      plan_init (&plan);
      if (!plan_set (&plan, halves[0], *w, error))
        return FALSE;
      g_array_append_val (values, plan.value[field]);
    }
  return plan_space_restrict (space, field, (const gint64 *)(gpointer)values->data, values->len,
                              error);
}

static gboolean
read_memory (const Question *question, const PlanCluster *cluster, guint64 *out_bytes,
             GError **error)
{
  guint64 bytes = cluster->memory_bytes;
  double percent = 0;
  if (question->memory && !plan_units_parse_size (question->memory, "--memory", &bytes, error))
    return FALSE;
  if (question->headroom)
    {
      g_autofree char *number = g_strdup (question->headroom);
      char *sign = strchr (number, '%');
      if (sign && sign[1] == '\0')
        *sign = '\0';
      if (!plan_units_parse_real (number, "--headroom", 0, 99, &percent, error))
        return FALSE;
    }
  *out_bytes = (guint64)((double)bytes * (100 - percent) / 100);
  return TRUE;
}

static gboolean
same_cost (const PlanFound *a, const PlanFound *b)
{
  return a->score.time_ns == b->score.time_ns && a->score.memory_bytes == b->score.memory_bytes;
}

/* The K best that differ in cost; plans equal in cost are one answer, whose free fields are told.
 */
static GArray *
take_answers (const PlanSearchResult *result, const CliInput *input, guint k, GError **error)
{
  g_autoptr (GArray) answers = g_array_new (FALSE, TRUE, sizeof (Answer));
  g_array_set_clear_func (answers, answer_clear);
  for (guint i = 0; i < result->found->len && answers->len < k;)
    {
      Answer answer = { .found = &g_array_index (result->found, PlanFound, i) };
      for (; i < result->found->len; i++)
        {
          const PlanFound *other = &g_array_index (result->found, PlanFound, i);
          if (!same_cost (answer.found, other))
            break;
          answer.n_equal++;
          for (PlanField f = 0; f < PLAN_N_FIELDS; f++)
            answer.is_free[f] |= other->plan.value[f] != answer.found->plan.value[f];
        }
      CliInput chosen = *input;
      chosen.plan = answer.found->plan;
      if (!cli_predict (&chosen, &answer.prediction, error))
        return NULL;
      g_array_append_val (answers, answer);
    }
  return g_steal_pointer (&answers);
}

/* The largest part of a step that is not arithmetic, if it is a tenth of it. */
static const char *
bound_by (const PlanTrace *t)
{
  const struct
  {
    const char *name;
    gint64 ns;
  } parts[] = { { "gather", t->exposed_gather_ns },
                { "reduce", t->exposed_reduce_ns },
                { "tensor", t->exposed_tensor_ns },
                { "copies", t->exposed_copy_ns },
                { "host", t->host_ns } };
  const char *name = "compute";
  gint64 most = t->step_ns / 10;
  for (guint i = 0; i < G_N_ELEMENTS (parts); i++)
    if (parts[i].ns > most)
      {
        name = parts[i].name;
        most = parts[i].ns;
      }
  return name;
}

/* "strategy=optim, mbs=2": where a plan differs from another; the caller frees. */
static char *
differences (const Plan *a, const Plan *b)
{
  GString *text = g_string_new (NULL);
  for (PlanField f = 0; f < PLAN_N_FIELDS; f++)
    if (a->value[f] != b->value[f] && b->value[PLAN_SP] == PLAN_UNSET && f == PLAN_SP
        && a->value[PLAN_TP] == 1)
      continue; /* there is nothing else that it could be */
    else if (a->value[f] != b->value[f])
      {
        g_autofree char *value = plan_field_print (f, a->value[f]);
        g_string_append_printf (text, "%s%s=%s", text->len ? ", " : "", plan_field_name (f), value);
      }
  return g_string_free (text, FALSE);
}

/* Why an answer is better than the next, in words; the caller frees. */
static char *
explain (const Answer *self, const Answer *next)
{
  if (!next)
    return g_strdup ("the last of those asked for");
  const PlanTrace *a = self->prediction.trace, *b = next->prediction.trace;
  const struct
  {
    const char *name;
    gint64 ns;
  } parts[] = { { "compute", b->compute_ns - a->compute_ns },
                { "exposed gathers", b->exposed_gather_ns - a->exposed_gather_ns },
                { "exposed reductions", b->exposed_reduce_ns - a->exposed_reduce_ns },
                { "exposed tensor- and context-parallel communication",
                  b->exposed_tensor_ns - a->exposed_tensor_ns },
                { "exposed copies to and from the host", b->exposed_copy_ns - a->exposed_copy_ns },
                { "waiting for the host", b->host_ns - a->host_ns } };
  guint most = 0;
  for (guint i = 1; i < G_N_ELEMENTS (parts); i++)
    if (parts[i].ns > parts[most].ns)
      most = i;
  g_autofree char *here = differences (&self->found->plan, &next->found->plan);
  const double gain = 100.0 * (double)(b->step_ns - a->step_ns) / (double)b->step_ns;
  if (b->step_ns == a->step_ns)
    return g_strdup_printf ("as fast as the next in less memory, by %s", here);
  return g_strdup_printf ("%.2f %% faster than the next by %s: %.1f ms less %s", gain, here,
                          1e-6 * (double)parts[most].ns, parts[most].name);
}

static char *
free_fields (const Answer *self)
{
  GString *text = g_string_new (NULL);
  for (PlanField f = 0; f < PLAN_N_FIELDS; f++)
    if (self->is_free[f])
      g_string_append_printf (text, "%s%s", text->len ? ", " : "", plan_field_name (f));
  return g_string_free (text, FALSE);
}

static void
add_answer_row (CliTable *table, guint rank, const Answer *self, const Plan *base)
{
  const CliPrediction *p = &self->prediction;
  g_autofree char *plan = differences (&self->found->plan, base);
  cli_table_add_int (table, rank);
  cli_table_add_real (table, p->step_ms, 1);
  cli_table_add_real (table, p->tokens_per_s_per_gpu, 1);
  cli_table_add_real (table, p->tflops_per_gpu, 1);
  cli_table_add_real (table, p->mfu, 3);
  cli_table_add (table, NULL);
  cli_table_add_real (table, cli_mib (p->trace->memory.allocated), 1);
  cli_table_add_real (table, cli_mib (p->trace->memory.max_allocated), 1);
  cli_table_add_real (table, cli_mib (p->trace->memory.reserved), 1);
  cli_table_add_real (table, cli_mib (p->trace->memory.device), 1);
  cli_table_add (table, bound_by (p->trace));
  cli_table_add (table, plan);
}

static CliTable *
answer_table (const GArray *answers, const Plan *base)
{
  static const CliColumn columns[] = { { "rank", TRUE },
                                       { "step_ms", TRUE },
                                       { "tokens_per_s_per_gpu", TRUE },
                                       { "tflops_per_gpu", TRUE },
                                       { "mfu", TRUE },
                                       { "uncertainty_pct", TRUE },
                                       { "allocated_mib", TRUE },
                                       { "max_allocated_mib", TRUE },
                                       { "reserved_mib", TRUE },
                                       { "device_mib", TRUE },
                                       { "bound_by", FALSE },
                                       { "plan", FALSE } };
  CliTable *table = cli_table_new (columns, G_N_ELEMENTS (columns));
  for (guint i = 0; i < answers->len; i++)
    add_answer_row (table, i + 1, &g_array_index (answers, Answer, i), base);
  return table;
}

static const Answer *
answer_at (const GArray *answers, guint i)
{
  return i < answers->len ? &g_array_index (answers, Answer, i) : NULL;
}

static void
print_words (const GArray *answers, const PlanSearchResult *result, double seconds,
             const CliInput *input, guint64 memory_bytes)
{
  printf ("\n");
  for (guint i = 0; i < answers->len; i++)
    {
      g_autofree char *why = explain (answer_at (answers, i), answer_at (answers, i + 1));
      g_autofree char *fields = free_fields (answer_at (answers, i));
      printf ("%u: %s%s%s\n", i + 1, why, *fields ? "; free: " : "", fields);
    }
  g_autoptr (GArray) front = plan_search_front (result);
  printf ("\nfront of memory and time, device_mib at step_ms:");
  for (guint i = 0; i < front->len; i++)
    {
      const PlanFound *f
          = &g_array_index (result->found, PlanFound, g_array_index (front, guint, i));
      printf ("%s %.0f at %.1f", i ? "," : "", cli_mib (f->score.memory_bytes),
              1e-6 * (double)f->score.time_ns);
    }
  printf ("\n%" G_GUINT64_FORMAT " plans for %s on %s in %.1f MiB: %" G_GUINT64_FORMAT
          " decided by rules, %" G_GUINT64_FORMAT " by memory, %" G_GUINT64_FORMAT
          " by time bounds, %" G_GUINT64_FORMAT " by simulation, in %.2f s%s\n",
          result->total, input->model->name, input->cluster->name, cli_mib (memory_bytes),
          result->by_rule, result->by_memory, result->by_bound, result->by_simulation, seconds,
          result->is_whole ? "" : "; interrupted: the best so far");
}

static void
add_json_answers (JsonBuilder *b, const GArray *answers, const CliInput *input)
{
  json_builder_set_member_name (b, "results");
  json_builder_begin_array (b);
  for (guint i = 0; i < answers->len; i++)
    {
      const Answer *answer = answer_at (answers, i);
      g_autofree char *why = explain (answer, answer_at (answers, i + 1));
      json_builder_begin_object (b);
      json_builder_set_member_name (b, "rank");
      json_builder_add_int_value (b, i + 1);
      cli_prediction_to_json (&answer->prediction, input, b);
      json_builder_set_member_name (b, "bound_by");
      json_builder_add_string_value (b, bound_by (answer->prediction.trace));
      json_builder_set_member_name (b, "why");
      json_builder_add_string_value (b, why);
      json_builder_set_member_name (b, "free");
      json_builder_begin_array (b);
      for (PlanField f = 0; f < PLAN_N_FIELDS; f++)
        if (answer->is_free[f])
          json_builder_add_string_value (b, plan_field_name (f));
      json_builder_end_array (b);
      json_builder_end_object (b);
    }
  json_builder_end_array (b);
}

static void
add_json_front (JsonBuilder *b, const PlanSearchResult *result, const Plan *base)
{
  g_autoptr (GArray) front = plan_search_front (result);
  json_builder_set_member_name (b, "pareto");
  json_builder_begin_array (b);
  for (guint i = 0; i < front->len; i++)
    {
      const PlanFound *f
          = &g_array_index (result->found, PlanFound, g_array_index (front, guint, i));
      g_autofree char *plan = differences (&f->plan, base);
      json_builder_begin_object (b);
      json_builder_set_member_name (b, "step_ms");
      json_builder_add_double_value (b, 1e-6 * (double)f->score.time_ns);
      json_builder_set_member_name (b, "device_mib");
      json_builder_add_double_value (b, cli_mib (f->score.memory_bytes));
      json_builder_set_member_name (b, "plan");
      json_builder_add_string_value (b, plan);
      json_builder_end_object (b);
    }
  json_builder_end_array (b);
}

static void
print_json (const GArray *answers, const PlanSearchResult *result, double seconds,
            const CliInput *input)
{
  const struct
  {
    const char *name;
    guint64 n;
  } decided[] = { { "total", result->total },
                  { "by_rule", result->by_rule },
                  { "by_bound", result->by_bound },
                  { "by_memory", result->by_memory },
                  { "by_simulation", result->by_simulation } };
  g_autoptr (JsonBuilder) b = json_builder_new ();
  json_builder_begin_object (b);
  add_json_answers (b, answers, input);
  add_json_front (b, result, &input->plan);
  json_builder_set_member_name (b, "decided");
  json_builder_begin_object (b);
  for (guint i = 0; i < G_N_ELEMENTS (decided); i++)
    {
      json_builder_set_member_name (b, decided[i].name);
      json_builder_add_int_value (b, (gint64)decided[i].n);
    }
  json_builder_end_object (b);
  json_builder_set_member_name (b, "seconds");
  json_builder_add_double_value (b, seconds);
  json_builder_end_object (b);
  g_autoptr (JsonNode) root = json_builder_get_root (b);
  cli_print_json (root);
}

/* Nothing fits: what comes closest, and what it would take. */
static int
report_closest (const PlanSearchResult *result, const CliInput *input, guint64 memory_bytes,
                GError **error)
{
  if (!result->is_closest)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INFEASIBLE,
                   "none of %" G_GUINT64_FORMAT " plans is legal here: sim says for one of them "
                   "which rule it breaks",
                   result->total);
      return CLI_FAILED;
    }
  CliInput chosen = *input;
  g_auto (CliPrediction) p = { 0 };
  chosen.plan = result->closest.plan;
  if (!cli_predict (&chosen, &p, error))
    return CLI_FAILED;
  g_autofree char *plan = differences (&result->closest.plan, &input->plan);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INFEASIBLE,
               "nothing fits in %.1f MiB; closest is %s with %.1f MiB on the device, of which %.1f "
               "stay between steps: more devices, a shorter sequence or --allow would lower that",
               cli_mib (memory_bytes), plan, cli_mib (p.trace->memory.device),
               cli_mib (p.trace->memory.allocated));
  return CLI_FAILED;
}

static int
answer (const CliInput *input, const Question *question, PlanSpace *space, CliFormat format,
        GError **error)
{
  g_auto (PlanSearchResult) result = { 0 };
  guint64 memory_bytes;
  if (!read_memory (question, input->cluster, &memory_bytes, error))
    return CLI_FAILED;
  const PlanSearch search = { .model = input->model,
                              .cluster = input->cluster,
                              .space = space,
                              .memory_bytes = memory_bytes,
                              .best = (guint)question->top,
                              .threads = g_get_num_processors (),
                              .score = score,
                              .progress = show_progress,
                              .user_data = (gpointer)input };
  const gint64 start_us = g_get_monotonic_time ();
  signal (SIGINT, interrupt);
  plan_search_run (&search, &result);
  signal (SIGINT, SIG_DFL);
  const double seconds = 1e-6 * (double)(g_get_monotonic_time () - start_us);
  if (isatty (STDERR_FILENO))
    fprintf (stderr, "\r%40s\r", "");
  if (result.found->len == 0)
    return report_closest (&result, input, memory_bytes, error);
  g_autoptr (GArray) answers = take_answers (&result, input, (guint)question->top, error);
  if (!answers)
    return CLI_FAILED;
  if (format == CLI_FORMAT_JSON)
    {
      print_json (answers, &result, seconds, input);
      return CLI_DONE;
    }
  g_autoptr (CliTable) table = answer_table (answers, &input->plan);
  cli_table_print (table, format);
  if (format == CLI_FORMAT_TABLE)
    print_words (answers, &result, seconds, input, memory_bytes);
  return CLI_DONE;
}

static PlanSpace *
space_of (const CliOptions *options, const CliInput *input, const Question *question,
          GError **error)
{
  gboolean pinned[PLAN_N_FIELDS];
  guint allow = 0;
  if (!find_pinned (options, &input->plan, pinned, error)
      || (question->allow && !plan_space_allow_parse (question->allow, &allow, error)))
    return NULL;
  g_autoptr (PlanSpace) space
      = plan_space_new (input->model, input->cluster, &input->plan, pinned, allow);
  for (char **o = question->only; o && *o; o++)
    if (!restrict_to (space, *o, error))
      return NULL;
  return g_steal_pointer (&space);
}

int
cmd_query (int argc, char **argv, GError **error)
{
  g_auto (CliOptions) options = { 0 };
  g_auto (CliInput) input = { 0 };
  g_auto (Question) question = { .top = 5 };
  CliFormat format;
  const GOptionEntry entries[] = {
    { "only", 0, 0, G_OPTION_ARG_STRING_ARRAY, &question.only,
      "search these values of a field only", "FIELD=V1,V2,…" },
    { "memory", 0, 0, G_OPTION_ARG_STRING, &question.memory,
      "what a plan may take on a device; the cluster's unless said", "SIZE" },
    { "headroom", 0, 0, G_OPTION_ARG_STRING, &question.headroom, "part of it that stays free",
      "PERCENT" },
    { "allow", 0, 0, G_OPTION_ARG_STRING, &question.allow,
      "classes of arithmetic beyond fp32 sums and states: mixed, lowbit, moments", "CLASS,…" },
    { "top", 0, 0, G_OPTION_ARG_INT, &question.top, "answers, best first; 5 unless said", "N" },
    G_OPTION_ENTRY_NULL,
  };
  g_autoptr (CliContext) context
      = cli_context_new (NULL, "the recommended configurations, best first, with reasons");
  cli_context_add (context, entries);
  cli_options_add (&options, context);
  cli_options_add_format (&options, CLI_FORMATS, context);
  if (!cli_context_parse (context, &argc, &argv, error))
    return *error ? CLI_FAILED : CLI_DONE;
  if (question.top < 1 || question.top > 1000)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "--top: %d is not from 1 to 1000",
                   question.top);
      return CLI_FAILED;
    }
  if (!cli_format_parse (options.format, &format, error)
      || !cli_input_read (&options, NULL, &input, error))
    return CLI_FAILED;
  if (input.plan.value[PLAN_GBS] == PLAN_UNSET)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "gbs is needed: --gbs N, in sequences per step over all devices");
      return CLI_FAILED;
    }
  g_autoptr (PlanSpace) space = space_of (&options, &input, &question, error);
  return space ? answer (&input, &question, space, format, error) : CLI_FAILED;
}
