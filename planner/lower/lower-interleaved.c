/* SPDX-License-Identifier: Apache-2.0 */
/* The micro batches of a step through the virtual stages of a stage, under interleaved 1F1B
 * (Megatron-LM's schedules.py 1019-2112): so many forward passes, then a forward pass and a
 * backward pass in turn, then what backward passes are left; planner/plan/stages.h says which.
 *
 * What a pass leaves travels beside the compute that follows, once round all stages to the next
 * virtual stage. All stages exchange at once, in a ring: even ones send first, odd ones take first.
 * So nobody waits for ever. */
#include "config.h"

#include "planner/lower/lower-buckets.h"
#include "planner/lower/lower-emit.h"
#include "planner/lower/lower-step.h"
#include "planner/plan/stages.h"

/* An output, or an input's gradient, that is being sent. */
typedef struct
{
  PlanStagePass pass;  /* that left it */
  gboolean is_kept;    /* its buffer is not freed yet */
  gboolean is_awaited; /* compute waits for the exchange */
} Sent;

typedef struct
{
  PlanLower *lower;
  gint64 passes; /* of either direction */
  gint64 ahead;  /* forward passes before the first backward one */
  gboolean reduces_beside;
  gboolean *is_reducing; /* by virtual stage: its reductions have begun */
  Sent output, gradient; /* the last ones: forward, backward */
} Interleaved;

static PlanStagePass
pass_at (const Interleaved *self, gint64 at, gboolean is_backward)
{
  return plan_stage_pass (self->lower->plan, self->lower->place.micro_batches, at, is_backward);
}

/* Goes to the virtual stage and the row of a pass. */
static void
set_pass (PlanLower *lower, PlanStagePass pass)
{
  lower->now.here = plan_stage_virtual (&lower->stage, pass.virtual_stage);
  lower->now.row = pass.micro_batch % lower->rows;
}

static gboolean
is_sent (PlanTrade trade)
{
  return trade == PLAN_TRADE_OUTPUT || trade == PLAN_TRADE_INPUT_GRADIENT;
}

/* Whether the other side is the next stage, not the one before. */
static gboolean
is_with_next (PlanTrade trade)
{
  return trade == PLAN_TRADE_OUTPUT || trade == PLAN_TRADE_OUTPUT_GRADIENT;
}

static PlanRef
buffer_of (PlanLower *lower, PlanTrade trade, PlanStagePass pass)
{
  set_pass (lower, pass);
  switch (trade)
    {
    case PLAN_TRADE_INPUT:
      return plan_lower_input (lower);
    case PLAN_TRADE_OUTPUT:
      return plan_lower_output (lower);
    case PLAN_TRADE_OUTPUT_GRADIENT:
      return plan_lower_output_gradient (lower);
    case PLAN_TRADE_INPUT_GRADIENT:
    case PLAN_N_TRADES:
      break;
    }
  return plan_lower_input_gradient (lower);
}

static PlanRef
event_of (const PlanLower *lower, PlanTrade trade, PlanStagePass pass)
{
  PlanRef event = plan_lower_ref (lower->event.trades[trade]);
  event.offset
      = (gint32)(pass.micro_batch % lower->rows * lower->stage.n_virtual + pass.virtual_stage);
  return event;
}

/* Whether an exchange is on the stream and in the group `next`. Two stages are each other's next
 * and previous one: there each direction has a stream, so that neither waits for the other. */
static gboolean
is_on_next (const PlanLower *lower, PlanTrade trade)
{
  return lower->plan->value[PLAN_PP] > 2 ? is_with_next (trade)
                                         : is_sent (trade) == (lower->place.stage_number == 0);
}

/* Starts one exchange, sending or receiving, behind all compute issued so far. */
static void
trade_now (PlanLower *lower, PlanTrade trade, PlanStagePass pass)
{
  const gint64 stages = lower->plan->value[PLAN_PP], number = lower->place.stage_number;
  const gint64 peer = (number + (is_with_next (trade) ? 1 : stages - 1)) % stages;
  const gint64 count = lower->sizes->split_rows * lower->model->hidden;
  const PlanRef buffer = buffer_of (lower, trade, pass);
  const gboolean sends = is_sent (trade), is_next = is_on_next (lower, trade);
  if (!sends)
    plan_lower_alloc (lower, buffer);
  plan_lower_collective_of (
      lower, PLAN_OP_TRADE, is_next ? PLAN_STREAM_NEXT : PLAN_STREAM_PREV,
      is_next ? lower->comm.next : lower->comm.prev,
      PLAN_REFS (sends ? PLAN_REF_NONE : buffer, sends ? buffer : PLAN_REF_NONE),
      PLAN_DIMS (count, peer, trade == PLAN_TRADE_OUTPUT_GRADIENT), PLAN_REF_NONE,
      event_of (lower, trade, pass));
}

static void
await (PlanLower *lower, PlanTrade trade, PlanStagePass pass)
{
  plan_lower_wait (lower, event_of (lower, trade, pass));
}

/* The last virtual stage of the last stage has the loss, the first of the first one the tokens. */
static gboolean
is_traded (const PlanLower *lower, PlanTrade trade, PlanStagePass pass)
{
  return is_with_next (trade)
             ? !(lower->stage.has_head && pass.virtual_stage + 1 == lower->stage.n_virtual)
             : !(lower->stage.has_embedding && pass.virtual_stage == 0);
}

/* Frees a buffer that was sent, once compute waits for the exchange. */
static void
drop (Interleaved *self, Sent *sent, PlanTrade trade)
{
  if (!sent->is_kept)
    return;
  if (!sent->is_awaited)
    await (self->lower, trade, sent->pass);
  plan_lower_free (self->lower, buffer_of (self->lower, trade, sent->pass));
  sent->is_kept = FALSE;
}

/* The pass whose input is received behind the pass `at`: the next one. On the stage that closes the
 * ring (the first one forward, the last one backward) it is the pass through the next virtual stage
 * of what the other end sends now. FALSE where nothing is received. */
static gboolean
find_received (const Interleaved *self, gint64 at, gboolean is_backward, PlanStagePass *out_pass)
{
  const PlanLower *lower = self->lower;
  const gboolean is_end = is_backward ? lower->stage.has_head : lower->stage.has_embedding;
  const gint64 last = is_backward ? 0 : lower->stage.n_virtual - 1;
  const gint64 from = is_end ? at - (lower->plan->value[PLAN_PP] - 1) : at + 1;
  if (from < 0 || from >= self->passes)
    return FALSE;
  *out_pass = pass_at (self, from, is_backward);
  if (!is_end)
    return TRUE;
  if (out_pass->virtual_stage == last)
    return FALSE;
  out_pass->virtual_stage += is_backward ? -1 : 1;
  return TRUE;
}

/* Exchanges with both neighbours behind a pass: its output is sent, another pass's input received.
 */
static void
exchange (Interleaved *self, gint64 at, gboolean is_backward)
{
  PlanLower *lower = self->lower;
  const PlanTrade out = is_backward ? PLAN_TRADE_INPUT_GRADIENT : PLAN_TRADE_OUTPUT;
  const PlanTrade in = is_backward ? PLAN_TRADE_OUTPUT_GRADIENT : PLAN_TRADE_INPUT;
  const PlanStagePass pass = pass_at (self, at, is_backward);
  const gboolean is_even = lower->place.stage_number % 2 == 0;
  PlanStagePass received = { 0 };
  const gboolean sends = is_traded (lower, out, pass);
  const gboolean takes = find_received (self, at, is_backward, &received);
  if (sends && is_even)
    trade_now (lower, out, pass);
  if (takes)
    trade_now (lower, in, received);
  if (sends && !is_even)
    trade_now (lower, out, pass);
}

/* Each virtual stage's weights are asked for as the one before begins on some stage, by all stages
 * at once (schedules.py 1215-1221); those of the first two are, as the step begins. */
static void
gather_ahead (Interleaved *self, gint64 at)
{
  PlanLower *lower = self->lower;
  const gint64 there = at + lower->place.stage_number;
  if (lower->policy.gather_time != PLAN_GATHER_BY_STAGE || there >= self->passes)
    return;
  const PlanStagePass pass = pass_at (self, there, FALSE);
  const gint64 next = pass.virtual_stage + 1;
  if (pass.micro_batch > 0 || next < 2 || next >= lower->stage.n_virtual)
    return;
  lower->now.here = plan_stage_virtual (&lower->stage, next);
  lower->now.is_first_micro_batch = TRUE;
  plan_lower_gather_here (lower);
}

static void
forward (Interleaved *self, gint64 at)
{
  PlanLower *lower = self->lower;
  const PlanStagePass pass = pass_at (self, at, FALSE);
  const gboolean is_ahead = at < self->ahead;
  if (is_traded (lower, PLAN_TRADE_INPUT, pass))
    await (lower, PLAN_TRADE_INPUT, pass);
  if (self->output.is_awaited)
    drop (self, &self->output, PLAN_TRADE_OUTPUT);
  gather_ahead (self, at);
  set_pass (lower, pass);
  lower->now.is_first_micro_batch = pass.micro_batch == 0;
  plan_lower_forward (lower);
  drop (self, &self->output, PLAN_TRADE_OUTPUT);
  exchange (self, at, FALSE);
  self->output = (Sent){ .pass = pass,
                         .is_kept = is_traded (lower, PLAN_TRADE_OUTPUT, pass),
                         .is_awaited = is_ahead || lower->stack->pipeline.awaits_sent };
  if (self->output.is_kept && self->output.is_awaited)
    await (lower, PLAN_TRADE_OUTPUT, pass);
  if (is_ahead)
    drop (self, &self->output, PLAN_TRADE_OUTPUT);
}

static void
reduce (Interleaved *self, gint64 virtual_stage)
{
  if (!self->reduces_beside || self->is_reducing[virtual_stage])
    return;
  self->is_reducing[virtual_stage] = TRUE;
  self->lower->now.here = plan_stage_virtual (&self->lower->stage, virtual_stage);
  plan_lower_reduce_here (self->lower);
}

/* All stages start to reduce a virtual stage's gradients at once: when the first one, which is last
 * to have them, does (schedules.py 1444-1455). */
static void
reduce_behind (Interleaved *self, gint64 at)
{
  const gint64 there = at - self->lower->place.stage_number;
  if (there < 0)
    return;
  const PlanStagePass pass = pass_at (self, there, TRUE);
  if (pass.micro_batch + 1 == self->lower->place.micro_batches)
    reduce (self, pass.virtual_stage);
}

static void
backward (Interleaved *self, gint64 at, gboolean is_alone)
{
  PlanLower *lower = self->lower;
  const PlanStagePass pass = pass_at (self, at, TRUE);
  if (is_traded (lower, PLAN_TRADE_OUTPUT_GRADIENT, pass))
    await (lower, PLAN_TRADE_OUTPUT_GRADIENT, pass);
  set_pass (lower, pass);
  lower->now.is_first_micro_batch = pass.micro_batch == 0;
  plan_lower_backward (lower, pass.micro_batch + 1 == lower->place.micro_batches);
  reduce_behind (self, at);
  drop (self, &self->gradient, PLAN_TRADE_INPUT_GRADIENT);
  exchange (self, at, TRUE);
  self->gradient
      = (Sent){ .pass = pass, .is_kept = is_traded (lower, PLAN_TRADE_INPUT_GRADIENT, pass) };
  if (is_alone)
    drop (self, &self->gradient, PLAN_TRADE_INPUT_GRADIENT);
}

static void
take_turn (Interleaved *self, gint64 i)
{
  forward (self, self->ahead + i);
  backward (self, i, FALSE);
}

/* How often turns from `i` on recur, after as many as there are rows of passes. None is among them
 * in which a virtual stage's first micro batch goes forward or its last one backward. */
static gint64
rounds_from (const Interleaved *self, gint64 i)
{
  const PlanLower *lower = self->lower;
  const gint64 n_virtual = lower->stage.n_virtual;
  const gint64 forward_end = self->passes - 1 - self->ahead;
  const gint64 backward_end = self->passes - plan_stage_group (lower->plan) * n_virtual;
  const gint64 turns = MIN (forward_end, backward_end) - i;
  return turns > 0 ? turns / (lower->rows * n_virtual) : 0;
}

static void
take_turns (Interleaved *self)
{
  PlanLower *lower = self->lower;
  const gint64 turns = self->passes - self->ahead, period = lower->rows * lower->stage.n_virtual;
  const gint64 begin = lower->plan->value[PLAN_PP];
  for (gint64 i = 0; i < turns;)
    {
      const gint64 rounds = i == begin ? rounds_from (self, i) : 0;
      if (rounds < 2)
        {
          take_turn (self, i++);
          continue;
        }
      const PlanLowerUnit round = plan_lower_begin_repeat (lower, "m", 0, rounds, 1);
      for (gint64 k = 0; k < period; k++)
        take_turn (self, i + k);
      plan_lower_end_units (lower, round);
      i += rounds * period;
    }
}

/* Reductions that no backward pass was beside. */
static void
finish (Interleaved *self)
{
  PlanLower *lower = self->lower;
  drop (self, &self->gradient, PLAN_TRADE_INPUT_GRADIENT);
  for (gint64 i = 0; i < lower->stage.n_virtual; i++)
    reduce (self, i);
  lower->now.here = plan_stage_whole (&lower->stage);
  lower->now.row = 0;
  plan_lower_add_other_share (lower);
  if (self->reduces_beside)
    plan_lower_await_reduced (lower);
  else if (lower->place.most_ranks > 1)
    plan_lower_reduce_together (lower);
}

void
plan_lower_interleaved (PlanLower *lower)
{
  g_autofree gboolean *is_reducing = g_new0 (gboolean, lower->stage.n_virtual);
  Interleaved self
      = { .lower = lower,
          .passes = plan_stage_passes (lower->plan, lower->place.micro_batches),
          .ahead
          = plan_stage_warm_up (lower->plan, lower->place.stage_number, lower->place.micro_batches),
          .reduces_beside = !lower->policy.reduces_together && !lower->policy.sums_shared_first
                            && lower->place.most_ranks > 1,
          .is_reducing = is_reducing };
  lower->policy.reduces_together = TRUE; /* no layer's backward pass starts a reduction */
  if (lower->policy.is_eval)
    self.ahead = self.passes;
  if (!lower->stage.has_embedding)
    trade_now (lower, PLAN_TRADE_INPUT, pass_at (&self, 0, FALSE));
  for (gint64 at = 0; at < self.ahead; at++)
    forward (&self, at);
  if (lower->policy.is_eval)
    {
      lower->now.here = plan_stage_whole (&lower->stage);
      lower->now.row = 0;
      return;
    }
  if (!lower->stage.has_head)
    trade_now (lower, PLAN_TRADE_OUTPUT_GRADIENT, pass_at (&self, 0, TRUE));
  take_turns (&self);
  drop (&self, &self.output, PLAN_TRADE_OUTPUT);
  for (gint64 at = self.passes - self.ahead; at < self.passes; at++)
    backward (&self, at, TRUE);
  finish (&self);
}
