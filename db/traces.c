/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "db/traces.h"

#include "db/store-private.h"
#include "planner/base/error.h"

static gboolean
add_header (DbStore *self, gint64 run_id, gint64 rank, const PlanTrace *trace, GError **error)
{
  g_auto (DbQuery) add = { 0 };

  if (!db_query_prepare (&add, self,
                         "INSERT INTO trace (run_id, origin, rank, step_ns, compute_ns,"
                         " exposed_gather_ns, exposed_reduce_ns, host_ns, idle_ns,"
                         " allocated_bytes, max_allocated_bytes, reserved_bytes, device_bytes,"
                         " peak_node, peak_unit, exposed_tensor_ns, exposed_copy_ns)"
                         " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                         error))
    return FALSE;
  db_query_put_int (&add, run_id);
  db_query_put_text (&add, trace->origin);
  db_query_put_int (&add, rank);
  db_query_put_int (&add, trace->step_ns);
  db_query_put_int (&add, trace->compute_ns);
  db_query_put_int (&add, trace->exposed_gather_ns);
  db_query_put_int (&add, trace->exposed_reduce_ns);
  db_query_put_int (&add, trace->host_ns);
  db_query_put_int (&add, trace->idle_ns);
  db_query_put_int (&add, (gint64)trace->memory.allocated);
  db_query_put_int (&add, (gint64)trace->memory.max_allocated);
  db_query_put_int (&add, (gint64)trace->memory.reserved);
  db_query_put_int (&add, (gint64)trace->memory.device);
  db_query_put_int (&add, trace->memory.peak_node);
  db_query_put_int (&add, trace->memory.peak_unit);
  db_query_put_int (&add, trace->exposed_tensor_ns);
  db_query_put_int (&add, trace->exposed_copy_ns);
  return db_query_run (&add, error);
}

/* The op of a span; NULL if the schedule does not have it. */
static const PlanOp *
span_op (const PlanSchedule *schedule, const PlanSpan *span)
{
  const PlanOp *op = span->node < plan_schedule_n_nodes (schedule)
                         ? plan_schedule_node (schedule, span->node)
                         : NULL;

  return op && op->kind < PLAN_N_OPS ? op : NULL;
}

static gboolean
add_spans (DbStore *self, gint64 trace_id, const PlanTrace *trace, const PlanSchedule *schedule,
           GError **error)
{
  g_auto (DbQuery) add = { 0 };

  if (!db_query_prepare (&add, self,
                         "INSERT INTO trace_op (trace_id, position, node, unit, op, stream,"
                         " start_ns, end_ns) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                         error))
    return FALSE;
  for (guint i = 0; i < trace->spans->len; i++)
    {
      const PlanSpan *span = &g_array_index (trace->spans, PlanSpan, i);
      const PlanOp *op = span_op (schedule, span);

      if (!op)
        {
          g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                       "%s: cannot %s: span %u is of node %u, which is no op of the schedule",
                       self->path, self->doing, i, span->node);
          return FALSE;
        }
      db_query_put_int (&add, trace_id);
      db_query_put_int (&add, i);
      db_query_put_int (&add, span->node);
      db_query_put_int (&add, span->unit);
      db_query_put_text (&add, plan_op_name (op->kind));
      db_query_put_text (&add, plan_stream_name (op->stream));
      db_query_put_int (&add, span->start_ns);
      db_query_put_int (&add, span->end_ns);
      if (!db_query_run (&add, error))
        return FALSE;
    }
  return TRUE;
}

static gboolean
add_memory (DbStore *self, gint64 trace_id, const PlanMemory *memory, GError **error)
{
  g_auto (DbQuery) add = { 0 };

  if (!db_query_prepare (&add, self,
                         "INSERT INTO trace_memory (trace_id, category, peak_bytes,"
                         " resting_bytes) VALUES (?, ?, ?, ?)",
                         error))
    return FALSE;
  for (int category = 0; category < PLAN_N_CATEGORIES; category++)
    {
      db_query_put_int (&add, trace_id);
      db_query_put_text (&add, plan_category_name (category));
      db_query_put_int (&add, (gint64)memory->by_category[category]);
      db_query_put_int (&add, (gint64)memory->resting[category]);
      if (!db_query_run (&add, error))
        return FALSE;
    }
  return TRUE;
}

static gboolean
add_samples (DbStore *self, gint64 trace_id, const PlanTrace *trace, GError **error)
{
  g_auto (DbQuery) add = { 0 };

  if (!db_query_prepare (&add, self,
                         "INSERT INTO trace_sample (trace_id, position, span, category, at_ns,"
                         " live_bytes) VALUES (?, ?, ?, ?, ?, ?)",
                         error))
    return FALSE;
  for (guint i = 0; i < trace->samples->len; i++)
    {
      const PlanMemorySample *sample = &g_array_index (trace->samples, PlanMemorySample, i);

      db_query_put_int (&add, trace_id);
      db_query_put_int (&add, i);
      db_query_put_int (&add, sample->span);
      db_query_put_text (&add, plan_category_name (sample->category));
      db_query_put_int (&add, sample->at_ns);
      db_query_put_int (&add, sample->live_bytes);
      if (!db_query_run (&add, error))
        return FALSE;
    }
  return TRUE;
}

gboolean
db_store_add_trace (DbStore *self, gint64 run_id, gint64 rank, const PlanTrace *trace,
                    const PlanSchedule *schedule, GError **error)
{
  g_auto (DbTransaction) transaction = { 0 };
  gint64 trace_id;

  db_store_doing (self, "store the %s trace of rank %" G_GINT64_FORMAT " of run %" G_GINT64_FORMAT,
                  trace->origin, rank, run_id);
  if (!db_transaction_begin (&transaction, self, error)
      || !add_header (self, run_id, rank, trace, error))
    return FALSE;
  trace_id = sqlite3_last_insert_rowid (self->db);
  return add_spans (self, trace_id, trace, schedule, error)
         && add_memory (self, trace_id, &trace->memory, error)
         && add_samples (self, trace_id, trace, error)
         && db_transaction_commit (&transaction, error);
}

/* Values were checked when they were written, so an unknown one means a damaged file. */
static gboolean
take_category (DbQuery *query, PlanCategory *out_category, GError **error)
{
  g_autofree char *name = db_query_take_text (query);

  for (int category = 0; category < PLAN_N_CATEGORIES; category++)
    if (g_strcmp0 (name, plan_category_name (category)) == 0)
      {
        *out_category = category;
        return TRUE;
      }
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_CORRUPT, "%s: cannot %s: unknown memory category '%s'",
               query->store->path, query->store->doing, name ? name : "");
  return FALSE;
}

static gboolean
load_header (DbStore *self, gint64 run_id, gint64 rank, PlanTrace *trace, gint64 *out_id,
             GError **error)
{
  g_auto (DbQuery) load = { 0 };
  gint64 id = 0;

  if (!db_query_prepare (&load, self,
                         "SELECT id, step_ns, compute_ns, exposed_gather_ns, exposed_reduce_ns,"
                         " host_ns, idle_ns, allocated_bytes, max_allocated_bytes,"
                         " reserved_bytes, device_bytes, peak_node, peak_unit,"
                         " exposed_tensor_ns, exposed_copy_ns FROM trace"
                         " WHERE run_id = ? AND origin = ? AND rank = ?",
                         error))
    return FALSE;
  db_query_put_int (&load, run_id);
  db_query_put_text (&load, trace->origin);
  db_query_put_int (&load, rank);
  while (db_query_next (&load))
    {
      id = db_query_take_int (&load);
      trace->step_ns = db_query_take_int (&load);
      trace->compute_ns = db_query_take_int (&load);
      trace->exposed_gather_ns = db_query_take_int (&load);
      trace->exposed_reduce_ns = db_query_take_int (&load);
      trace->host_ns = db_query_take_int (&load);
      trace->idle_ns = db_query_take_int (&load);
      trace->memory.allocated = (guint64)db_query_take_int (&load);
      trace->memory.max_allocated = (guint64)db_query_take_int (&load);
      trace->memory.reserved = (guint64)db_query_take_int (&load);
      trace->memory.device = (guint64)db_query_take_int (&load);
      trace->memory.peak_node = (guint32)db_query_take_int (&load);
      trace->memory.peak_unit = (gint32)db_query_take_int (&load);
      trace->exposed_tensor_ns = db_query_take_int (&load);
      trace->exposed_copy_ns = db_query_take_int (&load);
    }
  if (!db_query_end (&load, error))
    return FALSE;
  if (id == 0)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "%s: run %" G_GINT64_FORMAT " has no %s trace of rank %" G_GINT64_FORMAT,
                   self->path, run_id, trace->origin, rank);
      return FALSE;
    }
  *out_id = id;
  return TRUE;
}

static gboolean
load_spans (DbStore *self, gint64 trace_id, PlanTrace *trace, GError **error)
{
  g_auto (DbQuery) load = { 0 };

  if (!db_query_prepare (&load, self,
                         "SELECT node, unit, start_ns, end_ns FROM trace_op WHERE trace_id = ?"
                         " ORDER BY position",
                         error))
    return FALSE;
  db_query_put_int (&load, trace_id);
  while (db_query_next (&load))
    {
      guint32 node = (guint32)db_query_take_int (&load);
      gint32 unit = (gint32)db_query_take_int (&load);
      gint64 start_ns = db_query_take_int (&load);
      gint64 end_ns = db_query_take_int (&load);

      plan_trace_add_span (trace, node, unit, start_ns, end_ns);
    }
  return db_query_end (&load, error);
}

static gboolean
load_memory (DbStore *self, gint64 trace_id, PlanMemory *memory, GError **error)
{
  g_auto (DbQuery) load = { 0 };

  if (!db_query_prepare (&load, self,
                         "SELECT category, peak_bytes, resting_bytes FROM trace_memory"
                         " WHERE trace_id = ?",
                         error))
    return FALSE;
  db_query_put_int (&load, trace_id);
  while (db_query_next (&load))
    {
      PlanCategory category;

      if (!take_category (&load, &category, error))
        return FALSE;
      memory->by_category[category] = (guint64)db_query_take_int (&load);
      memory->resting[category] = (guint64)db_query_take_int (&load);
    }
  return db_query_end (&load, error);
}

static gboolean
load_samples (DbStore *self, gint64 trace_id, PlanTrace *trace, GError **error)
{
  g_auto (DbQuery) load = { 0 };

  if (!db_query_prepare (&load, self,
                         "SELECT span, category, at_ns, live_bytes FROM trace_sample"
                         " WHERE trace_id = ? ORDER BY position",
                         error))
    return FALSE;
  db_query_put_int (&load, trace_id);
  while (db_query_next (&load))
    {
      PlanMemorySample sample = { .span = (guint32)db_query_take_int (&load) };
      PlanCategory category;

      if (!take_category (&load, &category, error))
        return FALSE;
      sample.category = category;
      sample.at_ns = db_query_take_int (&load);
      sample.live_bytes = db_query_take_int (&load);
      g_array_append_val (trace->samples, sample);
    }
  return db_query_end (&load, error);
}

static gboolean
load_parts (DbStore *self, gint64 run_id, gint64 rank, PlanTrace *trace, GError **error)
{
  gint64 trace_id;

  return load_header (self, run_id, rank, trace, &trace_id, error)
         && load_spans (self, trace_id, trace, error)
         && load_memory (self, trace_id, &trace->memory, error)
         && load_samples (self, trace_id, trace, error);
}

PlanTrace *
db_store_load_trace (DbStore *self, gint64 run_id, const char *origin, gint64 rank, GError **error)
{
  g_autoptr (PlanTrace) trace = plan_trace_new (origin);
  gboolean ok;

  db_store_doing (self, "read the %s trace of rank %" G_GINT64_FORMAT " of run %" G_GINT64_FORMAT,
                  origin, rank, run_id);

  /* in one transaction, so that the parts belong together although another process may delete the
   * run */
  if (!db_store_exec (self, "BEGIN", error))
    return NULL;
  ok = load_parts (self, run_id, rank, trace, error);
  sqlite3_exec (self->db, "ROLLBACK", NULL, NULL, NULL);
  return ok ? g_steal_pointer (&trace) : NULL;
}
