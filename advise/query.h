/* AdviseQuery: a question about a space of plans, the search that decides it, and its answers.
 *
 * advise_choice_init -> advise_query_ask -> advise_query_clear. Nothing is printed or stored
 * here. */
#pragma once
#include "advise/input.h"
#include "advise/predict.h"
#include "planner/search/search.h"
#include <glib.h>
G_BEGIN_DECLS

/* The options as typed; each is NULL where absent. */
typedef struct
{
  char **only, **set; /* `set` is borrowed */
  char *memory, *headroom, *p_fits, *allow;
  gint top;
  double apart; /* least difference between the answers' times, in per cent */
  double front; /* by how much slower than the best a plan of the front may be, in per cent */
  gboolean keeps_nothing;
  const char *db; /* borrowed: the store that keeps the answers */
  char *words;    /* all options, as the shell takes them */
} AdviseQuestion;

/* The plans to choose from, and the goal. */
typedef struct
{
  const AdviseQuestion *question;
  const AdviseInput *input;       /* its `plan` is the base of the space */
  gboolean pinned[PLAN_N_FIELDS]; /* fields that keep their value of that plan */
  guint allow;                    /* mask of PlanAllow */
  guint64 memory_bytes;           /* the memory that a plan may need */
  double p_fits;                  /* probability with which it must need no more */
  /* Called with the plans done and their total, and with zeros when the search is over. Returning
   * FALSE ends the search. May be NULL. `user_data` is the search's own. */
  PlanSearchProgress progress;
} AdviseChoice;

/* One answer: a plan, the plans of equal cost, and its prediction. */
typedef struct
{
  PlanFound *found;
  guint n_equal;
  gboolean is_free[PLAN_N_FIELDS]; /* fields in which those plans differ */
  AdvisePrediction prediction;
  gint64 id; /* number in the store; 0: not stored */
} AdviseAnswer;

/* Settings that would make the search slow: they are tried on the plans that it found. */
typedef enum
{
  ADVISE_TRIAL_OVERLAP, /* ep_overlap=on, with and without ep_delay_wgrad */
  ADVISE_TRIAL_GRAPHS,  /* graph_modules: of attention and state spaces; of all that has one size */
  ADVISE_N_TRIALS
} AdviseTrialKind;

typedef struct
{
  guint n_tried;    /* found plans that it was tried on */
  PlanFound faster; /* the fastest of these; of time 0 where none beats the best answer */
} AdviseTrial;

typedef struct
{
  PlanSearchResult result;
  GArray *answers;     /* AdviseAnswer; empty where no plan fits */
  guint64 n_simulated; /* schedules simulated */
  double seconds;
  AdviseTrial trials[ADVISE_N_TRIALS];
} AdviseQuery;

void advise_query_clear (AdviseQuery *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (AdviseQuery, advise_query_clear)

/* Makes the choice that the options leave: fields that were set, or that differ from a plan's
 * defaults, are pinned. */
gboolean advise_choice_init (AdviseChoice *self, const AdviseQuestion *question,
                             const AdviseInput *input, GError **error);

/* The memory that a device must have for the plan to fit with the probability asked for. */
guint64 advise_choice_needed_bytes (const AdviseChoice *self, const AdvisePrediction *prediction);

/* The default of `apart`: predictions are no closer than this to what will be measured. */
#define ADVISE_APART 0.5

/* If `apart` is above this, answers are taken from the Pareto front of memory and time: a plan that
 * is so much slower is an answer only if it takes less memory. */
#define ADVISE_NEAR 2.0

/* The space of plans to choose from. */
PlanSpace *advise_choice_space (const AdviseChoice *self, GError **error);

/* Whether the rates that offloading needs are known, where the space offers it. */
gboolean advise_choice_can_offload (const AdviseChoice *self, const PlanSpace *space,
                                    GError **error);

/* Searches for the `top` best plans that differ in cost; after Ctrl-C, the best so far. That no
 * plan fits is no error here. */
gboolean advise_query_ask (const AdviseChoice *choice, guint top, AdviseQuery *out, GError **error);

/* Runs all trials on the answers and on the plans of the front; not one whose field the question
 * fixes or lists. */
void advise_query_try (const AdviseChoice *choice, AdviseQuery *self);

/* The number of an answer's group, from 1. Answers of a group have times too close to the first
 * one's to be told apart. */
guint advise_query_group (const AdviseQuery *self, const AdviseInput *input, guint answer);

/* The best answer; NULL where no plan fits. */
const AdviseAnswer *advise_query_best (const AdviseQuery *self);

/* How plan `a` differs from `b`, "strategy=optim, mbs=2", for reading; the caller frees. */
char *advise_query_differences (const Plan *a, const Plan *b);

/* Everything that has to be set to turn `b` into `a`, including fields that `a` does without. */
char *advise_query_changes (const Plan *a, const Plan *b);

/* The parallelisms that a plan exchanges activations for, as "tensor+experts". */
const char *advise_exchanges_of (const Plan *plan);

/* The largest part of a step other than compute, if it is above a tenth of the step; else
 * "compute". Exchanges of activations are called by the parallelisms that they are for. */
const char *advise_query_bound_by (const AdvisePrediction *prediction);

/* Whether any plan fits. */
gboolean advise_query_fits (const AdviseChoice *choice, gboolean *out_fits, GError **error);

/* The plan that takes least memory, and its bytes; INFEASIBLE where none is legal. */
gboolean advise_query_least (const AdviseChoice *choice, Plan *out_plan, guint64 *out_bytes,
                             GError **error);

/* Sets an error that says that no plan fits, what comes closest, and what would make it fit. Always
 * FALSE. */
gboolean advise_query_refuse (const AdviseChoice *choice, GError **error);

G_END_DECLS
