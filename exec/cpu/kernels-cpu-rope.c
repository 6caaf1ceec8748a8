/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary positions of latent attention: of the last elements of each query head, and of the part of
 * keys that all heads share. */
#include "config.h"

#include "exec/cpu/kernels-cpu-attention.h"

#include "exec/cpu/kernels-cpu-private.h"

#include <math.h>
#include <string.h>

#define PAIRS 64 /* pairs rotated at once */

PLAN_SAME_DIM (LATENT_ROPE, LATENT_ROPE_BWD, rows);
PLAN_SAME_DIM (LATENT_ROPE, LATENT_ROPE_BWD, seq);
PLAN_SAME_DIM (LATENT_ROPE, LATENT_ROPE_BWD, heads);
PLAN_SAME_DIM (LATENT_ROPE, LATENT_ROPE_BWD, nope);
PLAN_SAME_DIM (LATENT_ROPE, LATENT_ROPE_BWD, rope);
PLAN_SAME_DIM (LATENT_ROPE, LATENT_ROPE_BWD, v_dim);
PLAN_SAME_DIM (LATENT_ROPE, LATENT_ROPE_BWD, rank);
PLAN_SAME_REF (LATENT_ROPE, LATENT_ROPE_BWD, places);

/* The sizes of the op, and the rotation of up to PAIRS pairs at one position. A pair is two
 * neighbouring elements. */
typedef struct
{
  const ExecArgs *args;
  guint64 seq, heads, nope, rope, v_dim, rank;
  double frequency[PAIRS];
  float cosine[PAIRS], sine[PAIRS];
} Latent;

static Latent
latent_of (const ExecArgs *args)
{
  const gint64 *dims = args->op->dims;

  return (Latent){ .args = args,
                   .seq = (guint64)dims[PLAN_DIM_LATENT_ROPE_seq],
                   .heads = (guint64)dims[PLAN_DIM_LATENT_ROPE_heads],
                   .nope = (guint64)dims[PLAN_DIM_LATENT_ROPE_nope],
                   .rope = (guint64)dims[PLAN_DIM_LATENT_ROPE_rope],
                   .v_dim = (guint64)dims[PLAN_DIM_LATENT_ROPE_v_dim],
                   .rank = (guint64)dims[PLAN_DIM_LATENT_ROPE_rank] };
}

/* Sets the frequencies of `count` pairs from pair `from` on; direction -1, in the backward pass,
 * rotates back. */
static void
set_frequencies (Latent *self, guint64 from, guint64 count, double direction)
{
  const PlanRope rope = exec_rope (self->args);

  for (guint64 i = 0; i < count; i++)
    self->frequency[i] = direction * plan_rope_frequency (&rope, from + i, self->rope, self->seq);
}

static void
set_rotation (Latent *self, guint64 row, guint64 count)
{
  const gint32 *places = self->args->ptr[PLAN_REF_LATENT_ROPE_places];
  const PlanRope rope = exec_rope (self->args);
  const double magnitude = plan_rope_magnitude (&rope);

  for (guint64 i = 0; i < count; i++)
    {
      const double angle
          = (double)(places != NULL ? (guint64)places[row] : row % self->seq) * self->frequency[i];

      self->cosine[i] = (float)(magnitude * cos (angle));
      self->sine[i] = (float)(magnitude * sin (angle));
    }
}

static void
rotate_pairs (const Latent *self, const float *in, float *out, guint64 count)
{
  for (guint64 i = 0; i < count; i++)
    {
      const float a = in[2 * i], b = in[2 * i + 1];

      out[2 * i] = a * self->cosine[i] - b * self->sine[i];
      out[2 * i + 1] = b * self->cosine[i] + a * self->sine[i];
    }
}

/* Rotates `count` pairs of an operand in place. */
static void
rotate_in_place (const Latent *self, guint operand, guint64 at, guint64 count)
{
  float storage[2 * PAIRS], out[2 * PAIRS];

  rotate_pairs (self, exec_cpu_read_ref (self->args, operand, at, 2 * count, storage), out, count);
  exec_cpu_write_ref (self->args, operand, at, 2 * count, out);
}

static void
copy_elements (const ExecArgs *args, guint to, guint64 at, guint from, guint64 from_at,
               guint64 count)
{
  float storage[EXEC_CPU_BLOCK];

  for (guint64 i = 0; i < count; i += EXEC_CPU_BLOCK)
    {
      const guint64 n = MIN (EXEC_CPU_BLOCK, count - i);

      exec_cpu_write_ref (args, to, at + i, n,
                          exec_cpu_read_ref (args, from, from_at + i, n, storage));
    }
}

/* Rotates the queries of a row, and the part of keys that all heads share, which is copied to each
 * key head. */
static void
rotate_row (Latent *self, guint64 row, guint64 from, guint64 count)
{
  const guint64 width = self->nope + self->rope, down_width = self->rank + self->rope;
  float storage[2 * PAIRS], common[2 * PAIRS];

  set_rotation (self, row, count);
  rotate_pairs (self,
                exec_cpu_read_ref (self->args, PLAN_REF_LATENT_ROPE_down,
                                   row * down_width + self->rank + 2 * from, 2 * count, storage),
                common, count);
  for (guint64 head = 0; head < self->heads; head++)
    {
      const guint64 at = (row * self->heads + head) * width + self->nope + 2 * from;

      rotate_in_place (self, PLAN_REF_LATENT_ROPE_q, at, count);
      exec_cpu_write_ref (self->args, PLAN_REF_LATENT_ROPE_k, at, 2 * count, common);
    }
}

static void
latent_rope_rows (const ExecArgs *args, guint64 first, guint64 end)
{
  Latent self = latent_of (args);
  const guint64 width = self.nope + self.rope, kv_width = self.nope + self.v_dim;

  for (guint64 head = first * self.heads; head < end * self.heads; head++)
    {
      copy_elements (args, PLAN_REF_LATENT_ROPE_k, head * width, PLAN_REF_LATENT_ROPE_kv,
                     head * kv_width, self.nope);
      copy_elements (args, PLAN_REF_LATENT_ROPE_v, head * self.v_dim, PLAN_REF_LATENT_ROPE_kv,
                     head * kv_width + self.nope, self.v_dim);
    }
  for (guint64 from = 0; from < self.rope / 2; from += PAIRS)
    {
      const guint64 count = MIN (PAIRS, self.rope / 2 - from);

      set_frequencies (&self, from, count, 1);
      for (guint64 row = first; row < end; row++)
        rotate_row (&self, row, from, count);
    }
}

/* Rotates the gradients of a row's queries back. The gradient of the shared part of keys is the sum
 * over heads, rotated back. */
static void
rotate_row_bwd (Latent *self, guint64 row, guint64 from, guint64 count)
{
  const guint64 width = self->nope + self->rope, down_width = self->rank + self->rope;
  float storage[2 * PAIRS], sum[2 * PAIRS] = { 0 }, common[2 * PAIRS];

  set_rotation (self, row, count);
  for (guint64 head = 0; head < self->heads; head++)
    {
      const guint64 at = (row * self->heads + head) * width + self->nope + 2 * from;
      const float *dk
          = exec_cpu_read_ref (self->args, PLAN_REF_LATENT_ROPE_BWD_dk, at, 2 * count, storage);

      for (guint64 i = 0; i < 2 * count; i++)
        sum[i] += dk[i];
      rotate_in_place (self, PLAN_REF_LATENT_ROPE_BWD_dq, at, count);
    }
  rotate_pairs (self, sum, common, count);
  exec_cpu_write_ref (self->args, PLAN_REF_LATENT_ROPE_BWD_ddown,
                      row * down_width + self->rank + 2 * from, 2 * count, common);
}

/* Zeroes the gradient of the latent vector; the backward pass of its norm adds to it. */
static void
clear_latent (const Latent *self, guint64 row)
{
  static const float zeros[EXEC_CPU_BLOCK];

  for (guint64 at = 0; at < self->rank; at += EXEC_CPU_BLOCK)
    exec_cpu_write_ref (self->args, PLAN_REF_LATENT_ROPE_BWD_ddown,
                        row * (self->rank + self->rope) + at, MIN (EXEC_CPU_BLOCK, self->rank - at),
                        zeros);
}

static void
latent_rope_bwd_rows (const ExecArgs *args, guint64 first, guint64 end)
{
  Latent self = latent_of (args);
  const guint64 width = self.nope + self.rope, kv_width = self.nope + self.v_dim;

  for (guint64 head = first * self.heads; head < end * self.heads; head++)
    {
      copy_elements (args, PLAN_REF_LATENT_ROPE_BWD_dkv, head * kv_width,
                     PLAN_REF_LATENT_ROPE_BWD_dk, head * width, self.nope);
      copy_elements (args, PLAN_REF_LATENT_ROPE_BWD_dkv, head * kv_width + self.nope,
                     PLAN_REF_LATENT_ROPE_BWD_dv, head * self.v_dim, self.v_dim);
    }
  for (guint64 row = first; row < end; row++)
    clear_latent (&self, row);
  for (guint64 from = 0; from < self.rope / 2; from += PAIRS)
    {
      const guint64 count = MIN (PAIRS, self.rope / 2 - from);

      set_frequencies (&self, from, count, -1);
      for (guint64 row = first; row < end; row++)
        rotate_row_bwd (&self, row, from, count);
    }
}

static void
spread_latent (const ExecArgs *args, ExecCpuRange run)
{
  const Latent self = latent_of (args);

  exec_cpu_spread (args, (guint64)args->op->dims[PLAN_DIM_LATENT_ROPE_rows],
                   self.heads * (2 * (self.nope + self.rope) + self.v_dim), run);
}

void
exec_cpu_latent_rope (const ExecArgs *args)
{
  spread_latent (args, latent_rope_rows);
}

void
exec_cpu_latent_rope_bwd (const ExecArgs *args)
{
  spread_latent (args, latent_rope_bwd_rows);
}
