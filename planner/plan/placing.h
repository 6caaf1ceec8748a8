/* In which order a framework lays out parameters, and how it packs them into shards. Stacks choose
 * among these, layout follows. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

/* The order of a layer's parameters, as its modules name them. */
typedef enum
{
  PLAN_NAMING_PROJ_FIRST, /* attention's output projection before the rest (tensor-list.h) */
  PLAN_NAMING_BY_USE,
  PLAN_NAMING_NORMS_LAST, /* attention, feed-forward network, then both norms */
} PlanNaming;

typedef enum
{
  PLAN_PACKING_CHUNKS,    /* by size of rows, so that no shard cuts a row (packing.c) */
  PLAN_PACKING_FLAT,      /* one after another, cut into equal shards */
  PLAN_PACKING_PER_TENSOR /* each tensor by itself, its rows cut into equal shards */
} PlanPacking;

G_END_DECLS
