/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels in which no element waits for another: zero, cast, accumulate, add, swiglu and its
 * gradient, rope, adamw.
 *
 * Launch shape   over a count: 256 threads a block, a thread per element, at most 2048 blocks;
 *                over a matrix: columns along x in blocks of whole warps up to 256 threads, rows
 *                along y. zero, and cast between equal formats, are the runtime's own set and copy.
 * Checked with   the CPU kernel of the same op, exec/kernels-cpu.c (rope: kernels-cpu-attention.c),
 *                by tests/fake and tests/gpu. The same operations in the same order, compiled
 *                without contraction: equal bit for bit, except that expf, pow, sin and cos are the
 *                device's.
 *
 * Per call, with operands of s bytes an element (s of its own format each):
 *   op           bytes                                FLOPs
 *   zero         count s                              -
 *   cast         count (s + s)                        -
 *   accumulate   count (2 s + s)                      count
 *   add          count (s + s + s)                    count
 *   swiglu       rows cols (s + 2 s)                  5 rows cols, one of them expf
 *   swiglu_bwd   rows cols (2 s + s + 2 s)            12 rows cols, one of them expf
 *   rope         2 rows (heads + kv_heads) dim s      3 per element rotated; sin, cos, pow in fp64
 *                                                     once per row and pair, for all heads
 *   adamw        count (2 s + 2 s + 2 s + s)          18 count */
#include "exec/cuda/launch.cuh"

namespace
{

template <typename Out, typename In>
__global__ void
cast (uint64_t count, Out *out, const In *in)
{
  for (uint64_t i = first_x (); i < count; i += stride_x ())
    store (out + i, load (in + i));
}

/* out may be a or b. */
template <typename Out, typename A, typename B>
__global__ void
add (uint64_t count, Out *out, const A *a, const B *b)
{
  for (uint64_t i = first_x (); i < count; i += stride_x ())
    store (out + i, load (a + i) + load (b + i));
}

__device__ inline float
sigmoid (float x)
{
  return 1.0f / (1.0f + expf (-x));
}

/* Rows of `in` hold `cols` gates, then `cols` ups. */
template <typename Out, typename In>
__global__ void
swiglu (uint64_t rows, uint64_t cols, Out *out, const In *in)
{
  for (uint64_t row = blockIdx.y; row < rows; row += gridDim.y)
    for (uint64_t col = first_x (); col < cols; col += stride_x ())
      {
        uint64_t at = 2 * row * cols + col;
        float gate = load (in + at), up = load (in + at + cols);

        store (out + row * cols + col, gate * sigmoid (gate) * up);
      }
}

template <typename Din, typename Dout, typename In>
__global__ void
swiglu_bwd (uint64_t rows, uint64_t cols, Din *din, const Dout *dout, const In *in)
{
  for (uint64_t row = blockIdx.y; row < rows; row += gridDim.y)
    for (uint64_t col = first_x (); col < cols; col += stride_x ())
      {
        uint64_t at = 2 * row * cols + col;
        float gate = load (in + at), up = load (in + at + cols), s = sigmoid (gate);
        float d = load (dout + row * cols + col);

        store (din + at, d * up * s * (1.0f + gate * (1.0f - s)));
        store (din + at + cols, d * gate * s);
      }
}

struct Rope
{
  uint64_t rows, seq, rotated, width, dim; /* rotated: heads, of rows of `width` elements */
  double theta, direction;
};

/* A thread turns one pair of every head of a row, by one angle. */
template <typename T>
__global__ void
rope (Rope shape, T *qkv)
{
  uint64_t half = shape.dim / 2;

  for (uint64_t pair = first_x (); pair < half; pair += stride_x ())
    {
      double frequency
          = shape.direction * pow (shape.theta, -2.0 * (double)pair / (double)shape.dim);

      for (uint64_t row = blockIdx.y; row < shape.rows; row += gridDim.y)
        {
          double angle = (double)(row % shape.seq) * frequency;
          float cosine = (float)cos (angle), sine = (float)sin (angle);
          T *at = qkv + row * shape.width + pair;

          for (uint64_t head = 0; head < shape.rotated; head++, at += shape.dim)
            {
              float a = load (at), b = load (at + half);

              store (at, a * cosine - b * sine);
              store (at + half, b * cosine + a * sine);
            }
        }
    }
}

/* Adam's hyperparameters at one step, converted once. */
struct Adam
{
  float lr, beta1, beta2, one_minus_beta1, one_minus_beta2;
  float correction1, correction2, eps, weight_decay;
};

Adam
adam_of (const ExecConstants *constants)
{
  double step = (double)constants->step;
  Adam adam;

  adam.lr = (float)constants->lr;
  adam.beta1 = (float)constants->beta1;
  adam.beta2 = (float)constants->beta2;
  adam.one_minus_beta1 = (float)(1 - constants->beta1);
  adam.one_minus_beta2 = (float)(1 - constants->beta2);
  adam.correction1 = (float)(1 - pow (constants->beta1, step));
  adam.correction2 = (float)(1 - pow (constants->beta2, step));
  adam.eps = (float)constants->adam_eps;
  adam.weight_decay = (float)constants->weight_decay;
  return adam;
}

/* coef[0] scales the gradient; it is on the device because the gradient's norm is. */
template <typename Main, typename Avg, typename Sq, typename Grad>
__global__ void
adamw (uint64_t count, Adam adam, Main *main, Avg *exp_avg, Sq *exp_avg_sq, const Grad *grad,
       const float *coef)
{
  float scale = coef[0];

  for (uint64_t i = first_x (); i < count; i += stride_x ())
    {
      float weight = load (main + i), g = load (grad + i) * scale;
      float m = adam.beta1 * load (exp_avg + i) + adam.one_minus_beta1 * g;
      float v = adam.beta2 * load (exp_avg_sq + i) + adam.one_minus_beta2 * g * g;
      float update = m / adam.correction1 / (sqrtf (v / adam.correction2) + adam.eps);

      store (main + i, weight - adam.lr * (update + adam.weight_decay * weight));
      store (exp_avg + i, m);
      store (exp_avg_sq + i, v);
    }
}

int
launch_add (const ExecArgs *args, void *stream, int a, int b)
{
  uint64_t count = (uint64_t)args->op->dims[0];

  return with_types (
      args,
      [=] (auto *out, auto *x, auto *y) {
        return EXEC_CUDA_LAUNCH (add, shape_of_elements (count), stream, count, out, x, y);
      },
      0, a, b);
}

}

extern "C" int
exec_cuda_zero (const ExecArgs *args, void *stream)
{
  uint64_t bytes = plan_dtype_bytes (args->dtype[0], (uint64_t)args->op->dims[0]);

  return (int)cudaMemsetAsync (args->ptr[0], 0, bytes, (cudaStream_t)stream);
}

extern "C" int
exec_cuda_cast (const ExecArgs *args, void *stream)
{
  uint64_t count = (uint64_t)args->op->dims[0];

  if (args->dtype[0] == args->dtype[1])
    return (int)cudaMemcpyAsync (args->ptr[0], args->ptr[1],
                                 plan_dtype_bytes (args->dtype[0], count), cudaMemcpyDeviceToDevice,
                                 (cudaStream_t)stream);
  return with_types (
      args,
      [=] (auto *out, auto *in) {
        return EXEC_CUDA_LAUNCH (cast, shape_of_elements (count), stream, count, out, in);
      },
      0, 1);
}

extern "C" int
exec_cuda_accumulate (const ExecArgs *args, void *stream)
{
  return launch_add (args, stream, 0, 1);
}

extern "C" int
exec_cuda_add (const ExecArgs *args, void *stream)
{
  return launch_add (args, stream, 1, 2);
}

extern "C" int
exec_cuda_swiglu (const ExecArgs *args, void *stream)
{
  uint64_t rows = (uint64_t)args->op->dims[0], cols = (uint64_t)args->op->dims[1];

  return with_types (
      args,
      [=] (auto *out, auto *in) {
        return EXEC_CUDA_LAUNCH (swiglu, shape_of_matrix (rows, cols), stream, rows, cols, out, in);
      },
      0, 1);
}

extern "C" int
exec_cuda_swiglu_bwd (const ExecArgs *args, void *stream)
{
  uint64_t rows = (uint64_t)args->op->dims[0], cols = (uint64_t)args->op->dims[1];

  return with_types (
      args,
      [=] (auto *din, auto *dout, auto *in) {
        return EXEC_CUDA_LAUNCH (swiglu_bwd, shape_of_matrix (rows, cols), stream, rows, cols, din,
                                 dout, in);
      },
      0, 1, 2);
}

extern "C" int
exec_cuda_rope (const ExecArgs *args, void *stream)
{
  const gint64 *dims = args->op->dims;
  Rope shape;

  shape.rows = (uint64_t)dims[0];
  shape.seq = (uint64_t)dims[1];
  shape.rotated = (uint64_t)(dims[2] + dims[3]);
  shape.dim = (uint64_t)dims[4];
  shape.width = (shape.rotated + (uint64_t)dims[3]) * shape.dim;
  shape.theta = args->constants->rope_theta;
  shape.direction = dims[5] != 0 ? -1 : 1;
  return with_types (
      args,
      [=] (auto *qkv) {
        return EXEC_CUDA_LAUNCH (rope, shape_of_matrix (shape.rows, shape.dim / 2), stream, shape,
                                 qkv);
      },
      0);
}

extern "C" int
exec_cuda_adamw (const ExecArgs *args, void *stream)
{
  uint64_t count = (uint64_t)args->op->dims[0];
  const float *coef = (const float *)args->ptr[4];
  Adam adam = adam_of (args->constants);

  return with_types (
      args,
      [=] (auto *main, auto *exp_avg, auto *exp_avg_sq, auto *grad) {
        return EXEC_CUDA_LAUNCH (adamw, shape_of_elements (count), stream, count, adam, main,
                                 exp_avg, exp_avg_sq, grad, coef);
      },
      0, 1, 2, 3);
}
