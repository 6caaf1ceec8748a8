/* SPDX-License-Identifier: Apache-2.0 */
/* All parameters of a unit in one launch: the device's kernels make the same bits as the CPU's,
 * which are run on one matrix after the other. */
#include "config.h"

#include "exec/cpu/kernels-cpu-private.h"
#include "exec/cuda/kernels/kernels.h"
#include "tests/fake/compare-operand.h"

#include <math.h>
#include <string.h>

#define ROUNDS 60
#define SHAPES 3
#define MOST 12 /* matrices */

static const CompareDevice *device;

enum
{
  OUT,
  COL,
  IN,
  AMAX,
  SCALES,
  SITE_SCALES,
  SITE_AMAX,
  N_OPERANDS
};

/* Shapes of a unit, some of which have several matrices, and the part of it that a rank has, which
 * cuts matrices, or has only some of them, or is empty. */
typedef struct
{
  ExecParams params;
  guint64 count, size, magnitudes; /* of the part; of the unit; of the unit */
  PlanDtype dtype;
  gboolean is_given;
} Case;

static guint64
between (GRand *rand, guint64 least, guint64 most)
{
  return (guint64)g_rand_int_range (rand, (gint32)least, (gint32)most + 1);
}

/* Sides are odd multiples of a block, so that no scales lie in tiles. */
static void
draw_case (Case *c, int seed, GRand *rand)
{
  static const struct
  {
    PlanDtype dtype;
    guint block;
  } formats[] = { { PLAN_DTYPE_E4M3, 0 },
                  { PLAN_DTYPE_E5M2, 0 },
                  { PLAN_DTYPE_E4M3, 32 },
                  { PLAN_DTYPE_E2M1, 16 },
                  { PLAN_DTYPE_E4M3, PLAN_DTYPE_SIDE } };
  const guint block = formats[seed % 5].block;

  c->dtype = formats[seed % 5].dtype;
  c->is_given = block == 0 && seed / 5 % 2 == 1;
  c->params.block = block;
  c->params.n = (guint)between (rand, 1, SHAPES);
  for (guint i = 0; i < c->params.n; i++)
    {
      ExecMatrices *of = &c->params.of[i];
      const guint64 side = block > 0 && block < PLAN_DTYPE_SIDE ? block : 1;
      const guint64 most = block == PLAN_DTYPE_SIDE ? 160 : 40;
      of->n = between (rand, 1, MOST / SHAPES);
      of->rows = side == 1 ? between (rand, 1, most) : side * (2 * between (rand, 0, 1) + 1);
      of->cols = side == 1 ? between (rand, 1, most) : side * (2 * between (rand, 0, 1) + 1);
      of->at = c->size;
      of->magnitude = c->magnitudes;
      of->magnitudes = block == PLAN_DTYPE_SIDE ? plan_dtype_square_scales (of->rows, of->cols)
                       : block > 0              ? 2 * of->rows * of->cols / block
                                                : 1;
      of->site = i;
      c->size += of->n * of->rows * of->cols;
      c->magnitudes += of->n * of->magnitudes;
    }
  const guint64 step = g_rand_boolean (rand) ? 8 : 2;
  c->params.from = seed % 4 == 0 ? 0 : between (rand, 0, c->size) / step * step;
  c->count = c->size - c->params.from;
  if (seed % 4 != 0 && seed % 7 != 0)
    c->count = between (rand, 0, c->count) / step * step;
  if (c->dtype != PLAN_DTYPE_E2M1 && seed % 3 == 0 && c->count > 0)
    c->count--;
}

static void
take (CompareOperand *self, PlanDtype dtype, CompareDraw draw, guint64 count, GRand *rand)
{
  *self = (CompareOperand){ .dtype = dtype, .draw = draw, .count = MAX (count, 1), .limit = 256 };
  compare_operand_init (self, device, rand);
}

static void
take_all (CompareOperand *operand, const Case *c, GRand *rand)
{
  const guint64 bytes = plan_dtype_bytes (c->dtype, c->count);
  const guint block = c->params.block;
  const gboolean has_floats = block == 0 || block == PLAN_DTYPE_SIDE;

  take (&operand[OUT], PLAN_DTYPE_U8, COMPARE_BYTES, bytes, rand);
  take (&operand[COL], PLAN_DTYPE_U8, COMPARE_BYTES, bytes, rand);
  take (&operand[IN], compare_format (rand), COMPARE_SMALL, c->count, rand);
  take (&operand[AMAX], has_floats ? PLAN_DTYPE_FP32 : PLAN_DTYPE_BF16, COMPARE_POSITIVE,
        c->magnitudes, rand);
  take (&operand[SCALES], has_floats ? PLAN_DTYPE_FP32 : PLAN_DTYPE_U8,
        has_floats ? COMPARE_POSITIVE : COMPARE_BYTES, c->magnitudes, rand);
  take (&operand[SITE_SCALES], PLAN_DTYPE_FP32, COMPARE_POSITIVE, SHAPES, rand);
  take (&operand[SITE_AMAX], PLAN_DTYPE_FP32, COMPARE_POSITIVE, SHAPES, rand);
}

/* Points an op at an operand from an element on: its host's copy, or the device's. */
static void
point (ExecArgs *args, guint i, const CompareOperand *operand, PlanDtype dtype, guint64 at,
       gboolean on_device)
{
  args->ptr[i]
      = (on_device ? operand->device : operand->want) + operand->at + plan_dtype_bytes (dtype, at);
  args->dtype[i] = dtype;
}

/* Where an op's arrays begin: elements, magnitudes, and a quantiser's site. */
typedef struct
{
  guint64 element, magnitude, site;
} Place;

static void
point_all (ExecArgs *args, const Case *c, const CompareOperand *operand, Place place,
           gboolean on_device)
{
  if (args->op->kind == PLAN_OP_PARAM_AMAX)
    {
      point (args, 0, &operand[AMAX], operand[AMAX].dtype, place.magnitude, on_device);
      point (args, 1, &operand[IN], operand[IN].dtype, place.element, on_device);
      return;
    }
  point (args, OUT, &operand[OUT], c->dtype, place.element, on_device);
  if (c->params.block > 0 && c->params.block < PLAN_DTYPE_SIDE)
    point (args, COL, &operand[COL], c->dtype, place.element, on_device);
  point (args, IN, &operand[IN], operand[IN].dtype, place.element, on_device);
  point (args, AMAX, &operand[AMAX], operand[AMAX].dtype, place.magnitude, on_device);
  if (c->params.block > 0)
    point (args, SCALES, &operand[SCALES], operand[SCALES].dtype, place.magnitude, on_device);
  if (c->is_given)
    {
      point (args, SITE_SCALES, &operand[SITE_SCALES], PLAN_DTYPE_FP32, place.site, on_device);
      point (args, SITE_AMAX, &operand[SITE_AMAX], PLAN_DTYPE_FP32, place.site, on_device);
    }
}

/* Runs the CPU's op on one matrix after the other. */
static void
run_one_by_one (PlanOpKind kind, const Case *c, const CompareOperand *operand, float *scales)
{
  const guint64 from = c->params.from, last = from + c->count;

  for (guint i = 0; i < c->params.n; i++)
    for (guint64 m = 0; m < c->params.of[i].n; m++, scales++)
      {
        const ExecMatrices *of = &c->params.of[i];
        guint64 first = 0, count = 0, skipped = 0; /* elements of the rank's before the first */

        for (guint64 e = 0; e < of->rows * of->cols; e++)
          {
            const guint64 at = of->at + m * of->rows * of->cols + e;
            if (at < from || at >= last)
              continue;
            first = count == 0 ? e : first;
            skipped = count == 0 ? at - from : skipped;
            count++;
          }
        PlanOp op = { .kind = kind, .dims = { (gint64)count, (gint64)of->magnitudes } };
        ExecArgs args = { .op = &op, .param = { of->rows, of->cols, first, c->params.block } };
        const Place place = { skipped, of->magnitude + m * of->magnitudes, of->site };
        args.scale[OUT] = scales;
        point_all (&args, c, operand, place, FALSE);
        exec_kernels_cpu.run[kind](&args);
      }
}

static void
run_at_once (PlanOpKind kind, Case *c, const CompareOperand *operand, float *scales)
{
  PlanOp op = { .kind = kind, .dims = { (gint64)c->count, (gint64)c->magnitudes } };
  ExecArgs args = { .op = &op, .params = &c->params };

  for (guint i = 0; i < c->params.n; i++)
    {
      c->params.of[i].scale = scales;
      scales += c->params.of[i].n;
    }
  point_all (&args, c, operand, (Place){ 0 }, TRUE);
  const int code = kind == PLAN_OP_PARAM_AMAX ? exec_cuda_param_amax (&args, NULL)
                                              : exec_cuda_param_quantize (&args, NULL);
  const char *error = device->wait ();
  ck_assert_msg (code == 0 && error == NULL, "%s: launch gives %d, %s", plan_op_name (kind), code,
                 error ? error : "");
}

START_TEST (units_are_the_cpus)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  CompareOperand operand[N_OPERANDS], scales;
  Case c = { 0 };
  guint n = 0;

  draw_case (&c, _i, rand);
  take_all (operand, &c, rand);
  for (guint i = 0; i < c.params.n; i++)
    n += (guint)c.params.of[i].n;
  take (&scales, PLAN_DTYPE_FP32, COMPARE_POSITIVE, n, rand);
  for (PlanOpKind kind = PLAN_OP_PARAM_AMAX; kind <= PLAN_OP_PARAM_QUANTIZE; kind++)
    {
      run_one_by_one (kind, &c, operand, (float *)(void *)(scales.want + scales.at));
      run_at_once (kind, &c, operand, (float *)(void *)(scales.device + scales.at));
    }
  for (guint i = 0; i < N_OPERANDS; i++)
    {
      compare_operand_fetch (&operand[i], device);
      ck_assert_msg (memcmp (operand[i].got, operand[i].want, operand[i].at + operand[i].bytes)
                         == 0,
                     "operand %u of unit %d", i, _i);
      compare_operand_clear (&operand[i], device);
    }
  compare_operand_fetch (&scales, device);
  if (c.params.block == 0 || c.dtype == PLAN_DTYPE_E2M1)
    ck_assert_mem_eq (scales.got + scales.at, scales.want + scales.at, scales.bytes);
  compare_operand_clear (&scales, device);
}
END_TEST

void
compare_add_params_tests (Suite *suite, const CompareDevice *on, SFun setup)
{
  TCase *tcase = tcase_create ("params");

  device = on;
  tcase_set_timeout (tcase, 120);
  if (setup != NULL)
    tcase_add_checked_fixture (tcase, setup, NULL);
  tcase_add_loop_test (tcase, units_are_the_cpus, 0, ROUNDS);
  suite_add_tcase (suite, tcase);
}
