/* PlanLower: the state of lowering. It has three kinds of members: the case and the decisions that
 * follow from it, fixed once computed; the numbers of buffers and events, fixed once declared; and
 * `now`, the place in the schedule, which alone changes from op to op. */
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

/* Buckets that are cut by size (by bytes, not by units), and which gradients they hold. */
typedef struct
{
  GArray *groups; /* PlanLowerGroup, by bucket: which gradients begin and complete it */
  /* By layer: the first layer whose parameters have the same places in their buckets; below 0: see
   * PLAN_LIES_WITHIN. */
  gint64 *like;
} PlanLowerBySize;

/* The place in the schedule that lowering has come to. */
typedef struct
{
  PlanStage here; /* the virtual stage; the whole stage if it has only one */
  gint64 row;     /* row of activations, which belongs to a micro batch */
  guint32 kind;   /* kind of layer */
  gboolean is_in_step, is_first_micro_batch, is_last_micro_batch, is_backward;
  gboolean is_gathered;  /* the gathers of all weights have been started */
  gboolean has_weights;  /* compute has waited for all weights of the virtual stage at hand */
  gboolean reduces_held; /* gradients that were held up to the last micro batch are being reduced */
  /* Acts to be carried out inside the backward pass of the layer at hand, each once a certain
   * gradient is complete; their units count from `attached_from`. */
  const struct PlanAct *attached;
  guint n_attached;
  PlanLowerUnit attached_from;
  gint64 units_here; /* units that this forward pass finds gathered already */
  gint64 multiple;   /* at which rows of experts begin in the map at hand; 0: at any row */
  gint64 capacity;   /* rows of each expert of a rank in that map; 0: as many as chose it */
  gint64 pitch;      /* of what the norm at hand reads; 0: rows lie one behind the other */
  gint8 depth;       /* number of open repeats */
  guint8 graph;      /* PlanGraphPlace of the next op of the device */
} PlanLowerCursor;

typedef struct
{
  PlanModel part;         /* the layers of the model that this rank's stage holds */
  const PlanModel *model; /* `part` if there are stages or modules, else `whole` */
  const PlanModel *whole; /* the model of all stages */
  const PlanCluster *cluster;
  const PlanWorkspaces *asked;
  const Plan *plan;
  const PlanStack *stack;
  PlanLayout layout;
  PlanBuckets buckets; /* where buckets go by size */
  PlanLowerBySize by_size;
  const PlanLayerGraphs *graphs; /* by kind of layer */
  const PlanSizes *sizes;        /* sizes and formats that all layers share */
  PlanStage stage;
  PlanLowerRanks place;
  PlanLowerComm comm;
  PlanLowerPolicy policy;
  struct
  {
    PlanDtype main_params, main_grads, grad_comm;
  } dtype;
  gint64 rows; /* rows of activations: as many as micro batches are held at once */

  PlanSchedule *schedule;
  PlanLowerBucket bucket[PLAN_N_BUCKETS];
  gboolean is_taken[PLAN_N_BUCKETS]; /* gradients of the unit at hand have a bucket already */
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
  PlanLowerBeside beside;
  PlanLowerCombined combined;
  PlanLowerContext context;
  PlanLowerFlat flat;
  PlanLowerQuantised quantised[PLAN_N_BUCKETS];
  PlanLowerQuantizers quantizer;

  PlanLowerCursor now;
  GArray *passes; /* PlanLowerPass: what later passes may be echoes of; NULL: all are written out */
} PlanLower;

/* The kind of a layer, counted within the stage. */
static inline guint
plan_lower_kind (const PlanLower *self, gint64 layer)
{
  return plan_model_layer_kind (self->model, layer, self->plan->value[PLAN_SEQ]);
}

/* Whether a layer belongs to a prediction module. */
static inline gboolean
plan_lower_is_module (const PlanLower *self, gint64 layer)
{
  return layer >= self->stage.layers - self->stage.modules;
}

/* Whether weights that the first micro batch gathered are still there. */
static inline gboolean
plan_lower_finds_weights (const PlanLower *self)
{
  return self->policy.keeps_weights
         && (self->now.is_backward || !self->now.is_first_micro_batch || self->now.has_weights);
}

/* Whether this pass gathers weights. */
static inline gboolean
plan_lower_gathers_weights (const PlanLower *self)
{
  return self->policy.shards_weights && !self->now.is_gathered && !plan_lower_finds_weights (self);
}

/* Whether gradients that were kept whole are reduced now: in the last micro batch, or in a pipeline
 * after it. */
static inline gboolean
plan_lower_reduces_kept (const PlanLower *self)
{
  return self->policy.holds_gradients ? self->now.reduces_held : self->now.is_last_micro_batch;
}

/* Any kind of bucket that exists, to ask which arrays buckets have: all kinds have the same ones.
 * The last kind, which then has no arrays, if there are no buckets. */
static inline const PlanLowerBucket *
plan_lower_any_bucket (const PlanLower *self)
{
  PlanBucketKind kind = 0;
  while (kind + 1 < PLAN_N_BUCKETS && !plan_layout_has (&self->layout, kind))
    kind++;
  return &self->bucket[kind];
}

#define PLAN_POOL_SETS 2 /* sets of buffers in a pool */
#define PLAN_NO_UNIT ((PlanLowerUnit){ .loop = -1 })

G_END_DECLS
