/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/kernels-cpu-private.h"

#include <math.h>
#include <string.h>

/* Rows of qkv hold the query heads, then the key heads, then the value heads. Scratch is that of
 * planner/scratch.c. */

#define PAIRS 64 /* rotated at once */

typedef struct
{
  guint64 batch, seq, heads, kv_heads, dim;
  float scale;
} Shape;

static Shape
shape_of (const PlanOp *op)
{
  return (Shape){
    .batch = (guint64)op->dims[0],
    .seq = (guint64)op->dims[1],
    .heads = (guint64)op->dims[2],
    .kv_heads = (guint64)op->dims[3],
    .dim = (guint64)op->dims[4],
    .scale = (float)(1 / sqrt ((double)op->dims[4])),
  };
}

/* Elements of a row of qkv. */
static guint64
qkv_width (const Shape *shape)
{
  return (shape->heads + 2 * shape->kv_heads) * shape->dim;
}

/* One head of one sequence out of rows of `width` elements, as [seq, dim] in fp32. */
static void
gather_head (const Shape *shape, float *out, const void *array, PlanDtype dtype, guint64 width,
             guint64 sequence, guint64 head)
{
  for (guint64 t = 0; t < shape->seq; t++)
    {
      guint64 at = (sequence * shape->seq + t) * width + head * shape->dim;
      float *row = out + t * shape->dim;
      const float *in = exec_cpu_read (array, dtype, at, shape->dim, row);

      if (in != row)
        memcpy (row, in, shape->dim * sizeof *row);
    }
}

static void
scatter_head (const Shape *shape, void *array, PlanDtype dtype, guint64 width, guint64 sequence,
              guint64 head, const float *in)
{
  for (guint64 t = 0; t < shape->seq; t++)
    {
      guint64 at = (sequence * shape->seq + t) * width + head * shape->dim;

      exec_cpu_write (array, dtype, at, shape->dim, in + t * shape->dim);
    }
}

/* Queries are taken in runs of so many, each with the keys up to its last one: what comes later has
 * no weight. */
#define RUN 128

typedef struct
{
  gint64 first, rows; /* queries */
  gint64 keys;        /* that the last of them sees */
} Run;

static Run
run_from (const Shape *shape, guint64 first)
{
  guint64 end = MIN (first + RUN, shape->seq);

  return (Run){ (gint64)first, (gint64)(end - first), (gint64)end };
}

/* Rows of scores become rows of probabilities: causal softmax of scale * score. */
static void
softmax (const Shape *shape, const Run *run, float *scores, float *lse)
{
  for (gint64 i = 0; i < run->rows; i++)
    {
      guint64 seen = (guint64)(run->first + i + 1);
      float *row = scores + i * run->keys, lanes[EXEC_CPU_LANES] = { 0 };
      float max = exec_cpu_largest (row, seen) * shape->scale;

      exec_cpu_exp_row (row, row, seen, shape->scale, max, lanes);
      float sum = exec_cpu_total (lanes);
      exec_cpu_divide_row (row, seen, sum);
      memset (row + seen, 0, ((guint64)run->keys - seen) * sizeof *row);
      lse[run->first + i] = max + logf (sum);
    }
}

void
exec_cpu_attention (const ExecArgs *args)
{
  Shape shape = shape_of (args->op);
  guint64 image = shape.seq * shape.dim, group = shape.heads / shape.kv_heads;
  gint64 dim = (gint64)shape.dim;
  float *scores = args->ptr[3], *q = scores + shape.seq * shape.seq;
  float *k = q + image, *v = k + image, *out = v + image;

  for (guint64 b = 0; b < shape.batch; b++)
    for (guint64 head = 0; head < shape.heads; head++)
      {
        guint64 key = shape.heads + head / group, value = key + shape.kv_heads;
        float *lse = (float *)args->ptr[1] + (b * shape.heads + head) * shape.seq;

        gather_head (&shape, q, args->ptr[2], args->dtype[2], qkv_width (&shape), b, head);
        if (head % group == 0)
          {
            gather_head (&shape, k, args->ptr[2], args->dtype[2], qkv_width (&shape), b, key);
            gather_head (&shape, v, args->ptr[2], args->dtype[2], qkv_width (&shape), b, value);
          }
        for (guint64 first = 0; first < shape.seq; first += RUN)
          {
            Run run = run_from (&shape, first);

            exec_gemm_fp32 (run.rows, run.keys, dim, 1, q + first * shape.dim, k, scores);
            softmax (&shape, &run, scores, lse);
            exec_gemm_fp32 (run.rows, dim, run.keys, 0, scores, v, out + first * shape.dim);
          }
        scatter_head (&shape, args->ptr[0], args->dtype[0], shape.heads * shape.dim, b, head, out);
      }
}

/* The scratch of the backward pass. */
typedef struct
{
  float *prob, *dprob;           /* [seq, seq] */
  float *q, *k, *v, *out, *dout; /* [seq, dim] */
  float *dq, *dk, *dv;
} Head;

static Head
head_of (const Shape *shape, float *work)
{
  guint64 square = shape->seq * shape->seq, image = shape->seq * shape->dim;
  float *images = work + 2 * square;

  return (Head){
    .prob = work,
    .dprob = work + square,
    .q = images,
    .k = images + image,
    .v = images + 2 * image,
    .out = images + 3 * image,
    .dout = images + 4 * image,
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

/* From scores and the gradient of the probabilities to probabilities and the gradient of the
 * scores: ds = p * (dp - sum (dout * out)). */
static void
softmax_bwd (const Shape *shape, const Run *run, const Head *head, const float *lse)
{
  for (gint64 i = 0; i < run->rows; i++)
    {
      guint64 t = (guint64)(run->first + i), seen = t + 1, unseen = (guint64)run->keys - seen;
      float *prob = head->prob + i * run->keys, *dprob = head->dprob + i * run->keys;
      float lanes[EXEC_CPU_LANES] = { 0 }, unused[EXEC_CPU_LANES] = { 0 };

      exec_cpu_add_products (lanes, head->dout + t * shape->dim, head->out + t * shape->dim,
                             shape->dim);
      exec_cpu_exp_row (prob, prob, seen, shape->scale, lse[t], unused);
      scale_gradients (dprob, prob, seen, exec_cpu_total (lanes), shape->scale);
      memset (prob + seen, 0, unseen * sizeof *prob);
      memset (dprob + seen, 0, unseen * sizeof *dprob);
    }
}

static EXEC_WIDE void
add_to (float *restrict out, const float *restrict in, guint64 count)
{
  for (guint64 i = 0; i < count; i++)
    out[i] += in[i];
}

/* Gradients of one query head: dq is set, dk and dv grow. Overwrites `out`, of a run what is of
 * keys that it sees: later ones do not read that any more. */
static void
query_head_bwd (const Shape *shape, const Head *head, const float *lse)
{
  gint64 dim = (gint64)shape->dim;

  for (guint64 first = 0; first < shape->seq; first += RUN)
    {
      Run run = run_from (shape, first);
      guint64 from = first * shape->dim, seen = (guint64)run.keys * shape->dim;
      const float *q = head->q + from, *dout = head->dout + from;

      exec_gemm_fp32 (run.rows, run.keys, dim, 1, q, head->k, head->prob);
      exec_gemm_fp32 (run.rows, run.keys, dim, 1, dout, head->v, head->dprob);
      softmax_bwd (shape, &run, head, lse);
      exec_gemm_fp32 (run.rows, dim, run.keys, 0, head->dprob, head->k, head->dq + from);
      exec_gemm_fp32 (run.keys, dim, run.rows, 2, head->dprob, q, head->out);
      add_to (head->dk, head->out, seen);
      exec_gemm_fp32 (run.keys, dim, run.rows, 2, head->prob, dout, head->out);
      add_to (head->dv, head->out, seen);
    }
}

void
exec_cpu_attention_bwd (const ExecArgs *args)
{
  Shape shape = shape_of (args->op);
  Head head = head_of (&shape, args->ptr[5]);
  guint64 image_bytes = shape.seq * shape.dim * sizeof (float);
  guint64 width = qkv_width (&shape), out_width = shape.heads * shape.dim;
  guint64 group = shape.heads / shape.kv_heads;

  for (guint64 b = 0; b < shape.batch; b++)
    for (guint64 h = 0; h < shape.heads; h++)
      {
        guint64 key = shape.heads + h / group, value = key + shape.kv_heads;
        const float *lse = (const float *)args->ptr[3] + (b * shape.heads + h) * shape.seq;

        if (h % group == 0)
          {
            gather_head (&shape, head.k, args->ptr[4], args->dtype[4], width, b, key);
            gather_head (&shape, head.v, args->ptr[4], args->dtype[4], width, b, value);
            memset (head.dk, 0, image_bytes);
            memset (head.dv, 0, image_bytes);
          }
        gather_head (&shape, head.q, args->ptr[4], args->dtype[4], width, b, h);
        gather_head (&shape, head.dout, args->ptr[1], args->dtype[1], out_width, b, h);
        gather_head (&shape, head.out, args->ptr[2], args->dtype[2], out_width, b, h);
        query_head_bwd (&shape, &head, lse);
        scatter_head (&shape, args->ptr[0], args->dtype[0], width, b, h, head.dq);
        if (h % group == group - 1)
          {
            scatter_head (&shape, args->ptr[0], args->dtype[0], width, b, key, head.dk);
            scatter_head (&shape, args->ptr[0], args->dtype[0], width, b, value, head.dv);
          }
      }
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

void
exec_cpu_rope (const ExecArgs *args)
{
  const gint64 *dims = args->op->dims;
  guint64 rows = (guint64)dims[0], seq = (guint64)dims[1], dim = (guint64)dims[4], half = dim / 2;
  guint64 rotated = (guint64)(dims[2] + dims[3]), width = (rotated + (guint64)dims[3]) * dim;
  double frequency[PAIRS], direction = dims[5] != 0 ? -1 : 1;
  float cosine[PAIRS], sine[PAIRS];

  for (guint64 from = 0; from < half; from += PAIRS)
    {
      guint64 count = MIN (PAIRS, half - from);

      for (guint64 i = 0; i < count; i++)
        frequency[i] = direction
                       * pow (args->constants->rope_theta, -2.0 * (double)(from + i) / (double)dim);
      for (guint64 row = 0; row < rows; row++)
        {
          for (guint64 i = 0; i < count; i++)
            {
              double angle = (double)(row % seq) * frequency[i];

              cosine[i] = (float)cos (angle);
              sine[i] = (float)sin (angle);
            }
          for (guint64 head = 0; head < rotated; head++)
            rotate (args->ptr[0], args->dtype[0], row * width + head * dim, from, count, half,
                    cosine, sine);
        }
    }
}
