/* SPDX-License-Identifier: Apache-2.0 */
/* Where time and memory of several plans go: a bar for each plan and quantity, cut into parts. */
#include "config.h"

#include "plots/labels.h"

#include "planner/base/error.h"

#include <string.h>

static const char script[] =
#include "plots/breakdown.gp.inc"
    ;

#define MAX_LABEL 27   /* characters of a line */
#define LABEL_LINES 18 /* lines that fit beside the bars, over all plans */

/* The parts of a step, in the order of a bar. */
static const struct
{
  const char *name;
  char letter;
  gsize offset; /* offset of the part's time in a PlanTrace */
} times[] = {
  { "compute", '#', G_STRUCT_OFFSET (PlanTrace, compute_ns) },
  { "exposed gather", '>', G_STRUCT_OFFSET (PlanTrace, exposed_gather_ns) },
  { "exposed reduce", '<', G_STRUCT_OFFSET (PlanTrace, exposed_reduce_ns) },
  { "exposed tp, cp, ep", 't', G_STRUCT_OFFSET (PlanTrace, exposed_tensor_ns) },
  { "exposed copy", 'c', G_STRUCT_OFFSET (PlanTrace, exposed_copy_ns) },
  { "host", 'h', G_STRUCT_OFFSET (PlanTrace, host_ns) },
  { "idle", '.', G_STRUCT_OFFSET (PlanTrace, idle_ns) },
};
#define N_TIMES G_N_ELEMENTS (times)

/* The parts of memory: the categories, and last what the device holds besides tensors. */
#define N_MEMORIES (PLAN_N_CATEGORIES + 1)
#define BESIDE "beside tensors"

/* One of the two quantities that bars show: time or memory. */
typedef struct
{
  const char *name;
  guint n_parts;
  const char *(*part_name) (guint part);
  char (*part_letter) (guint part);
  double (*part_of) (const PlanTrace *trace, guint part); /* in nanoseconds or bytes */
  const char *(*find_unit) (double most, double *out_size);
} Quantity;

static const char *
time_name (guint part)
{
  return times[part].name;
}

static char
time_letter (guint part)
{
  return times[part].letter;
}

static double
time_of (const PlanTrace *trace, guint part)
{
  return (double)G_STRUCT_MEMBER (gint64, trace, times[part].offset);
}

static const char *
memory_name (guint part)
{
  return part < PLAN_N_CATEGORIES ? plan_category_name (plot_memory_category (part)) : BESIDE;
}

static char
memory_letter (guint part)
{
  return part < PLAN_N_CATEGORIES ? plot_memory_letter (part) : '+';
}

/* A part of memory at the peak. */
static double
memory_of (const PlanTrace *trace, guint part)
{
  const PlanMemory *memory = &trace->memory;
  guint64 beside = memory->device;

  if (part < PLAN_N_CATEGORIES)
    return (double)memory->by_category[plot_memory_category (part)];
  for (guint i = 0; i < PLAN_N_CATEGORIES; i++)
    beside -= MIN (beside, memory->by_category[i]);
  return (double)beside;
}

static const Quantity quantities[]
    = { { "step time", N_TIMES, time_name, time_letter, time_of, plot_time_unit },
        { "device memory", N_MEMORIES, memory_name, memory_letter, memory_of, plot_memory_unit } };

static double
total_of (const Quantity *self, const PlanTrace *trace)
{
  double total = 0;

  for (guint part = 0; part < self->n_parts; part++)
    total += self->part_of (trace, part);
  return total;
}

static double
most_of (const Quantity *self, const PlotBreakdown *plans, guint n_plans)
{
  double most = 0;

  for (guint i = 0; i < n_plans; i++)
    most = MAX (most, total_of (self, plans[i].trace));
  return most;
}

/* The unit in which the largest bar is read. */
static const char *
unit_of (const Quantity *self, const PlotBreakdown *plans, guint n_plans, double *out_size)
{
  return self->find_unit (most_of (self, plans, n_plans), out_size);
}

static gboolean
occurs (const Quantity *self, const PlotBreakdown *plans, guint n_plans, guint part)
{
  for (guint i = 0; i < n_plans; i++)
    if (self->part_of (plans[i].trace, part) > 0)
      return TRUE;
  return FALSE;
}

/* Appends a block for each part that occurs. Rows are counted from the bottom; the first plan is on
 * top. */
static void
append_quantity (GString *data, const Quantity *self, const PlotBreakdown *plans, guint n_plans)
{
  double size;
  const char *unit = unit_of (self, plans, n_plans, &size);
  g_autofree char *columns = g_strdup_printf ("from_%s to_%s row", unit, unit);

  for (guint part = 0; part < self->n_parts; part++)
    {
      if (!occurs (self, plans, n_plans, part))
        continue;
      plot_begin_block (data, self->part_name (part), columns);
      for (guint i = 0; i < n_plans; i++)
        {
          double from = 0;

          for (guint before = 0; before < part; before++)
            from += self->part_of (plans[i].trace, before);
          plot_append_real (data, from / size, 4);
          g_string_append_c (data, ' ');
          plot_append_real (data, (from + self->part_of (plans[i].trace, part)) / size, 4);
          g_string_append_printf (data, " %u\n", n_plans - 1 - i);
        }
    }
}

static GString *
make_data (const PlotBreakdown *plans, guint n_plans)
{
  GString *data = g_string_new (NULL);
  double ns, bytes;
  const char *time_unit = unit_of (&quantities[0], plans, n_plans, &ns);
  const char *memory_unit = unit_of (&quantities[1], plans, n_plans, &bytes);
  g_autofree char *columns = g_strdup_printf ("%s %s row plan", time_unit, memory_unit);

  for (guint q = 0; q < G_N_ELEMENTS (quantities); q++)
    append_quantity (data, &quantities[q], plans, n_plans);
  plot_begin_block (data, "totals", columns);
  for (guint i = 0; i < n_plans; i++)
    {
      plot_append_real (data, total_of (&quantities[0], plans[i].trace) / ns, 2);
      g_string_append_c (data, ' ');
      plot_append_real (data, total_of (&quantities[1], plans[i].trace) / bytes, 2);
      g_string_append_printf (data, " %u ", n_plans - 1 - i);
      plot_append_quoted (data, plans[i].label);
      g_string_append_c (data, '\n');
    }
  return data;
}

char *
plot_breakdown_data (const PlotBreakdown *plans, guint n_plans)
{
  return g_string_free (make_data (plans, n_plans), FALSE);
}

/* Sets the variables on parts: "n_time = 2", "array time[2] = ['compute', 'idle']", and
 * "array time_place[2] = [1, 7]", the place of each among all parts, by which it is coloured. */
static void
set_parts (const Quantity *self, const char *name, const PlotBreakdown *plans, guint n_plans,
           PlotFigure *figure)
{
  g_autoptr (GString) names = g_string_new (NULL);
  g_autoptr (GString) places = g_string_new (NULL);
  guint n = 0;

  for (guint part = 0; part < self->n_parts; part++)
    if (occurs (self, plans, n_plans, part))
      {
        g_string_append_printf (names, "%s'%s'", n > 0 ? ", " : "", self->part_name (part));
        g_string_append_printf (places, "%s%u", n > 0 ? ", " : "", part + 1);
        n++;
      }
  g_string_append_printf (figure->settings,
                          "n_%s = %u\narray %s[%u] = [%s]\narray %s_place[%u] = [%s]\n", name, n,
                          name, n, names->str, name, n, places->str);
}

/* Labels beside their bars, or where one is too long, numbers and a list below the picture. */
static void
set_labels (const PlotBreakdown *plans, guint n_plans, PlotFigure *figure)
{
  g_autoptr (GPtrArray) labels = g_ptr_array_new_with_free_func (g_free);
  gboolean is_cut = FALSE;

  for (guint i = 0; i < n_plans; i++)
    {
      char *label
          = plot_break_label (plans[i].label, MAX_LABEL, CLAMP (LABEL_LINES / n_plans, 1, 5));

      g_ptr_array_add (labels, label);
      is_cut = is_cut || g_str_has_suffix (label, "...");
    }
  g_string_append_printf (figure->settings, "n_plans = %u\narray label[%u]\n", n_plans, n_plans);
  for (guint i = 0; i < n_plans; i++)
    {
      g_autofree char *name = g_strdup_printf ("label[%u]", n_plans - i);
      g_autofree char *number = g_strdup_printf ("%u", i + 1);

      plot_figure_set_text (figure, name, is_cut ? number : labels->pdata[i]);
      if (is_cut)
        g_string_append_printf (figure->footer, "%s: %s\n", number, plans[i].label);
    }
}

static void
set_variables (const PlotBreakdown *plans, guint n_plans, double capacity_bytes, PlotFigure *figure)
{
  g_autoptr (GString) key = g_string_new ("capacity, ");
  double most_ns = most_of (&quantities[0], plans, n_plans), ns;
  double most_bytes = MAX (most_of (&quantities[1], plans, n_plans), capacity_bytes), bytes;
  const char *time_unit = unit_of (&quantities[0], plans, n_plans, &ns);
  const char *memory_unit = unit_of (&quantities[1], plans, n_plans, &bytes);

  set_parts (&quantities[0], "time", plans, n_plans, figure);
  set_parts (&quantities[1], "memory", plans, n_plans, figure);
  set_labels (plans, n_plans, figure);
  plot_figure_set_text (figure, "time_unit", time_unit);
  plot_figure_set_text (figure, "memory_unit", memory_unit);
  plot_figure_set_real (figure, "time_to", 1.2 * most_ns / ns);
  plot_figure_set_real (figure, "memory_to", 1.15 * most_bytes / bytes);
  plot_figure_set_real (figure, "capacity", capacity_bytes / bytes);
  plot_append_real (key, capacity_bytes / bytes, 1);
  g_string_append_printf (key, " %s", memory_unit);
  plot_figure_set_text (figure, "capacity_key", key->str);
}

/* Columns of text output to the left and right of its bars. */
#define TEXT_MARGIN 5
#define TEXT_RIGHT 13

/* Appends a bar: each cell has the letter of the part at the cell's middle. */
static void
append_bar (GString *text, const Quantity *self, const PlanTrace *trace, double cell)
{
  double total = total_of (self, trace), top = self->part_of (trace, 0);
  guint part = 0;

  for (double at = cell / 2; at < total; at += cell)
    {
      while (at >= top && part + 1 < self->n_parts)
        top += self->part_of (trace, ++part);
      g_string_append_c (text, self->part_letter (part));
    }
}

/* Appends the meaning of the letters, in lines no longer than the text is wide. */
static void
append_legend (GString *text, const Quantity *self, const PlotBreakdown *plans, guint n_plans,
               gboolean has_limit, guint columns)
{
  gsize start = text->len;

  for (guint part = 0; part <= self->n_parts; part++)
    {
      gboolean is_limit = part == self->n_parts;
      const char *name = is_limit ? "capacity" : self->part_name (part);

      if (is_limit ? !has_limit : !occurs (self, plans, n_plans, part))
        continue;
      if (text->len == start || text->len - start + strlen (name) + 4 > columns)
        {
          g_string_append (text, text->len == start ? "   " : "\n   ");
          start = text->len - 3;
        }
      g_string_append_printf (text, "  %c %s", is_limit ? '|' : self->part_letter (part), name);
    }
  g_string_append (text, "\n\n");
}

static void
append_rows (GString *text, const Quantity *self, const PlotBreakdown *plans, guint n_plans,
             double limit, guint n_cells)
{
  double cell = MAX (most_of (self, plans, n_plans), limit) / n_cells, size;

  g_string_append_printf (text, "%s [%s]\n", self->name, unit_of (self, plans, n_plans, &size));
  for (guint i = 0; i < n_plans; i++)
    {
      g_autoptr (GString) bar = g_string_new (NULL);
      char total[G_ASCII_DTOSTR_BUF_SIZE];

      append_bar (bar, self, plans[i].trace, cell);
      while (bar->len < n_cells + 1)
        g_string_append_c (bar, ' ');
      if (limit > 0)
        bar->str[(guint)(limit / cell)] = '|';
      g_ascii_formatd (total, sizeof total, "%10.2f", total_of (self, plans[i].trace) / size);
      g_string_append_printf (text, "%3u  %s%s\n", i + 1, bar->str, total);
    }
}

static char *
make_text (const PlotBreakdown *plans, guint n_plans, double capacity_bytes, guint columns)
{
  GString *text = g_string_new (NULL);
  guint n_cells = columns - TEXT_MARGIN - TEXT_RIGHT;

  append_rows (text, &quantities[0], plans, n_plans, 0, n_cells);
  append_legend (text, &quantities[0], plans, n_plans, FALSE, columns);
  append_rows (text, &quantities[1], plans, n_plans, capacity_bytes, n_cells);
  append_legend (text, &quantities[1], plans, n_plans, capacity_bytes > 0, columns);
  for (guint i = 0; i < n_plans; i++)
    g_string_append_printf (text, "%3u  %s\n", i + 1, plans[i].label);
  return g_string_free (text, FALSE);
}

static gboolean
check (const PlotBreakdown *plans, guint n_plans, GError **error)
{
  if (n_plans == 0)
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                 "cannot draw where time and memory go: there are no plans");
  else if (n_plans > PLOT_MAX_BARS)
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                 "cannot draw where time and memory go: %u plans are more than the %d that there "
                 "is room for",
                 n_plans, PLOT_MAX_BARS);
  else if (most_of (&quantities[0], plans, n_plans) <= 0
           || most_of (&quantities[1], plans, n_plans) <= 0)
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                 "cannot draw where time and memory go: the plans take none");
  else
    return TRUE;
  return FALSE;
}

gboolean
plot_breakdown (const PlotBreakdown *plans, guint n_plans, guint64 capacity_bytes,
                const char *title, const char *path, char **out_text, GError **error)
{
  g_auto (PlotFigure) figure = { 0 };
  g_autofree char *note = NULL;
  g_autofree char *text = NULL;
  double capacity = (double)capacity_bytes;

  if (!plot_figure_init (&figure, path, script, error) || !check (plans, n_plans, error))
    return FALSE;
  if (capacity > PLOT_FAR_AWAY * most_of (&quantities[1], plans, n_plans))
    {
      capacity = 0;
      note = plot_far_below (capacity_bytes);
    }
  plot_figure_set_title (&figure, title, note);
  if (figure.format == PLOT_TEXT)
    {
      text = make_text (plans, n_plans, capacity, figure.columns);
      return plot_figure_write (&figure, text, out_text, error);
    }
  figure.data = g_string_free (make_data (plans, n_plans), FALSE);
  set_variables (plans, n_plans, capacity, &figure);
  return plot_figure_draw (&figure, out_text, error);
}
