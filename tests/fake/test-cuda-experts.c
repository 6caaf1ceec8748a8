/* SPDX-License-Identifier: Apache-2.0 */
/* Runs of models with experts on the fake device, on ranks that share it and over the fake NCCL:
 * compared with the CPU's and with each other; planted mistakes are found. */
#include "config.h"

#include "exec/nccl/comm-nccl-private.h"
#include "exec/nccl/comm-nccl.h"
#include "tests/case.h"
#include "tests/fake/cuda-case.h"
#include "tests/fake/cuda-fake.h"
#include "tests/fake/nccl-fake.h"
#include "tests/share.h"

#include <check.h>
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#define LONG_S 120

/* Models: softmax over the chosen experts and over all, other scores, shared experts, layers
 * without experts, more experts than a warp has threads, biases and groups for the choice; with
 * latent attention. */
static const char *const models[] = {
  "family=mixtral,layers=2,hidden=16,ffn=8,heads=2,kv_heads=1,head_dim=8,vocab=32,max_seq=16,"
  "experts=4,topk=2",
  "family=qwen3_moe,layers=2,hidden=20,ffn=12,heads=3,kv_heads=1,head_dim=6,vocab=23,max_seq=16,"
  "experts=4,topk=3,expert_ffn=10,shared_ffn=3,dense_layers=1,router_score=sigmoid,"
  "router_scale=2.5,shared_gate=on",
  "family=mixtral,layers=1,hidden=24,ffn=8,heads=2,kv_heads=2,head_dim=8,vocab=40,max_seq=16,"
  "experts=40,topk=4,expert_ffn=8,pre_softmax=on",
  "family=qwen3_moe,layers=3,hidden=16,ffn=16,heads=2,kv_heads=1,head_dim=8,vocab=30,max_seq=16,"
  "experts=8,topk=1,expert_ffn=6,moe_every=2,gated=off,activation=gelu",
  "family=mixtral,layers=2,hidden=12,ffn=8,heads=2,kv_heads=1,head_dim=6,vocab=32,max_seq=16,"
  "experts=8,topk=2,router_score=sqrtsoftplus",
  "family=qwen3_moe,layers=2,hidden=16,ffn=8,heads=2,kv_heads=1,head_dim=8,vocab=32,max_seq=16,"
  "experts=40,topk=4,expert_ffn=8,router_score=sigmoid,router_bias=on,router_groups=4,"
  "router_group_topk=2",
  "family=deepseek_v2,layers=2,hidden=16,ffn=12,heads=4,q_lora=10,kv_lora=7,nope_dim=6,rope_dim=4,"
  "v_dim=5,vocab=26,max_seq=16,experts=8,topk=2,expert_ffn=6,shared_ffn=4,dense_layers=1,"
  "rope_scaling=yarn,rope_factor=4,rope_original=8,rope_mscale=0.7,rope_mscale_all=0.9",
  "family=gpt_oss,layers=2,hidden=20,ffn=12,heads=4,kv_heads=2,head_dim=6,vocab=23,max_seq=16,"
  "experts=4,topk=2,expert_ffn=12,window=5,glu_limit=0.004",
  "family=llama4_text,layers=3,hidden=20,ffn=12,heads=4,kv_heads=2,head_dim=6,vocab=23,max_seq=16,"
  "experts=4,expert_ffn=12,shared_ffn=4,moe_every=2,window=4,full_every=2,nope_every=2",
};

/* Ranks that each have all experts, ranks that share them (expert parallelism), and ranks that
 * split each. */
static const struct
{
  guint ranks;
  const char *fields;
} splits[] = {
  { 1, "ep=1" },
  { 2, "ep=1 strategy=optim_grads_params" },
  { 2, "ep=2 strategy=optim moe_imbalance=2" },
  /* Tokens are dropped by their place, as of nearly equal probabilities either may be the larger.
   */
  { 4, "ep=2 strategy=optim_grads_params moe_imbalance=2 moe_capacity=0.8 moe_drop=position" },
  { 2, "ep=2 strategy=optim_grads moe_capacity=0.8 moe_drop=position moe_pad_to_capacity=on" },
  { 2, "ep=1 strategy=optim moe_capacity=1 moe_drop=position moe_pad_to_capacity=on" },
  { 4, "ep=4 strategy=optim_grads moe_imbalance=4 precision_aware=on offload_optimizer=0.5" },
  { 2, "ep=1 etp=2 strategy=optim_grads_params" },
  { 4, "ep=2 etp=2 strategy=optim moe_imbalance=2" },
};

static const char *const formats[] = {
  "compute=fp32",
  "compute=bf16 main_grads=fp32 "
  "offload_modules=attn_norm+qkv_linear+core_attn+mlp_norm+expert_fc1+moe_act",
  "compute=fp32 recompute=full",
  "compute=bf16 grad_comm=bf16 mbs=2",
  "compute=bf16 router_dtype=fp32 recompute=selective recompute_modules=moe_act",
  "compute=fp32 grad_accum_fusion=on ag_group=on",
  "compute=bf16 grad_accum_fusion=on reduce_algo=a2a",
};

#define N_CASES (2 * G_N_ELEMENTS (models) * G_N_ELEMENTS (splits))

static ExecComm *
join (ExecComm *threads, GError **error)
{
  const ExecNcclOptions options
      = { .local_rank = threads->rank, .timeout_s = threads->timeout_s, .is_registered = TRUE };
  return exec_comm_nccl_open (threads, &options, error);
}

static void
case_init_experts (Case *c, guint model, guint split, gboolean is_nccl, const char *fields)
{
  g_autofree char *all = g_strdup_printf ("gbs=%u %s deterministic=on %s", 2 * splits[split].ranks,
                                          splits[split].fields, fields);
  case_open (c, models[model], splits[split].ranks);
  case_set_plan (c, all);
  fake_nccl_reset ();
  if (is_nccl)
    fake_cuda_set_machine (c->ranks, (guint64)1 << 30, 9, 0);
  c->job.join = is_nccl ? join : NULL;
  c->job.timeout_s = LONG_S;
}

START_TEST (experts_are_near_the_cpus)
{
  const guint model = (guint)_i % G_N_ELEMENTS (models),
              split = (guint)_i / G_N_ELEMENTS (models) % G_N_ELEMENTS (splits);
  const gboolean is_nccl = (guint)_i >= N_CASES / 2;
  const char *format = formats[(model + 3 * split + is_nccl) % G_N_ELEMENTS (formats)];
  g_autofree char *what = g_strdup_printf ("%s %s %s%s", models[model], splits[split].fields,
                                           format, is_nccl ? " over NCCL" : "");
  Case c;
  case_init_experts (&c, model, split, is_nccl, format);
  if (_i % 4 == 3)
    case_evaluates (&c);
  check_against_cpu (&c, what);
  if (strstr (format, "compute=fp32")) /* cuBLASLt has fp32 products of every shape */
    ck_assert_uint_eq (count_logged ("gemm_plain"), 0);
  case_clear (&c, what);
}
END_TEST

/* Experts in eight bits or four: rows of each are quantised by themselves, and cuBLASLt multiplies
 * whatever number of them there is. Blackwell reads matrices with one scale as they are, or
 * transposed. */
START_TEST (quantised_experts_are_near_the_cpus)
{
  static const struct
  {
    const char *fields, *sizes, *cluster;
    int major;
  } cases[] = {
    { "compute=fp8-tensorwise seq=32", "hidden=32,ffn=32,expert_ffn=16,head_dim=16", "h100-80gb",
      9 },
    { "compute=fp8-blockwise seq=128 grad_accum_fusion=on",
      "hidden=128,ffn=128,expert_ffn=128,head_dim=64", "h100-80gb", 9 },
    { "compute=mxfp8 seq=128 recompute=selective recompute_modules=moe_act",
      "hidden=128,ffn=128,expert_ffn=128,head_dim=64", "b200", 10 },
    { "compute=fp8-tensorwise seq=32 grad_accum_fusion=on",
      "hidden=32,ffn=32,expert_ffn=16,head_dim=16", "b200", 10 },
    { "compute=fp8-delayed seq=32", "hidden=32,ffn=32,expert_ffn=16,head_dim=16", "h100-80gb", 9 },
    { "compute=nvfp4 seq=128 mbs=1", "hidden=128,ffn=128,expert_ffn=128,head_dim=64", "b200", 10 },
  };
  static const char *const splits_of[]
      = { "ep=1 gbs=2 moe_capacity=0.8 moe_drop=position",
          "ep=2 gbs=4 strategy=optim_grads_params moe_imbalance=2",
          "ep=2 gbs=4 strategy=optim moe_capacity=0.8 moe_drop=position moe_pad_to_capacity=on" };
  const guint which = (guint)_i % 6, split = (guint)_i / 6;
  g_autofree char *model
      = g_strdup_printf ("family=qwen3_moe,layers=1,heads=2,kv_heads=1,vocab=32,max_seq=128,"
                         "experts=4,topk=2,%s",
                         cases[which].sizes);
  g_autofree char *fields
      = g_strconcat (cases[which].fields, " main_grads=fp32 router_dtype=bf16 deterministic=on ",
                     splits_of[split], NULL);
  Case c;
  case_open_on (&c, model, cases[which].cluster, split == 0 ? 1 : 2);
  case_set_plan (&c, fields);
  fake_cuda_set_machine (c.ranks, (guint64)1 << 30, cases[which].major, 0);
  check_against_cpu (&c, fields);
  case_check_bytes (&c, fields);
  ck_assert_uint_eq (count_logged ("gemm_plain"), 0);
  case_clear (&c, fields);
}
END_TEST

/* Weights of experts that are quantised before they are gathered, each expert's by itself: along
 * rows and along columns, or transposed where they are used, or once per step. On ranks that share
 * experts, behind a dense layer, whose buckets are its own; also beside biases of experts. */
START_TEST (gathered_experts_are_near_the_cpus)
{
  static const struct
  {
    const char *fields, *sizes, *cluster;
    int major;
  } cases[] = {
    { "compute=fp8-tensorwise param_gather=fp8 seq=32",
      "hidden=32,ffn=32,expert_ffn=16,head_dim=16", "h100-80gb", 9 },
    { "compute=fp8-delayed param_gather=fp8 keep_transpose=on seq=32",
      "hidden=32,ffn=32,expert_ffn=16,head_dim=16", "h100-80gb", 9 },
    { "compute=fp8-blockwise param_gather=fp8 seq=128",
      "hidden=128,ffn=128,expert_ffn=128,head_dim=64", "h100-80gb", 9 },
    { "compute=mxfp8 param_gather=mxfp8 seq=128", "hidden=128,ffn=128,expert_ffn=128,head_dim=64",
      "b200", 10 },
    { "compute=nvfp4 param_gather=nvfp4 seq=128", "hidden=128,ffn=128,expert_ffn=128,head_dim=64",
      "b200", 10 },
  };
  static const char *const splits_of[]
      = { "ep=1 gbs=4 strategy=optim_grads_params", "ep=2 gbs=4 strategy=optim moe_imbalance=2",
          "ep=1 gbs=4 strategy=optim_grads_params" };
  const guint which = (guint)_i % 5, split = (guint)_i / 5;
  g_autofree char *model
      = g_strdup_printf ("family=%s,layers=2,heads=2,kv_heads=1,vocab=32,max_seq=128,"
                         "experts=4,topk=2,dense_layers=1,%s",
                         split == 2 ? "gpt_oss,glu_limit=0.004" : "qwen3_moe", cases[which].sizes);
  g_autofree char *fields
      = g_strconcat (cases[which].fields, " main_grads=fp32 router_dtype=bf16 deterministic=on ",
                     splits_of[split], NULL);
  Case c;
  case_open_on (&c, model, cases[which].cluster, 2);
  case_set_plan (&c, fields);
  fake_cuda_set_machine (c.ranks, (guint64)1 << 30, cases[which].major, 0);
  check_against_cpu (&c, fields);
  case_check_bytes (&c, fields);
  /* cuBLASLt takes numbers of four bits along sums alone, and columns lie across them. */
  ck_assert ((count_logged ("gemm_plain") > 0) == (strstr (fields, "compute=nvfp4") != NULL));
  case_clear (&c, fields);
}
END_TEST

/* All matrices of a unit are quantised by one launch, however many experts there are. */
START_TEST (experts_share_launches)
{
  static const struct
  {
    const char *fields, *cluster;
    int major;
  } cases[] = { { "compute=fp8-tensorwise param_gather=fp8 seq=32", "h100-80gb", 9 },
                { "compute=mxfp8 param_gather=mxfp8 seq=32", "b200", 10 } };
  guint launches[2];
  for (guint i = 0; i < G_N_ELEMENTS (launches); i++)
    {
      g_autofree char *model
          = g_strdup_printf ("family=qwen3_moe,layers=1,heads=2,kv_heads=1,vocab=32,max_seq=32,"
                             "hidden=32,ffn=32,expert_ffn=32,head_dim=16,experts=%u,topk=2",
                             i == 0 ? 2 : 8);
      g_autofree char *fields
          = g_strconcat (cases[_i].fields, " router_dtype=bf16 strategy=optim_grads_params", NULL);
      Case c;
      case_open_on (&c, model, cases[_i].cluster, 1);
      case_set_plan (&c, fields);
      fake_cuda_set_machine (1, (guint64)1 << 30, cases[_i].major, 0);
      case_must_run (&c, fields);
      launches[i] = count_logged ("param_");
      case_clear (&c, fields);
    }
  ck_assert_uint_gt (launches[0], 0);
  ck_assert_uint_eq (launches[0], launches[1]);
}
END_TEST

/* Pipelines: each stage's experts lie on two ranks. */
START_TEST (experts_of_stages_are_near_the_cpus)
{
  const char *fields = "compute=fp32 pp=2 ep=2 strategy=optim moe_imbalance=2 gbs=8";
  Case c;
  case_init_experts (&c, 0, 3, _i == 1, fields);
  check_against_cpu (&c, fields);
  case_clear (&c, fields);
}
END_TEST

/* Tensor-parallel ranks send their own tokens to experts of four ranks, or split these, too; one
 * model has sinks, one latent attention. */
START_TEST (experts_beside_split_layers_are_near_the_cpus)
{
  const char *fields = _i == 2       ? "tp=2 sp=on ep=1 etp=2 compute=fp32"
                       : _i % 2 == 0 ? "tp=2 sp=on compute=fp32"
                                     : "tp=2 sp=on compute=bf16";
  const guint model = _i == 4 ? 6 : _i % 2 == 0 ? 2 : 7;
  Case c;
  case_init_experts (&c, model, 4, _i / 2 == 1, fields);
  check_against_cpu (&c, fields);
  case_check_bytes (&c, fields);
  case_clear (&c, fields);
}
END_TEST

START_TEST (bytes_taken_equal_bytes_predicted)
{
  Case c;
  case_init_experts (&c, (guint)(_i + 1) % G_N_ELEMENTS (models), (guint)_i, _i % 2 == 1,
                     formats[(guint)_i % G_N_ELEMENTS (formats)]);
  case_must_run (&c, splits[_i].fields);
  case_check_bytes (&c, splits[_i].fields);
  case_clear (&c, splits[_i].fields);
}
END_TEST

/* The largest number of rows that a rank sent to the experts of one rank is the CPU's, and rows
 * without room end the run with the same message as there. */
START_TEST (rows_without_room_end_a_run)
{
  const char *full = "compute=fp32 strategy=optim ep=2 moe_imbalance=2";
  ExecResult expected[MAX_RANKS] = { { 0 } };
  Case c;
  case_init_experts (&c, 0, 2, _i == 1, full);
  case_must_run (&c, full);
  run_on_cpu (&c, full, expected);
  ck_assert (c.results[0].imbalance > 1);
  ck_assert (c.results[0].imbalance == expected[0].imbalance);
  for (guint r = 0; r < c.ranks; r++)
    exec_result_clear (&expected[r]);
  case_clear (&c, full);
  case_init_experts (&c, 0, 2, _i == 1, "compute=fp32 moe_imbalance=1");
  assert_refused (&c, PLAN_ERROR_INFEASIBLE,
                  "rows go to the experts of one rank, and there is room for 8: --set "
                  "moe_imbalance=");
}
END_TEST

START_TEST (too_many_experts_are_refused)
{
  Case c;
  case_open (&c,
             "family=mixtral,layers=1,hidden=8,ffn=8,heads=2,kv_heads=1,head_dim=8,vocab=16,"
             "max_seq=16,experts=1025,topk=2,expert_ffn=2",
             1);
  case_set_plan (&c, "compute=fp32");
  assert_refused (&c, PLAN_ERROR_UNSUPPORTED,
                  "a router of 1025 experts is modelled and not executed by cuda yet: there may be "
                  "1024 at most");
}
END_TEST

/* --- planted mistakes ----------------------------------------------------------------------- */

static ExecDeviceOps planted_device;
static ExecKernels planted_kernels;
static PlanStream planted_stream;

static gboolean
wait_unless_planted (ExecDevice *self, guint32 event, PlanStream stream, GError **error)
{
  return stream == planted_stream || exec_device_cuda.wait (self, event, stream, error);
}

static void
plant_device (Case *c)
{
  planted_device = exec_device_cuda;
  planted_kernels = exec_kernels_cuda;
  planted_kernels.device = &planted_device;
  c->job.kernels = &planted_kernels;
}

/* Rows are sent once the compute stream has sorted them, and that stream waits until the others'
 * rows have come; a wait that is left out is found. */
START_TEST (a_missing_wait_is_found)
{
  static const PlanStream streams[] = { PLAN_STREAM_TENSOR, PLAN_STREAM_COMPUTE };
  Case c;
  g_autoptr (GError) error = NULL;
  case_init_experts (&c, 0, 2, _i % 2 == 1, "compute=fp32");
  plant_device (&c);
  planted_device.wait = wait_unless_planted;
  planted_stream = streams[_i / 2];
  case_run (&c, &error);
  ck_assert_msg (*fake_cuda_error () != '\0', "%s without its waits is not found",
                 plan_stream_name (planted_stream));
  case_free (&c);
}
END_TEST

static ExecCommOps planted_comm;
static const ExecCommOps *real_comm;
static enum {
  NONE,
  SKIPS,                   /* the rank skips an exchange */
  FAILS,                   /* the rank fails in an exchange */
  OTHER_ORDER,             /* the rows that came are in another order of ranks */
  STALE                    /* the weights of experts are stale from the second step on */
} mistake;                 /* of rank 1 */
static guint calls;        /* only the thread of rank 1 uses it */
static gint gathers;       /* gathers of all ranks that make the mistake */
static __thread guint own; /* gathers of this rank */
static guint last_right;   /* how many of these gathers come before weights are stale */
static void *elsewhere;

static ExecComm *
plant_comm (ExecComm *self)
{
  if (self)
    self->ops = &planted_comm;
  return self;
}

static gboolean
exchange_unless_planted (ExecComm *self, void *out, const void *in, guint64 count, PlanDtype dtype,
                         void *stream, GError **error)
{
  const gsize bytes = plan_dtype_bytes (dtype, count);
  guint8 *at = out;
  if (self->rank == 0 || !stream || dtype == PLAN_DTYPE_I32 || mistake == STALE || calls++ > 0)
    return real_comm->all_to_all (self, out, in, count, dtype, stream, error);
  if (mistake == SKIPS)
    return TRUE;
  if (mistake == FAILS)
    g_set_error_literal (error, PLAN_ERROR, PLAN_ERROR_BACKEND, "planted");
  if (mistake == FAILS || !real_comm->all_to_all (self, out, in, count, dtype, stream, error))
    return FALSE;
  if (mistake == OTHER_ORDER)
    {
      cudaMemcpyAsync (elsewhere, at, bytes, cudaMemcpyDeviceToDevice, stream);
      cudaMemcpyAsync (at, at + bytes, bytes, cudaMemcpyDeviceToDevice, stream);
      cudaMemcpyAsync (at + bytes, elsewhere, bytes, cudaMemcpyDeviceToDevice, stream);
    }
  return TRUE;
}

/* Makes the planted mistake. Gathers of experts are told by their two ranks: all other gathers have
 * four. */
static gboolean
gather_unless_planted (ExecComm *self, void *out, const void *in, guint64 count, PlanDtype dtype,
                       void *stream, GError **error)
{
  const gboolean is_of_experts = self->ranks == 2 && self->rank == 1 && stream;
  const gboolean is_stale = is_of_experts && mistake == STALE && own++ >= last_right;
  g_atomic_int_add (&gathers, is_of_experts);
  return real_comm->all_gather (self, is_stale ? elsewhere : out, in, count, dtype, stream, error);
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

static void
plant_ops (const ExecCommOps *real)
{
  real_comm = real;
  planted_comm = *real_comm;
  planted_comm.all_to_all = exchange_unless_planted;
  planted_comm.all_gather = gather_unless_planted;
  planted_comm.group = group_and_plant;
}

static gboolean
open_and_plant (guint ranks, ExecComm **out_comms, GError **error)
{
  if (!exec_comm_cuda_open (ranks, out_comms, error))
    return FALSE;
  plant_ops (out_comms[0]->ops);
  for (guint i = 0; i < ranks; i++)
    plant_comm (out_comms[i]);
  return TRUE;
}

/* Runs with a mistake of rank 1. Another order of rows and stale weights are seen only in the
 * numbers. */
static gboolean
run_with (Case *c, guint split, guint which, gboolean is_nccl, GError **error)
{
  mistake = which;
  calls = 0;
  gathers = 0;
  case_init_experts (c, 0, split, is_nccl, "compute=fp32 strategy=optim");
  plant_device (c);
  planted_device.open_comms = open_and_plant;
  plant_ops (&exec_comm_nccl_ops);
  c->job.join = is_nccl ? join_and_plant : NULL;
  c->job.steps = 3;
  c->job.constants.adam_eps = 1e-8; /* so that small gradients move weights, too */
  ck_assert_int_eq (cudaSetDevice (is_nccl ? 1 : 0), cudaSuccess);
  ck_assert_int_eq (cudaMalloc (&elsewhere, 1 << 20), cudaSuccess);
  return case_run (c, error);
}

START_TEST (a_mistake_of_one_rank_is_found)
{
  static const char *const messages[2][3]
      = { { NULL, "do not call the same collective: ", "planted" },
          { NULL, "rank 1 calls ", "planted" } };
  const gboolean is_nccl = _i % 2 == 1;
  const guint which = SKIPS + (guint)_i / 2, split = which == STALE ? 3 : 2;
  Case c, right;
  g_autoptr (GError) error = NULL;
  if (which <= FAILS)
    {
      ck_assert (!run_with (&c, split, which, is_nccl, &error));
      ck_assert_msg (strstr (error->message, messages[is_nccl][which]) != NULL, "%s",
                     error->message);
      case_free (&c);
      return;
    }
  ck_assert (run_with (&right, split, NONE, is_nccl, &error));
  last_right = (guint)gathers / 3; /* two ranks', in three steps: all of two steps */
  ck_assert_msg (run_with (&c, split, which, is_nccl, &error), "%s", error ? error->message : "");
  ck_assert (which != STALE || last_right > 0);
  const double off = weights_distance (&c, &c.results[0], &right.results[0]);
  /* assert_near allows 4e-4; a mistake leads further. */
  ck_assert_msg (off > 1e-3, "mistake %u: weights are %g steps off", which, off);
  case_free (&right);
  case_free (&c);
}
END_TEST

/* Whichever call fails, the run ends with an error and no other rank waits. */
START_TEST (any_call_may_fail)
{
  guint failed = 0;
  for (guint call = 1 + (guint)_i; call < 1500; call += 401)
    {
      Case c;
      g_autoptr (GError) error = NULL;
      case_init_experts (&c, 0, 2, _i == 1, "compute=bf16");
      fake_cuda_fail_at (call, cudaErrorNotSupported);
      failed += !case_run (&c, &error);
      ck_assert_msg (!error || *error->message != '\0', "call %u", call);
      case_free (&c);
    }
  ck_assert_uint_gt (failed, 1);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("cuda-experts");
  TCase *tcase = tcase_create ("experts"), *launches = tcase_create ("launches");
  tcase_set_timeout (tcase, 120);
  test_add_run_share (tcase, experts_are_near_the_cpus, N_CASES);
  test_add_runs (tcase, quantised_experts_are_near_the_cpus, 18);
  test_add_runs (tcase, gathered_experts_are_near_the_cpus, 15);
  tcase_add_loop_test (tcase, experts_of_stages_are_near_the_cpus, 0, 2);
  test_add_runs (tcase, experts_beside_split_layers_are_near_the_cpus, 5);
  test_add_run_share (tcase, bytes_taken_equal_bytes_predicted, G_N_ELEMENTS (splits));
  tcase_add_loop_test (tcase, rows_without_room_end_a_run, 0, 2);
  tcase_add_test (tcase, too_many_experts_are_refused);
  test_add_runs (tcase, a_missing_wait_is_found, 4);
  test_add_runs (tcase, a_mistake_of_one_rank_is_found, 8);
  tcase_add_loop_test (tcase, any_call_may_fail, 0, 2);
  tcase_add_loop_test (launches, experts_share_launches, 0, 2);
  suite_add_tcase (suite, launches);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
