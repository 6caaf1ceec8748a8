/* Functions that the evaluator's files of experts, heads and latent attention share with the rest.
 */
#pragma once
#include "tests/reference/evaluate-private.h"
G_BEGIN_DECLS

/* tests/reference/evaluate-network.c: what is shared with layers with experts. No array where the
 * model has no such parameter. */
ExecArray exec_evaluator_weight (const ExecEvaluator *self, PlanTensorRole role, gint64 layer);
ExecArray exec_evaluator_gradient (const ExecEvaluator *self, PlanTensorRole role, gint64 layer);
PlanManner exec_evaluator_norm_manner (const ExecEvaluator *self);
void exec_evaluator_linear (ExecEvaluator *self, ExecArray out, ExecArray in, PlanTensorRole role,
                            PlanTensorRole bias, gint64 layer, gint64 outputs, gint64 inputs);
void exec_evaluator_linear_bwd (ExecEvaluator *self, ExecArray din, ExecArray dout, ExecArray in,
                                PlanTensorRole role, PlanTensorRole bias, gint64 layer,
                                gint64 outputs, gint64 inputs);
void exec_evaluator_activate (ExecEvaluator *self, ExecArray out, ExecArray in, gint64 rows,
                              gint64 cols);
void exec_evaluator_activate_bwd (ExecEvaluator *self, ExecArray din, ExecArray dout, ExecArray in,
                                  gint64 rows, gint64 cols);

/* tests/reference/evaluate-heads.c: norms and positions, from `qkv` to `heads`; from dheads to
 * dqkv. */
gboolean exec_evaluator_has_head_norms (const PlanModel *m);
PlanManner exec_evaluator_attention_manner (const ExecEvaluator *self, gint64 layer);
void exec_evaluator_prepare_heads (ExecEvaluator *self, const ExecEvaluatorLayer *l, gint64 layer);
void exec_evaluator_prepare_heads_bwd (ExecEvaluator *self, const ExecEvaluatorLayer *l,
                                       gint64 layer);

/* tests/reference/evaluate-latent.c, of all peers: from `normed1` to `attention`; from dattention
 * to the norm's gradient, in the own rows of `branch`. */
void exec_evaluator_take_latent (ExecEvaluator *self, ExecEvaluatorLayer *l);
void exec_evaluator_latent (ExecEvaluator *self, gint64 layer);
void exec_evaluator_latent_bwd (ExecEvaluator *self, gint64 layer);

/* tests/reference/evaluate-experts.c: a layer's tensors that are trained; routers' biases as a run
 * begins, and their update once per step, by the tokens of all ranks. */
guint exec_evaluator_find_trained (const PlanModel *model, gint64 layer, PlanTensor *out_tensors);
gboolean exec_evaluator_init_balance (ExecEvaluator *self, GError **error);
void exec_evaluator_balance (ExecEvaluator *self);

/* tests/reference/evaluate-experts.c: how activations are bounded. */
PlanManner exec_evaluator_activation_manner (const ExecEvaluator *self);

/* tests/reference/evaluate-experts.c, of all peers: from a norm's output to what a residual
 * adds, in `branch`; from the gradient of that, `dx`, to the norm's, in `branch`. */
void exec_evaluator_take_experts (ExecEvaluator *self);
void exec_evaluator_experts (ExecEvaluator *self, gint64 layer);
void exec_evaluator_experts_bwd (ExecEvaluator *self, gint64 layer);

G_END_DECLS
