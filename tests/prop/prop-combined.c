/* SPDX-License-Identifier: Apache-2.0 */
/* ep_overlap: the order of ops where a forward pass runs beside a backward pass, layer by layer.
 * The order of passes is written down apart from planner/plan/stages.c, from Megatron-LM's
 * schedules.py. */
#include "config.h"

#include "planner/plan/stages.h"
#include "tests/prop/pipelines.h"
#include "tests/share.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* The ops of a step's layers in their order, as letters: A attention, E activation of experts, X
 * rows sent while compute waits, S rows sent beside compute, w gradients of experts' weights; a and
 * e are the backward passes of A and E. */
static char *
letters_of (const PlanSchedule *schedule, gint64 row_elements)
{
  GString *text = g_string_new (NULL);
  PlanCursor cursor;
  plan_cursor_start (&cursor, schedule, PLAN_SECTION_STEP);
  for (const PlanOp *op; (op = plan_cursor_next (&cursor));)
    {
      const gboolean is_product
          = op->kind == PLAN_OP_GROUPED_GEMM || op->kind == PLAN_OP_GROUPED_GEMM_ADD;
      const gboolean sends = (op->kind == PLAN_OP_ALL_TO_ALL && op->dims[0] == row_elements)
                             || op->kind == PLAN_OP_SEND_TOKENS;
      if (op->kind == PLAN_OP_ATTENTION || op->kind == PLAN_OP_ATTENTION_BWD)
        g_string_append_c (text, op->kind == PLAN_OP_ATTENTION ? 'A' : 'a');
      else if (op->kind == PLAN_OP_EXPERT_ACTIVATE || op->kind == PLAN_OP_EXPERT_ACTIVATE_BWD)
        g_string_append_c (text, op->kind == PLAN_OP_EXPERT_ACTIVATE ? 'E' : 'e');
      else if (is_product && (op->kind == PLAN_OP_GROUPED_GEMM_ADD || op->dims[3] == 2))
        g_string_append_c (text, 'w');
      else if (sends)
        g_string_append_c (text, op->stream == PLAN_STREAM_EXPERTS ? 'S' : 'X');
    }
  return g_string_free (text, FALSE);
}

/* The layers of a virtual stage, by letter: e with experts, d without. */
static char *
kinds_of (const PlanModel *model, const PlanStage *stage, gint64 number)
{
  GString *kinds = g_string_new (NULL);
  const PlanStage here = plan_stage_virtual (stage, number);
  for (gint64 i = here.first; i < here.first + here.layers; i++)
    g_string_append_c (kinds, plan_stage_layer (stage, i) < model->dense_layers ? 'd' : 'e');
  return g_string_free (kinds, FALSE);
}

/* Appends a pass by itself. */
static void
append_pass (GString *text, const char *kinds, gboolean is_backward)
{
  const size_t n = strlen (kinds);
  for (size_t i = 0; i < n; i++)
    {
      const gboolean has_experts = kinds[is_backward ? n - 1 - i : i] == 'e';
      const char *forward = has_experts ? "AXEX" : "A";
      const char *backward = has_experts ? "XwewXa" : "a";
      g_string_append (text, is_backward ? backward : forward);
    }
}

/* Appends a forward pass beside a backward pass. In the order of their ops: gradients of rows are
 * sent to experts, attention, experts backwards, rows are sent to experts, gradients of rows come
 * back, experts, rows come back, attention backwards. Layers without experts have attention alone,
 * and of the longer pass the last layers are by themselves. */
static void
append_pair (GString *text, const char *forward, const char *backward, gboolean delays)
{
  const size_t n = strlen (forward), n_back = strlen (backward);
  for (size_t i = 0; i < MAX (n, n_back); i++)
    {
      const gboolean ahead = i < n, sends = ahead && forward[i] == 'e';
      const gboolean behind = i < n_back, back = behind && backward[n_back - 1 - i] == 'e';
      const char *const of_experts = delays ? "e" : "wew";
      g_string_append_printf (text, "%s%s%s%s%s%s%s%s%s", back ? "S" : "", ahead ? "A" : "",
                              back ? of_experts : "", sends ? "S" : "", back && delays ? "ww" : "",
                              back ? "S" : "", sends ? "E" : "", sends ? "S" : "",
                              behind ? "a" : "");
    }
}

static void
compare (const PlanCase *of, guint rank, const GString *expected)
{
  g_autoptr (PlanSchedule) schedule = test_lower (of, rank);
  g_autoptr (GError) error = NULL;
  g_autofree char *letters = letters_of (schedule, of->graphs.sizes.sent_rows * of->model->hidden
                                                       / of->plan.value[PLAN_EP]);
  g_autofree char *plan = plan_print (&of->plan);
  ck_assert_msg (strcmp (letters, expected->str) == 0, "rank %u of %s\n%s\n%s", rank, plan, letters,
                 expected->str);
  ck_assert_msg (plan_schedule_check (schedule, &error), "%s", error ? error->message : "");
}

/* Without a pipeline each forward pass runs beside the backward pass of the micro batch before. */
START_TEST (passes_are_combined_layer_by_layer)
{
  static const char *const dispatchers[] = { "alltoall", "deepep", "hybridep" };
  static const char *const stacks[]
      = { "stack=megatron strategy=optim", "stack=megatron-fsdp strategy=optim_grads",
          "stack=megatron-fsdp strategy=optim" };
  const gboolean is_on = _i & 1, delays = _i & 2;
  const gint64 micro_batches = 1 + _i % 7;
  g_autoptr (PlanCluster) cluster = plan_cluster_new ("dgx-h100:1", NULL);
  g_autofree char *spec = g_strdup_printf ("qwen3-30b-a3b,layers=%d,dense_layers=%d,mtp=%d",
                                           3 + _i % 2, _i % 5 == 4, _i % 11 == 10);
  g_autofree char *words = g_strdup_printf (
      "gbs=%d mbs=1 seq=256 %s ep=4 moe_dispatcher=%s ep_overlap=%s ep_delay_wgrad=%s "
      "grad_accum_fusion=%s",
      (int)(8 * micro_batches), stacks[_i / 4 % 3], dispatchers[_i % 3], is_on ? "on" : "off",
      is_on && delays ? "on" : "off", _i & 4 ? "on" : "off");
  g_autoptr (PlanModel) model = plan_model_new (spec, NULL);
  g_autoptr (PlanCase) of = test_case (model, cluster, words);
  const PlanStage all = plan_stage_of (model, of->stack, &of->plan, 0);
  g_autofree char *kinds = kinds_of (model, &all, 0);
  GString *expected = g_string_new (NULL);
  for (gint64 m = 0; m < micro_batches; m++)
    {
      if (!is_on || m == 0)
        append_pass (expected, kinds, FALSE);
      if (is_on && m + 1 < micro_batches)
        append_pair (expected, kinds, kinds, delays);
      else
        append_pass (expected, kinds, TRUE);
    }
  compare (of, 0, expected);
  g_string_free (expected, TRUE);
}
END_TEST

/* Elements that an op of the stream of reductions moves in a step, and how often. */
static void
count_reductions (const PlanSchedule *schedule, gint64 *out_elements, guint *out_times)
{
  PlanCursor cursor;
  *out_elements = 0;
  *out_times = 0;
  plan_cursor_start (&cursor, schedule, PLAN_SECTION_STEP);
  for (const PlanOp *op; (op = plan_cursor_next (&cursor));)
    if (op->stream == PLAN_STREAM_REDUCE && op->group >= 0)
      {
        *out_elements += op->dims[0];
        *out_times += 1;
      }
}

/* Gradients that are sharded are reduced in every micro batch, as without the overlap. */
START_TEST (gradients_are_reduced_as_without_overlap)
{
  static const char *const plans[]
      = { "stack=megatron strategy=optim", "stack=megatron-fsdp strategy=optim",
          "stack=megatron-fsdp strategy=optim_grads",
          "stack=megatron-fsdp strategy=optim_grads dp_outer=2",
          "stack=megatron-fsdp strategy=no_shard" };
  g_autoptr (PlanCluster) cluster = plan_cluster_new ("dgx-h100:1", NULL);
  g_autofree char *spec
      = g_strdup_printf ("qwen3-30b-a3b,layers=%d,dense_layers=%d", 3 + _i % 4, _i % 3);
  g_autoptr (PlanModel) model = plan_model_new (spec, NULL);
  gint64 elements[2];
  guint times[2];
  for (guint is_on = 0; is_on < 2; is_on++)
    {
      g_autofree char *words = g_strdup_printf (
          "gbs=%d mbs=1 seq=256 %s ep=4 ep_overlap=%s ep_delay_wgrad=%s", 8 * (1 + _i % 5),
          plans[_i % 5], is_on ? "on" : "off", is_on && _i % 2 ? "on" : "off");
      g_autoptr (PlanCase) of = test_case (model, cluster, words);
      g_autoptr (PlanSchedule) schedule = test_lower (of, 0);
      count_reductions (schedule, &elements[is_on], &times[is_on]);
    }
  ck_assert_int_gt (elements[0], 0);
  ck_assert_int_eq (elements[0], elements[1]);
  ck_assert_uint_eq (times[0], times[1]);
}
END_TEST

/* In an interleaved pipeline it is the passes of a turn. Every stage does one forward pass more
 * before its turns than without ep_overlap. */
START_TEST (turns_are_combined_layer_by_layer)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gint64 stages = 2 << g_rand_int_range (rand, 0, 2),
               n_virtual = g_rand_int_range (rand, 2, 4);
  const gint64 m = stages * g_rand_int_range (rand, 1, 5), group = stages;
  const guint n = (guint)(stages * n_virtual);
  const gboolean delays = g_rand_boolean (rand);
  static const char *const overlaps[] = { "on", "off", "warmup_flush" };
  gint64 layers[MOST_STAGES] = { 0 }, all = 0;
  for (guint i = 0; i < n; i++)
    all += layers[i] = g_rand_int_range (rand, 1, 4);
  const gint64 modules = g_rand_int_range (rand, 0, 2);
  if (modules > 0 && g_rand_boolean (rand)) /* a prediction module by itself */
    {
      all -= layers[n - 1];
      layers[n - 1] = 0;
    }
  g_autofree char *layout = pipeline_layout_text (layers, n, modules, rand);
  g_autofree char *spec = g_strdup_printf ("qwen3-30b-a3b,layers=%d,dense_layers=%d,mtp=%d",
                                           (int)all, g_rand_int_range (rand, 0, 3), (int)modules);
  g_autofree char *words = g_strdup_printf (
      "gbs=%d mbs=1 seq=256 stack=megatron strategy=optim ep=4 ep_overlap=on ep_delay_wgrad=%s "
      "pp=%d vpp=%d pp_overlap=%s pp_layout=%s",
      (int)(32 / stages * m), delays ? "on" : "off", (int)stages, (int)n_virtual,
      overlaps[stages > 2 ? g_rand_int_range (rand, 0, 3) : 0], layout);
  g_autoptr (PlanCluster) cluster = plan_cluster_new ("dgx-h100:4", NULL);
  g_autoptr (PlanModel) model = plan_model_new (spec, NULL);
  g_autoptr (PlanCase) of = test_case (model, cluster, words);
  Pass forward[MOST_PASSES], backward[MOST_PASSES];
  const guint passes = pipeline_passes (m, group, n_virtual, FALSE, forward);
  pipeline_passes (m, group, n_virtual, TRUE, backward);
  for (gint64 r = 0; r < stages; r++)
    {
      const PlanStage stage = plan_stage_of (model, of->stack, &of->plan, r);
      const guint ahead
          = (guint)MIN (2 * (stages - 1 - r) + (n_virtual - 1) * group + 1, (gint64)passes);
      GString *expected = g_string_new (NULL);
      for (guint i = 0; i < ahead + passes; i++)
        {
          g_autofree char *there
              = i < passes ? kinds_of (model, &stage, forward[i].virtual_stage) : NULL;
          g_autofree char *back
              = i >= ahead ? kinds_of (model, &stage, backward[i - ahead].virtual_stage) : NULL;
          if (there && back)
            append_pair (expected, there, back, delays);
          else
            append_pass (expected, there ? there : back, back != NULL);
        }
      compare (of, (guint)(r * 32 / stages), expected);
      g_string_free (expected, TRUE);
    }
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("prop-combined");
  TCase *tcase = tcase_create ("order");
  tcase_set_timeout (tcase, 600);
  tcase_add_loop_test (tcase, passes_are_combined_layer_by_layer, 0, 42);
  tcase_add_loop_test (tcase, gradients_are_reduced_as_without_overlap, 0, 60);
  test_add_share (tcase, turns_are_combined_layer_by_layer, 80);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
