/* SPDX-License-Identifier: Apache-2.0 */
/* The fake cuBLASLt: handles, descriptors and algorithms. Two algorithms can run every product:
 * one that sums in order, without a workspace, and one that sums the halves of k separately,
 * with one. */
#include "config.h"

#include "tests/fake/cublaslt.hpp"
#include "tests/fake/watch.h"

#include <cstddef>
#include <cstring>

using namespace fake;

struct cublasLtContext
{
  unsigned device;
};

namespace
{

/* What cublasLtMatmulAlgo_t holds. */
struct Algo
{
  guint32 id, split, reduction;
  guint16 alignment[4]; /* the alignments of A, B, C, D that it was chosen for */
  guint32 formats[4];   /* of A, B, C, D */
  guint32 turns;        /* whether A and B are transposed, and the scale modes */
};
static_assert (sizeof (Algo) <= sizeof (cublasLtMatmulAlgo_t), "it has room");

const guint32 ALGO_PLAIN = 66, ALGO_SPLIT = 67;
const guint32 ANY_TURNS = G_MAXUINT32;

/* --- attributes --------------------------------------------------------------------------- */

struct Field
{
  int attribute;
  size_t at, bytes;
};

#define DESC(attribute, field) \
  { \
    CUBLASLT_MATMUL_DESC_##attribute, offsetof (FakeMatmulDesc, field), \
        sizeof (((FakeMatmulDesc *)nullptr)->field) \
  }
const std::vector<Field> desc_fields = {
  DESC (COMPUTE_TYPE, compute),
  DESC (SCALE_TYPE, scale_type),
  DESC (POINTER_MODE, pointer_mode),
  DESC (TRANSA, op_a),
  DESC (TRANSB, op_b),
  DESC (TRANSC, op_c),
  DESC (EPILOGUE, epilogue),
  DESC (BIAS_POINTER, bias),
  DESC (SM_COUNT_TARGET, sms),
  DESC (A_SCALE_POINTER, scale_a),
  DESC (B_SCALE_POINTER, scale_b),
  DESC (C_SCALE_POINTER, scale_c),
  DESC (D_SCALE_POINTER, scale_d),
  DESC (AMAX_D_POINTER, amax_d),
  DESC (FAST_ACCUM, fast_accumulation),
  DESC (BIAS_DATA_TYPE, bias_type),
  DESC (A_SCALE_MODE, mode_a),
  DESC (B_SCALE_MODE, mode_b),
  DESC (C_SCALE_MODE, mode_c),
  DESC (D_SCALE_MODE, mode_d),
};

#define LAYOUT(attribute, field) \
  { \
    CUBLASLT_MATRIX_LAYOUT_##attribute, offsetof (FakeMatrixLayout, field), \
        sizeof (((FakeMatrixLayout *)nullptr)->field) \
  }
const std::vector<Field> layout_fields = {
  LAYOUT (TYPE, type),
  LAYOUT (ORDER, order),
  LAYOUT (ROWS, rows),
  LAYOUT (COLS, cols),
  LAYOUT (LD, ld),
  LAYOUT (BATCH_COUNT, batches),
  LAYOUT (STRIDED_BATCH_OFFSET, batch_stride),
};

#define PREF(attribute, field) \
  { \
    CUBLASLT_MATMUL_PREF_##attribute, offsetof (FakeMatmulPreference, field), \
        sizeof (((FakeMatmulPreference *)nullptr)->field) \
  }
const std::vector<Field> preference_fields = {
  PREF (SEARCH_MODE, search_mode),
  PREF (MAX_WORKSPACE_BYTES, workspace),
  PREF (REDUCTION_SCHEME_MASK, reductions),
  PREF (MIN_ALIGNMENT_A_BYTES, alignment[0]),
  PREF (MIN_ALIGNMENT_B_BYTES, alignment[1]),
  PREF (MIN_ALIGNMENT_C_BYTES, alignment[2]),
  PREF (MIN_ALIGNMENT_D_BYTES, alignment[3]),
};

const std::vector<Field> algo_fields = {
  { CUBLASLT_ALGO_CONFIG_ID, offsetof (Algo, id), sizeof (guint32) },
  { CUBLASLT_ALGO_CONFIG_SPLITK_NUM, offsetof (Algo, split), sizeof (guint32) },
  { CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, offsetof (Algo, reduction), sizeof (guint32) },
};

cublasStatus_t
set (void *object, const std::vector<Field> &fields, int attribute, const void *from, size_t bytes)
{
  for (const Field &field : fields)
    if (field.attribute == attribute && object != nullptr && from != nullptr
        && field.bytes == bytes)
      {
        memcpy ((guint8 *)object + field.at, from, bytes);
        return CUBLAS_STATUS_SUCCESS;
      }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t
get (const void *object, const std::vector<Field> &fields, int attribute, void *to, size_t bytes,
     size_t *written)
{
  for (const Field &field : fields)
    if (field.attribute == attribute && object != nullptr
        && (bytes == 0 ? written != nullptr : to != nullptr && bytes == field.bytes))
      {
        if (bytes > 0)
          memcpy (to, (const guint8 *)object + field.at, bytes);
        if (written != nullptr)
          *written = field.bytes;
        return CUBLAS_STATUS_SUCCESS;
      }
  return CUBLAS_STATUS_INVALID_VALUE;
}

/* --- objects ------------------------------------------------------------------------------ */

template <typename T>
cublasStatus_t
make (T **out, const T &value, const char *kind)
{
  Lock lock;
  cudaError_t error;

  if (out == nullptr)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (fails (&error))
    return CUBLAS_STATUS_ALLOC_FAILED;
  *out = new T (value);
  made (*out, kind);
  return CUBLAS_STATUS_SUCCESS;
}

template <typename T>
cublasStatus_t
destroy (T *object, const char *kind)
{
  if (object == nullptr)
    return CUBLAS_STATUS_SUCCESS;
  if (!fake_order_gone (object, kind))
    return CUBLAS_STATUS_INVALID_VALUE;
  delete object;
  return CUBLAS_STATUS_SUCCESS;
}

/* --- algorithms --------------------------------------------------------------------------- */

void
describe (const Product &product, guint32 formats[4], guint32 *turns)
{
  const FakeMatrixLayout *layouts[] = { &product.a, &product.b, &product.c, &product.d };

  for (guint i = 0; i < 4; i++)
    formats[i] = (guint32)layouts[i]->type;
  *turns = (guint32)(product.desc.op_a | product.desc.op_b << 2 | product.desc.mode_a << 4
                     | product.desc.mode_b << 8);
}

Algo
make_algo (guint32 id, const Product &product, const guint32 alignment[4])
{
  Algo algo = {};

  algo.id = id;
  algo.split = id == ALGO_SPLIT ? 2 : 1;
  for (guint i = 0; i < 4; i++)
    algo.alignment[i] = (guint16)alignment[i];
  describe (product, algo.formats, &algo.turns);
  return algo;
}

/* Bytes of the workspace, which holds partial sums in fp32. */
size_t
workspace_of (const Algo &algo, const Product &product)
{
  return algo.split > 1 ? 4 * product.m * product.n * (size_t)product.d.batches : 0;
}

cublasStatus_t
check_algo (const Algo &algo, const Product &product, std::string &why)
{
  guint32 formats[4], turns;

  describe (product, formats, &turns);
  why = "not an algorithm";
  if ((algo.id != ALGO_PLAIN && algo.id != ALGO_SPLIT) || algo.split < 1 || algo.split > 2)
    return CUBLAS_STATUS_INVALID_VALUE;
  why = "the algorithm is one for other formats or transpositions";
  if (memcmp (formats, algo.formats, sizeof formats) != 0
      || (turns != algo.turns && algo.turns != ANY_TURNS))
    return CUBLAS_STATUS_INVALID_VALUE;
  return CUBLAS_STATUS_SUCCESS;
}

/* Gathers the product from the four layouts and the descriptor. Fails where one of them is
 * missing. */
bool
gather (cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
        cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, Product &out,
        cublasStatus_t *out_status)
{
  *out_status = handle == nullptr ? CUBLAS_STATUS_NOT_INITIALIZED : CUBLAS_STATUS_INVALID_VALUE;
  if (handle == nullptr || desc == nullptr || a == nullptr || b == nullptr || c == nullptr
      || d == nullptr)
    return false;
  out = { *desc, *a, *b, *c, *d, 0, 0, 0 };
  return true;
}

/* The mistake that fake_cublaslt_stretch asked for. */
struct
{
  guint number;
  char matrix;
  gint64 elements;
} stretch;

void
stretch_layout (Product &product)
{
  const std::string names = "abd";
  FakeMatrixLayout *layouts[] = { &product.a, &product.b, &product.d };

  if (stretch.number == 0 || --stretch.number > 0)
    return;
  for (guint i = 0; i < names.size (); i++)
    if (stretch.matrix == names[i])
      layouts[i]->ld += stretch.elements;
    else if (stretch.matrix == g_ascii_toupper (names[i]))
      layouts[i]->batch_stride += stretch.elements;
  product.c.ld = product.d.ld;
  product.c.batch_stride = product.d.batch_stride;
}

cublasStatus_t
refuse (cublasStatus_t status, const std::string &why)
{
  add_to_log ("gemm refused: %s", why.c_str ());
  return status;
}

std::string
details_of (const Product &self, const Operands &operands)
{
  const FakeMatmulDesc &desc = self.desc;
  g_autofree char *text
      = g_strdup_printf (" m %" G_GUINT64_FORMAT " n %" G_GUINT64_FORMAT " k %" G_GUINT64_FORMAT
                         " batch %d a %s%s b %s%s d %s%s%s%s split %u%s",
                         self.m, self.n, self.k, self.d.batches, name_of_type (self.a.type),
                         desc.op_a != CUBLAS_OP_N ? " turned" : "", name_of_type (self.b.type),
                         desc.op_b != CUBLAS_OP_N ? " turned" : "", name_of_type (self.d.type),
                         operands.alpha == nullptr && operands.host_beta == 0 ? "" : " added to",
                         desc.epilogue == CUBLASLT_EPILOGUE_BIAS ? " bias" : "",
                         desc.fast_accumulation != 0 ? " fast" : "", operands.split,
                         operands.rounds ? " rounded" : "");
  std::string details = text;

  return desc.sms > 0 ? details + " sms " + std::to_string (desc.sms) : details;
}

}

/* --- the interface ------------------------------------------------------------------------ */

size_t
cublasLtGetVersion (void)
{
  return 130100;
}

size_t
cublasLtGetCudartVersion (void)
{
  return CUDART_VERSION;
}

const char *
cublasLtGetStatusName (cublasStatus_t status)
{
#define NAME(name, value) \
  case name: \
    return #name;
  switch (status)
    {
      FAKE_CUBLAS_STATUSES (NAME)
    }
  return "unknown status";
}

const char *
cublasLtGetStatusString (cublasStatus_t status)
{
  return cublasLtGetStatusName (status);
}

cublasStatus_t
cublasLtCreate (cublasLtHandle_t *out)
{
  return make (out, { current_device () }, "cublasLt handle");
}

cublasStatus_t
cublasLtDestroy (cublasLtHandle_t handle)
{
  return destroy (handle, "cublasLt handle");
}

cublasStatus_t
cublasLtMatmulDescCreate (cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                          cudaDataType_t scale)
{
  FakeMatmulDesc desc = {};

  desc.compute = compute;
  desc.scale_type = scale;
  return make (out, desc, "product descriptor");
}

cublasStatus_t
cublasLtMatmulDescDestroy (cublasLtMatmulDesc_t desc)
{
  return destroy (desc, "product descriptor");
}

cublasStatus_t
cublasLtMatmulDescSetAttribute (cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attr,
                                const void *from, size_t bytes)
{
  return set (desc, desc_fields, attr, from, bytes);
}

cublasStatus_t
cublasLtMatmulDescGetAttribute (cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attr,
                                void *to, size_t bytes, size_t *written)
{
  return get (desc, desc_fields, attr, to, bytes, written);
}

cublasStatus_t
cublasLtMatrixLayoutCreate (cublasLtMatrixLayout_t *out, cudaDataType type, uint64_t rows,
                            uint64_t cols, int64_t ld)
{
  FakeMatrixLayout layout = {};

  layout.type = type;
  layout.rows = rows;
  layout.cols = cols;
  layout.ld = ld;
  return make (out, layout, "matrix layout");
}

cublasStatus_t
cublasLtMatrixLayoutDestroy (cublasLtMatrixLayout_t layout)
{
  return destroy (layout, "matrix layout");
}

cublasStatus_t
cublasLtMatrixLayoutSetAttribute (cublasLtMatrixLayout_t layout,
                                  cublasLtMatrixLayoutAttribute_t attr, const void *from,
                                  size_t bytes)
{
  return set (layout, layout_fields, attr, from, bytes);
}

cublasStatus_t
cublasLtMatrixLayoutGetAttribute (cublasLtMatrixLayout_t layout,
                                  cublasLtMatrixLayoutAttribute_t attr, void *to, size_t bytes,
                                  size_t *written)
{
  return get (layout, layout_fields, attr, to, bytes, written);
}

cublasStatus_t
cublasLtMatmulPreferenceCreate (cublasLtMatmulPreference_t *out)
{
  return make (out, FakeMatmulPreference (), "product preference");
}

cublasStatus_t
cublasLtMatmulPreferenceDestroy (cublasLtMatmulPreference_t preference)
{
  return destroy (preference, "product preference");
}

cublasStatus_t
cublasLtMatmulPreferenceSetAttribute (cublasLtMatmulPreference_t preference,
                                      cublasLtMatmulPreferenceAttributes_t attr, const void *from,
                                      size_t bytes)
{
  return set (preference, preference_fields, attr, from, bytes);
}

cublasStatus_t
cublasLtMatmulAlgoConfigSetAttribute (cublasLtMatmulAlgo_t *algo,
                                      cublasLtMatmulAlgoConfigAttributes_t attr, const void *from,
                                      size_t bytes)
{
  return attr == CUBLASLT_ALGO_CONFIG_ID ? CUBLAS_STATUS_INVALID_VALUE
                                         : set (algo, algo_fields, attr, from, bytes);
}

cublasStatus_t
cublasLtMatmulAlgoConfigGetAttribute (const cublasLtMatmulAlgo_t *algo,
                                      cublasLtMatmulAlgoConfigAttributes_t attr, void *to,
                                      size_t bytes, size_t *written)
{
  return get (algo, algo_fields, attr, to, bytes, written);
}

cublasStatus_t
cublasLtMatmulAlgoGetHeuristic (cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                cublasLtMatmulPreference_t preference, int asked,
                                cublasLtMatmulHeuristicResult_t results[], int *found)
{
  Lock lock;
  Product product;
  cublasStatus_t status;
  std::string why;

  if (!gather (handle, desc, a, b, c, d, product, &status))
    return status;
  if (preference == nullptr || asked <= 0 || results == nullptr || found == nullptr)
    return CUBLAS_STATUS_INVALID_VALUE;
  *found = 0;
  status = check_product (product, why);
  if (status == CUBLAS_STATUS_SUCCESS
      && (is_fp8 (product.a.type) || product.a.type == CUDA_R_4F_E2M1))
    for (guint32 alignment : preference->alignment)
      if (alignment % 16 != 0)
        {
          status = CUBLAS_STATUS_NOT_SUPPORTED;
          why = "formats of few bits need operands on 16 bytes";
        }
  if (status != CUBLAS_STATUS_SUCCESS)
    return refuse (status, why);
  for (guint32 id : { ALGO_PLAIN, ALGO_SPLIT })
    {
      Algo algo = make_algo (id, product, preference->alignment);
      size_t workspace = workspace_of (algo, product);

      if (id == ALGO_SPLIT) /* the allowed scheme with the largest errors */
        algo.reduction = preference->reductions & CUBLASLT_REDUCTION_SCHEME_INPLACE
                             ? (guint32)CUBLASLT_REDUCTION_SCHEME_INPLACE
                             : preference->reductions;
      if (workspace > preference->workspace || *found == asked)
        continue;
      cublasLtMatmulHeuristicResult_t *result = &results[(*found)++];
      memset (result, 0, sizeof *result);
      memcpy (&result->algo, &algo, sizeof algo);
      result->workspaceSize = workspace;
      result->state = CUBLAS_STATUS_SUCCESS;
      result->wavesCount = 1;
    }
  if (*found > 0 && *found < asked) /* only its state tells it from usable results */
    {
      memset (&results[*found], 0, sizeof *results);
      results[(*found)++].state = CUBLAS_STATUS_NOT_SUPPORTED;
    }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasLtMatmulAlgoCheck (cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                         cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                         cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                         const cublasLtMatmulAlgo_t *algo, cublasLtMatmulHeuristicResult_t *result)
{
  Lock lock;
  Product product;
  cublasStatus_t status;
  std::string why;
  Algo own;

  if (!gather (handle, desc, a, b, c, d, product, &status))
    return status;
  memcpy (&own, algo, sizeof own);
  status = check_product (product, why);
  if (status == CUBLAS_STATUS_SUCCESS)
    status = check_algo (own, product, why);
  if (status != CUBLAS_STATUS_SUCCESS)
    return refuse (status, why);
  result->workspaceSize = workspace_of (own, product);
  result->state = CUBLAS_STATUS_SUCCESS;
  result->wavesCount = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasLtMatmulAlgoInit (cublasLtHandle_t handle, cublasComputeType_t compute, cudaDataType_t scale,
                        cudaDataType_t a, cudaDataType_t b, cudaDataType_t c, cudaDataType_t d,
                        int id, cublasLtMatmulAlgo_t *algo)
{
  Algo own = {};

  if (handle == nullptr)
    return CUBLAS_STATUS_NOT_INITIALIZED;
  if (algo == nullptr || (id != (int)ALGO_PLAIN && id != (int)ALGO_SPLIT))
    return CUBLAS_STATUS_INVALID_VALUE;
  own.id = (guint32)id;
  own.split = id == (int)ALGO_SPLIT ? 2 : 1;
  own.turns = ANY_TURNS;
  own.formats[0] = (guint32)a;
  own.formats[1] = (guint32)b;
  own.formats[2] = (guint32)c;
  own.formats[3] = (guint32)d;
  memset (algo, 0, sizeof *algo);
  memcpy (algo, &own, sizeof own);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasLtMatmul (cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout,
                const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_bytes,
                cudaStream_t stream)
{
  const guint32 natural[4] = { 1, 1, 1, 1 };
  Lock lock;
  Product product;
  Operands operands = { a, b, c, d, alpha, beta, 0, 0, workspace, workspace_bytes, 1, false };
  cublasStatus_t status;
  cudaError_t error;
  std::string why = "alpha or beta is missing";
  Algo own;

  if (!gather (handle, desc, a_layout, b_layout, c_layout, d_layout, product, &status))
    return status;
  if (alpha == nullptr || beta == nullptr)
    return refuse (CUBLAS_STATUS_INVALID_VALUE, why);
  if (desc->pointer_mode == CUBLASLT_POINTER_MODE_HOST)
    {
      memcpy (&operands.host_alpha, alpha, sizeof (float));
      memcpy (&operands.host_beta, beta, sizeof (float));
      operands.alpha = operands.beta = nullptr;
    }
  stretch_layout (product);
  status = check_product (product, why);
  own = make_algo (ALGO_PLAIN, product, natural);
  if (algo != nullptr)
    memcpy (&own, algo, sizeof own);
  if (status == CUBLAS_STATUS_SUCCESS)
    status = check_algo (own, product, why);
  if (status == CUBLAS_STATUS_SUCCESS)
    status = check_operands (product, operands, own.alignment, why);
  if (status == CUBLAS_STATUS_SUCCESS && workspace_of (own, product) > workspace_bytes)
    {
      status = CUBLAS_STATUS_INVALID_VALUE;
      why = "the workspace is too small for the algorithm";
    }
  if (status == CUBLAS_STATUS_SUCCESS && own.split > 1 && product.k % 2 != 0)
    {
      status = CUBLAS_STATUS_NOT_SUPPORTED;
      why = "an odd sum, which this algorithm was proposed for and does not split";
    }
  if (status != CUBLAS_STATUS_SUCCESS)
    return refuse (status, why);
  operands.split = own.split;
  operands.rounds = (own.reduction & ~CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) != 0;
  if (fails (&error))
    return CUBLAS_STATUS_EXECUTION_FAILED;
  error = submit (
      stream, "gemm", [=] (Op &op) { return multiply (op, product, operands); },
      details_of (product, operands));
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

void
fake_cublaslt_stretch (guint number, char matrix, gint64 elements)
{
  Lock lock;

  stretch = { number, matrix, elements };
}
