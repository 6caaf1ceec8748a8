/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/megatron/megatron-shape.h"

#include "planner/base/error.h"
#include "planner/base/text.h"
#include "planner/base/units.h"
#include "planner/megatron/megatron-pattern.h"

#include <string.h>

/* Until PR #4057 NullTokenizer added an end-of-document token of its own. */
#define NULL_TOKENIZER_IS_EXACT 20260422

#define OUR_VOCAB_MULTIPLE 128

static double
real_of (const PlanMegatronSettings *settings, PlanMegatronFlag flag)
{
  return g_ascii_strtod (plan_megatron_value (settings, flag), NULL);
}

static gint64
round_up (gint64 value, gint64 multiple)
{
  return multiple > 0 ? (value + multiple - 1) / multiple * multiple : value;
}

/* The default width of an MLP by arguments.py: two thirds of 4 x hidden in multiples of 64 if it is
 * gated, else 4 x hidden. */
static gint64
default_ffn (gint64 hidden, gboolean is_gated)
{
  return is_gated ? (gint64)(4.0 * (double)hidden * 2 / 3 / 64) * 64 : 4 * hidden;
}

static void
set_vocab (PlanMegatronShape *self, const PlanMegatronSettings *settings, gint64 date)
{
  const gint64 tp = CLAMP (plan_megatron_int (settings, PLAN_MEGATRON_TP), 1, 1 << 20);
  const gint64 multiple
      = CLAMP (plan_megatron_int (settings, PLAN_MEGATRON_VOCAB_MULTIPLE), 1, 1 << 20) * tp;
  const gboolean adds_token
      = plan_megatron_is (settings, PLAN_MEGATRON_TOKENIZER_TYPE, "NullTokenizer")
        && date < NULL_TOKENIZER_IS_EXACT;
  gint64 padded = plan_megatron_int (settings, PLAN_MEGATRON_PADDED_VOCAB_SIZE);
  gint64 vocab = plan_megatron_int (settings, PLAN_MEGATRON_VOCAB_SIZE);
  if (padded == 0)
    padded = settings->padded_vocab;
  if (vocab > 0 && adds_token)
    vocab++;
  if (padded == 0 && vocab > 0)
    padded = round_up (vocab, multiple);
  /* The unpadded size is kept where the stack, which pads to a multiple of 128 x tp, arrives at the
   * same padded size. */
  const gboolean agrees = vocab > 0 && round_up (vocab, OUR_VOCAB_MULTIPLE * tp) == padded;
  self->vocab = agrees ? vocab : padded;
  self->padded_vocab = padded;
}

gint64
plan_megatron_shape_padded_here (const PlanMegatronShape *self, gint64 tp)
{
  return round_up (self->vocab, OUR_VOCAB_MULTIPLE * tp);
}

static void
set_other (PlanMegatronShape *self, const PlanMegatronSettings *settings)
{
  static const PlanMegatronFlag flags[] = { PLAN_MEGATRON_HETEROGENEOUS, PLAN_MEGATRON_MHC,
                                            PLAN_MEGATRON_CHECKPOINT_ARGS, PLAN_MEGATRON_YAML };
  g_autoptr (GString) names = g_string_new (NULL);
  for (guint i = 0; i < G_N_ELEMENTS (flags); i++)
    if (plan_megatron_is_given (settings, flags[i])
        && !plan_megatron_is (settings, flags[i], "off"))
      g_string_append_printf (names, "%s%s", names->len > 0 ? "; " : "",
                              plan_megatron_flag_name (flags[i]));
  self->other = names->len > 0 ? g_strdup (names->str) : NULL;
}

/* Sets the activation (megatron/training/argument_utils.py). Where biases are fused with gelu, as
 * they are by default, gelu is the tanh form of megatron/core/fusions/fused_bias_gelu.py. */
static void
set_activation (PlanMegatronShape *self, const PlanMegatronSettings *s)
{
  const gboolean is_swiglu = plan_megatron_is_on (s, PLAN_MEGATRON_SWIGLU);
  const gboolean is_squared = plan_megatron_is_on (s, PLAN_MEGATRON_SQUARED_RELU);
  const gboolean is_quick = plan_megatron_is_on (s, PLAN_MEGATRON_QUICK_GEGLU) && !is_squared;
  const gboolean is_fused
      = self->add_bias_linear && plan_megatron_is_on (s, PLAN_MEGATRON_BIAS_GELU_FUSION);
  self->is_gated = is_swiglu || is_quick;
  self->glu_limit = self->is_gated && plan_megatron_is_given (s, PLAN_MEGATRON_ACTIVATION_CLAMP)
                        ? real_of (s, PLAN_MEGATRON_ACTIVATION_CLAMP)
                        : 0;
  self->glu_offset = self->is_gated ? real_of (s, PLAN_MEGATRON_GLU_OFFSET) : 0;
  self->activation = is_swiglu    ? PLAN_ACTIVATION_SILU
                     : is_squared ? PLAN_ACTIVATION_RELU2
                     : is_quick   ? PLAN_ACTIVATION_QUICK_GELU
                     : is_fused   ? PLAN_ACTIVATION_GELU_TANH
                                  : PLAN_ACTIVATION_GELU;
}

static void
set_latent (PlanMegatronShape *self, const PlanMegatronSettings *s)
{
  self->is_latent_attention = plan_megatron_is_on (s, PLAN_MEGATRON_MULTI_LATENT_ATTENTION);
  if (!self->is_latent_attention)
    return;
  self->q_lora_rank = plan_megatron_int (s, PLAN_MEGATRON_Q_LORA_RANK);
  self->kv_lora_rank = plan_megatron_int (s, PLAN_MEGATRON_KV_LORA_RANK);
  self->qk_head_dim = plan_megatron_int (s, PLAN_MEGATRON_QK_HEAD_DIM);
  self->qk_positions_dim = plan_megatron_int (s, PLAN_MEGATRON_QK_POS_EMB_HEAD_DIM);
  self->v_head_dim = plan_megatron_int (s, PLAN_MEGATRON_V_HEAD_DIM);
  self->head_dim = self->qk_head_dim + self->qk_positions_dim;
  self->kv_heads = self->heads;
}

static void
set_delta (PlanMegatronShape *self, const PlanMegatronSettings *s)
{
  const PlanMegatronFlag variant = PLAN_MEGATRON_LINEAR_ATTENTION;
  self->has_output_gate = plan_megatron_is_on (s, PLAN_MEGATRON_ATTENTION_OUTPUT_GATE);
  self->has_other_variant
      = plan_megatron_is (s, variant, "gdn2") || plan_megatron_is (s, variant, "dsa");
  if (!plan_megatron_is (s, variant, "gdn") && !plan_megatron_is (s, variant, "gated_delta_net"))
    return;
  self->linear_layers = g_strdup (plan_megatron_value (s, PLAN_MEGATRON_LINEAR_ATTENTION_FREQ));
  self->delta = (PlanDelta){ .key_heads = plan_megatron_int (s, PLAN_MEGATRON_LINEAR_KEY_HEADS),
                             .value_heads = plan_megatron_int (s, PLAN_MEGATRON_LINEAR_VALUE_HEADS),
                             .key_dim = plan_megatron_int (s, PLAN_MEGATRON_LINEAR_KEY_DIM),
                             .value_dim = plan_megatron_int (s, PLAN_MEGATRON_LINEAR_VALUE_DIM),
                             .conv = plan_megatron_int (s, PLAN_MEGATRON_LINEAR_CONV_DIM) };
}

/* Sets layers by a pattern. Heads are as many as make twice the model's width unless they are told;
 * the convolution's width no flag tells (mamba_mixer.py). */
static void
set_pattern (PlanMegatronShape *self, const PlanMegatronSettings *s)
{
  const gint64 heads = plan_megatron_int (s, PLAN_MEGATRON_MAMBA_HEADS);
  const gint64 head_dim = plan_megatron_int (s, PLAN_MEGATRON_MAMBA_HEAD_DIM);
  if (!plan_megatron_is_given (s, PLAN_MEGATRON_HYBRID_LAYER_PATTERN))
    return;
  self->pattern = g_strdup (plan_megatron_value (s, PLAN_MEGATRON_HYBRID_LAYER_PATTERN));
  self->ssm = (PlanSsm){ .heads = heads > 0 ? heads : 2 * self->hidden / MAX (head_dim, 1),
                         .head_dim = head_dim,
                         .groups = plan_megatron_int (s, PLAN_MEGATRON_MAMBA_GROUPS),
                         .state = plan_megatron_int (s, PLAN_MEGATRON_MAMBA_STATE),
                         .conv = 4 };
  if (self->layers == 0)
    self->layers = (gint64)strlen (self->pattern);
}

static void
set_experts (PlanMegatronShape *self, const PlanMegatronSettings *s)
{
  self->experts = plan_megatron_int (s, PLAN_MEGATRON_NUM_EXPERTS);
  if (self->experts == 0)
    return;
  const gint64 ffn = plan_megatron_int (s, PLAN_MEGATRON_MOE_FFN_HIDDEN_SIZE);
  self->expert_ffn = ffn ? ffn : self->ffn;
  self->expert_hidden = plan_megatron_int (s, PLAN_MEGATRON_MOE_LATENT_SIZE);
  self->expert_topk = plan_megatron_int (s, PLAN_MEGATRON_MOE_ROUTER_TOPK);
  self->shared_expert_ffn = plan_megatron_int (s, PLAN_MEGATRON_MOE_SHARED_SIZE);
  self->shared_expert_gate
      = self->shared_expert_ffn > 0 && plan_megatron_is_on (s, PLAN_MEGATRON_MOE_SHARED_GATE);
  self->probs_on_input = plan_megatron_is_on (s, PLAN_MEGATRON_MOE_PROBS_ON_INPUT);
  self->balances_by_bias = plan_megatron_is_on (s, PLAN_MEGATRON_MOE_EXPERT_BIAS);
  self->router_score = plan_megatron_is (s, PLAN_MEGATRON_MOE_SCORE_FUNCTION, "sigmoid")
                           ? PLAN_ROUTER_SIGMOID
                       : plan_megatron_is (s, PLAN_MEGATRON_MOE_SCORE_FUNCTION, "sqrtsoftplus")
                           ? PLAN_ROUTER_SQRTSOFTPLUS
                           : PLAN_ROUTER_SOFTMAX;
  self->pre_softmax = self->router_score == PLAN_ROUTER_SOFTMAX
                      && plan_megatron_is_on (s, PLAN_MEGATRON_MOE_PRE_SOFTMAX);
  self->router_group_topk = plan_megatron_int (s, PLAN_MEGATRON_MOE_GROUP_TOPK);
  if (self->router_group_topk > 0)
    self->router_groups = plan_megatron_int (s, PLAN_MEGATRON_MOE_NUM_GROUPS);
  self->router_scale = plan_megatron_is_given (s, PLAN_MEGATRON_MOE_SCALING_FACTOR)
                           ? real_of (s, PLAN_MEGATRON_MOE_SCALING_FACTOR)
                           : 1;
  self->expert_layers = g_strdup (plan_megatron_value (s, PLAN_MEGATRON_MOE_LAYER_FREQ));
}

/* Sets the positions (rotary_pos_embedding.py, yarn_rotary_pos_embedding.py). Latent attention uses
 * yarn unless told otherwise, with defaults of transformer_config.py that no flag changes. */
static void
set_rope (PlanMegatronShape *self, const PlanMegatronSettings *s)
{
  const gboolean is_latent = self->is_latent_attention;
  const double factor = real_of (s, PLAN_MEGATRON_ROTARY_SCALING_FACTOR);
  const gboolean is_yarn = is_latent ? !plan_megatron_is (s, PLAN_MEGATRON_ROPE_TYPE, "rope")
                                     : strcmp (self->positions, "yarn") == 0;
  self->rope = (PlanRope){ .theta = real_of (s, PLAN_MEGATRON_ROTARY_BASE), .factor = 1 };
  if (is_yarn && factor > 1)
    self->rope = (PlanRope){
      .theta = self->rope.theta,
      .scaling = PLAN_ROPE_SCALING_YARN,
      .factor = factor,
      .original = is_latent ? 4096 : plan_megatron_int (s, PLAN_MEGATRON_YARN_ORIGINAL),
      .slow = is_latent ? 1 : real_of (s, PLAN_MEGATRON_YARN_BETA_SLOW),
      .fast = is_latent ? 32 : real_of (s, PLAN_MEGATRON_YARN_BETA_FAST),
      .mscale = real_of (s, PLAN_MEGATRON_MSCALE),
      .mscale_all = real_of (s, PLAN_MEGATRON_MSCALE_ALL_DIM),
      .is_fractional = !is_latent && !plan_megatron_is_on (s, PLAN_MEGATRON_YARN_ROUNDS),
    };
  else if (!is_latent && strcmp (self->positions, "rope") == 0
           && plan_megatron_is_on (s, PLAN_MEGATRON_USE_ROPE_SCALING))
    self->rope = (PlanRope){ .theta = self->rope.theta,
                             .scaling = PLAN_ROPE_SCALING_LLAMA3,
                             .factor = real_of (s, PLAN_MEGATRON_ROPE_SCALING_FACTOR),
                             .original = 8192,
                             .slow = 1,
                             .fast = 4 };
  if (strcmp (self->positions, "yarn") == 0)
    self->positions = "rope";
}

void
plan_megatron_shape_init (PlanMegatronShape *self, const PlanMegatronSettings *s, gint64 date)
{
  const gint64 hidden = plan_megatron_int (s, PLAN_MEGATRON_HIDDEN_SIZE);
  const gint64 heads = plan_megatron_int (s, PLAN_MEGATRON_NUM_ATTENTION_HEADS);
  const gint64 ffn = plan_megatron_int (s, PLAN_MEGATRON_FFN_HIDDEN_SIZE);
  const gint64 head_dim = plan_megatron_int (s, PLAN_MEGATRON_KV_CHANNELS);
  const gboolean biases = plan_megatron_is_on (s, PLAN_MEGATRON_ADD_BIAS_LINEAR);
  *self = (PlanMegatronShape){
    .layers = plan_megatron_int (s, PLAN_MEGATRON_NUM_LAYERS),
    .hidden = hidden,
    .ffn = ffn ? ffn : default_ffn (hidden, plan_megatron_is_on (s, PLAN_MEGATRON_SWIGLU)),
    .heads = heads,
    .kv_heads = plan_megatron_is_on (s, PLAN_MEGATRON_GROUP_QUERY_ATTENTION)
                    ? plan_megatron_int (s, PLAN_MEGATRON_NUM_QUERY_GROUPS)
                    : heads,
    .head_dim = head_dim                           ? head_dim
                : heads > 0 && hidden % heads == 0 ? hidden / heads
                                                   : 0,
    .max_seq = plan_megatron_int (s, PLAN_MEGATRON_MAX_POSITION_EMBEDDINGS),
    .mtp_layers = plan_megatron_int (s, PLAN_MEGATRON_MTP_NUM_LAYERS),
    .norm_epsilon = real_of (s, PLAN_MEGATRON_NORM_EPSILON),
    .rotary_percent = real_of (s, PLAN_MEGATRON_ROTARY_PERCENT),
    .is_rms_norm = plan_megatron_is (s, PLAN_MEGATRON_NORMALIZATION, "RMSNorm"),
    .norm_is_one_plus = plan_megatron_is_on (s, PLAN_MEGATRON_NORM_ONE_PLUS),
    .qk_layernorm = plan_megatron_is_on (s, PLAN_MEGATRON_QK_LAYERNORM)
                    && !plan_megatron_is_on (s, PLAN_MEGATRON_QK_L2_NORM),
    .qk_l2_norm = plan_megatron_is_on (s, PLAN_MEGATRON_QK_L2_NORM),
    .add_bias_linear = biases,
    .add_qkv_bias = biases || plan_megatron_is_on (s, PLAN_MEGATRON_ADD_QKV_BIAS),
    .has_sinks = plan_megatron_is (s, PLAN_MEGATRON_SOFTMAX_TYPE, "learnable"),
    .has_other_softmax = plan_megatron_is (s, PLAN_MEGATRON_SOFTMAX_TYPE, "off-by-one"),
    .is_tied = !plan_megatron_is_on (s, PLAN_MEGATRON_UNTIE),
    .no_rope_layers = g_strdup (plan_megatron_value (s, PLAN_MEGATRON_NO_ROPE_FREQ)),
    .window = g_strdup (plan_megatron_value (s, PLAN_MEGATRON_WINDOW_SIZE)),
    .window_layers = g_strdup (plan_megatron_value (s, PLAN_MEGATRON_WINDOW_SKIP_FREQ)),
    .positions
    = plan_megatron_is_on (s, PLAN_MEGATRON_USE_ROTARY)
          ? "rope"
          : g_intern_string (plan_megatron_value (s, PLAN_MEGATRON_POSITION_EMBEDDING_TYPE)),
    .tokenizer = g_intern_string (plan_megatron_value (s, PLAN_MEGATRON_TOKENIZER_TYPE)),
  };
  set_activation (self, s);
  set_latent (self, s);
  set_delta (self, s);
  set_pattern (self, s);
  set_rope (self, s);
  set_experts (self, s);
  set_vocab (self, s, date);
  set_other (self, s);
}

void
plan_megatron_shape_clear (PlanMegatronShape *self)
{
  g_clear_pointer (&self->expert_layers, g_free);
  g_clear_pointer (&self->linear_layers, g_free);
  g_clear_pointer (&self->pattern, g_free);
  g_clear_pointer (&self->no_rope_layers, g_free);
  g_clear_pointer (&self->window, g_free);
  g_clear_pointer (&self->window_layers, g_free);
  g_clear_pointer (&self->other, g_free);
}

static gboolean
check_complete (const PlanMegatronShape *self, GError **error)
{
  const struct
  {
    const char *flag;
    gint64 value;
  } needed[] = { { "--num-layers", self->layers },
                 { "--hidden-size", self->hidden },
                 { "--num-attention-heads", self->heads },
                 { "--max-position-embeddings", self->max_seq } };
  for (guint i = 0; i < G_N_ELEMENTS (needed); i++)
    if (needed[i].value == 0)
      {
        g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                     "%s is missing, which Megatron-LM needs: add it, or give the model with "
                     "--model",
                     needed[i].flag);
        return FALSE;
      }
  if (self->vocab == 0)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "the size of the vocabulary is in the tokenizer's files (%s), not in this text: "
                   "add --vocab-size N or --padded-vocab-size N, or give the model with --model",
                   self->tokenizer ? self->tokenizer : "no --tokenizer-type");
      return FALSE;
    }
  return TRUE;
}

static void
refuse (GString *text, gboolean is_so, const char *flags)
{
  if (is_so)
    g_string_append_printf (text, "%s%s", text->len > 0 ? "; " : "", flags);
}

/* Refuses what no model here can express. */
static gboolean
check_expressible (const PlanMegatronShape *self, GError **error)
{
  g_autoptr (GString) text = g_string_new (self->other);
  const gboolean is_learned = strcmp (self->positions, "learned_absolute") == 0;
  refuse (text, self->qk_layernorm && !self->is_rms_norm,
          "--qk-layernorm with --normalization LayerNorm, whose norms of queries and keys add "
          "biases");
  refuse (text, self->is_latent_attention && !self->qk_layernorm,
          "--multi-latent-attention without --qk-layernorm");
  refuse (text, self->is_latent_attention && is_learned,
          "--multi-latent-attention with --position-embedding-type learned_absolute");
  refuse (text, strcmp (self->positions, "relative") == 0 || strcmp (self->positions, "mrope") == 0,
          "--position-embedding-type relative or mrope");
  refuse (text, self->qk_l2_norm && self->is_latent_attention,
          "--qk-l2-norm with --multi-latent-attention");
  refuse (text, self->has_other_variant, "--experimental-attention-variant gdn2 or dsa");
  refuse (text, self->delta.key_heads > 0 && !self->linear_layers,
          "--experimental-attention-variant gdn without --linear-attention-freq");
  refuse (text, self->has_other_softmax, "--softmax-type off-by-one");
  refuse (text, self->pattern && strspn (self->pattern, "M*-E") < strlen (self->pattern),
          "--hybrid-layer-pattern with other letters than M, *, - and E, with | or with /");
  refuse (text, self->pattern && self->mtp_layers > 0,
          "--hybrid-layer-pattern with "
          "--mtp-num-layers");
  refuse (text, self->mtp_layers > 0 && !self->is_rms_norm,
          "--mtp-num-layers with --normalization LayerNorm");
  if (text->len == 0)
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
               "no model here can express: %s (fsdplan show --model-keys lists what one can)",
               text->str);
  return FALSE;
}

static void
add_int (GString *text, const char *key, gint64 value)
{
  if (value > 0)
    g_string_append_printf (text, ",%s=%" G_GINT64_FORMAT, key, value);
}

static void
add_real (GString *text, const char *key, double value)
{
  g_autofree char *shown = plan_units_format_real (value);
  g_string_append_printf (text, ",%s=%s", key, shown);
}

static void
add_flag (GString *text, const char *key, gboolean is_on)
{
  if (is_on)
    g_string_append_printf (text, ",%s=on", key);
}

/* The layers that a flag marks: those of a list; or, for a number, layer i if (i + shift) % number
 * == 0, which is_there = FALSE inverts. */
static guint8 *
marks_of (const char *text, PlanMegatronFlag flag, guint layers, guint shift, gboolean is_there,
          GError **error)
{
  gint64 number;
  if (strchr (text, '[')
      || !plan_units_parse_int (text, "", 1, PLAN_MEGATRON_PATTERN_MAX, &number, NULL))
    return plan_megatron_pattern_parse (text, plan_megatron_flag_name (flag), layers, error);
  guint8 *const marks = g_new (guint8, layers);
  for (guint i = 0; i < layers; i++)
    marks[i] = ((i + shift) % (guint)number == 0) == is_there;
  return marks;
}

static gboolean
refuse_pattern (PlanMegatronFlag flag, const char *text, const char *rule, GError **error)
{
  g_autofree char *shown = plan_text_quote (text);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED, "no model here can express %s %s: %s",
               plan_megatron_flag_name (flag), shown, rule);
  return FALSE;
}

/* Adds which layers have experts, in this program's keys: none of the first layers, and then the
 * last one in each group of `every` layers. */
static gboolean
add_expert_layers (GString *text, const PlanMegatronShape *self, GError **error)
{
  const PlanMegatronFlag flag = PLAN_MEGATRON_MOE_LAYER_FREQ;
  const guint layers = (guint)self->layers;
  guint first, every;
  g_autofree guint8 *marks = marks_of (self->expert_layers, flag, layers, 0, TRUE, error);
  if (!marks)
    return FALSE;
  if (!plan_megatron_pattern_rhythm (marks, layers, &first, &every))
    return refuse_pattern (flag, self->expert_layers, "no layer has experts", error);
  if (first + every >= layers) /* only one layer has experts */
    every = first + 1;
  gboolean fits = TRUE, needs_first = FALSE;
  for (guint i = 0; i < layers; i++)
    {
      const gboolean is_in_turn = (i + 1) % every == 0;
      needs_first = needs_first || (i < first && is_in_turn);
      fits = fits && marks[i] == (i >= first && is_in_turn);
    }
  if (!fits)
    return refuse_pattern (flag, self->expert_layers,
                           "experts must be in the last of every so many layers, but for the first "
                           "layers",
                           error);
  add_int (text, "dense_layers", needs_first ? first : 0);
  add_int (text, "moe_every", every);
  return TRUE;
}

static gboolean
add_experts (GString *text, const PlanMegatronShape *self, GError **error)
{
  static const char *const scores[] = { [PLAN_ROUTER_SOFTMAX] = "softmax",
                                        [PLAN_ROUTER_SIGMOID] = "sigmoid",
                                        [PLAN_ROUTER_SQRTSOFTPLUS] = "sqrtsoftplus" };
  if (self->experts == 0)
    return TRUE;
  add_int (text, "experts", self->experts);
  add_int (text, "topk", self->expert_topk);
  add_int (text, "expert_ffn", self->expert_ffn);
  add_int (text, "expert_hidden", self->expert_hidden);
  add_int (text, "shared_ffn", self->shared_expert_ffn);
  add_flag (text, "shared_gate", self->shared_expert_gate);
  add_flag (text, "scores_on_input", self->probs_on_input);
  add_flag (text, "router_bias", self->balances_by_bias);
  g_string_append_printf (text, ",router_score=%s", scores[self->router_score]);
  add_flag (text, "pre_softmax", self->pre_softmax);
  add_int (text, "router_groups", self->router_groups);
  add_int (text, "router_group_topk", self->router_group_topk);
  add_real (text, "router_scale", self->router_scale);
  add_flag (text, "expert_bias", self->add_bias_linear);
  return self->pattern || add_expert_layers (text, self, error);
}

/* Reads "(4095, 0)": tokens to the left and to the right, of which causal attention sees none. -1
 * means unlimited; the token itself is not counted. */
static gboolean
read_window (const PlanMegatronShape *self, gint64 *out_window, GError **error)
{
  g_autofree char *bare = g_strdelimit (g_strdup (self->window), "()", ' ');
  g_auto (GStrv) sides = g_strsplit (bare, ",", -1);
  gint64 left = 0, right;
  if (g_strv_length (sides) != 2
      || !plan_units_parse_int (g_strstrip (sides[0]), "", -1, G_MAXINT32 - 1, &left, NULL)
      || !plan_units_parse_int (g_strstrip (sides[1]), "", -1, G_MAXINT32, &right, NULL))
    {
      g_autofree char *shown = plan_text_quote (self->window);
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "--window-size: %s is not two numbers such as 4095,0", shown);
      return FALSE;
    }
  *out_window = left + 1;
  return TRUE;
}

static gboolean
add_window (GString *text, const PlanMegatronShape *self, GError **error)
{
  const PlanMegatronFlag flag = PLAN_MEGATRON_WINDOW_SKIP_FREQ;
  const guint layers = (guint)self->layers;
  gint64 window;
  guint first = 0, every = 1;
  if (!self->window)
    return TRUE;
  if (!read_window (self, &window, error))
    return FALSE;
  if (self->window_layers)
    {
      g_autofree guint8 *marks = marks_of (self->window_layers, flag, layers, 1, FALSE, error);
      if (!marks)
        return FALSE;
      if (!plan_megatron_pattern_rhythm (marks, layers, &first, &every))
        return TRUE;
      for (guint i = first; i < layers; i++)
        if (marks[i] != ((i - first) % every == 0))
          return refuse_pattern (flag, self->window_layers,
                                 "from the first layer with a window on, one in so many must have "
                                 "one",
                                 error);
    }
  add_int (text, "window", window);
  if (window > 0)
    {
      add_int (text, "window_from", first);
      add_int (text, "window_every", every);
    }
  return TRUE;
}

/* Adds which layers have no rotary positions: the last of every so many. */
static gboolean
add_no_rope (GString *text, const PlanMegatronShape *self, GError **error)
{
  const PlanMegatronFlag flag = PLAN_MEGATRON_NO_ROPE_FREQ;
  const guint layers = (guint)self->layers;
  guint first, every;
  if (!self->no_rope_layers
      || (strcmp (self->positions, "rope") != 0 && strcmp (self->positions, "yarn") != 0))
    return TRUE;
  g_autofree guint8 *marks = marks_of (self->no_rope_layers, flag, layers, 1, TRUE, error);
  if (!marks)
    return FALSE;
  if (!plan_megatron_pattern_rhythm (marks, layers, &first, &every))
    return TRUE;
  for (guint i = 0; i < layers; i++)
    if (marks[i] != ((i + 1) % (first + 1) == 0))
      return refuse_pattern (flag, self->no_rope_layers,
                             "the last of every so many layers must be without rotary positions",
                             error);
  add_int (text, "nope_every", first + 1);
  return TRUE;
}

/* Adds which layers have linear attention: all but the last of every so many. */
static gboolean
add_delta (GString *text, const PlanMegatronShape *self, GError **error)
{
  const PlanMegatronFlag flag = PLAN_MEGATRON_LINEAR_ATTENTION_FREQ;
  const guint layers = (guint)self->layers;
  guint every = 1;
  add_flag (text, "attn_gate", self->has_output_gate);
  if (!self->linear_layers)
    return TRUE;
  g_autofree guint8 *marks = marks_of (self->linear_layers, flag, layers, 1, FALSE, error);
  if (!marks)
    return FALSE;
  while (every <= layers && marks[every - 1])
    every++;
  if (every > layers) /* none has attention: the number says how many layers it would take */
    every = (guint)MAX (g_ascii_strtoull (self->linear_layers, NULL, 10), every);
  for (guint i = 0; i < layers; i++)
    if (marks[i] != ((i + 1) % every != 0))
      return refuse_pattern (flag, self->linear_layers,
                             "all but the last of every so many layers must have linear attention",
                             error);
  if (every == 1)
    return TRUE;
  add_int (text, "attn_every", every);
  add_int (text, "delta_key_heads", self->delta.key_heads);
  add_int (text, "delta_value_heads", self->delta.value_heads);
  add_int (text, "delta_key_dim", self->delta.key_dim);
  add_int (text, "delta_value_dim", self->delta.value_dim);
  add_int (text, "delta_conv", self->delta.conv);
  return TRUE;
}

static void
add_latent (GString *text, const PlanMegatronShape *self)
{
  add_int (text, "q_lora", self->q_lora_rank);
  add_int (text, "kv_lora", self->kv_lora_rank);
  add_int (text, "nope_dim", self->qk_head_dim);
  add_int (text, "rope_dim", self->qk_positions_dim);
  add_int (text, "v_dim", self->v_head_dim);
}

static void
add_rope_scaling (GString *text, const PlanRope *rope)
{
  if (rope->scaling == PLAN_ROPE_SCALING_NONE)
    return;
  const gboolean is_yarn = rope->scaling == PLAN_ROPE_SCALING_YARN;
  g_string_append_printf (text, ",rope_scaling=%s", is_yarn ? "yarn" : "llama3");
  add_real (text, "rope_factor", rope->factor);
  add_int (text, "rope_original", rope->original);
  add_real (text, "rope_slow", rope->slow);
  add_real (text, "rope_fast", rope->fast);
  if (is_yarn)
    {
      add_real (text, "rope_mscale", rope->mscale);
      add_real (text, "rope_mscale_all", rope->mscale_all);
      g_string_append (text, rope->is_fractional ? ",rope_fractional=on" : "");
    }
}

static void
add_properties (GString *text, const PlanMegatronShape *self)
{
  static const char *const activations[] = {
    [PLAN_ACTIVATION_SILU] = "silu",   [PLAN_ACTIVATION_GELU] = "gelu",
    [PLAN_ACTIVATION_RELU2] = "relu2", [PLAN_ACTIVATION_GELU_TANH] = "gelu_tanh",
    [PLAN_ACTIVATION_RELU] = "relu",   [PLAN_ACTIVATION_QUICK_GELU] = "quick_gelu",
  };
  const gboolean is_latent = self->is_latent_attention;
  add_real (text, "norm_eps", self->norm_epsilon);
  add_real (text, "rope_theta", self->rope.theta);
  add_flag (text, "tied", self->is_tied);
  if (!self->is_rms_norm)
    g_string_append (text, ",norm=layernorm,norm_bias=on");
  add_flag (text, "norm_1p", self->norm_is_one_plus);
  add_flag (text, "qk_norm", self->qk_layernorm && !is_latent);
  if (self->qk_l2_norm)
    g_string_append (text, ",qk_l2_norm=all");
  g_string_append_printf (text, ",activation=%s,gated=%s", activations[self->activation],
                          self->is_gated ? "on" : "off");
  if (self->glu_limit > 0)
    add_real (text, "glu_limit", self->glu_limit);
  if (self->glu_offset > 0)
    add_real (text, "glu_offset", self->glu_offset);
  add_flag (text, "qkv_bias", self->add_qkv_bias && !is_latent);
  add_flag (text, "proj_bias", self->add_bias_linear);
  add_flag (text, "mlp_bias", self->add_bias_linear);
  if (strcmp (self->positions, "learned_absolute") == 0)
    g_string_append (text, ",positions=learned");
  else if (strcmp (self->positions, "none") == 0 && !is_latent)
    g_string_append (text, ",positions=none");
  else if (self->rotary_percent != 1)
    add_real (text, "rope_fraction", self->rotary_percent);
  add_flag (text, "sinks", self->has_sinks);
  add_rope_scaling (text, &self->rope);
  add_int (text, "mtp", self->mtp_layers);
}

static void
add_pattern (GString *text, const PlanMegatronShape *self)
{
  if (!self->pattern)
    return;
  g_string_append_printf (text, ",pattern=%s", self->pattern);
  add_int (text, "ssm_heads", self->ssm.heads);
  add_int (text, "ssm_head_dim", self->ssm.head_dim);
  add_int (text, "ssm_groups", self->ssm.groups);
  add_int (text, "ssm_state", self->ssm.state);
  add_int (text, "ssm_conv", self->ssm.conv);
}

/* The text of the model, for plan_model_new. */
static char *
print_shape (const PlanMegatronShape *self, GError **error)
{
  g_autoptr (GString) text = g_string_new ("family=llama");
  const gboolean is_sane
      = self->layers <= PLAN_MEGATRON_PATTERN_MAX; /* the model's checks refuse more layers */
  if (!check_expressible (self, error) || !check_complete (self, error))
    return NULL;
  add_int (text, "layers", self->layers);
  add_int (text, "hidden", self->hidden);
  add_int (text, "ffn", self->ffn);
  add_int (text, "heads", self->heads);
  add_int (text, "kv_heads", self->kv_heads);
  add_int (text, "head_dim", self->head_dim);
  add_int (text, "vocab", self->vocab);
  add_int (text, "max_seq", self->max_seq);
  add_properties (text, self);
  if (self->is_latent_attention)
    add_latent (text, self);
  add_pattern (text, self);
  if (is_sane
      && (!add_experts (text, self, error) || !add_delta (text, self, error)
          || !add_window (text, self, error) || !add_no_rope (text, self, error)))
    return NULL;
  return g_string_free (g_steal_pointer (&text), FALSE);
}

/* Chooses the family, which flags do not name: the one whose defaults leave the fewest keys to
 * state, and of equals the first. */
static void
name_family (PlanModel *model)
{
  const char *const *const families = plan_model_families ();
  const char *best = NULL;
  guint least = G_MAXUINT;
  for (guint i = 0; families[i]; i++)
    {
      g_free (model->family);
      model->family = g_strdup (families[i]);
      g_autofree char *text = plan_model_print (model);
      guint n = 0;
      for (const char *c = text; *c; c++)
        n += *c == ',';
      if (n < least)
        {
          least = n;
          best = families[i];
        }
    }
  g_free (model->family);
  model->family = g_strdup (best);
}

PlanModel *
plan_megatron_shape_model (const PlanMegatronShape *self, GError **error)
{
  g_autofree char *spec = print_shape (self, error);
  PlanModel *const model = spec ? plan_model_new (spec, error) : NULL;
  if (model)
    name_family (model);
  return model;
}

/* A copy with the dimensions that the text leaves open taken from `model`. */
static PlanMegatronShape
complete_by (const PlanMegatronShape *self, const PlanModel *model)
{
  PlanMegatronShape shape = *self;
  gint64 *const open[] = { &shape.layers, &shape.heads, &shape.kv_heads, &shape.max_seq };
  const gint64 from[] = { model->layers, model->heads, model->kv_heads, model->max_seq };
  for (guint i = 0; i < G_N_ELEMENTS (open); i++)
    if (*open[i] == 0)
      *open[i] = from[i];
  /* padded or not, they are the rows of the same tokenizer */
  if (shape.vocab == 0 || shape.padded_vocab == round_up (model->vocab, OUR_VOCAB_MULTIPLE))
    shape.vocab = model->vocab;
  return shape;
}

/* Copies the keys of expert layers where two sets of keys describe the same layers. */
static void
align_layers (PlanModel *told, const PlanModel *model)
{
  if (told->layers != model->layers)
    return;
  for (gint64 i = 0; i < model->layers; i++)
    if (plan_model_is_moe_layer (told, i) != plan_model_is_moe_layer (model, i))
      return;
  told->dense_layers = model->dense_layers;
  told->moe_every = model->moe_every;
}

char *
plan_megatron_shape_compare (const PlanMegatronShape *self, const PlanModel *model, GError **error)
{
  if (self->hidden == 0)
    return NULL;
  const PlanMegatronShape shape = complete_by (self, model);
  g_autoptr (PlanModel) told = plan_megatron_shape_model (&shape, error);
  if (!told)
    return NULL;
  align_layers (told, model);
  if (model->window_chunks && !self->window) /* flags cannot say chunks */
    {
      told->window = model->window;
      told->full_every = model->full_every;
      told->window_chunks = TRUE;
    }
  g_autoptr (GString) text = g_string_new (NULL);
  guint n;
  const PlanModelKey *const keys = plan_model_keys (&n);
  for (guint i = 0; i < n; i++)
    {
      g_autofree char *a = plan_model_print_key (model, i), *b = plan_model_print_key (told, i);
      if (strcmp (a, b) != 0
          && (plan_model_key_matters (model, i) || plan_model_key_matters (told, i)))
        g_string_append_printf (text, "%s%s=%s, not %s", text->len > 0 ? "; " : "", keys[i].name, a,
                                b);
    }
  return text->len > 0 ? g_string_free (g_steal_pointer (&text), FALSE) : NULL;
}
