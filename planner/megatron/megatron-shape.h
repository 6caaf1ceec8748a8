/* PlanMegatronShape: the model that Megatron-LM's flags describe, in neutral words, before it is
 * said in this program's. */
#pragma once
#include "planner/megatron/megatron-settings.h"
#include "planner/model/model.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  gint64 layers, hidden, ffn, heads, kv_heads, head_dim, max_seq; /* 0 where not given */
  gint64 vocab;        /* 0 where only the tokenizer's files tell; padding is the stack's */
  gint64 padded_vocab; /* as Megatron-LM pads it; 0 likewise */
  gint64 experts, expert_ffn, expert_topk, shared_expert_ffn;                  /* 0: dense */
  gint64 q_lora_rank, kv_lora_rank, qk_head_dim, qk_positions_dim, v_head_dim; /* if latent */
  gint64 router_groups, router_group_topk;
  gint64 mtp_layers;
  double norm_epsilon, rotary_percent, router_scale;
  PlanRope rope;
  PlanActivation activation;
  PlanRouterScore router_score;
  gboolean is_gated, is_rms_norm, norm_is_one_plus, qk_layernorm;
  gboolean add_bias_linear, add_qkv_bias;
  gboolean shared_expert_gate, balances_by_bias, pre_softmax, has_sinks, has_other_softmax;
  gboolean is_tied, is_latent_attention;
  char *expert_layers;          /* a number or a list, planner/megatron/megatron-pattern.h */
  char *window, *window_layers; /* two numbers; likewise; each NULL where not given */
  const char *positions;        /* "rope", "learned_absolute", ... */
  const char *tokenizer;        /* its type, for the message; or NULL */
  char *other;                  /* flags that make it another architecture altogether; or NULL */
} PlanMegatronShape;

/* `date` (yyyymmdd) decides what older versions did with the vocabulary. */
void plan_megatron_shape_init (PlanMegatronShape *self, const PlanMegatronSettings *settings,
                               gint64 date);

/* Rows of the vocabulary as a stack here pads it. */
gint64 plan_megatron_shape_padded_here (const PlanMegatronShape *self, gint64 tp);

void plan_megatron_shape_clear (PlanMegatronShape *self);

/* The model, of the family that leaves least to say. UNSUPPORTED names the flags that no model here
 * can express; INVALID what is missing or cannot be read. */
PlanModel *plan_megatron_shape_model (const PlanMegatronShape *self, GError **error);

/* "layers=32, the text has 24; ...": where `model` is another than the text describes, of which it
 * may leave out what only a model needs. NULL where they agree or the text describes none; an error
 * where what it describes cannot be expressed. The caller frees. */
char *plan_megatron_shape_compare (const PlanMegatronShape *self, const PlanModel *model,
                                   GError **error);

G_END_DECLS
