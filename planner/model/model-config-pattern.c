/* SPDX-License-Identifier: Apache-2.0 */
/* Reads config.json of Nemotron-H: layers by a pattern, Mamba-2, attention, MLPs and experts
 * (configuration_nemotron_h.py, which its checkpoints bring, and that of transformers 5). */
#include "config.h"

#include "planner/model/model-private.h"

#include "planner/base/error.h"
#include "planner/base/text.h"

#include <string.h>

/* The letter that stands for a layer's type; 0: there is none. */
static char
letter_of (JsonNode *node)
{
  static const struct
  {
    const char *type;
    PlanLetter letter;
  } types[] = { { "mamba", PLAN_LETTER_SSM },
                { "attention", PLAN_LETTER_ATTENTION },
                { "mlp", PLAN_LETTER_MLP },
                { "moe", PLAN_LETTER_EXPERTS } };
  const char *const type = JSON_NODE_HOLDS_VALUE (node) ? json_node_get_string (node) : NULL;
  for (guint i = 0; i < G_N_ELEMENTS (types); i++)
    if (g_strcmp0 (type, types[i].type) == 0)
      return (char)types[i].letter;
  return 0;
}

static gboolean
read_types (PlanModel *self, JsonNode *node, GError **error)
{
  const char *const key = "layers_block_type";
  JsonArray *const types = JSON_NODE_HOLDS_ARRAY (node) ? json_node_get_array (node) : NULL;
  const guint n = types ? json_array_get_length (types) : 0;
  if (n < 1 || n > PLAN_MAX_PATTERN)
    return plan_model_json_refuse (key, node, "is not a list of a word for every layer", error);
  for (guint i = 0; i < n; i++)
    {
      self->pattern.of[i] = letter_of (json_array_get_element (types, i));
      if (!self->pattern.of[i])
        return plan_model_json_refuse (key, json_array_get_element (types, i),
                                       "is not mamba, attention, mlp or moe", error);
    }
  return TRUE;
}

/* Older files have letters, newer ones words; the number of layers is that of either. */
static gboolean
read_pattern (PlanModel *self, PlanModelJson *object, GError **error)
{
  JsonNode *const types = plan_model_json_find (object, "layers_block_type");
  const char *letters = NULL;
  if (!plan_model_json_word (object, "hybrid_override_pattern", &letters, error))
    return FALSE;
  if (types && !letters)
    return read_types (self, types, error);
  if (!letters || !*letters || strlen (letters) > PLAN_MAX_PATTERN)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "hybrid_override_pattern: missing, or not of 1 to %d letters", PLAN_MAX_PATTERN);
      return FALSE;
    }
  memcpy (self->pattern.of, letters, strlen (letters));
  return TRUE;
}

/* The experts' scores are sigmoids, of which those of the chosen sum to 1, and a bias balances them
 * (NemotronHTopkRouter). */
static gboolean
read_experts (PlanModel *self, PlanModelJson *object, GError **error)
{
  gboolean norms = TRUE;
  if (!strchr (self->pattern.of, PLAN_LETTER_EXPERTS))
    {
      static const char *const unused[]
          = { "n_routed_experts",      "num_experts_per_tok",
              "moe_intermediate_size", "moe_shared_expert_intermediate_size",
              "n_shared_experts",      "moe_latent_size" };
      for (guint i = 0; i < G_N_ELEMENTS (unused); i++)
        plan_model_json_find (object, unused[i]);
      return TRUE;
    }
  self->router_score = PLAN_ROUTER_SIGMOID;
  self->router_bias = TRUE;
  if (!plan_model_json_flag (object, "norm_topk_prob", &norms, error)
      || !plan_model_json_int_or_null (object, "moe_latent_size", &self->expert_hidden, error)
      || !plan_model_read_routed_experts (self, object, 1, error)
      || !plan_model_json_int (object, "moe_shared_expert_intermediate_size", 1, &self->shared_ffn,
                               error))
    return FALSE;
  return norms
         || plan_config_refuse (error, "norm_topk_prob: only true is modelled of this family");
}

static gboolean
read_ssm (PlanModel *self, PlanModelJson *object, GError **error)
{
  PlanSsm *const m = &self->ssm;
  return plan_model_json_int (object, "mamba_num_heads", 1, &m->heads, error)
         && plan_model_json_int (object, "mamba_head_dim", 1, &m->head_dim, error)
         && plan_model_json_int (object, "n_groups", 1, &m->groups, error)
         && plan_model_json_int (object, "ssm_state_size", 1, &m->state, error)
         && plan_model_json_int (object, "conv_kernel", 1, &m->conv, error);
}

/* Attention has no positions, whatever rope_theta and partial_rotary_factor say: no code reads
 * them. */
gboolean
plan_model_read_nemotron_h (PlanModel *self, PlanModelJson *object, GError **error)
{
  plan_model_json_find (object, "rope_theta");
  plan_model_json_find (object, "partial_rotary_factor");
  gint64 modules = 0;
  if (!plan_model_json_int (object, "attention_head_dim", 1, &self->head_dim, error)
      || !plan_model_json_int_or_null (object, "num_nextn_predict_layers", &modules, error)
      || !read_pattern (self, object, error) || !read_ssm (self, object, error)
      || !read_experts (self, object, error))
    return FALSE;
  return modules == 0
         || plan_config_refuse (error, "num_nextn_predict_layers: prediction modules of layers by "
                                       "a pattern are not modelled: 0 plans the model without "
                                       "them");
}
