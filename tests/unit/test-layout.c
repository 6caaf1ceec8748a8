/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/layout/layout.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>

static void
layout_with (const char *spec, gint64 data_parallel, const char *strategy, const char *gather,
             PlanLayout *out)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanModel) model = plan_model_new (spec, &error);
  ck_assert_msg (model != NULL, "%s", error ? error->message : "");
  Plan plan;
  plan_init (&plan);
  ck_assert (plan_set (&plan, "strategy", strategy, &error));
  ck_assert (plan_set (&plan, "param_gather", gather, &error));
  const PlanStack *stack = plan_stack_of (&plan, PLAN_DEVICE_GPU, &error);
  ck_assert (stack != NULL);
  plan_layout_init (out, model, stack, &plan, data_parallel);
}

static void
layout_of (const char *spec, gint64 data_parallel, const char *strategy, PlanLayout *out)
{
  layout_with (spec, data_parallel, strategy, "compute", out);
}

#define LLAMA_8B \
  "family=llama,layers=32,hidden=4096,ffn=14336,heads=32,kv_heads=8,head_dim=128,vocab=128384," \
  "max_seq=8192"

/* Shard sizes in bytes as NCCL logged them for Llama-3-8B on 8 GPUs (Megatron-LM PR #3067;
 * vocabulary 128384), all six. The last one is that of the norms, which have a bucket of their own
 * where a layer's weights are fp8. */
START_TEST (shards_are_as_nccl_logged_them)
{
  PlanLayout layout;
  layout_of (LLAMA_8B, 8, "optim_grads_params", &layout);
  ck_assert_uint_eq (layout.buckets[PLAN_BUCKET_LAYER].padded / 8 * 2, 54534144);
  ck_assert_uint_eq (layout.buckets[PLAN_BUCKET_LAYER].padded / 8 * 4, 109068288);
  ck_assert_uint_eq (layout.buckets[PLAN_BUCKET_EMBEDDING].padded / 8 * 2, 131465216);
  ck_assert_uint_eq (layout.buckets[PLAN_BUCKET_EMBEDDING].padded / 8 * 4, 262930432);
  ck_assert_uint_eq (layout.buckets[PLAN_BUCKET_HEAD].padded / 8 * 2, 131473408);
  layout_with (LLAMA_8B, 8, "optim_grads_params", "fp8", &layout);
  ck_assert_uint_eq (layout.buckets[PLAN_BUCKET_PLAIN].padded / 8 * 4, 4096);
}
END_TEST

/* gpt-oss's experts have biases. Where weights are quantised these are a bucket of bf16, which the
 * same ranks share as the experts. */
START_TEST (biases_of_experts_stay_with_these)
{
  PlanLayout layout;
  layout_with ("gpt-oss-20b", 8, "optim_grads_params", "fp8", &layout);
  const PlanBucket *b = layout.buckets;
  ck_assert_uint_eq (b[PLAN_BUCKET_EXPERTS].raw, (guint64)32 * 3 * 2880 * 2880);
  ck_assert_uint_eq (b[PLAN_BUCKET_EXPERTS_PLAIN].raw, 32 * 3 * 2880);
  ck_assert_int_eq (b[PLAN_BUCKET_EXPERTS_PLAIN].units, 24);
  for (PlanBucketKind kind = 0; kind < PLAN_BUCKET_PART; kind++)
    if (plan_bucket_is_main (kind) || kind == PLAN_BUCKET_EXPERTS)
      ck_assert_int_eq (plan_bucket_main (plan_bucket_plain (kind)), kind);
  layout_with ("gpt-oss-20b", 8, "optim_grads_params", "compute", &layout);
  ck_assert_uint_eq (b[PLAN_BUCKET_EXPERTS].raw, (guint64)32 * (3 * 2880 * 2880 + 3 * 2880));
  ck_assert_uint_eq (b[PLAN_BUCKET_EXPERTS_PLAIN].raw, 0);
}
END_TEST

/* DeepSeek-V3's first three layers have no experts. Where weights are quantised, those of products
 * are in a bucket of eight bits, for either kind of layer, and its norms and the router in one of
 * bf16; where they are lent the memory of gradients, those of either kind are. */
START_TEST (layers_of_either_kind_are_quantised)
{
  static const PlanBucketKind products[]
      = { PLAN_BUCKET_LAYER, PLAN_BUCKET_EXPERTS, PLAN_BUCKET_DENSE };
  static const PlanBucketKind plain[] = { PLAN_BUCKET_PLAIN, PLAN_BUCKET_DENSE_PLAIN };
  const guint64 latent = 7168 * 1536 + 1536 * 128 * 192 + 7168 * (512 + 64)
                         + 512 * 128 * (128 + 128) + 128 * 128 * 7168;
  PlanLayout layout;
  layout_with ("deepseek-v3,mtp=0", 64, "optim_grads_params", "fp8", &layout);
  const PlanBucket *b = layout.buckets;
  ck_assert_uint_eq (b[PLAN_BUCKET_LAYER].raw, latent + 3 * 7168 * 2048);
  ck_assert_uint_eq (b[PLAN_BUCKET_PLAIN].raw, 2 * 7168 + 1536 + 512 + 256 * 7168);
  ck_assert_uint_eq (b[PLAN_BUCKET_DENSE].raw, latent + 3 * 7168 * 18432);
  ck_assert_uint_eq (b[PLAN_BUCKET_DENSE_PLAIN].raw, 2 * 7168 + 1536 + 512);
  ck_assert_int_eq (b[PLAN_BUCKET_PLAIN].units, 58);
  ck_assert_int_eq (b[PLAN_BUCKET_DENSE_PLAIN].units, 3);
  Plan plan;
  plan_init (&plan);
  ck_assert (plan_set (&plan, "param_gather", "fp8", NULL));
  const PlanStack *fsdp = plan_stack_of (&plan, PLAN_DEVICE_GPU, NULL);
  for (guint i = 0; i < G_N_ELEMENTS (products); i++)
    ck_assert (plan_layout_quantises (products[i], fsdp, &plan));
  for (guint i = 0; i < G_N_ELEMENTS (plain); i++)
    ck_assert (!plan_layout_quantises (plain[i], fsdp, &plan));
  ck_assert (plan_set (&plan, "stack", "megatron", NULL)
             && plan_set (&plan, "param_gather", "mxfp8", NULL)
             && plan_set (&plan, "task", "train", NULL));
  const PlanStack *ddp = plan_stack_of (&plan, PLAN_DEVICE_GPU, NULL);
  for (guint i = 0; i < G_N_ELEMENTS (products); i++)
    ck_assert (plan_layout_lends_grads (products[i], ddp, &plan)
               && !plan_layout_quantises (products[i], ddp, &plan));
  for (guint i = 0; i < G_N_ELEMENTS (plain); i++)
    ck_assert (!plan_layout_lends_grads (plain[i], ddp, &plan));
}
END_TEST

/* The communication unit by megatron_fsdp.py, line 421: two units without padding where weights are
 * sharded, but not below 10^9. */
START_TEST (communication_unit_has_a_floor)
{
  static const struct
  {
    const char *model, *words;
    gint64 elements;
  } rows[] = {
    { "llama3-8b", "strategy=optim_grads_params", 1000000000 },
    { "llama3-70b", "strategy=optim_grads_params", 2 * 855654400 },
    { "llama3-70b", "strategy=optim_grads", 1000000000 },
    { "llama3-70b", "strategy=optim", 1000000000 },
    { "llama3-70b", "strategy=optim_grads comm_unit=5", 5 },
    { "llama3-70b", "strategy=optim_grads stack=native", 2 * 855654400 },
  };
  g_autoptr (PlanModel) model = plan_model_new (rows[_i].model, NULL);
  g_auto (GStrv) words = g_strsplit (rows[_i].words, " ", -1);
  Plan plan;
  PlanLayout layout;
  plan_init (&plan);
  for (guint i = 0; words[i]; i++)
    {
      g_auto (GStrv) parts = g_strsplit (words[i], "=", 2);
      ck_assert (plan_set (&plan, parts[0], parts[1], NULL));
    }
  const PlanStack *stack = plan_stack_of (&plan, PLAN_DEVICE_GPU, NULL);
  plan_layout_init (&layout, model, stack, &plan, 64);
  ck_assert_int_eq (plan_layout_comm_unit (&layout, stack, &plan), rows[_i].elements);
}
END_TEST

/* The 405B model as first published, with 16 key-value heads (today it has 8), as in the table
 * below. */
#define LLAMA_405B \
  "family=llama,layers=126,hidden=16384,ffn=53248,heads=128,kv_heads=16,head_dim=128," \
  "vocab=128256,max_seq=8192"

/* Padding of a layer in per cent, by the framework's own packing rule. */
START_TEST (padding_grows_with_the_group)
{
  static const struct
  {
    const char *model;
    gint64 ranks;
    double percent, tolerance;
  } rows[] = {
    { "llama3-8b", 8, 0.01, 0.005 },   { "llama3-8b", 64, 0.12, 0.005 },
    { "llama3-8b", 512, 0.96, 0.005 }, { "llama3-8b", 1024, 7.7, 0.05 },
    { "llama3-8b", 2048, 7.7, 0.05 },  { "llama3-70b", 8, 0.04, 0.005 },
    { "llama3-70b", 64, 0.37, 0.005 }, { "llama3-70b", 512, 2.9, 0.05 },
    { "llama3-70b", 1024, 2.9, 0.05 }, { "llama3-70b", 2048, 9.8, 0.05 },
    { LLAMA_405B, 8, 0.03, 0.005 },    { LLAMA_405B, 64, 0.29, 0.005 },
    { LLAMA_405B, 512, 1.6, 0.05 },    { LLAMA_405B, 2048, 8.3, 0.05 },
  };
  for (guint i = 0; i < G_N_ELEMENTS (rows); i++)
    {
      PlanLayout layout;
      layout_of (rows[i].model, rows[i].ranks, "optim_grads_params", &layout);
      const PlanBucket *b = &layout.buckets[PLAN_BUCKET_LAYER];
      const double percent = 100.0 * ((double)b->padded / (double)b->raw - 1.0);
      ck_assert_msg (fabs (percent - rows[i].percent) <= rows[i].tolerance,
                     "%s on %d ranks: %.3f %%, not %.2f %%", rows[i].model, (int)rows[i].ranks,
                     percent, rows[i].percent);
    }
}
END_TEST

START_TEST (no_shard_has_no_padding)
{
  PlanLayout layout;
  guint64 all = 0;
  layout_of (LLAMA_8B, 1024, "no_shard", &layout);
  for (guint b = 0; b < PLAN_N_BUCKETS; b++)
    {
      ck_assert_uint_eq (layout.buckets[b].padded, layout.buckets[b].raw);
      all += layout.buckets[b].raw * (guint64)layout.buckets[b].units;
    }
  ck_assert_uint_eq (all, 32 * G_GUINT64_CONSTANT (218112000) + 2 * 128384 * 4096 + 4096);
}
END_TEST

/* "name@offset" of a bucket's parameters, in the order of offsets. */
static char *
list_slots (const PlanLayout *layout, PlanBucketKind kind)
{
  const guint n = layout->buckets[kind].n_slots;
  const PlanSlot *slots = layout->slots[kind];
  GString *text = g_string_new (NULL);
  guint64 from = 0;
  for (guint shown = 0; shown < n; shown++)
    {
      const PlanSlot *next = NULL;
      for (guint i = 0; i < n; i++)
        if (slots[i].offset >= from && (!next || slots[i].offset < next->offset))
          next = &slots[i];
      g_string_append_printf (text, "%s%s@%" G_GUINT64_FORMAT, shown ? " " : "", next->tensor.name,
                              next->offset);
      from = next->offset + next->tensor.rows * next->tensor.cols;
    }
  return g_string_free (text, FALSE);
}

#define QWEN3 \
  "family=qwen3,layers=2,hidden=1024,ffn=3072,heads=16,kv_heads=8,head_dim=128,vocab=1024," \
  "max_seq=64"
#define GPT2 "family=gpt2,layers=2,hidden=768,ffn=3072,heads=12,kv_heads=12,vocab=1024,max_seq=64"

static const struct
{
  const char *model, *stack, *strategy, *gather, *slots;
} places[] = {
  { LLAMA_8B, "megatron-fsdp", "optim_grads_params", "compute",
    "down@0 proj@58720256 attention_norm@75497472 "
    "qkv@75501568 gate_up@100667392 mlp_norm@218107904" },
  { LLAMA_8B, "native", "optim_grads_params", "compute",
    "down@0 proj@58720256 attention_norm@75497472 "
    "qkv@75501568 gate_up@100667392 mlp_norm@218107904" },
  { LLAMA_8B, "megatron", "optim", "fp8",
    "down@0 gate_up@58720256 "
    "qkv@176160768 proj@201326592" },
  { LLAMA_8B, "nanotron", "optim", "compute",
    "attention_norm@0 qkv@4096 proj@25169920 "
    "mlp_norm@41947136 gate_up@41951232 down@159391744" },
  { LLAMA_8B, "fsdp1", "optim_grads_params", "compute",
    "qkv@0 proj@25165824 gate_up@41943040 "
    "down@159383552 attention_norm@218103808 mlp_norm@218107904" },
  { LLAMA_8B, "fsdp2", "optim_grads_params", "compute",
    "qkv@0 proj@25165824 gate_up@41943040 "
    "down@159383552 attention_norm@218103808 mlp_norm@218107904" },
  { QWEN3, "megatron-fsdp", "optim_grads_params", "compute",
    "down@0 proj@3145728 qkv@5242880 gate_up@9437184 "
    "attention_norm@15728640 q_norm@15729664 k_norm@15729792 mlp_norm@15729920" },
  { QWEN3, "native", "optim_grads_params", "compute",
    "down@0 proj@3145728 qkv@5242880 gate_up@9437184 "
    "attention_norm@15728640 q_norm@15729664 k_norm@15729792 mlp_norm@15729920" },
  { QWEN3, "megatron", "optim", "fp8",
    "down@0 gate_up@3145728 "
    "qkv@9437184 proj@13631488" },
  { QWEN3, "nanotron", "optim", "compute",
    "attention_norm@0 qkv@1024 q_norm@4195328 k_norm@4195456 "
    "proj@4195584 mlp_norm@6292736 gate_up@6293760 down@12585216" },
  { QWEN3, "fsdp1", "optim_grads_params", "compute",
    "qkv@0 proj@4194304 q_norm@6291456 k_norm@6291584 "
    "gate_up@6291712 down@12583168 attention_norm@15728896 mlp_norm@15729920" },
  { QWEN3, "fsdp2", "optim_grads_params", "compute",
    "qkv@0 proj@4194304 q_norm@6291456 k_norm@6291584 "
    "gate_up@6291712 down@12583168 attention_norm@15728896 mlp_norm@15729920" },
  { GPT2, "megatron-fsdp", "optim_grads_params", "compute",
    "down@0 proj@2359296 qkv@2949120 gate_up@4718592 gate_up_bias@7077888 proj_bias@7080960 "
    "attention_norm@7081728 attention_norm_bias@7082496 qkv_bias@7083264 mlp_norm@7085568 "
    "mlp_norm_bias@7086336 down_bias@7087104" },
  { GPT2, "native", "optim_grads_params", "compute",
    "down@0 proj@2359296 qkv@2949120 gate_up@4718592 gate_up_bias@7077888 proj_bias@7080960 "
    "attention_norm@7081728 attention_norm_bias@7082496 qkv_bias@7083264 mlp_norm@7085568 "
    "mlp_norm_bias@7086336 down_bias@7087104" },
  { GPT2, "megatron", "optim", "fp8",
    "down@0 gate_up@2359296 "
    "qkv@4718592 proj@6488064" },
  { GPT2, "nanotron", "optim", "compute",
    "attention_norm@0 attention_norm_bias@768 qkv@1536 qkv_bias@1771008 proj@1773312 "
    "proj_bias@2363136 "
    "mlp_norm@2363904 mlp_norm_bias@2364672 gate_up@2365440 gate_up_bias@4724736 down@4727808 "
    "down_bias@7087104" },
  { GPT2, "fsdp1", "optim_grads_params", "compute",
    "qkv@0 qkv_bias@1769472 proj@1771776 proj_bias@2361600 gate_up@2362368 gate_up_bias@4721664 "
    "down@4724736 down_bias@7084032 attention_norm@7084800 attention_norm_bias@7085568 "
    "mlp_norm@7086336 mlp_norm_bias@7087104" },
  { GPT2, "fsdp2", "optim_grads_params", "compute",
    "qkv@0 qkv_bias@1769472 proj@1771776 proj_bias@2361600 gate_up@2362368 gate_up_bias@4721664 "
    "down@4724736 down_bias@7084032 attention_norm@7084800 attention_norm_bias@7085568 "
    "mlp_norm@7086336 mlp_norm_bias@7087104" },
};

/* Parameters of a layer lie in the order in which the stack's modules name them (backwards where it
 * fills buckets in that order), or by Megatron-FSDP's chunks. The offsets come from a script that
 * repeats the frameworks' own loops. */
START_TEST (parameters_lie_in_the_order_of_their_names)
{
  for (guint i = 0; i < G_N_ELEMENTS (places); i++)
    {
      PlanLayout layout;
      g_autoptr (PlanModel) model = plan_model_new (places[i].model, NULL);
      ck_assert_ptr_nonnull (model);
      Plan plan;
      plan_init (&plan);
      ck_assert (plan_set (&plan, "stack", places[i].stack, NULL));
      ck_assert (plan_set (&plan, "strategy", places[i].strategy, NULL));
      ck_assert (plan_set (&plan, "param_gather", places[i].gather, NULL));
      plan_layout_init (&layout, model, plan_stack_of (&plan, PLAN_DEVICE_GPU, NULL), &plan, 8);
      g_autofree char *slots = list_slots (&layout, PLAN_BUCKET_LAYER);
      ck_assert_str_eq (slots, places[i].slots);
    }
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("layout");
  TCase *tcase = tcase_create ("layout");
  tcase_add_test (tcase, shards_are_as_nccl_logged_them);
  tcase_add_test (tcase, layers_of_either_kind_are_quantised);
  tcase_add_test (tcase, biases_of_experts_stay_with_these);
  tcase_add_test (tcase, padding_grows_with_the_group);
  tcase_add_loop_test (tcase, communication_unit_has_a_floor, 0, 6);
  tcase_add_test (tcase, no_shard_has_no_padding);
  tcase_add_test (tcase, parameters_lie_in_the_order_of_their_names);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
