/* SimTimings: ops that were timed one by one on the machine in question.
 *
 * Ops are alike when only their sizes differ. The sizes at which such ops were timed span a grid,
 * and time between its points is linear in each size: exact where time is a start, plus each
 * operand's traffic, plus arithmetic. Times never fall where a size grows. */
#pragma once
#include "planner/schedule/schedule.h"
#include <glib.h>
G_BEGIN_DECLS

/* An op by all that its time depends on, and that time. */
typedef struct
{
  PlanOpKind kind;
  gint64 dims[PLAN_MAX_DIMS];
  gint8 dtype[PLAN_MAX_REFS]; /* PlanDtype of each operand; below 0: it has none */
  guint ranks;                /* that compute side by side, or take part in a collective */
  guint nodes;                /* that those of a collective lie on; 0: one */
  double ns;
} SimTiming;

/* All of an op of a schedule but its time, and on how many nodes it is. */
SimTiming sim_timing_of (const PlanSchedule *schedule, const PlanOp *op);

/* "m=256 n=64 k=64 layout=1" or, across nodes, "count=4096 nodes=2"; "out=bf16 a=bf16 b=bf16": as
 * stores keep them. The caller frees. */
char *sim_timing_print_shape (const SimTiming *self);
char *sim_timing_print_format (const SimTiming *self);

/* The inverse; INVALID names what is wrong. Leaves ranks and ns as they are. */
gboolean sim_timing_parse (const char *op, const char *shape, const char *format, SimTiming *out,
                           GError **error);

typedef enum
{
  SIM_TIMED_AS_IS,   /* at these very sizes */
  SIM_TIMED_BETWEEN, /* smaller and larger ones, or beside fewer ranks */
  SIM_TIMED_BEYOND,  /* only smaller ones, or only larger ones */
} SimTimed;

typedef struct _SimTimings SimTimings;

/* Copies the rows; of several for one op at one size, the last counts. */
SimTimings *sim_timings_new (const SimTiming *rows, guint n);
void sim_timings_free (SimTimings *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SimTimings, sim_timings_free)

/* FALSE when nothing like it was timed. Computing ops that were timed beside another number of
 * ranks count where none is better: those beside the most ranks that are fewer, else the fewest;
 * ranks beyond the machine's `cores` (0: not known) take turns, which is assumed to cost nothing
 * but that. */
gboolean sim_timings_find (const SimTimings *self, const SimTiming *op, gint64 cores,
                           double *out_ns, SimTimed *out_how);

G_END_DECLS
