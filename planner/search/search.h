/* plan_search: the best plans of a space, exactly.
 *
 * Knows no simulator: it is handed functions that score a plan. A plan is left out only when a rule
 * forbids it, when a lower bound of its memory exceeds what there is, or when one of its time can
 * no longer reach the K best, nor, of the plain points, the front of memory and time. Points are in
 * one order, ties go to the lower one, and the number of threads changes no answer. */
#pragma once
#include "planner/lower/case.h"
#include "planner/search/space.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  gint64 time_ns;
  guint64 memory_bytes; /* that there have to be: what limits and the front are about */
  guint64 device_bytes; /* that it is predicted to take; nothing here depends on it */
} PlanScore;

/* One plan that a search asks for. */
typedef struct _PlanInquiry PlanInquiry;

/* Whether anything still depends on a plan that takes that long, and as much memory as the search
 * knows that it takes at least: if not, the rest of its score need not be found. Where least memory
 * is looked for, time does not matter. */
gboolean plan_inquiry_matters (const PlanInquiry *self, gint64 time_ns);

/* Tells the search, before the plan is simulated, what memory it takes at least. FALSE: nothing
 * depends on it any more. */
gboolean plan_inquiry_may_fit (PlanInquiry *self, guint64 memory_bytes);

/* Bytes above which nothing depends on a plan that takes that long. */
guint64 plan_inquiry_enough_bytes (const PlanInquiry *self, gint64 time_ns);

/* FALSE where the plan cannot be scored, or no longer matters. Called from several threads at
 * once. */
typedef gboolean (*PlanScoreFunc) (const PlanCase *of, PlanInquiry *inquiry, gpointer user_data,
                                   PlanScore *out_score);

/* Nanoseconds that no plan with these activations can do a step of this plan in less than; any
 * above `enough_ns` will do. Asked once for each block of a space. Called from several threads at
 * once. */
typedef gint64 (*PlanFloorFunc) (const Plan *resolved, gint64 enough_ns, gpointer user_data);

/* Called now and then from one thread at a time; FALSE: stop with the best so far. */
typedef gboolean (*PlanSearchProgress) (guint64 done, guint64 total, gpointer user_data);

typedef struct
{
  guint64 point;
  Plan plan; /* resolved */
  PlanScore score;
} PlanFound;

typedef struct
{
  guint64 total, by_rule, by_bound, by_memory, by_simulation; /* points, by what decided them */
  GArray *found;     /* PlanFound: those scored that fit, best first */
  gint64 front_ns;   /* the front is whole up to this time */
  gboolean is_whole; /* nobody stopped it */
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
