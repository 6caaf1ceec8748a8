/* Shared by the parts of the cost model: what one op costs, and the functions that find it. */
#pragma once
#include "planner/schedule/schedule.h"
#include "sim/cost/cost.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  double seconds; /* below 0: the cost is not known, and an error says why */
  SimProvenance provenance;
  guint sms;     /* processors it keeps from other ops */
  double memory; /* bytes it reads and writes */
  double link_seconds,
      network_seconds; /* for which links and network would be busy at their full rate */
} SimTime;

/* Element formats of GEMMs. */
typedef enum
{
  SIM_FORMAT_FP32,
  SIM_FORMAT_BF16,
  SIM_FORMAT_FP8,
  SIM_FORMAT_MXFP8,
  SIM_FORMAT_NVFP4,
} SimFormat;

/* Bytes that an op reads and writes, each operand once. */
double sim_cost_traffic (const SimCostInput *input, const PlanOp *op);

/* sim_cost_linked: the number of members of a group that reach one another without the network.
 * sim_cost_nodes: the number of such sets of members in the group. */
gint64 sim_cost_linked (const PlanCluster *cluster, const PlanGroup *group);
gint64 sim_cost_nodes (const PlanCluster *cluster, const PlanGroup *group);

/* The time of an op that was timed on this machine, at this size or at others. FALSE where no such
 * op was timed. `calls`: see sim_calls_next. */
gboolean sim_cost_timed (const SimCostInput *input, const PlanOp *op, double calls,
                         SimTime *out_time);

/* Which buffers hold gradients, while the nodes of a schedule are gone through in order. Starts as
 * zeros. */
typedef struct
{
  gboolean *holds; /* per array */
} SimGradients;

gboolean sim_gradients_next (SimGradients *self, const PlanOp *op); /* TRUE: the op reads one */

/* Whether an op turns queries and keys kernel by kernel: on Megatron's stacks, where yarn also
 * scales them, which Transformer Engine's fused kernel does not do (Megatron-LM's
 * core/models/common/embeddings/rope_utils.py, apply_rotary_pos_emb). */
gboolean sim_cost_turns_by_ops (const SimCostInput *input, const PlanOp *op);

/* Whether an op is done by this project's kernels on a GPU; whether an op on parameters is for a
 * format with scales of blocks along rows and along columns. */
gboolean sim_cost_is_own_gpu (const SimCostInput *input);
gboolean sim_cost_has_blocks (const SimCostInput *input, const PlanOp *op);

/* Number of small ops that a framework issues one by one beside a router. */
gint64 sim_cost_further_ops (const SimCostInput *input, const PlanOp *op);

/* sim_cost_launch tells as what kind of work the host issues an op, sim_cost_host_ns how long that
 * takes, and sim_cost_kernels how many kernels it starts. */
PlanLaunch sim_cost_launch (const PlanSchedule *schedule, const PlanOp *op,
                            gboolean reads_gradient);
gint64 sim_cost_calls (const SimCostInput *input, const PlanOp *op); /* before a framework's own */
gint64 sim_cost_host_ns (const SimCostInput *input, const PlanOp *op, PlanLaunch launch);
guint sim_cost_kernels (const SimCostInput *input, const PlanOp *op, PlanLaunch launch);

/* Of a gather that is made as a list of tensors: the pieces (one per tensor and rank) it consists
 * of; 0 for any other op. */
gint64 sim_cost_pieces (const SimCostInput *input, const PlanOp *op);

SimTime sim_cost_compute (const SimCostInput *input, const PlanOp *op, GError **error);

/* Counts how many calls a framework makes for each op, while the nodes of a schedule are gone
 * through in order. It is 0 where the call for another op does this one, too, and less than 1 where
 * one call does the ops of several layers. */
typedef struct
{
  gint32 first_gather, first_sum; /* buffer arrays; -1: none yet */
  GArray *gradients;              /* those waiting to be reduced */
  guint64 waiting_bytes;          /* bytes of gradients that no call has sent yet */
  guint node, joined;             /* the next node; one whose op goes with an earlier one, or 0 */
} SimCalls;

void sim_calls_init (SimCalls *self);
void sim_calls_clear (SimCalls *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (SimCalls, sim_calls_clear)
double sim_calls_next (SimCalls *self, const SimCostInput *input, const PlanOp *op);

/* Whether small collectives are issued with others: over NCCL, by stacks that do so. Those have
 * no call of their own. */
static inline gboolean
sim_cost_joins (const SimCostInput *input)
{
  return input->stack->host.joins && input->cluster->kind == PLAN_DEVICE_GPU;
}

/* The time of a collective; each of its `calls` pays for the start and the hops. */
SimTime sim_cost_collective (const SimCostInput *input, const PlanOp *op, double calls);

static inline double
sim_cost_param (const SimCostInput *input, SimParam param)
{
  return input->params->value[param];
}

G_END_DECLS
