/* PlanMeter: live bytes by category as memory is taken and given back, and where they peaked. Sim
 * and exec count with it, so that a prediction and a measurement mean the same. */
#pragma once
#include "planner/schedule/schedule.h"
#include "planner/schedule/trace.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  guint64 live[PLAN_N_CATEGORIES], total;
  guint64 resting[PLAN_N_CATEGORIES];
  guint64 peak[PLAN_N_CATEGORIES], peak_total;
  guint32 peak_node;
  gint32 peak_unit;
} PlanMeter;

/* An alloc or free of `bytes` by the op the cursor stands at; returns its category. */
PlanCategory plan_meter_apply (PlanMeter *self, const PlanCursor *cursor, const PlanOp *op,
                               guint64 bytes);

/* Takes now for "between steps" and starts looking for the peak. */
void plan_meter_begin_step (PlanMeter *self);

/* The live-byte columns; `fixed` bytes are live all the time and in no category. */
void plan_meter_report (const PlanMeter *self, guint64 fixed, PlanMemory *out_memory);

/* Most bytes live at once, setup and step, with every buffer in whole granules; goes through each
 * repeat once. Less than any allocator holds. */
guint64 plan_meter_peak_bytes (const PlanSchedule *schedule, guint64 granule);

/* Of them, those that are live between steps, and those that are not. */
guint64 plan_meter_resting_bytes (const PlanSchedule *schedule, guint64 granule);
guint64 plan_meter_passing_bytes (const PlanSchedule *schedule, guint64 granule);

G_END_DECLS
