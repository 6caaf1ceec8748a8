/* PlanMegatronShape: the model that Megatron-LM's flags describe, before it is translated into this
 * program's keys. */
#pragma once
#include "planner/megatron/megatron-settings.h"
#include "planner/model/model.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  gint64 layers, hidden, ffn, heads, kv_heads, head_dim, max_seq; /* 0 where not given */
  gint64 vocab;        /* 0 where only the tokenizer's files tell it; without padding */
  gint64 padded_vocab; /* as Megatron-LM pads it; 0 likewise */
  gint64 experts, expert_ffn, expert_hidden, expert_topk, shared_expert_ffn; /* 0: dense */
  gint64 q_lora_rank, kv_lora_rank, qk_head_dim, qk_positions_dim,
      v_head_dim; /* of latent attention */
  gint64 router_groups, router_group_topk;
  gint64 mtp_layers;
  double norm_epsilon, rotary_percent, router_scale, glu_limit, glu_offset;
  PlanRope rope;
  PlanActivation activation;
  PlanRouterScore router_score;
  gboolean is_gated, is_rms_norm, norm_is_one_plus, qk_layernorm;
  gboolean add_bias_linear, add_qkv_bias;
  gboolean shared_expert_gate, probs_on_input, qk_l2_norm, balances_by_bias, pre_softmax, has_sinks,
      has_other_softmax;
  gboolean is_tied, is_latent_attention;
  gboolean has_output_gate, has_other_variant; /* of attention; of linear attention */
  PlanDelta delta;      /* linear attention: heads and widths; attn_every stays 0 */
  char *pattern;        /* a letter per layer; NULL: layers are transformers' */
  PlanSsm ssm;          /* its layers of state spaces */
  char *linear_layers;  /* as expert_layers, of what has no linear attention; NULL: none has */
  char *expert_layers;  /* a number or a list, see planner/megatron/megatron-pattern.h */
  char *no_rope_layers; /* as expert_layers; NULL where not given */
  char *window, *window_layers; /* two numbers; as expert_layers; NULL where not given */
  const char *positions;        /* "rope", "learned_absolute", ... */
  const char *tokenizer;        /* its type, for messages; or NULL */
  char *other;                  /* flags that make it a different architecture; or NULL */
} PlanMegatronShape;

/* `date` (yyyymmdd) determines how older versions treated the vocabulary. */
void plan_megatron_shape_init (PlanMegatronShape *self, const PlanMegatronSettings *settings,
                               gint64 date);

/* The rows of the vocabulary as this program's stack pads it. */
gint64 plan_megatron_shape_padded_here (const PlanMegatronShape *self, gint64 tp);

void plan_megatron_shape_clear (PlanMegatronShape *self);

/* The model, of the family whose defaults fit best. UNSUPPORTED names the flags that no model here
 * can express; INVALID what is missing or cannot be read. */
PlanModel *plan_megatron_shape_model (const PlanMegatronShape *self, GError **error);

/* Differences such as "layers=32, the text has 24; ..." of `model` from the text's model, which may
 * lack keys that only a model needs. NULL where they agree or the text describes no model; an error
 * where the text's model cannot be expressed. The caller frees. */
char *plan_megatron_shape_compare (const PlanMegatronShape *self, const PlanModel *model,
                                   GError **error);

G_END_DECLS
