/* SPDX-License-Identifier: Apache-2.0 */
/* Experts: the router and its gradient, rows sorted by expert and back, activations times the
 * experts' shares. The products of experts are exec/cuda/gemm-grouped.c's.
 *
 * Launch shape   route: a warp per row, 8 rows a block. permute, unpermute, expert_activate: pieces
 *                of 8 columns along x in blocks of whole warps up to 256 threads, rows of the
 *                result along y. expert_activate_bwd, gate, gate_bwd: a block per row, 256 threads
 *                at most.
 * Per call       s: bytes per element, of each operand's own format
 *   op                   bytes                               FLOPs
 *   route                rows experts (3 s + 1), and topk    10 rows experts, one or two of them
 *                        times the logits from cache         e^x
 *                        of groups: their keys once more     by bias one e^x for each key read
 *   route_bwd            rows experts (3 s + 1)              12 rows experts, one e^x
 *   balance              layers experts (experts + 3) 4,     layers experts^2
 *                        all but 3 of them from cache
 *   permute              out_rows cols (s + s)               -
 *   unpermute            in_rows cols s + rows cols s        in_rows cols
 *   expert_activate      rows cols (s + s), gated (s + 2 s)  up to 20 rows cols, one of them
 *   expert_activate_bwd  rows cols (2 s + s + 2 s), gated    e^x
 *   gate                 rows cols (s + s)                   rows cols
 *   gate_bwd             rows cols (2 s + s)                 3 rows cols
 * Checked with   exec/cpu/kernels-cpu-experts.c and kernels-cpu-activation.c, by tests/fake and
 *                tests/gpu. The same experts are chosen, and rows are added up in the same order:
 *                permute and unpermute are equal bit for bit. Sums over a row are made in another
 *                order, and e^x is the device's. */
#include "exec/cuda/kernels/activation.cuh"
#include "exec/cuda/kernels/experts.h"
#include "exec/cuda/kernels/reduce.cuh"
#include "exec/cuda/kernels/row-map.cuh"

namespace
{

/* --- the router --------------------------------------------------------------------------- */

/* As in exec/cpu/kernels-cpu-experts.c. */
const float LEAST_SUM = 1e-20f;

struct Router
{
  uint64_t rows, experts;
  unsigned topk;
  PlanRouterScore score;
  bool of_all; /* the softmax is over all experts, not over those chosen */
  float scale;
  uint32_t groups, group_topk; /* the experts chosen are of so many groups; 0: of any */
};

/* A warp's rows. */
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

/* What of a row experts are chosen by: logits; or scores and biases, where `bias` is not NULL. */
struct Row
{
  Array logits;
  const float *bias;
  uint64_t at;
  float max, sum; /* of the softmax over all experts */
};

__device__ inline float
expert_key (const Router &shape, const Row &row, uint32_t expert)
{
  float logit = read_one (row.logits, row.at + expert);

  if (row.bias == NULL)
    return logit;
  return (shape.score == PLAN_ROUTER_SOFTMAX ? expf (logit - row.max) / row.sum
                                             : score_of (shape.score, logit))
         + row.bias[expert];
}

/* The score of a group of experts, as in exec/cpu/kernels-cpu-experts.c. */
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

/* A key of an expert, or of a group of them. */
__device__ inline float
key_of (const Router &shape, const Row &row, bool is_group, uint32_t i)
{
  return is_group ? group_key (shape, row, i) : expert_key (shape, row, i);
}

/* An expert or a group, and its key. */
struct Choice
{
  uint32_t expert;
  float logit;
};

const uint32_t NO_EXPERT = 0xffffffffu;

__device__ inline bool
is_better (const Choice &a, const Choice &b)
{
  return a.expert != NO_EXPERT
         && (b.expert == NO_EXPERT || a.logit > b.logit
             || (a.logit == b.logit && a.expert < b.expert));
}

/* The best of those that are not taken: one with the largest key, of equal ones the first. The
 * first one stays if it is NaN, which nothing is larger than; other NaNs are not chosen. */
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
        if (!isnan (own.logit) && is_better (own, best))
          best = own;
      }
  for (int distance = WARP / 2; distance > 0; distance /= 2)
    {
      uint32_t other_first = __shfl_xor_sync (0xffffffffu, first, distance);
      Choice other = { __shfl_xor_sync (0xffffffffu, best.expert, distance),
                       __shfl_xor_sync (0xffffffffu, best.logit, distance) };

      first = other_first < first ? other_first : first;
      if (is_better (other, best))
        best = other;
    }
  return isnan (key_of (shape, row, is_group, first)) ? first : best.expert;
}

/* Chooses experts, or groups, of which `closed` ones are no choice: this thread's, a bit for
 * each. */
static_assert (EXEC_CUDA_MOST_EXPERTS <= WARP * 32, "a thread has 32 bits");
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

/* Chooses experts, after the groups that they may be of. */
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

/* Scores before they are divided by their sum. */
__device__ inline float
raw_score (const Router &shape, float logit, float max, bool is_taken)
{
  if (shape.score != PLAN_ROUTER_SOFTMAX)
    return score_of (shape.score, logit);
  return shape.of_all || is_taken ? expf (logit - max) : 0.0f;
}

struct Routed
{
  Array probs, saved, logits;
  uint8_t *map;
  const float *bias; /* NULL: experts are chosen by logits */
  float *loads;      /* NULL: tokens of experts are not counted */
};

/* The largest of a row's logits, of those taken or of all; and the sum of their scores. */
__device__ inline float
max_of (const Router &shape, const Array &logits, uint64_t at, bool of_all, uint32_t taken)
{
  float max = -INFINITY;

  for (uint64_t e = threadIdx.x % WARP, bit = 0; e < shape.experts; e += WARP, bit++)
    {
      float logit = read_one (logits, at + e);

      if ((of_all || (taken >> bit & 1)) && logit > max)
        max = logit;
    }
  return warp_max (max);
}

__device__ inline Row
row_of (const Router &shape, const Routed &to, uint64_t at)
{
  Row row = { to.logits, to.bias, at, 0, 0 };

  if (to.bias == NULL || shape.score != PLAN_ROUTER_SOFTMAX)
    return row;
  row.max = max_of (shape, to.logits, at, true, 0);
  for (uint64_t e = threadIdx.x % WARP; e < shape.experts; e += WARP)
    row.sum += expf (read_one (to.logits, at + e) - row.max);
  row.sum = warp_sum (row.sum);
  return row;
}

__device__ inline void
route_row (const Router &shape, const Routed &to, uint64_t at)
{
  const bool is_softmax = shape.score == PLAN_ROUTER_SOFTMAX;
  const uint32_t taken = choose (shape, row_of (shape, to, at));
  const float max = max_of (shape, to.logits, at, shape.of_all, taken);
  float sum = 0;
  unsigned bit = 0;

  for (uint64_t e = threadIdx.x % WARP; e < shape.experts; e += WARP, bit++)
    if (is_softmax || (taken >> bit & 1))
      sum += raw_score (shape, read_one (to.logits, at + e), max, taken >> bit & 1);
  sum = warp_sum (sum);
  bit = 0;
  for (uint64_t e = threadIdx.x % WARP; e < shape.experts; e += WARP, bit++)
    {
      const bool is_taken = (taken >> bit & 1) != 0;
      float score = raw_score (shape, read_one (to.logits, at + e), max, is_taken);
      float divisor = is_softmax || shape.topk == 1 ? 1.0f : sum + LEAST_SUM;

      if (is_softmax)
        score /= sum;
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
};

__device__ inline void
route_row_bwd (const Router &shape, const RoutedBwd &of, uint64_t at)
{
  const bool is_softmax = shape.score == PLAN_ROUTER_SOFTMAX;
  float divisor = 1, mean = 0;

  if (!is_softmax && shape.topk > 1)
    {
      float sum = 0;

      for (uint64_t e = threadIdx.x % WARP; e < shape.experts; e += WARP)
        if (of.map[at + e])
          sum += read_one (of.saved, at + e);
      divisor = warp_sum (sum) + LEAST_SUM;
    }
  for (uint64_t e = threadIdx.x % WARP; e < shape.experts; e += WARP)
    if (of.map[at + e])
      mean += read_one (of.dprobs, at + e) * shape.scale * (read_one (of.saved, at + e) / divisor);
  mean = warp_sum (mean);
  for (uint64_t e = threadIdx.x % WARP; e < shape.experts; e += WARP)
    {
      const bool is_taken = of.map[at + e] != 0;
      float saved = read_one (of.saved, at + e);
      float grad = is_taken ? read_one (of.dprobs, at + e) * shape.scale : 0.0f;

      if (is_softmax)
        grad = saved * (grad - mean);
      else if (is_taken)
        grad = (shape.topk > 1 ? (grad - mean) / divisor : grad) * slope_of (shape.score, saved);
      write_one (of.dlogits, at + e, grad);
    }
}

__global__ void
route_bwd (Router shape, RoutedBwd of)
{
  for (uint64_t row = first_row (); row < shape.rows; row += row_stride ())
    route_row_bwd (shape, of, row * shape.experts);
}

/* Loads are whole numbers, which are summed exactly in double. The coefficient of gradients is NaN
 * in a step that changes nothing. */
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
                   c->pre_softmax != FALSE,
                   (float)c->router_scale,
                   (uint32_t)exec_manner (operands->args, PLAN_MANNER_GROUPS),
                   (uint32_t)exec_manner (operands->args, PLAN_MANNER_GROUP_TOPK) };

  if (shape.experts > EXEC_CUDA_MOST_EXPERTS || shape.topk > shape.experts)
    operands->code = (int)cudaErrorInvalidValue;
  return shape;
}

/* --- sorting rows ------------------------------------------------------------------------- */

/* The first three dims of permute and of unpermute. */
struct Move
{
  uint64_t rows, sorted, cols;
};

__global__ void
permute (Move shape, Array out, Array in, int32_t *map, Array row_probs, Array probs)
{
  RowMap by = row_map_of (map, shape.sorted);

  for (uint64_t row = blockIdx.y; row < shape.sorted; row += gridDim.y)
    {
      int32_t source = by.source[row];
      uint64_t from = source >= 0 ? (uint64_t)source / by.columns : 0;

      for (uint64_t col = first_piece (); col < shape.cols; col += piece_stride ())
        {
          unsigned n = piece_of (col, shape.cols);

          write (out, row * shape.cols + col, n,
                 source >= 0 ? read (in, from * shape.cols + col, n) : Piece{});
        }
      if (row_probs.at != NULL && first_x () == 0)
        write_one (row_probs, row, source >= 0 ? read_one (probs, (uint64_t)source) : 0.0f);
    }
}

/* Adds up, in the order of experts, the sorted rows that came from one row. */
__global__ void
unpermute (Move shape, Array out, Array in, int32_t *map)
{
  RowMap by = row_map_of (map, shape.sorted);

  for (uint64_t row = blockIdx.y; row < shape.rows; row += gridDim.y)
    for (uint64_t col = first_piece (); col < shape.cols; col += piece_stride ())
      {
        unsigned n = piece_of (col, shape.cols);
        Piece sum = {};

        for (uint64_t k = 0; k < by.slots; k++)
          {
            int32_t place = by.place[row * by.slots + k];

            if (place < 0)
              continue;
            Piece term = read (in, (uint64_t)place * shape.cols + col, n);
            for (unsigned i = 0; i < PIECE; i++)
              sum.at[i] += term.at[i];
          }
        write (out, row * shape.cols + col, n, sum);
      }
}

/* The gradients of routing weights are 0 but for those of rows that were sorted. */
__global__ void
clear_shares (Move shape, int32_t *map, Array dprobs)
{
  for (uint64_t i = first_x (); i < shape.rows * (uint64_t)map[EXEC_ROW_MAP_COLUMNS];
       i += stride_x ())
    write_one (dprobs, i, 0);
}

__global__ void
gather_shares (Move shape, int32_t *map, Array dprobs, Array row_dprobs)
{
  RowMap by = row_map_of (map, shape.sorted);

  for (uint64_t row = first_x (); row < shape.sorted; row += stride_x ())
    if (by.source[row] >= 0)
      write_one (dprobs, (uint64_t)by.source[row], read_one (row_dprobs, row));
}

Move
move_of (const Operands &operands)
{
  return { operands.dim (0), operands.dim (1), operands.dim (2) };
}

/* --- activations times shares ------------------------------------------------------------- */

template <PlanActivation kind>
__global__ void
expert_activate (Activation shape, Array out, Array in, Array probs)
{
  for (uint64_t row = blockIdx.y; row < shape.rows; row += gridDim.y)
    for (uint64_t col = first_piece (); col < shape.cols; col += piece_stride ())
      {
        unsigned n = piece_of (col, shape.cols);
        uint64_t at = row * shape.width + col;
        Words gates = fetch (in, at, n), ups = {};
        Piece gate, up, value;
        float share = read_one (probs, row);

        if (shape.is_gated)
          ups = fetch (in, at + shape.cols, n);
        gate = widen (in, gates);
        up = widen (in, ups);
        for (unsigned i = 0; i < PIECE; i++)
          value.at[i] = point_of<kind> (bound_gate (shape, gate.at[i])).value
                        * factor_of (shape, up.at[i]) * share;
        write (out, row * shape.cols + col, n, value);
      }
}

struct ExpertGrads
{
  Array din, dprobs, dout, in, probs;
};

template <PlanActivation kind>
__global__ void
expert_activate_bwd (Activation shape, ExpertGrads of)
{
  for (uint64_t row = blockIdx.x; row < shape.rows; row += gridDim.x)
    {
      float share = read_one (of.probs, row), sum = 0;

      for (uint64_t col = first_col (); col < shape.cols; col += col_stride ())
        {
          unsigned n = piece_of (col, shape.cols);
          uint64_t at = row * shape.width + col;
          Words gates = fetch (of.in, at, n), ups = {};
          Words douts = fetch (of.dout, row * shape.cols + col, n);
          Piece gate, up, d, dgate, dup;

          if (shape.is_gated)
            ups = fetch (of.in, at + shape.cols, n);
          gate = widen (of.in, gates);
          up = widen (of.in, ups);
          d = widen (of.dout, douts);
          for (unsigned i = 0; i < PIECE; i++)
            {
              Point point = point_of<kind> (bound_gate (shape, gate.at[i]));
              float factor = factor_of (shape, up.at[i]), dact = d.at[i] * share;

              if (i < n)
                sum += d.at[i] * point.value * factor;
              dup.at[i] = point.value * dact;
              dgate.at[i] = point.slope * (dact * factor);
              stop_beyond (shape, gate.at[i], up.at[i], &dgate.at[i], &dup.at[i]);
            }
          write (of.din, at, n, dgate);
          if (shape.is_gated)
            write (of.din, at + shape.cols, n, dup);
        }
      sum = block_sum (sum);
      if (threadIdx.x == 0)
        write_one (of.dprobs, row, sum);
    }
}

/* --- the gate of shared experts ----------------------------------------------------------- */

/* Rows are multiplied by the sigmoid as it is rounded. */
__global__ void
gate (uint64_t rows, uint64_t cols, Array out, Array score, Array in)
{
  for (uint64_t row = blockIdx.x; row < rows; row += gridDim.x)
    {
      float scale = score_of (PLAN_ROUTER_SIGMOID, read_one (score, row));

      __syncthreads ();
      if (threadIdx.x == 0)
        write_one (score, row, scale);
      __syncthreads ();
      scale = read_one (score, row);
      for (uint64_t col = first_col (); col < cols; col += col_stride ())
        {
          unsigned n = piece_of (col, cols);
          Piece value = read (in, row * cols + col, n);

          for (unsigned i = 0; i < PIECE; i++)
            value.at[i] *= scale;
          write (out, row * cols + col, n, value);
        }
    }
}

struct GateGrads
{
  Array din, dscore, dout, in, score;
};

__global__ void
gate_bwd (uint64_t rows, uint64_t cols, GateGrads of)
{
  for (uint64_t row = blockIdx.x; row < rows; row += gridDim.x)
    {
      float scale = read_one (of.score, row), sum = 0;

      for (uint64_t col = first_col (); col < cols; col += col_stride ())
        {
          unsigned n = piece_of (col, cols);
          Piece in = read (of.in, row * cols + col, n);
          Piece dout = read (of.dout, row * cols + col, n);

          for (unsigned i = 0; i < PIECE; i++)
            {
              if (i < n)
                sum += dout.at[i] * in.at[i];
              dout.at[i] *= scale;
            }
          write (of.din, row * cols + col, n, dout);
        }
      sum = block_sum (sum);
      if (threadIdx.x == 0)
        write_one (of.dscore, row, sum * scale * (1.0f - scale));
    }
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
          (const uint8_t *)args->ptr[PLAN_REF_ROUTE_BWD_map] };

  if (operands.code != 0)
    return operands.code;
  return EXEC_CUDA_LAUNCH (route_bwd, shape_of_items (shape.rows * WARP), stream, shape, of);
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

extern "C" int
exec_cuda_permute (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  Move shape = move_of (operands);
  Array out = operands.rows_of (PLAN_REF_PERMUTE_out, shape.cols);
  Array in = operands.rows_of (PLAN_REF_PERMUTE_in, shape.cols);
  int32_t *map = operands.ints (PLAN_REF_PERMUTE_map);
  Array row_probs = operands.array (PLAN_REF_PERMUTE_row_probs);
  Array probs = operands.array (PLAN_REF_PERMUTE_probs);

  if (operands.code != 0)
    return operands.code;
  return EXEC_CUDA_LAUNCH (permute, shape_of_matrix (shape.sorted, pieces_of (shape.cols)), stream,
                           shape, out, in, map, row_probs, probs);
}

extern "C" int
exec_cuda_unpermute (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  Move shape = move_of (operands);
  Array out = operands.rows_of (PLAN_REF_UNPERMUTE_out, shape.cols);
  Array in = operands.rows_of (PLAN_REF_UNPERMUTE_in, shape.cols);
  int32_t *map = operands.ints (PLAN_REF_UNPERMUTE_map);
  Array dprobs = operands.array (PLAN_REF_UNPERMUTE_dprobs);
  Array row_dprobs = operands.array (PLAN_REF_UNPERMUTE_row_dprobs);

  if (operands.code != 0)
    return operands.code;
  int code = EXEC_CUDA_LAUNCH (unpermute, shape_of_matrix (shape.rows, pieces_of (shape.cols)),
                               stream, shape, out, in, map);
  if (code != 0 || dprobs.at == NULL)
    return code;
  code = EXEC_CUDA_LAUNCH (clear_shares, shape_of_items (shape.rows * WARP), stream, shape, map,
                           dprobs);
  return code != 0 ? code
                   : EXEC_CUDA_LAUNCH (gather_shares, shape_of_items (shape.sorted), stream, shape,
                                       map, dprobs, row_dprobs);
}

extern "C" int
exec_cuda_expert_activate (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  Activation shape = activation_of (operands);
  Array out = operands.rows_of (PLAN_REF_EXPERT_ACTIVATE_out, shape.cols);
  Array in = operands.rows_of (PLAN_REF_EXPERT_ACTIVATE_in, shape.cols);
  Array probs = operands.array (PLAN_REF_EXPERT_ACTIVATE_probs);
  Shape launch = shape_of_matrix (shape.rows, pieces_of (shape.cols));

  if (operands.code != 0)
    return operands.code;
  return launch_kind (shape.kind, [&] (auto kind) {
    return EXEC_CUDA_LAUNCH (expert_activate<decltype (kind)::value>, launch, stream, shape, out,
                             in, probs);
  });
}

extern "C" int
exec_cuda_expert_activate_bwd (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  Activation shape = activation_of (operands);
  ExpertGrads of = { operands.rows_of (PLAN_REF_EXPERT_ACTIVATE_BWD_din, shape.cols),
                     operands.array (PLAN_REF_EXPERT_ACTIVATE_BWD_dprobs),
                     operands.rows_of (PLAN_REF_EXPERT_ACTIVATE_BWD_dout, shape.cols),
                     operands.rows_of (PLAN_REF_EXPERT_ACTIVATE_BWD_in, shape.cols),
                     operands.array (PLAN_REF_EXPERT_ACTIVATE_BWD_probs) };
  Shape launch = shape_of_rows (shape.rows, shape.cols);

  if (operands.code != 0)
    return operands.code;
  return launch_kind (shape.kind, [&] (auto kind) {
    return EXEC_CUDA_LAUNCH (expert_activate_bwd<decltype (kind)::value>, launch, stream, shape,
                             of);
  });
}

extern "C" int
exec_cuda_gate (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  const uint64_t rows = operands.dim (0), cols = operands.dim (1);
  Array out = operands.rows_of (PLAN_REF_GATE_out, cols);
  Array score = operands.array (PLAN_REF_GATE_score);
  Array in = operands.rows_of (PLAN_REF_GATE_in, cols);

  if (operands.code != 0)
    return operands.code;
  return EXEC_CUDA_LAUNCH (gate, shape_of_rows (rows, cols), stream, rows, cols, out, score, in);
}

extern "C" int
exec_cuda_gate_bwd (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  const uint64_t rows = operands.dim (0), cols = operands.dim (1);
  GateGrads of
      = { operands.rows_of (PLAN_REF_GATE_BWD_din, cols), operands.array (PLAN_REF_GATE_BWD_dscore),
          operands.rows_of (PLAN_REF_GATE_BWD_dout, cols),
          operands.rows_of (PLAN_REF_GATE_BWD_in, cols), operands.array (PLAN_REF_GATE_BWD_score) };

  if (operands.code != 0)
    return operands.code;
  return EXEC_CUDA_LAUNCH (gate_bwd, shape_of_rows (rows, cols), stream, rows, cols, of);
}
