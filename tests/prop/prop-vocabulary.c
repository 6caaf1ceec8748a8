/* SPDX-License-Identifier: Apache-2.0 */
/* Clusters and plans: what is printed reads back as the same value. The loop's index is the seed.
 */
#include "config.h"

#include "planner/base/units.h"
#include "planner/cluster/cluster.h"
#include "planner/model/model.h"
#include "planner/plan/plan.h"
#include "planner/plan/rules.h"

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

/* A number of few digits or of all, over many magnitudes. */
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

/* A fact's text in base units. */
static char *
random_fact (GRand *rand, PlanFact fact)
{
  const char *unit = plan_fact_unit (fact);
  if (plan_fact_is_answer (fact))
    return g_strdup (g_rand_boolean (rand) ? "yes" : "no");
  if (fact == PLAN_FACT_COMPUTE_CAPABILITY)
    return g_strdup_printf ("%d.%d", g_rand_int_range (rand, 1, 100),
                            g_rand_int_range (rand, 0, 10));
  if (*unit == '\0')
    return g_strdup_printf ("%d", g_rand_int_range (rand, 1, 1000001));
  if (g_str_equal (unit, "ns"))
    return g_strdup_printf ("%d ns", g_rand_int_range (rand, 1, 1000000001));
  if (g_str_equal (unit, "W"))
    return g_strdup_printf ("%d W", g_rand_int_range (rand, 1, 1000001));
  if (g_str_equal (unit, "B"))
    return g_strdup_printf ("%" G_GUINT64_FORMAT " B", (guint64)random_real (rand, 1, 1e15));
  g_autofree char *number = plan_units_format_real (random_real (rand, 1e-3, 1e15));
  return g_strdup_printf ("%s %s", number, unit);
}

/* Any facts, with any sources, that do not contradict one another. */
static PlanCluster *
random_cluster (GRand *rand)
{
  static const char *const sources[]
      = { "a; b", " led by a space", "tab\there\nline \\ #", "\u00e9" };
  static const char *const fact_sources[] = { NULL, NULL, "a; b", "x # y\tz", "assumed: \\s" };
  PlanCluster *cluster = g_new0 (PlanCluster, 1);
  cluster->name = random_name (rand);
  cluster->device_name = random_name (rand);
  cluster->source = g_strdup (sources[g_rand_int_range (rand, 0, G_N_ELEMENTS (sources))]);
  cluster->nodes = up_to (rand, 1000000);
  cluster->devices_per_node = up_to (rand, 4096);
  cluster->kind = g_rand_boolean (rand) ? PLAN_DEVICE_GPU : PLAN_DEVICE_CPU;
  for (PlanFact f = 0; f < PLAN_N_FACTS; f++)
    {
      g_autofree char *text = random_fact (rand, f);
      const char *source = fact_sources[g_rand_int_range (rand, 0, G_N_ELEMENTS (fact_sources))];
      if (g_rand_boolean (rand) && !plan_cluster_set_fact (cluster, f, text, source, NULL))
        g_error ("%s=%s", plan_fact_key (f), text);
    }
  if (cluster->memory_nominal_bytes > 0)
    cluster->memory_nominal_bytes = MAX (cluster->memory_nominal_bytes, cluster->memory_bytes);
  if (cluster->nvlink_domain > 0)
    cluster->nvlink_domain = cluster->devices_per_node * up_to (rand, 100);
  cluster->nic_sharers = MIN (cluster->nic_sharers, cluster->devices_per_node);
  cluster->far_devices = MIN (cluster->far_devices, cluster->devices_per_node);
  if (cluster->nic_bytes_per_s > 0)
    cluster->nics_per_node = 0;
  return cluster;
}

static void
check_same_facts (int seed, const PlanCluster *a, const PlanCluster *b, gboolean exactly)
{
  for (PlanFact f = 0; f < PLAN_N_FACTS; f++)
    {
      if (!exactly && !plan_cluster_knows (a, f))
        continue;
      ck_assert_msg (plan_cluster_knows (a, f) == plan_cluster_knows (b, f)
                         && plan_cluster_value (a, f) == plan_cluster_value (b, f),
                     "seed %d: %s: %g is not %g", seed, plan_fact_key (f),
                     plan_cluster_value (a, f), plan_cluster_value (b, f));
      ck_assert_str_eq (plan_cluster_source_of (a, f), plan_cluster_source_of (b, f));
    }
}

/* Reading may add what follows from the facts; reading again adds nothing. */
START_TEST (cluster_reads_back)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  g_autoptr (PlanCluster) raw = random_cluster (rand);
  g_autofree char *raw_text = plan_cluster_print (raw);
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanCluster) a = plan_cluster_parse (raw_text, "raw.ini", &error);
  ck_assert_msg (a != NULL, "seed %d: %s", _i, error ? error->message : "");
  g_autofree char *text = plan_cluster_print (a);
  g_autoptr (PlanCluster) b = plan_cluster_parse (text, "c.ini", &error);
  ck_assert_msg (b != NULL, "seed %d: %s", _i, error ? error->message : "");
  check_same_facts (_i, raw, a, FALSE);
  check_same_facts (_i, a, b, TRUE);
  ck_assert_str_eq (raw->name, b->name);
  ck_assert_str_eq (raw->source, b->source);
  ck_assert_str_eq (raw->device_name, b->device_name);
  ck_assert (raw->nodes == b->nodes && raw->devices_per_node == b->devices_per_node);
  ck_assert (raw->kind == b->kind);
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

/* A resolved plan resolves to itself, and its sizes multiply to the batch; a refusal names its
 * rule.
 */
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
