/* SimLeap: iterations of a loop after which all that is long lies as it did before. What follows
 * does the same to it, so that only the short blocks of some more iterations need to be walked.
 *
 * An allocator decides by what is free: the parts of long segments are compared one by one; of
 * whole ones there may be more or fewer, for as long as no decision depends on that. */
#pragma once
#include "planner/schedule/meter.h"
#include "sim/fast/blocks-long.h"
#include "sim/fast/program.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct _SimFootprint SimFootprint;

typedef struct
{
  gboolean is_on;     /* iterations are being noted */
  SimShape then, now; /* when they began; after one of them */
  guint64 live[PLAN_N_CATEGORIES], total;
  gint64 value;                    /* of the loop, then */
  guint turns, iterations, oldest; /* since then; turns when others are looked at instead */
  GArray *notes;                   /* SimNoted: what they took and gave back */
  guint n_notes;                   /* the array has room for more */
  GArray *shorts;     /* SimShortMove: what is done about something short, while periods are */
  GArray *latest;     /* guint32 per buffer array: 1 + the last note about it; 0: none */
  guint64 n_left_out; /* iterations, in all loops so far */
  GArray *drifts;     /* SimDrift: sizes of which more or fewer are free */
} SimLeap;

void sim_leap_clear (SimLeap *self);

/* Enters a loop; says whether it may be left out in part. */
gboolean sim_leap_enter (SimFootprint *footprint, const SimLoop *loop, SimRange body);

/* One iteration, noted. */
void sim_leap_walk (SimFootprint *footprint, SimRange body);

/* After a turn of it: returns how many iterations are left. */
gint64 sim_leap_turn (SimFootprint *footprint, const SimLoop *loop, gint64 left);

G_END_DECLS
