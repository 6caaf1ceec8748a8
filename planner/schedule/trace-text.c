/* SPDX-License-Identifier: Apache-2.0 */
/* The text forms of a trace. The exact form, which reads back:
 *
 *   trace 1 ORIGIN
 *   NAME INT      one line per total
 *   peak CATEGORY INT   bytes of that category at the peak; resting likewise
 *   span NODE UNIT START_NS END_NS
 *   memory SPAN CATEGORY AT_NS LIVE_BYTES */
#include "config.h"

#include "planner/schedule/trace.h"

#include "planner/base/error.h"
#include "planner/base/text.h"

#include <string.h>

/* The totals: X (name in the text form, member of PlanTrace). */
#define TOTAL_LIST(X) \
  X ("step_ns", step_ns) \
  X ("compute_ns", compute_ns) \
  X ("exposed_gather_ns", exposed_gather_ns) \
  X ("exposed_reduce_ns", exposed_reduce_ns) \
  X ("exposed_tensor_ns", exposed_tensor_ns) \
  X ("exposed_copy_ns", exposed_copy_ns) \
  X ("host_ns", host_ns) \
  X ("idle_ns", idle_ns) \
  X ("allocated", memory.allocated) \
  X ("max_allocated", memory.max_allocated) \
  X ("reserved", memory.reserved) \
  X ("device", memory.device) \
  X ("peak_node", memory.peak_node) \
  X ("peak_unit", memory.peak_unit)

char *
plan_trace_print (const PlanTrace *self)
{
  GString *out = g_string_new (NULL);
  g_string_append_printf (out, "trace 1 %s\n", self->origin);
#define X(name, field) \
  g_string_append_printf (out, name " %" G_GINT64_FORMAT "\n", (gint64)self->field);
  TOTAL_LIST (X)
#undef X
  for (guint c = 0; c < PLAN_N_CATEGORIES; c++)
    g_string_append_printf (out,
                            "peak %s %" G_GUINT64_FORMAT "\nresting %s %" G_GUINT64_FORMAT "\n",
                            plan_category_name (c), self->memory.by_category[c],
                            plan_category_name (c), self->memory.resting[c]);
  for (guint i = 0; i < self->spans->len; i++)
    {
      const PlanSpan *s = &g_array_index (self->spans, PlanSpan, i);
      g_string_append_printf (out, "span %u %d %" G_GINT64_FORMAT " %" G_GINT64_FORMAT "\n",
                              s->node, s->unit, s->start_ns, s->end_ns);
    }
  for (guint i = 0; i < self->samples->len; i++)
    {
      const PlanMemorySample *m = &g_array_index (self->samples, PlanMemorySample, i);
      g_string_append_printf (out, "memory %u %s %" G_GINT64_FORMAT " %" G_GINT64_FORMAT "\n",
                              m->span, plan_category_name ((PlanCategory)m->category), m->at_ns,
                              m->live_bytes);
    }
  return g_string_free (out, FALSE);
}

static gboolean
read_int (const char *text, gint64 *out)
{
  char *end = NULL;
  if (!text || !(g_ascii_isdigit (*text) || (*text == '-' && g_ascii_isdigit (text[1]))))
    return FALSE;
  errno = 0;
  *out = g_ascii_strtoll (text, &end, 10);
  return *end == '\0' && errno == 0;
}

static gboolean
read_category (const char *text, gint64 *out)
{
  for (guint c = 0; text && c < PLAN_N_CATEGORIES; c++)
    if (strcmp (text, plan_category_name (c)) == 0)
      {
        *out = c;
        return TRUE;
      }
  return FALSE;
}

static gboolean
read_total (PlanTrace *self, const char *name, gint64 value)
{
#define X(total_name, field) \
  if (strcmp (name, total_name) == 0) \
    { \
      self->field = (__typeof__ (self->field))value; \
      return (gint64)self->field == value; \
    }
  TOTAL_LIST (X)
#undef X
  return FALSE;
}

static gboolean
read_span (PlanTrace *self, char **words)
{
  gint64 node, unit, start, end;
  if (g_strv_length (words) != 5 || !read_int (words[1], &node) || !read_int (words[2], &unit)
      || !read_int (words[3], &start) || !read_int (words[4], &end) || node < 0
      || node > G_MAXUINT32 || unit < -1 || unit > G_MAXINT32)
    return FALSE;
  plan_trace_add_span (self, (guint32)node, (gint32)unit, start, end);
  return TRUE;
}

static gboolean
read_sample (PlanTrace *self, char **words)
{
  gint64 span, category, at, live;
  if (g_strv_length (words) != 5 || !read_int (words[1], &span)
      || !read_category (words[2], &category) || !read_int (words[3], &at)
      || !read_int (words[4], &live) || span < 0 || span > G_MAXUINT32)
    return FALSE;
  const PlanMemorySample sample
      = { .span = (guint32)span, .category = (gint32)category, .at_ns = at, .live_bytes = live };
  g_array_append_val (self->samples, sample);
  return TRUE;
}

static gboolean
read_line (PlanTrace *self, char **words)
{
  gint64 category, value;
  if (strcmp (words[0], "span") == 0)
    return read_span (self, words);
  if (strcmp (words[0], "memory") == 0)
    return read_sample (self, words);
  if (strcmp (words[0], "peak") != 0 && strcmp (words[0], "resting") != 0)
    return g_strv_length (words) == 2 && read_int (words[1], &value)
           && read_total (self, words[0], value);
  if (g_strv_length (words) != 3 || !read_category (words[1], &category)
      || !read_int (words[2], &value) || value < 0)
    return FALSE;
  guint64 *table = *words[0] == 'p' ? self->memory.by_category : self->memory.resting;
  table[category] = (guint64)value;
  return TRUE;
}

PlanTrace *
plan_trace_parse (const char *text, const char *origin, GError **error)
{
  g_autoptr (PlanTrace) self = NULL;
  g_auto (GStrv) lines = g_strsplit (text, "\n", -1);
  for (guint i = 0; lines[i]; i++)
    {
      if (!*lines[i])
        continue;
      g_auto (GStrv) words = g_strsplit (lines[i], " ", -1);
      gboolean ok;
      if (self)
        ok = read_line (self, words);
      else if ((ok = g_strv_length (words) == 3 && strcmp (words[0], "trace") == 0
                     && strcmp (words[1], "1") == 0 && *words[2]))
        self = plan_trace_new (words[2]);
      if (!ok)
        {
          g_autofree char *shown = plan_text_quote (lines[i]);
          g_set_error (error, PLAN_ERROR, PLAN_ERROR_CORRUPT, "%s:%u: not a line of a trace: %s",
                       origin, i + 1, shown);
          return NULL;
        }
    }
  if (!self)
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_CORRUPT, "%s: there is no trace in it", origin);
  return g_steal_pointer (&self);
}

static void
append_microseconds (GString *out, gint64 ns)
{
  g_string_append_printf (out, "%" G_GINT64_FORMAT ".%03d", ns / 1000, (int)(ns % 1000));
}

#define NO_SPAN G_MAXUINT32

/* The trace being printed as one process among others, its times shifted by an offset. */
typedef struct
{
  GString *out;
  const PlanTraceView *view;
  guint number; /* of the process */
  guint *n_flows;
} Chrome;

/* Prints an arrow from within the span that recorded an event to the span that waited for it. */
static void
append_flow (const Chrome *self, const PlanSpan *from, PlanStream from_stream, const PlanSpan *to,
             PlanStream to_stream)
{
  const gint64 begin_ns = MAX (from->start_ns, from->end_ns - 1);
  GString *out = self->out;
  if (begin_ns > to->start_ns)
    return;
  const guint id = ++*self->n_flows;
  g_string_append_printf (
      out,
      ",\n{\"name\":\"event\",\"cat\":\"flow\",\"ph\":\"s\",\"id\":%u,\"pid\":%u,\"tid\":%u,"
      "\"ts\":",
      id, self->number, (guint)from_stream);
  append_microseconds (out, begin_ns + self->view->offset_ns);
  g_string_append_printf (out,
                          "},\n{\"name\":\"event\",\"cat\":\"flow\",\"ph\":\"f\",\"bp\":\"e\","
                          "\"id\":%u,\"pid\":%u,\"tid\":%u,\"ts\":",
                          id, self->number, (guint)to_stream);
  append_microseconds (out, to->start_ns + self->view->offset_ns);
  g_string_append_c (out, '}');
}

/* Prints the arrows of dependencies between streams within the step. They are known only where the
 * spans are those of the step's ops in issue order. */
static void
append_flows (const Chrome *self)
{
  const PlanTrace *trace = self->view->trace;
  const PlanSchedule *schedule = self->view->schedule;
  const guint32 n_events = plan_schedule_n_event_ids (schedule);
  g_autofree guint32 *recorder = g_new (guint32, n_events + 1);
  guint32 i = 0;
  PlanCursor cursor;
  const PlanOp *op;
  for (guint32 e = 0; e < n_events; e++)
    recorder[e] = NO_SPAN;
  for (plan_cursor_start (&cursor, schedule, PLAN_SECTION_STEP); (op = plan_cursor_next (&cursor));)
    {
      const gboolean has_span = plan_op_class (op->kind) != PLAN_CLASS_MEMORY;
      const PlanSpan *span = &g_array_index (trace->spans, PlanSpan, i);
      if (has_span && (i >= trace->spans->len || span->node != cursor.node))
        return;
      for (guint w = 0; has_span && w < op->n_waits; w++)
        {
          const guint32 from = recorder[plan_cursor_event (&cursor, &op->waits[w])];
          const PlanSpan *before
              = &g_array_index (trace->spans, PlanSpan, from == NO_SPAN ? i : from);
          const PlanStream stream = plan_schedule_node (schedule, before->node)->stream;
          if (stream != op->stream)
            append_flow (self, before, stream, span, op->stream);
        }
      if (op->record.array >= 0)
        recorder[plan_cursor_event (&cursor, &op->record)] = has_span ? i : NO_SPAN;
      i += has_span;
    }
}

static void
append_process (const Chrome *self)
{
  const PlanTrace *trace = self->view->trace;
  const PlanSchedule *schedule = self->view->schedule;
  const gint64 offset_ns = self->view->offset_ns;
  GString *out = self->out;
  g_string_append_printf (out,
                          "%s{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%u,\"args\":{\"name\":"
                          "\"rank %u (%s)\"}}",
                          self->number > 0 ? ",\n" : "", self->number,
                          plan_schedule_rank (schedule), trace->origin);
  for (guint s = 0; s < PLAN_N_STREAMS; s++)
    g_string_append_printf (out,
                            ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%u,\"tid\":%u,"
                            "\"args\":{\"name\":\"%s\"}}",
                            self->number, s, plan_stream_name (s));
  for (guint i = 0; i < trace->spans->len; i++)
    {
      const PlanSpan *span = &g_array_index (trace->spans, PlanSpan, i);
      const PlanOp *op = plan_schedule_node (schedule, span->node);
      g_string_append_printf (out, ",\n{\"name\":\"%s\",\"ph\":\"X\",\"pid\":%u,\"tid\":%u,\"ts\":",
                              plan_op_name (op->kind), self->number, (guint)op->stream);
      append_microseconds (out, span->start_ns + offset_ns);
      g_string_append (out, ",\"dur\":");
      append_microseconds (out, span->end_ns - span->start_ns);
      g_string_append_printf (out, ",\"args\":{\"unit\":%d,\"node\":%u}}", span->unit, span->node);
    }
  append_flows (self);
  for (guint i = 0; i < trace->samples->len; i++)
    {
      const PlanMemorySample *m = &g_array_index (trace->samples, PlanMemorySample, i);
      g_string_append_printf (out, ",\n{\"name\":\"memory %s\",\"ph\":\"C\",\"pid\":%u,\"ts\":",
                              plan_category_name ((PlanCategory)m->category), self->number);
      append_microseconds (out, m->at_ns + offset_ns);
      g_string_append_printf (out, ",\"args\":{\"bytes\":%" G_GINT64_FORMAT "}}", m->live_bytes);
    }
}

/* Trace Event Format: complete events per stream, arrows between them, a counter for memory. */
char *
plan_trace_print_chrome (const PlanTraceView *views, guint n)
{
  GString *out = g_string_new ("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
  guint n_flows = 0;
  for (guint i = 0; i < n; i++)
    append_process (&(Chrome){ out, &views[i], i, &n_flows });
  g_string_append (out, "\n]}\n");
  return g_string_free (out, FALSE);
}
