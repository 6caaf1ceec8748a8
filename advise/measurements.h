/* What the catalogue knows about a cluster's device, as the simulator takes it. */
#pragma once
#include "planner/cluster/cluster.h"
#include "sim/cost/measurements.h"
G_BEGIN_DECLS

/* Products timed on that device, read once; NULL where there is no catalogue: then a warning has
 * been given. Owned by this module. Any thread may ask. */
const SimMeasurements *advise_measurements (const PlanCluster *cluster);

G_END_DECLS
