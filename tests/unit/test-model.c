/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/base/error.h"
#include "planner/model/model.h"
#include "planner/model/preset.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TINY "layers=4,hidden=64,ffn=176,heads=4,kv_heads=2,head_dim=16,vocab=256,max_seq=128"

static const struct
{
  const char *name;
  guint64 parameters;
  const char *source;
} published[] = {
  { "llama2-7b", G_GUINT64_CONSTANT (6738415616), "huggingface.co/meta-llama/Llama-2-7b-hf" },
  { "llama2-13b", G_GUINT64_CONSTANT (13015864320), "huggingface.co/meta-llama/Llama-2-13b-hf" },
  { "llama2-70b", G_GUINT64_CONSTANT (68976648192), "huggingface.co/meta-llama/Llama-2-70b-hf" },
  { "llama3-8b", G_GUINT64_CONSTANT (8030261248), "huggingface.co/meta-llama/Meta-Llama-3-8B" },
  { "llama3-70b", G_GUINT64_CONSTANT (70553706496), "huggingface.co/meta-llama/Meta-Llama-3-70B" },
  { "llama3.1-405b", G_GUINT64_CONSTANT (405853388800),
    "huggingface.co/meta-llama/Llama-3.1-405B" },
  { "llama3.2-1b", G_GUINT64_CONSTANT (1235814400), "huggingface.co/meta-llama/Llama-3.2-1B" },
  { "llama3.2-3b", G_GUINT64_CONSTANT (3212749824), "huggingface.co/meta-llama/Llama-3.2-3B" },
  { "mistral-7b", G_GUINT64_CONSTANT (7241732096), "huggingface.co/mistralai/Mistral-7B-v0.1" },
  { "qwen2.5-7b", G_GUINT64_CONSTANT (7615616512), "huggingface.co/Qwen/Qwen2.5-7B" },
  { "qwen2.5-14b", G_GUINT64_CONSTANT (14770033664), "huggingface.co/Qwen/Qwen2.5-14B" },
  { "qwen2.5-32b", G_GUINT64_CONSTANT (32763876352), "huggingface.co/Qwen/Qwen2.5-32B" },
  { "qwen2.5-72b", G_GUINT64_CONSTANT (72706203648), "huggingface.co/Qwen/Qwen2.5-72B" },
  { "qwen3-8b", G_GUINT64_CONSTANT (8190735360), "huggingface.co/Qwen/Qwen3-8B" },
  { "qwen3-32b", G_GUINT64_CONSTANT (32762123264), "huggingface.co/Qwen/Qwen3-32B" },
  { "qwen3-30b-a3b", G_GUINT64_CONSTANT (30532122624), "huggingface.co/Qwen/Qwen3-30B-A3B" },
  /* q, k, v and o of 3584 to 3584, 512, 512, 3584; 64 experts of 2560; one shared of 20480 */
  { "qwen2-57b-a14b", G_GUINT64_CONSTANT (57408658944),
    "the tensors that blog.csdn.net/a1920993165/article/details/139566002 lists" },
  { "mixtral-8x7b", G_GUINT64_CONSTANT (46702792704),
    "huggingface.co/mistralai/Mixtral-8x7B-v0.1" },
  { "mixtral-8x22b", G_GUINT64_CONSTANT (140620634112),
    "huggingface.co/mistralai/Mixtral-8x22B-v0.1" },
  { "deepseek-v3", G_GUINT64_CONSTANT (671026419200),
    "huggingface.co/deepseek-ai/DeepSeek-V3, without the prediction module" },
  { "qwen3-235b-a22b", G_GUINT64_CONSTANT (235093634560), "huggingface.co/Qwen/Qwen3-235B-A22B" },
  { "deepseek-v2-lite", G_GUINT64_CONSTANT (15706484224),
    "huggingface.co/deepseek-ai/DeepSeek-V2-Lite" },
  { "deepseek-v2", G_GUINT64_CONSTANT (235741434880), "huggingface.co/deepseek-ai/DeepSeek-V2" },
  { "kimi-k2", G_GUINT64_CONSTANT (1026408232448), "huggingface.co/moonshotai/Kimi-K2-Base" },
  { "glm-4.5", G_GUINT64_CONSTANT (352797829024),
    "huggingface.co/zai-org/GLM-4.5, without the prediction module" },
  { "glm-4.5-air", G_GUINT64_CONSTANT (106852251264),
    "huggingface.co/zai-org/GLM-4.5-Air, without the prediction module" },
  { "gpt-oss-20b", G_GUINT64_CONSTANT (20914757184), "huggingface.co/openai/gpt-oss-20b" },
  { "gpt-oss-120b", G_GUINT64_CONSTANT (116829156672), "huggingface.co/openai/gpt-oss-120b" },
  { "gpt2", G_GUINT64_CONSTANT (124439808), "huggingface.co/openai-community/gpt2" },
  { "gpt2-medium", G_GUINT64_CONSTANT (354823168), "huggingface.co/openai-community/gpt2-medium" },
  { "gpt2-large", G_GUINT64_CONSTANT (774030080), "huggingface.co/openai-community/gpt2-large" },
  { "gpt2-xl", G_GUINT64_CONSTANT (1557611200), "huggingface.co/openai-community/gpt2-xl" },
  { "gemma-7b", G_GUINT64_CONSTANT (8537680896), "huggingface.co/google/gemma-7b" },
  { "gemma2-9b", G_GUINT64_CONSTANT (9241705984), "huggingface.co/google/gemma-2-9b" },
  { "gpt-neox-20b", G_GUINT64_CONSTANT (20554567680), "huggingface.co/EleutherAI/gpt-neox-20b" },
  { "mpt-7b", G_GUINT64_CONSTANT (6649286656), "huggingface.co/mosaicml/mpt-7b" },
  { "phi3-mini", G_GUINT64_CONSTANT (3821079552),
    "huggingface.co/microsoft/Phi-3-mini-4k-instruct" },
  { "llama3.1-8b", G_GUINT64_CONSTANT (8030261248), "huggingface.co/meta-llama/Llama-3.1-8B" },
  { "llama3.1-70b", G_GUINT64_CONSTANT (70553706496), "huggingface.co/meta-llama/Llama-3.1-70B" },
  { "mistral-nemo-12b", G_GUINT64_CONSTANT (12247782400),
    "huggingface.co/mistralai/Mistral-Nemo-Base-2407" },
  { "mistral-small-24b", G_GUINT64_CONSTANT (23572403200),
    "huggingface.co/mistralai/Mistral-Small-24B-Base-2501" },
  { "qwen2.5-0.5b", G_GUINT64_CONSTANT (494032768), "huggingface.co/Qwen/Qwen2.5-0.5B" },
  { "qwen2.5-1.5b", G_GUINT64_CONSTANT (1543714304), "huggingface.co/Qwen/Qwen2.5-1.5B" },
  { "qwen2.5-3b", G_GUINT64_CONSTANT (3085938688), "huggingface.co/Qwen/Qwen2.5-3B" },
  { "qwen3-0.6b", G_GUINT64_CONSTANT (596049920), "huggingface.co/Qwen/Qwen3-0.6B" },
  { "qwen3-1.7b", G_GUINT64_CONSTANT (1720574976), "huggingface.co/Qwen/Qwen3-1.7B" },
  { "qwen3-4b", G_GUINT64_CONSTANT (4022468096), "huggingface.co/Qwen/Qwen3-4B" },
  { "qwen3-14b", G_GUINT64_CONSTANT (14768307200), "huggingface.co/Qwen/Qwen3-14B" },
  { "qwen3-coder-480b-a35b", G_GUINT64_CONSTANT (480154875392),
    "huggingface.co/Qwen/Qwen3-Coder-480B-A35B-Instruct" },
  { "gemma2-2b", G_GUINT64_CONSTANT (2614341888), "huggingface.co/google/gemma-2-2b" },
  { "gemma2-27b", G_GUINT64_CONSTANT (27227128320), "huggingface.co/google/gemma-2-27b" },
  { "gemma3-1b", G_GUINT64_CONSTANT (999885952), "huggingface.co/google/gemma-3-1b-pt" },
  /* the text part, as transformers makes it */
  { "gemma3-4b", G_GUINT64_CONSTANT (3880263168), "huggingface.co/google/gemma-3-4b-pt" },
  { "gemma3-12b", G_GUINT64_CONSTANT (11766034176), "huggingface.co/google/gemma-3-12b-pt" },
  { "gemma3-27b", G_GUINT64_CONSTANT (27009346304), "huggingface.co/google/gemma-3-27b-pt" },
  /* the text part, as transformers makes it: without the 871932416 parameters that read images */
  { "llama4-scout", G_GUINT64_CONSTANT (107769861120),
    "huggingface.co/meta-llama/Llama-4-Scout-17B-16E less 871932416" },
  { "llama4-maverick", G_GUINT64_CONSTANT (400711848960),
    "huggingface.co/meta-llama/Llama-4-Maverick-17B-128E less 871932416" },
  { "smollm3-3b", G_GUINT64_CONSTANT (3075098624), "huggingface.co/HuggingFaceTB/SmolLM3-3B" },
  { "seed-oss-36b", G_GUINT64_CONSTANT (36151104512),
    "huggingface.co/ByteDance-Seed/Seed-OSS-36B-Base" },
  { "minimax-m2", G_GUINT64_CONSTANT (228689764864), "huggingface.co/MiniMaxAI/MiniMax-M2" },
  { "qwen3-next-80b-a3b", G_GUINT64_CONSTANT (79674391296),
    "huggingface.co/Qwen/Qwen3-Next-80B-A3B-Instruct: 81324862720, less its prediction module" },
  { "qwen3-coder-next", G_GUINT64_CONSTANT (79674391296), "huggingface.co/Qwen/Qwen3-Coder-Next" },
  /* the text parts, as GGUF files of them have it, or as counted by hand (prop-model.c) */
  { "qwen3.5-35b-a3b", G_GUINT64_CONSTANT (34660610688), "GGUF files of Qwen3.6-35B-A3B" },
  { "qwen3.5-122b-a10b", G_GUINT64_CONSTANT (122111526912), "by hand" },
  { "qwen3.5-397b-a17b", G_GUINT64_CONSTANT (396346350336), "by hand" },
  { "qwen3.5-27b", G_GUINT64_CONSTANT (26895998464), "by hand" },
  { "qwen3.5-9b", G_GUINT64_CONSTANT (8953803264), "by hand" },
  { "qwen3.5-4b", G_GUINT64_CONSTANT (4205751296), "by hand" },
  { "qwen3.5-2b", G_GUINT64_CONSTANT (1881825088), "by hand" },
  { "qwen3.5-0.8b", G_GUINT64_CONSTANT (752393024), "by hand" },
  /* counted by hand (prop-model.c); model cards say 4, 8, 47, 56, 9, 12, 31.6, 120
   * and 550 billion, the last two with prediction modules, which are left out */
  { "nemotron-h-4b", G_GUINT64_CONSTANT (4489223040), "by hand" },
  { "nemotron-h-8b", G_GUINT64_CONSTANT (8100852736), "by hand" },
  { "nemotron-h-47b", G_GUINT64_CONSTANT (46791554816), "by hand" },
  { "nemotron-h-56b", G_GUINT64_CONSTANT (56324350464), "by hand" },
  { "nemotron-nano-9b-v2", G_GUINT64_CONSTANT (8888227328), "by hand" },
  { "nemotron-nano-12b-v2", G_GUINT64_CONSTANT (12310001152), "by hand" },
  { "nemotron-3-nano-30b-a3b", G_GUINT64_CONSTANT (31577940288), "by hand" },
  { "nemotron-3-super-120b-a12b", G_GUINT64_CONSTANT (120668707840), "by hand" },
  { "nemotron-3-ultra-550b-a55b", G_GUINT64_CONSTANT (549308993536), "by hand" },
  { "olmoe-1b-7b", G_GUINT64_CONSTANT (6919161856), "huggingface.co/allenai/OLMoE-1B-7B-0924" },
  { "glm4-9b", G_GUINT64_CONSTANT (9400279040), "huggingface.co/zai-org/GLM-4-9B-0414" },
  { "phi4", G_GUINT64_CONSTANT (14659507200), "huggingface.co/microsoft/phi-4" },
  { "gpt3-175b", G_GUINT64_CONSTANT (174604259328),
    "arxiv.org/abs/2005.14165 table D.1: 174,600M; the digits from its table 2.1" },
};

START_TEST (parameters_are_the_published_ones)
{
  g_autoptr (PlanModel) model = plan_model_new (published[_i].name, NULL);
  ck_assert_ptr_nonnull (model);
  ck_assert_str_eq (model->name, published[_i].name);
  ck_assert_msg (plan_model_parameters (model) == published[_i].parameters,
                 "%s: %" G_GUINT64_FORMAT ", not as in %s", published[_i].name,
                 plan_model_parameters (model), published[_i].source);
}
END_TEST

START_TEST (every_preset_is_sound)
{
  for (const char *const *name = plan_model_presets (); *name; name++)
    {
      g_autoptr (GError) error = NULL;
      g_autoptr (PlanModel) model = plan_model_new_preset (*name, &error);
      ck_assert_msg (model != NULL, "%s", error ? error->message : "");
      ck_assert (plan_model_check (model, NULL));
      g_autofree char *text = plan_model_print (model);
      g_autoptr (PlanModel) again = plan_model_new (text, &error);
      ck_assert_msg (again != NULL, "%s", error ? error->message : "");
      ck_assert_uint_eq (plan_model_parameters (model), plan_model_parameters (again));
    }
}
END_TEST

START_TEST (preset_order_is_fixed)
{
  const char *const *names = plan_model_presets ();
  const guint n = g_strv_length ((GStrv)names);
  ck_assert_str_eq (names[0], "llama-tiny");
  ck_assert_str_eq (names[1], "llama-100m");
  ck_assert_str_eq (names[n - 1], "phi4");
  ck_assert_uint_eq (n, G_N_ELEMENTS (published) + 2);
}
END_TEST

static const struct
{
  const char *typed, *meant;
} names[] = {
  { "llama3-8b", "llama3-8b" },
  { "Llama-3-8B", "llama3-8b" },
  { "meta-llama/Meta-Llama-3-8B", "llama3-8b" },
  { "Meta-Llama-3-8B-Instruct", "llama3-8b" },
  { "meta-llama/Llama-3.1-8B", "llama3.1-8b" },
  { "deepseek-ai/DeepSeek-R1", "deepseek-v3" },
  { "qwen/qwen3_235b_a22b", "qwen3-235b-a22b" },
  { "other/Llama-3.1-8B", NULL },
  { "llama3-8", NULL },
  { "llama3-8b-instruct", "llama3-8b" },
  { "Qwen/Qwen3-30B-A3B-Instruct-2507", "qwen3-30b-a3b" },
  { "google/gemma-3-27b-it", "gemma3-27b" },
  { "DeepSeek-V3-0324", "deepseek-v3" },
  { "qwen3-4b-2508x", NULL },
  { "qwen3-4b-25071", NULL },
  { "-instruct", NULL },
  { "", NULL },
  { "/", NULL },
};

START_TEST (names_of_presets)
{
  ck_assert_pstr_eq (plan_model_preset_named (names[_i].typed), names[_i].meant);
}
END_TEST

/* Each is found by its own name. */
START_TEST (names_are_distinct)
{
  for (const char *const *name = plan_model_presets (); *name; name++)
    ck_assert_pstr_eq (plan_model_preset_named (*name), *name);
}
END_TEST

START_TEST (names_with_changes)
{
  g_autoptr (PlanModel) own = plan_model_new ("llama3.1-8b,layers=4", NULL);
  g_autoptr (PlanModel) theirs = plan_model_new ("meta-llama/Llama-3.1-8B,layers=4", NULL);
  ck_assert (own && theirs && theirs->layers == 4);
  g_autofree char *own_text = plan_model_print (own);
  g_autofree char *their_text = plan_model_print (theirs);
  ck_assert_str_eq (own_text, their_text);
}
END_TEST

/* Names of tensors with a + where fp8 recipes quantise, their shapes left out. */
static char *
list_tensors (const PlanTensor *tensors, guint n)
{
  GString *text = g_string_new (NULL);
  for (guint i = 0; i < n; i++)
    g_string_append_printf (text, "%s%s%s", i ? " " : "", tensors[i].name,
                            tensors[i].kind == PLAN_TENSOR_KIND_LINEAR ? "+" : "");
  return g_string_free (text, FALSE);
}

#define NORMED_ATTENTION "proj+ attention_norm qkv+ mlp_norm "
#define LATENT "proj+ attention_norm q_down+ q_up_norm q_up+ kv_down+ kv_up_norm kv_up+ mlp_norm "
#define ROUTED "router router_bias expert_gate_up+ expert_down+ shared_gate_up+ shared_down+"

static const struct
{
  const char *model;
  gint64 layer;
  const char *tensors;
} layers[] = {
  { "llama3-8b", 31, NORMED_ATTENTION "gate_up+ down+" },
  { "gpt2", 0,
    "proj+ proj_bias attention_norm attention_norm_bias qkv+ qkv_bias mlp_norm mlp_norm_bias "
    "gate_up+ gate_up_bias down+ down_bias" },
  { "mpt-7b", 5, NORMED_ATTENTION "gate_up+ down+" },
  { "qwen2.5-7b", 0, "proj+ attention_norm qkv+ qkv_bias mlp_norm gate_up+ down+" },
  { "qwen3-8b", 0, "proj+ attention_norm qkv+ q_norm k_norm mlp_norm gate_up+ down+" },
  { "gemma2-9b", 1,
    "proj+ attention_norm qkv+ attention_post_norm mlp_norm gate_up+ down+ mlp_post_norm" },
  { "mixtral-8x7b", 0, NORMED_ATTENTION "router expert_gate_up+ expert_down+" },
  { "qwen2-57b-a14b", 0,
    "proj+ attention_norm qkv+ qkv_bias mlp_norm router expert_gate_up+ expert_down+ "
    "shared_gate_up+ shared_down+ shared_gate" },
  { "deepseek-v3", 2, LATENT "gate_up+ down+" },
  { "deepseek-v3", 3, LATENT ROUTED },
};

START_TEST (layer_has_these_tensors)
{
  PlanTensor tensors[PLAN_N_TENSORS];
  g_autoptr (PlanModel) model = plan_model_new (layers[_i].model, NULL);
  const guint n = plan_model_layer_tensors (model, layers[_i].layer, tensors);
  g_autofree char *text = list_tensors (tensors, n);
  ck_assert_str_eq (text, layers[_i].tensors);
}
END_TEST

/* Layers with experts are behind dense_layers, and their numbers, counted from 1 in the whole
 * model, are multiples of moe_every. */
START_TEST (layers_with_experts)
{
  static const struct
  {
    const char *keys, *layers;
  } patterns[] = {
    { "", "11111111" },
    { ",dense_layers=3", "00011111" },
    { ",moe_every=2", "01010101" },
    { ",moe_every=3", "00100100" },
    { ",dense_layers=3,moe_every=2", "00010101" },
    { ",dense_layers=4,moe_every=4", "00000001" },
  };
  for (guint i = 0; i < G_N_ELEMENTS (patterns); i++)
    {
      g_autofree char *spec
          = g_strconcat ("layers=8,hidden=8,ffn=8,heads=1,vocab=8,max_seq=8,experts=2,topk=1",
                         patterns[i].keys, NULL);
      g_autoptr (PlanModel) model = plan_model_new (spec, NULL);
      gint64 n = 0;
      for (gint64 layer = 0; layer < 8; layer++)
        {
          const gboolean has_experts = patterns[i].layers[layer] == '1';
          ck_assert_msg (plan_model_is_moe_layer (model, layer) == has_experts, "%s, layer %d",
                         spec, (int)layer);
          n += has_experts;
        }
      ck_assert_int_eq (plan_model_moe_layers (model), n);
    }
}
END_TEST

START_TEST (tensors_outside_layers)
{
  PlanTensor tensors[PLAN_N_TENSORS];
  g_autoptr (PlanModel) gpt = plan_model_new ("gpt2", NULL);
  g_autofree char *of_gpt = list_tensors (tensors, plan_model_outer_tensors (gpt, 50304, tensors));
  ck_assert_str_eq (of_gpt, "embedding positions final_norm final_norm_bias"); /* tied */
  ck_assert_uint_eq (tensors[0].rows, 50304);
  ck_assert_uint_eq (tensors[1].rows, 1024);
  ck_assert_uint_eq (plan_model_mtp_tensors (gpt, tensors), 0);

  g_autoptr (PlanModel) deepseek = plan_model_new ("deepseek-v3", NULL);
  g_autofree char *outer = list_tensors (tensors, plan_model_outer_tensors (deepseek, 1, tensors));
  ck_assert_str_eq (outer, "embedding final_norm output");
  g_autofree char *mtp = list_tensors (tensors, plan_model_mtp_tensors (deepseek, tensors));
  ck_assert_str_eq (mtp,
                    "mtp_embedding_norm mtp_hidden_norm mtp_proj+ mtp_final_norm " LATENT ROUTED);
}
END_TEST

/* Sum over the tensors of every layer is the count, and so is that over the parts. */
START_TEST (tensors_sum_to_parameters)
{
  for (const char *const *name = plan_model_presets (); *name; name++)
    {
      g_autoptr (PlanModel) model = plan_model_new_preset (*name, NULL);
      PlanTensor tensors[PLAN_N_TENSORS];
      guint64 parts[PLAN_N_PARTS], sum = 0, of_parts = 0;
      gint64 moe = 0;
      guint n = plan_model_outer_tensors (model, model->vocab, tensors);
      for (guint i = 0; i < n; i++)
        sum += plan_model_numel (&tensors[i]);
      for (gint64 layer = 0; layer < model->layers; layer++)
        {
          n = plan_model_layer_tensors (model, layer, tensors);
          moe += plan_model_is_moe_layer (model, layer);
          for (guint i = 0; i < n; i++)
            sum += tensors[i].count * tensors[i].rows * tensors[i].cols;
        }
      ck_assert_uint_eq (sum, plan_model_parameters (model));
      ck_assert_uint_eq (sum, plan_model_count (model, parts));
      for (guint i = 0; i < PLAN_N_PARTS; i++)
        of_parts += parts[i];
      ck_assert_uint_eq (sum, of_parts);
      ck_assert_int_eq (moe, plan_model_moe_layers (model));
    }
}
END_TEST

/* Initial weights are drawn from these numbers: stored runs would not repeat with others. */
START_TEST (role_numbers_stay)
{
  ck_assert_int_eq (PLAN_TENSOR_EMBEDDING, 0);
  ck_assert_int_eq (PLAN_TENSOR_ATTENTION_NORM, 1);
  ck_assert_int_eq (PLAN_TENSOR_DOWN, 6);
  ck_assert_int_eq (PLAN_TENSOR_FINAL_NORM, 7);
  ck_assert_int_eq (PLAN_TENSOR_OUTPUT, 8);
  ck_assert_int_eq (PLAN_TENSOR_MTP_FINAL_NORM, 38);
  ck_assert_int_eq (PLAN_TENSOR_EXPERT_DOWN_BIAS, 42);
  ck_assert_int_eq (PLAN_TENSOR_EMBED_NORM_BIAS, 44);
  ck_assert_int_eq (PLAN_TENSOR_DELTA_OUT, 50);
  ck_assert_int_eq (PLAN_TENSOR_SSM_OUT, 58);
  ck_assert_int_eq (PLAN_TENSOR_EXPERT_OUT, PLAN_N_TENSORS - 1);
  g_autoptr (PlanModel) model = plan_model_new ("deepseek-v3", NULL);
  for (guint role = 0; role < PLAN_N_TENSORS; role++) /* none is left out */
    ck_assert_uint_eq (plan_model_tensor (model, role, 1).role, role);
}
END_TEST

/* Published: 12.9B, 3.3B, 37B active; DeepSeek's prediction module 11.5B and its projection. */
START_TEST (active_and_prediction_parameters)
{
  g_autoptr (PlanModel) mixtral = plan_model_new ("mixtral-8x7b", NULL);
  g_autoptr (PlanModel) qwen = plan_model_new ("qwen3-30b-a3b", NULL);
  g_autoptr (PlanModel) deepseek = plan_model_new ("deepseek-v3", NULL);
  g_autoptr (PlanModel) llama = plan_model_new ("llama3-8b", NULL);
  ck_assert_uint_eq (plan_model_active_parameters (mixtral),
                     46702792704 - G_GUINT64_CONSTANT (32) * 6 * 3 * 4096 * 14336);
  ck_assert_uint_eq (plan_model_active_parameters (qwen),
                     30532122624 - G_GUINT64_CONSTANT (48) * 120 * 3 * 2048 * 768);
  ck_assert_uint_eq (plan_model_active_parameters (deepseek),
                     671026419200 - G_GUINT64_CONSTANT (58) * 248 * 3 * 7168 * 2048);
  g_autoptr (PlanModel) scout = plan_model_new ("llama4-scout", NULL);
  g_autoptr (PlanModel) maverick = plan_model_new ("llama4-maverick", NULL);
  ck_assert_uint_eq (plan_model_active_parameters (scout),
                     107769861120 - G_GUINT64_CONSTANT (48) * 15 * 3 * 5120 * 8192);
  ck_assert_uint_eq (plan_model_active_parameters (maverick),
                     400711848960 - G_GUINT64_CONSTANT (24) * 127 * 3 * 5120 * 8192);
  ck_assert_uint_eq (plan_model_mtp_parameters (deepseek), 11610068224);
  ck_assert_uint_eq (plan_model_active_parameters (llama), plan_model_parameters (llama));
  ck_assert_uint_eq (plan_model_mtp_parameters (llama), 0);
}
END_TEST

/* Published, in billions: what a token meets, with embedding and output layer or without; and what
 * Megatron-LM counts of it at 4096 tokens, in GFLOP, or 0 where nobody says. */
static const struct
{
  const char *spec;
  double active, flops;
} of_experts[] = {
  { "mixtral-8x7b", 12.9, 0 },
  { "mixtral-8x22b", 39, 0 },
  { "qwen2-57b-a14b", 14, 0 },
  { "qwen3-30b-a3b", 3.3, 23.006 },
  { "qwen3-235b-a22b", 22, 148.03 },
  { "deepseek-v2-lite", 2.4, 0 },
  { "deepseek-v2", 21, 0 },
  { "deepseek-v3", 37, 259.993 },
  { "family=deepseek_v3,layers=61,hidden=7168,ffn=18432,heads=128,vocab=129280,max_seq=4096", 37,
    249.812 },
  { "kimi-k2", 32, 0 },
  { "glm-4.5", 32, 0 },
  { "glm-4.5-air", 12, 0 },
  { "llama4-scout", 17, 0 },
  { "llama4-maverick", 17, 0 },
  { "gpt-oss-20b", 3.61, 0 },
  { "nemotron-3-nano-30b-a3b", 3.2, 0 },
  { "nemotron-3-super-120b-a12b", 12, 0 },
  { "nemotron-3-ultra-550b-a55b", 55, 0 },
  { "gpt-oss-120b", 5.13, 0 },
  /* Moonlight-16B-A3B */
  { "family=deepseek_v3,layers=27,hidden=2048,ffn=11264,heads=16,vocab=163840,max_seq=8192,"
    "experts=64,topk=6,expert_ffn=1408,shared_ffn=2816,dense_layers=1,router_groups=0,"
    "router_group_topk=0,router_scale=2.446,q_lora=0",
    2.24, 17.15 },
};

START_TEST (experts_are_as_published)
{
  g_autoptr (PlanModel) model = plan_model_new (of_experts[_i].spec, NULL);
  guint64 parts[PLAN_N_PARTS];
  ck_assert_ptr_nonnull (model);
  plan_model_count (model, parts);
  const double most = 1e-9 * (double)plan_model_active_parameters (model);
  const double least = most - 1e-9 * (double)(parts[PLAN_PART_EMBEDDING] + parts[PLAN_PART_OUTPUT]);
  const double flops = 1e-9 * plan_model_flops_per_token (model, 4096, model->vocab);
  ck_assert_msg (least - 0.2 < of_experts[_i].active && of_experts[_i].active < most + 0.05,
                 "%s: from %g to %g", of_experts[_i].spec, least, most);
  if (of_experts[_i].flops > 0)
    ck_assert_double_eq_tol (flops, of_experts[_i].flops, 5e-4 * of_experts[_i].flops);
}
END_TEST

START_TEST (tensor_shapes)
{
  g_autoptr (PlanModel) model = plan_model_new ("llama3.2-1b", NULL);
  PlanTensor t = plan_model_tensor (model, PLAN_TENSOR_QKV, 0);
  ck_assert_str_eq (t.name, "qkv");
  ck_assert_uint_eq (t.rows, 3072);
  ck_assert_uint_eq (t.cols, 2048);
  t = plan_model_tensor (model, PLAN_TENSOR_EMBEDDING, 128384);
  ck_assert_uint_eq (t.rows, 128384);
  t = plan_model_tensor (model, PLAN_TENSOR_OUTPUT, 128384);
  ck_assert_uint_eq (t.rows, 0); /* tied */
  t = plan_model_tensor (model, PLAN_TENSOR_FINAL_NORM, 0);
  ck_assert_uint_eq (t.rows, 2048);
  ck_assert_uint_eq (t.cols, 1);
}
END_TEST

START_TEST (dimensions_are_read_and_printed)
{
  g_autoptr (PlanModel) model = plan_model_new (TINY, NULL);
  ck_assert_ptr_nonnull (model);
  ck_assert_uint_eq (plan_model_parameters (model), 217664);
  ck_assert_str_eq (model->name, "custom");
  g_autofree char *text = plan_model_print (model);
  ck_assert_str_eq (text, "family=llama," TINY);
}
END_TEST

START_TEST (optional_dimensions)
{
  g_autoptr (PlanModel) model = plan_model_new (
      "vocab=256,max_seq=128,layers=1,hidden=64,ffn=100,heads=4,tied=on,name=a.b,norm_eps=1e-06,"
      "rope_theta=500000.5",
      NULL);
  ck_assert_ptr_nonnull (model);
  ck_assert_int_eq (model->kv_heads, 4);
  ck_assert_int_eq (model->head_dim, 16);
  g_autofree char *text = plan_model_print (model);
  ck_assert_str_eq (text,
                    "family=llama,layers=1,hidden=64,ffn=100,heads=4,kv_heads=4,head_dim=16,"
                    "vocab=256,max_seq=128,name=a.b,norm_eps=1e-06,rope_theta=500000.5,tied=on");
}
END_TEST

/* A family's name brings its properties, and none of them is printed. */
START_TEST (family_brings_its_properties)
{
  for (const char *const *family = plan_model_families (); *family; family++)
    {
      const gboolean has_pattern = g_str_equal (*family, "nemotron_h");
      const char *const pattern = has_pattern ? ",pattern=M*-M*-M*" : "";
      g_autofree char *spec = g_strdup_printf (
          "layers=8,hidden=64,ffn=176,heads=4,vocab=256,max_seq=128,family=%s%s", *family, pattern);
      g_autoptr (GError) error = NULL;
      g_autoptr (PlanModel) model = plan_model_new (spec, &error);
      ck_assert_msg (model != NULL, "%s", error ? error->message : "");
      ck_assert_str_eq (model->family, *family);
      g_autofree char *text = plan_model_print (model);
      static const char *const dims[][2] = {
        { "gemma", "256" },         { "gemma2", "256" },       { "gemma3_text", "256" },
        { "qwen3", "128" },         { "deepseek_v2", "192" },  { "deepseek_v3", "192" },
        { "kimi_k2", "192" },       { "glm4_moe", "128" },     { "llama4_text", "128" },
        { "gpt_oss", "64" },        { "seed_oss", "128" },     { "ernie4_5", "128" },
        { "glm4_moe_lite", "256" }, { "glm4", "128" },         { "minimax_m2", "128" },
        { "qwen3_next", "256" },    { "qwen3_5_text", "256" }, { "qwen3_5_moe_text", "256" },
        { "nemotron_h", "128" },
      };
      const char *head_dim = "16";
      for (guint i = 0; i < G_N_ELEMENTS (dims); i++)
        if (g_str_equal (*family, dims[i][0]))
          head_dim = dims[i][1];
      g_autofree char *expected = g_strdup_printf (
          "family=%s,layers=8,hidden=64,ffn=176,heads=4,kv_heads=4,head_dim=%s,vocab=256,"
          "max_seq=128%s%s",
          *family, head_dim,
          strstr ("mixtral gpt_oss olmoe minimax_m2", *family) ? ",expert_ffn=176" : "", pattern);
      ck_assert_str_eq (text, expected);
    }
  g_autoptr (PlanModel) qwen = plan_model_new ("family=qwen2," TINY, NULL);
  ck_assert (qwen->qkv_bias && !qwen->proj_bias && !qwen->qk_norm);
  g_autoptr (PlanModel) gpt = plan_model_new ("family=gpt2," TINY ",gated=on,tied=off", NULL);
  ck_assert (gpt->norm == PLAN_NORM_LAYERNORM && gpt->norm_bias && gpt->mlp_bias && gpt->gated);
  g_autofree char *text = plan_model_print (gpt);
  ck_assert_str_eq (text, "family=gpt2," TINY ",tied=off,gated=on");
}
END_TEST

START_TEST (properties_print_short)
{
  g_autoptr (PlanModel) gemma = plan_model_new ("gemma2-9b", NULL);
  g_autofree char *of_gemma = plan_model_print (gemma);
  ck_assert_str_eq (of_gemma, "family=gemma2,layers=42,hidden=3584,ffn=14336,heads=16,kv_heads=8,"
                              "head_dim=256,vocab=256000,max_seq=8192,name=gemma2-9b");
  g_autoptr (PlanModel) deepseek = plan_model_new ("deepseek-v3", NULL);
  g_autofree char *of_deepseek = plan_model_print (deepseek);
  ck_assert_str_eq (of_deepseek,
                    "family=deepseek_v3,layers=61,hidden=7168,ffn=18432,heads=128,kv_heads=128,"
                    "head_dim=192,vocab=129280,max_seq=163840,name=deepseek-v3,rope_scaling=yarn,"
                    "rope_factor=40,rope_original=4096,rope_slow=1,rope_fast=32,"
                    "rope_mscale_all=1,mtp=1");
}
END_TEST

/* Every key is documented, printed and read back by its name. */
START_TEST (keys_are_those_of_the_text)
{
  guint n;
  const PlanModelKey *keys = plan_model_keys (&n);
  g_autoptr (PlanModel) model = plan_model_new ("deepseek-v3", NULL);
  g_autoptr (GString) text = g_string_new ("family=deepseek_v3");
  for (guint i = 0; i < n; i++)
    {
      g_autofree char *value = plan_model_print_key (model, i);
      ck_assert (*keys[i].values && *keys[i].meaning);
      g_string_append_printf (text, ",%s=%s", keys[i].name, value);
    }
  g_autoptr (PlanModel) again = plan_model_new (text->str, NULL);
  ck_assert_ptr_nonnull (again);
  ck_assert_uint_eq (plan_model_parameters (model), plan_model_parameters (again));
}
END_TEST

static const struct
{
  const char *spec;
  gint64 seq;
  gboolean is_shaped;
} shapes[] = {
  { "llama3-8b", 8192, TRUE },
  { "llama3.2-1b", 8192, FALSE }, /* its positions reach further */
  { "mistral-7b", 4096, TRUE },   /* its window is as long */
  { "mistral-7b", 4097, FALSE },
  { "family=gemma2," TINY ",window=0", 128, FALSE },
  { "family=phi3," TINY ",window=64", 64, TRUE },
  { "family=qwen2," TINY, 128, FALSE },
  { "family=qwen2," TINY ",qkv_bias=off", 128, TRUE },
  { TINY ",norm=layernorm", 128, FALSE },
  { TINY ",norm_bias=on", 128, FALSE },
  { TINY ",norm_1p=on", 128, FALSE },
  { TINY ",post_norms=on", 128, FALSE },
  { TINY ",qk_norm=on", 128, FALSE },
  { TINY ",qk_l2_norm=all", 128, FALSE },
  { TINY ",nope_every=4", 128, FALSE },
  { TINY ",activation=gelu", 128, FALSE },
  { TINY ",gated=off", 128, FALSE },
  { TINY ",proj_bias=on", 128, FALSE },
  { TINY ",mlp_bias=on", 128, FALSE },
  { TINY ",positions=none", 128, FALSE },
  { TINY ",rope_fraction=0.5", 128, FALSE },
  { TINY ",rope_scaling=linear,rope_factor=2", 128, FALSE },
  { TINY ",parallel=on", 128, FALSE },
  { TINY ",embed_scale=on", 128, FALSE },
  { TINY ",attn_scalar=16", 128, FALSE },
  { TINY ",attn_softcap=1", 128, FALSE },
  { TINY ",logit_softcap=1", 128, FALSE },
  { TINY ",experts=2,topk=1", 128, FALSE },
  { TINY ",mtp=1", 128, FALSE },
  { TINY ",norm_eps=1e-06,rope_theta=9,tied=on,name=x,window_from=1", 128, TRUE },
};

START_TEST (shape_of_llama)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanModel) model = plan_model_new (shapes[_i].spec, &error);
  ck_assert_msg (model != NULL, "%s", error ? error->message : "");
  ck_assert_msg (!plan_model_is_llama_shaped (model, shapes[_i].seq) == !shapes[_i].is_shaped, "%s",
                 shapes[_i].spec);
}
END_TEST

static const struct
{
  const char *spec, *message;
  int code;
} bad_specs[] = {
  { "llama3-8", "model: 'llama3-8' is neither a shipped model nor a file", PLAN_ERROR_INVALID },
  { "llama3-8", "did you mean 'llama3-8b'?", PLAN_ERROR_INVALID },
  { "Qwen/Qwen2.5-7B-Math", "did you mean 'qwen2.5-7b'?", PLAN_ERROR_INVALID },
  { "qwen3-30b", "did you mean 'qwen3-30b-a3b'?", PLAN_ERROR_INVALID },
  { "qwen3.5-35", "did you mean 'qwen3.5-35b-a3b'?", PLAN_ERROR_INVALID },
  { "nonesuch/LLM", "fsdplan show, without options, names those", PLAN_ERROR_INVALID },
  { "nonesuch", "fsdplan show, without options, names those", PLAN_ERROR_INVALID },
  { "", "model: '' is neither", PLAN_ERROR_INVALID },
  { "layers=4", "model: hidden: missing", PLAN_ERROR_INVALID },
  { TINY ",layers=4", "model: layers: given twice", PLAN_ERROR_INVALID },
  { TINY ",layer=4", "model: 'layer' is not a dimension of a model: did you mean 'layers'?",
    PLAN_ERROR_INVALID },
  { TINY ",", "model: '' is not of the form dimension=value", PLAN_ERROR_INVALID },
  { "family=qwen9," TINY,
    "model: family: 'qwen9' is not a family this version knows: did you mean 'qwen2'? known are "
    "llama, mistral, qwen2, qwen3, gemma, gemma2, gemma3_text, gpt2,",
    PLAN_ERROR_UNSUPPORTED },
  { "family=llama,family=gpt2," TINY, "model: family: given twice", PLAN_ERROR_INVALID },
  { TINY ",norm=rms", "model: norm: 'rms' is not one of its values: known are rmsnorm, layernorm",
    PLAN_ERROR_INVALID },
  { TINY ",positions=rop", "model: positions: 'rop' is not one of its values: did you mean 'rope'?",
    PLAN_ERROR_INVALID },
  { TINY ",gated=1", "model: gated: '1' must be on or off", PLAN_ERROR_INVALID },
  { TINY ",rope_fraction=0.2",
    "model: rope_fraction: rotary positions would turn 3 of head_dim=16, but they turn pairs",
    PLAN_ERROR_INVALID },
  { TINY ",rope_factor=2", "model: rope_factor: acts only with rope_scaling, which is none",
    PLAN_ERROR_INVALID },
  { TINY ",rope_scaling=linear,rope_original=2", "model: rope_original: acts only with",
    PLAN_ERROR_INVALID },
  { TINY ",rope_scaling=dynamic,rope_fast=2", "model: rope_slow, rope_fast: act only with",
    PLAN_ERROR_INVALID },
  { TINY ",rope_scaling=linear,rope_mscale=2",
    "model: rope_mscale, rope_mscale_all, rope_fractional: act only with", PLAN_ERROR_INVALID },
  { TINY ",rope_scaling=llama3", "model: rope_original: missing", PLAN_ERROR_INVALID },
  { TINY ",rope_scaling=yarn,rope_slow=40", "model: rope_slow: must not be above rope_fast",
    PLAN_ERROR_INVALID },
  { TINY ",rope_scaling=yarn,rope_theta=1", "model: rope_theta: must be above 1",
    PLAN_ERROR_INVALID },
  { TINY ",positions=none,rope_scaling=linear", "model: rope_scaling: acts on positions=rope only",
    PLAN_ERROR_INVALID },
  { TINY ",rope_fraction=0", "model: rope_fraction: '0' is out of range", PLAN_ERROR_INVALID },
  { TINY ",topk=1",
    "model: experts: 0, so topk, expert_ffn, expert_hidden, shared_ffn, shared_gate, dense_layers, "
    "moe_every, expert_bias, scores_on_input, pre_softmax and what begins with router_ must be "
    "left out",
    PLAN_ERROR_INVALID },
  { TINY ",moe_every=2", "model: experts: 0, so topk", PLAN_ERROR_INVALID },
  { TINY ",experts=2", "model: topk: 0 is out of range: it must be from 1 to experts=2",
    PLAN_ERROR_INVALID },
  { TINY ",experts=2,topk=3", "model: topk: 3 is out of range", PLAN_ERROR_INVALID },
  { TINY ",router_scale=2", "model: experts: 0, so topk", PLAN_ERROR_INVALID },
  { TINY ",experts=8,topk=2,router_groups=3,router_group_topk=1",
    "model: router_groups: 3 does not divide experts=8", PLAN_ERROR_INVALID },
  { TINY ",experts=8,topk=2,router_groups=4",
    "model: router_group_topk: 0 is not from 1 to router_groups=4", PLAN_ERROR_INVALID },
  { TINY ",experts=8,topk=3,router_groups=4,router_group_topk=1",
    "model: router_group_topk: 1 groups have fewer experts than topk=3", PLAN_ERROR_INVALID },
  { TINY ",experts=8,topk=2,router_score=sigmoid,pre_softmax=on",
    "model: pre_softmax: on needs router_score=softmax", PLAN_ERROR_INVALID },
  { TINY ",experts=2,topk=1,shared_gate=on", "model: shared_gate: on, but shared_ffn is 0",
    PLAN_ERROR_INVALID },
  { TINY ",experts=2,topk=1,dense_layers=4",
    "model: experts: none of layers=4 has them with dense_layers=4 and moe_every=1",
    PLAN_ERROR_INVALID },
  { TINY ",experts=65537,topk=1", "model: experts: '65537' is out of range", PLAN_ERROR_INVALID },
  { TINY ",window_chunks=on", "model: window_chunks: on, but window is 0", PLAN_ERROR_INVALID },
  { TINY ",positions=none,nope_every=2", "model: nope_every: layers without rotary positions need",
    PLAN_ERROR_INVALID },
  { TINY ",qk_l2_norm=rope", "model: qk_l2_norm: rope tells layers with rotary positions from",
    PLAN_ERROR_INVALID },
  { TINY ",qk_norm=on,qk_l2_norm=all", "model: qk_l2_norm: must be off beside qk_norm=on",
    PLAN_ERROR_INVALID },
  { TINY ",scores_on_input=on", "model: experts: 0, so topk", PLAN_ERROR_INVALID },
  { TINY ",experts=2,topk=1,expert_bias=on,scores_on_input=on",
    "model: scores_on_input: on needs expert_bias=off", PLAN_ERROR_INVALID },
  { TINY ",rope_scaling=llama3,rope_original=64,rope_slow=5",
    "model: rope_slow: must not be above rope_fast", PLAN_ERROR_INVALID },
  { TINY ",window=8,window_from=4", "model: window_from: 4 is not below layers=4",
    PLAN_ERROR_INVALID },
  { TINY ",mtp=1,norm_bias=on", "model: mtp: prediction modules need norm_bias=off",
    PLAN_ERROR_INVALID },
  { TINY ",v_dim=4", "model: kv_lora: 0, so q_lora, nope_dim, rope_dim and v_dim must be 0 too",
    PLAN_ERROR_INVALID },
  { TINY ",kv_lora=4", "model: kv_lora: latent attention needs nope_dim, rope_dim and v_dim too",
    PLAN_ERROR_INVALID },
  { TINY ",kv_lora=4,nope_dim=4,rope_dim=4,v_dim=4",
    "model: head_dim: 16 is not nope_dim=4 + rope_dim=4", PLAN_ERROR_INVALID },
  { TINY ",kv_lora=4,nope_dim=8,rope_dim=8,v_dim=4",
    "model: kv_heads: 2 is not heads=4, as latent attention needs", PLAN_ERROR_INVALID },
  { "layers=4,hidden=64,ffn=1,heads=4,vocab=9,max_seq=9,kv_lora=4,nope_dim=4,rope_dim=4,v_dim=4,"
    "qk_norm=on",
    "model: kv_lora: latent attention has no qkv_bias and no qk_norm", PLAN_ERROR_INVALID },
  { "layers=4,hidden=64,ffn=1,heads=4,vocab=9,max_seq=9,kv_lora=4,nope_dim=4,rope_dim=3,v_dim=4",
    "model: rope_dim: 3 is odd, but rotary positions turn pairs", PLAN_ERROR_INVALID },
  { "layers=9,hidden=2147483646,ffn=2147483647,heads=1,vocab=9,max_seq=9,experts=65536,topk=1",
    "model: model: more than 2^50 parameters", PLAN_ERROR_INVALID },
  { TINY ",tied=yes", "model: tied: 'yes' must be on or off", PLAN_ERROR_INVALID },
  { TINY ",norm_eps=0", "model: norm_eps: '0' is out of range", PLAN_ERROR_INVALID },
  { TINY ",norm_eps=nan", "model: norm_eps: 'nan' is not a decimal number", PLAN_ERROR_INVALID },
  { TINY ",rope_theta=0.5", "model: rope_theta: '0.5' is out of range", PLAN_ERROR_INVALID },
  { TINY ",name=a b", "model: name: only letters, digits and . _ + - may be used",
    PLAN_ERROR_INVALID },
  { TINY ",name=", "model: name: only letters", PLAN_ERROR_INVALID },
  { "layers=0,hidden=64,ffn=1,heads=1,vocab=1,max_seq=1", "model: layers: '0' is out of range",
    PLAN_ERROR_INVALID },
  { "layers=-1,hidden=64,ffn=1,heads=1,vocab=1,max_seq=1", "model: layers: '-1' is out of range",
    PLAN_ERROR_INVALID },
  { "layers=10001,hidden=64,ffn=1,heads=1,vocab=1,max_seq=1",
    "model: layers: '10001' is out of range: it must be from 1 to 10000", PLAN_ERROR_INVALID },
  { "layers=99999999999999999999,hidden=64", "model: layers: '99999999999999999999' does not fit",
    PLAN_ERROR_INVALID },
  { "layers=1,hidden=64,ffn=1,heads=3,vocab=1,max_seq=1",
    "model: head_dim: missing, and heads=3 does not divide hidden=64", PLAN_ERROR_INVALID },
  { "layers=1,hidden=64,ffn=1,heads=4,kv_heads=3,vocab=1,max_seq=1",
    "model: kv_heads: 3 does not divide heads=4", PLAN_ERROR_INVALID },
  { "layers=1,hidden=64,ffn=1,heads=4,head_dim=15,vocab=1,max_seq=1", "model: head_dim: 15 is odd",
    PLAN_ERROR_INVALID },
  { "layers=1,hidden=64,ffn=1,heads=100000,head_dim=100000,vocab=1,max_seq=1",
    "model: heads: 100000 of head_dim=100000 are wider", PLAN_ERROR_INVALID },
  { "layers=10000,hidden=2147483646,ffn=2147483647,heads=1,vocab=2147483647,max_seq=1",
    "model: model: more than 2^50 parameters", PLAN_ERROR_INVALID },
  { "layers=10000,hidden=65536,ffn=1048576,heads=512,vocab=9,max_seq=1",
    "more than 2^50 parameters", PLAN_ERROR_INVALID },
  { "./no-such-file.json", "./no-such-file.json: No such file", PLAN_ERROR_IO },
  { "/dev/null", "/dev/null: not a regular file", PLAN_ERROR_IO },
};

START_TEST (refuses_spec)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanModel) model = plan_model_new (bad_specs[_i].spec, &error);
  ck_assert_ptr_null (model);
  ck_assert_msg (g_error_matches (error, PLAN_ERROR, bad_specs[_i].code), "%s", error->message);
  ck_assert_msg (strstr (error->message, bad_specs[_i].message), "%s", error->message);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("model");
  TCase *tcase = tcase_create ("model");
  tcase_add_loop_test (tcase, parameters_are_the_published_ones, 0, G_N_ELEMENTS (published));
  tcase_add_test (tcase, every_preset_is_sound);
  tcase_add_loop_test (tcase, names_of_presets, 0, G_N_ELEMENTS (names));
  tcase_add_test (tcase, names_are_distinct);
  tcase_add_test (tcase, names_with_changes);
  tcase_add_test (tcase, preset_order_is_fixed);
  tcase_add_test (tcase, tensors_sum_to_parameters);
  tcase_add_test (tcase, tensor_shapes);
  tcase_add_loop_test (tcase, layer_has_these_tensors, 0, G_N_ELEMENTS (layers));
  tcase_add_test (tcase, layers_with_experts);
  tcase_add_test (tcase, tensors_outside_layers);
  tcase_add_test (tcase, role_numbers_stay);
  tcase_add_test (tcase, active_and_prediction_parameters);
  tcase_add_loop_test (tcase, experts_are_as_published, 0, G_N_ELEMENTS (of_experts));
  tcase_add_test (tcase, family_brings_its_properties);
  tcase_add_test (tcase, properties_print_short);
  tcase_add_test (tcase, keys_are_those_of_the_text);
  tcase_add_loop_test (tcase, shape_of_llama, 0, G_N_ELEMENTS (shapes));
  tcase_add_test (tcase, dimensions_are_read_and_printed);
  tcase_add_test (tcase, optional_dimensions);
  tcase_add_loop_test (tcase, refuses_spec, 0, G_N_ELEMENTS (bad_specs));
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
