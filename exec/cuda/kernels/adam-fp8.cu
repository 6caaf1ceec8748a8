/* SPDX-License-Identifier: Apache-2.0 */
/* AdamW with moments in e4m3, which have a scale, in any mix with other formats.
 *
 * Launch shape   next_largest, adamw_narrow: a thread per piece of 8 elements, 256 a block, at most
 *                2048 blocks; replace_scales: one thread. next_largest and replace_scales run only
 *                where a moment has a scale. A scale follows from the largest of the new moments,
 *                so these are computed twice.
 * Checked with   exec_cpu_adamw of exec/cpu/kernels-cpu-optimizer.c, by tests/fake and tests/gpu:
 *                equal byte for byte, but any NaN will do.
 *
 * Per call, with operands of s bytes an element (s of its own format each):
 *   op             bytes                          FLOPs
 *   next_largest   count (s + s + s)              8 count
 *   adamw_narrow   count (2 s + 2 s + 2 s + s)    18 count, and a product in fp64 per
 *                                                 element of a moment in e4m3 */
#include "exec/cuda/kernels/adam.cuh"
#include "exec/cuda/kernels/narrow.cuh"

#include <float.h>

namespace
{

/* A moment in any format: in e4m3 where `codes` is not NULL, else as `array` says. */
struct Moment
{
  Array array;
  uint8_t *codes;
  float *scale;   /* of the moment as it was before this step */
  uint32_t *next; /* lies behind the scale: the largest magnitude of this step */
};

Moment
moment_of (Operands *operands, int i)
{
  const ExecArgs *args = operands->args;
  void *at = args->ptr[i];
  Moment moment = {};

  if (args->dtype[i] == PLAN_DTYPE_E4M3)
    {
      moment.codes = (uint8_t *)at;
      moment.scale = args->scale[i];
      moment.next = (uint32_t *)(args->scale[i] + 1);
    }
  else
    moment.array = operands->array (i);
  return moment;
}

__device__ inline Piece
read_codes (const uint8_t *codes, unsigned n, float scale)
{
  Piece piece = from_codes (narrow_of (PLAN_DTYPE_E4M3), load_codes (codes, n));

  for (unsigned i = 0; i < PIECE; i++)
    piece.at[i] *= scale;
  return piece;
}

/* Gives the codes that dividing by the scale gives on the CPU. It multiplies by the inverse in
 * fp64, and settle takes away the error that this makes. */
__device__ inline void
write_codes (uint8_t *codes, unsigned n, const Piece &piece, float scale)
{
  const Narrow format = narrow_of (PLAN_DTYPE_E4M3);
  const double inverse = 1.0 / (double)scale;
  Pair all = {};

  for (unsigned i = 0; i < PIECE; i++)
    all.word[i / 4] |= to_narrow (format, settle ((double)piece.at[i] * inverse)) << i % 4 * 8;
  store_codes (codes, all, n);
}

__device__ inline Piece
read_moment (const Moment &from, uint64_t at, unsigned n)
{
  if (from.codes != NULL)
    return read_codes (from.codes + at, n, *from.scale);
  return read (from.array, at, n);
}

__device__ inline void
write_moment (const Moment &to, uint64_t at, unsigned n, const Piece &piece, float scale)
{
  if (to.codes != NULL)
    write_codes (to.codes + at, n, piece, scale);
  else
    write (to.array, at, n, piece);
}

/* The scale of the new moments as exec_number_scale makes it: largest / 448, at least FLT_MIN,
 * rounded up so that its last three bits are zero. 1 where all moments are 0 or the format has no
 * scale; where the largest is infinite or NaN, that. */
__device__ inline float
next_scale (const Moment &moment)
{
  float largest, scale;

  if (moment.codes == NULL)
    return 1.0f;
  largest = float_of (*moment.next);
  if (largest == 0.0f || (*moment.next & 0x7f800000u) == 0x7f800000u)
    return largest == 0.0f ? 1.0f : largest;
  scale = largest / 448.0f;
  return float_of ((word_of (scale < FLT_MIN ? FLT_MIN : scale) + 7) & ~7u);
}

/* The new moments of a piece. */
struct Next
{
  Piece avg, avg_sq;
};

__device__ inline Next
next_of (const Adam &adam, const Moment &avg, const Moment &avg_sq, const Array &grad, float clip,
         uint64_t at, unsigned n)
{
  Next next = { read_moment (avg, at, n), read_moment (avg_sq, at, n) };
  Piece g = read (grad, at, n);

  for (unsigned i = 0; i < PIECE; i++)
    step_moments (adam, g.at[i] * clip, &next.avg.at[i], &next.avg_sq.at[i]);
  return next;
}

__device__ inline uint32_t
largest_of (const Piece &piece, unsigned n, uint32_t own)
{
  for (unsigned i = 0; i < PIECE; i++)
    if (i < n)
      own = larger (own, magnitude_of (piece.at[i]));
  return own;
}

__global__ void
next_largest (uint64_t count, Adam adam, Moment avg, Moment avg_sq, Array grad, const float *coef)
{
  uint32_t own = 0, own_sq = 0;

  for (uint64_t at = first_piece (); at < count; at += piece_stride ())
    {
      unsigned n = piece_of (at, count);
      Next next = next_of (adam, avg, avg_sq, grad, coef[0], at, n);

      own = largest_of (next.avg, n, own);
      own_sq = largest_of (next.avg_sq, n, own_sq);
    }
  if (avg.codes != NULL)
    raise_max (avg.next, own);
  if (avg_sq.codes != NULL)
    raise_max (avg_sq.next, own_sq);
}

__global__ void
adamw_narrow (uint64_t count, Adam adam, ExecCudaVarying given, const ExecCudaVarying *own,
              Array main, Moment avg, Moment avg_sq, Array grad, const float *coef, Array out)
{
  ExecCudaVarying step = varying_of (given, own);
  float scale = next_scale (avg), scale_sq = next_scale (avg_sq);

  if (isnan (coef[0]))
    return;
  for (uint64_t at = first_piece (); at < count; at += piece_stride ())
    {
      unsigned n = piece_of (at, count);
      Next next = next_of (adam, avg, avg_sq, grad, coef[0], at, n);
      Piece weight = read (main, at, n);

      for (unsigned i = 0; i < PIECE; i++)
        weight.at[i] = step_weight (adam, step, weight.at[i], next.avg.at[i], next.avg_sq.at[i]);
      write_weight (main, out, at, n, weight);
      write_moment (avg, at, n, next.avg, scale);
      write_moment (avg_sq, at, n, next.avg_sq, scale_sq);
    }
}

/* Replaces the scales, in a launch of its own: adamw_narrow reads the old ones. Launched with one
 * thread. */
__global__ void
replace_scales (Moment avg, Moment avg_sq, const float *coef)
{
  if (isnan (coef[0]))
    return;
  if (avg.codes != NULL)
    *avg.scale = next_scale (avg);
  if (avg_sq.codes != NULL)
    *avg_sq.scale = next_scale (avg_sq);
}

int
clear_next (const Moment &moment, void *stream)
{
  return moment.codes == NULL
             ? 0
             : (int)cudaMemsetAsync (moment.next, 0, sizeof *moment.next, (cudaStream_t)stream);
}

}

extern "C" int
exec_cuda_adamw_narrow (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  uint64_t count = operands.dim (0);
  Array main = operands.array (0), grad = operands.array (3);
  Moment avg = moment_of (&operands, 1), avg_sq = moment_of (&operands, 2);
  const float *coef = operands.floats (4);
  Array out = operands.array (PLAN_REF_ADAMW_out);
  Adam adam = adam_of (args->constants);
  ExecCudaVarying given = exec_cuda_varying (args->constants);
  const ExecCudaVarying *own = (const ExecCudaVarying *)args->varying;
  bool has_scales = avg.codes != NULL || avg_sq.codes != NULL;
  int code = operands.code;

  if (code == 0)
    code = clear_next (avg, stream);
  if (code == 0)
    code = clear_next (avg_sq, stream);
  if (code == 0 && has_scales)
    code = EXEC_CUDA_LAUNCH (next_largest, shape_of_pieces (count), stream, count, adam, avg,
                             avg_sq, grad, coef);
  if (code == 0)
    code = EXEC_CUDA_LAUNCH (adamw_narrow, shape_of_pieces (count), stream, count, adam, given, own,
                             main, avg, avg_sq, grad, coef, out);
  if (code == 0 && has_scales)
    code = EXEC_CUDA_LAUNCH (replace_scales, shape_of_blocks (1, 1), stream, avg, avg_sq, coef);
  return code;
}
