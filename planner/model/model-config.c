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
gboolean
plan_model_read_layer_types (PlanModel *self, PlanModelJson *object, GError **error)
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
  return plan_model_read_layer_types (self, object, error);
}

/* Refuses a window where the family's window is not modelled. Its width and layers matter only
 * then. */
gboolean
plan_model_refuse_window (PlanModelJson *object, GError **error)
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
         && plan_model_read_layer_types (self, object, error)
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

/* Seed-OSS: the output projection's bias has a flag of its own. */
static gboolean
read_seed_oss (PlanModel *self, PlanModelJson *object, GError **error)
{
  return plan_model_json_flag (object, "attention_bias", &self->qkv_bias, error)
         && plan_model_json_flag (object, "attention_out_bias", &self->proj_bias, error)
         && plan_model_json_flag (object, "mlp_bias", &self->mlp_bias, error)
         && plan_model_read_rope (self, object, "rope_theta", NULL, error);
}

static gboolean
read_smollm3 (PlanModel *self, PlanModelJson *object, GError **error)
{
  return plan_model_refuse_window (object, error)
         && plan_model_read_nope_layers (self, object, error) && read_llama (self, object, error);
}

/* Reads the one flag that stands for all biases. */
static gboolean
read_use_bias (PlanModel *self, PlanModelJson *object, GError **error)
{
  gboolean bias = self->mlp_bias;
  if (!plan_model_json_flag (object, "use_bias", &bias, error))
    return FALSE;
  self->qkv_bias = self->proj_bias = self->mlp_bias = bias;
  return plan_model_read_rope (self, object, "rope_theta", NULL, error);
}

static gboolean
read_starcoder2 (PlanModel *self, PlanModelJson *object, GError **error)
{
  return plan_model_json_int_or_null (object, "sliding_window", &self->window, error)
         && read_use_bias (self, object, error);
}

static gboolean
read_glm4 (PlanModel *self, PlanModelJson *object, GError **error)
{
  return plan_model_json_flag (object, "attention_bias", &self->qkv_bias, error)
         && plan_model_read_rope (self, object, "rope_theta", "partial_rotary_factor", error);
}

static gboolean
read_nemotron (PlanModel *self, PlanModelJson *object, GError **error)
{
  return plan_model_read_attention_bias (self, object, error)
         && plan_model_json_flag (object, "mlp_bias", &self->mlp_bias, error)
         && plan_model_read_rope (self, object, "rope_theta", "partial_rotary_factor", error);
}

static gboolean
read_phi3 (PlanModel *self, PlanModelJson *object, GError **error)
{
  return plan_model_json_int_or_null (object, "sliding_window", &self->window, error)
         && plan_model_read_rope (self, object, "rope_theta", "partial_rotary_factor", error);
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
  { "mixtral", USUAL, "rms_norm_eps", "hidden_act", 8, 0, 0, plan_model_read_mixtral },
  { "qwen2_moe", USUAL, "rms_norm_eps", "hidden_act", 16, 0, 0, plan_model_read_qwen2_moe },
  { "qwen3_moe", USUAL, "rms_norm_eps", "hidden_act", 4, 0, 0, plan_model_read_qwen3_moe },
  { "deepseek_v2", USUAL, "rms_norm_eps", "hidden_act", 0, 0, 0, plan_model_read_deepseek },
  { "deepseek_v3", USUAL, "rms_norm_eps", "hidden_act", 0, 0, 0, plan_model_read_deepseek },
  { "kimi_k2", USUAL, "rms_norm_eps", "hidden_act", 0, 0, 0, plan_model_read_deepseek },
  { "glm4_moe", USUAL, "rms_norm_eps", "hidden_act", 8, 0, 0, plan_model_read_glm4_moe },
  { "llama4_text", "num_hidden_layers", "hidden_size", "intermediate_size_mlp",
    "num_attention_heads", "max_position_embeddings", "rms_norm_eps", "hidden_act", 8, 0, 0,
    plan_model_read_llama4 },
  { "gpt_oss", USUAL, "rms_norm_eps", NULL, 8, 0, 0, plan_model_read_gpt_oss },
  { "seed_oss", USUAL, "rms_norm_eps", "hidden_act", 8, 0, 0, read_seed_oss },
  { "smollm3", USUAL, "rms_norm_eps", "hidden_act", 4, 0, 0, read_smollm3 },
  { "ernie4_5", USUAL, "rms_norm_eps", "hidden_act", 2, 0, 0, read_use_bias },
  { "glm4", USUAL, "rms_norm_eps", "hidden_act", 2, 0, 0, read_glm4 },
  { "arcee", USUAL, "rms_norm_eps", "hidden_act", 0, 0, 0, read_llama },
  { "starcoder2", USUAL, "norm_epsilon", "hidden_act", 2, 0, 0, read_starcoder2 },
  { "nemotron", USUAL, "norm_eps", "hidden_act", 0, 0, 0, read_nemotron },
  { "dots1", USUAL, "rms_norm_eps", "hidden_act", 32, 0, 0, plan_model_read_dots1 },
  { "glm4_moe_lite", USUAL, "rms_norm_eps", "hidden_act", 0, 0, 0, plan_model_read_glm4_moe_lite },
  { "olmoe", USUAL, "rms_norm_eps", "hidden_act", 0, 0, 0, plan_model_read_olmoe },
  { "minimax_m2", USUAL, "rms_norm_eps", "hidden_act", 8, 0, 0, plan_model_read_minimax_m2 },
  { "qwen3_next", USUAL, "rms_norm_eps", "hidden_act", 2, 0, 0, plan_model_read_qwen3_next },
  { "qwen3_5_text", USUAL, "rms_norm_eps", "hidden_act", 4, 0, 0, plan_model_read_qwen3_5 },
  { "qwen3_5_moe_text", "num_hidden_layers", "hidden_size", "moe_intermediate_size",
    "num_attention_heads", "max_position_embeddings", "rms_norm_eps", "hidden_act", 2, 0, 0,
    plan_model_read_qwen3_5_moe },
  { "nemotron_h", USUAL, "layer_norm_epsilon", "mlp_hidden_act", 8, 0, 0,
    plan_model_read_nemotron_h },
};

/* Files that hold a model of text beside one of images, and the family of the text's part where
 * that part does not name it. */
static const struct
{
  const char *type, *text_type;
} wholes[] = {
  { "llama4", "llama4_text" },   { "gemma3", "gemma3_text" },           { "mistral3", "mistral" },
  { "qwen3_5", "qwen3_5_text" }, { "qwen3_5_moe", "qwen3_5_moe_text" },
};

/* --- what all families have ---------------------------------------------------------------- */

/* Sizes that files of a family leave out. */
static const struct
{
  const char *family, *key;
  gint64 size;
} assumed[] = {
  { "gemma3_text", "num_attention_heads", 8 },
  { "gemma3_text", "vocab_size", 262208 },
  { "gemma3_text", "max_position_embeddings", 131072 },
};

static gboolean
read_size (const PlanModelFamily *family, PlanModelJson *object, const char *key, gint64 *out_value,
           GError **error)
{
  for (guint i = 0; i < G_N_ELEMENTS (assumed); i++)
    if (g_str_equal (family->name, assumed[i].family) && g_str_equal (key, assumed[i].key))
      {
        *out_value = assumed[i].size;
        return plan_model_json_int (object, key, 1, out_value, error);
      }
  return plan_model_json_size (object, key, out_value, error);
}

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
  if (!read_size (family, object, named (object, family->heads), &self->heads, error))
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
    { "norm_eps", "norm_epsilon" },
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
    { "attn_every", "full_attention_interval" },
    { "attn_every", "layer_types" },
    { "delta_key_heads", "linear_num_key_heads" },
    { "delta_value_heads", "linear_num_value_heads" },
    { "mtp", "mtp_num_hidden_layers" },
    { "pattern", "hybrid_override_pattern" },
    { "pattern", "layers_block_type" },
    { "ssm_heads", "mamba_num_heads" },
    { "ssm_groups", "n_groups" },
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

/* Takes DeepSeek's fp8, which only says how weights are stored: the reader of weights judges that.
 * Other methods may also round activations. */
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
  return g_strcmp0 (method, "fp8") == 0 || g_strcmp0 (method, "mxfp4") == 0
         || plan_config_refuse (
             error, "quantization_config: quant_method is not fp8 or mxfp4, which alone are known "
                    "to say no more than how weights are stored");
}

static gboolean
read_max_seq (PlanModel *self, const PlanModelFamily *family, PlanModelJson *object, GError **error)
{
  self->max_seq = family->max_seq_default;
  return self->max_seq > 0 ? plan_model_json_int (object, family->max_seq, 1, &self->max_seq, error)
                           : read_size (family, object, family->max_seq, &self->max_seq, error);
}

static gboolean
read_config (PlanModel *self, const PlanModelFamily *family, PlanModelJson *object, GError **error)
{
  if (family->default_norm_eps > 0)
    self->norm_eps = family->default_norm_eps;
  return plan_model_json_size (object, family->layers, &self->layers, error)
         && plan_model_json_size (object, named (object, family->hidden), &self->hidden, error)
         && read_ffn (self, family, object, error) && read_heads (self, family, object, error)
         && read_size (family, object, "vocab_size", &self->vocab, error)
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

/* The model with nothing but its family's defaults. `type` is the family where the file names
 * none. */
static PlanModel *
begin (PlanModelJson *object, const char *origin, const char *type,
       const PlanModelFamily **out_family, GError **error)
{
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

/* A model of text and of images, of which the text's part is read, as its name then says. Its other
 * keys are about images; whether embeddings are tied may be said in either place. */
static PlanModel *
read_text_config (PlanModelJson *whole, const char *origin, const char *type, GError **error)
{
  JsonObject *part = NULL;
  const PlanModelFamily *family = NULL;
  gboolean is_tied = FALSE;
  if (!plan_model_json_object (whole, "text_config", &part, error)
      || !plan_model_json_flag (whole, "tie_word_embeddings", &is_tied, error)
      || !plan_model_json_check_rest (whole, error))
    return NULL;
  if (!part)
    {
      plan_config_refuse (error, "text_config: missing, of a model of text and images");
      return NULL;
    }
  g_auto (PlanModelJson) object = plan_model_json_begin (part);
  g_autoptr (PlanModel) self = begin (&object, origin, type, &family, error);
  if (!self || !read_config (self, family, &object, error))
    {
      g_prefix_error (error, "text_config: ");
      return NULL;
    }
  g_autofree char *of_whole = self->name;
  self->name = g_strconcat (of_whole, "-text", NULL);
  if (is_tied == self->tied_embeddings || !plan_model_json_find (whole, "tie_word_embeddings"))
    return g_steal_pointer (&self);
  plan_config_refuse (error, "tie_word_embeddings: %s, and %s in text_config",
                      is_tied ? "true" : "false", is_tied ? "false" : "true");
  return NULL;
}

static PlanModel *
read_whole (PlanModelJson *object, const char *origin, GError **error)
{
  const char *type = NULL;
  const PlanModelFamily *family = NULL;
  if (!plan_model_json_word (object, "model_type", &type, error))
    return NULL;
  for (guint i = 0; i < G_N_ELEMENTS (wholes); i++)
    if (g_strcmp0 (type, wholes[i].type) == 0)
      return read_text_config (object, origin, wholes[i].text_type, error);
  g_autoptr (PlanModel) self = begin (object, origin, NULL, &family, error);
  return self && read_config (self, family, object, error) ? g_steal_pointer (&self) : NULL;
}

PlanModel *
plan_model_parse_config (const char *text, gsize length, const char *origin, GError **error)
{
  if (!plan_text_check (text, length, origin, error))
    return NULL;
  g_autofree char *copy = g_strndup (text, length);
  g_autoptr (JsonParser) parser = json_parser_new_immutable ();
  JsonObject *const root = plan_json_load (parser, copy, origin, error);
  if (!root)
    return NULL;
  g_auto (PlanModelJson) object = plan_model_json_begin (root);
  PlanModel *const self = read_whole (&object, origin, error);
  if (!self)
    g_prefix_error (error, "%s: ", origin);
  return self;
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
