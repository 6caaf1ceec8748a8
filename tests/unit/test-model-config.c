/* SPDX-License-Identifier: Apache-2.0 */
/* Hugging Face config.json of every family. */
#include "config.h"

#include "planner/base/error.h"
#include "planner/model/model-config-write.h"
#include "planner/model/model.h"
#include "tests/unit/test-config-case.h"

#include <check.h>
#include <glib/gstdio.h>
#include <stdlib.h>
#include <string.h>

/* A config.json of a llama, into which a test puts the keys that it is about. */
static char *
config_with (const char *keys)
{
  return g_strdup_printf ("{\"model_type\": \"llama\", \"hidden_act\": \"silu\", %s}", keys);
}

#define SIZES \
  "\"num_hidden_layers\": 32, \"hidden_size\": 4096, \"intermediate_size\": 14336, " \
  "\"vocab_size\": 128256, \"max_position_embeddings\": 8192"
#define HEADS "\"num_attention_heads\": 32, \"num_key_value_heads\": 8"
#define ALL SIZES ", " HEADS

START_TEST (config_is_read)
{
  g_autofree char *text = config_with (
      ALL ", \"rope_theta\": 500000.0, \"rms_norm_eps\": 1e-05, \"attention_bias\": false, "
          "\"mlp_bias\": null, \"tie_word_embeddings\": false, \"rope_scaling\": null, "
          "\"architectures\": [\"LlamaForCausalLM\"], \"name\": \"\\ud83d\\ude00 \\u00e9 \\\"\"");
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanModel) model
      = plan_model_parse_config (text, strlen (text), "models/My Llama/config.json", &error);
  ck_assert_msg (model != NULL, "%s", error ? error->message : "");
  ck_assert_str_eq (model->name, "My_Llama");
  ck_assert_uint_eq (plan_model_parameters (model), G_GUINT64_CONSTANT (8030261248));
  ck_assert (model->rope.theta == 500000 && model->norm_eps == 1e-5 && !model->tied_embeddings);
  ck_assert_int_eq (model->head_dim, 128);
}
END_TEST

/* What model text a config.json becomes. The first of each family has only the keys that it must
 * have: all else is transformers' default. */
static const struct
{
  const char *config, *text;
} configs[] = {
#define WITH(type, keys) "{\"model_type\": \"" type "\", " keys "}"
#define SMALL \
  "\"num_hidden_layers\": 6, \"hidden_size\": 512, \"intermediate_size\": 96, " \
  "\"num_attention_heads\": 32, \"vocab_size\": 100, \"max_position_embeddings\": 50"
#define TEXT(family, kv_heads, head_dim) \
  "family=" family ",layers=6,hidden=512,ffn=96,heads=32,kv_heads=" kv_heads ",head_dim=" head_dim \
  ",vocab=100,max_seq=50"
  { WITH ("llama", SMALL), TEXT ("llama", "32", "16") ",norm_eps=1e-06" },
  { WITH ("llama", SMALL ", \"num_key_value_heads\": null, \"head_dim\": null, "
                         "\"attention_bias\": true, \"mlp_bias\": true, "
                         "\"tie_word_embeddings\": true, \"hidden_act\": \"gelu\""),
    TEXT ("llama", "32", "16") ",norm_eps=1e-06,tied=on,activation=gelu,qkv_bias=on,proj_bias=on,"
                               "mlp_bias=on" },
#define LLAMA3 \
  "\"rope_type\": \"llama3\", \"factor\": 32.0, \"low_freq_factor\": 1.5, " \
  "\"high_freq_factor\": 6, \"original_max_position_embeddings\": 40"
  { WITH ("llama", SMALL ", \"rope_theta\": 500000, \"rope_scaling\": {" LLAMA3 "}"),
    TEXT ("llama", "32", "16") ",norm_eps=1e-06,rope_theta=500000,rope_scaling=llama3,"
                               "rope_factor=32,rope_original=40,rope_slow=1.5,rope_fast=6" },
  { WITH ("llama", SMALL ", \"rope_parameters\": {" LLAMA3 ", \"rope_theta\": 7}"),
    TEXT ("llama", "32", "16") ",norm_eps=1e-06,rope_theta=7,rope_scaling=llama3,"
                               "rope_factor=32,rope_original=40,rope_slow=1.5,rope_fast=6" },
  { WITH ("llama", SMALL ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.5}"),
    TEXT ("llama", "32", "16") ",norm_eps=1e-06,rope_scaling=linear,rope_factor=2.5" },
  { WITH ("llama", SMALL ", \"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2}"),
    TEXT ("llama", "32", "16") ",norm_eps=1e-06,rope_scaling=dynamic,rope_factor=2,"
                               "rope_original=50" },
  { WITH ("qwen2", SMALL ", \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4, "
                         "\"original_max_position_embeddings\": 20}"),
    TEXT ("qwen2", "32", "16") ",rope_scaling=yarn,rope_factor=4,rope_original=20,rope_slow=1,"
                               "rope_fast=32" },
  { WITH ("qwen3", SMALL ", \"rope_parameters\": {\"rope_type\": \"yarn\", \"beta_fast\": 9, "
                         "\"original_max_position_embeddings\": 20, \"beta_slow\": null}"),
    TEXT ("qwen3", "32", "128") ",rope_scaling=yarn,rope_factor=2.5,rope_original=20,rope_slow=1,"
                                "rope_fast=9" },
  { WITH ("qwen3", SMALL ", \"rope_parameters\": {\"rope_type\": \"default\"}"),
    TEXT ("qwen3", "32", "128") },
  { WITH ("phi3", SMALL ", \"original_max_position_embeddings\": 10, \"rope_scaling\": {"
                        "\"type\": \"su\", \"long_factor\": [2, 2, 2, 2, 2, 2, 2, 3.5], "
                        "\"short_factor\": [1, 1, 1, 1, 1, 1, 1, 1.25]}"),
    TEXT ("phi3", "32", "16") ",rope_scaling=longrope,rope_factor=5,rope_original=10,"
                              "rope_short=1:1:1:1:1:1:1:1.25,rope_long=2:2:2:2:2:2:2:3.5" },
  { WITH ("deepseek_v3",
          SMALL ", \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 40, \"beta_fast\": 32, "
                "\"beta_slow\": 1, \"mscale\": 1.0, \"mscale_all_dim\": 0.5, "
                "\"original_max_position_embeddings\": 4096}"),
    TEXT ("deepseek_v3", "32", "192") ",rope_scaling=yarn,rope_factor=40,rope_original=4096,"
                                      "rope_slow=1,rope_fast=32,rope_mscale_all=0.5" },
  { WITH ("mistral", SMALL), TEXT ("mistral", "8", "16") ",norm_eps=1e-06,window=4096" },
  { WITH ("mistral", SMALL ", \"sliding_window\": null, \"num_key_value_heads\": null, "
                           "\"rope_parameters\": {\"rope_theta\": 1000000}, \"head_dim\": 160"),
    TEXT ("mistral", "32", "160") ",norm_eps=1e-06,rope_theta=1000000" },
  { WITH ("qwen2", SMALL), TEXT ("qwen2", "32", "16") },
  { WITH ("qwen2", SMALL ", \"use_sliding_window\": true, \"max_window_layers\": 4, "
                         "\"sliding_window\": 20"),
    TEXT ("qwen2", "32", "16") ",window=20,window_from=4" },
  { WITH ("qwen2", SMALL ", \"use_sliding_window\": true"), TEXT ("qwen2", "32", "16") },
  { WITH ("qwen2", SMALL ", \"use_sliding_window\": false, \"max_window_layers\": 4"),
    TEXT ("qwen2", "32", "16") },
  { WITH ("qwen3", SMALL), TEXT ("qwen3", "32", "128") },
  { WITH ("qwen3", SMALL ", \"attention_bias\": true, \"head_dim\": null, "
                         "\"num_key_value_heads\": 8, \"layer_types\": [\"full_attention\", "
                         "\"full_attention\", \"full_attention\", \"full_attention\", "
                         "\"full_attention\", \"full_attention\"]"),
    TEXT ("qwen3", "8", "16") ",qkv_bias=on,proj_bias=on" },
  { WITH ("gemma", SMALL ", \"hidden_act\": \"gelu\", \"hidden_activation\": null"),
    TEXT ("gemma", "16", "256") },
  { WITH ("gemma", SMALL ", \"hidden_activation\": \"gelu\", \"tie_word_embeddings\": false"),
    TEXT ("gemma", "16", "256") ",tied=off,activation=gelu" },
  { WITH ("gemma2", SMALL), TEXT ("gemma2", "4", "256") },
  { WITH ("gemma2", SMALL ", \"attn_logit_softcapping\": null, \"final_logit_softcapping\": 9.5, "
                          "\"query_pre_attn_scalar\": 144, \"sliding_window\": 12, "
                          "\"layer_types\": [\"full_attention\", \"sliding_attention\", "
                          "\"full_attention\", \"full_attention\", \"sliding_attention\", "
                          "\"full_attention\"]"),
    TEXT ("gemma2", "4", "256") ",window=12,window_from=1,window_every=3,attn_scalar=144,"
                                "attn_softcap=0,logit_softcap=9.5" },
  { WITH ("gpt2", "\"n_layer\": 2, \"n_embd\": 24, \"n_head\": 3, \"vocab_size\": 100, "
                  "\"n_positions\": 50"),
    "family=gpt2,layers=2,hidden=24,ffn=96,heads=3,kv_heads=3,head_dim=8,vocab=100,max_seq=50" },
  { WITH ("gpt2", "\"n_layer\": 2, \"n_embd\": 24, \"n_head\": 3, \"vocab_size\": 100, "
                  "\"n_positions\": 50, \"n_inner\": 7, \"activation_function\": \"relu\", "
                  "\"layer_norm_epsilon\": 0.001, \"tie_word_embeddings\": false"),
    "family=gpt2,layers=2,hidden=24,ffn=7,heads=3,kv_heads=3,head_dim=8,vocab=100,max_seq=50,"
    "norm_eps=0.001,tied=off,activation=relu" },
  { WITH ("gemma3_text", SMALL), TEXT ("gemma3_text", "4", "256") },
  { WITH ("gemma3_text",
          SMALL ", \"sliding_window\": 12, \"_sliding_window_pattern\": 3, "
                "\"attn_logit_softcapping\": null, \"layer_types\": [\"sliding_attention\", "
                "\"sliding_attention\", \"full_attention\", \"sliding_attention\", "
                "\"sliding_attention\", \"full_attention\"], \"rope_parameters\": "
                "{\"full_attention\": {\"rope_type\": \"linear\", \"factor\": 8.0, "
                "\"rope_theta\": 5000.0}, \"sliding_attention\": {\"rope_type\": "
                "\"default\", \"rope_theta\": 50.0}}"),
    TEXT ("gemma3_text", "4", "256") ",rope_theta=5000,rope_scaling=linear,rope_factor=8,window=12,"
                                     "full_every=3,rope_local=50" },
  { WITH ("gemma3_text", SMALL ", \"rope_local_base_freq\": 70, \"rope_theta\": 900, "
                               "\"sliding_window_pattern\": 2"),
    TEXT ("gemma3_text", "4", "256") ",rope_theta=900,full_every=2,rope_local=70" },
#define BLOOM "\"n_layer\": 6, \"hidden_size\": 512, \"n_head\": 32, \"vocab_size\": 100"
#define BLOOM_TEXT \
  "family=bloom,layers=6,hidden=512,ffn=2048,heads=32,kv_heads=32,head_dim=16,vocab=100,max_seq="
  { WITH ("bloom", BLOOM), BLOOM_TEXT "2048" },
  { WITH ("bloom",
          BLOOM ", \"seq_length\": 64, \"layer_norm_epsilon\": 1e-6, \"slow_but_exact\": true, "
                "\"tie_word_embeddings\": false"),
    BLOOM_TEXT "64,norm_eps=1e-06,tied=off" },
#define FALCON \
  "\"num_hidden_layers\": 6, \"hidden_size\": 512, \"num_attention_heads\": 32, \"vocab_size\": " \
  "100"
#define FALCON_TEXT(kv_heads) \
  "family=falcon,layers=6,hidden=512,ffn=2048,heads=32,kv_heads=" kv_heads \
  ",head_dim=16,vocab=100,max_seq=2048"
  { WITH ("falcon", FALCON), FALCON_TEXT ("1") },
  { WITH ("falcon",
          FALCON ", \"new_decoder_architecture\": true, \"num_kv_heads\": 8, \"bias\": true"),
    FALCON_TEXT ("8") ",qkv_bias=on,proj_bias=on,mlp_bias=on,shared_norm=off" },
  { WITH ("falcon", FALCON ", \"new_decoder_architecture\": true, \"num_kv_heads\": 8, "
                           "\"num_ln_in_parallel_attn\": 1"),
    FALCON_TEXT ("8") },
  { WITH ("falcon", FALCON ", \"multi_query\": false, \"parallel_attn\": false, "
                           "\"tie_word_embeddings\": false"),
    FALCON_TEXT ("32") ",tied=off,parallel=off,shared_norm=off" },
  { WITH ("gpt_neox", SMALL), TEXT ("gpt_neox", "32", "16") },
  { WITH ("gpt_neox", SMALL ", \"hidden_act\": \"relu2\""),
    TEXT ("gpt_neox", "32", "16") ",activation=relu2" },
  { WITH ("gpt_neox", SMALL ", \"hidden_act\": \"quick_gelu\""),
    TEXT ("gpt_neox", "32", "16") ",activation=quick_gelu" },
  { WITH ("gpt_neox", SMALL ", \"rotary_pct\": 1, \"rotary_emb_base\": 500, "
                            "\"use_parallel_residual\": false, \"attention_bias\": false, "
                            "\"layer_norm_eps\": 1e-6, \"hidden_act\": \"gelu_fast\""),
    TEXT ("gpt_neox", "32", "16") ",norm_eps=1e-06,rope_theta=500,activation=gelu_tanh,"
                                  "qkv_bias=off,proj_bias=off,rope_fraction=1,parallel=off" },
  { WITH ("mpt", "\"n_layers\": 2, \"d_model\": 24, \"n_heads\": 3, \"vocab_size\": 100, "
                 "\"max_seq_len\": 50"),
    "family=mpt,layers=2,hidden=24,ffn=96,heads=3,kv_heads=3,head_dim=8,vocab=100,max_seq=50" },
  { WITH ("mpt", "\"n_layers\": 2, \"d_model\": 24, \"n_heads\": 3, \"vocab_size\": 100, "
                 "\"max_seq_len\": 50, \"expansion_ratio\": 2, \"no_bias\": false, "
                 "\"attn_config\": {\"alibi\": false, \"attn_type\": \"multiquery_attention\"}"),
    "family=mpt,layers=2,hidden=24,ffn=48,heads=3,kv_heads=1,head_dim=8,vocab=100,max_seq=50,"
    "norm_bias=on,qkv_bias=on,proj_bias=on,mlp_bias=on,positions=learned" },
  { WITH ("phi3", SMALL), TEXT ("phi3", "32", "16") },
  { WITH ("phi3", SMALL ", \"sliding_window\": 2047, \"partial_rotary_factor\": 0.75"),
    TEXT ("phi3", "32", "16") ",rope_fraction=0.75,window=2047" },
  { WITH ("mixtral", SMALL), TEXT ("mixtral", "8", "16") ",expert_ffn=96" },
  { WITH ("mixtral", SMALL ", \"num_local_experts\": 4, \"num_experts_per_tok\": 1, "
                           "\"sliding_window\": 9"),
    TEXT ("mixtral", "8", "16") ",window=9,experts=4,topk=1,expert_ffn=96" },
  { WITH ("qwen2_moe", SMALL), TEXT ("qwen2_moe", "16", "16") },
  { WITH ("qwen2_moe", SMALL ", \"num_experts\": 8, \"num_experts_per_tok\": 3, "
                             "\"moe_intermediate_size\": 10, \"decoder_sparse_step\": 2, "
                             "\"shared_expert_intermediate_size\": 20, "
                             "\"mlp_only_layers\": [1, 0], \"qkv_bias\": false"),
    TEXT ("qwen2_moe", "16", "16") ",qkv_bias=off,experts=8,topk=3,expert_ffn=10,shared_ffn=20,"
                                   "dense_layers=2,moe_every=2" },
  { WITH ("qwen2_moe", SMALL ", \"norm_topk_prob\": true"),
    TEXT ("qwen2_moe", "16", "16") ",pre_softmax=off" },
  { WITH ("qwen3_moe", SMALL), TEXT ("qwen3_moe", "4", "16") ",pre_softmax=on" },
  { WITH ("qwen3_moe", SMALL ", \"num_local_experts\": 32"),
    TEXT ("qwen3_moe", "4", "16") ",experts=32,pre_softmax=on" },
  { WITH ("qwen3_moe", SMALL ", \"head_dim\": 64, \"mlp_only_layers\": [], "
                             "\"attention_bias\": true, \"norm_topk_prob\": true"),
    TEXT ("qwen3_moe", "4", "64") ",qkv_bias=on,proj_bias=on" },
  { WITH ("deepseek_v3", SMALL), TEXT ("deepseek_v3", "32", "192") },
  { WITH ("deepseek_v3",
          SMALL ", \"q_lora_rank\": null, \"kv_lora_rank\": 11, \"qk_nope_head_dim\": 7, "
                "\"qk_rope_head_dim\": 6, \"v_head_dim\": 5, \"n_routed_experts\": 16, "
                "\"n_shared_experts\": 2, \"moe_intermediate_size\": 30, "
                "\"num_experts_per_tok\": 4, \"first_k_dense_replace\": 0, "
                "\"num_nextn_predict_layers\": 1, \"topk_method\": \"greedy\""),
    TEXT ("deepseek_v3", "32", "13") ",experts=16,topk=4,expert_ffn=30,shared_ffn=60,"
                                     "dense_layers=0,router_bias=off,router_groups=0,"
                                     "router_group_topk=0,q_lora=0,kv_lora=11,"
                                     "nope_dim=7,rope_dim=6,v_dim=5,mtp=1" },
  { WITH ("deepseek_v2", SMALL), TEXT ("deepseek_v2", "32", "192") },
  { WITH ("deepseek_v2", SMALL ", \"scoring_func\": \"sigmoid\", \"n_group\": 4, "
                               "\"topk_group\": 2, \"topk_method\": \"group_limited_greedy\", "
                               "\"routed_scaling_factor\": 16.0"),
    TEXT ("deepseek_v2", "32", "192") ",router_score=sigmoid,pre_softmax=off,router_groups=4,"
                                      "router_group_topk=2,router_scale=16" },
  { WITH ("kimi_k2", SMALL ", \"n_group\": 1, \"topk_group\": 1"), TEXT ("kimi_k2", "32", "192") },
  { WITH ("kimi_k2", SMALL ", \"rope_theta\": 1000000, \"n_shared_experts\": null"),
    TEXT ("kimi_k2", "32", "192") ",rope_theta=1000000,shared_ffn=0" },
  { WITH ("glm4_moe", SMALL), TEXT ("glm4_moe", "8", "128") },
  { WITH ("glm4_moe", SMALL ", \"attention_bias\": true, \"use_qk_norm\": true, "
                            "\"n_shared_experts\": 2, \"partial_rotary_factor\": 1, "
                            "\"routed_scaling_factor\": 2.5, \"num_nextn_predict_layers\": 1"),
    TEXT ("glm4_moe", "8", "128") ",qk_norm=on,qkv_bias=on,rope_fraction=1,shared_ffn=2816,"
                                  "router_scale=2.5,mtp=1" },
#define WIDE SMALL ", \"intermediate_size_mlp\": 200"
#define LLAMA4(family) \
  "family=" family ",layers=6,hidden=512,ffn=200,heads=32,kv_heads=8,head_dim=128,vocab=100," \
  "max_seq=50"
  { WITH ("llama4_text", WIDE), LLAMA4 ("llama4_text") ",expert_ffn=96,shared_ffn=96" },
  { WITH ("llama4_text",
          WIDE ", \"no_rope_layers\": [1, 1, 0, 1, 1, 0, 1], \"use_qk_norm\": false, "
               "\"moe_layers\": [1, 3, 5], \"interleave_moe_layer_step\": 2, "
               "\"num_local_experts\": 4, \"num_experts_per_tok\": 2, \"layer_types\": ["
               "\"chunked_attention\", \"chunked_attention\", \"full_attention\", "
               "\"chunked_attention\", \"chunked_attention\", \"full_attention\"], "
               "\"attention_chunk_size\": 16, \"rope_scaling\": {\"rope_type\": \"llama3\", "
               "\"factor\": 16.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": 1.0, "
               "\"original_max_position_embeddings\": 8192}"),
    LLAMA4 ("llama4_text") ",qk_l2_norm=off,rope_scaling=llama3,rope_factor=16,rope_original=8192,"
                           "rope_slow=1,rope_fast=1,window=16,full_every=3,nope_every=3,experts=4,"
                           "topk=2,expert_ffn=96,shared_ffn=96,moe_every=2" },
  { WITH ("llama4_text", WIDE ", \"no_rope_layers\": [1, 1, 1, 1, 1, 1]"),
    LLAMA4 ("llama4_text") ",qk_l2_norm=all,full_every=0,nope_every=0,expert_ffn=96,"
                           "shared_ffn=96" },
  { WITH ("llama4_text", WIDE ", \"attention_chunk_size\": null, \"no_rope_layers\": []"),
    LLAMA4 ("llama4_text") ",window=0,full_every=0,window_chunks=off,expert_ffn=96,shared_ffn=96" },
  /* clang-format off */
  { WITH ("seed_oss", SMALL), TEXT ("seed_oss", "8", "128") },
  { WITH ("seed_oss", SMALL ", \"attention_bias\": false, \"attention_out_bias\": true, \"mlp_bias\": true, "
          "\"residual_dropout\": 0.1"), TEXT ("seed_oss", "8", "128") ",qkv_bias=off,proj_bias=on,mlp_bias=on" },
  { WITH ("smollm3", SMALL), TEXT ("smollm3", "4", "16") },
  { WITH ("smollm3", SMALL ", \"no_rope_layers\": [1, 0, 1, 0, 1, 0], \"rope_theta\": 5000000.0, "
          "\"use_sliding_window\": false, \"sliding_window\": null, \"max_window_layers\": 28, "
          "\"tie_word_embeddings\": false"), TEXT ("smollm3", "4", "16") ",rope_theta=5000000,tied=off,nope_every=2" },
  { WITH ("ernie4_5", SMALL), TEXT ("ernie4_5", "2", "128") },
  { WITH ("ernie4_5", SMALL ", \"use_bias\": true, \"tie_word_embeddings\": false"),
    TEXT ("ernie4_5", "2", "128") ",tied=off,qkv_bias=on,proj_bias=on,mlp_bias=on" },
  { WITH ("glm4", SMALL), TEXT ("glm4", "2", "128") },
  { WITH ("glm4", SMALL ", \"attention_bias\": false, \"partial_rotary_factor\": 1.0, \"rms_norm_eps\": 1e-05"),
    TEXT ("glm4", "2", "128") ",norm_eps=1e-05,qkv_bias=off,rope_fraction=1" },
  { WITH ("arcee", SMALL), TEXT ("arcee", "32", "16") },
  { WITH ("arcee", SMALL ", \"hidden_act\": \"silu\", \"mlp_bias\": true"),
    TEXT ("arcee", "32", "16") ",activation=silu,mlp_bias=on" },
  { WITH ("starcoder2", SMALL), TEXT ("starcoder2", "2", "16") },
  { WITH ("starcoder2", SMALL ", \"use_bias\": false, \"sliding_window\": 40, \"norm_epsilon\": 0.001, "
          "\"embedding_dropout\": 0.1"),
    TEXT ("starcoder2", "2", "16") ",norm_eps=0.001,qkv_bias=off,proj_bias=off,mlp_bias=off,window=40" },
  { WITH ("nemotron", SMALL), TEXT ("nemotron", "32", "16") },
  { WITH ("nemotron", SMALL ", \"norm_eps\": 0.001, \"partial_rotary_factor\": 0.25, \"mlp_bias\": true"),
    TEXT ("nemotron", "32", "16") ",norm_eps=0.001,mlp_bias=on,rope_fraction=0.25" },
  { WITH ("dots1", SMALL), TEXT ("dots1", "32", "16") },
  { WITH ("dots1", SMALL ", \"n_routed_experts\": 8, \"n_shared_experts\": 2, \"first_k_dense_replace\": 1, "
          "\"routed_scaling_factor\": 2.5, \"scoring_func\": \"noaux_tc\", \"max_window_layers\": 4, "
          "\"sliding_window\": 20, \"moe_layer_freq\": 1, \"n_group\": 1, \"topk_group\": 1, \"norm_topk_prob\": true"),
    TEXT ("dots1", "32", "16") ",window=20,window_from=4,experts=8,shared_ffn=2816,dense_layers=1,router_scale=2.5" },
  { WITH ("glm4_moe_lite", SMALL), TEXT ("glm4_moe_lite", "32", "256") },
  { WITH ("glm4_moe_lite", SMALL ", \"mlp_layer_types\": [\"dense\", \"dense\", \"sparse\", \"sparse\", \"sparse\", "
          "\"sparse\"], \"qk_head_dim\": 256"), TEXT ("glm4_moe_lite", "32", "256") ",dense_layers=2" },
  { WITH ("olmoe", SMALL), TEXT ("olmoe", "32", "16") ",expert_ffn=96" },
  { WITH ("olmoe", SMALL ", \"clip_qkv\": null, \"num_experts\": 8, \"norm_topk_prob\": true"),
    TEXT ("olmoe", "32", "16") ",experts=8,expert_ffn=96,pre_softmax=off" },
  { WITH ("minimax_m2", SMALL), TEXT ("minimax_m2", "8", "128") ",expert_ffn=96" },
  { WITH ("minimax_m2", SMALL ", \"rotary_dim\": 128, \"use_qk_norm\": false, \"num_local_experts\": 8, "
          "\"qk_norm_type\": \"per_layer\""),
    TEXT ("minimax_m2", "8", "128") ",qk_norm=off,rope_fraction=1,experts=8,expert_ffn=96" },
  /* clang-format on */
  { "{\"model_type\": \"llama4\", \"text_config\": {" WIDE ", \"head_dim\": 64}, "
    "\"vision_config\": {\"hidden_size\": 1408}, \"image_token_index\": 200092}",
    "family=llama4_text,layers=6,hidden=512,ffn=200,heads=32,kv_heads=8,head_dim=64,vocab=100,"
    "max_seq=50,name=custom-text,expert_ffn=96,shared_ffn=96" },
  { WITH ("gpt_oss", SMALL),
    TEXT ("gpt_oss", "8", "64") ",rope_scaling=yarn,rope_factor=32,rope_original=4096,rope_slow=1,"
                                "rope_fast=32,rope_fractional=on,expert_ffn=96" },
  { WITH ("gpt_oss", SMALL ", \"num_local_experts\": 32, \"attention_bias\": false, "
                           "\"swiglu_limit\": 3.5, \"rope_scaling\": {\"rope_type\": \"default\"}, "
                           "\"layer_types\": [\"full_attention\", \"sliding_attention\", "
                           "\"full_attention\", \"full_attention\", \"sliding_attention\", "
                           "\"full_attention\"]"),
    TEXT ("gpt_oss", "8",
          "64") ",glu_limit=3.5,qkv_bias=off,proj_bias=off,window_from=1,window_every=3,"
                "experts=32,expert_ffn=96" },
};

/* Files with every key that the published files of a family have. */
static const char *const published[] = {
#define USUAL \
  SMALL ", \"architectures\": [\"X\"], \"bos_token_id\": 1, \"eos_token_id\": [1, 2], " \
        "\"initializer_range\": 0.02, \"torch_dtype\": \"bfloat16\", \"use_cache\": true, " \
        "\"transformers_version\": \"4.43.1\", \"attention_dropout\": 0.0"
  WITH ("llama", USUAL ", \"hidden_act\": \"silu\", \"pretraining_tp\": 1, \"mlp_bias\": false, "
                       "\"rope_scaling\": {" LLAMA3 "}"),
  WITH ("mistral", USUAL ", \"hidden_act\": \"silu\", \"sliding_window\": 4096"),
  WITH ("qwen2", USUAL ", \"max_window_layers\": 28, \"use_mrope\": null, "
                       "\"use_sliding_window\": false, \"sliding_window\": 131072"),
  WITH ("gemma2", USUAL ", \"cache_implementation\": \"hybrid\", \"hidden_act\": \"gelu\", "
                        "\"sliding_window_size\": 4096, \"pad_token_id\": 0"),
  WITH ("gpt2",
        "\"n_layer\": 2, \"n_embd\": 24, \"n_head\": 3, \"vocab_size\": 100, \"n_positions\": 50, "
        "\"attn_pdrop\": 0.1, \"embd_pdrop\": 0.1, \"n_ctx\": 1024, \"resid_pdrop\": 0.1, "
        "\"summary_activation\": null, \"summary_first_dropout\": 0.1, \"summary_type\": \"a\", "
        "\"summary_proj_to_labels\": true, \"summary_use_proj\": true, "
        "\"task_specific_params\": {\"text-generation\": {\"max_length\": 50}}"),
  WITH ("gpt_neox", USUAL ", \"classifier_dropout\": 0.1, \"hidden_dropout\": 0.0"),
  WITH (
      "mpt",
      "\"n_layers\": 2, \"d_model\": 24, \"n_heads\": 3, \"vocab_size\": 100, \"max_seq_len\": 50, "
      "\"attn_config\": {\"alibi\": true, \"alibi_bias_max\": 8, \"attn_impl\": \"torch\", "
      "\"attn_pdrop\": 0, \"attn_type\": \"multihead_attention\", \"clip_qkv\": null, "
      "\"attn_uses_sequence_id\": false, \"prefix_lm\": false, \"qk_ln\": false, "
      "\"softmax_scale\": null}, \"emb_pdrop\": 0, \"embedding_fraction\": 1.0, "
      "\"init_config\": {\"name\": \"kaiming_normal_\"}, \"init_device\": \"cpu\", "
      "\"learned_pos_emb\": true, \"logit_scale\": null, \"no_bias\": true, "
      "\"norm_type\": \"low_precision_layernorm\", \"resid_pdrop\": 0, \"verbose\": 0, "
      "\"tokenizer_name\": \"EleutherAI/gpt-neox-20b\", \"auto_map\": {}"),
  WITH ("phi3", USUAL ", \"auto_map\": {}, \"embd_pdrop\": 0.0, \"resid_pdrop\": 0.0, "
                      "\"original_max_position_embeddings\": 4096, \"rope_scaling\": null, "
                      "\"attention_bias\": false, \"_name_or_path\": \"Phi-3\""),
  WITH ("gpt_oss", USUAL ", \"experts_per_token\": 4, \"hidden_act\": \"silu\", "
                         "\"initial_context_length\": 4096, \"swiglu_limit\": 7.0, "
                         "\"quantization_config\": {\"quant_method\": \"mxfp4\", "
                         "\"modules_to_not_convert\": [\"lm_head\"]}"),
  WITH ("mixtral", USUAL ", \"output_router_logits\": false, \"router_aux_loss_coef\": 0.02, "
                         "\"router_jitter_noise\": 0.0, \"sliding_window\": null"),
  "{\"architectures\": [\"Llama4ForConditionalGeneration\"], \"model_type\": \"llama4\", "
  "\"boi_token_index\": 1, \"eoi_token_index\": 2, \"tie_word_embeddings\": false, "
  "\"torch_dtype\": \"bfloat16\", \"text_config\": {\"model_type\": \"llama4_text\", " USUAL
  ", \"intermediate_size_mlp\": 200, \"attention_bias\": false, \"attn_scale\": 0.1, "
  "\"attn_temperature_tuning\": 4, \"cache_implementation\": \"hybrid\", \"floor_scale\": 8192, "
  "\"for_llm_compressor\": false, \"no_rope_layer_interval\": 4, \"moe_layers\": "
  "[0, 1, 2, 3, 4, 5], \"output_router_logits\": false, \"router_aux_loss_coef\": 0.001, "
  "\"router_jitter_noise\": 0.0, \"_attn_implementation_autoset\": true}}",
  "{\"architectures\": [\"Gemma3ForConditionalGeneration\"], \"model_type\": \"gemma3\", "
  "\"mm_tokens_per_image\": 256, \"image_token_index\": 262144, \"vision_config\": {}, "
  "\"text_config\": {\"hidden_size\": 2560, \"intermediate_size\": 10240, "
  "\"model_type\": \"gemma3_text\", \"num_hidden_layers\": 34, \"sliding_window\": 1024, "
  "\"rope_scaling\": {\"factor\": 8.0, \"rope_type\": \"linear\"}}}",
  "{\"model_type\": \"mistral3\", \"multimodal_projector_bias\": false, "
  "\"projector_hidden_act\": \"gelu\", \"spatial_merge_size\": 2, \"vision_feature_layer\": -1, "
  "\"text_config\": {\"model_type\": \"mistral\", \"sliding_window\": null, " USUAL "}}",
  WITH ("qwen2_moe", USUAL ", \"norm_topk_prob\": false, \"max_window_layers\": 21, "
                           "\"sliding_window\": 32768, \"use_sliding_window\": false"),
  WITH ("deepseek_v3",
        USUAL ", \"aux_loss_alpha\": 0.001, \"ep_size\": 1, \"n_group\": 8, \"seq_aux\": true, "
              "\"norm_topk_prob\": true, \"quantization_config\": {\"quant_method\": \"fp8\", "
              "\"activation_scheme\": \"dynamic\", \"weight_block_size\": [128, 128]}, "
              "\"routed_scaling_factor\": 2.5, \"scoring_func\": \"sigmoid\", "
              "\"topk_group\": 4, \"pretraining_tp\": 1"),
};

START_TEST (published_files_pass)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanModel) model
      = plan_model_parse_config (published[_i], strlen (published[_i]), "config.json", &error);
  ck_assert_msg (model != NULL, "%s", error ? error->message : "");
}
END_TEST

START_TEST (config_of_family) { check_config_is_read (configs[_i].config, configs[_i].text); }
END_TEST

START_TEST (every_family_has_a_config)
{
  for (const char *const *family = plan_model_families (); *family; family++)
    {
      g_autofree char *begin = g_strdup_printf ("family=%s,", *family);
      guint n = 0;
      for (guint i = 0; i < G_N_ELEMENTS (configs); i++)
        n += g_str_has_prefix (configs[i].text, begin);
      const gboolean is_elsewhere = strstr (*family, "qwen3_next") || strstr (*family, "qwen3_5")
                                    || strstr (*family, "nemotron_h");
      ck_assert_msg (n >= 2 || is_elsewhere, "%s has %u configs", *family, n);
    }
}
END_TEST

/* A config.json that is written for a model reads back as the same model. */
START_TEST (config_is_written)
{
  const char *const config = configs[_i].config;
  g_autoptr (PlanModel) model
      = plan_model_parse_config (config, strlen (config), "config.json", NULL);
  g_autoptr (GError) error = NULL;
  g_autofree char *type = g_strdup_printf ("\"model_type\": \"%s\"", model->family);
  PlanArchitecture architecture;
  g_autofree char *text = plan_model_print_config (model, PLAN_DTYPE_BF16, &architecture, &error);
  static const char *const families[]
      = { "llama",       "mistral", "qwen2",    "qwen3",  "gpt2",  "gemma",     "gemma2",
          "gemma3_text", "phi3",    "gpt_neox", "falcon", "bloom", "qwen2_moe", NULL };
  const gboolean is_unsaid /* transformers has one activation for gemma */
      = g_str_equal (model->family, "gemma") && model->activation != PLAN_ACTIVATION_GELU_TANH;
  if (!g_strv_contains (families, model->family) || is_unsaid)
    return;
  ck_assert_msg (text != NULL, "%s", error ? error->message : "");
  ck_assert_ptr_nonnull (strstr (text, type));
  g_autoptr (PlanModel) again
      = plan_model_parse_config (text, strlen (text), "config.json", &error);
  g_autofree char *print = plan_model_print (again);
  ck_assert_str_eq (print, configs[_i].text);
}
END_TEST

static const struct
{
  const char *keys, *message;
  int code;
} bad_configs[] = {
  { ALL ", \"attention_bias\": \"no\"",
    "c.json: attention_bias: '\"no\"' is neither true nor false", PLAN_ERROR_INVALID },
  { ALL ", \"mlp_bias\": 1", "c.json: mlp_bias: '1' is neither true nor false",
    PLAN_ERROR_INVALID },
  { HEADS, "c.json: num_hidden_layers: missing", PLAN_ERROR_INVALID },
  { SIZES, "c.json: num_attention_heads: missing", PLAN_ERROR_INVALID },
  { ALL ", \"vocab_size\": 5", "c.json:1: 'vocab_size': given twice", PLAN_ERROR_INVALID },
  { ALL ", \"vocab\\u005fsize\": 5", "c.json:1: 'vocab_size': given twice", PLAN_ERROR_INVALID },
  { ALL ", \"rope_scaling\": {\"a\": 1, \"a\": 2}", "c.json:1: 'a': given twice",
    PLAN_ERROR_INVALID },
  { SIZES ", \"num_attention_heads\": 0", "num_attention_heads: '0' is out of range",
    PLAN_ERROR_INVALID },
  { SIZES ", \"num_attention_heads\": -32", "num_attention_heads: '-32' is out of range",
    PLAN_ERROR_INVALID },
  { SIZES ", \"num_attention_heads\": 32.0", "num_attention_heads: '32.0' is not a whole number",
    PLAN_ERROR_INVALID },
  { SIZES ", \"num_attention_heads\": \"32\"",
    "num_attention_heads: '\"32\"' is not a whole number", PLAN_ERROR_INVALID },
  { SIZES ", \"num_attention_heads\": [32]", "num_attention_heads: '[32]' is not a whole number",
    PLAN_ERROR_INVALID },
  { SIZES ", \"num_attention_heads\": 3000000000",
    "'3000000000' is out of range: it must be from 1", PLAN_ERROR_INVALID },
  { SIZES ", \"num_attention_heads\": 18446744073709551648",
    "'num_attention_heads': a number past 64 bits", PLAN_ERROR_INVALID },
  { SIZES ", \"num_attention_heads\": 0x20", "'num_attention_heads': a number must be decimal",
    PLAN_ERROR_INVALID },
  { SIZES ", \"num_attention_heads\": 040", "without leading zeros", PLAN_ERROR_INVALID },
  { SIZES ", \"num_attention_heads\": NaN", "neither a value nor punctuation of JSON",
    PLAN_ERROR_INVALID },
  { SIZES ", \"num_attention_heads\": 3.", "digits behind its point", PLAN_ERROR_INVALID },
  { SIZES ", \"num_attention_heads\": 3e", "digits in its exponent", PLAN_ERROR_INVALID },
  { SIZES ", \"num_attention_heads\": 31",
    "num_attention_heads: 31 does not divide hidden_size=4096", PLAN_ERROR_INVALID },
  { SIZES ", \"num_attention_heads\": 32, \"num_key_value_heads\": 5",
    "num_key_value_heads: 5 does not divide num_attention_heads=32", PLAN_ERROR_INVALID },
  { ALL ", \"head_dim\": 7", "c.json: head_dim: 7 is odd", PLAN_ERROR_INVALID },
  { ALL ", \"rms_norm_eps\": \"x\"", "rms_norm_eps: '\"x\"' is not a number", PLAN_ERROR_INVALID },
  { ALL ", \"rms_norm_eps\": 0",
    "c.json: rms_norm_eps: 0 is out of range: it must be from 1e-12 to 1", PLAN_ERROR_INVALID },
  { ALL ", \"rope_theta\": 1e400", "rope_theta: inf is out of range: it must be from 1 to",
    PLAN_ERROR_INVALID },
  { ALL ", \"rope_parameters\": 5", "rope_parameters: '5' is not an object", PLAN_ERROR_INVALID },
#define SCALING(keys) ALL ", \"rope_scaling\": {" keys "}"
  { SCALING ("\"factor\": 8"), "rope_scaling: rope_type: missing beside factor",
    PLAN_ERROR_INVALID },
  { SCALING ("\"type\": \"linear\""), "rope_scaling: factor: missing", PLAN_ERROR_INVALID },
#define LONG "\"type\": \"longrope\", \"original_max_position_embeddings\": 4096, "
  { SCALING (LONG "\"factor\": 2"), "rope_scaling: short_factor: missing", PLAN_ERROR_INVALID },
  { SCALING (LONG "\"short_factor\": [1, \"x\"]"),
    "rope_scaling: short_factor: '\"x\"' is not a number from 1e-06 to 1000000",
    PLAN_ERROR_INVALID },
  { SCALING (LONG "\"short_factor\": [1, 2], \"long_factor\": 3"),
    "rope_scaling: long_factor: '3' is not a list of at most 128 numbers", PLAN_ERROR_INVALID },
  { SCALING (LONG "\"short_factor\": [1, 2], \"long_factor\": [3, 4]"),
    "c.json: rope_short: 2 factors, but rotary positions turn 64 pairs", PLAN_ERROR_INVALID },
  { SCALING (LONG "\"short_factor\": [1, 2], \"long_factor\": [3]"),
    "c.json: rope_short, rope_long: must have a factor each for as many pairs",
    PLAN_ERROR_INVALID },
  { SCALING ("\"type\": \"mrope\""),
    "c.json: rope_scaling: rope_type: 'mrope' is not modelled; known are default, linear",
    PLAN_ERROR_UNSUPPORTED },
  { SCALING ("\"full_attention\": {}"),
    "rope_scaling: 'full_attention' is not a key that is read here", PLAN_ERROR_UNSUPPORTED },
  { SCALING ("\"type\": \"yarn\", \"factor\": 4, \"mscale\": 1"),
    "rope_scaling: mscale: without mscale_all_dim", PLAN_ERROR_UNSUPPORTED },
  { SCALING ("\"type\": \"yarn\", \"factor\": 4, \"attention_factor\": 1"),
    "rope_scaling: attention_factor: 1 is not modelled: only what factor and mscale say, 1.13",
    PLAN_ERROR_UNSUPPORTED },
  { SCALING ("\"type\": \"llama3\", \"factor\": 4"),
    "c.json: rope_original: missing, and rope_scaling=llama3 needs it", PLAN_ERROR_INVALID },
  { SCALING ("") ", \"rope_parameters\": {}", "rope_scaling and rope_parameters say the same",
    PLAN_ERROR_INVALID },
  { ALL ", \"logit_scale\": 0.5", "c.json: 'logit_scale' is not a key that is read here",
    PLAN_ERROR_UNSUPPORTED },
  { ALL ", \"sliding_window\": 7", "'sliding_window' is not a key that is read here",
    PLAN_ERROR_UNSUPPORTED },
  { ALL ", \"partial_rotary_factor\": 0.5",
    "partial_rotary_factor: '0.5' is not modelled for this family: it must be 1",
    PLAN_ERROR_UNSUPPORTED },
  { ALL ", \"layer_types\": [\"full_attention\", \"sliding_attention\"]",
    "layer_types: '[\"full_attention\",\"sliding_attention\"]' is not modelled for this family",
    PLAN_ERROR_UNSUPPORTED },
  { ALL ", \"quantization_config\": {\"quant_method\": \"bitnet\"}",
    "quantization_config: quant_method is not fp8", PLAN_ERROR_UNSUPPORTED },
  { ALL ", \"quantization_config\": []", "quantization_config: '[]' is not an object",
    PLAN_ERROR_INVALID },
  { ALL ", \"a\": [1", "not JSON", PLAN_ERROR_INVALID },
  { ALL "}} ", "text after the end", PLAN_ERROR_INVALID },
  { ALL ", // comment", "neither a value nor punctuation", PLAN_ERROR_INVALID },
  { ALL ", \"a\": \"\\ud800\"", "half of a surrogate pair", PLAN_ERROR_INVALID },
  { ALL ", \"a\": \"\\udc00\"", "a broken \\u escape", PLAN_ERROR_INVALID },
  { ALL ", \"a\": \"\\u12g4\"", "a broken \\u escape", PLAN_ERROR_INVALID },
  { ALL ", \"a\": \"\\x\"", "an unknown escape", PLAN_ERROR_INVALID },
  { ALL ", \"a\": \"b\nc\"", "'a': a string is not closed on its line", PLAN_ERROR_INVALID },
};

START_TEST (refuses_config)
{
  g_autofree char *text = config_with (bad_configs[_i].keys);
  check_config_is_refused (text, bad_configs[_i].message, bad_configs[_i].code);
}
END_TEST

static const struct
{
  const char *text, *message;
  int code;
} bad_texts[] = {
  { "", "c.json: not", PLAN_ERROR_INVALID },
  { "null", "c.json: not a JSON object", PLAN_ERROR_INVALID },
  { "[]", "c.json: not a JSON object", PLAN_ERROR_INVALID },
  { "]", "c.json:1:1: a bracket is closed that was not opened", PLAN_ERROR_INVALID },
  { "{\"model_type\": \n\"llama\" \"x\"}", "c.json:2:", PLAN_ERROR_INVALID },
  { "{}", "c.json: model_type: missing", PLAN_ERROR_INVALID },
  { WITH ("gpt2", "\"n_layer\": 2, \"n_embd\": 24, \"n_head\": 3, \"vocab_size\": 100, "
                  "\"n_positions\": 50, \"scale_attn_weights\": false"),
    "c.json: scale_attn_weights: 'false' is not modelled for this family: it must be true",
    PLAN_ERROR_UNSUPPORTED },
  { WITH ("gpt2", "\"n_layer\": 2, \"n_embd\": 24, \"n_head\": 3, \"vocab_size\": 100, "
                  "\"n_positions\": 50, \"scale_attn_by_inverse_layer_idx\": true"),
    "c.json: scale_attn_by_inverse_layer_idx: 'true' is not modelled", PLAN_ERROR_UNSUPPORTED },
  { WITH ("mpt", "\"n_layers\": 2, \"d_model\": 24, \"n_heads\": 3, \"vocab_size\": 100, "
                 "\"max_seq_len\": 50, \"attn_config\": {\"clip_qkv\": 8}"),
    "c.json: attn_config: 'clip_qkv' is not a key that is read here", PLAN_ERROR_UNSUPPORTED },
  { "{\"model_type\": 5}", "c.json: model_type: '5' is not a string", PLAN_ERROR_INVALID },
  { "{\"model_type\": \"kimi_linear\"}",
    "c.json: model_type: 'kimi_linear' is not planned by this version: it has layers of linear "
    "attention",
    PLAN_ERROR_UNSUPPORTED },
  { "{\"model_type\": \"qwen2_5_vl\"}",
    "c.json: model_type: 'qwen2_5_vl' is not planned by this version: it sees images, or hears",
    PLAN_ERROR_UNSUPPORTED },
  { "{\"model_type\": \"deepseek_v5\"}",
    "c.json: model_type: 'deepseek_v5' is not a family this version knows: did you mean "
    "'deepseek_v2'? known are llama, mistral, qwen2, qwen3, gemma, gemma2, gemma3_text, gpt2, ",
    PLAN_ERROR_UNSUPPORTED },
  { "{\"model_type\": \"ctrl\"}",
    "c.json: model_type: 'ctrl' is not a family this version knows: known are llama, mistral",
    PLAN_ERROR_UNSUPPORTED },
  { WITH ("llama", SMALL ", \"hidden_act\": \"tanh\""),
    "c.json: hidden_act: 'tanh' is not modelled; known are silu, swish, gelu, gelu_new, gelu_fast, "
    "gelu_pytorch_tanh, relu, relu2, quick_gelu",
    PLAN_ERROR_UNSUPPORTED },
  { WITH ("llama", SMALL ", \"hidden_act\": 5"), "c.json: hidden_act: '5' is not a string",
    PLAN_ERROR_INVALID },
  { WITH ("llama", "\"num_hidden_layers\": 6, \"hidden_size\": 64, \"intermediate_size\": 96, "
                   "\"num_attention_heads\": 4, \"vocab_size\": 0"),
    "c.json: vocab_size: '0' is out of range: it must be from 1 to 2147483647",
    PLAN_ERROR_INVALID },
  { WITH ("mistral", "\"num_hidden_layers\": 6, \"hidden_size\": 60, \"intermediate_size\": 96, "
                     "\"num_attention_heads\": 6"),
    "c.json: num_key_value_heads: 8, the family's default, does not divide num_attention_heads=6",
    PLAN_ERROR_INVALID },
  { WITH ("mistral", SMALL ", \"sliding_window\": -1"),
    "c.json: sliding_window: '-1' is out of range: it must be from 0", PLAN_ERROR_INVALID },
  { WITH ("qwen2", SMALL ", \"use_sliding_window\": 1"),
    "c.json: use_sliding_window: '1' is neither true nor false", PLAN_ERROR_INVALID },
  { WITH ("qwen2", SMALL ", \"layer_types\": 3"),
    "c.json: layer_types: '3' is not a list of a word for every layer", PLAN_ERROR_INVALID },
  { WITH ("qwen2", SMALL ", \"layer_types\": [\"full_attention\"]"),
    "is not a list of a word for every layer", PLAN_ERROR_INVALID },
  { WITH ("gemma2", SMALL ", \"layer_types\": [1, 2, 3, 4, 5, 6]"),
    "c.json: layer_types: '1' is neither full_attention nor sliding_attention",
    PLAN_ERROR_INVALID },
  { WITH ("gemma2", SMALL ", \"layer_types\": [\"sliding_attention\", \"sliding_attention\", "
                          "\"full_attention\", \"full_attention\", \"full_attention\", "
                          "\"full_attention\"]"),
    "c.json: layer_types: only sliding layers at equal distances, or full ones among them, are "
    "modelled, layer 2 breaks them",
    PLAN_ERROR_UNSUPPORTED },
  { WITH ("qwen2", SMALL ", \"layer_types\": [\"sliding_attention\", \"full_attention\", "
                         "\"full_attention\", \"full_attention\", \"full_attention\", "
                         "\"full_attention\"]"),
    "c.json: layer_types: has sliding_attention, but there is no sliding_window",
    PLAN_ERROR_UNSUPPORTED },
  { WITH ("gemma2", SMALL ", \"attn_logit_softcapping\": \"x\""),
    "c.json: attn_logit_softcapping: '\"x\"' is not a number", PLAN_ERROR_INVALID },
  { WITH ("gpt2", SMALL), "c.json: n_layer: missing", PLAN_ERROR_INVALID },
  { WITH ("gpt2", "\"n_layer\": 2, \"n_embd\": 1000000000"),
    "c.json: n_inner: the MLP would be 4000000000 wide: it must be from 1 to 2147483647",
    PLAN_ERROR_INVALID },
  { WITH ("mpt", "\"n_layers\": 2, \"d_model\": 24, \"expansion_ratio\": 0"),
    "c.json: expansion_ratio: the MLP would be 0 wide", PLAN_ERROR_INVALID },
  { WITH ("mpt", "\"n_layers\": 2, \"d_model\": 24, \"expansion_ratio\": 1e300"),
    "c.json: expansion_ratio: the MLP would be 2.4e+301 wide: it must be from 1 to 2147483647",
    PLAN_ERROR_INVALID },
  { WITH ("mixtral", SMALL ", \"num_local_experts\": 65537"),
    "c.json: num_local_experts: 65537 is out of range: it must be from 0 to 65536",
    PLAN_ERROR_INVALID },
  { WITH ("mpt", "\"n_layers\": 2, \"d_model\": 25, \"n_heads\": 3"),
    "c.json: n_heads: 3 does not divide d_model=25, and there is no head_dim", PLAN_ERROR_INVALID },
  { WITH ("mpt", "\"n_layers\": 2, \"d_model\": 24, \"n_heads\": 3, \"vocab_size\": 5, "
                 "\"max_seq_len\": 5, \"attn_config\": {\"qk_ln\": true}"),
    "c.json: qk_ln: true is not modelled", PLAN_ERROR_UNSUPPORTED },
  { WITH ("mpt", "\"n_layers\": 2, \"d_model\": 24, \"n_heads\": 3, \"vocab_size\": 5, "
                 "\"max_seq_len\": 5, \"attn_config\": {\"attn_type\": \"sparse\"}"),
    "c.json: attn_type: 'sparse' is not modelled; known are multihead_attention",
    PLAN_ERROR_UNSUPPORTED },
  { WITH ("mpt", "\"n_layers\": 2, \"d_model\": 24, \"n_heads\": 3, \"vocab_size\": 5, "
                 "\"max_seq_len\": 5, \"attn_config\": []"),
    "c.json: attn_config: '[]' is not an object", PLAN_ERROR_INVALID },
  { WITH ("gpt_neox", SMALL ", \"rotary_pct\": 0.1"),
    "c.json: rotary_pct: rotary positions would turn 1 of head_dim=16, but they turn pairs",
    PLAN_ERROR_INVALID },
  { WITH ("gpt_neox", SMALL ", \"rotary_pct\": 2"),
    "c.json: rotary_pct: 2 is out of range: it must be from 1e-06 to 1", PLAN_ERROR_INVALID },
  { WITH ("mixtral", SMALL ", \"output_router_logits\": true"),
    "c.json: output_router_logits: 'true' is not modelled for this family: it must be false",
    PLAN_ERROR_UNSUPPORTED },
  { WITH ("mixtral", SMALL ", \"router_jitter_noise\": 0.01"),
    "c.json: router_jitter_noise: '0.01' is not modelled for this family: it must be 0",
    PLAN_ERROR_UNSUPPORTED },
  { WITH ("gemma", SMALL ", \"hidden_act\": \"silu\""),
    "c.json: hidden_act: '\"silu\"' is not modelled for this family: it must be "
    "gelu|gelu_pytorch_tanh",
    PLAN_ERROR_UNSUPPORTED },
  { WITH ("mixtral", SMALL ", \"num_experts_per_tok\": 9"),
    "c.json: num_experts_per_tok: 9 is out of range: it must be from 1 to experts=8",
    PLAN_ERROR_INVALID },
  { WITH ("qwen2_moe", SMALL ", \"use_sliding_window\": true"),
    "c.json: use_sliding_window: true is not modelled for this family", PLAN_ERROR_UNSUPPORTED },
  { WITH ("qwen2_moe", SMALL ", \"mlp_only_layers\": 1"),
    "c.json: mlp_only_layers: '1' is not a list of layers", PLAN_ERROR_INVALID },
  { WITH ("qwen2_moe", SMALL ", \"mlp_only_layers\": [6]"),
    "c.json: mlp_only_layers: '6' is not a layer of the model", PLAN_ERROR_INVALID },
  { WITH ("qwen2_moe", SMALL ", \"mlp_only_layers\": [0, 3]"),
    "c.json: mlp_only_layers: only a model's first layers may be without experts",
    PLAN_ERROR_UNSUPPORTED },
  { WITH ("qwen3_moe", SMALL ", \"decoder_sparse_step\": 7"),
    "c.json: experts: none of layers=6 has them with dense_layers=0 and moe_every=7",
    PLAN_ERROR_INVALID },
  { WITH ("llama4_text", SMALL), "c.json: intermediate_size_mlp: missing", PLAN_ERROR_INVALID },
  { WITH ("llama4_text", WIDE ", \"moe_layers\": [0, 2]"),
    "c.json: moe_layers: only the last of every so many layers may have experts",
    PLAN_ERROR_UNSUPPORTED },
  { WITH ("llama4_text", WIDE ", \"moe_layers\": [\"all\"]"),
    "c.json: moe_layers: '\"all\"' is not a whole number", PLAN_ERROR_INVALID },
  { WITH ("llama4_text", WIDE ", \"no_rope_layers\": [1, 0, 1, 1, 0, 1]"),
    "c.json: no_rope_layers: only the last of every so many layers may have a 0, and others a 1: "
    "layer 3 breaks this",
    PLAN_ERROR_UNSUPPORTED },
  { WITH ("llama4_text", WIDE ", \"no_rope_layers\": [1, 0]"),
    "c.json: no_rope_layers: has 2 numbers for 6 layers", PLAN_ERROR_UNSUPPORTED },
  { WITH ("llama4_text", WIDE ", \"layer_types\": [\"full_attention\", \"full_attention\", "
                              "\"full_attention\", \"full_attention\", \"full_attention\", "
                              "\"full_attention\"]"),
    "c.json: layer_types: layers with rotary positions must be chunked_attention and others "
    "full_attention: layer 0 is not",
    PLAN_ERROR_UNSUPPORTED },
  { "{\"model_type\": \"llama4\"}", "c.json: text_config: missing, of a model of text and images",
    PLAN_ERROR_UNSUPPORTED },
  { "{\"model_type\": \"llama4\", \"text_config\": {\"vocab_size\": 5}}",
    "c.json: text_config: num_hidden_layers: missing", PLAN_ERROR_INVALID },
  { "{\"model_type\": \"gemma3\", \"tie_word_embeddings\": false, \"text_config\": {" SMALL "}}",
    "c.json: tie_word_embeddings: false, and true in text_config", PLAN_ERROR_UNSUPPORTED },
  { WITH ("glm4_moe_lite", SMALL ", \"mlp_layer_types\": [\"sparse\", \"dense\", \"sparse\", "
                                 "\"sparse\", \"sparse\", \"sparse\"]"),
    "mlp_layer_types: only a model's first layers may be dense", PLAN_ERROR_UNSUPPORTED },
  { WITH ("glm4_moe_lite", SMALL ", \"mlp_layer_types\": [\"dense\"]"),
    "mlp_layer_types: '[\"dense\"]' is not a list of a word for every layer", PLAN_ERROR_INVALID },
  { "{\"model_type\": \"llama4\", \"text_config\": {}, \"nonesuch\": 1}",
    "c.json: 'nonesuch' is not a key that is read here", PLAN_ERROR_UNSUPPORTED },
  { WITH ("deepseek_v3", SMALL ", \"attention_bias\": true"),
    "c.json: attention_bias: true is not modelled for latent attention", PLAN_ERROR_UNSUPPORTED },
  { WITH ("deepseek_v3", SMALL ", \"moe_layer_freq\": 2"),
    "c.json: moe_layer_freq: only 1 is modelled", PLAN_ERROR_UNSUPPORTED },
  { WITH ("deepseek_v3", SMALL ", \"n_shared_experts\": 2147483647"),
    "c.json: n_shared_experts: too many for moe_intermediate_size", PLAN_ERROR_UNSUPPORTED },
  { WITH ("deepseek_v3", SMALL ", \"num_key_value_heads\": 8"),
    "c.json: num_key_value_heads: 8 is not heads=32, as latent attention needs",
    PLAN_ERROR_INVALID },
  { WITH ("deepseek_v3", SMALL ", \"qk_rope_head_dim\": 3"),
    "c.json: qk_rope_head_dim: 3 is odd, but rotary positions turn pairs", PLAN_ERROR_INVALID },
  { "{\"a\": \"\xff\"}", "c.json: byte 7 is not UTF-8 text", PLAN_ERROR_INVALID },
};

START_TEST (refuses_text)
{
  check_config_is_refused (bad_texts[_i].text, bad_texts[_i].message, bad_texts[_i].code);
}
END_TEST

START_TEST (refuses_deep_nesting)
{
  g_autofree char *text = g_strnfill (1000000, '[');
  g_autoptr (GError) error = NULL;
  ck_assert_ptr_null (plan_model_parse_config (text, strlen (text), "c.json", &error));
  ck_assert_str_eq (error->message, "c.json:1:33: nested deeper than any such file");
}
END_TEST

START_TEST (reads_files_and_folders)
{
  g_autofree char *folder = g_dir_make_tmp ("fsdplan-XXXXXX", NULL);
  g_autofree char *path = g_build_filename (folder, "config.json", NULL);
  g_autofree char *text = config_with (ALL);
  g_autoptr (GError) error = NULL;
  ck_assert_ptr_null (plan_model_new (folder, &error)); /* nothing in it yet */
  ck_assert (g_error_matches (error, PLAN_ERROR, PLAN_ERROR_IO));
  ck_assert_msg (strstr (error->message, "config.json: No such file"), "%s", error->message);
  g_clear_error (&error);
  ck_assert (g_file_set_contents (path, text, -1, NULL));
  g_autoptr (PlanModel) of_folder = plan_model_new (folder, NULL);
  g_autoptr (PlanModel) of_file = plan_model_new (path, NULL);
  ck_assert (of_folder && of_file);
  g_autofree char *a = plan_model_print (of_folder), *b = plan_model_print (of_file);
  ck_assert_str_eq (a, b);
  g_autofree char *large = g_strnfill (10 * 1024 * 1024 + 1, ' ');
  ck_assert (g_file_set_contents (path, large, -1, NULL));
  ck_assert_ptr_null (plan_model_new (path, &error));
  ck_assert_msg (strstr (error->message, "larger than 10485760 bytes"), "%s", error->message);
  g_unlink (path);
  g_rmdir (folder);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("model-config");
  TCase *tcase = tcase_create ("model-config");
  tcase_add_test (tcase, config_is_read);
  tcase_add_loop_test (tcase, published_files_pass, 0, (int)G_N_ELEMENTS (published));
  tcase_add_loop_test (tcase, config_of_family, 0, G_N_ELEMENTS (configs));
  tcase_add_test (tcase, every_family_has_a_config);
  tcase_add_loop_test (tcase, config_is_written, 0, G_N_ELEMENTS (configs));
  tcase_add_loop_test (tcase, refuses_config, 0, G_N_ELEMENTS (bad_configs));
  tcase_add_loop_test (tcase, refuses_text, 0, G_N_ELEMENTS (bad_texts));
  tcase_add_test (tcase, refuses_deep_nesting);
  tcase_add_test (tcase, reads_files_and_folders);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
