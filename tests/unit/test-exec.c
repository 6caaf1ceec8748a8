/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/exec.h"
#include "exec/probe.h"
#include "planner/error.h"
#include "planner/lower.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct
{
  PlanModel *model;
  PlanCluster *cluster;
  Plan plan;
  ExecJob job;
} Case;

static void
case_init (Case *c, guint ranks, const char *strategy, const char *compute, gint64 steps)
{
  g_autoptr (GError) error = NULL;
  Plan plan;
  c->model = plan_model_new ("llama-tiny", &error);
  c->cluster = exec_probe_cluster (ranks, &error);
  plan_init (&plan);
  ck_assert (plan_set (&plan, "stack", "native", &error)
             && plan_set (&plan, "strategy", strategy, &error)
             && plan_set (&plan, "compute", compute, &error) && plan_set (&plan, "gbs", "8", &error)
             && plan_set (&plan, "seq", "32", &error));
  ck_assert_msg (plan_resolve (&plan, c->model, c->cluster, &c->plan, &error), "%s",
                 error ? error->message : "");
  c->job = (ExecJob){ .model = c->model,
                      .plan = &c->plan,
                      .cluster = c->cluster,
                      .kernels = &exec_kernels_cpu,
                      .seed = 1,
                      .steps = steps,
                      .constants = { .norm_eps = 1e-5,
                                     .rope_theta = 10000,
                                     .lr = 3e-3,
                                     .beta1 = 0.9,
                                     .beta2 = 0.95,
                                     .adam_eps = 1e-8,
                                     .weight_decay = 0.1,
                                     .max_norm = 1 } };
}

static void
case_clear (Case *c)
{
  plan_model_free (c->model);
  plan_cluster_free (c->cluster);
}

/* The synthetic text can be learnt: after 40 steps the loss is well below that of guessing. */
static void
assert_learns (guint ranks, const char *strategy, const char *compute)
{
  Case c;
  ExecResult results[4] = { { 0 } };
  g_autoptr (GError) error = NULL;
  case_init (&c, ranks, strategy, compute, 40);
  ck_assert_msg (exec_run_threads (&c.job, ranks, FALSE, NULL, NULL, results, &error), "%s",
                 error ? error->message : "");
  const double first = results[0].losses[0], last = results[0].losses[39];
  ck_assert_msg (first > 5.0 && first < 6.1, "the first loss is %.3f", first); /* ln 256 = 5.55 */
  ck_assert_msg (last < first - 1.0, "the loss went from %.3f to %.3f", first, last);
  for (guint r = 0; r < ranks; r++)
    exec_result_clear (&results[r]);
  case_clear (&c);
}

START_TEST (training_learns)
{
  assert_learns (1, "no_shard", "fp32");
  assert_learns (2, "no_shard", "bf16");
  assert_learns (2, "optim_grads_params", "fp32");
  assert_learns (4, "optim_grads_params", "bf16");
}
END_TEST

/* With fp32 and one micro batch per rank, N ranks and one rank with N micro batches add up the same
 * numbers in the same order. */
START_TEST (ranks_do_not_matter_where_the_sums_are_the_same)
{
  Case one, four;
  ExecResult a[1] = { { 0 } }, b[8] = { { 0 } };
  g_autoptr (GError) error = NULL;
  case_init (&one, 1, "no_shard", "fp32", 3);
  case_init (&four, 8, "optim_grads_params", "fp32", 3);
  ck_assert (exec_run_threads (&one.job, 1, FALSE, NULL, NULL, a, &error));
  ck_assert (exec_run_threads (&four.job, 8, FALSE, NULL, NULL, b, &error));
  ck_assert (memcmp (a[0].losses, b[0].losses, 3 * sizeof (double)) == 0);
  ck_assert (memcmp (a[0].grad_norms, b[0].grad_norms, 3 * sizeof (double)) == 0);
  exec_result_clear (&a[0]);
  for (guint r = 0; r < 8; r++)
    exec_result_clear (&b[r]);
  case_clear (&one);
  case_clear (&four);
}
END_TEST

/* One rank's schedule with the first line that contains `needle` taken out of its step. */
static PlanSchedule *
without (const Case *c, const char *needle)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanSchedule) schedule = plan_lower (c->model, c->cluster, &c->plan, 0, &error);
  ck_assert_msg (schedule != NULL, "%s", error ? error->message : "");
  g_autofree char *text = plan_schedule_print (schedule);
  char *step = strstr (text, "section step");
  char *line = strstr (step, needle);
  ck_assert_msg (line != NULL, "no '%s' in the step", needle);
  while (line[-1] != '\n')
    line--;
  memmove (line, strchr (line, '\n') + 1, strlen (strchr (line, '\n') + 1) + 1);
  PlanSchedule *broken = plan_schedule_parse (text, "text", &error);
  ck_assert_msg (broken != NULL, "%s", error ? error->message : "");
  return broken;
}

static void
assert_caught (const char *compute, const char *needle, const char *message)
{
  Case c;
  g_auto (ExecResult) result = { 0 };
  g_autoptr (GError) error = NULL;
  case_init (&c, 1, "no_shard", compute, 2);
  g_autoptr (PlanSchedule) broken = without (&c, needle);
  ExecComm *comm = exec_comm_self_open ();
  ck_assert (!exec_run_schedule (&c.job, broken, comm, FALSE, NULL, NULL, &result, &error));
  ck_assert_msg (strstr (error->message, message) != NULL, "'%s' lacks '%s'", error->message,
                 message);
  comm->ops->close (comm);
  case_clear (&c);
}

START_TEST (planted_bugs_are_caught)
{
  assert_caught ("bf16", "cast compute out=weights.embed", "holds weights of step 1");
  assert_caught ("bf16", "swiglu compute", "is read before anything wrote it");
  assert_caught ("bf16", "alloc compute buf=logits", "is given back but was not taken");
  assert_caught ("fp8-tensorwise", "quantize compute out=copy.qkv",
                 "copy.qkv is read before anything wrote it");
  assert_caught ("bf16", "free compute buf=prob", "prob[0] is taken twice");
}
END_TEST

/* The CPU's kernels, but one call of a norm's backward pass leaves a NaN in the weight's gradient.
 */
static gint planted_call, norm_calls;

static void
norm_bwd_with_nan (const ExecArgs *args)
{
  exec_kernels_cpu.run[PLAN_OP_RMSNORM_BWD](args);
  if (g_atomic_int_add (&norm_calls, 1) == planted_call)
    ((float *)args->ptr[1])[3] = NAN;
}

/* How a run ends whose check and whose call with a NaN are these. */
static char *
message_of_nan (const char *strategy, const char *check, gint call)
{
  Case c;
  ExecResult results[2] = { { 0 } };
  g_autoptr (GError) error = NULL;
  ExecKernels kernels = exec_kernels_cpu;
  case_init (&c, 2, strategy, "fp32", 3);
  ck_assert (plan_set (&c.plan, "nan_check", check, &error)
             && plan_set (&c.plan, "double_buffer", "on", &error));
  kernels.run[PLAN_OP_RMSNORM_BWD] = norm_bwd_with_nan;
  c.job.kernels = &kernels;
  planted_call = call;
  norm_calls = 0;
  const gboolean ok = exec_run_threads (&c.job, 2, FALSE, NULL, NULL, results, &error);
  for (guint r = 0; r < 2; r++)
    exec_result_clear (&results[r]);
  case_clear (&c);
  return ok ? NULL : g_strdup (error->message);
}

/* Two ranks run at once: the planted call is one of two that are alike. */
START_TEST (nan_check_names_the_parameter)
{
  static const char *const strategies[] = { "no_shard", "optim_grads", "optim_grads_params" };
  for (guint i = 0; i < G_N_ELEMENTS (strategies); i++)
    {
      g_autofree char *last = message_of_nan (strategies[i], "params", 0);
      ck_assert_msg (last && strstr (last, "the gradient of final_norm is not finite"), "%s", last);
      g_autofree char *loss = message_of_nan (strategies[i], "loss", 4);
      ck_assert_msg (loss && strstr (loss, "step 2") && strstr (loss, "the loss is not finite"),
                     "%s", loss);
      g_autofree char *none = message_of_nan (strategies[i], "off", 4);
      ck_assert_msg (!none, "%s", none);
    }
}
END_TEST

START_TEST (nan_check_names_the_layer)
{
  Case c;
  g_auto (ExecResult) result = { 0 };
  g_autoptr (GError) error = NULL;
  ExecKernels kernels = exec_kernels_cpu;
  static const char *const where[]
      = { "mlp_norm of layer 3", "attention_norm of layer 3", "mlp_norm of layer 2" };
  case_init (&c, 1, "no_shard", "fp32", 2);
  ck_assert (plan_set (&c.plan, "nan_check", "params", &error));
  kernels.run[PLAN_OP_RMSNORM_BWD] = norm_bwd_with_nan;
  c.job.kernels = &kernels;
  planted_call = 1 + _i;
  norm_calls = 0;
  ExecComm *comm = exec_comm_self_open ();
  ck_assert (!exec_run_rank (&c.job, comm, FALSE, NULL, NULL, &result, &error));
  ck_assert_msg (strstr (error->message, where[_i]), "%s", error->message);
  ck_assert_msg (strstr (error->message, "step 1") && strstr (error->message, "in micro batch 1"),
                 "%s", error->message);
  comm->ops->close (comm);
  case_clear (&c);
}
END_TEST

/* Each names the field, or the number format, and what would be right where there is a choice. */
START_TEST (what_is_not_executed_is_refused_by_name)
{
  static const struct
  {
    const char *field, *value, *message;
  } cases[]
      = { { "task", "eval", "task=eval is modelled and not executed by itself" },
          { "cuda_graph", "on", "cuda_graph=on is modelled and not executed yet" },
          { "tp", "2", "tp=2 is modelled and not executed yet: it must be 1" },
          { "cp", "2", "cp=2 is modelled and not executed yet: it must be 1" },
          { "hidden_dropout", "0.1",
            "hidden_dropout=0.1 is modelled and not executed yet: it must be 0" },
          { "attention_dropout", "0.5", "attention_dropout=0.5 is modelled and not executed yet" },
          { "compute", "fp8-delayed", "compute=fp8-delayed is modelled and not executed yet" },
          { "compute", "mxfp8", "copy.down of 64 x 176 is not of whole blocks of mxfp8" },
          { "exp_avg", "fp8", "exp_avg=fp8 is modelled and not executed yet: it must be" } };
  Case c;
  ExecResult results[2] = { { 0 } };
  g_autoptr (GError) error = NULL;
  case_init (&c, 2, "optim", "bf16", 1);
  ck_assert (plan_set (&c.plan, cases[_i].field, cases[_i].value, &error));
  if (strlen (cases[_i].field) == 2) /* else ranks are left over */
    plan_set (&c.plan, "gbs", "4", &error);
  ck_assert (!exec_run_threads (&c.job, 2, FALSE, NULL, NULL, results, &error));
  ck_assert_msg (strstr (error->message, cases[_i].message), "%s", error->message);
  case_clear (&c);
}
END_TEST

/* Kernels that know fewer formats than the CPU's. */
START_TEST (formats_that_kernels_lack_are_refused_by_name)
{
  Case c;
  ExecResult results[2] = { { 0 } };
  g_autoptr (GError) error = NULL;
  ExecKernels kernels = exec_kernels_cpu;
  case_init (&c, 2, "optim", "bf16", 1);
  kernels.name = "fewer";
  kernels.more_formats = 0;
  c.job.kernels = &kernels;
  ck_assert (plan_set (&c.plan, "exp_avg_sq", "fp16", &error));
  ck_assert (!exec_run_threads (&c.job, 2, FALSE, NULL, NULL, results, &error));
  ck_assert_str_eq (error->message, "this plan keeps exp_avg_sq.embed in fp16, which is "
                                    "modelled and not executed by fewer yet");
  case_clear (&c);
}
END_TEST

START_TEST (a_plan_for_other_ranks_is_refused)
{
  Case c;
  g_auto (ExecResult) result = { 0 };
  g_autoptr (GError) error = NULL;
  case_init (&c, 2, "no_shard", "fp32", 1);
  ExecComm *comm = exec_comm_self_open ();
  ck_assert (!exec_run_rank (&c.job, comm, FALSE, NULL, NULL, &result, &error));
  ck_assert (strstr (error->message, "for 2 ranks and 1 were started") != NULL);
  comm->ops->close (comm);
  case_clear (&c);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("exec");
  TCase *tcase = tcase_create ("exec");
  tcase_set_timeout (tcase, 300);
  tcase_add_test (tcase, training_learns);
  tcase_add_test (tcase, ranks_do_not_matter_where_the_sums_are_the_same);
  tcase_add_test (tcase, planted_bugs_are_caught);
  tcase_add_test (tcase, nan_check_names_the_parameter);
  tcase_add_loop_test (tcase, nan_check_names_the_layer, 0, 3);
  tcase_add_loop_test (tcase, what_is_not_executed_is_refused_by_name, 0, 9);
  tcase_add_test (tcase, formats_that_kernels_lack_are_refused_by_name);
  tcase_add_test (tcase, a_plan_for_other_ranks_is_refused);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
