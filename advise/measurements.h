/* The catalogue's GEMM measurements of a cluster's device, for the simulator. */
#pragma once
#include "planner/cluster/cluster.h"
#include "sim/cost/measurements.h"
G_BEGIN_DECLS

/* GEMMs that were timed on that device, read once; NULL, after a warning, where there is no
 * catalogue. Owned by this module. Any thread may ask. */
const SimMeasurements *advise_measurements (const PlanCluster *cluster);

G_END_DECLS
