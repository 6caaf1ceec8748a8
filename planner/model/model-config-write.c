/* SPDX-License-Identifier: Apache-2.0 */
/* The inverse of model-config.c. The text is read back and compared, so a model is written exactly
 * or not at all. */
#include "config.h"

#include "planner/model/model-config-write.h"

#include "planner/base/error.h"
#include "planner/base/units.h"
#include "planner/model/layer-kinds.h"
#include "planner/model/model-private.h"

#include <string.h>

static const struct
{
  const char *type, *class;
} architectures[] = {
#define X(id, type, class) [PLAN_ARCHITECTURE_##id] = { type, class },
  PLAN_ARCHITECTURE_LIST (X)
#undef X
};

const char *
plan_architecture_class (PlanArchitecture architecture)
{
  return architectures[architecture].class;
}

void
plan_model_put_text (GPtrArray *members, const char *key, const char *json)
{
  g_ptr_array_add (members, g_strdup_printf ("\"%s\": %s", key, json));
}

void
plan_model_put_int (GPtrArray *members, const char *key, gint64 value)
{
  g_ptr_array_add (members, g_strdup_printf ("\"%s\": %" G_GINT64_FORMAT, key, value));
}

/* Writes a real number. Without point or exponent Python would read a whole number, of which
 * transformers warns. */
void
plan_model_put_real (GPtrArray *members, const char *key, double value)
{
  g_autofree char *digits = plan_units_format_real (value);
  g_ptr_array_add (
      members, g_strdup_printf ("\"%s\": %s%s", key, digits, strpbrk (digits, ".e") ? "" : ".0"));
}

void
plan_model_put_word (GPtrArray *members, const char *key, const char *word)
{
  g_ptr_array_add (members, g_strdup_printf ("\"%s\": \"%s\"", key, word));
}

static void
put_flag (GPtrArray *members, const char *key, gboolean value)
{
  plan_model_put_text (members, key, value ? "true" : "false");
}

/* Writes the window; null stands for none. */
static void
put_window (GPtrArray *members, const PlanModel *self)
{
  if (self->window > 0)
    plan_model_put_int (members, "sliding_window", self->window);
  else
    plan_model_put_text (members, "sliding_window", "null");
}

/* Writes one word for each layer. */
static void
put_layer_types (GPtrArray *members, const PlanModel *self)
{
  g_autoptr (GString) types = g_string_new ("[");
  for (gint64 i = 0; i < self->layers; i++)
    {
      const gboolean slides
          = self->window > 0 && plan_model_layer_kind (self, i, G_MAXINT64) & PLAN_LAYER_WINDOWED;
      g_string_append_printf (types, "%s\"%s_attention\"", i ? ", " : "",
                              slides ? "sliding" : "full");
    }
  g_string_append_c (types, ']');
  plan_model_put_text (members, "layer_types", types->str);
}

/* Writes the window as Qwen has it, and the words per layer where layers alternate. */
static void
put_late_window (GPtrArray *members, const PlanModel *self)
{
  put_flag (members, "use_sliding_window", self->window > 0);
  put_window (members, self);
  plan_model_put_int (members, "max_window_layers",
                      self->window > 0 ? self->window_from : self->layers);
  if (self->window > 0 && (self->window_every > 1 || self->full_every > 0))
    put_layer_types (members, self);
}

/* Writes a bound; null stands for none. */
static void
put_softcap (GPtrArray *members, const char *key, double value)
{
  if (value > 0)
    plan_model_put_real (members, key, value);
  else
    plan_model_put_text (members, key, "null");
}

/* Writes attention's scale; transformers wants a whole number where it is one. */
static void
put_attn_scalar (GPtrArray *members, const PlanModel *self)
{
  const double scalar = self->attn_scalar > 0 ? self->attn_scalar : (double)self->head_dim;
  if (scalar == (double)(gint64)scalar)
    plan_model_put_int (members, "query_pre_attn_scalar", (gint64)scalar);
  else
    plan_model_put_real (members, "query_pre_attn_scalar", scalar);
}

static void
put_gemma2 (GPtrArray *members, const PlanModel *self)
{
  put_flag (members, "attention_bias", self->qkv_bias);
  put_attn_scalar (members, self);
  put_softcap (members, "attn_logit_softcapping", self->attn_softcap);
  put_softcap (members, "final_logit_softcapping", self->logit_softcap);
  put_window (members, self);
  put_layer_types (members, self);
  if (self->rope_local > 0) /* as gemma3 alone has it */
    plan_model_put_real (members, "rope_local_base_freq", self->rope_local);
}

/* MPT: the MLP is four times as wide as the model, and positions are ALiBi. */
static void
put_mpt (GPtrArray *members, const PlanModel *self)
{
  plan_model_put_int (members, "expansion_ratio", 4);
  put_flag (members, "no_bias", !self->norm_bias);
  plan_model_put_text (members, "attn_config",
                       "{ \"alibi\": true, \"attn_type\": \"multihead_attention\" }");
}

/* Falcon: the newer architecture has any number of key heads, and two norms unless it says one. */
static void
put_falcon (GPtrArray *members, const PlanModel *self)
{
  const gboolean has_one_key = self->kv_heads == 1;
  const gboolean is_new
      = self->parallel && (!self->shared_norm || (!has_one_key && self->kv_heads != self->heads));
  put_flag (members, "new_decoder_architecture", is_new);
  put_flag (members, "multi_query", has_one_key);
  plan_model_put_int (members, "num_kv_heads", self->kv_heads);
  put_flag (members, "parallel_attn", self->parallel);
  if (is_new)
    plan_model_put_int (members, "num_ln_in_parallel_attn", self->shared_norm ? 1 : 2);
  put_flag (members, "bias", self->qkv_bias);
  put_flag (members, "alibi", FALSE);
}

/* Qwen's experts: probabilities are over all experts unless normalised over the chosen ones. */
static void
put_qwen_experts (GPtrArray *members, const PlanModel *self, gboolean has_shared)
{
  g_autoptr (GString) dense = g_string_new ("[");
  for (gint64 i = 0; i < self->dense_layers; i++)
    g_string_append_printf (dense, "%s%" G_GINT64_FORMAT, i ? ", " : "", i);
  g_string_append_c (dense, ']');
  put_flag (members, has_shared ? "qkv_bias" : "attention_bias", self->qkv_bias);
  if (has_shared)
    plan_model_put_int (members, "shared_expert_intermediate_size", self->shared_ffn);
  put_flag (members, "norm_topk_prob", !self->pre_softmax);
  plan_model_put_int (members, "num_experts", self->experts);
  plan_model_put_int (members, "num_experts_per_tok", self->topk);
  plan_model_put_int (members, "moe_intermediate_size", self->expert_ffn);
  plan_model_put_int (members, "decoder_sparse_step", self->moe_every);
  plan_model_put_text (members, "mlp_only_layers", dense->str);
}

/* GLM's experts, as DeepSeek's files describe them; one group stands for none. */
static void
put_glm4_moe (GPtrArray *members, const PlanModel *self)
{
  put_flag (members, "attention_bias", self->qkv_bias);
  put_flag (members, "use_qk_norm", self->qk_norm);
  plan_model_put_real (members, "partial_rotary_factor", self->rope_fraction);
  plan_model_put_int (members, "n_routed_experts", self->experts);
  plan_model_put_int (members, "num_experts_per_tok", self->topk);
  plan_model_put_int (members, "moe_intermediate_size", self->expert_ffn);
  plan_model_put_int (members, "n_shared_experts", self->shared_ffn / MAX (self->expert_ffn, 1));
  plan_model_put_int (members, "first_k_dense_replace", self->dense_layers);
  plan_model_put_int (members, "n_group", MAX (self->router_groups, 1));
  plan_model_put_int (members, "topk_group", MAX (self->router_group_topk, 1));
  plan_model_put_real (members, "routed_scaling_factor", self->router_scale);
  put_flag (members, "norm_topk_prob", TRUE);
}

static void
put_mixtral (GPtrArray *members, const PlanModel *self)
{
  put_window (members, self);
  plan_model_put_int (members, "num_local_experts", self->experts);
  plan_model_put_int (members, "num_experts_per_tok", self->topk);
}

/* gpt-oss: which activation it is, its file does not say. */
static void
put_gpt_oss (GPtrArray *members, const PlanModel *self)
{
  put_flag (members, "attention_bias", self->qkv_bias);
  put_mixtral (members, self);
  put_layer_types (members, self);
  plan_model_put_real (members, "swiglu_limit", self->glu_limit);
}

static gboolean
is_deepseek (PlanArchitecture architecture)
{
  return architecture == PLAN_ARCHITECTURE_DEEPSEEK_V2
         || architecture == PLAN_ARCHITECTURE_DEEPSEEK_V3;
}

/* DeepSeek's experts and latent attention. V2's probabilities are a softmax over all experts, V3's
 * sigmoids with a bias: another router reads back as another model. */
static void
put_deepseek (GPtrArray *members, const PlanModel *self, gboolean is_v3)
{
  const gint64 groups = MAX (self->router_groups, 1);
  const char *of_v2 = groups > 1 ? "group_limited_greedy" : "greedy";
  plan_model_put_int (members, "num_key_value_heads", self->kv_heads);
  plan_model_put_int (members, "n_routed_experts", self->experts);
  plan_model_put_int (members, "n_shared_experts",
                      self->expert_ffn > 0 ? self->shared_ffn / self->expert_ffn : 0);
  plan_model_put_int (members, "num_experts_per_tok", self->topk);
  plan_model_put_int (members, "moe_intermediate_size", self->expert_ffn);
  plan_model_put_int (members, "first_k_dense_replace", self->dense_layers);
  plan_model_put_int (members, "n_group", groups);
  plan_model_put_int (members, "topk_group", MAX (self->router_group_topk, 1));
  plan_model_put_word (members, "topk_method", is_v3 ? "noaux_tc" : of_v2);
  plan_model_put_word (members, "scoring_func", is_v3 ? "sigmoid" : "softmax");
  put_flag (members, "norm_topk_prob", is_v3);
  plan_model_put_real (members, "routed_scaling_factor", self->router_scale);
  if (self->q_lora > 0)
    plan_model_put_int (members, "q_lora_rank", self->q_lora);
  else
    plan_model_put_text (members, "q_lora_rank", "null");
  plan_model_put_int (members, "kv_lora_rank", self->kv_lora);
  plan_model_put_int (members, "qk_nope_head_dim", self->nope_dim);
  plan_model_put_int (members, "qk_rope_head_dim", self->rope_dim);
  plan_model_put_int (members, "v_head_dim", self->v_dim);
  put_flag (members, "rope_interleave", TRUE);
  put_flag (members, "attention_bias", self->qkv_bias);
}

/* The epsilon of norms. transformers' norms of latent vectors have 1e-6 whatever the file says, so
 * another epsilon reads back as another model. */
static double
norm_eps_of (const PlanModel *self, PlanArchitecture architecture)
{
  return is_deepseek (architecture) ? 1e-6 : self->norm_eps;
}

static void
put_gpt_neox (GPtrArray *members, const PlanModel *self)
{
  put_flag (members, "attention_bias", self->qkv_bias);
  put_flag (members, "use_parallel_residual", self->parallel);
  plan_model_put_real (members, "rotary_pct", self->rope_fraction);
}

/* Writes that there is no dropout: a probability is a plan's, and weights that are exported have
 * none. */
static void
put_no_dropout (GPtrArray *members, PlanArchitecture architecture)
{
  const char *keys = architecture == PLAN_ARCHITECTURE_GPT2 ? "attn_pdrop embd_pdrop resid_pdrop"
                                                            : "hidden_dropout attention_dropout";
  g_auto (GStrv) key = g_strsplit (keys, " ", -1);
  for (guint i = 0; key[i]; i++)
    plan_model_put_real (members, key[i], 0);
}

static void
put_phi3 (GPtrArray *members, const PlanModel *self)
{
  put_window (members, self);
  plan_model_put_real (members, "partial_rotary_factor", self->rope_fraction);
}

static void
put_llama (GPtrArray *members, const PlanModel *self)
{
  put_flag (members, "attention_bias", self->qkv_bias);
  put_flag (members, "mlp_bias", self->mlp_bias);
}

/* Writes a 0 for each layer without rotary positions, and a 1 for others. */
static void
put_nope_layers (GPtrArray *members, const PlanModel *self)
{
  g_autoptr (GString) layers = g_string_new ("[");
  for (gint64 i = 0; i < self->layers; i++)
    g_string_append_printf (layers, "%s%d", i ? ", " : "",
                            plan_model_layer_kind (self, i, G_MAXINT64) & PLAN_LAYER_NOPE ? 0 : 1);
  g_string_append_c (layers, ']');
  plan_model_put_text (members, "no_rope_layers", layers->str);
}

static void
put_smollm3 (GPtrArray *members, const PlanModel *self)
{
  put_llama (members, self);
  put_flag (members, "use_sliding_window", FALSE);
  put_nope_layers (members, self);
}

/* Llama 4: layers attend in chunks where they have rotary positions, and there alone norms are. */
static void
put_llama4 (GPtrArray *members, const PlanModel *self)
{
  put_flag (members, "attention_bias", self->qkv_bias);
  put_nope_layers (members, self);
  if (self->window > 0)
    plan_model_put_int (members, "attention_chunk_size", self->window);
  else
    plan_model_put_text (members, "attention_chunk_size", "null");
  put_flag (members, "use_qk_norm", self->qk_l2_norm != PLAN_QK_L2_OFF);
  plan_model_put_int (members, "intermediate_size", self->expert_ffn);
  plan_model_put_int (members, "num_local_experts", self->experts);
  plan_model_put_int (members, "num_experts_per_tok", self->topk);
  plan_model_put_int (members, "interleave_moe_layer_step", self->moe_every);
}

static void
put_olmoe (GPtrArray *members, const PlanModel *self)
{
  put_flag (members, "attention_bias", self->qkv_bias);
  plan_model_put_int (members, "num_experts", self->experts);
  plan_model_put_int (members, "num_experts_per_tok", self->topk);
  put_flag (members, "norm_topk_prob", !self->pre_softmax);
}

static void
put_minimax_m2 (GPtrArray *members, const PlanModel *self)
{
  const double rotary = self->rope_fraction * (double)self->head_dim;
  put_flag (members, "use_qk_norm", self->qk_norm != PLAN_QK_NORM_OFF);
  plan_model_put_int (members, "rotary_dim", (gint64)(rotary + 0.5));
  plan_model_put_real (members, "partial_rotary_factor", self->rope_fraction);
  plan_model_put_int (members, "num_local_experts", self->experts);
  plan_model_put_int (members, "num_experts_per_tok", self->topk);
}

/* Gated DeltaNet, and which layers have attention. Newer versions of transformers read the words,
 * older ones the stride; rotary positions are written with the share of a head that they turn. */
static void
put_delta (GPtrArray *members, const PlanModel *self)
{
  const PlanDelta *d = &self->delta;
  g_autoptr (GString) types = g_string_new ("[");
  for (gint64 i = 0; i < self->layers; i++)
    g_string_append_printf (types, "%s\"%s_attention\"", i ? ", " : "",
                            plan_model_is_delta_layer (self, i) ? "linear" : "full");
  g_string_append_c (types, ']');
  plan_model_put_int (members, "full_attention_interval", MAX (d->attn_every, 1));
  plan_model_put_text (members, "layer_types", types->str);
  put_flag (members, "attn_output_gate", self->attn_gate);
  plan_model_put_real (members, "partial_rotary_factor", self->rope_fraction);
  plan_model_put_int (members, "linear_num_key_heads", MAX (d->key_heads, 1));
  plan_model_put_int (members, "linear_num_value_heads", MAX (d->value_heads, 1));
  plan_model_put_int (members, "linear_key_head_dim", MAX (d->key_dim, 1));
  plan_model_put_int (members, "linear_value_head_dim", MAX (d->value_dim, 1));
  plan_model_put_int (members, "linear_conv_kernel_dim", MAX (d->conv, 1));
}

static void
put_qwen3_next (GPtrArray *members, const PlanModel *self, PlanArchitecture architecture)
{
  put_delta (members, self);
  if (architecture == PLAN_ARCHITECTURE_QWEN3_NEXT)
    put_qwen_experts (members, self, FALSE);
  else
    put_flag (members, "attention_bias", self->qkv_bias);
  if (architecture == PLAN_ARCHITECTURE_QWEN3_5_MOE)
    {
      plan_model_put_int (members, "num_experts", self->experts);
      plan_model_put_int (members, "num_experts_per_tok", self->topk);
      plan_model_put_int (members, "mtp_num_hidden_layers", self->mtp);
    }
  if (architecture != PLAN_ARCHITECTURE_QWEN3_5)
    plan_model_put_int (members, "shared_expert_intermediate_size", self->shared_ffn);
}

/* Nemotron-H: layers by a pattern. */
static void
put_nemotron_h (GPtrArray *members, const PlanModel *self)
{
  const PlanSsm *m = &self->ssm;
  plan_model_put_word (members, "hybrid_override_pattern", self->pattern.of);
  plan_model_put_int (members, "mamba_num_heads", MAX (m->heads, 1));
  plan_model_put_int (members, "mamba_head_dim", MAX (m->head_dim, 1));
  plan_model_put_int (members, "n_groups", MAX (m->groups, 1));
  plan_model_put_int (members, "ssm_state_size", MAX (m->state, 1));
  plan_model_put_int (members, "conv_kernel", MAX (m->conv, 1));
  if (self->experts == 0)
    return;
  plan_model_put_int (members, "n_routed_experts", self->experts);
  plan_model_put_int (members, "num_experts_per_tok", self->topk);
  plan_model_put_int (members, "moe_intermediate_size", self->expert_ffn);
  if (self->expert_hidden > 0)
    plan_model_put_int (members, "moe_latent_size", self->expert_hidden);
  plan_model_put_int (members, "n_shared_experts", self->shared_ffn > 0 ? 1 : 0);
  if (self->shared_ffn > 0)
    plan_model_put_int (members, "moe_shared_expert_intermediate_size", self->shared_ffn);
  plan_model_put_int (members, "n_group", MAX (self->router_groups, 1));
  plan_model_put_int (members, "topk_group", MAX (self->router_group_topk, 1));
  plan_model_put_real (members, "routed_scaling_factor", self->router_scale);
  put_flag (members, "norm_topk_prob", TRUE);
}

/* Writes what only this architecture, with experts or a pattern, has. */
static void
put_experts (GPtrArray *members, const PlanModel *self, PlanArchitecture architecture)
{
  if (architecture == PLAN_ARCHITECTURE_MIXTRAL)
    put_mixtral (members, self);
  else if (architecture == PLAN_ARCHITECTURE_GLM4_MOE)
    put_glm4_moe (members, self);
  else if (architecture == PLAN_ARCHITECTURE_GPT_OSS)
    put_gpt_oss (members, self);
  else if (architecture == PLAN_ARCHITECTURE_LLAMA4)
    put_llama4 (members, self);
  else if (architecture == PLAN_ARCHITECTURE_OLMOE)
    put_olmoe (members, self);
  else if (architecture == PLAN_ARCHITECTURE_MINIMAX_M2)
    put_minimax_m2 (members, self);
  else if (architecture == PLAN_ARCHITECTURE_NEMOTRON_H)
    put_nemotron_h (members, self);
  else if (self->delta.attn_every > 0)
    put_qwen3_next (members, self, architecture);
  else
    put_qwen_experts (members, self, architecture == PLAN_ARCHITECTURE_QWEN2_MOE);
}

/* Writes what only this architecture has. */
static void
put_rest (GPtrArray *members, const PlanModel *self, PlanArchitecture architecture)
{
  switch (architecture)
    {
    case PLAN_ARCHITECTURE_LLAMA:
      put_llama (members, self);
      break;
    case PLAN_ARCHITECTURE_MISTRAL:
      put_window (members, self);
      break;
    case PLAN_ARCHITECTURE_QWEN3:
    case PLAN_ARCHITECTURE_QWEN2:
      if (architecture == PLAN_ARCHITECTURE_QWEN3)
        put_flag (members, "attention_bias", self->qkv_bias);
      put_late_window (members, self);
      break;
    case PLAN_ARCHITECTURE_MIXTRAL:
    case PLAN_ARCHITECTURE_QWEN2_MOE:
    case PLAN_ARCHITECTURE_QWEN3_MOE:
    case PLAN_ARCHITECTURE_GLM4_MOE:
    case PLAN_ARCHITECTURE_GPT_OSS:
    case PLAN_ARCHITECTURE_LLAMA4:
    case PLAN_ARCHITECTURE_OLMOE:
    case PLAN_ARCHITECTURE_MINIMAX_M2:
    case PLAN_ARCHITECTURE_QWEN3_NEXT:
    case PLAN_ARCHITECTURE_QWEN3_5:
    case PLAN_ARCHITECTURE_QWEN3_5_MOE:
    case PLAN_ARCHITECTURE_NEMOTRON_H:
      put_experts (members, self, architecture);
      break;
    case PLAN_ARCHITECTURE_GPT2:
    case PLAN_ARCHITECTURE_BLOOM:
      put_no_dropout (members, architecture);
      break;
    case PLAN_ARCHITECTURE_GEMMA:
      put_flag (members, "attention_bias", self->qkv_bias);
      break;
    case PLAN_ARCHITECTURE_GEMMA2:
    case PLAN_ARCHITECTURE_GEMMA3:
      put_gemma2 (members, self);
      break;
    case PLAN_ARCHITECTURE_PHI3:
      put_phi3 (members, self);
      break;
    case PLAN_ARCHITECTURE_GPT_NEOX:
      put_gpt_neox (members, self);
      break;
    case PLAN_ARCHITECTURE_FALCON:
      put_falcon (members, self);
      break;
    case PLAN_ARCHITECTURE_MPT:
      put_mpt (members, self);
      break;
    case PLAN_ARCHITECTURE_SMOLLM3:
      put_smollm3 (members, self);
      break;
    case PLAN_ARCHITECTURE_DEEPSEEK_V2:
    case PLAN_ARCHITECTURE_DEEPSEEK_V3:
    case PLAN_N_ARCHITECTURES:
      break;
    }
}

static const char *
torch_dtype (PlanDtype dtype)
{
  return dtype == PLAN_DTYPE_BF16 ? "bfloat16" : dtype == PLAN_DTYPE_FP16 ? "float16" : "float32";
}

/* Whether an architecture writes the width of heads and the number of key heads. */
static gboolean
says_heads (PlanArchitecture architecture)
{
  return architecture != PLAN_ARCHITECTURE_GPT2 && architecture != PLAN_ARCHITECTURE_GPT_NEOX
         && architecture != PLAN_ARCHITECTURE_MPT && architecture != PLAN_ARCHITECTURE_FALCON
         && architecture != PLAN_ARCHITECTURE_BLOOM && !is_deepseek (architecture);
}

/* Writes the activation. Versions of transformers read gemma's under different names, and all take
 * it as this one. */
static void
put_activation (GPtrArray *members, const PlanModel *self, PlanArchitecture architecture,
                const char *key)
{
  if (architecture == PLAN_ARCHITECTURE_GEMMA)
    {
      plan_model_put_word (members, "hidden_act", "gelu_pytorch_tanh");
      plan_model_put_word (members, "hidden_activation", "gelu_pytorch_tanh");
    }
  else if (key)
    plan_model_put_word (members, key, plan_model_activation_name (self->activation));
}

static void
put_positions (GPtrArray *members, const PlanModel *self, PlanArchitecture architecture)
{
  if (architecture == PLAN_ARCHITECTURE_GPT_NEOX)
    plan_model_put_rope (members, self, "rotary_emb_base");
  else if (architecture != PLAN_ARCHITECTURE_GPT2 && architecture != PLAN_ARCHITECTURE_MPT
           && architecture != PLAN_ARCHITECTURE_BLOOM
           && architecture != PLAN_ARCHITECTURE_NEMOTRON_H)
    plan_model_put_rope (members, self, "rope_theta");
  if (architecture == PLAN_ARCHITECTURE_GPT_OSS && self->rope.scaling == PLAN_ROPE_SCALING_NONE)
    plan_model_put_text (members, "rope_scaling", "{ \"rope_type\": \"default\" }"); /* else yarn */
}

/* Writes the text for one architecture. Special tokens are not known here: null keeps transformers
 * from assuming an end-of-text token, and a padding token, which would not be trained. */
static char *
print_as (const PlanModel *self, PlanArchitecture architecture, PlanDtype dtype)
{
  const PlanModelFamily *family = plan_model_family_find (architectures[architecture].type);
  g_autoptr (GPtrArray) members = g_ptr_array_new_with_free_func (g_free);
  g_autofree char *classes = g_strdup_printf ("[\"%s\"]", architectures[architecture].class);
  plan_model_put_text (members, "architectures", classes);
  plan_model_put_word (members, "model_type", family->name);
  plan_model_put_int (members, "vocab_size", self->vocab);
  plan_model_put_int (members, family->hidden, self->hidden);
  plan_model_put_int (members, family->layers, self->layers);
  if (family->ffn)
    plan_model_put_int (members, family->ffn, self->ffn);
  plan_model_put_int (members, family->heads, self->heads);
  if (says_heads (architecture))
    {
      plan_model_put_int (members, "num_key_value_heads", self->kv_heads);
      plan_model_put_int (members, "head_dim", self->head_dim);
    }
  plan_model_put_int (members, family->max_seq, self->max_seq);
  put_activation (members, self, architecture, family->activation);
  plan_model_put_real (members, family->norm_eps, norm_eps_of (self, architecture));
  put_flag (members, "tie_word_embeddings", self->tied_embeddings);
  put_positions (members, self, architecture);
  if (is_deepseek (architecture))
    put_deepseek (members, self, architecture == PLAN_ARCHITECTURE_DEEPSEEK_V3);
  else
    put_rest (members, self, architecture);
  plan_model_put_text (members, "bos_token_id", "null");
  plan_model_put_text (members, "eos_token_id", "null");
  if (architecture > PLAN_ARCHITECTURE_GPT2)
    plan_model_put_text (members, "pad_token_id", "null");
  plan_model_put_word (members, "torch_dtype", torch_dtype (dtype));
  g_ptr_array_add (members, NULL);
  g_autofree char *list = g_strjoinv (",\n  ", (char **)members->pdata);
  return g_strdup_printf ("{\n  %s\n}\n", list);
}

/* What another model's text loses of this model, as "KEY=VALUE, ..."; NULL: nothing. */
static char *
find_lost (const PlanModel *self, const PlanModel *read)
{
  g_autoptr (GString) lost = g_string_new (NULL);
  guint n;
  const PlanModelKey *keys = plan_model_keys (&n);
  for (guint i = 0; i < n; i++)
    {
      g_autofree char *ours = plan_model_print_key (self, i);
      g_autofree char *theirs = plan_model_print_key (read, i);
      if ((plan_model_key_matters (self, i) || plan_model_key_matters (read, i))
          && !g_str_equal (ours, theirs))
        g_string_append_printf (lost, "%s%s=%s", lost->len ? ", " : "", keys[i].name, ours);
    }
  return lost->len ? g_string_free (g_steal_pointer (&lost), FALSE) : NULL;
}

/* The text for one architecture; NULL where it would read back as another model. */
static char *
try_as (const PlanModel *self, PlanArchitecture architecture, PlanDtype dtype, GError **error)
{
  g_autofree char *text = print_as (self, architecture, dtype);
  g_autoptr (PlanModel) read
      = plan_model_parse_config (text, strlen (text), architectures[architecture].type, error);
  g_autofree char *lost = read ? find_lost (self, read) : NULL;
  if (read && !lost)
    return g_steal_pointer (&text);
  if (lost)
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED, "%s in transformers has no %s",
                 architectures[architecture].class, lost);
  return NULL;
}

char *
plan_model_print_config (const PlanModel *self, PlanDtype dtype, PlanArchitecture *out_architecture,
                         GError **error)
{
  g_autoptr (GError) why = NULL;
  guint own = 0;
  while (own < PLAN_N_ARCHITECTURES && !g_str_equal (architectures[own].type, self->family))
    own++;
  const guint first = own % PLAN_N_ARCHITECTURES;
  for (guint i = 0; i <= PLAN_N_ARCHITECTURES; i++)
    {
      const PlanArchitecture at = (PlanArchitecture)(i == 0 ? first : i - 1);
      char *text = i > 0 && at == first ? NULL : try_as (self, at, dtype, i == 0 ? &why : NULL);
      if (!text)
        continue;
      *out_architecture = at;
      return text;
    }
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
               "model: %s cannot be written for transformers: %s", self->name, why->message);
  return NULL;
}
