/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/kernels.h"
#include "exec/number/number.h"
#include "tests/fake/cuda-fake.h"
#include "tests/fake/include/cublasLt.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* cuBLASLt on the fake device: its products, and what it refuses. */

#define OK(call) ck_assert_int_eq (call, 0)
#define SET(desc, attribute, value) \
  OK (cublasLtMatmulDescSetAttribute (desc, CUBLASLT_MATMUL_DESC_##attribute, &(value), \
                                      sizeof (value)))

/* A product that a test describes: it changes the members that it is about. */
typedef struct
{
  guint64 m, n, k;
  gint64 ld_a, ld_b, ld_d; /* 0: as small as can be */
  cudaDataType type_a, type_b, type_c, type_d;
  gboolean op_a, op_b, has_bias;
  gint32 batches;            /* 0: one */
  gint32 scale_mode, mode_b; /* 0: as the other */
  gint8 is_fast;
  float alpha, beta;
  guint64 workspace; /* at most */
  guint32 alignment; /* of A; 0: 256 */
  const void *scale_a, *scale_b, *scale_d, *bias;
  void *amax;
  gint32 bias_type; /* -1: as it is by default */
} Case;

static const Case bf16 = { .m = 16,
                           .n = 8,
                           .k = 32,
                           .type_a = CUDA_R_16BF,
                           .type_b = CUDA_R_16BF,
                           .type_c = CUDA_R_16BF,
                           .type_d = CUDA_R_16BF,
                           .batches = 1,
                           .alpha = 1,
                           .workspace = 1 << 20,
                           .alignment = 256,
                           .bias_type = -1 };

static cublasLtHandle_t handle;
static cublasLtMatmulDesc_t desc;
static cublasLtMatrixLayout_t a_layout, b_layout, c_layout, d_layout;
static cudaStream_t stream;

static void
set_up_handles (void)
{
  OK (cublasLtCreate (&handle));
  OK (cudaStreamCreateWithFlags (&stream, cudaStreamNonBlocking));
}

static void
set_up (void)
{
  fake_cuda_reset ();
  set_up_handles ();
}

static cublasLtMatrixLayout_t
new_layout (cudaDataType type, guint64 rows, guint64 cols, gint64 ld, gint32 batches)
{
  cublasLtMatrixLayout_t layout;
  gint64 stride = (ld > 0 ? ld : (gint64)rows) * (gint64)cols;

  OK (cublasLtMatrixLayoutCreate (&layout, type, rows, cols, ld > 0 ? ld : (gint64)rows));
  if (batches > 1)
    {
      OK (cublasLtMatrixLayoutSetAttribute (layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batches,
                                            sizeof batches));
      OK (cublasLtMatrixLayoutSetAttribute (layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                            &stride, sizeof stride));
    }
  return layout;
}

static void
describe (const Case *self)
{
  const gint32 transposed = CUBLAS_OP_T;
  const guint32 bias = CUBLASLT_EPILOGUE_BIAS;

  OK (cublasLtMatmulDescCreate (&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  if (self->op_a)
    SET (desc, TRANSA, transposed);
  if (self->op_b)
    SET (desc, TRANSB, transposed);
  if (self->has_bias)
    {
      SET (desc, EPILOGUE, bias);
      SET (desc, BIAS_POINTER, self->bias);
      SET (desc, BIAS_DATA_TYPE, self->bias_type);
    }
  SET (desc, A_SCALE_POINTER, self->scale_a);
  SET (desc, B_SCALE_POINTER, self->scale_b);
  SET (desc, D_SCALE_POINTER, self->scale_d);
  SET (desc, AMAX_D_POINTER, self->amax);
  SET (desc, A_SCALE_MODE, self->scale_mode);
  SET (desc, B_SCALE_MODE, *(self->mode_b ? &self->mode_b : &self->scale_mode));
  SET (desc, FAST_ACCUM, self->is_fast);
  a_layout = new_layout (self->type_a, self->op_a ? self->k : self->m,
                         self->op_a ? self->m : self->k, self->ld_a, self->batches);
  b_layout = new_layout (self->type_b, self->op_b ? self->n : self->k,
                         self->op_b ? self->k : self->n, self->ld_b, self->batches);
  c_layout = new_layout (self->type_c, self->m, self->n, self->ld_d, self->batches);
  d_layout = new_layout (self->type_d, self->m, self->n, self->ld_d, self->batches);
}

static void
forget (void)
{
  OK (cublasLtMatmulDescDestroy (desc));
  OK (cublasLtMatrixLayoutDestroy (a_layout));
  OK (cublasLtMatrixLayoutDestroy (b_layout));
  OK (cublasLtMatrixLayoutDestroy (c_layout));
  OK (cublasLtMatrixLayoutDestroy (d_layout));
}

static const char *
finish (void)
{
  forget ();
  OK (cublasLtDestroy (handle));
  OK (cudaStreamDestroy (stream));
  return fake_cuda_finish ();
}

/* Asks the heuristic for the product's algorithms. */
static cublasStatus_t
propose (const Case *self, cublasLtMatmulHeuristicResult_t results[4], int *out_found)
{
  const guint32 alignment = self->alignment > 0 ? self->alignment : 256;
  cublasLtMatmulPreference_t preference;
  cublasStatus_t status;

  OK (cublasLtMatmulPreferenceCreate (&preference));
  OK (cublasLtMatmulPreferenceSetAttribute (preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                            &self->workspace, sizeof self->workspace));
  OK (cublasLtMatmulPreferenceSetAttribute (preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                                            &alignment, sizeof alignment));
  *out_found = 0;
  status = cublasLtMatmulAlgoGetHeuristic (handle, desc, a_layout, b_layout, c_layout, d_layout,
                                           preference, 4, results, out_found);
  if (*out_found > 0) /* the last proposal has a state that is not success, as real ones may */
    ck_assert_int_eq (results[--*out_found].state, CUBLAS_STATUS_NOT_SUPPORTED);
  OK (cublasLtMatmulPreferenceDestroy (preference));
  return status;
}

/* --- products ----------------------------------------------------------------------------- */

/* Copies numbers to device memory, in a format. */
static void *
copy_in (cudaDataType type, const float *from, guint64 count)
{
  g_autofree guint8 *narrow = g_malloc (count * 4);
  guint64 bytes = type == CUDA_R_32F ? 4 * count : type == CUDA_R_16BF ? 2 * count : count;
  void *memory;

  for (guint64 i = 0; i < count; i++)
    switch ((int)type)
      {
      case CUDA_R_32F:
        memcpy (narrow + 4 * i, &from[i], 4);
        break;
      case CUDA_R_16BF:
        exec_number_narrow (narrow + 2 * i, PLAN_DTYPE_BF16, &from[i], 1);
        break;
      case CUDA_R_8F_E4M3:
        narrow[i] = exec_number_to_e4m3 ((double)from[i]);
        break;
      default:
        narrow[i] = exec_number_to_e5m2 ((double)from[i]);
        break;
      }
  OK (cudaMalloc (&memory, bytes));
  OK (cudaMemcpy (memory, narrow, bytes, cudaMemcpyHostToDevice));
  return memory;
}

static float *
random_numbers (GRand *rand, guint64 count)
{
  float *numbers = g_new (float, count);

  for (guint64 i = 0; i < count; i++) /* exact in bf16 */
    numbers[i] = (float)g_rand_int_range (rand, -128, 128) / 64;
  return numbers;
}

/* The product of row-major matrices by the CPU, and by cuBLASLt as the op list's layouts have it:
 * bit for bit the same, and the same again when it is added to itself. */
START_TEST (lt_equals_the_cpu)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  gint64 m = g_rand_int_range (rand, 1, 40), n = g_rand_int_range (rand, 1, 40);
  gint64 k = g_rand_int_range (rand, 1, 300);
  int layout = _i % 3;
  g_autofree float *a = random_numbers (rand, (guint64)(m * k));
  g_autofree float *b = random_numbers (rand, (guint64)(k * n));
  g_autofree float *want = g_new (float, (guint64)(m * n)), *got = g_new (float, (guint64)(m * n));
  Case product = bf16;
  void *at_a = copy_in (CUDA_R_16BF, a, (guint64)(m * k)),
       *at_b = copy_in (CUDA_R_16BF, b, (guint64)(k * n));
  void *out;

  exec_gemm_fp32 (m, n, k, layout, a, b, want);
  product.m = (guint64)n;
  product.n = (guint64)m;
  product.k = (guint64)k;
  product.op_a = layout == 1;
  product.op_b = layout == 2;
  product.type_c = product.type_d = CUDA_R_32F;
  describe (&product);
  OK (cudaMalloc (&out, (gsize)(m * n) * 4));
  OK (cublasLtMatmul (handle, desc, &product.alpha, at_b, a_layout, at_a, b_layout, &product.beta,
                      out, c_layout, out, d_layout, NULL, NULL, 0, stream));
  OK (cudaStreamSynchronize (stream));
  OK (cudaMemcpy (got, out, (gsize)(m * n) * 4, cudaMemcpyDeviceToHost));
  ck_assert_msg (memcmp (got, want, (gsize)(m * n) * 4) == 0, "seed %d", _i);
  product.beta = 1;
  OK (cublasLtMatmul (handle, desc, &product.alpha, at_b, a_layout, at_a, b_layout, &product.beta,
                      out, c_layout, out, d_layout, NULL, NULL, 0, stream));
  OK (cudaStreamSynchronize (stream));
  OK (cudaMemcpy (got, out, (gsize)(m * n) * 4, cudaMemcpyDeviceToHost));
  for (gint64 i = 0; i < m * n; i++)
    ck_assert_msg (got[i] == 2 * want[i], "seed %d", _i);
  OK (cudaFree (at_a));
  OK (cudaFree (at_b));
  OK (cudaFree (out));
  ck_assert_str_eq (finish (), "");
}
END_TEST

/* Against loops in double, with all that can be asked for: batches, bias, leading dimensions. */
START_TEST (lt_strides_batches_and_biases)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (7);
  Case product = bf16;
  const gint64 ld_a = 35, ld_b = 33, ld_d = 20;
  const guint64 size_a = 35 * 16, size_b = 33 * 8, size_d = 20 * 8;
  g_autofree float *a = random_numbers (rand, 3 * size_a), *b = random_numbers (rand, 3 * size_b);
  g_autofree float *before = random_numbers (rand, 3 * size_d), *bias = random_numbers (rand, 16);
  g_autofree guint16 *got = g_new (guint16, 3 * size_d);
  void *at_a = copy_in (CUDA_R_16BF, a, 3 * size_a), *at_b = copy_in (CUDA_R_16BF, b, 3 * size_b);
  void *at_d = copy_in (CUDA_R_16BF, before, 3 * size_d),
       *at_bias = copy_in (CUDA_R_16BF, bias, 16);

  product.ld_a = ld_a;
  product.ld_b = ld_b;
  product.ld_d = ld_d;
  product.op_a = TRUE;
  product.batches = 3;
  product.alpha = 2;
  product.beta = 0.5f;
  product.has_bias = TRUE;
  product.bias = at_bias;
  describe (&product);
  OK (cublasLtMatmul (handle, desc, &product.alpha, at_a, a_layout, at_b, b_layout, &product.beta,
                      at_d, c_layout, at_d, d_layout, NULL, NULL, 0, stream));
  OK (cudaStreamSynchronize (stream));
  OK (cudaMemcpy (got, at_d, 3 * size_d * 2, cudaMemcpyDeviceToHost));
  for (guint64 i = 0; i < 3 * size_d; i++)
    {
      guint64 batch = i / size_d, col = i % size_d / 20, row = i % 20;
      double want = (double)before[i];

      if (row < 16)
        {
          want = want / 2 + (double)bias[row];
          for (guint64 p = 0; p < 32; p++)
            want += 2.0 * (double)a[batch * size_a + row * 35 + p]
                    * (double)b[batch * size_b + col * 33 + p];
        }
      ck_assert_int_eq (got[i], exec_number_to_bf16 ((float)want));
    }
  OK (cudaFree (at_a));
  OK (cudaFree (at_b));
  OK (cudaFree (at_d));
  OK (cudaFree (at_bias));
  ck_assert_str_eq (finish (), "");
}
END_TEST

START_TEST (lt_scales_fp8)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (8);
  const float scales[] = { 0.5f, 4, 0.25f };
  g_autofree float *a = random_numbers (rand, 512), *b = random_numbers (rand, 256);
  float amax, want_amax = 0;
  guint8 got[128];
  float *at_scales = copy_in (CUDA_R_32F, scales, 3), *at_amax = copy_in (CUDA_R_32F, scales, 1);
  void *at_a = copy_in (CUDA_R_8F_E4M3, a, 512), *at_b = copy_in (CUDA_R_8F_E5M2, b, 256), *at_d;
  Case product = bf16;

  product.type_a = CUDA_R_8F_E4M3;
  product.type_b = CUDA_R_8F_E5M2;
  product.type_d = CUDA_R_8F_E4M3;
  product.op_a = TRUE;
  product.scale_a = at_scales;
  product.scale_b = at_scales + 1;
  product.scale_d = at_scales + 2;
  product.amax = at_amax;
  describe (&product);
  OK (cudaMalloc (&at_d, 128));
  OK (cublasLtMatmul (handle, desc, &product.alpha, at_a, a_layout, at_b, b_layout, &product.beta,
                      NULL, c_layout, at_d, d_layout, NULL, NULL, 0, stream));
  OK (cudaStreamSynchronize (stream));
  OK (cudaMemcpy (got, at_d, 128, cudaMemcpyDeviceToHost));
  OK (cudaMemcpy (&amax, at_amax, 4, cudaMemcpyDeviceToHost));
  for (guint i = 0; i < 128; i++)
    {
      double sum = 0; /* exact: few bits, all of a size */

      for (guint p = 0; p < 32; p++)
        sum += (double)exec_number_from_e4m3 (exec_number_to_e4m3 ((double)a[i % 16 * 32 + p]))
               * (double)exec_number_from_e5m2 (exec_number_to_e5m2 ((double)b[i / 16 * 32 + p]));
      want_amax = fmaxf (want_amax, (float)fabs (2 * sum));
      ck_assert_int_eq (got[i], exec_number_to_e4m3 (2 * sum / 4));
    }
  ck_assert (amax == want_amax);
  OK (cudaFree (at_a));
  OK (cudaFree (at_b));
  OK (cudaFree (at_d));
  OK (cudaFree (at_scales));
  OK (cudaFree (at_amax));
  ck_assert_str_eq (finish (), "");
}
END_TEST

/* --- scales of rows and blocks ------------------------------------------------------------ */

/* 160 rows of A, more than a tile of scales has; 64 terms. */
#define M 160
#define N 16
#define K 64

/* Where the scale of a row's block lies, as cuBLAS's documentation draws it: tiles of 128 rows by 4
 * blocks, the rows of a tile 32 apart beside each other. */
static guint
place_of_scale (guint row, guint block)
{
  const guint tiles_of_a_row = 1; /* K has 2 or 4 blocks */
  guint tile = row / 128 * tiles_of_a_row + block / 4;

  row %= 128;
  return tile * 512 + row % 32 * 16 + row / 32 * 4 + block % 4;
}

static const struct
{
  gint32 mode;
  guint block; /* elements with one scale; 0: all of a row */
  int version; /* of a device that has it */
  cudaDataType type;
} scalings[] = {
  { CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F, 0, 90, CUDA_R_8F_E4M3 },
  { CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0, 32, 100, CUDA_R_8F_E4M3 },
  { CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3, 16, 100, CUDA_R_4F_E2M1 },
};

typedef struct
{
  guint8 data[M * K], scales[2 * 512];
  float row_scales[M];
  double value[M][K];
} Scaled;

/* A factor of random numbers as it lies in memory, and what it means. */
static void
scaled_fill (Scaled *self, guint rows, guint scaling, GRand *rand)
{
  guint block = scalings[scaling].block;

  memset (self, 0, sizeof *self);
  for (guint row = 0; row < rows; row++)
    {
      self->row_scales[row] = (float)g_rand_int_range (rand, 1, 9) / 4;
      for (guint i = 0; i < K; i++)
        {
          double scale = (double)self->row_scales[row];
          guint at = row * K + i;
          guint8 *of_block = block > 0 ? &self->scales[place_of_scale (row, i / block)] : NULL;

          if (block > 0 && i % block == 0)
            *of_block = block == 32 ? (guint8)g_rand_int_range (rand, 125, 130)
                                    : exec_number_to_e4m3 (g_rand_double_range (rand, 0.5, 2));
          if (block > 0)
            scale = block == 32 ? exec_number_from_e8m0 (*of_block)
                                : (double)exec_number_from_e4m3 (*of_block);
          if (scalings[scaling].type == CUDA_R_4F_E2M1)
            {
              guint8 bits = (guint8)g_rand_int_range (rand, 0, 16);

              self->data[at / 2] |= (guint8)(bits << at % 2 * 4);
              self->value[row][i] = (double)exec_number_from_e2m1 (bits) * scale;
            }
          else
            {
              self->data[at] = exec_number_to_e4m3 (g_rand_double_range (rand, -2, 2));
              self->value[row][i] = (double)exec_number_from_e4m3 (self->data[at]) * scale;
            }
        }
    }
}

static void *
take_bytes (const void *from, gsize bytes)
{
  void *memory;

  OK (cudaMalloc (&memory, bytes));
  OK (cudaMemcpy (memory, from, bytes, cudaMemcpyHostToDevice));
  return memory;
}

START_TEST (lt_scales_rows_and_blocks)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (9);
  static Scaled a, b;
  static float got[M * N];
  gboolean by_row = scalings[_i].block == 0;
  Case product = { .m = M,
                   .n = N,
                   .k = K,
                   .type_a = scalings[_i].type,
                   .type_b = scalings[_i].type,
                   .type_c = CUDA_R_32F,
                   .type_d = CUDA_R_32F,
                   .op_a = TRUE,
                   .alpha = 1,
                   .scale_mode = scalings[_i].mode };
  void *at_a, *at_b, *at_d, *scale_a, *scale_b;

  fake_cuda_set_machine (1, 1 << 20, scalings[_i].version / 10, scalings[_i].version % 10);
  set_up_handles ();
  scaled_fill (&a, M, (guint)_i, rand);
  scaled_fill (&b, N, (guint)_i, rand);
  at_a = take_bytes (a.data, M * K);
  at_b = take_bytes (b.data, M * K);
  scale_a = by_row ? take_bytes (a.row_scales, sizeof a.row_scales) : take_bytes (a.scales, 1024);
  scale_b = by_row ? take_bytes (b.row_scales, sizeof b.row_scales) : take_bytes (b.scales, 1024);
  product.scale_a = scale_a;
  product.scale_b = scale_b;
  describe (&product);
  OK (cudaMalloc (&at_d, sizeof got));
  OK (cublasLtMatmul (handle, desc, &product.alpha, at_a, a_layout, at_b, b_layout, &product.beta,
                      NULL, c_layout, at_d, d_layout, NULL, NULL, 0, stream));
  OK (cudaStreamSynchronize (stream));
  OK (cudaMemcpy (got, at_d, sizeof got, cudaMemcpyDeviceToHost));
  for (guint row = 0; row < M; row++)
    for (guint col = 0; col < N; col++)
      {
        double want = 0, size = 0;

        for (guint i = 0; i < K; i++)
          {
            want += a.value[row][i] * b.value[col][i];
            size += fabs (a.value[row][i] * b.value[col][i]);
          }
        ck_assert (fabs ((double)got[col * M + row] - want) <= (K + 4) * 0x1p-24 * size);
      }
  OK (cudaFree (at_a));
  OK (cudaFree (at_b));
  OK (cudaFree (at_d));
  OK (cudaFree (scale_a));
  OK (cudaFree (scale_b));
  ck_assert_str_eq (finish (), "");
}
END_TEST

/* --- algorithms --------------------------------------------------------------------------- */

START_TEST (lt_proposes_what_the_workspace_allows)
{
  cublasLtMatmulHeuristicResult_t results[4], checked;
  Case product = bf16;
  const float one = 1, zero = 0;
  guint8 *memory;
  int found;

  describe (&product);
  OK (propose (&product, results, &found));
  ck_assert_int_eq (found, 2);
  ck_assert_uint_eq (results[0].workspaceSize, 0);
  ck_assert_uint_eq (results[1].workspaceSize, 4 * 16 * 8);
  OK (cublasLtMatmulAlgoCheck (handle, desc, a_layout, b_layout, c_layout, d_layout,
                               &results[1].algo, &checked));
  ck_assert_uint_eq (checked.workspaceSize, 4 * 16 * 8);
  OK (cudaMalloc ((void **)&memory, 8192));
  OK (cudaMemset (memory, 0, 8192));
  OK (cudaDeviceSynchronize ());
  ck_assert_int_eq (cublasLtMatmul (handle, desc, &one, memory, a_layout, memory + 1024, b_layout,
                                    &zero, memory + 2048, c_layout, memory + 2048, d_layout,
                                    &results[1].algo, memory + 4096, 256, stream),
                    CUBLAS_STATUS_INVALID_VALUE);
  OK (cublasLtMatmul (handle, desc, &one, memory, a_layout, memory + 1024, b_layout, &zero,
                      memory + 2048, c_layout, memory + 2048, d_layout, &results[1].algo,
                      memory + 4096, 512, stream));
  product.workspace = 0;
  OK (propose (&product, results, &found));
  ck_assert_int_eq (found, 1);
  OK (cudaDeviceSynchronize ());
  OK (cudaFree (memory));
  ck_assert_str_eq (finish (), "");
}
END_TEST

/* --- refusals ----------------------------------------------------------------------------- */

#define SIZES .m = 32, .n = 16, .k = 64
#define FORMATS(a, b, c, d) \
  .type_a = CUDA_R_##a, .type_b = CUDA_R_##b, .type_c = CUDA_R_##c, .type_d = CUDA_R_##d
#define BF16 FORMATS (16BF, 16BF, 16BF, 16BF)
#define FP8 FORMATS (8F_E4M3, 8F_E4M3, 16BF, 16BF)
#define TN .op_a = TRUE
#define SCALES .scale_a = somewhere, .scale_b = somewhere
#define VEC CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F
#define BLK CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F
#define DONE CUBLAS_STATUS_SUCCESS
#define INVALID CUBLAS_STATUS_INVALID_VALUE
#define REFUSED CUBLAS_STATUS_NOT_SUPPORTED

static float somewhere[8] __attribute__ ((aligned (16)));

static const struct
{
  const char *what;
  Case product;
  int version; /* of the device */
  cublasStatus_t status;
} refusals[] = {
  { "bf16", { SIZES, BF16 }, 90, DONE },
  { "odd bf16", { .m = 3, .n = 5, .k = 7, BF16 }, 90, DONE },
  { "bf16 on 2 bytes", { SIZES, BF16, .alignment = 2 }, 90, DONE },
  { "a leading dimension below the rows", { SIZES, BF16, .ld_a = 31 }, 90, INVALID },
  { "bf16 times fp32", { SIZES, FORMATS (16BF, 32F, 16BF, 16BF) }, 90, REFUSED },
  { "fp32 from a bf16 C", { SIZES, FORMATS (16BF, 16BF, 16BF, 32F) }, 90, REFUSED },
  { "bf16 with a scale", { SIZES, BF16, .scale_a = somewhere }, 90, INVALID },
  { "bf16 with fp32 bias",
    { SIZES, BF16, .has_bias = TRUE, .bias_type = CUDA_R_32F },
    90,
    REFUSED },
  { "fp8", { SIZES, FP8, TN }, 90, DONE },
  { "fp8 on Ampere", { SIZES, FP8, TN }, 80, REFUSED },
  { "fp8 on Ada", { SIZES, FP8, TN }, 89, DONE },
  { "fp8, neither transposed", { SIZES, FP8 }, 90, REFUSED },
  { "fp8, both transposed", { SIZES, FP8, TN, .op_b = TRUE }, 90, REFUSED },
  { "fp8, the other transposed, on B200", { SIZES, FP8, .op_b = TRUE }, 100, DONE },
  { "fp8, neither transposed, on RTX 6000", { SIZES, FP8 }, 120, REFUSED },
  { "e5m2 twice", { SIZES, FORMATS (8F_E5M2, 8F_E5M2, 16BF, 16BF), TN }, 90, REFUSED },
  { "e5m2 first", { SIZES, FORMATS (8F_E5M2, 8F_E4M3, 16BF, 16BF), TN }, 90, DONE },
  { "e4m3 into e5m2", { SIZES, FORMATS (8F_E4M3, 8F_E4M3, 16BF, 8F_E5M2), TN }, 90, REFUSED },
  { "both into e5m2", { SIZES, FORMATS (8F_E4M3, 8F_E5M2, 16BF, 8F_E5M2), TN }, 90, DONE },
  { "fp8 of 8 rows", { .m = 8, .n = 16, .k = 64, FP8, TN }, 90, REFUSED },
  { "fp8 of 24 terms", { .m = 16, .n = 16, .k = 24, FP8, TN }, 90, REFUSED },
  { "fp8 of one column", { .m = 16, .n = 1, .k = 64, FP8, TN }, 90, DONE },
  { "fp8, leading dimension 72", { SIZES, FP8, TN, .ld_a = 72 }, 90, REFUSED },
  { "fp8 on 8 bytes", { SIZES, FP8, TN, .alignment = 8 }, 90, REFUSED },
  { "scales by row", { SIZES, FP8, TN, SCALES, .scale_mode = 3 }, 90, DONE },
  { "scales by row on B200", { SIZES, FP8, TN, SCALES, .scale_mode = 3 }, 100, REFUSED },
  { "scales by row, absent", { SIZES, FP8, TN, .scale_mode = 3 }, 90, INVALID },
  { "mxfp8", { SIZES, FP8, TN, SCALES, .scale_mode = 2 }, 100, DONE },
  { "mxfp8 on Hopper", { SIZES, FP8, TN, SCALES, .scale_mode = 2 }, 90, REFUSED },
  { "nvfp4",
    { SIZES, FORMATS (4F_E2M1, 4F_E2M1, 16BF, 16BF), TN, SCALES, .scale_mode = 1 },
    100,
    DONE },
  { "nvfp4, the other transposed",
    { SIZES, FORMATS (4F_E2M1, 4F_E2M1, 16BF, 16BF), .op_b = TRUE, SCALES, .scale_mode = 1 },
    100,
    REFUSED },
  { "nvfp4 of 48 terms",
    { .m = 32,
      .n = 16,
      .k = 48,
      FORMATS (4F_E2M1, 4F_E2M1, 16BF, 16BF),
      TN,
      SCALES,
      .scale_mode = 1 },
    100,
    REFUSED },
  { "nvfp4 on 8 bytes",
    { SIZES, FORMATS (4F_E2M1, 4F_E2M1, 16BF, 16BF), TN, SCALES, .scale_mode = 1, .alignment = 8 },
    100,
    REFUSED },
  { "nvfp4 on Hopper",
    { SIZES, FORMATS (4F_E2M1, 4F_E2M1, 16BF, 16BF), TN, SCALES, .scale_mode = 1 },
    90,
    REFUSED },
  { "mxfp8, neither transposed, on B200", { SIZES, FP8, SCALES, .scale_mode = 2 }, 100, DONE },
  { "mxfp8, neither transposed, on RTX 6000",
    { SIZES, FP8, SCALES, .scale_mode = 2 },
    120,
    REFUSED },
  { "mxfp8 of 48 terms",
    { .m = 32, .n = 16, .k = 48, FP8, TN, SCALES, .scale_mode = 2 },
    100,
    REFUSED },
  { "mxfp8, scales on 4 bytes",
    { SIZES, FP8, TN, .scale_a = somewhere + 1, .scale_b = somewhere, .scale_mode = 2 },
    100,
    REFUSED },
  { "128 by 128", { SIZES, FP8, TN, SCALES, .scale_mode = VEC }, 90, DONE },
  { "128 by squares", { SIZES, FP8, TN, SCALES, .scale_mode = VEC, .mode_b = BLK }, 90, DONE },
  { "squares by 128", { SIZES, FP8, TN, SCALES, .scale_mode = BLK, .mode_b = VEC }, 90, DONE },
  { "squares by squares", { SIZES, FP8, TN, SCALES, .scale_mode = BLK }, 90, REFUSED },
  { "squares by a scale of rows",
    { SIZES, FP8, TN, SCALES, .scale_mode = BLK, .mode_b = 3 },
    90,
    REFUSED },
  { "squares on Ada", { SIZES, FP8, TN, SCALES, .scale_mode = BLK, .mode_b = VEC }, 89, REFUSED },
  { "squares on B200", { SIZES, FP8, TN, SCALES, .scale_mode = BLK, .mode_b = VEC }, 100, REFUSED },
  { "squares, neither transposed",
    { SIZES, FP8, SCALES, .scale_mode = BLK, .mode_b = VEC },
    90,
    REFUSED },
  { "squares, 18 columns",
    { .m = 32, .n = 18, .k = 64, FP8, TN, SCALES, .scale_mode = BLK, .mode_b = VEC },
    90,
    REFUSED },
  { "squares into fp8",
    { SIZES, FORMATS (8F_E4M3, 8F_E4M3, 16BF, 8F_E4M3), TN, SCALES, .scale_mode = VEC },
    90,
    REFUSED },
  { "squares, added up fast",
    { SIZES, FP8, TN, SCALES, .scale_mode = BLK, .mode_b = VEC, .is_fast = 1 },
    90,
    REFUSED },
  { "squares, scales on 4 bytes",
    { SIZES, FP8, TN, .scale_a = somewhere + 1, .scale_b = somewhere, .scale_mode = VEC },
    90,
    REFUSED },
  { "squares without scales", { SIZES, FP8, TN, .scale_mode = VEC }, 90, INVALID },
};

START_TEST (lt_refuses)
{
  cublasLtMatmulHeuristicResult_t results[4];
  int found;

  fake_cuda_set_machine (1, 1 << 20, refusals[_i].version / 10, refusals[_i].version % 10);
  OK (cublasLtCreate (&handle));
  describe (&refusals[_i].product);
  ck_assert_msg (propose (&refusals[_i].product, results, &found) == refusals[_i].status, "%s",
                 refusals[_i].what);
  ck_assert_int_eq (found, refusals[_i].status == CUBLAS_STATUS_SUCCESS ? 1 : 0);
  ck_assert_msg (refusals[_i].status == CUBLAS_STATUS_SUCCESS
                     || g_str_has_prefix (fake_cuda_log (), "gemm refused: "),
                 "%s", refusals[_i].what);
}
END_TEST

START_TEST (lt_refuses_sizes_that_do_not_agree)
{
  cublasLtMatmulHeuristicResult_t results[4];
  guint64 rows = 31;
  int found;

  describe (&bf16);
  OK (cublasLtMatrixLayoutSetAttribute (b_layout, CUBLASLT_MATRIX_LAYOUT_ROWS, &rows, sizeof rows));
  ck_assert_int_eq (propose (&bf16, results, &found), CUBLAS_STATUS_INVALID_VALUE);
  ck_assert_str_eq (fake_cuda_log (), "gemm refused: sizes do not agree\n");
  ck_assert_int_eq (
      cublasLtMatrixLayoutSetAttribute (b_layout, CUBLASLT_MATRIX_LAYOUT_ROWS, &rows, 4),
      CUBLAS_STATUS_INVALID_VALUE);
}
END_TEST

START_TEST (lt_refuses_operands)
{
  cublasLtMatmulHeuristicResult_t results[4];
  const float one = 1, zero = 0;
  guint8 *at;
  int found;

  describe (&bf16);
  OK (propose (&bf16, results, &found));
  OK (cudaMalloc ((void **)&at, 8192));
  OK (cudaMemset (at, 0, 8192));
  OK (cudaDeviceSynchronize ());
#define MULTIPLY(a, b, d, workspace, bytes) \
  cublasLtMatmul (handle, desc, &one, a, a_layout, b, b_layout, &zero, d, c_layout, d, d_layout, \
                  &results[0].algo, workspace, bytes, stream)
  ck_assert_int_eq (MULTIPLY (at + 16, at + 2048, at + 4096, NULL, 0),
                    CUBLAS_STATUS_INVALID_VALUE); /* it was chosen for 256 bytes */
  ck_assert_int_eq (MULTIPLY (NULL, at + 2048, at + 4096, NULL, 0), CUBLAS_STATUS_INVALID_VALUE);
  ck_assert_int_eq (MULTIPLY (at, at + 2048, at + 4096, NULL, 64), CUBLAS_STATUS_INVALID_VALUE);
  ck_assert_int_eq (MULTIPLY (at, at + 2048, at + 4096, at + 6000, 64),
                    CUBLAS_STATUS_INVALID_VALUE);
  OK (MULTIPLY (at, at + 2048, at + 4096, at + 6144, 64));
  ck_assert_str_eq (fake_cuda_error (), "");
  ck_assert_int_eq (MULTIPLY (at, at + 7936, at + 4096, NULL, 0), CUBLAS_STATUS_EXECUTION_FAILED);
  ck_assert_str_eq (fake_cuda_error (),
                    "gemm (#3, stream 1) reads 512 bytes at 7936 of memory 1 (8192 bytes): beyond "
                    "its end");
}
END_TEST

/* Two products on two streams must not have one workspace. */
START_TEST (lt_sees_a_workspace_used_twice)
{
  const float one = 1, zero = 0;
  cudaStream_t other;
  guint8 *at;

  describe (&bf16);
  OK (cudaStreamCreateWithFlags (&other, cudaStreamNonBlocking));
  OK (cudaMalloc ((void **)&at, 8192));
  OK (cudaMemset (at, 0, 8192));
  OK (cudaDeviceSynchronize ());
  OK (cublasLtMatmul (handle, desc, &one, at, a_layout, at + 1024, b_layout, &zero, at + 2048,
                      c_layout, at + 2048, d_layout, NULL, at + 6144, 512, stream));
  ck_assert_str_eq (fake_cuda_error (), "");
  OK (cublasLtMatmul (handle, desc, &one, at, a_layout, at + 1024, b_layout, &zero, at + 3072,
                      c_layout, at + 3072, d_layout, NULL, at + 6144, 512, other));
  ck_assert_str_eq (fake_cuda_error (),
                    "gemm (#3, stream 2) writes 512 bytes at 6144 of memory 1 (8192 bytes), which "
                    "gemm (#2, stream 1) writes: nothing orders the two");
}
END_TEST

START_TEST (lt_reports_what_is_left)
{
  describe (&bf16);
  OK (cublasLtMatmulDescDestroy (desc));
  ck_assert_int_eq (cublasLtMatmulDescDestroy (desc), CUBLAS_STATUS_INVALID_VALUE);
  ck_assert_str_eq (fake_cuda_error (), "a product descriptor that is not there is destroyed");
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("cublaslt");
  TCase *tcase = tcase_create ("fake");
  SRunner *runner;
  int failed;

  tcase_add_checked_fixture (tcase, set_up, NULL);
  tcase_add_loop_test (tcase, lt_equals_the_cpu, 0, 60);
  tcase_add_test (tcase, lt_strides_batches_and_biases);
  tcase_add_test (tcase, lt_scales_fp8);
  tcase_add_loop_test (tcase, lt_scales_rows_and_blocks, 0, G_N_ELEMENTS (scalings));
  tcase_add_test (tcase, lt_proposes_what_the_workspace_allows);
  tcase_add_loop_test (tcase, lt_refuses, 0, G_N_ELEMENTS (refusals));
  tcase_add_test (tcase, lt_refuses_sizes_that_do_not_agree);
  tcase_add_test (tcase, lt_refuses_operands);
  tcase_add_test (tcase, lt_sees_a_workspace_used_twice);
  tcase_add_test (tcase, lt_reports_what_is_left);
  suite_add_tcase (suite, tcase);
  runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
