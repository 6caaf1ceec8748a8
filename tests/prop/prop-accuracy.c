/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics of errors: figures worked out by hand, and a reference that goes over everything again
 * for every figure. */
#include "config.h"

#include "planner/runs/accuracy.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>

#define MAX_SAMPLES 60
#define NEAR 1e-9

/* Errors +10, +30 (repeats: +20, |20|) and -40 % in group 0, whose median is 30; -2 % in group 1.
 * Repeats were measured as 100 and 110 / 1.3 = 84.615: 92.308 in the middle, 7.692 from it. */
START_TEST (figures_worked_out_by_hand)
{
  static const PlanSample samples[]
      = { { 0, 0, 110, 100 }, { 0, 0, 110, 110 / 1.3 }, { 0, 1, 60, 100 }, { 1, 0, 980, 1000 } };
  PlanAccuracy a;
  plan_accuracy_measure (samples, G_N_ELEMENTS (samples), &a);
  ck_assert_uint_eq (a.n, 2);
  ck_assert_uint_eq (a.n_configurations, 3);
  ck_assert_uint_eq (a.n_rows, 4);
  ck_assert_double_eq_tol (a.mean_abs_pct, 16, NEAR);
  ck_assert_double_eq_tol (a.median_abs_pct, 16, NEAR);
  ck_assert_double_eq_tol (a.p90_abs_pct, 30, NEAR);
  ck_assert_double_eq_tol (a.max_abs_pct, 30, NEAR);
  ck_assert_double_eq_tol (a.bias_pct, -6, NEAR);
  ck_assert_uint_eq (a.n_repeated, 1);
  ck_assert_double_eq_tol (a.noise_pct, 100 / 12.0, 1e-6);
  ck_assert_double_eq_tol (a.mean_abs, ((10 + 110 - 110 / 1.3) / 2 / 2 + 20 + 20) / 2, NEAR);
  ck_assert_double_eq_tol (a.within_pct, 100, NEAR);
}
END_TEST

/* Three rows want 2, 2 and 5 times what is predicted; those who want 2 are the majority. */
START_TEST (the_best_factor_is_a_median)
{
  static const PlanSample samples[] = { { 0, 0, 10, 20 }, { 1, 0, 30, 60 }, { 2, 0, 1, 5 } };
  ck_assert_double_eq_tol (plan_accuracy_best_scale (samples, 3), 2, NEAR);
  ck_assert_double_eq (plan_accuracy_best_scale (samples, 0), 0);
}
END_TEST

/* Predictions choose the second of question 0, 120 against 100 of the best; it was measured twice.
 * What is fastest does not fit. Question 1 has no choice. Blindly: (100 + 120 + 200) / 3. */
START_TEST (regret_worked_out_by_hand)
{
  static const PlanCandidate candidates[] = { { 0, 0, TRUE, 90, 100 },
                                              { 0, 1, TRUE, 80, 110 },
                                              { 0, 1, TRUE, 80, 130 },
                                              { 0, 2, FALSE, 10, 200 },
                                              { 1, 0, TRUE, 5, 5 } };
  PlanRegret r;
  plan_accuracy_regret (candidates, G_N_ELEMENTS (candidates), &r);
  ck_assert_uint_eq (r.n, 1);
  ck_assert_uint_eq (r.n_best, 0);
  ck_assert_double_eq_tol (r.mean_pct, 20, NEAR);
  ck_assert_double_eq_tol (r.max_pct, 20, NEAR);
  ck_assert_double_eq_tol (r.blind_pct, 40, NEAR);
}
END_TEST

static guint
random_samples (guint seed, PlanSample *out)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (seed);
  const guint n = (guint)g_rand_int_range (rand, 0, MAX_SAMPLES);
  const gint n_groups = g_rand_int_range (rand, 1, 12);
  for (guint i = 0; i < n; i++)
    out[i] = (PlanSample){ .group = (guint)g_rand_int_range (rand, 0, n_groups),
                           .configuration = (guint)g_rand_int_range (rand, 0, 4),
                           .predicted = g_rand_double_range (rand, 1, 1000),
                           .measured = g_rand_double_range (rand, 1, 1000) };
  return n;
}

/* The value with as many below as above; of two in the middle their mean. */
static double
slow_median (const double *values, guint n)
{
  double below = -INFINITY, above = INFINITY;
  for (guint i = 0; i < n; i++)
    {
      guint less = 0, equal = 0;
      for (guint j = 0; j < n; j++)
        {
          less += values[j] < values[i];
          equal += values[j] == values[i];
        }
      if (less <= (n - 1) / 2 && less + equal > (n - 1) / 2)
        below = values[i];
      if (less <= n / 2 && less + equal > n / 2)
        above = values[i];
    }
  return (below + above) / 2;
}

/* The median error of the repeats of one configuration of a group, if there are any. */
static double
slow_configuration (const PlanSample *s, guint n, guint group, guint configuration, gboolean is_abs,
                    gboolean *out_is_there)
{
  double errors[MAX_SAMPLES];
  guint found = 0;
  for (guint i = 0; i < n; i++)
    if (s[i].group == group && s[i].configuration == configuration)
      {
        const double error = 100 * (s[i].predicted - s[i].measured) / s[i].measured;
        errors[found++] = is_abs ? fabs (error) : error;
      }
  *out_is_there = found > 0;
  return found > 0 ? slow_median (errors, found) : 0;
}

/* The median error of each group's configurations; returns how many groups have samples. */
static guint
slow_groups (const PlanSample *s, guint n, gboolean is_abs, double *out)
{
  guint n_groups = 0;
  for (guint group = 0; group < 12; group++)
    {
      double errors[4];
      guint found = 0;
      for (guint configuration = 0; configuration < 4; configuration++)
        {
          gboolean is_there;
          errors[found] = slow_configuration (s, n, group, configuration, is_abs, &is_there);
          found += is_there;
        }
      if (found > 0)
        out[n_groups++] = slow_median (errors, found);
    }
  return n_groups;
}

START_TEST (statistics_equal_a_stupid_reference)
{
  PlanSample samples[MAX_SAMPLES];
  double abs_errors[12], errors[12], sum = 0, bias = 0, most = 0;
  const guint n = random_samples ((guint)_i, samples);
  const guint n_groups = slow_groups (samples, n, TRUE, abs_errors);
  PlanAccuracy a;
  slow_groups (samples, n, FALSE, errors);
  plan_accuracy_measure (samples, n, &a);
  ck_assert_uint_eq (a.n, n_groups);
  if (n_groups == 0)
    return;
  double p90 = INFINITY;
  for (guint i = 0; i < n_groups; i++)
    {
      guint not_above = 0;
      for (guint j = 0; j < n_groups; j++)
        not_above += abs_errors[j] <= abs_errors[i];
      if (10 * not_above >= 9 * n_groups)
        p90 = MIN (p90, abs_errors[i]);
      sum += abs_errors[i];
      bias += errors[i];
      most = MAX (most, abs_errors[i]);
    }
  ck_assert_double_eq_tol (a.mean_abs_pct, sum / n_groups, NEAR * sum);
  ck_assert_double_eq_tol (a.bias_pct, bias / n_groups, NEAR * sum);
  ck_assert_double_eq_tol (a.median_abs_pct, slow_median (abs_errors, n_groups), NEAR * sum);
  ck_assert_double_eq_tol (a.p90_abs_pct, p90, NEAR * sum);
  ck_assert_double_eq_tol (a.max_abs_pct, most, NEAR * sum);
}
END_TEST

static double
cost_of_scale (const PlanSample *s, guint n, double scale)
{
  double cost = 0;
  for (guint i = 0; i < n; i++)
    {
      guint size = 0;
      for (guint j = 0; j < n; j++)
        size += s[j].group == s[i].group;
      cost += fabs (scale * s[i].predicted - s[i].measured) / s[i].measured / size;
    }
  return cost;
}

/* The cost is least at one row's own factor, since it is convex and bends only there. */
START_TEST (no_other_factor_is_better)
{
  PlanSample samples[MAX_SAMPLES];
  const guint n = random_samples ((guint)_i, samples);
  const double best = cost_of_scale (samples, n, plan_accuracy_best_scale (samples, n));
  for (guint i = 0; i < n; i++)
    ck_assert_double_le (
        best, cost_of_scale (samples, n, samples[i].measured / samples[i].predicted) + NEAR);
}
END_TEST

/* Order, and repeating a row, change nothing. */
START_TEST (order_and_repeats_do_not_matter)
{
  PlanSample samples[MAX_SAMPLES], again[2 * MAX_SAMPLES];
  const guint n = random_samples ((guint)_i, samples);
  PlanAccuracy a, b;
  for (guint i = 0; i < n; i++)
    again[2 * i] = again[2 * i + 1] = samples[n - 1 - i];
  plan_accuracy_measure (samples, n, &a);
  plan_accuracy_measure (again, 2 * n, &b);
  ck_assert_uint_eq (a.n, b.n);
  ck_assert_double_eq (a.mean_abs_pct, b.mean_abs_pct);
  ck_assert_double_eq (a.bias_pct, b.bias_pct);
  ck_assert_double_eq (a.p90_abs_pct, b.p90_abs_pct);
}
END_TEST

/* Against tables of Student's t with four degrees of freedom, and the density summed up. */
START_TEST (the_law_of_errors)
{
  static const double table[][2]
      = { { 0.5, 0 }, { 0.75, 0.741 }, { 0.9, 1.533 }, { 0.95, 2.132 }, { 0.99, 3.747 } };
  double sum = 0.5;
  for (guint i = 0; i < G_N_ELEMENTS (table); i++)
    {
      ck_assert_double_eq_tol (plan_accuracy_below_share (table[i][0]), table[i][1], 1e-3);
      ck_assert_double_eq_tol (plan_accuracy_below_share (1 - table[i][0]), -table[i][1], 1e-3);
    }
  for (double z = 0; z < 6; z += 1e-3)
    {
      ck_assert_double_eq_tol (plan_accuracy_share_below (z), sum, 1e-6);
      ck_assert_double_eq_tol (plan_accuracy_below_share (sum), z, 1e-3);
      sum += 1e-3 * 0.375 * pow (1 + (z + 5e-4) * (z + 5e-4) / 4, -2.5);
    }
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("accuracy");
  TCase *tcase = tcase_create ("accuracy");
  tcase_add_test (tcase, figures_worked_out_by_hand);
  tcase_add_test (tcase, the_best_factor_is_a_median);
  tcase_add_test (tcase, regret_worked_out_by_hand);
  tcase_add_loop_test (tcase, statistics_equal_a_stupid_reference, 0, 200);
  tcase_add_loop_test (tcase, no_other_factor_is_better, 0, 200);
  tcase_add_loop_test (tcase, order_and_repeats_do_not_matter, 0, 50);
  tcase_add_test (tcase, the_law_of_errors);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
