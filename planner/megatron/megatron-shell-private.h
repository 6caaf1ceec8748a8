/* Shared by megatron-shell.c, which reads commands, and megatron-expand.c, which expands words. */
#pragma once
#include "planner/megatron/megatron-shell.h"
#include <glib.h>
G_BEGIN_DECLS

/* Limits that no script meant to be run comes near. */
#define PLAN_SHELL_MAX_VALUE_BYTES ((gsize)1 << 20)
#define PLAN_SHELL_MAX_ALL_BYTES ((gsize)1 << 26)
#define PLAN_SHELL_WORD_BYTES ((gsize)64) /* bytes counted for a word beside its text */

typedef struct
{
  GPtrArray *values; /* strings: a single one, or those of an array */
  char *missing, *condition;
  gboolean is_exported;
} PlanShellVariable;

/* The state of reading the whole text, however its parts are nested. */
typedef struct
{
  const char *origin;
  GHashTable *variables; /* name to PlanShellVariable */
  GPtrArray *commands;
  gsize n_bytes; /* of all words and values so far; limits variables that keep doubling */
} PlanShellScope;

/* A position in some text. */
typedef struct
{
  PlanShellScope *scope;
  const char *at;
  guint line;
  guint depth; /* nesting of texts within texts */
} PlanShellReader;

/* The word being put together; finished words are in `words`. */
typedef struct
{
  GPtrArray *words; /* PlanMegatronWord */
  GString *text;
  char *missing, *condition;
  guint line;
  gboolean is_word; /* there is a word, possibly an empty one */
  gboolean splits;  /* unquoted blanks in values separate words */
} PlanShellBuilder;

void plan_shell_builder_init (PlanShellBuilder *self, GPtrArray *words, guint line,
                              gboolean splits);
void plan_shell_builder_clear (PlanShellBuilder *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (PlanShellBuilder, plan_shell_builder_clear)

/* Moves the word, if there is one, to `words`. */
void plan_shell_builder_end (PlanShellBuilder *self, guint next_line);

gboolean plan_shell_append (PlanShellReader *reader, PlanShellBuilder *builder, const char *text,
                            gsize length, GError **error);

/* Expands what begins with a `$` or a backtick at the reader's position. */
gboolean plan_shell_expand (PlanShellReader *reader, PlanShellBuilder *builder, gboolean is_quoted,
                            GError **error);

/* Reads to the closing double quote, from behind the opening one. */
gboolean plan_shell_read_quoted (PlanShellReader *reader, PlanShellBuilder *builder,
                                 GError **error);

/* Skips a backslash at the end of a line together with the line end; FALSE if there is none. */
gboolean plan_shell_skip_continuation (PlanShellReader *reader);

gboolean plan_shell_fail (const PlanShellReader *reader, GError **error, const char *format, ...)
    G_GNUC_PRINTF (3, 4);

/* The length of the identifier at `text`; 0 if there is none. */
gsize plan_shell_name_length (const char *text);

void plan_shell_variable_free (PlanShellVariable *self);

G_END_DECLS
