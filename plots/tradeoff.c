/* SPDX-License-Identifier: Apache-2.0 */
/* Memory against step time as one or two fields vary, a line along the first. */
#include "config.h"

#include "plots/labels.h"

#include "planner/base/error.h"

#include <string.h>

static const char script[] =
#include "plots/tradeoff.gp.inc"
    ;

/* Edges of the plot, as parts of the picture. They are fixed, so that labels can be placed here
 * before gnuplot draws. */
static const PlotBox area = { 0.085, 0.975, 0.2, 0.885 };

/* tradeoff.gp has a colour, a dash and a point type for each. */
#define MAX_LINES 8

/* What is drawn. */
typedef struct
{
  const PlotTradeoffPoint *points;
  guint n_points;
  GPtrArray *lines; /* names of the lines, in the order in which they begin */
  PlotBox range;
  const char *time_unit, *memory_unit;
  double unit_ns, unit_bytes;
  double capacity; /* in that unit; 0: none to draw */
} View;

static double
time_of (const View *self, const PlotTradeoffPoint *point)
{
  return (double)point->step_ns / self->unit_ns;
}

static double
memory_of (const View *self, const PlotTradeoffPoint *point)
{
  return (double)point->memory_bytes / self->unit_bytes;
}

static GPtrArray *
find_lines (const PlotTradeoffPoint *points, guint n_points)
{
  GPtrArray *lines = g_ptr_array_new ();

  for (guint i = 0; i < n_points; i++)
    if (!g_ptr_array_find_with_equal_func (lines, points[i].line, g_str_equal, NULL))
      g_ptr_array_add (lines, (gpointer)points[i].line);
  return lines;
}

static void
view_init (View *self, const PlotTradeoffPoint *points, guint n_points)
{
  double most_ns = 0, most_bytes = 0;

  *self = (View){ .points = points, .n_points = n_points, .lines = find_lines (points, n_points) };
  for (guint i = 0; i < n_points; i++)
    {
      most_ns = MAX (most_ns, (double)points[i].step_ns);
      most_bytes = MAX (most_bytes, (double)points[i].memory_bytes);
    }
  self->time_unit = plot_time_unit (most_ns, &self->unit_ns);
  self->memory_unit = plot_memory_unit (most_bytes, &self->unit_bytes);
}

static void
view_clear (View *self)
{
  g_clear_pointer (&self->lines, g_ptr_array_unref);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (View, view_clear)

static GString *
make_data (const View *self)
{
  GString *data = g_string_new (NULL);
  g_autofree char *columns
      = g_strdup_printf ("step_%s memory_%s label", self->time_unit, self->memory_unit);

  for (guint k = 0; k < self->lines->len; k++)
    {
      g_autofree char *name = g_strdup_printf ("line%u", k + 1);

      plot_begin_block (data, name, columns);
      for (guint i = 0; i < self->n_points; i++)
        {
          const PlotTradeoffPoint *point = &self->points[i];

          if (strcmp (point->line, self->lines->pdata[k]) != 0)
            continue;
          plot_append_real (data, time_of (self, point), 4);
          g_string_append_c (data, ' ');
          plot_append_real (data, memory_of (self, point), 4);
          g_string_append_c (data, ' ');
          plot_append_quoted (data, point->label);
          g_string_append_c (data, '\n');
        }
    }
  return data;
}

char *
plot_tradeoff_data (const PlotTradeoffPoint *points, guint n_points)
{
  g_auto (View) view = { 0 };

  view_init (&view, points, n_points);
  return g_string_free (make_data (&view), FALSE);
}

/* Sets the axes' ranges: those of the points and a tenth on all sides, of the value itself where
 * there is only one. */
static void
find_range (View *self, double capacity)
{
  PlotBox range = { .left = G_MAXDOUBLE, .bottom = G_MAXDOUBLE };
  double width, height;

  for (guint i = 0; i < self->n_points; i++)
    {
      range.left = MIN (range.left, time_of (self, &self->points[i]));
      range.right = MAX (range.right, time_of (self, &self->points[i]));
      range.bottom = MIN (range.bottom, memory_of (self, &self->points[i]));
      range.top = MAX (range.top, memory_of (self, &self->points[i]));
    }
  if (capacity > 0 && capacity <= PLOT_FAR_AWAY * range.top)
    {
      self->capacity = capacity;
      range.bottom = MIN (range.bottom, capacity);
      range.top = MAX (range.top, capacity);
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
  if (self->capacity > 0)
    plot_labels_avoid_line (&labels, self->range.left, self->capacity, self->range.right,
                            self->capacity, TRUE);
  for (guint i = 0; i < self->n_points; i++)
    {
      const PlotTradeoffPoint *to = &self->points[i], *from = before (self, i);

      plot_labels_avoid_point (&labels, time_of (self, to), memory_of (self, to));
      plot_labels_avoid_line (&labels, time_of (self, from), memory_of (self, from),
                              time_of (self, to), memory_of (self, to), FALSE);
    }
  for (guint i = 0; i < self->n_points; i++)
    plot_labels_place (&labels, time_of (self, &self->points[i]),
                       memory_of (self, &self->points[i]), self->points[i].label, TRUE);
  plot_labels_append (&labels, data, figure);
}

static void
append_listed (GString *footer, const View *self, guint number)
{
  const PlotTradeoffPoint *point = &self->points[number - 1];
  char memory[G_ASCII_DTOSTR_BUF_SIZE], step[G_ASCII_DTOSTR_BUF_SIZE];

  g_ascii_formatd (memory, sizeof memory, "%10.2f", memory_of (self, point));
  g_ascii_formatd (step, sizeof step, "%12.2f", time_of (self, point));
  g_string_append_printf (footer, "  %3u %s %s %s %s   %s%s%s\n", number, memory, self->memory_unit,
                          step, self->time_unit, point->label, *point->line ? " " : "",
                          point->line);
}

/* In a text points are numbers, which a list below explains. */
static void
append_numbers (GString *data, const View *self, PlotFigure *figure)
{
  g_autofree double *x = g_new (double, self->n_points);
  g_autofree double *y = g_new (double, self->n_points);

  for (guint i = 0; i < self->n_points; i++)
    {
      append_listed (figure->footer, self, i + 1);
      x[i] = time_of (self, &self->points[i]);
      y[i] = memory_of (self, &self->points[i]);
    }
  plot_append_numbers (data, &self->range, &area, figure, x, y, self->n_points);
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
  plot_figure_set_real (figure, "capacity", self->capacity);
  plot_append_real (key, self->capacity, 1);
  g_string_append_printf (key, " %s", self->memory_unit);
  plot_figure_set_text (figure, "time_unit", self->time_unit);
  plot_figure_set_text (figure, "memory_unit", self->memory_unit);
  plot_figure_set_text (figure, "capacity_key", key->str);
  plot_figure_set_real (figure, "numbers_above", plot_numbers_above (figure));
  plot_figure_set_real (figure, "numbers_below", PLOT_NUMBERS_BELOW);
  if (figure->format == PLOT_TEXT)
    g_string_append_printf (figure->footer, "  numbers: plans%s%s\n\n",
                            self->capacity > 0 ? "   - " : "", self->capacity > 0 ? key->str : "");
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
plot_tradeoff (const PlotTradeoffPoint *points, guint n_points, guint64 capacity_bytes,
               const char *title, const char *path, char **out_text, GError **error)
{
  g_auto (PlotFigure) figure = { 0 };
  g_auto (View) view = { 0 };
  g_autofree char *note = NULL;
  GString *data;

  view_init (&view, points, n_points);
  if (!plot_figure_init (&figure, path, script, error) || !check (&view, error))
    return FALSE;
  find_range (&view, (double)capacity_bytes / view.unit_bytes);
  if (capacity_bytes > 0 && view.capacity <= 0)
    note = plot_far_below (capacity_bytes);
  plot_figure_set_title (&figure, title, note);
  set_variables (&view, &figure);
  data = make_data (&view);
  if (figure.format == PLOT_TEXT)
    append_numbers (data, &view, &figure);
  else
    append_labels (data, &view, &figure);
  figure.data = g_string_free (data, FALSE);
  return plot_figure_draw (&figure, out_text, error);
}
