/* AdviseQuery: a question about a space of plans, the search that decides it, and its answers.
 *
 * advise_choice_init -> advise_query_ask -> advise_query_clear. Nothing is printed here, and
 * nothing kept. */
#pragma once
#include "advise/input.h"
#include "advise/predict.h"
#include "planner/search/search.h"
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
} AdviseQuestion;

/* What to choose from, and for what. */
typedef struct
{
  const AdviseQuestion *question;
  const AdviseInput *input;       /* `plan` is where every plan begins */
  gboolean pinned[PLAN_N_FIELDS]; /* fields that stay as they are in it */
  guint allow;                    /* mask of PlanAllow */
  guint64 memory_bytes;           /* what a plan may take */
  double p_fits;                  /* the probability with which it is to take no more */
  /* Is told how far a search is, and at its end of 0 plans; FALSE ends it. May be NULL; what it
   * gets as `user_data` is the search's own. */
  PlanSearchProgress progress;
} AdviseChoice;

/* One answer: a plan, those that cost the same, and how it does. */
typedef struct
{
  PlanFound *found;
  guint n_equal;
  gboolean is_free[PLAN_N_FIELDS]; /* what differs among those */
  AdvisePrediction prediction;
  gint64 id; /* in the store; 0: not kept */
} AdviseAnswer;

typedef struct
{
  PlanSearchResult result;
  GArray *answers;     /* AdviseAnswer; empty where nothing fits */
  guint64 n_simulated; /* schedules */
  double seconds;
} AdviseQuery;

void advise_query_clear (AdviseQuery *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (AdviseQuery, advise_query_clear)

/* The choice that options leave: what was set, or differs from a plan's defaults, stays. */
gboolean advise_choice_init (AdviseChoice *self, const AdviseQuestion *question,
                             const AdviseInput *input, GError **error);

/* Memory that there has to be for a plan to fit as surely as is asked. */
guint64 advise_choice_needed_bytes (const AdviseChoice *self, const AdvisePrediction *prediction);

#define ADVISE_APART 0.5 /* unless said: predictions are not nearer to what will be measured */

/* Further apart than that, answers are of the front of memory and time: a plan that is so much
 * slower is none unless it takes less. */
#define ADVISE_NEAR 2.0

/* The plans to choose from. */
PlanSpace *advise_choice_space (const AdviseChoice *self, GError **error);

/* Searches for the `top` best that differ in cost; after Ctrl-C these are the best so far. That
 * nothing fits is no error here. */
gboolean advise_query_ask (const AdviseChoice *choice, guint top, AdviseQuery *out, GError **error);

/* Number of an answer's group, from 1: times nearer to its first's than can be told apart. */
guint advise_query_group (const AdviseQuery *self, const AdviseInput *input, guint answer);

/* The best answer; NULL where nothing fits. */
const AdviseAnswer *advise_query_best (const AdviseQuery *self);

/* "strategy=optim, mbs=2": where a plan differs from another, for reading; the caller frees. */
char *advise_query_differences (const Plan *a, const Plan *b);

/* All that has to be set to make the first of the second, fields that it does without too. */
char *advise_query_changes (const Plan *a, const Plan *b);

/* The largest part of a step that is not arithmetic, if it is a tenth of it. */
const char *advise_query_bound_by (const PlanTrace *trace);

/* Whether any plan fits. */
gboolean advise_query_fits (const AdviseChoice *choice, gboolean *out_fits, GError **error);

/* The plan that takes least memory, and how much; INFEASIBLE where none is legal. */
gboolean advise_query_least (const AdviseChoice *choice, Plan *out_plan, guint64 *out_bytes,
                             GError **error);

/* Says that nothing fits, what comes closest, and what would make it fit; always FALSE. */
gboolean advise_query_refuse (const AdviseChoice *choice, GError **error);

G_END_DECLS
