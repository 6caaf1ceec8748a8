/* SPDX-License-Identifier: Apache-2.0 */
/* Step times that the authors of Megatron-FSDP logged (Megatron-LM PRs #3067 and #4133, named as in
 * the memory tests) against predictions: by the default parameters, which rest on published
 * figures, and by the shipped ones, which were fitted to A2, A11 and D2 among others. Nothing was
 * solved for to meet these rows; but what issuing an op costs the host was chosen knowing how long
 * A11 and D2 take. */
#include "config.h"

#include "sim/cost/adjust.h"
#include "sim/sim.h"
#include "tests/case.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>

#define LLAMA "family=llama,head_dim=128,kv_heads=8,vocab=128384,max_seq=8192,rope_theta=500000,"
#define LLAMA_8B LLAMA "layers=32,hidden=4096,ffn=14336,heads=32"
#define LLAMA_70B LLAMA "layers=80,hidden=8192,ffn=28672,heads=64"
#define FP8 \
  "stack=megatron-fsdp@2026-03-02 gbs=128 compute=fp8-delayed param_gather=fp8 empty_cache=on " \
  "per_token_loss=off " /* so NCCL averages, for which its log shows rings in fp32 */
#define UB "grad_comm=bf16 nccl_ub=on "
#define HFSDP "dp_outer=2 outer_strategy=optim "
#define NARROW "precision_aware=on main_grads=bf16 grad_comm=bf16 "

typedef enum
{
  A2,
  A3,
  A4,
  A5,
  A6,
  A11,
  A12,
  A13,
  D1,
  D2,
  N_ROWS
} Row;

/* A1 and A10 are A2 and A11 before a change that does not show here. A7 and A8 gathered fp8 weights
 * under strategy=optim, which the rules refuse; A9 and A14 are no measurements of a steady step. */
static const struct
{
  const char *name, *model, *cluster, *fields;
  double step_ms;
} rows[N_ROWS] = {
  [A2] = { "A2", LLAMA_8B, "dgx-h100:1", FP8 "seq=8192", 10893.1 },
  [A3] = { "A3", LLAMA_8B, "dgx-h100:1", FP8 UB "seq=8192", 10424.1 },
  [A4] = { "A4", LLAMA_70B, "dgx-h100:8", FP8 "nccl_ub=on seq=1024", 3300.5 },
  [A5] = { "A5", LLAMA_70B, "dgx-h100:8", FP8 UB "seq=1024", 2559.1 },
  [A6] = { "A6", LLAMA_8B, "dgx-h100:4", FP8 UB HFSDP "seq=8192", 2845.5 },
  [A11] = { "A11", LLAMA_8B, "dgx-h100:1", FP8 HFSDP "seq=1024", 3779.1 },
  [A12] = { "A12", LLAMA_8B, "dgx-h100:1", FP8 HFSDP "nccl_ub=on seq=1024", 3685.9 },
  [A13] = { "A13", LLAMA_8B, "dgx-h100:1", FP8 HFSDP UB "seq=1024", 3482.6 },
  [D1] = { "D1", LLAMA_8B, "dgx-h100:1",
           FP8 HFSDP NARROW "seq=1024 stack=megatron-fsdp@2026-04-10 per_token_loss=on", 3263.1 },
  [D2]
  = { "D2", LLAMA_8B, "dgx-h100:1",
      FP8 HFSDP NARROW "seq=1024 fused_masters=on stack=megatron-fsdp@2026-04-03 per_token_loss=on",
      3149.4 },
};

/* The shipped parameters (db/data/adjustments.txt) for the device, stack and source of a row. */
static SimParams
fitted_params (Row row, const PlanCluster *cluster, const PlanStack *stack)
{
  static SimAdjustments *set = NULL; /* lives as long as the parameters that name it */
  g_autoptr (GError) error = NULL;
  if (!set)
    {
      g_autofree char *path
          = g_build_filename (g_getenv ("top_srcdir"), "db", "data", "adjustments.txt", NULL);
      g_autofree char *text = NULL;
      ck_assert (g_file_get_contents (path, &text, NULL, NULL));
      set = sim_adjustments_parse (text, path, &error);
      ck_assert_msg (set != NULL, "%s", error ? error->message : "");
    }
  SimParams params = *sim_params_default (cluster);
  sim_adjustments_apply (set, cluster->device_name, stack->name,
                         row < D1 ? "NVIDIA-Megatron-LM-PR-3067" : "NVIDIA-Megatron-LM-PR-4133",
                         &params);
  return params;
}

static double
predict_ms (Row row, gboolean is_fitted)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanModel) model = plan_model_new (rows[row].model, &error);
  g_autoptr (PlanCluster) cluster = plan_cluster_new (rows[row].cluster, &error);
  ck_assert_msg (model && cluster, "%s: %s", rows[row].name, error ? error->message : "");
  cluster->nvls = PLAN_ANSWER_NO; /* as NCCL's log in PR #3067 shows: AllGather_ST */
  g_autoptr (PlanCase) of = test_case (model, cluster, rows[row].fields);
  g_autoptr (PlanSchedule) schedule = test_lower (of, 0);
  const SimParams params
      = is_fitted ? fitted_params (row, cluster, of->stack) : *sim_params_default (cluster);
  SimCostInput input = sim_cost_input (of, schedule);
  input.params = &params;
  g_autoptr (SimCost) cost = sim_cost_new (&input, &error);
  g_autoptr (PlanTrace) trace = cost ? sim_run (schedule, cost, of->stack, &error) : NULL;
  ck_assert_msg (trace != NULL, "%s", error ? error->message : "");
  return 1e-6 * (double)trace->step_ns;
}

START_TEST (steps_take_about_what_was_logged)
{
  const double predicted = predict_ms ((Row)_i, FALSE);
  const double ratio = predicted / rows[_i].step_ms;
  g_print ("# %s: %.1f ms predicted, %.1f measured, %+.1f %%\n", rows[_i].name, predicted,
           rows[_i].step_ms, 100 * (ratio - 1));
  ck_assert_msg (ratio > 0.9 && ratio < 1.1, "%s: %.1f ms, not %.1f", rows[_i].name, predicted,
                 rows[_i].step_ms);
}
END_TEST

/* What one change does to the step: how far a prediction may be off, as a share of the logged
 * change, before any fit and by the shipped parameters. */
static const struct
{
  Row from, to;
  double off[2];
} changes[] = {
  { A2, A3, { 0.333, 0.333 } }, /* bf16 reductions from registered, double buffers */
  { A4, A5, { 0.333, 0.333 } }, /* bf16 reductions where the network is the limit */
  { A3, A6, { 0.1, 0.1 } },     /* four times the nodes */
  { A11,
    A12,
    { 0.333, 0.333 } }, /* registered, double buffers, where the host limits the forward pass */
  { A11,
    A13,
    { 0.5, 0.333 } }, /* with bf16 reductions too; the host is slower there than the default */
  { A12, A13, { 0.6, 0.333 } },
};

START_TEST (changes_go_the_right_way)
{
  const Row from = changes[_i / 2].from, to = changes[_i / 2].to;
  const guint is_fitted = _i % 2;
  const double predicted = predict_ms (to, is_fitted) / predict_ms (from, is_fitted) - 1;
  const double measured = rows[to].step_ms / rows[from].step_ms - 1;
  g_print ("# %s to %s: %+.1f %% predicted %s, %+.1f %% measured\n", rows[from].name, rows[to].name,
           100 * predicted, is_fitted ? "as fitted" : "before any fit", 100 * measured);
  ck_assert_msg (fabs (predicted / measured - 1) < changes[_i / 2].off[is_fitted],
                 "%s to %s: %.1f %%, not %.1f %%", rows[from].name, rows[to].name, 100 * predicted,
                 100 * measured);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("published");
  TCase *tcase = tcase_create ("published");
  tcase_set_timeout (tcase, 120);
  tcase_add_loop_test (tcase, steps_take_about_what_was_logged, 0, N_ROWS);
  tcase_add_loop_test (tcase, changes_go_the_right_way, 0, 2 * G_N_ELEMENTS (changes));
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
