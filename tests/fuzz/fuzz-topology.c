/* SPDX-License-Identifier: Apache-2.0 */
/* A topology that is accepted has a path from each GPU to each port, and makes a cluster, whose
 * text reads back as the same cluster, or an error. */
#include "config.h"

#include "planner/cluster/topology.h"
#include "tests/fuzz/accepted.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size);

static void
check_cluster (const PlanTopology *topology, const char *device)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanCluster) cluster = plan_topology_describe (topology, device, &error);
  if ((cluster == NULL) != (error != NULL))
    abort ();
  if (!cluster)
    return;
  g_autofree char *text = plan_cluster_print (cluster);
  g_autoptr (PlanCluster) again = plan_cluster_parse (text, "again", NULL);
  g_autofree char *text_again = again ? plan_cluster_print (again) : NULL;
  if (g_strcmp0 (text, text_again) != 0)
    abort ();
}

int
LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
  g_autofree char *text = g_strndup ((const char *)data, size);
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanTopology) topology = plan_topology_parse (text, "fuzz", &error);
  if ((topology == NULL) != (error != NULL))
    abort ();
  fuzz_count (topology != NULL);
  if (!topology)
    return 0;
  g_autofree gint *chosen = plan_topology_assign (topology);
  for (guint g = 0; g < topology->gpus->len; g++)
    {
      for (guint p = 0; p < topology->ports->len; p++)
        if (plan_topology_path (topology, g, p) >= PLAN_N_PATHS)
          abort ();
      if (chosen[g] >= (gint)topology->ports->len)
        abort ();
    }
  check_cluster (topology, NULL);
  check_cluster (topology, "h100-80gb");
  return 0;
}
