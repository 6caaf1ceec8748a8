/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/model/safetensors.h"

#include "planner/base/error.h"
#include "planner/base/json.h"
#include "planner/base/text.h"
#include "planner/model/model-private.h"

#include <string.h>

/* limit of the format's own library */
#define MAX_HEADER_BYTES (100 * 1000 * 1000)

static const struct
{
  const char *name;
  PlanDtype dtype;
} formats[] = {
  { "F32", PLAN_DTYPE_FP32 },     { "BF16", PLAN_DTYPE_BF16 },    { "F16", PLAN_DTYPE_FP16 },
  { "F8_E4M3", PLAN_DTYPE_E4M3 }, { "F8_E5M2", PLAN_DTYPE_E5M2 }, { "I32", PLAN_DTYPE_I32 },
  { "I64", PLAN_DTYPE_I64 },      { "U8", PLAN_DTYPE_U8 },
};

const char *
plan_safetensors_dtype_name (PlanDtype dtype)
{
  for (guint i = 0; i < G_N_ELEMENTS (formats); i++)
    if (formats[i].dtype == dtype)
      return formats[i].name;
  return NULL;
}

static void
clear_tensor (gpointer data)
{
  g_free (((PlanSafetensor *)data)->name);
}

void
plan_safetensors_free (PlanSafetensors *self)
{
  if (!self)
    return;
  g_hash_table_unref (self->names);
  g_array_unref (self->tensors);
  g_free (self);
}

guint64
plan_safetensor_elements (const PlanSafetensor *self)
{
  guint64 count = 1;
  for (guint i = 0; i < self->n_dims; i++)
    count *= self->dims[i];
  return count;
}

const PlanSafetensor *
plan_safetensors_find (const PlanSafetensors *self, const char *name)
{
  return g_hash_table_lookup (self->names, name);
}

G_GNUC_PRINTF (3, 4)
static gboolean
fail (GError **error, const char *tensor, const char *format, ...)
{
  g_autofree char *shown = plan_text_quote (tensor);
  va_list args;
  va_start (args, format);
  g_autofree char *rule = g_strdup_vprintf (format, args);
  va_end (args);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "tensor %s: %s", shown, rule);
  return FALSE;
}

/* Reads an array of at most `max` whole numbers that are not negative. */
static gboolean
read_numbers (PlanModelJson *object, const char *tensor, const char *key, guint max, guint64 *out,
              guint *out_n, GError **error)
{
  JsonNode *node = plan_model_json_find (object, key);
  if (!node || !JSON_NODE_HOLDS_ARRAY (node))
    return fail (error, tensor, "%s is not an array", key);
  JsonArray *array = json_node_get_array (node);
  const guint n = json_array_get_length (array);
  if (n > max)
    return fail (error, tensor, "%s has %u numbers, more than %u", key, n, max);
  for (guint i = 0; i < n; i++)
    {
      JsonNode *item = json_array_get_element (array, i);
      if (!JSON_NODE_HOLDS_VALUE (item) || json_node_get_value_type (item) != G_TYPE_INT64
          || json_node_get_int (item) < 0)
        return fail (error, tensor, "%s must hold whole numbers that are not negative", key);
      out[i] = (guint64)json_node_get_int (item);
    }
  *out_n = n;
  return TRUE;
}

static gboolean
read_format (PlanModelJson *object, PlanSafetensor *tensor, GError **error)
{
  const char *name = NULL;
  if (!plan_model_json_word (object, "dtype", &name, error))
    return FALSE;
  if (!name)
    return fail (error, tensor->name, "dtype is missing");
  tensor->dtype = PLAN_N_DTYPES;
  for (guint i = 0; i < G_N_ELEMENTS (formats); i++)
    if (g_str_equal (name, formats[i].name))
      tensor->dtype = formats[i].dtype;
  return TRUE;
}

/* Bytes of a tensor of that shape. FALSE where 64 bits do not hold them. */
static gboolean
shape_bytes (const PlanSafetensor *tensor, guint64 *out_bytes)
{
  guint64 bytes = plan_dtype_bytes (tensor->dtype, 1);
  for (guint i = 0; i < tensor->n_dims; i++)
    if (!g_uint64_checked_mul (&bytes, bytes, tensor->dims[i]))
      return FALSE;
  *out_bytes = bytes;
  return TRUE;
}

static gboolean
read_tensor (JsonObject *entry, guint64 data, guint64 size, PlanSafetensor *tensor, GError **error)
{
  g_auto (PlanModelJson) object = plan_model_json_begin (entry);
  guint64 offsets[2] = { 0 }, bytes = 0;
  guint n = 0;
  if (!read_format (&object, tensor, error)
      || !read_numbers (&object, tensor->name, "shape", PLAN_SAFETENSORS_MAX_DIMS, tensor->dims,
                        &tensor->n_dims, error)
      || !read_numbers (&object, tensor->name, "data_offsets", 2, offsets, &n, error))
    return FALSE;
  if (n != 2 || offsets[1] < offsets[0])
    return fail (error, tensor->name, "data_offsets must be a beginning and an end");
  if (offsets[1] > size - data)
    return fail (error, tensor->name,
                 "ends at byte %" G_GUINT64_FORMAT
                 " of the data, of which there are %" G_GUINT64_FORMAT ": the file is truncated",
                 offsets[1], size - data);
  tensor->begin = data + offsets[0];
  tensor->bytes = offsets[1] - offsets[0];
  if (tensor->dtype != PLAN_N_DTYPES && (!shape_bytes (tensor, &bytes) || bytes != tensor->bytes))
    return fail (error, tensor->name, "has %" G_GUINT64_FORMAT " bytes, which its shape does not",
                 tensor->bytes);
  return TRUE;
}

static gboolean
read_members (PlanSafetensors *self, JsonObject *root, guint64 data, guint64 size, GError **error)
{
  g_autoptr (GList) members = json_object_get_members (root);
  for (GList *at = members; at; at = at->next)
    {
      PlanSafetensor tensor = { .name = g_strdup (at->data) };
      JsonNode *node = json_object_get_member (root, at->data);
      if (g_str_equal (tensor.name, "__metadata__"))
        {
          g_free (tensor.name);
          continue;
        }
      const gboolean is_read
          = JSON_NODE_HOLDS_OBJECT (node)
                ? read_tensor (json_node_get_object (node), data, size, &tensor, error)
                : fail (error, tensor.name, "is not an object");
      g_array_append_val (self->tensors, tensor);
      if (!is_read)
        return FALSE;
    }
  for (guint i = 0; i < self->tensors->len; i++)
    {
      PlanSafetensor *tensor = &g_array_index (self->tensors, PlanSafetensor, i);
      g_hash_table_insert (self->names, tensor->name, tensor);
    }
  return TRUE;
}

static gboolean
read_header (PlanSafetensors *self, const guint8 *bytes, gsize size, GError **error)
{
  guint64 length = 0;
  if (size < PLAN_SAFETENSORS_PREFIX)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "%" G_GSIZE_FORMAT " bytes are no safetensors file", size);
      return FALSE;
    }
  memcpy (&length, bytes, sizeof length);
  length = GUINT64_FROM_LE (length);
  if (length > MAX_HEADER_BYTES || length > size - PLAN_SAFETENSORS_PREFIX)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "a header of %" G_GUINT64_FORMAT " bytes in a file of %" G_GSIZE_FORMAT
                   ": not a safetensors file, or truncated",
                   length, size);
      return FALSE;
    }
  g_autofree char *text = g_strndup ((const char *)bytes + PLAN_SAFETENSORS_PREFIX, length);
  g_autoptr (JsonParser) parser = json_parser_new ();
  if (strlen (text) != length || !g_utf8_validate (text, (gssize)length, NULL))
    {
      g_set_error_literal (error, PLAN_ERROR, PLAN_ERROR_INVALID, "the header is not UTF-8 text");
      return FALSE;
    }
  JsonObject *root = plan_json_load (parser, text, "header", error);
  return root && read_members (self, root, PLAN_SAFETENSORS_PREFIX + length, (guint64)size, error);
}

PlanSafetensors *
plan_safetensors_parse (const guint8 *bytes, gsize size, const char *origin, GError **error)
{
  g_autoptr (PlanSafetensors) self = g_new0 (PlanSafetensors, 1);
  self->tensors = g_array_new (FALSE, FALSE, sizeof (PlanSafetensor));
  self->names = g_hash_table_new (g_str_hash, g_str_equal);
  g_array_set_clear_func (self->tensors, clear_tensor);
  if (read_header (self, bytes, size, error))
    return g_steal_pointer (&self);
  g_prefix_error (error, "%s: ", origin);
  return NULL;
}
