/* SPDX-License-Identifier: Apache-2.0 */
/* Where gradients go: into the bucket that is reduced, or to where they accumulate. Then the sums
 * of gradients of parameters that a tensor-parallel group holds whole. */
#include "config.h"

#include "planner/lower/lower-buckets.h"
#include "planner/lower/lower-emit.h"
#include "planner/lower/lower-layer-private.h"
#include "planner/lower/lower-step.h"

#define ONE(array) plan_lower_ref (self->array)

/* Zeroes the padding of a bucket, which is reduced with the rest. */
static void
zero_gaps (PlanLower *self, PlanBucketKind kind, PlanRef bucket)
{
  const guint64 padded = self->layout.buckets[kind].padded;
  g_autoptr (GArray) slots = plan_layout_slots (&self->layout, &self->buckets, kind);
  guint64 cursor = 0;
  for (guint i = 0; i <= slots->len; i++)
    {
      const PlanSlot *slot = i < slots->len ? &g_array_index (slots, PlanSlot, i) : NULL;
      const guint64 next = slot ? slot->offset : padded;
      if (next > cursor)
        plan_lower_compute (self, PLAN_OP_ZERO, PLAN_REFS (plan_lower_at (bucket, cursor)),
                            PLAN_DIMS ((gint64)(next - cursor)));
      cursor = slot ? next + slot->tensor.rows * slot->tensor.cols : padded;
    }
}

/* Whether a gradient is the first of its bucket in this backward pass. */
static gboolean
opens_bucket (const PlanLower *self, PlanTensorRole role, PlanLowerUnit unit, PlanBucketKind kind)
{
  if (self->layout.by_size && plan_bucket_is_unit (kind))
    return plan_lower_starts (self, role, unit);
  return !self->is_taken[kind];
}

/* Where a parameter's gradient lies when it is reduced. The first gradient of a bucket allocates
 * the bucket. */
static PlanRef
destination (PlanLower *self, PlanTensorRole role, PlanLowerUnit unit)
{
  const PlanLowerPlace place = plan_lower_place (self, role, unit);
  const PlanLowerBucket *b = &self->bucket[place.kind];
  if (!b->shards_grads)
    return plan_lower_in_place (plan_lower_unit_ref (b->grads, place.unit, 0), &place);
  const PlanRef bucket = plan_lower_bucket_ref (self, place.kind, place.unit, 0);
  if (opens_bucket (self, role, unit, place.kind))
    {
      if (!b->is_pooled)
        plan_lower_alloc (self, bucket);
      zero_gaps (self, place.kind, bucket);
      self->is_taken[place.kind] = TRUE;
    }
  return plan_lower_in_place (bucket, &place);
}

/* Moves a unit's gradients from where autograd left them into a buffer, or adds them to it. */
static void
empty_raw (PlanLower *self, PlanBucketKind kind, PlanRef to, PlanOpKind op)
{
  const PlanBucket *layout = &self->layout.buckets[kind];
  for (guint i = 0; i < layout->n_slots; i++)
    {
      const PlanSlot *slot = &self->layout.slots[kind][i];
      const gboolean is_sum = self->params.raw_sum >= 0 && slot->tensor.role == PLAN_TENSOR_OUTPUT;
      const PlanRef raw
          = plan_lower_ref (is_sum ? self->params.raw_sum : self->params.raw[slot->tensor.role]);
      plan_lower_compute (self, op, PLAN_REFS (plan_lower_at (to, slot->offset), raw),
                          PLAN_DIMS ((gint64)(slot->tensor.rows * slot->tensor.cols)));
      plan_lower_free (self, raw);
      self->params.is_collected[slot->tensor.role] = FALSE;
    }
}

/* Adds a unit's gradients to whole ones that outlive the micro batch. In the last one these become
 * the bucket: FSDPParam.accumulate_unsharded_grad_if_needed and foreach_reduce of fully_shard
 * (torch/distributed/fsdp/_fully_shard), flat_param.grad of FullyShardedDataParallel under no_sync
 * (_post_backward_hook in torch/distributed/fsdp/_runtime_utils.py). */
static void
keep_whole (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  const PlanRef kept = plan_lower_unit_ref (self->bucket[kind].kept, unit, 0);
  const PlanRef bucket = plan_lower_bucket_ref (self, kind, unit, 0);
  const gboolean is_first = self->now.is_first_micro_batch;
  if (is_first && !self->now.reduces_held)
    {
      plan_lower_alloc (self, kept);
      zero_gaps (self, kind, kept);
    }
  if (!self->now.reduces_held)
    empty_raw (self, kind, kept, is_first ? PLAN_OP_CAST : PLAN_OP_ACCUMULATE);
  if (!plan_lower_reduces_kept (self))
    return;
  plan_lower_alloc (self, bucket);
  plan_lower_compute (self, PLAN_OP_CAST, PLAN_REFS (bucket, kept),
                      PLAN_DIMS ((gint64)self->layout.buckets[kind].padded));
  plan_lower_free (self, kept);
}

void
plan_lower_collect (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  const PlanRef bucket = plan_lower_bucket_ref (self, kind, unit, 0);
  if (self->bucket[kind].kept >= 0)
    {
      keep_whole (self, kind, unit);
      return;
    }
  plan_lower_alloc (self, bucket);
  zero_gaps (self, kind, bucket);
  empty_raw (self, kind, bucket, PLAN_OP_CAST);
}

static PlanRef
fresh_gradient (const PlanLower *self, PlanTensorRole role, PlanLowerUnit unit)
{
  return plan_lower_unit_ref (self->params.fresh[role], plan_lower_place (self, role, unit).unit,
                              0);
}

PlanRef
plan_lower_raw_gradient (PlanLower *self, PlanTensorRole role, PlanLowerUnit unit)
{
  const gboolean stays = self->params.fresh[role] >= 0 && !self->params.is_collected[role];
  const PlanRef raw
      = stays ? fresh_gradient (self, role, unit)
              : plan_lower_ref (self->params.is_collected[role] ? self->params.raw_again
                                                                : self->params.raw[role]);
  plan_lower_alloc (self, raw);
  return raw;
}

/* Adds a gradient's squares to the sum that shows a NaN, and makes the host wait for it
 * (nan_check=params). */
static void
look_for_nan (PlanLower *self, PlanRef gradient, gint64 count)
{
  if (self->sums.nan < 0)
    return;
  plan_lower_compute (self, PLAN_OP_NORM_SQ, PLAN_REFS (ONE (sums.nan), gradient),
                      PLAN_DIMS (count));
  plan_lower_look (self);
}

/* Adds a gradient to where gradients accumulate; autograd's own tensor may stay (PLAN_GRADS_LEFT).
 * In the last micro batch it goes by way of a copy in the weights' format, if there is one. */
static void
put_fresh_gradient (PlanLower *self, PlanTensorRole role, PlanLowerUnit unit, gboolean adds)
{
  const PlanLowerPlace place = plan_lower_place (self, role, unit);
  const PlanLowerBucket *b = &self->bucket[place.kind];
  const gint64 count = (gint64)place.elements;
  const PlanRef fresh = fresh_gradient (self, role, unit);
  const gboolean is_shared = role == PLAN_TENSOR_EMBEDDING && self->model->tied_embeddings && !adds;
  look_for_nan (self, adds ? ONE (params.raw_again) : fresh, count);
  self->params.is_collected[role] = is_shared;
  if (is_shared) /* the other share of a tied embedding's gradient comes later */
    return;
  if (adds)
    {
      plan_lower_compute (self, PLAN_OP_ACCUMULATE, PLAN_REFS (fresh, ONE (params.raw_again)),
                          PLAN_DIMS (count));
      plan_lower_free (self, ONE (params.raw_again));
    }
  PlanRef from = fresh;
  if (b->half >= 0 && self->now.is_last_micro_batch)
    {
      from = plan_lower_in_place (plan_lower_unit_ref (b->half, place.unit, 0), &place);
      plan_lower_compute (self, PLAN_OP_CAST, PLAN_REFS (from, fresh), PLAN_DIMS (count));
    }
  plan_lower_compute (self, PLAN_OP_ACCUMULATE, PLAN_REFS (destination (self, role, unit), from),
                      PLAN_DIMS (count));
}

static void
drop_fresh (PlanLower *self, gboolean of_units, PlanLowerUnit unit)
{
  for (PlanBucketKind kind = 0; kind < PLAN_N_BUCKETS; kind++)
    for (guint i = 0;
         plan_bucket_is_unit (kind) == of_units && i < self->layout.buckets[kind].n_slots; i++)
      plan_lower_free (self, fresh_gradient (self, self->layout.slots[kind][i].tensor.role, unit));
}

void
plan_lower_drop_fresh_gradients (PlanLower *self)
{
  if (self->stack->grads.fresh != PLAN_GRADS_LEFT)
    return;
  drop_fresh (self, FALSE, PLAN_NO_UNIT);
  if (self->stage.layers == 0)
    return;
  const PlanLowerUnit unit = plan_lower_begin_units (self, 0, self->stage.layers, 1);
  drop_fresh (self, TRUE, unit);
  plan_lower_end_units (self, unit);
}

/* Whether this is the second share of a gradient: the prediction module's loss reads the output
 * layer after the model's own loss has. */
static gboolean
is_second_share (const PlanLower *self, PlanTensorRole role)
{
  return self->head.index > 0 && role == PLAN_TENSOR_OUTPUT;
}

/* Moves a gradient from where its kernel wrote it: if gradients are sharded it is copied into the
 * bucket, else it is added to those that accumulate. */
static void
move_gradient (PlanLower *self, PlanTensorRole role, PlanLowerUnit unit, PlanRef raw, gboolean adds)
{
  const PlanLowerPlace place = plan_lower_place (self, role, unit);
  const gint64 count = (gint64)place.elements;
  plan_lower_compute (
      self, self->bucket[place.kind].shards_grads && !adds ? PLAN_OP_CAST : PLAN_OP_ACCUMULATE,
      PLAN_REFS (destination (self, role, unit), raw), PLAN_DIMS (count));
  plan_lower_free (self, raw);
  plan_lower_gradient_is_there (self, role);
}

void
plan_lower_put_gradient (PlanLower *self, PlanTensorRole role, PlanLowerUnit unit, gboolean adds)
{
  const PlanLowerPlace place = plan_lower_place (self, role, unit);
  const PlanRef raw = plan_lower_ref (self->params.raw[role]);
  const gint64 count = (gint64)place.elements;
  if (self->params.fresh[role] >= 0)
    {
      put_fresh_gradient (self, role, unit, adds);
      return;
    }
  look_for_nan (self, self->params.is_collected[role] ? ONE (params.raw_again) : raw, count);
  if (self->params.is_collected[role])
    {
      plan_lower_compute (self, PLAN_OP_ACCUMULATE, PLAN_REFS (raw, ONE (params.raw_again)),
                          PLAN_DIMS (count));
      plan_lower_free (self, ONE (params.raw_again));
      return;
    }
  self->params.is_collected[role] = self->policy.collects && self->bucket[place.kind].shards_grads;
  if (self->params.is_collected[role])
    return;
  move_gradient (self, role, unit, raw, adds);
}

static gboolean
is_fused (const PlanLower *self)
{
  return self->plan->value[PLAN_GRAD_ACCUM_FUSION] == PLAN_GRAD_ACCUM_FUSION_ON;
}

/* The weights, as a set of roles, whose products on this stage leave a gradient unused. Layers of
 * one kind all have the same. */
static guint64
leave_unused (const PlanLower *self)
{
  const PlanModel *model = self->model;
  PlanTensor tensors[PLAN_N_TENSORS];
  gboolean is_seen[PLAN_N_LAYER_KINDS] = { FALSE };
  guint64 roles = 0;
  if (self->stack->grads.unused == PLAN_UNUSED_OF_ALL && self->stage.has_head)
    roles |= (guint64)1 << (model->tied_embeddings ? PLAN_TENSOR_EMBEDDING : PLAN_TENSOR_OUTPUT);
  for (gint64 layer = 0; layer < model->layers; layer++)
    {
      gboolean *is_known = &is_seen[plan_model_layer_kind (model, layer, 1)];
      const guint n = *is_known ? 0 : plan_model_layer_tensors (model, layer, tensors);
      *is_known = TRUE;
      for (guint i = 0; i < n; i++)
        if (tensors[i].kind == PLAN_TENSOR_KIND_LINEAR)
          roles |= (guint64)1 << tensors[i].role;
    }
  return roles;
}

void
plan_lower_declare_unused (PlanLower *self)
{
  guint64 rows[PLAN_N_TENSORS], cols[PLAN_N_TENSORS], elements = 0;
  guint n = 0;
  self->work.unused = -1;
  if (!is_fused (self) || self->stack->grads.unused == PLAN_UNUSED_NOT_KEPT || self->policy.is_eval)
    return;
  const guint64 roles = leave_unused (self);
  for (PlanTensorRole role = 0; role < PLAN_N_TENSORS; role++)
    {
      if (!(roles >> role & 1))
        continue;
      const PlanTensor tensor = plan_lower_tensor (self, role);
      const gboolean is_expert
          = role == PLAN_TENSOR_EXPERT_GATE_UP || role == PLAN_TENSOR_EXPERT_DOWN;
      gboolean is_known = FALSE;
      rows[n] = tensor.rows / (is_expert ? (guint64)self->sizes->experts : 1);
      cols[n] = tensor.cols;
      for (guint i = 0; i < n; i++)
        is_known |= rows[i] == rows[n] && cols[i] == cols[n];
      elements += is_known ? 0 : rows[n] * cols[n];
      n += !is_known;
    }
  if (elements > 0)
    self->work.unused = (gint32)plan_schedule_add_buffer (
        self->schedule, "unused_grads", 1, elements, self->sizes->compute, PLAN_CATEGORY_WORKSPACE);
}

void
plan_lower_weight_gradient (PlanLower *self, PlanTensorRole role, PlanLowerUnit unit, PlanRef dout,
                            PlanRef in, gint64 rows, gint64 cols, gint64 depth, gint64 layout)
{
  const gint64 *dims = PLAN_DIMS (cols, depth, rows, layout);
  if (is_fused (self))
    {
      const PlanRef out = destination (self, role, unit);
      if (self->bucket[plan_lower_place (self, role, unit).kind].shards_grads
          && !is_second_share (self, role))
        plan_lower_compute (self, PLAN_OP_GEMM, PLAN_REFS (out, dout, in, PLAN_REF_NONE), dims);
      else
        plan_lower_compute (self, PLAN_OP_GEMM_ADD, PLAN_REFS (out, dout, in), dims);
      look_for_nan (self, out, cols * depth);
      plan_lower_gradient_is_there (self, role);
      return;
    }
  const PlanRef raw = plan_lower_raw_gradient (self, role, unit);
  plan_lower_compute (self, PLAN_OP_GEMM, PLAN_REFS (raw, dout, in, PLAN_REF_NONE), dims);
  plan_lower_put_gradient (self, role, unit, is_second_share (self, role));
}

/* The gradients of all experts are written at once where they accumulate, or into one buffer that
 * is then moved (Transformer Engine's grouped_linear.py). */
void
plan_lower_expert_weight_gradient (PlanLower *self, const PlanNode *node, PlanLowerUnit unit,
                                   const PlanRef *refs)
{
  const PlanTensorRole role = node->weight;
  const gint64 *dims = PLAN_DIMS (node->cols, node->depth, node->rows,
                                  self->sizes->has_columns ? 3 : 2, self->sizes->experts);
  if (is_fused (self))
    {
      const gboolean adds = !self->bucket[PLAN_BUCKET_EXPERTS].shards_grads;
      const PlanRef out = destination (self, role, unit);
      plan_lower_compute (self, adds ? PLAN_OP_GROUPED_GEMM_ADD : PLAN_OP_GROUPED_GEMM,
                          PLAN_REFS (out, refs[0], refs[1], refs[2]), dims);
      look_for_nan (self, out, self->sizes->experts * node->cols * node->depth);
      plan_lower_gradient_is_there (self, role);
      return;
    }
  const PlanRef raw = plan_lower_raw_gradient (self, role, unit);
  plan_lower_compute (self, PLAN_OP_GROUPED_GEMM, PLAN_REFS (raw, refs[0], refs[1], refs[2]), dims);
  plan_lower_put_gradient (self, role, unit, FALSE);
}

void
plan_lower_one_expert_weight_gradient (PlanLower *self, const PlanNode *node, PlanLowerUnit unit,
                                       gint64 expert, gint64 rows, const PlanRef *refs)
{
  const gboolean adds = !self->bucket[PLAN_BUCKET_EXPERTS].shards_grads;
  const gint64 count = node->cols * node->depth;
  const gint64 *dims = PLAN_DIMS (node->cols, node->depth, rows, 2);
  const PlanRef raw = plan_lower_ref (self->params.raw[node->weight]);
  PlanRef out = PLAN_REF_NONE;
  if (is_fused (self))
    out = plan_lower_at (destination (self, node->weight, unit), (guint64)(expert * count));
  else
    plan_lower_alloc (self, raw);
  if (is_fused (self) && adds)
    plan_lower_compute (self, PLAN_OP_GEMM_ADD, PLAN_REFS (out, refs[0], refs[1]), dims);
  else
    plan_lower_compute (self, PLAN_OP_GEMM,
                        PLAN_REFS (is_fused (self) ? out : raw, refs[0], refs[1], PLAN_REF_NONE),
                        dims);
  look_for_nan (self, is_fused (self) ? out : raw, count);
  if (!is_fused (self))
    {
      out = plan_lower_at (destination (self, node->weight, unit), (guint64)(expert * count));
      plan_lower_compute (self, adds ? PLAN_OP_ACCUMULATE : PLAN_OP_CAST, PLAN_REFS (out, raw),
                          PLAN_DIMS (count));
      plan_lower_free (self, raw);
    }
  if (expert == 0)
    plan_lower_gradient_is_there (self, node->weight);
}

gboolean
plan_lower_moves_sums (const PlanLower *self)
{
  if (self->policy.joins_pieces)
    return TRUE;
  const PlanDtype held = self->policy.shards_grads ? self->dtype.grad_comm : self->dtype.main_grads;
  return !is_fused (self) || held != PLAN_DTYPE_FP32;
}

PlanLowerSum
plan_lower_begin_sum (PlanLower *self, PlanTensorRole role)
{
  g_assert ((!self->policy.collects || self->policy.joins_pieces) && self->params.fresh[role] < 0);
  if (plan_lower_moves_sums (self))
    {
      if (!self->policy.joins_pieces)
        plan_lower_alloc (self, ONE (params.raw_sum));
      return (PlanLowerSum){ .role = role, .out = ONE (params.raw_sum), .moves = TRUE };
    }
  return (PlanLowerSum){ .role = role,
                         .out = destination (self, role, PLAN_NO_UNIT),
                         .adds = !self->policy.shards_grads };
}

/* Adds one product to a sum: the product is rounded to the weights' format first. The first one
 * begins the sum. */
static void
join_product (PlanLower *self, PlanLowerSum *sum, PlanRef dout, PlanRef in, const gint64 *dims)
{
  const gboolean is_sum = !sum->adds && self->dtype.grad_comm == self->sizes->compute;
  const PlanRef raw = is_sum ? sum->out : plan_lower_ref (self->params.raw[sum->role]);
  plan_lower_alloc (self, raw);
  plan_lower_compute (self, PLAN_OP_GEMM, PLAN_REFS (raw, dout, in, PLAN_REF_NONE), dims);
  if (is_sum)
    return;
  if (!sum->adds)
    plan_lower_alloc (self, sum->out);
  plan_lower_compute (self, sum->adds ? PLAN_OP_ACCUMULATE : PLAN_OP_CAST,
                      PLAN_REFS (sum->out, raw), PLAN_DIMS (dims[0] * dims[1]));
  plan_lower_free (self, raw);
}

void
plan_lower_add_product (PlanLower *self, PlanLowerSum *sum, PlanRef dout, PlanRef in,
                        const gint64 *dims)
{
  if (self->policy.joins_pieces)
    join_product (self, sum, dout, in, dims);
  else if (sum->adds)
    plan_lower_compute (self, PLAN_OP_GEMM_ADD, PLAN_REFS (sum->out, dout, in), dims);
  else
    plan_lower_compute (self, PLAN_OP_GEMM, PLAN_REFS (sum->out, dout, in, PLAN_REF_NONE), dims);
  sum->adds = TRUE;
}

void
plan_lower_end_sum (PlanLower *self, const PlanLowerSum *sum)
{
  const PlanLowerPlace place = plan_lower_place (self, sum->role, PLAN_NO_UNIT);
  look_for_nan (self, sum->out, (gint64)place.elements);
  self->params.is_collected[sum->role] = self->policy.collects;
  if (self->policy.collects) /* it waits for the norm's gradient */
    return;
  if (sum->moves)
    move_gradient (self, sum->role, PLAN_NO_UNIT, sum->out, FALSE);
  else
    plan_lower_gradient_is_there (self, sum->role);
}

/* --- what one rank of a replica holds alone --------------------------------------------------- */

static void
scale_if_alone (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  const PlanLowerBucket *b = &self->bucket[kind];
  if (b->ranks > 1)
    return;
  if (b->reduced >= 0) /* between replicas */
    plan_lower_wait (self, plan_lower_unit_ref (b->reduced, unit, 0));
  plan_lower_compute (self, PLAN_OP_SCALE,
                      PLAN_REFS (plan_lower_optimizer_gradients (self, kind, unit)),
                      PLAN_DIMS (plan_lower_own_elements (self, kind)));
}

void
plan_lower_scale_alone (PlanLower *self)
{
  if (self->policy.scales_buckets)
    plan_lower_each_bucket (self, scale_if_alone);
}

/* --- what a tensor-parallel group holds whole ------------------------------------------------- */

/* Parameters that every rank of a tensor-parallel group holds whole: norms, some biases. If tokens
 * are split, each rank's gradient of them comes from its own tokens, and that of norms of heads
 * from its own heads. Such gradients are summed over the group, once per step, on the shards that
 * the optimizer reads. They are copied into one buffer, so that one all-reduce suffices (after
 * Megatron-LM's finalize_model_grads.py). The gradients of other parameters held whole are the same
 * on all ranks. */

/* A range of elements in a part of a bucket that belong to such parameters. */
typedef struct
{
  guint64 from, to;
} Piece;

gboolean
plan_lower_is_replicated (const PlanLower *self, PlanTensorRole role)
{
  const PlanLayout *layout = &self->layout;
  const PlanTensor whole = plan_model_tensor (self->model, role, layout->rule.vocab);
  const PlanTensor part = plan_buckets_part (self->model, role, &layout->rule);
  return part.rows == whole.rows && part.cols == whole.cols;
}

static gboolean
is_of_experts (const PlanLower *self, PlanTensorRole role)
{
  return plan_model_tensor (self->model, role, self->layout.rule.vocab).part == PLAN_PART_EXPERTS;
}

/* Gradients of experts are reduced over all ranks that hold the same part of them. */
gboolean
plan_lower_sums (const PlanLower *self, PlanTensorRole role)
{
  return plan_lower_is_replicated (self, role) && !is_of_experts (self, role)
         && (self->plan->value[PLAN_SP] == PLAN_SP_ON || role == PLAN_TENSOR_Q_NORM
             || role == PLAN_TENSOR_K_NORM);
}

/* The ranges of one bucket whose parameters are meant (`is_other`: are not), in ascending order and
 * counted from `first`; neighbouring ranges are joined. The caller frees. */
static GArray *
find_pieces (const PlanLower *self, PlanBucketKind kind, guint64 first, guint64 count,
             gboolean (*is_meant) (const PlanLower *self, PlanTensorRole role), gboolean is_other)
{
  g_autoptr (GArray) slots = plan_layout_slots (&self->layout, &self->buckets, kind);
  GArray *pieces = g_array_new (FALSE, FALSE, sizeof (Piece));
  for (guint i = 0; i < slots->len; i++)
    {
      const PlanSlot *slot = &g_array_index (slots, PlanSlot, i);
      const guint64 end = slot->offset + slot->tensor.rows * slot->tensor.cols;
      const Piece piece = { MAX (slot->offset, first) - first, MIN (end, first + count) - first };
      Piece *before = pieces->len > 0 ? &g_array_index (pieces, Piece, pieces->len - 1) : NULL;
      if (is_meant (self, slot->tensor.role) == is_other || end <= first
          || slot->offset >= first + count)
        continue;
      if (before && before->to == piece.from)
        before->to = piece.to;
      else
        g_array_append_val (pieces, piece);
    }
  return pieces;
}

/* The ranges to be summed within the optimizer's part of a bucket. */
static GArray *
pieces_of (const PlanLower *self, PlanBucketKind kind)
{
  return find_pieces (self, kind, plan_lower_own_first (self, kind),
                      (guint64)plan_lower_own_elements (self, kind), plan_lower_sums, FALSE);
}

static guint64
count_all (const PlanLower *self)
{
  guint64 count = 0;
  for (PlanBucketKind kind = 0; kind < PLAN_N_BUCKETS; kind++)
    {
      g_autoptr (GArray) pieces = pieces_of (self, kind);
      for (guint i = 0; i < pieces->len; i++)
        {
          const Piece *piece = &g_array_index (pieces, Piece, i);
          count += (piece->to - piece->from) * (guint64)self->layout.buckets[kind].units;
        }
    }
  return count;
}

void
plan_lower_declare_replicated (PlanLower *self)
{
  const gint32 cast = plan_lower_any_bucket (self)->cast;
  const guint64 count = self->comm.tensor < 0 || self->policy.is_eval ? 0 : count_all (self);
  self->sums.replicated = count == 0
                              ? -1
                              : plan_schedule_add_buffer (self->schedule, "replicated", 1, count,
                                                          cast >= 0 ? self->dtype.main_params
                                                                    : self->dtype.main_grads,
                                                          PLAN_CATEGORY_GRAD_BUCKETS);
}

/* Copies the ranges of one bucket from where the optimizer reads gradients to the buffer, from
 * element `at` on, or back. Returns the element after them. */
static guint64
copy_bucket (PlanLower *self, PlanBucketKind kind, const GArray *pieces, PlanLowerUnit unit,
             guint64 at, gboolean is_back)
{
  if (!is_back && pieces->len > 0)
    plan_lower_wait (self, plan_lower_unit_ref (self->bucket[kind].reduced, unit, 0));
  for (guint i = 0; i < pieces->len; i++)
    {
      const Piece *piece = &g_array_index (pieces, Piece, i);
      const guint64 count = piece->to - piece->from;
      const PlanRef one = plan_lower_at (ONE (sums.replicated), at);
      const PlanRef grads
          = plan_lower_at (plan_lower_optimizer_gradients (self, kind, unit), piece->from);
      plan_lower_compute (self, PLAN_OP_CAST,
                          PLAN_REFS (is_back ? grads : one, is_back ? one : grads),
                          PLAN_DIMS ((gint64)count));
      at += count;
    }
  return at;
}

/* Copies the ranges of all buckets. `pieces`: the ranges of each kind of bucket. */
static void
copy_all (PlanLower *self, GArray *const *pieces, gboolean is_back)
{
  guint64 at = 0;
  for (guint number = 0; number < self->buckets.n; number++)
    {
      const PlanBucketKind kind = self->buckets.spans[number].kind;
      at = copy_bucket (self, kind, pieces[kind],
                        plan_lower_span_unit (&self->buckets.spans[number]), at, is_back);
    }
  for (PlanBucketKind kind = 0; kind < PLAN_N_BUCKETS; kind++)
    for (gint32 u = 0; !self->layout.by_size && u < self->layout.buckets[kind].length; u++)
      if (plan_lower_holds (self, kind, PLAN_NO_UNIT, u))
        at = copy_bucket (self, kind, pieces[kind], (PlanLowerUnit){ .loop = -1, .offset = u }, at,
                          is_back);
}

void
plan_lower_sum_replicated (PlanLower *self)
{
  GArray *pieces[PLAN_N_BUCKETS];
  if (self->sums.replicated < 0)
    return;
  for (PlanBucketKind kind = 0; kind < PLAN_N_BUCKETS; kind++)
    pieces[kind] = pieces_of (self, kind);
  plan_lower_alloc (self, ONE (sums.replicated));
  copy_all (self, pieces, FALSE);
  plan_lower_exchange (
      self, PLAN_OP_ALL_REDUCE, PLAN_REFS (ONE (sums.replicated)),
      (gint64)plan_schedule_buffer (self->schedule, (guint)self->sums.replicated)->elements);
  copy_all (self, pieces, TRUE);
  plan_lower_free (self, ONE (sums.replicated));
  for (PlanBucketKind kind = 0; kind < PLAN_N_BUCKETS; kind++)
    g_array_unref (pieces[kind]);
}

/* Whether another rank counts a parameter's gradient in the norm: the first rank of the
 * tensor-parallel group, or of those that split an expert, or the first stage, of whose embedding
 * it is a copy. */
static gboolean
is_measured_elsewhere (const PlanLower *self, PlanTensorRole role)
{
  const gboolean is_shared = role == PLAN_TENSOR_OUTPUT || role == PLAN_TENSOR_EMBEDDING;
  const gint64 place
      = is_of_experts (self, role) ? self->place.expert_part : self->place.tensor_rank;
  return (place > 0 && plan_lower_is_replicated (self, role))
         || (self->model->cut.shares_embedding && !self->stage.has_embedding && is_shared
             && (role == PLAN_TENSOR_EMBEDDING || self->whole->tied_embeddings));
}

void
plan_lower_measure (PlanLower *self, PlanBucketKind kind, PlanRef grads, guint64 first,
                    guint64 count)
{
  const PlanRef sum = plan_lower_at (ONE (sums.own), PLAN_EXACT_LIMBS);
  const gboolean has_copy = self->model->cut.shares_embedding && !self->stage.has_embedding
                            && !plan_bucket_is_unit (kind);
  const gint64 place
      = plan_bucket_is_of_experts (kind) ? self->place.expert_part : self->place.tensor_rank;
  if (place == 0 && !has_copy)
    {
      plan_lower_compute (self, PLAN_OP_NORM_SQ, PLAN_REFS (sum, grads), PLAN_DIMS ((gint64)count));
      return;
    }
  g_autoptr (GArray) pieces = find_pieces (self, kind, first, count, is_measured_elsewhere, TRUE);
  for (guint i = 0; i < pieces->len; i++)
    {
      const Piece *piece = &g_array_index (pieces, Piece, i);
      plan_lower_compute (self, PLAN_OP_NORM_SQ,
                          PLAN_REFS (sum, plan_lower_at (grads, piece->from)),
                          PLAN_DIMS ((gint64)(piece->to - piece->from)));
    }
}
