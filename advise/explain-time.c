/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "advise/explain-time.h"

#include "planner/schedule/step-ops.h"

#include <string.h>

static void
clear (gpointer time)
{
  g_free (((AdviseOpTime *)time)->sizes);
}

static const char *
name_of_written (const PlanSchedule *schedule, const PlanOp *op)
{
  for (guint i = 0; i < plan_op_n_refs (op->kind); i++)
    if (strchr ("wum", plan_op_ref_access (op->kind, i)) && op->refs[i].array >= 0)
      return plan_schedule_buffer (schedule, (guint)op->refs[i].array)->name;
  return "";
}

static char *
sizes_of (const PlanSchedule *schedule, const PlanOp *op)
{
  g_autoptr (GString) text = g_string_new (NULL);
  if (op->group >= 0)
    g_string_printf (text, "%u ranks, ", plan_schedule_group (schedule, (guint)op->group)->size);
  for (guint i = 0, n = 0; i < plan_op_n_dims (op->kind); i++)
    if (plan_op_dim_is_size (op->kind, i))
      g_string_append_printf (text, "%s%" G_GINT64_FORMAT, n++ > 0 ? " x " : "", op->dims[i]);
  return g_string_free (g_steal_pointer (&text), FALSE);
}

/* Bytes of a collective as nccl-tests counts them: the whole that is gathered or reduced, which is
 * the largest operand. */
static double
message_bytes (const PlanSchedule *schedule, const PlanOp *op)
{
  const guint ranks = plan_schedule_group (schedule, (guint)op->group)->size;
  guint64 most = 0;
  for (guint i = 0; i < plan_op_n_refs (op->kind); i++)
    if (op->refs[i].array >= 0)
      most = MAX (
          most, plan_dtype_bytes (plan_schedule_buffer (schedule, (guint)op->refs[i].array)->dtype,
                                  plan_op_ref_elements (op, i, ranks)));
  return (double)most;
}

static gint
compare (gconstpointer a, gconstpointer b)
{
  const AdviseOpTime *x = a, *y = b;
  return x->total_ns > y->total_ns ? -1 : x->total_ns < y->total_ns;
}

static AdviseOpTime *
find (GArray *times, GHashTable *places, const AdviseOpTime *like)
{
  char *key = g_strjoin ("\n", like->op, like->writes, like->stream, like->sizes, NULL);
  gpointer place;
  if (g_hash_table_lookup_extended (places, key, NULL, &place))
    {
      g_free (key);
      g_free (like->sizes);
    }
  else
    {
      place = GUINT_TO_POINTER (times->len);
      g_hash_table_insert (places, key, place);
      g_array_append_vals (times, like, 1);
    }
  return &g_array_index (times, AdviseOpTime, GPOINTER_TO_UINT (place));
}

GArray *
advise_explain_time (const AdviseInput *input, const AdvisePrediction *prediction, GError **error)
{
  const PlanSchedule *schedule = prediction->schedule;
  const SimCostInput costs = sim_cost_input (prediction->of, schedule);
  g_autoptr (SimCost) cost = advise_cost_of (input, prediction->of, schedule, error);
  SimSummary summary;
  if (!cost
      || !sim_measure (schedule, cost, prediction->of->stack, advise_workspace (), &summary, error))
    return NULL;
  const gint64 *node_ns = sim_measure_node_ns (advise_workspace ());
  g_autofree gint64 *n_times = plan_schedule_step_times (schedule);
  g_autoptr (GHashTable) places = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  GArray *times = g_array_new (FALSE, TRUE, sizeof (AdviseOpTime));
  g_array_set_clear_func (times, clear);
  for (guint node = 0; node < plan_schedule_n_nodes (schedule); node++)
    {
      const PlanOp *op = plan_schedule_node (schedule, node);
      if (n_times[node] == 0 || node_ns[node] == 0)
        continue;
      const AdviseOpTime like
          = { .op = plan_op_name (op->kind),
              .writes = name_of_written (schedule, op),
              .stream = plan_stream_name (op->stream),
              .sizes = sizes_of (schedule, op),
              .flops = plan_op_flops (op),
              .peak_flops = plan_op_flops (op) > 0 ? sim_cost_peak_flops (&costs, op) : 0,
              .bytes = op->group >= 0 ? message_bytes (schedule, op)
                                      : (double)sim_cost_memory_bytes (cost, node) };
      AdviseOpTime *all = find (times, places, &like);
      all->times += n_times[node];
      all->total_ns += node_ns[node];
    }
  g_array_sort (times, compare);
  return times;
}
