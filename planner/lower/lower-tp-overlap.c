/* SPDX-License-Identifier: Apache-2.0 */
/* tp_overlap: products in pieces beside the communication of their tensor-parallel group. What is
 * gathered goes round a ring, one rank's part at a time, while the product of the part that came
 * before runs.
 *
 * Transformer Engine (ub: common/comm_gemm_overlap/comm_gemm_overlap.cpp at d0067d0d; which
 * products, and how: pytorch/module/base.py, initialize_ub) cuts a product whose output is reduced
 * into pieces of columns; each piece is reduced while the next one is made. Pieces lie one after
 * another in memory, and the sum of each goes to its columns. In the backward pass of a
 * column-parallel product, the gather and the reduction run in bulk beside another product, as they
 * do without user buffers.
 *
 * PyTorch (async: torch/distributed/_symmetric_memory, _pipelined_multi_all_gather_and_consume and
 * _pipelined_produce_and_all2all) cuts such a product into the rows of one rank after another; each
 * part is sent to its rank while the next one is made, and added up there. Its compiler
 * (_inductor/fx_passes/micro_pipeline_tp.py) does so only where a single product made what is
 * reduced: not for the gradient of an input that q, k and v, or gate and up, share. Our own
 * runtime, in which one product makes these, cuts it, too, and gathers that input again beside it,
 * for the gradient of the weights. With delayed scaling each rank quantises its own part, and the
 * parts go round in eight bits; with scales made of the whole tensor what is gathered is quantised
 * afterwards, and sums alone go beside products. */
#include "config.h"

#include "planner/lower/lower-emit.h"
#include "planner/lower/lower-layer.h"

#define SPLITS 4 /* pieces of a product whose output is reduced: num_splits */

/* User buffers of tokens x hidden elements that stay: for gathers of qkv and fc1 forward and of
 * proj and fc2 backward, and in bulk for the weights' gradients of qkv and fc1; and for four
 * reductions. */
#define GATHER_BUFFERS 6
#define REDUCE_BUFFERS 4

gboolean
plan_lower_has_pieces (const PlanLower *self)
{
  return self->plan->value[PLAN_TP_OVERLAP] != PLAN_TP_OVERLAP_NONE && self->comm.tensor >= 0;
}

static gboolean
sends_rows (const PlanLower *self)
{
  return self->plan->value[PLAN_TP_OVERLAP] == PLAN_TP_OVERLAP_ASYNC;
}

static gint64
members (const PlanLower *self)
{
  return self->plan->value[PLAN_TP];
}

/* Pieces of a product whose output is reduced. It has as many columns as the model is wide. */
static gint64
splits (const PlanLower *self)
{
  if (sends_rows (self))
    return members (self);
  return self->model->hidden % SPLITS == 0 ? SPLITS : 1;
}

/* With delayed scaling all ranks know the one scale of what they quantise before it is there. Ours
 * otherwise quantises what was gathered. */
gboolean
plan_lower_quantises_parts (const PlanLower *self)
{
  return plan_lower_sums_gradient (self) && self->sizes->quantises
         && self->plan->value[PLAN_COMPUTE] == PLAN_COMPUTE_FP8_DELAYED;
}

gboolean
plan_lower_gathers_gradient (const PlanLower *self, const PlanNode *linear)
{
  const gint64 compute = self->plan->value[PLAN_COMPUTE];
  const gboolean has_one_scale
      = compute == PLAN_COMPUTE_FP8_DELAYED
        || (compute == PLAN_COMPUTE_FP8_TENSORWISE && !plan_lower_sums_gradient (self));
  return plan_lower_has_pieces (self)
         && (!self->sizes->quantises || (has_one_scale && linear->bias == PLAN_N_TENSORS));
}

gboolean
plan_lower_sums_gradient (const PlanLower *self)
{
  return plan_lower_has_pieces (self) && self->stack->layer.kernels == PLAN_KERNELS_OWN;
}

static void
cut (PlanLower *self, gint32 array, gint64 pieces)
{
  if (array >= 0)
    plan_schedule_cut_buffer (self->schedule, (guint)array, (guint32)pieces);
}

static void
cut_values (PlanLower *self, const PlanLayerGraph *net)
{
  for (guint i = 0; i < net->n_nodes; i++)
    {
      const PlanNode *node = &net->nodes[i];
      if (node->kind == PLAN_NODE_GATHER_SEQ && !node->is_lazy)
        {
          const gboolean quantises = self->sizes->quantises && plan_lower_sums_gradient (self);
          const PlanNode *whole = quantises ? node + 1 : node; /* what a product reads */
          cut (self, self->layer.value[whole->out], members (self));
          if (plan_lower_sums_gradient (self))
            cut (self, self->layer.grad[whole->out], members (self));
        }
      if (node->kind != PLAN_NODE_REDUCE_TP)
        continue;
      cut (self, self->layer.value[node->in], splits (self));
      cut (self, self->layer.grad[node->in], members (self));
      cut (self, self->layer.quantised_grad[node->in], members (self));
    }
}

void
plan_lower_declare_pieces (PlanLower *self)
{
  const PlanSizes *sizes = self->sizes;
  const guint64 elements = (guint64)(sizes->rows * self->model->hidden);
  if (!plan_lower_has_pieces (self))
    return;
  for (guint kind = 0; kind < PLAN_N_LAYER_KINDS; kind++)
    cut_values (self, self->graphs->of[kind]);
  if (sends_rows (self))
    {
      self->work.received = plan_schedule_add_buffer (self->schedule, "received.parts", 1, elements,
                                                      sizes->compute, PLAN_CATEGORY_ACTIVATIONS);
      cut (self, self->work.received, members (self));
      return;
    }
  plan_schedule_register (self->schedule, (guint)self->comm.tensor,
                          GATHER_BUFFERS * plan_dtype_bytes (sizes->linear, elements)
                              + REDUCE_BUFFERS * plan_dtype_bytes (sizes->compute, elements));
}

guint64
plan_lower_own_part (const PlanLower *self, guint64 elements)
{
  return plan_schedule_rank (self->schedule) % (guint64)members (self) * elements
         / (guint64)members (self);
}

void
plan_lower_gathered_product (PlanLower *self, const PlanLowerProduct *product, PlanRef own)
{
  const gint64 n = members (self), part = product->rows / n;
  const guint64 in_part = (guint64)(part * product->depth);
  const guint64 out_part = (guint64)(part * product->cols);
  const guint rank = plan_schedule_rank (self->schedule) % (guint)n;
  for (guint step = 0; step < (guint)n; step++)
    {
      const guint here = (rank + (guint)n - step) % (guint)n;
      const guint coming = (here + (guint)n - 1) % (guint)n;
      const PlanRef in = step == 0 ? own : plan_lower_at (product->in, here * in_part);
      const PlanRef next = plan_lower_at (product->in, coming * in_part);
      if (step > 0)
        plan_lower_await_exchange (self);
      if (step == 0)
        plan_lower_begin_exchange (self, PLAN_OP_EXCHANGE, PLAN_REFS (next, in), (gint64)in_part);
      else if (step + 1 < (guint)n)
        plan_lower_go_on_exchanging (self, PLAN_OP_EXCHANGE, PLAN_REFS (next, in), (gint64)in_part);
      plan_lower_compute (self, PLAN_OP_GEMM,
                          PLAN_REFS (plan_lower_at (product->out, here * out_part), in,
                                     product->weight, product->bias),
                          PLAN_DIMS (part, product->cols, product->depth, product->layout));
    }
}

/* A product cut into every rank's rows. This rank's own come last, as it keeps them. */
static void
send_rows (PlanLower *self, const PlanLowerProduct *product, PlanRef sum)
{
  const guint n = (guint)members (self), rank = plan_schedule_rank (self->schedule) % n;
  const gint64 rows = product->rows / n, count = rows * product->cols;
  const PlanRef received = plan_lower_ref (self->work.received);
  plan_lower_alloc (self, received);
  for (guint step = 1; step <= n; step++)
    {
      const guint to = (rank + step) % n, from = (rank + n - step) % n;
      const gboolean is_own = step == n;
      const PlanRef in = plan_lower_at (product->in, (guint64)(to * rows * product->depth));
      const PlanRef out = is_own ? plan_lower_at (received, (guint64)(to * count))
                                 : plan_lower_at (product->out, (guint64)(to * count));
      plan_lower_compute (self, PLAN_OP_GEMM, PLAN_REFS (out, in, product->weight, product->bias),
                          PLAN_DIMS (rows, product->cols, product->depth, product->layout));
      if (!is_own)
        plan_lower_begin_sending (
            self, PLAN_REFS (plan_lower_at (received, (guint64)(from * count)), out), count, step);
    }
  plan_lower_await_exchange (self);
  plan_lower_compute (self, PLAN_OP_SUM_PARTS, PLAN_REFS (sum, received), PLAN_DIMS (count, n));
  plan_lower_free (self, received);
}

void
plan_lower_reduced_product (PlanLower *self, const PlanLowerProduct *product, PlanRef sum)
{
  if (sends_rows (self))
    {
      send_rows (self, product, sum);
      return;
    }
  const gint64 n = splits (self), cols = product->cols / n;
  const gint64 count = product->rows / members (self) * cols;
  for (gint64 i = 0; i < n; i++)
    {
      const PlanRef out = plan_lower_at (product->out, (guint64)(i * product->rows * cols));
      const PlanRef weight = plan_lower_at (product->weight, (guint64)(i * cols * product->depth));
      const PlanRef bias = product->bias.array < 0
                               ? product->bias
                               : plan_lower_at (product->bias, (guint64)(i * cols));
      plan_lower_compute (self, PLAN_OP_GEMM, PLAN_REFS (out, product->in, weight, bias),
                          PLAN_DIMS (product->rows, cols, product->depth, product->layout));
      plan_lower_begin_exchange (self, PLAN_OP_REDUCE_SCATTER,
                                 PLAN_REFS (plan_lower_at (sum, (guint64)(i * count)), out), count);
    }
  plan_lower_await_exchange (self);
}
