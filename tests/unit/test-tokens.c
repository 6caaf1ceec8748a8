/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/data/tokens.h"
#include "planner/base/error.h"

#include <check.h>
#include <glib/gstdio.h>
#include <stdlib.h>
#include <string.h>

static char *folder;

static void
make_folder (void)
{
  folder = g_dir_make_tmp ("test-tokens-XXXXXX", NULL);
}

static void
remove_folder (void)
{
  g_rmdir (folder);
  g_free (folder);
}

/* Makes a file of `count` tokens 0, 3, 6, ... below `limit`, and `odd` more bytes. */
static char *
make_file (const char *name, guint bytes, guint count, guint limit, guint odd)
{
  char *path = g_build_filename (folder, name, NULL);
  g_autoptr (GByteArray) data = g_byte_array_new ();
  for (guint i = 0; i < count; i++)
    {
      const guint32 token = GUINT32_TO_LE (3 * i % limit);
      g_byte_array_append (data, (const guint8 *)&token, bytes);
    }
  g_byte_array_set_size (data, data->len + odd);
  ck_assert (g_file_set_contents (path, (const char *)data->data, data->len, NULL));
  return path;
}

START_TEST (sequences_follow_one_another)
{
  static const struct
  {
    const char *name;
    guint bytes;
    gint64 vocab;
  } cases[]
      = { { "a.bin", 2, 100 }, { "a.u32", 4, 100 }, { "a.bin", 4, 70000 }, { "a.u16", 2, 70000 } };
  const gint64 seq = 5;
  gint32 tokens[5], targets[5];
  g_autofree char *path = make_file (cases[_i].name, cases[_i].bytes, 23, 100, 0);
  g_autoptr (GError) error = NULL;
  g_autoptr (ExecTokens) file = exec_tokens_open (path, cases[_i].vocab, seq, &error);
  ck_assert_msg (file != NULL, "%s", error ? error->message : "");
  ck_assert_uint_eq (exec_tokens_sequences (file), 4); /* 22 tokens have a next one */
  for (guint64 s = 0; s < 9; s++)
    {
      ck_assert (exec_tokens_read (file, NULL, 5 * s, tokens, targets, &error));
      for (gint32 t = 0; t < seq; t++)
        {
          const gint32 place = (gint32)(s % 4) * (gint32)seq + t;
          ck_assert_int_eq (tokens[t], 3 * place % 100);
          ck_assert_int_eq (targets[t], 3 * (place + 1) % 100);
        }
    }
  g_unlink (path);
}
END_TEST

/* Reading may begin at any token, as after a run with sequences of another length: no token is left
 * out, and none comes twice. */
START_TEST (any_token_may_be_the_first)
{
  gint32 tokens[5], targets[5];
  g_autofree char *path = make_file ("any.bin", 2, 23, 100, 0);
  g_autoptr (ExecTokens) file = exec_tokens_open (path, 100, 5, NULL);
  for (guint64 first = 0; first < 50; first++)
    {
      ck_assert (exec_tokens_read (file, NULL, first, tokens, targets, NULL));
      for (guint64 t = 0; t < 5; t++)
        {
          const guint64 place = first % 20 + t, next = place + 1;
          const guint64 at = place > 20 ? place - 20 : place;
          ck_assert_int_eq (tokens[t], (gint32)(3 * at));
          ck_assert_int_eq (targets[t], (gint32)(3 * (next > 20 ? next - 20 : next)));
        }
    }
  g_autofree char *same = exec_tokens_describe (file);
  ck_assert_msg (g_str_has_prefix (same, "23 tokens of 16 bits, "), "%s", same);
  g_unlink (path);
}
END_TEST

static void
assert_refused (const char *path, gint64 vocab, gint64 seq, const char *message)
{
  g_autoptr (GError) error = NULL;
  ck_assert (!exec_tokens_open (path, vocab, seq, &error));
  ck_assert_msg (strstr (error->message, message) != NULL, "%s", error->message);
}

START_TEST (wrong_files_are_refused)
{
  g_autofree char *odd = make_file ("odd.bin", 2, 20, 100, 1);
  g_autofree char *few = make_file ("few.bin", 2, 8, 100, 0);
  g_autofree char *empty = make_file ("empty.u32", 4, 0, 100, 0);
  assert_refused ("/nowhere/tokens", 100, 8, "No such file");
  assert_refused (folder, 100, 8, folder);
  assert_refused (odd, 100, 8,
                  "41 bytes are no whole number of tokens of 2 bytes: the file is truncated");
  assert_refused (few, 100, 8,
                  "8 tokens are too few: a sequence of seq=8 needs one more than that");
  assert_refused (empty, 100, 1, "0 tokens are too few");
  g_unlink (odd);
  g_unlink (few);
  g_unlink (empty);
}
END_TEST

START_TEST (another_vocabulary_is_refused)
{
  gint32 tokens[4], targets[4];
  g_autofree char *path = make_file ("large.bin", 2, 40, 1000, 0);
  g_autoptr (GError) error = NULL;
  g_autoptr (ExecTokens) file = exec_tokens_open (path, 50, 4, &error);
  ck_assert (file && exec_tokens_read (file, NULL, 0, tokens, targets, &error));
  ck_assert (!exec_tokens_read (file, NULL, 16, tokens, targets, &error));
  ck_assert (g_error_matches (error, PLAN_ERROR, PLAN_ERROR_INVALID));
  ck_assert_msg (
      strstr (error->message, "token 51 at place 17 is outside the model's vocabulary of 50"), "%s",
      error->message);
  g_unlink (path);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("tokens");
  TCase *tcase = tcase_create ("file");
  tcase_add_unchecked_fixture (tcase, make_folder, remove_folder);
  tcase_add_loop_test (tcase, sequences_follow_one_another, 0, 4);
  tcase_add_test (tcase, any_token_may_be_the_first);
  tcase_add_test (tcase, wrong_files_are_refused);
  tcase_add_test (tcase, another_vocabulary_is_refused);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
