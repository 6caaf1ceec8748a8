/* Context parallelism in the reference: which tokens each rank has, and ring attention. */
#pragma once
#include "tests/reference/evaluate-private.h"
G_BEGIN_DECLS

/* Loads the tokens of `rank` and of its peers, which are computed beside it (ranks of a
 * tensor-parallel group have the same tokens). */
gboolean exec_evaluator_load (ExecEvaluator *self, guint rank, gboolean is_eval, gint64 batch,
                              gint64 micro_batch, GError **error);

/* How many of the loaded tokens have a loss that counts in the mean. */
gint64 exec_evaluator_count (const ExecEvaluator *self);

/* Attention of all peers: reads `heads` and writes `attention`; the backward pass reads
 * `dattention` and writes `dheads`. */
void exec_evaluator_attention (ExecEvaluator *self, gint64 layer);
void exec_evaluator_attention_bwd (ExecEvaluator *self, gint64 layer);

G_END_DECLS
