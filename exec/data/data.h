/* Synthetic batches, the order of shuffled sequences, and initial weights. All are functions of the
 * seed and the global position, so that any number of ranks sees the same run. */
#pragma once
#include "planner/model/model.h"
#include <glib.h>
G_BEGIN_DECLS

/* The tokens and next tokens of one sequence of synthetic text: a random walk over the vocabulary,
 * in which a token's fixed successor follows four times out of five. */
void exec_data_sequence (guint64 seed, gint64 vocab, gint64 sample, gint64 seq, gint32 *out_tokens,
                         gint32 *out_targets);

/* Which of a source's `n` sequences comes at place `at` of a shuffled epoch. Each comes once; the
 * order depends on seed, source and epoch. */
guint64 exec_data_shuffle (guint64 seed, guint64 source, guint64 epoch, guint64 n, guint64 at);

/* Initial values of `count` elements of a parameter, from element `first` on: gains of norms are 1,
 * biases 0, other weights normal with deviation 0.02, scaled down by depth where they write to the
 * residual stream. `unit` is the layer. */
void exec_data_weights (guint64 seed, const PlanModel *model, PlanTensorRole role, gint64 unit,
                        guint64 first, guint64 count, float *out);

G_END_DECLS
