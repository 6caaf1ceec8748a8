/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/meter.h"

#include <string.h>

PlanCategory
plan_meter_apply (PlanMeter *self, const PlanCursor *cursor, const PlanOp *op, guint64 bytes)
{
  const PlanCategory category
      = plan_schedule_buffer (cursor->schedule, (guint)op->refs[0].array)->category;
  if (category == PLAN_CATEGORY_HOST)
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
