/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/base/error.h"
#include "sim/cost/cost.h"
#include "sim/cost/timings.h"
#include "tests/case.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static SimTiming
product (gint64 m, gint64 n, gint64 k, double ns)
{
  SimTiming timing = { .kind = PLAN_OP_GEMM, .dims = { m, n, k, 1 }, .ranks = 1, .ns = ns };
  memset (timing.dtype, -1, sizeof timing.dtype);
  for (guint i = 0; i < 3; i++)
    timing.dtype[i] = PLAN_DTYPE_FP32;
  return timing;
}

static SimTiming
copy (gint64 count, guint ranks, double ns)
{
  SimTiming timing = { .kind = PLAN_OP_CAST, .dims = { count }, .ranks = ranks, .ns = ns };
  memset (timing.dtype, -1, sizeof timing.dtype);
  timing.dtype[0] = timing.dtype[1] = PLAN_DTYPE_FP32;
  return timing;
}

static SimTiming
gather (gint64 count, guint ranks, double ns)
{
  SimTiming timing = copy (count, ranks, ns);
  timing.kind = PLAN_OP_ALL_GATHER;
  return timing;
}

static void
expect (const SimTimings *timings, SimTiming op, gint64 cores, double ns, SimTimed how)
{
  double found;
  SimTimed found_how;
  ck_assert (sim_timings_find (timings, &op, cores, &found, &found_how));
  ck_assert_double_eq_tol (found, ns, 1e-9 * ns);
  ck_assert_int_eq (found_how, how);
}

static gboolean
knows (const SimTimings *timings, SimTiming op)
{
  double ns;
  SimTimed how;
  return sim_timings_find (timings, &op, 0, &ns, &how);
}

START_TEST (between_sizes_by_hand)
{
  const SimTiming rows[] = { copy (100, 1, 50), copy (200, 1, 90), copy (400, 1, 250) };
  g_autoptr (SimTimings) timings = sim_timings_new (rows, G_N_ELEMENTS (rows));
  expect (timings, copy (200, 1, 0), 0, 90, SIM_TIMED_AS_IS);
  expect (timings, copy (150, 1, 0), 0, 70, SIM_TIMED_BETWEEN);  /* (50 + 90) / 2 */
  expect (timings, copy (350, 1, 0), 0, 210, SIM_TIMED_BETWEEN); /* 90 + 3/4 x 160 */
  expect (timings, copy (10, 1, 0), 0, 50, SIM_TIMED_BEYOND);
  expect (timings, copy (1200, 1, 0), 0, 750, SIM_TIMED_BEYOND); /* 3 x 250 */
}
END_TEST

/* A time with a constant, the traffic of three matrices, and arithmetic: linear in each size. */
static double
law (double m, double n, double k)
{
  return 1000 + 0.5 * (m * n + m * k + n * k) + 0.01 * m * n * k;
}

START_TEST (products_are_exact_where_costs_add_up)
{
  static const gint64 sizes[] = { 16, 64, 256 };
  SimTiming rows[27];
  guint n = 0;
  for (guint i = 0; i < 27; i++, n++)
    {
      const gint64 *s = sizes;
      rows[n] = product (s[i / 9], s[i / 3 % 3], s[i % 3],
                         law ((double)s[i / 9], (double)s[i / 3 % 3], (double)s[i % 3]));
    }
  g_autoptr (SimTimings) timings = sim_timings_new (rows, n);
  expect (timings, product (16, 256, 64, 0), 0, law (16, 256, 64), SIM_TIMED_AS_IS);
  expect (timings, product (48, 96, 200, 0), 0, law (48, 96, 200), SIM_TIMED_BETWEEN);
  expect (timings, product (17, 255, 18, 0), 0, law (17, 255, 18), SIM_TIMED_BETWEEN);
  expect (timings, product (512, 16, 64, 0), 0, 2 * law (256, 16, 64), SIM_TIMED_BEYOND);
}
END_TEST

START_TEST (what_differs_in_kind_is_not_alike)
{
  SimTiming row = product (16, 16, 16, 100), other = row;
  g_autoptr (SimTimings) timings = sim_timings_new (&row, 1);
  ck_assert (knows (timings, other));
  other.dims[3] = 0; /* layout */
  ck_assert (!knows (timings, other));
  other = row;
  other.dtype[0] = PLAN_DTYPE_BF16;
  ck_assert (!knows (timings, other));
  other = row;
  other.dtype[3] = other.dtype[4] = PLAN_DTYPE_FP32; /* bias and scratch */
  ck_assert (knows (timings, other));
  ck_assert (!knows (timings, copy (16, 1, 0)));
}
END_TEST

/* Two ranks on one node differ from two on two nodes: neither timing is used for the other. */
START_TEST (levels_are_apart)
{
  SimTiming inside = gather (100, 2, 500), across = gather (100, 2, 9000);
  across.nodes = 2;
  const SimTiming rows[] = { inside, across };
  g_autoptr (SimTimings) both = sim_timings_new (rows, 2);
  g_autoptr (SimTimings) one = sim_timings_new (&inside, 1);
  expect (both, inside, 0, 500, SIM_TIMED_AS_IS);
  expect (both, across, 0, 9000, SIM_TIMED_AS_IS);
  ck_assert (!knows (one, across));
  inside.nodes = 1; /* 1 means the same as unset */
  ck_assert (knows (one, inside));
}
END_TEST

START_TEST (the_newest_counts)
{
  const SimTiming rows[] = { copy (100, 1, 50), copy (200, 1, 100), copy (100, 1, 60) };
  g_autoptr (SimTimings) timings = sim_timings_new (rows, G_N_ELEMENTS (rows));
  expect (timings, copy (100, 1, 0), 0, 60, SIM_TIMED_AS_IS);
  expect (timings, copy (150, 1, 0), 0, 80, SIM_TIMED_BETWEEN);
}
END_TEST

/* With more ranks at work than were timed an op takes the same time, until they have to share
 * cores. */
START_TEST (ranks_share_cores)
{
  const SimTiming rows[] = { copy (100, 1, 50), copy (100, 2, 70), gather (100, 2, 500) };
  g_autoptr (SimTimings) timings = sim_timings_new (rows, G_N_ELEMENTS (rows));
  expect (timings, copy (100, 1, 0), 4, 50, SIM_TIMED_AS_IS);
  expect (timings, copy (100, 2, 0), 4, 70, SIM_TIMED_AS_IS);
  expect (timings, copy (100, 4, 0), 4, 70, SIM_TIMED_BETWEEN);
  expect (timings, copy (100, 8, 0), 4, 140, SIM_TIMED_BETWEEN);
  expect (timings, copy (100, 2, 0), 1, 70, SIM_TIMED_AS_IS); /* timed with sharing already */
  expect (timings, copy (100, 4, 0), 1, 140, SIM_TIMED_BETWEEN);
  expect (timings, copy (100, 8, 0), 0, 70, SIM_TIMED_BETWEEN); /* the number of cores is unknown */
  expect (timings, gather (100, 2, 0), 4, 500, SIM_TIMED_AS_IS);
  ck_assert (!knows (timings, gather (100, 4, 0)));
}
END_TEST

/* Attention works on one head after the other: its time is proportional to their number. */
START_TEST (attention_is_by_head)
{
  SimTiming row
      = { .kind = PLAN_OP_ATTENTION, .dims = { 1, 8, 2, 2, 4, 8 }, .ranks = 1, .ns = 100 };
  memset (row.dtype, -1, sizeof row.dtype);
  for (guint i = 0; i < 3; i++)
    row.dtype[i] = PLAN_DTYPE_FP32;
  g_autoptr (SimTimings) timings = sim_timings_new (&row, 1);
  SimTiming more = row;
  more.dims[0] = 3;
  more.dims[2] = 4;
  more.dims[3] = 1;
  expect (timings, more, 0, 600, SIM_TIMED_AS_IS);
}
END_TEST

/* Gaps are filled and noise is smoothed: no time is negative, and more never takes less. */
START_TEST (times_are_positive_and_never_fall)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  SimTiming rows[40];
  const guint n = (guint)g_rand_int_range (rand, 1, 41);
  for (guint i = 0; i < n; i++)
    {
      gint64 size[3];
      for (guint d = 0; d < 3; d++)
        size[d] = G_GINT64_CONSTANT (1) << g_rand_int_range (rand, 0, 9);
      rows[i] = product (size[0], size[1], size[2], g_rand_double_range (rand, 1, 1e6));
    }
  g_autoptr (SimTimings) timings = sim_timings_new (rows, n);
  for (guint i = 0; i < 200; i++)
    {
      SimTiming small = product (g_rand_int_range (rand, 1, 600), g_rand_int_range (rand, 1, 600),
                                 g_rand_int_range (rand, 1, 600), 0);
      SimTiming large = small;
      double small_ns, large_ns;
      SimTimed how;
      large.dims[g_rand_int_range (rand, 0, 3)] += g_rand_int_range (rand, 0, 200);
      ck_assert (sim_timings_find (timings, &small, 2, &small_ns, &how));
      ck_assert (sim_timings_find (timings, &large, 2, &large_ns, &how));
      ck_assert_msg (small_ns > 0 && large_ns >= small_ns * (1 - 1e-12),
                     "seed %d: %" G_GINT64_FORMAT " %" G_GINT64_FORMAT " %" G_GINT64_FORMAT
                     " takes %g, a larger one %g",
                     _i, small.dims[0], small.dims[1], small.dims[2], small_ns, large_ns);
    }
}
END_TEST

START_TEST (text_reads_back)
{
  const SimTiming row = product (16, 32, 64, 7);
  SimTiming back = { .ranks = 1, .ns = 7 };
  g_autofree char *shape = sim_timing_print_shape (&row);
  g_autofree char *format = sim_timing_print_format (&row);
  ck_assert_str_eq (shape, "m=16 n=32 k=64 layout=1");
  ck_assert_str_eq (format, "out=fp32 a=fp32 b=fp32");
  ck_assert (sim_timing_parse ("gemm", shape, format, &back, NULL));
  ck_assert_mem_eq (&back.dims, &row.dims, sizeof row.dims);
  ck_assert_mem_eq (&back.dtype, &row.dtype, sizeof row.dtype);
  ck_assert_uint_eq (back.nodes, 1);

  SimTiming across = gather (100, 4, 7);
  across.nodes = 2;
  g_autofree char *reach = sim_timing_print_shape (&across);
  ck_assert_str_eq (reach, "count=100 nodes=2");
  ck_assert (sim_timing_parse ("all_gather", reach, "out=fp32 in=fp32", &back, NULL));
  ck_assert_uint_eq (back.nodes, 2);
}
END_TEST

START_TEST (text_that_is_wrong_is_refused)
{
  static const struct
  {
    const char *op, *shape, *format, *message;
  } wrong[] = {
    { "gem", "m=1", "", "no op is called 'gem'; did you mean 'gemm'?" },
    { "cast", "m=1", "out=fp32 in=fp32", "count: '' is not a whole number" },
    { "cast", "count=-1", "out=fp32 in=fp32", "count: '-1' is out of range" },
    { "gemm", "m=99999999 n=99999999 k=9 layout=0", "out=fp32 a=fp32 b=fp32", "is no size that" },
    { "all_gather", "count=1 nodes=0", "out=fp32 in=fp32", "nodes: '0' is out of range" },
    { "cast", "count=1 nodes=2", "out=fp32 in=fp32", "nodes: '2' is out of range" },
    { "cast", "count=1", "out=fp32", "in: '' is not a number format" },
    { "cast", "count=1", "out=fp32 in=fp23", "in: 'fp23' is not a number format" },
  };
  for (guint i = 0; i < G_N_ELEMENTS (wrong); i++)
    {
      g_autoptr (GError) error = NULL;
      SimTiming out = { 0 };
      ck_assert (!sim_timing_parse (wrong[i].op, wrong[i].shape, wrong[i].format, &out, &error));
      ck_assert (g_error_matches (error, PLAN_ERROR, PLAN_ERROR_INVALID));
      ck_assert_msg (strstr (error->message, wrong[i].message) != NULL, "%s", error->message);
    }
}
END_TEST

static PlanCluster *
processors (guint nodes, GError **error)
{
  g_autofree char *text = g_strdup_printf (
      "[some]\nsource=test\nnodes=%u\ndevices_per_node=%u\ndevice=x\nkind=cpu\n"
      "peak_fp32=1 GFLOP/s\npeak_bf16=1 GFLOP/s\nmemory=1 GB\nmemory_bandwidth=1 GB/s\n"
      "link_bandwidth=1 GB/s\nlink_latency=1 us\nnic_bandwidth=1 GB/s\nnic_latency=1 us\n",
      nodes, nodes);
  return plan_cluster_parse (text, "test", error);
}

/* The cost model prefers timings, scaled as rates are within a step. Issuing is included in what
 * was timed on a CPU; on a GPU the host's cost of issuing is added as usual. */
START_TEST (costs_are_what_was_timed)
{
  const gboolean is_gpu = _i == 0;
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanModel) model = plan_model_new ("llama-tiny", &error);
  g_autoptr (PlanCluster) cluster
      = is_gpu ? plan_cluster_new ("h100-80gb:1", &error) : processors (1, &error);
  g_autoptr (PlanCase) of = test_case (model, cluster, "gbs=1 seq=16 stack=native");
  g_autoptr (PlanSchedule) schedule = test_lower (of, 0);
  guint node = 0;
  while (plan_schedule_node (schedule, node)->kind != PLAN_OP_GEMM)
    node++;
  SimTiming row = sim_timing_of (schedule, plan_schedule_node (schedule, node));
  row.ns = 12345;
  SimParams params = *sim_params_default (cluster);
  params.value[SIM_PARAM_PRODUCT_SUSTAINED] = 0.5;
  g_autoptr (SimTimings) timings = sim_timings_new (&row, 1);
  SimCostInput input = sim_cost_input (of, schedule);
  input.params = &params;
  g_autoptr (SimCost) without = sim_cost_new (&input, &error);
  input.timings = timings;
  g_autoptr (SimCost) cost = sim_cost_new (&input, &error);
  ck_assert (cost != NULL && without != NULL);
  ck_assert_int_eq (sim_cost_ns (cost, node), 24690);
  ck_assert_int_eq (sim_cost_provenance (cost, node), SIM_PROVENANCE_MEASURED);
  const gint64 host_ns = sim_cost_launch_ns (without, node);
  ck_assert_int_eq (sim_cost_launch_ns (cost, node), is_gpu ? host_ns : 0);
  ck_assert_int_gt (host_ns, 0);
}
END_TEST

/* A collective that was timed between GPUs takes the same share of multiprocessors and memory
 * bandwidth as any other. */
START_TEST (collectives_keep_their_share_of_a_gpu)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanModel) model = plan_model_new ("llama-tiny", &error);
  g_autoptr (PlanCluster) cluster = plan_cluster_new ("h100-80gb:2", &error);
  g_autoptr (PlanCase) of = test_case (model, cluster, "gbs=2 seq=16 stack=native");
  g_autoptr (PlanSchedule) schedule = test_lower (of, 0);
  guint node = 0;
  while (plan_schedule_node (schedule, node)->kind != PLAN_OP_ALL_GATHER)
    node++;
  SimTiming row = sim_timing_of (schedule, plan_schedule_node (schedule, node));
  row.ns = 1e9;
  g_autoptr (SimTimings) timings = sim_timings_new (&row, 1);
  SimCostInput input = sim_cost_input (of, schedule);
  g_autoptr (SimCost) without = sim_cost_new (&input, &error);
  input.timings = timings;
  g_autoptr (SimCost) cost = sim_cost_new (&input, &error);
  ck_assert_int_eq (sim_cost_ns (cost, node), 1000000000);
  ck_assert_uint_gt (sim_cost_sms (without, node), 0);
  ck_assert_uint_eq (sim_cost_sms (cost, node), sim_cost_sms (without, node));
  ck_assert_uint_eq (sim_cost_memory_bytes (cost, node), sim_cost_memory_bytes (without, node));
}
END_TEST

/* Groups in a cluster of two nodes, and timings at either level: each group uses those of as many
 * nodes as it spans. */
START_TEST (costs_are_of_the_level)
{
  static const struct
  {
    guint size, stride, nodes;
  } groups[] = { { 4, 1, 2 }, { 2, 1, 1 }, { 2, 2, 2 } };
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanCluster) cluster = processors (2, &error);
  ck_assert_msg (cluster != NULL, "%s", error ? error->message : "");
  g_autoptr (PlanSchedule) schedule = plan_schedule_new (0, 4);
  PlanOp op;
  plan_op_init (&op, PLAN_OP_ALL_GATHER, PLAN_STREAM_COMPUTE);
  op.group = plan_schedule_add_group (schedule, "g", groups[_i].size, groups[_i].stride);
  op.dims[0] = 100;
  for (guint i = 0; i < 2; i++)
    op.refs[i].array
        = plan_schedule_add_buffer (schedule, i ? "in" : "out", 1, i ? 100 : 100 * groups[_i].size,
                                    PLAN_DTYPE_FP32, PLAN_CATEGORY_WORKSPACE);
  plan_schedule_begin_section (schedule, PLAN_SECTION_SETUP);
  plan_schedule_begin_section (schedule, PLAN_SECTION_STEP);
  plan_schedule_add (schedule, &op);
  plan_schedule_begin_section (schedule, PLAN_SECTION_TEARDOWN);
  Plan plan;
  plan_init (&plan);
  ck_assert (plan_set (&plan, "stack", "native", &error));
  SimTiming rows[] = { gather (100, 2, 500), gather (100, 2, 7000), gather (100, 4, 9000) };
  rows[1].nodes = rows[2].nodes = 2;
  const gint64 expected[] = { 9000, 500, 7000 };
  g_autoptr (SimTimings) timings = sim_timings_new (rows, G_N_ELEMENTS (rows));
  const SimCostInput input = { .schedule = schedule,
                               .cluster = cluster,
                               .stack = plan_stack_of (&plan, cluster->kind, &error),
                               .timings = timings };
  g_autoptr (SimCost) cost = sim_cost_new (&input, &error);
  ck_assert_msg (cost != NULL, "%s", error ? error->message : "");
  guint node = 0;
  while (plan_schedule_node (schedule, node)->kind != PLAN_OP_ALL_GATHER)
    node++;
  ck_assert_int_eq (sim_cost_ns (cost, node), expected[_i]);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("timings");
  TCase *tcase = tcase_create ("timings");
  tcase_add_test (tcase, between_sizes_by_hand);
  tcase_add_test (tcase, products_are_exact_where_costs_add_up);
  tcase_add_test (tcase, what_differs_in_kind_is_not_alike);
  tcase_add_test (tcase, levels_are_apart);
  tcase_add_test (tcase, the_newest_counts);
  tcase_add_test (tcase, ranks_share_cores);
  tcase_add_test (tcase, attention_is_by_head);
  tcase_add_loop_test (tcase, times_are_positive_and_never_fall, 0, 100);
  tcase_add_test (tcase, text_reads_back);
  tcase_add_test (tcase, text_that_is_wrong_is_refused);
  tcase_add_loop_test (tcase, costs_are_what_was_timed, 0, 2);
  tcase_add_test (tcase, collectives_keep_their_share_of_a_gpu);
  tcase_add_loop_test (tcase, costs_are_of_the_level, 0, 3);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
