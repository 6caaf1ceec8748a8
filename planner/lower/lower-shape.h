/* Parts of PlanLower that stay once they are measured: this rank's groups, and what plan, stack and
 * sizes decide. */
#pragma once
#include "planner/graph/layer-graph.h"
#include "planner/lower/lower-parts.h"
G_BEGIN_DECLS

/* How large groups are, and this rank's place in them. */
typedef struct
{
  gint64 ranks, rank;               /* of the group that shards what is no expert's */
  gint64 expert_ranks, expert_rank; /* of the one that shards experts */
  gint64 most_ranks;                /* of the two */
  gint64 replicas, replica;         /* of that group */
  gint64 data_parallel;             /* ranks x replicas */
  gint64 tensor_rank;               /* in the tensor-parallel group */
  gint64 stage_number;              /* of a pipeline's, from 0 */
  gint64 micro_batches;             /* of a rank in a step */
} PlanLowerRanks;

/* Communicators; -1: a group of one. */
typedef struct
{
  gint8 inner, gather, outer, tensor, context, world;
  gint8 next, prev; /* of all stages: exchanges with the next and the previous one */
  gint8 embedding;  /* the first and the last stage */
  gint8 amax;       /* ranks that hold the same layers */
  gint8 expert, expert_inner, expert_gather;
} PlanLowerComm;

/* What plan, stack and sizes decide. */
typedef struct
{
  gboolean is_eval;
  gint64 chunk; /* layers that are computed again together; 1 where each is by itself */
  /* Nodes of a kind of layer that run again, past recompute_layers and before. */
  PlanNodeSet again[PLAN_N_LAYER_KINDS][2];
  gboolean joins_pieces; /* of the loss */

  /* Weights. */
  gboolean shards_weights;     /* of any bucket, as the next two */
  gboolean drops_weights;      /* between a unit's passes; else they stay gathered in between */
  gboolean rounds_late;        /* main weights, as they are gathered */
  gboolean passes_outer;       /* embedding and head are gathered in each pass */
  gboolean has_own_groups;     /* and each while it is used */
  gboolean gathers_last_early; /* the last unit, for the head's turn */
  gboolean gathers_head_late;  /* when it is used, not when the step before ends */
  gboolean pools;              /* two sets of buffers for units, used in turns */
  PlanGatherTime gather_time;  /* of what stays gathered */
  gint64 comm_unit;            /* elements */
  gint64 ahead;                /* units gathered ahead of the one in use */
  gint64 ahead_of_embedding, ahead_of_head; /* and ahead of those */
  gboolean gathers_columns, copies_weights, transposes_weights, keeps_transposes;

  /* Gradients, and the optimizer. */
  gboolean shards_grads, shards_optimizer;
  gboolean splits_shards;         /* the optimizer's part is one of `replicas` of a shard */
  gboolean collects, drops_grads; /* see PlanStack; where they are sharded */
  gboolean scales_buckets;        /* by 1 / ranks, before they are reduced */
  gboolean head_holds_positions;  /* its bucket is complete when the embedding's is */
  gboolean reduces_together;      /* once all gradients are there, one bucket after the other */
  gboolean sums_whole;            /* every rank gets all sums, though it updates a part */
  gboolean sums_shared_first; /* a matrix that stages share, before ranks of a stage reduce it */
  gboolean syncs;             /* every micro batch ends as the last one does */
  guint sets; /* gradients of so many units live at once; 0: as many as comm_unit lets */
} PlanLowerPolicy;

G_END_DECLS
