/* Questions of the command line about a space of plans, and their answers, printed. */
#pragma once
#include "advise/query.h"
#include "cli/io/output.h"
#include <glib.h>
G_BEGIN_DECLS

/* The choice that options leave, whose searches show how far they are on a terminal and end at
 * Ctrl-C with what they have. */
gboolean cli_query_choose (AdviseChoice *self, const AdviseQuestion *question,
                           const AdviseInput *input, GError **error);

/* The card of the best, a table of all, words, front and counts; or all of it as JSON. */
void cli_query_print (const AdviseQuery *self, const AdviseChoice *choice, CliFormat format);

/* The best answer, as much as fits a card; it is to be predicted in full. */
void cli_query_print_card (const AdviseQuery *self, const AdviseChoice *choice);

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

/* The words of a command line, quoted where a shell needs it; the caller frees. */
char *cli_query_words (int argc, char **argv);

G_END_DECLS
