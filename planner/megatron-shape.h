/* PlanMegatronShape: the model that Megatron-LM's flags describe, in neutral words, before it is
 * said in this program's. */
#pragma once
#include "planner/megatron-settings.h"
#include <glib.h>
G_BEGIN_DECLS

typedef enum
{
  PLAN_MEGATRON_ACTIVATION_GELU,
  PLAN_MEGATRON_ACTIVATION_SWIGLU,
  PLAN_MEGATRON_ACTIVATION_QUICK_GEGLU,
  PLAN_MEGATRON_ACTIVATION_SQUARED_RELU,
} PlanMegatronActivation;

typedef struct
{
  gint64 layers, hidden, ffn, heads, kv_heads, head_dim, max_seq; /* 0 where not given */
  gint64 vocab;        /* 0 where only the tokenizer's files tell; padding is the stack's */
  gint64 padded_vocab; /* as Megatron-LM pads it; 0 likewise */
  gint64 experts, expert_ffn, expert_topk, shared_expert_ffn; /* 0: dense */
  gint64 mtp_layers;
  double norm_epsilon, rotary_base, rotary_percent;
  PlanMegatronActivation activation;
  gboolean is_rms_norm, norm_is_one_plus, qk_layernorm;
  gboolean add_bias_linear, add_qkv_bias;
  gboolean is_tied, is_latent_attention;
  const char *positions; /* "rope", "learned_absolute", ... */
  const char *tokenizer; /* its type, for the message; or NULL */
  char *other;           /* flags that make it another architecture altogether; or NULL */
} PlanMegatronShape;

/* `date` (yyyymmdd) decides what older versions did with the vocabulary. */
void plan_megatron_shape_init (PlanMegatronShape *self, const PlanMegatronSettings *settings,
                               gint64 date);
/* Rows of the vocabulary as a stack here pads it. */
gint64 plan_megatron_shape_padded_here (const PlanMegatronShape *self, gint64 tp);

void plan_megatron_shape_clear (PlanMegatronShape *self);

/* What plan_model_new reads. UNSUPPORTED names the flags that no model here can express; INVALID
 * what is missing. */
char *plan_megatron_shape_print (const PlanMegatronShape *self, GError **error);

G_END_DECLS
