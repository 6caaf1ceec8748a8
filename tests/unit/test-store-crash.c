/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that die, fail or are second while the store is written: nothing is lost or torn. */
#include "config.h"

#include "db/tables.h"
#include "db/transfer.h"
#include "tests/share.h"
#include "tests/unit/test-store-samples.h"
#include "tests/unit/test-store-vfs.h"

#include <check.h>
#include <glib/gstdio.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The acts of a store's life; each is one transaction. */
enum
{
  OPEN, /* makes the tables, or updates them to the newest version */
  BEGIN_RUN,
  ADD_STEPS,
  ADD_SIMULATED,
  ADD_MEASURED,
  FINISH_RUN,
  IMPORT,
  DELETE_RUN,
  BEGIN_SECOND_RUN,
  IMPORT_DUMP,
  N_ACTS
};

static char *v1_dump; /* IMPORT_DUMP imports it, too */

static const char imported[]
    = "{\"clusters\": [{\"name\": \"mine\", \"text\": \"nodes=1\", \"source\": \"me\","
      " \"created\": \"2026-01-01T00:00:00Z\"}],"
      "\"measurements\": [{\"created\": \"2026-01-01T00:00:00Z\", \"source\": \"s\","
      " \"row_id\": \"r\", \"row_group\": \"g\", \"use\": \"fit\", \"quality\": \"A\","
      " \"stack\": \"native\", \"model_text\": \"m\", \"gpu\": \"h100\", \"gpus\": 8,"
      " \"plan_text\": \"p\", \"step_ms\": 1.5, \"time_ok\": \"yes\", \"memory_ok\": \"no\","
      " \"notes\": \"\"}],"
      "\"params\": [{\"id\": \"mine\", \"created\": \"2026-01-01T00:00:00Z\","
      " \"program_version\": \"1\", \"text\": \"x=1\", \"validation\": \"one group left out\","
      " \"error_pct\": 3.5}],"
      "\"fitted\": [{\"params\": \"mine\", \"source\": \"s\", \"row_id\": \"r\"}]}";

typedef struct
{
  DbStore *store;
  PlanSchedule *schedule;
  PlanTrace *simulated, *measured;
  gint64 first_run;
} Life;

static void
life_begin (Life *self)
{
  *self = (Life){ .schedule = sample_schedule () };
  self->simulated = sample_trace (self->schedule, "sim", 10);
  self->measured = sample_trace (self->schedule, "cpu", 200);
}

static void
life_end (Life *self)
{
  g_clear_pointer (&self->store, db_store_close);
  plan_trace_free (self->simulated);
  plan_trace_free (self->measured);
  plan_schedule_free (self->schedule);
}

static gboolean
begin_run (Life *self, gint64 *out_id, GError **error)
{
  DbRun run = sample_run ();

  if (!db_store_begin_run (self->store, &run, error))
    return FALSE;
  *out_id = run.id;
  g_free (run.uid);
  g_free (run.created);
  g_free (run.state);
  return TRUE;
}

static gboolean
act (Life *self, guint what, GError **error)
{
  static const DbStep steps[] = { { .step = 1, .loss = 0.5 }, { .step = 2 }, { .step = 3 } };
  g_autofree char *first = g_strdup_printf ("%" G_GINT64_FORMAT, self->first_run);
  const char *const keys[] = { first };
  const DbSource json = { .text = imported, .origin = "json" };
  const DbSource dump = { .text = v1_dump, .origin = "dump" };
  DbImport import;
  gint64 id;

  switch (what)
    {
    case OPEN:
      return (self->store = db_store_open (store_file, error)) != NULL;
    case BEGIN_RUN:
      return begin_run (self, &self->first_run, error);
    case ADD_STEPS:
      return db_store_add_steps (self->store, self->first_run, steps, G_N_ELEMENTS (steps), error);
    case ADD_SIMULATED:
      return db_store_add_trace (self->store, self->first_run, 0, self->simulated, self->schedule,
                                 error);
    case ADD_MEASURED:
      return db_store_add_trace (self->store, self->first_run, 0, self->measured, self->schedule,
                                 error);
    case FINISH_RUN:
      return db_store_finish_run (self->store, self->first_run, "done", NULL, 5, 6, error);
    case IMPORT:
      return db_store_import (self->store, &json, 1, FALSE, &import, error);
    case DELETE_RUN:
      return db_store_delete (self->store, DB_KIND_RUNS, keys, 1, error);
    case BEGIN_SECOND_RUN:
      return begin_run (self, &id, error);
    default:
      return db_store_import (self->store, &dump, 1, FALSE, &import, error);
    }
}

/* The state in which a store's life begins. */
enum
{
  FROM_NOTHING,
  FROM_VERSION_1,
  FROM_A_STORE,
  N_STARTS
};

static GBytes *
make_start (guint start)
{
  g_autoptr (DbStore) store = NULL;

  g_remove (store_file);
  if (start == FROM_NOTHING)
    return g_bytes_new (NULL, 0);
  if (start == FROM_VERSION_1)
    sql (store_file, v1_dump);
  else
    {
      store = store_open ();
      for (guint i = 0; i < 3; i++)
        store_add_step (store, store_begin_run (store), 1);
      g_clear_pointer (&store, db_store_close);
    }
  return file_bytes (store_file);
}

/* Appends a line of the dump, without what differs from life to life. */
static void
append (const char *text, gpointer user_data)
{
  g_string_append (user_data, text);
}

static char *
state_of (DbStore *store)
{
  g_autoptr (GString) dump = g_string_new (NULL);
  g_autoptr (GError) error = NULL;
  g_autoptr (GRegex) varying = g_regex_new ("[0-9a-f]{32}"
                                            "|2[0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z"
                                            "|(?<='node-1', )[0-9]+",
                                            0, 0, NULL);
  char *state;

  must (db_store_dump (store, append, dump, &error), &error, "dump");
  state = g_regex_replace_literal (varying, dump->str, -1, 0, "~", 0, NULL);
  ck_assert_ptr_nonnull (state);
  return state;
}

static void
restore (GBytes *start)
{
  g_autofree char *journal = g_strconcat (store_file, "-journal", NULL);
  FILE *file;

  g_remove (journal);
  g_remove (store_file);
  if (g_bytes_get_size (start) == 0)
    return;
  file = g_fopen (store_file, "wb"); /* not by GLib, which would wait for the disk */
  ck_assert_ptr_nonnull (file);
  ck_assert_uint_eq (fwrite (g_bytes_get_data (start, NULL), 1, g_bytes_get_size (start), file),
                     g_bytes_get_size (start));
  ck_assert_int_eq (fclose (file), 0);
}

/* Returns the states of the store: states[i] is that after i acts. Nobody looks at the store before
 * it is opened. */
static char **
live_through (GBytes *start)
{
  char **states = g_new0 (char *, N_ACTS + 2);
  g_autoptr (GError) error = NULL;
  Life life;

  restore (start);
  life_begin (&life);
  for (guint i = 0; i < N_ACTS; i++)
    {
      must (act (&life, i, &error), &error, "act");
      states[i + 1] = state_of (life.store);
    }
  states[0] = g_strdup (states[1]);
  life_end (&life);
  return states;
}

/* Checks that the act that was interrupted has either happened as a whole, or not at all.
 * FSDPLAN_DEBUG_CHECK looks for faults. */
static void
ck_assert_whole (char *const *states, guint n_done, guint start, guint call)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (DbStore) store = db_store_open (store_file, &error);
  g_autofree char *state = NULL;

  ck_assert_msg (store != NULL, "start %u, call %u: %s", start, call, error ? error->message : "");
  state = state_of (store);
  ck_assert_msg (strcmp (state, states[n_done]) == 0
                     || (n_done < N_ACTS && strcmp (state, states[n_done + 1]) == 0),
                 "start %u, call %u: after %u acts the store holds\n%s\ninstead of\n%s", start,
                 call, n_done, state, states[n_done]);
}

/* Runs the acts until the call at which the process is killed; reports each act that is done. */
G_GNUC_NORETURN static void
live_and_die (guint call, int how, int report)
{
  Life life;

  g_unsetenv ("FSDPLAN_DEBUG_CHECK"); /* the process that opens the store next checks */
  life_begin (&life);
  vfs_fail_at (call, how);
  for (guint i = 0; i < N_ACTS; i++)
    if (!act (&life, i, NULL) || write (report, "", 1) != 1)
      _exit (2);
  _exit (0);
}

/* Runs a life that is killed at a call; FALSE: it ended before that call. */
static gboolean
kill_at (guint call, int how, guint *out_done)
{
  int report[2], status;
  char said[N_ACTS];
  ssize_t n;
  pid_t child;

  *out_done = 0;
  ck_assert_int_eq (pipe (report), 0);
  child = fork ();
  ck_assert_int_ge (child, 0);
  if (child == 0)
    live_and_die (call, how, report[1]);
  close (report[1]);
  while ((n = read (report[0], said, sizeof said)) > 0)
    *out_done += (guint)n;
  close (report[0]);
  ck_assert_int_eq (waitpid (child, &status, 0), child);
  if (WIFEXITED (status) && WEXITSTATUS (status) == 0)
    return FALSE;
  ck_assert_msg (WIFSIGNALED (status) && WTERMSIG (status) == SIGKILL, "call %u: it failed", call);
  return TRUE;
}

START_TEST (a_thousand_kills)
{
  static const int ways[] = { VFS_KILL, VFS_KILL_TORN };
  const guint stride = test_share_of_runs (); /* a fork takes long where sanitizers shadow it */
  guint n_kills = 0;

  for (guint start = 0; start < N_STARTS; start++)
    {
      g_autoptr (GBytes) bytes = make_start (start);
      g_auto (GStrv) states = live_through (bytes);

      /* Every other call is torn in its middle; the next life tears the others. */
      for (guint call = 1, n_done;; call += stride, n_kills += stride)
        {
          restore (bytes);
          if (!kill_at (call, ways[(call + start) % 2], &n_done))
            break;
          ck_assert_whole (states, n_done, start, call);
        }
    }
  ck_assert_uint_ge (n_kills, 1000);
}
END_TEST

static const struct
{
  int code;
  const char *said;
  guint stride;
} failures[] = {
  { SQLITE_FULL, "database or disk is full", 1 },
  { SQLITE_IOERR_WRITE, "disk I/O error", 7 },
  { SQLITE_IOERR_FSYNC, "disk I/O error", 7 },
};

/* A failing call must be noticed, unless nothing depended on it. */
START_TEST (failing_disk_leaves_a_whole_store)
{
  g_autoptr (GBytes) bytes = make_start (FROM_A_STORE);
  g_auto (GStrv) states = live_through (bytes);
  gboolean was_told = FALSE;

  for (guint call = 1;; call += MAX (failures[_i].stride, test_share_of_runs ()))
    {
      g_autoptr (GError) error = NULL;
      guint n_done = 0;
      Life life;

      restore (bytes);
      life_begin (&life);
      vfs_fail_at (call, failures[_i].code);
      while (n_done < N_ACTS && act (&life, n_done, &error))
        n_done++;
      life_end (&life);
      if (!vfs_has_failed ())
        {
          vfs_fail_at (0, SQLITE_OK);
          break;
        }
      if (error)
        {
          ck_assert_refused (error, PLAN_ERROR_IO, store_file);
          was_told |= strstr (error->message, failures[_i].said) != NULL;
        }
      else
        ck_assert_uint_eq (n_done, N_ACTS);
      ck_assert_whole (states, n_done, FROM_A_STORE, call);
    }
  ck_assert (was_told);
}
END_TEST

static const struct
{
  int code;
  PlanErrorCode error;
  const char *said;
} locks[] = {
  { SQLITE_IOERR_LOCK, PLAN_ERROR_IO, "its file system cannot lock files" },
  { SQLITE_IOERR_RDLOCK, PLAN_ERROR_IO, "its file system cannot lock files" },
  { SQLITE_PROTOCOL, PLAN_ERROR_BACKEND, "its file system cannot lock files" },
  { SQLITE_BUSY, PLAN_ERROR_BACKEND, "another program keeps it locked" },
};

START_TEST (failing_locks_are_named)
{
  g_autoptr (DbStore) store = store_open ();
  g_autoptr (GError) error = NULL;
  DbRun run = sample_run ();

  vfs_fail_locks (locks[_i].code);
  ck_assert (!db_store_begin_run (store, &run, &error));
  ck_assert_refused (error, locks[_i].error, locks[_i].said);
  g_clear_error (&error);
  ck_assert_ptr_null (db_store_open (store_file, &error));
  ck_assert_refused (error, locks[_i].error, store_file);
  vfs_fail_locks (SQLITE_OK);
  store_begin_run (store);
}
END_TEST

/* One process of concurrent_writers; it opens the store itself, as SQLite demands. */
static int
write_runs (guint n_runs)
{
  g_autoptr (DbStore) store = db_store_open (store_file, NULL);
  const DbStep step = { .step = 1 };

  for (guint i = 0; store && i < n_runs; i++)
    {
      DbRun run = sample_run ();

      if (!db_store_begin_run (store, &run, NULL)
          || !db_store_add_steps (store, run.id, &step, 1, NULL)
          || !db_store_finish_run (store, run.id, "done", NULL, 1, 1, NULL))
        return 1;
      g_free (run.uid);
      g_free (run.created);
      g_free (run.state);
    }
  return store ? 0 : 1;
}

/* The processes also race to make the tables, or to update them. */
START_TEST (concurrent_writers_all_succeed)
{
  enum
  {
    WRITERS = 8,
    RUNS = 50
  };
  g_autoptr (GBytes) start = make_start ((guint)_i);
  pid_t child[WRITERS];
  gint64 before;

  restore (start);
  g_unsetenv (
      "FSDPLAN_DEBUG_CHECK"); /* checking at every commit would take longer than the commit */
  before = _i == FROM_VERSION_1 ? 3 : 0;
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
  ck_assert_int_eq (sql (store_file, "SELECT count (*) FROM run"), before + WRITERS * RUNS);
  ck_assert_int_eq (sql (store_file, "SELECT count (*) FROM run_step"), before + WRITERS * RUNS);
}
END_TEST

/* A process that marks a run as running, and disappears. */
static gint64
begin_and_vanish (const char *host)
{
  int report[2], status;
  gint64 id = 0;
  pid_t child;

  ck_assert_int_eq (pipe (report), 0);
  child = fork ();
  ck_assert_int_ge (child, 0);
  if (child == 0)
    {
      g_autoptr (DbStore) store = store_open ();
      DbRun run = sample_run ();

      run.host = (char *)host;
      if (db_store_begin_run (store, &run, NULL) && write (report[1], &run.id, sizeof run.id) > 0)
        kill (getpid (), SIGKILL);
      _exit (1);
    }
  close (report[1]);
  ck_assert_int_eq (read (report[0], &id, sizeof id), sizeof id);
  close (report[0]);
  ck_assert_int_eq (waitpid (child, &status, 0), child);
  return id;
}

START_TEST (run_of_a_dead_process_is_interrupted)
{
  const gint64 dead = begin_and_vanish (g_get_host_name ());
  const gint64 elsewhere = begin_and_vanish ("another-host");
  g_autoptr (DbStore) store = store_open ();
  g_autoptr (GError) error = NULL;
  g_auto (DbRun) gone = { 0 };
  g_auto (DbRun) far = { 0 };
  g_auto (DbRun) alive = { 0 };
  DbRun run = sample_run ();

  must (db_store_load_run (store, dead, &gone, &error), &error, "load_run");
  ck_assert_str_eq (gone.state, "interrupted");
  must (db_store_load_run (store, elsewhere, &far, &error), &error, "load_run");
  ck_assert_str_eq (far.state, "running");
  run.host = (char *)g_get_host_name ();
  must (db_store_begin_run (store, &run, &error), &error, "begin_run");
  must (db_store_load_run (store, run.id, &alive, &error), &error, "load_run");
  ck_assert_str_eq (alive.state, "running");
  ck_assert_int_eq (alive.pid, getpid ());
  g_free (run.uid);
  g_free (run.created);
  g_free (run.state);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("store-crash");
  TCase *tcase = tcase_create ("store-crash");
  SRunner *runner = srunner_create (suite);
  g_autofree char *dump
      = g_build_filename (g_getenv ("top_srcdir"), "tests/unit/store-v1.sql", NULL);
  int n_failed;

  if (!g_file_get_contents (dump, &v1_dump, NULL, NULL))
    return EXIT_FAILURE;
  vfs_install ();
  tcase_add_checked_fixture (tcase, store_setup, store_teardown);
  tcase_set_timeout (tcase, 0); /* without a limit */
  tcase_add_test (tcase, a_thousand_kills);
  tcase_add_loop_test (tcase, failing_disk_leaves_a_whole_store, 0, G_N_ELEMENTS (failures));
  tcase_add_loop_test (tcase, failing_locks_are_named, 0, G_N_ELEMENTS (locks));
  tcase_add_loop_test (tcase, concurrent_writers_all_succeed, FROM_NOTHING, FROM_A_STORE);
  tcase_add_test (tcase, run_of_a_dead_process_is_interrupted);
  suite_add_tcase (suite, tcase);
  srunner_run_all (runner, CK_ENV);
  n_failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  g_free (v1_dump);
  return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
