/* PlanValueSet: a set of a layer's values. */
#pragma once
#include "planner/graph/layer-values.h"
G_BEGIN_DECLS

__extension__ typedef unsigned __int128 PlanValueSet; /* a bit per value */

G_STATIC_ASSERT (PLAN_N_VALUES <= 128);

static inline PlanValueSet
plan_value_bit (PlanValueId id)
{
  return id == PLAN_NO_VALUE ? 0 : (PlanValueSet)1 << id;
}

/* Removes the first value from a set that is not empty, and returns it. */
static inline PlanValueId
plan_value_pop (PlanValueSet *set)
{
  const guint64 low = (guint64)*set;
  const int first = low ? __builtin_ctzll (low) : 64 + __builtin_ctzll ((guint64)(*set >> 64));
  *set &= *set - 1;
  return (PlanValueId)first;
}

G_END_DECLS
