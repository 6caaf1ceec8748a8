/* SPDX-License-Identifier: Apache-2.0 */
/* Hugging Face config.json. json-glib parses; before it, a look at the tokens alone refuses what it
 * would bend silently (octal and hexadecimal numbers, integers past 64 bits) or cannot survive
 * (nesting without end, broken surrogate pairs); while it parses, repeated keys are noticed. */
#include "config.h"

#include "planner/model.h"

#include "planner/error.h"
#include "planner/text.h"

#include <json-glib/json-glib.h>
#include <string.h>

#define MAX_DEPTH 32
#define MAX_DIGITS 18 /* of an integer: always below 2^63 */

/* What LlamaConfig assumes where the file says nothing. */
#define DEFAULT_NORM_EPS 1e-6
#define DEFAULT_ROPE_THETA 10000.0

typedef struct
{
  const char *at;
  guint line;
  guint depth;
  gboolean ended; /* the outermost value is complete */
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
  scan->at++;
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
          g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "line %u: %s", scan.line, problem);
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

static gboolean
load (JsonParser *parser, const char *text, gsize length, GError **error)
{
  g_autoptr (GHashTable) seen = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  g_autoptr (GError) cause = NULL;
  Keys keys = { .seen = seen };

  if (!check_tokens (text, error))
    return FALSE;
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
    return TRUE;
  return FALSE;
}

/* NULL where the key is absent or null, which configs use alike. */
static JsonNode *
find (JsonObject *object, const char *key)
{
  JsonNode *const node = json_object_get_member (object, key);
  return node && !JSON_NODE_HOLDS_NULL (node) ? node : NULL;
}

static gboolean
is_of (JsonNode *node, GType type)
{
  return JSON_NODE_HOLDS_VALUE (node) && json_node_get_value_type (node) == type;
}

static gboolean
refuse (GError **error, const char *key, JsonNode *node, const char *rule)
{
  g_autofree char *text = json_to_string (node, FALSE);
  g_autofree char *shown = plan_text_quote (text);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: %s %s", key, shown, rule);
  return FALSE;
}

/* `fallback` 0: the key is required. */
static gboolean
read_int (JsonObject *object, const char *key, gint64 fallback, gint64 *out, GError **error)
{
  JsonNode *const node = find (object, key);
  if (!node && fallback == 0)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: missing", key);
      return FALSE;
    }
  if (node && !is_of (node, G_TYPE_INT64))
    return refuse (error, key, node, "is not a whole number");
  const gint64 value = node ? json_node_get_int (node) : fallback;
  if (value < 1 || value > G_MAXINT32)
    return refuse (error, key, node, "is out of range: it must be from 1 to 2147483647");
  *out = value;
  return TRUE;
}

static gboolean
read_real (JsonObject *object, const char *key, double fallback, double *out, GError **error)
{
  JsonNode *const node = find (object, key);
  if (node && !is_of (node, G_TYPE_DOUBLE) && !is_of (node, G_TYPE_INT64))
    return refuse (error, key, node, "is not a number");
  *out = node ? json_node_get_double (node) : fallback;
  return TRUE;
}

static gboolean
read_flag (JsonObject *object, const char *key, gboolean *out, GError **error)
{
  JsonNode *const node = find (object, key);
  if (node && !is_of (node, G_TYPE_BOOLEAN))
    return refuse (error, key, node, "is neither true nor false");
  *out = node && json_node_get_boolean (node);
  return TRUE;
}

static gboolean
read_word (JsonObject *object, const char *key, const char **out, GError **error)
{
  JsonNode *const node = find (object, key);
  if (node && !is_of (node, G_TYPE_STRING))
    return refuse (error, key, node, "is not a string");
  *out = node ? json_node_get_string (node) : NULL;
  return TRUE;
}

static gboolean
check_family (JsonObject *object, GError **error)
{
  const char *type, *act;
  if (!read_word (object, "model_type", &type, error)
      || !read_word (object, "hidden_act", &act, error))
    return FALSE;
  if (!type)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "model_type: missing");
      return FALSE;
    }
  g_autofree char *shown = plan_text_quote (type);
  g_autofree char *shown_act = plan_text_quote (act ? act : "silu");
  if (!g_str_equal (type, "llama") && !g_str_equal (type, "mistral"))
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
                 "model_type: the family %s is not modelled yet; llama and mistral are", shown);
  else if (act && !g_str_equal (act, "silu"))
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
                 "hidden_act: %s is not modelled yet; silu is", shown_act);
  else
    return TRUE;
  return FALSE;
}

static gboolean
check_no_bias (JsonObject *object, const char *key, GError **error)
{
  gboolean has_bias;
  if (!read_flag (object, key, &has_bias, error))
    return FALSE;
  if (has_bias)
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
                 "%s: true is not modelled yet; only layers without bias are", key);
  return !has_bias;
}

/* Newer files keep rope_theta inside rope_parameters. */
static gboolean
read_rope (JsonObject *object, double *out, GError **error)
{
  JsonNode *const inner = find (object, "rope_parameters");
  if (inner && !JSON_NODE_HOLDS_OBJECT (inner))
    return refuse (error, "rope_parameters", inner, "is not an object");
  if (inner && !find (object, "rope_theta"))
    return read_real (json_node_get_object (inner), "rope_theta", DEFAULT_ROPE_THETA, out, error);
  return read_real (object, "rope_theta", DEFAULT_ROPE_THETA, out, error);
}

/* The longest sequence over which attention is that of the family: no longer than its window. */
static gboolean
read_max_seq (JsonObject *object, gint64 *out, GError **error)
{
  gint64 positions, window;
  if (!read_int (object, "max_position_embeddings", 0, &positions, error)
      || !read_int (object, "sliding_window", positions, &window, error))
    return FALSE;
  *out = MIN (positions, window);
  return TRUE;
}

static gboolean
read_heads (PlanModel *self, JsonObject *object, GError **error)
{
  if (!read_int (object, "num_attention_heads", 0, &self->heads, error)
      || !read_int (object, "num_key_value_heads", self->heads, &self->kv_heads, error))
    return FALSE;
  if (self->heads % self->kv_heads != 0)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "num_key_value_heads: %" G_GINT64_FORMAT
                   " does not divide num_attention_heads=%" G_GINT64_FORMAT,
                   self->kv_heads, self->heads);
      return FALSE;
    }
  if (!find (object, "head_dim") && self->hidden % self->heads != 0)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "num_attention_heads: %" G_GINT64_FORMAT
                   " does not divide hidden_size=%" G_GINT64_FORMAT ", and there is no head_dim",
                   self->heads, self->hidden);
      return FALSE;
    }
  return read_int (object, "head_dim", MAX (self->hidden / self->heads, 1), &self->head_dim, error);
}

static gboolean
read_config (PlanModel *self, JsonObject *object, GError **error)
{
  return check_family (object, error) && check_no_bias (object, "attention_bias", error)
         && check_no_bias (object, "mlp_bias", error)
         && read_int (object, "num_hidden_layers", 0, &self->layers, error)
         && read_int (object, "hidden_size", 0, &self->hidden, error)
         && read_int (object, "intermediate_size", 0, &self->ffn, error)
         && read_heads (self, object, error)
         && read_int (object, "vocab_size", 0, &self->vocab, error)
         && read_max_seq (object, &self->max_seq, error)
         && read_real (object, "rms_norm_eps", DEFAULT_NORM_EPS, &self->norm_eps, error)
         && read_rope (object, &self->rope_theta, error)
         && read_flag (object, "tie_word_embeddings", &self->tied_embeddings, error)
         && plan_model_check (self, error);
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

PlanModel *
plan_model_parse_config (const char *text, gsize length, const char *origin, GError **error)
{
  if (!plan_text_check (text, length, origin, error))
    return NULL;
  g_autofree char *copy = g_strndup (text, length);
  g_autoptr (JsonParser) parser = json_parser_new_immutable ();
  g_autoptr (PlanModel) self = g_new0 (PlanModel, 1);
  self->name = name_of (origin);
  self->family = g_strdup ("llama");
  if (!load (parser, copy, length, error)
      || !read_config (self, json_node_get_object (json_parser_get_root (parser)), error))
    {
      g_prefix_error (error, "%s: ", origin);
      return NULL;
    }
  return g_steal_pointer (&self);
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
