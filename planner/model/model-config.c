/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a Hugging Face config.json: the names that each family gives its dimensions, and what
 * transformers (configuration_*.py, 4.57) assumes where the file says nothing. A model starts with
 * its family's defaults, and the file says what differs. */
#include "config.h"

#include "planner/model/model-private.h"

#include "planner/base/error.h"
#include "planner/base/json.h"
#include "planner/base/text.h"
#include "planner/model/layer-kinds.h"

#include <string.h>

gboolean
plan_config_refuse (GError **error, const char *format, ...)
{
  va_list args;
  va_start (args, format);
  g_autofree char *message = g_strdup_vprintf (format, args);
  va_end (args);
  g_set_error_literal (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED, message);
  return FALSE;
}

/* Activations by name. Of several names for one, the first is written. */
static const struct
{
  const char *name;
  PlanActivation activation;
} activations[] = {
  { "silu", PLAN_ACTIVATION_SILU },
  { "swish", PLAN_ACTIVATION_SILU },
  { "gelu", PLAN_ACTIVATION_GELU },
  { "gelu_new", PLAN_ACTIVATION_GELU_TANH },
  { "gelu_fast", PLAN_ACTIVATION_GELU_TANH },
  { "gelu_pytorch_tanh", PLAN_ACTIVATION_GELU_TANH },
  { "relu", PLAN_ACTIVATION_RELU },
  { "relu2", PLAN_ACTIVATION_RELU2 },
  { "quick_gelu", PLAN_ACTIVATION_QUICK_GELU },
};

const char *
plan_model_activation_name (PlanActivation activation)
{
  guint at = 0;
  while (activations[at].activation != activation)
    at++;
  return activations[at].name;
}

static gboolean
read_activation (PlanModel *self, PlanModelJson *object, const char *key, GError **error)
{
  const char *names[G_N_ELEMENTS (activations) + 1] = { NULL }, *name = NULL;
  if (!plan_model_json_word (object, key, &name, error))
    return FALSE;
  if (!name)
    return TRUE;
  for (guint i = 0; i < G_N_ELEMENTS (activations); i++)
    {
      names[i] = activations[i].name;
      if (g_str_equal (name, activations[i].name))
        {
          self->activation = activations[i].activation;
          return TRUE;
        }
    }
  g_autofree char *shown = plan_text_quote (name);
  g_autofree char *all = g_strjoinv (", ", (char **)names);
  return plan_config_refuse (error, "%s: %s is not modelled; known are %s", key, shown, all);
}

gboolean
plan_model_read_attention_bias (PlanModel *self, PlanModelJson *object, GError **error)
{
  gboolean bias = self->qkv_bias;
  if (!plan_model_json_flag (object, "attention_bias", &bias, error))
    return FALSE;
  self->qkv_bias = self->proj_bias = bias;
  return TRUE;
}

/* --- windows ------------------------------------------------------------------------------- */

/* Whether the layers that have a window are those that the model's keys say. */
static gboolean
fits_layers (const PlanModel *self, const gboolean *slides)
{
  for (gint64 i = 0; i < self->layers; i++)
    if (slides[i] != ((plan_model_layer_kind (self, i, G_MAXINT64) & PLAN_LAYER_WINDOWED) != 0))
      return FALSE;
  return TRUE;
}

/* Finds the stride of layers without a window: the family's, or the first such layer's. */
static gboolean
find_full_layers (PlanModel *self, const gboolean *slides)
{
  gint64 first = 0;
  while (first < self->layers && slides[first])
    first++;
  self->window_from = 0;
  self->window_every = 1;
  if (self->full_every > 0 && fits_layers (self, slides))
    return TRUE;
  self->full_every = first + 1;
  if (self->window > 0 && first > 0 && first < self->layers && fits_layers (self, slides))
    return TRUE;
  self->full_every = 0;
  return FALSE;
}

/* Reads the list of layer types, if any, as a first windowed layer and a stride. */
static gboolean
read_layer_types (PlanModel *self, PlanModelJson *object, GError **error)
{
  JsonNode *const node = plan_model_json_find (object, "layer_types");
  if (!node)
    return TRUE;
  JsonArray *const types = JSON_NODE_HOLDS_ARRAY (node) ? json_node_get_array (node) : NULL;
  if (!types || json_array_get_length (types) != (guint64)self->layers)
    return plan_model_json_refuse ("layer_types", node, "is not a list of a word for every layer",
                                   error);
  gint64 first = -1, second = -1;
  g_autofree gboolean *slides = g_new0 (gboolean, (gsize)self->layers);
  for (gint64 i = 0; i < self->layers; i++)
    {
      JsonNode *const item = json_array_get_element (types, (guint)i);
      const char *const type = JSON_NODE_HOLDS_VALUE (item) ? json_node_get_string (item) : NULL;
      slides[i] = g_strcmp0 (type, "sliding_attention") == 0;
      if (!slides[i] && g_strcmp0 (type, "full_attention") != 0)
        return plan_model_json_refuse ("layer_types", item,
                                       "is neither full_attention nor sliding_attention", error);
      first = slides[i] && first < 0 ? i : first;
      second = slides[i] && second < 0 && i > first ? i : second;
    }
  const gboolean is_of_full = self->full_every > 0;
  if (is_of_full && find_full_layers (self, slides))
    return TRUE;
  if (first < 0)
    self->window = 0;
  self->window_from = MAX (first, 0);
  self->window_every = first < 0 ? 1 : second < 0 ? self->layers : second - first;
  if (first >= 0 && self->window == 0)
    return plan_config_refuse (
        error, "layer_types: has sliding_attention, but there is no sliding_window");
  const gint64 every = self->window_every;
  if (first < 0 || fits_layers (self, slides) || find_full_layers (self, slides))
    return TRUE;
  for (gint64 i = 0; i < self->layers; i++)
    if (slides[i] != (i >= first && (i - first) % every == 0))
      return plan_config_refuse (
          error,
          "layer_types: only sliding layers at equal distances, or full ones among "
          "them, are modelled, layer %" G_GINT64_FORMAT " breaks them",
          i);
  return TRUE;
}

/* Qwen: there is a window only if use_sliding_window says so, and only in the layers behind
 * max_window_layers. */
static gboolean
read_late_window (PlanModel *self, PlanModelJson *object, GError **error)
{
  gint64 window = 4096, from = 28;
  gboolean used = FALSE;
  if (!plan_model_json_flag (object, "use_sliding_window", &used, error)
      || !plan_model_json_int_or_null (object, "sliding_window", &window, error)
      || !plan_model_json_int (object, "max_window_layers", 0, &from, error))
    return FALSE;
  if (used && from < self->layers)
    {
      self->window = window;
      self->window_from = window > 0 ? from : 0;
    }
  return read_layer_types (self, object, error);
}

/* Refuses a window where the family's window is not modelled. Its width and layers matter only
 * then. */
static gboolean
refuse_window (PlanModelJson *object, GError **error)
{
  gboolean used = FALSE;
  plan_model_json_find (object, "sliding_window");
  plan_model_json_find (object, "max_window_layers");
  if (!plan_model_json_flag (object, "use_sliding_window", &used, error))
    return FALSE;
  return !used
         || plan_config_refuse (error, "use_sliding_window: true is not modelled for this family");
}

/* --- families ------------------------------------------------------------------------------ */

static gboolean
read_llama (PlanModel *self, PlanModelJson *object, GError **error)
{
  return plan_model_read_attention_bias (self, object, error)
         && plan_model_json_flag (object, "mlp_bias", &self->mlp_bias, error)
         && plan_model_read_rope (self, object, "rope_theta", NULL, error);
}

static gboolean
read_mistral (PlanModel *self, PlanModelJson *object, GError **error)
{
  self->window = 4096;
  return plan_model_json_int_or_null (object, "sliding_window", &self->window, error)
         && plan_model_read_rope (self, object, "rope_theta", NULL, error);
}

static gboolean
read_qwen2 (PlanModel *self, PlanModelJson *object, GError **error)
{
  return read_late_window (self, object, error)
         && plan_model_read_rope (self, object, "rope_theta", NULL, error);
}

static gboolean
read_qwen3 (PlanModel *self, PlanModelJson *object, GError **error)
{
  return plan_model_read_attention_bias (self, object, error) && read_qwen2 (self, object, error);
}

static gboolean
read_gemma (PlanModel *self, PlanModelJson *object, GError **error)
{
  return plan_model_read_attention_bias (self, object, error)
         && plan_model_read_rope (self, object, "rope_theta", NULL, error);
}

/* Reads a bound; null is 0 and stands for none. */
static gboolean
read_softcap (PlanModelJson *object, const char *key, double *out_value, GError **error)
{
  if (plan_model_json_has (object, key) && !plan_model_json_find (object, key))
    *out_value = 0;
  return plan_model_json_real (object, key, out_value, error);
}

static gboolean
read_gemma2 (PlanModel *self, PlanModelJson *object, GError **error)
{
  return plan_model_json_int_or_null (object, "sliding_window", &self->window, error)
         && read_layer_types (self, object, error)
         && read_softcap (object, "attn_logit_softcapping", &self->attn_softcap, error)
         && read_softcap (object, "final_logit_softcapping", &self->logit_softcap, error)
         && plan_model_json_real (object, "query_pre_attn_scalar", &self->attn_scalar, error)
         && read_gemma (self, object, error);
}

/* Gemma 3: all layers but one in so many have a window, and their positions have a base of their
 * own. */
static gboolean
read_gemma3 (PlanModel *self, PlanModelJson *object, GError **error)
{
  if (!plan_model_json_int (object, "sliding_window_pattern", 1, &self->full_every, error)
      || !plan_model_json_int (object, "_sliding_window_pattern", 1, &self->full_every, error)
      || !read_gemma2 (self, object, error)
      || !plan_model_json_real (object, "rope_local_base_freq", &self->rope_local, error))
    return FALSE;
  if (self->window > 0)
    return TRUE;
  self->full_every = 0;
  self->rope_local = 0;
  return TRUE;
}

static gboolean
read_phi3 (PlanModel *self, PlanModelJson *object, GError **error)
{
  return plan_model_json_int_or_null (object, "sliding_window", &self->window, error)
         && plan_model_read_rope (self, object, "rope_theta", "partial_rotary_factor", error);
}

static gboolean
read_mixtral (PlanModel *self, PlanModelJson *object, GError **error)
{
  self->expert_ffn = self->ffn;
  return plan_model_json_int (object, "num_local_experts", 1, &self->experts, error)
         && plan_model_json_int (object, "num_experts_per_tok", 1, &self->topk, error)
         && plan_model_json_int_or_null (object, "sliding_window", &self->window, error)
         && plan_model_read_rope (self, object, "rope_theta", NULL, error);
}

/* Reads the list of layers without experts, which must be the first ones. */
static gboolean
read_mlp_only_layers (PlanModel *self, PlanModelJson *object, GError **error)
{
  JsonNode *const node = plan_model_json_find (object, "mlp_only_layers");
  if (!node)
    return TRUE;
  JsonArray *const list = JSON_NODE_HOLDS_ARRAY (node) ? json_node_get_array (node) : NULL;
  if (!list)
    return plan_model_json_refuse ("mlp_only_layers", node, "is not a list of layers", error);
  g_autoptr (GHashTable) layers = g_hash_table_new (NULL, NULL);
  gint64 last = -1;
  for (guint i = 0; i < json_array_get_length (list); i++)
    {
      JsonNode *const item = json_array_get_element (list, i);
      const gint64 layer
          = JSON_NODE_HOLDS_VALUE (item) && json_node_get_value_type (item) == G_TYPE_INT64
                ? json_node_get_int (item)
                : -1;
      if (layer < 0 || layer >= self->layers)
        return plan_model_json_refuse ("mlp_only_layers", item, "is not a layer of the model",
                                       error);
      g_hash_table_add (layers, GINT_TO_POINTER ((gint)layer));
      last = MAX (last, layer);
    }
  if (g_hash_table_size (layers) != (guint64)(last + 1))
    return plan_config_refuse (
        error, "mlp_only_layers: only a model's first layers may be without experts");
  self->dense_layers = last + 1;
  return TRUE;
}

/* Reads the number of experts, which transformers 5 writes under another name. */
static gboolean
read_n_experts (PlanModel *self, PlanModelJson *object, GError **error)
{
  gint64 named_anew = self->experts;
  if (!plan_model_json_int (object, "num_local_experts", 1, &named_anew, error))
    return FALSE;
  self->experts = named_anew;
  if (!plan_model_json_int (object, "num_experts", 1, &self->experts, error))
    return FALSE;
  if (plan_model_json_find (object, "num_local_experts") && self->experts != named_anew)
    return plan_config_refuse (
        error, "num_experts: is another number than num_local_experts: give one of them");
  return TRUE;
}

static gboolean
read_qwen_experts (PlanModel *self, PlanModelJson *object, GError **error)
{
  gboolean norms = FALSE;
  if (!plan_model_json_flag (object, "norm_topk_prob", &norms, error))
    return FALSE;
  self->pre_softmax = !norms; /* otherwise the shares of the chosen experts sum to 1, as a softmax
                                 over them does */
  return refuse_window (object, error) && read_n_experts (self, object, error)
         && plan_model_json_int (object, "num_experts_per_tok", 1, &self->topk, error)
         && plan_model_json_int (object, "moe_intermediate_size", 1, &self->expert_ffn, error)
         && plan_model_json_int (object, "decoder_sparse_step", 1, &self->moe_every, error)
         && read_mlp_only_layers (self, object, error)
         && plan_model_read_rope (self, object, "rope_theta", NULL, error);
}

static gboolean
read_qwen2_moe (PlanModel *self, PlanModelJson *object, GError **error)
{
  return plan_model_json_int (object, "shared_expert_intermediate_size", 1, &self->shared_ffn,
                              error)
         && plan_model_json_flag (object, "qkv_bias", &self->qkv_bias, error)
         && read_qwen_experts (self, object, error);
}

static gboolean
read_qwen3_moe (PlanModel *self, PlanModelJson *object, GError **error)
{
  return plan_model_read_attention_bias (self, object, error)
         && read_qwen_experts (self, object, error);
}

/* Reads the groups of experts; a single group counts as none. */
static gboolean
read_groups (PlanModel *self, PlanModelJson *object, GError **error)
{
  if (!plan_model_json_int_or_null (object, "n_group", &self->router_groups, error)
      || !plan_model_json_int_or_null (object, "topk_group", &self->router_group_topk, error)
      || !plan_model_json_real (object, "routed_scaling_factor", &self->router_scale, error))
    return FALSE;
  if (self->router_groups <= 1)
    self->router_groups = self->router_group_topk = 0;
  return TRUE;
}

/* Reads experts as DeepSeek's and GLM's files describe them. */
static gboolean
read_routed_experts (PlanModel *self, PlanModelJson *object, gint64 shared, GError **error)
{
  if (!plan_model_json_int (object, "n_routed_experts", 1, &self->experts, error)
      || !plan_model_json_int (object, "num_experts_per_tok", 1, &self->topk, error)
      || !plan_model_json_int (object, "moe_intermediate_size", 1, &self->expert_ffn, error)
      || !plan_model_json_int_or_null (object, "n_shared_experts", &shared, error)
      || !plan_model_json_int (object, "first_k_dense_replace", 0, &self->dense_layers, error)
      || !read_groups (self, object, error))
    return FALSE;
  if (shared > G_MAXINT32 / self->expert_ffn)
    return plan_config_refuse (error, "n_shared_experts: too many for moe_intermediate_size");
  self->shared_ffn = shared * self->expert_ffn;
  return TRUE;
}

static gboolean
read_glm4_moe (PlanModel *self, PlanModelJson *object, GError **error)
{
  return plan_model_json_flag (object, "attention_bias", &self->qkv_bias, error)
         && plan_model_json_flag (object, "use_qk_norm", &self->qk_norm, error)
         && plan_model_json_int_or_null (object, "num_nextn_predict_layers", &self->mtp, error)
         && read_routed_experts (self, object, 1, error)
         && plan_model_read_rope (self, object, "rope_theta", "partial_rotary_factor", error);
}

/* gpt-oss: its activation has no name in the file: x times the sigmoid of 1.702 x, with bounded
 * factors. */
static gboolean
read_gpt_oss (PlanModel *self, PlanModelJson *object, GError **error)
{
  self->expert_ffn = self->ffn;
  return plan_model_read_attention_bias (self, object, error)
         && plan_model_json_int (object, "num_local_experts", 1, &self->experts, error)
         && plan_model_json_int (object, "num_experts_per_tok", 1, &self->topk, error)
         && plan_model_json_int_or_null (object, "sliding_window", &self->window, error)
         && read_layer_types (self, object, error)
         && plan_model_read_rope (self, object, "rope_theta", NULL, error);
}

/* Reads how experts are scored: by a softmax (in V2 over all of them), or by sigmoids and a
 * bias. */
static gboolean
read_scores (PlanModel *self, PlanModelJson *object, GError **error)
{
  const gboolean is_v2 = g_str_equal (self->family, "deepseek_v2");
  const char *method = is_v2 ? "greedy" : "noaux_tc", *function = is_v2 ? "softmax" : "sigmoid";
  gboolean norms = !is_v2;
  if (!plan_model_json_word (object, "topk_method", &method, error)
      || !plan_model_json_word (object, "scoring_func", &function, error)
      || !plan_model_json_flag (object, "norm_topk_prob", &norms, error))
    return FALSE;
  const gboolean is_sigmoid = g_str_equal (function, "sigmoid");
  if (!is_sigmoid && !g_str_equal (function, "softmax"))
    {
      g_autofree char *shown = plan_text_quote (function);
      return plan_config_refuse (
          error, "scoring_func: %s is not modelled; known are sigmoid, softmax", shown);
    }
  self->router_score = is_sigmoid ? PLAN_ROUTER_SIGMOID : PLAN_ROUTER_SOFTMAX;
  self->pre_softmax = !is_sigmoid && !norms;
  self->router_bias = g_str_equal (method, "noaux_tc");
  if (g_str_equal (method, "greedy"))
    self->router_groups = self->router_group_topk = 0;
  return TRUE;
}

static gboolean
read_deepseek (PlanModel *self, PlanModelJson *object, GError **error)
{
  const gint64 shared = g_str_equal (self->family, "deepseek_v2") ? 2 : 1;
  gint64 every = 1;
  if (!read_routed_experts (self, object, shared, error) || !read_scores (self, object, error)
      || !plan_model_json_int (object, "moe_layer_freq", 1, &every, error)
      || !plan_model_json_int_or_null (object, "q_lora_rank", &self->q_lora, error)
      || !plan_model_json_int (object, "kv_lora_rank", 1, &self->kv_lora, error)
      || !plan_model_json_int (object, "qk_nope_head_dim", 1, &self->nope_dim, error)
      || !plan_model_json_int (object, "qk_rope_head_dim", 1, &self->rope_dim, error)
      || !plan_model_json_int (object, "v_head_dim", 1, &self->v_dim, error)
      || !plan_model_json_int_or_null (object, "num_nextn_predict_layers", &self->mtp, error)
      || !plan_model_read_attention_bias (self, object, error)
      || !plan_model_read_rope (self, object, "rope_theta", NULL, error))
    return FALSE;
  if (self->qkv_bias)
    return plan_config_refuse (error, "attention_bias: true is not modelled for latent attention");
  if (every != 1)
    return plan_config_refuse (error, "moe_layer_freq: only 1 is modelled");
  self->head_dim = self->nope_dim + self->rope_dim;
  return TRUE;
}

#define USUAL \
  "num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", \
      "max_position_embeddings"

static const PlanModelFamily families[] = {
  { "llama", USUAL, "rms_norm_eps", "hidden_act", 0, 1e-6, 0, read_llama },
  { "mistral", USUAL, "rms_norm_eps", "hidden_act", 8, 1e-6, 0, read_mistral },
  { "qwen2", USUAL, "rms_norm_eps", "hidden_act", 32, 0, 0, read_qwen2 },
  { "qwen3", USUAL, "rms_norm_eps", "hidden_act", 32, 0, 0, read_qwen3 },
  /* not hidden_act, in which early files named the wrong one */
  { "gemma", USUAL, "rms_norm_eps", "hidden_activation", 16, 0, 0, read_gemma },
  { "gemma2", USUAL, "rms_norm_eps", "hidden_activation", 4, 0, 0, read_gemma2 },
  { "gemma3_text", USUAL, "rms_norm_eps", "hidden_activation", 4, 0, 0, read_gemma3 },
  { "gpt2", "n_layer", "n_embd", "n_inner", "n_head", "n_positions", "layer_norm_epsilon",
    "activation_function", 0, 0, 0, NULL },
  { "gpt_neox", USUAL, "layer_norm_eps", "hidden_act", 0, 0, 0, plan_model_read_gpt_neox },
  { "bloom", "n_layer", "hidden_size", NULL, "n_head", "seq_length", "layer_norm_epsilon", NULL, 0,
    0, 2048, plan_model_read_bloom },
  { "falcon", "num_hidden_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads",
    "max_position_embeddings", "layer_norm_epsilon", "activation", 0, 0, 2048,
    plan_model_read_falcon },
  { "mpt", "n_layers", "d_model", NULL, "n_heads", "max_seq_len", "layer_norm_epsilon", NULL, 0, 0,
    0, plan_model_read_mpt },
  { "phi3", USUAL, "rms_norm_eps", "hidden_act", 0, 0, 0, read_phi3 },
  { "mixtral", USUAL, "rms_norm_eps", "hidden_act", 8, 0, 0, read_mixtral },
  { "qwen2_moe", USUAL, "rms_norm_eps", "hidden_act", 16, 0, 0, read_qwen2_moe },
  { "qwen3_moe", USUAL, "rms_norm_eps", "hidden_act", 4, 0, 0, read_qwen3_moe },
  { "deepseek_v2", USUAL, "rms_norm_eps", "hidden_act", 0, 0, 0, read_deepseek },
  { "deepseek_v3", USUAL, "rms_norm_eps", "hidden_act", 0, 0, 0, read_deepseek },
  { "kimi_k2", USUAL, "rms_norm_eps", "hidden_act", 0, 0, 0, read_deepseek },
  { "glm4_moe", USUAL, "rms_norm_eps", "hidden_act", 8, 0, 0, read_glm4_moe },
  { "llama4_text", "num_hidden_layers", "hidden_size", "intermediate_size_mlp",
    "num_attention_heads", "max_position_embeddings", "rms_norm_eps", "hidden_act", 8, 0, 0,
    plan_model_read_llama4 },
  { "gpt_oss", USUAL, "rms_norm_eps", NULL, 8, 0, 0, read_gpt_oss },
};

/* --- what all families have ---------------------------------------------------------------- */

/* Reads the MLP's width, which in gpt2, falcon and mpt is four times the model's unless the file
 * says otherwise. */
static gboolean
read_ffn (PlanModel *self, const PlanModelFamily *family, PlanModelJson *object, GError **error)
{
  double ratio = 4;
  if (family->ffn && !g_str_equal (family->name, "gpt2") && !g_str_equal (family->name, "falcon"))
    return plan_model_json_size (object, family->ffn, &self->ffn, error);
  if (!family->ffn && !plan_model_json_real (object, "expansion_ratio", &ratio, error))
    return FALSE;
  const double wide = ratio * (double)self->hidden;
  if (!(wide >= 1 && wide <= G_MAXINT32))
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "%s: the MLP would be %.10g wide: it must be from 1 to 2147483647",
                   family->ffn ? family->ffn : "expansion_ratio", wide);
      return FALSE;
    }
  self->ffn = (gint64)wide;
  return !family->ffn || plan_model_json_int (object, family->ffn, 1, &self->ffn, error);
}

/* The name that older files of bloom use, where the newer name is absent. */
static const char *
named (PlanModelJson *object, const char *key)
{
  static const char *const older[][2]
      = { { "hidden_size", "n_embed" }, { "n_head", "num_attention_heads" } };
  for (guint i = 0; i < G_N_ELEMENTS (older); i++)
    if (g_str_equal (key, older[i][0]) && !plan_model_json_has (object, key)
        && plan_model_json_has (object, older[i][1]))
      return older[i][1];
  return key;
}

static gboolean
read_heads (PlanModel *self, const PlanModelFamily *family, PlanModelJson *object, GError **error)
{
  if (!plan_model_json_size (object, named (object, family->heads), &self->heads, error))
    return FALSE;
  const gboolean is_null = plan_model_json_has (object, "num_key_value_heads");
  self->kv_heads = is_null || family->kv_heads == 0 ? self->heads : family->kv_heads;
  if (!plan_model_json_int (object, "num_key_value_heads", 1, &self->kv_heads, error))
    return FALSE;
  if (self->heads % self->kv_heads != 0)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "num_key_value_heads: %" G_GINT64_FORMAT "%s does not divide %s"
                   "=%" G_GINT64_FORMAT,
                   self->kv_heads, is_null ? "" : ", the family's default,", family->heads,
                   self->heads);
      return FALSE;
    }
  if (plan_model_json_has (object, "head_dim") && !plan_model_json_find (object, "head_dim"))
    self->head_dim = 0;
  if (!plan_model_json_int (object, "head_dim", 1, &self->head_dim, error))
    return FALSE;
  if (self->head_dim > 0 || self->kv_lora > 0)
    return TRUE;
  if (self->hidden % self->heads != 0)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "%s: %" G_GINT64_FORMAT " does not divide %s=%" G_GINT64_FORMAT
                   ", and there is no head_dim",
                   family->heads, self->heads, family->hidden, self->hidden);
      return FALSE;
    }
  self->head_dim = self->hidden / self->heads;
  return TRUE;
}

/* Replaces our key at the start of an error message by the file's name for it, where it has one. */
static void
name_as_in_file (GError *error, PlanModelJson *object)
{
  static const struct
  {
    const char *ours, *theirs;
  } names[] = {
    { "layers", "num_hidden_layers" },
    { "layers", "n_layer" },
    { "layers", "n_layers" },
    { "heads", "num_attention_heads" },
    { "heads", "n_head" },
    { "heads", "n_heads" },
    { "kv_heads", "num_key_value_heads" },
    { "kv_heads", "num_kv_heads" },
    { "norm_eps", "rms_norm_eps" },
    { "norm_eps", "layer_norm_eps" },
    { "norm_eps", "layer_norm_epsilon" },
    { "rope_theta", "rotary_emb_base" },
    { "rope_fraction", "rotary_pct" },
    { "rope_dim", "qk_rope_head_dim" },
    { "rope_local", "rope_local_base_freq" },
    { "full_every", "sliding_window_pattern" },
    { "rope_fraction", "partial_rotary_factor" },
    { "attn_scalar", "query_pre_attn_scalar" },
    { "attn_softcap", "attn_logit_softcapping" },
    { "logit_softcap", "final_logit_softcapping" },
    { "experts", "num_local_experts" },
    { "experts", "num_experts" },
    { "experts", "n_routed_experts" },
    { "topk", "num_experts_per_tok" },
    { "mtp", "num_nextn_predict_layers" },
    { "moe_every", "decoder_sparse_step" },
    { "ffn", "intermediate_size_mlp" },
    { "window", "attention_chunk_size" },
    { "nope_every", "no_rope_layer_interval" },
    { "router_groups", "n_group" },
    { "router_group_topk", "topk_group" },
    { "router_scale", "routed_scaling_factor" },
  };
  for (guint i = 0; i < G_N_ELEMENTS (names); i++)
    {
      const gsize length = strlen (names[i].ours);
      if (!g_str_has_prefix (error->message, names[i].ours) || error->message[length] != ':'
          || !plan_model_json_has (object, names[i].theirs))
        continue;
      char *const message = g_strconcat (names[i].theirs, error->message + length, NULL);
      g_free (error->message);
      error->message = message;
      return;
    }
}

static gboolean
check_config (PlanModel *self, PlanModelJson *object, GError **error)
{
  GError *cause = NULL;
  if (plan_model_complete (self, &cause))
    return TRUE;
  name_as_in_file (cause, object);
  g_propagate_error (error, cause);
  return FALSE;
}

/* How weights are stored, for which the weights' reader has words of its own; others than
 * DeepSeek's may say that activations are rounded, too. */
static gboolean
read_quantization (PlanModelJson *object, GError **error)
{
  JsonObject *found;
  const char *method = NULL;
  if (!plan_model_json_object (object, "quantization_config", &found, error))
    return FALSE;
  if (!found)
    return TRUE;
  g_auto (PlanModelJson) inner = plan_model_json_begin (found);
  if (!plan_model_json_word (&inner, "quant_method", &method, error))
    return FALSE;
  return g_strcmp0 (method, "fp8") == 0
         || plan_config_refuse (
             error, "quantization_config: quant_method is not fp8, which alone is known to "
                    "say no more than how weights are stored");
}

static gboolean
read_max_seq (PlanModel *self, const PlanModelFamily *family, PlanModelJson *object, GError **error)
{
  self->max_seq = family->max_seq_default;
  return self->max_seq > 0 ? plan_model_json_int (object, family->max_seq, 1, &self->max_seq, error)
                           : plan_model_json_size (object, family->max_seq, &self->max_seq, error);
}

static gboolean
read_config (PlanModel *self, const PlanModelFamily *family, PlanModelJson *object, GError **error)
{
  if (family->default_norm_eps > 0)
    self->norm_eps = family->default_norm_eps;
  return plan_model_json_size (object, family->layers, &self->layers, error)
         && plan_model_json_size (object, named (object, family->hidden), &self->hidden, error)
         && read_ffn (self, family, object, error) && read_heads (self, family, object, error)
         && plan_model_json_size (object, "vocab_size", &self->vocab, error)
         && read_max_seq (self, family, object, error)
         && plan_model_json_real (object, family->norm_eps, &self->norm_eps, error)
         && (!family->activation || read_activation (self, object, family->activation, error))
         && plan_model_json_flag (object, "tie_word_embeddings", &self->tied_embeddings, error)
         && (!family->read_rest || family->read_rest (self, object, error))
         && read_quantization (object, error) && check_config (self, object, error)
         && plan_model_json_check_rest (object, error);
}

/* "…/Llama-3-8B/config.json" -> "Llama-3-8B", "…/mine.json" -> "mine". */
static char *
name_of (const char *origin)
{
  g_autofree char *base = g_path_get_basename (origin);
  if (g_str_equal (base, "config.json"))
    {
      g_autofree char *folder = g_path_get_dirname (origin);
      g_free (base);
      base = g_path_get_basename (folder);
    }
  else if (g_str_has_suffix (base, ".json"))
    base[strlen (base) - strlen (".json")] = '\0';
  for (char *c = base; *c; c++)
    if (!g_ascii_isalnum (*c) && !strchr ("._+-", *c))
      *c = '_';
  if (g_str_equal (base, ".") || g_str_equal (base, "..") || !plan_text_is_name (base))
    return g_strdup ("custom");
  return g_steal_pointer (&base);
}

const PlanModelFamily *
plan_model_family_find (const char *name)
{
  for (guint i = 0; i < G_N_ELEMENTS (families); i++)
    if (g_str_equal (families[i].name, name))
      return &families[i];
  return NULL;
}

/* The model with nothing but its family's defaults. */
static PlanModel *
begin (PlanModelJson *object, const char *origin, gboolean is_part,
       const PlanModelFamily **out_family, GError **error)
{
  const char *type = is_part ? "llama4_text" : NULL;
  g_autofree char *name = name_of (origin);
  if (!plan_model_json_word (object, "model_type", &type, error))
    return NULL;
  if (!type)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "model_type: missing");
      return NULL;
    }
  PlanModel *const self = plan_model_new_family (type, name, error);
  if (!self)
    g_prefix_error (error, "model_type: ");
  else
    *out_family = plan_model_family_find (type);
  return self;
}

PlanModel *
plan_model_parse_config (const char *text, gsize length, const char *origin, GError **error)
{
  if (!plan_text_check (text, length, origin, error))
    return NULL;
  const PlanModelFamily *family = NULL;
  g_autofree char *copy = g_strndup (text, length);
  g_autoptr (JsonParser) parser = json_parser_new_immutable ();
  JsonObject *const root = plan_json_load (parser, copy, origin, error);
  if (!root)
    return NULL;
  JsonObject *part;
  g_auto (PlanModelJson) whole = plan_model_json_begin (root);
  if (!plan_model_find_text_config (&whole, &part, error))
    {
      g_prefix_error (error, "%s: ", origin);
      return NULL;
    }
  g_auto (PlanModelJson) object = plan_model_json_begin (part ? part : root);
  g_autoptr (PlanModel) self = begin (&object, origin, part != NULL, &family, error);
  if (!self || !read_config (self, family, &object, error))
    {
      g_prefix_error (error, "%s: %s", origin, part ? "text_config: " : "");
      return NULL;
    }
  return g_steal_pointer (&self);
}

PlanModel *
plan_model_new_from_config (const char *path, GError **error)
{
  g_autofree char *file = g_file_test (path, G_FILE_TEST_IS_DIR)
                              ? g_build_filename (path, "config.json", NULL)
                              : g_strdup (path);
  g_autofree char *text = NULL;
  gsize length;
  if (!plan_text_read_file (file, &text, &length, error))
    return NULL;
  return plan_model_parse_config (text, length, file, error);
}
