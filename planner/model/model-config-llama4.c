/* SPDX-License-Identifier: Apache-2.0 */
/* Reads Llama 4's config.json (transformers, configuration_llama4.py and modeling_llama4.py). */
#include "config.h"

#include "planner/model/model-private.h"

#include "planner/base/error.h"

#define INT "%" G_GINT64_FORMAT

/* Reads a list of whole numbers; NULL if there is none, or an empty one. */
static gboolean
read_list (PlanModelJson *object, const char *key, GArray **out_numbers, GError **error)
{
  JsonNode *const node = plan_model_json_find (object, key);
  g_autoptr (GArray) numbers = g_array_new (FALSE, FALSE, sizeof (gint64));
  *out_numbers = NULL;
  if (!node)
    return TRUE;
  if (!JSON_NODE_HOLDS_ARRAY (node))
    return plan_model_json_refuse (key, node, "is not a list of numbers", error);
  JsonArray *const list = json_node_get_array (node);
  for (guint i = 0; i < json_array_get_length (list); i++)
    {
      JsonNode *const item = json_array_get_element (list, i);
      if (!JSON_NODE_HOLDS_VALUE (item) || json_node_get_value_type (item) != G_TYPE_INT64)
        return plan_model_json_refuse (key, item, "is not a whole number", error);
      const gint64 number = json_node_get_int (item);
      g_array_append_val (numbers, number);
    }
  *out_numbers = numbers->len > 0 ? g_steal_pointer (&numbers) : NULL;
  return TRUE;
}

/* Reads which layers have experts: a list, or else one layer in so many. */
static gboolean
read_moe_layers (PlanModel *self, PlanModelJson *object, GError **error)
{
  g_autoptr (GArray) list = NULL;
  if (!plan_model_json_int (object, "interleave_moe_layer_step", 1, &self->moe_every, error)
      || !read_list (object, "moe_layers", &list, error))
    return FALSE;
  if (!list)
    return TRUE;
  const gint64 every = g_array_index (list, gint64, 0) + 1;
  gboolean fits = every > 0 && (gint64)list->len == self->layers / every;
  for (guint i = 0; fits && i < list->len; i++)
    fits = g_array_index (list, gint64, i) == (i + 1) * every - 1;
  self->moe_every = every;
  return fits
         || plan_config_refuse (
             error, "moe_layers: only the last of every so many layers may have experts");
}

static gboolean
read_experts (PlanModel *self, PlanModelJson *object, GError **error)
{
  if (!plan_model_json_int (object, "intermediate_size", 1, &self->expert_ffn, error)
      || !plan_model_json_int (object, "num_local_experts", 1, &self->experts, error)
      || !plan_model_json_int (object, "num_experts_per_tok", 1, &self->topk, error))
    return FALSE;
  self->shared_ffn = self->expert_ffn;
  return read_moe_layers (self, object, error);
}

/* Reads which layers have no rotary positions: those with a 0 in the list, or else one layer in so
 * many. */
gboolean
plan_model_read_nope_layers (PlanModel *self, PlanModelJson *object, GError **error)
{
  g_autoptr (GArray) list = NULL;
  if (!plan_model_json_int (object, "no_rope_layer_interval", 1, &self->nope_every, error)
      || !read_list (object, "no_rope_layers", &list, error))
    return FALSE;
  if (!list)
    return TRUE;
  if ((gint64)list->len < self->layers)
    return plan_config_refuse (error, "no_rope_layers: has %u numbers for " INT " layers",
                               list->len, self->layers);
  self->nope_every = 0;
  for (gint64 i = 0; i < self->layers && self->nope_every == 0; i++)
    self->nope_every = g_array_index (list, gint64, i) == 0 ? i + 1 : 0;
  for (gint64 i = 0; i < self->layers; i++)
    {
      const gboolean rotates = self->nope_every == 0 || (i + 1) % self->nope_every != 0;
      if (g_array_index (list, gint64, i) != rotates)
        return plan_config_refuse (
            error,
            "no_rope_layers: only the last of every so many layers may have a 0, and "
            "others a 1: layer " INT " breaks this",
            i);
    }
  return TRUE;
}

/* Checks that layers with rotary positions, and no others, attend in chunks. */
static gboolean
check_layer_types (const PlanModel *self, PlanModelJson *object, GError **error)
{
  JsonNode *const node = plan_model_json_find (object, "layer_types");
  if (!node)
    return TRUE;
  JsonArray *const types = JSON_NODE_HOLDS_ARRAY (node) ? json_node_get_array (node) : NULL;
  if (!types || json_array_get_length (types) != (guint64)self->layers)
    return plan_model_json_refuse ("layer_types", node, "is not a list of a word for every layer",
                                   error);
  for (gint64 i = 0; i < self->layers; i++)
    {
      JsonNode *const item = json_array_get_element (types, (guint)i);
      const char *const type = JSON_NODE_HOLDS_VALUE (item) ? json_node_get_string (item) : NULL;
      const gboolean rotates = self->nope_every == 0 || (i + 1) % self->nope_every != 0;
      if (g_strcmp0 (type, rotates ? "chunked_attention" : "full_attention") != 0)
        return plan_config_refuse (
            error,
            "layer_types: layers with rotary positions must be chunked_attention and "
            "others full_attention: layer " INT " is not",
            i);
    }
  return TRUE;
}

gboolean
plan_model_read_llama4 (PlanModel *self, PlanModelJson *object, GError **error)
{
  gboolean norms = TRUE;
  if (!plan_model_read_attention_bias (self, object, error) || !read_experts (self, object, error)
      || !plan_model_read_nope_layers (self, object, error)
      || !plan_model_json_int_or_null (object, "attention_chunk_size", &self->window, error)
      || !check_layer_types (self, object, error)
      || !plan_model_json_flag (object, "use_qk_norm", &norms, error)
      || !plan_model_read_rope (self, object, "rope_theta", NULL, error))
    return FALSE;
  self->window_chunks = self->window > 0;
  self->full_every = self->window > 0 ? self->nope_every : 0;
  self->qk_l2_norm = !norms                 ? PLAN_QK_L2_OFF
                     : self->nope_every > 0 ? PLAN_QK_L2_ROPE
                                            : PLAN_QK_L2_ALL;
  return TRUE;
}
