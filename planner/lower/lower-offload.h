/* What goes to the host and comes back: activations, and a share of the optimizer's work. */
#pragma once
#include "planner/lower/lower-layer.h"
G_BEGIN_DECLS

/* The values that go to the host as what one of these modules keeps of its input. */
PlanValueSet plan_lower_offload_takes (const PlanLayerGraph *net, gint64 modules);

void plan_lower_declare_offload (PlanLower *self);

/* Whether anything of that layer's activations goes out. */
gboolean plan_lower_offloads (const PlanLower *self, gint64 layer);

/* Activations of a unit that keeps what `layer` does: out, given back once they are there, and in
 * again. */
void plan_lower_offload (PlanLower *self, PlanLowerUnit unit, gint64 layer);
void plan_lower_drop_offloaded (PlanLower *self, PlanLowerUnit unit, gint64 layer);
void plan_lower_fetch (PlanLower *self, PlanLowerUnit unit, gint64 layer);

/* Elements of the optimizer's part of a bucket that the host updates: its first ones. */
gint64 plan_lower_host_elements (const PlanLower *self, PlanBucketKind kind);

void plan_lower_declare_host_state (PlanLower *self, PlanBucketKind kind);
void plan_lower_host_memory (PlanLower *self, gboolean takes);
void plan_lower_host_init (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit, PlanRef main);

/* In this order, each for all buckets. */
void plan_lower_host_gradients (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit);
void plan_lower_host_update (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit);
void plan_lower_host_weights (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit,
                              PlanRef main);

G_END_DECLS
