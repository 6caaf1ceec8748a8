/* CliContext: what a command takes on its line. From the same tables come parsing, help, the name
 * that was meant instead of an unknown one, and the shells' completion. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

typedef struct _CliContext CliContext;

/* "fsdplan NAME [OPTION…] ARGUMENTS" and a summary. Without `arguments` there may be none. */
CliContext *cli_context_new (const char *arguments, const char *summary);
void cli_context_free (CliContext *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (CliContext, cli_context_free)

/* Options, behind those there are. The names of their values say how to complete them: MODEL,
 * CLUSTER, FILE, FIELD=VALUE, FIELD[=V1,V2,…], or the values themselves, as in "table|csv|json". */
void cli_context_add (CliContext *self, const GOptionEntry *entries);

/* Sentences for help to end with. */
void cli_context_describe (CliContext *self, const char *text);

/* Parses the command line, and does what --quiet says, which every command has; FALSE with no
 * error: help or completions were asked for and printed. Words that are no options stay in argv. */
gboolean cli_context_parse (CliContext *self, int *argc, char ***argv, GError **error);

/* Before the words of a command line, the last of which is to be completed; in place of options. */
#define CLI_COMPLETE_OPTION "--complete"

/* Prints the words that the last of `words` can become, each with what it means behind a tab; and a
 * line of a tab and "files" where files are among them. */
void cli_complete (const GOptionEntry *entries, guint n_entries, const char *arguments,
                   char *const *words, guint n_words);

/* Prints `word`, if it starts with `typed`. */
void cli_complete_word (const char *typed, const char *word, const char *meaning);

G_END_DECLS
