/* Tests that go over many cases may run a share of them: one in FSDPLAN_SHARE. Who runs everything
 * several times, with other compilers' flags say, need not see each case every time; sanitizers,
 * which make one several times as slow, see most of what there is to see in a fifth. A number that
 * is prime to what cases are made of (strategies, ranks) leaves some of each. */
#pragma once
#include <check.h>
#include <glib.h>
G_BEGIN_DECLS

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

/* Of whole runs on a fake device, which sanitizers make ten times as slow. */
static inline void
test_add_run_share (TCase *tcase, const TTest *test, guint n)
{
#ifdef __SANITIZE_ADDRESS__
  test_add_one_in (tcase, test, n, MAX (test_share (), 17));
#else
  test_add_share (tcase, test, n);
#endif
}

/* Of whole runs that are all done without sanitizers; with them one in five, as five is prime to
 * what cases are made of there, or all by FSDPLAN_SHARE=1. */
static inline void
test_add_runs (TCase *tcase, const TTest *test, guint n)
{
#ifdef __SANITIZE_ADDRESS__
  test_add_one_in (tcase, test, n, MIN (test_share (), 5));
#else
  test_add_one_in (tcase, test, n, 1);
#endif
}

G_END_DECLS
