/* PlanLayerBuilder: how a layer's graph is built, node by node. */
#pragma once
#include "planner/graph/layer-graph.h"
G_BEGIN_DECLS

/* What building a layer looks at. */
typedef struct
{
  PlanLayerGraph *net;
  const PlanSizes *sizes;
  const PlanModel *model;
  gint64 tp;
  gboolean splits;      /* sequence parallel */
  gboolean fuses_norms; /* norms write the format of products */
  gboolean drops;       /* a share of what branches add */
  gboolean keeps_gate, quantises_on_use, compiles, keeps_gathered, pairs_keys, maps_count;
  PlanValueId shared, shared_kept; /* what products behind a norm of both branches read */
  PlanValueId probs, routes;       /* what the router said, as far as experts have room for it */
  gint64 ep, etp, dispatcher;      /* which no library is where experts are not parallel */
} PlanLayerBuilder;

/* The size and format of a value. */
void plan_layer_define (PlanLayerGraph *self, PlanValueId id, gint64 elements, PlanDtype dtype);

/* A node that reads `in` and makes `out`, and has nothing else yet. */
PlanNode *plan_layer_add (PlanLayerGraph *self, PlanNodeKind kind, PlanModule module,
                          PlanValueId in, PlanValueId out);

void plan_layer_add_norm (PlanLayerBuilder *b, PlanModule module, PlanValueId in, PlanValueId out,
                          PlanValueId stats, PlanTensorRole weight, PlanTensorRole bias,
                          PlanTensorRole feeds);

/* What products read of `in`: quantised where they are, and gathered where its tokens are split;
 * returns that, and what their weights' gradients read. `v` are the values for the steps. */
PlanValueId plan_layer_add_product_input (PlanLayerBuilder *b, PlanModule module, PlanValueId in,
                                          const PlanValueId *v, PlanTensorRole feeds, gint64 width,
                                          PlanValueId *out_kept);

void plan_layer_add_linear (PlanLayerBuilder *b, PlanModule module, PlanValueId in,
                            PlanValueId kept, PlanValueId out, PlanTensorRole weight,
                            PlanTensorRole bias, gint64 cols, gint64 depth);

/* `in` in the format of products as `out`, transposed as `col`; which of them the forward product
 * reads is returned, which the backward one is stored. Both are `in` where nothing is quantised. */
PlanValueId plan_layer_add_quantize (PlanLayerBuilder *b, PlanModule module, PlanValueId in,
                                     PlanValueId out, PlanValueId col, PlanTensorRole feeds,
                                     gint64 rows, gint64 cols, PlanValueId *out_kept);

/* The same and the linear layer behind it. */
void plan_layer_add_quantised_linear (PlanLayerBuilder *b, PlanModule module, PlanValueId in,
                                      PlanValueId q, PlanValueId col, PlanValueId out,
                                      PlanTensorRole weight, gint64 cols, gint64 depth);

/* The sum over the tensor-parallel group, then the norm behind the branch where there is one. */
PlanValueId plan_layer_add_branch_end (PlanLayerBuilder *b, PlanModule module, PlanValueId branch,
                                       PlanValueId sum, PlanValueId post, PlanValueId stats,
                                       PlanTensorRole weight);

/* The branch with experts in place of one network, from its norm on; returns what it adds. */
PlanValueId plan_layer_add_experts_branch (PlanLayerBuilder *b, PlanValueId in);

G_END_DECLS
