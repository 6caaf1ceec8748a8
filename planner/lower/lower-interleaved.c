/* SPDX-License-Identifier: Apache-2.0 */
/* The micro batches of a step through the virtual stages of a stage, under interleaved 1F1B
 * (Megatron-LM's schedules.py 1019-2112): some forward passes, then one forward and one backward
 * pass in turn, then the backward passes that are left. planner/plan/stages.h says which pass is
 * which.
 *
 * What a pass leaves is sent beside the compute that follows, to the next stage, or from the last
 * stage to the first one and its next virtual stage. All stages exchange at once, in a ring: stages
 * of even number send first, those of odd number receive first, so that none waits for ever.
 *
 * With pp_overlap=warmup_flush a stage asks for the next pass's input before a pass, not after it,
 * also while the pipeline fills and drains, and a gradient that is sent then is not waited for.
 *
 * With pp_overlap=off all that stages exchange after a forward pass, or after one of each kind, is
 * a batch, and the host waits for it and for all that the device has begun (p2p_communication.py
 * 414-424). What two neighbours exchange in the same batches is one trade. */
#include "config.h"

#include "planner/lower/lower-acts.h"
#include "planner/lower/lower-buckets.h"
#include "planner/lower/lower-combined.h"
#include "planner/lower/lower-emit.h"
#include "planner/lower/lower-offload.h"
#include "planner/lower/lower-step.h"
#include "planner/plan/stages.h"

/* An output, or the gradient of an input, that is being sent. */
typedef struct
{
  PlanStagePass pass;  /* the pass that made it */
  gboolean is_kept;    /* its buffer is not freed yet */
  gboolean is_awaited; /* compute waits for the exchange already */
} Sent;

typedef struct
{
  PlanLower *lower;
  gint64 passes; /* number of forward passes, and of backward passes */
  gint64 ahead;  /* forward passes before the first backward pass */
  gboolean reduces_beside;
  gboolean *is_reducing; /* by virtual stage: its reductions have been started */
  guint n_reducing;      /* number of these */
  Sent output, gradient; /* the last ones sent by a forward and by a backward pass */
  gboolean gathers;      /* in batches: gathers were begun that the host has not waited for */
  /* By virtual stage, where not all are gathered at the same time: its weights are gathered or
   * being gathered; compute has not waited for them yet. */
  gboolean *is_whole, *is_coming;
} Interleaved;

static PlanStagePass
pass_at (const Interleaved *self, gint64 at, gboolean is_backward)
{
  return plan_stage_pass (self->lower->plan, self->lower->place.micro_batches, at, is_backward);
}

/* Sets the virtual stage and the row of activations to those of a pass. */
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

/* Whether an exchange is with the next stage; else it is with the previous one. */
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

/* Whether an exchange uses the stream and the communicator `next`. With two stages, the next stage
 * is also the previous one: then each direction has a stream, so that neither waits for the
 * other. */
static gboolean
is_on_next (const PlanLower *lower, PlanTrade trade)
{
  return lower->plan->value[PLAN_PP] > 2 ? is_with_next (trade)
                                         : is_sent (trade) == (lower->place.stage_number == 0);
}

/* Starts one exchange, sending or receiving, that waits for all compute issued so far. */
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

/* Whether a pass has that exchange. The first virtual stage of the first stage reads tokens and the
 * last one of the last stage has the loss: neither exchanges anything beyond. */
static gboolean
is_traded (const PlanLower *lower, PlanTrade trade, PlanStagePass pass)
{
  return is_with_next (trade)
             ? !(lower->stage.has_head && pass.virtual_stage + 1 == lower->stage.n_virtual)
             : !(lower->stage.has_embedding && pass.virtual_stage == 0);
}

/* Frees a buffer that was sent, after compute has waited for the exchange. */
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

static gboolean
find_received (const Interleaved *self, gint64 at, gboolean is_backward, PlanStagePass *out_pass,
               gint64 *out_place)
{
  const PlanLowerRanks *here = &self->lower->place;
  return plan_stage_received (self->lower->plan, here->stage_number, here->micro_batches, at,
                              is_backward, out_pass, out_place);
}

/* Whether the pass is one of those before the first backward pass, or after the last forward pass,
 * and exchanges beside it are overlapped, too (schedules.py 1576-1673, 1977-2051). */
static gboolean
is_overlapped_end (const Interleaved *self, gint64 at, gboolean is_backward)
{
  return self->lower->plan->value[PLAN_PP_OVERLAP] == PLAN_PP_OVERLAP_WARMUP_FLUSH
         && (is_backward ? at >= self->passes - self->ahead : at < self->ahead);
}

/* Whether a stage posts its receive before a pass, and not together with the send behind it. The
 * stage that closes the ring posts it behind the pass, as its neighbour sends later. */
static gboolean
takes_early (const Interleaved *self, gint64 at, gboolean is_backward)
{
  const PlanStage *stage = &self->lower->stage;
  return is_overlapped_end (self, at, is_backward)
         && !(is_backward ? stage->has_head : stage->has_embedding);
}

/* Receives the input, or the gradient of an output, of a later pass. */
static void
take (Interleaved *self, gint64 at, gboolean is_backward)
{
  PlanStagePass received = { 0 };
  gint64 place;
  if (find_received (self, at, is_backward, &received, &place))
    trade_now (self->lower, is_backward ? PLAN_TRADE_OUTPUT_GRADIENT : PLAN_TRADE_INPUT, received);
}

/* Whether a stage sends before it receives. The last one does so, too, from where the first stage
 * waits for this very gradient before the pass whose own gradient it sends round the ring. */
static gboolean
sends_first (const Interleaved *self, gint64 at, gboolean is_backward)
{
  const PlanLower *lower = self->lower;
  const gint64 stages = lower->plan->value[PLAN_PP], m = lower->place.micro_batches;
  const gint64 ahead = plan_stage_warm_up (lower->plan, 0, m);
  return lower->place.stage_number % 2 == 0
         || (lower->plan->value[PLAN_PP_OVERLAP] == PLAN_PP_OVERLAP_WARMUP_FLUSH && is_backward
             && lower->stage.has_head && at - (stages - 1) >= self->passes - ahead);
}

/* Exchanges with both neighbours after a pass: sends its output, and receives the input of another
 * pass. */
static void
exchange (Interleaved *self, gint64 at, gboolean is_backward)
{
  PlanLower *lower = self->lower;
  const PlanTrade out = is_backward ? PLAN_TRADE_INPUT_GRADIENT : PLAN_TRADE_OUTPUT;
  const PlanStagePass pass = pass_at (self, at, is_backward);
  const gboolean is_first = sends_first (self, at, is_backward);
  const gboolean sends = is_traded (lower, out, pass);
  if (sends && is_first)
    trade_now (lower, out, pass);
  if (!takes_early (self, at, is_backward))
    take (self, at, is_backward);
  if (sends && !is_first)
    trade_now (lower, out, pass);
}

/* Gathers the weights of the next virtual stage when the first stage begins a virtual stage: all
 * stages gather at the same time (schedules.py 1215-1221). Those of the first two virtual stages
 * are gathered as the step begins. */
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
  self->gathers = TRUE;
}

/* --- weights that stay for several passes ----------------------------------------------------- */

/* The virtual stages of a stage whose weights PyTorch keeps gathered at the same time
 * (schedules.py, _add_unshard_reshard, max_active_stages). */
#define MOST_WHOLE 3

/* Whether weights of virtual stages come and go. */
static gboolean
keeps_some (const PlanLower *lower)
{
  return lower->policy.keeps_weights && lower->stage.n_virtual > MOST_WHOLE;
}

/* Starts gathering all weights as the step begins, if they stay up to its end. */
static void
gather_all (PlanLower *lower)
{
  if (!lower->policy.keeps_weights)
    return;
  for (gint64 i = 0; !keeps_some (lower) && i < lower->stage.n_virtual; i++)
    plan_lower_gather_whole (lower, i);
  lower->now.is_gathered = TRUE;
}

/* Before a pass: drops the weights of virtual stages that are not among the next ones, starts
 * gathering those of the next ones, and waits for its own. */
static void
prepare_weights (Interleaved *self, gint64 at, gboolean is_backward)
{
  PlanLower *lower = self->lower;
  const gint64 turns = self->passes - self->ahead;
  const gint64 n = is_backward ? (at < turns ? self->ahead + 2 * at + 1 : self->passes + at)
                               : at + MAX (at - self->ahead, 0);
  gint64 next[MOST_WHOLE];
  guint n_next = 0;
  if (!keeps_some (lower))
    return;
  for (gint64 i = n; i < 2 * self->passes && n_next < MOST_WHOLE; i++)
    {
      gboolean is_known = FALSE;
      next[n_next] = plan_stage_nth_pass (lower->plan, lower->place.stage_number,
                                          lower->place.micro_batches, i)
                         .virtual_stage;
      for (guint k = 0; k < n_next; k++)
        is_known = is_known || next[k] == next[n_next];
      n_next += is_known ? 0 : 1;
    }
  for (gint64 i = 0; i < lower->stage.n_virtual; i++)
    {
      gboolean is_next = FALSE;
      for (guint k = 0; k < n_next; k++)
        is_next = is_next || next[k] == i;
      if (self->is_whole[i] && !is_next)
        plan_lower_drop_whole (lower, i);
      self->is_whole[i] = self->is_whole[i] && is_next;
    }
  for (guint k = 0; k < n_next; k++)
    if (!self->is_whole[next[k]])
      {
        plan_lower_gather_whole (lower, next[k]);
        self->is_whole[next[k]] = self->is_coming[next[k]] = TRUE;
      }
  if (self->is_coming[next[0]])
    plan_lower_receive_whole (lower, next[0]);
  self->is_coming[next[0]] = FALSE;
  lower->now.has_weights = TRUE;
}

/* --- passes ----------------------------------------------------------------------------------- */

static gboolean
is_awaited (const PlanLower *lower)
{
  return lower->stack->pipeline.trades == PLAN_TRADES_AWAITED;
}

/* What comes before a forward pass and after it. */
static void
prepare_forward (Interleaved *self, gint64 at)
{
  PlanLower *lower = self->lower;
  const PlanStagePass pass = pass_at (self, at, FALSE);
  prepare_weights (self, at, FALSE);
  if (is_traded (lower, PLAN_TRADE_INPUT, pass))
    await (lower, PLAN_TRADE_INPUT, pass);
  if (self->output.is_awaited)
    drop (self, &self->output, PLAN_TRADE_OUTPUT);
  if (takes_early (self, at, FALSE))
    take (self, at, FALSE);
  gather_ahead (self, at);
}

static void
finish_forward (Interleaved *self, gint64 at)
{
  PlanLower *lower = self->lower;
  const PlanStagePass pass = pass_at (self, at, FALSE);
  const gboolean is_ahead = at < self->ahead && !is_overlapped_end (self, at, FALSE);
  drop (self, &self->output, PLAN_TRADE_OUTPUT);
  exchange (self, at, FALSE);
  self->output = (Sent){ .pass = pass,
                         .is_kept = is_traded (lower, PLAN_TRADE_OUTPUT, pass),
                         .is_awaited = is_ahead || is_awaited (lower) };
  if (self->output.is_kept && self->output.is_awaited)
    await (lower, PLAN_TRADE_OUTPUT, pass);
  if (is_ahead || (is_awaited (lower) && at < self->ahead))
    drop (self, &self->output, PLAN_TRADE_OUTPUT);
}

/* Starts copying back the offloaded activations that a backward pass reads first. The forward pass
 * before it, or beside it, hides the copy. */
static void
fetch_ahead (Interleaved *self, gint64 at)
{
  set_pass (self->lower, pass_at (self, at, TRUE));
  plan_lower_fetch_ahead (self->lower);
}

/* Lowers a pass by itself. */
static void
pass_alone (Interleaved *self, gint64 at, gboolean is_backward)
{
  PlanLower *lower = self->lower;
  if (is_backward ? at >= self->passes - self->ahead : at >= self->ahead)
    fetch_ahead (self, is_backward ? at : at - self->ahead);
  const PlanStagePass pass = pass_at (self, at, is_backward);
  set_pass (lower, pass);
  lower->now.is_first_micro_batch = pass.micro_batch == 0;
  plan_lower_pass (lower, is_backward,
                   is_backward && pass.micro_batch + 1 == lower->place.micro_batches);
}

static void
reduce (Interleaved *self, gint64 virtual_stage)
{
  if (!self->reduces_beside || self->is_reducing[virtual_stage])
    return;
  self->is_reducing[virtual_stage] = TRUE;
  self->n_reducing++;
  self->lower->now.here = plan_stage_virtual (&self->lower->stage, virtual_stage);
  plan_lower_reduce_here (self->lower);
}

/* Starts to reduce a virtual stage's gradients when the first stage has completed its own, which it
 * does last: all stages start at once (schedules.py 1444-1455). */
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

/* What comes before a backward pass and after it. */
static void
prepare_backward (Interleaved *self, gint64 at)
{
  prepare_weights (self, at, TRUE);
  if (is_traded (self->lower, PLAN_TRADE_OUTPUT_GRADIENT, pass_at (self, at, TRUE)))
    await (self->lower, PLAN_TRADE_OUTPUT_GRADIENT, pass_at (self, at, TRUE));
  if (takes_early (self, at, TRUE))
    take (self, at, TRUE);
}

static void
finish_backward (Interleaved *self, gint64 at)
{
  PlanLower *lower = self->lower;
  const PlanStagePass pass = pass_at (self, at, TRUE);
  reduce_behind (self, at);
  drop (self, &self->gradient, PLAN_TRADE_INPUT_GRADIENT);
  exchange (self, at, TRUE);
  if (pass.micro_batch + 1 == lower->place.micro_batches)
    {
      set_pass (lower, pass);
      plan_lower_reduce_held (lower); /* drops weights, too */
      self->is_whole[pass.virtual_stage] = FALSE;
    }
  self->gradient
      = (Sent){ .pass = pass, .is_kept = is_traded (lower, PLAN_TRADE_INPUT_GRADIENT, pass) };
  if (at >= self->passes - self->ahead && !is_overlapped_end (self, at, TRUE))
    drop (self, &self->gradient, PLAN_TRADE_INPUT_GRADIENT);
}

static void
forward (Interleaved *self, gint64 at)
{
  prepare_forward (self, at);
  pass_alone (self, at, FALSE);
  finish_forward (self, at);
}

static void
backward (Interleaved *self, gint64 at)
{
  prepare_backward (self, at);
  pass_alone (self, at, TRUE);
  finish_backward (self, at);
}

/* A forward and a backward pass beside each other (ep_overlap). Both leave the stage before weight
 * gradients that were delayed, and before the loss. */
static void
combined (Interleaved *self, gint64 ahead, gint64 back)
{
  prepare_forward (self, ahead);
  prepare_backward (self, back);
  fetch_ahead (self, back);
  PlanLowerPair *pair = plan_lower_begin_pair (self->lower, pass_at (self, ahead, FALSE),
                                               pass_at (self, back, TRUE));
  plan_lower_pair_layers (pair);
  finish_forward (self, ahead);
  finish_backward (self, back);
  plan_lower_end_pair (pair);
}

/* --- in batches ------------------------------------------------------------------------------- */

static gboolean
is_in_batches (const PlanLower *lower)
{
  return lower->plan->value[PLAN_PP_OVERLAP] == PLAN_PP_OVERLAP_OFF;
}

/* What is exchanged at once: by kind, whether there is such an exchange, the pass whose input,
 * output or gradient it is, and the place of the pass that sends it. */
typedef struct
{
  gboolean has[PLAN_N_TRADES];
  PlanStagePass pass[PLAN_N_TRADES];
  gint64 place[PLAN_N_TRADES];
} Batch;

/* The batch in which the neighbour has an exchange. */
static gint64
batch_of_neighbour (const Interleaved *self, gboolean is_next, gboolean is_backward, gint64 place)
{
  const PlanLowerRanks *here = &self->lower->place;
  return plan_stage_batch_there (self->lower->plan, here->stage_number, here->micro_batches,
                                 is_next, is_backward, place);
}

/* Exchanges with one neighbour: what leaves and what comes is one trade if it is in one batch
 * there, too, else in the order in which the neighbour has it. */
static void
trade_with (Interleaved *self, const Batch *batch, gboolean is_next)
{
  PlanLower *lower = self->lower;
  const gint64 stages = lower->plan->value[PLAN_PP], number = lower->place.stage_number;
  const gint64 peer = (number + (is_next ? 1 : stages - 1)) % stages;
  const gint64 count = lower->sizes->split_rows * lower->model->hidden;
  const PlanTrade forward = is_next ? PLAN_TRADE_OUTPUT : PLAN_TRADE_INPUT;
  const PlanTrade backward = is_next ? PLAN_TRADE_OUTPUT_GRADIENT : PLAN_TRADE_INPUT_GRADIENT;
  const gint64 first = batch_of_neighbour (self, is_next, FALSE, batch->place[forward]),
               second = batch_of_neighbour (self, is_next, TRUE, batch->place[backward]);
  const gboolean has_both = batch->has[forward] && batch->has[backward];
  const gboolean is_one = has_both && first == second;
  const PlanTrade order[] = { has_both && second < first ? backward : forward,
                              has_both && second < first ? forward : backward };
  for (guint i = 0; i < (is_one ? 1 : G_N_ELEMENTS (order)); i++)
    {
      const PlanTrade sent = is_one && !is_sent (order[i]) ? order[1 - i] : order[i],
                      received = is_one && is_sent (order[i]) ? order[1 - i] : order[i];
      PlanRef out = PLAN_REF_NONE, in = PLAN_REF_NONE,
              traded = plan_lower_ref (lower->event.traded);
      if (!batch->has[order[i]])
        continue;
      if (is_sent (sent))
        in = buffer_of (lower, sent, batch->pass[sent]);
      if (!is_sent (received))
        out = buffer_of (lower, received, batch->pass[received]);
      if (out.array >= 0)
        plan_lower_alloc (lower, out);
      traded.offset = is_next ? 0 : 1;
      plan_lower_collective_of (lower, PLAN_OP_TRADE, is_next ? PLAN_STREAM_NEXT : PLAN_STREAM_PREV,
                                is_next ? lower->comm.next : lower->comm.prev, PLAN_REFS (out, in),
                                PLAN_DIMS (count, peer, received == PLAN_TRADE_OUTPUT_GRADIENT),
                                PLAN_REF_NONE, traded);
    }
}

/* Marks what a stream has begun, for the host to wait for. */
static PlanRef
mark (PlanLower *lower, PlanStream stream, gint32 number)
{
  PlanRef drained = plan_lower_ref (lower->event.drained);
  drained.offset = number;
  plan_lower_emit (lower, PLAN_OP_WAIT, stream, NULL, NULL, NULL, drained);
  return drained;
}

/* Exchanges a batch; the host waits for it, and for reductions and gathers that are under way. */
static void
trade_batch (Interleaved *self, const Batch *batch)
{
  PlanLower *lower = self->lower;
  const gboolean next = batch->has[PLAN_TRADE_OUTPUT] || batch->has[PLAN_TRADE_OUTPUT_GRADIENT],
                 prev = batch->has[PLAN_TRADE_INPUT] || batch->has[PLAN_TRADE_INPUT_GRADIENT];
  PlanRef waits[] = { PLAN_REF_NONE, PLAN_REF_NONE, PLAN_REF_NONE, PLAN_REF_NONE };
  guint n = 0;
  G_STATIC_ASSERT (G_N_ELEMENTS (waits) <= PLAN_MAX_WAITS);
  if (!next && !prev)
    return;
  for (guint i = 0; i < 2; i++)
    if (lower->place.stage_number % 2 == i ? next : prev)
      trade_with (self, batch, lower->place.stage_number % 2 == i);
  for (gint32 i = 0; i < 2; i++)
    if (i == 0 ? next : prev)
      {
        waits[n] = plan_lower_ref (lower->event.traded);
        waits[n++].offset = i;
      }
  if (self->n_reducing > 0)
    waits[n++] = mark (lower, PLAN_STREAM_REDUCE, 0);
  if (self->gathers && lower->policy.gather_time == PLAN_GATHER_BY_STAGE)
    waits[n++] = mark (lower, PLAN_STREAM_GATHER, 1);
  self->gathers = FALSE;
  plan_lower_emit (lower, PLAN_OP_SYNC, PLAN_STREAM_HOST, NULL, NULL,
                   PLAN_WAITS (waits[0], waits[1], waits[2], waits[3]), PLAN_REF_NONE);
  for (PlanTrade trade = 0; trade < PLAN_N_TRADES; trade++)
    if (batch->has[trade] && is_sent (trade))
      plan_lower_free (lower, buffer_of (lower, trade, batch->pass[trade]));
}

/* Adds what a pass sends, and what is received after it. */
static void
add_to_batch (const Interleaved *self, gint64 at, gboolean is_backward, Batch *batch)
{
  const PlanTrade out = is_backward ? PLAN_TRADE_INPUT_GRADIENT : PLAN_TRADE_OUTPUT;
  const PlanTrade in = is_backward ? PLAN_TRADE_OUTPUT_GRADIENT : PLAN_TRADE_INPUT;
  batch->pass[out] = pass_at (self, at, is_backward);
  batch->place[out] = at;
  batch->has[out] = is_traded (self->lower, out, batch->pass[out]);
  batch->has[in] = find_received (self, at, is_backward, &batch->pass[in], &batch->place[in]);
}

/* Adds the first input, or the first gradient of an output, which no pass precedes. */
static void
add_first (const Interleaved *self, PlanTrade trade, Batch *batch)
{
  const gboolean is_backward = trade == PLAN_TRADE_OUTPUT_GRADIENT;
  const PlanLower *lower = self->lower;
  batch->has[trade] = is_backward ? !lower->stage.has_head : !lower->stage.has_embedding;
  batch->pass[trade] = pass_at (self, 0, is_backward);
  batch->place[trade] = 0;
}

/* Runs forward passes up to the first backward pass. */
static void
fill_in_batches (Interleaved *self)
{
  Batch batch = { .has = { FALSE } };
  self->gathers = TRUE; /* of the first two virtual stages, as the step begins */
  add_first (self, PLAN_TRADE_INPUT, &batch);
  trade_batch (self, &batch);
  for (gint64 at = 0; at < self->ahead; at++)
    {
      batch = (Batch){ .has = { FALSE } };
      gather_ahead (self, at);
      pass_alone (self, at, FALSE);
      add_to_batch (self, at, FALSE, &batch);
      if (at + 1 == self->ahead && self->ahead < self->passes)
        add_first (self, PLAN_TRADE_OUTPUT_GRADIENT, &batch);
      trade_batch (self, &batch);
    }
  batch = (Batch){ .has = { FALSE } };
  if (self->ahead == self->passes)
    add_first (self, PLAN_TRADE_OUTPUT_GRADIENT, &batch);
  trade_batch (self, &batch);
}

/* Runs a backward pass and, if `forward` is one, a forward pass before it. */
static void
turn_in_batches (Interleaved *self, gint64 forward, gint64 at)
{
  Batch batch = { .has = { FALSE } };
  const gboolean has_forward = forward < self->passes;
  const gboolean are_beside = has_forward && self->lower->combined.is_planned;
  if (has_forward)
    {
      gather_ahead (self, forward);
      add_to_batch (self, forward, FALSE, &batch);
    }
  if (are_beside)
    {
      fetch_ahead (self, at);
      plan_lower_pair (self->lower, pass_at (self, forward, FALSE), pass_at (self, at, TRUE));
    }
  else if (has_forward)
    pass_alone (self, forward, FALSE);
  if (!are_beside)
    pass_alone (self, at, TRUE);
  reduce_behind (self, at);
  add_to_batch (self, at, TRUE, &batch);
  trade_batch (self, &batch);
}

/* --- both ways -------------------------------------------------------------------------------- */

static void
take_turn (Interleaved *self, gint64 i)
{
  if (is_in_batches (self->lower))
    turn_in_batches (self, self->ahead + i, i);
  else if (self->lower->combined.is_planned)
    combined (self, self->ahead + i, i);
  else
    {
      forward (self, self->ahead + i);
      backward (self, i);
    }
}

/* How often the turns from `i` on recur: a repeat has as many turns as lead to the same row and the
 * same virtual stage. Turns with a virtual stage's first forward pass or its last backward pass are
 * left out, as these gather or reduce, and so is a smaller last group. */
static gint64
rounds_from (const Interleaved *self, gint64 i)
{
  const PlanLower *lower = self->lower;
  const gint64 n_virtual = lower->stage.n_virtual;
  const gint64 m = lower->place.micro_batches;
  const gint64 whole = plan_stage_whole_groups (lower->plan, m) * n_virtual;
  const gint64 forward_end = whole - 1 - self->ahead;
  const gint64 backward_end
      = whole < self->passes ? whole - 1 : whole - plan_stage_group (lower->plan) * n_virtual;
  /* What is gathered depends on passes up to two changes of the virtual stage later. */
  const gint64 turns = MIN (forward_end, backward_end) - i
                       - (keeps_some (lower) ? 2 * plan_stage_group (lower->plan) : 0);
  return turns > 0 ? turns / (lower->rows * n_virtual) : 0;
}

static void
take_turns (Interleaved *self)
{
  PlanLower *lower = self->lower;
  const gint64 turns = self->passes - self->ahead, period = lower->rows * lower->stage.n_virtual;
  /* Each virtual stage's first backward pass differs where sums of gradients begin with it. */
  const gint64 begin = lower->policy.holds_gradients
                           ? plan_stage_group (lower->plan) * lower->stage.n_virtual
                           : lower->plan->value[PLAN_PP];
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

/* Ends the step's passes with the reductions that no backward pass started. */
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
  else if (lower->place.most_ranks > 1 && !lower->policy.shards_grads)
    plan_lower_reduce_together (lower);
}

void
plan_lower_interleaved (PlanLower *lower)
{
  const gint64 n_virtual = lower->stage.n_virtual;
  g_autofree gboolean *is_reducing = g_new0 (gboolean, n_virtual),
                      *is_whole = g_new0 (gboolean, n_virtual),
                      *is_coming = g_new0 (gboolean, n_virtual);
  Interleaved self
      = { .lower = lower,
          .passes = plan_stage_passes (lower->plan, lower->place.micro_batches),
          .ahead
          = plan_stage_warm_up (lower->plan, lower->place.stage_number, lower->place.micro_batches),
          .reduces_beside = !lower->policy.reduces_together && !lower->policy.sums_shared_first
                            && lower->place.most_ranks > 1 && !lower->policy.shards_grads,
          .is_reducing = is_reducing,
          .is_whole = is_whole,
          .is_coming = is_coming };
  /* Layers' backward passes start no reductions, unless they reduce in every micro batch. */
  lower->policy.reduces_together = !lower->policy.shards_grads;
  if (lower->policy.is_eval)
    self.ahead = self.passes;
  if (is_in_batches (lower))
    {
      fill_in_batches (&self);
      take_turns (&self);
      for (gint64 at = self.passes - self.ahead; at < self.passes; at++)
        turn_in_batches (&self, self.passes, at);
      finish (&self);
      return;
    }
  gather_all (lower);
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
    backward (&self, at);
  finish (&self);
}
