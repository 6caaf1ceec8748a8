/* SPDX-License-Identifier: Apache-2.0 */
/* Buckets of parameters, compared with the loop by which frameworks fill theirs. */
#include "config.h"

#include "planner/layout/buckets.h"
#include "planner/layout/layout.h"
#include "tests/unit/test-names.h"

#include <check.h>
#include <stdlib.h>

/* Fills a bucket as the loop of a framework would. */
static guint32 *
fill (const GArray *all, const PlanBucketRule *rule, gboolean is_tied, guint32 *out_n)
{
  guint32 *number = g_new (guint32, all->len);
  guint64 filled = 0;
  *out_n = 0;
  for (guint k = 0; k < all->len; k++)
    {
      const guint i = rule->is_backwards ? all->len - 1 - k : k;
      const TestNamed *one = &g_array_index (all, TestNamed, i);
      number[i] = *out_n;
      filled += one->elements;
      if (filled >= rule->closes_at
          || (rule->parts_shared && is_tied && one->role == PLAN_TENSOR_EMBEDDING))
        {
          filled = 0;
          ++*out_n;
        }
    }
  *out_n += filled > 0 ? 1 : 0;
  return number;
}

static PlanModel *
any_model (GRand *rand)
{
  static const char *const families[]
      = { "llama", "qwen2", "qwen3", "gpt2", "gpt_neox", "mpt", "gpt2,embed_norm=on" };
  g_autofree char *spec = g_strdup_printf (
      "family=%s,layers=%d,hidden=%d,ffn=%d,heads=4,kv_heads=4,head_dim=16,vocab=%d,max_seq=64",
      families[g_rand_int_range (rand, 0, G_N_ELEMENTS (families))], g_rand_int_range (rand, 1, 12),
      64 * g_rand_int_range (rand, 1, 5), 64 * g_rand_int_range (rand, 1, 12),
      g_rand_int_range (rand, 10, 3000));
  PlanModel *model = plan_model_new (spec, NULL);
  ck_assert_ptr_nonnull (model);
  return model;
}

static gint64
layer_at (const PlanBuckets *buckets, guint at)
{
  gint64 layer;
  plan_buckets_tensor (buckets, at, &layer);
  return layer;
}

START_TEST (buckets_are_those_of_the_loop)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  g_autoptr (PlanModel) model = any_model (rand);
  g_auto (PlanBuckets) buckets = { 0 };
  const PlanBucketRule rule = { .closes_at = (guint64)g_rand_int_range (rand, 1, 400000),
                                .is_backwards = g_rand_boolean (rand),
                                .parts_shared = g_rand_boolean (rand),
                                .vocab = model->vocab,
                                .tp = 1,
                                .packing = { .packing = (PlanPacking)g_rand_int_range (rand, 0, 2),
                                             .shards = (guint64)g_rand_int_range (rand, 1, 9),
                                             .multiple = 128 } };
  guint32 n;
  g_autoptr (GArray) all = test_name_all (model, model->vocab);
  g_autofree guint32 *number = fill (all, &rule, model->tied_embeddings, &n);
  plan_buckets_init (&buckets, model, &rule);
  ck_assert_uint_eq (buckets.n, n);
  ck_assert_uint_eq (buckets.n_all, all->len);
  for (guint i = 0; i < all->len; i++)
    {
      gint64 layer;
      const PlanTensor *tensor = plan_buckets_tensor (&buckets, i, &layer);
      const TestNamed *one = &g_array_index (all, TestNamed, i);
      ck_assert_msg (tensor->role == one->role && layer == one->layer, "seed %d: parameter %u", _i,
                     i);
      ck_assert_msg (buckets.number[i] == number[i], "seed %d: parameter %u in %u, not %u", _i, i,
                     buckets.number[i], number[i]);
      const PlanBucketSpan *span = &buckets.spans[number[i]];
      ck_assert (span->first <= i && i < span->first + span->n);
      ck_assert_int_eq (span->unit,
                        plan_bucket_is_unit (span->kind) ? layer_at (&buckets, span->first) : 0);
      const guint64 end = buckets.offset[i] + tensor->rows * tensor->cols;
      ck_assert_uint_le (end, buckets.padded[span->kind]);
      ck_assert_uint_eq (buckets.padded[span->kind] % rule.packing.shards, 0);
      for (guint j = span->first; j < i; j++) /* no two parameters overlap */
        {
          const PlanTensor *other = plan_buckets_tensor (&buckets, j, &layer);
          ck_assert (buckets.offset[j] >= end
                     || buckets.offset[j] + other->rows * other->cols <= buckets.offset[i]);
        }
    }
}
END_TEST

/* Checks that what a layout says of a bucket, by offset, agrees with the bucket's span. */
static void
holds_its_span (const PlanLayout *layout, const PlanBuckets *buckets, const PlanBucketSpan *span)
{
  g_autoptr (GArray) slots = plan_layout_slots (layout, buckets, span->kind);
  guint64 end = 0;
  ck_assert_uint_eq (slots->len, span->n);
  for (guint i = 0; i < slots->len; i++)
    {
      const PlanSlot *slot = &g_array_index (slots, PlanSlot, i);
      const guint at = plan_buckets_find (buckets, slot->tensor.role, span->unit + slot->layer);
      ck_assert_uint_ge (slot->offset, end);
      end = slot->offset + slot->tensor.rows * slot->tensor.cols;
      ck_assert (at >= span->first && at < span->first + span->n);
      ck_assert_uint_eq (slot->offset, buckets->offset[at]);
    }
  ck_assert_uint_le (end, layout->buckets[span->kind].padded);
}

/* A layout's kinds hold every parameter; buckets of one kind hold the same parameters at the same
 * offsets, of layers that are that kind's distance apart; and a cycle repeats as it says. */
START_TEST (kinds_are_alike)
{
  static const char *const models[] = { "gpt2", "gpt2-xl", "llama3.2-1b", "llama3-8b" };
  g_autoptr (PlanModel) model = plan_model_new (models[_i % 4], NULL);
  g_auto (PlanBuckets) buckets = { 0 };
  PlanLayout layout;
  Plan plan;
  plan_init (&plan);
  ck_assert (plan_set (&plan, "stack", _i % 8 < 4 ? "megatron" : "megatron-fsdp", NULL));
  ck_assert (plan_set (&plan, "strategy", "no_shard", NULL));
  const PlanStack *stack = plan_stack_of (&plan, PLAN_DEVICE_GPU, NULL);
  plan_layout_init (&layout, model, stack, &plan, 1 << (_i / 4));
  ck_assert (layout.by_size);
  ck_assert_uint_eq (layout.rule.closes_at,
                     MAX (G_GUINT64_CONSTANT (40000000), G_GUINT64_CONSTANT (1000000) << (_i / 4)));
  plan_buckets_init (&buckets, model, &layout.rule);
  guint64 elements = 0;
  for (PlanBucketKind kind = 0; kind < PLAN_N_BUCKETS; kind++)
    elements += layout.buckets[kind].raw * (guint64)layout.buckets[kind].units;
  const guint64 vocab = (guint64)(layout.rule.vocab - model->vocab);
  ck_assert_uint_eq (elements,
                     plan_model_parameters (model)
                         + vocab * (guint64)model->hidden * (model->tied_embeddings ? 1 : 2));
  for (guint one = 0; one < buckets.n; one++)
    for (guint other = one + 1; other < buckets.n; other++)
      {
        const PlanBucketSpan *s = &buckets.spans[one], *t = &buckets.spans[other];
        if (s->kind != t->kind)
          continue;
        ck_assert_uint_eq (s->n, t->n);
        for (guint i = 0; i < s->n; i++)
          {
            gint64 layer, behind;
            const PlanTensor *tensor = plan_buckets_tensor (&buckets, s->first + i, &layer);
            ck_assert_int_eq (tensor->role,
                              plan_buckets_tensor (&buckets, t->first + i, &behind)->role);
            ck_assert_int_eq (layer - s->unit, behind - t->unit);
            ck_assert_uint_eq (buckets.offset[s->first + i], buckets.offset[t->first + i]);
          }
      }
  for (guint number = 0; number < buckets.n; number++)
    holds_its_span (&layout, &buckets, &buckets.spans[number]);
  const PlanBucketCycle cycle = plan_buckets_cycle (&buckets);
  for (guint i = 0; i < cycle.n * cycle.count; i++)
    {
      const PlanBucketSpan *s = &buckets.spans[cycle.from + i];
      const PlanBucketSpan *t = &buckets.spans[cycle.from + i % cycle.n];
      ck_assert_int_eq (s->kind, t->kind);
      ck_assert_int_eq (s->unit - t->unit, cycle.step * (gint64)(i / cycle.n));
    }
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("buckets");
  TCase *tcase = tcase_create ("buckets");
  tcase_add_loop_test (tcase, buckets_are_those_of_the_loop, 0, 300);
  tcase_add_loop_test (tcase, kinds_are_alike, 0, 48);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
