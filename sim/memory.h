/* SimMemory: who holds which bytes as a schedule runs, as its stack's allocator sees it.
 *
 * Live bytes are counted by category; reserved bytes follow a caching allocator
 * (segments, best fit, splitting) where the stack has one. */
#pragma once
#include "planner/base/units.h"
#include "planner/plan/stack.h"
#include "planner/schedule/schedule.h"
#include "planner/schedule/trace.h"
#include "sim/record-stream.h"
#include <glib.h>
G_BEGIN_DECLS

/* Requests of at most that many bytes share small segments. */
#define SIM_MEMORY_SMALL PLAN_MIB

/* What several requests share, or may share, is at most that large. */
#define SIM_MEMORY_SHORT (20 * PLAN_MIB)

/* Requests are served from pools: large and small ones apart, and what each stream takes. */
#define SIM_MEMORY_POOLS 8

static inline guint
sim_memory_pool (guint64 bytes, PlanStream stream)
{
  const guint place = stream == PLAN_STREAM_GATHER    ? 1
                      : stream == PLAN_STREAM_REDUCE  ? 2
                      : stream == PLAN_STREAM_EXPERTS ? 3
                                                      : 0;
  return 2 * place + (bytes <= SIM_MEMORY_SMALL ? 1 : 0);
}

static inline gboolean
sim_memory_pool_is_small (guint pool)
{
  return pool % 2 != 0;
}

/* What the caching allocator asks its driver for when it has no room for a request; in segments
 * that grow, for what is missing. */
guint64 sim_memory_segment_bytes (guint64 bytes);
guint64 sim_memory_growth_bytes (guint64 missing, gboolean is_small);

typedef struct _SimMemory SimMemory;

/* `stack` NULL: exact bytes, nothing reserved. `pace` NULL: no host runs ahead. */
SimMemory *sim_memory_new (const PlanSchedule *schedule, const PlanStack *stack,
                           const SimPace *pace);
void sim_memory_free (SimMemory *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SimMemory, sim_memory_free)

/* The host issues an op of that many launches. */
void sim_memory_issue (SimMemory *self, guint launches);

/* Applies an alloc or free; returns the category that changed. What is touched anywhere counts as
 * taken when the schedule says so, and gets its block when it is first touched. */
PlanCategory sim_memory_apply (SimMemory *self, const PlanCursor *cursor, const PlanOp *op);

guint64 sim_memory_live (const SimMemory *self, PlanCategory category);

/* A step is over. */
void sim_memory_end_step (SimMemory *self);

/* Takes now for "between steps" and starts looking for the peak. */
void sim_memory_begin_step (SimMemory *self);

/* The columns so far. */
gboolean sim_memory_report (const SimMemory *self, PlanMemory *out_memory, GError **error);

G_END_DECLS
