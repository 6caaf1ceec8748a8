/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/prop/random.h"

static gint64
one_of (GRand *rand, const gint64 *values, guint n)
{
  return values[g_rand_int_range (rand, 0, (gint32)n)];
}

#define ONE_OF(rand, ...) \
  one_of (rand, (const gint64[]){ __VA_ARGS__ }, G_N_ELEMENTS (((const gint64[]){ __VA_ARGS__ })))

/* Layers by a pattern: the first are of each letter, so that experts are among them. */
static PlanModel *
random_pattern_model (GRand *rand)
{
  g_autoptr (GError) error = NULL;
  const gint32 layers = g_rand_int_range (rand, 4, 12);
  const int groups = (int)ONE_OF (rand, 2, 4);
  g_autoptr (GString) spec = g_string_new ("family=nemotron_h,pattern=ME*");
  for (gint32 i = 3; i < layers; i++)
    g_string_append_c (spec, "ME*-"[g_rand_int_range (rand, 0, 4)]);
  g_string_append_printf (
      spec,
      ",layers=%d,hidden=%d,ffn=%d,heads=8,kv_heads=%d,head_dim=64,vocab=%d,max_seq=512,"
      "experts=%d,topk=%d,expert_ffn=%d,shared_ffn=%d,router_score=sigmoid,router_bias=%s,"
      "ssm_heads=%d,ssm_head_dim=%d,ssm_groups=%d,ssm_state=%d,expert_hidden=%d",
      layers, 128 * g_rand_int_range (rand, 1, 4), 128 * g_rand_int_range (rand, 1, 5),
      (int)ONE_OF (rand, 2, 4, 8), g_rand_int_range (rand, 100, 2000),
      8 * g_rand_int_range (rand, 1, 4), g_rand_int_range (rand, 1, 5),
      64 * g_rand_int_range (rand, 1, 5), (int)ONE_OF (rand, 0, 128),
      g_rand_boolean (rand) ? "on" : "off", 64 * groups, (int)ONE_OF (rand, 32, 64), groups,
      (int)ONE_OF (rand, 16, 64), (int)ONE_OF (rand, 0, 64, 256));
  PlanModel *model = plan_model_new (spec->str, &error);
  if (!model)
    g_error ("%s: %s", spec->str, error->message);
  return model;
}

PlanModel *
random_expert_model (guint seed)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (seed + 5);
  if (seed % 10 == 6)
    return random_pattern_model (rand);
  const gboolean is_latent = seed % 2;
  const gboolean is_delta = seed % 12 == 0;
  const gint64 every = g_rand_int_range (rand, 1, 4) == 3 && !is_delta ? 2 : 1;
  const gboolean is_gpt_oss = seed % 6 == 4, is_llama4 = seed % 8 == 2 && !is_gpt_oss;
  const gint32 layers = g_rand_int_range (rand, 2, 9);
  const gint64 mtp
      = seed % 4 < 2 && !is_gpt_oss && (is_latent || every == 1) && !(is_delta && layers % 3 != 0)
            ? 1
            : 0;
  g_autoptr (GError) error = NULL;
  g_autofree char *common = g_strdup_printf (
      "layers=%d,hidden=%d,ffn=%d,heads=8,vocab=%d,max_seq=512,experts=%d,topk=%d,"
      "expert_ffn=%d,dense_layers=%d,mtp=%d",
      layers, 128 * g_rand_int_range (rand, 1, 4), 128 * g_rand_int_range (rand, 1, 5),
      g_rand_int_range (rand, 100, 2000), 8 * g_rand_int_range (rand, 1, 4),
      is_llama4 ? 1 : g_rand_int_range (rand, 2, 5), 64 * g_rand_int_range (rand, 1, 5),
      is_delta ? 0 : g_rand_int_range (rand, 0, layers - 1), (int)mtp);
  char *spec
      = is_latent
            ? g_strdup_printf ("family=deepseek_v3,%s,kv_heads=8,head_dim=96,q_lora=%d,"
                               "kv_lora=64,nope_dim=64,rope_dim=32,v_dim=%d,shared_ffn=%d",
                               common, (int)ONE_OF (rand, 0, 96, 128), (int)ONE_OF (rand, 64, 96),
                               (int)ONE_OF (rand, 0, 128, 256))
            : g_strdup_printf ("family=%s,%s,kv_heads=%d,head_dim=64,moe_every=%d%s",
                               is_gpt_oss ? "gpt_oss" : "qwen3_moe", common,
                               (int)ONE_OF (rand, 2, 4, 8), (int)every,
                               !is_gpt_oss && seed % 8 < 4 ? ",shared_ffn=128,shared_gate=on" : "");
  if (is_llama4)
    {
      const int nope = (int)ONE_OF (rand, 2, 3, 4);
      g_free (spec);
      spec = g_strdup_printf ("family=llama4_text,%s,kv_heads=%d,head_dim=64,moe_every=%d,"
                              "shared_ffn=%d,window=%d,full_every=%d,nope_every=%d,qk_l2_norm=%s",
                              common, (int)ONE_OF (rand, 2, 4, 8), (int)every,
                              (int)ONE_OF (rand, 0, 128), (int)ONE_OF (rand, 50, 128, 500), nope,
                              nope, seed % 16 == 2 ? "rope" : "off");
    }
  if (is_delta)
    {
      g_free (spec);
      spec = g_strdup_printf (
          "family=qwen3_next,%s,kv_heads=%d,head_dim=64,shared_ffn=128,attn_every=3,attn_gate=%s,"
          "delta_key_heads=4,delta_value_heads=%d,delta_key_dim=%d,delta_value_dim=%d,delta_conv=3",
          common, (int)ONE_OF (rand, 2, 4, 8), seed % 24 == 0 ? "on" : "off",
          (int)ONE_OF (rand, 4, 8, 16), (int)ONE_OF (rand, 32, 64), (int)ONE_OF (rand, 32, 64));
    }
  PlanModel *model = plan_model_new (spec, &error);
  if (!model)
    g_error ("%s: %s", spec, error->message);
  g_free (spec);
  return model;
}

static void
random_formats (GRand *rand, Plan *plan)
{
  plan->value[PLAN_COMPUTE]
      = ONE_OF (rand, PLAN_COMPUTE_BF16, PLAN_COMPUTE_BF16, PLAN_COMPUTE_FP8_TENSORWISE,
                PLAN_COMPUTE_FP8_BLOCKWISE, PLAN_COMPUTE_MXFP8, PLAN_COMPUTE_MXFP8);
  if (plan->value[PLAN_COMPUTE] == PLAN_COMPUTE_MXFP8)
    plan->value[PLAN_PARAM_GATHER] = ONE_OF (rand, PLAN_PARAM_GATHER_COMPUTE,
                                             PLAN_PARAM_GATHER_MXFP8, PLAN_PARAM_GATHER_MXFP8);
  else if (plan->value[PLAN_COMPUTE] != PLAN_COMPUTE_BF16 && g_rand_boolean (rand))
    plan->value[PLAN_PARAM_GATHER] = PLAN_PARAM_GATHER_FP8;
}

static void
random_settings (GRand *rand, Plan *plan, const PlanModel *model, gint64 devices)
{
  static const PlanField switches[]
      = { PLAN_GRAD_ACCUM_FUSION, PLAN_AG_GROUP,      PLAN_CE_FUSION, PLAN_OVERLAP_GRAD_REDUCE,
          PLAN_MOE_ROUTER_FUSION, PLAN_DOUBLE_BUFFER, PLAN_NCCL_UB };
  static const char *const stacks[] = { "megatron-fsdp", "megatron" };
  static const gint64 modules[]
      = { PLAN_RECOMPUTE_MODULES_CORE_ATTN,   PLAN_RECOMPUTE_MODULES_MOE,
          PLAN_RECOMPUTE_MODULES_MOE_ACT,     PLAN_RECOMPUTE_MODULES_SHARED_EXPERTS,
          PLAN_RECOMPUTE_MODULES_MLA_UP_PROJ, PLAN_RECOMPUTE_MODULES_LAYERNORM };
  plan_init (plan);
  plan_set (plan, "stack", stacks[g_rand_int_range (rand, 0, 2)], NULL);
  plan->value[PLAN_STRATEGY] = g_rand_int_range (rand, 0, 4);
  plan->value[PLAN_EP] = ONE_OF (rand, 1, 2, 4, 8);
  plan->value[PLAN_MOE_DISPATCHER] = ONE_OF (
      rand, PLAN_MOE_DISPATCHER_ALLTOALL, PLAN_MOE_DISPATCHER_ALLTOALL,
      PLAN_MOE_DISPATCHER_ALLGATHER, PLAN_MOE_DISPATCHER_DEEPEP, PLAN_MOE_DISPATCHER_HYBRIDEP);
  plan->value[PLAN_TP] = ONE_OF (rand, 1, 1, 2);
  plan->value[PLAN_ETP] = ONE_OF (rand, 1, 1, 2, 4);
  plan->value[PLAN_CP] = model->kv_lora > 0 ? 1 : ONE_OF (rand, 1, 1, 2);
  plan->value[PLAN_DP_OUTER] = ONE_OF (rand, 1, 1, 2);
  plan->value[PLAN_ROUTER_DTYPE] = g_rand_int_range (rand, 0, 2);
  plan->value[PLAN_MAIN_GRADS] = ONE_OF (rand, PLAN_MAIN_GRADS_FP32, PLAN_MAIN_GRADS_BF16);
  plan->value[PLAN_RECOMPUTE] = g_rand_int_range (rand, 0, 3);
  if (plan->value[PLAN_RECOMPUTE] == PLAN_RECOMPUTE_SELECTIVE)
    plan->value[PLAN_RECOMPUTE_MODULES]
        = 1 << modules[g_rand_int_range (rand, 0, G_N_ELEMENTS (modules))];
  if (plan->value[PLAN_RECOMPUTE] == PLAN_RECOMPUTE_FULL)
    plan->value[PLAN_RECOMPUTE_LAYERS] = g_rand_int_range (rand, 1, (gint32)model->layers + 1);
  for (guint i = 0; i < G_N_ELEMENTS (switches); i++)
    if (g_rand_int_range (rand, 0, 3) == 0)
      plan->value[switches[i]] = g_rand_int_range (rand, 0, 2);
  if (g_rand_boolean (rand))
    plan->value[PLAN_COMM_UNIT] = 1 + g_rand_int_range (rand, 0, 40) * 100000;
  if (g_rand_int_range (rand, 0, 4) == 0)
    plan->value[PLAN_MOE_IMBALANCE] = ONE_OF (rand, 1250000, 3000000);
  if (g_rand_int_range (rand, 0, 4) == 0)
    {
      plan->value[PLAN_EP_OVERLAP] = PLAN_EP_OVERLAP_ON;
      plan->value[PLAN_EP_DELAY_WGRAD] = g_rand_int_range (rand, 0, 2);
    }
  if (g_rand_int_range (rand, 0, 4) == 0)
    {
      plan->value[PLAN_MOE_CAPACITY] = ONE_OF (rand, 700000, 1000000, 1250000, 2000000);
      plan->value[PLAN_MOE_PAD_TO_CAPACITY] = g_rand_int_range (rand, 0, 2);
      plan->value[PLAN_MOE_DROP] = g_rand_int_range (rand, 0, 2);
    }
  plan->value[PLAN_MBS] = g_rand_int_range (rand, 1, 3);
  plan->value[PLAN_SEQ] = 128 * g_rand_int_range (rand, 1, 3);
  plan->value[PLAN_GBS] = plan->value[PLAN_MBS] * devices * g_rand_int_range (rand, 1, 4);
  random_formats (rand, plan);
  if (g_rand_int_range (rand, 0, 3) == 0)
    plan->value[PLAN_MOE_PERMUTE_FUSION] = PLAN_MOE_PERMUTE_FUSION_OFF;
  if (g_rand_int_range (rand, 0, 3) == 0)
    plan->value[PLAN_MOE_GROUPED_GEMM] = PLAN_MOE_GROUPED_GEMM_OFF;
  if (model->shared_ffn > 0)
    plan->value[PLAN_MOE_SHARED_OVERLAP] = g_rand_int_range (rand, 0, 2);
  if (plan->value[PLAN_TP] > 1 && g_rand_boolean (rand))
    plan->value[PLAN_TP_OVERLAP] = PLAN_TP_OVERLAP_UB;
}

/* Settings of fsdp2, which has few of those above. */
static void
random_torch_settings (GRand *rand, Plan *plan, gint64 devices)
{
  static const char *const states[]
      = { "fsdp2",           "fsdp2", "fsdp2@2026-04-10", "fsdp2@2026-03-01", "fsdp2@2025-08-30",
          "fsdp2@2025-08-20" };
  plan_init (plan);
  plan_set (plan, "stack", states[g_rand_int_range (rand, 0, G_N_ELEMENTS (states))], NULL);
  plan->value[PLAN_STRATEGY]
      = ONE_OF (rand, PLAN_STRATEGY_OPTIM_GRADS, PLAN_STRATEGY_OPTIM_GRADS_PARAMS);
  plan->value[PLAN_EP] = ONE_OF (rand, 1, 2, 4, 8);
  plan->value[PLAN_MOE_DISPATCHER] = ONE_OF (
      rand, PLAN_MOE_DISPATCHER_ALLTOALL, PLAN_MOE_DISPATCHER_DEEPEP, PLAN_MOE_DISPATCHER_HYBRIDEP);
  plan->value[PLAN_TP] = ONE_OF (rand, 1, 2, 2);
  plan->value[PLAN_CP] = ONE_OF (rand, 1, 1, 2);
  plan->value[PLAN_DP_OUTER] = ONE_OF (rand, 1, 1, 2);
  plan->value[PLAN_RECOMPUTE] = g_rand_int_range (rand, 0, 3);
  if (plan->value[PLAN_RECOMPUTE] == PLAN_RECOMPUTE_SELECTIVE)
    plan->value[PLAN_RECOMPUTE_MODULES] = 1 << PLAN_RECOMPUTE_MODULES_OP_SAC;
  plan->value[PLAN_COMPILE] = g_rand_int_range (rand, 0, 2);
  plan->value[PLAN_MBS] = g_rand_int_range (rand, 1, 3);
  plan->value[PLAN_SEQ] = 128 * g_rand_int_range (rand, 1, 3);
  plan->value[PLAN_GBS] = plan->value[PLAN_MBS] * devices * g_rand_int_range (rand, 1, 4);
}

PlanCase *
random_expert_case (guint seed, const PlanModel *model, const PlanCluster *cluster)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (seed + 6);
  PlanCase *of = NULL;
  Plan plan;
  for (guint tries = 0; !of; tries++)
    {
      if (seed % 3 == 2 && tries < 200) /* fsdp2 does not have every model */
        random_torch_settings (rand, &plan, plan_cluster_devices (cluster));
      else
        random_settings (rand, &plan, model, plan_cluster_devices (cluster));
      if (g_rand_boolean (rand)) /* any modules: a quarter of the sets is legal */
        plan.value[PLAN_GRAPH_MODULES]
            = g_rand_int_range (rand, 0, 1 << (PLAN_GRAPH_MODULES_N_VALUES - 1));
      if (tries == 2000)
        g_error ("seed %u: no plan", seed);
      of = plan_case_new (model, cluster, &plan, NULL, NULL);
    }
  return of;
}
