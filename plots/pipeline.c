/* SPDX-License-Identifier: Apache-2.0 */
/* One step of a pipeline: a row per stage, with its passes and exchanges as boxes; the rest is the
 * bubble. What was measured lies below what was simulated, as boxes too, or in text as letters. */
#include "config.h"

#include "plots/plot-private.h"

#include "planner/base/error.h"

#include <string.h>

static const char script[] =
#include "plots/timeline.gp.inc"
    ;

/* Boxes of one kind that are closer than this part of the step are drawn as one. */
#define MERGE_PARTS 2000

typedef enum
{
  KIND_FORWARD,
  KIND_BACKWARD,
  KIND_EXCHANGE,
  KIND_EDGE, /* gradients zeroed before all passes; norm and optimizer behind them */
  KIND_BOTH, /* layers of both passes in turn (ep_overlap); the last kind, as few pictures have it
              */
  N_KINDS
} Kind;

static const struct
{
  const char *name, *key;
  char letter;
  int line; /* line type of timeline.gp */
} kinds[N_KINDS] = {
  [KIND_FORWARD] = { "forward", "forward pass", 'F', 1 },
  [KIND_BACKWARD] = { "backward", "backward pass", 'B', 6 },
  [KIND_EXCHANGE] = { "exchange", "exchange", 'x', 7 },
  [KIND_EDGE] = { "edge", "start, end", 'e', 4 },
  [KIND_BOTH] = { "both", "both passes, layer by layer", '2', 5 },
};

typedef struct
{
  guint stage;
  Kind kind;
  gint64 from_ns, to_ns;
} Box;

typedef struct
{
  guint n, n_kinds;
  gint64 to_ns;
  GArray *boxes;    /* Box: by stage and time */
  GArray *measured; /* Box: what was measured; NULL: nothing was */
} View;

static const PlanOp *
op_of (const PlanTraceView *view, guint span)
{
  return plan_schedule_node (view->schedule,
                             g_array_index (view->trace->spans, PlanSpan, span).node);
}

static gboolean
is_backward (const PlanOp *op)
{
  return strstr (plan_op_name (op->kind), "_bwd") != NULL;
}

static gboolean
is_loss (const PlanOp *op)
{
  return op->kind == PLAN_OP_CROSS_ENTROPY || op->kind == PLAN_OP_LOSS_GRAD;
}

/* Adds the boxes of spans [begin, end), which lie between two exchanges. They are one pass, on the
 * last stage a forward and a backward pass, or two passes that run beside each other: these alone
 * send rows of experts on a stream of their own. */
static void
add_boxes (const View *self, GArray *boxes, const PlanTraceView *view, guint stage, guint begin,
           guint end)
{
  gboolean has_backward = FALSE, has_loss = FALSE, has_both = FALSE;
  for (guint i = begin; i < end; i++)
    {
      has_backward = has_backward || is_backward (op_of (view, i));
      has_loss = has_loss || is_loss (op_of (view, i));
      has_both = has_both || op_of (view, i)->stream == PLAN_STREAM_EXPERTS;
    }
  Kind kind = has_backward && !has_loss ? KIND_BACKWARD : KIND_FORWARD;
  if (stage > 0 && begin == 0) /* nothing has arrived yet */
    kind = KIND_EDGE;
  for (guint i = begin; i < end; i++)
    {
      const PlanSpan *span = &g_array_index (view->trace->spans, PlanSpan, i);
      const PlanOp *op = op_of (view, i);
      Box *last = boxes->len > 0 ? &g_array_index (boxes, Box, boxes->len - 1) : NULL;
      if (is_loss (op))
        kind = KIND_BACKWARD;
      if (op->kind == PLAN_OP_LOAD) /* the first stage goes on to the next micro batch */
        kind = KIND_FORWARD;
      if (has_both)
        kind = KIND_BOTH;
      if (plan_op_work (op->kind) == PLAN_WORK_OPTIMIZER)
        kind = KIND_EDGE;
      const Box box
          = { stage, kind, span->start_ns + view->offset_ns, span->end_ns + view->offset_ns };
      if (span->end_ns <= span->start_ns
          || (op->stream != PLAN_STREAM_COMPUTE && op->stream != PLAN_STREAM_TENSOR))
        continue;
      if (last && last->stage == stage && last->kind == box.kind
          && box.from_ns - last->to_ns < self->to_ns / MERGE_PARTS)
        last->to_ns = MAX (last->to_ns, box.to_ns);
      else
        g_array_append_val (boxes, box);
    }
}

static GArray *
find_boxes (const View *self, const PlanTraceView *views)
{
  GArray *boxes = g_array_new (FALSE, FALSE, sizeof (Box));
  for (guint stage = 0; stage < self->n; stage++)
    {
      const GArray *spans = views[stage].trace->spans;
      guint begin = 0;
      for (guint i = 0; i <= spans->len; i++)
        {
          if (i < spans->len && op_of (&views[stage], i)->kind != PLAN_OP_TRADE)
            continue;
          add_boxes (self, boxes, &views[stage], stage, begin, i);
          begin = i + 1;
          if (i == spans->len)
            break;
          const PlanSpan *span = &g_array_index (spans, PlanSpan, i);
          const Box box = { stage, KIND_EXCHANGE, span->start_ns + views[stage].offset_ns,
                            span->end_ns + views[stage].offset_ns };
          g_array_append_val (boxes, box);
        }
    }
  return boxes;
}

/* Finds when the first trade of stage `a` with stage `b` begins. FALSE: they do not trade. */
static gboolean
find_trade (const PlanTraceView *views, guint a, guint b, gint64 *out_ns)
{
  const PlanTraceView *view = &views[a];
  for (guint i = 0; i < view->trace->spans->len; i++)
    {
      const PlanOp *op = op_of (view, i);
      if (op->kind != PLAN_OP_TRADE || op->dims[PLAN_DIM_TRADE_peer] != (gint64)b)
        continue;
      *out_ns = g_array_index (view->trace->spans, PlanSpan, i).start_ns;
      return TRUE;
    }
  return FALSE;
}

void
plot_pipeline_align (PlanTraceView *views, guint n)
{
  gint64 least_ns = 0, here_ns, there_ns;
  for (guint stage = 1; stage < n; stage++)
    {
      if (find_trade (views, stage - 1, stage, &here_ns)
          && find_trade (views, stage, stage - 1, &there_ns))
        views[stage].offset_ns = views[stage - 1].offset_ns + here_ns - there_ns;
      least_ns = MIN (least_ns, views[stage].offset_ns);
    }
  for (guint stage = 0; stage < n; stage++)
    views[stage].offset_ns -= least_ns;
}

static void
view_init (View *self, const PlanTraceView *views, const PlanTraceView *measured, guint n)
{
  *self = (View){ .n = n };
  for (guint stage = 0; stage < n; stage++)
    {
      self->to_ns = MAX (self->to_ns, views[stage].offset_ns + views[stage].trace->step_ns);
      if (measured)
        self->to_ns = MAX (self->to_ns, measured[stage].offset_ns + measured[stage].trace->step_ns);
    }
  self->boxes = find_boxes (self, views);
  self->n_kinds = KIND_BOTH;
  for (guint i = 0; i < self->boxes->len; i++)
    if (g_array_index (self->boxes, Box, i).kind == KIND_BOTH)
      self->n_kinds = N_KINDS;
  self->measured = measured ? find_boxes (self, measured) : NULL;
}

static void
view_clear (View *self)
{
  g_clear_pointer (&self->boxes, g_array_unref);
  g_clear_pointer (&self->measured, g_array_unref);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (View, view_clear)

/* The row of a stage; the first stage is on top. */
static guint
row_of (const View *self, guint stage)
{
  return self->n - 1 - stage;
}

/* Appends measured boxes, in the lower half of a row. */
static void
append_measured (const View *self, GString *data)
{
  plot_begin_block (data, "measured", "start_ms end_ms bottom top kind");
  for (guint i = 0; i < self->measured->len; i++)
    {
      const Box *box = &g_array_index (self->measured, Box, i);
      plot_append_ms (data, box->from_ns);
      g_string_append_c (data, ' ');
      plot_append_ms (data, box->to_ns);
      g_string_append_c (data, ' ');
      plot_append_real (data, row_of (self, box->stage) - 0.42, 2);
      g_string_append_c (data, ' ');
      plot_append_real (data, row_of (self, box->stage) - 0.06, 2);
      g_string_append_printf (data, " %d\n", kinds[box->kind].line);
    }
}

static GString *
make_data (const View *self)
{
  GString *data = g_string_new (NULL);
  for (guint kind = 0; kind < self->n_kinds; kind++)
    {
      plot_begin_block (data, kinds[kind].name, "start_ms end_ms bottom top");
      for (guint i = 0; i < self->boxes->len; i++)
        {
          const Box *box = &g_array_index (self->boxes, Box, i);
          if (box->kind != kind)
            continue;
          plot_append_ms (data, box->from_ns);
          g_string_append_c (data, ' ');
          plot_append_ms (data, box->to_ns);
          g_string_append_c (data, ' ');
          plot_append_real (data, row_of (self, box->stage) - (self->measured ? 0 : 0.36), 2);
          g_string_append_c (data, ' ');
          plot_append_real (data, row_of (self, box->stage) + 0.36, 2);
          g_string_append_c (data, '\n');
        }
    }
  if (self->measured)
    append_measured (self, data);
  return data;
}

char *
plot_pipeline_data (const PlanTraceView *views, const PlanTraceView *measured, guint n)
{
  g_auto (View) view = { 0 };
  view_init (&view, views, measured, n);
  return g_string_free (make_data (&view), FALSE);
}

/* A row of text output: each cell has the letter of what the stage did longest, or a dot for
 * nothing. */
static char *
make_letters (const View *self, const GArray *boxes, guint stage, guint n_cells)
{
  GString *letters = g_string_new (NULL);
  const double cell_ns = (double)self->to_ns / n_cells;
  for (guint cell = 0; cell < n_cells; cell++)
    {
      const double from_ns = cell * cell_ns;
      double busy_ns[N_KINDS] = { 0 }, idle_ns = cell_ns;
      for (guint i = 0; i < boxes->len; i++)
        {
          const Box *box = &g_array_index (boxes, Box, i);
          const double shared_ns
              = MIN ((double)box->to_ns, from_ns + cell_ns) - MAX ((double)box->from_ns, from_ns);
          if (box->stage != stage || shared_ns <= 0)
            continue;
          busy_ns[box->kind] += shared_ns;
          idle_ns -= shared_ns;
        }
      char letter = '.';
      double longest_ns = idle_ns;
      for (guint kind = 0; kind < self->n_kinds; kind++)
        if (busy_ns[kind] > longest_ns)
          {
            longest_ns = busy_ns[kind];
            letter = kinds[kind].letter;
          }
      g_string_append_c (letters, letter);
    }
  return g_string_free (letters, FALSE);
}

#define TEXT_MARGIN 10
#define TEXT_RIGHT 3

/* In text output a row with measured letters is three lines high: simulated, measured, empty. */
#define MEASURED_BELOW 0.33

static void
append_letters (const View *self, PlotFigure *figure, GString *data)
{
  plot_begin_block (data, "letters", "start_ms y letters");
  for (guint stage = 0; stage < self->n; stage++)
    for (guint part = 0; part < (self->measured ? 2 : 1); part++)
      {
        g_autofree char *letters = make_letters (self, part ? self->measured : self->boxes, stage,
                                                 figure->columns - TEXT_MARGIN - TEXT_RIGHT);
        g_string_append (data, "0 ");
        plot_append_real (data, row_of (self, stage) - MEASURED_BELOW * part, part ? 2 : 0);
        /* gnuplot puts the axis into the first column, hence the space */
        g_string_append_printf (data, " \" %s\"\n", letters);
      }
  g_string_append (figure->footer, "  . bubble");
  for (guint kind = 0; kind < self->n_kinds; kind++)
    g_string_append_printf (figure->footer, "   %c %s", kinds[kind].letter, kinds[kind].key);
  g_string_append_c (figure->footer, '\n');
  figure->lines = (self->measured ? 3 : 2) * self->n + 8;
}

static void
set_rows (const View *self, PlotFigure *figure)
{
  GString *to = figure->settings;
  g_string_append (to, "set ytics (");
  for (guint stage = 0; stage < self->n; stage++)
    {
      g_string_append_printf (to, "%s'stage %u' %u", stage > 0 ? ", " : "", stage,
                              row_of (self, stage));
      if (figure->format != PLOT_TEXT || !self->measured)
        continue;
      g_string_append (to, ", 'measured' ");
      plot_append_real (to, row_of (self, stage) - MEASURED_BELOW, 2);
    }
  g_string_append_printf (to, ")\nn_groups = %u\narray group[%u] = [", self->n_kinds,
                          self->n_kinds);
  for (guint kind = 0; kind < self->n_kinds; kind++)
    g_string_append_printf (to, "%s'%s'", kind > 0 ? ", " : "", kinds[kind].name);
  g_string_append_printf (to, "]\narray key[%u] = [", self->n_kinds);
  for (guint kind = 0; kind < self->n_kinds; kind++)
    g_string_append_printf (to, "%s'%s'", kind > 0 ? ", " : "", kinds[kind].key);
  g_string_append_printf (to, "]\narray line[%u] = [", self->n_kinds);
  for (guint kind = 0; kind < self->n_kinds; kind++)
    g_string_append_printf (to, "%s%d", kind > 0 ? ", " : "", kinds[kind].line);
  g_string_append (to, "]\n");
}

gboolean
plot_pipeline (const PlanTraceView *views, const PlanTraceView *measured, guint n,
               const char *title, const char *path, char **out_text, GError **error)
{
  g_auto (PlotFigure) figure = { 0 };
  g_auto (View) view = { 0 };
  if (!plot_figure_init (&figure, path, script, error))
    return FALSE;
  view_init (&view, views, measured, n);
  GString *data = make_data (&view);
  if (figure.format == PLOT_TEXT)
    append_letters (&view, &figure, data);
  figure.data = g_string_free (data, FALSE);
  plot_figure_set_title (&figure, title, NULL);
  plot_figure_set_real (&figure, "from", 0);
  plot_figure_set_real (&figure, "to", (double)view.to_ns / 1e6);
  plot_figure_set_real (&figure, "rows", n);
  plot_figure_set_real (&figure, "measured", view.measured && view.measured->len > 0);
  plot_figure_set_real (&figure, "text_margin", TEXT_MARGIN);
  set_rows (&view, &figure);
  return plot_figure_draw (&figure, out_text, error);
}
