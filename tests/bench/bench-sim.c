/* SPDX-License-Identifier: Apache-2.0 */
/* How long lowering and simulating take, how many plans that scores, and how it grows. Run by `make
 * bench` and `make bench-instructions`; never part of the tests. */
#include "config.h"

#include "planner/search/bound.h"
#include "planner/search/search.h"
#include "sim/fast/measure.h"
#include "sim/fast/passes.h"
#include "sim/fast/stages.h"
#include "sim/sim.h"
#include "tests/case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLE_US 20000 /* a figure is the best of SAMPLES that long: the least disturbed one */
#define SAMPLES 5

typedef struct
{
  PlanModel *model;
  PlanCluster *cluster;
  PlanCase *of;
  SimParams params[2]; /* in turns: nothing that was found for one set of costs helps the other */
  guint turn;
  PlanSchedule *schedule;
  SimCost *cost, *costs[2];
  SimSummary summary;
} Case;

static void
case_clear (Case *self)
{
  g_clear_pointer (&self->cost, sim_cost_free);
  for (guint i = 0; i < 2; i++)
    g_clear_pointer (&self->costs[i], sim_cost_free);
  g_clear_pointer (&self->schedule, plan_schedule_free);
  g_clear_pointer (&self->of, plan_case_free);
  g_clear_pointer (&self->cluster, plan_cluster_free);
  g_clear_pointer (&self->model, plan_model_free);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Case, case_clear)

static void
lower (Case *self, SimWorkspace *workspace)
{
  g_clear_pointer (&self->schedule, plan_schedule_free);
  self->schedule = test_lower (self->of, 0);
}

static void
find_costs (Case *self, SimWorkspace *workspace)
{
  g_autoptr (GError) error = NULL;
  SimCostInput input = sim_cost_input (self->of, self->schedule);
  input.params = &self->params[self->turn % 2];
  g_clear_pointer (&self->cost, sim_cost_free);
  if (!(self->cost = sim_cost_new (&input, &error)))
    g_error ("%s", error->message);
}

/* Lowers and costs: `words` are FIELD=VALUE. */
static void
prepare (Case *self, const char *model_spec, const char *cluster_spec, const char *words)
{
  g_autoptr (GError) error = NULL;
  *self = (Case){ .model = plan_model_new (model_spec, &error) };
  self->cluster = self->model ? plan_cluster_new (cluster_spec, &error) : NULL;
  if (error)
    g_error ("%s %s %s: %s", model_spec, cluster_spec, words, error->message);
  self->of = test_case (self->model, self->cluster, words);
  lower (self, NULL);
  for (guint i = 0; i < 2; i++)
    {
      self->params[i] = *sim_params_default (self->cluster);
      self->params[i].value[SIM_PARAM_RING_SHARE] *= i == 0 ? 1 : 0.99;
      self->turn = i;
      find_costs (self, NULL);
      self->costs[i] = g_steal_pointer (&self->cost);
    }
  self->turn = 0;
  find_costs (self, NULL);
}

static void
measure (Case *self, SimWorkspace *workspace)
{
  g_autoptr (GError) error = NULL;
  if (!sim_measure (self->schedule, self->costs[++self->turn % 2], self->of->stack, workspace,
                    &self->summary, &error))
    g_error ("%s", error->message);
}

static void
measure_step (Case *self, SimWorkspace *workspace)
{
  sim_measure_step (self->schedule, self->cost, workspace);
}

/* What the device holds, of the schedule whose time was measured last. */
static void
measure_bytes (Case *self, SimWorkspace *workspace)
{
  guint64 bytes;
  gboolean is_settled;
  if (!sim_measure_device_bytes (self->schedule, self->cost, self->of->stack, G_MAXUINT64,
                                 workspace, &bytes, &is_settled, NULL))
    g_error ("no memory");
}

/* What a search asks of a plan: its time, and what the device holds. */
static void
score (Case *self, SimWorkspace *workspace)
{
  measure_step (self, workspace);
  measure_bytes (self, workspace);
}

/* Scores a plan that has the same schedule as the one before: its costs and its step alone. */
static void
score_again (Case *self, SimWorkspace *workspace)
{
  self->turn++;
  find_costs (self, workspace);
  score (self, workspace);
}

/* Scores a plan from its lowering on. */
static void
score_from_nothing (Case *self, SimWorkspace *workspace)
{
  lower (self, workspace);
  score_again (self, workspace);
}

/* The schedule's memory is known, too, as a search finds it once (advise/score.c). */
static void
score_shared (Case *self, SimWorkspace *workspace)
{
  self->turn++;
  find_costs (self, workspace);
  measure_step (self, workspace);
}

/* Costs are known, too: only the time is simulated. */
static void
score_time (Case *self, SimWorkspace *workspace)
{
  sim_measure_step (self->schedule, self->costs[++self->turn % 2], workspace);
}

typedef void (*Work) (Case *self, SimWorkspace *workspace);

/* Microseconds that some work takes: the best of some samples. */
static double
time_of (Work what, Case *self, SimWorkspace *workspace, guint samples)
{
  double best_us = G_MAXDOUBLE;
  for (guint sample = 0; sample < samples; sample++)
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

/* One row: how long everything takes, and how much of it was jumped over. */
static void
print_row (const char *model, const char *cluster, const char *words, SimWorkspace *workspace)
{
  g_auto (Case) c = { 0 };
  g_autoptr (GError) error = NULL;
  prepare (&c, model, cluster, words);
  const double lower_us = time_of (lower, &c, workspace, SAMPLES);
  const double cost_us = time_of (find_costs, &c, workspace, SAMPLES);
  const double step_us = time_of (score_time, &c, workspace, SAMPLES);
  const double measure_us = time_of (measure, &c, workspace, SAMPLES);
  const gint64 start = g_get_monotonic_time ();
  g_autoptr (PlanTrace) trace = sim_run (c.schedule, c.cost, c.of->stack, &error);
  const double run_us = (double)(g_get_monotonic_time () - start);
  if (!trace)
    g_error ("%s", error->message);
  printf ("%-13s %-13s %-20s %8.0f %7.0f %9.0f %7.1f %10.1f %9" G_GUINT64_FORMAT
          " %7" G_GUINT64_FORMAT " %6.1f%% %6.0fx\n",
          model, cluster, words, lower_us, cost_us, run_us, step_us, measure_us, c.summary.n_ops,
          c.summary.n_walked, 100 * (1 - (double)c.summary.n_walked / (double)c.summary.n_ops),
          run_us / measure_us);
}

#define CANDIDATES 1000 /* plans that are simulated as in a search */
#define RECENT 8        /* schedules that a search keeps */

/* A search's own plans, in its order, one after the other. */
typedef struct
{
  Case *c;
  SimWorkspace *workspace;
  GHashTable *scores, *held; /* Plan, distilled -> PlanScore; guint64, without communicators */
  Plan keys[RECENT];
  PlanSchedule *schedules[RECENT];
  guint n_lowered, n_held, n_simulated;
  gint64 us;
} Candidates;

static void
find_schedule (Candidates *self, const Plan *key)
{
  Case *c = self->c;
  for (guint i = 0; i < RECENT; i++)
    if (self->schedules[i] && plan_search_key_equal (&self->keys[i], key))
      {
        c->schedule = self->schedules[i];
        return;
      }
  const guint place = self->n_lowered++ % RECENT;
  c->schedule = g_steal_pointer (&self->schedules[place]);
  lower (c, NULL);
  self->schedules[place] = c->schedule;
  self->keys[place] = *key;
}

static guint64
find_bytes (Candidates *self, const Plan *key)
{
  const Case *c = self->c;
  const guint64 *known = g_hash_table_lookup (self->held, key);
  const guint64 outside = plan_bound_communicator_bytes (c->of);
  guint64 bytes;
  gboolean is_settled;
  if (known)
    return *known + outside;
  self->n_held++;
  if (!sim_measure_device_bytes (c->schedule, c->cost, c->of->stack, G_MAXUINT64, self->workspace,
                                 &bytes, &is_settled, NULL))
    return G_MAXUINT64;
  const guint64 rest = bytes - outside;
  if (is_settled)
    g_hash_table_insert (self->held, g_memdup2 (key, sizeof *key), g_memdup2 (&rest, sizeof rest));
  return bytes;
}

/* What plans share is shared as in advise/score.c. */
static gboolean
score_candidate (const PlanCase *of, PlanInquiry *inquiry, gpointer data, PlanScore *out_score)
{
  Candidates *self = data;
  Case *c = self->c;
  const gint64 start = g_get_monotonic_time ();
  Plan key, schedule_key;
  plan_case_free (c->of);
  c->of = g_memdup2 (of, sizeof *of);
  plan_lower_distil (of, &key);
  const PlanScore *known = g_hash_table_lookup (self->scores, &key);
  if (known)
    {
      *out_score = *known;
      return TRUE;
    }
  schedule_key = key;
  plan_lower_distil_schedule (&schedule_key);
  find_schedule (self, &schedule_key);
  find_costs (c, NULL);
  out_score->time_ns = sim_measure_step (c->schedule, c->cost, self->workspace);
  schedule_key.value[PLAN_AG_GROUP] = PLAN_AG_GROUP_OFF;
  out_score->memory_bytes = find_bytes (self, &schedule_key);
  self->n_simulated++;
  self->us += g_get_monotonic_time () - start;
  g_hash_table_insert (self->scores, g_memdup2 (&key, sizeof key),
                       g_memdup2 (out_score, sizeof *out_score));
  c->schedule = NULL;
  return out_score->memory_bytes < G_MAXUINT64;
}

static gboolean
are_some_left (guint64 done, guint64 total, gpointer data)
{
  return ((const Candidates *)data)->n_simulated < CANDIDATES;
}

/* Plans that a search simulates, with what they share there. */
static void
print_candidates (const char *model, const char *cluster, const char *words,
                  SimWorkspace *workspace)
{
  g_auto (Case) c = { 0 };
  g_auto (PlanSearchResult) result = { 0 };
  g_autoptr (GHashTable) scores
      = g_hash_table_new_full (plan_search_key_hash, plan_search_key_equal, g_free, g_free);
  g_autoptr (GHashTable) held
      = g_hash_table_new_full (plan_search_key_hash, plan_search_key_equal, g_free, g_free);
  Candidates all = { .c = &c, .workspace = workspace, .scores = scores, .held = held };
  gboolean pinned[PLAN_N_FIELDS] = { FALSE };
  prepare (&c, model, cluster, words);
  g_clear_pointer (&c.schedule, plan_schedule_free);
  Plan base;
  plan_init (&base);
  base.value[PLAN_GBS] = c.of->plan.value[PLAN_GBS];
  pinned[PLAN_GBS] = TRUE;
  g_autoptr (PlanSpace) space = plan_space_new (c.model, c.cluster, &base, pinned, 0);
  const PlanSearch search = { .model = c.model,
                              .cluster = c.cluster,
                              .space = space,
                              .memory_bytes = c.cluster->memory_bytes,
                              .best = 5,
                              .apart = 0.005,
                              .threads = 1,
                              .front = 1.3,
                              .score = score_candidate,
                              .progress = are_some_left,
                              .user_data = &all };
  plan_search_run (&search, &result);
  printf ("  %-48s %8.0f  (%u plans: %u lowered, %u with their memory found)\n",
          "as in a search, its own plans in its order", 1e6 * all.n_simulated / (double)all.us,
          all.n_simulated, all.n_lowered, all.n_held);
  for (guint i = 0; i < RECENT; i++)
    plan_schedule_free (all.schedules[i]);
}

/* How many plans one core scores in a second, by what they have in common. */
static void
print_rates (const char *model, const char *cluster, const char *words, SimWorkspace *workspace)
{
  static const struct
  {
    const char *name;
    Work work;
  } rates[] = { { "from nothing: lowering, costs, time, memory", score_from_nothing },
                { "one schedule: costs, time, memory", score_again },
                { "one schedule, memory known: costs, time", score_shared },
                { "costs known, too: time", score_time } };
  g_auto (Case) c = { 0 };
  prepare (&c, model, cluster, words);
  printf ("plans of %s on %s, %s, scored per second and core, with two sets of costs in turns:\n",
          model, cluster, words);
  for (guint i = 0; i < G_N_ELEMENTS (rates); i++)
    printf ("  %-48s %8.0f\n", rates[i].name,
            1e6 / time_of (rates[i].work, &c, workspace, SAMPLES));
  print_candidates (model, cluster, words, workspace);
}

#define LLAMA_LAYERS \
  "layers=%u,hidden=8192,ffn=28672,heads=64,kv_heads=8,head_dim=128,vocab=128256,max_seq=8192"

#define MAX_POINTS 8

/* What grows: `model`, `cluster` and `words` are formats, one of which has a number, points[i] *
 * scale. */
typedef struct
{
  const char *name, *model, *cluster, *words;
  guint points[MAX_POINTS], n, scale;
} Curve;

static const Curve curves[] = {
  { "nodes of 8 GPUs",
    "llama3-70b",
    "dgx-h100:%u",
    "gbs=131072",
    { 1, 8, 64, 512, 4096, 16384 },
    6,
    1 },
  { "micro-batches", "llama3-70b", "dgx-h100:8", "gbs=%u", { 1, 2, 4, 16, 64, 256, 1024 }, 7, 64 },
  { "layers", LLAMA_LAYERS, "dgx-h100:8", "gbs=512", { 16, 32, 64, 96, 128 }, 5, 1 },
};

static const char *const variants[] = {
  "strategy=no_shard",
  "strategy=optim",
  "strategy=optim_grads",
  "strategy=optim_grads_params",
  "strategy=optim_grads_params double_buffer=on",
  "strategy=no_shard recompute=full",
  "strategy=optim_grads recompute=full",
  "strategy=optim_grads_params recompute=full",
  "strategy=optim tp=4",
  "strategy=optim_grads tp=4",
  "strategy=optim_grads_params tp=4",
  "strategy=optim_grads_params double_buffer=on tp=4",
};

/* What one plan takes at each point of a curve. */
typedef struct
{
  double step_us[MAX_POINTS], bytes_us[MAX_POINTS];
  guint64 walked[MAX_POINTS];
} Growth;

static Growth
follow (const Curve *curve, const char *variant, SimWorkspace *workspace)
{
  Growth growth = { 0 };
  for (guint i = 0; i < curve->n; i++)
    {
      g_auto (Case) c = { 0 };
      char model[200], cluster[50], words[200];
      const guint value = curve->points[i] * curve->scale;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
      g_snprintf (model, sizeof model, curve->model, value);
      g_snprintf (cluster, sizeof cluster, curve->cluster, value);
      g_snprintf (words, sizeof words, curve->words, value);
#pragma GCC diagnostic pop
      g_autofree char *all = g_strjoin (" ", words, variant, NULL);
      prepare (&c, model, cluster, all);
      measure (&c, workspace);
      growth.walked[i] = c.summary.n_walked;
      growth.step_us[i] = time_of (score_time, &c, workspace, 1);
      growth.bytes_us[i] = time_of (measure_bytes, &c, workspace, 1);
    }
  return growth;
}

/* Whether repeats are certified: more of them are not walked. */
static gboolean
is_certified (const Curve *curve, const Growth *growth)
{
  return growth->walked[curve->n - 1] < 2 * growth->walked[0];
}

/* Prints the sums over the variants that are certified, or over the others, as ratios to the first
 * point. */
static void
print_growth (const Curve *curve, const Growth *growths, gboolean certified)
{
  double step_us[MAX_POINTS] = { 0 }, bytes_us[MAX_POINTS] = { 0 }, walked[MAX_POINTS] = { 0 };
  guint n = 0;
  for (guint v = 0; v < G_N_ELEMENTS (variants); v++)
    if (is_certified (curve, &growths[v]) == certified)
      {
        n++;
        for (guint i = 0; i < curve->n; i++)
          {
            step_us[i] += growths[v].step_us[i];
            bytes_us[i] += growths[v].bytes_us[i];
            walked[i] += (double)growths[v].walked[i];
          }
      }
  printf ("  %2u of %u %-13s", n, (guint)G_N_ELEMENTS (variants),
          certified ? "certified:" : "not:");
  for (guint i = 0; i < curve->n && n > 0; i++)
    printf ("  %u x%.2f/%.2f/%.2f", curve->points[i], step_us[i] / step_us[0],
            walked[i] / walked[0], bytes_us[i] / bytes_us[0]);
  printf ("\n");
}

static void
print_curves (SimWorkspace *workspace)
{
  Growth growths[G_N_ELEMENTS (variants)];
  printf (
      "to simulate a step's time / ops gone through one by one for it / to simulate its memory, as "
      "ratios to the first point\n");
  for (guint i = 0; i < G_N_ELEMENTS (curves); i++)
    {
      for (guint v = 0; v < G_N_ELEMENTS (variants); v++)
        growths[v] = follow (&curves[i], variants[v], workspace);
      printf ("%s:\n", curves[i].name);
      print_growth (&curves[i], growths, TRUE);
      print_growth (&curves[i], growths, FALSE);
    }
}

/* The plans of the table. */
static const struct
{
  const char *model, *cluster, *words;
} plans[] = {
  { "llama3-8b", "dgx-h100:1", "gbs=128" },
  { "llama3-70b", "dgx-h100:8", "gbs=64" },
  { "llama3-70b", "dgx-h100:8", "gbs=1024" },
  { "llama3-70b", "dgx-h100:8", "gbs=1024 tp=4" },
  { "llama3.1-405b", "dgx-h100:2048", "gbs=16384" },
  { "llama3-8b", "dgx-h100:1", "gbs=128 stack=native" },
};

/* What can be repeated, by name. */
static const struct
{
  const char *name;
  Work work;
} repeated[] = { { "nothing", score_from_nothing },
                 { "shared", score_again },
                 { "totals", measure },
                 { "step", score_time } };

/* For counting instructions: does the work of that name for one plan so often; where that is never,
 * prints the plan. "search" scores the plans of a search for the plan's model, cluster and batch.
 */
static void
repeat (guint plan, const char *what, guint64 times, SimWorkspace *workspace)
{
  g_auto (Case) c = { 0 };
  prepare (&c, plans[plan].model, plans[plan].cluster, plans[plan].words);
  for (guint64 t = 0; t < times && strcmp (what, "search") == 0; t++)
    print_candidates (plans[plan].model, plans[plan].cluster, plans[plan].words, workspace);
  if (times == 0)
    printf ("%s %s %s\n", plans[plan].model, plans[plan].cluster, plans[plan].words);
  for (guint i = 0; i < G_N_ELEMENTS (repeated); i++)
    for (guint64 t = 0; t < times && strcmp (repeated[i].name, what) == 0; t++)
      repeated[i].work (&c, workspace);
}

/* A pipeline: all stages, each by its first rank. */
typedef struct
{
  PlanCase *of;
  guint n;
  PlanSchedule *schedules[SIM_MAX_STAGES];
  SimCost *costs[SIM_MAX_STAGES];
  SimWorkspace *workspace;
  gint64 step_ns;
} Pipeline;

static void
pipeline_forget (Pipeline *self)
{
  for (guint i = 0; i < self->n; i++)
    {
      g_clear_pointer (&self->schedules[i], plan_schedule_free);
      g_clear_pointer (&self->costs[i], sim_cost_free);
    }
}

static void
pipeline_lower (Pipeline *self)
{
  g_autoptr (GError) error = NULL;
  const guint of_stage = (guint)plan_cluster_devices (self->of->cluster) / self->n;
  pipeline_forget (self);
  for (guint i = 0; i < self->n; i++)
    {
      self->schedules[i] = test_lower (self->of, i * of_stage);
      const SimCostInput input = sim_cost_input (self->of, self->schedules[i]);
      if (!(self->costs[i] = sim_cost_new (&input, &error)))
        g_error ("%s", error->message);
    }
}

static void
pipeline_time (Pipeline *self)
{
  const SimPipeline meeting = { (const PlanSchedule *const *)self->schedules, self->n };
  if (self->n == 1)
    {
      self->step_ns = sim_measure_step (self->schedules[0], self->costs[0], self->workspace);
      return;
    }
  const SimCost *const *costs = (const SimCost *const *)self->costs;
  if (self->of->plan.value[PLAN_VPP] > 1)
    {
      SimPasses passes;
      if (!sim_passes_run (&meeting, costs, NULL, &passes))
        g_error ("passes differ from iteration to iteration");
      self->step_ns = passes.step_ns;
      return;
    }
  g_autoptr (SimStages) stages = sim_stages_new (&meeting, costs);
  if (!sim_stages_run (stages))
    g_error ("stages meet while something is under way");
  self->step_ns = sim_stages_step_ns (stages);
}

static double
pipeline_us (void (*what) (Pipeline *self), Pipeline *self)
{
  double best_us = G_MAXDOUBLE;
  for (guint sample = 0; sample < SAMPLES; sample++)
    {
      const gint64 start = g_get_monotonic_time ();
      what (self);
      best_us = MIN (best_us, (double)(g_get_monotonic_time () - start));
    }
  return best_us;
}

static void
print_pipeline (guint stages, guint n_virtual, guint micro_batches, SimWorkspace *workspace)
{
  g_autofree char *nodes = g_strdup_printf ("dgx-h100:%u", stages);
  g_autofree char *words
      = g_strdup_printf ("stack=megatron strategy=optim tp=8 pp=%u vpp=%u gbs=%u seq=8192", stages,
                         n_virtual, micro_batches);
  g_autoptr (PlanModel) model = plan_model_new ("llama3-70b", NULL);
  g_autoptr (PlanCluster) cluster = plan_cluster_new (nodes, NULL);
  g_autoptr (PlanCase) of = test_case (model, cluster, words);
  Pipeline pipeline = { .of = of, .n = stages, .workspace = workspace };
  const double lower_us = pipeline_us (pipeline_lower, &pipeline);
  const double time_us = pipeline_us (pipeline_time, &pipeline);
  printf ("%6u %7u %13u %10.0f %8.0f %10.1f\n", stages, n_virtual, micro_batches, lower_us, time_us,
          1e6 / (lower_us + time_us));
  pipeline_forget (&pipeline);
}

/* How many pipelines one core simulates in a second, and how that grows with stages, virtual ones
 * and micro batches. */
static void
print_pipelines (SimWorkspace *workspace)
{
  static const guint stages[] = { 1, 4, 16 }, n_virtual[] = { 1, 5 }, micro_batches[] = { 16, 256 };
  printf ("llama3-70b on H100, stack=megatron tp=8, one replica:\n%6s %7s %13s %10s %8s %10s\n",
          "stages", "virtual", "micro_batches", "lower us", "time us", "per second");
  for (guint p = 0; p < G_N_ELEMENTS (stages); p++)
    for (guint v = 0; v < (stages[p] > 1 ? G_N_ELEMENTS (n_virtual) : 1); v++)
      for (guint m = 0; m < G_N_ELEMENTS (micro_batches); m++)
        print_pipeline (stages[p], n_virtual[v], micro_batches[m], workspace);
}

int
main (int argc, char **argv)
{
  g_autoptr (SimWorkspace) workspace = sim_workspace_new ();
  if (argc == 4)
    {
      repeat ((guint)g_ascii_strtoull (argv[1], NULL, 10) % G_N_ELEMENTS (plans), argv[2],
              g_ascii_strtoull (argv[3], NULL, 10), workspace);
      return EXIT_SUCCESS;
    }
  printf ("%-13s %-13s %-20s %8s %7s %9s %7s %10s %9s %7s %7s %7s\n", "model", "cluster", "plan",
          "lower us", "cost us", "run us", "step us", "measure us", "ops", "walked", "jumped",
          "faster");
  for (guint i = 0; i < G_N_ELEMENTS (plans); i++)
    print_row (plans[i].model, plans[i].cluster, plans[i].words, workspace);
  print_rates ("llama3-70b", "dgx-h100:8", "gbs=1024", workspace);
  print_curves (workspace);
  print_pipelines (workspace);
  return EXIT_SUCCESS;
}
