/* SPDX-License-Identifier: Apache-2.0 */
/* Causal attention by products of runs of queries with the keys that they see. */
#include "config.h"

#include "exec/cpu/attend.h"

#include "exec/cpu/kernels-cpu-private.h"
#include "exec/cpu/pool.h"
#include "exec/number/number.h"
#include "exec/number/random.h"
#include "planner/model/alibi.h"
#include "planner/schedule/sequence.h"

#include <math.h>
#include <string.h>

typedef struct
{
  guint64 batch, seq, heads, kv_heads, dim, v_dim;
  PlanSequencePart queries, keys; /* where they are in their sequence */
  guint64 window;                 /* most keys that a query sees, of the whole sequence */
  guint64 chunk;                  /* tokens of the whole sequence that see no earlier ones */
  const gint32 *places; /* of all tokens in their documents; NULL: each sequence is one document */
  float scale, cap;
  gboolean has_slopes;          /* ALiBi: scores fall with distance */
  gint64 first_head, all_heads; /* number of the first head here; of heads on all ranks */
  ExecDropout dropout;          /* of weights; without a key there is none */
  guint64 whole, start; /* tokens of the whole sequence; number of its first one in the run */
} Shape;

/* Keys of another rank have gone around the ring for as many turns as that rank is before this
 * one. */
static Shape
shape_of (const ExecArgs *args, const ExecCpuAttentionOperands *of)
{
  const gboolean drops = args->ptr[of->key] != NULL;
  const PlanOp *op = args->op;
  const gboolean is_latent
      = op->kind == PLAN_OP_LATENT_ATTENTION || op->kind == PLAN_OP_LATENT_ATTENTION_BWD;
  const gint64 dim
      = op->dims[is_latent ? PLAN_DIM_LATENT_ATTENTION_head_dim : PLAN_DIM_ATTENTION_head_dim];
  const guint64 seq = (guint64)op->dims[PLAN_DIM_ATTENTION_seq];
  const guint64 part = (guint64)exec_manner (args, PLAN_MANNER_PART),
                parts = MAX ((guint64)exec_manner (args, PLAN_MANNER_PARTS), 1);
  const guint64 window = (guint64)exec_manner (args, PLAN_MANNER_WINDOW),
                chunk = (guint64)exec_manner (args, PLAN_MANNER_CHUNK);
  const double scalar = exec_manner (args, PLAN_MANNER_SCALAR),
               whole = exec_manner (args, PLAN_MANNER_WHOLE);
  return (Shape){
    .batch = (guint64)op->dims[PLAN_DIM_ATTENTION_batch],
    .seq = seq,
    .queries = plan_sequence_part (part, parts, seq),
    .keys = plan_sequence_part ((part + parts - args->turn) % parts, parts, seq),
    .heads = (guint64)op->dims[PLAN_DIM_ATTENTION_heads],
    .kv_heads
    = (guint64)op->dims[is_latent ? PLAN_DIM_LATENT_ATTENTION_heads : PLAN_DIM_ATTENTION_kv_heads],
    .dim = (guint64)dim,
    .v_dim = (guint64)(is_latent ? op->dims[PLAN_DIM_LATENT_ATTENTION_v_dim] : dim),
    .window = window > 0 ? window : seq * parts,
    .chunk = chunk > 0 ? chunk : seq * parts,
    .places = args->ptr[of->places],
    .scale = (float)(1 / sqrt (scalar > 0 ? scalar : (double)dim)),
    .cap = (float)exec_manner (args, PLAN_MANNER_CAP),
    .has_slopes = exec_manner (args, PLAN_MANNER_ALIBI) != 0,
    .first_head = (gint64)exec_manner (args, PLAN_MANNER_FIRST),
    .all_heads = whole > 0 ? (gint64)whole : op->dims[PLAN_DIM_ATTENTION_heads],
    .dropout = exec_dropout (drops ? args->ptr[of->key] : NULL, EXEC_FIRST_HEAD_SITE,
                             exec_manner (args, PLAN_MANNER_RATE)),
    .whole = seq * parts,
    .start = drops ? (guint64) * (const gint64 *)args->ptr[of->start] : 0,
  };
}

/* A matrix of one head of one sequence: in fp32, or in bf16 as the sum of `upper` and `lower`,
 * where `lower` is NULL if it would be zero. */
typedef struct
{
  float *wide;
  guint16 *upper, *lower;
} Matrix;

/* How attention is computed. Queries are taken in runs; each run is multiplied with the keys from
 * the first one that its first query sees to the last one that its last query sees, since other
 * keys have no weight.
 * Where the processor multiplies bf16, scores and their gradients are split into two bf16 numbers;
 * the part that is lost is 2^-17 of them, little beside the rounding of the result. */
typedef struct
{
  guint64 queries; /* queries of a run */
  gboolean splits;
} Way;

#define QUERIES 128
#define LEAST_QUERIES 32

/* Chooses how attention is computed. Where scores are split, the scratch that is sized for the
 * scores of all queries must hold those of a run and their lower halves. */
static Way
way_of (const Shape *shape, PlanDtype dtype)
{
  if (dtype == PLAN_DTYPE_BF16 && exec_gemm_bf16_is_available ())
    for (guint64 queries = QUERIES; queries >= LEAST_QUERIES; queries /= 2)
      if (queries * 3 / 2 <= shape->seq)
        return (Way){ queries, TRUE };
  return (Way){ QUERIES, FALSE };
}

typedef struct
{
  gint64 first, rows;    /* queries */
  gint64 from_key, keys; /* from the first that a query of the run sees to the last */
} Run;

#define KEYS_TOGETHER 32 /* from_key is a multiple of it: few sizes of GEMMs occur */

/* The first key that a query sees, and the end of those that it sees. Neither ever decreases from
 * one query to the next. A document may have begun before the sequence: where chunks are taken for
 * sequences. */
static guint64
first_seen (const Shape *shape, guint64 query)
{
  const guint64 place = plan_sequence_place (&shape->queries, query), end = place + 1;
  const guint64 of_window = end > shape->window ? end - shape->window : 0;
  const guint64 from
      = plan_sequence_before (&shape->keys, MAX (of_window, place - place % shape->chunk));

  return shape->places != NULL ? MAX (from, query - MIN (query, (guint64)shape->places[query]))
                               : from;
}

static guint64
end_seen (const Shape *shape, guint64 query)
{
  return plan_sequence_before (&shape->keys, plan_sequence_place (&shape->queries, query) + 1);
}

static Run
run_from (const Shape *shape, const Way *way, guint64 first)
{
  const guint64 end = MIN (first + way->queries, shape->seq);
  const guint64 from_key = first_seen (shape, first) / KEYS_TOGETHER * KEYS_TOGETHER;
  const guint64 keys = end_seen (shape, end - 1) - from_key;

  return (Run){ (gint64)first, (gint64)(end - first), (gint64)from_key, (gint64)keys };
}

/* The keys of a run that one of its queries sees: `count` from `begin` on; `behind` later ones are
 * not seen. */
typedef struct
{
  guint64 begin, count, behind;
} Seen;

static Seen
seen_in_row (const Shape *shape, const Run *run, gint64 row)
{
  const guint64 query = (guint64)(run->first + row), from_key = (guint64)run->from_key;
  const guint64 begin = first_seen (shape, query) - from_key,
                end = end_seen (shape, query) - from_key;

  return (Seen){ begin, end - begin, (guint64)run->keys - end };
}

static void
clear_unseen (float *row, const Seen *seen)
{
  memset (row, 0, seen->begin * sizeof *row);
  memset (row + seen->begin + seen->count, 0, seen->behind * sizeof *row);
}

/* A copy of one head, [seq, dim], in this memory: in bf16 if scores are split. Sums are always in
 * fp32. */
static Matrix
copy_at (const Way *way, float *memory)
{
  return way->splits ? (Matrix){ .upper = (guint16 *)memory } : (Matrix){ .wide = memory };
}

static Matrix
from_row (const Matrix *self, guint64 row, guint64 dim)
{
  const guint64 at = row * dim;

  return self->wide != NULL ? (Matrix){ .wide = self->wide + at }
                            : (Matrix){ .upper = self->upper + at };
}

/* `count` elements in fp32: the matrix itself, or copied to `storage`. */
static const float *
read_matrix (const Matrix *self, guint64 at, guint64 count, float *storage)
{
  if (self->wide != NULL)
    return self->wide + at;
  return exec_cpu_read (self->upper, PLAN_DTYPE_BF16, at, count, storage);
}

/* Copies one head, of `dim` elements, of one sequence out of rows. */
static void
gather_head (const Shape *shape, const Matrix *out, const ExecArgs *args, const ExecCpuHeads *from,
             guint64 dim, guint64 sequence, guint64 head)
{
  for (guint64 t = 0; t < shape->seq; t++)
    {
      const guint64 at = (sequence * shape->seq + t) * from->width + from->at + head * dim;

      if (out->wide == NULL)
        {
          memcpy (out->upper + t * dim, (const guint16 *)args->ptr[from->operand] + at,
                  dim * sizeof *out->upper);
          continue;
        }
      float *row = out->wide + t * dim;
      const float *in = exec_cpu_read_ref (args, from->operand, at, dim, row);

      if (in != row)
        memcpy (row, in, dim * sizeof *row);
    }
}

static void
scatter_head (const Shape *shape, const ExecArgs *args, const ExecCpuHeads *to, guint64 dim,
              guint64 sequence, guint64 head, const float *in)
{
  for (guint64 t = 0; t < shape->seq; t++)
    {
      guint64 at = (sequence * shape->seq + t) * to->width + to->at + head * dim;

      exec_cpu_write_ref (args, to->operand, at, dim, in + t * dim);
    }
}

/* The scores of a run, in scratch for [seq, seq] floats. */
typedef struct
{
  float *wide;
  guint16 *upper, *lower; /* `upper` in the place of `wide` */
  float *product;         /* scratch for a product that is added afterwards, if not split */
} Scores;

static Scores
scores_at (const Shape *shape, const Way *way, float *memory, float *product)
{
  const guint64 count = way->queries * shape->seq;

  if (!way->splits)
    return (Scores){ .wide = memory, .product = product };
  return (
      Scores){ .wide = memory, .upper = (guint16 *)memory, .lower = (guint16 *)(memory + count) };
}

static EXEC_WIDE void
split_block (guint16 *restrict upper, guint16 *restrict lower, const float *restrict in,
             guint64 count)
{
  for (guint64 i = 0; i < count; i++)
    {
      upper[i] = exec_number_to_bf16 (in[i]);
      lower[i] = exec_number_to_bf16 (in[i] - exec_number_from_bf16 (upper[i]));
    }
}

/* Turns the scores of a run into factors of a product. If they are split, their fp32 values are
 * overwritten. */
static Matrix
split (const Way *way, const Scores *self, guint64 count)
{
  float in[EXEC_CPU_BLOCK];
  guint16 upper[EXEC_CPU_BLOCK];

  if (!way->splits)
    return (Matrix){ .wide = self->wide };
  for (guint64 at = 0; at < count; at += EXEC_CPU_BLOCK)
    {
      const guint64 n = MIN (EXEC_CPU_BLOCK, count - at);

      memcpy (in, self->wide + at, n * sizeof *in); /* a copy: `upper` overwrites it */
      split_block (upper, self->lower + at, in, n);
      memcpy (self->upper + at, upper, n * sizeof *upper);
    }
  return (Matrix){ .upper = self->upper, .lower = self->lower };
}

static EXEC_WIDE void
add_to (float *restrict out, const float *restrict in, guint64 count)
{
  for (guint64 i = 0; i < count; i++)
    out[i] += in[i];
}

/* Multiplies two matrices, of which only the first may have lower halves. */
static void
multiply (const Scores *scores, const gint64 size[3], int layout, const Matrix *a, const Matrix *b,
          gboolean adds, float *out)
{
  if (b->wide != NULL)
    {
      exec_gemm_fp32 (size[0], size[1], size[2], layout, a->wide, b->wide,
                      adds ? scores->product : out);
      if (adds)
        add_to (out, scores->product, (guint64)(size[0] * size[1]));
      return;
    }
  exec_gemm_bf16 (size[0], size[1], size[2], layout, a->upper, b->upper, adds, out, NULL);
  if (a->lower != NULL)
    exec_gemm_bf16 (size[0], size[1], size[2], layout, a->lower, b->upper, TRUE, out, NULL);
}

/* ALiBi's slope: by how much the scores of a head fall with each token of distance. */
static float
slope_of (const Shape *shape, guint64 head)
{
  return shape->has_slopes
             ? (float)plan_alibi_slope (shape->first_head + (gint64)head, shape->all_heads)
             : 0;
}

/* Whether scores need more than scaling before the softmax: a cap or ALiBi's slope. */
static gboolean
is_bent (const Shape *shape)
{
  return shape->cap > 0 || shape->has_slopes;
}

static void
cap_scores (const Shape *shape, float *scores, guint64 count)
{
  for (guint64 i = 0; i < count; i++)
    {
      const float score = scores[i] * shape->scale;

      scores[i] = shape->cap > 0 ? shape->cap * tanhf (score / shape->cap) : score;
    }
}

/* Subtracts the slope times the distance in the sequence from the scores of a query and of keys
 * from `key` on. */
static void
add_slope (const Shape *shape, float *scores, guint64 query, guint64 key, guint64 count,
           float slope)
{
  const guint64 place = plan_sequence_place (&shape->queries, query);

  for (guint64 i = 0; i < count; i++)
    scores[i] -= slope * (float)(place - plan_sequence_place (&shape->keys, key + i));
}

/* Drops weights of a query and of keys from `key` on, or their gradients. The column of a weight is
 * the number of its key among the tokens of the training run. Neighbouring keys of a part of a
 * sequence have neighbouring numbers but where its two pieces meet. */
static void
drop_weights (const Shape *shape, float *row, guint64 query, guint64 key, guint64 count)
{
  const guint64 token = shape->start + plan_sequence_place (&shape->queries, query);
  float factors[EXEC_CPU_BLOCK];
  guint64 n;

  for (guint64 at = 0; shape->dropout.key != NULL && at < count; at += n)
    {
      const guint64 here = key + at;
      const guint64 left = here < shape->keys.piece ? shape->keys.piece - here : count;

      n = MIN (MIN (EXEC_CPU_BLOCK, count - at), left);
      exec_dropout_factors (&shape->dropout, token,
                            shape->start + plan_sequence_place (&shape->keys, here), n, factors);
      for (guint64 i = 0; i < n; i++)
        row[at + i] *= factors[i];
    }
}

/* Turns scores into probabilities, row by row, by the causal softmax of scale * score. A query that
 * sees none of these keys has minus infinity in `lse`. */
static void
softmax (const Shape *shape, const Run *run, float slope, float *scores, float *lse)
{
  const float scale = is_bent (shape) ? 1 : shape->scale;

  for (gint64 i = 0; i < run->rows; i++)
    {
      const Seen seen = seen_in_row (shape, run, i);
      float *row = scores + i * run->keys, *from = row + seen.begin;
      float lanes[EXEC_CPU_LANES] = { 0 };
      if (is_bent (shape))
        {
          cap_scores (shape, from, seen.count);
          add_slope (shape, from, (guint64)(run->first + i), (guint64)run->from_key + seen.begin,
                     seen.count, slope);
        }
      clear_unseen (row, &seen);
      lse[run->first + i] = -INFINITY;
      if (seen.count == 0)
        continue;
      float max = exec_cpu_largest (from, seen.count) * scale;

      exec_cpu_exp_row (from, from, seen.count, scale, max, lanes);
      float sum = exec_cpu_total (lanes);
      exec_cpu_divide_row (from, seen.count, sum);
      lse[run->first + i] = max + logf (sum);
      drop_weights (shape, from, (guint64)(run->first + i), (guint64)run->from_key + seen.begin,
                    seen.count);
    }
}

/* The forward pass of one query head of one sequence. */
static void
query_head (const Shape *shape, const Way *way, float slope, const Scores *scores,
            const Matrix qkv[3], float *lse, float *out)
{
  const gint64 dim = (gint64)shape->dim, v_dim = (gint64)shape->v_dim;

  for (guint64 first = 0; first < shape->seq; first += way->queries)
    {
      const Run run = run_from (shape, way, first);
      const Matrix q = from_row (&qkv[0], first, shape->dim);
      const Matrix k = from_row (&qkv[1], (guint64)run.from_key, shape->dim),
                   v = from_row (&qkv[2], (guint64)run.from_key, shape->v_dim);

      if (run.keys > 0)
        multiply (scores, (gint64[]){ run.rows, run.keys, dim }, 1, &q, &k, FALSE, scores->wide);
      softmax (shape, &run, slope, scores->wide, lse);
      if (run.keys == 0)
        {
          memset (out + first * shape->v_dim, 0, (guint64)run.rows * shape->v_dim * sizeof *out);
          continue;
        }
      const Matrix prob = split (way, scores, (guint64)(run.rows * run.keys));
      multiply (scores, (gint64[]){ run.rows, v_dim, run.keys }, 0, &prob, &v, FALSE,
                out + first * shape->v_dim);
    }
}

/* --- heads divided among threads ---------------------------------------------------------- */

/* Most bytes of memory that one thread gets beside the op's scratch. */
#define ROOM_BYTES (16 << 20)

/* Fewest multiply-adds of a part, some ten microseconds of work. */
#define PART_PRODUCTS (1 << 20)

/* The heads of all sequences, divided among threads. The query heads of a sequence that share a key
 * head are one unit, since their gradients are added up. Each thread needs working memory: the op's
 * scratch, which is sized for all scores of a head, is enough for several threads where sequences
 * are long; where they are short, memory beside it is small. */
typedef struct
{
  const ExecArgs *args;
  const ExecCpuAttentionOperands *of;
  Shape shape;
  Way way;
  float *scratch, *beside;
  /* Floats that a thread needs; the number of threads for which the scratch has room. */
  guint64 room, in_scratch;
  guint64 heads, at_once; /* key heads of all sequences; key heads of a part */
} Spread;

static guint64
scores_room (const Shape *shape, const Way *way)
{
  const guint64 count = MIN (way->queries, shape->seq) * shape->seq;

  return way->splits ? count * 3 / 2 : count;
}

static float *
room_of (const Spread *self, guint worker)
{
  return worker < self->in_scratch ? self->scratch + worker * self->room
                                   : self->beside + (worker - self->in_scratch) * self->room;
}

static void
run_heads (Spread *self, guint64 scratch, ExecPoolPart run)
{
  const Shape *shape = &self->shape;
  const guint threads = exec_pool_threads ();
  const guint64 products = shape->seq * shape->seq * shape->dim * (shape->heads / shape->kv_heads);
  guint workers;

  self->in_scratch = MAX (scratch / self->room, 1);
  workers = (guint)MIN (threads, self->in_scratch);
  if (workers < threads && self->room * sizeof (float) <= ROOM_BYTES)
    {
      self->beside = exec_pool_scratch (self->room * sizeof (float));
      workers = threads;
    }
  self->heads = shape->batch * shape->kv_heads;
  self->at_once = MAX (PART_PRODUCTS / products, 1);
  exec_pool_run ((self->heads + self->at_once - 1) / self->at_once, workers, run, self);
}

static Shape
in_sequence (const Shape *shape, guint64 sequence)
{
  Shape self = *shape;

  if (self.places != NULL)
    self.places += sequence * self.seq;
  self.start += sequence * self.whole;
  return self;
}

/* The shape as one of its heads sees it. */
static Shape
in_head (const Shape *shape, guint64 head)
{
  Shape self = *shape;

  self.dropout.site += (guint32)shape->first_head + (guint32)head;
  return self;
}

static void
attention_head (const Spread *self, guint64 of, guint worker)
{
  const Shape own = in_sequence (&self->shape, of / self->shape.kv_heads);
  const Shape *shape = &own;
  const ExecArgs *args = self->args;
  const ExecCpuAttentionOperands *at = self->of;
  const guint64 size = shape->seq * shape->dim, group = shape->heads / shape->kv_heads;
  const guint64 b = of / shape->kv_heads, kv_head = of % shape->kv_heads;
  float *work = room_of (self, worker), *copies = work + scores_room (shape, &self->way),
        *out = copies + 2 * size + shape->seq * shape->v_dim;
  const Scores scores = scores_at (shape, &self->way, work, NULL);
  const Matrix qkv[] = { copy_at (&self->way, copies), copy_at (&self->way, copies + size),
                         copy_at (&self->way, copies + 2 * size) };

  gather_head (shape, &qkv[1], args, &at->k, shape->dim, b, kv_head);
  gather_head (shape, &qkv[2], args, &at->v, shape->v_dim, b, kv_head);
  for (guint64 head = kv_head * group; head < (kv_head + 1) * group; head++)
    {
      float *lse = (float *)args->ptr[at->lse] + (b * shape->heads + head) * shape->seq;
      const Shape of_head = in_head (shape, head);

      gather_head (shape, &qkv[0], args, &at->q, shape->dim, b, head);
      query_head (&of_head, &self->way, slope_of (shape, head), &scores, qkv, lse, out);
      scatter_head (shape, args, &at->out, shape->v_dim, b, head, out);
    }
}

static void
attention_part (gpointer data, guint64 part, guint worker)
{
  const Spread *self = data;
  const guint64 end = MIN ((part + 1) * self->at_once, self->heads);

  for (guint64 of = part * self->at_once; of < end; of++)
    attention_head (self, of, worker);
}

/* The format of operands, or fp32 if they are not all of one. */
static PlanDtype
format_of (const ExecArgs *args, const guint *operands, guint n)
{
  for (guint i = 1; i < n; i++)
    if (args->dtype[operands[i]] != args->dtype[operands[0]])
      return PLAN_DTYPE_FP32;
  return args->dtype[operands[0]];
}

void
exec_cpu_attend (const ExecArgs *args, const ExecCpuAttentionOperands *of)
{
  Spread self
      = { .args = args, .of = of, .shape = shape_of (args, of), .scratch = args->ptr[of->work] };
  const guint read[] = { of->q.operand, of->k.operand, of->v.operand };
  const guint64 copies = 2 * self.shape.seq * (self.shape.dim + self.shape.v_dim);

  self.way = way_of (&self.shape, format_of (args, read, G_N_ELEMENTS (read)));
  self.room = scores_room (&self.shape, &self.way) + copies;
  run_heads (&self, self.shape.seq * self.shape.seq + copies, attention_part);
}

/* The scratch of the backward pass for one head. Products that are added lie where `out` does,
 * which is read before the first of them: see dot_rows. Where values have a width of their own,
 * products lie behind all else. */
typedef struct
{
  Scores prob, dprob;
  Matrix q, k, v, out, dout; /* [seq, dim] */
  float *dq, *dk, *dv;
} Head;

static guint64
backward_room (const Shape *shape)
{
  const guint64 product
      = shape->dim == shape->v_dim ? 0 : shape->seq * MAX (shape->dim, shape->v_dim);

  return 4 * shape->seq * (shape->dim + shape->v_dim) + product;
}

static Head
head_of (const Shape *shape, const Way *way, float *work)
{
  const guint64 square = scores_room (shape, way), qk_head = shape->seq * shape->dim,
                v_head = shape->seq * shape->v_dim;
  float *q = work + 2 * square, *k = q + qk_head, *v = k + qk_head, *out = v + v_head,
        *dout = out + v_head, *dq = dout + v_head, *dk = dq + qk_head, *dv = dk + qk_head;

  return (Head){
    .prob = scores_at (shape, way, work, shape->dim == shape->v_dim ? out : dv + v_head),
    .dprob = scores_at (shape, way, work + square, NULL),
    .q = copy_at (way, q),
    .k = copy_at (way, k),
    .v = copy_at (way, v),
    .out = copy_at (way, out),
    .dout = copy_at (way, dout),
    .dq = dq,
    .dk = dk,
    .dv = dv,
  };
}

static EXEC_WIDE void
scale_gradients (float *restrict dprob, const float *restrict prob, guint64 count, float dot,
                 float scale)
{
  for (guint64 i = 0; i < count; i++)
    dprob[i] = prob[i] * (dprob[i] - dot) * scale;
}

/* sum (dout * out) of a row */
static float
dot_row (const Shape *shape, const Head *head, guint64 row)
{
  float lanes[EXEC_CPU_LANES] = { 0 }, dout_storage[EXEC_CPU_BLOCK], storage[EXEC_CPU_BLOCK];

  for (guint64 at = 0; at < shape->v_dim; at += EXEC_CPU_BLOCK)
    {
      const guint64 n = MIN (EXEC_CPU_BLOCK, shape->v_dim - at), from = row * shape->v_dim + at;

      exec_cpu_add_products (lanes, read_matrix (&head->dout, from, n, dout_storage),
                             read_matrix (&head->out, from, n, storage), n);
    }
  return exec_cpu_total (lanes);
}

/* Leaves sum (dout * out) of each row where the row's dq begins, which is written later. */
static void
dot_rows (const Shape *shape, const Head *head)
{
  for (guint64 row = 0; row < shape->seq; row++)
    head->dq[row * shape->dim] = dot_row (shape, head, row);
}

/* The derivative of capped scores. Caps the scores as the forward pass did; the gradient of capped
 * scores, less `dot`, becomes that of uncapped ones: it is multiplied by 1 - tanh^2. */
static void
cap_scores_bwd (const Shape *shape, float *scores, float *dprob, guint64 count, float dot)
{
  cap_scores (shape, scores, count);
  for (guint64 i = 0; i < count; i++)
    {
      const float share = shape->cap > 0 ? scores[i] / shape->cap : 0;

      dprob[i] = (dprob[i] - dot) * (1 - share * share);
    }
}

/* Turns scores into probabilities and the gradient of probabilities into that of scores: ds = p *
 * (dp - sum (dout * out)). With dropout dp is dropped as p was in the forward pass, and so is
 * the p of which the gradient of values is made. */
static void
softmax_bwd (const Shape *shape, const Run *run, float slope, const Head *head, const float *lse)
{
  const float scale = is_bent (shape) ? 1 : shape->scale;

  for (gint64 i = 0; i < run->rows; i++)
    {
      const guint64 t = (guint64)(run->first + i);
      const Seen seen = seen_in_row (shape, run, i);
      float *prob = head->prob.wide + i * run->keys, *dprob = head->dprob.wide + i * run->keys;
      float unused[EXEC_CPU_LANES] = { 0 }, dot = head->dq[t * shape->dim];
      const guint64 key = (guint64)run->from_key + seen.begin;

      drop_weights (shape, dprob + seen.begin, t, key, seen.count);
      if (is_bent (shape))
        {
          cap_scores_bwd (shape, prob + seen.begin, dprob + seen.begin, seen.count, dot);
          add_slope (shape, prob + seen.begin, t, key, seen.count, slope);
          dot = 0;
        }
      exec_cpu_exp_row (prob + seen.begin, prob + seen.begin, seen.count, scale, lse[t], unused);
      scale_gradients (dprob + seen.begin, prob + seen.begin, seen.count, dot, shape->scale);
      drop_weights (shape, prob + seen.begin, t, key, seen.count);
      clear_unseen (prob, &seen);
      clear_unseen (dprob, &seen);
    }
}

/* The backward pass of one query head: sets dq, adds to dk and dv. */
static void
query_head_bwd (const Shape *shape, const Way *way, float slope, const Head *head, const float *lse)
{
  const gint64 dim = (gint64)shape->dim, v_dim = (gint64)shape->v_dim;

  dot_rows (shape, head);
  for (guint64 first = 0; first < shape->seq; first += way->queries)
    {
      const Run run = run_from (shape, way, first);
      const guint64 from_key = (guint64)run.from_key;
      const Matrix q = from_row (&head->q, first, shape->dim),
                   dout = from_row (&head->dout, first, shape->v_dim);
      const Matrix k = from_row (&head->k, from_key, shape->dim),
                   v = from_row (&head->v, from_key, shape->v_dim);

      if (run.keys == 0)
        {
          memset (head->dq + first * shape->dim, 0,
                  (guint64)run.rows * shape->dim * sizeof *head->dq);
          continue;
        }
      multiply (&head->prob, (gint64[]){ run.rows, run.keys, dim }, 1, &q, &k, FALSE,
                head->prob.wide);
      multiply (&head->prob, (gint64[]){ run.rows, run.keys, v_dim }, 1, &dout, &v, FALSE,
                head->dprob.wide);
      softmax_bwd (shape, &run, slope, head, lse);
      const Matrix prob = split (way, &head->prob, (guint64)(run.rows * run.keys));
      const Matrix dprob = split (way, &head->dprob, (guint64)(run.rows * run.keys));
      multiply (&head->prob, (gint64[]){ run.rows, dim, run.keys }, 0, &dprob, &k, FALSE,
                head->dq + first * shape->dim);
      multiply (&head->prob, (gint64[]){ run.keys, dim, run.rows }, 2, &dprob, &q, TRUE,
                head->dk + from_key * shape->dim);
      multiply (&head->prob, (gint64[]){ run.keys, v_dim, run.rows }, 2, &prob, &dout, TRUE,
                head->dv + from_key * shape->v_dim);
    }
}

static void
attention_bwd_head (const Spread *self, guint64 of, guint worker)
{
  const Shape own = in_sequence (&self->shape, of / self->shape.kv_heads);
  const Shape *shape = &own;
  const ExecArgs *args = self->args;
  const ExecCpuAttentionOperands *at = self->of;
  Head head = head_of (shape, &self->way, room_of (self, worker));
  const guint64 group = shape->heads / shape->kv_heads;
  const guint64 b = of / shape->kv_heads, kv_head = of % shape->kv_heads;

  gather_head (shape, &head.k, args, &at->k, shape->dim, b, kv_head);
  gather_head (shape, &head.v, args, &at->v, shape->v_dim, b, kv_head);
  memset (head.dk, 0, shape->seq * shape->dim * sizeof (float));
  memset (head.dv, 0, shape->seq * shape->v_dim * sizeof (float));
  for (guint64 h = kv_head * group; h < (kv_head + 1) * group; h++)
    {
      const float *lse = (const float *)args->ptr[at->lse] + (b * shape->heads + h) * shape->seq;
      const Shape of_head = in_head (shape, h);

      gather_head (shape, &head.q, args, &at->q, shape->dim, b, h);
      gather_head (shape, &head.dout, args, &at->dout, shape->v_dim, b, h);
      gather_head (shape, &head.out, args, &at->out, shape->v_dim, b, h);
      query_head_bwd (&of_head, &self->way, slope_of (shape, h), &head, lse);
      scatter_head (shape, args, &at->dq, shape->dim, b, h, head.dq);
    }
  scatter_head (shape, args, &at->dk, shape->dim, b, kv_head, head.dk);
  scatter_head (shape, args, &at->dv, shape->v_dim, b, kv_head, head.dv);
}

static void
attention_bwd_part (gpointer data, guint64 part, guint worker)
{
  const Spread *self = data;
  const guint64 end = MIN ((part + 1) * self->at_once, self->heads);

  for (guint64 of = part * self->at_once; of < end; of++)
    attention_bwd_head (self, of, worker);
}

void
exec_cpu_attend_bwd (const ExecArgs *args, const ExecCpuAttentionOperands *of)
{
  Spread self
      = { .args = args, .of = of, .shape = shape_of (args, of), .scratch = args->ptr[of->work] };
  const guint read[]
      = { of->q.operand, of->k.operand, of->v.operand, of->dout.operand, of->out.operand };
  const guint64 seq = self.shape.seq, copies = backward_room (&self.shape);

  self.way = way_of (&self.shape, format_of (args, read, G_N_ELEMENTS (read)));
  self.room = 2 * scores_room (&self.shape, &self.way) + copies;
  run_heads (&self, 2 * seq * seq + copies, attention_bwd_part);
}
