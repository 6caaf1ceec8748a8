/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/lower/lower-buckets.h"

#include "planner/lower/lower-emit.h"
#include "planner/lower/lower-step.h"

/* The place in time of a parameter's gradient within the backward pass of its layer. */
static guint
rank_of (const PlanLower *self, PlanTensorRole role, gint64 layer)
{
  const PlanLayerGraph *net = self->graphs->of[plan_lower_kind (self, layer)];
  guint rank = 0;
  for (guint i = net->n_nodes; i-- > 0; rank += 2)
    {
      const PlanNode *node = &net->nodes[i];
      if (node->kind == PLAN_NODE_HEAD_NORM
          && (role == PLAN_TENSOR_Q_NORM || role == PLAN_TENSOR_K_NORM))
        return rank + (role == PLAN_TENSOR_K_NORM ? 1 : 0);
      if (role == node->weight || role == node->bias)
        return rank + (role == node->bias ? 1 : 0);
    }
  g_assert_not_reached ();
}

PlanTensor
plan_lower_tensor (const PlanLower *self, PlanTensorRole role)
{
  PlanBucketKind kind;
  const PlanSlot *slot
      = self->layout.by_size ? NULL : plan_layout_slot (&self->layout, role, &kind);
  if (slot)
    return slot->tensor;
  if (self->layout.by_size && plan_buckets_find (&self->buckets, role, 0) < self->buckets.n_all)
    return plan_buckets_part (self->model, role, &self->layout.rule);
  return (PlanTensor){ .role = role };
}

/* The layer that a unit stands for; within a repeat, that of the first turn. */
static gint64
layer_of (PlanLowerUnit unit)
{
  return unit.first + unit.offset;
}

/* Whether layers are in buckets of several kinds, apart from their experts'. */
static gboolean
has_several (const PlanLower *self)
{
  gboolean has = FALSE;
  for (PlanBucketKind kind = PLAN_BUCKET_DENSE; plan_bucket_is_main (kind); kind++)
    has = has || plan_layout_has (&self->layout, kind);
  return has;
}

gboolean
plan_lower_holds (const PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit, gint32 delta)
{
  if (!plan_layout_has (&self->layout, kind) || !plan_bucket_is_unit (kind) || !has_several (self))
    return plan_layout_has (&self->layout, kind);
  const guint of_layer = plan_lower_kind (self, layer_of (unit) + delta);
  if (plan_bucket_is_of_experts (kind))
    return (of_layer & PLAN_LAYER_EXPERTS) != 0;
  return plan_layout_main (&self->layout, of_layer) == plan_bucket_main (kind);
}

/* The kind of bucket of a layer, apart from its experts'. */
static PlanBucketKind
main_bucket (const PlanLower *self, gint64 layer)
{
  return layer >= 0 && layer < self->stage.layers && has_several (self)
             ? plan_layout_main (&self->layout, plan_lower_kind (self, layer))
             : PLAN_BUCKET_LAYER;
}

/* The slot of a layer's parameter. */
static const PlanSlot *
slot_of (const PlanLower *self, PlanTensorRole role, gint64 layer, PlanBucketKind *out_kind)
{
  const PlanBucketKind own = main_bucket (self, layer);
  const PlanBucketKind kinds[] = { own, plan_bucket_plain (own) };
  for (guint k = 0; own != PLAN_BUCKET_LAYER && k < G_N_ELEMENTS (kinds); k++)
    for (guint i = 0; i < self->layout.buckets[kinds[k]].n_slots; i++)
      if (self->layout.slots[kinds[k]][i].tensor.role == role)
        {
          *out_kind = kinds[k];
          return &self->layout.slots[kinds[k]][i];
        }
  return plan_layout_slot (&self->layout, role, out_kind);
}

static guint
parameter_of (const PlanLower *self, PlanTensorRole role, PlanLowerUnit unit)
{
  const guint at = plan_buckets_find (&self->buckets, role, layer_of (unit));
  g_assert (at < self->buckets.n_all);
  return at;
}

PlanLowerPlace
plan_lower_place (const PlanLower *self, PlanTensorRole role, PlanLowerUnit unit)
{
  PlanLowerPlace place = { .unit = unit, .along = -1 };
  if (!self->layout.by_size)
    {
      const PlanSlot *slot = slot_of (self, role, layer_of (unit), &place.kind);
      g_assert (slot);
      place.offset = slot->offset;
      place.elements = slot->tensor.rows * slot->tensor.cols;
      return place;
    }
  const guint at = parameter_of (self, role, unit);
  const PlanBucketSpan *span = &self->buckets.spans[self->buckets.number[at]];
  const PlanTensor tensor = plan_lower_tensor (self, role);
  place.kind = span->kind;
  place.offset = self->buckets.offset[at];
  place.elements = tensor.rows * tensor.cols;
  place.along = unit.is_within ? unit.loop : -1;
  if (!plan_bucket_is_unit (span->kind))
    place.unit = PLAN_NO_UNIT;
  else if (unit.is_within)
    place.unit = plan_lower_span_unit (span);
  else
    place.unit.offset += (gint32)(span->unit - layer_of (unit));
  return place;
}

PlanRef
plan_lower_in_place (PlanRef bucket, const PlanLowerPlace *place)
{
  bucket.at = place->offset;
  if (place->along < 0)
    return bucket;
  bucket.loop = place->along;
  bucket.moves = TRUE;
  return bucket;
}

gint64
plan_lower_distance (const PlanLower *self, gint64 layer, gint64 other)
{
  const guint64 *offset = &self->buckets.offset[self->buckets.n_before];
  const guint n = self->buckets.n_layer;
  return (gint64)(offset[(guint)other * n] - offset[(guint)layer * n]);
}

gboolean
plan_lower_starts (const PlanLower *self, PlanTensorRole role, PlanLowerUnit unit)
{
  const guint at = parameter_of (self, role, unit);
  return g_array_index (self->by_size.groups, PlanLowerGroup, self->buckets.number[at]).starter
         == at;
}

PlanLowerUnit
plan_lower_span_unit (const PlanBucketSpan *span)
{
  return (PlanLowerUnit){ .loop = -1, .offset = (gint32)span->unit };
}

guint32
plan_lower_next_bucket (const PlanLower *self, guint32 number)
{
  const PlanBucketSpan *span = &self->buckets.spans[number];
  const guint32 next = span->first + span->n;
  return next < self->buckets.n_all ? self->buckets.number[next] : PLAN_NO_BUCKET;
}

typedef void (*Visit) (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit);

static void
each_by_size (PlanLower *self, Visit visit)
{
  const PlanBucketSpan *spans = self->buckets.spans;
  const PlanBucketCycle cycle = plan_buckets_cycle (&self->buckets);
  for (guint i = 0; i < self->buckets.n;)
    {
      if (i != cycle.from || cycle.count < 2)
        {
          visit (self, spans[i].kind, plan_lower_span_unit (&spans[i]));
          i++;
          continue;
        }
      const PlanLowerUnit first
          = plan_lower_begin_units (self, spans[i].unit, cycle.count, cycle.step);
      for (guint k = 0; k < cycle.n; k++)
        {
          PlanLowerUnit unit = first;
          unit.offset += (gint32)(spans[i + k].unit - spans[i].unit);
          visit (self, spans[i + k].kind, unit);
        }
      plan_lower_end_units (self, first);
      i += cycle.n * cycle.count;
    }
}

/* Whether a layer is one of those with a kind of bucket: of a main kind, also where there is no
 * such bucket, as all of these layers' products are experts' and are gathered quantised. */
static gboolean
is_of (const PlanLower *self, PlanBucketKind kind, gint64 layer)
{
  return plan_bucket_is_main (kind) ? main_bucket (self, layer) == kind
                                    : plan_lower_holds (self, kind, PLAN_NO_UNIT, (gint32)layer);
}

/* Begins a repeat of the layers from `first` up to `end` that have a kind of bucket, which the
 * first one does, as far as they follow at equal distances. Sets `out_last` to the last of them. */
static PlanLowerUnit
begin_alike (PlanLower *self, PlanBucketKind kind, gint64 first, gint64 end, gint64 *out_last)
{
  gint64 count = 1, last = first, step = 0;
  for (gint64 layer = first + 1; layer < end; layer++)
    if (is_of (self, kind, layer))
      {
        if (step == 0)
          step = layer - first;
        if (layer - last != step)
          break;
        last = layer;
        count++;
      }
  *out_last = last;
  return plan_lower_begin_units (self, first, count, MAX (step, 1));
}

/* Visits the buckets of layers of a kind, layer by layer. */
static void
each_layer (PlanLower *self, const PlanStage *part, PlanBucketKind main, Visit visit)
{
  const gint64 end = part->first + part->layers;
  for (gint64 first = part->first; first < end; first++)
    {
      if (!is_of (self, main, first))
        continue;
      const PlanLowerUnit unit = begin_alike (self, main, first, end, &first);
      for (PlanBucketKind kind = 0; kind < PLAN_N_BUCKETS; kind++)
        if (plan_bucket_is_unit (kind) && plan_lower_holds (self, kind, unit, 0))
          visit (self, kind, unit);
      plan_lower_end_units (self, unit);
    }
}

void
plan_lower_each_unit (PlanLower *self, PlanBucketKind kind, Visit visit)
{
  for (gint64 first = 0; first < self->stage.layers; first++)
    {
      if (!plan_lower_holds (self, kind, PLAN_NO_UNIT, (gint32)first))
        continue;
      const PlanLowerUnit unit = begin_alike (self, kind, first, self->stage.layers, &first);
      visit (self, kind, unit);
      plan_lower_end_units (self, unit);
    }
}

gint64
plan_lower_count_units (const PlanLower *self, PlanBucketKind kind)
{
  gint64 count = 0;
  for (gint64 layer = 0; layer < self->stage.layers; layer++)
    count += plan_lower_holds (self, kind, PLAN_NO_UNIT, (gint32)layer);
  return count;
}

/* Visits the buckets of a virtual stage, or of the whole stage, where buckets are cut by module. */
static void
each_by_module (PlanLower *self, const PlanStage *part, Visit visit)
{
  for (PlanBucketKind kind = 0; kind < PLAN_N_BUCKETS; kind++)
    if (plan_layout_has (&self->layout, kind) && !plan_bucket_is_unit (kind)
        && (plan_lower_is_early (self, kind) ? part->has_embedding : part->has_head))
      visit (self, kind, PLAN_NO_UNIT);
  each_layer (self, part, PLAN_BUCKET_LAYER, visit);
  for (PlanBucketKind kind = PLAN_BUCKET_DENSE; plan_bucket_is_main (kind); kind++)
    if (plan_layout_has (&self->layout, kind))
      each_layer (self, part, kind, visit);
}

void
plan_lower_each_bucket (PlanLower *self, Visit visit)
{
  const PlanStage all = { .layers = self->stage.layers, .has_embedding = TRUE, .has_head = TRUE };
  if (self->layout.by_size)
    each_by_size (self, visit);
  else
    each_by_module (self, &all, visit);
}

/* Whether a bucket belongs to the virtual stage at hand. No bucket belongs to two. */
static gboolean
is_here (const PlanLower *self, const PlanBucketSpan *span)
{
  const PlanStage *here = &self->now.here;
  gint64 layer;
  plan_buckets_tensor (&self->buckets, span->first, &layer);
  if (layer >= 0)
    return layer >= here->first && layer < here->first + here->layers;
  return span->first < self->buckets.n_before ? here->has_embedding : here->has_head;
}

void
plan_lower_each_bucket_here (PlanLower *self, Visit visit)
{
  const PlanStage *here = &self->now.here;
  for (guint i = 0; self->layout.by_size && i < self->buckets.n; i++)
    {
      const PlanBucketSpan *span = &self->buckets.spans[i];
      if (is_here (self, span))
        visit (self, span->kind, plan_lower_span_unit (span));
    }
  if (!self->layout.by_size)
    each_by_module (self, here, visit);
}

/* The time in a backward pass at which a parameter's gradient is complete: its layer, then its
 * place within the layer. */
typedef struct
{
  gint64 layer;
  guint rank;
} Moment;

/* The place in time of a gradient in the backward pass of what stands before the layers. */
static guint
rank_before_layers (PlanTensorRole role)
{
  static const PlanTensorRole order[] = { PLAN_TENSOR_EMBED_NORM, PLAN_TENSOR_EMBED_NORM_BIAS,
                                          PLAN_TENSOR_POSITIONS, PLAN_TENSOR_EMBEDDING };
  guint rank = 0;
  while (order[rank] != role)
    rank++;
  return rank;
}

static Moment
moment_of (const PlanLower *self, guint at, gboolean is_first_share)
{
  const PlanBuckets *b = &self->buckets;
  gint64 layer;
  const PlanTensor *tensor = plan_buckets_tensor (b, at, &layer);
  if (layer >= 0)
    return (Moment){ layer, rank_of (self, tensor->role, layer) };
  if (at >= b->n_before)
    return (Moment){ PLAN_BEFORE_LAYERS, tensor->role == PLAN_TENSOR_OUTPUT ? 0 : 1 + at };
  if (tensor->role == PLAN_TENSOR_EMBEDDING && self->model->tied_embeddings && is_first_share)
    return (Moment){ PLAN_BEFORE_LAYERS, 0 };
  return (Moment){ PLAN_AFTER_LAYERS, rank_before_layers (tensor->role) };
}

static gboolean
is_earlier (Moment one, Moment other)
{
  return one.layer != other.layer ? one.layer > other.layer : one.rank < other.rank;
}

static PlanLowerGroup
group_of (const PlanLower *self, guint32 number)
{
  const PlanBucketSpan *span = &self->buckets.spans[number];
  guint32 starter = span->first, last = span->first;
  for (guint at = span->first; at < span->first + span->n; at++)
    {
      if (is_earlier (moment_of (self, at, TRUE), moment_of (self, starter, TRUE)))
        starter = at;
      if (is_earlier (moment_of (self, last, FALSE), moment_of (self, at, FALSE)))
        last = at;
    }
  gint64 layer;
  const Moment end = moment_of (self, last, FALSE);
  return (PlanLowerGroup){ .number = number,
                           .starter = starter,
                           .layer = end.layer,
                           .role = plan_buckets_tensor (&self->buckets, last, &layer)->role,
                           .rank = end.rank };
}

static gboolean
lies_alike (const PlanBuckets *b, gint64 one, gint64 other)
{
  for (guint i = 0; i < b->n_layer; i++)
    {
      const guint p = b->n_before + (guint)one * b->n_layer + i;
      const guint q = b->n_before + (guint)other * b->n_layer + i;
      const PlanBucketSpan *s = &b->spans[b->number[p]], *t = &b->spans[b->number[q]];
      if (s->kind != t->kind || b->offset[p] != b->offset[q]
          || (plan_bucket_is_unit (s->kind) && s->unit - one != t->unit - other))
        return FALSE;
    }
  return TRUE;
}

/* The bucket that holds all parameters of a layer; PLAN_NO_BUCKET: they lie in several. */
static guint32
bucket_of_whole (const PlanBuckets *b, gint64 layer)
{
  const guint first = b->n_before + (guint)layer * b->n_layer;
  for (guint p = first; p < first + b->n_layer; p++)
    if (b->number[p] != b->number[first])
      return PLAN_NO_BUCKET;
  return b->number[first];
}

/* Whether each parameter of the next layer lies `distance` elements after that of this layer. */
static gboolean
is_shifted (const PlanBuckets *b, gint64 layer, gint64 distance)
{
  const guint64 *one = &b->offset[b->n_before + (guint)layer * b->n_layer],
                *next = one + b->n_layer;
  for (guint p = 0; p < b->n_layer; p++)
    if ((gint64)(next[p] - one[p]) != distance)
      return FALSE;
  return TRUE;
}

/* Finds layers that lie one after another in one bucket: a repeat goes through all that the
 * bucket holds. Without virtual stages, and where equal buckets recur, a repeat goes from bucket to
 * bucket instead. */
static void
find_whole_layers (PlanLower *self)
{
  const PlanBuckets *b = &self->buckets;
  if (self->stage.n_virtual == 1 && plan_buckets_cycle (b).count > 1)
    return;
  for (gint64 first = 0, next; first < self->stage.layers; first = next)
    {
      const guint32 number = bucket_of_whole (b, first);
      next = first + 1;
      if (number == PLAN_NO_BUCKET)
        continue;
      while (next < self->stage.layers && bucket_of_whole (b, next) == number
             && is_shifted (b, next - 1, plan_lower_distance (self, first, first + 1)))
        next++;
      for (gint64 layer = first; layer < next && next > first + 1; layer++)
        self->by_size.like[layer] = PLAN_LIES_WITHIN (number);
    }
}

void
plan_lower_init_buckets (PlanLower *self)
{
  const gint64 layers = self->stage.layers;
  if (!self->layout.by_size)
    return;
  plan_buckets_init (&self->buckets, self->model, &self->layout.rule);
  self->by_size.groups = g_array_new (FALSE, FALSE, sizeof (PlanLowerGroup));
  for (guint32 number = 0; number < self->buckets.n; number++)
    {
      const PlanLowerGroup group = group_of (self, number);
      g_array_append_val (self->by_size.groups, group);
    }
  self->by_size.like = g_new (gint64, layers);
  for (gint64 layer = 0; layer < layers; layer++)
    {
      gint64 other = 0;
      while (!lies_alike (&self->buckets, layer, other))
        other++;
      self->by_size.like[layer] = other;
    }
  if (self->plan->value[PLAN_PP] > 1)
    find_whole_layers (self);
}

void
plan_lower_clear_buckets (PlanLower *self)
{
  plan_buckets_clear (&self->buckets);
  g_clear_pointer (&self->by_size.groups, g_array_unref);
  g_clear_pointer (&self->by_size.like, g_free);
}

static gint
by_time (gconstpointer a, gconstpointer b)
{
  const PlanLowerGroup *one = a, *other = b;
  if (one->rank != other->rank)
    return one->rank < other->rank ? -1 : 1;
  return one->number < other->number ? -1 : one->number > other->number ? 1 : 0;
}

GArray *
plan_lower_groups_of (const PlanLower *self, gint64 layer)
{
  GArray *groups = g_array_new (FALSE, FALSE, sizeof (PlanLowerGroup));
  for (guint i = 0; i < self->by_size.groups->len; i++)
    {
      const PlanLowerGroup group = g_array_index (self->by_size.groups, PlanLowerGroup, i);
      if (group.layer == layer)
        g_array_append_val (groups, group);
    }
  g_array_sort (groups, by_time);
  return groups;
}

/* Visits the fp32 copies of narrow moments, and the roots of second moments. They exist for all
 * parameters at once while the optimizer works. */
static void
copies_of_moments (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit,
                   void (*visit) (PlanLower *self, PlanRef buffer))
{
  const PlanLowerBucket *b = &self->bucket[kind];
  const gint32 arrays[] = { b->wide_avg, b->wide_avg_sq, b->roots };
  for (guint i = 0; i < G_N_ELEMENTS (arrays); i++)
    if (arrays[i] >= 0)
      visit (self, plan_lower_unit_ref (arrays[i], unit, 0));
}

void
plan_lower_take_copies (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  copies_of_moments (self, kind, unit, plan_lower_alloc);
}

void
plan_lower_drop_copies (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  copies_of_moments (self, kind, unit, plan_lower_free);
}

/* What AdamW by foreach does more than by one kernel that is fused: roots of second moments, which
 * are divided and added to in place (_multi_tensor_adam in torch/optim/adam.py). Its other ops are
 * counted as that kernel's one pass. */
void
plan_lower_take_roots (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit, gint64 n)
{
  const PlanLowerBucket *b = &self->bucket[kind];
  const PlanRef roots = plan_lower_unit_ref (b->roots, unit, 0);
  if (b->roots < 0)
    return;
  plan_lower_compute (self, PLAN_OP_CAST,
                      PLAN_REFS (roots, plan_lower_unit_ref (b->exp_avg_sq, unit, 0)),
                      PLAN_DIMS (n));
  plan_lower_compute (self, PLAN_OP_SCALE, PLAN_REFS (roots), PLAN_DIMS (n));
  plan_lower_compute (self, PLAN_OP_SCALE, PLAN_REFS (roots), PLAN_DIMS (n));
}

/* Weights of a virtual stage that stay gathered for several passes. */

static gboolean
is_kept_whole (const PlanLower *self, PlanBucketKind kind)
{
  const PlanLowerBucket *b = &self->bucket[kind];
  return b->shards_weights && (b->is_unit || self->policy.passes_outer);
}

static void
gather_bucket (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  if (is_kept_whole (self, kind))
    plan_lower_gather_bucket (self, kind, unit, 0, FALSE);
}

static void
receive_bucket (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  if (!is_kept_whole (self, kind) || self->bucket[kind].ranks == 1)
    return;
  plan_lower_wait (self, plan_lower_unit_ref (self->bucket[kind].gathered, unit, 0));
  plan_lower_land (self, kind, unit, 0);
}

static void
drop_bucket (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit)
{
  if (is_kept_whole (self, kind))
    plan_lower_free (self, plan_lower_weights_ref (self, kind, unit, 0, FALSE));
}

static void
visit_buckets (PlanLower *self, gint64 virtual_stage,
               void (*visit) (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit))
{
  self->now.here = plan_stage_virtual (&self->stage, virtual_stage);
  self->now.is_first_micro_batch = TRUE;
  plan_lower_each_bucket_here (self, visit);
}

void
plan_lower_gather_whole (PlanLower *self, gint64 virtual_stage)
{
  visit_buckets (self, virtual_stage, gather_bucket);
}

void
plan_lower_receive_whole (PlanLower *self, gint64 virtual_stage)
{
  visit_buckets (self, virtual_stage, receive_bucket);
}

void
plan_lower_drop_whole (PlanLower *self, gint64 virtual_stage)
{
  visit_buckets (self, virtual_stage, drop_bucket);
}
