/* SPDX-License-Identifier: Apache-2.0 */
/* Each row: a predicate that is true of models that Megatron-LM at d98e8a64 (2026-08-22) has no
 * flags for, by its arguments.py, argument_utils.py and transformer_config.py. */
#include "config.h"

#include "planner/plan/megatron-lacks.h"

static gboolean
has_alibi (const PlanModel *m)
{
  return m->positions == PLAN_POSITIONS_ALIBI;
}

static gboolean
has_plain_layernorm (const PlanModel *m)
{
  return m->norm == PLAN_NORM_LAYERNORM && !m->norm_bias;
}

static gboolean
has_biased_rmsnorm (const PlanModel *m)
{
  return m->norm == PLAN_NORM_RMSNORM && m->norm_bias;
}

static gboolean
has_post_norms (const PlanModel *m)
{
  return m->post_norms;
}

static gboolean
has_biased_qk_norm (const PlanModel *m)
{
  return m->qk_norm && m->norm != PLAN_NORM_RMSNORM;
}

static gboolean
has_full_qk_norm (const PlanModel *m)
{
  return m->qk_norm == PLAN_QK_NORM_FULL;
}

static gboolean
has_other_biases (const PlanModel *m)
{
  return m->proj_bias != m->mlp_bias || (m->proj_bias && !m->qkv_bias);
}

static gboolean
is_parallel (const PlanModel *m)
{
  return m->parallel;
}

static gboolean
scales_embedding (const PlanModel *m)
{
  return m->embed_scale;
}

static gboolean
has_full_layers (const PlanModel *m)
{
  return m->full_every > 0 && !m->window_chunks;
}

static gboolean
has_chunks (const PlanModel *m)
{
  return m->window_chunks;
}

static gboolean
norms_some_layers (const PlanModel *m)
{
  return m->qk_l2_norm == PLAN_QK_L2_ROPE;
}

static gboolean
scales_more_inputs (const PlanModel *m)
{
  return m->scores_on_input && m->topk > 1;
}

static gboolean
norms_embedding (const PlanModel *m)
{
  return m->embed_norm;
}

static gboolean
has_two_bases (const PlanModel *m)
{
  return m->rope_local > 0;
}

static gboolean
scales_scores (const PlanModel *m)
{
  return m->attn_scalar > 0 && m->attn_scalar != (double)m->head_dim;
}

static gboolean
caps_scores (const PlanModel *m)
{
  return m->attn_softcap > 0;
}

static gboolean
caps_logits (const PlanModel *m)
{
  return m->logit_softcap > 0;
}

static gboolean
has_broken_theta (const PlanModel *m)
{
  return m->positions == PLAN_POSITIONS_ROPE && m->rope.theta != (double)(gint64)m->rope.theta;
}

/* Megatron-LM has llama3 scaling with one set of numbers, and so for yarn with latent attention.
 * With yarn it ignores rotary_percent, and prediction modules need unscaled rotary positions. */
static gboolean
has_other_rope_scaling (const PlanModel *m)
{
  const PlanRope *const rope = &m->rope;
  switch (rope->scaling)
    {
    case PLAN_ROPE_SCALING_NONE:
      return FALSE;
    case PLAN_ROPE_SCALING_LLAMA3:
      return rope->original != 8192 || rope->slow != 1 || rope->fast != 4 || m->kv_lora > 0;
    case PLAN_ROPE_SCALING_YARN:
      return m->kv_lora > 0 ? rope->original != 4096 || rope->slow != 1 || rope->fast != 32
                                  || rope->is_fractional
                            : m->rope_fraction != 1 || m->mtp > 0;
    default:
      return TRUE;
    }
}

static gboolean
predicts_by_layernorm (const PlanModel *m)
{
  return m->mtp > 0 && m->norm != PLAN_NORM_RMSNORM;
}

static gboolean
has_biased_half (const PlanModel *m)
{
  const gboolean has_all = m->qkv_bias && m->proj_bias && m->mlp_bias;
  return m->experts > 0 && m->expert_bias != has_all;
}

static gboolean
bounds_silu (const PlanModel *m)
{
  return (m->glu_limit > 0 || m->glu_offset > 0) && m->activation != PLAN_ACTIVATION_QUICK_GELU;
}

static gboolean
balances_softmax (const PlanModel *m)
{
  return m->router_bias && m->router_score == PLAN_ROUTER_SOFTMAX;
}

static gboolean
chooses_one (const PlanModel *m)
{
  return m->topk == 1 && m->router_score == PLAN_ROUTER_SOFTMAX && !m->pre_softmax;
}

static gboolean
has_latent_part (const PlanModel *m)
{
  return m->kv_lora > 0 && m->rope_fraction != 1;
}

static gboolean
convolves_otherwise (const PlanModel *m)
{
  return m->ssm.heads > 0 && m->ssm.conv != 4;
}

/* Megatron-LM's GELU by tanh is a fused kernel, which adds a bias. */
static gboolean
has_other_activation (const PlanModel *m)
{
  switch (m->activation)
    {
    case PLAN_ACTIVATION_SILU:
    case PLAN_ACTIVATION_QUICK_GELU:
      return !m->gated;
    case PLAN_ACTIVATION_GELU:
    case PLAN_ACTIVATION_RELU2:
      return m->gated;
    case PLAN_ACTIVATION_GELU_TANH:
      return m->gated || !m->mlp_bias;
    default:
      return TRUE;
    }
}

static const struct
{
  gboolean (*is_so) (const PlanModel *m);
  const char *reason;
} lacks[] = {
  { has_alibi, "model positions=alibi: Megatron-LM has rope, learned and none" },
  { has_plain_layernorm, "model norm_bias=off: its layer norms add biases: only norm_bias=on, or "
                         "norm=rmsnorm" },
  { has_biased_rmsnorm, "model norm_bias=on: its RMS norms add none: only norm_bias=off, or "
                        "norm=layernorm" },
  { has_post_norms, "model post_norms=on: it has no norms behind attention and MLP: only off" },
  { has_biased_qk_norm, "model qk_norm=on: its layer norms of queries and keys add biases: only "
                        "off, or norm=rmsnorm" },
  { has_full_qk_norm,
    "model qk_norm=full: it norms each head of queries and keys: only off or on" },
  { has_other_biases,
    "model qkv_bias, proj_bias, mlp_bias: it has all three, qkv_bias alone, or none" },
  { is_parallel, "model parallel=on: its MLP reads what attention has written: only off" },
  { scales_embedding, "model embed_scale=on: it does not scale embeddings: only off" },
  { scales_scores, "model attn_scalar: it divides scores by the root of head_dim: only 0" },
  { has_full_layers, "model full_every: layers without a window are told by window_from and "
                     "window_every: only 0" },
  { has_chunks,
    "model window_chunks=on: its attention is not in chunks: only with seq up to window" },
  { norms_some_layers, "model qk_l2_norm=rope: it norms queries and keys of all layers or of none: "
                       "only off or all" },
  { scales_more_inputs, "model scores_on_input=on: only with topk=1" },
  { norms_embedding, "model embed_norm=on: it has no norm behind the embedding: only off" },
  { has_two_bases, "model rope_local: its rotary positions have one base: only 0" },
  { caps_scores, "model attn_softcap: it does not bound attention scores: only 0" },
  { caps_logits, "model logit_softcap: it does not bound logits: only 0" },
  { has_broken_theta, "model rope_theta: --rotary-base takes whole numbers only" },
  { has_other_rope_scaling,
    "model rope_scaling: it has llama3 with rope_original=8192, "
    "rope_slow=1 and rope_fast=4, and yarn on "
    "whole heads; of latent attention, yarn with rope_original=4096, rope_slow=1, rope_fast=32 and "
    "rope_fractional=off only" },
  { predicts_by_layernorm, "model mtp: its prediction modules need norm=rmsnorm" },
  { has_biased_half, "model expert_bias: experts have biases where all products have: on with "
                     "qkv_bias, proj_bias and mlp_bias, or all off" },
  { bounds_silu, "model glu_limit, glu_offset: only with activation=quick_gelu" },
  { balances_softmax, "model router_bias=on: only with router_score=sigmoid or sqrtsoftplus" },
  { chooses_one, "model topk=1: only with pre_softmax=on, or another router_score" },
  { has_latent_part, "model rope_fraction: latent heads turn all of rope_dim: only 1" },
  { convolves_otherwise, "model ssm_conv: its state spaces convolve 4 tokens: only 4" },
  { has_other_activation,
    "model activation, gated: Megatron-LM has silu and quick_gelu gated, gelu and relu2 not gated, "
    "and gelu_tanh not gated with mlp_bias=on" },
};

const char *
plan_megatron_lacks (const PlanModel *model, guint i)
{
  for (guint n = 0; n < G_N_ELEMENTS (lacks); n++)
    if (lacks[n].is_so (model) && i-- == 0)
      return lacks[n].reason;
  return NULL;
}

gboolean
plan_megatron_builds (const PlanModel *model)
{
  for (guint n = 0; n < G_N_ELEMENTS (lacks); n++)
    if (lacks[n].is_so != has_chunks && lacks[n].is_so != norms_some_layers
        && lacks[n].is_so (model))
      return FALSE;
  return TRUE;
}
