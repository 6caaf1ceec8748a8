/* Measurements of a cluster's device in the catalogue, as the simulator takes them. */
#pragma once
#include "planner/cluster/cluster.h"
#include "sim/cost/measurements.h"
G_BEGIN_DECLS

/* GEMMs timed on that device, read once; NULL, after a warning, where there is no catalogue. Owned
 * by this module. Any thread may ask. */
const SimMeasurements *advise_measurements (const PlanCluster *cluster);

G_END_DECLS
