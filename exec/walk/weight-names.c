/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/walk/weight-names.h"

#include "planner/base/error.h"

#include <string.h>

#define MAX_PARTS 3

/* X (ROLE, parts, one below the other, of llama's kind; the part of gpt2's kind; whether that is
 * the other way round). %d is the layer. */
#define LLAMA "model.layers.%d."
#define GPT2 EXEC_WEIGHT_PREFIX
#define NAME_LIST(X) \
  X (EMBEDDING, "model.embed_tokens.weight", GPT2 "wte.weight", FALSE) \
  X (POSITIONS, "", GPT2 "wpe.weight", FALSE) \
  X (ATTENTION_NORM, LLAMA "input_layernorm.weight", GPT2 "h.%d.ln_1.weight", FALSE) \
  X (ATTENTION_NORM_BIAS, LLAMA "input_layernorm.bias", GPT2 "h.%d.ln_1.bias", FALSE) \
  X (QKV, \
     LLAMA "self_attn.q_proj.weight " LLAMA "self_attn.k_proj.weight " LLAMA \
           "self_attn.v_proj.weight", \
     GPT2 "h.%d.attn.c_attn.weight", TRUE) \
  X (QKV_BIAS, \
     LLAMA "self_attn.q_proj.bias " LLAMA "self_attn.k_proj.bias " LLAMA "self_attn.v_proj.bias", \
     GPT2 "h.%d.attn.c_attn.bias", FALSE) \
  X (Q_NORM, LLAMA "self_attn.q_norm.weight", "", FALSE) \
  X (K_NORM, LLAMA "self_attn.k_norm.weight", "", FALSE) \
  X (PROJ, LLAMA "self_attn.o_proj.weight", GPT2 "h.%d.attn.c_proj.weight", TRUE) \
  X (PROJ_BIAS, LLAMA "self_attn.o_proj.bias", GPT2 "h.%d.attn.c_proj.bias", FALSE) \
  X (MLP_NORM, LLAMA "post_attention_layernorm.weight", GPT2 "h.%d.ln_2.weight", FALSE) \
  X (MLP_NORM_BIAS, LLAMA "post_attention_layernorm.bias", GPT2 "h.%d.ln_2.bias", FALSE) \
  X (GATE_UP, LLAMA "mlp.gate_proj.weight " LLAMA "mlp.up_proj.weight", \
     GPT2 "h.%d.mlp.c_fc.weight", TRUE) \
  X (GATE_UP_BIAS, LLAMA "mlp.gate_proj.bias " LLAMA "mlp.up_proj.bias", \
     GPT2 "h.%d.mlp.c_fc.bias", FALSE) \
  X (DOWN, LLAMA "mlp.down_proj.weight", GPT2 "h.%d.mlp.c_proj.weight", TRUE) \
  X (DOWN_BIAS, LLAMA "mlp.down_proj.bias", GPT2 "h.%d.mlp.c_proj.bias", FALSE) \
  X (FINAL_NORM, "model.norm.weight", GPT2 "ln_f.weight", FALSE) \
  X (FINAL_NORM_BIAS, "model.norm.bias", GPT2 "ln_f.bias", FALSE) \
  X (OUTPUT, "lm_head.weight", "lm_head.weight", FALSE)

static const struct
{
  PlanTensorRole role;
  const char *llama, *gpt2;
  gboolean turns;
} names[] = {
#define X(id, llama, gpt2, turns) { PLAN_TENSOR_##id, llama, gpt2, turns },
  NAME_LIST (X)
#undef X
};

static void
clear_name (gpointer data)
{
  g_free (((ExecWeightName *)data)->name);
}

/* Rows of a part of a parameter of so many: queries, keys and values differ, the rest is even. */
static guint64
rows_of (const PlanModel *model, const PlanTensor *tensor, guint part, guint n_parts)
{
  const gboolean is_qkv = tensor->role == PLAN_TENSOR_QKV || tensor->role == PLAN_TENSOR_QKV_BIAS;
  const gint64 heads = part == 0 ? model->heads : model->kv_heads;
  if (is_qkv && n_parts > 1)
    return (guint64)(heads * model->head_dim);
  return tensor->role == PLAN_TENSOR_GATE_UP || tensor->role == PLAN_TENSOR_GATE_UP_BIAS
             ? (guint64)model->ffn
             : tensor->rows;
}

static gboolean
add (GArray *list, const PlanModel *model, guint at, gboolean is_gpt2, gint64 layer, GError **error)
{
  const PlanTensor tensor = plan_model_tensor (model, names[at].role, model->vocab);
  g_auto (GStrv) parts = g_strsplit (is_gpt2 ? names[at].gpt2 : names[at].llama, " ", MAX_PARTS);
  g_autofree char *number = g_strdup_printf ("%" G_GINT64_FORMAT, layer);
  const guint n = g_strv_length (parts);
  guint64 row = 0;
  for (guint i = 0; i < n; i++)
    {
      g_auto (GStrv) pieces = g_strsplit (parts[i], "%d", 2);
      const ExecWeightName name = { .name = g_strjoinv (number, pieces),
                                    .role = tensor.role,
                                    .layer = layer,
                                    .first_row = row,
                                    .rows = rows_of (model, &tensor, i, n),
                                    .cols = tensor.cols,
                                    .is_vector = tensor.kind == PLAN_TENSOR_KIND_GAIN
                                                 || tensor.kind == PLAN_TENSOR_KIND_BIAS,
                                    .is_turned = is_gpt2 && names[at].turns };
      row += name.rows;
      g_array_append_val (list, name);
    }
  if (row == tensor.rows)
    return TRUE;
  g_set_error (
      error, PLAN_ERROR, PLAN_ERROR_INVALID,
      "model: weights of Hugging Face that are named as %s's have no %s of %" G_GUINT64_FORMAT
      " rows, which this model has",
      is_gpt2 ? "gpt2" : "llama", tensor.name, tensor.rows);
  return FALSE;
}

static gboolean
is_in_layers (guint at)
{
  return strstr (names[at].llama, "%d") != NULL;
}

GArray *
exec_weight_names (const PlanModel *model, gboolean is_gpt2, GError **error)
{
  g_autoptr (GArray) list = g_array_new (FALSE, FALSE, sizeof (ExecWeightName));
  g_array_set_clear_func (list, clear_name);
  for (guint at = 0, next; at < G_N_ELEMENTS (names); at = next)
    {
      for (next = at + 1; is_in_layers (at) && next < G_N_ELEMENTS (names) && is_in_layers (next);)
        next++;
      for (gint64 layer = 0; layer < (is_in_layers (at) ? model->layers : 1); layer++)
        for (guint i = at; i < next; i++)
          if (plan_model_tensor (model, names[i].role, model->vocab).rows > 0
              && !add (list, model, i, is_gpt2, layer, error))
            return NULL;
    }
  return g_steal_pointer (&list);
}
