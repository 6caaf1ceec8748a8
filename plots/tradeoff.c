/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "plots/labels.h"

#include "planner/error.h"

#include <string.h>

static const char script[] =
#include "plots/tradeoff.gp.inc"
    ;

/* Edges of the plot as parts of the picture: labels are placed here, so gnuplot is told. */
static const PlotBox area = { 0.085, 0.975, 0.2, 0.885 };

/* tradeoff.gp has a colour, a dash and a point for each. */
#define MAX_LINES 8

/* A capacity of more than so many times what the points want is not drawn: they would be one. */
#define FAR_AWAY 2.0

/* What is drawn. */
typedef struct
{
  const PlotTradeoffPoint *points;
  guint n_points;
  GPtrArray *lines; /* their names, as they begin */
  PlotBox range;
  double capacity_gib; /* 0: none to draw */
} View;

static GPtrArray *
find_lines (const PlotTradeoffPoint *points, guint n_points)
{
  GPtrArray *lines = g_ptr_array_new ();

  for (guint i = 0; i < n_points; i++)
    if (!g_ptr_array_find_with_equal_func (lines, points[i].line, g_str_equal, NULL))
      g_ptr_array_add (lines, (gpointer)points[i].line);
  return lines;
}

static GString *
make_data (const PlotTradeoffPoint *points, guint n_points, const GPtrArray *lines)
{
  GString *data = g_string_new (NULL);

  for (guint k = 0; k < lines->len; k++)
    {
      g_autofree char *name = g_strdup_printf ("line%u", k + 1);

      plot_begin_block (data, name, "step_ms memory_gib label");
      for (guint i = 0; i < n_points; i++)
        {
          if (strcmp (points[i].line, lines->pdata[k]) != 0)
            continue;
          plot_append_real (data, points[i].step_ms, 4);
          g_string_append_c (data, ' ');
          plot_append_real (data, points[i].memory_gib, 4);
          g_string_append_c (data, ' ');
          plot_append_quoted (data, points[i].label);
          g_string_append_c (data, '\n');
        }
    }
  return data;
}

char *
plot_tradeoff_data (const PlotTradeoffPoint *points, guint n_points)
{
  g_autoptr (GPtrArray) lines = find_lines (points, n_points);

  return g_string_free (make_data (points, n_points, lines), FALSE);
}

/* A tenth of air on all sides; of the value itself where there is only one. */
static void
find_range (View *self, double capacity_gib)
{
  PlotBox range = { .left = G_MAXDOUBLE, .bottom = G_MAXDOUBLE };
  double width, height;

  for (guint i = 0; i < self->n_points; i++)
    {
      range.left = MIN (range.left, self->points[i].step_ms);
      range.right = MAX (range.right, self->points[i].step_ms);
      range.bottom = MIN (range.bottom, self->points[i].memory_gib);
      range.top = MAX (range.top, self->points[i].memory_gib);
    }
  if (capacity_gib > 0 && capacity_gib <= FAR_AWAY * range.top)
    {
      self->capacity_gib = capacity_gib;
      range.bottom = MIN (range.bottom, capacity_gib);
      range.top = MAX (range.top, capacity_gib);
    }
  width = MAX (range.right - range.left, 0.02 * range.right);
  height = MAX (range.top - range.bottom, 0.02 * range.top);
  self->range = (PlotBox){
    .left = MAX (range.left - 0.1 * width, 0),
    .right = range.right + MAX (0.1 * width, 1e-6),
    .bottom = MAX (range.bottom - 0.1 * height, 0),
    .top = range.top + MAX (0.1 * height, 1e-6),
  };
}

/* The point before this one on its line; the point itself where it is the first. */
static const PlotTradeoffPoint *
before (const View *self, guint i)
{
  for (guint k = i; k-- > 0;)
    if (strcmp (self->points[k].line, self->points[i].line) == 0)
      return &self->points[k];
  return &self->points[i];
}

static void
append_labels (GString *data, const View *self, PlotFigure *figure)
{
  g_auto (PlotLabels) labels = { 0 };

  plot_labels_init (&labels, &self->range, &area);
  if (self->capacity_gib > 0)
    plot_labels_avoid_line (&labels, self->range.left, self->capacity_gib, self->range.right,
                            self->capacity_gib, TRUE);
  for (guint i = 0; i < self->n_points; i++)
    {
      const PlotTradeoffPoint *to = &self->points[i], *from = before (self, i);

      plot_labels_avoid_point (&labels, to->step_ms, to->memory_gib);
      plot_labels_avoid_line (&labels, from->step_ms, from->memory_gib, to->step_ms, to->memory_gib,
                              FALSE);
    }
  for (guint i = 0; i < self->n_points; i++)
    plot_labels_place (&labels, self->points[i].step_ms, self->points[i].memory_gib,
                       self->points[i].label, TRUE);
  plot_labels_append (&labels, data, figure);
}

static void
append_listed (GString *footer, guint number, const PlotTradeoffPoint *point)
{
  char memory[G_ASCII_DTOSTR_BUF_SIZE], step[G_ASCII_DTOSTR_BUF_SIZE];

  g_ascii_formatd (memory, sizeof memory, "%10.2f", point->memory_gib);
  g_ascii_formatd (step, sizeof step, "%12.2f", point->step_ms);
  g_string_append_printf (footer, "  %3u %s GiB %s ms   %s%s%s\n", number, memory, step,
                          point->label, *point->line ? " " : "", point->line);
}

/* In a text points are numbers, which a list below explains. */
static void
append_numbers (GString *data, const View *self, PlotFigure *figure)
{
  g_autofree double *x = g_new (double, self->n_points);
  g_autofree double *y = g_new (double, self->n_points);

  for (guint i = 0; i < self->n_points; i++)
    {
      append_listed (figure->footer, i + 1, &self->points[i]);
      x[i] = self->points[i].step_ms;
      y[i] = self->points[i].memory_gib;
    }
  plot_append_numbers (data, &self->range, figure, x, y, self->n_points);
}

static void
set_variables (const View *self, PlotFigure *figure)
{
  g_autoptr (GString) key = g_string_new ("capacity, ");

  g_string_append_printf (figure->settings, "n_lines = %u\narray key[%u]\n", self->lines->len,
                          self->lines->len);
  for (guint k = 0; k < self->lines->len; k++)
    {
      g_autofree char *name = g_strdup_printf ("key[%u]", k + 1);

      plot_figure_set_text (figure, name, self->lines->pdata[k]);
    }
  plot_figure_set_real (figure, "x_from", self->range.left);
  plot_figure_set_real (figure, "x_to", self->range.right);
  plot_figure_set_real (figure, "y_from", self->range.bottom);
  plot_figure_set_real (figure, "y_to", self->range.top);
  plot_figure_set_real (figure, "left", area.left);
  plot_figure_set_real (figure, "right", area.right);
  plot_figure_set_real (figure, "bottom", area.bottom);
  plot_figure_set_real (figure, "top", area.top);
  plot_figure_set_real (figure, "capacity", self->capacity_gib);
  plot_append_real (key, self->capacity_gib, 1);
  g_string_append (key, " GiB");
  plot_figure_set_text (figure, "capacity_key", key->str);
}

static gboolean
check (const View *self, GError **error)
{
  if (self->n_points == 0)
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                 "cannot draw memory against time: there are no plans");
  else if (self->lines->len > MAX_LINES)
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                 "cannot draw memory against time: %u lines are more than the %d that can be told "
                 "apart",
                 self->lines->len, MAX_LINES);
  else
    return TRUE;
  return FALSE;
}

gboolean
plot_tradeoff (const PlotTradeoffPoint *points, guint n_points, double capacity_gib,
               const char *title, const char *path, char **out_text, GError **error)
{
  g_auto (PlotFigure) figure = { 0 };
  g_autoptr (GPtrArray) lines = find_lines (points, n_points);
  g_autofree char *note = NULL;
  View view = { .points = points, .n_points = n_points, .lines = lines };
  GString *data;

  if (!plot_figure_init (&figure, path, script, error) || !check (&view, error))
    return FALSE;
  find_range (&view, capacity_gib);
  data = make_data (points, n_points, lines);
  if (figure.format == PLOT_TEXT)
    append_numbers (data, &view, &figure);
  else
    append_labels (data, &view, &figure);
  figure.data = g_string_free (data, FALSE);
  if (capacity_gib > view.capacity_gib)
    note = g_strdup_printf ("all far below the capacity of %.0f GiB", capacity_gib);
  plot_figure_set_title (&figure, title, note);
  set_variables (&view, &figure);
  return plot_figure_draw (&figure, out_text, error);
}
