/* What the parts of the cost model share: the rates of one device, and one op's cost. */
#pragma once
#include "planner/schedule/schedule.h"
#include "sim/cost/cost.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  double seconds; /* below 0: it cannot be told, and an error says why */
  SimProvenance provenance;
  guint sms;                            /* processors it keeps from others */
  double memory;                        /* bytes it reads and writes */
  double link_seconds, network_seconds; /* at full pace, for what it sends */
} SimTime;

/* Element formats as products know them. */
typedef enum
{
  SIM_FORMAT_FP32,
  SIM_FORMAT_BF16,
  SIM_FORMAT_FP8,
  SIM_FORMAT_MXFP8,
  SIM_FORMAT_NVFP4,
} SimFormat;

/* Bytes an op reads and writes, each operand once. */
double sim_cost_traffic (const SimCostInput *input, const PlanOp *op);

/* Members of a group that reach one another without the network; how many such sets it has. */
gint64 sim_cost_linked (const PlanCluster *cluster, const PlanGroup *group);
gint64 sim_cost_nodes (const PlanCluster *cluster, const PlanGroup *group);

/* What was timed on this machine; FALSE where nothing like the op was. `calls`: of the library, as
 * of any collective. */
gboolean sim_cost_timed (const SimCostInput *input, const PlanOp *op, double calls,
                         SimTime *out_time);

/* Which buffers hold gradients, going through a schedule's nodes in their order; starts as zeros.
 */
typedef struct
{
  gboolean *holds; /* per array */
} SimGradients;

gboolean sim_gradients_next (SimGradients *self, const PlanOp *op); /* TRUE: it reads one */

/* As what the host issues an op that takes time; what it does for that, and how many kernels that
 * starts. */
PlanLaunch sim_cost_launch (const PlanSchedule *schedule, const PlanOp *op,
                            gboolean reads_gradient);
gint64 sim_cost_host_ns (const SimCostInput *input, const PlanOp *op, PlanLaunch launch);
guint sim_cost_kernels (const SimCostInput *input, const PlanOp *op, PlanLaunch launch);

/* Of a gather of lists: tensors' parts by ranks. */
gint64 sim_cost_pieces (const SimCostInput *input, const PlanOp *op);

SimTime sim_cost_compute (const SimCostInput *input, const PlanOp *op, GError **error);
/* By how many calls of a framework ops are done, going through a schedule's nodes in their order;
 * 0: by that of another op; less than 1: one in so many layers. */
typedef struct
{
  gint32 first_gather, first_sum; /* arrays; -1: none yet */
  GArray *gradients;              /* that are to be reduced */
  guint64 waiting_bytes;          /* of them, not sent off */
} SimCalls;

void sim_calls_init (SimCalls *self);
void sim_calls_clear (SimCalls *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (SimCalls, sim_calls_clear)
double sim_calls_next (SimCalls *self, const SimCostInput *input, const PlanOp *op);

/* `calls` pay for the start and the hops. */
SimTime sim_cost_collective (const SimCostInput *input, const PlanOp *op, double calls);

static inline double
sim_cost_param (const SimCostInput *input, SimParam param)
{
  return input->params->value[param];
}

G_END_DECLS
