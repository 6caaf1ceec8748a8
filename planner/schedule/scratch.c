/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/schedule/scratch.h"

#include "planner/base/units.h"

/* The last two members of a scratch operand in the op list; NONE and 0 for other operands. */
#define GPU_OF(elements, gpu, ...) gpu
#define SUMS_OF(elements, gpu, sums, ...) sums

guint64
plan_scratch_elements (PlanOpKind kind, const gint64 *dims, PlanDtype dtype)
{
  return plan_op_scratch_elements (kind, dims, dtype == PLAN_DTYPE_FP32);
}

/* Bytes of cuBLAS's workspace by its documentation (cublasSetWorkspace): 32 MiB on Hopper and
 * Blackwell 10.x, 12 MiB on Blackwell 12.x, 4 MiB before. */
static guint64
product_bytes (const PlanCluster *cluster)
{
  if (cluster->compute_capability >= 120)
    return 12 * PLAN_MIB;
  return cluster->compute_capability >= 90 ? 32 * PLAN_MIB : 4 * PLAN_MIB;
}

typedef enum
{
  GPU_NONE = 0,
  GPU_PRODUCT,
  GPU_ATTENTION,
  GPU_SAME,
  GPU_SUMS,
} GpuScratch;

#define REF_GPU(id, ref) PLAN_SPLIT (REF_GPU_NAMED, id, ref)
#define REF_GPU_NAMED(id, name, access, ...) REF_GPU_AS (GPU_OF (__VA_ARGS__, NONE, 0))
#define REF_GPU_AS(gpu) REF_GPU_IS (gpu)
#define REF_GPU_IS(gpu) | GPU_##gpu
#define X(id, name, class, work, cost, summary, dims, flops, refs) \
  [PLAN_OP_##id] = GPU_NONE PLAN_EACH (REF_GPU, id, refs),
static const GpuScratch gpu_scratch[] = { PLAN_OP_LIST (X) };
#undef X

guint64
plan_scratch_gpu_elements (PlanOpKind kind, const gint64 *dims, PlanDtype dtype,
                           const PlanCluster *cluster)
{
  switch (gpu_scratch[kind])
    {
    case GPU_PRODUCT:
      return product_bytes (cluster) / sizeof (float) + PLAN_SCRATCH_ALIGNMENT;
    case GPU_SAME:
      return plan_scratch_elements (kind, dims, PLAN_DTYPE_FP32);
    case GPU_ATTENTION: /* what cuDNN wants; the backward pass declares a buffer of its own for it
                         */
      return PLAN_SCRATCH_ALIGNMENT
             + (plan_scratch_attention_is_fused (kind, dims, dtype, cluster->compute_capability)
                    ? PLAN_SCRATCH_CUDNN_ELEMENTS
                    : plan_scratch_batched_elements (kind, dims));
    case GPU_SUMS:
      return plan_scratch_norm_elements (kind, dims);
    case GPU_NONE:
      return 0;
    }
  g_assert_not_reached ();
}

/* The workspace is by cuDNN 9.19's own figures for the shapes of every shipped model
 * (tests/gpu/test-cudnn-ask.c): sums of rows; the gradient of q in fp32; and, where heads are
 * grouped, gradients of k and v in bf16 for every query head. Before Hopper, and for small shapes
 * on Blackwell, there is a second image of q's gradient. The deterministic pass writes that image
 * once, from the gradients of scores, which it keeps in bf16. */
guint64
plan_scratch_attention_elements (const gint64 *dims, gint64 capability, gboolean is_deterministic)
{
  const guint64 seq
      = (guint64)dims[PLAN_DIM_ATTENTION_BWD_seq],
      heads = (guint64)(dims[PLAN_DIM_ATTENTION_BWD_batch] * dims[PLAN_DIM_ATTENTION_BWD_heads]);
  const guint64 width = (guint64)dims[PLAN_DIM_ATTENTION_BWD_head_dim], rows = heads * seq;
  const guint64 grouped = dims[PLAN_DIM_ATTENTION_BWD_heads] > dims[PLAN_DIM_ATTENTION_BWD_kv_heads]
                              ? rows * width
                              : 0;
  const gboolean is_small = seq < 128 || width < 64;
  const gboolean has_more = capability < 90 || (capability >= 100 && is_small);
  const guint64 sums = plan_units_round_up (rows, PLAN_SCRATCH_CUDNN_ELEMENTS);
  const guint64 more = has_more ? heads * plan_units_round_up (seq, 64) * width : 0;
  const guint64 dq = is_deterministic
                         ? rows * ((seq + 1) / 2)
                         : plan_units_round_up (rows * width, PLAN_SCRATCH_CUDNN_ELEMENTS) + more;
  return sums + dq + grouped + PLAN_SCRATCH_CUDNN_ELEMENTS;
}

/* Found by tests/gpu/test-cudnn-ask.c: heads of over 128 elements have a backward pass on Hopper
 * alone. */
gboolean
plan_scratch_attention_is_fused (PlanOpKind kind, const gint64 *dims, PlanDtype dtype,
                                 gint64 capability)
{
  const gint64 width = dims[PLAN_DIM_ATTENTION_head_dim];

  return (kind == PLAN_OP_ATTENTION || kind == PLAN_OP_ATTENTION_BWD)
         && (dtype == PLAN_DTYPE_BF16 || dtype == PLAN_DTYPE_FP16) && width % 8 == 0
         && width <= (kind == PLAN_OP_ATTENTION || capability == 90 ? 256 : 128);
}

/* --- sums over rows by a GPU -------------------------------------------------------------- */

/* Sums over the columns of a norm's parameters are taken in parts of the rows. There are enough
 * parts to keep a GPU busy, and few enough that their sums stay in its cache and are small beside
 * the rows. */
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

#define DIM_SIZE(id, name) G_GNUC_UNUSED const guint64 name = (guint64)dims[PLAN_DIM_##id##_##name];
#define REF_SUMS(id, ref) PLAN_SPLIT (REF_SUMS_NAMED, id, ref)
#define REF_SUMS_NAMED(id, name, access, ...) +(SUMS_OF (__VA_ARGS__, NONE, 0))
#define X(id, name, class, work, cost, summary, op_dims, flops, refs) \
  case PLAN_OP_##id: \
    { \
      PLAN_EACH (DIM_SIZE, id, op_dims) \
      return 0 PLAN_EACH (REF_SUMS, id, refs); \
    }
guint64
plan_scratch_norm_columns (PlanOpKind op, const gint64 *dims)
{
  switch (op)
    {
      PLAN_OP_LIST (X)
    case PLAN_OP_REPEAT:
    case PLAN_OP_END:
      return 0;
    }
  return 0;
}
#undef X

PLAN_SAME_DIM (RMSNORM_BWD, LAYERNORM_BWD, rows);
PLAN_SAME_DIM (RMSNORM_BWD, HEAD_NORM_BWD, rows);

guint64
plan_scratch_norm_elements (PlanOpKind kind, const gint64 *dims)
{
  const guint64 columns = plan_scratch_norm_columns (kind, dims);

  return columns > 0
             ? columns * plan_scratch_norm_parts ((guint64)dims[PLAN_DIM_RMSNORM_BWD_rows], columns)
             : 0;
}

/* --- attention by products in batches ----------------------------------------------------- */

PLAN_SAME_DIM (ATTENTION, ATTENTION_BWD, seq);
PLAN_SAME_DIM (ATTENTION, LATENT_ATTENTION, seq);
PLAN_SAME_DIM (ATTENTION, LATENT_ATTENTION_BWD, seq);
PLAN_SAME_DIM (LATENT_ATTENTION, LATENT_ATTENTION_BWD, head_dim);
PLAN_SAME_DIM (LATENT_ATTENTION, LATENT_ATTENTION_BWD, v_dim);

static gboolean
is_of_latent (PlanOpKind kind)
{
  return kind == PLAN_OP_LATENT_ATTENTION || kind == PLAN_OP_LATENT_ATTENTION_BWD;
}

static gboolean
is_forward (PlanOpKind kind)
{
  return kind == PLAN_OP_ATTENTION || kind == PLAN_OP_LATENT_ATTENTION;
}

/* Queries of a turn: enough for an efficient GEMM, and few enough that keys which none of them sees
 * are a small part. The scores take at most TURN_BYTES, unless even a few queries need more. */
#define TURN_QUERIES 512
#define LEAST_QUERIES 16
#define TURN_BYTES (256 * PLAN_MIB)

/* Finds the largest turn whose scores fit. Rows are whole multiples of 16 bytes, in fp32 as in
 * bf16. */
static PlanBatchedTurn
whole_turn (PlanOpKind kind, const gint64 *dims)
{
  const gboolean is_latent = is_of_latent (kind);
  const gint64 seq = dims[PLAN_DIM_ATTENTION_seq];
  const gint64 dim
      = dims[is_latent ? PLAN_DIM_LATENT_ATTENTION_head_dim : PLAN_DIM_ATTENTION_head_dim];
  const gint64 v_dim = is_latent ? dims[PLAN_DIM_LATENT_ATTENTION_v_dim] : dim;
  return (PlanBatchedTurn){
    .heads = dims[is_latent ? PLAN_DIM_LATENT_ATTENTION_heads : PLAN_DIM_ATTENTION_kv_heads],
    .queries = MIN (seq, TURN_QUERIES),
    .query_stride = plan_units_round_up ((guint64)seq, 4),
    .key_stride = plan_units_round_up ((guint64)(seq * dim), 4),
    .value_stride = plan_units_round_up ((guint64)(seq * v_dim), 4),
  };
}

/* Elements that one key head needs: scores, and in the backward pass their gradients and those of
 * its keys and values. */
static guint64
turn_elements (PlanOpKind kind, const PlanBatchedTurn *turn, gint64 queries)
{
  const guint64 scores = (guint64)queries * turn->query_stride;

  return is_forward (kind) ? scores : 2 * scores + turn->key_stride + turn->value_stride;
}

guint64
plan_scratch_batched_elements (PlanOpKind kind, const gint64 *dims)
{
  const PlanBatchedTurn turn = whole_turn (kind, dims);
  const guint64 least = turn_elements (kind, &turn, MIN (turn.queries, LEAST_QUERIES));
  const guint64 whole = (guint64)turn.heads * turn_elements (kind, &turn, turn.queries);

  return MIN (whole, MAX (TURN_BYTES / sizeof (float), least));
}

gboolean
plan_scratch_batched_turn (PlanOpKind kind, const gint64 *dims, guint64 elements,
                           PlanBatchedTurn *out)
{
  PlanBatchedTurn turn = whole_turn (kind, dims);
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

  /* cuBLASLt also works without a workspace. */
  if (kind == PLAN_OP_GEMM_ADD || kind == PLAN_OP_GROUPED_GEMM_ADD)
    on_gpu = 0;
  if (kind == PLAN_OP_LATENT_ATTENTION || kind == PLAN_OP_LATENT_ATTENTION_BWD)
    on_gpu = plan_scratch_batched_elements (kind, dims);
  if (kind == PLAN_OP_ATTENTION)
    on_gpu = PLAN_SCRATCH_CUDNN_ELEMENTS;
  if (kind == PLAN_OP_ATTENTION_BWD) /* a sum for every row; the rest depends on the GPU */
    on_gpu = MIN (plan_scratch_batched_elements (kind, dims),
                  plan_units_round_up ((guint64)(dims[PLAN_DIM_ATTENTION_BWD_batch]
                                                 * dims[PLAN_DIM_ATTENTION_BWD_seq]
                                                 * dims[PLAN_DIM_ATTENTION_BWD_heads]),
                                       PLAN_SCRATCH_CUDNN_ELEMENTS));
  return MIN (on_cpu, on_gpu);
}
