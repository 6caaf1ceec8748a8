/* Context parallelism: tokens of each rank, ring attention. */
#pragma once
#include "tests/reference/evaluate-private.h"
G_BEGIN_DECLS

/* Loads the tokens of a rank and of those that are computed with it (a tensor-parallel group has
 * the same ones); and counts those whose losses count. */
gboolean exec_evaluator_load (ExecEvaluator *self, guint rank, gboolean is_eval, gint64 batch,
                              gint64 micro_batch, GError **error);
gint64 exec_evaluator_count (const ExecEvaluator *self);

/* Attention of all peers: from `heads` to `attention`; from dattention to dheads. */
void exec_evaluator_attention (ExecEvaluator *self, gint64 layer);
void exec_evaluator_attention_bwd (ExecEvaluator *self, gint64 layer);

G_END_DECLS
