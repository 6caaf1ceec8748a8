/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a model in Megatron-LM's flags, the inverse of megatron-shape.c. */
#include "config.h"

#include "planner/base/units.h"
#include "planner/emit/emit-private.h"
#include "planner/megatron/megatron-table.h"
#include "planner/model/layer-kinds.h"
#include "planner/plan/megatron-lacks.h"

#define INT "%" G_GINT64_FORMAT

static void
add (GPtrArray *lines, PlanMegatronFlag flag)
{
  plan_emit_line (lines, "%s", plan_megatron_flag_name (flag));
}

static void
add_if (GPtrArray *lines, gboolean is_so, PlanMegatronFlag flag)
{
  if (is_so)
    add (lines, flag);
}

static void
add_int (GPtrArray *lines, PlanMegatronFlag flag, gint64 value)
{
  plan_emit_line (lines, "%s " INT, plan_megatron_flag_name (flag), value);
}

static void
add_real (GPtrArray *lines, PlanMegatronFlag flag, double value)
{
  g_autofree char *shown = plan_units_format_real (value);
  plan_emit_line (lines, "%s %s", plan_megatron_flag_name (flag), shown);
}

static void
add_word (GPtrArray *lines, PlanMegatronFlag flag, const char *value)
{
  plan_emit_line (lines, "%s %s", plan_megatron_flag_name (flag), value);
}

static gboolean
has_all_biases (const PlanModel *m)
{
  return m->qkv_bias && m->proj_bias && m->mlp_bias;
}

/* Adds the flags that choose an activation (megatron/training/argument_utils.py). Gelu is the fused
 * tanh form where biases are added to it and fusion is not switched off. */
static void
add_activation (const PlanModel *m, GPtrArray *lines)
{
  const PlanActivation a = m->activation;
  const gboolean is_exact = a == PLAN_ACTIVATION_GELU && !m->gated;
  const gboolean is_swiglu = a == PLAN_ACTIVATION_SILU && m->gated;
  const gboolean is_quick = a == PLAN_ACTIVATION_QUICK_GELU && m->gated;
  const gboolean is_squared = a == PLAN_ACTIVATION_RELU2 && !m->gated;
  add_if (lines, is_swiglu, PLAN_MEGATRON_SWIGLU);
  add_if (lines, is_quick, PLAN_MEGATRON_QUICK_GEGLU);
  add_if (lines, is_squared, PLAN_MEGATRON_SQUARED_RELU);
  add_if (lines, is_exact && m->mlp_bias, PLAN_MEGATRON_BIAS_GELU_FUSION);
}

/* Adds a list of marks: from layer `from` on, one layer in `every` is marked. */
static void
add_pattern (GPtrArray *lines, PlanMegatronFlag flag, gint64 layers, gint64 from, gint64 every)
{
  const gint64 after = layers - from;
  g_autoptr (GString) pattern = g_string_new (NULL);
  if (from == 0 && every == 1 && flag != PLAN_MEGATRON_NO_ROPE_FREQ) /* without it: all layers */
    return;
  if (from > 0)
    g_string_append_printf (pattern, "[0]*" INT "+", from);
  if (every == 1)
    g_string_append_printf (pattern, "[1]*" INT, after);
  else if (after >= every)
    g_string_append_printf (pattern, "([1]+[0]*" INT ")*" INT, every - 1, after / every);
  if (every > 1 && after % every > 0)
    g_string_append_printf (pattern, "%s[1]", after >= every ? "+" : "");
  if (every > 1 && after % every > 1)
    g_string_append_printf (pattern, "+[0]*" INT, after % every - 1);
  plan_emit_line (lines, "%s '%s'", plan_megatron_flag_name (flag), pattern->str);
}

/* Adds the window of attention. The flag does not count the token itself. */
static void
add_window (const PlanModel *m, GPtrArray *lines)
{
  if (m->window == 0)
    return;
  plan_emit_line (lines, "%s " INT ",0", plan_megatron_flag_name (PLAN_MEGATRON_WINDOW_SIZE),
                  m->window - 1);
  add_pattern (lines, PLAN_MEGATRON_WINDOW_SKIP_FREQ, m->layers, m->window_from, m->window_every);
}

/* Adds what gpt-oss has: a learned score beside those of keys, and a bounded activation. */
static void
add_sinks (const PlanModel *m, GPtrArray *lines)
{
  if (m->sinks)
    add_word (lines, PLAN_MEGATRON_SOFTMAX_TYPE, "learnable");
  if (m->glu_limit > 0)
    add_real (lines, PLAN_MEGATRON_ACTIVATION_CLAMP, m->glu_limit);
  if (m->glu_offset > 0)
    add_real (lines, PLAN_MEGATRON_GLU_OFFSET, m->glu_offset);
}

static void
add_router (const PlanModel *m, GPtrArray *lines)
{
  static const char *const scores[] = { [PLAN_ROUTER_SOFTMAX] = "softmax",
                                        [PLAN_ROUTER_SIGMOID] = "sigmoid",
                                        [PLAN_ROUTER_SQRTSOFTPLUS] = "sqrtsoftplus" };
  add_int (lines, PLAN_MEGATRON_MOE_ROUTER_TOPK, m->topk);
  add_word (lines, PLAN_MEGATRON_MOE_SCORE_FUNCTION, scores[m->router_score]);
  add_if (lines, m->pre_softmax, PLAN_MEGATRON_MOE_PRE_SOFTMAX);
  add_if (lines, m->router_bias, PLAN_MEGATRON_MOE_EXPERT_BIAS);
  if (m->router_groups > 0)
    {
      add_int (lines, PLAN_MEGATRON_MOE_NUM_GROUPS, m->router_groups);
      add_int (lines, PLAN_MEGATRON_MOE_GROUP_TOPK, m->router_group_topk);
    }
  if (m->router_scale != 1)
    add_real (lines, PLAN_MEGATRON_MOE_SCALING_FACTOR, m->router_scale);
}

static void
add_experts (const PlanModel *m, GPtrArray *lines)
{
  gint64 first = 0;
  if (m->experts == 0)
    return;
  while (!plan_model_is_moe_layer (m, first))
    first++;
  add_int (lines, PLAN_MEGATRON_NUM_EXPERTS, m->experts);
  add_int (lines, PLAN_MEGATRON_MOE_FFN_HIDDEN_SIZE, m->expert_ffn);
  if (m->shared_ffn > 0)
    add_int (lines, PLAN_MEGATRON_MOE_SHARED_SIZE, m->shared_ffn);
  if (m->expert_hidden > 0)
    add_int (lines, PLAN_MEGATRON_MOE_LATENT_SIZE, m->expert_hidden);
  add_if (lines, m->shared_gate, PLAN_MEGATRON_MOE_SHARED_GATE);
  add_if (lines, m->scores_on_input, PLAN_MEGATRON_MOE_PROBS_ON_INPUT);
  if (!*m->pattern.of)
    add_pattern (lines, PLAN_MEGATRON_MOE_LAYER_FREQ, m->layers, first, m->moe_every);
  add_router (m, lines);
}

/* Adds latent attention. Its positions are YaRN's by default, with a scale of 1, which is plain
 * RoPE. */
static void
add_latent (const PlanModel *m, GPtrArray *lines)
{
  add (lines, PLAN_MEGATRON_MULTI_LATENT_ATTENTION);
  if (m->q_lora > 0)
    add_int (lines, PLAN_MEGATRON_Q_LORA_RANK, m->q_lora);
  add_int (lines, PLAN_MEGATRON_KV_LORA_RANK, m->kv_lora);
  add_int (lines, PLAN_MEGATRON_QK_HEAD_DIM, m->nope_dim);
  add_int (lines, PLAN_MEGATRON_QK_POS_EMB_HEAD_DIM, m->rope_dim);
  add_int (lines, PLAN_MEGATRON_V_HEAD_DIM, m->v_dim);
}

/* Adds linear attention: a number N stands for one layer in N, the last, with attention. */
static void
add_delta (const PlanModel *m, GPtrArray *lines)
{
  const PlanDelta *d = &m->delta;
  add_if (lines, m->attn_gate, PLAN_MEGATRON_ATTENTION_OUTPUT_GATE);
  if (d->attn_every == 0)
    return;
  add_word (lines, PLAN_MEGATRON_LINEAR_ATTENTION, "gdn");
  add_int (lines, PLAN_MEGATRON_LINEAR_ATTENTION_FREQ, d->attn_every);
  add_int (lines, PLAN_MEGATRON_LINEAR_CONV_DIM, d->conv);
  add_int (lines, PLAN_MEGATRON_LINEAR_KEY_DIM, d->key_dim);
  add_int (lines, PLAN_MEGATRON_LINEAR_VALUE_DIM, d->value_dim);
  add_int (lines, PLAN_MEGATRON_LINEAR_KEY_HEADS, d->key_heads);
  add_int (lines, PLAN_MEGATRON_LINEAR_VALUE_HEADS, d->value_heads);
}

/* Adds layers by a pattern, and their state spaces. A specification says what each letter is. */
static void
add_letters (const PlanModel *m, GPtrArray *lines)
{
  const PlanSsm *ssm = &m->ssm;
  if (!*m->pattern.of)
    return;
  plan_emit_line (lines, "%s '%s'", plan_megatron_flag_name (PLAN_MEGATRON_HYBRID_LAYER_PATTERN),
                  m->pattern.of);
  plan_emit_line (lines, "--spec megatron.core.models.hybrid.hybrid_layer_specs hybrid_stack_spec");
  add_int (lines, PLAN_MEGATRON_MAMBA_HEADS, ssm->heads);
  add_int (lines, PLAN_MEGATRON_MAMBA_HEAD_DIM, ssm->head_dim);
  add_int (lines, PLAN_MEGATRON_MAMBA_GROUPS, ssm->groups);
  add_int (lines, PLAN_MEGATRON_MAMBA_STATE, ssm->state);
}

static void
add_yarn (const PlanRope *rope, GPtrArray *lines)
{
  add_real (lines, PLAN_MEGATRON_ROTARY_SCALING_FACTOR, rope->factor);
  add_int (lines, PLAN_MEGATRON_YARN_ORIGINAL, rope->original);
  add_real (lines, PLAN_MEGATRON_YARN_BETA_SLOW, rope->slow);
  add_real (lines, PLAN_MEGATRON_YARN_BETA_FAST, rope->fast);
  add_real (lines, PLAN_MEGATRON_MSCALE, rope->mscale);
  add_real (lines, PLAN_MEGATRON_MSCALE_ALL_DIM, rope->mscale_all);
  if (rope->is_fractional)
    add (lines, PLAN_MEGATRON_YARN_ROUNDS);
}

static void
add_positions (const PlanModel *m, GPtrArray *lines)
{
  const char *const words[] = { [PLAN_POSITIONS_ROPE] = "rope",
                                [PLAN_POSITIONS_ALIBI] = "none", /* no flag: refused elsewhere */
                                [PLAN_POSITIONS_LEARNED] = "learned_absolute",
                                [PLAN_POSITIONS_NONE] = "none" };
  const gboolean is_yarn = m->rope.scaling == PLAN_ROPE_SCALING_YARN;
  const gboolean is_type
      = is_yarn && m->kv_lora == 0; /* latent attention selects yarn by --rope-type */
  add_word (lines, PLAN_MEGATRON_POSITION_EMBEDDING_TYPE, is_type ? "yarn" : words[m->positions]);
  if (m->positions != PLAN_POSITIONS_ROPE)
    return;
  add_int (lines, PLAN_MEGATRON_ROTARY_BASE, (gint64)m->rope.theta);
  add_real (lines, PLAN_MEGATRON_ROTARY_PERCENT, m->rope_fraction);
  if (m->nope_every > 0 && m->nope_every <= m->layers)
    add_pattern (lines, PLAN_MEGATRON_NO_ROPE_FREQ, m->layers, m->nope_every - 1, m->nope_every);
  if (m->rope.scaling == PLAN_ROPE_SCALING_LLAMA3)
    {
      add (lines, PLAN_MEGATRON_USE_ROPE_SCALING);
      add_real (lines, PLAN_MEGATRON_ROPE_SCALING_FACTOR, m->rope.factor);
    }
  if (is_yarn)
    add_yarn (&m->rope, lines);
}

void
plan_emit_megatron_model (const PlanModel *model, gint64 seq, GPtrArray *lines, GPtrArray *reasons)
{
  const PlanModel seen = plan_model_within (model, seq), *const m = &seen;
  const char *reason;
  for (guint i = 0; (reason = plan_megatron_lacks (m, i)); i++)
    plan_emit_refuse (reasons, TRUE, "%s", reason);
  plan_emit_line (lines, "--use-mcore-models");
  add_word (lines, PLAN_MEGATRON_TRANSFORMER_IMPL, "transformer_engine");
  add_int (lines, PLAN_MEGATRON_NUM_LAYERS, m->layers);
  add_int (lines, PLAN_MEGATRON_HIDDEN_SIZE, m->hidden);
  add_int (lines, PLAN_MEGATRON_FFN_HIDDEN_SIZE, m->ffn);
  add_int (lines, PLAN_MEGATRON_NUM_ATTENTION_HEADS, m->heads);
  if (m->kv_heads != m->heads)
    {
      add (lines, PLAN_MEGATRON_GROUP_QUERY_ATTENTION);
      add_int (lines, PLAN_MEGATRON_NUM_QUERY_GROUPS, m->kv_heads);
    }
  if (m->kv_lora > 0)
    add_latent (m, lines);
  else
    add_int (lines, PLAN_MEGATRON_KV_CHANNELS, m->head_dim);
  /* the number of rows where positions are learned; elsewhere only a limit that Megatron-LM
   * checks */
  add_int (lines, PLAN_MEGATRON_MAX_POSITION_EMBEDDINGS, MAX (m->max_seq, seq));
  add_positions (m, lines);
  add_word (lines, PLAN_MEGATRON_NORMALIZATION,
            m->norm == PLAN_NORM_RMSNORM ? "RMSNorm" : "LayerNorm");
  add_real (lines, PLAN_MEGATRON_NORM_EPSILON, m->norm_eps);
  add_if (lines, m->norm_1p, PLAN_MEGATRON_NORM_ONE_PLUS);
  add_if (lines, m->qk_norm || m->kv_lora > 0, PLAN_MEGATRON_QK_LAYERNORM);
  add_if (lines, m->qk_l2_norm == PLAN_QK_L2_ALL, PLAN_MEGATRON_QK_L2_NORM);
  add_activation (m, lines);
  add_if (lines, !has_all_biases (m), PLAN_MEGATRON_ADD_BIAS_LINEAR);
  add_if (lines, m->qkv_bias && !has_all_biases (m), PLAN_MEGATRON_ADD_QKV_BIAS);
  add_window (m, lines);
  add_sinks (m, lines);
  add_delta (m, lines);
  add_letters (m, lines);
  add_experts (m, lines);
  add_if (lines, !m->tied_embeddings, PLAN_MEGATRON_UNTIE);
  if (m->mtp > 0)
    add_int (lines, PLAN_MEGATRON_MTP_NUM_LAYERS, m->mtp);
}
