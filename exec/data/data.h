/* Batches and initial weights: functions of the seed and the global position alone, so that every
 * number of ranks sees the same run. */
#pragma once
#include "planner/model/model.h"
#include <glib.h>
G_BEGIN_DECLS

/* Tokens and next tokens of one sequence of synthetic text: a random walk over the vocabulary that
 * follows a fixed successor four times out of five. */
void exec_data_sequence (guint64 seed, gint64 vocab, gint64 sample, gint64 seq, gint32 *out_tokens,
                         gint32 *out_targets);

/* Which of `n` sequences of a source comes `at`-th in an epoch, where they are shuffled: each once,
 * in an order that is the seed's, the source's and the epoch's own. */
guint64 exec_data_shuffle (guint64 seed, guint64 source, guint64 epoch, guint64 n, guint64 at);

/* Initial values of `count` elements of a parameter, from element `first` on: norms scale by 1,
 * biases add 0, all else is normal with the usual deviation (0.02, residual projections scaled down
 * by depth). `unit` is the layer. */
void exec_data_weights (guint64 seed, const PlanModel *model, PlanTensorRole role, gint64 unit,
                        guint64 first, guint64 count, float *out);

G_END_DECLS
