/* Batches and initial weights: functions of the seed and the global position alone, so that every
 * number of ranks sees the same run. */
#pragma once
#include "planner/model.h"
#include <glib.h>
G_BEGIN_DECLS

/* Tokens and next tokens of one sequence of synthetic text: a random walk over the vocabulary that
 * follows a fixed successor four times out of five. */
void exec_data_sequence (guint64 seed, gint64 vocab, gint64 sample, gint64 seq, gint32 *out_tokens,
                         gint32 *out_targets);

/* Initial value of one element of a parameter: norms scale by 1, biases add 0, all else is normal
 * with the usual deviation (0.02, residual projections scaled down by depth). `unit` is the layer.
 */
float exec_data_weight (guint64 seed, const PlanModel *model, PlanTensorRole role, gint64 unit,
                        guint64 element);

G_END_DECLS
