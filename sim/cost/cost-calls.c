/* SPDX-License-Identifier: Apache-2.0 */
/* Counts how many calls a framework makes for what a schedule has as one op. A framework that
 * gathers all layers at once pays for one start and one way round the ring; one that reduces
 * gradients whenever a bucket is full pays for as many calls as there are buckets. */
#include "config.h"

#include "planner/schedule/joined.h"
#include "sim/cost/cost-private.h"

/* Number of equal layers that are walked to find how often a bucket fills. */
#define LAYERS_WALKED 32

/* A gradient that is accumulated, and its size as autograd made it. */
typedef struct
{
  PlanRef into;
  guint64 bytes;
} Gradient;

void
sim_calls_init (SimCalls *self)
{
  *self = (SimCalls){ .first_gather = -1,
                      .first_sum = -1,
                      .gradients = g_array_new (FALSE, FALSE, sizeof (Gradient)) };
}

void
sim_calls_clear (SimCalls *self)
{
  g_array_unref (self->gradients);
}

/* Notes a gradient for the next reduction. Every micro batch accumulates the same gradients again,
 * so a gradient moves to the place that it had in the latest micro batch. */
static void
note_gradient (SimCalls *self, const SimCostInput *input, const PlanOp *op)
{
  const PlanDtype dtype
      = plan_schedule_buffer (input->schedule, (guint)op->refs[PLAN_REF_ACCUMULATE_in].array)
            ->dtype;
  const Gradient new = { op->refs[PLAN_REF_ACCUMULATE_out],
                         plan_dtype_bytes (dtype, (guint64)op->dims[PLAN_DIM_ACCUMULATE_count]) };
  for (guint i = 0; i < self->gradients->len; i++)
    {
      const PlanRef *into = &g_array_index (self->gradients, Gradient, i).into;
      if (into->array == new.into.array && into->at == new.into.at)
        {
          g_array_remove_index (self->gradients, i);
          break;
        }
    }
  g_array_append_val (self->gradients, new);
}

/* Number of calls that one layer's reduction takes. A bucket is sent as soon as a gradient fills
 * it. */
static double
count_buckets (SimCalls *self, const SimCostInput *input, const PlanOp *op)
{
  const guint times = op->refs[0].loop >= 0 ? LAYERS_WALKED : 1;
  guint full = 0, found = 0;
  for (guint t = 0; t < times; t++)
    for (guint i = 0; i < self->gradients->len; i++)
      {
        const Gradient *g = &g_array_index (self->gradients, Gradient, i);
        if (g->into.array != op->refs[0].array)
          continue;
        found++;
        self->waiting_bytes += g->bytes;
        if (self->waiting_bytes < input->stack->grads.reduce_bytes)
          continue;
        self->waiting_bytes = 0;
        full++;
      }
  return found > 0 ? (double)full / (double)times : 1;
}

/* Returns 1 for the first buffer array that asks, since its call does the work of all arrays, and 0
 * for the others. */
static double
one_if_first (gint32 *first, const PlanOp *op)
{
  if (*first < 0)
    *first = op->refs[0].array;
  return op->refs[0].array == *first ? 1 : 0;
}

static gboolean
is_summed_at_once (const SimCostInput *input, const PlanOp *op)
{
  return input->stack->grads.fresh == PLAN_GRADS_LEFT && op->kind == PLAN_OP_ALL_REDUCE
         && op->stream == PLAN_STREAM_REDUCE && input->plan
         && input->plan->value[PLAN_STRATEGY] == PLAN_STRATEGY_OPTIM;
}

/* Whether an op is issued together with an earlier one (planner/schedule/joined.h), which GPUs' own
 * runtime does. */
static gboolean
is_joined (SimCalls *self, const SimCostInput *input)
{
  const guint node = self->node++;
  const gboolean is_joined = self->joined > 0 && node == self->joined;
  self->joined
      = MAX (self->joined, sim_cost_joins (input) ? plan_joined_next (input->schedule, node) : 0);
  return is_joined;
}

double
sim_calls_next (SimCalls *self, const SimCostInput *input, const PlanOp *op)
{
  const PlanStack *stack = input->stack;
  if (is_joined (self, input))
    return 0;
  if (op->kind == PLAN_OP_ACCUMULATE && stack->grads.reduce_bytes > 0)
    note_gradient (self, input, op);
  if (is_summed_at_once (input, op))
    return one_if_first (&self->first_sum, op);
  if (op->stream == PLAN_STREAM_REDUCE && stack->grads.reduce_bytes > 0
      && (op->kind == PLAN_OP_REDUCE_SCATTER || op->kind == PLAN_OP_ALL_REDUCE))
    return count_buckets (self, input, op);
  return sim_cost_pieces (input, op) > 0 ? one_if_first (&self->first_gather, op) : 1;
}
