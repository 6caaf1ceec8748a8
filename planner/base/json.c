/* SPDX-License-Identifier: Apache-2.0 */
/* json-glib parses. A scan of the tokens before it refuses what json-glib would change silently
 * (octal and hexadecimal numbers, integers past 64 bits) or cannot survive (nesting without end,
 * broken surrogate pairs); repeated keys are noticed while it parses. */
#include "config.h"

#include "planner/base/json.h"

#include "planner/base/error.h"
#include "planner/base/text.h"

#include <string.h>

#define MAX_DEPTH 32
#define MAX_DIGITS 18 /* digits before a point or an exponent */

typedef struct
{
  const char *at, *line_start;
  guint line;
  guint depth;
  gboolean ended;   /* the outermost value is complete */
  const char *word; /* the last string, without its quotes */
  const char *key;  /* key of the value that comes next; NULL inside arrays */
  gsize word_length, key_length;
} Scan;

static const char *
skip_digits (const char *at)
{
  while (g_ascii_isdigit (*at))
    at++;
  return at;
}

static gboolean
fits_integer (const char *digits, const char *end)
{
  g_autofree char *text = g_strndup (digits, (gsize)(end - digits));
  return g_ascii_string_to_unsigned (text, 10, 0, G_MAXINT64, NULL, NULL);
}

/* Each scanner moves past its token and returns what is wrong with it, or NULL. */
static const char *
scan_number (Scan *scan)
{
  const char *const digits = scan->at + (*scan->at == '-');
  const char *at = skip_digits (digits);
  if (at == digits || (*digits == '0' && at > digits + 1))
    return "a number must be decimal, without leading zeros";
  const char *const whole = at;
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
  if (g_ascii_isalnum (*at))
    return "a number must be decimal";
  if (at == whole ? !fits_integer (digits, whole) : whole - digits > MAX_DIGITS)
    return "a number past 64 bits";
  scan->at = at;
  return NULL;
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
    return "nested deeper than any such file";
  if (c == '}' || c == ']')
    {
      if (scan->depth == 0)
        return "a bracket is closed that was not opened";
      scan->ended = --scan->depth == 0;
    }
  return NULL;
}

static gboolean
check_tokens (const char *text, const char *origin, GError **error)
{
  Scan scan = { .at = text, .line_start = text, .line = 1 };
  while (*scan.at)
    {
      const char *const start = scan.at;
      const char *problem = NULL;
      if (strchr (" \t\r\n", *scan.at))
        {
          scan.line += *scan.at == '\n';
          scan.line_start = *scan.at++ == '\n' ? scan.at : scan.line_start;
        }
      else
        problem = scan_token (&scan);
      if (problem)
        {
          g_autofree char *key = scan.key ? g_strndup (scan.key, scan.key_length) : NULL;
          g_autofree char *shown = key ? plan_text_quote (key) : g_strdup ("");
          g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s:%u:%ld: %s%s%s", origin,
                       scan.line, (long)(start - scan.line_start) + 1, shown, key ? ": " : "",
                       problem);
          return FALSE;
        }
    }
  return TRUE;
}

/* What the parser tells while it reads. */
typedef struct
{
  GArray *open; /* guint: members so far of each object that has not ended */
  char *twice;  /* first key that came back */
  guint line;   /* line of that key */
} Keys;

static void
on_start (JsonParser *parser, Keys *keys)
{
  const guint none = 0;
  g_array_append_val (keys->open, none);
}

/* Notices a repeated key: the object keeps one of its members, so it has fewer than were read. */
static void
on_member (JsonParser *parser, JsonObject *object, const char *key, Keys *keys)
{
  guint *const n = &g_array_index (keys->open, guint, keys->open->len - 1);
  if (++*n == json_object_get_size (object) || keys->twice)
    return;
  keys->twice = g_strdup (key);
  keys->line = json_parser_get_current_line (parser);
}

static void
on_end (JsonParser *parser, JsonObject *object, Keys *keys)
{
  g_array_set_size (keys->open, keys->open->len - 1);
}

/* The parser's words, "<data>:2:9: Parse error: ...", with the name that the text has. */
static gboolean
refuse_grammar (const char *origin, const GError *cause, GError **error)
{
  static const char unnamed[] = "<data>", mark[] = "Parse error: ";
  const char *const words = cause->message;
  const char *const place = g_str_has_prefix (words, unnamed) ? words + strlen (unnamed) : ": ";
  const char *const at = strstr (words, mark);
  g_autofree char *reason = g_strchomp (g_strdup (at ? at + strlen (mark) : words));
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s%.*snot JSON: %s", origin,
               (int)(strcspn (place, " ") + 1), place, reason);
  return FALSE;
}

static gboolean
load (JsonParser *parser, const char *text, const char *origin, Keys *keys, GError **error)
{
  g_autoptr (GError) cause = NULL;
  const gulong handlers[]
      = { g_signal_connect (parser, "object-start", G_CALLBACK (on_start), keys),
          g_signal_connect (parser, "object-member", G_CALLBACK (on_member), keys),
          g_signal_connect (parser, "object-end", G_CALLBACK (on_end), keys) };
  const gboolean done = json_parser_load_from_data (parser, text, -1, &cause);
  for (guint i = 0; i < G_N_ELEMENTS (handlers); i++)
    g_signal_handler_disconnect (parser, handlers[i]);
  return done || refuse_grammar (origin, cause, error);
}

JsonObject *
plan_json_load (JsonParser *parser, const char *text, const char *origin, GError **error)
{
  g_autoptr (GArray) open = g_array_new (FALSE, FALSE, sizeof (guint));
  Keys keys = { .open = open };
  const gboolean done
      = check_tokens (text, origin, error) && load (parser, text, origin, &keys, error);
  g_autofree char *twice = keys.twice;
  JsonNode *const root = done ? json_parser_get_root (parser) : NULL;
  if (!done)
    return NULL;
  if (!root || !JSON_NODE_HOLDS_OBJECT (root))
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: not a JSON object", origin);
      return NULL;
    }
  if (!twice)
    return json_node_get_object (root);
  g_autofree char *shown = plan_text_quote (twice);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s:%u: %s: given twice", origin, keys.line,
               shown);
  return NULL;
}
