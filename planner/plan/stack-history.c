/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/plan/stack-history.h"

#include "planner/plan/stack-private.h"

#define MAX_STATES 20

/* The states of a framework. states[n] is the one after n of its changes. They are made once, then
 * only read. */
static const PlanStack *
states_of (const PlanFramework *framework)
{
  static PlanStack states[PLAN_STACK_BASE][MAX_STATES];
  static gsize ready = 0;
  if (g_once_init_enter (&ready))
    {
      for (guint i = 0; i < plan_stack_n (); i++)
        {
          const PlanFramework *of = plan_framework_of (plan_stack_get (i)->id);
          g_assert (of->n_steps < MAX_STATES);
          states[i][of->n_steps] = of->newest;
          for (guint step = of->n_steps; step-- > 0;)
            {
              states[i][step] = states[i][step + 1];
              if (of->steps[step].undo)
                of->steps[step].undo (&states[i][step]);
            }
        }
      g_once_init_leave (&ready, 1);
    }
  for (guint i = 0;; i++)
    if (plan_stack_get (i) == &framework->newest)
      return states[i];
}

const PlanStack *
plan_stack_at (const PlanStack *newest, gint64 date)
{
  const PlanFramework *framework = plan_framework_of (newest->id);
  guint taken = 0;
  while (taken < framework->n_steps && framework->steps[taken].change.date <= date)
    taken++;
  return taken < framework->n_steps ? &states_of (framework)[taken] : newest;
}

const PlanStackChange *
plan_stack_change (const PlanStack *self, guint i)
{
  const PlanFramework *framework = plan_framework_of (self->id);
  return i < framework->n_steps ? &framework->steps[i].change : NULL;
}

const char *
plan_stack_release (const PlanStack *self, guint i)
{
  const PlanFramework *framework = plan_framework_of (self->id);
  return i < framework->n_releases ? framework->releases[i].name : NULL;
}

gint64
plan_stack_release_date (gint64 stack, const char *release)
{
  const PlanFramework *framework = plan_framework_of (stack);
  for (guint i = 0; i < framework->n_releases; i++)
    if (g_str_equal (framework->releases[i].name, release))
      return framework->releases[i].date;
  return 0;
}

char *
plan_stack_date_text (gint64 date)
{
  return g_strdup_printf ("%04d-%02d-%02d", (int)(date / 10000), (int)(date / 100 % 100),
                          (int)(date % 100));
}
