/* SimFootprint: runs the part of a program that takes memory, and leaves out iterations and steps
 * that begin in the state in which an earlier one began. The result equals sim/memory.h;
 * tests/prop/prop-fold.c and tests/prop/prop-footprint.c compare them.
 *
 * Memory is taken and given back in issue order. Time matters only by the lead of the host
 * (sim/record-stream.h). */
#pragma once
#include "planner/plan/stack.h"
#include "planner/schedule/meter.h"
#include "sim/fast/arena-fit.h"
#include "sim/fast/blocks.h"
#include "sim/fast/program.h"
#include "sim/record-stream.h"
#include <glib.h>
G_BEGIN_DECLS

#define SIM_NOWHERE G_MAXUINT64 /* the place of a buffer that holds no part of the arena */

/* The state of memory between two turns of a loop (see fold.h) or two steps, in words. What follows
 * from equal states is equal. */
typedef struct
{
  GArray *words;  /* guint64 */
  GArray *places; /* SimPlace */
} SimState;

/* The peak of live bytes in a part of a step. */
typedef struct
{
  guint64 total, by_category[PLAN_N_CATEGORIES];
  guint32 node;
  gint32 unit;
} SimPeak;

/* What is known of a loop, or of steps, that may come to a state again: the state that is compared
 * with, the latest one, and the one that a loop was entered with. */
typedef struct
{
  SimState kept, now, entry;
  guint64 fingerprint;     /* of the kept state */
  guint age, oldest;       /* turns since the kept state; the age at which it is replaced */
  SimPeak before, since;   /* the peaks until the kept state, and from there until it came again */
  gint64 period;           /* iterations between the two; 0: the state has not come again */
  guint32 loop;            /* index of the loop */
  GArray *named, *lasting; /* guint32: buffer arrays that the loop takes or frees; all arrays that
                              it does not free */
} SimRecurrence;

typedef struct
{
  const PlanSchedule *schedule;
  const PlanStack *stack;
  const SimProgram *program;
  gboolean has_blocks,
      has_arena;           /* has a caching allocator; has an arena; neither without a stack */
  guint64 enough_bytes;    /* device bytes above which the result need not be exact */
  guint64 enough_reserved; /* the same for what a caching allocator holds */
  SimBlocks blocks;
  SimRecordStream lead;
  SimArenaFit gaps;
  PlanMeter meter;
  gboolean is_peak; /* the meter's peak is now, and its categories are not noted yet */
  gint64 values[PLAN_MAX_DEPTH + 1]; /* by depth: variables of the loops around the op; then a 0 */
  GArray *arrays;                    /* Array: bytes of each buffer array's elements */
  GArray *moves;                     /* SimMove: one per item of the program */
  GArray *held;                      /* guint32 per buffer: the block it holds */
  GArray *placed;    /* guint64 per buffer: its place in the arena, or SIM_NOWHERE */
  GArray *roles;     /* guint8 per buffer array: what the loop that is looked at does with it */
  GArray *described; /* guint32: blocks that a description is made of, a work space */
  guint n_taken;     /* steps run, until one was steady or enough was known */
  SimRecurrence recurrences[PLAN_MAX_DEPTH + 1]; /* of steps, then of loops by depth */
} SimFootprint;

void sim_footprint_clear (SimFootprint *self);

/* Runs the setup and up to `n_steps` steps, and reports the last one. It stops once more than
 * `enough_bytes`, which the caller sets before, are held, and then reports only `device`: the bytes
 * held by then. */
gboolean sim_footprint_run (SimFootprint *self, const PlanSchedule *schedule,
                            const SimProgram *program, const SimCost *cost, const PlanStack *stack,
                            guint n_steps, PlanMemory *out_memory, GError **error);

G_END_DECLS
