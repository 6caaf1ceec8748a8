/* Dropout, with random numbers of the evaluator's own making. */
#pragma once
#include "tests/reference/evaluate-private.h"
G_BEGIN_DECLS

/* Where elements of a layer are dropped. The embedding counts as layer -1 and uses the first site.
 */
typedef enum
{
  EXEC_SITE_ATTENTION_BRANCH,
  EXEC_SITE_MLP_BRANCH,
} ExecEvaluatorSite;

/* The key of a layer's random numbers. */
void exec_evaluator_key (const ExecEvaluator *self, gint64 layer, guint32 out[2]);

/* out = add + dropout (in), of the rank's own rows, rounded once; `add` may have no data. */
void exec_evaluator_drop (const ExecEvaluator *self, ExecArray out, ExecArray add, ExecArray in,
                          gint64 layer, ExecEvaluatorSite site);

/* Whether hidden states go through dropout in this pass. */
gboolean exec_evaluator_drops (const ExecEvaluator *self);

G_END_DECLS
