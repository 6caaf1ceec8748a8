/* SPDX-License-Identifier: Apache-2.0 */
/* Nothing fits: what comes closest, and what would make it fit, each tried. */
#include "config.h"

#include "planner/cli/query.h"
#include "planner/cli/score.h"
#include "planner/error.h"

#define MOST_DOUBLINGS 10

static gboolean
score_memory (const Plan *resolved, PlanInquiry *inquiry, gpointer scorer, PlanScore *out_score)
{
  PlanScore score;
  if (!cli_scorer_score (resolved, NULL, scorer, &score))
    return FALSE;
  *out_score = (PlanScore){ (gint64)score.memory_bytes, score.memory_bytes };
  return TRUE;
}

/* The plan that takes least memory, or any that fits. */
static gboolean
search_memory (const CliChoice *choice, gboolean any, PlanSearchResult *out, GError **error)
{
  const CliInput *input = choice->input;
  g_autoptr (CliScorer) scorer = cli_scorer_new (input);
  g_autoptr (PlanSpace) space = cli_choice_space (choice, error);
  if (!space)
    return FALSE;
  const PlanSearch search = { .model = input->model,
                              .cluster = input->cluster,
                              .space = space,
                              .memory_bytes = any ? choice->memory_bytes : G_MAXUINT64,
                              .best = 1,
                              .threads = g_get_num_processors (),
                              .least_memory = TRUE,
                              .one_is_enough = any,
                              .score = score_memory,
                              .user_data = scorer };
  plan_search_run (&search, out);
  return TRUE;
}

gboolean
cli_query_fits (const CliChoice *choice, gboolean *out_fits, GError **error)
{
  g_auto (PlanSearchResult) result = { 0 };
  if (!search_memory (choice, TRUE, &result, error))
    return FALSE;
  *out_fits = result.found->len > 0;
  return TRUE;
}

gboolean
cli_query_least (const CliChoice *choice, Plan *out_plan, guint64 *out_bytes, GError **error)
{
  g_auto (PlanSearchResult) result = { 0 };
  if (!search_memory (choice, FALSE, &result, error))
    return FALSE;
  if (result.found->len == 0)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INFEASIBLE,
                   "none of %" G_GUINT64_FORMAT " plans is legal here: sim says for one of them "
                   "which rule it breaks",
                   result.total);
      return FALSE;
    }
  *out_plan = g_array_index (result.found, PlanFound, 0).plan;
  *out_bytes = (guint64)g_array_index (result.found, PlanFound, 0).score.time_ns;
  return TRUE;
}

/* Device memory of a plan on a cluster; 0 where it is not legal there. */
static guint64
memory_of (const CliInput *input, const Plan *plan)
{
  g_autoptr (CliScorer) scorer = cli_scorer_new (input);
  Plan resolved;
  PlanScore score;
  return plan_resolve (plan, input->model, input->cluster, &resolved, NULL)
                 && cli_scorer_score (&resolved, NULL, scorer, &score)
             ? score.memory_bytes
             : 0;
}

static void
add_way (GString *ways, guint64 bytes, const char *what)
{
  g_string_append_printf (ways, "%s%s (%.1f MiB)", ways->len ? "; " : "", what, cli_mib (bytes));
}

static void
try_more_devices (const CliChoice *choice, const Plan *plan, GString *ways)
{
  const gint64 now = plan_cluster_devices (choice->input->cluster);
  Plan shared = *plan;
  shared.value[PLAN_STRATEGY] = PLAN_STRATEGY_OPTIM_GRADS_PARAMS;
  for (guint i = 1; i <= MOST_DOUBLINGS; i++)
    {
      g_autoptr (PlanCluster) cluster = cli_query_resize (choice->input->cluster, now << i, NULL);
      CliInput larger = *choice->input;
      larger.cluster = cluster;
      const guint64 bytes = cluster ? memory_of (&larger, &shared) : 0;
      if (bytes == 0 || bytes > choice->memory_bytes)
        continue;
      g_autofree char *what = g_strdup_printf (
          "%" G_GINT64_FORMAT " devices that share all state, in place of %" G_GINT64_FORMAT,
          now << i, now);
      add_way (ways, bytes, what);
      return;
    }
}

static void
try_shorter (const CliChoice *choice, const Plan *plan, GString *ways)
{
  Plan shorter = *plan;
  while ((shorter.value[PLAN_SEQ] /= 2) >= 128)
    {
      const guint64 bytes = memory_of (choice->input, &shorter);
      if (bytes == 0 || bytes > choice->memory_bytes)
        continue;
      g_autofree char *what = g_strdup_printf ("seq=%" G_GINT64_FORMAT, shorter.value[PLAN_SEQ]);
      add_way (ways, bytes, what);
      return;
    }
}

/* One change of a field; `allow` names the class that permits it, NULL where it is permitted. */
static void
try_changes (const CliChoice *choice, const Plan *plan, const char *allow, GString *ways)
{
  CliQuestion question = { .allow = (char *)allow };
  CliChoice wider = *choice;
  if (allow && !plan_space_allow_parse (question.allow, &wider.allow, NULL))
    return;
  g_autoptr (PlanSpace) space = cli_choice_space (&wider, NULL);
  g_autoptr (GArray) plans = space ? plan_space_neighbours (space, plan) : NULL;
  guint64 least = choice->memory_bytes + 1;
  Plan best = *plan;
  for (guint i = 0; plans && i < plans->len; i++)
    {
      const Plan *other = &g_array_index (plans, Plan, i);
      const guint64 bytes = memory_of (choice->input, other);
      if (bytes == 0 || bytes >= least)
        continue;
      least = bytes;
      best = *other;
    }
  if (least > choice->memory_bytes)
    return;
  g_autofree char *fields = cli_query_differences (&best, plan);
  g_autofree char *what
      = g_strdup_printf ("%s%s%s", fields, allow ? " by --allow " : "", allow ? allow : "");
  add_way (ways, least, what);
}

gboolean
cli_query_refuse (const CliChoice *choice, GError **error)
{
  static const char *const classes[] = { "mixed", "moments", "lowbit" };
  CliInput chosen = *choice->input;
  g_auto (CliPrediction) p = { 0 };
  g_autoptr (GString) ways = g_string_new (NULL);
  guint64 bytes;
  if (!cli_query_least (choice, &chosen.plan, &bytes, error) || !cli_predict (&chosen, &p, error))
    return FALSE;
  try_more_devices (choice, &chosen.plan, ways);
  try_shorter (choice, &chosen.plan, ways);
  try_changes (choice, &chosen.plan, NULL, ways);
  for (guint i = 0; i < G_N_ELEMENTS (classes); i++)
    try_changes (choice, &chosen.plan, classes[i], ways);
  g_autofree char *plan = cli_query_differences (&chosen.plan, &choice->input->plan);
  g_set_error (
      error, PLAN_ERROR, PLAN_ERROR_INFEASIBLE,
      "nothing fits in %.1f MiB; closest is %s with %.1f MiB on the device, %.1f too much, "
      "of which %.1f stay between steps; %s%s",
      cli_mib (choice->memory_bytes), plan, cli_mib (p.trace->memory.device),
      cli_mib (p.trace->memory.device - choice->memory_bytes), cli_mib (p.trace->memory.allocated),
      ways->len ? "it would fit with " : "no single change that was tried makes it fit", ways->str);
  return FALSE;
}
