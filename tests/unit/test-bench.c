/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/bench/bench.h"
#include "exec/probe/probe.h"
#include "sim/cost/timings.h"
#include "tests/case.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static PlanCluster *
processors (gint64 ranks)
{
  PlanCluster *cluster = exec_probe_processors (ranks, NULL);
  ck_assert (cluster != NULL);
  return cluster;
}

static GArray *
list (const PlanCluster *cluster)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (GArray) refusals = exec_bench_refusals_new ();
  GArray *ops = exec_bench_ops (cluster, 0, refusals, &error);
  ck_assert_msg (ops != NULL, "%s", error ? error->message : "");
  return ops;
}

static PlanCluster *
gpus (const char *spec)
{
  g_autoptr (GError) error = NULL;
  PlanCluster *cluster = plan_cluster_new (spec, &error);
  ck_assert_msg (cluster != NULL, "%s", error ? error->message : "");
  return cluster;
}

START_TEST (quantiles_by_hand)
{
  gint64 ns[] = { 50, 10, 40, 20, 30 };
  const ExecBenchTimes times = exec_bench_summarise (ns, G_N_ELEMENTS (ns), 0);
  ck_assert_int_eq (times.p10_ns, 10);
  ck_assert_int_eq (times.q1_ns, 20);
  ck_assert_int_eq (times.median_ns, 30);
  ck_assert_int_eq (times.q3_ns, 40);
  ck_assert_int_eq (times.p90_ns, 50);
  ck_assert_uint_eq (times.n, 5);
}
END_TEST

/* CPU time of half the median halves all quantiles; more CPU time than the median changes
 * nothing. */
START_TEST (what_others_took_is_not_counted)
{
  gint64 taken[] = { 100, 200, 400 }, free_of_it[] = { 100, 200, 400 };
  const ExecBenchTimes halved = exec_bench_summarise (taken, 3, 100);
  const ExecBenchTimes same = exec_bench_summarise (free_of_it, 3, 300);
  ck_assert_int_eq (halved.q1_ns, 50 + 50); /* of three, the nearest to a quarter is the middle */
  ck_assert_int_eq (halved.p10_ns, 50);
  ck_assert_int_eq (halved.median_ns, 100);
  ck_assert_int_eq (halved.p90_ns, 200);
  ck_assert_int_eq (same.median_ns, 200);
}
END_TEST

START_TEST (repeats_follow_the_time_there_is)
{
  g_autoptr (PlanCluster) cluster = processors (1);
  g_autoptr (GArray) ops = list (cluster);
  for (guint i = 0; i < ops->len; i++)
    {
      const ExecBenchOp *op = &g_array_index (ops, ExecBenchOp, i);
      ck_assert_uint_eq (exec_bench_repeats (op, 0), 5);
      ck_assert_uint_eq (exec_bench_repeats (op, 1e18), 101);
      ck_assert_double_gt (exec_bench_guess_ns (op), 0);
      if (i > 0)
        ck_assert_double_ge (exec_bench_guess_ns (op), exec_bench_guess_ns (op - 1));
    }
}
END_TEST

/* Every op's schedule is valid on every rank, and repeats that op alone. */
START_TEST (schedules_are_whole)
{
  const guint ranks = (guint)_i;
  g_autoptr (PlanCluster) cluster = processors (ranks);
  g_autoptr (GArray) ops = list (cluster);
  guint n_collectives = 0;
  for (guint i = 0; i < ops->len; i++)
    {
      const ExecBenchOp *op = &g_array_index (ops, ExecBenchOp, i);
      g_autoptr (GError) error = NULL;
      g_autoptr (PlanSchedule) schedule = exec_bench_schedule (op, ranks - 1, ranks, 3);
      PlanCursor cursor;
      guint n = 0;
      if (op->op.dims[0] <= 256)
        ck_assert_msg (plan_schedule_check (schedule, &error), "%s: %s", plan_op_name (op->op.kind),
                       error ? error->message : "");
      plan_cursor_start (&cursor, schedule, PLAN_SECTION_STEP);
      for (const PlanOp *seen; (seen = plan_cursor_next (&cursor)); n++)
        {
          ck_assert_int_eq (seen->kind, op->op.kind);
          ck_assert_mem_eq (seen->dims, op->op.dims, sizeof op->op.dims);
        }
      ck_assert_uint_eq (n, EXEC_BENCH_WARM_UP + 3);
      n_collectives += plan_op_class (op->op.kind) == PLAN_CLASS_COLLECTIVE;
    }
  ck_assert_int_eq (n_collectives > 0, ranks > 1);
}
END_TEST

/* On two nodes of three devices each collective is timed among all six, among three, and among two
 * that are three apart; other ops are timed once. */
START_TEST (levels_are_timed_apart)
{
  static const guint expected[][3] = { { 6, 1, 2 }, { 3, 1, 1 }, { 2, 3, 2 } };
  g_autoptr (PlanCluster) cluster = processors (3);
  g_autoptr (PlanCluster) single = processors (6);
  exec_probe_set_nodes (cluster, 2);
  g_autoptr (GArray) ops = list (cluster);
  g_autoptr (GArray) without = list (single);
  guint n[3] = { 0 }, n_others = 0, n_single = 0;
  for (guint i = 0; i < without->len; i++)
    n_single
        += plan_op_class (g_array_index (without, ExecBenchOp, i).op.kind) != PLAN_CLASS_COLLECTIVE;
  for (guint i = 0; i < ops->len; i++)
    {
      const ExecBenchOp *op = &g_array_index (ops, ExecBenchOp, i);
      guint level = 0;
      if (plan_op_class (op->op.kind) != PLAN_CLASS_COLLECTIVE)
        {
          ck_assert_uint_eq (op->ranks, 6);
          n_others++;
          continue;
        }
      while (level < 2 && op->ranks != expected[level][0])
        level++;
      ck_assert_uint_eq (op->ranks, expected[level][0]);
      ck_assert_uint_eq (op->stride, expected[level][1]);
      ck_assert_uint_eq (op->nodes, expected[level][2]);
      n[level]++;
      if (op->op.dims[0] > 256)
        continue;
      g_autoptr (GError) error = NULL;
      g_autoptr (PlanSchedule) schedule = exec_bench_schedule (op, 5, 6, 1);
      ck_assert_msg (plan_schedule_check (schedule, &error), "%s: %s", plan_op_name (op->op.kind),
                     error ? error->message : "");
    }
  ck_assert_uint_eq (n_others, n_single);
  ck_assert_uint_gt (n[0], 0);
  ck_assert_uint_ge (n[1], n[0]); /* large ones of many ranks are left out */
  ck_assert_uint_ge (n[2], n[1]);
}
END_TEST

/* The kinds that plans are made of, in fp32 and bf16, products in all layouts. */
START_TEST (what_plans_are_made_of_is_there)
{
  static const PlanOpKind wanted[]
      = { PLAN_OP_ATTENTION,     PLAN_OP_ATTENTION_BWD,  PLAN_OP_RMSNORM,
          PLAN_OP_RMSNORM_BWD,   PLAN_OP_LAYERNORM,      PLAN_OP_HEAD_NORM,
          PLAN_OP_SWIGLU,        PLAN_OP_ACTIVATE,       PLAN_OP_ROPE,
          PLAN_OP_EMBED,         PLAN_OP_EMBED_BWD,      PLAN_OP_CAST,
          PLAN_OP_CROSS_ENTROPY, PLAN_OP_LOSS_GRAD,      PLAN_OP_GEMM_ADD,
          PLAN_OP_NORM_SQ,       PLAN_OP_CLIP,           PLAN_OP_ADAMW,
          PLAN_OP_SGD,           PLAN_OP_ACCUMULATE,     PLAN_OP_ZERO,
          PLAN_OP_ADD,           PLAN_OP_REDUCE_SCATTER, PLAN_OP_ALL_GATHER,
          PLAN_OP_COPY,          PLAN_OP_ALL_REDUCE };
  g_autoptr (PlanCluster) cluster = processors (2);
  g_autoptr (GArray) ops = list (cluster);
  gboolean has[PLAN_N_OPS] = { FALSE }, has_layout[2][3] = { { FALSE } };
  for (guint i = 0; i < ops->len; i++)
    {
      const ExecBenchOp *op = &g_array_index (ops, ExecBenchOp, i);
      has[op->op.kind] = TRUE;
      if (op->op.kind == PLAN_OP_GEMM)
        has_layout[op->dtype[1] == PLAN_DTYPE_BF16][op->op.dims[3]] = TRUE;
    }
  for (guint i = 0; i < G_N_ELEMENTS (wanted); i++)
    ck_assert_msg (has[wanted[i]], "%s is not timed", plan_op_name (wanted[i]));
  for (guint f = 0; f < 2; f++)
    for (guint l = 0; l < 3; l++)
      ck_assert_msg (has_layout[f][l], "layout %u of format %u is not timed", l, f);
}
END_TEST

/* One op on all ranks, and what rank 0 saw. */
typedef struct
{
  const ExecBenchFrame *frame;
  const ExecBenchOp *op;
  ExecBenchTimes times;
} Timed;

static gboolean
time_op (ExecComm *comm, gpointer user_data, GError **error)
{
  Timed *self = user_data;
  ExecBenchTimes times;
  g_autofree char *why = NULL;
  const gboolean ok = exec_bench_run (self->frame, self->op, 5, comm, &times, &why, error);
  if (comm->rank == 0)
    self->times = times;
  return ok && !why;
}

/* The smallest of every kind is walked for real. */
START_TEST (every_kind_runs)
{
  const guint ranks = (guint)_i;
  g_auto (ExecBenchFrame) frame = { 0 };
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanCluster) cluster = processors (ranks);
  g_autoptr (GArray) ops = list (cluster);
  g_autoptr (GHashTable) seen = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  ck_assert (exec_bench_frame_init (&frame, cluster, &exec_kernels_cpu, &error));
  for (guint i = 0; i < ops->len; i++)
    {
      const ExecBenchOp *op = &g_array_index (ops, ExecBenchOp, i);
      Timed timed = { .frame = &frame, .op = op };
      if (!g_hash_table_add (seen, g_strdup_printf ("%d %d %d", (int)op->op.kind, (int)op->dtype[0],
                                                    (int)op->dtype[2])))
        continue;
      ck_assert_msg (exec_bench_on_threads (&frame, ranks, time_op, &timed, &error), "%s: %s",
                     plan_op_name (op->op.kind), error ? error->message : "");
      const ExecBenchTimes times = timed.times;
      ck_assert_uint_eq (times.n, 5);
      ck_assert_int_gt (times.p10_ns, 0);
      ck_assert_int_le (times.p10_ns, times.q1_ns);
      ck_assert_int_le (times.q1_ns, times.median_ns);
      ck_assert_int_le (times.median_ns, times.q3_ns);
      ck_assert_int_le (times.q3_ns, times.p90_ns);
      ck_assert_int_le (times.own_ns, times.wall_ns);
    }
}
END_TEST

/* --- of GPUs ------------------------------------------------------------------------------ */

/* Timings of all ops that bench would time on a GPU, with guesses in place of times, in the form
 * that predictions look them up in. */
static SimTimings *
timings_of (const GArray *ops)
{
  g_autoptr (GArray) rows = g_array_new (FALSE, FALSE, sizeof (SimTiming));
  for (guint i = 0; i < ops->len; i++)
    {
      const ExecBenchOp *op = &g_array_index (ops, ExecBenchOp, i);
      SimTiming row = {
        .kind = op->op.kind, .ranks = op->ranks, .nodes = op->nodes, .ns = exec_bench_guess_ns (op)
      };
      memcpy (row.dims, op->op.dims, sizeof row.dims);
      for (guint r = 0; r < PLAN_MAX_REFS; r++)
        row.dtype[r]
            = op->op.refs[r].array < 0 || r >= plan_op_n_refs (row.kind) ? -1 : (gint8)op->dtype[r];
      g_array_append_val (rows, row);
    }
  return sim_timings_new ((const SimTiming *)(gpointer)rows->data, rows->len);
}

/* Plans all of whose ops bench times, except for those that take no time of their own
 * (is_exempt). */
static const struct
{
  const char *cluster, *model, *fields;
} covered[] = {
  { "h200-141gb:1", "llama3-8b", "compute=bf16 seq=8192 gbs=1" },
  { "h200-141gb:8", "llama3-8b", "compute=bf16 seq=8192 gbs=8 strategy=optim_grads_params" },
  { "h200-141gb:8", "llama3-8b", "compute=bf16 seq=8192 gbs=8 strategy=no_shard" },
  { "h200-141gb:8", "qwen3-8b",
    "compute=bf16 seq=4096 gbs=16 strategy=optim_grads main_grads=fp32" },
  { "h200-141gb:8", "llama3-8b", "compute=fp8-delayed seq=8192 gbs=8 strategy=optim_grads_params" },
  { "h200-141gb:1", "llama3-8b", "compute=fp8-tensorwise seq=4096 gbs=4 mbs=4 recompute=full" },
  { "h200-141gb:1", "llama3-8b", "compute=fp8-blockwise seq=4096 gbs=4 mbs=4" },
  { "h200-141gb:8", "llama3-8b",
    "compute=fp8-tensorwise param_gather=fp8 seq=8192 gbs=8 strategy=optim_grads_params" },
  { "h200-141gb:8", "llama3-8b",
    "compute=fp8-delayed param_gather=fp8 seq=8192 gbs=8 strategy=optim_grads_params "
    "precision_aware=on exp_avg=fp8 exp_avg_sq=fp16" },
  { "h200-141gb:1", "llama3.2-1b", "compute=fp32 seq=4096 gbs=4" },
  { "a100-80gb:8", "llama3.2-1b",
    "compute=bf16 seq=4096 gbs=16 precision_aware=on exp_avg=fp8 exp_avg_sq=fp8" },
  { "a100-80gb:8", "llama3.2-1b", "compute=bf16 seq=4096 gbs=16 precision_aware=on exp_avg=bf16" },
  { "a100-80gb:2", "gpt2",
    "compute=bf16 seq=1024 gbs=64 mbs=8 grad_accum_fusion=on main_grads=fp32" },
};

static PlanSchedule *
schedule_of (const PlanCluster *cluster, const char *name, const char *fields)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanModel) model = plan_model_new (name, &error);
  g_autofree char *words = g_strconcat ("stack=native ", fields, NULL);
  ck_assert (model != NULL);
  g_autoptr (PlanCase) of = test_case (model, cluster, words);
  return test_lower (of, 0);
}

static gboolean
is_exempt (const PlanSchedule *schedule, const PlanOp *op)
{
  const PlanOpClass class = op->kind < PLAN_N_OPS ? plan_op_class (op->kind) : PLAN_CLASS_HOST;
  return (class != PLAN_CLASS_COMPUTE && class != PLAN_CLASS_COLLECTIVE)
         || (class == PLAN_CLASS_COLLECTIVE && plan_schedule_group_size (schedule, op) == 1);
}

START_TEST (gpus_time_what_their_plans_are_made_of)
{
  g_autoptr (PlanCluster) cluster = gpus (covered[_i].cluster);
  g_autoptr (GArray) ops = list (cluster);
  g_autoptr (SimTimings) timings = timings_of (ops);
  g_autoptr (PlanSchedule) schedule = schedule_of (cluster, covered[_i].model, covered[_i].fields);
  g_autoptr (GString) missing = g_string_new (NULL);
  for (guint node = 0; node < plan_schedule_n_nodes (schedule); node++)
    {
      const PlanOp *op = plan_schedule_node (schedule, node);
      double ns;
      SimTimed how;
      if (is_exempt (schedule, op))
        continue;
      const SimTiming wanted = sim_timing_of (schedule, op);
      const gboolean is_large = plan_op_flops (op) > 1e12;
      if (sim_timings_find (timings, &wanted, 0, &ns, &how)
          && !(is_large && how == SIM_TIMED_BEYOND))
        continue;
      g_autofree char *shape = sim_timing_print_shape (&wanted);
      g_autofree char *format = sim_timing_print_format (&wanted);
      g_string_append_printf (missing, "%s %s %s\n", plan_op_name (op->kind), shape, format);
    }
  ck_assert_msg (missing->len == 0, "%s, %s with %s:\n%s", covered[_i].cluster, covered[_i].model,
                 covered[_i].fields, missing->str);
}
END_TEST

/* The longest ops come last and may not be timed at all, so products in fp32 must be guessed by
 * their own rate, which is lower than that of bf16. */
START_TEST (slow_formats_come_last)
{
  g_autoptr (PlanCluster) cluster = gpus ("h100-80gb:1");
  g_autoptr (GArray) ops = list (cluster);
  const ExecBenchOp *op = (const ExecBenchOp *)(gpointer)ops->data;
  guint pairs = 0;
  for (guint i = 0; i < ops->len; i++)
    for (guint j = 0; j < ops->len; j++)
      if (op[i].op.kind == PLAN_OP_GEMM && op[i].dtype[1] == PLAN_DTYPE_BF16
          && op[j].op.kind == PLAN_OP_GEMM && op[j].dtype[1] == PLAN_DTYPE_FP32
          && memcmp (op[i].op.dims, op[j].op.dims, sizeof op[i].op.dims) == 0
          && plan_op_flops (&op[i].op) > 1e12)
        {
          pairs++;
          ck_assert_double_gt (exec_bench_guess_ns (&op[j]), 8 * exec_bench_guess_ns (&op[i]));
        }
  ck_assert_uint_gt (pairs, 0);
}
END_TEST

/* Products have the workspace that a step gives them, also those that are added. */
START_TEST (gpus_have_the_workspace_of_a_step)
{
  static const char *const names[] = { "a100-80gb:1", "h200-141gb:1", "b200:1" };
  static const guint64 mib[] = { 4, 32, 32 };
  g_autoptr (PlanCluster) cluster = gpus (names[_i]);
  g_autoptr (GArray) ops = list (cluster);
  guint n[2] = { 0 };
  for (guint i = 0; i < ops->len; i++)
    {
      const ExecBenchOp *op = &g_array_index (ops, ExecBenchOp, i);
      const gboolean adds = op->op.kind == PLAN_OP_GEMM_ADD;
      if (op->op.kind != PLAN_OP_GEMM && !adds)
        continue;
      n[adds]++;
      ck_assert_int_ge (op->op.refs[adds ? 3 : 4].array, 0);
      ck_assert_uint_ge (4 * op->scratch, mib[_i] << 20);
      ck_assert_uint_le (4 * op->scratch, (mib[_i] << 20) + 256);
    }
  ck_assert_uint_gt (n[0], 0);
  ck_assert_uint_gt (n[1], 0);
}
END_TEST

/* The parameters of an op are alike, consist of whole blocks, and have as many magnitudes as those
 * blocks. */
START_TEST (parameters_are_whole)
{
  g_autoptr (PlanCluster) cluster = gpus (_i == 0 ? "h200-141gb:8" : "b200:8");
  g_autoptr (GArray) ops = list (cluster);
  guint n = 0;
  for (guint i = 0; i < ops->len; i++)
    {
      const ExecBenchOp *op = &g_array_index (ops, ExecBenchOp, i);
      const ExecParam *each = &op->params.each;
      const guint64 block = each->block, count = each->rows * each->cols;
      if (op->op.kind != PLAN_OP_PARAM_AMAX && op->op.kind != PLAN_OP_PARAM_QUANTIZE)
        continue;
      n++;
      ck_assert_uint_eq ((guint64)op->op.dims[0], op->params.n * count);
      ck_assert (block == 0 || (each->rows % block == 0 && each->cols % block == 0));
      const guint64 row_of_squares = (each->cols / 128 + 3) / 4 * 4; /* as they lie */
      const guint64 magnitudes = block == 0     ? 1
                                 : block == 128 ? each->rows / 128 * row_of_squares
                                                : 2 * count / block;
      ck_assert_uint_eq ((guint64)op->op.dims[1], op->params.n * magnitudes);
    }
  ck_assert_uint_gt (n, 20);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("bench");
  TCase *tcase = tcase_create ("bench");
  tcase_add_test (tcase, quantiles_by_hand);
  tcase_add_test (tcase, what_others_took_is_not_counted);
  tcase_add_test (tcase, repeats_follow_the_time_there_is);
  tcase_add_loop_test (tcase, schedules_are_whole, 1, 4);
  tcase_add_test (tcase, levels_are_timed_apart);
  tcase_add_test (tcase, what_plans_are_made_of_is_there);
  tcase_add_loop_test (tcase, every_kind_runs, 1, 4);
  tcase_add_test (tcase, slow_formats_come_last);
  tcase_add_loop_test (tcase, gpus_have_the_workspace_of_a_step, 0, 3);
  tcase_add_loop_test (tcase, parameters_are_whole, 0, 2);
  tcase_add_loop_test (tcase, gpus_time_what_their_plans_are_made_of, 0,
                       (int)G_N_ELEMENTS (covered));
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
