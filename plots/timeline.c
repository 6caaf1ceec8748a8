/* SPDX-License-Identifier: Apache-2.0 */
/* The streams of a step, a row each; of a long step, the kernels around the end of the forward
 * pass. */
#include "config.h"

#include "plots/plot-private.h"

#include "planner/base/error.h"
#include "planner/base/units.h"

static const char script[] =
#include "plots/timeline.gp.inc"
    ;

/* Most kernels that a figure shows; more would be narrower than a line. */
#define MAX_KERNELS 200

/* Spans of one group that are closer than the window divided by this are drawn as one. */
#define MERGE_PARTS 2000

/* Groups of ops that have a colour. */
typedef enum
{
  GROUP_GEMM,
  GROUP_ATTENTION,
  GROUP_ELEMENTWISE,
  GROUP_OPTIMIZER,
  GROUP_GATHER,
  GROUP_REDUCE,
  GROUP_EXCHANGE,
  GROUP_ALL_TO_ALL,
  GROUP_TO_HOST,
  GROUP_FROM_HOST,
  GROUP_HOST,
  N_GROUPS
} Group;

static const struct
{
  const char *name; /* of its block in the data file */
  const char *key;
  char letter;
} groups[N_GROUPS] = {
  [GROUP_GEMM] = { "gemm", "gemm", '#' },
  [GROUP_ATTENTION] = { "attention", "attention", 'A' },
  [GROUP_ELEMENTWISE] = { "elementwise", "element-wise", 'e' },
  [GROUP_OPTIMIZER] = { "optimizer", "optimizer", 'O' },
  [GROUP_GATHER] = { "gather", "all_gather", '>' },
  [GROUP_REDUCE] = { "reduce", "reduction", '<' },
  [GROUP_EXCHANGE] = { "exchange", "exchange", 'x' },
  [GROUP_ALL_TO_ALL] = { "all_to_all", "all_to_all", 't' },
  [GROUP_TO_HOST] = { "to_host", "copy to host", 'v' },
  [GROUP_FROM_HOST] = { "from_host", "copy from host", '^' },
  [GROUP_HOST] = { "host", "host", 'h' },
};

static Group
group_of_copy (const PlanSchedule *schedule, const PlanOp *op)
{
  const PlanBuffer *out = plan_schedule_buffer (schedule, (guint)op->refs[PLAN_REF_COPY_out].array);

  return out->category == PLAN_CATEGORY_HOST ? GROUP_TO_HOST : GROUP_FROM_HOST;
}

static Group
group_of_compute (const PlanSchedule *schedule, const PlanOp *op)
{
  if (op->kind == PLAN_OP_COPY)
    return group_of_copy (schedule, op);
  switch (plan_op_work (op->kind))
    {
    case PLAN_WORK_GEMM:
      return GROUP_GEMM;
    case PLAN_WORK_ATTENTION:
      return GROUP_ATTENTION;
    case PLAN_WORK_OPTIMIZER:
      return GROUP_OPTIMIZER;
    case PLAN_WORK_ELEMENT:
    case PLAN_WORK_LOSS:
    case PLAN_WORK_QUANTISE:
    case PLAN_WORK_COPY:
    case PLAN_WORK_OTHER:
      return GROUP_ELEMENTWISE;
    case PLAN_N_WORKS:
      break;
    }
  g_assert_not_reached ();
}

static Group
group_of_collective (PlanOpKind kind)
{
  switch (kind)
    {
    case PLAN_OP_ALL_GATHER:
      return GROUP_GATHER;
    case PLAN_OP_EXCHANGE:
    case PLAN_OP_TRADE:
      return GROUP_EXCHANGE;
    case PLAN_OP_ALL_TO_ALL:
    case PLAN_OP_SEND_TOKENS:
      return GROUP_ALL_TO_ALL;
    case PLAN_OP_REDUCE_SCATTER:
    case PLAN_OP_ALL_REDUCE:
    case PLAN_OP_ALL_REDUCE_MAX:
      return GROUP_REDUCE;
      PLAN_CASES_BUT_COLLECTIVES
      break;
    }
  g_assert_not_reached ();
}

static Group
group_of (const PlanSchedule *schedule, const PlanOp *op)
{
  if (op->kind >= PLAN_N_OPS)
    return GROUP_HOST;
  switch (plan_op_class (op->kind))
    {
    case PLAN_CLASS_COMPUTE:
      return group_of_compute (schedule, op);
    case PLAN_CLASS_COLLECTIVE:
      return group_of_collective (op->kind);
    case PLAN_CLASS_HOST:
    case PLAN_CLASS_MEMORY:
      return GROUP_HOST;
    }
  g_assert_not_reached ();
}

/* The part of a step that is shown. */
typedef struct
{
  gint64 from_ns, to_ns;
  gint64 shift_ns;   /* subtracted from measured times, so that both begin with the same op */
  gboolean is_whole; /* the whole step is shown */
  guint n_rows;
  int row[PLAN_N_STREAMS]; /* row of each stream, from the bottom; -1: nothing runs there */
} Window;

typedef struct
{
  PlanStream stream;
  Group group;
  gint64 from_ns, to_ns;
} Box;

static const PlanOp *
span_op (const PlanSchedule *schedule, const PlanSpan *span)
{
  return plan_schedule_node (schedule, span->node);
}

static const PlanSpan *
span_at (const PlanTrace *trace, guint i)
{
  return &g_array_index (trace->spans, PlanSpan, i);
}

/* Indices of the spans of kernels. */
static GArray *
find_kernels (const PlanTrace *trace, const PlanSchedule *schedule)
{
  GArray *kernels = g_array_new (FALSE, FALSE, sizeof (guint));

  for (guint i = 0; i < trace->spans->len; i++)
    if (span_op (schedule, span_at (trace, i))->stream == PLAN_STREAM_COMPUTE
        && span_at (trace, i)->end_ns > span_at (trace, i)->start_ns)
      g_array_append_val (kernels, i);
  return kernels;
}

/* The kernel to put in the middle of the window: the turn from a forward to a backward pass that is
 * closest to the middle of the step, since both passes are visible there; or else the middle. */
static guint
find_centre (const PlanTrace *trace, const PlanSchedule *schedule, const GArray *kernels)
{
  gint64 middle_ns = trace->step_ns / 2, nearest = G_MAXINT64;
  gboolean is_turn_known = FALSE;
  guint centre = 0;

  for (guint k = 0; k < kernels->len; k++)
    {
      const PlanSpan *span = span_at (trace, g_array_index (kernels, guint, k));
      PlanOpKind kind = span_op (schedule, span)->kind;
      gboolean is_turn = kind == PLAN_OP_CROSS_ENTROPY || kind == PLAN_OP_LOSS_GRAD;
      gint64 distance = ABS (span->start_ns - middle_ns);

      if (is_turn == is_turn_known ? distance < nearest : is_turn)
        {
          is_turn_known = is_turn;
          nearest = distance;
          centre = k;
        }
    }
  return centre;
}

/* The end of a trace. What a step starts may end after the step's period. */
static gint64
trace_end_ns (const PlanTrace *trace)
{
  gint64 end_ns = trace->step_ns;

  for (guint i = 0; i < trace->spans->len; i++)
    end_ns = MAX (end_ns, span_at (trace, i)->end_ns);
  return end_ns;
}

/* Whether part of a span that takes time is in the window. */
static gboolean
is_shown (const PlanSpan *span, const Window *window, gint64 shift_ns)
{
  return span->end_ns > span->start_ns && span->end_ns - shift_ns > window->from_ns
         && span->start_ns - shift_ns < window->to_ns;
}

static void
find_rows (const PlanTrace *trace, const PlanSchedule *schedule, Window *window)
{
  gboolean is_used[PLAN_N_STREAMS] = { FALSE };

  for (guint i = 0; i < trace->spans->len; i++)
    if (is_shown (span_at (trace, i), window, 0))
      is_used[span_op (schedule, span_at (trace, i))->stream] = TRUE;
  for (int stream = PLAN_N_STREAMS - 1; stream >= 0; stream--)
    window->row[stream] = is_used[stream] ? (int)window->n_rows++ : -1;
}

static Window
find_window (const PlanTrace *simulated, const PlanTrace *measured, const PlanSchedule *schedule)
{
  g_autoptr (GArray) kernels = find_kernels (simulated, schedule);
  Window window = { .is_whole = kernels->len <= MAX_KERNELS };
  guint centre, first, last;

  if (window.is_whole)
    {
      window.to_ns = MAX (trace_end_ns (simulated), measured ? trace_end_ns (measured) : 0);
      return window;
    }

  centre = find_centre (simulated, schedule, kernels);
  first = MIN (centre - MIN (centre, MAX_KERNELS / 2), kernels->len - MAX_KERNELS);
  last = g_array_index (kernels, guint, first + MAX_KERNELS - 1);
  first = g_array_index (kernels, guint, first);
  window.from_ns = span_at (simulated, first)->start_ns;
  window.to_ns = span_at (simulated, last)->end_ns;

  /* Traces of one schedule have the same spans in the same order, but may have drifted apart by
   * more than the window. The same ops are shown, not the same moments. */
  if (measured && measured->spans->len == simulated->spans->len
      && span_at (measured, first)->node == span_at (simulated, first)->node)
    {
      window.shift_ns = span_at (measured, first)->start_ns - window.from_ns;
      window.to_ns = MAX (window.to_ns, span_at (measured, last)->end_ns - window.shift_ns);
    }
  return window;
}

static int
compare_boxes (gconstpointer a, gconstpointer b)
{
  const Box *x = a, *y = b;

  if (x->stream != y->stream)
    return x->stream < y->stream ? -1 : 1;
  return x->from_ns < y->from_ns ? -1 : x->from_ns > y->from_ns;
}

/* The boxes that the window shows of a trace, by stream and time, with neighbours of one group
 * joined. */
static GArray *
find_boxes (const PlanTrace *trace, const PlanSchedule *schedule, const Window *window,
            gint64 shift_ns)
{
  GArray *boxes = g_array_new (FALSE, FALSE, sizeof (Box));
  gint64 last[PLAN_N_STREAMS]; /* index of the box drawn last */

  for (guint stream = 0; stream < PLAN_N_STREAMS; stream++)
    last[stream] = -1;
  for (guint i = 0; i < trace->spans->len; i++)
    {
      const PlanSpan *span = span_at (trace, i);
      const PlanOp *op = span_op (schedule, span);
      Box box = { .stream = op->stream,
                  .group = group_of (schedule, op),
                  .from_ns = span->start_ns - shift_ns,
                  .to_ns = span->end_ns - shift_ns };
      Box *before = last[box.stream] < 0 ? NULL : &g_array_index (boxes, Box, last[box.stream]);

      if (!is_shown (span, window, shift_ns) || window->row[box.stream] < 0)
        continue;
      if (before && before->group == box.group
          && (box.from_ns - before->to_ns) < (window->to_ns - window->from_ns) / MERGE_PARTS)
        {
          before->to_ns = MAX (before->to_ns, box.to_ns);
          continue;
        }
      last[box.stream] = boxes->len;
      g_array_append_val (boxes, box);
    }
  g_array_sort (boxes, compare_boxes);
  return boxes;
}

/* Appends boxes. Simulated ops take a whole row, or its upper half where measured ones need the
 * lower one. */
static void
append_boxes (GString *data, const GArray *boxes, const Window *window, Group group,
              gboolean is_shared)
{
  plot_begin_block (data, groups[group].name, "start_ms end_ms bottom top");
  for (guint i = 0; i < boxes->len; i++)
    {
      const Box *box = &g_array_index (boxes, Box, i);
      int row = window->row[box->stream];

      if (box->group != group)
        continue;
      plot_append_ms (data, MAX (box->from_ns, window->from_ns));
      g_string_append_c (data, ' ');
      plot_append_ms (data, MIN (box->to_ns, window->to_ns));
      g_string_append_c (data, ' ');
      plot_append_real (data, is_shared ? row : row - 0.36, 2);
      g_string_append_c (data, ' ');
      plot_append_real (data, row + 0.36, 2);
      g_string_append_c (data, '\n');
    }
}

/* Appends measured boxes, in the lower half of a row. */
static void
append_measured (GString *data, const GArray *boxes, const Window *window)
{
  plot_begin_block (data, "measured", "start_ms end_ms bottom top group");
  for (guint i = 0; i < boxes->len; i++)
    {
      const Box *box = &g_array_index (boxes, Box, i);
      int row = window->row[box->stream];

      plot_append_ms (data, MAX (box->from_ns, window->from_ns));
      g_string_append_c (data, ' ');
      plot_append_ms (data, MIN (box->to_ns, window->to_ns));
      g_string_append_c (data, ' ');
      plot_append_real (data, row - 0.42, 2);
      g_string_append_c (data, ' ');
      plot_append_real (data, row - 0.06, 2);
      g_string_append_printf (data, " %d\n", (int)box->group + 1);
    }
}

static gboolean
has_group (const GArray *boxes, Group group)
{
  for (guint i = 0; boxes && i < boxes->len; i++)
    if (g_array_index (boxes, Box, i).group == group)
      return TRUE;
  return FALSE;
}

/* Everything that a window shows. */
typedef struct
{
  Window window;
  GArray *simulated; /* Box */
  GArray *measured;  /* Box, or NULL */
} View;

static void
view_init (View *self, const PlanTrace *simulated, const PlanTrace *measured,
           const PlanSchedule *schedule)
{
  self->window = find_window (simulated, measured, schedule);
  find_rows (simulated, schedule, &self->window);
  self->simulated = find_boxes (simulated, schedule, &self->window, 0);
  self->measured
      = measured ? find_boxes (measured, schedule, &self->window, self->window.shift_ns) : NULL;
}

static void
view_clear (View *self)
{
  g_clear_pointer (&self->simulated, g_array_unref);
  g_clear_pointer (&self->measured, g_array_unref);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (View, view_clear)

static GString *
make_data (const View *view)
{
  GString *data = g_string_new (NULL);

  for (int group = 0; group < N_GROUPS; group++)
    if (has_group (view->simulated, group))
      append_boxes (data, view->simulated, &view->window, group, view->measured != NULL);
    else if (has_group (view->measured, group)) /* for the key */
      {
        plot_begin_block (data, groups[group].name, "no box");
        g_string_append (data, "NaN NaN NaN NaN\n");
      }
  if (view->measured)
    append_measured (data, view->measured, &view->window);
  return data;
}

char *
plot_timeline_data (const PlanTrace *simulated, const PlanTrace *measured,
                    const PlanSchedule *schedule)
{
  g_auto (View) view = { 0 };

  view_init (&view, simulated, measured, schedule);
  return g_string_free (make_data (&view), FALSE);
}

/* A row of text output: each cell has the letter of what the stream did longest, or a dot for
 * nothing. */
static char *
make_letters (const GArray *boxes, const Window *window, PlanStream stream, guint n_cells)
{
  g_autoptr (GString) letters = g_string_new (NULL);
  double cell_ns = (double)(window->to_ns - window->from_ns) / n_cells;

  for (guint cell = 0; cell < n_cells; cell++)
    {
      double from_ns = (double)window->from_ns + cell * cell_ns, idle_ns = cell_ns;
      double busy_ns[N_GROUPS] = { 0 }, longest_ns = 0;
      char letter = '.';

      for (guint i = 0; i < boxes->len; i++)
        {
          const Box *box = &g_array_index (boxes, Box, i);
          double shared_ns
              = MIN ((double)box->to_ns, from_ns + cell_ns) - MAX ((double)box->from_ns, from_ns);

          if (box->stream != stream || shared_ns <= 0)
            continue;
          busy_ns[box->group] += shared_ns;
          idle_ns -= shared_ns;
        }
      for (int group = 0; group < N_GROUPS; group++)
        if (busy_ns[group] > longest_ns)
          {
            longest_ns = busy_ns[group];
            letter = groups[group].letter;
          }
      g_string_append_c (letters, longest_ns > 0 && longest_ns >= idle_ns ? letter : '.');
    }
  return g_string_free (g_steal_pointer (&letters), FALSE);
}

/* Columns of text output for the names of rows, and on the right. */
#define TEXT_MARGIN 10
#define TEXT_RIGHT 3

/* Rows of text output are three lines high: simulated, measured, and an empty one. */
#define MEASURED_BELOW 0.33

static void
append_letters (const View *view, PlotFigure *figure, GString *data)
{
  const Window *window = &view->window;
  guint n_cells = figure->columns - TEXT_MARGIN - TEXT_RIGHT;

  plot_begin_block (data, "letters", "start_ms y letters");
  for (guint stream = 0; stream < PLAN_N_STREAMS; stream++)
    for (guint part = 0; window->row[stream] >= 0 && part < (view->measured ? 2 : 1); part++)
      {
        g_autofree char *letters
            = make_letters (part ? view->measured : view->simulated, window, stream, n_cells);

        plot_append_ms (data, window->from_ns);
        g_string_append_c (data, ' ');
        plot_append_real (data, window->row[stream] - MEASURED_BELOW * part, 2);
        /* gnuplot puts the axis into the first column, hence the space */
        g_string_append_printf (data, " \" %s\"\n", letters);
      }

  g_string_append (figure->footer, "  . nothing");
  for (int group = 0; group < N_GROUPS; group++)
    if (has_group (view->simulated, group) || has_group (view->measured, group))
      g_string_append_printf (figure->footer, "   %c %s", groups[group].letter, groups[group].key);
  g_string_append (figure->footer, "\n");
  figure->lines = 3 * window->n_rows + 8;
}

static void
set_rows (const View *view, PlotFigure *figure)
{
  gboolean has_two = figure->format == PLOT_TEXT && view->measured;
  const char *separator = "";

  g_string_append (figure->settings, "set ytics (");
  for (guint stream = 0; stream < PLAN_N_STREAMS; stream++)
    {
      int row = view->window.row[stream];

      if (row < 0)
        continue;
      g_string_append_printf (figure->settings, "%s'%s' %d", separator, plan_stream_name (stream),
                              row);
      if (has_two)
        {
          g_string_append (figure->settings, ", 'measured' ");
          plot_append_real (figure->settings, row - MEASURED_BELOW, 2);
        }
      separator = ", ";
    }
  g_string_append (figure->settings, ")\n");
}

/* Sets the groups of ops that occur: their blocks, names and line types. */
static void
set_groups (const View *view, PlotFigure *figure)
{
  g_autoptr (GString) names = g_string_new (NULL);
  g_autoptr (GString) keys = g_string_new (NULL);
  g_autoptr (GString) lines = g_string_new (NULL);
  const char *separator = "";
  guint n = 0;

  for (int group = 0; group < N_GROUPS; group++)
    if (has_group (view->simulated, group) || has_group (view->measured, group))
      {
        g_string_append_printf (names, "%s'%s'", separator, groups[group].name);
        g_string_append_printf (keys, "%s'%s'", separator, groups[group].key);
        g_string_append_printf (lines, "%s%d", separator, group + 1);
        separator = ", ";
        n++;
      }
  g_string_append_printf (figure->settings,
                          "n_groups = %u\narray group[%u] = [%s]\narray key[%u] = [%s]\n"
                          "array line[%u] = [%s]\n",
                          n, n, names->str, n, keys->str, n, lines->str);
}

/* Appends milliseconds with two decimals, or more in a short window. */
static void
append_short_ms (GString *text, gint64 ns, const Window *window)
{
  plot_append_real (text, (double)ns / 1e6, window->to_ns - window->from_ns < 1000000 ? 5 : 2);
}

/* Which part of the step is shown; NULL for all of it. */
static char *
make_note (const Window *window, const PlanTrace *simulated, const PlanTrace *measured)
{
  g_autoptr (GString) note = g_string_new (NULL);

  if (window->is_whole)
    return NULL;
  append_short_ms (note, window->from_ns, window);
  g_string_append (note, " to ");
  append_short_ms (note, window->to_ns, window);
  g_string_append (note, " ms of a step of ");
  append_short_ms (note, simulated->step_ns, window);
  g_string_append (note, " ms");
  if (measured)
    {
      g_string_append (note, ", which took ");
      append_short_ms (note, measured->step_ns, window);
      g_string_append (note, " ms");
    }
  if (window->shift_ns != 0)
    {
      g_string_append (note, "; measured ops moved ");
      append_short_ms (note, ABS (window->shift_ns), window);
      g_string_append_printf (note, " ms %s", window->shift_ns > 0 ? "earlier" : "later");
    }
  return g_string_free (g_steal_pointer (&note), FALSE);
}

gboolean
plot_timeline (const PlanTrace *simulated, const PlanTrace *measured, const PlanSchedule *schedule,
               const char *title, const char *path, char **out_text, GError **error)
{
  g_auto (PlotFigure) figure = { 0 };
  g_auto (View) view = { 0 };
  g_autofree char *note = NULL;
  GString *data;

  if (!plot_figure_init (&figure, path, script, error))
    return FALSE;
  view_init (&view, simulated, measured, schedule);
  if (view.simulated->len == 0)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "cannot draw a timeline: nothing in the trace takes time");
      return FALSE;
    }

  data = make_data (&view);
  if (figure.format == PLOT_TEXT)
    append_letters (&view, &figure, data);
  figure.data = g_string_free (data, FALSE);

  note = make_note (&view.window, simulated,
                    view.measured && view.measured->len > 0 ? measured : NULL);
  plot_figure_set_title (&figure, title, note);
  plot_figure_set_real (&figure, "from", (double)view.window.from_ns / 1e6);
  plot_figure_set_real (&figure, "to", (double)view.window.to_ns / 1e6);
  plot_figure_set_real (&figure, "rows", view.window.n_rows);
  plot_figure_set_real (&figure, "measured", view.measured && view.measured->len > 0);
  plot_figure_set_real (&figure, "text_margin", TEXT_MARGIN);
  set_rows (&view, &figure);
  set_groups (&view, &figure);
  return plot_figure_draw (&figure, out_text, error);
}
