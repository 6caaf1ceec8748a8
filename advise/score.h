/* AdviseScorer: simulates plans for a search.
 *
 * Plans that comm_unit alone tells apart, and that it makes no difference to, are one simulation.
 * Safe in several threads. */
#pragma once
#include "advise/input.h"
#include "planner/search/search.h"
G_BEGIN_DECLS

typedef struct _AdviseScorer AdviseScorer;

/* The input must outlive it. Scores have as memory what there has to be for a plan to fit with
 * probability `p_fits`, from 0.5 up; at 0.5 that is what it is predicted to take. */
AdviseScorer *advise_scorer_new (const AdviseInput *input, double p_fits);
void advise_scorer_free (AdviseScorer *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (AdviseScorer, advise_scorer_free)

/* PlanScoreFunc and two PlanFloorFunc of a search, of blocks and of plans; `self` is the
 * AdviseScorer. Without an inquiry everything matters. */
gboolean advise_scorer_score (const PlanCase *of, PlanInquiry *inquiry, gpointer self,
                              PlanScore *out_score);
/* The same of a case that needs no more than so much; FALSE, and sooner, where it needs more. */
gboolean advise_scorer_score_within (AdviseScorer *self, const PlanCase *of, guint64 enough_bytes,
                                     PlanScore *out_score);

gint64 advise_scorer_floor (const Plan *resolved, gint64 enough_ns, gpointer self);
gint64 advise_scorer_plan_floor (const Plan *resolved, gint64 enough_ns, gpointer self);

/* Schedules simulated so far. */
guint64 advise_scorer_n_simulated (const AdviseScorer *self);

G_END_DECLS
