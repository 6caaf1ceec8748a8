/* SPDX-License-Identifier: Apache-2.0 */
/* Modes of a run on the fake device, compared with the CPU's. The plans together have each pair of
 * values that any legal plan has, of: ranks, strategy, compute format, recomputation or
 * offloading, the formats of main weights, gradients and their sums, and pieces of the loss; and
 * each triple of the three formats. */
#include "config.h"

#include "tests/case.h"
#include "tests/fake/cuda-case.h"
#include "tests/fake/cuda-fake.h"
#include "tests/share.h"

#include <stdlib.h>
#include <string.h>

#define MAX_VALUES 7
#define N 8
#define FIRST_FORMAT 4 /* the first of three formats */

static const char *const dimensions[N][MAX_VALUES] = {
  { "1", "2", "3", "4" },
  { "strategy=no_shard", "strategy=optim", "strategy=optim_grads", "strategy=optim_grads_params",
    "strategy=optim_grads_params dp_outer=2",
    "strategy=optim_grads_params dp_outer=2 outer_strategy=optim" },
  { "compute=fp32", "compute=bf16", "compute=fp16", "compute=fp8-tensorwise", "compute=fp8-delayed",
    "compute=fp8-tensorwise param_gather=fp8", "compute=fp8-delayed param_gather=fp8" },
  { "recompute=none", "recompute=selective recompute_modules=core_attn",
    "recompute=selective recompute_modules=core_attn+mlp", "recompute=full", "offload_layers=1",
    "offload_optimizer=0.3 precision_aware=on" },
  { "main_params=fp32", "main_params=bf16", "main_params=fp16", "main_params=auto" },
  { "main_grads=fp32", "main_grads=bf16", "main_grads=fp16" },
  { "grad_comm=fp32", "grad_comm=bf16", "grad_comm=fp16" },
  { "loss_chunks=1", "loss_chunks=2", "loss_chunks=8 grad_accum_fusion=on" },
};

typedef struct
{
  guint digits[N];
} Point;

static GArray *points; /* of Point: the plans that are run */

static guint
n_values (guint dimension)
{
  guint n = 0;
  while (n < MAX_VALUES && dimensions[dimension][n])
    n++;
  return n;
}

static char *
fields_of (const Point *point)
{
  GString *fields = g_string_new ("deterministic=on");
  for (guint d = 1; d < N; d++)
    g_string_append_printf (fields, " %s", dimensions[d][point->digits[d]]);
  return g_string_free (fields, FALSE);
}

static guint
ranks_of (const Point *point)
{
  return (guint)atoi (dimensions[0][point->digits[0]]);
}

#define MODEL \
  "family=llama,layers=2,hidden=16,ffn=24,heads=2,kv_heads=1,head_dim=8,vocab=32,max_seq=16"

/* Whether no rule refuses the plan. */
static gboolean
is_legal (const PlanModel *model, PlanCluster *const *clusters, const Point *point)
{
  g_autofree char *fields = fields_of (point);
  Plan plan = test_plan ("stack=native seq=8"), resolved;
  plan.value[PLAN_GBS] = ranks_of (point);
  test_plan_set (&plan, fields);
  return plan_resolve (&plan, model, clusters[ranks_of (point)], &resolved, NULL);
}

/* The pairs and triples that chosen plans have. */
typedef struct
{
  gboolean pairs[N][MAX_VALUES][N][MAX_VALUES], triples[MAX_VALUES][MAX_VALUES][MAX_VALUES];
} Met;

static guint
count_new (Met *met, const Point *point, gboolean takes)
{
  const guint *formats = point->digits + FIRST_FORMAT;
  gboolean *has_triple = &met->triples[formats[0]][formats[1]][formats[2]];
  guint n = !*has_triple;
  *has_triple |= takes;
  for (guint a = 0; a < N; a++)
    for (guint b = a + 1; b < N; b++)
      {
        gboolean *is_met = &met->pairs[a][point->digits[a]][b][point->digits[b]];
        n += !*is_met;
        *is_met |= takes;
      }
  return n;
}

/* Steps to the next of all points, the first dimension fastest; FALSE past the last one. */
static gboolean
next_point (Point *point)
{
  for (guint d = 0; d < N; d++)
    {
      if (++point->digits[d] < n_values (d))
        return TRUE;
      point->digits[d] = 0;
    }
  return FALSE;
}

/* Chooses greedily: in each pass, points with at least so many new pairs and triples, fewer from
 * pass to pass. The last pass takes every point that has a new one, so every legal pair and triple
 * is covered. */
static void
choose_points (void)
{
  static Met met;
  PlanCluster *clusters[MAX_RANKS + 1] = { NULL };
  g_autoptr (PlanModel) model = plan_model_new (MODEL, NULL);
  points = g_array_new (FALSE, FALSE, sizeof (Point));
  for (guint ranks = 1; ranks <= MAX_RANKS; ranks++)
    {
      g_autofree char *spec = g_strdup_printf ("h100-80gb:%u", ranks);
      clusters[ranks] = plan_cluster_new (spec, NULL);
    }
  for (guint least = N * (N - 1) / 2 + 1; least > 0; least--)
    {
      Point point = { { 0 } };
      do
        if (count_new (&met, &point, FALSE) >= least && is_legal (model, clusters, &point))
          {
            count_new (&met, &point, TRUE);
            g_array_append_val (points, point);
          }
      while (next_point (&point));
    }
  for (guint ranks = 1; ranks <= MAX_RANKS; ranks++)
    plan_cluster_free (clusters[ranks]);
}

START_TEST (pairs_of_modes_are_near_the_cpu)
{
  const Point *point = &g_array_index (points, Point, _i);
  g_autofree char *fields = fields_of (point);
  g_autofree char *what = g_strdup_printf ("%u ranks, %s", ranks_of (point), fields);
  Case c;
  case_open (&c, MODEL, ranks_of (point));
  case_set_plan (&c, fields);
  check_against_cpu (&c, what);
  case_clear (&c, what);
}
END_TEST

/* Each value is in some plan, and there are not more plans than covering pairs needs. */
START_TEST (every_value_is_run)
{
  for (guint d = 0; d < N; d++)
    for (guint v = 0; v < n_values (d); v++)
      {
        guint n = 0;
        for (guint i = 0; i < points->len; i++)
          n += g_array_index (points, Point, i).digits[d] == v;
        ck_assert_msg (n > 0, "no plan has %s", dimensions[d][v]);
      }
  ck_assert_uint_ge (points->len, 42); /* of two dimensions one has six values, one seven */
  ck_assert_uint_le (points->len, 100);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("cuda-modes");
  TCase *tcase = tcase_create ("modes");
  choose_points ();
  tcase_set_timeout (tcase, 120);
  tcase_add_test (tcase, every_value_is_run);
  test_add_run_share (tcase, pairs_of_modes_are_near_the_cpu, points->len);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  g_array_unref (points);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
