/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of experts moved by eager ops, one by one (Megatron-LM's moe_utils.py at d98e8a64, permute,
 * unpermute and sort_chunks_by_idxs without fusion). The mask of tokens by experts is transposed
 * and sorted, so that the set entries come first, expert by expert. The chosen rows are selected by
 * index, and come back by being added to zeros. In autograd's backward pass the two change places.
 *
 * The gradient of selecting single probabilities by index sorts the indices first (PyTorch's
 * aten/src/ATen/native/cuda/Indexing.cu, index_put_with_sort_kernel; native/cuda/SortStable.cu).
 *
 * Rows times their routing probabilities, and biases of experts. */
#include "config.h"

#include "planner/lower/lower-emit.h"
#include "planner/lower/lower-layer-private.h"
#include "planner/lower/lower-step.h"

#define REF(array) plan_lower_ref (lower->array)
#define SMALL_SORT 4096 /* numbers that one block sorts in place (native/cuda/Sort.cpp) */
#define FEW_SORTS 128   /* fewer sorts than this, of longer lists, are done as one sort of pairs */

/* Lists of indices, all live at once while the gradients of probabilities are put back: the places;
 * the places sorted; numbers from 0 on; and these numbers in the order of the sorted places. A
 * radix sort of several digits needs two more, as large as the first two. */
enum
{
  PUT_WHERE,
  PUT_SORTED,
  PUT_NUMBERS,
  PUT_ORDER,
  PUT_DIGITS,
  PUT_LISTS = PUT_DIGITS + 2
};

static const PlanNode *
eager_permute (const PlanLower *self)
{
  for (guint kind = 0; kind < PLAN_N_LAYER_KINDS; kind++)
    for (guint i = 0; i < self->graphs->of[kind]->n_nodes; i++)
      {
        const PlanNode *node = &self->graphs->of[kind]->nodes[i];
        if (node->kind == PLAN_NODE_PERMUTE && node->is_eager)
          return node;
      }
  return NULL;
}

/* Whether rows of experts are padded before they are sorted. Then each expert has a sort of its
 * own, and probabilities are selected by the indices of the rows. */
static gboolean
pads (const PlanLower *self, const PlanNode *node)
{
  return self->sizes->pads && !node->selects_by_mask;
}

static gint64
scores_of (const PlanNode *node)
{
  return node->rows * node->groups;
}

/* Number of int64 elements that sorting the mask needs as work space. */
static gint64
sort_work (const PlanLower *self, const PlanNode *node)
{
  const gint64 length = pads (self, node) ? node->rows : scores_of (node);
  const gint64 sorts = scores_of (node) / length;
  return length <= SMALL_SORT ? 0 : scores_of (node) * (sorts > 1 && sorts < FEW_SORTS ? 2 : 1);
}

static gint32
buffer (PlanLower *self, const char *name, gint64 elements, PlanDtype dtype)
{
  return elements > 0 ? plan_schedule_add_buffer (self->schedule, name, 1, (guint64)elements, dtype,
                                                  PLAN_CATEGORY_ACTIVATIONS)
                      : -1;
}

void
plan_lower_declare_moves (PlanLower *self)
{
  const PlanNode *node = eager_permute (self);
  PlanLowerMoves *moves = &self->experts.moves;
  moves->mask = moves->sorted = moves->work = moves->order = moves->probs = moves->put = -1;
  if (!node)
    return;
  const gint64 scores = scores_of (node);
  const gboolean keeps_order = node->places != PLAN_NO_VALUE && !pads (self, node);
  moves->mask = buffer (self, "mask.turned", scores, PLAN_DTYPE_U8);
  moves->sorted = buffer (self, "mask.sorted", scores, PLAN_DTYPE_U8);
  moves->work = buffer (self, "mask.work", sort_work (self, node), PLAN_DTYPE_I64);
  moves->probs = buffer (self, "shares.turned", scores, self->sizes->router);
  if (!keeps_order)
    moves->order = buffer (self, "mask.order", scores, PLAN_DTYPE_I64);
  if (keeps_order)
    moves->put = buffer (self, "share_order", node->depth * PUT_LISTS, PLAN_DTYPE_I64);
}

static void
copy (PlanLower *lower, PlanRef out, PlanRef in, gint64 count)
{
  plan_lower_compute (lower, PLAN_OP_CAST, PLAN_REFS (out, in), PLAN_DIMS (count));
}

static void
turn (PlanLower *lower, const PlanNode *node, PlanRef out, PlanRef in)
{
  plan_lower_compute (lower, PLAN_OP_TRANSPOSE, PLAN_REFS (out, in),
                      PLAN_DIMS (node->rows, node->groups));
}

static void
select_rows (PlanLower *lower, const PlanRef *refs, gint64 rows, gint64 cols, gint64 of)
{
  plan_lower_compute (lower, PLAN_OP_INDEX_ROWS, refs, PLAN_DIMS (rows, cols, of));
}

/* Adds rows to zeros by index: the backward pass of a selection. refs: out, in, index. */
static void
add_rows (PlanLower *lower, const PlanRef *refs, gint64 rows, gint64 cols, gint64 of)
{
  plan_lower_compute (lower, PLAN_OP_ZERO, PLAN_REFS (refs[0]), PLAN_DIMS (of * cols));
  plan_lower_compute (lower, PLAN_OP_ADD_ROWS, refs, PLAN_DIMS (rows, cols, of));
}

/* Makes the indices of the chosen rows from the mask. */
static void
find_rows (PlanLayer *self, const PlanNode *node)
{
  PlanLower *lower = self->lower;
  const gboolean keeps_order = lower->experts.moves.order < 0;
  const gint64 scores = scores_of (node);
  if (pads (lower, node))
    {
      plan_lower_alloc (lower, REF (experts.moves.sorted));
      copy (lower, REF (experts.moves.sorted), plan_layer_value (self, node->map), scores);
    }
  plan_lower_alloc (lower, REF (experts.moves.mask));
  turn (lower, node, REF (experts.moves.mask),
        pads (lower, node) ? REF (experts.moves.sorted) : plan_layer_value (self, node->map));
  if (!pads (lower, node))
    plan_lower_alloc (lower, REF (experts.moves.sorted));
  if (keeps_order)
    plan_layer_take (self, node->places);
  else
    plan_lower_alloc (lower, REF (experts.moves.order));
  const PlanRef order
      = keeps_order ? plan_layer_value (self, node->places) : REF (experts.moves.order);
  if (lower->experts.moves.work >= 0)
    plan_lower_alloc (lower, REF (experts.moves.work));
  plan_lower_compute (lower, PLAN_OP_SORT,
                      PLAN_REFS (order, REF (experts.moves.mask), REF (experts.moves.sorted),
                                 REF (experts.moves.work)),
                      PLAN_DIMS (scores));
  if (lower->experts.moves.work >= 0)
    plan_lower_free (lower, REF (experts.moves.work));
  plan_lower_free (lower, REF (experts.moves.sorted));
  plan_layer_take (self, node->stats);
  copy (lower, plan_layer_value (self, node->stats), order, node->depth);
  if (!keeps_order)
    plan_lower_free (lower, order);
}

static void
select_probs (PlanLayer *self, const PlanNode *node)
{
  PlanLower *lower = self->lower;
  const PlanRef index
      = plan_layer_value (self, node->places != PLAN_NO_VALUE ? node->places : node->stats);
  plan_lower_alloc (lower, REF (experts.moves.probs));
  turn (lower, node, REF (experts.moves.probs), plan_layer_value (self, node->other));
  if (pads (lower, node))
    {
      plan_layer_take (self, node->places);
      copy (lower, index, plan_layer_value (self, node->stats), node->depth);
    }
  plan_layer_take (self, node->col);
  select_rows (lower,
               PLAN_REFS (plan_layer_value (self, node->col), REF (experts.moves.probs), index),
               node->depth, 1, scores_of (node));
  plan_lower_free (lower, REF (experts.moves.probs));
}

/* Selects rows and their probabilities. Where these are selected by a mask, they come after the
 * rows. */
static void
permute (PlanLayer *self, const PlanNode *node)
{
  PlanLower *lower = self->lower;
  find_rows (self, node);
  if (!node->selects_by_mask)
    select_probs (self, node);
  plan_layer_take (self, node->out);
  select_rows (lower,
               PLAN_REFS (plan_layer_value (self, node->out), plan_layer_value (self, node->in),
                          plan_layer_value (self, node->stats)),
               node->depth, node->cols, node->rows);
  plan_lower_free (lower, REF (experts.moves.mask));
  if (node->selects_by_mask)
    select_probs (self, node);
}

/* Puts the gradients of probabilities back to where these were selected. Indices of single numbers
 * are sorted first; PyTorch multiplies them by a stride before and divides by it behind, two
 * copies. */
static void
put_probs (PlanLayer *self, const PlanNode *node, PlanRef dprobs, PlanRef row_dprobs)
{
  PlanLower *lower = self->lower;
  const gint64 rows = node->depth, scores = scores_of (node);
  const PlanRef given
      = plan_layer_value (self, node->places != PLAN_NO_VALUE ? node->places : node->stats);
  PlanRef list[PUT_LISTS];
  if (lower->experts.moves.put < 0)
    {
      add_rows (lower, PLAN_REFS (dprobs, row_dprobs, given), rows, 1, scores);
      return;
    }
  for (guint i = 0; i < PUT_LISTS; i++)
    list[i] = plan_lower_at (REF (experts.moves.put), i * (guint64)rows);
  plan_lower_compute (lower, PLAN_OP_ZERO, PLAN_REFS (dprobs), PLAN_DIMS (scores));
  plan_lower_alloc (lower, REF (experts.moves.put));
  copy (lower, list[PUT_WHERE], given, rows);
  copy (lower, list[PUT_SORTED], list[PUT_WHERE], rows);
  copy (lower, list[PUT_WHERE], list[PUT_SORTED], rows);
  plan_lower_compute (lower, PLAN_OP_ZERO, PLAN_REFS (list[PUT_NUMBERS]), PLAN_DIMS (rows));
  plan_lower_compute (
      lower, PLAN_OP_SORT,
      PLAN_REFS (list[PUT_ORDER], list[PUT_WHERE], list[PUT_SORTED], list[PUT_NUMBERS]),
      PLAN_DIMS (rows));
  plan_lower_compute (lower, PLAN_OP_ADD_ROWS, PLAN_REFS (dprobs, row_dprobs, list[PUT_SORTED]),
                      PLAN_DIMS (rows, 1, scores));
  plan_lower_free (lower, REF (experts.moves.put));
}

static void
permute_backward (PlanLayer *self, const PlanNode *node)
{
  PlanLower *lower = self->lower;
  const PlanRef din = plan_layer_take_share (self, node->in);
  const PlanRef row_dprobs = REF (layer.grad[node->col]), dprobs = REF (layer.grad[node->other]);
  add_rows (
      lower,
      PLAN_REFS (din, plan_layer_gradient (self, node->out), plan_layer_value (self, node->stats)),
      node->depth, node->cols, node->rows);
  plan_layer_drop_gradient (self, node->out);
  plan_layer_add_share (self, node->in, din);
  plan_lower_alloc (lower, dprobs);
  put_probs (self, node, dprobs, row_dprobs);
  plan_lower_free (lower, row_dprobs);
}

/* Joins runs of rows in their new order, and their probabilities in the same way. */
static void
join (PlanLayer *self, const PlanNode *node, PlanRef out, PlanRef in, PlanRef probs)
{
  plan_lower_compute (self->lower, PLAN_OP_JOIN_ROWS, PLAN_REFS (out, in),
                      PLAN_DIMS (node->rows * node->cols, node->pieces, node->rows * node->cols));
  if (probs.array >= 0)
    plan_lower_compute (self->lower, PLAN_OP_JOIN_ROWS, PLAN_REFS (probs, probs),
                        PLAN_DIMS (node->rows, node->pieces, node->rows));
}

void
plan_layer_move_eagerly (PlanLayer *self, const PlanNode *node)
{
  const gboolean is_permute = node->kind == PLAN_NODE_PERMUTE;
  const PlanRef out = plan_layer_value (self, node->out), in = plan_layer_value (self, node->in);
  if (node->waits_before)
    plan_lower_look (self->lower);
  if (node->pieces > 0)
    join (self, node, out, in,
          is_permute ? plan_layer_value (self, PLAN_VALUE_ROW_PROBS) : PLAN_REF_NONE);
  else if (is_permute)
    permute (self, node);
  else
    add_rows (self->lower, PLAN_REFS (out, in, plan_layer_value (self, node->map)), node->rows,
              node->cols, node->depth);
}

void
plan_layer_move_eagerly_backward (PlanLayer *self, const PlanNode *node)
{
  PlanLower *lower = self->lower;
  const gboolean is_permute = node->kind == PLAN_NODE_PERMUTE;
  if (node->pieces == 0 && is_permute)
    {
      permute_backward (self, node);
      return;
    }
  const PlanRef din = plan_layer_take_share (self, node->in),
                dout = plan_layer_gradient (self, node->out);
  if (node->pieces > 0)
    join (self, node, din, dout,
          is_permute ? REF (layer.grad[PLAN_VALUE_ROW_PROBS]) : PLAN_REF_NONE);
  else
    select_rows (lower, PLAN_REFS (din, dout, plan_layer_value (self, node->map)), node->rows,
                 node->cols, node->depth);
  plan_layer_drop_gradient (self, node->out);
  plan_layer_add_share (self, node->in, din);
}

/* Whether rows are multiplied by their probabilities, which are fp32, by ops of a framework before
 * experts read them: each widens or rounds all of them (Megatron-LM's experts.py,
 * moe_apply_probs_on_input). */
static gboolean
scales_eagerly (const PlanLower *self)
{
  return self->model->scores_on_input && self->stack->layer.kernels != PLAN_KERNELS_OWN
         && self->plan->value[PLAN_COMPILE] == PLAN_COMPILE_OFF;
}

/* Whether it is done so once rows are back. */
static gboolean
weighs_late (const PlanLower *self)
{
  return self->stack->layer.kernels == PLAN_KERNELS_PYTORCH
         && self->graphs->values[PLAN_VALUE_WIDENED].elements > 0;
}

void
plan_lower_declare_wide_rows (PlanLower *self)
{
  static const char *const names[][3]
      = { { "bias_rows", "bias_rows.again" },
          { "scaled_rows", "scaled_rows.again", "scaled_rows.third" } };
  const gint64 rows = self->sizes->expert_rows, width = plan_model_expert_width (self->model);
  const gboolean has_bias = self->model->expert_bias,
                 is_torch = self->stack->layer.kernels == PLAN_KERNELS_PYTORCH;
  const gboolean widens_bias
      = has_bias && self->stack->layer.kernels == PLAN_KERNELS_TRANSFORMER_ENGINE;
  const guint n = weighs_late (self) ? 3 : widens_bias || scales_eagerly (self) ? 2 : 0;
  for (guint i = 0; i < 3; i++)
    self->experts.fp32_rows[i]
        = buffer (self, names[!widens_bias][i], i < n ? rows * width : 0, PLAN_DTYPE_FP32);
  self->experts.bias_rows = buffer (
      self, names[0][0], has_bias && is_torch ? rows * MAX (width, 2 * self->sizes->expert_ffn) : 0,
      self->sizes->compute);
}

/* Weighs rows that are back (torchtitan's token_dispatcher.py, combine). */
static void
weigh_rows (PlanLayer *self, const PlanNode *node)
{
  PlanLower *lower = self->lower;
  const PlanRef wide = plan_layer_value (self, node->stats), one = REF (experts.fp32_rows[0]);
  const gint64 *count = PLAN_DIMS (node->rows * node->cols);
  plan_lower_compute (lower, PLAN_OP_CAST, PLAN_REFS (wide, plan_layer_value (self, node->in)),
                      count);
  plan_lower_alloc (lower, one);
  plan_lower_compute (lower, PLAN_OP_SCALE_ROWS,
                      PLAN_REFS (one, wide, plan_layer_value (self, node->other)),
                      PLAN_DIMS (node->rows, node->cols));
  plan_lower_compute (lower, PLAN_OP_CAST, PLAN_REFS (plan_layer_value (self, node->out), one),
                      count);
  plan_lower_free (lower, one);
}

/* Its backward pass by autograd: the fp32 products for the scores and for the rows are both there
 * before the former are summed. */
static void
weigh_rows_backward (PlanLayer *self, const PlanNode *node)
{
  PlanLower *lower = self->lower;
  const PlanRef one = REF (experts.fp32_rows[0]), other = REF (experts.fp32_rows[1]),
                third = REF (experts.fp32_rows[2]), dprobs = REF (layer.grad[node->other]);
  const gint64 *count = PLAN_DIMS (node->rows * node->cols);
  plan_lower_alloc (lower, one);
  plan_lower_compute (lower, PLAN_OP_CAST, PLAN_REFS (one, plan_layer_gradient (self, node->out)),
                      count);
  plan_layer_drop_gradient (self, node->out);
  plan_lower_alloc (lower, other);
  plan_lower_compute (lower, PLAN_OP_CAST, PLAN_REFS (other, one), count);
  plan_lower_alloc (lower, third);
  plan_lower_alloc (lower, dprobs);
  plan_lower_compute (lower, PLAN_OP_SCALE_ROWS_BWD,
                      PLAN_REFS (third, dprobs, one, plan_layer_value (self, node->stats),
                                 plan_layer_value (self, node->other)),
                      PLAN_DIMS (node->rows, node->cols));
  plan_lower_free (lower, other);
  plan_lower_free (lower, one);
  const PlanRef rounded = plan_layer_take_share (self, node->in);
  plan_lower_compute (lower, PLAN_OP_CAST, PLAN_REFS (rounded, third), count);
  plan_lower_free (lower, third);
  plan_layer_add_share (self, node->in, rounded);
}

void
plan_layer_scale_rows (PlanLayer *self, const PlanNode *node)
{
  PlanLower *lower = self->lower;
  if (node->stats != PLAN_NO_VALUE)
    {
      weigh_rows (self, node);
      return;
    }
  const gboolean is_eager = scales_eagerly (lower);
  const PlanRef wide = REF (experts.fp32_rows[0]), out = plan_layer_value (self, node->out);
  if (is_eager)
    plan_lower_alloc (lower, wide);
  plan_lower_compute (lower, PLAN_OP_SCALE_ROWS,
                      PLAN_REFS (is_eager ? wide : out, plan_layer_value (self, node->in),
                                 plan_layer_value (self, node->other)),
                      PLAN_DIMS (node->rows, node->cols));
  if (!is_eager)
    return;
  plan_lower_compute (lower, PLAN_OP_CAST, PLAN_REFS (out, wide),
                      PLAN_DIMS (node->rows * node->cols));
  plan_lower_free (lower, wide);
}

/* By autograd the gradients of rows and of probabilities each take an fp32
 * product; the first CAST between such rows stands for the second of these. */
void
plan_layer_scale_rows_backward (PlanLayer *self, const PlanNode *node)
{
  PlanLower *lower = self->lower;
  if (node->stats != PLAN_NO_VALUE)
    {
      weigh_rows_backward (self, node);
      return;
    }
  const gboolean is_eager = scales_eagerly (lower);
  const PlanRef one = REF (experts.fp32_rows[0]), other = REF (experts.fp32_rows[1]);
  const PlanRef dout = plan_layer_gradient (self, node->out),
                dprobs = REF (layer.grad[node->other]);
  const PlanRef din = is_eager ? other : plan_layer_take_share (self, node->in);
  const gint64 *count = PLAN_DIMS (node->rows * node->cols);
  if (is_eager)
    {
      plan_lower_alloc (lower, one);
      plan_lower_compute (lower, PLAN_OP_CAST, PLAN_REFS (one, dout), count);
      plan_layer_drop_gradient (self, node->out);
      plan_lower_alloc (lower, other);
      plan_lower_compute (lower, PLAN_OP_CAST, PLAN_REFS (other, one), count);
    }
  plan_lower_alloc (lower, dprobs);
  plan_lower_compute (lower, PLAN_OP_SCALE_ROWS_BWD,
                      PLAN_REFS (din, dprobs, is_eager ? one : dout,
                                 plan_layer_value (self, node->in),
                                 plan_layer_value (self, node->other)),
                      PLAN_DIMS (node->rows, node->cols));
  if (!is_eager)
    {
      plan_layer_drop_gradient (self, node->out);
      plan_layer_add_share (self, node->in, din);
      return;
    }
  const PlanRef rounded = plan_layer_take_share (self, node->in);
  plan_lower_free (lower, one);
  plan_lower_compute (lower, PLAN_OP_CAST, PLAN_REFS (rounded, other), count);
  plan_lower_free (lower, other);
  plan_layer_add_share (self, node->in, rounded);
}

/* --- biases of experts -------------------------------------------------------------------- */

/* Our own kernels add biases of both products alike, to the second's times the routing
 * probabilities, by which the activation has scaled what that product reads. */
gboolean
plan_lower_adds_own_bias (const PlanLower *self)
{
  return self->model->expert_bias && self->stack->layer.kernels == PLAN_KERNELS_OWN;
}

static gboolean
is_last_product (const PlanNode *node)
{
  return node->weight == PLAN_TENSOR_EXPERT_DOWN;
}

/* Of the ranks that split an expert the first alone adds the bias of the last product, one summand
 * of a sum over these ranks. */
static void
add_own_bias (PlanLayer *self, const PlanNode *node, PlanRef counts)
{
  PlanLower *lower = self->lower;
  if (is_last_product (node) && lower->place.expert_part > 0)
    return;
  plan_lower_compute (lower, PLAN_OP_ADD_EXPERT_BIAS,
                      PLAN_REFS (plan_layer_value (self, node->out),
                                 plan_lower_weight (lower, node->bias, self->unit), counts,
                                 is_last_product (node)
                                     ? plan_layer_value (self, PLAN_VALUE_ROW_PROBS)
                                     : PLAN_REF_NONE),
                      PLAN_DIMS (node->rows, node->cols, lower->sizes->experts));
}

/* Computes the gradient of the bias of a product of experts. Of the last product the rank that adds
 * the bias also computes its part of the gradient of the routing probabilities, which
 * expert_activate_backward adds to the activation's; each rank has the whole gradient of the
 * bias. */
static void
own_bias_backward (PlanLayer *self, const PlanNode *node, PlanRef counts)
{
  PlanLower *lower = self->lower;
  const PlanRef none = PLAN_REF_NONE, dprobs = REF (experts.dprobs);
  const gboolean is_last = is_last_product (node);
  const gboolean adds = is_last && lower->place.expert_part == 0;
  if (adds)
    plan_lower_alloc (lower, dprobs);
  plan_lower_compute (lower, PLAN_OP_ADD_EXPERT_BIAS_BWD,
                      PLAN_REFS (plan_lower_raw_gradient (lower, node->bias, self->unit),
                                 plan_layer_gradient (self, node->out), counts,
                                 is_last ? plan_layer_value (self, PLAN_VALUE_ROW_PROBS) : none,
                                 adds ? plan_lower_weight (lower, node->bias, self->unit) : none,
                                 adds ? dprobs : none),
                      PLAN_DIMS (node->rows, node->cols, lower->sizes->experts));
  plan_lower_put_gradient (lower, node->bias, self->unit, FALSE);
}

/* Adds the bias of an expert's last product, times the routing probabilities, which are fp32: rows
 * and biases are added expert by expert, joined, and rounded, by eager ops (experts.py,
 * TEGroupedMLP._apply_bias). The bias of the first product is part of that product. */
static void
add_bias (PlanLayer *self, const PlanNode *node)
{
  PlanLower *lower = self->lower;
  const PlanRef out = plan_layer_value (self, node->out),
                bias = plan_lower_weight (lower, node->bias, self->unit);
  const PlanRef one = REF (experts.fp32_rows[0]), other = REF (experts.fp32_rows[1]);
  const gint64 *count = PLAN_DIMS (node->rows * node->cols);
  plan_lower_alloc (lower, one);
  plan_lower_compute (lower, PLAN_OP_EXPERT_BIAS,
                      PLAN_REFS (one, bias, plan_layer_value (self, PLAN_VALUE_ROW_PROBS)),
                      PLAN_DIMS (node->rows, node->cols, lower->sizes->experts));
  plan_lower_alloc (lower, other);
  plan_lower_compute (lower, PLAN_OP_ADD, PLAN_REFS (other, one, out), count);
  plan_lower_compute (lower, PLAN_OP_CAST, PLAN_REFS (one, other), count);
  plan_lower_free (lower, other);
  plan_lower_compute (lower, PLAN_OP_CAST, PLAN_REFS (out, one), count);
  plan_lower_free (lower, one);
}

/* Backward pass of add_bias by autograd: widens the gradient to fp32, and rounds it for the rows.
 * The gradients of biases and of probabilities each take an fp32 product and a sum over it. Both
 * sums are counted as those of biases, as they read equally much. */
static void
bias_backward (PlanLayer *self, const PlanNode *node)
{
  PlanLower *lower = self->lower;
  const PlanRef dout = plan_layer_gradient (self, node->out);
  const PlanRef one = REF (experts.fp32_rows[0]), other = REF (experts.fp32_rows[1]);
  const PlanRef raw = plan_lower_raw_gradient (lower, node->bias, self->unit);
  const gint64 *count = PLAN_DIMS (node->rows * node->cols);
  const gint64 *dims = PLAN_DIMS (node->rows, node->cols, lower->sizes->experts);
  plan_lower_alloc (lower, one);
  plan_lower_compute (lower, PLAN_OP_CAST, PLAN_REFS (one, dout), count);
  plan_lower_compute (lower, PLAN_OP_CAST, PLAN_REFS (dout, one), count);
  plan_lower_alloc (lower, other);
  for (guint sum = 0; sum < 2; sum++)
    {
      plan_lower_compute (lower, PLAN_OP_CAST, PLAN_REFS (other, one), count);
      plan_lower_compute (lower, PLAN_OP_EXPERT_BIAS_BWD, PLAN_REFS (raw, other), dims);
    }
  plan_lower_free (lower, other);
  plan_lower_free (lower, one);
  plan_lower_put_gradient (lower, node->bias, self->unit, FALSE);
}

/* Adds the bias of either product by PyTorch's ops: a bias for each row, then the sum (torchtitan's
 * gpt_oss/moe.py). */
static void
add_bias_rows (PlanLayer *self, const PlanNode *node)
{
  PlanLower *lower = self->lower;
  const PlanRef rows = REF (experts.bias_rows);
  plan_lower_alloc (lower, rows);
  plan_lower_compute (lower, PLAN_OP_INDEX_ROWS,
                      PLAN_REFS (rows, plan_lower_weight (lower, node->bias, self->unit),
                                 plan_layer_value (self, PLAN_VALUE_ROW_MAP)),
                      PLAN_DIMS (node->rows, node->cols, lower->sizes->experts));
  plan_lower_compute (lower, PLAN_OP_ACCUMULATE,
                      PLAN_REFS (plan_layer_value (self, node->out), rows),
                      PLAN_DIMS (node->rows * node->cols));
  plan_lower_free (lower, rows);
}

void
plan_layer_add_expert_bias (PlanLayer *self, const PlanNode *node, PlanRef counts)
{
  if (node->bias == PLAN_N_TENSORS)
    return;
  if (plan_lower_adds_own_bias (self->lower))
    add_own_bias (self, node, counts);
  else if (self->lower->experts.bias_rows >= 0)
    add_bias_rows (self, node);
  else if (is_last_product (node))
    add_bias (self, node);
}

void
plan_layer_expert_bias_backward (PlanLayer *self, const PlanNode *node, PlanRef counts)
{
  PlanLower *lower = self->lower;
  if (node->bias == PLAN_N_TENSORS)
    return;
  if (plan_lower_adds_own_bias (lower))
    own_bias_backward (self, node, counts);
  else if (is_last_product (node) && lower->experts.bias_rows < 0)
    bias_backward (self, node);
  else
    {
      plan_lower_compute (lower, PLAN_OP_EXPERT_BIAS_BWD,
                          PLAN_REFS (plan_lower_raw_gradient (lower, node->bias, self->unit),
                                     plan_layer_gradient (self, node->out)),
                          PLAN_DIMS (node->rows, node->cols, lower->sizes->experts));
      plan_lower_put_gradient (lower, node->bias, self->unit, FALSE);
    }
}
