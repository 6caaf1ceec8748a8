/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that find the largest magnitude of what they store, for the op that quantises it. */
#include "config.h"

#include "planner/model/model.h"
#include "tests/unit/test-kernels-operands.h"

#include <math.h>
#include <string.h>

#define MOST 9 /* operands, without the magnitude */

/* An op and the elements of its operands, of rows and cols: t rows cols, d twice as many, c cols,
 * r rows, s twice as many, - absent, as scratch is. */
typedef struct
{
  PlanOpKind kind;
  const char *operands;
} Finder;

static const Finder finders[] = {
  { PLAN_OP_RMSNORM, "trtc-" },
  { PLAN_OP_LAYERNORM, "tstcc-" },
  { PLAN_OP_ADD_RMSNORM, "trtttc-" },
  { PLAN_OP_ADD_LAYERNORM, "tstttcc-" },
  { PLAN_OP_RMSNORM_BWD, "tcttcr-t" },
  { PLAN_OP_LAYERNORM_BWD, "tccttcst-" },
  { PLAN_OP_SWIGLU, "td" },
  { PLAN_OP_SWIGLU_BWD, "dtd" },
  { PLAN_OP_ACTIVATE, "td" },
  { PLAN_OP_ACTIVATE_BWD, "dtd" },
};

static guint64
elements_of (char what, guint64 rows, guint64 cols)
{
  return what == 't'   ? rows * cols
         : what == 'd' ? 2 * rows * cols
         : what == 'c' ? cols
         : what == 'r' ? rows
                       : 2 * rows;
}

START_TEST (kernels_find_largest)
{
  const Finder *finder = &finders[(guint)_i % G_N_ELEMENTS (finders)];
  const PlanDtype formats[] = { PLAN_DTYPE_FP32, PLAN_DTYPE_BF16, PLAN_DTYPE_FP16 };
  const PlanDtype format = formats[_i / 10 % 3];
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gint64 rows = between (rand, 1, 9), cols = between (rand, 1, _i % 4 ? 40 : 700);
  const gint64 dims[] = { rows, cols, between (rand, 0, PLAN_ACTIVATION_QUICK_GELU), 1 };
  Tensor tensor[MOST], again, amax = tensor_blank (PLAN_DTYPE_FP32, 1);
  const Tensor *operands[PLAN_MAX_REFS] = { NULL };
  const guint n = (guint)strlen (finder->operands);
  float largest = _i / 30 % 2 ? 0 : 1.5f;

  for (guint i = 0; i < n; i++)
    if (finder->operands[i] != '-')
      {
        const PlanDtype of = strchr ("rs", finder->operands[i]) ? PLAN_DTYPE_FP32 : format;
        tensor[i] = tensor_random (
            rand, of, elements_of (finder->operands[i], (guint64)rows, (guint64)cols), 1);
        operands[i] = &tensor[i];
      }
  again = tensor_copy (&tensor[0]);
  *(float *)amax.data = largest;
  run_kernel (finder->kind, operands, dims, format);
  operands[0] = &again;
  operands[n] = &amax;
  run_kernel (finder->kind, operands, dims, format);
  ck_assert_mem_eq (again.data, tensor[0].data, plan_dtype_bytes (format, again.count));
  for (guint64 i = 0; i < again.count; i++)
    largest = fmaxf (largest, (float)fabs (tensor_get (&again, i)));
  ck_assert_float_eq (*(float *)amax.data, largest);
  tensor_clear (&again);
  tensor_clear (&amax);
  for (guint i = 0; i < n; i++)
    if (finder->operands[i] != '-')
      tensor_clear (&tensor[i]);
}
END_TEST

/* By the magnitude that was found, or a larger one; afterwards it is 0. */
START_TEST (kernels_quantize_by_largest)
{
  const PlanDtype formats[] = { PLAN_DTYPE_E4M3, PLAN_DTYPE_E5M2, PLAN_DTYPE_NVFP4 };
  const PlanDtype format = formats[_i % 3];
  const double limit = format == PLAN_DTYPE_E4M3 ? 448 : format == PLAN_DTYPE_E5M2 ? 57344 : 2688;
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gint64 rows = 16 * between (rand, 1, 3), cols = 16 * between (rand, 1, 3);
  const guint64 n = (guint64)(rows * cols);
  g_auto (Tensor) in = tensor_random (rand, format_of (_i / 3), n, 1);
  g_auto (Tensor) found = tensor_blank (PLAN_DTYPE_FP32, 1);
  Tensor out[4];
  float scale[4], largest = 0;

  for (guint64 i = 0; i < n; i++)
    largest = fmaxf (largest, (float)fabs (in.value[i]));
  for (guint i = 0; i < 4; i++)
    {
      out[i] = tensor_blank (format, n);
      out[i].scale = &scale[i];
    }
  *(float *)found.data = largest;
  run_kernel (PLAN_OP_QUANTIZE, OPERANDS (&out[0], &out[1], &in), (gint64[]){ rows, cols },
              PLAN_DTYPE_FP32);
  run_kernel (PLAN_OP_QUANTIZE, OPERANDS (&out[2], &out[3], &in, NULL, NULL, &found),
              (gint64[]){ rows, cols }, PLAN_DTYPE_FP32);
  for (guint i = 0; i < 2; i++)
    {
      ck_assert_mem_eq (out[i].data, out[i + 2].data, plan_dtype_bytes (format, n));
      ck_assert_float_eq (scale[i], scale[i + 2]);
    }
  ck_assert_float_eq (*(float *)found.data, 0);
  *(float *)found.data = 4 * largest;
  run_kernel (PLAN_OP_QUANTIZE, OPERANDS (&out[2], NULL, &in, NULL, NULL, &found),
              (gint64[]){ rows, cols }, PLAN_DTYPE_FP32);
  ck_assert_float_eq (scale[2], (float)(4 * (double)largest / limit));
  for (guint i = 0; i < 4; i++)
    tensor_clear (&out[i]);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("kernels-largest");
  TCase *tcase = kernels_case ("cpu");
  tcase_add_loop_test (tcase, kernels_find_largest, 0, 120);
  tcase_add_loop_test (tcase, kernels_quantize_by_largest, 0, 30);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
