/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "plots/plot-private.h"

#include "planner/base/error.h"

#include <math.h>
#include <string.h>

static const char script[] =
#include "plots/accuracy.gp.inc"
    ;

/* accuracy.gp has a colour and a point type for each; all further groups are drawn as one. */
#define MAX_GROUPS 7
#define OTHERS "others"
#define MAX_KEY 20 /* characters of a name in the key */

/* Bars of the distribution on each side of 0. */
#define N_BINS 10

/* The errors of a group's points, in per cent of what was measured. */
typedef struct
{
  const char *name;
  GArray *errors; /* double: by rising size, once all are added */
  guint first;    /* number of groups that began before it */
} Group;

static void
group_clear (gpointer data)
{
  g_array_unref (((Group *)data)->errors);
}

static const Group *
group_at (const GArray *groups, guint i)
{
  return &g_array_index (groups, Group, i);
}

static double
error_of (const PlotAccuracyPoint *point)
{
  return 100 * (point->predicted - point->measured) / point->measured;
}

static gint
compare_sizes (gconstpointer a, gconstpointer b)
{
  double x = fabs (*(const double *)a), y = fabs (*(const double *)b);

  return x < y ? -1 : x > y;
}

static const char *
name_of (const PlotAccuracyPoint *point)
{
  return point->group ? point->group : "";
}

/* The index of a point's group, or the last one where there are too many groups. */
static guint
find_group (const GArray *groups, const PlotAccuracyPoint *point)
{
  guint i = 0;

  while (i < groups->len && strcmp (group_at (groups, i)->name, name_of (point)) != 0)
    i++;
  return MIN (i, MAX_GROUPS);
}

static gint
compare_groups (gconstpointer a, gconstpointer b)
{
  const Group *x = a, *y = b;

  if (x->errors->len != y->errors->len)
    return x->errors->len > y->errors->len ? -1 : 1;
  return x->first < y->first ? -1 : x->first > y->first;
}

/* Groups by their number of points; those without a colour of their own are joined into one. */
static GArray *
find_groups (const PlotAccuracyPoint *points, guint n_points)
{
  GArray *groups = g_array_new (FALSE, FALSE, sizeof (Group));
  g_autoptr (GHashTable) places = g_hash_table_new (g_str_hash, g_str_equal);

  g_array_set_clear_func (groups, group_clear);
  for (guint i = 0; i < n_points; i++)
    {
      const char *name = name_of (&points[i]);
      double error = error_of (&points[i]);
      gpointer place;

      if (!g_hash_table_lookup_extended (places, name, NULL, &place))
        {
          Group group = { name, g_array_new (FALSE, FALSE, sizeof (double)), groups->len };

          place = GUINT_TO_POINTER (groups->len);
          g_hash_table_insert (places, (gpointer)name, place);
          g_array_append_val (groups, group);
        }
      g_array_append_val (group_at (groups, GPOINTER_TO_UINT (place))->errors, error);
    }
  g_array_sort (groups, compare_groups);
  for (guint g = MAX_GROUPS + 1; g < groups->len; g++)
    {
      const GArray *more = group_at (groups, g)->errors;

      g_array_append_vals (group_at (groups, MAX_GROUPS)->errors, more->data, more->len);
    }
  if (groups->len > MAX_GROUPS + 1)
    {
      g_array_index (groups, Group, MAX_GROUPS).name = OTHERS;
      g_array_set_size (groups, MAX_GROUPS + 1);
    }
  for (guint g = 0; g < groups->len; g++)
    g_array_sort (group_at (groups, g)->errors, compare_sizes);
  return groups;
}

/* Functions of errors that are sorted by size: their mean, their median, and the size that a share
 * of them does not exceed. */
static double
mean_of (const GArray *errors)
{
  double sum = 0;

  for (guint i = 0; i < errors->len; i++)
    sum += fabs (g_array_index (errors, double, i));
  return sum / errors->len;
}

static double
median_of (const GArray *errors)
{
  guint n = errors->len;
  double low = fabs (g_array_index (errors, double, (n - 1) / 2));

  return (low + fabs (g_array_index (errors, double, n / 2))) / 2;
}

static double
quantile_of (const GArray *errors, double part)
{
  guint i = (guint)ceil (part * errors->len);

  return fabs (g_array_index (errors, double, MAX (i, 1) - 1));
}

/* All errors, by size. */
static GArray *
find_errors (const PlotAccuracyPoint *points, guint n_points)
{
  GArray *errors = g_array_new (FALSE, FALSE, sizeof (double));

  for (guint i = 0; i < n_points; i++)
    {
      double error = error_of (&points[i]);

      g_array_append_val (errors, error);
    }
  g_array_sort (errors, compare_sizes);
  return errors;
}

/* The distribution of errors by size. */
typedef struct
{
  double width_pct;
  guint n[2 * N_BINS]; /* the outermost bars also count what lies beyond them */
  guint n_beyond;
} Histogram;

static Histogram
count_errors (const GArray *errors)
{
  static const double widths[] = { 0.1, 0.2, 0.5, 1, 2, 5, 10 };
  double most = quantile_of (errors, 1);
  Histogram histogram = { .width_pct = widths[G_N_ELEMENTS (widths) - 1] };

  for (guint i = G_N_ELEMENTS (widths); i-- > 0;)
    if (widths[i] * N_BINS >= most)
      histogram.width_pct = widths[i];
  for (guint i = 0; i < errors->len; i++)
    {
      double error = g_array_index (errors, double, i);
      double bin = floor (error / histogram.width_pct) + N_BINS;

      histogram.n[(guint)CLAMP (bin, 0, 2 * N_BINS - 1)]++;
      histogram.n_beyond += fabs (error) > histogram.width_pct * N_BINS;
    }
  return histogram;
}

static double
bin_start (const Histogram *histogram, guint bin)
{
  return ((double)bin - N_BINS) * histogram->width_pct;
}

static GString *
make_data (const PlotAccuracyPoint *points, guint n_points, const GArray *groups,
           const Histogram *histogram)
{
  GString *data = g_string_new (NULL);

  for (guint g = 0; g < groups->len; g++)
    {
      g_autofree char *name = g_strdup_printf ("group%u", g + 1);

      plot_begin_block (data, name, "measured predicted");
      for (guint i = 0; i < n_points; i++)
        {
          if (find_group (groups, &points[i]) != g)
            continue;
          plot_append_real (data, points[i].measured, 6);
          g_string_append_c (data, ' ');
          plot_append_real (data, points[i].predicted, 6);
          g_string_append_c (data, '\n');
        }
    }
  plot_begin_block (data, "errors", "from_pct to_pct n");
  for (guint bin = 0; bin < 2 * N_BINS; bin++)
    {
      plot_append_real (data, bin_start (histogram, bin), 1);
      g_string_append_c (data, ' ');
      plot_append_real (data, bin_start (histogram, bin + 1), 1);
      g_string_append_printf (data, " %u\n", histogram->n[bin]);
    }
  return data;
}

char *
plot_accuracy_data (const PlotAccuracyPoint *points, guint n_points)
{
  g_autoptr (GArray) groups = find_groups (points, n_points);
  g_autoptr (GArray) errors = find_errors (points, n_points);
  Histogram histogram = { 0 };

  if (n_points > 0)
    histogram = count_errors (errors);
  return g_string_free (make_data (points, n_points, groups, &histogram), FALSE);
}

/* "12 runs: 3.1 % off in the mean, 2.5 % in the median, 9 in 10 within 6.2 %" */
static char *
make_note (const GArray *errors, const Histogram *histogram)
{
  GString *note = g_string_new (NULL);

  g_string_append_printf (note, "%u run%s: ", errors->len, errors->len == 1 ? "" : "s");
  plot_append_real (note, mean_of (errors), 1);
  g_string_append (note, " % off in the mean, ");
  plot_append_real (note, median_of (errors), 1);
  g_string_append (note, " % in the median, 9 in 10 within ");
  plot_append_real (note, quantile_of (errors, 0.9), 1);
  g_string_append (note, " %");
  if (histogram->n_beyond > 0)
    g_string_append_printf (note, "; %u beyond the ends of the distribution are in its last bars",
                            histogram->n_beyond);
  return g_string_free (note, FALSE);
}

/* A group's name and size for the key, "fsdp2 (32)", cut where there is no room; the caller
 * frees. */
static char *
make_key (const Group *group)
{
  g_autofree char *valid = g_utf8_make_valid (group->name, -1);
  g_autofree char *start = g_utf8_substring (valid, 0, MIN (g_utf8_strlen (valid, -1), MAX_KEY));
  gboolean is_cut = strlen (start) < strlen (valid);

  return g_strdup_printf ("%s%s%s(%u)", start, is_cut ? "..." : "", *start ? " " : "",
                          group->errors->len);
}

static void
set_variables (const PlotAccuracyPoint *points, guint n_points, const GArray *groups,
               const Histogram *histogram, PlotFigure *figure)
{
  double from = G_MAXDOUBLE, to = 0;
  guint most = 1;

  for (guint i = 0; i < n_points; i++)
    {
      from = MIN (from, MIN (points[i].predicted, points[i].measured));
      to = MAX (to, MAX (points[i].predicted, points[i].measured));
    }
  for (guint bin = 0; bin < 2 * N_BINS; bin++)
    most = MAX (most, histogram->n[bin]);
  plot_figure_set_real (figure, "from", from / 1.3);
  plot_figure_set_real (figure, "to", to * 1.3);
  plot_figure_set_real (figure, "error_to", histogram->width_pct * N_BINS);
  plot_figure_set_real (figure, "n_most", 1.1 * most);
  g_string_append_printf (figure->settings, "n_groups = %u\narray key[%u]\n", groups->len,
                          groups->len);
  for (guint g = 0; g < groups->len; g++)
    {
      g_autofree char *name = g_strdup_printf ("key[%u]", g + 1);
      g_autofree char *key = make_key (group_at (groups, g));

      plot_figure_set_text (figure, name, key);
    }
}

static void
append_figure (GString *text, const char *format, double value)
{
  char number[G_ASCII_DTOSTR_BUF_SIZE];

  g_string_append (text, g_ascii_formatd (number, sizeof number, format, value));
}

/* Appends, below text output, the histogram and a table of each group's errors. */
static void
append_footer (GString *footer, const GArray *groups, const Histogram *histogram, guint columns)
{
  guint first = 2 * N_BINS, last = 0, most = 1;

  for (guint bin = 0; bin < 2 * N_BINS; bin++)
    if (histogram->n[bin] > 0)
      {
        first = MIN (first, bin);
        last = bin;
        most = MAX (most, histogram->n[bin]);
      }
  g_string_append (footer, "  error of the prediction [%]\n");
  for (guint bin = first; bin <= last; bin++)
    {
      guint n_cells = (histogram->n[bin] * (columns - 32) + most - 1) / most;

      append_figure (footer, "%9.1f", bin_start (histogram, bin));
      g_string_append (footer, " to");
      append_figure (footer, "%7.1f", bin_start (histogram, bin + 1));
      g_string_append_printf (footer, " %6u%s", histogram->n[bin], n_cells > 0 ? "  " : "");
      for (guint i = 0; i < n_cells; i++)
        g_string_append_c (footer, '#');
      g_string_append_c (footer, '\n');
    }
  g_string_append (footer, "\n       n  mean_pct  median_pct  p90_pct  max_pct\n");
  for (guint g = 0; g < groups->len; g++)
    {
      const GArray *errors = group_at (groups, g)->errors;
      const char *name = group_at (groups, g)->name;

      g_string_append_printf (footer, "  %6u", errors->len);
      append_figure (footer, "%10.1f", mean_of (errors));
      append_figure (footer, "%12.1f", median_of (errors));
      append_figure (footer, "%9.1f", quantile_of (errors, 0.9));
      append_figure (footer, "%9.1f", quantile_of (errors, 1));
      g_string_append_printf (footer, "  %s\n", *name ? name : "all");
    }
}

static gboolean
check (const PlotAccuracyPoint *points, guint n_points, GError **error)
{
  for (guint i = 0; i < n_points; i++)
    if (!(points[i].predicted > 0 && points[i].measured > 0 && isfinite (points[i].predicted)
          && isfinite (points[i].measured)))
      {
        g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                     "cannot draw predicted against measured: both must be more than 0, unlike in "
                     "pair %u",
                     i + 1);
        return FALSE;
      }
  if (n_points > 0)
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
               "cannot draw predicted against measured: there is nothing that was both");
  return FALSE;
}

gboolean
plot_accuracy (const PlotAccuracyPoint *points, guint n_points, const char *quantity,
               const char *unit, const char *title, const char *path, char **out_text,
               GError **error)
{
  g_auto (PlotFigure) figure = { 0 };
  g_autoptr (GArray) groups = NULL;
  g_autoptr (GArray) errors = NULL;
  g_autofree char *note = NULL;
  g_autofree char *named = g_strdup_printf ("%s [%s]", quantity, unit);
  Histogram histogram;

  if (!plot_figure_init (&figure, path, script, error) || !check (points, n_points, error))
    return FALSE;
  groups = find_groups (points, n_points);
  errors = find_errors (points, n_points);
  histogram = count_errors (errors);
  figure.data = g_string_free (make_data (points, n_points, groups, &histogram), FALSE);
  if (figure.format == PLOT_TEXT)
    append_footer (figure.footer, groups, &histogram, figure.columns);
  note = make_note (errors, &histogram);
  plot_figure_set_title (&figure, title, note);
  plot_figure_set_text (&figure, "quantity", named);
  set_variables (points, n_points, groups, &histogram, &figure);
  return plot_figure_draw (&figure, out_text, error);
}
