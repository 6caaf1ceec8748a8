/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of experts that a group of ranks all-gathers and reduce-scatters: ranks that split an expert
 * (etp), or all ranks of the allgather dispatcher, each of which takes the tokens of its own
 * experts (Megatron-LM's token_dispatcher.py 233-372 and 716-814 at d98e8a64,
 * tensor_parallel/mappings.py). Sums are made in the format of the router's scores.
 *
 * If rows were sent by an all-to-all before, ranks have pieces of different sizes, and PyTorch
 * communicates a list of pieces. If no rank has other experts (ep = 1), all pieces have one size,
 * and PyTorch makes one collective of them by way of a buffer (ProcessGroupNCCL.cpp, allgather and
 * reduce_scatter). Our own kernels always have pieces of one size, with room behind their rows. */
#include "config.h"

#include "planner/lower/lower-emit.h"
#include "planner/lower/lower-layer-private.h"
#include "planner/lower/lower-step.h"

#define REF(array) plan_lower_ref (lower->array)
#define IS(self, field, id) ((self)->plan->value[PLAN_##field] == PLAN_##field##_##id)

static gint64
ranks_joined (const PlanLower *self)
{
  return self->joined.group < 0
             ? 1
             : plan_schedule_group (self->schedule, (guint)self->joined.group)->size;
}

static gint32
buffer (PlanLower *self, const char *name, gint64 rows, PlanDtype dtype)
{
  return plan_schedule_add_buffer (self->schedule, name, 1,
                                   (guint64)(rows * plan_model_expert_width (self->model)), dtype,
                                   PLAN_CATEGORY_ACTIVATIONS);
}

/* The allgather dispatcher: one buffer for all ranks' tokens, allocated once and used by all layers
 * and passes. */
static void
declare_joined_tokens (PlanLower *self)
{
  const PlanValue *joined = &self->graphs->values[PLAN_VALUE_JOINED];
  if (joined->elements == 0)
    return;
  self->joined.tokens = plan_schedule_add_buffer (self->schedule, "joined", 1, joined->elements,
                                                  joined->dtype, PLAN_CATEGORY_ACTIVATIONS);
  self->layer.value[PLAN_VALUE_JOINED] = self->joined.tokens;
}

void
plan_lower_declare_joined_rows (PlanLower *self)
{
  const PlanSizes *sizes = self->sizes;
  const gboolean is_of_all = IS (self, MOE_DISPATCHER, ALLGATHER);
  const gboolean is_even = !is_of_all && self->plan->value[PLAN_EP] == 1
                           && self->stack->layer.kernels != PLAN_KERNELS_OWN;
  const gboolean is_wide = sizes->router != sizes->compute;
  const gint64 ours = is_of_all ? sizes->split_rows : sizes->sent_rows;
  const gint64 all = ours * ranks_joined (self);
  self->joined.tokens = self->joined.even = self->joined.wide[0] = self->joined.wide[1]
      = self->joined.sum = -1;
  if (self->model->experts == 0 || self->joined.group < 0)
    return;
  if (is_of_all)
    declare_joined_tokens (self);
  if (is_even)
    self->joined.even = buffer (self, "even_rows", all, sizes->compute);
  if (is_wide)
    self->joined.wide[0] = buffer (self, "wide_rows", all, sizes->router);
  if (is_wide && is_even)
    self->joined.wide[1] = buffer (self, "wide_rows.even", all, sizes->router);
  if (is_wide)
    self->joined.sum = buffer (self, "wide_sum", ours, sizes->router);
}

static void
copy (PlanLower *lower, PlanRef out, PlanRef in, gint64 count)
{
  plan_lower_compute (lower, PLAN_OP_CAST, PLAN_REFS (out, in), PLAN_DIMS (count));
}

/* A collective on `count` elements of each rank, which compute waits for. */
static void
exchange (PlanLower *lower, PlanOpKind kind, PlanRef out, PlanRef in, gint64 count)
{
  plan_lower_collective (lower, kind, PLAN_STREAM_TENSOR, lower->joined.group, PLAN_REFS (out, in),
                         count, PLAN_REF_NONE, REF (event.sent_rows));
  plan_lower_wait (lower, REF (event.sent_rows));
}

/* Gathers pieces of rows. `even`: the buffer that PyTorch gathers pieces of one size into; none if
 * their sizes differ. */
static void
gather (PlanLower *lower, PlanRef out, PlanRef in, PlanRef even, gint64 count)
{
  if (even.array < 0)
    {
      exchange (lower, PLAN_OP_ALL_GATHER, out, in, count);
      return;
    }
  plan_lower_alloc (lower, even);
  exchange (lower, PLAN_OP_ALL_GATHER, even, in, count);
  copy (lower, out, even, count * ranks_joined (lower));
  plan_lower_free (lower, even);
}

static void
reduce (PlanLower *lower, PlanRef out, PlanRef in, PlanRef even, gint64 count)
{
  if (even.array < 0)
    {
      exchange (lower, PLAN_OP_REDUCE_SCATTER, out, in, count);
      return;
    }
  plan_lower_alloc (lower, even);
  copy (lower, even, in, count * ranks_joined (lower));
  exchange (lower, PLAN_OP_REDUCE_SCATTER, out, even, count);
  plan_lower_free (lower, even);
}

/* Gathers rows and their probabilities; where a node names them, also how many rows are for each
 * expert, before. */
static void
gather_rows (PlanLayer *self, const PlanNode *node)
{
  PlanLower *lower = self->lower;
  if (node->stats != PLAN_NO_VALUE)
    exchange (
        lower, PLAN_OP_ALL_GATHER, plan_layer_value (self, node->stats),
        plan_lower_at (plan_layer_value (self, node->map), (guint64)(node->entries - node->groups)),
        node->groups);
  gather (lower, plan_layer_value (self, node->out), plan_layer_value (self, node->in),
          REF (joined.even), node->rows * node->cols);
  exchange (lower, PLAN_OP_ALL_GATHER, plan_layer_value (self, node->col),
            plan_layer_value (self, node->other), node->rows);
}

static void
gather_rows_backward (PlanLayer *self, const PlanNode *node)
{
  PlanLower *lower = self->lower;
  const PlanRef din = plan_layer_take_share (self, node->in);
  const PlanRef dprobs = REF (layer.grad[node->other]), joined = REF (layer.grad[node->col]);
  reduce (lower, din, plan_layer_gradient (self, node->out), REF (joined.even),
          node->rows * node->cols);
  plan_lower_alloc (lower, dprobs);
  exchange (lower, PLAN_OP_REDUCE_SCATTER, dprobs, joined, node->rows);
  plan_lower_free (lower, joined);
  plan_layer_drop_gradient (self, node->out);
  plan_layer_add_share (self, node->in, din);
}

static void
reduce_rows (PlanLayer *self, const PlanNode *node)
{
  PlanLower *lower = self->lower;
  const PlanRef in = plan_layer_value (self, node->in), out = plan_layer_value (self, node->out);
  const PlanRef wide = REF (joined.wide[0]), sum = REF (joined.sum);
  const gint64 all = node->rows * node->cols, part = node->depth * node->cols;
  if (wide.array < 0)
    {
      plan_layer_take (self, node->out);
      reduce (lower, out, in, REF (joined.even), part);
      return;
    }
  plan_lower_alloc (lower, wide);
  copy (lower, wide, in, all);
  plan_lower_alloc (lower, sum);
  reduce (lower, sum, wide, REF (joined.wide[1]), part);
  plan_lower_free (lower, wide);
  plan_layer_take (self, node->out);
  copy (lower, out, sum, part);
  plan_lower_free (lower, sum);
}

static void
reduce_rows_backward (PlanLayer *self, const PlanNode *node)
{
  PlanLower *lower = self->lower;
  const PlanRef dout = plan_layer_gradient (self, node->out);
  const PlanRef wide = REF (joined.wide[0]), sum = REF (joined.sum);
  const gint64 all = node->rows * node->cols, part = node->depth * node->cols;
  if (wide.array >= 0)
    {
      plan_lower_alloc (lower, sum);
      copy (lower, sum, dout, part);
      plan_layer_drop_gradient (self, node->out);
      plan_lower_alloc (lower, wide);
      gather (lower, wide, sum, REF (joined.wide[1]), part);
      plan_lower_free (lower, sum);
    }
  const PlanRef din = plan_layer_take_share (self, node->in);
  if (wide.array >= 0)
    {
      copy (lower, din, wide, all);
      plan_lower_free (lower, wide);
    }
  else
    {
      gather (lower, din, dout, REF (joined.even), part);
      plan_layer_drop_gradient (self, node->out);
    }
  plan_layer_add_share (self, node->in, din);
}

/* Gathers all ranks' tokens, after the router's mask and probabilities of them. */
static void
gather_tokens (PlanLayer *self, const PlanNode *node)
{
  PlanLower *lower = self->lower;
  const gint64 scores = node->rows * lower->model->experts;
  exchange (lower, PLAN_OP_ALL_GATHER, plan_layer_value (self, node->stats),
            plan_layer_value (self, node->map), scores);
  exchange (lower, PLAN_OP_ALL_GATHER, plan_layer_value (self, node->col),
            plan_layer_value (self, node->other), scores);
  exchange (lower, PLAN_OP_ALL_GATHER, plan_layer_value (self, node->out),
            plan_layer_value (self, node->in), node->rows * node->cols);
}

static void
gather_tokens_backward (PlanLayer *self, const PlanNode *node)
{
  PlanLower *lower = self->lower;
  const PlanRef din = plan_layer_take_share (self, node->in);
  const PlanRef dprobs = REF (layer.grad[node->other]), joined = REF (layer.grad[node->col]);
  exchange (lower, PLAN_OP_REDUCE_SCATTER, din, plan_layer_gradient (self, node->out),
            node->rows * node->cols);
  plan_lower_alloc (lower, dprobs);
  exchange (lower, PLAN_OP_REDUCE_SCATTER, dprobs, joined, node->rows * lower->model->experts);
  plan_lower_free (lower, joined);
  plan_layer_drop_gradient (self, node->out);
  plan_layer_add_share (self, node->in, din);
}

/* Copies this rank's columns of the mask and of the probabilities. */
static void
take_own_experts (PlanLayer *self, const PlanNode *node)
{
  const gint64 count = node->rows * self->sizes->experts;
  copy (self->lower, plan_layer_value (self, node->out), plan_layer_value (self, node->in), count);
  copy (self->lower, plan_layer_value (self, node->stats), plan_layer_value (self, node->map),
        count);
}

static void
take_own_experts_backward (PlanLayer *self, const PlanNode *node)
{
  PlanLower *lower = self->lower;
  const PlanRef dall = REF (layer.grad[node->in]), down = REF (layer.grad[node->out]);
  plan_lower_alloc (lower, dall);
  plan_lower_compute (lower, PLAN_OP_ZERO, PLAN_REFS (dall),
                      PLAN_DIMS (node->rows * lower->model->experts));
  copy (lower, dall, down, node->rows * self->sizes->experts);
  plan_lower_free (lower, down);
}

void
plan_layer_joined_rows (PlanLayer *self, const PlanNode *node)
{
  switch ((int)node->kind)
    {
    case PLAN_NODE_GATHER_ROWS:
      gather_rows (self, node);
      return;
    case PLAN_NODE_REDUCE_ROWS:
      reduce_rows (self, node);
      return;
    case PLAN_NODE_GATHER_TOKENS:
      gather_tokens (self, node);
      return;
    case PLAN_NODE_OWN_EXPERTS:
      take_own_experts (self, node);
      return;
    default:
      g_assert_not_reached ();
    }
}

void
plan_layer_joined_rows_backward (PlanLayer *self, const PlanNode *node)
{
  switch ((int)node->kind)
    {
    case PLAN_NODE_GATHER_ROWS:
      gather_rows_backward (self, node);
      return;
    case PLAN_NODE_REDUCE_ROWS:
      reduce_rows_backward (self, node);
      return;
    case PLAN_NODE_GATHER_TOKENS:
      gather_tokens_backward (self, node);
      return;
    case PLAN_NODE_OWN_EXPERTS:
      take_own_experts_backward (self, node);
      return;
    default:
      g_assert_not_reached ();
    }
}
