/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/fast/footprint.h"

#include "planner/base/units.h"
#include "planner/schedule/arena.h"

#include <string.h>

/* An item of the program, with everything that running it again and again needs at hand. */
typedef struct
{
  guint64 bytes;
  SimBlocksHint hint;
  guint32 base; /* id of its buffer where all values are 0 */
  gint32 offset;
  guint32 index, node, launches;
  guint8 kind, modulus, category, pool;
  guint8 value;    /* index of the value that its buffer moves with; SIM_NO_VALUE, whose value is
                      always 0, if none */
  guint8 has_unit; /* its buffer is one of several in its array */
  guint8 has_block;
} SimMove;

#define SIM_NO_VALUE PLAN_MAX_DEPTH

static inline guint32 *
held_at (const SimFootprint *self, guint32 id)
{
  return &((guint32 *)(gpointer)self->held->data)[id];
}

/* The id of the buffer that a move is about, in the present iteration of each loop. */
static inline guint32
id_of (const SimFootprint *self, const SimMove *move)
{
  const gint64 value = self->values[move->value];
  return G_LIKELY (!move->modulus) ? move->base + (guint32)value
                                   : move->base - (guint32)move->offset
                                         + (guint32)((move->offset + value) % move->modulus);
}

/* Notes the live bytes of each category at a new peak. This is done before anything is given back,
 * not whenever a block raises the peak. */
static inline void
note_peak (SimFootprint *self)
{
  if (self->is_peak)
    memcpy (self->meter.peak, self->meter.live, sizeof self->meter.peak);
  self->is_peak = FALSE;
}

typedef struct
{
  guint64 bytes;
  guint64 padded;   /* rounded up for an arena */
  gboolean is_late; /* its block is taken when it is first touched */
} Array;

static void
state_init (SimState *self)
{
  self->words = g_array_new (FALSE, FALSE, sizeof (guint64));
  self->places = g_array_new (FALSE, FALSE, sizeof (SimPlace));
}

static void
state_clear (SimState *self)
{
  g_clear_pointer (&self->words, g_array_unref);
  g_clear_pointer (&self->places, g_array_unref);
}

static void
find_late (SimFootprint *self)
{
  const SimItem *items = (const SimItem *)(gpointer)self->program->memory.items->data;
  for (guint i = 0; self->has_blocks && i < self->program->memory.items->len; i++)
    if (items[i].kind == SIM_ITEM_TOUCH)
      g_array_index (self->arrays, Array, items[i].index).is_late = TRUE;
}

static void
find_moves (SimFootprint *self)
{
  const GArray *items = self->program->memory.items;
  g_array_set_size (self->moves, items->len);
  for (guint i = 0; i < items->len; i++)
    {
      const SimItem *item = &g_array_index (items, SimItem, i);
      SimMove *move = &g_array_index (self->moves, SimMove, i);
      *move = (SimMove){ .kind = (guint8)item->kind,
                         .index = item->index,
                         .launches = item->launches };
      if (item->kind == SIM_ITEM_REPEAT)
        continue;
      const SimRef *ref = &item->buffer;
      const PlanBuffer *buffer = plan_schedule_buffer (self->schedule, item->index);
      const Array *array = &g_array_index (self->arrays, Array, item->index);
      move->bytes = array->bytes;
      move->base = ref->first + (guint32)ref->offset;
      move->offset = ref->offset;
      move->node = item->node;
      move->modulus = ref->modulus;
      move->category = (guint8)buffer->category;
      move->pool = (guint8)sim_memory_pool (array->bytes, item->stream, item->is_of_graph);
      move->value = ref->loop >= 0 ? (guint8)ref->loop : SIM_NO_VALUE;
      move->has_unit = buffer->count > 1;
      move->has_block
          = self->has_blocks && array->bytes > 0 && (item->kind != SIM_ITEM_OP || !array->is_late);
    }
}

static void
begin (SimFootprint *self, const SimCost *cost)
{
  const guint n = plan_schedule_n_buffers (self->schedule);
  const guint n_ids = plan_schedule_n_buffer_ids (self->schedule);
  const guint64 granule = self->stack ? self->stack->memory.allocation_bytes : 1;
  const guint64 others = self->stack ? self->stack->memory.fixed_bytes
                                           + plan_stack_outside_bytes (self->stack, self->schedule)
                                     : 0;
  self->enough_reserved = self->enough_bytes > others ? self->enough_bytes - others : 0;
  if (!self->arrays)
    {
      self->arrays = g_array_new (FALSE, TRUE, sizeof (Array));
      self->moves = g_array_new (FALSE, FALSE, sizeof (SimMove));
      self->held = g_array_new (FALSE, FALSE, sizeof (guint32));
      self->placed = g_array_new (FALSE, FALSE, sizeof (guint64));
      self->roles = g_array_new (FALSE, TRUE, sizeof (guint8));
      self->described = g_array_new (FALSE, FALSE, sizeof (guint32));
      for (guint i = 0; i <= PLAN_MAX_DEPTH; i++)
        {
          state_init (&self->recurrences[i].kept);
          state_init (&self->recurrences[i].now);
          state_init (&self->recurrences[i].entry);
          self->recurrences[i].named = g_array_new (FALSE, FALSE, sizeof (guint32));
          self->recurrences[i].lasting = g_array_new (FALSE, FALSE, sizeof (guint32));
        }
    }
  g_array_set_size (self->arrays, 0);
  g_array_set_size (self->arrays, n);
  for (guint a = 0; a < n; a++)
    {
      g_array_index (self->arrays, Array, a) = (Array){
        .bytes = plan_units_round_up (plan_schedule_buffer_bytes (self->schedule, a), granule),
        .padded = plan_units_round_up (plan_schedule_buffer_bytes (self->schedule, a),
                                       PLAN_ARENA_ALIGNMENT),
      };
    }
  self->has_blocks = self->stack && self->stack->memory.allocator != PLAN_ALLOCATOR_ARENA;
  self->has_arena = self->stack && self->stack->memory.allocator == PLAN_ALLOCATOR_ARENA;
  find_late (self);
  find_moves (self);
  g_array_set_size (self->held, self->has_blocks ? n_ids : 0);
  g_array_set_size (self->placed, self->has_arena ? n_ids : 0);
  if (self->held->len > 0)
    memset (self->held->data, 0xff, n_ids * sizeof (guint32)); /* SIM_BLOCKS_NONE */
  if (self->placed->len > 0)
    memset (self->placed->data, 0xff, n_ids * sizeof (guint64)); /* SIM_NOWHERE */
  for (guint i = 0; i <= PLAN_MAX_DEPTH; i++)
    self->recurrences[i].period = 0;
  sim_arena_fit_begin (&self->gaps);
  self->n_taken = 0;
  self->meter = (PlanMeter){ .peak_unit = -1 };
  self->is_peak = FALSE;
  sim_blocks_begin (&self->blocks, granule,
                    self->stack && self->stack->memory.allocator == PLAN_ALLOCATOR_EXPANDABLE);
  const SimPace pace = self->stack && self->stack->memory.streams == PLAN_STREAMS_RECORDED
                           ? sim_pace_of (self->schedule, cost)
                           : (SimPace){ 0 };
  sim_record_stream_begin (&self->lead, self->schedule, self->stack, &pace);
}

void
sim_footprint_clear (SimFootprint *self)
{
  sim_blocks_clear (&self->blocks);
  sim_record_stream_clear (&self->lead);
  sim_arena_fit_clear (&self->gaps);
  g_clear_pointer (&self->placed, g_array_unref);
  g_clear_pointer (&self->arrays, g_array_unref);
  g_clear_pointer (&self->moves, g_array_unref);
  g_clear_pointer (&self->held, g_array_unref);
  g_clear_pointer (&self->roles, g_array_unref);
  g_clear_pointer (&self->described, g_array_unref);
  for (guint i = 0; i <= PLAN_MAX_DEPTH; i++)
    {
      state_clear (&self->recurrences[i].kept);
      state_clear (&self->recurrences[i].now);
      state_clear (&self->recurrences[i].entry);
      g_clear_pointer (&self->recurrences[i].named, g_array_unref);
      g_clear_pointer (&self->recurrences[i].lasting, g_array_unref);
    }
}

static SimPeak
peak_of (SimFootprint *self)
{
  note_peak (self);
  const PlanMeter *meter = &self->meter;
  SimPeak peak = { .total = meter->peak_total, .node = meter->peak_node, .unit = meter->peak_unit };
  memcpy (peak.by_category, meter->peak, sizeof peak.by_category);
  return peak;
}

/* Combines the meter's peak with another one: the higher counts, and the earlier of equal ones. */
static void
join_peak (SimFootprint *self, const SimPeak *other, gboolean is_earlier)
{
  PlanMeter *meter = &self->meter;
  note_peak (self);
  if (other->total < meter->peak_total || (other->total == meter->peak_total && !is_earlier))
    return;
  meter->peak_total = other->total;
  meter->peak_node = other->node;
  meter->peak_unit = other->unit;
  memcpy (meter->peak, other->by_category, sizeof meter->peak);
}

static inline void
give_back_what_is_over (SimFootprint *self)
{
  guint32 block;
  while (sim_record_stream_next (&self->lead, &block))
    sim_blocks_give_back (&self->blocks, block);
}

static inline void
take_block (SimFootprint *self, SimMove *move)
{
  guint32 *held = held_at (self, id_of (self, move));
  if (*held != SIM_BLOCKS_NONE)
    return;
  give_back_what_is_over (self);
  *held = sim_blocks_take (&self->blocks, move->bytes, move->pool, &move->hint);
}

static void
take_place (SimFootprint *self, const SimMove *move)
{
  const guint64 padded = g_array_index (self->arrays, Array, move->index).padded;
  if (padded > 0)
    g_array_index (self->placed, guint64, id_of (self, move))
        = sim_arena_fit_take (&self->gaps, padded);
}

static inline void
count_taken (SimFootprint *self, const SimMove *move)
{
  PlanMeter *meter = &self->meter;
  meter->live[move->category] += move->bytes;
  meter->total += move->bytes;
  if (meter->total <= meter->peak_total)
    return;
  meter->peak_total = meter->total;
  meter->peak_node = move->node;
  meter->peak_unit = move->has_unit ? (gint32)(move->offset + self->values[move->value]) : -1;
  self->is_peak = TRUE;
}

static inline void
count_given_back (SimFootprint *self, const SimMove *move)
{
  note_peak (self);
  self->meter.live[move->category] -= move->bytes;
  self->meter.total -= move->bytes;
}

static inline void
take (SimFootprint *self, SimMove *move)
{
  if (move->has_block)
    take_block (self, move);
  if (self->has_arena)
    take_place (self, move);
  count_taken (self, move);
}

static void
give_back_place (SimFootprint *self, const SimMove *move)
{
  const guint64 padded = g_array_index (self->arrays, Array, move->index).padded;
  guint64 *placed = &g_array_index (self->placed, guint64, id_of (self, move));
  if (padded == 0)
    return;
  sim_arena_fit_give_back (&self->gaps, *placed, padded);
  *placed = SIM_NOWHERE;
}

static inline void
give_back_block (SimFootprint *self, const SimMove *move)
{
  guint32 *held = held_at (self, id_of (self, move));
  if (*held == SIM_BLOCKS_NONE)
    return;
  if (!sim_record_stream_give_back (&self->lead, move->index, *held))
    sim_blocks_give_back (&self->blocks, *held);
  *held = SIM_BLOCKS_NONE;
}

static inline void
give_back (SimFootprint *self, const SimMove *move)
{
  count_given_back (self, move);
  if (move->has_block)
    give_back_block (self, move);
  if (self->has_arena)
    give_back_place (self, move);
}

/* The blocks that matter to a recurrence: those of the arrays that it names, and those waiting for
 * a collective. */
static const GArray *
blocks_of (SimFootprint *self, const SimRecurrence *recurrence, GArray *words)
{
  GArray *blocks = self->described;
  guint n = 0;
  g_array_set_size (blocks, self->held->len);
  for (guint i = 0; i < recurrence->named->len; i++)
    {
      const PlanBuffer *buffer
          = plan_schedule_buffer (self->schedule, g_array_index (recurrence->named, guint32, i));
      memcpy (&g_array_index (blocks, guint32, n), held_at (self, buffer->first),
              buffer->count * sizeof (guint32));
      n += buffer->count;
    }
  g_array_set_size (blocks, n);
  if (self->lead.is_on)
    sim_record_stream_describe (&self->lead, words, blocks);
  return blocks;
}

static void
describe (SimFootprint *self, guint kind, SimState *out)
{
  g_array_set_size (out->words, 0);
  g_array_append_vals (out->words, self->meter.live, PLAN_N_CATEGORIES);
  if (self->has_blocks)
    {
      const GArray *blocks = blocks_of (self, &self->recurrences[kind], out->words);
      sim_blocks_describe (&self->blocks, (const guint32 *)(gpointer)blocks->data, blocks->len,
                           kind, out->words, out->places);
    }
  if (!self->has_arena)
    return;
  sim_arena_fit_describe (&self->gaps, out->words);
  g_array_append_vals (out->words, self->placed->data, self->placed->len);
}

/* Roles of a buffer array in the loop or step that is looked at. */
enum
{
  NAMED = 1,
  FREED = 2,
};

static void
look_at (SimFootprint *self, guint kind, SimRange range)
{
  SimRecurrence *out = &self->recurrences[kind];
  const SimItem *items = (const SimItem *)(gpointer)self->program->memory.items->data;
  const guint n = self->has_blocks ? plan_schedule_n_buffers (self->schedule) : 0;
  guint n_named = 0, n_lasting = 0;
  g_array_set_size (self->roles, 0);
  g_array_set_size (self->roles, n);
  g_array_set_size (out->named, n);
  g_array_set_size (out->lasting, n);
  for (guint i = range.begin; n > 0 && i < range.end; i++)
    if (items[i].kind != SIM_ITEM_REPEAT)
      g_array_index (self->roles, guint8, items[i].index)
          |= items[i].kind == SIM_ITEM_FREE ? NAMED | FREED : NAMED;
  for (guint32 a = 0; a < n; a++)
    {
      const guint role = g_array_index (self->roles, guint8, a);
      if (role & NAMED)
        g_array_index (out->named, guint32, n_named++) = a;
      if (!(role & FREED))
        g_array_index (out->lasting, guint32, n_lasting++) = a;
    }
  g_array_set_size (out->named, n_named);
  g_array_set_size (out->lasting, n_lasting);
}

/* Marks the blocks of buffers that are not freed in the loop as walls (see blocks.h), or unmarks
 * them. */
static void
set_walls (SimFootprint *self, guint kind, gboolean is_wall)
{
  const GArray *lasting = self->recurrences[kind].lasting;
  for (guint i = 0; i < lasting->len; i++)
    {
      const PlanBuffer *buffer
          = plan_schedule_buffer (self->schedule, g_array_index (lasting, guint32, i));
      const guint32 *held = held_at (self, buffer->first);
      for (guint e = 0; e < buffer->count; e++)
        if (held[e] != SIM_BLOCKS_NONE)
          sim_blocks_set_wall (&self->blocks, held[e], kind, is_wall);
    }
}

static gboolean
is_same (const SimState *a, const SimState *b)
{
  return a->words->len == b->words->len
         && memcmp (a->words->data, b->words->data, a->words->len * sizeof (guint64)) == 0;
}

/* Begins to look for a state that comes again, with Brent's cycle detection: the kept state, with
 * which later ones are compared, is replaced ever more seldom, so that any period is found in the
 * end. The first kept state is the one at entry. */
static void
recurrence_begin (SimFootprint *self, guint kind)
{
  SimRecurrence *recurrence = &self->recurrences[kind];
  const SimState kept = recurrence->kept;
  recurrence->kept = recurrence->entry;
  recurrence->entry = kept;
  recurrence->fingerprint = sim_blocks_fingerprint (&self->blocks);
  recurrence->age = 0;
  recurrence->oldest = 1;
  recurrence->period = 0;
}

/* Returns the number of turns (rounds of a loop's `unroll` iterations, or steps) after which the
 * kept state came again; 0 if it has not. In most turns the fingerprints already differ, so that no
 * description has to be made. */
static guint
recurrence_turn (SimFootprint *self, guint kind)
{
  SimRecurrence *recurrence = &self->recurrences[kind];
  const guint64 fingerprint = sim_blocks_fingerprint (&self->blocks);
  recurrence->age++;
  if (recurrence->age < recurrence->oldest && fingerprint != recurrence->fingerprint)
    return 0;
  describe (self, kind, &recurrence->now);
  if (is_same (&recurrence->now, &recurrence->kept))
    return recurrence->age;
  if (recurrence->age == recurrence->oldest)
    {
      const SimState kept = recurrence->kept;
      recurrence->kept = recurrence->now;
      recurrence->now = kept;
      recurrence->fingerprint = fingerprint;
      recurrence->age = 0;
      recurrence->oldest *= 2;
    }
  return 0;
}

static void walk (SimFootprint *self, SimRange range);

static inline gboolean
is_enough (const SimFootprint *self)
{
  return self->blocks.reserved > self->enough_reserved;
}

/* Cost of describing and comparing a state, in words, to that of walking an op. */
#define WORD_COST 4

/* Whether iterations may end in the state of an earlier one, and looking for that costs less than
 * walking all of them. A state is about as long as the number of buffers. */
static gboolean
may_recur (const SimFootprint *self, const SimLoop *loop)
{
  return !loop->has_moving && loop->count > 2 * (gint64)loop->unroll
         && loop->length * (guint64)loop->count
                > WORD_COST * (guint64)(self->held->len + self->placed->len);
}

/* Enters a loop. TRUE: the state at entry is the one that is known to come again in this loop. */
static gboolean
enter_loop (SimFootprint *self, guint32 index, guint kind)
{
  SimRecurrence *recurrence = &self->recurrences[kind];
  describe (self, kind, &recurrence->entry);
  if (recurrence->period > 0 && recurrence->loop == index
      && is_same (&recurrence->entry, &recurrence->kept))
    {
      join_peak (self, &recurrence->since, FALSE);
      return TRUE;
    }
  recurrence_begin (self, kind);
  recurrence->loop = index;
  recurrence->before = peak_of (self);
  self->meter.peak_total = 0;
  return FALSE;
}

/* Looks, after an iteration, whether the kept state has come again. */
static gboolean
comes_again (SimFootprint *self, const SimLoop *loop, guint kind)
{
  SimRecurrence *recurrence = &self->recurrences[kind];
  const guint turns = recurrence_turn (self, kind);
  if (turns == 0 && recurrence->age > 0)
    return FALSE;
  recurrence->since = peak_of (self);
  recurrence->period = (gint64)turns * loop->unroll;
  join_peak (self, &recurrence->before, TRUE);
  if (turns > 0)
    return TRUE;
  recurrence->before = peak_of (self);
  self->meter.peak_total = 0;
  return FALSE;
}

/* Skips whole periods of a loop. Returns how many iterations are left. */
static gint64
leave_out (SimFootprint *self, const SimLoop *loop, const SimRecurrence *known,
           const SimState *state, gint64 left)
{
  const gint64 times = left / known->period;
  if (self->has_blocks)
    sim_blocks_repeat (&self->blocks, known->kept.places, known->now.places, state->places,
                       (guint64)times);
  self->values[loop->depth] += times * known->period * loop->step;
  return left - times * known->period;
}

/* Walks a loop. Iterations that take and free the same buffers repeat themselves once one of them
 * ends in the state that an earlier one ended in, in this step or the step before. */
static void
walk_loop (SimFootprint *self, guint32 index, guint begin_item)
{
  const SimLoop *loop = &g_array_index (self->program->memory.loops, SimLoop, index);
  const SimRange range = { begin_item, loop->end };
  const guint kind = loop->depth + 1u;
  const SimRecurrence *recurrence = &self->recurrences[kind];
  const gboolean looks = may_recur (self, loop);
  gboolean is_looking = looks;
  gint64 left = loop->count;
  self->values[loop->depth] = loop->from;
  if (looks)
    {
      look_at (self, kind, range);
      set_walls (self, kind, TRUE);
      is_looking = !enter_loop (self, index, kind);
      left = is_looking ? left : leave_out (self, loop, recurrence, &recurrence->entry, left);
    }
  while (left > 0 && !is_enough (self))
    {
      walk (self, range);
      sim_record_stream_issue (&self->lead, loop->launches);
      self->values[loop->depth] += loop->step;
      left--;
      if (!is_looking || (loop->count - left) % loop->unroll != 0)
        continue;
      is_looking = !comes_again (self, loop, kind);
      left = is_looking ? left : leave_out (self, loop, recurrence, &recurrence->now, left);
    }
  if (is_looking)
    join_peak (self, &recurrence->before, TRUE);
  if (looks)
    set_walls (self, kind, FALSE);
}

static void
walk (SimFootprint *self, SimRange range)
{
  SimMove *moves = (SimMove *)(gpointer)self->moves->data, *end = moves + range.end;
  for (SimMove *move = moves + range.begin; move < end && !is_enough (self); move++)
    {
      sim_record_stream_issue (&self->lead, move->launches);
      if (move->kind == SIM_ITEM_FREE)
        give_back (self, move);
      else if (move->kind == SIM_ITEM_OP)
        take (self, move);
      else if (move->kind == SIM_ITEM_REPEAT)
        {
          walk_loop (self, move->index, (guint)(move - moves) + 1);
          move = moves + g_array_index (self->program->memory.loops, SimLoop, move->index).end - 1;
        }
      else if (move->has_block)
        take_block (self, move);
    }
}

static void
end_step (SimFootprint *self)
{
  sim_record_stream_meet (&self->lead);
  give_back_what_is_over (self);
}

/* Keeps the present state, with which later steps are compared. */
static void
note_step (SimFootprint *self, SimRange step)
{
  SimRecurrence *recurrence = &self->recurrences[0];
  look_at (self, 0, step);
  set_walls (self, 0, TRUE);
  describe (self, 0, &recurrence->entry);
  recurrence_begin (self, 0);
}

/* Runs steps until one ends in the state of an earlier one. FALSE: memory is an arena and its first
 * step did not leave everything in place, as it must. */
static gboolean
run_steps (SimFootprint *self, SimRange step, guint n_steps)
{
  gboolean is_steady = FALSE;
  if (self->has_arena)
    note_step (self, step);
  for (guint i = 0; i < n_steps && !is_steady && !is_enough (self); i++)
    {
      self->n_taken = i + 1;
      note_peak (self);
      plan_meter_begin_step (&self->meter);
      walk (self, step);
      end_step (self);
      note_peak (self);
      if (self->has_arena)
        return recurrence_turn (self, 0) > 0;
      if (i == 0) /* the cache fills during the first step */
        note_step (self, step);
      else
        is_steady = recurrence_turn (self, 0) > 0;
    }
  return TRUE;
}

/* Finds the bytes that the allocator holds in the end. An arena has to be large enough for the
 * teardown, too. */
static gboolean
find_reserved (SimFootprint *self, gboolean is_steady, guint64 *out_bytes, GError **error)
{
  g_auto (PlanArena) arena = { 0 };
  *out_bytes = self->blocks.reserved + (self->stack ? self->stack->memory.fixed_bytes : 0);
  if (!self->has_arena)
    return TRUE;
  walk (self, self->program->memory.sections[PLAN_SECTION_TEARDOWN]);
  *out_bytes = self->gaps.size;
  if (is_steady)
    return TRUE;
  if (!plan_arena_init (&arena, self->schedule, error)) /* fails with what is wrong with the step */
    return FALSE;
  *out_bytes = arena.size_bytes;
  return TRUE;
}

gboolean
sim_footprint_run (SimFootprint *self, const PlanSchedule *schedule, const SimProgram *program,
                   const SimCost *cost, const PlanStack *stack, guint n_steps,
                   PlanMemory *out_memory, GError **error)
{
  PlanMemory memory;
  self->schedule = schedule;
  self->program = program;
  self->stack = stack;
  begin (self, cost);
  walk (self, program->memory.sections[PLAN_SECTION_SETUP]);
  end_step (self);
  const gboolean is_steady = run_steps (self, program->memory.sections[PLAN_SECTION_STEP], n_steps);
  plan_meter_report (&self->meter, stack ? stack->memory.fixed_bytes : 0, &memory);
  if (!find_reserved (self, is_steady, &memory.reserved, error))
    return FALSE;
  memory.host = plan_meter_host_bytes (schedule);
  memory.device = memory.reserved + (stack ? plan_stack_outside_bytes (stack, schedule) : 0);
  *out_memory = memory;
  return TRUE;
}
