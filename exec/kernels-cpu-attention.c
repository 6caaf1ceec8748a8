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

/* Rows of scores become rows of probabilities: causal softmax of scale * score. */
static void
softmax (const Shape *shape, float *scores, float *lse)
{
  for (guint64 t = 0; t < shape->seq; t++)
    {
      float *row = scores + t * shape->seq;
      float max = -INFINITY, sum = 0;

      for (guint64 s = 0; s <= t; s++)
        {
          row[s] *= shape->scale;
          max = row[s] > max ? row[s] : max;
        }
      for (guint64 s = 0; s <= t; s++)
        {
          row[s] = expf (row[s] - max);
          sum += row[s];
        }
      for (guint64 s = 0; s <= t; s++)
        row[s] /= sum;
      memset (row + t + 1, 0, (shape->seq - t - 1) * sizeof *row);
      lse[t] = max + logf (sum);
    }
}

void
exec_cpu_attention (const ExecArgs *args)
{
  Shape shape = shape_of (args->op);
  guint64 image = shape.seq * shape.dim, group = shape.heads / shape.kv_heads;
  gint64 seq = (gint64)shape.seq, dim = (gint64)shape.dim;
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
        exec_gemm_fp32 (seq, seq, dim, 1, q, k, scores);
        softmax (&shape, scores, lse);
        exec_gemm_fp32 (seq, dim, seq, 0, scores, v, out);
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

/* From scores and the gradient of the probabilities to probabilities and the gradient of the
 * scores: ds = p * (dp - sum (dout * out)). */
static void
softmax_bwd (const Shape *shape, const Head *head, const float *lse)
{
  for (guint64 t = 0; t < shape->seq; t++)
    {
      float *prob = head->prob + t * shape->seq, *dprob = head->dprob + t * shape->seq;
      const float *out = head->out + t * shape->dim, *dout = head->dout + t * shape->dim;
      float dot = 0;

      for (guint64 i = 0; i < shape->dim; i++)
        dot += dout[i] * out[i];
      for (guint64 s = 0; s <= t; s++)
        {
          prob[s] = expf (prob[s] * shape->scale - lse[t]);
          dprob[s] = prob[s] * (dprob[s] - dot) * shape->scale;
        }
      memset (prob + t + 1, 0, (shape->seq - t - 1) * sizeof *prob);
      memset (dprob + t + 1, 0, (shape->seq - t - 1) * sizeof *dprob);
    }
}

static void
add_to (float *out, const float *in, guint64 count)
{
  for (guint64 i = 0; i < count; i++)
    out[i] += in[i];
}

/* Gradients of one query head: dq is set, dk and dv grow. Overwrites `out`. */
static void
query_head_bwd (const Shape *shape, const Head *head, const float *lse)
{
  gint64 seq = (gint64)shape->seq, dim = (gint64)shape->dim;
  guint64 image = shape->seq * shape->dim;

  exec_gemm_fp32 (seq, seq, dim, 1, head->q, head->k, head->prob);
  exec_gemm_fp32 (seq, seq, dim, 1, head->dout, head->v, head->dprob);
  softmax_bwd (shape, head, lse);
  exec_gemm_fp32 (seq, dim, seq, 0, head->dprob, head->k, head->dq);
  exec_gemm_fp32 (seq, dim, seq, 2, head->dprob, head->q, head->out);
  add_to (head->dk, head->out, image);
  exec_gemm_fp32 (seq, dim, seq, 2, head->prob, head->dout, head->out);
  add_to (head->dv, head->out, image);
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
