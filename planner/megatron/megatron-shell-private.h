/* What reading commands (megatron-shell.c) and expanding words (megatron-expand.c) share. */
#pragma once
#include "planner/megatron/megatron-shell.h"
#include <glib.h>
G_BEGIN_DECLS

/* No script that is meant to be run comes near these. */
#define PLAN_SHELL_MAX_VALUE_BYTES ((gsize)1 << 20)
#define PLAN_SHELL_MAX_ALL_BYTES ((gsize)1 << 26)
#define PLAN_SHELL_WORD_BYTES ((gsize)64) /* that a word takes beside its text */

typedef struct
{
  GPtrArray *values; /* strings: one, or those of an array */
  char *missing, *condition;
  gboolean is_exported;
} PlanShellVariable;

/* What holds for the whole text, however its parts are nested. */
typedef struct
{
  const char *origin;
  GHashTable *variables; /* name to PlanShellVariable */
  GPtrArray *commands;
  gsize n_bytes; /* of all words and values so far: what keeps doubling variables from exploding */
} PlanShellScope;

/* A place in some text. */
typedef struct
{
  PlanShellScope *scope;
  const char *at;
  guint line;
  guint depth; /* of texts within texts */
} PlanShellReader;

/* The word being put together; finished ones are in `words`. */
typedef struct
{
  GPtrArray *words; /* PlanMegatronWord */
  GString *text;
  char *missing, *condition;
  guint line;
  gboolean is_word; /* there is one, though perhaps an empty one */
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

/* Expands what stands at a `$` or a backtick. */
gboolean plan_shell_expand (PlanShellReader *reader, PlanShellBuilder *builder, gboolean is_quoted,
                            GError **error);

/* Reads to the closing double quote, the opening one having been read. */
gboolean plan_shell_read_quoted (PlanShellReader *reader, PlanShellBuilder *builder,
                                 GError **error);

/* Skips a backslash at the end of a line with that end; FALSE if there is none. */
gboolean plan_shell_skip_continuation (PlanShellReader *reader);

gboolean plan_shell_fail (const PlanShellReader *reader, GError **error, const char *format, ...)
    G_GNUC_PRINTF (3, 4);

/* Length of the identifier at `text`; 0 if there is none. */
gsize plan_shell_name_length (const char *text);

void plan_shell_variable_free (PlanShellVariable *self);

G_END_DECLS
