/* Where the numbers of a run come from: a checkpoint, a folder of weights or the seed; files of
 * tokens or synthetic text. Walks and the evaluator ask here. */
#pragma once
#include "exec/walk/exec.h"
#include <glib.h>
G_BEGIN_DECLS

/* Elements of a parameter, without rows that pad a vocabulary. */
guint64 exec_source_elements (const PlanModel *model, PlanTensorRole role);

/* What the run begins with: `count` elements of a parameter's state from element `first` on; what
 * pads a vocabulary is zero. */
gboolean exec_source_state (const ExecJob *job, ExecState state, PlanTensorRole role, gint64 layer,
                            guint64 first, guint64 count, float *out, GError **error);

/* The first token of a step, counted from where training began. An evaluation's batches are counted
 * from 0, and always begin at token 0 of its own data. */
gint64 exec_source_first_token (const ExecJob *job, gboolean is_eval, gint64 batch);

/* The tokens from one on, a sequence of them, and next tokens, -1 where none is learned; places in
 * documents, unless that is NULL. Those to evaluate on are never trained on. */
gboolean exec_source_sequence (const ExecJob *job, gboolean is_eval, gint64 first,
                               gint32 *out_tokens, gint32 *out_targets, gint32 *out_places,
                               GError **error);

/* Whether some next tokens are not learned. */
gboolean exec_source_masks (const ExecJob *job);

/* The learning rate of a step, from 0. */
double exec_source_rate (const ExecJob *job, gint64 step);

G_END_DECLS
