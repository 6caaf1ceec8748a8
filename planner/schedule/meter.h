/* PlanMeter: counts live bytes by category as memory is taken and given back, and notes their peak.
 * Both sim and exec use it, so that predictions and measurements mean the same. */
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

/* Counts an alloc or free of `bytes` by the op at the cursor, and returns its category. */
PlanCategory plan_meter_apply (PlanMeter *self, const PlanCursor *cursor, const PlanOp *op,
                               guint64 bytes);

/* Takes the present state as "between steps" and starts to look for the peak. */
void plan_meter_begin_step (PlanMeter *self);

/* Fills in the live bytes. `fixed` bytes are live all the time and belong to no category. */
void plan_meter_report (const PlanMeter *self, guint64 fixed, PlanMemory *out_memory);

/* The peak of live bytes over setup and step, with every buffer rounded up to whole granules. Each
 * repeat is gone through once. A lower bound of what any allocator holds. */
guint64 plan_meter_peak_bytes (const PlanSchedule *schedule, guint64 granule);

/* The part of the peak that is live between steps, and the rest of it. */
guint64 plan_meter_resting_bytes (const PlanSchedule *schedule, guint64 granule);
guint64 plan_meter_passing_bytes (const PlanSchedule *schedule, guint64 granule);

/* What a schedule keeps in the host's memory, which is taken once, in whole units of an arena. */
guint64 plan_meter_host_bytes (const PlanSchedule *schedule);

G_END_DECLS
