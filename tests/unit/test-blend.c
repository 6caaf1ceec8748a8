/* SPDX-License-Identifier: Apache-2.0 */
/* Blends of sources. Every token encodes its source and its place there, so what is read can be
 * checked without knowing the order. */
#include "config.h"

#include "exec/data/blend.h"
#include "exec/data/data.h"
#include "planner/base/error.h"

#include <check.h>
#include <glib/gstdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_SOURCES 6
#define PLACES 1000 /* a file has fewer tokens than this */
#define VOCAB (MOST_SOURCES * PLACES)

static char *folder;

static void
make_folder (void)
{
  folder = g_dir_make_tmp ("test-blend-XXXXXX", NULL);
}

static void
remove_folder (void)
{
  g_rmdir (folder);
  g_free (folder);
}

static char *
make_source (const char *name, guint source, guint count)
{
  char *path = g_build_filename (folder, name, NULL);
  g_autofree guint16 *tokens = g_new (guint16, count);
  for (guint i = 0; i < count; i++)
    tokens[i] = GUINT16_TO_LE ((guint16)(source * PLACES + i));
  ck_assert (g_file_set_contents (path, (const char *)tokens, (gssize)(2 * count), NULL));
  return path;
}

/* Each epoch has every sequence once, in an order of its own. */
START_TEST (shuffling_permutes)
{
  const guint64 n = (guint64)_i + 1;
  g_autofree guint64 *order = g_new (guint64, 3 * n);
  for (guint64 epoch = 0; epoch < 3; epoch++)
    {
      g_autofree gboolean *met = g_new0 (gboolean, n);
      for (guint64 at = 0; at < n; at++)
        {
          const guint64 place = exec_data_shuffle (7, 1, epoch, n, at);
          ck_assert_uint_lt (place, n);
          ck_assert (!met[place]);
          met[place] = TRUE;
          order[epoch * n + at] = place;
        }
    }
  if (n < 10)
    return;
  ck_assert (memcmp (order, order + n, n * sizeof *order) != 0);
  ck_assert (memcmp (order + n, order + 2 * n, n * sizeof *order) != 0);
  guint other_seed = 0, other_source = 0;
  for (guint64 at = 0; at < n; at++)
    {
      other_seed += exec_data_shuffle (8, 1, 0, n, at) != order[at];
      other_source += exec_data_shuffle (7, 2, 0, n, at) != order[at];
    }
  ck_assert_uint_gt (other_seed, 0);
  ck_assert_uint_gt (other_source, 0);
}
END_TEST

/* A random order moves each element by a third of the length on average, leaves few where they
 * were, and few next to each other. */
START_TEST (shuffling_goes_far)
{
  static const guint64 sizes[] = { 1000, 1024, 4097, 100000 };
  const guint64 n = sizes[_i];
  double moved = 0;
  guint kept = 0, followed = 0;
  for (guint64 at = 0; at < n; at++)
    {
      const guint64 place = exec_data_shuffle (1, 0, 0, n, at);
      moved += place > at ? (double)(place - at) : (double)(at - place);
      kept += place == at;
      followed += exec_data_shuffle (1, 0, 0, n, (at + 1) % n) == place + 1;
    }
  ck_assert_double_eq_tol (moved / (double)n / (double)n, 1.0 / 3, 0.02);
  ck_assert_uint_lt (kept, 8);
  ck_assert_uint_lt (followed, 8);
}
END_TEST

START_TEST (many_sequences_are_shuffled)
{
  const guint64 n = G_GUINT64_CONSTANT (1) << (33 + _i), odd = n - 12345;
  for (guint64 at = 0; at < 100; at++)
    {
      const guint64 place = exec_data_shuffle (1, 0, 0, odd, odd - 1 - at);
      ck_assert_uint_lt (place, odd);
      ck_assert_uint_ne (place, exec_data_shuffle (1, 0, 0, odd, at));
    }
}
END_TEST

/* A blend of random sources. */
typedef struct
{
  guint n, sequences[MOST_SOURCES], seq;
  double weight[MOST_SOURCES], sum;
  char *path[MOST_SOURCES];
  ExecBlend *blend;
} Case;

static void
case_init (Case *c, guint32 seed)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (seed);
  g_autoptr (GString) spec = g_string_new (NULL);
  g_autoptr (GError) error = NULL;
  *c = (Case){ .n = (guint)g_rand_int_range (rand, 1, MOST_SOURCES + 1),
               .seq = (guint)g_rand_int_range (rand, 1, 6) };
  for (guint i = 0; i < c->n; i++)
    {
      g_autofree char *name = g_strdup_printf ("%u.u16", i);
      c->sequences[i] = (guint)g_rand_int_range (rand, 1, 30);
      c->path[i] = make_source (name, i, c->sequences[i] * c->seq + 1);
      c->weight[i] = g_rand_int_range (rand, 1, seed % 2 ? 12 : 1000) / 100.0;
      c->sum += c->weight[i];
      g_string_append_printf (spec, "%s%.2f:%s", i > 0 ? "," : "", c->weight[i], c->path[i]);
    }
  c->blend = exec_blend_open (c->n > 1 ? spec->str : c->path[0], "--data", VOCAB, c->seq, &error);
  ck_assert_msg (c->blend != NULL, "%s", error ? error->message : "");
  if (seed % 3 > 0)
    exec_blend_shuffle (c->blend, seed);
}

static void
case_clear (Case *c)
{
  exec_blend_free (c->blend);
  for (guint i = 0; i < c->n; i++)
    {
      g_unlink (c->path[i]);
      g_free (c->path[i]);
    }
}

/* Reads a sequence and returns its first token; checks that the others follow it in the file. */
static guint
read_at (const Case *c, guint64 sequence)
{
  gint32 in[8], next[8];
  ck_assert (exec_blend_read (c->blend, sequence * c->seq, in, next, NULL, NULL));
  for (gint32 t = 0; t < (gint32)c->seq; t++)
    {
      ck_assert_int_eq (in[t], in[0] + t);
      ck_assert_int_eq (next[t], in[0] + t + 1);
    }
  return (guint)in[0];
}

/* Before every place each source has had its share of what was read, to less than one sequence, and
 * all of its own sequences before any of them again. Places are asked for in another order than
 * they come. */
START_TEST (sources_have_their_shares)
{
  enum
  {
    LENGTH = 601
  };
  Case c;
  guint first[LENGTH], taken[MOST_SOURCES] = { 0 }, in_order = 0;
  gboolean met[MOST_SOURCES][32] = { { FALSE } };
  case_init (&c, (guint32)_i);
  for (guint64 i = 0; i < LENGTH; i++)
    first[i * 7 % LENGTH] = read_at (&c, i * 7 % LENGTH);
  for (guint64 s = 0; s < LENGTH; s++)
    {
      const guint source = first[s] / PLACES, place = first[s] % PLACES / c.seq;
      ck_assert_uint_eq (first[s] % PLACES % c.seq, 0);
      if (taken[source] % c.sequences[source] == 0)
        memset (met[source], 0, sizeof met[source]);
      ck_assert (!met[source][place]);
      met[source][place] = TRUE;
      in_order += place == taken[source] % c.sequences[source];
      taken[source]++;
      for (guint i = 0; i < c.n; i++)
        {
          const double part = c.weight[i] / c.sum * (double)(s + 1);
          ck_assert_double_lt (part - 1, taken[i] + 1e-6);
          ck_assert_double_gt (part + 1, taken[i] - 1e-6);
          ck_assert_uint_eq (exec_blend_taken (c.blend, i, s + 1), taken[i]);
        }
    }
  if (!c.blend->is_shuffled)
    ck_assert_uint_eq (in_order, LENGTH);
  case_clear (&c);
}
END_TEST

START_TEST (epochs_end_before_any_source_begins_another)
{
  Case c;
  case_init (&c, (guint32)_i);
  for (guint64 epochs = 1; epochs < 4; epochs++)
    {
      const guint64 all = exec_blend_sequences (c.blend, epochs);
      guint beyond = 0;
      for (guint i = 0; i < c.n; i++)
        {
          ck_assert_uint_le (exec_blend_taken (c.blend, i, all), epochs * c.sequences[i]);
          beyond += exec_blend_taken (c.blend, i, all + 1) > epochs * c.sequences[i];
        }
      ck_assert_uint_eq (beyond, 1);
    }
  case_clear (&c);
}
END_TEST

static ExecBlend *
open_spec (const char *format, const char *path)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *spec = g_strdup_printf (format, path, path, path);
  ExecBlend *blend = exec_blend_open (spec, "--data", VOCAB, 4, &error);
  ck_assert_msg (blend != NULL, "%s", error ? error->message : "");
  return blend;
}

static void
assert_shares (const char *format, const char *path, guint64 a, guint64 b, guint64 period)
{
  g_autoptr (ExecBlend) blend = open_spec (format, path);
  ck_assert_uint_eq (g_array_index (blend->sources, ExecBlendSource, 0).share, a);
  ck_assert_uint_eq (g_array_index (blend->sources, ExecBlendSource, 1).share, b);
  ck_assert_uint_eq (blend->period, period);
}

START_TEST (weights_are_shares)
{
  g_autofree char *path = make_source ("a,b:0.u16", 0, 100);
  g_autoptr (ExecBlend) alone = open_spec ("%s", path);
  ck_assert_uint_eq (alone->sources->len, 1);
  assert_shares ("0.7:%s,0.3:%s", path, 7, 3, 10);
  assert_shares ("70:%s,30:%s", path, 7, 3, 10);
  assert_shares ("1:%s,1:%s,1:%s", path, 1, 1, 3);
  assert_shares ("1000000000:%s,0.000001:%s", path, 1000000, 1, 1000001);
  assert_shares ("123456789:%s,200000000:%s", path, 381679, 618321, 1000000);
  g_unlink (path);
}
END_TEST

/* A checkpoint keeps a description of the order, so that no run continues with another order. */
START_TEST (descriptions_tell_orders_apart)
{
  g_autofree char *path = make_source ("0.u16", 0, 100);
  g_autoptr (ExecBlend) plain = open_spec ("%s", path), two = open_spec ("3:%s,1:%s", path);
  g_autofree char *a = exec_blend_describe (plain), *b = exec_blend_describe (two);
  g_autofree char *file
      = exec_tokens_describe (g_array_index (plain->sources, ExecBlendSource, 0).tokens);
  ck_assert_str_eq (a, file); /* as in the checkpoints of all versions */
  g_autofree char *expected
      = g_strdup_printf ("3 of 4 from %s; 1 of 4 from %s; in sequences of 4", file, file);
  ck_assert_str_eq (b, expected);
  exec_blend_shuffle (plain, 9);
  g_autofree char *shuffled = exec_blend_describe (plain);
  g_autofree char *with_seed = g_strdup_printf ("%s; in sequences of 4 shuffled by seed 9", file);
  ck_assert_str_eq (shuffled, with_seed);
  g_unlink (path);
}
END_TEST

START_TEST (wrong_sources_are_refused)
{
  static const struct
  {
    const char *spec, *message;
  } cases[] = { { "0:a", "--data: weight of a: '0' is out of range" },
                { "0.5:none.u16,0.5:b", "none.u16: No such file" },
                { "1..2:a", "--data: weight of a: '1..2' is not" },
                { "none.u16,b", "several are WEIGHT:FILE,WEIGHT:FILE" },
                { "0.3 none.u16 0.7 b", "several are WEIGHT:FILE,WEIGHT:FILE" } };
  g_autoptr (GError) error = NULL;
  ck_assert (!exec_blend_open (cases[_i].spec, "--data", VOCAB, 4, &error));
  ck_assert_msg (strstr (error->message, cases[_i].message) != NULL, "%s", error->message);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("blend");
  TCase *tcase = tcase_create ("sources");
  tcase_add_unchecked_fixture (tcase, make_folder, remove_folder);
  tcase_add_loop_test (tcase, shuffling_permutes, 0, 200);
  tcase_add_loop_test (tcase, shuffling_goes_far, 0, 4);
  tcase_add_loop_test (tcase, many_sequences_are_shuffled, 0, 20);
  tcase_add_loop_test (tcase, sources_have_their_shares, 0, 60);
  tcase_add_loop_test (tcase, epochs_end_before_any_source_begins_another, 0, 60);
  tcase_add_test (tcase, weights_are_shares);
  tcase_add_test (tcase, descriptions_tell_orders_apart);
  tcase_add_loop_test (tcase, wrong_sources_are_refused, 0, 5);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
