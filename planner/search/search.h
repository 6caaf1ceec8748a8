/* plan_search: finds the best plans of a space, exactly.
 *
 * It knows no simulator: its caller gives it functions that score a plan. A plan is left out only
 * when a rule forbids it, when a lower bound of its memory exceeds the memory there is, or when a
 * lower bound of its time shows that it can neither be among the K best nor (for plain points, see
 * space.h) on the Pareto front of memory and time. So the answer is exact as far as these bounds
 * hold, which bound.c and advise/floor.c state and tests/prop/prop-search.c checks. Points have a
 * fixed order, ties go to the lower point, and the number of threads changes no answer. */
#pragma once
#include "planner/case/case.h"
#include "planner/search/space.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  gint64 time_ns;
  guint64 memory_bytes; /* needed to fit as probably as was asked for; limits apply to it */
  guint64 device_bytes; /* predicted; the search does not read it */
} PlanScore;

/* A plan while it is being scored, with what the search knows of it. The scoring function asks it
 * whether going on is worthwhile. */
typedef struct _PlanInquiry PlanInquiry;

/* Whether a plan with that step time can still be an answer. If not, the rest of its score need not
 * be computed. A search for the least memory ignores the time. */
gboolean plan_inquiry_matters (const PlanInquiry *self, gint64 time_ns);

/* Tells the search a lower bound of the memory that the plan needs. FALSE: the plan can no longer
 * be an answer. */
gboolean plan_inquiry_may_fit (PlanInquiry *self, guint64 memory_bytes);

/* Tells the search a lower bound of the plan's step time. FALSE: the plan can no longer be an
 * answer. */
gboolean plan_inquiry_may_be_quick (PlanInquiry *self, gint64 time_ns);

/* Tells the search the exact step time, once more work is needed for the plan's memory alone. TRUE:
 * others that may be faster come first. The scoring function then returns FALSE and is called again
 * later, if the plan can still be an answer. */
gboolean plan_inquiry_comes_later (PlanInquiry *self, gint64 time_ns);

/* The most memory with which a plan of that step time can still be an answer. */
guint64 plan_inquiry_enough_bytes (const PlanInquiry *self, gint64 time_ns);

/* Scores a plan. FALSE where the plan cannot be scored or can no longer be an answer. Called from
 * several threads at once. */
typedef gboolean (*PlanScoreFunc) (const PlanCase *of, PlanInquiry *inquiry, gpointer user_data,
                                   PlanScore *out_score);

/* A lower bound of the step time of all plans whose micro batches compute what this plan's do. It
 * may stop as soon as the bound exceeds `enough_ns`. Called from several threads at once. */
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
  GArray *found;     /* PlanFound: the scored plans that fit, best first */
  gint64 worst_ns;   /* the Kth best time: which slower plans are found depends on the threads */
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
  guint64 memory_bytes; /* the memory that a plan may need */
  guint best;           /* K: distinct plans wanted */
  double apart;         /* plans are distinct when their times differ by more than this share */
  guint threads;
  gboolean minimizes_memory; /* look for the least memory: PlanScore.time_ns then holds bytes, and
                                there is no front */
  gboolean one_is_enough;    /* stop at the first plan that fits */
  double front;              /* the front reaches up to this multiple of the best plan's time */
  PlanScoreFunc score;
  PlanFloorFunc floor;      /* may be NULL */
  PlanFloorFunc plan_floor; /* may be NULL: a bound of one plan alone; asked once for all plans of a
                               block that plan_bound_distil_exchange makes equal */
  PlanSearchProgress progress; /* may be NULL */
  gpointer user_data;
} PlanSearch;

/* Hash and equality of plans as keys of hash tables (GHashFunc, GEqualFunc). For a name that lasts
 * use plan_hash. */
guint plan_search_key_hash (gconstpointer plan);
gboolean plan_search_key_equal (gconstpointer a, gconstpointer b);

void plan_search_run (const PlanSearch *self, PlanSearchResult *out_result);

/* Whether a time is distinct from the next lower one (see PlanSearch.apart); `lower_ns` is below 0
 * where there is none. */
static inline gboolean
plan_search_is_apart (double apart, gint64 lower_ns, gint64 time_ns)
{
  return lower_ns < 0 || (double)(time_ns - lower_ns) > apart * (double)lower_ns;
}

/* Indices into `found` of the Pareto front, by time, up to front_ns. */
GArray *plan_search_front (const PlanSearchResult *self); /* of guint */

G_END_DECLS
