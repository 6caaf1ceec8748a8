/* SPDX-License-Identifier: Apache-2.0 */
/* Runs of pipelines on fake devices: by ranks that share a GPU, and over a fake NCCL by ranks
 * that have one each. They are compared with the CPU's and with one stage; planted mistakes are
 * found. */
#include "config.h"

#include "exec/nccl/comm-nccl-private.h"
#include "exec/nccl/comm-nccl.h"
#include "exec/walk/runnable.h"
#include "tests/case.h"
#include "tests/fake/cuda-case.h"
#include "tests/fake/cuda-fake.h"
#include "tests/fake/nccl-fake.h"
#include "tests/share.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define SEEDS 24
#define LONG_S 120
#define SHORT_S 3 /* the deadline; a rank may wait for a CPU that long */
#define LLAMA \
  "family=llama,layers=4,hidden=16,ffn=24,heads=2,kv_heads=1,head_dim=8,vocab=32,max_seq=16"

static ExecComm *
join (ExecComm *threads, GError **error)
{
  const ExecNcclOptions options
      = { .local_rank = threads->rank, .timeout_s = threads->timeout_s, .is_registered = TRUE };
  return exec_comm_nccl_open (threads, &options, error);
}

/* After case_open: gives each rank a GPU, or all of them one. */
static void
case_set_way (Case *c, gboolean is_nccl)
{
  fake_nccl_reset ();
  if (is_nccl)
    fake_cuda_set_machine (c->ranks, (guint64)1 << 30, 9, 0);
  c->job.join = is_nccl ? join : NULL;
  c->job.timeout_s = LONG_S;
}

static void
case_init_staged (Case *c, const char *model, guint ranks, const char *fields, gboolean is_nccl)
{
  case_open (c, model, ranks);
  case_set_plan (c, fields);
  case_set_way (c, is_nccl);
}

/* --- random plans ------------------------------------------------------------------------- */

static const char *const kinds[]
    = { "family=gpt2,tied=on",
        "family=llama",
        "family=qwen2,tied=on",
        "family=gpt2,tied=off,activation=gelu",
        "family=llama,norm=layernorm,gated=off,activation=relu2,mlp_bias=on,positions=none",
        "family=qwen3" };

/* Whether both backends can run a plan. */
static gboolean
can_run (const Case *c, const Plan *plan)
{
  g_autoptr (PlanCase) of = plan_case_new (c->model, c->gpus, plan, NULL, NULL);
  g_autoptr (PlanCase) cpu_of = plan_case_new (c->model, c->processors, plan, NULL, NULL);
  if (!of || !cpu_of)
    return FALSE;
  const ExecJob job = { .of = of, .kernels = &exec_kernels_cuda },
                cpu_job = { .of = cpu_of, .kernels = &exec_kernels_cpu };
  g_autoptr (PlanSchedule) schedule = test_lower (of, 0), cpu_schedule = test_lower (cpu_of, 0);
  return exec_runnable_check (&job, of, schedule, NULL)
         && exec_runnable_check (&cpu_job, cpu_of, cpu_schedule, NULL);
}

static const struct
{
  PlanField field;
  gint64 value;
} more[] = { { PLAN_STRATEGY, PLAN_STRATEGY_NO_SHARD },
             { PLAN_STRATEGY, PLAN_STRATEGY_OPTIM_GRADS },
             { PLAN_STRATEGY, PLAN_STRATEGY_OPTIM_GRADS_PARAMS },
             { PLAN_COMPUTE, PLAN_COMPUTE_BF16 },
             { PLAN_COMPUTE, PLAN_COMPUTE_FP16 },
             { PLAN_RECOMPUTE, PLAN_RECOMPUTE_FULL },
             { PLAN_MBS, 2 },
             { PLAN_NCCL_UB, PLAN_NCCL_UB_ON },
             { PLAN_AG_GROUP, PLAN_AG_GROUP_ON },
             { PLAN_REDUCE_ALGO, PLAN_REDUCE_ALGO_A2A },
             { PLAN_MAIN_GRADS, PLAN_MAIN_GRADS_BF16 },
             { PLAN_MAIN_PARAMS, PLAN_MAIN_PARAMS_BF16 },
             { PLAN_OPTIMIZER, PLAN_OPTIMIZER_SGD },
             { PLAN_GRAD_ACCUM_FUSION, PLAN_GRAD_ACCUM_FUSION_ON },
             { PLAN_NAN_CHECK, PLAN_NAN_CHECK_LOSS },
             { PLAN_NAN_CHECK, PLAN_NAN_CHECK_PARAMS },
             { PLAN_PER_TOKEN_LOSS, PLAN_PER_TOKEN_LOSS_OFF },
             { PLAN_OVERLAP_GRAD_REDUCE, PLAN_OVERLAP_GRAD_REDUCE_OFF },
             { PLAN_DETERMINISTIC, PLAN_DETERMINISTIC_ON } };

/* Draws a plan. Half of the plans are interleaved; a third of the others have uneven stages, and
 * two in five run all forward passes first. Random changes are kept where both backends can run the
 * plan. */
static void
case_init_random (Case *c, guint seed)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (seed);
  const guint ranks = (guint[]){ 2, 3, 4, 4 }[seed % 4], stages = seed % 8 == 7 ? 2 : ranks;
  const guint n_virtual = seed / 2 % 2 + 1, extra = n_virtual == 1 && seed % 3 == 0;
  g_autofree char *model = g_strdup_printf (
      "%s,layers=%u,hidden=%d,ffn=%d,heads=2,kv_heads=%u,head_dim=%d,vocab=%d,max_seq=12",
      kinds[seed % G_N_ELEMENTS (kinds)], stages * n_virtual + extra,
      g_rand_int_range (rand, 4, 30), g_rand_int_range (rand, 4, 40), 1 + seed % 2,
      2 * g_rand_int_range (rand, 2, 7), g_rand_int_range (rand, 8, 90));
  g_autofree char *fields = g_strdup_printf (
      "strategy=optim pp=%u vpp=%u %s %s seq=%d gbs=%u", stages, n_virtual,
      extra ? "pp_first_layers=2" : "", n_virtual == 1 && seed % 5 < 2 ? "pp_schedule=afab" : "",
      g_rand_int_range (rand, 1, 12), ranks * (1 + seed % 3));
  case_open (c, model, ranks);
  case_set_plan (c, fields);
  for (guint i = 0; i < 8; i++)
    {
      const guint at = (guint)g_rand_int_range (rand, 0, G_N_ELEMENTS (more));
      Plan plan = c->of->plan;
      plan.value[more[at].field] = more[at].value;
      if (!can_run (c, &plan))
        continue;
      plan_case_free (c->of);
      c->of = test_case_of (c->model, c->gpus, &plan);
    }
  case_set_job (c, seed);
  if (seed % 4 == 1)
    case_evaluates (c);
  case_set_way (c, seed % 2 == 1);
}

START_TEST (random_pipelines_are_near_the_cpu)
{
  Case c;
  g_autofree char *what = g_strdup_printf ("seed %d", _i);
  case_init_random (&c, (guint)_i);
  check_against_cpu (&c, what);
  case_clear (&c, what);
}
END_TEST

/* Pipelines whose stages' layers are split over a tensor-parallel group, whose ranks share moments
 * in eight bits, whose virtual stages shard gradients, or that attend within documents. */
START_TEST (stages_of_split_layers_are_near_the_cpu)
{
  static const char *const fields[]
      = { "compute=fp32 pp=2 tp=2 sp=off gbs=4",
          "compute=fp32 pp=2 tp=2 sp=on gbs=2",
          "compute=bf16 pp=2 vpp=2 tp=2 sp=on gbs=4 strategy=optim",
          "compute=bf16 pp=2 gbs=4 mbs=1 strategy=optim precision_aware=on exp_avg=fp8 "
          "exp_avg_sq=fp8",
          "compute=bf16 pp=2 vpp=2 gbs=8 strategy=optim_grads mbs=1",
          "compute=fp32 pp=2 vpp=2 gbs=8 strategy=optim_grads_params mbs=1 double_buffer=on",
          "compute=fp32 pp=2 gbs=4 mbs=1 strategy=optim doc_tokens=5",
          "compute=bf16 pp=4 gbs=4 mbs=1 strategy=no_shard doc_tokens=7 hidden_dropout=0.1" };
  const char *const what = fields[_i / 2];
  Case c;
  case_init_staged (&c,
                    "family=llama,layers=4,hidden=16,ffn=24,heads=4,kv_heads=2,head_dim=8,"
                    "vocab=33,max_seq=16",
                    4, what, _i % 2 == 1);
  check_against_cpu (&c, what);
  case_clear (&c, what);
}
END_TEST

/* --- against fewer stages ------------------------------------------------------------------- */

/* The embeddings are not tied, and one rank has all micro batches, so stages change neither sums
 * nor their order. */
START_TEST (stages_change_no_bit)
{
  static const char *const staged[] = { "compute=fp32 pp=2",
                                        "compute=fp32 pp=2 vpp=2",
                                        "compute=fp32 pp=4",
                                        "compute=fp32 pp=2 pp_first_layers=1",
                                        "compute=bf16 pp=2 recompute=full",
                                        "compute=bf16 pp=2 vpp=2 precision_aware=on "
                                        "offload_optimizer=0.5 "
                                        "offload_modules=attn_norm+qkv_linear+mlp_norm",
                                        "compute=bf16 pp=2 pp_schedule=afab" };
  const gchar *common = _i / 2 % 2 == 0
                            ? "strategy=no_shard gbs=4 deterministic=on"
                            : "strategy=no_shard gbs=4 deterministic=on hidden_dropout=0.2";
  g_autofree char *fields = g_strdup_printf ("%s %s", common, staged[_i / 2]);
  g_autofree char *plain = g_strdup_printf ("%s %.12s", common, staged[_i / 2]);
  const guint ranks = strstr (staged[_i / 2], "pp=4") ? 4 : 2;
  Case c, one;
  case_init_staged (&one, LLAMA, 1, plain, FALSE);
  case_must_run (&one, plain);
  case_init_staged (&c, LLAMA, ranks, fields, _i % 2 == 1);
  case_must_run (&c, fields);
  assert_equal_losses (&c, &one, fields);
  case_free (&one);
  case_clear (&c, fields);
}
END_TEST

/* Two steps, a checkpoint, and two more steps with other stages leave the same as four steps at
 * once. */
START_TEST (a_checkpoint_goes_on_with_other_stages)
{
  static const char *const fields[]
      = { "compute=fp32 strategy=no_shard gbs=4 deterministic=on pp=2",
          "compute=fp32 strategy=no_shard gbs=4 deterministic=on pp=2 vpp=2" };
  Case whole, part;
  g_autoptr (GError) error = NULL;
  g_autofree char *folder = g_dir_make_tmp ("test-cuda-stages-XXXXXX", NULL);
  case_init_staged (&whole, LLAMA, 2, fields[0], FALSE);
  whole.job.steps = 4;
  case_must_run (&whole, "whole");
  case_init_staged (&part, LLAMA, 2, fields[0], TRUE);
  part.job.save = folder;
  case_must_run (&part, "first half");
  case_free (&part);
  case_init_staged (&part, LLAMA, 2, fields[1], FALSE);
  g_autoptr (ExecCheckpoint) checkpoint = exec_checkpoint_open (folder, part.model, &error);
  ck_assert_msg (checkpoint != NULL, "%s", error ? error->message : "");
  part.job.resume = checkpoint;
  part.job.first_step = exec_checkpoint_step (checkpoint);
  part.job.first_token = exec_checkpoint_tokens (checkpoint);
  case_must_run (&part, "second half");
  ck_assert_mem_eq (part.results[0].losses, whole.results[0].losses + 2, 2 * sizeof (double));
  g_autofree char *command = g_strdup_printf ("rm -r '%s'", folder);
  ck_assert_int_eq (system (command), 0);
  case_free (&whole);
  case_clear (&part, "second half");
}
END_TEST

/* --- planted mistakes ----------------------------------------------------------------------- */

static ExecDeviceOps planted_device;
static ExecKernels planted_kernels;
static PlanStream planted_stream;

/* Makes the planted stream, or the host, wait for nothing. */
static gboolean
wait_unless_planted (ExecDevice *self, guint32 event, PlanStream stream, GError **error)
{
  return stream == planted_stream || exec_device_cuda.wait (self, event, stream, error);
}

static gboolean
sync_unless_planted (ExecDevice *self, guint32 event, GError **error)
{
  return planted_stream == PLAN_STREAM_HOST || exec_device_cuda.sync (self, event, error);
}

/* Under 1F1B the host waits for the end of each trade, and its streams for compute; between
 * interleaved stages compute waits. */
START_TEST (a_missing_wait_is_found)
{
  static const struct
  {
    const char *fields;
    PlanStream stream;
  } planted[] = { { "pp=2", PLAN_STREAM_NEXT },
                  { "pp=2", PLAN_STREAM_PREV },
                  { "pp=2", PLAN_STREAM_HOST },
                  { "pp=2 vpp=2 strategy=optim", PLAN_STREAM_NEXT },
                  { "pp=2 vpp=2 strategy=optim", PLAN_STREAM_PREV },
                  { "pp=2 vpp=2 strategy=optim", PLAN_STREAM_COMPUTE } };
  const guint at = (guint)_i / 2;
  Case c;
  g_autoptr (GError) error = NULL;
  g_autofree char *fields = g_strconcat ("gbs=8 ", planted[at].fields, NULL);
  planted_device = exec_device_cuda;
  planted_device.wait = wait_unless_planted;
  planted_device.sync = sync_unless_planted;
  planted_kernels = exec_kernels_cuda;
  planted_kernels.device = &planted_device;
  planted_stream = planted[at].stream;
  case_init_staged (&c, LLAMA, 2, fields, _i % 2 == 1);
  c.job.kernels = &planted_kernels;
  case_run (&c, &error);
  ck_assert_msg (*fake_cuda_error () != '\0', "%s: %s without its waits is not found", fields,
                 plan_stream_name (planted[at].stream));
  case_free (&c);
}
END_TEST

static ExecCommOps planted_comm;
static const ExecCommOps *real_comm;
static enum {
  SWAPS,
  SKIPS,
  SHORTENS,
  FAILS,
  STALLS
} mistake;                /* rank 1's mistake in its first trade */
static gboolean was_made; /* only the thread of rank 1 uses it */

static ExecComm *
plant_comm (ExecComm *self)
{
  if (self)
    self->ops = &planted_comm;
  return self;
}

static gboolean
trade_unless_planted (ExecComm *self, void *out, const void *in, guint64 count, PlanDtype dtype,
                      guint peer, void *stream, GError **error)
{
  const gboolean swaps = mistake == SWAPS;
  if (self->rank == 0 || !stream || was_made)
    return real_comm->trade (self, out, in, count, dtype, peer, stream, error);
  was_made = TRUE;
  if (mistake == SKIPS)
    return TRUE;
  if (mistake == FAILS)
    g_set_error_literal (error, PLAN_ERROR, PLAN_ERROR_BACKEND, "planted");
  if (mistake == STALLS)
    fake_nccl_lose (1, 0, FAKE_NCCL_STALLS);
  return mistake != FAILS
         && real_comm->trade (self, swaps ? (gpointer)in : out, swaps ? out : in,
                              count - (mistake == SHORTENS), dtype, peer, stream, error);
}

static ExecComm *
group_and_plant (ExecComm *self, guint size, guint stride, GError **error)
{
  return plant_comm (real_comm->group (self, size, stride, error));
}

static ExecComm *
join_and_plant (ExecComm *threads, GError **error)
{
  return plant_comm (join (threads, error));
}

static gboolean
open_and_plant (guint ranks, ExecComm **out_comms, GError **error)
{
  if (!exec_comm_cuda_open (ranks, out_comms, error))
    return FALSE;
  real_comm = out_comms[0]->ops;
  planted_comm = *real_comm;
  planted_comm.trade = trade_unless_planted;
  planted_comm.group = group_and_plant;
  for (guint i = 0; i < ranks; i++)
    plant_comm (out_comms[i]);
  return TRUE;
}

/* Whatever one of two ranks does wrong in a trade, the run ends with an error. */
START_TEST (a_trade_that_fails_is_told)
{
  static const char *const messages[2][5]
      = { { "two ranks do not trade with each other: rank ", "two ranks do not trade with each",
            "two ranks do not trade with each other: rank ", "planted", NULL },
          { "rank 0 calls ncclSend to 1 of 256 of type 1, rank 1 calls nothing",
            "of type 1, rank 0 calls nothing",
            "rank 0 calls ncclSend to 1 of 256 of type 1, rank 1 calls ncclRecv from 0 of 254",
            "planted", " among 2 ranks has not ended after 3 s: a rank is lost, or late" } };
  const gboolean is_nccl = _i % 2 == 1;
  Case c;
  g_autoptr (GError) error = NULL;
  mistake = (guint)_i / 2;
  was_made = FALSE;
  if (!messages[is_nccl][mistake])
    return;
  planted_device = exec_device_cuda;
  planted_device.open_comms = open_and_plant;
  planted_kernels = exec_kernels_cuda;
  planted_kernels.device = &planted_device;
  real_comm = &exec_comm_nccl_ops;
  planted_comm = *real_comm;
  planted_comm.trade = trade_unless_planted;
  planted_comm.group = group_and_plant;
  case_init_staged (&c, LLAMA, 2, "pp=2 gbs=4 compute=bf16", is_nccl);
  c.job.kernels = &planted_kernels;
  c.job.join = is_nccl ? join_and_plant : NULL;
  c.job.timeout_s = mistake == STALLS ? SHORT_S : LONG_S;
  ck_assert (!case_run (&c, &error));
  ck_assert_msg (strstr (error->message, messages[is_nccl][mistake]) != NULL, "%s", error->message);
  ck_assert_msg (mistake != STALLS || strstr (error->message, "trade (op ") != NULL, "%s",
                 error->message);
  case_free (&c);
}
END_TEST

/* Whichever call fails, the run ends with an error and no other rank waits. */
START_TEST (any_call_may_fail)
{
  guint failed = 0;
  for (guint call = 1 + (guint)_i; call < 1500; call += 97)
    {
      Case c;
      g_autoptr (GError) error = NULL;
      case_init_staged (&c, LLAMA, 2, "pp=2 vpp=2 strategy=optim gbs=4", _i == 1);
      fake_cuda_fail_at (call, cudaErrorNotSupported);
      failed += !case_run (&c, &error);
      ck_assert_msg (!error || *error->message != '\0', "call %u", call);
      case_free (&c);
    }
  ck_assert_uint_gt (failed, 8);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("cuda-stages");
  TCase *tcase = tcase_create ("stages");
  tcase_set_timeout (tcase, 300);
  test_add_run_share (tcase, random_pipelines_are_near_the_cpu, SEEDS);
  test_add_runs (tcase, stages_of_split_layers_are_near_the_cpu, 16);
  test_add_runs (tcase, stages_change_no_bit, 14);
  tcase_add_test (tcase, a_checkpoint_goes_on_with_other_stages);
  test_add_runs (tcase, a_missing_wait_is_found, 12);
  test_add_runs (tcase, a_trade_that_fails_is_told, 10);
  tcase_add_loop_test (tcase, any_call_may_fail, 0, 2);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
