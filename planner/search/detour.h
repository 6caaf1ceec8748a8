/* What the layers of stages say about how long a pipeline takes at least: for advise/floor.c. */
#pragma once
#include "planner/cluster/cluster.h"
#include "planner/model/layer-kinds.h"
#include "planner/model/stage.h"
#include "planner/plan/plan.h"
#include <glib.h>
G_BEGIN_DECLS

/* The layers of a part of a stage, by kind. */
typedef struct
{
  gint64 of[PLAN_N_LAYER_KINDS], layers;
} PlanKinds;

PlanKinds plan_kinds_of (const PlanModel *whole, const PlanStage *stage, const PlanStage *part,
                         gint64 seq);

/* Whether `self` has at least as many layers of each kind as `other`. */
gboolean plan_kinds_cover (const PlanKinds *self, const PlanKinds *other);

/* Whether a part has the same share of the whole's layers of each kind, so that it takes that share
 * of its time. */
gboolean plan_kinds_are_share (const PlanKinds *part, const PlanKinds *whole);

/* Whether all virtual stages of a stage have the same layers of each kind. */
gboolean plan_kinds_are_alike (const PlanModel *whole, const PlanStage *stage, gint64 seq);

/* By how much the longest path through an interleaved pipeline is longer, at least, than one that
 * stays with the last stage for the whole step. `chain_ns` is the time that stage `inner` takes for
 * a micro batch in all its virtual stages, `trade_ns` the time that it takes to send an output. */
gint64 plan_detour_ns (const PlanModel *model, const PlanCluster *cluster, const Plan *resolved,
                       const PlanStage *inner, gint64 chain_ns, gint64 trade_ns);

G_END_DECLS
