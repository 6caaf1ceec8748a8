/* SPDX-License-Identifier: Apache-2.0 */
/* The ops of attention. A row of qkv has the query heads, then the key heads, then the value heads;
 * in latent attention these are three operands, and values have a width of their own. */
#include "config.h"

#include "exec/cpu/kernels-cpu-attention.h"

#include "exec/cpu/attend.h"
#include "exec/cpu/kernels-cpu-private.h"

#include <math.h>

PLAN_SAME_DIM (ATTENTION, ATTENTION_BWD, batch);
PLAN_SAME_DIM (ATTENTION, ATTENTION_BWD, seq);
PLAN_SAME_DIM (ATTENTION, ATTENTION_BWD, heads);
PLAN_SAME_DIM (ATTENTION, ATTENTION_BWD, kv_heads);
PLAN_SAME_DIM (ATTENTION, ATTENTION_BWD, head_dim);
PLAN_SAME_DIM (ATTENTION, LATENT_ATTENTION, batch);
PLAN_SAME_DIM (ATTENTION, LATENT_ATTENTION, seq);
PLAN_SAME_DIM (ATTENTION, LATENT_ATTENTION, heads);
PLAN_SAME_DIM (LATENT_ATTENTION, LATENT_ATTENTION_BWD, heads);
PLAN_SAME_DIM (LATENT_ATTENTION, LATENT_ATTENTION_BWD, head_dim);
PLAN_SAME_DIM (LATENT_ATTENTION, LATENT_ATTENTION_BWD, v_dim);

/* The heads in an operand whose rows have nothing else, each of the size that dim number `width`
 * gives. */
static ExecCpuHeads
heads_of (const ExecArgs *args, guint operand, guint width)
{
  const gint64 *dims = args->op->dims;

  return (ExecCpuHeads){ operand, (guint64)(dims[PLAN_DIM_ATTENTION_heads] * dims[width]), 0 };
}

/* Query (0), key (1), or value heads in rows that hold all of them. */
static ExecCpuHeads
heads_in_qkv (const ExecArgs *args, guint operand, guint which)
{
  const guint64 heads = (guint64)args->op->dims[PLAN_DIM_ATTENTION_heads],
                kv_heads = (guint64)args->op->dims[PLAN_DIM_ATTENTION_kv_heads],
                dim = (guint64)args->op->dims[PLAN_DIM_ATTENTION_head_dim];

  return (ExecCpuHeads){ operand, (heads + 2 * kv_heads) * dim,
                         which > 0 ? (heads + (which - 1) * kv_heads) * dim : 0 };
}

/* The key heads: in the operand `apart` if it is given, with keys and values of another rank,
 * otherwise beside this rank's queries. */
static ExecCpuHeads
keys_of (const ExecArgs *args, guint with_queries, guint apart)
{
  const guint64 width = (guint64)(args->op->dims[PLAN_DIM_ATTENTION_kv_heads]
                                  * args->op->dims[PLAN_DIM_ATTENTION_head_dim]);

  return args->ptr[apart] != NULL ? (ExecCpuHeads){ apart, 2 * width, 0 }
                                  : heads_in_qkv (args, with_queries, 1);
}

static ExecCpuHeads
values_of (const ExecArgs *args, guint with_queries, guint apart)
{
  const guint64 width = (guint64)(args->op->dims[PLAN_DIM_ATTENTION_kv_heads]
                                  * args->op->dims[PLAN_DIM_ATTENTION_head_dim]);

  return args->ptr[apart] != NULL ? (ExecCpuHeads){ apart, 2 * width, width }
                                  : heads_in_qkv (args, with_queries, 2);
}

void
exec_cpu_attention (const ExecArgs *args)
{
  exec_cpu_attend (
      args, &(ExecCpuAttentionOperands){
                .lse = PLAN_REF_ATTENTION_lse,
                .places = PLAN_REF_ATTENTION_places,
                .work = PLAN_REF_ATTENTION_work,
                .key = PLAN_REF_ATTENTION_key,
                .start = PLAN_REF_ATTENTION_start,
                .q = heads_in_qkv (args, PLAN_REF_ATTENTION_qkv, 0),
                .k = keys_of (args, PLAN_REF_ATTENTION_qkv, PLAN_REF_ATTENTION_kv),
                .v = values_of (args, PLAN_REF_ATTENTION_qkv, PLAN_REF_ATTENTION_kv),
                .out = heads_of (args, PLAN_REF_ATTENTION_out, PLAN_DIM_ATTENTION_head_dim) });
}

void
exec_cpu_latent_attention (const ExecArgs *args)
{
  exec_cpu_attend (
      args,
      &(ExecCpuAttentionOperands){
          .lse = PLAN_REF_LATENT_ATTENTION_lse,
          .places = PLAN_REF_LATENT_ATTENTION_places,
          .work = PLAN_REF_LATENT_ATTENTION_work,
          .key = PLAN_REF_LATENT_ATTENTION_key,
          .start = PLAN_REF_LATENT_ATTENTION_start,
          .q = heads_of (args, PLAN_REF_LATENT_ATTENTION_q, PLAN_DIM_LATENT_ATTENTION_head_dim),
          .k = heads_of (args, PLAN_REF_LATENT_ATTENTION_k, PLAN_DIM_LATENT_ATTENTION_head_dim),
          .v = heads_of (args, PLAN_REF_LATENT_ATTENTION_v, PLAN_DIM_LATENT_ATTENTION_v_dim),
          .out = heads_of (args, PLAN_REF_LATENT_ATTENTION_out, PLAN_DIM_LATENT_ATTENTION_v_dim) });
}

void
exec_cpu_attention_bwd (const ExecArgs *args)
{
  exec_cpu_attend_bwd (
      args,
      &(ExecCpuAttentionOperands){
          .lse = PLAN_REF_ATTENTION_BWD_lse,
          .places = PLAN_REF_ATTENTION_BWD_places,
          .work = PLAN_REF_ATTENTION_BWD_work,
          .key = PLAN_REF_ATTENTION_BWD_key,
          .start = PLAN_REF_ATTENTION_BWD_start,
          .q = heads_in_qkv (args, PLAN_REF_ATTENTION_BWD_qkv, 0),
          .k = keys_of (args, PLAN_REF_ATTENTION_BWD_qkv, PLAN_REF_ATTENTION_BWD_kv),
          .v = values_of (args, PLAN_REF_ATTENTION_BWD_qkv, PLAN_REF_ATTENTION_BWD_kv),
          .out = heads_of (args, PLAN_REF_ATTENTION_BWD_out, PLAN_DIM_ATTENTION_head_dim),
          .dout = heads_of (args, PLAN_REF_ATTENTION_BWD_dout, PLAN_DIM_ATTENTION_head_dim),
          .dq = args->ptr[PLAN_REF_ATTENTION_BWD_dkv] != NULL
                    ? heads_of (args, PLAN_REF_ATTENTION_BWD_dqkv, PLAN_DIM_ATTENTION_head_dim)
                    : heads_in_qkv (args, PLAN_REF_ATTENTION_BWD_dqkv, 0),
          .dk = keys_of (args, PLAN_REF_ATTENTION_BWD_dqkv, PLAN_REF_ATTENTION_BWD_dkv),
          .dv = values_of (args, PLAN_REF_ATTENTION_BWD_dqkv, PLAN_REF_ATTENTION_BWD_dkv) });
}

void
exec_cpu_latent_attention_bwd (const ExecArgs *args)
{
  exec_cpu_attend_bwd (
      args,
      &(ExecCpuAttentionOperands){
          .lse = PLAN_REF_LATENT_ATTENTION_BWD_lse,
          .places = PLAN_REF_LATENT_ATTENTION_BWD_places,
          .work = PLAN_REF_LATENT_ATTENTION_BWD_work,
          .key = PLAN_REF_LATENT_ATTENTION_BWD_key,
          .start = PLAN_REF_LATENT_ATTENTION_BWD_start,
          .q = heads_of (args, PLAN_REF_LATENT_ATTENTION_BWD_q, PLAN_DIM_LATENT_ATTENTION_head_dim),
          .k = heads_of (args, PLAN_REF_LATENT_ATTENTION_BWD_k, PLAN_DIM_LATENT_ATTENTION_head_dim),
          .v = heads_of (args, PLAN_REF_LATENT_ATTENTION_BWD_v, PLAN_DIM_LATENT_ATTENTION_v_dim),
          .out
          = heads_of (args, PLAN_REF_LATENT_ATTENTION_BWD_out, PLAN_DIM_LATENT_ATTENTION_v_dim),
          .dout
          = heads_of (args, PLAN_REF_LATENT_ATTENTION_BWD_dout, PLAN_DIM_LATENT_ATTENTION_v_dim),
          .dq
          = heads_of (args, PLAN_REF_LATENT_ATTENTION_BWD_dq, PLAN_DIM_LATENT_ATTENTION_head_dim),
          .dk
          = heads_of (args, PLAN_REF_LATENT_ATTENTION_BWD_dk, PLAN_DIM_LATENT_ATTENTION_head_dim),
          .dv
          = heads_of (args, PLAN_REF_LATENT_ATTENTION_BWD_dv, PLAN_DIM_LATENT_ATTENTION_v_dim) });
}

/* The index of the log of a row's sum of exponentials, of one head: [batch, heads, seq]. */
static guint64
place_of_lse (guint64 seq, guint64 heads, guint64 row, guint64 head)
{
  return (row / seq * heads + head) * seq + row % seq;
}

/* Joins attention over some tokens and attention over others. Each is weighted by its share of the
 * sum of exponentials; where a query saw none of those tokens, its share is zero. */
static void
join_head (const ExecArgs *args, guint64 at, guint64 dim, float *lse, float part_lse)
{
  const float max = MAX (*lse, part_lse), min = MIN (*lse, part_lse);
  const float joined = max + log1pf (expf (min - max));
  const float share = expf (*lse - joined), part_share = expf (part_lse - joined);
  float storage[EXEC_CPU_BLOCK], part_storage[EXEC_CPU_BLOCK], out[EXEC_CPU_BLOCK];

  for (guint64 from = 0; from < dim; from += EXEC_CPU_BLOCK)
    {
      const guint64 n = MIN (EXEC_CPU_BLOCK, dim - from);
      const float *a = exec_cpu_read_ref (args, PLAN_REF_ATTENTION_JOIN_out, at + from, n, storage);
      const float *b
          = exec_cpu_read_ref (args, PLAN_REF_ATTENTION_JOIN_part, at + from, n, part_storage);

      for (guint64 i = 0; i < n; i++)
        out[i] = share * a[i] + part_share * b[i];
      exec_cpu_write_ref (args, PLAN_REF_ATTENTION_JOIN_out, at + from, n, out);
    }
  *lse = joined;
}

static void
join_rows (const ExecArgs *args, guint64 first, guint64 end)
{
  const gint64 *dims = args->op->dims;
  const guint64 seq = (guint64)dims[PLAN_DIM_ATTENTION_JOIN_seq],
                heads = (guint64)dims[PLAN_DIM_ATTENTION_JOIN_heads],
                dim = (guint64)dims[PLAN_DIM_ATTENTION_JOIN_head_dim];
  float *lse = args->ptr[PLAN_REF_ATTENTION_JOIN_lse];
  const float *part_lse = args->ptr[PLAN_REF_ATTENTION_JOIN_part_lse];

  for (guint64 row = first; row < end; row++)
    for (guint64 head = 0; head < heads; head++)
      {
        const guint64 at = place_of_lse (seq, heads, row, head);

        join_head (args, (row * heads + head) * dim, dim, &lse[at], part_lse[at]);
      }
}

void
exec_cpu_attention_join (const ExecArgs *args)
{
  const gint64 *dims = args->op->dims;

  exec_cpu_spread (
      args, (guint64)(dims[PLAN_DIM_ATTENTION_JOIN_batch] * dims[PLAN_DIM_ATTENTION_JOIN_seq]),
      (guint64)(dims[PLAN_DIM_ATTENTION_JOIN_heads] * dims[PLAN_DIM_ATTENTION_JOIN_head_dim]),
      join_rows);
}

/* --- sinks -------------------------------------------------------------------------------- */

PLAN_SAME_DIM (ATTENTION_SINK, ATTENTION_SINK_BWD, batch);
PLAN_SAME_DIM (ATTENTION_SINK, ATTENTION_SINK_BWD, seq);
PLAN_SAME_DIM (ATTENTION_SINK, ATTENTION_SINK_BWD, heads);
PLAN_SAME_DIM (ATTENTION_SINK, ATTENTION_SINK_BWD, head_dim);

/* A query's output over tokens is weighted by their share of the sum of exponentials, to which the
 * sink adds a term of its own. */
static void
sink_rows (const ExecArgs *args, guint64 first, guint64 end)
{
  const gint64 *dims = args->op->dims;
  const guint64 seq = (guint64)dims[PLAN_DIM_ATTENTION_SINK_seq],
                heads = (guint64)dims[PLAN_DIM_ATTENTION_SINK_heads],
                dim = (guint64)dims[PLAN_DIM_ATTENTION_SINK_head_dim];
  float *lse = args->ptr[PLAN_REF_ATTENTION_SINK_lse], sink_storage;
  float storage[EXEC_CPU_BLOCK], out[EXEC_CPU_BLOCK];

  for (guint64 i = first * heads; i < end * heads; i++)
    {
      const float sink
          = *exec_cpu_read_ref (args, PLAN_REF_ATTENTION_SINK_sinks, i % heads, 1, &sink_storage);
      float *of_tokens = lse + place_of_lse (seq, heads, i / heads, i % heads);
      const float max = MAX (*of_tokens, sink), min = MIN (*of_tokens, sink);
      const float joined = max + log1pf (expf (min - max)), share = expf (*of_tokens - joined);

      for (guint64 at = 0; at < dim; at += EXEC_CPU_BLOCK)
        {
          const guint64 n = MIN (EXEC_CPU_BLOCK, dim - at);
          const float *in
              = exec_cpu_read_ref (args, PLAN_REF_ATTENTION_SINK_out, i * dim + at, n, storage);

          for (guint64 k = 0; k < n; k++)
            out[k] = share * in[k];
          exec_cpu_write_ref (args, PLAN_REF_ATTENTION_SINK_out, i * dim + at, n, out);
        }
      *of_tokens = joined;
    }
}

void
exec_cpu_attention_sink (const ExecArgs *args)
{
  const gint64 *dims = args->op->dims;

  exec_cpu_spread (
      args, (guint64)(dims[PLAN_DIM_ATTENTION_SINK_batch] * dims[PLAN_DIM_ATTENTION_SINK_seq]),
      (guint64)(dims[PLAN_DIM_ATTENTION_SINK_heads] * dims[PLAN_DIM_ATTENTION_SINK_head_dim]),
      sink_rows);
}

/* The inner product of a query's output and its gradient, of one head. */
static float
product_of (const ExecArgs *args, guint64 from, guint64 dim)
{
  float sum[EXEC_CPU_LANES] = { 0 }, storage[EXEC_CPU_BLOCK], dout_storage[EXEC_CPU_BLOCK];

  for (guint64 at = 0; at < dim; at += EXEC_CPU_BLOCK)
    {
      const guint64 n = MIN (EXEC_CPU_BLOCK, dim - at);
      const float *out
          = exec_cpu_read_ref (args, PLAN_REF_ATTENTION_SINK_BWD_out, from + at, n, storage);
      const float *dout
          = exec_cpu_read_ref (args, PLAN_REF_ATTENTION_SINK_BWD_dout, from + at, n, dout_storage);

      exec_cpu_add_products (sum, out, dout, n);
    }
  return exec_cpu_total (sum);
}

/* A sink has no value of its own: the larger its share, the smaller the output. */
static void
sink_bwd_heads (const ExecArgs *args, guint64 first, guint64 end)
{
  const gint64 *dims = args->op->dims;
  const guint64 seq = (guint64)dims[PLAN_DIM_ATTENTION_SINK_BWD_seq],
                rows = (guint64)dims[PLAN_DIM_ATTENTION_SINK_BWD_batch] * seq;
  const guint64 heads = (guint64)dims[PLAN_DIM_ATTENTION_SINK_BWD_heads],
                dim = (guint64)dims[PLAN_DIM_ATTENTION_SINK_BWD_head_dim];
  const float *lse = args->ptr[PLAN_REF_ATTENTION_SINK_BWD_lse];
  float storage;

  for (guint64 head = first; head < end; head++)
    {
      const float sink
          = *exec_cpu_read_ref (args, PLAN_REF_ATTENTION_SINK_BWD_sinks, head, 1, &storage);
      float sum = 0;

      for (guint64 row = 0; row < rows; row++)
        sum -= expf (sink - lse[place_of_lse (seq, heads, row, head)])
               * product_of (args, (row * heads + head) * dim, dim);
      exec_cpu_write_ref (args, PLAN_REF_ATTENTION_SINK_BWD_dsinks, head, 1, &sum);
    }
}

void
exec_cpu_attention_sink_bwd (const ExecArgs *args)
{
  const gint64 *dims = args->op->dims;

  exec_cpu_spread (
      args, (guint64)dims[PLAN_DIM_ATTENTION_SINK_BWD_heads],
      (guint64)(dims[PLAN_DIM_ATTENTION_SINK_BWD_batch] * dims[PLAN_DIM_ATTENTION_SINK_BWD_seq]
                * dims[PLAN_DIM_ATTENTION_SINK_BWD_head_dim]),
      sink_bwd_heads);
}
