/* Where the numbers of a run come from: initial state from a checkpoint, a folder of weights or the
 * seed; training data from files of tokens or synthetic text. The walk and the evaluator both read
 * them here. */
#pragma once
#include "exec/walk/exec.h"
#include <glib.h>
G_BEGIN_DECLS

/* Number of elements of a parameter, not counting rows that pad the vocabulary. */
guint64 exec_source_elements (const PlanModel *model, PlanTensorRole role);

/* Reads the state that the run begins with: `count` elements of a parameter's state from element
 * `first` on. Rows that pad the vocabulary are zero. */
gboolean exec_source_state (const ExecJob *job, ExecState state, PlanTensorRole role, gint64 layer,
                            guint64 first, guint64 count, float *out, GError **error);

/* The index of a batch's first token in the data. A training batch is a step, counted from the
 * start of training over all resumed runs; batches of an evaluation are counted from 0 and read
 * data of their own from its token 0 on. */
gint64 exec_source_first_token (const ExecJob *job, gboolean is_eval, gint64 batch);

/* Reads a sequence that begins at token `first`: its tokens, the next tokens (-1 where the loss is
 * masked), and, unless out_places is NULL, each token's place in its document. Evaluation data is
 * never trained on. */
gboolean exec_source_sequence (const ExecJob *job, gboolean is_eval, gint64 first,
                               gint32 *out_tokens, gint32 *out_targets, gint32 *out_places,
                               GError **error);

/* Whether the job masks the loss of some tokens. */
gboolean exec_source_masks (const ExecJob *job);

/* The learning rate of a step; steps count from 0. */
double exec_source_rate (const ExecJob *job, gint64 step);

G_END_DECLS
