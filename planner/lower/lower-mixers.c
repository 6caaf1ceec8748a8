/* SPDX-License-Identifier: Apache-2.0 */
/* What mixes tokens beside plain attention; both passes.
 *
 * Multi-head latent attention: the queries, keys and values of all heads are made from latent
 * vectors of each token; and the attention on them. If layers are split, each rank makes the latent
 * vectors of its own tokens, and of all tokens what its own heads need.
 *
 * The gated delta rule (planner/graph/layer-delta.c), the gate of attention's output, and state
 * spaces (planner/graph/layer-ssm.c). If layers are split, each rank has some of the heads, for all
 * tokens. */
#include "config.h"

#include "planner/lower/lower-emit.h"
#include "planner/lower/lower-layer-private.h"

#define REF(array) plan_lower_ref (lower->array)

static PlanRef
value (const PlanLayer *self, PlanValueId id)
{
  return plan_layer_value (self, id);
}

/* The columns of latent vectors that are the common part of keys. */
static PlanRef
common_of (const PlanModel *m, PlanRef latents, PlanManner *out_manner)
{
  *out_manner = (PlanManner){ { [PLAN_MANNER_PIECE] = (double)m->rope_dim,
                                [PLAN_MANNER_WIDTH] = (double)(m->kv_lora + m->rope_dim) } };
  return plan_lower_at (latents, (guint64)m->kv_lora);
}

/* This rank's tokens of a value that has all ranks' tokens of a tensor-parallel group. */
static PlanRef
own_part (const PlanLayer *self, PlanRef whole, PlanValueId id)
{
  return plan_lower_at (whole, plan_lower_own_part (self->lower, self->net->values[id].elements));
}

/* Copies the common part of the keys of this rank's tokens to where the other ranks' are gathered
 * beside it. */
static void
gather_keys (PlanLayer *self, const PlanNode *node)
{
  PlanManner manner;
  const PlanRef whole = value (self, node->out), own = own_part (self, whole, node->out);
  const PlanRef common = common_of (self->lower->model, value (self, node->in), &manner);
  plan_lower_compute_as (self->lower, PLAN_OP_CAST, PLAN_REFS (own, common), PLAN_DIMS (node->cols),
                         &manner);
  plan_lower_exchange (self->lower, PLAN_OP_ALL_GATHER, PLAN_REFS (whole, own), node->cols);
}

/* Sums its gradient over ranks, each of which has other heads. The latent vector's own gradient is
 * zero so far; the backward pass of its norm adds to it. */
static void
gather_keys_backward (PlanLayer *self, const PlanNode *node)
{
  PlanManner manner;
  const PlanRef whole = plan_layer_gradient (self, node->out);
  const PlanRef own = own_part (self, whole, node->out);
  const PlanRef latents = plan_layer_take_share (self, node->in);
  const PlanRef common = common_of (self->lower->model, latents, &manner);
  plan_lower_exchange (self->lower, PLAN_OP_REDUCE_SCATTER, PLAN_REFS (own, whole), node->cols);
  plan_lower_compute (self->lower, PLAN_OP_ZERO, PLAN_REFS (latents),
                      PLAN_DIMS ((gint64)self->net->values[node->in].elements));
  plan_lower_compute_as (self->lower, PLAN_OP_ACCUMULATE, PLAN_REFS (common, own),
                         PLAN_DIMS (node->cols), &manner);
  plan_layer_drop_gradient (self, node->out);
  plan_layer_add_share (self, node->in, latents);
}

static const gint64 *
rope_dims (const PlanLayer *self, gint64 *out_dims)
{
  const PlanModel *m = self->lower->model;
  out_dims[PLAN_DIM_LATENT_ROPE_rows] = self->sizes->rows;
  out_dims[PLAN_DIM_LATENT_ROPE_seq] = self->lower->plan->value[PLAN_SEQ];
  out_dims[PLAN_DIM_LATENT_ROPE_heads] = self->sizes->heads;
  out_dims[PLAN_DIM_LATENT_ROPE_nope] = m->nope_dim;
  out_dims[PLAN_DIM_LATENT_ROPE_rope] = m->rope_dim;
  out_dims[PLAN_DIM_LATENT_ROPE_v_dim] = m->v_dim;
  /* If tokens are split, the common part of keys has been gathered into a buffer of its own. */
  out_dims[PLAN_DIM_LATENT_ROPE_rank]
      = self->sizes->split_rows < self->sizes->rows ? 0 : m->kv_lora;
  return out_dims;
}

static void
rope (PlanLayer *self, const PlanNode *node)
{
  gint64 dims[PLAN_MAX_DIMS];
  plan_lower_compute (self->lower, PLAN_OP_LATENT_ROPE,
                      PLAN_REFS (value (self, node->in), value (self, node->out),
                                 value (self, node->col), value (self, node->other),
                                 value (self, node->latent), plan_lower_places (self->lower)),
                      rope_dims (self, dims));
}

static void
rope_backward (PlanLayer *self, const PlanNode *node)
{
  gint64 dims[PLAN_MAX_DIMS];
  const PlanRef dkv = plan_layer_take_share (self, node->other);
  const PlanRef dlatent = plan_layer_take_share (self, node->latent);
  plan_lower_compute (self->lower, PLAN_OP_LATENT_ROPE_BWD,
                      PLAN_REFS (plan_layer_gradient (self, node->in), dkv, dlatent,
                                 plan_layer_gradient (self, node->out),
                                 plan_layer_gradient (self, node->col),
                                 plan_lower_places (self->lower)),
                      rope_dims (self, dims));
  plan_layer_drop_gradient (self, node->out);
  plan_layer_drop_gradient (self, node->col);
  plan_layer_add_share (self, node->other, dkv);
  plan_layer_add_share (self, node->latent, dlatent);
}

const gint64 *
plan_lower_latent_dims (const PlanLower *self, gint64 *out_dims)
{
  const PlanModel *m = self->model;
  out_dims[PLAN_DIM_LATENT_ATTENTION_batch] = self->plan->value[PLAN_MBS];
  out_dims[PLAN_DIM_LATENT_ATTENTION_seq] = self->plan->value[PLAN_SEQ];
  out_dims[PLAN_DIM_LATENT_ATTENTION_heads] = self->sizes->heads;
  out_dims[PLAN_DIM_LATENT_ATTENTION_head_dim] = m->nope_dim + m->rope_dim;
  out_dims[PLAN_DIM_LATENT_ATTENTION_v_dim] = m->v_dim;
  return out_dims;
}

static const gint64 *
attention_dims (const PlanLayer *self, gint64 *out_dims)
{
  plan_lower_latent_dims (self->lower, out_dims);
  out_dims[PLAN_DIM_LATENT_ATTENTION_keys] = self->net->keys;
  return out_dims;
}

/* Where random numbers begin; none without their key. */
static PlanRef
start_of (const PlanLayer *self, PlanRef key)
{
  return key.array < 0 ? PLAN_REF_NONE : plan_lower_start (self->lower);
}

static void
attention (PlanLayer *self, const PlanNode *node)
{
  const PlanRef key = plan_lower_attention_key (self->lower, self->unit);
  gint64 dims[PLAN_MAX_DIMS];
  plan_lower_compute (self->lower, PLAN_OP_LATENT_ATTENTION,
                      PLAN_REFS (value (self, node->out), value (self, node->stats),
                                 value (self, node->in), value (self, node->other),
                                 value (self, node->latent), plan_lower_places (self->lower), key,
                                 start_of (self, key)),
                      attention_dims (self, dims));
}

static void
attention_backward (PlanLayer *self, const PlanNode *node)
{
  PlanLower *lower = self->lower;
  const PlanRef key = plan_lower_attention_key (lower, self->unit);
  const PlanRef dq = plan_layer_take_share (self, node->in);
  const PlanRef dk = plan_layer_take_share (self, node->other);
  const PlanRef dv = plan_layer_take_share (self, node->latent);
  gint64 dims[PLAN_MAX_DIMS];
  if (lower->work.attention >= 0)
    plan_lower_alloc (lower, REF (work.attention));
  plan_lower_compute (lower, PLAN_OP_LATENT_ATTENTION_BWD,
                      PLAN_REFS (dq, dk, dv, plan_layer_gradient (self, node->out),
                                 value (self, node->out), value (self, node->stats),
                                 value (self, node->in), value (self, node->other),
                                 value (self, node->latent), plan_lower_places (self->lower), key,
                                 start_of (self, key)),
                      attention_dims (self, dims));
  if (lower->work.attention >= 0)
    plan_lower_free (lower, REF (work.attention));
  plan_layer_drop_gradient (self, node->out);
  plan_layer_add_share (self, node->in, dq);
  plan_layer_add_share (self, node->other, dk);
  plan_layer_add_share (self, node->latent, dv);
}

/* --- the gate of attention's output ---------------------------------------------------------- */

static const gint64 *
split_dims (const PlanLayer *self, const PlanNode *node, gint64 *out_dims)
{
  out_dims[PLAN_DIM_SPLIT_COLS_rows] = node->rows;
  out_dims[PLAN_DIM_SPLIT_COLS_first] = node->cols;
  out_dims[PLAN_DIM_SPLIT_COLS_rest] = self->sizes->heads * self->sizes->head_dim;
  return out_dims;
}

static void
split (PlanLayer *self, const PlanNode *node)
{
  gint64 dims[PLAN_MAX_DIMS];
  plan_lower_compute (
      self->lower, PLAN_OP_SPLIT_COLS,
      PLAN_REFS (value (self, node->out), value (self, node->col), value (self, node->in)),
      split_dims (self, node, dims));
}

static void
split_backward (PlanLayer *self, const PlanNode *node)
{
  const PlanRef din = plan_layer_take_share (self, node->in);
  gint64 dims[PLAN_MAX_DIMS];
  plan_lower_compute (
      self->lower, PLAN_OP_SPLIT_COLS_BWD,
      PLAN_REFS (din, plan_layer_gradient (self, node->out), plan_layer_gradient (self, node->col)),
      split_dims (self, node, dims));
  plan_layer_drop_gradient (self, node->out);
  plan_layer_drop_gradient (self, node->col);
  plan_layer_add_share (self, node->in, din);
}

static void
gate_heads (PlanLayer *self, const PlanNode *node)
{
  plan_lower_compute (
      self->lower, PLAN_OP_GATE_HEADS,
      PLAN_REFS (value (self, node->out), value (self, node->in), value (self, node->other)),
      PLAN_DIMS (node->rows * node->cols));
}

static void
gate_heads_backward (PlanLayer *self, const PlanNode *node)
{
  const PlanRef din = plan_layer_take_share (self, node->in);
  const PlanRef dgate = plan_layer_take_share (self, node->other);
  plan_lower_compute (self->lower, PLAN_OP_GATE_HEADS_BWD,
                      PLAN_REFS (din, dgate, plan_layer_gradient (self, node->out),
                                 value (self, node->in), value (self, node->other)),
                      PLAN_DIMS (node->rows * node->cols));
  plan_layer_drop_gradient (self, node->out);
  plan_layer_add_share (self, node->in, din);
  plan_layer_add_share (self, node->other, dgate);
}

/* --- the gated delta rule -------------------------------------------------------------------- */

static PlanRef
weight (const PlanLayer *self, PlanTensorRole role)
{
  return plan_lower_weight (self->lower, role, self->unit);
}

static void
convolve (PlanLayer *self, const PlanNode *node)
{
  const PlanDelta *d = &self->sizes->delta;
  plan_lower_compute (self->lower, PLAN_OP_DELTA_CONV,
                      PLAN_REFS (value (self, node->out), value (self, node->in),
                                 weight (self, PLAN_TENSOR_DELTA_CONV)),
                      PLAN_DIMS (node->rows, plan_delta_turned (d), d->conv));
}

/* Adds to the gradient of the projection, of which the rest was there before: as if torch.split's
 * backward pass, which copies all of it, were in both ops. */
static void
convolve_backward (PlanLayer *self, const PlanNode *node)
{
  const PlanDelta *d = &self->sizes->delta;
  PlanLower *lower = self->lower;
  const PlanRef dweight = plan_lower_raw_gradient (lower, PLAN_TENSOR_DELTA_CONV, self->unit);
  plan_lower_compute (lower, PLAN_OP_DELTA_CONV_BWD,
                      PLAN_REFS (plan_layer_gradient (self, node->in), dweight,
                                 plan_layer_gradient (self, node->out), value (self, node->in),
                                 weight (self, PLAN_TENSOR_DELTA_CONV)),
                      PLAN_DIMS (node->rows, plan_delta_turned (d), d->conv));
  plan_lower_put_gradient (lower, PLAN_TENSOR_DELTA_CONV, self->unit, FALSE);
  plan_layer_drop_gradient (self, node->out);
}

static const gint64 *
key_dims (const PlanLayer *self, gint64 *out_dims)
{
  const PlanDelta *d = &self->sizes->delta;
  out_dims[PLAN_DIM_DELTA_KEYS_rows] = self->sizes->rows;
  out_dims[PLAN_DIM_DELTA_KEYS_key_heads] = d->key_heads;
  out_dims[PLAN_DIM_DELTA_KEYS_value_heads] = d->value_heads;
  out_dims[PLAN_DIM_DELTA_KEYS_key_dim] = d->key_dim;
  out_dims[PLAN_DIM_DELTA_KEYS_value_dim] = d->value_dim;
  return out_dims;
}

static void
norm_keys (PlanLayer *self, const PlanNode *node)
{
  gint64 dims[PLAN_MAX_DIMS];
  plan_lower_compute (self->lower, PLAN_OP_DELTA_KEYS,
                      PLAN_REFS (value (self, node->out), value (self, node->col),
                                 value (self, node->stats), value (self, node->in)),
                      key_dims (self, dims));
}

static void
norm_keys_backward (PlanLayer *self, const PlanNode *node)
{
  const PlanRef din = plan_layer_take_share (self, node->in);
  gint64 dims[PLAN_MAX_DIMS];
  plan_lower_compute (self->lower, PLAN_OP_DELTA_KEYS_BWD,
                      PLAN_REFS (din, plan_layer_gradient (self, node->out),
                                 value (self, node->col), value (self, node->stats)),
                      key_dims (self, dims));
  plan_layer_drop_gradient (self, node->out);
  plan_layer_add_share (self, node->in, din);
}

static const gint64 *
gate_dims (const PlanLayer *self, gint64 *out_dims)
{
  const PlanDelta *d = &self->sizes->delta;
  out_dims[PLAN_DIM_DELTA_GATES_rows] = self->sizes->rows;
  out_dims[PLAN_DIM_DELTA_GATES_heads] = d->value_heads;
  out_dims[PLAN_DIM_DELTA_GATES_value_dim] = d->value_dim;
  out_dims[PLAN_DIM_DELTA_GATES_before] = plan_delta_turned (d);
  return out_dims;
}

/* The columns of the projection behind queries, keys and values. In memory they are parts of rows;
 * where they begin in the first row does for what an op moves. */
static PlanRef
behind (const PlanLayer *self, PlanRef projection, gint64 further)
{
  const PlanDelta *d = &self->sizes->delta;
  const gint64 rows = self->sizes->rows;
  return plan_lower_at (projection, (guint64)(rows * (plan_delta_turned (d) + further)));
}

static void
make_gates (PlanLayer *self, const PlanNode *node)
{
  gint64 dims[PLAN_MAX_DIMS];
  plan_lower_compute (
      self->lower, PLAN_OP_DELTA_GATES,
      PLAN_REFS (value (self, node->out), value (self, node->col), value (self, node->stats),
                 behind (self, value (self, node->in), 0), weight (self, PLAN_TENSOR_DELTA_STEP),
                 weight (self, PLAN_TENSOR_DELTA_DECAY)),
      gate_dims (self, dims));
}

static void
make_gates_backward (PlanLayer *self, const PlanNode *node)
{
  static const PlanTensorRole roles[] = { PLAN_TENSOR_DELTA_STEP, PLAN_TENSOR_DELTA_DECAY };
  PlanLower *lower = self->lower;
  const PlanRef din = plan_layer_take_share (self, node->in);
  PlanRef raw[G_N_ELEMENTS (roles)];
  gint64 dims[PLAN_MAX_DIMS];
  for (guint i = 0; i < G_N_ELEMENTS (roles); i++)
    raw[i] = plan_lower_raw_gradient (lower, roles[i], self->unit);
  plan_lower_compute (
      lower, PLAN_OP_DELTA_GATES_BWD,
      PLAN_REFS (din, raw[0], raw[1], plan_layer_gradient (self, node->out),
                 plan_layer_gradient (self, node->col), plan_layer_gradient (self, node->stats),
                 behind (self, value (self, node->in), plan_delta_values (&self->sizes->delta)),
                 value (self, node->stats), weight (self, roles[0]), weight (self, roles[1])),
      gate_dims (self, dims));
  for (guint i = 0; i < G_N_ELEMENTS (roles); i++)
    plan_lower_put_gradient (lower, roles[i], self->unit, FALSE);
  plan_layer_drop_gradient (self, node->out);
  plan_layer_drop_gradient (self, node->col);
  plan_layer_drop_gradient (self, node->stats);
  plan_layer_add_share (self, node->in, din);
}

static const gint64 *
rule_dims (const PlanLayer *self, gint64 *out_dims)
{
  const PlanDelta *d = &self->sizes->delta;
  const gint64 *plan = self->lower->plan->value;
  out_dims[PLAN_DIM_DELTA_RULE_batch] = plan[PLAN_MBS];
  out_dims[PLAN_DIM_DELTA_RULE_seq] = plan[PLAN_SEQ] / plan[PLAN_CP];
  out_dims[PLAN_DIM_DELTA_RULE_heads] = d->value_heads;
  out_dims[PLAN_DIM_DELTA_RULE_key_dim] = d->key_dim;
  out_dims[PLAN_DIM_DELTA_RULE_value_dim] = d->value_dim;
  return out_dims;
}

static void
rule (PlanLayer *self, const PlanNode *node)
{
  gint64 dims[PLAN_MAX_DIMS];
  plan_lower_compute (self->lower, PLAN_OP_DELTA_RULE,
                      PLAN_REFS (value (self, node->out), value (self, node->stats),
                                 value (self, node->in), value (self, node->other),
                                 value (self, node->latent), value (self, node->col)),
                      rule_dims (self, dims));
}

static void
rule_backward (PlanLayer *self, const PlanNode *node)
{
  const PlanRef dqkv = plan_layer_take_share (self, node->in);
  const PlanRef ddecay = plan_layer_take_share (self, node->other);
  const PlanRef dstrength = plan_layer_take_share (self, node->latent);
  gint64 dims[PLAN_MAX_DIMS];
  plan_layer_take (self, PLAN_VALUE_MIXER_WORK_BACK);
  plan_lower_compute (self->lower, PLAN_OP_DELTA_RULE_BWD,
                      PLAN_REFS (dqkv, ddecay, dstrength, plan_layer_gradient (self, node->out),
                                 value (self, node->stats), value (self, node->in),
                                 value (self, node->other), value (self, node->latent),
                                 value (self, PLAN_VALUE_MIXER_WORK_BACK)),
                      rule_dims (self, dims));
  plan_layer_give (self, plan_value_bit (PLAN_VALUE_MIXER_WORK_BACK));
  plan_layer_drop_gradient (self, node->out);
  plan_layer_add_share (self, node->in, dqkv);
  plan_layer_add_share (self, node->other, ddecay);
  plan_layer_add_share (self, node->latent, dstrength);
}

static void
norm_output (PlanLayer *self, const PlanNode *node)
{
  const PlanDelta *d = &self->sizes->delta;
  plan_lower_compute (self->lower, PLAN_OP_DELTA_NORM,
                      PLAN_REFS (value (self, node->out), value (self, node->col),
                                 value (self, node->stats), value (self, node->in),
                                 value (self, node->other), weight (self, PLAN_TENSOR_DELTA_NORM)),
                      PLAN_DIMS (node->rows, d->value_heads, d->value_dim));
}

static void
norm_output_backward (PlanLayer *self, const PlanNode *node)
{
  const PlanDelta *d = &self->sizes->delta;
  PlanLower *lower = self->lower;
  const PlanRef din = plan_layer_take_share (self, node->in);
  const PlanRef dgate = plan_layer_take_share (self, node->other);
  const PlanRef dweight = plan_lower_raw_gradient (lower, PLAN_TENSOR_DELTA_NORM, self->unit);
  plan_lower_compute (lower, PLAN_OP_DELTA_NORM_BWD,
                      PLAN_REFS (din, dgate, dweight, plan_layer_gradient (self, node->out),
                                 value (self, node->in), value (self, node->other),
                                 value (self, node->col), value (self, node->stats),
                                 weight (self, PLAN_TENSOR_DELTA_NORM)),
                      PLAN_DIMS (node->rows, d->value_heads, d->value_dim));
  plan_lower_put_gradient (lower, PLAN_TENSOR_DELTA_NORM, self->unit, FALSE);
  plan_layer_drop_gradient (self, node->out);
  plan_layer_add_share (self, node->in, din);
  plan_layer_add_share (self, node->other, dgate);
}

/* --- state spaces ---------------------------------------------------------------------------- */

/* The projection's columns are z, then x, B and C, then steps. In memory they are parts of rows;
 * where they would begin if all rows' came first does for what an op moves. */
static PlanRef
convolved_part (const PlanLayer *self, PlanRef projection)
{
  return plan_lower_at (projection,
                        (guint64)(self->sizes->rows * plan_ssm_inner (&self->sizes->ssm)));
}

static void
convolve_ssm (PlanLayer *self, const PlanNode *node)
{
  const PlanSsm *m = &self->sizes->ssm;
  plan_lower_compute (
      self->lower, PLAN_OP_SSM_CONV,
      PLAN_REFS (value (self, node->out), convolved_part (self, value (self, node->in)),
                 weight (self, PLAN_TENSOR_SSM_CONV), weight (self, PLAN_TENSOR_SSM_CONV_BIAS)),
      PLAN_DIMS (node->rows, plan_ssm_turned (m), m->conv));
}

static void
convolve_ssm_backward (PlanLayer *self, const PlanNode *node)
{
  const PlanSsm *m = &self->sizes->ssm;
  PlanLower *lower = self->lower;
  const PlanRef dweight = plan_lower_raw_gradient (lower, PLAN_TENSOR_SSM_CONV, self->unit);
  const PlanRef dbias = plan_lower_raw_gradient (lower, PLAN_TENSOR_SSM_CONV_BIAS, self->unit);
  plan_lower_compute (lower, PLAN_OP_SSM_CONV_BWD,
                      PLAN_REFS (convolved_part (self, plan_layer_gradient (self, node->in)),
                                 dweight, dbias, plan_layer_gradient (self, node->out),
                                 convolved_part (self, value (self, node->in)),
                                 weight (self, PLAN_TENSOR_SSM_CONV),
                                 weight (self, PLAN_TENSOR_SSM_CONV_BIAS)),
                      PLAN_DIMS (node->rows, plan_ssm_turned (m), m->conv));
  plan_lower_put_gradient (lower, PLAN_TENSOR_SSM_CONV, self->unit, FALSE);
  plan_lower_put_gradient (lower, PLAN_TENSOR_SSM_CONV_BIAS, self->unit, FALSE);
  plan_layer_drop_gradient (self, node->out);
}

static const gint64 *
scan_dims (const PlanLayer *self, PlanValueId work, gint64 *out_dims)
{
  const PlanSsm *m = &self->sizes->ssm;
  out_dims[PLAN_DIM_SSM_SCAN_batch] = self->lower->plan->value[PLAN_MBS];
  out_dims[PLAN_DIM_SSM_SCAN_seq] = self->lower->plan->value[PLAN_SEQ];
  out_dims[PLAN_DIM_SSM_SCAN_heads] = m->heads;
  out_dims[PLAN_DIM_SSM_SCAN_head_dim] = m->head_dim;
  out_dims[PLAN_DIM_SSM_SCAN_groups] = m->groups;
  out_dims[PLAN_DIM_SSM_SCAN_state] = m->state;
  out_dims[PLAN_DIM_SSM_SCAN_room] = (gint64)self->net->values[work].elements;
  return out_dims;
}

static void
scan (PlanLayer *self, const PlanNode *node)
{
  gint64 dims[PLAN_MAX_DIMS];
  plan_lower_compute (self->lower, PLAN_OP_SSM_SCAN,
                      PLAN_REFS (value (self, node->out), value (self, node->stats),
                                 value (self, node->in), value (self, node->other),
                                 weight (self, PLAN_TENSOR_SSM_STEP),
                                 weight (self, PLAN_TENSOR_SSM_DECAY),
                                 weight (self, PLAN_TENSOR_SSM_SKIP), value (self, node->col)),
                      scan_dims (self, node->col, dims));
}

static void
scan_backward (PlanLayer *self, const PlanNode *node)
{
  static const PlanTensorRole roles[]
      = { PLAN_TENSOR_SSM_STEP, PLAN_TENSOR_SSM_DECAY, PLAN_TENSOR_SSM_SKIP };
  PlanLower *lower = self->lower;
  const PlanRef din = plan_layer_take_share (self, node->in);
  const PlanRef dgate = plan_layer_take_share (self, node->other);
  PlanRef raw[G_N_ELEMENTS (roles)];
  gint64 dims[PLAN_MAX_DIMS];
  for (guint i = 0; i < G_N_ELEMENTS (roles); i++)
    raw[i] = plan_lower_raw_gradient (lower, roles[i], self->unit);
  plan_layer_take (self, PLAN_VALUE_MIXER_WORK_BACK);
  plan_lower_compute (lower, PLAN_OP_SSM_SCAN_BWD,
                      PLAN_REFS (din, dgate, raw[0], raw[1], raw[2],
                                 plan_layer_gradient (self, node->out), value (self, node->stats),
                                 value (self, node->in), value (self, node->other),
                                 weight (self, roles[0]), weight (self, roles[1]),
                                 weight (self, roles[2]), value (self, PLAN_VALUE_MIXER_WORK_BACK)),
                      scan_dims (self, PLAN_VALUE_MIXER_WORK_BACK, dims));
  plan_layer_give (self, plan_value_bit (PLAN_VALUE_MIXER_WORK_BACK));
  for (guint i = 0; i < G_N_ELEMENTS (roles); i++)
    plan_lower_put_gradient (lower, roles[i], self->unit, FALSE);
  plan_layer_drop_gradient (self, node->out);
  plan_layer_add_share (self, node->in, din);
  plan_layer_add_share (self, node->other, dgate);
}

static const gint64 *
group_dims (const PlanLayer *self, gint64 *out_dims)
{
  const PlanSsm *m = &self->sizes->ssm;
  out_dims[PLAN_DIM_GROUP_NORM_rows] = self->sizes->rows;
  out_dims[PLAN_DIM_GROUP_NORM_groups] = m->groups;
  out_dims[PLAN_DIM_GROUP_NORM_dim] = plan_ssm_inner (m) / m->groups;
  return out_dims;
}

static void
norm_groups (PlanLayer *self, const PlanNode *node)
{
  gint64 dims[PLAN_MAX_DIMS];
  plan_lower_compute (self->lower, PLAN_OP_GROUP_NORM,
                      PLAN_REFS (value (self, node->out), value (self, node->stats),
                                 value (self, node->in), weight (self, PLAN_TENSOR_SSM_NORM)),
                      group_dims (self, dims));
}

static void
norm_groups_backward (PlanLayer *self, const PlanNode *node)
{
  PlanLower *lower = self->lower;
  const PlanRef din = plan_layer_take_share (self, node->in);
  const PlanRef dweight = plan_lower_raw_gradient (lower, PLAN_TENSOR_SSM_NORM, self->unit);
  gint64 dims[PLAN_MAX_DIMS];
  plan_lower_compute (lower, PLAN_OP_GROUP_NORM_BWD,
                      PLAN_REFS (din, dweight, plan_layer_gradient (self, node->out),
                                 value (self, node->in), value (self, node->stats),
                                 weight (self, PLAN_TENSOR_SSM_NORM)),
                      group_dims (self, dims));
  plan_lower_put_gradient (lower, PLAN_TENSOR_SSM_NORM, self->unit, FALSE);
  plan_layer_drop_gradient (self, node->out);
  plan_layer_add_share (self, node->in, din);
}

/* Sinks of attention that knows none: each head of a token times the sigmoid of its logarithm less
 * the head's score. What makes that factor is small and left out. */
static void
sink (PlanLayer *self, const PlanNode *node)
{
  plan_lower_compute (
      self->lower, PLAN_OP_SCALE_ROWS,
      PLAN_REFS (value (self, node->out), value (self, node->in), value (self, node->other)),
      PLAN_DIMS (node->rows, node->cols));
}

static void
sink_backward (PlanLayer *self, const PlanNode *node)
{
  PlanLower *lower = self->lower;
  const PlanRef din = plan_layer_take_share (self, node->in), dlse = REF (layer.grad[node->other]);
  plan_lower_alloc (lower, dlse);
  plan_lower_compute (lower, PLAN_OP_SCALE_ROWS_BWD,
                      PLAN_REFS (din, dlse, plan_layer_gradient (self, node->out),
                                 value (self, node->in), value (self, node->other)),
                      PLAN_DIMS (node->rows, node->cols));
  plan_lower_compute (lower, PLAN_OP_BIAS_BWD,
                      PLAN_REFS (plan_lower_raw_gradient (lower, node->weight, self->unit), dlse),
                      PLAN_DIMS (self->sizes->rows, self->sizes->heads));
  plan_lower_put_gradient (lower, node->weight, self->unit, FALSE);
  plan_lower_free (lower, dlse);
  plan_layer_drop_gradient (self, node->out);
  plan_layer_add_share (self, node->in, din);
}

static const struct
{
  PlanNodeKind kind;
  void (*forward) (PlanLayer *self, const PlanNode *node);
  void (*backward) (PlanLayer *self, const PlanNode *node);
} mixers[] = {
  { PLAN_NODE_GATHER_KEYS, gather_keys, gather_keys_backward },
  { PLAN_NODE_LATENT_ROPE, rope, rope_backward },
  { PLAN_NODE_LATENT_ATTENTION, attention, attention_backward },
  { PLAN_NODE_SINK, sink, sink_backward },
  { PLAN_NODE_SPLIT, split, split_backward },
  { PLAN_NODE_GATE_HEADS, gate_heads, gate_heads_backward },
  { PLAN_NODE_DELTA_CONV, convolve, convolve_backward },
  { PLAN_NODE_DELTA_KEYS, norm_keys, norm_keys_backward },
  { PLAN_NODE_DELTA_GATES, make_gates, make_gates_backward },
  { PLAN_NODE_DELTA_RULE, rule, rule_backward },
  { PLAN_NODE_DELTA_NORM, norm_output, norm_output_backward },
  { PLAN_NODE_SSM_CONV, convolve_ssm, convolve_ssm_backward },
  { PLAN_NODE_SSM_SCAN, scan, scan_backward },
  { PLAN_NODE_GROUP_NORM, norm_groups, norm_groups_backward },
};

gboolean
plan_layer_mix (PlanLayer *self, const PlanNode *node)
{
  for (guint i = 0; i < G_N_ELEMENTS (mixers); i++)
    if (mixers[i].kind == node->kind)
      {
        mixers[i].forward (self, node);
        return TRUE;
      }
  return FALSE;
}

gboolean
plan_layer_mix_backward (PlanLayer *self, const PlanNode *node)
{
  for (guint i = 0; i < G_N_ELEMENTS (mixers); i++)
    if (mixers[i].kind == node->kind)
      {
        mixers[i].backward (self, node);
        return TRUE;
      }
  return FALSE;
}
