/* What the walk notes of the ops that it issues: when they ran, which events are recorded behind
 * them, and collectives that wait for others to be issued with them. */
#pragma once
#include "exec/kernels.h"
#include "planner/schedule/schedule.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct _ExecWalk ExecWalk;

/* When an op ran: two of the device's stamps, turned into times at the end of the step. */
typedef struct
{
  guint32 node;
  gint32 unit;
  guint start, end;
} ExecSpan;

/* Ops of a trace that share one span, from node `first` to `last`; others have none. `last` 0:
 * every op has a span of its own. */
typedef struct
{
  guint32 first, last; /* nodes */
  guint start;
} ExecTimed;

typedef struct
{
  guint span; /* number of spans issued before it */
  PlanCategory category;
  guint64 live_bytes;
  guint at;   /* the device's stamp */
} ExecSample; /* the live memory of a category, after an op that allocates or frees */

/* When an event was last recorded: on which stream, after how many of its collectives. */
typedef struct
{
  PlanStream stream;
  guint collectives;
} ExecRecord;

/* What is known of an op once it is issued, for its span and its event. */
typedef struct
{
  guint32 node;
  gint32 unit;
  PlanStream stream;
  guint32 event; /* to be recorded behind it, or EXEC_NO_EVENT */
} ExecIssued;

#define EXEC_NO_EVENT G_MAXUINT32

/* A collective that waits for those that are issued together with it. */
typedef struct
{
  ExecArgs args;
  ExecIssued issued;
} ExecHeld;

/* What precedes and follows the issue of an op: the stamps of its span, and its event. */
ExecIssued exec_walk_issued (const PlanCursor *cursor, const PlanOp *op);
gboolean exec_walk_begin_span (ExecWalk *self, guint32 node, PlanStream stream, GError **error);
gboolean exec_walk_end_span (ExecWalk *self, const ExecIssued *issued, GError **error);
gboolean exec_walk_record (ExecWalk *self, const ExecIssued *issued, GError **error);

/* exec/walk/walk-collective.c: issues a collective, or holds it. */
gboolean exec_walk_run_collective (ExecWalk *self, const PlanCursor *cursor, const ExecArgs *args,
                                   GError **error);

G_END_DECLS
