/* SPDX-License-Identifier: Apache-2.0 */
/* Clusters and plans: what is printed reads back as the same value. The loop's index is the seed.
 */
#include "config.h"

#include "planner/cluster.h"
#include "planner/model.h"
#include "planner/plan.h"
#include "planner/rules.h"
#include "planner/units.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define N_SEEDS 300

static gint64
up_to (GRand *rand, gint32 max)
{
  return g_rand_int_range (rand, 1, max + 1);
}

/* Few digits now, all of them then, over many magnitudes. */
static double
random_real (GRand *rand, double low, double high)
{
  const double value = low * pow (high / low, g_rand_double (rand));
  if (g_rand_boolean (rand))
    return value;
  char digits[G_ASCII_DTOSTR_BUF_SIZE];
  const double rounded
      = g_ascii_strtod (g_ascii_formatd (digits, sizeof digits, "%.3g", value), NULL);
  return CLAMP (rounded, low, high);
}

static char *
random_name (GRand *rand)
{
  static const char letters[] = "abcXYZ019._+-";
  char *name = g_strnfill ((gsize)up_to (rand, 12), 'a');
  for (char *c = name; *c; c++)
    *c = letters[g_rand_int_range (rand, 0, sizeof letters - 1)];
  return name;
}

static PlanCluster *
random_cluster (GRand *rand)
{
  static const char *const sources[]
      = { "a; b", " led by a space", "tab\there\nline \\ #", "\u00e9" };
  PlanCluster *cluster = g_new0 (PlanCluster, 1);
  cluster->name = random_name (rand);
  cluster->device_name = random_name (rand);
  cluster->source = g_strdup (sources[g_rand_int_range (rand, 0, G_N_ELEMENTS (sources))]);
  cluster->nodes = up_to (rand, 1000000);
  cluster->devices_per_node = up_to (rand, 4096);
  cluster->kind = g_rand_boolean (rand) ? PLAN_DEVICE_GPU : PLAN_DEVICE_CPU;
  for (guint i = 0; i < PLAN_N_DTYPES; i++)
    if (g_rand_boolean (rand))
      cluster->peak_flops[i] = random_real (rand, 1e-3, 1e20);
  cluster->memory_bytes = (guint64)random_real (rand, 1, 1e15);
  if (g_rand_boolean (rand))
    cluster->memory_bytes_per_s = random_real (rand, 1e-3, 1e15);
  if (g_rand_boolean (rand))
    cluster->link_bytes_per_s = random_real (rand, 1, 1e13);
  if (g_rand_boolean (rand))
    cluster->nic_bytes_per_s = random_real (rand, 1, 1e13);
  cluster->link_latency_ns = g_rand_int_range (rand, 0, 1000000000);
  cluster->nic_latency_ns = g_rand_int_range (rand, 0, 10000) * 100;
  return cluster;
}

START_TEST (cluster_reads_back)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  g_autoptr (PlanCluster) a = random_cluster (rand);
  g_autofree char *text = plan_cluster_print (a);
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanCluster) b = plan_cluster_parse (text, "c.ini", &error);
  ck_assert_msg (b != NULL, "seed %d: %s", _i, error ? error->message : "");
  ck_assert_str_eq (a->name, b->name);
  ck_assert_str_eq (a->source, b->source);
  ck_assert_str_eq (a->device_name, b->device_name);
  ck_assert (a->nodes == b->nodes && a->devices_per_node == b->devices_per_node);
  ck_assert (a->kind == b->kind && a->memory_bytes == b->memory_bytes);
  for (guint i = 0; i < PLAN_N_DTYPES; i++)
    ck_assert_msg (a->peak_flops[i] == b->peak_flops[i], "seed %d: %s", _i, text);
  ck_assert (a->memory_bytes_per_s == b->memory_bytes_per_s);
  ck_assert (a->link_bytes_per_s == b->link_bytes_per_s);
  ck_assert (a->nic_bytes_per_s == b->nic_bytes_per_s);
  ck_assert (a->link_latency_ns == b->link_latency_ns && a->nic_latency_ns == b->nic_latency_ns);
}
END_TEST

/* A text that could be some field's value. */
static char *
random_value (GRand *rand, PlanField field)
{
  const char *const *names = plan_field_names (field);
  if (names)
    {
      const guint n = g_strv_length ((GStrv)names);
      const char *first = names[g_rand_int_range (rand, 0, (gint32)n)];
      const char *second = names[g_rand_int_range (rand, 0, (gint32)n)];
      switch (g_rand_int_range (rand, 0, 4))
        {
        case 0:
          return g_strdup_printf ("%s@20%02d-%02d-%02d", first, (int)up_to (rand, 99),
                                  (int)up_to (rand, 12), (int)up_to (rand, 28));
        case 1:
          return g_strdup_printf ("%s+%s", first, second);
        default:
          return g_strdup (first);
        }
    }
  switch (g_rand_int_range (rand, 0, 4))
    {
    case 0:
      return g_strdup ("auto");
    case 1:
      return g_strdup_printf ("%d.%d", (int)up_to (rand, 20) - 1, (int)up_to (rand, 999999));
    default:
      return g_strdup_printf ("%d", 1 << g_rand_int_range (rand, 0, 8));
    }
}

static void
random_plan (GRand *rand, guint changes, Plan *out)
{
  plan_init (out);
  for (guint i = 0; i < changes; i++)
    {
      const PlanField field = (PlanField)g_rand_int_range (rand, 0, PLAN_N_FIELDS);
      g_autofree char *value = random_value (rand, field);
      plan_set (out, plan_field_name (field), value, NULL); /* what it refuses stays as it was */
    }
}

START_TEST (plan_reads_back)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  g_autoptr (GError) error = NULL;
  Plan plan, again;
  random_plan (rand, 40, &plan);
  g_autofree char *text = plan_print (&plan);
  ck_assert_msg (plan_parse (text, "p", &again, &error), "seed %d: %s", _i,
                 error ? error->message : "");
  ck_assert_mem_eq (&plan, &again, sizeof plan);
  g_autofree char *hash = plan_hash (&plan), *hash_again = plan_hash (&again);
  ck_assert_str_eq (hash, hash_again);
}
END_TEST

START_TEST (hash_tells_plans_apart)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  Plan a, b;
  random_plan (rand, 10, &a);
  random_plan (rand, 10, &b);
  g_autofree char *hash_a = plan_hash (&a), *hash_b = plan_hash (&b);
  ck_assert (g_str_equal (hash_a, hash_b) == (memcmp (&a, &b, sizeof a) == 0));
}
END_TEST

/* A resolved plan leaves nothing open that has a size, resolves to itself and prints; a refusal
 * names its rule. */
START_TEST (resolving_settles)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  g_autoptr (PlanModel) model = plan_model_new ("llama3-8b", NULL);
  g_autoptr (PlanCluster) cluster = plan_cluster_new ("dgx-b200:4", NULL);
  g_autoptr (GError) error = NULL;
  Plan plan, resolved, again;
  random_plan (rand, (guint)up_to (rand, 4), &plan);
  plan.value[PLAN_GBS] = 1024;
  if (!plan_resolve (&plan, model, cluster, &resolved, &error))
    {
      ck_assert_msg (g_str_has_prefix (error->message, "rule "), "seed %d: %s", _i, error->message);
      return;
    }
  ck_assert (plan_resolve (&resolved, model, cluster, &again, NULL));
  ck_assert_mem_eq (&resolved, &again, sizeof again);
  ck_assert_int_eq (plan_micro_batches (&resolved, cluster)
                        * plan_data_parallel (&resolved, cluster) * resolved.value[PLAN_MBS],
                    1024);
}
END_TEST

START_TEST (real_reads_back)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  for (guint i = 0; i < 100; i++)
    {
      const guint64 high = g_rand_int (rand), bits = high << 32 | g_rand_int (rand);
      double value, again;
      memcpy (&value, &bits, sizeof value);
      if (!isfinite (value))
        continue;
      g_autofree char *text = plan_units_format_real (value);
      ck_assert_msg (plan_units_parse_real (text, "x", -G_MAXDOUBLE, G_MAXDOUBLE, &again, NULL),
                     "seed %d: %s", _i, text);
      ck_assert_msg (value == again, "seed %d: %s", _i, text);
    }
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("vocabulary");
  TCase *tcase = tcase_create ("vocabulary");
  tcase_add_loop_test (tcase, cluster_reads_back, 0, N_SEEDS);
  tcase_add_loop_test (tcase, plan_reads_back, 0, N_SEEDS);
  tcase_add_loop_test (tcase, hash_tells_plans_apart, 0, N_SEEDS);
  tcase_add_loop_test (tcase, resolving_settles, 0, N_SEEDS);
  tcase_add_loop_test (tcase, real_reads_back, 0, N_SEEDS);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
