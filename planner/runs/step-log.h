/* PlanStepLog: reads what fsdplan run --log wrote: runs, and the measurements of each of their
 * steps.
 *
 * Each line is a JSON object: {"run": {...}} begins a run, {"step": N, ...} is one of its steps,
 * and {"end": {...}} says how it ended. The last line may be cut off, where the run was killed. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  gint64 step, step_ns;
  double loss, grad_norm, eval_loss; /* NAN: not finite, or absent */
} PlanLoggedStep;

typedef struct
{
  guint64 line;       /* line of the log */
  GPtrArray *cells;   /* char *: name, value, name, value, ...; everything stated about the run */
  GArray *steps;      /* PlanLoggedStep */
  char *state;        /* "done" or "failed"; NULL: it has not ended */
  char *message;      /* why it failed, or NULL */
  gint64 measured_ns; /* of a step; 0: unknown */
} PlanLoggedRun;

/* The value of a cell, or NULL. */
const char *plan_logged_run_cell (const PlanLoggedRun *self, const char *name);

/* Whether a file with this beginning is a step log. */
gboolean plan_step_log_is (const char *start);

/* Reads a log. Elements are PlanLoggedRun *, owned by the array; INVALID names origin and line. */
GPtrArray *plan_step_log_read (const char *text, const char *origin, GError **error);

G_END_DECLS
