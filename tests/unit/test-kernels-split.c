/* SPDX-License-Identifier: Apache-2.0 */
/* A vocabulary in parts, as ranks of a tensor-parallel group have it, against the same kernels on
 * all of it. The last parts may be padded, or nothing but padding. */
#include "config.h"

#include "exec/comm.h"
#include "exec/number/exact.h"
#include "exec/number/number.h"
#include "tests/unit/test-kernels-operands.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PARTS 4

/* `rows` rows over a vocabulary of `whole` entries, which is cut into `parts` parts of `each`
 * entries. */
typedef struct
{
  PlanDtype format;
  gint64 rows, whole, each;
  guint parts;
} Case;

static Case
case_of (GRand *rand, int seed)
{
  Case c = { .format = format_of (seed),
             .rows = between (rand, 1, 7),
             .whole = between (rand, 1, seed % 4 == 0 ? 900 : 30),
             .parts = (guint)between (rand, 1, MAX_PARTS) };
  c.each = (c.whole + c.parts - 1) / c.parts;
  return c;
}

static void
set_part (const Case *c, guint part)
{
  manner.value[PLAN_MANNER_FIRST] = (double)(part * c->each);
  manner.value[PLAN_MANNER_WHOLE] = (double)c->whole;
}

/* Columns of a part, padded with what must not be looked at. */
static Tensor
part_of (const Case *c, const Tensor *all, guint part)
{
  Tensor out = tensor_blank (all->dtype, (guint64)(c->rows * c->each));
  const gint64 first = part * c->each, n = MIN (c->each, c->whole - first);
  for (gint64 row = 0; n > 0 && row < c->rows; row++)
    memcpy ((guint8 *)out.data + plan_dtype_bytes (all->dtype, (guint64)(row * c->each)),
            (guint8 *)all->data + plan_dtype_bytes (all->dtype, (guint64)(row * c->whole + first)),
            plan_dtype_bytes (all->dtype, (guint64)n));
  return out;
}

/* Maxima, sums and targets' logits of whole rows, from those of parts. */
static void
find_stats (const Case *c, const Tensor *logits, const Tensor *targets, Tensor *stats)
{
  const gint64 dims[] = { c->rows, c->each };
  const guint64 rows = (guint64)c->rows;
  for (guint stat = 0; stat < 3; stat++)
    {
      Tensor found[MAX_PARTS], max = { .dtype = PLAN_DTYPE_FP32, .count = rows };
      const void *terms[MAX_PARTS];
      max.data = stats->data;
      for (guint p = 0; p < c->parts; p++)
        {
          found[p] = tensor_blank (PLAN_DTYPE_FP32, rows);
          terms[p] = found[p].data;
          set_part (c, p);
          run_kernel (
              PLAN_OP_ROW_STAT,
              OPERANDS (&found[p], &logits[p], stat == 1 ? &max : NULL, stat == 2 ? targets : NULL),
              dims, c->format);
        }
      (stat == 0 ? exec_comm_max : exec_comm_sum) ((float *)stats->data + stat * rows, terms,
                                                   c->parts, rows, PLAN_DTYPE_FP32);
      for (guint p = 0; p < c->parts; p++)
        tensor_clear (&found[p]);
    }
}

/* Checks one part: its probabilities, and that the gradient is the same by two kernels and by the
 * fused one. */
static void
check_part (const Case *c, guint part, const Tensor *logits, const Tensor *targets,
            const Tensor *stats, const Tensor *want, Tensor *loss)
{
  const guint64 n = (guint64)(c->rows * c->each);
  const gint64 dims[] = { c->rows, c->each };
  g_auto (Tensor) prob = tensor_blank (PLAN_DTYPE_FP32, n);
  g_auto (Tensor) dlogits = tensor_blank (c->format, n);
  g_auto (Tensor) again = tensor_blank (PLAN_DTYPE_I64, EXEC_EXACT_LIMBS);
  g_auto (Tensor) own = tensor_blank (PLAN_DTYPE_I64, EXEC_EXACT_LIMBS);
  memset (again.data, 0, sizeof (ExecExact));
  memset (own.data, 0, sizeof (ExecExact));
  set_part (c, part);
  run_kernel (PLAN_OP_CROSS_ENTROPY, OPERANDS (&own, &prob, logits, targets, stats), dims,
              c->format);
  run_kernel (PLAN_OP_CROSS_ENTROPY_BWD, OPERANDS (&dlogits, &prob, targets), dims, c->format);
  for (gint64 row = 0; row < c->rows; row++)
    for (gint64 col = 0; col < c->each; col++)
      {
        const gint64 at = part * c->each + col;
        const float found = ((float *)prob.data)[row * c->each + col];
        if (at >= c->whole)
          ck_assert (found == 0 && tensor_get (&dlogits, (guint64)(row * c->each + col)) == 0);
        else
          ck_assert_double_eq_tol (found, ((float *)want->data)[row * c->whole + at], 1e-6);
      }
  /* The fused kernel overwrites `logits`. */
  run_kernel (PLAN_OP_LOSS_GRAD, OPERANDS (&again, logits, targets, NULL, stats), dims, c->format);
  for (gint64 row = 0; row < c->rows; row++)
    ck_assert_mem_eq (
        (guint8 *)logits->data + plan_dtype_bytes (c->format, (guint64)(row * c->each)),
        (guint8 *)dlogits.data + plan_dtype_bytes (c->format, (guint64)(row * c->each)),
        plan_dtype_bytes (c->format, (guint64)c->each));
  ck_assert_mem_eq (again.data, own.data, sizeof (ExecExact));
  exec_exact_merge (loss->data, own.data);
}

START_TEST (parts_of_a_loss_are_the_loss)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const Case c = case_of (rand, _i);
  const guint64 n = (guint64)(c.rows * c.whole);
  g_auto (Tensor) logits = tensor_random (rand, c.format, n, 4);
  g_auto (Tensor) targets = tensor_tokens (rand, (guint64)c.rows, -1, (gint32)c.whole);
  g_auto (Tensor) prob = tensor_blank (PLAN_DTYPE_FP32, n);
  g_auto (Tensor) loss = tensor_blank (PLAN_DTYPE_I64, EXEC_EXACT_LIMBS);
  g_auto (Tensor) of_parts = tensor_blank (PLAN_DTYPE_I64, EXEC_EXACT_LIMBS);
  g_auto (Tensor) stats = tensor_blank (PLAN_DTYPE_FP32, 3 * (guint64)c.rows);
  Tensor part[MAX_PARTS];
  memset (loss.data, 0, sizeof (ExecExact));
  memset (of_parts.data, 0, sizeof (ExecExact));
  run_kernel (PLAN_OP_CROSS_ENTROPY, OPERANDS (&loss, &prob, &logits, &targets),
              (gint64[]){ c.rows, c.whole }, c.format);
  for (guint p = 0; p < c.parts; p++)
    part[p] = part_of (&c, &logits, p);
  find_stats (&c, part, &targets, &stats);
  for (guint p = 0; p < c.parts; p++)
    {
      check_part (&c, p, &part[p], &targets, &stats, &prob, &of_parts);
      tensor_clear (&part[p]);
    }
  ck_assert_double_eq_tol (exec_exact_value (of_parts.data), exec_exact_value (loss.data),
                           1e-5 * (double)c.rows);
}
END_TEST

/* A part gives 0 for tokens that it does not have, so the sum of all parts is the result of the
 * whole table, bit for bit. */
START_TEST (parts_of_a_table_are_the_table)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const Case c = case_of (rand, _i);
  const gint64 cols = between (rand, 1, 40), dims[] = { c.rows, cols, c.whole };
  const gint64 of_part[] = { c.rows, cols, c.each };
  const guint64 n = (guint64)(c.rows * cols), size = (guint64)(c.each * cols);
  g_auto (Tensor) table = tensor_random (rand, c.format, (guint64)c.parts * size, 1);
  g_auto (Tensor) dout = tensor_random (rand, c.format, n, 1);
  g_auto (Tensor) tokens = tensor_tokens (rand, (guint64)c.rows, 0, (gint32)c.whole);
  g_auto (Tensor) out = tensor_blank (c.format, n), sum = tensor_blank (c.format, n);
  g_auto (Tensor) dtable = tensor_blank (c.format, (guint64)c.parts * size);
  Tensor parts[MAX_PARTS];
  const void *terms[MAX_PARTS];
  run_kernel (PLAN_OP_EMBED, OPERANDS (&out, &table, &tokens), dims, c.format);
  run_kernel (PLAN_OP_EMBED_BWD, OPERANDS (&dtable, &dout, &tokens), dims, c.format);
  for (guint p = 0; p < c.parts; p++)
    {
      const guint64 at = plan_dtype_bytes (c.format, p * size);
      Tensor own = { .dtype = c.format, .count = size, .data = (guint8 *)table.data + at };
      g_auto (Tensor) found = tensor_blank (c.format, size);
      parts[p] = tensor_blank (c.format, n);
      terms[p] = parts[p].data;
      set_part (&c, p);
      run_kernel (PLAN_OP_EMBED, OPERANDS (&parts[p], &own, &tokens), of_part, c.format);
      run_kernel (PLAN_OP_EMBED_BWD, OPERANDS (&found, &dout, &tokens), of_part, c.format);
      const gint64 rows = CLAMP (c.whole - p * c.each, 0, c.each);
      ck_assert (rows == 0
                 || memcmp (found.data, (guint8 *)dtable.data + at,
                            plan_dtype_bytes (c.format, (guint64)(rows * cols)))
                        == 0);
    }
  exec_comm_sum (sum.data, terms, c.parts, n, c.format);
  ck_assert_mem_eq (sum.data, out.data, plan_dtype_bytes (c.format, n));
  for (guint p = 0; p < c.parts; p++)
    tensor_clear (&parts[p]);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("kernels-split");
  TCase *tcase = kernels_case ("vocabulary");
  tcase_add_loop_test (tcase, parts_of_a_loss_are_the_loss, 0, 60);
  tcase_add_loop_test (tcase, parts_of_a_table_are_the_table, 0, 40);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
