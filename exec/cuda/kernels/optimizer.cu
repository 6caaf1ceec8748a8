/* SPDX-License-Identifier: Apache-2.0 */
/* What happens to a gradient: its norm, the factor that clips it, the update by AdamW or SGD.
 *
 * Launch shape   adamw, sgd: a thread per piece of 8 elements, 256 a block, at most 2048 blocks.
 *                norm_sq: 64 threads and 33 KiB of shared memory a block, at most 2048 blocks; then
 *                one thread, which carries between limbs. clip: a thread per limb of a rank's sums.
 * Checked with   the CPU kernel of the same op, exec/cpu/kernels-cpu-optimizer.c, by tests/fake and
 *                tests/gpu: equal bit for bit. The updates are the same operations in the same
 *                order, sums are integers, and clip works in doubles as the CPU does.
 *
 * Per call, with operands of s bytes an element (s of its own format each):
 *   op        bytes                          FLOPs
 *   adamw     count (2 s + 2 s + 2 s + s)    18 count; with `out` count s more
 *   sgd       count (2 s + 2 s + s)          7 count; the same
 *   norm_sq   count s                        about 20 count integer instructions
 *   clip      ranks 320                      - */
#include "exec/cuda/kernels/adam.cuh"
#include "exec/cuda/kernels/exact.cuh"

namespace
{

/* coef[0], which multiplies the gradient, is in device memory because the gradient's norm is. It is
 * NaN where the loss or the norm is not finite: such a step changes nothing. */
__global__ void
adamw (uint64_t count, Adam adam, ExecCudaVarying given, const ExecCudaVarying *own, Array main,
       Array exp_avg, Array exp_avg_sq, Array grad, const float *coef, Array out)
{
  ExecCudaVarying step = varying_of (given, own);
  float scale = coef[0];

  if (isnan (scale))
    return;
  for (uint64_t at = first_piece (); at < count; at += piece_stride ())
    {
      unsigned n = piece_of (at, count);
      Words weights = fetch (main, at, n), avgs = fetch (exp_avg, at, n);
      Words sqs = fetch (exp_avg_sq, at, n), grads = fetch (grad, at, n);
      Piece weight = widen (main, weights), avg = widen (exp_avg, avgs);
      Piece sq = widen (exp_avg_sq, sqs), g = widen (grad, grads);

      for (unsigned i = 0; i < PIECE; i++)
        {
          step_moments (adam, g.at[i] * scale, &avg.at[i], &sq.at[i]);
          weight.at[i] = step_weight (adam, step, weight.at[i], avg.at[i], sq.at[i]);
        }
      write_weight (main, out, at, n, weight);
      write (exp_avg, at, n, avg);
      write (exp_avg_sq, at, n, sq);
    }
}

struct Sgd
{
  float momentum, weight_decay;
};

__global__ void
sgd (uint64_t count, Sgd rule, ExecCudaVarying given, const ExecCudaVarying *own, Array main,
     Array momentum, Array grad, const float *coef, Array out)
{
  float scale = coef[0], lr = varying_of (given, own).lr;

  if (isnan (scale))
    return;
  for (uint64_t at = first_piece (); at < count; at += piece_stride ())
    {
      unsigned n = piece_of (at, count);
      Words weights = fetch (main, at, n), speeds = fetch (momentum, at, n);
      Words grads = fetch (grad, at, n);
      Piece weight = widen (main, weights), speed = widen (momentum, speeds);
      Piece g = widen (grad, grads);

      for (unsigned i = 0; i < PIECE; i++)
        {
          speed.at[i]
              = rule.momentum * speed.at[i] + (g.at[i] * scale + rule.weight_decay * weight.at[i]);
          weight.at[i] = weight.at[i] - lr * speed.at[i];
        }
      write_weight (main, out, at, n, weight);
      write (momentum, at, n, speed);
    }
}

/* --- the norm ----------------------------------------------------------------------------- */

/* The square of a float is an integer of 48 bits, times a power of four. Per thread, the squares of
 * floats whose exponents agree in all but the last two bits are added up in one integer, each
 * shifted by up to 6 bits: 2^10 of them fit into 64 bits. */
enum : unsigned
{
  GROUPS = 64,           /* of 4 exponents each */
  NORM_THREADS = GROUPS, /* a block's threads collect a group each */
  PIECES_BETWEEN = 64,   /* that a thread adds up before it must collect: 512 squares */
  PIECES_AHEAD = 4,      /* that it loads ahead: few threads fit beside so much shared memory */
  DIGITS = 5             /* limbs that a group's sum reaches */
};

struct Squares
{
  Limb sum[GROUPS][NORM_THREADS];
  Limb digits[GROUPS][DIGITS];
};

__device__ inline Squares &
squares ()
{
  __shared__ Squares shared;

  return shared;
}

/* A group's sum is low + high * 2^32. */
struct Group
{
  Limb low, high;
};

/* Moves the sums that all threads have for one group, this thread's, into `group`. */
__device__ inline void
collect (Group *group)
{
  Squares &shared = squares ();

  __syncthreads ();
  for (unsigned i = 0; i < NORM_THREADS; i++)
    {
      Limb *from = &shared.sum[threadIdx.x][(threadIdx.x + i) % NORM_THREADS];

      group->low += *from & LIMB_MASK;
      group->high += *from >> LIMB_BITS;
      *from = 0;
    }
  __syncthreads ();
}

/* Adds the block's groups to a sum that other blocks add to at the same time. */
__device__ inline void
add_groups (Limb *sum, const Group &group)
{
  Squares &shared = squares ();
  unsigned shift = 8 * threadIdx.x % LIMB_BITS; /* group g counts in 2^(8 g - 298) */
  Limb carry = 0, total = 0;
  Limb halves[4] = { group.low & LIMB_MASK, (group.low >> LIMB_BITS) + (group.high & LIMB_MASK),
                     group.high >> LIMB_BITS, 0 };

  for (unsigned i = 0; i < DIGITS; i++)
    {
      carry += i < 4 ? halves[i] << shift : 0;
      shared.digits[threadIdx.x][i] = carry & LIMB_MASK;
      carry >>= LIMB_BITS;
    }
  __syncthreads ();
  if (threadIdx.x <= CARRY)
    for (unsigned i = 0; i < DIGITS; i++)
      for (unsigned g = 0; g < GROUPS; g++)
        if (g / (LIMB_BITS / 8) + i == threadIdx.x)
          total += shared.digits[g][i];
  if (total != 0)
    atomicAdd (sum + threadIdx.x, total);
}

/* The piece from `at` on; zeros, which add nothing, behind the end. */
__device__ inline Words
fetch_some (const Array &in, uint64_t at, uint64_t count)
{
  return at < count ? fetch (in, at, piece_of (at, count)) : Words{};
}

/* Adds the squares of a piece to the thread's groups. Returns how many of its elements are not
 * finite numbers. */
__device__ inline Limb
add_squares (const Piece &piece)
{
  Squares &shared = squares ();
  Limb not_numbers = 0;

  for (unsigned i = 0; i < PIECE; i++)
    {
      uint32_t word = word_of (piece.at[i]);
      unsigned exponent = exponent_of (word);
      Limb mantissa = mantissa_of (word);

      if (is_number (word))
        shared.sum[exponent / 4][threadIdx.x] += mantissa * mantissa << 2 * (exponent % 4);
      else
        not_numbers++;
    }
  return not_numbers;
}

__global__ void
norm_sq (uint64_t count, Limb *sum, Array in)
{
  Squares &shared = squares ();
  uint64_t stride = piece_stride (), at = first_piece ();
  uint64_t first = (uint64_t)blockIdx.x * blockDim.x * PIECE; /* of the block */
  Limb not_numbers = 0;
  Group group = {};
  Words ahead[PIECES_AHEAD];

  EXEC_CUDA_UNROLL
  for (unsigned i = 0; i < PIECES_AHEAD; i++)
    ahead[i] = fetch_some (in, at + i * stride, count);
  for (unsigned i = 0; i < GROUPS; i++)
    shared.sum[i][threadIdx.x] = 0;
  for (; first < count; first += PIECES_BETWEEN * stride)
    {
      for (unsigned turn = 0; turn < PIECES_BETWEEN && at < count; turn += PIECES_AHEAD)
        {
          EXEC_CUDA_UNROLL
          for (unsigned i = 0; i < PIECES_AHEAD; i++, at += stride)
            {
              Piece piece = widen (in, ahead[i]);

              ahead[i] = fetch_some (in, at + PIECES_AHEAD * stride, count);
              not_numbers += add_squares (piece);
            }
        }
      collect (&group);
    }
  add_groups (sum, group);
  if (not_numbers != 0)
    atomicAdd (sum + NANS, not_numbers);
}

/* Carries between the limbs of a sum. Launched with one thread. */
__global__ void
carry (Limb *sum)
{
  exact_carry (sum);
}

enum : unsigned
{
  SUMS_OF_RANK = 2 * LIMBS /* limbs of a rank's two sums */
};

struct Clip
{
  uint64_t ranks, norms;
  double tokens, grad_divisor, max_norm; /* gradients are divided by grad_divisor already */
};

/* `sums` has two exact sums per rank: its loss and its squared norm. Each thread adds up one limb
 * of all ranks, and what is above its 32 bits to the next; the first thread carries. */
__global__ void
clip (Clip shape, ExecCudaVarying given, const ExecCudaVarying *own, float *coef, const Limb *sums)
{
  __shared__ Limb total[SUMS_OF_RANK];
  Limb *loss = total, *square = total + LIMBS, low = 0, high = 0;
  bool splits = threadIdx.x % LIMBS < CARRY;
  uint64_t ranks = threadIdx.x < LIMBS ? shape.ranks : shape.norms;
  double counted = varying_of (given, own).tokens, tokens = counted > 0 ? counted : shape.tokens;
  double factor = 1;

  for (uint64_t rank = 0; rank < ranks; rank++)
    {
      Limb limb = sums[rank * SUMS_OF_RANK + threadIdx.x];

      low += splits ? limb & LIMB_MASK : limb;
      high += splits ? (Limb)((long long)limb >> LIMB_BITS) : 0;
    }
  total[threadIdx.x] = low;
  __syncthreads ();
  if (splits)
    total[threadIdx.x + 1] += high;
  __syncthreads ();
  if (threadIdx.x > 0)
    return;
  exact_carry (loss);
  exact_carry (square);
  double left = tokens / shape.grad_divisor;
  double grad_norm = sqrt (exact_value (square)) / left;
  if (shape.max_norm > 0)
    factor = shape.max_norm / (grad_norm + 1e-6);
  if (factor > 1)
    factor = 1;
  float norm = (float)grad_norm, mean_loss = (float)(exact_value (loss) / tokens);
  coef[0] = isfinite (norm) && isfinite (mean_loss) ? (float)(1 / left * factor)
                                                    : float_of (0x7fc00000u);
  coef[1] = norm;
  coef[2] = mean_loss;
  coef[3] = 0;
}

}

extern "C" ExecCudaVarying
exec_cuda_varying (const ExecConstants *constants)
{
  double step = (double)constants->step;

  return { (float)constants->lr, (float)(1 - pow (constants->beta1, step)),
           (float)(1 - pow (constants->beta2, step)), (double)constants->tokens };
}

extern "C" int
exec_cuda_adamw (const ExecArgs *args, void *stream)
{
  if (args->dtype[1] == PLAN_DTYPE_E4M3 || args->dtype[2] == PLAN_DTYPE_E4M3)
    return exec_cuda_adamw_narrow (args, stream);
  Operands operands (args);
  uint64_t count = operands.dim (0);
  Array main = operands.array (0), exp_avg = operands.array (1), exp_avg_sq = operands.array (2);
  Array grad = operands.array (3);
  const float *coef = operands.floats (4);
  Array out = operands.array (PLAN_REF_ADAMW_out);
  Adam adam = adam_of (args->constants);
  ExecCudaVarying given = exec_cuda_varying (args->constants);
  const ExecCudaVarying *own = (const ExecCudaVarying *)args->varying;

  if (operands.code != 0)
    return operands.code;
  return EXEC_CUDA_LAUNCH (adamw, shape_of_pieces (count), stream, count, adam, given, own, main,
                           exp_avg, exp_avg_sq, grad, coef, out);
}

extern "C" int
exec_cuda_sgd (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  uint64_t count = operands.dim (0);
  Array main = operands.array (0), momentum = operands.array (1), grad = operands.array (2);
  const float *coef = operands.floats (3);
  Array out = operands.array (PLAN_REF_SGD_out);
  Sgd rule = { (float)args->constants->beta1, (float)args->constants->weight_decay };
  ExecCudaVarying given = exec_cuda_varying (args->constants);
  const ExecCudaVarying *own = (const ExecCudaVarying *)args->varying;

  if (operands.code != 0)
    return operands.code;
  return EXEC_CUDA_LAUNCH (sgd, shape_of_pieces (count), stream, count, rule, given, own, main,
                           momentum, grad, coef, out);
}

extern "C" int
exec_cuda_norm_sq (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  uint64_t count = operands.dim (0);
  Array in = operands.array (1);
  Limb *sum = (Limb *)args->ptr[0];
  Shape shape
      = shape_of_blocks ((pieces_of (count) + NORM_THREADS - 1) / NORM_THREADS, NORM_THREADS);
  int code = operands.code;

  if (code == 0)
    code = EXEC_CUDA_LAUNCH (norm_sq, shape, stream, count, sum, in);
  if (code == 0)
    code = EXEC_CUDA_LAUNCH (carry, shape_of_blocks (1, 1), stream, sum);
  return code;
}

extern "C" int
exec_cuda_clip (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  float *coef = operands.floats (0);
  const Limb *sums = (const Limb *)args->ptr[1];
  gint64 grad_divisor = args->constants->grad_divisor;
  Clip shape = { operands.dim (0), operands.dim (1), (double)args->op->dims[2],
                 (double)(grad_divisor > 1 ? grad_divisor : 1), args->constants->max_norm };

  ExecCudaVarying given = exec_cuda_varying (args->constants);
  const ExecCudaVarying *own = (const ExecCudaVarying *)args->varying;

  if (operands.code != 0)
    return operands.code;
  return EXEC_CUDA_LAUNCH (clip, shape_of_blocks (1, SUMS_OF_RANK), stream, shape, given, own, coef,
                           sums);
}
