/* Parts of PlanStack: which fields a framework offers, and its buckets. */
#pragma once
#include "planner/plan/placing.h"
#include <glib.h>
G_BEGIN_DECLS

/* What the framework offers, as a set. */
typedef enum
{
  PLAN_OFFERS_DOCUMENTS = 1 << 0,      /* doc_tokens */
  PLAN_OFFERS_FINE_GRAINED = 1 << 1,   /* fine_grained */
  PLAN_OFFERS_FUSED_MASTERS = 1 << 2,  /* fused_masters */
  PLAN_OFFERS_HYBRID_MEANS = 1 << 3,   /* HFSDP without per_token_loss scales by 1 / ranks */
  PLAN_OFFERS_MAX_POOL = 1 << 4,       /* double_buffer=max_pool */
  PLAN_OFFERS_NARROW_MOMENTS = 1 << 5, /* both moments in bf16 beside fp32 weights */
  PLAN_OFFERS_PIPELINES = 1 << 6,      /* 1F1B */
  PLAN_OFFERS_AFAB = 1 << 7,           /* pp_schedule=afab */
  PLAN_OFFERS_TE_LOSS = 1 << 8,        /* ce_fusion=te */
} PlanOffers;

/* What a bucket is. */
typedef enum
{
  PLAN_BUCKETING_MODULES,   /* a module's parameters */
  PLAN_BUCKETING_WHOLE,     /* with strategy=no_shard buckets close by size, else modules */
  PLAN_BUCKETING_BELOW,     /* they close by size unless weights are sharded */
  PLAN_BUCKETING_BACKWARDS, /* the same, filled from the last parameter to the first */
} PlanBucketing;

/* Which parameters share a bucket, and how they lie in it. */
typedef struct
{
  PlanBucketing bucketing;
  guint64 elements;          /* buckets that are not modules close at this */
  guint64 elements_per_rank; /* they close at this times the ranks, if that is more */
  gint64 comm_unit_floor;    /* elements; least communication unit of comm_unit=auto */
  PlanNaming naming;         /* order in which parameters are packed */
  PlanPacking packing;
  /* Elements; buckets are padded to a multiple of this, and of the shards. */
  guint64 shard_multiple;
} PlanStackBuckets;

G_END_DECLS
