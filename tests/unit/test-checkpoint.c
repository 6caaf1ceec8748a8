/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* for memmem */
#include "config.h"

#include "exec/walk/checkpoint.h"
#include "planner/base/error.h"

#include <check.h>
#include <glib/gstdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define ELEMENTS 4000

static char *folder;
static PlanModel *model;
static float values[ELEMENTS];
static GPtrArray *names;

static void
begin (void)
{
  folder = g_dir_make_tmp ("test-checkpoint-XXXXXX", NULL);
  model = plan_model_new ("llama-tiny", NULL);
  names = g_ptr_array_new_with_free_func (g_free);
}

static void
remove_all (const char *path)
{
  g_autoptr (GDir) dir = g_dir_open (path, 0, NULL);
  const char *name;
  while (dir && (name = g_dir_read_name (dir)))
    {
      g_autofree char *inner = g_build_filename (path, name, NULL);
      if (g_file_test (inner, G_FILE_TEST_IS_DIR))
        remove_all (inner);
      else
        g_unlink (inner);
    }
  g_rmdir (path);
}

static void
end (void)
{
  remove_all (folder);
  g_free (folder);
  g_ptr_array_unref (names);
  plan_model_free (model);
}

/* A matrix in two pieces: its first columns, row by row, then its last ones. */
#define COLS 40
#define FIRST_COLS 30
static guint64 apart_by = COLS; /* elements between a row and the next in what is saved */

static void
fill_columns (gint64 step, float *out)
{
  for (guint i = 0; i < ELEMENTS; i++)
    {
      const guint row = i / COLS, col = i % COLS;
      out[col < FIRST_COLS
              ? row * FIRST_COLS + col
              : ELEMENTS / COLS * FIRST_COLS + row * (COLS - FIRST_COLS) + col - FIRST_COLS]
          = (float)(step * 10000 + i);
    }
}

/* One rank saves a step: two pieces of a parameter, whose elements say which step it is. */
static gboolean
save (gint64 step, GError **error)
{
  const ExecCheckpointHead head
      = { .folder = folder,
          .keep = 2,
          .names = names,
          .step = step,
          .tokens = 10 * step,
          .settings = (const char *const[]){ "lr=0.5", "data=a = b", NULL },
          .model = model };
  static float columns[ELEMENTS];
  const guint64 apart = ELEMENTS / COLS * FIRST_COLS;
#define PIECE(state, first, count, data, run, stride) \
  { \
    state, PLAN_TENSOR_QKV, 2, first, count, PLAN_DTYPE_FP32, data, TRUE, run, stride \
  }
  const ExecPiece pieces[] = {
    PIECE (EXEC_STATE_MAIN, 1000, 3000, values + 1000, 0, 0),
    PIECE (EXEC_STATE_MAIN, 0, 1000, values, 0, 0),
    PIECE (EXEC_STATE_EXP_AVG, FIRST_COLS, ELEMENTS - apart, columns + apart, COLS - FIRST_COLS,
           apart_by),
    PIECE (EXEC_STATE_EXP_AVG, 0, apart, columns, FIRST_COLS, apart_by),
  };
  fill_columns (step, columns);
  ExecComm *comm = exec_comm_self_open ();
  for (guint i = 0; i < ELEMENTS; i++)
    values[i] = (float)(step * 10000 + i);
  ExecSaving *saving = exec_checkpoint_begin (&head, pieces, G_N_ELEMENTS (pieces), NULL, NULL,
                                              step % 2, comm, error);
  memset (values, 0,
          step % 2 ? sizeof values : 0); /* the saver has copied the values, so they may change */
  const gboolean ok = saving && exec_saving_finish (saving, comm, error);
  comm->ops->close (comm);
  return ok;
}

static void
assert_holds (gint64 step)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (ExecCheckpoint) checkpoint = exec_checkpoint_open (folder, model, &error);
  float found[ELEMENTS];
  ck_assert_msg (checkpoint != NULL, "%s", error ? error->message : "");
  ck_assert_int_eq (exec_checkpoint_step (checkpoint), step);
  ck_assert_int_eq (exec_checkpoint_tokens (checkpoint), 10 * step);
  ck_assert_str_eq (exec_checkpoint_setting (checkpoint, "lr"), "0.5");
  ck_assert_str_eq (exec_checkpoint_setting (checkpoint, "data"), "a = b");
  ck_assert_ptr_null (exec_checkpoint_setting (checkpoint, "seed"));
  for (guint first = 0; first < ELEMENTS; first += 700)
    {
      const guint n = MIN (1300, ELEMENTS - first);
      for (ExecState state = EXEC_STATE_MAIN; state <= EXEC_STATE_EXP_AVG; state++)
        {
          ck_assert (exec_checkpoint_read (checkpoint, state, PLAN_TENSOR_QKV, 2, first, n, found,
                                           &error));
          for (guint i = 0; i < n; i++)
            ck_assert_float_eq (found[i], (float)(step * 10000 + first + i));
        }
    }
}

static guint
count_entries (void)
{
  g_autoptr (GDir) dir = g_dir_open (folder, 0, NULL);
  guint n = 0;
  while (g_dir_read_name (dir))
    n++;
  return n;
}

START_TEST (the_newest_are_kept)
{
  g_autoptr (GError) error = NULL;
  for (gint64 step = 1; step < 4; step++)
    {
      ck_assert_msg (save (step, &error), "%s", error ? error->message : "");
      assert_holds (step);
    }
  ck_assert_uint_eq (count_entries (), 3); /* the manifest and two folders */
  ck_assert (save (2, &error)
             && save (2, &error)); /* a step that is earlier, and the same step again */
  assert_holds (2);
  ck_assert_uint_eq (count_entries (), 3);

  /* each checkpoint is complete by itself, also the older one */
  g_autofree char *all = folder;
  folder = g_build_filename (all, names->pdata[0], NULL);
  assert_holds (2);
  g_free (folder);
  folder = g_steal_pointer (&all);
}
END_TEST

/* Files that are not ours stay, whatever their names, also behind links. */
START_TEST (what_is_not_ours_stays)
{
  static const char *const others[]
      = { "step-1.0/notes.txt", "step-1.0/rank-9.safetensors", "step-7/rank-0.safetensors",
          "step-1.5/rank-0.safetensors", "elsewhere/rank-0.safetensors" };
  g_autofree char *link = g_build_filename (folder, "step-9.9", NULL);
  g_autoptr (GError) error = NULL;
  ck_assert (save (1, &error));
  for (guint i = 0; i < G_N_ELEMENTS (others); i++)
    {
      g_autofree char *path = g_build_filename (folder, others[i], NULL);
      g_autofree char *inner = g_path_get_dirname (path);
      g_mkdir_with_parents (inner, 0777);
      ck_assert (g_file_set_contents (path, "mine", -1, NULL));
    }
  ck_assert (symlink ("elsewhere", link) == 0);
  g_ptr_array_insert (names, 0, g_strdup ("step-9.9")); /* as if the manifest had listed it */
  ck_assert (save (2, &error) && save (3, &error) && save (4, &error));
  assert_holds (4);
  for (guint i = 0; i < G_N_ELEMENTS (others); i++)
    {
      g_autofree char *path = g_build_filename (folder, others[i], NULL);
      ck_assert_msg (g_file_test (path, G_FILE_TEST_EXISTS), "%s is gone", path);
    }
  g_autofree char *ours = g_build_filename (folder, "step-1.0", "rank-0.safetensors", NULL);
  ck_assert (!g_file_test (ours, G_FILE_TEST_EXISTS));
  g_unlink (link);
}
END_TEST

START_TEST (a_run_goes_on_with_what_it_left)
{
  g_autoptr (GError) error = NULL;
  ck_assert (save (1, &error) && save (2, &error));
  g_autoptr (ExecCheckpoint) checkpoint = exec_checkpoint_open (folder, model, &error);
  g_autoptr (GPtrArray) here = exec_checkpoint_names (checkpoint, folder);
  g_autoptr (GPtrArray) elsewhere = exec_checkpoint_names (checkpoint, "/");
  ck_assert_uint_eq (here->len, 2);
  ck_assert_str_eq (here->pdata[1], "step-2.0");
  ck_assert_uint_eq (elsewhere->len, 0);
}
END_TEST

START_TEST (one_run_writes_to_a_folder)
{
  g_autoptr (GError) error = NULL;
  const int first = exec_checkpoint_lock (folder, &error);
  ck_assert_int_ge (first, 0);
  ck_assert_int_lt (exec_checkpoint_lock (folder, &error), 0);
  ck_assert_msg (strstr (error->message, "another run saves its checkpoints here"), "%s",
                 error->message);
  close (first);
  const int second = exec_checkpoint_lock (folder, NULL);
  ck_assert_int_ge (second, 0);
  close (second);
  g_clear_error (&error);
  g_autofree char *manifest = g_build_filename (folder, "manifest", NULL);
  ck_assert (g_file_set_contents (manifest, "a list of freight", -1, NULL));
  ck_assert (!exec_checkpoint_prepare (folder, &error));
  ck_assert_msg (strstr (error->message, "not that of a checkpoint"), "%s", error->message);
}
END_TEST

/* Saves in a process that is killed when one of its files grows beyond so many bytes. Returns
 * whether it was. */
static gboolean
dies_at (gint64 step, rlim_t bytes)
{
  int status = 0;
  const pid_t child = fork ();
  if (child == 0)
    {
      const struct rlimit limit = { bytes, bytes }, no_core = { 0, 0 };
      signal (SIGXFSZ, SIG_DFL); /* the parent process may ignore the signal */
      setrlimit (RLIMIT_CORE, &no_core);
      setrlimit (RLIMIT_FSIZE, &limit);
      _exit (save (step, NULL) ? 0 : 1);
    }
  waitpid (child, &status, 0);
  ck_assert (WIFSIGNALED (status) || WEXITSTATUS (status) == 0);
  return WIFSIGNALED (status);
}

START_TEST (a_killed_process_leaves_the_old_one_or_the_new)
{
  g_autoptr (GError) error = NULL;
  guint deaths = 0, ends = 0;
  gint64 held = 1;
  ck_assert (save (held, &error));
  for (rlim_t bytes = 1; bytes < 80000; bytes += bytes < 1500 ? 97 : 7777)
    {
      const gint64 step = held + 1;
      if (dies_at (step, bytes))
        deaths++;
      else
        {
          held = step;
          ends++;
        }
      assert_holds (held);
    }
  ck_assert_uint_gt (deaths, 10);
  ck_assert_uint_gt (ends, 3);
  ck_assert (save (held + 1, &error)); /* leftovers of killed processes do no harm */
  assert_holds (held + 1);
}
END_TEST

/* A full disk is an error, the old checkpoint stays, and nothing of the new one takes room. */
START_TEST (a_full_disk_is_an_error)
{
  int status = 0;
  g_autoptr (GError) error = NULL;
  ck_assert (save (1, &error));
  const pid_t child = fork ();
  if (child == 0)
    {
      const struct rlimit limit = { 9000, 9000 };
      signal (SIGXFSZ, SIG_IGN); /* write fails instead of a signal */
      setrlimit (RLIMIT_FSIZE, &limit);
      _exit (save (2, &error)                                                ? 1
             : strstr (error->message, "rank-0.safetensors: File too large") ? 0
                                                                             : 2);
    }
  waitpid (child, &status, 0);
  ck_assert (WIFEXITED (status) && WEXITSTATUS (status) == 0);
  assert_holds (1);
  g_autofree char *part = g_build_filename (folder, "step-2.0", "rank-0.safetensors", NULL);
  ck_assert (!g_file_test (part, G_FILE_TEST_EXISTS));
}
END_TEST

static void
assert_refused (const PlanModel *wanted, const char *message)
{
  g_autoptr (GError) error = NULL;
  ck_assert (!exec_checkpoint_open (folder, wanted, &error));
  ck_assert_msg (strstr (error->message, message) != NULL, "%s", error->message);
}

/* Replaces `from` in a file of the folder. */
static void
edit (const char *name, const char *from, const char *to)
{
  g_autofree char *path = g_build_filename (folder, name, NULL), *text = NULL;
  gsize length;
  ck_assert (g_file_get_contents (path, &text, &length, NULL));
  char *at = memmem (text, length, from, strlen (from));
  ck_assert (at != NULL && strlen (from) == strlen (to));
  memcpy (at, to, strlen (to));
  ck_assert (g_file_set_contents (path, text, (gssize)length, NULL));
}

START_TEST (what_is_no_checkpoint_is_refused)
{
  g_autoptr (PlanModel) other = plan_model_new ("llama-100m", NULL);
  g_autoptr (GError) error = NULL;
  float found[4];
  assert_refused (model, "no checkpoint: ");
  ck_assert (save (1, NULL));
  assert_refused (other, "the checkpoint is of another model, family=llama,layers=4");
  edit ("step-1.0/rank-0.safetensors", "main/qkv", "main/qkw");
  assert_refused (model, "rank-0.safetensors: is not what the manifest says was written");
  edit ("manifest", "version=2", "version=9");
  assert_refused (model, "version 9 is not one that this program reads");
  edit ("manifest", "version=9", "vension=2");
  assert_refused (model, "has no version: it is empty, cut off or another file");
  edit ("manifest", "vension=2", "version=2");
  edit ("manifest", "folder=step", "folder=../p");
  assert_refused (model, "step, tokens, model or folder is missing or wrong");
  ck_assert (save (3, NULL));
  edit ("manifest", "[files]", "[flies]");
  assert_refused (model, "names no files");
  edit ("manifest", "[checkpoint]", "[checkpoint ");
  assert_refused (model, "manifest: ");
  apart_by = FIRST_COLS - 1; /* rows overlap */
  ck_assert (save (3, NULL));
  assert_refused (model, "rank-0.safetensors: exp_avg/qkv/2/0:29 is no piece of a checkpoint");
  apart_by = COLS;
  ck_assert (save (4, NULL));
  g_autoptr (ExecCheckpoint) checkpoint = exec_checkpoint_open (folder, model, NULL);
  ck_assert (!exec_checkpoint_read (checkpoint, EXEC_STATE_MAIN, PLAN_TENSOR_QKV, 2, ELEMENTS - 2,
                                    4, found, &error));
  ck_assert_msg (strstr (error->message, "the checkpoint lacks element 4000 of main/qkv/2"), "%s",
                 error->message);
  g_clear_error (&error);
  ck_assert (!exec_checkpoint_read (checkpoint, EXEC_STATE_EXP_AVG_SQ, PLAN_TENSOR_QKV, 2, 0, 4,
                                    found, &error));
  ck_assert_msg (strstr (error->message, "another optimizer wrote it"), "%s", error->message);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("checkpoint");
  TCase *tcase = tcase_create ("folder");
  tcase_add_checked_fixture (tcase, begin, end);
  tcase_add_test (tcase, the_newest_are_kept);
  tcase_add_test (tcase, what_is_not_ours_stays);
  tcase_add_test (tcase, a_run_goes_on_with_what_it_left);
  tcase_add_test (tcase, one_run_writes_to_a_folder);
  tcase_add_test (tcase, a_killed_process_leaves_the_old_one_or_the_new);
  tcase_add_test (tcase, a_full_disk_is_an_error);
  tcase_add_test (tcase, what_is_no_checkpoint_is_refused);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
