/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/footprint.h"

#include "planner/arena.h"
#include "planner/units.h"

#include <string.h>

typedef struct
{
  guint64 bytes;
  PlanCategory category;
  gboolean is_many;
  SimBlocksHint hint;
} Array;

static void
begin (SimFootprint *self)
{
  const guint n = plan_schedule_n_buffers (self->schedule);
  const guint64 granule = self->stack ? self->stack->allocation_bytes : 1;
  if (!self->arrays)
    {
      self->arrays = g_array_new (FALSE, TRUE, sizeof (Array));
      self->held = g_array_new (FALSE, FALSE, sizeof (guint32));
      for (guint i = 0; i <= PLAN_MAX_DEPTH; i++)
        for (guint j = 0; j < 2; j++)
          self->states[i][j] = g_array_new (FALSE, FALSE, sizeof (guint64));
    }
  g_array_set_size (self->arrays, 0);
  g_array_set_size (self->arrays, n);
  for (guint a = 0; a < n; a++)
    {
      const PlanBuffer *buffer = plan_schedule_buffer (self->schedule, a);
      g_array_index (self->arrays, Array, a) = (Array){
        .bytes = plan_units_round_up (plan_schedule_buffer_bytes (self->schedule, a), granule),
        .category = buffer->category,
        .is_many = buffer->count > 1,
      };
    }
  g_array_set_size (self->held, plan_schedule_n_buffer_ids (self->schedule));
  if (self->held->len > 0)
    memset (self->held->data, 0xff, self->held->len * sizeof (guint32)); /* SIM_BLOCKS_NONE */
  self->has_blocks = self->stack && self->stack->caching_allocator;
  self->meter = (PlanMeter){ .peak_unit = -1 };
  self->is_peak = FALSE;
  sim_blocks_begin (&self->blocks, granule);
}

void
sim_footprint_clear (SimFootprint *self)
{
  sim_blocks_clear (&self->blocks);
  g_clear_pointer (&self->arrays, g_array_unref);
  g_clear_pointer (&self->held, g_array_unref);
  for (guint i = 0; i <= PLAN_MAX_DEPTH; i++)
    for (guint j = 0; j < 2; j++)
      g_clear_pointer (&self->states[i][j], g_array_unref);
}

/* Categories at the peak are noted when it is over. */
static inline void
note_peak (SimFootprint *self)
{
  if (self->is_peak)
    memcpy (self->meter.peak, self->meter.live, sizeof self->meter.peak);
  self->is_peak = FALSE;
}

static void
take (SimFootprint *self, const SimItem *item)
{
  Array *array = &g_array_index (self->arrays, Array, item->index);
  PlanMeter *meter = &self->meter;
  if (self->has_blocks && array->bytes > 0)
    g_array_index (self->held, guint32, sim_ref_id (&item->buffer, self->values))
        = sim_blocks_take (&self->blocks, array->bytes, &array->hint);
  meter->live[array->category] += array->bytes;
  meter->total += array->bytes;
  if (meter->total <= meter->peak_total)
    return;
  const gint8 loop = item->buffer.loop;
  meter->peak_total = meter->total;
  meter->peak_node = item->node;
  meter->peak_unit
      = array->is_many ? (gint32)(item->buffer.offset + (loop >= 0 ? self->values[loop] : 0)) : -1;
  self->is_peak = TRUE;
}

static void
give_back (SimFootprint *self, const SimItem *item)
{
  const Array *array = &g_array_index (self->arrays, Array, item->index);
  note_peak (self);
  self->meter.live[array->category] -= array->bytes;
  self->meter.total -= array->bytes;
  if (!self->has_blocks || array->bytes == 0)
    return;
  guint32 *held = &g_array_index (self->held, guint32, sim_ref_id (&item->buffer, self->values));
  sim_blocks_give_back (&self->blocks, *held);
  *held = SIM_BLOCKS_NONE;
}

/* Writes the state down; whether it is the one that was written down before. */
static gboolean
recurs (SimFootprint *self, GArray *states[2])
{
  GArray *now = states[1];
  states[1] = states[0];
  states[0] = now;
  g_array_set_size (now, 0);
  g_array_append_vals (now, self->meter.live, PLAN_N_CATEGORIES);
  if (self->has_blocks)
    sim_blocks_describe (&self->blocks, (const guint32 *)(gpointer)self->held->data,
                         self->held->len, now);
  return now->len == states[1]->len
         && memcmp (now->data, states[1]->data, now->len * sizeof (guint64)) == 0;
}

static void walk (SimFootprint *self, guint begin, guint end);

/* Iterations that take and give back the same buffers go on alike once one leaves things as it
 * found them. */
static void
walk_loop (SimFootprint *self, const SimLoop *loop, guint begin_item)
{
  const gboolean may_recur = !loop->has_moving && loop->count > 2 * (gint64)loop->unroll;
  GArray **states = self->states[loop->depth + 1];
  self->values[loop->depth] = loop->from;
  if (may_recur)
    recurs (self, states);
  for (gint64 done = 0; done < loop->count;)
    {
      walk (self, begin_item, loop->end);
      self->values[loop->depth] += loop->step;
      done++;
      if (!may_recur || done % loop->unroll != 0 || !recurs (self, states))
        continue;
      const gint64 left_out = (loop->count - done) / loop->unroll * loop->unroll;
      done += left_out;
      self->values[loop->depth] += left_out * loop->step;
    }
}

static void
walk (SimFootprint *self, guint begin_item, guint end)
{
  const SimItem *items = (const SimItem *)(gpointer)self->program->memory.items->data;
  for (guint i = begin_item; i < end;)
    {
      const SimItem *item = &items[i++];
      if (item->kind == SIM_ITEM_OP)
        take (self, item);
      else if (item->kind == SIM_ITEM_FREE)
        give_back (self, item);
      else
        {
          const SimLoop *loop = &g_array_index (self->program->memory.loops, SimLoop, item->index);
          walk_loop (self, loop, i);
          i = loop->end;
        }
    }
}

static gboolean
report (const SimFootprint *self, PlanMemory *out, GError **error)
{
  const guint64 fixed = self->stack ? self->stack->fixed_bytes : 0;
  plan_meter_report (&self->meter, fixed, out);
  out->reserved = self->blocks.reserved + fixed;
  if (self->stack && !self->stack->caching_allocator)
    {
      g_auto (PlanArena) arena = { 0 };
      if (!plan_arena_init (&arena, self->schedule, error))
        return FALSE;
      out->reserved = arena.size_bytes;
    }
  out->device = out->reserved + (self->stack ? self->stack->context_bytes : 0);
  return TRUE;
}

gboolean
sim_footprint_run (SimFootprint *self, const PlanSchedule *schedule, const SimProgram *program,
                   const PlanStack *stack, guint n_steps, PlanMemory *out_memory, GError **error)
{
  const SimRange *setup = &program->memory.sections[PLAN_SECTION_SETUP];
  const SimRange *step = &program->memory.sections[PLAN_SECTION_STEP];
  self->schedule = schedule;
  self->program = program;
  self->stack = stack;
  begin (self);
  walk (self, setup->begin, setup->end);
  for (guint i = 0; i < n_steps; i++)
    {
      note_peak (self);
      plan_meter_begin_step (&self->meter);
      walk (self, step->begin, step->end);
      note_peak (self);
      if (recurs (self, self->states[0]) && i > 0)
        break;
    }
  return report (self, out_memory, error);
}
