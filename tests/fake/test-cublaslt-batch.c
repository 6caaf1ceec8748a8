/* SPDX-License-Identifier: Apache-2.0 */
/* Products in batches by cuBLASLt on the fake device, and what of them it refuses. */
#include "config.h"

#include "tests/fake/cuda-fake.h"
#include "tests/fake/include/cublasLt.h"

#include <check.h>
#include <stdlib.h>

#define OK(call) ck_assert_int_eq (call, 0)

#define M 2
#define N 3
#define K 2
#define BATCHES 4
#define PITCH_D 8 /* room for the columns of all four side by side */
#define FLOATS 256
#define B_AT 32
#define D_AT 128

typedef struct
{
  cublasLtHandle_t handle;
  cublasLtMatmulDesc_t desc;
  cublasLtMatrixLayout_t a, b, d;
  cublasLtMatmulPreference_t preference;
} Batch;

static cublasLtMatrixLayout_t
layout_of (guint64 rows, guint64 cols, gint64 pitch, gint64 stride)
{
  const gint32 batches = BATCHES;
  cublasLtMatrixLayout_t layout;
  OK (cublasLtMatrixLayoutCreate (&layout, CUDA_R_32F, rows, cols, pitch));
  OK (cublasLtMatrixLayoutSetAttribute (layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batches,
                                        sizeof batches));
  OK (cublasLtMatrixLayoutSetAttribute (layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                        &stride, sizeof stride));
  return layout;
}

/* Tells the heuristic that all matrices are aligned to 8 bytes. */
static void
batch_init (Batch *self, gint64 stride_b, gint64 stride_d)
{
  static const cublasLtMatmulPreferenceAttributes_t alignments[]
      = { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES };
  const guint32 bytes = 8;
  fake_cuda_reset ();
  OK (cublasLtCreate (&self->handle));
  OK (cublasLtMatmulDescCreate (&self->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  self->a = layout_of (M, K, M, M * K);
  self->b = layout_of (K, N, K, stride_b);
  self->d = layout_of (M, N, PITCH_D, stride_d);
  OK (cublasLtMatmulPreferenceCreate (&self->preference));
  for (guint i = 0; i < G_N_ELEMENTS (alignments); i++)
    OK (cublasLtMatmulPreferenceSetAttribute (self->preference, alignments[i], &bytes,
                                              sizeof bytes));
}

static void
batch_clear (Batch *self)
{
  OK (cublasLtMatmulPreferenceDestroy (self->preference));
  OK (cublasLtMatrixLayoutDestroy (self->d));
  OK (cublasLtMatrixLayoutDestroy (self->b));
  OK (cublasLtMatrixLayoutDestroy (self->a));
  OK (cublasLtMatmulDescDestroy (self->desc));
  OK (cublasLtDestroy (self->handle));
  ck_assert_str_eq (fake_cuda_finish (), "");
}

/* Multiplies on device memory whose element i is the number i. `out` gets the results, and zeros
 * between them. */
static cublasStatus_t
multiply (const Batch *self, float *out)
{
  static const float one = 1, zero = 0;
  cublasLtMatmulHeuristicResult_t result;
  float numbers[FLOATS] = { 0 }, *memory;
  int found;
  cublasStatus_t status
      = cublasLtMatmulAlgoGetHeuristic (self->handle, self->desc, self->a, self->b, self->d,
                                        self->d, self->preference, 1, &result, &found);
  if (status != CUBLAS_STATUS_SUCCESS)
    return status;
  for (guint i = 0; i < D_AT; i++)
    numbers[i] = (float)i;
  OK (cudaMalloc ((void **)&memory, sizeof numbers));
  OK (cudaMemcpy (memory, numbers, sizeof numbers, cudaMemcpyHostToDevice));
  status = cublasLtMatmul (self->handle, self->desc, &one, memory, self->a, memory + B_AT, self->b,
                           &zero, memory + D_AT, self->d, memory + D_AT, self->d, &result.algo,
                           NULL, 0, NULL);
  OK (cudaDeviceSynchronize ());
  OK (cudaMemcpy (out, memory + D_AT, PITCH_D * N * sizeof *out, cudaMemcpyDeviceToHost));
  OK (cudaFree (memory));
  return status;
}

/* Matrix i of a is [4 i, 4 i + 2; 4 i + 1, 4 i + 3]; matrix i of b begins with 32 + 8 i. */
START_TEST (matrices_lie_side_by_side)
{
  float out[PITCH_D * N];
  Batch batch;
  batch_init (&batch, 8, M);
  OK (multiply (&batch, out));
  for (guint i = 0; i < BATCHES; i++)
    for (guint col = 0; col < N; col++)
      for (guint row = 0; row < M; row++)
        {
          const float a = (float)(4 * i + row), b = (float)(B_AT + 8 * i + K * col);
          ck_assert_float_eq (out[PITCH_D * col + M * i + row], a * b + (a + 2) * (b + 1));
        }
  batch_clear (&batch);
}
END_TEST

/* Results that overlap, in one column or in neighbouring ones; then factors less aligned than the
 * heuristic was told. The last case is legal. */
START_TEST (wrong_batches_are_refused)
{
  static const struct
  {
    gint64 stride_b, stride_d;
  } wrong[] = { { 8, 0 }, { 8, 1 }, { 8, 9 }, { 8, -7 }, { 5, 2 }, { 6, 2 } };
  float out[PITCH_D * N];
  Batch batch;
  batch_init (&batch, wrong[_i].stride_b, wrong[_i].stride_d);
  ck_assert_int_eq (multiply (&batch, out),
                    _i < 5 ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS);
  batch_clear (&batch);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("cublaslt-batch");
  TCase *tcase = tcase_create ("batch");
  tcase_add_test (tcase, matrices_lie_side_by_side);
  tcase_add_loop_test (tcase, wrong_batches_are_refused, 0, 6);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
