/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "db/runs.h"

#include "db/plans.h"
#include "db/store-private.h"
#include "planner/base/error.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

void
db_run_clear (DbRun *self)
{
  g_free (self->uid);
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
  g_free (self->data);
  g_free (self->settings);
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

static gboolean
insert_run (DbStore *self, const DbRun *run, gint64 plan_id, GError **error)
{
  g_auto (DbQuery) add = { 0 };

  if (!db_query_prepare (
          &add, self,
          "INSERT INTO run (uid, created, program_version, backend, comm, device, host,"
          " pid, plan_id, schedule_hash, ranks, steps, seed, data, settings,"
          " params_id, state, predicted_step_ns, measured_step_ns) VALUES"
          " (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'running', ?, 0)",
          error))
    return FALSE;
  db_query_put_text (&add, run->uid);
  db_query_put_text (&add, run->created);
  db_query_put_text (&add, run->program_version);
  db_query_put_text (&add, run->backend);
  db_query_put_text (&add, run->comm);
  db_query_put_text (&add, run->device);
  db_query_put_text (&add, run->host);
  db_query_put_int (&add, run->pid);
  db_query_put_int (&add, plan_id);
  db_query_put_text (&add, run->schedule_hash);
  db_query_put_int (&add, run->ranks);
  db_query_put_int (&add, run->steps);
  db_query_put_int (&add, run->seed);
  db_query_put_text (&add, run->data);
  db_query_put_text (&add, run->settings);
  db_query_put_text (&add, run->params_id);
  db_query_put_int (&add, run->predicted_step_ns);
  return db_query_run (&add, error);
}

gboolean
db_store_begin_run (DbStore *self, DbRun *run, GError **error)
{
  g_auto (DbTransaction) transaction = { 0 };
  g_autoptr (GDateTime) now = g_date_time_new_now_utc ();
  g_autofree char *created
      = run->created ? g_strdup (run->created) : g_date_time_format (now, "%Y-%m-%dT%H:%M:%SZ");
  g_autofree char *uid = run->uid ? g_strdup (run->uid) : db_random_uid ();
  DbRun row = *run;

  row.uid = uid;
  row.created = created;
  row.pid = getpid ();
  db_store_doing (self, "store a new run");
  if (!db_transaction_begin (&transaction, self, error)
      || !db_plan_find_or_add (self,
                               &(DbPlan){ .hash = row.plan_hash,
                                          .model_text = row.model_text,
                                          .cluster_text = row.cluster_text,
                                          .plan_text = row.plan_text },
                               &row.plan_id, error)
      || !insert_run (self, &row, row.plan_id, error))
    return FALSE;
  row.id = sqlite3_last_insert_rowid (self->db);
  if (!db_transaction_commit (&transaction, error))
    return FALSE;

  run->id = row.id;
  run->plan_id = row.plan_id;
  run->pid = row.pid;
  g_free (run->uid);
  run->uid = g_steal_pointer (&uid);
  g_free (run->created);
  run->created = g_steal_pointer (&created);
  g_free (run->state);
  run->state = g_strdup ("running");
  return TRUE;
}

gboolean
db_store_add_steps (DbStore *self, gint64 run_id, const DbStep *steps, guint n_steps,
                    GError **error)
{
  g_auto (DbTransaction) transaction = { 0 };
  g_auto (DbQuery) add = { 0 };

  db_store_doing (self, "store steps of run %" G_GINT64_FORMAT, run_id);
  if (!db_transaction_begin (&transaction, self, error)
      || !db_query_prepare (
          &add, self,
          "INSERT INTO run_step (run_id, step, loss, grad_norm, step_ns, eval_loss)"
          " VALUES (?, ?, ?, ?, ?, ?)",
          error))
    return FALSE;
  for (guint i = 0; i < n_steps; i++)
    {
      db_store_doing (self, "store step %" G_GINT64_FORMAT " of run %" G_GINT64_FORMAT,
                      steps[i].step, run_id);
      db_query_put_int (&add, run_id);
      db_query_put_int (&add, steps[i].step);
      db_query_put_real (&add, steps[i].loss);
      db_query_put_real (&add, steps[i].grad_norm);
      db_query_put_int (&add, steps[i].step_ns);
      db_query_put_real (&add, steps[i].eval_loss);
      if (!db_query_run (&add, error))
        return FALSE;
    }
  return db_transaction_commit (&transaction, error);
}

GArray *
db_store_list_steps (DbStore *self, gint64 run_id, GError **error)
{
  g_auto (DbQuery) list = { 0 };
  g_autoptr (GArray) steps = g_array_new (FALSE, FALSE, sizeof (DbStep));

  db_store_doing (self, "read the steps of run %" G_GINT64_FORMAT, run_id);
  if (!db_query_prepare (&list, self,
                         "SELECT step, loss, grad_norm, step_ns, eval_loss FROM run_step"
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
      step.eval_loss = db_query_take_real (&list);
      g_array_append_val (steps, step);
    }
  return db_query_end (&list, error) ? g_steal_pointer (&steps) : NULL;
}

gboolean
db_store_finish_run (DbStore *self, gint64 run_id, const char *state, const char *message,
                     gint64 predicted_step_ns, gint64 measured_step_ns, GError **error)
{
  g_auto (DbTransaction) transaction = { 0 };
  g_auto (DbQuery) update = { 0 };

  db_store_doing (self, "finish run %" G_GINT64_FORMAT, run_id);
  if (!db_transaction_begin (&transaction, self, error)
      || !db_query_prepare (&update, self,
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
  if (sqlite3_changes (self->db) == 0)
    return no_such_run (self, run_id, error);
  return db_transaction_commit (&transaction, error);
}

/* Whether a run that is stored as running belongs to a process of this host that no longer exists,
 * so that nothing will ever end it. */
static gboolean
is_interrupted (const DbRun *run)
{
  return strcmp (run->state, "running") == 0 && run->pid > 0
         && strcmp (run->host, g_get_host_name ()) == 0 && kill ((pid_t)run->pid, 0) != 0
         && errno == ESRCH;
}

/* The columns that take_run takes. */
#define SELECT_RUN \
  "SELECT run.id, uid, created, program_version, backend, comm, device, host, pid, model_text," \
  " cluster_text, plan_text, hash, schedule_hash, ranks, steps, seed, data, settings, params_id," \
  " state, message, predicted_step_ns, measured_step_ns, plan_id FROM run JOIN plan ON plan.id = " \
  "plan_id "

static DbRun
take_run (DbQuery *query)
{
  DbRun run;

  run.id = db_query_take_int (query);
  run.uid = db_query_take_text (query);
  run.created = db_query_take_text (query);
  run.program_version = db_query_take_text (query);
  run.backend = db_query_take_text (query);
  run.comm = db_query_take_text (query);
  run.device = db_query_take_text (query);
  run.host = db_query_take_text (query);
  run.pid = db_query_take_int (query);
  run.model_text = db_query_take_text (query);
  run.cluster_text = db_query_take_text (query);
  run.plan_text = db_query_take_text (query);
  run.plan_hash = db_query_take_text (query);
  run.schedule_hash = db_query_take_text (query);
  run.ranks = db_query_take_int (query);
  run.steps = db_query_take_int (query);
  run.seed = db_query_take_int (query);
  run.data = db_query_take_text (query);
  run.settings = db_query_take_text (query);
  run.params_id = db_query_take_text (query);
  run.state = db_query_take_text (query);
  run.message = db_query_take_text (query);
  run.predicted_step_ns = db_query_take_int (query);
  run.measured_step_ns = db_query_take_int (query);
  run.plan_id = db_query_take_int (query);
  if (is_interrupted (&run))
    {
      g_free (run.state);
      run.state = g_strdup ("interrupted");
    }
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
  while (db_query_next (&load)) /* at most once, since ids are unique */
    run = take_run (&load);
  if (!db_query_end (&load, error))
    return FALSE;
  if (run.id == 0)
    return no_such_run (self, run_id, error);

  *out_run = run;
  run = (DbRun){ 0 }; /* owned by the caller now */
  return TRUE;
}
