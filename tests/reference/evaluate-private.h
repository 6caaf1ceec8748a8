/* The evaluator's state, and what its files call in each other. */
#pragma once
#include "exec/walk/exec.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  void *data;
  PlanDtype dtype;
  float *scale; /* where the format has one per tensor */
} ExecArray;

/* What the forward pass of a layer leaves for its backward pass. */
typedef struct
{
  ExecArray x, normed1, stats1, qkv, heads, head_stats, attention, lse;
  ExecArray middle, normed2, stats2, up, activated; /* `middle`: after the attention's residual */
  ExecArray proj, post1, down, post2; /* inputs of norms behind branches, and their statistics */
  /* Of experts: what routing makes, rows sorted by expert, what becomes of them, shared experts. */
  ExecArray probs, saved, chosen, left, rows, scaled, row_probs, rows_up, rows_activated, shared_up,
      shared, gate, ungated;
  gint32 *peer, *token, *expert;       /* of each of n_rows rows, without those that were dropped */
  struct _ExecEvaluatorLatent *latent; /* of latent attention */
  gint64 n_rows;
} ExecEvaluatorLayer;

/* Tensors of a layer, those of all experts as one; where each begins among all parameters. */
typedef struct
{
  guint n;
  PlanTensor tensor[PLAN_N_TENSORS];
  guint64 offset[PLAN_N_TENSORS];
} ExecEvaluatorTensors;

/* What one rank updates of a parameter: its moments in eight bits share a scale. */
typedef struct
{
  PlanTensorRole role;
  gint64 layer;
  guint64 first, at, count; /* in the parameter, and among all */
  float scale[2];           /* of exp_avg, exp_avg_sq */
} ExecEvaluatorPart;

typedef struct _ExecEvaluator ExecEvaluator;
struct _ExecEvaluator
{
  const ExecJob *job;
  const PlanModel *model, *whole; /* this tensor-parallel rank's part of it, and all of it */
  PlanModel split, untied;
  gboolean shares_table; /* pipeline stages have a copy each, as embedding and as output layer */
  guint ep, etp, cp;     /* sizes of groups: of different experts, of parts of one, of sequences */
  guint together;        /* data ranks that are computed side by side: whole groups of each */
  guint tp, tp_rank;     /* size of a tensor-parallel group, and this one's rank in it */
  ExecEvaluator **peer;  /* all computed side by side, itself first: `tp` for each data rank */
  gboolean splits_rows;  /* sequence parallelism: between products each has its own rows */
  gint64 first_row, own_rows;
  guint ranks, inner; /* data ranks; each `inner` of them in a row are a replica */
  guint rank;         /* the one that is computed */
  gint64 gbs, mbs, seq, rows, micro_batches, vocab;
  gint64 whole_seq; /* tokens of a sequence; `seq` is one context-parallel rank's share */
  guint turn;       /* step of ring attention: keys come from the rank that many places before */
  gint64 counted;   /* tokens of this step, or evaluation, so far whose losses count */
  gint64 qkv_width, attention_width, up_width;
  ExecConstants constants;
  PlanDtype compute, main_format, grad, wire, avg, avg_sq;
  /* Formats of products' factors: activations, weights, gradients. */
  PlanDtype product, product_weight, product_grad;
  gboolean reduces_every_micro_batch, is_sgd;
  gboolean reduces_experts; /* gradients of experts, too, are reduced in every micro batch */
  gboolean fuses;   /* products write weight gradients where they are accumulated or reduced from */
  GPtrArray *owned; /* memory of all arrays */
  void *scratch;
  guint64 scratch_bytes;

  /* Parameters lie one after the other. */
  guint n_outer; /* tensors around the layers */
  PlanTensor outer[PLAN_N_TENSORS];
  ExecEvaluatorTensors *in_layer; /* by layer; also where those around them are */
  guint64 parameters;
  ExecArray main_params, weights, exp_avg, exp_avg_sq, raw;
  GArray *parts;                        /* ExecEvaluatorPart, with moments in eight bits; or NULL */
  ExecArray product_raw;                /* weight gradients in fp32, as products add them */
  ExecArray output_raw;                 /* tied: the output layer's part of the table's gradient */
  gint64 chunks;                        /* `loss_chunks`; if several: */
  ExecArray output_product, output_sum; /* a chunk's weight gradient in fp32; their sum */
  gboolean sums_in_place; /* `output_sum` is where it is accumulated or reduced from, if in fp32 */
  ExecArray *kept, *sent; /* per rank: gradients as accumulated; as reduced */
  ExecArray *main_grad;   /* per replica; the first one's becomes the sum over them */

  gint64 *numbers; /* of tokens in the run */
  gint32 *tokens, *targets;
  gint32 *places; /* of tokens in documents, or in cut sequences; NULL: their indices */
  ExecEvaluatorLayer *layers;
  ExecArray x, normed, stats, logits, prob, row_stats; /* of the head */
  ExecArray embedded, embedded_stats; /* what the norm behind the embedding reads */
  ExecArray branch;                   /* what a residual adds */
  ExecArray scales, history, amax;    /* delayed fp8 scaling: of each quantiser */
  gboolean is_eval, is_delayed;       /* `is_delayed`: fp8 scaling is delayed */
  gboolean fuses_norms;               /* norms write the format of products */
  ExecArray factor[3]; /* of a product, in its format; the third is a dummy that nothing reads */
  float factor_scale[3];
  ExecArray dx, dout, ddropped, dbranch, dpost, dshared, dmiddle, dactivated, dup, dattention, dqkv,
      dheads, dlogits;
  PlanDtype router;      /* format of scores */
  ExecArray bias, loads; /* routers' biases and tokens per expert, of all layers */
  ExecArray scores, wide, combined, dprobs, row_dprobs, bias_dprobs, drows, drows_up,
      drows_activated, shared_out, dshared_up, dgate, dungated, row_parts, dprobs_parts;
  ExecArray sums, coef;
};

ExecArray exec_evaluator_array (ExecEvaluator *self, PlanDtype dtype, guint64 count);
ExecArray exec_evaluator_from (ExecArray array, guint64 element);

/* Runs one kernel on operands in the op list's order; scratch is added where the op wants it. */
void exec_evaluator_run (ExecEvaluator *self, PlanOpKind kind, const ExecArray *operands,
                         const gint64 *dims);
void exec_evaluator_run_as (ExecEvaluator *self, PlanOpKind kind, const ExecArray *operands,
                            const gint64 *dims, const PlanManner *manner);
#define EXEC_OPERANDS(...) ((ExecArray[PLAN_MAX_REFS]){ __VA_ARGS__ })

/* First element of a parameter among all of them. */
guint64 exec_evaluator_offset (const ExecEvaluator *self, PlanTensorRole role, gint64 layer);

/* Where the gradient of a parameter goes before any sum. */
ExecArray exec_evaluator_raw (const ExecEvaluator *self, PlanTensorRole role, gint64 layer);

/* tests/reference/evaluate-source.c (test-gradients.c has its own): what a parameter begins with; a
 * sequence by its number in the batch; the rate of a step. */
gboolean exec_evaluator_state (const ExecJob *job, ExecState state, PlanTensorRole role,
                               gint64 layer, guint64 first, guint64 count, float *out,
                               GError **error);
gboolean exec_evaluator_sequence (const ExecJob *job, gboolean is_eval, gint64 batch,
                                  gint64 of_batch, gint32 *out_tokens, gint32 *out_targets,
                                  gint32 *out_places, GError **error);
double exec_evaluator_rate (const ExecJob *job, gint64 step);

/* tests/reference/evaluate-moments.c */
void exec_evaluator_find_parts (ExecEvaluator *self);
gboolean exec_evaluator_init_moments (ExecEvaluator *self, GError **error);
void exec_evaluator_step (ExecEvaluator *self, ExecArray grad);

/* Allocates activations (evaluate-arrays.c); passes of all peers (evaluate-network.c). The backward
 * pass leaves gradients where exec_evaluator_raw says. */
void exec_evaluator_take_activations (ExecEvaluator *self);
void exec_evaluator_forward (ExecEvaluator *self);
void exec_evaluator_backward (ExecEvaluator *self);

G_END_DECLS
