/* SPDX-License-Identifier: Apache-2.0 */
/* For a question that no plan fits: finds what comes closest, and what would make it fit, each of
 * which is tried. */
#include "config.h"

#include "advise/query.h"
#include "advise/resize.h"
#include "advise/score.h"
#include "advise/workspaces.h"
#include "planner/base/error.h"
#include "planner/case/hazards.h"
#include "planner/search/bound.h"

#include <string.h>

#define MOST_DOUBLINGS 10

static gboolean
score_memory (const PlanCase *of, PlanInquiry *inquiry, gpointer scorer, PlanScore *out_score)
{
  PlanScore score;
  if (!advise_scorer_score (of, inquiry, scorer, &score))
    return FALSE;
  *out_score = score;
  out_score->time_ns = (gint64)score.memory_bytes;
  return TRUE;
}

/* Searches for the plan that takes least memory, or with `any` for any that fits. */
static gboolean
search_memory (const AdviseChoice *choice, gboolean any, PlanSearchResult *out, GError **error)
{
  const AdviseInput *input = choice->input;
  g_autoptr (AdviseScorer) scorer = advise_scorer_new (input, choice->p_fits);
  g_autoptr (PlanSpace) space = advise_choice_space (choice, error);
  if (!space)
    return FALSE;
  const PlanSearch search = { .model = input->model,
                              .cluster = input->cluster,
                              .asked = advise_workspaces (input),
                              .space = space,
                              .memory_bytes = any ? choice->memory_bytes : G_MAXUINT64,
                              .best = 1,
                              .threads = g_get_num_processors (),
                              .minimizes_memory = TRUE,
                              .one_is_enough = any,
                              .score = score_memory,
                              .progress = choice->progress,
                              .user_data = scorer };
  plan_search_run (&search, out);
  if (choice->progress)
    choice->progress (0, 0, scorer);
  if (out->is_whole || (any && out->found->len > 0))
    return TRUE;
  g_set_error_literal (error, PLAN_ERROR, PLAN_ERROR_STOPPED,
                       "interrupted: whether a plan fits, and in how little, was not found yet");
  return FALSE;
}

gboolean
advise_query_fits (const AdviseChoice *choice, gboolean *out_fits, GError **error)
{
  g_auto (PlanSearchResult) result = { 0 };
  if (!search_memory (choice, TRUE, &result, error))
    return FALSE;
  *out_fits = result.found->len > 0;
  return TRUE;
}

#define MOST_TRIED 20000 /* points whose broken rules are looked up for the message */

/* An obstacle: the number of points that it stops, and the message of the first. */
typedef struct
{
  guint n;
  char *words;
} Obstacle;

static void
obstacle_free (gpointer data)
{
  Obstacle *self = data;
  g_free (self->words);
  g_free (self);
}

static void
count_obstacle (GHashTable *obstacles, const char *name, const char *words)
{
  Obstacle *known = g_hash_table_lookup (obstacles, name);
  if (!known)
    {
      known = g_new0 (Obstacle, 1);
      known->words = g_strdup (words);
      g_hash_table_insert (obstacles, g_strdup (name), known);
    }
  known->n++;
}

/* Why no point can be chosen. */
typedef struct
{
  GHashTable *obstacles; /* of illegal points: names to Obstacle */
  char *hazard;          /* that excludes the first legal point with one; NULL: there is none */
  GError *unpredicted;   /* of the first legal point without a hazard; NULL: there is none */
} Reasons;

static void
reasons_clear (Reasons *self)
{
  g_clear_pointer (&self->obstacles, g_hash_table_unref);
  g_clear_pointer (&self->hazard, g_free);
  g_clear_error (&self->unpredicted);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Reasons, reasons_clear)

/* Finds why a point cannot be chosen: no rule, no hazard and no lack of memory keeps a legal point
 * out that the search did not take, so something that its prediction needs is not known. */
static void
look_at_point (const AdviseChoice *choice, const PlanSpace *space, guint64 point, Reasons *reasons)
{
  g_autoptr (GError) why = NULL;
  Plan plan;
  if (!plan_space_at (space, point, &plan))
    return; /* this point's sums are less exact than another's */
  g_autoptr (PlanCase) of = advise_case (choice->input, &plan, &why);
  if (!of)
    {
      g_autofree char *name = g_strndup (why->message, strcspn (why->message, ";"));
      count_obstacle (reasons->obstacles, name, why->message);
    }
  else if (plan_space_admits (space, &of->plan, of))
    {
      AdviseInput legal = *choice->input;
      g_auto (AdvisePrediction) prediction = { 0 };
      legal.plan = plan;
      if (!reasons->unpredicted)
        advise_predict (&legal, &prediction, &reasons->unpredicted);
    }
  else if (!reasons->hazard)
    {
      g_autoptr (GPtrArray) hazards = plan_hazards_of (of);
      reasons->hazard = g_strdup (hazards->pdata[0]);
    }
}

#define ENOUGH 0.9 /* share of points above which one obstacle explains that there is no answer */

/* The obstacle of most points, but for `other`; NULL: there is none. */
static const Obstacle *
find_most (GHashTable *obstacles, const Obstacle *other)
{
  const Obstacle *most = NULL;
  GHashTableIter iter;
  g_hash_table_iter_init (&iter, obstacles);
  for (gpointer value; g_hash_table_iter_next (&iter, NULL, &value);)
    {
      const Obstacle *obstacle = value;
      if (obstacle != other
          && (!most || obstacle->n > most->n
              || (obstacle->n == most->n && strcmp (obstacle->words, most->words) < 0)))
        most = obstacle;
    }
  return most;
}

static void
add_obstacle (GString *text, const Obstacle *obstacle, guint n)
{
  g_string_append_printf (
      text, "; %.0f %% %s %s", 100.0 * obstacle->n / n,
      g_str_has_prefix (obstacle->words, "rule ") ? "break" : "are refused:", obstacle->words);
}

/* Names what forbids most points of a space in which no point can be chosen, and what forbids most
 * others where these are many. */
static void
say_what_forbids (const AdviseChoice *choice, guint64 total, GError **error)
{
  g_autoptr (PlanSpace) space = advise_choice_space (choice, NULL);
  g_auto (Reasons) reasons
      = { .obstacles = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, obstacle_free) };
  g_autoptr (GString) text = g_string_new (NULL);
  const guint64 step = total / MOST_TRIED + 1;
  guint n = 0;
  for (guint64 point = 0; space && point < total && !reasons.unpredicted; point += step)
    look_at_point (choice, space, point, &reasons);
  if (reasons.unpredicted)
    {
      g_propagate_error (error, g_steal_pointer (&reasons.unpredicted));
      return;
    }
  GHashTableIter iter;
  g_hash_table_iter_init (&iter, reasons.obstacles);
  for (gpointer value; g_hash_table_iter_next (&iter, NULL, &value);)
    n += ((const Obstacle *)value)->n;
  const Obstacle *most = find_most (reasons.obstacles, NULL);
  const Obstacle *next = most && most->n < ENOUGH * n ? find_most (reasons.obstacles, most) : NULL;
  if (most)
    add_obstacle (text, most, n);
  if (next)
    add_obstacle (text, next, n);
  if (reasons.hazard)
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_INFEASIBLE,
                 "each legal plan of these %" G_GUINT64_FORMAT
                 " has a hazard: --allow hazards takes it all the same; %s",
                 total, reasons.hazard);
  else
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_INFEASIBLE,
                 "none of %" G_GUINT64_FORMAT " plans is legal here%s", total, text->str);
}

gboolean
advise_query_least (const AdviseChoice *choice, Plan *out_plan, guint64 *out_bytes, GError **error)
{
  g_auto (PlanSearchResult) result = { 0 };
  if (!search_memory (choice, FALSE, &result, error))
    return FALSE;
  if (result.found->len == 0)
    {
      say_what_forbids (choice, result.total, error);
      return FALSE;
    }
  *out_plan = g_array_index (result.found, PlanFound, 0).plan;
  *out_bytes = (guint64)g_array_index (result.found, PlanFound, 0).score.time_ns;
  return TRUE;
}

/* Whether a query with this choice would name the plan, which is legal: it has no hazard that is
 * more than a cost, or hazards are allowed, and its host holds what is offloaded. */
static gboolean
may_be_named (const AdviseChoice *choice, const PlanCase *of)
{
  return plan_case_fits_host (of)
         && (choice->allow & 1u << PLAN_ALLOW_HAZARDS
             || plan_hazards_level (&of->plan, of->model, of->cluster) == PLAN_HAZARD_COST);
}

/* The memory that a plan needs on the machines of `input`; 0 where a query would not name it, or it
 * needs `enough` or more. */
static guint64
memory_below (const AdviseChoice *choice, const AdviseInput *input, const Plan *plan,
              guint64 enough)
{
  g_autoptr (AdviseScorer) scorer = advise_scorer_new (input, choice->p_fits);
  g_autoptr (PlanCase) of = advise_case (input, plan, NULL);
  PlanScore score;
  return of && may_be_named (choice, of) && plan_bound_memory (of) < enough
                 && advise_scorer_score_within (scorer, of, G_MAXINT64, enough - 1, &score)
             ? score.memory_bytes
             : 0;
}

static void
add_way (GString *ways, guint64 bytes, const char *what)
{
  g_string_append_printf (ways, "%s%s (%.1f MiB)", ways->len ? "; " : "", what, advise_mib (bytes));
}

/* Tries the plan with all state shared on more devices. FALSE where it never fits. */
static gboolean
try_sharing (const AdviseChoice *choice, const Plan *plan, GString *ways)
{
  const gint64 now = plan_cluster_devices (choice->input->cluster);
  Plan shared = *plan;
  shared.value[PLAN_STRATEGY] = PLAN_STRATEGY_OPTIM_GRADS_PARAMS;
  for (guint i = 1; i <= MOST_DOUBLINGS; i++)
    {
      g_autoptr (PlanCluster) cluster = advise_resize (choice->input->cluster, now << i, NULL);
      AdviseInput larger = *choice->input;
      larger.cluster = cluster;
      const guint64 bytes
          = cluster ? memory_below (choice, &larger, &shared, choice->memory_bytes + 1) : 0;
      if (bytes == 0)
        continue;
      g_autofree char *what = g_strdup_printf (
          "%" G_GINT64_FORMAT " devices that share all state, in place of %" G_GINT64_FORMAT,
          now << i, now);
      add_way (ways, bytes, what);
      return TRUE;
    }
  return FALSE;
}

/* Tries all plans on more devices, for stacks that do not share all state. Which of them is found
 * first depends on threads, so none is named. */
static void
try_more_devices (const AdviseChoice *choice, GString *ways)
{
  const gint64 now = plan_cluster_devices (choice->input->cluster);
  gboolean fits = FALSE;
  for (guint i = 1; i <= MOST_DOUBLINGS && !fits; i++)
    {
      g_autoptr (PlanCluster) cluster = advise_resize (choice->input->cluster, now << i, NULL);
      AdviseInput larger = *choice->input;
      AdviseChoice there = *choice;
      larger.cluster = cluster;
      there.input = &larger;
      if (!cluster || !advise_query_fits (&there, &fits, NULL))
        return;
      if (fits)
        g_string_append_printf (ways, "%" G_GINT64_FORMAT " devices, in place of %" G_GINT64_FORMAT,
                                now << i, now);
    }
}

static void
try_shorter (const AdviseChoice *choice, const Plan *plan, GString *ways)
{
  Plan shorter = *plan;
  while ((shorter.value[PLAN_SEQ] /= 2) >= 128)
    {
      const guint64 bytes
          = memory_below (choice, choice->input, &shorter, choice->memory_bytes + 1);
      if (bytes == 0)
        continue;
      g_autofree char *what = g_strdup_printf ("seq=%" G_GINT64_FORMAT, shorter.value[PLAN_SEQ]);
      add_way (ways, bytes, what);
      return;
    }
}

#define MOST_CHANGES 6

/* Changes one field after the other, always the one that saves most memory, until the plan fits.
 * Returns the bytes that it then needs; 0 where it never fits. */
static guint64
descend (const AdviseChoice *choice, guint allow, Plan *plan)
{
  AdviseChoice wider = *choice;
  wider.allow = allow;
  g_autoptr (PlanSpace) space = advise_choice_space (&wider, NULL);
  guint64 least = memory_below (&wider, choice->input, plan, G_MAXUINT64);
  for (guint n = 0; space && n < MOST_CHANGES && least > choice->memory_bytes; n++)
    {
      g_autoptr (GArray) plans = plan_space_neighbours (space, plan);
      const guint64 before = least;
      for (guint i = 0; i < plans->len; i++)
        {
          const Plan *other = &g_array_index (plans, Plan, i);
          const guint64 bytes = memory_below (&wider, choice->input, other, least);
          if (bytes == 0)
            continue;
          least = bytes;
          *plan = *other;
        }
      if (least == before)
        break;
    }
  return least <= choice->memory_bytes ? least : 0;
}

/* Looks for changes of one or a few fields with which the plan fits, and adds them to `ways`;
 * `allow` names what may be changed beyond what the question allows. TRUE where there is one. */
static gboolean
try_changes (const AdviseChoice *choice, const Plan *closest, guint allow, GString *ways)
{
  Plan plan = *closest;
  const guint64 bytes = descend (choice, allow, &plan);
  if (bytes == 0)
    return FALSE;
  g_autofree char *fields = advise_query_changes (&plan, closest);
  g_autofree char *classes = plan_space_allow_print (allow & ~choice->allow);
  g_autofree char *what
      = g_strdup_printf ("%s%s%s", fields, *classes ? " by --allow " : "", classes);
  add_way (ways, bytes, what);
  return TRUE;
}

static guint
count_bits (guint mask)
{
  guint n = 0;
  for (; mask; mask &= mask - 1)
    n++;
  return n;
}

/* Tries allowing more classes (--allow): all sets of the fewest classes that help. */
static void
try_classes (const AdviseChoice *choice, const Plan *closest, GString *ways)
{
  const guint all = ((1u << PLAN_N_ALLOW) - 1) & ~(1u << PLAN_ALLOW_HAZARDS);
  Plan plan = *closest;
  gboolean is_found = FALSE;
  if (descend (choice, choice->allow | all, &plan) == 0)
    return;
  for (guint n = 1; n <= PLAN_N_ALLOW && !is_found; n++)
    for (guint mask = 1; mask <= all; mask++)
      if (count_bits (mask) == n && (mask & all) == mask && (mask & choice->allow) == 0)
        is_found |= try_changes (choice, closest, choice->allow | mask, ways);
}

/* Names the ways that were tried in vain, and those that could not be tried, as a rate is unknown.
 */
static void
say_what_was_tried (const AdviseChoice *choice, GString *text)
{
  const PlanCluster *cluster = choice->input->cluster;
  AdviseChoice wider = *choice;
  wider.allow |= 1u << PLAN_ALLOW_OFFLOAD;
  g_autoptr (PlanSpace) space = advise_choice_space (&wider, NULL);
  g_autoptr (GError) no_network = NULL, no_host = NULL;
  if (!plan_cluster_knows (cluster, PLAN_FACT_NIC_BANDWIDTH))
    sim_cost_refuse (cluster, PLAN_FACT_NIC_BANDWIDTH, &no_network);
  if (space)
    advise_choice_can_offload (&wider, space, &no_host);
  g_string_append_printf (
      text, "neither more devices%s, shorter sequences nor any %sclass of --allow makes it fit",
      no_network ? " of one node" : "", no_host ? "other " : "");
  if (no_network)
    g_string_append_printf (text, "; more nodes were not tried: %s", no_network->message);
  if (no_host)
    g_string_append_printf (text, "; --allow offload was not tried: %s", no_host->message);
}

/* The category that takes most at the peak, as "optimizer takes most, 1.5 MiB". */
static char *
most_of (const PlanMemory *memory)
{
  guint most = 0;
  for (guint c = 1; c < PLAN_N_CATEGORIES; c++)
    if (memory->by_category[c] > memory->by_category[most])
      most = c;
  return g_strdup_printf ("%s take%s most, %.1f", plan_category_name (most),
                          g_str_has_suffix (plan_category_name (most), "s") ? "" : "s",
                          advise_mib (memory->by_category[most]));
}

gboolean
advise_query_refuse (const AdviseChoice *choice, GError **error)
{
  AdviseInput chosen = *choice->input;
  g_auto (AdvisePrediction) p = { 0 };
  g_autoptr (GString) ways = g_string_new (NULL);
  guint64 bytes;
  if (!advise_query_least (choice, &chosen.plan, &bytes, error)
      || !advise_predict (&chosen, &p, error))
    return FALSE;
  if (!try_sharing (choice, &chosen.plan, ways))
    try_more_devices (choice, ways);
  try_shorter (choice, &chosen.plan, ways);
  if (!try_changes (choice, &chosen.plan, choice->allow, ways))
    try_classes (choice, &chosen.plan, ways);
  if (ways->len == 0)
    try_changes (choice, &chosen.plan, choice->allow | 1u << PLAN_ALLOW_HAZARDS, ways);
  if (ways->len > 0)
    g_string_prepend (ways, "it would fit with ");
  else
    say_what_was_tried (choice, ways);
  g_autofree char *plan = advise_query_differences (&chosen.plan, &choice->input->plan);
  g_autofree char *most = most_of (&p.trace->memory);
  g_set_error (
      error, PLAN_ERROR, PLAN_ERROR_INFEASIBLE,
      "nothing fits in %.1f MiB with a probability of %g; closest is %s with %.1f MiB on the "
      "device, "
      "of which %.1f stay between steps and %s: %.1f too much for being that sure; %s",
      advise_mib (choice->memory_bytes), choice->p_fits, plan, advise_mib (p.trace->memory.device),
      advise_mib (p.trace->memory.allocated), most, advise_mib (bytes - choice->memory_bytes),
      ways->str);
  return FALSE;
}
