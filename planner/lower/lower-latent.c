/* SPDX-License-Identifier: Apache-2.0 */
/* Multi-head latent attention: the queries, keys and values of all heads are made from latent
 * vectors of each token; and the attention on them. Both passes. If layers are split, each rank
 * makes the latent vectors of its own tokens, and of all tokens what its own heads need. */
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

void
plan_layer_latent (PlanLayer *self, const PlanNode *node)
{
  if (node->kind == PLAN_NODE_GATHER_KEYS)
    gather_keys (self, node);
  else if (node->kind == PLAN_NODE_LATENT_ROPE)
    rope (self, node);
  else
    attention (self, node);
}

void
plan_layer_latent_backward (PlanLayer *self, const PlanNode *node)
{
  if (node->kind == PLAN_NODE_GATHER_KEYS)
    gather_keys_backward (self, node);
  else if (node->kind == PLAN_NODE_LATENT_ROPE)
    rope_backward (self, node);
  else
    attention_backward (self, node);
}
