/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "advise/uncertainty.h"

#include "advise/adjustments.h"
#include "planner/base/units.h"
#include "planner/runs/accuracy.h"

#include <math.h>
#include <string.h>

AdviseMemoryError
advise_memory_error (const SimAdjustments *set, const PlanCluster *cluster, const PlanStack *stack)
{
  if (cluster->kind == PLAN_DEVICE_CPU)
    return (AdviseMemoryError){ .is_known = TRUE };
  const SimAdjustments *source = set && set->memory->len > 0 ? set : advise_adjustments_shipped ();
  const SimMemoryError *found = source ? sim_uncertainty_of_memory (source, stack->name) : NULL;
  return found ? (AdviseMemoryError){ TRUE, found->whole, found->passing }
               : (AdviseMemoryError){ 0 };
}

static double
scale_of (const AdviseMemoryError *error, guint64 device, guint64 resting)
{
  return error->whole * (double)device + error->passing * (double)(device - MIN (device, resting));
}

double
advise_p_fits (const AdviseMemoryError *error, guint64 device, guint64 resting, guint64 limit)
{
  const double scale = scale_of (error, device, resting);
  if (!error->is_known)
    return -1;
  return scale > 0 ? plan_accuracy_share_below (((double)limit - (double)device) / scale)
                   : device <= limit;
}

gboolean
advise_p_fits_parse (const char *text, double *out_p, GError **error)
{
  g_autofree char *number = g_strdup (text);
  char *sign = text ? strchr (number, '%') : NULL;
  const double unit = sign && sign[1] == '\0' ? 100 : 1;
  double p = ADVISE_P_FITS * unit;
  if (sign && sign[1] == '\0')
    *sign = '\0';
  if (text && !plan_units_parse_real (number, "--p-fits", 0.5 * unit, 0.999 * unit, &p, error))
    return FALSE;
  *out_p = p / unit;
  return TRUE;
}

static double
deviate (const AdviseMemoryError *error, double p)
{
  return error->is_known && error->whole + error->passing > 0
             ? MAX (plan_accuracy_below_share (p), 0)
             : 0;
}

guint64
advise_needed_bytes (const AdviseMemoryError *error, double p, guint64 device, guint64 resting)
{
  return device + (guint64)(deviate (error, p) * scale_of (error, device, resting));
}

/* Rounds up, so that a plan that needs more than there is is never taken for one that does not. */
guint64
advise_takable_bytes (const AdviseMemoryError *error, double p, guint64 needed, guint64 resting)
{
  const double z = deviate (error, p);
  if (needed == G_MAXUINT64 || z <= 0)
    return needed;
  const double bytes = ((double)needed + z * error->passing * (double)resting)
                       / (1 + z * (error->whole + error->passing));
  return MIN (needed, (guint64)bytes + 1);
}

/* Fields of which each value other than the default is a mode. How communication is done is no
 * mode: it matters only as far as communication is exposed, which is counted separately. */
static const PlanField named[]
    = { PLAN_COMPUTE,    PLAN_RECOMPUTE,           PLAN_OPTIMIZER,
        PLAN_TASK,       PLAN_OVERLAP_GRAD_REDUCE, PLAN_OVERLAP_PARAM_GATHER,
        PLAN_TP_OVERLAP, PLAN_CUDA_GRAPH,          PLAN_GRAPH_MODULES };

/* Fields for which having any value other than the default is one mode. */
static const PlanField counted[] = { PLAN_TP,
                                     PLAN_CP,
                                     PLAN_EP,
                                     PLAN_PP,
                                     PLAN_DP_OUTER,
                                     PLAN_OFFLOAD_OPTIMIZER,
                                     PLAN_OFFLOAD_LAYERS,
                                     PLAN_OFFLOAD_MODULES };

char **
advise_modes (const Plan *resolved)
{
  GPtrArray *words = g_ptr_array_new ();
  Plan usual;
  plan_init (&usual);
  for (guint i = 0; i < G_N_ELEMENTS (named); i++)
    if (resolved->value[named[i]] != usual.value[named[i]])
      {
        g_autofree char *value = plan_field_print (named[i], resolved->value[named[i]]);
        g_ptr_array_add (words, g_strdup_printf ("%s:%s", plan_field_name (named[i]), value));
      }
  for (guint i = 0; i < G_N_ELEMENTS (counted); i++)
    if (resolved->value[counted[i]] != usual.value[counted[i]])
      g_ptr_array_add (words, g_strdup (plan_field_name (counted[i])));
  g_ptr_array_add (words, NULL);
  return (char **)g_ptr_array_free (words, FALSE);
}

gint64
advise_network (const PlanCluster *cluster)
{
  return cluster->nodes > 1 ? (gint64)(8e-9 * cluster->nic_bytes_per_s + 0.5) : 0;
}

double
advise_exposed_share (gint64 step_ns, gint64 tensor_ns, gint64 gather_ns, gint64 reduce_ns)
{
  return step_ns > 0 ? (double)(tensor_ns + gather_ns + reduce_ns) / (double)step_ns : 0;
}

SimErrorRange
advise_time_uncertainty (const SimAdjustments *set, const PlanCase *of, const char *source,
                         double exposed_share, char **out_unlike)
{
  g_auto (GStrv) modes = advise_modes (&of->plan);
  const SimSubject subject = { .gpu = of->cluster->device_name,
                               .stack = of->stack->name,
                               .devices = plan_cluster_devices (of->cluster),
                               .exposed = exposed_share,
                               .network = advise_network (of->cluster),
                               .modes = (const char *const *)modes,
                               .source = source,
                               .has_experts = of->model->experts > 0 };
  if (out_unlike)
    *out_unlike = set ? sim_uncertainty_unlike (set, &subject) : NULL;
  return set ? sim_uncertainty_of_time (set, &subject) : (SimErrorRange){ .pct = -1 };
}
