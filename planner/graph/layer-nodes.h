/* PlanNodeKind: what the nodes of a layer's graph do, in terms of its values; and which part of the
 * layer one belongs to. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

typedef enum
{
  PLAN_NODE_NORM,        /* in -> out, stats */
  PLAN_NODE_QUANTIZE,    /* in -> out, col */
  PLAN_NODE_TRANSPOSE,   /* in -> out */
  PLAN_NODE_GATHER_SEQ,  /* in -> out: every rank's tokens */
  PLAN_NODE_COPY_TP,     /* in, in place and untouched: its gradient is summed */
  PLAN_NODE_LINEAR,      /* in -> out; its weight's gradient reads `kept` */
  PLAN_NODE_HEAD_NORM,   /* in -> out, stats */
  PLAN_NODE_ROPE,        /* in, in place */
  PLAN_NODE_REPEAT,      /* in -> out: keys and values once per query head */
  PLAN_NODE_ATTENTION,   /* in -> out, stats */
  PLAN_NODE_REDUCE_TP,   /* in -> out: the sum over ranks; in place where tokens are not split */
  PLAN_NODE_ACTIVATE,    /* in -> out; stats: the activated gate, where it is kept */
  PLAN_NODE_ADD,         /* in + other -> out; stats: what of `other` is not dropped */
  PLAN_NODE_LATENT_ROPE, /* in (queries) in place; other, latent -> out (keys), col (values) */
  PLAN_NODE_LATENT_ATTENTION, /* in, keys, values -> out, stats */
  PLAN_NODE_ROUTE,            /* in -> out: each token's experts and their shares; stats, col */
  PLAN_NODE_DROP,             /* in -> out, map -> stats: what each expert has room for */
  PLAN_NODE_PERMUTE,          /* in -> out, rows sorted by expert; stats: the map */
  PLAN_NODE_SEND_ROWS,        /* in -> out: to the ranks of their experts, or back */
  PLAN_NODE_GATHER_ROWS,      /* in -> out: those of all ranks with a part of the same experts */
  PLAN_NODE_REDUCE_ROWS,      /* in -> out: the sum over these ranks, of each its own rows */
  PLAN_NODE_GATHER_TOKENS,    /* in -> out, other -> col, map -> stats: of all ranks */
  PLAN_NODE_OWN_EXPERTS,      /* in -> out, map -> stats: of this rank's experts alone */
  PLAN_NODE_EXPERT_LINEAR,    /* in -> out, a product for each expert */
  PLAN_NODE_EXPERT_ACTIVATE,  /* in, shares -> out */
  PLAN_NODE_UNPERMUTE,        /* in -> out by the same map */
  PLAN_NODE_GATE,             /* in, times a score of `other` -> out; stats: that score */
} PlanNodeKind;

/* Which part of a layer a node belongs to: what selective recomputing names. */
typedef enum
{
  PLAN_MODULE_OTHER,
  PLAN_MODULE_CORE_ATTN,
  PLAN_MODULE_MLP,
  PLAN_MODULE_LATENT_UP, /* latent attention's up projections, and what they make */
  PLAN_MODULE_NORM,      /* a norm that is a module of its own */
  PLAN_MODULE_EXPERTS,   /* the router, and the way to the experts and back */
  PLAN_MODULE_EXPERT_ACT,
  PLAN_MODULE_SHARED,
} PlanModule;

G_END_DECLS
