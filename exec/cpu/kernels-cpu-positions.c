/* SPDX-License-Identifier: Apache-2.0 */
/* Where tokens are in their sequences: the table of learned positions, and rotary ones. */
#include "config.h"

#include "exec/cpu/kernels-cpu-attention.h"
#include "exec/cpu/kernels-cpu-private.h"
#include "planner/schedule/sequence.h"

#include <math.h>

#define PAIRS 64 /* pairs rotated at once */

static PlanSequencePart
part_of (const ExecArgs *args, guint64 seq)
{
  return plan_sequence_part ((guint64)exec_manner (args, PLAN_MANNER_PART),
                             (guint64)exec_manner (args, PLAN_MANNER_PARTS), seq);
}

/* Adds to each row the embedding of its position in its document or sequence. */
static void
positions_rows (const ExecArgs *args, guint64 first, guint64 end)
{
  guint64 cols = (guint64)args->op->dims[PLAN_DIM_POSITIONS_cols];
  const gint32 *places = args->ptr[PLAN_REF_POSITIONS_places];
  guint64 seq = (guint64)args->op->dims[PLAN_DIM_POSITIONS_seq];
  guint64 before = (guint64)exec_manner (args, PLAN_MANNER_FIRST);
  const PlanSequencePart part = part_of (args, seq);
  float in_storage[EXEC_CPU_BLOCK], table_storage[EXEC_CPU_BLOCK], out[EXEC_CPU_BLOCK];

  for (guint64 row = first; row < end; row++)
    for (guint64 at = 0; at < cols; at += EXEC_CPU_BLOCK)
      {
        guint64 n = MIN (EXEC_CPU_BLOCK, cols - at);
        const float *in
            = exec_cpu_read_ref (args, PLAN_REF_POSITIONS_out, row * cols + at, n, in_storage);
        const guint64 position = places != NULL ? (guint64)places[row]
                                                : plan_sequence_place (&part, (before + row) % seq);
        const float *embedding = exec_cpu_read_ref (args, PLAN_REF_POSITIONS_table,
                                                    position * cols + at, n, table_storage);

        for (guint64 i = 0; i < n; i++)
          out[i] = in[i] + embedding[i];
        exec_cpu_write_ref (args, PLAN_REF_POSITIONS_out, row * cols + at, n, out);
      }
}

void
exec_cpu_positions (const ExecArgs *args)
{
  exec_cpu_spread (args, (guint64)args->op->dims[PLAN_DIM_POSITIONS_rows],
                   (guint64)args->op->dims[PLAN_DIM_POSITIONS_cols], positions_rows);
}

/* Sums the gradients of all rows at a position, for each position from `first` on: a row of the
 * table's gradient. */
static void
positions_bwd_places (const ExecArgs *args, guint64 first, guint64 end)
{
  guint64 rows = (guint64)args->op->dims[PLAN_DIM_POSITIONS_BWD_rows],
          cols = (guint64)args->op->dims[PLAN_DIM_POSITIONS_BWD_cols];
  guint64 seq = (guint64)args->op->dims[PLAN_DIM_POSITIONS_BWD_seq];
  const gint32 *places = args->ptr[PLAN_REF_POSITIONS_BWD_places];
  const guint64 step = places != NULL ? 1 : seq; /* distance of rows that may have one position */
  const guint64 before = (guint64)exec_manner (args, PLAN_MANNER_FIRST) % seq;
  const PlanSequencePart part = part_of (args, seq);
  float storage[EXEC_CPU_BLOCK], sum[EXEC_CPU_BLOCK];

  for (guint64 place = first; place < end; place++)
    for (guint64 at = 0; at < cols; at += EXEC_CPU_BLOCK)
      {
        guint64 n = MIN (EXEC_CPU_BLOCK, cols - at);

        memset (sum, 0, sizeof sum);
        for (guint64 row = places != NULL ? 0 : (place + seq - before) % seq; row < rows;
             row += step)
          {
            if (places != NULL && (guint64)places[row] != place)
              continue;
            const float *dout = exec_cpu_read_ref (args, PLAN_REF_POSITIONS_BWD_dout,
                                                   row * cols + at, n, storage);

            for (guint64 i = 0; i < n; i++)
              sum[i] += dout[i];
          }
        exec_cpu_write_ref (args, PLAN_REF_POSITIONS_BWD_dtable,
                            plan_sequence_place (&part, place) * cols + at, n, sum);
      }
}

void
exec_cpu_positions_bwd (const ExecArgs *args)
{
  const gint64 *dims = args->op->dims;

  exec_cpu_spread (
      args, (guint64)dims[PLAN_DIM_POSITIONS_BWD_seq],
      (guint64)(MAX (dims[PLAN_DIM_POSITIONS_BWD_rows] / dims[PLAN_DIM_POSITIONS_BWD_seq], 1)
                * dims[PLAN_DIM_POSITIONS_BWD_cols]),
      positions_bwd_places);
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
  const guint64 parts = MAX ((guint64)exec_manner (args, PLAN_MANNER_PARTS), 1);
  const PlanSequencePart part = part_of (args, seq);
  const guint64 said = (guint64)exec_manner (args, PLAN_MANNER_TURNED);
  const guint64 rotated = said > 0 ? said : dim, half = rotated / 2; /* elements of a head */
  guint64 rotated_heads = (guint64)(dims[PLAN_DIM_ROPE_heads] + dims[PLAN_DIM_ROPE_kv_heads]),
          width = (rotated_heads + (guint64)dims[PLAN_DIM_ROPE_kv_heads]) * dim;
  double frequency[PAIRS], direction = dims[PLAN_DIM_ROPE_inverse] != 0 ? -1 : 1;
  const PlanRope rope = exec_rope (args);
  double magnitude = plan_rope_magnitude (&rope);
  float cosine[PAIRS], sine[PAIRS];

  for (guint64 from = 0; from < half; from += PAIRS)
    {
      guint64 count = MIN (PAIRS, half - from);

      for (guint64 i = 0; i < count; i++)
        frequency[i] = direction * plan_rope_frequency (&rope, from + i, rotated, seq * parts);
      for (guint64 row = first; row < end; row++)
        {
          const guint64 place
              = places != NULL ? (guint64)places[row] : plan_sequence_place (&part, row % seq);

          for (guint64 i = 0; i < count; i++)
            {
              double angle = (double)place * frequency[i];

              cosine[i] = (float)(magnitude * cos (angle));
              sine[i] = (float)(magnitude * sin (angle));
            }
          for (guint64 head = 0; head < rotated_heads; head++)
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
