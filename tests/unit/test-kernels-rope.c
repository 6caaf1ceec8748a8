/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/kernels.h"
#include "tests/reference/rope.h"
#include "tests/unit/test-kernels-operands.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static void
slow_rope (Pass *pass)
{
  gint64 rows = pass->dims[0], seq = pass->dims[1], heads = pass->dims[2], kv = pass->dims[3];
  gint64 d = pass->dims[4], width = (heads + 2 * kv) * d;
  const gint64 said = (gint64)manner.value[PLAN_MANNER_TURNED], turned = said > 0 ? said : d;
  const double theta = manner.value[PLAN_MANNER_THETA];
  const PlanRope local = { .theta = theta };

  memcpy (pass->out, pass->in[0], (gsize)(rows * width) * sizeof (double));
  for (gint64 r = 0; r < rows; r++)
    for (gint64 h = 0; h < heads + kv; h++)
      for (gint64 i = 0; i < turned / 2; i++)
        {
          const double *a = pass->in[0] + r * width + h * d + i, *b = a + turned / 2;
          double *out = pass->out + r * width + h * d + i;
          double cosine, sine;

          reference_rope_turn (theta > 0 ? &local : &constants.rope, i, turned, seq, r % seq,
                               &cosine, &sine);
          out[0] = *a * cosine - *b * sine;
          out[turned / 2] = *b * cosine + *a * sine;
        }
}

/* Factors for as many pairs as any head of these tests has. */
#define FACTORS(f) \
  { \
    PLAN_ROPE_MAX_PAIRS, { [0 ... 3] = f, [4 ... PLAN_ROPE_MAX_PAIRS - 1] = 2 * f } \
  }

/* Original lengths so short that the few positions of a test lie within them and beyond. */
static const PlanRope ropes[] = {
  { .theta = 10000 },
  { .theta = 10000, .scaling = PLAN_ROPE_SCALING_LINEAR, .factor = 4 },
  { .theta = 10000, .scaling = PLAN_ROPE_SCALING_DYNAMIC, .factor = 3, .original = 4 },
  { 500000, PLAN_ROPE_SCALING_LLAMA3, 32, 8192, 1, 4, 1, 0, { 0 }, { 0 }, FALSE },
  { 10000, PLAN_ROPE_SCALING_YARN, 40, 4096, 1, 32, 1, 0, { 0 }, { 0 }, FALSE },
  { 1000, PLAN_ROPE_SCALING_YARN, 4, 8, 1, 32, 0.7, 1.3, { 0 }, { 0 }, TRUE },
  { 1000, PLAN_ROPE_SCALING_LONGROPE, 4, 5, 0, 0, 1, 0, FACTORS (1.1), FACTORS (3.7), FALSE },
};

START_TEST (kernels_rope)
{
  constants.rope = ropes[(guint)_i / 2 % G_N_ELEMENTS (ropes)];
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  gint64 kv = between (rand, 1, 2), heads = kv * between (rand, 1, 3), seq = between (rand, 1, 9);
  gint64 d = 2 * (_i % 5 == 0 ? 64 : 0) + 2 * between (rand, 1, 6),
         rows = seq * between (rand, 1, 2);
  gint64 forward[] = { rows, seq, heads, kv, d, 0 }, inverse[] = { rows, seq, heads, kv, d, 1 };
  guint64 n = (guint64)(rows * (heads + 2 * kv) * d);
  PlanDtype format = format_of (_i);
  g_auto (Tensor) in = tensor_random (rand, format, n, 1);
  g_auto (Tensor) out = tensor_copy (&in);
  Pass pass = { { rows, seq, heads, kv, d }, { in.value }, NULL, g_new (double, n), n };
  g_autofree double *want = pass.out;

  if (_i % 3 == 1)
    manner.value[PLAN_MANNER_TURNED] = (double)(2 * between (rand, 1, (gint32)d / 2));
  if (_i % 5 == 2)
    manner.value[PLAN_MANNER_THETA] = 77;
  slow_rope (&pass);
  run_kernel (PLAN_OP_ROPE, OPERANDS (&out), forward, format);
  check_close (&out, want, 3e-7, "rope");
  if (n > 400)
    return;

  /* The gradient of a rotation is the rotation in the other direction. */
  g_auto (Tensor) din = tensor_copy (&in);
  g_autofree double *dout = g_memdup2 (in.value, n * sizeof *dout);
  g_autofree double *want_din = slow_gradient (slow_rope, &pass, 0, n, dout);
  run_kernel (PLAN_OP_ROPE, OPERANDS (&din), inverse, format);
  check_close (&din, want_din, 3e-7, "rope inverse");
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("kernels-rope");
  TCase *tcase = kernels_case ("cpu");
  tcase_add_loop_test (tcase, kernels_rope, 0, 48);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
