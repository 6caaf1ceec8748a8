/* What the evaluator's files on experts, heads and latent attention offer to each other and to
 * evaluate-network.c. Arrays are named by their fields in ExecEvaluatorLayer and ExecEvaluator. */
#pragma once
#include "planner/schedule/quantizers.h"
#include "tests/reference/evaluate-private.h"
G_BEGIN_DECLS

/* tests/reference/evaluate.c: an element of an array as a float, whatever its format. */
float exec_evaluator_get (ExecArray array, gint64 element);
void exec_evaluator_put (ExecArray array, gint64 element, float value);

/* The bias of a product that has none. */
#define EXEC_NO_BIAS PLAN_N_TENSORS

/* tests/reference/evaluate-network.c: parts of layers of every kind. A weight or gradient is an
 * array without data where the model has no such parameter. */
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

/* tests/reference/evaluate-heads.c: norms of heads and rotary positions. They make `heads` of
 * `qkv`, and backwards dqkv of dheads. */
gboolean exec_evaluator_has_head_norms (const PlanModel *m);
PlanManner exec_evaluator_attention_manner (const ExecEvaluator *self, gint64 layer);
void exec_evaluator_prepare_heads (ExecEvaluator *self, const ExecEvaluatorLayer *l, gint64 layer);
void exec_evaluator_prepare_heads_bwd (ExecEvaluator *self, const ExecEvaluatorLayer *l,
                                       gint64 layer);

/* tests/reference/evaluate-latent.c, for all peers at once: makes `attention` of `normed1`;
 * backwards it makes the gradient of `normed1` from dattention, in the own rows of `branch`. */
void exec_evaluator_take_latent (ExecEvaluator *self, ExecEvaluatorLayer *l);
void exec_evaluator_latent (ExecEvaluator *self, gint64 layer);
void exec_evaluator_latent_bwd (ExecEvaluator *self, gint64 layer);

/* tests/reference/evaluate-experts.c: the trained tensors of a layer; the routers' biases as a run
 * begins with them, and their update once per step from how many tokens of all ranks each expert
 * got. */
guint exec_evaluator_find_trained (const PlanModel *model, gint64 layer, PlanTensor *out_tensors);
gboolean exec_evaluator_init_balance (ExecEvaluator *self, GError **error);
void exec_evaluator_balance (ExecEvaluator *self);

/* A factor [rows, cols] of a layer's product, and whose scale it has if scaling is delayed. */
typedef struct
{
  ExecArray array;
  PlanTensorRole role;
  PlanQuantizer site;
  gint64 layer, rows, cols;
} ExecFactor;

/* tests/reference/evaluate-network.c: a factor of a product in the format of products, transposed
 * if the product sums over the factor's rows: the factor itself if it is so already, else a copy.
 * Of two factors that are read at once `which` is 0 and 1. */
ExecArray exec_evaluator_quantise (ExecEvaluator *self, guint which, const ExecFactor *factor,
                                   gboolean transposes);

/* The same; the factor as it is where nothing is quantised. */
ExecArray exec_evaluator_narrow (ExecEvaluator *self, guint which, const ExecFactor *factor,
                                 gboolean transposes);
/* tests/reference/evaluate-experts.c: the layout of a product whose factors have gone through it;
 * the most rows that experts can have. */
gint64 exec_evaluator_narrow_layout (const ExecEvaluator *self, gint64 layout);
gint64 exec_evaluator_expert_rows (const ExecEvaluator *self);

/* tests/reference/evaluate-expert.c: the bounds of the activation function. */
PlanManner exec_evaluator_activation_manner (const ExecEvaluator *self);

/* tests/reference/evaluate-expert.c: runs an expert, whose rows are the `n` from `first` on, and
 * writes what it makes of them to `drows`; backwards it reads the gradient of that in `drows`, and
 * writes that of the rows there, and that of their probabilities to `row_dprobs`. */
#define EXEC_MAX_EXPERT_PARTS 8
void exec_evaluator_run_expert (ExecEvaluator *self, gint64 layer, gint64 expert, gint64 first,
                                gint64 n);
void exec_evaluator_expert_bwd (ExecEvaluator *self, gint64 layer, gint64 expert, gint64 first,
                                gint64 n);
void exec_evaluator_take_rows_of_parts (ExecEvaluator *self, ExecEvaluatorLayer *l);
void exec_evaluator_take_parts (ExecEvaluator *self);

/* tests/reference/evaluate-expert.c: whether ranks split a parameter of experts; which rank, of
 * those that together have each expert once, is the first to have a piece of it, of those that lie
 * one after the other; which element of the whole parameter an element is. */
gboolean exec_evaluator_splits_experts_of (PlanTensorRole role);
guint exec_evaluator_place_of (const ExecEvaluator *self, PlanTensorRole role, gint64 piece);
guint64 exec_evaluator_whole_element (const ExecEvaluator *self, const PlanTensor *whole,
                                      guint64 element);

/* tests/reference/evaluate-experts.c, for all peers at once: writes to `branch` what experts make
 * of the norm's output, which the residual adds; backwards it reads the gradient of that in `dout`,
 * and writes the gradient of the norm's output to `branch`. */
void exec_evaluator_take_experts (ExecEvaluator *self);
void exec_evaluator_experts (ExecEvaluator *self, gint64 layer);
void exec_evaluator_experts_bwd (ExecEvaluator *self, gint64 layer);

G_END_DECLS
