/* Questions of the command line about a space of plans, and their answers, printed. */
#pragma once
#include "advise/query.h"
#include "cli/io/context.h"
#include "cli/io/output.h"
#include <glib.h>
G_BEGIN_DECLS

/* A question as it is typed; its `set`, `db` and `words` are for the command to fill in. */
typedef struct
{
  AdviseQuestion question;
  char *top, *apart, *front;
} CliQuestion;

void cli_question_clear (CliQuestion *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (CliQuestion, cli_question_clear)

/* Adds --only, --memory, --headroom, --p-fits, --allow, --top, --apart, --front and --no-keep. */
void cli_question_add_options (CliQuestion *self, CliContext *context);

/* Reads the numbers among them, once they are parsed. */
gboolean cli_question_read (CliQuestion *self, GError **error);

/* Whether there is a global batch, which a search needs. */
gboolean cli_query_check (const AdviseInput *input, GError **error);

/* The choice that options leave, whose searches show how far they are on a terminal and end at
 * Ctrl-C with what they have. */
gboolean cli_query_choose (AdviseChoice *self, const AdviseQuestion *question,
                           const AdviseInput *input, GError **error);

/* Its answers, of which there is one at least, in the store. */
gboolean cli_query_ask (AdviseChoice *out_choice, const AdviseQuestion *question,
                        const AdviseInput *input, AdviseQuery *out_query, GError **error);

/* The card of the best, a table of all, words, front and counts; or all of it as JSON. */
void cli_query_print (const AdviseQuery *self, const AdviseChoice *choice, CliFormat format);

/* What is printed for people, piece by piece; there is an answer. "llama3-8b on 8 x h100 (…)"; the
 * best answer, as much as fits a card, and why each is better than the next, as rows of CliRow; a
 * table of all; how they were found. The caller frees. */
char *cli_query_title (const AdviseQuery *self, const AdviseChoice *choice);
GArray *cli_query_card (const AdviseQuery *self, const AdviseChoice *choice);
GArray *cli_query_reasons (const AdviseQuery *self, const AdviseChoice *choice);
CliTable *cli_query_table (const AdviseQuery *self, const AdviseInput *input);
char *cli_query_counts (const AdviseQuery *self, const AdviseChoice *choice);
#define CLI_QUERY_GROUPS "Times of one group are too near to be told apart."

/* What is asked about sizes, stacks and costs, as typed. */
typedef struct
{
  char *gpus, *tokens, *deadline, *price, *budget, *goodput; /* each NULL where absent */
  char **clusters, **stacks;                                 /* where there are several */
} CliSizes;

/* The best plan of every size, cluster and stack side by side, and which of them answers. */
gboolean cli_query_sizes (const AdviseQuestion *question, const CliSizes *sizes,
                          const AdviseInput *input, CliFormat format, GError **error);

/* The largest value of "seq" or "mbs" with which something fits, and that the next does not. */
gboolean cli_query_largest (const AdviseQuestion *question, const AdviseInput *input,
                            const char *field, gint64 step, CliFormat format, GError **error);

/* Why `mine` is not the best, and what one change of it would do. `choice` is what the best is
 * chosen from. */
gboolean cli_query_explain (const AdviseChoice *choice, const Plan *mine, CliFormat format,
                            GError **error);

/* Every --cluster of a command line before it is parsed, and the stacks of "--set stack=A,B,…" once
 * it is, which then sets the first; NULL where there is one. */
char **cli_query_clusters (int argc, char **argv);
char **cli_query_stacks (char **set);

/* The words of a command line, quoted where a shell needs it; the caller frees. */
char *cli_query_words (int argc, char **argv);

G_END_DECLS
