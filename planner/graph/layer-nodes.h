/* PlanNodeKind: what each kind of node of a layer graph does, in terms of the members of PlanNode.
 * PlanModule: which part of the layer a node belongs to. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

typedef enum
{
  PLAN_NODE_NORM,        /* in -> out, stats */
  PLAN_NODE_QUANTIZE,    /* in -> out, col */
  PLAN_NODE_TRANSPOSE,   /* in -> out */
  PLAN_NODE_GATHER_SEQ,  /* in -> out: all-gather of every rank's tokens */
  PLAN_NODE_GATHER_KEYS, /* the part of `in` that all key heads have in common -> out, the same */
  PLAN_NODE_COPY_TP,     /* `in`, unchanged: its gradient is summed over ranks */
  PLAN_NODE_LINEAR,      /* in -> out; its weight's gradient reads `kept` */
  PLAN_NODE_HEAD_NORM,   /* in -> out, stats */
  PLAN_NODE_ROPE,        /* in, in place */
  PLAN_NODE_REPEAT,      /* in -> out: each key and value head repeated for its query heads */
  PLAN_NODE_ATTENTION,   /* in -> out, stats */
  PLAN_NODE_REDUCE_TP,   /* in -> out: the sum over ranks; in place where tokens are not split */
  PLAN_NODE_ACTIVATE,    /* in -> out; stats: the activated gate, where it is kept separately */
  PLAN_NODE_ADD,         /* in + other -> out; stats: mask of dropout of `other`, if kept */
  PLAN_NODE_SPLIT,       /* in -> out, col: the columns of both */
  PLAN_NODE_SINK,        /* in weighed by its statistics (other) and learned scores -> out */
  PLAN_NODE_GATE_HEADS,  /* in times the sigmoid of `other` -> out */
  PLAN_NODE_DELTA_CONV,  /* in -> out: queries, keys and values of the delta rule, convolved */
  PLAN_NODE_DELTA_KEYS, /* in -> out: queries and keys normed (col, stats), then repeated; values */
  PLAN_NODE_DELTA_GATES, /* in -> out: the output's gate; col: decays; stats: strengths */
  PLAN_NODE_DELTA_RULE,  /* in, decays, strengths -> out, stats; col: room to work in */
  PLAN_NODE_DELTA_NORM,  /* in, normed (col, stats), times SiLU of `other` -> out */
  PLAN_NODE_SSM_CONV,    /* in -> out: x, B and C of a state space, convolved */
  PLAN_NODE_SSM_SCAN,    /* in (convolved), other (all of the projection) -> out, gated, and stats,
                            ungated; col: room to work in */
  PLAN_NODE_GROUP_NORM,  /* in -> out, stats: a norm of each group of columns */
  PLAN_NODE_LATENT_ROPE, /* in (queries) in place; other, latent -> out (keys), col (values) */
  PLAN_NODE_LATENT_ATTENTION, /* in, keys, values -> out, stats */
  PLAN_NODE_ROUTE, /* in -> out: each token's probabilities; stats, col: saved scores, map */
  PLAN_NODE_DROP,  /* in -> out, map -> stats: without tokens that their experts have no room for */
  PLAN_NODE_PERMUTE,       /* in -> out, rows sorted by expert; stats: the map */
  PLAN_NODE_SEND_ROWS,     /* in -> out: all-to-all to the ranks of the experts, or back */
  PLAN_NODE_GATHER_ROWS,   /* in -> out: all-gather over ranks that split the same experts */
  PLAN_NODE_REDUCE_ROWS,   /* in -> out: reduce-scatter over those ranks */
  PLAN_NODE_GATHER_TOKENS, /* in -> out, other -> col, map -> stats: all-gather of all ranks' tokens
                            */
  PLAN_NODE_OWN_EXPERTS,   /* in -> out, map -> stats: the columns of this rank's experts */
  PLAN_NODE_SCALE_ROWS,    /* in times probabilities of rows -> out; stats: fp32 rows, if kept */
  PLAN_NODE_EXPERT_LINEAR, /* in -> out: one GEMM per expert */
  PLAN_NODE_EXPERT_ACTIVATE, /* in, probabilities (where these come in here) -> out; stats: as of
                                ACTIVATE */
  PLAN_NODE_UNPERMUTE,       /* in -> out: rows back in the order before PERMUTE */
  PLAN_NODE_GATE,            /* in times a score of `other` -> out; stats: that score */
} PlanNodeKind;

/* The part of a layer that a node belongs to; selective recompute names these. */
typedef enum
{
  PLAN_MODULE_OTHER,
  PLAN_MODULE_CORE_ATTN,
  PLAN_MODULE_MLP,
  PLAN_MODULE_LATENT_UP, /* latent attention's up projections, and everything made from them */
  PLAN_MODULE_NORM,      /* a norm that is a module by itself */
  PLAN_MODULE_EXPERTS,   /* router, dispatch and combine */
  PLAN_MODULE_EXPERT_ACT,
  PLAN_MODULE_SHARED,
} PlanModule;

G_END_DECLS
