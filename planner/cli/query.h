/* CliQuery: a question about a space of plans, the search that decides it, and its answers.
 *
 * cli_query_ask -> print, keep -> clear. What a plan is compared with, how the best changes with
 * the cluster, and what the largest size is that fits, are questions of several searches. */
#pragma once
#include "planner/cli/options.h"
#include "planner/cli/output.h"
#include "planner/cli/predict.h"
#include "planner/search.h"
#include <glib.h>
G_BEGIN_DECLS

/* The options as typed; each NULL where absent. */
typedef struct
{
  char **only, **set; /* `set` is borrowed */
  char *memory, *headroom, *p_fits, *allow;
  gint top;
  double apart; /* per cent by which the answers' times differ at least */
  double front; /* per cent of the best's time that the front goes beyond it */
  gboolean keeps_nothing;
  const char *db; /* borrowed: where it is kept */
  char *words;    /* all of them, as the shell takes them */
} CliQuestion;

/* What to choose from, and for what. */
typedef struct
{
  const CliQuestion *question;
  const CliInput *input;          /* `plan` is where every plan begins */
  gboolean pinned[PLAN_N_FIELDS]; /* fields that stay as they are in it */
  guint allow;                    /* mask of PlanAllow */
  guint64 memory_bytes;           /* what a plan may take */
  double p_fits;                  /* the probability with which it is to take no more */
} CliChoice;

/* One answer: a plan, those that cost the same, and how it does. */
typedef struct
{
  const PlanFound *found;
  guint n_equal;
  gboolean is_free[PLAN_N_FIELDS]; /* what differs among those */
  CliPrediction prediction;
  gint64 id; /* in the store; 0: not kept */
} CliAnswer;

typedef struct
{
  PlanSearchResult result;
  GArray *answers;     /* CliAnswer; empty where nothing fits */
  guint64 n_simulated; /* schedules */
  double seconds;
} CliQuery;

void cli_query_clear (CliQuery *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (CliQuery, cli_query_clear)

/* The choice that options leave: what was set, or differs from a plan's defaults, stays. */
gboolean cli_choice_init (CliChoice *self, const CliQuestion *question, const CliInput *input,
                          GError **error);

/* Memory that there has to be for a plan to fit as surely as is asked. */
guint64 cli_choice_needed_bytes (const CliChoice *self, const CliPrediction *prediction);

#define CLI_APART 0.5 /* unless said: predictions are not nearer to what will be measured */

/* How far a search is, on a terminal; FALSE after Ctrl-C (PlanSearchProgress). */
gboolean cli_query_progress (guint64 done, guint64 total, gpointer user_data);

/* Further apart than that, answers are of the front of memory and time: a plan that is so much
 * slower is none unless it takes less. */
#define CLI_NEAR 2.0

/* The plans to choose from. */
PlanSpace *cli_choice_space (const CliChoice *self, GError **error);

/* Searches for the `top` best that differ in cost; after Ctrl-C these are the best so far. That
 * nothing fits is no error here. */
gboolean cli_query_ask (const CliChoice *choice, guint top, CliQuery *out, GError **error);

/* Number of an answer's group, from 1: times nearer to its first's than can be told apart. */
guint cli_query_group (const CliQuery *self, const CliInput *input, guint answer);

/* The best answer; NULL where nothing fits. */
const CliAnswer *cli_query_best (const CliQuery *self);

/* "strategy=optim, mbs=2": where a plan differs from another; the caller frees. */
char *cli_query_differences (const Plan *a, const Plan *b);

/* The largest part of a step that is not arithmetic, if it is a tenth of it. */
const char *cli_query_bound_by (const PlanTrace *trace);

/* The card of the best, a table of all, words, front and counts; or all of it as JSON. */
void cli_query_print (const CliQuery *self, const CliChoice *choice, CliFormat format);

/* The best answer, as much as fits a card; it is to be predicted in full. */
void cli_query_print_card (const CliQuery *self, const CliChoice *choice);

/* Whether any plan fits. */
gboolean cli_query_fits (const CliChoice *choice, gboolean *out_fits, GError **error);

/* The plan that takes least memory, and how much; INFEASIBLE where none is legal. */
gboolean cli_query_least (const CliChoice *choice, Plan *out_plan, guint64 *out_bytes,
                          GError **error);

/* A cluster like this one of so many devices: some of a node's, or whole nodes. */
PlanCluster *cli_query_resize (const PlanCluster *cluster, gint64 devices, GError **error);

/* What is asked about sizes and costs, as typed. */
typedef struct
{
  char *gpus, *tokens, *deadline, *price, *budget, *goodput; /* each NULL where absent */
  char **clusters;                                           /* where there are several */
} CliSizes;

/* The best plan of every size and cluster side by side, and which of them answers. */
gboolean cli_query_sizes (const CliQuestion *question, const CliSizes *sizes, const CliInput *input,
                          CliFormat format, GError **error);

/* The largest value of "seq" or "mbs" with which something fits, and that the next does not. */
gboolean cli_query_largest (const CliQuestion *question, const CliInput *input, const char *field,
                            gint64 step, CliFormat format, GError **error);

/* Says that nothing fits, what comes closest, and what would make it fit; always FALSE. */
gboolean cli_query_refuse (const CliChoice *choice, GError **error);

/* Why `mine` is not the best, and what one change of it would do. `choice` is what the best is
 * chosen from. */
gboolean cli_query_explain (const CliChoice *choice, const Plan *mine, CliFormat format,
                            GError **error);

/* The words of a command line, quoted where a shell needs it; the caller frees. */
char *cli_query_words (int argc, char **argv);

G_END_DECLS
