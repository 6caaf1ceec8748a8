/* SPDX-License-Identifier: Apache-2.0 */
/* Of a period that was noted: each request for something long looked at sizes from its own up to
 * the one it was given. As long as none of those between comes to be free and that one does not run
 * out, so does it in the next period. What is given back must be what was given back before. */
#include "config.h"

#include "sim/fast/leap.h"

#include "sim/fast/footprint-private.h"

#include <string.h>

#define LEAST_TURNS 8  /* fewer are walked sooner */
#define LONGEST_LOOK 8 /* turns that a period is looked for */

typedef struct
{
  guint32 move, id, block;
  guint32 before; /* 1 + the note about the same array before; 0: none */
  guint32 iteration;
  gint32 shift; /* of the id, from period to period */
  gboolean is_short;
  SimLook look;
} SimNoted;

/* A note about something short, as it is followed. */
typedef struct
{
  SimMove *move;
  guint32 note, id;
  gint32 shift;
  gboolean is_take, may_add;
  gboolean is_passing; /* what is taken is given back next */
} SimShortMove;

typedef struct
{
  guint32 queue, pool;
  guint64 bytes;
  gint64 more; /* per period */
} SimDrift;

static SimNoted *
note_at (const SimLeap *self, guint i)
{
  return &((SimNoted *)(gpointer)self->notes->data)[i];
}

static guint32 *
latest_of (const SimLeap *self, guint array)
{
  return &((guint32 *)(gpointer)self->latest->data)[array];
}

static gboolean
is_take (const SimFootprint *footprint, const SimNoted *note)
{
  return sim_footprint_move (footprint, note->move)->kind == SIM_ITEM_OP;
}

void
sim_leap_clear (SimLeap *self)
{
  sim_shape_clear (&self->then);
  sim_shape_clear (&self->now);
  g_clear_pointer (&self->notes, g_array_unref);
  g_clear_pointer (&self->shorts, g_array_unref);
  g_clear_pointer (&self->latest, g_array_unref);
  g_clear_pointer (&self->drifts, g_array_unref);
}

/* Looks at what follows by itself. */
static void
begin (SimFootprint *footprint, const SimLoop *loop)
{
  SimLeap *self = &footprint->leap;
  self->is_on = sim_blocks_shape (&footprint->blocks, &self->then);
  sim_blocks_mark (&footprint->blocks);
  memcpy (self->live, footprint->meter.live, sizeof self->live);
  self->total = footprint->meter.total;
  self->value = footprint->values[loop->depth];
  self->turns = self->iterations = self->n_notes = 0;
  g_array_set_size (self->latest, 0);
  g_array_set_size (self->latest, footprint->arrays->len);
}

gboolean
sim_leap_enter (SimFootprint *footprint, const SimLoop *loop, SimRange body)
{
  SimLeap *self = &footprint->leap;
  if (!self->notes)
    {
      self->notes = g_array_new (FALSE, FALSE, sizeof (SimNoted));
      self->shorts = g_array_new (FALSE, FALSE, sizeof (SimShortMove));
      self->latest = g_array_new (FALSE, TRUE, sizeof (guint32));
      self->drifts = g_array_new (FALSE, FALSE, sizeof (SimDrift));
    }
  self->is_on = footprint->has_blocks && !footprint->blocks.expands && !footprint->lead.is_on
                && loop->count >= LEAST_TURNS * (gint64)loop->unroll;
  for (guint i = body.begin; self->is_on && i < body.end; i++)
    {
      const SimMove *move = sim_footprint_move (footprint, i);
      self->is_on = (move->kind == SIM_ITEM_OP || move->kind == SIM_ITEM_FREE)
                    && (move->has_block || move->bytes == 0);
    }
  self->oldest = 1;
  if (self->is_on)
    begin (footprint, loop);
  return self->is_on;
}

/* What is short lies in short segments, what is long in long ones. */
static gboolean
is_expected (const SimBlocks *blocks, const SimMove *move, guint32 block)
{
  return (move->bytes <= SIM_MEMORY_SHORT) == sim_blocks_is_short (blocks, block);
}

/* The next note; there is room for it. */
static void
add (SimLeap *self, const SimMove *move, const SimNoted *note)
{
  guint32 *latest = latest_of (self, move->index);
  SimNoted *added = note_at (self, self->n_notes++);
  *added = *note;
  added->before = *latest;
  added->iteration = self->iterations;
  added->is_short = move->bytes <= SIM_MEMORY_SHORT;
  *latest = self->n_notes;
}

static void
take (SimFootprint *footprint, guint32 i)
{
  SimLeap *self = &footprint->leap;
  SimBlocks *blocks = &footprint->blocks;
  SimMove *move = sim_footprint_move (footprint, i);
  SimNoted note = { .move = i, .id = sim_footprint_id (footprint, move) };
  guint32 *held = sim_footprint_held (footprint, note.id);
  self->is_on = self->is_on && *held == SIM_BLOCKS_NONE;
  if (*held != SIM_BLOCKS_NONE)
    return;
  note.look = sim_blocks_look (blocks, move->bytes, move->pool, &move->hint);
  note.block = *held = sim_blocks_take (blocks, move->bytes, move->pool, &move->hint);
  self->is_on = self->is_on && is_expected (blocks, move, note.block);
  add (self, move, &note);
}

static void
give_back (SimFootprint *footprint, guint32 i)
{
  SimLeap *self = &footprint->leap;
  const SimMove *move = sim_footprint_move (footprint, i);
  const guint32 id = sim_footprint_id (footprint, move);
  guint32 *held = sim_footprint_held (footprint, id);
  const SimNoted note = { .move = i, .id = id, .block = *held };
  self->is_on = self->is_on && *held != SIM_BLOCKS_NONE;
  if (*held == SIM_BLOCKS_NONE)
    return;
  self->is_on = self->is_on && is_expected (&footprint->blocks, move, note.block);
  sim_blocks_give_back (&footprint->blocks, note.block);
  *held = SIM_BLOCKS_NONE;
  add (self, move, &note);
}

void
sim_leap_walk (SimFootprint *footprint, SimRange body)
{
  SimLeap *self = &footprint->leap;
  const guint most = self->n_notes + body.end - body.begin;
  if (self->notes->len < most)
    g_array_set_size (self->notes, most);
  for (guint i = body.begin; i < body.end; i++)
    {
      const SimMove *move = sim_footprint_move (footprint, i);
      if (move->has_block && move->kind == SIM_ITEM_OP)
        take (footprint, i);
      else if (move->has_block)
        give_back (footprint, i);
      sim_footprint_count (footprint, move);
    }
  self->iterations++;
}

/* Which sizes have more or fewer whole segments now; FALSE where parts came among those. */
static gboolean
find_drifts (SimFootprint *footprint)
{
  SimLeap *self = &footprint->leap;
  const SimBlocks *blocks = &footprint->blocks;
  g_array_set_size (self->drifts, 0);
  for (guint i = 0; i < self->now.sizes->len; i++)
    {
      const SimLongSize *now = &g_array_index (self->now.sizes, SimLongSize, i);
      const SimQueue *queue = &blocks->queues[now->queue];
      const SimDrift drift
          = { .queue = now->queue,
              .bytes = queue->bytes,
              .pool = queue->pool,
              .more = (gint64)now->n_whole
                      - (gint64)g_array_index (self->then.sizes, SimLongSize, i).n_whole };
      if (drift.more == 0)
        continue;
      if (queue->stamp == blocks->stamp)
        return FALSE;
      g_array_append_val (self->drifts, drift);
    }
  return TRUE;
}

/* For how many periods a request is given what it was given. */
static gint64
periods_of_take (const SimLeap *self, const SimMove *move, const SimNoted *note, gint64 periods)
{
  for (guint i = 0; i < self->drifts->len; i++)
    {
      const SimDrift *drift = &g_array_index (self->drifts, SimDrift, i);
      if (drift->pool != move->pool || drift->bytes < move->bytes
          || drift->bytes > note->look.found_bytes)
        continue;
      if (drift->bytes < note->look.found_bytes)
        return 0;
      if (note->look.n_whole > 0 && drift->more < 0)
        periods = MIN (periods, ((gint64)note->look.n_whole - 1) / -drift->more);
    }
  return periods;
}

/* For how many periods that is given back which was; 0 where that may not be known. */
static gint64
periods_of_give (SimFootprint *footprint, guint i, gint64 periods)
{
  const SimLeap *self = &footprint->leap;
  const SimNoted *note = note_at (self, i);
  gint64 there = periods; /* from then on it is what was taken in the meantime */
  for (guint32 t = *latest_of (self, sim_footprint_move (footprint, note->move)->index); t > 0;
       t = note_at (self, t - 1)->before)
    {
      const SimNoted *taken = note_at (self, t - 1);
      const gint64 distance = (gint64)note->id - (gint64)taken->id;
      if (!is_take (footprint, taken) || distance % note->shift != 0)
        continue;
      const gint64 ahead = distance / note->shift;
      if (ahead > 0 || (ahead == 0 && t - 1 > i))
        return 0;
      there = MIN (there, -ahead);
      if (taken->block != note->block)
        periods = MIN (periods, -ahead);
    }
  for (gint64 k = 1; k <= MIN (there, periods); k++)
    if (*sim_footprint_held (footprint, (guint32)((gint64)note->id + k * note->shift))
        != note->block)
      return k - 1;
  return periods;
}

/* A buffer that does not move is after the period what it was before. */
static gboolean
is_back (SimFootprint *footprint, const SimNoted *note)
{
  const SimLeap *self = &footprint->leap;
  for (guint32 b = note->before; b > 0; b = note_at (self, b - 1)->before)
    if (note_at (self, b - 1)->id == note->id)
      return TRUE; /* it was asked where it came first */
  return *sim_footprint_held (footprint, note->id)
         == (is_take (footprint, note) ? SIM_BLOCKS_NONE : note->block);
}

/* For how many periods all is well with what is long there. */
static gint64
periods_of (SimFootprint *footprint, guint i, gint64 periods)
{
  const SimLeap *self = &footprint->leap;
  const SimNoted *note = note_at (self, i);
  if (note->before > 0 && note_at (self, note->before - 1)->shift != note->shift)
    return 0; /* one that moves, and one that does not */
  if (note->shift == 0 && !is_back (footprint, note))
    return 0;
  if (is_take (footprint, note))
    return periods_of_take (self, sim_footprint_move (footprint, note->move), note, periods);
  return note->shift != 0 ? periods_of_give (footprint, i, periods) : periods;
}

/* How often the period happens again, as far as anything long goes. */
static gint64
find_periods (SimFootprint *footprint, const SimLoop *loop, gint64 most)
{
  SimLeap *self = &footprint->leap;
  const gint64 step = footprint->values[loop->depth] - self->value;
  gint64 periods = footprint->blocks.n_mixed == 0 && find_drifts (footprint) ? most : 0;
  for (guint i = 0; i < self->n_notes; i++)
    {
      SimNoted *note = note_at (self, i);
      const SimMove *move = sim_footprint_move (footprint, note->move);
      note->shift = move->value == loop->depth && !move->modulus ? (gint32)step : 0;
    }
  for (guint i = 0; i < self->n_notes && periods > 0; i++)
    if (!note_at (self, i)->is_short)
      periods = periods_of (footprint, i, periods);
  return periods;
}

/* What each of those periods does about something short. */
static void
find_shorts (SimFootprint *footprint)
{
  SimLeap *self = &footprint->leap;
  SimShortMove *before = NULL;
  guint n = 0;
  g_array_set_size (self->shorts, self->n_notes);
  for (guint32 i = 0; i < self->n_notes; i++)
    {
      const SimNoted *note = note_at (self, i);
      SimShortMove *next = &g_array_index (self->shorts, SimShortMove, n);
      if (!note->is_short)
        continue;
      *next = (SimShortMove){ .move = sim_footprint_move (footprint, note->move),
                              .note = i,
                              .id = note->id,
                              .shift = note->shift,
                              .is_take = is_take (footprint, note),
                              .may_add = !note->look.has_long && self->drifts->len == 0 };
      if (before && before->is_take && !next->is_take)
        before->is_passing = before->id == next->id && before->shift == next->shift;
      before = next;
      n++;
    }
  g_array_set_size (self->shorts, n);
}

/* FALSE: it may not be done. */
static gboolean
follow (SimBlocks *blocks, const SimShortMove *next, guint32 *held)
{
  if (!next->is_take)
    {
      if (!sim_blocks_give_back_short (blocks, *held))
        return FALSE;
      *held = SIM_BLOCKS_NONE;
      return TRUE;
    }
  if (*held == SIM_BLOCKS_NONE)
    *held = sim_blocks_take_short (blocks, next->move->bytes, next->move->pool, next->may_add,
                                   &next->move->hint);
  else
    return FALSE;
  return *held != SIM_BLOCKS_NONE;
}

/* What is short, of one period; returns how many notes of it could be followed. */
static guint
walk_short (SimFootprint *footprint, gint64 period)
{
  SimBlocks *blocks = &footprint->blocks;
  const SimShortMove *shorts = (const SimShortMove *)(gpointer)footprint->leap.shorts->data;
  const guint n = footprint->leap.shorts->len;
  for (guint s = 0; s < n; s++)
    {
      const SimShortMove *next = &shorts[s];
      guint32 *held
          = sim_footprint_held (footprint, (guint32)((gint64)next->id + period * next->shift));
      if (next->is_passing && *held == SIM_BLOCKS_NONE
          && sim_blocks_passes (blocks, next->move->bytes, next->move->pool, &next->move->hint))
        s++;
      else if (!follow (blocks, next, held))
        return next->note;
    }
  return footprint->leap.n_notes;
}

/* What becomes of a buffer in each of so many periods. */
static void
set_held (SimFootprint *footprint, const SimNoted *note, gint64 periods, guint32 block)
{
  const gint64 shift = note->shift;
  guint32 *held = sim_footprint_held (footprint, note->id);
  for (gint64 k = shift != 0 ? periods : 0; k > 0; k--)
    {
      held += shift;
      *held = block;
    }
}

/* What is long, of so many periods. */
static void
apply (SimFootprint *footprint, gint64 periods)
{
  SimLeap *self = &footprint->leap;
  PlanMeter *meter = &footprint->meter;
  sim_footprint_note_peak (footprint);
  for (guint gives = 0; gives < 2; gives++) /* all that is given back was taken before */
    for (guint i = 0; i < self->n_notes; i++)
      {
        const SimNoted *note = note_at (self, i);
        const SimMove *move = sim_footprint_move (footprint, note->move);
        if (note->is_short || (move->kind == SIM_ITEM_FREE) != gives)
          continue;
        if (!gives && note->look.found_bytes == G_MAXUINT64)
          footprint->blocks.reserved += (guint64)periods * move->hint.segment_bytes;
        set_held (footprint, note, periods, gives ? SIM_BLOCKS_NONE : note->block);
      }
  for (guint i = 0; i < self->drifts->len; i++)
    {
      const SimDrift *drift = &g_array_index (self->drifts, SimDrift, i);
      sim_blocks_count (&footprint->blocks, drift->queue, periods * drift->more);
    }
  for (guint c = 0; c < PLAN_N_CATEGORIES; c++)
    meter->live[c] += (guint64)periods * (meter->live[c] - self->live[c]);
  meter->total += (guint64)periods * (meter->total - self->total);
}

/* A period of which the short ones among the first notes were followed: all the rest. */
static void
finish (SimFootprint *footprint, const SimLoop *loop, guint n_followed, gint64 value)
{
  SimLeap *self = &footprint->leap;
  for (guint i = 0; i < self->n_notes; i++)
    {
      const SimNoted *note = note_at (self, i);
      SimMove *move = sim_footprint_move (footprint, note->move);
      footprint->values[loop->depth] = value + note->iteration * loop->step;
      sim_footprint_count (footprint, move);
      if (note->is_short && i < n_followed)
        continue;
      guint32 *held = sim_footprint_held (footprint, sim_footprint_id (footprint, move));
      if (move->kind == SIM_ITEM_OP && *held == SIM_BLOCKS_NONE)
        *held = sim_blocks_take (&footprint->blocks, move->bytes, move->pool, &move->hint);
      else if (move->kind == SIM_ITEM_FREE && *held != SIM_BLOCKS_NONE)
        {
          sim_blocks_give_back (&footprint->blocks, *held);
          *held = SIM_BLOCKS_NONE;
        }
    }
}

/* Leaves out what it can of so many periods; returns how many those were. */
static gint64
leap (SimFootprint *footprint, const SimLoop *loop, gint64 periods)
{
  SimLeap *self = &footprint->leap;
  const gint64 value = footprint->values[loop->depth], step = value - self->value;
  const guint n = self->n_notes;
  gint64 period = 0;
  guint n_followed = n;
  find_shorts (footprint);
  while (period < periods && (n_followed = walk_short (footprint, period + 1)) == n)
    period++;
  sim_blocks_end_rows (&footprint->blocks);
  apply (footprint, period);
  if (n_followed < n)
    finish (footprint, loop, n_followed, value + period++ * step);
  footprint->values[loop->depth] = value + period * step;
  return period;
}

gint64
sim_leap_turn (SimFootprint *footprint, const SimLoop *loop, gint64 left)
{
  SimLeap *self = &footprint->leap;
  const gint64 length = ++self->turns * (gint64)loop->unroll;
  gint64 periods = 0;
  self->is_on = self->is_on && sim_blocks_shape (&footprint->blocks, &self->now);
  if (!self->is_on)
    return left;
  /* The last one is walked: the highest of peaks that rise is there. */
  if (left > length && sim_shape_is_same (&self->then, &self->now))
    periods = find_periods (footprint, loop, left / length - 1);
  if (periods > 0)
    {
      const gint64 left_out = leap (footprint, loop, periods) * length;
      self->n_left_out += (guint64)left_out;
      left -= left_out;
    }
  else if (self->turns < self->oldest)
    return left;
  self->oldest = periods > 0 ? 1 : 2 * self->oldest;
  begin (footprint, loop);
  self->is_on = self->is_on && self->oldest <= LONGEST_LOOK && left > 2 * length;
  return left;
}
