/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/lower-buckets.h"

/* When a parameter's gradient is there, counted in a layer's backward pass. */
static guint
rank_of (const PlanLower *self, PlanTensorRole role)
{
  guint rank = 0;
  for (guint i = self->net.n_nodes; i-- > 0; rank += 2)
    {
      const PlanNode *node = &self->net.nodes[i];
      if (node->kind == PLAN_NODE_HEAD_NORM
          && (role == PLAN_TENSOR_Q_NORM || role == PLAN_TENSOR_K_NORM))
        return rank + (role == PLAN_TENSOR_K_NORM ? 1 : 0);
      if (role == node->weight || role == node->bias)
        return rank + (role == node->bias ? 1 : 0);
    }
  g_assert_not_reached ();
}

static PlanBucketKind
kind_of (const PlanLower *self, PlanTensorRole role)
{
  PlanBucketKind kind = PLAN_BUCKET_LAYER;
  plan_layout_slot (&self->layout, role, &kind);
  return kind;
}

static void
add_part (const PlanLower *self, GArray *parts, PlanTensorRole role, gint64 layer)
{
  const PlanLowerPart part = { kind_of (self, role), layer };
  for (guint i = 0; i < parts->len; i++)
    {
      const PlanLowerPart *other = &g_array_index (parts, PlanLowerPart, i);
      if (other->kind == part.kind && other->layer == part.layer)
        return;
    }
  g_array_append_val (parts, part);
}

GArray *
plan_lower_parts_of (const PlanLower *self, guint32 number)
{
  const PlanBuckets *b = &self->buckets;
  GArray *parts = g_array_new (FALSE, FALSE, sizeof (PlanLowerPart));
  guint end = b->first[number];
  while (end < b->n_all && b->number[end] == number)
    end++;
  while (end-- > b->first[number])
    {
      gint64 layer;
      const PlanTensor *tensor = plan_buckets_tensor (b, end, &layer);
      add_part (self, parts, tensor->role, layer);
    }
  return parts;
}

guint64
plan_lower_group_elements (const PlanLower *self, guint32 number)
{
  g_autoptr (GArray) parts = plan_lower_parts_of (self, number);
  guint64 elements = 0;
  for (guint i = 0; i < parts->len; i++)
    elements += self->layout.buckets[g_array_index (parts, PlanLowerPart, i).kind].padded;
  return elements;
}

/* Where a bucket's last gradient comes from. */
static PlanLowerGroup
group_of (const PlanLower *self, guint32 number)
{
  const PlanBuckets *b = &self->buckets;
  PlanLowerGroup group = { .number = number, .layer = PLAN_BEFORE_LAYERS };
  for (guint at = b->first[number]; at < b->n_all && b->number[at] == number; at++)
    {
      gint64 layer;
      const PlanTensor *tensor = plan_buckets_tensor (b, at, &layer);
      const guint rank = layer < 0 ? 0 : rank_of (self, tensor->role);
      if (at < b->n_before)
        return (PlanLowerGroup){ .number = number, .layer = PLAN_AFTER_LAYERS };
      if (layer >= 0 && (layer < group.layer || (layer == group.layer && rank > group.rank)))
        group = (PlanLowerGroup){ number, layer, tensor->role, rank };
    }
  return group;
}

void
plan_lower_init_buckets (PlanLower *self)
{
  if (!self->layout.by_size)
    return;
  plan_buckets_init (&self->buckets, self->model, &self->layout.rule);
  self->groups = g_array_new (FALSE, FALSE, sizeof (PlanLowerGroup));
  for (guint32 number = 0; number < self->buckets.n; number++)
    {
      const PlanLowerGroup group = group_of (self, number);
      g_array_append_val (self->groups, group);
    }
}

void
plan_lower_clear_buckets (PlanLower *self)
{
  plan_buckets_clear (&self->buckets);
  g_clear_pointer (&self->groups, g_array_unref);
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
  for (guint i = 0; i < self->groups->len; i++)
    {
      const PlanLowerGroup group = g_array_index (self->groups, PlanLowerGroup, i);
      if (group.layer == layer)
        g_array_append_val (groups, group);
    }
  g_array_sort (groups, by_time);
  return groups;
}
