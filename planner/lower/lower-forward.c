/* SPDX-License-Identifier: Apache-2.0 */
/* The forward pass of a micro batch: embedding, layers and head, up to the loss. */
#include "config.h"

#include "planner/lower/lower-acts.h"
#include "planner/lower/lower-buckets.h"
#include "planner/lower/lower-combined.h"
#include "planner/lower/lower-emit.h"
#include "planner/lower/lower-layer.h"
#include "planner/lower/lower-loss.h"
#include "planner/lower/lower-step.h"

#define ONE(array) plan_lower_ref (self->array)

void
plan_lower_declare_embedding (PlanLower *self)
{
  const PlanSizes *sizes = self->sizes;
  const guint64 hidden = (guint64)self->model->hidden;
  const gboolean splits = sizes->split_rows < sizes->rows;
  const guint64 own = (guint64)sizes->split_rows;
  self->embedding.out = self->embedding.mask = -1;
  self->embedding.unnormed = self->embedding.stats = self->embedding.dunnormed = -1;
  if (!self->stage.has_embedding)
    return;
  if (self->model->embed_norm)
    {
      self->embedding.unnormed
          = plan_schedule_add_buffer (self->schedule, "unnormed", (guint32)self->rows, own * hidden,
                                      sizes->compute, PLAN_CATEGORY_ACTIVATIONS);
      self->embedding.stats
          = plan_schedule_add_buffer (self->schedule, "rstd_embedded", self->rows,
                                      own * (self->model->norm == PLAN_NORM_LAYERNORM ? 2 : 1),
                                      PLAN_DTYPE_FP32, PLAN_CATEGORY_ACTIVATIONS);
    }
  if (self->model->embed_norm && !self->policy.is_eval)
    self->embedding.dunnormed = plan_schedule_add_buffer (
        self->schedule, "d.unnormed", 1, own * hidden, sizes->compute, PLAN_CATEGORY_ACTIVATIONS);
  if (splits)
    self->embedding.out
        = plan_schedule_add_buffer (self->schedule, "embedded", 1, (guint64)sizes->rows * hidden,
                                    sizes->compute, PLAN_CATEGORY_ACTIVATIONS);
  if (plan_drops_hidden (self->plan) && self->stack->layer.kernels != PLAN_KERNELS_OWN)
    self->embedding.mask = plan_schedule_add_buffer (
        self->schedule, "mask.embedded", (guint32)self->rows, (guint64)sizes->split_rows * hidden,
        PLAN_DTYPE_U8, PLAN_CATEGORY_ACTIVATIONS);
}

PlanLowerKeep
plan_lower_keep (const PlanLower *self, gint64 layer)
{
  const gint64 place = layer - self->now.here.first;
  const gboolean is_module = plan_lower_is_module (self, layer);
  /* Recomputed layers are the decoder's (multi_token_prediction.py, _checkpointed_forward). */
  const gboolean is_in_block = !is_module && place < self->plan->value[PLAN_RECOMPUTE_LAYERS];
  const guint kind = plan_lower_kind (self, layer);
  return (PlanLowerKeep){ .again = self->policy.is_eval ? G_MAXUINT64
                                                        : self->policy.again[kind][is_in_block],
                          .kind = (guint16)kind,
                          .is_module = (guint16)is_module,
                          .drops_input = self->policy.is_eval || place % self->policy.chunk != 0 };
}

PlanLowerKeep
plan_lower_keep_all (const PlanLower *self, gint64 layer)
{
  return (PlanLowerKeep){ .kind = (guint16)plan_lower_kind (self, layer),
                          .is_module = (guint16)plan_lower_is_module (self, layer) };
}

/* Starts gathering a bucket. If main weights are rounded as they are gathered, the cast waits for
 * the event `behind`, or, if there is none, for all ops issued to the compute stream so far. */
static void
gather_behind (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit, gint32 delta,
               gboolean is_column, PlanRef behind)
{
  const PlanLowerBucket *b = &self->bucket[kind];
  const gboolean columns = is_column && b->columns >= 0;
  const gint64 part = plan_lower_shard_elements (self, kind);
  const PlanRef out = b->landing >= 0 ? plan_lower_unit_ref (b->landing, unit, delta)
                                      : plan_lower_weights_ref (self, kind, unit, delta, columns);
  const PlanRef shard
      = b->shard < 0 ? plan_lower_at (out, (guint64)(b->rank * part))
                     : plan_lower_unit_ref (columns ? b->column_shard : b->shard, unit, delta);
  PlanRef whole = PLAN_REF_NONE;

  if (b->ranks == 1) /* where experts are split over more ranks than the rest */
    return;
  if ((b->is_unit || self->policy.passes_outer) && b->shards_weights && !b->is_pooled)
    plan_lower_alloc (self, out);
  if (b->rounds_late)
    {
      if (behind.array < 0)
        plan_lower_emit (self, PLAN_OP_WAIT, PLAN_STREAM_COMPUTE, NULL, NULL, NULL,
                         ONE (event.done));
      plan_lower_emit (self, PLAN_OP_CAST, PLAN_STREAM_GATHER,
                       PLAN_REFS (shard, plan_lower_unit_ref (b->main, unit, delta)),
                       PLAN_DIMS (part), PLAN_WAITS (behind.array < 0 ? ONE (event.done) : behind),
                       PLAN_REF_NONE);
    }
  if (b->whole >= 0
      && (self->now.is_first_micro_batch || self->policy.syncs || self->policy.is_eval)
      && (!self->now.is_backward || columns || self->stack->weights.ahead == PLAN_AHEAD_HOOKS))
    {
      const gint64 own = plan_lower_own_elements (self, kind);
      whole = plan_lower_unit_ref (b->whole, unit, delta);
      plan_lower_collective (
          self, PLAN_OP_ALL_GATHER, PLAN_STREAM_OUTER_GATHER, self->comm.outer,
          PLAN_REFS (shard, plan_lower_at (shard, (guint64)(self->place.replica * own))), own,
          PLAN_REF_NONE, whole);
    }
  plan_lower_collective (
      self, PLAN_OP_ALL_GATHER, PLAN_STREAM_GATHER, b->gather_group, PLAN_REFS (out, shard), part,
      whole, plan_lower_unit_ref (columns ? b->columns_gathered : b->gathered, unit, delta));
}

void
plan_lower_gather_bucket (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit, gint32 delta,
                          gboolean is_column)
{
  gather_behind (self, kind, unit, delta, is_column, PLAN_REF_NONE);
}

void
plan_lower_gather_last (PlanLower *self)
{
  if (self->policy.gathers_last_early)
    plan_lower_gather (self, PLAN_NO_UNIT, (gint32)self->stage.layers - 1);
}

/* Whether embedding or head is gathered in each pass. */
static gboolean
passes (const PlanLower *self, PlanBucketKind kind)
{
  return self->policy.passes_outer && plan_layout_has (&self->layout, kind);
}

static void
receive (PlanLower *self, PlanBucketKind kind)
{
  plan_lower_wait (self, ONE (bucket[kind].gathered));
  plan_lower_land (self, kind, PLAN_NO_UNIT, 0);
}

/* This gather waits only until the head's first gather has ended, so that it runs beside the chunks
 * of the loss that the host has issued. */
void
plan_lower_gather_head_anew (PlanLower *self)
{
  if (self->head.landed < 0)
    return;
  plan_lower_free (self, ONE (bucket[PLAN_BUCKET_HEAD].weights));
  gather_behind (self, PLAN_BUCKET_HEAD, PLAN_NO_UNIT, 0, FALSE, ONE (head.landed));
  receive (self, PLAN_BUCKET_HEAD);
  plan_lower_gather_last (self);
}

void
plan_lower_land (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit, gint32 delta)
{
  const PlanLowerBucket *b = &self->bucket[kind];
  if (b->landing < 0)
    return;
  const PlanRef landing = plan_lower_unit_ref (b->landing, unit, delta);
  const PlanRef weights = plan_lower_weights_ref (self, kind, unit, delta, FALSE);
  plan_lower_alloc (self, weights);
  plan_lower_compute (self, PLAN_OP_CAST, PLAN_REFS (weights, landing),
                      PLAN_DIMS ((gint64)self->layout.buckets[kind].padded));
  plan_lower_free (self, landing);
}

void
plan_lower_gather_outer (PlanLower *self, PlanBucketKind kind)
{
  if (passes (self, kind) && plan_lower_gathers_weights (self))
    plan_lower_gather_bucket (self, kind, PLAN_NO_UNIT, 0, FALSE);
}

void
plan_lower_receive_outer (PlanLower *self, PlanBucketKind kind)
{
  if (passes (self, kind) && !plan_lower_finds_weights (self))
    receive (self, kind);
}

void
plan_lower_drop_outer (PlanLower *self, PlanBucketKind kind)
{
  if (passes (self, kind) && !self->policy.keeps_weights)
    plan_lower_free (self, ONE (bucket[kind].weights));
}

void
plan_lower_gather (PlanLower *self, PlanLowerUnit unit, gint32 delta)
{
  for (PlanBucketKind kind = 0; kind < PLAN_N_BUCKETS; kind++)
    if (plan_bucket_is_unit (kind) && plan_lower_holds (self, kind, unit, delta)
        && self->bucket[kind].gathered >= 0)
      plan_lower_gather_bucket (self, kind, unit, delta, FALSE);
}

void
plan_lower_release (PlanLower *self, PlanLowerUnit unit, gint32 delta)
{
  for (PlanBucketKind kind = 0; kind < PLAN_N_BUCKETS; kind++)
    if (plan_bucket_is_unit (kind) && plan_lower_holds (self, kind, unit, delta)
        && !self->bucket[kind].is_pooled && self->bucket[kind].shards_weights)
      plan_lower_free (self, plan_lower_weights_ref (self, kind, unit, delta, FALSE));
}

/* Makes compute wait until a unit's weights are gathered, and also the copy along columns if that
 * stays. */
void
plan_lower_await_unit (PlanLower *self, PlanLowerUnit unit, gint32 delta)
{
  if (self->layout.by_size) /* acts of their own wait, bucket by bucket */
    return;
  for (PlanBucketKind kind = 0; kind < PLAN_N_BUCKETS; kind++)
    if (plan_bucket_is_unit (kind) && plan_lower_holds (self, kind, unit, delta)
        && self->bucket[kind].gathered >= 0)
      {
        const PlanLowerBucket *b = &self->bucket[kind];
        plan_lower_wait (self, plan_lower_unit_ref (b->gathered, unit, delta));
        plan_lower_land (self, kind, unit, delta);
        if (!b->shards_weights)
          plan_lower_wait (self, plan_lower_unit_ref (b->columns_gathered, unit, delta));
      }
}

/* Gathers the next bucket, if this parameter is the first of its bucket and so marks the bucket's
 * first use. */
static void
gather_next (PlanLower *self, PlanTensorRole role)
{
  const guint at = plan_buckets_find (&self->buckets, role, 0);
  const guint32 number = self->buckets.number[at];
  const guint32 next = plan_lower_next_bucket (self, number);
  if (at != self->buckets.spans[number].first || next == PLAN_NO_BUCKET)
    return;
  const PlanBucketSpan *span = &self->buckets.spans[next];
  plan_lower_gather_bucket (self, span->kind, plan_lower_span_unit (span), 0, FALSE);
}

void
plan_lower_await_role (PlanLower *self, PlanTensorRole role)
{
  if (plan_lower_tensor (self, role).rows == 0 || self->policy.passes_outer)
    return;
  const PlanLowerPlace place = plan_lower_place (self, role, PLAN_NO_UNIT);
  plan_lower_wait (self, plan_lower_unit_ref (self->bucket[place.kind].gathered, place.unit, 0));
}

/* Waits for a parameter's bucket at its first use, and gathers the next bucket if that is done in
 * turn. */
static void
reach_role (PlanLower *self, PlanTensorRole role)
{
  plan_lower_await_role (self, role);
  if (self->layout.by_size && plan_lower_gathers_in_turn (self)
      && plan_lower_tensor (self, role).rows > 0)
    gather_next (self, role);
}

void
plan_lower_copy_weights (PlanLower *self, PlanLowerUnit unit, const PlanLayerGraph *net, guint from,
                         guint end)
{
  if (!self->policy.copies_weights || !self->now.is_first_micro_batch
      || self->stack->weights.quantised == PLAN_QUANTISED_ON_USE)
    return;
  for (guint i = from; i < end; i++)
    {
      const PlanNode *node = &net->nodes[i];
      if (!plan_node_is_product (node))
        continue;
      const gint64 matrices = plan_lower_matrices (self, node);
      const PlanRef *refs
          = PLAN_REFS (plan_lower_unit_ref (self->params.copy[node->weight], unit, 0),
                       plan_lower_unit_ref (self->params.copy_col[node->weight], unit, 0),
                       plan_lower_weight (self, node->weight, unit));
      if (self->sizes->row_multiple > 1 && node->kind == PLAN_NODE_EXPERT_LINEAR)
        plan_lower_compute (
            self, PLAN_OP_GROUPED_QUANTIZE,
            PLAN_REFS (refs[0], refs[1], refs[2], PLAN_REF_NONE,
                       plan_lower_site_scale (self, node->weight, PLAN_QUANTIZER_WEIGHT, unit),
                       plan_lower_site_amax (self, node->weight, PLAN_QUANTIZER_WEIGHT, unit)),
            PLAN_DIMS (matrices * node->cols, node->depth, matrices));
      else
        plan_lower_quantise (self, node->weight, PLAN_QUANTIZER_WEIGHT, unit, refs,
                             matrices * node->cols, node->depth);
    }
}

/* Makes the transposes of a layer's weights that stay for the step. */
static void
transpose_weights (PlanLower *self, PlanLowerUnit unit, const PlanLayerGraph *net)
{
  for (guint i = 0; i < net->n_nodes; i++)
    if (plan_node_is_product (&net->nodes[i]))
      plan_lower_transpose_weight (self, &net->nodes[i], unit);
}

void
plan_lower_unit_forward (PlanLower *self, PlanLowerUnit unit, PlanLowerKeep keep)
{
  const PlanLayerGraph *net = self->graphs->of[keep.kind];
  if (!plan_lower_finds_weights (self))
    plan_lower_await_unit (self, unit, 0);
  plan_lower_copy_weights (self, unit, net, 0, net->n_nodes);
  if (self->policy.copies_weights && self->now.is_first_micro_batch
      && self->stack->weights.quantised != PLAN_QUANTISED_ON_USE)
    plan_lower_return_gradients (self, unit);
  if (self->policy.keeps_transposes && self->now.is_first_micro_batch)
    transpose_weights (self, unit, net);
  if (unit.is_module)
    plan_lower_begin_module (self, unit);
  plan_lower_layer_forward (self, unit, keep);
  if (unit.is_module)
    plan_lower_leave_module (self, unit);
}

gboolean
plan_lower_is_early (const PlanLower *self, PlanBucketKind kind)
{
  const PlanTensorRole roles[] = { PLAN_TENSOR_EMBEDDING, PLAN_TENSOR_POSITIONS,
                                   PLAN_TENSOR_EMBED_NORM, PLAN_TENSOR_EMBED_NORM_BIAS };
  for (guint i = 0; self->stage.has_embedding && i < G_N_ELEMENTS (roles); i++)
    if (plan_lower_tensor (self, roles[i]).rows > 0
        && plan_lower_place (self, roles[i], PLAN_NO_UNIT).kind == kind)
      return TRUE;
  return FALSE;
}

gboolean
plan_lower_gathers_in_turn (const PlanLower *self)
{
  return self->policy.shards_optimizer && self->policy.gather_time == PLAN_GATHER_IN_TURN
         && self->now.is_first_micro_batch;
}

void
plan_lower_gather_head (PlanLower *self)
{
  for (PlanBucketKind kind = 0; kind < PLAN_N_BUCKETS; kind++)
    if (plan_layout_has (&self->layout, kind) && !plan_bucket_is_unit (kind)
        && !plan_lower_is_early (self, kind))
      plan_lower_gather_bucket (self, kind, PLAN_NO_UNIT, 0, FALSE);
}

static void
layers_forward (PlanLower *self)
{
  g_auto (PlanLowerOrder) order = { 0 };
  const gint64 here = MAX (self->now.units_here, self->policy.ahead_of_embedding);
  const gboolean in_turn = plan_lower_gathers_in_turn (self);
  const gboolean gathers = plan_lower_gathers_weights (self);
  const gint64 first = self->now.here.first,
               ahead = MIN (self->policy.ahead, self->now.here.layers);
  for (gint64 i = here; gathers && i < ahead; i++)
    plan_lower_gather (self, PLAN_NO_UNIT, (gint32)(first + i));
  if (gathers && self->policy.has_own_groups && self->now.here.layers == 0)
    plan_lower_gather_head (self);
  if (in_turn && !self->layout.by_size && self->now.here.layers == self->now.here.modules)
    plan_lower_gather_head (self);
  if (in_turn && !self->layout.by_size && self->now.here.layers > 0)
    plan_lower_gather (self, PLAN_NO_UNIT, 0);
  plan_lower_order_init_forward (&order, self);
  plan_lower_run (self, &order, FALSE);
}

void
plan_lower_embed (PlanLower *self, PlanRef x, PlanRef whole)
{
  const PlanModel *m = self->model;
  const PlanSizes *sizes = self->sizes;
  plan_lower_compute (self, PLAN_OP_EMBED,
                      PLAN_REFS (whole,
                                 plan_lower_weight (self, PLAN_TENSOR_EMBEDDING, PLAN_NO_UNIT),
                                 plan_lower_in_row (self, ONE (input.tokens))),
                      PLAN_DIMS (sizes->rows, m->hidden, sizes->vocab));
  if (sizes->split_rows < sizes->rows)
    {
      plan_lower_alloc (self, x);
      plan_lower_exchange (self, PLAN_OP_REDUCE_SCATTER, PLAN_REFS (x, whole),
                           sizes->split_rows * m->hidden);
      plan_lower_free (self, whole);
    }
  else if (self->comm.tensor >= 0)
    plan_lower_exchange (self, PLAN_OP_ALL_REDUCE, PLAN_REFS (x), sizes->rows * m->hidden);
}

/* Adds learned positions to the embedding, before any norm. */
static void
add_positions (PlanLower *self, PlanRef x)
{
  if (self->model->positions != PLAN_POSITIONS_LEARNED)
    return;
  reach_role (self, PLAN_TENSOR_POSITIONS);
  plan_lower_compute (self, PLAN_OP_POSITIONS,
                      PLAN_REFS (x, plan_lower_weight (self, PLAN_TENSOR_POSITIONS, PLAN_NO_UNIT),
                                 plan_lower_own_places (self)),
                      PLAN_DIMS (self->sizes->split_rows, self->model->hidden,
                                 self->plan->value[PLAN_SEQ] / self->plan->value[PLAN_CP]));
}

/* The norm after the embedding. Its input stays for the backward pass. */
static void
norm_embedding (PlanLower *self, PlanRef out, PlanRef in)
{
  const PlanRef stats = plan_lower_in_row (self, ONE (embedding.stats));
  const PlanTensorRole bias = self->model->norm_bias ? PLAN_TENSOR_EMBED_NORM_BIAS : PLAN_N_TENSORS;
  plan_lower_alloc (self, out);
  plan_lower_alloc (self, stats);
  reach_role (self, PLAN_TENSOR_EMBED_NORM);
  if (self->layout.by_size)
    reach_role (self, PLAN_TENSOR_EMBED_NORM_BIAS);
  plan_lower_norm (self, out, stats, in, PLAN_TENSOR_EMBED_NORM, bias, PLAN_N_TENSORS, PLAN_NO_UNIT,
                   self->sizes->split_rows);
  if (!self->policy.is_eval)
    return;
  plan_lower_free (self, stats);
  plan_lower_free (self, in);
}

static void
embedding_forward (PlanLower *self)
{
  const PlanModel *m = self->model;
  const PlanSizes *sizes = self->sizes;
  const PlanRef out = plan_lower_in_row (self, ONE (layer.value[PLAN_VALUE_X]));
  const PlanRef x = m->embed_norm ? plan_lower_in_row (self, ONE (embedding.unnormed)) : out;
  const PlanRef whole = sizes->split_rows < sizes->rows ? ONE (embedding.out) : x;
  plan_lower_alloc (self, whole);
  plan_lower_receive_outer (self, PLAN_BUCKET_EMBEDDING);
  reach_role (self, PLAN_TENSOR_EMBEDDING);
  plan_lower_embed (self, x, whole);
  if (m->embed_scale)
    plan_lower_scale_embedding (self, x);
  add_positions (self, x);
  if (m->embed_norm)
    norm_embedding (self, out, x);
}

/* Dropout after the embedding. A mask that is kept stays for the backward pass. */
static void
drop_out_embedding (PlanLower *self)
{
  const PlanRef x = plan_lower_in_row (self, ONE (layer.value[PLAN_VALUE_X]));
  const PlanRef mask = plan_lower_in_row (self, ONE (embedding.mask));
  if (!plan_drops_hidden (self->plan))
    return;
  if (self->embedding.mask >= 0)
    plan_lower_alloc (self, mask);
  plan_lower_dropout (self, PLAN_OP_DROPOUT, PLAN_REFS (x, mask, x),
                      plan_lower_embedding_key (self),
                      PLAN_DIMS (self->sizes->split_rows, self->model->hidden, 0));
}

void
plan_lower_look (PlanLower *self)
{
  plan_lower_emit (self, PLAN_OP_WAIT, PLAN_STREAM_COMPUTE, NULL, NULL, NULL, ONE (event.done));
  plan_lower_emit (self, PLAN_OP_SYNC, PLAN_STREAM_HOST, NULL, NULL, PLAN_WAITS (ONE (event.done)),
                   PLAN_REF_NONE);
}

void
plan_lower_reach_output (PlanLower *self)
{
  if (self->model->tied_embeddings)
    plan_lower_await_role (self, PLAN_TENSOR_EMBEDDING);
  else
    reach_role (self, PLAN_TENSOR_OUTPUT);
}

void
plan_lower_final_norm (PlanLower *self, PlanRef out)
{
  const PlanRef stats = plan_lower_kept_by_head (self, self->head.stats);
  plan_lower_alloc (self, stats);
  reach_role (self, PLAN_TENSOR_FINAL_NORM);
  if (self->layout.by_size)
    reach_role (self, PLAN_TENSOR_FINAL_NORM_BIAS);
  plan_lower_norm (self, out, stats, plan_lower_output (self), PLAN_TENSOR_FINAL_NORM,
                   self->params.final_norm_bias, PLAN_N_TENSORS, PLAN_NO_UNIT,
                   self->sizes->split_rows);
}

static void
head_forward (PlanLower *self)
{
  const PlanRef x = plan_lower_output (self);
  const PlanRef normed = plan_lower_kept_by_head (self, self->head.norm);

  if (self->policy.gathers_head_late && self->now.is_first_micro_batch)
    plan_lower_gather_bucket (self, PLAN_BUCKET_HEAD, PLAN_NO_UNIT, 0, FALSE);
  /* The output layer's hook gathers the first units: it cannot know that the backward pass is
   * next. */
  for (gint32 i = 0; i < self->policy.ahead_of_head; i++)
    plan_lower_gather (self, PLAN_NO_UNIT, i);
  plan_lower_receive_outer (self, PLAN_BUCKET_HEAD);
  if (self->head.landed >= 0)
    plan_lower_emit (self, PLAN_OP_WAIT, PLAN_STREAM_COMPUTE, NULL, NULL, NULL, ONE (head.landed));
  if (self->now.here.modules > 0)
    {
      plan_lower_module_loss_forward (self);
      return;
    }
  plan_lower_alloc (self, normed);
  plan_lower_final_norm (self, normed);
  if (self->policy.is_eval)
    {
      plan_lower_free (self, x);
      plan_lower_free (self, plan_lower_kept_by_head (self, self->head.stats));
    }
  plan_lower_loss_forward (self);
}

/* Number of the decoder's layers up to the end of the virtual stage at hand. */
static gint32
decoded_layers (const PlanLower *self)
{
  return (gint32)(self->now.here.first + self->now.here.layers - self->now.here.modules);
}

PlanRef
plan_lower_output (const PlanLower *self)
{
  return plan_lower_in_row (self, plan_lower_unit_ref (self->layer.value[PLAN_VALUE_X],
                                                       PLAN_NO_UNIT, decoded_layers (self)));
}

PlanRef
plan_lower_input (const PlanLower *self)
{
  return plan_lower_in_row (self, plan_lower_unit_ref (self->layer.value[PLAN_VALUE_X],
                                                       PLAN_NO_UNIT, (gint32)self->now.here.first));
}

PlanRef
plan_lower_output_gradient (const PlanLower *self)
{
  return plan_lower_layer_gradient (self, PLAN_NO_UNIT, decoded_layers (self));
}

PlanRef
plan_lower_input_gradient (const PlanLower *self)
{
  return plan_lower_layer_gradient (self, PLAN_NO_UNIT, (gint32)self->now.here.first);
}

/* Whether the pass at hand begins with a load: where tokens or targets are used, or, if random
 * numbers depend on which micro batch it is, or attention on its documents, in its first pass
 * here. */
static gboolean
is_load_due (const PlanLower *self)
{
  const PlanStage *here = &self->now.here, first = plan_stage_virtual (&self->stage, 0);
  return self->input.start < 0 && self->input.places < 0
             ? self->input.tokens >= 0 && (here->has_embedding || here->has_loss)
             : here->first == first.first && here->layers == first.layers;
}

static void
load (PlanLower *self)
{
  if (!is_load_due (self))
    return;
  const PlanLoads loads = self->stack->host.loads;
  const gboolean is_packed = self->plan->value[PLAN_DOC_TOKENS] > 0;
  const gboolean is_there
      = self->comm.next >= 0 && loads == PLAN_LOADS_FIRST && !self->now.is_first_micro_batch;
  if (!is_there && (loads >= PLAN_LOADS_WAIT || (loads == PLAN_LOADS_PACKED && is_packed))
      && self->plan->value[PLAN_CUDA_GRAPH] == PLAN_CUDA_GRAPH_OFF)
    plan_lower_look (self);
  plan_lower_compute (self, PLAN_OP_LOAD,
                      PLAN_REFS (plan_lower_in_row (self, ONE (input.tokens)),
                                 plan_lower_in_row (self, ONE (input.targets)),
                                 plan_lower_places (self), plan_lower_start (self)),
                      PLAN_DIMS (self->sizes->rows));
}

/* The embedding's hook, and the embedding. Units that the hook asks for may have been gathered
 * already: as the last step ended, or by the output layer's hook if no backward pass has dropped
 * them. Beside a backward pass it asks for none. */
static void
reach_embedding (PlanLower *self)
{
  const gint64 ahead = self->combined.by_share && !self->now.is_first_micro_batch
                           ? 0
                           : self->policy.ahead_of_embedding;
  if (!self->now.is_first_micro_batch)
    self->now.units_here = self->policy.is_eval ? self->policy.ahead_of_head : 0;
  for (gint32 i = (gint32)self->now.units_here; i < ahead; i++)
    plan_lower_gather (self, PLAN_NO_UNIT, i);
  plan_lower_gather_outer (self, PLAN_BUCKET_EMBEDDING);
  if (!self->policy.has_own_groups)
    plan_lower_gather_outer (self, PLAN_BUCKET_HEAD);
  embedding_forward (self);
}

void
plan_lower_begin_forward (PlanLower *self)
{
  load (self);
  if (self->now.here.has_embedding)
    reach_embedding (self);
  else if (plan_lower_gathers_in_turn (self))
    plan_lower_gather_first (self);
  else if (!self->policy.has_own_groups)
    plan_lower_gather_outer (self, PLAN_BUCKET_HEAD);
  plan_lower_touch (self, plan_lower_ref (self->work.gemm[FALSE]));
  if (self->now.here.has_embedding)
    drop_out_embedding (self);
  if (self->policy.has_own_groups)
    plan_lower_drop_outer (self, PLAN_BUCKET_EMBEDDING);
}

void
plan_lower_end_forward (PlanLower *self)
{
  if (self->now.here.has_head)
    head_forward (self);
  else if (plan_stage_reads_logits (&self->now.here))
    plan_lower_loss_forward (self);
  if (self->policy.is_eval && !self->policy.has_own_groups)
    plan_lower_drop_outer (self, PLAN_BUCKET_EMBEDDING);
  if (self->policy.is_eval)
    plan_lower_drop_outer (self, PLAN_BUCKET_HEAD);
}

void
plan_lower_forward (PlanLower *self)
{
  plan_lower_begin_forward (self);
  layers_forward (self);
  plan_lower_end_forward (self);
}
