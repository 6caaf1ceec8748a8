/* SimFootprint: runs the part of a program that takes memory, and leaves out iterations and steps
 * that begin as the one before did.
 *
 * Gives what sim/memory.h gives. Memory is taken and given back in issue order; of time, only how
 * far the host is ahead matters. */
#pragma once
#include "planner/plan/stack.h"
#include "planner/schedule/meter.h"
#include "sim/fast/arena-fit.h"
#include "sim/fast/blocks.h"
#include "sim/fast/program.h"
#include "sim/record-stream.h"
#include <glib.h>
G_BEGIN_DECLS

#define SIM_NOWHERE G_MAXUINT64

/* A state between turns. */
typedef struct
{
  GArray *text;   /* guint64 */
  GArray *places; /* SimPlace */
} SimState;

/* Where live bytes peaked in a part of a step. */
typedef struct
{
  guint64 total, by_category[PLAN_N_CATEGORIES];
  guint32 node;
  gint32 unit;
} SimPeak;

/* The state that is waited for, and the latest; the one that a loop is entered with. */
typedef struct
{
  SimState kept, now, entry;
  guint64 fingerprint;     /* of the kept one */
  guint age, oldest;       /* turns since the kept one; when it is replaced */
  SimPeak before, since;   /* until the kept one; from there until it came again */
  gint64 period;           /* iterations from the one to the other; 0: it has not come again */
  guint32 loop;            /* of them */
  GArray *named, *lasting; /* guint32: buffer arrays that come or go there; that do not come free */
} SimRecurrence;

typedef struct
{
  const PlanSchedule *schedule;
  const PlanStack *stack;
  const SimProgram *program;
  gboolean has_blocks, has_gaps; /* a caching allocator, an arena; neither without a stack */
  guint64 enough_bytes;          /* on the device: any more need not be told exactly */
  guint64 enough_reserved;       /* the same of what a caching allocator holds */
  SimBlocks blocks;
  SimRecordStream lead;
  SimArenaFit gaps;
  PlanMeter meter;
  gboolean is_peak; /* the meter's peak is now, and its categories are not yet noted */
  gint64 values[PLAN_MAX_DEPTH + 1]; /* of the loops around the op, and 0 */
  GArray *arrays;                    /* per buffer array: what its elements take */
  GArray *moves;                     /* per item of the program */
  GArray *held;                      /* guint32 per buffer: its block */
  GArray *placed;                    /* guint64 per buffer: its place in the arena, SIM_NOWHERE */
  GArray *roles;                     /* guint8 per array, in the part that is looked at */
  GArray *described;                 /* guint32: blocks of what is named there */
  guint n_taken;                     /* steps, until it was steady or enough */
  SimRecurrence recurrences[PLAN_MAX_DEPTH + 1]; /* of steps, of iterations per depth */
} SimFootprint;

void sim_footprint_clear (SimFootprint *self);

/* Setup and that many steps; reports the last. Once more than `enough_bytes` are held it stops, and
 * reports `device` only: as much as is held by then. */
gboolean sim_footprint_run (SimFootprint *self, const PlanSchedule *schedule,
                            const SimProgram *program, const SimCost *cost, const PlanStack *stack,
                            guint n_steps, PlanMemory *out_memory, GError **error);

G_END_DECLS
