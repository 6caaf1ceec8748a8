/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/case/hazards.h"
#include "tests/case.h"

#include <check.h>
#include <stdlib.h>

/* Plans with one hazard each, and the words `plain` without it; the hazard of AMD's GPUs does not
 * exist on NVIDIA's. */
static const struct
{
  const char *hazard, *cluster, *words, *plain;
} hazardous[] = {
  { "fp8-copies-weights", "dgx-h100", "gbs=8 compute=fp8-delayed",
    "gbs=8 compute=fp8-delayed param_gather=fp8" },
  { "grads-are-cast", "dgx-h100", "gbs=8 main_grads=bf16",
    "gbs=8 main_grads=bf16 precision_aware=on" },
  { "core-attn-saves-little", "dgx-h100", "gbs=8 recompute=selective",
    "gbs=8 recompute=selective recompute_modules=mlp" },
  { "layernorm-saves-nothing", "dgx-h100", "gbs=8 recompute=selective recompute_modules=layernorm",
    "gbs=8" },
  { "norm-per-replica", "dgx-h100", "gbs=8 dp_outer=2 outer_strategy=optim", "gbs=8 dp_outer=2" },
  { "grad-pool-may-race", "dgx-h100", "gbs=8 strategy=optim_grads double_buffer=on",
    "gbs=8 double_buffer=on" },
  { "grad-pool-may-race", "dgx-h100", "gbs=8 double_buffer=on ag_group=on", "gbs=8 ag_group=on" },
  /* a unit has 218136576 elements; compute waits where that is more than a communication unit */
  { "grad-pool-may-race", "dgx-h100",
    "gbs=8 strategy=optim_grads double_buffer=on comm_unit=218136576",
    "gbs=8 strategy=optim_grads double_buffer=on comm_unit=218136575" },
  { "grad-pool-may-race", "dgx-h100", "gbs=8 double_buffer=max_pool ag_group=on",
    "gbs=8 double_buffer=max_pool ag_group=on comm_unit=1" },
  { "grad-pool-may-race", "dgx-h100",
    "gbs=8 stack=megatron-fsdp@2026-04-01 double_buffer=on ag_group=on",
    "gbs=8 stack=megatron-fsdp@2026-03-31 double_buffer=on ag_group=on" },
  { "grad-pool-may-race", "dgx-h100",
    "gbs=8 stack=megatron-fsdp@2026-08-18 strategy=optim_grads double_buffer=on",
    "gbs=8 stack=megatron-fsdp@2026-08-17 strategy=optim_grads double_buffer=on" },
  { "grad-pool-may-race", "dgx-h100", "gbs=8 dp_outer=4 strategy=optim_grads double_buffer=on",
    "gbs=8 dp_outer=8 strategy=optim_grads double_buffer=on" },
  { "double-buffer-unused", "dgx-h100", "gbs=8 strategy=no_shard double_buffer=on",
    "gbs=8 strategy=no_shard" },
  { "sync-reduces-again", "dgx-h100", "gbs=8 strategy=optim sync_every_micro_batch=on",
    "gbs=8 sync_every_micro_batch=on" },
  { "all-to-all-unused", "dgx-h100", "gbs=8 stack=native strategy=no_shard reduce_algo=a2a",
    "gbs=8 stack=native reduce_algo=a2a" },
  { "sum-rounds-per-hop", "dgx-h100", "gbs=8 grad_comm=bf16", "gbs=8 grad_comm=bf16 nccl_ub=on" },
  { "sum-rounds-per-hop", "dgx-h100", "gbs=8 grad_comm=bf16 nccl_ub=on nccl=2.26", "gbs=8" },
  { "scales-in-bf16", "dgx-h100",
    "gbs=8 main_grads=bf16 grad_comm=bf16 precision_aware=on "
    "per_token_loss=off",
    "gbs=8 main_grads=bf16 grad_comm=bf16 precision_aware=on" },
  { "wants-one-connection", "dgx-h100", "gbs=8 tp=2", "gbs=8" },
  { "fine-grained-is-forced", "dgx-b200", "gbs=8 compute=mxfp8 param_gather=mxfp8",
    "gbs=8 compute=mxfp8 param_gather=mxfp8 recompute=full" },
  { "pipeline-waits", "dgx-h100", "gbs=2 stack=megatron strategy=optim pp=4",
    "gbs=8 stack=megatron strategy=optim pp=4" },
  { "native-runs-less", "dgx-h100",
    "gbs=8 stack=native precision_aware=on cuda_graph=on offload_optimizer=0.5",
    "gbs=8 stack=native precision_aware=on cuda_graph=on" },
  { "native-runs-less", "dgx-h100",
    "gbs=8 stack=native precision_aware=on exp_avg=fp8 offload_optimizer=0.5",
    "gbs=8 stack=native tp=2 offload_layers=1 precision_aware=on offload_optimizer=0.5" },
  { "native-runs-less", "dgx-b200", "gbs=8 stack=native compute=fp8-blockwise",
    "gbs=8 stack=native compute=mxfp8" },
  { "native-runs-less", "dgx-h100", "gbs=8 stack=native compute=fp8-blockwise seq=192",
    "gbs=8 stack=native compute=fp8-blockwise seq=256" },
  { "cp-attends-plainly", "dgx-h100", "gbs=8 stack=native cp=2", "gbs=8 stack=native tp=2" },
  { "fp8-loses-small-squares", "dgx-h100", "gbs=8 precision_aware=on exp_avg_sq=fp8",
    "gbs=8 precision_aware=on exp_avg=fp8 exp_avg_sq=bf16" },
  { "rocm-is-not-fitted", "mi300x-8x", "gbs=8 stack=fsdp2", "gbs=8 stack=fsdp2" },
};

static PlanHazardLevel
level_of (const char *name)
{
  PlanHazardLevel level = PLAN_HAZARD_COST;
  for (guint i = 0; i < plan_hazards_n (); i++)
    if (g_str_equal (plan_hazards_get (i, NULL)->name, name))
      plan_hazards_get (i, &level);
  return level;
}

START_TEST (hazard_is_named)
{
  g_autoptr (PlanModel) model = plan_model_new ("llama3-8b", NULL);
  const gboolean is_of_rocm = g_str_equal (hazardous[_i].hazard, "rocm-is-not-fitted");
  g_autoptr (PlanCluster) cluster = plan_cluster_new (hazardous[_i].cluster, NULL);
  g_autoptr (PlanCluster) other
      = plan_cluster_new (is_of_rocm ? "dgx-h100" : hazardous[_i].cluster, NULL);
  g_autofree char *start = g_strdup_printf ("%s: ", hazardous[_i].hazard);
  g_autoptr (PlanCase) of = test_case (model, cluster, hazardous[_i].words);
  g_autoptr (PlanCase) plain = test_case (model, other, hazardous[_i].plain);
  g_autoptr (GPtrArray) found = plan_hazards_of (of);
  g_autoptr (GPtrArray) none = plan_hazards_of (plain);
  ck_assert_uint_eq (none->len, 0);
  ck_assert_uint_eq (found->len, 1);
  ck_assert_int_eq (plan_hazards_level (&plain->plan, model, other), PLAN_HAZARD_COST);
  ck_assert_int_eq (plan_hazards_level (&of->plan, model, cluster),
                    level_of (hazardous[_i].hazard));
  ck_assert_msg (g_str_has_prefix (found->pdata[0], start), "%s", (char *)found->pdata[0]);
}
END_TEST

#define QWEN "qwen3-30b-a3b"

/* Hazards of plans for models with experts. */
static const struct
{
  const char *model, *hazard, *words;
  gboolean is_there;
} of_experts[] = {
  { QWEN, "lone-experts-add-again: changes what is learned: ", "gbs=64 ep=8", TRUE },
  { QWEN, "lone-experts-add-again: changes what is learned: ", "gbs=64 ep=8 strategy=optim_grads",
    TRUE },
  { QWEN, "lone-experts-add-again: changes what is learned: ", "gbs=64 ep=4 dp_outer=2", TRUE },
  { QWEN, "lone-experts-add-again: ", "gbs=64 ep=4", FALSE },
  { QWEN, "lone-experts-add-again: ", "gbs=8 ep=8", FALSE },
  { QWEN, "lone-experts-add-again: ", "gbs=64 ep=8 strategy=optim", FALSE },
  { QWEN, "lone-experts-add-again: ", "gbs=64 ep=8 stack=megatron strategy=optim", FALSE },
  { QWEN, "dispatcher-is-a-library: ", "gbs=8 ep=8 moe_dispatcher=hybridep", TRUE },
  { QWEN, "dispatcher-is-a-library: ", "gbs=64 ep=2 moe_dispatcher=deepep", TRUE },
  { QWEN, "dispatcher-is-a-library: ", "gbs=8 ep=8", FALSE },
  { "qwen3.5-4b", "delta-rule-is-a-library: ", "gbs=8", TRUE },
  { "qwen3-4b", "delta-rule-is-a-library: ", "gbs=8", FALSE },
  { "nemotron-h-4b", "state-space-is-a-library: ", "gbs=8", TRUE },
  { "qwen3-4b", "state-space-is-a-library: ", "gbs=8", FALSE },
  { QWEN, "experts-vary: ", "gbs=8", TRUE },
  { QWEN, "tokens-are-waited-for: ", "gbs=8 ep=8 stack=megatron strategy=optim", TRUE },
  { QWEN, "tokens-are-waited-for: ", "gbs=8 stack=megatron strategy=optim", FALSE },
  { QWEN, "tokens-are-waited-for: ", "gbs=8 ep=8", TRUE },
  { QWEN, "tokens-are-waited-for: ", "gbs=8 ep=8 stack=fsdp2", FALSE },
  { QWEN, "tokens-are-waited-for: ", "gbs=8 ep=8 stack=megatron strategy=optim ep_overlap=on",
    FALSE },
  { QWEN, "tokens-are-waited-for: ", "gbs=8 ep=4 etp=2", TRUE },
  { QWEN, "overlap-saves-less: ", "gbs=16 ep=4 ep_overlap=on", TRUE },
  { QWEN, "overlap-saves-less: ", "gbs=16 ep=4", FALSE },
  { QWEN, "weights-come-late: ", "gbs=16 ep=4 ep_overlap=on", TRUE },
  { QWEN, "weights-come-late: ", "gbs=8 ep=4 ep_overlap=on", FALSE },
  { QWEN, "weights-come-late: ", "gbs=16 ep=4 ep_overlap=on strategy=optim_grads", FALSE },
  { QWEN, "weights-come-late: ", "gbs=16 ep=4", FALSE },
  { "llama3.1-405b", "host-memory-is-short: stops a run early: ",
    "gbs=8 precision_aware=on offload_optimizer=1", TRUE },
  { "llama3.1-405b", "host-memory-is-short: ", "gbs=8 precision_aware=on offload_optimizer=0.25",
    FALSE },
  { "llama3.1-405b", "host-memory-is-short: ",
    "gbs=8 stack=native precision_aware=on exp_avg=bf16 exp_avg_sq=bf16 offload_optimizer=0.5",
    TRUE },
  { "llama3.1-405b", "host-memory-is-short: ",
    "gbs=8 stack=native precision_aware=on exp_avg=bf16 exp_avg_sq=bf16 main_grads=bf16 "
    "grad_comm=bf16 offload_optimizer=0.5",
    FALSE },
  { "mixtral-8x7b", "host-memory-is-short: ",
    "gbs=8 strategy=no_shard precision_aware=on offload_optimizer=1", TRUE },
  { "mixtral-8x7b", "host-memory-is-short: ",
    "gbs=8 ep=8 strategy=no_shard precision_aware=on offload_optimizer=1", FALSE },
  { QWEN, "room-for-the-mean: stops a run early: ", "gbs=8 ep=8 stack=native", TRUE },
  { QWEN, "room-for-the-mean: ", "gbs=8 ep=8 stack=native moe_imbalance=1.5", FALSE },
  { QWEN, "room-for-the-mean: ", "gbs=8 stack=native", FALSE },
  { QWEN, "room-for-the-mean: ", "gbs=8 ep=8 stack=native moe_capacity=1", FALSE },
  { QWEN, "room-for-the-mean: ", "gbs=8 ep=8 stack=native moe_capacity=2", TRUE },
  { QWEN, "room-for-the-mean: ", "gbs=8 ep=8 stack=native moe_capacity=2 moe_pad_to_capacity=on",
    FALSE },
  { QWEN, "room-for-the-mean: ", "gbs=8 ep=8", FALSE },
  { "llama4-scout", "nothing-starts-it: cannot be run yet: ", "gbs=8 ep=8 stack=fsdp2", TRUE },
  { "llama4-scout", "nothing-starts-it: ", "gbs=8 ep=8", FALSE },
  { "olmoe-1b-7b", "nothing-starts-it: cannot be run yet: ", "gbs=8 stack=fsdp2", TRUE },
  { "olmoe-1b-7b", "nothing-starts-it: cannot be run yet: ", "gbs=8 ep=8", TRUE },
  { "olmoe-1b-7b", "nothing-starts-it: ", "gbs=8", FALSE },
  { "olmoe-1b-7b", "nothing-starts-it: ", "gbs=8 ep=8 stack=native", FALSE },
  { QWEN, "torchtitan-recomputes-all: cannot be run yet: ",
    "gbs=8 ep=8 stack=fsdp2 recompute=full recompute_method=block", TRUE },
  { QWEN, "torchtitan-recomputes-all: ", "gbs=8 ep=8 stack=fsdp2 recompute=full", FALSE },
};

START_TEST (hazard_of_experts_is_named)
{
  g_autoptr (PlanModel) model = plan_model_new (of_experts[_i].model, NULL);
  g_autoptr (PlanCluster) cluster = plan_cluster_new ("dgx-h100", NULL);
  g_autofree char *words = g_strconcat ("mbs=1 seq=4096 sp=off ", of_experts[_i].words, NULL);
  gboolean found = FALSE;
  g_autoptr (PlanCase) of = test_case (model, cluster, words);
  g_autoptr (GPtrArray) texts = plan_hazards_of (of);
  for (guint i = 0; i < texts->len; i++)
    found = found || g_str_has_prefix (texts->pdata[i], of_experts[_i].hazard);
  ck_assert_int_eq (found, of_experts[_i].is_there);
}
END_TEST

/* Clusters whose GPUs may start transfers over the network (IBGDA), and clusters where they
 * cannot. */
static const struct
{
  const char *cluster, *words, *hazard; /* NULL: the plan has no hazard */
  const char *model;
} dispatchers[] = {
  { "aws-p5:2", "gbs=16 ep=16 moe_dispatcher=hybridep", "dispatcher-wants-ibgda", "qwen3-30b-a3b" },
  { "aws-p5:2", "gbs=16 ep=16 moe_dispatcher=deepep", "dispatcher-wants-ibgda", "qwen3-30b-a3b" },
  { "aws-p5:2", "gbs=16 ep=8 moe_dispatcher=hybridep", NULL, "qwen3-30b-a3b" },
  { "aws-p5:2", "gbs=16 ep=16", NULL, "qwen3-30b-a3b" },
  { "gcp-a3-high:2", "gbs=16 ep=16 moe_dispatcher=deepep", "dispatcher-wants-ibgda",
    "qwen3-30b-a3b" },
  { "dgx-h100:2", "gbs=16 ep=16 moe_dispatcher=hybridep", NULL, "qwen3-30b-a3b" },
  { "aws-p6e-gb200:18", "gbs=72 ep=8 moe_dispatcher=hybridep", NULL,
    "qwen3-30b-a3b" }, /* its NVLink domain has 72 GPUs */
  { "gb200-nvl72:2", "gbs=8 ep=4 moe_dispatcher=deepep", "deepep-not-on-grace", "qwen3-30b-a3b" },
  { "gb200-nvl72:2", "gbs=8 ep=8 moe_dispatcher=hybridep", NULL, "qwen3-30b-a3b" },
  { "dgx-b200", "gbs=8 ep=8 moe_dispatcher=deepep", NULL, "qwen3-30b-a3b" },
  { "dgx-h100:2", "gbs=16 ep=16 moe_dispatcher=deepep", "deepep-wants-even-tokens", "gpt-oss-20b" },
  { "dgx-h100:2", "gbs=16 ep=8 moe_dispatcher=deepep", NULL, "gpt-oss-20b" },
  { "dgx-h100:2", "gbs=16 ep=16 moe_dispatcher=hybridep", NULL, "gpt-oss-20b" },
  { "dgx-a100", "gbs=8 ep=8 moe_dispatcher=hybridep", "dispatcher-wants-hopper", "qwen3-30b-a3b" },
  { "dgx-a100:2", "gbs=16 ep=16 moe_dispatcher=deepep", "dispatcher-wants-hopper",
    "qwen3-30b-a3b" },
  { "dgx-a100:2", "gbs=16 ep=8 moe_dispatcher=deepep", NULL, "qwen3-30b-a3b" },
  { "rtxpro6000-8x", "gbs=8 ep=8 moe_dispatcher=hybridep", "dispatcher-wants-nvlink",
    "qwen3-30b-a3b" },
  { "a100-pcie-8x", "gbs=8 ep=8 moe_dispatcher=deepep", "dispatcher-wants-nvlink",
    "qwen3-30b-a3b" },
  { "rtxpro6000-8x", "gbs=8 ep=8", NULL, "qwen3-30b-a3b" },
  /* 341 x 64 tokens fill a queue of less than 65,536 requests, 342 x 64 do not go into it */
  { "dgx-h100:2", "gbs=16 seq=21888 ep=16 moe_dispatcher=hybridep", "hybridep-has-short-queues",
    "qwen3-30b-a3b" },
  { "dgx-h100:2", "gbs=16 seq=21824 ep=16 moe_dispatcher=hybridep", NULL, "qwen3-30b-a3b" },
  { "dgx-h100:2", "gbs=128 mbs=8 ep=16 moe_dispatcher=hybridep", "hybridep-has-short-queues",
    "qwen3-30b-a3b" },
  { "dgx-h100:2", "gbs=64 mbs=8 tp=2 ep=16 moe_dispatcher=hybridep", NULL, "qwen3-30b-a3b" },
  { "dgx-h100:2", "gbs=128 mbs=8 ep=8 moe_dispatcher=hybridep", NULL, "qwen3-30b-a3b" },
  { "dgx-h100:2", "gbs=128 mbs=8 ep=16 moe_dispatcher=deepep", NULL, "qwen3-30b-a3b" },
};

START_TEST (libraries_send_where_they_can)
{
  g_autoptr (PlanModel) model = plan_model_new (dispatchers[_i].model, NULL);
  g_autoptr (PlanCluster) cluster = plan_cluster_new (dispatchers[_i].cluster, NULL);
  g_autofree char *words = g_strconcat ("mbs=1 seq=4096 ", dispatchers[_i].words, NULL);
  g_autoptr (PlanCase) of = test_case (model, cluster, words);
  g_autoptr (GPtrArray) texts = plan_hazards_of (of);
  gboolean fails = FALSE;
  for (guint i = 0; i < texts->len; i++)
    fails = fails || strstr (texts->pdata[i], "cannot be run yet");
  ck_assert_int_eq (fails, dispatchers[_i].hazard != NULL);
  if (!fails)
    return;
  ck_assert (g_str_has_prefix (texts->pdata[0], dispatchers[_i].hazard));
  ck_assert_int_eq (plan_hazards_level (&of->plan, model, cluster),
                    level_of (dispatchers[_i].hazard));
  cluster->ibgda = PLAN_ANSWER_YES; /* as --hw ibgda=yes */
  ck_assert (plan_hazards_level (&of->plan, model, cluster) != level_of (dispatchers[_i].hazard)
             || !g_str_equal (dispatchers[_i].hazard, "dispatcher-wants-ibgda"));
}
END_TEST

START_TEST (every_hazard_is_tested)
{
  for (guint i = 0; i < plan_hazards_n (); i++)
    {
      const char *name = plan_hazards_get (i, NULL)->name;
      gboolean found = FALSE;
      for (guint j = 0; j < G_N_ELEMENTS (hazardous); j++)
        found = found || g_str_equal (hazardous[j].hazard, name);
      for (guint j = 0; j < G_N_ELEMENTS (of_experts); j++)
        found = found || (of_experts[j].is_there && g_str_has_prefix (of_experts[j].hazard, name));
      for (guint j = 0; j < G_N_ELEMENTS (dispatchers); j++)
        found = found || g_strcmp0 (dispatchers[j].hazard, name) == 0;
      ck_assert_msg (found, "%s has no test", name);
    }
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("hazards");
  TCase *tcase = tcase_create ("hazards");
  tcase_add_loop_test (tcase, hazard_is_named, 0, G_N_ELEMENTS (hazardous));
  tcase_add_loop_test (tcase, hazard_of_experts_is_named, 0, G_N_ELEMENTS (of_experts));
  tcase_add_loop_test (tcase, libraries_send_where_they_can, 0, G_N_ELEMENTS (dispatchers));
  tcase_add_test (tcase, every_hazard_is_tested);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
