/* SPDX-License-Identifier: Apache-2.0 */
/* Figures of several plans, and the places of labels in all of them. */
#include "config.h"

#include "planner/base/error.h"
#include "planner/base/units.h"
#include "plots/labels.h"
#include "plots/plot.h"

#include <check.h>
#include <glib/gstdio.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static char *out; /* a folder for pictures */

static const PlotScalingPoint scaling[] = {
  { "optim", 8, 0, FALSE },        { "optim", 16, 1000, TRUE },    { "optim", 32, 900, TRUE },
  { "no_shard", 8, 0, FALSE },     { "no_shard", 16, 0, FALSE },   { "no_shard", 32, 0, FALSE },
  { "zero \"3\"", 32, 400, TRUE }, { "zero \"3\"", 8, 800, TRUE }, { "zero \"3\"", 16, 0, FALSE },
};

static const PlotTradeoffPoint tradeoff[] = {
  { "recompute=none", "mbs=1", 60 * PLAN_GIB, 1000000000 },
  { "recompute=full", "mbs=1", 30 * PLAN_GIB, 1300000000 },
  { "recompute=none", "mbs=2", 90 * PLAN_GIB, 900000000 },
  { "recompute=full", "mbs=2", 40 * PLAN_GIB, 1200000000 },
};

static const PlotAccuracyPoint accuracy[] = {
  { "fsdp2", 100, 100 },
  { "fsdp2", 94, 100 },
  { "megatron", 330, 300 },
  { "fsdp2", 1.5, 1 },
};

static PlanTrace *some_trace, *other_trace;

static PlanTrace *
make_trace (gint64 compute_ns, gint64 gather_ns, guint64 activations)
{
  PlanTrace *trace = plan_trace_new ("sim");
  trace->compute_ns = compute_ns;
  trace->exposed_gather_ns = gather_ns;
  trace->step_ns = compute_ns + gather_ns;
  trace->memory.by_category[PLAN_CATEGORY_OPTIMIZER] = 2 * PLAN_GIB;
  trace->memory.by_category[PLAN_CATEGORY_ACTIVATIONS] = activations;
  trace->memory.device = 2 * PLAN_GIB + activations + PLAN_GIB / 2;
  return trace;
}

static void
setup (void)
{
  some_trace = make_trace (29000000, 11000000, 4 * PLAN_GIB);
  other_trace = make_trace (32000000, 0, PLAN_GIB);
}

static void
teardown (void)
{
  g_clear_pointer (&some_trace, plan_trace_free);
  g_clear_pointer (&other_trace, plan_trace_free);
}

static gboolean
draw_breakdown (guint n, guint64 capacity_bytes, const char *path, char **out_text, GError **error)
{
  PlotBreakdown plans[10];
  for (guint i = 0; i < G_N_ELEMENTS (plans); i++)
    plans[i] = (PlotBreakdown){ i % 2 ? "b 'plan' of many words that break into lines" : "a",
                                i % 2 ? other_trace : some_trace };
  return plot_breakdown (plans, n, capacity_bytes, "a title", path, out_text, error);
}

/* The second run has a step without a finite loss, and is never evaluated. */
static const PlotLossStep loss_steps[][3] = { { { 1, 5.5, NAN }, { 2, 5, 4.75 }, { 3, 4.5, NAN } },
                                              { { 1, 5, NAN }, { 2, NAN, NAN }, { 3, 4, NAN } } };
static const PlotLossRun losses[]
    = { { "a log", loss_steps[0], 3 }, { "run 7", loss_steps[1], 3 } };

#define N_FIGURES 5

static gboolean
draw (guint figure, const char *path, char **out_text, GError **error)
{
  switch (figure)
    {
    case 0:
      return plot_scaling (scaling, G_N_ELEMENTS (scaling), "a title", path, out_text, error);
    case 1:
      return draw_breakdown (2, 5 * PLAN_GIB, path, out_text, error);
    case 2:
      return plot_tradeoff (tradeoff, G_N_ELEMENTS (tradeoff), 80 * PLAN_GIB, "a title", path,
                            out_text, error);
    case 3:
      return plot_loss (losses, G_N_ELEMENTS (losses), "a title", path, out_text, error);
    default:
      return plot_accuracy (accuracy, G_N_ELEMENTS (accuracy), "step time", "ms", "a title", path,
                            out_text, error);
    }
}

static const char scaling_data[]
    = "# gpus tokens_per_s tokens_per_s_per_gpu efficiency_pct tokens_per_s_if_linear\n"
      "# line1\n"
      "16 16000.0 1000.00 100.00 16000.0\n"
      "32 28800.0 900.00 90.00 32000.0\n"
      "\n"
      "\n"
      "# gpus tokens_per_s tokens_per_s_per_gpu efficiency_pct tokens_per_s_if_linear\n"
      "# line2\n"
      "8 6400.0 800.00 100.00 6400.0\n"
      "32 12800.0 400.00 50.00 25600.0\n";

static const char breakdown_data[] = "# from_ms to_ms row\n"
                                     "# compute\n"
                                     "0.0000 29.0000 1\n"
                                     "0.0000 32.0000 0\n"
                                     "\n"
                                     "\n"
                                     "# from_ms to_ms row\n"
                                     "# exposed gather\n"
                                     "29.0000 40.0000 1\n"
                                     "32.0000 32.0000 0\n"
                                     "\n"
                                     "\n"
                                     "# from_GiB to_GiB row\n"
                                     "# optimizer\n"
                                     "0.0000 2.0000 1\n"
                                     "0.0000 2.0000 0\n"
                                     "\n"
                                     "\n"
                                     "# from_GiB to_GiB row\n"
                                     "# activations\n"
                                     "2.0000 6.0000 1\n"
                                     "2.0000 3.0000 0\n"
                                     "\n"
                                     "\n"
                                     "# from_GiB to_GiB row\n"
                                     "# beside tensors\n"
                                     "6.0000 6.5000 1\n"
                                     "3.0000 3.5000 0\n"
                                     "\n"
                                     "\n"
                                     "# ms GiB row plan\n"
                                     "# totals\n"
                                     "40.00 6.50 1 \"a\"\n"
                                     "32.00 3.50 0 \"b\"\n";

static const char tradeoff_data[] = "# step_ms memory_GiB label\n"
                                    "# line1\n"
                                    "1000.0000 60.0000 \"mbs=1\"\n"
                                    "900.0000 90.0000 \"mbs=2\"\n"
                                    "\n"
                                    "\n"
                                    "# step_ms memory_GiB label\n"
                                    "# line2\n"
                                    "1300.0000 30.0000 \"mbs=1\"\n"
                                    "1200.0000 40.0000 \"mbs=2\"\n";

static const char accuracy_data[] = "# measured predicted\n"
                                    "# group1\n"
                                    "100.000000 100.000000\n"
                                    "100.000000 94.000000\n"
                                    "1.000000 1.500000\n"
                                    "\n"
                                    "\n"
                                    "# measured predicted\n"
                                    "# group2\n"
                                    "300.000000 330.000000\n"
                                    "\n"
                                    "\n"
                                    "# from_pct to_pct n\n"
                                    "# errors\n"
                                    "-50.0 -45.0 0\n"
                                    "-45.0 -40.0 0\n"
                                    "-40.0 -35.0 0\n"
                                    "-35.0 -30.0 0\n"
                                    "-30.0 -25.0 0\n"
                                    "-25.0 -20.0 0\n"
                                    "-20.0 -15.0 0\n"
                                    "-15.0 -10.0 0\n"
                                    "-10.0 -5.0 1\n"
                                    "-5.0 0.0 0\n"
                                    "0.0 5.0 1\n"
                                    "5.0 10.0 0\n"
                                    "10.0 15.0 1\n"
                                    "15.0 20.0 0\n"
                                    "20.0 25.0 0\n"
                                    "25.0 30.0 0\n"
                                    "30.0 35.0 0\n"
                                    "35.0 40.0 0\n"
                                    "40.0 45.0 0\n"
                                    "45.0 50.0 1\n";

static const char loss_data[] = "# step loss\n"
                                "# run1\n"
                                "1.0 5.500000\n"
                                "2.0 5.000000\n"
                                "3.0 4.500000\n"
                                "\n"
                                "\n"
                                "# step eval_loss\n"
                                "# eval1\n"
                                "2 4.750000\n"
                                "\n"
                                "\n"
                                "# step loss\n"
                                "# run2\n"
                                "1.0 5.000000\n"
                                "\n"
                                "3.0 4.000000\n";

/* For runs that were never evaluated only training losses are drawn. */
START_TEST (losses_need_no_evaluations)
{
  static const char *const names[] = { NULL, "figure.svg" };
  for (guint i = 0; i < G_N_ELEMENTS (names); i++)
    {
      g_autofree char *path = names[i] ? g_build_filename (out, names[i], NULL) : NULL;
      g_autofree char *text = NULL;
      g_autoptr (GError) error = NULL;
      ck_assert_msg (plot_loss (&losses[1], 1, "a title", path, path ? NULL : &text, &error), "%s",
                     error ? error->message : "");
      ck_assert (path || (strstr (text, "run 7") && !strstr (text, "evaluations")));
      if (path)
        g_remove (path);
    }
}
END_TEST

START_TEST (data_files_are_exact)
{
  const PlotBreakdown plans[] = { { "a", some_trace }, { "b", other_trace } };
  g_autofree char *one = plot_scaling_data (scaling, G_N_ELEMENTS (scaling));
  g_autofree char *two = plot_breakdown_data (plans, G_N_ELEMENTS (plans));
  g_autofree char *three = plot_tradeoff_data (tradeoff, G_N_ELEMENTS (tradeoff));
  g_autofree char *four = plot_accuracy_data (accuracy, G_N_ELEMENTS (accuracy));
  ck_assert_str_eq (one, scaling_data);
  ck_assert_str_eq (two, breakdown_data);
  ck_assert_str_eq (three, tradeoff_data);
  g_autofree char *five = plot_loss_data (losses, G_N_ELEMENTS (losses));
  ck_assert_str_eq (four, accuracy_data);
  ck_assert_str_eq (five, loss_data);
}
END_TEST

/* Texts for gnuplot, which are compared without running it. */
START_TEST (texts_are_exact)
{
  static const char scaling_text[]
      = "a title\n"
        "fits nowhere: no_shard; does not fit: optim on 8, zero\n\"3\" on 16\n"
        "\n"
        "optim\n"
        "    GPUs      tokens/s   tokens/s/GPU   efficiency\n"
        "      16         16000         1000.0      100.0 %  #######\n"
        "      32         28800          900.0       90.0 %  ######\n"
        "\n"
        "zero \"3\"\n"
        "    GPUs      tokens/s   tokens/s/GPU   efficiency\n"
        "       8          6400          800.0      100.0 %  ######\n"
        "      32         12800          400.0       50.0 %  ###\n";
  static const char breakdown_text[]
      = "a title\n"
        "\n"
        "step time [ms]\n"
        "  1  ##############################>>>>>>>>>>>>      40.00\n"
        "  2  ##################################              32.00\n"
        "     # compute  > exposed gather\n"
        "\n"
        "device memory [GiB]\n"
        "  1  OOOOOOOOOOOOOaaaaaaaaaaaaaaaaaaa|aaaaaa+++       6.50\n"
        "  2  OOOOOOOOOOOOOaaaaaa++++         |                3.50\n"
        "     O optimizer  a activations  + beside tensors\n"
        "     | capacity\n"
        "\n"
        "  1  a\n"
        "  2  b 'plan' of many words that break into lines\n";
  g_autofree char *one = NULL;
  g_autofree char *two = NULL;
  g_setenv ("COLUMNS", "60", TRUE);
  ck_assert (draw (0, NULL, &one, NULL));
  ck_assert (draw (1, NULL, &two, NULL));
  g_unsetenv ("COLUMNS");
  ck_assert_str_eq (one, scaling_text);
  ck_assert_str_eq (two, breakdown_text);
}
END_TEST

static const struct
{
  const char *name, *start, *end;
} formats[] = {
  { "figure.svg", "<?xml", "</svg>\n\n" },
  { "figure.png", "\x89PNG\r\n\x1a\n", "IEND\xae\x42\x60\x82" },
  { "figure.pdf", "%PDF-", "%%EOF\n" },
};

START_TEST (pictures_are_well_formed)
{
  const guint format = (guint)_i / N_FIGURES;
  g_autofree char *path = g_build_filename (out, formats[format].name, NULL);
  g_autofree char *contents = NULL;
  g_autoptr (GError) error = NULL;
  gsize length, end_length = strlen (formats[format].end);
  ck_assert_msg (draw ((guint)_i % N_FIGURES, path, NULL, &error), "%s",
                 error ? error->message : "");
  ck_assert (g_file_get_contents (path, &contents, &length, NULL));
  ck_assert_uint_gt (length, 2000);
  ck_assert_mem_eq (contents, formats[format].start, strlen (formats[format].start));
  ck_assert_mem_eq (contents + length - end_length, formats[format].end, end_length);
  g_remove (path);
}
END_TEST

/* Every name is in the picture, and each axis has its unit. */
START_TEST (pictures_say_what_they_show)
{
  static const char *const words[N_FIGURES][8] = {
    { "optim", "zero \"3\"", "fits nowhere: no_shard", "throughput [tokens/s]",
      "throughput [tokens/s per GPU]", "efficiency [% of the smallest size]", "GPUs",
      "linear scaling" },
    { "compute", "exposed gather", "optimizer", "activations", "beside tensors",
      "capacity, 5.0 GiB", "step time [ms]", "device memory at its fullest [GiB]" },
    { "recompute=none", "recompute=full", "mbs=1", "mbs=2", "capacity, 80.0 GiB",
      "device memory [GiB]", "step time [ms]", "a title" },
    { "a log", "run 7", "evaluations of a log", "loss per token", "step", "a title", "5.5", "2" },
    { "fsdp2 (3)", "megatron (1)", "equal", "10 % from it", "measured step time [ms]",
      "predicted step time [ms]", "error of the prediction [% of the measured]",
      "4 runs: 16.5 % off in the mean, 8.0 % in the median, 9 in 10 within 50.0 %" },
  };
  g_autofree char *path = g_build_filename (out, "figure.svg", NULL);
  g_autofree char *contents = NULL;
  ck_assert (draw ((guint)_i, path, NULL, NULL));
  ck_assert (g_file_get_contents (path, &contents, NULL, NULL));
  for (guint i = 0; i < G_N_ELEMENTS (words[0]); i++)
    {
      g_autofree char *word = g_markup_escape_text (words[_i][i], -1);
      ck_assert_msg (strstr (contents, words[_i][i]) || strstr (contents, word), "no '%s'",
                     words[_i][i]);
    }
  g_remove (path);
}
END_TEST

static void
ck_assert_refused (gboolean is_drawn, GError **error, PlanErrorCode code, const char *part)
{
  ck_assert (!is_drawn);
  ck_assert_msg (g_error_matches (*error, PLAN_ERROR, (gint)code), "%s", (*error)->message);
  ck_assert_msg (strstr ((*error)->message, part) != NULL, "'%s' lacks '%s'", (*error)->message,
                 part);
  g_clear_error (error);
}

START_TEST (what_cannot_be_drawn_is_refused)
{
  static const PlotScalingPoint nothing_fits[] = { { "a", 8, 10, FALSE } };
  static const PlotScalingPoint no_rate[] = { { "a", 8, 0, TRUE } };
  static const PlotScalingPoint no_gpus[] = { { "a", 0, 5, TRUE } };
  static const char *const names[] = { "1", "2", "3", "4", "5", "6", "7", "8", "9" };
  static const double wrong[] = { 0, -1, NAN, INFINITY };
  PlotScalingPoint many[9];
  PlotTradeoffPoint lines[9];
  g_autoptr (PlanTrace) empty = plan_trace_new ("sim");
  const PlotBreakdown none = { "a", empty };
  const PlotLossRun nothing = { "run 8", &loss_steps[1][1], 1 };
  g_autoptr (GError) e = NULL;
  for (guint i = 0; i < G_N_ELEMENTS (names); i++)
    {
      many[i] = (PlotScalingPoint){ names[i], 8, 1, TRUE };
      lines[i] = (PlotTradeoffPoint){ names[i], "x", 1, 1 };
    }
  ck_assert_refused (plot_scaling (NULL, 0, "", NULL, NULL, &e), &e, PLAN_ERROR_INFEASIBLE,
                     "nothing fits at any size");
  ck_assert_refused (plot_scaling (nothing_fits, 1, "", NULL, NULL, &e), &e, PLAN_ERROR_INFEASIBLE,
                     "nothing fits at any size");
  ck_assert_refused (plot_scaling (no_rate, 1, "", NULL, NULL, &e), &e, PLAN_ERROR_INVALID,
                     "a on 8 GPUs has no throughput");
  ck_assert_refused (plot_scaling (no_gpus, 1, "", NULL, NULL, &e), &e, PLAN_ERROR_INVALID,
                     "a on 0 GPUs has no throughput");
  ck_assert_refused (plot_scaling (many, 9, "", NULL, NULL, &e), &e, PLAN_ERROR_INVALID,
                     "9 lines are more than the 8");
  ck_assert_refused (draw_breakdown (0, 80, NULL, NULL, &e), &e, PLAN_ERROR_INVALID,
                     "there are no plans");
  ck_assert_refused (draw_breakdown (9, 80, NULL, NULL, &e), &e, PLAN_ERROR_INVALID,
                     "9 plans are more than the 8");
  ck_assert_refused (plot_breakdown (&none, 1, 80, "", NULL, NULL, &e), &e, PLAN_ERROR_INVALID,
                     "the plans take none");
  ck_assert_refused (plot_tradeoff (NULL, 0, 80, "", NULL, NULL, &e), &e, PLAN_ERROR_INVALID,
                     "there are no plans");
  ck_assert_refused (plot_tradeoff (lines, 9, 80, "", NULL, NULL, &e), &e, PLAN_ERROR_INVALID,
                     "9 lines are more than the 8");
  ck_assert_refused (plot_loss (losses, 0, "", NULL, NULL, &e), &e, PLAN_ERROR_INVALID,
                     "the losses of 0 runs");
  ck_assert_refused (plot_loss (&nothing, 1, "", NULL, NULL, &e), &e, PLAN_ERROR_INVALID,
                     "run 8: it has no step with a finite loss");
  ck_assert_refused (plot_accuracy (NULL, 0, "a", "b", "", NULL, NULL, &e), &e, PLAN_ERROR_INVALID,
                     "nothing that was both");
  for (guint i = 0; i < 2 * G_N_ELEMENTS (wrong); i++)
    {
      PlotAccuracyPoint points[] = { { NULL, 1, 1 }, { NULL, 1, 1 } };
      *(i % 2 ? &points[1].predicted : &points[1].measured) = wrong[i / 2];
      ck_assert_refused (plot_accuracy (points, 2, "a", "b", "", NULL, NULL, &e), &e,
                         PLAN_ERROR_INVALID, "both must be more than 0, unlike in pair 2");
    }
  for (guint figure = 0; figure < N_FIGURES; figure++)
    ck_assert_refused (draw (figure, "figure.gif", NULL, &e), &e, PLAN_ERROR_INVALID,
                       "figure.gif: the name of a picture ends in");
}
END_TEST

/* Figures with few points, in every way in which values may be missing, equal or far away. */
START_TEST (odd_figures_are_drawn)
{
  static const PlotScalingPoint one[] = { { "", 1, 1e-3, TRUE } };
  static const PlotScalingPoint far[] = { { "a", 1, 1e6, TRUE }, { "b", 1000000, 1e-6, TRUE } };
  static const PlotTradeoffPoint same[]
      = { { "", "a", 5 * PLAN_MIB, 7 }, { "", "", 5 * PLAN_MIB, 7 } };
  static const PlotAccuracyPoint equal[] = { { NULL, 1e-3, 1e-3 } };
  static const PlotAccuracyPoint far_off[] = { { "a", 1e9, 1e-3 }, { "b", 1e-3, 1e9 } };
  g_autofree char *svg = g_build_filename (out, "figure.svg", NULL);
  for (guint i = 0; i < 2; i++)
    {
      const char *const path = i ? svg : NULL;
      ck_assert (plot_scaling (one, 1, "", path, NULL, NULL));
      ck_assert (plot_scaling (far, 2, "", path, NULL, NULL));
      ck_assert (draw_breakdown (1, 0, path, NULL, NULL));
      ck_assert (draw_breakdown (8, 1000 * PLAN_GIB, path, NULL, NULL));
      for (guint n = 1; n <= 2; n++)
        for (guint capacity = 0; capacity <= 100; capacity += 10)
          ck_assert (plot_tradeoff (same, n, capacity * PLAN_MIB, "", path, NULL, NULL));
      ck_assert (plot_accuracy (equal, 1, "", "", "", path, NULL, NULL));
      ck_assert (plot_accuracy (far_off, 2, "", "", "", path, NULL, NULL));
    }
  g_remove (svg);
}
END_TEST

/* Units are chosen by the values that are drawn; a capacity that is far away is only named. */
START_TEST (units_follow_the_values)
{
  static const struct
  {
    guint64 bytes, capacity;
    gint64 ns;
    const char *part;
  } cases[] = {
    { 3 * PLAN_GIB, 0, 20000000000, "3.00 GiB        20.00 s " },
    { 3 * PLAN_MIB, 4 * PLAN_MIB, 9999000000, "3.00 MiB      9999.00 ms " },
    { 3 * 1024, 80 * PLAN_GIB, 2500, "3.00 KiB         2.50 us " },
    { 3 * 1024, 80 * PLAN_GIB, 12, "far below the capacity of 80.0 GiB" },
    { 3 * PLAN_MIB, 4 * PLAN_MIB, 12, "capacity, 4.0 MiB" },
  };
  for (guint i = 0; i < G_N_ELEMENTS (cases); i++)
    {
      const PlotTradeoffPoint point = { "", "x", cases[i].bytes, cases[i].ns };
      g_autofree char *text = NULL;
      ck_assert (plot_tradeoff (&point, 1, cases[i].capacity, "", NULL, &text, NULL));
      ck_assert_msg (strstr (text, cases[i].part) != NULL, "no '%s' in\n%s", cases[i].part, text);
    }
}
END_TEST

/* Groups for which no colour is left are drawn as one, and none is lost. */
START_TEST (many_groups_are_one)
{
  static const char *const names[]
      = { "a", "b", "c", "d", "e", "f", "g", "h", "i", "a very long name of a group of runs" };
  PlotAccuracyPoint points[30];
  g_autofree char *text = NULL;
  for (guint i = 0; i < G_N_ELEMENTS (points); i++)
    points[i] = (PlotAccuracyPoint){ names[i % 10], 110, 100 };
  ck_assert (plot_accuracy (points, 30, "x", "y", "", NULL, &text, NULL));
  ck_assert_msg (strstr (text, "       9      10.0        10.0     10.0     10.0  others\n"), "%s",
                 text);
  ck_assert_ptr_nonnull (strstr (text, "       3      10.0        10.0     10.0     10.0  g\n"));
  ck_assert_ptr_null (strstr (text, "  h\n"));
}
END_TEST

/* Random points, many of them close: the bars of the distribution count each point once. */
START_TEST (every_error_is_counted_once)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const guint n = (guint)g_rand_int_range (rand, 1, 200);
  g_autofree PlotAccuracyPoint *points = g_new0 (PlotAccuracyPoint, n);
  const double spread = pow (10, g_rand_double_range (rand, -3, 1));
  for (guint i = 0; i < n; i++)
    {
      points[i].measured = g_rand_double_range (rand, 1, 100);
      points[i].predicted = points[i].measured * exp (g_rand_double_range (rand, -spread, spread));
    }
  g_autofree char *data = plot_accuracy_data (points, n);
  g_auto (GStrv) lines = g_strsplit (strstr (data, "# errors\n"), "\n", -1);
  guint total = 0;
  for (char **line = lines + 1; *line && **line; line++)
    {
      char *end;
      const double from = g_ascii_strtod (*line, &end), to = g_ascii_strtod (end, &end);
      const guint64 counted = g_ascii_strtoull (end, NULL, 10);
      const gboolean is_first = line == lines + 1, is_last = !line[1] || !*line[1];
      guint64 expected = 0;
      for (guint i = 0; i < n; i++)
        {
          const double error
              = 100 * (points[i].predicted - points[i].measured) / points[i].measured;
          expected += (is_first || error >= from) && (is_last || error < to);
        }
      ck_assert_msg (counted == expected, "seed %d: %s", _i, *line);
      total += (guint)counted;
    }
  ck_assert_uint_eq (total, n);
}
END_TEST

/* Whether the words of a picture, such as "3" or "1-4", name `number`. */
static gboolean
is_named (char **words, guint number)
{
  for (char **word = words; *word; word++)
    {
      g_auto (GStrv) parts = g_strsplit (*word, ",", -1);
      for (char **part = parts; *part; part++)
        {
          char *end;
          const guint64 first = g_ascii_strtoull (*part, &end, 10);
          const guint64 last = *end == '-' ? g_ascii_strtoull (end + 1, &end, 10) : first;
          if (*end == '\0' && first <= number && number <= last)
            return TRUE;
        }
    }
  return FALSE;
}

/* In a text picture no point is lost, however close points are. */
START_TEST (every_point_has_its_number)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  const guint n = (guint)g_rand_int_range (rand, 1, 40);
  g_autofree PlotPoint *points = g_new0 (PlotPoint, n);
  double memory = 10, tokens = 100;
  for (guint i = 0; i < n; i++)
    {
      memory += g_rand_boolean (rand) ? 0.001 : g_rand_double_range (rand, 0.001, 5);
      tokens += g_rand_boolean (rand) ? 0.01 : g_rand_double_range (rand, 0.01, 50);
      points[i] = (PlotPoint){ "plan", memory, tokens, TRUE };
    }
  g_autofree char *text = NULL;
  ck_assert (plot_pareto (points, n, 0, "memory that it is", "", NULL, &text, NULL));
  char *const list = strstr (text, "memory that it is [GiB]");
  ck_assert_ptr_nonnull (list);
  *list = '\0';
  g_auto (GStrv) lines = g_strsplit (text, "\n", -1);
  g_autoptr (GString) inside = g_string_new (NULL); /* the points inside of the axes */
  for (char **line = lines; *line; line++)
    if (strchr (*line, '|'))
      g_string_append_printf (inside, " %s", strchr (*line, '|') + 1);
  g_auto (GStrv) words = g_strsplit (inside->str, " ", -1);
  for (guint i = 1; i <= n; i++)
    ck_assert_msg (is_named (words, i), "seed %d: %u of %u is not in\n%s", _i, i, n, text);
}
END_TEST

/* Labels that are too long for their place in a picture are listed below it, and get room there. */
START_TEST (long_labels_are_listed)
{
  static const char longest[]
      = "a plan=with of=so many=fields that=no_line beside=its_bar has=room "
        "for=all of=them and=a_quote=' too=on";
  const PlotPoint points[] = { { longest, 5, 700, TRUE }, { "fast", 60, 900, TRUE } };
  const PlotBreakdown short_plan = { "short", some_trace }, long_plan = { longest, other_trace };
  const PlotBreakdown plans[] = { short_plan, long_plan, short_plan, short_plan, short_plan };
  g_autofree char *path = g_build_filename (out, "figure.svg", NULL);
  g_autofree char *front = NULL, *bars = NULL, *none = NULL;
  g_autofree char *first = g_markup_escape_text ("1: 60.00 GiB, 900 tokens/s/GPU, fast", -1);
  g_autofree char *second = g_strdup_printf ("2: 5.00 GiB, 700 tokens/s/GPU, %s", longest);
  g_autofree char *bar = g_strdup_printf ("2: %s", longest);
  ck_assert (plot_pareto (points, 2, 80, "memory", "", path, NULL, NULL));
  ck_assert (g_file_get_contents (path, &front, NULL, NULL));
  ck_assert_ptr_nonnull (strstr (front, first));
  ck_assert_ptr_nonnull (strstr (front, second));
  ck_assert (plot_breakdown (plans, G_N_ELEMENTS (plans), 0, "", path, NULL, NULL));
  ck_assert (g_file_get_contents (path, &bars, NULL, NULL));
  ck_assert_ptr_nonnull (strstr (bars, "1: short"));
  ck_assert_ptr_nonnull (strstr (bars, bar));
  ck_assert (plot_breakdown (plans, 1, 0, "", path, NULL, NULL));
  ck_assert (g_file_get_contents (path, &none, NULL, NULL));
  ck_assert_ptr_null (strstr (none, "1: short"));
  ck_assert_ptr_nonnull (strstr (none, "height=\"540\""));
  ck_assert_ptr_null (strstr (bars, "height=\"540\""));
  g_remove (path);
}
END_TEST

/* For random points and lines no label covers another one, nor anything else that it must not. */
START_TEST (labels_cover_nothing)
{
  static const PlotBox axes = { 0, 100, 0, 100 }, area = { 0.1, 0.9, 0.1, 0.9 };
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  g_auto (PlotLabels) labels = { 0 };
  double x[30], y[30];
  guint n_placed = 0;
  plot_labels_init (&labels, &axes, &area);
  for (guint i = 0; i < G_N_ELEMENTS (x); i++)
    {
      x[i] = g_rand_double_range (rand, 0, 100);
      y[i] = g_rand_double_range (rand, 0, 100);
      plot_labels_avoid_point (&labels, x[i], y[i]);
      if (i > 0 && i < 6)
        plot_labels_avoid_line (&labels, x[i - 1], y[i - 1], x[i], y[i], TRUE);
    }
  for (guint i = 0; i < G_N_ELEMENTS (x); i++)
    n_placed += plot_labels_place (&labels, x[i], y[i],
                                   i % 3 ? "short" : "one of more words than go into a line", TRUE);
  ck_assert_uint_eq (n_placed, labels.placed->len);
  ck_assert_uint_gt (n_placed, 0);
  for (guint i = 0; i < labels.placed->len; i++)
    {
      const PlotBox *box = &g_array_index (labels.placed, PlotBox, i);
      ck_assert (box->left >= 0.1 * PLOT_WIDTH && box->right <= 0.9 * PLOT_WIDTH);
      ck_assert (box->bottom >= 0.1 * PLOT_HEIGHT && box->top <= 0.9 * PLOT_HEIGHT);
      for (guint k = 0; k < i; k++)
        {
          const PlotBox *other = &g_array_index (labels.placed, PlotBox, k);
          ck_assert_msg (box->left >= other->right || other->left >= box->right
                             || box->bottom >= other->top || other->bottom >= box->top,
                         "seed %d: %u and %u", _i, i, k);
        }
      for (guint line = 1; line < 6; line++)
        for (guint step = 0; step <= 500; step++) /* at close steps along the line */
          {
            const double part = step / 500.0;
            const double at_x
                = PLOT_WIDTH * (0.1 + 0.008 * (x[line - 1] + part * (x[line] - x[line - 1])));
            const double at_y
                = PLOT_HEIGHT * (0.1 + 0.008 * (y[line - 1] + part * (y[line] - y[line - 1])));
            ck_assert_msg (at_x <= box->left || at_x >= box->right || at_y <= box->bottom
                               || at_y >= box->top,
                           "seed %d: %u is on line %u", _i, i, line);
          }
    }
}
END_TEST

/* Of points in a row each label is nearest to its own, which it was not below and beside them. */
START_TEST (labels_are_nearest_to_their_points)
{
  static const PlotBox axes = { 0, 100, 0, 100 }, area = { 0.1, 0.9, 0.1, 0.9 };
  g_auto (PlotLabels) labels = { 0 };
  plot_labels_init (&labels, &axes, &area);
  for (guint i = 0; i < 10; i++)
    plot_labels_avoid_point (&labels, 20 + 5.5 * i, 50);
  for (guint i = 0; i < 10; i++)
    ck_assert (plot_labels_place (&labels, 20 + 5.5 * i, 50, "16384", TRUE));
  for (guint i = 0; i < 10; i++)
    {
      const PlotBox *box = &g_array_index (labels.placed, PlotBox, i);
      double least = G_MAXDOUBLE;
      guint nearest = 0;
      for (guint k = 0; k < 10; k++)
        {
          const double x = PLOT_WIDTH * (0.1 + 0.008 * (20 + 5.5 * k)), y = PLOT_HEIGHT * 0.5;
          const double across = CLAMP (x, box->left, box->right) - x;
          const double up = CLAMP (y, box->bottom, box->top) - y;
          if (across * across + up * up < least)
            {
              least = across * across + up * up;
              nearest = k;
            }
        }
      ck_assert_uint_eq (nearest, i);
    }
}
END_TEST

START_TEST (labels_are_broken_at_spaces)
{
  static const struct
  {
    const char *label;
    guint width, lines;
    const char *broken;
  } cases[] = {
    { "", 10, 3, "" },
    { "one", 10, 3, "one" },
    { "one two three", 7, 3, "one two\nthree" },
    { "one two three", 7, 1, "one two ..." },
    { "one two three four", 5, 2, "one\ntwo ..." },
    { "immeasurable", 5, 2, "..." },
    { "an immeasurable", 5, 2, "an ..." },
  };
  for (guint i = 0; i < G_N_ELEMENTS (cases); i++)
    {
      g_autofree char *broken = plot_break_label (cases[i].label, cases[i].width, cases[i].lines);
      ck_assert_str_eq (broken, cases[i].broken);
    }
}
END_TEST

static Suite *
plans_suite (void)
{
  Suite *suite = suite_create ("plot-plans");
  TCase *tcase = tcase_create ("plot-plans");
  g_autofree char *gnuplot = g_find_program_in_path ("gnuplot");
  tcase_add_checked_fixture (tcase, setup, teardown);
  tcase_set_timeout (tcase, 0);
  tcase_add_test (tcase, data_files_are_exact);
  tcase_add_test (tcase, texts_are_exact);
  tcase_add_test (tcase, what_cannot_be_drawn_is_refused);
  tcase_add_loop_test (tcase, every_error_is_counted_once, 0, 100);
  tcase_add_loop_test (tcase, labels_cover_nothing, 0, 50);
  tcase_add_test (tcase, labels_are_broken_at_spaces);
  tcase_add_test (tcase, labels_are_nearest_to_their_points);
  if (gnuplot) /* the rest draws */
    {
      tcase_add_loop_test (tcase, pictures_are_well_formed, 0, N_FIGURES * G_N_ELEMENTS (formats));
      tcase_add_test (tcase, losses_need_no_evaluations);
      tcase_add_loop_test (tcase, pictures_say_what_they_show, 0, N_FIGURES);
      tcase_add_test (tcase, odd_figures_are_drawn);
      tcase_add_test (tcase, units_follow_the_values);
      tcase_add_test (tcase, many_groups_are_one);
      tcase_add_test (tcase, long_labels_are_listed);
      tcase_add_loop_test (tcase, every_point_has_its_number, 0, 20);
    }
  suite_add_tcase (suite, tcase);
  return suite;
}

int
main (void)
{
  SRunner *runner = srunner_create (plans_suite ());
  int n_failed;
  g_unsetenv ("COLUMNS");
  out = g_dir_make_tmp ("fsdplan-plot-plans-XXXXXX", NULL);
  if (!out)
    return EXIT_FAILURE;
  srunner_run_all (runner, CK_ENV);
  n_failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  g_rmdir (out);
  g_free (out);
  return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
