/* SPDX-License-Identifier: Apache-2.0 */
/* A command line that emit writes for Megatron-LM reads back as the plan it was written from. A
 * plan that cannot be written is refused, with all the reasons at once. */
#include "config.h"

#include "planner/base/error.h"
#include "planner/emit/emit.h"
#include "planner/megatron/megatron.h"
#include "tests/case.h"
#include "tests/prop/pipelines.h"
#include "tests/prop/random.h"
#include "tests/share.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* What a field must be where the message names it. */
static const struct
{
  PlanField field;
  gint64 value;
} remedies[] = {
  { PLAN_STACK, PLAN_STACK_MEGATRON_FSDP },
  { PLAN_REDUCE_ALGO, PLAN_REDUCE_ALGO_RS },
  { PLAN_OVERLAP_GRAD_REDUCE, PLAN_OVERLAP_GRAD_REDUCE_ON },
  { PLAN_OVERLAP_PARAM_GATHER, PLAN_OVERLAP_PARAM_GATHER_ON },
  { PLAN_NAN_CHECK, PLAN_NAN_CHECK_OFF },
  { PLAN_SYNC_EVERY_MICRO_BATCH, PLAN_SYNC_EVERY_MICRO_BATCH_OFF },
  { PLAN_GRAD_SYNC, PLAN_GRAD_SYNC_EVERY },
  { PLAN_ADAM_FOREACH, PLAN_ADAM_FOREACH_OFF },
  { PLAN_DETERMINISTIC, PLAN_DETERMINISTIC_OFF },
  { PLAN_EMPTY_CACHE, PLAN_EMPTY_CACHE_OFF },
  { PLAN_TP_OVERLAP, PLAN_TP_OVERLAP_NONE },
  { PLAN_OFFLOAD_LAYERS, 0 },
  { PLAN_TASK, PLAN_TASK_TRAIN },
  { PLAN_COMPILE, PLAN_COMPILE_OFF },
  { PLAN_MAIN_PARAMS, PLAN_MAIN_PARAMS_FP32 },
  { PLAN_MAIN_GRADS, PLAN_MAIN_GRADS_FP32 },
  { PLAN_DP_OUTER, 1 },
  { PLAN_PRECISION_AWARE, PLAN_PRECISION_AWARE_OFF },
  { PLAN_KEEP_TRANSPOSE, PLAN_KEEP_TRANSPOSE_OFF },
};

/* A model of Megatron-LM's own kind with the same dimensions. */
static PlanModel *
plainer (const PlanModel *model)
{
  g_autofree char *spec = g_strdup_printf (
      "layers=%d,hidden=%d,ffn=%d,heads=%d,kv_heads=%d,head_dim=%d,vocab=%d,max_seq=%d",
      (int)model->layers, (int)model->hidden, (int)model->ffn, (int)model->heads,
      (int)model->kv_heads, (int)model->head_dim, (int)model->vocab, (int)model->max_seq);
  PlanModel *plain = plan_model_new (spec, NULL);
  ck_assert (plain != NULL);
  return plain;
}

/* Follows every reason of a message: "FIELD=VALUE: ...", "FIELD: ..." or "model KEY: ...". */
static void
follow (const char *message, Plan *plan, PlanModel **model)
{
  const char *const reasons = strstr (message, "express this plan: ");
  ck_assert_msg (reasons != NULL, "%s", message);
  g_auto (GStrv) parts = g_strsplit (reasons + strlen ("express this plan: "), "; ", -1);
  for (char **part = parts; *part; part++)
    {
      g_autofree char *word = g_strndup (*part, strcspn (*part, "=: "));
      if (strcmp (word, "model") == 0)
        {
          PlanModel *const plain = plainer (*model);
          plan_model_free (*model);
          *model = plain;
        }
      for (guint i = 0; i < G_N_ELEMENTS (remedies); i++)
        if (strcmp (plan_field_name (remedies[i].field), word) == 0)
          plan->value[remedies[i].field] = remedies[i].value;
    }
  if (plan->value[PLAN_STACK] % PLAN_STACK_BASE == PLAN_STACK_MEGATRON)
    {
      plan->value[PLAN_GRAD_COMM] = plan->value[PLAN_MAIN_GRADS];
      plan->value[PLAN_OVERLAP_GRAD_REDUCE] = PLAN_OVERLAP_GRAD_REDUCE_ON;
      if (plan->value[PLAN_MAIN_GRADS] == PLAN_MAIN_GRADS_FP32)
        plan->value[PLAN_REDUCE_ALGO] = PLAN_REDUCE_ALGO_RS;
    }
  plan->value[PLAN_FUSED_MASTERS] = PLAN_FUSED_MASTERS_OFF; /* of older stacks */
}

static char *
print_difference (const Plan *a, const Plan *b)
{
  g_autofree char *x = plan_print (a), *y = plan_print (b);
  return g_strdup_printf ("written:\n%s\nread:\n%s", x, y);
}

static void
assert_reads_back (guint seed, const char *text, const PlanEmitSubject *subject)
{
  g_auto (PlanMegatron) read = { 0 };
  g_autoptr (GError) error = NULL;
  const Plan *plan = &subject->of->plan;
  ck_assert_msg (plan_megatron_parse (text, "emitted", 0, &read, &error), "seed %u: %s\n%s", seed,
                 error ? error->message : "", text);
  for (guint i = 0; i < read.notes->len; i++)
    {
      const PlanMegatronNote *note = g_ptr_array_index (read.notes, i);
      ck_assert_msg (note->severity != PLAN_MEGATRON_ERROR
                         && !strstr (note->text, "is not a flag known here")
                         && !strstr (note->text, "cannot be known"),
                     "seed %u: %s: %s\n%s", seed, note->flag, note->text, text);
    }
  g_autofree char *other = plan_megatron_shape_compare (&read.shape, subject->of->model, &error);
  ck_assert_msg (!other && !error, "seed %u: %s%s\n%s", seed, other ? other : "",
                 error ? error->message : "", text);
  ck_assert_int_eq (read.devices, plan_cluster_devices (subject->of->cluster));
  g_autoptr (PlanModel) model = plan_megatron_model (&read, &error);
  ck_assert_msg (model != NULL, "seed %u: %s", seed, error ? error->message : "");
  read.plan.value[PLAN_DOC_TOKENS] = plan->value[PLAN_DOC_TOKENS]; /* which no flag says */
  g_autoptr (PlanCase) of = plan_case_new (model, subject->of->cluster, &read.plan, NULL, &error);
  ck_assert_msg (of != NULL, "seed %u: %s\n%s", seed, error ? error->message : "", text);
  g_autofree char *difference = print_difference (plan, &of->plan);
  ck_assert_msg (memcmp (&of->plan, plan, sizeof *plan) == 0, "seed %u: %s\n%s", seed, difference,
                 text);
}

/* Writes a random plan in every form that planner/megatron reads, and reads it back. If emit
 * refuses the plan, it is first changed as the reasons ask for, which may also change `model`. */
static void
check_written (guint seed, PlanModel **model)
{
  static const PlanEmitKind kinds[] = { PLAN_EMIT_MEGATRON, PLAN_EMIT_TORCHRUN, PLAN_EMIT_SLURM };
  g_autoptr (PlanCluster) cluster = random_gpu_cluster (seed);
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanCase) random = random_wide_case (seed, *model, cluster);
  g_autoptr (PlanCase) followed = NULL;
  PlanEmitSubject subject = { .of = random };
  g_autofree char *first
      = plan_emit (PLAN_EMIT_MEGATRON, PLAN_EMIT_RUNTIME_OF_STACK, &subject, &error);
  if (error)
    {
      Plan asked = random->plan;
      ck_assert (g_error_matches (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED));
      follow (error->message, &asked, model);
      subject.of = followed = plan_case_new (*model, cluster, &asked, NULL, NULL);
      if (!followed) /* a newer stack forbids more */
        return;
    }
  for (guint i = 0; i < G_N_ELEMENTS (kinds); i++)
    {
      g_autoptr (GError) again = NULL;
      g_autofree char *text = plan_emit (kinds[i], PLAN_EMIT_RUNTIME_OF_STACK, &subject, &again);
      ck_assert_msg (text != NULL, "seed %u: %s; then %s", seed, error ? error->message : "",
                     again ? again->message : "");
      assert_reads_back (seed, text, &subject);
    }
}

START_TEST (what_is_written_reads_back)
{
  g_autoptr (PlanModel) model = random_wide_model ((guint)_i);
  check_written ((guint)_i, &model);
}
END_TEST

/* A dense model with properties that Megatron-LM has flags for. */
static PlanModel *
random_megatron_model (guint seed)
{
  static const char *const norms[] = { "norm=rmsnorm", "norm=rmsnorm,qk_norm=on,norm_1p=on",
                                       "qk_l2_norm=all", "norm=layernorm,norm_bias=on" };
  static const char *const mlps[] = {
    "activation=silu,gated=on",
    "activation=quick_gelu,gated=on",
    "activation=relu2,gated=off",
    "activation=gelu,gated=off,qkv_bias=on",
    "activation=gelu,gated=off,qkv_bias=on,proj_bias=on,mlp_bias=on",
    "activation=gelu_tanh,gated=off,qkv_bias=on,proj_bias=on,mlp_bias=on",
  };
  static const char *const positions[]
      = { "positions=rope,rope_theta=500000",
          "positions=rope,rope_fraction=0.25",
          "positions=learned",
          "positions=none",
          "nope_every=3",
          "nope_every=1",
          "nope_every=2,rope_scaling=yarn,rope_factor=4,rope_original=96",
          "rope_scaling=llama3,rope_factor=32,rope_original=8192",
          "rope_scaling=yarn,rope_factor=4,rope_original=96,rope_mscale=0.7,rope_mscale_all=0.3" };
  g_autoptr (GRand) rand = g_rand_new_with_seed (seed + 5);
  g_autoptr (GError) error = NULL;
  const gint32 layers = g_rand_int_range (rand, 1, 12);
  const gint32 kv_heads = 1 << g_rand_int_range (rand, 1, 3);
  g_autofree char *window
      = g_rand_boolean (rand)
            ? g_strdup ("window=0")
            : g_strdup_printf ("window=%d,window_from=%d,window_every=%d",
                               g_rand_int_range (rand, 1, 300), g_rand_int_range (rand, 0, layers),
                               g_rand_int_range (rand, 1, 5));
  g_autofree char *spec = g_strdup_printf (
      "layers=%d,hidden=256,ffn=512,heads=%d,kv_heads=%d,head_dim=64,vocab=%d,max_seq=%d,"
      "norm_eps=%s,tied=%s,%s,%s,%s,%s",
      layers, kv_heads << g_rand_int_range (rand, 0, 3), kv_heads,
      g_rand_int_range (rand, 100, 2000), 128 * g_rand_int_range (rand, 2, 5),
      g_rand_boolean (rand) ? "1e-06" : "1e-05", g_rand_boolean (rand) ? "on" : "off",
      norms[g_rand_int_range (rand, 0, G_N_ELEMENTS (norms))],
      mlps[g_rand_int_range (rand, 0, G_N_ELEMENTS (mlps))],
      positions[g_rand_int_range (rand, 0, G_N_ELEMENTS (positions))], window);
  PlanModel *model = plan_model_new (spec, &error);
  ck_assert_msg (model != NULL, "seed %u: %s: %s", seed, spec, error ? error->message : "");
  return model;
}

START_TEST (every_flag_of_a_model_reads_back)
{
  g_autoptr (PlanModel) model = random_megatron_model ((guint)_i);
  const PlanModel *const before = model;
  check_written ((guint)_i, &model);
  ck_assert_msg (model == before, "seed %d: the model was refused", _i);
}
END_TEST

static const char *
one_of (GRand *rand, const char *const *words)
{
  return words[g_rand_int_range (rand, 0, (gint32)g_strv_length ((char **)words))];
}

/* Experts, routers and latent attention that Megatron-LM has flags for. */
static PlanModel *
random_experts (GRand *rand)
{
  static const char *const attentions[]
      = { "kv_heads=4",
          "kv_heads=8,q_lora=48,kv_lora=32,nope_dim=16,rope_dim=8,v_dim=24,head_dim=24",
          "kv_heads=8,q_lora=0,kv_lora=16,nope_dim=8,rope_dim=8,v_dim=16,head_dim=16",
          "kv_heads=2,head_dim=32,qk_norm=on",
          "kv_heads=4,nope_every=2,qk_l2_norm=all",
          "kv_heads=2,head_dim=32,qk_norm=on,attn_gate=on,attn_every=3,delta_key_heads=4,"
          "delta_value_heads=8,delta_key_dim=16,delta_value_dim=24,delta_conv=3",
          "kv_heads=4,positions=none,activation=relu2,gated=off,ssm_heads=8,ssm_head_dim=16,"
          "ssm_groups=4,ssm_state=32,ssm_conv=4,pattern=",
          NULL };
  static const char *const routers[] = { "router_scale=1",
                                         "pre_softmax=on,router_scale=0.5",
                                         "router_score=sigmoid,router_bias=on,router_scale=2.5",
                                         "router_score=sqrtsoftplus",
                                         "router_groups=4,router_group_topk=2",
                                         "router_score=sigmoid,scores_on_input=on",
                                         NULL };
  static const char *const shared[]
      = { "shared_ffn=0", "shared_ffn=64", "shared_ffn=64,shared_gate=on", "mtp=1", NULL };
  static const char *const biases[]
      = { "tied=off", "qkv_bias=on,proj_bias=on,mlp_bias=on,expert_bias=on", NULL };
  const char *const attention = one_of (rand, attentions);
  const char *const router = one_of (rand, routers);
  const gboolean has_one = strstr (router, "on_input") != NULL;
  const gboolean has_pattern = g_str_has_suffix (attention, "pattern=");
  const char *const bias
      = strstr (attention, "lora") || strstr (attention, "delta") || has_one || has_pattern
            ? biases[0]
            : one_of (rand, biases);
  const gint32 every = has_pattern ? 1 : g_rand_int_range (rand, 1, 4);
  const gint32 layers = every * g_rand_int_range (rand, 1, 4) + g_rand_int_range (rand, 0, every)
                        + (has_pattern ? 1 : 0);
  const gint32 blocks = has_pattern ? 0 : g_rand_int_range (rand, 0, layers / every);
  g_autoptr (GString) letters = g_string_new (has_pattern ? "ME" : "");
  for (gint32 i = 2; has_pattern && i < layers; i++)
    g_string_append_c (letters, "M*-E"[g_rand_int_range (rand, 0, 4)]);
  g_autofree char *spec = g_strdup_printf (
      "layers=%d,hidden=128,ffn=256,heads=8,vocab=512,max_seq=256,experts=8,topk=%d,expert_ffn=64,"
      "dense_layers=%d,moe_every=%d,%s%s,%s,%s,%s",
      layers, has_one ? 1 : g_rand_int_range (rand, 2, 5), every == 1 ? blocks : every * blocks,
      every, attention, letters->str, router,
      strstr (bias, "qkv")               ? shared[0]
      : strstr (attention, "nope_every") ? shared[1]
      : has_pattern                      ? shared[g_rand_int_range (rand, 0, 3)]
                                         : one_of (rand, shared),
      bias);
  g_autoptr (GError) error = NULL;
  PlanModel *model = plan_model_new (spec, &error);
  ck_assert_msg (model != NULL, "%s: %s", spec, error ? error->message : "");
  return model;
}

/* Plans of experts, which not every version resolves. */
START_TEST (experts_read_back)
{
  static const char *const fields[]
      = { "moe_dispatcher", "moe_grouped_gemm",   "moe_permute_fusion", "moe_router_fusion",
          "router_dtype",   "moe_shared_overlap", "ep_overlap" };
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  g_autoptr (PlanModel) model = random_experts (rand);
  g_autoptr (PlanCluster) cluster = plan_cluster_new ("dgx-h100:2", NULL);
  g_autoptr (GError) error = NULL;
  g_auto (PlanMegatron) read = { 0 };
  Plan plan;
  plan_init (&plan);
  plan.value[PLAN_GBS] = 64;
  plan.value[PLAN_MBS] = 1;
  plan.value[PLAN_SEQ] = 256;
  plan.value[PLAN_EP] = 1 << g_rand_int_range (rand, 0, 3);
  plan.value[PLAN_TP] = 1 << g_rand_int_range (rand, 0, 2);
  plan.value[PLAN_ETP] = 1 << g_rand_int_range (rand, 0, 2);
  plan.value[PLAN_SP] = plan.value[PLAN_TP] > 1 ? PLAN_SP_ON : PLAN_UNSET;
  for (guint i = 0; i < G_N_ELEMENTS (fields); i++)
    {
      PlanField field;
      ck_assert (plan_field_parse (fields[i], &field, NULL));
      ck_assert (plan_set (&plan, fields[i], one_of (rand, plan_field_names (field)), NULL));
    }
  if (g_rand_boolean (rand))
    {
      plan.value[PLAN_MOE_CAPACITY] = 250000 * g_rand_int_range (rand, 1, 9);
      plan.value[PLAN_MOE_PAD_TO_CAPACITY] = g_rand_int_range (rand, 0, 2);
      plan.value[PLAN_MOE_DROP] = g_rand_int_range (rand, 0, 2);
    }
  plan.value[PLAN_EP_DELAY_WGRAD]
      = plan.value[PLAN_EP_OVERLAP] ? g_rand_int_range (rand, 0, 2) : PLAN_EP_DELAY_WGRAD_OFF;
  /* This is no plan_case_new, since rules of the modelled version may refuse the plan. */
  const PlanCase of = { .model = model,
                        .cluster = cluster,
                        .plan = plan,
                        .stack = plan_stack_of (&plan, cluster->kind, NULL) };
  const PlanEmitSubject subject = { .of = &of };
  g_autofree char *text
      = plan_emit (PLAN_EMIT_TORCHRUN, PLAN_EMIT_RUNTIME_OF_STACK, &subject, &error);
  ck_assert_msg (text != NULL, "seed %d: %s", _i, error ? error->message : "");
  ck_assert_msg (plan_megatron_parse (text, "emitted", 0, &read, &error), "seed %d: %s\n%s", _i,
                 error ? error->message : "", text);
  g_autofree char *difference = print_difference (&plan, &read.plan);
  ck_assert_msg (memcmp (&read.plan, &plan, sizeof plan) == 0, "seed %d: %s\n%s", _i, difference,
                 text);
  g_autofree char *other = plan_megatron_shape_compare (&read.shape, model, &error);
  ck_assert_msg (!other && !error, "seed %d: %s%s\n%s", _i, other ? other : "",
                 error ? error->message : "", text);
}
END_TEST

/* A pipeline's flags, with the layout of its stages. */
START_TEST (pipelines_read_back)
{
  g_auto (Pipeline) p = { 0 };
  pipeline_init (&p, (guint)_i, _i % 2);
  const PlanEmitSubject subject = { .of = p.of };
  g_autoptr (GError) error = NULL;
  g_autofree char *text
      = plan_emit (PLAN_EMIT_TORCHRUN, PLAN_EMIT_RUNTIME_OF_STACK, &subject, &error);
  if (p.of->plan.value[PLAN_STACK] == PLAN_STACK_MEGATRON
      && !strstr (error ? error->message : "", "model "))
    ck_assert_msg (text != NULL, "seed %d: %s", _i, error->message);
  if (text && p.of->stack->id == PLAN_STACK_MEGATRON)
    assert_reads_back ((guint)_i, text, &subject);
}
END_TEST

/* The text form, too. */
START_TEST (plans_read_back)
{
  const guint seed = (guint)_i;
  g_autoptr (PlanModel) model = random_wide_model (seed);
  g_autoptr (PlanCluster) cluster = random_gpu_cluster (seed);
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanCase) of = random_wide_case (seed, model, cluster);
  const PlanEmitSubject subject = { .of = of };
  g_autofree char *text = plan_emit (PLAN_EMIT_PLAN, PLAN_EMIT_RUNTIME_OF_STACK, &subject, &error);
  ck_assert (text != NULL);
  const char *const line = strstr (text, "model=");
  const char *const end = strchr (line, '\n');
  g_autofree char *spec = g_strndup (line + strlen ("model="), (gsize)(end - line) - 6);
  g_autoptr (PlanModel) again = plan_model_new (spec, &error);
  Plan read;
  ck_assert (again && plan_parse (end + 1, "emitted", &read, &error));
  ck_assert (memcmp (&read, &of->plan, sizeof read) == 0);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("prop-emit");
  TCase *tcase = tcase_create ("random plans");
  test_add_share (tcase, what_is_written_reads_back, 1000);
  test_add_share (tcase, every_flag_of_a_model_reads_back, 600);
  test_add_share (tcase, experts_read_back, 400);
  test_add_share (tcase, pipelines_read_back, 200);
  test_add_share (tcase, plans_read_back, 200);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
