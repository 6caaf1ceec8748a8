/* PlanTrace: what happened when a schedule ran, really or in simulation.
 *
 * It records one steady step: when each op started and ended, and how much memory was live, by
 * category. Whoever runs the schedule adds to it; afterwards it is only read. */
#pragma once
#include "planner/schedule/schedule.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  guint32 node;            /* node of the schedule */
  gint32 unit;             /* plan_cursor_unit */
  gint64 start_ns, end_ns; /* from the start of the step */
} PlanSpan;

typedef struct
{
  guint32 span;      /* number of spans that had been issued before */
  gint32 category;   /* PlanCategory */
  gint64 at_ns;      /* when the stream that takes or frees gets there */
  gint64 live_bytes; /* of that category, after the change */
} PlanMemorySample;

/* The time for which a rank that is ready to communicate waits for another one. */
typedef struct
{
  gint64 start_ns, end_ns;
} PlanWait;

typedef struct
{
  guint64 allocated;                      /* live between steps */
  guint64 max_allocated;                  /* live at the peak */
  guint64 reserved;                       /* held by the allocator */
  guint64 device;                         /* held on the device, with context and libraries */
  guint64 host;                           /* of the host, beside the device: what is offloaded */
  guint64 by_category[PLAN_N_CATEGORIES]; /* at the peak */
  guint64 resting[PLAN_N_CATEGORIES];     /* between steps */
  guint32 peak_node;                      /* alloc op that reaches the peak */
  gint32 peak_unit;
} PlanMemory;

typedef struct
{
  char *origin;             /* "sim", "cpu" */
  gint64 step_ns;           /* steady period from one step to the next */
  gint64 compute_ns;        /* this and the shares up to idle_ns add up to step_ns */
  gint64 exposed_tensor_ns; /* of activations: tensor-, context-, expert- and pipeline-parallel */
  gint64 exposed_gather_ns, exposed_reduce_ns; /* including those between replicas */
  gint64 exposed_copy_ns;                      /* to the host and back */
  gint64 host_ns, idle_ns;                     /* time waiting for the host; for other ranks */
  PlanMemory memory;
  GArray *spans;   /* PlanSpan, in issue order */
  GArray *samples; /* PlanMemorySample, in issue order */
  GArray *waits;   /* PlanWait, in order; they make up idle_ns */
} PlanTrace;

/* Parts of a step, each with its own peak of memory: X (ID, "name"). */
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

/* Splits step_ns into compute, exposed communication by kind, idle and host time, from spans and
 * waits. */
void plan_trace_attribute (PlanTrace *self, const PlanSchedule *schedule);

/* The peak of live bytes, with buffers in whole granules, in each phase of a step. It starts from
 * what is live between steps; memory outside the plan is not counted. */
void plan_memory_phase_peaks (const PlanMemory *self, const PlanSchedule *schedule, guint64 granule,
                              guint64 out_bytes[PLAN_N_PHASES]);

/* Checks that spans lie within the step and in order per stream, that live bytes are never
 * negative, and that the peak is where the totals say. */
gboolean plan_trace_check (const PlanTrace *self, const PlanSchedule *schedule, GError **error);

/* The exact text form; parse (print (x)) equals x. */
char *plan_trace_print (const PlanTrace *self);
PlanTrace *plan_trace_parse (const char *text, const char *origin, GError **error);

/* A trace, and by how much it begins later than the others shown with it. */
typedef struct
{
  const PlanTrace *trace;
  const PlanSchedule *schedule;
  gint64 offset_ns;
} PlanTraceView;

/* Chrome / Perfetto JSON: a process per trace with a row per stream, arrows from the op that
 * records an event to ops on other streams that wait for it, and a memory counter. */
char *plan_trace_print_chrome (const PlanTraceView *views, guint n);

G_END_DECLS
