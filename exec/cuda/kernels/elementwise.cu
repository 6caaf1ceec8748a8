/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels in which no element waits for another: zero, cast, scale, sums, activations and their
 * gradients, rope.
 *
 * Launch shape   a thread per piece of 8 elements. Over a count: 256 threads a block, at most 2048
 *                blocks. Over a matrix: pieces along x in blocks of whole warps up to 256 threads,
 *                rows along y. rope: a block of 256 threads per as many rows as have 256 angles,
 *                2 KiB of shared memory. zero is a cudaMemsetAsync; a cast between equal formats
 *                and the sum of one part are a cudaMemcpyAsync.
 * Checked with   the CPU kernel of the same op, exec/cpu/kernels-cpu.c (activations:
 *                kernels-cpu-activation.c, rope: kernels-cpu-positions.c), by tests/fake and
 *                tests/gpu. The same operations in the same order, compiled without contraction:
 *                equal bit for bit, except that tanh is the device's, that e^x in activations is as
 *                good as powers.cuh says, and rope's sines and cosines to 2^-22.
 *
 * Per call, with operands of s bytes an element (s of its own format each):
 *   op             bytes                              FLOPs
 *   zero           count s                            -
 *   cast           count (s + s)                      -
 *   scale          count 2 s                          count
 *   softcap        count 2 s                          4 count, one of them tanh
 *   softcap_bwd    count 3 s                          4 count
 *   accumulate     count (2 s + s)                    count
 *   sum_parts      count (s + parts s)                count (parts - 1)
 *   add            count (s + s + s)                  count
 *   swiglu         rows cols (s + 2 s)                5 rows cols, one of them e^x
 *   swiglu_bwd     rows cols (2 s + s + 2 s)          12 rows cols, one of them e^x
 *   activate       rows cols (s + s), gated (s + 2 s)            up to 20 rows cols, one of them
 *   activate_bwd   rows cols (s + s + s), gated (2 s + s + 2 s)  e^x
 *                  with amax: a comparison per element, one atomic a block
 *   rope           2 rows (heads + kv_heads) dim s    3 per element rotated; a sine and a cosine
 *                                                     once per row and pair, for all heads */
#include "exec/cuda/kernels/activation.cuh"
#include "exec/cuda/kernels/narrow.cuh"
#include "exec/cuda/kernels/places.cuh"

namespace
{

__global__ void
cast (uint64_t count, Array out, Array in)
{
  for (uint64_t at = first_piece (); at < count; at += piece_stride ())
    {
      unsigned n = piece_of (at, count);

      write (out, at, n, read (in, at, n));
    }
}

__global__ void
scale (uint64_t count, float factor, Array buf)
{
  for (uint64_t at = first_piece (); at < count; at += piece_stride ())
    {
      unsigned n = piece_of (at, count);
      Piece piece = read (buf, at, n);

      for (unsigned i = 0; i < PIECE; i++)
        piece.at[i] *= factor;
      write (buf, at, n, piece);
    }
}

/* cap * tanh (x / cap) */
__global__ void
softcap (uint64_t count, float cap, Array buf)
{
  for (uint64_t at = first_piece (); at < count; at += piece_stride ())
    {
      unsigned n = piece_of (at, count);
      Piece piece = read (buf, at, n);

      for (unsigned i = 0; i < PIECE; i++)
        piece.at[i] = cap * tanhf (piece.at[i] / cap);
      write (buf, at, n, piece);
    }
}

__global__ void
softcap_bwd (uint64_t count, float cap, Array grad, Array out)
{
  for (uint64_t at = first_piece (); at < count; at += piece_stride ())
    {
      unsigned n = piece_of (at, count);
      Piece d = read (grad, at, n), bounded = read (out, at, n);

      for (unsigned i = 0; i < PIECE; i++)
        {
          float share = bounded.at[i] / cap;

          d.at[i] *= 1 - share * share;
        }
      write (grad, at, n, d);
    }
}

/* out may be a or b. */
__global__ void
add (uint64_t count, Array out, Array a, Array b)
{
  for (uint64_t at = first_piece (); at < count; at += piece_stride ())
    {
      unsigned n = piece_of (at, count);
      Words a_words = fetch (a, at, n), b_words = fetch (b, at, n);
      Piece x = widen (a, a_words), y = widen (b, b_words), sum;

      for (unsigned i = 0; i < PIECE; i++)
        sum.at[i] = x.at[i] + y.at[i];
      write (out, at, n, sum);
    }
}

/* `in` holds `parts` runs of `count` elements, one after the other. */
__global__ void
sum_parts (uint64_t count, uint64_t parts, Array out, Array in)
{
  for (uint64_t at = first_piece (); at < count; at += piece_stride ())
    {
      unsigned n = piece_of (at, count);
      Piece sum = read (in, at, n);

      for (uint64_t part = 1; part < parts; part++)
        {
          Piece term = read (in, part * count + at, n);

          for (unsigned i = 0; i < PIECE; i++)
            sum.at[i] += term.at[i];
        }
      write (out, at, n, sum);
    }
}

/* Columns of a matrix of rows of `width` elements, `piece` of each row: copied out of it, where
 * they lie one after the other, or added to. A thread per element. */
struct CutRows
{
  uint64_t count, piece, width;
};

__global__ void
copy_columns (CutRows shape, Array out, Array in)
{
  for (uint64_t at = first_x (); at < shape.count; at += stride_x ())
    write_one (out, at, read_one (in, at / shape.piece * shape.width + at % shape.piece));
}

__global__ void
add_columns (CutRows shape, Array out, Array in)
{
  for (uint64_t at = first_x (); at < shape.count; at += stride_x ())
    {
      uint64_t to = at / shape.piece * shape.width + at % shape.piece;

      write_one (out, to, read_one (out, to) + read_one (in, at));
    }
}

/* --- activations -------------------------------------------------------------------------- */

/* A row of `in` holds `cols` gates, then `cols` ups. */
__global__ void
swiglu (uint64_t rows, uint64_t cols, Array out, Array in, uint32_t *amax)
{
  uint32_t own = 0;

  for (uint64_t row = blockIdx.y; row < rows; row += gridDim.y)
    for (uint64_t col = first_piece (); col < cols; col += piece_stride ())
      {
        unsigned n = piece_of (col, cols);
        uint64_t at = 2 * row * cols + col;
        Words gates = fetch (in, at, n), ups = fetch (in, at + cols, n);
        Piece value = swiglu_piece (widen (in, gates), widen (in, ups));

        write (out, row * cols + col, n, value);
        find_stored (amax, n, value, &own);
      }
  raise_stored (amax, out, own);
}

__global__ void
swiglu_bwd (uint64_t rows, uint64_t cols, Array din, Array dout, Array in, uint32_t *amax)
{
  uint32_t own = 0;

  for (uint64_t row = blockIdx.y; row < rows; row += gridDim.y)
    for (uint64_t col = first_piece (); col < cols; col += piece_stride ())
      {
        unsigned n = piece_of (col, cols);
        uint64_t at = 2 * row * cols + col;
        Words gates = fetch (in, at, n), ups = fetch (in, at + cols, n);
        Words douts = fetch (dout, row * cols + col, n);
        Piece dgate, dup;

        swiglu_slopes (widen (in, gates), widen (in, ups), widen (dout, douts), &dgate, &dup);
        write (din, at, n, dgate);
        write (din, at + cols, n, dup);
        find_stored (amax, n, dgate, &own);
        find_stored (amax, n, dup, &own);
      }
  raise_stored (amax, din, own);
}

template <PlanActivation kind>
__global__ void
activate (Activation shape, Array out, Array in, uint32_t *amax)
{
  uint32_t own = 0;

  for (uint64_t row = blockIdx.y; row < shape.rows; row += gridDim.y)
    for (uint64_t col = first_piece (); col < shape.cols; col += piece_stride ())
      {
        unsigned n = piece_of (col, shape.cols);
        uint64_t at = row * shape.width + col;
        Words gates = fetch (in, at, n), ups = {};
        Piece gate, up, value;

        if (shape.is_gated)
          ups = fetch (in, at + shape.cols, n);
        gate = widen (in, gates);
        up = widen (in, ups);
        for (unsigned i = 0; i < PIECE; i++)
          value.at[i]
              = point_of<kind> (bound_gate (shape, gate.at[i])).value * factor_of (shape, up.at[i]);
        write (out, row * shape.cols + col, n, value);
        find_stored (amax, n, value, &own);
      }
  raise_stored (amax, out, own);
}

template <PlanActivation kind>
__global__ void
activate_bwd (Activation shape, Array din, Array dout, Array in, uint32_t *amax)
{
  uint32_t own = 0;

  for (uint64_t row = blockIdx.y; row < shape.rows; row += gridDim.y)
    for (uint64_t col = first_piece (); col < shape.cols; col += piece_stride ())
      {
        unsigned n = piece_of (col, shape.cols);
        uint64_t at = row * shape.width + col;
        Words gates = fetch (in, at, n), douts = fetch (dout, row * shape.cols + col, n);
        Words ups = {};
        Piece gate, up, d, dgate, dup;

        if (shape.is_gated)
          ups = fetch (in, at + shape.cols, n);
        gate = widen (in, gates);
        up = widen (in, ups);
        d = widen (dout, douts);
        for (unsigned i = 0; i < PIECE; i++)
          {
            Point point = point_of<kind> (bound_gate (shape, gate.at[i]));

            dgate.at[i] = d.at[i] * point.slope * factor_of (shape, up.at[i]);
            dup.at[i] = d.at[i] * point.value;
            stop_beyond (shape, gate.at[i], up.at[i], &dgate.at[i], &dup.at[i]);
          }
        write (din, at, n, dgate);
        find_stored (amax, n, dgate, &own);
        if (shape.is_gated)
          {
            write (din, at + shape.cols, n, dup);
            find_stored (amax, n, dup, &own);
          }
      }
  raise_stored (amax, din, own);
}

/* --- rope --------------------------------------------------------------------------------- */

/* One launch of rope: in rows of `width` elements, the pairs from pair `first` on of each of
 * `rotated` heads. */
struct Rope
{
  uint64_t rows, seq, width, dim, half, first; /* a head's first 2 half elements are rotated */
  PlanSequencePart part;
  const int32_t *places; /* of rows in their documents; NULL: each sequence is one */
  unsigned pairs, rotated;
  Angles angles; /* of those pairs */
};

/* How many rows a block rotates at once: as many as it has threads to compute the angles of. */
__host__ __device__ inline unsigned
rows_of_block (const Rope &shape)
{
  return THREADS / shape.pairs;
}

/* Computes the sines and cosines of the rows from `first` on, in shared memory for the whole
 * block. */
__device__ inline Rotations &
find_rotations (const Rope &shape, uint64_t first)
{
  __shared__ Rotations rotations;

  __syncthreads (); /* those of the last rows have been read */
  uint64_t row = first + threadIdx.x / shape.pairs;
  if (threadIdx.x < rows_of_block (shape) * shape.pairs && row < shape.rows)
    {
      uint64_t position = position_of (shape.places, row, shape.part, row % shape.seq);

      store_rotation (rotations, threadIdx.x, shape.angles, threadIdx.x % shape.pairs, position);
    }
  __syncthreads ();
  return rotations;
}

/* A piece of pairs of a row. A thread loads their sines and cosines once for all of its heads. */
struct RotatedPiece
{
  uint64_t at; /* its place in the first head */
  unsigned n;
  Piece cosine, sine;
};

__device__ inline void
rotate_head (const Rope &shape, const Array &qkv, const RotatedPiece &piece, unsigned head)
{
  uint64_t at = piece.at + head * shape.dim;
  Words a_words = fetch (qkv, at, piece.n), b_words = fetch (qkv, at + shape.half, piece.n);
  Piece a = widen (qkv, a_words), b = widen (qkv, b_words), a_out, b_out;

  for (unsigned i = 0; i < PIECE; i++)
    {
      a_out.at[i] = a.at[i] * piece.cosine.at[i] - b.at[i] * piece.sine.at[i];
      b_out.at[i] = b.at[i] * piece.cosine.at[i] + a.at[i] * piece.sine.at[i];
    }
  write (qkv, at, piece.n, a_out);
  write (qkv, at + shape.half, piece.n, b_out);
}

/* A thread has a piece of pairs, a row, and every `heads`-th head. Threads are left over, and do
 * nothing, where that does not come out even. */
__global__ void
rope (Rope shape, Array qkv)
{
  unsigned pieces = (unsigned)pieces_of (shape.pairs), rows = rows_of_block (shape);
  unsigned heads = THREADS / (rows * pieces), head = threadIdx.x / (rows * pieces);
  unsigned line = threadIdx.x / pieces % rows, pair = threadIdx.x % pieces * PIECE;
  RotatedPiece piece = {};

  piece.n = piece_of (pair, shape.pairs);
  for (uint64_t row = (uint64_t)blockIdx.x * rows; row < shape.rows;
       row += (uint64_t)gridDim.x * rows)
    {
      bool is_there = head < heads && head < shape.rotated && row + line < shape.rows;

      piece.at = (row + line) * shape.width + shape.first + pair;
      if (is_there)
        {
          prefetch (qkv, piece.at + head * shape.dim);
          prefetch (qkv, piece.at + head * shape.dim + shape.half);
        }
      const Rotations &rotations = find_rotations (shape, row);
      for (unsigned i = 0; i < PIECE; i++)
        if (i < piece.n)
          {
            piece.cosine.at[i] = rotations.cosine[line * shape.pairs + pair + i];
            piece.sine.at[i] = rotations.sine[line * shape.pairs + pair + i];
          }
      for (unsigned h = head; h < shape.rotated && is_there; h += heads)
        rotate_head (shape, qkv, piece, h);
    }
}

/* --- launches ----------------------------------------------------------------------------- */

int
launch_add (const ExecArgs *args, void *stream, int a, int b)
{
  Operands operands (args);
  uint64_t count = operands.dim (0);
  Array out = operands.array (0), x = operands.array (a), y = operands.array (b);

  if (operands.code != 0)
    return operands.code;
  return EXEC_CUDA_LAUNCH (add, shape_of_pieces (count), stream, count, out, x, y);
}

CutRows
cut_rows_of (const ExecArgs *args)
{
  return { (uint64_t)args->op->dims[0], (uint64_t)exec_manner (args, PLAN_MANNER_PIECE),
           (uint64_t)exec_manner (args, PLAN_MANNER_WIDTH) };
}

int
copy_elements (const ExecArgs *args, uint64_t count, void *stream)
{
  return (int)cudaMemcpyAsync (args->ptr[0], args->ptr[1], plan_dtype_bytes (args->dtype[0], count),
                               cudaMemcpyDeviceToDevice, (cudaStream_t)stream);
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
  Operands operands (args);
  uint64_t count = operands.dim (0);
  CutRows cut = cut_rows_of (args);

  if (args->dtype[0] == args->dtype[1] && cut.piece == 0)
    return copy_elements (args, count, stream);

  Array out = operands.array (0), in = operands.array (1);
  if (operands.code != 0)
    return operands.code;
  if (cut.piece > 0)
    return EXEC_CUDA_LAUNCH (copy_columns, shape_of_items (count), stream, cut, out, in);
  return EXEC_CUDA_LAUNCH (cast, shape_of_pieces (count), stream, count, out, in);
}

extern "C" int
exec_cuda_scale (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  uint64_t count = operands.dim (0);
  double said = exec_manner (args, PLAN_MANNER_FACTOR);
  float factor = (float)(said != 0 ? said : 1.0 / (double)args->constants->grad_divisor);
  Array buf = operands.array (0);

  if (operands.code != 0)
    return operands.code;
  return EXEC_CUDA_LAUNCH (scale, shape_of_pieces (count), stream, count, factor, buf);
}

extern "C" int
exec_cuda_softcap (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  uint64_t count = operands.dim (0);
  float cap = (float)exec_manner (args, PLAN_MANNER_CAP);
  Array buf = operands.array (0);

  if (operands.code != 0)
    return operands.code;
  return EXEC_CUDA_LAUNCH (softcap, shape_of_pieces (count), stream, count, cap, buf);
}

extern "C" int
exec_cuda_softcap_bwd (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  uint64_t count = operands.dim (0);
  float cap = (float)exec_manner (args, PLAN_MANNER_CAP);
  Array grad = operands.array (0), out = operands.array (1);

  if (operands.code != 0)
    return operands.code;
  return EXEC_CUDA_LAUNCH (softcap_bwd, shape_of_pieces (count), stream, count, cap, grad, out);
}

extern "C" int
exec_cuda_accumulate (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  CutRows cut = cut_rows_of (args);
  Array out = operands.array (0), in = operands.array (1);

  if (cut.piece == 0)
    return launch_add (args, stream, 0, 1);
  if (operands.code != 0)
    return operands.code;
  return EXEC_CUDA_LAUNCH (add_columns, shape_of_items (cut.count), stream, cut, out, in);
}

extern "C" int
exec_cuda_add (const ExecArgs *args, void *stream)
{
  return launch_add (args, stream, 1, 2);
}

extern "C" int
exec_cuda_sum_parts (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  uint64_t count = operands.dim (0), parts = operands.dim (1);

  if (args->dtype[0] != args->dtype[1])
    return (int)cudaErrorInvalidValue;
  if (parts == 1)
    return copy_elements (args, count, stream);

  Array out = operands.array (0), in = operands.rows_of (1, count);
  if (operands.code != 0)
    return operands.code;
  return EXEC_CUDA_LAUNCH (sum_parts, shape_of_pieces (count), stream, count, parts, out, in);
}

extern "C" int
exec_cuda_swiglu (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  uint64_t rows = operands.dim (0), cols = operands.dim (1);
  Array out = operands.rows_of (0, cols), in = operands.rows_of (1, cols);
  uint32_t *amax = (uint32_t *)args->ptr[PLAN_REF_SWIGLU_amax];
  Shape shape = shape_of_raising (shape_of_matrix (rows, pieces_of (cols)), amax);

  if (operands.code != 0)
    return operands.code;
  return EXEC_CUDA_LAUNCH (swiglu, shape, stream, rows, cols, out, in, amax);
}

extern "C" int
exec_cuda_swiglu_bwd (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  uint64_t rows = operands.dim (0), cols = operands.dim (1);
  Array din = operands.rows_of (0, cols), dout = operands.rows_of (1, cols);
  Array in = operands.rows_of (2, cols);
  uint32_t *amax = (uint32_t *)args->ptr[PLAN_REF_SWIGLU_BWD_amax];
  Shape shape = shape_of_raising (shape_of_matrix (rows, pieces_of (cols)), amax);

  if (operands.code != 0)
    return operands.code;
  return EXEC_CUDA_LAUNCH (swiglu_bwd, shape, stream, rows, cols, din, dout, in, amax);
}

extern "C" int
exec_cuda_activate (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  Activation shape = activation_of (operands);
  Array out = operands.rows_of (0, shape.cols), in = operands.rows_of (1, shape.cols);

  uint32_t *amax = (uint32_t *)args->ptr[PLAN_REF_ACTIVATE_amax];

  if (operands.code != 0)
    return operands.code;
  Shape launch = shape_of_raising (shape_of_matrix (shape.rows, pieces_of (shape.cols)), amax);
  return launch_kind (shape.kind, [&] (auto kind) {
    return EXEC_CUDA_LAUNCH (activate<decltype (kind)::value>, launch, stream, shape, out, in,
                             amax);
  });
}

extern "C" int
exec_cuda_activate_bwd (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  Activation shape = activation_of (operands);
  Array din = operands.rows_of (0, shape.cols), dout = operands.rows_of (1, shape.cols);
  Array in = operands.rows_of (2, shape.cols);

  uint32_t *amax = (uint32_t *)args->ptr[PLAN_REF_ACTIVATE_BWD_amax];

  if (operands.code != 0)
    return operands.code;
  Shape launch = shape_of_raising (shape_of_matrix (shape.rows, pieces_of (shape.cols)), amax);
  return launch_kind (shape.kind, [&] (auto kind) {
    return EXEC_CUDA_LAUNCH (activate_bwd<decltype (kind)::value>, launch, stream, shape, din, dout,
                             in, amax);
  });
}

/* The host computes the frequencies, as for the CPU's kernel, and passes them to the kernel as
 * arguments: a GPU would take as long for them as for all the rest. */
extern "C" int
exec_cuda_rope (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  Rope shape = {};
  double direction = operands.dim (5) != 0 ? -1 : 1;

  shape.rows = operands.dim (0);
  shape.seq = operands.dim (1);
  shape.part = part_of (args, shape.seq, 0);
  shape.places
      = args->ptr[PLAN_REF_ROPE_places] != NULL ? operands.ints (PLAN_REF_ROPE_places) : NULL;
  shape.rotated = (unsigned)(operands.dim (2) + operands.dim (3));
  uint64_t rotated = (uint64_t)exec_manner (args, PLAN_MANNER_TURNED);
  shape.dim = operands.dim (4);
  shape.half = (rotated > 0 ? rotated : shape.dim) / 2;
  shape.width = (shape.rotated + operands.dim (3)) * shape.dim;
  const PlanRope rope_of_op = exec_rope (args);
  shape.angles.magnitude = (float)plan_rope_magnitude (&rope_of_op);

  Array qkv = operands.rows_of (0, shape.dim % shape.half == 0 ? shape.half : 1);
  int code = operands.code;
  for (; code == 0 && shape.first < shape.half; shape.first += shape.pairs)
    {
      shape.pairs = (unsigned)at_most (shape.half - shape.first, THREADS);
      for (unsigned i = 0; i < shape.pairs; i++)
        shape.angles.turns[i]
            = turns_of (direction
                        * plan_rope_frequency (&rope_of_op, shape.first + i, 2 * shape.half,
                                               shape.seq * parts_of (args)));
      uint64_t blocks = (shape.rows + rows_of_block (shape) - 1) / rows_of_block (shape);
      code = EXEC_CUDA_LAUNCH (rope, shape_of_blocks (blocks, THREADS), stream, shape, qkv);
    }
  return code;
}
