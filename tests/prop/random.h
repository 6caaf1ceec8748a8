/* Random inputs for property tests: functions of the seed alone. */
#pragma once
#include "planner/case/case.h"
#include "planner/schedule/schedule.h"
#include "sim/cost/cost.h"
#include <glib.h>
G_BEGIN_DECLS

/* A small model with odd sizes, and a legal plan for the cluster; aborts the test if rules refuse
 * it. */
PlanModel *random_model (guint seed);
PlanCluster *random_gpu_cluster (guint seed);
PlanCase *random_case (guint seed, const PlanModel *model, const PlanCluster *cluster,
                       const char *stack);

/* A small model of any family without experts, with sizes that every format and split takes; a plan
 * for it with any value of any field that this version models. */
PlanModel *random_wide_model (guint seed);
PlanCase *random_wide_case (guint seed, const PlanModel *model, const PlanCluster *cluster);

/* A model with experts in all layers, in all but the first ones, or in every second layer; some
 * have latent attention and shared experts. A plan for it, with any modelled value of the fields
 * that concern those. */
PlanModel *random_expert_model (guint seed);
PlanCase *random_expert_case (guint seed, const PlanModel *model, const PlanCluster *cluster);

/* A schedule with random streams, waits and memory, which passes its check. */
PlanSchedule *random_schedule (guint seed);

/* Long repeats in one another, with events and buffers that are fixed, move with either repeat or
 * are used in turns. The schedule can be simulated, but would not pass its check, since no event
 * orders the uses of a buffer. The `count` of an op is from 0 to 40 and says how long it takes. */
PlanSchedule *random_long_schedule (guint seed);

/* Gives ops random loads: some leave enough of the device for ops beside them, some do not. */
void random_loads (SimCost *cost, const PlanSchedule *schedule, guint32 seed);

G_END_DECLS
