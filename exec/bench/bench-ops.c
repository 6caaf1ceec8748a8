/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the ops to time and chooses their sizes. */
#include "config.h"

#include "exec/bench/bench.h"

#include "planner/base/units.h"
#include "planner/lower/lower.h"
#include "planner/schedule/scratch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GPT2 "family=gpt2,layers=2,hidden=64,ffn=256,heads=2,vocab=256,max_seq=64"
#define QWEN3 \
  "family=qwen3,layers=2,hidden=64,heads=2,kv_heads=1,head_dim=32,ffn=128,vocab=256,max_seq=64"
/* A model whose matrices consist of whole blocks in every number format. */
#define LLAMA \
  "family=llama,layers=2,hidden=256,ffn=512,heads=4,kv_heads=2,head_dim=64,vocab=512,max_seq=128"

/* A plan that is lowered to find ops, given as a model and fields. Where `is_for_params`, only
 * the ops that quantise and move parameters are taken: its matrix products need block scales in an
 * array of their own, which an op that is timed alone does not have. */
typedef struct
{
  const char *model, *fields;
  gboolean is_for_params;
} Source;

/* Plans that together contain every op the CPU backend runs, in every number format. */
static const Source cpu_sources[] = {
  { "llama-tiny", "compute=fp32", FALSE },
  { "llama-tiny", "compute=bf16", FALSE },
  { "llama-tiny",
    "compute=bf16 main_grads=bf16 grad_comm=bf16 exp_avg=bf16 exp_avg_sq=bf16 "
    "precision_aware=on",
    FALSE },
  { "llama-tiny", "compute=bf16 strategy=no_shard main_params=fp32", FALSE },
  { "llama-tiny", "compute=fp32 strategy=optim reduce_algo=a2a", FALSE },
  { "llama-tiny", "compute=bf16 optimizer=sgd", FALSE },
  { "llama-tiny", "compute=fp32 ce_fusion=off", FALSE },
  { "llama-tiny", "compute=bf16 loss_chunks=2", FALSE },
  { "llama-tiny", "compute=bf16 offload_layers=1", FALSE },
  { "llama-tiny", "compute=bf16 precision_aware=on offload_optimizer=0.5", FALSE },
  { GPT2, "compute=fp32", FALSE },
  { GPT2, "compute=bf16", FALSE },
  { GPT2, "compute=fp32 hidden_dropout=0.1", FALSE },
  { GPT2, "compute=bf16 hidden_dropout=0.1", FALSE },
  { QWEN3, "compute=fp32", FALSE },
  { QWEN3, "compute=bf16", FALSE },
  { NULL, NULL, FALSE },
};

/* The same for GPUs, including what only Hopper or Blackwell can do. */
static const Source gpu_sources[] = {
  { LLAMA, "compute=fp32 seq=128", FALSE },
  { LLAMA, "compute=bf16 seq=128", FALSE },
  { LLAMA, "compute=bf16 seq=128 main_grads=fp32", FALSE },
  { LLAMA, "compute=bf16 seq=128 main_grads=fp32 grad_accum_fusion=on", FALSE },
  { LLAMA,
    "compute=bf16 seq=128 main_grads=bf16 grad_comm=bf16 exp_avg=bf16 exp_avg_sq=bf16 "
    "precision_aware=on",
    FALSE },
  { LLAMA, "compute=bf16 seq=128 exp_avg=bf16 precision_aware=on", FALSE },
  { LLAMA, "compute=bf16 seq=128 exp_avg=fp16 exp_avg_sq=fp16 precision_aware=on", FALSE },
  { LLAMA, "compute=bf16 seq=128 exp_avg=bf16 exp_avg_sq=bf16 precision_aware=on", FALSE },
  { LLAMA, "compute=bf16 seq=128 exp_avg=fp8 exp_avg_sq=fp8 precision_aware=on", FALSE },
  { LLAMA, "compute=bf16 seq=128 exp_avg=fp8 exp_avg_sq=fp16 precision_aware=on", FALSE },
  { LLAMA, "compute=bf16 seq=128 strategy=no_shard main_params=fp32", FALSE },
  { LLAMA, "compute=bf16 seq=128 strategy=optim reduce_algo=a2a", FALSE },
  { LLAMA, "compute=bf16 seq=128 optimizer=sgd", FALSE },
  { LLAMA, "compute=bf16 seq=128 ce_fusion=off", FALSE },
  { GPT2, "compute=bf16", FALSE },
  { QWEN3, "compute=bf16", FALSE },
  { LLAMA, "compute=fp8-tensorwise param_gather=fp8 seq=128", TRUE },
  { LLAMA, "compute=fp8-delayed param_gather=fp8 seq=128", TRUE },
  { LLAMA, "compute=fp8-blockwise param_gather=fp8 seq=128", TRUE },
  { LLAMA, "compute=mxfp8 param_gather=mxfp8 seq=128", TRUE },
  { LLAMA, "compute=nvfp4 param_gather=nvfp4 seq=128", TRUE },
  { LLAMA, "compute=fp8-delayed param_gather=fp8 seq=128", FALSE },
  { LLAMA,
    "compute=fp8-delayed param_gather=fp8 seq=128 exp_avg=fp8 exp_avg_sq=fp16 precision_aware=on",
    FALSE },
  { LLAMA, "compute=fp8-delayed seq=128", FALSE },
  { LLAMA, "compute=fp8-tensorwise seq=128", FALSE },
  { LLAMA, "compute=fp8-tensorwise seq=128 main_grads=fp32", FALSE },
  { LLAMA, "compute=fp8-blockwise seq=128", FALSE },
  { LLAMA, "compute=fp8-blockwise seq=128 main_grads=fp32", FALSE },
  { LLAMA, "compute=mxfp8 seq=128", FALSE },
  { LLAMA, "compute=mxfp8 seq=128 main_grads=fp32", FALSE },
  { LLAMA, "compute=nvfp4 seq=128", FALSE },
  { LLAMA, "compute=nvfp4 seq=128 main_grads=fp32", FALSE },
  { NULL, NULL, FALSE },
};

#define MAX_AXES 3

/* A dim of an op and the sizes it takes, ended by a 0. Where `dim` is NULL, the op has one size. */
typedef struct
{
  const char *dim;
  gint64 sizes[8];
} Axis;

/* The sizes of ops whose names begin with `prefix`; the first such grid of a list is taken. */
typedef struct
{
  const char *prefix;
  Axis axes[MAX_AXES];
} Grid;

static const Grid cpu_grids[] = {
  { "gemm",
    { { "m", { 16, 64, 256, 1024, 4096 } },
      { "n", { 16, 64, 256, 1024, 4096 } },
      { "k", { 16, 64, 256, 1024, 4096 } } } },
  { "attention", { { "seq", { 16, 64, 256, 1024 } }, { "head_dim", { 16, 64, 128 } } } },
  { "cross_entropy", { { "rows", { 16, 128, 1024 } }, { "cols", { 256, 4096, 32768 } } } },
  { "loss_grad", { { "rows", { 16, 128, 1024 } }, { "cols", { 256, 4096, 32768 } } } },
  { "embed_bwd",
    { { "rows", { 16, 256, 4096 } },
      { "cols", { 64, 512, 2048 } },
      { "vocab", { 256, 4096, 32768 } } } },
  { "rope", { { "rows", { 16, 128, 1024, 8192 } }, { "heads", { 1, 8, 32 } } } },
  { "head_norm", { { "rows", { 16, 128, 1024, 8192 } }, { "heads", { 1, 8, 32 } } } },
  { "clip", { { NULL, { 0 } } } },
  { "", { { "rows", { 16, 128, 1024, 8192 } }, { "cols", { 64, 512, 4096 } } } },
};

/* Sizes that the catalogue's models have on one GPU: micro batches of 512 to 32 thousand tokens,
 * widths of 1 to 28 thousand, vocabularies of 32 to 160 thousand. Between two sizes time is
 * interpolated linearly, and a product's arithmetic is linear in each dim, so sizes may lie far
 * apart; what matters is the rate at the corners. */
static const Grid gpu_grids[] = {
  { "gemm",
    { { "m", { 256, 1024, 4096, 16384, 32768, 163840 } },
      { "n", { 256, 1024, 4096, 16384, 32768, 163840 } },
      { "k", { 256, 1024, 4096, 16384, 32768, 163840 } } } },
  { "attention", { { "seq", { 512, 2048, 8192, 32768 } }, { "head_dim", { 64, 128 } } } },
  { "cross_entropy", { { "rows", { 512, 4096, 16384 } }, { "cols", { 4096, 32768, 163840 } } } },
  { "loss_grad", { { "rows", { 512, 4096, 16384 } }, { "cols", { 4096, 32768, 163840 } } } },
  { "embed_bwd",
    { { "rows", { 512, 4096, 32768 } },
      { "cols", { 1024, 8192 } },
      { "vocab", { 32768, 163840 } } } },
  { "rope", { { "rows", { 512, 4096, 32768 } }, { "heads", { 4, 16, 64 } } } },
  { "head_norm", { { "rows", { 512, 4096, 32768 } }, { "heads", { 4, 16, 64 } } } },
  { "clip", { { NULL, { 0 } } } },
  { "", { { "rows", { 512, 4096, 32768 } }, { "cols", { 1024, 4096, 16384, 32768 } } } },
};

/* What differs between kinds of devices. Times and rates are guesses, slower than today's machines.
 * Ops with more arithmetic than max_flops or more traffic than max_bytes are not timed; their time
 * is extrapolated in proportion from the largest ones. */
typedef struct
{
  const Source *sources;
  const Grid *grids;
  Axis counts; /* of ops whose only dim is a number of elements */
  double start_ns, flops_per_ns, bytes_per_ns, collective_bytes_per_ns;
  double max_flops, max_bytes;
  guint64 near_bytes;     /* more than the nearest caches hold */
  gint64 heads, kv_heads; /* of attention */
  gint64 tokens; /* of a micro batch, which has as many sequences as that takes; 0: one sequence */
} Machine;

#define GIB (1024.0 * 1024 * 1024)

static const Machine machines[] = {
  [PLAN_DEVICE_CPU] = { .sources = cpu_sources,
                        .grids = cpu_grids,
                        .counts = { "count", { 256, 4096, 65536, 1048576, 4194304, 16777216 } },
                        .start_ns = 500,
                        .flops_per_ns = 30,
                        .bytes_per_ns = 2,
                        .collective_bytes_per_ns = 2,
                        .max_flops = 4 * GIB,
                        .max_bytes = 0.25 * GIB,
                        .near_bytes = G_GUINT64_CONSTANT (8) << 20,
                        .heads = 2,
                        .kv_heads = 2 },
  [PLAN_DEVICE_GPU]
  = { .sources = gpu_sources,
      .grids = gpu_grids,
      .counts
      = { "count", { 4096, 65536, 262144, 1048576, 4194304, 16777216, 134217728, 536870912 } },
      .start_ns = 3000,
      .flops_per_ns = 300000,
      .bytes_per_ns = 1500,
      .collective_bytes_per_ns = 50,
      .max_flops = 20480 * GIB,
      .max_bytes = 16 * GIB,
      .near_bytes = G_GUINT64_CONSTANT (256) << 20,
      .heads = 8,
      .kv_heads = 2,
      .tokens = 32768 },
};

#define MAX_TURNS 64

/* A GPU is kept busy while the host issues a batch of ops, by writes that sweep even the largest
 * cache of a GPU (126 MiB). Issuing an op takes the host some microseconds, one such write takes
 * the GPU at least 16. */
#define FILLERS 8
#define FILLER_BYTES (G_GUINT64_CONSTANT (128) << 20)
#define FILLERS_NS 300e3 /* all fillers together */
#define BATCH 8          /* ops in a batch, if they may be faster than the host */
#define BATCHED_NS 100e3 /* ops that take less than this are issued in batches */

/* Operands may take an eighth of a device's memory, unless a limit is given. */
#define PARTS_OF_MEMORY 8

/* --- refusals ----------------------------------------------------------------------------- */

static void
clear_refusal (gpointer refusal)
{
  g_free (((ExecBenchRefusal *)refusal)->why);
}

GArray *
exec_bench_refusals_new (void)
{
  GArray *refusals = g_array_new (FALSE, FALSE, sizeof (ExecBenchRefusal));
  g_array_set_clear_func (refusals, clear_refusal);
  return refusals;
}

void
exec_bench_refuse (GArray *refusals, const char *why, guint n)
{
  for (guint i = 0; i < refusals->len; i++)
    {
      ExecBenchRefusal *known = &g_array_index (refusals, ExecBenchRefusal, i);
      if (g_str_equal (known->why, why))
        {
          known->n += n;
          return;
        }
    }
  const ExecBenchRefusal made = { g_strdup (why), n };
  g_array_append_val (refusals, made);
}

/* --- sizes -------------------------------------------------------------------------------- */

static gint
find_dim (PlanOpKind kind, const char *name)
{
  for (guint d = 0; name && d < plan_op_n_dims (kind); d++)
    if (strcmp (plan_op_dim_name (kind, d), name) == 0)
      return (gint)d;
  return -1;
}

static void
set_dim (PlanOp *op, const char *name, gint64 value)
{
  const gint d = find_dim (op->kind, name);
  if (d >= 0)
    op->dims[d] = value;
}

static gint64
get_dim (const PlanOp *op, const char *name)
{
  const gint d = find_dim (op->kind, name);
  return d >= 0 ? op->dims[d] : 0;
}

/* Sets the dims that follow from the chosen ones. Attention gets enough heads to fill the device;
 * other ops get as many key heads as query heads, of 64 elements. An embedding has a vocabulary of
 * 8192. */
static void
complete_dims (PlanOp *op, const Machine *machine)
{
  const gboolean is_attention = op->kind == PLAN_OP_ATTENTION || op->kind == PLAN_OP_ATTENTION_BWD;
  if (is_attention)
    {
      set_dim (op, "batch", MAX (machine->tokens / get_dim (op, "seq"), 1));
      set_dim (op, "heads", machine->heads);
      set_dim (op, "kv_heads", machine->kv_heads);
      set_dim (op, "keys", get_dim (op, "seq"));
    }
  else
    {
      set_dim (op, "head_dim", 64);
      set_dim (op, "seq", get_dim (op, "rows"));
      set_dim (op, "kv_heads", get_dim (op, "heads"));
    }
  if (op->kind == PLAN_OP_EMBED)
    set_dim (op, "vocab", 8192);
}

static double
bytes_of (const ExecBenchOp *self)
{
  double bytes = 0;
  for (guint i = 0; i < plan_op_n_refs (self->op.kind); i++)
    if (self->op.refs[i].array >= 0 && plan_op_ref_access (self->op.kind, i) != 's')
      bytes += (double)plan_dtype_bytes (self->dtype[i],
                                         plan_op_ref_elements (&self->op, i, self->ranks));
  return bytes;
}

static guint64
limit_of (const PlanCluster *cluster, guint64 max_bytes)
{
  return max_bytes > 0                      ? max_bytes
         : cluster->kind == PLAN_DEVICE_CPU ? (guint64)machines[PLAN_DEVICE_CPU].max_bytes
                                            : cluster->memory_bytes / PARTS_OF_MEMORY;
}

/* The elements of scratch, as lowering computes them. For cuDNN's attention backwards twice that:
 * on a GPU cuDNN is used only if it needs no more than it is given. */
static guint64
scratch_of (const ExecBenchOp *self, const PlanCluster *cluster)
{
  const PlanOp *op = &self->op;
  const PlanDtype dtype = self->dtype[op->kind == PLAN_OP_ATTENTION_BWD ? PLAN_REF_ATTENTION_BWD_qkv
                                                                        : PLAN_REF_ATTENTION_qkv];
  if (cluster->kind == PLAN_DEVICE_CPU)
    return plan_scratch_elements (op->kind, op->dims, PLAN_DTYPE_BF16);
  if (op->kind != PLAN_OP_ATTENTION_BWD)
    return plan_scratch_gpu_elements (op->kind, op->dims, dtype, cluster);
  return PLAN_SCRATCH_ALIGNMENT
         + (plan_scratch_attention_is_fused (op->kind, op->dims, dtype, cluster->compute_capability)
                ? 2 * plan_scratch_attention_elements (op->dims, cluster->compute_capability, FALSE)
                : plan_scratch_batched_elements (op->kind, op->dims));
}

static gboolean
is_of_params (PlanOpKind kind)
{
  return kind == PLAN_OP_PARAM_AMAX || kind == PLAN_OP_PARAM_QUANTIZE;
}

static guint64
n_magnitudes (const ExecParam *param)
{
  const guint64 count = param->rows * param->cols;
  if (param->block == PLAN_DTYPE_SIDE)
    return plan_dtype_square_scales (param->rows, param->cols);
  return param->block > 0 ? 2 * count / param->block : 1;
}

/* Sets the shapes of parameters: about the wanted number of elements in total, nearly square, in
 * whole blocks. */
static void
complete_params (ExecBenchOp *self)
{
  ExecParam *each = &self->params.each;
  const guint64 side = each->block > 0 ? each->block : 8, n = self->params.n;
  const guint64 wanted = (guint64)self->op.dims[PLAN_DIM_PARAM_QUANTIZE_count] / n;
  each->cols = side * MAX ((guint64)(sqrt ((double)wanted) / (double)side), 1);
  each->rows = side * MAX (wanted / each->cols / side, 1);
  self->op.dims[PLAN_DIM_PARAM_QUANTIZE_count] = (gint64)(n * each->rows * each->cols);
  self->op.dims[PLAN_DIM_PARAM_QUANTIZE_parts] = (gint64)(n * n_magnitudes (each));
}

/* How many times as long a product takes on a GPU as in bf16, by the data sheets' rates. fp32
 * products may take 15 times as long; ops are timed from the quickest on until the time is up, so
 * they must come after those in bf16. */
static double
slowdown_of (const ExecBenchOp *self, const PlanCluster *cluster)
{
  const double bf16 = cluster->peak_flops[PLAN_DTYPE_BF16];
  const double own = cluster->peak_flops[self->dtype[PLAN_REF_GEMM_a]];
  const gboolean is_product = self->op.kind == PLAN_OP_GEMM || self->op.kind == PLAN_OP_GEMM_ADD;
  return is_product && cluster->kind == PLAN_DEVICE_GPU && own > 0 && bf16 > 0 ? bf16 / own : 1;
}

/* In a step an operand has left the nearest caches before it is used again. Repeats therefore use
 * several copies of each operand in turns (`turns`), larger than those caches together. Scratch is
 * the same in every repeat. */
void
exec_bench_complete (ExecBenchOp *self, const PlanCluster *cluster, guint64 max_bytes)
{
  const guint64 limit = limit_of (cluster, max_bytes);
  const double near = (double)MIN (machines[cluster->kind].near_bytes, limit);
  const gboolean is_collective = plan_op_class (self->op.kind) == PLAN_CLASS_COLLECTIVE;
  const gboolean is_gpu = cluster->kind == PLAN_DEVICE_GPU;
  self->device = cluster->kind;
  self->slowdown = slowdown_of (self, cluster);
  if (is_of_params (self->op.kind))
    complete_params (self);
  self->scratch = scratch_of (self, cluster);
  self->turns = is_collective ? 1 : (guint)CLAMP (near / MAX (bytes_of (self), 1), 1, MAX_TURNS);
  self->batch = is_gpu && exec_bench_guess_ns (self) < BATCHED_NS ? BATCH : 1;
  self->fillers = is_gpu ? FILLERS : 0;
  self->filler_bytes = is_gpu ? MIN (FILLER_BYTES, plan_units_round_up (limit / 16, 256)) : 0;
}

double
exec_bench_guess_ns (const ExecBenchOp *self)
{
  const Machine *machine = &machines[self->device];
  const double rate = plan_op_class (self->op.kind) == PLAN_CLASS_COLLECTIVE
                          ? machine->collective_bytes_per_ns
                          : machine->bytes_per_ns;
  const double flops = plan_op_flops (&self->op) * (self->slowdown > 0 ? self->slowdown : 1);
  return machine->start_ns + flops / machine->flops_per_ns + bytes_of (self) / rate;
}

guint
exec_bench_repeats (const ExecBenchOp *self, double share_ns)
{
  const double ns = exec_bench_guess_ns (self);
  if (self->fillers == 0)
    return (guint)CLAMP (share_ns / ns, 5, 101) | 1;
  return (guint)CLAMP (share_ns / (self->batch * ns + FILLERS_NS), 5, 31) | 1;
}

/* --- kinds -------------------------------------------------------------------------------- */

/* Whether two ops differ at most in size. So do ops on parameters whose operands have the same
 * formats: predictions look their times up whatever the number of scales is. */
static gboolean
is_like (const ExecBenchOp *a, const ExecBenchOp *b)
{
  if (a->op.kind != b->op.kind)
    return FALSE;
  for (guint i = 0; i < plan_op_n_refs (a->op.kind); i++)
    if ((a->op.refs[i].array < 0) != (b->op.refs[i].array < 0)
        || (a->op.refs[i].array >= 0 && a->dtype[i] != b->dtype[i]))
      return FALSE;
  for (guint d = 0; d < plan_op_n_dims (a->op.kind); d++)
    if (!plan_op_dim_is_size (a->op.kind, d) && !is_of_params (a->op.kind)
        && a->op.dims[d] != b->op.dims[d])
      return FALSE;
  return TRUE;
}

/* The ops of plans for a cluster, and the limit of their operands' size. */
typedef struct
{
  const PlanCluster *cluster;
  const Machine *machine;
  guint64 max_bytes;
  GArray *ops;
} List;

static void
add_size (const List *list, const ExecBenchOp *like, const Axis *const *axes, const guint *at)
{
  const Machine *machine = list->machine;
  ExecBenchOp self = *like;
  for (guint a = 0; a < MAX_AXES && axes[a]; a++)
    set_dim (&self.op, axes[a]->dim, axes[a]->sizes[at[a]]);
  if (axes[0])
    complete_dims (&self.op, machine);
  const guint64 limit = limit_of (list->cluster, list->max_bytes);
  if (plan_op_flops (&self.op) > machine->max_flops
      || bytes_of (&self) > MIN (machine->max_bytes, (double)limit))
    return;
  exec_bench_complete (&self, list->cluster, list->max_bytes);
  g_array_append_val (list->ops, self);
}

/* Advances to the next combination of sizes, the last axis fastest; FALSE past the end. */
static gboolean
next_size (const Axis *const *axes, guint *at)
{
  for (guint a = MAX_AXES; a-- > 0;)
    {
      if (!axes[a])
        continue;
      if (++at[a] < G_N_ELEMENTS (axes[a]->sizes) && axes[a]->sizes[at[a]] > 0)
        return TRUE;
      at[a] = 0;
    }
  return FALSE;
}

static void
add_sizes (const List *list, const ExecBenchOp *like)
{
  const Grid *grid = list->machine->grids;
  const Axis *axes[MAX_AXES] = { NULL };
  guint at[MAX_AXES] = { 0 };
  if (find_dim (like->op.kind, "count") == 0)
    axes[0] = &list->machine->counts;
  else
    {
      while (!g_str_has_prefix (plan_op_name (like->op.kind), grid->prefix))
        grid++;
      for (guint a = 0; a < MAX_AXES; a++)
        axes[a] = grid->axes[a].dim ? &grid->axes[a] : NULL;
    }
  do
    add_size (list, like, axes, at);
  while (next_size (axes, at));
}

/* Adds a collective for every group that plans use: all ranks; those of one node; one rank of each
 * node. */
static void
add_groups (const List *list, const ExecBenchOp *kind)
{
  const guint nodes = (guint)list->cluster->nodes, each = (guint)list->cluster->devices_per_node;
  ExecBenchOp self = *kind;
  const gboolean is_collective = plan_op_class (self.op.kind) == PLAN_CLASS_COLLECTIVE;
  self.nodes = is_collective ? nodes : 1;
  add_sizes (list, &self);
  if (!is_collective || nodes == 1 || each == 1)
    return;
  self.ranks = each;
  self.nodes = 1;
  add_sizes (list, &self);
  self.ranks = self.nodes = nodes;
  self.stride = each;
  add_sizes (list, &self);
}

/* Whether an op is timed: not those of set-up or of the host. */
static gboolean
is_timed (const PlanSchedule *schedule, const PlanOp *op)
{
  const guint ranks = plan_schedule_ranks (schedule);
  if (op->kind >= PLAN_N_OPS)
    return FALSE;
  const PlanOpClass class = plan_op_class (op->kind);
  return class == PLAN_CLASS_COMPUTE || (class == PLAN_CLASS_COLLECTIVE && ranks > 1);
}

/* A layer has four quantised weights: QKV, attention's output projection, up with gate, down. */
#define PARAMS 4

/* The parameters of an op on parameters, or the moments with scales of an ADAMW op, as the number
 * formats of its operands tell. */
static ExecAlone
params_of (const ExecBenchOp *self)
{
  const gboolean is_quantize = self->op.kind == PLAN_OP_PARAM_QUANTIZE;
  ExecAlone params = { .n = PARAMS };
  if (self->op.kind == PLAN_OP_ADAMW)
    params.n = self->dtype[PLAN_REF_ADAMW_exp_avg] == PLAN_DTYPE_E4M3
               || self->dtype[PLAN_REF_ADAMW_exp_avg_sq] == PLAN_DTYPE_E4M3;
  else if (!is_of_params (self->op.kind))
    params.n = 0;
  else if (!is_quantize)
    params.each.block = self->dtype[PLAN_REF_PARAM_AMAX_amax] == PLAN_DTYPE_BF16
                            ? plan_dtype_block (PLAN_DTYPE_MXFP8)
                            : 0;
  else if (self->dtype[PLAN_REF_PARAM_QUANTIZE_out] == PLAN_DTYPE_E2M1)
    params.each.block = plan_dtype_block (PLAN_DTYPE_NVFP4);
  else if (self->op.refs[PLAN_REF_PARAM_QUANTIZE_scales].array >= 0)
    params.each.block = self->dtype[PLAN_REF_PARAM_QUANTIZE_scales] == PLAN_DTYPE_FP32
                            ? PLAN_DTYPE_SIDE
                            : plan_dtype_block (PLAN_DTYPE_MXFP8);
  return params;
}

/* The op alone, as it is timed. A product's bias is left out, because it makes no measurable
 * difference. */
static ExecBenchOp
op_of (const PlanSchedule *schedule, const PlanOp *op)
{
  ExecBenchOp self;
  memset (&self, 0, sizeof self);
  self.ranks = plan_schedule_ranks (schedule);
  self.stride = self.nodes = 1;
  plan_op_init (&self.op, op->kind, PLAN_STREAM_COMPUTE);
  memcpy (self.op.dims, op->dims, sizeof self.op.dims);
  for (guint i = 0; i < plan_op_n_refs (op->kind); i++)
    if (op->refs[i].array >= 0 && !(op->kind == PLAN_OP_GEMM && i == PLAN_REF_GEMM_bias))
      {
        self.op.refs[i].array = 0;
        self.dtype[i] = plan_schedule_buffer (schedule, (guint)op->refs[i].array)->dtype;
      }
  self.params = params_of (&self);
  return self;
}

static void
collect (GArray *kinds, const PlanSchedule *schedule, gboolean is_for_params)
{
  for (guint node = 0; node < plan_schedule_n_nodes (schedule); node++)
    {
      const PlanOp *op = plan_schedule_node (schedule, node);
      gboolean is_known = FALSE;
      if (!is_timed (schedule, op)
          || (is_for_params && !is_of_params (op->kind)
              && plan_op_class (op->kind) != PLAN_CLASS_COLLECTIVE)
          || (op->group >= 0
              && plan_schedule_group_size (schedule, op) != plan_schedule_ranks (schedule)))
        continue;
      const ExecBenchOp self = op_of (schedule, op);
      for (guint i = 0; i < kinds->len && !is_known; i++)
        is_known = is_like (&g_array_index (kinds, ExecBenchOp, i), &self);
      if (!is_known)
        g_array_append_val (kinds, self);
    }
}

static gboolean
parse_source (const Source *source, const PlanCluster *cluster, Plan *out, GError **error)
{
  g_auto (GStrv) words = g_strsplit (source->fields, " ", -1);
  g_autofree char *gbs = g_strdup_printf ("%" G_GINT64_FORMAT, 2 * plan_cluster_devices (cluster));
  plan_init (out);
  if (!plan_set (out, "stack", "native", error) || !plan_set (out, "seq", "16", error)
      || !plan_set (out, "gbs", gbs, error))
    return FALSE;
  for (char **word = words; *word; word++)
    {
      g_auto (GStrv) halves = g_strsplit (*word, "=", 2);
      if (!plan_set (out, halves[0], halves[1], error))
        return FALSE;
    }
  return TRUE;
}

/* Adds the ops of one plan. A device without a rate for the plan's compute format is a refusal, not
 * a failure. */
static gboolean
collect_source (GArray *kinds, const Source *source, const PlanCluster *cluster, GArray *refusals,
                GError **error)
{
  g_autoptr (PlanModel) model = plan_model_new (source->model, error);
  Plan plan;
  if (!model || !parse_source (source, cluster, &plan, error))
    return FALSE;
  if (cluster->peak_flops[plan_field_dtype (&plan, PLAN_COMPUTE)] <= 0)
    {
      g_autofree char *compute = plan_field_print (PLAN_COMPUTE, plan.value[PLAN_COMPUTE]);
      g_autofree char *why = g_strdup_printf ("products of compute=%s: %s has no rate for them",
                                              compute, cluster->device_name);
      exec_bench_refuse (refusals, why, 0);
      return TRUE;
    }
  g_autoptr (PlanCase) of = plan_case_new (model, cluster, &plan, NULL, error);
  g_autoptr (PlanSchedule) schedule = of ? plan_lower (of, 0, error) : NULL;
  if (schedule)
    collect (kinds, schedule, source->is_for_params);
  else
    g_prefix_error (error, "%s with %s: ", source->model, source->fields);
  return schedule != NULL;
}

typedef struct
{
  double ns;
  guint position;
} Order;

static int
compare (const void *left, const void *right)
{
  const Order *a = left, *b = right;
  return a->ns != b->ns ? (a->ns > b->ns) - (a->ns < b->ns)
                        : (a->position > b->position) - (a->position < b->position);
}

static GArray *
sort (const GArray *ops)
{
  GArray *sorted = g_array_new (FALSE, FALSE, sizeof (ExecBenchOp));
  g_autofree Order *order = g_new (Order, ops->len + 1);
  for (guint i = 0; i < ops->len; i++)
    order[i] = (Order){ exec_bench_guess_ns (&g_array_index (ops, ExecBenchOp, i)), i };
  qsort (order, ops->len, sizeof *order, compare);
  for (guint i = 0; i < ops->len; i++)
    g_array_append_val (sorted, g_array_index (ops, ExecBenchOp, order[i].position));
  return sorted;
}

GArray *
exec_bench_ops (const PlanCluster *cluster, guint64 max_bytes, GArray *refusals, GError **error)
{
  const Machine *machine = &machines[cluster->kind];
  g_autoptr (GArray) kinds = g_array_new (FALSE, FALSE, sizeof (ExecBenchOp));
  g_autoptr (GArray) ops = g_array_new (FALSE, FALSE, sizeof (ExecBenchOp));
  const List list = { .cluster = cluster, .machine = machine, .max_bytes = max_bytes, .ops = ops };
  for (const Source *source = machine->sources; source->model; source++)
    if (!collect_source (kinds, source, cluster, refusals, error))
      return NULL;
  for (guint i = 0; i < kinds->len; i++)
    add_groups (&list, &g_array_index (kinds, ExecBenchOp, i));
  return sort (ops);
}
