/* SPDX-License-Identifier: Apache-2.0 */
/* What parses must print and parse again to the same plan; resolving it must end in a plan or in an
 * error, and a resolved plan resolves to itself. */
#include "config.h"

#include "planner/plan/plan.h"
#include "tests/fuzz/accepted.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size);

static void
check_resolving (const Plan *plan)
{
  static PlanModel *model;
  static PlanCluster *cluster;
  if (!model)
    {
      model = plan_model_new ("llama3-8b", NULL);
      cluster = plan_cluster_new ("dgx-b200:2", NULL);
    }
  g_autoptr (GError) error = NULL;
  Plan resolved, again;
  const gboolean done = plan_resolve (plan, model, cluster, &resolved, &error);
  if (done != (error == NULL))
    abort ();
  if (done
      && (!plan_resolve (&resolved, model, cluster, &again, NULL)
          || memcmp (&resolved, &again, sizeof again) != 0))
    abort ();
}

int
LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
  g_autofree char *text = g_strndup ((const char *)data, size);
  g_autoptr (GError) error = NULL;
  Plan plan, again;
  const gboolean done = plan_parse (text, "fuzz", &plan, &error);
  if (done != (error == NULL))
    abort ();
  fuzz_count (done);
  if (!done)
    return 0;
  g_autofree char *printed = plan_print (&plan);
  if (!plan_parse (printed, "again", &again, NULL) || memcmp (&plan, &again, sizeof plan) != 0)
    abort ();
  check_resolving (&plan);
  return 0;
}
