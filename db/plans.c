/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "db/plans.h"

#include "db/store-private.h"
#include "planner/base/error.h"

void
db_plan_clear (DbPlan *self)
{
  g_free (self->hash);
  g_free (self->model_text);
  g_free (self->cluster_text);
  g_free (self->plan_text);
  *self = (DbPlan){ 0 };
}

void
db_answer_clear (DbAnswer *self)
{
  db_plan_clear (&self->plan);
}

static void
put_plan (DbQuery *query, const DbPlan *plan)
{
  db_query_put_text (query, plan->hash);
  db_query_put_text (query, plan->model_text);
  db_query_put_text (query, plan->cluster_text);
  db_query_put_text (query, plan->plan_text);
}

gboolean
db_plan_find_or_add (DbStore *self, const DbPlan *plan, gint64 *out_id, GError **error)
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
  put_plan (&find, plan);
  while (db_query_next (&find))
    id = db_query_take_int (&find);
  if (!db_query_end (&find, error))
    return FALSE;
  if (id == 0)
    {
      put_plan (&add, plan);
      if (!db_query_run (&add, error))
        return FALSE;
      id = sqlite3_last_insert_rowid (self->db);
    }
  *out_id = id;
  return TRUE;
}

gboolean
db_store_load_plan (DbStore *self, gint64 id, DbPlan *out_plan, GError **error)
{
  g_auto (DbQuery) load = { 0 };
  g_auto (DbPlan) plan = { 0 };

  db_store_doing (self, "read plan %" G_GINT64_FORMAT, id);
  if (!db_query_prepare (&load, self,
                         "SELECT hash, model_text, cluster_text, plan_text FROM plan WHERE id = ?",
                         error))
    return FALSE;
  db_query_put_int (&load, id);
  while (db_query_next (&load)) /* at most once, since ids are unique */
    {
      plan.hash = db_query_take_text (&load);
      plan.model_text = db_query_take_text (&load);
      plan.cluster_text = db_query_take_text (&load);
      plan.plan_text = db_query_take_text (&load);
    }
  if (!db_query_end (&load, error))
    return FALSE;
  if (!plan.hash)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: there is no plan @%" G_GINT64_FORMAT,
                   self->path, id);
      return FALSE;
    }
  *out_plan = plan;
  plan = (DbPlan){ 0 };
  return TRUE;
}

static void
clear_stored (gpointer data)
{
  db_plan_clear (&((DbStoredPlan *)data)->plan);
}

GArray *
db_store_list_plans (DbStore *self, GError **error)
{
  g_auto (DbQuery) list = { 0 };
  g_autoptr (GArray) plans = g_array_new (FALSE, FALSE, sizeof (DbStoredPlan));

  g_array_set_clear_func (plans, clear_stored);
  db_store_doing (self, "list plans");
  if (!db_query_prepare (
          &list, self,
          "SELECT plan.id, hash, model_text, cluster_text, plan_text,"
          " (SELECT count (*) FROM run WHERE plan_id = plan.id),"
          " (SELECT count (DISTINCT query_id) FROM answer WHERE plan_id = plan.id),"
          " ifnull (step_ns, 0), ifnull (device_bytes, 0) FROM plan LEFT JOIN answer"
          " ON plan_id = plan.id AND query_id ="
          "   (SELECT max (query_id) FROM answer WHERE plan_id = plan.id) AND place ="
          "   (SELECT min (place) FROM answer AS same WHERE same.plan_id = plan.id"
          "    AND same.query_id = answer.query_id) ORDER BY plan.id",
          error))
    return NULL;
  while (db_query_next (&list))
    {
      DbStoredPlan plan;

      plan.id = db_query_take_int (&list);
      plan.plan.hash = db_query_take_text (&list);
      plan.plan.model_text = db_query_take_text (&list);
      plan.plan.cluster_text = db_query_take_text (&list);
      plan.plan.plan_text = db_query_take_text (&list);
      plan.runs = db_query_take_int (&list);
      plan.queries = db_query_take_int (&list);
      plan.step_ns = db_query_take_int (&list);
      plan.device_bytes = db_query_take_int (&list);
      g_array_append_val (plans, plan);
    }
  return db_query_end (&list, error) ? g_steal_pointer (&plans) : NULL;
}

gboolean
db_store_find_run_plan (DbStore *self, gint64 run_id, gint64 *out_id, GError **error)
{
  g_auto (DbQuery) find = { 0 };
  gint64 id = 0;

  db_store_doing (self, "read run %" G_GINT64_FORMAT, run_id);
  if (!db_query_prepare (&find, self, "SELECT plan_id FROM run WHERE id = ?", error))
    return FALSE;
  db_query_put_int (&find, run_id);
  while (db_query_next (&find))
    id = db_query_take_int (&find);
  if (!db_query_end (&find, error))
    return FALSE;
  if (id == 0)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: there is no run %" G_GINT64_FORMAT,
                   self->path, run_id);
      return FALSE;
    }
  *out_id = id;
  return TRUE;
}

/* Whether the newest row of that question has the same answers. */
static gboolean
is_stored (DbStore *self, const char *program_version, const char *question, const char *params_id,
           const DbAnswer *answers, guint n_answers, gboolean *out_is_stored, GError **error)
{
  g_auto (DbQuery) find = { 0 };
  gboolean is_same = TRUE;
  guint n = 0;

  if (!db_query_prepare (&find, self,
                         "SELECT plan_id, step_ns, device_bytes FROM answer WHERE query_id ="
                         " (SELECT max (id) FROM query WHERE question = ? AND program_version = ?"
                         " AND params_id = ?) ORDER BY place",
                         error))
    return FALSE;
  db_query_put_text (&find, question);
  db_query_put_text (&find, program_version);
  db_query_put_text (&find, params_id);
  for (; db_query_next (&find); n++)
    {
      const gint64 plan_id = db_query_take_int (&find);
      const gint64 step_ns = db_query_take_int (&find);
      const gint64 device_bytes = db_query_take_int (&find);

      is_same = is_same && n < n_answers && answers[n].plan_id == plan_id
                && answers[n].step_ns == step_ns && (gint64)answers[n].device_bytes == device_bytes;
    }
  *out_is_stored = is_same && n == n_answers && n > 0;
  return db_query_end (&find, error);
}

static gboolean
insert_query (DbStore *self, const char *program_version, const char *question,
              const char *params_id, const DbAnswer *answers, guint n_answers, GError **error)
{
  g_auto (DbQuery) add = { 0 };
  g_auto (DbQuery) answer = { 0 };
  g_autoptr (GDateTime) now = g_date_time_new_now_utc ();
  g_autofree char *created = g_date_time_format (now, "%Y-%m-%dT%H:%M:%SZ");
  g_autofree char *uid = db_random_uid ();
  gint64 id;

  if (!db_query_prepare (&add, self,
                         "INSERT INTO query (uid, created, program_version, question, params_id)"
                         " VALUES (?, ?, ?, ?, ?)",
                         error)
      || !db_query_prepare (&answer, self,
                            "INSERT INTO answer (query_id, place, plan_id, step_ns, device_bytes)"
                            " VALUES (?, ?, ?, ?, ?)",
                            error))
    return FALSE;
  db_query_put_text (&add, uid);
  db_query_put_text (&add, created);
  db_query_put_text (&add, program_version);
  db_query_put_text (&add, question);
  db_query_put_text (&add, params_id);
  if (!db_query_run (&add, error))
    return FALSE;
  id = sqlite3_last_insert_rowid (self->db);
  for (guint i = 0; i < n_answers; i++)
    {
      db_query_put_int (&answer, id);
      db_query_put_int (&answer, i + 1);
      db_query_put_int (&answer, answers[i].plan_id);
      db_query_put_int (&answer, answers[i].step_ns);
      db_query_put_int (&answer, (gint64)answers[i].device_bytes);
      if (!db_query_run (&answer, error))
        return FALSE;
    }
  return TRUE;
}

gboolean
db_store_add_query (DbStore *self, const char *program_version, const char *question,
                    const char *params_id, DbAnswer *answers, guint n_answers, GError **error)
{
  g_auto (DbTransaction) transaction = { 0 };
  gboolean is_there = FALSE;

  db_store_doing (self, "store a query");
  if (!db_transaction_begin (&transaction, self, error))
    return FALSE;
  for (guint i = 0; i < n_answers; i++)
    if (!db_plan_find_or_add (self, &answers[i].plan, &answers[i].plan_id, error))
      return FALSE;
  return is_stored (self, program_version, question, params_id, answers, n_answers, &is_there,
                    error)
         && (is_there
             || insert_query (self, program_version, question, params_id, answers, n_answers,
                              error))
         && db_transaction_commit (&transaction, error);
}
