/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/cli/query.h"

#include "planner/error.h"

gboolean
cli_query_refuse (const CliQuery *self, const CliChoice *choice, GError **error)
{
  const PlanSearchResult *result = &self->result;
  if (!result->is_closest)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INFEASIBLE,
                   "none of %" G_GUINT64_FORMAT " plans is legal here: sim says for one of them "
                   "which rule it breaks",
                   result->total);
      return FALSE;
    }
  CliInput chosen = *choice->input;
  g_auto (CliPrediction) p = { 0 };
  chosen.plan = result->closest.plan;
  if (!cli_predict (&chosen, &p, error))
    return FALSE;
  g_autofree char *plan = cli_query_differences (&result->closest.plan, &choice->input->plan);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INFEASIBLE,
               "nothing fits in %.1f MiB; closest is %s with %.1f MiB on the device, of which %.1f "
               "stay between steps: more devices, a shorter sequence or --allow would lower that",
               cli_mib (choice->memory_bytes), plan, cli_mib (p.trace->memory.device),
               cli_mib (p.trace->memory.allocated));
  return FALSE;
}
