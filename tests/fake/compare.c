/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/fake/compare.h"

#include "exec/cuda/kernels.h"
#include "exec/number.h"

#include <math.h>
#include <string.h>

/* How near a kernel is to the CPU's. */
typedef enum
{
  MOVED,   /* the same bits, those of NaNs too */
  EXACT,   /* the same bits; a NaN is a NaN */
  LIBRARY, /* the same bits if expf, pow, sin and cos give the same: each is good to 2^-22 */
  REDUCED, /* sums of positive terms in another order: see exec/cuda/norm.cu */
} Nearness;

typedef struct
{
  PlanOpKind kind;
  ExecCudaLaunch launch;
  Nearness nearness;
  gboolean any_bits; /* also correct for infinities, NaNs and numbers of any size */
} Kernel;

static const Kernel kernels[] = {
  { PLAN_OP_ZERO, exec_cuda_zero, MOVED, TRUE },
  { PLAN_OP_CAST, exec_cuda_cast, MOVED, TRUE },
  { PLAN_OP_ACCUMULATE, exec_cuda_accumulate, EXACT, TRUE },
  { PLAN_OP_ADD, exec_cuda_add, EXACT, TRUE },
  { PLAN_OP_ADAMW, exec_cuda_adamw, EXACT, TRUE },
  { PLAN_OP_SWIGLU, exec_cuda_swiglu, LIBRARY, FALSE },
  { PLAN_OP_SWIGLU_BWD, exec_cuda_swiglu_bwd, LIBRARY, FALSE },
  { PLAN_OP_ROPE, exec_cuda_rope, LIBRARY, FALSE },
  { PLAN_OP_RMSNORM, exec_cuda_rmsnorm, REDUCED, FALSE },
};

static const CompareDevice *device;

/* --- operands ----------------------------------------------------------------------------- */

#define GUARD 64 /* bytes behind each operand that nobody may write */

typedef struct
{
  PlanDtype dtype;
  guint64 count, bytes;           /* bytes: with the guard */
  void *before, *want, *got, *at; /* want: the CPU's; at: on the device */
} Operand;

/* Formats that kernels do not choose: rstd and coef are always fp32. */
static PlanDtype
format_of (PlanOpKind kind, guint i, GRand *rand)
{
  if ((kind == PLAN_OP_RMSNORM && i == 1) || (kind == PLAN_OP_ADAMW && i == 4))
    return PLAN_DTYPE_FP32;
  return g_rand_boolean (rand) ? PLAN_DTYPE_BF16 : PLAN_DTYPE_FP32;
}

/* NaNs that rounding would turn into infinity or zero, ties to even, overflow, the smallest. */
static const guint32 hard_words[] = {
  0x7f800001, 0xff80ffff, 0x7fffffff, 0xffffffff, 0x7f800000, 0xff800000, 0x3f808000, 0x3f818000,
  0x3f807fff, 0x3f808001, 0x7f7fffff, 0xff7f8000, 0x00000001, 0x80008000, 0x007fffff, 0x80000000,
};

static void
operand_fill (Operand *self, gboolean any_bits, GRand *rand)
{
  guint8 *at = self->before;

  memset (at, 0xa5, self->bytes);
  if (any_bits)
    for (guint64 i = 0; i < self->count; i++)
      {
        guint32 word = g_rand_int_range (rand, 0, 4) == 0
                           ? hard_words[g_rand_int_range (rand, 0, G_N_ELEMENTS (hard_words))]
                           : g_rand_int (rand);
        guint16 high = (guint16)(word >> 16);

        if (self->dtype == PLAN_DTYPE_BF16)
          memcpy (at + 2 * i, &high, sizeof high);
        else
          memcpy (at + 4 * i, &word, sizeof word);
      }
  else
    for (guint64 i = 0; i < self->count; i++)
      {
        float value = (float)(g_rand_double_range (rand, -3, 3) * g_rand_double (rand));

        exec_number_narrow (at + plan_dtype_bytes (self->dtype, i), self->dtype, &value, 1);
      }
}

static void
operand_init (Operand *self, PlanDtype dtype, guint64 count, gboolean any_bits, GRand *rand)
{
  self->dtype = dtype;
  self->count = count;
  self->bytes = plan_dtype_bytes (dtype, count) + GUARD;
  self->before = g_malloc (self->bytes);
  operand_fill (self, any_bits, rand);
  self->want = g_memdup2 (self->before, self->bytes);
  self->got = g_malloc (self->bytes);
  self->at = device->take (self->bytes);
  device->copy (self->at, self->before, self->bytes);
}

static void
operand_clear (Operand *self)
{
  g_free (self->before);
  g_free (self->want);
  g_free (self->got);
  device->give (self->at);
}

static double
value_at (const void *array, PlanDtype dtype, guint64 i)
{
  float value;

  exec_number_widen (&value, (const guint8 *)array + plan_dtype_bytes (dtype, i), dtype, 1);
  return (double)value;
}

/* --- comparison --------------------------------------------------------------------------- */

/* |got - want| <= absolute * the largest |want| + relative * |want|; both 0: the same bits. */
typedef struct
{
  double absolute, relative;
  gboolean any_nan; /* whichever NaN */
} Bound;

static Bound
bound_of (const Kernel *kernel, const PlanOp *op, const Operand *operand)
{
  double ulp = operand->dtype == PLAN_DTYPE_BF16 ? 0x1p-7 : 0x1p-23;

  switch (kernel->nearness)
    {
    case MOVED:
      return (Bound){ .any_nan = FALSE };
    case EXACT:
      return (Bound){ .any_nan = TRUE };
    case LIBRARY:
      return device->own_math ? (Bound){ 0x1p-20, ulp, TRUE } : (Bound){ .any_nan = TRUE };
    case REDUCED:
      return (Bound){ 0, ((double)op->dims[1] / 8 + 20) * 0x1p-24 + ulp, TRUE };
    }
  g_assert_not_reached ();
}

static void
check_operand (const Operand *self, Bound bound, const char *what)
{
  guint64 used = self->bytes - GUARD;
  double largest = 0;

  ck_assert_msg (memcmp ((guint8 *)self->got + used, (guint8 *)self->before + used, GUARD) == 0,
                 "%s: written behind its end", what);
  for (guint64 i = 0; i < self->count; i++)
    largest = fmax (largest, fabs (value_at (self->want, self->dtype, i)));
  for (guint64 i = 0; i < self->count; i++)
    {
      guint64 from = plan_dtype_bytes (self->dtype, i), size = plan_dtype_bytes (self->dtype, 1);
      double got = value_at (self->got, self->dtype, i);
      double want = value_at (self->want, self->dtype, i);

      if (memcmp ((guint8 *)self->got + from, (guint8 *)self->want + from, size) == 0
          || (bound.any_nan && isnan (got) && isnan (want)))
        continue;
      ck_assert_msg (bound.relative > 0
                         && fabs (got - want)
                                <= bound.absolute * largest + bound.relative * fabs (want),
                     "%s[%" G_GUINT64_FORMAT "] is %a instead of %a", what, i, got, want);
    }
}

static void
check_kernel (const Kernel *kernel, const gint64 *dims, gboolean any_bits, GRand *rand)
{
  PlanOp op = { .kind = kernel->kind };
  ExecConstants constants = {
    .norm_eps = 1e-5,
    .rope_theta = 500000,
    .lr = 1e-2,
    .beta1 = 0.9,
    .beta2 = 0.95,
    .adam_eps = 1e-8,
    .weight_decay = 0.1,
    .step = g_rand_int_range (rand, 1, 1000),
  };
  ExecArgs cpu = { .op = &op, .constants = &constants }, cuda = cpu;
  guint n = plan_op_n_refs (kernel->kind);
  Operand operands[PLAN_MAX_REFS];

  memcpy (op.dims, dims, plan_op_n_dims (kernel->kind) * sizeof *dims);
  for (guint i = 0; i < n; i++)
    {
      operand_init (&operands[i], format_of (kernel->kind, i, rand),
                    plan_op_ref_elements (&op, i, 1), any_bits, rand);
      cpu.ptr[i] = operands[i].want;
      cuda.ptr[i] = operands[i].at;
      cpu.dtype[i] = cuda.dtype[i] = operands[i].dtype;
    }
  exec_kernels_cpu.run[kernel->kind](&cpu);
  int code = kernel->launch (&cuda, NULL);
  const char *error = device->wait ();
  ck_assert_msg (code == 0 && error == NULL, "%s: launch gives %d, %s", plan_op_name (kernel->kind),
                 code, error != NULL ? error : "");
  for (guint i = 0; i < n; i++)
    {
      g_autofree char *what = g_strdup_printf ("%s %s (%s)", plan_op_name (kernel->kind),
                                               plan_op_ref_name (kernel->kind, i),
                                               plan_dtype_name (operands[i].dtype));
      gboolean is_result = plan_op_ref_access (kernel->kind, i) != 'r';

      device->copy (operands[i].got, operands[i].at, operands[i].bytes);
      check_operand (&operands[i],
                     is_result ? bound_of (kernel, &op, &operands[i]) : (Bound){ .any_nan = FALSE },
                     what);
    }
  for (guint i = 0; i < n; i++)
    operand_clear (&operands[i]);
}

/* --- cases -------------------------------------------------------------------------------- */

/* Next to the sizes of warps and blocks, or anything. */
static gint64
odd_size (GRand *rand, gint32 most)
{
  static const gint32 edges[] = { 1, 31, 32, 33, 255, 256, 257, 511, 513 };
  gint32 edge = edges[g_rand_int_range (rand, 0, G_N_ELEMENTS (edges))];

  return g_rand_boolean (rand) && edge <= most ? edge : g_rand_int_range (rand, 1, most + 1);
}

static void
draw_dims (PlanOpKind kind, GRand *rand, gint64 out_dims[PLAN_MAX_DIMS])
{
  gint64 kv_heads = g_rand_int_range (rand, 1, 4);

  if (kind == PLAN_OP_ROPE)
    {
      out_dims[0] = g_rand_int_range (rand, 1, 30);
      out_dims[1] = g_rand_int_range (rand, 1, 20);
      out_dims[2] = kv_heads * g_rand_int_range (rand, 1, 4);
      out_dims[3] = kv_heads;
      out_dims[4] = 2 * odd_size (rand, 70);
      out_dims[5] = g_rand_boolean (rand);
    }
  else if (plan_op_n_dims (kind) == 2)
    {
      out_dims[0] = g_rand_int_range (rand, 1, 6);
      out_dims[1] = odd_size (rand, 1500);
    }
  else
    out_dims[0] = odd_size (rand, 3000);
}

#define ROUNDS 40

/* Of each kernel ROUNDS cases; odd ones of random bits where any are allowed. */
START_TEST (cuda_kernel_is_the_cpu_kernel)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const Kernel *kernel = &kernels[_i / ROUNDS];
  gint64 dims[PLAN_MAX_DIMS];

  draw_dims (kernel->kind, rand, dims);
  check_kernel (kernel, dims, kernel->any_bits && _i % 2, rand);
}
END_TEST

/* Sizes at which a block does more than one piece of the work. */
START_TEST (cuda_grid_strides)
{
  static const gint64 dims[][PLAN_MAX_DIMS] = {
    [PLAN_OP_ACCUMULATE] = { 2048 * 256 + 257 },
    [PLAN_OP_SWIGLU] = { 65535 + 3, 2 },
    [PLAN_OP_ROPE] = { 65535 + 2, 7, 1, 1, 2, 0 },
    [PLAN_OP_RMSNORM] = { 2048 + 2, 40 },
  };
  g_autoptr (GRand) rand = g_rand_new_with_seed (1);
  const Kernel *kernel = &kernels[_i];

  if (kernel->kind < G_N_ELEMENTS (dims) && dims[kernel->kind][0] != 0)
    check_kernel (kernel, dims[kernel->kind], FALSE, rand);
}
END_TEST

START_TEST (cuda_refuses_other_formats)
{
  const Kernel *kernel = &kernels[_i];
  PlanOp op = { .kind = kernel->kind, .dims = { 1, 1, 1, 1, 2, 0 } };
  ExecConstants constants = { .step = 1 };
  ExecArgs args = { .op = &op, .constants = &constants };

  for (guint i = 0; i < PLAN_MAX_REFS; i++)
    args.dtype[i] = i == 0 ? PLAN_DTYPE_E4M3 : PLAN_DTYPE_BF16;
  if (kernel->kind != PLAN_OP_ZERO)
    ck_assert_int_ne (kernel->launch (&args, NULL), 0);
  ck_assert_ptr_null (device->wait ());
}
END_TEST

void
compare_add_tests (Suite *suite, const CompareDevice *on, SFun setup)
{
  TCase *tcase = tcase_create (on->name);

  device = on;
  tcase_set_timeout (tcase, 120);
  if (setup != NULL)
    tcase_add_checked_fixture (tcase, setup, NULL);
  tcase_add_loop_test (tcase, cuda_kernel_is_the_cpu_kernel, 0, G_N_ELEMENTS (kernels) * ROUNDS);
  tcase_add_loop_test (tcase, cuda_grid_strides, 0, G_N_ELEMENTS (kernels));
  tcase_add_loop_test (tcase, cuda_refuses_other_formats, 0, G_N_ELEMENTS (kernels));
  suite_add_tcase (suite, tcase);
}

/* --- speed -------------------------------------------------------------------------------- */

#define WARM_UP 3
#define REPEATS 20

static void
time_kernel (const Kernel *kernel, gint64 rows, FILE *out)
{
  PlanOp op = { .kind = kernel->kind, .dims = { rows, 4096 } };
  ExecConstants constants = { .norm_eps = 1e-5, .rope_theta = 10000, .beta1 = 0.9, .step = 1 };
  ExecArgs args = { .op = &op, .constants = &constants };
  guint n = plan_op_n_refs (kernel->kind);
  guint64 moved = 0;
  gint64 begun = 0;

  if (kernel->kind == PLAN_OP_ROPE)
    memcpy (op.dims, ((gint64[]){ rows, 4096, 24, 4, 128, 0 }), sizeof op.dims);
  else if (plan_op_n_dims (kernel->kind) == 1)
    op.dims[0] = rows * 4096;
  for (guint i = 0; i < n; i++)
    {
      gboolean is_wide = (kernel->kind == PLAN_OP_RMSNORM && i == 1)
                         || (kernel->kind == PLAN_OP_CAST && i == 1)
                         || kernel->kind == PLAN_OP_ADAMW;
      args.dtype[i] = is_wide ? PLAN_DTYPE_FP32 : PLAN_DTYPE_BF16;
      guint64 bytes = plan_dtype_bytes (args.dtype[i], plan_op_ref_elements (&op, i, 1));
      PlanOp zero = { .kind = PLAN_OP_ZERO, .dims = { (gint64)bytes } };

      args.ptr[i] = device->take (bytes);
      exec_cuda_zero (
          &(ExecArgs){ .op = &zero, .ptr = { args.ptr[i] }, .dtype = { PLAN_DTYPE_U8 } }, NULL);
      moved += bytes * (plan_op_ref_access (kernel->kind, i) == 'u' ? 2 : 1);
    }
  for (guint i = 0; i < WARM_UP + REPEATS; i++)
    {
      if (i == WARM_UP)
        {
          device->wait ();
          begun = g_get_monotonic_time ();
        }
      kernel->launch (&args, NULL);
    }
  device->wait ();
  double us = (double)MAX (g_get_monotonic_time () - begun, 1) / REPEATS;
  fprintf (out, "# %-11s %8.1f GB/s, %" G_GUINT64_FORMAT " bytes in %.1f us\n",
           plan_op_name (kernel->kind), (double)moved / us * 1e-3, moved, us);
  for (guint i = 0; i < n; i++)
    device->give (args.ptr[i]);
}

void
compare_speed (const CompareDevice *on, gint64 rows, FILE *out)
{
  device = on;
  for (guint i = 0; i < G_N_ELEMENTS (kernels); i++)
    time_kernel (&kernels[i], rows, out);
}
