/* SPDX-License-Identifier: Apache-2.0 */
/* Wrong strides in whole runs on the fake device: the accesses stay within the arena that all
 * buffers share, where a GPU would compute with whatever lies there. Each is reported with its op
 * and operand. */
#include "config.h"

#include "exec/cuda/attention-graph.h"
#include "exec/cuda/kernels/kernels.h"
#include "tests/fake/cuda-case.h"
#include "tests/fake/cuda-fake.h"
#include "tests/fake/watch.h"
#include "tests/share.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#define LLAMA \
  "family=llama,layers=1,hidden=128,ffn=256,heads=2,kv_heads=1,head_dim=64,vocab=48," \
  "max_seq=128"

#define TWO_KEY_HEADS \
  "family=llama,layers=1,hidden=128,ffn=256,heads=2,kv_heads=2,head_dim=64,vocab=48," \
  "max_seq=128"

static void
case_init_on (Case *c, guint ranks, int major, const char *fields)
{
  case_open_on (c, LLAMA, major >= 10 ? "b200" : "h100-80gb", ranks);
  fake_cuda_set_machine (1, (guint64)2 << 30, major, 0);
  case_set_plan (c, fields);
}

/* Runs, whether the run then ends with wrong numbers or an error: what went wrong first has been
 * noted. */
static void
run_anyway (Case *c)
{
  g_autoptr (GError) error = NULL;
  if (!case_run (c, &error))
    g_debug ("%s", error->message);
}

/* --- products ----------------------------------------------------------------------------- */

/* cuBLASLt's A is our b, its B our a: columns of both lie along the inner dimension, those of D
 * along a row of the result. 16 elements more are 16 bytes or more: nothing that it refuses. */
static const struct
{
  const char *fields;
  int major;
  guint number; /* which product, counted from 1 */
  char matrix;
  const char *op, *what;
} strides[] = {
  { "compute=bf16 seq=16", 9, 1, 'a', "op gemm: gemm (", "which is no operand's: b ends 0 bytes" },
  { "compute=bf16 seq=16", 9, 1, 'b', "op gemm: gemm (", "which is no operand's: a ends 0 bytes" },
  { "compute=bf16 seq=16", 9, 1, 'd', "op gemm: gemm (", "which is no operand's: out ends" },
  { "compute=fp32 seq=16", 9, 1, 'a', "op gemm: gemm (", "which is no operand's: b ends 0 bytes" },
  { "compute=fp8-tensorwise seq=16", 9, 3, 'b', "op gemm: gemm (", "no operand's: a ends 0 bytes" },
  { "compute=fp8-tensorwise param_gather=fp8 strategy=optim_grads_params seq=16", 9, 2, 'a',
    "op gemm: gemm (", "which is no operand's: b ends 0 bytes" },
  { "compute=fp8-blockwise seq=128", 9, 1, 'a', "op gemm: gemm (", "no operand's: b ends" },
  { "compute=mxfp8 seq=128", 10, 4, 'b', "op gemm: gemm (", "which is no operand's: a ends" },
  { "compute=bf16 grad_accum_fusion=on main_grads=fp32 seq=16", 9, 6, 'd', "op gemm",
    "which is no operand's: out ends" },
};

START_TEST (wrong_strides_are_named)
{
  Case c;
  g_autofree char *fields = g_strconcat (strides[_i].fields, " deterministic=on", NULL);
  case_init_on (&c, 1 + (guint)_i % 2, strides[_i].major, fields);
  fake_cublaslt_stretch (strides[_i].number, strides[_i].matrix, 16);
  run_anyway (&c);
  ck_assert_msg (
      strstr (fake_cuda_error (), strides[_i].op) && strstr (fake_cuda_error (), strides[_i].what),
      "%s, %c: '%s' lacks '%s'", fields, strides[_i].matrix, fake_cuda_error (), strides[_i].what);
  case_free (&c);
}
END_TEST

/* --- attention by products in batches ----------------------------------------------------------
 */

/* Of two heads of 64 with keys of their own: of the products of a pass, in its order, one has so
 * many elements more from one head to the next. Forwards scores and results; backwards scores, the
 * gradients of what they become, and those of queries, keys and values. 'A' is our b, 'B' our a. */
static const struct
{
  PlanOpKind kind;
  guint number;
  char matrix;
  gint64 elements;
  const char *what;
} batch_strides[] = {
  { PLAN_OP_ATTENTION, 1, 'A', 64, "4096 bytes of qkv are never read, the first at 768" },
  { PLAN_OP_ATTENTION, 1, 'B', 64, "4096 bytes of qkv are never read, the first at 256" },
  { PLAN_OP_ATTENTION, 1, 'D', 64, "no operand's: work has not been written yet" },
  { PLAN_OP_ATTENTION, 2, 'A', -64, "4096 bytes of qkv are never read, the first at 1280" },
  { PLAN_OP_ATTENTION, 2, 'B', 64, "no operand's: work has not been written yet" },
  { PLAN_OP_ATTENTION, 2, 'D', 128, "no operand's: lse ends 128 bytes before" },
  { PLAN_OP_ATTENTION_BWD, 1, 'D', 64, "no operand's: work has not been written yet" },
  { PLAN_OP_ATTENTION_BWD, 2, 'A', 64, "4096 bytes of qkv are never read, the first at 1280" },
  { PLAN_OP_ATTENTION_BWD, 2, 'D', 64, "no operand's: work has not been written yet" },
  { PLAN_OP_ATTENTION_BWD, 3, 'D', 64, "4096 bytes of dqkv are never written, the first at 256" },
  { PLAN_OP_ATTENTION_BWD, 5, 'D', 64, "no operand's: work has not been written yet" },
};

static guint planted_batch;

static int
launch_stretched (const ExecArgs *args, void *stream)
{
  if (batch_strides[planted_batch].kind == args->op->kind)
    fake_cublaslt_stretch (batch_strides[planted_batch].number, batch_strides[planted_batch].matrix,
                           batch_strides[planted_batch].elements);
  return exec_kernels_cuda.launch[args->op->kind](args, stream);
}

START_TEST (wrong_batches_are_named)
{
  static ExecKernels planted;
  g_autofree char *op = g_strdup_printf ("op %s: ", plan_op_name (batch_strides[_i].kind));
  Case c;
  planted_batch = (guint)_i;
  case_open_on (&c, TWO_KEY_HEADS, "h100-80gb", 1);
  case_set_plan (&c, "compute=fp32 seq=16");
  planted = exec_kernels_cuda;
  planted.launch[PLAN_OP_ATTENTION] = planted.launch[PLAN_OP_ATTENTION_BWD] = launch_stretched;
  c.job.kernels = watch_kernels (&planted);
  run_anyway (&c);
  ck_assert_msg (g_str_has_prefix (fake_cuda_error (), op)
                     && strstr (fake_cuda_error (), batch_strides[_i].what),
                 "%u %c: '%s' lacks '%s'", batch_strides[_i].number, batch_strides[_i].matrix,
                 fake_cuda_error (), batch_strides[_i].what);
  case_free (&c);
}
END_TEST

/* --- kernels ------------------------------------------------------------------------------ */

static gint64 planted_dims[PLAN_MAX_DIMS]; /* added to the op's dims */

static int
launch_changed (const ExecArgs *args, void *stream)
{
  PlanOp op = *args->op;
  ExecArgs changed = *args;
  changed.op = &op;
  for (guint d = 0; d < plan_op_n_dims (op.kind); d++)
    op.dims[d] += planted_dims[d];
  return exec_kernels_cuda.launch[op.kind](&changed, stream);
}

/* Kernels that work with longer or fewer rows, or with other heads than the op's. */
static const struct
{
  PlanOpKind kind;
  gint64 dims[PLAN_MAX_DIMS];
  const char *what;
} changes[] = {
  { PLAN_OP_RMSNORM, { 0, 8 }, "no operand's: weight ends 0 bytes before" },
  { PLAN_OP_RMSNORM, { 0, -8 }, " bytes of out are never written, the first at " },
  { PLAN_OP_ADD_RMSNORM, { 0, 8 }, "no operand's: weight ends 0 bytes before" },
  { PLAN_OP_ADD_RMSNORM, { 0, -8 }, " bytes of out are never written, the first at " },
  { PLAN_OP_SWIGLU, { 0, 8 }, "no operand's: out has not been written yet" },
  { PLAN_OP_SWIGLU, { -1, 0 }, "512 bytes of out are never written, the first at 7680" },
  { PLAN_OP_SWIGLU_BWD, { 0, -8 }, " bytes of din are never written, the first at " },
  { PLAN_OP_ADD, { 8 }, "no operand's: a ends 0 bytes before" },
  { PLAN_OP_ROPE, { 0, 0, 1 }, "no operand's: qkv ends 128 bytes before" },
  { PLAN_OP_ATTENTION, { 0, 0, 1 }, "no operand's: out has not been written yet" },
  { PLAN_OP_EMBED, { 0, 8 }, "no operand's: " },
  { PLAN_OP_LOSS_GRAD, { 0, 8 }, "no operand's: logits ends 0 bytes before" },
};

START_TEST (wrong_rows_are_named)
{
  static ExecKernels planted;
  const PlanOpKind kind = changes[_i].kind;
  g_autofree char *op = g_strdup_printf ("op %s: ", plan_op_name (kind));
  Case c;
  case_init_on (&c, 1, 9, "compute=bf16 seq=16 deterministic=on");
  planted = exec_kernels_cuda;
  planted.launch[kind] = launch_changed;
  memcpy (planted_dims, changes[_i].dims, sizeof planted_dims);
  c.job.kernels = watch_kernels (&planted);
  run_anyway (&c);
  ck_assert_msg (g_str_has_prefix (fake_cuda_error (), op)
                     && strstr (fake_cuda_error (), changes[_i].what),
                 "'%s' lacks '%s' of '%s'", fake_cuda_error (), changes[_i].what, op);
  case_free (&c);
}
END_TEST

/* --- cuDNN's graphs ----------------------------------------------------------------------- */

/* The first graph of a step is attention, the second its gradient. A tensor is read with other
 * strides than the op's, or a whole graph has another shape: fewer tokens, narrower heads, or fewer
 * heads. A wrong place within scratch is not reported, since no other operand lies there. */
static const struct
{
  guint number;
  gint64 id; /* the tensor that is stretched; 0: none is */
  guint dimension;
  gint64 from, to; /* the graph's old and new size, where it is resized */
  const char *what;
} graphs[] = {
  { 1, EXEC_ATTENTION_Q, 2, 0, 0, "1920 bytes of qkv are never read, the first at 512" },
  { 1, EXEC_ATTENTION_K, 3, 0, 0,
    "no operand's: out has not been written yet" }, /* it is transposed */
  { 1, EXEC_ATTENTION_V, 2, 0, 0, "no operand's: out has not been written yet" },
  { 1, EXEC_ATTENTION_Q, 1, 0, 0, " bytes of qkv are never read, the first at " },
  { 1, EXEC_ATTENTION_OUT, 2, 0, 0, "no operand's: lse ends 0 bytes before" },
  { 1, EXEC_ATTENTION_STATS, 1, 0, 0, "no operand's: lse ends 0 bytes before" },
  { 1, 0, 0, 16, 8, "2048 bytes of out are never written, the first at 2048" },
  { 1, 0, 0, 64, 48, " bytes of out are never written, the first at 96" },
  { 1, 0, 0, 2, 1, " bytes of out are never written, the first at 128" },
  { 2, EXEC_ATTENTION_Q, 2, 0, 0, "1920 bytes of qkv are never read, the first at 512" },
  { 2, EXEC_ATTENTION_OUT, 2, 0, 0, "240 bytes of out are never read, the first at 256" },
  { 2, EXEC_ATTENTION_DOUT, 1, 0, 0, "no operand's: dout ends 0 bytes before" },
  { 2, EXEC_ATTENTION_DQ, 2, 0, 0, "1920 bytes of dqkv are never written, the first at 512" },
  { 2, EXEC_ATTENTION_DK, 2, 0, 0, "no operand's: dqkv ends 0 bytes before" },
  { 2, EXEC_ATTENTION_DV, 2, 0, 0, "no operand's: dqkv ends 112 bytes before" },
  { 2, 0, 0, 16, 8, " bytes of dqkv are never written, the first at 4096" },
  { 2, 0, 0, 64, 48, " bytes of dqkv are never written, the first at 96" },
};

/* Op by op, and in a launched step, whose graphs come after those of the first step. */
START_TEST (wrong_graphs_are_named)
{
  const guint g = (guint)_i % G_N_ELEMENTS (graphs);
  const gboolean is_launched = (guint)_i >= G_N_ELEMENTS (graphs);
  const guint number = graphs[g].number + (is_launched ? 2 : 0);
  const char *op = graphs[g].number == 1 ? "op attention: " : "op attention_bwd: ";
  Case c;
  case_init_on (&c, 1, 9,
                is_launched ? "compute=bf16 seq=16 deterministic=on cuda_graph=on"
                            : "compute=bf16 seq=16 deterministic=on");
  c.job.steps = is_launched ? 4 : 2;
  if (graphs[g].id)
    fake_cudnn_stretch (number, graphs[g].id, graphs[g].dimension, 8);
  else
    fake_cudnn_resize (number, graphs[g].from, graphs[g].to);
  run_anyway (&c);
  ck_assert_msg (g_str_has_prefix (fake_cuda_error (), op)
                     && strstr (fake_cuda_error (), graphs[g].what),
                 "%u, tensor %d: '%s' lacks '%s' of '%s'", number, (int)graphs[g].id,
                 fake_cuda_error (), graphs[g].what, op);
  case_free (&c);
}
END_TEST

/* --- steps that are launched -------------------------------------------------------------- */

/* The first step runs op by op, the second is captured and launched, the third launched; the last
 * runs op by op again. Only captured calls have the mistake. */
#define GRAPH_STEPS 4

static struct
{
  gint number; /* the captured product, counted from 1 over all ranks together */
  char matrix;
} planted_stretch;

static gboolean
is_captured (void *stream)
{
  enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing (stream, &status) == cudaSuccess
         && status == cudaStreamCaptureStatusActive;
}

static int
launch_captured_stretch (const ExecArgs *args, void *stream)
{
  if (is_captured (stream) && g_atomic_int_get (&planted_stretch.number) > 0
      && g_atomic_int_dec_and_test (&planted_stretch.number))
    fake_cublaslt_stretch (1, planted_stretch.matrix, 16);
  return exec_kernels_cuda.launch[args->op->kind](args, stream);
}

static int
launch_captured_changed (const ExecArgs *args, void *stream)
{
  return is_captured (stream) ? launch_changed (args, stream)
                              : exec_kernels_cuda.launch[args->op->kind](args, stream);
}

static void
case_init_graph (Case *c, guint ranks, int major, const char *fields)
{
  g_autofree char *all = g_strconcat (fields, " deterministic=on cuda_graph=on", NULL);
  case_init_on (c, ranks, major, all);
  c->job.steps = GRAPH_STEPS;
}

START_TEST (captured_strides_are_named)
{
  static ExecKernels planted;
  Case c;
  case_init_graph (&c, 1 + (guint)_i % 2, strides[_i].major, strides[_i].fields);
  planted = exec_kernels_cuda;
  planted.launch[PLAN_OP_GEMM] = planted.launch[PLAN_OP_GEMM_ADD] = launch_captured_stretch;
  planted_stretch.number = (gint)strides[_i].number;
  planted_stretch.matrix = strides[_i].matrix;
  c.job.kernels = watch_kernels (&planted);
  run_anyway (&c);
  ck_assert_int_le (planted_stretch.number, 0);
  ck_assert_msg (strstr (fake_cuda_error (), strides[_i].op)
                     && strstr (fake_cuda_error (), strides[_i].what),
                 "%s, %c: '%s' lacks '%s'", strides[_i].fields, strides[_i].matrix,
                 fake_cuda_error (), strides[_i].what);
  case_free (&c);
}
END_TEST

START_TEST (captured_rows_are_named)
{
  static ExecKernels planted;
  const PlanOpKind kind = changes[_i].kind;
  g_autofree char *op = g_strdup_printf ("op %s: ", plan_op_name (kind));
  Case c;
  case_init_graph (&c, 1, 9, "compute=bf16 seq=16");
  planted = exec_kernels_cuda;
  planted.launch[kind] = launch_captured_changed;
  memcpy (planted_dims, changes[_i].dims, sizeof planted_dims);
  c.job.kernels = watch_kernels (&planted);
  run_anyway (&c);
  ck_assert_msg (g_str_has_prefix (fake_cuda_error (), op)
                     && strstr (fake_cuda_error (), changes[_i].what),
                 "'%s' lacks '%s' of '%s'", fake_cuda_error (), changes[_i].what, op);
  case_free (&c);
}
END_TEST

START_TEST (right_graphs_are_not_told)
{
  Case c;
  case_init_graph (&c, 1 + (guint)_i % 2, strides[_i].major, strides[_i].fields);
  case_must_run (&c, strides[_i].fields);
  case_clear (&c, strides[_i].fields);
}
END_TEST

/* The same runs without a mistake report nothing. */
START_TEST (right_strides_are_not_told)
{
  Case c;
  g_autofree char *fields = g_strconcat (strides[_i].fields, " deterministic=on", NULL);
  case_init_on (&c, 1 + (guint)_i % 2, strides[_i].major, fields);
  case_must_run (&c, fields);
  case_clear (&c, fields);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("cuda-operands");
  TCase *tcase = tcase_create ("operands");
  tcase_set_timeout (tcase, 120);
  test_add_run_share (tcase, wrong_strides_are_named, G_N_ELEMENTS (strides));
  test_add_run_share (tcase, wrong_batches_are_named, G_N_ELEMENTS (batch_strides));
  test_add_run_share (tcase, wrong_rows_are_named, G_N_ELEMENTS (changes));
  test_add_run_share (tcase, right_strides_are_not_told, G_N_ELEMENTS (strides));
  test_add_run_share (tcase, wrong_graphs_are_named, 2 * G_N_ELEMENTS (graphs));
  test_add_run_share (tcase, captured_strides_are_named, G_N_ELEMENTS (strides));
  test_add_run_share (tcase, captured_rows_are_named, G_N_ELEMENTS (changes));
  test_add_run_share (tcase, right_graphs_are_not_told, G_N_ELEMENTS (strides));
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
