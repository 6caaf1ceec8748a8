/* What the steps of lowering share: the sizes, the buffers and how an op is emitted. */
#pragma once
#include "planner/graph/layer-graph.h"
#include "planner/layout/layout.h"
#include "planner/lower/lower-parts.h"
#include "planner/lower/lower.h"
#include "planner/model/stage.h"
#include "planner/plan/stack.h"
G_BEGIN_DECLS

typedef struct
{
  PlanModel part;                 /* of the model, that this rank's stage holds */
  const PlanModel *model, *whole; /* that one, and all stages' */
  const PlanCluster *cluster;
  const PlanWorkspaces *asked;
  const Plan *plan;
  const PlanStack *stack;
  PlanLayout layout;
  PlanBuckets buckets; /* where the layout goes by size */
  GArray *groups;      /* PlanLowerGroup: when each of them is begun and complete */
  gint64 *like;        /* of every layer the first one whose parameters lie as its own do; below 0:
                          PLAN_LIES_WITHIN */
  const PlanLayerGraphs *graphs; /* by kind of layer */
  const PlanSizes *sizes;        /* theirs */
  PlanStage stage;
  PlanStage here;      /* the virtual stage at hand; the whole stage where it has only one */
  gint64 stage_number; /* of a pipeline's, from 0 */
  gint64 row, rows;    /* of activations, one for each micro batch that is held: the one at hand */
  gint64 grad_rows;    /* rows of gradients of layers' inputs: as many, or one */
  PlanSchedule *schedule;

  gint64 ranks, rank; /* of the group that shards what is no expert's; this rank's place in it */
  gint64 expert_ranks, expert_rank;  /* and of the one that shards experts */
  gint64 most_ranks;                 /* of the two */
  gint64 replicas, replica;          /* of that group */
  gint64 data_parallel, tensor_rank; /* ranks x replicas; the place in its tensor-parallel group */
  gint64 micro_batches, comm_unit;   /* of a rank in a step; elements */
  guint sets;   /* gradients of so many units live at once; 0: as many as comm_unit lets */
  gint64 ahead; /* units gathered ahead of the one in use */
  gint64 ahead_of_embedding, ahead_of_head; /* and ahead of those */
  gint64 chunk; /* layers that are computed again together; 1 where each is by itself */
  /* Nodes of a kind of layer that run again, past recompute_layers and before. */
  PlanNodeSet again[PLAN_N_LAYER_KINDS][2];
  gboolean shards_weights, shards_grads, shards_optimizer; /* of any bucket */
  gboolean drops_weights;  /* between a unit's passes; else they stay gathered in between */
  gboolean rounds_late;    /* main weights, as they are gathered */
  gboolean passes_outer;   /* embedding and head are gathered in each pass */
  gboolean has_own_groups; /* and each while it is used */
  gboolean joins_pieces, gathers_last_early; /* of the loss; the last unit, for the head's turn */
  gboolean collects, drops_grads;            /* gradients: see PlanStack; where they are sharded */
  gboolean splits_shards;  /* the optimizer's part is one of `replicas` of a shard */
  gboolean pools;          /* two sets of buffers for units, used in turns */
  gboolean scales_buckets; /* by 1 / ranks, before they are reduced */
  gboolean gathers_columns, copies_weights, transposes_weights, keeps_transposes;
  gboolean head_holds_positions; /* its bucket is complete when the embedding's is */
  gboolean gathers_head_late;    /* when it is used, not when the step before ends */
  PlanGatherTime gather_time;    /* of what stays gathered */
  gboolean reduces_together;     /* once all gradients are there, one bucket after the other */
  gboolean sums_whole;           /* every rank gets all sums, though it updates a part */
  gboolean syncs;                /* every micro batch ends as the last one does */
  /* -1: a group of one */
  gint8 inner_group, gather_group, outer_group, tensor_group, context_group, world_group;
  gint8 next_group, prev_group; /* of all stages: exchanges with the next and the previous one */
  gint8 embedding_group;        /* the first and the last stage */
  gint8 amax_group;             /* ranks that hold the same layers */
  gint8 expert_group, expert_inner_group, expert_gather_group;
  PlanDtype main_params, main_grads, grad_comm;
  PlanTensorRole final_norm_bias; /* PLAN_N_TENSORS: none */

  PlanLowerBucket bucket[PLAN_N_BUCKETS];
  gboolean is_taken[PLAN_N_BUCKETS]; /* this unit's gradient bucket, so far */
  gint32 raw[PLAN_N_TENSORS];        /* a parameter's gradient as its kernel leaves it */
  gint32 fresh[PLAN_N_TENSORS]; /* the same per unit, where all stay until the backward pass ends */
  gint32 raw_again, raw_sum; /* the other one of a shared embedding; a sum of products, in fp32 */
  gboolean is_collected[PLAN_N_TENSORS]; /* it waits for the others of its unit */
  /* Of a weight, quantised. */
  gint32 copy[PLAN_N_TENSORS], copy_col[PLAN_N_TENSORS], transposed[PLAN_N_TENSORS];
  gint32 tokens, targets, places, sums, all_sums, coef, scratch, attention_work;
  gint32 product_work[2]; /* of products in the forward pass, in the backward one; -1: none */
  gint32 gathered[2]; /* where sequences, and their gradients, are gathered and stay; -1: nowhere */
  guint64 scratch_elements; /* most that any op wanted */
  gint32 value[PLAN_N_VALUES], grad[PLAN_N_VALUES], quantised_grad[PLAN_N_VALUES],
      quantised_grad_col[PLAN_N_VALUES];
  gint32 grad_sum[PLAN_N_VALUES]; /* of values that several nodes read */
  gint32 unnormed, stats_embedded,
      dunnormed; /* of a norm behind the embedding; -1: there is none */
  gint32 embedded, embedded_mask, norm_final, norm_final_full, stats_final, logits, prob, image,
      loss_rows;
  gint32 dlogits, dnorm_final, dnorm_full, logits_again, dnorm_piece, dnorm_sum, head_landed;
  gint32 wide_logits, wide_dlogits, dprob; /* fp32: what a loss in separate kernels leaves */
  PlanLowerModule module;
  gint32 head;       /* whose logits and loss are at hand: the model's own (0) or the module's */
  gint32 replicated; /* gradients that a tensor-parallel group sums; -1: none on this rank */
  gint32 host[PLAN_N_VALUES];                 /* activations on the host */
  gint32 offloaded, fetched, copied, updated; /* events: per layer; the last copy and update */
  gint32 nan_sum;                             /* what looking for NaN adds up */
  gint32 done;                      /* event: everything given to the compute stream so far */
  gint32 traded;                    /* event: what stages last exchanged has come */
  gint32 trades[PLAN_N_TRADES];     /* events, by pass: exchanges of virtual stages are over */
  gint32 exchanged, received;       /* of a tensor-parallel group: the last event; what came */
  gint32 scores, dscores;           /* of the router: what it chooses by, and the gradient */
  gint32 wide_tokens, dwide_tokens; /* what its gradients are made of, in fp32 */
  gint32 bias_rows[2], dgate; /* what biases of experts go through, in fp32; of shared's score */
  gint32 sent_rows;           /* event: they have come */
  PlanLowerJoined joined;
  PlanLowerCombined combined;
  gint32 kv, dkv, dkv_part, dq_part, attn_part, lse_part, kv_here, dkv_here; /* of a cp group */
  gint32 sent, parts, landed;                  /* what one gather of all weights takes; -1: none */
  gint32 unrounded, work, amax, scales;        /* what quantising after the step takes */
  gint32 site_scales, site_history, site_amax; /* by earlier magnitudes; -1: it is not */
  guint32 kind;                                /* of the layer at hand */
  gboolean is_eval, is_in_step, is_first_micro_batch, is_last_micro_batch, is_backward;
  /* Acts that a layer's backward pass does as its gradients get there; the unit they count from. */
  const struct PlanAct *attached;
  guint n_attached;
  PlanLowerUnit attached_from;
  gint64 units_here; /* gathered before this forward pass asked for them */
  gint8 depth;       /* repeats open */
} PlanLower;

/* The kind of a layer of this stage. */
static inline guint
plan_lower_kind (const PlanLower *self, gint64 layer)
{
  return plan_model_layer_kind (self->model, layer, self->plan->value[PLAN_SEQ]);
}

/* Whether that layer is a prediction module's. */
static inline gboolean
plan_lower_is_module (const PlanLower *self, gint64 layer)
{
  return layer >= self->stage.layers - self->stage.modules;
}

/* One of the buckets: what there is of one kind, there is of all; nothing where there is none. */
static inline const PlanLowerBucket *
plan_lower_any_bucket (const PlanLower *self)
{
  PlanBucketKind kind = 0;
  while (kind + 1 < PLAN_N_BUCKETS && !plan_layout_has (&self->layout, kind))
    kind++;
  return &self->bucket[kind];
}

#define PLAN_POOL_SETS 2 /* of buffers in a pool */
#define PLAN_NO_UNIT ((PlanLowerUnit){ .loop = -1 })

G_END_DECLS
