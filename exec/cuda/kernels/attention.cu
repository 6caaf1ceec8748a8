/* SPDX-License-Identifier: Apache-2.0 */
/* Causal attention and its gradients in fp32 alone: it runs where neither cuDNN nor batched
 * products do, and checks these. Scores never go to device memory.
 *
 * Launch shape   a block of 256 threads per tile of 64 queries (attention, dq) or 64 keys (dk, dv),
 *                head, sequence and slice of 128 columns; at most 2048 blocks, long rows first;
 *                33 KiB of shared memory. A thread has 4 x 4 scores and 4 x 8 results.
 *                attention_join: a block of whole warps up to 256 threads per row and head.
 * Per call       s: bytes per element; square = batch heads seq^2 / 2, where causality halves it,
 *                less where a window does;
 *                kv = batch seq kv_heads dim
 *   op              bytes at least                     FLOPs
 *   attention       q, k, v and out once, and k and    4 square dim and square exponentials; 2 more
 *                   v again per tile, from cache       square dim for each further 128 of dim
 *   attention_bwd   qkv, out, dout twice, dqkv once    14 square dim (10 are needed: scores and
 *                                                      their gradients are made for dq and again
 *                                                      for dk, dv), 2 square exponentials
 * Checked with   exec_cpu_attention and exec_cpu_attention_bwd of exec/cpu/kernels-cpu-attention.c,
 *                by tests/fake and tests/gpu. Every sum is made by one thread, in an order that the
 *                shape alone decides, but another one than the CPU's. With u = 2^-24 and |q|, |k|,
 *                |v| at most 1: scores differ by (dim + 8) u sqrt (dim), probabilities by twice
 *                that of themselves, out by that and (seq + 64) u. */
#include "exec/cuda/kernels/layers.h"
#include "exec/cuda/kernels/places.cuh"
#include "exec/cuda/kernels/scores.cuh"

namespace
{

enum : unsigned
{
  TILE = 64,  /* queries, or keys, of a tile */
  SIDE = 16,  /* the block's threads are a square of this side */
  MINE = 4,   /* rows of a thread, side by side; as many columns, 16 apart */
  SLICE = 32, /* elements of a head per turn of a product that gives scores */
  CHUNK = 16, /* keys (or queries) per turn of a product that gives results */
  COLS = 128, /* columns of the results that a block has */
  MY_COLS = COLS / SIDE
};

struct Attention
{
  uint64_t batch, seq, heads, kv_heads, dim, v_dim, tiles, slices;
  ExecCudaScores scores;
  PlanSequencePart queries, keys; /* where they are in their sequence */
};

bool
is_latent (const ExecArgs *args)
{
  return args->op->kind == PLAN_OP_LATENT_ATTENTION
         || args->op->kind == PLAN_OP_LATENT_ATTENTION_BWD;
}

Attention
attention_of (const Operands &operands, const ExecArgs *args)
{
  Attention shape;

  shape.batch = operands.dim (0);
  shape.seq = operands.dim (1);
  shape.heads = operands.dim (2);
  shape.kv_heads = operands.dim (is_latent (args) ? 2 : 3);
  shape.dim = operands.dim (is_latent (args) ? 3 : 4);
  shape.v_dim = operands.dim (4);
  shape.tiles = (shape.seq + TILE - 1) / TILE;
  shape.slices = ((shape.dim > shape.v_dim ? shape.dim : shape.v_dim) + COLS - 1) / COLS;
  shape.scores = exec_cuda_scores (args, shape.dim);
  shape.queries = part_of (args, shape.seq, 0);
  shape.keys = part_of (args, shape.seq, args->turn);
  return shape;
}

/* Where the heads of an operand lie: `width` elements in a row, of which the first head begins at
 * `first`, and `dim` in each head. */
struct Heads
{
  Array array;
  uint64_t width, first, dim;
};

/* One head of one sequence: element d of row t is at `at` + t * width + d. */
struct Head
{
  Array array;
  uint64_t at, width, dim;
};

__device__ inline Head
head_of (const Attention &shape, const Heads &heads, uint64_t sequence, uint64_t head)
{
  return { heads.array, sequence * shape.seq * heads.width + heads.first + head * heads.dim,
           heads.width, heads.dim };
}

/* --- products ----------------------------------------------------------------------------- */

struct Tiles
{
  float slice[2][TILE][SLICE + 1]; /* of both factors; one column more against bank conflicts */
  float scores[TILE][TILE + 1];
};

__device__ inline Tiles &
tiles ()
{
  __shared__ Tiles shared;

  return shared;
}

struct Scores
{
  float at[MINE][MINE];
};

struct Results
{
  float at[MINE][MY_COLS];
};

__device__ inline unsigned
my_row (unsigned i)
{
  return threadIdx.x / SIDE * MINE + i;
}

__device__ inline unsigned
my_col (unsigned i)
{
  return threadIdx.x % SIDE + SIDE * i;
}

/* The piece of row t from element d on; zeros behind the end of the sequence and of the head. */
__device__ inline Piece
piece_at (const Attention &shape, const Head &head, uint64_t t, uint64_t d)
{
  if (t >= shape.seq || d >= head.dim)
    return Piece{};
  return read (head.array, head.at + t * head.width + d, piece_of (d, head.dim));
}

/* a b^T: 64 rows of a times 64 rows of b, over all elements of a head. */
__device__ inline Scores
multiply (const Attention &shape, const Head &a, uint64_t a_row, const Head &b, uint64_t b_row)
{
  Tiles &shared = tiles ();
  unsigned row = threadIdx.x / (SLICE / PIECE), col = threadIdx.x % (SLICE / PIECE) * PIECE;
  Scores scores = {};

  for (uint64_t d = 0; d < a.dim; d += SLICE)
    {
      Piece from_a = piece_at (shape, a, a_row + row, d + col);
      Piece from_b = piece_at (shape, b, b_row + row, d + col);

      __syncthreads (); /* the last slice has been read */
      for (unsigned i = 0; i < PIECE; i++)
        {
          shared.slice[0][row][col + i] = from_a.at[i];
          shared.slice[1][row][col + i] = from_b.at[i];
        }
      __syncthreads ();
      for (unsigned k = 0; k < SLICE; k++)
        for (unsigned i = 0; i < MINE; i++)
          for (unsigned j = 0; j < MINE; j++)
            scores.at[i][j] = fmaf (shared.slice[0][my_row (i)][k], shared.slice[1][my_col (j)][k],
                                    scores.at[i][j]);
    }
  return scores;
}

/* results += weights * b, over the 64 rows of b from `b_row` on and columns from `first` on. The
 * weight of result row i and row k of b is scores[i][k]; if is_transposed, scores[k][i]. */
__device__ inline void
add_product (const Attention &shape, Results *results, const Scores &weights, bool is_transposed,
             const Head &b, uint64_t b_row, uint64_t first)
{
  Tiles &shared = tiles ();
  float (*chunk)[COLS] = (float (*)[COLS])shared.slice;
  unsigned row = threadIdx.x / (COLS / PIECE), col = threadIdx.x % (COLS / PIECE) * PIECE;

  __syncthreads (); /* the last weights have been read */
  for (unsigned i = 0; i < MINE; i++)
    for (unsigned j = 0; j < MINE; j++)
      shared.scores[my_row (i)][my_col (j)] = weights.at[i][j];
  for (unsigned begin = 0; begin < TILE && b_row + begin < shape.seq; begin += CHUNK)
    {
      Piece piece = piece_at (shape, b, b_row + begin + row, first + col);

      __syncthreads ();
      for (unsigned i = 0; i < PIECE; i++)
        chunk[row][col + i] = piece.at[i];
      __syncthreads ();
      for (unsigned k = 0; k < CHUNK; k++)
        {
          float weight[MINE];

          for (unsigned i = 0; i < MINE; i++)
            weight[i] = is_transposed ? shared.scores[begin + k][my_row (i)]
                                      : shared.scores[my_row (i)][begin + k];
          for (unsigned j = 0; j < MY_COLS; j++)
            if (first + SIDE * j < b.dim)
              for (unsigned i = 0; i < MINE; i++)
                results->at[i][j] = fmaf (weight[i], chunk[k][my_col (j)], results->at[i][j]);
        }
    }
}

/* The sum over the 16 threads that share a row, with the same bits in each. */
__device__ inline float
row_sum (float value)
{
  for (int distance = SIDE / 2; distance > 0; distance /= 2)
    value += __shfl_xor_sync (0xffffffffu, value, distance);
  return value;
}

__device__ inline float
row_max (float value)
{
  for (int distance = SIDE / 2; distance > 0; distance /= 2)
    value = fmaxf (value, __shfl_xor_sync (0xffffffffu, value, distance));
  return value;
}

__device__ inline void
write_results (const Attention &shape, const Head &out, uint64_t first_row, uint64_t first_col,
               const Results &results)
{
  for (unsigned i = 0; i < MINE; i++)
    for (unsigned j = 0; j < MY_COLS; j++)
      {
        uint64_t t = first_row + my_row (i), d = first_col + my_col (j);

        if (t < shape.seq && d < out.dim)
          write_one (out.array, out.at + t * out.width + d, results.at[i][j]);
      }
}

/* Where the chunk of a token begins. */
__device__ inline uint64_t
chunk_of (const Attention &shape, uint64_t place)
{
  return place - (uint32_t)place % shape.scores.chunk;
}

/* Kernels come in two kinds: `bends` says whether there are bounds, slopes, documents or dropout,
 * which take registers. */

template <bool bends>
__device__ inline HeadRule
rule_of (const Attention &shape, uint64_t sequence, uint64_t head)
{
  return bends ? head_rule (shape.scores, shape.seq, sequence, head) : HeadRule{};
}

/* A pair of tokens: where they are in the whole sequence, and whether the query sees the key. */
struct TokenPair
{
  uint64_t query, key;
  bool is_seen;
};

template <bool bends>
__device__ inline TokenPair
pair_of (const Attention &shape, const HeadRule &rule, uint64_t query, uint64_t key)
{
  uint64_t from = place_of (shape.queries, query), to = place_of (shape.keys, key);
  bool is_seen = query < shape.seq && key < shape.seq && to <= from
                 && from - to < shape.scores.window && to >= chunk_of (shape, from);

  return { from, to, is_seen && (!bends || key >= document_of (rule, query)) };
}

/* Where the first tile begins with a key that a query from `query` on sees; where the keys end that
 * one of the tile from `query` on sees. */
template <bool bends>
__device__ inline uint64_t
first_key (const Attention &shape, const HeadRule &rule, uint64_t query)
{
  uint64_t place = place_of (shape.queries, query), end = place + 1;
  uint64_t begin = chunk_of (shape, place);

  if (end > shape.scores.window && end - shape.scores.window > begin)
    begin = end - shape.scores.window;
  uint64_t key = before_place (shape.keys, begin);
  uint64_t document = bends ? document_of (rule, query) : 0;

  return (document > key ? document : key) / TILE * TILE;
}

__device__ inline uint64_t
end_key (const Attention &shape, uint64_t query)
{
  uint64_t last = at_most (query + TILE, shape.seq) - 1;

  return before_place (shape.keys, place_of (shape.queries, last) + 1);
}

/* Where the first tile begins with a query that sees a key from `key` on; where the queries end
 * that see one of the tile from `key` on. */
__device__ inline uint64_t
first_query (const Attention &shape, uint64_t key)
{
  return before_place (shape.queries, place_of (shape.keys, key)) / TILE * TILE;
}

__device__ inline uint64_t
end_query (const Attention &shape, uint64_t key)
{
  uint64_t last = at_most (key + TILE, shape.seq) - 1, place = place_of (shape.keys, last);

  return before_place (shape.queries, at_most (place + shape.scores.window,
                                               chunk_of (shape, place) + shape.scores.chunk));
}

/* --- forward ------------------------------------------------------------------------------ */

/* What a block computes: a tile of rows of a head of a sequence, in a slice of its columns. */
struct Task
{
  uint64_t tile, sequence, head, first_col;
};

/* Tasks are numbered so that those of one tile are neighbours. */
__device__ inline Task
task_of (const Attention &shape, uint64_t item, uint64_t heads)
{
  Task task;

  task.first_col = item % shape.slices * COLS;
  item /= shape.slices;
  task.head = item % heads;
  item /= heads;
  task.sequence = item % shape.batch;
  task.tile = item / shape.batch;
  return task;
}

/* The softmax of rows that are seen tile by tile: the largest score so far, and the sum of
 * exponentials relative to it. */
struct Online
{
  float max[MINE], sum[MINE];
};

/* Turns a tile's scores into weights relative to the largest score so far, and scales down what was
 * summed up relative to an older one. Sums are of weights before dropout. */
template <bool bends>
__device__ inline void
add_to_softmax (const Attention &shape, const HeadRule &rule, Scores *scores, Online *online,
                Results *results, uint64_t query, uint64_t key)
{
  EXEC_CUDA_UNROLL_ALL
  for (unsigned i = 0; i < MINE; i++)
    {
      float max = online->max[i], sum = 0;

      EXEC_CUDA_UNROLL_ALL
      for (unsigned j = 0; j < MINE; j++)
        {
          TokenPair pair = pair_of<bends> (shape, rule, query + my_row (i), key + my_col (j));
          float product = scores->at[i][j];
          float score = bends ? bend (shape.scores, rule, product, pair.query - pair.key)
                              : product * shape.scores.scale;

          scores->at[i][j] = pair.is_seen ? score : -INFINITY;
          max = fmaxf (max, scores->at[i][j]);
        }
      max = row_max (max);
      float base = max == -INFINITY ? 0.0f : max; /* a row that has seen no key yet */
      EXEC_CUDA_UNROLL_ALL
      for (unsigned j = 0; j < MINE; j++)
        {
          scores->at[i][j] = expf (scores->at[i][j] - base);
          sum += scores->at[i][j];
          if (bends)
            scores->at[i][j] *= weight_factor (rule, place_of (shape.queries, query + my_row (i)),
                                               place_of (shape.keys, key + my_col (j)));
        }
      float shrink = expf (online->max[i] - base);
      online->sum[i] = online->sum[i] * shrink + row_sum (sum);
      online->max[i] = max;
      for (unsigned j = 0; j < MY_COLS; j++)
        results->at[i][j] *= shrink;
    }
}

/* The heads of an op. */
struct OpHeads
{
  Heads q, k, v, out;
};

template <bool bends>
__global__ void
__launch_bounds__ (THREADS) attention (Attention shape, OpHeads of, float *lse)
{
  uint64_t count = shape.tiles * shape.batch * shape.heads * shape.slices;

  for (uint64_t item = blockIdx.x; item < count; item += gridDim.x)
    {
      Task task = task_of (shape, item, shape.heads);
      uint64_t query = (shape.tiles - 1 - task.tile) * TILE; /* long rows first */
      uint64_t kv = task.head / (shape.heads / shape.kv_heads);
      Head q = head_of (shape, of.q, task.sequence, task.head);
      Head k = head_of (shape, of.k, task.sequence, kv);
      Head v = head_of (shape, of.v, task.sequence, kv);
      Head to = head_of (shape, of.out, task.sequence, task.head);
      HeadRule rule = rule_of<bends> (shape, task.sequence, task.head);
      Results results = {};
      Online online;

      for (unsigned i = 0; i < MINE; i++)
        {
          online.max[i] = -INFINITY;
          online.sum[i] = 0;
        }
      for (uint64_t key = first_key<bends> (shape, rule, query); key < end_key (shape, query);
           key += TILE)
        {
          Scores scores = multiply (shape, q, query, k, key);

          add_to_softmax<bends> (shape, rule, &scores, &online, &results, query, key);
          add_product (shape, &results, scores, false, v, key, task.first_col);
        }
      for (unsigned i = 0; i < MINE; i++)
        {
          uint64_t t = query + my_row (i);

          for (unsigned j = 0; j < MY_COLS; j++)
            results.at[i][j] /= online.sum[i] > 0 ? online.sum[i] : 1.0f; /* 0: it saw no key */
          if (t < shape.seq && threadIdx.x % SIDE == 0 && task.first_col == 0)
            lse[(task.sequence * shape.heads + task.head) * shape.seq + t]
                = online.max[i] + logf (online.sum[i]);
        }
      write_results (shape, to, query, task.first_col, results);
    }
}

/* --- backward ----------------------------------------------------------------------------- */

/* What the backward pass reads of a query head. */
struct QueryHead
{
  Head q, out, dout;
  const float *lse;
  HeadRule rule;
};

struct Gradients
{
  OpHeads of;
  Heads dout, dq, dk, dv;
  const float *lse;
};

template <bool bends>
__device__ inline QueryHead
query_head_of (const Attention &shape, const Gradients &from, uint64_t sequence, uint64_t head)
{
  return { head_of (shape, from.of.q, sequence, head), head_of (shape, from.of.out, sequence, head),
           head_of (shape, from.dout, sequence, head),
           from.lse + (sequence * shape.heads + head) * shape.seq,
           rule_of<bends> (shape, sequence, head) };
}

/* The weights of a tile, and the gradient of its scores: with dp the gradient of a probability p, p
 * * (dp - sum (dout * out)) * scale, times the derivative of a bound. With dropout dp passes it,
 * and weights are what p left behind it. */
template <bool bends>
__device__ inline void
tile_bwd (const Attention &shape, const QueryHead &head, uint64_t query, const Head &k,
          const Head &v, uint64_t key, Scores *out_weights, Scores *out_dscores)
{
  Scores scores = multiply (shape, head.q, query, k, key);
  Scores dprob = multiply (shape, head.dout, query, v, key);

  EXEC_CUDA_UNROLL_ALL
  for (unsigned i = 0; i < MINE; i++)
    {
      uint64_t t = query + my_row (i);
      float dot = 0, lse = t < shape.seq ? head.lse[t] : 0.0f;

      for (uint64_t d = threadIdx.x % SIDE; d < shape.v_dim && t < shape.seq; d += SIDE)
        dot = fmaf (read_one (head.dout.array, head.dout.at + t * head.dout.width + d),
                    read_one (head.out.array, head.out.at + t * head.out.width + d), dot);
      dot = row_sum (dot);
      EXEC_CUDA_UNROLL_ALL
      for (unsigned j = 0; j < MINE; j++)
        {
          TokenPair pair = pair_of<bends> (shape, head.rule, t, key + my_col (j));
          float product = scores.at[i][j];
          float score = bends ? bend (shape.scores, head.rule, product, pair.query - pair.key)
                              : product * shape.scores.scale;
          float prob = pair.is_seen ? expf (score - lse) : 0.0f;
          float factor = bends ? weight_factor (head.rule, pair.query, pair.key) : 1.0f;
          float slope = bends ? bend_derivative (shape.scores, product) : 1.0f;

          out_weights->at[i][j] = prob * factor;
          out_dscores->at[i][j]
              = prob * (dprob.at[i][j] * factor - dot) * shape.scores.scale * slope;
        }
    }
}

template <bool bends>
__global__ void
__launch_bounds__ (THREADS) attention_dq (Attention shape, Gradients from)
{
  uint64_t count = shape.tiles * shape.batch * shape.heads * shape.slices;

  for (uint64_t item = blockIdx.x; item < count; item += gridDim.x)
    {
      Task task = task_of (shape, item, shape.heads);
      uint64_t query = (shape.tiles - 1 - task.tile) * TILE; /* long rows first */
      uint64_t kv = task.head / (shape.heads / shape.kv_heads);
      QueryHead head = query_head_of<bends> (shape, from, task.sequence, task.head);
      Head k = head_of (shape, from.of.k, task.sequence, kv);
      Head v = head_of (shape, from.of.v, task.sequence, kv);
      Head dq = head_of (shape, from.dq, task.sequence, task.head);
      Results results = {};

      for (uint64_t key = first_key<bends> (shape, head.rule, query); key < end_key (shape, query);
           key += TILE)
        {
          Scores weights, dscores;

          tile_bwd<bends> (shape, head, query, k, v, key, &weights, &dscores);
          add_product (shape, &results, dscores, false, k, key, task.first_col);
        }
      write_results (shape, dq, query, task.first_col, results);
    }
}

/* dk and dv of a tile of keys: sums over the query heads that share the key head, one after the
 * other. */
template <bool bends>
__global__ void
__launch_bounds__ (THREADS) attention_dkv (Attention shape, Gradients from)
{
  uint64_t count = shape.tiles * shape.batch * shape.kv_heads * shape.slices;
  uint64_t group = shape.heads / shape.kv_heads;

  for (uint64_t item = blockIdx.x; item < count; item += gridDim.x)
    {
      Task task = task_of (shape, item, shape.kv_heads); /* first keys first: seen most often */
      uint64_t key = task.tile * TILE, kv = task.head;
      Head k = head_of (shape, from.of.k, task.sequence, kv);
      Head v = head_of (shape, from.of.v, task.sequence, kv);
      Head dk = head_of (shape, from.dk, task.sequence, kv);
      Head dv = head_of (shape, from.dv, task.sequence, kv);
      Results dk_results = {}, dv_results = {};

      for (uint64_t h = task.head * group; h < (task.head + 1) * group; h++)
        {
          QueryHead head = query_head_of<bends> (shape, from, task.sequence, h);

          for (uint64_t query = first_query (shape, key); query < end_query (shape, key);
               query += TILE)
            {
              Scores weights, dscores;

              tile_bwd<bends> (shape, head, query, k, v, key, &weights, &dscores);
              add_product (shape, &dv_results, weights, true, head.dout, query, task.first_col);
              add_product (shape, &dk_results, dscores, true, head.q, query, task.first_col);
            }
        }
      write_results (shape, dk, key, task.first_col, dk_results);
      write_results (shape, dv, key, task.first_col, dv_results);
    }
}

/* --- joining ------------------------------------------------------------------------------ */

struct Join
{
  uint64_t seq, heads, dim;
  Array out, part;
  float *lse;
  const float *part_lse;
};

/* A block per row and head. It joins the results over two sets of keys, each weighted by its share
 * of the sum of exponentials. */
__global__ void
__launch_bounds__ (THREADS) join (uint64_t count, Join shape)
{
  for (uint64_t item = blockIdx.x; item < count; item += gridDim.x)
    {
      uint64_t row = item / shape.heads, head = item % shape.heads;
      uint64_t at = (row / shape.seq * shape.heads + head) * shape.seq + row % shape.seq;
      float one = shape.lse[at], other = shape.part_lse[at];
      float joined = fmaxf (one, other) + log1pf (expf (fminf (one, other) - fmaxf (one, other)));
      float share = expf (one - joined), part_share = expf (other - joined);

      for (uint64_t d = item * shape.dim + threadIdx.x; d < (item + 1) * shape.dim; d += blockDim.x)
        write_one (shape.out, d,
                   share * read_one (shape.out, d) + part_share * read_one (shape.part, d));
      __syncthreads (); /* all have read lse */
      if (threadIdx.x == 0)
        shape.lse[at] = joined;
    }
}

/* --- launchers ---------------------------------------------------------------------------- */

/* The heads of an operand that has as many as there are queries. */
Heads
query_heads (Operands *operands, const Attention &shape, int operand, uint64_t dim)
{
  return { operands->rows_of (operand, dim), shape.heads * dim, 0, dim };
}

/* Query (0), key (1), or value heads in rows that hold all of them. */
Heads
heads_in_qkv (Operands *operands, const Attention &shape, int operand, uint64_t which)
{
  uint64_t before = which > 0 ? shape.heads + (which - 1) * shape.kv_heads : 0;

  return { operands->rows_of (operand, shape.dim), (shape.heads + 2 * shape.kv_heads) * shape.dim,
           before * shape.dim, shape.dim };
}

/* Key (1), or value heads, of another rank, which lie apart, or of this one beside the queries. */
Heads
keys_of (Operands *operands, const ExecArgs *args, const Attention &shape, int with_queries,
         int apart, uint64_t which)
{
  uint64_t width = shape.kv_heads * shape.dim;

  if (args->ptr[apart] == NULL)
    return heads_in_qkv (operands, shape, with_queries, which);
  return { operands->rows_of (apart, shape.dim), 2 * width, (which - 1) * width, shape.dim };
}

OpHeads
heads_of_op (Operands *operands, const ExecArgs *args, const Attention &shape, int qkv, int kv,
             int out)
{
  return { heads_in_qkv (operands, shape, qkv, 0), keys_of (operands, args, shape, qkv, kv, 1),
           keys_of (operands, args, shape, qkv, kv, 2),
           query_heads (operands, shape, out, shape.dim) };
}

OpHeads
latent_heads_of (Operands *operands, const Attention &shape, int q, int out)
{
  return { query_heads (operands, shape, q, shape.dim),
           query_heads (operands, shape, q + 1, shape.dim),
           query_heads (operands, shape, q + 2, shape.v_dim),
           query_heads (operands, shape, out, shape.v_dim) };
}

int
launch_forward (const Attention &shape, const OpHeads &of, float *lse, void *stream)
{
  Shape launch = shape_of_blocks (shape.tiles * shape.batch * shape.heads * shape.slices, THREADS);

  return exec_cuda_scores_bend (&shape.scores)
             ? EXEC_CUDA_LAUNCH (attention<true>, launch, stream, shape, of, lse)
             : EXEC_CUDA_LAUNCH (attention<false>, launch, stream, shape, of, lse);
}

template <bool bends>
int
launch_gradients (const Attention &shape, const Gradients &from, void *stream)
{
  uint64_t tasks = shape.tiles * shape.batch * shape.slices;
  int code = EXEC_CUDA_LAUNCH (attention_dq<bends>, shape_of_blocks (tasks * shape.heads, THREADS),
                               stream, shape, from);

  if (code == 0)
    code
        = EXEC_CUDA_LAUNCH (attention_dkv<bends>, shape_of_blocks (tasks * shape.kv_heads, THREADS),
                            stream, shape, from);
  return code;
}

int
launch_backward (const Attention &shape, const Gradients &from, void *stream)
{
  return exec_cuda_scores_bend (&shape.scores) ? launch_gradients<true> (shape, from, stream)
                                               : launch_gradients<false> (shape, from, stream);
}

}

extern "C" int
exec_cuda_attention (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  Attention shape = attention_of (operands, args);
  OpHeads of = heads_of_op (&operands, args, shape, PLAN_REF_ATTENTION_qkv, PLAN_REF_ATTENTION_kv,
                            PLAN_REF_ATTENTION_out);
  float *lse = operands.floats (PLAN_REF_ATTENTION_lse);

  if (operands.code != 0)
    return operands.code;
  return launch_forward (shape, of, lse, stream);
}

extern "C" int
exec_cuda_attention_bwd (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  Attention shape = attention_of (operands, args);
  const int dqkv = PLAN_REF_ATTENTION_BWD_dqkv, dkv = PLAN_REF_ATTENTION_BWD_dkv;
  Gradients from = { heads_of_op (&operands, args, shape, PLAN_REF_ATTENTION_BWD_qkv,
                                  PLAN_REF_ATTENTION_BWD_kv, PLAN_REF_ATTENTION_BWD_out),
                     query_heads (&operands, shape, PLAN_REF_ATTENTION_BWD_dout, shape.dim),
                     args->ptr[dkv] != NULL ? query_heads (&operands, shape, dqkv, shape.dim)
                                            : heads_in_qkv (&operands, shape, dqkv, 0),
                     keys_of (&operands, args, shape, dqkv, dkv, 1),
                     keys_of (&operands, args, shape, dqkv, dkv, 2),
                     operands.floats (PLAN_REF_ATTENTION_BWD_lse) };

  if (operands.code != 0)
    return operands.code;
  return launch_backward (shape, from, stream);
}

extern "C" int
exec_cuda_latent_attention (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  Attention shape = attention_of (operands, args);
  OpHeads of = latent_heads_of (&operands, shape, PLAN_REF_LATENT_ATTENTION_q,
                                PLAN_REF_LATENT_ATTENTION_out);
  float *lse = operands.floats (PLAN_REF_LATENT_ATTENTION_lse);

  if (operands.code != 0)
    return operands.code;
  return launch_forward (shape, of, lse, stream);
}

extern "C" int
exec_cuda_latent_attention_bwd (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  Attention shape = attention_of (operands, args);
  Gradients from
      = { latent_heads_of (&operands, shape, PLAN_REF_LATENT_ATTENTION_BWD_q,
                           PLAN_REF_LATENT_ATTENTION_BWD_out),
          query_heads (&operands, shape, PLAN_REF_LATENT_ATTENTION_BWD_dout, shape.v_dim),
          query_heads (&operands, shape, PLAN_REF_LATENT_ATTENTION_BWD_dq, shape.dim),
          query_heads (&operands, shape, PLAN_REF_LATENT_ATTENTION_BWD_dk, shape.dim),
          query_heads (&operands, shape, PLAN_REF_LATENT_ATTENTION_BWD_dv, shape.v_dim),
          operands.floats (PLAN_REF_LATENT_ATTENTION_BWD_lse) };

  if (operands.code != 0)
    return operands.code;
  return launch_backward (shape, from, stream);
}

extern "C" int
exec_cuda_attention_join (const ExecArgs *args, void *stream)
{
  Operands operands (args);
  uint64_t rows = operands.dim (0) * operands.dim (1), dim = operands.dim (3);
  Join shape
      = { operands.dim (1),    operands.dim (2),   dim, operands.array (0), operands.array (2),
          operands.floats (1), operands.floats (3) };
  unsigned threads = (unsigned)at_most ((dim + WARP - 1) / WARP * WARP, THREADS);

  if (operands.code != 0)
    return operands.code;
  return EXEC_CUDA_LAUNCH (join, shape_of_blocks (rows * shape.heads, threads), stream,
                           rows * shape.heads, shape);
}
