/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "db/store.h"
#include "planner/error.h"

#include <check.h>
#include <glib/gstdio.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static char *folder;
static char *store_file;

static void
setup (void)
{
  folder = g_dir_make_tmp ("fsdplan-store-XXXXXX", NULL);
  ck_assert_ptr_nonnull (folder);
  store_file = g_build_filename (folder, "store.db", NULL);
}

static void
teardown (void)
{
  g_autofree char *journal = g_strconcat (store_file, "-journal", NULL);

  g_remove (journal);
  g_remove (store_file);
  g_rmdir (folder);
  g_clear_pointer (&store_file, g_free);
  g_clear_pointer (&folder, g_free);
}

/* Fails the test on an error; `what` names the call. */
static void
must (gboolean ok, const GError *error, const char *what)
{
  ck_assert_msg (ok, "%s: %s", what, error ? error->message : "no error set");
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

/* One op, run again and again: long enough a trace to be cut short. */
static PlanSchedule *
sample_schedule (void)
{
  PlanSchedule *schedule = plan_schedule_new (0, 1);
  PlanOp op;

  plan_schedule_begin_section (schedule, PLAN_SECTION_SETUP);
  plan_schedule_begin_section (schedule, PLAN_SECTION_STEP);
  plan_op_init (&op, PLAN_OP_SYNC, PLAN_STREAM_HOST);
  plan_schedule_add (schedule, &op);
  plan_schedule_begin_section (schedule, PLAN_SECTION_TEARDOWN);
  return schedule;
}

static PlanTrace *
sample_trace (const PlanSchedule *schedule, guint n_spans)
{
  PlanTrace *trace = plan_trace_new ("cpu");
  guint node = plan_schedule_section_node (schedule, PLAN_SECTION_STEP);

  for (guint i = 0; i < n_spans; i++)
    {
      plan_trace_add_sample (trace, PLAN_CATEGORY_LOSS, i, i);
      plan_trace_add_span (trace, node, -1, i, i + 1);
    }
  return trace;
}

/* One process of concurrent_writers; it opens the store itself, as SQLite demands. */
static int
write_runs (guint n_runs)
{
  g_autoptr (DbStore) store = db_store_open (store_file, NULL);

  for (guint i = 0; store && i < n_runs; i++)
    {
      DbRun run = sample_run ();
      gboolean ok = db_store_begin_run (store, &run, NULL)
                    && db_store_add_step (store, run.id, 0, 1.0, 1.0, 1, NULL)
                    && db_store_finish_run (store, run.id, "done", NULL, 1, 1, NULL);

      g_free (run.created);
      g_free (run.state);
      if (!ok)
        return 1;
    }
  return store ? 0 : 1;
}

START_TEST (concurrent_writers_both_succeed)
{
  enum
  {
    WRITERS = 3,
    RUNS = 10
  };
  pid_t child[WRITERS];

  /* They race for creating the tables, too. */
  for (guint i = 0; i < WRITERS; i++)
    {
      child[i] = fork ();
      ck_assert_int_ge (child[i], 0);
      if (child[i] == 0)
        _exit (write_runs (RUNS));
    }
  for (guint i = 0; i < WRITERS; i++)
    {
      int status;

      ck_assert_int_eq (waitpid (child[i], &status, 0), child[i]);
      ck_assert_msg (WIFEXITED (status) && WEXITSTATUS (status) == 0, "writer %u failed", i);
    }
  ck_assert_int_eq (sql (store_file, "SELECT count (*) FROM run WHERE state = 'done'"),
                    WRITERS * RUNS);
  ck_assert_int_eq (sql (store_file, "SELECT count (*) FROM run_step"), WRITERS * RUNS);
}
END_TEST

/* A file system that kills the process in the middle of its nth write or before its nth sync. */
static guint calls_left;
static int (*real_write) (sqlite3_file *, const void *, int, sqlite3_int64);
static int (*real_sync) (sqlite3_file *, int);
static int (*real_open) (sqlite3_vfs *, sqlite3_filename, sqlite3_file *, int, int *);

static int
deadly_write (sqlite3_file *file, const void *bytes, int n_bytes, sqlite3_int64 at)
{
  if (--calls_left == 0)
    {
      real_write (file, bytes, n_bytes / 2, at);
      kill (getpid (), SIGKILL);
    }
  return real_write (file, bytes, n_bytes, at);
}

static int
deadly_sync (sqlite3_file *file, int flags)
{
  if (--calls_left == 0)
    kill (getpid (), SIGKILL);
  return real_sync (file, flags);
}

static int
deadly_open (sqlite3_vfs *vfs, sqlite3_filename name, sqlite3_file *file, int flags, int *out_flags)
{
  int code = real_open (vfs, name, file, flags, out_flags);

  if (code == SQLITE_OK)
    {
      /* Never freed: the process will not live that long. */
      sqlite3_io_methods *methods = g_memdup2 (file->pMethods, sizeof *methods);

      real_write = methods->xWrite;
      real_sync = methods->xSync;
      methods->xWrite = deadly_write;
      methods->xSync = deadly_sync;
      file->pMethods = methods;
    }
  return code;
}

static void
die_at_call (guint n)
{
  static sqlite3_vfs vfs;

  vfs = *sqlite3_vfs_find (NULL);
  vfs.zName = "deadly";
  real_open = vfs.xOpen;
  vfs.xOpen = deadly_open;
  calls_left = n;
  sqlite3_vfs_register (&vfs, 1);
}

enum
{
  KILLED_TRACE_SPANS = 50
};

/* Writes for ever; says after each commit which run is safe. */
static void
write_until_killed (int report)
{
  g_autoptr (PlanSchedule) schedule = sample_schedule ();
  g_autoptr (PlanTrace) trace = sample_trace (schedule, KILLED_TRACE_SPANS);
  g_autoptr (DbStore) store = db_store_open (store_file, NULL);

  while (store)
    {
      DbRun run = sample_run ();

      if (!db_store_begin_run (store, &run, NULL)
          || write (report, &run.id, sizeof run.id) != sizeof run.id
          || !db_store_add_trace (store, run.id, 0, trace, schedule, NULL)
          /* Odd runs go again, so that all kinds of commits are cut short. */
          || (run.id % 2 && !db_store_delete_run (store, run.id, NULL)))
        return;
      g_free (run.created);
      g_free (run.state);
    }
}

/* Runs a writer that is killed at that call; returns the last even run it said was safe, or 0. */
static gint64
write_and_die (guint call)
{
  int report[2], status;
  pid_t child;
  gint64 id, safe = 0;

  ck_assert_int_eq (pipe (report), 0);
  child = fork ();
  ck_assert_int_ge (child, 0);
  if (child == 0)
    {
      close (report[0]);
      die_at_call (call);
      write_until_killed (report[1]);
      _exit (1);
    }
  close (report[1]);
  while (read (report[0], &id, sizeof id) == sizeof id)
    if (id % 2 == 0)
      safe = id;
  close (report[0]);
  ck_assert_int_eq (waitpid (child, &status, 0), child);
  ck_assert_msg (WIFSIGNALED (status) && WTERMSIG (status) == SIGKILL, "it was not killed");
  return safe;
}

START_TEST (killed_writer_leaves_a_whole_store)
{
  /* The first ones die while they make the tables. */
  for (guint call = 1; call <= 120; call++)
    {
      gint64 safe = write_and_die (call);
      g_autoptr (GError) error = NULL;
      g_autoptr (DbStore) store = db_store_open_readonly (store_file, &error);
      g_auto (DbRun) run = { 0 };

      if (!store) /* died before there was one; the next writer begins anew */
        {
          ck_assert (g_error_matches (error, PLAN_ERROR, PLAN_ERROR_IO));
          ck_assert_int_eq (safe, 0);
          continue;
        }
      if (safe)
        must (db_store_load_run (store, safe, &run, &error), error, "load_run");

      ck_assert_int_eq (sql (store_file, "SELECT integrity_check = 'ok' FROM"
                                         " pragma_integrity_check"),
                        1);
      ck_assert_int_eq (sql (store_file, "SELECT count (*) FROM pragma_foreign_key_check"), 0);
      /* A trace is there whole, or not at all. */
      ck_assert_int_eq (sql (store_file, "SELECT count (*) FROM trace WHERE"
                                         " (SELECT count (*) FROM trace_op"
                                         " WHERE trace_id = trace.id) <> 50"
                                         " OR (SELECT count (*) FROM trace_memory"
                                         " WHERE trace_id = trace.id) <> 9"
                                         " OR (SELECT count (*) FROM trace_sample"
                                         " WHERE trace_id = trace.id) <> 50"),
                        0);
    }
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("store-crash");
  TCase *tcase = tcase_create ("store-crash");
  SRunner *runner = srunner_create (suite);
  int n_failed;

  tcase_add_checked_fixture (tcase, setup, teardown);
  tcase_set_timeout (tcase, 0); /* folders in the network are slow at syncing */
  tcase_add_test (tcase, concurrent_writers_both_succeed);
  tcase_add_test (tcase, killed_writer_leaves_a_whole_store);
  suite_add_tcase (suite, tcase);
  srunner_run_all (runner, CK_ENV);
  n_failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
