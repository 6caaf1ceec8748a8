/* What the steps of lowering share: the sizes, the buffers and how an op is emitted. */
#pragma once
#include "planner/layout.h"
#include "planner/lower.h"
#include "planner/stack.h"
G_BEGIN_DECLS

/* Buffer arrays that exist once per bucket kind. */
typedef struct
{
  gint32 weights; /* full compute weights: what kernels read */
  gint32 shard;   /* this rank's part of them at rest; -1: `weights` is at rest */
  gint32 main;    /* what the optimizer updates */
  gint32 exp_avg, exp_avg_sq;
  gint32 grads;    /* accumulated gradients */
  gint32 bucket;   /* gradients on their way to the reduction; -1: reduced in place */
  gint32 cast;     /* own gradients in fp32 for the optimizer; -1: it reads `grads` */
  gint32 gathered; /* event: `weights` are whole; -1: they always are */
  gint32 reduced;  /* event: the reduction has ended; -1: there is none */
} PlanLowerBucket;

typedef struct
{
  const PlanModel *model;
  const PlanCluster *cluster;
  const Plan *plan;
  const PlanStack *stack;
  PlanLayout layout;
  PlanSchedule *schedule;

  gint64 ranks, rank, micro_batches, rows, vocab;
  gint64 qkv_cols, attention_cols; /* of a row of qkv and of attention output */
  gint64 comm_unit;                /* elements */
  gint64 prefetch;                 /* units gathered ahead of the one in use */
  gboolean shards_weights, shards_grads, shards_optimizer;
  PlanDtype compute, main_grads, grad_comm;

  PlanLowerBucket bucket[PLAN_N_BUCKETS];
  gint32 raw[PLAN_N_TENSORS]; /* a parameter's gradient as its kernel leaves it */
  gint32 tokens, targets, sums, all_sums, coef, scratch, attention_work;
  guint64 scratch_elements; /* most that any op wanted */
  /* activations: arrays over layers, then single buffers */
  gint32 x, norm1, rstd1, qkv, attn, lse, hidden2, norm2, rstd2, gate_up, act;
  gint32 branch, norm_final, rstd_final, logits, prob, image;
  /* their gradients */
  gint32 dx, dlogits, dnorm, dbranch, dhidden, dact, dgate_up, dattn, dqkv;
  gint32 done; /* event: everything given to the compute stream so far */
  gint8 depth; /* repeats open */
} PlanLower;

/* A unit: a fixed one, or the one a repeat stands at. */
typedef struct
{
  gint8 loop;
  gint32 offset;
} PlanLowerUnit;

/* What the forward pass of a unit leaves for the backward pass; the rest is computed again. */
typedef enum
{
  PLAN_KEEP_ALL,
  PLAN_KEEP_ATTENTION, /* not the MLP */
  PLAN_KEEP_INPUT,     /* of the unit, and nothing else */
} PlanLowerKeep;

/* A run of units that do the same relative to themselves. */
typedef struct
{
  PlanLowerKeep keep;
  gint32 gather_from, gather_to;   /* units gathered, relative; none where from > to */
  gint32 release_from, release_to; /* units whose gradient bucket is released, relative */
  gboolean releases_head;
  gint64 first, count;
} PlanLowerRun;

#define PLAN_REFS(...) ((const PlanRef[]){ __VA_ARGS__ })
#define PLAN_DIMS(...) ((const gint64[]){ __VA_ARGS__, 0 })
#define PLAN_WAITS(...) ((const PlanRef[]){ __VA_ARGS__, PLAN_REF_NONE })

PlanRef plan_lower_ref (gint32 array); /* element 0 */
PlanRef plan_lower_unit_ref (gint32 array, PlanLowerUnit unit, gint32 delta);
PlanRef plan_lower_at (PlanRef ref, guint64 element);

/* The weight of that role: a view into its bucket. */
PlanRef plan_lower_weight (const PlanLower *self, PlanTensorRole role, PlanLowerUnit unit);

/* Adds an op. `waits` is NULL or ends with PLAN_REF_NONE; absent events are skipped. Scratch
 * operands are filled in here. */
void plan_lower_emit (PlanLower *self, PlanOpKind kind, PlanStream stream, const PlanRef *refs,
                      const gint64 *dims, const PlanRef *waits, PlanRef record);
void plan_lower_compute (PlanLower *self, PlanOpKind kind, const PlanRef *refs, const gint64 *dims);
void plan_lower_alloc (PlanLower *self, PlanRef buffer);
void plan_lower_free (PlanLower *self, PlanRef buffer);
void plan_lower_free_after (PlanLower *self, PlanRef buffer, PlanRef event);

/* Opens a repeat over a run's units, or none where it has one; returns how to name the unit. */
PlanLowerUnit plan_lower_begin_units (PlanLower *self, gint64 first, gint64 count, gint64 step);
void plan_lower_end_units (PlanLower *self, PlanLowerUnit unit);

/* Elements per rank of a bucket. */
gint64 plan_lower_shard_elements (const PlanLower *self, PlanBucketKind kind);

/* What a layer keeps. */
PlanLowerKeep plan_lower_keep (const PlanLower *self, gint64 layer);

/* What a unit does not keep, computed again from what it does. `gathered` orders it behind its
 * weights; an absent event where they are always there. */
void plan_lower_recompute (PlanLower *self, PlanLowerUnit unit, PlanLowerKeep keep,
                           PlanRef gathered);

/* Takes memory for a unit's weights and gathers them. */
void plan_lower_gather (PlanLower *self, PlanLowerUnit unit, gint32 delta);

/* The steps, in the order they appear in a step. */
void plan_lower_setup (PlanLower *self);
void plan_lower_begin_step (PlanLower *self);
void plan_lower_forward (PlanLower *self);
void plan_lower_backward (PlanLower *self, gboolean is_last_micro_batch);
void plan_lower_end_step (PlanLower *self);
void plan_lower_teardown (PlanLower *self);

G_END_DECLS
