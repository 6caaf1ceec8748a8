/* SPDX-License-Identifier: Apache-2.0 */
/* Steps as CUDA graphs on the fake device: they leave the same bits as steps op by op, whatever
 * happens between steps; and calls that cannot be captured. */
#include "config.h"

#include "exec/walk/checkpoint.h"
#include "tests/fake/cuda-case.h"
#include "tests/fake/cuda-fake.h"
#include "tests/share.h"

#include <cuda_runtime_api.h>
#include <glib/gstdio.h>
#include <stdlib.h>
#include <string.h>

#define GRAPH_STEPS 5 /* one op by op, one captured, launches, and the last op by op again */

static void
case_init_graph (Case *c, guint ranks, const char *fields, gboolean is_on)
{
  g_autofree char *all
      = g_strdup_printf ("%s deterministic=on cuda_graph=%s", fields, is_on ? "on" : "off");
  case_init (c, ranks, all);
  c->job.steps = GRAPH_STEPS;
  c->job.rate.warmup_steps = 3; /* each step has a rate of its own */
}

/* Checks that two runs have the same results and messages. */
static void
assert_equal_runs (const Case *a, const Case *b, const char *what)
{
  const gsize bytes = GRAPH_STEPS * sizeof (double);
  for (guint r = 0; r < a->ranks; r++)
    {
      const ExecResult *x = &a->results[r], *y = &b->results[r];
      ck_assert_msg (memcmp (x->losses, y->losses, bytes) == 0
                         && memcmp (x->grad_norms, y->grad_norms, bytes) == 0,
                     "%s: other losses or norms", what);
      for (guint step = 0; step < GRAPH_STEPS; step++)
        ck_assert_msg (x->eval_losses[step] == y->eval_losses[step] || !a->job.eval_of,
                       "%s: other evaluation", what);
      ck_assert_msg (memcmp (x->main_params->data, y->main_params->data, x->main_params->len) == 0,
                     "%s: other weights", what);
      ck_assert_int_eq (x->trace->spans->len, y->trace->spans->len);
    }
}

static const char *const plans[] = {
  "compute=fp32",
  "compute=bf16 strategy=no_shard",
  "compute=bf16 strategy=optim eod_mask_loss=on",
  "compute=bf16 strategy=optim_grads mbs=1 gbs=8 hidden_dropout=0.2",
  "compute=bf16 strategy=optim_grads_params gbs=8",
  "compute=bf16 strategy=optim_grads_params double_buffer=on recompute=full "
  "hidden_dropout=0.2 attention_dropout=0.1",
  "compute=bf16 strategy=optim_grads_params reduce_algo=a2a optimizer=sgd",
  "compute=bf16 strategy=optim_grads_params nccl_ub=on comm_unit=1",
  "compute=bf16 strategy=optim_grads grad_comm=bf16 per_token_loss=off nan_check=loss "
  "loss_chunks=4",
};

/* With 1 to 4 ranks. */
START_TEST (a_graph_changes_no_bit)
{
  Case plain, graph;
  const guint ranks = 1 + (guint)_i % MAX_RANKS;
  const char *fields = plans[_i / MAX_RANKS];
  g_autofree char *what = g_strdup_printf ("%u ranks: %s", ranks, fields);
  g_autofree char *sized = ranks == 3 && strstr (fields, "gbs=8")
                               ? g_strconcat (fields, " gbs=6", NULL)
                               : g_strdup (fields);
  case_init_graph (&plain, ranks, sized, FALSE);
  case_must_run (&plain, what);
  ck_assert_uint_eq (count_logged ("graph"), 0);
  case_init_graph (&graph, ranks, sized, TRUE);
  case_must_run (&graph, what);
  ck_assert_uint_eq (count_logged ("graph"), 2 * (GRAPH_STEPS - 2));
  assert_equal_runs (&graph, &plain, what);
  case_free (&plain);
  case_clear (&graph, what);
}
END_TEST

/* Padded experts, for whose rows the host need not wait. */
START_TEST (padded_experts_may_be_in_a_graph)
{
  static const char *const words[]
      = { "ep=1 compute=bf16 moe_capacity=1.25",
          "ep=2 compute=bf16 strategy=optim_grads_params moe_capacity=1",
          "ep=2 compute=fp32 strategy=optim moe_capacity=0.7 mbs=1" };
  const guint ranks = _i == 0 ? 1 : 2;
  Case c[2];
  for (guint i = 0; i < 2; i++)
    {
      g_autofree char *all
          = g_strdup_printf ("gbs=4 %s moe_pad_to_capacity=on deterministic=on cuda_graph=%s",
                             words[_i], i == 0 ? "off" : "on");
      case_open (&c[i],
                 "family=mixtral,layers=2,hidden=16,ffn=8,heads=2,kv_heads=1,head_dim=8,vocab=32,"
                 "max_seq=16,experts=4,topk=2",
                 ranks);
      case_set_plan (&c[i], all);
      c[i].job.steps = GRAPH_STEPS;
      case_must_run (&c[i], words[_i]);
      ck_assert_uint_eq (count_logged ("graph"), i == 0 ? 0 : 2 * (GRAPH_STEPS - 2));
    }
  assert_equal_runs (&c[1], &c[0], words[_i]);
  for (guint r = 0; r < ranks; r++)
    ck_assert (c[1].results[r].dropped == c[0].results[r].dropped);
  case_free (&c[0]);
  case_clear (&c[1], words[_i]);
}
END_TEST

/* Runs with an evaluation after each step and a checkpoint. */
static void
run_with_pauses (Case *c, guint ranks, gboolean is_on, const char *folder)
{
  case_init_graph (c, ranks, "compute=bf16 strategy=optim_grads_params", is_on);
  case_evaluates (c);
  c->job.save = folder;
  c->job.save_every = 2;
  case_must_run (c, "pauses");
}

START_TEST (pauses_between_launches_change_no_bit)
{
  g_autofree char *folder = g_dir_make_tmp ("test-cuda-graph-XXXXXX", NULL);
  const guint ranks = 1 + (guint)_i;
  Case plain, graph;
  run_with_pauses (&plain, ranks, FALSE, folder);
  run_with_pauses (&graph, ranks, TRUE, folder);
  ck_assert_uint_eq (count_logged ("graph"), 2 * (GRAPH_STEPS - 2));
  assert_equal_runs (&graph, &plain, "pauses");
  case_remove_folder (folder);
  case_free (&plain);
  case_clear (&graph, "pauses");
}
END_TEST

/* Resumes from a checkpoint that a run with graphs has saved after a launch. */
START_TEST (a_resumed_run_goes_on_as_if_never_stopped)
{
  Case whole, part;
  g_autoptr (GError) error = NULL;
  g_autofree char *folder = g_dir_make_tmp ("test-cuda-graph-XXXXXX", NULL);
  const char *fields = "strategy=optim_grads_params compute=bf16";
  case_init_graph (&whole, 2, fields, TRUE);
  whole.job.steps = 8;
  case_must_run (&whole, "whole");
  case_init_graph (&part, 2, fields, TRUE);
  part.job.steps = 4;
  part.job.save = folder;
  case_must_run (&part, "first half");
  case_clear_results (&part);
  g_autoptr (ExecCheckpoint) checkpoint = exec_checkpoint_open (folder, part.model, &error);
  ck_assert_msg (checkpoint != NULL, "%s", error ? error->message : "");
  part.job.save = NULL;
  part.job.resume = checkpoint;
  part.job.first_step = exec_checkpoint_step (checkpoint);
  part.job.first_token = exec_checkpoint_tokens (checkpoint);
  case_must_run (&part, "second half");
  ck_assert (memcmp (part.results[0].losses, whole.results[0].losses + 4, 4 * sizeof (double))
             == 0);
  case_remove_folder (folder);
  case_free (&part);
  case_clear (&whole, "whole");
}
END_TEST

/* --- numbers that are none ---------------------------------------------------------------- */

static ExecKernels planted_kernels;
static guint norm_calls, planted_call;

static int
norm_bwd_with_nan (const ExecArgs *args, void *stream)
{
  const int code = exec_kernels_cuda.launch[PLAN_OP_RMSNORM_BWD](args, stream);

  if (code != 0 || norm_calls++ != planted_call)
    return code;
  return (int)cudaMemsetAsync (args->ptr[1], 0xff, sizeof (float), stream);
}

/* A NaN in the captured step, and so in all launches, is reported as in a step op by op, but for
 * the step number: the host looks at a launch after it. */
START_TEST (nan_check_looks_behind_a_launch)
{
  static const char *const where[] = { "the gradient of final_norm is not finite in micro batch 1",
                                       "mlp_norm of layer 1 is not finite in micro batch 1",
                                       "attention_norm of layer 0 is not finite in micro batch 2" };
  const guint each = 5; /* norms in a micro batch */
  const guint calls[] = { 0, 1, each + 4 };
  char *message[2] = { NULL };

  for (guint is_on = 0; is_on < 2; is_on++)
    {
      Case c;
      g_autoptr (GError) error = NULL;
      case_init_graph (&c, 1, "nan_check=params strategy=no_shard mbs=1 gbs=2", is_on);
      planted_kernels = exec_kernels_cuda;
      planted_kernels.launch[PLAN_OP_RMSNORM_BWD] = norm_bwd_with_nan;
      c.job.kernels = &planted_kernels;
      planted_call = 2 * each + calls[_i]; /* in the second step */
      norm_calls = 0;
      ck_assert (!case_run (&c, &error));
      ck_assert_msg (strstr (error->message, where[_i]) != NULL
                         && strstr (error->message, "step 2, ") != NULL,
                     "%s", error->message);
      message[is_on] = g_strdup (
          strchr (error->message, '(')); /* what stands before differs, as ops have other numbers */
      case_clear (&c, where[_i]);
    }
  ck_assert_str_eq (message[0], message[1]);
  g_free (message[0]);
  g_free (message[1]);
}
END_TEST

/* --- planted mistakes --------------------------------------------------------------------- */

/* A kernel that makes the host wait, as if it looked at its own result. */
static int
clip_and_look (const ExecArgs *args, void *stream)
{
  int code = exec_kernels_cuda.launch[PLAN_OP_CLIP](args, stream);
  float seen[4];
  void *more = NULL;
  if (code != 0)
    return code;
  switch (planted_call)
    {
    case 0:
      return (int)cudaStreamSynchronize (stream);
    case 1:
      return (int)cudaStreamQuery (stream);
    case 2:
      return (int)cudaMemcpyAsync (seen, args->ptr[0], sizeof seen, cudaMemcpyDeviceToHost, stream);
    case 3:
      code = (int)cudaMalloc (&more, 64);
      return code != 0 ? code : (int)cudaFree (more);
    default:
      return (int)cudaDeviceSynchronize ();
    }
}

START_TEST (calls_that_no_capture_takes_are_found)
{
  Case c;
  g_autoptr (GError) error = NULL;
  planted_call = (guint)_i;
  planted_kernels = exec_kernels_cuda;
  planted_kernels.launch[PLAN_OP_CLIP] = clip_and_look;
  case_init_graph (&c, 1, "strategy=no_shard", FALSE);
  c.job.kernels = &planted_kernels;
  ck_assert_msg (case_run (&c, &error), "%s", error ? error->message : "");
  case_clear (&c, "op by op");
  case_init_graph (&c, 1, "strategy=no_shard", TRUE);
  c.job.kernels = &planted_kernels;
  ck_assert (!case_run (&c, &error));
  ck_assert_msg (strstr (error->message, "rank 0, step 2, op ") != NULL
                     && strstr (error->message, "cudaErrorStreamCapture") != NULL,
                 "%s", error->message);
  case_clear (&c, "as a graph");
}
END_TEST

static ExecDeviceOps planted_ops;
static gboolean (*real_wait) (ExecDevice *self, guint32 event, PlanStream stream, GError **error);

/* Makes the reductions' stream wait for nothing. */
static gboolean
wait_unless_planted (ExecDevice *self, guint32 event, PlanStream stream, GError **error)
{
  return stream == PLAN_STREAM_REDUCE || real_wait (self, event, stream, error);
}

START_TEST (a_missing_event_is_found)
{
  Case c;
  g_autoptr (GError) error = NULL;
  case_init_graph (&c, 2, "strategy=optim_grads_params", TRUE);
  planted_ops = exec_device_cuda;
  planted_kernels = exec_kernels_cuda;
  real_wait = planted_ops.wait;
  planted_ops.wait = wait_unless_planted;
  planted_kernels.device = &planted_ops;
  c.job.kernels = &planted_kernels;
  case_run (&c, &error);
  ck_assert (*fake_cuda_error () != '\0');
  case_free (&c);
}
END_TEST

/* Whichever call fails, the run ends with an error, and no memory is left. */
START_TEST (any_call_may_fail)
{
  guint failed = 0;
  for (guint call = 1 + (guint)_i; call < 1400; call += 41)
    {
      Case c;
      g_autoptr (GError) error = NULL;
      case_init_graph (&c, 1, "strategy=no_shard", TRUE);
      fake_cuda_fail_at (call, cudaErrorNotSupported);
      if (!case_run (&c, &error))
        {
          ck_assert (error && *error->message);
          failed++;
        }
      case_clear (&c, "failing");
    }
  ck_assert_uint_gt (failed, 10);
}
END_TEST

/* --- refusals ----------------------------------------------------------------------------- */

START_TEST (steps_that_cannot_be_kept_are_refused)
{
  Case c;
  case_init_graph (&c, 1, "mbs=1", TRUE);
  c.job.kernels = &exec_kernels_cpu;
  assert_refused (&c, PLAN_ERROR_UNSUPPORTED, "cuda_graph=on is for devices that run ops by");
  case_init (&c, 1, "cuda_graph=on precision_aware=on offload_optimizer=0.5");
  assert_refused (&c, PLAN_ERROR_UNSUPPORTED,
                  "cuda_graph=on cannot keep a step of which the host does a part: it must be off");
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("cuda-graph");
  TCase *tcase = tcase_create ("graph");
  tcase_set_timeout (tcase, 300);
  test_add_run_share (tcase, a_graph_changes_no_bit, MAX_RANKS * G_N_ELEMENTS (plans));
  tcase_add_loop_test (tcase, padded_experts_may_be_in_a_graph, 0, 3);
  tcase_add_loop_test (tcase, pauses_between_launches_change_no_bit, 0, MAX_RANKS);
  tcase_add_test (tcase, a_resumed_run_goes_on_as_if_never_stopped);
  tcase_add_loop_test (tcase, nan_check_looks_behind_a_launch, 0, 3);
  tcase_add_loop_test (tcase, calls_that_no_capture_takes_are_found, 0, 5);
  tcase_add_test (tcase, a_missing_event_is_found);
  tcase_add_loop_test (tcase, any_call_may_fail, 0, 2);
  tcase_add_test (tcase, steps_that_cannot_be_kept_are_refused);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
