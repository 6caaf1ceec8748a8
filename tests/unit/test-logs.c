/* SPDX-License-Identifier: Apache-2.0 */
/* What is read from logs of training runs and of nccl-tests, whole and in pieces. */
#include "config.h"

#include "planner/base/lines.h"
#include "planner/runs/nccl-log.h"
#include "planner/runs/train-log.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static void
note_line (guint64 line, char *text, gpointer user_data)
{
  g_string_append_printf (user_data, "%" G_GUINT64_FORMAT ":%s;", line, text);
}

static char *
lines_of (const char *text, gsize length, gsize piece)
{
  GString *out = g_string_new (NULL);
  g_autoptr (PlanLines) lines = plan_lines_new (note_line, out);
  for (gsize at = 0; at < length; at += piece)
    plan_lines_feed (lines, text + at, MIN (piece, length - at));
  plan_lines_end (lines);
  return g_string_free (out, FALSE);
}

START_TEST (lines_do_not_depend_on_pieces)
{
  static const struct
  {
    const char *text, *expected;
  } rows[] = {
    { "", "" },
    { "a\nb\n", "1:a;2:b;" },
    { "a\r\nb\r\n\r\nc\n", "1:a;2:b;4:c;" },
    { "10 %\r20 %\rdone\nb\n", "1:10 %;1:20 %;1:done;2:b;" },
    { "\033[1;32mgreen\033[0m x\n", "1:green x;" },
    { "a\nb cut of", "1:a;2:b cut ;" },
    { "a\nb", "1:a;" },
  };
  const gsize length = strlen (rows[_i].text);
  for (gsize piece = 1; piece <= length + 1; piece++)
    {
      g_autofree char *got = lines_of (rows[_i].text, length, piece);
      ck_assert_str_eq (got, rows[_i].expected);
    }
}
END_TEST

START_TEST (long_lines_are_cut)
{
  g_autoptr (GString) text = g_string_new (NULL);
  for (guint i = 0; i < PLAN_LINES_MAX; i++)
    g_string_append_c (text, 'x');
  g_string_append (text, "yyy\nb\n");
  g_autofree char *got = lines_of (text->str, text->len, 1000);
  ck_assert_ptr_null (strchr (got, 'y'));
  ck_assert (g_str_has_suffix (got, ";2:b;"));
  g_autofree char *nul = lines_of ("a\0b\n", 4, 4);
  ck_assert_str_eq (nul, "1:ab;");
}
END_TEST

static const GArray *
train (PlanTrainLog *log, const char *text)
{
  g_auto (GStrv) lines = g_strsplit (text, "\n", -1);
  for (guint i = 0; lines[i]; i++)
    plan_train_log_take (log, i + 1, lines[i]);
  return plan_train_log_end (log);
}

#define STEP(ms) \
  "iteration 1/ 9 | elapsed time per iteration (ms): " ms " | global batch size: 64 | x\n"

/* The first two of five steps are left out; of the others, 11, 12 and 14, the median is 12. */
START_TEST (steps_of_megatron)
{
  g_autoptr (PlanTrainLog) log = plan_train_log_new ();
  const GArray *runs = train (
      log,
      "[Rank 0] (after 2 iterations) memory (MB) | allocated: 100.5 | max allocated: 200 | "
      "reserved: 250.0 | max reserved: 300.0 [Rank 1] (after 2 iterations) memory (MB) | "
      "allocated: 101.5 | max allocated: 190 | reserved: 1 | max reserved: 310.0\n" STEP ("99.0")
          STEP ("98.0") STEP ("14.0") STEP ("11.0") STEP ("12.0"));
  ck_assert_uint_eq (runs->len, 1);
  const PlanTrainRun *run = &g_array_index (runs, PlanTrainRun, 0);
  ck_assert_int_eq (run->kind, PLAN_LOG_MEGATRON);
  ck_assert_uint_eq (run->line, 1);
  ck_assert_uint_eq (run->n_steps, 5);
  ck_assert_double_eq (run->step_ms, 12);
  ck_assert_double_eq_tol (run->spread_pct, 50 * (13.6 - 11.2) / 12, 1e-9);
  ck_assert_int_eq (run->gbs, 64);
  ck_assert_double_eq (run->allocated_mib, 101.5);
  ck_assert_double_eq (run->max_allocated_mib, 200);
  ck_assert_double_eq (run->reserved_mib, 310);
  ck_assert (!run->ran_out && !run->arguments);
}
END_TEST

START_TEST (steps_of_torchtitan)
{
#define TITAN(step, memory, tps) \
  "[rank0]: - INFO - step: " step "  loss: 3.2  memory: " memory "GiB(9%)  tps: " tps \
  "  tflops: 333.5  mfu: 33%\n"
  g_autoptr (PlanTrainLog) log = plan_train_log_new ();
  const GArray *runs = train (log, TITAN ("1", "10", "200") TITAN ("1", "12", "300")
                                       TITAN ("10", "11", "5,000") TITAN ("20", "11", "5,200"));
  ck_assert_uint_eq (runs->len, 1);
  const PlanTrainRun *run = &g_array_index (runs, PlanTrainRun, 0);
  ck_assert_int_eq (run->kind, PLAN_LOG_TORCHTITAN);
  ck_assert_uint_eq (run->n_steps, 3);
  ck_assert_double_eq (run->tokens_per_s_per_gpu, 5100);
  ck_assert_double_eq (run->reserved_mib, 12 * 1024);
  ck_assert_double_eq (run->tflops_per_gpu, 333.5);
}
END_TEST

/* A second list of arguments begins a second run; lines of other ranks may stand between them. */
START_TEST (runs_are_told_apart)
{
  g_autoptr (PlanTrainLog) log = plan_train_log_new ();
  const GArray *runs = train (
      log, "---- arguments ----\n num_layers ..... 4\n---- end of arguments ----\n"
           " > padded vocab (size: 9) with 7 dummy tokens (new size: 16)\n" STEP (
               "10.0") "---- arguments ----\n num_layers ..... 8\n" STEP ("20.0") "torch."
                                                                                  "OutOfMemoryError"
                                                                                  ": CUDA out of "
                                                                                  "memory.\n");
  ck_assert_uint_eq (runs->len, 2);
  const PlanTrainRun *first = &g_array_index (runs, PlanTrainRun, 0), *second = first + 1;
  ck_assert_ptr_nonnull (strstr (first->arguments, "num_layers ..... 4"));
  ck_assert_ptr_nonnull (strstr (first->padded_vocab, "new size: 16"));
  ck_assert_double_eq (first->step_ms, 10);
  ck_assert (!first->ran_out);
  ck_assert_ptr_nonnull (strstr (second->arguments, "num_layers ..... 8"));
  ck_assert_double_eq (second->step_ms, 20);
  ck_assert_uint_eq (second->line, 6);
  ck_assert (second->ran_out);
}
END_TEST

START_TEST (what_measures_nothing_is_no_run)
{
  static const char *const texts[]
      = { "",
          "---- arguments ----\n num_layers ..... 4\n---- end of arguments ----\n",
          "iteration 1/ 9 | elapsed time per iteration (ms): nan | x\n",
          "iteration 1/ 9 | elapsed time per iteration (ms): | x\n",
          "iteration 1/ 9 | elapsed time per iteration (ms): 1e999 | x\n",
          "step: tps: x\n" };
  g_autoptr (PlanTrainLog) log = plan_train_log_new ();
  ck_assert_uint_eq (train (log, texts[_i])->len, 0);
}
END_TEST

static const GArray *
nccl (PlanNcclLog *log, const char *text)
{
  g_auto (GStrv) lines = g_strsplit (text, "\n", -1);
  for (guint i = 0; lines[i]; i++)
    plan_nccl_log_take (log, i + 1, lines[i]);
  return plan_nccl_log_times (log);
}

#define RANK(n, host) "#  Rank  " n " Group  0 Pid 1 on  " host " device  0 [0x0f] NVIDIA X\n"
#define FOUR_RANKS RANK ("0", "a") RANK ("1", "a") RANK ("2", "b") RANK ("3", "b")
#define THREADS "# nThread 1 nGpus 1 warmup iters: 5 iters: 20 agg iters: 1\n"

/* Which collective a line measures, told by its name and by bandwidths. */
START_TEST (collectives_are_known)
{
  static const struct
  {
    const char *file, *text;
    PlanOpKind op;
    guint64 count;
  } rows[] = {
    { NULL,
      "# Collective test starting: all_gather_perf\n" THREADS FOUR_RANKS
      "1024 64 float none -1 9 1 0.75 0 9 1 0.75 0\n",
      PLAN_OP_ALL_GATHER, 64 },
    { NULL,
      "$ ./build/alltoall_perf -b 8\n" THREADS FOUR_RANKS
      "1024 64 float none -1 9 1 0.75 0 9 1 0.75 0\n",
      PLAN_OP_ALL_TO_ALL, 64 },
    { "reduce_scatter.log", THREADS FOUR_RANKS "1024 64 half sum -1 9 1 0.75 0 9 1 0.75 0\n",
      PLAN_OP_REDUCE_SCATTER, 128 },
    { NULL, THREADS FOUR_RANKS "1024 256 float sum -1 9 1 1.5 0 9 1 1.5 0\n", PLAN_OP_ALL_REDUCE,
      256 },
    { NULL, THREADS FOUR_RANKS "1024 64 float sum -1 9 1 0.75 0 9 1 0.75 0\n",
      PLAN_OP_REDUCE_SCATTER, 64 },
    { NULL, THREADS FOUR_RANKS "1024 64 float none -1 9 1 0.75 0 9 1 0.75 0\n", PLAN_N_OPS, 64 },
    { NULL,
      "# Collective test starting: broadcast_perf\n" THREADS FOUR_RANKS
      "1024 64 float none 0 9 1 1 0 9 1 1 0\n",
      PLAN_N_OPS, 64 },
    { NULL, THREADS FOUR_RANKS "[1,0]<stdout>: 1024 256 float sum 9 1 1.5 0 9 1 1.5 N/A\n",
      PLAN_OP_ALL_REDUCE, 256 },
    { NULL, "# reduce_scatter_perf\n" THREADS FOUR_RANKS "1000 2 float sum -1 9 1 1 0 9 1 1 0\n",
      PLAN_OP_REDUCE_SCATTER, 0 },
  };
  g_autoptr (PlanNcclLog) log = plan_nccl_log_new (rows[_i].file);
  const GArray *times = nccl (log, rows[_i].text);
  ck_assert_uint_eq (times->len, 1);
  const PlanNcclTime *time = &g_array_index (times, PlanNcclTime, 0);
  ck_assert_int_eq (time->op, rows[_i].op);
  ck_assert_int_eq (time->ranks, 4);
  ck_assert_int_eq (time->nodes, 2);
  ck_assert_uint_eq (time->iterations, 20);
  ck_assert_str_eq (time->device, "NVIDIA X");
  ck_assert_str_eq (time->host, "a");
  ck_assert_int_eq (time->time_ns[0], 9000);
  ck_assert_int_eq (time->time_ns[1], 9000);
  ck_assert_uint_eq (plan_nccl_time_count (time), rows[_i].count);
}
END_TEST

START_TEST (a_test_forgets_the_one_before)
{
  g_autoptr (PlanNcclLog) log = plan_nccl_log_new (NULL);
  const GArray *times
      = nccl (log, "# all_gather_perf\n" THREADS FOUR_RANKS
                   "1024 64 float none -1 9 1 0.75 0 9 1 0.75 0\n" THREADS RANK ("0", "c")
                       RANK ("1", "c") "64 16 float sum -1 9.25 1 1 0 N/A N/A N/A N/A\n");
  ck_assert_uint_eq (times->len, 2);
  const PlanNcclTime *time = &g_array_index (times, PlanNcclTime, 1);
  ck_assert_int_eq (time->op, PLAN_N_OPS);
  ck_assert_int_eq (time->ranks, 2);
  ck_assert_int_eq (time->nodes, 1);
  ck_assert_str_eq (time->host, "c");
  ck_assert_int_eq (time->time_ns[0], 9250);
  ck_assert_int_eq (time->time_ns[1], 0);
}
END_TEST

START_TEST (other_lines_are_no_times)
{
  static const char *const texts[]
      = { "1024 64 quad sum -1 9 1 1 0 9 1 1 0\n",  "1024 64 float\n",
          "1024 64 float sum -1 9 1 1 0 9 1 1\n",   "0 0 float sum -1 9 1 1 0 9 1 1 0\n",
          "1024 64 float sum -1 0 1 1 0 0 1 1 0\n", "x 64 float sum -1 9 1 1 0 9 1 1 0\n" };
  g_autoptr (PlanNcclLog) log = plan_nccl_log_new (NULL);
  const GArray *times = nccl (log, texts[_i]);
  ck_assert_uint_eq (times->len, 0);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("logs");
  TCase *tcase = tcase_create ("logs");
  tcase_add_loop_test (tcase, lines_do_not_depend_on_pieces, 0, 7);
  tcase_add_test (tcase, long_lines_are_cut);
  tcase_add_test (tcase, steps_of_megatron);
  tcase_add_test (tcase, steps_of_torchtitan);
  tcase_add_test (tcase, runs_are_told_apart);
  tcase_add_loop_test (tcase, what_measures_nothing_is_no_run, 0, 6);
  tcase_add_loop_test (tcase, collectives_are_known, 0, 9);
  tcase_add_test (tcase, a_test_forgets_the_one_before);
  tcase_add_loop_test (tcase, other_lines_are_no_times, 0, 6);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
