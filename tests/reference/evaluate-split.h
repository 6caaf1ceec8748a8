/* Ranks that have every layer together: evaluators by themselves, up to what they join. */
#pragma once
#include "tests/reference/evaluate-private.h"
G_BEGIN_DECLS

/* What is this one's of the plan's model; elements of its part of a parameter, as a run begins; how
 * ops on its part of the vocabulary work. */
void exec_evaluator_split (ExecEvaluator *self, const PlanModel *whole, guint place);
gboolean exec_evaluator_read (const ExecEvaluator *self, ExecState state, const PlanTensor *part,
                              gint64 layer, guint64 first, guint64 count, float *out,
                              GError **error);
PlanManner exec_evaluator_vocabulary (const ExecEvaluator *self);

/* An array of as many columns as a token's vector, of each part: their sum, in every part; every
 * row from whose it is. */
void exec_evaluator_sum_parts (const ExecEvaluator *self, const ExecArray *parts);
void exec_evaluator_join_rows (const ExecEvaluator *self, const ExecArray *parts);

/* What the loss of a row is made of, from all parts. */
void exec_evaluator_row_stats (ExecEvaluator *self);

/* Of each rank's gradients, summed over micro batches, those of a table that two stages of a
 * pipeline have are added up. */
void exec_evaluator_sum_tables (ExecEvaluator *self);

/* Of what all have whole, gradients are summed where they have seen different things, and counted
 * once in a norm. */
void exec_evaluator_sum_alike (ExecEvaluator *self);
void exec_evaluator_measure (ExecEvaluator *self);

G_END_DECLS
