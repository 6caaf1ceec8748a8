/* plan_search: the best plans of a space, exactly.
 *
 * Knows no simulator: it is handed a function that scores a plan. A plan is left out only when a
 * rule forbids it, when a lower bound of its memory exceeds what there is, or when one of its time
 * can no longer reach the K best, nor its bounds the front of memory and time. Points are in one
 * order, ties go to the lower one, and the number of threads changes nothing. */
#pragma once
#include "planner/space.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  gint64 time_ns;
  guint64 memory_bytes;
} PlanScore;

/* FALSE where the plan cannot be scored. Called from several threads at once. */
typedef gboolean (*PlanScoreFunc) (const Plan *resolved, gpointer user_data, PlanScore *out_score);

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
  GArray *found;       /* PlanFound: those scored that fit, best first */
  gboolean is_closest; /* the next is there: nothing fits, and this plan wants least */
  PlanFound closest;
  gboolean is_whole; /* nobody stopped it */
} PlanSearchResult;

void plan_search_result_clear (PlanSearchResult *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (PlanSearchResult, plan_search_result_clear)

typedef struct
{
  const PlanModel *model;
  const PlanCluster *cluster;
  const PlanSpace *space;
  guint64 memory_bytes; /* what a plan may take */
  guint best;           /* K: distinct plans wanted */
  guint threads;
  PlanScoreFunc score;
  PlanSearchProgress progress; /* may be NULL */
  gpointer user_data;
} PlanSearch;

void plan_search_run (const PlanSearch *self, PlanSearchResult *out_result);

/* Indices into `found` of those that nothing beats in both memory and time, by time. */
GArray *plan_search_front (const PlanSearchResult *self); /* of guint */

G_END_DECLS
