/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/cost.h"

#include "planner/error.h"
#include "sim/cost-private.h"

struct _SimCost
{
  gint64 *ns, *launch_ns; /* per node, as all of these */
  guint64 *memory_bytes;
  guint *sms;
  guint8 *launches;
  SimLoad *load;
  SimProvenance *provenance;
  gboolean is_serial;
};

static gboolean
check_links (const SimCostInput *input, GError **error)
{
  const PlanCluster *c = input->cluster;
  gboolean inside = FALSE, crosses = FALSE;
  for (guint g = 0; g < plan_schedule_n_groups (input->schedule); g++)
    {
      const PlanGroup *group = plan_schedule_group (input->schedule, g);
      const gint64 linked = sim_cost_linked (c, group);
      inside = inside || linked > 1;
      crosses = crosses || (gint64)group->size > linked;
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
  const guint n = plan_schedule_n_nodes (schedule) + 1;
  SimCost *self = g_new0 (SimCost, 1);
  self->ns = g_new0 (gint64, n);
  self->launch_ns = g_new0 (gint64, n);
  self->memory_bytes = g_new0 (guint64, n);
  self->sms = g_new0 (guint, n);
  self->launches = g_new0 (guint8, n);
  self->load = g_new0 (SimLoad, n);
  self->provenance = g_new0 (SimProvenance, n);
  return self;
}

/* Loops, memory and waits take no time of their own. */
static gboolean
takes_time (const PlanOp *op)
{
  return op->kind < PLAN_N_OPS && plan_op_class (op->kind) != PLAN_CLASS_MEMORY
         && op->kind != PLAN_OP_SYNC && op->kind != PLAN_OP_WAIT;
}

/* What it puts into the device's queues. */
static guint8
launches_of (const SimCostInput *input, const PlanOp *op, gboolean reads_gradient)
{
  const guint kernels = takes_time (op) ? sim_cost_kernels (input, op, reads_gradient) : 0;
  return (guint8)(kernels + op->n_waits + (op->record.array >= 0 ? 1 : 0));
}

static guint16
permille (double share)
{
  return (guint16)(1000 * CLAMP (share, 0, 1) + 0.5);
}

/* Products and attention want every processor; what is bound by memory has enough of those that are
 * left. Of memory, all is what a copy reaches. */
static SimLoad
load_of (const SimCostInput *input, const PlanOp *op, const SimTime *time)
{
  const PlanCluster *c = input->cluster;
  const double processors = sim_cost_param (input, SIM_PARAM_SHARED_PROCESSORS);
  const double memory = sim_cost_param (input, SIM_PARAM_SHARED_MEMORY);
  const double links = sim_cost_param (input, SIM_PARAM_SHARED_LINKS);
  const double bandwidth = c->memory_bytes_per_s * sim_cost_param (input, SIM_PARAM_TRAFFIC_COPY);
  const PlanOpClass class = plan_op_class (op->kind);
  const gboolean is_product = op->kind == PLAN_OP_GEMM || op->kind == PLAN_OP_GEMM_ADD
                              || op->kind == PLAN_OP_ATTENTION || op->kind == PLAN_OP_ATTENTION_BWD;
  SimLoad load = { { 0 } };
  if (time->seconds <= 0)
    return load;
  if (class == PLAN_CLASS_COLLECTIVE && c->sm_count > 0)
    load.permille[SIM_SHARED_PROCESSORS]
        = permille (processors * (double)time->sms / (double)c->sm_count);
  else if (is_product && processors > 0)
    load.permille[SIM_SHARED_PROCESSORS] = 1000;
  load.permille[SIM_SHARED_MEMORY] = permille (memory * time->memory / (time->seconds * bandwidth));
  load.permille[SIM_SHARED_LINK] = permille (links * time->link_seconds / time->seconds);
  load.permille[SIM_SHARED_NETWORK] = permille (links * time->network_seconds / time->seconds);
  return load;
}

static gint64
host_time (const SimCostInput *input, const PlanOp *op, gboolean reads_gradient)
{
  return (gint64)(sim_cost_param (input, SIM_PARAM_LAUNCH)
                      * (double)sim_cost_host_ns (input, op, reads_gradient)
                  + 0.5);
}

SimCost *
sim_cost_new (const SimCostInput *input, GError **error)
{
  SimCostInput complete = *input;
  if (!complete.params)
    complete.params = sim_params_default (input->cluster);
  if (!check_links (&complete, error))
    return NULL;
  g_autoptr (SimCost) self = cost_new (input->schedule);
  self->is_serial = input->cluster->kind == PLAN_DEVICE_CPU;
  g_autofree gboolean *holds = g_new0 (gboolean, plan_schedule_n_buffers (input->schedule) + 1);
  SimGradients gradients = { .holds = holds };
  for (guint node = 0; node < plan_schedule_n_nodes (input->schedule); node++)
    {
      const PlanOp *op = plan_schedule_node (input->schedule, node);
      self->provenance[node] = SIM_PROVENANCE_DATASHEET;
      const gboolean reads_gradient = sim_gradients_next (&gradients, op);
      self->launches[node] = launches_of (&complete, op, reads_gradient);
      if (!takes_time (op))
        continue;
      if (op->kind == PLAN_OP_PREPARE)
        {
          self->launch_ns[node] = host_time (&complete, op, FALSE);
          continue;
        }
      SimTime time;
      const gboolean is_timed = sim_cost_timed (&complete, op, &time);
      if (!is_timed)
        time = plan_op_class (op->kind) == PLAN_CLASS_COLLECTIVE
                   ? sim_cost_collective (&complete, op)
                   : sim_cost_compute (&complete, op, error);
      if (time.seconds < 0)
        return NULL;
      self->ns[node] = (gint64)(time.seconds * 1e9 + 0.5);
      self->memory_bytes[node] = (guint64)(time.memory + 0.5);
      self->sms[node] = time.sms;
      self->load[node] = load_of (&complete, op, &time);
      self->provenance[node] = time.provenance;
      /* What was timed was issued too; a graph is launched by the host as a whole, once. */
      if (!is_timed && !plan_schedule_is_graph (input->schedule))
        self->launch_ns[node] = host_time (&complete, op, reads_gradient);
    }
  return g_steal_pointer (&self);
}

SimCost *
sim_cost_new_constant (const PlanSchedule *schedule, gint64 op_ns, gint64 launch_ns)
{
  SimCost *self = cost_new (schedule);
  for (guint node = 0; node < plan_schedule_n_nodes (schedule); node++)
    if (takes_time (plan_schedule_node (schedule, node)))
      {
        self->ns[node] = op_ns;
        self->launch_ns[node] = launch_ns;
      }
  return self;
}

void
sim_cost_free (SimCost *self)
{
  if (!self)
    return;
  g_free (self->ns);
  g_free (self->launch_ns);
  g_free (self->memory_bytes);
  g_free (self->sms);
  g_free (self->launches);
  g_free (self->load);
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
sim_cost_launch_ns (const SimCost *self, guint node)
{
  return self->launch_ns[node];
}

guint
sim_cost_launches (const SimCost *self, guint node)
{
  return self->launches[node];
}

guint
sim_cost_sms (const SimCost *self, guint node)
{
  return self->sms[node];
}

guint64
sim_cost_memory_bytes (const SimCost *self, guint node)
{
  return self->memory_bytes[node];
}

SimLoad
sim_cost_load (const SimCost *self, guint node)
{
  return self->load[node];
}

void
sim_cost_set_load (SimCost *self, guint node, SimLoad load)
{
  self->load[node] = load;
}

gboolean
sim_cost_is_serial (const SimCost *self)
{
  return self->is_serial;
}
