/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "db/store-private.h"

#include "planner/error.h"

void
db_run_clear (DbRun *self)
{
  g_free (self->created);
  g_free (self->program_version);
  g_free (self->backend);
  g_free (self->comm);
  g_free (self->device);
  g_free (self->host);
  g_free (self->model_text);
  g_free (self->cluster_text);
  g_free (self->plan_text);
  g_free (self->plan_hash);
  g_free (self->schedule_hash);
  g_free (self->params_id);
  g_free (self->state);
  g_free (self->message);
  *self = (DbRun){ 0 };
}

static gboolean
no_such_run (DbStore *self, gint64 run_id, GError **error)
{
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: there is no run %" G_GINT64_FORMAT,
               self->path, run_id);
  return FALSE;
}

/* Finds the run's plan, or adds it. Many runs share one. */
static gboolean
find_or_add_plan (DbStore *self, const DbRun *run, gint64 *out_id, GError **error)
{
  g_auto (DbQuery) find = { 0 };
  g_auto (DbQuery) add = { 0 };
  gint64 id = 0;

  if (!db_query_prepare (&find, self,
                         "SELECT id FROM plan WHERE hash = ? AND model_text = ?"
                         " AND cluster_text = ? AND plan_text = ?",
                         error)
      || !db_query_prepare (&add, self,
                            "INSERT INTO plan (hash, model_text, cluster_text, plan_text)"
                            " VALUES (?, ?, ?, ?)",
                            error))
    return FALSE;

  db_query_put_text (&find, run->plan_hash);
  db_query_put_text (&find, run->model_text);
  db_query_put_text (&find, run->cluster_text);
  db_query_put_text (&find, run->plan_text);
  while (db_query_next (&find))
    id = db_query_take_int (&find);
  if (!db_query_end (&find, error))
    return FALSE;

  if (id == 0)
    {
      db_query_put_text (&add, run->plan_hash);
      db_query_put_text (&add, run->model_text);
      db_query_put_text (&add, run->cluster_text);
      db_query_put_text (&add, run->plan_text);
      if (!db_query_run (&add, error))
        return FALSE;
      id = sqlite3_last_insert_rowid (self->db);
    }
  *out_id = id;
  return TRUE;
}

static gboolean
insert_run (DbStore *self, const DbRun *run, const char *created, gint64 plan_id, GError **error)
{
  g_auto (DbQuery) add = { 0 };

  if (!db_query_prepare (&add, self,
                         "INSERT INTO run (created, program_version, backend, comm, device, host,"
                         " plan_id, schedule_hash, ranks, steps, seed, params_id, state, message,"
                         " predicted_step_ns, measured_step_ns)"
                         " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'running', ?, ?, ?)",
                         error))
    return FALSE;
  db_query_put_text (&add, created);
  db_query_put_text (&add, run->program_version);
  db_query_put_text (&add, run->backend);
  db_query_put_text (&add, run->comm);
  db_query_put_text (&add, run->device);
  db_query_put_text (&add, run->host);
  db_query_put_int (&add, plan_id);
  db_query_put_text (&add, run->schedule_hash);
  db_query_put_int (&add, run->ranks);
  db_query_put_int (&add, run->steps);
  db_query_put_int (&add, run->seed);
  db_query_put_text (&add, run->params_id);
  db_query_put_text (&add, run->message);
  db_query_put_int (&add, run->predicted_step_ns);
  db_query_put_int (&add, run->measured_step_ns);
  return db_query_run (&add, error);
}

gboolean
db_store_begin_run (DbStore *self, DbRun *run, GError **error)
{
  g_auto (DbTransaction) transaction = { 0 };
  g_autoptr (GDateTime) now = g_date_time_new_now_utc ();
  g_autofree char *created = g_date_time_format (now, "%Y-%m-%dT%H:%M:%SZ");
  gint64 plan_id, run_id;

  db_store_doing (self, "store a new run");
  if (!db_transaction_begin (&transaction, self, error)
      || !find_or_add_plan (self, run, &plan_id, error)
      || !insert_run (self, run, created, plan_id, error))
    return FALSE;
  run_id = sqlite3_last_insert_rowid (self->db);
  if (!db_transaction_commit (&transaction, error))
    return FALSE;

  run->id = run_id;
  g_free (run->created);
  run->created = g_steal_pointer (&created);
  g_free (run->state);
  run->state = g_strdup ("running");
  return TRUE;
}

gboolean
db_store_add_step (DbStore *self, gint64 run_id, gint64 step, double loss, double grad_norm,
                   gint64 step_ns, GError **error)
{
  g_auto (DbQuery) add = { 0 };

  db_store_doing (self, "store step %" G_GINT64_FORMAT " of run %" G_GINT64_FORMAT, step, run_id);
  if (!db_query_prepare (&add, self,
                         "INSERT INTO run_step (run_id, step, loss, grad_norm, step_ns)"
                         " VALUES (?, ?, ?, ?, ?)",
                         error))
    return FALSE;
  db_query_put_int (&add, run_id);
  db_query_put_int (&add, step);
  db_query_put_real (&add, loss);
  db_query_put_real (&add, grad_norm);
  db_query_put_int (&add, step_ns);
  return db_query_run (&add, error);
}

GArray *
db_store_list_steps (DbStore *self, gint64 run_id, GError **error)
{
  g_auto (DbQuery) list = { 0 };
  g_autoptr (GArray) steps = g_array_new (FALSE, FALSE, sizeof (DbStep));

  db_store_doing (self, "read the steps of run %" G_GINT64_FORMAT, run_id);
  if (!db_query_prepare (&list, self,
                         "SELECT step, loss, grad_norm, step_ns FROM run_step"
                         " WHERE run_id = ? ORDER BY step",
                         error))
    return NULL;
  db_query_put_int (&list, run_id);
  while (db_query_next (&list))
    {
      DbStep step;

      step.step = db_query_take_int (&list);
      step.loss = db_query_take_real (&list);
      step.grad_norm = db_query_take_real (&list);
      step.step_ns = db_query_take_int (&list);
      g_array_append_val (steps, step);
    }
  return db_query_end (&list, error) ? g_steal_pointer (&steps) : NULL;
}

gboolean
db_store_finish_run (DbStore *self, gint64 run_id, const char *state, const char *message,
                     gint64 predicted_step_ns, gint64 measured_step_ns, GError **error)
{
  g_auto (DbQuery) update = { 0 };

  db_store_doing (self, "finish run %" G_GINT64_FORMAT, run_id);
  if (!db_query_prepare (&update, self,
                         "UPDATE run SET state = ?, message = ?, predicted_step_ns = ?,"
                         " measured_step_ns = ? WHERE id = ?",
                         error))
    return FALSE;
  db_query_put_text (&update, state);
  db_query_put_text (&update, message);
  db_query_put_int (&update, predicted_step_ns);
  db_query_put_int (&update, measured_step_ns);
  db_query_put_int (&update, run_id);
  if (!db_query_run (&update, error))
    return FALSE;
  return sqlite3_changes (self->db) == 1 || no_such_run (self, run_id, error);
}

/* The columns take_run takes. */
#define SELECT_RUN \
  "SELECT run.id, created, program_version, backend, comm, device, host, model_text," \
  " cluster_text, plan_text, hash, schedule_hash, ranks, steps, seed, params_id, state, message," \
  " predicted_step_ns, measured_step_ns FROM run JOIN plan ON plan.id = plan_id "

static DbRun
take_run (DbQuery *query)
{
  DbRun run;

  run.id = db_query_take_int (query);
  run.created = db_query_take_text (query);
  run.program_version = db_query_take_text (query);
  run.backend = db_query_take_text (query);
  run.comm = db_query_take_text (query);
  run.device = db_query_take_text (query);
  run.host = db_query_take_text (query);
  run.model_text = db_query_take_text (query);
  run.cluster_text = db_query_take_text (query);
  run.plan_text = db_query_take_text (query);
  run.plan_hash = db_query_take_text (query);
  run.schedule_hash = db_query_take_text (query);
  run.ranks = db_query_take_int (query);
  run.steps = db_query_take_int (query);
  run.seed = db_query_take_int (query);
  run.params_id = db_query_take_text (query);
  run.state = db_query_take_text (query);
  run.message = db_query_take_text (query);
  run.predicted_step_ns = db_query_take_int (query);
  run.measured_step_ns = db_query_take_int (query);
  return run;
}

GArray *
db_store_list_runs (DbStore *self, GError **error)
{
  g_auto (DbQuery) list = { 0 };
  g_autoptr (GArray) runs = g_array_new (FALSE, FALSE, sizeof (DbRun));

  g_array_set_clear_func (runs, (GDestroyNotify)db_run_clear);
  db_store_doing (self, "list runs");
  if (!db_query_prepare (&list, self, SELECT_RUN "ORDER BY run.id", error))
    return NULL;
  while (db_query_next (&list))
    {
      DbRun run = take_run (&list);

      g_array_append_val (runs, run);
    }
  return db_query_end (&list, error) ? g_steal_pointer (&runs) : NULL;
}

gboolean
db_store_load_run (DbStore *self, gint64 run_id, DbRun *out_run, GError **error)
{
  g_auto (DbQuery) load = { 0 };
  g_auto (DbRun) run = { 0 };

  db_store_doing (self, "read run %" G_GINT64_FORMAT, run_id);
  if (!db_query_prepare (&load, self, SELECT_RUN "WHERE run.id = ?", error))
    return FALSE;
  db_query_put_int (&load, run_id);
  while (db_query_next (&load)) /* once at most: ids are unique */
    run = take_run (&load);
  if (!db_query_end (&load, error))
    return FALSE;
  if (run.id == 0)
    return no_such_run (self, run_id, error);

  *out_run = run;
  run = (DbRun){ 0 }; /* now the caller's */
  return TRUE;
}

gboolean
db_store_delete_run (DbStore *self, gint64 run_id, GError **error)
{
  g_auto (DbTransaction) transaction = { 0 };
  g_auto (DbQuery) delete = { 0 };

  db_store_doing (self, "delete run %" G_GINT64_FORMAT, run_id);
  if (!db_transaction_begin (&transaction, self, error)
      || !db_query_prepare (&delete, self, "DELETE FROM run WHERE id = ?", error))
    return FALSE;
  db_query_put_int (&delete, run_id);
  if (!db_query_run (&delete, error))
    return FALSE;
  if (sqlite3_changes (self->db) == 0)
    return no_such_run (self, run_id, error);

  /* Steps and traces go with their run; its plan goes with its last run. */
  return db_store_exec (self,
                        "DELETE FROM plan WHERE NOT EXISTS"
                        " (SELECT 1 FROM run WHERE plan_id = plan.id)",
                        error)
         && db_transaction_commit (&transaction, error);
}
