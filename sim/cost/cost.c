/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/cost/cost.h"

#include "planner/base/error.h"
#include "planner/base/units.h"
#include "planner/schedule/meter.h"
#include "sim/cost/cost-private.h"

#include <string.h>

typedef struct
{
  gint64 ns, launch_ns;
  guint64 memory_bytes;
  SimLoad load;
  guint sms;
  guint8 provenance, launches;
} NodeCost;

struct _SimCost
{
  gboolean is_serial;
  NodeCost of[]; /* one per node of the schedule */
};

/* What needs a rate that a cluster may not state, and a value that it may have. */
static const struct
{
  PlanFact fact;
  const char *needed_by, *example;
} rates[] = {
  { PLAN_FACT_MEMORY_BANDWIDTH, "every plan", "1TB/s" },
  { PLAN_FACT_LINK_BANDWIDTH, "more than one device", "25GB/s" },
  { PLAN_FACT_NIC_BANDWIDTH, "more than one node", "25GB/s" },
  { PLAN_FACT_HOST_BANDWIDTH, "offloading", "50GB/s" },
  { PLAN_FACT_HOST_MEMORY_BANDWIDTH, "offloading", "400GB/s" },
};

void
sim_cost_refuse (const PlanCluster *cluster, PlanFact unknown, GError **error)
{
  const gboolean may_be_nvlink = unknown == PLAN_FACT_LINK_BANDWIDTH
                                 && cluster->nvlink_bytes_per_s > 0
                                 && !plan_cluster_knows (cluster, PLAN_FACT_NVLINK_DOMAIN);
  g_autofree char *nvlink
      = may_be_nvlink
            ? g_strdup_printf ("--hw %s=%" G_GINT64_FORMAT " where NVLink joins them, else ",
                               plan_fact_key (PLAN_FACT_NVLINK_DOMAIN), cluster->devices_per_node)
            : g_strdup ("");
  guint i = 0;
  while (rates[i].fact != unknown)
    i++;
  /* Where the number of ports is known, the rate of one port is asked for: a device's share follows
   * from both. */
  const gboolean has_ports = unknown == PLAN_FACT_NIC_BANDWIDTH && cluster->nics_per_node > 0;
  const char *const key = plan_fact_key (has_ports ? PLAN_FACT_NIC_RATE : unknown);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
               "cluster %s: no %s is known, which %s needs: %s--hw %s=%s or a line of a cluster's "
               "own file, for example, says it",
               cluster->name, key, rates[i].needed_by, nvlink, key,
               has_ports ? "200Gbit/s" : rates[i].example);
}

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
  if (c->memory_bytes_per_s <= 0)
    sim_cost_refuse (c, PLAN_FACT_MEMORY_BANDWIDTH, error);
  else if (inside && c->link_bytes_per_s <= 0)
    sim_cost_refuse (c, PLAN_FACT_LINK_BANDWIDTH, error);
  else if (crosses && c->nic_bytes_per_s <= 0)
    sim_cost_refuse (c, PLAN_FACT_NIC_BANDWIDTH, error);
  else
    return TRUE;
  return FALSE;
}

/* Makes costs whose nodes have to be filled in. */
static SimCost *
cost_new (const PlanSchedule *schedule)
{
  SimCost *self
      = g_malloc (sizeof (SimCost) + plan_schedule_n_nodes (schedule) * sizeof (NodeCost));
  self->is_serial = FALSE;
  return self;
}

/* Whether an op has a duration: loops, memory ops and waits have none. */
static gboolean
takes_time (const PlanOp *op)
{
  return op->kind < PLAN_N_OPS && plan_op_class (op->kind) != PLAN_CLASS_MEMORY
         && op->kind != PLAN_OP_SYNC && op->kind != PLAN_OP_WAIT;
}

/* Number of entries that an op takes in the device's queues: its kernels and events. */
static guint8
launches_of (const PlanOp *op, guint kernels)
{
  return (guint8)(kernels + op->n_waits + (op->record.array >= 0 ? 1 : 0));
}

static guint16
permille (double share)
{
  return (guint16)(1000 * CLAMP (share, 0, 1) + 0.5);
}

/* The load of an op. GEMMs and attention want every processor, so a collective slows them; ops
 * bound by memory are content with the processors that are left. Memory bandwidth is counted in per
 * mille of the rate that a copy reaches. */
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

/* The host's time for giving memory back and taking it again. A training loop that empties the
 * allocator's cache before the optimizer makes the next step take again everything that lives for a
 * part of a step only. */
static double
retake_ns (const SimCostInput *input)
{
  if (!input->plan || input->plan->value[PLAN_EMPTY_CACHE] != PLAN_EMPTY_CACHE_ON)
    return 0;
  const guint64 bytes
      = plan_meter_passing_bytes (input->schedule, input->stack->memory.allocation_bytes);
  return sim_cost_param (input, SIM_PARAM_RETAKE) * (double)bytes / (double)PLAN_MIB;
}

static gint64
host_time (const SimCostInput *input, const PlanOp *op, PlanLaunch launch)
{
  const double ns
      = sim_cost_param (input, SIM_PARAM_LAUNCH) * (double)sim_cost_host_ns (input, op, launch);
  return (gint64)(ns + (op->kind == PLAN_OP_PREPARE ? retake_ns (input) : 0) + 0.5);
}

/* All that the time of an op follows from: ops with equal keys have equal times. */
typedef struct
{
  guint64 what;   /* kind, manner, stream and group */
  guint64 dtypes; /* formats of its operands */
  gint64 pieces, dims[PLAN_MAX_DIMS];
  double calls;
} TimeKey;

#define CACHE_SIZE 128

/* A cache of times by key, since a schedule has each op several times. */
typedef struct
{
  guint node[CACHE_SIZE]; /* 1 + the node whose op has this key; 0: none */
  gboolean is_timed[CACHE_SIZE];
  TimeKey key[CACHE_SIZE];
} TimeCache;

#define DTYPE_BITS 4
G_STATIC_ASSERT (PLAN_N_DTYPES < 1 << DTYPE_BITS && PLAN_MAX_REFS * DTYPE_BITS <= 64);

/* Formats of an op's operands, packed; 0 where there is no operand. */
static guint64
dtypes_of (const PlanSchedule *schedule, const PlanOp *op)
{
  guint64 dtypes = 0;
  for (guint i = 0; i < plan_op_n_refs (op->kind); i++)
    {
      const gint32 array = op->refs[i].array;
      dtypes <<= DTYPE_BITS;
      dtypes |= array < 0 ? 0 : (guint64)plan_schedule_buffer (schedule, (guint)array)->dtype + 1;
    }
  return dtypes;
}

static guint64
what_of (const PlanOp *op)
{
  return (guint64)op->kind << 32 | (guint64)op->manner << 16 | (guint64)op->stream << 8
         | (guint8)op->group;
}

static guint
place_of (const PlanOp *op)
{
  guint64 hash = op->kind;
  for (guint i = 0; i < PLAN_MAX_DIMS; i++)
    hash = (hash ^ (guint64)op->dims[i]) * G_GUINT64_CONSTANT (0x9E3779B97F4A7C15);
  return (guint)(hash >> 32) % CACHE_SIZE;
}

/* Seconds of the copies for a gather of a list of tensors. The data is copied twice: to buffers by
 * rank, and then piece by piece to where it belongs, with one call of the host per piece. A
 * stream's queue holds about a thousand such calls, so a host that was ahead soon has to wait for
 * them; the second copy therefore takes at least as long as its calls. */
static double
copying_seconds (const SimCostInput *input, const PlanOp *op)
{
  const gint64 pieces = sim_cost_pieces (input, op);
  if (pieces == 0)
    return 0;
  const PlanDtype dtype
      = plan_schedule_buffer (input->schedule, (guint)op->refs[PLAN_REF_ALL_GATHER_out].array)
            ->dtype;
  const gint64 ranks = plan_schedule_group_size (input->schedule, op);
  const double bytes
      = (double)plan_dtype_bytes (dtype, (guint64)(op->dims[PLAN_DIM_ALL_GATHER_count] * ranks));
  const double copy
      = 2 * bytes
        / (input->cluster->memory_bytes_per_s * sim_cost_param (input, SIM_PARAM_TRAFFIC_COPY));
  const double calls = 1e-9 * (double)(pieces * input->stack->weights.copy_ns);
  return copy + MAX (copy, calls);
}

/* Whether an op goes with another one, as one call. */
static gboolean
is_without_call (const SimCostInput *input, double calls)
{
  return calls <= 0 && sim_cost_joins (input);
}

static gboolean
find_times (SimCost *self, const SimCostInput *input, guint node, double calls,
            gboolean *out_is_timed, GError **error)
{
  const PlanOp *op = plan_schedule_node (input->schedule, node);
  SimTime time;
  /* what goes with another collective was not timed so */
  *out_is_timed = !is_without_call (input, calls) && sim_cost_timed (input, op, calls, &time);
  if (!*out_is_timed)
    time = plan_op_class (op->kind) == PLAN_CLASS_COLLECTIVE
               ? sim_cost_collective (input, op, calls)
               : sim_cost_compute (input, op, error);
  if (time.seconds < 0)
    return FALSE;
  if (!*out_is_timed)
    time.seconds += copying_seconds (input, op)
                    + 1e-9 * sim_cost_param (input, SIM_PARAM_KERNEL_NS)
                          * (double)sim_cost_further_ops (input, op);
  self->of[node] = (NodeCost){ .ns = (gint64)(time.seconds * 1e9 + 0.5),
                               .memory_bytes = (guint64)(time.memory + 0.5),
                               .sms = time.sms,
                               .load = load_of (input, op, &time),
                               .provenance = (guint8)time.provenance };
  return TRUE;
}

/* Does what find_times does, but takes the times of an op with the same key where there is one. */
static gboolean
find_times_cached (SimCost *self, const SimCostInput *input, guint node, double calls,
                   TimeCache *cache, gboolean *out_is_timed, GError **error)
{
  const PlanOp *op = plan_schedule_node (input->schedule, node);
  const guint64 what = what_of (op), dtypes = dtypes_of (input->schedule, op);
  const gint64 pieces = sim_cost_pieces (input, op);
  const guint place = place_of (op), known = cache->node[place];
  TimeKey *key = &cache->key[place];
  if (known && key->what == what && key->dtypes == dtypes && key->pieces == pieces
      && key->calls == calls && memcmp (key->dims, op->dims, sizeof key->dims) == 0)
    self->of[node] = self->of[known - 1];
  else if (!find_times (self, input, node, calls, &cache->is_timed[place], error))
    return FALSE;
  else
    {
      *key = (TimeKey){ .what = what, .dtypes = dtypes, .pieces = pieces, .calls = calls };
      memcpy (key->dims, op->dims, sizeof key->dims);
    }
  cache->node[place] = node + 1;
  *out_is_timed = cache->is_timed[place];
  return TRUE;
}

SimCostInput
sim_cost_input (const PlanCase *of, const PlanSchedule *schedule)
{
  return (SimCostInput){
    .schedule = schedule,
    .cluster = of->cluster,
    .stack = of->stack,
    .model = of->model,
    .plan = &of->plan,
  };
}

SimCost *
sim_cost_new (const SimCostInput *input, GError **error)
{
  SimCostInput complete = *input;
  TimeCache cache;
  if (!complete.params)
    complete.params = sim_params_default (input->cluster);
  if (!check_links (&complete, error))
    return NULL;
  g_autoptr (SimCost) self = cost_new (input->schedule);
  self->is_serial = input->cluster->kind == PLAN_DEVICE_CPU;
  g_autofree gboolean *holds = g_new0 (gboolean, plan_schedule_n_buffers (input->schedule) + 1);
  SimGradients gradients = { .holds = holds };
  g_auto (SimCalls) calls;
  sim_calls_init (&calls);
  memset (cache.node, 0, sizeof cache.node);
  for (guint node = 0; node < plan_schedule_n_nodes (input->schedule); node++)
    {
      const PlanOp *op = plan_schedule_node (input->schedule, node);
      NodeCost *of = &self->of[node];
      gboolean is_timed = FALSE;
      *of = (NodeCost){ .provenance = SIM_PROVENANCE_DATASHEET, .launches = launches_of (op, 0) };
      const gboolean reads_gradient = sim_gradients_next (&gradients, op);
      const double n_calls = sim_calls_next (&calls, &complete, op);
      if (!takes_time (op))
        continue;
      const PlanLaunch launch = sim_cost_launch (input->schedule, op, reads_gradient);
      if (op->kind != PLAN_OP_PREPARE
          && !find_times_cached (self, &complete, node, n_calls, &cache, &is_timed, error))
        return NULL;
      /* the timing of an op on a CPU includes issuing it; a CUDA graph is launched by the host as a
       * whole, once */
      const gboolean is_joined = is_without_call (&complete, n_calls);
      const gboolean is_launched
          = !is_joined && (!is_timed || !self->is_serial)
            && (op->kind == PLAN_OP_PREPARE || !plan_schedule_is_graph (input->schedule));
      of->launch_ns = is_launched ? host_time (&complete, op, launch) : 0;
      of->launches = launches_of (op, is_joined || op->graph == PLAN_GRAPH_WITHIN ? 0
                                      : op->graph != PLAN_GRAPH_NONE
                                          ? 1
                                          : sim_cost_kernels (&complete, op, launch));
    }
  return g_steal_pointer (&self);
}

SimCost *
sim_cost_new_constant (const PlanSchedule *schedule, gint64 op_ns, gint64 launch_ns)
{
  SimCost *self = cost_new (schedule);
  for (guint node = 0; node < plan_schedule_n_nodes (schedule); node++)
    self->of[node] = takes_time (plan_schedule_node (schedule, node))
                         ? (NodeCost){ .ns = op_ns, .launch_ns = launch_ns }
                         : (NodeCost){ 0 };
  return self;
}

void
sim_cost_free (SimCost *self)
{
  g_free (self);
}

gint64
sim_cost_ns (const SimCost *self, guint node)
{
  return self->of[node].ns;
}

SimProvenance
sim_cost_provenance (const SimCost *self, guint node)
{
  return self->of[node].provenance;
}

gint64
sim_cost_launch_ns (const SimCost *self, guint node)
{
  return self->of[node].launch_ns;
}

guint
sim_cost_launches (const SimCost *self, guint node)
{
  return self->of[node].launches;
}

guint
sim_cost_sms (const SimCost *self, guint node)
{
  return self->of[node].sms;
}

guint64
sim_cost_memory_bytes (const SimCost *self, guint node)
{
  return self->of[node].memory_bytes;
}

SimLoad
sim_cost_load (const SimCost *self, guint node)
{
  return self->of[node].load;
}

void
sim_cost_set_load (SimCost *self, guint node, SimLoad load)
{
  self->of[node].load = load;
}

gboolean
sim_cost_is_serial (const SimCost *self)
{
  return self->is_serial;
}
