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

/* Without a pipeline each forward pass runs beside the backward pass of the micro batch before.
 * Where weights are sharded the first and the last pass, which run alone, send rows likewise. */
START_TEST (passes_are_combined_layer_by_layer)
{
  static const char *const dispatchers[] = { "alltoall", "deepep", "hybridep" };
  static const char *const stacks[]
      = { "stack=megatron strategy=optim", "stack=megatron-fsdp strategy=optim_grads",
          "stack=megatron-fsdp strategy=optim", "stack=megatron-fsdp strategy=optim_grads_params" };
  const gboolean is_on = _i & 1, delays = _i & 2;
  const gint64 micro_batches = 1 + _i % 7;
  g_autoptr (PlanCluster) cluster = plan_cluster_new ("dgx-h100:1", NULL);
  g_autofree char *spec = g_strdup_printf ("qwen3-30b-a3b,layers=%d,dense_layers=%d,mtp=%d",
                                           3 + _i % 2, _i % 5 == 4, _i % 11 == 10);
  g_autofree char *words = g_strdup_printf (
      "gbs=%d mbs=1 seq=256 %s ep=4 etp=%d moe_dispatcher=%s ep_overlap=%s ep_delay_wgrad=%s "
      "grad_accum_fusion=%s",
      (int)(8 * micro_batches), stacks[_i / 4 % 4], _i % 3 == 0 && _i % 4 < 2 ? 2 : 1,
      dispatchers[_i % 3], is_on ? "on" : "off", is_on && delays ? "on" : "off",
      _i & 4 ? "on" : "off");
  g_autoptr (PlanModel) model = plan_model_new (spec, NULL);
  g_autoptr (PlanCase) of = test_case (model, cluster, words);
  const PlanStage all = plan_stage_of (model, of->stack, &of->plan, 0);
  g_autofree char *kinds = kinds_of (model, &all, 0);
  GString *expected = g_string_new (NULL);
  for (gint64 m = 0; m < micro_batches; m++)
    {
      const gboolean sharded = is_on && plan_shards_weights (&of->plan);
      if (sharded && m == 0)
        append_pair (expected, kinds, "", delays);
      else if (!is_on || m == 0)
        append_pass (expected, kinds, FALSE);
      if (is_on && m + 1 < micro_batches)
        append_pair (expected, kinds, kinds, delays);
      else if (sharded)
        append_pair (expected, "", kinds, delays);
      else
        append_pass (expected, kinds, TRUE);
    }
  compare (of, 0, expected);
  g_string_free (expected, TRUE);
}
END_TEST

/* What Megatron-FSDP does with the weights of layers where ep_overlap is on, written down from its
 * source (AllGatherPipeline of param_and_grad_buffer.py, the hooks of megatron_fsdp.py, and where
 * model_chunk_schedule_plan.py calls modules) as a list of buckets: two outside the layers, which
 * stay, then of each layer that of experts behind that of all else. */
#define MOST_LAYERS 8
#define MOST_BUCKETS (2 + 2 * MOST_LAYERS)
typedef struct
{
  gint64 layers;
  gboolean is_dense[MOST_LAYERS]; /* its bucket of experts is empty */
  gint64 size[MOST_BUCKETS];
  gint64 prefetch; /* suggested_AG_prefetch_size */
  gboolean shards_experts;
  gboolean is_ready[MOST_BUCKETS], can_be_released[MOST_BUCKETS];
  gboolean is_pre_backward[MOST_LAYERS]; /* else its modules are idle, or in a forward pass */
  gint64 backward_passes;                /* that are over in this step */
  guint first_gathers;                   /* before the first of them was */
  GString *text;
} Hooks;

static void
say (Hooks *self, char what, gint64 bucket)
{
  const gboolean is_experts = bucket % 2 == 1;
  if (bucket >= 2 && !(is_experts && (!self->shards_experts || self->is_dense[bucket / 2 - 1])))
    {
      g_string_append_printf (self->text, "%c%c%d", what, is_experts ? 'x' : 'm',
                              (int)(bucket / 2 - 1));
      self->first_gathers += what == '+' && self->backward_passes == 0;
    }
}

static void
release (Hooks *self, gint64 bucket)
{
  if (self->is_ready[bucket])
    say (self, '-', bucket);
  self->is_ready[bucket] = FALSE;
}

static void
async_bucket_gather (Hooks *self, gint64 bucket)
{
  self->can_be_released[bucket] = FALSE;
  self->is_ready[bucket] = TRUE;
  for (gint64 b = 2; b < 2 + 2 * self->layers; b++)
    {
      if (self->can_be_released[b])
        release (self, b);
      self->can_be_released[b] = FALSE;
    }
  say (self, '+', bucket);
}

/* all_gather_params: the bucket, and those next to it in the order of the pass. */
static void
all_gather_params (Hooks *self, gint64 bucket, gboolean prefetches, gboolean is_backward)
{
  const gint64 n = 2 + 2 * self->layers;
  gint64 low = bucket, high = bucket, more = 0;
  gboolean wanted[MOST_BUCKETS] = { FALSE };
  self->can_be_released[bucket] = FALSE;
  while (prefetches && more < self->prefetch && (is_backward ? low > 0 : high + 1 < n))
    more += self->size[is_backward ? --low : ++high];
  for (gint64 b = low; b <= high; b++)
    wanted[b] = !self->is_ready[b];
  for (gint64 b = low; b <= high; b++)
    if (wanted[b])
      async_bucket_gather (self, b);
}

/* The hooks before a module of a layer: of its experts, or of what else it has. */
static void
pre_forward (Hooks *self, gint64 layer, gboolean is_experts)
{
  all_gather_params (self, 2 + 2 * layer + is_experts, !self->is_pre_backward[layer], FALSE);
}

static void
pre_backward (Hooks *self, gint64 layer, gboolean is_experts)
{
  self->is_pre_backward[layer] = TRUE;
  all_gather_params (self, 2 + 2 * layer + is_experts, TRUE, TRUE);
}

static void
post_forward (Hooks *self, gint64 layer)
{
  for (gint64 b = 2 + 2 * layer; b < 4 + 2 * layer; b++)
    if (self->is_pre_backward[layer])
      self->can_be_released[b] |= self->is_ready[b];
    else
      release (self, b);
}

static void
post_backward (Hooks *self, gint64 layer)
{
  for (gint64 b = 2 + 2 * layer; b < 4 + 2 * layer; b++)
    release (self, b);
  self->is_pre_backward[layer] = FALSE;
}

/* A forward pass, a backward pass, or both beside each other. */
static void
run_layers (Hooks *self, gboolean is_ahead, gboolean is_back)
{
  for (gint64 i = 0; i < self->layers && is_back; i++)
    self->is_pre_backward[i] = TRUE;
  for (gint64 b = 2; b < 2 + 2 * self->layers && is_back; b++)
    self->can_be_released[b] = TRUE;
  for (gint64 i = 0; i < self->layers; i++)
    {
      const gint64 back = self->layers - 1 - i;
      if (is_ahead)
        {
          pre_forward (self, i, FALSE);
          g_string_append (self->text, "A");
        }
      if (is_back)
        {
          pre_backward (self, back, !self->is_dense[back]);
          g_string_append (self->text, self->is_dense[back] ? "" : "e");
        }
      if (is_ahead)
        {
          pre_forward (self, i, !self->is_dense[i]);
          g_string_append (self->text, self->is_dense[i] ? "" : "E");
          post_forward (self, i);
        }
      if (is_back)
        {
          pre_backward (self, back, FALSE);
          g_string_append (self->text, "a");
          post_backward (self, back);
        }
    }
  self->backward_passes += is_back;
}

/* The gathers and releases of layers' weights in a section, as Hooks writes them, among the letters
 * of attention and experts. */
static char *
gathers_of (const PlanSchedule *schedule, PlanSection section, guint *out_outer)
{
  GString *text = g_string_new (NULL);
  PlanCursor cursor;
  plan_cursor_start (&cursor, schedule, section);
  *out_outer = 0;
  for (const PlanOp *op; (op = plan_cursor_next (&cursor));)
    {
      const char *name = op->refs[0].array < 0 || plan_op_n_refs (op->kind) == 0
                             ? ""
                             : plan_schedule_buffer (schedule, (guint)op->refs[0].array)->name;
      const gboolean is_of_layer = g_str_equal (name, "weights.layer")
                                   || g_str_equal (name, "weights.dense")
                                   || g_str_equal (name, "weights.experts");
      const gboolean gathers = op->kind == PLAN_OP_ALL_GATHER && op->stream == PLAN_STREAM_GATHER;
      if (is_of_layer && (gathers || op->kind == PLAN_OP_FREE))
        g_string_append_printf (text, "%c%c%d", gathers ? '+' : '-',
                                g_str_equal (name, "weights.experts") ? 'x' : 'm',
                                (int)MAX (plan_cursor_unit (&cursor, op), 0));
      else if (op->stream == PLAN_STREAM_OUTER_GATHER && op->kind == PLAN_OP_ALL_GATHER)
        *out_outer += !g_str_equal (name, "shard.embed") && !g_str_equal (name, "shard.head");
      else if (op->kind == PLAN_OP_ATTENTION || op->kind == PLAN_OP_ATTENTION_BWD)
        g_string_append_c (text, op->kind == PLAN_OP_ATTENTION ? 'A' : 'a');
      else if (op->kind == PLAN_OP_EXPERT_ACTIVATE || op->kind == PLAN_OP_EXPERT_ACTIVATE_BWD)
        g_string_append_c (text, op->kind == PLAN_OP_EXPERT_ACTIVATE ? 'E' : 'e');
    }
  return g_string_free (text, FALSE);
}

static void
init_hooks (Hooks *self, const PlanCase *of, const char *setup)
{
  const PlanBucket *b = of->layout.buckets;
  const gint64 unit = plan_layout_comm_unit (&of->layout, of->stack, &of->plan);
  *self = (Hooks){ .layers = of->model->layers, .prefetch = unit / 2, .text = g_string_new (NULL) };
  self->shards_experts
      = of->plan.value[PLAN_EP] * of->plan.value[PLAN_ETP] < 8 / of->plan.value[PLAN_DP_OUTER];
  self->size[0] = (gint64)b[PLAN_BUCKET_EMBEDDING].padded;
  self->size[1] = (gint64)b[PLAN_BUCKET_HEAD].padded;
  self->is_ready[0] = self->is_ready[1] = TRUE;
  for (gint64 i = 0; i < self->layers; i++)
    {
      self->is_dense[i] = i < of->model->dense_layers;
      self->size[2 + 2 * i]
          = (gint64)b[self->is_dense[i] ? PLAN_BUCKET_DENSE : PLAN_BUCKET_LAYER].padded;
      self->size[3 + 2 * i] = self->is_dense[i] ? 0 : (gint64)b[PLAN_BUCKET_EXPERTS].padded;
    }
  for (const char *at = setup; *at; at += 3) /* what the last step has gathered */
    self->is_ready[2 + 2 * (at[2] - '0') + (at[1] == 'x')] = TRUE;
  for (gint64 i = 0; i < self->layers && setup[0]; i++) /* without buckets of their own, too */
    if (self->is_ready[2 + 2 * i])
      self->is_ready[3 + 2 * i] = TRUE;
}

/* Sharded weights are gathered and released as Megatron-FSDP's hooks do it. */
START_TEST (weights_are_gathered_by_module)
{
  static const char *const units[] = { "",
                                       "comm_unit=1",
                                       "comm_unit=38000000",
                                       "comm_unit=39000000",
                                       "comm_unit=300000000",
                                       "comm_unit=345000000",
                                       "comm_unit=700000000",
                                       "comm_unit=5000000000" };
  static const char *const more[] = { "ep=4",
                                      "ep=4 ep_delay_wgrad=on",
                                      "ep=8",
                                      "ep=4 compute=fp8-tensorwise",
                                      "ep=2 dp_outer=2 outer_strategy=optim per_token_loss=on",
                                      "ep=4 recompute=selective recompute_modules=layernorm",
                                      "ep=2 etp=2" };
  const gint64 micro_batches = 1 + _i % 6, layers = 1 + _i % 7;
  guint outer, before;
  Hooks hooks;
  g_autoptr (PlanCluster) cluster = plan_cluster_new ("dgx-h100:1", NULL);
  g_autofree char *spec
      = g_strdup_printf ("qwen3-30b-a3b,layers=%d,dense_layers=%d,tied=%s", (int)layers,
                         _i % 5 == 4 ? (int)MIN (layers - 1, 2) : 0, _i % 9 == 8 ? "on" : "off");
  g_autofree char *words
      = g_strdup_printf ("gbs=%d mbs=1 seq=256 strategy=optim_grads_params ep_overlap=on %s %s",
                         (int)(8 * micro_batches), units[_i / 3 % 8], more[_i % 7]);
  g_autoptr (PlanModel) model = plan_model_new (spec, NULL);
  g_autoptr (PlanCase) of = test_case (model, cluster, words);
  g_autoptr (PlanSchedule) schedule = test_lower (of, 0);
  g_autofree char *setup = gathers_of (schedule, PLAN_SECTION_SETUP, &before);
  g_autofree char *found = gathers_of (schedule, PLAN_SECTION_STEP, &outer);
  init_hooks (&hooks, of, setup);
  run_layers (&hooks, TRUE, FALSE);
  for (gint64 m = 1; m < micro_batches; m++)
    run_layers (&hooks, TRUE, TRUE);
  run_layers (&hooks, FALSE, TRUE);
  g_string_append (hooks.text, setup);
  ck_assert_msg (g_str_equal (found, hooks.text->str), "%s of %s:\n%s\n%s", words, spec, found,
                 hooks.text->str);
  ck_assert_uint_eq (outer, of->plan.value[PLAN_OUTER_STRATEGY] == PLAN_OUTER_STRATEGY_OPTIM
                                ? hooks.first_gathers + before
                                : 0);
  g_string_free (hooks.text, TRUE);
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
      = { "stack=megatron strategy=optim",
          "stack=megatron-fsdp strategy=optim",
          "stack=megatron-fsdp strategy=optim_grads",
          "stack=megatron-fsdp strategy=optim_grads dp_outer=2",
          "stack=megatron-fsdp strategy=no_shard",
          "stack=megatron-fsdp strategy=optim_grads_params",
          "stack=megatron-fsdp strategy=optim_grads_params dp_outer=2" };
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
          plans[_i % 7], is_on ? "on" : "off", is_on && _i % 2 ? "on" : "off");
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
  tcase_add_loop_test (tcase, weights_are_gathered_by_module, 0, 336);
  tcase_add_loop_test (tcase, gradients_are_reduced_as_without_overlap, 0, 60);
  test_add_share (tcase, turns_are_combined_layer_by_layer, 80);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
