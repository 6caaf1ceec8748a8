/* SPDX-License-Identifier: Apache-2.0 */
/* How long lowering and simulating take, as ratios: to each other, and from plan to plan. Run by
 * `make bench`; never part of the tests. */
#include "config.h"

#include "planner/lower.h"
#include "sim/sim.h"

#include <stdio.h>
#include <stdlib.h>

static double
milliseconds_since (gint64 start)
{
  return 1e-3 * (double)(g_get_monotonic_time () - start);
}

static void
set (Plan *plan, const char *name, const char *value)
{
  g_autoptr (GError) error = NULL;
  if (!plan_set (plan, name, value, &error))
    g_error ("%s", error->message);
}

/* Prints one row; returns the milliseconds of one lowering and simulation. */
static double
bench (const char *model_name, const char *cluster_name, const char *gbs, double baseline_ms)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanModel) model = plan_model_new (model_name, &error);
  g_autoptr (PlanCluster) cluster = model ? plan_cluster_new (cluster_name, &error) : NULL;
  Plan plan, resolved;
  plan_init (&plan);
  set (&plan, "gbs", gbs);
  if (!cluster || !plan_resolve (&plan, model, cluster, &resolved, &error))
    g_error ("%s", error->message);
  const PlanStack *stack = plan_stack_of (&resolved, cluster->kind, &error);
  double lower_ms = G_MAXDOUBLE, sim_ms = G_MAXDOUBLE;
  guint ops = 0;
  for (guint i = 0; i < 5; i++) /* the best of five: what the machine can do undisturbed */
    {
      gint64 start = g_get_monotonic_time ();
      g_autoptr (PlanSchedule) schedule = plan_lower (model, cluster, &resolved, 0, &error);
      lower_ms = MIN (lower_ms, milliseconds_since (start));
      start = g_get_monotonic_time ();
      g_autoptr (SimCost) cost = sim_cost_new (
          &(SimCostInput){
              .schedule = schedule, .cluster = cluster, .stack = stack, .plan = &resolved },
          &error);
      g_autoptr (PlanTrace) trace = sim_run (schedule, cost, stack, &error);
      sim_ms = MIN (sim_ms, milliseconds_since (start));
      ops = trace->spans->len;
    }
  const double total = lower_ms + sim_ms;
  printf ("%-12s %-12s gbs %-6s %8u ops  lower %8.3f ms  sim %9.3f ms  %6.1f ns/op  x%.2f\n",
          model_name, cluster_name, gbs, ops, lower_ms, sim_ms, 1e6 * sim_ms / ops,
          baseline_ms > 0 ? total / baseline_ms : 1.0);
  return total;
}

int
main (void)
{
  const double baseline = bench ("llama3-8b", "dgx-h100:1", "128", 0);
  bench ("llama3-8b", "dgx-h100:1", "1024", baseline);
  bench ("llama3-8b", "dgx-h100:16", "1024", baseline);
  bench ("llama3-70b", "dgx-h100:8", "1024", baseline);
  return EXIT_SUCCESS;
}
