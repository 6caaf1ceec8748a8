/* SPDX-License-Identifier: Apache-2.0 */
/* Costs of products and norms: how they grow with sizes, and interpolation between measured
 * products.
 */
#include "config.h"

#include "sim/cost/cost.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* A multiple of 16, of any magnitude up to 17 thousand. */
static gint64
random_size (GRand *rand)
{
  return 16 * (G_GINT64_CONSTANT (1) << g_rand_int_range (rand, 0, 11))
         + 16 * g_rand_int_range (rand, 0, 64);
}

static gint64
product_ns (const PlanCluster *cluster, gint64 m, gint64 n, gint64 k, gint64 layout,
            const char *dtype)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *text = g_strdup_printf (
      "schedule 2 rank=0 ranks=1\n"
      "buffer out elements=%" G_GINT64_FORMAT " dtype=bf16 category=activations\n"
      "buffer a elements=%" G_GINT64_FORMAT " dtype=%s category=activations\n"
      "buffer b elements=%" G_GINT64_FORMAT " dtype=%s category=weights\n"
      "section setup\ngemm compute out=out a=a b=b m=%" G_GINT64_FORMAT " n=%" G_GINT64_FORMAT
      " k=%" G_GINT64_FORMAT " layout=%" G_GINT64_FORMAT "\nsection step\nsection teardown\n",
      m * n, m * k, dtype, n * k, dtype, m, n, k, layout);
  g_autoptr (PlanSchedule) schedule = plan_schedule_parse (text, "text", &error);
  ck_assert_msg (schedule != NULL, "%s", error ? error->message : "");
  const PlanStack stack = { .memory.allocation_bytes = 1 };
  const SimCostInput input = { .schedule = schedule, .cluster = cluster, .stack = &stack };
  g_autoptr (SimCost) cost = sim_cost_new (&input, &error);
  ck_assert_msg (cost != NULL, "%s", error ? error->message : "");
  return sim_cost_ns (cost, 0);
}

/* More work is never faster, no format beats its data sheet, and half the rate takes longer. */
START_TEST (products_grow_with_size)
{
  static const char *const clusters[] = { "dgx-h100:1", "dgx-b200:1", "dgx-a100:1" };
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  g_autoptr (PlanCluster) cluster = plan_cluster_new (clusters[_i % 3], NULL);
  const gboolean is_fp8 = _i % 3 != 2 && _i % 2;
  const char *dtype = is_fp8 ? "e4m3" : "bf16";
  const gint64 layout = is_fp8 ? 1 : _i % 3;
  const gint64 m = random_size (rand), n = random_size (rand), k = random_size (rand);
  const gint64 ns = product_ns (cluster, m, n, k, layout, dtype);
  double *peak = &cluster->peak_flops[is_fp8 ? PLAN_DTYPE_E4M3 : PLAN_DTYPE_BF16];
  ck_assert_msg ((double)ns > 2e9 * (double)m * (double)n * (double)k / *peak, "seed %d", _i);
  ck_assert_int_ge (product_ns (cluster, m + random_size (rand), n, k, layout, dtype), ns);
  ck_assert_int_ge (product_ns (cluster, m, n + random_size (rand), k, layout, dtype), ns);
  ck_assert_int_ge (product_ns (cluster, m, n, k + random_size (rand), layout, dtype), ns);
  *peak /= 2;
  ck_assert_int_ge (product_ns (cluster, m, n, k, layout, dtype), ns);
  cluster->memory_bytes_per_s /= 2;
  ck_assert_int_ge (product_ns (cluster, m, n, k, layout, dtype), ns);
}
END_TEST

/* A sum, plain norms, and norms that also add, all of the same matrices. */
enum
{
  ADD,
  NORM,
  ADD_NORM,
  NORM_BWD,
  NORM_BWD_ADD,
  N_NORM_OPS
};

static void
norm_ns (const PlanCluster *cluster, gint64 rows, gint64 cols, const char *dtype,
         gint64 out_ns[N_NORM_OPS])
{
  g_autoptr (GError) error = NULL;
  g_autofree char *buffers
      = g_strdup_printf ("schedule 2 rank=0 ranks=1\n"
                         "buffer m elements=%" G_GINT64_FORMAT " dtype=%s category=activations\n"
                         "buffer w elements=%" G_GINT64_FORMAT " dtype=%s category=weights\n"
                         "buffer s elements=%" G_GINT64_FORMAT " dtype=fp32 category=activations\n",
                         rows * cols, dtype, cols, dtype, rows);
  g_autofree char *dims
      = g_strdup_printf ("rows=%" G_GINT64_FORMAT " cols=%" G_GINT64_FORMAT, rows, cols);
  g_autofree char *text = g_strdup_printf (
      "%ssection setup\nadd compute out=m a=m b=m count=%" G_GINT64_FORMAT "\n"
      "rmsnorm compute out=m rstd=s in=m weight=w %s\n"
      "add_rmsnorm compute out=m rstd=s sum=m a=m b=m weight=w %s\n"
      "rmsnorm_bwd compute din=m dweight=w dout=m in=m weight=w rstd=s %s\n"
      "rmsnorm_bwd compute din=m dweight=w dout=m in=m weight=w rstd=s add=m %s\n"
      "section step\nsection teardown\n",
      buffers, rows * cols, dims, dims, dims, dims);
  g_autoptr (PlanSchedule) schedule = plan_schedule_parse (text, "text", &error);
  ck_assert_msg (schedule != NULL, "%s", error ? error->message : "");
  const PlanStack stack = { .memory.allocation_bytes = 1 };
  const SimCostInput input = { .schedule = schedule, .cluster = cluster, .stack = &stack };
  g_autoptr (SimCost) cost = sim_cost_new (&input, &error);
  ck_assert_msg (cost != NULL, "%s", error ? error->message : "");
  for (guint i = 0; i < N_NORM_OPS; i++)
    out_ns[i] = sim_cost_ns (cost, i);
}

/* A norm that also adds takes longer than a plain norm, and less than a plain norm and a sum. */
START_TEST (sums_in_norms_are_cheaper)
{
  static const char *const clusters[] = { "dgx-h100:1", "dgx-b200:1", "dgx-a100:1" };
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  g_autoptr (PlanCluster) cluster = plan_cluster_new (clusters[_i % 3], NULL);
  gint64 ns[N_NORM_OPS];
  norm_ns (cluster, random_size (rand), random_size (rand), _i % 2 ? "fp32" : "bf16", ns);
  ck_assert_int_gt (ns[ADD_NORM], ns[NORM]);
  ck_assert_int_lt (ns[ADD_NORM], ns[ADD] + ns[NORM]);
  ck_assert_int_gt (ns[NORM_BWD_ADD], ns[NORM_BWD]);
  ck_assert_int_lt (ns[NORM_BWD_ADD], ns[ADD] + ns[NORM_BWD]);
}
END_TEST

#define N_ROWS 40

/* What lies between measured shapes lies between their rates, and no order of the rows matters. */
START_TEST (interpolation_stays_between_its_rows)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  SimProduct rows[N_ROWS], reversed[N_ROWS];
  double least = G_MAXDOUBLE, most = 0;
  for (guint i = 0; i < N_ROWS; i++)
    {
      rows[i] = (SimProduct){ .m = random_size (rand),
                              .n = random_size (rand),
                              .k = random_size (rand),
                              .layout = g_rand_int_range (rand, 0, 2),
                              .in = PLAN_DTYPE_BF16,
                              .out = PLAN_DTYPE_BF16,
                              .flops_per_s = g_rand_double_range (rand, 1e12, 1e15) };
      reversed[N_ROWS - 1 - i] = rows[i];
      least = MIN (least, rows[i].flops_per_s);
      most = MAX (most, rows[i].flops_per_s);
    }
  g_autoptr (SimMeasurements) one = sim_measurements_new (rows, N_ROWS);
  g_autoptr (SimMeasurements) other = sim_measurements_new (reversed, N_ROWS);
  for (guint i = 0; i < 100; i++)
    {
      SimProduct shape = rows[i % N_ROWS];
      double rate = 0, again = 0;
      ck_assert (sim_measurements_find (one, &shape, &rate));
      shape.m = random_size (rand);
      shape.n = random_size (rand);
      shape.k = random_size (rand);
      const gboolean known = sim_measurements_interpolate (one, &shape, &rate);
      ck_assert_int_eq (known, sim_measurements_interpolate (other, &shape, &again));
      ck_assert (!known
                 || (rate == again && rate >= least * (1 - 1e-9) && rate <= most * (1 + 1e-9)));
    }
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("prop-cost");
  TCase *tcase = tcase_create ("random");
  tcase_add_loop_test (tcase, products_grow_with_size, 0, 300);
  tcase_add_loop_test (tcase, sums_in_norms_are_cheaper, 0, 60);
  tcase_add_loop_test (tcase, interpolation_stays_between_its_rows, 0, 50);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
