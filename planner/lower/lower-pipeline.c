/* SPDX-License-Identifier: Apache-2.0 */
/* The micro batches of a step through one stage of a pipeline, under 1F1B: as many forward passes
 * as there are later stages, then one forward and one backward pass in turn, then the backward
 * passes that are left (Megatron-LM's schedules.py 2147-2509, nanotron's engine.py 235-346). With
 * pp_schedule=afab all forward passes come first, and nothing is in turn (nanotron's engine.py,
 * AllForwardAllBackwardPipelineEngine; PyTorch's schedules.py, ScheduleGPipe).
 *
 * Activations lie in rows, one for each micro batch that is held at the same time, used in turns.
 * In the steady part everything recurs after as many micro batches as there are rows: these are one
 * repeat. */
#include "config.h"

#include "planner/lower/lower-acts.h"
#include "planner/lower/lower-buckets.h"
#include "planner/lower/lower-emit.h"
#include "planner/lower/lower-loss.h"
#include "planner/lower/lower-offload.h"
#include "planner/lower/lower-step.h"
#include "planner/plan/stages.h"
#include "planner/schedule/echo.h"

#include <string.h>

#define ONE(array) plan_lower_ref (self->array)

static void
set_row (PlanLower *self, gint64 micro_batch)
{
  self->now.row = micro_batch % self->rows;
}

/* What a micro batch receives from the previous stage, and what it makes for the next one. */
static PlanRef
input (PlanLower *self, gint64 micro_batch)
{
  set_row (self, micro_batch);
  return plan_lower_from_before (self, FALSE);
}

static PlanRef
output (PlanLower *self, gint64 micro_batch)
{
  set_row (self, micro_batch);
  return plan_lower_for_next (self, FALSE);
}

/* The gradients of both. */
static PlanRef
input_gradient (PlanLower *self, gint64 micro_batch)
{
  set_row (self, micro_batch);
  return plan_lower_from_before (self, TRUE);
}

static PlanRef
output_gradient (PlanLower *self, gint64 micro_batch)
{
  set_row (self, micro_batch);
  return plan_lower_for_next (self, TRUE);
}

static gint64
elements (PlanLower *self, PlanRef buffer)
{
  return (gint64)plan_schedule_buffer (self->schedule, (guint)buffer.array)->elements;
}

void
plan_lower_declare_trades (PlanLower *self)
{
  static const char *const names[PLAN_N_TRADES]
      = { "input", "output", "output_gradient", "input_gradient" };
  const gboolean trades = self->comm.next >= 0, is_alone = self->stage.n_virtual == 1;
  const gboolean in_batches
      = !is_alone && self->plan->value[PLAN_PP_OVERLAP] == PLAN_PP_OVERLAP_OFF;
  self->event.traded = trades && (is_alone || in_batches || self->policy.sums_shared_first)
                           ? plan_schedule_add_event (self->schedule, "traded", in_batches ? 2 : 1)
                           : -1;
  self->event.drained
      = trades && in_batches ? plan_schedule_add_event (self->schedule, "drained", 2) : -1;
  self->event.sent = trades && is_alone && self->stack->pipeline.trades == PLAN_TRADES_ON_DEVICE
                         ? plan_schedule_add_event (self->schedule, "sent", 1)
                         : -1;
  for (PlanTrade trade = 0; trade < PLAN_N_TRADES; trade++)
    self->event.trades[trade]
        = trades && !is_alone && !in_batches ? plan_schedule_add_event (
              self->schedule, names[trade], (guint32)(self->rows * self->stage.n_virtual))
                                             : -1;
}

/* One exchange with another stage, after all compute issued so far. The host waits for it, or
 * compute does. */
static void
exchange (PlanLower *self, PlanStream stream, gint32 group, gint64 peer, PlanRef sent,
          PlanRef received, gboolean is_gradient)
{
  const PlanRef some = received.array >= 0 ? received : sent;
  plan_lower_collective_of (self, PLAN_OP_TRADE, stream, group, PLAN_REFS (received, sent),
                            PLAN_DIMS (elements (self, some), peer, is_gradient), PLAN_REF_NONE,
                            ONE (event.traded));
  if (self->stack->pipeline.trades == PLAN_TRADES_ON_DEVICE)
    plan_lower_wait (self, ONE (event.traded));
  else
    plan_lower_emit (self, PLAN_OP_SYNC, PLAN_STREAM_HOST, NULL, NULL,
                     PLAN_WAITS (ONE (event.traded)), PLAN_REF_NONE);
}

/* An exchange with a neighbour: allocates what is received, frees what was sent. */
static void
trade (PlanLower *self, PlanStream stream, gint64 peer, PlanRef sent, PlanRef received)
{
  if (received.array >= 0)
    plan_lower_alloc (self, received);
  exchange (self, stream, self->comm.next, peer, sent, received,
            stream == PLAN_STREAM_NEXT && received.array >= 0);
  if (sent.array >= 0)
    plan_lower_free (self, sent);
}

/* Exchanges with the previous stage, if there is one. */
static void
trade_up (PlanLower *self, PlanRef sent, PlanRef received)
{
  if (!self->stage.has_embedding && (sent.array >= 0 || received.array >= 0))
    trade (self, PLAN_STREAM_PREV, self->place.stage_number - 1, sent, received);
}

/* Exchanges with the next stage, if there is one. */
static void
trade_down (PlanLower *self, PlanRef sent, PlanRef received)
{
  if (!self->stage.has_loss)
    trade (self, PLAN_STREAM_NEXT, self->place.stage_number + 1, sent, received);
}

/* Makes compute wait for what is being sent while it goes on, and frees that. */
static void
await_sent (PlanLower *self, PlanRef *sent)
{
  if (sent->array < 0)
    return;
  plan_lower_wait (self, ONE (event.sent));
  plan_lower_free (self, *sent);
  *sent = PLAN_REF_NONE;
}

/* Makes compute wait for all that was sent to the next stage or to the previous one, and frees it:
 * PyTorch does so after all passes of one direction, if these come one after the other. */
static void
await_all_sent (PlanLower *self, gboolean is_next, PlanRef *sent)
{
  if (sent->array < 0)
    return;
  plan_lower_wait (self, ONE (event.sent));
  for (gint64 i = 0; i < self->place.micro_batches; i++)
    plan_lower_free (self, is_next ? output (self, i) : input_gradient (self, i));
  *sent = PLAN_REF_NONE;
}

/* Sends to the next stage or to the previous one, and receives nothing. If compute and not the host
 * waits for exchanges, it does so only before it sends again (`sent`: what is under way), or with
 * pp_schedule=afab after the last one. */
static void
send (PlanLower *self, gboolean is_next, PlanRef buffer, PlanRef *sent)
{
  const gint64 number = self->place.stage_number;
  if (self->stack->pipeline.trades != PLAN_TRADES_ON_DEVICE)
    {
      if (is_next)
        trade_down (self, buffer, PLAN_REF_NONE);
      else
        trade_up (self, buffer, PLAN_REF_NONE);
      return;
    }
  if (!plan_stage_is_afab (self->plan))
    await_sent (self, sent);
  if (is_next ? self->stage.has_loss : self->stage.has_embedding)
    return;
  plan_lower_collective_of (self, PLAN_OP_TRADE, is_next ? PLAN_STREAM_NEXT : PLAN_STREAM_PREV,
                            self->comm.next, PLAN_REFS (PLAN_REF_NONE, buffer),
                            PLAN_DIMS (elements (self, buffer), number + (is_next ? 1 : -1), FALSE),
                            PLAN_REF_NONE, ONE (event.sent));
  *sent = buffer;
}

/* `now` without what does not decide what a pass does: its row, and acts that are over. */
static PlanLowerCursor
rowless (PlanLowerCursor now)
{
  now.row = 0;
  now.attached = now.n_attached > 0 ? now.attached : NULL;
  return now;
}

static gboolean
is_alike (const PlanLowerPass *a, const PlanLowerPass *b)
{
  return a->is_backward == b->is_backward && a->is_last == b->is_last && a->half == b->half
         && a->back == b->back && a->is_first == b->is_first
         && memcmp (&a->before, &b->before, sizeof a->before) == 0;
}

gboolean
plan_lower_begin_pass (PlanLower *self, PlanLowerPass *pass)
{
  const gint64 row = self->now.row;
  pass->before = rowless (self->now);
  pass->begin = plan_schedule_n_nodes (self->schedule);
  for (guint i = 0; self->passes && i < self->passes->len; i++)
    {
      const PlanLowerPass *known = &g_array_index (self->passes, PlanLowerPass, i);
      if (!is_alike (known, pass))
        continue;
      if (known->begin < known->end)
        plan_schedule_add_echo (self->schedule, known->begin, known->end);
      self->now = known->after;
      self->now.row = row;
      return TRUE;
    }
  return FALSE;
}

void
plan_lower_end_pass (PlanLower *self, PlanLowerPass *pass)
{
  pass->after = rowless (self->now);
  pass->end = plan_schedule_n_nodes (self->schedule);
  if (self->passes)
    g_array_append_vals (self->passes, pass, 1);
}

void
plan_lower_pass (PlanLower *self, gboolean is_backward, gboolean is_last)
{
  PlanLowerPass pass;
  memset (&pass, 0, sizeof pass); /* padding, too */
  pass.is_backward = is_backward;
  pass.is_last = is_last;
  if (plan_lower_begin_pass (self, &pass))
    return;
  if (is_backward)
    plan_lower_backward (self, is_last);
  else
    plan_lower_forward (self);
  plan_lower_end_pass (self, &pass);
}

static void
forward (PlanLower *self, gint64 micro_batch)
{
  set_row (self, micro_batch);
  self->now.is_first_micro_batch = micro_batch == 0;
  plan_lower_pass (self, FALSE, FALSE);
}

static void
fetch_ahead (PlanLower *self, gint64 micro_batch)
{
  set_row (self, micro_batch);
  plan_lower_fetch_ahead (self);
}

static void
backward (PlanLower *self, gint64 micro_batch)
{
  set_row (self, micro_batch);
  self->now.is_first_micro_batch = micro_batch == 0;
  plan_lower_pass (self, TRUE, micro_batch + 1 == self->place.micro_batches);
}

/* The i-th turn of the steady part: a forward pass of the micro batch `ahead` later, then a
 * backward pass. */
static void
take_turn (PlanLower *self, gint64 i, gint64 ahead, PlanRef *sent)
{
  const gint64 next = i + ahead + 1;
  fetch_ahead (self, i);
  forward (self, i + ahead);
  await_sent (self, sent);
  trade_down (self, output (self, i + ahead), output_gradient (self, i));
  backward (self, i);
  const PlanRef gradient = input_gradient (self, i);
  if (next < self->place.micro_batches)
    trade_up (self, gradient, input (self, next));
  else
    send (self, FALSE, gradient, sent);
}

/* The steady part. The first turn may differ because it gathers, the last one because it
 * reduces. */
static void
take_turns (PlanLower *self, gint64 turns, gint64 ahead, PlanRef *sent)
{
  for (gint64 i = 0; i < turns;)
    {
      const gint64 rounds = (turns - 1 - i) / self->rows;
      if (i == 0 || rounds < 2)
        {
          take_turn (self, i++, ahead, sent);
          continue;
        }
      const PlanLowerUnit round = plan_lower_begin_repeat (self, "m", 0, rounds, 1);
      for (gint64 k = 0; k < self->rows; k++)
        take_turn (self, i + k, ahead, sent);
      plan_lower_end_units (self, round);
      i += rounds * self->rows;
    }
}

/* This stage's gradient of the matrix that it shares with another stage (tied embeddings). */
static PlanRef
shared_gradient (const PlanLower *self, PlanLowerPlace *out_place)
{
  const PlanTensorRole role = self->stage.has_embedding || self->stage.modules > 0
                                  ? PLAN_TENSOR_EMBEDDING
                                  : PLAN_TENSOR_OUTPUT;
  *out_place = plan_lower_place (self, role, PLAN_NO_UNIT);
  const PlanLowerBucket *b = &self->bucket[out_place->kind];
  return plan_lower_at (plan_lower_unit_ref (b->grads, out_place->unit, 0), out_place->offset);
}

void
plan_lower_sum_shared (PlanLower *self)
{
  PlanLowerPlace place;
  if (self->comm.embedding < 0)
    return;
  const PlanRef grads = shared_gradient (self, &place);
  const gint32 reduced = self->bucket[place.kind].reduced;
  plan_lower_collective (self, PLAN_OP_ALL_REDUCE, PLAN_STREAM_REDUCE, self->comm.embedding,
                         PLAN_REFS (grads), (gint64)place.elements,
                         reduced >= 0 ? plan_lower_unit_ref (reduced, place.unit, 0)
                                      : PLAN_REF_NONE,
                         ONE (event.exchanged));
  plan_lower_wait (self, ONE (event.exchanged));
}

void
plan_lower_declare_shared (PlanLower *self)
{
  PlanLowerPlace place;
  self->sums.other_share = -1;
  if (!self->policy.sums_shared_first)
    return;
  shared_gradient (self, &place);
  self->sums.other_share
      = plan_schedule_add_buffer (self->schedule, "other_share", 1, place.elements,
                                  self->dtype.main_grads, PLAN_CATEGORY_GRAD_BUCKETS);
}

/* Exchanges the gradients of a shared matrix between its two stages; each adds the other's to its
 * own. In a ring of stages the last one is the previous one of the first. */
void
plan_lower_add_other_share (PlanLower *self)
{
  PlanLowerPlace place;
  if (!self->policy.sums_shared_first)
    return;
  const PlanRef grads = shared_gradient (self, &place), other = ONE (sums.other_share);
  const gboolean is_first = self->stage.has_embedding;
  const gint64 head = plan_stages_head (self->whole, self->stack, self->plan);
  const gint64 count = (gint64)place.elements;
  const gint32 group = is_first && head > 1 ? self->comm.prev : self->comm.next;
  plan_lower_alloc (self, other);
  exchange (self, is_first ? PLAN_STREAM_NEXT : PLAN_STREAM_PREV, group, is_first ? head : 0, grads,
            other, TRUE);
  plan_lower_compute (self, PLAN_OP_ACCUMULATE, PLAN_REFS (grads, other), PLAN_DIMS (count));
  plan_lower_free (self, other);
}

/* An evaluation: forward passes alone. */
static void
evaluate (PlanLower *self)
{
  const PlanLowerUnit all = plan_lower_begin_repeat (self, "m", 0, self->place.micro_batches, 1);
  trade_up (self, PLAN_REF_NONE, input (self, 0));
  forward (self, 0);
  trade_down (self, output (self, 0), PLAN_REF_NONE);
  plan_lower_end_units (self, all);
}

void
plan_lower_pipeline (PlanLower *self)
{
  const gint64 n = self->place.micro_batches;
  const gint64 ahead = plan_stage_warm_up (self->plan, self->place.stage_number, n);
  if (self->policy.is_eval)
    {
      evaluate (self);
      return;
    }
  /* With aligned reductions, only the first stage reduces beside its last backward pass. The others
   * begin when they have sent their last gradient, and only the bubble hides their reductions. */
  self->policy.reduces_together = self->policy.reduces_together || self->policy.sums_shared_first
                                  || (self->stack->pipeline.reductions == PLAN_STAGES_REDUCE_ALIGNED
                                      && !self->stage.has_embedding);
  const gboolean is_afab = plan_stage_is_afab (self->plan);
  PlanRef sent = PLAN_REF_NONE;
  for (gint64 i = 0; i < ahead; i++)
    {
      trade_up (self, PLAN_REF_NONE, input (self, i));
      forward (self, i);
      send (self, TRUE, output (self, i), &sent);
    }
  if (is_afab)
    await_all_sent (self, TRUE, &sent);
  if (ahead < n)
    trade_up (self, PLAN_REF_NONE, input (self, ahead));
  take_turns (self, n - ahead, ahead, &sent);
  for (gint64 i = n - ahead; i < n; i++)
    {
      fetch_ahead (self, i);
      trade_down (self, PLAN_REF_NONE, output_gradient (self, i));
      backward (self, i);
      send (self, FALSE, input_gradient (self, i), &sent);
    }
  if (is_afab)
    await_all_sent (self, FALSE, &sent);
  await_sent (self, &sent);
  self->now.row = 0;
  plan_lower_add_other_share (self);
  if (self->policy.reduces_together && self->place.most_ranks > 1)
    plan_lower_reduce_together (self);
  plan_lower_reduce_held (self);
}
