/* How a framework orders and packs parameters: the words for it, which stacks choose from and
 * lowering follows. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

/* In which order a layer's modules name their parameters. */
typedef enum
{
  PLAN_NAMING_PROJ_FIRST, /* attention's projection before the rest: tensor-list.h */
  PLAN_NAMING_BY_USE,
  PLAN_NAMING_NORMS_LAST, /* attention, feed-forward network, then the norms before them */
} PlanNaming;

typedef enum
{
  PLAN_PACKING_CHUNKS,    /* by row size, so that no shard cuts a row (packing.c) */
  PLAN_PACKING_FLAT,      /* one after the other, in equal shards */
  PLAN_PACKING_PER_TENSOR /* each by itself, its rows in equal shards */
} PlanPacking;

G_END_DECLS
