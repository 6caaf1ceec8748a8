/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/io/sweep.h"

#include "planner/base/error.h"

#define MAX_SWEEP 10000

/* The values of one --sweep: those listed, or all values of the field. */
static char **
sweep_values (const char *sweep, PlanField *out_field, GError **error)
{
  g_auto (GStrv) halves = g_strsplit (sweep, "=", 2);
  if (!halves[0] || !plan_field_parse (halves[0], out_field, error))
    return NULL;
  if (halves[1])
    return g_strsplit (halves[1], ",", -1);
  const char *const *names = plan_field_names (*out_field);
  if (!names)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "--sweep %s: give the values, %s=V1,V2,…",
                   halves[0], halves[0]);
      return NULL;
    }
  return g_strdupv ((char **)names);
}

GArray *
cli_sweep (const Plan *plan, char *const *sweeps, GError **error)
{
  g_autoptr (GArray) plans = g_array_new (FALSE, FALSE, sizeof (Plan));
  g_array_append_vals (plans, plan, 1);
  for (; sweeps && *sweeps; sweeps++)
    {
      PlanField field = 0;
      g_auto (GStrv) values = sweep_values (*sweeps, &field, error);
      if (!values)
        return NULL;
      g_autoptr (GArray) wider = g_array_new (FALSE, FALSE, sizeof (Plan));
      for (guint i = 0; i < plans->len; i++)
        for (char **v = values; *v; v++)
          {
            Plan copy = g_array_index (plans, Plan, i);
            if (!plan_set (&copy, plan_field_name (field), *v, error))
              return NULL;
            g_array_append_val (wider, copy);
          }
      if (wider->len > MAX_SWEEP)
        {
          g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "--sweep: more than %d combinations",
                       MAX_SWEEP);
          return NULL;
        }
      g_array_unref (plans);
      plans = g_steal_pointer (&wider);
    }
  return g_steal_pointer (&plans);
}

char *
cli_describe_swept (const Plan *plan, char *const *sweeps)
{
  GString *text = g_string_new (NULL);
  for (; *sweeps; sweeps++)
    {
      g_auto (GStrv) halves = g_strsplit (*sweeps, "=", 2);
      PlanField field = 0;
      if (!plan_field_parse (halves[0], &field, NULL) || field == PLAN_STRATEGY
          || field == PLAN_MBS)
        continue;
      g_autofree char *value = plan_field_print (field, plan->value[field]);
      g_string_append_printf (text, "%s%s=%s", text->len ? " " : "", halves[0], value);
    }
  return g_string_free (text, FALSE);
}
