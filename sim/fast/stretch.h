/* SimStretch: ops of one stage in a row (between two meetings), with the outcomes of earlier runs.
 *
 * Every op starts at the latest of some clocks. The first run from a state shows which clocks
 * decided some start, and up to what time each of the others may lie without deciding any. Where
 * the same holds again, with times counted from the start of the first compute op, the outcome is
 * the same: the clocks that it sets are set to the same times, counted from there. So it makes no
 * difference how far the host is ahead, or for how long a stream has been idle. */
#pragma once
#include "sim/engine.h"
#include <glib.h>
G_BEGIN_DECLS

/* An op; its events are named by their number among those of the stretch. */
typedef struct
{
  gint64 ns, launch_ns;
  SimLoad load;
  guint32 waits[PLAN_MAX_WAITS];
  gint32 record; /* -1: none */
  gint8 group;   /* -1: none */
  guint8 kind, stream, n_waits;
} SimStretchOp;

/* Hash of GBytes that are whole words, as those of ops are (GHashFunc). */
guint sim_stretch_hash (gconstpointer data);

typedef struct _SimStretch SimStretch;

/* Takes ownership of the ops (SimStretchOp), which name `n_events` different events. */
SimStretch *sim_stretch_new (GBytes *ops, guint n_events);
void sim_stretch_free (SimStretch *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (SimStretch, sim_stretch_free)

/* Runs it on an engine, on which its events have the ids `events`. Returns how many ops were
 * simulated; 0 where an earlier outcome was applied. */
guint sim_stretch_run (SimStretch *self, SimEngine *engine, const guint32 *events);
guint sim_stretch_n_ops (const SimStretch *self);

G_END_DECLS
