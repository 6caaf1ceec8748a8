/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors of a model, and counts that follow from them. For counting there are two kinds of
 * layers, dense ones and those with experts, so every sum is over one layer of each kind. */
#include "config.h"

#include "planner/model/layer-kinds.h"
#include "planner/model/model-private.h"

static const enum {
  PLACE_OUTER,
  PLACE_LAYER,
  PLACE_DENSE,
  PLACE_MOE,
  PLACE_MTP
} places[]
    = {
#define X(id, number, name, place, ...) [PLAN_TENSOR_##id] = PLACE_##place,
        PLAN_TENSOR_LIST (X)
#undef X
      };

static const PlanTensorRole order[] = {
#define X(id, ...) PLAN_TENSOR_##id,
  PLAN_TENSOR_LIST (X)
#undef X
};

/* Whether a part of a model lacks a parameter that lies before or behind the layers. */
static gboolean
is_cut_off (const PlanModelCut *cut, PlanTensorRole role)
{
  switch ((int)role)
    {
    case PLAN_TENSOR_EMBEDDING:
      return cut->no_embedding
             && cut->modules == 0; /* prediction modules read a copy of the embedding */
    case PLAN_TENSOR_POSITIONS:
    case PLAN_TENSOR_EMBED_NORM:
    case PLAN_TENSOR_EMBED_NORM_BIAS:
      return cut->no_embedding;
    case PLAN_TENSOR_FINAL_NORM:
    case PLAN_TENSOR_FINAL_NORM_BIAS:
    case PLAN_TENSOR_OUTPUT:
    case PLAN_TENSOR_MTP_EMBEDDING_NORM:
    case PLAN_TENSOR_MTP_HIDDEN_NORM:
    case PLAN_TENSOR_MTP_PROJ:
    case PLAN_TENSOR_MTP_FINAL_NORM:
      return cut->no_head;
    default:
      return FALSE;
    }
}

static PlanTensor
tensor_of (const PlanModel *self, PlanTensorRole role, gint64 vocab)
{
  const PlanModel *const m = self;
  const gboolean mla = m->kv_lora > 0;
  const gint64 h = m->hidden, q = m->heads * m->head_dim, kv = m->kv_heads * m->head_dim;
  const gint64 v = mla ? m->heads * m->v_dim : q, up = m->gated ? 2 : 1;
  switch (role)
    {
#define X(id, number, text, place, group, sort, copies, n_rows, n_cols) \
  case PLAN_TENSOR_##id: \
    return (PlanTensor){ \
      .role = role, \
      .name = text, \
      .part = PLAN_PART_##group, \
      .kind = PLAN_TENSOR_KIND_##sort, \
      .count = (PLACE_##place == PLACE_MOE && m->experts == 0) ? 0 : (guint64)(copies), \
      .rows \
      = (PLACE_##place == PLACE_MOE && m->experts == 0) || !(copies) ? 0 : (guint64)(n_rows), \
      .cols = (guint64)(n_cols), \
    };
      PLAN_TENSOR_LIST (X)
#undef X
    case PLAN_N_TENSORS:
      break;
    }
  g_return_val_if_reached ((PlanTensor){ 0 });
}

PlanTensor
plan_model_tensor (const PlanModel *self, PlanTensorRole role, gint64 vocab)
{
  PlanTensor tensor = tensor_of (self, role, vocab);
  if (is_cut_off (&self->cut, role))
    tensor.count = tensor.rows = 0;
  return tensor;
}

guint64
plan_model_numel (const PlanTensor *tensor)
{
  return tensor->count * tensor->rows * tensor->cols;
}

gboolean
plan_model_is_moe_layer (const PlanModel *self, gint64 layer)
{
  const gint64 place = plan_model_cut_place (&self->cut, layer);
  return self->experts > 0 && place >= self->dense_layers && (place + 1) % self->moe_every == 0;
}

/* The number of layers with experts among the first `place` layers. */
static gint64
moe_layers_before (const PlanModel *self, gint64 place)
{
  return MAX (place, self->dense_layers) / self->moe_every - self->dense_layers / self->moe_every;
}

gint64
plan_model_moe_layers (const PlanModel *self)
{
  gint64 sum = 0;
  for (gint64 layer = 0, n; self->experts > 0 && layer < self->layers; layer += n)
    {
      const gint64 place = plan_model_cut_place (&self->cut, layer);
      n = plan_model_cut_rest (&self->cut, layer, self->layers);
      sum += moe_layers_before (self, place + n) - moe_layers_before (self, place);
    }
  return sum;
}

/* Appends the tensors of one place in tensor-list.h; PLACE_LAYER gives everything of a layer. */
static guint
append_tensors (const PlanModel *self, int place, gboolean is_moe, gint64 vocab, guint n,
                PlanTensor *out_tensors)
{
  const int mlp = place != PLACE_LAYER ? place : is_moe ? PLACE_MOE : PLACE_DENSE;
  for (guint i = 0; i < G_N_ELEMENTS (order); i++)
    {
      const int at = (int)places[order[i]];
      const PlanTensor tensor = plan_model_tensor (self, order[i], vocab);
      if ((at == place || at == mlp) && tensor.rows > 0)
        out_tensors[n++] = tensor;
    }
  return n;
}

guint
plan_model_layer_tensors (const PlanModel *self, gint64 layer, PlanTensor *out_tensors)
{
  g_return_val_if_fail (layer >= 0 && layer < self->layers, 0);
  return append_tensors (self, PLACE_LAYER, plan_model_is_moe_layer (self, layer), 0, 0,
                         out_tensors);
}

guint
plan_model_outer_tensors (const PlanModel *self, gint64 vocab, PlanTensor *out_tensors)
{
  const guint n = append_tensors (self, PLACE_OUTER, FALSE, vocab, 0, out_tensors);
  return self->cut.modules > 0 ? append_tensors (self, PLACE_MTP, FALSE, vocab, n, out_tensors) : n;
}

/* A prediction module's layer is like the model's last one. */
guint
plan_model_mtp_tensors (const PlanModel *self, PlanTensor *out_tensors)
{
  if (self->mtp == 0)
    return 0;
  const guint n = append_tensors (self, PLACE_MTP, FALSE, 0, 0, out_tensors);
  return append_tensors (self, PLACE_LAYER, plan_model_is_moe_layer (self, self->layers - 1), 0, n,
                         out_tensors);
}

gint64
plan_model_n_tensors (const PlanModel *self)
{
  PlanTensor tensors[PLAN_N_TENSORS];
  const gint64 moe = plan_model_moe_layers (self);
  return plan_model_outer_tensors (self, self->vocab, tensors)
         + (self->layers - moe) * append_tensors (self, PLACE_LAYER, FALSE, 0, 0, tensors)
         + moe * append_tensors (self, PLACE_LAYER, TRUE, 0, 0, tensors);
}

static double
elements (const PlanTensor *tensors, guint n)
{
  double sum = 0;
  for (guint i = 0; i < n; i++)
    sum += (double)tensors[i].count * (double)tensors[i].rows * (double)tensors[i].cols;
  return sum;
}

double
plan_model_elements (const PlanModel *self)
{
  PlanTensor t[PLAN_N_TENSORS];
  const double moe = (double)plan_model_moe_layers (self);
  double sum = elements (t, plan_model_outer_tensors (self, self->vocab, t));
  sum += (double)self->mtp * elements (t, plan_model_mtp_tensors (self, t));
  sum += ((double)self->layers - moe)
         * elements (t, append_tensors (self, PLACE_LAYER, FALSE, 0, 0, t));
  return sum + moe * elements (t, append_tensors (self, PLACE_LAYER, TRUE, 0, 0, t));
}

static guint64
add_up (const PlanTensor *tensors, guint n, guint64 times, guint64 *parts)
{
  guint64 sum = 0;
  for (guint i = 0; i < n; i++)
    {
      const guint64 elements = times * plan_model_numel (&tensors[i]);
      sum += elements;
      parts[tensors[i].kind == PLAN_TENSOR_KIND_BIAS ? PLAN_PART_BIASES : tensors[i].part]
          += elements;
    }
  return sum;
}

guint64
plan_model_count (const PlanModel *self, guint64 *out_parts)
{
  PlanTensor tensors[PLAN_N_TENSORS];
  guint64 parts[PLAN_N_PARTS] = { 0 };
  const gint64 moe = plan_model_moe_layers (self);
  guint n = plan_model_outer_tensors (self, self->vocab, tensors);
  guint64 sum = add_up (tensors, n, 1, parts);
  n = append_tensors (self, PLACE_LAYER, FALSE, 0, 0, tensors);
  sum += add_up (tensors, n, (guint64)(self->layers - moe), parts);
  n = append_tensors (self, PLACE_LAYER, TRUE, 0, 0, tensors);
  sum += add_up (tensors, n, (guint64)moe, parts);
  for (guint i = 0; out_parts && i < PLAN_N_PARTS; i++)
    out_parts[i] = parts[i];
  return sum;
}

guint64
plan_model_parameters (const PlanModel *self)
{
  return plan_model_count (self, NULL);
}

guint64
plan_model_mtp_parameters (const PlanModel *self)
{
  PlanTensor tensors[PLAN_N_TENSORS];
  guint64 parts[PLAN_N_PARTS] = { 0 };
  return add_up (tensors, plan_model_mtp_tensors (self, tensors), (guint64)self->mtp, parts);
}

guint64
plan_model_active_parameters (const PlanModel *self)
{
  PlanTensor tensors[PLAN_N_TENSORS];
  const guint n = append_tensors (self, PLACE_LAYER, TRUE, 0, 0, tensors);
  guint64 idle = 0; /* elements per layer that a token does not use */
  for (guint i = 0; i < n; i++)
    if (tensors[i].part == PLAN_PART_EXPERTS)
      idle += (tensors[i].count - (guint64)self->topk) * tensors[i].rows * tensors[i].cols;
  return plan_model_parameters (self) - (guint64)plan_model_moe_layers (self) * idle;
}

/* Multiply-adds of one token in the linear layers of one layer, with `topk` experts. */
static double
linear_work (const PlanModel *self, gboolean is_moe)
{
  PlanTensor tensors[PLAN_N_TENSORS];
  const guint n = append_tensors (self, PLACE_LAYER, is_moe, 0, 0, tensors);
  double sum = 0;
  for (guint i = 0; i < n; i++)
    if (tensors[i].kind == PLAN_TENSOR_KIND_LINEAR)
      {
        if (tensors[i].part == PLAN_PART_EXPERTS)
          tensors[i].count = (guint64)self->topk;
        sum += (double)plan_model_numel (&tensors[i]);
      }
  return sum;
}

/* Multiply-adds of one token in the attention of all layers: two GEMMs over half of attended x
 * attended, or of each chunk. */
static double
attention_work (const PlanModel *self, gint64 attended)
{
  const gint64 v_dim = self->kv_lora > 0 ? self->v_dim : self->head_dim;
  gint64 layers[PLAN_N_LAYER_KINDS] = { 0 }, chunked = 0;
  if (self->window_chunks)
    plan_model_count_kinds (self, attended, layers);
  for (guint kind = 0; kind < PLAN_N_LAYER_KINDS; kind++)
    chunked += kind & PLAN_LAYER_WINDOWED ? layers[kind] : 0;
  const double in_chunks
      = chunked > 0 ? (double)plan_model_pairs_in_chunks (self, attended) / (double)attended : 0;
  const double seen = (double)(self->layers + self->mtp - chunked) * (double)attended
                      + (double)chunked * in_chunks;
  return (double)(self->heads * (self->head_dim + v_dim)) * seen / 2;
}

/* The formula of Megatron-LM training.py, transformer_flops (megatron-fsdp.md 9.1). As there,
 * routers, norms and biases are left out, except norms of latent attention and of prediction
 * modules; a window that slides shortens nothing; and a prediction module counts as one more layer
 * like the last and one more output layer. */
double
plan_model_flops_per_token (const PlanModel *self, gint64 attended, gint64 vocab)
{
  const double h = (double)self->hidden, mtp = (double)self->mtp;
  const gboolean last_is_moe = plan_model_is_moe_layer (self, self->layers - 1);
  const double moe = (double)(plan_model_moe_layers (self) + (last_is_moe ? self->mtp : 0));
  const double layers = (double)(self->layers + self->mtp);
  const double latent_norms = (double)(self->q_lora + self->kv_lora);
  const double work = (layers - moe) * linear_work (self, FALSE) + moe * linear_work (self, TRUE)
                      + attention_work (self, attended) + layers * latent_norms
                      + mtp * (3 * h + 2 * h * h) + (1 + mtp) * h * (double)vocab;
  return 6 * work;
}
