/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/model/model-private.h"

#include "planner/base/error.h"
#include "planner/base/text.h"
#include "planner/base/units.h"

#include <string.h>

/* Limit of parameters, so that the bytes of any state of the model fit 64 bits. */
#define MAX_PARAMETERS 0x1p50

#define INT "%" G_GINT64_FORMAT

void
plan_model_free (PlanModel *self)
{
  if (!self)
    return;
  g_free (self->name);
  g_free (self->family);
  g_free (self);
}

static gboolean G_GNUC_PRINTF (2, 3) invalid (GError **error, const char *format, ...)
{
  va_list args;
  va_start (args, format);
  g_autofree char *message = g_strdup_vprintf (format, args);
  va_end (args);
  g_set_error_literal (error, PLAN_ERROR, PLAN_ERROR_INVALID, message);
  return FALSE;
}

static gboolean
check_words (const PlanModel *self, GError **error)
{
  g_return_val_if_fail (self->family && g_strv_contains (plan_model_families (), self->family),
                        FALSE);
  if (!self->name || !plan_text_is_name (self->name))
    return invalid (error, "name: only letters, digits and . _ + - may be used");
  return TRUE;
}

static gboolean
check_heads (const PlanModel *self, GError **error)
{
  if (self->heads % self->kv_heads != 0)
    return invalid (error,
                    "kv_heads: " INT " does not divide heads=" INT
                    ", so query heads cannot share them evenly",
                    self->kv_heads, self->heads);
  if (self->heads * MAX (self->head_dim, self->v_dim) > G_MAXINT32)
    return invalid (error, "heads: " INT " of head_dim=" INT " are wider than 2^31 - 1",
                    self->heads, MAX (self->head_dim, self->v_dim));
  return TRUE;
}

static gint64
rope_width (const PlanModel *self)
{
  return self->kv_lora > 0 ? self->rope_dim : self->head_dim;
}

gint64
plan_model_expert_width (const PlanModel *self)
{
  return self->expert_hidden > 0 ? self->expert_hidden : self->hidden;
}

gint64
plan_model_turned (const PlanModel *self)
{
  return (gint64)((double)rope_width (self) * self->rope_fraction);
}

static gboolean
check_rope (const PlanModel *self, GError **error)
{
  const gint64 width = rope_width (self), turned = plan_model_turned (self);
  const char *const name = self->kv_lora > 0 ? "rope_dim" : "head_dim";
  if (self->positions != PLAN_POSITIONS_ROPE)
    return TRUE;
  if (width % 2 != 0)
    return invalid (error, "%s: " INT " is odd, but rotary positions turn pairs", name, width);
  if (turned < 2 || turned % 2 != 0)
    return invalid (error,
                    "rope_fraction: rotary positions would turn " INT " of %s=" INT
                    ", but they turn pairs",
                    turned, name, width);
  return TRUE;
}

static gboolean
check_rope_scaling (const PlanModel *self, GError **error)
{
  const guint n = self->rope.shorter.n;
  const gint64 pairs = plan_model_turned (self) / 2;
  if (self->positions == PLAN_POSITIONS_ROPE || self->rope.scaling == PLAN_ROPE_SCALING_NONE)
    return plan_rope_check (&self->rope, error)
           && (n == 0 || n == pairs
               || invalid (error, "rope_short: %u factors, but rotary positions turn " INT " pairs",
                           n, pairs));
  return invalid (error, "rope_scaling: acts on positions=rope only, and must be none");
}

static gboolean
check_latent (const PlanModel *self, GError **error)
{
  if (self->kv_lora == 0)
    {
      if (self->q_lora || self->nope_dim || self->rope_dim || self->v_dim)
        return invalid (error, "kv_lora: 0, so q_lora, nope_dim, rope_dim and v_dim must be 0 too: "
                               "attention is not latent");
      return TRUE;
    }
  if (self->nope_dim == 0 || self->rope_dim == 0 || self->v_dim == 0)
    return invalid (error, "kv_lora: latent attention needs nope_dim, rope_dim and v_dim too");
  if (self->head_dim != self->nope_dim + self->rope_dim)
    return invalid (error, "head_dim: " INT " is not nope_dim=" INT " + rope_dim=" INT,
                    self->head_dim, self->nope_dim, self->rope_dim);
  if (self->kv_heads != self->heads)
    return invalid (error, "kv_heads: " INT " is not heads=" INT ", as latent attention needs",
                    self->kv_heads, self->heads);
  if (self->qkv_bias || self->qk_norm || self->positions != PLAN_POSITIONS_ROPE)
    return invalid (error, "kv_lora: latent attention has no qkv_bias and no qk_norm, "
                           "and its positions are rope");
  return TRUE;
}

/* Whether any key of a router is set. */
static gboolean
has_router (const PlanModel *self)
{
  return self->router_bias || self->router_score != PLAN_ROUTER_SOFTMAX || self->pre_softmax
         || self->router_groups || self->router_group_topk || self->router_scale != 1
         || self->expert_bias || self->scores_on_input;
}

static gboolean
check_groups (const PlanModel *self, GError **error)
{
  const gint64 groups = self->router_groups, chosen = self->router_group_topk;
  if (groups == 0 && chosen == 0)
    return TRUE;
  if (groups == 0 || chosen == 0 || chosen > groups)
    return invalid (error, "router_group_topk: " INT " is not from 1 to router_groups=" INT, chosen,
                    groups);
  if (self->experts % groups != 0)
    return invalid (error, "router_groups: " INT " does not divide experts=" INT, groups,
                    self->experts);
  if (self->topk > chosen * (self->experts / groups))
    return invalid (error, "router_group_topk: " INT " groups have fewer experts than topk=" INT,
                    chosen, self->topk);
  return TRUE;
}

static gboolean
check_experts (const PlanModel *self, GError **error)
{
  if (self->experts == 0)
    {
      if (self->topk || self->expert_ffn || self->expert_hidden || self->shared_ffn
          || self->shared_gate || self->dense_layers || self->moe_every != 1 || has_router (self))
        return invalid (error,
                        "experts: 0, so topk, expert_ffn, expert_hidden, shared_ffn, shared_gate, "
                        "dense_layers, moe_every, expert_bias, scores_on_input, "
                        "pre_softmax and what begins with router_ must be left out");
      return TRUE;
    }
  if (self->topk < 1 || self->topk > self->experts)
    return invalid (error, "topk: " INT " is out of range: it must be from 1 to experts=" INT,
                    self->topk, self->experts);
  if (self->expert_ffn == 0)
    return invalid (error, "expert_ffn: missing");
  if (self->shared_gate && self->shared_ffn == 0)
    return invalid (error, "shared_gate: on, but shared_ffn is 0");
  if (plan_model_moe_layers (self) < 1)
    return invalid (error,
                    "experts: none of layers=" INT " has them with dense_layers=" INT
                    " and moe_every=" INT,
                    self->layers, self->dense_layers, self->moe_every);
  if (self->expert_hidden > 0 && self->expert_bias)
    return invalid (error, "expert_hidden: experts of another width need expert_bias=off");
  if (self->scores_on_input && self->expert_bias)
    return invalid (error, "scores_on_input: on needs expert_bias=off");
  if (self->pre_softmax && self->router_score != PLAN_ROUTER_SOFTMAX)
    return invalid (error, "pre_softmax: on needs router_score=softmax");
  return check_groups (self, error);
}

static gboolean
check_layers (const PlanModel *self, GError **error)
{
  if (self->window_chunks && self->window == 0)
    return invalid (error, "window_chunks: on, but window is 0");
  if (self->nope_every > 0 && (self->positions != PLAN_POSITIONS_ROPE || self->kv_lora > 0))
    return invalid (error, "nope_every: layers without rotary positions need positions=rope in the "
                           "others, and no latent attention");
  if (self->qk_l2_norm == PLAN_QK_L2_ROPE && self->nope_every == 0)
    return invalid (error, "qk_l2_norm: rope tells layers with rotary positions from those that "
                           "nope_every says: it must be off or all");
  if (self->qk_l2_norm != PLAN_QK_L2_OFF && (self->qk_norm || self->kv_lora > 0))
    return invalid (error, "qk_l2_norm: must be off beside qk_norm=on and latent attention");
  if (self->qk_norm == PLAN_QK_NORM_FULL && self->norm != PLAN_NORM_RMSNORM)
    return invalid (error, "qk_norm: full needs norm=rmsnorm");
  return TRUE;
}

static gboolean
check_letters (const PlanModel *self, GError **error)
{
  const char *const of = self->pattern.of;
  const gsize known = strspn (of, "M*-E"), layers = strlen (of);
  if (known < layers)
    return invalid (error,
                    "pattern: letter '%c' is not one of M, of a state space (Mamba-2), * of "
                    "attention, - of an MLP and E of experts",
                    of[known]);
  if ((gint64)layers != self->layers)
    return invalid (error, "pattern: describes " INT " layers, not layers=" INT ": give both",
                    (gint64)layers, self->layers);
  if (!strchr (of, 'M'))
    return invalid (error, "pattern: no layer is M, of a state space");
  if (!strchr (of, 'E') != (self->experts == 0))
    return invalid (error, "pattern: layers E need experts, and experts need layers E");
  return TRUE;
}

/* Layers by a pattern. Their norms are by the root mean square and have no biases, nor have their
 * products (megatron/core/ssm/mamba_mixer.py). */
static gboolean
check_pattern (const PlanModel *self, GError **error)
{
  const PlanSsm *m = &self->ssm;
  if (!*self->pattern.of)
    {
      if (m->heads || m->head_dim || m->groups || m->state || m->conv)
        return invalid (error, "pattern: missing: what begins with ssm_ describes its layers M");
      return TRUE;
    }
  if (!check_letters (self, error))
    return FALSE;
  if (!m->heads || !m->head_dim || !m->groups || !m->state || !m->conv)
    return invalid (error, "pattern: layers M need ssm_heads, ssm_head_dim, ssm_groups, ssm_state "
                           "and ssm_conv");
  if (m->heads % m->groups != 0)
    return invalid (error, "ssm_groups: " INT " does not divide ssm_heads=" INT, m->groups,
                    m->heads);
  if (plan_ssm_projected (m) > G_MAXINT32)
    return invalid (error, "ssm_heads: the projection of a layer M is wider than 2^31 - 1");
  if (self->norm != PLAN_NORM_RMSNORM || self->norm_bias || self->qkv_bias || self->proj_bias
      || self->mlp_bias || self->expert_bias || self->parallel || self->post_norms || self->sinks
      || self->attn_gate || self->kv_lora > 0 || self->delta.attn_every > 0)
    return invalid (error, "pattern: needs norm=rmsnorm and no norm_bias, qkv_bias, proj_bias, "
                           "mlp_bias, expert_bias, parallel, post_norms, sinks, attn_gate, latent "
                           "attention or delta rule");
  if (self->window > 0 || self->nope_every > 0 || self->dense_layers > 0 || self->moe_every > 1
      || self->mtp > 0)
    return invalid (error, "pattern: says what each layer is, so window, nope_every, dense_layers "
                           "and moe_every must be left out; prediction modules (mtp) are not "
                           "modelled beside it");
  if (self->positions != PLAN_POSITIONS_NONE && self->positions != PLAN_POSITIONS_ROPE)
    return invalid (error, "pattern: needs positions=none or rope");
  return TRUE;
}

/* Layers of the gated delta rule. Their projections have no bias, their convolution is followed by
 * SiLU, and their norms are by the root mean square (transformers' modeling_qwen3_next.py). */
static gboolean
check_delta (const PlanModel *self, GError **error)
{
  const PlanDelta *d = &self->delta;
  if (d->attn_every == 0)
    {
      if (d->key_heads || d->value_heads || d->key_dim || d->value_dim || d->conv)
        return invalid (error, "attn_every: 0, so what begins with delta_ must be 0 too: all "
                               "layers have attention");
      return TRUE;
    }
  if (d->attn_every < 2)
    return invalid (error, "attn_every: 1, so all layers have attention: it must be 0 then");
  if (!d->key_heads || !d->value_heads || !d->key_dim || !d->value_dim || !d->conv)
    return invalid (error, "attn_every: layers of the gated delta rule need delta_key_heads, "
                           "delta_value_heads, delta_key_dim, delta_value_dim and delta_conv");
  if (d->value_heads % d->key_heads != 0)
    return invalid (error,
                    "delta_key_heads: " INT " does not divide delta_value_heads=" INT
                    ", so heads of values cannot share them evenly",
                    d->key_heads, d->value_heads);
  if (d->value_heads * MAX (d->key_dim, d->value_dim) > G_MAXINT32 / 4)
    return invalid (error, "delta_value_heads: " INT " heads are wider than 2^29", d->value_heads);
  if (self->norm != PLAN_NORM_RMSNORM || self->activation != PLAN_ACTIVATION_SILU || self->qkv_bias
      || self->proj_bias || self->positions != PLAN_POSITIONS_ROPE || self->kv_lora > 0
      || self->parallel || self->post_norms || self->sinks)
    return invalid (error, "attn_every: layers of the gated delta rule need norm=rmsnorm, "
                           "activation=silu and positions=rope, and no qkv_bias, proj_bias, "
                           "parallel, post_norms, sinks or latent attention");
  if (self->window > 0 || self->nope_every > 0)
    return invalid (error, "attn_every: beside layers of the gated delta rule attention has no "
                           "windows, and rotary positions everywhere (nope_every=0)");
  return TRUE;
}

static gboolean
check_rest (const PlanModel *self, GError **error)
{
  if (self->attn_gate && (self->kv_lora > 0 || self->positions != PLAN_POSITIONS_ROPE))
    return invalid (error, "attn_gate: on needs positions=rope and no latent attention");
  if (!self->gated && (self->glu_limit > 0 || self->glu_offset > 0))
    return invalid (error, "glu_limit, glu_offset: need gated=on");
  if (self->full_every > 0
      && (self->window == 0 || self->window_from > 0 || self->window_every > 1))
    return invalid (error,
                    "full_every: " INT " says which layers have no window: there must be one, "
                    "and window_from and window_every must be left out",
                    self->full_every);
  if (self->shared_norm && (!self->parallel || self->experts > 0 || self->kv_lora > 0))
    return invalid (error, "shared_norm: on needs parallel=on, no experts and no latent attention");
  if (self->rope_local > 0 && (self->window == 0 || self->positions != PLAN_POSITIONS_ROPE))
    return invalid (error, "rope_local: acts on windowed layers with positions=rope only");
  if (self->window > 0 && self->window_from >= self->layers)
    return invalid (error, "window_from: " INT " is not below layers=" INT, self->window_from,
                    self->layers);
  if (self->mtp > 0 && self->norm_bias)
    return invalid (error, "mtp: prediction modules need norm_bias=off");
  if (plan_model_elements (self) > MAX_PARAMETERS)
    return invalid (error, "model: more than 2^50 parameters");
  return TRUE;
}

gboolean
plan_model_check (const PlanModel *self, GError **error)
{
  return plan_model_check_ranges (self, error) && check_words (self, error)
         && check_heads (self, error) && check_latent (self, error) && check_rope (self, error)
         && check_rope_scaling (self, error) && check_pattern (self, error)
         && check_experts (self, error) && check_layers (self, error) && check_delta (self, error)
         && check_rest (self, error);
}

gboolean
plan_model_attends_plainly (const PlanModel *self)
{
  return self->kv_lora == 0 && self->attn_softcap <= 0 && self->positions != PLAN_POSITIONS_ALIBI;
}
