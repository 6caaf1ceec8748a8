/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/unit/test-store-samples.h"

#include <check.h>
#include <glib/gstdio.h>
#include <sqlite3.h>
#include <string.h>

char *folder;
char *store_file;

void
store_remove_tree (const char *path)
{
  g_autoptr (GDir) dir = g_dir_open (path, 0, NULL);
  const char *name;

  while (dir && (name = g_dir_read_name (dir)))
    {
      g_autofree char *child = g_build_filename (path, name, NULL);

      store_remove_tree (child);
    }
  g_remove (path);
}

void
store_setup (void)
{
  folder = g_dir_make_tmp ("fsdplan-store-XXXXXX", NULL);
  ck_assert_ptr_nonnull (folder);
  store_file = g_build_filename (folder, "store.db", NULL);
}

void
store_teardown (void)
{
  store_remove_tree (folder);
  g_clear_pointer (&store_file, g_free);
  g_clear_pointer (&folder, g_free);
}

/* Fails the test on an error; `what` names the call. */
void
must (gboolean ok, GError *const *error, const char *what)
{
  ck_assert_msg (ok, "%s: %s", what, *error ? (*error)->message : "no error set");
}

void
ck_assert_refused (const GError *error, PlanErrorCode code, const char *part)
{
  ck_assert_ptr_nonnull (error);
  ck_assert_msg (g_error_matches (error, PLAN_ERROR, (gint)code), "code %d: %s", error->code,
                 error->message);
  ck_assert_msg (strstr (error->message, part) != NULL, "'%s' lacks '%s'", error->message, part);
}

DbStore *
store_open (void)
{
  g_autoptr (GError) error = NULL;
  DbStore *store = db_store_open (store_file, &error);

  must (store != NULL, &error, "open");
  return store;
}

GBytes *
file_bytes (const char *path)
{
  char *contents = NULL;
  gsize length;

  ck_assert (g_file_get_contents (path, &contents, &length, NULL));
  return g_bytes_new_take (contents, length);
}

/* Runs SQL on the file directly; returns the first column of the last row. */
gint64
sql (const char *path, const char *text)
{
  sqlite3 *db = NULL;
  sqlite3_stmt *stmt = NULL;
  const char *rest = text;
  gint64 value = 0;

  ck_assert_int_eq (sqlite3_open (path, &db), SQLITE_OK);
  sqlite3_busy_timeout (db, 10000);
  while (*rest)
    {
      ck_assert_msg (sqlite3_prepare_v2 (db, rest, -1, &stmt, &rest) == SQLITE_OK, "%s: %s", text,
                     sqlite3_errmsg (db));
      while (sqlite3_step (stmt) == SQLITE_ROW)
        value = sqlite3_column_int64 (stmt, 0);
      ck_assert_msg (sqlite3_finalize (stmt) == SQLITE_OK, "%s: %s", text, sqlite3_errmsg (db));
    }
  sqlite3_close (db);
  return value;
}

/* A run as the command line would make it; its texts belong to the program. */
DbRun
sample_run (void)
{
  return (DbRun){
    .program_version = (char *)"0.1-3-gabc",
    .backend = (char *)"cpu",
    .comm = (char *)"threads",
    .device = (char *)"2 x \"quoted\" 'CPU' \xc2\xb5",
    .host = (char *)"node-1",
    .model_text = (char *)"name=tiny\nlayers=2\n",
    .cluster_text = (char *)"nodes=1\n",
    .plan_text = (char *)"",
    .plan_hash = (char *)"0123456789abcdef",
    .schedule_hash = (char *)"fedcba9876543210",
    .ranks = 4,
    .steps = 10,
    .seed = G_MININT64,
    .data = (char *)"synthetic",
    .settings = (char *)"lr=0.001\n",
    .params_id = (char *)"default-1",
    .predicted_step_ns = G_MAXINT64,
  };
}

gint64
store_begin_run (DbStore *store)
{
  g_autoptr (GError) error = NULL;
  DbRun run = sample_run ();
  gint64 id;

  must (db_store_begin_run (store, &run, &error), &error, "begin_run");
  id = run.id;
  g_free (run.uid);
  g_free (run.created);
  g_free (run.state);
  return id;
}

void
ck_assert_run_eq (const DbRun *a, const DbRun *b)
{
  ck_assert_int_eq (a->id, b->id);
  ck_assert_pstr_eq (a->uid, b->uid);
  ck_assert_pstr_eq (a->created, b->created);
  ck_assert_pstr_eq (a->program_version, b->program_version);
  ck_assert_pstr_eq (a->backend, b->backend);
  ck_assert_pstr_eq (a->comm, b->comm);
  ck_assert_pstr_eq (a->device, b->device);
  ck_assert_pstr_eq (a->host, b->host);
  ck_assert_int_eq (a->pid, b->pid);
  ck_assert_pstr_eq (a->model_text, b->model_text);
  ck_assert_pstr_eq (a->cluster_text, b->cluster_text);
  ck_assert_pstr_eq (a->plan_text, b->plan_text);
  ck_assert_pstr_eq (a->plan_hash, b->plan_hash);
  ck_assert_pstr_eq (a->schedule_hash, b->schedule_hash);
  ck_assert_int_eq (a->ranks, b->ranks);
  ck_assert_int_eq (a->steps, b->steps);
  ck_assert_int_eq (a->seed, b->seed);
  ck_assert_pstr_eq (a->data, b->data);
  ck_assert_pstr_eq (a->settings, b->settings);
  ck_assert_pstr_eq (a->params_id, b->params_id);
  ck_assert_pstr_eq (a->state, b->state);
  ck_assert_pstr_eq (a->message, b->message);
  ck_assert_int_eq (a->predicted_step_ns, b->predicted_step_ns);
  ck_assert_int_eq (a->measured_step_ns, b->measured_step_ns);
}

/* Five ops on all four streams: a trace only needs their names. */
PlanSchedule *
sample_schedule (void)
{
  static const struct
  {
    PlanOpKind kind;
    PlanStream stream;
  } ops[] = {
    { PLAN_OP_LOAD, PLAN_STREAM_HOST },    { PLAN_OP_ALL_GATHER, PLAN_STREAM_GATHER },
    { PLAN_OP_ZERO, PLAN_STREAM_COMPUTE }, { PLAN_OP_REDUCE_SCATTER, PLAN_STREAM_REDUCE },
    { PLAN_OP_SYNC, PLAN_STREAM_HOST },
  };
  PlanSchedule *schedule = plan_schedule_new (0, 2);

  plan_schedule_add_buffer (schedule, "weights", 2, 64, PLAN_DTYPE_FP32, PLAN_CATEGORY_WEIGHTS);
  plan_schedule_begin_section (schedule, PLAN_SECTION_SETUP);
  plan_schedule_begin_section (schedule, PLAN_SECTION_STEP);
  for (guint i = 0; i < G_N_ELEMENTS (ops); i++)
    {
      PlanOp op;

      plan_op_init (&op, ops[i].kind, ops[i].stream);
      for (guint ref = 0; ref < plan_op_n_refs (op.kind); ref++)
        op.refs[ref] = (PlanRef){ .array = 0, .offset = (gint32)ref, .loop = -1 };
      plan_schedule_add (schedule, &op);
    }
  plan_schedule_begin_section (schedule, PLAN_SECTION_TEARDOWN);
  return schedule;
}

/* A trace in which all fields differ, with numbers from both ends of their range. */
PlanTrace *
sample_trace (const PlanSchedule *schedule, const char *origin, guint n_spans)
{
  PlanTrace *trace = plan_trace_new (origin);
  guint first = plan_schedule_section_node (schedule, PLAN_SECTION_STEP);

  for (guint i = 0; i < n_spans; i++)
    {
      plan_trace_add_sample (trace, (PlanCategory)(i % PLAN_N_CATEGORIES), 10 * i, 4096 * i);
      plan_trace_add_span (trace, first + i % 5, (gint32)(i % 7) - 1, 10 * i, 10 * i + 7);
    }
  plan_trace_add_sample (trace, PLAN_CATEGORY_LOSS, G_MAXINT64, G_MAXINT64);
  plan_trace_add_span (trace, first, G_MAXINT32, G_MAXINT64 - 1, G_MAXINT64);
  trace->step_ns = 1001;
  trace->compute_ns = 500;
  trace->exposed_gather_ns = 300;
  trace->exposed_reduce_ns = 120;
  trace->exposed_tensor_ns = 30;
  trace->exposed_copy_ns = 10;
  trace->host_ns = 40;
  trace->idle_ns = 1;
  trace->memory = (PlanMemory){ .allocated = 11,
                                .max_allocated = G_MAXINT64,
                                .reserved = 13,
                                .device = 14,
                                .peak_node = G_MAXUINT32,
                                .peak_unit = -1 };
  for (guint64 i = 0; i < PLAN_N_CATEGORIES; i++)
    {
      trace->memory.by_category[i] = 100 + i;
      trace->memory.resting[i] = 200 + i;
    }
  return trace;
}

/* Compares traces; their records have no padding, so memory can be compared. */
void
ck_assert_trace_eq (const PlanTrace *a, const PlanTrace *b)
{
  ck_assert_str_eq (a->origin, b->origin);
  ck_assert_int_eq (a->step_ns, b->step_ns);
  ck_assert_int_eq (a->compute_ns, b->compute_ns);
  ck_assert_int_eq (a->exposed_gather_ns, b->exposed_gather_ns);
  ck_assert_int_eq (a->exposed_reduce_ns, b->exposed_reduce_ns);
  ck_assert_int_eq (a->exposed_tensor_ns, b->exposed_tensor_ns);
  ck_assert_int_eq (a->exposed_copy_ns, b->exposed_copy_ns);
  ck_assert_int_eq (a->host_ns, b->host_ns);
  ck_assert_int_eq (a->idle_ns, b->idle_ns);
  ck_assert_mem_eq (&a->memory, &b->memory, sizeof a->memory);
  ck_assert_uint_eq (a->spans->len, b->spans->len);
  ck_assert_mem_eq (a->spans->data, b->spans->data, a->spans->len * sizeof (PlanSpan));
  ck_assert_uint_eq (a->samples->len, b->samples->len);
  ck_assert_mem_eq (a->samples->data, b->samples->data,
                    a->samples->len * sizeof (PlanMemorySample));
}

void
store_add_step (DbStore *store, gint64 run_id, gint64 step)
{
  const DbStep done = { .step = step, .loss = 0.5, .grad_norm = 2, .step_ns = 7 };
  g_autoptr (GError) error = NULL;

  must (db_store_add_steps (store, run_id, &done, 1, &error), &error, "add_steps");
}
