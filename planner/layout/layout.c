/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/layout/layout.h"

#include <string.h>

static void
add (PlanLayout *self, PlanBucketKind kind, const PlanTensor *tensor)
{
  PlanBucket *bucket = &self->buckets[kind];
  self->slots[kind][bucket->n_slots++] = (PlanSlot){ .tensor = *tensor };
  bucket->raw += tensor->rows * tensor->cols;
}

/* What building a layout needs to know. */
typedef struct
{
  const PlanModel *model;
  guint64 closes_at; /* elements that fill a bucket outside the layers; 0: buckets go by module */
} Builder;

/* Adds the parameters outside the layers. A shared embedding has a bucket of its own; the others
 * fill buckets one after the other. */
static void
add_outer (PlanLayout *self, const Builder *b)
{
  static const PlanTensorRole roles[]
      = { PLAN_TENSOR_EMBEDDING,       PLAN_TENSOR_POSITIONS,
          PLAN_TENSOR_EMBED_NORM,      PLAN_TENSOR_EMBED_NORM_BIAS,
          PLAN_TENSOR_FINAL_NORM,      PLAN_TENSOR_FINAL_NORM_BIAS,
          PLAN_TENSOR_MTP_HIDDEN_NORM, PLAN_TENSOR_MTP_EMBEDDING_NORM,
          PLAN_TENSOR_MTP_PROJ,        PLAN_TENSOR_MTP_FINAL_NORM,
          PLAN_TENSOR_OUTPUT };
  PlanBucketKind kind = PLAN_BUCKET_EMBEDDING;
  for (guint i = 0; i < G_N_ELEMENTS (roles); i++)
    {
      const PlanTensor tensor = plan_buckets_part (b->model, roles[i], &self->rule);
      if (tensor.rows == 0)
        continue;
      if (b->closes_at == 0 && roles[i] == PLAN_TENSOR_FINAL_NORM)
        kind = PLAN_BUCKET_HEAD;
      add (self, kind, &tensor);
      if (b->closes_at > 0
          && (self->buckets[kind].raw >= b->closes_at
              || (roles[i] == PLAN_TENSOR_EMBEDDING && b->model->tied_embeddings)))
        kind = PLAN_BUCKET_HEAD;
    }
}

/* Adds the parameters of a layer. `kind` is the bucket for parameters that are neither experts' nor
 * kept in another format. */
static void
add_layer (PlanLayout *self, const Builder *b, gint64 layer, PlanBucketKind kind,
           gboolean quantises)
{
  PlanTensor tensors[PLAN_N_TENSORS];
  const guint n = plan_buckets_layer (b->model, &self->rule, layer, tensors);
  for (guint i = 0; i < n; i++)
    {
      const PlanTensor *tensor = &tensors[self->rule.is_backwards ? n - 1 - i : i];
      const gboolean is_plain = quantises && tensor->kind != PLAN_TENSOR_KIND_LINEAR;
      const gboolean is_expert = tensor->part == PLAN_PART_EXPERTS;
      const PlanBucketKind main = is_expert ? PLAN_BUCKET_EXPERTS : kind;
      if (is_expert && kind != PLAN_BUCKET_LAYER)
        continue; /* they are there already */
      add (self, is_plain ? plan_bucket_plain (main) : main, tensor);
    }
}

/* The kinds of layers of a model, apart from windows and positions, which have no parameters. */
static guint
kind_of (const PlanModel *model, gint64 layer)
{
  const guint kind = plan_model_layer_kind (model, layer, 1);
  return kind & PLAN_LAYER_PART ? kind : kind & (PLAN_LAYER_EXPERTS | PLAN_LAYER_RECURRENT);
}

/* Numbers and kinds of a model's layers, which decide what buckets there are. */
typedef struct
{
  gint64 moe, recurrent; /* how many layers have experts; a state */
  guint part;            /* by a pattern: the kind of the layers that are in the bucket LAYER, those
                            with experts or else the first one's */
} Mixture;

static Mixture
mixture_of (const PlanModel *model)
{
  Mixture mixture = { .moe = plan_model_moe_layers (model) };
  for (gint64 layer = 0; layer < model->layers; layer++)
    {
      const guint kind = kind_of (model, layer);
      mixture.recurrent += (kind & PLAN_LAYER_RECURRENT) != 0;
      if (layer == 0 || kind & PLAN_LAYER_EXPERTS)
        mixture.part = kind;
    }
  return mixture;
}

static PlanBucketKind
bucket_of (const PlanModel *model, const Mixture *mixture, guint kind)
{
  if (kind & PLAN_LAYER_PART && kind == mixture->part)
    return PLAN_BUCKET_LAYER;
  if (kind & PLAN_LAYER_RECURRENT)
    return mixture->recurrent < model->layers ? PLAN_BUCKET_RECURRENT : PLAN_BUCKET_LAYER;
  if (kind == PLAN_LAYER_PART)
    return PLAN_BUCKET_ATTENTION;
  return kind == PLAN_LAYER_MLP || (mixture->moe > 0 && !(kind & PLAN_LAYER_EXPERTS))
             ? PLAN_BUCKET_DENSE
             : PLAN_BUCKET_LAYER;
}

PlanBucketKind
plan_layout_main (const PlanLayout *self, guint kind)
{
  return self
      ->of_kind[kind & PLAN_LAYER_PART ? kind : kind & (PLAN_LAYER_EXPERTS | PLAN_LAYER_RECURRENT)];
}

static void
find_pooled (PlanLayout *self, const PlanModel *model)
{
  gint64 first = -1;
  self->pooled = model->layers > 0 ? self->of_kind[kind_of (model, 0)] : PLAN_BUCKET_LAYER;
  self->pool_step = 1;
  for (PlanBucketKind kind = 0; kind < PLAN_BUCKET_PART; kind++)
    if (plan_bucket_is_main (kind) && self->buckets[kind].units > self->buckets[self->pooled].units)
      self->pooled = kind;
  for (gint64 layer = 0; layer < model->layers; layer++)
    if (self->of_kind[kind_of (model, layer)] == self->pooled)
      {
        if (first >= 0)
          {
            self->pool_step = layer - first;
            return;
          }
        first = layer;
      }
}

/* Whether a bucket holds weights of products, where these are apart from all else. */
static gboolean
holds_products (PlanBucketKind kind)
{
  return plan_bucket_is_main (kind) || kind == PLAN_BUCKET_EXPERTS;
}

/* Adds one layer of each kind of parameters. A model of which only some layers have experts has
 * attention in all of them, or a pattern (rules-unbuilt.c). Experts are added once. */
static void
add_layers (PlanLayout *self, const Builder *b, gboolean quantises)
{
  const Mixture mixture = mixture_of (b->model);
  for (gint64 layer = 0; layer < b->model->layers; layer++)
    {
      const guint kind = kind_of (b->model, layer);
      const PlanBucketKind to = self->of_kind[kind] = bucket_of (b->model, &mixture, kind);
      if (self->buckets[to].units++ > 0)
        continue;
      add_layer (self, b, layer, to, quantises);
    }
  self->buckets[PLAN_BUCKET_EXPERTS].units = mixture.moe;
  for (PlanBucketKind kind = 0; kind < PLAN_BUCKET_PART; kind++)
    if (holds_products (kind))
      self->buckets[plan_bucket_plain (kind)].units = self->buckets[kind].units;
  find_pooled (self, b->model);
}

/* Whether buckets go by size. They do where nothing is gathered and dropped by unit, there is one
 * format of weights, and all layers have the same parameters. */
static gboolean
goes_by_size (const PlanModel *model, const PlanStack *stack, const Plan *plan)
{
  const PlanBucketing how = stack->buckets.bucketing;
  return how != PLAN_BUCKETING_MODULES && model->experts == 0 && model->delta.attn_every == 0
         && !*model->pattern.of && plan->value[PLAN_PARAM_GATHER] == PLAN_PARAM_GATHER_COMPUTE
         && (!plan_shards_optimizer (plan)
             || (how != PLAN_BUCKETING_WHOLE && !plan_shards_weights (plan)));
}

static void
add_by_size (PlanLayout *self, const PlanModel *model)
{
  g_auto (PlanBuckets) buckets = { 0 };
  plan_buckets_init (&buckets, model, &self->rule);
  for (guint number = 0; number < buckets.n; number++)
    {
      const PlanBucketSpan *span = &buckets.spans[number];
      PlanBucket *bucket = &self->buckets[span->kind];
      bucket->raw = 0;
      for (guint i = 0; i < span->n; i++)
        {
          gint64 layer;
          const PlanTensor *tensor = plan_buckets_tensor (&buckets, span->first + i, &layer);
          bucket->raw += tensor->rows * tensor->cols;
        }
      bucket->padded = buckets.padded[span->kind];
      bucket->units++;
      bucket->length = MAX (bucket->length, span->unit + 1);
    }
}

/* Adds one bucket per layer, and one for each module around the layers. */
static void
add_by_module (PlanLayout *self, const Builder *b, gboolean quantises)
{
  add_outer (self, b);
  add_layers (self, b, quantises);
  for (PlanBucketKind kind = 0; kind < PLAN_BUCKET_PART; kind++)
    {
      PlanBucket *bucket = &self->buckets[kind];
      const PlanTensor *tensors[PLAN_N_TENSORS];
      guint64 offsets[PLAN_N_TENSORS];
      for (guint s = 0; s < bucket->n_slots; s++)
        tensors[s] = &self->slots[kind][s].tensor;
      PlanPackingRule packing = self->rule.packing;
      packing.shards = bucket->shards;
      bucket->padded = plan_packing_place (&packing, tensors, bucket->n_slots, offsets);
      for (guint s = 0; s < bucket->n_slots; s++)
        self->slots[kind][s].offset = offsets[s];
      bucket->units = plan_bucket_is_unit (kind) ? bucket->units : 1;
      bucket->length = plan_bucket_is_unit (kind) ? b->model->layers : 1;
    }
}

gboolean
plan_layout_lends_grads (PlanBucketKind kind, const PlanStack *stack, const Plan *plan)
{
  return holds_products (kind) && stack->weights.gathered == PLAN_GATHERED_IN_GRADS
         && plan->value[PLAN_PARAM_GATHER] == PLAN_PARAM_GATHER_MXFP8
         && plan->value[PLAN_TASK] == PLAN_TASK_TRAIN;
}

gboolean
plan_layout_quantises (PlanBucketKind kind, const PlanStack *stack, const Plan *plan)
{
  return holds_products (kind) && plan->value[PLAN_PARAM_GATHER] != PLAN_PARAM_GATHER_COMPUTE
         && !plan_layout_lends_grads (kind, stack, plan);
}

gint64
plan_layout_expert_data_parallel (const Plan *plan, gint64 data_parallel)
{
  const gint64 *value = plan->value;
  return data_parallel * value[PLAN_TP] / (value[PLAN_EP] * value[PLAN_ETP]);
}

void
plan_layout_init (PlanLayout *self, const PlanModel *model, const PlanStack *stack,
                  const Plan *plan, gint64 data_parallel)
{
  const gint64 *value = plan->value;
  const gboolean is_hfsdp = value[PLAN_OUTER_STRATEGY] == PLAN_OUTER_STRATEGY_OPTIM;
  const gint64 replicas = is_hfsdp ? 1 : value[PLAN_DP_OUTER];
  const gint64 shards = data_parallel / replicas;
  const gint64 of_experts = plan_layout_expert_data_parallel (plan, data_parallel) / replicas;
  const Builder b = {
    .model = model,
    /* in later stages all gradients are one bucket (distributed_data_parallel.py 160) */
    .closes_at
    = stack->buckets.bucketing == PLAN_BUCKETING_MODULES ? 0
      : value[PLAN_OVERLAP_GRAD_REDUCE] == PLAN_OVERLAP_GRAD_REDUCE_OFF || model->cut.no_embedding
          ? G_MAXUINT64
          : MAX (stack->buckets.elements, stack->buckets.elements_per_rank * (guint64)data_parallel)
  };

  memset (self, 0,
          G_STRUCT_OFFSET (PlanLayout,
                           slots)); /* slots are not cleared: n_slots says how many are valid */
  self->shards = value[PLAN_STRATEGY] == PLAN_STRATEGY_NO_SHARD ? 1 : (guint64)shards;
  self->rule
      = (PlanBucketRule){ .naming = stack->buckets.naming,
                          .closes_at = b.closes_at,
                          .is_backwards = stack->buckets.bucketing == PLAN_BUCKETING_BACKWARDS,
                          .parts_shared = stack->buckets.bucketing != PLAN_BUCKETING_BACKWARDS,
                          .vocab = plan_stack_padded_vocab (stack, model->vocab, value[PLAN_TP]),
                          .tp = (guint64)value[PLAN_TP],
                          .ep = (guint64)value[PLAN_EP],
                          .etp = (guint64)value[PLAN_ETP],
                          .packing = { .packing = stack->buckets.packing,
                                       .shards = self->shards,
                                       .multiple = stack->buckets.shard_multiple } };
  for (PlanBucketKind kind = 0; kind < PLAN_N_BUCKETS; kind++)
    self->buckets[kind].shards = value[PLAN_STRATEGY] == PLAN_STRATEGY_NO_SHARD ? 1
                                 : plan_bucket_is_of_experts (kind) ? (guint64)of_experts
                                                                    : self->shards;
  for (guint kind = 0; kind < PLAN_N_LAYER_KINDS; kind++)
    self->of_kind[kind] = PLAN_BUCKET_LAYER;
  self->by_size = goes_by_size (model, stack, plan);
  if (self->by_size)
    add_by_size (self, model);
  else
    add_by_module (self, &b, value[PLAN_PARAM_GATHER] != PLAN_PARAM_GATHER_COMPUTE);
}

const PlanSlot *
plan_layout_slot (const PlanLayout *self, PlanTensorRole role, PlanBucketKind *out_kind)
{
  for (PlanBucketKind kind = 0; kind < PLAN_BUCKET_PART; kind++)
    for (guint i = 0; i < self->buckets[kind].n_slots; i++)
      if (self->slots[kind][i].tensor.role == role)
        {
          *out_kind = kind;
          return &self->slots[kind][i];
        }
  return NULL;
}

static gint
by_offset (gconstpointer a, gconstpointer b)
{
  const PlanSlot *one = a, *other = b;
  return one->offset < other->offset ? -1 : one->offset > other->offset ? 1 : 0;
}

GArray *
plan_layout_slots (const PlanLayout *self, const PlanBuckets *buckets, PlanBucketKind kind)
{
  GArray *slots = g_array_new (FALSE, FALSE, sizeof (PlanSlot));
  guint number = 0;
  if (kind < PLAN_BUCKET_PART)
    g_array_append_vals (slots, self->slots[kind], self->buckets[kind].n_slots);
  while (self->by_size && number < buckets->n && buckets->spans[number].kind != kind)
    number++;
  for (guint i = 0; self->by_size && number < buckets->n && i < buckets->spans[number].n; i++)
    {
      const guint at = buckets->spans[number].first + i;
      gint64 layer;
      const PlanTensor *tensor = plan_buckets_tensor (buckets, at, &layer);
      const PlanSlot slot = { .tensor = *tensor,
                              .offset = buckets->offset[at],
                              .layer = MAX (layer, 0) - buckets->spans[number].unit };
      g_array_append_val (slots, slot);
    }
  g_array_sort (slots, by_offset);
  return slots;
}

gboolean
plan_layout_has (const PlanLayout *self, PlanBucketKind kind)
{
  return self->buckets[kind].raw > 0;
}

gboolean
plan_layout_is_pooled (const PlanLayout *self, PlanBucketKind kind)
{
  const PlanBucketKind main
      = plan_bucket_is_of_experts (kind) ? PLAN_BUCKET_LAYER : plan_bucket_main (kind);
  return plan_bucket_is_unit (kind) && main == self->pooled;
}

/* The elements up to which weights are gathered ahead. Where weights are dropped after use it is
 * two units, counted in parameters (megatron_fsdp.py 421); the queues there count padding as well,
 * so that two units never fit exactly. Elsewhere it is the size of a bucket, but at least the
 * stack's floor. */
gint64
plan_layout_comm_unit (const PlanLayout *self, const PlanStack *stack, const Plan *plan)
{
  const PlanBucket *const b = self->buckets;
  const guint64 closes_at = self->rule.closes_at;
  const gint64 bucket = closes_at == G_MAXUINT64 ? 0 : (gint64)closes_at;
  guint64 all = 0;
  gint64 layers = 1;
  for (PlanBucketKind kind = PLAN_BUCKET_LAYER; kind < PLAN_BUCKET_PART; kind++)
    {
      all += b[kind].raw * (guint64)b[kind].units;
      layers = MAX (layers, b[kind].length);
    }
  const gint64 raw
      = (gint64)(all / (guint64)layers); /* mean elements per layer, with this rank's experts */
  const gboolean has_floor = stack->buckets.comm_unit_floor > 0;
  if (plan->value[PLAN_COMM_UNIT] != PLAN_UNSET)
    return plan->value[PLAN_COMM_UNIT];
  if (self->by_size)
    return MAX (stack->buckets.comm_unit_floor, bucket);
  if (has_floor && plan->value[PLAN_STRATEGY] != PLAN_STRATEGY_OPTIM_GRADS_PARAMS)
    return stack->buckets.comm_unit_floor;
  return MAX (stack->buckets.comm_unit_floor, 2 * raw);
}

char *
plan_layout_bucket_name (PlanBucketKind kind, const char *what)
{
  static const char *const names[]
      = { "embed",         "head",        "layer",           "plain",
          "experts",       "dense",       "recurrent",       "attention",
          "experts_plain", "dense_plain", "recurrent_plain", "attention_plain" };
  if (kind < G_N_ELEMENTS (names))
    return g_strconcat (what, ".", names[kind], NULL);
  const gboolean is_unit = plan_bucket_is_unit (kind);
  const guint part = kind - (is_unit ? PLAN_BUCKET_PART : PLAN_BUCKET_OUTER_PART);
  return g_strdup_printf ("%s.%s%u", what, is_unit ? "layer" : "outer", part + 2);
}
