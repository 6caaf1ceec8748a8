/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/io/compare.h"
#include "cli/io/prediction-json.h"
#include "cli/query/query-keep.h"
#include "cli/query/query.h"

#include <stdio.h>

/* Per cent of memory below which the space left is reported as little: predictions and other
 * programs may take as much. */
#define LITTLE 2.0

/* Why an answer is better than the next one, in words; the caller frees. */
static char *
explain (const AdviseAnswer *self, const AdviseAnswer *next)
{
  if (!next)
    return g_strdup ("the slowest of these");
  const PlanTrace *a = self->prediction.trace, *b = next->prediction.trace;
  const struct
  {
    const char *name;
    gint64 ns;
  } parts[] = { { "compute", b->compute_ns - a->compute_ns },
                { "exposed gathers", b->exposed_gather_ns - a->exposed_gather_ns },
                { "exposed reductions", b->exposed_reduce_ns - a->exposed_reduce_ns },
                { "exposed tensor-, context- and expert-parallel communication",
                  b->exposed_tensor_ns - a->exposed_tensor_ns },
                { "exposed copies to and from the host", b->exposed_copy_ns - a->exposed_copy_ns },
                { "waiting for the host", b->host_ns - a->host_ns },
                { "waiting for other stages", b->idle_ns - a->idle_ns } };
  guint most = 0;
  for (guint i = 1; i < G_N_ELEMENTS (parts); i++)
    if (parts[i].ns > parts[most].ns)
      most = i;
  g_autofree char *here = advise_query_differences (&self->found->plan, &next->found->plan);
  const double gain = 100.0 * (double)(b->step_ns - a->step_ns) / (double)b->step_ns;
  if (b->step_ns == a->step_ns)
    return g_strdup_printf ("as fast as the next in less memory, by %s", here);
  return g_strdup_printf ("%.2f %% faster than the next by %s: %.1f ms less %s", gain, here,
                          1e-6 * (double)parts[most].ns, parts[most].name);
}

static char *
free_fields (const AdviseAnswer *self)
{
  GString *text = g_string_new (NULL);
  for (PlanField f = 0; f < PLAN_N_FIELDS; f++)
    if (self->is_free[f])
      g_string_append_printf (text, "%s%s", text->len ? ", " : "", plan_field_name (f));
  return g_string_free (text, FALSE);
}

static void
add_answer_row (CliTable *table, guint rank, guint group, const AdviseAnswer *self,
                const Plan *base)
{
  const AdvisePrediction *p = &self->prediction;
  g_autofree char *plan = advise_query_differences (&self->found->plan, base);
  cli_table_add_int (table, rank);
  cli_query_add_id (table, self->id);
  cli_table_add_real (table, p->step_ms, 1);
  cli_table_add_real (table, p->tokens_per_s_per_gpu, 1);
  cli_table_add_real (table, p->tflops_per_gpu, 1);
  cli_table_add_real (table, p->mfu, 3);
  cli_add_uncertainty (table, p);
  cli_table_add_int (table, group);
  cli_table_add_real (table, advise_mib (p->trace->memory.allocated), 1);
  cli_table_add_real (table, advise_mib (p->trace->memory.max_allocated), 1);
  cli_table_add_real (table, advise_mib (p->trace->memory.reserved), 1);
  cli_table_add_real (table, advise_mib (p->trace->memory.device), 1);
  cli_table_add (table, advise_query_bound_by (p));
  cli_table_add (table, plan);
}

static CliTable *
answer_table (const AdviseQuery *self, const AdviseInput *input)
{
  static const CliColumn columns[] = { { "rank", TRUE },
                                       { "id", FALSE },
                                       { "step_ms", TRUE },
                                       { "tokens_per_s_per_gpu", TRUE },
                                       { "tflops_per_gpu", TRUE },
                                       { "mfu", TRUE },
                                       { "uncertainty_pct", TRUE },
                                       { "uncertainty_runs", TRUE },
                                       { "p_fits", TRUE },
                                       { "group", TRUE },
                                       { "allocated_mib", TRUE },
                                       { "max_allocated_mib", TRUE },
                                       { "reserved_mib", TRUE },
                                       { "device_mib", TRUE },
                                       { "bound_by", FALSE },
                                       { "plan", FALSE } };
  CliTable *table = cli_table_new (columns, G_N_ELEMENTS (columns));
  for (guint i = 0; i < self->answers->len; i++)
    add_answer_row (table, i + 1, advise_query_group (self, input, i),
                    &g_array_index (self->answers, AdviseAnswer, i), &input->plan);
  return table;
}

/* The table for people: the figures by which plans are compared, and how each differs from the
 * best. */
CliTable *
cli_query_table (const AdviseQuery *self, const AdviseInput *input)
{
  static const CliColumn columns[]
      = { { "rank", TRUE },    { "id", FALSE },       { "group", TRUE },
          { "step_ms", TRUE }, { "mfu", TRUE },       { "device_mib", TRUE },
          { "p_fits", TRUE },  { "bound_by", FALSE }, { "instead", FALSE } };
  CliTable *table = cli_table_new (columns, G_N_ELEMENTS (columns));
  const AdviseAnswer *best = advise_query_best (self);
  for (guint i = 0; i < self->answers->len; i++)
    {
      const AdviseAnswer *answer = &g_array_index (self->answers, AdviseAnswer, i);
      const AdvisePrediction *p = &answer->prediction;
      g_autofree char *instead
          = advise_query_differences (&answer->found->plan, &best->found->plan);
      cli_table_add_int (table, i + 1);
      cli_query_add_id (table, answer->id);
      cli_table_add_int (table, advise_query_group (self, input, i));
      cli_table_add_real (table, p->step_ms, 1);
      cli_table_add_real (table, p->mfu, 3);
      cli_table_add_real (table, advise_mib (p->trace->memory.device), 0);
      if (p->p_fits >= 0)
        cli_table_add_real (table, p->p_fits, 3);
      else
        cli_table_add (table, NULL);
      cli_table_add (table, advise_query_bound_by (p));
      cli_table_add (table, i == 0 ? "as above" : instead);
      if (i == 0)
        cli_table_colour (table, CLI_BEST);
    }
  return table;
}

static const AdviseAnswer *
answer_at (const GArray *answers, guint i)
{
  return i < answers->len ? &g_array_index (answers, AdviseAnswer, i) : NULL;
}

#define FRONT_SHOWN 10 /* points of the front that are printed; JSON and pictures have all */

/* The next point of the front to print, so that the first, the last and evenly spaced ones between
 * are. */
static guint
next_shown (guint i, guint n)
{
  const guint part = i * (FRONT_SHOWN - 1) / MAX (n - 1, 1) + 1;
  return n <= FRONT_SHOWN || i + 1 == n
             ? i + 1
             : MAX ((part * (n - 1) + FRONT_SHOWN - 2) / (FRONT_SHOWN - 1), i + 1);
}

/* Rows with the reasons for each answer's rank, the fields that make no difference to it, and a
 * warning where little memory is left. */
GArray *
cli_query_reasons (const AdviseQuery *self, const AdviseChoice *choice)
{
  const GArray *answers = self->answers;
  GArray *rows = cli_rows_new ();
  for (guint i = 0; i < answers->len; i++)
    {
      const guint64 device = answer_at (answers, i)->prediction.trace->memory.device;
      const double spare = 100.0 * (1 - (double)device / (double)MAX (choice->memory_bytes, 1));
      g_autofree char *why
          = answers->len > 1 ? explain (answer_at (answers, i), answer_at (answers, i + 1)) : NULL;
      g_autofree char *fields = free_fields (answer_at (answers, i));
      g_autofree char *rank = g_strdup_printf ("%u", i + 1);
      g_autoptr (GPtrArray) parts = g_ptr_array_new_with_free_func (g_free);
      if (why)
        g_ptr_array_add (parts, g_steal_pointer (&why));
      if (*fields)
        g_ptr_array_add (parts, g_strdup_printf ("without effect: %s", fields));
      if (spare < LITTLE)
        g_ptr_array_add (parts, g_strdup_printf ("only %.1f %% of memory to spare", spare));
      g_ptr_array_add (parts, NULL);
      g_autofree char *text = g_strjoinv ("; ", (char **)parts->pdata);
      if (*text)
        cli_rows_add (rows, rank, "%s", text);
    }
  return rows;
}

/* Prints the front by the memory that a plan needs to fit with the wanted probability, as the
 * search does. By predicted memory alone, some plans of this front would beat others. */
static void
print_front (const AdviseQuery *self, const AdviseChoice *choice)
{
  const PlanSearchResult *result = &self->result;
  g_autoptr (GArray) front = plan_search_front (result);
  g_autoptr (GString) text = g_string_new (NULL);
  g_string_printf (text,
                   "memory and time, up to %.0f %% more time: MiB to fit into with a probability "
                   "of %g, at ms:",
                   choice->question->front, choice->p_fits);
  for (guint i = 0; i < front->len; i = next_shown (i, front->len))
    {
      const PlanFound *f
          = &g_array_index (result->found, PlanFound, g_array_index (front, guint, i));
      g_string_append_printf (text, "%s %.0f at %.1f", i ? "," : "",
                              advise_mib (f->score.memory_bytes), 1e-6 * (double)f->score.time_ns);
    }
  cli_print_row ("front", text->str);
}

/* Of each trial: its member in JSON, the setting, a caveat where it helps, and the option that has
 * all plans searched with it. */
static const struct
{
  const char *member, *what, *measured, *how;
} trials[ADVISE_N_TRIALS] = {
  [ADVISE_TRIAL_OVERLAP]
  = { "tried", "ep_overlap=on", "; where it was measured it saved less than is predicted",
      "ep_overlap=off,on" },
  [ADVISE_TRIAL_GRAPHS] = { "tried_graphs", "graph_modules", "", "graph_modules=none,attn" },
};

/* Prints the fastest plan with the setting that was tried, or that none beats the best answer. */
static void
print_trial (const AdviseQuery *self, AdviseTrialKind kind)
{
  const PlanFound *with = &self->trials[kind].faster;
  g_autoptr (GString) text = g_string_new (NULL);
  if (self->trials[kind].n_tried == 0)
    return;
  g_string_printf (text,
                   "%s, which is not searched, on %u plans, of rank and front: ", trials[kind].what,
                   self->trials[kind].n_tried);
  if (with->score.time_ns > 0)
    {
      const PlanFound *best = advise_query_best (self)->found;
      const double ns = (double)with->score.time_ns, best_ns = (double)best->score.time_ns;
      g_autofree char *set = advise_query_differences (&with->plan, &best->plan);
      g_string_append_printf (text, "one takes %.1f ms, %.1f %% less than the first, by %s%s",
                              1e-6 * ns, 100 - 100 * ns / best_ns, set, trials[kind].measured);
    }
  else
    g_string_append (text, "none is faster than the first and fits");
  g_string_append_printf (text, "; --only %s searches all plans with it", trials[kind].how);
  cli_print_row ("tried", text->str);
}

char *
cli_query_counts (const AdviseQuery *self, const AdviseChoice *choice)
{
  const PlanSearchResult *result = &self->result;
  return g_strdup_printf (
      "%" G_GUINT64_FORMAT " plans in %.1f MiB: %" G_GUINT64_FORMAT
      " decided by rules, %" G_GUINT64_FORMAT " by memory, %" G_GUINT64_FORMAT
      " by time bounds, %" G_GUINT64_FORMAT " by simulation (%" G_GUINT64_FORMAT " schedules)",
      result->total, advise_mib (choice->memory_bytes), result->by_rule, result->by_memory,
      result->by_bound, result->by_simulation, self->n_simulated);
}

static void
print_text (const AdviseQuery *self, const AdviseChoice *choice)
{
  g_autofree char *title = cli_query_title (self, choice);
  g_autofree char *counts = cli_query_counts (self, choice);
  g_autofree char *searched = g_strdup_printf ("%s, in %.2f s", counts, self->seconds);
  g_autoptr (GArray) card = cli_query_card (self, choice);
  g_autoptr (GArray) reasons = cli_query_reasons (self, choice);
  g_autoptr (CliTable) table = cli_query_table (self, choice->input);
  printf ("%s\n\n", title);
  cli_rows_print (card);
  putchar ('\n');
  cli_table_print (table, CLI_FORMAT_TABLE);
  puts (CLI_QUERY_GROUPS "\n");
  cli_rows_print (reasons);
  print_front (self, choice);
  for (AdviseTrialKind kind = 0; kind < ADVISE_N_TRIALS; kind++)
    print_trial (self, kind);
  cli_print_row ("searched", searched);
  if (!self->result.is_whole)
    cli_print_row ("", "interrupted: the best so far");
}

static void
add_json_answers (JsonBuilder *b, const AdviseQuery *self, const AdviseInput *input)
{
  const GArray *answers = self->answers;
  json_builder_set_member_name (b, "results");
  json_builder_begin_array (b);
  for (guint i = 0; i < answers->len; i++)
    {
      const AdviseAnswer *answer = answer_at (answers, i);
      g_autofree char *why = explain (answer, answer_at (answers, i + 1));
      json_builder_begin_object (b);
      json_builder_set_member_name (b, "rank");
      json_builder_add_int_value (b, i + 1);
      cli_query_id_to_json (answer->id, b);
      cli_prediction_to_json (&answer->prediction, input, b);
      json_builder_set_member_name (b, "group");
      json_builder_add_int_value (b, advise_query_group (self, input, i));
      json_builder_set_member_name (b, "bound_by");
      json_builder_add_string_value (b, advise_query_bound_by (&answer->prediction));
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
add_json_found (JsonBuilder *b, const PlanFound *self, const Plan *base)
{
  g_autofree char *plan = advise_query_differences (&self->plan, base);
  json_builder_begin_object (b);
  json_builder_set_member_name (b, "step_ms");
  json_builder_add_double_value (b, 1e-6 * (double)self->score.time_ns);
  json_builder_set_member_name (b, "needed_mib");
  json_builder_add_double_value (b, advise_mib (self->score.memory_bytes));
  json_builder_set_member_name (b, "device_mib");
  json_builder_add_double_value (b, advise_mib (self->score.device_bytes));
  json_builder_set_member_name (b, "plan");
  json_builder_add_string_value (b, plan);
  json_builder_end_object (b);
}

static void
add_json_front (JsonBuilder *b, const PlanSearchResult *result, const Plan *base)
{
  g_autoptr (GArray) front = plan_search_front (result);
  json_builder_set_member_name (b, "pareto");
  json_builder_begin_array (b);
  for (guint i = 0; i < front->len; i++)
    add_json_found (b, &g_array_index (result->found, PlanFound, g_array_index (front, guint, i)),
                    base);
  json_builder_end_array (b);
}

static void
add_json_trial (JsonBuilder *b, const AdviseQuery *self, AdviseTrialKind kind, const Plan *base)
{
  const PlanFound *with = &self->trials[kind].faster;
  json_builder_set_member_name (b, trials[kind].member);
  json_builder_begin_object (b);
  json_builder_set_member_name (b, "with");
  json_builder_add_string_value (b, trials[kind].what);
  json_builder_set_member_name (b, "plans");
  json_builder_add_int_value (b, self->trials[kind].n_tried);
  json_builder_set_member_name (b, "faster");
  if (with->score.time_ns > 0)
    add_json_found (b, with, base);
  else
    json_builder_add_null_value (b);
  json_builder_end_object (b);
}

static void
print_json (const AdviseQuery *self, const AdviseInput *input)
{
  const PlanSearchResult *result = &self->result;
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
  json_builder_set_member_name (b, "complete");
  json_builder_add_boolean_value (b, result->is_whole);
  add_json_answers (b, self, input);
  add_json_front (b, result, &input->plan);
  for (AdviseTrialKind kind = 0; kind < ADVISE_N_TRIALS; kind++)
    add_json_trial (b, self, kind, &input->plan);
  json_builder_set_member_name (b, "decided");
  json_builder_begin_object (b);
  for (guint i = 0; i < G_N_ELEMENTS (decided); i++)
    {
      json_builder_set_member_name (b, decided[i].name);
      json_builder_add_int_value (b, (gint64)decided[i].n);
    }
  json_builder_end_object (b);
  json_builder_set_member_name (b, "seconds");
  json_builder_add_double_value (b, self->seconds);
  json_builder_end_object (b);
  g_autoptr (JsonNode) root = json_builder_get_root (b);
  cli_print_json (root);
}

void
cli_query_print (const AdviseQuery *self, const AdviseChoice *choice, CliFormat format)
{
  if (format == CLI_FORMAT_JSON)
    {
      print_json (self, choice->input);
      return;
    }
  if (format == CLI_FORMAT_TABLE)
    {
      print_text (self, choice);
      return;
    }
  g_autoptr (CliTable) table = answer_table (self, choice->input);
  cli_table_print (table, format);
}
