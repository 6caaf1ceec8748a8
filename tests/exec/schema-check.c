/* SPDX-License-Identifier: Apache-2.0 */
/* check SCHEMA DOCUMENT...: whether documents of JSON are as a schema says; prints the first fault
 * of each. It knows what docs/schema uses of draft 2020-12: type, const, enum, properties,
 * required, additionalProperties, items, anyOf, and $ref to #/$defs/NAME of a file beside. Any
 * other word of a schema is a fault, too. */
#include "config.h"

#include <glib.h>
#include <json-glib/json-glib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct
{
  const char *folder; /* of the schemas */
  GHashTable *files;  /* name to JsonParser */
} Schemas;

static char *check (Schemas *self, const char *file, JsonObject *schema, JsonNode *node,
                    const char *path);

static JsonObject *
load (Schemas *self, const char *name)
{
  JsonParser *parser = g_hash_table_lookup (self->files, name);
  if (!parser)
    {
      g_autoptr (GError) error = NULL;
      g_autofree char *path = g_build_filename (self->folder, name, NULL);
      parser = json_parser_new ();
      if (!json_parser_load_from_file (parser, path, &error))
        {
          printf ("%s: %s\n", path, error->message);
          exit (99);
        }
      g_hash_table_insert (self->files, g_strdup (name), parser);
    }
  return json_node_get_object (json_parser_get_root (parser));
}

static gboolean
is_type (JsonNode *node, const char *type)
{
  if (JSON_NODE_HOLDS_OBJECT (node))
    return strcmp (type, "object") == 0;
  if (JSON_NODE_HOLDS_ARRAY (node))
    return strcmp (type, "array") == 0;
  if (JSON_NODE_HOLDS_NULL (node))
    return strcmp (type, "null") == 0;
  const GType value = json_node_get_value_type (node);
  if (strcmp (type, "number") == 0)
    return value == G_TYPE_INT64 || value == G_TYPE_DOUBLE;
  return (strcmp (type, "integer") == 0 && value == G_TYPE_INT64)
         || (strcmp (type, "boolean") == 0 && value == G_TYPE_BOOLEAN)
         || (strcmp (type, "string") == 0 && value == G_TYPE_STRING);
}

/* One type, or an array of some. */
static char *
check_type (JsonNode *types, JsonNode *node, const char *path)
{
  if (!JSON_NODE_HOLDS_ARRAY (types))
    return is_type (node, json_node_get_string (types))
               ? NULL
               : g_strdup_printf ("%s: is no %s", path, json_node_get_string (types));
  JsonArray *array = json_node_get_array (types);
  for (guint i = 0; i < json_array_get_length (array); i++)
    if (is_type (node, json_array_get_string_element (array, i)))
      return NULL;
  return g_strdup_printf ("%s: is of none of its types", path);
}

/* A member that is not named is as additionalProperties says, or there is none. */
static char *
check_members (Schemas *self, const char *file, JsonObject *schema, JsonObject *object,
               const char *path)
{
  JsonObject *named = json_object_has_member (schema, "properties")
                          ? json_object_get_object_member (schema, "properties")
                          : NULL;
  JsonNode *other = json_object_get_member (schema, "additionalProperties");
  JsonObjectIter iter;
  const char *name;
  JsonNode *node;
  json_object_iter_init (&iter, object);
  while (json_object_iter_next (&iter, &name, &node))
    {
      g_autofree char *inner = g_strdup_printf ("%s.%s", path, name);
      char *fault = NULL;
      if (named && json_object_has_member (named, name))
        fault = check (self, file, json_object_get_object_member (named, name), node, inner);
      else if (other && JSON_NODE_HOLDS_OBJECT (other))
        fault = check (self, file, json_node_get_object (other), node, inner);
      else if (other)
        fault = g_strdup_printf ("%s: is not in the schema", inner);
      if (fault)
        return fault;
    }
  JsonArray *required = json_object_has_member (schema, "required")
                            ? json_object_get_array_member (schema, "required")
                            : NULL;
  for (guint i = 0; required && i < json_array_get_length (required); i++)
    if (!json_object_has_member (object, json_array_get_string_element (required, i)))
      return g_strdup_printf ("%s: lacks %s", path, json_array_get_string_element (required, i));
  return NULL;
}

static char *
check_items (Schemas *self, const char *file, JsonObject *schema, JsonArray *array,
             const char *path)
{
  for (guint i = 0; i < json_array_get_length (array); i++)
    {
      g_autofree char *inner = g_strdup_printf ("%s[%u]", path, i);
      char *fault = check (self, file, schema, json_array_get_element (array, i), inner);
      if (fault)
        return fault;
    }
  return NULL;
}

/* Any of these will do; where none does, what each of them says. */
static char *
check_any (Schemas *self, const char *file, JsonArray *any, JsonNode *node, const char *path)
{
  g_autoptr (GString) faults = g_string_new (NULL);
  for (guint i = 0; i < json_array_get_length (any); i++)
    {
      g_autofree char *fault
          = check (self, file, json_array_get_object_element (any, i), node, path);
      if (!fault)
        return NULL;
      g_string_append_printf (faults, "%s%s", i > 0 ? "; or " : "", fault);
    }
  return g_strdup (faults->str);
}

static char *
check_ref (Schemas *self, const char *file, const char *ref, JsonNode *node, const char *path)
{
  g_auto (GStrv) parts = g_strsplit (ref, "#/$defs/", 2);
  const char *name = *parts[0] ? parts[0] : file;
  JsonObject *defs = json_object_get_object_member (load (self, name), "$defs");
  g_assert (parts[1] && json_object_has_member (defs, parts[1]));
  return check (self, name, json_object_get_object_member (defs, parts[1]), node, path);
}

/* One of these values. */
static char *
check_values (JsonArray *values, JsonNode *node, const char *path)
{
  for (guint i = 0; i < json_array_get_length (values); i++)
    if (json_node_equal (json_array_get_element (values, i), node))
      return NULL;
  return g_strdup_printf ("%s: is none of its values", path);
}

/* NULL, or the first fault. */
static char *
check (Schemas *self, const char *file, JsonObject *schema, JsonNode *node, const char *path)
{
  static const char *const others[]
      = { "$schema",     "$id",        "$defs",    "title",
          "description", "properties", "required", "additionalProperties",
          NULL };
  JsonObjectIter iter;
  const char *word;
  JsonNode *value;
  char *fault = NULL;
  json_object_iter_init (&iter, schema);
  while (!fault && json_object_iter_next (&iter, &word, &value))
    if (strcmp (word, "type") == 0)
      fault = check_type (value, node, path);
    else if (strcmp (word, "const") == 0)
      fault = json_node_equal (value, node) ? NULL : g_strdup_printf ("%s: another value", path);
    else if (strcmp (word, "enum") == 0)
      fault = check_values (json_node_get_array (value), node, path);
    else if (strcmp (word, "$ref") == 0)
      fault = check_ref (self, file, json_node_get_string (value), node, path);
    else if (strcmp (word, "anyOf") == 0)
      fault = check_any (self, file, json_node_get_array (value), node, path);
    else if (strcmp (word, "items") == 0)
      fault = JSON_NODE_HOLDS_ARRAY (node) ? check_items (self, file, json_node_get_object (value),
                                                          json_node_get_array (node), path)
                                           : NULL;
    else if (!g_strv_contains (others, word))
      fault = g_strdup_printf ("the schema's %s is not known", word);
  if (!fault && JSON_NODE_HOLDS_OBJECT (node))
    fault = check_members (self, file, schema, json_node_get_object (node), path);
  return fault;
}

int
main (int argc, char **argv)
{
  if (argc < 3)
    return 99;
  g_autofree char *folder = g_path_get_dirname (argv[1]);
  g_autofree char *name = g_path_get_basename (argv[1]);
  g_autoptr (GHashTable) files
      = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, g_object_unref);
  Schemas self = { folder, files };
  int n_faults = 0;
  for (int i = 2; i < argc; i++)
    {
      g_autoptr (JsonParser) parser = json_parser_new ();
      g_autoptr (GError) error = NULL;
      g_autofree char *fault = NULL;
      if (!json_parser_load_from_file (parser, argv[i], &error))
        fault = g_strdup (error->message);
      else if (!json_parser_get_root (parser))
        fault = g_strdup ("no document");
      else
        fault = check (&self, name, load (&self, name), json_parser_get_root (parser), "$");
      if (fault)
        printf ("%s: %s\n", argv[i], fault);
      n_faults += fault != NULL;
    }
  return n_faults > 0;
}
