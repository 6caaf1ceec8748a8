/* SPDX-License-Identifier: Apache-2.0 */
/* Expands what begins with `$`. A variable that the text does not set, and whatever only a run
 * could tell, is left out of the word, which is then marked as missing it. */
#include "config.h"

#include "planner/base/error.h"
#include "planner/base/text.h"
#include "planner/megatron/megatron-shell-private.h"

#include <string.h>

#define MAX_DEPTH 32
#define SPECIAL "@*#?$!-0123456789" /* names of one character */

void
plan_shell_builder_init (PlanShellBuilder *self, GPtrArray *words, guint line, gboolean splits)
{
  *self = (PlanShellBuilder){
    .words = words, .text = g_string_new (NULL), .line = line, .splits = splits
  };
}

void
plan_shell_builder_clear (PlanShellBuilder *self)
{
  if (self->text)
    g_string_free (self->text, TRUE);
  self->text = NULL;
  g_clear_pointer (&self->missing, g_free);
  g_clear_pointer (&self->condition, g_free);
}

void
plan_shell_builder_end (PlanShellBuilder *self, guint next_line)
{
  if (self->is_word || self->missing)
    {
      PlanMegatronWord *word = g_new0 (PlanMegatronWord, 1);
      word->text = g_strdup (self->text->str);
      word->missing = g_steal_pointer (&self->missing);
      word->condition = g_steal_pointer (&self->condition);
      word->line = self->line;
      g_ptr_array_add (self->words, word);
    }
  g_string_truncate (self->text, 0);
  g_clear_pointer (&self->condition, g_free);
  self->is_word = FALSE;
  self->line = next_line;
}

gboolean
plan_shell_fail (const PlanShellReader *reader, GError **error, const char *format, ...)
{
  va_list args;
  va_start (args, format);
  g_autofree char *message = g_strdup_vprintf (format, args);
  va_end (args);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s:%u: %s", reader->scope->origin,
               reader->line, message);
  return FALSE;
}

gboolean
plan_shell_append (PlanShellReader *reader, PlanShellBuilder *builder, const char *text,
                   gsize length, GError **error)
{
  reader->scope->n_bytes += length;
  if (builder->text->len + length > PLAN_SHELL_MAX_VALUE_BYTES
      || reader->scope->n_bytes > PLAN_SHELL_MAX_ALL_BYTES)
    return plan_shell_fail (reader, error, "what variables stand for grows beyond %s",
                            builder->text->len + length > PLAN_SHELL_MAX_VALUE_BYTES ? "1 MiB"
                                                                                     : "64 MiB");
  g_string_append_len (builder->text, text, (gssize)length);
  builder->is_word = TRUE;
  return TRUE;
}

gsize
plan_shell_name_length (const char *text)
{
  gsize n = 0;
  while (g_ascii_isalpha (text[n]) || text[n] == '_' || (n > 0 && g_ascii_isdigit (text[n])))
    n++;
  return n;
}

void
plan_shell_variable_free (PlanShellVariable *self)
{
  g_ptr_array_unref (self->values);
  g_free (self->missing);
  g_free (self->condition);
  g_free (self);
}

/* Sets `slot` to the name of what is missing or conditional, unless it has one: errors name the
 * first. */
static void
remember (char **slot, const char *name)
{
  if (!*slot && name)
    *slot = g_strdup (name);
}

/* Leaves what cannot be expanded in the word as it is written, so that an inner shell may try. */
static gboolean
leave (PlanShellReader *reader, PlanShellBuilder *builder, const char *shown, GError **error)
{
  remember (&builder->missing, shown);
  return plan_shell_append (reader, builder, shown, strlen (shown), error);
}

/* The length of the text before the bracket that closes the one just opened; -1 if none does. */
static gssize
closing (const char *text, char open, char close)
{
  guint depth = 1;
  char quote = '\0';
  for (gssize i = 0; text[i]; i++)
    if (text[i] == '\\' && text[i + 1])
      i++;
    else if (quote)
      quote = text[i] == quote ? '\0' : quote;
    else if (text[i] == '\'' || text[i] == '"')
      quote = text[i];
    else if (text[i] == open)
      depth++;
    else if (text[i] == close && --depth == 0)
      return i;
  return -1;
}

/* The length of what could not be expanded and begins here; 0 where nothing does, and -1 where it
 * never ends. */
static gssize
unexpanded (const char *text)
{
  if (*text == '`')
    {
      const char *const end = strchr (text + 1, '`');
      return end ? end + 1 - text : -1;
    }
  if (*text != '$')
    return 0;
  if (text[1] == '{' || text[1] == '(')
    {
      const gssize n = closing (text + 2, text[1], text[1] == '(' ? ')' : '}');
      return n < 0 ? -1 : n + 3;
    }
  const gsize n = plan_shell_name_length (text + 1);
  return n > 0 ? (gssize)n + 1 : text[1] && strchr (SPECIAL, text[1]) ? 2 : 0;
}

/* Appends a value, splitting it into words at blanks where the shell would. With `may_lack` a word
 * lacks what was left in it unexpanded. */
static gboolean
append_value (PlanShellReader *reader, PlanShellBuilder *builder, const char *value,
              gboolean may_lack, gboolean is_quoted, GError **error)
{
  const char *const blanks = is_quoted || !builder->splits ? "" : " \t\r\n";
  do
    {
      gsize n = 0;
      while (value[n] && !strchr (blanks, value[n]))
        {
          const gssize left = may_lack ? unexpanded (value + n) : 0;
          g_autofree char *lacked = left > 0 ? g_strndup (value + n, (gsize)left) : NULL;
          remember (&builder->missing, lacked);
          may_lack = may_lack && left >= 0;
          n += (gsize)MAX (left, 1);
        }
      reader->scope->n_bytes += PLAN_SHELL_WORD_BYTES;
      if ((n > 0 || !*blanks) && !plan_shell_append (reader, builder, value, n, error))
        return FALSE;
      value += n;
      if (*value)
        plan_shell_builder_end (builder, reader->line);
      value += strspn (value, blanks);
    }
  while (*value);
  return TRUE;
}

/* Appends a variable: its first value, or all values of an array, each a word unless `joins`. */
static gboolean
append_variable (PlanShellReader *reader, PlanShellBuilder *builder,
                 const PlanShellVariable *variable, gboolean is_array, gboolean joins,
                 gboolean is_quoted, GError **error)
{
  const guint n = is_array ? variable->values->len : MIN (variable->values->len, 1);
  for (guint i = 0; i < n; i++)
    {
      if (i > 0 && builder->splits && !joins)
        plan_shell_builder_end (builder, reader->line);
      else if (i > 0 && !plan_shell_append (reader, builder, " ", 1, error))
        return FALSE;
      remember (&builder->condition, variable->condition);
      reader->scope->n_bytes += PLAN_SHELL_WORD_BYTES;
      if (!append_value (reader, builder, g_ptr_array_index (variable->values, i),
                         variable->missing != NULL, is_quoted, error))
        return FALSE;
    }
  if (is_quoted && n > 0)
    builder->is_word = TRUE;
  return TRUE;
}

/* Expands a nested piece as if it stood in double quotes. */
static char *
expand_piece (PlanShellReader *reader, PlanShellBuilder *marks, const char *piece, GError **error)
{
  PlanShellReader inner = *reader;
  g_auto (PlanShellBuilder) builder = { 0 };
  if (++inner.depth > MAX_DEPTH)
    {
      plan_shell_fail (reader, error, "more than %d expansions within one another", MAX_DEPTH);
      return NULL;
    }
  plan_shell_builder_init (&builder, NULL, reader->line, FALSE);
  for (inner.at = piece; *inner.at;)
    if (*inner.at == '$' || *inner.at == '`')
      {
        if (!plan_shell_expand (&inner, &builder, TRUE, error))
          return NULL;
      }
    else if (*inner.at == '"' || *inner.at == '\'' || (*inner.at == '\\' && inner.at[1]))
      inner.at += *inner.at == '\\' ? 2 : 1; /* only the quotes protected it */
    else if (!plan_shell_append (&inner, &builder, inner.at++, 1, error))
      return NULL;
  remember (&marks->missing, builder.missing);
  remember (&marks->condition, builder.condition);
  return g_strdup (builder.text->str);
}

typedef struct
{
  const char *at;
  guint depth;
  gboolean is_bad;
  const PlanShellReader *reader;
} Sum;

static gint64 sum_of (Sum *sum);

static gint64
factor_of (Sum *sum)
{
  sum->at += strspn (sum->at, " \t\r\n");
  const gsize n = plan_shell_name_length (sum->at);
  if (*sum->at == '(' && sum->depth < MAX_DEPTH)
    {
      sum->at++;
      sum->depth++;
      const gint64 value = sum_of (sum);
      sum->depth--;
      sum->is_bad |= *sum->at != ')';
      sum->at += *sum->at == ')';
      return value;
    }
  if (n > 0)
    {
      g_autofree char *name = g_strndup (sum->at, n);
      const PlanShellVariable *v = g_hash_table_lookup (sum->reader->scope->variables, name);
      const char *text = v && v->values->len > 0 ? g_ptr_array_index (v->values, 0) : "";
      char *end;
      const gint64 value = g_ascii_strtoll (text, &end, 10);
      sum->at += n;
      sum->is_bad |= end == text || *end;
      return value;
    }
  char *end;
  const gint64 value = g_ascii_strtoll (sum->at, &end, 10);
  sum->is_bad |= end == sum->at;
  sum->at = end;
  return value;
}

static gint64
product_of (Sum *sum)
{
  gint64 value = factor_of (sum);
  for (;;)
    {
      sum->at += strspn (sum->at, " \t\r\n");
      const char op = *sum->at;
      if (sum->is_bad || (op != '*' && op != '/' && op != '%') || sum->at[1] == '*')
        return value;
      sum->at++;
      const gint64 by = factor_of (sum);
      sum->is_bad |= (op != '*' && (by == 0 || by == -1))
                     || (op == '*' && __builtin_mul_overflow (value, by, &value));
      if (!sum->is_bad && op != '*')
        value = op == '/' ? value / by : value % by;
    }
}

static gint64
sum_of (Sum *sum)
{
  gint64 value = product_of (sum);
  for (;;)
    {
      sum->at += strspn (sum->at, " \t\r\n");
      const char op = *sum->at;
      if (sum->is_bad || (op != '+' && op != '-'))
        return value;
      sum->at++;
      const gint64 by = product_of (sum);
      sum->is_bad |= op == '+' ? __builtin_add_overflow (value, by, &value)
                               : __builtin_sub_overflow (value, by, &value);
    }
}

/* Expands $(( )): sums and products of integers; anything else is missing. */
static gboolean
expand_sum (PlanShellReader *reader, PlanShellBuilder *builder, const char *inside,
            const char *shown, GError **error)
{
  g_autofree char *text = expand_piece (reader, builder, inside, error);
  if (!text)
    return FALSE;
  Sum sum = { .at = text, .reader = reader };
  const gint64 value = sum_of (&sum);
  if (sum.is_bad || *sum.at)
    return leave (reader, builder, shown, error);
  g_autofree char *digits = g_strdup_printf ("%" G_GINT64_FORMAT, value);
  return plan_shell_append (reader, builder, digits, strlen (digits), error);
}

/* Expands ${...}, from behind the name on. */
static gboolean
expand_braced (PlanShellReader *reader, PlanShellBuilder *builder, const char *inside,
               const char *shown, gboolean is_quoted, GError **error)
{
  const gsize n = plan_shell_name_length (inside);
  g_autofree char *name = g_strndup (inside, n);
  const char *rest = inside + n;
  const PlanShellVariable *variable = g_hash_table_lookup (reader->scope->variables, name);
  const gboolean is_array = g_str_has_prefix (rest, "[@]") || g_str_has_prefix (rest, "[*]");
  const gboolean joins = is_array && is_quoted && rest[1] == '*';
  rest += is_array ? 3 : 0;
  const gboolean counts_empty = *rest == ':';
  const char op = counts_empty ? rest[1] : *rest;
  const char *word = rest + (counts_empty ? 2 : 1);
  const gboolean is_given
      = variable
        && (!counts_empty
            || (variable->values->len > 0 && *(char *)g_ptr_array_index (variable->values, 0)));
  if (n == 0 || (op && !strchr ("-=+?", op)) || (variable && variable->missing && op == '+'))
    return leave (reader, builder, shown, error);
  if (op == '+' ? is_given : (op == '-' || op == '=') && !is_given)
    {
      g_autofree char *value = expand_piece (reader, builder, word, error);
      return value && append_value (reader, builder, value, FALSE, is_quoted, error);
    }
  if (op == '+')
    return TRUE;
  if (variable)
    return append_variable (reader, builder, variable, is_array, joins, is_quoted, error);
  return leave (reader, builder, shown, error);
}

/* Expands brackets; `open` stands at reader->at, behind the `$`. */
static gboolean
expand_bracketed (PlanShellReader *reader, PlanShellBuilder *builder, gboolean is_quoted,
                  GError **error)
{
  const char open = *reader->at;
  const gssize n = closing (reader->at + 1, open, open == '(' ? ')' : '}');
  if (n < 0)
    return plan_shell_fail (reader, error, "'$%c' is never closed", open);
  g_autofree char *inside = g_strndup (reader->at + 1, (gsize)n);
  g_autofree char *shown = g_strdup_printf ("$%c%s%c", open, inside, open == '(' ? ')' : '}');
  gboolean done = TRUE;
  const gsize length = (gsize)n;
  if (open == '{')
    done = expand_braced (reader, builder, inside, shown, is_quoted, error);
  else if (inside[0] == '(' && length >= 2 && inside[length - 1] == ')')
    {
      inside[length - 1] = '\0';
      done = expand_sum (reader, builder, inside + 1, shown, error);
    }
  else
    done = leave (reader, builder, shown, error);
  for (gssize i = 0; i < n + 2; i++)
    reader->line += *reader->at++ == '\n';
  return done;
}

static gboolean
skip_backticks (PlanShellReader *reader, PlanShellBuilder *builder, GError **error)
{
  const char *const end = strchr (reader->at + 1, '`');
  if (!end)
    return plan_shell_fail (reader, error, "a backtick is never closed");
  g_autofree char *shown = g_strndup (reader->at, (gsize)(end + 1 - reader->at));
  for (; reader->at <= end; reader->at++)
    reader->line += *reader->at == '\n';
  return leave (reader, builder, shown, error);
}

gboolean
plan_shell_expand (PlanShellReader *reader, PlanShellBuilder *builder, gboolean is_quoted,
                   GError **error)
{
  if (*reader->at == '`')
    return skip_backticks (reader, builder, error);
  reader->at++;
  if (*reader->at == '{' || *reader->at == '(')
    return expand_bracketed (reader, builder, is_quoted, error);
  const gsize n = plan_shell_name_length (reader->at);
  if (n == 0 && (!*reader->at || !strchr (SPECIAL, *reader->at)))
    return plan_shell_append (reader, builder, "$", 1, error);
  g_autofree char *name = g_strndup (reader->at, MAX (n, 1));
  reader->at += MAX (n, 1);
  const PlanShellVariable *variable = g_hash_table_lookup (reader->scope->variables, name);
  if (variable)
    return append_variable (reader, builder, variable, FALSE, FALSE, is_quoted, error);
  g_autofree char *shown = g_strconcat ("$", name, NULL);
  return leave (reader, builder, shown, error);
}

gboolean
plan_shell_skip_continuation (PlanShellReader *reader)
{
  const gsize n = reader->at[0] != '\\'                            ? 0
                  : reader->at[1] == '\n'                          ? 2
                  : reader->at[1] == '\r' && reader->at[2] == '\n' ? 3
                                                                   : 0;
  reader->at += n;
  reader->line += n > 0;
  return n > 0;
}

gboolean
plan_shell_read_quoted (PlanShellReader *reader, PlanShellBuilder *builder, GError **error)
{
  const PlanShellReader opening = *reader;
  builder->is_word = TRUE;
  while (*reader->at && *reader->at != '"')
    if (*reader->at == '$' || *reader->at == '`')
      {
        if (!plan_shell_expand (reader, builder, TRUE, error))
          return FALSE;
      }
    else if (plan_shell_skip_continuation (reader))
      continue;
    else
      {
        if (*reader->at == '\\' && reader->at[1] && strchr ("$`\"\\", reader->at[1]))
          reader->at++;
        reader->line += *reader->at == '\n';
        if (!plan_shell_append (reader, builder, reader->at, 1, error))
          return FALSE;
        reader->at++;
      }
  if (!*reader->at)
    return plan_shell_fail (&opening, error, "a double quote is never closed");
  reader->at++;
  return TRUE;
}
