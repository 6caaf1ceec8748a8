/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives: the cheapest of the algorithms that NCCL may use for an operation, its links, its
 * version and what is registered. The time of each consists of a start, hops, and bytes over a
 * bandwidth; where a group reaches over nodes, the slower of the link inside and the network
 * between sets the pace. */
#include "config.h"

#include "sim/cost/cost-private.h"

/* NCCL versions as PLAN_NCCL holds them, major x 1000 + minor. */
#define NCCL_PAT 2023               /* log-depth gathers and reductions, one member per node */
#define NCCL_SYMMETRIC 2027         /* kernels on symmetric memory, inside an NVLink domain */
#define NCCL_COPY_ENGINE 2028       /* gathers by copy engines, where no processors are allowed */
#define NCCL_COPY_ENGINE_FIRST 2029 /* as above, but unasked, on Blackwell (enqueue.cc) */
#define NCCL_SYMMETRIC_REDUCE 2029  /* symmetric reduce-scatter over InfiniBand */

#define BLACKWELL 100 /* compute capability */

/* Latency of one hop over a network for which NCCL's table of latencies was made. */
#define TUNED_NET_NS 5000.0

/* NCCL's protocols, by which a receiver sees that data has come, in the order of their
 * parameters. */
typedef enum
{
  LL,
  LL128,
  SIMPLE,
} Protocol;

/* One way to do a collective, with what it takes. */
typedef struct
{
  double seconds;
  /* Parts of `seconds` in which the links, and the network, are busy. */
  double link_seconds, network_seconds;
  double sms;
  gboolean is_staged; /* its data goes through the library's own buffers */
} Way;

typedef struct
{
  const SimCostInput *input;
  /* Number of members, of the members in one node, and of nodes. */
  gint64 ranks, linked, nodes;
  double bytes; /* size as nccl-tests counts it: the whole, gathered or before reduction; or that of
                   one member's message to another */
  /* B/s of one device inside a node, and of all members in a node together to other nodes. */
  double link, nics;
  double port;  /* B/s to other nodes of a member that sends by itself */
  double calls; /* number of calls that do the collective */
  gboolean is_reduction, is_all_reduce, crosses, has_nvlink, is_registered, has_sharp;
  gint64 nccl;
  Way best;
} Collective;

static double
param (const Collective *self, SimParam which)
{
  return sim_cost_param (self->input, which);
}

static gint64
value (const Collective *self, PlanField field, gint64 otherwise)
{
  return self->input->plan ? self->input->plan->value[field] : otherwise;
}

/* Considers a way whose calls together take a latency and then use link and network side by side.
 */
static void
consider_whole (Collective *self, double latency, Way way)
{
  way.seconds = latency + MAX (way.link_seconds, way.network_seconds);
  if (way.seconds < self->best.seconds)
    self->best = way;
}

/* Considers a way of which each call takes a latency. */
static void
consider (Collective *self, double latency, Way way)
{
  consider_whole (self, self->calls * latency, way);
}

static gint64
log2_up (gint64 n)
{
  gint64 levels = 0;
  while ((G_GINT64_CONSTANT (1) << levels) < n)
    levels++;
  return levels;
}

/* Latency of one hop over the network. The protocol's parameter scales the latency for which NCCL's
 * table was made; a slower network's excess over that latency is added in every protocol. */
static double
net_hop (const Collective *self, SimParam hop)
{
  const double latency = (double)self->input->cluster->nic_latency_ns;
  const double usual = MIN (latency, TUNED_NET_NS);
  return 1e-9 * (param (self, hop) * usual + latency - usual);
}

/* Bytes that each member sends in a gather or a reduction, whatever the algorithm. */
static double
sent_by_each (const Collective *self)
{
  return self->bytes * (double)(self->ranks - 1) / (double)self->ranks;
}

/* Time that a collective takes before the first byte: that of its protocol or algorithm, and that
 * of the network where the group reaches over nodes. */
static double
start (const Collective *self, SimParam own)
{
  return 1e-9 * (param (self, own) + (self->crosses ? param (self, SIM_PARAM_NET_NS) : 0));
}

/* Number of processors (SMs) that a way through the library's own buffers keeps busy. */
static double
processors (const Collective *self)
{
  if (!self->crosses)
    return param (self, SIM_PARAM_RING_SMS);
  if (self->has_sharp && self->is_registered)
    return param (self, self->linked > 1 ? SIM_PARAM_SHARP_SMS : SIM_PARAM_RAIL_GATHER_SMS);
  if (self->linked > 1)
    return param (self, SIM_PARAM_NET_SMS);
  return param (self, self->is_registered && !self->is_reduction ? SIM_PARAM_RAIL_GATHER_SMS
                                                                 : SIM_PARAM_RAIL_REDUCE_SMS);
}

/* A way that sends `bytes` through every link, at the given share of its bandwidth, and through the
 * ports of each node's members where the group reaches over nodes. */
static Way
sending (const Collective *self, double bytes, SimParam link_share)
{
  const double port = self->nics * param (self, SIM_PARAM_NET_SHARE);
  return (Way){ .link_seconds
                = self->linked > 1 ? bytes / (self->link * param (self, link_share)) : 0,
                .network_seconds = self->crosses ? bytes / port : 0,
                .sms = processors (self),
                .is_staged = TRUE };
}

/* Number of chunks that may be in flight to a neighbour. There are buffers for eight
 * steps, and a chunk of Simple takes four of them (NCCL src/include/collectives.h). */
static double
in_flight (Protocol protocol)
{
  return protocol == SIMPLE ? 2 : 8;
}

/* Time between two chunks to another node. A buffer is free again once the receiver's answer is
 * back, and several chunks are under way in that time. */
static double
chunk_interval (const Collective *self, Protocol protocol)
{
  return 2 * net_hop (self, SIM_PARAM_LL_NET_HOP + (SimParam)protocol) / in_flight (protocol);
}

/* Latency of so many hops inside nodes and between them, one after the other. */
static double
hops (const Collective *self, Protocol protocol, gint64 inside, gint64 across)
{
  const double hop = 1e-9 * (double)self->input->cluster->link_latency_ns
                     * param (self, SIM_PARAM_LL_HOP + (SimParam)protocol);
  return (double)inside * hop
         + (double)across * net_hop (self, SIM_PARAM_LL_NET_HOP + (SimParam)protocol);
}

/* Considers a ring: every rank sends to the next ranks - 1 times; an all-reduce goes round twice.
 * There is a ring per network port of the members, so that all ports work side by side between
 * nodes. A share passes all edges of the ring but one. Where nodes have several members, that edge
 * is inside a node for most shares, so the slowest share crosses as many borders as there are
 * nodes; with one member per node it crosses one less.
 *
 * The time is the longer of two: all hops, and then all bytes; or, between nodes, every step's wait
 * for a free buffer, and the time of the bytes over the chunks in flight. The time of all bytes is
 * added to the longer one afterwards, so it is subtracted from the second beforehand. */
static void
consider_rings (Collective *self, Protocol protocol, double bandwidth)
{
  const double rounds = self->is_all_reduce ? 2 : 1;
  const double begin = start (self, SIM_PARAM_LL_NS + (SimParam)protocol);
  const gint64 across = self->linked > 1 && self->crosses ? self->nodes : self->nodes - 1;
  const double around = hops (self, protocol, self->ranks - 1 - across, across);
  const double waits
      = self->crosses ? (double)(self->ranks - 1) * chunk_interval (self, protocol) : 0;
  const Way way = sending (self, rounds * sent_by_each (self) / bandwidth, SIM_PARAM_RING_SHARE);
  const double busy = MAX (way.link_seconds, way.network_seconds);
  const double calls = self->calls;
  consider_whole (self,
                  calls * begin
                      + MAX (calls * rounds * around,
                             calls * rounds * waits + busy / in_flight (protocol) - busy),
                  way);
}

/* Considers two trees over the nodes for an all-reduce: each takes half of the data up and down;
 * inside each node the members form a chain. */
static void
consider_tree (Collective *self, Protocol protocol, double bandwidth)
{
  if (self->is_all_reduce)
    consider (self,
              start (self, SIM_PARAM_LL_NS + (SimParam)protocol)
                  + 2 * hops (self, protocol, self->linked - 1, log2_up (self->nodes)),
              sending (self, 2 * self->bytes / bandwidth, SIM_PARAM_TREE_SHARE));
}

static void
consider_protocol (Collective *self, Protocol protocol)
{
  const double bandwidth
      = protocol == SIMPLE ? 1 : param (self, SIM_PARAM_LL_SHARE + (SimParam)protocol);
  if (bandwidth <= 0 || (protocol == LL128 && !self->has_nvlink))
    return;
  consider_rings (self, protocol, bandwidth);
  consider_tree (self, protocol, bandwidth);
}

/* Considers reduction and multicast by NVSwitch (NVLS): each device sends the data once and takes
 * its share once more. Nodes then exchange shares by trees, or through network switches that reduce
 * too. */
static void
consider_nvls (Collective *self, PlanDtype dtype)
{
  if (!self->is_all_reduce || self->input->cluster->nvls != PLAN_ANSWER_YES || self->linked < 2
      || plan_dtype_bits (dtype) < 16)
    return;
  const double inside = self->bytes * (1 + 1 / (double)self->linked)
                        / (self->link * param (self, SIM_PARAM_NVLS_SHARE));
  double across = 0, latency = start (self, SIM_PARAM_NVLS_NS);
  if (self->crosses)
    {
      const double sent = self->has_sharp ? 1 : 2 * (double)(self->nodes - 1) / (double)self->nodes;
      across = self->bytes * sent / (self->nics * param (self, SIM_PARAM_NET_SHARE));
      latency += 2 * (double)(self->has_sharp ? 1 : log2_up (self->nodes))
                 * net_hop (self, SIM_PARAM_SIMPLE_NET_HOP);
    }
  consider (self, latency,
            (Way){ .link_seconds = inside,
                   .network_seconds = across,
                   .sms = self->crosses ? processors (self) : param (self, SIM_PARAM_NVLS_SMS),
                   .is_staged = !self->is_registered });
}

/* Whether NCCL does gathers by copy engines: where communicators are made to take no processors,
 * and on Blackwell in newer versions. PyTorch makes such communicators only when told to, and no
 * framework here but our own runtime does. */
static gboolean
uses_engines (const Collective *self)
{
  return (self->input->stack->host.cta_policy == PLAN_CTA_ZERO && self->nccl >= NCCL_COPY_ENGINE)
         || (self->nccl >= NCCL_COPY_ENGINE_FIRST
             && self->input->cluster->compute_capability >= BLACKWELL);
}

/* Number of processors that kernels on registered memory keep busy. Where switches multicast and
 * reduce, each processor moves more the more members there are, so fewer are enough. */
static double
symmetric_processors (const Collective *self)
{
  if (self->input->cluster->nvls != PLAN_ANSWER_YES)
    return param (self, SIM_PARAM_SYMMETRIC_SMS);
  const double busy = param (self, SIM_PARAM_MULTICAST_SMS);
  gint64 n = 1;
  while ((double)(n * self->ranks) < busy)
    n++;
  return (double)n;
}

/* Considers kernels and copy engines that read or write the registered memory of all members
 * directly. None of them does an all-reduce here. */
static void
consider_registered (Collective *self, PlanDtype dtype)
{
  Way direct = sending (self, sent_by_each (self), SIM_PARAM_SYMMETRIC_SHARE);
  Way engines = sending (self, sent_by_each (self), SIM_PARAM_ENGINE_SHARE);
  const double begin = start (self, SIM_PARAM_SYMMETRIC_NS);
  direct.is_staged = engines.is_staged = FALSE;
  engines.sms = 0;
  if (!self->is_registered || self->is_all_reduce || !self->has_nvlink || self->linked < 2)
    return;
  if (self->is_reduction && dtype != PLAN_DTYPE_BF16
      && value (self, PLAN_PER_TOKEN_LOSS, PLAN_PER_TOKEN_LOSS_ON) != PLAN_PER_TOKEN_LOSS_ON)
    return; /* these kernels only sum: a reduction that also scales takes the ring; gradients in
               bf16 are scaled before it */
  if (self->crosses && self->is_reduction && self->nccl >= NCCL_SYMMETRIC_REDUCE)
    consider (self, begin + (double)(self->nodes - 1) * net_hop (self, SIM_PARAM_LL128_NET_HOP),
              direct);
  if (self->crosses)
    return;
  direct.sms = symmetric_processors (self);
  if (self->nccl >= NCCL_SYMMETRIC)
    consider (self, begin, direct);
  if (!self->is_reduction && uses_engines (self))
    consider (self, start (self, SIM_PARAM_ENGINE_NS), engines);
}

/* Whether a collective of tensor parallelism goes through user buffers, memory that the other ranks
 * reach directly. Products in pieces exchange by a copy engine and a flag (TransformerEngine
 * userbuffers.cu, use_ce; PyTorch _symmetric_memory). The gathers and reductions of layers with
 * user buffers run kernels that read the memory of all ranks at once. Our own runtime sends parts
 * by NCCL. */
static gboolean
has_user_buffers (const Collective *self, const PlanOp *op)
{
  const gint64 overlap = value (self, PLAN_TP_OVERLAP, PLAN_TP_OVERLAP_NONE);
  return op->stream == PLAN_STREAM_TENSOR && !self->is_all_reduce
         && self->input->stack->layer.kernels != PLAN_KERNELS_OWN
         && (overlap == PLAN_TP_OVERLAP_UB
             || (overlap == PLAN_TP_OVERLAP_ASYNC && op->kind == PLAN_OP_EXCHANGE));
}

static void
consider_user_buffers (Collective *self, const PlanOp *op)
{
  const gboolean is_exchange = op->kind == PLAN_OP_EXCHANGE;
  const double begin = start (self, SIM_PARAM_SYMMETRIC_NS);
  Way way = is_exchange ? sending (self, self->bytes, SIM_PARAM_ENGINE_SHARE)
                        : sending (self, sent_by_each (self), SIM_PARAM_SYMMETRIC_SHARE);
  way.sms = is_exchange ? 0 : param (self, SIM_PARAM_USER_BUFFER_SMS);
  way.is_staged = FALSE;
  consider (self, begin, way);
}

/* Considers recursive doubling (PAT), for one member per node: the distance between partners
 * doubles at every step. */
static void
consider_doubling (Collective *self)
{
  if (self->is_all_reduce || self->linked > 1 || !self->crosses || self->nccl < NCCL_PAT
      || self->input->cluster->kind != PLAN_DEVICE_GPU)
    return;
  consider (self,
            start (self, SIM_PARAM_SIMPLE_NS)
                + (double)log2_up (self->nodes) * net_hop (self, SIM_PARAM_SIMPLE_NET_HOP),
            sending (self, sent_by_each (self), SIM_PARAM_RING_SHARE));
}

/* The share of the bytes to other nodes that first crosses a link inside the node, because the
 * device on the receiver's rail sends them on (PXN). Without NVLink the rails are crossed in the
 * network. */
static double
relayed (const Collective *self)
{
  const gint64 rails = MIN (self->input->cluster->rails, self->linked);
  return self->has_nvlink && rails > 1 ? (double)(rails - 1) / (double)rails : 0;
}

/* Considers sending straight to other members: to a neighbour, or to each member its part. Each
 * member receives as much as it sends, and has a port and a link of its own. */
static void
consider_direct (Collective *self, const PlanOp *op)
{
  const gboolean is_exchange = op->kind == PLAN_OP_EXCHANGE;
  const double part = is_exchange ? self->bytes : self->bytes / (double)self->ranks;
  const double across
      = is_exchange ? (self->crosses ? 1 : 0) : (double)(self->ranks - self->linked);
  const double inside = is_exchange ? (self->linked > 1 ? 1 : 0)
                                    : (double)(self->linked - 1) + across * relayed (self);
  const double link = self->link * param (self, SIM_PARAM_RING_SHARE);
  const double port = self->port * param (self, SIM_PARAM_NET_SHARE);
  consider (self,
            start (self, SIM_PARAM_SIMPLE_NS)
                + hops (self, SIMPLE, self->crosses ? 0 : 1, self->crosses ? 1 : 0),
            (Way){ .link_seconds = inside > 0 ? inside * part / link : 0,
                   .network_seconds = across > 0 ? across * part / port : 0,
                   .sms = processors (self),
                   .is_staged = TRUE });
}

/* Processors that a library's kernels for experts keep busy (Megatron-LM's defaults). */
#define DEEPEP_SMS 20
#define HYBRIDEP_SMS 16

/* Considers sending tokens to the ranks of their experts: over the network once to each node, and
 * from there over the link to each rank (DeepEP's csrc/kernels/internode.cu; hybrid-ep does the
 * same). */
static void
consider_tokens (Collective *self, const PlanOp *op, PlanDtype dtype)
{
  const double row = (double)plan_dtype_bytes (dtype, (guint64)op->dims[PLAN_DIM_SEND_TOKENS_cols]);
  const double near = row * (double)op->dims[PLAN_DIM_SEND_TOKENS_near];
  const double far = row * (double)op->dims[PLAN_DIM_SEND_TOKENS_far];
  const gboolean is_hybrid = value (self, PLAN_MOE_DISPATCHER, PLAN_MOE_DISPATCHER_DEEPEP)
                             == PLAN_MOE_DISPATCHER_HYBRIDEP;
  self->bytes = row * (double)op->dims[PLAN_DIM_SEND_TOKENS_out_rows];
  consider (self,
            start (self, SIM_PARAM_SIMPLE_NS)
                + hops (self, SIMPLE, self->crosses ? 0 : 1, self->crosses ? 1 : 0),
            (Way){ .link_seconds
                   = near > 0 ? near / (self->link * param (self, SIM_PARAM_RING_SHARE)) : 0,
                   .network_seconds
                   = far > 0 ? far / (self->port * param (self, SIM_PARAM_NET_SHARE)) : 0,
                   .sms = is_hybrid ? HYBRIDEP_SMS : DEEPEP_SMS,
                   .is_staged = TRUE });
}

/* Considers the exchange between two stages, over the link or over the sender's own port. Both
 * directions are used at once, unless a framework sends one message after the other. */
static void
consider_trade (Collective *self, const PlanOp *op)
{
  const PlanSchedule *schedule = self->input->schedule;
  const PlanGroup *group = plan_schedule_group (schedule, (guint)op->group);
  const gint64 linked = plan_cluster_linked_devices (self->input->cluster);
  const gint64 rank = plan_schedule_rank (schedule);
  const gint64 mine = rank / group->stride % group->size;
  const gint64 peer = rank + (op->dims[PLAN_DIM_TRADE_peer] - mine) * group->stride;
  const gboolean goes_both_ways
      = op->refs[PLAN_REF_TRADE_out].array >= 0 && op->refs[PLAN_REF_TRADE_in].array >= 0;
  const double turns
      = goes_both_ways && self->input->stack->pipeline.trades == PLAN_TRADES_IN_TURN ? 2 : 1;
  self->crosses = rank / linked != peer / linked;
  const double bytes = self->bytes * turns;
  const double link = self->link * param (self, SIM_PARAM_RING_SHARE);
  const double port = self->port * param (self, SIM_PARAM_NET_SHARE);
  self->calls *= turns;
  consider (self,
            start (self, SIM_PARAM_SIMPLE_NS)
                + hops (self, SIMPLE, self->crosses ? 0 : 1, self->crosses ? 1 : 0),
            (Way){ .link_seconds = self->crosses ? 0 : bytes / link,
                   .network_seconds = self->crosses ? bytes / port : 0,
                   .sms = processors (self),
                   .is_staged = TRUE });
}

gint64
sim_cost_linked (const PlanCluster *cluster, const PlanGroup *group)
{
  const gint64 linked = plan_cluster_linked_devices (cluster);
  if (plan_cluster_devices (cluster) <= linked)
    return group->size; /* all devices are linked: the stride, which between a pipeline's ends need
                           not divide the number of devices, does not matter */
  return CLAMP (linked / (gint64)group->stride, 1, (gint64)group->size);
}

gint64
sim_cost_nodes (const PlanCluster *cluster, const PlanGroup *group)
{
  const gint64 linked = sim_cost_linked (cluster, group);
  return ((gint64)group->size + linked - 1) / linked;
}

/* Rate of a device that sends by itself. It shares the port nearest to it with all devices that use
 * that port. A device far from all ports gets no more than the host carries, unless a device near a
 * port sends on for it (PXN). Where a cluster does not say which device is near which port, its
 * ports are shared evenly. */
static double
own_port (const PlanCluster *c, gboolean has_nvlink)
{
  const double ports = (double)MAX (c->nics_per_node / c->devices_per_node, 1);
  const gboolean is_relayed = has_nvlink && c->far_devices < c->devices_per_node;
  double rate = c->nic_bytes_per_s;
  if (c->nic_sharers > 0 && c->nic_rate_bytes_per_s > 0)
    rate = MIN (rate, c->nic_rate_bytes_per_s * ports / (double)c->nic_sharers);
  if (c->far_devices > 0 && c->far_bytes_per_s > 0 && !is_relayed)
    rate = MIN (rate, c->far_bytes_per_s);
  return rate;
}

/* Rate of a node's members together. Rings over NVLink reach every port through the device nearest
 * to it. */
static double
all_ports (const Collective *self, const PlanCluster *c)
{
  const gboolean reaches_all
      = self->linked > 1 && self->has_nvlink && c->far_devices < c->devices_per_node;
  return (reaches_all ? c->nic_bytes_per_s : self->port) * (double)self->linked;
}

/* Whether a collective's buffer lies in a pool. Pools are the only registered memory of stacks with
 * a caching allocator. Buffers that stay for good lie in pools. Of those that come and go, only
 * sets that units use in turns do. */
static gboolean
lies_in_pool (const SimCostInput *input, const PlanOp *op)
{
  const PlanRef *out = &op->refs[PLAN_REF_ALL_GATHER_out];
  const PlanBuffer *buffer = plan_schedule_buffer (input->schedule, (guint)out->array);
  const gboolean comes_and_goes = buffer->category == PLAN_CATEGORY_GATHERED
                                  || buffer->category == PLAN_CATEGORY_GRAD_BUCKETS;
  return !comes_and_goes || out->modulus > 0;
}

/* Whether each member sends one message to one other. */
static gboolean
is_to_one (PlanOpKind kind)
{
  return kind == PLAN_OP_EXCHANGE || kind == PLAN_OP_TRADE;
}

/* B/s of a device inside a node. Through switches it is that of the whole link. In a mesh a device
 * has one link to each other device: a group uses only the links to its members, and a message to
 * one member only one link. */
static double
link_of (const PlanCluster *c, gint64 linked, PlanOpKind kind)
{
  const gint64 used = is_to_one (kind) ? 1 : CLAMP (linked - 1, 1, c->mesh_links);
  return c->mesh_links > 0 ? c->link_bytes_per_s * (double)used / (double)c->mesh_links
                           : c->link_bytes_per_s;
}

static void
describe (Collective *self, const SimCostInput *input, const PlanOp *op, PlanDtype dtype)
{
  const PlanCluster *c = input->cluster;
  const PlanGroup *group = plan_schedule_group (input->schedule, (guint)op->group);
  *self = (Collective){ .input = input, .best = { .seconds = G_MAXDOUBLE } };
  self->ranks = group->size;
  self->linked = sim_cost_linked (c, group);
  self->nodes = sim_cost_nodes (c, group);
  self->crosses = self->nodes > 1;
  self->is_all_reduce = op->kind == PLAN_OP_ALL_REDUCE || op->kind == PLAN_OP_ALL_REDUCE_MAX;
  self->is_reduction = self->is_all_reduce || op->kind == PLAN_OP_REDUCE_SCATTER;
  const gint64 parts = self->is_all_reduce || is_to_one (op->kind) ? 1 : self->ranks;
  self->bytes
      = (double)plan_dtype_bytes (dtype, (guint64)(op->dims[PLAN_DIM_ALL_GATHER_count] * parts));
  self->link = link_of (c, self->linked, op->kind);
  self->has_nvlink = c->nvlink_domain > 1;
  self->port = own_port (c, self->has_nvlink);
  self->nics = all_ports (self, c);
  self->nccl = value (self, PLAN_NCCL, 0);
  self->is_registered
      = value (self, PLAN_NCCL_UB, PLAN_NCCL_UB_OFF) == PLAN_NCCL_UB_ON
        && op->stream != PLAN_STREAM_TENSOR && op->stream != PLAN_STREAM_EXPERTS
        && (input->stack->memory.allocator == PLAN_ALLOCATOR_ARENA || lies_in_pool (input, op));
  const gint64 sharp = value (self, PLAN_SHARP, PLAN_SHARP_OFF);
  self->has_sharp = c->sharp == PLAN_ANSWER_YES && self->crosses
                    && (sharp == PLAN_SHARP_IB || sharp == PLAN_SHARP_NVL_IB);
}

static void
consider_algorithms (Collective *self, PlanDtype dtype)
{
  for (Protocol protocol = LL; protocol <= SIMPLE; protocol++)
    consider_protocol (self, protocol);
  consider_nvls (self, dtype);
  consider_registered (self, dtype);
  consider_doubling (self);
}

/* How often each byte of a collective goes through a device's memory. With the library's buffers it
 * is written to them, read from them, and written where it belongs or added to what is there; what
 * is sent on comes from registers. Without them, a gather reads and writes each byte, and a
 * reduction only reads it. */
static double
memory_passes (const Collective *self)
{
  if (self->best.is_staged)
    return self->is_all_reduce ? 6 : 3;
  return self->is_reduction && !self->is_all_reduce ? 1 : 2;
}

SimTime
sim_cost_collective (const SimCostInput *input, const PlanOp *op, double calls)
{
  const guint present = op->refs[PLAN_REF_ALL_GATHER_out].array >= 0 ? PLAN_REF_ALL_GATHER_out
                                                                     : PLAN_REF_ALL_GATHER_in;
  const PlanDtype dtype
      = plan_schedule_buffer (input->schedule, (guint)op->refs[present].array)->dtype;
  Collective self;
  describe (&self, input, op, dtype);
  self.calls = calls;
  SimTime time = { .provenance
                   = input->params->is_fitted ? SIM_PROVENANCE_FITTED : SIM_PROVENANCE_DATASHEET };
  if (self.ranks == 1)
    return time;
  if (has_user_buffers (&self, op))
    consider_user_buffers (&self, op);
  else if (op->kind == PLAN_OP_TRADE)
    consider_trade (&self, op);
  else if (op->kind == PLAN_OP_SEND_TOKENS)
    consider_tokens (&self, op, dtype);
  else if (op->kind == PLAN_OP_EXCHANGE || op->kind == PLAN_OP_ALL_TO_ALL)
    consider_direct (&self, op);
  else
    consider_algorithms (&self, dtype);
  time.seconds = self.best.seconds;
  time.link_seconds = self.best.link_seconds;
  time.network_seconds = self.best.network_seconds;
  time.sms = (guint)self.best.sms;
  time.memory = self.bytes * memory_passes (&self);
  return time;
}
