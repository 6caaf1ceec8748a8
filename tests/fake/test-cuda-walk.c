/* SPDX-License-Identifier: Apache-2.0 */
/* Whole runs on the fake device, which all ranks share: compared with the CPU's and with each
 * other; planted mistakes are found. */
#include "config.h"

#include "exec/cuda/device-cuda.h"
#include "exec/walk/runnable.h"
#include "planner/base/error.h"
#include "tests/case.h"
#include "tests/fake/cuda-case.h"
#include "tests/fake/cuda-fake.h"
#include "tests/fake/cudnn-fake.h"
#include "tests/fake/watch.h"
#include "tests/prop/random.h"
#include "tests/share.h"

#include <check.h>
#include <cuda_runtime_api.h>
#include <glib/gstdio.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SEEDS 32
#define ON_HOST "precision_aware=on offload_optimizer=0.4" /* a share of the optimizer */

static const char *const kinds[]
    = { "family=gpt2,tied=on",
        "family=gpt2,tied=off,activation=gelu",
        "family=qwen2",
        "family=llama,norm=layernorm,gated=off,activation=relu2,mlp_bias=on,positions=none",
        "family=llama",
        "family=llama,tied=on" };

static gboolean
runs_on (const PlanCase *of, const ExecKernels *kernels)
{
  const ExecJob job = { .of = of, .kernels = kernels };
  g_autoptr (PlanSchedule) schedule = test_lower (of, 0);
  return exec_runnable_check (&job, of, schedule, NULL);
}

/* Changes a field unless a rule or one of the backends then refuses the plan: tests of their own
 * look at refusals. */
static void
change_plan (Case *c, PlanField field, gint64 value)
{
  Plan plan = c->of->plan;
  plan.value[field] = value;
  g_autoptr (PlanCase) of = plan_case_new (c->model, c->gpus, &plan, NULL, NULL);
  g_autoptr (PlanCase) cpu_of = plan_case_new (c->model, c->processors, &plan, NULL, NULL);
  if (!of || !cpu_of || !runs_on (of, &exec_kernels_cuda) || !runs_on (cpu_of, &exec_kernels_cpu))
    return;
  plan_case_free (c->of);
  c->job.of = c->of = g_steal_pointer (&of);
}

static void
case_init_random (Case *c, guint seed)
{
  static const struct
  {
    PlanField field;
    gint64 value;
  } more[] = { { PLAN_FINE_GRAINED, PLAN_FINE_GRAINED_ON },
               { PLAN_DOUBLE_BUFFER, PLAN_DOUBLE_BUFFER_ON },
               { PLAN_NCCL_UB, PLAN_NCCL_UB_ON },
               { PLAN_AG_GROUP, PLAN_AG_GROUP_ON },
               { PLAN_REDUCE_ALGO, PLAN_REDUCE_ALGO_A2A },
               { PLAN_MAIN_PARAMS, PLAN_MAIN_PARAMS_BF16 },
               { PLAN_EXP_AVG, PLAN_EXP_AVG_BF16 },
               { PLAN_OPTIMIZER, PLAN_OPTIMIZER_SGD },
               { PLAN_GRAD_ACCUM_FUSION, PLAN_GRAD_ACCUM_FUSION_ON },
               { PLAN_NAN_CHECK, PLAN_NAN_CHECK_LOSS },
               { PLAN_NAN_CHECK, PLAN_NAN_CHECK_PARAMS },
               { PLAN_DETERMINISTIC, PLAN_DETERMINISTIC_ON },
               { PLAN_COMPUTE, PLAN_COMPUTE_FP8_TENSORWISE },
               { PLAN_COMPUTE, PLAN_COMPUTE_FP8_DELAYED },
               { PLAN_PER_TOKEN_LOSS, PLAN_PER_TOKEN_LOSS_OFF },
               { PLAN_PARAM_GATHER, PLAN_PARAM_GATHER_FP8 },
               { PLAN_DP_OUTER, 2 } };
  g_autoptr (GRand) rand = g_rand_new_with_seed (seed);
  const guint kv_heads = 1 + seed % 2;
  g_autofree char *model = g_strdup_printf (
      "%s,layers=%d,hidden=%d,ffn=%d,heads=2,kv_heads=%u,head_dim=%d,vocab=%d,max_seq=12",
      kinds[seed % G_N_ELEMENTS (kinds)], g_rand_int_range (rand, 1, 3),
      g_rand_int_range (rand, 4, 30), g_rand_int_range (rand, 4, 40), kv_heads,
      2 * g_rand_int_range (rand, 2, 7), g_rand_int_range (rand, 8, 90));
  case_open (c, model, (guint[]){ 1, 2, 3, 4 }[seed % 4]);
  c->of = random_case (seed, c->model, c->gpus, "native");
  case_set_job (c, seed);
  change_plan (c, PLAN_MBS, 1);
  change_plan (c, PLAN_GBS, c->ranks * (1 + seed % 2));
  if (seed % 2) /* two heads of keys */
    change_plan (c, PLAN_TP, 2);
  if (seed % 4 == 1)
    {
      change_plan (c, PLAN_SEQ, 8);
      change_plan (c, PLAN_SP, PLAN_SP_ON);
    }
  for (guint i = 0; i < 4; i++)
    {
      const guint at = (guint)g_rand_int_range (rand, 0, G_N_ELEMENTS (more));
      change_plan (c, more[at].field, more[at].value);
    }
  if (seed % 3 == 1)
    change_plan (c, PLAN_EOD_MASK_LOSS, PLAN_EOD_MASK_LOSS_ON); /* documents end at token 0 */
}

START_TEST (random_plans_are_near_the_cpu)
{
  Case c;
  g_autofree char *what = g_strdup_printf ("seed %d", _i);
  case_init_random (&c, (guint)_i);
  check_against_cpu (&c, what);
  case_clear (&c, what);
}
END_TEST

START_TEST (some_random_plans_split_layers)
{
  guint split[2] = { 0 };
  for (guint seed = 0; seed < SEEDS; seed++)
    {
      Case c;
      case_init_random (&c, seed);
      split[c.of->plan.value[PLAN_SP] == PLAN_SP_ON] += c.of->plan.value[PLAN_TP] > 1;
      case_clear (&c, "split");
    }
  ck_assert_uint_ge (split[FALSE], 4);
  ck_assert_uint_ge (split[TRUE], 4);
}
END_TEST

/* What is allocated is what was predicted, by category, at the peak, and in one allocation. */
START_TEST (bytes_taken_equal_bytes_predicted)
{
  Case c;
  case_init_random (&c, 500 + (guint)_i);
  case_must_run (&c, "bytes");
  case_check_bytes (&c, "bytes");
  case_clear (&c, "bytes");
}
END_TEST

/* Every mix of formats of moments, whose scales are those of each rank's part of a parameter. A
 * graph of the step finds the scales where the step before has left them. */
START_TEST (narrow_moments_are_near_the_cpus)
{
  static const char *const moments[]
      = { "strategy=no_shard exp_avg=fp8 exp_avg_sq=fp8", "strategy=optim_grads_params exp_avg=fp8",
          "strategy=optim exp_avg=bf16 exp_avg_sq=fp8",
          "strategy=optim_grads exp_avg=fp16 exp_avg_sq=fp8 dp_outer=2",
          "strategy=optim_grads_params exp_avg=fp16 exp_avg_sq=fp16 main_params=bf16" };
  g_autofree char *fields
      = g_strconcat ("precision_aware=on compute=bf16 deterministic=on ", moments[_i], NULL);
  Case c;
  case_init (&c, _i == 3 ? 4 : 1 + (guint)_i % 3, fields);
  c.job.steps = 3;
  check_against_cpu (&c, fields);
  if (_i == 0)
    {
      Case kept;
      g_autofree char *by_graph = g_strconcat (fields, " cuda_graph=on", NULL);
      case_init (&kept, 1, by_graph);
      kept.job.steps = 4;
      case_clear_results (&c);
      c.job.steps = 4;
      case_must_run (&c, fields);
      case_must_run (&kept, by_graph);
      ck_assert_mem_eq (kept.results[0].main_params->data, c.results[0].main_params->data,
                        c.results[0].main_params->len);
      case_clear (&kept, by_graph);
    }
  case_clear (&c, fields);
}
END_TEST

/* --- attention by cuDNN ------------------------------------------------------------------- */

static GMutex told_mutex;
static GString *told; /* messages of g_info */

static void
remember (G_GNUC_UNUSED const char *domain, G_GNUC_UNUSED GLogLevelFlags level, const char *message,
          G_GNUC_UNUSED gpointer data)
{
  g_mutex_lock (&told_mutex);
  g_string_append_printf (told, "%s\n", message);
  g_mutex_unlock (&told_mutex);
}

static const struct
{
  const char *fields;
  guint head_dim;
  int major;         /* compute capability of the GPU; the plan is for Hopper */
  gboolean fused[2]; /* whether cuDNN takes the forward and the backward pass */
  guint plans;       /* plans of a rank: passes that cuDNN has an engine for */
  const char *told;
  guint cudnn; /* cuDNN's version; 0: 91900 */
} attentions[] = {
  { "compute=bf16", 8, 9, { TRUE, TRUE }, 2, "", 0 },
  { "compute=bf16 deterministic=on", 8, 9, { TRUE, TRUE }, 2, "", 0 },
  { "compute=bf16 recompute=full", 8, 9, { TRUE, TRUE }, 2, "", 0 },
  { "compute=bf16 strategy=optim_grads_params", 136, 9, { TRUE, TRUE }, 2, "", 0 },
  { "compute=bf16",
    136,
    10,
    { TRUE, FALSE },
    1,
    "attention backwards of 1 x 8 tokens, 2 heads of 136 in bf16: cuDNN has no engine for "
    "attention of this shape on this GPU, batched products take it\n",
    0 },
  { "compute=bf16",
    8,
    8,
    { TRUE, FALSE },
    2,
    "attention backwards of 1 x 8 tokens, 2 heads of 8 in bf16: cuDNN wants 5376 bytes of "
    "workspace, and the plan has 1536, batched products take it\n",
    0 },
  { "compute=bf16",
    12,
    9,
    { FALSE, FALSE },
    0,
    "2 heads of 12 in bf16: cuDNN's attention has heads of a multiple of 8 elements, batched",
    0 },
  { "compute=fp32",
    8,
    9,
    { FALSE, FALSE },
    0,
    "in fp32: cuDNN's attention is in bf16 or fp16, batched",
    0 },
  { "compute=bf16",
    8,
    9,
    { FALSE, FALSE },
    0,
    "2 heads of 8 in bf16: cuDNN's attention is wrong in versions 9.10.0 and 9.10.1, batched",
    91001 },
  { "compute=bf16",
    8,
    9,
    { TRUE, FALSE },
    1,
    "attention backwards of 1 x 8 tokens, 2 heads of 8 in bf16: cuDNN's attention goes wrong "
    "backwards up to version 9.15.0 where tokens are no multiple of 128, batched",
    91002 },
};

/* cuDNN runs every attention that it can, once per layer, and batched products the rest, which is
 * reported, in a turn for each of two query heads. Plans are made once per rank and pass, before
 * any is used. */
START_TEST (attention_is_by_cudnn_where_it_can)
{
  const guint at = (guint)_i / 2, ranks = _i % 2 == 0 ? 1 : 3;
  const gboolean is_recomputed = strstr (attentions[at].fields, "recompute") != NULL;
  const gboolean *fused = attentions[at].fused;
  const guint calls = ranks * STEPS * 2;
  Case c;
  told = g_string_new (NULL);
  const guint handler = g_log_set_handler (G_LOG_DOMAIN, G_LOG_LEVEL_MESSAGE, remember, NULL);
  case_init_heads (&c, ranks, attentions[at].head_dim, attentions[at].fields);
  fake_cuda_set_machine (1, (guint64)2 << 30, attentions[at].major, 0);
  fake_cudnn_set (attentions[at].cudnn ? attentions[at].cudnn : 91900, 0);
  check_against_cpu (&c, attentions[at].fields);
  fake_cudnn_set (91900, 0);
  const guint forward = calls * (is_recomputed ? 2 : 1);
  ck_assert_uint_eq (count_logged ("cuDNN graph "),
                     (fused[0] ? forward : 0) + (fused[1] ? calls : 0));
  ck_assert_uint_eq (count_logged ("softmax grid"), fused[0] ? 0 : 2 * forward);
  ck_assert_uint_eq (count_logged ("softmax_bwd grid"), fused[1] ? 0 : 2 * calls);
  ck_assert_uint_eq (count_logged ("cuDNN plan"), ranks * attentions[at].plans);
  if (ranks == 1 && fused[0])
    ck_assert (g_strrstr (fake_cuda_log (), "cuDNN plan")
               < strstr (fake_cuda_log (), "cuDNN graph"));
  ck_assert_msg (strstr (told->str, attentions[at].told) != NULL, "'%s'", told->str);
  ck_assert_msg ((*told->str == '\0') == (fused[0] && fused[1]), "'%s'", told->str);
  case_clear (&c, attentions[at].fields);
  g_log_remove_handler (G_LOG_DOMAIN, handler);
  g_string_free (told, TRUE);
}
END_TEST

/* Failures are reported in cuDNN's words, with the op where there is one. */
START_TEST (failures_of_cudnn_are_told)
{
  static const char *const messages[]
      = { "cudnnCreate: CUDNN_STATUS_EXECUTION_FAILED: cudaErrorNotSupported",
          "cuDNN refuses a plan of attention: CUDNN_STATUS_EXECUTION_FAILED: cudaErrorNotSupported",
          "(attention, unit 0): cannot be issued: cudnnBackendExecute (",
          "(attention_bwd, unit 1): cannot be issued: cudnnBackendExecute (" };
  Case c;
  guint call = 1;
  for (guint i = 0; i < G_N_ELEMENTS (messages); i++)
    for (gboolean is_told = FALSE; !is_told; call++)
      {
        g_autoptr (GError) error = NULL;
        case_init (&c, 1, "compute=bf16 deterministic=on");
        fake_cuda_fail_at (call, cudaErrorNotSupported);
        ck_assert_msg (!case_run (&c, &error) || call < 400, "'%s' is never told", messages[i]);
        is_told = error && strstr (error->message, messages[i]) != NULL;
        if (is_told)
          ck_assert_int_eq (error->code, PLAN_ERROR_BACKEND);
        case_clear (&c, messages[i]);
      }
}
END_TEST

/* --- against each other ------------------------------------------------------------------- */

/* With one micro batch and one format of gradients the sums are the same, in the same order: where
 * shards lie, what is recomputed and how far ahead is gathered changes no bit in a deterministic
 * plan; nor does the number of kernels that make the loss. Other plans take the fastest algorithm
 * of a product, and algorithms differ in the order of their sums. */
START_TEST (strategies_agree_bit_for_bit)
{
  static const char *const others[]
      = { "strategy=optim",
          "strategy=optim_grads",
          "strategy=optim_grads_params",
          "strategy=optim_grads_params reduce_algo=a2a",
          "strategy=optim_grads_params double_buffer=on",
          "strategy=optim_grads_params comm_unit=1",
          "strategy=optim_grads_params overlap_grad_reduce=off overlap_param_gather=off",
          "strategy=optim_grads_params recompute=full recompute_layers=1",
          "strategy=no_shard recompute=selective recompute_modules=mlp",
          "strategy=optim_grads_params offload_layers=2",
          "strategy=optim_grads_params " ON_HOST,
          "strategy=no_shard precision_aware=on offload_optimizer=1",
          "strategy=no_shard ce_fusion=off" };
  static const char *const formats[] = { "compute=fp32 main_grads=fp32 grad_comm=fp32",
                                         "compute=bf16 main_grads=fp32 grad_comm=fp32",
                                         "compute=bf16 main_grads=bf16 grad_comm=bf16" };
  const char *format = formats[_i % 3];
  const guint ranks = 2 + (guint)_i % 2;
  Case plain;
  g_autofree char *fields = g_strconcat ("strategy=no_shard deterministic=on ", format, NULL);
  case_init (&plain, ranks, fields);
  case_must_run (&plain, fields);
  for (guint i = 0; i < G_N_ELEMENTS (others); i++)
    {
      Case other;
      g_autofree char *all = g_strdup_printf ("%s deterministic=on %s", others[i], format);
      case_init (&other, ranks, all);
      case_must_run (&other, all);
      assert_equal_losses (&other, &plain, all);
      case_clear (&other, all);
    }
  case_clear (&plain, fields);
}
END_TEST

/* --- planted mistakes --------------------------------------------------------------------- */

static ExecDeviceOps planted_ops;
static ExecKernels planted_kernels;
static PlanStream planted_stream;
static const PlanEvent *planted_event; /* NULL: all */
static gboolean (*real_wait) (ExecDevice *self, guint32 event, PlanStream stream, GError **error);

static gboolean
is_planted (guint32 event, PlanStream stream)
{
  return stream == planted_stream
         && (!planted_event || event - planted_event->first < planted_event->count);
}

/* Makes the planted stream wait for nothing, or not for one event. The host is a stream, too. */
static gboolean
wait_unless_planted (ExecDevice *self, guint32 event, PlanStream stream, GError **error)
{
  return is_planted (event, stream) || real_wait (self, event, stream, error);
}

static gboolean
sync_unless_planted (ExecDevice *self, guint32 event, GError **error)
{
  return is_planted (event, PLAN_STREAM_HOST) || exec_device_cuda.sync (self, event, error);
}

static const PlanEvent *
event_of (const PlanSchedule *schedule, const char *name)
{
  for (guint i = 0; i < plan_schedule_n_events (schedule); i++)
    if (g_str_equal (plan_schedule_event (schedule, i)->name, name))
      return plan_schedule_event (schedule, i);
  ck_abort_msg ("there is no event %s", name);
}

START_TEST (a_missing_event_is_found)
{
  static const struct
  {
    PlanStream stream;
    const char *fields, *event;
    const char *found; /* a part of the report; NULL: any */
  } planted[]
      = { { PLAN_STREAM_GATHER, "strategy=optim_grads_params", NULL, NULL },
          { PLAN_STREAM_REDUCE, "strategy=optim_grads_params", NULL, NULL },
          { PLAN_STREAM_COMPUTE, "strategy=optim_grads_params", NULL, NULL },
          { PLAN_STREAM_REDUCE, "strategy=no_shard", NULL, NULL },
          { PLAN_STREAM_COMPUTE, "strategy=no_shard", NULL, NULL },
          { PLAN_STREAM_COPY, "strategy=no_shard offload_layers=2", NULL, NULL },
          { PLAN_STREAM_FETCH, "strategy=no_shard offload_layers=2", NULL, NULL },
          { PLAN_STREAM_COPY, "strategy=no_shard " ON_HOST, "done", "memcpy" },
          { PLAN_STREAM_COMPUTE, "strategy=no_shard " ON_HOST, "copied", "memcpy" },
          { PLAN_STREAM_HOST, "strategy=optim " ON_HOST, "copied", "the host's adamw_host reads" },
          { PLAN_STREAM_TENSOR, "tp=2 sp=on strategy=no_shard", NULL, NULL },
          { PLAN_STREAM_TENSOR, "tp=2 sp=off strategy=no_shard", NULL, NULL },
          { PLAN_STREAM_COMPUTE, "tp=2 sp=off strategy=no_shard", NULL, NULL } };
  Case c;
  g_autoptr (GError) error = NULL;
  planted_ops = exec_device_cuda;
  planted_kernels = exec_kernels_cuda;
  real_wait = planted_ops.wait;
  planted_ops.wait = wait_unless_planted;
  planted_ops.sync = sync_unless_planted;
  planted_kernels.device = &planted_ops;
  planted_stream = planted[_i].stream;
  planted_event = NULL;
  case_open (&c,
             "family=llama,layers=2,hidden=16,ffn=24,heads=2,kv_heads=2,head_dim=8,vocab=32,"
             "max_seq=16",
             2);
  case_set_plan (&c, planted[_i].fields);
  c.job.kernels = watch_kernels (&planted_kernels);
  g_autoptr (PlanSchedule) schedule = test_lower (c.of, 0);
  if (planted[_i].event)
    planted_event = event_of (schedule, planted[_i].event);
  case_run (&c, &error);
  ck_assert_msg (*fake_cuda_error () != '\0', "%s without its waits is not found",
                 plan_stream_name (planted[_i].stream));
  ck_assert_msg (!planted[_i].found || strstr (fake_cuda_error (), planted[_i].found) != NULL, "%s",
                 fake_cuda_error ());
  case_free (&c);
}
END_TEST

/* Errors name the collective of ranks that share a GPU: a sum, or a maximum. */
START_TEST (failures_of_collectives_say_what_failed)
{
  const char *name = _i ? "the maximum over ranks: " : "the sum over ranks: ";
  gboolean is_told = FALSE;
  for (guint call = 1; !is_told; call++)
    {
      g_autoptr (GError) error = NULL;
      ExecComm *comm;
      cudaStream_t stream;
      void *numbers;
      fake_cuda_reset ();
      ck_assert (exec_comm_cuda_open (1, &comm, NULL));
      ck_assert_int_eq (cudaStreamCreateWithFlags (&stream, cudaStreamNonBlocking), cudaSuccess);
      ck_assert_int_eq (cudaMalloc (&numbers, 64), cudaSuccess);
      ck_assert_int_eq (cudaMemsetAsync (numbers, 0, 64, stream), cudaSuccess);
      fake_cuda_fail_at (call, cudaErrorNotSupported);
      const gboolean ok
          = _i ? comm->ops->all_reduce_max (comm, numbers, 16, PLAN_DTYPE_FP32, stream, &error)
               : comm->ops->all_reduce (comm, numbers, 16, PLAN_DTYPE_FP32, stream, &error);
      ck_assert_msg (!ok, "'%s' is never told", name);
      is_told = strstr (error->message, name) != NULL;
      comm->ops->close (comm);
      cudaFree (numbers);
      cudaStreamDestroy (stream);
    }
}
END_TEST

/* Whichever call fails, the run ends with an error and no other rank waits. A single rank leaves
 * nothing behind; what several ranks leave depends on how far the others have come. */
START_TEST (any_call_may_fail)
{
  Case c;
  guint failed = 0;
  for (guint call = 1 + (guint)_i; call < 1200; call += 61)
    {
      g_autoptr (GError) error = NULL;
      case_init (&c, 1 + (guint)_i,
                 "strategy=optim_grads_params nan_check=loss offload_layers=1 " ON_HOST);
      fake_cuda_fail_at (call, cudaErrorNotSupported);
      if (!case_run (&c, &error))
        {
          ck_assert (error != NULL && *error->message != '\0');
          failed++;
        }
      if (_i == 0)
        case_clear (&c, "failing");
      else
        case_free (&c);
    }
  ck_assert_uint_gt (failed, 10);
}
END_TEST

/* --- refusals ----------------------------------------------------------------------------- */

/* The host's memory for what is offloaded, before anything runs. */
START_TEST (memory_that_cannot_be_pinned_is_told)
{
  gboolean is_told = FALSE;
  for (guint call = 1; !is_told; call++)
    {
      Case c;
      g_autoptr (GError) error = NULL;
      case_init (&c, 1, "offload_layers=1");
      fake_cuda_fail_at (call, cudaErrorMemoryAllocation);
      ck_assert_uint_lt (call, 100);
      is_told = !case_run (&c, &error)
                && strstr (error->message, " of memory left to pin for what is off") != NULL;
      ck_assert (!is_told || error->code == PLAN_ERROR_INFEASIBLE);
      case_clear (&c, "pinned");
    }
}
END_TEST

START_TEST (what_is_missing_is_named)
{
  Case c;
  case_init (&c, 1, "");
  fake_cuda_set_machine (0, 0, 9, 0);
  assert_refused (&c, PLAN_ERROR_UNSUPPORTED, "no CUDA device: ");
  case_init (&c, 1, "");
  fake_cuda_set_driver (12040);
  assert_refused (&c, PLAN_ERROR_UNSUPPORTED,
                  ": it is for CUDA 12.4, and this program needs one for 13.0");
  case_init (&c, 1, "");
  fake_cuda_set_driver (0);
  assert_refused (&c, PLAN_ERROR_UNSUPPORTED, ": there is none here, or no libcuda.so.1 where ");
  case_init (&c, 2, "");
  fake_cuda_set_machine (1, 200000, 9, 0);
  assert_refused (&c, PLAN_ERROR_INFEASIBLE, "GPU 0 has no ");
  case_init (&c, 1, "");
  ExecKernels fewer = exec_kernels_cuda;
  fewer.launch[PLAN_OP_ROPE] = NULL;
  c.job.kernels = &fewer;
  assert_refused (&c, PLAN_ERROR_UNSUPPORTED,
                  "this plan needs the op rope, which is modelled and not executed by cuda yet");
}
END_TEST

START_TEST (more_ranks_than_can_share_are_refused)
{
  g_autoptr (GError) error = NULL;
  ExecComm *comms[65];
  ck_assert (!exec_comm_cuda_open (65, comms, &error));
  ck_assert_str_eq (error->message, "65 ranks on one GPU: at most 64 can share it");
}
END_TEST

/* --- what a user does --------------------------------------------------------------------- */

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

/* Two steps, a checkpoint, and two more leave the same as four steps at once. */
START_TEST (a_resumed_run_goes_on_as_if_never_stopped)
{
  static const char *const moments[]
      = { " offload_layers=1", " precision_aware=on exp_avg=fp8 exp_avg_sq=fp8",
          " main_params=bf16 exp_avg=bf16 " ON_HOST };
  Case whole, part;
  g_autoptr (GError) error = NULL;
  g_autofree char *folder = g_dir_make_tmp ("test-cuda-walk-XXXXXX", NULL);
  g_autofree char *fields = g_strconcat (
      "strategy=optim_grads_params compute=bf16 deterministic=on", moments[_i], NULL);
  case_init (&whole, 2, fields);
  whole.job.steps = 4;
  case_must_run (&whole, "whole");
  case_init (&part, 2, fields);
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
  ck_assert (memcmp (part.results[0].losses, whole.results[0].losses + 2, 2 * sizeof (double))
             == 0);
  for (guint r = 0; r < 2; r++)
    ck_assert (memcmp (part.results[r].main_params->data, whole.results[r].main_params->data,
                       whole.results[r].main_params->len)
               == 0);
  remove_folder (folder);
  case_clear (&part, "part");
  case_clear (&whole, "whole");
}
END_TEST

/* Evaluating between steps changes nothing, and its losses are near the CPU's. */
START_TEST (evaluation_is_near_the_cpu)
{
  Case c;
  ExecResult expected[MAX_RANKS] = { { 0 } };
  case_init (&c, 2, "strategy=optim_grads_params compute=fp32 offload_layers=2 " ON_HOST);
  case_evaluates (&c);
  run_on_cpu (&c, "evaluation", expected);
  case_must_run (&c, "evaluation");
  for (guint step = 0; step < STEPS; step++)
    ck_assert_double_le (distance (c.results[0].eval_losses[step], expected[0].eval_losses[step]),
                         1e-5);
  assert_near (&c, "evaluation", &c.results[0], &expected[0]);
  for (guint r = 0; r < c.ranks; r++)
    exec_result_clear (&expected[r]);
  case_clear (&c, "evaluation");
}
END_TEST

/* Counts the host's blocking waits in a run of so many steps. */
static guint
waits_in (const char *fields, gint64 steps)
{
  guint n;
  Case c;
  case_init (&c, 1, fields);
  c.job.steps = steps;
  case_must_run (&c, fields);
  n = count_logged ("synchronize");
  case_clear (&c, fields);
  return n;
}

static const char *const awaited[] = {
  "compute=bf16",
  "compute=bf16 strategy=optim_grads_params recompute=full gbs=3",
  "compute=fp8-delayed param_gather=fp8",
  "compute=fp8-tensorwise main_grads=fp32",
  "compute=bf16 nan_check=params gbs=2",
  "compute=fp8-tensorwise offload_layers=2 gbs=2",
  "compute=bf16 " ON_HOST,
};

/* Neither a kernel nor a library makes the host wait in a step: where the schedule has it wait
 * the device asks for its own events, without blocking. (Only algorithms that are timed block,
 * once.) */
START_TEST (no_step_blocks_the_host)
{
  g_autofree char *fields = g_strconcat (awaited[_i], " deterministic=on", NULL);
  const guint few = waits_in (fields, 2), many = waits_in (fields, 7);
  ck_assert_msg (many == few, "%s: %u waits in 2 steps, and %u in 7", fields, few, many);
}
END_TEST

/* The recorded step's spans lie within it, in order per stream. */
START_TEST (the_trace_is_whole)
{
  Case c;
  g_autoptr (GError) error = NULL;
  case_init (&c, 2, "strategy=optim_grads_params");
  case_must_run (&c, "trace");
  for (guint r = 0; r < c.ranks; r++)
    {
      g_autoptr (PlanSchedule) schedule = test_lower (c.of, r);
      ck_assert_msg (plan_trace_check (c.results[r].trace, schedule, &error), "%s",
                     error ? error->message : "");
      ck_assert_str_eq (c.results[r].trace->origin, "cuda");
    }
  case_clear (&c, "trace");
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("cuda-walk");
  TCase *tcase = tcase_create ("walk");
  tcase_set_timeout (tcase, 600);
  test_add_run_share (tcase, random_plans_are_near_the_cpu, SEEDS);
  tcase_add_test (tcase, some_random_plans_split_layers);
  test_add_runs (tcase, bytes_taken_equal_bytes_predicted, 8);
  test_add_runs (tcase, narrow_moments_are_near_the_cpus, 5);
  test_add_runs (tcase, attention_is_by_cudnn_where_it_can, 2 * (int)G_N_ELEMENTS (attentions));
  tcase_add_test (tcase, failures_of_cudnn_are_told);
  tcase_add_loop_test (tcase, strategies_agree_bit_for_bit, 0, 3);
  test_add_runs (tcase, a_missing_event_is_found, 12);
  tcase_add_loop_test (tcase, failures_of_collectives_say_what_failed, 0, 2);
  tcase_add_loop_test (tcase, any_call_may_fail, 0, 2);
  tcase_add_test (tcase, what_is_missing_is_named);
  tcase_add_test (tcase, memory_that_cannot_be_pinned_is_told);
  tcase_add_test (tcase, more_ranks_than_can_share_are_refused);
  tcase_add_loop_test (tcase, a_resumed_run_goes_on_as_if_never_stopped, 0, 3);
  tcase_add_test (tcase, evaluation_is_near_the_cpu);
  test_add_runs (tcase, no_step_blocks_the_host, G_N_ELEMENTS (awaited));
  tcase_add_test (tcase, the_trace_is_whole);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
