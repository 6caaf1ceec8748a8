/* SimSlowdown: a lower bound of how much communication beside a chain of ops slows that chain, from
 * sums of work instead of a simulation. slowdown-bound.c has the proof.
 *
 * The chain is what runs on the compute stream. A collective that waits for all compute issued
 * before it (as plan_lower_collective has it) runs beside ops that are issued later than the
 * collective; by the rule of sim/sharing.h the later op is the one that is slowed, so the chain
 * is. */
#pragma once
#include "sim/cost/cost.h"
#include <glib.h>
G_BEGIN_DECLS

#define SIM_SLOWDOWN_CLASSES 64

/* A load that no more than this many ops of a micro batch have is not counted as a class of its
 * own: such ops are those of embedding and head, which are outside the units. */
#define SIM_SLOWDOWN_SELDOM 3

/* All ops with one load, and the nanoseconds that they take without anything beside them. */
typedef struct
{
  SimLoad load;
  gint64 n, ns;
} SimSlowdownClass;

/* Work by load. All zero means none; add and subtract with sim_slowdown_join. */
typedef struct
{
  guint n;
  gboolean is_lost; /* there were more loads than classes, so that no bound can be given */
  SimSlowdownClass of[SIM_SLOWDOWN_CLASSES];
} SimSlowdown;

void sim_slowdown_add (SimSlowdown *self, SimLoad load, gint64 n, gint64 ns);
void sim_slowdown_join (SimSlowdown *self, const SimSlowdown *other, gint64 times);
void sim_slowdown_divide (SimSlowdown *self, gint64 n); /* rounds down */

#define SIM_SLOWDOWN_KINDS 2

/* The kinds of op that one stream does many times, and the time of everything that it does. */
typedef struct
{
  guint n_kinds; /* may exceed SIM_SLOWDOWN_KINDS; then not all kinds are kept */
  SimSlowdownClass kinds[SIM_SLOWDOWN_KINDS];
  gint64 ns;
} SimSlowdownStream;

SimSlowdownStream sim_slowdown_stream (const SimSlowdown *self);

/* A lower bound of the nanoseconds by which a chain takes longer than alone, while two streams run
 * the given kinds of op beside it. No two ops of the chain run at once; gaps between them count as
 * time of the chain. */
gint64 sim_slowdown_slowing_ns (const SimSlowdown *chain, const SimSlowdownStream beside[2]);

G_END_DECLS
