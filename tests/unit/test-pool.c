/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's pool of threads: each part of a job is done once, and no two threads with the same
 * number run at the same time. */
#include "config.h"

#include "exec/cpu/pool.h"
#include "exec/probe/cores.h"

#include <check.h>
#include <glib/gstdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_PARTS 300
#define MOST_THREADS 9

typedef struct
{
  gint done[MOST_PARTS], inside[MOST_THREADS];
  gint wrong, threads_inside;
  guint workers;
} Count;

static void
count_part (gpointer data, guint64 part, guint worker)
{
  Count *self = data;
  if (worker >= self->workers || g_atomic_int_add (&self->inside[worker], 1) != 0)
    g_atomic_int_inc (&self->wrong);
  g_atomic_int_inc (&self->done[part]);
  if (exec_pool_threads () != 1)
    g_atomic_int_inc (&self->threads_inside);
  g_atomic_int_add (&self->inside[worker], -1);
}

static void
check_parts (guint64 parts, guint workers, guint threads)
{
  Count count = { .workers = MAX (MIN (workers, threads), 1) };
  exec_pool_run (parts, workers, count_part, &count);
  for (guint64 p = 0; p < MOST_PARTS; p++)
    ck_assert_int_eq (count.done[p], p < parts);
  ck_assert_int_eq (count.wrong, 0);
  ck_assert (threads == 1 || MIN (parts, workers) <= 1 || count.threads_inside == 0);
}

START_TEST (does_each_part_once)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const guint threads = (guint)_i % MOST_THREADS + 1;
  check_parts (5, G_MAXUINT, 1);
  ck_assert (exec_pool_open (threads, NULL));
  ck_assert_uint_eq (exec_pool_threads (), threads);
  for (guint i = 0; i < 200; i++)
    check_parts ((guint64)g_rand_int_range (rand, 0, MOST_PARTS),
                 (guint)g_rand_int_range (rand, 1, MOST_THREADS + 2), threads);
  exec_pool_close ();
  ck_assert_uint_eq (exec_pool_threads (), 1);
  check_parts (5, G_MAXUINT, 1);
}
END_TEST

/* A part that runs a job of its own: it adds up the numbers of all pairs. */
static void
add_part (gpointer data, guint64 part, guint worker)
{
  exec_pool_lock ();
  *(guint64 *)data += part;
  exec_pool_unlock ();
}

static void
nest_part (gpointer data, guint64 part, guint worker)
{
  exec_pool_run (part, G_MAXUINT, add_part, data);
}

START_TEST (parts_run_their_own_parts)
{
  guint64 sum = 0, expected = 0;
  ck_assert (exec_pool_open (3, NULL));
  exec_pool_run (40, G_MAXUINT, nest_part, &sum);
  for (guint64 part = 0; part < 40; part++)
    for (guint64 i = 0; i < part; i++)
      expected += i;
  ck_assert_uint_eq (sum, expected);
  exec_pool_close ();
}
END_TEST

START_TEST (opens_once_and_closes_as_often)
{
  ck_assert (exec_pool_open (2, NULL));
  ck_assert (exec_pool_open (7, NULL));
  ck_assert_uint_eq (exec_pool_threads (), 2);
  exec_pool_close ();
  ck_assert_uint_eq (exec_pool_threads (), 2);
  exec_pool_close ();
  ck_assert_uint_eq (exec_pool_threads (), 1);
  ck_assert_ptr_null (exec_pool_scratch (64));
}
END_TEST

/* Each thread writes its own scratch, and finds what it has written. */
static void
fill_scratch (gpointer data, guint64 part, guint worker)
{
  guint8 *scratch = (guint8 *)data + worker * 1000;
  memset (scratch, (int)part, 1000);
  for (guint i = 0; i < 1000; i++)
    ck_assert_uint_eq (scratch[i], (guint8)part);
}

START_TEST (threads_have_scratch_of_their_own)
{
  ck_assert (exec_pool_open (4, NULL));
  void *small = exec_pool_scratch (10);
  ck_assert_ptr_eq (exec_pool_scratch (5), small);
  exec_pool_run (200, G_MAXUINT, fill_scratch, exec_pool_scratch (1000));
  exec_pool_close ();
}
END_TEST

/* --- cores -------------------------------------------------------------------------------- */

static void
write_quota (const char *folder, const char *group, const char *text)
{
  g_autofree char *path = g_build_filename (folder, group, NULL);
  g_autofree char *file = g_build_filename (path, "cpu.max", NULL);
  ck_assert_int_eq (g_mkdir_with_parents (path, 0700), 0);
  ck_assert (g_file_set_contents (file, text, -1, NULL));
}

START_TEST (takes_the_least_quota_of_all_groups_around)
{
  g_autofree char *folder = g_dir_make_tmp ("test-pool-XXXXXX", NULL);
  static const char *const groups[] = { "job/step", "job", "" };
  ck_assert_uint_eq (exec_cores_read_quota (folder, "0::/job/step\n"), 0);
  write_quota (folder, "job/step", "max 100000\n");
  ck_assert_uint_eq (exec_cores_read_quota (folder, "0::/job/step\n"), 0);
  write_quota (folder, "job", "350000 100000\n");
  ck_assert_uint_eq (exec_cores_read_quota (folder, "0::/job/step\n"), 3);
  write_quota (folder, "job/step", "50000 100000\n");
  ck_assert_uint_eq (exec_cores_read_quota (folder, "1:name=x:/y\n0::/job/step\n"), 1);
  write_quota (folder, "", "200000 100000\n");
  ck_assert_uint_eq (exec_cores_read_quota (folder, NULL), 2);
  ck_assert_uint_eq (exec_cores_read_quota (folder, "0::/job\n"), 2);
  ck_assert_uint_eq (exec_cores_read_quota (folder, "0::/other\n"), 2);
  for (guint i = 0; i < G_N_ELEMENTS (groups); i++)
    {
      g_autofree char *path = g_build_filename (folder, groups[i], NULL);
      g_autofree char *file = g_build_filename (path, "cpu.max", NULL);
      g_unlink (file);
      g_rmdir (path);
    }
}
END_TEST

START_TEST (counts_what_a_mask_and_a_quota_leave)
{
  ExecCores a = { .mask = { 0x0f }, .quota = 0 }, b = { .mask = { 0x18, 0x80 }, .quota = 5 };
  ExecCores none = { .quota = 0 };
  ck_assert_uint_eq (exec_cores_count (&a), 4);
  ck_assert_uint_eq (exec_cores_count (&b), 3);
  ck_assert_uint_eq (exec_cores_count (&none), 1);
  exec_cores_join (&a, &b);
  ck_assert_uint_eq (exec_cores_count (&a), 5);
  b.quota = 2;
  exec_cores_join (&a, &b);
  ck_assert_uint_eq (exec_cores_count (&a), 2);
  exec_cores_read (&a);
  ck_assert_uint_ge (exec_cores_count (&a), 1);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("pool");
  TCase *tcase = tcase_create ("pool");
  SRunner *runner;

  tcase_add_loop_test (tcase, does_each_part_once, 0, 2 * MOST_THREADS);
  tcase_add_test (tcase, parts_run_their_own_parts);
  tcase_add_test (tcase, opens_once_and_closes_as_often);
  tcase_add_test (tcase, threads_have_scratch_of_their_own);
  tcase_add_test (tcase, takes_the_least_quota_of_all_groups_around);
  tcase_add_test (tcase, counts_what_a_mask_and_a_quota_leave);
  suite_add_tcase (suite, tcase);
  runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
