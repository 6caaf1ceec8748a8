/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "advise/input.h"

void
advise_input_clear (AdviseInput *self)
{
  g_clear_pointer (&self->model, plan_model_free);
  g_clear_pointer (&self->cluster, plan_cluster_free);
  g_clear_pointer (&self->cluster_spec, g_free);
}

char *
advise_cluster_words (const char *spec, char *const *hw)
{
  GString *words = g_string_new (spec);
  for (; hw && *hw; hw++)
    g_string_append_printf (words, ",%s", *hw);
  return g_string_free (words, FALSE);
}

char *
advise_cluster_name (const PlanCluster *cluster)
{
  g_auto (GStrv) overrides = plan_cluster_overrides (cluster);
  return advise_cluster_words (cluster->name, overrides);
}

char *
advise_plan_label (const Plan *resolved)
{
  static const PlanField shown[] = { PLAN_MBS, PLAN_COMPUTE, PLAN_MAIN_GRADS, PLAN_GRAD_COMM };
  GString *label = g_string_new (plan_field_names (PLAN_STRATEGY)[resolved->value[PLAN_STRATEGY]]);
  for (guint i = 0; i < G_N_ELEMENTS (shown); i++)
    {
      g_autofree char *value = plan_field_print (shown[i], resolved->value[shown[i]]);
      g_string_append_printf (label, " %s=%s", plan_field_name (shown[i]), value);
    }
  return g_string_free (label, FALSE);
}
