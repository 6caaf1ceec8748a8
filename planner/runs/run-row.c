/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the plan of a row, column by column. */
#include "config.h"

#include "planner/runs/run-private.h"

#include "planner/base/error.h"
#include "planner/base/text.h"
#include "planner/plan/stack-history.h"

#include <stdio.h>
#include <string.h>

/* A word of a column and what it means in a plan. Where `means` is NULL, `text` says why the plan
 * has no such word. */
typedef struct
{
  const char *value, *means, *text;
} Word;

static const Word gathers[] = {
  { "fp8", "fp8", NULL },
  { "mxfp8", "mxfp8", NULL },
  { "nvfp4", "nvfp4", NULL },
};

static const Word computes[] = {
  { "fp8", NULL, "recipe unknown" },
  { "fp8-rowwise", NULL, "a recipe without a model" },
};

static const Word optimizers[] = {
  { "adam", "adamw", NULL },
  { "adam-master", "adamw", NULL },
  { "adam8bit", NULL, "moments in 8 bits with blocks of their own" },
  { "muon", NULL, "another update rule" },
};

static const Word strategies[] = {
  { "optim_params", NULL, "whole gradients beside sharded weights" },
};

static const Word tasks[] = {
  { "pretrain", "train", NULL },
  { "sft", "train", NULL },
  { "lora", NULL, "adapters" },
  { "rl", NULL, "a loss over what a policy said" },
};

/* Sets a field to a column's value, translated where `words` has it. An empty column changes
 * nothing. */
static gboolean
set_word (PlanRunRow *row, PlanRunColumn column, const char *field, const Word *words,
          guint n_words, GError **error)
{
  const char *value = row->cell[column];
  if (!value)
    return TRUE;
  for (guint i = 0; i < n_words; i++)
    if (g_str_equal (words[i].value, value))
      {
        if (!words[i].means)
          {
            plan_run_row_skip (row, "%s %s: %s", plan_run_column_name (column), value,
                               words[i].text);
            return TRUE;
          }
        value = words[i].means;
        break;
      }
  return plan_set (&row->plan, field, value, error);
}

static gboolean
set (PlanRunRow *row, PlanRunColumn column, GError **error)
{
  return set_word (row, column, plan_run_column_name (column), NULL, 0, error);
}

static gboolean
set_switch (PlanRunRow *row, PlanRunColumn column, GError **error)
{
  static const Word words[] = { { "yes", "on", NULL }, { "no", "off", NULL } };
  return set_word (row, column, plan_run_column_name (column), words, G_N_ELEMENTS (words), error);
}

/* Sets param_gather. The weights' own format is "compute" in a plan. */
static gboolean
set_gather (PlanRunRow *row, GError **error)
{
  const char *const value = row->cell[PLAN_RUN_PARAM_GATHER];
  const char *const own = plan_dtype_name (plan_weights_dtype (&row->plan));
  if (!value)
    {
      if (!plan_run_row_is (row, PLAN_RUN_STRATEGY, "no_shard"))
        plan_run_row_remark (row, "param_gather is not known: %s is assumed", own);
      return TRUE;
    }
  if (g_str_equal (value, own))
    return plan_set (&row->plan, "param_gather", "compute", error);
  for (guint i = 0; i < G_N_ELEMENTS (gathers); i++)
    if (g_str_equal (gathers[i].value, value))
      return plan_set (&row->plan, "param_gather", gathers[i].means, error);
  plan_run_row_skip (row, "param_gather %s: weights that compute in %s", value, own);
  return TRUE;
}

/* Sets the formats of state. Where a row gives none, the plan's default holds, and a remark names
 * it. */
static gboolean
set_formats (PlanRunRow *row, GError **error)
{
  static const PlanRunColumn columns[]
      = { PLAN_RUN_MAIN_PARAMS, PLAN_RUN_MAIN_GRADS, PLAN_RUN_GRAD_COMM, PLAN_RUN_EXP_AVG,
          PLAN_RUN_EXP_AVG_SQ };
  for (guint i = 0; i < G_N_ELEMENTS (columns); i++)
    {
      const gboolean follows = columns[i] == PLAN_RUN_GRAD_COMM;
      if (row->cell[columns[i]])
        {
          if (!set (row, columns[i], error))
            return FALSE;
          continue;
        }
      plan_run_row_remark (row, "%s is not known: %s is assumed", plan_run_column_name (columns[i]),
                           follows ? "that of main_grads" : "fp32");
      if (follows && !plan_set (&row->plan, "grad_comm", "auto", error))
        return FALSE;
    }
  return set_gather (row, error) && set_switch (row, PLAN_RUN_PRECISION_AWARE, error);
}

static gboolean
set_optimizer (PlanRunRow *row, GError **error)
{
  if (!row->cell[PLAN_RUN_OPTIMIZER])
    plan_run_row_remark (row, "optimizer is not known: adam is assumed");
  if (!row->cell[PLAN_RUN_OFFLOAD_OPTIMIZER])
    plan_run_row_remark (row, "offload_optimizer is not known: 0 is assumed");
  if (!set_word (row, PLAN_RUN_OPTIMIZER, "optimizer", optimizers, G_N_ELEMENTS (optimizers), error)
      || !set (row, PLAN_RUN_OFFLOAD_OPTIMIZER, error))
    return FALSE;
  return !plan_run_row_is (row, PLAN_RUN_OPTIMIZER, "adam-master")
         || plan_set (&row->plan, "fused_masters", "on", error);
}

/* Sets the recomputed modules. Modules that a plan does not know make the row be skipped. */
static gboolean
set_modules (PlanRunRow *row, GError **error)
{
  const char *const known = row->cell[PLAN_RUN_RECOMPUTE_MODULES];
  static const char *const others[] = { "attn_proj", "mlp_up", "mlp_act", "graph-sac", NULL };
  g_auto (GStrv) names = g_strsplit (known ? known : "", "+", -1);
  for (char **name = names; *name; name++)
    if (g_strv_contains (others, *name))
      plan_run_row_skip (row, "recompute_modules %s: no module of a plan", *name);
  return row->skipped || set (row, PLAN_RUN_RECOMPUTE_MODULES, error);
}

static gboolean
set_recompute (PlanRunRow *row, GError **error)
{
  if (!set (row, PLAN_RUN_RECOMPUTE, error))
    return FALSE;
  if (plan_run_row_is (row, PLAN_RUN_RECOMPUTE, "selective"))
    return set_modules (row, error);
  if (!plan_run_row_is (row, PLAN_RUN_RECOMPUTE, "full"))
    return TRUE;
  static const Word methods[] = { { "per-layer", "uniform", NULL } };
  return set_word (row, PLAN_RUN_RECOMPUTE_METHOD, "recompute_method", methods,
                   G_N_ELEMENTS (methods), error)
         && set (row, PLAN_RUN_RECOMPUTE_LAYERS, error);
}

/* Sets offloading from "none", a number of layers, or words that a plan cannot express. */
static gboolean
set_offload (PlanRunRow *row, GError **error)
{
  const char *const value = row->cell[PLAN_RUN_OFFLOAD_ACTIVATIONS];
  if (!value)
    plan_run_row_remark (row, "offload_activations is not known: none is assumed");
  if (!value || g_str_equal (value, "none"))
    return TRUE;
  if (g_ascii_isdigit (*value))
    return plan_set (&row->plan, "offload_layers", value, error);
  plan_run_row_skip (row, "offload_activations %s: which tensors is not said", value);
  return TRUE;
}

static gboolean
set_parallel (PlanRunRow *row, GError **error)
{
  static const PlanRunColumn columns[]
      = { PLAN_RUN_TP,  PLAN_RUN_CP,  PLAN_RUN_EP,  PLAN_RUN_PP,
          PLAN_RUN_MBS, PLAN_RUN_GBS, PLAN_RUN_SEQ, PLAN_RUN_DP_OUTER };
  for (guint i = 0; i < G_N_ELEMENTS (columns); i++)
    if (!set (row, columns[i], error))
      return FALSE;
  if (!set_word (row, PLAN_RUN_STRATEGY, "strategy", strategies, G_N_ELEMENTS (strategies), error))
    return FALSE;
  plan_run_row_set_stages (row);
  /* with one replica there is no outer strategy, whatever the column says */
  return (plan_run_row_int (row, PLAN_RUN_TP) <= 1 || set_switch (row, PLAN_RUN_SP, error))
         && (plan_run_row_int (row, PLAN_RUN_DP_OUTER) <= 1
             || set (row, PLAN_RUN_OUTER_STRATEGY, error));
}

/* The date, as yyyymmdd, of "2026-02-17", of the end of the month "2026-02", or of a release
 * "26.02.01"; 0: none. */
static gint64
read_date (const char *text)
{
  guint year, month, day = 0;
  int end = 0;
  const gboolean is_day
      = sscanf (text, "%4u-%2u-%2u%n", &year, &month, &day, &end) == 3 && !text[end];
  if (!is_day && (sscanf (text, "%4u-%2u%n", &year, &month, &end) != 2 || text[end]))
    {
      if (sscanf (text, "%2u.%2u%n", &year, &month, &end) != 2 || (text[end] && text[end] != '.'))
        return 0;
      year += 2000;
    }
  if (!g_date_valid_dmy (is_day ? (GDateDay)day : 1, (GDateMonth)month, (GDateYear)year))
    return 0;
  if (!is_day)
    day = g_date_get_days_in_month ((GDateMonth)month, (GDateYear)year);
  return (gint64)year * 10000 + month * 100 + day;
}

/* The newest NCCL in PyTorch's wheels before 2.7 (2.5 and 2.6, by
 * .github/scripts/generate_binary_build_matrix.py). */
#define WHEEL_NCCL "2.21"
#define WHEEL_NCCL_UNTIL 20250430

static gboolean
set_nccl (PlanRunRow *row, gint64 date, GError **error)
{
  const gint64 stack = row->plan.value[PLAN_STACK];
  const gboolean is_of_wheel
      = stack == PLAN_STACK_NANOTRON || stack == PLAN_STACK_FSDP1 || stack == PLAN_STACK_FSDP2;
  return !is_of_wheel || date == 0 || date >= WHEEL_NCCL_UNTIL
         || plan_set (&row->plan, "nccl", WHEEL_NCCL, error);
}

/* Which of two installations of nanotron a row of its scan (2024-12 and 2025-01) ran on, as a date.
 * They differ in their collectives, also within nodes, and in when blocks come free. 0: not
 * stated. */
static gint64
scan_state (const PlanRunRow *row, const PlanStack *nanotron)
{
  g_autofree char *state = plan_run_row_note (row, "network_state");
  return !state                        ? 0
         : g_str_equal (state, "slow") ? nanotron->newest
         : g_str_equal (state, "fast") ? nanotron->oldest
                                       : 0;
}

/* Sets the stack in its version at the time of the run, or in the nearest one that is known. */
static gboolean
set_stack (PlanRunRow *row, GError **error)
{
  const char *const name = row->cell[PLAN_RUN_STACK];
  if (!g_strv_contains (plan_field_names (PLAN_STACK), name))
    {
      plan_run_row_skip (row, "stack %s: not one that plans know", name);
      return TRUE;
    }
  if (!plan_set (&row->plan, "stack", name, error))
    return FALSE;
  g_autofree char *known = plan_run_row_known (row, plan_run_column_name (PLAN_RUN_STACK_DATE));
  g_autofree char *told = plan_run_row_note (row, "date");
  const char *const when = known ? known : told ? told : row->cell[PLAN_RUN_STACK_DATE];
  const gint64 date = when ? read_date (when) : 0;
  if (!set_nccl (row, date, error))
    return FALSE;
  for (guint i = 0; i < plan_stack_n (); i++)
    {
      const PlanStack *stack = plan_stack_get (i);
      if (stack->id != row->plan.value[PLAN_STACK])
        continue;
      const gint64 nearest = date == 0 ? stack->newest : CLAMP (date, stack->oldest, stack->newest);
      g_autofree char *text = plan_stack_date_text (nearest);
      if (date == 0 || nearest / 100 != date / 100)
        plan_run_row_remark (row, "of %s what is nearest is known: %s",
                             when ? when : "unknown date", text);
      const gint64 state = stack->id == PLAN_STACK_NANOTRON ? scan_state (row, stack) : 0;
      row->plan.value[PLAN_STACK] = stack->id + PLAN_STACK_BASE * (state ? state : nearest);
    }
  return TRUE;
}

static gboolean
set_rest (PlanRunRow *row, GError **error)
{
  return set_word (row, PLAN_RUN_COMPUTE, "compute", computes, G_N_ELEMENTS (computes), error)
         && set_parallel (row, error) && set_recompute (row, error) && set_offload (row, error)
         && set_optimizer (row, error) && set_switch (row, PLAN_RUN_DOUBLE_BUFFER, error)
         && set_switch (row, PLAN_RUN_NCCL_UB, error) && set_switch (row, PLAN_RUN_COMPILE, error)
         && set_word (row, PLAN_RUN_TASK, "task", tasks, G_N_ELEMENTS (tasks), error)
         && plan_run_row_assume_experts (row, error) && plan_run_row_apply_notes (row, error)
         && plan_run_row_apply_recipe (row, error) && (row->skipped || set_formats (row, error));
}

/* Writes into a cell the value that the plan has in the field of that name. */
static void
set_cell (PlanRunRow *row, PlanRunColumn column, PlanField field)
{
  g_free (row->cell[column]);
  row->cell[column] = plan_field_print (field, row->plan.value[field]);
}

gboolean
plan_run_row_read_texts (PlanRunRow *self, PlanRunParts *parts, const char *model,
                         const char *cluster, const char *plan, GError **error)
{
  PlanModel *new_model = g_hash_table_lookup (parts->models, model);
  PlanCluster *new_cluster = g_hash_table_lookup (parts->clusters, cluster);
  if (!plan_parse (plan, "plan_text", &self->plan, error))
    return FALSE;
  if (!new_model)
    {
      if (!(new_model = plan_model_new (model, error)))
        return FALSE;
      g_hash_table_insert (parts->models, g_strdup (model), new_model);
    }
  if (!new_cluster)
    {
      if (!(new_cluster = plan_cluster_parse (cluster, "cluster_text", error)))
        return FALSE;
      g_hash_table_insert (parts->clusters, g_strdup (cluster), new_cluster);
    }
  self->model = new_model;
  self->cluster = new_cluster;
  set_cell (self, PLAN_RUN_STRATEGY, PLAN_STRATEGY);
  set_cell (self, PLAN_RUN_RECOMPUTE, PLAN_RECOMPUTE);
  return TRUE;
}

gboolean
plan_run_row_interpret (PlanRunRow *self, PlanRunParts *parts, GError **error)
{
  g_autoptr (GError) why = NULL;
  plan_init (&self->plan);
  if (!set_stack (self, error))
    return FALSE;
  self->model = plan_run_row_model (self, parts, &why);
  if (self->model)
    self->cluster = plan_run_row_cluster (self, parts, &why);
  if (!why && self->cluster && !set_rest (self, &why))
    g_assert (why);
  if (why)
    {
      g_propagate_error (error, g_steal_pointer (&why));
      return FALSE;
    }
  if (self->skipped)
    {
      self->model = NULL;
      self->cluster = NULL;
    }
  return TRUE;
}
