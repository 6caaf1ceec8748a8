/* PlanStepLog: what fsdplan run --log wrote: runs, and what each of their steps measured.
 *
 * A line is a JSON object: {"run": {...}} begins a run, {"step": N, ...} is a step of it, and
 * {"end": {...}} says how it ended. The last line may be cut short: the run was killed. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  gint64 step, step_ns;
  double loss, grad_norm, eval_loss; /* NAN: not finite, or none */
} PlanLoggedStep;

typedef struct
{
  guint64 line;       /* of the log */
  GPtrArray *cells;   /* char *: name, value, name, value, ...; all that is said of the run */
  GArray *steps;      /* PlanLoggedStep */
  char *state;        /* "done" or "failed"; NULL: it has no end so far */
  char *message;      /* why it failed, or NULL */
  gint64 measured_ns; /* of a step; 0: unknown */
} PlanLoggedRun;

/* The value of a cell, or NULL. */
const char *plan_logged_run_cell (const PlanLoggedRun *self, const char *name);

/* Whether a file that begins so is one. */
gboolean plan_step_log_is (const char *start);

/* Elements are PlanLoggedRun *, owned by the array; INVALID names origin and line. */
GPtrArray *plan_step_log_read (const char *text, const char *origin, GError **error);

G_END_DECLS
