/* SPDX-License-Identifier: Apache-2.0 */
/* cuBLASLt's matrices are column-major: a row-major product is that of the transposed factors in
 * the other order. So cuBLASLt's first factor is our b, its second our a, and its rows are our
 * columns. How the factors lie there:
 *
 *   layout  first (our b)           second (our a)
 *   0       [n, k], ld n            [k, m], ld k
 *   1       [k, n], ld k, transposed  [k, m], ld k   the only one that fp8 has before Blackwell,
 *                                                      and nvfp4 anywhere
 *   2       [n, k], ld n            [m, k], ld m, transposed
 *
 * Blocks that share a scale lie along k. Their scales lie in tiles (see EXEC_CUDA_IS_TILED), but
 * those of blocks of 128 as on the CPU. An nvfp4 tensor also has a scale of its own: the product of
 * both factors' scales is alpha, in device memory. */
#include "config.h"

#include "exec/cuda/gemm-lt.h"

#include "exec/cuda/algos.h"
#include "exec/cuda/cuda-check.h"
#include "exec/cuda/kernels/kernels.h"
#include "exec/cuda/lt.h"
#include "planner/base/units.h"

#include <cuda_runtime_api.h>
#include <string.h>

/* How many of the heuristic's proposals are timed, and how many calls of each, after one that does
 * not count. */
#define TRIED_ALGOS 8
#define TRIED_CALLS 3

#define WORKSPACE_ALIGNMENT 256

/* Short names of operands. */
enum
{
  OUT = PLAN_REF_GEMM_out,
  A = PLAN_REF_GEMM_a,
  B = PLAN_REF_GEMM_b,
  BIAS = PLAN_REF_GEMM_bias,
  WORK = PLAN_REF_GEMM_work,
  ADD_WORK = PLAN_REF_GEMM_ADD_work /* another index: gemm_add has no bias */
};
PLAN_SAME_REF (GEMM, GEMM_ADD, out);
PLAN_SAME_REF (GEMM, GEMM_ADD, a);
PLAN_SAME_REF (GEMM, GEMM_ADD, b);

/* A product that is ready to be issued; pointers are set at every call. */
typedef struct
{
  cublasLtMatmulDesc_t desc;
  cublasLtMatrixLayout_t first, second, out; /* of cuBLASLt's two factors and the result */
  cublasLtMatmulAlgo_t algo;
  gboolean is_plain; /* cuBLASLt has no algorithm for it: a plain kernel takes it */
  gboolean is_tried; /* its algorithms are being timed: see adds_nothing */
} Product;

typedef struct
{
  guint opened;
  guint16 sms;    /* that the GPU has */
  float *factors; /* alpha and beta in device memory, for nvfp4 and while algorithms are timed */
  ExecComm *comm;
  cublasLtHandle_t handle;
  GHashTable *products; /* ExecCudaProduct -> Product */
} Thread;

static __thread Thread thread;

static void
clear_layouts (Product *self)
{
  cublasLtMatrixLayout_t *const layouts[] = { &self->first, &self->second, &self->out };
  for (guint i = 0; i < G_N_ELEMENTS (layouts); i++)
    if (*layouts[i])
      {
        cublasLtMatrixLayoutDestroy (*layouts[i]);
        *layouts[i] = NULL;
      }
}

static void
product_free (gpointer data)
{
  Product *self = data;
  clear_layouts (self);
  if (self->desc)
    cublasLtMatmulDescDestroy (self->desc);
  g_free (self);
}

gboolean
exec_cuda_gemm_open (ExecComm *comm, GError **error)
{
  if (thread.opened > 0)
    {
      thread.opened++;
      return TRUE;
    }
  if (!exec_cuda_lt_open (&thread.handle, &thread.sms, error))
    return FALSE;
  if (!exec_cuda_check ((int)cudaMalloc ((void **)&thread.factors, 2 * sizeof (float)),
                        "cudaMalloc", error))
    {
      CUDA_WARN (exec_cuda_lt_code ((int)cublasLtDestroy (thread.handle)));
      return FALSE;
    }
  thread.products = g_hash_table_new_full (exec_cuda_product_hash, exec_cuda_product_equal, g_free,
                                           product_free);
  thread.comm = comm;
  thread.opened = 1;
  return TRUE;
}

void
exec_cuda_gemm_close (void)
{
  g_assert (thread.opened > 0);
  if (--thread.opened > 0)
    return;
  g_clear_pointer (&thread.products, g_hash_table_unref);
  CUDA_WARN (cudaFree (thread.factors));
  CUDA_WARN (exec_cuda_lt_code ((int)cublasLtDestroy (thread.handle)));
}

/* --- making a product --------------------------------------------------------------------- */

/* Whether numbers are fp8 with one scale per tensor. */
static gboolean
is_narrow (PlanDtype dtype)
{
  return dtype == PLAN_DTYPE_E4M3 || dtype == PLAN_DTYPE_E5M2;
}

static gboolean
has_format (PlanDtype dtype)
{
  return dtype == PLAN_DTYPE_FP32 || dtype == PLAN_DTYPE_BF16 || dtype == PLAN_DTYPE_FP16
         || is_narrow (dtype) || plan_dtype_block (dtype) > 0;
}

/* The format of an operand, wherever its scales are. */
static PlanDtype
format_of (const ExecArgs *args, guint i)
{
  return args->blocks[i].scales ? args->blocks[i].format : args->dtype[i];
}

/* Where the scales of an operand's blocks begin. */
static const guint8 *
scales_of (const ExecArgs *args, guint i)
{
  const guint64 count = (guint64)(args->op->dims[i == A ? PLAN_DIM_GEMM_m : PLAN_DIM_GEMM_n]
                                  * args->op->dims[PLAN_DIM_GEMM_k]);
  if (args->blocks[i].scales)
    return args->blocks[i].scales;
  return (const guint8 *)args->ptr[i] + plan_dtype_bits (args->dtype[i]) * count / 8;
}

/* cuBLASLt's name for how blocks of a format share scales; -1: the toolkit that this is compiled
 * with has none (its release notes: blocks of 128 elements since 12.9, the others since 12.8). */
static gint32
mode_of (guint8 dtype)
{
  switch ((PlanDtype)dtype)
    {
#if CUBLAS_VERSION >= 120900
    case PLAN_DTYPE_FP8_1X128:
      return CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    case PLAN_DTYPE_FP8_128X128:
      return CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
#endif
#if CUBLAS_VERSION >= 120800
    case PLAN_DTYPE_NVFP4:
      return CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3;
    case PLAN_DTYPE_MXFP8:
      return CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0;
#endif
    default:
      return -1;
    }
}

/* Whether an operand has scales of blocks that cuBLASLt cannot use: because of its version, of the
 * product's layout, or of where they lie. They have to begin on a multiple of 16 bytes. */
static gboolean
is_foreign (const ExecArgs *args, guint i)
{
  const gint64 rows = args->op->dims[i == A ? PLAN_DIM_GEMM_m : PLAN_DIM_GEMM_n],
               k = args->op->dims[PLAN_DIM_GEMM_k];
  const gint64 block = plan_dtype_block (format_of (args, i));
  const gboolean are_placed = block == PLAN_DTYPE_SIDE ? rows % 4 == 0
                              : block > 0              ? EXEC_CUDA_IS_TILED (rows, k / block)
                                                       : TRUE;
  return block > 0
         && (mode_of ((guint8)format_of (args, i)) < 0 || args->op->dims[PLAN_DIM_GEMM_layout] != 1
             || k % block != 0 || !are_placed || (guintptr)scales_of (args, i) % 16 != 0);
}

/* cuBLASLt's workspace: the op's scratch from the first multiple of 256 bytes on. */
static void *
workspace_of (const ExecArgs *args, gboolean accumulates, guint64 *out_bytes)
{
  guint8 *at = args->ptr[accumulates ? ADD_WORK : WORK];
  const guint64 skipped = -(guintptr)at & (WORKSPACE_ALIGNMENT - 1);
  *out_bytes = at && args->scratch_bytes > skipped ? args->scratch_bytes - skipped : 0;
  return *out_bytes > 0 ? at + skipped : NULL;
}

/* Says what identifies the product. A factor b that is stored transposed, as [k, n], lies as in
 * layout 0. FALSE: an operand has a format that cuBLASLt does not multiply. */
static gboolean
describe (const ExecArgs *args, gboolean accumulates, ExecCudaProduct *out)
{
  const gint64 *dims = args->op->dims;
  const guint n_operands = accumulates ? BIAS : WORK;
  guint64 workspace = 0;
  memset (out, 0, sizeof *out);
  out->m = dims[PLAN_DIM_GEMM_m];
  out->n = dims[PLAN_DIM_GEMM_n];
  out->k = dims[PLAN_DIM_GEMM_k];
  out->layout = dims[PLAN_DIM_GEMM_layout] == 1 && args->blocks[B].is_transposed
                    ? 0
                    : (guint8)dims[PLAN_DIM_GEMM_layout];
  out->is_foreign = (guint8)(is_foreign (args, A) || is_foreign (args, B));
  out->accumulates = (guint8)accumulates;
  out->is_deterministic = (guint8)args->is_deterministic;
  out->dtype[BIAS] = PLAN_N_DTYPES;
  for (guint i = 0; i < n_operands; i++)
    if (args->ptr[i])
      {
        out->dtype[i] = (guint8)format_of (args, i);
        out->alignment[i] = exec_cuda_lt_alignment ((guintptr)args->ptr[i]);
        if (!has_format (out->dtype[i]))
          return FALSE;
      }
  workspace_of (args, accumulates, &workspace);
  out->workspace_mib = (guint32)(workspace / PLAN_MIB);
  if (args->taken_sms > 0 && args->taken_sms < thread.sms)
    out->sms = (guint16)(thread.sms - args->taken_sms);
  return TRUE;
}

/* Keeps sums in the matrix units where both factors are in e4m3: faster on Ada and Hopper, with
 * fewer bits than fp32 has. Transformer Engine does so too in the forward pass. Gradients are in
 * e5m2, so their products are summed in fp32. */
static int
set_sums (Product *self, const ExecCudaProduct *key)
{
  const gint8 fast = 1;
  if (key->dtype[A] == PLAN_DTYPE_E4M3 && key->dtype[B] == PLAN_DTYPE_E4M3)
    LT_SET (self->desc, CUBLASLT_MATMUL_DESC_FAST_ACCUM, fast);
  return 0;
}

/* Says how blocks are scaled. Not for what the plain kernel multiplies: scales that cuBLASLt cannot
 * use, and all blocks before 12.8. */
static int
set_modes (Product *self, const ExecCudaProduct *key)
{
#if CUBLAS_VERSION >= 120800
  const gint32 device = CUBLASLT_POINTER_MODE_DEVICE;
  const gint32 first = mode_of (key->dtype[B]), second = mode_of (key->dtype[A]);
  if (plan_dtype_block ((PlanDtype)key->dtype[A]) == 0 || key->is_foreign)
    return 0;
  LT_SET (self->desc, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, first);
  LT_SET (self->desc, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, second);
  if (key->dtype[A] == PLAN_DTYPE_NVFP4)
    LT_SET (self->desc, CUBLASLT_MATMUL_DESC_POINTER_MODE, device);
#endif
  return 0;
}

static int
make_desc (Product *self, const ExecCudaProduct *key)
{
  const cublasLtEpilogue_t bias = CUBLASLT_EPILOGUE_BIAS;
  int code = exec_cuda_lt_describe (key->layout, key->sms, &self->desc);
  if (code == 0)
    code = set_sums (self, key);
  if (code == 0)
    code = set_modes (self, key);
  if (code != 0)
    return code;
  if (key->dtype[BIAS] == PLAN_N_DTYPES)
    return 0;
  const cudaDataType_t type = exec_cuda_lt_type ((PlanDtype)key->dtype[BIAS]);
  LT_SET (self->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, bias);
  LT_SET (self->desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type);
  return 0;
}

static int
make_layouts (Product *self, const ExecCudaProduct *key)
{
  const guint64 m = (guint64)key->m, n = (guint64)key->n, k = (guint64)key->k;
  const gboolean transposes_b = key->layout == 1, transposes_a = key->layout == 2;
  LT_TRY (cublasLtMatrixLayoutCreate (&self->first, exec_cuda_lt_type ((PlanDtype)key->dtype[B]),
                                      transposes_b ? k : n, transposes_b ? n : k,
                                      transposes_b ? key->k : key->n));
  LT_TRY (cublasLtMatrixLayoutCreate (&self->second, exec_cuda_lt_type ((PlanDtype)key->dtype[A]),
                                      transposes_a ? m : k, transposes_a ? k : m,
                                      transposes_a ? key->m : key->k));
  LT_TRY (cublasLtMatrixLayoutCreate (&self->out, exec_cuda_lt_type ((PlanDtype)key->dtype[OUT]), n,
                                      m, key->n));
  return 0;
}

/* Sets the pointers that are part of the descriptor: to the bias and to scales. */
static int
set_pointers (Product *self, const ExecArgs *args, gboolean has_bias)
{
  if (has_bias)
    LT_SET (self->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, args->ptr[BIAS]);
  const gboolean is_block = plan_dtype_block (format_of (args, A)) > 0;
  const void *scale_a = is_block ? (const void *)scales_of (args, A) : args->scale[A];
  const void *scale_b = is_block ? (const void *)scales_of (args, B) : args->scale[B];
  if (is_block || is_narrow (args->dtype[A]))
    LT_SET (self->desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, scale_a);
  if (is_block || is_narrow (args->dtype[B]))
    LT_SET (self->desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, scale_b);
  return 0;
}

/* While a product that accumulates is tried, alpha is 0, so that sums stay as they are; it lies in
 * device memory, so that cuBLASLt cannot leave the product out. */
static gboolean
adds_nothing (const Product *self, const ExecCudaProduct *key)
{
  return self->is_tried && key->accumulates;
}

static int
issue (const Product *self, const ExecCudaProduct *key, const ExecArgs *args,
       const cublasLtMatmulAlgo_t *algo, cudaStream_t stream)
{
  const float host[2] = { 1, key->accumulates ? 1 : 0 };
  const gboolean is_scaled = key->dtype[A] == PLAN_DTYPE_NVFP4 && !adds_nothing (self, key);
  const float *factors = is_scaled || adds_nothing (self, key) ? thread.factors : host;
  guint64 unused;
  if (is_scaled)
    {
      const int code = exec_cuda_multiply_scales (args->scale[A], args->scale[B], host[1],
                                                  thread.factors, stream);
      if (code != 0)
        return code;
    }
  void *work = key->workspace_mib > 0 ? workspace_of (args, key->accumulates, &unused) : NULL;
  LT_TRY (cublasLtMatmul (thread.handle, self->desc, &factors[0], args->ptr[B], self->first,
                          args->ptr[A], self->second, &factors[1], args->ptr[OUT], self->out,
                          args->ptr[OUT], self->out, algo, work, key->workspace_mib * PLAN_MIB,
                          stream));
  return 0;
}

/* --- choosing an algorithm ---------------------------------------------------------------- */

static int
propose (const Product *self, const ExecCudaProduct *key,
         cublasLtMatmulHeuristicResult_t results[TRIED_ALGOS], int *out_found)
{
  const ExecCudaQuestion question = { .desc = self->desc,
                                      .first = self->first,
                                      .second = self->second,
                                      .out = self->out,
                                      .first_alignment = key->alignment[B],
                                      .second_alignment = key->alignment[A],
                                      .out_alignment = key->alignment[OUT],
                                      .workspace = key->workspace_mib * PLAN_MIB };
  return exec_cuda_lt_propose (thread.handle, &question, TRIED_ALGOS, results, out_found);
}

static int
time_call (const Product *self, const ExecCudaProduct *key, const ExecArgs *args,
           const cublasLtMatmulAlgo_t *algo, cudaStream_t stream, cudaEvent_t begin,
           cudaEvent_t end, float *out_ms)
{
  GError *error = NULL;
  int code = (int)cudaEventRecord (begin, stream);
  if (code == 0)
    code = issue (self, key, args, algo, stream);
  if (code == 0)
    code = (int)cudaEventRecord (end, stream);
  if (code == 0 && !exec_cuda_await (thread.comm, end, &error))
    code = exec_cuda_error_code (error);
  if (code == 0)
    code = (int)cudaEventElapsedTime (out_ms, begin, end);
  return code;
}

/* Times an algorithm on the op's own operands, whose result stays the same, however often it runs.
 * The shortest call counts: collectives of the first step run beside some of them. */
static int
time_calls (const Product *self, const ExecCudaProduct *key, const ExecArgs *args,
            const cublasLtMatmulAlgo_t *algo, cudaStream_t stream, cudaEvent_t begin,
            cudaEvent_t end, float *out_ms)
{
  int code = issue (self, key, args, algo, stream);
  *out_ms = G_MAXFLOAT;
  for (guint i = 0; i < TRIED_CALLS && code == 0; i++)
    {
      float ms = G_MAXFLOAT;
      code = time_call (self, key, args, algo, stream, begin, end, &ms);
      *out_ms = MIN (*out_ms, ms);
    }
  return code;
}

/* Times all proposals and gives the fastest. cuBLASLt may refuse what it has proposed: that is
 * skipped. */
static int
try_all (const Product *self, const ExecCudaProduct *key, const ExecArgs *args, cudaStream_t stream,
         const cublasLtMatmulHeuristicResult_t *results, int found, cublasLtMatmulAlgo_t *out_algo)
{
  cudaEvent_t begin = NULL, end = NULL;
  float best = G_MAXFLOAT;
  int code = (int)cudaEventCreate (&begin);
  if (code == 0)
    code = (int)cudaEventCreate (&end);
  for (int i = 0; i < found && code == 0; i++)
    {
      float ms = G_MAXFLOAT;
      code = time_calls (self, key, args, &results[i].algo, stream, begin, end, &ms);
      if (exec_cuda_lt_refuses_algo (code))
        code = 0;
      else if (ms < best)
        {
          best = ms;
          *out_algo = results[i].algo;
        }
    }
  if (end)
    CUDA_WARN (cudaEventDestroy (end));
  if (begin)
    CUDA_WARN (cudaEventDestroy (begin));
  return code == 0 && best == G_MAXFLOAT ? exec_cuda_lt_code (CUBLAS_STATUS_NOT_SUPPORTED) : code;
}

/* Begins or ends the trial of a product. If it accumulates, alpha is 0 and beta is 1 meanwhile, and
 * both are in device memory: exec_cuda_multiply_scales writes the product of two zeros, and 1. */
static int
set_tried (Product *self, const ExecCudaProduct *key, gboolean is_tried, cudaStream_t stream)
{
  const gint32 mode = is_tried || key->dtype[A] == PLAN_DTYPE_NVFP4 ? CUBLASLT_POINTER_MODE_DEVICE
                                                                    : CUBLASLT_POINTER_MODE_HOST;
  self->is_tried = is_tried;
  if (!key->accumulates)
    return 0;
  LT_SET (self->desc, CUBLASLT_MATMUL_DESC_POINTER_MODE, mode);
  if (!is_tried)
    return 0;
  const int code = (int)cudaMemsetAsync (thread.factors, 0, sizeof (float), stream);
  return code != 0 ? code
                   : exec_cuda_multiply_scales (thread.factors, thread.factors, 1, thread.factors,
                                                stream);
}

/* Whether an algorithm from the file (see algos.h) can be used for this product here. */
static gboolean
is_usable (const Product *self, const ExecCudaProduct *key, const cublasLtMatmulAlgo_t *algo)
{
  cublasLtMatmulHeuristicResult_t result;
  return cublasLtMatmulAlgoCheck (thread.handle, self->desc, self->first, self->second, self->out,
                                  self->out, algo, &result)
             == CUBLAS_STATUS_SUCCESS
         && result.workspaceSize <= key->workspace_mib * PLAN_MIB;
}

/* Whether the stream is being captured: a captured product does not run now and cannot be timed. */
static gboolean
is_captured (cudaStream_t stream)
{
  enum cudaStreamCaptureStatus status;
  return cudaStreamIsCapturing (stream, &status) == cudaSuccess
         && status != cudaStreamCaptureStatusNone;
}

/* Chooses the algorithm: from the file, or the fastest proposal. Three take the first proposal: a
 * product of many sizes, as its trials would not end; a deterministic run, as times differ from run
 * to run; and a product that is captured. */
static int
choose (Product *self, const ExecCudaProduct *key, const ExecArgs *args, cudaStream_t stream)
{
  cublasLtMatmulHeuristicResult_t results[TRIED_ALGOS];
  int found = 0;
  if (!key->is_deterministic && !key->varies && exec_cuda_algos_find (key, &self->algo)
      && is_usable (self, key, &self->algo))
    return 0;
  const int code = key->is_foreign ? exec_cuda_lt_code (CUBLAS_STATUS_NOT_SUPPORTED)
                                   : propose (self, key, results, &found);
  self->is_plain = exec_cuda_lt_is_refusal (code);
  if (self->is_plain)
    g_message ("a product of %" G_GINT64_FORMAT " x %" G_GINT64_FORMAT " x %" G_GINT64_FORMAT
               ": cuBLASLt has no algorithm for it, a plain kernel takes it",
               key->m, key->n, key->k);
  if (code != 0)
    return self->is_plain ? 0 : code;
  self->algo = results[0].algo;
  if (key->is_deterministic || key->varies || found == 1 || is_captured (stream))
    return 0;
  int tried = set_tried (self, key, TRUE, stream);
  if (tried == 0)
    tried = try_all (self, key, args, stream, results, found, &self->algo);
  const int ended = set_tried (self, key, FALSE, stream);
  tried = tried != 0 ? tried : ended;
  self->is_plain = exec_cuda_lt_is_refusal (tried);
  if (tried == 0)
    exec_cuda_algos_add (key, &self->algo);
  return self->is_plain ? 0 : tried;
}

/* --- issuing ------------------------------------------------------------------------------ */

static int
make (const ExecCudaProduct *key, const ExecArgs *args, cudaStream_t stream, Product **out)
{
  Product *self = g_new0 (Product, 1);
  int code = make_desc (self, key);
  if (code == 0)
    code = make_layouts (self, key);
  if (code == 0)
    code = set_pointers (self, args, key->dtype[BIAS] != PLAN_N_DTYPES);
  if (code == 0)
    code = choose (self, key, args, stream);
  if (code != 0)
    {
      product_free (self);
      return code;
    }
  g_hash_table_insert (thread.products, g_memdup2 (key, sizeof *key), self);
  *out = self;
  return 0;
}

static int
multiply_plainly (const ExecArgs *args, gboolean accumulates, cudaStream_t stream)
{
  return accumulates ? exec_cuda_gemm_add_plain (args, stream)
                     : exec_cuda_gemm_plain (args, stream);
}

static int
multiply (const ExecArgs *args, gboolean accumulates, cudaStream_t stream)
{
  ExecCudaProduct key;
  Product *product;
  if (!describe (args, accumulates, &key))
    return exec_cuda_lt_code (CUBLAS_STATUS_NOT_SUPPORTED);
  product = g_hash_table_lookup (thread.products, &key);
  int code = product ? set_pointers (product, args, key.dtype[BIAS] != PLAN_N_DTYPES)
                     : make (&key, args, stream, &product);
  if (code == 0 && product->is_plain)
    return multiply_plainly (args, accumulates, stream);
  return code != 0 ? code : issue (product, &key, args, &product->algo, stream);
}

/* The power of two, at least 2, that is not below the size: all products of sizes that give the
 * same one have one algorithm. */
static gint64
round_up (gint64 size)
{
  return G_GINT64_CONSTANT (1) << g_bit_storage ((gulong)size - 1);
}

/* Multiplies by the algorithm of the size rounded up. Algorithms are for any size, but may refuse
 * one, such as a sum that they cannot split: then the plain kernel takes it. */
static int
multiply_any (const ExecArgs *args, gboolean accumulates, gboolean varies_k, cudaStream_t stream)
{
  ExecCudaProduct key, own;
  Product *product;
  if (!describe (args, accumulates, &key))
    return exec_cuda_lt_code (CUBLAS_STATUS_NOT_SUPPORTED);
  own = key;
  key.varies = TRUE;
  if (varies_k)
    key.k = round_up (key.k);
  else
    key.m = round_up (key.m);
  product = g_hash_table_lookup (thread.products, &key);
  int code = product ? set_pointers (product, args, FALSE) : make (&key, args, stream, &product);
  if (code == 0 && product->is_plain)
    return multiply_plainly (args, accumulates, stream);
  if (code == 0)
    {
      clear_layouts (product);
      code = make_layouts (product, &own);
    }
  if (code == 0)
    code = issue (product, &own, args, &product->algo, stream);
  return exec_cuda_lt_refuses_algo (code) ? multiply_plainly (args, accumulates, stream) : code;
}

int
exec_cuda_gemm (const ExecArgs *args, void *stream)
{
  return multiply (args, FALSE, stream);
}

int
exec_cuda_gemm_add (const ExecArgs *args, void *stream)
{
  return multiply (args, TRUE, stream);
}

int
exec_cuda_gemm_any_size (const ExecArgs *args, gboolean accumulates, gboolean varies_k,
                         void *stream)
{
  return multiply_any (args, accumulates, varies_k, stream);
}
