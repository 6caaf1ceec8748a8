/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of whole plans: compared with what others measured, and with what each setting should
 * cost. */
#include "config.h"

#include "planner/base/units.h"
#include "sim/sim.h"
#include "tests/case.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>

/* Llama-3-8B with its vocabulary as it was padded in the runs below. */
#define LLAMA_8B \
  "layers=32,hidden=4096,ffn=14336,heads=32,kv_heads=8,head_dim=128,vocab=128384,max_seq=8192," \
  "rope_theta=500000"

static PlanMemory
memory_of (const char *model_spec, const char *cluster_spec, const char *words)
{
  g_autoptr (GError) error = NULL;
  g_auto (TestCase) c = { 0 };
  test_case_init (&c, model_spec, cluster_spec, words);
  const SimCostInput input = sim_cost_input (c.of, c.schedule);
  g_autoptr (SimCost) cost = sim_cost_new (&input, &error);
  g_autoptr (PlanTrace) trace = sim_run (c.schedule, cost, c.of->stack, &error);
  ck_assert_msg (trace != NULL, "%s", error ? error->message : "");
  return trace->memory;
}

static double
mib (guint64 bytes)
{
  return (double)bytes / PLAN_MIB;
}

/* Memory lines of Megatron-LM's own logs, in MiB, all on 8 H100. From A2, A11 and D2 two figures of
 * the stack were fitted: 105 MiB that lie in no buffer, and the second fp32 image of the logits;
 * A3 and D1 were looked at by nobody who fitted. Precision-aware runs hold bf16 gradients. */
#define FP8 "gbs=128 compute=fp8-delayed param_gather=fp8 "
#define HFSDP FP8 "seq=1024 dp_outer=2 outer_strategy=optim "
#define NARROW HFSDP "precision_aware=on main_grads=bf16 grad_comm=bf16 "
static const struct
{
  const char *row, *words;
  double allocated, max_allocated;
} measured[] = {
  { "PR #3067 A2", FP8 "seq=8192 stack=megatron-fsdp@2026-03-02", 18516.73, 60039.38 },
  { "PR #3067 A3", FP8 "seq=8192 stack=megatron-fsdp@2026-03-02 grad_comm=bf16 nccl_ub=on",
    19765.60, 60646.15 },
  { "PR #3067 A11", HFSDP "stack=megatron-fsdp@2026-03-02", 23425.69, 33573.09 },
  { "PR #4133 D1", NARROW "stack=megatron-fsdp@2026-04-10", 19595.55, 27022.17 },
  { "PR #4133 D2", NARROW "fused_masters=on stack=megatron-fsdp@2026-04-03", 23425.69, 30852.31 },
};

START_TEST (measured_runs_are_met)
{
  const PlanMemory m = memory_of (LLAMA_8B, "dgx-h100:1", measured[_i].words);
  const double allocated = mib (m.allocated) / measured[_i].allocated - 1;
  const double peak = mib (m.max_allocated) / measured[_i].max_allocated - 1;
  ck_assert_msg (fabs (allocated) < 0.006, "%s: allocated %.2f %% off", measured[_i].row,
                 100 * allocated);
  ck_assert_msg (fabs (peak) < 0.015, "%s: max allocated %.2f %% off", measured[_i].row,
                 100 * peak);
}
END_TEST

/* Pools hold two sets of fp8 weights and of bf16 gradients, and nothing else: PR #3067, A3 less
 * A2. */
START_TEST (pools_cost_two_units_of_each)
{
  const PlanMemory without = memory_of (LLAMA_8B, "dgx-h100:1", FP8 "seq=8192 grad_comm=bf16");
  const PlanMemory with
      = memory_of (LLAMA_8B, "dgx-h100:1", FP8 "seq=8192 grad_comm=bf16 double_buffer=on");
  ck_assert_double_eq_tol (mib (with.allocated - without.allocated), 1248.25, 0.5);
}
END_TEST

/* The queue of reductions holds at least 1e9 elements, which is all of a small model: then sharding
 * its gradients costs memory. */
START_TEST (sharding_gradients_may_cost_memory)
{
  const char *const sharded = "gbs=8 seq=128 strategy=optim_grads";
  const char *const whole = "gbs=8 seq=128 strategy=optim";
  ck_assert_uint_gt (memory_of ("llama3.2-1b", "dgx-h100:1", sharded).max_allocated,
                     memory_of ("llama3.2-1b", "dgx-h100:1", whole).max_allocated);
  ck_assert_uint_lt (memory_of ("llama3-8b", "dgx-h100:1", sharded).max_allocated,
                     memory_of ("llama3-8b", "dgx-h100:1", whole).max_allocated);
}
END_TEST

/* Transformer Engine keeps each linear weight in both orientations on every rank: 32 layers of 218
 * 103 808 such parameters, two bytes each; and for every matrix that four products of a layer read
 * or make 1,024 largest magnitudes, beside a scale and the largest one of the step. */
START_TEST (fp8_without_its_gather_copies_weights)
{
  const PlanMemory plain = memory_of ("llama3-8b", "dgx-h100:1", "gbs=8 seq=1024");
  const PlanMemory copied
      = memory_of ("llama3-8b", "dgx-h100:1", "gbs=8 seq=1024 compute=fp8-delayed");
  ck_assert_uint_eq (copied.resting[PLAN_CATEGORY_DERIVED],
                     G_GUINT64_CONSTANT (2) * 32 * 218103808);
  ck_assert_uint_eq (plain.resting[PLAN_CATEGORY_DERIVED], 0);
  ck_assert_uint_eq (copied.allocated - plain.allocated,
                     copied.resting[PLAN_CATEGORY_DERIVED] + 32 * 12 * 1026 * sizeof (float));
}
END_TEST

/* Embedding and head stay gathered: 525 336 576 and 525 369 344 elements with padding. */
START_TEST (non_units_stay_gathered)
{
  const PlanMemory m = memory_of ("llama3-8b", "dgx-h100:1", "gbs=8 seq=1024");
  ck_assert_uint_eq (m.resting[PLAN_CATEGORY_GATHERED],
                     2 * (G_GUINT64_CONSTANT (525336576) + 525369344));
}
END_TEST

/* Until 2026-05-30 non-unit weights were freed while the optimizer worked. Where moments are
 * widened for its work memory is fullest then. */
START_TEST (non_units_once_made_room_for_the_optimizer)
{
  const char *const words = "gbs=8 seq=128 recompute=full precision_aware=on exp_avg=fp8 "
                            "exp_avg_sq=fp8 comm_unit=1 stack=megatron-fsdp@";
  g_autofree char *before = g_strconcat (words, "2026-05-29", NULL);
  g_autofree char *after = g_strconcat (words, "2026-05-30", NULL);
  ck_assert_uint_eq (memory_of ("llama3-8b", "dgx-h100:1", before).allocated,
                     memory_of ("llama3-8b", "dgx-h100:1", after).allocated);
  ck_assert_uint_lt (memory_of ("llama3-8b", "dgx-h100:1", before).max_allocated,
                     memory_of ("llama3-8b", "dgx-h100:1", after).max_allocated);
}
END_TEST

/* A precision-aware optimizer reads bf16 gradients as they are: no fp32 copy. */
START_TEST (decoupled_gradients_need_no_copy)
{
  const PlanMemory cast = memory_of ("llama3-8b", "dgx-h100:1", "gbs=8 seq=1024 main_grads=bf16");
  const PlanMemory aware
      = memory_of ("llama3-8b", "dgx-h100:1", "gbs=8 seq=1024 main_grads=bf16 precision_aware=on");
  ck_assert_uint_eq (cast.resting[PLAN_CATEGORY_MAIN_GRADS],
                     3 * aware.resting[PLAN_CATEGORY_MAIN_GRADS]);
}
END_TEST

/* Activations kept by one layer in units of tokens x hidden bytes: 34 in bf16, and 29.5 in fp8,
 * without the products' inputs in bf16 (a = 1, k = 1/4, f = 3.5 for Llama-3-8B), apart from one
 * number per row and head. */
START_TEST (layers_keep_what_the_framework_saves)
{
  static const struct
  {
    const char *words;
    double kept;
  } rows[]
      = { { "", 34 },
          { " compute=fp8-delayed param_gather=fp8", 29.5 },
          { " recompute=selective recompute_modules=mlp", 11 },
          { " compute=fp8-delayed param_gather=fp8 recompute=selective recompute_modules=mlp", 11 },
          { " compute=fp8-delayed param_gather=fp8 recompute=selective", 27.5 },
          { " recompute=full", 2 } };
  for (guint i = 0; i < G_N_ELEMENTS (rows); i++)
    {
      g_autofree char *few = g_strconcat ("gbs=8 seq=4096 comm_unit=1", rows[i].words, NULL);
      const PlanMemory small = memory_of ("family=llama,layers=8,hidden=4096,ffn=14336,heads=32,"
                                          "kv_heads=8,head_dim=128,vocab=512,max_seq=8192",
                                          "dgx-h100:1", few);
      const PlanMemory large = memory_of ("family=llama,layers=16,hidden=4096,ffn=14336,heads=32,"
                                          "kv_heads=8,head_dim=128,vocab=512,max_seq=8192",
                                          "dgx-h100:1", few);
      const double kept = (double)(large.by_category[PLAN_CATEGORY_ACTIVATIONS]
                                   - small.by_category[PLAN_CATEGORY_ACTIVATIONS])
                          / 8 / 4096 / 4096;
      ck_assert_msg (fabs (kept - rows[i].kept) < 0.1, "%s: %.2f, not %.1f", rows[i].words, kept,
                     rows[i].kept);
    }
}
END_TEST

/* While a chunk of N layers is computed again all that these layers keep is in memory, and one
 * input of each other chunk: at s = 4096, 2 s h bytes per chunk and 34 s h per layer of the
 * chunk. */
START_TEST (a_chunk_is_computed_again_as_a_whole)
{
  static const guint sizes[] = { 1, 2, 4, 8 };
  double peak[G_N_ELEMENTS (sizes)];
  for (guint i = 0; i < G_N_ELEMENTS (sizes); i++)
    {
      g_autofree char *words = g_strdup_printf (
          "gbs=8 seq=4096 comm_unit=1 recompute=full recompute_layers=%u", sizes[i]);
      const PlanMemory m = memory_of ("family=llama,layers=32,hidden=4096,ffn=14336,heads=32,"
                                      "kv_heads=8,head_dim=128,vocab=512,max_seq=8192",
                                      "dgx-h100:1", words);
      peak[i] = (double)m.by_category[PLAN_CATEGORY_ACTIVATIONS] / 4096 / 4096;
    }
  for (guint i = 1; i < G_N_ELEMENTS (sizes); i++)
    {
      const double grown = (sizes[i] - 1) * 34.0, saved = 2.0 * (32 - 32 / sizes[i]);
      /* the inputs of the layers inside of a chunk are counted in what they keep */
      ck_assert_msg (fabs (peak[i] - peak[0] - grown + saved) < 0.6, "%u: %.2f, not %.2f", sizes[i],
                     peak[i] - peak[0], grown - saved);
    }
}
END_TEST

/* Megatron-LM's loss widens the logits once and then works in place: 6 bytes per logit. Compiled
 * into fused kernels it cannot, and needs a second fp32 image. */
START_TEST (an_unfused_loss_works_in_place)
{
  const PlanMemory fused = memory_of (LLAMA_8B, "dgx-h100:1", "gbs=8 seq=8192");
  const PlanMemory separate = memory_of (LLAMA_8B, "dgx-h100:1", "gbs=8 seq=8192 ce_fusion=off");
  ck_assert_uint_eq (fused.by_category[PLAN_CATEGORY_LOSS],
                     G_GUINT64_CONSTANT (10) * 8192 * 128384);
  ck_assert_uint_eq (separate.by_category[PLAN_CATEGORY_LOSS],
                     G_GUINT64_CONSTANT (6) * 8192 * 128384);
}
END_TEST

/* cuDNN's deterministic backward pass keeps the gradients of the scores, 4096 MiB for 32 heads of
 * 8192 tokens, beside the 128 MiB of grouped heads and the sum of each row; but q's gradient needs
 * no fp32 image (cuDNN reports 4224 MiB). */
START_TEST (deterministic_attention_keeps_scores)
{
  const PlanMemory m = memory_of (
      "family=llama,layers=32,hidden=4096,ffn=14336,heads=32,"
      "kv_heads=8,head_dim=128,vocab=512,max_seq=8192",
      "dgx-h100:1", "gbs=8 seq=8192 comm_unit=1 recompute=full deterministic=on ce_fusion=off");
  const guint64 work = (G_GUINT64_CONSTANT (4224) + 1) << 20;
  ck_assert_uint_ge (m.by_category[PLAN_CATEGORY_WORKSPACE], work);
  ck_assert_uint_le (m.by_category[PLAN_CATEGORY_WORKSPACE], work + PLAN_MIB);
}
END_TEST

/* What offloaded layers keep is not on the device at the loss: 34 s h bytes each for Llama-3-8B in
 * bf16, and fp32 numbers per row (two) and per head and row (32). */
START_TEST (offloaded_layers_are_gone_at_the_loss)
{
  const double unit = 8192.0 * 4096;
  double kept[3];
  static const char *const layers[] = { "0", "16", "31" };
  for (guint i = 0; i < G_N_ELEMENTS (layers); i++)
    {
      g_autofree char *words = g_strconcat ("gbs=8 seq=8192 offload_layers=", layers[i], NULL);
      const PlanMemory m = memory_of (LLAMA_8B, "dgx-h100:1", words);
      kept[i] = (double)m.by_category[PLAN_CATEGORY_ACTIVATIONS] / unit;
    }
  const double layer = 34 + 4 * (2 + 32) / 4096.0;
  ck_assert_double_eq_tol (kept[0] - kept[1], 16 * layer, 0.001);
  ck_assert_double_eq_tol (kept[0] - kept[2], 31 * layer, 0.001);
}
END_TEST

/* Offloading modules frees their inputs: x, what qkv reads, the heads of q, k and v, attention's
 * output and the input of the second norm: 2, 2, 2 a + 4 k = 3, 2 a = 2 and 2 of 34 in every layer
 * but the last. */
START_TEST (offloaded_modules_free_their_inputs)
{
  static const struct
  {
    const char *modules;
    double freed;
  } rows[] = { { "attn_norm", 2 }, { "qkv_linear", 2 },
               { "core_attn", 3 }, { "core_attn+attn_proj", 5 },
               { "mlp_norm", 2 },  { "attn_norm+qkv_linear+core_attn+attn_proj+mlp_norm", 11 } };
  const double unit = 8192.0 * 4096;
  const PlanMemory all = memory_of (LLAMA_8B, "dgx-h100:1", "gbs=8 seq=8192");
  for (guint i = 0; i < G_N_ELEMENTS (rows); i++)
    {
      g_autofree char *words
          = g_strconcat ("gbs=8 seq=8192 offload_modules=", rows[i].modules, NULL);
      const PlanMemory m = memory_of (LLAMA_8B, "dgx-h100:1", words);
      const double freed = ((double)all.by_category[PLAN_CATEGORY_ACTIVATIONS]
                            - (double)m.by_category[PLAN_CATEGORY_ACTIVATIONS])
                           / unit / 31;
      ck_assert_msg (fabs (freed - rows[i].freed) < 0.01, "%s: %.3f, not %.1f", rows[i].modules,
                     freed, rows[i].freed);
    }
}
END_TEST

/* The host has what each layer offloads, of every micro batch that a stage holds, but of the last
 * layer before a backward pass. Sequences have 4096 tokens, and what is offloaded is in bf16. */
START_TEST (the_host_has_room_for_what_is_held)
{
  static const struct
  {
    const char *model, *cluster, *words;
    guint64 layers, micro_batches, columns, tokens;
  } rows[] = {
    { "llama3-8b", "dgx-h100:1", "stack=megatron strategy=optim pp=2 offload_modules=attn_norm", 16,
      2, 4096, 4096 },
    { "llama3-8b", "dgx-h100:1", "stack=megatron strategy=optim pp=4 tp=2 offload_modules=mlp_norm",
      8, 4, 4096, 2048 },
    /* Interleaved, the first of two stages holds 2 (2 - 1) + (4 - 1) 2 + 1 passes of 4 layers. */
    { "llama3-8b", "dgx-h100:1",
      "stack=megatron strategy=optim pp=2 vpp=4 offload_modules=attn_norm", 4, 9, 4096, 4096 },
    { "llama3-8b", "dgx-h100:1", "stack=native pp=2 offload_modules=qkv_linear+core_attn", 16, 2,
      4096 + 6144, 4096 },
    { "mixtral-8x7b", "dgx-h100:1", "ep=8 offload_modules=expert_fc1", 31, 1, 2 * 4096, 4096 },
    { "mixtral-8x7b", "dgx-h100:1", "ep=8 offload_modules=moe_act", 31, 1, 2 * 28672, 4096 },
    /* Beside a layer's forward pass another one comes back. */
    { "mixtral-8x7b", "dgx-h100:1",
      "stack=megatron strategy=optim ep=8 ep_overlap=on offload_modules=expert_fc1", 32, 1,
      2 * 4096, 4096 },
    /* 128 heads: 192 columns of queries and of keys, 128 of values. */
    { "deepseek-v3,mtp=0", "dgx-h100:8", "ep=64 offload_modules=core_attn", 60, 1, 128 * 512,
      4096 },
  };
  g_autofree char *words = g_strconcat ("gbs=128 seq=4096 ", rows[_i].words, NULL);
  const PlanMemory m = memory_of (rows[_i].model, rows[_i].cluster, words);
  ck_assert_uint_eq (m.host, 2 * rows[_i].layers * rows[_i].micro_batches * rows[_i].columns
                                 * rows[_i].tokens);
}
END_TEST

/* With an offloaded optimizer only moments leave the device: eight bytes of each parameter that the
 * host updates. */
START_TEST (an_offloaded_optimizer_leaves_its_moments)
{
  const char *const words = "gbs=8 seq=1024 precision_aware=on offload_optimizer=";
  const guint64 own = (32 * G_GUINT64_CONSTANT (218136576) + 525336576 + 525369344) / 8;
  static const char *const shares[] = { "0", "0.5", "1" };
  for (guint i = 0; i < G_N_ELEMENTS (shares); i++)
    {
      g_autofree char *fields = g_strconcat (words, shares[i], NULL);
      const PlanMemory m = memory_of ("llama3-8b", "dgx-h100:1", fields);
      ck_assert_uint_eq (m.resting[PLAN_CATEGORY_OPTIMIZER], 8 * (own - own * i / 2));
      ck_assert_uint_eq (m.resting[PLAN_CATEGORY_MAIN_PARAMS], 4 * own);
    }
}
END_TEST

/* The same with experts and in pipelines. The host of Megatron-LM keeps weights, moments and
 * gradients of all that a rank updates in fp32, and the device its own main weights. */
START_TEST (the_host_keeps_four_copies)
{
  static const struct
  {
    const char *model, *cluster, *words;
  } rows[] = {
    { "mixtral-8x7b", "dgx-h100:2", "gbs=16 seq=1024 ep=8" },
    { "mixtral-8x7b", "dgx-h100:2", "gbs=16 seq=1024 ep=8 stack=megatron strategy=optim" },
    { "mixtral-8x7b", "dgx-h100:2", "gbs=16 seq=1024 ep=4 stack=megatron strategy=optim pp=2" },
    { "llama3-8b", "dgx-h100:1", "gbs=16 seq=1024 stack=megatron strategy=optim pp=2 vpp=4" },
    { "llama3-8b", "dgx-h100:1", "gbs=16 seq=1024 stack=megatron strategy=optim pp=4" },
    { "qwen3-next-80b-a3b", "dgx-h100:2", "gbs=16 seq=1024 ep=8" },
    { "nemotron-nano-9b-v2", "dgx-h100:1", "gbs=16 seq=1024" },
  };
  g_autofree char *words
      = g_strconcat (rows[_i].words, " precision_aware=on offload_optimizer=1", NULL);
  const PlanMemory m = memory_of (rows[_i].model, rows[_i].cluster, words);
  const double own = (double)m.resting[PLAN_CATEGORY_MAIN_PARAMS];
  ck_assert_uint_gt (m.resting[PLAN_CATEGORY_MAIN_PARAMS], 0);
  ck_assert_uint_eq (m.resting[PLAN_CATEGORY_OPTIMIZER], 0);
  ck_assert_msg (fabs ((double)m.host / own - 4) < 0.01, "%.3f", (double)m.host / own);
}
END_TEST

/* At the loss dropout has kept a byte for each element of the embedding and of the outputs of a
 * layer's two branches; none for layers that are computed again from their input. Dropout in
 * attention keeps a seed alone. */
START_TEST (dropout_keeps_its_masks)
{
  static const struct
  {
    const char *words;
    guint masks;
  } rows[] = { { "recompute=none", 65 },
               { "recompute=selective recompute_modules=mlp", 65 },
               { "recompute=selective recompute_modules=core_attn", 65 },
               { "recompute=full recompute_method=block recompute_layers=8", 49 },
               { "recompute=full", 1 },
               { "recompute=full recompute_layers=4", 1 },
               { "tp=2", 65 },
               { "task=eval", 0 } };
  const guint64 tokens = 8192 / (_i == 6 ? 2 : 1); /* sequence parallel */
  g_autofree char *words
      = g_strconcat ("gbs=8 seq=8192 comm_unit=1 hidden_dropout=0 ", rows[_i].words, NULL);
  g_autofree char *hidden
      = g_strconcat ("gbs=8 seq=8192 comm_unit=1 hidden_dropout=0.1 ", rows[_i].words, NULL);
  g_autofree char *attention
      = g_strconcat ("gbs=8 seq=8192 comm_unit=1 attention_dropout=0.1 ", rows[_i].words, NULL);
  const PlanMemory without = memory_of (LLAMA_8B, "dgx-h100:1", words);
  const PlanMemory with = memory_of (LLAMA_8B, "dgx-h100:1", hidden);
  ck_assert_uint_eq (with.max_allocated - without.max_allocated, rows[_i].masks * tokens * 4096);
  ck_assert_uint_eq (memory_of (LLAMA_8B, "dgx-h100:1", attention).max_allocated,
                     without.max_allocated);
}
END_TEST

/* fsdplan's own runtime makes masks again: at the loss, where most is live, it only has 64 bytes
 * for each layer's key, for the embedding's and for the number of the micro batch's first token. */
START_TEST (masks_made_again_take_nothing)
{
#define FIELDS "gbs=8 seq=2048 stack=native "
  const PlanMemory without = memory_of (LLAMA_8B, "dgx-h100:1", FIELDS);
  const PlanMemory with = memory_of (LLAMA_8B, "dgx-h100:1", FIELDS "hidden_dropout=0.1");
#undef FIELDS
  ck_assert_uint_eq (with.max_allocated - without.max_allocated, 64 * (32 + 1 + 1));
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("memory");
  TCase *tcase = tcase_create ("memory");
  tcase_set_timeout (tcase, 120);
  tcase_add_loop_test (tcase, measured_runs_are_met, 0, G_N_ELEMENTS (measured));
  tcase_add_test (tcase, pools_cost_two_units_of_each);
  tcase_add_test (tcase, sharding_gradients_may_cost_memory);
  tcase_add_test (tcase, fp8_without_its_gather_copies_weights);
  tcase_add_test (tcase, non_units_stay_gathered);
  tcase_add_test (tcase, non_units_once_made_room_for_the_optimizer);
  tcase_add_test (tcase, decoupled_gradients_need_no_copy);
  tcase_add_test (tcase, layers_keep_what_the_framework_saves);
  tcase_add_test (tcase, a_chunk_is_computed_again_as_a_whole);
  tcase_add_test (tcase, an_unfused_loss_works_in_place);
  tcase_add_test (tcase, deterministic_attention_keeps_scores);
  tcase_add_test (tcase, offloaded_layers_are_gone_at_the_loss);
  tcase_add_test (tcase, offloaded_modules_free_their_inputs);
  tcase_add_loop_test (tcase, the_host_has_room_for_what_is_held, 0, 8);
  tcase_add_test (tcase, an_offloaded_optimizer_leaves_its_moments);
  tcase_add_loop_test (tcase, the_host_keeps_four_copies, 0, 7);
  tcase_add_loop_test (tcase, dropout_keeps_its_masks, 0, 8);
  tcase_add_test (tcase, masks_made_again_take_nothing);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
