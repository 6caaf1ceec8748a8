/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a vocabulary and of rows, as the ranks of a tensor-parallel group have them: the
 * device's kernels make the CPU's bits, or numbers near them. Parts may have padding, or be all
 * padding, whose results nobody reads. */
#include "config.h"

#include "exec/cuda/kernels/kernels.h"
#include "exec/cuda/kernels/layers.h"
#include "exec/number/exact.h"
#include "planner/schedule/scratch.h"
#include "tests/fake/compare-dims.h"
#include "tests/fake/compare-operand.h"

#include <math.h>
#include <string.h>

#define ROUNDS 60
#define MAX_OPERANDS 8
#define U 0x1p-24

static const CompareDevice *device;

/* `cols` entries from `first` on of `whole`; or part `part` of `parts` of sequences, and keys that
 * have come past `turn` ranks. */
typedef struct
{
  gint64 rows, cols, first, whole;
  gint64 part, parts, turn, window, chunk, piece, width;
} Part;

static Part
draw_part (GRand *rand, gint32 most)
{
  Part part = { .rows = g_rand_int_range (rand, 1, 8), .cols = compare_odd_size (rand, most) };
  part.first = part.cols * g_rand_int_range (rand, 0, 4);
  part.whole = g_rand_int_range (rand, 1, (gint32)(part.first + part.cols) + 5);
  return part;
}

static gint64
here (const Part *part)
{
  return CLAMP (part->whole - part->first, 0, part->cols);
}

static void
take (CompareOperand *self, PlanDtype dtype, CompareDraw draw, gint64 count, GRand *rand)
{
  *self = (CompareOperand){ .dtype = dtype, .draw = draw, .count = (guint64)count };
  compare_operand_init (self, device, rand);
}

static void
take_indices (CompareOperand *self, gint64 count, gint64 limit, gboolean minus, GRand *rand)
{
  *self = (CompareOperand){ .dtype = PLAN_DTYPE_I32,
                            .draw = COMPARE_INDEX,
                            .limit = (gint32)limit,
                            .has_minus = minus,
                            .count = (guint64)count };
  compare_operand_init (self, device, rand);
}

/* Allocates logits, with NaNs as padding. */
static void
take_logits (CompareOperand *self, const Part *part, GRand *rand)
{
  take (self, compare_format (rand), COMPARE_WIDE, part->rows * part->cols, rand);
  for (gint64 row = 0; row < part->rows; row++)
    {
      const guint64 begin = (guint64)(row * part->cols);
      const guint64 from = plan_dtype_bytes (self->dtype, begin + (guint64)here (part));
      memset (self->want + self->at + from, 0xff,
              plan_dtype_bytes (self->dtype, begin + (guint64)part->cols) - from);
    }
  compare_operand_keep (self, device);
}

/* Runs the op on both devices; operands that are NULL are absent. */
static void
run_both (PlanOpKind kind, ExecCudaLaunch launch, const Part *part, const gint64 *dims,
          CompareOperand *const *operands)
{
  PlanOp op = { .kind = kind };
  const PlanManner manner = { { [PLAN_MANNER_RATE] = 0.25,
                                [PLAN_MANNER_FIRST] = (double)part->first,
                                [PLAN_MANNER_WHOLE] = (double)part->whole,
                                [PLAN_MANNER_PART] = (double)part->part,
                                [PLAN_MANNER_PARTS] = (double)part->parts,
                                [PLAN_MANNER_WINDOW] = (double)part->window,
                                [PLAN_MANNER_CHUNK] = (double)part->chunk,
                                [PLAN_MANNER_PIECE] = (double)part->piece,
                                [PLAN_MANNER_WIDTH] = (double)part->width } };
  const ExecConstants constants = { .norm_eps = 1e-5, .rope = { .theta = 10000 } };
  const ExecArgs args
      = { .op = &op, .manner = &manner, .constants = &constants, .turn = (guint64)part->turn };

  memcpy (op.dims, dims, plan_op_n_dims (kind) * sizeof *dims);
  compare_operands_run (operands, MAX_OPERANDS, &args, launch, device);
}

#define OPERANDS(...) ((CompareOperand *const[MAX_OPERANDS]){ __VA_ARGS__ })

/* Checks that the bits are equal, but that a NaN may be any NaN. */
static void
check_equal (const CompareOperand *self, const char *what)
{
  compare_operand_check (self, (CompareBound){ .any_nan = TRUE }, what);
}

/* Checks numbers that differ by the order of sums and by the function for e^x. */
static void
check_near (const CompareOperand *self, double absolute, double depth, const char *what)
{
  const double ulp = self->dtype == PLAN_DTYPE_BF16   ? 0x1p-7
                     : self->dtype == PLAN_DTYPE_FP16 ? 0x1p-10
                                                      : 0x1p-23;
  compare_operand_check (self, (CompareBound){ absolute, (depth + 192) * U + ulp, TRUE }, what);
}

static void
clear (CompareOperand *const *operands)
{
  for (guint i = 0; i < MAX_OPERANDS && operands[i]; i++)
    compare_operand_clear (operands[i], device);
}

START_TEST (rows_of_a_part_are_the_cpus)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const Part part = draw_part (rand, 50);
  const gint64 rows = compare_odd_size (rand, 600), cols = compare_odd_size (rand, 40);
  const gint64 dims[] = { rows, cols, part.cols };
  CompareOperand out, dtable, table, dout, tokens, work;

  take (&out, compare_format (rand), COMPARE_SMALL, rows * cols, rand);
  take (&dtable, compare_format (rand), COMPARE_SMALL, part.cols * cols, rand);
  take (&table, compare_format (rand), COMPARE_BITS, part.cols * cols, rand);
  take (&dout, compare_format (rand), COMPARE_BITS, rows * cols, rand);
  take (&work, PLAN_DTYPE_FP32, COMPARE_SMALL, rows + cols + part.cols + 1, rand);
  take_indices (&tokens, rows, part.whole, FALSE, rand);
  run_both (PLAN_OP_EMBED, exec_cuda_embed, &part, dims, OPERANDS (&out, &table, &tokens));
  run_both (PLAN_OP_EMBED_BWD, exec_cuda_embed_bwd, &part, dims,
            OPERANDS (&dtable, &dout, &tokens, &work));
  check_equal (&out, "rows of a part");
  check_equal (&dtable, "gradient of a part");
  clear (OPERANDS (&out, &table, &tokens));
  clear (OPERANDS (&dtable, &dout, &work));
}
END_TEST

/* Checks which elements are dropped: that depends on the rows' places alone. */
static void
check_dropout (const Part *part, gint64 rows, gint64 cols, gint64 seq, GRand *rand)
{
  const gint64 dims[] = { rows, cols, seq, g_rand_boolean (rand) };
  CompareOperand out, din, a, b, key, start;

  take (&out, compare_format (rand), COMPARE_SMALL, rows * cols, rand);
  take (&din, compare_format (rand), COMPARE_SMALL, rows * cols, rand);
  take (&a, compare_format (rand), COMPARE_BITS, rows * cols, rand);
  take (&b, compare_format (rand), COMPARE_BITS, rows * cols, rand);
  take (&key, PLAN_DTYPE_I32, COMPARE_BITS, PLAN_RANDOM_KEY, rand);
  take (&start, PLAN_DTYPE_I64, COMPARE_BITS, 1, rand);
  run_both (PLAN_OP_DROPOUT_ADD, exec_cuda_dropout_add, part, dims,
            OPERANDS (&out, NULL, &a, &b, &key, &start));
  run_both (PLAN_OP_DROPOUT_BWD, exec_cuda_dropout_bwd, part, dims,
            OPERANDS (&din, &b, NULL, &key, &start));
  check_equal (&out, "a sum with dropout");
  check_equal (&din, "gradient of dropout");
  clear (OPERANDS (&out, &din, &a));
  clear (OPERANDS (&b, &key, &start));
}

/* A part of any number of rows, from any row on, of sequences that end anywhere. */
START_TEST (places_of_split_rows_are_the_cpus)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gint64 rows = g_rand_int_range (rand, 1, 30), cols = compare_odd_size (rand, 40);
  const gint64 dims[] = { rows, cols, g_rand_int_range (rand, 1, 20) };
  const Part part = { .first = rows * g_rand_int_range (rand, 0, 4) };
  CompareOperand out, table, dtable, dout;

  take (&out, compare_format (rand), COMPARE_BITS, rows * cols, rand);
  take (&table, compare_format (rand), COMPARE_BITS, dims[2] * cols, rand);
  take (&dtable, compare_format (rand), COMPARE_SMALL, dims[2] * cols, rand);
  take (&dout, compare_format (rand), COMPARE_BITS, rows * cols, rand);
  run_both (PLAN_OP_POSITIONS, exec_cuda_positions, &part, dims, OPERANDS (&out, &table));
  run_both (PLAN_OP_POSITIONS_BWD, exec_cuda_positions_bwd, &part, dims, OPERANDS (&dtable, &dout));
  check_equal (&out, "rows with places");
  check_equal (&dtable, "gradient of places");
  check_dropout (&part, rows, cols, dims[2], rand);
  clear (OPERANDS (&out, &table, &dtable, &dout));
}
END_TEST

/* Maxima and the targets' logits are exact, sums are near. */
START_TEST (numbers_of_a_part_are_near_the_cpus)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const Part part = draw_part (rand, _i % 5 == 0 ? 20000 : 1500);
  const gint64 dims[] = { part.rows, part.cols };
  CompareOperand max, sum, target, logits, targets;

  take (&max, PLAN_DTYPE_FP32, COMPARE_SMALL, part.rows, rand);
  take (&sum, PLAN_DTYPE_FP32, COMPARE_SMALL, part.rows, rand);
  take (&target, PLAN_DTYPE_FP32, COMPARE_SMALL, part.rows, rand);
  take_logits (&logits, &part, rand);
  take_indices (&targets, part.rows, part.whole, TRUE, rand);
  run_both (PLAN_OP_ROW_STAT, exec_cuda_row_stat, &part, dims, OPERANDS (&max, &logits));
  check_equal (&max, "largest of a part");
  if (here (&part)
      == 0) /* the part has no logits: its maximum is minus infinity, another part's is larger */
    {
      memset (max.want + max.at, 0, max.bytes);
      compare_operand_keep (&max, device);
    }
  run_both (PLAN_OP_ROW_STAT, exec_cuda_row_stat, &part, dims, OPERANDS (&sum, &logits, &max));
  check_near (&sum, 0, (double)part.cols / 8, "sums of a part");
  run_both (PLAN_OP_ROW_STAT, exec_cuda_row_stat, &part, dims,
            OPERANDS (&target, &logits, NULL, &targets));
  check_equal (&target, "targets' logits");
  clear (OPERANDS (&max, &sum, &target, &logits, &targets));
}
END_TEST

/* The statistics may come from any part. One fused kernel leaves what two do, on either device. */
START_TEST (softmax_of_a_part_is_near_the_cpus)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const Part part = draw_part (rand, 1500);
  const gint64 n = part.rows * part.cols, dims[] = { part.rows, part.cols };
  CompareOperand loss[2], prob, logits, targets, stats, dlogits, work;

  for (guint i = 0; i < 2; i++)
    {
      take (&loss[i], PLAN_DTYPE_I64, COMPARE_SUM, EXEC_EXACT_LIMBS, rand);
      memset (loss[i].want + loss[i].at, 0, loss[i].bytes);
      compare_operand_keep (&loss[i], device);
    }
  take (&prob, PLAN_DTYPE_FP32, COMPARE_SMALL, n, rand);
  take_logits (&logits, &part, rand);
  take (&dlogits, logits.dtype, COMPARE_SMALL, n, rand);
  take (&work, PLAN_DTYPE_FP32, COMPARE_SMALL, part.cols, rand);
  take (&stats, PLAN_DTYPE_FP32, COMPARE_POSITIVE, 3 * part.rows, rand);
  for (gint64 row = 0; row < part.rows; row++)
    ((float *)(gpointer)(stats.want + stats.at))[row] = 12;
  compare_operand_keep (&stats, device);
  take_indices (&targets, part.rows, part.whole, TRUE, rand);
  run_both (PLAN_OP_CROSS_ENTROPY, exec_cuda_cross_entropy, &part, dims,
            OPERANDS (&loss[0], &prob, &logits, &targets, &stats));
  /* The limbs of the exact sum depend on the order, their total does not; logarithms may be the
   * device's own. */
  const double logarithms = device->own_math ? (double)part.rows * 0x1p-21 : 0;
  compare_operand_check (&loss[0], (CompareBound){ logarithms, 0x1p-60, FALSE }, "loss of a part");
  check_near (&prob, 0, 0, "softmax of a part");
  run_both (PLAN_OP_CROSS_ENTROPY_BWD, exec_cuda_cross_entropy_bwd, &part, dims,
            OPERANDS (&dlogits, &prob, &targets));
  check_near (&dlogits, 192 * U, 0, "gradient of a part");
  run_both (PLAN_OP_LOSS_GRAD, exec_cuda_loss_grad, &part, dims,
            OPERANDS (&loss[1], &logits, &targets, &work, &stats));
  ck_assert_mem_eq (logits.got + logits.at, dlogits.got + dlogits.at, logits.bytes);
  ck_assert (exec_exact_value ((const ExecExact *)(gpointer)(loss[1].got + loss[1].at))
             == exec_exact_value ((const ExecExact *)(gpointer)(loss[0].got + loss[0].at)));
  clear (OPERANDS (&loss[0], &loss[1], &prob, &logits));
  clear (OPERANDS (&targets, &stats, &dlogits, &work));
}
END_TEST

/* --- parts of sequences ------------------------------------------------------------------- */

/* Draws a part of `seq` tokens of each of some sequences. */
static Part
draw_sequence_part (GRand *rand, gint64 seq)
{
  Part part = { .parts = g_rand_int_range (rand, 2, 5) };
  part.part = g_rand_int_range (rand, 0, (gint32)part.parts);
  if (g_rand_boolean (rand))
    part.window = g_rand_int_range (rand, 1, (gint32)(seq * part.parts) + 1);
  else if (g_rand_boolean (rand))
    part.chunk = g_rand_int_range (rand, 1, (gint32)(seq * part.parts) + 1);
  return part;
}

START_TEST (places_in_sequences_are_the_cpus)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gint64 seq = 2 * g_rand_int_range (rand, 1, 20), rows = seq * g_rand_int_range (rand, 1, 3);
  const gint64 cols = compare_odd_size (rand, 40), kv = g_rand_int_range (rand, 1, 3);
  const gint64 dim = 2 * compare_odd_size (rand, 40), width = 4 * kv * dim;
  const gint64 dims[] = { rows, cols, seq }, turned[] = { rows, seq, 2 * kv, kv, dim, _i % 2 };
  const Part part = draw_sequence_part (rand, seq);
  CompareOperand out, table, dtable, dout, qkv;

  take (&out, compare_format (rand), COMPARE_BITS, rows * cols, rand);
  take (&table, compare_format (rand), COMPARE_BITS, part.parts * seq * cols, rand);
  take (&dtable, compare_format (rand), COMPARE_SMALL, part.parts * seq * cols, rand);
  take (&dout, compare_format (rand), COMPARE_BITS, rows * cols, rand);
  take (&qkv, compare_format (rand), COMPARE_UNIT, rows * width, rand);
  run_both (PLAN_OP_POSITIONS, exec_cuda_positions, &part, dims, OPERANDS (&out, &table));
  run_both (PLAN_OP_POSITIONS_BWD, exec_cuda_positions_bwd, &part, dims, OPERANDS (&dtable, &dout));
  run_both (PLAN_OP_ROPE, exec_cuda_rope, &part, turned, OPERANDS (&qkv));
  check_equal (&out, "rows with places");
  check_equal (&dtable, "gradient of places");
  check_near (&qkv, 0x1p-20, 0, "turned");
  check_dropout (&part, rows, cols, seq, rand);
  clear (OPERANDS (&out, &table, &dtable, &dout, &qkv));
}
END_TEST

/* A step in fp32 at place 10^7 is a whole radian. */
START_TEST (far_places_turn_as_near_as_the_first)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gint64 rows = compare_odd_size (rand, 30), kv = g_rand_int_range (rand, 1, 3);
  const gint64 dim = 2 * compare_odd_size (rand, 300), dims[] = { rows, rows, kv, kv, dim, _i % 2 };
  const Part part = { .parts = 1 };
  CompareOperand qkv, places;

  take (&qkv, PLAN_DTYPE_FP32, COMPARE_UNIT, rows * 3 * kv * dim, rand);
  take_indices (&places, rows, 20000000, FALSE, rand);
  run_both (PLAN_OP_ROPE, exec_cuda_rope, &part, dims, OPERANDS (&qkv, &places));
  check_near (&qkv, 0x1p-21, 0, "turned far away");
  clear (OPERANDS (&qkv, &places));
}
END_TEST

START_TEST (columns_are_the_cpus)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gint64 rows = g_rand_int_range (rand, 1, 30), piece = compare_odd_size (rand, 300);
  const Part part = { .piece = piece, .width = piece + g_rand_int_range (rand, 0, 30) };
  const gint64 count = rows * piece;
  CompareOperand wide, in, out;

  take (&wide, compare_format (rand), COMPARE_BITS, rows * part.width, rand);
  take (&in, compare_format (rand), COMPARE_BITS, count, rand);
  take (&out, compare_format (rand), COMPARE_SMALL, count, rand);
  run_both (PLAN_OP_CAST, exec_cuda_cast, &part, &count, OPERANDS (&out, &wide));
  run_both (PLAN_OP_ACCUMULATE, exec_cuda_accumulate, &part, &count, OPERANDS (&wide, &in));
  check_equal (&out, "columns of rows");
  check_equal (&wide, "rows with columns added");
  clear (OPERANDS (&wide, &in, &out));
}
END_TEST

/* Attention to a part's own keys, to those of another part, and to both; gradients by those of the
 * other part. */
START_TEST (attention_of_parts_is_near_the_cpus)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const gint64 seq = 2 * compare_odd_size (rand, 70), batch = 1 + _i % 2;
  const gint64 kv = 1 + _i / 2 % 2, heads = kv * g_rand_int_range (rand, 1, 3);
  const gint64 dim = compare_odd_size (rand, _i % 8 == 0 ? 140 : 40), rows = batch * seq,
               out_width = heads * dim;
  const gint64 dims[] = { batch, seq, heads, kv, dim, seq }, joins[] = { batch, seq, heads, dim };
  const PlanDtype format = compare_format (rand);
  Part part = draw_sequence_part (rand, seq);
  CompareOperand qkv, work, out, lse, keys, some, some_lse, dq, dout, dkeys;

  take (&qkv, format, COMPARE_UNIT, rows * (heads + 2 * kv) * dim, rand);
  take (&keys, format, COMPARE_UNIT, rows * 2 * kv * dim, rand);
  take (&work, PLAN_DTYPE_FP32, COMPARE_SMALL,
        (gint64)plan_scratch_elements (PLAN_OP_ATTENTION_BWD, dims, PLAN_DTYPE_FP32), rand);
  take (&out, format, COMPARE_SMALL, rows * out_width, rand);
  take (&lse, PLAN_DTYPE_FP32, COMPARE_SMALL, rows * heads, rand);
  take (&some, format, COMPARE_SMALL, rows * out_width, rand);
  take (&some_lse, PLAN_DTYPE_FP32, COMPARE_SMALL, rows * heads, rand);
  take (&dq, format, COMPARE_SMALL, rows * out_width, rand);
  take (&dout, format, COMPARE_UNIT, rows * out_width, rand);
  take (&dkeys, format, COMPARE_SMALL, rows * 2 * kv * dim, rand);
  const double score = (double)(dim + 8) * U * sqrt ((double)dim), sums = (double)(seq + 64) * U;
  run_both (PLAN_OP_ATTENTION, exec_cuda_attention, &part, dims,
            OPERANDS (&out, &lse, &qkv, &work));
  part.turn = g_rand_int_range (rand, 1, (gint32)part.parts);
  run_both (PLAN_OP_ATTENTION, exec_cuda_attention, &part, dims,
            OPERANDS (&some, &some_lse, &qkv, &work, &keys));
  check_near (&out, 4 * score + sums, 0, "attention to its own part");
  check_near (&some, 4 * score + sums, 0, "attention to another part");
  check_near (&some_lse, 2 * score + 8 * sums, 0, "lse of another part");
  run_both (PLAN_OP_ATTENTION_JOIN, exec_cuda_attention_join, &part, joins,
            OPERANDS (&out, &lse, &some, &some_lse));
  check_near (&out, 16 * (score + sums), 0, "attention to both");
  check_near (&lse, 4 * score + 16 * sums, 0, "lse of both");
  run_both (PLAN_OP_ATTENTION_BWD, exec_cuda_attention_bwd, &part, dims,
            OPERANDS (&dq, &dout, &out, &lse, &qkv, &work, &keys, &dkeys));
  const double gradient = (double)(heads / kv) * 16 * (score + 64 * U);
  check_near (&dq, gradient, 0, "gradient of queries");
  check_near (&dkeys, gradient, 0, "gradient of another part's keys");
  clear (OPERANDS (&qkv, &work, &out, &lse, &keys, &some, &some_lse));
  clear (OPERANDS (&dq, &dout, &dkeys));
}
END_TEST

void
compare_add_split_tests (Suite *suite, const CompareDevice *on, SFun setup)
{
  TCase *tcase = tcase_create ("split");

  device = on;
  tcase_set_timeout (tcase, 120);
  if (setup != NULL)
    tcase_add_checked_fixture (tcase, setup, NULL);
  tcase_add_loop_test (tcase, rows_of_a_part_are_the_cpus, 0, ROUNDS);
  tcase_add_loop_test (tcase, places_of_split_rows_are_the_cpus, 0, ROUNDS);
  tcase_add_loop_test (tcase, places_in_sequences_are_the_cpus, 0, ROUNDS / 2);
  tcase_add_loop_test (tcase, far_places_turn_as_near_as_the_first, 0, ROUNDS / 2);
  tcase_add_loop_test (tcase, columns_are_the_cpus, 0, ROUNDS / 2);
  tcase_add_loop_test (tcase, attention_of_parts_is_near_the_cpus, 0, ROUNDS / 4);
  tcase_add_loop_test (tcase, numbers_of_a_part_are_near_the_cpus, 0, ROUNDS);
  tcase_add_loop_test (tcase, softmax_of_a_part_is_near_the_cpus, 0, ROUNDS);
  suite_add_tcase (suite, tcase);
}
