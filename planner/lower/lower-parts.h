/* Parts of PlanLower: what lowering holds of a kind of bucket, and how it names a unit. */
#pragma once
#include "planner/base/dtype.h"
#include <glib.h>
G_BEGIN_DECLS

/* What the host keeps of the parameters that it updates. */
typedef enum
{
  PLAN_HOST_MAIN,
  PLAN_HOST_EXP_AVG,
  PLAN_HOST_EXP_AVG_SQ,
  PLAN_HOST_GRADS,
  PLAN_N_HOST_STATES
} PlanHostState;

/* Buffer arrays and events that exist once per bucket kind; -1 where there is none. */
typedef struct
{
  PlanDtype dtype;                 /* of the weights that kernels read */
  gboolean is_unit;                /* of a layer */
  gint64 ranks, rank;              /* of the group that shards it; this rank's place in it */
  gint8 inner_group, gather_group; /* -1: a group of one, which shards nothing */
  gboolean shards_weights, shards_grads, shards_optimizer;
  gboolean rounds_late; /* main weights, as they are gathered */
  gboolean lends_grads; /* weights are gathered where gradients will be, and quantised from there */
  gboolean sums_whole;  /* every rank gets all sums, though it updates a part */
  gint32 weights;       /* full compute weights */
  gint32 landing;       /* what is gathered into, and copied out of; -1: `weights` */
  gint32 shard;         /* this rank's part of them at rest; -1: `weights` is at rest */
  gint32 columns;       /* the same in the copy for the backward pass */
  gint32 column_shard;
  gint32 main;    /* what the optimizer updates; -1: the compute weights themselves */
  gint32 masters; /* what the optimizer updates in place of `main`, which copies it */
  gint32 exp_avg, exp_avg_sq;
  gint32 host[PLAN_N_HOST_STATES];
  gint32 wide_avg, wide_avg_sq; /* those while the optimizer works, where they are narrow */
  gint32 grads;                 /* accumulated gradients */
  gint32 half;                  /* this step's, in the format of weights */
  gint32 received;              /* all ranks' shares of this one's part, before they are summed */
  gint32 bucket;                /* gradients on their way to the reduction; -1: reduced in place */
  gint32 outer;                 /* a shard of gradients on its way between replicas; -1: in place */
  gint32 cast; /* own gradients as the optimizer reads them; -1: it reads `grads` */
  gint32 gathered, columns_gathered; /* events: `weights`, `columns` are whole */
  gint32 whole;                      /* event: the shard is, between replicas */
  gint32 reduced;                    /* event: the reduction has ended */
} PlanLowerBucket;

/* Exchanges of virtual stages. */
typedef enum
{
  PLAN_TRADE_INPUT, /* received */
  PLAN_TRADE_OUTPUT,
  PLAN_TRADE_OUTPUT_GRADIENT, /* received */
  PLAN_TRADE_INPUT_GRADIENT,
  PLAN_N_TRADES
} PlanTrade;

/* When weights that stay gathered are gathered. */
typedef enum
{
  PLAN_GATHER_AS_UPDATED, /* each beside the update of the next */
  PLAN_GATHER_AT_END,     /* after all updates, with nothing beside */
  PLAN_GATHER_AT_BEGIN,   /* when the next step needs them */
  PLAN_GATHER_IN_TURN,    /* when the bucket before is used */
  PLAN_GATHER_BY_STAGE,   /* of a virtual stage together, as the one before it is about to begin */
} PlanGatherTime;

/* A unit: a fixed one, or the one a repeat stands at. */
typedef struct
{
  gint8 loop;
  gint32 offset;
  gint32 first;       /* what the repeat starts with */
  gboolean is_within; /* one bucket: the repeat goes through its layers */
  gboolean is_module; /* the layer of a prediction module, which reads what that makes */
} PlanLowerUnit;

/* Rows of experts that all of some ranks get, and sum. */
typedef struct
{
  gint8 group;    /* those ranks; -1: none */
  gint32 tokens;  /* what all ranks' tokens are gathered into, for good; -1: nothing */
  gint32 even;    /* rows of ranks that have as many each go through this; -1: they do not */
  gint32 wide[2]; /* rows as they are summed over ranks; as they go through another buffer */
  gint32 sum;     /* this rank's part of their sum */
} PlanLowerJoined;

/* A forward pass of a micro batch beside a backward pass of the one before. */
typedef struct
{
  gboolean is_planned, is_now; /* of this plan; of the layer at hand */
  gint32 ready, arrived;       /* events, by pass: what is sent is there; it has come */
  GArray *owed; /* what is given back once compute is behind the exchange at hand; NULL: there is
                   none beside compute */
} PlanLowerCombined;

/* What a prediction module has beside its layer: buffers, of the micro batch at hand. */
typedef struct
{
  gboolean recomputes;      /* all of it that leads to its layer, in the backward pass */
  gint32 decoded, ddecoded; /* the decoder's output behind the final norm, which it reads */
  gint32 table, embedded;   /* the next tokens', of all rows and of one's own */
  gint32 norm[2], dnorm[2]; /* of the embedded and of the decoded */
  gint32 stats[2];          /* of those norms */
  gint32 joined, djoined;   /* the two, side by side */
  gint32 joined_full, djoined_full;
  gint32 part, projected;         /* this rank's columns of the product; all of them */
  gint32 normed, dnormed, dshare; /* its output behind its own final norm; a share of ddecoded */
} PlanLowerModule;

G_END_DECLS
