/* SPDX-License-Identifier: Apache-2.0 */
/* Explains why a plan is not the best, part by part, and what each change of one field would do to
 * it. */
#include "config.h"

#include "advise/score.h"
#include "advise/workspaces.h"
#include "cli/io/compare.h"
#include "cli/io/prediction-json.h"
#include "cli/query/query-keep.h"
#include "cli/query/query.h"

#include <stdio.h>

/* A plan that differs by one change, and its simulated time and memory. */
typedef struct
{
  Plan plan; /* resolved */
  PlanScore score;
} Change;

typedef struct
{
  const AdviseChoice *choice;
  AdviseInput mine;            /* borrowed, except for the plan */
  AdvisePrediction prediction; /* of `mine`; empty if that is illegal */
  char *illegal;               /* the reason; NULL: `mine` is legal */
  AdviseQuery query;
  GArray *changes;                 /* Change: the best one of each field, best first */
  guint n_legal;                   /* changes that are legal */
  gint64 id;                       /* number of `mine` in the store */
  gboolean is_idle[PLAN_N_FIELDS]; /* changing the field makes no difference */
} Explanation;

static void
explanation_clear (Explanation *self)
{
  advise_prediction_clear (&self->prediction);
  g_free (self->illegal);
  advise_query_clear (&self->query);
  g_clear_pointer (&self->changes, g_array_unref);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Explanation, explanation_clear)

static gboolean
fits (const Explanation *self, guint64 needed_bytes)
{
  return needed_bytes <= self->choice->memory_bytes;
}

/* Orders changes: those that fit by time, then the others by memory. */
static int
compare_changes (gconstpointer a, gconstpointer b, gpointer user_data)
{
  const Change *x = a, *y = b;
  const gboolean x_fits = fits (user_data, x->score.memory_bytes);
  const gboolean y_fits = fits (user_data, y->score.memory_bytes);
  const gint64 time = x->score.time_ns - y->score.time_ns;
  if (x_fits != y_fits)
    return x_fits ? -1 : 1;
  if (x_fits && time != 0)
    return time < 0 ? -1 : 1;
  if (x->score.memory_bytes != y->score.memory_bytes)
    return x->score.memory_bytes < y->score.memory_bytes ? -1 : 1;
  return time < 0 ? -1 : time > 0;
}

/* The field that a change is about: the first one that differs, except for fields that only follow
 * from others. */
static PlanField
topic (const Plan *from, const Plan *to)
{
  static const PlanField first[] = { PLAN_OFFLOAD_OPTIMIZER, PLAN_EXP_AVG, PLAN_MAIN_GRADS };
  static const PlanField together[][2]
      = { { PLAN_OUTER_STRATEGY, PLAN_DP_OUTER },     { PLAN_NCCL_UB, PLAN_DOUBLE_BUFFER },
          { PLAN_PARAM_GATHER, PLAN_COMPUTE },        { PLAN_OFFLOAD_MODULES, PLAN_OFFLOAD_LAYERS },
          { PLAN_RECOMPUTE_MODULES, PLAN_RECOMPUTE }, { PLAN_RECOMPUTE_METHOD, PLAN_RECOMPUTE },
          { PLAN_RECOMPUTE_LAYERS, PLAN_RECOMPUTE } };
  PlanField field = 0;
  for (guint i = 0; i < G_N_ELEMENTS (first); i++)
    if (from->value[first[i]] != to->value[first[i]])
      return first[i];
  while (field + 1 < PLAN_N_FIELDS && from->value[field] == to->value[field])
    field++;
  for (guint i = 0; i < G_N_ELEMENTS (together); i++)
    if (field == together[i][0])
      return together[i][1];
  return field;
}

static gboolean
does_nothing (const Explanation *self, const Change *change)
{
  const PlanTrace *mine = self->prediction.trace;
  return mine && change->score.time_ns == mine->step_ns
         && change->score.device_bytes == mine->memory.device;
}

/* Keeps only the best change of each field, and none that makes no difference. */
static void
keep_best_of_each (Explanation *self)
{
  gboolean is_there[PLAN_N_FIELDS] = { FALSE };
  const Plan *from = self->illegal ? &self->mine.plan : &self->prediction.of->plan;
  guint n = 0;
  for (guint i = 0; i < self->changes->len; i++)
    {
      const Change change = g_array_index (self->changes, Change, i);
      const PlanField field = topic (from, &change.plan);
      if (does_nothing (self, &change))
        self->is_idle[field] = TRUE;
      else if (!is_there[field])
        {
          g_array_index (self->changes, Change, n++) = change;
          is_there[field] = TRUE;
        }
    }
  for (PlanField f = 0; f < PLAN_N_FIELDS; f++)
    self->is_idle[f] &= !is_there[f];
  g_array_set_size (self->changes, n);
}

/* Simulates all changes of one field, offloading among them even where the search was not allowed
 * it. Left out are fields that were set by the user, and changes that add a hazard the plan does
 * not have. */
static gboolean
find_changes (Explanation *self, GError **error)
{
  const AdviseInput *input = self->choice->input;
  AdviseChoice wider = *self->choice;
  wider.allow |= 1u << PLAN_ALLOW_OFFLOAD;
  g_autoptr (PlanSpace) space = advise_choice_space (&wider, error);
  if (!space)
    return FALSE;
  g_autoptr (GArray) plans = plan_space_neighbours (space, &self->mine.plan);
  g_autoptr (AdviseScorer) scorer = advise_scorer_new (input, self->choice->p_fits);
  self->changes = g_array_new (FALSE, TRUE, sizeof (Change));
  const gboolean is_admitted
      = self->illegal || plan_space_admits (space, &self->prediction.of->plan, self->prediction.of);
  for (guint i = 0; i < plans->len; i++)
    {
      g_autoptr (PlanCase) of = advise_case (input, &g_array_index (plans, Plan, i), NULL);
      Change change;
      if (!of || (is_admitted && !plan_space_admits (space, &of->plan, of))
          || !advise_scorer_score (of, NULL, scorer, &change.score))
        continue;
      change.plan = of->plan;
      g_array_append_val (self->changes, change);
    }
  self->n_legal = self->changes->len;
  g_array_sort_with_data (self->changes, compare_changes, self);
  keep_best_of_each (self);
  return TRUE;
}

static gboolean
find_out (Explanation *self, const AdviseChoice *choice, const Plan *mine, GError **error)
{
  g_autoptr (GError) why = NULL;
  self->choice = choice;
  self->mine = *choice->input;
  self->mine.plan = *mine;
  if (!advise_predict (&self->mine, &self->prediction, &why))
    self->illegal = g_strdup (why->message);
  if (self->mine.plan.value[PLAN_MBS] == PLAN_UNSET)
    self->mine.plan.value[PLAN_MBS] = 1;
  return advise_query_ask (choice, 1, &self->query, error) && find_changes (self, error);
}

/* Stores both plans, so that they have numbers. */
static void
keep (Explanation *self)
{
  const AdviseInput *input = &self->mine;
  const AdviseAnswer *best = advise_query_best (&self->query);
  CliKept kept[2];
  guint n = 0;
  if (!self->illegal)
    kept[n++] = (CliKept){ input->model,
                           input->cluster,
                           &self->prediction.of->plan,
                           { .time_ns = self->prediction.trace->step_ns,
                             .device_bytes = self->prediction.trace->memory.device },
                           0 };
  if (best)
    kept[n++]
        = (CliKept){ input->model, input->cluster, &best->found->plan, best->found->score, 0 };
  cli_query_keep (self->choice->question, kept, n);
  if (!self->illegal)
    self->id = kept[0].id;
  if (best)
    g_array_index (self->query.answers, AdviseAnswer, 0).id = kept[n - 1].id;
}

/* Adds a difference in ms, with its sign, if it is at least a hundredth of the total. */
static void
add_part (GString *text, const char *name, gint64 mine_ns, gint64 best_ns, gint64 total_ns)
{
  const double ms = 1e-6 * (double)(mine_ns - best_ns);
  if (ABS (mine_ns - best_ns) * 100 >= total_ns)
    g_string_append_printf (text, "%s%s %+.*f", text->len ? ", " : "", name,
                            ms < 10 && ms > -10 ? 3 : 1, ms);
}

/* The parts by which the plan's time differs from the best one's, as "compute +12.3, exposed gather
 * -0.4". The caller frees. */
static char *
time_parts (const PlanTrace *mine, const PlanTrace *best)
{
  const gint64 total = ABS (mine->step_ns - best->step_ns);
  GString *text = g_string_new (NULL);
  add_part (text, "compute", mine->compute_ns, best->compute_ns, total);
  add_part (text, "exposed gather", mine->exposed_gather_ns, best->exposed_gather_ns, total);
  add_part (text, "exposed reduce", mine->exposed_reduce_ns, best->exposed_reduce_ns, total);
  add_part (text, "exposed tensor", mine->exposed_tensor_ns, best->exposed_tensor_ns, total);
  add_part (text, "exposed copy", mine->exposed_copy_ns, best->exposed_copy_ns, total);
  add_part (text, "host", mine->host_ns, best->host_ns, total);
  add_part (text, "idle", mine->idle_ns, best->idle_ns, total);
  return g_string_free (text, FALSE);
}

/* The verdict in one sentence, as "it fits with 93.1 MiB to spare, and takes 4.1 ms (0.52 %) more
 * than the best, in ms: ...". The caller frees. */
static char *
verdict (const Explanation *self)
{
  const AdviseAnswer *best = advise_query_best (&self->query);
  if (self->illegal)
    return g_strdup_printf ("it is illegal: %s", self->illegal);
  const PlanTrace *t = self->prediction.trace;
  const guint64 device = t->memory.device, limit = self->choice->memory_bytes;
  const gboolean is_sure
      = fits (self, advise_choice_needed_bytes (self->choice, &self->prediction));
  g_autofree char *room
      = device <= limit
            ? g_strdup_printf ("it %s with %.1f MiB to spare", is_sure ? "fits" : "may not fit",
                               advise_mib (limit - device))
            : g_strdup_printf ("it does not fit: %.1f MiB too much of %.1f",
                               advise_mib (device - limit), advise_mib (limit));
  if (!best)
    return g_steal_pointer (&room);
  const PlanTrace *b = best->prediction.trace;
  const double percent = 100.0 * (double)(t->step_ns - b->step_ns) / (double)b->step_ns;
  if (t->step_ns == b->step_ns)
    return g_strdup_printf ("%s, and is as fast as the best", room);
  g_autofree char *parts = time_parts (t, b);
  return g_strdup_printf ("%s, and takes %.*f ms (%.2f %%) %s than the best, in ms: %s", room,
                          ABS (t->step_ns - b->step_ns) < 10000000 ? 3 : 1,
                          1e-6 * (double)ABS (t->step_ns - b->step_ns), ABS (percent),
                          percent > 0 ? "more" : "less", parts);
}

/* The table of the best changes, at most `top` of them. */
static CliTable *
change_table (const Explanation *self)
{
  static const CliColumn columns[]
      = { { "change", FALSE },    { "step_ms", TRUE },           { "step_change_pct", TRUE },
          { "device_mib", TRUE }, { "device_change_mib", TRUE }, { "fits", FALSE } };
  CliTable *table = cli_table_new (columns, G_N_ELEMENTS (columns));
  const PlanTrace *mine = self->prediction.trace;
  const Plan *from = self->illegal ? &self->mine.plan : &self->prediction.of->plan;
  for (guint i = 0; i < MIN (self->changes->len, (guint)self->choice->question->top); i++)
    {
      const Change *change = &g_array_index (self->changes, Change, i);
      g_autofree char *what = advise_query_changes (&change->plan, from);
      cli_table_add (table, what);
      cli_table_add_real (table, 1e-6 * (double)change->score.time_ns, 1);
      if (mine)
        cli_table_add_real (
            table, 100.0 * (double)(change->score.time_ns - mine->step_ns) / (double)mine->step_ns,
            2);
      else
        cli_table_add (table, NULL);
      cli_table_add_real (table, advise_mib (change->score.device_bytes), 1);
      if (mine)
        cli_table_add_real (
            table, advise_mib (change->score.device_bytes) - advise_mib (mine->memory.device), 1);
      else
        cli_table_add (table, NULL);
      cli_table_add (table, fits (self, change->score.memory_bytes) ? "yes" : "no");
    }
  return table;
}

static CliTable *
comparison (const Explanation *self)
{
  static const CliColumn columns[]
      = { { "what", FALSE }, { "yours", TRUE }, { "best", TRUE }, { "change", TRUE } };
  const AdviseAnswer *best = advise_query_best (&self->query);
  CliTable *table = cli_table_new (columns, G_N_ELEMENTS (columns));
  if (best->id)
    {
      cli_table_add (table, "id");
      cli_query_add_id (table, self->id);
      cli_query_add_id (table, best->id);
      cli_table_add (table, NULL);
    }
  cli_compare_fields (table, &self->prediction.of->plan, &best->found->plan);
  cli_compare_costs (table, &self->prediction, &best->prediction);
  return table;
}

static void
print_idle (const Explanation *self)
{
  const char *before = "without effect here: ";
  for (PlanField f = 0; f < PLAN_N_FIELDS; f++)
    if (self->is_idle[f])
      {
        printf ("%s%s", before, plan_field_name (f));
        before = ", ";
      }
  printf ("%s", *before == ',' ? "\n" : "");
}

static void
print_table (const Explanation *self)
{
  const AdviseAnswer *best = advise_query_best (&self->query);
  g_autofree char *words = verdict (self);
  g_autoptr (CliTable) changes = change_table (self);
  printf ("%s\n", words);
  if (best && !self->illegal)
    {
      g_autoptr (CliTable) table = comparison (self);
      printf ("\n");
      cli_table_print (table, CLI_FORMAT_TABLE);
    }
  else if (best)
    {
      g_autofree char *plan = advise_query_differences (&best->found->plan, &self->mine.plan);
      printf ("the best has %s: %.1f ms, %.1f MiB\n", plan, best->prediction.step_ms,
              advise_mib (best->prediction.trace->memory.device));
    }
  else
    printf ("nothing else fits either\n");
  printf ("\none change of it, the best of each field, of %u that are legal:\n", self->n_legal);
  cli_table_print (changes, CLI_FORMAT_TABLE);
  print_idle (self);
  for (guint i = 0; self->prediction.hazards && i < self->prediction.hazards->len; i++)
    {
      if (i == 0)
        putchar ('\n');
      cli_print_note (self->prediction.hazards->pdata[i]);
    }
}

static void
add_result (JsonBuilder *b, const char *name, gint64 id, const AdvisePrediction *prediction,
            const AdviseInput *input)
{
  json_builder_set_member_name (b, name);
  if (!prediction)
    {
      json_builder_add_null_value (b);
      return;
    }
  json_builder_begin_object (b);
  cli_query_id_to_json (id, b);
  cli_prediction_to_json (prediction, input, b);
  json_builder_end_object (b);
}

static void
print_json (const Explanation *self)
{
  const AdviseAnswer *best = advise_query_best (&self->query);
  g_autofree char *words = verdict (self);
  g_autoptr (CliTable) changes = change_table (self);
  g_autoptr (JsonBuilder) b = json_builder_new ();
  json_builder_begin_object (b);
  add_result (b, "explained", self->id, self->illegal ? NULL : &self->prediction, &self->mine);
  json_builder_set_member_name (b, "illegal");
  json_builder_add_string_value (b, self->illegal);
  add_result (b, "best", best ? best->id : 0, best ? &best->prediction : NULL, self->choice->input);
  json_builder_set_member_name (b, "why");
  json_builder_add_string_value (b, words);
  json_builder_set_member_name (b, "changes");
  json_builder_add_value (b, cli_table_to_json (changes));
  json_builder_end_object (b);
  g_autoptr (JsonNode) root = json_builder_get_root (b);
  cli_print_json (root);
}

gboolean
cli_query_explain (const AdviseChoice *choice, const Plan *mine, CliFormat format, GError **error)
{
  g_auto (Explanation) self = { 0 };
  if (!find_out (&self, choice, mine, error))
    return FALSE;
  keep (&self);
  if (format == CLI_FORMAT_TABLE)
    print_table (&self);
  else if (format == CLI_FORMAT_JSON)
    print_json (&self);
  else
    {
      g_autoptr (CliTable) changes = change_table (&self);
      cli_table_print (changes, format);
    }
  return TRUE;
}
