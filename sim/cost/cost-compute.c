/* SPDX-License-Identifier: Apache-2.0 */
/* Times of ops on one device: GEMMs by tiles and waves, attention by its length, all other ops by
 * the bytes that they move. */
#include "config.h"

#include "planner/base/error.h"
#include "planner/model/delta.h"
#include "planner/model/ssm.h"
#include "planner/schedule/scratch.h"
#include "sim/cost/cost-private.h"

/* Tiles that a GEMM kernel may use, the fastest first, with the parameter that holds their rate
 * relative to the first. */
static const struct
{
  gint64 rows, cols;
  SimParam rate;
} tiles[] = {
  { 128, 256, SIM_N_PARAMS },
  { 128, 128, SIM_PARAM_PRODUCT_TILE_2 },
  { 64, 128, SIM_PARAM_PRODUCT_TILE_4 },
  { 64, 64, SIM_PARAM_PRODUCT_TILE_8 },
};

/* Numbers of parts into which the inner dimension may be split when there are few tiles. */
static const gint64 splits[] = { 1, 2, 4, 8 };

#define ATTENTION_ROWS 128 /* queries that one block of an attention kernel holds */
#define REFERENCE_HEAD 128 /* head size at which attention's shares are stated */
#define ALIGNMENT_BITS 128 /* bits that one load of a tile's row takes */

static const PlanBuffer *
operand (const SimCostInput *input, const PlanOp *op, guint i)
{
  return plan_schedule_buffer (input->schedule, (guint)op->refs[i].array);
}

static double
operand_bytes (const SimCostInput *input, const PlanOp *op, guint i)
{
  return (double)plan_dtype_bytes (operand (input, op, i)->dtype, plan_op_ref_elements (op, i, 1));
}

/* Whether a format has a scale per tensor, possibly beside those of its blocks. */
static gboolean
has_tensor_scale (PlanDtype dtype)
{
  return plan_dtype_block (dtype) == 0 || dtype == PLAN_DTYPE_NVFP4;
}

/* The share of v in the rows that hold q, k and v. */
static double
values_share (gint64 heads, gint64 kv_heads)
{
  return (double)kv_heads / (double)(heads + 2 * kv_heads);
}

gboolean
sim_cost_turns_by_ops (const SimCostInput *input, const PlanOp *op)
{
  const gint64 stack = input->stack->id;
  return op->kind == PLAN_OP_ROPE
         && (stack == PLAN_STACK_MEGATRON || stack == PLAN_STACK_MEGATRON_FSDP) && input->model
         && plan_rope_magnitude (&input->model->rope) != 1;
}

/* Bytes that ops move where each is a kernel: half of the elements negated, two halves joined, two
 * products, their sum and a copy; backwards two products, a negation, two halves joined, their sum,
 * and two tensors of zeros, of which one gets the gradient, with their sum. The fused kernel reads
 * and writes once, which the op's operand stands for. */
static double
traffic_of_turning (const SimCostInput *input, const PlanOp *op)
{
  const double of_values
      = values_share (op->dims[PLAN_DIM_ROPE_heads], op->dims[PLAN_DIM_ROPE_kv_heads]);
  const double passes = op->dims[PLAN_DIM_ROPE_inverse] ? 17 : 12;
  return (passes - 2) * (1 - of_values) * operand_bytes (input, op, PLAN_REF_ROPE_qkv);
}

gboolean
sim_cost_is_own_gpu (const SimCostInput *input)
{
  return input->stack->id == PLAN_STACK_NATIVE && input->cluster->kind != PLAN_DEVICE_CPU;
}

/* Magnitudes of blocks are in bf16, those of whole parameters and of squares in fp32. */
gboolean
sim_cost_has_blocks (const SimCostInput *input, const PlanOp *op)
{
  return operand (input, op, PLAN_REF_PARAM_AMAX_amax)->dtype == PLAN_DTYPE_BF16;
}

/* Bytes that our own GPU kernels move beyond an op's operands (exec/cuda). Gradients of norms write
 * sums of parts of the rows and read them again; RoPE leaves values where they lie, so it moves
 * less; a quantiser that is given no scale first reads the whole tensor to find one; parameters are
 * read once for magnitudes along rows and once for those along columns. */
static double
own_traffic (const SimCostInput *input, const PlanOp *op)
{
  if (!sim_cost_is_own_gpu (input))
    return 0;
  if (op->kind == PLAN_OP_PARAM_AMAX)
    return sim_cost_has_blocks (input, op) ? operand_bytes (input, op, PLAN_REF_PARAM_AMAX_in) : 0;
  if (op->kind == PLAN_OP_ROPE)
    return -2 * values_share (op->dims[PLAN_DIM_ROPE_heads], op->dims[PLAN_DIM_ROPE_kv_heads])
           * operand_bytes (input, op, PLAN_REF_ROPE_qkv);
  if (op->kind == PLAN_OP_QUANTIZE || op->kind == PLAN_OP_GROUPED_QUANTIZE)
    return ((op->kind == PLAN_OP_GROUPED_QUANTIZE
             && op->refs[PLAN_REF_GROUPED_QUANTIZE_scale].array < 0)
            || (op->kind == PLAN_OP_QUANTIZE && op->refs[PLAN_REF_QUANTIZE_scale].array < 0
                && op->refs[PLAN_REF_QUANTIZE_largest].array < 0))
                   && has_tensor_scale (operand (input, op, PLAN_REF_QUANTIZE_out)->dtype)
               ? operand_bytes (input, op, PLAN_REF_QUANTIZE_in)
               : 0;
  return 2.0 * sizeof (float) * (double)plan_scratch_norm_elements (op->kind, op->dims);
}

/* Elements of an operand that move: of a table, the rows that are looked up or added to. */
static guint64
elements_moved (const PlanOp *op, guint i, guint ranks)
{
  if (op->kind == PLAN_OP_EMBED && i == PLAN_REF_EMBED_table)
    i = PLAN_REF_EMBED_out;
  else if (op->kind == PLAN_OP_INDEX_ROWS && i == PLAN_REF_INDEX_ROWS_in)
    i = PLAN_REF_INDEX_ROWS_out;
  else if (op->kind == PLAN_OP_ADD_ROWS && i == PLAN_REF_ADD_ROWS_out)
    i = PLAN_REF_ADD_ROWS_in;
  else if (op->kind == PLAN_OP_JOIN_ROWS) /* all joined rows, wherever each of them lies */
    i = PLAN_REF_JOIN_ROWS_out;
  /* Sorting writes to its work space and reads that back. */
  const guint64 times = op->kind == PLAN_OP_SORT && i == PLAN_REF_SORT_work ? 2 : 1;
  return times * plan_op_ref_elements (op, i, ranks);
}

double
sim_cost_traffic (const SimCostInput *input, const PlanOp *op)
{
  const guint ranks = plan_schedule_group_size (input->schedule, op);
  double bytes = own_traffic (input, op);
  if (sim_cost_turns_by_ops (input, op))
    bytes += traffic_of_turning (input, op);
  for (guint i = 0; i < plan_op_n_refs (op->kind); i++)
    {
      if (op->refs[i].array < 0)
        continue;
      const char access = plan_op_ref_access (op->kind, i);
      bytes
          += (double)plan_dtype_bytes (operand (input, op, i)->dtype, elements_moved (op, i, ranks))
             * (access == 'u' ? 2 : 1);
    }
  return bytes;
}

static SimTime
time_by_curve (const SimCostInput *input, double seconds, double memory)
{
  return (SimTime){ .seconds = seconds,
                    .memory = memory,
                    .provenance
                    = input->params->is_fitted ? SIM_PROVENANCE_FITTED : SIM_PROVENANCE_DATASHEET };
}

static double
memory_seconds (const SimCostInput *input, double bytes, SimParam share)
{
  return bytes / (input->cluster->memory_bytes_per_s * sim_cost_param (input, share));
}

static SimFormat
format_of (PlanDtype dtype)
{
  switch (dtype)
    {
    case PLAN_DTYPE_FP32:
      return SIM_FORMAT_FP32;
    case PLAN_DTYPE_MXFP8:
      return SIM_FORMAT_MXFP8;
    case PLAN_DTYPE_NVFP4:
    case PLAN_DTYPE_E2M1:
      return SIM_FORMAT_NVFP4;
    default:
      return plan_dtype_bits (dtype) < 16 ? SIM_FORMAT_FP8 : SIM_FORMAT_BF16;
    }
}

static gboolean
rounds_to_tf32 (const SimCostInput *input, PlanDtype dtype)
{
  return dtype == PLAN_DTYPE_FP32 && input->stack->layer.kernels == PLAN_KERNELS_TRANSFORMER_ENGINE
         && input->cluster->peak_tf32_flops > 0;
}

static double
sheet_rate (const SimCostInput *input, PlanDtype dtype)
{
  return rounds_to_tf32 (input, dtype) ? input->cluster->peak_tf32_flops
                                       : input->cluster->peak_flops[dtype];
}

static gboolean
is_grouped (PlanOpKind kind)
{
  return kind == PLAN_OP_GROUPED_GEMM || kind == PLAN_OP_GROUPED_GEMM_ADD;
}

double
sim_cost_peak_flops (const SimCostInput *input, const PlanOp *op)
{
  const gboolean is_product = plan_op_cost (op->kind) == PLAN_COST_PRODUCT;
  const guint read = is_product ? PLAN_REF_GEMM_a : PLAN_REF_ATTENTION_qkv;
  return sheet_rate (input, operand (input, op, read)->dtype);
}

/* The peak rate of a format, and the share of it that GEMMs reach. 0, with an error, where no rate
 * is known. */
static double
peak_of (const SimCostInput *input, PlanDtype dtype, double *out_share, GError **error)
{
  const PlanCluster *c = input->cluster;
  const double peak = sheet_rate (input, dtype);
  const SimFormat format = rounds_to_tf32 (input, dtype) ? SIM_FORMAT_BF16 : format_of (dtype);
  *out_share = input->params->value[SIM_PARAM_PRODUCT_FP32 + (SimParam)format];
  if (peak <= 0)
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
                 "cluster %s: no %s rate is known for %s, which this plan computes in", c->name,
                 plan_dtype_name (dtype), c->device_name);
  return peak;
}

static gint64
divide_up (gint64 a, gint64 b)
{
  return (a + b - 1) / b;
}

/* Number of streams over which the GEMMs of experts are spread, so that as many GEMMs share the
 * processors (Transformer Engine, common/gemm/cublaslt_gemm.cu and common/util/multi_stream.cpp at
 * d0067d0d). */
#define GROUPED_STREAMS 4

/* The number of GEMMs of experts that run side by side. Our own runtime issues one after the other
 * (exec/cuda/gemm-grouped.c). */
static gint64
gemms_beside (const SimCostInput *input, gint64 groups)
{
  const gboolean is_own
      = input->stack->layer.kernels == PLAN_KERNELS_OWN && input->cluster->kind == PLAN_DEVICE_GPU;
  return is_own ? 1 : MIN (groups, GROUPED_STREAMS);
}

/* The shape of a GEMM, or of each of several equal ones. */
typedef struct
{
  gint64 m, n, k, groups;
} Shape;

static Shape
shape_of (const PlanOp *op)
{
  Shape shape = { op->dims[0], op->dims[1], op->dims[2], 1 };
  if (!is_grouped (op->kind))
    return shape;
  shape.groups = op->dims[PLAN_DIM_GROUPED_GEMM_groups];
  gint64 *shared = op->dims[PLAN_DIM_GROUPED_GEMM_layout] >= 2 ? &shape.k : &shape.m;
  *shared = divide_up (*shared, shape.groups);
  return shape;
}

/* Seconds of a GEMM's arithmetic. Tiles are spread over the processors in waves, the last of which
 * is not full, and starting each tile takes a time that weighs most when the inner dimension is
 * short. The best combination of tile and split is taken, as a library's heuristic would pick it;
 * the parts of a split are summed through memory. */
static double
product_seconds (const SimCostInput *input, const PlanOp *op, double rate, double element_bytes)
{
  const Shape shape = shape_of (op);
  const gint64 m = shape.m, n = shape.n, k = shape.k;
  const gint64 beside = gemms_beside (input, shape.groups);
  const gint64 turns = divide_up (shape.groups, beside);
  const gint64 processors = input->cluster->sm_count;
  const double fill = sim_cost_param (input, SIM_PARAM_PRODUCT_FILL) / element_bytes;
  if (processors <= 0)
    return plan_op_flops (op) * (1 + fill / (double)k) / rate;
  double best = G_MAXDOUBLE;
  for (guint t = 0; t < G_N_ELEMENTS (tiles); t++)
    for (guint s = 0; s < G_N_ELEMENTS (splits); s++)
      {
        const gint64 rows = tiles[t].rows, cols = tiles[t].cols, split = splits[s];
        const double of_best = t == 0 ? 1 : sim_cost_param (input, tiles[t].rate);
        const gint64 waves
            = turns
              * divide_up (beside * divide_up (m, rows) * divide_up (n, cols) * split, processors);
        const double tile = 2.0 * (double)(rows * cols) * ((double)divide_up (k, split) + fill);
        const double parts = split == 1 ? 0 : 8.0 * (double)(m * n * split) * (double)shape.groups;
        const double seconds = (double)waves * tile * (double)processors / (rate * of_best)
                               + memory_seconds (input, parts, SIM_PARAM_PRODUCT_MEMORY);
        best = MIN (best, seconds);
      }
  return best;
}

/* Whether the rows of all three matrices are whole multiples of one load. */
static gboolean
is_aligned (const SimCostInput *input, const PlanOp *op)
{
  const gint64 m = op->dims[PLAN_DIM_GEMM_m], n = op->dims[PLAN_DIM_GEMM_n],
               k = op->dims[PLAN_DIM_GEMM_k], layout = op->dims[PLAN_DIM_GEMM_layout];
  const gint64 columns[] = { n, layout >= 2 ? m : k, layout == 1 ? k : n };
  for (guint i = 0; i < G_N_ELEMENTS (columns); i++)
    if (columns[i] * plan_dtype_bits (operand (input, op, i)->dtype) % ALIGNMENT_BITS != 0)
      return FALSE;
  return TRUE;
}

static SimTime
product_time (const SimCostInput *input, const PlanOp *op, GError **error)
{
  const PlanDtype dtype = operand (input, op, PLAN_REF_GEMM_a)->dtype;
  const double bytes = sim_cost_traffic (input, op);
  const SimProduct product = { .m = op->dims[PLAN_DIM_GEMM_m],
                               .n = op->dims[PLAN_DIM_GEMM_n],
                               .k = op->dims[PLAN_DIM_GEMM_k],
                               .layout = op->dims[PLAN_DIM_GEMM_layout],
                               .in = dtype,
                               .out = operand (input, op, PLAN_REF_GEMM_out)->dtype,
                               .accumulates = op->kind == PLAN_OP_GEMM_ADD };
  const double sustained = sim_cost_param (input, SIM_PARAM_PRODUCT_SUSTAINED);
  const gboolean has_table = input->measurements && !is_grouped (op->kind);
  double flops_per_s, share;
  if (has_table && sim_measurements_find (input->measurements, &product, &flops_per_s))
    return (SimTime){ .seconds = plan_op_flops (op) / (flops_per_s * sustained),
                      .memory = bytes,
                      .provenance = SIM_PROVENANCE_MEASURED };
  if (has_table && sim_measurements_interpolate (input->measurements, &product, &flops_per_s))
    return (SimTime){ .seconds = plan_op_flops (op) / (flops_per_s * sustained),
                      .memory = bytes,
                      .provenance = SIM_PROVENANCE_INTERPOLATED };
  const double peak = peak_of (input, dtype, &share, error);
  if (peak <= 0)
    return (SimTime){ .seconds = -1 };
  const double aligned
      = is_aligned (input, op) ? 1 : sim_cost_param (input, SIM_PARAM_PRODUCT_UNALIGNED);
  const double arithmetic
      = product_seconds (input, op, peak * share * aligned, plan_dtype_bits (dtype) / 8.0);
  const double memory = memory_seconds (input, bytes, SIM_PARAM_PRODUCT_MEMORY);
  const gint64 groups = shape_of (op).groups;
  const double begin = 1e-9 * sim_cost_param (input, SIM_PARAM_PRODUCT_NS)
                       * (double)divide_up (groups, gemms_beside (input, groups));
  return time_by_curve (input, MAX (arithmetic, memory) + begin, bytes);
}

/* Whether our own runtime does this attention by batched GEMMs, because cuDNN has no graph for it
 * (exec/cuda/attention-fused.c). */
static gboolean
is_by_batches (const SimCostInput *input, const PlanOp *op, gboolean is_latent)
{
  const PlanManner *manner = plan_schedule_manner (input->schedule, op);
  const gboolean is_bwd = op->kind == PLAN_OP_ATTENTION_BWD;
  const guint key = is_bwd ? PLAN_REF_ATTENTION_BWD_key : PLAN_REF_ATTENTION_key,
              places = is_bwd ? PLAN_REF_ATTENTION_BWD_places : PLAN_REF_ATTENTION_places;
  if (input->stack->layer.kernels != PLAN_KERNELS_OWN || input->cluster->kind == PLAN_DEVICE_CPU)
    return FALSE;
  return is_latent || op->refs[key].array >= 0 || op->refs[places].array >= 0
         || (manner
             && (manner->value[PLAN_MANNER_CAP] > 0 || manner->value[PLAN_MANNER_ALIBI] != 0))
         || !plan_scratch_attention_is_fused (op->kind, op->dims,
                                              operand (input, op, PLAN_REF_ATTENTION_qkv)->dtype,
                                              input->cluster->compute_capability);
}

/* Bytes of scores that batched GEMMs and the softmax between them move through memory, half of the
 * pairs of queries and keys being masked. Forwards a score in fp32 is written and read, and so is
 * its weight. Backwards two of each pair in fp32 are, two results are written, and three products
 * read them. */
static double
score_bytes (const SimCostInput *input, const PlanOp *op, gboolean is_bwd, double keys)
{
  const double format = plan_dtype_bits (operand (input, op, PLAN_REF_ATTENTION_qkv)->dtype) / 8.0;
  const double pairs = 0.5 * (double)op->dims[PLAN_DIM_ATTENTION_batch]
                       * (double)op->dims[PLAN_DIM_ATTENTION_heads]
                       * (double)op->dims[PLAN_DIM_ATTENTION_seq] * keys;
  return pairs * (is_bwd ? 16 + 5 * format : 8 + 2 * format);
}

/* The time of attention. Its rate grows with the number of keys, since each row of blocks pays for
 * its start; with the head size, since some work is done once per score; and with the number of
 * blocks until all processors are busy. Batched GEMMs count as these kernels; their scores go
 * through memory besides. */
static SimTime
attention_time (const SimCostInput *input, const PlanOp *op, GError **error)
{
  const gboolean is_bwd
      = op->kind == PLAN_OP_ATTENTION_BWD || op->kind == PLAN_OP_LATENT_ATTENTION_BWD;
  const gboolean is_latent
      = op->kind == PLAN_OP_LATENT_ATTENTION || op->kind == PLAN_OP_LATENT_ATTENTION_BWD;
  const gboolean is_made_for_ampere = input->stack->layer.kernels == PLAN_KERNELS_PYTORCH;
  const SimParam of_peak = is_bwd ? SIM_PARAM_ATTENTION_BWD : SIM_PARAM_ATTENTION;
  const SimParam of_share = is_bwd ? SIM_PARAM_ATTENTION_BWD_AMPERE : SIM_PARAM_ATTENTION_AMPERE;
  const SimParam of_head
      = is_made_for_ampere ? SIM_PARAM_ATTENTION_AMPERE_HEAD : SIM_PARAM_ATTENTION_HEAD;
  const SimParam half = is_bwd ? SIM_PARAM_ATTENTION_BWD_HALF : SIM_PARAM_ATTENTION_HALF;
  const double keys
      = (double)op->dims[is_latent ? PLAN_DIM_LATENT_ATTENTION_keys : PLAN_DIM_ATTENTION_keys];
  const double head
      = (double)
            op->dims[is_latent ? PLAN_DIM_LATENT_ATTENTION_head_dim : PLAN_DIM_ATTENTION_head_dim];
  const double head_half = sim_cost_param (input, of_head);
  const double by_head = head / (head + head_half) * (REFERENCE_HEAD + head_half) / REFERENCE_HEAD;
  const gint64 blocks = op->dims[PLAN_DIM_ATTENTION_batch] * op->dims[PLAN_DIM_ATTENTION_heads]
                        * divide_up (op->dims[PLAN_DIM_ATTENTION_seq], ATTENTION_ROWS);
  const gint64 processors = input->cluster->sm_count;
  const double busy = processors > 0 ? MIN (1, (double)blocks / (double)processors) : 1;
  double unused;
  const double peak
      = peak_of (input, operand (input, op, PLAN_REF_ATTENTION_qkv)->dtype, &unused, error);
  if (peak <= 0)
    return (SimTime){ .seconds = -1 };
  const double share = is_made_for_ampere ? sim_cost_param (input, of_share) : 1;
  const double rate = peak * share * sim_cost_param (input, of_peak)
                      * (keys / (keys + sim_cost_param (input, half))) * MIN (by_head, 1) * busy;
  const double bytes = sim_cost_traffic (input, op);
  const double scores
      = is_by_batches (input, op, is_latent) ? score_bytes (input, op, is_bwd, keys) : 0;
  const double seconds
      = MAX (plan_op_flops (op) / rate, memory_seconds (input, bytes, SIM_PARAM_TRAFFIC_COPY))
        + memory_seconds (input, scores, SIM_PARAM_TRAFFIC_COPY);
  return time_by_curve (input, seconds + 1e-9 * sim_cost_param (input, SIM_PARAM_ATTENTION_NS),
                        bytes + scores);
}

/* Columns of values that one block of the kernels that hand states on holds, forward and backward
 * (fla/ops/common/chunk_delta_h.py, BV, of which the fastest is taken). */
#define DELTA_COLUMNS 64
#define DELTA_BWD_COLUMNS 32

/* The time of the gated delta rule. What chunks have in themselves goes side by side. States are
 * handed from chunk to chunk by kernels of few blocks, so that a sequence takes its time however
 * few heads there are. */
static SimTime
delta_time (const SimCostInput *input, const PlanOp *op, GError **error)
{
  const gboolean is_bwd = op->kind == PLAN_OP_DELTA_RULE_BWD;
  const gint64 columns = is_bwd ? DELTA_BWD_COLUMNS : DELTA_COLUMNS;
  const gint64 blocks = op->dims[PLAN_DIM_DELTA_RULE_batch] * op->dims[PLAN_DIM_DELTA_RULE_heads]
                        * divide_up (op->dims[PLAN_DIM_DELTA_RULE_value_dim], columns);
  const gint64 processors = input->cluster->sm_count;
  const gint64 waves = processors > 0 ? divide_up (blocks, processors) : 1;
  const gint64 chunks = divide_up (op->dims[PLAN_DIM_DELTA_RULE_seq], PLAN_DELTA_CHUNK);
  const double chunk_ns
      = sim_cost_param (input, is_bwd ? SIM_PARAM_DELTA_BWD_CHUNK_NS : SIM_PARAM_DELTA_CHUNK_NS);
  const double share = sim_cost_param (input, is_bwd ? SIM_PARAM_DELTA_BWD : SIM_PARAM_DELTA);
  const guint read = is_bwd ? PLAN_REF_DELTA_RULE_BWD_qkv : PLAN_REF_DELTA_RULE_qkv;
  double unused;
  const double peak = peak_of (input, operand (input, op, read)->dtype, &unused, error);
  if (peak <= 0)
    return (SimTime){ .seconds = -1 };
  return time_by_curve (
      input, plan_op_flops (op) / (peak * share) + 1e-9 * chunk_ns * (double)(waves * chunks),
      sim_cost_traffic (input, op));
}

/* Bytes by which several sequences are brought from the order in which products have tokens into
 * that of the scan, and back (mamba_mixer.py, rearrange). */
static double
turned_bytes (const PlanOp *op)
{
  const gint64 *d = op->dims;
  const gint64 rows = d[PLAN_DIM_SSM_SCAN_batch] * d[PLAN_DIM_SSM_SCAN_seq];
  const PlanSsm m = { .heads = d[PLAN_DIM_SSM_SCAN_heads],
                      .head_dim = d[PLAN_DIM_SSM_SCAN_head_dim],
                      .groups = d[PLAN_DIM_SSM_SCAN_groups],
                      .state = d[PLAN_DIM_SSM_SCAN_state] };
  return d[PLAN_DIM_SSM_SCAN_batch] > 1
             ? 4.0 * (double)(rows * (plan_ssm_projected (&m) + plan_ssm_inner (&m)))
             : 0;
}

/* The time of a state space's scan: of its products, and of what its kernels move between them,
 * which is written and read again. */
static SimTime
ssm_time (const SimCostInput *input, const PlanOp *op, GError **error)
{
  const gboolean is_bwd = op->kind == PLAN_OP_SSM_SCAN_BWD;
  const guint in = is_bwd ? PLAN_REF_SSM_SCAN_BWD_in : PLAN_REF_SSM_SCAN_in;
  const guint work = is_bwd ? PLAN_REF_SSM_SCAN_BWD_work : PLAN_REF_SSM_SCAN_work;
  const double bits = plan_dtype_bits (operand (input, op, work)->dtype);
  const double bytes = sim_cost_traffic (input, op)
                       + (double)op->dims[PLAN_DIM_SSM_SCAN_room] * bits / 8 + turned_bytes (op);
  double unused;
  const double peak = peak_of (input, operand (input, op, in)->dtype, &unused, error);
  if (peak <= 0)
    return (SimTime){ .seconds = -1 };
  return time_by_curve (input,
                        plan_op_flops (op) / (peak * sim_cost_param (input, SIM_PARAM_SSM))
                            + memory_seconds (input, bytes, SIM_PARAM_TRAFFIC_COPY),
                        bytes);
}

/* How many times an op moves its operands. A cross entropy that keeps a second image of the logits
 * goes over them several times. Gradients that are clipped in place are read again and written
 * after their norm is known. */
static double
passes (const SimCostInput *input, const PlanOp *op, SimParam class)
{
  if (op->kind == PLAN_OP_NORM_SQ && input->stack->optimizer.kind == PLAN_OPTIMIZER_TORCH)
    return 3;
  if (class != SIM_PARAM_TRAFFIC_LOSS || input->stack->loss.kind != PLAN_LOSS_IMAGE)
    return 1;
  static const SimParam params[] = { [PLAN_CE_FUSION_OFF] = SIM_PARAM_LOSS_PASSES_UNFUSED,
                                     [PLAN_CE_FUSION_ON] = SIM_PARAM_LOSS_PASSES,
                                     [PLAN_CE_FUSION_TE] = SIM_PARAM_LOSS_PASSES_TE };
  const gint64 fusion = input->plan ? input->plan->value[PLAN_CE_FUSION] : PLAN_CE_FUSION_ON;
  return sim_cost_param (input, params[fusion]);
}

/* Seconds of ops that use the host's memory beside a GPU: copies at the rate of the link between
 * device and host, host ops at this device's share of the host's memory bandwidth. A copy reads on
 * one side what it writes on the other, so its bytes count once. */
static SimTime
host_time (const SimCostInput *input, const PlanOp *op, GError **error)
{
  const PlanCluster *c = input->cluster;
  const gboolean is_copy = op->kind == PLAN_OP_COPY;
  const double share = sim_cost_param (input, SIM_PARAM_TRAFFIC_COPY);
  const double rate = is_copy ? c->host_link_bytes_per_s * share
                              : c->host_memory_bytes_per_s * share / (double)c->devices_per_node;
  const double bytes = sim_cost_traffic (input, op) / (is_copy ? 2 : 1);
  if (rate > 0)
    return time_by_curve (input, bytes / rate, is_copy ? bytes : 0);
  sim_cost_refuse (c, is_copy ? PLAN_FACT_HOST_BANDWIDTH : PLAN_FACT_HOST_MEMORY_BANDWIDTH, error);
  return (SimTime){ .seconds = -1 };
}

static SimTime
traffic_time (const SimCostInput *input, const PlanOp *op, SimParam class)
{
  G_STATIC_ASSERT ((int)PLAN_REF_QUANTIZE_col == (int)PLAN_REF_PARAM_QUANTIZE_col);
  const gboolean is_grouped = op->kind == PLAN_OP_GROUPED_QUANTIZE;
  const gboolean quantises
      = is_grouped || op->kind == PLAN_OP_QUANTIZE || op->kind == PLAN_OP_PARAM_QUANTIZE;
  const gint64 kernels
      = plan_op_work (op->kind) == PLAN_WORK_QUANTISE ? sim_cost_calls (input, op) : 1;
  if (quantises && op->refs[PLAN_REF_QUANTIZE_col].array < 0) /* it makes no transposed copy */
    class = SIM_PARAM_TRAFFIC_QUANTIZE;
  const double bytes = sim_cost_traffic (input, op) * passes (input, op, class);
  return time_by_curve (input,
                        memory_seconds (input, bytes, class)
                            + 1e-9 * (double)kernels * sim_cost_param (input, SIM_PARAM_KERNEL_NS),
                        bytes);
}

SimTime
sim_cost_compute (const SimCostInput *input, const PlanOp *op, GError **error)
{
  switch (plan_op_cost (op->kind))
    {
#define X(id, name) \
  case PLAN_COST_##id: \
    return traffic_time (input, op, SIM_PARAM_TRAFFIC_##id);
      PLAN_TRAFFIC_LIST (X)
#undef X
    case PLAN_COST_PRODUCT:
      return product_time (input, op, error);
    case PLAN_COST_ATTENTION:
      return attention_time (input, op, error);
    case PLAN_COST_DELTA:
      return delta_time (input, op, error);
    case PLAN_COST_SSM:
      return ssm_time (input, op, error);
    case PLAN_COST_HOST_COPY: /* processors have one memory, within which it is a plain copy */
      return input->cluster->kind == PLAN_DEVICE_CPU
                 ? traffic_time (input, op, SIM_PARAM_TRAFFIC_COPY)
                 : host_time (input, op, error);
    case PLAN_COST_HOST_OPTIMIZER: /* they are the host themselves */
      return input->cluster->kind == PLAN_DEVICE_CPU
                 ? traffic_time (input, op, SIM_PARAM_TRAFFIC_OPTIMIZER)
                 : host_time (input, op, error);
    case PLAN_COST_COLLECTIVE: /* cost-collective.c */
    case PLAN_COST_NONE:
    case PLAN_N_COSTS:
      break;
    }
  g_assert_not_reached ();
}
