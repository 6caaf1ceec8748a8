/* Parts of PlanLower: the buffers of one kind of bucket, when weights are gathered, how a unit is
 * named, and the buffers of joined rows, of combined passes and of prediction modules. */
#pragma once
#include "planner/base/dtype.h"
#include "planner/schedule/op.h"
#include <glib.h>
G_BEGIN_DECLS

/* Copies that the host keeps of the parameters that it updates (offload_optimizer). */
typedef enum
{
  PLAN_HOST_MAIN,
  PLAN_HOST_EXP_AVG,
  PLAN_HOST_EXP_AVG_SQ,
  PLAN_HOST_GRADS,
  PLAN_N_HOST_STATES
} PlanHostState;

/* Sharding of one kind of bucket, and its buffer arrays and events. -1: this plan has no such array
 * or event. */
typedef struct
{
  PlanDtype dtype;                 /* format of the weights that kernels read */
  gboolean is_unit;                /* it holds parameters of layers */
  gboolean is_pooled;              /* what is gathered and reduced lies in a pool's buffers */
  gint64 ranks, rank;              /* size of the group that shards it; this rank's place there */
  gint8 inner_group, gather_group; /* of reductions, of gathers; -1: a group of one */
  gboolean shards_weights, shards_grads, shards_optimizer;
  gboolean rounds_late; /* main weights are rounded only as they are gathered */
  gboolean lends_grads; /* weights are gathered into the memory of `grads`, and quantised there */
  gboolean sums_whole;  /* sums are all-reduced, though each rank updates only a part */
  gint32 weights;       /* whole weights in the compute format */
  gint32 landing; /* what gathers write, to be copied to `weights`; -1: they write `weights` */
  gint32 shard;   /* this rank's shard between steps; -1: `weights` stays */
  gint32 columns; /* `weights` quantised along columns, for the backward pass; and its shard */
  gint32 column_shard;
  gint32 main;    /* main weights, updated by the optimizer; -1: it updates compute weights */
  gint32 masters; /* fp32 weights inside the optimizer: updated, then copied to `main` */
  gint32 exp_avg, exp_avg_sq;
  gint32 host[PLAN_N_HOST_STATES];
  gint32 wide_avg, wide_avg_sq; /* fp32 copies of narrow moments, while the optimizer works */
  gint32 roots;                 /* of second moments, while the optimizer works (adam_foreach) */
  gint32 grads;                 /* accumulated gradients (main_grads) */
  gint32 half;     /* whole gradients of the last micro batch, in the weights' format */
  gint32 kept;     /* whole gradients of the micro batches so far (grad_sync=last) */
  gint32 received; /* all-to-all: each rank's share of this rank's part, to be summed */
  gint32 bucket;   /* what is reduced, in grad_comm's format; -1: `grads`, in place */
  gint32 outer;    /* what is reduced between replicas; -1: `grads`, in place */
  gint32 cast;     /* this rank's gradients, cast for the optimizer; -1: it reads `grads` */
  gint32 gathered, columns_gathered; /* events: the gathers of `weights`, of `columns` have ended */
  gint32 whole;   /* event: HFSDP's gather of the shard over replicas has ended */
  gint32 reduced; /* event: the reduction has ended */
} PlanLowerBucket;

/* What virtual stages exchange with their neighbours. */
typedef enum
{
  PLAN_TRADE_INPUT, /* received from the stage before */
  PLAN_TRADE_OUTPUT,
  PLAN_TRADE_OUTPUT_GRADIENT, /* received from the next stage */
  PLAN_TRADE_INPUT_GRADIENT,
  PLAN_N_TRADES
} PlanTrade;

/* When weights that stay gathered from step to step are gathered. */
typedef enum
{
  PLAN_GATHER_AS_UPDATED, /* each bucket beside the optimizer's update of the next bucket */
  PLAN_GATHER_AT_END,     /* after all updates; nothing runs beside */
  PLAN_GATHER_AT_BEGIN,   /* as the next step begins */
  PLAN_GATHER_IN_TURN,    /* each bucket when the one before it is first used */
  PLAN_GATHER_BY_STAGE,   /* all of a virtual stage, when the virtual stage before it begins */
} PlanGatherTime;

/* A unit: layer first + offset if it is fixed; inside a repeat, the layer of the turn plus
 * offset. */
typedef struct
{
  gint8 loop;
  gint32 offset;
  gint32 first;       /* the layer of the repeat's first turn */
  gboolean is_within; /* layers of the repeat lie in one bucket, and operands move along it */
  /* A prediction module's layer: it does not read the previous layer's output. */
  gboolean is_module;
} PlanLowerUnit;

/* Rows of experts that a group of ranks all-gathers, and reduce-scatters afterwards. */
typedef struct
{
  gint8 group;    /* -1: no such group */
  gint32 tokens;  /* allgather dispatcher: all ranks' tokens, one buffer for all layers */
  gint32 even;    /* buffer in which PyTorch joins pieces of one size; -1: sizes differ */
  gint32 wide[2]; /* rows in the router's format, to be summed; and the `even` of these */
  gint32 sum;     /* this rank's part of the sum, in the router's format */
} PlanLowerJoined;

/* An exchange of rows that goes on beside the shared experts. */
#define PLAN_MAX_OWED 8
typedef struct
{
  gboolean is_begun;           /* its ops are being emitted */
  gboolean is_away;            /* emitted, and compute has not waited for it yet */
  PlanRef owed[PLAN_MAX_OWED]; /* buffers to free once compute has waited for it */
  guint n_owed;
} PlanLowerBeside;

/* ep_overlap: the forward pass of a micro batch beside the backward pass of the one before. */
typedef struct
{
  gboolean is_planned, is_now; /* the plan has it; the layer at hand is lowered so */
  gboolean by_share;     /* weights are gathered in shares of layers, by the passes themselves */
  gint32 ready, arrived; /* events, by pass: rows can be sent; rows have arrived */
  /* Buffers that ops beside compute have used; they are freed once compute has waited for these
   * ops. NULL: ops are emitted to the compute stream now. */
  GArray *owed;
} PlanLowerCombined;

/* A multi-token-prediction module: buffers of the micro batch at hand, beside those of its layer.
 * Pairs [2] are of the embedded next tokens and of the decoder's output. */
typedef struct
{
  gboolean recomputes;      /* the backward pass makes the input of its layer again */
  gint32 decoded, ddecoded; /* decoder's output after the final norm: the module's input */
  gint32 table, embedded;   /* embeddings of the next tokens: of all rows, of this rank's */
  gint32 norm[2], dnorm[2]; /* the norms' outputs */
  gint32 stats[2];          /* the norms' statistics */
  gint32 joined, djoined;   /* both norms' outputs side by side: input of the projection */
  gint32 joined_full, djoined_full;
  gint32 part, projected;         /* projection: this rank's columns; all columns */
  gint32 normed, dnormed, dshare; /* its layer's output, normed; a share of `ddecoded` */
} PlanLowerModule;

G_END_DECLS
