/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the text once, as a shell would: words are expanded while they are read, so a variable has
 * the value of the last assignment above it. All branches are read; a variable that is assigned in
 * one is remembered as conditional. */
#include "config.h"

#include "planner/megatron/megatron-shell.h"

#include "planner/base/error.h"
#include "planner/base/text.h"
#include "planner/megatron/megatron-shell-private.h"

#include <string.h>

#define MAX_NESTED_TEXTS 4 /* most texts (here-documents, `bash -c`) inside one another */

/* A text: the whole script, a here-document, or the text after `bash -c`. */
typedef struct
{
  PlanShellReader reader;
  GPtrArray *words;    /* of the command being read */
  GPtrArray *prefix;   /* names assigned before it on the same line */
  GPtrArray *bodies;   /* delimiters of here-documents that begin on the next line */
  guint branches;      /* number of if, for, while and case that are open */
  gboolean is_chained; /* the command runs only depending on the one before it */
} Text;

static gboolean read_text (PlanShellScope *scope, const char *at, guint line, guint depth,
                           GError **error);

static void
free_word (gpointer data)
{
  PlanMegatronWord *word = data;
  g_free (word->text);
  g_free (word->missing);
  g_free (word->condition);
  g_free (word);
}

void
plan_megatron_script_clear (PlanMegatronScript *self)
{
  g_clear_pointer (&self->commands, g_ptr_array_unref);
  g_clear_pointer (&self->environment, g_hash_table_unref);
}

static const char *
text_of (const GPtrArray *words, guint i)
{
  return i < words->len ? ((const PlanMegatronWord *)g_ptr_array_index (words, i))->text : "";
}

/* Reads $'...' or '...' from behind the opening quote. */
static gboolean
read_single_quoted (PlanShellReader *reader, PlanShellBuilder *builder, GError **error)
{
  const char *const end = strchr (reader->at, '\'');
  if (!end)
    return plan_shell_fail (reader, error, "a single quote is never closed");
  builder->is_word = TRUE;
  if (!plan_shell_append (reader, builder, reader->at, (gsize)(end - reader->at), error))
    return FALSE;
  for (; reader->at <= end; reader->at++)
    reader->line += *reader->at == '\n';
  return TRUE;
}

/* Reads to the end of a word; expansions may add whole words before it. */
static gboolean
read_word (PlanShellReader *reader, PlanShellBuilder *builder, GError **error)
{
  gboolean done = TRUE;
  while (done && *reader->at && !strchr (" \t\r\n;&|()<>", *reader->at))
    {
      const char c = *reader->at;
      if (c == '\'' || c == '"' || (c == '$' && (reader->at[1] == '\'' || reader->at[1] == '"')))
        {
          reader->at += c == '$';
          done = *reader->at++ == '"' ? plan_shell_read_quoted (reader, builder, error)
                                      : read_single_quoted (reader, builder, error);
        }
      else if (c == '$' || c == '`')
        done = plan_shell_expand (reader, builder, FALSE, error);
      else if (!plan_shell_skip_continuation (reader))
        {
          reader->at += c == '\\' && reader->at[1];
          done = plan_shell_append (reader, builder, reader->at, 1, error);
          reader->line += *reader->at++ == '\n';
        }
    }
  if (done)
    plan_shell_builder_end (builder, reader->line);
  return done;
}

static GPtrArray *
new_words (void)
{
  return g_ptr_array_new_with_free_func (free_word);
}

static void
skip_blanks (PlanShellReader *reader)
{
  while (*reader->at == ' ' || *reader->at == '\t' || *reader->at == '\r'
         || plan_shell_skip_continuation (reader))
    if (*reader->at == ' ' || *reader->at == '\t' || *reader->at == '\r')
      reader->at++;
}

/* Reads the words of ( ... ) behind an equals sign. */
static gboolean
read_array (PlanShellReader *reader, GPtrArray *words, GError **error)
{
  const PlanShellReader opening = *reader;
  reader->at++;
  for (;;)
    {
      skip_blanks (reader);
      if (*reader->at == '#')
        reader->at += strcspn (reader->at, "\n");
      if (*reader->at == ')')
        {
          reader->at++;
          return TRUE;
        }
      if (!*reader->at)
        return plan_shell_fail (&opening, error, "the bracket of an array is never closed");
      if (*reader->at == '\n')
        {
          reader->at++;
          reader->line++;
          continue;
        }
      if (strchr (";&|(<>", *reader->at))
        return plan_shell_fail (reader, error, "'%c' cannot stand in an array", *reader->at);
      g_auto (PlanShellBuilder) builder = { 0 };
      plan_shell_builder_init (&builder, words, reader->line, TRUE);
      if (!read_word (reader, &builder, error))
        return FALSE;
    }
}

static PlanShellVariable *
variable_of (PlanShellScope *scope, const char *name)
{
  PlanShellVariable *variable = g_hash_table_lookup (scope->variables, name);
  if (!variable)
    {
      variable = g_new0 (PlanShellVariable, 1);
      variable->values = g_ptr_array_new_with_free_func (g_free);
      g_hash_table_insert (scope->variables, g_strdup (name), variable);
    }
  return variable;
}

/* Assigns words to a variable; `appends` as += does, to the text or to the array. */
static gboolean
assign (Text *text, const char *name, GPtrArray *words, gboolean appends, gboolean is_array,
        GError **error)
{
  PlanShellVariable *const variable = variable_of (text->reader.scope, name);
  g_autofree char *before = NULL;
  if (appends && !is_array && variable->values->len > 0)
    before = g_strdup (g_ptr_array_index (variable->values, 0));
  if (!appends)
    {
      g_clear_pointer (&variable->missing, g_free);
      g_clear_pointer (&variable->condition, g_free);
    }
  if (!appends || !is_array)
    g_ptr_array_set_size (variable->values, 0);
  if (text->branches > 0 || text->is_chained)
    {
      g_free (variable->condition);
      variable->condition = g_strconcat ("$", name, NULL);
    }
  for (guint i = 0; i < words->len; i++)
    {
      const PlanMegatronWord *word = g_ptr_array_index (words, i);
      if (!variable->missing)
        variable->missing = g_strdup (word->missing);
      if (!variable->condition)
        variable->condition = g_strdup (word->condition);
      if (i > 0 || is_array || !before)
        g_ptr_array_add (variable->values, g_strdup (word->text));
      else
        g_ptr_array_add (variable->values, g_strconcat (before, word->text, NULL));
    }
  gsize n = 0;
  for (guint i = 0; i < variable->values->len; i++)
    n += strlen (g_ptr_array_index (variable->values, i)) + 1;
  text->reader.scope->n_bytes += n + variable->values->len * PLAN_SHELL_WORD_BYTES;
  if (n > PLAN_SHELL_MAX_VALUE_BYTES || text->reader.scope->n_bytes > PLAN_SHELL_MAX_ALL_BYTES)
    return plan_shell_fail (&text->reader, error, "$%s grows beyond %s", name,
                            n > PLAN_SHELL_MAX_VALUE_BYTES ? "1 MiB" : "64 MiB with the rest");
  return TRUE;
}

/* Reads NAME=value, NAME+=value or NAME=( ... ); FALSE without an error if there is none. */
static gboolean
read_assignment (Text *text, gboolean is_exported, GError **error)
{
  PlanShellReader *const reader = &text->reader;
  const gsize n = plan_shell_name_length (reader->at);
  const gboolean appends = n > 0 && reader->at[n] == '+' && reader->at[n + 1] == '=';
  if (n == 0 || (!appends && reader->at[n] != '='))
    return FALSE;
  g_autofree char *name = g_strndup (reader->at, n);
  g_autoptr (GPtrArray) words = new_words ();
  reader->at += n + (appends ? 2 : 1);
  const gboolean is_array = *reader->at == '(';
  if (is_array)
    {
      if (!read_array (reader, words, error))
        return FALSE;
    }
  else
    {
      g_auto (PlanShellBuilder) builder = { 0 };
      plan_shell_builder_init (&builder, words, reader->line, FALSE);
      builder.is_word = TRUE;
      if (!read_word (reader, &builder, error))
        return FALSE;
    }
  if (!assign (text, name, words, appends, is_array, error))
    return FALSE;
  variable_of (reader->scope, name)->is_exported |= is_exported;
  g_ptr_array_add (text->prefix, g_steal_pointer (&name));
  return TRUE;
}

/* Takes words that open or close branches, or only stand before a command. */
static gboolean
take_keyword (Text *text)
{
  static const char *const opening[] = { "if", "for", "while", "until", "case", NULL };
  static const char *const closing[] = { "fi", "done", "esac", NULL };
  static const char *const between[]
      = { "then", "else", "elif", "do", "{", "}", "!", "time", NULL };
  const char *const word = text_of (text->words, 0);
  const gboolean opens = g_strv_contains (opening, word), closes = g_strv_contains (closing, word);
  if (text->words->len != 1 || (!opens && !closes && !g_strv_contains (between, word)))
    return FALSE;
  text->branches += opens;
  text->branches -= closes && text->branches > 0;
  g_ptr_array_set_size (text->words, 0);
  return TRUE;
}

static gboolean
is_shell (const char *word)
{
  g_autofree char *base = g_path_get_basename (word);
  return g_str_equal (base, "bash") || g_str_equal (base, "sh") || g_str_equal (base, "zsh")
         || g_str_equal (base, "eval");
}

/* Reads the text that follows `bash -c`, `eval` or --wrap=. */
static gboolean
read_inner_texts (Text *text, GError **error)
{
  const guint depth = text->reader.depth + 1;
  for (guint i = 0; i < text->words->len; i++)
    {
      const PlanMegatronWord *const word = g_ptr_array_index (text->words, i);
      const char *inner = g_str_has_prefix (word->text, "--wrap=") ? word->text + 7 : NULL;
      g_autoptr (GString) joined = g_string_new (NULL);
      guint first = i + 1;
      if (is_shell (word->text) && strcmp (word->text, "eval") != 0)
        {
          while (first < text->words->len && text_of (text->words, first)[0] == '-'
                 && !strchr (text_of (text->words, first), 'c'))
            first++;
          const char *const option = text_of (text->words, first);
          inner = option[0] == '-' && option[1] != '-' ? text_of (text->words, first + 1) : NULL;
        }
      else if (strcmp (word->text, "eval") == 0 && i == 0)
        {
          for (guint j = first; j < text->words->len; j++)
            g_string_append_printf (joined, "%s ", text_of (text->words, j));
          inner = joined->str;
        }
      if (inner && *inner && depth <= MAX_NESTED_TEXTS
          && !read_text (text->reader.scope, inner, word->line, depth, error))
        return FALSE;
    }
  return TRUE;
}

/* Ends a command: handles export and unset, and keeps any other. */
static gboolean
end_command (Text *text, GError **error)
{
  const char *const name = text_of (text->words, 0);
  GHashTable *const variables = text->reader.scope->variables;
  if (strcmp (name, "unset") == 0)
    for (guint i = 1; i < text->words->len; i++)
      g_hash_table_remove (variables, text_of (text->words, i));
  if (strcmp (name, "export") == 0)
    for (guint i = 1; i < text->words->len; i++)
      {
        PlanShellVariable *v = g_hash_table_lookup (variables, text_of (text->words, i));
        if (v)
          v->is_exported = TRUE;
      }
  if (text->words->len > 0)
    {
      if (!read_inner_texts (text, error))
        return FALSE;
      g_ptr_array_add (text->reader.scope->commands, text->words);
      text->words = new_words ();
    }
  g_ptr_array_set_size (text->prefix, 0);
  return TRUE;
}

/* Reads the lines up to the delimiter as a text. Data that a shell could not read is left alone. */
static gboolean
read_body (Text *text, const char *delimiter, GError **error)
{
  PlanShellReader *const reader = &text->reader;
  const guint first = reader->line;
  const PlanShellReader opening = *reader;
  g_autoptr (GString) body = g_string_new (NULL);
  while (*reader->at)
    {
      const gsize n = strcspn (reader->at, "\n");
      g_autofree char *line = g_strndup (reader->at, n);
      reader->at += n + (reader->at[n] == '\n');
      reader->line++;
      if (strcmp (g_strstrip (line), delimiter) == 0)
        {
          g_autoptr (GError) ignored = NULL;
          const guint n_commands = reader->scope->commands->len;
          if (reader->depth < MAX_NESTED_TEXTS
              && !read_text (reader->scope, body->str, first, reader->depth + 1, &ignored))
            g_ptr_array_set_size (reader->scope->commands, (gint)n_commands);
          return TRUE;
        }
      g_string_append_len (body, reader->at - n - (reader->at[-1] == '\n'), (gssize)n);
      g_string_append_c (body, '\n');
    }
  return plan_shell_fail (&opening, error, "no line with '%s' ends the here-document", delimiter);
}

static gboolean
end_line (Text *text, GError **error)
{
  text->reader.at++;
  text->reader.line++;
  text->is_chained = FALSE;
  while (text->bodies->len > 0)
    {
      g_autofree char *delimiter = g_ptr_array_steal_index (text->bodies, 0);
      if (!read_body (text, delimiter, error))
        return FALSE;
    }
  return TRUE;
}

/* Skips < or > with its target; a file descriptor before it was read as a word. */
static gboolean
skip_redirection (Text *text, GError **error)
{
  PlanShellReader *const reader = &text->reader;
  const gboolean is_document
      = g_str_has_prefix (reader->at, "<<") && !g_str_has_prefix (reader->at, "<<<");
  if (text->words->len > 0 && reader->at[-1] >= '0' && reader->at[-1] <= '9'
      && strlen (text_of (text->words, text->words->len - 1)) == 1)
    g_ptr_array_set_size (text->words, (gint)text->words->len - 1);
  reader->at += strspn (reader->at, "<>");
  reader->at += *reader->at == '&' || *reader->at == '|' || (is_document && *reader->at == '-');
  if (*reader->at == '(') /* process substitution: its commands are read like any others */
    return TRUE;
  skip_blanks (reader);
  g_autoptr (GPtrArray) target = new_words ();
  g_auto (PlanShellBuilder) builder = { 0 };
  plan_shell_builder_init (&builder, target, reader->line, FALSE);
  if (!read_word (reader, &builder, error))
    return FALSE;
  if (is_document && target->len > 0)
    g_ptr_array_add (text->bodies, g_strdup (text_of (target, 0)));
  return TRUE;
}

static gboolean
read_operator (Text *text, GError **error)
{
  PlanShellReader *const reader = &text->reader;
  const char c = *reader->at;
  if (c == '<' || c == '>' || (c == '&' && reader->at[1] == '>'))
    {
      reader->at += c == '&';
      return skip_redirection (text, error);
    }
  const char *const name = text_of (text->words, 0);
  const gboolean is_test = name[0] == '[' || strcmp (name, "test") == 0;
  if (!end_command (text, error))
    return FALSE;
  const gboolean is_double = reader->at[1] == c && (c == '&' || c == '|');
  text->is_chained = is_double && (c == '|' || is_test);
  reader->at += is_double ? 2 : 1;
  return TRUE;
}

/* Reads directives to the batch system in comments: their numbers of nodes and tasks become
 * variables of the job. */
static gboolean
read_comment (Text *text, GError **error)
{
  PlanShellReader *const reader = &text->reader;
  const gsize n = strcspn (reader->at, "\n");
  g_autofree char *line = g_strndup (reader->at, n);
  reader->at += n;
  if (!g_str_has_prefix (line, "#SBATCH"))
    return TRUE;
  g_auto (GStrv) parts = g_strsplit_set (g_strstrip (line + 7), " \t=\r", 3);
  static const char *const names[][2] = { { "-N", "SLURM_NNODES" },
                                          { "--nodes", "SLURM_NNODES" },
                                          { "-n", "SLURM_NTASKS" },
                                          { "--ntasks", "SLURM_NTASKS" },
                                          { "--ntasks-per-node", "SLURM_NTASKS_PER_NODE" },
                                          { "--gpus-per-node", "SLURM_GPUS_ON_NODE" },
                                          { "--gres", "SLURM_GPUS_ON_NODE" } };
  for (guint i = 0; parts[0] && parts[1] && i < G_N_ELEMENTS (names); i++)
    if (strcmp (parts[0], names[i][0]) == 0)
      {
        const char *const colon = strrchr (parts[1], ':'); /* gpu:h100:8 */
        PlanMegatronWord word = { .text = colon ? (char *)colon + 1 : parts[1] };
        g_autoptr (GPtrArray) words = g_ptr_array_new ();
        g_ptr_array_add (words, &word);
        if (!assign (text, names[i][1], words, FALSE, FALSE, error)
            || (i <= 1 && !assign (text, "SLURM_JOB_NUM_NODES", words, FALSE, FALSE, error)))
          return FALSE;
      }
  return TRUE;
}

/* Reads one piece: a blank, a comment, an operator, an assignment or a word. */
static gboolean
read_piece (Text *text, GError **error)
{
  static const char *const declaring[]
      = { "export", "declare", "local", "readonly", "typeset", NULL };
  PlanShellReader *const reader = &text->reader;
  skip_blanks (reader);
  if (!*reader->at)
    return TRUE;
  if (*reader->at == '#')
    return read_comment (text, error);
  if (*reader->at == '\n')
    return end_command (text, error) && end_line (text, error);
  if (strchr (";&|()<>", *reader->at))
    return read_operator (text, error);
  if (reader->at[0] == '\\' && strspn (reader->at + 1, " \t") > 0
      && strchr ("\r\n", reader->at[1 + strspn (reader->at + 1, " \t")]))
    return plan_shell_fail (reader, error,
                            "a blank behind the backslash ends the command here: remove it");
  const char *const name = text_of (text->words, 0);
  const gboolean declares = g_strv_contains (declaring, name);
  if (text->words->len == 0 || declares)
    {
      GError *failure = NULL;
      if (read_assignment (text, strcmp (name, "export") == 0, &failure))
        return TRUE;
      if (failure)
        {
          g_propagate_error (error, failure);
          return FALSE;
        }
    }
  g_auto (PlanShellBuilder) builder = { 0 };
  plan_shell_builder_init (&builder, text->words, reader->line, TRUE);
  if (!read_word (reader, &builder, error))
    return FALSE;
  for (guint i = 0; text->words->len > 0 && i < text->prefix->len; i++) /* NAME=value command */
    variable_of (reader->scope, g_ptr_array_index (text->prefix, i))->is_exported = TRUE;
  g_ptr_array_set_size (text->prefix, 0);
  take_keyword (text);
  return TRUE;
}

static gboolean
read_text (PlanShellScope *scope, const char *at, guint line, guint depth, GError **error)
{
  Text text = { .reader = { .scope = scope, .at = at, .line = line, .depth = depth } };
  text.words = new_words ();
  text.prefix = g_ptr_array_new_with_free_func (g_free);
  text.bodies = g_ptr_array_new_with_free_func (g_free);
  gboolean done = TRUE;
  while (done && *text.reader.at)
    done = read_piece (&text, error);
  done = done && end_command (&text, error);
  g_ptr_array_unref (text.words);
  g_ptr_array_unref (text.prefix);
  g_ptr_array_unref (text.bodies);
  return done;
}

gboolean
plan_megatron_script_read (const char *text, const char *origin, PlanMegatronScript *out_script,
                           GError **error)
{
  g_autoptr (GHashTable) variables = g_hash_table_new_full (
      g_str_hash, g_str_equal, g_free, (GDestroyNotify)plan_shell_variable_free);
  g_autoptr (GPtrArray) commands
      = g_ptr_array_new_with_free_func ((GDestroyNotify)g_ptr_array_unref);
  PlanShellScope scope = { .origin = origin, .variables = variables, .commands = commands };
  if (!read_text (&scope, text, 1, 0, error))
    return FALSE;
  GHashTable *environment = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, g_free);
  GHashTableIter iter;
  gpointer name, value;
  g_hash_table_iter_init (&iter, variables);
  while (g_hash_table_iter_next (&iter, &name, &value))
    {
      const PlanShellVariable *variable = value;
      if ((variable->is_exported || g_str_has_prefix (name, "SLURM_")) && variable->values->len > 0)
        g_hash_table_insert (environment, g_strdup (name),
                             g_strdup (g_ptr_array_index (variable->values, 0)));
    }
  *out_script = (PlanMegatronScript){ g_steal_pointer (&commands), environment };
  return TRUE;
}
