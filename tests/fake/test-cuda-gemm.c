/* SPDX-License-Identifier: Apache-2.0 */
/* Products by cuBLASLt on the fake device, which sums in the order of exec/cpu/gemm-plain.c: equal
 * bit for bit to what the CPU's kernel does with the same operands. */
#include "config.h"

#include "exec/cuda/algos.h"
#include "exec/cuda/cuda-check.h"
#include "exec/cuda/gemm-lt.h"
#include "exec/number/number.h"
#include "planner/base/units.h"
#include "tests/fake/cuda-fake.h"
#include "tests/fake/gemm-compare.h"

#include <check.h>
#include <cuda_runtime_api.h>
#include <glib/gstdio.h>
#include <stdlib.h>
#include <string.h>

#define N_OPERANDS 3

/* out, a and b, on the host in fp32 and on the device in their formats. */
typedef struct
{
  PlanOp op;
  ExecConstants constants;
  ExecArgs args;
  cudaStream_t stream;
  guint64 count[N_OPERANDS];
  float *value[N_OPERANDS]; /* rounded to the format */
} Case;

static void
must (int code)
{
  g_autoptr (GError) error = NULL;
  ck_assert_msg (exec_cuda_check (code, "test", &error), "%s", error ? error->message : "");
}

static void
put (Case *c, guint i, GRand *rand)
{
  const PlanDtype dtype = c->args.dtype[i];
  const guint64 bytes = plan_dtype_bytes (dtype, c->count[i]);
  g_autofree guint8 *narrow = g_malloc (bytes);
  c->value[i] = g_new (float, c->count[i]);
  for (guint64 e = 0; e < c->count[i]; e++)
    c->value[i][e] = (float)g_rand_double_range (rand, -1, 1);
  exec_number_narrow (narrow, dtype, c->value[i], c->count[i]);
  exec_number_widen (c->value[i], narrow, dtype, c->count[i]);
  must ((int)cudaMalloc (&c->args.ptr[i], bytes));
  must ((int)cudaMemcpy (c->args.ptr[i], narrow, bytes, cudaMemcpyHostToDevice));
}

static void
case_init (Case *c, gint64 layout, PlanDtype out, PlanDtype factors, guint32 seed)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (seed);
  g_autoptr (GError) error = NULL;
  *c = (Case){ 0 };
  plan_op_init (&c->op, PLAN_OP_GEMM, PLAN_STREAM_COMPUTE);
  for (guint i = 0; i < 3; i++)
    c->op.dims[i] = g_rand_int_range (rand, 1, 70);
  c->op.dims[3] = layout;
  c->count[0] = (guint64)(c->op.dims[0] * c->op.dims[1]);
  c->count[1] = (guint64)(c->op.dims[0] * c->op.dims[2]);
  c->count[2] = (guint64)(c->op.dims[2] * c->op.dims[1]);
  c->args = (ExecArgs){ .op = &c->op, .constants = &c->constants, .is_deterministic = TRUE };
  c->args.dtype[0] = out;
  c->args.dtype[1] = c->args.dtype[2] = factors;
  fake_cuda_reset ();
  ck_assert (exec_cuda_gemm_open (NULL, &error));
  must ((int)cudaStreamCreateWithFlags (&c->stream, cudaStreamNonBlocking));
  for (guint i = 0; i < N_OPERANDS; i++)
    put (c, i, rand);
}

static void
case_clear (Case *c)
{
  for (guint i = 0; i < N_OPERANDS; i++)
    {
      must ((int)cudaFree (c->args.ptr[i]));
      g_free (c->value[i]);
    }
  must ((int)cudaStreamDestroy (c->stream));
  exec_cuda_gemm_close ();
  ck_assert_str_eq (fake_cuda_finish (), "");
}

/* Checks that the result on the device is the product, or with `accumulates` its sum with what was
 * there before. */
static void
check_result (const Case *c, gboolean accumulates)
{
  const gint64 *dims = c->op.dims;
  const PlanDtype dtype = c->args.dtype[0];
  const guint64 bytes = plan_dtype_bytes (dtype, c->count[0]);
  g_autofree float *product = g_new (float, c->count[0]);
  g_autofree guint8 *expected = g_malloc (bytes), *found = g_malloc (bytes);
  exec_gemm_fp32 (dims[0], dims[1], dims[2], (int)dims[3], c->value[1], c->value[2], product);
  for (guint64 e = 0; accumulates && e < c->count[0]; e++)
    product[e] += c->value[0][e];
  exec_number_narrow (expected, dtype, product, c->count[0]);
  must ((int)cudaStreamSynchronize (c->stream));
  must ((int)cudaMemcpy (found, c->args.ptr[0], bytes, cudaMemcpyDeviceToHost));
  ck_assert (memcmp (found, expected, bytes) == 0);
}

static const PlanDtype formats[][2] = {
  { PLAN_DTYPE_FP32, PLAN_DTYPE_FP32 }, { PLAN_DTYPE_BF16, PLAN_DTYPE_BF16 },
  { PLAN_DTYPE_FP32, PLAN_DTYPE_BF16 }, { PLAN_DTYPE_FP16, PLAN_DTYPE_FP16 },
  { PLAN_DTYPE_FP32, PLAN_DTYPE_FP16 }, { PLAN_DTYPE_FP16, PLAN_DTYPE_BF16 }
}; /* cuBLASLt does not have the last one */

START_TEST (every_layout_and_format)
{
  Case c;
  for (gint64 layout = 0; layout < 3; layout++)
    for (guint f = 0; f < G_N_ELEMENTS (formats); f++)
      {
        case_init (&c, layout, formats[f][0], formats[f][1], (guint32)_i);
        must (exec_cuda_gemm (&c.args, c.stream));
        check_result (&c, FALSE);
        must (exec_cuda_gemm (&c.args, c.stream)); /* the cached one */
        check_result (&c, FALSE);
        case_clear (&c);
      }
}
END_TEST

/* Weight gradients of later micro batches. */
START_TEST (products_are_added_to_main_gradients)
{
  Case c;
  for (guint f = 0; f < G_N_ELEMENTS (formats); f++)
    {
      case_init (&c, 2, formats[f][0], formats[f][1], 40 + (guint32)_i);
      must (exec_cuda_gemm_add (&c.args, c.stream));
      check_result (&c, TRUE);
      case_clear (&c);
    }
}
END_TEST

/* The workspace of gemm_add is the operand after the factors. It is used if it is as large as an
 * algorithm wants. */
START_TEST (sums_have_a_workspace_too)
{
  const guint64 bytes[] = { 1024, 8 * PLAN_MIB };
  for (guint i = 0; i < G_N_ELEMENTS (bytes); i++)
    {
      Case c;
      guint8 first;
      case_init (&c, 2, PLAN_DTYPE_FP32, PLAN_DTYPE_BF16, 11);
      must ((int)cudaMalloc (&c.args.ptr[3], bytes[i]));
      must ((int)cudaMemset (c.args.ptr[3], 0, bytes[i]));
      must ((int)cudaDeviceSynchronize ());
      c.args.scratch_bytes = bytes[i];
      must (exec_cuda_gemm_add (&c.args, c.stream));
      check_result (&c, TRUE);
      must ((int)cudaMemcpy (&first, c.args.ptr[3], 1, cudaMemcpyDeviceToHost));
      ck_assert_uint_eq (first, i == 0 ? 0 : 0xff); /* what a product leaves in a workspace */
      must ((int)cudaFree (c.args.ptr[3]));
      case_clear (&c);
    }
}
END_TEST

/* Timing algorithms on the operands leaves the right result, also where the product is added to it;
 * and the fastest algorithm is remembered. */
START_TEST (the_fastest_algorithm_is_remembered)
{
  const gboolean accumulates = _i % 2 == 1;
  int (*const multiply) (const ExecArgs *, void *)
      = accumulates ? exec_cuda_gemm_add : exec_cuda_gemm;
  const guint work = accumulates ? 3 : 4;
  Case c;
  case_init (&c, accumulates ? 2 : 1, accumulates ? PLAN_DTYPE_FP32 : PLAN_DTYPE_BF16,
             PLAN_DTYPE_BF16, 7 + (guint32)_i / 2);
  c.args.is_deterministic = FALSE;
  c.args.scratch_bytes = 8 * PLAN_MIB; /* or there is one algorithm alone */
  must ((int)cudaMalloc (&c.args.ptr[work], c.args.scratch_bytes));
  must (multiply (&c.args, c.stream));
  ck_assert (strstr (fake_cuda_log (), "synchron") != NULL);
  ck_assert_msg (strstr (fake_cuda_log (), c.op.dims[2] % 2 == 0 ? "split 2" : "refused") != NULL
                     && strstr (fake_cuda_log (), "rounded") == NULL,
                 "%s", fake_cuda_log ());
  check_result (&c, accumulates);
  exec_cuda_gemm_close ();
  ck_assert (exec_cuda_gemm_open (NULL, NULL)); /* nothing in this thread's cache */
  if (accumulates)
    must ((int)cudaMemcpy (c.args.ptr[0], c.value[0], c.count[0] * sizeof (float),
                           cudaMemcpyHostToDevice));
  fake_cuda_clear_log ();
  must (multiply (&c.args, c.stream));
  ck_assert_msg (strstr (fake_cuda_log (), "synchron") == NULL, "%s", fake_cuda_log ());
  check_result (&c, accumulates);
  must ((int)cudaFree (c.args.ptr[work]));
  case_clear (&c);
}
END_TEST

START_TEST (lines_of_the_file)
{
  ExecCudaProduct product = { .m = 4096, .n = 6144, .k = 4096, .workspace_mib = 32, .sms = 116 };
  ExecCudaProduct read;
  cublasLtMatmulAlgo_t algo, read_algo;
  product.layout = 1;
  product.dtype[0] = product.dtype[1] = product.dtype[2] = PLAN_DTYPE_BF16;
  product.dtype[3] = PLAN_N_DTYPES;
  product.alignment[2] = 64;
  for (guint i = 0; i < sizeof algo; i++)
    ((guint8 *)&algo)[i] = (guint8)(37 * i + 5);
  g_autofree char *line = exec_cuda_algos_print (&product, &algo);
  ck_assert_msg (
      g_str_has_prefix (line, "4096 6144 4096 32 116 1 0 bf16 bf16 bf16 - 0 0 64 0 052a"), "%s",
      line);
  ck_assert (exec_cuda_algos_parse (line, &read, &read_algo));
  ck_assert (exec_cuda_product_equal (&read, &product));
  ck_assert_uint_eq (exec_cuda_product_hash (&read), exec_cuda_product_hash (&product));
  ck_assert (memcmp (&read_algo, &algo, sizeof algo) == 0);
  for (guint at = 0; at < strlen (line); at++) /* cut short, or with a letter that is none of it */
    {
      g_autofree char *part = g_strndup (line, at), *wrong = g_strdup (line);
      wrong[at] = 'x';
      ck_assert_msg (!exec_cuda_algos_parse (part, &read, &read_algo), "%s", part);
      ck_assert_msg (!exec_cuda_algos_parse (wrong, &read, &read_algo), "%s", wrong);
    }
}
END_TEST

START_TEST (products_are_measured)
{
  static const GemmCase one = { 70, 33, 65, 1, PLAN_DTYPE_BF16, PLAN_DTYPE_BF16 };
  g_autofree char *text = NULL;
  size_t bytes;
  FILE *file = open_memstream (&text, &bytes);
  fake_cuda_reset ();
  gemm_compare (&one, 2, file);
  fclose (file);
  ck_assert_msg (g_str_has_prefix (text, "# gemm 70 x 33 x 65 layout 1 bf16 to bf16: ")
                     && strstr (text, " TFLOP/s, off by ") != NULL,
                 "%s", text);
  ck_assert_str_eq (fake_cuda_finish (), "");
}
END_TEST

/* Removes the files of remembered algorithms, and their folders. */
static void
remove_store (const char *path)
{
  g_autofree char *folder = g_build_filename (path, "fsdplan", NULL);
  g_autoptr (GDir) dir = g_dir_open (folder, 0, NULL);
  const char *name;
  while (dir && (name = g_dir_read_name (dir)))
    {
      g_autofree char *file = g_build_filename (folder, name, NULL);
      g_unlink (file);
    }
  g_rmdir (folder);
  g_rmdir (path);
}

int
main (void)
{
  g_autofree char *store = g_dir_make_tmp ("test-cuda-gemm-XXXXXX", NULL);
  g_setenv ("XDG_DATA_HOME", store, TRUE); /* where nothing is remembered yet */
  Suite *suite = suite_create ("cuda-gemm");
  TCase *tcase = tcase_create ("gemm");
  tcase_add_loop_test (tcase, every_layout_and_format, 0, 10);
  tcase_add_loop_test (tcase, products_are_added_to_main_gradients, 0, 5);
  tcase_add_test (tcase, sums_have_a_workspace_too);
  tcase_add_loop_test (tcase, the_fastest_algorithm_is_remembered, 0, 12);
  tcase_add_test (tcase, lines_of_the_file);
  tcase_add_test (tcase, products_are_measured);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  remove_store (store);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
