/* AdviseScorer: simulates plans for a search.
 *
 * Plans that differ only in comm_unit, and for which it makes no difference, are simulated once.
 * Safe in several threads. */
#pragma once
#include "advise/input.h"
#include "planner/search/search.h"
G_BEGIN_DECLS

typedef struct _AdviseScorer AdviseScorer;

/* The input must outlive it. The memory of a score is what a device must have for the plan to fit
 * with probability `p_fits`, which is at least 0.5; at 0.5 it is the predicted memory. */
AdviseScorer *advise_scorer_new (const AdviseInput *input, double p_fits);
void advise_scorer_free (AdviseScorer *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (AdviseScorer, advise_scorer_free)

/* The PlanScoreFunc of a search, and below its two PlanFloorFunc (of blocks and of plans); `self`
 * is the AdviseScorer. Without an inquiry every plan is scored in full. */
gboolean advise_scorer_score (const PlanCase *of, PlanInquiry *inquiry, gpointer self,
                              PlanScore *out_score);
/* Scores a case. It ends early with FALSE where the plan takes longer than `enough_ns` or needs
 * more than `enough_bytes`. */
gboolean advise_scorer_score_within (AdviseScorer *self, const PlanCase *of, gint64 enough_ns,
                                     guint64 enough_bytes, PlanScore *out_score);

gint64 advise_scorer_floor (const Plan *resolved, gint64 enough_ns, gpointer self);
gint64 advise_scorer_plan_floor (const Plan *resolved, gint64 enough_ns, gpointer self);

/* The number of schedules simulated so far. */
guint64 advise_scorer_n_simulated (const AdviseScorer *self);

G_END_DECLS
