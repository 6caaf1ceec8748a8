/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "db/store.h"
#include "planner/error.h"

#include <check.h>
#include <glib/gstdio.h>
#include <math.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Everything is written below `base`; each test has a folder of its own in it. */
static char *base;
static char *folder;
static char *store_file;

static void
setup (void)
{
  folder = g_build_filename (base, "test-XXXXXX", NULL);
  ck_assert_ptr_nonnull (g_mkdtemp (folder));
  store_file = g_build_filename (folder, "store.db", NULL);
}

static void
teardown (void)
{
  g_clear_pointer (&store_file, g_free);
  g_clear_pointer (&folder, g_free);
}

static void
remove_tree (const char *path)
{
  g_autoptr (GDir) dir = g_dir_open (path, 0, NULL);
  const char *name;

  while (dir && (name = g_dir_read_name (dir)))
    {
      g_autofree char *child = g_build_filename (path, name, NULL);

      remove_tree (child);
    }
  g_remove (path);
}

/* Fails the test on an error; `what` names the call. */
static void
must (gboolean ok, const GError *error, const char *what)
{
  ck_assert_msg (ok, "%s: %s", what, error ? error->message : "no error set");
}

static void
ck_assert_refused (const GError *error, PlanErrorCode code, const char *part)
{
  ck_assert_ptr_nonnull (error);
  ck_assert_msg (g_error_matches (error, PLAN_ERROR, (gint)code), "code %d: %s", error->code,
                 error->message);
  ck_assert_msg (strstr (error->message, part) != NULL, "'%s' lacks '%s'", error->message, part);
}

static DbStore *
open_store (void)
{
  g_autoptr (GError) error = NULL;
  DbStore *store = db_store_open (store_file, &error);

  must (store != NULL, error, "open");
  return store;
}

/* SQL behind the store's back; returns the first column of the last row. */
static gint64
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

static GBytes *
file_bytes (const char *path)
{
  char *contents = NULL;
  gsize length;

  ck_assert (g_file_get_contents (path, &contents, &length, NULL));
  return g_bytes_new_take (contents, length);
}

/* A run as the command line would make it: its texts on loan from the program. */
static DbRun
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
    .params_id = (char *)"default-1",
    .predicted_step_ns = G_MAXINT64,
  };
}

static gint64
begin_run (DbStore *store)
{
  g_autoptr (GError) error = NULL;
  DbRun run = sample_run ();
  gint64 id;

  must (db_store_begin_run (store, &run, &error), error, "begin_run");
  id = run.id;
  g_free (run.created);
  g_free (run.state);
  return id;
}

static void
ck_assert_run_eq (const DbRun *a, const DbRun *b)
{
  ck_assert_int_eq (a->id, b->id);
  ck_assert_pstr_eq (a->created, b->created);
  ck_assert_pstr_eq (a->program_version, b->program_version);
  ck_assert_pstr_eq (a->backend, b->backend);
  ck_assert_pstr_eq (a->comm, b->comm);
  ck_assert_pstr_eq (a->device, b->device);
  ck_assert_pstr_eq (a->host, b->host);
  ck_assert_pstr_eq (a->model_text, b->model_text);
  ck_assert_pstr_eq (a->cluster_text, b->cluster_text);
  ck_assert_pstr_eq (a->plan_text, b->plan_text);
  ck_assert_pstr_eq (a->plan_hash, b->plan_hash);
  ck_assert_pstr_eq (a->schedule_hash, b->schedule_hash);
  ck_assert_int_eq (a->ranks, b->ranks);
  ck_assert_int_eq (a->steps, b->steps);
  ck_assert_int_eq (a->seed, b->seed);
  ck_assert_pstr_eq (a->params_id, b->params_id);
  ck_assert_pstr_eq (a->state, b->state);
  ck_assert_pstr_eq (a->message, b->message);
  ck_assert_int_eq (a->predicted_step_ns, b->predicted_step_ns);
  ck_assert_int_eq (a->measured_step_ns, b->measured_step_ns);
}

/* Five ops on all four streams; a trace only needs their names. */
static PlanSchedule *
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

/* Every field differs from every other; numbers from both ends of their range. */
static PlanTrace *
sample_trace (const PlanSchedule *schedule, guint n_spans)
{
  PlanTrace *trace = plan_trace_new ("cpu");
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
  trace->exposed_reduce_ns = 150;
  trace->host_ns = 50;
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

/* The records have no padding, so memory tells. */
static void
ck_assert_trace_eq (const PlanTrace *a, const PlanTrace *b)
{
  ck_assert_str_eq (a->origin, b->origin);
  ck_assert_int_eq (a->step_ns, b->step_ns);
  ck_assert_int_eq (a->compute_ns, b->compute_ns);
  ck_assert_int_eq (a->exposed_gather_ns, b->exposed_gather_ns);
  ck_assert_int_eq (a->exposed_reduce_ns, b->exposed_reduce_ns);
  ck_assert_int_eq (a->host_ns, b->host_ns);
  ck_assert_int_eq (a->idle_ns, b->idle_ns);
  ck_assert_mem_eq (&a->memory, &b->memory, sizeof a->memory);
  ck_assert_uint_eq (a->spans->len, b->spans->len);
  ck_assert_mem_eq (a->spans->data, b->spans->data, a->spans->len * sizeof (PlanSpan));
  ck_assert_uint_eq (a->samples->len, b->samples->len);
  ck_assert_mem_eq (a->samples->data, b->samples->data,
                    a->samples->len * sizeof (PlanMemorySample));
}

START_TEST (run_comes_back_as_stored)
{
  g_autoptr (DbStore) store = open_store ();
  g_autoptr (GError) error = NULL;
  g_auto (DbRun) loaded = { 0 };
  DbRun run = sample_run ();

  must (db_store_begin_run (store, &run, &error), error, "begin_run");
  ck_assert_int_gt (run.id, 0);
  ck_assert_str_eq (run.state, "running");
  ck_assert_msg (
      g_regex_match_simple ("^\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\dZ$", run.created, 0, 0),
      "created: %s", run.created);
  must (db_store_load_run (store, run.id, &loaded, &error), error, "load_run");
  ck_assert_run_eq (&run, &loaded);

  must (db_store_finish_run (store, run.id, "failed", "rank 2: out of memory", 5, 6, &error), error,
        "finish_run");
  g_free (run.state);
  run.state = (char *)"failed";
  run.message = (char *)"rank 2: out of memory";
  run.predicted_step_ns = 5;
  run.measured_step_ns = 6;
  db_run_clear (&loaded);
  must (db_store_load_run (store, run.id, &loaded, &error), error, "load_run");
  ck_assert_run_eq (&run, &loaded);
  g_free (run.created);
}
END_TEST

START_TEST (runs_are_listed_newest_last)
{
  g_autoptr (DbStore) store = open_store ();
  g_autoptr (GError) error = NULL;
  g_autoptr (GArray) none = db_store_list_runs (store, &error);
  g_autoptr (GArray) runs = NULL;
  gint64 id[3];

  must (none && none->len == 0, error, "list_runs");
  for (guint i = 0; i < 3; i++)
    id[i] = begin_run (store);
  runs = db_store_list_runs (store, &error);
  must (runs && runs->len == 3, error, "list_runs");
  for (guint i = 0; i < 3; i++)
    {
      g_auto (DbRun) alone = { 0 };

      ck_assert_int_eq (g_array_index (runs, DbRun, i).id, id[i]);
      must (db_store_load_run (store, id[i], &alone, &error), error, "load_run");
      ck_assert_run_eq (&g_array_index (runs, DbRun, i), &alone);
    }
  /* All three are of one plan, which is kept once. */
  ck_assert_int_eq (sql (store_file, "SELECT count (*) FROM plan"), 1);
}
END_TEST

START_TEST (steps_come_back_as_stored)
{
  static const DbStep steps[] = {
    { .step = 0, .loss = 0.1 + 0.2, .grad_norm = 5e-324, .step_ns = 1 },
    { .step = 1, .loss = INFINITY, .grad_norm = 1.7976931348623157e308, .step_ns = G_MAXINT64 },
    { .step = 2, .loss = NAN, .grad_norm = -0.0, .step_ns = 0 },
  };
  g_autoptr (DbStore) store = open_store ();
  g_autoptr (GError) error = NULL;
  g_autoptr (GArray) loaded = NULL;
  gint64 id = begin_run (store);

  for (guint i = 0; i < G_N_ELEMENTS (steps); i++)
    must (db_store_add_step (store, id, steps[i].step, steps[i].loss, steps[i].grad_norm,
                             steps[i].step_ns, &error),
          error, "add_step");
  loaded = db_store_list_steps (store, id, &error);
  must (loaded && loaded->len == G_N_ELEMENTS (steps), error, "list_steps");
  for (guint i = 0; i < G_N_ELEMENTS (steps); i++)
    {
      const DbStep *step = &g_array_index (loaded, DbStep, i);

      ck_assert_int_eq (step->step, steps[i].step);
      ck_assert_int_eq (step->step_ns, steps[i].step_ns);
      ck_assert (step->loss == steps[i].loss || (isnan (step->loss) && isnan (steps[i].loss)));
      ck_assert (step->grad_norm == steps[i].grad_norm);
    }

  ck_assert (!db_store_add_step (store, id, 1, 0, 0, 0, &error));
  ck_assert_refused (error, PLAN_ERROR_INVALID, "cannot store step 1 of run 1");
  g_clear_error (&error);
  ck_assert (!db_store_add_step (store, 99, 1, 0, 0, 0, &error));
  ck_assert_refused (error, PLAN_ERROR_INVALID, store_file);
}
END_TEST

START_TEST (trace_comes_back_as_stored)
{
  g_autoptr (DbStore) store = open_store ();
  g_autoptr (PlanSchedule) schedule = sample_schedule ();
  g_autoptr (PlanTrace) trace = sample_trace (schedule, (guint)_i);
  g_autoptr (PlanTrace) loaded = NULL;
  g_autoptr (GError) error = NULL;
  gint64 id = begin_run (store);

  must (db_store_add_trace (store, id, 3, trace, schedule, &error), error, "add_trace");
  loaded = db_store_load_trace (store, id, "cpu", 3, &error);
  must (loaded != NULL, error, "load_trace");
  ck_assert_trace_eq (trace, loaded);
  ck_assert_int_eq (sql (store_file, "SELECT op = 'load' AND stream = 'host' FROM trace_op"
                                     " ORDER BY position DESC LIMIT 1"),
                    1);

  ck_assert_ptr_null (db_store_load_trace (store, id, "sim", 3, &error));
  ck_assert_refused (error, PLAN_ERROR_INVALID, "run 1 has no sim trace of rank 3");
  g_clear_error (&error);
  ck_assert (!db_store_add_trace (store, id, 3, trace, schedule, &error));
  ck_assert_refused (error, PLAN_ERROR_INVALID, "cannot store the cpu trace of rank 3 of run 1");
}
END_TEST

START_TEST (trace_of_another_schedule_leaves_no_mark)
{
  g_autoptr (DbStore) store = open_store ();
  g_autoptr (PlanSchedule) schedule = sample_schedule ();
  g_autoptr (PlanTrace) trace = sample_trace (schedule, 10);
  g_autoptr (GError) error = NULL;
  gint64 id = begin_run (store);

  plan_trace_add_span (trace, 1000, -1, 0, 1);
  ck_assert (!db_store_add_trace (store, id, 0, trace, schedule, &error));
  ck_assert_refused (error, PLAN_ERROR_INVALID, "node 1000");
  ck_assert_int_eq (sql (store_file, "SELECT count (*) FROM trace"), 0);
  ck_assert_int_eq (sql (store_file, "SELECT count (*) FROM trace_op"), 0);
  /* The store goes on working. */
  begin_run (store);
}
END_TEST

START_TEST (deleting_takes_all_of_a_run_and_no_more)
{
  g_autoptr (DbStore) store = open_store ();
  g_autoptr (PlanSchedule) schedule = sample_schedule ();
  g_autoptr (PlanTrace) trace = sample_trace (schedule, 10);
  g_autoptr (PlanTrace) kept = NULL;
  g_autoptr (GError) error = NULL;
  gint64 id[2];

  for (guint i = 0; i < 2; i++)
    {
      id[i] = begin_run (store);
      must (db_store_add_step (store, id[i], 0, 1, 1, 1, &error), error, "add_step");
      must (db_store_add_trace (store, id[i], 0, trace, schedule, &error), error, "add_trace");
    }
  must (db_store_delete_run (store, id[0], &error), error, "delete_run");
  kept = db_store_load_trace (store, id[1], "cpu", 0, &error);
  must (kept != NULL, error, "load_trace");
  ck_assert_trace_eq (trace, kept);

  must (db_store_delete_run (store, id[1], &error), error, "delete_run");
  ck_assert_int_eq (sql (store_file, "SELECT (SELECT count (*) FROM plan)"
                                     " + (SELECT count (*) FROM run)"
                                     " + (SELECT count (*) FROM run_step)"
                                     " + (SELECT count (*) FROM trace)"
                                     " + (SELECT count (*) FROM trace_op)"
                                     " + (SELECT count (*) FROM trace_memory)"
                                     " + (SELECT count (*) FROM trace_sample)"),
                    0);
  /* An id that was seen once never means another run. */
  ck_assert_int_gt (begin_run (store), id[1]);
}
END_TEST

START_TEST (missing_run_is_named)
{
  g_autoptr (DbStore) store = open_store ();
  g_autoptr (GError) error = NULL;
  g_auto (DbRun) run = { 0 };

  ck_assert (!db_store_delete_run (store, 7, &error));
  ck_assert_refused (error, PLAN_ERROR_INVALID, "there is no run 7");
  g_clear_error (&error);
  ck_assert (!db_store_load_run (store, 7, &run, &error));
  ck_assert_refused (error, PLAN_ERROR_INVALID, "there is no run 7");
  g_clear_error (&error);
  ck_assert (!db_store_finish_run (store, 7, "done", NULL, 0, 0, &error));
  ck_assert_refused (error, PLAN_ERROR_INVALID, "there is no run 7");
}
END_TEST

START_TEST (rules_of_the_schema_hold)
{
  g_autoptr (DbStore) store = open_store ();
  g_autoptr (GError) error = NULL;
  DbRun run = sample_run ();
  gint64 id = begin_run (store);

  run.host = NULL;
  ck_assert (!db_store_begin_run (store, &run, &error));
  ck_assert_refused (error, PLAN_ERROR_INVALID, "run.host");
  ck_assert_int_eq (run.id, 0);
  ck_assert_ptr_null (run.created);
  g_clear_error (&error);
  ck_assert (!db_store_finish_run (store, id, "sleeping", NULL, 0, 0, &error));
  ck_assert_refused (error, PLAN_ERROR_INVALID, "cannot finish run 1");
}
END_TEST

START_TEST (opening_again_changes_nothing)
{
  g_autoptr (GBytes) before = NULL;
  g_autoptr (GBytes) after = NULL;
  g_autoptr (DbStore) memory = db_store_open (":memory:", NULL);

  db_store_close (open_store ());
  before = file_bytes (store_file);
  db_store_close (open_store ());
  after = file_bytes (store_file);
  ck_assert (g_bytes_equal (before, after));

  /* Neither does a store in memory, which is as good as any. */
  ck_assert_int_eq (begin_run (memory), 1);
  ck_assert (!g_file_test (":memory:", G_FILE_TEST_EXISTS));
}
END_TEST

/* Both ways of opening refuse the file, and leave every byte of it. */
static void
ck_assert_refused_and_untouched (PlanErrorCode code, const char *part)
{
  g_autoptr (GBytes) before = file_bytes (store_file);
  g_autoptr (GBytes) after = NULL;
  g_autoptr (GError) error = NULL;

  ck_assert_ptr_null (db_store_open (store_file, &error));
  ck_assert_refused (error, code, part);
  ck_assert_refused (error, code, store_file);
  g_clear_error (&error);
  ck_assert_ptr_null (db_store_open_readonly (store_file, &error));
  ck_assert_refused (error, code, part);
  after = file_bytes (store_file);
  ck_assert (g_bytes_equal (before, after));
}

static const struct
{
  const char *sql; /* done to a fresh store */
  PlanErrorCode code;
  const char *part;
} refused[] = {
  { "PRAGMA user_version = 99", PLAN_ERROR_UNSUPPORTED, "version 99, this program knows up to 1" },
  { "PRAGMA user_version = -3", PLAN_ERROR_CORRUPT, "its version is -3" },
  { "PRAGMA application_id = 0", PLAN_ERROR_INVALID, "database of another program" },
  { "PRAGMA application_id = 5", PLAN_ERROR_INVALID, "database of another program" },
};

START_TEST (newer_and_foreign_databases_are_refused)
{
  db_store_close (open_store ());
  sql (store_file, refused[_i].sql);
  ck_assert_refused_and_untouched (refused[_i].code, refused[_i].part);
}
END_TEST

/* The other program crashed, or holds the file open: its last writes are in its log only. */
START_TEST (foreign_log_is_left_alone)
{
  g_autofree char *log = g_strconcat (store_file, "-wal", NULL);
  g_autoptr (GBytes) before = NULL;
  g_autoptr (GBytes) after = NULL;
  sqlite3 *db = NULL;

  sql (store_file, "PRAGMA journal_mode = WAL; CREATE TABLE mine (x)");
  ck_assert_int_eq (sqlite3_open (store_file, &db), SQLITE_OK);
  sqlite3_db_config (db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
  ck_assert_int_eq (sqlite3_exec (db, "INSERT INTO mine VALUES (1)", NULL, NULL, NULL), SQLITE_OK);
  sqlite3_close (db);

  before = file_bytes (log);
  ck_assert_refused_and_untouched (PLAN_ERROR_INVALID, "database of another program");
  after = file_bytes (log);
  ck_assert (g_bytes_equal (before, after));
}
END_TEST

START_TEST (other_files_are_refused)
{
  ck_assert (g_file_set_contents (store_file, "my diary", -1, NULL));
  ck_assert_refused_and_untouched (PLAN_ERROR_INVALID, "file is not a database");
}
END_TEST

START_TEST (reading_only)
{
  g_autoptr (DbStore) store = NULL;
  g_autoptr (GError) error = NULL;
  DbRun run = sample_run ();
  gint64 id;

  ck_assert_ptr_null (db_store_open_readonly (store_file, &error));
  ck_assert_refused (error, PLAN_ERROR_IO, store_file);
  ck_assert (!g_file_test (store_file, G_FILE_TEST_EXISTS));
  g_clear_error (&error);
  ck_assert (g_file_set_contents (store_file, "", 0, NULL));
  ck_assert_ptr_null (db_store_open_readonly (store_file, &error));
  ck_assert_refused (error, PLAN_ERROR_IO, "nothing was stored yet");
  g_clear_error (&error);

  store = open_store ();
  id = begin_run (store);
  g_clear_pointer (&store, db_store_close);

  store = db_store_open_readonly (store_file, &error);
  must (store != NULL, error, "open_readonly");
  ck_assert (!db_store_begin_run (store, &run, &error));
  ck_assert_refused (error, PLAN_ERROR_IO, "cannot store a new run");
  g_clear_error (&error);
  g_auto (DbRun) loaded = { 0 };
  must (db_store_load_run (store, id, &loaded, &error), error, "load_run");
}
END_TEST

START_TEST (damaged_trace_is_found)
{
  g_autoptr (DbStore) store = open_store ();
  g_autoptr (PlanSchedule) schedule = sample_schedule ();
  g_autoptr (PlanTrace) trace = sample_trace (schedule, 10);
  g_autoptr (GError) error = NULL;
  gint64 id = begin_run (store);

  must (db_store_add_trace (store, id, 0, trace, schedule, &error), error, "add_trace");
  sql (store_file, "UPDATE trace_sample SET category = 'lost' WHERE position = 3");
  ck_assert_ptr_null (db_store_load_trace (store, id, "cpu", 0, &error));
  ck_assert_refused (error, PLAN_ERROR_CORRUPT, "unknown memory category 'lost'");
  g_clear_error (&error);
  sql (store_file, "UPDATE trace_memory SET category = 'gone' WHERE category = 'loss'");
  ck_assert_ptr_null (db_store_load_trace (store, id, "cpu", 0, &error));
  ck_assert_refused (error, PLAN_ERROR_CORRUPT, "unknown memory category 'gone'");
}
END_TEST

/* main () points XDG_DATA_HOME at `base`/home, where first there is a file in the way. */
START_TEST (home_of_the_user)
{
  g_autofree char *home = g_build_filename (base, "home", NULL);
  g_autofree char *inside = g_build_filename (home, "fsdplan", NULL);
  g_autofree char *file = g_build_filename (inside, "fsdplan.db", NULL);
  g_autoptr (DbStore) store = NULL;
  g_autoptr (GError) error = NULL;
  struct stat info;

  ck_assert (g_file_set_contents (home, "", 0, NULL));
  ck_assert_ptr_null (db_store_open (NULL, &error));
  ck_assert_refused (error, PLAN_ERROR_IO, inside);
  g_clear_error (&error);
  ck_assert_ptr_null (db_store_open_readonly (NULL, &error));
  ck_assert_refused (error, PLAN_ERROR_IO, file);
  g_clear_error (&error);
  g_remove (home);

  ck_assert_ptr_null (db_store_open_readonly (NULL, &error));
  ck_assert_refused (error, PLAN_ERROR_IO, file);
  g_clear_error (&error);
  store = db_store_open (NULL, &error);
  must (store != NULL, error, "open");
  begin_run (store);
  ck_assert_int_eq (stat (inside, &info), 0);
  ck_assert_int_eq (info.st_mode & 0777, 0700);
  ck_assert (g_file_test (file, G_FILE_TEST_IS_REGULAR));
}
END_TEST

START_TEST (missing_folder_is_named)
{
  g_autofree char *file = g_build_filename (folder, "none", "store.db", NULL);
  g_autoptr (GError) error = NULL;

  ck_assert_ptr_null (db_store_open (file, &error));
  ck_assert_refused (error, PLAN_ERROR_IO, file);
  g_clear_error (&error);
  ck_assert_ptr_null (db_store_open (folder, &error));
  ck_assert_refused (error, PLAN_ERROR_IO, folder);
}
END_TEST

static Suite *
store_suite (void)
{
  Suite *suite = suite_create ("store");
  TCase *tcase = tcase_create ("store");

  tcase_add_checked_fixture (tcase, setup, teardown);
  tcase_add_test (tcase, run_comes_back_as_stored);
  tcase_add_test (tcase, runs_are_listed_newest_last);
  tcase_add_test (tcase, steps_come_back_as_stored);
  tcase_add_loop_test (tcase, trace_comes_back_as_stored, 0, 3);
  tcase_add_test (tcase, trace_of_another_schedule_leaves_no_mark);
  tcase_add_test (tcase, deleting_takes_all_of_a_run_and_no_more);
  tcase_add_test (tcase, missing_run_is_named);
  tcase_add_test (tcase, rules_of_the_schema_hold);
  tcase_add_test (tcase, opening_again_changes_nothing);
  tcase_add_loop_test (tcase, newer_and_foreign_databases_are_refused, 0, G_N_ELEMENTS (refused));
  tcase_add_test (tcase, foreign_log_is_left_alone);
  tcase_add_test (tcase, other_files_are_refused);
  tcase_add_test (tcase, reading_only);
  tcase_add_test (tcase, damaged_trace_is_found);
  tcase_add_test (tcase, home_of_the_user);
  tcase_add_test (tcase, missing_folder_is_named);
  suite_add_tcase (suite, tcase);
  return suite;
}

int
main (void)
{
  SRunner *runner = srunner_create (store_suite ());
  g_autofree char *home = NULL;
  int n_failed;

  base = g_dir_make_tmp ("fsdplan-store-XXXXXX", NULL);
  if (!base)
    return EXIT_FAILURE;
  /* GLib looks once: before the first test does. */
  home = g_build_filename (base, "home", NULL);
  g_setenv ("XDG_DATA_HOME", home, TRUE);

  srunner_run_all (runner, CK_ENV);
  n_failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  remove_tree (base);
  g_free (base);
  return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
