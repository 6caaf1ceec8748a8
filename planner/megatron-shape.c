/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/megatron-shape.h"

#include "planner/error.h"
#include "planner/units.h"

#include <string.h>

/* PR #4057: until then NullTokenizer added a token of its own for the end of a document. */
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

/* arguments.py: a gated MLP has two thirds of 4 x hidden, in whole multiples of 64. */
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
  /* Said exactly where the stack, which pads to a multiple of 128 x tp, comes to the same size. */
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
  static const PlanMegatronFlag flags[] = { PLAN_MEGATRON_HYBRID_LAYER_PATTERN,
                                            PLAN_MEGATRON_LINEAR_ATTENTION,
                                            PLAN_MEGATRON_HETEROGENEOUS,
                                            PLAN_MEGATRON_MHC,
                                            PLAN_MEGATRON_WINDOW_SIZE,
                                            PLAN_MEGATRON_CHECKPOINT_ARGS,
                                            PLAN_MEGATRON_YAML };
  g_autoptr (GString) names = g_string_new (NULL);
  for (guint i = 0; i < G_N_ELEMENTS (flags); i++)
    if (plan_megatron_is_given (settings, flags[i])
        && !plan_megatron_is (settings, flags[i], "off"))
      g_string_append_printf (names, "%s%s", names->len > 0 ? ", " : "",
                              plan_megatron_flag_name (flags[i]));
  self->other = names->len > 0 ? g_strdup (names->str) : NULL;
}

static PlanMegatronActivation
activation_of (const PlanMegatronSettings *settings)
{
  if (plan_megatron_is_on (settings, PLAN_MEGATRON_SQUARED_RELU))
    return PLAN_MEGATRON_ACTIVATION_SQUARED_RELU;
  return plan_megatron_is_on (settings, PLAN_MEGATRON_QUICK_GEGLU)
             ? PLAN_MEGATRON_ACTIVATION_QUICK_GEGLU
             : PLAN_MEGATRON_ACTIVATION_GELU;
}

void
plan_megatron_shape_init (PlanMegatronShape *self, const PlanMegatronSettings *s, gint64 date)
{
  const gboolean is_gated = plan_megatron_is_on (s, PLAN_MEGATRON_SWIGLU);
  const gint64 hidden = plan_megatron_int (s, PLAN_MEGATRON_HIDDEN_SIZE);
  const gint64 heads = plan_megatron_int (s, PLAN_MEGATRON_NUM_ATTENTION_HEADS);
  const gint64 ffn = plan_megatron_int (s, PLAN_MEGATRON_FFN_HIDDEN_SIZE);
  const gint64 head_dim = plan_megatron_int (s, PLAN_MEGATRON_KV_CHANNELS);
  const gboolean biases = plan_megatron_is_on (s, PLAN_MEGATRON_ADD_BIAS_LINEAR);
  *self = (PlanMegatronShape){
    .layers = plan_megatron_int (s, PLAN_MEGATRON_NUM_LAYERS),
    .hidden = hidden,
    .ffn = ffn ? ffn : default_ffn (hidden, is_gated),
    .heads = heads,
    .kv_heads = plan_megatron_is_on (s, PLAN_MEGATRON_GROUP_QUERY_ATTENTION)
                    ? plan_megatron_int (s, PLAN_MEGATRON_NUM_QUERY_GROUPS)
                    : heads,
    .head_dim = head_dim                           ? head_dim
                : heads > 0 && hidden % heads == 0 ? hidden / heads
                                                   : 0,
    .max_seq = plan_megatron_int (s, PLAN_MEGATRON_MAX_POSITION_EMBEDDINGS),
    .experts = plan_megatron_int (s, PLAN_MEGATRON_NUM_EXPERTS),
    .expert_ffn = plan_megatron_int (s, PLAN_MEGATRON_MOE_FFN_HIDDEN_SIZE),
    .expert_topk = plan_megatron_int (s, PLAN_MEGATRON_MOE_ROUTER_TOPK),
    .shared_expert_ffn = plan_megatron_int (s, PLAN_MEGATRON_MOE_SHARED_SIZE),
    .mtp_layers = plan_megatron_int (s, PLAN_MEGATRON_MTP_NUM_LAYERS),
    .norm_epsilon = real_of (s, PLAN_MEGATRON_NORM_EPSILON),
    .rotary_base = real_of (s, PLAN_MEGATRON_ROTARY_BASE),
    .rotary_percent = real_of (s, PLAN_MEGATRON_ROTARY_PERCENT),
    .activation = is_gated ? PLAN_MEGATRON_ACTIVATION_SWIGLU : activation_of (s),
    .is_rms_norm = plan_megatron_is (s, PLAN_MEGATRON_NORMALIZATION, "RMSNorm"),
    .norm_is_one_plus = plan_megatron_is_on (s, PLAN_MEGATRON_NORM_ONE_PLUS),
    .qk_layernorm = plan_megatron_is_on (s, PLAN_MEGATRON_QK_LAYERNORM),
    .add_bias_linear = biases,
    .add_qkv_bias = biases || plan_megatron_is_on (s, PLAN_MEGATRON_ADD_QKV_BIAS),
    .is_tied = !plan_megatron_is_on (s, PLAN_MEGATRON_UNTIE),
    .is_latent_attention = plan_megatron_is_on (s, PLAN_MEGATRON_MULTI_LATENT_ATTENTION),
    .positions
    = plan_megatron_is_on (s, PLAN_MEGATRON_USE_ROTARY)
          ? "rope"
          : g_intern_string (plan_megatron_value (s, PLAN_MEGATRON_POSITION_EMBEDDING_TYPE)),
    .tokenizer = g_intern_string (plan_megatron_value (s, PLAN_MEGATRON_TOKENIZER_TYPE)),
  };
  set_vocab (self, s, date);
  set_other (self, s);
}

void
plan_megatron_shape_clear (PlanMegatronShape *self)
{
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
need (GString *text, gboolean is_there, const char *flags)
{
  if (!is_there)
    g_string_append_printf (text, "%s%s", text->len > 0 ? ", " : "", flags);
}

/* What today's only family, llama, lacks. */
static gboolean
check_llama (const PlanMegatronShape *self, GError **error)
{
  g_autoptr (GString) text = g_string_new (self->other);
  need (text, self->is_rms_norm && !self->norm_is_one_plus,
        self->is_rms_norm ? "--apply-layernorm-1p" : "--normalization LayerNorm");
  need (text, self->activation == PLAN_MEGATRON_ACTIVATION_SWIGLU, "an MLP without --swiglu");
  need (text, !self->add_bias_linear, "biases (no --disable-bias-linear)");
  need (text, self->add_bias_linear || !self->add_qkv_bias, "--add-qkv-bias");
  need (text, !self->qk_layernorm, "--qk-layernorm");
  need (text, strcmp (self->positions, "rope") == 0,
        "positions that are not --position-embedding-type rope");
  need (text, self->rotary_percent == 1, "--rotary-percent");
  need (text, self->experts == 0, "--num-experts");
  need (text, !self->is_latent_attention, "--multi-latent-attention");
  need (text, self->mtp_layers == 0, "--mtp-num-layers");
  if (text->len == 0)
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
               "this model is not modelled yet, only the llama family is: %s", text->str);
  return FALSE;
}

char *
plan_megatron_shape_print (const PlanMegatronShape *self, GError **error)
{
  if (!check_llama (self, error) || !check_complete (self, error))
    return NULL;
  GString *text = g_string_new ("family=llama");
  const struct
  {
    const char *key;
    gint64 value;
  } sizes[] = { { "layers", self->layers },     { "hidden", self->hidden },
                { "ffn", self->ffn },           { "heads", self->heads },
                { "kv_heads", self->kv_heads }, { "head_dim", self->head_dim },
                { "vocab", self->vocab },       { "max_seq", self->max_seq } };
  for (guint i = 0; i < G_N_ELEMENTS (sizes); i++)
    if (sizes[i].value > 0)
      g_string_append_printf (text, ",%s=%" G_GINT64_FORMAT, sizes[i].key, sizes[i].value);
  g_autofree char *epsilon = plan_units_format_real (self->norm_epsilon);
  g_autofree char *base = plan_units_format_real (self->rotary_base);
  g_string_append_printf (text, ",norm_eps=%s,rope_theta=%s,tied=%s", epsilon, base,
                          self->is_tied ? "on" : "off");
  return g_string_free (text, FALSE);
}
