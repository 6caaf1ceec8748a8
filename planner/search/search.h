/* plan_search: the best plans of a space, exactly.
 *
 * Knows no simulator: it is handed functions that score a plan. A plan is left out only when a rule
 * forbids it, when a lower bound of its memory exceeds what there is, or when one of its time can
 * no longer reach the K best, nor, of the plain points, the front of memory and time. Points are in
 * one order, ties go to the lower one, and the number of threads changes no answer. */
#pragma once
#include "planner/case/case.h"
#include "planner/search/space.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  gint64 time_ns;
  guint64 memory_bytes; /* needed to fit with the probability asked for; limits mean this one */
  guint64 device_bytes; /* predicted; the search does not read it */
} PlanScore;

/* One plan that a search wants scored. */
typedef struct _PlanInquiry PlanInquiry;

/* Whether a plan that takes that long can still be an answer. If not, the rest of its score need
 * not be computed. A search for the least memory ignores the time. */
gboolean plan_inquiry_matters (const PlanInquiry *self, gint64 time_ns);

/* Tells the search a lower bound of the memory that the plan needs. FALSE: it can no longer be an
 * answer. */
gboolean plan_inquiry_may_fit (PlanInquiry *self, guint64 memory_bytes);

/* The most memory that a plan which takes that long may need to be an answer. */
guint64 plan_inquiry_enough_bytes (const PlanInquiry *self, gint64 time_ns);

/* FALSE where the plan cannot be scored or can no longer be an answer. Called from several threads
 * at once. */
typedef gboolean (*PlanScoreFunc) (const PlanCase *of, PlanInquiry *inquiry, gpointer user_data,
                                   PlanScore *out_score);

/* A lower bound of the step time of all plans that compute this plan's micro batches. It may stop
 * at any bound above `enough_ns`. Called from several threads at once. */
typedef gint64 (*PlanFloorFunc) (const Plan *resolved, gint64 enough_ns, gpointer user_data);

/* Called now and then from one thread at a time; FALSE stops the search with the best so far. */
typedef gboolean (*PlanSearchProgress) (guint64 done, guint64 total, gpointer user_data);

typedef struct
{
  guint64 point;
  Plan plan; /* resolved */
  PlanScore score;
} PlanFound;

typedef struct
{
  guint64 total, by_rule, by_bound, by_memory,
      by_simulation; /* points, by what excluded or scored them */
  GArray *found;     /* PlanFound: those scored that fit, best first */
  gint64 front_ns;   /* the Pareto front is complete up to this time */
  gboolean is_whole; /* the search was not stopped */
} PlanSearchResult;

void plan_search_result_clear (PlanSearchResult *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (PlanSearchResult, plan_search_result_clear)

typedef struct
{
  const PlanModel *model;
  const PlanCluster *cluster;
  const PlanWorkspaces *asked; /* see PlanCase; may be NULL */
  const PlanSpace *space;
  guint64 memory_bytes; /* what a plan may take */
  guint best;           /* K: distinct plans wanted */
  double apart;         /* plans are distinct when their times differ by more than this share */
  guint threads;
  gboolean least_memory;  /* the best take least: scores have bytes as their time; no front */
  gboolean one_is_enough; /* stop at the first that fits */
  double front;           /* the front goes up to so many times the best's time */
  PlanScoreFunc score;
  PlanFloorFunc floor;         /* may be NULL */
  PlanFloorFunc plan_floor;    /* may be NULL: of a plan; asked once for those of a block that
                                  plan_bound_distil_exchange makes alike */
  PlanSearchProgress progress; /* may be NULL */
  gpointer user_data;
} PlanSearch;

/* For tables of plans in memory (GHashFunc, GEqualFunc); plan_hash names them. */
guint plan_search_key_hash (gconstpointer plan);
gboolean plan_search_key_equal (gconstpointer a, gconstpointer b);

void plan_search_run (const PlanSearch *self, PlanSearchResult *out_result);

/* Whether a time counts beside a lower one, which is below 0 where there is none. */
static inline gboolean
plan_search_is_apart (double apart, gint64 lower_ns, gint64 time_ns)
{
  return lower_ns < 0 || (double)(time_ns - lower_ns) > apart * (double)lower_ns;
}

/* Indices into `found` of those that nothing beats in both memory and time, by time, as far as it
 * is whole. */
GArray *plan_search_front (const PlanSearchResult *self); /* of guint */

G_END_DECLS
