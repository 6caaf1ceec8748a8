/* SPDX-License-Identifier: Apache-2.0 */
/* A config.json's model has as many parameters as the tensors that each family's modeling_*.py of
 * transformers makes, added up one by one. The loop's index is the seed. */
#include "config.h"

#include "planner/base/error.h"
#include "planner/model/model.h"
#include "tests/prop/same-model.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define N_SEEDS 300

static gint64
up_to (GRand *rand, gint32 max)
{
  return g_rand_int_range (rand, 1, max + 1);
}

/* A family's config.json while it is written, and the random sizes in it. */
typedef struct
{
  GRand *rand;
  GString *config;
  gint64 layers, h, ffn, heads, kv_heads, head_dim, vocab, seq;
} File;

static void
put (File *f, const char *key, gint64 value)
{
  g_string_append_printf (f->config, ", \"%s\": %" G_GINT64_FORMAT, key, value);
}

static gint64
put_some (File *f, const char *key, gint32 max)
{
  const gint64 value = up_to (f->rand, max);
  put (f, key, value);
  return value;
}

static gboolean
put_flag (File *f, const char *key)
{
  const gboolean value = g_rand_boolean (f->rand);
  g_string_append_printf (f->config, ", \"%s\": %s", key, value ? "true" : "false");
  return value;
}

static void
put_usual (File *f)
{
  put (f, "num_hidden_layers", f->layers);
  put (f, "hidden_size", f->h);
  put (f, "intermediate_size", f->ffn);
  put (f, "num_attention_heads", f->heads);
  put (f, "num_key_value_heads", f->kv_heads);
  put (f, "vocab_size", f->vocab);
  put (f, "max_position_embeddings", f->seq);
}

/* nn.Linear (in, out, bias). */
static gint64
linear (gint64 in, gint64 out, gboolean bias)
{
  return in * out + (bias ? out : 0);
}

static gint64
gqa (const File *f, gboolean in_bias, gboolean out_bias)
{
  return linear (f->h, f->heads * f->head_dim, in_bias)
         + linear (f->h, f->kv_heads * f->head_dim, in_bias)
         + linear (f->h, f->kv_heads * f->head_dim, in_bias)
         + linear (f->heads * f->head_dim, f->h, out_bias);
}

static gint64
swiglu (const File *f, gint64 ffn, gboolean bias)
{
  return linear (f->h, ffn, bias) + linear (f->h, ffn, bias) + linear (ffn, f->h, bias);
}

/* Embedding, layers that are alike, final norm, head. */
static gint64
causal_lm (const File *f, gint64 layer, gint64 norm, gboolean tied)
{
  return f->vocab * f->h + f->layers * layer + norm + (tied ? 0 : f->vocab * f->h);
}

static gint64
llama (File *f)
{
  put_usual (f);
  put (f, "head_dim", f->head_dim);
  const gboolean bias = put_flag (f, "attention_bias"), mlp_bias = put_flag (f, "mlp_bias");
  const gint64 layer = gqa (f, bias, bias) + swiglu (f, f->ffn, mlp_bias) + 2 * f->h;
  return causal_lm (f, layer, f->h, put_flag (f, "tie_word_embeddings"));
}

static gint64
mistral (File *f)
{
  put_usual (f);
  put_some (f, "sliding_window", 5000);
  f->head_dim = f->h / f->heads;
  return causal_lm (f, gqa (f, FALSE, FALSE) + swiglu (f, f->ffn, FALSE) + 2 * f->h, f->h, FALSE);
}

static gint64
qwen2 (File *f)
{
  put_usual (f);
  f->head_dim = f->h / f->heads;
  const gint64 layer = gqa (f, TRUE, FALSE) + swiglu (f, f->ffn, FALSE) + 2 * f->h;
  return causal_lm (f, layer, f->h, put_flag (f, "tie_word_embeddings"));
}

static gint64
qwen3 (File *f)
{
  put_usual (f);
  put (f, "head_dim", f->head_dim);
  const gboolean bias = put_flag (f, "attention_bias");
  const gint64 layer = gqa (f, bias, bias) + 2 * f->head_dim + swiglu (f, f->ffn, FALSE) + 2 * f->h;
  return causal_lm (f, layer, f->h, put_flag (f, "tie_word_embeddings"));
}

static gint64
gemma (File *f)
{
  put_usual (f);
  f->head_dim = 256;
  return causal_lm (f, gqa (f, FALSE, FALSE) + swiglu (f, f->ffn, FALSE) + 2 * f->h, f->h, TRUE);
}

static gint64
gemma2 (File *f)
{
  put_usual (f);
  put (f, "head_dim", f->head_dim);
  return causal_lm (f, gqa (f, FALSE, FALSE) + swiglu (f, f->ffn, FALSE) + 4 * f->h, f->h, TRUE);
}

static gint64
gemma3 (File *f)
{
  put_usual (f);
  put (f, "head_dim", f->head_dim);
  const gint64 layer
      = gqa (f, FALSE, FALSE) + 2 * f->head_dim + swiglu (f, f->ffn, FALSE) + 4 * f->h;
  return causal_lm (f, layer, f->h, TRUE);
}

static gint64
gpt2 (File *f)
{
  put (f, "n_layer", f->layers);
  put (f, "n_embd", f->h);
  put (f, "n_head", f->heads);
  put (f, "vocab_size", f->vocab);
  put (f, "n_positions", f->seq);
  const gint64 norm = 2 * f->h; /* weight and bias */
  const gint64 attention = linear (f->h, 3 * f->h, TRUE) + linear (f->h, f->h, TRUE);
  const gint64 mlp = linear (f->h, 4 * f->h, TRUE) + linear (4 * f->h, f->h, TRUE);
  return causal_lm (f, attention + mlp + 2 * norm, norm, TRUE) + f->seq * f->h;
}

static gint64
gpt_neox (File *f)
{
  put_usual (f);
  put (f, "rotary_pct", 1);
  put_flag (f, "use_parallel_residual");
  f->kv_heads = f->heads;
  f->head_dim = f->h / f->heads;
  const gboolean bias = put_flag (f, "attention_bias");
  const gint64 mlp = linear (f->h, f->ffn, TRUE) + linear (f->ffn, f->h, TRUE);
  return causal_lm (f, gqa (f, bias, bias) + mlp + 2 * 2 * f->h, 2 * f->h, FALSE);
}

static gint64
bloom (File *f)
{
  put (f, "n_layer", f->layers);
  put (f, "hidden_size", f->h);
  put (f, "n_head", f->heads);
  put (f, "vocab_size", f->vocab);
  f->kv_heads = f->heads;
  f->head_dim = f->h / f->heads;
  const gint64 mlp = linear (f->h, 4 * f->h, TRUE) + linear (4 * f->h, f->h, TRUE);
  return causal_lm (f, gqa (f, TRUE, TRUE) + mlp + 2 * 2 * f->h, 2 * f->h, TRUE) + 2 * f->h;
}

static gint64
falcon (File *f)
{
  const gint64 wide = up_to (f->rand, 500);
  put (f, "num_hidden_layers", f->layers);
  put (f, "hidden_size", f->h);
  put (f, "num_attention_heads", f->heads);
  put (f, "vocab_size", f->vocab);
  put (f, "ffn_hidden_size", wide);
  const gboolean is_new = put_flag (f, "new_decoder_architecture");
  const gboolean has_one = put_flag (f, "multi_query");
  const gboolean parallel = put_flag (f, "parallel_attn"), bias = put_flag (f, "bias");
  if (is_new)
    put (f, "num_kv_heads", f->kv_heads);
  f->kv_heads = is_new ? f->kv_heads : has_one ? 1 : f->heads;
  f->head_dim = f->h / f->heads;
  const gint64 norms = is_new || !parallel ? 2 : 1;
  const gint64 mlp = linear (f->h, wide, bias) + linear (wide, f->h, bias);
  return causal_lm (f, gqa (f, bias, bias) + mlp + norms * 2 * f->h, 2 * f->h, TRUE);
}

static gint64
mpt (File *f)
{
  const gint64 ratio = up_to (f->rand, 6);
  put (f, "n_layers", f->layers);
  put (f, "d_model", f->h);
  put (f, "n_heads", f->heads);
  put (f, "vocab_size", f->vocab);
  put (f, "max_seq_len", f->seq);
  put (f, "expansion_ratio", ratio);
  const gboolean bias = !put_flag (f, "no_bias"), alibi = g_rand_boolean (f->rand);
  g_string_append_printf (f->config, ", \"attn_config\": {\"alibi\": %s}",
                          alibi ? "true" : "false");
  const gint64 norm = f->h + (bias ? f->h : 0);
  const gint64 attention = linear (f->h, 3 * f->h, bias) + linear (f->h, f->h, bias);
  const gint64 mlp = linear (f->h, ratio * f->h, bias) + linear (ratio * f->h, f->h, bias);
  return causal_lm (f, attention + mlp + 2 * norm, norm, TRUE) + (alibi ? 0 : f->seq * f->h);
}

static gint64
phi3 (File *f)
{
  put_usual (f);
  f->head_dim = f->h / f->heads;
  const gint64 wide = f->heads * f->head_dim + 2 * f->kv_heads * f->head_dim;
  const gint64 attention = linear (f->h, wide, FALSE) + linear (f->h, f->h, FALSE);
  const gint64 mlp = linear (f->h, 2 * f->ffn, FALSE) + linear (f->ffn, f->h, FALSE);
  return causal_lm (f, attention + mlp + 2 * f->h, f->h, FALSE);
}

/* A router and its experts, one by one. */
static gint64
experts (const File *f, gint64 n, gint64 ffn)
{
  gint64 sum = linear (f->h, n, FALSE);
  for (gint64 i = 0; i < n; i++)
    sum += swiglu (f, ffn, FALSE);
  return sum;
}

static gint64
mixtral (File *f)
{
  put_usual (f);
  put (f, "num_experts_per_tok", 1);
  const gint64 n = put_some (f, "num_local_experts", 9);
  f->head_dim = f->h / f->heads;
  return causal_lm (f, gqa (f, FALSE, FALSE) + experts (f, n, f->ffn) + 2 * f->h, f->h, FALSE);
}

/* Dense and sparse layers, by decoder_sparse_step and mlp_only_layers. */
static gint64
qwen_moe (File *f, gint64 layer, gint64 shared)
{
  const gint64 n = put_some (f, "num_experts", 20), ffn = put_some (f, "moe_intermediate_size", 50);
  const gint64 step = g_rand_int_range (f->rand, 1, (gint32)f->layers + 1);
  const gint64 first = step == f->layers ? 0 : g_rand_int_range (f->rand, 0, (gint32)step);
  gint64 sum = 0;
  put (f, "num_experts_per_tok", 1);
  put (f, "decoder_sparse_step", step);
  g_string_append (f->config, ", \"mlp_only_layers\": [");
  for (gint64 i = 0; i < first; i++)
    g_string_append_printf (f->config, "%s%d", i ? ", " : "", (int)i);
  g_string_append (f->config, "]");
  for (gint64 i = 0; i < f->layers; i++)
    sum += layer
           + (i >= first && (i + 1) % step == 0 ? experts (f, n, ffn) + shared
                                                : swiglu (f, f->ffn, FALSE));
  return causal_lm (f, 0, f->h, FALSE) + sum;
}

static gint64
qwen2_moe (File *f)
{
  put_usual (f);
  f->head_dim = f->h / f->heads;
  const gint64 shared = put_some (f, "shared_expert_intermediate_size", 60);
  return qwen_moe (f, gqa (f, TRUE, FALSE) + 2 * f->h,
                   swiglu (f, shared, FALSE) + linear (f->h, 1, FALSE));
}

static gint64
qwen3_moe (File *f)
{
  put_usual (f);
  put (f, "head_dim", f->head_dim);
  const gboolean bias = put_flag (f, "attention_bias");
  return qwen_moe (f, gqa (f, bias, bias) + 2 * f->head_dim + 2 * f->h, 0);
}

static gint64
deepseek (File *f, gboolean has_correction)
{
  f->kv_heads = f->heads;
  put_usual (f);
  const gint64 kv = put_some (f, "kv_lora_rank", 60), v = put_some (f, "v_head_dim", 20);
  const gint64 nope = put_some (f, "qk_nope_head_dim", 20),
               n = put_some (f, "n_routed_experts", 20);
  const gint64 ffn = put_some (f, "moe_intermediate_size", 40);
  const gint64 shared = put_some (f, "n_shared_experts", 3);
  const gint64 rope = 2 * up_to (f->rand, 10);
  const gint64 dense = g_rand_int_range (f->rand, 0, (gint32)f->layers);
  put (f, "qk_rope_head_dim", rope);
  put (f, "first_k_dense_replace", dense);
  put (f, "num_experts_per_tok", 1);
  put (f, "n_group", n);
  put (f, "topk_group", n);
  gint64 attention = linear (f->h, f->heads * (nope + rope), FALSE);
  if (g_rand_boolean (f->rand))
    g_string_append (f->config, ", \"q_lora_rank\": null");
  else
    {
      const gint64 q = put_some (f, "q_lora_rank", 60);
      attention = linear (f->h, q, FALSE) + q + linear (q, f->heads * (nope + rope), FALSE);
    }
  attention += linear (f->h, kv + rope, FALSE) + kv + linear (kv, f->heads * (nope + v), FALSE)
               + linear (f->heads * v, f->h, FALSE);
  gint64 sum = causal_lm (f, attention + 2 * f->h, f->h, FALSE);
  for (gint64 i = 0; i < f->layers; i++)
    sum += i < dense
               ? swiglu (f, f->ffn, FALSE)
               : experts (f, n, ffn) + (has_correction ? n : 0) + swiglu (f, shared * ffn, FALSE);
  return sum;
}

static gint64
deepseek_v2 (File *f)
{
  return deepseek (f, FALSE);
}

/* Its routers have a bias for each expert, e_score_correction_bias, which deepseek_v2's lack. */
static gint64
deepseek_v3 (File *f)
{
  return deepseek (f, TRUE);
}

static gint64
glm4_moe (File *f)
{
  put_usual (f);
  put (f, "head_dim", 2 * f->head_dim); /* half of it is rotated, and that must be even */
  f->head_dim *= 2;
  const gint64 n = put_some (f, "n_routed_experts", 20);
  const gint64 ffn = put_some (f, "moe_intermediate_size", 40);
  const gint64 shared = put_some (f, "n_shared_experts", 3);
  const gint64 dense = g_rand_int_range (f->rand, 0, (gint32)f->layers);
  put (f, "first_k_dense_replace", dense);
  put (f, "num_experts_per_tok", 1);
  const gboolean bias = put_flag (f, "attention_bias"), norms = put_flag (f, "use_qk_norm");
  gint64 sum
      = causal_lm (f, gqa (f, bias, FALSE) + (norms ? 2 * f->head_dim : 0) + 2 * f->h, f->h, FALSE);
  for (gint64 i = 0; i < f->layers; i++)
    sum += i < dense ? swiglu (f, f->ffn, FALSE)
                     : experts (f, n, ffn) + n + swiglu (f, shared * ffn, FALSE);
  return sum;
}

/* Chunks, norms without weights and layers without positions add nothing. Experts are in the last
 * of every `step` layers, which the file tells by a list or by the stride; use_qk_norm adds nothing
 * either, so its random value also decides between these two. */
static gint64
llama4_text (File *f)
{
  put_usual (f);
  put (f, "head_dim", f->head_dim);
  const gint64 wide = put_some (f, "intermediate_size_mlp", 300);
  const gint64 n = put_some (f, "num_local_experts", 9);
  const gint64 step = g_rand_int_range (f->rand, 1, (gint32)f->layers + 1);
  const gboolean is_list = put_flag (f, "use_qk_norm"), bias = put_flag (f, "attention_bias");
  if (is_list)
    g_string_append (f->config, ", \"moe_layers\": [");
  else
    put (f, "interleave_moe_layer_step", step);
  gint64 sum = causal_lm (f, gqa (f, bias, bias) + 2 * f->h, f->h, FALSE);
  for (gint64 i = 0; i < f->layers; i++)
    {
      const gboolean has_experts = (i + 1) % step == 0;
      sum += has_experts ? experts (f, n, f->ffn) + swiglu (f, f->ffn, FALSE)
                         : swiglu (f, wide, FALSE);
      if (is_list && has_experts)
        g_string_append_printf (f->config, "%s%d", i + 1 > step ? ", " : "", (int)i);
    }
  if (is_list)
    g_string_append (f->config, "]");
  return sum;
}

/* Attention has a sink per head, and every product has a bias. */
static gint64
gpt_oss (File *f)
{
  put_usual (f);
  put (f, "head_dim", f->head_dim);
  put (f, "num_experts_per_tok", 1);
  const gint64 n = put_some (f, "num_local_experts", 9);
  gint64 layer = gqa (f, TRUE, TRUE) + f->heads + linear (f->h, n, TRUE) + 2 * f->h;
  for (gint64 i = 0; i < n; i++)
    layer += swiglu (f, f->ffn, TRUE);
  return causal_lm (f, layer, f->h, FALSE);
}

static gint64
seed_oss (File *f)
{
  put_usual (f);
  put (f, "head_dim", f->head_dim);
  const gboolean in = put_flag (f, "attention_bias"), out = put_flag (f, "attention_out_bias");
  const gboolean mlp_bias = put_flag (f, "mlp_bias");
  const gint64 layer = gqa (f, in, out) + swiglu (f, f->ffn, mlp_bias) + 2 * f->h;
  return causal_lm (f, layer, f->h, put_flag (f, "tie_word_embeddings"));
}

/* Layers without positions have the same weights. The head is tied, as the file does not say
 * otherwise. */
static gint64
smollm3 (File *f)
{
  put_usual (f);
  put_some (f, "no_rope_layer_interval", 8);
  f->head_dim = f->h / f->heads;
  const gboolean bias = put_flag (f, "attention_bias"), mlp_bias = put_flag (f, "mlp_bias");
  const gint64 layer = gqa (f, bias, bias) + swiglu (f, f->ffn, mlp_bias) + 2 * f->h;
  return causal_lm (f, layer, f->h, TRUE);
}

static gint64
ernie4_5 (File *f)
{
  put_usual (f);
  put (f, "head_dim", f->head_dim);
  const gboolean bias = put_flag (f, "use_bias");
  return causal_lm (f, gqa (f, bias, bias) + swiglu (f, f->ffn, bias) + 2 * f->h, f->h, TRUE);
}

/* Four norms a layer: before and behind attention, before and behind the MLP. */
static gint64
glm4 (File *f)
{
  put_usual (f);
  put (f, "head_dim", 2 * f->head_dim); /* half of it is rotated, and that must be even */
  f->head_dim *= 2;
  const gboolean bias = put_flag (f, "attention_bias");
  const gint64 mlp = linear (f->h, 2 * f->ffn, FALSE) + linear (f->ffn, f->h, FALSE);
  return causal_lm (f, gqa (f, bias, FALSE) + mlp + 4 * f->h, f->h, FALSE);
}

/* An MLP of two matrices. */
static gint64
plain_mlp (const File *f, gboolean bias)
{
  return linear (f->h, f->ffn, bias) + linear (f->ffn, f->h, bias);
}

static gint64
arcee (File *f)
{
  put_usual (f);
  put (f, "head_dim", f->head_dim);
  const gboolean bias = put_flag (f, "attention_bias"), mlp_bias = put_flag (f, "mlp_bias");
  return causal_lm (f, gqa (f, bias, bias) + plain_mlp (f, mlp_bias) + 2 * f->h, f->h, FALSE);
}

static gint64
starcoder2 (File *f)
{
  put_usual (f);
  f->head_dim = f->h / f->heads;
  const gboolean bias = put_flag (f, "use_bias");
  const gint64 layer = gqa (f, bias, bias) + plain_mlp (f, bias) + 2 * 2 * f->h;
  return causal_lm (f, layer, 2 * f->h, put_flag (f, "tie_word_embeddings"));
}

static gint64
nemotron (File *f)
{
  put_usual (f);
  put (f, "head_dim", 2 * f->head_dim); /* half of it is rotated, and that must be even */
  f->head_dim *= 2;
  const gboolean bias = put_flag (f, "attention_bias"), mlp_bias = put_flag (f, "mlp_bias");
  const gint64 layer = gqa (f, bias, bias) + plain_mlp (f, mlp_bias) + 2 * 2 * f->h;
  return causal_lm (f, layer, 2 * f->h, FALSE);
}

/* OLMoE and MiniMax-M2: gains of queries and keys are as wide as all heads together. */
static gint64
normed_in_full (File *f)
{
  const gboolean balances = strstr (f->config->str, "minimax") != NULL;
  const gint64 n = put_some (f, balances ? "num_local_experts" : "num_experts", 20);
  const gboolean bias = !balances && put_flag (f, "attention_bias");
  f->head_dim *= 2; /* half of it may be rotated, and that must be even */
  put_usual (f);
  put (f, "head_dim", f->head_dim);
  put (f, "num_experts_per_tok", 1);
  const gint64 gains = (f->heads + f->kv_heads) * f->head_dim + 2 * f->h;
  const gint64 mlp = experts (f, n, f->ffn) + (balances ? n : 0);
  return causal_lm (f, gqa (f, bias, bias) + gains + mlp, f->h, FALSE);
}

/* Qwen3-Next and Qwen3.5: most layers have linear attention by the gated delta rule, the last of
 * every so many attention with a gate as wide as its queries. */
static gint64
gated_delta (File *f)
{
  const gboolean is_next = strstr (f->config->str, "qwen3_next") != NULL;
  const gboolean has_experts = is_next || strstr (f->config->str, "moe") != NULL;
  f->head_dim *= 4; /* a quarter of it is rotated, and that must be even */
  put_usual (f);
  put (f, "head_dim", f->head_dim);
  const gint64 every = g_rand_int_range (f->rand, 2, 6);
  if (g_rand_boolean (f->rand))
    put (f, "full_attention_interval", every);
  else
    {
      g_string_append (f->config, ", \"layer_types\": [");
      for (gint64 i = 0; i < f->layers; i++)
        g_string_append_printf (f->config, "%s\"%s_attention\"", i ? ", " : "",
                                (i + 1) % every ? "linear" : "full");
      g_string_append (f->config, "]");
    }
  const gint64 key_heads = put_some (f, "linear_num_key_heads", 6);
  const gint64 value_heads = key_heads * g_rand_int_range (f->rand, 1, 4);
  put (f, "linear_num_value_heads", value_heads);
  const gint64 keys = key_heads * put_some (f, "linear_key_head_dim", 20);
  const gint64 value_dim = put_some (f, "linear_value_head_dim", 20);
  const gint64 kernel = put_some (f, "linear_conv_kernel_dim", 5);
  const gint64 values = value_heads * value_dim, conv = 2 * keys + values;
  const gint64 delta = (conv + values + 2 * value_heads) * f->h + conv * kernel + 2 * value_heads
                       + value_dim + values * f->h;
  const gint64 full = gqa (f, FALSE, FALSE) + f->heads * f->head_dim * f->h + 2 * f->head_dim;
  gint64 mlp = swiglu (f, f->ffn, FALSE);
  if (has_experts)
    {
      const gint64 n = put_some (f, "num_experts", 20);
      const gint64 ffn = put_some (f, "moe_intermediate_size", 40);
      const gint64 shared = put_some (f, "shared_expert_intermediate_size", 40);
      put (f, "num_experts_per_tok", 1);
      mlp = experts (f, n, ffn) + swiglu (f, shared, FALSE) + f->h;
    }
  gint64 sum = causal_lm (f, 2 * f->h + mlp, f->h, FALSE);
  for (gint64 i = 0; i < f->layers; i++)
    sum += (i + 1) % every ? delta : full;
  return sum;
}

/* Nemotron-H: a letter per layer, each of which has a norm. Experts and MLPs have two matrices. */
static gint64
nemotron_h (File *f)
{
  put_usual (f);
  put (f, "head_dim", f->head_dim);
  const gint64 groups = put_some (f, "n_groups", 4);
  const gint64 heads = groups * up_to (f->rand, 4);
  put (f, "mamba_num_heads", heads);
  const gint64 inner = heads * put_some (f, "mamba_head_dim", 20);
  const gint64 shared = 2 * groups * put_some (f, "ssm_state_size", 20);
  const gint64 kernel = put_some (f, "conv_kernel", 5), n = put_some (f, "n_routed_experts", 20);
  const gint64 ffn = put_some (f, "moe_intermediate_size", 40);
  const gint64 of_shared = put_some (f, "moe_shared_expert_intermediate_size", 40);
  put (f, "num_experts_per_tok", 1);
  const gint64 mamba = linear (f->h, 2 * inner + shared + heads, FALSE)
                       + (inner + shared) * (kernel + 1) + 3 * heads + inner
                       + linear (inner, f->h, FALSE);
  const gint64 moe = linear (f->h, n, FALSE) + n + 2 * f->h * (n * ffn + of_shared);
  gint64 sum = causal_lm (f, f->h, f->h, put_flag (f, "tie_word_embeddings"));
  g_string_append (f->config, ", \"hybrid_override_pattern\": \"");
  for (gint64 i = 0; i < f->layers; i++)
    {
      const char letter = i == 0 ? 'M' : "M*-E"[g_rand_int_range (f->rand, 0, 4)];
      g_string_append_c (f->config, letter);
      sum += letter == 'M'   ? mamba
             : letter == '*' ? gqa (f, FALSE, FALSE)
             : letter == '-' ? 2 * f->h * f->ffn
                             : moe;
    }
  g_string_append (f->config, "\"");
  return sum;
}

static gint64
dots1 (File *f)
{
  put_usual (f);
  put (f, "head_dim", f->head_dim);
  put (f, "num_experts_per_tok", 1);
  const gint64 n = put_some (f, "n_routed_experts", 20);
  const gint64 ffn = put_some (f, "moe_intermediate_size", 40);
  const gint64 shared = put_some (f, "n_shared_experts", 3);
  const gint64 dense = g_rand_int_range (f->rand, 0, (gint32)f->layers);
  put (f, "first_k_dense_replace", dense);
  const gboolean bias = put_flag (f, "attention_bias");
  gint64 sum = causal_lm (f, gqa (f, bias, bias) + 2 * f->head_dim + 2 * f->h, f->h, FALSE);
  for (gint64 i = 0; i < f->layers; i++)
    sum += i < dense ? swiglu (f, f->ffn, FALSE)
                     : experts (f, n, ffn) + n + swiglu (f, shared * ffn, FALSE);
  return sum;
}

static const struct
{
  const char *name;
  gint64 (*write) (File *f);
} references[] = {
  { "llama", llama },
  { "mistral", mistral },
  { "qwen2", qwen2 },
  { "qwen3", qwen3 },
  { "gemma", gemma },
  { "gemma2", gemma2 },
  { "gemma3_text", gemma3 },
  { "gpt2", gpt2 },
  { "gpt_neox", gpt_neox },
  { "bloom", bloom },
  { "falcon", falcon },
  { "mpt", mpt },
  { "phi3", phi3 },
  { "mixtral", mixtral },
  { "qwen2_moe", qwen2_moe },
  { "qwen3_moe", qwen3_moe },
  { "deepseek_v2", deepseek_v2 },
  { "deepseek_v3", deepseek_v3 },
  { "kimi_k2", deepseek_v3 },
  { "glm4_moe", glm4_moe },
  { "llama4_text", llama4_text },
  { "gpt_oss", gpt_oss },
  { "seed_oss", seed_oss },
  { "smollm3", smollm3 },
  { "ernie4_5", ernie4_5 },
  { "glm4", glm4 },
  { "arcee", arcee },
  { "starcoder2", starcoder2 },
  { "nemotron", nemotron },
  { "dots1", dots1 },
  { "glm4_moe_lite", deepseek_v3 },
  { "olmoe", normed_in_full },
  { "minimax_m2", normed_in_full },
  { "qwen3_next", gated_delta },
  { "qwen3_5_text", gated_delta },
  { "qwen3_5_moe_text", gated_delta },
  { "nemotron_h", nemotron_h },
};

START_TEST (config_counts_as_transformers_would)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const guint which = (guint)_i % G_N_ELEMENTS (references);
  g_autoptr (GString) config = g_string_new (NULL);
  g_autoptr (GError) error = NULL;
  File f = { .rand = rand, .config = config };
  f.layers = up_to (rand, 12);
  f.kv_heads = up_to (rand, 4);
  f.heads = f.kv_heads * up_to (rand, 4);
  f.head_dim = 2 * up_to (rand, 40);
  f.h = f.heads * 2 * up_to (rand, 30);
  f.ffn = up_to (rand, 500);
  f.vocab = up_to (rand, 1000);
  f.seq = up_to (rand, 100);
  g_string_printf (config, "{\"model_type\": \"%s\"", references[which].name);
  if (g_str_equal (references[which].name, "gpt_neox")
      || g_str_equal (references[which].name, "gpt2"))
    f.kv_heads = f.heads;
  const gint64 count = references[which].write (&f);
  g_string_append (config, "}");
  g_autoptr (PlanModel) model
      = plan_model_parse_config (config->str, config->len, "c.json", &error);
  ck_assert_msg (model != NULL, "seed %d: %s", _i, error ? error->message : "");
  ck_assert_msg (plan_model_parameters (model) == (guint64)count,
                 "seed %d: %" G_GUINT64_FORMAT " counted, %" G_GINT64_FORMAT " there: %s", _i,
                 plan_model_parameters (model), count, config->str);
  g_autofree char *text = plan_model_print (model);
  g_autoptr (PlanModel) again = plan_model_new (text, &error);
  ck_assert_msg (again != NULL, "seed %d: %s", _i, error ? error->message : "");
  assert_same (model, again, _i);
}
END_TEST

START_TEST (every_family_has_a_reference)
{
  const char *const *families = plan_model_families ();
  for (guint i = 0; i < G_N_ELEMENTS (references); i++)
    ck_assert_str_eq (families[i], references[i].name);
  ck_assert_ptr_null (families[G_N_ELEMENTS (references)]);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("model");
  TCase *tcase = tcase_create ("model");
  tcase_add_loop_test (tcase, config_counts_as_transformers_would, 0, N_SEEDS);
  tcase_add_test (tcase, every_family_has_a_reference);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
