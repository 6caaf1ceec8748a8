/* The walk's side of a step that the device keeps and runs again: see exec/walk/walk-graph.c. */
#pragma once
#include "exec/walk/walk-issue.h"
#include "planner/schedule/schedule.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct _ExecWalk ExecWalk;

/* A result of an op that the host looks at once it has been copied from the device. */
typedef struct
{
  const PlanOp *op;
  guint32 node;
  gint64 unit;
  gint64 micro_batch;
  const void *bytes;
  /* For a gradient in a kept step: the op that adds or moves it into its bucket; NULL: not found
   * yet. */
  const PlanOp *put_by;
  guint32 put_node;
  gint64 put_unit, layer;
} ExecLook;

/* Where a micro batch is staged for the device. */
typedef struct
{
  gint64 micro_batch;
  /* Each NULL where the schedule has no use for it. */
  gint32 *tokens, *targets, *places;
  gint64 *start;
} ExecLoad;

/* The kept step, and what the host does before and after each launch. */
typedef struct
{
  gboolean is_wanted, is_keeping, is_kept;
  guint steps;    /* steps issued op by op so far */
  GArray *loads;  /* ExecLoad: batches to stage before each launch */
  GArray *looks;  /* ExecLook: results to look at after each launch */
  guint32 known;  /* the last event that the host waits for in the step; EXEC_NO_EVENT: none */
  gint64 *before; /* version of each buffer when the kept step began; later by how much that step
                     increased it */
} ExecStepGraph;

/* exec/walk/walk-graph.c: checks that the step can be kept; begins and ends a step, which is kept
 * if it is its turn; launches the kept step. */
gboolean exec_walk_check_graph (ExecWalk *self, GError **error);
void exec_walk_clear_graph (ExecWalk *self);
gboolean exec_walk_begin_step (ExecWalk *self, GError **error);
gboolean exec_walk_end_step (ExecWalk *self, GError **error);
gboolean exec_walk_run_graph (ExecWalk *self, GError **error);

/* A kept step is two graphs. Ends the first one behind the op that records what the host waits for
 * between steps; does nothing behind any other op. */
gboolean exec_walk_split_step (ExecWalk *self, const ExecIssued *issued, GError **error);

/* exec/walk/walk-load.c: reads a micro batch into staged memory. */
gboolean exec_walk_fill_batch (ExecWalk *self, const ExecLoad *load, GError **error);

/* exec/walk/walk.c: looks at results that have arrived. */
gboolean exec_walk_take_looks (ExecWalk *self, GError **error);

G_END_DECLS
