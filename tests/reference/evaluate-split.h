/* Tensor-parallel ranks: an evaluator each, and what they exchange. */
#pragma once
#include "tests/reference/evaluate-private.h"
G_BEGIN_DECLS

/* Sets a rank's part of the plan's model; reads what its part of a parameter begins with; the
 * manner of ops on its part of the vocabulary. */
void exec_evaluator_split (ExecEvaluator *self, const PlanModel *whole, guint tp_rank);
gboolean exec_evaluator_read (const ExecEvaluator *self, ExecState state, const PlanTensor *part,
                              gint64 layer, guint64 first, guint64 count, float *out,
                              GError **error);
PlanManner exec_evaluator_vocabulary (const ExecEvaluator *self);

/* `parts` has an array of `hidden` columns of each rank. sum_parts leaves their sum in all of them,
 * join_rows every row of the rank that computes it. */
void exec_evaluator_sum_parts (const ExecEvaluator *self, const ExecArray *parts);
void exec_evaluator_join_rows (const ExecEvaluator *self, const ExecArray *parts);

/* The statistics of rows that the loss is computed from, over all parts of the vocabulary. */
void exec_evaluator_row_stats (ExecEvaluator *self);

/* Adds up the gradients, in each rank's accumulated ones, of the two copies of an embedding that
 * two stages of a pipeline share. */
void exec_evaluator_sum_tables (ExecEvaluator *self);

/* Of parameters that all ranks have whole: sum_alike adds up gradients where ranks saw other tokens
 * or heads; measure counts them once in the norm. */
void exec_evaluator_sum_alike (ExecEvaluator *self);
void exec_evaluator_measure (ExecEvaluator *self);

G_END_DECLS
