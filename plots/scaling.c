/* SPDX-License-Identifier: Apache-2.0 */
/* Throughput and efficiency against the number of GPUs, a line for each plan. */
#include "config.h"

#include "plots/plot-private.h"

#include "planner/base/error.h"

#include <math.h>
#include <string.h>

static const char script[] =
#include "plots/scaling.gp.inc"
    ;

/* scaling.gp has a colour, a dash and a point type for each. */
#define MAX_LINES 8

/* Tick labels are at least this part of their axis apart; those nearer are left out. */
#define TIC_DISTANCE 0.13

/* A line: a strategy at every number of GPUs on which it fits, in rising order. */
typedef struct
{
  const char *name;
  GArray *points; /* PlotScalingPoint */
} Line;

static void
line_clear (gpointer data)
{
  g_array_unref (((Line *)data)->points);
}

static const PlotScalingPoint *
point_at (const Line *line, guint i)
{
  return &g_array_index (line->points, PlotScalingPoint, i);
}

static const Line *
line_at (const GArray *lines, guint i)
{
  return &g_array_index (lines, Line, i);
}

static gint
compare_sizes (gconstpointer a, gconstpointer b)
{
  const PlotScalingPoint *x = a, *y = b;

  return x->gpus < y->gpus ? -1 : x->gpus > y->gpus;
}

static void
add_point (GArray *lines, const PlotScalingPoint *point)
{
  guint i = 0;

  while (i < lines->len && strcmp (line_at (lines, i)->name, point->line) != 0)
    i++;
  if (i == lines->len)
    {
      Line line = { point->line, g_array_new (FALSE, FALSE, sizeof (PlotScalingPoint)) };

      g_array_append_val (lines, line);
    }
  g_array_append_vals (line_at (lines, i)->points, point, 1);
}

/* Joins the points that fit to lines; lines are in the order of their first points. */
static GArray *
find_lines (const PlotScalingPoint *points, guint n_points)
{
  GArray *lines = g_array_new (FALSE, FALSE, sizeof (Line));

  g_array_set_clear_func (lines, line_clear);
  for (guint i = 0; i < n_points; i++)
    if (points[i].fits)
      add_point (lines, &points[i]);
  for (guint i = 0; i < lines->len; i++)
    g_array_sort (line_at (lines, i)->points, compare_sizes);
  return lines;
}

static double
total_of (const PlotScalingPoint *point)
{
  return point->gpus * point->tokens_per_s_per_gpu;
}

/* Throughput per GPU in per cent of that at the line's smallest number of GPUs. */
static double
efficiency_of (const Line *line, guint i)
{
  return 100 * point_at (line, i)->tokens_per_s_per_gpu / point_at (line, 0)->tokens_per_s_per_gpu;
}

static GString *
make_data (const GArray *lines)
{
  GString *data = g_string_new (NULL);

  for (guint k = 0; k < lines->len; k++)
    {
      const Line *line = line_at (lines, k);
      g_autofree char *name = g_strdup_printf ("line%u", k + 1);

      plot_begin_block (
          data, name,
          "gpus tokens_per_s tokens_per_s_per_gpu efficiency_pct tokens_per_s_if_linear");
      for (guint i = 0; i < line->points->len; i++)
        {
          const PlotScalingPoint *point = point_at (line, i);

          g_string_append_printf (data, "%u ", point->gpus);
          plot_append_real (data, total_of (point), 1);
          g_string_append_c (data, ' ');
          plot_append_real (data, point->tokens_per_s_per_gpu, 2);
          g_string_append_c (data, ' ');
          plot_append_real (data, efficiency_of (line, i), 2);
          g_string_append_c (data, ' ');
          plot_append_real (data, point->gpus * point_at (line, 0)->tokens_per_s_per_gpu, 1);
          g_string_append_c (data, '\n');
        }
    }
  return data;
}

char *
plot_scaling_data (const PlotScalingPoint *points, guint n_points)
{
  g_autoptr (GArray) lines = find_lines (points, n_points);

  return g_string_free (make_data (lines), FALSE);
}

/* The most names in a note. If more lines fit nowhere, the note only says how many. */
#define MAX_NAMES 3

/* Whether a point and the one before it are on one line, and neither fits. */
static gboolean
continues (const PlotScalingPoint *points, guint i)
{
  return i > 0 && !points[i].fits && !points[i - 1].fits
         && strcmp (points[i].line, points[i - 1].line) == 0;
}

static gboolean
is_drawn (const GArray *lines, const char *name)
{
  for (guint i = 0; i < lines->len; i++)
    if (strcmp (line_at (lines, i)->name, name) == 0)
      return TRUE;
  return FALSE;
}

/* "fits nowhere: no_shard; does not fit: optim on 8 to 64"; NULL when all fit. The caller frees. */
static char *
make_note (const PlotScalingPoint *points, guint n_points, const GArray *lines)
{
  GString *note = g_string_new (NULL);
  g_autoptr (GString) some = g_string_new (NULL);
  g_autoptr (GPtrArray) nowhere = g_ptr_array_new ();

  for (guint i = 0; i < n_points; i++)
    {
      gboolean is_last = i + 1 == n_points || !continues (points, i + 1);

      if (points[i].fits)
        continue;
      if (!is_drawn (lines, points[i].line))
        {
          if (!g_ptr_array_find_with_equal_func (nowhere, points[i].line, g_str_equal, NULL))
            g_ptr_array_add (nowhere, (gpointer)points[i].line);
        }
      else if (!continues (points, i))
        g_string_append_printf (some, "%s%s on %u",
                                some->len > 0 ? ", " : "does not fit: ", points[i].line,
                                points[i].gpus);
      else if (is_last)
        g_string_append_printf (some, " to %u", points[i].gpus);
    }
  if (nowhere->len > MAX_NAMES)
    g_string_append_printf (note, "%u others fit nowhere", nowhere->len);
  for (guint i = 0; i < nowhere->len && nowhere->len <= MAX_NAMES; i++)
    g_string_append_printf (note, "%s%s",
                            i > 0 ? ", " : "fits nowhere: ", (const char *)nowhere->pdata[i]);
  g_string_append_printf (note, "%s%s", note->len > 0 && some->len > 0 ? "; " : "", some->str);
  return g_string_free (note, note->len == 0);
}

/* Ends of the axes. */
typedef struct
{
  guint least_gpus, most_gpus;
  double least_total, most_total, most_per_gpu, most_efficiency;
} Ends;

static Ends
find_ends (const GArray *lines)
{
  Ends ends = { .least_gpus = G_MAXUINT, .least_total = G_MAXDOUBLE, .most_efficiency = 100 };

  for (guint k = 0; k < lines->len; k++)
    for (guint i = 0; i < line_at (lines, k)->points->len; i++)
      {
        const Line *line = line_at (lines, k);
        const PlotScalingPoint *point = point_at (line, i);
        double linear = point->gpus * point_at (line, 0)->tokens_per_s_per_gpu;

        ends.least_gpus = MIN (ends.least_gpus, point->gpus);
        ends.most_gpus = MAX (ends.most_gpus, point->gpus);
        ends.least_total = MIN (ends.least_total, total_of (point));
        ends.most_total = MAX (ends.most_total, MAX (total_of (point), linear));
        ends.most_per_gpu = MAX (ends.most_per_gpu, point->tokens_per_s_per_gpu);
        ends.most_efficiency = MAX (ends.most_efficiency, efficiency_of (line, i));
      }
  return ends;
}

/* Writes the numbers of GPUs on the axis, as far as they do not collide. */
static void
set_sizes (const GArray *lines, const Ends *ends, PlotFigure *figure)
{
  double range = MAX (log2 ((double)ends->most_gpus / ends->least_gpus), 1), last = -range;
  const char *separator = "";

  g_string_append (figure->settings, "set xtics (");
  for (guint size = ends->least_gpus; size > 0 && size <= ends->most_gpus;)
    {
      guint next = 0;

      if (log2 (size) - last >= TIC_DISTANCE * range)
        {
          g_string_append_printf (figure->settings, "%s%u", separator, size);
          separator = ", ";
          last = log2 (size);
        }
      for (guint k = 0; k < lines->len; k++)
        for (guint i = 0; i < line_at (lines, k)->points->len; i++)
          {
            guint other = point_at (line_at (lines, k), i)->gpus;

            if (other > size && (next == 0 || other < next))
              next = other;
          }
      size = next;
    }
  g_string_append (figure->settings, ")\n");
}

static void
set_variables (const GArray *lines, const Ends *ends, PlotFigure *figure)
{
  g_string_append_printf (figure->settings, "n_lines = %u\narray key[%u]\n", lines->len,
                          lines->len);
  for (guint k = 0; k < lines->len; k++)
    {
      g_autofree char *name = g_strdup_printf ("key[%u]", k + 1);

      plot_figure_set_text (figure, name, line_at (lines, k)->name);
    }
  plot_figure_set_real (figure, "from", ends->least_gpus / 1.15);
  plot_figure_set_real (figure, "to", ends->most_gpus * 1.15);
  plot_figure_set_real (figure, "total_from", ends->least_total / 1.3);
  plot_figure_set_real (figure, "total_to", ends->most_total * 1.3);
  plot_figure_set_real (figure, "per_gpu_to", ends->most_per_gpu * 1.1);
  plot_figure_set_real (figure, "efficiency_to", ends->most_efficiency * 1.08);
  set_sizes (lines, ends, figure);
}

/* Appends a bar; `width` cells stand for `most`. */
static void
append_bar (GString *text, double value, double most, guint width)
{
  guint n = (guint)(width * value / most + 0.5);

  for (guint i = 0; i < n; i++)
    g_string_append_c (text, '#');
}

/* In text output every line is a table, with a bar for the throughput per GPU. */
static char *
make_text (const GArray *lines, const Ends *ends, guint columns)
{
  static const guint taken = 53; /* columns of the numbers */
  GString *text = g_string_new (NULL);

  for (guint k = 0; k < lines->len; k++)
    {
      const Line *line = line_at (lines, k);

      g_string_append_printf (text, "%s%s\n", k > 0 ? "\n" : "", line->name);
      g_string_append (text, "    GPUs      tokens/s   tokens/s/GPU   efficiency\n");
      for (guint i = 0; i < line->points->len; i++)
        {
          const PlotScalingPoint *point = point_at (line, i);
          char total[G_ASCII_DTOSTR_BUF_SIZE], per_gpu[G_ASCII_DTOSTR_BUF_SIZE],
              efficiency[G_ASCII_DTOSTR_BUF_SIZE];

          g_ascii_formatd (total, sizeof total, "%14.0f", total_of (point));
          g_ascii_formatd (per_gpu, sizeof per_gpu, "%15.1f", point->tokens_per_s_per_gpu);
          g_ascii_formatd (efficiency, sizeof efficiency, "%11.1f", efficiency_of (line, i));
          g_string_append_printf (text, "%8u%s%s%s %%  ", point->gpus, total, per_gpu, efficiency);
          append_bar (text, point->tokens_per_s_per_gpu, ends->most_per_gpu, columns - taken);
          g_string_append_c (text, '\n');
        }
    }
  return g_string_free (text, FALSE);
}

static gboolean
check (const PlotScalingPoint *points, guint n_points, const GArray *lines, GError **error)
{
  for (guint i = 0; i < n_points; i++)
    if (points[i].gpus == 0 || (points[i].fits && !(points[i].tokens_per_s_per_gpu > 0)))
      {
        g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                     "cannot draw scaling: %s on %u GPUs has no throughput", points[i].line,
                     points[i].gpus);
        return FALSE;
      }
  if (lines->len > 0 && lines->len <= MAX_LINES)
    return TRUE;
  if (lines->len == 0)
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_INFEASIBLE,
                 "cannot draw scaling: nothing fits at any size: --set recompute=full takes less "
                 "memory, and --plan @ID draws what query answers");
  else
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                 "cannot draw scaling: %u lines are more than the %d that can be told apart",
                 lines->len, MAX_LINES);
  return FALSE;
}

gboolean
plot_scaling (const PlotScalingPoint *points, guint n_points, const char *title, const char *path,
              char **out_text, GError **error)
{
  g_auto (PlotFigure) figure = { 0 };
  g_autoptr (GArray) lines = find_lines (points, n_points);
  g_autofree char *note = make_note (points, n_points, lines);
  g_autofree char *text = NULL;
  Ends ends;

  if (!plot_figure_init (&figure, path, script, error) || !check (points, n_points, lines, error))
    return FALSE;
  ends = find_ends (lines);
  plot_figure_set_title (&figure, title, note);
  if (figure.format == PLOT_TEXT)
    {
      text = make_text (lines, &ends, figure.columns);
      return plot_figure_write (&figure, text, out_text, error);
    }
  figure.data = g_string_free (make_data (lines), FALSE);
  set_variables (lines, &ends, &figure);
  return plot_figure_draw (&figure, out_text, error);
}
