/* SPDX-License-Identifier: Apache-2.0 */
/* What parses must print and parse again to the same text and the same facts. */
#include "config.h"

#include "planner/cluster/cluster.h"
#include "tests/fuzz/accepted.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
  g_autofree char *text = g_strndup ((const char *)data, size);
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanCluster) cluster = plan_cluster_parse (text, "fuzz", &error);
  if ((cluster == NULL) != (error != NULL))
    abort ();
  fuzz_count (cluster != NULL);
  if (!cluster)
    return 0;
  g_autofree char *printed = plan_cluster_print (cluster);
  g_autoptr (PlanCluster) again = plan_cluster_parse (printed, "again", NULL);
  if (!again)
    abort ();
  for (PlanFact f = 0; f < PLAN_N_FACTS; f++)
    if (plan_cluster_value (again, f) != plan_cluster_value (cluster, f)
        || !g_str_equal (plan_cluster_source_of (again, f), plan_cluster_source_of (cluster, f)))
      abort ();
  g_autofree char *printed_again = plan_cluster_print (again);
  if (!g_str_equal (printed, printed_again))
    abort ();
  return 0;
}
