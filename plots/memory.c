/* SPDX-License-Identifier: Apache-2.0 */
/* Live memory by category over a step, stacked, with its peak. */
#include "config.h"

#include "plots/plot-private.h"

#include "planner/base/error.h"
#include "planner/base/units.h"

#include <string.h>

static const char script[] =
#include "plots/memory.gp.inc"
    ;

/* memory.gp has a colour for each. */
G_STATIC_ASSERT (PLAN_N_CATEGORIES <= 10);

/* A step is drawn in at most so many stretches of time, each by its fullest moment. */
#define STRETCHES 500
#define MEASURED_STRETCHES 150

/* The order of the stack, from the bottom: what is always there first, what comes and goes last. */
static const PlanCategory stack[] = {
  PLAN_CATEGORY_MAIN_PARAMS,  PLAN_CATEGORY_OPTIMIZER,   PLAN_CATEGORY_MAIN_GRADS,
  PLAN_CATEGORY_WEIGHTS,      PLAN_CATEGORY_DERIVED,     PLAN_CATEGORY_GATHERED,
  PLAN_CATEGORY_GRAD_BUCKETS, PLAN_CATEGORY_ACTIVATIONS, PLAN_CATEGORY_LOSS,
  PLAN_CATEGORY_WORKSPACE,
};
G_STATIC_ASSERT (G_N_ELEMENTS (stack) == PLAN_N_CATEGORIES);

/* The letters of the categories, in the order of the stack. */
static const char letters[] = "POGwdgbalx";
G_STATIC_ASSERT (sizeof letters == PLAN_N_CATEGORIES + 1);

PlanCategory
plot_memory_category (guint place)
{
  return stack[place];
}

char
plot_memory_letter (guint place)
{
  return letters[place];
}

/* What is live from `at_ns` on. */
typedef struct
{
  gint64 at_ns;
  gint64 total;
  gint64 live[PLAN_N_CATEGORIES];
} Moment;

static const Moment *
moment_at (const GArray *moments, guint i)
{
  return &g_array_index (moments, Moment, i);
}

/* All changes of live memory in a step, with the states at its start and end. */
static GArray *
find_moments (const PlanTrace *trace)
{
  GArray *moments = g_array_new (FALSE, FALSE, sizeof (Moment));
  Moment now = { 0 };

  for (guint category = 0; category < PLAN_N_CATEGORIES; category++)
    {
      now.live[category] = (gint64)trace->memory.resting[category];
      now.total += now.live[category];
    }
  g_array_append_val (moments, now);
  for (guint i = 0; i < trace->samples->len; i++)
    {
      const PlanMemorySample *sample = &g_array_index (trace->samples, PlanMemorySample, i);

      /* Samples are in issue order, which decides the peak; their times may not be monotone. */
      now.at_ns = MAX (now.at_ns, sample->at_ns);
      now.total += sample->live_bytes - now.live[sample->category];
      now.live[sample->category] = sample->live_bytes;
      g_array_append_val (moments, now);
    }
  now.at_ns = MAX (now.at_ns, trace->step_ns);
  g_array_append_val (moments, now);
  return moments;
}

static guint
find_peak (const GArray *moments)
{
  guint peak = 0;

  for (guint i = 1; i < moments->len; i++)
    if (moment_at (moments, i)->total > moment_at (moments, peak)->total)
      peak = i;
  return peak;
}

/* Thins to the first and last moment and the fullest of each of `n` stretches of time: what comes
 * and goes within one would be drawn as a bar of lines that hides all else. */
static GArray *
thin (const GArray *moments, guint n)
{
  GArray *kept = g_array_new (FALSE, FALSE, sizeof (Moment));
  guint last = moments->len - 1, i = 1;
  double stretch_ns = (double)moment_at (moments, last)->at_ns / n;

  if (moments->len <= 2 * n)
    return g_array_append_vals (kept, moments->data, moments->len);
  g_array_append_val (kept, *moment_at (moments, 0));
  for (guint stretch = 1; i < last; stretch++)
    {
      guint fullest = i, first = i;

      for (; i < last && (double)moment_at (moments, i)->at_ns <= stretch * stretch_ns; i++)
        if (moment_at (moments, i)->total > moment_at (moments, fullest)->total)
          fullest = i;
      if (i > first) /* else nothing happened for so long */
        g_array_append_val (kept, *moment_at (moments, fullest));
    }
  g_array_append_val (kept, *moment_at (moments, last));
  return kept;
}

/* What is drawn. */
typedef struct
{
  GArray *simulated; /* Moment, thinned */
  gboolean is_thinned;
  GArray *measured;        /* Moment, thinned; or NULL */
  guint peak;              /* index of the simulated moment with most live bytes */
  double to_ns, top_bytes; /* ends of the axes */
  const char *unit;        /* unit of memory */
  double unit_bytes;
  guint n_categories;            /* number of categories that occur, in the order of the stack */
  guint kind[PLAN_N_CATEGORIES]; /* places of these categories in the stack */
} View;

/* Finds the ends of the axes. Above the peak there is room for its label. */
static void
find_ends (View *self)
{
  const GArray *series[] = { self->simulated, self->measured };
  gint64 to_ns = 1, top_bytes = 1;

  for (guint i = 0; i < G_N_ELEMENTS (series) && series[i]; i++)
    {
      to_ns = MAX (to_ns, moment_at (series[i], series[i]->len - 1)->at_ns);
      top_bytes = MAX (top_bytes, moment_at (series[i], find_peak (series[i]))->total);
    }
  self->to_ns = (double)to_ns;
  self->top_bytes = 1.12 * (double)top_bytes;
}

static void
find_categories (View *self)
{
  for (guint kind = 0; kind < PLAN_N_CATEGORIES; kind++)
    for (guint i = 0; i < self->simulated->len; i++)
      if (moment_at (self->simulated, i)->live[stack[kind]] > 0)
        {
          self->kind[self->n_categories++] = kind;
          break;
        }
}

static void
view_init (View *self, const PlanTrace *simulated, const PlanTrace *measured)
{
  g_autoptr (GArray) all = find_moments (simulated);

  *self = (View){ .simulated = thin (all, STRETCHES) };
  self->is_thinned = self->simulated->len < all->len;
  self->peak = find_peak (self->simulated);
  if (measured)
    {
      g_autoptr (GArray) all_measured = find_moments (measured);

      self->measured = thin (all_measured, MEASURED_STRETCHES);
    }
  self->unit = plot_memory_unit ((double)moment_at (self->simulated, self->peak)->total,
                                 &self->unit_bytes);
  find_ends (self);
  find_categories (self);
}

static void
view_clear (View *self)
{
  g_clear_pointer (&self->simulated, g_array_unref);
  g_clear_pointer (&self->measured, g_array_unref);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (View, view_clear)

static const char *
category_name (const View *self, guint i)
{
  return plan_category_name (stack[self->kind[i]]);
}

static void
append_bytes (GString *data, const View *self, gint64 bytes)
{
  g_string_append_c (data, ' ');
  plot_append_real (data, (double)bytes / self->unit_bytes, 6);
}

/* Appends one corner of the steps. */
static void
append_moment (GString *data, const View *self, gint64 at_ns, const Moment *moment)
{
  gint64 top = 0;

  plot_append_ms (data, at_ns);
  append_bytes (data, self, moment->total);
  for (guint k = 0; k < self->n_categories; k++)
    {
      gint64 live = moment->live[stack[self->kind[k]]];

      top += live;
      append_bytes (data, self, live);
      append_bytes (data, self, top);
    }
  g_string_append_c (data, '\n');
}

static GString *
make_data (const View *self)
{
  GString *data = g_string_new (NULL);

  /* gnuplot takes the last comment above a block for its name */
  g_string_append_printf (data,
                          "# %s; time_ms total, then of each category size and top:", self->unit);
  for (guint i = 0; i < self->n_categories; i++)
    g_string_append_printf (data, " %s", category_name (self, i));
  g_string_append (data, "\n# simulated\n");
  for (guint i = 0; i < self->simulated->len; i++)
    {
      const Moment *moment = moment_at (self->simulated, i);

      if (i > 0 && moment_at (self->simulated, i - 1)->at_ns < moment->at_ns)
        append_moment (data, self, moment->at_ns, moment_at (self->simulated, i - 1));
      append_moment (data, self, moment->at_ns, moment);
    }

  if (self->measured)
    g_string_append_printf (data, "\n\n# %s; time_ms total\n# measured\n", self->unit);
  for (guint i = 0; self->measured && i < self->measured->len; i++)
    {
      plot_append_ms (data, moment_at (self->measured, i)->at_ns);
      append_bytes (data, self, moment_at (self->measured, i)->total);
      g_string_append_c (data, '\n');
    }
  return data;
}

char *
plot_memory_data (const PlanTrace *simulated, const PlanTrace *measured,
                  const PlanSchedule *schedule)
{
  g_auto (View) view = { 0 };

  view_init (&view, simulated, measured);
  return g_string_free (make_data (&view), FALSE);
}

/* The label of the peak: "peak 61.3 GiB: alloc logits, unit 31". */
static char *
make_peak_label (const View *self, const PlanTrace *trace, const PlanSchedule *schedule)
{
  g_autofree char *size
      = plan_units_format_size ((guint64)moment_at (self->simulated, self->peak)->total);
  guint32 node = trace->memory.peak_node;
  const PlanOp *op
      = node < plan_schedule_n_nodes (schedule) ? plan_schedule_node (schedule, node) : NULL;
  g_autoptr (GString) label = g_string_new (NULL);

  g_string_append_printf (label, "peak %s", size);
  if (op && op->kind < PLAN_N_OPS)
    {
      g_string_append_printf (label, ": %s", plan_op_name (op->kind));
      if (op->refs[0].array >= 0)
        g_string_append_printf (label, " %s",
                                plan_schedule_buffer (schedule, (guint)op->refs[0].array)->name);
      if (trace->memory.peak_unit >= 0)
        g_string_append_printf (label, ", unit %d", trace->memory.peak_unit);
    }
  return g_string_free (g_steal_pointer (&label), FALSE);
}

/* NULL where every moment is drawn. */
static char *
make_note (const View *self)
{
  const gint64 end_ns = moment_at (self->simulated, self->simulated->len - 1)->at_ns;
  char ms[G_ASCII_DTOSTR_BUF_SIZE];

  if (!self->is_thinned)
    return NULL;
  g_ascii_formatd (ms, sizeof ms, "%.3g", (double)end_ns / STRETCHES / 1e6);
  return g_strdup_printf ("of each %s ms the fullest moment", ms);
}

/* Columns and lines that a text needs beside its plot. */
#define TEXT_MARGIN 9
#define TEXT_RIGHT 3
#define TEXT_LINES 7

/* The fullest state between two times: what was live at the start, or became live later. */
static const Moment *
fullest_between (const View *self, double from_ns, double to_ns)
{
  const Moment *fullest = NULL;

  for (guint i = 0; i < self->simulated->len; i++)
    {
      const Moment *moment = moment_at (self->simulated, i);

      if ((double)moment->at_ns >= to_ns && fullest)
        break;
      if ((double)moment->at_ns <= from_ns || moment->total > fullest->total)
        fullest = moment;
    }
  return fullest;
}

/* The letter of what a stack shows at a height, a space above it. */
static char
letter_at (const View *self, const Moment *moment, double height_bytes)
{
  gint64 top = 0;

  for (guint k = 0; k < self->n_categories; k++)
    {
      top += moment->live[stack[self->kind[k]]];
      if (height_bytes < (double)top)
        return letters[self->kind[k]];
    }
  return ' ';
}

/* The stack in letters, a line of text for each height. */
static void
append_letters (GString *data, const View *self, const PlotFigure *figure)
{
  guint n_cells = figure->columns - TEXT_MARGIN - TEXT_RIGHT;
  guint n_lines = figure->lines - TEXT_LINES;
  gint64 end_ns = moment_at (self->simulated, self->simulated->len - 1)->at_ns;
  double cell_ns = self->to_ns / n_cells, line_bytes = self->top_bytes / n_lines;

  g_string_append (data, "\n\n# time_ms height letters\n# letters\n");
  for (guint line = 1; line <= n_lines; line++)
    {
      g_string_append (data, "0 ");
      plot_append_real (data, line * line_bytes / self->unit_bytes, 6);
      g_string_append (data, " \" "); /* gnuplot has the axis in the first column */
      for (guint cell = 0; cell < n_cells && cell * cell_ns < (double)end_ns; cell++)
        {
          const Moment *moment = fullest_between (self, cell * cell_ns, (cell + 1) * cell_ns);

          g_string_append_c (data, letter_at (self, moment, (line - 0.5) * line_bytes));
        }
      g_string_append (data, "\"\n");
    }
}

/* What the letters mean, and how much each is at the peak. */
static void
append_legend (GString *footer, const View *self)
{
  const Moment *peak = moment_at (self->simulated, self->peak);
  g_autofree char *total = plan_units_format_size ((guint64)peak->total);

  g_string_append (footer, "  at the peak\n");
  for (guint k = self->n_categories; k-- > 0;)
    {
      gint64 live = peak->live[stack[self->kind[k]]];
      g_autofree char *size = plan_units_format_size ((guint64)live);

      g_string_append_printf (footer, "  %c %-14s %12s\n", letters[self->kind[k]],
                              category_name (self, k), size);
    }
  g_string_append_printf (footer, "    %-14s %12s\n", "total", total);
  if (self->measured)
    g_string_append (footer, "  * total, measured\n");
}

static void
set_categories (const View *self, PlotFigure *figure)
{
  g_string_append_printf (figure->settings, "n_categories = %u\narray key[%u] = [",
                          self->n_categories, self->n_categories);
  for (guint i = 0; i < self->n_categories; i++)
    g_string_append_printf (figure->settings, "%s'%s'", i > 0 ? ", " : "", category_name (self, i));
  g_string_append_printf (figure->settings, "]\narray kind[%u] = [", self->n_categories);
  for (guint i = 0; i < self->n_categories; i++)
    g_string_append_printf (figure->settings, "%s%u", i > 0 ? ", " : "", self->kind[i] + 1);
  g_string_append (figure->settings, "]\n");
}

static void
set_variables (const View *self, PlotFigure *figure)
{
  const Moment *peak = moment_at (self->simulated, self->peak);

  plot_figure_set_text (figure, "unit", self->unit);
  plot_figure_set_real (figure, "to", self->to_ns / 1e6);
  plot_figure_set_real (figure, "top", self->top_bytes / self->unit_bytes);
  plot_figure_set_real (figure, "peak_at", (double)peak->at_ns / 1e6);
  plot_figure_set_real (figure, "peak", (double)peak->total / self->unit_bytes);
  plot_figure_set_text (figure, "peak_side",
                        (double)peak->at_ns > self->to_ns / 2 ? "right" : "left");
  plot_figure_set_real (figure, "measured", self->measured != NULL);
  plot_figure_set_real (figure, "text_margin", TEXT_MARGIN);
}

gboolean
plot_memory (const PlanTrace *simulated, const PlanTrace *measured, const PlanSchedule *schedule,
             const char *title, const char *path, char **out_text, GError **error)
{
  g_auto (PlotFigure) figure = { 0 };
  g_auto (View) view = { 0 };
  g_autofree char *peak_label = NULL;
  g_autofree char *note = NULL;
  GString *data;

  if (!plot_figure_init (&figure, path, script, error))
    return FALSE;
  view_init (&view, simulated, measured);
  if (view.n_categories == 0)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "cannot draw memory: the trace has no memory in it");
      return FALSE;
    }

  data = make_data (&view);
  if (figure.format == PLOT_TEXT)
    {
      append_letters (data, &view, &figure);
      append_legend (figure.footer, &view);
    }
  figure.data = g_string_free (data, FALSE);

  peak_label = make_peak_label (&view, simulated, schedule);
  note = make_note (&view);
  plot_figure_set_title (&figure, title, figure.format == PLOT_TEXT ? NULL : note);
  plot_figure_set_text (&figure, "peak_label", peak_label);
  set_variables (&view, &figure);
  set_categories (&view, &figure);
  return plot_figure_draw (&figure, out_text, error);
}
