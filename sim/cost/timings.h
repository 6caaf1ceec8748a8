/* SimTimings: ops that were timed one by one on this machine.
 *
 * Ops are alike when only their sizes differ. The sizes at which like ops were timed span a grid,
 * and the time between its points is interpolated linearly in each size; this is exact where the
 * time is a start plus the traffic of each operand plus arithmetic. Times never fall when a size
 * grows. */
#pragma once
#include "planner/schedule/schedule.h"
#include <glib.h>
G_BEGIN_DECLS

/* Everything that the time of an op depends on, and that time. */
typedef struct
{
  PlanOpKind kind;
  gint64 dims[PLAN_MAX_DIMS];
  gint8 dtype[PLAN_MAX_REFS]; /* PlanDtype of each operand; below 0: there is none */
  guint ranks; /* ranks that compute side by side, or that take part in the collective */
  guint nodes; /* nodes on which a collective's ranks lie; 0: one */
  double ns;
} SimTiming;

/* The timing of an op in a schedule: everything but its time and its nodes, which are 0. */
SimTiming sim_timing_of (const PlanSchedule *schedule, const PlanOp *op);

/* Text forms in which a store keeps shape and format: "m=256 n=64 k=64 layout=1" (across nodes
 * "count=4096 nodes=2") and "out=bf16 a=bf16 b=bf16". The caller frees them. */
char *sim_timing_print_shape (const SimTiming *self);
char *sim_timing_print_format (const SimTiming *self);

/* The inverse; INVALID names what is wrong. Leaves ranks and ns unchanged. */
gboolean sim_timing_parse (const char *op, const char *shape, const char *format, SimTiming *out,
                           GError **error);

typedef enum
{
  SIM_TIMED_AS_IS,   /* timed at these very sizes */
  SIM_TIMED_BETWEEN, /* between timed sizes, or timed beside fewer ranks */
  SIM_TIMED_BEYOND,  /* only smaller sizes were timed, or only larger ones */
} SimTimed;

typedef struct _SimTimings SimTimings;

/* Copies the rows. Where several are of one op at one size, the last counts. */
SimTimings *sim_timings_new (const SimTiming *rows, guint n);
void sim_timings_free (SimTimings *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SimTimings, sim_timings_free)

/* Finds the time of an op. FALSE when no like op was timed. Ops that compute may have been timed
 * beside another number of ranks: the largest smaller number counts, or else the smallest. Where
 * there are more ranks than `cores` (0: not known) they are assumed to take turns at no further
 * cost. */
gboolean sim_timings_find (const SimTimings *self, const SimTiming *op, gint64 cores,
                           double *out_ns, SimTimed *out_how);

G_END_DECLS
