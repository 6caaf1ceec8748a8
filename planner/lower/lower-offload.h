/* Offloading to host memory: activations, and a share of the optimizer. */
#pragma once
#include "planner/lower/lower-layer.h"
G_BEGIN_DECLS

/* The values to be offloaded because one of these modules keeps them as its input. */
PlanValueSet plan_lower_offload_takes (const PlanStack *stack, const PlanLayerGraph *net,
                                       gint64 modules);

void plan_lower_declare_offload (PlanLower *self);

/* Whether any activations of a layer are offloaded. */
gboolean plan_lower_offloads (const PlanLower *self, gint64 layer);

/* Copies the activations of a unit to the host; frees them once they have been copied; copies them
 * back; makes compute wait for that, and frees the host's. `layer`: any layer with the same
 * activations to offload. */
void plan_lower_offload (PlanLower *self, PlanLowerUnit unit, gint64 layer);
void plan_lower_drop_offloaded (PlanLower *self, PlanLowerUnit unit, gint64 layer);
void plan_lower_fetch (PlanLower *self, PlanLowerUnit unit, gint64 layer);
void plan_lower_await_fetched (PlanLower *self, PlanLowerUnit unit, gint64 layer);

/* Starts copying back the offloaded activations of the last chunk of layers of the virtual stage at
 * hand, which its backward pass reads first. */
void plan_lower_fetch_ahead (PlanLower *self);

/* Elements that the host updates, the first ones of this rank's part of a bucket. */
gint64 plan_lower_host_elements (const PlanLower *self, PlanBucketKind kind);

void plan_lower_declare_host_state (PlanLower *self, PlanBucketKind kind);
void plan_lower_host_memory (PlanLower *self, gboolean takes);
void plan_lower_host_init (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit, PlanRef main);

/* The three steps of the host's share. Each is done for all buckets before the next. The factors by
 * which gradients are scaled go with them. */
void plan_lower_host_gradients (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit);
void plan_lower_host_factors (PlanLower *self);
void plan_lower_host_update (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit);
void plan_lower_host_weights (PlanLower *self, PlanBucketKind kind, PlanLowerUnit unit,
                              PlanRef main);

G_END_DECLS
