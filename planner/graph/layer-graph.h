/* PlanLayerGraph: one kind of layer of a model as a graph, with the sizes that one rank sees.
 *
 * Nodes are in the order in which the forward pass runs them; the backward pass runs them in
 * reverse. A value is what a node makes for others. Which values the backward pass needs follows
 * from the nodes, so lowering can keep or recompute them without knowing what a layer is. */
#pragma once
#include "planner/graph/layer-nodes.h"
#include "planner/graph/value-set.h"
#include "planner/model/layer-kinds.h"
#include "planner/plan/plan.h"
#include "planner/plan/stack.h"
#include "planner/schedule/op.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  guint64 elements; /* 0: this kind of layer has no such value */
  PlanDtype dtype;
} PlanValue;

typedef struct
{
  PlanNodeKind kind;
  PlanModule module;
  PlanValueId in, other, out, stats, col;
  PlanValueId kept;  /* what the backward pass reads in place of `in` */
  PlanValueId saved; /* the part of a GEMM's output that is kept though the rest is recomputed */
  gint64 saved_cols;
  PlanValueId map;    /* the map by which rows are moved, where another node made it */
  PlanValueId places; /* the same for probabilities, where rows are moved op by op */
  PlanValueId latent; /* LATENT_ROPE: the value that holds the part of keys which all heads share;
                         LATENT_ATTENTION: the heads' values */
  gint64 entries, groups; /* entries of a map; experts by which it sorts rows, or whose rows it
                             quantises and multiplies by themselves */
  gint64 pieces;          /* runs of rows that are split and joined in another order; 0: a map */
  gint64 near,
      far; /* rows sent over links and over the network, where each token goes to a rank once */
  PlanValueSet holds;          /* values freed only behind this node, which it does not read */
  gboolean is_bare;            /* it moves rows alone, and no probabilities */
  gboolean is_first_permute;   /* it sorts this rank's tokens as the router says */
  gboolean is_eager;           /* rows are moved by a framework's ops, one by one */
  gboolean goes_beside;        /* the nodes of shared experts just before it go beside it */
  gboolean selects_by_mask;    /* probabilities are selected by a mask, and both are kept */
  gboolean waits;              /* the host waits here for the numbers of rows */
  gboolean waits_before;       /* or before it issues this node */
  gboolean drops;              /* `other` goes through dropout */
  gboolean is_lazy;            /* only the backward pass needs it */
  gboolean is_cheap;           /* its output is made again and not kept */
  gboolean is_col_lazy;        /* only the backward pass needs `col` */
  PlanTensorRole weight, bias; /* PLAN_N_TENSORS: none */
  PlanTensorRole feeds;        /* the weight whose GEMM reads what is quantised here; else none */
  gint64 rows, cols, depth; /* of `out` [rows, cols]; `depth` is a GEMM's inner dimension; `cols` of
                               communication is this rank's share */
  PlanValueSet reads, makes; /* in the forward pass */
  PlanValueSet needs;        /* read by its backward pass */
} PlanNode;

typedef guint64 PlanNodeSet; /* a bit per node */

#define PLAN_MAX_NODES 64
typedef struct
{
  PlanValue values[PLAN_N_VALUES];
  PlanNode nodes[PLAN_MAX_NODES];
  guint n_nodes;
  gint64 keys; /* twice the mean number of tokens that a query sees */
  /* What a CUDA graph holds of it in each pass; what that makes for other nodes, in memory that
   * stays until the graph's backward pass. */
  PlanNodeSet captured;
  PlanValueSet outside;
} PlanLayerGraph;

/* What is the same in all layers of a model: sizes on one rank, and number formats. */
typedef struct
{
  gint64 experts, expert_ffn, shared_ffn; /* on this rank */
  gint64 sent_rows, expert_rows; /* rows that it sends to experts; rows that its own experts read */
  gint64 row_multiple;           /* rows of each expert begin at a multiple of it; 1: at any row */
  gint64 empty_rows;             /* of `expert_rows`, rows of zeros that these multiples may take */
  gint64 capacity;               /* tokens of each rank that an expert takes at most; 0: all */
  gboolean pads;                 /* an expert always takes that many, padded */
  gint64 came_rows, near_rows,
      far_rows;      /* of libraries that send each token once to a rank (see PlanNode) */
  PlanDtype router;  /* format of the router's scores */
  gint64 rows;       /* tokens of a micro batch on this rank */
  gint64 split_rows; /* of those, tokens that this rank holds outside the tensor-parallel parts */
  gint64 heads, kv_heads, head_dim, ffn, vocab; /* on this rank */
  PlanDelta delta;                              /* heads of the delta rule on this rank */
  PlanSsm ssm;                                  /* heads and groups of state spaces on this rank */
  gint64 key_heads; /* key heads that attention reads: kv_heads, or heads where keys are repeated */
  PlanDtype compute;    /* format of activations */
  PlanDtype linear;     /* format of the GEMMs of layers */
  PlanDtype weights;    /* format in which those read weights */
  gboolean quantises;   /* `linear` is not `compute` */
  gboolean per_op;      /* recompute decides op by op, and keeps what single ops wrote */
  PlanSac sac;          /* which, on this device; PLAN_SAC_CUDNN: its attention */
  gboolean has_columns; /* GEMMs over rows read transposed copies */
} PlanSizes;

/* The graphs of all kinds of layer. A value has the same size in every graph that has it. */
typedef struct
{
  PlanSizes sizes;
  const PlanLayerGraph *of[PLAN_N_LAYER_KINDS]; /* without nodes: the model has no such layers */
  PlanValue values[PLAN_N_VALUES];
  gint64 layers[PLAN_N_LAYER_KINDS]; /* of each kind */
} PlanLayerGraphs;

/* Builds the graphs for a resolved plan. */
void plan_layer_graphs_init (PlanLayerGraphs *self, const PlanModel *model, const Plan *plan,
                             const PlanStack *stack, const PlanCluster *cluster);
void plan_layer_graphs_clear (PlanLayerGraphs *self);

static inline PlanNodeSet
plan_node_bit (guint node)
{
  return (PlanNodeSet)1 << node;
}

/* Whether a node is a GEMM with a layer's weights. */
gboolean plan_node_is_product (const PlanNode *node);

/* Whether recompute of the node's module also drops the module's output, and makes it again when
 * the next module's backward pass needs it (Megatron-LM's CheckpointWithoutOutput). */
gboolean plan_node_discards (const PlanNode *node);

/* Whether the backward pass recomputes what this node makes. `is_in_block`: its layer is one of the
 * first recompute_layers. */
gboolean plan_node_is_again (const PlanSizes *sizes, const PlanNode *node, const Plan *plan,
                             gboolean is_in_block);

/* The values of a layer that the forward pass leaves for the backward passes of its first `n`
 * nodes: those that they read, and those from which nodes that run `again` make what they read. */
PlanValueSet plan_layer_graph_kept (const PlanLayerGraph *self, const PlanSizes *sizes,
                                    PlanNodeSet again, guint n);

G_END_DECLS
