/* SPDX-License-Identifier: Apache-2.0 */
/* Reads members of JSON objects by key and type. */
#include "config.h"

#include "planner/model/model-private.h"

#include "planner/base/error.h"
#include "planner/base/text.h"

PlanModelJson
plan_model_json_begin (JsonObject *object)
{
  return (PlanModelJson){ .object = object, .read = g_hash_table_new (g_str_hash, g_str_equal) };
}

void
plan_model_json_clear (PlanModelJson *self)
{
  g_clear_pointer (&self->read, g_hash_table_unref);
}

gboolean
plan_model_json_has (PlanModelJson *object, const char *key)
{
  return json_object_has_member (object->object, key);
}

JsonNode *
plan_model_json_find (PlanModelJson *object, const char *key)
{
  g_hash_table_add (object->read, (gpointer)key);
  JsonNode *const node = json_object_get_member (object->object, key);
  return node && !JSON_NODE_HOLDS_NULL (node) ? node : NULL;
}

static gboolean
is_of (JsonNode *node, GType type)
{
  return JSON_NODE_HOLDS_VALUE (node) && json_node_get_value_type (node) == type;
}

gboolean
plan_model_json_refuse (const char *key, JsonNode *node, const char *rule, GError **error)
{
  g_autofree char *text = json_to_string (node, FALSE);
  g_autofree char *shown = plan_text_quote (text);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: %s %s", key, shown, rule);
  return FALSE;
}

gboolean
plan_model_json_int (PlanModelJson *object, const char *key, gint64 min, gint64 *out_value,
                     GError **error)
{
  JsonNode *const node = plan_model_json_find (object, key);
  if (!node)
    return TRUE;
  if (!is_of (node, G_TYPE_INT64))
    return plan_model_json_refuse (key, node, "is not a whole number", error);
  const gint64 value = json_node_get_int (node);
  if (value < min || value > G_MAXINT32)
    {
      g_autofree char *rule = g_strdup_printf (
          "is out of range: it must be from %" G_GINT64_FORMAT " to 2147483647", min);
      return plan_model_json_refuse (key, node, rule, error);
    }
  *out_value = value;
  return TRUE;
}

gboolean
plan_model_json_size (PlanModelJson *object, const char *key, gint64 *out_value, GError **error)
{
  if (plan_model_json_find (object, key))
    return plan_model_json_int (object, key, 1, out_value, error);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: missing", key);
  return FALSE;
}

gboolean
plan_model_json_int_or_null (PlanModelJson *object, const char *key, gint64 *out_value,
                             GError **error)
{
  if (plan_model_json_has (object, key) && !plan_model_json_find (object, key))
    *out_value = 0;
  return plan_model_json_int (object, key, 0, out_value, error);
}

gboolean
plan_model_json_real (PlanModelJson *object, const char *key, double *out_value, GError **error)
{
  JsonNode *const node = plan_model_json_find (object, key);
  if (node && !is_of (node, G_TYPE_DOUBLE) && !is_of (node, G_TYPE_INT64))
    return plan_model_json_refuse (key, node, "is not a number", error);
  if (node)
    *out_value = json_node_get_double (node);
  return TRUE;
}

gboolean
plan_model_json_flag (PlanModelJson *object, const char *key, gboolean *out_value, GError **error)
{
  JsonNode *const node = plan_model_json_find (object, key);
  if (node && !is_of (node, G_TYPE_BOOLEAN))
    return plan_model_json_refuse (key, node, "is neither true nor false", error);
  if (node)
    *out_value = json_node_get_boolean (node);
  return TRUE;
}

gboolean
plan_model_json_word (PlanModelJson *object, const char *key, const char **out_value,
                      GError **error)
{
  JsonNode *const node = plan_model_json_find (object, key);
  if (node && !is_of (node, G_TYPE_STRING))
    return plan_model_json_refuse (key, node, "is not a string", error);
  if (node)
    *out_value = json_node_get_string (node);
  return TRUE;
}

gboolean
plan_model_json_object (PlanModelJson *object, const char *key, JsonObject **out_object,
                        GError **error)
{
  JsonNode *const node = plan_model_json_find (object, key);
  if (node && !JSON_NODE_HOLDS_OBJECT (node))
    return plan_model_json_refuse (key, node, "is not an object", error);
  *out_object = node ? json_node_get_object (node) : NULL;
  return TRUE;
}
