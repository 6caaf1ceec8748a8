/* What the steps of lowering share. Three kinds of things: what is lowered and what follows from
 * it, which stays once it is measured; buffers and events, which stay once they are declared; and
 * where lowering is, `now`, which alone changes from op to op. */
#pragma once
#include "planner/graph/layer-graph.h"
#include "planner/layout/layout.h"
#include "planner/lower/lower-buffers.h"
#include "planner/lower/lower-parts.h"
#include "planner/lower/lower-shape.h"
#include "planner/lower/lower.h"
#include "planner/model/stage.h"
#include "planner/plan/stack.h"
G_BEGIN_DECLS

/* Where lowering is. */
typedef struct
{
  PlanStage here; /* the virtual stage at hand; the whole stage where it has only one */
  gint64 row;     /* of activations */
  guint32 kind;   /* of the layer */
  gboolean is_in_step, is_first_micro_batch, is_last_micro_batch, is_backward;
  /* Acts that a layer's backward pass does as its gradients get there; the unit they count from. */
  const struct PlanAct *attached;
  guint n_attached;
  PlanLowerUnit attached_from;
  gint64 units_here; /* gathered before this forward pass asked for them */
  gint8 depth;       /* repeats open */
} PlanLowerCursor;

typedef struct
{
  PlanModel part;                 /* of the model, that this rank's stage holds */
  const PlanModel *model, *whole; /* that one, and all stages' */
  const PlanCluster *cluster;
  const PlanWorkspaces *asked;
  const Plan *plan;
  const PlanStack *stack;
  PlanLayout layout;
  PlanBuckets buckets; /* where the layout goes by size */
  GArray *groups;      /* PlanLowerGroup: when each of them is begun and complete */
  gint64 *like;        /* of every layer the first one whose parameters lie as its own do; below 0:
                          PLAN_LIES_WITHIN */
  const PlanLayerGraphs *graphs; /* by kind of layer */
  const PlanSizes *sizes;        /* theirs */
  PlanStage stage;
  PlanLowerRanks place;
  PlanLowerComm comm;
  PlanLowerPolicy policy;
  struct
  {
    PlanDtype main_params, main_grads, grad_comm;
  } dtype;
  gint64 rows;      /* of activations, one for each micro batch that is held */
  gint64 grad_rows; /* rows of gradients of layers' inputs: as many, or one */

  PlanSchedule *schedule;
  PlanLowerBucket bucket[PLAN_N_BUCKETS];
  gboolean is_taken[PLAN_N_BUCKETS]; /* this unit's gradient bucket, so far */
  PlanLowerParams params;
  PlanLowerValues layer;
  PlanLowerEmbedding embedding;
  PlanLowerHead head;
  PlanLowerModule module;
  PlanLowerInput input;
  PlanLowerWork work;
  PlanLowerSums sums;
  PlanLowerEvents event;
  PlanLowerExperts experts;
  PlanLowerJoined joined;
  PlanLowerCombined combined;
  PlanLowerContext context;
  PlanLowerFlat flat;
  PlanLowerQuantised quantised;
  PlanLowerQuantizers quantizer;

  PlanLowerCursor now;
} PlanLower;

/* The kind of a layer of this stage. */
static inline guint
plan_lower_kind (const PlanLower *self, gint64 layer)
{
  return plan_model_layer_kind (self->model, layer, self->plan->value[PLAN_SEQ]);
}

/* Whether that layer is a prediction module's. */
static inline gboolean
plan_lower_is_module (const PlanLower *self, gint64 layer)
{
  return layer >= self->stage.layers - self->stage.modules;
}

/* One of the buckets: what there is of one kind, there is of all; nothing where there is none. */
static inline const PlanLowerBucket *
plan_lower_any_bucket (const PlanLower *self)
{
  PlanBucketKind kind = 0;
  while (kind + 1 < PLAN_N_BUCKETS && !plan_layout_has (&self->layout, kind))
    kind++;
  return &self->bucket[kind];
}

#define PLAN_POOL_SETS 2 /* of buffers in a pool */
#define PLAN_NO_UNIT ((PlanLowerUnit){ .loop = -1 })

G_END_DECLS
