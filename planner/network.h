/* PlanNetwork: one layer of a model as a graph, with the sizes that one rank sees.
 *
 * Nodes stand in the order in which the forward pass runs them; the backward pass goes through them
 * in reverse. A value is what a node leaves for others; which of them the backward pass needs
 * follows from the nodes: lowering keeps or computes again what it must, and knows not what a layer
 * is. */
#pragma once
#include "planner/model.h"
#include "planner/op.h"
#include "planner/plan.h"
#include "planner/stack.h"
#include <glib.h>
G_BEGIN_DECLS

/* X (ID, "name"): values of a layer. In place of the first, the output of the layer before. */
#define PLAN_VALUE_LIST(X) \
  X (X, "x") \
  X (NORM1, "norm1") \
  X (NORM1_Q, "norm1.q") \
  X (NORM1_COL, "norm1.col") \
  X (STATS1, "rstd1") \
  X (NORM1_FULL, "norm1.full") \
  X (NORM1_FULL_COL, "norm1.full.col") \
  X (QKV, "qkv") \
  X (QKV_SAVED, "qkv.saved") \
  X (HEADS, "heads") \
  X (HEAD_STATS, "rstd.heads") \
  X (WIDE, "qkv.wide") \
  X (ATTN, "attn") \
  X (LSE, "lse") \
  X (ATTN_Q, "attn.q") \
  X (ATTN_COL, "attn.col") \
  X (PROJ, "proj") \
  X (PROJ_SUM, "proj.sum") \
  X (POST1, "post1") \
  X (POST1_STATS, "rstd.post1") \
  X (MASK1, "mask1") \
  X (HIDDEN2, "hidden2") \
  X (NORM2, "norm2") \
  X (NORM2_Q, "norm2.q") \
  X (NORM2_COL, "norm2.col") \
  X (STATS2, "rstd2") \
  X (NORM2_FULL, "norm2.full") \
  X (NORM2_FULL_COL, "norm2.full.col") \
  X (UP, "gate_up") \
  X (UP_SAVED, "gate_up.saved") \
  X (GATE, "gate") \
  X (ACT, "act") \
  X (ACT_Q, "act.q") \
  X (ACT_COL, "act.col") \
  X (DOWN, "down") \
  X (DOWN_SAVED, "down.saved") \
  X (DOWN_SUM, "down.sum") \
  X (POST2, "post2") \
  X (POST2_STATS, "rstd.post2") \
  X (MASK2, "mask2") \
  X (OUT, "x") /* x of the next layer */

typedef enum
{
#define X(id, name) PLAN_VALUE_##id,
  PLAN_VALUE_LIST (X)
#undef X
      PLAN_N_VALUES,
  PLAN_NO_VALUE = PLAN_N_VALUES
} PlanValueId;

typedef struct
{
  guint64 elements; /* 0: this network has no such value */
  PlanDtype dtype;
} PlanValue;

typedef enum
{
  PLAN_NODE_NORM,       /* in -> out, stats */
  PLAN_NODE_QUANTIZE,   /* in -> out, col */
  PLAN_NODE_TRANSPOSE,  /* in -> out */
  PLAN_NODE_GATHER_SEQ, /* in -> out: every rank's tokens */
  PLAN_NODE_COPY_TP,    /* in, in place and untouched: its gradient is summed */
  PLAN_NODE_LINEAR,     /* in -> out; its weight's gradient reads `kept` */
  PLAN_NODE_HEAD_NORM,  /* in -> out, stats */
  PLAN_NODE_ROPE,       /* in, in place */
  PLAN_NODE_REPEAT,     /* in -> out: keys and values once per query head */
  PLAN_NODE_ATTENTION,  /* in -> out, stats */
  PLAN_NODE_REDUCE_TP,  /* in -> out: the sum over ranks; in place where tokens are not split */
  PLAN_NODE_ACTIVATE,   /* in -> out; stats: the activated gate, where it is kept */
  PLAN_NODE_ADD,        /* in + other -> out; stats: what of `other` is not dropped */
} PlanNodeKind;

/* Which part of a layer a node belongs to: what selective recomputing names. */
typedef enum
{
  PLAN_MODULE_OTHER,
  PLAN_MODULE_CORE_ATTN,
  PLAN_MODULE_MLP,
} PlanModule;

typedef struct
{
  PlanNodeKind kind;
  PlanModule module;
  PlanValueId in, other, out, stats, col;
  PlanValueId kept;  /* what the backward pass reads in place of `in` */
  PlanValueId saved; /* the part of a product that stays though the rest is made again */
  gint64 saved_cols;
  gboolean is_lazy;            /* only the backward pass wants it */
  gboolean is_cheap;           /* its output is made again rather than kept */
  PlanTensorRole weight, bias; /* PLAN_N_TENSORS: none */
  PlanTensorRole feeds;        /* whose product reads what is quantised here; else none */
  gint64 rows, cols, depth;    /* of `out` [rows, cols]; of a product, its inner dimension; of
                                  communication, `cols` is this rank's share */
} PlanNode;

#define PLAN_MAX_NODES 32
typedef struct
{
  PlanValue values[PLAN_N_VALUES];
  PlanNode nodes[PLAN_MAX_NODES];
  guint n_nodes;
  gint64 rows;       /* tokens of a micro batch on this rank */
  gint64 split_rows; /* of them, those it holds between the tensor-parallel parts */
  gint64 heads, kv_heads, head_dim, ffn, vocab; /* of this rank */
  gint64 key_heads; /* that attention reads: kv_heads, or heads where they are repeated */
  gint64 keys; /* twice the tokens that a query sees, on average: seq where none is out of sight */
  PlanDtype compute;    /* format of activations */
  PlanDtype linear;     /* format in which products of layers run */
  gboolean quantises;   /* it is another */
  gboolean per_op;      /* what recomputing keeps is what single ops left, not what others read */
  gboolean has_columns; /* products over rows read transposed copies */
} PlanNetwork;

/* The plan must be resolved. */
void plan_network_init (PlanNetwork *self, const PlanModel *model, const Plan *plan,
                        const PlanStack *stack, const PlanCluster *cluster);

const char *plan_value_name (PlanValueId id);

/* Whether the backward pass makes what this node of that layer makes again. */
gboolean plan_node_is_again (const PlanNode *node, const Plan *plan, gint64 layer);

/* What the backward pass of a node reads: at most 3 values; returns how many. */
guint plan_node_needs (const PlanNode *node, PlanValueId *out_values);

/* What it leaves: at most 4 values; what its forward pass reads: at most 2. */
guint plan_node_outputs (const PlanNode *node, PlanValueId *out_values);
guint plan_node_inputs (const PlanNode *node, PlanValueId *out_values);

G_END_DECLS
