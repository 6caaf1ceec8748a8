/* SPDX-License-Identifier: Apache-2.0 */
/* The store as a file: how it is made, updated, refused and protected. */
#include "config.h"

#include "db/plans.h"
#include "tests/unit/test-store-samples.h"

#include <check.h>
#include <glib/gstdio.h>
#include <math.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* A folder that contains XDG_DATA_HOME, which GLib reads once. */
static char *base;

START_TEST (opening_again_changes_nothing)
{
  g_autoptr (GBytes) before = NULL;
  g_autoptr (GBytes) after = NULL;
  g_autoptr (DbStore) memory = db_store_open (":memory:", NULL);

  db_store_close (store_open ());
  before = file_bytes (store_file);
  db_store_close (store_open ());
  after = file_bytes (store_file);
  ck_assert (g_bytes_equal (before, after));

  /* A store in memory makes no file either, and works as any other. */
  ck_assert_int_eq (store_begin_run (memory), 1);
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
  const char *sql; /* run on a fresh store */
  PlanErrorCode code;
  const char *part;
} refused[] = {
  { "PRAGMA user_version = 99", PLAN_ERROR_UNSUPPORTED, "version 99, this program knows up to 5" },
  { "PRAGMA user_version = -3", PLAN_ERROR_CORRUPT, "its version is -3" },
  { "PRAGMA application_id = 0", PLAN_ERROR_INVALID, "database of another program" },
  { "PRAGMA application_id = 5", PLAN_ERROR_INVALID, "database of another program" },
};

START_TEST (newer_and_foreign_databases_are_refused)
{
  db_store_close (store_open ());
  sql (store_file, refused[_i].sql);
  ck_assert_refused_and_untouched (refused[_i].code, refused[_i].part);
}
END_TEST

/* Another program has crashed, or holds the file open: its last writes are only in its log. */
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

  store = store_open ();
  id = store_begin_run (store);
  g_clear_pointer (&store, db_store_close);

  store = db_store_open_readonly (store_file, &error);
  must (store != NULL, &error, "open_readonly");
  ck_assert (!db_store_begin_run (store, &run, &error));
  ck_assert_refused (error, PLAN_ERROR_IO, "cannot store a new run");
  g_clear_error (&error);
  g_auto (DbRun) loaded = { 0 };
  must (db_store_load_run (store, id, &loaded, &error), &error, "load_run");
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
  must (store != NULL, &error, "open");
  store_begin_run (store);
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

/* A store as version 1 left it. */
static void
make_v1 (void)
{
  g_autofree char *dump
      = g_build_filename (g_getenv ("top_srcdir"), "tests/unit/store-v1.sql", NULL);
  g_autofree char *text = NULL;

  ck_assert_msg (g_file_get_contents (dump, &text, NULL, NULL), "%s", dump);
  sql (store_file, text);
}

/* Checks that the data of version 1 is kept, as the comment in store-v1.sql says. */
static void
ck_assert_v1_is_kept (DbStore *store)
{
  g_autoptr (GError) error = NULL;
  g_auto (DbRun) run = { 0 };
  g_autoptr (GArray) runs = db_store_list_runs (store, &error);
  g_autoptr (GArray) steps = db_store_list_steps (store, 2, &error);
  g_autoptr (PlanTrace) trace = db_store_load_trace (store, 2, "cpu", 0, &error);
  g_autoptr (GPtrArray) faults = db_store_list_faults (store, &error);

  must (runs && steps && trace && faults, &error, "read");
  ck_assert_uint_eq (faults->len, 0);
  ck_assert_uint_eq (runs->len, 3);
  must (db_store_load_run (store, 2, &run, &error), &error, "load_run");
  ck_assert_str_eq (run.uid, "v1 2026-08-01T10:00:00Z node-1 2");
  ck_assert_str_eq (run.device, "2 x \"\xc2\xb5\" CPU");
  ck_assert_str_eq (run.cluster_text, "[local]\nnodes=1\n");
  ck_assert_int_eq (run.seed, G_MININT64);
  ck_assert_int_eq (run.predicted_step_ns, G_MAXINT64);
  ck_assert_int_eq (run.pid, 0);
  ck_assert_ptr_null (run.data);
  ck_assert_ptr_null (run.settings);
  ck_assert_str_eq (g_array_index (runs, DbRun, 2).state, "running");
  ck_assert_uint_eq (steps->len, 3);
  ck_assert (isnan (g_array_index (steps, DbStep, 1).loss));
  ck_assert (g_array_index (steps, DbStep, 1).grad_norm == INFINITY);
  ck_assert (g_array_index (steps, DbStep, 2).loss == 0.1);
  ck_assert_uint_eq (trace->spans->len, 2);
  ck_assert_uint_eq (trace->samples->len, 2);
}

/* db_store_list_faults compares with the schema of a fresh store. */
START_TEST (version_1_is_brought_up_to_date)
{
  g_autoptr (DbStore) store = NULL;

  make_v1 ();
  store = store_open ();
  ck_assert_v1_is_kept (store);
  ck_assert_int_eq (sql (store_file, "PRAGMA user_version"), db_store_latest_version ());
  /* Run 9 was deleted; its number stays used, and what version 2 asks for is asked for. */
  ck_assert_int_eq (store_begin_run (store), 10);
}
END_TEST

START_TEST (version_1_is_read_and_left_alone)
{
  g_autoptr (DbStore) store = NULL;
  g_autoptr (GError) error = NULL;
  g_autoptr (GBytes) before = NULL;
  g_autoptr (GBytes) after = NULL;
  g_autofree char *file = NULL;
  DbRun run = sample_run ();
  gint64 version;

  make_v1 ();
  before = file_bytes (store_file);
  store = db_store_open_readonly (store_file, &error);
  must (store != NULL, &error, "open_readonly");
  ck_assert_v1_is_kept (store);
  ck_assert (!db_store_begin_run (store, &run, &error));
  ck_assert_refused (error, PLAN_ERROR_IO, "cannot store a new run");
  after = file_bytes (store_file);
  ck_assert (g_bytes_equal (before, after));
  g_clear_error (&error);
  must (db_store_find (store_file, &file, &version, &error), &error, "find");
  ck_assert_str_eq (file, store_file);
  ck_assert_int_eq (version, 1);
}
END_TEST

/* A store as version 2 left it: that of store-small.json. */
START_TEST (version_2_is_brought_up_to_date)
{
  g_autofree char *dump
      = g_build_filename (g_getenv ("top_srcdir"), "tests/unit/store-v2.sql", NULL);
  g_autofree char *text = NULL;
  g_autoptr (GError) error = NULL;
  g_auto (DbRun) run = { 0 };
  g_auto (DbPlan) plan = { 0 };
  g_autoptr (DbStore) store = NULL;
  g_autoptr (GPtrArray) faults = NULL;

  ck_assert_msg (g_file_get_contents (dump, &text, NULL, NULL), "%s", dump);
  sql (store_file, text);
  ck_assert_int_eq (sql (store_file, "PRAGMA user_version"), 2);
  store = store_open ();
  faults = db_store_list_faults (store, &error);
  must (faults != NULL, &error, "list_faults");
  ck_assert_uint_eq (faults->len, 0);
  ck_assert_int_eq (sql (store_file, "PRAGMA user_version"), db_store_latest_version ());
  must (db_store_load_run (store, 3, &run, &error), &error, "load_run");
  ck_assert_str_eq (run.uid, "5f0c");
  ck_assert_int_eq (run.plan_id, 1);
  must (db_store_load_plan (store, 1, &plan, &error), &error, "load_plan");
  ck_assert_str_eq (plan.plan_text, "stack=native\nmbs=1\n");
  /* The number of a plan that was deleted with its run is not used again. */
  ck_assert_int_eq (sql (store_file, "SELECT seq FROM sqlite_sequence WHERE name = 'plan'"), 1);
  ck_assert_int_eq (store_begin_run (store), 4);
  ck_assert_int_eq (sql (store_file, "SELECT max (id) FROM plan"), 2);
}
END_TEST

/* A store as version 3 left it: that of store-small.json, without what cuDNN says. */
START_TEST (version_3_is_brought_up_to_date)
{
  g_autofree char *dump
      = g_build_filename (g_getenv ("top_srcdir"), "tests/unit/store-v3.sql", NULL);
  g_autofree char *text = NULL;
  g_autoptr (GError) error = NULL;
  g_autoptr (DbStore) store = NULL;
  g_autoptr (GPtrArray) faults = NULL;

  ck_assert_msg (g_file_get_contents (dump, &text, NULL, NULL), "%s", dump);
  sql (store_file, text);
  ck_assert_int_eq (sql (store_file, "PRAGMA user_version"), 3);
  store = store_open ();
  faults = db_store_list_faults (store, &error);
  must (faults != NULL, &error, "list_faults");
  ck_assert_uint_eq (faults->len, 0);
  ck_assert_int_eq (sql (store_file, "PRAGMA user_version"), db_store_latest_version ());
  ck_assert_int_eq (sql (store_file, "SELECT count (*) FROM op_measurement"), 1);
  ck_assert_int_eq (sql (store_file, "SELECT count (*) FROM param_set_row"), 3);
  ck_assert_int_eq (sql (store_file, "SELECT count (*) FROM attention_workspace"), 0);
}
END_TEST

/* A store as version 4 left it: that of store-small.json, without evaluations. */
START_TEST (version_4_is_brought_up_to_date)
{
  g_autofree char *dump
      = g_build_filename (g_getenv ("top_srcdir"), "tests/unit/store-v4.sql", NULL);
  g_autofree char *text = NULL;
  g_autoptr (GError) error = NULL;
  g_autoptr (DbStore) store = NULL;
  g_autoptr (GPtrArray) faults = NULL;
  g_autoptr (GArray) steps = NULL;

  ck_assert_msg (g_file_get_contents (dump, &text, NULL, NULL), "%s", dump);
  sql (store_file, text);
  ck_assert_int_eq (sql (store_file, "PRAGMA user_version"), 4);
  store = store_open ();
  faults = db_store_list_faults (store, &error);
  must (faults != NULL, &error, "list_faults");
  ck_assert_uint_eq (faults->len, 0);
  ck_assert_int_eq (sql (store_file, "PRAGMA user_version"), db_store_latest_version ());
  steps = db_store_list_steps (store, 3, &error);
  must (steps != NULL, &error, "list_steps");
  ck_assert_uint_eq (steps->len, 2);
  ck_assert (g_array_index (steps, DbStep, 0).loss == 5.5);
  ck_assert (isnan (g_array_index (steps, DbStep, 0).eval_loss));
}
END_TEST

static const char *const tampering[][2] = {
  { "DROP TRIGGER run_is_final", "trigger run_is_final is missing" },
  { "DROP INDEX run_by_plan; CREATE INDEX run_by_plan ON run (seed)",
    "index run_by_plan is not as this version makes it" },
  { "CREATE TABLE diary (x)", "table diary is none of this program's" },
  { "UPDATE sqlite_sequence SET seq = 0 WHERE name = 'plan'", "could be given again" },
  { "INSERT INTO run_step VALUES (1, 11, 0, 0, 0, NULL)",
    "step 11 of run 1 is beyond the steps asked for" },
  { "PRAGMA foreign_keys = OFF; INSERT INTO run_step VALUES (8, 1, 0, 0, 0, NULL)",
    "its run is not there" },
  { "UPDATE sqlite_sequence SET seq = 0 WHERE name = 'run'", "could be given again" },
  { "INSERT INTO param_set VALUES ('p', 't', 'v', 'x', 'none', 1)",
    "parameter set p does not say what it was fitted to" },
};

START_TEST (faults_are_found)
{
  g_autoptr (DbStore) store = store_open ();
  g_autoptr (GError) error = NULL;
  g_autoptr (GPtrArray) faults = NULL;

  store_begin_run (store);
  sql (store_file, tampering[_i][0]);
  faults = db_store_list_faults (store, &error);
  must (faults != NULL, &error, "list_faults");
  ck_assert_uint_eq (faults->len, 1);
  ck_assert_msg (strstr (g_ptr_array_index (faults, 0), tampering[_i][1]) != NULL, "'%s'",
                 (const char *)g_ptr_array_index (faults, 0));
}
END_TEST

/* A copy that was cut off at any byte; SQLite takes a single byte for an empty file. */
START_TEST (truncated_store_is_refused)
{
  g_autoptr (GBytes) whole = NULL;

  db_store_close (store_open ());
  whole = file_bytes (store_file);
  for (gsize size = 2; size < g_bytes_get_size (whole); size += 1021)
    {
      g_autoptr (DbStore) store = NULL;
      g_autoptr (GError) error = NULL;

      ck_assert (
          g_file_set_contents (store_file, g_bytes_get_data (whole, NULL), (gssize)size, NULL));
      store = db_store_open (store_file, &error);
      ck_assert_msg (!store, "%" G_GSIZE_FORMAT " bytes were accepted", size);
      ck_assert_refused (error, size < 512 ? PLAN_ERROR_INVALID : PLAN_ERROR_CORRUPT,
                         size < 512 ? "not a database" : "malformed");
    }
}
END_TEST

/* Runs `action` in a process of a user who owns nothing; returns what it reports, NULL: that could
 * not be tried here. */
static char *
as_nobody (char *(*action) (void))
{
  int report[2], status;
  char text[1024];
  ssize_t n;
  pid_t child;

  ck_assert_int_eq (pipe (report), 0);
  child = fork ();
  ck_assert_int_ge (child, 0);
  if (child == 0)
    {
      g_autofree char *said = NULL;

      if (geteuid () == 0 && (setgid (65534) != 0 || setuid (65534) != 0))
        _exit (1);
      if (access (store_file, R_OK) != 0) /* its folder may be closed, too */
        _exit (1);
      said = action ();
      _exit (write (report[1], said, strlen (said)) < 0);
    }
  close (report[1]);
  n = read (report[0], text, sizeof text - 1);
  close (report[0]);
  ck_assert_int_eq (waitpid (child, &status, 0), child);
  if (WIFEXITED (status) && WEXITSTATUS (status) == 1)
    return NULL;
  ck_assert_int_ge (n, 0);
  return g_strndup (text, (gsize)n);
}

/* The message of a run that should be stored; then whether the store can be read. */
static char *
write_then_read (void)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (DbStore) store = db_store_open (store_file, &error);
  g_autoptr (DbStore) reader = NULL;
  g_autoptr (GArray) runs = NULL;
  DbRun run = sample_run ();

  if (store && db_store_begin_run (store, &run, &error))
    return g_strdup ("it was stored");
  reader = db_store_open_readonly (store_file, NULL);
  runs = reader ? db_store_list_runs (reader, NULL) : NULL;
  return g_strdup_printf ("%s; %u runs are read", error->message, runs ? runs->len : 0);
}

static const struct
{
  int file_mode, folder_mode;
  const char *said;
} protected[] = {
  { 0444, 0777, "attempt to write a readonly database; the file or its folder may only be read" },
  { 0666, 0555, "attempt to write a readonly database; the file or its folder may only be read" },
  { 0444, 0555, "attempt to write a readonly database; the file or its folder may only be read" },
};

START_TEST (protected_store_is_read)
{
  g_autofree char *said = NULL;
  g_autoptr (GBytes) before = NULL;
  g_autoptr (GBytes) after = NULL;
  DbStore *store = store_open ();

  store_begin_run (store);
  db_store_close (store);
  before = file_bytes (store_file);
  ck_assert_int_eq (chmod (store_file, (mode_t) protected[_i].file_mode), 0);
  ck_assert_int_eq (chmod (folder, (mode_t) protected[_i].folder_mode), 0);
  said = as_nobody (write_then_read);
  ck_assert_int_eq (chmod (folder, 0700), 0);
  if (!said)
    return;
  ck_assert_msg (strstr (said, protected[_i].said) != NULL, "%s", said);
  ck_assert_msg (strstr (said, "; 1 runs are read") != NULL, "%s", said);
  after = file_bytes (store_file);
  ck_assert (g_bytes_equal (before, after));
}
END_TEST

static char *
fill_up (void)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (DbStore) store = db_store_open (store_file, &error);
  const struct rlimit limit = { .rlim_cur = 200 * 1024, .rlim_max = 200 * 1024 };

  signal (SIGXFSZ, SIG_IGN); /* a parent that sets such a limit has to ignore the signal */
  if (!store || setrlimit (RLIMIT_FSIZE, &limit) != 0)
    return g_strdup ("not opened");
  for (guint i = 0; i < 1000; i++)
    {
      DbRun run = sample_run ();
      g_autofree char *text = g_strnfill (4000, 'x');

      run.plan_text = text;
      run.plan_hash = g_strdup_printf ("%u", i);
      if (!db_store_begin_run (store, &run, &error))
        return g_strdup (error->message);
    }
  return g_strdup ("no limit");
}

START_TEST (file_that_may_not_grow)
{
  g_autofree char *said = NULL;
  g_autoptr (DbStore) store = store_open ();
  g_autoptr (GPtrArray) faults = NULL;
  g_autoptr (GError) error = NULL;

  ck_assert_int_eq (chmod (store_file, 0666), 0);
  ck_assert_int_eq (chmod (folder, 0777), 0);
  g_clear_pointer (&store, db_store_close);
  said = as_nobody (fill_up);
  if (!said)
    return;
  ck_assert_msg (strstr (said, "cannot store a new run: ")
                     && strstr (said, "a limit on the size of files?"),
                 "%s", said);
  store = store_open ();
  faults = db_store_list_faults (store, &error);
  must (faults != NULL && faults->len == 0, &error, "list_faults");
  ck_assert_int_gt (sql (store_file, "SELECT count (*) FROM run"), 10);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("store-files");
  TCase *tcase = tcase_create ("store-files");
  SRunner *runner = srunner_create (suite);
  g_autofree char *home = NULL;
  int n_failed;

  base = g_dir_make_tmp ("fsdplan-store-XXXXXX", NULL);
  if (!base)
    return EXIT_FAILURE;
  home = g_build_filename (base, "home", NULL);
  g_setenv ("XDG_DATA_HOME", home, TRUE);

  tcase_add_checked_fixture (tcase, store_setup, store_teardown);
  tcase_add_test (tcase, opening_again_changes_nothing);
  tcase_add_loop_test (tcase, newer_and_foreign_databases_are_refused, 0, G_N_ELEMENTS (refused));
  tcase_add_test (tcase, foreign_log_is_left_alone);
  tcase_add_test (tcase, other_files_are_refused);
  tcase_add_test (tcase, reading_only);
  tcase_add_test (tcase, home_of_the_user);
  tcase_add_test (tcase, missing_folder_is_named);
  tcase_add_test (tcase, version_1_is_brought_up_to_date);
  tcase_add_test (tcase, version_1_is_read_and_left_alone);
  tcase_add_test (tcase, version_2_is_brought_up_to_date);
  tcase_add_test (tcase, version_3_is_brought_up_to_date);
  tcase_add_test (tcase, version_4_is_brought_up_to_date);
  tcase_add_loop_test (tcase, faults_are_found, 0, G_N_ELEMENTS (tampering));
  tcase_add_test (tcase, truncated_store_is_refused);
  tcase_add_loop_test (tcase, protected_store_is_read, 0, G_N_ELEMENTS (protected));
  tcase_add_test (tcase, file_that_may_not_grow);
  suite_add_tcase (suite, tcase);
  srunner_run_all (runner, CK_ENV);
  n_failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  store_remove_tree (base);
  g_free (base);
  return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
