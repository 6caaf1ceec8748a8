/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors of a model, and counts that follow from them. Kinds of layers are for counting what
 * their tensors tell apart, so every sum is over one layer of each kind. */
#include "config.h"

#include "planner/model/layer-kinds.h"
#include "planner/model/model-private.h"

static const enum {
  PLACE_OUTER,
  PLACE_MIXER,
  PLACE_ATTN,
  PLACE_DELTA,
  PLACE_SSM,
  PLACE_FFN,
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
  const gboolean mla = m->kv_lora > 0, d = m->delta.attn_every > 0;
  const gboolean s = m->ssm.heads > 0;
  const gint64 h = m->hidden, q = m->heads * m->head_dim, kv = m->kv_heads * m->head_dim;
  const gint64 e = plan_model_expert_width (m);
  const gint64 v = mla ? m->heads * m->v_dim : q, gate = m->attn_gate ? q : 0;
  const gint64 up = m->gated ? 2 : 1;
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
  if (*self->pattern.of)
    return plan_model_letter (self, layer) == PLAN_LETTER_EXPERTS;
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
  for (gint64 layer = 0; *self->pattern.of && layer < self->layers; layer++)
    sum += plan_model_is_moe_layer (self, layer);
  if (*self->pattern.of)
    return sum;
  for (gint64 layer = 0, n; self->experts > 0 && layer < self->layers; layer += n)
    {
      const gint64 place = plan_model_cut_place (&self->cut, layer);
      n = plan_model_cut_rest (&self->cut, layer, self->layers);
      sum += moe_layers_before (self, place + n) - moe_layers_before (self, place);
    }
  return sum;
}

/* A prediction module's layer has attention, as a model's last layer (see rules-unbuilt.c). */
gboolean
plan_model_is_delta_layer (const PlanModel *self, gint64 layer)
{
  const gint64 place = plan_model_cut_place (&self->cut, layer);
  return self->delta.attn_every > 0 && layer < self->layers - self->cut.modules
         && (place + 1) % self->delta.attn_every != 0;
}

char
plan_model_letter (const PlanModel *self, gint64 layer)
{
  const gint64 place = plan_model_cut_place (&self->cut, layer);
  return place >= 0 && place < PLAN_MAX_PATTERN ? self->pattern.of[place] : 0;
}

/* A kind of layer, as its tensors tell it apart: the places in tensor-list.h of what mixes tokens
 * and of what follows, or NONE. */
#define NONE (-1)
typedef struct
{
  int mixer, mlp;
} Kind;

static const Kind kinds[]
    = { { PLACE_ATTN, PLACE_DENSE }, { PLACE_ATTN, PLACE_MOE }, { PLACE_DELTA, PLACE_DENSE },
        { PLACE_DELTA, PLACE_MOE },  { PLACE_SSM, NONE },       { PLACE_ATTN, NONE },
        { NONE, PLACE_DENSE },       { NONE, PLACE_MOE } };
static const Kind dense = { PLACE_ATTN, PLACE_DENSE }, with_experts = { PLACE_ATTN, PLACE_MOE };
static const Kind of_rule = { PLACE_DELTA, PLACE_DENSE }, of_ssm = { PLACE_SSM, NONE };

static Kind
kind_of (const PlanModel *self, gint64 layer)
{
  const int mlp = plan_model_is_moe_layer (self, layer) ? PLACE_MOE : PLACE_DENSE;
  switch ((PlanLetter)plan_model_letter (self, layer))
    {
    case PLAN_LETTER_SSM:
      return of_ssm;
    case PLAN_LETTER_ATTENTION:
      return (Kind){ PLACE_ATTN, NONE };
    case PLAN_LETTER_MLP:
    case PLAN_LETTER_EXPERTS:
      return (Kind){ NONE, mlp };
    }
  return (Kind){ plan_model_is_delta_layer (self, layer) ? PLACE_DELTA : PLACE_ATTN, mlp };
}

/* The number of layers of a kind. */
static gint64
layers_of (const PlanModel *self, Kind kind)
{
  const gboolean are_mixed = self->delta.attn_every > 0 || *self->pattern.of;
  const gint64 moe = are_mixed ? 0 : plan_model_moe_layers (self);
  gint64 n = 0;
  if (!are_mixed)
    return kind.mixer != PLACE_ATTN || kind.mlp == NONE ? 0
           : kind.mlp == PLACE_MOE                      ? moe
                                                        : self->layers - moe;
  for (gint64 layer = 0; layer < self->layers; layer++)
    {
      const Kind own = kind_of (self, layer);
      n += own.mixer == kind.mixer && own.mlp == kind.mlp;
    }
  return n;
}

/* Appends the tensors of one place in tensor-list.h. */
static guint
append_place (const PlanModel *self, int place, gint64 vocab, guint n, PlanTensor *out_tensors)
{
  for (guint i = 0; i < G_N_ELEMENTS (order); i++)
    {
      const PlanTensor tensor = plan_model_tensor (self, order[i], vocab);
      if ((int)places[order[i]] == place && tensor.rows > 0)
        out_tensors[n++] = tensor;
    }
  return n;
}

/* Appends everything of a layer. */
static guint
append_layer (const PlanModel *self, Kind kind, guint n, PlanTensor *out_tensors)
{
  for (guint i = 0; i < G_N_ELEMENTS (order); i++)
    {
      const int at = (int)places[order[i]];
      const PlanTensor tensor = plan_model_tensor (self, order[i], 0);
      const gboolean is_there = at == PLACE_MIXER ? kind.mixer != NONE
                                : at == PLACE_FFN ? kind.mlp != NONE
                                                  : at == kind.mixer || at == kind.mlp;
      if (is_there && tensor.rows > 0)
        out_tensors[n++] = tensor;
    }
  return n;
}

guint
plan_model_layer_tensors (const PlanModel *self, gint64 layer, PlanTensor *out_tensors)
{
  g_return_val_if_fail (layer >= 0 && layer < self->layers, 0);
  return append_layer (self, kind_of (self, layer), 0, out_tensors);
}

guint
plan_model_outer_tensors (const PlanModel *self, gint64 vocab, PlanTensor *out_tensors)
{
  const guint n = append_place (self, PLACE_OUTER, vocab, 0, out_tensors);
  return self->cut.modules > 0 ? append_place (self, PLACE_MTP, vocab, n, out_tensors) : n;
}

/* A prediction module's layer is like the model's last one. */
guint
plan_model_mtp_tensors (const PlanModel *self, PlanTensor *out_tensors)
{
  if (self->mtp == 0)
    return 0;
  const guint n = append_place (self, PLACE_MTP, 0, 0, out_tensors);
  return append_layer (self, kind_of (self, self->layers - 1), n, out_tensors);
}

gint64
plan_model_n_tensors (const PlanModel *self)
{
  PlanTensor tensors[PLAN_N_TENSORS];
  gint64 n = plan_model_outer_tensors (self, self->vocab, tensors);
  for (guint i = 0; i < G_N_ELEMENTS (kinds); i++)
    n += layers_of (self, kinds[i]) * append_layer (self, kinds[i], 0, tensors);
  return n;
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
  double sum = elements (t, plan_model_outer_tensors (self, self->vocab, t));
  sum += (double)self->mtp * elements (t, plan_model_mtp_tensors (self, t));
  for (guint i = 0; i < G_N_ELEMENTS (kinds); i++)
    sum += (double)layers_of (self, kinds[i]) * elements (t, append_layer (self, kinds[i], 0, t));
  return sum;
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
  guint64 sum = add_up (tensors, plan_model_outer_tensors (self, self->vocab, tensors), 1, parts);
  for (guint i = 0; i < G_N_ELEMENTS (kinds); i++)
    sum += add_up (tensors, append_layer (self, kinds[i], 0, tensors),
                   (guint64)layers_of (self, kinds[i]), parts);
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
  const guint n = append_place (self, PLACE_MOE, 0, 0, tensors);
  guint64 idle = 0; /* elements per layer that a token does not use */
  for (guint i = 0; i < n; i++)
    if (tensors[i].part == PLAN_PART_EXPERTS)
      idle += (tensors[i].count - (guint64)self->topk) * tensors[i].rows * tensors[i].cols;
  return plan_model_parameters (self) - (guint64)plan_model_moe_layers (self) * idle;
}

/* Multiply-adds of one token in the linear layers of one layer, with `topk` experts. */
static double
linear_work (const PlanModel *self, Kind kind)
{
  PlanTensor tensors[PLAN_N_TENSORS];
  const guint n = append_layer (self, kind, 0, tensors);
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

/* Multiply-adds of one token in the convolution and the delta rule of one layer: products of keys
 * with keys, of values with keys, of the state with both, and of the state with queries. */
static double
delta_work (const PlanDelta *d)
{
  return (double)(d->conv * plan_delta_turned (d)
                  + 4 * d->value_heads * d->value_dim * d->value_dim);
}

/* The layers of the delta rule as that formula counts them: by their places alone, so that a
 * prediction module's layer behind a layer of attention is one, too, though it has attention. */
static gint64
counted_delta_layers (const PlanModel *self)
{
  const gint64 every = self->delta.attn_every;
  gint64 n = 0;
  for (gint64 i = 0; every > 0 && i < self->layers + self->mtp; i++)
    n += (plan_model_cut_place (&self->cut, i) + 1) % every != 0;
  return n;
}

/* Multiply-adds of one token in a layer of a state space, by that formula: the width inside is
 * taken for twice the model's, and the scan has seven FLOPs for each of its elements and states. */
static double
ssm_work (const PlanModel *self)
{
  const PlanSsm *m = &self->ssm;
  const double h = (double)self->hidden, inner = 2 * h;
  return h * (2 * inner + (double)(plan_ssm_shared (m) + m->heads)) + 3.5 * inner * (double)m->state
         + inner * h;
}

static gint64
attention_layers (const PlanModel *self)
{
  gint64 n = 0;
  for (gint64 layer = 0; *self->pattern.of && layer < self->layers; layer++)
    n += plan_model_letter (self, layer) == PLAN_LETTER_ATTENTION;
  return *self->pattern.of ? n : self->layers + self->mtp - counted_delta_layers (self);
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
  const gint64 whole = attention_layers (self) - chunked;
  const double seen = (double)whole * (double)attended + (double)chunked * in_chunks;
  return (double)(self->heads * (self->head_dim + v_dim)) * seen / 2;
}

/* The formula of Megatron-LM training.py, hybrid_flops, for layers by a pattern. */
static double
pattern_work (const PlanModel *self)
{
  const gint64 of_state = layers_of (self, of_ssm);
  double work = (double)of_state * (ssm_work (self) - linear_work (self, of_ssm));
  for (guint i = 0; i < G_N_ELEMENTS (kinds); i++)
    work += (double)layers_of (self, kinds[i]) * linear_work (self, kinds[i]);
  return work;
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
  const double delta = (double)counted_delta_layers (self);
  const double latent_norms = (double)(self->q_lora + self->kv_lora);
  if (*self->pattern.of)
    return 6 * (pattern_work (self) + attention_work (self, attended) + h * (double)vocab);
  const double instead = linear_work (self, of_rule) - linear_work (self, dense);
  const double work
      = (layers - moe) * linear_work (self, dense) + moe * linear_work (self, with_experts)
        + delta * (instead + delta_work (&self->delta)) + attention_work (self, attended)
        + layers * latent_norms + mtp * (3 * h + 2 * h * h) + (1 + mtp) * h * (double)vocab;
  return 6 * work;
}
