/* What the two passes over a layer's graph share. */
#pragma once
#include "planner/lower/lower-emit.h"
#include "planner/lower/lower-layer.h"
G_BEGIN_DECLS

/* A layer while it is lowered. */
typedef struct
{
  PlanLower *lower;
  const PlanLayerGraph *net;
  const PlanSizes *sizes;
  PlanLowerUnit unit;
  PlanValueSet live;
  gint8 slot[PLAN_N_VALUES]; /* gradient of each value: index below; -1 none yet */
  struct
  {
    PlanRef ref;
    guint holders;
  } gradients[2 * PLAN_N_VALUES];
  guint n_gradients;
  gint64 dims[PLAN_MAX_DIMS];
  gboolean is_replay;     /* products whose parts were saved make only the rest */
  const PlanNode *beside; /* whose gather goes on beside the product that follows */
  const PlanNode *summed; /* whose sum's gradient is gathered piece by piece, for its product */
  PlanNodeSet is_made;    /* nodes that another one's product made */
  PlanNodeSet is_past;    /* nodes whose backward pass was made beside a product */
  gboolean delays;        /* gradients of weights wait */
  PlanNodeSet delayed;    /* those of these nodes */
  PlanRef delayed_of[PLAN_MAX_NODES]; /* what they read of the gradients of outputs */
  PlanValueSet held;                  /* and of values */
} PlanLayer;

/* A pass through a layer that goes on part by part. */
typedef struct
{
  PlanLayer layer;
  PlanLowerKeep keep;
  guint at;                               /* nodes that are done; backwards, that are left */
  PlanValueSet needs[PLAN_MAX_NODES + 1]; /* forwards, what is wanted behind each node; backwards,
                                             by those before each */
} PlanLayerPass;

void plan_layer_begin_forward (PlanLayerPass *self, PlanLower *lower, PlanLowerUnit unit,
                               PlanLowerKeep keep);
void plan_layer_go_forward (PlanLayerPass *self, guint end);
void plan_layer_begin_backward (PlanLayerPass *self, PlanLower *lower, PlanLowerUnit unit,
                                PlanLowerKeep keep);
void plan_layer_go_backward (PlanLayerPass *self, guint end);
void plan_layer_end_backward (PlanLayerPass *self);

/* Gradients of weights that waited. */
void plan_layer_catch_up (PlanLayerPass *self);

/* The gradient of a product's weights, now or once it is time; `of`: see delayed_of. */
void plan_layer_weigh (PlanLayer *self, const PlanNode *node, PlanRef of);
gboolean plan_layer_delays (PlanLayer *self, const PlanNode *node, PlanRef of); /* notes it */
void plan_layer_weigh_experts (PlanLayer *self, const PlanNode *node, PlanRef of);

PlanRef plan_layer_value (const PlanLayer *self, PlanValueId id);
void plan_layer_take (PlanLayer *self, PlanValueId id); /* nothing where it is there */
void plan_layer_give (PlanLayer *self, PlanValueSet values);
/* Nodes of latent attention, and of experts. */
void plan_layer_latent (PlanLayer *self, const PlanNode *node);
void plan_layer_latent_backward (PlanLayer *self, const PlanNode *node);
void plan_layer_experts (PlanLayer *self, const PlanNode *node);
void plan_layer_experts_backward (PlanLayer *self, const PlanNode *node);
void plan_layer_joined_rows (PlanLayer *self, const PlanNode *node);
void plan_layer_joined_rows_backward (PlanLayer *self, const PlanNode *node);

/* The gradient of a value, which must be there; giving up this holder's claim to it; a new buffer
 * for a share of one, and adding that to what there is. */
PlanRef plan_layer_gradient (const PlanLayer *self, PlanValueId id);
void plan_layer_drop_gradient (PlanLayer *self, PlanValueId id);
PlanRef plan_layer_take_share (PlanLayer *self, PlanValueId id);

/* The gradient of a product's output as its two products read it. */
void plan_layer_quantise_gradient (PlanLayer *self, const PlanNode *node, PlanRef *out_row,
                                   PlanRef *out_col);
void plan_layer_add_share (PlanLayer *self, PlanValueId id, PlanRef share);

void plan_layer_rope (PlanLayer *self, PlanRef qkv, gint64 inverse);
const gint64 *plan_layer_head_dims (PlanLayer *self);
gboolean plan_layer_is_swiglu (const PlanModel *model);

/* The nodes that must run so that these values are there. */
PlanNodeSet plan_layer_nodes_towards (const PlanLayer *self, PlanValueSet values);

/* `needed`: what the backward pass of this node and of those before it reads. */
void plan_layer_run_again (PlanLayer *self, PlanNodeSet nodes, PlanValueSet needed);

/* The last of the nodes that run again for a product, when it gathers what only the gradient of the
 * weights reads; NULL: it does something else. */
const PlanNode *plan_layer_gathers_beside (const PlanLayer *self, const PlanNode *linear,
                                           PlanNodeSet again);

/* What checkpointing runs again around node `last`: the whole of its part, wanted or not. */
PlanNodeSet plan_layer_checkpointed (const PlanLayerGraph *net, PlanNodeSet again, guint last);

G_END_DECLS
