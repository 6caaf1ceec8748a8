/* SPDX-License-Identifier: Apache-2.0 */
/* Readers of config.json for families unlike llama: GPT-NeoX, Falcon, BLOOM, MPT. */
#include "config.h"

#include "planner/model/model-private.h"

#include "planner/base/error.h"
#include "planner/base/text.h"

gboolean
plan_model_read_gpt_neox (PlanModel *self, PlanModelJson *object, GError **error)
{
  return plan_model_read_attention_bias (self, object, error)
         && plan_model_json_flag (object, "use_parallel_residual", &self->parallel, error)
         && plan_model_read_rope (self, object, "rotary_emb_base", "rotary_pct", error);
}

/* Older and newer keys say which heads have keys, and whether branches are parallel and share a
 * norm. */
gboolean
plan_model_read_falcon (PlanModel *self, PlanModelJson *object, GError **error)
{
  gboolean is_new = FALSE, has_one_key = TRUE, parallel = TRUE, bias = FALSE, alibi = FALSE;
  gint64 norms = 0, kv_heads = self->heads;
  if (!plan_model_json_flag (object, "new_decoder_architecture", &is_new, error)
      || !plan_model_json_flag (object, "multi_query", &has_one_key, error)
      || !plan_model_json_flag (object, "parallel_attn", &parallel, error)
      || !plan_model_json_flag (object, "bias", &bias, error)
      || !plan_model_json_flag (object, "alibi", &alibi, error)
      || !plan_model_json_int (object, "num_kv_heads", 1, &kv_heads, error)
      || !plan_model_json_int (object, "num_ln_in_parallel_attn", 1, &norms, error))
    return FALSE;
  if (alibi)
    return plan_config_refuse (
        error, "alibi: true is not modelled for this family: it divides slopes, too, by "
               "the root of a head's width");
  self->kv_heads = is_new || !has_one_key ? kv_heads : 1;
  self->parallel = is_new || parallel;
  self->shared_norm = self->parallel && (norms > 0 ? norms == 1 : !is_new);
  self->qkv_bias = self->proj_bias = self->mlp_bias = bias;
  return plan_model_read_rope (self, object, "rope_theta", NULL, error);
}

gboolean
plan_model_read_bloom (PlanModel *self, PlanModelJson *object, GError **error)
{
  gboolean is_behind = FALSE;
  if (!plan_model_json_flag (object, "apply_residual_connection_post_layernorm", &is_behind, error))
    return FALSE;
  return !is_behind
         || plan_config_refuse (error,
                                "apply_residual_connection_post_layernorm: true is not modelled");
}

static gboolean
read_mpt_attention (PlanModel *self, PlanModelJson *object, GError **error)
{
  const char *type = "multihead_attention";
  gboolean alibi = TRUE, rope = FALSE, qk_norm = FALSE, learned = TRUE;
  JsonObject *config;
  if (!plan_model_json_flag (object, "learned_pos_emb", &learned, error)
      || !plan_model_json_object (object, "attn_config", &config, error))
    return FALSE;
  if (config)
    {
      g_auto (PlanModelJson) inner = plan_model_json_begin (config);
      if (!plan_model_json_flag (&inner, "alibi", &alibi, error)
          || !plan_model_json_flag (&inner, "rope", &rope, error)
          || !plan_model_json_real (&inner, "rope_theta", &self->rope.theta, error)
          || !plan_model_json_flag (&inner, "qk_ln", &qk_norm, error)
          || !plan_model_json_word (&inner, "attn_type", &type, error)
          || !plan_model_json_int (&inner, "kv_n_heads", 1, &self->kv_heads, error)
          || !plan_model_json_check_rest (&inner, error))
        {
          g_prefix_error (error, "attn_config: ");
          return FALSE;
        }
    }
  if (qk_norm)
    return plan_config_refuse (error, "qk_ln: true is not modelled: it norms all heads together");
  if (g_str_equal (type, "multiquery_attention"))
    self->kv_heads = 1;
  else if (!g_str_equal (type, "multihead_attention")
           && !g_str_equal (type, "grouped_query_attention"))
    {
      g_autofree char *shown = plan_text_quote (type);
      return plan_config_refuse (error,
                                 "attn_type: %s is not modelled; known are multihead_attention, "
                                 "multiquery_attention, grouped_query_attention",
                                 shown);
    }
  self->positions = alibi     ? PLAN_POSITIONS_ALIBI
                    : rope    ? PLAN_POSITIONS_ROPE
                    : learned ? PLAN_POSITIONS_LEARNED
                              : PLAN_POSITIONS_NONE;
  return TRUE;
}

gboolean
plan_model_read_mpt (PlanModel *self, PlanModelJson *object, GError **error)
{
  gboolean no_bias = TRUE;
  if (!plan_model_json_flag (object, "no_bias", &no_bias, error)
      || !read_mpt_attention (self, object, error))
    return FALSE;
  self->norm_bias = self->qkv_bias = self->proj_bias = self->mlp_bias = !no_bias;
  return TRUE;
}
