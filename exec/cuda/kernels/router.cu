/* SPDX-License-Identifier: Apache-2.0 */
/* The router that assigns tokens to experts: the choice, its gradient and that of the auxiliary
 * loss, and the update of the biases that balance experts.
 *
 * Launch shape   route, route_bwd: a warp per row, 8 rows a block; route_bwd with an auxiliary loss
 *                at most 128 blocks, and so count_routes. balance: a thread per layer and expert.
 * Per call       s: bytes per element, of each operand's own format
 *   op                   bytes                               FLOPs
 *   route                rows experts (3 s + 1), and the     10 rows experts, one or two of them
 *                        logits from cache topk times, with  e^x; with biases one more e^x for
 *                        groups group_topk times more        each logit that is read
 *   route_bwd            rows experts (3 s + 1), and with    12 rows experts, one of them e^x
 *                        an auxiliary loss the map once per
 *                        block, from cache, or numbers of
 *                        rows that are there
 *   count_routes         rows experts
 *   balance              layers experts (experts + 3) 4,     layers experts^2
 *                        all but 3 of them from cache
 * Checked with   exec/cpu/kernels-cpu-experts.c, by tests/fake and tests/gpu. The same experts are
 *                chosen. Sums over a row are made in another order, and e^x is the device's. */
#include "exec/cuda/kernels/experts.h"
#include "exec/cuda/kernels/launch.cuh"
#include "exec/cuda/kernels/reduce.cuh"

namespace
{

/* Added to the sum that scores are divided by, as in exec/cpu/kernels-cpu-experts.c. */
const float LEAST_SUM = 1e-20f;

/* The most threads of a grid in which each block counts the rows of all experts: more blocks would
 * read the map more often. */
const uint64_t COUNTING_THREADS = 128 * THREADS;

struct Router
{
  uint64_t rows, experts;
  unsigned topk;
  PlanRouterScore score;
  bool divides; /* scores are divided by the sum of those chosen */
  float scale;
  uint32_t groups, group_topk; /* a row's experts come from this many groups; 0: from any */
};

/* The first row of this thread's warp; row_stride () further is its next. */
__device__ inline uint64_t
first_row ()
{
  return first_x () / WARP;
}

__device__ inline uint64_t
row_stride ()
{
  return stride_x () / WARP;
}

__device__ inline float
warp_max (float value)
{
  for (int distance = WARP / 2; distance > 0; distance /= 2)
    {
      float other = __shfl_xor_sync (0xffffffffu, value, distance);

      value = other > value ? other : value;
    }
  return value;
}

/* The score of an expert by its logit alone: sigmoid, or sqrt (log (1 + e^x)). */
__device__ inline float
score_of (PlanRouterScore kind, float x)
{
  float small = expf (-fabsf (x));

  if (kind == PLAN_ROUTER_SIGMOID)
    return x > 0 ? 1.0f / (1.0f + small) : small / (1.0f + small);
  return sqrtf ((x > 0 ? x : 0) + log1pf (small));
}

/* The keys by which a row's experts are chosen: logits, or sums of scores and biases where `bias`
 * is not NULL. */
struct Row
{
  Array logits;
  const float *bias;
  uint64_t at;    /* of the row's first logit */
  float max, sum; /* of the softmax over all experts */
};

__device__ inline float
expert_score (const Router &shape, const Row &row, uint32_t expert)
{
  float logit = read_one (row.logits, row.at + expert);

  return shape.score == PLAN_ROUTER_SOFTMAX ? expf (logit - row.max) / row.sum
                                            : score_of (shape.score, logit);
}

/* The key of an expert: those with the largest keys are chosen. */
__device__ inline float
expert_key (const Router &shape, const Row &row, uint32_t expert)
{
  return row.bias == NULL ? read_one (row.logits, row.at + expert)
                          : expert_score (shape, row, expert) + row.bias[expert];
}

/* The key of a group of experts: the largest of theirs, or with biases the sum of the two largest,
 * as in exec/cpu/kernels-cpu-experts.c. */
__device__ inline float
group_key (const Router &shape, const Row &row, uint32_t group)
{
  const uint32_t size = (uint32_t)shape.experts / shape.groups;
  float best = -INFINITY, next = -INFINITY;

  for (uint32_t e = group * size; e < (group + 1) * size; e++)
    {
      float key = expert_key (shape, row, e);

      if (key > best)
        {
          next = best;
          best = key;
        }
      else if (key > next)
        next = key;
    }
  return row.bias != NULL && size > 1 ? best + next : best;
}

/* The key of an expert, or of a group of them. */
__device__ inline float
key_of (const Router &shape, const Row &row, bool is_group, uint32_t i)
{
  return is_group ? group_key (shape, row, i) : expert_key (shape, row, i);
}

/* An expert or a group, and its key. */
struct Choice
{
  uint32_t number;
  float key;
};

const uint32_t NO_EXPERT = 0xffffffffu; /* and no group */

__device__ inline bool
is_better (const Choice &a, const Choice &b)
{
  return a.number != NO_EXPERT
         && (b.number == NO_EXPERT || a.key > b.key || (a.key == b.key && a.number < b.number));
}

/* The best of those that are not taken: one with the largest key, of equal ones the first. If the
 * key of the first that is not taken is NaN, that one is the best, as on the CPU, which finds no
 * larger key; others with NaNs are not chosen. */
__device__ inline uint32_t
best_of (const Router &shape, const Row &row, bool is_group, uint32_t taken)
{
  const uint32_t n = is_group ? shape.groups : (uint32_t)shape.experts;
  Choice best = { NO_EXPERT, 0 };
  uint32_t first = NO_EXPERT;
  unsigned bit = 0;

  for (uint32_t e = threadIdx.x % WARP; e < n; e += WARP, bit++)
    if ((taken >> bit & 1) == 0)
      {
        Choice own = { e, key_of (shape, row, is_group, e) };

        first = e < first ? e : first;
        if (!isnan (own.key) && is_better (own, best))
          best = own;
      }
  for (int distance = WARP / 2; distance > 0; distance /= 2)
    {
      uint32_t other_first = __shfl_xor_sync (0xffffffffu, first, distance);
      Choice other = { __shfl_xor_sync (0xffffffffu, best.number, distance),
                       __shfl_xor_sync (0xffffffffu, best.key, distance) };

      first = other_first < first ? other_first : first;
      if (is_better (other, best))
        best = other;
    }
  return isnan (key_of (shape, row, is_group, first)) ? first : best.number;
}

static_assert (EXEC_CUDA_MOST_EXPERTS <= WARP * 32, "a thread has 32 bits");

/* Chooses `topk` experts, or groups, none of them in `closed`. That set and the result have a bit
 * for each of this thread's experts or groups, which are every 32nd. */
__device__ inline uint32_t
choose_of (const Router &shape, const Row &row, bool is_group, unsigned topk, uint32_t closed)
{
  uint32_t taken = 0;

  for (unsigned k = 0; k < topk; k++)
    {
      uint32_t best = best_of (shape, row, is_group, taken | closed);

      if (best % WARP == threadIdx.x % WARP)
        taken |= 1u << best / WARP;
    }
  return taken;
}

/* Chooses experts. If they may be of some groups only, these are chosen first. */
__device__ inline uint32_t
choose (const Router &shape, const Row &row)
{
  const uint32_t size = shape.groups > 0 ? (uint32_t)shape.experts / shape.groups : 1;
  uint32_t closed = 0, open;

  if (shape.groups == 0)
    return choose_of (shape, row, false, shape.topk, 0);
  open = choose_of (shape, row, true, shape.group_topk, 0);
  for (uint32_t first = 0, bit = 0; first < shape.experts; first += WARP, bit++)
    {
      const uint32_t e = first + threadIdx.x % WARP;
      const uint32_t group = (e < shape.experts ? e : (uint32_t)shape.experts - 1) / size;

      if ((__shfl_sync (0xffffffffu, open, group % WARP) >> group / WARP & 1) == 0)
        closed |= 1u << bit;
    }
  return choose_of (shape, row, false, shape.topk, closed);
}

/* The derivative of score_of, in terms of the score. */
__device__ inline float
slope_of (PlanRouterScore kind, float score)
{
  if (kind == PLAN_ROUTER_SIGMOID)
    return score * (1.0f - score);
  return score > 0 ? -expm1f (-score * score) / (2.0f * score) : 0.0f;
}

struct Routed
{
  Array probs, saved, logits;
  uint8_t *map;
  const float *bias; /* NULL: experts are chosen by logits */
  float *loads;      /* NULL: tokens of experts are not counted */
};

__device__ inline Row
row_of (const Router &shape, const Routed &to, uint64_t at)
{
  Row row = { to.logits, to.bias, at, -INFINITY, 0 };

  if (shape.score != PLAN_ROUTER_SOFTMAX)
    return row;
  for (uint64_t e = threadIdx.x % WARP; e < shape.experts; e += WARP)
    {
      float logit = read_one (to.logits, at + e);

      row.max = logit > row.max ? logit : row.max;
    }
  row.max = warp_max (row.max);
  for (uint64_t e = threadIdx.x % WARP; e < shape.experts; e += WARP)
    row.sum += expf (read_one (to.logits, at + e) - row.max);
  row.sum = warp_sum (row.sum);
  return row;
}

__device__ inline void
route_row (const Router &shape, const Routed &to, uint64_t at)
{
  const Row row = row_of (shape, to, at);
  const uint32_t taken = choose (shape, row);
  float divisor = 1;

  if (shape.divides)
    {
      float sum = 0;

      for (uint32_t e = threadIdx.x % WARP, bit = 0; e < shape.experts; e += WARP, bit++)
        if (taken >> bit & 1)
          sum += expert_score (shape, row, e);
      divisor = warp_sum (sum) + LEAST_SUM;
    }
  for (uint32_t e = threadIdx.x % WARP, bit = 0; e < shape.experts; e += WARP, bit++)
    {
      const bool is_taken = (taken >> bit & 1) != 0;
      float score = expert_score (shape, row, e);

      to.map[at + e] = is_taken;
      if (is_taken && to.loads != NULL)
        atomicAdd (&to.loads[e], 1.0f);
      write_one (to.saved, at + e, score);
      write_one (to.probs, at + e, is_taken ? score / divisor * shape.scale : 0.0f);
    }
}

__global__ void
route (Router shape, Routed to)
{
  for (uint64_t row = first_row (); row < shape.rows; row += row_stride ())
    route_row (shape, to, row * shape.experts);
}

struct RoutedBwd
{
  Array dlogits, dprobs, saved;
  const uint8_t *map;
  const float *counts; /* tokens of each expert, of several ranks; NULL: those in `map` */
};

/* The sums over a row by which its scores are divided: over the experts it goes to, and, for the
 * auxiliary loss, over all. 1 where scores are not divided. */
struct RowSums
{
  float taken, all;
};

__device__ inline RowSums
sums_of (const Router &shape, const RoutedBwd &of, uint64_t at)
{
  RowSums sums = { 0, 0 };

  for (uint64_t e = threadIdx.x % WARP; e < shape.experts; e += WARP)
    {
      float saved = read_one (of.saved, at + e);

      sums.all += saved;
      sums.taken += of.map[at + e] ? saved : 0.0f;
    }
  sums.taken = shape.divides ? warp_sum (sums.taken) + LEAST_SUM : 1.0f;
  sums.all = shape.score == PLAN_ROUTER_SOFTMAX ? 1.0f : warp_sum (sums.all) + LEAST_SUM;
  return sums;
}

/* `aux_grads` are the gradients of the auxiliary loss with respect to experts' probabilities; NULL:
 * there is no such loss. */
__device__ inline void
route_row_bwd (const Router &shape, const RoutedBwd &of, const float *aux_grads, uint64_t at)
{
  const bool is_softmax = shape.score == PLAN_ROUTER_SOFTMAX;
  const RowSums sums = sums_of (shape, of, at);
  float mean = 0, mean_aux_grad = 0;

  for (uint64_t e = threadIdx.x % WARP; e < shape.experts; e += WARP)
    {
      float saved = read_one (of.saved, at + e);

      if (of.map[at + e])
        mean += read_one (of.dprobs, at + e) * shape.scale * (saved / sums.taken);
      if (aux_grads != NULL)
        mean_aux_grad += aux_grads[e] * (saved / sums.all);
    }
  mean = warp_sum (mean);
  mean_aux_grad = warp_sum (mean_aux_grad);
  for (uint64_t e = threadIdx.x % WARP; e < shape.experts; e += WARP)
    {
      const bool is_taken = of.map[at + e] != 0;
      float saved = read_one (of.saved, at + e);
      float slope = is_softmax ? saved : slope_of (shape.score, saved);
      float grad = is_taken ? read_one (of.dprobs, at + e) * shape.scale : 0.0f;

      if (is_softmax)
        grad = is_taken || !shape.divides ? saved / sums.taken * (grad - mean) : 0.0f;
      else if (is_taken)
        grad = (shape.divides ? (grad - mean) / sums.taken : grad) * slope;
      if (aux_grads != NULL)
        grad += (aux_grads[e] - mean_aux_grad) / sums.all * slope;
      write_one (of.dlogits, at + e, grad);
    }
}

/* Counts each expert's rows, every `step`-th from `first` on. */
__device__ inline void
count_rows (const uint8_t *map, uint64_t rows, uint64_t experts, uint64_t first, uint64_t step,
            float *out)
{
  for (uint64_t e = threadIdx.x; e < experts; e += blockDim.x)
    out[e] = 0;
  __syncthreads ();
  for (uint64_t row = first; row < rows; row += step)
    for (uint64_t e = threadIdx.x % WARP; e < experts; e += WARP)
      if (map[row * experts + e])
        atomicAdd (&out[e], 1.0f);
  __syncthreads ();
}

/* Gives each expert's number of rows times `unit`. Every block counts for itself. */
__device__ inline void
weigh_rows (const Router &shape, const RoutedBwd &of, float unit, float *out)
{
  if (of.counts == NULL)
    count_rows (of.map, shape.rows, shape.experts, threadIdx.x / WARP, blockDim.x / WARP, out);
  for (uint64_t e = threadIdx.x; e < shape.experts; e += blockDim.x)
    out[e] = (of.counts == NULL ? out[e] : of.counts[e]) * unit;
  __syncthreads ();
}

__global__ void
count_routes (uint64_t rows, uint64_t experts, const uint8_t *map, float *counts)
{
  __shared__ float own[EXEC_CUDA_MOST_EXPERTS];

  count_rows (map, rows, experts, first_row (), row_stride (), own);
  for (uint64_t e = threadIdx.x; e < experts; e += blockDim.x)
    atomicAdd (&counts[e], own[e]);
}

__global__ void
route_bwd (Router shape, RoutedBwd of, float unit)
{
  __shared__ float aux_grads[EXEC_CUDA_MOST_EXPERTS];

  if (unit != 0)
    weigh_rows (shape, of, unit, aux_grads);
  for (uint64_t row = first_row (); row < shape.rows; row += row_stride ())
    route_row_bwd (shape, of, unit != 0 ? aux_grads : NULL, row * shape.experts);
}

/* Raises the bias of each expert that got fewer rows than the layer's mean, and lowers it where it
 * got more. Loads are whole numbers, which are summed exactly in double. The coefficient of
 * gradients is NaN in a step that changes nothing. */
__global__ void
balance (uint64_t layers, uint64_t experts, float rate, float *bias, const float *loads,
         const float *coef)
{
  if (isnan (coef[0]))
    return;
  for (uint64_t i = first_x (); i < layers * experts; i += stride_x ())
    {
      const float *of_layer = loads + i / experts * experts;
      double all = 0, load = (double)loads[i] * (double)experts;

      for (uint64_t e = 0; e < experts; e++)
        all += (double)of_layer[e];
      if (load != all)
        bias[i] += load < all ? rate : -rate;
    }
}

Router
router_of (Operands *operands)
{
  const ExecConstants *c = operands->args->constants;
  Router shape = { operands->dim (0),
                   operands->dim (1),
                   (unsigned)operands->dim (2),
                   c->router_score,
                   c->router_score == PLAN_ROUTER_SOFTMAX ? !c->pre_softmax : operands->dim (2) > 1,
                   (float)c->router_scale,
                   (uint32_t)exec_manner (operands->args, PLAN_MANNER_GROUPS),
                   (uint32_t)exec_manner (operands->args, PLAN_MANNER_GROUP_TOPK) };

  if (shape.experts > EXEC_CUDA_MOST_EXPERTS || shape.topk > shape.experts)
    operands->code = (int)cudaErrorInvalidValue;
  return shape;
}

}

extern "C" int
exec_cuda_route (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  Router shape = router_of (&operands);
  Routed to = { operands.array (PLAN_REF_ROUTE_probs),  operands.array (PLAN_REF_ROUTE_saved),
                operands.array (PLAN_REF_ROUTE_logits), (uint8_t *)args->ptr[PLAN_REF_ROUTE_map],
                operands.floats (PLAN_REF_ROUTE_bias),  operands.floats (PLAN_REF_ROUTE_loads) };

  if (operands.code != 0)
    return operands.code;
  return EXEC_CUDA_LAUNCH (route, shape_of_items (shape.rows * WARP), stream, shape, to);
}

extern "C" int
exec_cuda_route_bwd (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  Router shape = router_of (&operands);
  RoutedBwd of
      = { operands.array (PLAN_REF_ROUTE_BWD_dlogits), operands.array (PLAN_REF_ROUTE_BWD_dprobs),
          operands.array (PLAN_REF_ROUTE_BWD_saved),
          (const uint8_t *)args->ptr[PLAN_REF_ROUTE_BWD_map],
          operands.floats (PLAN_REF_ROUTE_BWD_counts) };
  const gint64 counted = (gint64)exec_manner (args, PLAN_MANNER_COUNTED);
  const float unit = exec_aux_loss_unit (args, counted > 0 ? counted : (gint64)shape.rows,
                                         (gint64)shape.experts, (gint64)shape.topk);
  const uint64_t items = shape.rows * WARP;

  if (operands.code != 0)
    return operands.code;
  return EXEC_CUDA_LAUNCH (route_bwd,
                           shape_of_items (unit != 0 ? at_most (items, COUNTING_THREADS) : items),
                           stream, shape, of, unit);
}

extern "C" int
exec_cuda_count_routes (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  const uint64_t rows = operands.dim (PLAN_DIM_COUNT_ROUTES_rows),
                 experts = operands.dim (PLAN_DIM_COUNT_ROUTES_experts);
  float *counts = operands.floats (PLAN_REF_COUNT_ROUTES_counts);
  const uint8_t *map = (const uint8_t *)args->ptr[PLAN_REF_COUNT_ROUTES_map];

  if (operands.code != 0 || experts > EXEC_CUDA_MOST_EXPERTS)
    return operands.code != 0 ? operands.code : (int)cudaErrorInvalidValue;
  const int code = (int)cudaMemsetAsync (counts, 0, experts * sizeof *counts, (cudaStream_t)stream);
  return code != 0 ? code
                   : EXEC_CUDA_LAUNCH (count_routes,
                                       shape_of_items (at_most (rows * WARP, COUNTING_THREADS)),
                                       stream, rows, experts, map, counts);
}

extern "C" int
exec_cuda_balance (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  const uint64_t layers = operands.dim (0), experts = operands.dim (1);
  float *bias = operands.floats (PLAN_REF_BALANCE_bias);
  const float *loads = operands.floats (PLAN_REF_BALANCE_loads);
  const float *coef = operands.floats (PLAN_REF_BALANCE_coef);
  const float rate = (float)args->constants->bias_rate;

  if (operands.code != 0)
    return operands.code;
  return EXEC_CUDA_LAUNCH (balance, shape_of_items (layers * experts), stream, layers, experts,
                           rate, bias, loads, coef);
}
