/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/fake/compare.h"

#include "exec/cpu/kernels-cpu-private.h"
#include "exec/cuda/kernels/kernels.h"
#include "exec/cuda/kernels/layers.h"
#include "exec/number/number.h"
#include "planner/schedule/scratch.h"
#include "tests/fake/compare-dims.h"
#include "tests/fake/compare-operand.h"
#include "tests/share.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* How near a kernel's results have to be to the CPU's. */
typedef enum
{
  EXACT,   /* the same bits; a NaN is a NaN */
  LIBRARY, /* the same bits if expf and its like give the same: each is good to 2^-22 */
  OWN_WAY, /* the same but for e^x and sines, which the CPU finds otherwise, good to 2^-22 */
  REDUCED, /* sums in another order: see reduced_bound */
} Nearness;

/* What the operands are, in their order:
 *   n  numbers in fp32 or bf16      m  as operand 0    f  in fp32       p  positive ones in fp32
 *   k  as n, or ties of few bits    x  any quantised format, fp32 or bf16
 *   u  in [-1, 1]                   s  exact sums      w  scratch       -  always absent
 *   v  in [-12, 12]                 d  places in documents
 *   i  indices below the last dim   t  below the second, or -1
 *   q  any quantised format         r  any bits       o  any bits, of 64 */
typedef struct
{
  PlanOpKind kind;
  ExecCudaLaunch launch;
  const char *operands;
  Nearness nearness;
  gboolean any_bits; /* also correct for infinities, NaNs and numbers of any magnitude */
} Kernel;

static const Kernel kernels[] = {
  { PLAN_OP_ZERO, exec_cuda_zero, "n", EXACT, TRUE },
  { PLAN_OP_CAST, exec_cuda_cast, "nn", EXACT, TRUE },
  { PLAN_OP_SCALE, exec_cuda_scale, "n", EXACT, TRUE },
  { PLAN_OP_SOFTCAP, exec_cuda_softcap, "v", LIBRARY, FALSE },
  { PLAN_OP_SOFTCAP_BWD, exec_cuda_softcap_bwd, "nu", EXACT, FALSE },
  { PLAN_OP_ACCUMULATE, exec_cuda_accumulate, "nn", EXACT, TRUE },
  { PLAN_OP_SUM_PARTS, exec_cuda_sum_parts, "nm", EXACT, TRUE },
  { PLAN_OP_ADD, exec_cuda_add, "nnn", EXACT, TRUE },
  { PLAN_OP_DROPOUT, exec_cuda_dropout, "n-nro", EXACT, TRUE },
  { PLAN_OP_DROPOUT_ADD, exec_cuda_dropout_add, "n-nnro", EXACT, TRUE },
  { PLAN_OP_DROPOUT_BWD, exec_cuda_dropout_bwd, "nn-ro", EXACT, TRUE },
  { PLAN_OP_EMBED, exec_cuda_embed, "nni", EXACT, TRUE },
  { PLAN_OP_EMBED_BWD, exec_cuda_embed_bwd, "nniw", EXACT, TRUE },
  { PLAN_OP_POSITIONS, exec_cuda_positions, "nnd", EXACT, TRUE },
  { PLAN_OP_POSITIONS_BWD, exec_cuda_positions_bwd, "nnd", EXACT, TRUE },
  { PLAN_OP_SWIGLU, exec_cuda_swiglu, "nv-", OWN_WAY, FALSE },
  { PLAN_OP_SWIGLU_BWD, exec_cuda_swiglu_bwd, "nnv-", OWN_WAY, FALSE },
  { PLAN_OP_ACTIVATE, exec_cuda_activate, "nv-", OWN_WAY, FALSE },
  { PLAN_OP_ACTIVATE_BWD, exec_cuda_activate_bwd, "nnv-", OWN_WAY, FALSE },
  { PLAN_OP_GEMM, exec_cuda_gemm_plain, "nxxnw", REDUCED, FALSE },
  { PLAN_OP_GEMM_ADD, exec_cuda_gemm_add_plain, "nxxw", REDUCED, FALSE },
  { PLAN_OP_ROPE, exec_cuda_rope, "nd", OWN_WAY, FALSE },
  { PLAN_OP_RMSNORM, exec_cuda_rmsnorm, "nfnn--", REDUCED, FALSE },
  { PLAN_OP_RMSNORM_BWD, exec_cuda_rmsnorm_bwd, "nnnnnpwn-", REDUCED, FALSE },
  { PLAN_OP_LAYERNORM, exec_cuda_layernorm, "nfnnn--", REDUCED, FALSE },
  { PLAN_OP_LAYERNORM_BWD, exec_cuda_layernorm_bwd, "nnnnnnpnw-", REDUCED, FALSE },
  { PLAN_OP_ADD_RMSNORM, exec_cuda_add_rmsnorm, "nfnnnn--", REDUCED, FALSE },
  { PLAN_OP_ADD_LAYERNORM, exec_cuda_add_layernorm, "nfnnnnn--", REDUCED, FALSE },
  { PLAN_OP_HEAD_NORM, exec_cuda_head_norm, "nfmnn", REDUCED, FALSE },
  { PLAN_OP_HEAD_NORM_BWD, exec_cuda_head_norm_bwd, "nnnmnnnpw", REDUCED, FALSE },
  { PLAN_OP_BIAS_BWD, exec_cuda_bias_bwd, "nn", REDUCED, FALSE },
  { PLAN_OP_ATTENTION, exec_cuda_attention, "ufuw-dro", REDUCED, FALSE },
  { PLAN_OP_ATTENTION_BWD, exec_cuda_attention_bwd, "uuufuw--dro", REDUCED, FALSE },
  { PLAN_OP_ATTENTION_JOIN, exec_cuda_attention_join, "ufuf", LIBRARY, FALSE },
  { PLAN_OP_LATENT_ROPE, exec_cuda_latent_rope, "nnnnnd", OWN_WAY, FALSE },
  { PLAN_OP_LATENT_ROPE_BWD, exec_cuda_latent_rope_bwd, "nnnnnd", OWN_WAY, FALSE },
  { PLAN_OP_LATENT_ATTENTION, exec_cuda_latent_attention, "ufuuuwdro", REDUCED, FALSE },
  { PLAN_OP_LATENT_ATTENTION_BWD, exec_cuda_latent_attention_bwd, "uuuuufuuuwdro", REDUCED, FALSE },
  { PLAN_OP_ROW_STAT, exec_cuda_row_stat, "fv--", EXACT, FALSE },
  { PLAN_OP_CROSS_ENTROPY, exec_cuda_cross_entropy, "sfvt-", REDUCED, FALSE },
  { PLAN_OP_CROSS_ENTROPY_BWD, exec_cuda_cross_entropy_bwd, "nft", EXACT, TRUE },
  { PLAN_OP_LOSS_GRAD, exec_cuda_loss_grad, "svtw-", REDUCED, FALSE },
  { PLAN_OP_NORM_SQ, exec_cuda_norm_sq, "sn", EXACT, TRUE },
  { PLAN_OP_CLIP, exec_cuda_clip, "fs", EXACT, FALSE },
  { PLAN_OP_ADAMW, exec_cuda_adamw, "nnnnfn", EXACT, TRUE },
  { PLAN_OP_SGD, exec_cuda_sgd, "nnnfn", EXACT, TRUE },
  { PLAN_OP_QUANTIZE, exec_cuda_quantize, "qmk---", EXACT, TRUE },
};

static const CompareDevice *device;

gboolean
compare_has_kernel (PlanOpKind kind)
{
  for (guint i = 0; i < G_N_ELEMENTS (kernels); i++)
    if (kernels[i].kind == kind)
      return TRUE;
  return FALSE;
}

/* --- one call ----------------------------------------------------------------------------- */

/* A kernel, and the arguments that a test calls it with. */
typedef struct
{
  const Kernel *kernel;
  PlanOp op;
  CompareOperand operand[PLAN_MAX_REFS];
  PlanManner manner;
  gboolean is_plain; /* all operands in bf16 and in whole pieces, for which some kernels have a path
                        of their own */
} Call;

/* The format of an operand that can have only one. */
static PlanDtype
only_format (char what)
{
  return strchr ("itrd", what) ? PLAN_DTYPE_I32
         : strchr ("so", what) ? PLAN_DTYPE_I64
                               : PLAN_DTYPE_FP32;
}

static PlanDtype
format_of (const Call *call, guint i, GRand *rand)
{
  static const PlanDtype narrow[]
      = { PLAN_DTYPE_E4M3, PLAN_DTYPE_E5M2, PLAN_DTYPE_MXFP8, PLAN_DTYPE_NVFP4 };

  switch (call->kernel->operands[i])
    {
    case 'x':
      if (g_rand_boolean (rand))
        return narrow[g_rand_int_range (rand, 0, G_N_ELEMENTS (narrow))];
      return compare_format (rand);
    case 'n':
    case 'k':
    case 'u':
    case 'v':
      return call->is_plain ? PLAN_DTYPE_BF16 : compare_format (rand);
    case 'm':
      return call->operand[0].dtype;
    case 'q':
      return narrow[g_rand_int_range (rand, 0, G_N_ELEMENTS (narrow))];
    default:
      return only_format (call->kernel->operands[i]);
    }
}

/* Whether an operand is absent. Norms of heads have weights for queries and keys, or for neither;
 * attention has both operands of dropout, or neither. */
static gboolean
is_absent (const Kernel *kernel, guint i, gboolean has_pair, GRand *rand)
{
  const gboolean norms_heads
      = kernel->kind == PLAN_OP_HEAD_NORM || kernel->kind == PLAN_OP_HEAD_NORM_BWD;
  const char what = kernel->operands[i];
  if (what == '-' || what == 'w')
    return what == '-';
  if (what == 'r' || what == 'o')
    return compare_attends (kernel->kind) && !has_pair;
  return plan_op_ref_is_optional (kernel->kind, i)
         && (norms_heads ? !has_pair : g_rand_boolean (rand));
}

/* Sets the rows and columns of an operand whose blocks have scales. */
static void
set_matrix (Call *call, guint i)
{
  const gint64 *dims = call->op.dims;
  CompareOperand *self = &call->operand[i];

  self->rows = self->cols = 0;
  if (call->kernel->kind == PLAN_OP_QUANTIZE)
    self->rows = (guint64)dims[i == 1];
  else if (call->kernel->kind == PLAN_OP_GEMM || call->kernel->kind == PLAN_OP_GEMM_ADD)
    self->rows = (guint64)(i == 1 ? dims[dims[3] == 2 ? 2 : 0] : dims[dims[3] == 1 ? 1 : 2]);
  if (self->rows > 0)
    self->cols = self->count / self->rows;
}

/* Elements of scratch that are enough for both devices. */
static guint64
scratch_of (const PlanOp *op)
{
  return MAX (plan_scratch_elements (op->kind, op->dims, PLAN_DTYPE_BF16),
              plan_scratch_norm_elements (op->kind, op->dims));
}

static void
open_operand (Call *call, guint i, gboolean any_bits, GRand *rand)
{
  PlanOp *op = &call->op;
  char what = call->kernel->operands[i];
  CompareOperand *self = &call->operand[i];

  self->dtype = format_of (call, i, rand);
  self->is_aligned = call->is_plain;
  if (what == 'q' && self->dtype != PLAN_DTYPE_MXFP8 && self->dtype != PLAN_DTYPE_NVFP4)
    op->dims[1] = compare_odd_size (rand, 300); /* formats without blocks may have any size */
  self->count = what == 'w' ? scratch_of (op) : plan_op_ref_elements (op, i, 1);
  switch (what)
    {
    case 'p':
      self->draw = COMPARE_POSITIVE;
      break;
    case 'u':
      self->draw = COMPARE_UNIT;
      break;
    case 'v':
      self->draw = COMPARE_WIDE;
      break;
    case 'i':
    case 't':
      self->draw = COMPARE_INDEX;
      self->has_minus = what == 't';
      self->limit = (gint32)op->dims[what == 't' ? 1 : plan_op_n_dims (op->kind) - 1];
      break;
    case 's':
      self->draw = COMPARE_SUM;
      break;
    case 'd': /* `seq` is the second dim of all but tables of positions, where it is the last */
      self->draw = COMPARE_PLACES;
      self->limit = (gint32)op->dims[plan_op_n_dims (op->kind) == 3 ? 2 : 1];
      break;
    case 'k':
      self->draw = any_bits ? COMPARE_BITS : g_rand_boolean (rand) ? COMPARE_TIES : COMPARE_SMALL;
      break;
    default:
      self->draw = any_bits || strchr ("ro", what) ? COMPARE_BITS : COMPARE_SMALL;
      break;
    }
  set_matrix (call, i);
  compare_operand_init (self, device, rand);
}

/* --- how near ----------------------------------------------------------------------------- */

#define U 0x1p-24

/* The largest magnitude of a norm's results; `in` is its first operand. */
static double
normal_limit (const Call *call, guint in, guint statistics)
{
  return compare_operand_largest (&call->operand[in])
         * compare_operand_largest (&call->operand[statistics]);
}

/* How far a gradient can be off: the terms' magnitudes times `depth` roundings. */
static double
norm_bwd_limit (const Call *call, guint i, guint dout, guint n_parameters)
{
  double rows = (double)call->op.dims[0], cols = (double)call->op.dims[1];
  double d = compare_operand_largest (&call->operand[dout]);
  double normal = 1 + normal_limit (call, dout + 1, dout + 3);
  double weight = compare_operand_largest (&call->operand[dout + 2]);

  if (i > 0 && i <= n_parameters)
    return (rows + 32) * U * rows * d * normal;
  return (cols / 8 + 64) * U * compare_operand_largest (&call->operand[dout + 3]) * d * weight
         * normal * normal;
}

static double
head_norm_bwd_limit (const Call *call, guint i)
{
  double terms = (double)(call->op.dims[0] * call->op.dims[1]);
  double dim = (double)MAX (call->op.dims[3], call->op.dims[4]);
  double d = compare_operand_largest (&call->operand[3]), normal = 1 + normal_limit (call, 4, 7);
  double weight = fmax (compare_operand_largest (&call->operand[5]),
                        compare_operand_largest (&call->operand[6]));

  weight = call->operand[5].device == NULL ? 1 : weight;
  if (i > 0)
    return (terms + 32) * U * terms * d * normal;
  return (dim / 8 + 64) * U * compare_operand_largest (&call->operand[7]) * d * weight * normal
         * normal;
}

/* How far a sum with the norm's share can be off: the share may be rounded to the other side. */
static double
added_limit (const Call *call, guint i, double ulp)
{
  const CompareOperand *add = &call->operand[7];

  if (i > 0 || add->device == NULL)
    return 0;
  return ulp * (compare_operand_largest (&call->operand[0]) + compare_operand_largest (add));
}

static double
layernorm_limit (const Call *call, guint i)
{
  guint gain = call->kernel->kind == PLAN_OP_ADD_LAYERNORM ? 5 : 3;
  double cols = (double)call->op.dims[1], normal = 1 + normal_limit (call, 2, 1);
  double in = compare_operand_largest (&call->operand[2]);
  double weight = compare_operand_largest (&call->operand[gain]);
  double rstd = compare_operand_largest (&call->operand[1]);

  return (cols / 8 + 64) * U * normal * (i == 1 ? fmax (in, rstd) : weight * normal);
}

static gboolean
has_dropout (const Call *call)
{
  for (guint i = 0; i < plan_op_n_refs (call->kernel->kind); i++)
    if (strcmp (plan_op_ref_name (call->kernel->kind, i), "key") == 0)
      return call->operand[i].device != NULL;
  return FALSE;
}

/* For operands in [-1, 1]. Scores and their gradients are sums of `dim` terms; errors of the many
 * sums of a gradient grow like a random walk, which the last factor leaves room for. A bound and
 * slopes are a few operations more on scores, where those that matter are below 16; dropout scales
 * weights up. */
static double
attention_limit (const Call *call, guint i)
{
  const gint64 *dims = call->op.dims;
  const PlanOpKind kind = call->kernel->kind;
  const gboolean is_latent = strstr (plan_op_name (kind), "latent") != NULL;
  double seq = (double)dims[1], group = is_latent ? 1 : (double)(dims[2] / dims[3]),
         dim = (double)(is_latent ? MAX (dims[3], dims[4]) : dims[4]);
  const double *manner = call->manner.value;
  double score = (dim + 8) * U * sqrt (dim);
  double scaled = has_dropout (call) ? 1 / (1 - manner[PLAN_MANNER_RATE]) : 1;
  score += manner[PLAN_MANNER_CAP] > 0 || manner[PLAN_MANNER_ALIBI] > 0 ? 64 * U : 0;
  if (kind == PLAN_OP_ATTENTION || kind == PLAN_OP_LATENT_ATTENTION)
    return i == 0 ? scaled * (4 * score + (seq + 64) * U) : 2 * score + 8 * (seq + 32) * U;
  return scaled * group * (score + 64 * U);
}

/* The bound for kernels whose sums have another order. */
static CompareBound
reduced_bound (const Call *call, guint i, double ulp)
{
  double rows = (double)call->op.dims[0], cols = (double)call->op.dims[1];

  if (plan_op_work (call->kernel->kind) == PLAN_WORK_ATTENTION)
    return (CompareBound){ attention_limit (call, i), ulp, TRUE };
  switch ((int)call->kernel->kind)
    {
    case PLAN_OP_RMSNORM:
    case PLAN_OP_ADD_RMSNORM:
      return (CompareBound){ 0, (cols / 8 + 20) * U + ulp, TRUE };
    case PLAN_OP_RMSNORM_BWD:
      return (CompareBound){ norm_bwd_limit (call, i, 2, 1) + added_limit (call, i, ulp), ulp,
                             TRUE };
    case PLAN_OP_LAYERNORM:
    case PLAN_OP_ADD_LAYERNORM:
      return (CompareBound){ layernorm_limit (call, i), ulp, TRUE };
    case PLAN_OP_LAYERNORM_BWD:
      return (CompareBound){ norm_bwd_limit (call, i, 3, 2) + added_limit (call, i, ulp), ulp,
                             TRUE };
    case PLAN_OP_GEMM:
    case PLAN_OP_GEMM_ADD: /* factors are in [-3, 3] or near that */
      return (CompareBound){ 2 * (double)call->op.dims[2] * U * (double)call->op.dims[2] * 10, ulp,
                             TRUE };
    case PLAN_OP_HEAD_NORM:
      return (CompareBound){ 0,
                             ((double)MAX (call->op.dims[3], call->op.dims[4]) / 8 + 20) * U + ulp,
                             TRUE };
    case PLAN_OP_HEAD_NORM_BWD:
      return (CompareBound){ head_norm_bwd_limit (call, i), ulp, TRUE };
    case PLAN_OP_BIAS_BWD:
      return (CompareBound){ (rows + 32) * U * rows * compare_operand_largest (&call->operand[1]),
                             ulp, TRUE };
    case PLAN_OP_CROSS_ENTROPY:
    case PLAN_OP_LOSS_GRAD: /* 1 is subtracted from one of the probabilities */
      if (i == 0 || call->op.kind == PLAN_OP_LOSS_GRAD)
        return (CompareBound){ (i == 0 ? rows : 1) * (cols / 8 + 128) * U, i == 0 ? 0 : ulp, TRUE };
      return (CompareBound){ 0, (cols / 8 + 128) * U + ulp, TRUE };
    default:
      g_assert_not_reached ();
    }
}

static CompareBound
bound_of (const Call *call, guint i)
{
  const CompareOperand *operand = &call->operand[i];
  double ulp = operand->dtype == PLAN_DTYPE_BF16   ? 0x1p-7
               : operand->dtype == PLAN_DTYPE_FP16 ? 0x1p-10
                                                   : 0x1p-23;

  if (plan_op_ref_access (call->op.kind, i) == 'r')
    return (CompareBound){ .any_nan = FALSE };
  if (strcmp (plan_op_ref_name (call->op.kind, i), "sum") == 0 && operand->dtype != PLAN_DTYPE_I64)
    return (CompareBound){ .any_nan = TRUE }; /* two terms may be added in either order */
  switch (call->kernel->nearness)
    {
    case EXACT:
      return (CompareBound){ .any_nan = TRUE };
    case LIBRARY:
      if (!device->own_math)
        return (CompareBound){ .any_nan = TRUE };
      G_GNUC_FALLTHROUGH;
    case OWN_WAY:
      return (CompareBound){ 0x1p-20 * compare_operand_largest (operand), ulp, TRUE };
    case REDUCED:
      return reduced_bound (call, i, ulp);
    }
  g_assert_not_reached ();
}

/* --- comparison --------------------------------------------------------------------------- */

static void
check_call (const Call *call)
{
  const PlanOpKind kind = call->kernel->kind;

  for (guint i = 0; i < plan_op_n_refs (kind); i++)
    {
      const CompareOperand *operand = &call->operand[i];

      if (operand->device == NULL || plan_op_ref_access (kind, i) == 's')
        continue;
      g_autofree char *what
          = g_strdup_printf ("%s %s (%s)", plan_op_name (kind), plan_op_ref_name (kind, i),
                             plan_dtype_name (operand->dtype));
      compare_operand_check (operand, bound_of (call, i), what);
    }
}

/* Sets out and lse of a backward call to those of the forward pass. */
static void
attend (Call *call)
{
  const gboolean is_latent = call->kernel->kind == PLAN_OP_LATENT_ATTENTION_BWD;
  const guint first = is_latent ? PLAN_REF_LATENT_ATTENTION_BWD_out : PLAN_REF_ATTENTION_BWD_out;
  const guint further = is_latent ? 0 : 1; /* the gradient of kv is none of the forward pass's */
  PlanOp op = call->op;
  ExecArgs args = { .op = &op, .manner = &call->manner };
  op.kind = is_latent ? PLAN_OP_LATENT_ATTENTION : PLAN_OP_ATTENTION;
  for (guint i = 0; i < plan_op_n_refs (op.kind); i++)
    {
      CompareOperand *self = &call->operand[first + i + (i > PLAN_REF_ATTENTION_kv ? further : 0)];
      if (self->device == NULL)
        continue;
      args.ptr[i] = self->want + self->at;
      args.dtype[i] = self->dtype;
    }
  exec_kernels_cpu.run[op.kind](&args);
  compare_operand_keep (&call->operand[first], device);
  compare_operand_keep (&call->operand[first + 1], device);
}

/* Bytes of scratch to give: gradients of norms may get less, or none. */
static guint64
room_of (const Call *call, const CompareOperand *scratch, GRand *rand)
{
  const guint64 bytes = plan_dtype_bytes (scratch->dtype, scratch->count);
  const gboolean is_less = plan_scratch_norm_columns (call->op.kind, call->op.dims) > 0
                           && g_rand_int_range (rand, 0, 3) == 0;

  return is_less ? (guint64)g_rand_int_range (rand, 0, (gint32)MIN (bytes, G_MAXINT32)) : bytes;
}

static void
run_both (Call *call, GRand *rand)
{
  ExecConstants constants = {
    .norm_eps = 1e-5,
    .rope = { 500000, call->op.dims[0] % 2 ? PLAN_ROPE_SCALING_YARN : PLAN_ROPE_SCALING_NONE, 40,
              4096, 1, 32, 1 },
    .lr = 1e-2,
    .beta1 = 0.9,
    .beta2 = 0.95,
    .adam_eps = 1e-8,
    .weight_decay = 0.1,
    .max_norm = g_rand_boolean (rand) ? 1 : 0,
    .step = g_rand_int_range (rand, 1, 1000),
    .grad_divisor = g_rand_int_range (rand, 1, 9),
  };
  ExecArgs cpu = { .op = &call->op, .manner = &call->manner, .constants = &constants }, cuda = cpu;
  guint n = plan_op_n_refs (call->kernel->kind);

  for (guint i = 0; i < n; i++)
    {
      CompareOperand *operand = &call->operand[i];

      if (operand->device == NULL)
        continue;
      cpu.ptr[i] = operand->want + operand->at;
      cpu.scale[i] = &operand->want_scale;
      cuda.ptr[i] = operand->device + operand->at;
      cuda.scale[i] = operand->device_scale;
      cpu.dtype[i] = cuda.dtype[i] = operand->dtype;
      if (plan_op_ref_access (call->op.kind, i) == 's')
        cuda.scratch_bytes = room_of (call, operand, rand);
    }
  exec_kernels_cpu.run[call->kernel->kind](&cpu);
  int code = call->kernel->launch (&cuda, NULL);
  const char *error = device->wait ();
  ck_assert_msg (code == 0 && error == NULL, "%s: launch gives %d, %s",
                 plan_op_name (call->kernel->kind), code, error != NULL ? error : "");
  for (guint i = 0; i < n; i++)
    if (call->operand[i].device != NULL)
      compare_operand_fetch (&call->operand[i], device);
}

static void
check_kernel (const Kernel *kernel, const gint64 *dims, gboolean any_bits, gboolean is_plain,
              GRand *rand)
{
  Call call = { .kernel = kernel, .op = { .kind = kernel->kind }, .is_plain = is_plain };
  guint n = plan_op_n_refs (kernel->kind);

  compare_draw_manner (&call.manner, kernel->kind, dims, rand);
  g_assert_cmpuint (strlen (kernel->operands), ==, n);
  memcpy (call.op.dims, dims, plan_op_n_dims (kernel->kind) * sizeof *dims);
  if (is_plain)
    compare_whole_dims (kernel->kind, call.op.dims);
  for (guint i = 0; i < PLAN_MAX_REFS; i++)
    call.op.refs[i] = PLAN_REF_NONE;
  const gboolean has_pair = g_rand_boolean (rand);
  for (guint i = 0; i < n; i++)
    if (!is_absent (kernel, i, has_pair, rand))
      open_operand (&call, i, any_bits, rand);
  if (kernel->kind == PLAN_OP_ATTENTION_BWD || kernel->kind == PLAN_OP_LATENT_ATTENTION_BWD)
    attend (&call);
  run_both (&call, rand);
  check_call (&call);
  for (guint i = 0; i < n; i++)
    if (call.operand[i].device != NULL)
      compare_operand_clear (&call.operand[i], device);
}

/* --- cases -------------------------------------------------------------------------------- */

#define ROUNDS 40
#define LONG_ROUNDS 12 /* rounds of the slow kernels */

/* Several cases for each kernel; odd rounds use random bits where the kernel allows any. */
START_TEST (cuda_kernel_is_the_cpu_kernel)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const Kernel *kernel = &kernels[_i / ROUNDS];
  gint64 dims[PLAN_MAX_DIMS];

  compare_draw_dims (kernel->kind, rand, dims);
  check_kernel (kernel, dims, kernel->any_bits && _i % 2, _i % 3 == 0, rand);
}
END_TEST

/* Sizes at which a block works on more than one piece, or strips are wide. */
START_TEST (cuda_grid_strides)
{
  static const gint64 dims[][PLAN_MAX_DIMS] = {
    [PLAN_OP_ACCUMULATE] = { 2048 * 256 * 8 + 257 },
    [PLAN_OP_SWIGLU] = { 65535 + 3, 2 },
    [PLAN_OP_ACTIVATE] = { 2, 2048 * 256 * 8 / 32 + 5, 1, 1 },
    [PLAN_OP_ROPE] = { 65535 + 2, 7, 1, 1, 2, 0 },
    [PLAN_OP_RMSNORM] = { 2048 + 2, 40 },
    [PLAN_OP_ADD_RMSNORM] = { 3, 2 * 2048 + 40 },
    [PLAN_OP_ADD_LAYERNORM] = { 2048 + 2, 17 },
    [PLAN_OP_RMSNORM_BWD] = { 140, 8192 + 24 },
    [PLAN_OP_LAYERNORM_BWD] = { 9, 6144 + 9 },
    [PLAN_OP_HEAD_NORM_BWD] = { 300, 3, 2, 24, 24 },
    [PLAN_OP_NORM_SQ] = { 2048 * 64 * 8 + 77 },
    [PLAN_OP_CROSS_ENTROPY] = { 2, 1024 * 8 * 9 + 11 },
    [PLAN_OP_LOSS_GRAD] = { 2, 1024 * 8 * 11 + 11 },
    [PLAN_OP_EMBED_BWD] = { 3000, 3, 4 },
  };
  g_autoptr (GRand) rand = g_rand_new_with_seed (1);
  const Kernel *kernel = &kernels[_i];

  const guint n = test_share () > 1 ? 1 : 2; /* the second time with whole blocks */
  for (guint i = 0; i < n && kernel->kind < G_N_ELEMENTS (dims) && dims[kernel->kind][0] != 0; i++)
    check_kernel (kernel, dims[kernel->kind], FALSE, i == 1, rand);
}
END_TEST

START_TEST (cuda_refuses_other_formats)
{
  const Kernel *kernel = &kernels[_i];
  PlanOp op = { .kind = kernel->kind, .dims = { 1, 1, 1, 1, 2, 0 } };
  ExecConstants constants = { .step = 1 };
  ExecArgs args = { .op = &op, .constants = &constants };
  gint64 nothing[8] = { 0 };

  for (guint i = 0; i < PLAN_MAX_REFS; i++)
    {
      args.ptr[i] = nothing;
      args.dtype[i] = PLAN_DTYPE_U8;
    }
  args.dtype[0] = PLAN_DTYPE_E8M0;
  if (kernel->kind != PLAN_OP_ZERO)
    ck_assert_int_ne (kernel->launch (&args, NULL), 0);
  ck_assert_ptr_null (device->wait ());
}
END_TEST

static gboolean
takes_long (PlanOpKind kind)
{
  return kind == PLAN_OP_GEMM || kind == PLAN_OP_GEMM_ADD || kind == PLAN_OP_RMSNORM_BWD
         || kind == PLAN_OP_LAYERNORM_BWD || kind == PLAN_OP_HEAD_NORM_BWD
         || (plan_op_work (kind) == PLAN_WORK_ATTENTION && kind != PLAN_OP_ATTENTION_JOIN);
}

static TCase *
open_case (Suite *suite, const char *name, SFun setup)
{
  TCase *tcase = tcase_create (name);
  tcase_set_timeout (tcase, 120);
  if (setup != NULL)
    tcase_add_checked_fixture (tcase, setup, NULL);
  suite_add_tcase (suite, tcase);
  return tcase;
}

void
compare_add_tests (Suite *suite, const CompareDevice *on, SFun setup)
{
  device = on;
  compare_add_activation_tests (suite, on, setup);
  compare_add_narrow_tests (suite, on, setup);
  compare_add_params_tests (suite, on, setup);
  compare_add_square_tests (suite, on, setup);
  compare_add_norm_tests (suite, on, setup);
  compare_add_largest_tests (suite, on, setup);
  compare_add_split_tests (suite, on, setup);
  compare_add_expert_tests (suite, on, setup);
  for (int i = 0; i < (int)G_N_ELEMENTS (kernels); i++)
    {
      TCase *tcase = open_case (suite, plan_op_name (kernels[i].kind), setup);
      int rounds = (takes_long (kernels[i].kind) ? LONG_ROUNDS : ROUNDS) / (int)test_share ();
      tcase_add_loop_test (tcase, cuda_kernel_is_the_cpu_kernel, i * ROUNDS,
                           i * ROUNDS + MAX (rounds, 2));
      tcase_add_loop_test (tcase, cuda_grid_strides, i, i + 1);
      tcase_add_loop_test (tcase, cuda_refuses_other_formats, i, i + 1);
    }
}

void
compare_print_cases (void)
{
  puts ("case tails\ncase narrow\ncase params\ncase squares\ncase adding_norms\ncase largest");
  puts ("case split\ncase experts");
  for (guint i = 0; i < G_N_ELEMENTS (kernels); i++)
    printf ("case %s\n", plan_op_name (kernels[i].kind));
  printf ("case speed\n");
}

/* --- speed -------------------------------------------------------------------------------- */

/* bf16 where there is a choice, but fp32 for sums, statistics and an optimizer's state. */
static PlanDtype
speed_format (const Kernel *kernel, guint i)
{
  const char what = kernel->operands[i];
  if (!strchr ("nmuvkx", what))
    return what == 'q' ? PLAN_DTYPE_E4M3 : only_format (what);
  return kernel->kind == PLAN_OP_ADAMW || kernel->kind == PLAN_OP_NORM_SQ
                 || (kernel->kind == PLAN_OP_CAST && i == 1)
             ? PLAN_DTYPE_FP32
             : PLAN_DTYPE_BF16;
}

/* Fills memory with numbers that repeat at no period of a matrix: indices below `limit`, others
 * between 0 and 1; other integers stay zero. Zeros alone would be faster. */
static void
speed_fill (guint8 *memory, guint64 bytes, PlanDtype dtype, gint64 limit)
{
  enum
  {
    PATTERN = 65521
  };
  g_autoptr (GRand) rand = g_rand_new_with_seed (1);
  g_autofree float *values = g_new (float, PATTERN);
  g_autofree gint32 *indices = g_new (gint32, PATTERN);
  g_autofree guint8 *narrow = g_malloc (plan_dtype_bytes (PLAN_DTYPE_FP32, PATTERN));
  const guint64 period = plan_dtype_bytes (dtype, PATTERN);

  for (guint i = 0; i < PATTERN; i++)
    {
      values[i] = (float)g_rand_double (rand);
      indices[i] = limit > 0 ? g_rand_int_range (rand, 0, (gint32)limit) : 0;
    }
  if (dtype != PLAN_DTYPE_I32)
    exec_number_narrow (narrow, dtype, values, PATTERN);
  device->copy (memory, dtype == PLAN_DTYPE_I32 ? (const void *)indices : narrow,
                MIN (period, bytes));
  for (guint64 done = period; done < bytes; done *= 2)
    device->copy (memory + done, memory, MIN (done, bytes - done));
}

/* Allocates all operands; returns the bytes that the op has to read and write at least. */
static guint64
take_operands (const Kernel *kernel, const PlanOp *op, ExecArgs *args)
{
  guint64 moved = 0;

  for (guint i = 0; i < plan_op_n_refs (kernel->kind); i++)
    {
      char what = kernel->operands[i];

      if (what == '-')
        continue;
      args->dtype[i] = speed_format (kernel, i);
      guint64 count = what == 'w' ? scratch_of (op) : plan_op_ref_elements (op, i, 1);
      guint64 bytes = plan_dtype_bytes (args->dtype[i], count);
      PlanOp zero = { .kind = PLAN_OP_ZERO, .dims = { (gint64)bytes } };

      args->ptr[i] = device->take (bytes + 16);
      if (what == 'w')
        args->scratch_bytes = bytes;
      args->scale[i] = (float *)((guint8 *)args->ptr[i] + bytes / 4 * 4);
      exec_cuda_zero (
          &(ExecArgs){ .op = &zero, .ptr = { args->ptr[i] }, .dtype = { PLAN_DTYPE_U8 } }, NULL);
      device->wait ();
      if (strchr ("nmuvkxfpit", what) && bytes > 0)
        speed_fill (args->ptr[i], bytes, args->dtype[i],
                    what == 'i'   ? op->dims[2]
                    : what == 't' ? op->dims[1]
                                  : 0);
      if (what != 'w' && (kernel->kind != PLAN_OP_EMBED || i != 1))
        moved += bytes * (plan_op_ref_access (kernel->kind, i) == 'u' ? 2 : 1);
    }
  return moved;
}

/* Bytes per second, read and written, of `repeats` copies of a bf16 matrix. */
static double
copy_speed (gint64 rows, guint repeats)
{
  const guint64 bytes = (guint64)rows * 4096 * 2;
  guint8 *from = device->take (bytes), *to = device->take (bytes);
  gint64 begun = 0;

  speed_fill (from, bytes, PLAN_DTYPE_BF16, 0);
  for (guint i = 0; i <= repeats; i++) /* the first to warm up */
    {
      if (i == 1)
        {
          device->wait ();
          begun = g_get_monotonic_time ();
        }
      device->copy (to, from, bytes); /* a copy within the device does not block the host */
    }
  device->wait ();
  const double us = (double)MAX (g_get_monotonic_time () - begun, 1) / repeats;
  device->give (from);
  device->give (to);
  return (double)(2 * bytes) / us * 1e6;
}

static void
time_kernel (const Kernel *kernel, gint64 rows, guint repeats, double copied, FILE *out)
{
  PlanOp op = { .kind = kernel->kind };
  ExecConstants constants
      = { .norm_eps = 1e-5, .rope = { .theta = 10000 }, .beta1 = 0.9, .step = 1 };
  ExecArgs args = { .op = &op, .constants = &constants };
  gint64 begun = 0;

  for (guint i = 0; i < PLAN_MAX_REFS; i++)
    op.refs[i] = PLAN_REF_NONE;
  compare_speed_dims (kernel->kind, rows, op.dims);
  guint64 moved = take_operands (kernel, &op, &args);
  for (guint i = 0; i <= repeats; i++) /* the first to warm up */
    {
      if (i == 1)
        {
          device->wait ();
          begun = g_get_monotonic_time ();
        }
      kernel->launch (&args, NULL);
    }
  device->wait ();
  double us = (double)MAX (g_get_monotonic_time () - begun, 1) / repeats;
  fprintf (out, "# %-17s %8.1f GB/s, %" G_GUINT64_FORMAT " bytes in %.1f us",
           plan_op_name (kernel->kind), (double)moved / us * 1e-3, moved, us);
  if (kernel->kind != PLAN_OP_GEMM && kernel->kind != PLAN_OP_GEMM_ADD
      && kernel->kind != PLAN_OP_ATTENTION && kernel->kind != PLAN_OP_ATTENTION_BWD)
    fprintf (out, ", %.0f %% of the copy", 100 * (double)moved / us * 1e6 / copied);
  if (plan_op_flops (&op) > 0)
    fprintf (out, ", %.1f TFLOP/s", plan_op_flops (&op) / us * 1e-6);
  fputs ("\n", out);
  for (guint i = 0; i < plan_op_n_refs (kernel->kind); i++)
    if (args.ptr[i] != NULL)
      device->give (args.ptr[i]);
}

guint
compare_speed (const CompareDevice *on, gint64 rows, guint repeats, FILE *out)
{
  device = on;
  const double copied = copy_speed (rows, repeats);
  fprintf (out, "# %-17s %8.1f GB/s\n", "copy", copied * 1e-9);
  for (guint i = 0; i < G_N_ELEMENTS (kernels); i++)
    time_kernel (&kernels[i], rows, repeats, copied, out);
  return G_N_ELEMENTS (kernels) + 1;
}
