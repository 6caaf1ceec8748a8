/* SimProgram: a schedule, reduced to what the simulator reads again and again.
 *
 * Two lists, because neither needs the other: what takes time, and what takes memory. Repeats stay
 * repeats. Memory is reused from schedule to schedule. */
#pragma once
#include "planner/schedule/schedule.h"
#include "sim/engine.h"
#include <glib.h>
G_BEGIN_DECLS

/* plan_cursor_event or plan_cursor_buffer, with the array looked up. */
typedef struct
{
  guint32 first;
  gint32 offset;
  gint8 loop;
  guint8 modulus;
} SimRef;

/* `index` is of a loop for a repeat, else of an op (time) or a buffer array (memory). */
typedef enum
{
  SIM_ITEM_OP, /* memory: alloc */
  SIM_ITEM_FREE,
  SIM_ITEM_TOUCH,
  SIM_ITEM_REPEAT,
} SimItemKind;

typedef struct
{
  SimItemKind kind;
  guint32 index;
  guint32 node;
  SimRef buffer;
  PlanStream stream; /* that takes memory */
  guint launches;    /* memory: what is issued between the item before and this one */
} SimItem;

typedef struct
{
  SimIssue issue; /* all but the ids of events */
  SimRef waits[PLAN_MAX_WAITS], record;
} SimOp;

/* The element of an array that each iteration uses is the same one, or moves with the loop. */
enum
{
  SIM_USE_FIXED = 1,
  SIM_USE_MOVING = 2,
  SIM_USE_RECORDED = 4,
};

typedef struct
{
  gint64 from, count, step;
  guint64 length; /* ops of one iteration, those of the loops in it every time */
  guint32 end;    /* first item behind its body */
  guint launches; /* memory: what is issued behind the body's last item */
  guint8 depth;
  guint unroll;        /* iterations after which what is used in turns comes round again */
  gboolean is_uniform; /* iterations differ by what moves with the loop, and by nothing else */
  gboolean has_moving;
  guint32 first_range, n_ranges;    /* clocks that every iteration shares */
  guint32 first_touched, n_touched; /* clocks that its ops may meet, but for spells and the host */
} SimLoop;

typedef struct
{
  guint32 begin, end;
} SimRange;

typedef struct
{
  GArray *items; /* SimItem */
  GArray *loops; /* SimLoop */
  SimRange sections[PLAN_N_SECTIONS];
} SimList;

typedef struct
{
  SimList time, memory;
  GArray *ops;      /* SimOp */
  GArray *ranges;   /* SimRange */
  GArray *uses;     /* guint8 per time loop and event array, while compiling */
  guint shared;     /* streams whose ops others share with, a bit each */
  guint64 serial;   /* of the schedule; 0: none */
  GArray *launches; /* guint8 per node */
  gboolean is_serial;
} SimProgram;

/* Of a schedule that it was of already only the costs are looked at. FALSE: they, too, are what
 * they were, and so is all that follows. */
gboolean sim_program_compile (SimProgram *self, const PlanSchedule *schedule, const SimCost *cost);
void sim_program_clear (SimProgram *self);

/* Values of the loops around a reference. */
static inline guint32
sim_ref_id (const SimRef *ref, const gint64 *values)
{
  const gint64 value = ref->offset + (ref->loop >= 0 ? values[ref->loop] : 0);
  return ref->first + (guint32)(ref->modulus ? value % ref->modulus : value);
}

G_END_DECLS
