/* DbStore: the user's store, one SQLite file.
 *
 * open -> begin_run -> add_step/add_trace -> finish_run -> close. A run is written
 * in transactions, so a killed program leaves a whole database. schema.sql is the
 * document. */
#pragma once
#include "planner/schedule.h"
#include "planner/trace.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct _DbStore DbStore;

/* `path` NULL: $XDG_DATA_HOME/fsdplan/fsdplan.db, made with its folders; ":memory:" keeps nothing.
 * A file of a newer version, or that is no store, is refused and left alone. */
DbStore *db_store_open (const char *path, GError **error);

/* An existing store, for reading only; IO when there is none. */
DbStore *db_store_open_readonly (const char *path, GError **error);

void db_store_close (DbStore *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (DbStore, db_store_close)

/* What it takes to repeat a run. */
typedef struct
{
  gint64 id;     /* set by the store */
  char *created; /* UTC, ISO 8601; set by the store */
  char *program_version;
  char *backend; /* "cpu" */
  char *comm;    /* "threads" */
  char *device;  /* "2 x AMD EPYC ..." */
  char *host;
  char *model_text, *cluster_text, *plan_text; /* canonical */
  char *plan_hash;
  char *schedule_hash;
  gint64 ranks, steps, seed;
  char *params_id;                            /* parameter set of the prediction */
  char *state;                                /* "running", "done", "failed" */
  char *message;                              /* why it failed, or NULL */
  gint64 predicted_step_ns, measured_step_ns; /* 0 while unknown; measured is the median */
} DbRun;

void db_run_clear (DbRun *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (DbRun, db_run_clear)

/* Stores the run as "running" and sets its id. */
gboolean db_store_begin_run (DbStore *self, DbRun *run, GError **error);

/* One training step of a run. */
typedef struct
{
  gint64 step;
  double loss, grad_norm; /* may be not a number */
  gint64 step_ns;
} DbStep;

gboolean db_store_add_step (DbStore *self, gint64 run_id, gint64 step, double loss,
                            double grad_norm, gint64 step_ns, GError **error);

/* The steps stored so far, in order; elements are DbStep. */
GArray *db_store_list_steps (DbStore *self, gint64 run_id, GError **error);

/* One transaction; the schedule gives the names of ops, streams and categories. */
gboolean db_store_add_trace (DbStore *self, gint64 run_id, gint64 rank, const PlanTrace *trace,
                             const PlanSchedule *schedule, GError **error);

/* state "done" or "failed" with a message. */
gboolean db_store_finish_run (DbStore *self, gint64 run_id, const char *state, const char *message,
                              gint64 predicted_step_ns, gint64 measured_step_ns, GError **error);

/* Runs, newest last; elements are DbRun, owned by the array. */
GArray *db_store_list_runs (DbStore *self, GError **error);

gboolean db_store_load_run (DbStore *self, gint64 run_id, DbRun *out_run, GError **error);

/* The trace of that origin ("sim", "cpu") and rank. */
PlanTrace *db_store_load_trace (DbStore *self, gint64 run_id, const char *origin, gint64 rank,
                                GError **error);

/* Removes a run with its steps and traces; INVALID when there is none of that id. */
gboolean db_store_delete_run (DbStore *self, gint64 run_id, GError **error);

G_END_DECLS
