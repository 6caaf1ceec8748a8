/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of experts against the CPU's. The router chooses the same experts, also among equal
 * logits and NaNs, and where there are more experts than a warp has threads. Rows are sorted by
 * expert and put back in the same way, also where there is not room for all of them. */
#include "config.h"

#include "exec/cpu/row-map.h"
#include "exec/cuda/kernels/experts.h"
#include "exec/cuda/kernels/kernels.h"
#include "tests/fake/compare-dims.h"
#include "tests/fake/compare-operand.h"

#include <math.h>
#include <string.h>

#define ROUNDS 24
#define MAX_OPERANDS 6
#define U 0x1p-24

static const CompareDevice *device;
static ExecConstants constants;
static PlanManner manner;

static void
draw_operand (CompareOperand *self, PlanDtype dtype, CompareDraw draw, gint64 count, GRand *rand)
{
  *self = (CompareOperand){ .dtype = dtype, .draw = draw, .count = (guint64)count };
  compare_operand_init (self, device, rand);
}

/* Runs an op on CPU and device. Operands that are NULL are absent. */
static void
run_both (PlanOpKind kind, ExecCudaLaunch launch, const gint64 *dims,
          CompareOperand *const *operands)
{
  PlanOp op = { .kind = kind };
  const ExecArgs args = { .op = &op, .manner = &manner, .constants = &constants };

  memcpy (op.dims, dims, plan_op_n_dims (kind) * sizeof *dims);
  compare_operands_run (operands, MAX_OPERANDS, &args, launch, device);
}

#define OPERANDS(...) ((CompareOperand *const[MAX_OPERANDS]){ __VA_ARGS__ })

static void
clear (CompareOperand *const *operands)
{
  for (guint i = 0; i < MAX_OPERANDS; i++)
    if (operands[i] != NULL)
      compare_operand_clear (operands[i], device);
}

/* Bits must be equal, but any NaN will do for a NaN. */
static void
check_equal (const CompareOperand *self, const char *what)
{
  compare_operand_check (self, (CompareBound){ .any_nan = TRUE }, what);
}

/* Sums in another order, and e^x made in another way. */
static void
check_near (const CompareOperand *self, double absolute, double depth, const char *what)
{
  const double ulp = self->dtype == PLAN_DTYPE_BF16   ? 0x1p-7
                     : self->dtype == PLAN_DTYPE_FP16 ? 0x1p-10
                                                      : 0x1p-23;
  compare_operand_check (self, (CompareBound){ absolute, (depth + 192) * U + ulp, TRUE }, what);
}

/* --- the router --------------------------------------------------------------------------- */

static void
set_router (int seed)
{
  constants.router_score = (PlanRouterScore)(seed % 3);
  constants.pre_softmax = seed % 2 == 1;
  constants.router_scale = seed % 4 == 0 ? 1 : 2.5;
  manner.value[PLAN_MANNER_AUX_LOSS] = seed % 5 == 0 ? 0 : 0.3;
}

/* Makes some logits equal to others, and one in `nans` a NaN (0: none). */
static void
repeat_some (CompareOperand *logits, gint32 nans, GRand *rand)
{
  const guint64 bytes = plan_dtype_bytes (logits->dtype, 1);
  guint8 *at = logits->want + logits->at;

  for (guint64 i = 1; i < logits->count; i++)
    if (nans > 0 && g_rand_int_range (rand, 0, nans) == 0)
      memset (at + i * bytes, 0xff, bytes);
    else if (g_rand_int_range (rand, 0, 3) == 0)
      memcpy (at + i * bytes, at + g_rand_int_range (rand, 0, (gint32)i) * bytes, bytes);
  compare_operand_keep (logits, device);
}

START_TEST (routes_are_the_cpus)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gint64 rows = compare_odd_size (rand, 60),
               experts = g_rand_int_range (rand, 1, _i % 4 == 0 ? 300 : 40);
  const gint64 topk = g_rand_int_range (rand, 1, (gint32)MIN (experts, 9) + 1), n = rows * experts;
  const gint64 dims[] = { rows, experts, topk };
  CompareOperand probs, saved, map, logits, dlogits, dprobs, counts;

  set_router (_i);
  draw_operand (&probs, compare_format (rand), COMPARE_SMALL, n, rand);
  draw_operand (&saved, PLAN_DTYPE_FP32, COMPARE_SMALL, n, rand);
  draw_operand (&map, PLAN_DTYPE_U8, COMPARE_BYTES, n, rand);
  draw_operand (&logits, compare_format (rand), COMPARE_WIDE, n, rand);
  draw_operand (&dlogits, compare_format (rand), COMPARE_SMALL, n, rand);
  draw_operand (&dprobs, compare_format (rand), COMPARE_SMALL, n, rand);
  repeat_some (&logits, 0, rand);
  run_both (PLAN_OP_ROUTE, exec_cuda_route, dims, OPERANDS (&probs, &saved, &map, &logits));
  check_equal (&map, "experts of rows");
  check_near (&saved, 0, (double)experts / 8, "scores");
  check_near (&probs, 0, (double)experts / 8, "shares of experts");
  compare_operand_keep (&saved, device); /* the CPU's, on both */
  run_both (PLAN_OP_ROUTE_BWD, exec_cuda_route_bwd, dims,
            OPERANDS (&dlogits, &dprobs, &saved, &map));
  check_near (&dlogits, (double)(experts + 192) * 8 * U, 0, "gradients of logits");
  draw_operand (&counts, PLAN_DTYPE_FP32, COMPARE_SMALL, experts, rand);
  run_both (PLAN_OP_COUNT_ROUTES, exec_cuda_count_routes, dims, OPERANDS (&counts, &map));
  check_equal (&counts, "numbers of rows");
  manner.value[PLAN_MANNER_COUNTED] = (double)(3 * rows);
  run_both (PLAN_OP_ROUTE_BWD, exec_cuda_route_bwd, dims,
            OPERANDS (&dlogits, &dprobs, &saved, &map, &counts));
  check_near (&dlogits, (double)(experts + 192) * 8 * U, 0, "gradients by numbers of all");
  manner = (PlanManner){ 0 };
  clear (OPERANDS (&probs, &saved, &map, &logits));
  clear (OPERANDS (&dlogits, &dprobs, &counts));
}
END_TEST

/* Experts chosen by score and bias, and within the best groups, also among equal keys and NaNs; and
 * the numbers of tokens that each gets. */
START_TEST (routes_by_biases_and_groups_are_the_cpus)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gint64 rows = compare_odd_size (rand, 60),
               groups = g_rand_int_range (rand, 1, _i % 4 == 0 ? 70 : 9);
  const gint64 size = g_rand_int_range (rand, 1, 12), experts = groups * size, n = rows * experts;
  const gint64 open = g_rand_int_range (rand, 1, (gint32)groups + 1);
  const gint64 topk = g_rand_int_range (rand, 1, (gint32)MIN (open * size, 9) + 1);
  const gint64 dims[] = { rows, experts, topk };
  CompareOperand probs, saved, map, logits, bias, loads, coef;
  CompareOperand *const bias_or_none = _i % 3 > 0 ? &bias : NULL;

  set_router (_i);
  manner.value[PLAN_MANNER_GROUPS] = _i % 5 > 0 ? (double)groups : 0;
  manner.value[PLAN_MANNER_GROUP_TOPK] = _i % 5 > 0 ? (double)open : 0;
  draw_operand (&probs, compare_format (rand), COMPARE_SMALL, n, rand);
  draw_operand (&saved, PLAN_DTYPE_FP32, COMPARE_SMALL, n, rand);
  draw_operand (&map, PLAN_DTYPE_U8, COMPARE_BYTES, n, rand);
  draw_operand (&logits, compare_format (rand), COMPARE_WIDE, n, rand);
  draw_operand (&bias, PLAN_DTYPE_FP32, COMPARE_SMALL, experts, rand);
  draw_operand (&loads, PLAN_DTYPE_FP32, COMPARE_SMALL, experts, rand);
  for (gint64 e = 0; e < experts; e++)
    ((float *)(gpointer)(loads.want + loads.at))[e] = (float)g_rand_int_range (rand, 0, 99);
  compare_operand_keep (&loads, device);
  repeat_some (&logits, bias_or_none ? 0 : _i % 2 * 7, rand);
  run_both (PLAN_OP_ROUTE, exec_cuda_route, dims,
            OPERANDS (&probs, &saved, &map, &logits, bias_or_none, &loads));
  check_equal (&map, "experts of rows by bias");
  check_equal (&loads, "tokens of experts");
  compare_operand_keep (&loads, device);
  constants.bias_rate = 0.001;
  draw_operand (&coef, PLAN_DTYPE_FP32, COMPARE_SMALL, 4, rand);
  if (_i % 4 == 0)
    *(float *)(gpointer)(coef.want + coef.at) = NAN;
  compare_operand_keep (&coef, device);
  run_both (PLAN_OP_BALANCE, exec_cuda_balance, (gint64[]){ 1, experts },
            OPERANDS (&bias, &loads, &coef));
  check_equal (&bias, "biases");
  clear (OPERANDS (&probs, &saved, &map, &logits, &bias, &loads));
  clear (OPERANDS (&coef));
  manner = (PlanManner){ 0 };
}
END_TEST

/* Where logits are NaNs, and so do not compare, each row still gets topk experts. */
START_TEST (routes_of_nans_are_the_cpus)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gint64 rows = 20, experts = g_rand_int_range (rand, 1, 80), n = rows * experts;
  const gint64 dims[] = { rows, experts, g_rand_int_range (rand, 1, (gint32)experts + 1) };
  CompareOperand probs, saved, map, logits;

  set_router (_i);
  draw_operand (&probs, PLAN_DTYPE_FP32, COMPARE_SMALL, n, rand);
  draw_operand (&saved, PLAN_DTYPE_FP32, COMPARE_SMALL, n, rand);
  draw_operand (&map, PLAN_DTYPE_U8, COMPARE_BYTES, n, rand);
  draw_operand (&logits, compare_format (rand), COMPARE_WIDE, n, rand);
  repeat_some (&logits, 1 + _i % 4, rand);
  run_both (PLAN_OP_ROUTE, exec_cuda_route, dims, OPERANDS (&probs, &saved, &map, &logits));
  check_equal (&map, "experts of rows");
  clear (OPERANDS (&probs, &saved, &map, &logits));
}
END_TEST

/* --- sorting rows ------------------------------------------------------------------------- */

/* A map of random routes to experts on random ranks, with room for some rows or for all. */
typedef struct
{
  gint64 rows, experts, ranks, topk, room, entries;
  CompareOperand routes, map;
} Sorted;

static void
draw_routes (Sorted *self, GRand *rand)
{
  guint8 *routes;

  draw_operand (&self->routes, PLAN_DTYPE_U8, COMPARE_BYTES, self->rows * self->experts, rand);
  routes = self->routes.want + self->routes.at;
  memset (routes, 0, self->routes.bytes);
  for (gint64 row = 0; row < self->rows; row++)
    for (gint64 k = 0; k < self->topk;)
      {
        guint8 *route
            = &routes[row * self->experts + g_rand_int_range (rand, 0, (gint32)self->experts)];

        k += !*route;
        *route = 1;
      }
  compare_operand_keep (&self->routes, device);
}

/* Draws whether rows of each expert begin at multiples, and of what. Returns how many rows of zeros
 * each may take then. */
static gint64
draw_multiple (GRand *rand)
{
  static const gint64 multiples[] = { 1, 16, 128, 3 };
  const gint64 multiple = multiples[g_rand_int_range (rand, 0, G_N_ELEMENTS (multiples))];

  manner.value[PLAN_MANNER_MULTIPLE] = multiple > 1 ? (double)multiple : 0;
  return multiple - 1;
}

/* `pads`: each expert is filled up to a capacity, which all rows are below. */
static void
sort_by_routes (Sorted *self, gboolean pads, GRand *rand)
{
  const gint64 each = g_rand_int_range (rand, 1, 20);

  self->ranks = g_rand_int_range (rand, 1, 5);
  self->experts = self->ranks * each;
  self->topk = g_rand_int_range (rand, 1, (gint32)MIN (self->experts, 6) + 1);
  self->rows = compare_odd_size (rand, 700);
  self->room = g_rand_boolean (rand) ? self->rows * MIN (self->topk, each)
                                     : g_rand_int_range (rand, 1, (gint32)self->rows + 1);
  if (self->ranks == 1)
    self->room = self->rows * self->topk + draw_multiple (rand) * self->experts;
  if (pads)
    {
      const gint64 most = self->rows + g_rand_int_range (rand, 0, 9),
                   multiple = MAX ((gint64)manner.value[PLAN_MANNER_MULTIPLE], 1);

      manner.value[PLAN_MANNER_CAPACITY] = (double)most;
      self->room = each * ((most + multiple - 1) / multiple * multiple);
    }
  self->entries
      = PLAN_ROW_MAP_HEAD + self->ranks * self->room + self->rows * self->topk + self->experts;
  draw_routes (self, rand);
  draw_operand (&self->map, PLAN_DTYPE_I32, COMPARE_BYTES, self->entries, rand);
  run_both (PLAN_OP_ROW_MAP, exec_cuda_sort_rows,
            (gint64[]){ self->rows, self->experts, self->ranks, self->entries },
            OPERANDS (&self->map, &self->routes));
  manner = (PlanManner){ 0 };
  check_equal (&self->map, "rows by routes");
  compare_operand_keep (&self->map, device);
}

/* Which tokens experts drop, also among equal probabilities and NaNs, and the rows of those that
 * are left. */
START_TEST (dropped_tokens_are_the_cpus)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gint64 experts = g_rand_int_range (rand, 1, 20);
  Sorted by = { .rows = compare_odd_size (rand, 700),
                .experts = experts,
                .topk = g_rand_int_range (rand, 1, (gint32)MIN (experts, 6) + 1) };
  const gint64 capacity = g_rand_int_range (rand, 1, (gint32)by.rows + 2), n = by.rows * experts;
  const gint64 entries = PLAN_ROW_MAP_HEAD + 2 * by.rows * by.topk + experts;
  CompareOperand in, probs, map;

  draw_routes (&by, rand);
  draw_operand (&in, compare_format (rand), COMPARE_UNIT, n, rand);
  draw_operand (&probs, compare_format (rand), COMPARE_UNIT, n, rand);
  draw_operand (&map, PLAN_DTYPE_U8, COMPARE_BYTES, n, rand);
  draw_operand (&by.map, PLAN_DTYPE_I32, COMPARE_BYTES, entries, rand);
  repeat_some (&in, _i % 3 * 4, rand);
  manner.value[PLAN_MANNER_BY_POSITION] = _i % 4 == 0;
  run_both (PLAN_OP_DROP_TOKENS, exec_cuda_drop_tokens, (gint64[]){ by.rows, experts, capacity },
            OPERANDS (&probs, &map, &in, &by.routes));
  check_equal (&map, "tokens that stay");
  check_equal (&probs, "their probabilities");
  compare_operand_keep (&map, device);
  run_both (PLAN_OP_ROW_MAP, exec_cuda_sort_rows, (gint64[]){ by.rows, experts, 1, entries },
            OPERANDS (&by.map, &map));
  check_equal (&by.map, "rows that are left");
  clear (OPERANDS (&in, &probs, &map, &by.routes, &by.map));
  manner = (PlanManner){ 0 };
}
END_TEST

/* In every third round each rank sent equally many rows to each expert, which nothing counts. */
START_TEST (rows_that_came_are_sorted_as_the_cpus)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gint64 ranks = g_rand_int_range (rand, 1, 9), experts = g_rand_int_range (rand, 1, 12);
  const gint64 capacity = _i % 3 == 0 ? compare_odd_size (rand, 90) : 0;
  const gint64 room = capacity > 0 ? capacity * experts : compare_odd_size (rand, 600),
               rows = ranks * room;
  const gint64 empty = draw_multiple (rand) * experts;
  const gint64 dims[] = { rows, experts, ranks, PLAN_ROW_MAP_HEAD + 2 * rows + empty + experts };
  CompareOperand map, came;

  draw_operand (&map, PLAN_DTYPE_I32, COMPARE_BYTES, dims[3], rand);
  draw_operand (&came, PLAN_DTYPE_I32, COMPARE_BYTES, ranks * experts, rand);
  for (gint64 rank = 0; rank < ranks; rank++)
    {
      gint32 *of_rank = (gint32 *)(gpointer)(came.want + came.at) + rank * experts;
      gint32 left = (gint32)room;

      for (gint64 e = 0; e < experts; e++)
        {
          of_rank[e]
              = g_rand_int_range (rand, 0, 3) == 0 ? 0 : g_rand_int_range (rand, 0, left + 1);
          left -= of_rank[e];
        }
    }
  compare_operand_keep (&came, device);
  manner.value[PLAN_MANNER_CAPACITY] = (double)capacity;
  run_both (PLAN_OP_ROW_MAP, exec_cuda_sort_rows, dims,
            OPERANDS (&map, NULL, capacity > 0 ? NULL : &came));
  manner = (PlanManner){ 0 };
  check_equal (&map, "rows by arrivals");
  clear (OPERANDS (&map, &came));
}
END_TEST

START_TEST (rows_move_as_the_cpus)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gint64 cols = compare_odd_size (rand, 60);
  const PlanDtype format = compare_format (rand), shares = compare_format (rand);
  CompareOperand in, out, back, probs, row_probs, dprobs;
  Sorted by;

  sort_by_routes (&by, _i % 3 == 0, rand);
  const gint64 sorted = by.ranks * by.room;
  const gint64 dims[] = { by.rows, sorted, cols, by.entries, by.rows * by.experts };
  draw_operand (&in, format, COMPARE_BITS, by.rows * cols, rand);
  draw_operand (&out, format, COMPARE_SMALL, sorted * cols, rand);
  draw_operand (&back, format, COMPARE_SMALL, by.rows * cols, rand);
  draw_operand (&probs, shares, COMPARE_UNIT, by.rows * by.experts, rand);
  draw_operand (&row_probs, shares, COMPARE_UNIT, sorted, rand);
  draw_operand (&dprobs, shares, COMPARE_UNIT, by.rows * by.experts, rand);
  run_both (PLAN_OP_PERMUTE, exec_cuda_permute, dims,
            OPERANDS (&out, &in, &by.map, &row_probs, &probs));
  check_equal (&out, "rows by expert");
  check_equal (&row_probs, "shares of rows");
  compare_operand_keep (&out, device);
  run_both (PLAN_OP_UNPERMUTE, exec_cuda_unpermute, dims,
            OPERANDS (&back, &out, &by.map, &dprobs, &row_probs));
  check_equal (&back, "rows put back");
  check_equal (&dprobs, "gradients of shares");
  run_both (PLAN_OP_PERMUTE, exec_cuda_permute, dims, OPERANDS (&out, &in, &by.map));
  check_equal (&out, "rows alone");
  run_both (PLAN_OP_UNPERMUTE, exec_cuda_unpermute, dims, OPERANDS (&back, &out, &by.map));
  check_equal (&back, "rows alone put back");
  clear (OPERANDS (&in, &out, &back, &probs));
  clear (OPERANDS (&row_probs, &dprobs, &by.routes, &by.map));
}
END_TEST

START_TEST (activations_of_experts_are_near_the_cpus)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gint64 rows = g_rand_int_range (rand, 1, 12), cols = compare_odd_size (rand, 900);
  const gint64 kind = _i % (PLAN_ACTIVATION_QUICK_GELU + 1), gated = g_rand_boolean (rand);
  const gint64 dims[] = { rows, cols, kind, gated }, width = (gated ? 2 : 1) * cols;
  CompareOperand out, in, probs, din, dprobs, dout;

  draw_operand (&out, compare_format (rand), COMPARE_SMALL, rows * cols, rand);
  draw_operand (&in, compare_format (rand), COMPARE_SMALL, rows * width, rand);
  draw_operand (&probs, PLAN_DTYPE_FP32, COMPARE_UNIT, rows, rand);
  draw_operand (&din, compare_format (rand), COMPARE_SMALL, rows * width, rand);
  draw_operand (&dprobs, PLAN_DTYPE_FP32, COMPARE_SMALL, rows, rand);
  draw_operand (&dout, compare_format (rand), COMPARE_SMALL, rows * cols, rand);
  manner.value[PLAN_MANNER_LIMIT] = _i % 3 == 0 ? 0.5 : 0;
  manner.value[PLAN_MANNER_OFFSET] = _i % 2 == 0 ? 1 : 0;
  run_both (PLAN_OP_EXPERT_ACTIVATE, exec_cuda_expert_activate, dims, OPERANDS (&out, &in, &probs));
  check_near (&out, 32 * U, 0, "activations of experts");
  run_both (PLAN_OP_EXPERT_ACTIVATE_BWD, exec_cuda_expert_activate_bwd, dims,
            OPERANDS (&din, &dprobs, &dout, &in, &probs));
  check_near (&din, 256 * U, 0, "gradients of activations");
  check_near (&dprobs, (double)cols * 32 * U, 0, "gradients of shares");
  manner = (PlanManner){ 0 };
  clear (OPERANDS (&out, &in, &probs));
  clear (OPERANDS (&din, &dprobs, &dout));
}
END_TEST

/* Draws how many rows each expert has; the last rows may belong to none. */
static void
take_counts (CompareOperand *out, gint64 rows, gint64 groups, GRand *rand)
{
  gint64 left = rows;

  draw_operand (out, PLAN_DTYPE_I32, COMPARE_BYTES, groups, rand);
  gint32 *counts = (gint32 *)(gpointer)(out->want + out->at);
  for (gint64 g = 0; g < groups; g++)
    {
      counts[g] = g_rand_int_range (rand, 0, (gint32)left + 1);
      left -= counts[g];
    }
  compare_operand_keep (out, device);
}

START_TEST (biases_of_experts_are_near_the_cpus)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gint64 rows = g_rand_int_range (rand, 1, 60), cols = compare_odd_size (rand, 900);
  const gint64 groups = g_rand_int_range (rand, 1, 7), dims[] = { rows, cols, groups };
  CompareOperand out, bias, counts, probs, dbias, dout, dprobs;

  draw_operand (&out, compare_format (rand), COMPARE_SMALL, rows * cols, rand);
  draw_operand (&bias, compare_format (rand), COMPARE_SMALL, groups * cols, rand);
  draw_operand (&probs, PLAN_DTYPE_FP32, COMPARE_UNIT, rows, rand);
  draw_operand (&dbias, compare_format (rand), COMPARE_SMALL, groups * cols, rand);
  draw_operand (&dout, compare_format (rand), COMPARE_SMALL, rows * cols, rand);
  draw_operand (&dprobs, PLAN_DTYPE_FP32, COMPARE_SMALL, rows, rand);
  take_counts (&counts, rows, groups, rand);
  CompareOperand *const shares = _i % 3 == 0 ? NULL : &probs;
  CompareOperand *const of_each = _i % 4 == 0 ? NULL : &counts; /* NULL: all equally many */
  run_both (PLAN_OP_ADD_EXPERT_BIAS, exec_cuda_add_expert_bias, dims,
            OPERANDS (&out, &bias, of_each, shares));
  check_near (&out, 4 * U, 0, "rows with biases");
  run_both (PLAN_OP_ADD_EXPERT_BIAS_BWD, exec_cuda_add_expert_bias_bwd, dims,
            OPERANDS (&dbias, &dout, of_each, shares, &bias, shares ? &dprobs : NULL));
  check_near (&dbias, (double)rows * 4 * U, 0, "gradients of biases");
  if (shares)
    check_near (&dprobs, (double)cols * 4 * U, 0, "gradients of shares by biases");
  clear (OPERANDS (&out, &bias, &counts, &probs));
  clear (OPERANDS (&dbias, &dout, &dprobs));
}
END_TEST

START_TEST (sinks_are_near_the_cpus)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gint64 batch = g_rand_int_range (rand, 1, 4), seq = g_rand_int_range (rand, 1, 200);
  const gint64 heads = g_rand_int_range (rand, 1, 9), dim = compare_odd_size (rand, 300);
  const gint64 dims[] = { batch, seq, heads, dim }, rows = batch * seq * heads;
  CompareOperand out, lse, sinks, dsinks, dout;

  draw_operand (&out, compare_format (rand), COMPARE_SMALL, rows * dim, rand);
  draw_operand (&lse, PLAN_DTYPE_FP32, COMPARE_UNIT, rows, rand);
  draw_operand (&sinks, compare_format (rand), COMPARE_UNIT, heads, rand);
  draw_operand (&dsinks, compare_format (rand), COMPARE_SMALL, heads, rand);
  draw_operand (&dout, compare_format (rand), COMPARE_SMALL, rows * dim, rand);
  run_both (PLAN_OP_ATTENTION_SINK, exec_cuda_attention_sink, dims, OPERANDS (&out, &lse, &sinks));
  check_near (&out, 32 * U, 0, "rows beside sinks");
  check_near (&lse, 8 * U, 0, "logs of sums with sinks");
  compare_operand_keep (&out, device); /* the CPU's, on both */
  compare_operand_keep (&lse, device);
  run_both (PLAN_OP_ATTENTION_SINK_BWD, exec_cuda_attention_sink_bwd, dims,
            OPERANDS (&dsinks, &dout, &out, &lse, &sinks));
  check_near (&dsinks, (double)(batch * seq + dim) * 16 * U, 0, "gradients of sinks");
  clear (OPERANDS (&out, &lse, &sinks, &dsinks, &dout));
}
END_TEST

START_TEST (gates_are_near_the_cpus)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gint64 rows = g_rand_int_range (rand, 1, 12), cols = compare_odd_size (rand, 1500);
  const gint64 dims[] = { rows, cols };
  const PlanDtype scores = compare_format (rand);
  CompareOperand out, score, in, din, dscore, dout;

  draw_operand (&out, compare_format (rand), COMPARE_SMALL, rows * cols, rand);
  draw_operand (&score, scores, COMPARE_SMALL, rows, rand);
  draw_operand (&in, compare_format (rand), COMPARE_SMALL, rows * cols, rand);
  draw_operand (&din, compare_format (rand), COMPARE_SMALL, rows * cols, rand);
  draw_operand (&dscore, scores, COMPARE_SMALL, rows, rand);
  draw_operand (&dout, compare_format (rand), COMPARE_SMALL, rows * cols, rand);
  run_both (PLAN_OP_GATE, exec_cuda_gate, dims, OPERANDS (&out, &score, &in));
  check_near (&score, 8 * U, 0, "sigmoids of scores");
  check_near (&out, 32 * U, scores == PLAN_DTYPE_FP32 ? 0 : 0x1p17, "gated rows");
  compare_operand_keep (&score, device); /* the CPU's, on both */
  run_both (PLAN_OP_GATE_BWD, exec_cuda_gate_bwd, dims,
            OPERANDS (&din, &dscore, &dout, &in, &score));
  check_near (&din, 8 * U, 0, "gradients of gated rows");
  check_near (&dscore, (double)cols * 16 * U, 0, "gradients of scores");
  clear (OPERANDS (&out, &score, &in, &din, &dscore, &dout));
}
END_TEST

START_TEST (scaled_rows_are_the_cpus)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gint64 rows = g_rand_int_range (rand, 1, 12), cols = compare_odd_size (rand, 1500);
  const gint64 dims[] = { rows, cols };
  CompareOperand out, in, probs, din, dprobs, dout;

  draw_operand (&out, compare_format (rand), COMPARE_SMALL, rows * cols, rand);
  draw_operand (&in, compare_format (rand), COMPARE_SMALL, rows * cols, rand);
  draw_operand (&probs, PLAN_DTYPE_FP32, COMPARE_UNIT, rows, rand);
  draw_operand (&din, compare_format (rand), COMPARE_SMALL, rows * cols, rand);
  draw_operand (&dprobs, PLAN_DTYPE_FP32, COMPARE_SMALL, rows, rand);
  draw_operand (&dout, compare_format (rand), COMPARE_SMALL, rows * cols, rand);
  run_both (PLAN_OP_SCALE_ROWS, exec_cuda_scale_rows, dims, OPERANDS (&out, &in, &probs));
  check_equal (&out, "scaled rows");
  run_both (PLAN_OP_SCALE_ROWS_BWD, exec_cuda_scale_rows_bwd, dims,
            OPERANDS (&din, &dprobs, &dout, &in, &probs));
  check_equal (&din, "gradients of scaled rows");
  check_near (&dprobs, (double)cols * 16 * U, 0, "gradients of shares");
  clear (OPERANDS (&out, &in, &probs, &din, &dprobs, &dout));
}
END_TEST

void
compare_add_expert_tests (Suite *suite, const CompareDevice *on, SFun setup)
{
  TCase *tcase = tcase_create ("experts");

  device = on;
  tcase_set_timeout (tcase, 120);
  if (setup != NULL)
    tcase_add_checked_fixture (tcase, setup, NULL);
  tcase_add_loop_test (tcase, routes_are_the_cpus, 0, ROUNDS);
  tcase_add_loop_test (tcase, routes_by_biases_and_groups_are_the_cpus, 0, 2 * ROUNDS);
  tcase_add_loop_test (tcase, routes_of_nans_are_the_cpus, 0, ROUNDS / 3);
  tcase_add_loop_test (tcase, dropped_tokens_are_the_cpus, 0, ROUNDS / 2);
  tcase_add_loop_test (tcase, rows_that_came_are_sorted_as_the_cpus, 0, ROUNDS / 2);
  tcase_add_loop_test (tcase, rows_move_as_the_cpus, 0, ROUNDS);
  tcase_add_loop_test (tcase, activations_of_experts_are_near_the_cpus, 0, ROUNDS / 2);
  tcase_add_loop_test (tcase, biases_of_experts_are_near_the_cpus, 0, ROUNDS / 2);
  tcase_add_loop_test (tcase, sinks_are_near_the_cpus, 0, ROUNDS / 3);
  tcase_add_loop_test (tcase, gates_are_near_the_cpus, 0, ROUNDS / 2);
  tcase_add_loop_test (tcase, scaled_rows_are_the_cpus, 0, ROUNDS / 3);
  suite_add_tcase (suite, tcase);
}
