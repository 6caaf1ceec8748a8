/* PlanLowerOrder: what a pass over the layers does, act by act, before it is expanded into ops.
 *
 * Acts say when weights are gathered and freed, as the framework's hooks do, and when gradients are
 * reduced and their buckets freed, as the queue of reductions does. Acts of a chunk of layers are
 * written relative to its first layer; chunks with equal acts make one run, which becomes a
 * repeat. */
#pragma once
#include "planner/lower/lower-layer.h"
G_BEGIN_DECLS

/* A piece of a unit's weights that is gathered and dropped by itself. */
typedef enum
{
  PLAN_PIECE_ROWS, /* what the forward pass reads; the backward pass too, if there are no COLUMNS */
  PLAN_PIECE_COLUMNS, /* the copy quantised along columns, which the backward pass reads */
  PLAN_PIECE_PLAIN,   /* parameters that stay in the format of activations (plan_bucket_plain) */
  PLAN_PIECE_EXPERTS,
  PLAN_PIECE_EXPERT_COLUMNS, /* what COLUMNS is to ROWS */
  PLAN_PIECE_EXPERT_PLAIN,   /* what PLAIN is to ROWS */
  PLAN_N_PIECES
} PlanPiece;

typedef enum
{
  PLAN_ACT_GATHER,
  PLAN_ACT_GATHER_HEAD,
  PLAN_ACT_GATHER_EMBEDDING,
  PLAN_ACT_AWAIT,
  PLAN_ACT_DROP,
  PLAN_ACT_FORWARD,
  PLAN_ACT_REPLAY, /* recompute of a forward pass, for the backward passes that follow */
  PLAN_ACT_BACKWARD,
  PLAN_ACT_REDUCE,
  PLAN_ACT_RELEASE,     /* waits for a unit's reduction and frees its gradient buckets */
  PLAN_ACT_REDUCE_HEAD, /* the head's bucket, if a prediction module's layer completes it */
  PLAN_ACT_RELEASE_HEAD,
  PLAN_ACT_REDUCE_BUCKET, /* a bucket that is cut by size; so are the next three */
  PLAN_ACT_RELEASE_BUCKET,
  PLAN_ACT_AWAIT_BUCKET,
  PLAN_ACT_GATHER_BUCKET,
  PLAN_ACT_GATHER_UNIT, /* all buckets of a unit */
  PLAN_ACT_OFFLOAD,     /* starts copying activations to the host */
  PLAN_ACT_DROP_OFFLOADED,
  PLAN_ACT_FETCH, /* starts copying them back from the host */
  PLAN_ACT_AWAIT_FETCHED,
} PlanActKind;

typedef struct PlanAct
{
  PlanActKind kind;
  PlanPiece piece;
  gint32 unit;           /* relative to the first unit of the chunk */
  guint attached;        /* of BACKWARD: number of the next acts, which happen inside it */
  PlanTensorRole role;   /* of an act inside BACKWARD: it happens once this gradient is complete */
  PlanBucketKind bucket; /* of acts about pieces or about buckets cut by size */
  /* PlanLower's `like` of the unit: if units lie differently in their buckets, acts must differ. */
  gint64 lies_like;
  /* Of a bucket that all layers of a repeat share: its lowest layer, counted from 1; else 0. */
  gint64 shared;
  /* Of acts about offloading: the first unit of which the same activations go to the host. */
  gint64 like;
  PlanLowerKeep keep;
} PlanAct;

/* A run: `count` chunks with equal acts, the first at unit `first`, each `step` units after the
 * one before. */
typedef struct
{
  gint64 first, count, step;
  guint from, n; /* range in the order's acts */
} PlanLowerRun;

typedef struct
{
  GArray *acts; /* PlanAct */
  GArray *runs; /* PlanLowerRun */
} PlanLowerOrder;

/* Gradient buckets whose reduction has been started and not been waited for, oldest first. */
typedef struct
{
  gint64 *unit;   /* units, or numbers of buckets cut by size, or PLAN_QUEUE_HEAD */
  guint first, n; /* in flight: unit[first .. n - 1] */
  guint64 elements;
  gint64 limit; /* elements in flight above which the oldest reduction is waited for */
  guint sets;   /* the same as a number of units; 0: `limit` decides */
  guint64 head_elements;
  const guint64 *unit_elements;  /* by unit */
  const guint64 *group_elements; /* by bucket, if buckets are cut by size; else NULL */
} PlanLowerQueue;

#define PLAN_QUEUE_HEAD (-1)

void plan_lower_queue_push (PlanLowerQueue *self, gint64 unit);
gint64 plan_lower_queue_pop (PlanLowerQueue *self);

/* Whether the oldest reduction must be waited for before the next bucket. `has_own`: that one has a
 * buffer of its own, beside a pool's sets. */
gboolean plan_lower_queue_is_over (const PlanLowerQueue *self, gboolean has_own);

void plan_lower_order_init_forward (PlanLowerOrder *self, const PlanLower *lower);

/* Makes the order of a backward pass. `queue` holds the reductions that were started before the
 * layers; NULL: buckets are not queued. `reduces`: this micro batch reduces gradients. */
void plan_lower_order_init_backward (PlanLowerOrder *self, const PlanLower *lower,
                                     PlanLowerQueue *queue, gboolean reduces);

/* Appends to `acts` the reductions of the buckets cut by size that layer `when` completes (or what
 * stands around the layers: PLAN_BEFORE_LAYERS, PLAN_AFTER_LAYERS). Each act names the gradient
 * that completes its bucket. */
void plan_lower_add_reductions (const PlanLower *lower, PlanLowerQueue *queue, gint64 when,
                                GArray *acts);

/* Expands an order into ops. `is_last`: it is the step's last micro batch. */
void plan_lower_run (PlanLower *self, const PlanLowerOrder *order, gboolean is_last);

void plan_lower_order_clear (PlanLowerOrder *self);

/* A pass over a stage that was written out, or half of two passes that run beside each other, from
 * where (`now` before it) to where. Rows count as 0: they only decide which buffers of an array are
 * used. */
typedef struct
{
  PlanLowerCursor before, after;
  gboolean is_backward, is_last;
  guint half;        /* of two passes: 1 or 2; 0: it is one pass */
  gint64 back;       /* of two: the virtual stage of the backward one, */
  gboolean is_first; /* and whether that is of the first micro batch */
  guint begin, end;  /* its nodes */
} PlanLowerPass;

/* Before a pass: TRUE if it was added as an echo of an earlier one. Else end_pass is called behind
 * its ops. */
gboolean plan_lower_begin_pass (PlanLower *self, PlanLowerPass *pass);
void plan_lower_end_pass (PlanLower *self, PlanLowerPass *pass);

/* Lowers a pass of a micro batch over the virtual stage at hand; `is_last`: it is the step's last
 * micro batch. Where `passes` are kept and one of them was the same, it becomes an echo of that. */
void plan_lower_pass (PlanLower *self, gboolean is_backward, gboolean is_last);

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (PlanLowerOrder, plan_lower_order_clear)

G_END_DECLS
