/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/lower/lower-acts.h"
#include "planner/lower/lower-buckets.h"
#include "planner/lower/lower-combined.h"
#include "planner/lower/lower-emit.h"
#include "planner/lower/lower-layer-private.h"
#include "planner/lower/lower-loss.h"
#include "planner/lower/lower-offload.h"
#include "planner/lower/lower-step.h"
#include "planner/plan/stages.h"
#include "planner/schedule/scratch.h"

#define IS(self, field, id) ((self)->plan->value[PLAN_##field] == PLAN_##field##_##id)

static gint32
buffer (PlanLower *self, const char *name, gint64 count, guint64 elements, PlanDtype dtype,
        PlanCategory category)
{
  return plan_schedule_add_buffer (self->schedule, name, (guint32)count, elements, dtype, category);
}

static gint32
state_of (PlanLower *self, PlanBucketKind kind, const char *what, gint64 count, guint64 elements,
          PlanDtype dtype, PlanCategory category)
{
  g_autofree char *name = plan_layout_bucket_name (kind, what);
  return buffer (self, name, count, elements, dtype, category);
}

static gint32
event (PlanLower *self, PlanBucketKind kind, const char *what)
{
  g_autofree char *name = plan_layout_bucket_name (kind, what);
  return plan_schedule_add_event (self->schedule, name, (guint32)self->layout.buckets[kind].length);
}

/* Declares what the optimizer keeps for its part of a bucket. */
static void
declare_optimizer (PlanLower *self, PlanBucketKind kind)
{
  PlanLowerBucket *b = &self->bucket[kind];
  const gint64 units = self->layout.buckets[kind].length;
  const guint64 own = (guint64)plan_lower_own_elements (self, kind);
  const guint64 here = own - (guint64)plan_lower_host_elements (self, kind);
  const gboolean has_main = !IS (self, MAIN_PARAMS, AUTO);
  const PlanDtype avg = plan_field_dtype (self->plan, PLAN_EXP_AVG);
  const PlanDtype avg_sq = plan_field_dtype (self->plan, PLAN_EXP_AVG_SQ);
  const gboolean both_bf16 = avg == PLAN_DTYPE_BF16 && avg_sq == PLAN_DTYPE_BF16;
  const gboolean widens = self->stack->optimizer.kind == PLAN_OPTIMIZER_DISTRIBUTED && !both_bf16;
  const PlanCategory category = PLAN_CATEGORY_OPTIMIZER;

  if (has_main)
    b->main = state_of (self, kind, "main", units, own, self->dtype.main_params,
                        PLAN_CATEGORY_MAIN_PARAMS);
  plan_lower_declare_host_state (self, kind);
  if (here == 0)
    return;
  if (IS (self, FUSED_MASTERS, ON))
    b->masters = state_of (self, kind, "masters", units, here, PLAN_DTYPE_FP32, category);
  b->exp_avg = state_of (self, kind, "exp_avg", units, here, avg, category);
  if (widens && avg != PLAN_DTYPE_FP32)
    b->wide_avg = state_of (self, kind, "wide_avg", units, here, PLAN_DTYPE_FP32, category);
  if (IS (self, OPTIMIZER, SGD))
    return;
  b->exp_avg_sq = state_of (self, kind, "exp_avg_sq", units, here, avg_sq, category);
  if (IS (self, ADAM_FOREACH, ON))
    b->roots = state_of (self, kind, "roots", units, here, avg_sq, category);
  if (widens && avg_sq != PLAN_DTYPE_FP32)
    b->wide_avg_sq = state_of (self, kind, "wide_avg_sq", units, here, PLAN_DTYPE_FP32, category);
}

/* Decides over which ranks a kind of bucket is sharded, and whether its weights, gradients and
 * optimizer state are. A group of one rank shards nothing. */
static void
declare_sharing (PlanLower *self, PlanBucketKind kind)
{
  PlanLowerBucket *b = &self->bucket[kind];
  const gboolean is_experts = plan_bucket_is_of_experts (kind);
  b->is_unit = plan_bucket_is_unit (kind);
  b->is_pooled = self->policy.pools && plan_layout_is_pooled (&self->layout, kind);
  b->ranks = is_experts ? self->place.expert_ranks : self->place.ranks;
  b->rank = is_experts ? self->place.expert_rank : self->place.rank;
  b->inner_group = is_experts ? self->comm.expert_inner : self->comm.inner;
  b->gather_group = is_experts ? self->comm.expert_gather : self->comm.gather;
  const gboolean is_shared = b->ranks > 1;
  b->shards_optimizer = is_shared && plan_shards_optimizer (self->plan);
  b->shards_grads = is_shared && plan_shards_grads (self->plan);
  b->shards_weights = is_shared
                      && (plan_shards_weights (self->plan)
                          || (b->shards_grads && self->stack->weights.gathers_each_pass));
  b->rounds_late = b->shards_weights && self->stack->weights.rounds_as_gathered
                   && !IS (self, MAIN_PARAMS, AUTO);
  b->sums_whole
      = !b->shards_optimizer || (self->stack->grads.fresh == PLAN_GRADS_LEFT && !b->shards_grads);
}

static void
declare_weights (PlanLower *self, PlanBucketKind kind)
{
  PlanLowerBucket *b = &self->bucket[kind];
  const PlanBucket *layout = &self->layout.buckets[kind];
  const guint64 full = layout->padded, part = (guint64)plan_lower_shard_elements (self, kind);
  const gint64 sets
      = b->is_pooled && b->shards_weights ? plan_lower_pool_length (self) : layout->length;
  const gboolean columns
      = self->policy.gathers_columns && plan_layout_quantises (kind, self->stack, self->plan);
  const gboolean lands = b->shards_weights && self->stack->weights.gathered == PLAN_GATHERED_COPIED;
  b->weights = state_of (self, kind, "weights", sets, full, b->dtype,
                         b->shards_weights ? PLAN_CATEGORY_GATHERED : PLAN_CATEGORY_WEIGHTS);
  if (lands)
    b->landing
        = state_of (self, kind, "landing", layout->length, full, b->dtype, PLAN_CATEGORY_GATHERED);
  if (b->shards_weights && !b->rounds_late)
    b->shard
        = state_of (self, kind, "shard", layout->length, part, b->dtype, PLAN_CATEGORY_WEIGHTS);
  if (columns)
    b->columns = state_of (self, kind, "columns", sets, full, b->dtype,
                           b->shards_weights ? PLAN_CATEGORY_GATHERED : PLAN_CATEGORY_WEIGHTS);
  if (columns && b->shards_weights)
    b->column_shard = state_of (self, kind, "column_shard", layout->length, part, b->dtype,
                                PLAN_CATEGORY_WEIGHTS);
  if (columns && b->shards_optimizer)
    b->columns_gathered = event (self, kind, "columns_gathered");
  if (b->shards_optimizer)
    b->gathered = event (self, kind, "gathered");
  if (self->policy.splits_shards)
    b->whole = event (self, kind, "whole");
}

static void
declare_gradients (PlanLower *self, PlanBucketKind kind)
{
  PlanLowerBucket *b = &self->bucket[kind];
  const PlanBucket *layout = &self->layout.buckets[kind];
  const guint64 full = layout->padded, part = (guint64)plan_lower_shard_elements (self, kind);
  const guint64 held = b->shards_grads ? part : full;
  const gboolean differs = self->dtype.grad_comm != self->dtype.main_grads;
  const gint64 sets
      = b->is_pooled && b->shards_grads ? plan_lower_pool_length (self) : layout->length;
  b->grads = state_of (self, kind, "grads", layout->length, held, self->dtype.main_grads,
                       PLAN_CATEGORY_MAIN_GRADS);
  if (self->stack->grads.fresh == PLAN_GRADS_LEFT && self->place.data_parallel > 1
      && !b->shards_optimizer)
    b->half = state_of (self, kind, "half_grads", layout->length, full, self->sizes->compute,
                        PLAN_CATEGORY_MAIN_GRADS);
  /* The last chunk of a loss reduces the output layer's gradient in every micro batch of a pipeline
   * (torchtitan's components/loss.py, ChunkedLossWrapper). */
  const gboolean is_chunked = kind == PLAN_BUCKET_HEAD && self->policy.joins_pieces;
  if (self->policy.keeps_whole && b->shards_grads && !(self->policy.holds_gradients && is_chunked))
    b->kept = state_of (
        self, kind, "kept_grads", layout->length, full,
        self->stack->grads.fresh == PLAN_GRADS_COLLECTED_WIDE ? self->dtype.grad_comm : b->dtype,
        PLAN_CATEGORY_MAIN_GRADS);
  if (self->stack->optimizer.kind == PLAN_OPTIMIZER_DISTRIBUTED && !IS (self, PRECISION_AWARE, ON)
      && b->main >= 0 && self->dtype.main_grads != self->dtype.main_params)
    b->cast = state_of (self, kind, "cast_grads", layout->length,
                        (guint64)plan_lower_own_elements (self, kind), self->dtype.main_params,
                        PLAN_CATEGORY_MAIN_GRADS);
  if (b->shards_grads || (b->ranks > 1 && differs))
    b->bucket = state_of (self, kind, "bucket", sets, full, self->dtype.grad_comm,
                          PLAN_CATEGORY_GRAD_BUCKETS);
  if (b->shards_optimizer && IS (self, REDUCE_ALGO, A2A))
    b->received = state_of (self, kind, "received", layout->length, full, self->dtype.grad_comm,
                            PLAN_CATEGORY_GRAD_BUCKETS);
  if (self->place.replicas > 1 && differs)
    b->outer = state_of (self, kind, "outer", layout->length, held, self->dtype.grad_comm,
                         PLAN_CATEGORY_GRAD_BUCKETS);
  if (b->ranks * self->place.replicas > 1)
    b->reduced = event (self, kind, "reduced");
}

static void
declare_bucket (PlanLower *self, PlanBucketKind kind)
{
  PlanLowerBucket *b = &self->bucket[kind];
  memset (b, 0xff, sizeof *b); /* all buffers and events: -1 */
  declare_sharing (self, kind);
  b->lends_grads = plan_layout_lends_grads (kind, self->stack, self->plan);
  b->dtype = plan_layout_quantises (kind, self->stack, self->plan)
                 ? plan_gathered_dtype (self->plan)
                 : self->sizes->compute;
  if (!plan_layout_has (&self->layout, kind))
    return;
  declare_weights (self, kind);
  declare_optimizer (self, kind);
  declare_gradients (self, kind);
}

/* Declares a gradient tensor for each parameter of each unit, if those that autograd leaves stay
 * until the backward pass ends. */
static void
declare_fresh (PlanLower *self)
{
  for (PlanTensorRole role = 0; role < PLAN_N_TENSORS; role++)
    self->params.fresh[role] = -1;
  for (PlanBucketKind kind = 0;
       self->stack->grads.fresh == PLAN_GRADS_LEFT && kind < PLAN_N_BUCKETS; kind++)
    for (guint i = 0; i < self->layout.buckets[kind].n_slots; i++)
      {
        const PlanTensor *tensor = &self->layout.slots[kind][i].tensor;
        g_autofree char *name = g_strconcat ("fresh.", tensor->name, NULL);
        self->params.fresh[tensor->role]
            = buffer (self, name, self->layout.buckets[kind].length, tensor->rows * tensor->cols,
                      self->sizes->compute, PLAN_CATEGORY_GRAD_BUCKETS);
      }
}

/* Declares buffers for gradients as kernels write them, before they are moved to their bucket. */
static void
declare_raw (PlanLower *self)
{
  for (PlanTensorRole role = 0; role < PLAN_N_TENSORS; role++)
    {
      const PlanTensor tensor = plan_lower_tensor (self, role);
      self->params.raw[role] = -1;
      if (tensor.rows > 0)
        {
          g_autofree char *name = g_strconcat ("raw.", tensor.name, NULL);
          const gboolean is_of_one
              = plan_lower_is_sequential (self)
                && (role == PLAN_TENSOR_EXPERT_GATE_UP || role == PLAN_TENSOR_EXPERT_DOWN);
          const guint64 parts = is_of_one ? (guint64)self->sizes->experts : 1;
          self->params.raw[role] = buffer (self, name, 1, tensor.rows * tensor.cols / parts,
                                           self->sizes->compute, PLAN_CATEGORY_GRAD_BUCKETS);
        }
    }
  const PlanTensor output = plan_lower_tensor (
      self, self->model->tied_embeddings ? PLAN_TENSOR_EMBEDDING : PLAN_TENSOR_OUTPUT);
  self->params.raw_sum
      = self->plan->value[PLAN_LOSS_CHUNKS] > 1 && !self->policy.is_eval
                && plan_lower_moves_sums (self)
            ? buffer (self, "raw.sum", 1, output.rows * output.cols,
                      self->policy.joins_pieces ? self->dtype.grad_comm : PLAN_DTYPE_FP32,
                      PLAN_CATEGORY_GRAD_BUCKETS)
            : -1;
  const gint32 shared = self->params.raw[PLAN_TENSOR_EMBEDDING];
  self->params.raw_again
      = (self->policy.collects || self->stack->grads.fresh == PLAN_GRADS_LEFT)
                && self->model->tied_embeddings
            ? buffer (self, "raw.again", 1,
                      plan_schedule_buffer (self->schedule, (guint)shared)->elements,
                      self->sizes->compute, PLAN_CATEGORY_GRAD_BUCKETS)
            : -1;
}

/* Declares copies of quantised weights: transposes, for the unit in use or for all layers; or, if
 * weights are gathered unquantised, quantised copies along rows and columns, for all layers or for
 * the product in use (PLAN_QUANTISED_ON_USE). */
static void
declare_derived_of_nodes (PlanLower *self, const PlanLayerGraph *net)
{
  const gint64 layers = self->stage.layers;
  const gboolean keeps = self->policy.keeps_transposes;
  const gint64 copies = self->stack->weights.quantised == PLAN_QUANTISED_ON_USE ? 1 : layers;
  for (guint i = 0; i < net->n_nodes; i++)
    {
      const PlanNode *node = &net->nodes[i];
      if (!plan_node_is_product (node) || self->params.copy[node->weight] >= 0
          || self->params.transposed[node->weight] >= 0)
        continue;
      const PlanTensor tensor = plan_lower_tensor (self, node->weight);
      g_autofree char *copy = g_strconcat ("copy.", tensor.name, NULL);
      g_autofree char *col = g_strconcat (copy, ".col", NULL);
      g_autofree char *turned = g_strconcat ("transposed.", tensor.name, NULL);
      const guint64 elements = tensor.rows * tensor.cols;
      if (self->policy.copies_weights)
        self->params.copy[node->weight]
            = buffer (self, copy, copies, elements, self->sizes->weights, PLAN_CATEGORY_DERIVED);
      if (self->policy.copies_weights && self->sizes->has_columns)
        self->params.copy_col[node->weight]
            = buffer (self, col, copies, elements, self->sizes->weights, PLAN_CATEGORY_DERIVED);
      if (self->policy.transposes_weights || keeps)
        self->params.transposed[node->weight]
            = buffer (self, turned, keeps ? layers : 1, elements, self->sizes->weights,
                      PLAN_CATEGORY_DERIVED);
    }
}

static void
declare_derived (PlanLower *self)
{
  for (PlanTensorRole role = 0; role < PLAN_N_TENSORS; role++)
    self->params.copy[role] = self->params.copy_col[role] = self->params.transposed[role] = -1;
  for (guint kind = 0; self->stage.layers > 0 && kind < PLAN_N_LAYER_KINDS; kind++)
    declare_derived_of_nodes (self, self->graphs->of[kind]);
}

/* Declares the buffers of one gather of all weights as a list: this rank's part as one tensor,
 * every rank's likewise, and the output of the collective (nanotron's all_gather_coalesced, then
 * c10d's all_gather). */
static void
declare_flat_gather (PlanLower *self)
{
  const gint64 ranks = self->place.ranks;
  guint64 own = 0;
  self->flat.sent = self->flat.parts = self->flat.landed = -1;
  if (self->stack->weights.whole != PLAN_WHOLE_AT_ONCE || !self->policy.shards_optimizer)
    return;
  for (PlanBucketKind kind = 0; kind < PLAN_N_BUCKETS; kind++)
    if (plan_layout_has (&self->layout, kind))
      own += (guint64)(plan_lower_own_elements (self, kind) * self->layout.buckets[kind].length);
  if (own == 0)
    return;
  self->flat.sent = buffer (self, "sent", 1, own, self->sizes->compute, PLAN_CATEGORY_GATHERED);
  self->flat.parts
      = buffer (self, "parts", ranks, own, self->sizes->compute, PLAN_CATEGORY_GATHERED);
  self->flat.landed = buffer (self, "landed", 1, own * (guint64)ranks, self->sizes->compute,
                              PLAN_CATEGORY_GATHERED);
}

/* Matrices in a slot of a bucket, each of which is quantised by itself. */
static guint64
matrices_of (const PlanLower *self, PlanBucketKind kind)
{
  return kind == PLAN_BUCKET_EXPERTS ? (guint64)self->sizes->experts : 1;
}

/* Scales of a bucket's weights that are quantised in squares, one for each square. */
static guint64
squares_of (const PlanLower *self, PlanBucketKind kind)
{
  const PlanSlot *slots = self->layout.slots[kind];
  const guint64 matrices = matrices_of (self, kind);
  guint64 squares = 0;
  for (guint s = 0; s < self->layout.buckets[kind].n_slots; s++)
    squares += matrices
               * plan_dtype_square_scales (slots[s].tensor.rows / matrices, slots[s].tensor.cols);
  return squares;
}

/* Tensors of a bucket, of which each has a scale; each expert is one. */
static gint64
tensors_of (const PlanLower *self, PlanBucketKind kind)
{
  return self->layout.buckets[kind].n_slots * (gint64)matrices_of (self, kind);
}

/* Declares what quantising the updated weights of a kind of bucket works on, and the scales that
 * stay. Every rank has those of all parameters of a layer, not of its shard alone. */
static void
declare_quantising (PlanLower *self, PlanBucketKind kind)
{
  PlanLowerQuantised *q = &self->quantised[kind];
  const gint64 layers = self->stage.layers, units = plan_lower_count_units (self, kind);
  const PlanBucket *bucket = &self->layout.buckets[kind];
  const gboolean blockwise = IS (self, COMPUTE, FP8_BLOCKWISE);
  const gboolean mx = IS (self, PARAM_GATHER, MXFP8), nv = IS (self, PARAM_GATHER, NVFP4);
  const guint64 block = mx ? 32 : 16, limit = G_GUINT64_CONSTANT (5) << 30;
  *q = (PlanLowerQuantised){ -1, -1, -1, -1, 0 };
  if (!plan_layout_quantises (kind, self->stack, self->plan) || units == 0)
    return;
  q->unrounded
      = state_of (self, kind, "unrounded", layers, (guint64)plan_lower_own_elements (self, kind),
                  self->sizes->compute, PLAN_CATEGORY_OPTIMIZER);
  if (blockwise && self->policy.shards_weights
      && self->stack->weights.quantised == PLAN_QUANTISED_UNITS)
    q->work
        = state_of (self, kind, "quantise_work", MIN (units, (gint64)(limit / bucket->padded) + 1),
                    bucket->padded, PLAN_DTYPE_E4M3, PLAN_CATEGORY_OPTIMIZER);
  /* Largest magnitudes: fp32, one for each square, where squares have scales; bf16, one for each 32
   * or 16 elements along rows and along columns; else one for each tensor. */
  const guint64 squares = squares_of (self, kind);
  q->magnitudes = blockwise  ? (gint64)squares
                  : mx || nv ? (gint64)(2 * bucket->raw / block)
                             : tensors_of (self, kind);
  if (!IS (self, COMPUTE, FP8_DELAYED))
    q->amax = state_of (self, kind, "amax", 1, (guint64)(q->magnitudes * units),
                        mx || nv ? PLAN_DTYPE_BF16 : PLAN_DTYPE_FP32, PLAN_CATEGORY_OPTIMIZER);
  /* One set of scales along rows and one along columns; or, for squares, one set alone, where
   * copies along columns make their own. */
  if (blockwise)
    q->scales
        = state_of (self, kind, "scales", layers,
                    self->stack->weights.quantised == PLAN_QUANTISED_UNITS ? 2 * squares : squares,
                    PLAN_DTYPE_FP32, PLAN_CATEGORY_DERIVED);
  else if (mx || nv)
    q->scales = state_of (self, kind, "scales", layers, 2 * bucket->raw / block,
                          mx ? PLAN_DTYPE_E8M0 : PLAN_DTYPE_E4M3, PLAN_CATEGORY_DERIVED);
}

/* Declares the micro batch, sums and workspaces. */
static void
declare_rest (PlanLower *self)
{
  const guint64 rows = (guint64)self->sizes->rows, sums = 2 * PLAN_EXACT_LIMBS;
  const guint all = plan_schedule_ranks (self->schedule);
  const gboolean loads = self->stage.has_embedding || self->stage.has_loss;
  const gboolean computes = !plan_stage_reads_logits (&self->stage);
  const gboolean is_own = self->stack->layer.kernels == PLAN_KERNELS_OWN;
  const gboolean draws
      = is_own && (plan_drops_hidden (self->plan) || plan_attention_dropout (self->plan) > 0);
  self->input.tokens = self->input.targets = self->input.places = self->input.start
      = self->input.keys = -1;
  if (loads)
    {
      self->input.tokens
          = buffer (self, "tokens", self->rows, rows, PLAN_DTYPE_I32, PLAN_CATEGORY_WORKSPACE);
      self->input.targets
          = buffer (self, "targets", self->rows, rows, PLAN_DTYPE_I32, PLAN_CATEGORY_WORKSPACE);
    }
  if (self->plan->value[PLAN_DOC_TOKENS] > 0 && (self->plan->value[PLAN_PP] == 1 || is_own))
    self->input.places
        = buffer (self, "places", self->rows, rows, PLAN_DTYPE_I32, PLAN_CATEGORY_WORKSPACE);
  if (draws)
    {
      self->input.start
          = buffer (self, "start", self->rows, 1, PLAN_DTYPE_I64, PLAN_CATEGORY_WORKSPACE);
      self->input.keys = buffer (self, "random_keys", self->stage.layers + 1, PLAN_RANDOM_KEY,
                                 PLAN_DTYPE_I32, PLAN_CATEGORY_WORKSPACE);
    }
  self->sums.own = buffer (self, "sums", 1, sums, PLAN_DTYPE_I64, PLAN_CATEGORY_WORKSPACE);
  self->sums.all
      = all > 1 ? buffer (self, "all_sums", 1, sums * all, PLAN_DTYPE_I64, PLAN_CATEGORY_WORKSPACE)
                : self->sums.own;
  self->sums.nan
      = IS (self, NAN_CHECK, PARAMS) && !IS (self, TASK, EVAL)
            ? buffer (self, "nan_sum", 1, PLAN_EXACT_LIMBS, PLAN_DTYPE_I64, PLAN_CATEGORY_WORKSPACE)
            : -1;
  self->sums.coef = buffer (self, "coef", 1, 4, PLAN_DTYPE_FP32, PLAN_CATEGORY_WORKSPACE);
  const gboolean is_cpu = self->cluster->kind == PLAN_DEVICE_CPU;
  self->work.scratch
      = is_own ? buffer (self, "scratch", 1, 0, PLAN_DTYPE_FP32, PLAN_CATEGORY_WORKSPACE) : -1;
  for (guint backward = 0; backward < 2; backward++)
    self->work.gemm[backward]
        = computes && self->stack->memory.gemm_bytes > 0 && !(backward && self->policy.is_eval)
              ? buffer (self, backward ? "product_work.backward" : "product_work.forward", 1,
                        self->stack->memory.gemm_bytes, PLAN_DTYPE_U8, PLAN_CATEGORY_WORKSPACE)
              : -1;
  const guint64 alignment = self->work.scratch >= 0 ? PLAN_SCRATCH_ALIGNMENT : 0;
  self->work.attention
      = is_cpu ? -1
               : buffer (self, "attention_work", 1, plan_lower_attention_work (self) + alignment,
                         PLAN_DTYPE_FP32, PLAN_CATEGORY_WORKSPACE);
}

static void
measure_groups (PlanLower *self, guint rank)
{
  const gint64 *value = self->plan->value;
  const gint64 all = plan_data_parallel (self->plan, self->cluster) * value[PLAN_CP];
  const gint64 of_stage = plan_cluster_devices (self->cluster) / value[PLAN_PP];
  const gint64 in_stage = (gint64)rank % of_stage, place = in_stage / value[PLAN_TP];
  self->place.replicas = value[PLAN_DP_OUTER];
  self->place.ranks = all / self->place.replicas;
  self->place.tensor_rank = (gint64)rank % value[PLAN_TP];
  self->place.context_rank = place % value[PLAN_CP];
  self->place.rank = place % self->place.ranks;
  self->place.replica = place / self->place.ranks;
  self->place.expert_ranks
      = plan_layout_expert_data_parallel (self->plan, all) / self->place.replicas;
  self->place.expert_rank = in_stage / value[PLAN_ETP] / value[PLAN_EP] % self->place.expert_ranks;
  self->place.expert_part = in_stage % value[PLAN_ETP];
  self->place.micro_batches = plan_micro_batches (self->plan, self->cluster);
  plan_lower_take_rows (self);
  self->policy.splits_shards = IS (self, OUTER_STRATEGY, OPTIM);
  /* A group of one rank shards nothing. */
  self->place.most_ranks = self->model->experts > 0
                               ? MAX (self->place.ranks, self->place.expert_ranks)
                               : self->place.ranks;
  self->policy.shards_optimizer = self->place.most_ranks > 1 && plan_shards_optimizer (self->plan);
  self->policy.shards_grads = self->place.most_ranks > 1 && plan_shards_grads (self->plan);
  self->policy.drops_weights = self->place.most_ranks > 1 && plan_shards_weights (self->plan);
  self->policy.shards_weights
      = self->policy.drops_weights
        || (self->policy.shards_grads && self->stack->weights.gathers_each_pass);
  self->policy.rounds_late = self->policy.shards_weights && self->stack->weights.rounds_as_gathered
                             && !IS (self, MAIN_PARAMS, AUTO);
  /* Experts may be split over more ranks than the rest, which then lies whole on each. */
  self->policy.passes_outer = self->policy.shards_weights && self->place.ranks > 1
                              && self->stack->weights.outer >= PLAN_OUTER_EACH_PASS;
  self->policy.has_own_groups = self->policy.passes_outer
                                && self->stack->weights.outer == PLAN_OUTER_OWN_GROUPS
                                && !self->model->tied_embeddings;
  self->policy.gathers_last_early
      = self->policy.drops_weights && self->stack->weights.ahead == PLAN_AHEAD_ONE;
  self->policy.joins_pieces
      = self->stack->loss.pieces == PLAN_PIECES_AUTOGRAD && self->plan->value[PLAN_LOSS_CHUNKS] > 1;
  self->policy.holds_gradients = self->policy.shards_grads && self->plan->value[PLAN_PP] > 1
                                 && self->stack->pipeline.reductions == PLAN_STAGES_REDUCE_HELD;
  self->policy.keeps_weights
      = self->policy.holds_gradients && self->policy.shards_weights && !self->policy.drops_weights;
  self->policy.collects = self->policy.shards_grads && plan_stack_collects (self->stack);
  self->policy.keeps_whole = self->policy.shards_grads
                             && (IS (self, GRAD_SYNC, LAST) || self->policy.holds_gradients)
                             && self->place.micro_batches > 1 && !IS (self, TASK, EVAL);
  self->place.data_parallel = all;
}

/* The number of units whose weights are gathered ahead: one where the stack says so, and else as
 * many as reach half a communication unit, of which `counted` elements are taken already. */
static gint64
units_ahead (const PlanLower *self, gint64 counted)
{
  const PlanBucket *b = self->layout.buckets;
  const gint64 unit = (gint64)(b[PLAN_BUCKET_LAYER].padded + b[PLAN_BUCKET_PLAIN].padded
                               + (self->place.expert_ranks > 1 ? plan_layout_of_experts (b) : 0));
  const gint64 left = self->policy.comm_unit / 2 - counted;
  if (self->policy.shards_weights && self->stack->weights.ahead == PLAN_AHEAD_ONE)
    return self->stage.layers > 1 ? 1 : 0;
  if (!self->policy.shards_weights || left <= 0)
    return 0;
  return MIN (self->policy.pools ? 1 : (left + unit - 1) / unit, MAX (self->stage.layers - 1, 0));
}

/* Evaluations and CUDA graphs gather nothing across the border between steps. */
static PlanGatherTime
gather_time (const PlanLower *self)
{
  if (IS (self, TASK, EVAL))
    return PLAN_GATHER_AT_BEGIN;
  if ((IS (self, OVERLAP_PARAM_GATHER, OFF) || self->stack->weights.whole == PLAN_WHOLE_AT_ONCE)
      && !self->policy.shards_weights)
    return PLAN_GATHER_AT_END;
  if (IS (self, CUDA_GRAPH, ON))
    return PLAN_GATHER_AT_BEGIN;
  if (self->stage.n_virtual > 1)
    return PLAN_GATHER_BY_STAGE;
  return self->stack->weights.whole == PLAN_WHOLE_IN_TURN ? PLAN_GATHER_IN_TURN
                                                          : PLAN_GATHER_AS_UPDATED;
}

/* Finds the nodes to be recomputed. Layers of one kind differ only in whether they are among the
 * first recompute_layers. */
static void
find_again (PlanLower *self)
{
  for (guint kind = 0; kind < PLAN_N_LAYER_KINDS; kind++)
    for (guint i = 0; i < self->graphs->of[kind]->n_nodes; i++)
      for (guint is_in_block = 0; is_in_block < 2; is_in_block++)
        if (plan_node_is_again (self->sizes, &self->graphs->of[kind]->nodes[i], self->plan,
                                is_in_block != 0))
          self->policy.again[kind][is_in_block] |= plan_node_bit (i);
}

static void
measure (PlanLower *self, guint rank)
{
  const Plan *plan = self->plan;
  find_again (self);
  self->dtype.main_params = plan_field_dtype (plan, PLAN_MAIN_PARAMS);
  self->dtype.main_grads = plan_field_dtype (plan, PLAN_MAIN_GRADS);
  self->dtype.grad_comm = plan_field_dtype (plan, PLAN_GRAD_COMM);
  measure_groups (self, rank);
  const PlanBucket *b = self->layout.buckets;
  const gboolean has_hooks = self->stack->weights.ahead == PLAN_AHEAD_HOOKS;

  self->policy.comm_unit = plan_layout_comm_unit (&self->layout, self->stack, plan);
  self->policy.pools
      = !IS (self, DOUBLE_BUFFER, OFF) && self->place.ranks > 1 && !self->layout.by_size;
  self->policy.sets = (guint)(self->policy.pools && self->policy.shards_grads
                                  ? (self->stack->grads.pool == PLAN_GRAD_POOL_ONE ? 1 : 2)
                                  : self->stack->grads.queued_reductions);
  self->policy.chunk
      = IS (self, RECOMPUTE, FULL) && IS (self, RECOMPUTE_METHOD, UNIFORM) && !IS (self, TASK, EVAL)
            ? plan->value[PLAN_RECOMPUTE_LAYERS]
            : 1;
  self->policy.ahead = units_ahead (self, 0);
  self->combined.by_share = self->combined.is_planned && self->policy.drops_weights && has_hooks;
  self->policy.ahead_of_head
      = has_hooks && !self->policy.pools && !self->combined.by_share ? self->policy.ahead : 0;
  self->policy.ahead_of_embedding = has_hooks && !self->policy.pools
                                        ? units_ahead (self, (gint64)b[PLAN_BUCKET_HEAD].padded)
                                        : 0;
  self->policy.head_holds_positions = plan_lower_is_early (self, PLAN_BUCKET_HEAD);
  self->policy.gathers_head_late = self->policy.shards_weights && has_hooks && self->policy.pools
                                   && !self->policy.head_holds_positions
                                   && plan_layout_has (&self->layout, PLAN_BUCKET_HEAD);

  self->policy.is_eval = IS (self, TASK, EVAL);
  self->policy.sums_whole
      = !self->policy.shards_optimizer
        || (self->stack->grads.fresh == PLAN_GRADS_LEFT && !self->policy.shards_grads);
  self->policy.reduces_together
      = !self->policy.shards_grads
        && (IS (self, OVERLAP_GRAD_REDUCE, OFF)
            || (self->policy.shards_optimizer && self->policy.sums_whole));
  self->policy.sums_shared_first = self->model->cut.shares_embedding && !self->policy.is_eval
                                   && plan_stack_sums_shared_first (self->stack);
  self->policy.syncs = IS (self, SYNC_EVERY_MICRO_BATCH, ON);
  self->policy.gather_time = gather_time (self);

  self->policy.scales_buckets = plan_scales_gradients (plan, self->place.ranks);
  const gboolean quantised = plan_layout_quantises (PLAN_BUCKET_LAYER, self->stack, self->plan);
  self->policy.copies_weights = self->sizes->quantises && !quantised;
  self->policy.gathers_columns
      = quantised && (IS (self, PARAM_GATHER, MXFP8) || IS (self, PARAM_GATHER, NVFP4));
  const gboolean transposes
      = quantised && self->sizes->has_columns && !self->policy.gathers_columns;
  const gboolean keeps
      = IS (self, KEEP_TRANSPOSE, ON) || self->stack->weights.transposed == PLAN_TRANSPOSED_ONCE;
  self->policy.transposes_weights = transposes && !keeps;
  self->policy.keeps_transposes = transposes && keeps;
}

static void
lower_micro_batch (PlanLower *self, gboolean is_first, gboolean is_last)
{
  self->now.is_first_micro_batch = is_first;
  plan_lower_forward (self);
  plan_lower_fetch_ahead (self);
  if (!self->policy.is_eval)
    plan_lower_backward (self, is_last);
}

/* Most micro batches are alike and become a repeat. The first one differs if it copies or gathers
 * weights that the others find; the last one differs if it reduces gradients that the others
 * leave. */
static void
lower_micro_batches (PlanLower *self)
{
  const gboolean last_differs = !self->policy.is_eval && !self->policy.syncs
                                && ((self->place.most_ranks > 1 && !self->policy.shards_grads)
                                    || self->place.replicas > 1 || self->policy.keeps_whole);
  const gboolean first_differs
      = self->policy.splits_shards || self->policy.gathers_head_late || self->policy.copies_weights
        || self->policy.keeps_transposes || self->policy.ahead_of_embedding > 0
        || self->policy.collects || self->policy.keeps_whole
        || (self->policy.shards_optimizer && self->policy.gather_time == PLAN_GATHER_IN_TURN)
        || (self->policy.is_eval && self->policy.ahead_of_head > 0);
  const gint64 n = self->place.micro_batches, first = first_differs ? 1 : 0;
  const gint64 alike = n - first - (last_differs ? 1 : 0);
  if (first_differs)
    lower_micro_batch (self, TRUE, n == 1 || !last_differs);
  if (alike > 1)
    {
      plan_schedule_begin_repeat (self->schedule, "m", 0, alike, 1);
      self->now.depth++;
    }
  if (alike > 0)
    lower_micro_batch (self, !first_differs, !last_differs);
  if (alike > 1)
    {
      plan_schedule_end_repeat (self->schedule);
      self->now.depth--;
    }
  if (last_differs && n > first)
    lower_micro_batch (self, !first_differs, TRUE);
}

static void
declare (PlanLower *self)
{
  plan_lower_declare_groups (self);
  for (PlanBucketKind kind = 0; kind < PLAN_N_BUCKETS; kind++)
    declare_bucket (self, kind);
  declare_fresh (self);
  declare_raw (self);
  plan_lower_declare_unused (self);
  declare_derived (self);
  declare_flat_gather (self);
  plan_lower_declare_amax_group (self);
  for (PlanBucketKind kind = 0; kind < PLAN_N_BUCKETS; kind++)
    declare_quantising (self, kind);
  plan_lower_declare_sites (self);
  declare_rest (self);
  plan_lower_declare_values (self);
  plan_lower_declare_embedding (self);
  plan_lower_declare_head (self);
  plan_lower_declare_joined (self);
  plan_lower_declare_module (self);
  plan_lower_declare_attention (self);
  plan_lower_declare_replicated (self);
  plan_lower_declare_shared (self);
  plan_lower_declare_offload (self);
  plan_lower_declare_router (self);
  plan_lower_declare_events (self);
  plan_lower_declare_trades (self);
  self->event.exchanged = plan_schedule_add_event (self->schedule, "exchanged", 1);
  plan_lower_declare_pieces (self);
}

/* Finds this rank's stage, and the part of the model that it holds. A stage's ranks are neighbours
 * (Megatron-LM's and nanotron's order of groups). */
static void
take_stage (PlanLower *self, const PlanCase *of, guint rank)
{
  const gint64 stages = self->plan->value[PLAN_PP];
  self->place.stage_number = (gint64)rank / (plan_cluster_devices (self->cluster) / stages);
  self->stage = plan_stage_of (self->model, self->stack, self->plan, self->place.stage_number);
  self->now.here = plan_stage_whole (&self->stage);
  if (stages == 1 && self->stage.modules == 0)
    return;
  self->part = plan_stage_model (&self->stage, self->model);
  self->model = &self->part;
  if (self->place.stage_number > 0)
    plan_case_lay_out (of, self->model, &self->layout);
}

static void
begin (PlanLower *self, const PlanCase *of, guint rank)
{
  *self = (PlanLower){ .model = of->model,
                       .whole = of->model,
                       .cluster = of->cluster,
                       .asked = of->asked,
                       .plan = &of->plan,
                       .stack = of->stack,
                       .layout = of->layout,
                       .graphs = &of->graphs,
                       .sizes = &of->graphs.sizes };
  take_stage (self, of, rank);
  measure (self, rank);
}

static PlanSchedule *
lower (const PlanCase *of, guint rank, GArray *passes, GError **error)
{
  PlanLower self;
  const guint all = (guint)plan_cluster_devices (of->cluster);
  g_return_val_if_fail (rank < all, NULL);
  begin (&self, of, rank);
  self.passes = passes;
  plan_lower_init_buckets (&self);

  g_autoptr (PlanSchedule) schedule = plan_schedule_new (rank, all);
  self.schedule = schedule;
  if (IS (&self, CUDA_GRAPH, ON))
    plan_schedule_set_graph (schedule);
  declare (&self);
  plan_schedule_begin_section (schedule, PLAN_SECTION_SETUP);
  plan_lower_setup (&self);
  plan_schedule_begin_section (schedule, PLAN_SECTION_STEP);
  self.now.is_in_step = TRUE;
  plan_lower_begin_step (&self);
  if (self.stage.n_virtual > 1)
    plan_lower_interleaved (&self);
  else if (self.comm.next >= 0)
    plan_lower_pipeline (&self);
  else if (self.combined.is_planned)
    plan_lower_combined (&self);
  else
    lower_micro_batches (&self);
  plan_lower_end_step (&self);
  self.now.is_in_step = FALSE;
  plan_schedule_begin_section (schedule, PLAN_SECTION_TEARDOWN);
  plan_lower_teardown (&self);
  if (self.work.scratch >= 0)
    plan_schedule_resize_buffer (schedule, (guint)self.work.scratch, self.work.scratch_elements);
  plan_lower_clear_buckets (&self);
  if (!passes && g_getenv ("FSDPLAN_DEBUG_CHECK") && !plan_schedule_check (schedule, error))
    return NULL;
  return g_steal_pointer (&schedule);
}

PlanSchedule *
plan_lower (const PlanCase *of, guint rank, GError **error)
{
  return lower (of, rank, NULL, error);
}

PlanSchedule *
plan_lower_brief (const PlanCase *of, guint rank)
{
  g_autoptr (GArray) passes = g_array_new (FALSE, FALSE, sizeof (PlanLowerPass));
  return lower (of, rank, passes, NULL);
}

/* Units whose gradients may be in flight when the next reduction is started, besides `ahead`
 * elements. None if those alone are more than a communication unit. */
static gint64
units_in_flight (const PlanLower *self, guint64 ahead)
{
  const PlanBucket *b = self->layout.buckets;
  const guint64 unit = b[PLAN_BUCKET_LAYER].padded + b[PLAN_BUCKET_PLAIN].padded;
  const guint64 limit = (guint64)self->policy.comm_unit;
  return limit < ahead || unit == 0
             ? 0
             : 1 + (gint64)MIN ((limit - ahead) / unit, (guint64)self->stage.layers);
}

#define COUNTS (1 << 14) /* bound of the counts that a key packs into one number */

void
plan_lower_distil (const PlanCase *of, Plan *out_key)
{
  PlanLower self;
  *out_key = of->plan;
  if (of->model->layers + 1 >= COUNTS)
    return;
  begin (&self, of, 0);
  const gboolean queues = self.policy.shards_grads || self.dtype.grad_comm != self.dtype.main_grads
                          || IS (&self, REDUCE_ALGO, A2A);
  if (self.layout.by_size || of->model->experts > 0) /* units differ */
    return;
  gint64 effect = self.policy.ahead * COUNTS + self.policy.ahead_of_embedding;
  if (queues && self.policy.sets == 0)
    effect = (effect * COUNTS + units_in_flight (&self, 0)) * COUNTS
             + units_in_flight (&self, self.layout.buckets[PLAN_BUCKET_HEAD].padded);
  out_key->value[PLAN_COMM_UNIT] = effect;
}

void
plan_lower_distil_schedule (Plan *key)
{
  key->value[PLAN_NCCL_UB] = PLAN_NCCL_UB_OFF;
  key->value[PLAN_SHARP] = PLAN_SHARP_OFF;
}
