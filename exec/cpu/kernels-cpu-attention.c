/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/cpu/kernels-cpu-private.h"
#include "exec/cpu/pool.h"
#include "exec/number/number.h"
#include "planner/model/alibi.h"

#include <math.h>
#include <string.h>

/* A row of qkv has the query heads, then the key heads, then the value heads. The size of the
 * scratch is computed in planner/schedule/scratch.c. */

#define PAIRS 64 /* pairs rotated at once */

typedef struct
{
  guint64 batch, seq, heads, kv_heads, dim;
  guint64 window;       /* most keys that a query sees */
  const gint32 *places; /* of all tokens in their documents; NULL: each sequence is one document */
  float scale, cap;
  gboolean has_slopes;          /* ALiBi: scores fall with distance */
  gint64 first_head, all_heads; /* number of the first head here; of heads on all ranks */
} Shape;

PLAN_SAME_DIM (ATTENTION, ATTENTION_BWD, batch);
PLAN_SAME_DIM (ATTENTION, ATTENTION_BWD, seq);
PLAN_SAME_DIM (ATTENTION, ATTENTION_BWD, heads);
PLAN_SAME_DIM (ATTENTION, ATTENTION_BWD, kv_heads);
PLAN_SAME_DIM (ATTENTION, ATTENTION_BWD, head_dim);

static Shape
shape_of (const ExecArgs *args, guint places)
{
  const PlanOp *op = args->op;
  const gint64 window = (gint64)exec_manner (args, PLAN_MANNER_WINDOW);
  const double scalar = exec_manner (args, PLAN_MANNER_SCALAR),
               whole = exec_manner (args, PLAN_MANNER_WHOLE);
  return (Shape){
    .batch = (guint64)op->dims[PLAN_DIM_ATTENTION_batch],
    .seq = (guint64)op->dims[PLAN_DIM_ATTENTION_seq],
    .heads = (guint64)op->dims[PLAN_DIM_ATTENTION_heads],
    .kv_heads = (guint64)op->dims[PLAN_DIM_ATTENTION_kv_heads],
    .dim = (guint64)op->dims[PLAN_DIM_ATTENTION_head_dim],
    .window = window > 0 ? (guint64)window : (guint64)op->dims[PLAN_DIM_ATTENTION_seq],
    .places = args->ptr[places],
    .scale
    = (float)(1 / sqrt (scalar > 0 ? scalar : (double)op->dims[PLAN_DIM_ATTENTION_head_dim])),
    .cap = (float)exec_manner (args, PLAN_MANNER_CAP),
    .has_slopes = exec_manner (args, PLAN_MANNER_ALIBI) != 0,
    .first_head = (gint64)exec_manner (args, PLAN_MANNER_FIRST),
    .all_heads = whole > 0 ? (gint64)whole : op->dims[PLAN_DIM_ATTENTION_heads],
  };
}

/* Elements in a row of qkv. */
static guint64
qkv_width (const Shape *shape)
{
  return (shape->heads + 2 * shape->kv_heads) * shape->dim;
}

/* A matrix of one head of one sequence: in fp32, or in bf16 as the sum of `upper` and `lower`,
 * where `lower` is NULL if it would be zero. */
typedef struct
{
  float *wide;
  guint16 *upper, *lower;
} Matrix;

/* How attention is computed. Queries are taken in runs; each run is multiplied with the keys from
 * the first one that its first query sees to its own last one, since other keys have no weight.
 * Where the processor multiplies bf16, scores and their gradients are split into two bf16 numbers;
 * the part that is lost is 2^-17 of them, little beside the rounding of the result. */
typedef struct
{
  guint64 queries; /* queries of a run */
  gboolean splits;
} Way;

#define QUERIES 128
#define LEAST_QUERIES 32

/* Chooses the way. Where scores are split, the scratch that is sized for the scores of all queries
 * must hold those of a run and their lower halves. */
static Way
way_of (const Shape *shape, PlanDtype dtype)
{
  if (dtype == PLAN_DTYPE_BF16 && exec_gemm_bf16_open ())
    for (guint64 queries = QUERIES; queries >= LEAST_QUERIES; queries /= 2)
      if (queries * 3 / 2 <= shape->seq)
        return (Way){ queries, TRUE };
  return (Way){ QUERIES, FALSE };
}

typedef struct
{
  gint64 first, rows;    /* queries */
  gint64 from_key, keys; /* from the first that a query of the run sees to the run's last */
} Run;

#define KEYS_TOGETHER 32 /* from_key is a multiple of it: few sizes of GEMMs occur */

/* The first key that a query sees. It never decreases from one query to the next. */
static guint64
first_seen (const Shape *shape, guint64 query)
{
  const guint64 of_window = query + 1 > shape->window ? query + 1 - shape->window : 0;

  return shape->places != NULL ? MAX (of_window, query - (guint64)shape->places[query]) : of_window;
}

static Run
run_from (const Shape *shape, const Way *way, guint64 first)
{
  const guint64 end = MIN (first + way->queries, shape->seq);
  const guint64 from_key = first_seen (shape, first) / KEYS_TOGETHER * KEYS_TOGETHER;

  return (Run){ (gint64)first, (gint64)(end - first), (gint64)from_key, (gint64)(end - from_key) };
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
  const guint64 begin = first_seen (shape, query) - from_key, end = query + 1 - from_key;

  return (Seen){ begin, end - begin, (guint64)run->keys - end };
}

static void
clear_unseen (float *row, const Seen *seen)
{
  memset (row, 0, seen->begin * sizeof *row);
  memset (row + seen->begin + seen->count, 0, seen->behind * sizeof *row);
}

/* Memory for a [seq, dim] matrix of an operand: in bf16 if scores are split. Sums are always in
 * fp32. */
static Matrix
image_at (const Way *way, float *memory)
{
  return way->splits ? (Matrix){ .upper = (guint16 *)memory } : (Matrix){ .wide = memory };
}

static Matrix
from_row (const Shape *shape, const Matrix *self, guint64 row)
{
  const guint64 at = row * shape->dim;

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

/* Copies one head of one sequence out of rows of `width` elements. */
static void
gather_head (const Shape *shape, const Matrix *out, const ExecArgs *args, guint operand,
             guint64 width, guint64 sequence, guint64 head)
{
  for (guint64 t = 0; t < shape->seq; t++)
    {
      const guint64 at = (sequence * shape->seq + t) * width + head * shape->dim;

      if (out->wide == NULL)
        {
          memcpy (out->upper + t * shape->dim, (const guint16 *)args->ptr[operand] + at,
                  shape->dim * sizeof *out->upper);
          continue;
        }
      float *row = out->wide + t * shape->dim;
      const float *in = exec_cpu_read_ref (args, operand, at, shape->dim, row);

      if (in != row)
        memcpy (row, in, shape->dim * sizeof *row);
    }
}

static void
scatter_head (const Shape *shape, const ExecArgs *args, guint operand, guint64 width,
              guint64 sequence, guint64 head, const float *in)
{
  for (guint64 t = 0; t < shape->seq; t++)
    {
      guint64 at = (sequence * shape->seq + t) * width + head * shape->dim;

      exec_cpu_write_ref (args, operand, at, shape->dim, in + t * shape->dim);
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
multiply (const Scores *rooms, const gint64 size[3], int layout, const Matrix *a, const Matrix *b,
          gboolean adds, float *out)
{
  if (b->wide != NULL)
    {
      exec_gemm_fp32 (size[0], size[1], size[2], layout, a->wide, b->wide,
                      adds ? rooms->product : out);
      if (adds)
        add_to (out, rooms->product, (guint64)(size[0] * size[1]));
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

/* Subtracts the slope times the distance. The last score is that of the query's own token. */
static void
add_slope (float *scores, guint64 count, float slope)
{
  for (guint64 i = 0; i < count; i++)
    scores[i] -= slope * (float)(count - 1 - i);
}

/* Turns scores into probabilities, row by row, by the causal softmax of scale * score. */
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
          add_slope (from, seen.count, slope);
        }
      float max = exec_cpu_largest (from, seen.count) * scale;

      exec_cpu_exp_row (from, from, seen.count, scale, max, lanes);
      float sum = exec_cpu_total (lanes);
      exec_cpu_divide_row (from, seen.count, sum);
      clear_unseen (row, &seen);
      lse[run->first + i] = max + logf (sum);
    }
}

/* The forward pass of one query head of one sequence. */
static void
query_head (const Shape *shape, const Way *way, float slope, const Scores *scores,
            const Matrix image[3], float *lse, float *out)
{
  const gint64 dim = (gint64)shape->dim;

  for (guint64 first = 0; first < shape->seq; first += way->queries)
    {
      const Run run = run_from (shape, way, first);
      const Matrix q = from_row (shape, &image[0], first);
      const Matrix k = from_row (shape, &image[1], (guint64)run.from_key),
                   v = from_row (shape, &image[2], (guint64)run.from_key);

      multiply (scores, (gint64[]){ run.rows, run.keys, dim }, 1, &q, &k, FALSE, scores->wide);
      softmax (shape, &run, slope, scores->wide, lse);
      const Matrix prob = split (way, scores, (guint64)(run.rows * run.keys));
      multiply (scores, (gint64[]){ run.rows, dim, run.keys }, 0, &prob, &v, FALSE,
                out + first * shape->dim);
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
  Shape shape;
  Way way;
  float *scratch, *beside;
  /* Floats that a thread needs; for how many threads the scratch has them. */
  guint64 room, in_scratch;
  guint64 heads, at_once; /* key heads: of all sequences; of a part */
} Heads;

static guint64
scores_room (const Shape *shape, const Way *way)
{
  const guint64 count = MIN (way->queries, shape->seq) * shape->seq;

  return way->splits ? count * 3 / 2 : count;
}

static float *
room_of (const Heads *self, guint worker)
{
  return worker < self->in_scratch ? self->scratch + worker * self->room
                                   : self->beside + (worker - self->in_scratch) * self->room;
}

static void
run_heads (Heads *self, guint64 scratch, ExecPoolPart run)
{
  const Shape *shape = &self->shape;
  const guint threads = exec_pool_threads ();
  const guint64 products = shape->seq * shape->seq * shape->dim * (shape->heads / shape->kv_heads);
  guint workers;

  self->in_scratch = MAX (scratch / self->room, 1);
  workers = (guint)MIN (threads, self->in_scratch);
  if (workers < threads && self->room * sizeof (float) <= ROOM_BYTES)
    {
      self->beside = exec_pool_rooms (self->room * sizeof (float));
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
  return self;
}

static void
attention_head (const Heads *self, guint64 of, guint worker)
{
  const Shape own = in_sequence (&self->shape, of / self->shape.kv_heads);
  const Shape *shape = &own;
  const ExecArgs *args = self->args;
  const guint64 size = shape->seq * shape->dim, group = shape->heads / shape->kv_heads;
  const guint64 b = of / shape->kv_heads, kv_head = of % shape->kv_heads;
  const guint64 key = shape->heads + kv_head;
  float *work = room_of (self, worker), *images = work + scores_room (shape, &self->way),
        *out = images + 3 * size;
  const Scores scores = scores_at (shape, &self->way, work, NULL);
  const Matrix image[] = { image_at (&self->way, images), image_at (&self->way, images + size),
                           image_at (&self->way, images + 2 * size) }; /* q, k, v */

  for (guint i = 1; i < 3; i++)
    gather_head (shape, &image[i], args, PLAN_REF_ATTENTION_qkv, qkv_width (shape), b,
                 key + (i - 1) * shape->kv_heads);
  for (guint64 head = kv_head * group; head < (kv_head + 1) * group; head++)
    {
      float *lse
          = (float *)args->ptr[PLAN_REF_ATTENTION_lse] + (b * shape->heads + head) * shape->seq;

      gather_head (shape, &image[0], args, PLAN_REF_ATTENTION_qkv, qkv_width (shape), b, head);
      query_head (shape, &self->way, slope_of (shape, head), &scores, image, lse, out);
      scatter_head (shape, args, PLAN_REF_ATTENTION_out, shape->heads * shape->dim, b, head, out);
    }
}

static void
attention_part (gpointer data, guint64 part, guint worker)
{
  const Heads *self = data;
  const guint64 end = MIN ((part + 1) * self->at_once, self->heads);

  for (guint64 of = part * self->at_once; of < end; of++)
    attention_head (self, of, worker);
}

void
exec_cpu_attention (const ExecArgs *args)
{
  Heads self = { .args = args,
                 .shape = shape_of (args, PLAN_REF_ATTENTION_places),
                 .scratch = args->ptr[PLAN_REF_ATTENTION_work] };
  const guint64 seq = self.shape.seq, images = 4 * seq * self.shape.dim;

  self.way = way_of (&self.shape, args->dtype[PLAN_REF_ATTENTION_qkv]);
  self.room = scores_room (&self.shape, &self.way) + images;
  run_heads (&self, seq * seq + images, attention_part);
}

/* The scratch of the backward pass for one head. Products that are added lie where `out` does: they
 * have a row for each key that the run sees, and later runs do not read those rows of `out` any
 * more. */
typedef struct
{
  Scores prob, dprob;
  Matrix q, k, v, out, dout; /* [seq, dim] */
  float *dq, *dk, *dv;
} Head;

static Head
head_of (const Shape *shape, const Way *way, float *work)
{
  guint64 square = scores_room (shape, way), image = shape->seq * shape->dim;
  float *images = work + 2 * square;

  return (Head){
    .prob = scores_at (shape, way, work, images + 3 * image),
    .dprob = scores_at (shape, way, work + square, NULL),
    .q = image_at (way, images),
    .k = image_at (way, images + image),
    .v = image_at (way, images + 2 * image),
    .out = image_at (way, images + 3 * image),
    .dout = image_at (way, images + 4 * image),
    .dq = images + 5 * image,
    .dk = images + 6 * image,
    .dv = images + 7 * image,
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
weigh_row (const Shape *shape, const Head *head, guint64 row)
{
  float lanes[EXEC_CPU_LANES] = { 0 }, dout_storage[EXEC_CPU_BLOCK], storage[EXEC_CPU_BLOCK];

  for (guint64 at = 0; at < shape->dim; at += EXEC_CPU_BLOCK)
    {
      const guint64 n = MIN (EXEC_CPU_BLOCK, shape->dim - at), from = row * shape->dim + at;

      exec_cpu_add_products (lanes, read_matrix (&head->dout, from, n, dout_storage),
                             read_matrix (&head->out, from, n, storage), n);
    }
  return exec_cpu_total (lanes);
}

/* The derivative of capped scores. Caps the scores as the forward pass did; the gradient of capped
 * scores, less `dot`, becomes that of uncapped ones: it is multiplied by 1 - tanh^2. */
static void
bend_scores_bwd (const Shape *shape, float *scores, float *dprob, guint64 count, float dot,
                 float slope)
{
  cap_scores (shape, scores, count);
  for (guint64 i = 0; i < count; i++)
    {
      const float share = shape->cap > 0 ? scores[i] / shape->cap : 0;

      dprob[i] = (dprob[i] - dot) * (1 - share * share);
    }
  add_slope (scores, count, slope);
}

/* Turns scores into probabilities and the gradient of probabilities into that of scores: ds = p *
 * (dp - sum (dout * out)). */
static void
softmax_bwd (const Shape *shape, const Run *run, float slope, const Head *head, const float *lse)
{
  const float scale = is_bent (shape) ? 1 : shape->scale;

  for (gint64 i = 0; i < run->rows; i++)
    {
      const guint64 t = (guint64)(run->first + i);
      const Seen seen = seen_in_row (shape, run, i);
      float *prob = head->prob.wide + i * run->keys, *dprob = head->dprob.wide + i * run->keys;
      float unused[EXEC_CPU_LANES] = { 0 }, dot = weigh_row (shape, head, t);

      if (is_bent (shape))
        {
          bend_scores_bwd (shape, prob + seen.begin, dprob + seen.begin, seen.count, dot, slope);
          dot = 0;
        }
      exec_cpu_exp_row (prob + seen.begin, prob + seen.begin, seen.count, scale, lse[t], unused);
      scale_gradients (dprob + seen.begin, prob + seen.begin, seen.count, dot, shape->scale);
      clear_unseen (prob, &seen);
      clear_unseen (dprob, &seen);
    }
}

/* The backward pass of one query head: sets dq, adds to dk and dv. */
static void
query_head_bwd (const Shape *shape, const Way *way, float slope, const Head *head, const float *lse)
{
  const gint64 dim = (gint64)shape->dim;

  for (guint64 first = 0; first < shape->seq; first += way->queries)
    {
      const Run run = run_from (shape, way, first);
      const gint64 to_scores[] = { run.rows, run.keys, dim };
      const gint64 to_queries[] = { run.rows, dim, run.keys },
                   to_keys[] = { run.keys, dim, run.rows };
      const Matrix q = from_row (shape, &head->q, first),
                   dout = from_row (shape, &head->dout, first);
      const guint64 from_key = (guint64)run.from_key, at = from_key * shape->dim;
      const Matrix k = from_row (shape, &head->k, from_key),
                   v = from_row (shape, &head->v, from_key);

      multiply (&head->prob, to_scores, 1, &q, &k, FALSE, head->prob.wide);
      multiply (&head->prob, to_scores, 1, &dout, &v, FALSE, head->dprob.wide);
      softmax_bwd (shape, &run, slope, head, lse);
      const Matrix prob = split (way, &head->prob, (guint64)(run.rows * run.keys));
      const Matrix dprob = split (way, &head->dprob, (guint64)(run.rows * run.keys));
      multiply (&head->prob, to_queries, 0, &dprob, &k, FALSE, head->dq + first * shape->dim);
      multiply (&head->prob, to_keys, 2, &dprob, &q, TRUE, head->dk + at);
      multiply (&head->prob, to_keys, 2, &prob, &dout, TRUE, head->dv + at);
    }
}

static void
attention_bwd_head (const Heads *self, guint64 of, guint worker)
{
  const Shape own = in_sequence (&self->shape, of / self->shape.kv_heads);
  const Shape *shape = &own;
  const ExecArgs *args = self->args;
  Head head = head_of (shape, &self->way, room_of (self, worker));
  const guint64 image_bytes = shape->seq * shape->dim * sizeof (float);
  const guint64 width = qkv_width (shape), out_width = shape->heads * shape->dim;
  const guint64 group = shape->heads / shape->kv_heads;
  const guint64 b = of / shape->kv_heads, kv_head = of % shape->kv_heads;
  const guint64 key = shape->heads + kv_head, value = key + shape->kv_heads;

  gather_head (shape, &head.k, args, PLAN_REF_ATTENTION_BWD_qkv, width, b, key);
  gather_head (shape, &head.v, args, PLAN_REF_ATTENTION_BWD_qkv, width, b, value);
  memset (head.dk, 0, image_bytes);
  memset (head.dv, 0, image_bytes);
  for (guint64 h = kv_head * group; h < (kv_head + 1) * group; h++)
    {
      const float *lse = (const float *)args->ptr[PLAN_REF_ATTENTION_BWD_lse]
                         + (b * shape->heads + h) * shape->seq;

      gather_head (shape, &head.q, args, PLAN_REF_ATTENTION_BWD_qkv, width, b, h);
      gather_head (shape, &head.dout, args, PLAN_REF_ATTENTION_BWD_dout, out_width, b, h);
      gather_head (shape, &head.out, args, PLAN_REF_ATTENTION_BWD_out, out_width, b, h);
      query_head_bwd (shape, &self->way, slope_of (shape, h), &head, lse);
      scatter_head (shape, args, PLAN_REF_ATTENTION_BWD_dqkv, width, b, h, head.dq);
    }
  scatter_head (shape, args, PLAN_REF_ATTENTION_BWD_dqkv, width, b, key, head.dk);
  scatter_head (shape, args, PLAN_REF_ATTENTION_BWD_dqkv, width, b, value, head.dv);
}

static void
attention_bwd_part (gpointer data, guint64 part, guint worker)
{
  const Heads *self = data;
  const guint64 end = MIN ((part + 1) * self->at_once, self->heads);

  for (guint64 of = part * self->at_once; of < end; of++)
    attention_bwd_head (self, of, worker);
}

void
exec_cpu_attention_bwd (const ExecArgs *args)
{
  Heads self = { .args = args,
                 .shape = shape_of (args, PLAN_REF_ATTENTION_BWD_places),
                 .scratch = args->ptr[PLAN_REF_ATTENTION_BWD_work] };
  const PlanDtype dtype = args->dtype[PLAN_REF_ATTENTION_BWD_qkv];
  const gboolean is_even = args->dtype[PLAN_REF_ATTENTION_BWD_dout] == dtype
                           && args->dtype[PLAN_REF_ATTENTION_BWD_out] == dtype;
  const guint64 seq = self.shape.seq, images = 8 * seq * self.shape.dim;

  self.way = way_of (&self.shape, is_even ? dtype : PLAN_DTYPE_FP32);
  self.room = 2 * scores_room (&self.shape, &self.way) + images;
  run_heads (&self, 2 * seq * seq + images, attention_bwd_part);
}

/* Rotates `count` pairs (i, i + half) of one head, from pair `from` on. */
static void
rotate (void *array, PlanDtype dtype, guint64 at, guint64 from, guint64 count, guint64 half,
        const float *cosine, const float *sine)
{
  float a_storage[PAIRS], b_storage[PAIRS], a_out[PAIRS], b_out[PAIRS];
  const float *a = exec_cpu_read (array, dtype, at + from, count, a_storage);
  const float *b = exec_cpu_read (array, dtype, at + half + from, count, b_storage);

  for (guint64 i = 0; i < count; i++)
    {
      a_out[i] = a[i] * cosine[i] - b[i] * sine[i];
      b_out[i] = b[i] * cosine[i] + a[i] * sine[i];
    }
  exec_cpu_write (array, dtype, at + from, count, a_out);
  exec_cpu_write (array, dtype, at + half + from, count, b_out);
}

static void
rope_rows (const ExecArgs *args, guint64 first, guint64 end)
{
  const gint64 *dims = args->op->dims;
  const gint32 *places = args->ptr[PLAN_REF_ROPE_places];
  guint64 seq = (guint64)dims[PLAN_DIM_ROPE_seq], dim = (guint64)dims[PLAN_DIM_ROPE_head_dim];
  const guint64 said = (guint64)exec_manner (args, PLAN_MANNER_TURNED);
  const guint64 turned = said > 0 ? said : dim, half = turned / 2;
  guint64 rotated = (guint64)(dims[PLAN_DIM_ROPE_heads] + dims[PLAN_DIM_ROPE_kv_heads]),
          width = (rotated + (guint64)dims[PLAN_DIM_ROPE_kv_heads]) * dim;
  double frequency[PAIRS], direction = dims[PLAN_DIM_ROPE_inverse] != 0 ? -1 : 1;
  const PlanRope rope = exec_rope (args);
  double magnitude = plan_rope_magnitude (&rope);
  float cosine[PAIRS], sine[PAIRS];

  for (guint64 from = 0; from < half; from += PAIRS)
    {
      guint64 count = MIN (PAIRS, half - from);

      for (guint64 i = 0; i < count; i++)
        frequency[i] = direction * plan_rope_frequency (&rope, from + i, turned, seq);
      for (guint64 row = first; row < end; row++)
        {
          for (guint64 i = 0; i < count; i++)
            {
              double angle
                  = (double)(places != NULL ? (guint64)places[row] : row % seq) * frequency[i];

              cosine[i] = (float)(magnitude * cos (angle));
              sine[i] = (float)(magnitude * sin (angle));
            }
          for (guint64 head = 0; head < rotated; head++)
            rotate (args->ptr[PLAN_REF_ROPE_qkv], args->dtype[PLAN_REF_ROPE_qkv],
                    row * width + head * dim, from, count, half, cosine, sine);
        }
    }
}

void
exec_cpu_rope (const ExecArgs *args)
{
  const gint64 *dims = args->op->dims;
  const gint64 heads = dims[PLAN_DIM_ROPE_heads] + 2 * dims[PLAN_DIM_ROPE_kv_heads];

  exec_cpu_spread (args, (guint64)dims[PLAN_DIM_ROPE_rows],
                   (guint64)(heads * dims[PLAN_DIM_ROPE_head_dim]), rope_rows);
}
