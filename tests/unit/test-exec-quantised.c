/* SPDX-License-Identifier: Apache-2.0 */
/* Compares runs whose products are quantised, on ranks that split layers, stages or experts, with
 * the evaluator, which gathers nothing: it quantises a weight where a product reads it. */
#include "config.h"

#include "tests/share.h"
#include "tests/unit/test-exec-split-case.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define RANKS 4

/* Products in eight bits, of split layers and stages; also where weights are gathered so. */
START_TEST (quantised_products_may_be_split)
{
  static const struct
  {
    const char *words, *gathers, *model;
  } formats[] = {
    { "compute=fp8-tensorwise seq=32", "param_gather=fp8",
      "family=llama,layers=4,hidden=32,ffn=32,heads=2,kv_heads=2,head_dim=16,vocab=32,max_seq=32" },
    { "compute=fp8-delayed seq=32", "param_gather=fp8",
      "family=qwen3,layers=4,hidden=32,ffn=64,heads=2,kv_heads=2,head_dim=32,vocab=32,max_seq=32" },
    { "compute=mxfp8 seq=64", "param_gather=mxfp8",
      "family=llama,layers=4,hidden=64,ffn=64,heads=2,kv_heads=2,head_dim=32,vocab=64,max_seq=64" },
    { "compute=fp8-blockwise seq=128", "param_gather=fp8",
      "family=llama,layers=4,hidden=128,ffn=256,heads=2,kv_heads=2,head_dim=128,vocab=64,"
      "max_seq=128" },
  };
  static const struct
  {
    const char *words;
    guint ranks;
    gboolean gathers;
  } splits[] = {
    { "pp=2 strategy=optim", RANKS, FALSE },
    { "pp=2 strategy=optim_grads_params recompute=full", RANKS, FALSE },
    { "pp=2 vpp=2 strategy=optim gbs=16", RANKS, FALSE },
    { "tp=2 sp=off strategy=optim", RANKS, FALSE },
    { "tp=2 sp=off pp=2 strategy=optim_grads_params", 2 * RANKS, FALSE },
    { "tp=2 sp=on strategy=optim_grads_params", RANKS, FALSE },
    { "tp=2 sp=on pp=2 strategy=optim recompute=selective recompute_modules=core_attn+mlp",
      2 * RANKS, FALSE },
    { "tp=2 sp=on strategy=no_shard recompute=full hidden_dropout=0.1", RANKS, FALSE },
    { "pp=2 strategy=optim_grads_params", RANKS, TRUE },
    { "tp=2 sp=on strategy=optim_grads_params", RANKS, TRUE },
    { "tp=2 sp=off dp_outer=2 strategy=optim_grads_params outer_strategy=optim", 2 * RANKS, TRUE },
  };
  if (_i % 4 == 3 && _i / 4 % 3 != 0 && test_share () > 1) /* blocks of 128 x 128 take longest */
    return;
  g_autofree char *words
      = g_strjoin (" ", "main_grads=fp32 mbs=1", formats[_i % 4].words, splits[_i / 4].words,
                   splits[_i / 4].gathers ? formats[_i % 4].gathers : "", NULL);
  compare_split (formats[_i % 4].model, splits[_i / 4].ranks, words);
}
END_TEST

/* Products in pieces beside the exchange of sequences: parts that ranks quantise by a scale that
 * all know, or sums alone where the scale is made of all tokens; with biases, beside stages, and
 * where layers are computed again. */
START_TEST (quantised_products_may_be_in_pieces)
{
  static const char *const models[] = {
    "family=llama,layers=4,hidden=32,ffn=64,heads=4,kv_heads=4,head_dim=16,vocab=32,max_seq=32",
    "family=gpt2,layers=2,hidden=64,ffn=128,heads=4,head_dim=16,vocab=50,max_seq=32,tied=off",
    "family=qwen3,layers=2,hidden=32,ffn=64,heads=8,kv_heads=4,head_dim=16,vocab=64,max_seq=32",
  };
  static const char *const splits[] = {
    "tp=2 strategy=optim_grads_params",
    "tp=4 strategy=no_shard recompute=full",
    "tp=2 pp=2 strategy=optim",
    "tp=2 strategy=optim_grads recompute=selective recompute_modules=core_attn+mlp",
    "tp=2 strategy=optim_grads_params param_gather=fp8 hidden_dropout=0.1",
    "tp=2 cp=2 strategy=optim grad_accum_fusion=on",
  };
  static const char *const formats[] = { "compute=fp8-delayed", "compute=fp8-tensorwise" };
  const guint model = (guint)_i % 3, split = (guint)_i / 6, format = (guint)_i / 3 % 2;
  g_autofree char *words = g_strjoin (" ", "main_grads=fp32 seq=32 mbs=1 sp=on tp_overlap=async",
                                      formats[format], splits[split], NULL);
  compare_split (models[model], RANKS, words);
}
END_TEST

/* Experts in eight bits or four, whose rows are quantised by themselves. How many there are differs
 * from expert to expert, and some have none: beside shared experts, with biases, with scores
 * applied to their inputs, and behind latent attention. */
START_TEST (quantised_experts_may_be_split)
{
  static const struct
  {
    const char *words, *sizes;
    int expert_ffn, head_dim;
  } formats[] = {
    { "compute=fp8-tensorwise seq=32 mbs=1", "hidden=32,ffn=32", 16, 16 },
    { "compute=mxfp8 seq=64 mbs=1 gbs=4", "hidden=64,ffn=64", 32, 32 },
    { "compute=fp8-blockwise seq=128 mbs=1 gbs=4", "hidden=128,ffn=128", 128, 64 },
    { "compute=nvfp4 seq=32 mbs=2", "hidden=32,ffn=32", 16, 16 },
    { "compute=fp8-delayed seq=32 mbs=1", "hidden=32,ffn=32", 16, 16 },
  };
  static const struct
  {
    const char *model, *words;
  } splits[] = {
    { "family=qwen3_moe,layers=2,experts=8,topk=3,shared_ffn=128,shared_gate=on,dense_layers=1,"
      "router_score=sigmoid,router_bias=on",
      "ep=4 strategy=optim_grads_params main_grads=bf16" },
    { "family=gpt_oss,layers=2,experts=4,topk=3,window=5,glu_limit=0.004",
      "ep=2 etp=2 strategy=no_shard recompute=selective recompute_modules=core_attn+moe_act" },
    { "family=mixtral,layers=2,experts=8,topk=2",
      "ep=1 strategy=optim moe_capacity=0.8 moe_pad_to_capacity=on" },
    { "family=llama4_text,layers=2,experts=4,shared_ffn=128,moe_every=2,window=20,full_every=2,"
      "nope_every=2",
      "ep=2 strategy=optim_grads recompute=full moe_capacity=0.7 moe_pad_to_capacity=on" },
    { "family=mixtral,layers=2,experts=6,topk=2", "ep=2 pp=2 strategy=optim_grads_params" },
    { "family=qwen3_moe,layers=2,experts=4,topk=3,shared_ffn=128,shared_gate=on,dense_layers=1",
      "tp=2 sp=on ep=2 etp=2 strategy=optim gbs=4" },
    { "family=deepseek_v3,layers=2,experts=4,topk=2,shared_ffn=128,dense_layers=1,q_lora=128,"
      "kv_lora=64,nope_dim=96,rope_dim=32,v_dim=128,router_score=sigmoid,router_groups=2,"
      "router_group_topk=1,mtp=0",
      "ep=2 strategy=optim" },
  };
  /* The first two splits in four formats, as blocks of 128 x 128 take longest; last is delayed
   * scaling, which excludes that moe_act is recomputed. */
  const guint delayed = _i > 18 ? (guint)_i - 17 : 0, most = _i < 8 ? 4 : 2;
  const guint split = _i < 18 ? (guint)_i / most - (_i < 8 ? 0 : 2) : delayed;
  const guint format = _i < 18 ? (guint)_i % most : 4;
  const gboolean is_latent = strstr (splits[split].model, "kv_lora") != NULL;
  g_autofree char *model = g_strdup_printf (
      "%s,%s,expert_ffn=%d,heads=2,kv_heads=2,head_dim=%d,vocab=32,max_seq=128",
      splits[split].model, formats[format].sizes,
      formats[format].expert_ffn * (strstr (splits[split].words, "etp=2") ? 2 : 1),
      is_latent ? 128 : formats[format].head_dim);
  g_autofree char *words = g_strjoin (" ", "main_grads=fp32 moe_imbalance=8", formats[format].words,
                                      splits[split].words, NULL);
  compare_split (model, RANKS, words);
}
END_TEST

/* Formats in which weights of experts are gathered. */
static const struct
{
  const char *words, *sizes;
  int expert_ffn, head_dim;
} gathered[] = {
  { "compute=fp8-tensorwise param_gather=fp8 seq=32 gbs=8", "hidden=32,ffn=32", 16, 16 },
  { "compute=fp8-delayed param_gather=fp8 seq=32 gbs=8", "hidden=32,ffn=64", 16, 16 },
  { "compute=mxfp8 param_gather=mxfp8 seq=64 gbs=8", "hidden=64,ffn=64", 32, 32 },
  { "compute=nvfp4 param_gather=nvfp4 seq=32 gbs=8", "hidden=32,ffn=32", 48, 16 },
  { "compute=fp8-blockwise param_gather=fp8 seq=128 gbs=8", "hidden=128,ffn=256", 128, 128 },
};

/* Weights of experts that are quantised before they are gathered, each expert's by itself: on ranks
 * that share the experts and on one that has them alone, whose dense layers have buckets of their
 * own, over replicas, behind latent attention, beside split layers and in stages, of which one
 * begins with a dense layer; and beside biases of experts, which are gathered as they are. */
#define GPT_OSS "family=gpt_oss,window=5,glu_limit=0.004,"
START_TEST (experts_may_be_gathered_quantised)
{
  static const struct
  {
    guint ranks;
    const char *model, *words;
  } splits[] = {
    { RANKS,
      "family=qwen3_moe,layers=3,experts=6,topk=2,shared_ffn=128,shared_gate=on,dense_layers=1",
      "ep=2 strategy=optim_grads_params recompute=full" },
    { RANKS,
      "family=deepseek_v3,layers=3,experts=4,topk=2,shared_ffn=128,dense_layers=2,q_lora=128,"
      "kv_lora=128,nope_dim=128,rope_dim=128,v_dim=128,router_score=sigmoid,router_groups=2,"
      "router_group_topk=1,mtp=0",
      "ep=4 strategy=optim_grads_params" },
    { RANKS, "family=mixtral,layers=2,experts=8,topk=3", "ep=1 etp=2 strategy=optim" },
    { 2 * RANKS, "family=mixtral,layers=2,experts=4,topk=2",
      "ep=2 dp_outer=2 outer_strategy=optim strategy=optim_grads_params" },
    { 2 * RANKS,
      "family=qwen3_moe,layers=4,experts=4,topk=2,moe_every=2,router_bias=on,router_score=sigmoid",
      "ep=2 pp=2 strategy=optim_grads" },
    { RANKS, "family=mixtral,layers=4,experts=4,topk=2",
      "ep=2 pp=2 vpp=2 strategy=optim_grads_params" },
    { RANKS, "family=qwen3_moe,layers=2,experts=4,topk=3,shared_ffn=256,dense_layers=1",
      "tp=2 sp=on ep=2 etp=2 strategy=optim_grads moe_capacity=0.7 moe_pad_to_capacity=on" },
    { RANKS,
      "family=deepseek_v2,layers=2,experts=4,topk=2,shared_ffn=256,dense_layers=1,q_lora=0,"
      "kv_lora=128,nope_dim=128,rope_dim=128,v_dim=128,router_groups=2,router_group_topk=1",
      "tp=2 sp=on ep=4 strategy=optim_grads_params fine_grained=on recompute=selective "
      "recompute_modules=mla_up_proj" },
    { RANKS, GPT_OSS "layers=2,experts=4,topk=3", "ep=2 strategy=optim_grads_params" },
    { 2 * RANKS, GPT_OSS "layers=4,experts=6,topk=2,dense_layers=1",
      "tp=2 sp=on ep=2 etp=2 pp=2 strategy=optim_grads" },
    { 2 * RANKS, GPT_OSS "layers=3,experts=4,topk=2",
      "ep=2 dp_outer=2 outer_strategy=optim strategy=optim_grads_params recompute=full" },
    { RANKS, GPT_OSS "layers=2,experts=4,topk=2",
      "cp=2 ep=2 etp=2 strategy=optim main_grads=bf16" },
  };
  const guint format = (guint)_i % G_N_ELEMENTS (gathered), split = (guint)_i / 5;
  const gboolean is_latent = strstr (splits[split].model, "kv_lora") != NULL;
  const gboolean keeps = split % 2 == 1 && strstr (gathered[format].words, "param_gather=fp8");
  const gboolean is_cut = split == 7;                                   /* in rows of 64 tokens */
  if (format == 4 && (is_cut || (split % 3 != 0 && test_share () > 1))) /* they take longest */
    return;
  g_autofree char *model = g_strdup_printf (
      "%s,%s,expert_ffn=%d,heads=2,kv_heads=2,head_dim=%d,vocab=32,max_seq=128",
      splits[split].model, gathered[format].sizes,
      gathered[format].expert_ffn * (strstr (splits[split].words, "etp=2") ? 2 : 1),
      is_latent ? 256 : gathered[format].head_dim);
  g_autofree char *words
      = g_strjoin (" ", "main_grads=fp32 moe_imbalance=8 mbs=1", gathered[format].words,
                   splits[split].words, keeps ? "keep_transpose=on" : "", NULL);
  compare_split (model, splits[split].ranks, words);
}
END_TEST

/* Latent attention, whose projections down share the scale of what they read; without a latent
 * vector of queries ranks that split heads gather it, and quantise all of it for these. */
START_TEST (latent_attention_may_be_quantised)
{
  static const struct
  {
    const char *model, *words;
  } cases[] = {
    { "q_lora=32,dense_layers=1", "compute=fp8-delayed ep=2 strategy=optim_grads_params" },
    { "q_lora=0", "compute=fp8-delayed tp=2 sp=on ep=4 strategy=optim" },
    { "q_lora=16", "compute=fp8-delayed tp=2 sp=on ep=2 strategy=optim_grads recompute=full" },
    { "q_lora=16,dense_layers=1",
      "compute=fp8-delayed ep=2 pp=2 strategy=optim_grads_params recompute=selective "
      "recompute_modules=mla_up_proj" },
    { "q_lora=0,dense_layers=2", "compute=fp8-delayed ep=1 strategy=no_shard recompute=selective "
                                 "recompute_modules=core_attn+mlp" },
    { "q_lora=0", "compute=fp8-tensorwise tp=2 sp=on ep=2 strategy=optim_grads_params" },
    { "q_lora=0,dense_layers=1", "compute=mxfp8 tp=2 sp=on ep=4 strategy=optim recompute=selective "
                                 "recompute_modules=mla_up_proj" },
  };
  g_autofree char *model
      = g_strconcat ("family=deepseek_v2,layers=4,hidden=32,ffn=64,heads=2,kv_lora=32,nope_dim=32,"
                     "rope_dim=32,v_dim=32,router_groups=2,router_group_topk=1,experts=4,topk=2,"
                     "expert_ffn=32,shared_ffn=64,vocab=32,max_seq=128,",
                     cases[_i].model, NULL);
  g_autofree char *words
      = g_strconcat ("main_grads=fp32 moe_imbalance=4 seq=64 mbs=1 ", cases[_i].words, NULL);
  compare_split (model, RANKS, words);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("exec-quantised");
  TCase *tcase = tcase_create ("together");
  tcase_set_timeout (tcase, 600);
  test_add_runs (tcase, quantised_products_may_be_split, 43);
  test_add_runs (tcase, quantised_products_may_be_in_pieces, 36);
  test_add_runs (tcase, quantised_experts_may_be_split, 23);
  test_add_runs (tcase, experts_may_be_gathered_quantised, 60);
  tcase_add_loop_test (tcase, latent_attention_may_be_quantised, 0, 7);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
