/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/base/error.h"
#include "planner/schedule/check-stages.h"
#include "planner/schedule/joined.h"
#include "planner/schedule/schedule.h"
#include "planner/schedule/scratch.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define HEADER \
  "schedule 2 rank=0 ranks=2\n" \
  "group all size=2 stride=1\n" \
  "buffer a[3] elements=8 dtype=fp32 category=activations\n" \
  "buffer w elements=16 dtype=bf16 category=gathered\n" \
  "event e[3]\n" \
  "event done\n"

/* A schedule with these lines in its step, and nothing in setup and teardown. */
static PlanSchedule *
step (const char *lines, GError **error)
{
  g_autofree char *text
      = g_strconcat (HEADER "section setup\nsection step\n", lines, "section teardown\n", NULL);
  return plan_schedule_parse (text, "text", error);
}

static void
assert_refused (const char *text, const char *message)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanSchedule) schedule = plan_schedule_parse (text, "text", &error);
  ck_assert_msg (schedule == NULL, "%s was accepted", text);
  ck_assert (g_error_matches (error, PLAN_ERROR, PLAN_ERROR_INVALID));
  ck_assert_msg (strstr (error->message, message) != NULL, "'%s' lacks '%s'", error->message,
                 message);
}

static void
assert_check_fails (const char *lines, const char *message)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanSchedule) schedule = step (lines, &error);
  ck_assert_msg (schedule != NULL, "%s", error ? error->message : "");
  ck_assert_msg (!plan_schedule_check (schedule, &error), "check passed: %s", lines);
  ck_assert_msg (strstr (error->message, message) != NULL, "'%s' lacks '%s'", error->message,
                 message);
}

static void
assert_check_passes (const char *lines)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanSchedule) schedule = step (lines, &error);
  ck_assert_msg (schedule && plan_schedule_check (schedule, &error), "%s", error->message);
}

START_TEST (text_reads_back)
{
  const char *text = HEADER "section setup\n"
                            "section step\n"
                            "  repeat l from=2 count=2 step=-1\n"
                            "    alloc compute buf=a[l]\n"
                            "    zero compute out=a[l]+4 count=4 record=e[l]\n"
                            "    free compute buf=a[l] wait=e[l]\n"
                            "  end\n"
                            "section teardown\n";
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanSchedule) schedule = plan_schedule_parse (text, "text", &error);
  ck_assert_msg (schedule != NULL, "%s", error ? error->message : "");
  g_autofree char *again = plan_schedule_print (schedule);
  ck_assert_str_eq (again, text);
}
END_TEST

/* Ops of one kind in different manners, and in none. */
START_TEST (ops_say_how_they_work)
{
  const char *text = HEADER "section setup\n"
                            "section step\n"
                            "  alloc compute buf=a[1]\n"
                            "  scale compute buf=a[1] count=8 factor=1.25\n"
                            "  scale compute buf=a[1] count=8\n"
                            "  softcap compute buf=a[1] count=8 cap=30\n"
                            "  scale compute buf=a[1] count=8 factor=1.25\n"
                            "  free compute buf=a[1]\n"
                            "section teardown\n";
  const double factors[] = { 1.25, 0, 0, 1.25 };
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanSchedule) schedule = plan_schedule_parse (text, "text", &error);
  const guint first = schedule ? plan_schedule_section_node (schedule, PLAN_SECTION_STEP) + 1 : 0;
  ck_assert_msg (schedule != NULL, "%s", error ? error->message : "");
  g_autofree char *again = plan_schedule_print (schedule);
  ck_assert_str_eq (again, text);
  for (guint i = 0; i < G_N_ELEMENTS (factors); i++)
    {
      const PlanOp *op = plan_schedule_node (schedule, first + i);
      const PlanManner *manner = plan_schedule_manner (schedule, op);
      ck_assert_double_eq (manner->value[PLAN_MANNER_FACTOR], factors[i]);
      ck_assert_double_eq (manner->value[PLAN_MANNER_CAP], op->kind == PLAN_OP_SOFTCAP ? 30 : 0);
    }
  assert_refused (HEADER "section setup\nscale compute buf=a[1] count=8 cap=3\n",
                  "scale does not take 'cap=3'");
  assert_refused (HEADER "section setup\nscale compute buf=a[1] count=8 factor=x\n",
                  "factor: 'x' is not a decimal number");
}
END_TEST

/* A repeat goes from a buffer's end to its beginning. */
START_TEST (operands_move_along_a_buffer)
{
  const char *text = HEADER "section setup\n"
                            "section step\n"
                            "  alloc compute buf=a[1]\n"
                            "  repeat l from=2 count=3 step=-1 along=-3\n"
                            "    zero compute out=a[1]+6~l count=2\n"
                            "    zero compute out=a[1]~l count=0\n"
                            "  end\n"
                            "  free compute buf=a[1]\n"
                            "section teardown\n";
  const gint64 expected[] = { 0, 6, 0, 3, -3, 0, -6, 0 };
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanSchedule) schedule = plan_schedule_parse (text, "text", &error);
  PlanCursor cursor;
  const PlanOp *op;
  guint i = 0;
  ck_assert_msg (schedule != NULL, "%s", error ? error->message : "");
  g_autofree char *again = plan_schedule_print (schedule);
  ck_assert_str_eq (again, text);
  for (plan_cursor_start (&cursor, schedule, PLAN_SECTION_STEP); (op = plan_cursor_next (&cursor));)
    {
      ck_assert_int_eq (plan_cursor_index (&cursor, &op->refs[0]), 1);
      ck_assert_int_eq (plan_cursor_at (&cursor, &op->refs[0]), expected[i++]);
    }
  ck_assert_uint_eq (i, 8);
  assert_check_passes ("alloc compute buf=a[1]\n"
                       "repeat l from=0 count=2 step=1 along=4\n"
                       "zero compute out=a[1]~l count=4\nend\n"
                       "free compute buf=a[1]\n");
  assert_check_fails ("alloc compute buf=a[1]\n"
                      "repeat l from=0 count=2 step=1 along=5\n"
                      "zero compute out=a[1]~l count=4\nend\n"
                      "free compute buf=a[1]\n",
                      "a needs 4 elements from 5, and has 8");
  assert_check_fails ("alloc compute buf=a[1]\n"
                      "repeat l from=0 count=2 step=1 along=-1\n"
                      "zero compute out=a[1]~l count=4\nend\n"
                      "free compute buf=a[1]\n",
                      "a needs 4 elements");
}
END_TEST

START_TEST (bad_text_is_refused_by_line)
{
  assert_refused (HEADER "section setup\nzero compute out=a[1]~l count=1\n", "variable 'l'");
  assert_refused (HEADER "section setup\nrepeat l from=0 count=2 step=1 along=2\n"
                         "zero compute out=a[l]~l count=1\n",
                  "goes from buffer to buffer");
  assert_refused (HEADER "section setup\nrepeat l from=0 count=2 step=1 along=2\n"
                         "alloc compute buf=a[1]~l\n",
                  "about a whole buffer");
  assert_refused (HEADER "section setup\nrepeat l from=0 count=2 step=1 along=2\n"
                         "zero compute out=w count=1 record=e~l\n",
                  "'e~l'");
  assert_refused (HEADER "section setup\nrepeat l from=0 count=2 step=1 far=2\n", "along=INT");
  assert_refused ("", "there is no schedule");
  assert_refused ("schedule 1 rank=0 ranks=1\n", "text:1: a schedule begins with");
  assert_refused ("schedule 2 rank=1 ranks=1\n", "text:1: '1' is not an integer from 0 to 0");
  assert_refused (HEADER, "ends before its last section");
  assert_refused (HEADER "section step\n", "text:7: expected 'section setup'");
  assert_refused (HEADER "buffer w elements=1 dtype=fp32 category=loss\n", "two buffers 'w'");
  assert_refused (HEADER "buffer b elements=1 dtype=fp31 category=loss\n", "fp31");
  assert_refused (HEADER "buffer b elements=1 dtype=fp32 category=x\n", "no category 'x'");
  assert_refused (HEADER "buffer b[0] elements=1 dtype=fp32 category=loss\n", "from 1 to");
  assert_refused (HEADER "section setup\nboil compute\n", "text:8: there is no op 'boil'");
  assert_refused (HEADER "section setup\nzero lane out=w count=1\n", "needs a stream");
  assert_refused (HEADER "section setup\nzero compute count=1\n", "zero needs out=");
  assert_refused (HEADER "section setup\nzero compute out=w\n", "zero needs count=");
  assert_refused (HEADER "section setup\nzero compute out=v count=1\n", "no buffer 'v'");
  assert_refused (HEADER "section setup\nzero compute out=a[l] count=1\n", "variable 'l'");
  assert_refused (HEADER "section setup\nzero compute out=w count=99999999999999999999\n",
                  "is not an integer");
  assert_refused (HEADER "section setup\nend\n", "ends no repeat");
  assert_refused (HEADER "section setup\nall_reduce reduce buf=w count=1\n", "needs group=");
  assert_refused (HEADER "section setup\nall_reduce reduce group=b buf=w count=1\n",
                  "no group 'b'");
  assert_refused (HEADER "section setup\nzero compute group=all out=w count=1\n",
                  "takes no group=");
  assert_refused (HEADER "group all size=1 stride=1\n", "two groups 'all'");
  assert_refused (HEADER "group b size=2 stride=2\n", "must divide the 2 ranks");
  assert_refused (HEADER "group b size=3 stride=1\n", "from 1 to 2");
  assert_refused (HEADER "section setup\nzero compute out=a[1%0] count=1\n", "from 1 to 255");
  assert_refused (HEADER "section setup\nrepeat l from=0 count=1 step=1\nsection step\n",
                  "not ended");
}
END_TEST

START_TEST (ops_must_use_memory_that_is_taken)
{
  assert_check_passes ("alloc compute buf=w\nzero compute out=w count=16\nfree compute buf=w\n");
  assert_check_fails ("zero compute out=w count=16\n", "w is not taken");
  assert_check_fails ("alloc compute buf=w\n", "still taken after a step");
  assert_check_fails ("free compute buf=w\n", "w is not taken");
  assert_check_fails ("alloc compute buf=w\nalloc compute buf=w\n", "taken already");
  assert_check_fails ("alloc compute buf=w\nzero compute out=w+1 count=16\nfree compute buf=w\n",
                      "has 16");
  assert_check_fails ("repeat l from=0 count=4 step=1\nalloc compute buf=a[l]\n"
                      "free compute buf=a[l]\nend\n",
                      "l=3): buf lies outside a[3]");
  assert_check_fails (
      "alloc compute buf=w\nall_reduce compute group=all buf=w count=1\nfree compute buf=w\n",
      "read before anything wrote it");
}
END_TEST

/* Ops on two streams that use the same buffer must be ordered by events. The schedules that fail
 * lack one wait. */
START_TEST (streams_must_be_ordered)
{
  assert_check_passes ("alloc compute buf=w\n"
                       "zero compute out=w count=16 record=done\n"
                       "all_reduce reduce group=all buf=w count=16 wait=done record=e[0]\n"
                       "free compute buf=w wait=e[0]\n");
  assert_check_fails ("alloc compute buf=w\n"
                      "zero compute out=w count=16 record=done\n"
                      "all_reduce reduce group=all buf=w count=16\n"
                      "free compute buf=w\n",
                      "nothing orders this behind the last use of w");
  assert_check_fails ("alloc compute buf=w\n"
                      "zero compute out=w count=16 record=done\n"
                      "all_reduce reduce group=all buf=w count=16 wait=done\n"
                      "free compute buf=w\n",
                      "w may still be in use on another stream");
  assert_check_fails ("zero compute out=w count=16 wait=e[1]\n", "which nothing records before");
  /* taking memory is a use of it, too: its last owner must be done with it */
  assert_check_fails ("alloc compute buf=a[0]\nzero compute out=a[0] count=8\n"
                      "free compute buf=a[0]\nalloc compute buf=w\n"
                      "zero gather out=w count=16 record=done\n"
                      "free compute buf=w wait=done\n",
                      "nothing orders this behind the last use of w");
  /* the host's wait orders everything issued later */
  assert_check_passes ("alloc compute buf=w\n"
                       "zero compute out=w count=16 record=done\n"
                       "sync host wait=done\n"
                       "zero gather out=w count=16 record=e[0]\n"
                       "free compute buf=w wait=e[0]\n");
}
END_TEST

#define PIECES \
  "schedule 2 rank=0 ranks=2\n" \
  "group all size=2 stride=1 registered=4096\n" \
  "buffer w elements=16 dtype=bf16 category=gathered pieces=2\n" \
  "event done\n" \
  "event e\n" \
  "section setup\n"

/* Pieces of a buffer may be used side by side, and each is ordered by itself. */
START_TEST (pieces_are_used_side_by_side)
{
  static const char *const beside
      = PIECES "section step\n"
               "  alloc compute buf=w\n"
               "  zero compute out=w count=8 record=done\n"
               "  all_reduce reduce group=all buf=w count=8 wait=done record=e\n"
               "  zero compute out=w+8 count=8\n"
               "  wait compute wait=e\n"
               "  free compute buf=w\n"
               "section teardown\n";
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanSchedule) schedule = plan_schedule_parse (beside, "text", &error);
  ck_assert_msg (schedule && plan_schedule_check (schedule, &error), "%s", error->message);
  g_autofree char *text = plan_schedule_print (schedule);
  ck_assert_str_eq (text, beside);
  ck_assert_uint_eq (plan_schedule_group (schedule, 0)->registered_bytes, 4096);

  g_auto (GStrv) halves = g_strsplit (beside, "w+8", 2);
  g_autofree char *across = g_strjoinv ("w+7", halves);
  g_autoptr (PlanSchedule) bad = plan_schedule_parse (across, "text", &error);
  ck_assert_msg (!plan_schedule_check (bad, &error), "check passed: %s", across);
  ck_assert_msg (strstr (error->message, "behind the last use of w"), "%s", error->message);
  assert_refused (HEADER "buffer b elements=9 dtype=fp32 category=loss pieces=2\n",
                  "pieces must divide");
  assert_refused (HEADER "group g size=1 stride=1 registered=0\n", "from 1 to");
  assert_refused ("schedule 2 rank=0 ranks=2\ngroup g size=1 stride=1 held=1\n", "registered=");
}
END_TEST

START_TEST (the_cursor_names_units)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanSchedule) schedule = step ("repeat l from=2 count=2 step=-1\n"
                                            "alloc compute buf=a[l]\n"
                                            "free compute buf=a[l]\n"
                                            "end\n",
                                            &error);
  PlanCursor cursor;
  const PlanOp *op;
  gint64 expected[] = { 2, 2, 1, 1 };
  guint i = 0;
  for (plan_cursor_start (&cursor, schedule, PLAN_SECTION_STEP); (op = plan_cursor_next (&cursor));)
    ck_assert_int_eq (plan_cursor_unit (&cursor, op), expected[i++]);
  ck_assert_uint_eq (i, 4);
}
END_TEST

/* A loop over chunks of two units stands at the first unit of each. */
START_TEST (repeats_take_long_steps)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanSchedule) schedule = step ("repeat l from=2 count=2 step=-2\n"
                                            "alloc compute buf=a[l+1]\n"
                                            "free compute buf=a[l+1]\n"
                                            "end\n",
                                            &error);
  PlanCursor cursor;
  const PlanOp *op;
  const gint64 expected[] = { 3, 3, 1, 1 };
  guint i = 0;
  ck_assert_msg (schedule != NULL, "%s", error ? error->message : "");
  for (plan_cursor_start (&cursor, schedule, PLAN_SECTION_STEP); (op = plan_cursor_next (&cursor));)
    ck_assert_int_eq (plan_cursor_unit (&cursor, op), expected[i++]);
  ck_assert_uint_eq (i, 4);
}
END_TEST

START_TEST (ops_touch_what_their_dims_say)
{
  PlanOp op;
  plan_op_init (&op, PLAN_OP_GEMM, PLAN_STREAM_COMPUTE);
  op.dims[PLAN_DIM_GEMM_m] = 2, op.dims[PLAN_DIM_GEMM_n] = 3, op.dims[PLAN_DIM_GEMM_k] = 5;
  ck_assert_uint_eq (plan_op_ref_elements (&op, PLAN_REF_GEMM_out, 1), 6);
  ck_assert_uint_eq (plan_op_ref_elements (&op, PLAN_REF_GEMM_a, 1), 10);
  ck_assert_uint_eq (plan_op_ref_elements (&op, PLAN_REF_GEMM_b, 1), 15);
  ck_assert_uint_eq (plan_op_ref_elements (&op, PLAN_REF_GEMM_work, 1), 0);
  ck_assert_uint_eq (plan_scratch_elements (op.kind, op.dims, PLAN_DTYPE_BF16), 31);
  ck_assert_uint_eq (plan_scratch_elements (op.kind, op.dims, PLAN_DTYPE_FP32), 0);
  ck_assert_double_eq (plan_op_flops (&op), 60);
  plan_op_init (&op, PLAN_OP_ALL_GATHER, PLAN_STREAM_GATHER);
  op.dims[PLAN_DIM_ALL_GATHER_count] = 7;
  ck_assert_uint_eq (plan_op_ref_elements (&op, PLAN_REF_ALL_GATHER_out, 4), 28);
  ck_assert_uint_eq (plan_op_ref_elements (&op, PLAN_REF_ALL_GATHER_in, 4), 7);
  plan_op_init (&op, PLAN_OP_ATTENTION, PLAN_STREAM_COMPUTE);
  op.dims[PLAN_DIM_ATTENTION_batch] = 1;
  op.dims[PLAN_DIM_ATTENTION_seq] = op.dims[PLAN_DIM_ATTENTION_keys] = 8192;
  op.dims[PLAN_DIM_ATTENTION_heads] = 64, op.dims[PLAN_DIM_ATTENTION_kv_heads] = 8;
  op.dims[PLAN_DIM_ATTENTION_head_dim] = 128;
  ck_assert_double_eq (plan_op_flops (&op), 2.0 * 8192 * 8192 * 64 * 128);
}
END_TEST

/* dqkv is the gradient of queries alone where the keys are another rank's (kv); a norm's sums over
 * rows have one entry for each column and gradient. */
START_TEST (sizes_follow_from_operands_and_kinds)
{
  PlanOp op;
  plan_op_init (&op, PLAN_OP_ATTENTION_BWD, PLAN_STREAM_COMPUTE);
  op.dims[PLAN_DIM_ATTENTION_BWD_batch] = 1;
  op.dims[PLAN_DIM_ATTENTION_BWD_seq] = op.dims[PLAN_DIM_ATTENTION_BWD_keys] = 3;
  op.dims[PLAN_DIM_ATTENTION_BWD_heads] = 4, op.dims[PLAN_DIM_ATTENTION_BWD_kv_heads] = 2;
  op.dims[PLAN_DIM_ATTENTION_BWD_head_dim] = 5;
  ck_assert_uint_eq (plan_op_ref_elements (&op, PLAN_REF_ATTENTION_BWD_dqkv, 1), 3 * 8 * 5);
  op.refs[PLAN_REF_ATTENTION_BWD_kv].array = 0;
  ck_assert_uint_eq (plan_op_ref_elements (&op, PLAN_REF_ATTENTION_BWD_dqkv, 1), 3 * 4 * 5);
  ck_assert_uint_eq (plan_scratch_elements (op.kind, op.dims, PLAN_DTYPE_BF16),
                     2 * 3 * 3 + 8 * 3 * 5);
  ck_assert_uint_eq (plan_scratch_norm_columns (op.kind, op.dims), 0);
  plan_op_init (&op, PLAN_OP_LAYERNORM_BWD, PLAN_STREAM_COMPUTE);
  op.dims[PLAN_DIM_LAYERNORM_BWD_rows] = 2, op.dims[PLAN_DIM_LAYERNORM_BWD_cols] = 7;
  ck_assert_uint_eq (plan_scratch_norm_columns (op.kind, op.dims), 14);
  ck_assert_uint_eq (plan_scratch_elements (op.kind, op.dims, PLAN_DTYPE_BF16), 0);
}
END_TEST

/* With all dims 1 every operand of data has at least one element; operands for memory ops, scratch
 * and INIT have none. */
START_TEST (every_operand_has_a_size)
{
  for (PlanOpKind kind = 0; kind < PLAN_N_OPS; kind++)
    {
      PlanOp op;
      plan_op_init (&op, kind, PLAN_STREAM_COMPUTE);
      for (guint d = 0; d < plan_op_n_dims (kind); d++)
        op.dims[d] = 1;
      for (guint i = 0; i < plan_op_n_refs (kind); i++)
        {
          const char access = plan_op_ref_access (kind, i);
          const gboolean is_data = access != 'm' && access != 's' && kind != PLAN_OP_INIT;
          ck_assert_msg ((plan_op_ref_elements (&op, i, 1) > 0) == is_data, "%s %s",
                         plan_op_name (kind), plan_op_ref_name (kind, i));
        }
    }
}
END_TEST

/* The steps of a pipeline's three stages, in words (see stage_of), and the message of the check;
 * NULL: it passes. */
static const struct
{
  const char *steps[3], *message;
} pipelines[] = {
  { { "SEND1 SUM", "TAKE0 SEND2 SUM", "TAKE1 SUM" }, NULL },
  { { "BOTH1", "BOTH0 SEND2 TAKE2", "TAKE1 SEND1" }, NULL },
  { { "SEND1", "", "" }, "stage 0, op 0 (trade), trades with stage 1, whose step is over" },
  { { "", "SEND2", "SEND1" }, "stage 1, op 0 (trade), does not take what is sent by" },
  { { "SEND1", "LESS0", "" }, "trades another number of elements than stage 1, at op 0 (trade)" },
  { { "SEND1", "WIDE0", "" }, "trades elements of another format than stage 1, at op 0 (trade)" },
  { { "SEND2 SEND1", "TAKE0 TAKE2", "SEND1 TAKE0" }, "waits for ever for stage" },
  { { "SUM SEND1", "TAKE0 SUM", "SUM" }, "waits for ever for stage 1, at op 0 (trade)" },
  { { "", "SUM", "" }, "waits for stage 0, whose step is over" },
  { { "SEND0", "", "" }, "trades with stage 0" },
};

/* A stage's schedule of words. SUM is an all-reduce of all stages; the others trade with the stage
 * that their digit names: SEND, TAKE, BOTH (send and take), LESS (take half as many elements), WIDE
 * (take fp32). */
static PlanSchedule *
stage_of (const char *words, int rank)
{
  g_auto (GStrv) list = g_strsplit (words, " ", -1);
  g_autoptr (GError) error = NULL;
  g_autoptr (GString) text = g_string_new (NULL);
  g_string_printf (text,
                   "schedule 2 rank=%d ranks=3\ngroup all size=3 stride=1\n"
                   "buffer x elements=8 dtype=bf16 category=activations\n"
                   "buffer w elements=8 dtype=fp32 category=activations\n"
                   "section setup\nsection step\n",
                   rank);
  for (char **w = list; *w && **w; w++)
    {
      const int peer = (*w)[strlen (*w) - 1] - '0';
      if (g_str_equal (*w, "SUM"))
        g_string_append (text, "  all_reduce reduce group=all buf=x count=8\n");
      else
        g_string_append_printf (text, "  trade context group=all%s%s count=%d peer=%d gradient=0\n",
                                **w == 'W'            ? " out=w"
                                : strchr ("TLB", **w) ? " out=x"
                                                      : "",
                                **w == 'S' || **w == 'B' ? " in=x" : "", **w == 'L' ? 4 : 8, peer);
    }
  g_string_append (text, "section teardown\n");
  PlanSchedule *schedule = plan_schedule_parse (text->str, "text", &error);
  ck_assert_msg (schedule != NULL, "%s in\n%s", error ? error->message : "", text->str);
  return schedule;
}

START_TEST (stages_meet_or_are_named)
{
  g_autoptr (GError) error = NULL;
  PlanSchedule *stages[3];
  for (int i = 0; i < 3; i++)
    stages[i] = stage_of (pipelines[_i].steps[i], i);
  const gboolean is_sound
      = plan_schedule_check_stages ((const PlanSchedule *const *)stages, 3, &error);
  ck_assert_int_eq (is_sound, pipelines[_i].message == NULL);
  ck_assert_msg (is_sound || strstr (error->message, pipelines[_i].message), "%s",
                 is_sound ? "" : error->message);
  for (int i = 0; i < 3; i++)
    plan_schedule_free (stages[i]);
}
END_TEST

/* What follows a gather of 128 bytes, and in how many nodes a collective comes that is issued
 * together with it; 0: none. */
static const struct
{
  const char *next;
  guint distance;
} followed[] = {
  { "all_gather gather group=all out=small in=small count=4 wait=e[0]\n", 1 },
  { "alloc compute buf=a[0]\nwait compute record=done\n"
    "all_gather gather group=all out=small in=small count=4 wait=e[0] record=e[1]\n",
    3 },
  { "all_gather gather group=all out=w in=w count=4 wait=e[0]\n", 1 },
  { "all_gather gather group=all out=w in=w count=5 wait=e[0]\n", 0 },
  { "all_gather gather group=all out=small in=small count=5 wait=e[0]\n", 0 },
  { "all_gather gather group=all out=small in=small count=4 wait=e[1]\n", 0 },
  { "all_gather gather group=all out=small in=small count=4 wait=done\n", 0 },
  { "all_gather gather group=all out=small in=small count=4\n", 0 },
  { "all_gather gather group=more out=small in=small count=4 wait=e[0]\n", 0 },
  { "all_gather reduce group=all out=small in=small count=4 wait=e[0]\n", 0 },
  { "reduce_scatter gather group=all out=small in=small count=4 wait=e[0]\n", 0 },
  { "wait compute wait=e[0] record=done\n"
    "all_gather gather group=all out=small in=small count=4 wait=e[0]\n",
    0 },
  { "zero compute out=a[0] count=8\n"
    "all_gather gather group=all out=small in=small count=4 wait=e[0]\n",
    0 },
  { "free compute buf=a[0]\n"
    "all_gather gather group=all out=small in=small count=4 wait=e[0]\n",
    0 },
  { "repeat l from=0 count=2 step=1\n"
    "all_gather gather group=all out=small in=small count=4 wait=e[0]\nend\n",
    0 },
  { "section teardown\n"
    "all_gather gather group=all out=small in=small count=4 wait=e[0]\n",
    0 },
};

START_TEST (small_collectives_join_large_ones)
{
  static const char *const kinds[] = { "all_gather gather", "reduce_scatter gather" };
  for (guint k = 0; k < G_N_ELEMENTS (kinds); k++)
    {
      const char *next = followed[_i].next;
      g_autofree char *text
          = g_strconcat (HEADER "buffer large elements=64 dtype=bf16 category=gathered\n"
                                "buffer small elements=8 dtype=bf16 category=gathered\n"
                                "group more size=1 stride=1\n"
                                "section setup\nsection step\n",
                         kinds[k], " group=all out=large in=large count=64 wait=e[0]\n", next,
                         strstr (next, "section") ? "" : "section teardown\n", NULL);
      g_auto (GStrv) parts = g_strsplit (text, "all_gather gather", -1);
      g_autofree char *all = g_strjoinv (kinds[k], parts);
      const gboolean is_other = strstr (next, "reduce_scatter gather") && k == 1;
      g_autoptr (GError) error = NULL;
      g_autoptr (PlanSchedule) schedule = plan_schedule_parse (all, "text", &error);
      ck_assert_msg (schedule != NULL, "%s in\n%s", error ? error->message : "", all);
      const guint first = plan_schedule_section_node (schedule, PLAN_SECTION_STEP);
      const guint found = plan_joined_next (schedule, first);
      ck_assert_msg (is_other
                         || found == (followed[_i].distance ? first + followed[_i].distance : 0),
                     "%u in\n%s", found, all);
      for (guint node = first + 1; node < plan_schedule_n_nodes (schedule); node++)
        ck_assert_uint_eq (plan_joined_next (schedule, node), 0);
    }
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("schedule");
  TCase *tcase = tcase_create ("schedule");
  tcase_add_test (tcase, text_reads_back);
  tcase_add_test (tcase, operands_move_along_a_buffer);
  tcase_add_test (tcase, bad_text_is_refused_by_line);
  tcase_add_test (tcase, ops_say_how_they_work);
  tcase_add_test (tcase, ops_must_use_memory_that_is_taken);
  tcase_add_test (tcase, streams_must_be_ordered);
  tcase_add_test (tcase, pieces_are_used_side_by_side);
  tcase_add_test (tcase, the_cursor_names_units);
  tcase_add_test (tcase, repeats_take_long_steps);
  tcase_add_test (tcase, ops_touch_what_their_dims_say);
  tcase_add_test (tcase, sizes_follow_from_operands_and_kinds);
  tcase_add_test (tcase, every_operand_has_a_size);
  tcase_add_loop_test (tcase, stages_meet_or_are_named, 0, G_N_ELEMENTS (pipelines));
  tcase_add_loop_test (tcase, small_collectives_join_large_ones, 0, G_N_ELEMENTS (followed));
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
