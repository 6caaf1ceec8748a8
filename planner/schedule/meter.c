/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/schedule/meter.h"

#include "planner/base/units.h"
#include "planner/schedule/arena.h"
#include "planner/schedule/echo.h"

#include <string.h>

PlanCategory
plan_meter_apply (PlanMeter *self, const PlanCursor *cursor, const PlanOp *op, guint64 bytes)
{
  const PlanCategory category
      = plan_schedule_buffer (cursor->schedule, (guint)op->refs[PLAN_REF_ALLOC_buf].array)
            ->category;
  if (category == PLAN_CATEGORY_HOST || op->kind == PLAN_OP_TOUCH)
    return category;
  if (op->kind == PLAN_OP_FREE)
    {
      self->live[category] -= bytes;
      self->total -= bytes;
      return category;
    }
  self->live[category] += bytes;
  self->total += bytes;
  if (self->total > self->peak_total)
    {
      self->peak_total = self->total;
      self->peak_node = cursor->node;
      self->peak_unit = (gint32)plan_cursor_unit (cursor, op);
      memcpy (self->peak, self->live, sizeof self->peak);
    }
  return category;
}

void
plan_meter_begin_step (PlanMeter *self)
{
  memcpy (self->resting, self->live, sizeof self->resting);
  memcpy (self->peak, self->live, sizeof self->peak);
  self->peak_total = self->total;
  self->peak_node = 0;
  self->peak_unit = -1;
}

void
plan_meter_report (const PlanMeter *self, guint64 fixed, PlanMemory *out)
{
  memset (out, 0, sizeof *out);
  out->allocated = out->max_allocated = fixed;
  for (guint c = 0; c < PLAN_N_CATEGORIES; c++)
    {
      out->resting[c] = self->resting[c];
      out->by_category[c] = self->peak[c];
      out->allocated += self->resting[c];
      out->max_allocated += self->peak[c];
    }
  out->peak_node = self->peak_node;
  out->peak_unit = self->peak_unit;
}

/* What a part of a schedule adds to live bytes, and the most that it adds at any moment. */
typedef struct
{
  gint64 net, peak;
} Swing;

static Swing
swing_of_repeat (Swing once, gint64 count)
{
  if (count <= 0)
    return (Swing){ 0, 0 };
  return (Swing){ once.net * count, once.peak + MAX (once.net, 0) * (count - 1) };
}

static void
go_on (Swing *self, Swing next)
{
  self->peak = MAX (self->peak, self->net + next.peak);
  self->net += next.net;
}

/* Which memory of a schedule is counted, and in which granules. */
typedef struct
{
  const PlanSchedule *schedule;
  guint64 granule;
  gboolean is_host;
} Counted;

/* The bytes of an array that count. */
static guint64
bytes_of (const Counted *self, guint array)
{
  const gboolean is_host
      = plan_schedule_buffer (self->schedule, array)->category == PLAN_CATEGORY_HOST;
  return is_host == self->is_host ? plan_units_round_up (
             plan_schedule_buffer_bytes (self->schedule, array), self->granule)
                                  : 0;
}

static Swing walk (const Counted *counted, guint begin, guint end);

/* Adds the echoes at a node, beginning with a number; returns the number of the next one. */
static guint
add_echoes (const Counted *counted, guint number, guint node, Swing *swing)
{
  const PlanEcho *echo;
  for (; (echo = plan_schedule_echo_at (counted->schedule, number, node)); number++)
    go_on (swing, walk (counted, echo->begin, echo->end));
  return number;
}

static Swing
walk (const Counted *counted, guint begin, guint end)
{
  const PlanSchedule *schedule = counted->schedule;
  Swing open[PLAN_MAX_DEPTH + 1] = { { 0, 0 } };
  gint64 counts[PLAN_MAX_DEPTH];
  guint depth = 0, echo = plan_schedule_find_echo (schedule, begin + 1);
  for (guint node = begin; node < end; node++)
    {
      const PlanOp *op = plan_schedule_node (schedule, node);
      echo = add_echoes (counted, echo, node, &open[depth]);
      if (op->kind == PLAN_OP_REPEAT)
        {
          counts[depth++] = op->dims[PLAN_REPEAT_COUNT];
          open[depth] = (Swing){ 0, 0 };
        }
      else if (op->kind == PLAN_OP_END)
        {
          const Swing whole = swing_of_repeat (open[depth], counts[depth - 1]);
          go_on (&open[--depth], whole);
        }
      else if (op->kind == PLAN_OP_ALLOC || op->kind == PLAN_OP_FREE)
        {
          const guint64 bytes = bytes_of (counted, (guint)op->refs[PLAN_REF_ALLOC_buf].array);
          open[depth].net += op->kind == PLAN_OP_FREE ? -(gint64)bytes : (gint64)bytes;
          open[depth].peak = MAX (open[depth].peak, open[depth].net);
        }
    }
  return open[0];
}

/* From the setup to the end of a step. */
static Swing
walk_all (const Counted *counted)
{
  return walk (counted, 0, plan_schedule_section_node (counted->schedule, PLAN_SECTION_TEARDOWN));
}

static Swing
walk_device (const PlanSchedule *schedule, guint64 granule)
{
  const Counted counted = { schedule, granule, FALSE };
  return walk_all (&counted);
}

guint64
plan_meter_peak_bytes (const PlanSchedule *schedule, guint64 granule)
{
  return (guint64)walk_device (schedule, granule).peak;
}

guint64
plan_meter_resting_bytes (const PlanSchedule *schedule, guint64 granule)
{
  return (guint64)walk_device (schedule, granule).net;
}

guint64
plan_meter_passing_bytes (const PlanSchedule *schedule, guint64 granule)
{
  const Swing all = walk_device (schedule, granule);
  return (guint64)(all.peak - all.net);
}

guint64
plan_meter_host_bytes (const PlanSchedule *schedule)
{
  const Counted counted = { schedule, PLAN_ARENA_ALIGNMENT, TRUE };
  return (guint64)walk_all (&counted).peak;
}
