/* Parts of PlanLower that are computed once, at the beginning: sizes of groups and this rank's
 * place in them, communicators, and the decisions that follow from plan, stack and sizes. */
#pragma once
#include "planner/graph/layer-graph.h"
#include "planner/lower/lower-parts.h"
G_BEGIN_DECLS

/* Sizes of groups of ranks, and this rank's place in them. */
typedef struct
{
  gint64 ranks, rank;               /* of the group that shards everything but experts */
  gint64 expert_ranks, expert_rank; /* of the group that shards experts */
  gint64 expert_part;               /* place among the ranks that split an expert */
  gint64 most_ranks;                /* the larger of `ranks` and `expert_ranks` */
  gint64 replicas, replica;         /* number of those groups; this rank's one */
  gint64 data_parallel;             /* ranks x replicas */
  gint64 tensor_rank;               /* place in the tensor-parallel group */
  gint64 context_rank;              /* place in the context-parallel group */
  gint64 stage_number;              /* stage of the pipeline, from 0 */
  gint64 micro_batches;             /* that each rank computes per step */
} PlanLowerRanks;

/* Communicators of this rank. -1: the group has one rank and communicates nothing. */
typedef struct
{
  gint8 inner, gather, outer, tensor, context, world;
  gint8 next, prev; /* pipeline: exchanges with the next and the previous stage */
  gint8 embedding;  /* the two stages that hold a tied embedding */
  gint8 amax;       /* ranks that hold the same layers: largest magnitudes for quantising */
  gint8 expert, expert_inner, expert_gather;
  gint8 sequence; /* ranks that have parts of the same sequences, whose tokens experts see */
} PlanLowerComm;

/* Decisions that follow from plan, stack and sizes. */
typedef struct
{
  gboolean is_eval;
  gint64 chunk; /* layers recomputed together, from one kept input; 1: each by itself */
  /* Nodes that the backward pass recomputes, by kind of layer: [1] in the first recompute_layers
   * layers, [0] in the others. */
  PlanNodeSet again[PLAN_N_LAYER_KINDS][2];
  gboolean joins_pieces; /* loss in chunks: autograd does each, and sums their gradients */

  /* Weights. */
  gboolean shards_weights; /* of any bucket; so are the next two */
  /* Weights are freed after each pass of a unit; else they stay until its backward pass. */
  gboolean drops_weights;
  gboolean rounds_late;  /* main weights are rounded only as they are gathered */
  gboolean keeps_whole;  /* sharded gradients stay whole until the last micro batch reduces them */
  gboolean passes_outer; /* embedding and head are gathered in each pass, not once per step */
  gboolean has_own_groups;     /* and each only while it is used */
  gboolean gathers_last_early; /* the last unit, for its backward pass, while the head computes */
  gboolean gathers_head_late;  /* when it is used, and not as the step before ends */
  gboolean keeps_weights; /* of the first micro batch's gathers, up to the step's end (pipelines) */
  gboolean pools;         /* gathered units and gradient buckets use two sets of buffers in turns */
  PlanGatherTime gather_time; /* when weights that stay gathered are gathered */
  gint64 comm_unit;           /* elements */
  gint64 ahead;               /* units whose weights are gathered ahead of the one in use */
  gint64 ahead_of_embedding, ahead_of_head; /* units that their hooks gather */
  gboolean gathers_columns, copies_weights, transposes_weights, keeps_transposes;

  /* Gradients, and the optimizer. */
  gboolean shards_grads, shards_optimizer;
  gboolean splits_shards;        /* HFSDP: the optimizer's part is 1 / `replicas` of a shard */
  gboolean collects;             /* see PLAN_GRADS_COLLECTED */
  gboolean holds_gradients;      /* see PLAN_STAGES_REDUCE_HELD */
  gboolean scales_buckets;       /* gradients are multiplied by 1 / ranks before they are reduced */
  gboolean head_holds_positions; /* so that its bucket is complete only when the embedding's is */
  gboolean reduces_together;     /* one bucket after another, once all gradients are complete */
  gboolean sums_whole;           /* sums are all-reduced, though each rank updates only a part */
  /* The gradient of a tied embedding is summed over its two stages before the ranks of a stage
   * reduce it. */
  gboolean sums_shared_first;
  gboolean syncs;   /* every micro batch ends with all reductions, as the last one does */
  guint sets;       /* units whose gradient buckets live at once; 0: as many as comm_unit allows */
  gint64 grad_rows; /* rows of gradients of layers' inputs: 1, or as of activations */
  gint64 head_rows; /* rows of what output layer and loss leave for their backward pass: likewise */
} PlanLowerPolicy;

G_END_DECLS
