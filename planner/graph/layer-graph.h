/* PlanLayerGraph: one kind of layer of a model as a graph, with the sizes that one rank sees.
 *
 * Nodes stand in the order in which the forward pass runs them; the backward pass goes through them
 * in reverse. A value is what a node leaves for others; which of them the backward pass needs
 * follows from the nodes: lowering keeps or computes again what it must, and knows not what a layer
 * is. */
#pragma once
#include "planner/graph/layer-nodes.h"
#include "planner/graph/layer-values.h"
#include "planner/model/layer-kinds.h"
#include "planner/plan/plan.h"
#include "planner/plan/stack.h"
#include "planner/schedule/op.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  guint64 elements; /* 0: this network has no such value */
  PlanDtype dtype;
} PlanValue;

typedef struct
{
  PlanNodeKind kind;
  PlanModule module;
  PlanValueId in, other, out, stats, col;
  PlanValueId kept;  /* what the backward pass reads in place of `in` */
  PlanValueId saved; /* the part of a product that stays though the rest is made again */
  gint64 saved_cols;
  PlanValueId map;             /* that rows are moved by, where another node made it */
  PlanValueId latent;          /* what latent keys and values, and their common part, come of */
  gint64 entries, groups;      /* of a map; experts that it sorts rows by */
  gint64 near, far;            /* rows that go over the link and the network, once to each rank */
  PlanValueSet holds;          /* what is not given back before, though nothing reads it */
  gboolean is_first_permute;   /* of tokens that are here, by what the router says */
  gboolean selects_shares;     /* by a mask, which stays with what they are of */
  gboolean waits;              /* the host waits here for numbers of rows */
  gboolean waits_before;       /* or before it issues this */
  gboolean is_lazy;            /* only the backward pass wants it */
  gboolean is_cheap;           /* its output is made again rather than kept */
  PlanTensorRole weight, bias; /* PLAN_N_TENSORS: none */
  PlanTensorRole feeds;        /* whose product reads what is quantised here; else none */
  gint64 rows, cols, depth;    /* of `out` [rows, cols]; of a product, its inner dimension; of
                                  communication, `cols` is this rank's share */
  PlanValueSet reads, makes;   /* in the forward pass */
  PlanValueSet needs;          /* what the backward pass reads of it */
} PlanNode;

typedef guint64 PlanNodeSet; /* a bit per node */

#define PLAN_MAX_NODES 64
typedef struct
{
  PlanValue values[PLAN_N_VALUES];
  PlanNode nodes[PLAN_MAX_NODES];
  guint n_nodes; /* 0: the model has no layer of this kind */
  gint64 keys;   /* twice the tokens that a query sees, on average: seq where all before it are */
} PlanLayerGraph;

/* What is the same in all layers: sizes of one rank, and number formats. */
typedef struct
{
  gint64 experts, expert_ffn, shared_ffn; /* of this rank */
  gint64 sent_rows, expert_rows;          /* rows that it sends to experts; that come to its own */
  gint64 capacity;                        /* of an expert, of each rank's tokens; 0: all */
  gboolean pads;                          /* it takes just as many */
  gint64 came_rows, near_rows, far_rows;  /* where each token comes once to a rank (PlanNode) */
  PlanDtype router;                       /* format of the router's scores */
  gint64 rows;                            /* tokens of a micro batch on this rank */
  gint64 split_rows; /* of them, those it holds between the tensor-parallel parts */
  gint64 heads, kv_heads, head_dim, ffn, vocab; /* of this rank */
  gint64 key_heads;   /* that attention reads: kv_heads, or heads where they are repeated */
  PlanDtype compute;  /* format of activations */
  PlanDtype linear;   /* format in which products of layers run */
  PlanDtype weights;  /* and in which they read weights */
  gboolean quantises; /* it is another */
  gboolean per_op;    /* what recomputing keeps is what single ops left, not what others read */
  gboolean repeats_attention; /* and its list of ops does not have this device's attention */
  gboolean has_columns;       /* products over rows read transposed copies */
} PlanSizes;

/* Graphs of all kinds of layer, by kind. A value has the same size in each that has it. */
typedef struct
{
  PlanSizes sizes;
  PlanLayerGraph of[PLAN_N_LAYER_KINDS];
  PlanValue values[PLAN_N_VALUES];
  gint64 layers[PLAN_N_LAYER_KINDS]; /* of each kind */
} PlanLayerGraphs;

/* The plan must be resolved. */
void plan_layer_graphs_init (PlanLayerGraphs *self, const PlanModel *model, const Plan *plan,
                             const PlanStack *stack, const PlanCluster *cluster);

static inline PlanNodeSet
plan_node_bit (guint node)
{
  return (PlanNodeSet)1 << node;
}

/* Whether it multiplies by a layer's weights, in the format of products. */
gboolean plan_node_is_product (const PlanNode *node);

/* Whether recomputing that node's module gives up even what the next module reads, and makes it
 * when that one wants it (Megatron-LM's CheckpointWithoutOutput). */
gboolean plan_node_discards (const PlanNode *node);

/* Whether the backward pass makes again what this node of a layer makes; `is_in_block`: of one of
 * the first recompute_layers. */
gboolean plan_node_is_again (const PlanSizes *sizes, const PlanNode *node, const Plan *plan,
                             gboolean is_in_block);

G_END_DECLS
