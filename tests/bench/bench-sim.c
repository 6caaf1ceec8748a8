/* SPDX-License-Identifier: Apache-2.0 */
/* How long lowering and simulating take, and how that grows, as ratios. Run by `make bench` and
 * `make bench-instructions`; never part of the tests. */
#include "config.h"

#include "planner/lower.h"
#include "sim/measure.h"
#include "sim/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLE_US 30000 /* a figure is the best of some runs of that long: undisturbed */

typedef struct
{
  PlanCluster *cluster;
  const PlanStack *stack;
  PlanSchedule *schedule;
  SimCost *cost;
  double lower_ms, cost_us, step_us, measure_us;
  SimSummary summary;
} Case;

static void
case_clear (Case *self)
{
  g_clear_pointer (&self->cost, sim_cost_free);
  g_clear_pointer (&self->schedule, plan_schedule_free);
  g_clear_pointer (&self->cluster, plan_cluster_free);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Case, case_clear)

/* Lowers and costs: `words` are FIELD=VALUE. */
static void
prepare (Case *self, const char *model_spec, const char *cluster_spec, const char *words)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanModel) model = plan_model_new (model_spec, &error);
  g_auto (GStrv) fields = g_strsplit (words, " ", -1);
  Plan plan, resolved;
  plan_init (&plan);
  *self = (Case){ .cluster = model ? plan_cluster_new (cluster_spec, &error) : NULL };
  for (char **f = fields; *f && !error; f++)
    {
      g_auto (GStrv) halves = g_strsplit (*f, "=", 2);
      plan_set (&plan, halves[0], halves[1], &error);
    }
  if (error || !plan_resolve (&plan, model, self->cluster, &resolved, &error))
    g_error ("%s %s %s: %s", model_spec, cluster_spec, words, error->message);
  self->stack = plan_stack_of (&resolved, self->cluster->kind, &error);
  gint64 start = g_get_monotonic_time ();
  self->schedule = plan_lower (model, self->cluster, &resolved, 0, &error);
  self->lower_ms = 1e-3 * (double)(g_get_monotonic_time () - start);
  start = g_get_monotonic_time ();
  if (self->schedule)
    {
      const SimCostInput input = { .schedule = self->schedule,
                                   .cluster = self->cluster,
                                   .stack = self->stack,
                                   .plan = &resolved };
      self->cost = sim_cost_new (&input, &error);
    }
  self->cost_us = (double)(g_get_monotonic_time () - start);
  if (!self->cost)
    g_error ("%s %s %s: %s", model_spec, cluster_spec, words, error->message);
}

static void
measure (Case *self, SimWorkspace *workspace)
{
  g_autoptr (GError) error = NULL;
  if (!sim_measure (self->schedule, self->cost, self->stack, workspace, &self->summary, &error))
    g_error ("%s", error->message);
}

static void
measure_step (Case *self, SimWorkspace *workspace)
{
  sim_measure_step (self->schedule, self->cost, workspace);
}

/* Microseconds that it takes, undisturbed. */
static double
time_of (void (*what) (Case *self, SimWorkspace *workspace), Case *self, SimWorkspace *workspace)
{
  double best_us = G_MAXDOUBLE;
  for (guint sample = 0; sample < 5; sample++)
    {
      const gint64 start = g_get_monotonic_time ();
      gint64 now = start;
      guint n = 0;
      for (; n == 0 || now - start < SAMPLE_US; n++, now = g_get_monotonic_time ())
        what (self, workspace);
      best_us = MIN (best_us, (double)(now - start) / n);
    }
  return best_us;
}

static void
bench (Case *self, SimWorkspace *workspace)
{
  self->step_us = time_of (measure_step, self, workspace);
  self->measure_us = time_of (measure, self, workspace);
}

/* One row: how long everything takes, and how much of it was jumped over. */
static void
print_row (const char *model, const char *cluster, const char *words, SimWorkspace *workspace)
{
  g_auto (Case) c = { 0 };
  g_autoptr (GError) error = NULL;
  prepare (&c, model, cluster, words);
  bench (&c, workspace);
  const gint64 start = g_get_monotonic_time ();
  g_autoptr (PlanTrace) trace = sim_run (c.schedule, c.cost, c.stack, &error);
  const double run_us = (double)(g_get_monotonic_time () - start);
  printf ("%-13s %-13s %-20s %8.2f %7.0f %9.0f %7.1f %10.1f %9" G_GUINT64_FORMAT
          " %7" G_GUINT64_FORMAT " %6.1f%% %8.0f %6.0fx\n",
          model, cluster, words, c.lower_ms, c.cost_us, run_us, c.step_us, c.measure_us,
          c.summary.n_ops, c.summary.n_walked,
          100 * (1 - (double)c.summary.n_walked / (double)c.summary.n_ops), 1e6 / c.measure_us,
          run_us / c.measure_us);
}

/* One curve: of a simulation, and of its time alone, against its first point. */
static void
print_curve (const char *what, const char *model_format, const char *cluster_format,
             const char *words_format, const guint *points, guint n, guint scale,
             SimWorkspace *workspace)
{
  Case first = { 0 };
  printf ("%s:", what);
  for (guint i = 0; i < n; i++)
    {
      g_auto (Case) c = { 0 };
      char model[200], cluster[50], words[200];
      /* Each format has at most one number, the same for all. */
      const guint value = points[i] * scale;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
      g_snprintf (model, sizeof model, model_format, value);
      g_snprintf (cluster, sizeof cluster, cluster_format, value);
      g_snprintf (words, sizeof words, words_format, value);
#pragma GCC diagnostic pop
      prepare (&c, model, cluster, words);
      bench (&c, workspace);
      if (i == 0)
        first = (Case){ .measure_us = c.measure_us, .step_us = c.step_us };
      printf ("  %u x%.2f/%.2f", points[i], c.measure_us / first.measure_us,
              c.step_us / first.step_us);
    }
  printf ("\n");
}

#define LLAMA_LAYERS \
  "layers=%u,hidden=8192,ffn=28672,heads=64,kv_heads=8,head_dim=128,vocab=128256,max_seq=8192"

static void
print_curves (SimWorkspace *workspace)
{
  static const guint nodes[] = { 1, 8, 64, 512, 4096, 16384 };
  static const guint micro[] = { 1, 2, 4, 16, 64, 256, 1024 };
  static const guint layers[] = { 16, 32, 64, 96, 128 };
  printf ("one simulation / its time alone, as ratios to the first\n");
  print_curve ("nodes of 8 GPUs", "llama3-70b", "dgx-h100:%u", "gbs=131072", nodes,
               G_N_ELEMENTS (nodes), 1, workspace);
  print_curve ("micro-batches", "llama3-70b", "dgx-h100:8", "gbs=%u", micro, G_N_ELEMENTS (micro),
               64, workspace);
  print_curve ("layers", LLAMA_LAYERS, "dgx-h100:8", "gbs=512", layers, G_N_ELEMENTS (layers), 1,
               workspace);
}

/* The plans of the table. */
static const struct
{
  const char *model, *cluster, *words;
} plans[] = {
  { "llama3-8b", "dgx-h100:1", "gbs=128" },
  { "llama3-70b", "dgx-h100:8", "gbs=64" },
  { "llama3-70b", "dgx-h100:8", "gbs=1024" },
  { "llama3.1-405b", "dgx-h100:2048", "gbs=16384" },
  { "llama3-8b", "dgx-h100:1", "gbs=128 stack=native" },
};

/* PLAN TIMES: simulates one plan that often, for counting instructions; says which where that is
 * never. */
static void
repeat (guint plan, guint64 times, SimWorkspace *workspace)
{
  g_auto (Case) c = { 0 };
  prepare (&c, plans[plan].model, plans[plan].cluster, plans[plan].words);
  if (times == 0)
    printf ("%s %s %s\n", plans[plan].model, plans[plan].cluster, plans[plan].words);
  for (; times > 0; times--)
    measure (&c, workspace);
}

int
main (int argc, char **argv)
{
  g_autoptr (SimWorkspace) workspace = sim_workspace_new ();
  if (argc == 3)
    {
      repeat ((guint)g_ascii_strtoull (argv[1], NULL, 10) % G_N_ELEMENTS (plans),
              g_ascii_strtoull (argv[2], NULL, 10), workspace);
      return EXIT_SUCCESS;
    }
  printf ("%-13s %-13s %-20s %8s %7s %9s %7s %10s %9s %7s %7s %8s %7s\n", "model", "cluster",
          "plan", "lower ms", "cost us", "run us", "step us", "measure us", "ops", "walked",
          "jumped", "per s", "faster");
  for (guint i = 0; i < G_N_ELEMENTS (plans); i++)
    print_row (plans[i].model, plans[i].cluster, plans[i].words, workspace);
  print_curves (workspace);
  return EXIT_SUCCESS;
}
