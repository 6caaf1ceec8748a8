/* PlanTrace: what happened when a schedule ran, in life or in simulation.
 *
 * One steady step: when each op started and ended, how much memory was live and
 * what for. Grown by whoever runs the schedule, then only read. */
#pragma once
#include "planner/schedule/schedule.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  guint32 node;            /* of the schedule */
  gint32 unit;             /* plan_cursor_unit */
  gint64 start_ns, end_ns; /* from the start of the step */
} PlanSpan;

typedef struct
{
  guint32 span;      /* number of spans that had been issued before */
  gint32 category;   /* PlanCategory */
  gint64 at_ns;      /* when the stream that asks gets there */
  gint64 live_bytes; /* of that category, after the change */
} PlanMemorySample;

/* A rank that is ready to exchange something waits for another one. */
typedef struct
{
  gint64 start_ns, end_ns;
} PlanWait;

typedef struct
{
  guint64 allocated;                      /* live between steps */
  guint64 max_allocated;                  /* live at the fullest moment */
  guint64 reserved;                       /* held by the allocator */
  guint64 device;                         /* held on the device, with context and libraries */
  guint64 by_category[PLAN_N_CATEGORIES]; /* at the fullest moment */
  guint64 resting[PLAN_N_CATEGORIES];     /* between steps */
  guint32 peak_node;                      /* alloc op at which the peak is reached */
  gint32 peak_unit;
} PlanMemory;

typedef struct
{
  char *origin;             /* "sim", "cpu" */
  gint64 step_ns;           /* steady period from one step to the next */
  gint64 compute_ns;        /* this and the next two lines add up to the step */
  gint64 exposed_tensor_ns; /* of activations: tensor-, context-, expert-, pipeline-parallel */
  gint64 exposed_gather_ns, exposed_reduce_ns; /* between replicas, too */
  gint64 exposed_copy_ns;                      /* to the host and back */
  gint64 host_ns, idle_ns;                     /* waiting for the host; for other ranks */
  PlanMemory memory;
  GArray *spans;   /* PlanSpan, in issue order */
  GArray *samples; /* PlanMemorySample, in issue order */
  GArray *waits;   /* PlanWait, in order: what idle_ns is made of */
} PlanTrace;

/* Parts of a step, each with a peak of its own: X (ID, "name"). */
#define PLAN_PHASE_LIST(X) \
  X (LOSS, "forward pass and loss") \
  X (BACKWARD, "backward pass") \
  X (BACKWARD_END, "end of the backward pass") \
  X (OPTIMIZER, "optimizer")

typedef enum
{
#define X(id, name) PLAN_PHASE_##id,
  PLAN_PHASE_LIST (X)
#undef X
      PLAN_N_PHASES
} PlanPhase;

const char *plan_phase_name (PlanPhase phase);

PlanTrace *plan_trace_new (const char *origin);
void plan_trace_free (PlanTrace *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (PlanTrace, plan_trace_free)

void plan_trace_add_span (PlanTrace *self, guint32 node, gint32 unit, gint64 start_ns,
                          gint64 end_ns);
void plan_trace_add_sample (PlanTrace *self, PlanCategory category, gint64 at_ns,
                            gint64 live_bytes);

void plan_trace_add_wait (PlanTrace *self, gint64 start_ns, gint64 end_ns);

/* Splits step_ns into compute, exposed communication by kind, idle and host, from spans and waits.
 */
void plan_trace_attribute (PlanTrace *self, const PlanSchedule *schedule);

/* Most bytes that buffers, in whole granules, hold in each part of a step that begins with what
 * rests between steps; what lies outside the plan is not counted. */
void plan_memory_phase_peaks (const PlanMemory *self, const PlanSchedule *schedule, guint64 granule,
                              guint64 out_bytes[PLAN_N_PHASES]);

/* Spans within the step, in order per stream; memory never negative, peak where it says. */
gboolean plan_trace_check (const PlanTrace *self, const PlanSchedule *schedule, GError **error);

/* Text form, exact; parse (print (x)) equals x. */
char *plan_trace_print (const PlanTrace *self);
PlanTrace *plan_trace_parse (const char *text, const char *origin, GError **error);

/* A trace, and how much later it begins than those beside it. */
typedef struct
{
  const PlanTrace *trace;
  const PlanSchedule *schedule;
  gint64 offset_ns;
} PlanTraceView;

/* Chrome / Perfetto JSON: a process per trace, in it a row per stream, arrows from who records an
 * event to who waits for it on another stream, a memory counter. */
char *plan_trace_print_chrome (const PlanTraceView *views, guint n);

G_END_DECLS
