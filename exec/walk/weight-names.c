/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/walk/weight-names.h"

#include "planner/base/error.h"

#include <string.h>

#define MAX_PARTS 3

/* What files call a parameter, without the prefix of the inner model; a name that begins with a
 * slash never has the prefix. Several names are tensors that make up the parameter, one's rows
 * below the other's. %d stands for the layer, %e for the expert. */
typedef struct
{
  PlanTensorRole role;
  const char *name;
} Name;

#define EXPERT(name) "layers.%d.mlp.experts.%e." name ".weight"
#define MIXTRAL_EXPERT(name) "layers.%d.block_sparse_moe.experts.%e." name ".weight"

#define SHARED(module, name) "layers.%d.mlp." module "." name ".weight"

/* The names of experts are those of qwen3_moe, of shared ones, biases and latent attention those of
 * deepseek_v3. */
static const Name llama[] = {
  { PLAN_TENSOR_EMBEDDING, "embed_tokens.weight" },
  { PLAN_TENSOR_ATTENTION_NORM, "layers.%d.input_layernorm.weight" },
  { PLAN_TENSOR_QKV, "layers.%d.self_attn.q_proj.weight layers.%d.self_attn.k_proj.weight "
                     "layers.%d.self_attn.v_proj.weight" },
  { PLAN_TENSOR_QKV_BIAS, "layers.%d.self_attn.q_proj.bias layers.%d.self_attn.k_proj.bias "
                          "layers.%d.self_attn.v_proj.bias" },
  { PLAN_TENSOR_Q, "layers.%d.self_attn.q_proj.weight" },
  { PLAN_TENSOR_Q_DOWN, "layers.%d.self_attn.q_a_proj.weight" },
  { PLAN_TENSOR_Q_UP_NORM, "layers.%d.self_attn.q_a_layernorm.weight" },
  { PLAN_TENSOR_Q_UP, "layers.%d.self_attn.q_b_proj.weight" },
  { PLAN_TENSOR_KV_DOWN, "layers.%d.self_attn.kv_a_proj_with_mqa.weight" },
  { PLAN_TENSOR_KV_UP_NORM, "layers.%d.self_attn.kv_a_layernorm.weight" },
  { PLAN_TENSOR_KV_UP, "layers.%d.self_attn.kv_b_proj.weight" },
  { PLAN_TENSOR_Q_NORM, "layers.%d.self_attn.q_norm.weight" },
  { PLAN_TENSOR_K_NORM, "layers.%d.self_attn.k_norm.weight" },
  { PLAN_TENSOR_PROJ, "layers.%d.self_attn.o_proj.weight" },
  { PLAN_TENSOR_PROJ_BIAS, "layers.%d.self_attn.o_proj.bias" },
  { PLAN_TENSOR_MLP_NORM, "layers.%d.post_attention_layernorm.weight" },
  { PLAN_TENSOR_GATE_UP, "layers.%d.mlp.gate_proj.weight layers.%d.mlp.up_proj.weight" },
  { PLAN_TENSOR_GATE_UP_BIAS, "layers.%d.mlp.gate_proj.bias layers.%d.mlp.up_proj.bias" },
  { PLAN_TENSOR_DOWN, "layers.%d.mlp.down_proj.weight" },
  { PLAN_TENSOR_DOWN_BIAS, "layers.%d.mlp.down_proj.bias" },
  { PLAN_TENSOR_ROUTER, "layers.%d.mlp.gate.weight" },
  { PLAN_TENSOR_ROUTER_BIAS, "layers.%d.mlp.gate.e_score_correction_bias" },
  { PLAN_TENSOR_EXPERT_GATE_UP, EXPERT ("gate_proj") " " EXPERT ("up_proj") },
  { PLAN_TENSOR_EXPERT_DOWN, EXPERT ("down_proj") },
  { PLAN_TENSOR_SHARED_GATE_UP,
    SHARED ("shared_experts", "gate_proj") " " SHARED ("shared_experts", "up_proj") },
  { PLAN_TENSOR_SHARED_DOWN, SHARED ("shared_experts", "down_proj") },
  { PLAN_TENSOR_FINAL_NORM, "norm.weight" },
  { PLAN_TENSOR_OUTPUT, "/lm_head.weight" },
};

/* This list and those up to phi3 have the names that differ from llama's. */
static const Name qwen2_moe[] = {
  { PLAN_TENSOR_SHARED_GATE_UP,
    SHARED ("shared_expert", "gate_proj") " " SHARED ("shared_expert", "up_proj") },
  { PLAN_TENSOR_SHARED_DOWN, SHARED ("shared_expert", "down_proj") },
  { PLAN_TENSOR_SHARED_GATE, "layers.%d.mlp.shared_expert_gate.weight" },
};

static const Name mixtral[] = {
  { PLAN_TENSOR_ROUTER, "layers.%d.block_sparse_moe.gate.weight" },
  { PLAN_TENSOR_EXPERT_GATE_UP, MIXTRAL_EXPERT ("w1") " " MIXTRAL_EXPERT ("w3") },
  { PLAN_TENSOR_EXPERT_DOWN, MIXTRAL_EXPERT ("w2") },
};

/* The experts of a layer are one tensor, transposed; rows of gates and of up values alternate. */
static const Name gpt_oss[] = {
  { PLAN_TENSOR_SINKS, "layers.%d.self_attn.sinks" },
  { PLAN_TENSOR_ROUTER, "layers.%d.mlp.router.weight" },
  { PLAN_TENSOR_ROUTER_BIASES, "layers.%d.mlp.router.bias" },
  { PLAN_TENSOR_EXPERT_GATE_UP, "layers.%d.mlp.experts.gate_up_proj" },
  { PLAN_TENSOR_EXPERT_GATE_UP_BIAS, "layers.%d.mlp.experts.gate_up_proj_bias" },
  { PLAN_TENSOR_EXPERT_DOWN, "layers.%d.mlp.experts.down_proj" },
  { PLAN_TENSOR_EXPERT_DOWN_BIAS, "layers.%d.mlp.experts.down_proj_bias" },
};

/* The experts of a layer are one tensor, transposed. Rotary positions rotate neighbours. */
static const Name llama4[] = {
  { PLAN_TENSOR_GATE_UP,
    "layers.%d.feed_forward.gate_proj.weight layers.%d.feed_forward.up_proj.weight" },
  { PLAN_TENSOR_DOWN, "layers.%d.feed_forward.down_proj.weight" },
  { PLAN_TENSOR_ROUTER, "layers.%d.feed_forward.router.weight" },
  { PLAN_TENSOR_EXPERT_GATE_UP, "layers.%d.feed_forward.experts.gate_up_proj" },
  { PLAN_TENSOR_EXPERT_DOWN, "layers.%d.feed_forward.experts.down_proj" },
  { PLAN_TENSOR_SHARED_GATE_UP, "layers.%d.feed_forward.shared_expert.gate_proj.weight "
                                "layers.%d.feed_forward.shared_expert.up_proj.weight" },
  { PLAN_TENSOR_SHARED_DOWN, "layers.%d.feed_forward.shared_expert.down_proj.weight" },
};

static const Name gemma2[] = {
  { PLAN_TENSOR_ATTENTION_POST_NORM, "layers.%d.post_attention_layernorm.weight" },
  { PLAN_TENSOR_MLP_NORM, "layers.%d.pre_feedforward_layernorm.weight" },
  { PLAN_TENSOR_MLP_POST_NORM, "layers.%d.post_feedforward_layernorm.weight" },
};

static const Name phi3[] = {
  { PLAN_TENSOR_QKV, "layers.%d.self_attn.qkv_proj.weight" },
  { PLAN_TENSOR_GATE_UP, "layers.%d.mlp.gate_up_proj.weight" },
};

static const Name gpt2[] = {
  { PLAN_TENSOR_EMBEDDING, "wte.weight" },
  { PLAN_TENSOR_POSITIONS, "wpe.weight" },
  { PLAN_TENSOR_ATTENTION_NORM, "h.%d.ln_1.weight" },
  { PLAN_TENSOR_ATTENTION_NORM_BIAS, "h.%d.ln_1.bias" },
  { PLAN_TENSOR_QKV, "h.%d.attn.c_attn.weight" },
  { PLAN_TENSOR_QKV_BIAS, "h.%d.attn.c_attn.bias" },
  { PLAN_TENSOR_PROJ, "h.%d.attn.c_proj.weight" },
  { PLAN_TENSOR_PROJ_BIAS, "h.%d.attn.c_proj.bias" },
  { PLAN_TENSOR_MLP_NORM, "h.%d.ln_2.weight" },
  { PLAN_TENSOR_MLP_NORM_BIAS, "h.%d.ln_2.bias" },
  { PLAN_TENSOR_GATE_UP, "h.%d.mlp.c_fc.weight" },
  { PLAN_TENSOR_GATE_UP_BIAS, "h.%d.mlp.c_fc.bias" },
  { PLAN_TENSOR_DOWN, "h.%d.mlp.c_proj.weight" },
  { PLAN_TENSOR_DOWN_BIAS, "h.%d.mlp.c_proj.bias" },
  { PLAN_TENSOR_FINAL_NORM, "ln_f.weight" },
  { PLAN_TENSOR_FINAL_NORM_BIAS, "ln_f.bias" },
  { PLAN_TENSOR_OUTPUT, "/lm_head.weight" },
};

static const Name gpt_neox[] = {
  { PLAN_TENSOR_EMBEDDING, "embed_in.weight" },
  { PLAN_TENSOR_ATTENTION_NORM, "layers.%d.input_layernorm.weight" },
  { PLAN_TENSOR_ATTENTION_NORM_BIAS, "layers.%d.input_layernorm.bias" },
  { PLAN_TENSOR_QKV, "layers.%d.attention.query_key_value.weight" },
  { PLAN_TENSOR_QKV_BIAS, "layers.%d.attention.query_key_value.bias" },
  { PLAN_TENSOR_PROJ, "layers.%d.attention.dense.weight" },
  { PLAN_TENSOR_PROJ_BIAS, "layers.%d.attention.dense.bias" },
  { PLAN_TENSOR_MLP_NORM, "layers.%d.post_attention_layernorm.weight" },
  { PLAN_TENSOR_MLP_NORM_BIAS, "layers.%d.post_attention_layernorm.bias" },
  { PLAN_TENSOR_GATE_UP, "layers.%d.mlp.dense_h_to_4h.weight" },
  { PLAN_TENSOR_GATE_UP_BIAS, "layers.%d.mlp.dense_h_to_4h.bias" },
  { PLAN_TENSOR_DOWN, "layers.%d.mlp.dense_4h_to_h.weight" },
  { PLAN_TENSOR_DOWN_BIAS, "layers.%d.mlp.dense_4h_to_h.bias" },
  { PLAN_TENSOR_FINAL_NORM, "final_layer_norm.weight" },
  { PLAN_TENSOR_FINAL_NORM_BIAS, "final_layer_norm.bias" },
  { PLAN_TENSOR_OUTPUT, "/embed_out.weight" },
};

static const Name falcon[] = {
  { PLAN_TENSOR_EMBEDDING, "word_embeddings.weight" },
  { PLAN_TENSOR_ATTENTION_NORM, "h.%d.input_layernorm.weight" },
  { PLAN_TENSOR_ATTENTION_NORM_BIAS, "h.%d.input_layernorm.bias" },
  { PLAN_TENSOR_QKV, "h.%d.self_attention.query_key_value.weight" },
  { PLAN_TENSOR_QKV_BIAS, "h.%d.self_attention.query_key_value.bias" },
  { PLAN_TENSOR_PROJ, "h.%d.self_attention.dense.weight" },
  { PLAN_TENSOR_PROJ_BIAS, "h.%d.self_attention.dense.bias" },
  { PLAN_TENSOR_MLP_NORM, "h.%d.post_attention_layernorm.weight" },
  { PLAN_TENSOR_MLP_NORM_BIAS, "h.%d.post_attention_layernorm.bias" },
  { PLAN_TENSOR_GATE_UP, "h.%d.mlp.dense_h_to_4h.weight" },
  { PLAN_TENSOR_GATE_UP_BIAS, "h.%d.mlp.dense_h_to_4h.bias" },
  { PLAN_TENSOR_DOWN, "h.%d.mlp.dense_4h_to_h.weight" },
  { PLAN_TENSOR_DOWN_BIAS, "h.%d.mlp.dense_4h_to_h.bias" },
  { PLAN_TENSOR_FINAL_NORM, "ln_f.weight" },
  { PLAN_TENSOR_FINAL_NORM_BIAS, "ln_f.bias" },
  { PLAN_TENSOR_OUTPUT, "/lm_head.weight" },
};

/* What bloom has beyond falcon. */
static const Name bloom[] = {
  { PLAN_TENSOR_EMBED_NORM, "word_embeddings_layernorm.weight" },
  { PLAN_TENSOR_EMBED_NORM_BIAS, "word_embeddings_layernorm.bias" },
};

/* Models whose attention and MLP have a norm each, under other names than falcon's. */
static const Name falcon_norms[] = {
  { PLAN_TENSOR_ATTENTION_NORM, "h.%d.ln_attn.weight" },
  { PLAN_TENSOR_ATTENTION_NORM_BIAS, "h.%d.ln_attn.bias" },
  { PLAN_TENSOR_MLP_NORM, "h.%d.ln_mlp.weight" },
  { PLAN_TENSOR_MLP_NORM_BIAS, "h.%d.ln_mlp.bias" },
};

/* Without biases, which early files had and transformers does not read. */
static const Name mpt[] = {
  { PLAN_TENSOR_EMBEDDING, "wte.weight" },
  { PLAN_TENSOR_ATTENTION_NORM, "blocks.%d.norm_1.weight" },
  { PLAN_TENSOR_QKV, "blocks.%d.attn.Wqkv.weight" },
  { PLAN_TENSOR_PROJ, "blocks.%d.attn.out_proj.weight" },
  { PLAN_TENSOR_MLP_NORM, "blocks.%d.norm_2.weight" },
  { PLAN_TENSOR_GATE_UP, "blocks.%d.ffn.up_proj.weight" },
  { PLAN_TENSOR_DOWN, "blocks.%d.ffn.down_proj.weight" },
  { PLAN_TENSOR_FINAL_NORM, "norm_f.weight" },
  { PLAN_TENSOR_OUTPUT, "/lm_head.weight" },
};

#define OWN(names) .own = names, .n = G_N_ELEMENTS (names)
#define REST(names) .rest = names, .n_rest = G_N_ELEMENTS (names)
static const struct
{
  const Name *own;
  guint n;
  const Name *rest; /* names of the parameters that `own` lacks; NULL: the model has no others */
  guint n_rest;
  gboolean transposes;  /* matrices of products are transposed */
  gboolean interleaves; /* queries, keys and values: see exec_weight_head */
  gboolean stacks;      /* the experts of a layer are one tensor */
  gboolean alternates;  /* rows of its gates and up values do: see exec_weight_row */
  gboolean pairs; /* rotary positions rotate neighbours in a head, not elements of its halves */
} lists[EXEC_N_NAMINGS] = {
  [EXEC_NAMING_GPT2] = { OWN (gpt2), .transposes = TRUE },
  [EXEC_NAMING_GEMMA2] = { OWN (gemma2), REST (llama) },
  [EXEC_NAMING_PHI3] = { OWN (phi3), REST (llama) },
  [EXEC_NAMING_GPT_NEOX] = { OWN (gpt_neox), .interleaves = TRUE },
  [EXEC_NAMING_BLOOM] = { OWN (bloom), REST (falcon), .interleaves = TRUE },
  [EXEC_NAMING_FALCON_NORMS] = { OWN (falcon_norms), REST (falcon), .interleaves = TRUE },
  [EXEC_NAMING_FALCON] = { OWN (falcon), .interleaves = TRUE },
  [EXEC_NAMING_MPT] = { OWN (mpt) },
  [EXEC_NAMING_MIXTRAL] = { OWN (mixtral), REST (llama) },
  [EXEC_NAMING_GPT_OSS] = { OWN (gpt_oss), REST (llama), .stacks = TRUE, .alternates = TRUE },
  [EXEC_NAMING_QWEN2_MOE] = { OWN (qwen2_moe), REST (llama) },
  [EXEC_NAMING_LLAMA4] = { OWN (llama4), REST (llama), .stacks = TRUE, .pairs = TRUE },
  [EXEC_NAMING_LLAMA4_DENSE] = { OWN (llama4), REST (llama), .stacks = TRUE, .pairs = TRUE },
  [EXEC_NAMING_LLAMA] = { OWN (llama) },
};

static const struct
{
  const char *family, *prefix, *mark;
} namings[] = {
#define X(id, family, prefix, mark) { family, prefix, prefix mark },
  EXEC_NAMING_LIST (X)
#undef X
};

const char *
exec_naming_prefix (ExecNaming naming)
{
  return namings[naming].prefix;
}

ExecNaming
exec_naming_find (gboolean (*has) (const char *name, gpointer data), gpointer data)
{
  ExecNaming naming = 0;
  while (naming + 1 < EXEC_N_NAMINGS && !has (namings[naming].mark, data)
         && !has (namings[naming].mark + strlen (namings[naming].prefix), data))
    naming++;
  return naming;
}

ExecNaming
exec_naming_of (PlanArchitecture architecture, const PlanModel *model)
{
  switch (architecture)
    {
    case PLAN_ARCHITECTURE_GPT2:
      return EXEC_NAMING_GPT2;
    case PLAN_ARCHITECTURE_GEMMA2:
    case PLAN_ARCHITECTURE_GEMMA3:
      return EXEC_NAMING_GEMMA2;
    case PLAN_ARCHITECTURE_PHI3:
      return EXEC_NAMING_PHI3;
    case PLAN_ARCHITECTURE_GPT_NEOX:
      return EXEC_NAMING_GPT_NEOX;
    case PLAN_ARCHITECTURE_MPT:
      return EXEC_NAMING_MPT;
    case PLAN_ARCHITECTURE_BLOOM:
      return EXEC_NAMING_BLOOM;
    case PLAN_ARCHITECTURE_FALCON:
      return model->parallel && !model->shared_norm ? EXEC_NAMING_FALCON_NORMS : EXEC_NAMING_FALCON;
    case PLAN_ARCHITECTURE_MIXTRAL:
    case PLAN_ARCHITECTURE_MINIMAX_M2:
      return EXEC_NAMING_MIXTRAL;
    case PLAN_ARCHITECTURE_GPT_OSS:
      return EXEC_NAMING_GPT_OSS;
    case PLAN_ARCHITECTURE_QWEN2_MOE:
      return EXEC_NAMING_QWEN2_MOE;
    case PLAN_ARCHITECTURE_LLAMA4:
      return EXEC_NAMING_LLAMA4;
    case PLAN_ARCHITECTURE_QWEN3_NEXT: /* whose further names are in no list: `run` has none of them
                                        */
    case PLAN_ARCHITECTURE_QWEN3_5:
    case PLAN_ARCHITECTURE_QWEN3_5_MOE:
    case PLAN_ARCHITECTURE_NEMOTRON_H:
    case PLAN_ARCHITECTURE_SMOLLM3:
    case PLAN_ARCHITECTURE_GLM4_MOE:
    case PLAN_ARCHITECTURE_QWEN3_MOE:
    case PLAN_ARCHITECTURE_OLMOE:
    case PLAN_ARCHITECTURE_LLAMA:
    case PLAN_ARCHITECTURE_MISTRAL:
    case PLAN_ARCHITECTURE_QWEN2:
    case PLAN_ARCHITECTURE_QWEN3:
    case PLAN_ARCHITECTURE_GEMMA:
    case PLAN_ARCHITECTURE_DEEPSEEK_V2:
    case PLAN_ARCHITECTURE_DEEPSEEK_V3:
      return EXEC_NAMING_LLAMA;
    case PLAN_N_ARCHITECTURES:
      break;
    }
  g_return_val_if_reached (EXEC_NAMING_LLAMA);
}

guint64
exec_weight_head (const PlanModel *model, guint64 place)
{
  const guint64 heads = (guint64)model->heads, kv_heads = (guint64)model->kv_heads;
  const guint64 group = heads / kv_heads, key = place / (group + 2), within = place % (group + 2);
  return within < group    ? key * group + within
         : within == group ? heads + key
                           : heads + kv_heads + key;
}

guint
exec_weight_shape (const ExecWeightName *name, guint64 out_dims[3])
{
  const guint64 each = name->is_flat ? name->rows : name->rows / name->stacked;
  guint n = 0;
  if (name->stacked > 1 && !name->is_flat)
    out_dims[n++] = name->stacked;
  out_dims[n++] = name->is_transposed ? name->cols : each;
  if (!name->is_vector)
    out_dims[n++] = name->is_transposed ? each : name->cols;
  return n;
}

guint64
exec_weight_row (const ExecWeightName *name, guint64 place)
{
  const guint64 half = name->rows / name->stacked / 2;
  return name->alternates ? place % 2 * half + place / 2 : place;
}

/* The name of a parameter in one list; NULL where the list has none. */
static const char *
find_name (const Name *names, guint n, PlanTensorRole role)
{
  for (guint i = 0; i < n; i++)
    if (names[i].role == role)
      return names[i].name;
  return NULL;
}

/* The name of a parameter; "" where it has none. */
static const char *
name_of (ExecNaming naming, PlanTensorRole role)
{
  const char *own = find_name (lists[naming].own, lists[naming].n, role);
  const char *rest = own ? own : find_name (lists[naming].rest, lists[naming].n_rest, role);
  return rest ? rest : "";
}

static void
clear_name (gpointer data)
{
  g_free (((ExecWeightName *)data)->name);
}

/* Rows of one tensor of a parameter that consists of `n_parts` of them. Queries differ from keys
 * and values; gate and up have the same size. */
static guint64
rows_of (const PlanModel *model, const PlanTensor *tensor, ExecNaming naming, guint part,
         guint n_parts)
{
  const gboolean is_up
      = tensor->role == PLAN_TENSOR_GATE_UP || tensor->role == PLAN_TENSOR_GATE_UP_BIAS;
  const gboolean is_qkv = tensor->role == PLAN_TENSOR_QKV || tensor->role == PLAN_TENSOR_QKV_BIAS;
  const gint64 heads = part == 0 ? model->heads : model->kv_heads;
  if (is_qkv && n_parts > 1)
    return (guint64)(heads * model->head_dim);
  if (tensor->role == PLAN_TENSOR_EXPERT_GATE_UP)
    return (guint64)model->expert_ffn;
  if (tensor->role == PLAN_TENSOR_SHARED_GATE_UP)
    return (guint64)model->shared_ffn;
  return is_up && naming != EXEC_NAMING_PHI3 ? (guint64)model->ffn : tensor->rows;
}

/* Whether tensors of a kind are stored transposed by namings with `transposes`. */
static gboolean
is_linear (PlanTensorKind kind)
{
  return kind == PLAN_TENSOR_KIND_LINEAR;
}

/* A name with the numbers of layer and expert filled in; the caller frees. */
static char *
fill_in (const char *pattern, gint64 layer, gint64 expert)
{
  g_autoptr (GString) name = g_string_new (pattern);
  g_autofree char *of_layer = g_strdup_printf ("%" G_GINT64_FORMAT, layer);
  g_autofree char *of_expert = g_strdup_printf ("%" G_GINT64_FORMAT, expert);
  g_string_replace (name, "%d", of_layer, 0);
  g_string_replace (name, "%e", of_expert, 0);
  return g_string_free (g_steal_pointer (&name), FALSE);
}

static gboolean
is_expert (PlanTensorRole role)
{
  return role == PLAN_TENSOR_EXPERT_GATE_UP || role == PLAN_TENSOR_EXPERT_GATE_UP_BIAS
         || role == PLAN_TENSOR_EXPERT_DOWN || role == PLAN_TENSOR_EXPERT_DOWN_BIAS;
}

/* Adds the one tensor that is a parameter of all experts. */
static void
add_stack (GArray *list, const PlanModel *model, const PlanTensor *tensor, ExecNaming naming,
           gint64 layer)
{
  g_autofree char *inner = fill_in (name_of (naming, tensor->role), layer, 0);
  const gboolean is_up = tensor->role == PLAN_TENSOR_EXPERT_GATE_UP
                         || tensor->role == PLAN_TENSOR_EXPERT_GATE_UP_BIAS;
  const ExecWeightName name = { .name = g_strconcat (namings[naming].prefix, inner, NULL),
                                .role = tensor->role,
                                .layer = layer,
                                .rows = tensor->count * tensor->rows,
                                .cols = tensor->cols,
                                .stacked = tensor->count,
                                .is_vector = !is_linear (tensor->kind),
                                .is_transposed = is_linear (tensor->kind),
                                .alternates = lists[naming].alternates && is_up && model->gated };
  g_array_append_val (list, name);
}

/* Adds the tensors that make up one parameter (of one expert, where there are several); returns how
 * many rows they have. */
static guint64
add_parts (GArray *list, const PlanModel *model, const PlanTensor *tensor, ExecNaming naming,
           gint64 layer, gint64 expert)
{
  g_auto (GStrv) parts = g_strsplit (name_of (naming, tensor->role), " ", MAX_PARTS);
  const gboolean is_qkv = tensor->role == PLAN_TENSOR_QKV || tensor->role == PLAN_TENSOR_QKV_BIAS;
  const guint n = g_strv_length (parts);
  guint64 row = 0;
  for (guint i = 0; i < n; i++)
    {
      const gboolean is_outside = *parts[i] == '/';
      const gboolean has_pairs
          = lists[naming].pairs && is_qkv && i < 2; /* values are not rotated */
      g_autofree char *inner = fill_in (parts[i] + is_outside, layer, expert);
      const ExecWeightName name
          = { .name = g_strconcat (is_outside ? "" : namings[naming].prefix, inner, NULL),
              .role = tensor->role,
              .layer = layer,
              .first_row = (guint64)expert * tensor->rows + row,
              .rows = rows_of (model, tensor, naming, i, n),
              .cols = tensor->cols,
              .stacked = has_pairs ? (guint64)(i == 0 ? model->heads : model->kv_heads) : 1,
              .is_flat = has_pairs,
              .alternates = has_pairs,
              .is_vector
              = tensor->kind != PLAN_TENSOR_KIND_LINEAR && tensor->kind != PLAN_TENSOR_KIND_TABLE,
              .is_transposed = lists[naming].transposes && is_linear (tensor->kind),
              .is_interleaved = lists[naming].interleaves && is_qkv };
      row += name.rows;
      g_array_append_val (list, name);
    }
  return row;
}

static gboolean
add (GArray *list, const PlanModel *model, const PlanTensor *tensor, ExecNaming naming,
     gint64 layer, GError **error)
{
  gboolean is_whole = TRUE;
  const gboolean is_stack = lists[naming].stacks && is_expert (tensor->role);
  if (is_stack)
    add_stack (list, model, tensor, naming, layer);
  for (guint64 e = 0; !is_stack && e < tensor->count; e++)
    is_whole
        = add_parts (list, model, tensor, naming, layer, (gint64)e) == tensor->rows && is_whole;
  if (is_whole)
    return TRUE;
  g_set_error (
      error, PLAN_ERROR, PLAN_ERROR_INVALID,
      "model: weights of Hugging Face that are named as %s's have no %s of %" G_GUINT64_FORMAT
      " rows, which this model has",
      namings[naming].family, tensor->name, tensor->rows);
  return FALSE;
}

/* The order of parameters in a file: before the layers, within each layer, behind the layers. */
static const PlanTensorRole before[] = { PLAN_TENSOR_EMBEDDING, PLAN_TENSOR_POSITIONS,
                                         PLAN_TENSOR_EMBED_NORM, PLAN_TENSOR_EMBED_NORM_BIAS };
static const PlanTensorRole within[] = { PLAN_TENSOR_ATTENTION_NORM,
                                         PLAN_TENSOR_ATTENTION_NORM_BIAS,
                                         PLAN_TENSOR_QKV,
                                         PLAN_TENSOR_QKV_BIAS,
                                         PLAN_TENSOR_Q,
                                         PLAN_TENSOR_Q_DOWN,
                                         PLAN_TENSOR_Q_UP_NORM,
                                         PLAN_TENSOR_Q_UP,
                                         PLAN_TENSOR_KV_DOWN,
                                         PLAN_TENSOR_KV_UP_NORM,
                                         PLAN_TENSOR_KV_UP,
                                         PLAN_TENSOR_Q_NORM,
                                         PLAN_TENSOR_K_NORM,
                                         PLAN_TENSOR_PROJ,
                                         PLAN_TENSOR_PROJ_BIAS,
                                         PLAN_TENSOR_SINKS,
                                         PLAN_TENSOR_ATTENTION_POST_NORM,
                                         PLAN_TENSOR_MLP_NORM,
                                         PLAN_TENSOR_MLP_NORM_BIAS,
                                         PLAN_TENSOR_GATE_UP,
                                         PLAN_TENSOR_GATE_UP_BIAS,
                                         PLAN_TENSOR_DOWN,
                                         PLAN_TENSOR_DOWN_BIAS,
                                         PLAN_TENSOR_ROUTER,
                                         PLAN_TENSOR_ROUTER_BIAS,
                                         PLAN_TENSOR_ROUTER_BIASES,
                                         PLAN_TENSOR_EXPERT_GATE_UP,
                                         PLAN_TENSOR_EXPERT_GATE_UP_BIAS,
                                         PLAN_TENSOR_EXPERT_DOWN,
                                         PLAN_TENSOR_EXPERT_DOWN_BIAS,
                                         PLAN_TENSOR_SHARED_GATE_UP,
                                         PLAN_TENSOR_SHARED_DOWN,
                                         PLAN_TENSOR_SHARED_GATE,
                                         PLAN_TENSOR_MLP_POST_NORM };
static const PlanTensorRole behind[]
    = { PLAN_TENSOR_FINAL_NORM, PLAN_TENSOR_FINAL_NORM_BIAS, PLAN_TENSOR_OUTPUT };

/* Adds the tensors of the roles in `roles`, in that order. */
static gboolean
add_all (GArray *list, const PlanModel *model, const PlanTensorRole *roles, guint n_roles,
         const PlanTensor *tensors, guint n, ExecNaming naming, gint64 layer, GError **error)
{
  for (guint i = 0; i < n_roles; i++)
    for (guint t = 0; t < n; t++)
      if (tensors[t].role == roles[i] && !add (list, model, &tensors[t], naming, layer, error))
        return FALSE;
  return TRUE;
}

#define ROLES(roles) roles, G_N_ELEMENTS (roles)

GArray *
exec_weight_names (const PlanModel *model, ExecNaming naming, GError **error)
{
  g_autoptr (GArray) list = g_array_new (FALSE, FALSE, sizeof (ExecWeightName));
  if (naming == EXEC_NAMING_LLAMA && model->shared_gate) /* the first layer may have no experts */
    naming = EXEC_NAMING_QWEN2_MOE;
  PlanTensor outer[PLAN_N_TENSORS], inner[PLAN_N_TENSORS];
  const guint n = plan_model_outer_tensors (model, model->vocab, outer);
  g_array_set_clear_func (list, clear_name);
  if (!add_all (list, model, ROLES (before), outer, n, naming, 0, error))
    return NULL;
  for (gint64 layer = 0; layer < model->layers; layer++)
    if (!add_all (list, model, ROLES (within), inner,
                  plan_model_layer_tensors (model, layer, inner), naming, layer, error))
      return NULL;
  return add_all (list, model, ROLES (behind), outer, n, naming, 0, error) ? g_steal_pointer (&list)
                                                                           : NULL;
}
