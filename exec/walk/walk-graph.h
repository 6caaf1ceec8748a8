/* A step that the device keeps, as the walk has it: see exec/walk/walk-graph.c. */
#pragma once
#include "planner/schedule/schedule.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct _ExecWalk ExecWalk;

/* What the host looks at of an op's results, once they are there. */
typedef struct
{
  const PlanOp *op;
  guint32 node;
  gint64 unit;
  gint64 micro_batch;
  const void *bytes;
  /* Of a gradient in a step that is kept: the op that puts it where it belongs; NULL: not yet. */
  const PlanOp *put_by;
  guint32 put_node;
  gint64 put_unit, layer;
} ExecLook;

/* Where a micro batch is staged. */
typedef struct
{
  gint64 micro_batch;
  gint32 *tokens, *targets, *places; /* the last may be NULL */
} ExecLoad;

/* The step as the device keeps it, and what the host does around each launch. */
typedef struct
{
  gboolean is_wanted, is_keeping, is_kept;
  guint steps;    /* that were issued op by op */
  GArray *loads;  /* ExecLoad */
  GArray *looks;  /* ExecLook */
  gint64 *before; /* version of each buffer when the step began; then by how much it grew */
} ExecStepGraph;

/* exec/walk/walk-graph.c: whether the next step is one to keep; begins and ends that; runs what is
 * kept.
 */
gboolean exec_walk_check_graph (const ExecWalk *self, GError **error);
void exec_walk_clear_graph (ExecWalk *self);
gboolean exec_walk_begin_step (ExecWalk *self, GError **error);
gboolean exec_walk_end_step (ExecWalk *self, GError **error);
gboolean exec_walk_run_graph (ExecWalk *self, GError **error);

/* exec/walk/walk.c: the numbers of a micro batch, into staged memory; what the host looks at, once
 * it is there. */
gboolean exec_walk_fill_batch (ExecWalk *self, const ExecLoad *load, GError **error);
gboolean exec_walk_take_looks (ExecWalk *self, GError **error);

G_END_DECLS
