/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/base/error.h"
#include "planner/base/units.h"
#include "planner/schedule/arena.h"

#include <string.h>

/* A gap between places in use. The space beyond the last place is not listed: there is always room
 * at the end. */
typedef struct
{
  guint64 offset, size;
} Gap;

/* The memory of the device or of the host. */
typedef struct
{
  GArray *gaps; /* Gap, sorted by offset; no two touch each other or the end */
  guint64 end;  /* everything from here on is free */
  guint64 size_bytes;
} Block;

typedef struct
{
  const PlanSchedule *schedule;
  Block device, host;
  guint64 *places; /* of every buffer id, including its room; NOWHERE where it is not allocated */
  guint64 room;    /* on either side of a buffer */
  PlanArena *arena;
} Walk;

#define NOWHERE G_MAXUINT64

static guint64
padded_bytes (const Walk *self, guint array)
{
  const guint64 bytes = plan_schedule_buffer_bytes (self->schedule, array);

  if (bytes == 0)
    return 0;
  return plan_units_round_up (bytes, PLAN_ARENA_ALIGNMENT) + 2 * self->room;
}

/* Takes the first gap that is large enough, or else space at the end. */
static guint64
take (Block *self, guint64 size)
{
  guint64 offset = self->end;

  for (guint i = 0; i < self->gaps->len; i++)
    {
      Gap *gap = &g_array_index (self->gaps, Gap, i);

      if (gap->size < size)
        continue;
      offset = gap->offset;
      gap->offset += size;
      gap->size -= size;
      if (gap->size == 0)
        g_array_remove_index (self->gaps, i);
      return offset;
    }

  /* a gap that touched the end would have been merged into the space beyond it */
  self->end += size;
  self->size_bytes = MAX (self->size_bytes, self->end);
  return offset;
}

static void
give_back (Block *self, guint64 offset, guint64 size)
{
  Gap freed = { offset, size };
  guint low = 0, high = self->gaps->len;

  while (low < high)
    {
      guint middle = (low + high) / 2;

      if (g_array_index (self->gaps, Gap, middle).offset < offset)
        low = middle + 1;
      else
        high = middle;
    }
  if (low < self->gaps->len && g_array_index (self->gaps, Gap, low).offset == offset + size)
    {
      freed.size += g_array_index (self->gaps, Gap, low).size;
      g_array_remove_index (self->gaps, low);
    }
  if (low > 0)
    {
      Gap before = g_array_index (self->gaps, Gap, low - 1);

      if (before.offset + before.size == offset)
        {
          freed.offset = before.offset;
          freed.size += before.size;
          g_array_remove_index (self->gaps, --low);
        }
    }
  if (freed.offset + freed.size == self->end)
    self->end = freed.offset;
  else
    g_array_insert_val (self->gaps, low, freed);
}

static gboolean
fail (const PlanSchedule *schedule, guint32 id, const char *what, GError **error)
{
  for (guint array = 0; array < plan_schedule_n_buffers (schedule); array++)
    {
      const PlanBuffer *buffer = plan_schedule_buffer (schedule, array);

      if (id - buffer->first < buffer->count)
        g_set_error (error, PLAN_ERROR, PLAN_ERROR_CORRUPT, "schedule: buffer %s[%u] %s",
                     buffer->name, id - buffer->first, what);
    }
  return FALSE;
}

static gboolean
walk_section (Walk *self, PlanSection section, GError **error)
{
  GArray *offsets = self->arena->offsets[section];
  PlanCursor cursor;
  const PlanOp *op;

  plan_cursor_start (&cursor, self->schedule, section);
  while ((op = plan_cursor_next (&cursor)) != NULL)
    {
      if (op->kind != PLAN_OP_ALLOC && op->kind != PLAN_OP_FREE)
        continue;

      guint32 id = plan_cursor_buffer (&cursor, &op->refs[PLAN_REF_ALLOC_buf]);
      guint array = (guint)op->refs[PLAN_REF_ALLOC_buf].array;
      guint64 size = padded_bytes (self, array);
      Block *block = plan_schedule_buffer (self->schedule, array)->category == PLAN_CATEGORY_HOST
                         ? &self->host
                         : &self->device;

      if (op->kind == PLAN_OP_ALLOC)
        {
          if (self->places[id] != NOWHERE)
            return fail (self->schedule, id, "is taken twice", error);
          self->places[id] = size > 0 ? take (block, size) : 0;
          const guint64 offset = self->places[id] + self->room;
          g_array_append_val (offsets, offset);
        }
      else
        {
          if (self->places[id] == NOWHERE)
            return fail (self->schedule, id, "is given back but was not taken", error);
          if (size > 0)
            give_back (block, self->places[id], size);
          self->places[id] = NOWHERE;
        }
    }
  return TRUE;
}

/* Walks the step, which must leave memory as it found it so that its offsets hold for every
 * repetition. */
static gboolean
walk_step (Walk *self, GError **error)
{
  guint32 n_ids = plan_schedule_n_buffer_ids (self->schedule);
  g_autofree guint64 *before = g_memdup2 (self->places, n_ids * sizeof *before);

  if (!walk_section (self, PLAN_SECTION_STEP, error))
    return FALSE;
  for (guint32 id = 0; id < n_ids; id++)
    if (self->places[id] != before[id])
      return fail (self->schedule, id, "is not where it was when the step began", error);
  return TRUE;
}

gboolean
plan_arena_init_apart (PlanArena *self, const PlanSchedule *schedule, guint64 room, GError **error)
{
  guint32 n_ids = plan_schedule_n_buffer_ids (schedule);
  g_autofree guint64 *places = g_new (guint64, n_ids);
  g_autoptr (GArray) gaps = g_array_new (FALSE, FALSE, sizeof (Gap));
  g_autoptr (GArray) host_gaps = g_array_new (FALSE, FALSE, sizeof (Gap));
  g_auto (PlanArena) arena = { 0 };
  Walk walk = { .schedule = schedule,
                .device = { .gaps = gaps },
                .host = { .gaps = host_gaps },
                .places = places,
                .room = room,
                .arena = &arena };

  for (guint32 id = 0; id < n_ids; id++)
    places[id] = NOWHERE;
  for (guint section = 0; section < PLAN_N_SECTIONS; section++)
    arena.offsets[section] = g_array_new (FALSE, FALSE, sizeof (guint64));
  if (!walk_section (&walk, PLAN_SECTION_SETUP, error) || !walk_step (&walk, error)
      || !walk_section (&walk, PLAN_SECTION_TEARDOWN, error))
    return FALSE;
  arena.size_bytes = walk.device.size_bytes;
  arena.host_bytes = walk.host.size_bytes;
  *self = arena;
  memset (&arena, 0, sizeof arena);
  return TRUE;
}

gboolean
plan_arena_init (PlanArena *self, const PlanSchedule *schedule, GError **error)
{
  return plan_arena_init_apart (self, schedule, 0, error);
}

void
plan_arena_clear (PlanArena *self)
{
  for (guint section = 0; section < PLAN_N_SECTIONS; section++)
    g_clear_pointer (&self->offsets[section], g_array_unref);
  self->size_bytes = self->host_bytes = 0;
}
