/* CliContext: the options and arguments of a command. Parsing, help, suggestions for unknown
 * options and the shells' completion all use the same tables. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

typedef struct _CliContext CliContext;

/* A context for "fsdplan NAME [OPTION…] ARGUMENTS". Without `arguments` the command takes none. */
CliContext *cli_context_new (const char *arguments, const char *summary);
void cli_context_free (CliContext *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (CliContext, cli_context_free)

/* Adds options. The name of an option's value decides how it is completed: MODEL, CLUSTER, FILE,
 * FIELD=VALUE, FIELD[=V1,V2,…], or a list of all values, as "table|csv|json". */
void cli_context_add (CliContext *self, const GOptionEntry *entries);

/* Sets text that help ends with. */
void cli_context_describe (CliContext *self, const char *text);

/* Before anything is read or printed: words are UTF-8, also where the environment names no locale,
 * as in containers and jobs, or one that is not installed. */
void cli_context_take_locale (void);

/* Parses the command line and applies --quiet, which every command has. FALSE without an error:
 * help or completions were asked for and printed. Arguments stay in argv. */
gboolean cli_context_parse (CliContext *self, int *argc, char ***argv, GError **error);

/* Comes before the words of a command line, in place of options: the last of them is to be
 * completed. */
#define CLI_COMPLETE_OPTION "--complete"

/* Prints what the last of `words` can be completed to, one word per line with a tab and its
 * meaning, and a line of a tab and "files" where file names can follow. */
void cli_complete (const GOptionEntry *entries, guint n_entries, const char *arguments,
                   char *const *words, guint n_words);

/* Prints `word` if it begins with `typed`. */
void cli_complete_word (const char *typed, const char *word, const char *meaning);

G_END_DECLS
