/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/base/error.h"
#include "sim/cost/uncertainty.h"
#include "sim/fast/measure.h"
#include "sim/fit/spreads.h"
#include "sim/sim.h"
#include "tests/case.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* Runs, each limited by something else. */
static const struct
{
  const char *model, *cluster, *fields;
} runs[] = {
  { "llama3-8b", "dgx-h100:1", "gbs=8" },
  { "llama3-8b", "dgx-h100:1", "gbs=8 strategy=optim_grads" },
  { "llama3-8b", "dgx-h100:1", "gbs=8 seq=1024" },
  { "llama3-8b", "dgx-h100:1", "gbs=8 recompute=full" },
  { "llama3.2-1b", "dgx-h100:1", "gbs=8 seq=32768" },
  { "llama3.2-1b", "dgx-h100:1", "gbs=8 seq=256" },
  { "llama3.2-1b", "dgx-h100:4", "gbs=32 seq=256" },
  { "llama3-8b", "dgx-h100:4", "gbs=32 seq=1024" },
  { "llama3-8b", "dgx-h100:1", "gbs=8 compute=fp8-delayed param_gather=fp8" },
  { "llama3-8b", "dgx-h100:2", "gbs=16 seq=512" },
  { "llama3-8b", "dgx-h100:4", "gbs=32 seq=2048" },
  { "llama3-8b", "dgx-a100:1", "gbs=8" },
  { "llama3-8b", "dgx-a100:1", "gbs=8 seq=1024" },
  { "llama3.2-1b", "dgx-a100:1", "gbs=8 seq=16384" },
};

typedef struct
{
  TestCase cases[G_N_ELEMENTS (runs)];
  SimObservation rows[G_N_ELEMENTS (runs)];
} Runs;

static void
set_up (Runs *self)
{
  for (guint i = 0; i < G_N_ELEMENTS (runs); i++)
    {
      TestCase *c = &self->cases[i];
      test_case_init (c, runs[i].model, runs[i].cluster, runs[i].fields);
      self->rows[i] = (SimObservation){
        .input = sim_cost_input (c->of, c->schedule),
        .gpu = c->cluster->device_name,
        .stack = "megatron-fsdp",
        .weight = 1,
        .part = i % 4,
      };
    }
}

static void
clear (Runs *self)
{
  for (guint i = 0; i < G_N_ELEMENTS (runs); i++)
    test_case_clear (&self->cases[i]);
}

/* The time that a set of factors predicts for the run. */
static double
predict_ns (const SimObservation *row, const SimAdjustments *set)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (SimWorkspace) workspace = sim_workspace_new ();
  SimParams params = *sim_params_default (row->input.cluster);
  SimCostInput input = row->input;
  if (set)
    sim_adjustments_apply (set, row->gpu, row->stack, NULL, &params);
  input.params = &params;
  g_autoptr (SimCost) cost = sim_cost_new (&input, &error);
  ck_assert_msg (cost != NULL, "%s", error ? error->message : "");
  return (double)sim_measure_step (input.schedule, cost, workspace);
}

static SimAdjustments *
parse (const char *text)
{
  g_autoptr (GError) error = NULL;
  SimAdjustments *set = sim_adjustments_parse (text, "text", &error);
  ck_assert_msg (set != NULL, "%s", error ? error->message : "");
  return set;
}

#define TRUTH \
  "parameters truth\n" \
  "factor effect=product.bf16 gpu=h100-80gb value=0.85 error=0\n" \
  "factor effect=attention gpu=h100-80gb value=0.9 error=0\n" \
  "factor effect=network gpu=h100-80gb value=0.7 error=0\n" \
  "factor effect=product.bf16 gpu=a100-80gb value=1.1 error=0\n" \
  "factor effect=launch stack=megatron-fsdp value=1.5 error=0\n"

static double
factor_of (const SimAdjustments *set, const char *gpu, SimEffect effect)
{
  SimParams params = { .id = "one" };
  for (SimParam p = 0; p < SIM_N_PARAMS; p++)
    params.value[p] = 0.1;
  sim_adjustments_apply (set, gpu, "megatron-fsdp", NULL, &params);
  return 10
         * params.value[effect == SIM_EFFECT_PRODUCT_BF16 ? SIM_PARAM_PRODUCT_BF16
                                                          : SIM_PARAM_NET_SHARE];
}

static int
compare_doubles (const void *left, const void *right)
{
  const double a = *(const double *)left, b = *(const double *)right;
  return (a > b) - (a < b);
}

/* The error that four fifths of the runs on that GPU, and one more, stay below. */
static double
spread_of (const Runs *self, const char *gpu)
{
  double misses[G_N_ELEMENTS (runs)];
  guint n = 0;
  for (guint i = 0; i < G_N_ELEMENTS (runs); i++)
    if (g_str_equal (self->rows[i].gpu, gpu))
      misses[n++] = 100 * ABS (self->rows[i].without_part_ns / self->rows[i].step_ns - 1);
  qsort (misses, n, sizeof *misses, compare_doubles);
  return misses[MIN ((4 * (n + 1) + 4) / 5, n) - 1];
}

/* Runs made by known factors: the fit finds these factors as far as its priors let it, and predicts
 * runs that it did not see. */
START_TEST (finds_what_made_the_runs)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (SimAdjustments) truth = parse (TRUTH);
  Runs self;
  set_up (&self);
  for (guint i = 0; i < G_N_ELEMENTS (runs); i++)
    self.rows[i].step_ns = predict_ns (&self.rows[i], truth);
  const SimCalibration request = { .id = "found", .n_parts = 4, .n_threads = 2 };
  g_autoptr (SimAdjustments) set = sim_calibrate (&request, self.rows, G_N_ELEMENTS (runs), &error);
  ck_assert_msg (set != NULL, "%s", error ? error->message : "");
  double before = 0, after = 0;
  for (guint i = 0; i < G_N_ELEMENTS (runs); i++)
    {
      const SimObservation *row = &self.rows[i];
      before += ABS (row->before_ns / row->step_ns - 1) / G_N_ELEMENTS (runs);
      after += ABS (row->after_ns / row->step_ns - 1) / G_N_ELEMENTS (runs);
      ck_assert_double_eq_tol (row->before_ns, predict_ns (row, NULL), 1);
      /* factors are rounded to four decimals */
      ck_assert_double_eq_tol (row->after_ns / predict_ns (row, set), 1, 1e-3);
      ck_assert_msg (ABS (row->without_part_ns / row->step_ns - 1) < 0.12, "run %u, left out: %g",
                     i, row->without_part_ns / row->step_ns);
    }
  ck_assert_double_gt (before, 0.1);
  ck_assert_double_lt (after, 0.02);
  ck_assert_double_eq_tol (factor_of (set, "h100-80gb", SIM_EFFECT_PRODUCT_BF16), 0.85, 0.04);
  ck_assert_double_eq_tol (factor_of (set, "a100-80gb", SIM_EFFECT_PRODUCT_BF16), 1.1, 0.06);
  ck_assert_double_eq_tol (factor_of (set, "h100-80gb", SIM_EFFECT_NETWORK), 0.7, 0.08);
  ck_assert_double_eq_tol (sim_uncertainty_spread (set, "h100-80gb", "megatron-fsdp", FALSE).pct,
                           spread_of (&self, "h100-80gb"), 1e-3);
  ck_assert_double_gt (sim_uncertainty_spread (set, "b200", "native", FALSE).pct, 0);
  clear (&self);
}
END_TEST

/* A rate that was timed alone is an upper bound, so the share of it that a long run keeps has a
 * prior that begins there; runs that keep less are still fitted. */
START_TEST (finds_what_is_kept_of_timed_rates)
{
  static const SimProduct timed[] = {
    { 8192, 6144, 4096, 1, PLAN_DTYPE_BF16, PLAN_DTYPE_BF16, FALSE, 700e12 },
    { 8192, 28672, 4096, 1, PLAN_DTYPE_BF16, PLAN_DTYPE_BF16, FALSE, 700e12 },
    { 8192, 4096, 14336, 1, PLAN_DTYPE_BF16, PLAN_DTYPE_BF16, FALSE, 700e12 },
    { 8192, 4096, 28672, 0, PLAN_DTYPE_BF16, PLAN_DTYPE_BF16, FALSE, 700e12 },
    { 8192, 14336, 4096, 0, PLAN_DTYPE_BF16, PLAN_DTYPE_BF16, FALSE, 700e12 },
  };
  g_autoptr (GError) error = NULL;
  g_autoptr (SimMeasurements) measurements = sim_measurements_new (timed, G_N_ELEMENTS (timed));
  g_autoptr (SimAdjustments) truth
      = parse ("parameters truth\n"
               "factor effect=product.sustained gpu=h100-80gb value=0.8 error=0\n");
  Runs self;
  set_up (&self);
  self.rows[0].input.measurements = measurements;
  self.rows[0].weight = 10;
  self.rows[0].step_ns = predict_ns (&self.rows[0], truth);
  const SimCalibration request = { .id = "found", .n_threads = 1 };
  g_autoptr (SimAdjustments) set = sim_calibrate (&request, self.rows, 1, &error);
  ck_assert_msg (set != NULL, "%s", error ? error->message : "");
  SimParams params = { .id = "one" };
  params.value[SIM_PARAM_PRODUCT_SUSTAINED] = 1;
  sim_adjustments_apply (set, "h100-80gb", "megatron-fsdp", NULL, &params);
  ck_assert_double_lt (params.value[SIM_PARAM_PRODUCT_SUSTAINED], 0.95);
  clear (&self);
}
END_TEST

/* The time of a pipeline, by simulating all stages op by op. */
static double
run_stages_ns (const PlanCase *of, PlanSchedule *const *schedules, guint n)
{
  g_autoptr (GError) error = NULL;
  const SimPipeline meeting = { (const PlanSchedule *const *)schedules, n };
  SimCost *costs[SIM_MAX_STAGES];
  PlanTrace *traces[SIM_MAX_STAGES];
  const SimParams *params = sim_params_default (of->cluster);
  for (guint s = 0; s < n; s++)
    {
      SimCostInput input = sim_cost_input (of, schedules[s]);
      input.params = params;
      costs[s] = sim_cost_new (&input, &error);
      ck_assert (costs[s] != NULL);
    }
  ck_assert (
      sim_run_stages (&meeting, (const SimCost *const *)costs, of->stack, traces, NULL, &error));
  const double step_ns = (double)traces[0]->step_ns;
  for (guint s = 0; s < n; s++)
    {
      plan_trace_free (traces[s]);
      sim_cost_free (costs[s]);
    }
  return step_ns;
}

/* All stages of a pipeline are simulated, not only the first one, which waits for no other. */
START_TEST (simulates_all_stages_of_a_pipeline)
{
  const char *const vpp[] = { "", " vpp=2" };
  g_autoptr (GError) error = NULL;
  g_autofree char *words
      = g_strdup_printf ("stack=megatron strategy=optim pp=4 gbs=16 seq=1024%s", vpp[_i]);
  g_autoptr (PlanModel) model = plan_model_new ("llama3-8b", &error);
  g_autoptr (PlanCluster) cluster = plan_cluster_new ("dgx-h100:1", &error);
  g_autoptr (PlanCase) of = test_case (model, cluster, words);
  PlanSchedule *schedules[4];
  for (guint s = 0; s < G_N_ELEMENTS (schedules); s++)
    schedules[s] = test_lower (of, 2 * s);
  const double predicted_ns = run_stages_ns (of, schedules, G_N_ELEMENTS (schedules));
  SimObservation row = { .input = sim_cost_input (of, schedules[0]),
                         .stages = { (const PlanSchedule *const *)schedules, 4 },
                         .gpu = "h100-80gb",
                         .stack = "megatron",
                         .weight = 1,
                         .step_ns = 1.2 * predicted_ns };
  const SimCalibration request = { .id = "found", .n_threads = 1 };
  g_autoptr (SimAdjustments) set = sim_calibrate (&request, &row, 1, &error);
  ck_assert_msg (set != NULL, "%s", error ? error->message : "");
  ck_assert_double_eq_tol (row.before_ns, predicted_ns, 1e-6 * predicted_ns);
  ck_assert_double_gt (row.after_ns, 1.05 * predicted_ns);
  for (guint s = 0; s < G_N_ELEMENTS (schedules); s++)
    plan_schedule_free (schedules[s]);
}
END_TEST

/* One outlier among good runs moves the fit only a little. */
START_TEST (is_not_led_by_one_run)
{
  g_autoptr (GError) error = NULL;
  Runs self;
  set_up (&self);
  for (guint i = 0; i < G_N_ELEMENTS (runs); i++)
    self.rows[i].step_ns = predict_ns (&self.rows[i], NULL) * (i == 0 ? 3 : 1);
  const SimCalibration request = { .id = "found", .n_threads = 1 };
  g_autoptr (SimAdjustments) set = sim_calibrate (&request, self.rows, G_N_ELEMENTS (runs), &error);
  ck_assert_msg (set != NULL, "%s", error ? error->message : "");
  for (guint i = 1; i < G_N_ELEMENTS (runs); i++)
    ck_assert_msg (ABS (self.rows[i].after_ns / self.rows[i].step_ns - 1) < 0.06, "run %u: %g", i,
                   self.rows[i].after_ns / self.rows[i].step_ns);
  clear (&self);
}
END_TEST

/* What is learned in addition to a set is applied where it was learned, and nowhere else. */
START_TEST (own_runs_do_not_spoil_others)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (SimAdjustments) base = parse (TRUTH "uncertainty pct=9 runs=50\n");
  Runs self;
  SimObservation own[5];
  guint n = 0;
  set_up (&self);
  for (guint i = 0; n < G_N_ELEMENTS (own); i++)
    {
      own[n] = self.rows[i];
      own[n++].step_ns = 1.2 * predict_ns (&self.rows[i], base);
    }
  const SimCalibration request = { .id = "own", .base = base, .n_threads = 2 };
  g_autoptr (SimAdjustments) set = sim_calibrate (&request, own, n, &error);
  ck_assert_msg (set != NULL, "%s", error ? error->message : "");
  for (guint i = 0; i < n; i++)
    ck_assert_msg (ABS (own[i].after_ns / own[i].step_ns - 1) < 0.08
                       && own[i].before_ns < 0.84 * own[i].step_ns,
                   "run %u: %g", i, own[i].after_ns / own[i].step_ns);
  for (guint i = 0; i < G_N_ELEMENTS (runs); i++)
    if (g_str_equal (self.rows[i].gpu, "a100-80gb"))
      ck_assert_double_eq (predict_ns (&self.rows[i], set), predict_ns (&self.rows[i], base));
  ck_assert_double_eq (sim_uncertainty_spread (set, "a100-80gb", "megatron-fsdp", FALSE).pct, 9);
  ck_assert_double_ne (sim_uncertainty_spread (set, "h100-80gb", "megatron-fsdp", FALSE).pct, 9);
  clear (&self);
}
END_TEST

/* Sites differ in their hosts: the factors of one are learned from its own runs alone, those of a
 * site without runs not at all. */
START_TEST (hosts_are_those_of_a_site)
{
  static const struct
  {
    const char *site;
    double factor;
  } sites[] = { { "quick", 0.85 }, { "slow", 1.2 }, { "silent", 1.2 } };
  g_autoptr (GError) error = NULL;
  SimObservation rows[7];
  guint n = 0;
  Runs self;
  set_up (&self);
  for (guint i = 0; i < G_N_ELEMENTS (sites); i++)
    for (guint run = i == 2 ? 4 : 5; run < (i == 2 ? 5 : 8);
         run++) /* the fifth run does not depend on its host */
      {
        g_autofree char *text = g_strdup_printf (
            "parameters truth\nfactor effect=launch value=%g error=0\n", sites[i].factor);
        g_autoptr (SimAdjustments) truth = parse (text);
        rows[n] = self.rows[run];
        rows[n].site = sites[i].site;
        rows[n].step_ns = predict_ns (&rows[n], truth);
        n++;
      }
  const SimCalibration request = { .id = "found", .n_threads = 1 };
  g_autoptr (SimAdjustments) set = sim_calibrate (&request, rows, n, &error);
  ck_assert_msg (set != NULL, "%s", error ? error->message : "");
  for (guint i = 0; i < n; i++)
    ck_assert_msg (ABS (rows[i].after_ns / rows[i].step_ns - 1) < 0.05, "run %u: %g", i,
                   rows[i].after_ns / rows[i].step_ns);
  double launch[4];
  for (guint i = 0; i < 4; i++)
    {
      SimParams params = { .id = "one" };
      params.value[SIM_PARAM_LAUNCH] = 1;
      sim_adjustments_apply (set, "h100-80gb", "megatron-fsdp", i < 3 ? sites[i].site : NULL,
                             &params);
      launch[i] = params.value[SIM_PARAM_LAUNCH];
    }
  ck_assert_double_lt (launch[0], 0.95 * launch[3]);
  ck_assert_double_gt (launch[1], 1.05 * launch[3]);
  ck_assert_double_eq (launch[2], launch[3]);
  clear (&self);
}
END_TEST

START_TEST (nothing_to_fit_is_an_error)
{
  g_autoptr (GError) error = NULL;
  const SimCalibration request = { .id = "none" };
  ck_assert (!sim_calibrate (&request, NULL, 0, &error));
  ck_assert_str_eq (error->message, "no run to fit to");
}
END_TEST

START_TEST (sets_print_as_they_are_read)
{
  const char *text = TRUTH "factor effect=launch site=rack-7 value=1.2 error=0.1\n"
                           "uncertainty gpu=h100-80gb stack=fsdp2 pct=7.5 runs=12 sources=3\n"
                           "uncertainty stack=fsdp2 pct=8 runs=20\n"
                           "uncertainty gpu=h100-80gb models=dense pct=9 runs=30\n"
                           "uncertainty stack=fsdp2 models=experts pct=12 runs=6\n"
                           "uncertainty pct=11 runs=40\n"
                           "seen stack=fsdp2 runs=20 devices=256 modes=cp,tp networks=200,400 "
                           "sources=a,b.c\n"
                           "seen runs=40 devices=512\n"
                           "distance kind=gpu pct=20 runs=40\n"
                           "distance kind=mode pct=12.5 runs=0\n"
                           "memory stack=fsdp2 whole=0.03 passing=0.05 runs=8\n"
                           "memory whole=0.02 passing=0.04 runs=50\n";
  g_autoptr (SimAdjustments) set = parse (text);
  g_autofree char *printed = sim_adjustments_print (set);
  g_autoptr (SimAdjustments) again = parse (printed);
  g_autofree char *twice = sim_adjustments_print (again);
  ck_assert_str_eq (printed, twice);
  ck_assert_uint_eq (again->factors->len, 6);
  ck_assert_double_eq (sim_uncertainty_spread (set, "h100-80gb", "fsdp2", FALSE).pct, 7.5);
  ck_assert_double_eq (sim_uncertainty_spread (set, "a100-80gb", "fsdp2", FALSE).pct, 8);
  ck_assert_double_eq (sim_uncertainty_spread (set, "h100-80gb", "native", FALSE).pct, 9);
  ck_assert_double_eq (sim_uncertainty_spread (set, "h100-80gb", "native", TRUE).pct, 11);
  ck_assert_double_eq (sim_uncertainty_spread (set, "a100-80gb", "fsdp2", TRUE).pct, 12);
  ck_assert_double_eq (sim_uncertainty_spread (set, NULL, NULL, FALSE).pct, 11);
  ck_assert_double_eq (sim_uncertainty_of_memory (set, "fsdp2")->whole, 0.03);
  ck_assert_double_eq (sim_uncertainty_of_memory (set, "native")->passing, 0.04);
}
END_TEST

#define MOST_SOURCES 9
#define RUNS_OF_A_SOURCE 7

/* The variance between sources `first` to `last`, found by trying one value after the other, from
 * their means and the variance of runs about these. */
static double
tried_variance (double miss[][RUNS_OF_A_SOURCE], guint first, guint last)
{
  double mean[MOST_SOURCES + 1] = { 0 }, within = 0, variance = 0, sum;
  const guint n = last - first + 1;
  for (guint s = first; s <= last; s++)
    {
      for (guint i = 0; i < RUNS_OF_A_SOURCE; i++)
        mean[s] += miss[s][i] / RUNS_OF_A_SOURCE;
      for (guint i = 0; i < RUNS_OF_A_SOURCE; i++)
        within += pow (miss[s][i] - mean[s], 2) / (n * (RUNS_OF_A_SOURCE - 1));
    }
  do
    {
      variance += 1e-6;
      sum = 0;
      for (guint s = first; s <= last; s++)
        {
          const double others = s == 0 ? 1 : last - 1;
          sum += mean[s] * mean[s] / (variance * (1 + 1 / others) + within / RUNS_OF_A_SOURCE);
        }
    }
  while (sum > n);
  return variance;
}

/* A run of a source without runs of its own is expected to be as far off as sources were that were
 * left out. The quantiles of Student's t are from a table. Fewer than four sources tell nothing.
 * The first source, which alone has its GPU, counts for models with experts only. */
START_TEST (sources_vary_as_much_as_those_left_out)
{
  static const double quantile[] = { 0, 0, 0, 0, 1.533, 1.476, 1.440, 1.415, 1.397, 1.383, 1.372 };
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const guint last = (guint)g_rand_int_range (rand, 3, MOST_SOURCES);
  const gboolean has_experts = _i % 2;
  SimObservation rows[(MOST_SOURCES + 1) * RUNS_OF_A_SOURCE];
  double miss[MOST_SOURCES + 1][RUNS_OF_A_SOURCE];
  for (guint s = 0; s <= last; s++)
    {
      const double offset = g_rand_double_range (rand, -0.3, 0.3);
      for (guint i = 0; i < RUNS_OF_A_SOURCE; i++)
        {
          miss[s][i] = offset + g_rand_double_range (rand, -0.05, 0.05);
          rows[s * RUNS_OF_A_SOURCE + i]
              = (SimObservation){ .gpu = s == 0 ? "b200" : "h100-80gb",
                                  .stack = "fsdp2",
                                  .step_ns = 1e9,
                                  .after_ns = 1e9,
                                  .without_source_ns = 1e9 * exp (miss[s][i]),
                                  .weight = 1,
                                  .source = s,
                                  .has_experts = has_experts };
        }
    }
  const SimCalibration request = { .id = "sources", .n_sources = last + 1 };
  g_autoptr (SimAdjustments) set = sim_adjustments_new ("sources");
  sim_spreads_add (set, &request, rows, (last + 1) * RUNS_OF_A_SOURCE);
  const SimErrorRange *source = &set->distances[SIM_DISTANCE_SOURCE],
                      *experts = &set->distances[SIM_DISTANCE_EXPERTS];
  const SimErrorRange *found = has_experts ? experts : source,
                      *other = has_experts ? source : experts;
  const guint first = has_experts ? 0 : 1, n = last - first + 1;
  const double pct
      = n < 4 ? 0 : 100 * expm1 (quantile[n] * sqrt (tried_variance (miss, first, last)));
  ck_assert_msg (fabs (found->pct - pct) <= 0.005 * pct, "%.3f, not %.3f", found->pct, pct);
  ck_assert_uint_eq (found->runs, n < 4 ? 0 : n);
  ck_assert_uint_eq (other->runs, 0);
}
END_TEST

#define LEFT_OUT 40

/* The least error that four fifths of those runs, and one more, stay within, or the greatest error;
 * negative where there are fewer than five runs. A NULL pointer means any value, and so does a
 * negative `experts`. */
static double
tried_spread (const SimObservation *rows, const char *gpu, const char *stack, gint experts)
{
  double miss[LEFT_OUT], least = INFINITY, most = -1;
  guint n = 0;
  for (guint i = 0; i < LEFT_OUT; i++)
    if ((!gpu || g_str_equal (rows[i].gpu, gpu)) && (!stack || g_str_equal (rows[i].stack, stack))
        && (experts < 0 || rows[i].has_experts == experts))
      miss[n++] = 100 * fabs (rows[i].without_part_ns / rows[i].step_ns - 1);
  for (guint i = 0; i < n; i++)
    {
      guint within = 0;
      for (guint k = 0; k < n; k++)
        within += miss[k] <= miss[i];
      most = MAX (most, miss[i]);
      if (within >= 0.8 * (n + 1))
        least = MIN (least, miss[i]);
    }
  return n < 5 ? -1 : MIN (least, most);
}

/* Spreads are those of models with experts, or of models without, where there are five such runs,
 * and of all models only where there are too few of both. */
START_TEST (models_with_experts_have_spreads_of_their_own)
{
  static const char *const gpus[] = { "a100-80gb", "h100-80gb", "b200" }, *const stacks[]
                                                                          = { "fsdp1", "fsdp2",
                                                                              "megatron" };
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  SimObservation rows[LEFT_OUT];
  const gint n_gpus = g_rand_int_range (rand, 1, 4), n_stacks = g_rand_int_range (rand, 1, 4);
  const double share = g_rand_double_range (rand, -0.2, 0.7);
  for (guint i = 0; i < LEFT_OUT; i++)
    rows[i] = (SimObservation){ .gpu = gpus[g_rand_int_range (rand, 0, n_gpus)],
                                .stack = stacks[g_rand_int_range (rand, 0, n_stacks)],
                                .step_ns = 1e9,
                                .without_part_ns = 1e9 * g_rand_double_range (rand, 0.7, 1.3),
                                .without_source_ns = 1.2e9,
                                .weight = 1,
                                .source = i,
                                .has_experts = g_rand_double (rand) < share };
  const SimCalibration request = { .id = "spreads", .n_parts = 2 };
  g_autoptr (SimAdjustments) set = sim_adjustments_new ("spreads");
  sim_spreads_add (set, &request, rows, LEFT_OUT);
  ck_assert_uint_eq (set->distances[SIM_DISTANCE_SOURCE].runs,
                     0); /* the distance between sources is not used */
  for (guint k = 0; k < 2 * G_N_ELEMENTS (gpus) * G_N_ELEMENTS (stacks); k++)
    {
      const char *gpu = gpus[k / 2 % 3], *stack = stacks[k / 6],
                 *closer[][2] = { { gpu, stack }, { NULL, stack }, { gpu, NULL }, { NULL, NULL } };
      const gint experts = k % 2;
      double pct = -1;
      for (guint c = 0; c < G_N_ELEMENTS (closer) && pct < 0; c++)
        {
          pct = tried_spread (rows, closer[c][0], closer[c][1], experts);
          if (pct < 0 && tried_spread (rows, closer[c][0], closer[c][1], !experts) < 0)
            pct = tried_spread (rows, closer[c][0], closer[c][1], -1);
        }
      for (guint c = 0; c < G_N_ELEMENTS (closer) && pct < 0; c++)
        pct = tried_spread (rows, closer[c][0], closer[c][1], !experts);
      ck_assert_double_eq_tol (sim_uncertainty_spread (set, gpu, stack, experts).pct, pct, 1e-4);
    }
}
END_TEST

/* Offsets that share a variance count once, however many runs they have: 100 runs of one offset
 * that are 10 % off say no more than 5. Three offsets are too few. */
START_TEST (offsets_count_once)
{
  SimOffset offsets[6] = { 0 };
  const SimObservation one = { .step_ns = 1, .weight = 1 };
  SimErrorRange before = { 0 };
  for (guint i = 0; i < 6; i++)
    {
      for (guint k = 0; k < 5; k++)
        sim_offset_add (&offsets[i], &one, exp (i % 2 ? 0.1 : -0.1), 1);
      const SimErrorRange found = sim_offset_range (offsets, i + 1);
      ck_assert_uint_eq (found.runs, i < 3 ? 0 : i + 1);
      before = found;
    }
  for (guint k = 0; k < 95; k++)
    sim_offset_add (&offsets[0], &one, exp (-0.1), 1);
  ck_assert_double_eq (sim_offset_range (offsets, 6).pct, before.pct);
  ck_assert_double_eq_tol (before.pct, 100 * expm1 (1.440 * 0.1), 0.02);
}
END_TEST

#define SEEN \
  TRUTH "uncertainty pct=6 runs=40 sources=2\n" \
        "uncertainty stack=fsdp2 pct=8 runs=20\n" \
        "uncertainty gpu=a100-80gb stack=fsdp2 pct=8 runs=9 sources=2\n" \
        "seen gpu=a100-80gb runs=9 devices=64\n" \
        "seen gpu=h100-80gb runs=30 devices=256 modes=tp\n" \
        "seen stack=fsdp2 runs=20 devices=256 modes=cp,tp networks=400 " \
        "sources=mine,theirs\n" \
        "seen stack=fsdp1 runs=3 devices=8\n" \
        "distance kind=gpu pct=20 runs=40\n" \
        "distance kind=stack pct=24 runs=40\n" \
        "distance kind=source pct=12.24744871391589 runs=6\n" \
        "distance kind=source_of_experts pct=36.742346141747667 runs=5\n" \
        "distance kind=size pct=3 runs=40\n" \
        "distance kind=exposed pct=10 runs=40\n" \
        "distance kind=network pct=30 runs=0\n" \
        "distance kind=mode pct=12 runs=0\n"

static const char *const tp[] = { "tp", NULL }, *const tp_ep[] = { "tp", "ep", NULL },
                         *const cp[] = { "cp", NULL };

/* What each difference from the runs that were seen adds to the error, computed by hand, and what
 * that difference is called. */
static const struct
{
  SimSubject subject;
  double pct;
  const char *unlike;
} distances[] = {
  { { "h100-80gb", "fsdp2", 64, 0, 400, NULL, NULL, FALSE }, 8, NULL },
  { { "h100-80gb", "fsdp2", 256, 0, 0, tp, NULL, FALSE }, 8, NULL },
  { { "h100-80gb", "fsdp2", 1024, 0, 400, NULL, NULL, FALSE },
    10,
    "so many devices" }, /* two doublings: 8, 6 */
  { { "h100-80gb", "fsdp2", 64, 0, 400, tp_ep, NULL, FALSE },
    14.422205101855956,
    "ep" }, /* 8, 12 */
  { { "h100-80gb", "fsdp2", 64, 0, 400, cp, NULL, FALSE },
    14.422205101855956,
    "cp" },                                                                /* not on that GPU */
  { { "h100-80gb", "fsdp2", 64, 0.6, 400, NULL, NULL, FALSE }, 10, NULL }, /* 8, 6 */
  { { "h100-80gb", "fsdp2", 64, 0.6, 200, NULL, NULL, FALSE },
    20.591260281974002,
    "such a network" },                                                               /* 8, 6, 18 */
  { { "b200", "fsdp2", 64, 0, 400, NULL, NULL, FALSE }, 21.540659228538015, "b200" }, /* 8, 20 */
  { { "h100-80gb", "fsdp1", 8, 0, 0, NULL, NULL, FALSE },
    16.155494421403512,
    "stack=fsdp1" }, /* 6, 24 / sqrt (1 + 3), and what is missing to the 15 of a source */
  { { "h100-80gb", "native", 8, 0, 0, NULL, NULL, FALSE },
    24.738633753705965,
    "stack=native" }, /* 6, 24 */
  { { "a100-80gb", "fsdp2", 64, 0, 400, NULL, "theirs", FALSE }, 8, NULL },
  { { "a100-80gb", "fsdp2", 64, 0, 400, NULL, "theirs-too", FALSE },
    17,
    NULL }, /* 8, sqrt (150) * sqrt (1 + 1 / 2) */
  { { "a100-80gb", "fsdp2", 64, 0, 400, NULL, NULL, FALSE }, 17, NULL },
  { { "a100-80gb", "fsdp2", 64, 0, 400, NULL, NULL, TRUE },
    45.70557952810576,
    NULL }, /* 8, 15 * sqrt (6) * sqrt (1 + 1 / 2) */
  { { "a100-80gb", "fsdp2", 64, 0, 400, NULL, "theirs", TRUE }, 8, NULL },
};

START_TEST (uncertainty_grows_with_distance)
{
  g_autoptr (SimAdjustments) set = parse (SEEN);
  const SimErrorRange error_range = sim_uncertainty_of_time (set, &distances[_i].subject);
  ck_assert_double_eq_tol (error_range.pct, distances[_i].pct, 1e-9);
  ck_assert_uint_gt (error_range.runs, 0);
  g_autofree char *unlike = sim_uncertainty_unlike (set, &distances[_i].subject);
  ck_assert_pstr_eq (unlike, distances[_i].unlike);
}
END_TEST

START_TEST (more_of_anything_is_never_surer)
{
  g_autoptr (SimAdjustments) set = parse (SEEN);
  double last = 0;
  for (gint64 devices = 8; devices <= 1 << 20; devices *= 2)
    for (guint step = 0; step <= 10; step++)
      {
        const SimSubject subject
            = { "h100-80gb", "fsdp2", devices, 0.1 * step, 200, tp, NULL, FALSE };
        const double pct = sim_uncertainty_of_time (set, &subject).pct;
        ck_assert (step == 0 || pct >= last);
        last = pct;
        const SimSubject larger
            = { "h100-80gb", "fsdp2", 2 * devices, 0.1 * step, 200, tp, NULL, FALSE };
        ck_assert_double_ge (sim_uncertainty_of_time (set, &larger).pct, pct);
      }
}
END_TEST

static const struct
{
  const char *text, *message;
} wrong[] = {
  { "", "text: no \"parameters ID\" in it" },
  { "factor effect=launch value=1 error=0",
    "text:1: a set begins with \"parameters ID\", not 'factor effect=launch value=1 error=0'" },
  { "parameters a b", "text:1: a set begins with \"parameters ID\", not 'parameters a b'" },
  { "parameters a/b", "text:1: an id is letters, digits and . _ + -, not 'a/b'" },
  { "parameters a\nfacter",
    "text:2: neither factor, uncertainty, seen, distance nor memory: 'facter'" },
  { "parameters a\nfactor value=1 error=0", "text:2: no 'effect'" },
  { "parameters a\nfactor effect=lunch value=1 error=0",
    "text:2: no effect is called 'lunch': did you mean 'launch'?" },
  { "parameters a\nfactor effect=launch error=0", "text:2: no 'value'" },
  { "parameters a\nfactor effect=launch value=x error=0",
    "text:2: value=x is no number from 0.02 to 20" },
  { "parameters a\nfactor effect=launch value=nan error=0",
    "text:2: value=nan is no number from 0.02 to 20" },
  { "parameters a\nfactor effect=launch value=30 error=0",
    "text:2: value=30 is no number from 0.02 to 20" },
  { "parameters a\nfactor effect=launch value=1 error=-1",
    "text:2: error=-1 is no number from 0 to 100" },
  { "parameters a\nfactor effect=launch value=1 error=0 cpu=x", "text:2: unknown key 'cpu'" },
  { "parameters a\nfactor effect=launch effect=launch", "text:2: given twice: 'effect'" },
  { "parameters a\nfactor effect", "text:2: not KEY=VALUE: 'effect'" },
  { "parameters a\n\n# words\nuncertainty pct=5", "text:4: no 'runs'" },
  { "parameters a\nuncertainty models=expert pct=5 runs=1",
    "text:2: no models is called 'expert': did you mean 'experts'?" },
  { "parameters a\nfactor effect=launch models=dense value=1 error=0",
    "text:2: unknown key 'models'" },
  { "parameters a\ndistance kind=moon pct=5 runs=1",
    "text:2: no kind is called 'moon': did you mean 'mode'?" },
  { "parameters a\ndistance kind=gpu pct=nan runs=1",
    "text:2: pct=nan is no number from 0 to 1000" },
  { "parameters a\nmemory whole=0.1 runs=1", "text:2: no 'passing'" },
  { "parameters a\nseen runs=1", "text:2: no 'devices'" },
};

START_TEST (wrong_sets_are_refused)
{
  g_autoptr (GError) error = NULL;
  ck_assert (!sim_adjustments_parse (wrong[_i].text, "text", &error));
  ck_assert_str_eq (error->message, wrong[_i].message);
  ck_assert (g_error_matches (error, PLAN_ERROR, PLAN_ERROR_INVALID));
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("calibrate");
  TCase *tcase = tcase_create ("calibrate");
  tcase_set_timeout (tcase, 300);
  tcase_add_test (tcase, finds_what_made_the_runs);
  tcase_add_test (tcase, finds_what_is_kept_of_timed_rates);
  tcase_add_loop_test (tcase, simulates_all_stages_of_a_pipeline, 0, 2);
  tcase_add_test (tcase, is_not_led_by_one_run);
  tcase_add_test (tcase, own_runs_do_not_spoil_others);
  tcase_add_test (tcase, hosts_are_those_of_a_site);
  tcase_add_test (tcase, nothing_to_fit_is_an_error);
  tcase_add_test (tcase, sets_print_as_they_are_read);
  tcase_add_loop_test (tcase, sources_vary_as_much_as_those_left_out, 0, 20);
  tcase_add_loop_test (tcase, models_with_experts_have_spreads_of_their_own, 0, 40);
  tcase_add_test (tcase, offsets_count_once);
  tcase_add_loop_test (tcase, uncertainty_grows_with_distance, 0, G_N_ELEMENTS (distances));
  tcase_add_test (tcase, more_of_anything_is_never_surer);
  tcase_add_loop_test (tcase, wrong_sets_are_refused, 0, G_N_ELEMENTS (wrong));
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
