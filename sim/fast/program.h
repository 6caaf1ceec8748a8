/* SimProgram: a schedule reduced to what the simulator reads many times.
 *
 * It is two lists, ops that take time and ops that take memory, because neither depends on the
 * other. Repeats stay repeats (loops). Memory is reused from schedule to schedule. */
#pragma once
#include "planner/schedule/schedule.h"
#include "sim/engine.h"
#include <glib.h>
G_BEGIN_DECLS

/* A reference to an event or buffer, with its array looked up. See sim_ref_id. */
typedef struct
{
  guint32 first;
  gint32 offset;
  gint8 loop;
  guint8 modulus;
} SimRef;

/* Kinds of items. `index` of SimItem names a loop for a repeat, else an op (in the time list) or a
 * buffer array (in the memory list). */
typedef enum
{
  SIM_ITEM_OP, /* an op that takes time; in the memory list an alloc */
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
  PlanStream stream;    /* stream whose pool the memory comes from */
  gboolean is_of_graph; /* it comes from the pool of CUDA graphs of layers */
  guint launches;       /* memory list: launches between the item before and this one */
} SimItem;

typedef struct
{
  SimIssue issue; /* all but the event ids */
  SimRef waits[PLAN_MAX_WAITS], record;
} SimOp;

/* How a loop uses the events of an array: the same element in every iteration, or one that moves
 * with the loop; and whether ops of the loop record them. */
enum
{
  SIM_USE_FIXED = 1,
  SIM_USE_MOVING = 2,
  SIM_USE_RECORDED = 4,
};

typedef struct
{
  gint64 from, count, step;
  guint64 length; /* ops of one iteration, with every pass of the loops inside */
  guint32 end;    /* first item behind the body */
  guint launches; /* memory list: launches behind the body's last item */
  guint8 depth;
  guint unroll;        /* iterations after which the same elements are used again */
  gboolean is_uniform; /* iterations differ only by elements that move with the loop */
  gboolean has_moving;
  guint32 first_range, n_ranges;    /* ranges of clocks that all its iterations use alike */
  guint32 first_touched, n_touched; /* ranges of clocks that its ops may read or set, without those
                                       of spells and of the host */
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
  GArray *uses;     /* SIM_USE bits, guint8 per time loop and event array, while compiling */
  guint shared;     /* streams with which others share the device, a bit each */
  guint64 serial;   /* of the schedule it was compiled from; 0: none */
  GArray *launches; /* guint8 per node */
  gboolean is_serial;
} SimProgram;

/* Compiles a schedule with its costs. Where it was compiled from this schedule before, only costs
 * are renewed. FALSE: the costs are unchanged, too, and so are all results. */
gboolean sim_program_compile (SimProgram *self, const PlanSchedule *schedule, const SimCost *cost);
void sim_program_clear (SimProgram *self);

/* The id of a referenced event or buffer, for the given values of the loops around it. */
static inline guint32
sim_ref_id (const SimRef *ref, const gint64 *values)
{
  const gint64 value = ref->offset + (ref->loop >= 0 ? values[ref->loop] : 0);
  return ref->first + (guint32)(ref->modulus ? value % ref->modulus : value);
}

G_END_DECLS
