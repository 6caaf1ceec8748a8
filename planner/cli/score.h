/* CliScorer: simulates plans for a search.
 *
 * Plans that comm_unit alone tells apart, and that it makes no difference to, are one simulation.
 * Safe in several threads. */
#pragma once
#include "planner/cli/options.h"
#include "planner/search.h"
G_BEGIN_DECLS

typedef struct _CliScorer CliScorer;

/* The input must outlive it. Scores have as memory what there has to be for a plan to fit with
 * probability `p_fits`, from 0.5 up; at 0.5 that is what it is predicted to take. */
CliScorer *cli_scorer_new (const CliInput *input, double p_fits);
void cli_scorer_free (CliScorer *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (CliScorer, cli_scorer_free)

/* PlanScoreFunc and two PlanFloorFunc of a search, of blocks and of plans; `self` is the CliScorer.
 * Without an inquiry everything matters. */
gboolean cli_scorer_score (const Plan *resolved, PlanInquiry *inquiry, gpointer self,
                           PlanScore *out_score);

/* The same of a plan that needs no more than so much; FALSE, and sooner, where it needs more. */
gboolean cli_scorer_score_within (CliScorer *self, const Plan *resolved, guint64 enough_bytes,
                                  PlanScore *out_score);

gint64 cli_scorer_floor (const Plan *resolved, gint64 enough_ns, gpointer self);
gint64 cli_scorer_plan_floor (const Plan *resolved, gint64 enough_ns, gpointer self);

/* Schedules simulated so far. */
guint64 cli_scorer_n_simulated (const CliScorer *self);

G_END_DECLS
