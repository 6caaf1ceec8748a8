/* SPDX-License-Identifier: Apache-2.0 */
/* JSON, strictly. json-glib parses; before it, a look at the tokens alone refuses what it would
 * bend silently (octal and hexadecimal numbers, integers past 64 bits) or cannot survive (nesting
 * without end, broken surrogate pairs); while it parses, repeated keys are noticed. */
#include "config.h"

#include "planner/model-private.h"

#include "planner/error.h"
#include "planner/text.h"

#include <string.h>

#define MAX_DEPTH 32
#define MAX_DIGITS 18 /* of an integer: always below 2^63 */

typedef struct
{
  const char *at;
  guint line;
  guint depth;
  gboolean ended;   /* the outermost value is complete */
  const char *word; /* the last string, without its quotes */
  const char *key;  /* that of the value that comes; NULL inside arrays */
  gsize word_length, key_length;
} Scan;

static const char *
skip_digits (const char *at)
{
  while (g_ascii_isdigit (*at))
    at++;
  return at;
}

/* Each scanner moves past its token and returns what is wrong with it, or NULL. */
static const char *
scan_number (Scan *scan)
{
  const char *const digits = scan->at + (*scan->at == '-');
  const char *at = skip_digits (digits);
  if (at == digits || (*digits == '0' && at > digits + 1))
    return "a number must be decimal, without leading zeros";
  if (at - digits > MAX_DIGITS)
    return "a number of more than 18 digits";
  if (*at == '.')
    {
      const char *const fraction = at + 1;
      at = skip_digits (fraction);
      if (at == fraction)
        return "a number must have digits behind its point";
    }
  if (*at == 'e' || *at == 'E')
    {
      at += 1 + (at[1] == '+' || at[1] == '-');
      if (skip_digits (at) == at)
        return "a number must have digits in its exponent";
      at = skip_digits (at);
    }
  scan->at = at;
  return g_ascii_isalnum (*at) ? "a number must be decimal" : NULL;
}

/* Value of the four hexadecimal digits of a \u escape; -1 if they are not that. */
static int
scan_code_unit (const char *at)
{
  int value = 0;
  if (at[0] != '\\' || at[1] != 'u')
    return -1;
  for (guint i = 2; i < 6; i++)
    {
      if (!g_ascii_isxdigit (at[i]))
        return -1;
      value = value * 16 + g_ascii_xdigit_value (at[i]);
    }
  return value;
}

static const char *
scan_escape (Scan *scan)
{
  if (scan->at[1] != 'u')
    {
      if (scan->at[1] == '\0' || !strchr ("\"\\/bfnrt", scan->at[1]))
        return "a string has an unknown escape";
      scan->at += 2;
      return NULL;
    }
  const int unit = scan_code_unit (scan->at);
  scan->at += unit < 0 ? 0 : 6;
  if (unit <= 0 || (unit >= 0xdc00 && unit <= 0xdfff))
    return "a string has a broken \\u escape";
  if (unit >= 0xd800 && unit <= 0xdbff)
    {
      const int low = scan_code_unit (scan->at);
      if (low < 0xdc00 || low > 0xdfff)
        return "a string has half of a surrogate pair";
      scan->at += 6;
    }
  return NULL;
}

static const char *
scan_string (Scan *scan)
{
  const char *const start = ++scan->at;
  while (*scan->at != '"')
    {
      const char *problem = NULL;
      if ((guchar)*scan->at < ' ')
        return "a string is not closed on its line";
      if (*scan->at == '\\')
        problem = scan_escape (scan);
      else
        scan->at++;
      if (problem)
        return problem;
    }
  scan->word = start;
  scan->word_length = (gsize)(scan->at - start);
  scan->at++;
  return NULL;
}

static const char *
scan_literal (Scan *scan)
{
  static const char *const literals[] = { "true", "false", "null" };
  for (guint i = 0; i < G_N_ELEMENTS (literals); i++)
    {
      const gsize length = strlen (literals[i]);
      if (strncmp (scan->at, literals[i], length) == 0 && !g_ascii_isalnum (scan->at[length]))
        {
          scan->at += length;
          return NULL;
        }
    }
  return "neither a value nor punctuation of JSON";
}

static const char *
scan_token (Scan *scan)
{
  const char c = *scan->at;
  if (scan->ended)
    return "text after the end of the JSON value";
  if (c == '"')
    return scan_string (scan);
  if (c == '-' || g_ascii_isdigit (c))
    return scan_number (scan);
  if (!strchr ("{}[],:", c))
    return scan_literal (scan);
  scan->at++;
  scan->key = c == ':' ? scan->word : NULL;
  scan->key_length = scan->word_length;
  if ((c == '{' || c == '[') && ++scan->depth > MAX_DEPTH)
    return "nested deeper than any config.json";
  if (c == '}' || c == ']')
    {
      if (scan->depth == 0)
        return "a bracket is closed that was not opened";
      scan->ended = --scan->depth == 0;
    }
  return NULL;
}

static gboolean
check_tokens (const char *text, GError **error)
{
  Scan scan = { .at = text, .line = 1 };
  while (*scan.at)
    {
      const char *problem = NULL;
      if (strchr (" \t\r\n", *scan.at))
        scan.line += *scan.at++ == '\n';
      else
        problem = scan_token (&scan);
      if (problem)
        {
          g_autofree char *key = scan.key ? g_strndup (scan.key, scan.key_length) : NULL;
          g_autofree char *shown = key ? plan_text_quote (key) : g_strdup ("");
          g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "line %u: %s%s%s", scan.line, shown,
                       key ? ": " : "", problem);
          return FALSE;
        }
    }
  return TRUE;
}

typedef struct
{
  GHashTable *seen; /* "object/key" */
  char *twice;      /* first key that came back */
} Keys;

static void
on_member (JsonParser *parser, JsonObject *object, const char *key, Keys *keys)
{
  if (!g_hash_table_add (keys->seen, g_strdup_printf ("%p/%s", (void *)object, key))
      && !keys->twice)
    keys->twice = g_strdup (key);
}

JsonObject *
plan_model_json_load (JsonParser *parser, const char *text, gsize length, GError **error)
{
  g_autoptr (GHashTable) seen = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  g_autoptr (GError) cause = NULL;
  Keys keys = { .seen = seen };

  if (!check_tokens (text, error))
    return NULL;
  const gulong handler = g_signal_connect (parser, "object-member", G_CALLBACK (on_member), &keys);
  const gboolean done = json_parser_load_from_data (parser, text, (gssize)length, &cause);
  g_signal_handler_disconnect (parser, handler);
  g_autofree char *twice = keys.twice;
  JsonNode *const root = done ? json_parser_get_root (parser) : NULL;
  if (!done)
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "not JSON: %s",
                 g_strchomp (cause->message));
  else if (!root || !JSON_NODE_HOLDS_OBJECT (root))
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "not a JSON object");
  else if (twice)
    {
      g_autofree char *shown = plan_text_quote (twice);
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: given twice", shown);
    }
  else
    return json_node_get_object (root);
  return NULL;
}

JsonNode *
plan_model_json_find (JsonObject *object, const char *key)
{
  JsonNode *const node = json_object_get_member (object, key);
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
plan_model_json_int (JsonObject *object, const char *key, gint64 min, gint64 *out_value,
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
plan_model_json_size (JsonObject *object, const char *key, gint64 *out_value, GError **error)
{
  if (plan_model_json_find (object, key))
    return plan_model_json_int (object, key, 1, out_value, error);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: missing", key);
  return FALSE;
}

gboolean
plan_model_json_int_or_null (JsonObject *object, const char *key, gint64 *out_value, GError **error)
{
  if (json_object_has_member (object, key) && !plan_model_json_find (object, key))
    *out_value = 0;
  return plan_model_json_int (object, key, 0, out_value, error);
}

gboolean
plan_model_json_real (JsonObject *object, const char *key, double *out_value, GError **error)
{
  JsonNode *const node = plan_model_json_find (object, key);
  if (node && !is_of (node, G_TYPE_DOUBLE) && !is_of (node, G_TYPE_INT64))
    return plan_model_json_refuse (key, node, "is not a number", error);
  if (node)
    *out_value = json_node_get_double (node);
  return TRUE;
}

gboolean
plan_model_json_flag (JsonObject *object, const char *key, gboolean *out_value, GError **error)
{
  JsonNode *const node = plan_model_json_find (object, key);
  if (node && !is_of (node, G_TYPE_BOOLEAN))
    return plan_model_json_refuse (key, node, "is neither true nor false", error);
  if (node)
    *out_value = json_node_get_boolean (node);
  return TRUE;
}

gboolean
plan_model_json_word (JsonObject *object, const char *key, const char **out_value, GError **error)
{
  JsonNode *const node = plan_model_json_find (object, key);
  if (node && !is_of (node, G_TYPE_STRING))
    return plan_model_json_refuse (key, node, "is not a string", error);
  if (node)
    *out_value = json_node_get_string (node);
  return TRUE;
}
