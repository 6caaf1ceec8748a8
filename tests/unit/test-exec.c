/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/probe/probe.h"
#include "exec/walk/exec.h"
#include "planner/base/error.h"
#include "tests/case.h"
#include "tests/reference/evaluate.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct
{
  PlanModel *model;
  PlanCluster *cluster;
  PlanCase *of;
  ExecJob job;
} Case;

static void
case_init_of (Case *c, const char *model, guint ranks, const char *strategy, const char *compute,
              gint64 steps)
{
  g_autoptr (GError) error = NULL;
  c->model = plan_model_new (model, &error);
  g_autofree char *words
      = g_strdup_printf ("stack=native strategy=%s compute=%s gbs=8 seq=32%s", strategy, compute,
                         c->model->experts > 0 ? " moe_aux_loss=0.02" : "");
  c->cluster = exec_probe_cluster (ranks, &error);
  c->of = test_case (c->model, c->cluster, words);
  c->job = (ExecJob){ .of = c->of,
                      .kernels = &exec_kernels_cpu,
                      .seed = 1,
                      .steps = steps,
                      .constants = { .norm_eps = 1e-5,
                                     .rope = c->model->rope,
                                     .router_score = c->model->router_score,
                                     .pre_softmax = c->model->pre_softmax,
                                     .router_scale = c->model->router_scale,
                                     .bias_rate = 0.05,
                                     .lr = 3e-3,
                                     .beta1 = 0.9,
                                     .beta2 = 0.95,
                                     .adam_eps = 1e-8,
                                     .weight_decay = 0.1,
                                     .max_norm = 1 } };
}

static void
case_init (Case *c, guint ranks, const char *strategy, const char *compute, gint64 steps)
{
  case_init_of (c, "llama-tiny", ranks, strategy, compute, steps);
}

static void
case_clear (Case *c)
{
  plan_case_free (c->of);
  plan_model_free (c->model);
  plan_cluster_free (c->cluster);
}

/* Checks that the synthetic text is learnt: after 40 steps the loss is well below that of
 * guessing. */
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

#define EXPERTS \
  "family=mixtral,layers=2,hidden=32,ffn=16,heads=2,kv_heads=1,head_dim=16,vocab=64,max_seq=32," \
  "experts=8,topk=2"

/* Where experts lie changes the order of sums, and little else; also where each expert is on one
 * rank alone, so that its gradient is not reduced. */
START_TEST (ranks_may_have_experts_together)
{
  static const char *const together[] = { "ep=1", "ep=2 moe_imbalance=2", "ep=4 moe_imbalance=4" };
  static const char *const strategies[] = { "optim", "optim_grads", "optim_grads_params" };
  double losses[G_N_ELEMENTS (together)][4];
  for (guint i = 0; i < G_N_ELEMENTS (together); i++)
    {
      g_autoptr (GError) error = NULL;
      ExecResult results[4] = { { 0 } };
      Case c;
      case_init_of (&c, EXPERTS, 4, strategies[_i], "fp32", 4);
      test_case_set (&c.of, together[i]);
      c.job.of = c.of;
      ck_assert_msg (exec_run_threads (&c.job, 4, FALSE, NULL, NULL, results, &error), "%s",
                     error ? error->message : "");
      memcpy (losses[i], results[0].losses, sizeof losses[i]);
      ck_assert (i == 0 ? results[0].imbalance == 0 : results[0].imbalance >= 1);
      for (guint r = 0; r < 4; r++)
        {
          ck_assert (results[r].imbalance == results[0].imbalance);
          exec_result_clear (&results[r]);
        }
      case_clear (&c);
      for (guint step = 0; step < 4; step++)
        ck_assert_double_eq_tol (losses[i][step], losses[0][step], 1e-5);
    }
}
END_TEST

/* No row is lost: rows without room end the run with a message that says how much room would do. */
START_TEST (rows_without_room_end_a_run)
{
  g_autoptr (GError) error = NULL;
  ExecResult results[2] = { { 0 } };
  Case c;
  case_init_of (&c, EXPERTS, 2, "optim_grads", "fp32", 40);
  test_case_set (&c.of, "ep=2");
  c.job.of = c.of;
  ck_assert (!exec_run_threads (&c.job, 2, FALSE, NULL, NULL, results, &error));
  ck_assert_msg (strstr (error->message, "there is room for 32: --set moe_imbalance=1."), "%s",
                 error->message);
  ck_assert (strstr (error->message, "moe_imbalance=2 for whatever the router does"));
  case_clear (&c);
}
END_TEST

/* Steps with too many ops to list have times and bytes as all others. */
START_TEST (unlisted_steps_have_totals)
{
  ExecResult listed[2] = { { 0 } }, unlisted[2] = { { 0 } };
  g_autoptr (GError) error = NULL;
  Case c;
  case_init (&c, 2, "optim_grads", "fp32", 2);
  ck_assert (exec_run_threads (&c.job, 2, FALSE, NULL, NULL, listed, &error));
  c.job.totals_only = TRUE;
  ck_assert (exec_run_threads (&c.job, 2, FALSE, NULL, NULL, unlisted, &error));
  const PlanTrace *a = listed[0].trace, *b = unlisted[0].trace;
  ck_assert_uint_gt (a->spans->len, 0);
  ck_assert_uint_eq (b->spans->len + b->samples->len, 0);
  ck_assert_int_gt (b->step_ns, 0);
  ck_assert_mem_eq (&a->memory, &b->memory, sizeof a->memory);
  ck_assert (memcmp (listed[0].losses, unlisted[0].losses, 2 * sizeof (double)) == 0);
  for (guint r = 0; r < 2; r++)
    {
      exec_result_clear (&listed[r]);
      exec_result_clear (&unlisted[r]);
    }
  case_clear (&c);
}
END_TEST

static void
case_set (Case *c, const char *words)
{
  test_case_set (&c->of, words);
  c->job.of = c->of;
}

/* The rows of a product do not depend on each other, so computing a micro batch in pieces changes
 * only how the output layer's gradient is added up: in fp32 by 2^-24 for each addition, and one
 * more per piece is little beside those of the rows. */
START_TEST (pieces_of_the_loss_add_up)
{
  static const char *const fields[]
      = { "mbs=4", "mbs=4 grad_accum_fusion=on", "mbs=4 strategy=no_shard grad_accum_fusion=on",
          "mbs=2 strategy=optim ce_fusion=off" };
  static const char *const pieces[] = { "loss_chunks=1", "loss_chunks=2", "loss_chunks=64" };
  double norm = 0, loss = 0;
  for (guint i = 0; i < G_N_ELEMENTS (pieces); i++)
    {
      Case c;
      ExecResult results[2] = { { 0 } };
      g_autoptr (GError) error = NULL;
      case_init (&c, 2, "optim_grads_params", "fp32", 1);
      case_set (&c, fields[_i]);
      case_set (&c, pieces[i]);
      ck_assert_msg (exec_run_threads (&c.job, 2, FALSE, NULL, NULL, results, &error), "%s",
                     error ? error->message : "");
      if (i == 0)
        {
          loss = results[0].losses[0];
          norm = results[0].grad_norms[0];
        }
      ck_assert_double_eq_tol (results[0].losses[0], loss, 1e-6 * loss);
      ck_assert_double_eq_tol (results[0].grad_norms[0], norm, 1e-6 * norm);
      exec_result_clear (&results[0]);
      exec_result_clear (&results[1]);
      case_clear (&c);
    }
}
END_TEST

/* What a planted mistake does to a schedule's text, from its step on. */
typedef enum
{
  LEAVE_OUT, /* leaves out the first line with `what` */
  REPLACE,   /* replaces `what` by `by` in every line */
  DO_ONCE,   /* moves all lines with `what` before the first step, into the loop `by` */
} Change;

typedef struct
{
  Change change;
  const char *what, *by;
} Plant;

/* Takes a line out of a text and returns it. */
static char *
cut_line (GString *text, gsize from, const char *what)
{
  const char *at = strstr (text->str + from, what);
  if (!at)
    return NULL;
  gsize begin = (gsize)(at - text->str);
  while (text->str[begin - 1] != '\n')
    begin--;
  const gsize length = (gsize)(strchr (at, '\n') + 1 - text->str) - begin;
  char *line = g_strndup (text->str + begin, length);
  g_string_erase (text, (gssize)begin, (gssize)length);
  return line;
}

static void
change_text (GString *text, const Plant *plant)
{
  const gsize step = (gsize)(strstr (text->str, "section step") - text->str);
  g_autoptr (GString) moved = g_string_new (NULL);
  g_autoptr (GString) rest = g_string_new (text->str + step);
  char *line = plant->change == REPLACE ? NULL : cut_line (text, step, plant->what);
  ck_assert_msg (strstr (rest->str, plant->what) != NULL, "no '%s' in the step", plant->what);
  if (plant->change == REPLACE)
    {
      g_string_replace (rest, plant->what, plant->by, 0);
      g_string_truncate (text, step);
      g_string_append (text, rest->str);
    }
  while (plant->change == DO_ONCE && line)
    {
      g_string_append (moved, line);
      g_free (line);
      line = cut_line (text, step, plant->what);
    }
  g_free (line);
  if (plant->change == DO_ONCE)
    {
      g_string_append (moved, "end\n");
      g_string_prepend (moved, plant->by);
      g_string_insert (text, (gssize)step, moved->str);
    }
}

static PlanSchedule *
planted (const Case *c, guint rank, const Plant *plant)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanSchedule) schedule = test_lower (c->of, rank);
  g_autofree char *whole = plan_schedule_print (schedule);
  g_autoptr (GString) text = g_string_new (whole);
  change_text (text, plant);
  PlanSchedule *broken = plan_schedule_parse (text->str, "text", &error);
  ck_assert_msg (broken != NULL, "%s", error ? error->message : "");
  return broken;
}

typedef struct
{
  const Case *c;
  const PlanSchedule *schedule;
  ExecComm *comm;
  ExecResult result;
  GError *error;
} PlantedRank;

static gpointer
run_planted (gpointer data)
{
  PlantedRank *self = data;
  if (!exec_run_schedule (&self->c->job, self->schedule, self->comm, TRUE, NULL, NULL,
                          &self->result, &self->error))
    self->comm->ops->abort (self->comm, self->error->message);
  self->comm->ops->close (self->comm);
  return NULL;
}

/* Runs every rank with that mistake; returns what rank 0 reports, or NULL, and its losses. */
static char *
run_with (Case *c, guint ranks, const Plant *plant, double *out_losses)
{
  PlantedRank rank[4] = { { 0 } };
  GThread *threads[4];
  ExecComm *comms[4];
  char *message = NULL;
  ck_assert (exec_comm_threads_open (ranks, comms, NULL));
  for (guint r = 0; r < ranks; r++)
    {
      rank[r] = (PlantedRank){ c, planted (c, r, plant), comms[r], { 0 }, NULL };
      threads[r] = g_thread_new ("rank", run_planted, &rank[r]);
    }
  for (guint r = 0; r < ranks; r++)
    g_thread_join (threads[r]);
  for (guint r = 0; r < ranks; r++)
    {
      if (rank[r].error && (!message || strstr (message, "failed")))
        {
          g_free (message);
          message = g_strdup (rank[r].error->message);
        }
      if (r == 0 && rank[r].result.losses)
        memcpy (out_losses, rank[r].result.losses, (gsize)c->job.steps * sizeof (double));
      g_clear_error (&rank[r].error);
      exec_result_clear (&rank[r].result);
      plan_schedule_free ((PlanSchedule *)(gpointer)rank[r].schedule);
    }
  return message;
}

/* A model whose sizes are all whole blocks. */
#define ALIGNED \
  "family=llama,layers=4,hidden=64,ffn=96,heads=4,kv_heads=2,head_dim=16,vocab=90,max_seq=64"

static void
assert_caught (const char *fields, guint ranks, Plant plant, const char *message)
{
  Case c;
  double losses[2];
  case_init_of (&c, strstr (fields, "mxfp8") ? ALIGNED : "llama-tiny", ranks,
                ranks > 1 ? "optim_grads_params" : "no_shard", "bf16", 2);
  case_set (&c, fields);
  g_autofree char *found = run_with (&c, ranks, &plant, losses);
  ck_assert_msg (found && strstr (found, message), "'%s' lacks '%s'", found, message);
  case_clear (&c);
}

#define FP8_PARAMS "compute=fp8-tensorwise strategy=optim_grads_params param_gather=fp8"

START_TEST (planted_bugs_are_caught)
{
  assert_caught ("compute=bf16", 1, (Plant){ REPLACE, " out=weights.embed count=", " count=" },
                 "holds weights of step 1");
  assert_caught ("compute=bf16", 1, (Plant){ LEAVE_OUT, "swiglu compute", NULL },
                 "is read before anything wrote it");
  assert_caught ("compute=bf16", 1, (Plant){ LEAVE_OUT, "alloc compute buf=logits", NULL },
                 "is given back but was not taken");
  assert_caught ("compute=fp8-tensorwise", 1,
                 (Plant){ LEAVE_OUT, "quantize compute out=copy.qkv", NULL },
                 "copy.qkv is read before anything wrote it");
  assert_caught ("compute=bf16", 1, (Plant){ LEAVE_OUT, "free compute buf=logits", NULL },
                 "logits[0] is taken twice");
  assert_caught ("tp=2 sp=on", 2,
                 (Plant){ LEAVE_OUT, "reduce_scatter tensor group=tensor out=proj", NULL },
                 "proj.sum is read before anything wrote it");
  assert_caught ("tp=2 sp=on", 2,
                 (Plant){ LEAVE_OUT, "all_gather tensor group=tensor out=norm1", NULL },
                 "norm1.full is read before anything wrote it");
}
END_TEST

/* What is not copied out, not copied back, or another layer's; and an update left out. */
START_TEST (missing_copies_are_caught)
{
  const char *const on_host = "precision_aware=on offload_optimizer=0.5";
  assert_caught ("offload_layers=2", 1, (Plant){ LEAVE_OUT, "copy copy out=host.qkv[1]", NULL },
                 "host.qkv is read before anything wrote it");
  assert_caught ("offload_layers=2", 1, (Plant){ LEAVE_OUT, "copy fetch out=qkv[1]", NULL },
                 "qkv is read before anything wrote it");
  assert_caught ("offload_layers=2", 1, (Plant){ REPLACE, "in=host.qkv[0]", "in=host.qkv[1]" },
                 "host.qkv is read before anything wrote it");
  assert_caught (on_host, 1, (Plant){ LEAVE_OUT, "copy copy out=host.grads.embed", NULL },
                 "host.grads.embed is read before anything wrote it");
  assert_caught (on_host, 1, (Plant){ LEAVE_OUT, "adamw_host host main=host.main.layer", NULL },
                 "main.layer holds weights of step 1 in elements");
}
END_TEST

/* Caught are: copies for the backward pass that are not made again when the weights change
 * (Megatron-LM PR #4562), and weights that are not quantised again. */
START_TEST (stale_copies_of_parameters_are_caught)
{
  assert_caught (
      FP8_PARAMS " keep_transpose=on", 1,
      (Plant){ DO_ONCE, "transpose compute out=transposed", "repeat l from=0 count=4 step=1\n" },
      "transposed.down holds weights of step 1");
  for (guint ranks = 1; ranks <= 2; ranks++)
    assert_caught (FP8_PARAMS, ranks, (Plant){ LEAVE_OUT, "param_quantize compute", NULL },
                   "weights.layer holds weights of step 1");
  assert_caught (FP8_PARAMS, 2,
                 (Plant){ LEAVE_OUT, "transpose compute out=transposed.gate_up", NULL },
                 "is read before anything wrote it");
}
END_TEST

#define MX_PARAMS "compute=mxfp8 param_gather=mxfp8 strategy="

/* Columns are quantised from the weights on their own, and gathered separately. */
START_TEST (stale_columns_are_caught)
{
  assert_caught (MX_PARAMS "optim_grads", 2,
                 (Plant){ LEAVE_OUT, "all_gather gather group=inner out=columns.layer", NULL },
                 "columns.layer holds weights of step 2 in elements 0 to 15360 alone");
  assert_caught (MX_PARAMS "optim_grads_params", 2,
                 (Plant){ LEAVE_OUT, "all_gather gather group=inner out=columns.layer", NULL },
                 "columns.layer is read before anything wrote it");
}
END_TEST

/* Without the gather a rank's own part is new, the others' parts are not. */
START_TEST (missing_gathers_are_caught)
{
  assert_caught ("strategy=optim", 2,
                 (Plant){ LEAVE_OUT, "all_gather gather group=inner out=weights.layer", NULL },
                 "weights.layer holds weights of step 2 in elements 0 to 23232 alone");
  assert_caught ("strategy=optim_grads_params dp_outer=2 outer_strategy=optim", 4,
                 (Plant){ LEAVE_OUT, "all_gather outer_gather", NULL },
                 "shard.layer holds weights of step 1 in elements 0 to 11968 alone");
}
END_TEST

/* The next unit's weights arrive in a buffer where this unit's are still read. */
START_TEST (buffers_reused_too_early_are_caught)
{
  assert_caught ("double_buffer=on", 2,
                 (Plant){ REPLACE, "out=weights.layer[l+1%2] in=shard.layer[l+1]",
                          "out=weights.layer[l+2%2] in=shard.layer[l+1]" },
                 "weights.layer holds weights of unit 1 instead of unit 0");
}
END_TEST

/* Checks that the evaluator has the losses of a correct run, and not those of a run with a planted
 * mistake that nothing else notices. */
static void
assert_seen (const char *model, const char *fields, const Plant *plant)
{
  Case c;
  double losses[4];
  g_auto (ExecResult) expected = { 0 };
  g_autoptr (GError) error = NULL;
  const Plant none = { REPLACE, "section step", "section step" };
  case_init_of (&c, model, 2, "optim", "bf16", 4);
  case_set (&c, fields);
  ck_assert_msg (exec_evaluate (&c.job, 2, &expected, &error), "%s", error ? error->message : "");
  g_autofree char *sound = run_with (&c, 2, &none, losses);
  ck_assert_msg (!sound, "%s", sound);
  ck_assert (memcmp (losses, expected.losses, sizeof losses) == 0);
  g_autofree char *broken = run_with (&c, 2, plant, losses);
  ck_assert_msg (!broken, "%s", broken);
  ck_assert (memcmp (losses, expected.losses, sizeof losses) != 0);
  case_clear (&c);
}

/* Mistakes that only a comparison with the evaluator catches, since nothing is stale or missing:
 * adding what was reduced to what went into it counts a rank's own part twice (Megatron-LM PR
 * #3067); a scale that differs between ranks makes one tensor of different numbers, and one that is
 * never updated, or another layer's, makes wrong numbers; the mean has to be taken once, of what
 * travels, not of what it was added to (PR #3023); and what a rank of a tensor-parallel group
 * leaves is only a part of a sum. */
#define DELAYED "strategy=optim_grads_params compute=fp8-delayed"
#define MEAN "strategy=optim grad_comm=bf16 per_token_loss=off"

START_TEST (wrong_sums_are_seen_by_the_evaluator)
{
  static const struct
  {
    const char *fields;
    Plant plant;
  } cases[]
      = { { "strategy=optim grad_comm=bf16",
            { REPLACE, "cast reduce out=grads", "accumulate reduce out=grads" } },
          { FP8_PARAMS, { LEAVE_OUT, "all_reduce_max", NULL } },
          { DELAYED, { LEAVE_OUT, "all_reduce_max", NULL } },
          { DELAYED, { LEAVE_OUT, "rescale compute", NULL } },
          { DELAYED " param_gather=fp8",
            { REPLACE, "site_scales=site_scales[l%1]", "site_scales=site_scales[0%1]" } },
          { "tp=2 sp=off", { LEAVE_OUT, "all_reduce tensor group=tensor buf=x", NULL } },
          { "tp=2 sp=off", { LEAVE_OUT, "all_reduce tensor group=tensor buf=d.norm2", NULL } },
          { "tp=2 sp=on", { LEAVE_OUT, "all_reduce tensor group=tensor buf=replicated", NULL } },
          { "tp=2 sp=on", { LEAVE_OUT, "all_reduce_max tensor", NULL } },
          { MEAN, { LEAVE_OUT, "scale reduce buf=bucket", NULL } },
          { MEAN, { REPLACE, "scale reduce buf=bucket", "scale reduce buf=grads" } } };
  assert_seen ("llama-tiny", cases[_i].fields, &cases[_i].plant);
}
END_TEST

#define BALANCED EXPERTS ",router_score=sigmoid,router_bias=on"

/* Biases change by the loads of the experts of all ranks, in each layer by itself. */
START_TEST (wrong_balances_are_seen_by_the_evaluator)
{
  static const Plant plants[]
      = { { LEAVE_OUT, "balance compute", NULL },
          { LEAVE_OUT, "all_reduce reduce group=world buf=router_loads", NULL },
          { REPLACE, "bias=router_bias[l%1]", "bias=router_bias[0%1]" },
          { REPLACE, "loads=router_loads[l%1]", "loads=router_loads[0%1]" } };
  assert_seen (BALANCED, "ep=1", &plants[_i]);
}
END_TEST

/* The CPU's kernels, except that one call of a norm's backward pass leaves a NaN in the weight's
 * gradient. */
static gint planted_call, norm_calls;

static void
norm_bwd_with_nan (const ExecArgs *args)
{
  exec_kernels_cpu.run[PLAN_OP_RMSNORM_BWD](args);
  if (g_atomic_int_add (&norm_calls, 1) == planted_call)
    ((float *)args->ptr[1])[3] = NAN;
}

/* The message with which a run ends, by its check and by the call that leaves a NaN. */
static char *
message_of_nan (const char *strategy, const char *check, gint call)
{
  Case c;
  ExecResult results[2] = { { 0 } };
  g_autoptr (GError) error = NULL;
  ExecKernels kernels = exec_kernels_cpu;
  case_init (&c, 2, strategy, "fp32", 3);
  g_autofree char *words = g_strdup_printf ("nan_check=%s double_buffer=on", check);
  case_set (&c, words);
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

static void
norm_that_writes_too_far (const ExecArgs *args)
{
  exec_kernels_cpu.run[PLAN_OP_RMSNORM](args);
  ((float *)args->ptr[PLAN_REF_RMSNORM_rstd])[args->op->dims[PLAN_DIM_RMSNORM_rows]] = 1;
}

static void
norm_that_writes_too_early (const ExecArgs *args)
{
  exec_kernels_cpu.run[PLAN_OP_RMSNORM](args);
  *((float *)args->ptr[PLAN_REF_RMSNORM_rstd] - 1) = 1;
}

/* The bytes on both sides of a buffer are checked when it is freed, also where it ends with a whole
 * granule of the arena. */
START_TEST (writing_outside_a_buffer_is_caught)
{
  const gboolean is_whole = _i % 2 != 0;
  Case c;
  ExecResult results[2] = { { 0 } };
  g_autoptr (GError) error = NULL;
  ExecKernels kernels = exec_kernels_cpu;
  case_init (&c, 2, "optim", "fp32", 1);
  case_set (&c, is_whole ? "seq=32" : "seq=30");
  kernels.run[PLAN_OP_RMSNORM] = _i < 2 ? norm_that_writes_too_far : norm_that_writes_too_early;
  c.job.kernels = &kernels;
  g_setenv ("FSDPLAN_DEBUG_CHECK", "1", TRUE);
  ck_assert (!exec_run_threads (&c.job, 2, FALSE, NULL, NULL, results, &error));
  ck_assert_msg (strstr (error->message, is_whole ? " was written outside of its 128 bytes"
                                                  : " was written outside of its 120 bytes"),
                 "%s", error->message);
  case_clear (&c);
}
END_TEST

/* Two ranks run at once: the planted call is either rank's, and both are alike. */
START_TEST (nan_check_names_the_parameter)
{
  static const char *const strategies[] = { "no_shard", "optim_grads", "optim_grads_params" };
  for (guint i = 0; i < G_N_ELEMENTS (strategies); i++)
    {
      g_autofree char *last = message_of_nan (strategies[i], "params", 0);
      ck_assert_msg (last && strstr (last, "the gradient of final_norm is not finite"), "%s", last);
      g_autofree char *loss = message_of_nan (strategies[i], "loss", 4);
      ck_assert_msg (loss && strstr (loss, "step 1: the loss is 5."), "%s", loss);
      g_autofree char *none = message_of_nan (strategies[i], "off", 4);
      ck_assert_msg (
          none && strstr (none, "and the gradient norm nan: the weights are as they were"), "%s",
          none);
    }
}
END_TEST

/* A step with a NaN changes nothing and is not saved: the run ends, or continues where that is
 * allowed, as if that step had not been. */
START_TEST (steps_that_are_not_finite_change_nothing)
{
  Case c;
  g_auto (ExecResult) result = { 0 };
  g_autoptr (GError) error = NULL;
  g_autofree char *folder = g_dir_make_tmp ("test-exec-XXXXXX", NULL);
  g_autofree char *clean = g_strdup_printf ("rm -r '%s'", folder);
  ExecKernels kernels = exec_kernels_cpu;
  case_init (&c, 1, "no_shard", "fp32", 4);
  kernels.run[PLAN_OP_RMSNORM_BWD] = norm_bwd_with_nan;
  c.job.kernels = &kernels;
  c.job.save = folder;
  c.job.save_every = 1;
  c.job.skip_nonfinite = _i;
  planted_call = 9 * 8 + 4; /* 9 norms, 8 micro batches: in step 2 */
  norm_calls = 0;
  ExecComm *comm = exec_comm_self_open ();
  const gboolean ok = exec_run_rank (&c.job, comm, TRUE, NULL, NULL, &result, &error);
  comm->ops->close (comm);
  g_autoptr (ExecCheckpoint) checkpoint = exec_checkpoint_open (folder, c.model, NULL);
  ck_assert (checkpoint != NULL);
  ck_assert_int_eq (exec_checkpoint_step (checkpoint), _i ? 4 : 1);
  ck_assert (ok == (_i > 0));
  if (!ok)
    ck_assert_msg (strstr (error->message, "step 2: the loss is 5.")
                       && strstr (error->message, "--skip-nonfinite 1 goes on"),
                   "%s", error->message);
  else
    {
      ck_assert (isnan (result.grad_norms[1]) && isfinite (result.losses[3]));
      ck_assert_double_lt (result.losses[3], result.losses[0]);
      for (guint i = 0; i < result.main_params->len / sizeof (float); i++)
        ck_assert (isfinite (((float *)(gpointer)result.main_params->data)[i]));
    }
  case_clear (&c);
  ck_assert_int_eq (system (clean), 0);
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
  case_set (&c, "nan_check=params");
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

/* Each message names the field, or the number format, and what would be right where there is a
 * choice. */
START_TEST (what_is_not_executed_is_refused_by_name)
{
  static const struct
  {
    const char *words, *message;
  } cases[]
      = { { "task=eval", "task=eval is modelled and not executed by itself" },
          { "compute=fp8-blockwise",
            "copy.qkv of 128 x 64 is not of whole blocks of fp8-128x128: each must be a multiple "
            "of 128" },
          { "compute=mxfp8", "copy.down of 64 x 176 is not of whole blocks of mxfp8" } };
  Case c;
  ExecResult results[2] = { { 0 } };
  g_autoptr (GError) error = NULL;
  case_init (&c, 2, "optim", "bf16", 1);
  case_set (&c, cases[_i].words);
  ck_assert (!exec_run_threads (&c.job, 2, FALSE, NULL, NULL, results, &error));
  ck_assert_msg (strstr (error->message, cases[_i].message), "%s", error->message);
  case_clear (&c);
}
END_TEST

START_TEST (positions_by_lists_of_factors_are_refused)
{
  Case c;
  ExecResult results[2] = { { 0 } };
  g_autoptr (GError) error = NULL;
  case_init_of (&c,
                "family=phi3,layers=2,hidden=16,ffn=24,heads=2,kv_heads=1,head_dim=8,vocab=32,"
                "max_seq=32,rope_scaling=longrope",
                2, "optim", "bf16", 1);
  ck_assert (!exec_run_threads (&c.job, 2, FALSE, NULL, NULL, results, &error));
  ck_assert_msg (strstr (error->message, " has rope_scaling=longrope without rope_short and"), "%s",
                 error->message);
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
  case_set (&c, "exp_avg_sq=fp16 precision_aware=on");
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
  tcase_add_loop_test (tcase, ranks_may_have_experts_together, 0, 3);
  tcase_add_test (tcase, rows_without_room_end_a_run);
  tcase_add_test (tcase, unlisted_steps_have_totals);
  tcase_add_loop_test (tcase, pieces_of_the_loss_add_up, 0, 4);
  tcase_add_test (tcase, planted_bugs_are_caught);
  tcase_add_test (tcase, missing_copies_are_caught);
  tcase_add_test (tcase, stale_copies_of_parameters_are_caught);
  tcase_add_test (tcase, stale_columns_are_caught);
  tcase_add_test (tcase, missing_gathers_are_caught);
  tcase_add_test (tcase, buffers_reused_too_early_are_caught);
  tcase_add_loop_test (tcase, wrong_sums_are_seen_by_the_evaluator, 0, 11);
  tcase_add_loop_test (tcase, wrong_balances_are_seen_by_the_evaluator, 0, 4);
  tcase_add_loop_test (tcase, writing_outside_a_buffer_is_caught, 0, 4);
  tcase_add_test (tcase, nan_check_names_the_parameter);
  tcase_add_loop_test (tcase, steps_that_are_not_finite_change_nothing, 0, 2);
  tcase_add_loop_test (tcase, nan_check_names_the_layer, 0, 3);
  tcase_add_loop_test (tcase, what_is_not_executed_is_refused_by_name, 0, 3);
  tcase_add_test (tcase, positions_by_lists_of_factors_are_refused);
  tcase_add_test (tcase, formats_that_kernels_lack_are_refused_by_name);
  tcase_add_test (tcase, a_plan_for_other_ranks_is_refused);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
