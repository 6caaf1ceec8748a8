/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of config.json that no family's reader looks at. A key that is neither read nor listed here
 * may change what the model computes, and is refused. */
#include "config.h"

#include "planner/model/model-private.h"

#include "planner/base/error.h"
#include "planner/base/text.h"

/* X ("key", "what it must be", "why it is ignored"). null always passes. "What it must be" is a
 * number, true, false or words separated by |; "" accepts everything. */
/* clang-format off */
static const struct
{
  const char *key, *only, *why;
} others[] = {
#define ANY(why, key) { key, "", why }
#define ONLY(key, value) { key, value, "anything else is not modelled" }
#define NAMES "says what the file is"
  ANY (NAMES, "_name_or_path"), ANY (NAMES, "architectures"), ANY (NAMES, "auto_map"), ANY (NAMES, "model_type"),
  ANY (NAMES, "name"),
  ANY (NAMES, "transformers_version"),
#define TOKENS "of the tokenizer, or of generating text"
  ANY (TOKENS, "bos_token_id"), ANY (TOKENS, "cache_implementation"), ANY (TOKENS, "eos_token_id"),
  ANY (TOKENS, "max_length"), ANY (TOKENS, "task_specific_params"),
  ANY (TOKENS, "unk_token_id"), ANY (TOKENS, "tokenizer_class"), ANY (TOKENS, "tokenizer_name"), ANY (TOKENS, "use_cache"),
  ANY ("a token that no text to train on has: transformers leaves its embedding as it is", "pad_token_id"),
#define HEADS "of other heads than that of a language model"
  ANY (HEADS, "classifier_dropout"), ANY (HEADS, "id2label"), ANY (HEADS, "is_decoder"), ANY (HEADS, "label2id"),
  ANY (HEADS, "problem_type"),
  ANY (HEADS, "summary_activation"), ANY (HEADS, "summary_first_dropout"), ANY (HEADS, "summary_proj_to_labels"),
  ANY (HEADS, "summary_type"), ANY (HEADS, "summary_use_proj"),
#define START "of initial weights, which this program draws by its own rule"
  ANY (START, "init_config"), ANY (START, "init_device"), ANY (START, "initializer_range"),
#define FORMAT "a number format, or a way of computing the same: the plan has its own"
  ANY (FORMAT, "_attn_implementation"), ANY (FORMAT, "_attn_implementation_autoset"), ANY (FORMAT, "dtype"),
  ANY (FORMAT, "chunk_size_feed_forward"), ANY (FORMAT, "ep_size"), ANY (FORMAT, "gradient_checkpointing"), ANY (FORMAT, "pretraining_tp"),
  ANY (FORMAT, "for_llm_compressor"), ANY (FORMAT, "mamba_ssm_dtype"),
  ANY (FORMAT, "attention_softmax_in_fp32"), ANY (FORMAT, "bias_dropout_fusion"), ANY (FORMAT, "masked_softmax_fusion"),
  ANY (FORMAT, "offset_alibi"), ANY (FORMAT, "skip_bias_add"), ANY (FORMAT, "skip_bias_add_qkv"),
  ANY (FORMAT, "slow_but_exact"),
  ANY (FORMAT, "reorder_and_upcast_attn"), ANY (FORMAT, "torch_dtype"), ANY (FORMAT, "verbose"),
#define DROPOUT "a probability of dropout: the plan's hidden_dropout and attention_dropout decide"
  ANY (DROPOUT, "attention_dropout"), ANY (DROPOUT, "attn_pdrop"), ANY (DROPOUT, "embd_pdrop"),
  ANY (DROPOUT, "emb_pdrop"), ANY (DROPOUT, "embedding_dropout"), ANY (DROPOUT, "hidden_dropout"),
  ANY (DROPOUT, "resid_pdrop"), ANY (DROPOUT, "residual_dropout"),
#define LENGTHS "scales queries of layers without positions: at inference (ai.meta.com/blog/llama-4-multimodal-intelligence)"
  ANY (LENGTHS, "attn_scale"), ANY (LENGTHS, "attn_temperature_tuning"), ANY (LENGTHS, "floor_scale"),
#define IMAGES "of images, beside the part that is about text"
  ANY (IMAGES, "boi_token_index"), ANY (IMAGES, "eoi_token_index"), ANY (IMAGES, "image_token_index"),
  ANY (IMAGES, "mm_tokens_per_image"), ANY (IMAGES, "multimodal_projector_bias"), ANY (IMAGES, "projector_hidden_act"),
  ANY (IMAGES, "image_token_id"), ANY (IMAGES, "video_token_id"), ANY (IMAGES, "vision_end_token_id"),
  ANY (IMAGES, "vision_start_token_id"), ANY (IMAGES, "mrope_interleaved"), ANY (IMAGES, "mrope_section"),
  ANY (IMAGES, "spatial_merge_size"), ANY (IMAGES, "vision_config"), ANY (IMAGES, "vision_feature_layer"),
#define SSM "how a state-space layer is computed, drawn or kept at inference"
  ANY (SSM, "mamba_ssm_cache_dtype"), ANY (SSM, "num_logits_to_keep"), ANY (SSM, "rescale_prenorm_residual"),
  ANY (SSM, "time_step_floor"), ANY (SSM, "time_step_limit"), ANY (SSM, "time_step_max"), ANY (SSM, "time_step_min"),
  ANY (SSM, "time_step_rank"), ANY (SSM, "use_mamba_kernels"), ANY (SSM, "moe_shared_expert_overlap"),
  ANY ("follows from the number and width of heads", "expand"), ANY ("the same as layer_norm_epsilon", "norm_eps"),
  ANY ("of a prediction module, and of the number of them", "mtp_hybrid_override_pattern"),
  ANY ("the same", "mtp_layers_block_type"),
  ONLY ("chunk_size", "128"), ONLY ("mamba_hidden_act", "silu"), ONLY ("mamba_proj_bias", "false"),
  ONLY ("residual_in_fp32", "false"), ONLY ("use_bias", "false"), ONLY ("use_conv_bias", "true"),
#define RESULTS "what a call returns"
  ANY (RESULTS, "output_attentions"), ANY (RESULTS, "output_hidden_states"), ANY (RESULTS, "return_dict"),
#define ROUTING "read where a family's router has it; that of the others does not look at it"
  ANY (ROUTING, "n_group"), ANY (ROUTING, "norm_topk_prob"), ANY (ROUTING, "routed_scaling_factor"),
  ANY (ROUTING, "scoring_func"), ANY (ROUTING, "topk_group"),
#define BALANCE "of an auxiliary loss, which transformers adds where output_router_logits=true alone"
  ANY (BALANCE, "aux_loss_alpha"), ANY (BALANCE, "router_aux_loss_coef"), ANY (BALANCE, "seq_aux"),
  ONLY ("output_router_logits", "false"), ONLY ("router_jitter_noise", "0"),
  ANY ("follows from other keys", "qk_head_dim"), ONLY ("rope_interleave", "true"),
  ANY ("of a prediction module, which is left out where it is not read", "mtp_num_hidden_layers"),
  ANY ("the same", "mtp_use_dedicated_embeddings"),
#define OLDER "an older name of a key that counts"
  ANY (OLDER, "experts_per_token"), ANY (OLDER, "initial_context_length"), ANY (OLDER, "n_ctx"), ANY (OLDER, "sliding_window_size"),
  ONLY ("add_cross_attention", "false"), ONLY ("attention_bias", "false"), ONLY ("embedding_fraction", "1"),
  ONLY ("full_attn_mod", "1"), ONLY ("hidden_act", "gelu|gelu_pytorch_tanh"), /* gemma's, the tanh form by either name */
  ONLY ("interpolate_factor", "1"),
  ONLY ("is_encoder_decoder", "false"), ONLY ("layer_types", "full_attention"), ONLY ("lm_head_bias", "false"),
  ONLY ("mlp_bias", "false"), ONLY ("norm_type", "layernorm|low_precision_layernorm"),
  ONLY ("partial_rotary_factor", "1"), ONLY ("qkv_bias", "false"), ONLY ("rope_interleaved", "false"),
  ONLY ("swiglu_alpha", "1.702"), ONLY ("scale_attn_by_inverse_layer_idx", "false"), ONLY ("scale_attn_weights", "true"),
  ONLY ("use_bidirectional_attention", "false"), ONLY ("use_sliding_window", "false"),
  /* attn_config of mpt */
  ANY (FORMAT, "attn_impl"),
  ONLY ("alibi_bias_max", "8"), ONLY ("attn_uses_sequence_id", "false"), ONLY ("prefix_lm", "false"),
  ONLY ("qk_gn", "false"),
};
/* clang-format on */

static gboolean
is_value (JsonNode *node, const char *only)
{
  if (!JSON_NODE_HOLDS_VALUE (node))
    return FALSE;
  const GType type = json_node_get_value_type (node);
  if (type == G_TYPE_BOOLEAN)
    return g_str_equal (only, json_node_get_boolean (node) ? "true" : "false");
  if (type == G_TYPE_STRING)
    {
      g_auto (GStrv) words = g_strsplit (only, "|", -1);
      return g_strv_contains ((const char *const *)words, json_node_get_string (node));
    }
  return g_ascii_isdigit (*only) && json_node_get_double (node) == g_ascii_strtod (only, NULL);
}

/* Whether a value, or every element of a list, is what it must be. */
static gboolean
is_only (JsonNode *node, const char *only)
{
  if (!JSON_NODE_HOLDS_ARRAY (node))
    return is_value (node, only);
  JsonArray *const list = json_node_get_array (node);
  for (guint i = 0; i < json_array_get_length (list); i++)
    if (!is_value (json_array_get_element (list, i), only))
      return FALSE;
  return TRUE;
}

static gboolean
check_unread (const char *key, JsonNode *node, GError **error)
{
  g_autofree char *name = plan_text_quote (key);
  if (JSON_NODE_HOLDS_NULL (node))
    return TRUE;
  for (guint i = 0; i < G_N_ELEMENTS (others); i++)
    if (g_str_equal (key, others[i].key))
      {
        if (!*others[i].only || is_only (node, others[i].only))
          return TRUE;
        g_autofree char *text = json_to_string (node, FALSE);
        g_autofree char *shown = plan_text_quote (text);
        g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
                     "%s: %s is not modelled for this family: it must be %s", key, shown,
                     others[i].only);
        return FALSE;
      }
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
               "%s is not a key that is read here, so it may change what the model computes: take "
               "it out of the file if it does not",
               name);
  return FALSE;
}

gboolean
plan_model_json_check_rest (const PlanModelJson *self, GError **error)
{
  g_autoptr (GList) keys = json_object_get_members (self->object);
  for (const GList *at = keys; at; at = at->next)
    if (!g_hash_table_contains (self->read, at->data)
        && !check_unread (at->data, json_object_get_member (self->object, at->data), error))
      return FALSE;
  return TRUE;
}
