/* SPDX-License-Identifier: Apache-2.0 */
/* Compares kernels of experts with loops in double: the router's choice, also where logits are
 * equal or NaN; and moving rows to experts and back. */
#include "config.h"

#include "exec/cpu/row-map.h"
#include "planner/model/model.h"
#include "tests/unit/test-kernels-operands.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The routes of a pass, which are kept while finite differences change its inputs. */
static const guint8 *chosen;

static double
slow_score (double x)
{
  if (constants.router_score == PLAN_ROUTER_SOFTMAX)
    return exp (x);
  return constants.router_score == PLAN_ROUTER_SIGMOID ? 1 / (1 + exp (-x))
                                                       : sqrt (log1p (exp (x)));
}

static void
slow_route (Pass *pass)
{
  const gint64 rows = pass->dims[0], experts = pass->dims[1], topk = pass->dims[2];
  const gboolean is_softmax = constants.router_score == PLAN_ROUTER_SOFTMAX;
  const gboolean divides = is_softmax || topk > 1;

  for (gint64 row = 0; row < rows; row++)
    {
      double sum = 0;

      for (gint64 e = row * experts; e < (row + 1) * experts; e++)
        if (chosen[e] || (is_softmax && constants.pre_softmax))
          sum += slow_score (pass->in[0][e]);
      for (gint64 e = row * experts; e < (row + 1) * experts; e++)
        pass->out[e]
            = chosen[e] ? constants.router_scale * slow_score (pass->in[0][e]) / (divides ? sum : 1)
                        : 0;
    }
}

/* The auxiliary loss, times the number of rows that it is a mean over. */
static void
slow_aux_loss (Pass *pass)
{
  const gint64 rows = pass->dims[0], experts = pass->dims[1], topk = pass->dims[2];
  double sum = 0;

  for (gint64 e = 0; e < experts; e++)
    {
      double probability = 0, got = 0;

      for (gint64 row = 0; row < rows; row++)
        {
          double all = 0;

          for (gint64 i = row * experts; i < (row + 1) * experts; i++)
            all += slow_score (pass->in[0][i]);
          probability += slow_score (pass->in[0][row * experts + e]) / all / (double)rows;
          got += (double)chosen[row * experts + e] / (double)(rows * topk);
        }
      sum += probability * got;
    }
  pass->out[0] = manner.value[PLAN_MANNER_AUX_LOSS] * (double)rows * (double)experts * sum;
}

/* Checks that each row has as many experts as asked for, and none whose logit is less than that of
 * one that is not chosen. */
static void
check_choice (const guint8 *map, const double *logits, gint64 rows, gint64 experts, gint64 topk)
{
  for (gint64 row = 0; row < rows; row++, map += experts, logits += experts)
    {
      gint64 n = 0;

      for (gint64 a = 0; a < experts; a++)
        {
          n += map[a];
          for (gint64 b = 0; map[a] && b < experts; b++)
            ck_assert (map[b] || logits[b] < logits[a] || (!(logits[b] > logits[a]) && b > a));
        }
      ck_assert_int_eq (n, topk);
    }
}

static void
set_router (int seed)
{
  constants.router_score = (PlanRouterScore)(seed % 3);
  constants.pre_softmax = seed % 2 == 1;
  constants.router_scale = seed % 4 == 0 ? 1 : 2.5;
  manner.value[PLAN_MANNER_AUX_LOSS] = seed % 5 == 0 ? 0 : 0.3;
}

START_TEST (routes_are_those_of_loops)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gint64 rows = between (rand, 1, 9), experts = between (rand, 2, 20);
  const gint64 topk = between (rand, 1, (gint32)experts);
  const guint64 n = (guint64)(rows * experts);
  const PlanDtype format = format_of (_i / 3);
  g_auto (Tensor) logits = tensor_random (rand, format, n, 3);
  g_auto (Tensor) dprobs = tensor_random (rand, PLAN_DTYPE_FP32, n, 1);
  g_auto (Tensor) probs = tensor_blank (format, n), saved = tensor_blank (PLAN_DTYPE_FP32, n);
  g_auto (Tensor) map = tensor_blank (PLAN_DTYPE_U8, n),
                  dlogits = tensor_blank (PLAN_DTYPE_FP32, n);
  Pass pass = { { rows, experts, topk }, { logits.value }, NULL, g_new (double, n), n };
  g_autofree double *want = pass.out, *want_dlogits = NULL;

  set_router (_i);
  run_kernel (PLAN_OP_ROUTE, OPERANDS (&probs, &saved, &map, &logits), pass.dims, format);
  chosen = map.data;
  check_choice (chosen, logits.value, rows, experts, topk);
  slow_route (&pass);
  check_close (&probs, want, 2e-6, "route");
  for (guint64 e = 0; e < n; e++)
    ck_assert (chosen[e] || tensor_get (&probs, e) == 0);
  want_dlogits = slow_gradient (slow_route, &pass, 0, n, dprobs.value);
  run_kernel (PLAN_OP_ROUTE_BWD, OPERANDS (&dlogits, &dprobs, &saved, &map), pass.dims, format);
  /* A softmax over a single expert is 1, whatever its logit. */
  if (topk == 1 && constants.router_score == PLAN_ROUTER_SOFTMAX && !constants.pre_softmax)
    memset (want_dlogits, 0, n * sizeof *want_dlogits);
  double one = 1, loss = 0;
  Pass aux = { { rows, experts, topk }, { logits.value }, NULL, &loss, 1 };
  g_autofree double *want_aux = slow_gradient (slow_aux_loss, &aux, 0, n, &one);
  for (guint64 e = 0; e < n; e++)
    want_dlogits[e] += want_aux[e];
  check_close (&dlogits, want_dlogits, 1e-5, "route_bwd");
  g_auto (Tensor) counts = tensor_blank (PLAN_DTYPE_FP32, (guint64)experts);
  run_kernel (PLAN_OP_COUNT_ROUTES, OPERANDS (&counts, &map), pass.dims, format);
  for (gint64 e = 0; e < experts; e++)
    {
      double got = 0;
      for (gint64 row = 0; row < rows; row++)
        got += chosen[row * experts + e];
      ck_assert (tensor_get (&counts, (guint64)e) == got);
    }
}
END_TEST

/* Checks a choice by score plus bias, from the groups with the largest sums of their two best;
 * without biases from those with the best expert. */
static void
check_grouped (const guint8 *map, const double *logits, const double *bias, gint64 experts,
               gint64 topk, gint64 groups, gint64 chosen_groups)
{
  const gint64 size = experts / groups;
  g_autofree double *key = g_new (double, experts), *of_group = g_new (double, groups);
  g_autofree gboolean *open = g_new0 (gboolean, groups);
  const gboolean is_softmax = constants.router_score == PLAN_ROUTER_SOFTMAX;
  double sum = 0;
  gint64 n = 0;

  for (gint64 e = 0; e < experts; e++)
    sum += slow_score (logits[e]);
  for (gint64 e = 0; e < experts; e++)
    key[e] = slow_score (logits[e]) / (is_softmax ? sum : 1) + (bias != NULL ? bias[e] : 0);
  for (gint64 g = 0; g < groups; g++)
    {
      of_group[g] = -INFINITY;
      for (gint64 a = g * size; a < (g + 1) * size; a++)
        for (gint64 b = g * size; b < (g + 1) * size; b++)
          if (bias == NULL || size == 1 || a != b)
            of_group[g] = fmax (of_group[g], key[a] + (bias == NULL || size == 1 ? 0 : key[b]));
    }
  for (gint64 g = 0; g < groups; g++)
    {
      gint64 better = 0;

      for (gint64 other = 0; other < groups; other++)
        better += of_group[other] > of_group[g];
      open[g] = better < chosen_groups;
    }
  for (gint64 a = 0; a < experts; a++)
    {
      n += map[a];
      ck_assert (!map[a] || open[a / size]);
      for (gint64 b = 0; map[a] && b < experts; b++)
        ck_assert (map[b] || !open[b / size] || key[b] < key[a]);
    }
  ck_assert_int_eq (n, topk);
}

START_TEST (routes_go_by_biases_and_groups)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gint64 rows = between (rand, 1, 9), groups = between (rand, 1, 6);
  const gint64 experts = groups * between (rand, 1, 7), open = between (rand, 1, (gint32)groups);
  const gint64 topk = between (rand, 1, (gint32)(open * (experts / groups)));
  const guint64 n = (guint64)(rows * experts);
  const gboolean is_biased = _i % 3 > 0;
  g_auto (Tensor) logits = tensor_random (rand, format_of (0), n, 3);
  g_auto (Tensor) bias = tensor_random (rand, PLAN_DTYPE_FP32, (guint64)experts, 1);
  g_auto (Tensor) loads = tensor_blank (PLAN_DTYPE_FP32, (guint64)experts);
  g_auto (Tensor) probs = tensor_blank (PLAN_DTYPE_FP32, n);
  g_auto (Tensor) saved = tensor_blank (PLAN_DTYPE_FP32, n);
  g_auto (Tensor) map = tensor_blank (PLAN_DTYPE_U8, n);
  g_autofree double *want = g_new (double, n);
  const gint64 dims[] = { rows, experts, topk };
  Pass pass = { { rows, experts, topk }, { logits.value }, NULL, want, n };

  set_router (_i);
  manner.value[PLAN_MANNER_GROUPS] = (double)groups;
  manner.value[PLAN_MANNER_GROUP_TOPK] = (double)open;
  for (gint64 e = 0; e < experts; e++)
    ((float *)loads.data)[e] = 3;
  run_kernel (PLAN_OP_ROUTE,
              OPERANDS (&probs, &saved, &map, &logits, is_biased ? &bias : NULL, &loads), dims,
              PLAN_DTYPE_FP32);
  chosen = map.data;
  slow_route (&pass);
  check_close (&probs, want, 2e-6, "route"); /* probabilities depend on scores alone */
  for (gint64 row = 0; row < rows; row++)
    check_grouped (chosen + row * experts, logits.value + row * experts,
                   is_biased ? bias.value : NULL, experts, topk, groups, open);
  for (gint64 e = 0; e < experts; e++)
    {
      double load = 3;

      for (gint64 row = 0; row < rows; row++)
        load += chosen[row * experts + e];
      ck_assert (tensor_get (&loads, (guint64)e) == load);
    }
}
END_TEST

/* A bias steps up where the load is below the mean, down where it is above, and not at the mean; in
 * each layer by itself, and not at all where gradients are not finite. */
START_TEST (biases_move_by_loads)
{
  const float loads_data[] = { 3, 1, 2, 0x1p24f, 0, 0, 5, 5, 5 };
  float bias_data[] = { 0.5, 0.5, 0.5, 1, 2, 3, 7, 8, 9 };
  const float want[] = { 0.25, 0.75, 0.5, 0.75, 2.25, 3.25, 7, 8, 9 };
  Tensor loads = { .dtype = PLAN_DTYPE_FP32, .count = 9, .data = (void *)loads_data };
  float coef_data[] = { 0.5, 1, 2, 0 };
  Tensor bias = { .dtype = PLAN_DTYPE_FP32, .count = 9, .data = bias_data };
  Tensor coef = { .dtype = PLAN_DTYPE_FP32, .count = 4, .data = coef_data };

  constants.bias_rate = 0.25;
  for (guint i = 0; i < 2; i++)
    {
      run_kernel (PLAN_OP_BALANCE, OPERANDS (&bias, &loads, &coef), (gint64[]){ 3, 3 },
                  PLAN_DTYPE_FP32);
      ck_assert_mem_eq (bias_data, want, sizeof want);
      coef_data[0] = NAN;
    }
}
END_TEST

/* The gate: rows times sigmoids of their scores. */
static void
slow_gate (Pass *pass)
{
  for (gint64 i = 0; i < pass->dims[0] * pass->dims[1]; i++)
    pass->out[i] = pass->in[0][i] / (1 + exp (-pass->in[1][i / pass->dims[1]]));
}

START_TEST (gates_are_those_of_loops)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gint64 rows = between (rand, 1, 9), cols = between (rand, 1, 300);
  const guint64 n = (guint64)(rows * cols);
  const PlanDtype format = format_of (_i);
  g_auto (Tensor) in = tensor_random (rand, format, n, 1);
  g_auto (Tensor) score = tensor_random (rand, PLAN_DTYPE_FP32, (guint64)rows, 3);
  g_auto (Tensor) dout = tensor_random (rand, PLAN_DTYPE_FP32, n, 1);
  g_auto (Tensor) out = tensor_blank (format, n), din = tensor_blank (format, n);
  g_auto (Tensor) dscore = tensor_blank (PLAN_DTYPE_FP32, (guint64)rows);
  g_autofree double *want = g_new (double, n);
  Pass pass = { { rows, cols }, { in.value, score.value }, NULL, want, n };

  run_kernel (PLAN_OP_GATE, OPERANDS (&out, &score, &in), pass.dims, format);
  slow_gate (&pass);
  check_close (&out, want, 2e-6, "gate");
  run_kernel (PLAN_OP_GATE_BWD, OPERANDS (&din, &dscore, &dout, &in, &score), pass.dims, format);
  g_autofree double *want_din = slow_gradient (slow_gate, &pass, 0, n, dout.value);
  g_autofree double *want_dscore = slow_gradient (slow_gate, &pass, 1, (guint64)rows, dout.value);
  check_close (&din, want_din, 1e-5, "gate_bwd, of rows");
  check_close (&dscore, want_dscore, 1e-5, "gate_bwd, of scores");
}
END_TEST

/* Rows times their probabilities. */
static void
slow_scale (Pass *pass)
{
  for (gint64 i = 0; i < pass->dims[0] * pass->dims[1]; i++)
    pass->out[i] = pass->in[0][i] * pass->in[1][i / pass->dims[1]];
}

START_TEST (scaled_rows_are_those_of_loops)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gint64 rows = between (rand, 1, 9), cols = between (rand, 1, 300);
  const guint64 n = (guint64)(rows * cols);
  const PlanDtype format = format_of (_i);
  g_auto (Tensor) in = tensor_random (rand, format, n, 1);
  g_auto (Tensor) probs = tensor_random (rand, PLAN_DTYPE_FP32, (guint64)rows, 1);
  g_auto (Tensor) dout = tensor_random (rand, format, n, 1);
  g_auto (Tensor) out = tensor_blank (format, n), din = tensor_blank (format, n);
  g_auto (Tensor) dprobs = tensor_blank (PLAN_DTYPE_FP32, (guint64)rows);
  g_autofree double *want = g_new (double, n);
  Pass pass = { { rows, cols }, { in.value, probs.value }, NULL, want, n };

  run_kernel (PLAN_OP_SCALE_ROWS, OPERANDS (&out, &in, &probs), pass.dims, format);
  slow_scale (&pass);
  check_close (&out, want, 2e-6, "scale_rows");
  run_kernel (PLAN_OP_SCALE_ROWS_BWD, OPERANDS (&din, &dprobs, &dout, &in, &probs), pass.dims,
              format);
  g_autofree double *want_din = slow_gradient (slow_scale, &pass, 0, n, dout.value);
  g_autofree double *want_dprobs = slow_gradient (slow_scale, &pass, 1, (guint64)rows, dout.value);
  check_close (&din, want_din, 1e-5, "scale_rows_bwd, of rows");
  check_close (&dprobs, want_dprobs, 1e-5, "scale_rows_bwd, of probabilities");
}
END_TEST

/* How many rows each expert has, and the rows' probabilities; NULL: biases are added without. */
static const gint32 *rows_of_experts;
static const double *probs_of_rows;

/* Rows plus the bias of their expert times their probability. */
static void
slow_bias (Pass *pass)
{
  const gint64 cols = pass->dims[1];
  gint64 row = 0;

  memcpy (pass->out, pass->in[0], pass->out_count * sizeof *pass->out);
  for (gint64 e = 0; e < pass->dims[2]; e++)
    for (gint32 n = 0; n < rows_of_experts[e]; n++, row++)
      for (gint64 c = 0; c < cols; c++)
        pass->out[row * cols + c]
            += (probs_of_rows ? probs_of_rows[row] : 1) * pass->in[1][e * cols + c];
}

/* The biases of the rows' experts times the rows' probabilities. */
static void
slow_probs (Pass *pass)
{
  const gint64 cols = pass->dims[1];
  gint64 row = 0;

  memset (pass->out, 0, pass->out_count * sizeof *pass->out);
  for (gint64 e = 0; e < pass->dims[2]; e++)
    for (gint32 n = 0; n < rows_of_experts[e]; n++, row++)
      for (gint64 c = 0; c < cols; c++)
        pass->out[row * cols + c] = pass->in[0][row] * pass->in[1][e * cols + c];
}

/* The last rows belong to no expert, and some experts have no rows; in every fifth round all have
 * equally many, which nothing counts. */
START_TEST (biases_are_those_of_loops)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gint64 groups = between (rand, 1, 6), cols = between (rand, 1, _i % 4 == 0 ? 300 : 20);
  g_auto (Tensor) counts = tensor_tokens (rand, (guint64)groups, 0, 5);
  const PlanDtype format = format_of (_i), other = format_of (_i / 2);
  const gboolean has_probs = _i % 3 > 0, is_counted = _i % 5 > 0;
  gint64 rows = between (rand, 0, is_counted ? 3 : (gint32)groups - 1);
  gint32 *count = counts.data;

  rows_of_experts = counts.data;
  count[0]++; /* otherwise there would be nothing to compare with */
  for (gint64 e = 0; e < groups; e++)
    rows += count[e] = is_counted ? count[e] : count[0];
  const guint64 n = (guint64)(rows * cols), biases = (guint64)(groups * cols);
  g_auto (Tensor) out = tensor_random (rand, format, n, 1);
  g_auto (Tensor) bias = tensor_random (rand, other, biases, 1);
  g_auto (Tensor) probs = tensor_random (rand, PLAN_DTYPE_FP32, (guint64)rows, 1);
  g_auto (Tensor) dout = tensor_random (rand, format, n, 1);
  g_auto (Tensor) dbias = tensor_blank (other, biases);
  g_auto (Tensor) dprobs = tensor_blank (PLAN_DTYPE_FP32, (guint64)rows);
  g_autofree double *want = g_new (double, n + 1);
  Pass pass = { { rows, cols, groups }, { out.value, bias.value }, NULL, want, n };

  probs_of_rows = has_probs ? probs.value : NULL;
  slow_bias (&pass);
  const Tensor *of_each = is_counted ? &counts : NULL;
  run_kernel (PLAN_OP_ADD_EXPERT_BIAS, OPERANDS (&out, &bias, of_each, has_probs ? &probs : NULL),
              pass.dims, format);
  check_close (&out, want, 1e-6, "add_expert_bias");
  run_kernel (PLAN_OP_ADD_EXPERT_BIAS_BWD,
              OPERANDS (&dbias, &dout, of_each, has_probs ? &probs : NULL, &bias,
                        has_probs ? &dprobs : NULL),
              pass.dims, format);
  g_autofree double *want_dbias = slow_gradient (slow_bias, &pass, 1, biases, dout.value);
  check_close (&dbias, want_dbias, 2e-6, "add_expert_bias_bwd");
  pass.in[0] = probs.value;
  g_autofree double *want_dprobs = slow_gradient (slow_probs, &pass, 0, (guint64)rows, dout.value);
  if (has_probs)
    check_close (&dprobs, want_dprobs, 2e-6, "add_expert_bias_bwd, of probabilities");
}
END_TEST

/* The first of equal experts is chosen; and as many as asked for also where all logits are NaN. */
START_TEST (routes_of_equals_are_the_first)
{
  const gint64 dims[] = { 2, 5, 2 };
  const float logits_data[] = { 1, 2, 2, 2, 0, NAN, 1, NAN, NAN, 3 };
  Tensor logits = { .dtype = PLAN_DTYPE_FP32, .count = 10, .data = (void *)logits_data };
  g_auto (Tensor) probs = tensor_blank (PLAN_DTYPE_FP32, 10);
  g_auto (Tensor) saved = tensor_blank (PLAN_DTYPE_FP32, 10);
  g_auto (Tensor) map = tensor_blank (PLAN_DTYPE_U8, 10);
  const guint8 *routes = map.data;

  set_router (0);
  run_kernel (PLAN_OP_ROUTE, OPERANDS (&probs, &saved, &map, &logits), dims, PLAN_DTYPE_FP32);
  ck_assert (!routes[0] && routes[1] && routes[2] && !routes[3] && !routes[4]);
  ck_assert_int_eq (routes[5] + routes[6] + routes[7] + routes[8] + routes[9], 2);
}
END_TEST

/* Random routes: `topk` experts of each row; some experts have none where there are enough. */
static Tensor
random_routes (GRand *rand, gint64 rows, gint64 experts, gint64 topk)
{
  Tensor self = tensor_blank (PLAN_DTYPE_U8, (guint64)(rows * experts));
  guint8 *map = self.data;

  memset (map, 0, self.count);
  for (gint64 row = 0; row < rows; row++)
    for (gint64 k = 0; k < topk; k++)
      {
        gint64 e;
        do
          e = between (rand, 0, (gint32)(experts > topk ? experts - 1 : experts) - 1);
        while (map[row * experts + e]);
        map[row * experts + e] = 1;
      }
  return self;
}

/* Of each expert's tokens as many stay as it takes: none that was dropped comes before one of them.
 * Those that were dropped are in no map of rows. */
START_TEST (tokens_beyond_the_capacity_are_dropped)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gint64 rows = between (rand, 1, 30), experts = between (rand, 1, 9);
  const gint64 topk = between (rand, 1, (gint32)experts), capacity = between (rand, 1, 12);
  const gint64 n = rows * experts, sorted = rows * topk;
  const gint64 entries = PLAN_ROW_MAP_HEAD + 2 * sorted + experts;
  const PlanDtype format = format_of (_i);
  g_auto (Tensor) routes = random_routes (rand, rows, experts, topk);
  g_auto (Tensor) in = tensor_blank (PLAN_DTYPE_FP32, (guint64)n);
  g_auto (Tensor) probs = tensor_blank (format, (guint64)n);
  g_auto (Tensor) map = tensor_blank (PLAN_DTYPE_U8, (guint64)n);
  g_auto (Tensor) row_map = tensor_blank (PLAN_DTYPE_I32, (guint64)entries);
  const guint8 *wants = routes.data, *left = map.data;
  const gint32 *head = (const gint32 *)row_map.data, *counts = head + entries - experts;
  gint64 dropped = 0;

  for (gint64 i = 0; i < n; i++)
    ((float *)in.data)[i] = (float)between (rand, 0, 4) / 4;
  manner.value[PLAN_MANNER_BY_POSITION] = _i % 3 == 0;
  run_kernel (PLAN_OP_DROP_TOKENS, OPERANDS (&probs, &map, &in, &routes),
              (gint64[]){ rows, experts, capacity }, format);
  run_kernel (PLAN_OP_ROW_MAP, OPERANDS (&row_map, &map, NULL),
              (gint64[]){ rows, experts, 1, entries }, format);
  for (gint64 e = 0; e < experts; e++)
    {
      gint64 wanted = 0, stays = 0;

      for (gint64 a = 0; a < rows; a++)
        {
          const double key = tensor_get (&in, (guint64)(a * experts + e));

          wanted += wants[a * experts + e];
          stays += left[a * experts + e] == 1;
          ck_assert_int_eq (left[a * experts + e] > 0, wants[a * experts + e]);
          ck_assert (tensor_get (&probs, (guint64)(a * experts + e))
                     == (left[a * experts + e] == 1 ? key : 0));
          for (gint64 b = 0; left[a * experts + e] == 2 && b < rows; b++)
            {
              const double other = tensor_get (&in, (guint64)(b * experts + e));

              if (left[b * experts + e] == 1)
                ck_assert (_i % 3 == 0 ? b < a : other > key || (other == key && b < a));
            }
        }
      ck_assert_int_eq (stays, MIN (wanted, capacity));
      ck_assert_int_eq (counts[e], stays);
      dropped += wanted - stays;
    }
  ck_assert_int_eq (head[EXEC_ROW_MAP_DROPPED], dropped);
  ck_assert_int_eq (head[EXEC_ROW_MAP_SLOTS], topk);
  manner = (PlanManner){ 0 };
}
END_TEST

START_TEST (rows_are_sorted_and_come_back)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gint64 rows = between (rand, 1, 20), experts = between (rand, 1, 9);
  const gint64 topk = between (rand, 1, (gint32)experts), cols = between (rand, 1, 600);
  const gint64 sorted = rows * topk, entries = PLAN_ROW_MAP_HEAD + 2 * sorted + experts;
  const gint64 dims[] = { rows, sorted, cols, entries, rows * experts };
  const gint64 map_dims[] = { rows, experts, 1, entries };
  const PlanDtype format = format_of (_i);
  g_auto (Tensor) routes = random_routes (rand, rows, experts, topk);
  g_auto (Tensor) map = tensor_blank (PLAN_DTYPE_I32, (guint64)entries);
  g_auto (Tensor) in = tensor_random (rand, format, (guint64)(rows * cols), 1);
  g_auto (Tensor) probs = tensor_random (rand, format, (guint64)(rows * experts), 1);
  g_auto (Tensor) out = tensor_blank (format, (guint64)(sorted * cols));
  g_auto (Tensor) row_probs = tensor_blank (PLAN_DTYPE_FP32, (guint64)sorted);
  g_auto (Tensor) back = tensor_blank (format, (guint64)(rows * cols));
  g_auto (Tensor) dprobs = tensor_blank (PLAN_DTYPE_FP32, (guint64)(rows * experts));
  g_autofree double *want = g_new (double, rows *cols);
  const gint32 *counts = (const gint32 *)map.data + entries - experts;
  gint64 at = 0;

  run_kernel (PLAN_OP_ROW_MAP, OPERANDS (&map, &routes, NULL), map_dims, format);
  run_kernel (PLAN_OP_PERMUTE, OPERANDS (&out, &in, &map, &row_probs, &probs), dims, format);
  run_kernel (PLAN_OP_UNPERMUTE, OPERANDS (&back, &out, &map, &dprobs, &row_probs), dims, format);
  for (gint64 e = 0; e < experts; e++)
    {
      const gint64 first = at;
      for (gint64 row = 0; row < rows; row++)
        {
          const gboolean goes = ((const guint8 *)routes.data)[row * experts + e];
          const double prob = tensor_get (&probs, (guint64)(row * experts + e));
          for (gint64 c = 0; goes && c < cols; c++)
            ck_assert (tensor_get (&out, (guint64)(at * cols + c))
                       == tensor_get (&in, (guint64)(row * cols + c)));
          ck_assert (!goes || tensor_get (&row_probs, (guint64)at) == prob);
          ck_assert (tensor_get (&dprobs, (guint64)(row * experts + e)) == (goes ? prob : 0));
          at += goes;
        }
      ck_assert_int_eq (counts[e], at - first);
    }
  for (gint64 i = 0; i < rows * cols; i++)
    want[i] = (double)topk * in.value[i];
  check_close (&back, want, 2e-7, "unpermute");
}
END_TEST

/* The buffers of one of several ranks. */
typedef struct
{
  Tensor routes, map, in, probs, out, row_probs, came, came_probs, counts, sort, rows, rows_probs;
} Rank;

static void
rank_clear (Rank *self)
{
  Tensor *all = (Tensor *)self;
  for (guint i = 0; i < sizeof *self / sizeof *all; i++)
    tensor_clear (&all[i]);
}

/* Copies the part of each rank that is for rank `to`, in the order of ranks. */
static void
exchange (Rank *ranks, gint64 n, gint64 to, gsize out, gsize in, gsize at, gsize bytes)
{
  for (gint64 from = 0; from < n; from++)
    {
      const Tensor *sent = (const Tensor *)(gpointer)((guint8 *)&ranks[from] + in);
      Tensor *came = (Tensor *)(gpointer)((guint8 *)&ranks[to] + out);
      memcpy ((guint8 *)came->data + (gsize)from * bytes,
              (const guint8 *)sent->data + at + (gsize)to * bytes, bytes);
    }
}

enum
{
  ROWS = 7,
  TOPK = 2,
  COLS = 3
};

/* The sizes of maps; how many experts all ranks have, and each has. */
typedef struct
{
  gint64 n, each, experts, sorted, entries, sort_entries;
  gint64 multiple, rows; /* at which rows of an expert begin; rows of all of them then */
  gint64 capacity;       /* rows that each expert has of each rank; 0: those that chose it */
  gint64 room;           /* the most rows that can go from one rank to another */
} Sizes;

/* Sorts a rank's rows by rank. */
static Rank
begin_rank (GRand *rand, const Sizes *s)
{
  const gint64 dims[] = { ROWS, s->sorted, COLS, s->entries, ROWS * s->experts },
               map_dims[] = { ROWS, s->experts, s->n, s->entries };
  const PlanDtype f = PLAN_DTYPE_FP32, i = PLAN_DTYPE_I32;
  const guint64 sorted = (guint64)s->sorted;
  Rank self = { .routes = random_routes (rand, ROWS, s->experts, TOPK),
                .map = tensor_blank (i, (guint64)s->entries),
                .in = tensor_random (rand, f, ROWS * COLS, 1),
                .probs = tensor_random (rand, f, (guint64)(ROWS * s->experts), 1),
                .out = tensor_blank (f, sorted * COLS),
                .row_probs = tensor_blank (f, sorted),
                .came = tensor_blank (f, sorted * COLS),
                .came_probs = tensor_blank (f, sorted),
                .counts = tensor_blank (i, (guint64)s->experts),
                .sort = tensor_blank (i, (guint64)s->sort_entries),
                .rows = tensor_blank (f, (guint64)(s->rows * COLS)),
                .rows_probs = tensor_blank (f, (guint64)s->rows) };
  manner.value[PLAN_MANNER_CAPACITY] = (double)s->capacity;
  run_kernel (PLAN_OP_ROW_MAP, OPERANDS (&self.map, &self.routes, NULL), map_dims, f);
  manner.value[PLAN_MANNER_CAPACITY] = 0;
  run_kernel (PLAN_OP_PERMUTE,
              OPERANDS (&self.out, &self.in, &self.map, &self.row_probs, &self.probs), dims, f);
  return self;
}

/* Sorts the rows that came by expert. */
static void
end_rank (Rank *ranks, gint64 r, const Sizes *s)
{
  const gint64 dims[] = { s->sorted, s->rows, COLS, s->sort_entries, s->sorted },
               map_dims[] = { s->sorted, s->each, s->n, s->sort_entries };
  Rank *self = &ranks[r];
  exchange (ranks, s->n, r, G_STRUCT_OFFSET (Rank, came), G_STRUCT_OFFSET (Rank, out), 0,
            (gsize)s->room * COLS * sizeof (float));
  exchange (ranks, s->n, r, G_STRUCT_OFFSET (Rank, came_probs), G_STRUCT_OFFSET (Rank, row_probs),
            0, (gsize)s->room * sizeof (float));
  exchange (ranks, s->n, r, G_STRUCT_OFFSET (Rank, counts), G_STRUCT_OFFSET (Rank, map),
            (gsize)(s->entries - s->experts) * sizeof (gint32), (gsize)s->each * sizeof (gint32));
  manner.value[PLAN_MANNER_MULTIPLE] = s->multiple > 1 ? (double)s->multiple : 0;
  manner.value[PLAN_MANNER_CAPACITY] = (double)s->capacity;
  run_kernel (PLAN_OP_ROW_MAP, OPERANDS (&self->sort, NULL, s->capacity > 0 ? NULL : &self->counts),
              map_dims, PLAN_DTYPE_FP32);
  manner.value[PLAN_MANNER_MULTIPLE] = manner.value[PLAN_MANNER_CAPACITY] = 0;
  run_kernel (
      PLAN_OP_PERMUTE,
      OPERANDS (&self->rows, &self->came, &self->sort, &self->rows_probs, &self->came_probs), dims,
      PLAN_DTYPE_FP32);
}

/* Checks that rows from `at` to `end` are zeros that weigh nothing; returns `end`. */
static gint64
check_empty (const Rank *self, gint64 at, gint64 end)
{
  for (; at < end; at++)
    {
      for (gint64 c = 0; c < COLS; c++)
        ck_assert (tensor_get (&self->rows, (guint64)(at * COLS + c)) == 0);
      ck_assert (tensor_get (&self->rows_probs, (guint64)at) == 0);
    }
  return at;
}

/* Checks an expert's rows from row `at` on, those of every rank in turn, each behind as many as the
 * capacity says; returns the row behind them. */
static gint64
check_expert (const Rank *ranks, const Sizes *s, const Rank *self, gint64 e, gint64 at)
{
  for (gint64 from = 0; from < s->n; from++)
    {
      const gint64 end = at + s->capacity;

      for (gint64 row = 0; row < ROWS; row++)
        {
          if (!((const guint8 *)ranks[from].routes.data)[row * s->experts + e])
            continue;
          for (gint64 c = 0; c < COLS; c++)
            ck_assert (tensor_get (&self->rows, (guint64)(at * COLS + c))
                       == ranks[from].in.value[row * COLS + c]);
          ck_assert (tensor_get (&self->rows_probs, (guint64)at)
                     == ranks[from].probs.value[row * s->experts + e]);
          at++;
        }
      if (s->capacity > 0)
        at = check_empty (self, at, end);
    }
  return at;
}

/* Rows of several ranks get to the rank of their expert, sorted by expert, then rank, then row,
 * those of each expert from a multiple on; in every second round filled up to a capacity. */
START_TEST (rows_get_to_the_ranks_of_their_experts)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  Sizes s = { .n = between (rand, 2, 4),
              .each = between (rand, 1, 3),
              .multiple = 1 + _i % 5,
              .capacity = _i % 2 == 0 ? 0 : between (rand, ROWS, ROWS + 2) };
  Rank ranks[4];

  s.experts = s.n * s.each;
  s.room = s.capacity > 0 ? s.each * s.capacity : ROWS * TOPK;
  s.sorted = s.n * s.room;
  s.entries = PLAN_ROW_MAP_HEAD + s.sorted + ROWS * TOPK + s.experts;
  s.rows = s.sorted + s.each * (s.multiple - 1);
  s.sort_entries = PLAN_ROW_MAP_HEAD + s.sorted + s.rows + s.each;
  for (gint64 r = 0; r < s.n; r++)
    ranks[r] = begin_rank (rand, &s);
  for (gint64 r = 0; r < s.n; r++)
    {
      gint64 at = 0;

      end_rank (ranks, r, &s);
      for (gint64 e = 0; e < s.each; e++)
        {
          const gint64 last = check_expert (ranks, &s, &ranks[r], r * s.each + e, at);
          const gint64 end
              = check_empty (&ranks[r], last, (last + s.multiple - 1) / s.multiple * s.multiple);
          const gint32 *counts = (const gint32 *)ranks[r].sort.data + s.sort_entries - s.each;

          ck_assert_int_eq (counts[e], end - at);
          at = end;
        }
    }
  for (gint64 r = 0; r < s.n; r++)
    rank_clear (&ranks[r]);
}
END_TEST

/* Rows without room are counted, and stored nowhere. */
START_TEST (rows_without_room_are_nowhere)
{
  const guint8 routes_data[] = { 1, 0, 1, 0, 1, 0, 0, 1 }; /* for two experts, on two ranks */
  const gint64 dims[] = { 4, 2, 2, PLAN_ROW_MAP_HEAD + 4 + 4 + 2 };
  const gint32 want[] = { 1, 2, 3, 0, 0, 2, 7, -1, 0, 1, -1, 2, 2, 1 };
  Tensor routes = { .dtype = PLAN_DTYPE_U8, .count = 8, .data = (void *)routes_data };
  g_auto (Tensor) map = tensor_blank (PLAN_DTYPE_I32, G_N_ELEMENTS (want));

  run_kernel (PLAN_OP_ROW_MAP, OPERANDS (&map, &routes, NULL), dims, PLAN_DTYPE_FP32);
  ck_assert_mem_eq (map.data, want, sizeof want);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("test-kernels-experts");
  TCase *tcase = kernels_case ("experts");
  exec_kernels_cpu.open (NULL);
  tcase_add_loop_test (tcase, routes_are_those_of_loops, 0, 60);
  tcase_add_loop_test (tcase, routes_go_by_biases_and_groups, 0, 90);
  tcase_add_test (tcase, biases_move_by_loads);
  tcase_add_loop_test (tcase, gates_are_those_of_loops, 0, 20);
  tcase_add_loop_test (tcase, scaled_rows_are_those_of_loops, 0, 20);
  tcase_add_loop_test (tcase, biases_are_those_of_loops, 0, 48);
  tcase_add_test (tcase, routes_of_equals_are_the_first);
  tcase_add_loop_test (tcase, tokens_beyond_the_capacity_are_dropped, 0, 60);
  tcase_add_loop_test (tcase, rows_are_sorted_and_come_back, 0, 60);
  tcase_add_loop_test (tcase, rows_get_to_the_ranks_of_their_experts, 0, 40);
  tcase_add_test (tcase, rows_without_room_are_nowhere);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
