/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "plots/labels.h"

#include "planner/base/error.h"

static const char script[] =
#include "plots/pareto.gp.inc"
    ;

/* Edges of the plot, in parts of the picture. Labels are placed here, so gnuplot is told. */
#define LEFT 0.085
#define RIGHT 0.975
#define BOTTOM 0.17
#define TOP 0.885

/* Points with more than this multiple of the device's memory, or of the least memory of any point,
 * are left out, since they would squeeze the others. */
#define MAX_CAPACITIES 2.0

static gint
compare_points (gconstpointer a, gconstpointer b, gpointer user_data)
{
  const PlotPoint *points = user_data;
  guint i = *(const guint *)a, j = *(const guint *)b;
  const PlotPoint *x = &points[i], *y = &points[j];

  if (x->memory_gib != y->memory_gib)
    return x->memory_gib < y->memory_gib ? -1 : 1;
  if (x->tokens_per_s != y->tokens_per_s)
    return x->tokens_per_s > y->tokens_per_s ? -1 : 1;
  return i < j ? -1 : i > j;
}

/* The front, by memory: indices of the points that fit and that no other beats in both respects. */
static GArray *
find_front (const PlotPoint *points, guint n_points)
{
  GArray *order = g_array_new (FALSE, FALSE, sizeof (guint));
  guint n_front = 0;
  double best = 0;

  for (guint i = 0; i < n_points; i++)
    if (points[i].fits)
      g_array_append_val (order, i);
  g_array_sort_with_data (order, compare_points, (gpointer)points);
  for (guint k = 0; k < order->len; k++)
    {
      guint i = g_array_index (order, guint, k);

      if (n_front > 0 && points[i].tokens_per_s <= best)
        continue;
      best = points[i].tokens_per_s;
      g_array_index (order, guint, n_front++) = i;
    }
  return g_array_set_size (order, n_front);
}

static gboolean
is_in (const GArray *front, guint point)
{
  for (guint k = 0; k < front->len; k++)
    if (g_array_index (front, guint, k) == point)
      return TRUE;
  return FALSE;
}

static void
append_point (GString *data, const PlotPoint *point)
{
  plot_append_real (data, point->memory_gib, 4);
  g_string_append_c (data, ' ');
  plot_append_real (data, point->tokens_per_s, 2);
  g_string_append_c (data, ' ');
  plot_append_quoted (data, point->label ? point->label : "");
  g_string_append_c (data, '\n');
}

static GString *
make_data (const PlotPoint *points, guint n_points, const GArray *front)
{
  static const char columns[] = "memory_gib tokens_per_s label";
  GString *data = g_string_new (NULL);

  plot_begin_block (data, "front", columns);
  for (guint k = 0; k < front->len; k++)
    append_point (data, &points[g_array_index (front, guint, k)]);
  plot_begin_block (data, "others", columns);
  for (guint i = 0; i < n_points; i++)
    if (points[i].fits && !is_in (front, i))
      append_point (data, &points[i]);
  plot_begin_block (data, "unfit", columns);
  for (guint i = 0; i < n_points; i++)
    if (!points[i].fits)
      append_point (data, &points[i]);
  return data;
}

char *
plot_pareto_data (const PlotPoint *points, guint n_points)
{
  g_autoptr (GArray) front = find_front (points, n_points);

  return g_string_free (make_data (points, n_points, front), FALSE);
}

/* Finds ranges with some margin around all points and the capacity; counts the points left out. */
static PlotBox
find_range (const PlotPoint *points, guint n_points, double capacity_gib, guint *out_n_beyond)
{
  double least = G_MAXDOUBLE, limit = G_MAXDOUBLE;
  PlotBox range = { .left = G_MAXDOUBLE, .bottom = G_MAXDOUBLE };
  double width, height;

  for (guint i = 0; i < n_points; i++)
    least = MIN (least, points[i].memory_gib);
  if (capacity_gib > 0)
    {
      range.left = range.right = capacity_gib;
      limit = MAX_CAPACITIES * MAX (capacity_gib, least);
    }
  *out_n_beyond = 0;
  for (guint i = 0; i < n_points; i++)
    {
      const PlotPoint *point = &points[i];

      if (point->memory_gib > limit)
        {
          ++*out_n_beyond;
          continue;
        }
      range.left = MIN (range.left, point->memory_gib);
      range.right = MAX (range.right, point->memory_gib);
      range.bottom = MIN (range.bottom, point->tokens_per_s);
      range.top = MAX (range.top, point->tokens_per_s);
    }
  range.bottom = MIN (range.bottom, range.top);

  /* a tenth on all sides; of the value itself where there is only one */
  width = MAX (range.right - range.left, 0.02 * range.right);
  height = MAX (range.top - range.bottom, 0.02 * range.top);
  range.left = MAX (range.left - 0.1 * width, 0);
  range.right += MAX (0.1 * width, 1e-3);
  range.bottom = MAX (range.bottom - 0.1 * height, 0);
  range.top += MAX (0.1 * height, 1e-3);
  return range;
}

GArray *
plot_pareto_marks (const PlotPoint *points, guint n_points, double capacity_gib)
{
  GArray *marks = g_array_new (FALSE, FALSE, sizeof (PlotMark));
  g_autoptr (GArray) front = find_front (points, n_points);
  guint n_beyond;

  if (n_points == 0)
    return marks;
  const PlotBox range = find_range (points, n_points, capacity_gib, &n_beyond);
  for (guint k = 0; k < front->len; k++)
    {
      const guint i = g_array_index (front, guint, k);
      const double right = (points[i].memory_gib - range.left) / (range.right - range.left);
      const double up = (points[i].tokens_per_s - range.bottom) / (range.top - range.bottom);
      const PlotMark mark = { .point = i,
                              .x = PLOT_WIDTH * (LEFT + (RIGHT - LEFT) * right),
                              .y = PLOT_HEIGHT * (1 - BOTTOM - (TOP - BOTTOM) * up) };
      if (right <= 1)
        g_array_append_val (marks, mark);
    }
  return marks;
}

/* What is drawn. */
typedef struct
{
  const PlotPoint *points;
  guint n_points;
  const GArray *front;
  PlotBox range;
  double capacity_gib;
} View;

static const PlotPoint *
front_at (const View *view, guint k)
{
  return &view->points[g_array_index (view->front, guint, k)];
}

static void
append_listed (PlotFigure *figure, guint number, const PlotPoint *point)
{
  const gboolean is_text = figure->format == PLOT_TEXT;
  char memory[G_ASCII_DTOSTR_BUF_SIZE], tokens[G_ASCII_DTOSTR_BUF_SIZE];

  g_ascii_formatd (memory, sizeof memory, is_text ? "%10.2f" : "%.2f", point->memory_gib);
  g_ascii_formatd (tokens, sizeof tokens, is_text ? "%12.0f" : "%.0f", point->tokens_per_s);
  g_string_append_printf (figure->footer,
                          is_text ? "  %3u %s GiB %s tokens/s/GPU   %s\n"
                                  : "%u: %s GiB, %s tokens/s/GPU, %s\n",
                          number, memory, tokens, point->label);
}

/* What a text's marks mean, whose plot has no key. */
static void
append_key (GString *footer, const View *view, guint n_others, guint n_unfit)
{
  g_string_append (footer, "  numbers: best for their memory, fastest first");
  if (n_others > 0)
    g_string_append (footer, "   . other plans");
  if (n_unfit > 0)
    g_string_append (footer, "   x does not fit");
  if (view->capacity_gib > 0)
    {
      g_string_append (footer, "   | capacity, ");
      plot_append_real (footer, view->capacity_gib, 0);
      g_string_append (footer, " GiB");
    }
  g_string_append (footer, "\n\n");
}

/* The points of the front are numbers, from the fastest on, which a list below explains. */
static void
append_numbers (GString *data, const View *view, PlotFigure *figure)
{
  static const PlotBox area = { LEFT, RIGHT, BOTTOM, TOP };
  guint n = view->front->len;
  g_autofree double *memory_gib = g_new (double, n);
  g_autofree double *tokens_per_s = g_new (double, n);

  for (guint k = 0; k < n; k++)
    {
      const PlotPoint *point = front_at (view, n - 1 - k);

      if (point->label)
        append_listed (figure, k + 1, point);
      memory_gib[k] = point->memory_gib;
      tokens_per_s[k] = point->tokens_per_s;
    }
  plot_figure_set_real (
      figure, "n_numbers",
      plot_append_numbers (data, &view->range, &area, figure, memory_gib, tokens_per_s, n));
}

static void
set_variables (const View *view, PlotFigure *figure)
{
  g_autoptr (GString) key = g_string_new ("capacity, ");
  guint n_unfit = 0;

  for (guint i = 0; i < view->n_points; i++)
    n_unfit += !view->points[i].fits;
  plot_figure_set_real (figure, "x_from", view->range.left);
  plot_figure_set_real (figure, "x_to", view->range.right);
  plot_figure_set_real (figure, "y_from", view->range.bottom);
  plot_figure_set_real (figure, "y_to", view->range.top);
  plot_figure_set_real (figure, "left", LEFT);
  plot_figure_set_real (figure, "right", RIGHT);
  plot_figure_set_real (figure, "bottom", BOTTOM);
  plot_figure_set_real (figure, "top", TOP);
  plot_figure_set_real (figure, "n_front", view->front->len);
  plot_figure_set_real (figure, "n_unfit", n_unfit);
  plot_figure_set_real (figure, "n_others", view->n_points - view->front->len - n_unfit);
  plot_figure_set_real (figure, "capacity", view->capacity_gib);
  plot_append_real (key, view->capacity_gib, 0);
  g_string_append (key, " GiB");
  plot_figure_set_text (figure, "capacity_key", key->str);
  plot_figure_set_real (figure, "numbers_above", plot_numbers_above (figure));
  plot_figure_set_real (figure, "numbers_below", PLOT_NUMBERS_BELOW);
  if (figure->format == PLOT_TEXT)
    append_key (figure->footer, view, view->n_points - view->front->len - n_unfit, n_unfit);
}

gboolean
plot_pareto (const PlotPoint *points, guint n_points, double capacity_gib, const char *memory,
             const char *title, const char *path, char **out_text, GError **error)
{
  g_auto (PlotFigure) figure = { 0 };
  g_autoptr (GArray) front = NULL;
  g_autofree char *note = NULL;
  g_autoptr (GString) data = NULL;
  View view;
  guint n_beyond;

  if (!plot_figure_init (&figure, path, script, error))
    return FALSE;
  if (n_points == 0)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "cannot draw memory against throughput: there are no plans");
      return FALSE;
    }

  front = find_front (points, n_points);
  view = (View){ .points = points,
                 .n_points = n_points,
                 .front = front,
                 .range = find_range (points, n_points, capacity_gib, &n_beyond),
                 .capacity_gib = capacity_gib };
  if (n_beyond > 0)
    note = g_strdup_printf ("left out: %u plan%s far more memory", n_beyond,
                            n_beyond == 1 ? " that wants" : "s that want");
  plot_figure_set_title (&figure, title, note);
  plot_figure_set_text (&figure, "memory", memory);
  set_variables (&view, &figure);
  data = make_data (points, n_points, front);
  append_numbers (data, &view, &figure);
  figure.data = g_string_free (g_steal_pointer (&data), FALSE);
  return plot_figure_draw (&figure, out_text, error);
}
