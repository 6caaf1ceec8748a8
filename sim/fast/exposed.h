/* SimExposed: when the streams that a step's time is split by are busy, without a span per op.
 *
 * Spells of one stream that touch are one. Iterations that are alike stand for themselves: time is
 * cut out of the record where all streams repeat themselves, and added again when it is split. */
#pragma once
#include "sim/engine.h"
#include <glib.h>
G_BEGIN_DECLS

/* What plan_trace_attribute finds. */
typedef struct
{
  gint64 compute_ns, exposed_tensor_ns, exposed_gather_ns, exposed_reduce_ns, exposed_copy_ns,
      host_ns;
} SimShares;

#define SIM_EXPOSED_STREAMS 11

typedef struct
{
  gint64 begin_ns;  /* of the step */
  gint64 cut_ns;    /* so much was left out until now */
  gint64 least_ns;  /* nothing may begin before that in the record any more */
  gboolean is_lost; /* something did */
  GArray *spells[SIM_EXPOSED_STREAMS];
  guint closed[SIM_EXPOSED_STREAMS];              /* spells that do not grow any more */
  guint pattern[SIM_LEVELS][SIM_EXPOSED_STREAMS]; /* first spell of the iteration being proven */
  GArray *cuts;
} SimExposed;

void sim_exposed_clear (SimExposed *self);

/* Forgets everything. */
void sim_exposed_begin (SimExposed *self, gint64 begin_ns);

void sim_exposed_add (SimExposed *self, PlanStream stream, const SimClock *start, gint64 ns);

/* What is added from here on, and then that `count` times more, each time later by its drift. */
void sim_exposed_begin_pattern (SimExposed *self, guint level);
void sim_exposed_repeat (SimExposed *self, guint level, gint64 count);

/* Equals plan_trace_attribute on all spans; FALSE if that cannot be said. */
gboolean sim_exposed_split (const SimExposed *self, gint64 step_ns, SimShares *out_shares);

G_END_DECLS
