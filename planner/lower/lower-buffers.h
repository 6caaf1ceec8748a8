/* Parts of PlanLower: the buffers and events of a schedule, by what they are for. Each is the
 * number of a buffer array or of an event; -1: there is none. */
#pragma once
#include "planner/graph/layer-graph.h"
#include "planner/lower/lower-parts.h"
G_BEGIN_DECLS

/* By parameter: its gradient, and the weight in the format of GEMMs. */
typedef struct
{
  gint32 raw[PLAN_N_TENSORS];   /* the gradient as its kernel leaves it */
  gint32 fresh[PLAN_N_TENSORS]; /* the same per unit, where all stay until the backward pass ends */
  gint32 raw_again, raw_sum;    /* the other one of a shared embedding; a sum of GEMMs, in fp32 */
  gboolean is_collected[PLAN_N_TENSORS]; /* it waits for the others of its unit */
  gint32 copy[PLAN_N_TENSORS], copy_col[PLAN_N_TENSORS], transposed[PLAN_N_TENSORS];
  PlanTensorRole final_norm_bias; /* PLAN_N_TENSORS: none */
} PlanLowerParams;

/* By value of a layer's graph: activations and their gradients. */
typedef struct
{
  gint32 value[PLAN_N_VALUES], grad[PLAN_N_VALUES];
  gint32 quantised_grad[PLAN_N_VALUES], quantised_grad_col[PLAN_N_VALUES];
  gint32 grad_sum[PLAN_N_VALUES]; /* of values that several nodes read */
  gint32 host[PLAN_N_VALUES];     /* activations on the host */
} PlanLowerValues;

/* Behind the embedding. */
typedef struct
{
  gint32 out, mask;
  gint32 unnormed, stats, dunnormed; /* of a norm behind it */
} PlanLowerEmbedding;

/* The final norm, the output layer and the loss. */
typedef struct
{
  gint32 index; /* whose logits and loss are at hand: the model's own (0) or the module's */
  gint32 norm, norm_full, stats, logits, prob, image, loss_rows;
  gint32 dlogits, dnorm, dnorm_full, logits_again, dnorm_piece, dnorm_sum, landed;
  gint32 wide_logits, wide_dlogits, dprob; /* fp32: what a loss in separate kernels leaves */
} PlanLowerHead;

/* A micro batch as it is read. */
typedef struct
{
  gint32 tokens, targets, places;
} PlanLowerInput;

/* Workspaces. */
typedef struct
{
  gint32 scratch;
  guint64 scratch_elements; /* most that any op wanted */
  gint32 attention;
  gint32 gemm[2];     /* in the forward pass, in the backward one */
  gint32 gathered[2]; /* where sequences, and their gradients, are gathered and stay */
  gint32 received;    /* what came of the tensor-parallel group */
} PlanLowerWork;

/* Sums of the step: loss and norm, exact. */
typedef struct
{
  gint32 own, all;    /* this rank's; every rank's */
  gint32 coef;        /* by which clipping scales gradients */
  gint32 nan;         /* what looking for NaN adds up */
  gint32 replicated;  /* gradients that a tensor-parallel group sums */
  gint32 other_share; /* of the gradient of a matrix that stages share: what the other one sends */
} PlanLowerSums;

/* Events. */
typedef struct
{
  gint32 offloaded, fetched, copied, updated; /* per layer; the last copy and update */
  gint32 done;                                /* everything given to the compute stream so far */
  gint32 traded;                              /* what stages last exchanged has come */
  gint32 trades[PLAN_N_TRADES];               /* by pass: exchanges of virtual stages are over */
  gint32 exchanged;                           /* the last one of the tensor-parallel group */
  gint32 sent_rows;                           /* rows of experts have come */
} PlanLowerEvents;

/* Of the router and of experts. */
typedef struct
{
  gint32 scores, dscores;           /* what the router chooses by, and the gradient */
  gint32 wide_tokens, dwide_tokens; /* what its gradients are made of, in fp32 */
  gint32 bias_rows[2], dgate; /* what biases of experts go through, in fp32; of shared's score */
} PlanLowerExperts;

/* Attention over a context-parallel group. */
typedef struct
{
  gint32 kv, dkv, dkv_part, dq_part, attn_part, lse_part, kv_here, dkv_here;
} PlanLowerContext;

/* One gather of all weights. */
typedef struct
{
  gint32 sent, parts, landed;
} PlanLowerFlat;

/* Quantising weights after the step. */
typedef struct
{
  gint32 unrounded, work, amax, scales;
} PlanLowerQuantised;

/* Quantising by earlier magnitudes. */
typedef struct
{
  gint32 scales, history, amax;
} PlanLowerQuantizers;

G_END_DECLS
