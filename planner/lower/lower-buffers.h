/* Parts of PlanLower: the numbers of buffer arrays and events of the schedule, by purpose. -1: this
 * plan has no such array or event. */
#pragma once
#include "planner/graph/layer-graph.h"
#include "planner/lower/lower-parts.h"
G_BEGIN_DECLS

/* By parameter: its gradient on the way to its bucket, and copies of the weight that GEMMs read. */
typedef struct
{
  gint32 raw[PLAN_N_TENSORS]; /* the gradient as its kernel writes it, before it is moved */
  /* The same, one for each unit, if autograd's gradients stay until the backward pass ends. */
  gint32 fresh[PLAN_N_TENSORS];
  /* Second share of a tied embedding's gradient; sum over the chunks of a loss. */
  gint32 raw_again, raw_sum;
  gboolean is_collected[PLAN_N_TENSORS]; /* `raw` waits until all gradients of the unit are there */
  gint32 copy[PLAN_N_TENSORS], copy_col[PLAN_N_TENSORS], transposed[PLAN_N_TENSORS];
  PlanTensorRole final_norm_bias; /* PLAN_N_TENSORS: it has none */
} PlanLowerParams;

/* By value of a layer's graph: activations and their gradients. */
typedef struct
{
  gint32 value[PLAN_N_VALUES], grad[PLAN_N_VALUES];
  gint32 quantised_grad[PLAN_N_VALUES], quantised_grad_col[PLAN_N_VALUES];
  gint32 grad_sum[PLAN_N_VALUES];             /* sums of the shares that several nodes make */
  gint32 host[PLAN_N_VALUES];                 /* copies of activations in host memory */
  gint32 graph_in, graph_grad[PLAN_N_VALUES]; /* copies that layers' CUDA graphs read */
} PlanLowerValues;

/* What the embedding leaves. */
typedef struct
{
  gint32 out, mask;
  gint32 unnormed, stats, dunnormed; /* of the norm after the embedding, if the model has one */
} PlanLowerEmbedding;

/* What the final norm, the output layer and the loss leave, and gradients of it. */
typedef struct
{
  gint32 index; /* which loss is at hand: the model's own (0) or the prediction module's (1) */
  gint32 norm, norm_full, stats, logits, prob, image, loss_rows;
  gint32 dlogits, dnorm, dnorm_full, logits_again, dnorm_piece, dnorm_sum, landed;
  gint32 wide_logits, wide_dlogits, dprob; /* fp32 images that a loss of separate kernels makes */
} PlanLowerHead;

/* The micro batch that was read; where its random numbers begin, and their keys: of each layer, and
 * of the embedding behind them. */
typedef struct
{
  gint32 tokens, targets, places, start, keys;
} PlanLowerInput;

/* Workspaces of kernels. */
typedef struct
{
  gint32 scratch;
  guint64 scratch_elements; /* the most that any op needs */
  gint32 attention;
  gint32 gemm[2];     /* cuBLAS's: forward pass, backward pass */
  gint32 gathered[2]; /* static buffers of gathered sequences and of their gradients */
  gint32 unused;      /* gradients that products leave unused (PlanStackGrads) */
  gint32 received;    /* parts of a product that other ranks of the tensor-parallel group sent */
} PlanLowerWork;

/* What is summed over a step, among it the exact sums of loss and squared gradients. */
typedef struct
{
  gint32 own, all;    /* exact sums of this rank; of all ranks */
  gint32 coef;        /* the factors by which gradients are scaled and clipped */
  gint32 host_coef;   /* the same for the host's share of the optimizer; -1: it reads `coef` */
  gint32 nan;         /* the sum that shows a NaN */
  gint32 replicated;  /* gradients that are summed over the tensor-parallel group, in one buffer */
  gint32 other_share; /* the other stage's share of the gradient of a tied embedding */
} PlanLowerSums;

/* Events. Each says that the thing named has ended. */
typedef struct
{
  /* Offloading: by layer; the host's optimizer: last copy, last update. */
  gint32 offloaded, fetched, copied, updated;
  gint32 done;    /* all ops issued to the compute stream so far */
  gint32 known;   /* the loss and the gradient norm; -1: the host waits for the whole step */
  gint32 traded;  /* the last exchange between stages; in batches, with the next and the previous */
  gint32 drained; /* in batches: all reductions, and all gathers, that were begun */
  gint32 sent;    /* the last one of those that only send, if compute goes on meanwhile */
  gint32 trades[PLAN_N_TRADES]; /* by kind: exchanges of virtual stages */
  gint32 exchanged;             /* the last exchange of the tensor-parallel group */
  gint32 sent_rows;             /* the last collective on rows of experts */
} PlanLowerEvents;

/* Rows of experts moved by eager ops: the mask of tokens by experts, transposed and sorted; work
 * space of the sort; the sorted order, where no value keeps it; the probabilities, transposed; the
 * lists of indices by which gradients of probabilities are put back. */
typedef struct
{
  gint32 mask, sorted, work, order, probs, put;
} PlanLowerMoves;

/* Experts one after the other. The first of consecutive arrays, one for each expert: up, act, din.
 * One array: out, all outputs before they are joined; dup and dact, gradients of one expert. */
typedef struct
{
  gint32 up, act, out, dup, dact, din;
} PlanLowerSequential;

/* The router and experts. */
typedef struct
{
  gint32 scores, dscores;           /* router's scores (logits) and their gradient */
  gint32 wide_tokens, dwide_tokens; /* its input widened to its format, and the gradient of that */
  /* Rows in fp32 to which experts' biases are added, or that probabilities multiply; gradient of
   * the shared experts' score. */
  gint32 fp32_rows[3], bias_rows, dgate, work, dprobs;
  gint32 counts;         /* by expert, of the `counted` tokens that several ranks have parts of */
  gint64 counted;        /* 0: there are none */
  gint32 balance, loads; /* of all layers: routers' biases, and this step's tokens by expert */
  PlanLowerMoves moves;
  PlanLowerSequential sequential;
} PlanLowerExperts;

/* Attention over a context-parallel group: what travels round the ring, and parts to be joined. */
typedef struct
{
  gint32 kv, dkv, dkv_part, dq_part, attn_part, lse_part, kv_here, dkv_here;
} PlanLowerContext;

/* One gather of all weights at once (nanotron): this rank's part, all parts, what it writes. */
typedef struct
{
  gint32 sent, parts, landed;
} PlanLowerFlat;

/* Quantising the weights of a kind of bucket after the optimizer's step: shards in the format of
 * activations, workspace, largest magnitudes, and the scales. */
typedef struct
{
  gint32 unrounded, work, amax, scales;
  gint64 magnitudes; /* of one layer */
} PlanLowerQuantised;

/* Delayed scaling: scales, histories, and largest magnitudes of this step, of all sites. Without it
 * `largest`: that of what is quantised next, where the op that makes it finds it. */
typedef struct
{
  gint32 scales, history, amax, largest;
} PlanLowerQuantizers;

G_END_DECLS
