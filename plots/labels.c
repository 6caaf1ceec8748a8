/* SPDX-License-Identifier: Apache-2.0 */
/* Labels beside points, each where it covers nothing; and in text output numbers, with a list
 * below. */
#include "config.h"

#include "plots/labels.h"

#include <math.h>
#include <string.h>

/* A label's size in points, and its distance from its point. */
#define CHARACTER_WIDTH 7.5
#define LINE_HEIGHT 18.0
#define DISTANCE 9.0

/* Long labels are broken into lines, and cut where that is not enough. */
#define MAX_LINES 4
static const guint widths[]
    = { 28, 60 }; /* in characters; the wider one is tried where the narrower one has no room */

typedef struct
{
  double x0, y0, x1, y1;
  gboolean is_never_covered;
} Line;

void
plot_labels_init (PlotLabels *self, const PlotBox *axes, const PlotBox *area)
{
  *self = (PlotLabels){
    .axes = *axes,
    .area = *area,
    .lines = g_array_new (FALSE, FALSE, sizeof (Line)),
    .points = g_array_new (FALSE, FALSE, sizeof (PlotBox)),
    .placed = g_array_new (FALSE, FALSE, sizeof (PlotBox)),
    .left = g_string_new (NULL),
    .right = g_string_new (NULL),
  };
}

void
plot_labels_clear (PlotLabels *self)
{
  g_clear_pointer (&self->lines, g_array_unref);
  g_clear_pointer (&self->points, g_array_unref);
  g_clear_pointer (&self->placed, g_array_unref);
  if (self->left)
    g_string_free (self->left, TRUE);
  if (self->right)
    g_string_free (self->right, TRUE);
  self->left = self->right = NULL;
}

/* The position of a value in the picture, in points. */
static double
x_of (const PlotLabels *self, double x)
{
  double part = (x - self->axes.left) / (self->axes.right - self->axes.left);

  return PLOT_WIDTH * (self->area.left + (self->area.right - self->area.left) * part);
}

static double
y_of (const PlotLabels *self, double y)
{
  double part = (y - self->axes.bottom) / (self->axes.top - self->axes.bottom);

  return PLOT_HEIGHT * (self->area.bottom + (self->area.top - self->area.bottom) * part);
}

/* The inverse: appends the values of a position. */
static void
append_place (GString *data, const PlotLabels *self, double x, double y)
{
  double right = (x / PLOT_WIDTH - self->area.left) / (self->area.right - self->area.left);
  double up = (y / PLOT_HEIGHT - self->area.bottom) / (self->area.top - self->area.bottom);

  plot_append_real (data, self->axes.left + right * (self->axes.right - self->axes.left), 6);
  g_string_append_c (data, ' ');
  plot_append_real (data, self->axes.bottom + up * (self->axes.top - self->axes.bottom), 6);
  g_string_append_c (data, ' ');
}

void
plot_labels_avoid_line (PlotLabels *self, double x0, double y0, double x1, double y1,
                        gboolean is_never_covered)
{
  Line line
      = { x_of (self, x0), y_of (self, y0), x_of (self, x1), y_of (self, y1), is_never_covered };

  g_array_append_val (self->lines, line);
}

void
plot_labels_avoid_point (PlotLabels *self, double x, double y)
{
  double at_x = x_of (self, x), at_y = y_of (self, y);
  PlotBox box = { at_x - 4, at_x + 4, at_y - 4, at_y + 4 };

  g_array_append_val (self->points, box);
}

static gboolean
overlaps (const PlotBox *a, const PlotBox *b)
{
  return a->left < b->right && b->left < a->right && a->bottom < b->top && b->bottom < a->top;
}

static gboolean
overlaps_any (const PlotBox *box, const GArray *boxes)
{
  for (guint i = 0; i < boxes->len; i++)
    if (overlaps (box, &g_array_index (boxes, PlotBox, i)))
      return TRUE;
  return FALSE;
}

/* Whether a line runs through a box, that is, whether clipping it to the box leaves any of it. */
static gboolean
is_crossed (const PlotBox *box, const Line *line)
{
  const double p[]
      = { line->x0 - line->x1, line->x1 - line->x0, line->y0 - line->y1, line->y1 - line->y0 };
  const double q[] = { line->x0 - box->left, box->right - line->x0, line->y0 - box->bottom,
                       box->top - line->y0 };
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

static gboolean
is_free (const PlotLabels *self, const PlotBox *box, gboolean may_cover)
{
  if (box->left < PLOT_WIDTH * self->area.left + 4 || box->right > PLOT_WIDTH * self->area.right - 4
      || box->bottom < PLOT_HEIGHT * self->area.bottom + 2
      || box->top > PLOT_HEIGHT * self->area.top)
    return FALSE;
  for (guint i = 0; i < self->lines->len; i++)
    {
      const Line *line = &g_array_index (self->lines, Line, i);

      if ((line->is_never_covered || !may_cover) && is_crossed (box, line))
        return FALSE;
    }
  return !overlaps_any (box, self->placed) && (may_cover || !overlaps_any (box, self->points));
}

char *
plot_break_label (const char *label, guint max_width, guint max_lines)
{
  g_autofree char *valid = g_utf8_make_valid (label, -1);
  g_auto (GStrv) words = g_strsplit (valid, " ", -1);
  GString *text = g_string_new (NULL);
  glong width = 0;
  guint n_lines = 1;

  for (char **word = words; *word; word++)
    {
      glong length = g_utf8_strlen (*word, -1);
      gboolean is_first = word == words, is_new = !is_first && width + 1 + length > max_width;

      if (length > max_width || (is_new && n_lines == max_lines))
        {
          g_string_append (text, is_first ? "..." : " ...");
          break;
        }
      g_string_append_printf (text, "%s%s", is_first ? "" : is_new ? "\n" : " ", *word);
      n_lines += is_new;
      width = is_first || is_new ? length : width + 1 + length;
    }
  return g_string_free (text, FALSE);
}

/* The size of a label in points. */
static void
measure (const char *text, double *out_width, double *out_height)
{
  g_auto (GStrv) lines = g_strsplit (text, "\n", -1);
  glong width = 0;

  for (char **line = lines; *line; line++)
    width = MAX (width, g_utf8_strlen (*line, -1));
  *out_width = CHARACTER_WIDTH * (double)width;
  *out_height = LINE_HEIGHT * MAX (1, g_strv_length (lines));
}

/* Records a label at a place. A label to the left of its point is aligned with its end, one to the
 * right with its start. */
static void
take_place (PlotLabels *self, const PlotBox *box, gboolean is_left, const char *text)
{
  GString *side = is_left ? self->left : self->right;

  g_array_append_vals (self->placed, box, 1);
  append_place (side, self, is_left ? box->right : box->left, box->top - LINE_HEIGHT / 2);
  plot_append_quoted (side, text);
  g_string_append_c (side, '\n');
}

/* The box of a label to the left (-1) or right (1) of a point, or at its middle (0), and below (-1,
 * further: -2), beside (0) or above (1, further: 2) it. */
static PlotBox
box_at (double x, double y, int side, int level, const char *text)
{
  double width, height, left, bottom;

  measure (text, &width, &height);
  left = side < 0 ? x - DISTANCE - width : side > 0 ? x + DISTANCE : x - width / 2;
  bottom = y + level * DISTANCE - LINE_HEIGHT / 2;

  if (level <= 0)
    bottom -= (height - LINE_HEIGHT) / (level == 0 ? 2 : 1);
  return (PlotBox){ left, left + width, bottom, bottom + height };
}

/* The square of the distance of a place from a box. */
static double
distance (const PlotBox *box, double x, double y)
{
  const double across = MAX (0, MAX (box->left - x, x - box->right));
  const double up = MAX (0, MAX (box->bottom - y, y - box->top));

  return across * across + up * up;
}

/* Whether no other point is as near to the label as its own, so that nobody takes it for another's.
 */
static gboolean
is_nearest (const PlotLabels *self, const PlotBox *box, double x, double y)
{
  for (guint i = 0; i < self->points->len; i++)
    {
      const PlotBox *point = &g_array_index (self->points, PlotBox, i);
      const double at_x = (point->left + point->right) / 2, at_y = (point->bottom + point->top) / 2;

      if (hypot (at_x - x, at_y - y) > 1 && distance (box, at_x, at_y) <= distance (box, x, y))
        return FALSE;
    }
  return TRUE;
}

static gboolean
place (PlotLabels *self, double x, double y, const char *text, gboolean may_cover,
       gboolean is_plain)
{
  static const struct
  {
    int side, level; /* -1 left, 1 right; -1 below, 1 above, 2 further */
  } places[] = { { -1, 1 }, { 1, -1 }, { -1, 0 }, { 1, 0 },  { 1, 1 }, { -1, -1 },
                 { 0, 2 },  { 0, -2 }, { -1, 2 }, { 1, -2 }, { 1, 2 }, { -1, -2 } };

  for (guint i = 0; i < G_N_ELEMENTS (places); i++)
    {
      PlotBox box = box_at (x_of (self, x), y_of (self, y), places[i].side, places[i].level, text);

      if (is_free (self, &box, may_cover)
          && (!is_plain || is_nearest (self, &box, x_of (self, x), y_of (self, y))))
        {
          take_place (self, &box, places[i].side < 0, text);
          return TRUE;
        }
    }
  return FALSE;
}

gboolean
plot_labels_place (PlotLabels *self, double x, double y, const char *text, gboolean may_cover)
{
  for (gint is_plain = TRUE; is_plain >= FALSE; is_plain--)
    for (gboolean covers = FALSE; covers <= may_cover; covers++)
      for (guint i = 0; i < G_N_ELEMENTS (widths); i++)
        {
          g_autofree char *label = plot_break_label (text, widths[i], MAX_LINES);

          if (place (self, x, y, label, covers, is_plain))
            return TRUE;
        }
  return FALSE;
}

void
plot_labels_append (const PlotLabels *self, GString *data, PlotFigure *figure)
{
  if (self->left->len > 0) /* gnuplot would take an empty block's name for that of the next one */
    plot_begin_block (data, "left", "x y label");
  g_string_append (data, self->left->str);
  if (self->right->len > 0)
    plot_begin_block (data, "right", "x y label");
  g_string_append (data, self->right->str);
  plot_figure_set_real (figure, "n_left", self->left->len > 0);
  plot_figure_set_real (figure, "n_right", self->right->len > 0);
}

/* Columns that gnuplot needs beside a plot in text output. */
#define TEXT_COLUMNS 18

guint
plot_numbers_above (const PlotFigure *figure)
{
  return figure->title_lines + 1;
}

/* Points that share a place. */
typedef struct
{
  GArray *members; /* guint, rising */
  double column;   /* column of its middle */
  double line;
} Number;

static void
number_free (gpointer data)
{
  Number *self = data;

  g_array_unref (self->members);
  g_free (self);
}

/* The numbers as text: "3", "3-5" or "1,3-5"; the caller frees. */
static char *
number_text (const Number *self)
{
  GString *text = g_string_new (NULL);

  for (guint i = 0, last; i < self->members->len; i = last + 1)
    {
      guint first = g_array_index (self->members, guint, i);

      for (last = i; last + 1 < self->members->len; last++)
        if (g_array_index (self->members, guint, last + 1) != first + last + 1 - i)
          break;
      g_string_append_printf (text, last > i ? "%s%u-%u" : "%s%u", i > 0 ? "," : "", first + 1,
                              g_array_index (self->members, guint, last) + 1);
    }
  return g_string_free (text, FALSE);
}

static gboolean
collide (const Number *a, const Number *b)
{
  g_autofree char *one = number_text (a);
  g_autofree char *other = number_text (b);

  return ABS (a->line - b->line) < 1
         && ABS (a->column - b->column) < (double)(strlen (one) + strlen (other)) / 2 + 2;
}

static gint
compare_members (gconstpointer a, gconstpointer b)
{
  guint x = *(const guint *)a, y = *(const guint *)b;

  return x < y ? -1 : x > y;
}

/* The mean of two values, weighted by numbers of members. */
static double
middle (const Number *a, double of_a, const Number *b, double of_b)
{
  return (of_a * a->members->len + of_b * b->members->len) / (a->members->len + b->members->len);
}

/* Joins colliding numbers until none collide. */
static void
join_numbers (GPtrArray *numbers)
{
  for (guint i = 0; i < numbers->len; i++)
    for (guint j = 0; j < i; j++)
      {
        Number *one = numbers->pdata[j], *other = numbers->pdata[i];

        if (!collide (one, other))
          continue;
        one->column = middle (one, one->column, other, other->column);
        one->line = middle (one, one->line, other, other->line);
        g_array_append_vals (one->members, other->members->data, other->members->len);
        g_array_sort (one->members, compare_members);
        g_ptr_array_remove_index (numbers, i);
        i = j; /* it has moved: those before it have to be compared again */
        j = (guint)-1;
      }
}

guint
plot_append_numbers (GString *data, const PlotBox *axes, const PlotBox *area,
                     const PlotFigure *figure, const double *x, const double *y, guint n)
{
  const gboolean is_text = figure->format == PLOT_TEXT;
  const double columns = is_text ? figure->columns - TEXT_COLUMNS
                                 : PLOT_WIDTH * (area->right - area->left) / CHARACTER_WIDTH;
  const double lines = is_text ? figure->lines - plot_numbers_above (figure) - PLOT_NUMBERS_BELOW
                               : PLOT_HEIGHT * (area->top - area->bottom) / LINE_HEIGHT;
  const double column = (axes->right - axes->left) / columns;
  const double line = (axes->top - axes->bottom) / lines;
  g_autoptr (GPtrArray) numbers = g_ptr_array_new_with_free_func (number_free);

  for (guint i = 0; i < n; i++)
    {
      Number *number = g_new (Number, 1);

      *number = (Number){ .members = g_array_new (FALSE, FALSE, sizeof (guint)),
                          .column = (x[i] - axes->left) / column,
                          .line = (y[i] - axes->bottom) / line };
      if (is_text) /* in the middle of a line */
        number->line = floor (number->line) + 0.5;
      g_array_append_val (number->members, i);
      g_ptr_array_add (numbers, number);
    }
  join_numbers (numbers);
  plot_begin_block (data, "numbers", "x y number");
  for (guint i = 0; i < numbers->len; i++)
    {
      const Number *number = numbers->pdata[i];
      g_autofree char *text = number_text (number);

      plot_append_real (data, axes->left + number->column * column, 4);
      g_string_append_c (data, ' ');
      plot_append_real (data, axes->bottom + number->line * line, 4);
      g_string_append_printf (data, " \"%s\"\n", text);
    }
  return numbers->len;
}
