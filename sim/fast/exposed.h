/* SimExposed: splits a step's time by what it is spent on, as plan_trace_attribute does, but
 * without a span per op.
 *
 * For each stream it records spells, times for which the stream is busy without a break. Iterations
 * that are jumped over (fold.h) are not recorded: the time of whole periods is cut out of the
 * record where all streams repeat themselves, and added again by multiplication.
 * tests/prop/prop-exposed.c compares with plan_trace_attribute. */
#pragma once
#include "sim/engine.h"
#include <glib.h>
G_BEGIN_DECLS

/* The shares that plan_trace_attribute finds. */
typedef struct
{
  gint64 compute_ns, exposed_tensor_ns, exposed_gather_ns, exposed_reduce_ns, exposed_copy_ns,
      host_ns;
} SimShares;

#define SIM_EXPOSED_STREAMS 12 /* the streams whose time is split: all but the host's */

typedef struct
{
  gint64 begin_ns;  /* of the step */
  gint64 cut_ns;    /* time that was cut out so far */
  gint64 least_ns;  /* nothing may begin earlier in the record any more */
  gboolean is_lost; /* something did begin earlier */
  GArray *spells[SIM_EXPOSED_STREAMS];
  guint closed[SIM_EXPOSED_STREAMS]; /* number of spells that may not be extended any more */
  guint first_of_iteration[SIM_LEVELS][SIM_EXPOSED_STREAMS]; /* index of the first spell of the
                                                                iteration being proven */
  GArray *cuts;
} SimExposed;

void sim_exposed_clear (SimExposed *self);

/* Forgets everything. */
void sim_exposed_begin (SimExposed *self, gint64 begin_ns);

void sim_exposed_add (SimExposed *self, PlanStream stream, const SimClock *start, gint64 ns);

/* Marks the beginning of an iteration; sim_exposed_repeat adds what was added since then `count`
 * more times, each time later by its drift. */
void sim_exposed_begin_iteration (SimExposed *self, guint level);
void sim_exposed_repeat (SimExposed *self, guint level, gint64 count);

/* Splits the time. FALSE if the record does not suffice. */
gboolean sim_exposed_split (const SimExposed *self, gint64 step_ns, SimShares *out_shares);

G_END_DECLS
