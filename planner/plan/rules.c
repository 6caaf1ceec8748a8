/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/plan/rules-private.h"

gboolean
plan_rules_degrees_divide (const PlanFacts *f, const PlanField *degrees, guint n)
{
  gint64 rest = plan_cluster_devices (f->cluster);
  for (guint i = 0; i < n; i++)
    {
      if (rest % f->value[degrees[i]] != 0)
        return FALSE;
      rest /= f->value[degrees[i]];
    }
  return TRUE;
}

/* The next smaller and the next larger batch of which each rank has whole micro batches. */
static void
add_batches (GString *text, const PlanFacts *f)
{
  const gint64 ranks = plan_data_parallel (f->plan, f->cluster);
  const gint64 step = f->value[PLAN_MBS] * MAX (ranks, 1), gbs = f->value[PLAN_GBS];
  const gint64 below = gbs / step * step;
  if (below > 0)
    g_string_append_printf (text, "; gbs=%" G_GINT64_FORMAT " and", below);
  g_string_append_printf (text, "%s gbs=%" G_GINT64_FORMAT " would do", below > 0 ? "" : ";",
                          below + step);
}

char *
plan_rules_describe (const PlanRuleEntry *entry, const PlanFacts *f)
{
  GString *text = g_string_new (entry->rule.reason);
  const char *before = "; here ";
  Plan initial;
  plan_init (&initial);
  for (guint i = 0; i < entry->n_shown; i++)
    {
      const PlanField field = entry->shown[i];
      if (entry->addition == PLAN_ADD_CHANGED && f->value[field] == initial.value[field])
        continue;
      g_autofree char *value = plan_field_print (field, f->value[field]);
      g_string_append_printf (text, "%s%s=%s", before, plan_field_name (field), value);
      before = ", ";
    }
  if (entry->addition == PLAN_ADD_DEVICES || entry->addition == PLAN_ADD_BATCHES)
    g_string_append_printf (text, " on %" G_GINT64_FORMAT " x %s",
                            plan_cluster_devices (f->cluster), f->cluster->device_name);
  if (entry->addition == PLAN_ADD_BATCHES)
    add_batches (text, f);
  if (entry->addition == PLAN_ADD_MODEL || entry->addition == PLAN_ADD_NAME)
    {
      const gboolean named = entry->addition == PLAN_ADD_NAME && plan_model_has_name (f->model);
      g_autofree char *model = named ? g_strdup (f->model->name) : plan_model_print (f->model);
      g_string_append_printf (text, " for %s", model);
    }
  g_string_append_printf (text, " (%s)", entry->rule.citation);
  return g_string_free (text, FALSE);
}

/* Makes the error of a broken rule. A search breaks millions of rules and passes no error, so it
 * makes no text. */
static void
set_error (GError **error, const PlanRuleEntry *entry, const PlanFacts *facts)
{
  g_autofree char *text = plan_rules_describe (entry, facts);
  g_set_error (error, PLAN_ERROR, (gint)entry->rule.code, "rule %s: %s", entry->rule.name, text);
}

PlanFacts
plan_rules_facts (const Plan *resolved, const PlanModel *model, const PlanCluster *cluster)
{
  return (PlanFacts){ .value = resolved->value,
                      .plan = resolved,
                      .model = model,
                      .cluster = cluster,
                      .stack = plan_stack_of (resolved, cluster->kind, NULL) };
}

static const PlanRuleTable *const tables[]
    = { &plan_rules_illegal,          &plan_rules_of_experts, &plan_rules_of_pipelines,
        &plan_rules_of_stacks,        &plan_rules_of_graphs,  &plan_rules_unbuilt,
        &plan_rules_unbuilt_pipelines };

static const PlanRuleEntry *
entry_at (guint i)
{
  for (guint t = 0; t < G_N_ELEMENTS (tables); i -= tables[t++]->n)
    if (i < tables[t]->n)
      return &tables[t]->entries[i];
  return NULL;
}

/* Which rules are asked, and whether one of them is broken. */
typedef gboolean (*BrokenFunc) (const PlanRuleEntry *entry, const PlanFacts *facts);

static gboolean
is_broken (const PlanRuleEntry *entry, const PlanFacts *facts)
{
  return entry->is_broken (facts);
}

static gboolean
is_broken_of_model (const PlanRuleEntry *entry, const PlanFacts *facts)
{
  return entry->of_model && entry->is_broken (facts);
}

static gboolean
is_broken_in_block (const PlanRuleEntry *entry, const PlanFacts *facts)
{
  return !entry->of_blocks && entry->is_broken (facts);
}

static gboolean
is_broken_by_block (const PlanRuleEntry *entry, const PlanFacts *facts)
{
  return entry->of_blocks ? entry->is_broken (facts)
                          : entry->breaks_blocks && entry->breaks_blocks (facts);
}

/* The first rule that is broken; NULL: none. */
static inline const PlanRuleEntry *
find_broken (const PlanFacts *facts, BrokenFunc asks)
{
  for (guint t = 0; t < G_N_ELEMENTS (tables); t++)
    for (guint i = 0; i < tables[t]->n; i++)
      if (asks (&tables[t]->entries[i], facts))
        return &tables[t]->entries[i];
  return NULL;
}

gboolean
plan_rules_check (const Plan *resolved, const PlanModel *model, const PlanCluster *cluster,
                  GError **error)
{
  g_return_val_if_fail (resolved->value[PLAN_MBS] > 0 && resolved->value[PLAN_GBS] > 0
                            && resolved->value[PLAN_SEQ] > 0,
                        FALSE);
  const PlanFacts facts = plan_rules_facts (resolved, model, cluster);
  const PlanRuleEntry *const broken = find_broken (&facts, is_broken);
  if (broken && error)
    {
      const PlanRuleEntry *const of_model = find_broken (&facts, is_broken_of_model);
      set_error (error, of_model ? of_model : broken, &facts);
    }
  return !broken;
}

gboolean
plan_rules_check_block (const Plan *resolved, const PlanModel *model, const PlanCluster *cluster)
{
  const PlanFacts facts = plan_rules_facts (resolved, model, cluster);
  return !find_broken (&facts, is_broken_by_block);
}

gboolean
plan_rules_check_in_block (const Plan *resolved, const PlanModel *model, const PlanCluster *cluster)
{
  const PlanFacts facts = plan_rules_facts (resolved, model, cluster);
  return !find_broken (&facts, is_broken_in_block);
}

gboolean
plan_rules_stack_has (const Plan *plan, const PlanField *fields, guint n, const PlanModel *model,
                      const PlanCluster *cluster)
{
  const PlanFacts facts = plan_rules_facts (plan, model, cluster);
  const PlanRuleEntry *entries = plan_rules_of_stacks.entries;
  for (guint i = 0; i < plan_rules_of_stacks.n; i++)
    for (guint shown = 0; shown < entries[i].n_shown; shown++)
      for (guint f = 0; f < n; f++)
        if (entries[i].shown[shown] == fields[f] && entries[i].is_broken (&facts))
          return FALSE;
  return TRUE;
}

guint
plan_rules_n (void)
{
  guint n = 0;
  while (entry_at (n))
    n++;
  return n;
}

const PlanRule *
plan_rules_get (guint i)
{
  const PlanRuleEntry *entry = entry_at (i);
  g_return_val_if_fail (entry, NULL);
  return &entry->rule;
}
