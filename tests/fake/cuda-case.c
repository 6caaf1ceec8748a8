/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/fake/cuda-case.h"

#include "exec/probe/probe.h"
#include "sim/sim.h"
#include "tests/case.h"
#include "tests/fake/cuda-fake.h"
#include "tests/fake/watch.h"

#include <glib/gstdio.h>
#include <math.h>
#include <string.h>

void
case_open_on (Case *c, const char *model, const char *gpu, guint ranks)
{
  g_autofree char *gpus = g_strdup_printf ("%s:%u", gpu, ranks);
  g_autoptr (GError) error = NULL;
  fake_cuda_reset ();
  *c = (Case){ .ranks = ranks };
  if (model && !(c->model = plan_model_new (model, &error)))
    g_error ("%s", error->message);
  if (!(c->gpus = plan_cluster_new (gpus, &error))
      || !(c->processors = exec_probe_processors (ranks, &error)))
    g_error ("%s", error->message);
}

void
case_open (Case *c, const char *model, guint ranks)
{
  case_open_on (c, model, "h100-80gb", ranks);
}

void
case_set_job (Case *c, guint seed)
{
  c->job = (ExecJob){ .of = c->of,
                      .kernels = watch_kernels (&exec_kernels_cuda),
                      .seed = seed,
                      .steps = STEPS,
                      .constants
                      = { .norm_eps = 1e-5,
                          .rope = c->model ? c->model->rope : (PlanRope){ .theta = 10000 },
                          .router_score = c->model ? c->model->router_score : PLAN_ROUTER_SOFTMAX,
                          .pre_softmax = c->model && c->model->pre_softmax,
                          .router_scale = c->model ? c->model->router_scale : 1,
                          .bias_rate = 0.25,
                          .lr = 1e-3,
                          .beta1 = 0.9,
                          .beta2 = 0.95,
                          .adam_eps = 1e-4,
                          .weight_decay = 0.1,
                          .max_norm = 1 } };
}

void
case_set_plan (Case *c, const char *fields)
{
  Plan plan = test_plan ("stack=native seq=8");
  plan.value[PLAN_GBS] = c->ranks;
  plan.value[PLAN_MOE_AUX_LOSS] = c->model->experts > 0 ? 20000 : 0;
  test_plan_set (&plan, fields);
  plan_case_free (c->of);
  c->of = test_case_of (c->model, c->gpus, &plan);
  case_set_job (c, 1);
}

void
case_change (Case *c, const char *fields)
{
  test_case_set (&c->of, fields);
  c->job.of = c->of;
}

void
case_evaluates (Case *c)
{
  Plan plan = c->of->plan;
  plan.value[PLAN_TASK] = PLAN_TASK_EVAL;
  c->job.eval_of = c->eval_of = test_case_of (c->model, c->gpus, &plan);
  c->job.eval_every = 1;
  c->job.eval_batches = 3;
}

void
case_init_heads (Case *c, guint ranks, guint head_dim, const char *fields)
{
  g_autofree char *model
      = g_strdup_printf ("family=llama,layers=2,hidden=16,ffn=24,heads=2,kv_heads=1,head_dim=%u,"
                         "vocab=32,max_seq=16",
                         head_dim);
  case_open (c, model, ranks);
  case_set_plan (c, fields);
}

void
case_init (Case *c, guint ranks, const char *fields)
{
  case_init_heads (c, ranks, 8, fields);
}

void
case_clear_results (Case *c)
{
  for (guint r = 0; r < c->ranks; r++)
    exec_result_clear (&c->results[r]);
}

void
case_free (Case *c)
{
  case_clear_results (c);
  plan_case_free (c->of);
  plan_case_free (c->eval_of);
  plan_model_free (c->model);
  plan_cluster_free (c->gpus);
  plan_cluster_free (c->processors);
}

void
case_clear (Case *c, const char *what)
{
  case_free (c);
  ck_assert_msg (*fake_cuda_finish () == '\0', "%s: %s", what, fake_cuda_finish ());
}

gboolean
case_run (Case *c, GError **error)
{
  return exec_run_threads (&c->job, c->ranks, TRUE, NULL, NULL, c->results, error);
}

void
case_must_run (Case *c, const char *what)
{
  g_autoptr (GError) error = NULL;
  const gboolean ok = case_run (c, &error);
  ck_assert_msg (*fake_cuda_error () == '\0', "%s: %s", what, fake_cuda_error ());
  ck_assert_msg (ok, "%s: %s", what, error ? error->message : "");
}

void
run_on_cpu (const Case *c, const char *what, ExecResult results[MAX_RANKS])
{
  g_autoptr (GError) error = NULL;
  ExecJob job = c->job;
  g_autoptr (PlanCase) of = test_case_of (c->model, c->processors, &c->of->plan);
  g_autoptr (PlanCase) eval_of
      = c->eval_of ? test_case_of (c->model, c->processors, &c->eval_of->plan) : NULL;
  job.of = of;
  job.eval_of = eval_of;
  job.kernels = &exec_kernels_cpu;
  ck_assert_msg (exec_run_threads (&job, c->ranks, TRUE, NULL, NULL, results, &error), "%s: %s",
                 what, error->message);
}

/* --- against the CPU ---------------------------------------------------------------------- */

double
distance (double a, double b)
{
  return fabs (a - b) / MAX (fabs (a), fabs (b));
}

double
weights_distance (const Case *c, const ExecResult *a, const ExecResult *b)
{
  const float *x = (const float *)(gpointer)a->main_params->data;
  const float *y = (const float *)(gpointer)b->main_params->data;
  const guint n = a->main_params->len / sizeof (float);
  double sum = 0;
  for (guint i = 0; i < n; i++)
    sum += fabs ((double)x[i] - (double)y[i]);
  return n ? sum / n / c->job.constants.lr : 0;
}

/* Kernels differ from the CPU's in the order of sums within a row and in expf, by some units of
 * fp32's last place (2^-24) each, and a layer's products pass that on. Where activations are kept
 * in bf16 a value near the middle of two numbers (2^-9 apart) may then be rounded to the other one,
 * and in fp8 (2^-4) as well. The second step starts from weights with these differences. */
void
assert_near (const Case *c, const char *what, const ExecResult *found, const ExecResult *expected)
{
  const gboolean is_wide = c->of->plan.value[PLAN_COMPUTE] == PLAN_COMPUTE_FP32
                           && plan_field_dtype (&c->of->plan, PLAN_MAIN_GRADS) == PLAN_DTYPE_FP32
                           && plan_field_dtype (&c->of->plan, PLAN_GRAD_COMM) == PLAN_DTYPE_FP32
                           && plan_field_dtype (&c->of->plan, PLAN_MAIN_PARAMS) == PLAN_DTYPE_FP32;
  const gboolean is_narrow = c->of->plan.value[PLAN_COMPUTE] > PLAN_COMPUTE_BF16;
  const double bound = is_wide ? 2e-5 : is_narrow ? 0.05 : 0.01;
  for (gint64 step = 0; step < c->job.steps; step++)
    {
      ck_assert_msg (distance (found->losses[step], expected->losses[step]) <= bound / 4,
                     "%s: step %d has loss %.9g, not %.9g", what, (int)step, found->losses[step],
                     expected->losses[step]);
      ck_assert_msg (distance (found->grad_norms[step], expected->grad_norms[step]) <= bound * 4,
                     "%s: step %d has norm %.9g, not %.9g", what, (int)step,
                     found->grad_norms[step], expected->grad_norms[step]);
    }
  ck_assert_uint_eq (found->main_params->len, expected->main_params->len);
  const double off = weights_distance (c, found, expected);
  ck_assert_msg (off <= bound * 20, "%s: weights are %g steps off", what, off);
}

void
check_against_cpu (Case *c, const char *what)
{
  ExecResult expected[MAX_RANKS] = { { 0 } };
  run_on_cpu (c, what, expected);
  case_must_run (c, what);
  for (guint r = 0; r < c->ranks; r++)
    {
      assert_near (c, what, &c->results[r], &expected[r]);
      ck_assert (
          memcmp (c->results[r].losses, c->results[0].losses, (gsize)c->job.steps * sizeof (double))
          == 0);
      exec_result_clear (&expected[r]);
    }
}

void
assert_equal_losses (const Case *a, const Case *b, const char *what)
{
  const gsize bytes = (gsize)a->job.steps * sizeof (double);
  ck_assert_msg (memcmp (a->results[0].losses, b->results[0].losses, bytes) == 0
                     && memcmp (a->results[0].grad_norms, b->results[0].grad_norms, bytes) == 0,
                 "%s: losses %.9g %.9g, norms %.9g %.9g, not %.9g %.9g and %.9g %.9g", what,
                 a->results[0].losses[0], a->results[0].losses[1], a->results[0].grad_norms[0],
                 a->results[0].grad_norms[1], b->results[0].losses[0], b->results[0].losses[1],
                 b->results[0].grad_norms[0], b->results[0].grad_norms[1]);
}

/* Counts without g_strsplit, which under sanitizers searches all that is left of the log for each
 * line. */
guint
count_logged (const char *words)
{
  g_auto (GStrv) lines = g_strsplit_set (fake_cuda_log (), "\n", -1);
  guint n = 0;
  for (char **line = lines; *line; line++)
    n += g_str_has_prefix (*line, words);
  return n;
}

void
assert_refused (Case *c, PlanErrorCode code, const char *message)
{
  g_autoptr (GError) error = NULL;
  ck_assert (!case_run (c, &error));
  ck_assert_msg (strstr (error->message, message) != NULL, "'%s' lacks '%s'", error->message,
                 message);
  ck_assert_int_eq (error->code, code);
  case_clear (c, message);
}

void
case_check_bytes (const Case *c, const char *what)
{
  for (guint r = 0; r < c->ranks; r++)
    {
      g_autoptr (GError) error = NULL;
      g_autoptr (PlanSchedule) schedule = test_lower (c->of, r);
      const SimCostInput input = sim_cost_input (c->of, schedule);
      g_autoptr (SimCost) cost = sim_cost_new (&input, &error);
      g_autoptr (PlanTrace) sim = sim_run (schedule, cost, c->of->stack, &error);
      const PlanTrace *trace = c->results[r].trace;
      const PlanMemory *m = &trace->memory;
      ck_assert_msg (sim != NULL, "%s: %s", what, error ? error->message : "");
      ck_assert_uint_eq (sim->memory.allocated, m->allocated);
      ck_assert_uint_eq (sim->memory.max_allocated, m->max_allocated);
      ck_assert_uint_eq (sim->memory.reserved, c->results[r].arena_bytes);
      ck_assert_uint_eq (m->reserved, sim->memory.reserved);
      ck_assert_uint_eq (m->host, sim->memory.host);
      /* The device also has scales, workspaces, and other ranks' memory. */
      ck_assert_uint_gt (m->device, m->reserved);
      ck_assert (memcmp (sim->memory.by_category, m->by_category, sizeof m->by_category) == 0);
      ck_assert_uint_eq (sim->spans->len, trace->spans->len);
      ck_assert_uint_eq (sim->samples->len, trace->samples->len);
    }
}

void
case_remove_folder (const char *path)
{
  g_autoptr (GDir) dir = g_dir_open (path, 0, NULL);
  const char *name;
  while (dir && (name = g_dir_read_name (dir)))
    {
      g_autofree char *inner = g_build_filename (path, name, NULL);
      if (g_file_test (inner, G_FILE_TEST_IS_DIR))
        case_remove_folder (inner);
      else
        g_unlink (inner);
    }
  g_rmdir (path);
}
