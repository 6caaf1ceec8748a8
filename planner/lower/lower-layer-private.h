/* PlanLayer and PlanLayerPass: the state while a layer's graph is lowered, and what its forward and
 * backward pass share. */
#pragma once
#include "planner/lower/lower-emit.h"
#include "planner/lower/lower-layer.h"
G_BEGIN_DECLS

/* One layer while it is lowered. */
typedef struct
{
  PlanLower *lower;
  const PlanLayerGraph *net;
  const PlanSizes *sizes;
  PlanLowerUnit unit;
  PlanValueSet live, stays;  /* stays: what the forward pass, or recompute, makes for others */
  gint8 slot[PLAN_N_VALUES]; /* by value: index of its gradient in `gradients`; -1: none yet */
  struct
  {
    PlanRef ref;
    guint holders;
  } gradients[2 * PLAN_N_VALUES];
  guint n_gradients;
  gint64 dims[PLAN_MAX_DIMS];
  gboolean is_replay;     /* recompute: products make the columns that were not saved */
  const PlanNode *beside; /* a gather that runs beside the next product */
  const PlanNode *ready;  /* a product whose output's gradient was made quantised */
  const PlanNode *summed; /* a REDUCE_TP whose gradient the product before it gathers in pieces */
  PlanNodeSet made;       /* nodes whose output another node's ops have made already */
  PlanNodeSet done_backward; /* nodes whose backward pass ran beside a product, and is over */
  gboolean delays;           /* ep_delay_wgrad: gradients of weights are made later */
  PlanNodeSet delayed;       /* nodes whose weights' gradients are still to be made */
  PlanRef delayed_of[PLAN_MAX_NODES]; /* by node: the gradient of its output, kept for that */
  PlanValueSet held;                  /* the values that are kept for that */
  guint8 graph; /* PlanGraphPlace of its CUDA graph's next op; NONE: it has not been begun */
} PlanLayer;

/* A pass through a layer that is lowered part by part, each part up to a given node. */
typedef struct
{
  PlanLayer layer;
  PlanLowerKeep keep;
  guint at; /* forward: nodes done; backward: nodes left */
  /* Values that stay: forward, those needed after node i; backward, those needed before node i. */
  PlanValueSet needs[PLAN_MAX_NODES + 1];
} PlanLayerPass;

void plan_layer_begin_forward (PlanLayerPass *self, PlanLower *lower, PlanLowerUnit unit,
                               PlanLowerKeep keep);
void plan_layer_go_forward (PlanLayerPass *self, guint end);
void plan_layer_begin_backward (PlanLayerPass *self, PlanLower *lower, PlanLowerUnit unit,
                                PlanLowerKeep keep);
void plan_layer_go_backward (PlanLayerPass *self, guint end);
void plan_layer_end_backward (PlanLayerPass *self);

/* Makes compute wait for the rows that are sent beside it, and frees what they were sent from. */
void plan_layer_meet_rows (PlanLayer *self);

/* Around what is lowered of a node: within its layer's CUDA graph, if that has the node. Before the
 * graph's first one what it reads is copied to where it reads it; `is_backward`: gradients. */
void plan_layer_enter (PlanLayer *self, guint node, gboolean is_backward);
void plan_layer_leave (PlanLayer *self, guint node, gboolean is_backward);

void plan_layer_catch_up (PlanLayerPass *self); /* makes the gradients of weights then */
/* Makes the gradient of a product's weights, or delays it. `of`: its output's, as read here. */
void plan_layer_weigh (PlanLayer *self, const PlanNode *node, PlanRef of);
gboolean plan_layer_delays (PlanLayer *self, const PlanNode *node, PlanRef of); /* and notes it */
void plan_layer_weigh_experts (PlanLayer *self, const PlanNode *node, PlanRef of);
PlanRef plan_layer_value (const PlanLayer *self, PlanValueId id);
void plan_layer_take (PlanLayer *self, PlanValueId id); /* does nothing if it has been taken */
void plan_layer_give (PlanLayer *self, PlanValueSet values);
/* Lowers what mixes tokens beside plain attention; FALSE: the node is none of that. */
gboolean plan_layer_mix (PlanLayer *self, const PlanNode *node);
gboolean plan_layer_mix_backward (PlanLayer *self, const PlanNode *node);
/* Lowers a node: an activation, of experts, or of rows that ranks share. */
void plan_layer_activate (PlanLayer *self, const PlanNode *node);
void plan_layer_activate_backward (PlanLayer *self, const PlanNode *node);
void plan_layer_experts (PlanLayer *self, const PlanNode *node);
void plan_layer_experts_backward (PlanLayer *self, const PlanNode *node);
void plan_layer_joined_rows (PlanLayer *self, const PlanNode *node);
void plan_layer_joined_rows_backward (PlanLayer *self, const PlanNode *node);
void plan_layer_scale_rows (PlanLayer *self, const PlanNode *node);
void plan_layer_scale_rows_backward (PlanLayer *self, const PlanNode *node);
void plan_layer_move_eagerly (PlanLayer *self, const PlanNode *node);
void plan_layer_move_eagerly_backward (PlanLayer *self, const PlanNode *node);

/* Declares room for biases of experts and for scores that a framework's ops multiply rows by. */
void plan_lower_declare_wide_rows (PlanLower *self);
/* Our kernels add experts' biases, and make their gradients. `counts`: rows by expert. */
gboolean plan_lower_adds_own_bias (const PlanLower *self);
void plan_layer_add_expert_bias (PlanLayer *self, const PlanNode *node, PlanRef counts);
void plan_layer_expert_bias_backward (PlanLayer *self, const PlanNode *node, PlanRef counts);

/* Whether experts go one after the other; declares their buffers. */
gboolean plan_lower_is_sequential (const PlanLower *self);
void plan_lower_declare_sequential (PlanLower *self);
/* The forward pass of one node of such experts; at the last one, the backward pass of all. */
void plan_layer_sequential (PlanLayer *self, const PlanNode *node);
void plan_layer_sequential_backward (PlanLayer *self, const PlanNode *down);
/* The gradient of one expert's weights of a node. The first expert must come last, as it completes
 * the gradient of all. refs: dout, in. */
void plan_lower_one_expert_weight_gradient (PlanLower *self, const PlanNode *node,
                                            PlanLowerUnit unit, gint64 expert, gint64 rows,
                                            const PlanRef *refs);

/* Allocates or frees a value that each such expert keeps for itself. FALSE: it is no such value. */
gboolean plan_layer_take_each (PlanLayer *self, PlanValueId id, gboolean gives);

/* The gradient of a value, which must exist. Several values may hold the same buffer: drop_gradient
 * ends a value's hold, and the last one frees the buffer. take_share allocates a buffer for one
 * node's share of a value's gradient, add_share adds it to the shares that are there. */
PlanRef plan_layer_gradient (const PlanLayer *self, PlanValueId id);
void plan_layer_drop_gradient (PlanLayer *self, PlanValueId id);
PlanRef plan_layer_take_share (PlanLayer *self, PlanValueId id);
void plan_layer_add_share (PlanLayer *self, PlanValueId id, PlanRef share);

/* The gradient of a product's output, as GEMMs of the input's (row) and the weight's (col) read it;
 * quantises, rows of each expert by themselves where they are counted (as plan_lower_quantise). */
void plan_layer_quantise_gradient (PlanLayer *self, const PlanNode *node, PlanRef *out_row,
                                   PlanRef *out_col);
void plan_layer_quantise_rows (PlanLayer *self, const PlanNode *node, const PlanRef *refs);
void plan_lower_sink (PlanLower *self, PlanRef out, PlanRef lse, PlanLowerUnit unit);
void plan_lower_sink_backward (PlanLower *self, PlanRef dout, PlanRef out, PlanRef lse,
                               PlanLowerUnit unit);
void plan_layer_rope (PlanLayer *self, PlanRef qkv, gint64 inverse);
const gint64 *plan_layer_head_dims (PlanLayer *self);
const gint64 *plan_layer_norm_dims (PlanLayer *self);
gboolean plan_layer_is_swiglu (const PlanModel *model);
gboolean plan_layer_makes_quantised (const PlanLayer *self); /* swiglu and its gradient */

/* The nodes to be run to make these values from those that are live. */
PlanNodeSet plan_layer_nodes_towards (const PlanLayer *self, PlanValueSet values);

/* Runs nodes again (recompute), and frees what they made unless the rest of them read it or it is
 * `needed` by the backward passes to come. */
void plan_layer_run_again (PlanLayer *self, PlanNodeSet nodes, PlanValueSet needed);

/* Whether the backward pass exchanges sequences beside GEMMs. The last node to be run again for a
 * product, if it is a gather that only the weight's gradient reads, so that it can run beside the
 * GEMM of the input's gradient. NULL: it is not. */
gboolean plan_layer_exchanges_beside (const PlanLayer *self);
const PlanNode *plan_layer_gathers_beside (const PlanLayer *self, const PlanNode *linear,
                                           PlanNodeSet again);

/* The nodes that checkpointing runs again at node `last`, if a recomputed part of the layer ends
 * there: all nodes of that part, also those whose output nobody reads. */
PlanNodeSet plan_layer_checkpointed (const PlanLayerGraph *net, PlanNodeSet again, guint last);

G_END_DECLS
