/* DbRun: one execution of a plan, its steps, and what it takes to repeat it.
 *
 * begin_run -> add_steps, db_store_add_trace -> finish_run. Each is one transaction: a run whose
 * program was killed keeps the steps that were added. */
#pragma once
#include "db/store.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  gint64 id;     /* set by the store */
  char *uid;     /* the same in every store that holds it; set by the store */
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
  char *data;      /* "synthetic"; NULL: not recorded, like the next */
  char *settings;  /* lines NAME=VALUE: the learning rate and all else that no plan has */
  char *params_id; /* parameter set of the prediction */
  char *state;     /* "running", "done", "failed", "interrupted" */
  char *message;   /* why it failed, or what is worth knowing of it; NULL: nothing */
  gint64 predicted_step_ns, measured_step_ns; /* 0 while unknown; measured is the median */
} DbRun;

void db_run_clear (DbRun *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (DbRun, db_run_clear)

/* Stores the run as "running" and sets its ids, pid and time; a uid and a time that are there stay.
 */
gboolean db_store_begin_run (DbStore *self, DbRun *run, GError **error);

/* One training step of a run. */
typedef struct
{
  gint64 step;
  double loss, grad_norm; /* may be not a number */
  gint64 step_ns;
  double eval_loss; /* NAN: no evaluation followed */
} DbStep;

/* All or none of them. */
gboolean db_store_add_steps (DbStore *self, gint64 run_id, const DbStep *steps, guint n_steps,
                             GError **error);

/* The steps stored so far, in order; elements are DbStep. */
GArray *db_store_list_steps (DbStore *self, gint64 run_id, GError **error);

/* state "done" or "failed", with a message or NULL; a run ends once. */
gboolean db_store_finish_run (DbStore *self, gint64 run_id, const char *state, const char *message,
                              gint64 predicted_step_ns, gint64 measured_step_ns, GError **error);

/* Runs, newest last; elements are DbRun, owned by the array. One that was left "running" by a
 * process of this host that is gone reads "interrupted". */
GArray *db_store_list_runs (DbStore *self, GError **error);

gboolean db_store_load_run (DbStore *self, gint64 run_id, DbRun *out_run, GError **error);

G_END_DECLS
