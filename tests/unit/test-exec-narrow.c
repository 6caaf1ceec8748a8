/* SPDX-License-Identifier: Apache-2.0 */
/* Runs with state in eight bits that has scales: weights and activations with delayed scaling,
 * whose scales follow from the largest magnitudes of earlier steps; and the optimizer's moments. */
#include "config.h"

#include "exec/probe/probe.h"
#include "exec/walk/exec.h"
#include "planner/base/error.h"
#include "planner/schedule/quantizers.h"
#include "tests/case.h"
#include "tests/reference/evaluate.h"
#include "tests/share.h"

#include <check.h>
#include <glib/gstdio.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STEPS 4
#define MAX_RANKS 8

typedef struct
{
  PlanModel *model;
  PlanCluster *cluster;
  PlanCase *of, *eval_of;
  ExecJob job;
  guint ranks;
  ExecResult results[MAX_RANKS], expected;
} Case;

#define must(call, error) \
  do \
    { \
      const gboolean is_ok = (call); \
      ck_assert_msg (is_ok, "%s", (error) ? (error)->message : "no error"); \
    } \
  while (0)

#define DELAYED "stack=native gbs=8 seq=16 compute=fp8-delayed"
#define MOMENTS "stack=native gbs=8 seq=16 compute=bf16 precision_aware=on"

static void
case_init (Case *c, guint ranks, const char *fields)
{
  g_autoptr (GError) error = NULL;
  *c = (Case){ .ranks = ranks };
  c->model = plan_model_new ("llama-tiny", &error);
  must (c->model != NULL, error);
  c->cluster = exec_probe_cluster (ranks, &error);
  must (c->cluster != NULL, error);
  c->of = test_case (c->model, c->cluster, fields);
  c->job = (ExecJob){ .of = c->of,
                      .kernels = &exec_kernels_cpu,
                      .seed = 1,
                      .steps = STEPS,
                      .constants = { .norm_eps = 1e-5,
                                     .rope = c->model->rope,
                                     .lr = 1e-2,
                                     .beta1 = 0.9,
                                     .beta2 = 0.95,
                                     .adam_eps = 1e-8,
                                     .weight_decay = 0.1,
                                     .max_norm = 1 } };
}

static void
case_evaluates (Case *c, const char *fields)
{
  g_autofree char *eval = g_strconcat (fields, " task=eval", NULL);
  c->job.eval_of = c->eval_of = test_case (c->model, c->cluster, eval);
  c->job.eval_every = 1;
}

static void
case_clear (Case *c)
{
  for (guint r = 0; r < MAX_RANKS; r++)
    exec_result_clear (&c->results[r]);
  exec_result_clear (&c->expected);
  plan_case_free (c->of);
  plan_case_free (c->eval_of);
  plan_model_free (c->model);
  plan_cluster_free (c->cluster);
}

static void
run (Case *c)
{
  g_autoptr (GError) error = NULL;
  for (guint r = 0; r < MAX_RANKS; r++)
    exec_result_clear (&c->results[r]);
  must (exec_run_threads (&c->job, c->ranks, FALSE, NULL, NULL, c->results, &error), error);
}

static void
evaluate (Case *c)
{
  g_autoptr (GError) error = NULL;
  exec_result_clear (&c->expected);
  must (exec_evaluate (&c->job, c->ranks, &c->expected, &error), error);
}

static void
assert_same (const Case *c, const ExecResult *a, const ExecResult *b, const char *what)
{
  const gsize bytes = (gsize)c->job.steps * sizeof (double);
  ck_assert_msg (memcmp (a->losses, b->losses, bytes) == 0, "%s: loss %.9g, not %.9g", what,
                 a->losses[c->job.steps - 1], b->losses[c->job.steps - 1]);
  ck_assert_msg (memcmp (a->grad_norms, b->grad_norms, bytes) == 0, "%s: norm %.9g, not %.9g", what,
                 a->grad_norms[c->job.steps - 1], b->grad_norms[c->job.steps - 1]);
}

/* Runs a plan on so many ranks, with evaluations: losses, norms and evaluation losses are the
 * evaluator's, bit for bit. */
static void
assert_evaluated (guint ranks, const char *fields)
{
  Case c;
  if (ranks < 4 && strstr (fields, "dp_outer"))
    return;
  case_init (&c, ranks, fields);
  case_evaluates (&c, fields);
  evaluate (&c);
  run (&c);
  for (guint r = 0; r < ranks; r++)
    {
      assert_same (&c, &c.results[r], &c.expected, fields);
      ck_assert_msg (
          memcmp (c.results[r].eval_losses, c.expected.eval_losses, STEPS * sizeof (double)) == 0,
          "%s: evaluation", fields);
    }
  case_clear (&c);
}

#define N_RANKS 3
static const guint some_ranks[N_RANKS] = { 1, 2, 4 };

static const char *const delayed[]
    = { "strategy=no_shard",
        "strategy=no_shard recompute=full",
        "strategy=optim_grads_params",
        "strategy=optim_grads_params recompute=selective recompute_modules=mlp",
        "strategy=optim_grads_params param_gather=fp8",
        "strategy=optim_grads_params param_gather=fp8 recompute=full keep_transpose=on",
        "strategy=optim param_gather=fp8",
        "strategy=optim_grads param_gather=fp8 double_buffer=on",
        "strategy=optim_grads_params param_gather=fp8 dp_outer=2 outer_strategy=optim",
        "strategy=optim_grads_params dp_outer=2 param_gather=fp8 fine_grained=on" };

START_TEST (delayed_equals_the_evaluator)
{
  g_autofree char *fields = g_strconcat (DELAYED " ", delayed[_i / N_RANKS], NULL);
  assert_evaluated (some_ranks[_i % N_RANKS], fields);
}
END_TEST

/* Each rank's part of a parameter has a scale of its own for its moments. Shards cut parameters,
 * also where buckets are filled by size. */
static const char *const moments[]
    = { "strategy=no_shard exp_avg=fp8 exp_avg_sq=fp8", "strategy=optim_grads_params exp_avg=fp8",
        "strategy=optim exp_avg=bf16 exp_avg_sq=fp8 main_params=bf16",
        "strategy=optim_grads_params dp_outer=2 exp_avg=fp8 exp_avg_sq=fp8",
        "strategy=optim_grads_params dp_outer=2 outer_strategy=optim exp_avg=fp8" };

START_TEST (moments_equal_the_evaluator)
{
  g_autofree char *fields = g_strconcat (MOMENTS " ", moments[_i / N_RANKS], NULL);
  assert_evaluated (some_ranks[_i % N_RANKS], fields);
}
END_TEST

/* An evaluation sees other magnitudes and keeps none of them. */
START_TEST (evaluations_leave_no_trace)
{
  Case with, without;
  const char *const fields = DELAYED " strategy=optim_grads_params param_gather=fp8";
  case_init (&with, 2, fields);
  case_evaluates (&with, fields);
  case_init (&without, 2, fields);
  run (&with);
  run (&without);
  assert_same (&with, &with.results[0], &without.results[0], fields);
  case_clear (&with);
  case_clear (&without);
}
END_TEST

static void
remove_folder (const char *path)
{
  g_autoptr (GDir) dir = g_dir_open (path, 0, NULL);
  const char *name;
  while (dir && (name = g_dir_read_name (dir)))
    {
      g_autofree char *inner = g_build_filename (path, name, NULL);
      if (g_file_test (inner, G_FILE_TEST_IS_DIR))
        remove_folder (inner);
      else
        g_unlink (inner);
    }
  g_rmdir (path);
}

/* Runs two steps and saves; gives the checkpoint. */
static ExecCheckpoint *
saved_by (guint ranks, const char *fields, const char *folder)
{
  Case c;
  g_autoptr (GError) error = NULL;
  case_init (&c, ranks, fields);
  c.job.steps = 2;
  c.job.save = folder;
  run (&c);
  ExecCheckpoint *checkpoint = exec_checkpoint_open (folder, c.model, &error);
  must (checkpoint != NULL, error);
  case_clear (&c);
  return checkpoint;
}

static void
resume_from (Case *c, const ExecCheckpoint *checkpoint)
{
  c->job.resume = checkpoint;
  c->job.first_step = exec_checkpoint_step (checkpoint);
  c->job.first_token = exec_checkpoint_tokens (checkpoint);
  c->job.steps = STEPS - c->job.first_step;
}

/* A run that one number of ranks saved is resumed by another: its losses are the evaluator's
 * from there on; and with the same number of ranks they are those of a run that was never
 * interrupted. */
START_TEST (checkpoints_hold_the_scales)
{
  static const guint before[] = { 1, 2, 4, 2 }, after[] = { 2, 4, 1, 2 };
  const char *const kinds[] = { DELAYED " strategy=optim_grads_params",
                                DELAYED " strategy=optim_grads_params param_gather=fp8",
                                MOMENTS " strategy=optim_grads_params exp_avg=fp8 exp_avg_sq=fp8" };
  const char *const fields = kinds[_i / 4];
  g_autofree char *folder = g_dir_make_tmp ("narrow-XXXXXX", NULL);
  g_autoptr (ExecCheckpoint) checkpoint = saved_by (before[_i % 4], fields, folder);
  Case c;
  case_init (&c, after[_i % 4], fields);
  resume_from (&c, checkpoint);
  evaluate (&c);
  run (&c);
  assert_same (&c, &c.results[0], &c.expected, fields);
  if (before[_i % 4] == after[_i % 4])
    {
      Case whole;
      case_init (&whole, after[_i % 4], fields);
      run (&whole);
      ck_assert_mem_eq (c.results[0].losses, whole.results[0].losses + 2, 2 * sizeof (double));
      case_clear (&whole);
    }
  case_clear (&c);
  remove_folder (folder);
}
END_TEST

START_TEST (scales_are_found)
{
  g_autofree char *folder = g_dir_make_tmp ("narrow-XXXXXX", NULL);
  g_autoptr (ExecCheckpoint) checkpoint = saved_by (2, DELAYED, folder);
  g_autoptr (GError) error = NULL;
  float scales[PLAN_QUANTIZERS_OF_PRODUCT],
      history[PLAN_QUANTIZERS_OF_PRODUCT * PLAN_QUANTIZER_HISTORY];
  must (exec_checkpoint_read (checkpoint, EXEC_STATE_SCALES, PLAN_TENSOR_DOWN, 3, 0,
                              G_N_ELEMENTS (scales), scales, &error),
        error);
  must (exec_checkpoint_read (checkpoint, EXEC_STATE_HISTORY, PLAN_TENSOR_DOWN, 3, 0,
                              G_N_ELEMENTS (history), history, &error),
        error);
  for (guint i = 0; i < G_N_ELEMENTS (scales); i++)
    {
      const float *seen = history + i * PLAN_QUANTIZER_HISTORY;
      const float most = i == PLAN_QUANTIZER_GRADIENT ? 57344 : 448;
      ck_assert_float_eq (scales[i], most / fmaxf (seen[0], seen[1]));
      ck_assert_float_gt (seen[0], 0);
      ck_assert_float_gt (seen[1], 0);
      ck_assert_float_eq (seen[2], 0); /* two steps were made */
    }
  remove_folder (folder);
}
END_TEST

START_TEST (checkpoints_without_scales_are_refused)
{
  g_autofree char *folder = g_dir_make_tmp ("narrow-XXXXXX", NULL);
  g_autoptr (ExecCheckpoint) checkpoint
      = saved_by (1, "stack=native gbs=8 seq=16 compute=fp8-tensorwise", folder);
  g_autoptr (GError) error = NULL;
  Case c;
  case_init (&c, 1, DELAYED);
  resume_from (&c, checkpoint);
  ck_assert (!exec_run_threads (&c.job, 1, FALSE, NULL, NULL, c.results, &error));
  ck_assert_msg (strstr (error->message, "lacks element 0 of scales/qkv/0: it was written with "
                                         "another compute"),
                 "%s", error->message);
  case_clear (&c);
  remove_folder (folder);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("exec-narrow");
  TCase *tcase = tcase_create ("narrow");
  tcase_set_timeout (tcase, 300);
  test_add_runs (tcase, delayed_equals_the_evaluator, N_RANKS * G_N_ELEMENTS (delayed));
  test_add_runs (tcase, moments_equal_the_evaluator, N_RANKS * G_N_ELEMENTS (moments));
  tcase_add_test (tcase, evaluations_leave_no_trace);
  test_add_runs (tcase, checkpoints_hold_the_scales, 12);
  tcase_add_test (tcase, scales_are_found);
  tcase_add_test (tcase, checkpoints_without_scales_are_refused);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
