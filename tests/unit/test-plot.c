/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/base/error.h"
#include "planner/base/units.h"
#include "plots/plot-private.h"
#include "plots/plot.h"

#include <check.h>
#include <glib/gstdio.h>
#include <stdlib.h>
#include <string.h>

/* Temporary folders go to `base`/tmp, pictures to `base`/out. */
static char *base;
static char *tmp;
static char *out;

/* Nodes of the schedule in `setup`. */
static guint load, gather, gemm, swiglu, cross_entropy, reduce, take;
static PlanSchedule *schedule;

static guint
add_op (PlanOpKind kind, PlanStream stream)
{
  guint node = plan_schedule_n_nodes (schedule);
  PlanOp op;

  plan_op_init (&op, kind, stream);
  for (guint ref = 0; ref < plan_op_n_refs (kind); ref++)
    op.refs[ref] = (PlanRef){ .array = 0, .loop = -1 };
  plan_schedule_add (schedule, &op);
  return node;
}

static void
setup (void)
{
  schedule = plan_schedule_new (0, 2);
  plan_schedule_add_buffer (schedule, "logits", 1, 64, PLAN_DTYPE_FP32, PLAN_CATEGORY_LOSS);
  plan_schedule_begin_section (schedule, PLAN_SECTION_SETUP);
  plan_schedule_begin_section (schedule, PLAN_SECTION_STEP);
  load = add_op (PLAN_OP_LOAD, PLAN_STREAM_HOST);
  gather = add_op (PLAN_OP_ALL_GATHER, PLAN_STREAM_GATHER);
  gemm = add_op (PLAN_OP_GEMM, PLAN_STREAM_COMPUTE);
  swiglu = add_op (PLAN_OP_SWIGLU, PLAN_STREAM_COMPUTE);
  cross_entropy = add_op (PLAN_OP_CROSS_ENTROPY, PLAN_STREAM_COMPUTE);
  reduce = add_op (PLAN_OP_REDUCE_SCATTER, PLAN_STREAM_REDUCE);
  take = add_op (PLAN_OP_ALLOC, PLAN_STREAM_HOST);
  plan_schedule_begin_section (schedule, PLAN_SECTION_TEARDOWN);
}

static void
ck_assert_empty (const char *folder)
{
  g_autoptr (GDir) dir = g_dir_open (folder, 0, NULL);
  const char *name;

  ck_assert_ptr_nonnull (dir);
  name = g_dir_read_name (dir);
  ck_assert_msg (name == NULL, "%s: %s was left", folder, name);
}

static void
teardown (void)
{
  g_clear_pointer (&schedule, plan_schedule_free);
  ck_assert_empty (tmp);
}

/* A trace of ten simulated microseconds; a measured one takes `percent` as long. */
static PlanTrace *
small_trace (const char *origin, gint64 percent)
{
  const gint64 ns = 10 * percent; /* of a microsecond */
  PlanTrace *trace = plan_trace_new (origin);

  trace->memory.resting[PLAN_CATEGORY_MAIN_PARAMS] = 1 << 20;
  plan_trace_add_span (trace, load, -1, 0, 1 * ns);
  plan_trace_add_sample (trace, PLAN_CATEGORY_GATHERED, 1 * ns, 1 << 19);
  plan_trace_add_span (trace, gather, 0, 1 * ns, 3 * ns);
  plan_trace_add_span (trace, gemm, 0, 3 * ns, 5 * ns);
  plan_trace_add_span (trace, gemm, 0, 5 * ns, 6 * ns); /* drawn as one box with the span before */
  plan_trace_add_span (trace, take, 0, 6 * ns, 6 * ns); /* takes no time */
  plan_trace_add_sample (trace, PLAN_CATEGORY_LOSS, 6 * ns, 1 << 20);
  plan_trace_add_span (trace, swiglu, 0, 6 * ns, 7 * ns);
  plan_trace_add_sample (trace, PLAN_CATEGORY_GATHERED, 7 * ns, 0);
  plan_trace_add_span (trace, reduce, 0, 7 * ns, 10 * ns);
  plan_trace_add_sample (trace, PLAN_CATEGORY_LOSS, 8 * ns, 0);
  trace->step_ns = 10 * ns;
  trace->memory.peak_node = take;
  trace->memory.peak_unit = 3;
  return trace;
}

/* A trace of `n` kernels of a microsecond each; losses come after a quarter and three fifths of
 * them. */
static PlanTrace *
long_trace (guint n)
{
  PlanTrace *trace = plan_trace_new ("sim");

  for (guint i = 0; i < n; i++)
    {
      gboolean is_loss = i == n / 4 || i == 3 * n / 5;

      plan_trace_add_span (trace,
                           is_loss ? cross_entropy
                           : i % 2 ? gemm
                                   : swiglu,
                           0, 1000 * i, 1000 * i + 1000);
      plan_trace_add_sample (trace, PLAN_CATEGORY_LOSS, 1000 * i,
                             i == n / 3 ? 1 << 30 : (gint64)(i % 7) << 20);
    }
  trace->step_ns = 1000 * n;
  return trace;
}

static const PlotPoint points[] = {
  { "small", 10, 100, TRUE },         { "best of \"all\"", 60, 250, TRUE },
  { "beaten", 40, 90, TRUE },         { "middle", 30, 200.5, TRUE },
  { "same, later", 30, 200.5, TRUE }, { "too big", 90, 300, FALSE },
};

/* Draws one of the three figures. */
static gboolean
draw (guint figure, const char *title, const char *path, char **out_text, GError **error)
{
  g_autoptr (PlanTrace) simulated = small_trace ("sim", 100);
  g_autoptr (PlanTrace) measured = small_trace ("cpu", 120);

  switch (figure)
    {
    case 0:
      return plot_timeline (simulated, measured, schedule, title, path, out_text, error);
    case 1:
      return plot_memory (simulated, measured, schedule, title, path, out_text, error);
    default:
      return plot_pareto (points, G_N_ELEMENTS (points), 80, "memory", title, path, out_text,
                          error);
    }
}

static void
ck_assert_refused (const GError *error, PlanErrorCode code, const char *part)
{
  ck_assert_ptr_nonnull (error);
  ck_assert_msg (g_error_matches (error, PLAN_ERROR, (gint)code), "code %d: %s", error->code,
                 error->message);
  ck_assert_msg (strstr (error->message, part) != NULL, "'%s' lacks '%s'", error->message, part);
}

static const char timeline_alone[] = "# start_ms end_ms bottom top\n"
                                     "# gemm\n"
                                     "0.003000 0.006000 1.64 2.36\n"
                                     "\n"
                                     "\n"
                                     "# start_ms end_ms bottom top\n"
                                     "# elementwise\n"
                                     "0.006000 0.007000 1.64 2.36\n"
                                     "\n"
                                     "\n"
                                     "# start_ms end_ms bottom top\n"
                                     "# gather\n"
                                     "0.001000 0.003000 0.64 1.36\n"
                                     "\n"
                                     "\n"
                                     "# start_ms end_ms bottom top\n"
                                     "# reduce\n"
                                     "0.007000 0.010000 -0.36 0.36\n"
                                     "\n"
                                     "\n"
                                     "# start_ms end_ms bottom top\n"
                                     "# host\n"
                                     "0.000000 0.001000 2.64 3.36\n";

static const char timeline_measured[] = "# start_ms end_ms bottom top\n"
                                        "# gemm\n"
                                        "0.003000 0.006000 2.00 2.36\n"
                                        "\n"
                                        "\n"
                                        "# start_ms end_ms bottom top\n"
                                        "# elementwise\n"
                                        "0.006000 0.007000 2.00 2.36\n"
                                        "\n"
                                        "\n"
                                        "# start_ms end_ms bottom top\n"
                                        "# gather\n"
                                        "0.001000 0.003000 1.00 1.36\n"
                                        "\n"
                                        "\n"
                                        "# start_ms end_ms bottom top\n"
                                        "# reduce\n"
                                        "0.007000 0.010000 0.00 0.36\n"
                                        "\n"
                                        "\n"
                                        "# start_ms end_ms bottom top\n"
                                        "# host\n"
                                        "0.000000 0.001000 3.00 3.36\n"
                                        "\n"
                                        "\n"
                                        "# start_ms end_ms bottom top group\n"
                                        "# measured\n"
                                        "0.000000 0.001200 2.58 2.94 11\n"
                                        "0.003600 0.007200 1.58 1.94 1\n"
                                        "0.007200 0.008400 1.58 1.94 3\n"
                                        "0.001200 0.003600 0.58 0.94 5\n"
                                        "0.008400 0.012000 -0.42 -0.06 6\n";

static const char memory[]
    = "# MiB; time_ms total, then of each category size and top: main_params gathered loss\n"
      "# simulated\n"
      "0.000000 1.000000 1.000000 1.000000 0.000000 1.000000 0.000000 1.000000\n"
      "0.001000 1.000000 1.000000 1.000000 0.000000 1.000000 0.000000 1.000000\n"
      "0.001000 1.500000 1.000000 1.000000 0.500000 1.500000 0.000000 1.500000\n"
      "0.006000 1.500000 1.000000 1.000000 0.500000 1.500000 0.000000 1.500000\n"
      "0.006000 2.500000 1.000000 1.000000 0.500000 1.500000 1.000000 2.500000\n"
      "0.007000 2.500000 1.000000 1.000000 0.500000 1.500000 1.000000 2.500000\n"
      "0.007000 2.000000 1.000000 1.000000 0.000000 1.000000 1.000000 2.000000\n"
      "0.008000 2.000000 1.000000 1.000000 0.000000 1.000000 1.000000 2.000000\n"
      "0.008000 1.000000 1.000000 1.000000 0.000000 1.000000 0.000000 1.000000\n"
      "0.010000 1.000000 1.000000 1.000000 0.000000 1.000000 0.000000 1.000000\n"
      "0.010000 1.000000 1.000000 1.000000 0.000000 1.000000 0.000000 1.000000\n"
      "\n"
      "\n"
      "# MiB; time_ms total\n"
      "# measured\n"
      "0.000000 1.000000\n"
      "0.001200 1.500000\n"
      "0.007200 2.500000\n"
      "0.008400 2.000000\n"
      "0.009600 1.000000\n"
      "0.012000 1.000000\n";

static const char pareto[] = "# memory_gib tokens_per_s label\n"
                             "# front\n"
                             "10.0000 100.00 \"small\"\n"
                             "30.0000 200.50 \"middle\"\n"
                             "60.0000 250.00 \"best of 'all'\"\n"
                             "\n"
                             "\n"
                             "# memory_gib tokens_per_s label\n"
                             "# others\n"
                             "40.0000 90.00 \"beaten\"\n"
                             "30.0000 200.50 \"same, later\"\n"
                             "\n"
                             "\n"
                             "# memory_gib tokens_per_s label\n"
                             "# unfit\n"
                             "90.0000 300.00 \"too big\"\n";

START_TEST (data_files_are_exact)
{
  g_autoptr (PlanTrace) simulated = small_trace ("sim", 100);
  g_autoptr (PlanTrace) measured = small_trace ("cpu", 120);
  char *data;

  data = plot_timeline_data (simulated, NULL, schedule);
  ck_assert_str_eq (data, timeline_alone);
  g_free (data);
  data = plot_timeline_data (simulated, measured, schedule);
  ck_assert_str_eq (data, timeline_measured);
  g_free (data);
  data = plot_memory_data (simulated, measured, schedule);
  ck_assert_str_eq (data, memory);
  g_free (data);
  data = plot_pareto_data (points, G_N_ELEMENTS (points));
  ck_assert_str_eq (data, pareto);
  g_free (data);
}
END_TEST

/* Of 1000 kernels 200 are shown, around the loss that is nearest to the middle. */
START_TEST (long_timeline_is_a_window)
{
  g_autoptr (PlanTrace) trace = long_trace (1000);
  g_autoptr (PlanTrace) later = long_trace (1000);
  g_autofree char *data = plot_timeline_data (trace, NULL, schedule);
  g_autofree char *moved = NULL;
  g_auto (GStrv) lines = g_strsplit (data, "\n", -1);
  double first_ms = G_MAXDOUBLE, last_ms = 0;
  guint n_boxes = 0;

  for (char **line = lines; *line; line++)
    if (g_ascii_isdigit (**line))
      {
        char *end;

        first_ms = MIN (first_ms, g_ascii_strtod (*line, &end));
        last_ms = MAX (last_ms, g_ascii_strtod (end, NULL));
        n_boxes++;
      }
  ck_assert_uint_eq (n_boxes, 200);
  ck_assert_double_eq (first_ms, 0.5);
  ck_assert_double_eq (last_ms, 0.7);

  /* A measured trace that has drifted by half a millisecond shows the same ops. */
  for (guint i = 0; i < later->spans->len; i++)
    {
      g_array_index (later->spans, PlanSpan, i).start_ns += 500000;
      g_array_index (later->spans, PlanSpan, i).end_ns += 500000;
    }
  moved = plot_timeline_data (trace, later, schedule);
  ck_assert_ptr_nonnull (strstr (moved, "# measured\n0.500000 "));
}
END_TEST

/* Every kind of communication has a block of its own. */
START_TEST (a_timeline_names_what_it_draws)
{
  static const char *const names[] = { "# exchange\n",  "# all_to_all\n", "# to_host\n",
                                       "# from_host\n", "# gather\n",     "# reduce\n" };
  static const char *const keys[] = { "x exchange",       "t all_to_all", "v copy to host",
                                      "^ copy from host", "> all_gather", "< reduction" };
  static const struct
  {
    PlanOpKind kind;
    PlanStream stream;
  } ops[]
      = { { PLAN_OP_EXCHANGE, PLAN_STREAM_CONTEXT },  { PLAN_OP_ALL_TO_ALL, PLAN_STREAM_REDUCE },
          { PLAN_OP_COPY, PLAN_STREAM_COPY },         { PLAN_OP_COPY, PLAN_STREAM_COPY },
          { PLAN_OP_ALL_GATHER, PLAN_STREAM_TENSOR }, { PLAN_OP_ALL_REDUCE, PLAN_STREAM_REDUCE } };
  g_autoptr (PlanTrace) trace = plan_trace_new ("sim");
  g_autofree char *text = NULL;
  g_autofree char *program = g_find_program_in_path ("gnuplot");

  g_clear_pointer (&schedule, plan_schedule_free);
  schedule = plan_schedule_new (0, 2);
  plan_schedule_add_buffer (schedule, "here", 1, 64, PLAN_DTYPE_BF16, PLAN_CATEGORY_ACTIVATIONS);
  plan_schedule_add_buffer (schedule, "there", 1, 64, PLAN_DTYPE_BF16, PLAN_CATEGORY_HOST);
  plan_schedule_begin_section (schedule, PLAN_SECTION_SETUP);
  plan_schedule_begin_section (schedule, PLAN_SECTION_STEP);
  for (guint i = 0; i < G_N_ELEMENTS (ops); i++)
    {
      PlanOp op;

      plan_op_init (&op, ops[i].kind, ops[i].stream);
      for (guint ref = 0; ref < plan_op_n_refs (op.kind); ref++)
        op.refs[ref]
            = (PlanRef){ .array = ref == (i == 2 ? 0 : 1) && op.kind == PLAN_OP_COPY, .loop = -1 };
      plan_trace_add_span (trace, plan_schedule_n_nodes (schedule), 0, 1000 * i, 1000 * i + 1000);
      plan_schedule_add (schedule, &op);
    }
  plan_schedule_begin_section (schedule, PLAN_SECTION_TEARDOWN);
  trace->step_ns = 1000 * G_N_ELEMENTS (ops);

  {
    g_autofree char *data = plot_timeline_data (trace, NULL, schedule);

    for (guint i = 0; i < G_N_ELEMENTS (names); i++)
      {
        g_autofree char *from = g_strdup_printf ("%s0.%03u000 ", names[i], i);

        ck_assert_msg (strstr (data, from) != NULL, "no '%s' in\n%s", from, data);
      }
  }
  {
    g_autoptr (PlanTrace) without = plan_trace_new ("sim"); /* the last op, which was measured */
    for (guint i = 0; i + 1 < G_N_ELEMENTS (ops); i++)
      g_array_append_val (without->spans, g_array_index (trace->spans, PlanSpan, i));
    without->step_ns = trace->step_ns;
    g_autofree char *data = plot_timeline_data (without, trace, schedule);
    ck_assert_ptr_nonnull (strstr (data, "# reduce\nNaN"));
  }
  if (!program)
    return;
  ck_assert (plot_timeline (trace, NULL, schedule, "", NULL, &text, NULL));
  for (guint i = 0; i < G_N_ELEMENTS (keys); i++)
    ck_assert_msg (strstr (text, keys[i]) != NULL, "no '%s' in\n%s", keys[i], text);
}
END_TEST

START_TEST (long_memory_keeps_its_peak)
{
  g_autoptr (PlanTrace) trace = long_trace (100000);
  g_autofree char *data = plot_memory_data (trace, NULL, schedule);
  g_auto (GStrv) lines = g_strsplit (data, "\n", -1);
  guint n_moments = 0, n_peaks = 0;

  for (char **line = lines; *line; line++)
    {
      g_auto (GStrv) field = g_strsplit (*line, " ", -1);

      if (!g_ascii_isdigit (**line))
        continue;
      n_moments++;
      if (strcmp (field[0], "33.333000") == 0 && strcmp (field[1], "1.000000") == 0)
        n_peaks++;
    }
  ck_assert_uint_eq (n_peaks, 1);
  ck_assert_uint_le (
      n_moments, 2 * 502); /* both corners of each step; lines between them would cover all else */
  ck_assert_uint_ge (n_moments, 500);
}
END_TEST

static guint
count (const char *text, const char *word)
{
  guint n = 0;
  for (const char *at = strstr (text, word); at; at = strstr (at + 1, word))
    n++;
  return n;
}

START_TEST (every_category_is_drawn_once)
{
  g_autoptr (PlanTrace) trace = small_trace ("sim", 100);
  g_autofree char *text = NULL;
  g_autoptr (GError) error = NULL;

  for (guint c = 0; c < PLAN_N_CATEGORIES; c++)
    trace->memory.resting[c] = PLAN_MIB;
  ck_assert (plot_memory (trace, NULL, schedule, "", NULL, &text, &error));
  for (guint c = 0; c < PLAN_N_CATEGORIES; c++)
    {
      g_autofree char *word = g_strdup_printf (" %s ", plan_category_name (c));
      ck_assert_msg (count (text, word) == 1, "%s in:\n%s", word, text);
    }
}
END_TEST

static char *
picture_path (const char *name)
{
  return g_build_filename (out, name, NULL);
}

static const struct
{
  const char *name;
  const char *start, *end;
} formats[] = {
  { "figure.svg", "<?xml", "</svg>\n\n" },
  { "figure.png", "\x89PNG\r\n\x1a\n", "IEND\xae\x42\x60\x82" },
  { "figure.pdf", "%PDF-", "%%EOF\n" },
};

START_TEST (pictures_are_well_formed)
{
  g_autofree char *path = picture_path (formats[_i / 3].name);
  g_autofree char *contents = NULL;
  g_autoptr (GError) error = NULL;
  gsize length, end_length = strlen (formats[_i / 3].end);
  char *text = (char *)"untouched";

  ck_assert_msg (draw ((guint)_i % 3, "a title", path, &text, &error), "%s",
                 error ? error->message : "");
  ck_assert_ptr_null (text);
  ck_assert (g_file_get_contents (path, &contents, &length, NULL));
  ck_assert_uint_gt (length, 2000);
  ck_assert_mem_eq (contents, formats[_i / 3].start, strlen (formats[_i / 3].start));
  ck_assert_mem_eq (contents + length - end_length, formats[_i / 3].end, end_length);
  g_remove (path);
  ck_assert_empty (out);
}
END_TEST

START_TEST (text_is_for_a_terminal)
{
  static const char *const parts[] = { " measured |", "peak 2.5 MiB: alloc logits, unit 3",
                                       "60.00 GiB          250 tokens/s/GPU   best of \"all\"" };
  g_autofree char *path = picture_path ("figure.txt");
  g_autofree char *text = NULL;
  g_autofree char *contents = NULL;
  g_autoptr (GError) error = NULL;

  ck_assert_msg (draw ((guint)_i, "a title", NULL, &text, &error), "%s",
                 error ? error->message : "");
  ck_assert_msg (strstr (text, parts[_i]) != NULL, "'%s' is not in\n%s", parts[_i], text);
  ck_assert_ptr_nonnull (strstr (text, "a title\n"));
  ck_assert_ptr_null (strstr (text, " \n"));

  ck_assert (draw ((guint)_i, "a title", path, NULL, NULL));
  ck_assert (g_file_get_contents (path, &contents, NULL, NULL));
  ck_assert_str_eq (contents, text);
  g_remove (path);
}
END_TEST

/* Part of a step is named by both its times, which may be far apart. */
START_TEST (parts_of_a_step_have_both_times)
{
  g_autoptr (PlanTrace) trace = long_trace (1000);
  g_autoptr (PlanTrace) later = long_trace (1000);
  g_autofree char *text = NULL;
  later->step_ns *= 7;
  ck_assert (plot_timeline (trace, later, schedule, "a title", NULL, &text, NULL));
  ck_assert_ptr_nonnull (strstr (text, "ms of a step of 1.00000 ms, which took 7.00000 ms\n"));
}
END_TEST

START_TEST (text_is_as_wide_as_the_terminal)
{
  static const struct
  {
    const char *columns;
    glong width;
  } cases[] = { { "72", 72 }, { "160", 160 }, { "1", 60 }, { "100000", 240 }, { "wide", 100 } };

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++)
    {
      g_autofree char *text = NULL;
      g_auto (GStrv) lines = NULL;
      glong widest = 0;

      g_setenv ("COLUMNS", cases[i].columns, TRUE);
      ck_assert (draw (0, "", NULL, &text, NULL));
      lines = g_strsplit (text, "\n", -1);
      for (char **line = lines; *line && **line; line++)
        widest = MAX (widest, g_utf8_strlen (*line, -1));
      ck_assert_int_le (widest, cases[i].width);
      ck_assert_int_ge (widest, cases[i].width - 4);
    }
  g_unsetenv ("COLUMNS");
}
END_TEST

START_TEST (titles_are_only_text)
{
  static const char title[] = "it's `touch pwned` \"$HOME\" {/Bold x}_1 \\n % ; system('ls')";
  g_autofree char *path = picture_path ("figure.svg");
  g_autofree char *contents = NULL;
  g_autoptr (GError) error = NULL;

  for (guint figure = 0; figure < 3; figure++)
    {
      g_clear_pointer (&contents, g_free);
      ck_assert_msg (draw (figure, title, path, NULL, &error), "%s", error ? error->message : "");
      ck_assert (g_file_get_contents (path, &contents, NULL, NULL));
      ck_assert_ptr_nonnull (strstr (contents, "it's `touch pwned`"));
      ck_assert_ptr_nonnull (strstr (contents, "{/Bold x}_1 \\n % ; system('ls')"));
    }
  g_remove (path);
}
END_TEST

/* Texts of characters that mean something to gnuplot or to a shell: they appear as they are,
 * without control characters. */
START_TEST (texts_are_no_code)
{
  static const char *const pieces[] = { "'",
                                        "\"",
                                        "`touch pwned`",
                                        "$(touch pwned)",
                                        "\\",
                                        "\n",
                                        "\t",
                                        "@title",
                                        "{/Bold x}",
                                        "%s",
                                        "#",
                                        ";",
                                        "system('ls')",
                                        "]",
                                        "''",
                                        "_",
                                        "^",
                                        "\xc3\xa9" };
  g_autoptr (GRand) rand = g_rand_new_with_seed (7);
  g_autofree char *said = picture_path ("said"), *script = picture_path ("texts.gp");
  PlotFigure figure = { .settings = g_string_new (NULL) };
  g_autoptr (GString) want = g_string_new (NULL);
  g_autofree char *got = NULL;
  g_autoptr (GError) error = NULL;
  int status;
  g_string_append_printf (figure.settings, "set print '%s'\n", said);
  for (guint t = 0; t < 700; t++)
    {
      g_autoptr (GString) text = g_string_new (NULL);
      for (guint n = (guint)g_rand_int_range (rand, 0, 6); n > 0; n--)
        g_string_append (text, pieces[g_rand_int_range (rand, 0, G_N_ELEMENTS (pieces))]);
      plot_figure_set_text (&figure, "text", text->str);
      g_string_append (figure.settings, "print text\n");
      g_string_append_printf (want, "%s\n", g_strdelimit (text->str, "\t", ' '));
    }
  char program[] = "gnuplot", *argv[] = { program, script, NULL };
  ck_assert (g_file_set_contents (script, figure.settings->str, -1, NULL));
  ck_assert_msg (
      g_spawn_sync (out, argv, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL, NULL, NULL, &status, &error),
      "%s", error ? error->message : "");
  ck_assert (g_spawn_check_wait_status (status, &error));
  ck_assert (g_file_get_contents (said, &got, NULL, NULL));
  g_auto (GStrv) lines = g_strsplit (got, "\n", -1), wanted = g_strsplit (want->str, "\n", -1);
  for (guint i = 0; wanted[i] && lines[i]; i++)
    ck_assert_str_eq (lines[i], wanted[i]);
  ck_assert_uint_eq (g_strv_length (lines), g_strv_length (wanted));
  g_string_free (figure.settings, TRUE);
  g_remove (said);
  g_remove (script);
}
END_TEST

START_TEST (other_extensions_are_refused)
{
  g_autofree char *path = picture_path ("figure.jpeg");
  g_autoptr (GError) error = NULL;

  ck_assert (!draw ((guint)_i, "", path, NULL, &error));
  ck_assert_refused (error, PLAN_ERROR_INVALID, ".svg, .png, .pdf or .txt");
  ck_assert_refused (error, PLAN_ERROR_INVALID, path);
  ck_assert_empty (out);
}
END_TEST

START_TEST (nothing_to_draw)
{
  g_autoptr (PlanTrace) empty = plan_trace_new ("sim");
  g_autoptr (GError) error = NULL;

  ck_assert (!plot_timeline (empty, NULL, schedule, "", NULL, NULL, &error));
  ck_assert_refused (error, PLAN_ERROR_INVALID, "nothing in the trace takes time");
  g_clear_error (&error);
  ck_assert (!plot_memory (empty, NULL, schedule, "", NULL, NULL, &error));
  ck_assert_refused (error, PLAN_ERROR_INVALID, "no memory");
  g_clear_error (&error);
  ck_assert (!plot_pareto (NULL, 0, 80, "", "", NULL, NULL, &error));
  ck_assert_refused (error, PLAN_ERROR_INVALID, "no plans");
}
END_TEST

/* Labels are drawn once, also where all of them are on the same side of their points. */
START_TEST (labels_are_drawn_once)
{
  static const PlotPoint two[] = { { "alpha", 5, 700, TRUE }, { "beta", 60, 900, TRUE } };
  g_autofree char *path = picture_path ("figure.svg");

  for (guint from = 0; from < 2; from++)
    for (guint n = 1; from + n <= 2; n++)
      {
        g_autofree char *svg = NULL;
        g_autoptr (GError) error = NULL;
        ck_assert (plot_pareto (two + from, n, 80, "", "", path, NULL, &error));
        ck_assert (g_file_get_contents (path, &svg, NULL, &error));
        ck_assert_uint_eq (count (svg, "alpha"), from == 0);
        ck_assert_uint_eq (count (svg, "beta"), from + n == 2);
      }
  g_remove (path);
}
END_TEST

/* Figures with few points, in every way in which values may be missing or equal. */
START_TEST (odd_points_are_drawn)
{
  static const PlotPoint odd[] = {
    { "", 0, 0, TRUE },
    { "one", 5, 7, TRUE },
    { "very long, as plans get that differ from the defaults in a great many fields", 5, 7, TRUE },
    { "far away", 1e9, 1e12, FALSE },
  };
  g_autofree char *path = picture_path ("figure.svg");

  for (guint from = 0; from < G_N_ELEMENTS (odd); from++)
    for (guint n = 1; from + n <= G_N_ELEMENTS (odd); n++)
      for (guint with_capacity = 0; with_capacity < 2; with_capacity++)
        {
          g_autofree char *text = NULL;
          g_autoptr (GError) error = NULL;

          ck_assert_msg (
              plot_pareto (odd + from, n, 80 * with_capacity, "", "", path, NULL, &error),
              "%u of %u: %s", n, from, error ? error->message : "");
          ck_assert_msg (
              plot_pareto (odd + from, n, 80 * with_capacity, "", "", NULL, &text, &error),
              "%u of %u: %s", n, from, error ? error->message : "");
        }
  g_remove (path);
}
END_TEST

START_TEST (failing_write_is_reported)
{
  g_autofree char *path = g_build_filename (out, "none", "figure.svg", NULL);
  g_autoptr (GError) error = NULL;

  ck_assert (!draw (0, "", path, NULL, &error));
  ck_assert_refused (error, PLAN_ERROR_IO, path);
}
END_TEST

/* Checks that where gnuplot fails an old picture stays, and no other file appears. */
static void
ck_assert_fails_cleanly (const char *search_path, PlanErrorCode code, const char *part)
{
  g_autofree char *before = g_strdup (g_getenv ("PATH"));
  g_autofree char *old = picture_path ("old.svg");
  g_autofree char *new = picture_path ("new.svg");
  g_autofree char *contents = NULL;
  g_autoptr (GError) error = NULL;

  ck_assert (g_file_set_contents (old, "as it was", -1, NULL));
  g_setenv ("PATH", search_path, TRUE);
  ck_assert (!draw (0, "", old, NULL, &error));
  ck_assert_refused (error, code, part);
  g_clear_error (&error);
  ck_assert (!draw (0, "", new, NULL, &error));
  g_setenv ("PATH", before, TRUE);

  ck_assert (g_file_get_contents (old, &contents, NULL, NULL));
  ck_assert_str_eq (contents, "as it was");
  g_remove (old);
  ck_assert_empty (out);
}

START_TEST (missing_gnuplot_is_unsupported)
{
  ck_assert_fails_cleanly (out, PLAN_ERROR_UNSUPPORTED, "gnuplot is needed");
}
END_TEST

/* Stand-ins for gnuplot that write half a picture and fail, each in another way. */
static const struct
{
  const char *script;
  const char *part;
} broken[] = {
  { "#!/bin/sh\necho half >figure.out\necho 'line 7: no such thing' >&2\nexit 1\n",
    "gnuplot: line 7: no such thing" },
  { "#!/bin/sh\necho half >figure.out\nkill -9 $$\n", "signal" },
  { "#!/bin/sh\n: >figure.out\n", "gnuplot wrote nothing" },
};

START_TEST (failing_gnuplot_is_reported)
{
  g_autofree char *bin = g_build_filename (base, "bin", NULL);
  g_autofree char *stand_in = g_build_filename (bin, "gnuplot", NULL);

  ck_assert_int_eq (g_mkdir_with_parents (bin, 0700), 0);
  ck_assert (g_file_set_contents_full (stand_in, broken[_i].script, -1,
                                       G_FILE_SET_CONTENTS_CONSISTENT, 0700, NULL));
  ck_assert_fails_cleanly (bin, PLAN_ERROR_BACKEND, broken[_i].part);
  g_remove (stand_in);
  g_rmdir (bin);
}
END_TEST

static Suite *
plot_suite (void)
{
  Suite *suite = suite_create ("plot");
  TCase *tcase = tcase_create ("plot");
  g_autofree char *gnuplot = g_find_program_in_path ("gnuplot");

  tcase_add_checked_fixture (tcase, setup, teardown);
  tcase_set_timeout (tcase, 0);
  tcase_add_test (tcase, data_files_are_exact);
  tcase_add_test (tcase, long_timeline_is_a_window);
  tcase_add_test (tcase, a_timeline_names_what_it_draws);
  tcase_add_test (tcase, long_memory_keeps_its_peak);
  tcase_add_loop_test (tcase, other_extensions_are_refused, 0, 3);
  tcase_add_test (tcase, nothing_to_draw);
  tcase_add_test (tcase, missing_gnuplot_is_unsupported);
  tcase_add_loop_test (tcase, failing_gnuplot_is_reported, 0, G_N_ELEMENTS (broken));
  if (gnuplot) /* the rest draws */
    {
      tcase_add_test (tcase, parts_of_a_step_have_both_times);
      tcase_add_loop_test (tcase, pictures_are_well_formed, 0, 3 * G_N_ELEMENTS (formats));
      tcase_add_loop_test (tcase, text_is_for_a_terminal, 0, 3);
      tcase_add_test (tcase, text_is_as_wide_as_the_terminal);
      tcase_add_test (tcase, titles_are_only_text);
      tcase_add_test (tcase, texts_are_no_code);
      tcase_add_test (tcase, every_category_is_drawn_once);
      tcase_add_test (tcase, odd_points_are_drawn);
      tcase_add_test (tcase, labels_are_drawn_once);
      tcase_add_test (tcase, failing_write_is_reported);
    }
  suite_add_tcase (suite, tcase);
  return suite;
}

int
main (void)
{
  SRunner *runner = srunner_create (plot_suite ());
  const char *parent = g_getenv ("TMPDIR");
  int n_failed;

  base = g_build_filename (parent ? parent : "/tmp", "fsdplan-plot-test-XXXXXX", NULL);
  if (!g_mkdtemp (base))
    return EXIT_FAILURE;
  tmp = g_build_filename (base, "tmp", NULL);
  out = g_build_filename (base, "out", NULL);
  if (g_mkdir (tmp, 0700) != 0 || g_mkdir (out, 0700) != 0)
    return EXIT_FAILURE;

  /* GLib reads TMPDIR once, before the first picture. */
  g_setenv ("TMPDIR", tmp, TRUE);
  g_unsetenv ("COLUMNS");
  srunner_run_all (runner, CK_ENV);
  n_failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  g_rmdir (tmp);
  g_rmdir (out);
  g_rmdir (base);
  g_free (tmp);
  g_free (out);
  g_free (base);
  return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
