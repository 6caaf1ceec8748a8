/* SPDX-License-Identifier: Apache-2.0 */
/* Memory under other stacks: between steps, by closed formulas; and runs that others measured. */
#include "config.h"

#include "planner/base/units.h"
#include "planner/search/bound.h"
#include "sim/fast/measure.h"
#include "sim/sim.h"
#include "tests/case.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>

static PlanMemory
memory_of (const char *model_spec, const char *cluster_spec, const char *words, guint64 *out_fixed,
           guint64 *out_parameters)
{
  g_autoptr (GError) error = NULL;
  g_auto (TestCase) c = { 0 };
  test_case_init (&c, model_spec, cluster_spec, words);
  const SimCostInput input = sim_cost_input (c.of, c.schedule);
  g_autoptr (SimCost) cost = sim_cost_new (&input, &error);
  g_autoptr (PlanTrace) trace = sim_run (c.schedule, cost, c.of->stack, &error);
  ck_assert_msg (trace != NULL, "%s", error ? error->message : "");
  const guint64 least = plan_bound_memory (c.of);
  ck_assert_msg (least <= trace->memory.device, "%s: at least %.1f MiB, yet %.1f", words,
                 (double)least / PLAN_MIB, (double)trace->memory.device / PLAN_MIB);
  *out_fixed = c.of->stack->memory.fixed_bytes;
  *out_parameters = plan_model_parameters (c.model);
  return trace->memory;
}

/* Bytes per parameter of one rank between steps, on 8 devices. The first term is whole on every
 * rank of the data-parallel group, the second is sharded. */
static const struct
{
  const char *what, *words;
  double whole, cut;
  gint64 tp;
} rests[] = {
  /* Weights 2, fp32 gradients 4, fp32 weights and two moments 12. */
  { "DDP", "stack=megatron strategy=no_shard", 18, 0, 1 },
  { "distributed optimizer", "stack=megatron strategy=optim", 6, 12, 1 },
  { "the same with tp=2", "stack=megatron strategy=optim tp=2", 6, 12, 2 },
  /* An fp16 gradient buffer, and fp32 copies of the gradients of the rank's part. */
  { "fp16", "stack=megatron strategy=optim compute=fp16 main_grads=fp16 grad_comm=fp16", 4, 16, 1 },
  /* fp32 weights and moments, and the gradients until the next step. */
  { "fully_shard", "stack=fsdp2", 0, 16, 1 },
  { "fully_shard, not resharded", "stack=fsdp2 strategy=optim_grads", 0, 16, 1 },
  { "flat parameters", "stack=fsdp1", 0, 16, 1 },
  /* Weights 2, gradients in bf16 2 and in fp32 4, weights and moments in fp32 12. */
  { "ZeRO-0", "stack=nanotron strategy=no_shard", 20, 0, 1 },
  /* Without DDP there are no bf16 gradients of its own then. */
  { "ZeRO-1", "stack=nanotron strategy=optim", 6, 12, 1 },
  { "ZeRO-0 with tp=4", "stack=nanotron strategy=no_shard tp=4", 20, 0, 4 },
};

START_TEST (rests_as_the_closed_form_says)
{
  guint64 fixed;
  guint64 parameters;
  g_autofree char *words = g_strconcat ("gbs=8 seq=2048 ", rests[_i].words, NULL);
  const PlanMemory m = memory_of ("llama3-8b", "dgx-h100:1", words, &fixed, &parameters);
  const double share = (double)parameters / (double)rests[_i].tp;
  const double data_parallel = 8.0 / (double)rests[_i].tp;
  const double bytes = share * (rests[_i].whole + rests[_i].cut / data_parallel);
  /* Every rank of a tensor-parallel group has the norms; vocabulary and shards are padded. */
  const double found = (double)(m.allocated - fixed - m.resting[PLAN_CATEGORY_ACTIVATIONS]
                                - m.resting[PLAN_CATEGORY_WORKSPACE]);
  ck_assert_msg (fabs (found / bytes - 1) < 0.001, "%s: %.0f bytes, not %.0f", rests[_i].what,
                 found, bytes);
}
END_TEST

/* Sequences are gathered into two buffers of tokens x hidden that stay. */
START_TEST (nanotron_keeps_gathered_sequences)
{
  guint64 fixed;
  guint64 parameters;
  const PlanMemory m
      = memory_of ("llama3-8b", "dgx-h100:1",
                   "gbs=8 seq=2048 mbs=2 stack=nanotron strategy=optim tp=4", &fixed, &parameters);
  ck_assert_uint_eq (m.resting[PLAN_CATEGORY_ACTIVATIONS],
                     G_GUINT64_CONSTANT (2) * 2 * 2048 * 4096 * 2);
}
END_TEST

/* With one device nothing is kept for a reduction. */
START_TEST (nanotron_alone_keeps_eighteen_bytes)
{
  guint64 fixed;
  guint64 parameters;
  const PlanMemory m = memory_of (
      "layers=16,hidden=2048,ffn=8192,heads=32,kv_heads=8,vocab=128256,max_seq=8192,tied=on",
      "h100-80gb:1", "gbs=1 seq=1024 stack=nanotron strategy=no_shard", &fixed, &parameters);
  const guint64 work = m.resting[PLAN_CATEGORY_WORKSPACE];
  ck_assert_double_eq_tol ((double)(m.allocated - fixed - work) / (double)parameters, 18, 0.001);
}
END_TEST

/* Plans in which the loss takes most of the memory: bf16 logits and as much again, or three or four
 * fp32 images. The bound that a search uses has to include it. */
START_TEST (a_fused_loss_keeps_no_wide_images)
{
  static const struct
  {
    const char *words;
    guint64 bytes;
  } losses[] = { { "stack=fsdp1 ce_fusion=on", 4 },
                 { "stack=fsdp1 ce_fusion=off", 16 },
                 { "stack=fsdp2 compile=on", 4 },
                 { "stack=fsdp2 compile=off", 12 },
                 { "stack=fsdp2@2025-03-30 compile=on", 12 } };
  guint64 fixed;
  guint64 parameters;
  g_autofree char *words = g_strconcat ("gbs=32 seq=4096 mbs=4 ", losses[_i].words, NULL);
  const PlanMemory m = memory_of ("layers=1,hidden=256,ffn=512,heads=4,vocab=50368,max_seq=4096",
                                  "dgx-a100:1", words, &fixed, &parameters);
  ck_assert_msg (m.by_category[PLAN_CATEGORY_LOSS] == 4 * 4096 * 50368 * losses[_i].bytes,
                 "%s: %.2f bytes a logit", losses[_i].words,
                 (double)m.by_category[PLAN_CATEGORY_LOSS] / (4.0 * 4096 * 50368));
}
END_TEST

/* Where only the last micro batch reduces, whole gradients of the others are in memory during its
 * loss: in the format of reductions, or in that of the weights; a single micro batch has none. */
START_TEST (whole_gradients_wait_for_the_last_micro_batch)
{
  static const struct
  {
    const char *words;
    double bytes;
  } kept[] = { { "gbs=64 stack=fsdp2 grad_sync=last", 4 },
               { "gbs=64 stack=fsdp2 grad_sync=last grad_comm=bf16", 2 },
               { "gbs=64 stack=fsdp1 grad_sync=last", 2 },
               { "gbs=32 stack=fsdp2 grad_sync=last", 0 },
               { "gbs=64 stack=fsdp2", 4.0 / 8 } };
  guint64 fixed;
  guint64 parameters;
  g_autofree char *words = g_strconcat ("seq=4096 mbs=4 ", kept[_i].words, NULL);
  const PlanMemory m = memory_of ("layers=2,hidden=256,ffn=512,heads=4,vocab=50368,max_seq=4096",
                                  "dgx-a100:1", words, &fixed, &parameters);
  const double found = (double)m.by_category[PLAN_CATEGORY_MAIN_GRADS];
  ck_assert_msg (fabs (found - kept[_i].bytes * (double)parameters) <= 0.001 * (double)parameters,
                 "%s: %.3f bytes a parameter", kept[_i].words, found / (double)parameters);
}
END_TEST

/* AdamW by foreach has the roots of all second moments beside the moments: with little else in
 * memory a third of the optimizer's bytes at the peak. */
START_TEST (foreach_keeps_roots_of_second_moments)
{
  static const struct
  {
    const char *words;
    double bytes;
  } states[] = { { "stack=fsdp1 adam_foreach=on", 12 },
                 { "stack=fsdp1", 8 },
                 { "stack=fsdp2 adam_foreach=on", 12 },
                 { "stack=fsdp2 adam_foreach=on main_params=bf16 main_grads=bf16 grad_comm=bf16 "
                   "exp_avg=bf16 exp_avg_sq=bf16",
                   6 } };
  guint64 fixed;
  guint64 parameters;
  g_autofree char *words
      = g_strconcat ("gbs=2 seq=128 mbs=1 recompute=full ", states[_i].words, NULL);
  const PlanMemory m = memory_of ("llama3-8b", "h100-80gb:2", words, &fixed, &parameters);
  const double found = (double)m.by_category[PLAN_CATEGORY_OPTIMIZER] * 2;
  ck_assert_msg (fabs (found / (double)parameters - states[_i].bytes) < 0.001,
                 "%s: %.3f bytes a parameter", states[_i].words, found / (double)parameters);
}
END_TEST

#define MIB(bytes) ((double)(bytes) / PLAN_MIB)
#define LLAMA3_8B "llama3-8b"
#define LLAMA2_7B "llama2-7b"
#define LLAMA3_70B_L12 \
  "layers=12,hidden=8192,ffn=28672,heads=64,kv_heads=8,head_dim=128,vocab=128256,max_seq=4096"
#define SAC "recompute=selective recompute_modules=op-sac "
#define SIMUMAX \
  "stack=megatron@2026-05-01 strategy=optim seq=4096 overlap_grad_reduce=off " \
  "overlap_param_gather=off grad_accum_fusion=on ce_fusion=te "

/* op-sac keeps the results of attention, but for a time not those of cuDNN's, which Blackwell
 * uses. */
START_TEST (op_sac_did_not_know_all_attention)
{
  static const struct
  {
    const char *date, *cluster;
    gboolean keeps;
  } states[] = { { "2025-05-14", "b200:8", TRUE },
                 { "2025-05-15", "b200:8", FALSE },
                 { "2025-11-30", "b200:8", FALSE },
                 { "2025-12-01", "b200:8", TRUE },
                 { "2025-11-30", "h100-80gb:8", TRUE } };
  const guint64 result = G_GUINT64_CONSTANT (8192) * (4096 * 2 + 32 * 4); /* with its statistics */
  guint64 fixed;
  guint64 parameters;
  const char *dates[] = { states[_i].date, "2025-12-01" };
  guint64 bytes[2];
  for (guint i = 0; i < 2; i++)
    {
      g_autofree char *words = g_strdup_printf (SAC "stack=fsdp2@%s gbs=8 seq=8192", dates[i]);
      bytes[i] = memory_of (LLAMA3_8B, states[_i].cluster, words, &fixed, &parameters)
                     .by_category[PLAN_CATEGORY_ACTIVATIONS];
    }
  ck_assert_uint_eq (bytes[0] + (states[_i].keeps ? 0 : 32 * result), bytes[1]);
}
END_TEST

#define SCAN_1B "layers=16,hidden=2048,ffn=8192,heads=32,vocab=131072,tied=on,max_seq=4096"
#define SCAN "stack=nanotron seq=4096 gbs=256 "

/* Published runs, in MiB: SimuMax on 8 B200 (max allocated), torchtitan on 8 H100 (reserved, in
 * GiB on its pages). What a stack keeps of its logits was chosen with the last five of the latter
 * in sight. Hugging Face's scan with nanotron (reserved): leaving out that moments, or what
 * products work in, are taken late, or what weights are gathered with, makes 2 to 16 % of it. */
static const struct
{
  const char *row, *model, *cluster, *words;
  double max_allocated, reserved, bound;
} measured[] = {
  { "SimuMax 70B of 12 layers, tp=4", LLAMA3_70B_L12, "dgx-b200:1", SIMUMAX "gbs=8 tp=4", 40009.8,
    41140, 0.015 },
  { "SimuMax 70B of 12 layers, tp=8", LLAMA3_70B_L12, "dgx-b200:1", SIMUMAX "gbs=4 tp=8", 28965.4,
    29816, 0.016 },
  { "SimuMax 70B of 12 layers, pp=2", LLAMA3_70B_L12, "dgx-b200:1", SIMUMAX "gbs=16 pp=2", 68149.2,
    72586, 0.03 },
  { "torchtitan 2025-02, not resharded", LLAMA3_8B, "h100-96gb-8x:1",
    SAC "stack=fsdp2@2025-02-01 strategy=optim_grads gbs=8 seq=8192", 0, 63672, 0.025 },
  { "torchtitan 2024-12, fp8", LLAMA3_8B, "h100-96gb-8x:1",
    SAC "stack=fsdp2@2024-12-01 compute=fp8-tensorwise compile=on mbs=2 gbs=16 seq=8192", 0, 78643,
    0.025 },
  { "torchtitan 2024-12, 262 144 tokens", LLAMA3_8B, "h100-96gb-8x:1",
    "stack=fsdp2@2024-12-01 compute=fp8-tensorwise compile=on cp=8 gbs=1 seq=262144 "
    "recompute=full",
    0, 86528, 0.025 },
  { "torchtitan 2024-03, op-sac", LLAMA2_7B, "h100-96gb-8x:1",
    SAC "stack=fsdp2@2024-03-28 compile=on mbs=8 gbs=64 seq=2048", 0, 55122, 0.03 },
  { "torchtitan 2024-03, nothing recomputed", LLAMA2_7B, "h100-96gb-8x:1",
    "stack=fsdp2@2024-03-28 compile=on mbs=8 gbs=64 seq=2048", 0, 92447, 0.03 },
  { "nanotron nt-0048, ZeRO-1", SCAN_1B, "dgx-h100:8", SCAN "strategy=optim mbs=2", 0, 35645,
    0.005 },
  { "nanotron nt-0045, ZeRO-1", SCAN_1B, "dgx-h100:8", SCAN "strategy=optim mbs=1", 0, 24330,
    0.005 },
  { "nanotron nt-0001, ZeRO-0", SCAN_1B, "dgx-h100:1", SCAN "strategy=no_shard mbs=2", 0, 51384,
    0.005 },
  { "nanotron nt-0119, tp=8", SCAN_1B, "dgx-h100:4", SCAN "strategy=no_shard tp=8 mbs=16", 0, 26286,
    0.01 },
  { "nanotron nt-0172, tp=8", SCAN_1B, "dgx-h100:8", SCAN "strategy=no_shard tp=8 mbs=16", 0, 26255,
    0.01 },
  { "torchtitan 2024-03, all recomputed", LLAMA2_7B, "h100-96gb-8x:1",
    "stack=fsdp2@2024-03-28 compile=on recompute=full mbs=8 gbs=64 seq=2048", 0, 29594, 0.05 },
};

START_TEST (measured_runs_are_met)
{
  guint64 fixed;
  guint64 parameters;
  const PlanMemory m = memory_of (measured[_i].model, measured[_i].cluster, measured[_i].words,
                                  &fixed, &parameters);
  const double reserved = MIB (m.reserved) / measured[_i].reserved - 1;
  ck_assert_msg (fabs (reserved) < measured[_i].bound, "%s: reserved %.2f %% off", measured[_i].row,
                 100 * reserved);
  if (measured[_i].max_allocated == 0)
    return;
  const double peak = MIB (m.max_allocated) / measured[_i].max_allocated - 1;
  ck_assert_msg (fabs (peak) < 0.005, "%s: max allocated %.2f %% off", measured[_i].row,
                 100 * peak);
}
END_TEST

/* Megatron-LM's own test with experts of 2026-07 on four GB200 (mlm-0677, MiB); and what the
 * workspaces of grouped products add on each architecture, as Transformer Engine documents them. */
#define TINY_EXPERTS \
  "family=gpt2,layers=12,hidden=512,ffn=2048,heads=8,vocab=50688,max_seq=1024,activation=gelu," \
  "qkv_bias=off,proj_bias=off,mlp_bias=off,experts=8,topk=2,expert_ffn=1024,shared_ffn=512"
START_TEST (products_of_experts_have_workspaces)
{
  static const struct
  {
    const char *cluster;
    guint64 mib;
    double measured;
  } cases[] = { { "4xgb200", 128, 864.3 }, { "4xh100-80gb", 128, 0 }, { "4xa100-80gb", 16, 0 } };
  const char *const words = "stack=megatron strategy=optim gbs=32 mbs=4 seq=1024 tp=4 sp=on ep=2 "
                            "etp=2 moe_dispatcher=alltoall moe_permute_fusion=off ";
  guint64 fixed, parameters;
  g_autofree char *alone = g_strconcat (words, "moe_grouped_gemm=off", NULL);
  const PlanMemory with = memory_of (TINY_EXPERTS, cases[_i].cluster, words, &fixed, &parameters),
                   without
                   = memory_of (TINY_EXPERTS, cases[_i].cluster, alone, &fixed, &parameters);
  ck_assert_uint_eq (with.allocated - without.allocated, cases[_i].mib * PLAN_MIB);
  if (cases[_i].measured > 0)
    ck_assert_double_eq_tol (MIB (with.allocated) / cases[_i].measured, 1, 0.005);
}
END_TEST

/* Plans of Megatron-FSDP whose peaks lie in the loss, in the activations that selective
 * recomputation keeps, and in the gathers and reductions of a backward pass. */
static const struct
{
  const char *model, *cluster, *words;
} bounded[] = {
  { "llama3-8b", "dgx-h100:1", "gbs=16 seq=8192 mbs=2" },
  { "llama3-8b", "dgx-h100:1", "gbs=8 seq=2048 double_buffer=on" },
  { "llama3-70b", "dgx-h100:4", "gbs=32 seq=2048 recompute=full comm_unit=4000000000" },
  { "mixtral-8x7b", "dgx-h100:2",
    "gbs=32 seq=4096 mbs=2 ep=8 recompute=selective recompute_modules=moe_act" },
  { "mixtral-8x7b", "dgx-h100:2", "gbs=16 seq=4096 ep=4 recompute=full" },
  { "deepseek-v3", "dgx-h100:32",
    "gbs=256 seq=4096 ep=8 sp=off recompute=full comm_unit=12000000000" },
  { "mixtral-8x7b", "dgx-h100:2",
    "gbs=16 seq=128 ep=8 comm_unit=1 recompute=full compute=fp8-tensorwise param_gather=fp8 "
    "main_grads=bf16 grad_comm=bf16 exp_avg=bf16 exp_avg_sq=bf16 precision_aware=on" },
};

/* A search lowers every plan that a bound does not exclude, so the bound has to be near the
 * peak. */
START_TEST (bounds_are_near_the_peak)
{
  g_auto (TestCase) c = { 0 };
  test_case_init (&c, bounded[_i].model, bounded[_i].cluster, bounded[_i].words);
  const guint64 least = plan_bound_memory (c.of);
  const guint64 peak = sim_measure_least_bytes (c.schedule, c.of->stack);
  ck_assert_uint_le (least, peak);
  ck_assert_msg ((double)least > 0.9 * (double)peak, "%s %s: %.1f of %.1f MiB", bounded[_i].model,
                 bounded[_i].words, MIB (least), MIB (peak));
}
END_TEST

/* Bytes of the gradients that products leave unused where they add to main gradients, by hand: one
 * in bf16 of each shape of a rank's weights. */
START_TEST (unused_gradients_are_kept_once_for_each_shape)
{
  static const struct
  {
    const char *model, *words;
    guint64 elements;
  } cases[] = {
    /* qkv, proj, gate and up, down; the output layer since 2025-08-01 */
    { "llama3-8b", "stack=megatron@2026-05-01",
      4096 * 6144 + 4096 * 4096 + 4096 * 28672 + 14336 * 4096 + 128256 * 4096 },
    { "llama3-8b", "stack=megatron@2025-07-31",
      4096 * 6144 + 4096 * 4096 + 4096 * 28672 + 14336 * 4096 },
    { "llama3-8b", "stack=megatron@2025-04-07", 0 },
    { "llama3-8b", "stack=megatron@2025-07-31 tp=2",
      4096 * 3072 + 2048 * 4096 + 4096 * 14336 + 7168 * 4096 },
    /* proj and both matrices of the MLP have one shape; so have all experts */
    { "family=gpt2,layers=2,hidden=512,ffn=512,heads=8,vocab=1024,max_seq=64",
      "stack=megatron@2025-07-31 seq=64", 512 * 1536 + 512 * 512 },
    { "family=mixtral,layers=2,hidden=512,ffn=256,heads=8,kv_heads=8,vocab=1024,max_seq=64,"
      "experts=8,topk=2",
      "stack=megatron@2025-07-31 seq=64 ep=2", 512 * 1536 + 512 * 512 + 256 * 512 },
  };
  g_autofree char *on = g_strconcat (cases[_i].words, " strategy=optim gbs=8", NULL);
  g_autofree char *fused = g_strconcat (on, " grad_accum_fusion=on", NULL);
  guint64 fixed, parameters;
  const PlanMemory without = memory_of (cases[_i].model, "dgx-h100:1", on, &fixed, &parameters);
  const PlanMemory with = memory_of (cases[_i].model, "dgx-h100:1", fused, &fixed, &parameters);
  ck_assert_uint_eq (with.allocated - without.allocated, 2 * cases[_i].elements);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("stack-memory");
  TCase *tcase = tcase_create ("stack-memory");
  tcase_set_timeout (tcase, 60);
  tcase_add_loop_test (tcase, rests_as_the_closed_form_says, 0, G_N_ELEMENTS (rests));
  tcase_add_test (tcase, nanotron_keeps_gathered_sequences);
  tcase_add_test (tcase, nanotron_alone_keeps_eighteen_bytes);
  tcase_add_loop_test (tcase, a_fused_loss_keeps_no_wide_images, 0, 5);
  tcase_add_loop_test (tcase, foreach_keeps_roots_of_second_moments, 0, 4);
  tcase_add_loop_test (tcase, whole_gradients_wait_for_the_last_micro_batch, 0, 5);
  tcase_add_loop_test (tcase, op_sac_did_not_know_all_attention, 0, 5);
  tcase_add_loop_test (tcase, measured_runs_are_met, 0, G_N_ELEMENTS (measured));
  tcase_add_loop_test (tcase, products_of_experts_have_workspaces, 0, 3);
  tcase_add_loop_test (tcase, unused_gradients_are_kept_once_for_each_shape, 0, 6);
  tcase_add_loop_test (tcase, bounds_are_near_the_peak, 0, G_N_ELEMENTS (bounded));
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
