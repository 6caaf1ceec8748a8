/* SPDX-License-Identifier: Apache-2.0 */
/* Forward and backward pass of one micro batch of one rank, on arrays that are never reused. */
#include "config.h"

#include "planner/schedule/quantizers.h"
#include "tests/reference/evaluate-context.h"
#include "tests/reference/evaluate-dropout.h"
#include "tests/reference/evaluate-experts.h"
#include "tests/reference/evaluate-split.h"

#include <math.h>

#define RUN(kind, operands, ...) \
  exec_evaluator_run (self, PLAN_OP_##kind, operands, (gint64[]){ __VA_ARGS__ })

#define RUN_AS(manner, kind, operands, ...) \
  exec_evaluator_run_as (self, PLAN_OP_##kind, operands, (gint64[]){ __VA_ARGS__ }, manner)

#define EACH EXEC_EACH
#define SUM_PARTS EXEC_SUM_PARTS
#define JOIN_ROWS EXEC_JOIN_ROWS

/* The role of a product whose factors stay in the format of activations. */
#define NO_PRODUCT PLAN_N_TENSORS

static gboolean
has (const ExecEvaluator *self, PlanTensorRole role)
{
  return role != EXEC_NO_BIAS && plan_model_tensor (self->model, role, self->vocab).rows > 0;
}

/* No array where the model has no such parameter. */
static ExecArray
weight_of (const ExecEvaluator *self, PlanTensorRole role, gint64 layer)
{
  if (role == PLAN_TENSOR_OUTPUT && self->model->tied_embeddings)
    role = PLAN_TENSOR_EMBEDDING;
  if (!has (self, role))
    return (ExecArray){ 0 };
  return exec_evaluator_from (self->weights, exec_evaluator_offset (self, role, layer));
}

static ExecArray
raw_of (const ExecEvaluator *self, PlanTensorRole role, gint64 layer)
{
  gboolean is_tied = role == PLAN_TENSOR_OUTPUT && self->model->tied_embeddings;

  return is_tied || has (self, role) ? exec_evaluator_raw (self, role, layer) : (ExecArray){ 0 };
}

static ExecArray
tokens_of (const ExecEvaluator *self)
{
  return (ExecArray){ .data = self->tokens, .dtype = PLAN_DTYPE_I32 };
}

static ExecArray
targets_of (const ExecEvaluator *self)
{
  return (ExecArray){ .data = self->targets, .dtype = PLAN_DTYPE_I32 };
}

static ExecArray
places_of (const ExecEvaluator *self, gint64 first)
{
  return (ExecArray){ .data = self->places != NULL ? self->places + first : NULL,
                      .dtype = PLAN_DTYPE_I32 };
}

static PlanManner
manner_of_rows (const ExecEvaluator *self)
{
  return (PlanManner){ { [PLAN_MANNER_FIRST] = (double)self->first_row } };
}

static gint64
own_size (const ExecEvaluator *self)
{
  return self->own_rows * self->model->hidden;
}

static void
add (ExecEvaluator *self, ExecArray out, ExecArray a, ExecArray b)
{
  RUN (ADD,
       EXEC_OPERANDS (exec_evaluator_own (self, out), exec_evaluator_own (self, a),
                      exec_evaluator_own (self, b)),
       own_size (self));
}

/* out = in + the branch, behind its dropout where there is any. */
static void
add_branch (ExecEvaluator *self, ExecArray out, ExecArray in, gint64 layer, ExecEvaluatorSite site)
{
  if (exec_evaluator_drops (self))
    exec_evaluator_drop (self, out, in, self->branch, layer, site);
  else
    add (self, out, in, self->branch);
}

/* Leaves in `dout` the gradient of a branch, from that of the sum it is added to. */
static void
add_branch_bwd (ExecEvaluator *self, ExecArray dsum, gint64 layer, ExecEvaluatorSite site)
{
  self->dout = exec_evaluator_drops (self) ? self->ddropped : dsum;
  if (exec_evaluator_drops (self))
    exec_evaluator_drop (self, self->dout, (ExecArray){ 0 }, dsum, layer, site);
}

static void
drop_embedding (ExecEvaluator *self, ExecArray x)
{
  if (exec_evaluator_drops (self))
    exec_evaluator_drop (self, x, (ExecArray){ 0 }, x, -1, EXEC_SITE_ATTENTION_BRANCH);
}

/* The element of one quantiser in an array that has one for each quantiser. No array where scaling
 * is not delayed, or the product's operands are not quantised. In latent attention queries are made
 * of what keys and values are made of, which has one scale. */
static ExecArray
site_of (const ExecEvaluator *self, ExecArray sites, PlanTensorRole role, PlanQuantizer site,
         gint64 layer)
{
  if (site == PLAN_QUANTIZER_INPUT && (role == PLAN_TENSOR_Q || role == PLAN_TENSOR_Q_DOWN))
    role = PLAN_TENSOR_KV_DOWN;
  if (sites.data == NULL || role == NO_PRODUCT)
    return (ExecArray){ 0 };
  return exec_evaluator_from (sites, (guint64)layer * plan_quantizers_of_layer (self->model)
                                         + plan_quantizer_of (self->model, role, site));
}

static ExecArray
amax_of (const ExecEvaluator *self, PlanTensorRole role, PlanQuantizer site, gint64 layer)
{
  return self->is_eval ? (ExecArray){ 0 } : site_of (self, self->amax, role, site, layer);
}

PlanManner
exec_evaluator_norm_manner (const ExecEvaluator *self)
{
  return (PlanManner){ { [PLAN_MANNER_ONE_PLUS] = self->model->norm_1p ? 1 : 0 } };
}

/* `feeds`: the role of the product that reads the norm's output. */
static void
norm (ExecEvaluator *self, ExecArray out, ExecArray stats, ExecArray in, PlanTensorRole gain,
      PlanTensorRole bias, PlanTensorRole feeds, gint64 layer)
{
  PlanTensorRole site = self->fuses_norms ? feeds : NO_PRODUCT;
  ExecArray weight = weight_of (self, gain, layer);
  ExecArray scale = site_of (self, self->scales, site, PLAN_QUANTIZER_INPUT, layer);
  ExecArray amax = amax_of (self, site, PLAN_QUANTIZER_INPUT, layer);
  const PlanManner manner = exec_evaluator_norm_manner (self);

  out = exec_evaluator_own (self, out);
  in = exec_evaluator_own (self, in);
  if (self->model->norm == PLAN_NORM_LAYERNORM)
    RUN_AS (&manner, LAYERNORM,
            EXEC_OPERANDS (out, stats, in, weight, weight_of (self, bias, layer), scale, amax),
            self->own_rows, self->model->hidden);
  else
    RUN_AS (&manner, RMSNORM, EXEC_OPERANDS (out, stats, in, weight, scale, amax), self->own_rows,
            self->model->hidden);
}

static void
norm_bwd (ExecEvaluator *self, ExecArray din, ExecArray dout, ExecArray in, ExecArray stats,
          PlanTensorRole gain, PlanTensorRole bias, gint64 layer)
{
  ExecArray weight = weight_of (self, gain, layer), dweight = raw_of (self, gain, layer);
  const PlanManner manner = exec_evaluator_norm_manner (self);

  din = exec_evaluator_own (self, din);
  dout = exec_evaluator_own (self, dout);
  in = exec_evaluator_own (self, in);
  if (self->model->norm == PLAN_NORM_LAYERNORM)
    RUN_AS (&manner, LAYERNORM_BWD,
            EXEC_OPERANDS (din, dweight, raw_of (self, bias, layer), dout, in, weight, stats),
            self->own_rows, self->model->hidden);
  else
    RUN_AS (&manner, RMSNORM_BWD, EXEC_OPERANDS (din, dweight, dout, in, weight, stats),
            self->own_rows, self->model->hidden);
}

static gboolean
is_quantised (const ExecEvaluator *self, PlanTensorRole role)
{
  return self->product != self->compute
         && plan_model_tensor (self->model, role, self->vocab).kind == PLAN_TENSOR_KIND_LINEAR;
}

ExecArray
exec_evaluator_quantise (ExecEvaluator *self, guint which, const ExecFactor *factor,
                         gboolean transposes)
{
  ExecArray out = self->factor[which], other = self->factor[2], in = factor->array;
  ExecArray scale = site_of (self, self->scales, factor->role, factor->site, factor->layer);
  ExecArray amax = amax_of (self, factor->role, factor->site, factor->layer);

  out.dtype = factor->site == PLAN_QUANTIZER_GRADIENT ? self->product_grad
              : factor->site == PLAN_QUANTIZER_WEIGHT ? self->product_weight
                                                      : self->product;
  other.dtype = out.dtype;
  if (in.dtype != out.dtype)
    RUN (QUANTIZE,
         transposes ? EXEC_OPERANDS (other, out, in, scale, amax)
                    : EXEC_OPERANDS (out, other, in, scale, amax),
         factor->rows, factor->cols);
  else if (transposes)
    RUN (TRANSPOSE, EXEC_OPERANDS (out, in), factor->rows, factor->cols);
  else
    return in;
  return out;
}

ExecArray
exec_evaluator_narrow (ExecEvaluator *self, guint which, const ExecFactor *factor,
                       gboolean transposes)
{
  return self->product != self->compute ? exec_evaluator_quantise (self, which, factor, transposes)
                                        : factor->array;
}

/* Whether only the first rank of a tensor-parallel group adds a bias, as the product is summed
 * over the group. */
static gboolean
is_added_once (const ExecEvaluator *self, PlanTensorRole bias)
{
  return self->tp > 1 && (bias == PLAN_TENSOR_PROJ_BIAS || bias == PLAN_TENSOR_DOWN_BIAS);
}

/* Whether a product is not in pieces (tp_overlap): it reads what is quantised once gathered. */
static gboolean
is_whole (const ExecEvaluator *self, PlanTensorRole role, PlanTensorRole bias, gboolean is_back)
{
  return is_quantised (self, role)
         && (role == PLAN_TENSOR_PROJ || role == PLAN_TENSOR_DOWN) == is_back
         && (self->job->of->plan.value[PLAN_COMPUTE] != PLAN_COMPUTE_FP8_DELAYED
             || (is_back && has (self, bias)));
}

/* out = in * weight^T + bias for a weight of [outputs, inputs] */
void
exec_evaluator_linear (ExecEvaluator *self, ExecArray out, ExecArray in, PlanTensorRole role,
                       PlanTensorRole bias, gint64 layer, gint64 outputs, gint64 inputs)
{
  ExecArray weight = weight_of (self, role, layer);

  if (is_quantised (self, role))
    {
      in = exec_evaluator_quantise (
          self, 0, &(ExecFactor){ in, role, PLAN_QUANTIZER_INPUT, layer, self->rows, inputs },
          FALSE);
      weight = exec_evaluator_quantise (
          self, 1, &(ExecFactor){ weight, role, PLAN_QUANTIZER_WEIGHT, layer, outputs, inputs },
          FALSE);
    }
  if (is_added_once (self, bias) && self->tp_rank > 0)
    bias = EXEC_NO_BIAS;
  exec_evaluator_product (self, role,
                          EXEC_OPERANDS (out, in, weight, weight_of (self, bias, layer)), outputs,
                          inputs, 1, is_whole (self, role, bias, FALSE));
}

/* Each product reads its factors quantised along its own inner dimension. */
static void
quantised_bwd (ExecEvaluator *self, ExecArray din, ExecArray dout, ExecArray in,
               PlanTensorRole role, gint64 layer, gint64 outputs, gint64 inputs, gboolean whole)
{
  ExecFactor gradient = { dout, role, PLAN_QUANTIZER_GRADIENT, layer, self->rows, outputs };
  ExecFactor input = { in, role, PLAN_QUANTIZER_INPUT, layer, self->rows, inputs };
  ExecFactor weight
      = { weight_of (self, role, layer), role, PLAN_QUANTIZER_WEIGHT, layer, outputs, inputs };
  ExecArray a = exec_evaluator_quantise (self, 0, &gradient, TRUE);
  ExecArray b = exec_evaluator_quantise (self, 1, &input, TRUE);

  RUN (GEMM, EXEC_OPERANDS (raw_of (self, role, layer), a, b), outputs, inputs, self->rows, 1);
  a = exec_evaluator_quantise (self, 0, &gradient, FALSE);
  b = exec_evaluator_quantise (self, 1, &weight, TRUE);
  exec_evaluator_product (self, role, EXEC_OPERANDS (din, a, b), inputs, outputs, 1, whole);
}

/* dweight = dout^T * in, din = dout * weight, dbias the sums of dout's columns */
void
exec_evaluator_linear_bwd (ExecEvaluator *self, ExecArray din, ExecArray dout, ExecArray in,
                           PlanTensorRole role, PlanTensorRole bias, gint64 layer, gint64 outputs,
                           gint64 inputs)
{
  if (is_quantised (self, role))
    quantised_bwd (self, din, dout, in, role, layer, outputs, inputs,
                   is_whole (self, role, bias, TRUE));
  else
    {
      RUN (GEMM, EXEC_OPERANDS (raw_of (self, role, layer), dout, in), outputs, inputs, self->rows,
           2);
      exec_evaluator_product (self, role, EXEC_OPERANDS (din, dout, weight_of (self, role, layer)),
                              inputs, outputs, 0, FALSE);
    }
  if (has (self, bias) && is_added_once (self, bias) && self->splits_rows && self->tp_rank > 0)
    RUN (ZERO, EXEC_OPERANDS (raw_of (self, bias, layer)), outputs);
  else if (has (self, bias))
    RUN (BIAS_BWD, EXEC_OPERANDS (raw_of (self, bias, layer), dout), self->rows, outputs);
}

static gboolean
is_swiglu (const ExecEvaluator *self)
{
  const PlanModel *m = self->model;

  return m->gated && m->activation == PLAN_ACTIVATION_SILU && m->glu_limit == 0
         && m->glu_offset == 0;
}

void
exec_evaluator_activate (ExecEvaluator *self, ExecArray out, ExecArray in, gint64 rows, gint64 cols)
{
  const PlanModel *m = self->model;
  const PlanManner manner = exec_evaluator_activation_manner (self);

  if (is_swiglu (self))
    RUN (SWIGLU, EXEC_OPERANDS (out, in), rows, cols);
  else
    RUN_AS (&manner, ACTIVATE, EXEC_OPERANDS (out, in), rows, cols, m->activation, m->gated);
}

void
exec_evaluator_activate_bwd (ExecEvaluator *self, ExecArray din, ExecArray dout, ExecArray in,
                             gint64 rows, gint64 cols)
{
  const PlanModel *m = self->model;
  const PlanManner manner = exec_evaluator_activation_manner (self);

  if (is_swiglu (self))
    RUN (SWIGLU_BWD, EXEC_OPERANDS (din, dout, in), rows, cols);
  else
    RUN_AS (&manner, ACTIVATE_BWD, EXEC_OPERANDS (din, dout, in), rows, cols, m->activation,
            m->gated);
}

/* The array to which a branch's last product writes: `in`, if a norm reads it, else `branch`. */
static ExecArray
branch_end (const ExecEvaluator *self, ExecArray in)
{
  return self->model->post_norms ? in : self->branch;
}

static void
post_norm (ExecEvaluator *self, ExecArray in, ExecArray stats, PlanTensorRole gain, gint64 layer)
{
  if (self->model->post_norms)
    norm (self, self->branch, stats, in, gain, EXEC_NO_BIAS, NO_PRODUCT, layer);
}

/* Makes the gradient of the output of a branch's last product from that of the branch. */
static void
post_norm_bwd (ExecEvaluator *self, ExecArray dout, ExecArray in, ExecArray stats,
               PlanTensorRole gain, gint64 layer)
{
  if (self->model->post_norms)
    norm_bwd (self, self->dpost, dout, in, stats, gain, EXEC_NO_BIAS, layer);
}

static ExecArray
branch_gradient (const ExecEvaluator *self)
{
  return self->model->post_norms ? self->dpost : self->dout;
}

/* The MLP: its output is a partial sum of each tensor-parallel rank. */
static void
mlp (ExecEvaluator *self, gint64 i)
{
  const PlanModel *m = self->model;
  const ExecEvaluatorLayer *l = &self->layers[i];

  exec_evaluator_linear (self, l->up, m->shared_norm ? l->normed1 : l->normed2, PLAN_TENSOR_GATE_UP,
                         PLAN_TENSOR_GATE_UP_BIAS, i, self->up_width, m->hidden);
  exec_evaluator_activate (self, l->activated, l->up, self->rows, m->ffn);
  exec_evaluator_linear (self, branch_end (self, l->down), l->activated, PLAN_TENSOR_DOWN,
                         PLAN_TENSOR_DOWN_BIAS, i, m->hidden, m->ffn);
}

/* Leaves the gradient of its input in `branch`, or in `dshared` where another branch reads it too.
 */
static void
mlp_bwd (ExecEvaluator *self, gint64 i)
{
  const PlanModel *m = self->model;
  const ExecEvaluatorLayer *l = &self->layers[i];
  ExecArray dbranch = branch_gradient (self);

  exec_evaluator_linear_bwd (self, self->dactivated, dbranch, l->activated, PLAN_TENSOR_DOWN,
                             PLAN_TENSOR_DOWN_BIAS, i, m->hidden, m->ffn);
  exec_evaluator_activate_bwd (self, self->dup, self->dactivated, l->up, self->rows, m->ffn);
  exec_evaluator_linear_bwd (self, m->shared_norm ? self->dshared : self->branch, self->dup,
                             m->shared_norm ? l->normed1 : l->normed2, PLAN_TENSOR_GATE_UP,
                             PLAN_TENSOR_GATE_UP_BIAS, i, self->up_width, m->hidden);
}

static void
attention_norm (ExecEvaluator *self, gint64 i)
{
  const ExecEvaluatorLayer *l = &self->layers[i];

  norm (self, l->normed1, l->stats1, l->x, PLAN_TENSOR_ATTENTION_NORM,
        PLAN_TENSOR_ATTENTION_NORM_BIAS,
        self->model->kv_lora > 0 ? PLAN_TENSOR_KV_DOWN : PLAN_TENSOR_QKV, i);
}

/* Makes queries, keys and values of the norm's output. */
static void
heads (ExecEvaluator *self, gint64 i)
{
  const ExecEvaluatorLayer *l = &self->layers[i];

  exec_evaluator_linear (self, l->qkv, l->normed1, PLAN_TENSOR_QKV, PLAN_TENSOR_QKV_BIAS, i,
                         self->qkv_width, self->model->hidden);
  exec_evaluator_prepare_heads (self, l, i);
}

/* The projection behind attention: its output is a partial sum of each tensor-parallel rank. */
static void
projection (ExecEvaluator *self, gint64 i)
{
  const PlanModel *m = self->model;
  const ExecEvaluatorLayer *l = &self->layers[i];

  exec_evaluator_linear (self, branch_end (self, l->proj), l->attention, PLAN_TENSOR_PROJ,
                         PLAN_TENSOR_PROJ_BIAS, i, m->hidden, self->attention_width);
}

/* The rest of the attention branch, up to what the experts or the MLP read. */
static void
end_attention_branch (ExecEvaluator *self, gint64 i)
{
  const PlanModel *m = self->model;
  const ExecEvaluatorLayer *l = &self->layers[i];

  post_norm (self, l->proj, l->post1, PLAN_TENSOR_ATTENTION_POST_NORM, i);
  add_branch (self, l->middle, l->x, i, EXEC_SITE_ATTENTION_BRANCH);
  if (!m->shared_norm)
    norm (self, l->normed2, l->stats2, m->parallel ? l->x : l->middle, PLAN_TENSOR_MLP_NORM,
          PLAN_TENSOR_MLP_NORM_BIAS, m->experts > 0 ? NO_PRODUCT : PLAN_TENSOR_GATE_UP, i);
}

static void
forward_layer (ExecEvaluator *self, gint64 i)
{
  const PlanTensorRole post = PLAN_TENSOR_MLP_POST_NORM;

  EACH (self, peer, attention_norm (peer, i));
  JOIN_ROWS (self, peer, peer->layers[i].normed1);
  if (self->model->kv_lora > 0)
    exec_evaluator_latent (self, i);
  else
    {
      EACH (self, peer, heads (peer, i));
      exec_evaluator_attention (self, i);
    }
  EACH (self, peer, projection (peer, i));
  SUM_PARTS (self, peer, branch_end (peer, peer->layers[i].proj));
  EACH (self, peer, end_attention_branch (peer, i));
  if (plan_model_is_moe_layer (self->model, i))
    exec_evaluator_experts (self, i);
  else
    {
      JOIN_ROWS (self, peer, peer->layers[i].normed2);
      EACH (self, peer, mlp (peer, i));
      SUM_PARTS (self, peer, branch_end (peer, peer->layers[i].down));
      EACH (self, peer, post_norm (peer, peer->layers[i].down, peer->layers[i].post2, post, i));
    }
  EACH (self, peer,
        add_branch (peer, i + 1 < self->model->layers ? peer->layers[i + 1].x : peer->x,
                    peer->layers[i].middle, i, EXEC_SITE_MLP_BRANCH));
}

static PlanManner
manner_of_logits (const ExecEvaluator *self)
{
  return (PlanManner){ { [PLAN_MANNER_CAP] = self->model->logit_softcap } };
}

static void
cap_logits (ExecEvaluator *self)
{
  const PlanManner manner = manner_of_logits (self);

  RUN_AS (&manner, SOFTCAP, EXEC_OPERANDS (self->logits), self->rows * self->vocab);
}

static void
scale_embedding (ExecEvaluator *self, ExecArray x)
{
  const gint64 hidden = self->model->hidden;
  const PlanManner manner = { { [PLAN_MANNER_FACTOR] = sqrt ((double)hidden) } };

  if (self->model->embed_scale)
    RUN_AS (&manner, SCALE, EXEC_OPERANDS (exec_evaluator_own (self, x)), own_size (self));
}

/* Chunks of rows as the plan has them: results should not depend on them, but kernels may round
 * differently for other numbers of rows. */
static void
output_layer (ExecEvaluator *self)
{
  const guint64 hidden = (guint64)self->model->hidden, vocab = (guint64)self->vocab;
  const ExecArray weight = weight_of (self, PLAN_TENSOR_OUTPUT, 0);
  const gint64 rows = self->rows / self->chunks;

  for (guint64 row = 0; row < (guint64)self->rows; row += (guint64)rows)
    RUN (GEMM,
         EXEC_OPERANDS (exec_evaluator_from (self->logits, row * vocab),
                        exec_evaluator_from (self->normed, row * hidden), weight),
         rows, self->vocab, self->model->hidden, 1);
  if (self->model->logit_softcap > 0)
    cap_logits (self);
}

static ExecArray
embedding (const ExecEvaluator *self)
{
  return self->model->embed_norm ? self->embedded : self->layers[0].x;
}

static void
embed (ExecEvaluator *self)
{
  const PlanManner manner = exec_evaluator_vocabulary (self);

  RUN_AS (&manner, EMBED,
          EXEC_OPERANDS (embedding (self), weight_of (self, PLAN_TENSOR_EMBEDDING, 0),
                         tokens_of (self)),
          self->rows, self->model->hidden, self->vocab);
}

static void
begin_forward (ExecEvaluator *self)
{
  const PlanModel *m = self->model;
  const PlanManner manner = manner_of_rows (self);
  ExecArray x = embedding (self);

  scale_embedding (self, x);
  if (m->positions == PLAN_POSITIONS_LEARNED)
    RUN_AS (&manner, POSITIONS,
            EXEC_OPERANDS (exec_evaluator_own (self, x), weight_of (self, PLAN_TENSOR_POSITIONS, 0),
                           places_of (self, self->first_row)),
            self->own_rows, m->hidden, self->whole_seq);
  if (m->embed_norm)
    norm (self, self->layers[0].x, self->embedded_stats, x, PLAN_TENSOR_EMBED_NORM,
          PLAN_TENSOR_EMBED_NORM_BIAS, NO_PRODUCT, 0);
  drop_embedding (self, self->layers[0].x);
}

static void
final_norm (ExecEvaluator *self)
{
  norm (self, self->normed, self->stats, self->x, PLAN_TENSOR_FINAL_NORM,
        PLAN_TENSOR_FINAL_NORM_BIAS, NO_PRODUCT, 0);
}

static void
add_loss (ExecEvaluator *self)
{
  const PlanManner manner = exec_evaluator_vocabulary (self);
  const ExecArray stats = self->tp > 1 ? self->row_stats : (ExecArray){ 0 };

  RUN_AS (&manner, CROSS_ENTROPY,
          EXEC_OPERANDS (self->sums, self->prob, self->logits, targets_of (self), stats),
          self->rows, self->vocab);
}

void
exec_evaluator_forward (ExecEvaluator *self)
{
  EACH (self, peer, embed (peer));
  SUM_PARTS (self, peer, embedding (peer));
  EACH (self, peer, begin_forward (peer));
  for (gint64 i = 0; i < self->model->layers; i++)
    forward_layer (self, i);
  EACH (self, peer, final_norm (peer));
  JOIN_ROWS (self, peer, peer->normed);
  EACH (self, peer, output_layer (peer));
  for (guint p = 0; p < self->together * self->tp; p += self->tp)
    exec_evaluator_row_stats (self->peer[p]);
  EACH (self, peer, add_loss (peer));
}

/* Makes the gradient of the attention branch's output from that of what the experts or the MLP
 * read. In parallel blocks the MLP does not read that output, so its gradient is the layer's alone.
 */
static void
begin_attention_branch_bwd (ExecEvaluator *self, gint64 i)
{
  const PlanModel *m = self->model;
  const ExecEvaluatorLayer *l = &self->layers[i];

  if (!m->shared_norm)
    {
      norm_bwd (self, self->dbranch, self->branch, m->parallel ? l->x : l->middle, l->stats2,
                PLAN_TENSOR_MLP_NORM, PLAN_TENSOR_MLP_NORM_BIAS, i);
      add (self, self->dmiddle, self->dx, self->dbranch);
    }
  add_branch_bwd (self, self->model->parallel ? self->dx : self->dmiddle, i,
                  EXEC_SITE_ATTENTION_BRANCH);
  post_norm_bwd (self, self->dout, l->proj, l->post1, PLAN_TENSOR_ATTENTION_POST_NORM, i);
}

static void
projection_bwd (ExecEvaluator *self, gint64 i)
{
  const PlanModel *m = self->model;
  const ExecEvaluatorLayer *l = &self->layers[i];
  ExecArray dbranch = branch_gradient (self);

  exec_evaluator_linear_bwd (self, self->dattention, dbranch, l->attention, PLAN_TENSOR_PROJ,
                             PLAN_TENSOR_PROJ_BIAS, i, m->hidden, self->attention_width);
}

static void
heads_bwd (ExecEvaluator *self, gint64 i)
{
  const ExecEvaluatorLayer *l = &self->layers[i];

  exec_evaluator_prepare_heads_bwd (self, l, i);
  exec_evaluator_linear_bwd (self, self->branch, self->dqkv, l->normed1, PLAN_TENSOR_QKV,
                             PLAN_TENSOR_QKV_BIAS, i, self->qkv_width, self->model->hidden);
}

static void
end_attention_branch_bwd (ExecEvaluator *self, gint64 i)
{
  const PlanModel *m = self->model;
  const ExecEvaluatorLayer *l = &self->layers[i];

  if (m->shared_norm)
    add (self, self->branch, self->dshared, self->branch);
  norm_bwd (self, self->dbranch, self->branch, l->x, l->stats1, PLAN_TENSOR_ATTENTION_NORM,
            PLAN_TENSOR_ATTENTION_NORM_BIAS, i);
  add (self, self->dx, m->shared_norm ? self->dx : self->dmiddle, self->dbranch);
}

/* dx is the gradient of the layer's output on entry, of its input on return. */
static void
backward_layer (ExecEvaluator *self, gint64 i)
{
  const PlanTensorRole post = PLAN_TENSOR_MLP_POST_NORM;

  EACH (self, peer, add_branch_bwd (peer, peer->dx, i, EXEC_SITE_MLP_BRANCH));
  if (plan_model_is_moe_layer (self->model, i))
    exec_evaluator_experts_bwd (self, i);
  else
    {
      EACH (self, peer,
            post_norm_bwd (peer, peer->dout, peer->layers[i].down, peer->layers[i].post2, post, i));
      JOIN_ROWS (self, peer, branch_gradient (peer));
      EACH (self, peer, mlp_bwd (peer, i));
      SUM_PARTS (self, peer, peer->branch);
    }
  EACH (self, peer, begin_attention_branch_bwd (peer, i));
  JOIN_ROWS (self, peer, branch_gradient (peer));
  EACH (self, peer, projection_bwd (peer, i));
  if (self->model->kv_lora > 0)
    exec_evaluator_latent_bwd (self, i);
  else
    {
      exec_evaluator_attention_bwd (self, i);
      EACH (self, peer, heads_bwd (peer, i));
      SUM_PARTS (self, peer, peer->branch);
    }
  EACH (self, peer, end_attention_branch_bwd (peer, i));
}

/* Rows of the table that no sequence reaches get zero. */
static void
positions_bwd (ExecEvaluator *self)
{
  const PlanModel *m = self->model;
  const PlanManner manner = manner_of_rows (self);
  ExecArray dtable = raw_of (self, PLAN_TENSOR_POSITIONS, 0);

  RUN (ZERO, EXEC_OPERANDS (dtable), m->max_seq * m->hidden);
  RUN_AS (&manner, POSITIONS_BWD,
          EXEC_OPERANDS (dtable, exec_evaluator_own (self, self->dx),
                         places_of (self, self->first_row)),
          self->own_rows, m->hidden, self->whole_seq);
}

/* The weight's gradient is the sum over chunks, in their order, in fp32. */
static void
output_chunks_bwd (ExecEvaluator *self)
{
  const guint64 hidden = (guint64)self->model->hidden, vocab = (guint64)self->vocab;
  const ExecArray weight = weight_of (self, PLAN_TENSOR_OUTPUT, 0);
  const ExecArray sum = raw_of (self, PLAN_TENSOR_OUTPUT, 0);
  const gint64 rows = self->rows / self->chunks, size = self->vocab * self->model->hidden;

  gboolean adds = self->sums_in_place && !self->reduces_every_micro_batch;

  for (guint64 row = 0; row < (guint64)self->rows; row += (guint64)rows)
    {
      const ExecArray dlogits = exec_evaluator_from (self->dlogits, row * vocab);
      const ExecArray in = exec_evaluator_from (self->normed, row * hidden);

      RUN (GEMM, EXEC_OPERANDS (exec_evaluator_from (self->branch, row * hidden), dlogits, weight),
           rows, self->model->hidden, self->vocab, 0);
      RUN (GEMM, EXEC_OPERANDS (adds ? self->output_product : sum, dlogits, in), self->vocab,
           self->model->hidden, rows, 2);
      if (adds)
        RUN (ACCUMULATE, EXEC_OPERANDS (sum, self->output_product), size);
      adds = TRUE;
    }
}

static void
begin_backward (ExecEvaluator *self)
{
  const PlanModel *m = self->model;
  const PlanManner vocabulary = exec_evaluator_vocabulary (self);

  RUN_AS (&vocabulary, CROSS_ENTROPY_BWD,
          EXEC_OPERANDS (self->dlogits, self->prob, targets_of (self)), self->rows, self->vocab);
  if (m->logit_softcap > 0)
    {
      const PlanManner manner = manner_of_logits (self);

      RUN_AS (&manner, SOFTCAP_BWD, EXEC_OPERANDS (self->dlogits, self->logits),
              self->rows * self->vocab);
    }
  if (self->chunks == 1)
    exec_evaluator_linear_bwd (self, self->branch, self->dlogits, self->normed, PLAN_TENSOR_OUTPUT,
                               EXEC_NO_BIAS, 0, self->vocab, m->hidden);
  else
    output_chunks_bwd (self);
}

static void
final_norm_bwd (ExecEvaluator *self)
{
  norm_bwd (self, self->dx, self->branch, self->x, self->stats, PLAN_TENSOR_FINAL_NORM,
            PLAN_TENSOR_FINAL_NORM_BIAS, 0);
}

static void
end_backward (ExecEvaluator *self)
{
  const PlanModel *m = self->model;

  drop_embedding (self, self->dx);
  if (m->embed_norm)
    {
      norm_bwd (self, self->dbranch, self->dx, self->embedded, self->embedded_stats,
                PLAN_TENSOR_EMBED_NORM, PLAN_TENSOR_EMBED_NORM_BIAS, 0);
      RUN (CAST,
           EXEC_OPERANDS (exec_evaluator_own (self, self->dx),
                          exec_evaluator_own (self, self->dbranch)),
           own_size (self));
    }
  if (m->positions == PLAN_POSITIONS_LEARNED)
    positions_bwd (self);
  scale_embedding (self, self->dx);
}

static void
embed_bwd (ExecEvaluator *self)
{
  const PlanManner manner = exec_evaluator_vocabulary (self);

  RUN_AS (&manner, EMBED_BWD,
          EXEC_OPERANDS (raw_of (self, PLAN_TENSOR_EMBEDDING, 0), self->dx, tokens_of (self)),
          self->rows, self->model->hidden, self->vocab);
}

void
exec_evaluator_backward (ExecEvaluator *self)
{
  EACH (self, peer, begin_backward (peer));
  SUM_PARTS (self, peer, peer->branch);
  EACH (self, peer, final_norm_bwd (peer));
  for (gint64 i = self->model->layers; i-- > 0;)
    backward_layer (self, i);
  EACH (self, peer, end_backward (peer));
  JOIN_ROWS (self, peer, peer->dx);
  EACH (self, peer, embed_bwd (peer));
}

/* --- for heads and experts ---------------------------------------------------------------- */

ExecArray
exec_evaluator_gradient (const ExecEvaluator *self, PlanTensorRole role, gint64 layer)
{
  return raw_of (self, role, layer);
}

ExecArray
exec_evaluator_weight (const ExecEvaluator *self, PlanTensorRole role, gint64 layer)
{
  return weight_of (self, role, layer);
}
