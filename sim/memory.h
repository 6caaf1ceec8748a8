/* SimMemory: the memory that a schedule holds as it runs, as its stack's allocator sees it.
 *
 * Live bytes are counted by category. Where the stack has a caching allocator, reserved bytes
 * follow from its segments, best fit and splitting. */
#pragma once
#include "planner/base/units.h"
#include "planner/plan/stack.h"
#include "planner/schedule/schedule.h"
#include "planner/schedule/trace.h"
#include "sim/record-stream.h"
#include <glib.h>
G_BEGIN_DECLS

/* Requests of at most this many bytes share small segments. */
#define SIM_MEMORY_SMALL PLAN_MIB

/* The size of the segments that several large requests may share. */
#define SIM_MEMORY_LARGE_SEGMENT (20 * PLAN_MIB)

/* Blocks come from pools: large and small requests have their own, and so have some streams, and
 * the CUDA graphs of layers, whose memory no other op may take in between. */
#define SIM_MEMORY_POOLS 10

static inline guint
sim_memory_pool (guint64 bytes, PlanStream stream, gboolean is_of_graphs)
{
  const guint place = is_of_graphs                    ? 4
                      : stream == PLAN_STREAM_GATHER  ? 1
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

/* Bytes that the caching allocator takes from the driver when it has no room for a request; growth
 * is for expandable segments, which take only what is missing. */
guint64 sim_memory_segment_bytes (guint64 bytes);
guint64 sim_memory_growth_bytes (guint64 missing, gboolean is_small);

typedef struct _SimMemory SimMemory;

/* `stack` NULL: live bytes are exact and nothing is reserved. `pace` NULL: no host runs ahead. */
SimMemory *sim_memory_new (const PlanSchedule *schedule, const PlanStack *stack,
                           const SimPace *pace);
void sim_memory_free (SimMemory *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SimMemory, sim_memory_free)

/* The host issues an op of `launches` launches. */
void sim_memory_issue (SimMemory *self, guint launches);

/* Applies an alloc, free or touch, and returns the category that changed. A buffer that some op
 * touches counts as live from its alloc on, but gets its block when it is first touched. */
PlanCategory sim_memory_apply (SimMemory *self, const PlanCursor *cursor, const PlanOp *op);

guint64 sim_memory_live (const SimMemory *self, PlanCategory category);

/* Ends a step. */
void sim_memory_end_step (SimMemory *self);

/* Takes the present state as "between steps" and starts to look for the peak. */
void sim_memory_begin_step (SimMemory *self);

/* Reports the memory so far. */
gboolean sim_memory_report (const SimMemory *self, PlanMemory *out_memory, GError **error);

G_END_DECLS
