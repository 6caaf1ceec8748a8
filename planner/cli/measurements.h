/* What the catalogue knows about a cluster's device, as the simulator takes it. */
#pragma once
#include "planner/cluster.h"
#include "sim/measurements.h"
G_BEGIN_DECLS

/* Products timed on that device; NULL when there is none, or no catalogue: then a warning has been
 * given, once. Owned by this module, until another device is asked for. */
const SimMeasurements *cli_measurements (const PlanCluster *cluster);

G_END_DECLS
