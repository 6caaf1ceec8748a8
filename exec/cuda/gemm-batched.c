/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/cuda/gemm-batched.h"

#include "exec/cuda/lt.h"

#include <cuda_runtime_api.h>
#include <string.h>

enum
{
  OUT,
  A,
  B,
  N_MATRICES
};

/* What identifies a product, apart from where its matrices lie. There is no padding, because keys
 * are compared byte by byte. */
typedef struct
{
  gint64 m, n, k;
  gint64 pitch[N_MATRICES], stride[N_MATRICES];
  guint32 count;
  guint16 sms; /* SMs that it may use; 0: all */
  guint8 layout, accumulates;
  guint8 dtype[N_MATRICES];
  guint8 alignment[N_MATRICES]; /* of every matrix of the batch: see exec_cuda_lt_alignment */
  guint8 unused[2];
} Key;
G_STATIC_ASSERT (sizeof (Key) == 3 * 8 + 6 * 8 + 16);

typedef struct
{
  cublasLtMatmulDesc_t desc;
  cublasLtMatrixLayout_t layouts[N_MATRICES];
  cublasLtMatmulAlgo_t algo;
  gboolean is_refused;
} Product;

typedef struct
{
  guint opened;
  guint16 sms; /* that the GPU has */
  cublasLtHandle_t handle;
  GHashTable *products; /* Key -> Product */
} Thread;

static __thread Thread thread;

static void
product_free (gpointer data)
{
  Product *self = data;
  for (guint i = 0; i < N_MATRICES; i++)
    if (self->layouts[i])
      cublasLtMatrixLayoutDestroy (self->layouts[i]);
  if (self->desc)
    cublasLtMatmulDescDestroy (self->desc);
  g_free (self);
}

static guint
hash (gconstpointer data)
{
  return exec_cuda_lt_hash (data, sizeof (Key));
}

static gboolean
are_equal (gconstpointer a, gconstpointer b)
{
  return memcmp (a, b, sizeof (Key)) == 0;
}

gboolean
exec_cuda_batched_open (GError **error)
{
  if (thread.opened > 0)
    {
      thread.opened++;
      return TRUE;
    }
  if (!exec_cuda_lt_open (&thread.handle, &thread.sms, error))
    return FALSE;
  thread.products = g_hash_table_new_full (hash, are_equal, g_free, product_free);
  thread.opened = 1;
  return TRUE;
}

void
exec_cuda_batched_close (void)
{
  g_assert (thread.opened > 0);
  if (--thread.opened > 0)
    return;
  g_clear_pointer (&thread.products, g_hash_table_unref);
  CUDA_WARN (exec_cuda_lt_code ((int)cublasLtDestroy (thread.handle)));
}

/* --- making a product --------------------------------------------------------------------- */

/* The alignment that all matrices of a batch have, as exec_cuda_lt_alignment gives it. */
static guint8
alignment_of (const ExecCudaMatrices *self, guint count)
{
  const guint64 step = count > 1 ? plan_dtype_bytes (self->dtype, (guint64)self->stride) : 0;
  return exec_cuda_lt_alignment ((guintptr)self->at | step);
}

static void
make_key (const ExecCudaBatch *batch, Key *out)
{
  const ExecCudaMatrices *matrices[] = { &batch->out, &batch->a, &batch->b };
  memset (out, 0, sizeof *out);
  out->m = batch->m;
  out->n = batch->n;
  out->k = batch->k;
  out->count = batch->count;
  out->layout = (guint8)batch->layout;
  out->accumulates = (guint8)batch->accumulates;
  if (batch->taken_sms > 0 && batch->taken_sms < thread.sms)
    out->sms = (guint16)(thread.sms - batch->taken_sms);
  for (guint i = 0; i < N_MATRICES; i++)
    {
      out->pitch[i] = matrices[i]->pitch;
      out->stride[i] = batch->count > 1 ? matrices[i]->stride : 0;
      out->dtype[i] = (guint8)matrices[i]->dtype;
      out->alignment[i] = alignment_of (matrices[i], batch->count);
    }
}

/* Describes a row-major matrix of `rows` by `cols`, which is `cols` by `rows` to cuBLASLt. */
static int
make_layout (Product *self, const Key *key, guint i, gint64 rows, gint64 cols)
{
  const gint32 count = (gint32)key->count;
  LT_TRY (cublasLtMatrixLayoutCreate (&self->layouts[i],
                                      exec_cuda_lt_type ((PlanDtype)key->dtype[i]), (guint64)cols,
                                      (guint64)rows, key->pitch[i]));
  if (count == 1)
    return 0;
  LT_TRY (cublasLtMatrixLayoutSetAttribute (self->layouts[i], CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                            &count, sizeof count));
  LT_TRY (cublasLtMatrixLayoutSetAttribute (self->layouts[i],
                                            CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                            &key->stride[i], sizeof key->stride[i]));
  return 0;
}

static int
make_layouts (Product *self, const Key *key)
{
  const gboolean transposes_a = key->layout == 2, transposes_b = key->layout == 1;
  int code = make_layout (self, key, OUT, key->m, key->n);
  if (code == 0)
    code = make_layout (self, key, A, transposes_a ? key->k : key->m,
                        transposes_a ? key->m : key->k);
  if (code == 0)
    code = make_layout (self, key, B, transposes_b ? key->n : key->k,
                        transposes_b ? key->k : key->n);
  return code;
}

static int
choose (Product *self, const Key *key)
{
  const ExecCudaQuestion question = { .desc = self->desc,
                                      .first = self->layouts[B],
                                      .second = self->layouts[A],
                                      .out = self->layouts[OUT],
                                      .first_alignment = key->alignment[B],
                                      .second_alignment = key->alignment[A],
                                      .out_alignment = key->alignment[OUT] };
  cublasLtMatmulHeuristicResult_t result;
  int found = 0;
  const int code = exec_cuda_lt_propose (thread.handle, &question, 1, &result, &found);
  self->is_refused = exec_cuda_lt_is_refusal (code);
  if (self->is_refused)
    g_message ("%u products of %" G_GINT64_FORMAT " x %" G_GINT64_FORMAT " x %" G_GINT64_FORMAT
               " at once: cuBLASLt has no algorithm for them",
               key->count, key->m, key->n, key->k);
  if (code != 0)
    return self->is_refused ? 0 : code;
  self->algo = result.algo;
  return 0;
}

static int
make (const Key *key, Product **out)
{
  Product *self = g_new0 (Product, 1);
  int code = exec_cuda_lt_describe (key->layout, key->sms, &self->desc);
  if (code == 0)
    code = make_layouts (self, key);
  if (code == 0)
    code = choose (self, key);
  if (code != 0)
    {
      product_free (self);
      return code;
    }
  g_hash_table_insert (thread.products, g_memdup2 (key, sizeof *key), self);
  *out = self;
  return 0;
}

/* --- issuing ------------------------------------------------------------------------------ */

int
exec_cuda_batched (const ExecCudaBatch *batch, void *stream)
{
  const float alpha = 1, beta = batch->accumulates ? 1 : 0;
  Key key;
  make_key (batch, &key);
  Product *self = g_hash_table_lookup (thread.products, &key);
  const int code = self ? 0 : make (&key, &self);
  if (code != 0)
    return code;
  if (self->is_refused)
    return exec_cuda_lt_code (CUBLAS_STATUS_NOT_SUPPORTED);
  LT_TRY (cublasLtMatmul (thread.handle, self->desc, &alpha, batch->b.at, self->layouts[B],
                          batch->a.at, self->layouts[A], &beta, batch->out.at, self->layouts[OUT],
                          batch->out.at, self->layouts[OUT], &self->algo, NULL, 0,
                          (cudaStream_t)stream));
  return 0;
}
