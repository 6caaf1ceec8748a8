/* SPDX-License-Identifier: Apache-2.0 */
/* Data sets of Megatron-LM, written here field by field as its documentation describes them. */
#include "config.h"

#include "exec/data/blend.h"
#include "exec/data/data.h"
#include "exec/data/indexed.h"
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
  folder = g_dir_make_tmp ("test-indexed-XXXXXX", NULL);
}

static void
remove_folder (void)
{
  g_rmdir (folder);
  g_free (folder);
}

static void
put (GByteArray *out, gint64 value, guint bytes)
{
  const gint64 little = GINT64_TO_LE (value);
  g_byte_array_append (out, (const guint8 *)&little, bytes);
}

/* An index of sequences as long as `lengths` says, each of which is a document. */
static GByteArray *
make_index (guint code, guint bytes, const gint32 *lengths, guint n)
{
  GByteArray *out = g_byte_array_new ();
  gint64 pointer = 0;
  g_byte_array_append (out, (const guint8 *)"MMIDIDX\0", 9);
  put (out, 1, 8);
  put (out, code, 1);
  put (out, n, 8);
  put (out, n + 1, 8);
  for (guint i = 0; i < n; i++)
    put (out, lengths[i], 4);
  for (guint i = 0; i < n; i++)
    {
      put (out, pointer, 8);
      pointer += (gint64)lengths[i] * bytes;
    }
  for (guint i = 0; i <= n; i++)
    put (out, i, 8);
  return out;
}

static char *
write_file (const char *name, const GByteArray *data)
{
  char *path = g_build_filename (folder, name, NULL);
  ck_assert (g_file_set_contents (path, (const char *)data->data, data->len, NULL));
  return path;
}

/* Bytes of a token by the code of its type, less 1; 0: floats, which are no tokens. */
static const guint token_bytes[] = { 1, 1, 2, 4, 8, 0, 0, 2 };

/* Checks the places of a sequence's tokens: each is the number of tokens just before it in the
 * sequence that are of its document, or if `end` is a token, that are not `end`. Adds to `io_sum`,
 * for every token, how many tokens of the sequence are of its document. */
static void
check_places (const ExecTokens *opened, guint64 first, guint64 seq, const gint32 *tokens,
              const gint32 *owners, gint32 end, double *io_sum)
{
  gint32 places[9];
  exec_tokens_places (opened, NULL, first, places);
  for (guint64 t = 0; t < seq; t++)
    {
      gint32 before = 0;
      while (before < (gint32)t
             && (end >= 0 ? tokens[first + t - 1 - (guint64)before] != end
                          : owners[first + t - 1 - (guint64)before] == owners[first + t]))
        before++;
      ck_assert_int_eq (places[t], before);
      for (guint64 other = 0; other < seq; other++)
        *io_sum += owners[first + other] == owners[first + t];
    }
}

/* Sequences are read as windows of one array, all documents one behind the other: where a document
 * ends makes no difference. */
START_TEST (windows_go_over_the_concatenation)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const guint code = (guint)_i % 8 + 1, bytes = token_bytes[code - 1];
  const guint n = (guint)g_rand_int_range (rand, 1, 40);
  g_autofree gint32 *lengths = g_new (gint32, n);
  g_autoptr (GByteArray) tokens = g_byte_array_new (), all = g_byte_array_new ();
  g_autoptr (GByteArray) owners = g_byte_array_new ();
  g_autoptr (GError) error = NULL;
  double sum = 0, unused = 0;
  if (bytes == 0)
    return;
  for (guint i = 0; i < n; i++)
    {
      lengths[i] = g_rand_int_range (rand, 0, 12);
      for (gint32 t = 0; t < lengths[i] + (i == 0 ? 3 : 0); t++)
        {
          const gint32 token = g_rand_int_range (rand, 0, bytes == 1 ? 128 : 30000);
          put (tokens, token, bytes);
          put (all, token, 4);
          put (owners, i, 4);
        }
      lengths[i] += i == 0 ? 3 : 0;
    }
  g_autoptr (GByteArray) index = make_index (code, bytes, lengths, n);
  g_autofree char *idx = write_file ("set.idx", index), *bin = write_file ("set.bin", tokens);
  g_autofree char *prefix = g_build_filename (folder, "set", NULL);
  const char *const names[] = { prefix, bin, idx };
  const gint32 *expected = (const gint32 *)(gpointer)all->data;
  const guint64 count = all->len / 4, seq = 1 + (guint64)_i % MIN (count - 1, 9);
  g_autoptr (ExecTokens) opened = exec_tokens_open (names[_i / 8 % 3], 30000, (gint64)seq, &error);
  ck_assert_msg (opened != NULL, "%s", error ? error->message : "");
  ck_assert_uint_eq (exec_tokens_sequences (opened), (count - 1) / seq);
  for (guint64 s = 0; s < (count - 1) / seq; s++)
    {
      gint32 in[9], next[9];
      ck_assert (exec_tokens_read (opened, NULL, s * seq, in, next, &error));
      ck_assert (memcmp (in, expected + s * seq, seq * sizeof (gint32)) == 0);
      ck_assert (memcmp (next, expected + s * seq + 1, seq * sizeof (gint32)) == 0);
      check_places (opened, s * seq, seq, expected, (const gint32 *)(gpointer)owners->data, -1,
                    &sum);
    }
  ck_assert (exec_tokens_has_documents (opened));
  ck_assert_double_eq_tol (exec_tokens_mean_document (opened),
                           sum / (double)((count - 1) / seq * seq), 1e-9);
  exec_tokens_set_end (opened, expected[count / 2]);
  ck_assert_double_eq (exec_tokens_mean_document (opened), 0);
  for (guint64 s = 0; s < (count - 1) / seq; s++)
    check_places (opened, s * seq, seq, expected, (const gint32 *)(gpointer)owners->data,
                  expected[count / 2], &unused);
  g_unlink (idx);
  g_unlink (bin);
}
END_TEST

/* Changes of one field of the index of three sequences, of 3, 0 and 2 tokens of 16 bits: where, how
 * many bytes, and what error they lead to. */
static const struct
{
  guint at, bytes;
  gint64 value;
  const char *message;
} wrong[] = {
  { 0, 1, 'X', "magic: the file does not begin with MMIDIDX" },
  { 8, 1, 1, "magic: " },
  { 9, 8, 2, "version: 2 is not known: it must be 1" },
  { 17, 1, 0, "dtype: code 0 is no type of tokens: it must be 1 (uint8), " },
  { 17, 1, 6, "dtype: code 6 (float64) is no type of tokens" },
  { 17, 1, 7, "dtype: code 7 (float32) is no type of tokens" },
  { 17, 1, 9, "dtype: code 9 is no type of tokens" },
  { 18, 8, 4, "4 sequences of 12 bytes and 4 indices of 8 are more than the 68 bytes" },
  { 18, 8, -1, "the file is truncated" },
  { 18, 8, 2, "12 bytes are behind the last document's index, where the file must end" },
  { 26, 8, 0, "document count: 0 is too few" },
  { 26, 8, 5, "the file is truncated" },
  { 26, 8, G_MAXINT64, "the file is truncated" },
  { 34, 4, -3, "sequence lengths: -3 of sequence 0 is below 0" },
  { 38, 4, 1, "sequence pointers: sequence 2 begins at byte 6: it must be 8, where those" },
  { 46, 8, 2, "sequence pointers: sequence 0 begins at byte 2: it must be 0" },
  { 62, 8, -6, "sequence pointers: sequence 2 begins at byte -6: it must be 6" },
  { 70, 8, 1, "document indices: 1 at place 0: it must be from 0 to 0" },
  { 78, 8, 3, "document indices: 2 at place 2: it must be from 3 to 3" },
  { 86, 8, 4, "document indices: 4 at place 2: it must be from 1 to 3" },
  { 94, 8, 2, "document indices: the last is 2: it must be 3, the sequence count" },
};

START_TEST (wrong_fields_are_named)
{
  const gint32 lengths[] = { 3, 0, 2 };
  g_autoptr (GByteArray) index = make_index (8, 2, lengths, 3);
  g_autoptr (GError) error = NULL;
  ExecIndexed indexed;
  ck_assert (exec_indexed_parse (index->data, index->len, "a.idx", &indexed, &error));
  ck_assert_uint_eq (indexed.tokens, 5);
  ck_assert_uint_eq (indexed.documents, 3);
  const gint64 little = GINT64_TO_LE (wrong[_i].value);
  memcpy (index->data + wrong[_i].at, &little, wrong[_i].bytes);
  ck_assert (!exec_indexed_parse (index->data, index->len, "a.idx", &indexed, &error));
  ck_assert (g_error_matches (error, PLAN_ERROR, PLAN_ERROR_INVALID));
  ck_assert_msg (g_str_has_prefix (error->message, "a.idx: ")
                     && strstr (error->message, wrong[_i].message),
                 "%s", error->message);
}
END_TEST

/* An index that lacks its last bytes is refused, and so is one that something follows. */
START_TEST (other_sizes_are_refused)
{
  const gint32 lengths[] = { 3, 0, 2 };
  g_autoptr (GByteArray) index = make_index (8, 2, lengths, 3);
  ExecIndexed indexed;
  for (guint size = 0; size < index->len; size++)
    {
      g_autofree guint8 *part = g_memdup2 (index->data, size);
      ck_assert (!exec_indexed_parse (part, size, "a.idx", &indexed, NULL));
    }
  put (index, 0, 3); /* modes of three sequences */
  ck_assert (!exec_indexed_parse (index->data, index->len, "a.idx", &indexed, NULL));
}
END_TEST

/* An epoch's text: documents one behind the other, in the order of that epoch. */
static GByteArray *
shuffle (const GByteArray *all, const gint32 *lengths, guint n, guint64 epoch, GArray *out_owners)
{
  GByteArray *text = g_byte_array_new ();
  g_array_set_size (out_owners, 0);
  for (guint at = 0; at < n; at++)
    {
      const guint which = (guint)exec_data_shuffle (7, G_MAXUINT64, epoch, n, at);
      guint begin = 0;
      for (guint d = 0; d < which; d++)
        begin += (guint)lengths[d];
      g_byte_array_append (text, all->data + 4 * begin, 4 * (guint)lengths[which]);
      for (gint32 t = 0; t < lengths[which]; t++)
        g_array_append_val (out_owners, which);
    }
  return text;
}

/* Each epoch has its own text, cut into sequences, which come in an order of their own. Epochs are
 * read out of order here: 2, 0, 1. */
START_TEST (documents_are_shuffled_before_they_are_cut)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const guint n = (guint)g_rand_int_range (rand, 1, 40);
  g_autofree gint32 *lengths = g_new (gint32, n);
  g_autoptr (GByteArray) all = g_byte_array_new ();
  g_autoptr (GArray) owners = g_array_new (FALSE, FALSE, sizeof (guint));
  g_autoptr (GError) error = NULL;
  for (guint i = 0; i < n; i++)
    {
      lengths[i] = g_rand_int_range (rand, 0, 9) + (i == 0 ? 3 : 0);
      for (gint32 t = 0; t < lengths[i]; t++)
        put (all, g_rand_int_range (rand, 0, 1000), 4);
    }
  g_autoptr (GByteArray) index = make_index (4, 4, lengths, n);
  g_autofree char *idx = write_file ("set.idx", index), *bin = write_file ("set.bin", all);
  const guint64 count = all->len / 4, seq = 1 + (guint64)_i % MIN (count - 1, 9);
  const guint64 sequences = (count - 1) / seq;
  g_autoptr (ExecBlend) blend = exec_blend_open (idx, "--data", 1000, (gint64)seq, &error);
  ck_assert (blend && exec_blend_shuffle_documents (blend, 7, &error));
  for (guint64 number = 0; number < 3 * sequences; number++)
    {
      const guint64 epoch = (number + 2 * sequences) % (3 * sequences) / sequences;
      const guint64 of_epoch = number % sequences;
      const guint64 at = exec_data_shuffle (7, 0, epoch, sequences, of_epoch) * seq;
      g_autoptr (GByteArray) text = shuffle (all, lengths, n, epoch, owners);
      gint32 in[9], next[9], places[9];
      ck_assert (
          exec_blend_read (blend, (epoch * sequences + of_epoch) * seq, in, next, places, &error));
      ck_assert (memcmp (in, text->data + 4 * at, seq * 4) == 0);
      ck_assert (memcmp (next, text->data + 4 * (at + 1), seq * 4) == 0);
      for (guint64 t = 0; t < seq; t++)
        {
          gint32 before = 0;
          while (before < (gint32)t
                 && g_array_index (owners, guint, at + t - 1 - (guint64)before)
                        == g_array_index (owners, guint, at + t))
            before++;
          ck_assert_int_eq (places[t], before);
        }
    }
  g_unlink (idx);
  g_unlink (bin);
}
END_TEST

static void
assert_refused (const char *name, const char *message)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *path = g_build_filename (folder, name, NULL);
  ck_assert (!exec_tokens_open (path, 300, 4, &error));
  ck_assert_msg (strstr (error->message, message) != NULL, "%s", error->message);
}

/* A .bin without an index is a plain file of tokens; beside an index it must be as long as that
 * says. */
START_TEST (both_files_belong_together)
{
  const gint32 lengths[] = { 4, 4 };
  g_autoptr (GByteArray) index = make_index (4, 4, lengths, 2), tokens = g_byte_array_new ();
  g_autofree char *bin = NULL, *idx = write_file ("set.idx", index);
  assert_refused ("set", "set.bin: No such file");
  assert_refused ("set.idx", "set.bin: No such file");
  assert_refused ("none", "none: No such file");
  for (gint t = 0; t < 7; t++)
    put (tokens, t == 2 ? -1 : 1, 4);
  bin = write_file ("set.bin", tokens);
  assert_refused ("set", "28 bytes, and its index has 8 tokens of 4 bytes: it must have 32: the "
                         "file is truncated");
  put (tokens, 1, 8);
  g_free (bin);
  bin = write_file ("set.bin", tokens);
  assert_refused ("set", "set.bin: 36 bytes, and its index has 8 tokens of 4 bytes: it must have "
                         "32: the file is of another index");
  g_byte_array_set_size (tokens, 32);
  g_free (bin);
  bin = write_file ("set.bin", tokens);
  gint32 in[4], next[4];
  g_autoptr (GError) error = NULL;
  g_autoptr (ExecTokens) opened = exec_tokens_open (bin, 300, 4, NULL);
  ck_assert (!exec_tokens_read (opened, NULL, 0, in, next, &error));
  ck_assert_msg (strstr (error->message, "token -1 at place 2 is outside the model's vocabulary"),
                 "%s", error->message);
  g_unlink (idx);
  g_autoptr (ExecTokens) plain = exec_tokens_open (bin, 300, 4, NULL);
  ck_assert_uint_eq (exec_tokens_sequences (plain), 3); /* 16 tokens of 16 bits */
  g_unlink (bin);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("indexed");
  TCase *tcase = tcase_create ("files");
  tcase_add_unchecked_fixture (tcase, make_folder, remove_folder);
  tcase_add_loop_test (tcase, windows_go_over_the_concatenation, 0, 200);
  tcase_add_loop_test (tcase, documents_are_shuffled_before_they_are_cut, 0, 40);
  tcase_add_loop_test (tcase, wrong_fields_are_named, 0, G_N_ELEMENTS (wrong));
  tcase_add_test (tcase, other_sizes_are_refused);
  tcase_add_test (tcase, both_files_belong_together);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
