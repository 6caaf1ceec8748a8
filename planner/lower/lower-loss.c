/* SPDX-License-Identifier: Apache-2.0 */
/* Lowers the output layer and the loss: of all rows of a micro batch at once, or in pieces
 * (loss_chunks), of which each goes backward right after it went forward. */
#include "config.h"

#include "planner/lower/lower-loss.h"

#include "planner/lower/lower-emit.h"
#include "planner/lower/lower-layer.h"
#include "planner/lower/lower-step.h"

#define ONE(array) plan_lower_ref (self->array)

/* A buffer of the head at hand: the model's own or the prediction module's. */
#define HEAD(array) plan_lower_unit_ref (self->head.array, PLAN_NO_UNIT, self->head.index)

/* Whether the loss is on another stage. Then several micro batches pass through the output layer
 * before the first of them comes back, and each has buffers of its own for what its backward pass
 * reads. They do so, too, where there are several `head_rows`. */
static gboolean
outlasts_others (const PlanLower *self)
{
  return self->stage.has_head && !self->stage.has_loss;
}

PlanRef
plan_lower_kept_by (const PlanLower *self, gint32 array, gint32 head)
{
  const PlanRef ref = plan_lower_unit_ref (array, PLAN_NO_UNIT, head);
  return outlasts_others (self) || self->policy.head_rows > 1 ? plan_lower_in_row (self, ref) : ref;
}

PlanRef
plan_lower_kept_by_head (const PlanLower *self, gint32 array)
{
  return plan_lower_kept_by (self, array, self->head.index);
}

#define KEPT(array) plan_lower_kept_by_head (self, self->head.array)

/* The rows of a micro batch whose logits exist at the same time. */
typedef struct
{
  gint64 first, rows;
} Piece;

static gint64
n_pieces (const PlanLower *self)
{
  return self->plan->value[PLAN_LOSS_CHUNKS];
}

static Piece
piece_of (const PlanLower *self, gint64 i)
{
  const gint64 rows = self->sizes->rows / n_pieces (self);
  return (Piece){ i * rows, rows };
}

gboolean
plan_lower_turns_logits (const PlanStack *stack, const Plan *plan, const PlanModel *model)
{
  const gint64 fusion = plan->value[PLAN_CE_FUSION];
  return (fusion == PLAN_CE_FUSION_TE
          || (fusion == PLAN_CE_FUSION_ON && stack->loss.kind == PLAN_LOSS_IN_PLACE))
         && model->logit_softcap == 0;
}

static gboolean
turns_logits (const PlanLower *self)
{
  return plan_lower_turns_logits (self->stack, self->plan, self->model);
}

/* Whether the whole loss is made in the backward pass. */
static gboolean
is_made_backwards (const PlanLower *self)
{
  return !self->policy.is_eval && (turns_logits (self) || n_pieces (self) > 1);
}

static gboolean
splits (const PlanLower *self)
{
  return self->sizes->split_rows < self->sizes->rows;
}

/* Whether the gathered input of the output layer stays for its backward pass. */
static gboolean
keeps_gathered (const PlanLower *self)
{
  return (self->stack->layer.sequences == PLAN_SEQUENCES_KEPT || is_made_backwards (self))
         && !self->policy.is_eval;
}

/* Whether the fp32 logits stay for the backward pass. */
static gboolean
keeps_wide_logits (const PlanLower *self)
{
  return self->head.wide_logits >= 0 && self->stack->loss.keeps_logits && !self->policy.is_eval;
}

static PlanTensorRole
output_role (const PlanLower *self)
{
  return self->model->tied_embeddings ? PLAN_TENSOR_EMBEDDING : PLAN_TENSOR_OUTPUT;
}

static PlanRef
output_weight (const PlanLower *self)
{
  return plan_lower_weight (self, output_role (self), PLAN_NO_UNIT);
}

/* The input of the output layer. */
static PlanRef
input (const PlanLower *self, Piece piece)
{
  const PlanRef in = splits (self) ? KEPT (norm_full) : KEPT (norm);
  return plan_lower_at (in, (guint64)(piece.first * self->model->hidden));
}

static PlanRef
targets (const PlanLower *self, Piece piece)
{
  return plan_lower_at (plan_lower_in_row (self, ONE (input.targets)), (guint64)piece.first);
}

static gboolean
outlives_piece (const PlanLower *self)
{
  return self->policy.joins_pieces && !self->policy.is_eval;
}

/* The buffer of a piece's logits. Where autograd joins pieces, they stay until the next piece's
 * logits have been made, so two buffers are used in turns. */
static PlanRef
logits_of (const PlanLower *self, Piece piece)
{
  return outlives_piece (self) && piece.first / piece.rows % 2 ? ONE (head.logits_again)
                                                               : KEPT (logits);
}

static gboolean
is_last (const PlanLower *self, Piece piece)
{
  return piece.first + piece.rows == self->sizes->rows;
}

/* Declares a buffer that exists only where autograd joins pieces. */
static gint32
declare_joined (PlanLower *self, const char *name, guint64 elements, PlanDtype dtype,
                PlanCategory category)
{
  return outlives_piece (self)
             ? plan_schedule_add_buffer (self->schedule, name, 1, elements, dtype, category)
             : -1;
}

typedef struct
{
  gint32 *array;
  const char *name;
  gboolean exists;
  guint32 count;
  guint64 elements;
  PlanDtype dtype;
  PlanCategory category;
} HeadArray;

void
plan_lower_declare_head (PlanLower *self)
{
  const PlanSizes *sizes = self->sizes;
  const guint64 hidden = (guint64)self->model->hidden, rows = (guint64)sizes->rows;
  const guint64 split = (guint64)sizes->split_rows * hidden, whole = rows * hidden;
  const guint64 at_once = rows / (guint64)self->plan->value[PLAN_LOSS_CHUNKS];
  const guint64 logits = at_once * (guint64)sizes->vocab;
  const gboolean turns = plan_lower_turns_logits (self->stack, self->plan, self->model);
  const gboolean splits = sizes->split_rows < sizes->rows;
  const gboolean is_static = plan_lower_is_static (self, PLAN_VALUE_NORM1_FULL);
  const gboolean is_fused = self->plan->value[PLAN_CE_FUSION] != PLAN_CE_FUSION_OFF;
  const PlanLoss loss = plan_stack_loss (self->stack, self->plan);
  /* Over a tensor-parallel group, the gradient of the logarithm is made beside an image of the
   * softmax (PyTorch's torch/distributed/tensor/parallel/loss.py). */
  const guint64 dprob = self->comm.tensor >= 0 ? 2 * logits : logits;
  const gboolean by_op = loss == PLAN_LOSS_EAGER || (loss == PLAN_LOSS_IN_PLACE && !is_fused);
  const gboolean has_mean = self->model->norm == PLAN_NORM_LAYERNORM;
  const guint32 heads = 1 + (guint32)self->stage.modules;
  const guint32 held = heads * (guint32)self->policy.head_rows;
  const guint32 kept = outlasts_others (self) ? (guint32)self->rows : held;
  const PlanStage *here = &self->stage;
  const gboolean has_head = here->has_head, has_loss = here->has_loss;
  const gboolean is_wide = by_op || loss == PLAN_LOSS_SHARDED;
  const HeadArray table[] = {
    { &self->head.norm, "norm_final", has_head, kept, split, sizes->compute,
      PLAN_CATEGORY_ACTIVATIONS },
    { &self->head.norm_full, "norm_final.full", has_head && splits && !is_static, held, whole,
      sizes->compute, PLAN_CATEGORY_ACTIVATIONS },
    { &self->head.stats, "rstd_final", has_head, kept,
      (guint64)sizes->split_rows * (has_mean ? 2 : 1), PLAN_DTYPE_FP32, PLAN_CATEGORY_ACTIVATIONS },
    { &self->head.logits, "logits", has_head || here->has_cast, held, logits, sizes->compute,
      PLAN_CATEGORY_LOSS },
    { &self->head.prob, "prob", has_loss && !turns, held, logits,
      loss == PLAN_LOSS_ROUNDED ? sizes->compute : PLAN_DTYPE_FP32, PLAN_CATEGORY_LOSS },
    { &self->head.image, "loss_image", has_loss && is_fused && loss == PLAN_LOSS_IMAGE, heads,
      logits, PLAN_DTYPE_FP32, PLAN_CATEGORY_LOSS },
    { &self->head.wide_logits, "wide_logits", (here->has_cast || has_loss) && is_wide, held, logits,
      PLAN_DTYPE_FP32, PLAN_CATEGORY_LOSS },
    { &self->head.wide_dlogits, "wide_dlogits", here->has_cast && (by_op || !has_loss), heads,
      logits, PLAN_DTYPE_FP32, PLAN_CATEGORY_LOSS },
    { &self->head.dprob, "dprob", has_loss && loss == PLAN_LOSS_EAGER, heads, dprob,
      PLAN_DTYPE_FP32, PLAN_CATEGORY_LOSS },
    { &self->head.dlogits, "dlogits", (has_head || here->has_cast) && !turns, heads, logits,
      sizes->compute, PLAN_CATEGORY_LOSS },
    { &self->head.dnorm, "d.norm_final", has_head, heads, split, sizes->compute,
      PLAN_CATEGORY_ACTIVATIONS },
    { &self->head.dnorm_full, "d.norm_final.full", has_head && splits, heads, whole, sizes->compute,
      PLAN_CATEGORY_ACTIVATIONS },
    { &self->head.loss_rows, "loss_rows", has_loss && self->comm.tensor >= 0, heads, 3 * at_once,
      PLAN_DTYPE_FP32, PLAN_CATEGORY_WORKSPACE },
  };
  for (guint i = 0; i < G_N_ELEMENTS (table); i++)
    *table[i].array = table[i].exists ? plan_schedule_add_buffer (self->schedule, table[i].name,
                                                                  table[i].count, table[i].elements,
                                                                  table[i].dtype, table[i].category)
                                      : -1;
  if (splits && is_static)
    self->head.norm_full = self->work.gathered[FALSE];
  self->params.final_norm_bias
      = self->model->norm_bias ? PLAN_TENSOR_FINAL_NORM_BIAS : PLAN_N_TENSORS;
}

void
plan_lower_declare_joined (PlanLower *self)
{
  const PlanDtype compute = self->sizes->compute;
  const guint64 rows = (guint64)piece_of (self, 0).rows, hidden = (guint64)self->model->hidden;
  self->head.logits_again = declare_joined (
      self, "logits.again", rows * (guint64)self->sizes->vocab, compute, PLAN_CATEGORY_LOSS);
  self->head.dnorm_piece = declare_joined (self, "d.norm_final.piece", rows * hidden, compute,
                                           PLAN_CATEGORY_ACTIVATIONS);
  self->head.dnorm_sum
      = declare_joined (self, "d.norm_final.sum", (guint64)self->sizes->rows * hidden,
                        PLAN_DTYPE_FP32, PLAN_CATEGORY_ACTIVATIONS);
  self->head.landed = self->head.logits_again >= 0 && self->policy.has_own_groups
                          ? plan_schedule_add_event (self->schedule, "head_landed", 1)
                          : -1;
}

/* --- forwards --------------------------------------------------------------------------------- */

static PlanRef
stats (const PlanLower *self)
{
  return self->comm.tensor < 0 ? PLAN_REF_NONE : HEAD (loss_rows);
}

/* The statistics of a loss whose vocabulary is split over ranks: the maxima, the sums, and the
 * targets' logits. */
static void
share_loss (PlanLower *self, PlanRef logits, Piece piece)
{
  const gint64 rows = piece.rows, *dims = PLAN_DIMS (rows, self->sizes->vocab);
  const PlanRef max = stats (self);
  if (self->comm.tensor < 0)
    return;
  const PlanRef sum = plan_lower_at (max, (guint64)rows);
  const PlanRef target = plan_lower_at (max, 2 * (guint64)rows);
  plan_lower_compute (self, PLAN_OP_ROW_STAT, PLAN_REFS (max, logits, PLAN_REF_NONE, PLAN_REF_NONE),
                      dims);
  plan_lower_exchange (self, PLAN_OP_ALL_REDUCE_MAX, PLAN_REFS (max), rows);
  plan_lower_compute (self, PLAN_OP_ROW_STAT, PLAN_REFS (sum, logits, max, PLAN_REF_NONE), dims);
  plan_lower_exchange (self, PLAN_OP_ALL_REDUCE, PLAN_REFS (sum), rows);
  plan_lower_compute (self, PLAN_OP_ROW_STAT,
                      PLAN_REFS (target, logits, PLAN_REF_NONE, targets (self, piece)), dims);
  plan_lower_exchange (self, PLAN_OP_ALL_REDUCE, PLAN_REFS (target), rows);
}

/* Whether logits are freed once they have been widened: nothing reads them again. */
static gboolean
frees_logits_early (const PlanLower *self)
{
  return self->stack->loss.kind == PLAN_LOSS_SHARDED && self->model->logit_softcap == 0;
}

/* The logits as the loss reads them. Separate kernels that do not work in place make an fp32 image,
 * unless another stage has sent one. */
static PlanRef
widen_logits (PlanLower *self, Piece piece)
{
  if (self->head.wide_logits < 0)
    return logits_of (self, piece);
  if (!self->now.here.has_cast)
    return KEPT (wide_logits);
  plan_lower_alloc (self, KEPT (wide_logits));
  plan_lower_compute (self, PLAN_OP_CAST, PLAN_REFS (KEPT (wide_logits), logits_of (self, piece)),
                      PLAN_DIMS (piece.rows * self->sizes->vocab));
  if (frees_logits_early (self))
    plan_lower_free (self, logits_of (self, piece));
  return KEPT (wide_logits);
}

/* Makes the softmax of the logits, which stays for their gradient. */
static void
keep_softmax (PlanLower *self, Piece piece)
{
  const PlanRef logits = widen_logits (self, piece);
  plan_lower_alloc (self, KEPT (prob));
  if (self->head.image >= 0)
    plan_lower_alloc (self, HEAD (image));
  share_loss (self, logits, piece);
  plan_lower_compute (
      self, PLAN_OP_CROSS_ENTROPY,
      PLAN_REFS (ONE (sums.own), KEPT (prob), logits, targets (self, piece), stats (self)),
      PLAN_DIMS (piece.rows, self->sizes->vocab));
  if (self->head.image >= 0)
    plan_lower_free (self, HEAD (image));
  if (self->head.wide_logits >= 0 && !keeps_wide_logits (self))
    plan_lower_free (self, logits);
  if ((self->model->logit_softcap == 0 || self->policy.is_eval) && !frees_logits_early (self)
      && !outlives_piece (self))
    plan_lower_free (self, logits_of (self, piece));
  if (self->policy.is_eval)
    plan_lower_free (self, KEPT (prob));
}

/* Turns logits into their gradient. After an evaluation nobody reads that. */
static void
turn_logits (PlanLower *self, Piece piece)
{
  share_loss (self, logits_of (self, piece), piece);
  plan_lower_compute (
      self, PLAN_OP_LOSS_GRAD,
      PLAN_REFS (ONE (sums.own), logits_of (self, piece), targets (self, piece), stats (self)),
      PLAN_DIMS (piece.rows, self->sizes->vocab));
  if (self->policy.is_eval)
    plan_lower_free (self, logits_of (self, piece));
}

/* Frees the input of the output layer, except what its backward pass reads. */
static void
drop_input (PlanLower *self)
{
  if (splits (self) && !keeps_gathered (self))
    plan_lower_free (self, KEPT (norm_full));
  if (self->policy.is_eval || (splits (self) && keeps_gathered (self)))
    plan_lower_free (self, KEPT (norm));
}

static void
make_logits (PlanLower *self, Piece piece)
{
  plan_lower_alloc (self, logits_of (self, piece));
  if (piece.first == 0 && !is_made_backwards (self))
    plan_lower_reach_output (self);
  plan_lower_compute (
      self, PLAN_OP_GEMM,
      PLAN_REFS (logits_of (self, piece), input (self, piece), output_weight (self), PLAN_REF_NONE),
      PLAN_DIMS (piece.rows, self->sizes->vocab, self->model->hidden, 1));
  if (is_last (self, piece) && !is_made_backwards (self))
    drop_input (self);
  if (outlives_piece (self) && piece.first > 0)
    plan_lower_free (self, logits_of (self, (Piece){ piece.first - piece.rows, piece.rows }));
  if (self->model->logit_softcap > 0)
    plan_lower_compute (self, PLAN_OP_SOFTCAP, PLAN_REFS (logits_of (self, piece)),
                        PLAN_DIMS (piece.rows * self->sizes->vocab));
}

/* The forward pass of a piece, as far as this stage does it. */
static void
piece_forward (PlanLower *self, Piece piece)
{
  const PlanStage *here = &self->now.here;
  if (here->has_head)
    make_logits (self, piece);
  if (here->has_loss && turns_logits (self))
    turn_logits (self, piece);
  else if (here->has_loss)
    keep_softmax (self, piece);
  else if (here->has_cast)
    widen_logits (self, piece);
}

static void
look_at_loss (PlanLower *self)
{
  if (self->plan->value[PLAN_NAN_CHECK] == PLAN_NAN_CHECK_LOSS)
    plan_lower_look (self);
}

void
plan_lower_loss_forward (PlanLower *self)
{
  if (splits (self) && self->now.here.has_head)
    {
      plan_lower_alloc (self, KEPT (norm_full));
      plan_lower_exchange (self, PLAN_OP_ALL_GATHER, PLAN_REFS (KEPT (norm_full), KEPT (norm)),
                           self->sizes->split_rows * self->model->hidden);
    }
  if (is_made_backwards (self))
    {
      plan_lower_reach_output (self);
      drop_input (self);
      return;
    }
  for (gint64 i = 0; i < n_pieces (self); i++)
    piece_forward (self, piece_of (self, i));
  look_at_loss (self);
}

/* --- backwards -------------------------------------------------------------------------------- */

static void
round_gradient (PlanLower *self, Piece piece)
{
  plan_lower_alloc (self, HEAD (dlogits));
  plan_lower_compute (self, PLAN_OP_CAST, PLAN_REFS (HEAD (dlogits), HEAD (wide_dlogits)),
                      PLAN_DIMS (piece.rows * self->sizes->vocab));
  plan_lower_free (self, HEAD (wide_dlogits));
}

/* Makes the gradient of the logits from the softmax. Separate kernels make it in fp32 and then
 * round it. If another stage rounds it, it takes the place of the softmax (nanotron's
 * tensor_parallel/functional.py, _ShardedCrossEntropy). */
static void
turn_softmax (PlanLower *self, Piece piece)
{
  const PlanRef made = self->head.wide_dlogits >= 0 ? HEAD (wide_dlogits) : HEAD (dlogits);
  if (!self->now.here.has_cast)
    {
      plan_lower_compute (self, PLAN_OP_CROSS_ENTROPY_BWD,
                          PLAN_REFS (KEPT (prob), KEPT (prob), targets (self, piece)),
                          PLAN_DIMS (piece.rows, self->sizes->vocab));
      if (keeps_wide_logits (self))
        plan_lower_free (self, KEPT (wide_logits));
      return;
    }
  if (self->head.dprob >= 0)
    plan_lower_alloc (self, HEAD (dprob));
  plan_lower_alloc (self, made);
  plan_lower_compute (self, PLAN_OP_CROSS_ENTROPY_BWD,
                      PLAN_REFS (made, KEPT (prob), targets (self, piece)),
                      PLAN_DIMS (piece.rows, self->sizes->vocab));
  if (self->head.dprob >= 0)
    plan_lower_free (self, HEAD (dprob));
  if (keeps_wide_logits (self))
    plan_lower_free (self, KEPT (wide_logits));
  plan_lower_free (self, KEPT (prob));
  if (self->head.wide_dlogits < 0)
    return;
  round_gradient (self, piece);
}

/* The gradient of a piece's logits, as GEMMs read it. */
static PlanRef
gradient_of_logits (PlanLower *self, Piece piece)
{
  if (turns_logits (self))
    return logits_of (self, piece);
  turn_softmax (self, piece);
  if (self->model->logit_softcap > 0)
    {
      plan_lower_compute (self, PLAN_OP_SOFTCAP_BWD,
                          PLAN_REFS (HEAD (dlogits), logits_of (self, piece)),
                          PLAN_DIMS (piece.rows * self->sizes->vocab));
      if (!outlives_piece (self))
        plan_lower_free (self, logits_of (self, piece));
    }
  return HEAD (dlogits);
}

static PlanRef
gradient_of_input (const PlanLower *self)
{
  return splits (self) ? HEAD (dnorm_full) : HEAD (dnorm);
}

/* The gradient of the output layer's input: a product over the vocabulary. */
static void
input_backward (PlanLower *self, PlanRef dlogits, Piece piece)
{
  const gint64 hidden = self->model->hidden;
  const guint64 at = (guint64)(piece.first * hidden);
  const gboolean joins = self->policy.joins_pieces;
  const PlanRef out = joins ? ONE (head.dnorm_piece) : plan_lower_at (gradient_of_input (self), at);
  if (piece.first == 0)
    {
      if (!joins)
        plan_lower_alloc (self, gradient_of_input (self));
      plan_lower_touch (self, plan_lower_ref (self->work.gemm[TRUE]));
    }
  if (joins)
    plan_lower_alloc (self, out);
  plan_lower_compute (self, PLAN_OP_GEMM,
                      PLAN_REFS (out, dlogits, output_weight (self), PLAN_REF_NONE),
                      PLAN_DIMS (piece.rows, hidden, self->sizes->vocab, 0));
}

/* Copies a piece's gradient to its place among those of the other pieces. */
static void
join_input (PlanLower *self, Piece piece)
{
  const gint64 hidden = self->model->hidden;
  plan_lower_compute (
      self, PLAN_OP_CAST,
      PLAN_REFS (plan_lower_at (ONE (head.dnorm_sum), (guint64)(piece.first * hidden)),
                 ONE (head.dnorm_piece)),
      PLAN_DIMS (piece.rows * hidden));
  plan_lower_free (self, ONE (head.dnorm_piece));
}

static void
begin_joining (PlanLower *self)
{
  plan_lower_alloc (self, ONE (head.dnorm_sum));
  plan_lower_compute (self, PLAN_OP_ZERO, PLAN_REFS (ONE (head.dnorm_sum)),
                      PLAN_DIMS (self->sizes->rows * self->model->hidden));
}

static void
end_joining (PlanLower *self)
{
  plan_lower_free (self, logits_of (self, piece_of (self, n_pieces (self) - 1)));
  plan_lower_alloc (self, gradient_of_input (self));
  plan_lower_compute (self, PLAN_OP_CAST,
                      PLAN_REFS (gradient_of_input (self), ONE (head.dnorm_sum)),
                      PLAN_DIMS (self->sizes->rows * self->model->hidden));
  plan_lower_free (self, ONE (head.dnorm_sum));
}

/* Gathers the input of the output layer again, if it was freed after the forward pass. */
static void
gather_input (PlanLower *self)
{
  if (!splits (self) || keeps_gathered (self))
    return;
  plan_lower_alloc (self, KEPT (norm_full));
  plan_lower_exchange (self, PLAN_OP_ALL_GATHER, PLAN_REFS (KEPT (norm_full), KEPT (norm)),
                       self->sizes->split_rows * self->model->hidden);
}

static void
whole_backward (PlanLower *self)
{
  const Piece whole = { 0, self->sizes->rows };
  const PlanRef dlogits
      = self->now.here.has_loss ? gradient_of_logits (self, whole) : HEAD (dlogits);
  plan_lower_gather_last (self);
  input_backward (self, dlogits, whole);
  gather_input (self);
  plan_lower_weight_gradient (self, output_role (self), PLAN_NO_UNIT, dlogits, input (self, whole),
                              whole.rows, self->sizes->vocab, self->model->hidden, 2);
  plan_lower_free (self, dlogits);
}

static void
pieces_backward (PlanLower *self)
{
  PlanLowerSum sum = plan_lower_begin_sum (self, output_role (self));
  if (self->policy.joins_pieces)
    begin_joining (self);
  for (gint64 i = 0; i < n_pieces (self); i++)
    {
      const Piece piece = piece_of (self, i);
      piece_forward (self, piece);
      const PlanRef dlogits = gradient_of_logits (self, piece);
      input_backward (self, dlogits, piece);
      plan_lower_add_product (self, &sum, dlogits, input (self, piece),
                              PLAN_DIMS (self->sizes->vocab, self->model->hidden, piece.rows, 2));
      plan_lower_free (self, dlogits);
      if (self->policy.joins_pieces)
        join_input (self, piece);
    }
  if (self->policy.joins_pieces)
    end_joining (self);
  look_at_loss (self);
  plan_lower_end_sum (self, &sum);
}

void
plan_lower_logits_backward (PlanLower *self)
{
  const Piece whole = { 0, self->sizes->rows };
  if (self->now.here.has_loss)
    turn_softmax (self, whole);
  else
    round_gradient (self, whole);
}

/* The buffer of logits or of their gradient that this stage exchanges with its neighbour.
 * `is_wide`: in fp32. */
static PlanRef
logits_in_between (const PlanLower *self, gboolean is_wide, gboolean is_gradient)
{
  if (!is_gradient)
    return is_wide ? KEPT (wide_logits) : KEPT (logits);
  return !is_wide ? HEAD (dlogits) : self->now.here.has_cast ? HEAD (wide_dlogits) : KEPT (prob);
}

PlanRef
plan_lower_from_before (const PlanLower *self, gboolean is_gradient)
{
  if (plan_stage_reads_logits (&self->now.here))
    return logits_in_between (self, !self->now.here.has_cast, is_gradient);
  return is_gradient ? plan_lower_input_gradient (self) : plan_lower_input (self);
}

PlanRef
plan_lower_for_next (const PlanLower *self, gboolean is_gradient)
{
  if (self->now.here.has_head || self->now.here.has_cast)
    return logits_in_between (self, self->now.here.has_cast, is_gradient);
  return is_gradient ? plan_lower_output_gradient (self) : plan_lower_output (self);
}

void
plan_lower_loss_backward (PlanLower *self)
{
  const gint64 hidden = self->model->hidden;
  const PlanRef dnorm = gradient_of_input (self);
  if (n_pieces (self) > 1)
    pieces_backward (self);
  else
    {
      if (is_made_backwards (self))
        {
          piece_forward (self, piece_of (self, 0));
          look_at_loss (self);
        }
      whole_backward (self);
    }
  if (!(splits (self) && keeps_gathered (self)))
    plan_lower_free (self, KEPT (norm));
  if (splits (self))
    {
      plan_lower_free (self, KEPT (norm_full));
      plan_lower_alloc (self, HEAD (dnorm));
      plan_lower_exchange (self, PLAN_OP_REDUCE_SCATTER, PLAN_REFS (HEAD (dnorm), dnorm),
                           self->sizes->split_rows * hidden);
      plan_lower_free (self, dnorm);
    }
  else if (self->comm.tensor >= 0)
    plan_lower_exchange (self, PLAN_OP_ALL_REDUCE, PLAN_REFS (dnorm), self->sizes->rows * hidden);
}
