/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/cost.h"

#include "planner/error.h"

struct _SimCost
{
  gint64 *ns; /* per node */
  SimProvenance *provenance;
  gint64 launch_ns;
  gboolean is_serial;
};

/* What durations are made of. */
typedef struct
{
  const PlanSchedule *schedule;
  const PlanCluster *cluster;
  const SimParams *params;
} Rates;

static double
bytes_touched (const Rates *rates, const PlanOp *op)
{
  const guint ranks = plan_schedule_group_size (rates->schedule, op);
  double bytes = 0;
  for (guint i = 0; i < plan_op_n_refs (op->kind); i++)
    {
      if (op->refs[i].array < 0)
        continue;
      const char access = plan_op_ref_access (op->kind, i);
      const PlanDtype dtype
          = plan_schedule_buffer (rates->schedule, (guint)op->refs[i].array)->dtype;
      guint64 elements = plan_op_ref_elements (op, i, ranks);
      if (op->kind == PLAN_OP_EMBED && i == 1) /* one row per token, not the table */
        elements = plan_op_ref_elements (op, 0, ranks);
      bytes += (double)plan_dtype_bytes (dtype, elements) * (access == 'u' ? 2 : 1);
    }
  return bytes;
}

/* Between device and host as fast as their link, on the host as fast as this device's share of its
 * memory. */
static double
host_seconds (const Rates *rates, const PlanOp *op, GError **error)
{
  const PlanCluster *c = rates->cluster;
  const gboolean is_copy = op->kind == PLAN_OP_COPY;
  const double rate = is_copy ? c->host_link_bytes_per_s * rates->params->link_efficiency
                              : c->host_memory_bytes_per_s * rates->params->memory_efficiency
                                    / (double)c->devices_per_node;
  if (rate <= 0)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
                   "cluster %s: no %s is known, which offloading needs", c->name,
                   is_copy ? "host_bandwidth" : "host_memory_bandwidth");
      return -1;
    }
  return bytes_touched (rates, op) / (is_copy ? 2 : 1) / rate;
}

/* Duration of a compute op in seconds: the slower of arithmetic and memory. */
static double
compute_seconds (const Rates *rates, const PlanOp *op, GError **error)
{
  const SimParams *p = rates->params;
  const double flops = plan_op_flops (op);
  if (op->kind == PLAN_OP_COPY || op->kind == PLAN_OP_ADAMW_HOST)
    return host_seconds (rates, op, error);
  const double memory
      = bytes_touched (rates, op) / (rates->cluster->memory_bytes_per_s * p->memory_efficiency);
  if (flops == 0)
    return memory;
  const PlanDtype dtype = plan_schedule_buffer (rates->schedule, (guint)op->refs[1].array)->dtype;
  const gboolean is_attention = op->kind == PLAN_OP_ATTENTION || op->kind == PLAN_OP_ATTENTION_BWD;
  const PlanDtype format
      = is_attention ? plan_schedule_buffer (rates->schedule, (guint)op->refs[2].array)->dtype
                     : dtype;
  const double peak = rates->cluster->peak_flops[format];
  if (peak <= 0)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
                   "cluster %s: no %s rate is known for %s, which this plan computes in",
                   rates->cluster->name, plan_dtype_name (format), rates->cluster->device_name);
      return -1;
    }
  const double efficiency = op->kind == PLAN_OP_ATTENTION       ? p->attention_efficiency
                            : op->kind == PLAN_OP_ATTENTION_BWD ? p->attention_bwd_efficiency
                                                                : p->gemm_efficiency;
  return MAX (flops / (peak * efficiency), memory);
}

/* Members of a group that reach one another without the network. */
static gint64
linked_members (const PlanCluster *cluster, const PlanGroup *group)
{
  const gint64 linked = plan_cluster_linked_devices (cluster);
  return CLAMP (linked / (gint64)group->stride, 1, (gint64)group->size);
}

static gboolean
crosses_network (const PlanCluster *cluster, const PlanGroup *group)
{
  return group->size > linked_members (cluster, group);
}

/* Rings: every rank sends its share to the next, ranks - 1 times; all-reduce goes round twice.
 * There is a ring per network card of the members, so that between nodes all of them work side by
 * side, while inside a node the link of a device carries all rings. The slower of the two sets the
 * pace. */
static double
collective_seconds (const Rates *rates, const PlanOp *op)
{
  const PlanCluster *c = rates->cluster;
  const PlanGroup *group = plan_schedule_group (rates->schedule, (guint)op->group);
  const gint64 ranks = group->size, linked = linked_members (c, group);
  const PlanDtype dtype = plan_schedule_buffer (rates->schedule, (guint)op->refs[0].array)->dtype;
  const gboolean crosses = crosses_network (c, group);
  const double link = c->link_bytes_per_s * rates->params->link_efficiency;
  const double nics = c->nic_bytes_per_s * (double)linked * rates->params->nic_efficiency;
  const double bandwidth = !crosses ? link : linked > 1 ? MIN (link, nics) : nics;
  /* An exchange goes one hop, of which the longest counts. */
  const gint64 hops = op->kind == PLAN_OP_EXCHANGE ? 1 : ranks - 1;
  const gint64 hops_across = MIN (hops, (ranks + linked - 1) / linked - 1);
  const gint64 hops_inside = hops - hops_across;
  const double latency
      = 1e-9 * (double)(hops_inside * c->link_latency_ns + hops_across * c->nic_latency_ns);
  const gboolean is_all_reduce = op->kind == PLAN_OP_ALL_REDUCE;
  const guint64 count = is_all_reduce ? (guint64)(op->dims[0] / ranks) : (guint64)op->dims[0];
  const double sent = (double)plan_dtype_bytes (dtype, count) * (double)hops;
  return ranks == 1 ? 0 : (latency + sent / bandwidth) * (is_all_reduce ? 2 : 1);
}

static gboolean
check_links (const Rates *rates, GError **error)
{
  const PlanCluster *c = rates->cluster;
  gboolean inside = FALSE, crosses = FALSE;
  for (guint g = 0; g < plan_schedule_n_groups (rates->schedule); g++)
    {
      const PlanGroup *group = plan_schedule_group (rates->schedule, g);
      inside = inside || (group->size > 1 && linked_members (c, group) > 1);
      crosses = crosses || crosses_network (c, group);
    }
  const char *missing = c->memory_bytes_per_s <= 0           ? "memory bandwidth"
                        : inside && c->link_bytes_per_s <= 0 ? "link bandwidth"
                        : crosses && c->nic_bytes_per_s <= 0 ? "network bandwidth"
                                                             : NULL;
  if (missing)
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED, "cluster %s: no %s is known", c->name,
                 missing);
  return missing == NULL;
}

static SimCost *
cost_new (const PlanSchedule *schedule)
{
  SimCost *self = g_new0 (SimCost, 1);
  self->ns = g_new0 (gint64, plan_schedule_n_nodes (schedule) + 1);
  self->provenance = g_new0 (SimProvenance, plan_schedule_n_nodes (schedule) + 1);
  return self;
}

SimCost *
sim_cost_new (const PlanSchedule *schedule, const PlanCluster *cluster, const PlanStack *stack,
              const SimParams *params, GError **error)
{
  const Rates rates = { .schedule = schedule, .cluster = cluster, .params = params };
  if (!check_links (&rates, error))
    return NULL;
  g_autoptr (SimCost) self = cost_new (schedule);
  self->launch_ns = plan_schedule_is_graph (schedule) ? 0 : stack->launch_ns;
  self->is_serial = cluster->kind == PLAN_DEVICE_CPU;
  for (guint node = 0; node < plan_schedule_n_nodes (schedule); node++)
    {
      const PlanOp *op = plan_schedule_node (schedule, node);
      double seconds = 0;
      self->provenance[node] = SIM_PROVENANCE_DATASHEET;
      if (op->kind >= PLAN_N_OPS || plan_op_class (op->kind) == PLAN_CLASS_MEMORY
          || op->kind == PLAN_OP_SYNC)
        continue;
      if (plan_op_class (op->kind) == PLAN_CLASS_COLLECTIVE)
        seconds = collective_seconds (&rates, op);
      else if ((seconds = compute_seconds (&rates, op, error)) < 0)
        return NULL;
      self->ns[node] = (gint64)(seconds * 1e9 + 0.5) + params->kernel_ns;
    }
  return g_steal_pointer (&self);
}

SimCost *
sim_cost_new_constant (const PlanSchedule *schedule, gint64 op_ns, gint64 launch_ns)
{
  SimCost *self = cost_new (schedule);
  self->launch_ns = launch_ns;
  for (guint node = 0; node < plan_schedule_n_nodes (schedule); node++)
    {
      const PlanOp *op = plan_schedule_node (schedule, node);
      if (op->kind < PLAN_N_OPS && plan_op_class (op->kind) != PLAN_CLASS_MEMORY
          && op->kind != PLAN_OP_SYNC)
        self->ns[node] = op_ns;
    }
  return self;
}

void
sim_cost_free (SimCost *self)
{
  if (!self)
    return;
  g_free (self->ns);
  g_free (self->provenance);
  g_free (self);
}

gint64
sim_cost_ns (const SimCost *self, guint node)
{
  return self->ns[node];
}

SimProvenance
sim_cost_provenance (const SimCost *self, guint node)
{
  return self->provenance[node];
}

gint64
sim_cost_launch_ns (const SimCost *self)
{
  return self->launch_ns;
}

gboolean
sim_cost_is_serial (const SimCost *self)
{
  return self->is_serial;
}
