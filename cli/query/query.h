/* Questions about a space of plans on the command line: their options, and printing the answers. */
#pragma once
#include "advise/query.h"
#include "cli/io/context.h"
#include "cli/io/output.h"
#include <glib.h>
G_BEGIN_DECLS

/* A question as it is typed. The command fills in its `set`, `db` and `words`. */
typedef struct
{
  AdviseQuestion question;
  char *top, *apart, *front;
} CliQuestion;

void cli_question_clear (CliQuestion *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (CliQuestion, cli_question_clear)

/* Adds --only, --memory, --headroom, --p-fits, --allow, --top, --apart, --front and --no-keep. */
void cli_question_add_options (CliQuestion *self, CliContext *context);

/* Converts the numbers among the options, after parsing. */
gboolean cli_question_read (CliQuestion *self, GError **error);

/* Checks that there is a global batch, which a search needs. */
gboolean cli_query_check (const AdviseInput *input, GError **error);

/* Makes the choice that the options leave. Its searches draw progress on a terminal, and after
 * Ctrl-C they end with what they have found. */
gboolean cli_query_choose (AdviseChoice *self, const AdviseQuestion *question,
                           const AdviseInput *input, GError **error);

/* Makes a choice, finds its answers, and stores them. Fails where there is none. */
gboolean cli_query_ask (AdviseChoice *out_choice, const AdviseQuestion *question,
                        const AdviseInput *input, AdviseQuery *out_query, GError **error);

/* Prints the card of the best, the table of all, reasons, front and counts; or everything as
 * JSON. */
void cli_query_print (const AdviseQuery *self, const AdviseChoice *choice, CliFormat format);

/* The parts of the output for people; there must be an answer. Title, "llama3-8b on 8 x h100 (…)";
 * the card of the best and the reasons for each rank, as rows of CliRow; the table of all; how many
 * plans there were and how they were found. The caller frees. */
char *cli_query_title (const AdviseQuery *self, const AdviseChoice *choice);
GArray *cli_query_card (const AdviseQuery *self, const AdviseChoice *choice);
GArray *cli_query_reasons (const AdviseQuery *self, const AdviseChoice *choice);
CliTable *cli_query_table (const AdviseQuery *self, const AdviseInput *input);
char *cli_query_counts (const AdviseQuery *self, const AdviseChoice *choice);
#define CLI_QUERY_GROUPS "Times of one group are too near to be told apart."

/* Options about sizes, stacks and costs, as typed. */
typedef struct
{
  char *gpus, *tokens, *deadline, *price, *budget, *goodput; /* NULL where absent */
  char **clusters, **stacks;                                 /* NULL: only one */
} CliSizes;

/* Prints the best plan of every size, cluster and stack side by side, and which of them meets the
 * goals. */
gboolean cli_query_sizes (const AdviseQuestion *question, const CliSizes *sizes,
                          const AdviseInput *input, CliFormat format, GError **error);

/* Prints the largest value of "seq" or "mbs" with which a plan fits, and why the next one does
 * not. */
gboolean cli_query_largest (const AdviseQuestion *question, const AdviseInput *input,
                            const char *field, gint64 step, CliFormat format, GError **error);

/* Explains why `mine` is not the best of `choice`, and what one change of it would do. */
gboolean cli_query_explain (const AdviseChoice *choice, const Plan *mine, CliFormat format,
                            GError **error);

/* The clusters of several --cluster options, found before parsing; the stacks of "--set
 * stack=A,B,…", found after it, where that option then sets only the first. NULL where there is
 * only one. */
char **cli_query_clusters (int argc, char **argv);
char **cli_query_stacks (char **set);

/* The command line, quoted for a shell where needed; the caller frees. */
char *cli_query_words (int argc, char **argv);

G_END_DECLS
