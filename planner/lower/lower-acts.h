/* PlanLowerOrder: what a pass over the layers does, act by act, before any op of it is emitted.
 *
 * Weights come and go as the framework's hooks say, gradients as the queue of
 * reductions does. The acts of a chunk of layers are written relative to its first
 * one; chunks that do the same make one run, which becomes a repeat. */
#pragma once
#include "planner/lower/lower-layer.h"
G_BEGIN_DECLS

/* A piece of a unit's weights that is gathered and dropped by itself. */
typedef enum
{
  PLAN_PIECE_ROWS,    /* what the forward pass reads, and where there is no other copy both do */
  PLAN_PIECE_COLUMNS, /* the copy for the backward pass */
  PLAN_PIECE_PLAIN,   /* what stays in the format of activations */
  PLAN_PIECE_EXPERTS,
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
  PLAN_ACT_REPLAY, /* forwards again, for the backward pass */
  PLAN_ACT_BACKWARD,
  PLAN_ACT_REDUCE,
  PLAN_ACT_RELEASE,     /* gives gradients back whose reduction has ended */
  PLAN_ACT_REDUCE_HEAD, /* where its last gradients come behind a prediction module's layer */
  PLAN_ACT_RELEASE_HEAD,
  PLAN_ACT_REDUCE_BUCKET, /* one that goes by size */
  PLAN_ACT_RELEASE_BUCKET,
  PLAN_ACT_AWAIT_BUCKET,
  PLAN_ACT_GATHER_BUCKET,
  PLAN_ACT_GATHER_UNIT, /* every bucket of it */
  PLAN_ACT_OFFLOAD,     /* starts copying activations out */
  PLAN_ACT_DROP_OFFLOADED,
  PLAN_ACT_FETCH, /* starts copying them back */
  PLAN_ACT_AWAIT_FETCHED,
} PlanActKind;

typedef struct PlanAct
{
  PlanActKind kind;
  PlanPiece piece;
  gint32 unit;           /* relative to the first of the chunk */
  guint attached;        /* of a backward pass: so many acts behind it happen inside */
  PlanTensorRole role;   /* of one of those: once this gradient is there */
  PlanBucketKind bucket; /* of a piece, or of one that goes by size */
  gint64 lies_like;      /* where they do: as PlanLower's `like` says */
  gint64 shared;         /* of a bucket that layers of a repeat share: its lowest layer, from 1 */
  gint64 like;           /* the first unit of which the same activations go to the host */
  PlanLowerKeep keep;
} PlanAct;

/* `count` chunks that do the same, the first of them at unit `first`. */
typedef struct
{
  gint64 first, count, step;
  guint from, n; /* acts */
} PlanLowerRun;

typedef struct
{
  GArray *acts; /* PlanAct */
  GArray *runs; /* PlanLowerRun */
} PlanLowerOrder;

/* Gradient buckets whose reduction was started and that nobody has waited for, oldest first. */
typedef struct
{
  gint64 *unit;   /* or PLAN_QUEUE_HEAD */
  guint first, n; /* in flight: unit[first .. n - 1] */
  guint64 elements;
  gint64 limit; /* start another only once no more than this is in flight */
  guint sets;   /* at most so many live at once; 0: any number */
  guint64 head_elements;
  const guint64 *unit_elements;  /* of each unit */
  const guint64 *group_elements; /* by bucket, where they go by size and `unit` holds numbers */
} PlanLowerQueue;

#define PLAN_QUEUE_HEAD (-1)

void plan_lower_queue_push (PlanLowerQueue *self, gint64 unit);
gint64 plan_lower_queue_pop (PlanLowerQueue *self);
gboolean plan_lower_queue_is_over (const PlanLowerQueue *self);

void plan_lower_order_init_forward (PlanLowerOrder *self, const PlanLower *lower);

/* `queue` holds what was started before the layers; NULL where nothing is queued. `reduces`: each
 * unit's reduction starts as its gradients are there. */
void plan_lower_order_init_backward (PlanLowerOrder *self, const PlanLower *lower,
                                     PlanLowerQueue *queue, gboolean reduces);

/* Adds the reductions of the buckets by size that are complete in a layer's backward pass, before
 * the layers or behind them, each to happen as its last gradient is there. */
void plan_lower_add_reductions (const PlanLower *lower, PlanLowerQueue *queue, gint64 when,
                                GArray *acts);

/* Emits it; `is_last`: in the last micro batch. */
void plan_lower_run (PlanLower *self, const PlanLowerOrder *order, gboolean is_last);

void plan_lower_order_clear (PlanLowerOrder *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (PlanLowerOrder, plan_lower_order_clear)

G_END_DECLS
