/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "plots/plot-private.h"

#include "planner/error.h"

static const char script[] =
#include "plots/pareto.gp.inc"
    ;

/* Edges of the plot as parts of the picture: labels are placed here, so gnuplot is told. */
#define LEFT 0.085
#define RIGHT 0.975
#define BOTTOM 0.17
#define TOP 0.885

/* A label's size in points, and its distance from its point. */
#define CHARACTER_WIDTH 7.5
#define LINE_HEIGHT 14.0
#define DISTANCE 9.0

#define MAX_LABEL 48 /* characters */

/* Points with more memory than so many devices have are left out: they would squeeze the rest. */
#define MAX_CAPACITIES 2.0

typedef struct
{
  double left, right, bottom, top;
} Range;

typedef Range Box; /* in points of the picture */

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

/* Indices of the points that fit and that no other one beats in both, by memory. */
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
begin_block (GString *data, const char *name, const char *columns)
{
  g_string_append_printf (data, "%s# %s\n# %s\n", data->len > 0 ? "\n\n" : "", columns, name);
}

static void
append_point (GString *data, const PlotPoint *point)
{
  plot_append_real (data, point->memory_gib, 4);
  g_string_append_c (data, ' ');
  plot_append_real (data, point->tokens_per_s, 2);
  g_string_append_c (data, ' ');
  plot_append_quoted (data, point->label);
  g_string_append_c (data, '\n');
}

static GString *
make_data (const PlotPoint *points, guint n_points, const GArray *front)
{
  static const char columns[] = "memory_gib tokens_per_s label";
  GString *data = g_string_new (NULL);

  begin_block (data, "front", columns);
  for (guint k = 0; k < front->len; k++)
    append_point (data, &points[g_array_index (front, guint, k)]);
  begin_block (data, "others", columns);
  for (guint i = 0; i < n_points; i++)
    if (points[i].fits && !is_in (front, i))
      append_point (data, &points[i]);
  begin_block (data, "unfit", columns);
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

/* Ranges that hold all points and the capacity with some air around; counts those left out. */
static Range
find_range (const PlotPoint *points, guint n_points, double capacity_gib, guint *out_n_beyond)
{
  double limit = capacity_gib > 0 ? MAX_CAPACITIES * capacity_gib : G_MAXDOUBLE;
  Range range = { .left = G_MAXDOUBLE, .bottom = G_MAXDOUBLE };
  double width, height;

  if (capacity_gib > 0)
    range.left = range.right = capacity_gib;
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

  /* A tenth on all sides; of the value itself where there is only one. */
  width = MAX (range.right - range.left, 0.02 * range.right);
  height = MAX (range.top - range.bottom, 0.02 * range.top);
  range.left = MAX (range.left - 0.1 * width, 0);
  range.right += MAX (0.1 * width, 1e-3);
  range.bottom = MAX (range.bottom - 0.1 * height, 0);
  range.top += MAX (0.1 * height, 1e-3);
  return range;
}

/* Where a value is in the picture, in points. */
static double
x_of (const Range *range, double memory_gib)
{
  double part = (memory_gib - range->left) / (range->right - range->left);

  return PLOT_WIDTH * (LEFT + (RIGHT - LEFT) * part);
}

static double
y_of (const Range *range, double tokens_per_s)
{
  double part = (tokens_per_s - range->bottom) / (range->top - range->bottom);

  return PLOT_HEIGHT * (BOTTOM + (TOP - BOTTOM) * part);
}

/* The other way. */
static void
append_place (GString *data, const Range *range, double x, double y)
{
  double right = (x / PLOT_WIDTH - LEFT) / (RIGHT - LEFT);
  double up = (y / PLOT_HEIGHT - BOTTOM) / (TOP - BOTTOM);

  plot_append_real (data, range->left + right * (range->right - range->left), 6);
  g_string_append_c (data, ' ');
  plot_append_real (data, range->bottom + up * (range->top - range->bottom), 6);
  g_string_append_c (data, ' ');
}

static gboolean
overlaps (const Box *a, const Box *b)
{
  return a->left < b->right && b->left < a->right && a->bottom < b->top && b->bottom < a->top;
}

/* Whether a line from (x0, y0) to (x1, y1) runs through the box: clipped to it, is any left? */
static gboolean
is_crossed (const Box *box, double x0, double y0, double x1, double y1)
{
  const double p[] = { x0 - x1, x1 - x0, y0 - y1, y1 - y0 };
  const double q[] = { x0 - box->left, box->right - x0, y0 - box->bottom, box->top - y0 };
  double from = 0, to = 1;

  for (guint i = 0; i < G_N_ELEMENTS (p); i++)
    {
      if (p[i] == 0 && q[i] < 0)
        return FALSE;
      if (p[i] < 0)
        from = MAX (from, q[i] / p[i]);
      if (p[i] > 0)
        to = MIN (to, q[i] / p[i]);
    }
  return from < to;
}

/* What labels must keep clear of. */
typedef struct
{
  const PlotPoint *points;
  guint n_points;
  const GArray *front;
  Range range;
  double capacity_gib;
  GArray *placed; /* Box of each label */
} Layout;

/* Whether nothing is in the way of a label; plans off the front and the line of the capacity may be
 * covered at a pinch. */
static gboolean
is_free (const Layout *self, const Box *box, gboolean at_a_pinch)
{
  double capacity_x = x_of (&self->range, self->capacity_gib);
  double x = 0, y = 0;

  if (box->left < PLOT_WIDTH * LEFT + 4 || box->right > PLOT_WIDTH * RIGHT - 4
      || box->bottom < PLOT_HEIGHT * BOTTOM + 2 || box->top > PLOT_HEIGHT * TOP)
    return FALSE;
  if (self->capacity_gib > 0 && !at_a_pinch
      && is_crossed (box, capacity_x, 0, capacity_x, PLOT_HEIGHT))
    return FALSE;
  for (guint i = 0; i < self->placed->len; i++)
    if (overlaps (box, &g_array_index (self->placed, Box, i)))
      return FALSE;
  for (guint k = 0; k < self->front->len; k++)
    {
      const PlotPoint *point = &self->points[g_array_index (self->front, guint, k)];
      double x0 = x, y0 = y;

      x = x_of (&self->range, point->memory_gib);
      y = y_of (&self->range, point->tokens_per_s);
      if (is_crossed (box, k > 0 ? x0 : x - 1, k > 0 ? y0 : y, x, y))
        return FALSE;
    }
  for (guint i = 0; i < self->n_points && !at_a_pinch; i++)
    {
      x = x_of (&self->range, self->points[i].memory_gib);
      y = y_of (&self->range, self->points[i].tokens_per_s);
      if (overlaps (box, &(Box){ x - 4, x + 4, y - 4, y + 4 }))
        return FALSE;
    }
  return TRUE;
}

/* Finds room for a label beside its point: first where the front, which rises to the right, leaves
 * some. Only the ends of the front may cover plans that are off it, or the capacity. */
static gboolean
place_label (Layout *self, const PlotPoint *point, const char *label, gboolean is_end, Box *out_box)
{
  static const struct
  {
    int side, level; /* -1 left, 1 right; -1 below, 1 above */
  } places[] = { { -1, 1 }, { 1, -1 }, { -1, 0 }, { 1, 0 }, { 1, 1 }, { -1, -1 } };
  double x = x_of (&self->range, point->memory_gib);
  double y = y_of (&self->range, point->tokens_per_s);
  double width = CHARACTER_WIDTH * (double)g_utf8_strlen (label, -1);

  for (guint pinch = 0; pinch < (is_end ? 2 : 1); pinch++)
    for (guint i = 0; i < G_N_ELEMENTS (places); i++)
      {
        double left = places[i].side < 0 ? x - DISTANCE - width : x + DISTANCE;
        double bottom = y + places[i].level * DISTANCE - LINE_HEIGHT / 2;
        Box box = { left, left + width, bottom, bottom + LINE_HEIGHT };

        if (is_free (self, &box, pinch > 0))
          {
            g_array_append_val (self->placed, box);
            *out_box = box;
            return TRUE;
          }
      }
  return FALSE;
}

static char *
short_label (const char *label)
{
  g_autofree char *valid = g_utf8_make_valid (label, -1);
  g_autofree char *start = NULL;

  if (g_utf8_strlen (valid, -1) <= MAX_LABEL)
    return g_steal_pointer (&valid);
  start = g_utf8_substring (valid, 0, MAX_LABEL - 3);
  return g_strconcat (start, "...", NULL);
}

/* Labels of the front, from both ends inwards: the ends say most. Those left of their points are
 * aligned with their ends, the others with their starts. */
static void
append_labels (GString *data, Layout *layout, PlotFigure *figure)
{
  guint n_front = layout->front->len;
  g_autoptr (GString) left = g_string_new (NULL);
  g_autoptr (GString) right = g_string_new (NULL);

  for (guint i = 0; i < n_front; i++)
    {
      guint k = i % 2 ? i / 2 : n_front - 1 - i / 2;
      const PlotPoint *point = &layout->points[g_array_index (layout->front, guint, k)];
      g_autofree char *label = short_label (point->label);
      gboolean is_left;
      GString *side;
      Box box;

      if (!place_label (layout, point, label, i < 2, &box))
        continue;
      is_left = box.right < x_of (&layout->range, point->memory_gib);
      side = is_left ? left : right;
      append_place (side, &layout->range, is_left ? box.right : box.left,
                    (box.bottom + box.top) / 2);
      plot_append_quoted (side, label);
      g_string_append_c (side, '\n');
    }
  if (left->len > 0) /* gnuplot takes an empty block's name for the next one's */
    begin_block (data, "left", "memory_gib tokens_per_s label");
  g_string_append (data, left->str);
  if (right->len > 0)
    begin_block (data, "right", "memory_gib tokens_per_s label");
  g_string_append (data, right->str);
  plot_figure_set_real (figure, "n_left", left->len > 0);
  plot_figure_set_real (figure, "n_right", right->len > 0);
}

/* Columns that gnuplot needs beside a text's plot, and lines above and below it. */
#define TEXT_COLUMNS 18
#define TEXT_LINES 9

static void
append_listed (GString *footer, guint number, const PlotPoint *point)
{
  char memory[G_ASCII_DTOSTR_BUF_SIZE], tokens[G_ASCII_DTOSTR_BUF_SIZE];

  g_ascii_formatd (memory, sizeof memory, "%10.2f", point->memory_gib);
  g_ascii_formatd (tokens, sizeof tokens, "%12.0f", point->tokens_per_s);
  g_string_append_printf (footer, "  %3u %s GiB %s tokens/s/GPU   %s\n", number, memory, tokens,
                          point->label);
}

/* In a text the front's points are numbers, which a list below explains. A number that would run
 * into another is left out: its neighbours in the list tell where it is. */
static guint
append_numbers (GString *data, const Layout *layout, PlotFigure *figure)
{
  double column_gib = (layout->range.right - layout->range.left) / (figure->columns - TEXT_COLUMNS);
  double line_tokens = (layout->range.top - layout->range.bottom) / (figure->lines - TEXT_LINES);
  double free_from = -G_MAXDOUBLE, line_above = -G_MAXDOUBLE;
  guint n_placed = 0;

  begin_block (data, "numbers", "memory_gib tokens_per_s number");
  for (guint k = 0; k < layout->front->len; k++)
    {
      const PlotPoint *point = &layout->points[g_array_index (layout->front, guint, k)];

      append_listed (figure->footer, k + 1, point);
      if (point->memory_gib < free_from && point->tokens_per_s < line_above)
        continue;
      free_from = point->memory_gib + 4 * column_gib;
      line_above = point->tokens_per_s + 1.5 * line_tokens;
      plot_append_real (data, point->memory_gib, 4);
      g_string_append_c (data, ' ');
      plot_append_real (data, point->tokens_per_s, 2);
      g_string_append_printf (data, " \"%u\"\n", k + 1);
      n_placed++;
    }
  return n_placed;
}

static void
set_variables (const Layout *layout, PlotFigure *figure)
{
  g_autoptr (GString) key = g_string_new ("capacity, ");
  guint n_unfit = 0;

  for (guint i = 0; i < layout->n_points; i++)
    n_unfit += !layout->points[i].fits;
  plot_figure_set_real (figure, "x_from", layout->range.left);
  plot_figure_set_real (figure, "x_to", layout->range.right);
  plot_figure_set_real (figure, "y_from", layout->range.bottom);
  plot_figure_set_real (figure, "y_to", layout->range.top);
  plot_figure_set_real (figure, "left", LEFT);
  plot_figure_set_real (figure, "right", RIGHT);
  plot_figure_set_real (figure, "bottom", BOTTOM);
  plot_figure_set_real (figure, "top", TOP);
  plot_figure_set_real (figure, "n_front", layout->front->len);
  plot_figure_set_real (figure, "n_unfit", n_unfit);
  plot_figure_set_real (figure, "n_others", layout->n_points - layout->front->len - n_unfit);
  plot_figure_set_real (figure, "capacity", layout->capacity_gib);
  plot_append_real (key, layout->capacity_gib, 0);
  g_string_append (key, " GiB");
  plot_figure_set_text (figure, "capacity_key", key->str);
}

gboolean
plot_pareto (const PlotPoint *points, guint n_points, double capacity_gib, const char *title,
             const char *path, char **out_text, GError **error)
{
  g_auto (PlotFigure) figure = { 0 };
  g_autoptr (GArray) front = NULL;
  g_autoptr (GArray) placed = g_array_new (FALSE, FALSE, sizeof (Box));
  g_autofree char *note = NULL;
  Layout layout;
  GString *data;
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
  layout = (Layout){ .points = points,
                     .n_points = n_points,
                     .front = front,
                     .range = find_range (points, n_points, capacity_gib, &n_beyond),
                     .capacity_gib = capacity_gib,
                     .placed = placed };
  data = make_data (points, n_points, front);
  if (figure.format == PLOT_TEXT)
    plot_figure_set_real (&figure, "n_labels", append_numbers (data, &layout, &figure));
  else
    append_labels (data, &layout, &figure);
  figure.data = g_string_free (data, FALSE);

  if (n_beyond > 0)
    note = g_strdup_printf ("left out: %u plan%s of more than twice the capacity", n_beyond,
                            n_beyond == 1 ? "" : "s");
  plot_figure_set_title (&figure, title, note);
  set_variables (&layout, &figure);
  return plot_figure_draw (&figure, out_text, error);
}
