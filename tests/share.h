/* Tests that go over many cases may run a share of them: one case in FSDPLAN_SHARE. Who runs all
 * tests several times, say in builds with other flags, need not run each case every time. With
 * sanitizers, which make a case several times as slow, the share is one in five unless
 * FSDPLAN_SHARE says otherwise: that finds most of what they can find. A share that has no factor
 * in common with the numbers of what cases are made of (strategies, ranks) leaves some of each. */
#pragma once
#include <check.h>
#include <glib.h>
G_BEGIN_DECLS

/* One in how many cases is to be run. */
static inline guint
test_share (void)
{
  const char *asked = g_getenv ("FSDPLAN_SHARE");
  guint64 share = 1;
#ifdef __SANITIZE_ADDRESS__
  share = 5;
#endif
  if (asked && !g_ascii_string_to_unsigned (asked, 10, 1, 1000, &share, NULL))
    g_error ("FSDPLAN_SHARE=%s is no number from 1 to 1000", asked);
  return (guint)share;
}

/* Adds a loop test of `n` cases, of which it runs the first of every `share`. */
static inline void
test_add_one_in (TCase *tcase, const TTest *test, guint n, guint share)
{
  for (guint i = 0; i < n; i += share)
    tcase_add_loop_test (tcase, test, (int)i, (int)i + 1);
}

static inline void
test_add_share (TCase *tcase, const TTest *test, guint n)
{
  test_add_one_in (tcase, test, n, test_share ());
}

/* Adds a test whose cases are whole runs on a fake device, which sanitizers make ten times as slow:
 * with them at most one case in 17 is run. */
static inline void
test_add_run_share (TCase *tcase, const TTest *test, guint n)
{
#ifdef __SANITIZE_ADDRESS__
  test_add_one_in (tcase, test, n, MAX (test_share (), 17));
#else
  test_add_share (tcase, test, n);
#endif
}

/* One in how many whole runs, searches, or sizes of a kernel, is made: at least one in five, with
 * sanitizers one in seven, both having no factor in common with what these cases are made of, and
 * each by FSDPLAN_SHARE=1. */
static inline guint
test_share_of_runs (void)
{
#ifdef __SANITIZE_ADDRESS__
  return MIN (test_share (), 7);
#else
  return MIN (test_share (), 5);
#endif
}

static inline void
test_add_runs (TCase *tcase, const TTest *test, guint n)
{
  test_add_one_in (tcase, test, n, test_share_of_runs ());
}

G_END_DECLS
