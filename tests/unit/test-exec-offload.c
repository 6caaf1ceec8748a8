/* SPDX-License-Identifier: Apache-2.0 */
/* A share of the optimizer on the host: the same bits as without, whatever the share, also from
 * checkpoints of runs with another one. */
#include "config.h"

#include "exec/probe/probe.h"
#include "exec/walk/exec.h"
#include "planner/base/error.h"
#include "tests/case.h"
#include "tests/prop/shards.h"
#include "tests/reference/evaluate.h"
#include "tests/share.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RANKS 4
#define STEPS 4

#define LLAMA \
  "family=llama,layers=4,hidden=10,ffn=7,heads=2,kv_heads=1,head_dim=6,vocab=23,max_seq=16"
#define SPLIT \
  "family=qwen3,layers=2,hidden=20,ffn=24,heads=4,kv_heads=2,head_dim=6,vocab=50,max_seq=16,tied=" \
  "on"
#define BLOCKS \
  "family=llama,layers=2,hidden=32,ffn=64,heads=2,kv_heads=2,head_dim=16,vocab=33,max_seq=32"
#define EXPERTS \
  "family=qwen3_moe,layers=4,hidden=10,ffn=8,heads=2,kv_heads=2,head_dim=6,vocab=23,max_seq=16," \
  "experts=4,topk=3,expert_ffn=3,shared_ffn=8,shared_gate=on,dense_layers=1,router_bias=on"
#define LATENT \
  "family=deepseek_v3,layers=4,hidden=10,ffn=8,heads=4,q_lora=6,kv_lora=5,nope_dim=4,rope_dim=2," \
  "v_dim=3,vocab=23,max_seq=16,experts=4,topk=3,expert_ffn=3,shared_ffn=8,dense_layers=1," \
  "router_score=sigmoid,router_scale=2.5,router_bias=on,router_groups=2,router_group_topk=2,mtp=0"

/* Every way to shard, every format of state, ranks that split layers, sequences, models or experts,
 * and weights that are quantised before they are gathered. */
static const struct
{
  const char *model, *words;
} cases[] = {
  { LLAMA, "strategy=no_shard" },
  { LLAMA, "strategy=optim compute=bf16 main_params=bf16" },
  { LLAMA, "strategy=optim_grads compute=bf16 main_grads=bf16 grad_comm=bf16" },
  { LLAMA, "strategy=optim_grads_params compute=bf16 main_params=auto main_grads=bf16" },
  { LLAMA, "strategy=optim_grads_params compute=fp16 exp_avg=bf16 exp_avg_sq=fp16" },
  { LLAMA, "strategy=optim_grads_params dp_outer=2 outer_strategy=optim exp_avg=fp16" },
  { LLAMA, "strategy=optim_grads_params dp_outer=2 reduce_algo=a2a double_buffer=on" },
  { LLAMA, "strategy=optim_grads_params offload_layers=3 comm_unit=500" },
  { LLAMA, "strategy=optim pp=2 vpp=2 main_params=fp16" },
  { LLAMA, "strategy=optim_grads_params pp=2" },
  { SPLIT, "strategy=optim pp=2 compute=bf16" },
  { SPLIT, "strategy=optim_grads_params tp=2 sp=on" },
  { SPLIT, "strategy=optim_grads cp=2 compute=bf16 main_params=auto" },
  { BLOCKS, "strategy=optim_grads_params seq=32 compute=mxfp8 param_gather=mxfp8" },
  { BLOCKS, "strategy=optim_grads_params seq=32 compute=nvfp4 param_gather=nvfp4" },
  { BLOCKS, "strategy=optim_grads seq=32 compute=fp8-delayed param_gather=fp8" },
  { EXPERTS, "strategy=optim_grads_params ep=2 moe_imbalance=2" },
  { EXPERTS, "strategy=no_shard ep=4 moe_imbalance=4 compute=bf16 main_params=bf16" },
  { LATENT, "strategy=optim_grads_params ep=2 pp=2 moe_imbalance=2" },
};

#define NARROW 4 /* the case with moments in bf16 and fp16 */

typedef struct
{
  PlanModel *model;
  PlanCluster *cluster;
  PlanCase *of, *eval_of;
  ExecJob job;
} Case;

static void
case_init (Case *c, guint number, const char *share)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *words
      = g_strconcat ("stack=native compute=fp32 gbs=8 seq=16 mbs=1 precision_aware=on ",
                     cases[number].words, " offload_optimizer=", share, NULL);
  c->model = plan_model_new (cases[number].model, &error);
  ck_assert_msg (c->model != NULL, "%s", error ? error->message : "");
  c->cluster = exec_probe_processors (RANKS, &error);
  c->of = test_case (c->model, c->cluster, words);
  Plan plan = c->of->plan;
  plan.value[PLAN_TASK] = PLAN_TASK_EVAL;
  c->eval_of = test_case_of (c->model, c->cluster, &plan);
  c->job = (ExecJob){ .of = c->of,
                      .eval_of = c->eval_of,
                      .eval_every = 2,
                      .eval_batches = 1,
                      .kernels = &exec_kernels_cpu,
                      .seed = 5,
                      .steps = STEPS,
                      .constants = { .norm_eps = 1e-5,
                                     .rope = c->model->rope,
                                     .router_score = c->model->router_score,
                                     .pre_softmax = c->model->pre_softmax,
                                     .router_scale = c->model->router_scale,
                                     .bias_rate = 0.05,
                                     .lr = 1e-2,
                                     .beta1 = 0.9,
                                     .beta2 = 0.95,
                                     .adam_eps = 1e-8,
                                     .weight_decay = 0.1,
                                     .decays_all = number % 3 == 2,
                                     .max_norm = 1 } };
}

static void
case_clear (Case *c)
{
  plan_case_free (c->of);
  plan_case_free (c->eval_of);
  plan_model_free (c->model);
  plan_cluster_free (c->cluster);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Case, case_clear)

typedef struct
{
  ExecResult of[RANKS];
} Results;

static void
results_clear (Results *self)
{
  for (guint r = 0; r < RANKS; r++)
    exec_result_clear (&self->of[r]);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Results, results_clear)

static void
run (const Case *c, Results *results)
{
  g_autoptr (GError) error = NULL;
  ck_assert_msg (exec_run_threads (&c->job, RANKS, TRUE, NULL, NULL, results->of, &error), "%s",
                 error ? error->message : "");
}

/* The figures of a run are those of another one from step `first` on, and so are the weights in the
 * end. */
static void
assert_same (const Case *c, const char *what, const Results *found, const Results *expected,
             gint64 first)
{
  const gsize bytes = (gsize)c->job.steps * sizeof (double);
  for (guint r = 0; r < RANKS; r++)
    {
      const ExecResult *a = &found->of[r], *b = &expected->of[r];
      ck_assert_msg (memcmp (a->losses, b->losses + first, bytes) == 0,
                     "%s: rank %u has loss %.9g, not %.9g", what, r, a->losses[0],
                     b->losses[first]);
      ck_assert_msg (memcmp (a->grad_norms, b->grad_norms + first, bytes) == 0,
                     "%s: rank %u has norm %.9g, not %.9g", what, r, a->grad_norms[0],
                     b->grad_norms[first]);
      ck_assert_msg (memcmp (a->eval_losses, b->eval_losses + first, bytes) == 0,
                     "%s: rank %u has another evaluation loss", what, r);
      ck_assert_uint_eq (a->main_params->len, b->main_params->len);
      ck_assert_msg (memcmp (a->main_params->data, b->main_params->data, a->main_params->len) == 0,
                     "%s: the weights of rank %u differ", what, r);
    }
}

/* What a checkpoint has of one state of a parameter: NULL, it does not have it. */
static float *
saved_state (const ExecCheckpoint *checkpoint, const PlanModel *model, ExecState state,
             PlanTensorRole role, gint64 layer, guint64 *out_count)
{
  const PlanTensor tensor = plan_model_tensor (model, role, model->vocab);
  *out_count = tensor.rows * tensor.cols;
  float *values = g_new0 (float, *out_count);
  if (exec_checkpoint_read (checkpoint, state, role, layer, 0, *out_count, values, NULL))
    return values;
  g_free (values);
  return NULL;
}

/* Both checkpoints have the same weights and moments. Returns how many states were compared. */
static guint
compare_checkpoints (const char *a, const char *b, const PlanModel *model)
{
  g_autoptr (ExecCheckpoint) first = exec_checkpoint_open (a, model, NULL);
  g_autoptr (ExecCheckpoint) second = exec_checkpoint_open (b, model, NULL);
  guint n = 0;
  ck_assert (first && second);
  for (ExecState state = EXEC_STATE_MAIN; state <= EXEC_STATE_EXP_AVG_SQ; state++)
    for (PlanTensorRole role = 0; role < PLAN_N_TENSORS; role++)
      for (gint64 layer = 0; layer < model->layers; layer++)
        {
          guint64 count;
          g_autofree float *x = saved_state (first, model, state, role, layer, &count);
          g_autofree float *y = saved_state (second, model, state, role, layer, &count);
          ck_assert ((x != NULL) == (y != NULL));
          if (!x || count == 0)
            continue;
          ck_assert_msg (memcmp (x, y, count * sizeof *x) == 0,
                         "state %u of %s of layer %d differs", (guint)state,
                         plan_model_tensor (model, role, model->vocab).name, (int)layer);
          n++;
        }
  return n;
}

static void
remove_folder (const char *folder)
{
  g_autofree char *command = g_strdup_printf ("rm -r '%s'", folder);
  ck_assert_int_eq (system (command), 0);
}

/* Runs the first two steps with one share and the rest with another, from the checkpoint between
 * them. */
static void
run_halves (guint number, const char *const shares[2], const Results *whole, const char *folder)
{
  g_autofree char *between = g_strconcat (folder, "/between", NULL);
  g_autofree char *end = g_strconcat (folder, "/end", NULL);
  g_autofree char *what
      = g_strdup_printf ("%s, shares %s and %s", cases[number].words, shares[0], shares[1]);
  g_autoptr (GError) error = NULL;
  g_auto (Case) a = { 0 }, b = { 0 };
  g_auto (Results) first = { 0 }, second = { 0 };
  case_init (&a, number, shares[0]);
  a.job.steps = 2;
  a.job.save = between;
  a.job.saves_behind = number % 2;
  run (&a, &first);
  g_autoptr (ExecCheckpoint) checkpoint = exec_checkpoint_open (between, a.model, &error);
  ck_assert_msg (checkpoint != NULL, "%s", error ? error->message : "");
  case_init (&b, number, shares[1]);
  b.job.steps = STEPS - 2;
  b.job.resume = checkpoint;
  b.job.first_step = exec_checkpoint_step (checkpoint);
  b.job.first_token = exec_checkpoint_tokens (checkpoint);
  b.job.save = end;
  run (&b, &second);
  assert_same (&b, what, &second, whole, 2);
}

/* No share of the optimizer changes a loss, a norm, a weight or a moment; checkpoints carry over
 * between shares. */
START_TEST (shares_change_no_bit)
{
  static const char *const shares[][2] = { { "0", "0.37" }, { "0.5", "1" }, { "1", "0.000001" } };
  g_autofree char *folder = g_dir_make_tmp ("test-exec-offload-XXXXXX", NULL);
  g_autofree char *plain = g_strconcat (folder, "/plain", NULL);
  g_auto (Case) c = { 0 };
  g_auto (Results) whole = { 0 };
  case_init (&c, (guint)_i, "0");
  c.job.save = plain;
  run (&c, &whole);
  ck_assert_uint_eq (whole.of[0].trace->memory.host == 0,
                     c.of->plan.value[PLAN_OFFLOAD_LAYERS] == 0);
  for (guint i = 0; i < G_N_ELEMENTS (shares); i++)
    {
      g_autofree char *of_shares = g_strdup_printf ("%s/%u", folder, i);
      g_autofree char *end = g_strconcat (of_shares, "/end", NULL);
      ck_assert_int_eq (g_mkdir_with_parents (of_shares, 0700), 0);
      run_halves ((guint)_i, shares[i], &whole, of_shares);
      ck_assert_uint_gt (compare_checkpoints (plain, end, c.model), 3 * 8);
    }
  remove_folder (folder);
}
END_TEST

/* The evaluator, which knows no host, computes the same. */
START_TEST (the_evaluator_agrees)
{
  g_autoptr (GError) error = NULL;
  g_auto (Case) c = { 0 };
  g_auto (Results) results = { 0 };
  g_auto (ExecResult) expected = { 0 };
  case_init (&c, (guint)_i, "0.41");
  run (&c, &results);
  ck_assert_msg (exec_evaluate (&c.job, RANKS, &expected, &error), "%s",
                 error ? error->message : "");
  for (guint r = 0; r < RANKS; r++)
    {
      const gsize bytes = STEPS * sizeof (double);
      ck_assert_mem_eq (results.of[r].losses, expected.losses, bytes);
      ck_assert_mem_eq (results.of[r].grad_norms, expected.grad_norms, bytes);
      ck_assert_mem_eq (results.of[r].eval_losses, expected.eval_losses, bytes);
      ck_assert (shards_equal (&c.job, RANKS, r, &results.of[r], &expected));
    }
}
END_TEST

static gint clips; /* calls so far */

static void
clip_with_nan (const ExecArgs *args)
{
  exec_kernels_cpu.run[PLAN_OP_CLIP](args);
  const gint step = g_atomic_int_add (&clips, 1) / RANKS;
  if (step == 1)
    for (guint i = 0; i < 2; i++)
      ((float *)args->ptr[PLAN_REF_CLIP_coef])[i] = NAN;
}

/* A step that is not sound leaves weights and moments as they were on the host, too. */
START_TEST (an_unsound_step_changes_nothing)
{
  static const char *const shares[] = { "0", "0.6", "1" };
  g_auto (Results) plain = { 0 };
  ExecKernels kernels = exec_kernels_cpu;
  kernels.run[PLAN_OP_CLIP] = clip_with_nan;
  for (guint i = 0; i < G_N_ELEMENTS (shares); i++)
    {
      g_auto (Case) c = { 0 };
      g_auto (Results) results = { 0 };
      case_init (&c, (guint)_i, shares[i]);
      c.job.kernels = &kernels;
      c.job.skip_nonfinite = 1;
      clips = 0;
      run (&c, i == 0 ? &plain : &results);
      if (i == 0)
        ck_assert (isnan (plain.of[0].grad_norms[1]) && isfinite (plain.of[0].grad_norms[2]));
      else
        assert_same (&c, shares[i], &results, &plain, 0);
    }
}
END_TEST

/* Bytes of all units' parts on one rank, at so many bytes for each element, in places of whole
 * granules of the arena. */
static guint64
bytes_of (const Case *c, guint64 each)
{
  guint64 bytes = 0;
  for (PlanBucketKind kind = 0; kind < PLAN_N_BUCKETS; kind++)
    {
      const PlanBucket *bucket = &c->of->layout.buckets[kind];
      bytes += (guint64)bucket->length * ((bucket->padded / RANKS * each + 63) / 64 * 64);
    }
  return bytes;
}

/* The moments leave the device. The host has them, the weights and gradients in the formats of the
 * device, and the factors that scale gradients. */
START_TEST (bytes_move_to_the_host)
{
  static const char *const shares[] = { "0", "1" };
  for (guint i = 0; i < G_N_ELEMENTS (shares); i++)
    {
      g_auto (Case) c = { 0 };
      g_auto (Results) results = { 0 };
      case_init (&c, NARROW, shares[i]);
      test_case_set (&c.of, "main_params=fp32 main_grads=fp32");
      c.job.of = c.of;
      run (&c, &results);
      const PlanMemory *memory = &results.of[0].trace->memory;
      const guint64 moments = 2 * bytes_of (&c, 2);
      ck_assert_uint_gt (moments, 0);
      ck_assert_uint_eq (memory->resting[PLAN_CATEGORY_OPTIMIZER], i == 0 ? moments : 0);
      ck_assert_uint_eq (memory->resting[PLAN_CATEGORY_MAIN_PARAMS], bytes_of (&c, 4));
      ck_assert_uint_eq (memory->host, i == 0 ? 0 : moments + 2 * bytes_of (&c, 4) + 64);
    }
}
END_TEST

/* Moments in eight bits have a scale for each part of a parameter, which a share would cut. */
START_TEST (moments_with_scales_are_refused)
{
  g_auto (Case) c = { 0 };
  Results results = { 0 };
  g_autoptr (GError) error = NULL;
  case_init (&c, 0, "0.5");
  test_case_set (&c.of, "exp_avg_sq=fp8");
  c.job.of = c.of;
  ck_assert (!exec_run_threads (&c.job, RANKS, FALSE, NULL, NULL, results.of, &error));
  ck_assert_str_eq (error->message,
                    "exp_avg_sq=fp8 beside offload_optimizer above 0 is modelled and "
                    "not executed yet: it must be fp32, bf16 or fp16");
  ck_assert_int_eq (error->code, PLAN_ERROR_UNSUPPORTED);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("exec-offload");
  TCase *tcase = tcase_create ("exec-offload");
  tcase_set_timeout (tcase, 600);
  test_add_share (tcase, shares_change_no_bit, G_N_ELEMENTS (cases));
  test_add_share (tcase, the_evaluator_agrees, G_N_ELEMENTS (cases));
  tcase_add_loop_test (tcase, an_unsound_step_changes_nothing, 0, 2);
  tcase_add_test (tcase, bytes_move_to_the_host);
  tcase_add_test (tcase, moments_with_scales_are_refused);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
