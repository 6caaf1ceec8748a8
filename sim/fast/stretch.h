/* SimStretch: ops of one stage in a row, and what they came to when they began like now.
 *
 * Every start is the latest of some clocks. Run once, a stretch tells which of those that it found
 * decided something, and up to when each of the others may lie and still decide nothing. Where that
 * holds again, counted from where its first op of compute begins, it comes to the same: later
 * clocks are set as they were then, by so much. So it does not matter how far the host is ahead, or
 * a stream is idle. */
#pragma once
#include "sim/engine.h"
#include <glib.h>
G_BEGIN_DECLS

/* An op, its events by their number among those of its stretch. */
typedef struct
{
  gint64 ns, launch_ns;
  SimLoad load;
  guint32 waits[PLAN_MAX_WAITS];
  gint32 record; /* -1: none */
  gint8 group;   /* -1: none */
  guint8 kind, stream, n_waits;
} SimStretchOp;

typedef struct _SimStretch SimStretch;

/* Takes the ops, SimStretchOp, with `n_events` different events among them. */
SimStretch *sim_stretch_new (GBytes *ops, guint n_events);
void sim_stretch_free (SimStretch *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SimStretch, sim_stretch_free)

/* Goes through it on an engine on which its events have these ids. Returns how many ops were
 * simulated for that: 0 where it began as it once did. */
guint sim_stretch_run (SimStretch *self, SimEngine *engine, const guint32 *events);
guint sim_stretch_n_ops (const SimStretch *self);

G_END_DECLS
