/* SPDX-License-Identifier: Apache-2.0 */
/* One step of a pipeline: a row per stage, with its passes and exchanges as boxes; the rest is the
 * bubble. */
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
};

typedef struct
{
  guint stage;
  Kind kind;
  gint64 from_ns, to_ns;
} Box;

typedef struct
{
  const PlanTraceView *views;
  guint n;
  gint64 to_ns;
  GArray *boxes; /* Box: by stage and time */
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

/* Adds the boxes of spans [begin, end), which lie between two exchanges: a pass, or both on the
 * last stage. */
static void
add_boxes (View *self, guint stage, guint begin, guint end)
{
  const PlanTraceView *view = &self->views[stage];
  gboolean has_backward = FALSE, has_loss = FALSE;
  for (guint i = begin; i < end; i++)
    {
      has_backward = has_backward || is_backward (op_of (view, i));
      has_loss = has_loss || is_loss (op_of (view, i));
    }
  Kind kind = has_backward && !has_loss ? KIND_BACKWARD : KIND_FORWARD;
  if (stage > 0 && begin == 0) /* nothing has arrived yet */
    kind = KIND_EDGE;
  for (guint i = begin; i < end; i++)
    {
      const PlanSpan *span = &g_array_index (view->trace->spans, PlanSpan, i);
      const PlanOp *op = op_of (view, i);
      Box *last
          = self->boxes->len > 0 ? &g_array_index (self->boxes, Box, self->boxes->len - 1) : NULL;
      if (is_loss (op))
        kind = KIND_BACKWARD;
      if (op->kind == PLAN_OP_LOAD) /* the first stage goes on to the next micro batch */
        kind = KIND_FORWARD;
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
        g_array_append_val (self->boxes, box);
    }
}

static void
view_init (View *self, const PlanTraceView *views, guint n)
{
  *self = (View){ .views = views, .n = n, .boxes = g_array_new (FALSE, FALSE, sizeof (Box)) };
  for (guint stage = 0; stage < n; stage++)
    self->to_ns = MAX (self->to_ns, views[stage].offset_ns + views[stage].trace->step_ns);
  for (guint stage = 0; stage < n; stage++)
    {
      const GArray *spans = views[stage].trace->spans;
      guint begin = 0;
      for (guint i = 0; i <= spans->len; i++)
        {
          if (i < spans->len && op_of (&views[stage], i)->kind != PLAN_OP_TRADE)
            continue;
          add_boxes (self, stage, begin, i);
          begin = i + 1;
          if (i == spans->len)
            break;
          const PlanSpan *span = &g_array_index (spans, PlanSpan, i);
          const Box box = { stage, KIND_EXCHANGE, span->start_ns + views[stage].offset_ns,
                            span->end_ns + views[stage].offset_ns };
          g_array_append_val (self->boxes, box);
        }
    }
}

static void
view_clear (View *self)
{
  g_clear_pointer (&self->boxes, g_array_unref);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (View, view_clear)

/* The row of a stage; the first stage is on top. */
static guint
row_of (const View *self, guint stage)
{
  return self->n - 1 - stage;
}

static GString *
make_data (const View *self)
{
  GString *data = g_string_new (NULL);
  for (guint kind = 0; kind < N_KINDS; kind++)
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
          plot_append_real (data, row_of (self, box->stage) - 0.36, 2);
          g_string_append_c (data, ' ');
          plot_append_real (data, row_of (self, box->stage) + 0.36, 2);
          g_string_append_c (data, '\n');
        }
    }
  return data;
}

char *
plot_pipeline_data (const PlanTraceView *views, guint n)
{
  g_auto (View) view = { 0 };
  view_init (&view, views, n);
  return g_string_free (make_data (&view), FALSE);
}

/* A row of text output: each cell has the letter of what the stage did longest, or a dot for
 * nothing. */
static char *
make_letters (const View *self, guint stage, guint n_cells)
{
  GString *letters = g_string_new (NULL);
  const double cell_ns = (double)self->to_ns / n_cells;
  for (guint cell = 0; cell < n_cells; cell++)
    {
      const double from_ns = cell * cell_ns;
      double busy_ns[N_KINDS] = { 0 }, idle_ns = cell_ns;
      for (guint i = 0; i < self->boxes->len; i++)
        {
          const Box *box = &g_array_index (self->boxes, Box, i);
          const double shared_ns
              = MIN ((double)box->to_ns, from_ns + cell_ns) - MAX ((double)box->from_ns, from_ns);
          if (box->stage != stage || shared_ns <= 0)
            continue;
          busy_ns[box->kind] += shared_ns;
          idle_ns -= shared_ns;
        }
      char letter = '.';
      double longest_ns = idle_ns;
      for (guint kind = 0; kind < N_KINDS; kind++)
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

static void
append_letters (const View *self, PlotFigure *figure, GString *data)
{
  plot_begin_block (data, "letters", "start_ms y letters");
  for (guint stage = 0; stage < self->n; stage++)
    {
      g_autofree char *letters
          = make_letters (self, stage, figure->columns - TEXT_MARGIN - TEXT_RIGHT);
      /* gnuplot puts the axis into the first column, hence the space */
      g_string_append_printf (data, "0 %u \" %s\"\n", row_of (self, stage), letters);
    }
  g_string_append (figure->footer, "  . bubble");
  for (guint kind = 0; kind < N_KINDS; kind++)
    g_string_append_printf (figure->footer, "   %c %s", kinds[kind].letter, kinds[kind].key);
  g_string_append_c (figure->footer, '\n');
  figure->lines = 2 * self->n + 8;
}

static void
set_rows (const View *self, PlotFigure *figure)
{
  GString *to = figure->settings;
  g_string_append (to, "set ytics (");
  for (guint stage = 0; stage < self->n; stage++)
    g_string_append_printf (to, "%s'stage %u' %u", stage > 0 ? ", " : "", stage,
                            row_of (self, stage));
  g_string_append_printf (to, ")\nn_groups = %d\narray group[%d] = [", N_KINDS, N_KINDS);
  for (guint kind = 0; kind < N_KINDS; kind++)
    g_string_append_printf (to, "%s'%s'", kind > 0 ? ", " : "", kinds[kind].name);
  g_string_append_printf (to, "]\narray key[%d] = [", N_KINDS);
  for (guint kind = 0; kind < N_KINDS; kind++)
    g_string_append_printf (to, "%s'%s'", kind > 0 ? ", " : "", kinds[kind].key);
  g_string_append_printf (to, "]\narray line[%d] = [", N_KINDS);
  for (guint kind = 0; kind < N_KINDS; kind++)
    g_string_append_printf (to, "%s%d", kind > 0 ? ", " : "", kinds[kind].line);
  g_string_append (to, "]\n");
}

gboolean
plot_pipeline (const PlanTraceView *views, guint n, const char *title, const char *path,
               char **out_text, GError **error)
{
  g_auto (PlotFigure) figure = { 0 };
  g_auto (View) view = { 0 };
  if (!plot_figure_init (&figure, path, script, error))
    return FALSE;
  view_init (&view, views, n);
  GString *data = make_data (&view);
  if (figure.format == PLOT_TEXT)
    append_letters (&view, &figure, data);
  figure.data = g_string_free (data, FALSE);
  plot_figure_set_title (&figure, title, NULL);
  plot_figure_set_real (&figure, "from", 0);
  plot_figure_set_real (&figure, "to", (double)view.to_ns / 1e6);
  plot_figure_set_real (&figure, "rows", n);
  plot_figure_set_real (&figure, "measured", 0);
  plot_figure_set_real (&figure, "text_margin", TEXT_MARGIN);
  set_rows (&view, &figure);
  return plot_figure_draw (&figure, out_text, error);
}
