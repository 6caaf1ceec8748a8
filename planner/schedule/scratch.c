/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/schedule/scratch.h"

#include "planner/base/units.h"

guint64
plan_scratch_elements (PlanOpKind kind, const gint64 *dims, PlanDtype dtype)
{
  switch ((int)kind)
    {
    case PLAN_OP_GEMM: /* fp32 images of both factors and the product */
      if (dtype == PLAN_DTYPE_FP32)
        return 0;
      return (guint64)dims[0] * dims[2] + (guint64)dims[2] * dims[1] + (guint64)dims[0] * dims[1];
    case PLAN_OP_GEMM_ADD: /* the product, before it is added */
      return plan_scratch_elements (PLAN_OP_GEMM, dims, dtype)
             + (dtype == PLAN_DTYPE_FP32 ? (guint64)dims[0] * dims[1] : 0);
    case PLAN_OP_ATTENTION: /* one head: scores, then q, k, v, out */
      return (guint64)dims[1] * dims[1] + 4 * (guint64)dims[1] * dims[4];
    case PLAN_OP_ATTENTION_BWD: /* one head: probabilities and their gradient, then q, k, v, out,
                                   dout, dq, dk, dv */
      return 2 * (guint64)dims[1] * dims[1] + 8 * (guint64)dims[1] * dims[4];
    case PLAN_OP_RMSNORM_BWD: /* dweight in fp32 */
      return (guint64)dims[1];
    case PLAN_OP_LOSS_GRAD: /* a row's softmax in fp32 */
      return (guint64)dims[1];
    case PLAN_OP_EMBED_BWD: /* counting sort of the rows by token, and one fp32 row */
      return (guint64)dims[0] + (guint64)dims[1] + (guint64)dims[2] + 1;
    default:
      return 0;
    }
}

/* cuBLAS's documentation, cublasSetWorkspace: 32 MiB on Hopper and Blackwell's 10.x, 12 MiB on
 * Blackwell's 12.x, 4 MiB before. */
static guint64
product_bytes (const PlanCluster *cluster)
{
  if (cluster->compute_capability >= 120)
    return 12 * PLAN_MIB;
  return cluster->compute_capability >= 90 ? 32 * PLAN_MIB : 4 * PLAN_MIB;
}

guint64
plan_scratch_gpu_elements (PlanOpKind kind, const gint64 *dims, PlanDtype dtype,
                           const PlanCluster *cluster)
{
  switch ((int)kind)
    {
    case PLAN_OP_GEMM:
    case PLAN_OP_GEMM_ADD:
      return product_bytes (cluster) / sizeof (float) + PLAN_SCRATCH_ALIGNMENT;
    case PLAN_OP_EMBED_BWD: /* the same sort */
      return plan_scratch_elements (kind, dims, PLAN_DTYPE_FP32);
    case PLAN_OP_ATTENTION: /* cuDNN's own; its backward pass has a buffer to itself */
      return PLAN_SCRATCH_ALIGNMENT
             + (plan_scratch_attention_is_fused (kind, dims, dtype, cluster->compute_capability)
                    ? PLAN_SCRATCH_CUDNN_ELEMENTS
                    : plan_scratch_batched_elements (kind, dims));
    case PLAN_OP_RMSNORM_BWD:
    case PLAN_OP_LAYERNORM_BWD:
    case PLAN_OP_HEAD_NORM_BWD:
      return plan_scratch_norm_elements (kind, dims);
    default:
      return 0;
    }
}

/* cuDNN 9.19, its own figures for the shapes of every shipped model (tests/gpu/test-cudnn-ask.c):
 * sums of rows, the gradient of q in fp32, and in bf16 those of k and v for every query head where
 * heads are grouped. Before Hopper, and for small shapes on Blackwell, another image of q's
 * gradient. Deterministic, it writes that once, from those of the scores, kept in bf16. */
guint64
plan_scratch_attention_elements (const gint64 *dims, gint64 capability, gboolean is_deterministic)
{
  const guint64 seq = (guint64)dims[1], heads = (guint64)(dims[0] * dims[2]);
  const guint64 width = (guint64)dims[4], rows = heads * seq;
  const guint64 grouped = dims[2] > dims[3] ? rows * width : 0;
  const gboolean is_small = seq < 128 || width < 64;
  const gboolean has_more = capability < 90 || (capability >= 100 && is_small);
  const guint64 sums = plan_units_round_up (rows, PLAN_SCRATCH_CUDNN_ELEMENTS);
  const guint64 more = has_more ? heads * plan_units_round_up (seq, 64) * width : 0;
  const guint64 dq = is_deterministic
                         ? rows * ((seq + 1) / 2)
                         : plan_units_round_up (rows * width, PLAN_SCRATCH_CUDNN_ELEMENTS) + more;
  return sums + dq + grouped + PLAN_SCRATCH_CUDNN_ELEMENTS;
}

/* What tests/gpu/test-cudnn-ask.c finds to be so: heads of over 128 elements have a backward pass
 * on Hopper alone. */
gboolean
plan_scratch_attention_is_fused (PlanOpKind kind, const gint64 *dims, PlanDtype dtype,
                                 gint64 capability)
{
  const gint64 width = dims[4];

  return (dtype == PLAN_DTYPE_BF16 || dtype == PLAN_DTYPE_FP16) && width % 8 == 0
         && width <= (kind == PLAN_OP_ATTENTION || capability == 90 ? 256 : 128);
}

/* --- sums over rows by a GPU -------------------------------------------------------------- */

/* Of the columns of a norm's parameters. Parts are enough to keep a GPU busy, and few enough that
 * their sums stay in its cache, a small share of what they are made from. */
#define MOST_PARTS 2048
#define FEW_PARTS 128
#define ROWS_OF_PART 8
#define PARTS_ELEMENTS (8 * PLAN_MIB / sizeof (float))

guint64
plan_scratch_norm_parts (guint64 rows, guint64 columns)
{
  const guint64 by_rows = CLAMP (rows / ROWS_OF_PART, FEW_PARTS, MOST_PARTS);

  return MIN (rows, CLAMP (PARTS_ELEMENTS / columns, 1, by_rows));
}

guint64
plan_scratch_norm_columns (PlanOpKind kind, const gint64 *dims)
{
  switch ((int)kind)
    {
    case PLAN_OP_RMSNORM_BWD: /* dweight */
      return (guint64)dims[1];
    case PLAN_OP_LAYERNORM_BWD: /* dweight, dbias */
      return 2 * (guint64)dims[1];
    case PLAN_OP_HEAD_NORM_BWD: /* dq, dk */
      return 2 * (guint64)dims[3];
    default:
      return 0;
    }
}

guint64
plan_scratch_norm_elements (PlanOpKind kind, const gint64 *dims)
{
  const guint64 columns = plan_scratch_norm_columns (kind, dims);

  return columns > 0 ? columns * plan_scratch_norm_parts ((guint64)dims[0], columns) : 0;
}

/* --- attention by products in batches ----------------------------------------------------- */

/* Queries of a turn: enough for a product, few enough that keys which none of them sees are a small
 * part. Scores take no more than this, unless a few queries need it. */
#define TURN_QUERIES 512
#define LEAST_QUERIES 16
#define TURN_BYTES (256 * PLAN_MIB)

/* Rows of whole 16 bytes, also in bf16. */
static PlanBatchedTurn
whole_turn (const gint64 *dims)
{
  return (PlanBatchedTurn){ .heads = dims[3],
                            .queries = MIN (dims[1], TURN_QUERIES),
                            .pitch = plan_units_round_up ((guint64)dims[1], 4),
                            .image = plan_units_round_up ((guint64)(dims[1] * dims[4]), 4) };
}

/* Of one key head: scores, backwards their gradients too, and those of its keys and values. */
static guint64
turn_elements (PlanOpKind kind, const PlanBatchedTurn *turn, gint64 queries)
{
  const guint64 scores = (guint64)queries * turn->pitch;

  return kind == PLAN_OP_ATTENTION ? scores : 2 * (scores + turn->image);
}

guint64
plan_scratch_batched_elements (PlanOpKind kind, const gint64 *dims)
{
  const PlanBatchedTurn turn = whole_turn (dims);
  const guint64 least = turn_elements (kind, &turn, MIN (turn.queries, LEAST_QUERIES));
  const guint64 whole = (guint64)turn.heads * turn_elements (kind, &turn, turn.queries);

  return MIN (whole, MAX (TURN_BYTES / sizeof (float), least));
}

gboolean
plan_scratch_batched_turn (PlanOpKind kind, const gint64 *dims, guint64 elements,
                           PlanBatchedTurn *out)
{
  PlanBatchedTurn turn = whole_turn (dims);
  const guint64 fixed = turn_elements (kind, &turn, 0);
  const guint64 each = turn_elements (kind, &turn, turn.queries);

  turn.heads = (gint64)MIN ((guint64)turn.heads, elements / each);
  if (turn.heads == 0 && elements > fixed)
    {
      turn.heads = 1;
      turn.queries = (gint64)((elements - fixed) / (turn_elements (kind, &turn, 1) - fixed));
    }
  *out = turn;
  return turn.heads > 0 && turn.queries > 0;
}

guint64
plan_scratch_least_elements (PlanOpKind kind, const gint64 *dims)
{
  const guint64 on_cpu = plan_scratch_elements (kind, dims, PLAN_DTYPE_FP32);
  guint64 on_gpu = on_cpu;

  if (kind == PLAN_OP_GEMM_ADD) /* cuBLASLt multiplies without, too */
    on_gpu = 0;
  if (kind == PLAN_OP_ATTENTION)
    on_gpu = PLAN_SCRATCH_CUDNN_ELEMENTS;
  if (kind == PLAN_OP_ATTENTION_BWD) /* a sum for every row; the rest differs between GPUs */
    on_gpu = MIN (
        plan_scratch_batched_elements (kind, dims),
        plan_units_round_up ((guint64)(dims[0] * dims[1] * dims[2]), PLAN_SCRATCH_CUDNN_ELEMENTS));
  return MIN (on_cpu, on_gpu);
}
