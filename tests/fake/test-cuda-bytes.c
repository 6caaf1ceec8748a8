/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes: what the kernels of an op move on the fake device is what the cost model says that it
 * moves, for every op of a step but products and attention, whose time does not follow from them.
 */
#include "config.h"

#include "sim/cost/cost-private.h"
#include "tests/case.h"
#include "tests/fake/cuda-case.h"
#include "tests/fake/cuda-fake.h"
#include "tests/share.h"

#include <stdlib.h>

/* Bytes that a kernel may move beside those of its matrices, which are all that the model counts:
 * statistics of rows, weights, limbs of exact sums, coefficients. */
#define SHARE_BESIDE 0.04
#define BYTES_BESIDE 1024.0

static const struct
{
  const char *model, *fields, *gpu;
} cases[] = {
  { "family=llama,layers=2,hidden=128,ffn=192,heads=4,kv_heads=2,head_dim=32,vocab=512,max_seq=64",
    "compute=bf16 deterministic=on offload_layers=1", "h100-80gb" },
  { "family=llama,layers=2,hidden=128,ffn=192,heads=4,kv_heads=2,head_dim=32,vocab=512,max_seq=64",
    "compute=fp32", "h100-80gb" },
  { "family=gpt2,layers=2,hidden=128,ffn=192,heads=4,vocab=512,max_seq=64", "compute=bf16",
    "h100-80gb" },
  { "family=qwen3,layers=2,hidden=128,ffn=192,heads=4,kv_heads=2,head_dim=32,vocab=512,max_seq=64",
    "compute=bf16 main_grads=bf16 grad_comm=bf16", "h100-80gb" },
  { "family=llama,layers=2,hidden=128,ffn=192,heads=4,kv_heads=2,head_dim=32,vocab=512,max_seq=64",
    "compute=fp8-tensorwise deterministic=on", "h100-80gb" },
  { "family=llama,layers=2,hidden=128,ffn=192,heads=4,kv_heads=2,head_dim=32,vocab=512,max_seq=64",
    "compute=fp8-delayed deterministic=on", "h100-80gb" },
  { "family=llama,layers=1,hidden=128,ffn=256,heads=4,kv_heads=2,head_dim=32,vocab=2048,max_seq="
    "128",
    "compute=fp8-blockwise deterministic=on", "h100-80gb" },
  { "family=llama,layers=1,hidden=128,ffn=256,heads=4,kv_heads=2,head_dim=32,vocab=512,max_seq=64",
    "compute=mxfp8 deterministic=on", "b200" },
  { "family=llama,layers=1,hidden=128,ffn=256,heads=4,kv_heads=2,head_dim=32,vocab=512,max_seq=64",
    "compute=nvfp4 deterministic=on", "b200" },
};

static struct
{
  const ExecKernels *kernels;
  SimCostInput input;
  guint calls[PLAN_N_OPS];
  double moved[PLAN_N_OPS], said[PLAN_N_OPS];
} count;

static int
launch (const ExecArgs *args, void *stream)
{
  const PlanOpKind kind = args->op->kind;
  const guint64 before = fake_cuda_moved ();
  const int code = count.kernels->launch[kind](args, stream);
  count.moved[kind] += (double)(fake_cuda_moved () - before);
  count.said[kind] += sim_cost_traffic (&count.input, args->op);
  count.calls[kind]++;
  return code;
}

static ExecKernels
counting (const ExecKernels *kernels)
{
  ExecKernels self = *kernels;
  count.kernels = kernels;
  for (PlanOpKind kind = 0; kind < PLAN_N_OPS; kind++)
    if (kernels->launch[kind])
      self.launch[kind] = launch;
  return self;
}

static gboolean
is_bound_by_bytes (PlanOpKind kind)
{
  return kind != PLAN_OP_GEMM && kind != PLAN_OP_GEMM_ADD && kind != PLAN_OP_ATTENTION
         && kind != PLAN_OP_ATTENTION_BWD;
}

START_TEST (kernels_move_what_the_model_says)
{
  Case c;
  case_open_on (&c, cases[_i].model, cases[_i].gpu, 1);
  fake_cuda_set_machine (1, (guint64)1 << 30, g_str_equal (cases[_i].gpu, "b200") ? 10 : 9, 0);
  case_set_plan (&c, cases[_i].fields);
  g_autofree char *whole = g_strdup_printf ("seq=%d", (int)c.model->max_seq);
  case_change (&c, whole);
  ExecKernels kernels = counting (&exec_kernels_cuda);
  c.job.kernels = &kernels;
  g_autoptr (PlanSchedule) schedule = test_lower (c.of, 0);
  count.input = sim_cost_input (c.of, schedule);
  case_must_run (&c, cases[_i].fields);
  for (PlanOpKind kind = 0; kind < PLAN_N_OPS; kind++)
    if (count.calls[kind] > 0 && is_bound_by_bytes (kind))
      {
        const double beside = SHARE_BESIDE * count.said[kind] + BYTES_BESIDE * count.calls[kind];
        const double apart = count.moved[kind] - count.said[kind];
        ck_assert_msg (apart < beside && -apart < beside, "%s: %s: moves %.0f bytes, and not %.0f",
                       cases[_i].fields, plan_op_name (kind), count.moved[kind], count.said[kind]);
      }
  case_clear (&c, cases[_i].fields);
}
END_TEST

int
main (void)
{
  g_autofree char *store = g_dir_make_tmp ("test-cuda-bytes-XXXXXX", NULL);
  g_setenv ("XDG_DATA_HOME", store, TRUE);
  Suite *suite = suite_create ("cuda-bytes");
  TCase *tcase = tcase_create ("bytes");
  tcase_set_timeout (tcase, 120);
  test_add_runs (tcase, kernels_move_what_the_model_says, G_N_ELEMENTS (cases));
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
