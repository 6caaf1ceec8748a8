/* DbRun: one execution of a plan, its steps, and everything needed to repeat it.
 *
 * begin_run -> add_steps, db_store_add_trace -> finish_run. Each call is one transaction, so a run
 * whose program was killed keeps the steps that were added. */
#pragma once
#include "db/store.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  gint64 id;     /* set by the store */
  char *uid;     /* the same in every store that has the run; set by the store */
  char *created; /* UTC, ISO 8601; set by the store */
  char *program_version;
  char *backend; /* "cpu" */
  char *comm;    /* "threads" */
  char *device;  /* "2 x AMD EPYC ..." */
  char *host;
  gint64 pid;                                  /* set by the store; 0: not recorded */
  char *model_text, *cluster_text, *plan_text; /* canonical */
  char *plan_hash;
  gint64 plan_id; /* set by the store */
  char *schedule_hash;
  gint64 ranks, steps, seed;
  char *data;      /* "synthetic"; NULL: not recorded, as with the next member */
  char *settings;  /* lines NAME=VALUE: learning rate and all else not in a plan */
  char *params_id; /* parameter set of the prediction */
  char *state;     /* "running", "done", "failed", "interrupted" */
  char *message;   /* why it failed, or what is worth knowing of the run; NULL: nothing */
  gint64 predicted_step_ns, measured_step_ns; /* 0 while unknown; the measured one is the median */
} DbRun;

void db_run_clear (DbRun *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (DbRun, db_run_clear)

/* Stores the run as "running" and sets its ids, pid and time. A uid and a time that are set already
 * are kept. */
gboolean db_store_begin_run (DbStore *self, DbRun *run, GError **error);

/* One training step of a run. */
typedef struct
{
  gint64 step;
  double loss, grad_norm; /* may be not a number */
  gint64 step_ns;
  double eval_loss; /* NAN: no evaluation followed */
} DbStep;

/* Adds steps: all of them or none. */
gboolean db_store_add_steps (DbStore *self, gint64 run_id, const DbStep *steps, guint n_steps,
                             GError **error);

/* The steps stored so far, in order; elements are DbStep. */
GArray *db_store_list_steps (DbStore *self, gint64 run_id, GError **error);

/* Ends a run, once, with the state "done" or "failed" and a message or NULL. */
gboolean db_store_finish_run (DbStore *self, gint64 run_id, const char *state, const char *message,
                              gint64 predicted_step_ns, gint64 measured_step_ns, GError **error);

/* All runs, newest last; elements are DbRun, owned by the array. A run left "running" by a process
 * of this host that no longer exists is given as "interrupted". */
GArray *db_store_list_runs (DbStore *self, GError **error);

gboolean db_store_load_run (DbStore *self, gint64 run_id, DbRun *out_run, GError **error);

G_END_DECLS
