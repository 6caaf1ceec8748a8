/* SPDX-License-Identifier: Apache-2.0 */
/* Times ops one by one on fake GPUs: every kind that is timed on a real one, at small sizes, and
 * checks for each kernel that it uses its operands alone. Time here advances by a microsecond per
 * call. */
#include "config.h"

#include "exec/bench/bench.h"
#include "exec/nccl/comm-nccl.h"
#include "tests/fake/cuda-case.h"
#include "tests/fake/cuda-fake.h"
#include "tests/fake/nccl-fake.h"
#include "tests/fake/watch.h"
#include "tests/share.h"

#include <stdlib.h>
#include <string.h>

#define SMALL_BYTES (G_GUINT64_CONSTANT (1) << 20)
#define CALL_NS 1000

/* Dims that are the smallest multiple of the blocks of every format. */
static const struct
{
  const char *dim;
  gint64 size;
} small[] = {
  { "m", 128 },     { "n", 128 },    { "k", 128 },      { "rows", 128 }, { "cols", 128 },
  { "seq", 128 },   { "keys", 128 }, { "batch", 1 },    { "heads", 2 },  { "kv_heads", 1 },
  { "vocab", 128 }, { "count", 64 }, { "tokens", 128 },
};

static void
shrink (ExecBenchOp *op, const PlanCluster *cluster)
{
  for (guint d = 0; d < plan_op_n_dims (op->op.kind); d++)
    for (guint i = 0; i < G_N_ELEMENTS (small); i++)
      if (strcmp (plan_op_dim_name (op->op.kind, d), small[i].dim) == 0)
        op->op.dims[d] = small[i].size;
  exec_bench_complete (op, cluster, SMALL_BYTES);
  op->batch = MIN (op->batch, 2);
}

static ExecComm *
join (ExecComm *threads, GError **error)
{
  const ExecNcclOptions options = { .local_rank = threads->rank, .timeout_s = 120 };
  return exec_comm_nccl_open (threads, &options, error);
}

/* Lists each op once, as small as it can be. */
static GArray *
list_small (const PlanCluster *cluster, GArray *refusals)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (GArray) all = exec_bench_ops (cluster, 0, refusals, &error);
  GArray *ops = g_array_new (FALSE, FALSE, sizeof (ExecBenchOp));
  ck_assert_msg (all != NULL, "%s", error ? error->message : "");
  for (guint i = 0; i < all->len; i++)
    {
      ExecBenchOp op = g_array_index (all, ExecBenchOp, i);
      gboolean is_known = FALSE;
      shrink (&op, cluster);
      for (guint o = 0; o < ops->len && !is_known; o++)
        is_known
            = memcmp (&op.op, &g_array_index (ops, ExecBenchOp, o).op, sizeof op.op) == 0
              && memcmp (op.dtype, g_array_index (ops, ExecBenchOp, o).dtype, sizeof op.dtype) == 0;
      if (!is_known)
        g_array_append_val (ops, op);
    }
  return ops;
}

/* The ops that all ranks time, one after the other, and the results. */
typedef struct
{
  ExecBenchFrame frame;
  GArray *ops, *times; /* rank 0's */
  char *why;           /* why the last op was left out */
} Run;

static gboolean
time_ops (ExecComm *comm, gpointer user_data, GError **error)
{
  Run *self = user_data;
  for (guint i = 0; i < self->ops->len; i++)
    {
      const ExecBenchOp *op = &g_array_index (self->ops, ExecBenchOp, i);
      ExecBenchTimes times;
      g_autofree char *why = NULL;
      if (!exec_bench_run (&self->frame, op, 1, comm, &times, &why, error))
        {
          g_prefix_error (error, "%s: ", plan_op_name (op->op.kind));
          return FALSE;
        }
      if (comm->rank != 0)
        continue;
      g_array_append_val (self->times, times);
      if (why)
        {
          g_free (self->why);
          self->why = g_steal_pointer (&why);
        }
    }
  return TRUE;
}

static void
run_init (Run *self, const PlanCluster *cluster, gboolean is_joined)
{
  g_autoptr (GError) error = NULL;
  *self = (Run){ .times = g_array_new (FALSE, FALSE, sizeof (ExecBenchTimes)) };
  ck_assert_msg (
      exec_bench_frame_init (&self->frame, cluster, watch_kernels (&exec_kernels_cuda), &error),
      "%s", error ? error->message : "");
  self->frame.job.join = is_joined ? join : NULL;
}

static void
run_clear (Run *self)
{
  exec_bench_frame_clear (&self->frame);
  g_array_unref (self->ops);
  g_array_unref (self->times);
  g_free (self->why);
}

static const struct
{
  const char *cluster;
  guint ranks;
  int capability;
  gboolean is_joined; /* whether the ranks are joined by NCCL */
  guint refused;      /* formats that products may compute in, but are not timed in */
} machines[] = {
  { "h100-80gb:1", 1, 90, FALSE, 2 }, { "b200:1", 1, 100, FALSE, 0 },
  { "a100-80gb:1", 1, 80, FALSE, 5 }, { "h100-80gb:2", 2, 90, FALSE, 2 },
  { "h100-80gb:2", 2, 90, TRUE, 2 },
};

/* All ops run, use their operands alone, and take a time in proportion to their number of calls. */
START_TEST (every_kind_runs)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanCluster) cluster = plan_cluster_new (machines[_i].cluster, &error);
  g_autoptr (GArray) refusals = exec_bench_refusals_new ();
  const guint ranks = machines[_i].ranks;
  guint n_refused = 0, n_collectives = 0, n_amax = 0, n_quantize = 0, n_moments = 0;
  Run run;
  fake_cuda_reset ();
  fake_nccl_reset ();
  fake_cuda_set_machine (machines[_i].is_joined ? ranks : 1, (guint64)1 << 30,
                         machines[_i].capability / 10, machines[_i].capability % 10);
  run_init (&run, cluster, machines[_i].is_joined);
  run.ops = list_small (cluster, refusals);
  ck_assert_uint_eq (refusals->len, machines[_i].refused);
  for (guint i = run.ops->len; i-- > 0;)
    {
      g_autoptr (GError) why = NULL;
      const ExecBenchOp *op = &g_array_index (run.ops, ExecBenchOp, i);
      n_collectives += plan_op_class (op->op.kind) == PLAN_CLASS_COLLECTIVE;
      n_amax += op->op.kind == PLAN_OP_PARAM_AMAX;
      n_quantize += op->op.kind == PLAN_OP_PARAM_QUANTIZE;
      n_moments += op->op.kind == PLAN_OP_ADAMW && op->dtype[1] == PLAN_DTYPE_E4M3;
      if (exec_bench_check (&run.frame, op, &why))
        continue;
      ck_assert_msg (strstr (why->message, "capability 9.0 alone: this one has 10.0") != NULL,
                     "%s: %s", plan_op_name (op->op.kind), why->message);
      g_array_remove_index (run.ops, i);
      n_refused++;
    }
  ck_assert_int_eq (n_refused > 0, machines[_i].capability == 100);
  ck_assert_int_eq (n_collectives > 0, ranks > 1);
  ck_assert_int_eq (n_amax > 0 && n_quantize > 0, machines[_i].capability >= 90);
  /* The second in fp8, and in fp16; and this where weights are quantised after the update. */
  ck_assert_uint_eq (n_moments, machines[_i].capability >= 90 ? 3 : 2);
  const gboolean ok = exec_bench_on_threads (&run.frame, ranks, time_ops, &run, &error);
  ck_assert_msg (*fake_cuda_error () == '\0', "%s", fake_cuda_error ());
  ck_assert_msg (ok, "%s", error ? error->message : "");
  ck_assert_ptr_null (run.why);
  ck_assert_uint_eq (run.times->len, run.ops->len);
  for (guint i = 0; i < run.times->len; i++)
    {
      const ExecBenchTimes *times = &g_array_index (run.times, ExecBenchTimes, i);
      ck_assert_uint_eq (times->n, g_array_index (run.ops, ExecBenchOp, i).batch);
      ck_assert_int_ge (times->median_ns, ranks > 1 ? 1 : CALL_NS);
    }
  run_clear (&run);
  ck_assert_msg (*fake_cuda_finish () == '\0', "%s", fake_cuda_finish ());
}
END_TEST

/* The timed span of a batch goes from its first op to its last, without the pause before it: for an
 * op that makes two calls, it is all of these and the event at the end. */
START_TEST (the_pause_is_not_timed)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanCluster) cluster = plan_cluster_new ("h100-80gb:1", &error);
  ExecBenchOp op = { .ranks = 1, .stride = 1, .nodes = 1 };
  Run run;
  fake_cuda_reset ();
  run_init (&run, cluster, FALSE);
  plan_op_init (&op.op, PLAN_OP_NORM_SQ, PLAN_STREAM_COMPUTE);
  op.op.dims[0] = 64;
  op.op.refs[0].array = op.op.refs[1].array = 0;
  op.dtype[0] = PLAN_DTYPE_I64;
  op.dtype[1] = PLAN_DTYPE_FP32;
  exec_bench_complete (&op, cluster, SMALL_BYTES);
  ck_assert_uint_gt (op.batch, 1);
  ck_assert_uint_gt (op.fillers, 0);
  run.ops = g_array_new (FALSE, FALSE, sizeof (ExecBenchOp));
  g_array_append_val (run.ops, op);
  ck_assert (exec_bench_on_threads (&run.frame, 1, time_ops, &run, &error));
  const ExecBenchTimes *times = &g_array_index (run.times, ExecBenchTimes, 0);
  ck_assert_int_eq (times->median_ns, CALL_NS * (2 * op.batch + 1) / op.batch);
  ck_assert_uint_eq (times->n, op.batch);
  run_clear (&run);
}
END_TEST

/* Where one of two ranks lacks the memory for an op, both leave it out, say so, and continue. */
START_TEST (what_does_not_fit_is_left_out)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanCluster) cluster = plan_cluster_new ("h100-80gb:2", &error);
  ExecBenchOp op = { .ranks = 2, .stride = 1, .nodes = 1 };
  Run run;
  fake_cuda_reset ();
  fake_nccl_reset ();
  fake_cuda_set_machine (1, (guint64)64 << 20, 9, 0);
  run_init (&run, cluster, FALSE);
  plan_op_init (&op.op, PLAN_OP_ZERO, PLAN_STREAM_COMPUTE);
  op.op.refs[0].array = 0;
  op.dtype[0] = PLAN_DTYPE_FP32;
  run.ops = g_array_new (FALSE, FALSE, sizeof (ExecBenchOp));
  op.op.dims[0] = 10 << 20; /* 40 MiB: one of the ranks has it */
  exec_bench_complete (&op, cluster, SMALL_BYTES);
  g_array_append_val (run.ops, op);
  op.op.dims[0] = 64;
  exec_bench_complete (&op, cluster, SMALL_BYTES);
  g_array_append_val (run.ops, op);
  ck_assert_msg (exec_bench_on_threads (&run.frame, 2, time_ops, &run, &error), "%s",
                 error ? error->message : "");
  ck_assert_uint_eq (run.times->len, 2);
  ck_assert_uint_eq (g_array_index (run.times, ExecBenchTimes, 0).n, 0);
  ck_assert_uint_eq (g_array_index (run.times, ExecBenchTimes, 1).n, op.batch);
  ck_assert (strstr (run.why, "has no 4")
             || strstr (run.why, "another rank's device has no memory"));
  run_clear (&run);
  ck_assert_msg (*fake_cuda_finish () == '\0', "%s", fake_cuda_finish ());
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("cuda-bench");
  TCase *tcase = tcase_create ("bench");
  tcase_set_timeout (tcase, 300);
  test_add_run_share (tcase, every_kind_runs, G_N_ELEMENTS (machines));
  tcase_add_test (tcase, the_pause_is_not_timed);
  tcase_add_test (tcase, what_does_not_fit_is_left_out);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
