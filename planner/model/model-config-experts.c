/* SPDX-License-Identifier: Apache-2.0 */
/* Readers of config.json of families with experts. */
#include "config.h"

#include "planner/model/model-private.h"

#include "planner/base/error.h"
#include "planner/base/text.h"

gboolean
plan_model_read_mixtral (PlanModel *self, PlanModelJson *object, GError **error)
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
  self->pre_softmax = !norms; /* otherwise the probabilities of the chosen experts sum to 1, as of a
                                 softmax over them */
  return plan_model_refuse_window (object, error) && read_n_experts (self, object, error)
         && plan_model_json_int (object, "num_experts_per_tok", 1, &self->topk, error)
         && plan_model_json_int (object, "moe_intermediate_size", 1, &self->expert_ffn, error)
         && plan_model_json_int (object, "decoder_sparse_step", 1, &self->moe_every, error)
         && read_mlp_only_layers (self, object, error)
         && plan_model_read_rope (self, object, "rope_theta", NULL, error);
}

gboolean
plan_model_read_qwen2_moe (PlanModel *self, PlanModelJson *object, GError **error)
{
  return plan_model_json_int (object, "shared_expert_intermediate_size", 1, &self->shared_ffn,
                              error)
         && plan_model_json_flag (object, "qkv_bias", &self->qkv_bias, error)
         && read_qwen_experts (self, object, error);
}

gboolean
plan_model_read_qwen3_moe (PlanModel *self, PlanModelJson *object, GError **error)
{
  return plan_model_read_attention_bias (self, object, error)
         && read_qwen_experts (self, object, error);
}

/* Which layers have attention, by a word for each layer or by a stride: the last of every so many
 * (configuration_qwen3_next.py). */
static gboolean
read_attention_layers (PlanModel *self, PlanModelJson *object, GError **error)
{
  JsonNode *const node = plan_model_json_find (object, "layer_types");
  if (!plan_model_json_int (object, "full_attention_interval", 1, &self->delta.attn_every, error))
    return FALSE;
  if (!node)
    return TRUE;
  JsonArray *const types = JSON_NODE_HOLDS_ARRAY (node) ? json_node_get_array (node) : NULL;
  if (!types || json_array_get_length (types) != (guint64)self->layers)
    return plan_model_json_refuse ("layer_types", node, "is not a list of a word for every layer",
                                   error);
  gint64 every = 0;
  for (gint64 i = 0; i < self->layers; i++)
    {
      JsonNode *const item = json_array_get_element (types, (guint)i);
      const char *const type = JSON_NODE_HOLDS_VALUE (item) ? json_node_get_string (item) : NULL;
      const gboolean is_full = g_strcmp0 (type, "full_attention") == 0;
      if (!is_full && g_strcmp0 (type, "linear_attention") != 0)
        return plan_model_json_refuse ("layer_types", item,
                                       "is neither full_attention nor linear_attention", error);
      if (is_full && every == 0)
        every = i + 1;
      if (is_full != (every > 0 && (i + 1) % every == 0))
        return plan_config_refuse (error,
                                   "layer_types: only full_attention in the last of every so many "
                                   "layers is modelled, layer %" G_GINT64_FORMAT " breaks them",
                                   i);
    }
  if (every == 1)
    return plan_config_refuse (error, "layer_types: no layer has linear_attention, so that the "
                                      "model is of another family");
  self->delta.attn_every = every > 0 ? every : MAX (self->delta.attn_every, self->layers + 1);
  return TRUE;
}

/* Gated DeltaNet, and attention with an output gate, which all these models have. */
static gboolean
read_delta (PlanModel *self, PlanModelJson *object, GError **error)
{
  PlanDelta *const d = &self->delta;
  return plan_model_json_flag (object, "attn_output_gate", &self->attn_gate, error)
         && plan_model_json_int (object, "linear_num_key_heads", 1, &d->key_heads, error)
         && plan_model_json_int (object, "linear_num_value_heads", 1, &d->value_heads, error)
         && plan_model_json_int (object, "linear_key_head_dim", 1, &d->key_dim, error)
         && plan_model_json_int (object, "linear_value_head_dim", 1, &d->value_dim, error)
         && plan_model_json_int (object, "linear_conv_kernel_dim", 1, &d->conv, error)
         && read_attention_layers (self, object, error)
         && plan_model_read_attention_bias (self, object, error)
         && plan_model_read_rope (self, object, "rope_theta", "partial_rotary_factor", error);
}

static gboolean
read_shared_expert (PlanModel *self, PlanModelJson *object, GError **error)
{
  return plan_model_json_int (object, "shared_expert_intermediate_size", 1, &self->shared_ffn,
                              error);
}

/* Qwen3-Next: probabilities sum to 1 unless the file says otherwise. */
gboolean
plan_model_read_qwen3_next (PlanModel *self, PlanModelJson *object, GError **error)
{
  gboolean norms = TRUE;
  if (!plan_model_json_flag (object, "norm_topk_prob", &norms, error)
      || !read_shared_expert (self, object, error) || !read_delta (self, object, error)
      || !read_qwen_experts (self, object, error))
    return FALSE;
  self->pre_softmax = !norms;
  return TRUE;
}

/* Qwen3.5, dense: its prediction module is left out, as transformers leaves it. */
gboolean
plan_model_read_qwen3_5 (PlanModel *self, PlanModelJson *object, GError **error)
{
  return read_delta (self, object, error);
}

/* Qwen3.5 with experts in all layers, whose probabilities sum to 1; no layer has another MLP. */
gboolean
plan_model_read_qwen3_5_moe (PlanModel *self, PlanModelJson *object, GError **error)
{
  self->expert_ffn = self->ffn;
  plan_model_json_find (object, "intermediate_size");
  return read_shared_expert (self, object, error) && read_delta (self, object, error)
         && read_n_experts (self, object, error)
         && plan_model_json_int (object, "num_experts_per_tok", 1, &self->topk, error)
         && plan_model_json_int_or_null (object, "mtp_num_hidden_layers", &self->mtp, error);
}

/* OLMoE: intermediate_size is an expert's. */
gboolean
plan_model_read_olmoe (PlanModel *self, PlanModelJson *object, GError **error)
{
  gboolean norms = FALSE;
  JsonNode *const clip = plan_model_json_find (object, "clip_qkv");
  if (clip && !JSON_NODE_HOLDS_NULL (clip))
    return plan_model_json_refuse ("clip_qkv", clip,
                                   "is not null, and bounds on queries, keys and "
                                   "values are not modelled",
                                   error);
  if (!plan_model_json_flag (object, "norm_topk_prob", &norms, error))
    return FALSE;
  self->pre_softmax = !norms;
  self->expert_ffn = self->ffn;
  return plan_model_read_attention_bias (self, object, error)
         && read_n_experts (self, object, error)
         && plan_model_json_int (object, "num_experts_per_tok", 1, &self->topk, error)
         && plan_model_read_rope (self, object, "rope_theta", NULL, error);
}

/* MiniMax-M2: intermediate_size is an expert's, and rotary_dim says how much of a head is turned
 * where no fraction does. Its prediction modules are in no published checkpoint, and transformers
 * has none. */
gboolean
plan_model_read_minimax_m2 (PlanModel *self, PlanModelJson *object, GError **error)
{
  gint64 rotary = 0;
  gboolean norms = TRUE;
  JsonNode *const type = plan_model_json_find (object, "qk_norm_type");
  if (type
      && g_strcmp0 (JSON_NODE_HOLDS_VALUE (type) ? json_node_get_string (type) : NULL, "per_layer"))
    return plan_model_json_refuse ("qk_norm_type", type, "is not per_layer", error);
  self->expert_ffn = self->ffn;
  if (!plan_model_json_flag (object, "use_qk_norm", &norms, error)
      || !plan_model_json_int (object, "rotary_dim", 0, &rotary, error)
      || !plan_model_json_int (object, "num_local_experts", 1, &self->experts, error)
      || !plan_model_json_int (object, "num_experts_per_tok", 1, &self->topk, error))
    return FALSE;
  self->qk_norm = norms ? PLAN_QK_NORM_FULL : PLAN_QK_NORM_OFF;
  if (rotary > self->head_dim)
    return plan_config_refuse (error, "rotary_dim: is more than head_dim");
  if (rotary > 0)
    self->rope_fraction = (double)rotary / (double)self->head_dim;
  return plan_model_refuse_window (object, error)
         && plan_model_read_rope (self, object, "rope_theta", "partial_rotary_factor", error);
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

gboolean
plan_model_read_routed_experts (PlanModel *self, PlanModelJson *object, gint64 shared,
                                GError **error)
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

gboolean
plan_model_read_glm4_moe (PlanModel *self, PlanModelJson *object, GError **error)
{
  gboolean norms = FALSE;
  if (!plan_model_json_flag (object, "use_qk_norm", &norms, error))
    return FALSE;
  self->qk_norm = norms ? PLAN_QK_NORM_ON : PLAN_QK_NORM_OFF;
  return plan_model_json_flag (object, "attention_bias", &self->qkv_bias, error)
         && plan_model_json_int_or_null (object, "num_nextn_predict_layers", &self->mtp, error)
         && plan_model_read_routed_experts (self, object, 1, error)
         && plan_model_read_rope (self, object, "rope_theta", "partial_rotary_factor", error);
}

/* Reads the list of what MLPs are, which may be dense in the first layers alone. */
static gboolean
read_mlp_layer_types (PlanModel *self, PlanModelJson *object, GError **error)
{
  JsonNode *const node = plan_model_json_find (object, "mlp_layer_types");
  if (!node)
    return TRUE;
  JsonArray *const types = JSON_NODE_HOLDS_ARRAY (node) ? json_node_get_array (node) : NULL;
  if (!types || json_array_get_length (types) != (guint64)self->layers)
    return plan_model_json_refuse ("mlp_layer_types", node,
                                   "is not a list of a word for every layer", error);
  self->dense_layers = 0;
  for (gint64 i = 0; i < self->layers; i++)
    {
      JsonNode *const item = json_array_get_element (types, (guint)i);
      const char *const type = JSON_NODE_HOLDS_VALUE (item) ? json_node_get_string (item) : NULL;
      if (g_strcmp0 (type, "dense") == 0 && self->dense_layers == i)
        self->dense_layers++;
      else if (g_strcmp0 (type, "sparse") != 0)
        return plan_config_refuse (
            error, "mlp_layer_types: only a model's first layers may be dense, all others sparse");
    }
  return TRUE;
}

/* GLM 4.7 Flash: DeepSeek-V3's layers, of which the dense ones may be told by a list. */
gboolean
plan_model_read_glm4_moe_lite (PlanModel *self, PlanModelJson *object, GError **error)
{
  return read_mlp_layer_types (self, object, error)
         && plan_model_read_deepseek (self, object, error);
}

/* dots.llm1: a window, where the file does not say null, is that of the layers behind
 * max_window_layers. */
gboolean
plan_model_read_dots1 (PlanModel *self, PlanModelJson *object, GError **error)
{
  gint64 window = 4096, from = 62, every = 1;
  if (!plan_model_json_int_or_null (object, "sliding_window", &window, error)
      || !plan_model_json_int (object, "max_window_layers", 0, &from, error)
      || !plan_model_json_int (object, "moe_layer_freq", 1, &every, error)
      || !plan_model_read_attention_bias (self, object, error)
      || !plan_model_read_routed_experts (self, object, 0, error))
    return FALSE;
  if (every != 1)
    return plan_config_refuse (error, "moe_layer_freq: only 1 is modelled");
  if (window > 0 && from < self->layers)
    {
      self->window = window;
      self->window_from = from;
    }
  return plan_model_read_layer_types (self, object, error)
         && plan_model_read_rope (self, object, "rope_theta", NULL, error);
}

/* gpt-oss: its activation has no name in the file: x times the sigmoid of 1.702 x, with bounded
 * factors. Rotary positions of which nothing is said are scaled (configuration_gpt_oss.py). */
gboolean
plan_model_read_gpt_oss (PlanModel *self, PlanModelJson *object, GError **error)
{
  const char *activation = "silu";
  self->expert_ffn = self->ffn;
  if (!plan_model_json_word (object, "hidden_act", &activation, error))
    return FALSE;
  if (!g_str_equal (activation, "silu"))
    return plan_config_refuse (error, "hidden_act: only silu is known to stand for gpt-oss's own");
  if (!plan_model_json_find (object, "rope_scaling")
      && !plan_model_json_find (object, "rope_parameters"))
    self->rope = (PlanRope){ self->rope.theta, PLAN_ROPE_SCALING_YARN, 32, 4096, 1, 32,
                             .mscale = 1,      .is_fractional = TRUE };
  return plan_model_read_attention_bias (self, object, error)
         && plan_model_json_int (object, "num_local_experts", 1, &self->experts, error)
         && plan_model_json_int (object, "num_experts_per_tok", 1, &self->topk, error)
         && plan_model_json_int_or_null (object, "sliding_window", &self->window, error)
         && plan_model_json_real (object, "swiglu_limit", &self->glu_limit, error)
         && plan_model_read_layer_types (self, object, error)
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

gboolean
plan_model_read_deepseek (PlanModel *self, PlanModelJson *object, GError **error)
{
  const gint64 shared = g_str_equal (self->family, "deepseek_v2") ? 2 : 1;
  gint64 every = 1;
  if (!plan_model_read_routed_experts (self, object, shared, error)
      || !read_scores (self, object, error)
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
