/* SPDX-License-Identifier: Apache-2.0 */
/* The order of ops is checked with vector clocks: every stream knows, for each other stream, which
 * of its ops are certain to have ended. Setup, two steps and teardown are walked, so that what one
 * step leaves to the next is covered. Taking and freeing memory count as accesses by the stream
 * that does it, so whoever gets the same bytes next must be ordered behind. */
#include "config.h"

#include "planner/schedule/schedule-private.h"

#include "planner/base/error.h"
#include "planner/schedule/scratch.h"

typedef struct
{
  guint64 happened[PLAN_N_STREAMS];
} Clock;

typedef struct
{
  gboolean is_live, is_defined;
  PlanStream writer;
  guint64 written; /* number of the op on the writer's stream */
  guint64 read[PLAN_N_STREAMS];
} BufferState;

typedef struct
{
  const PlanSchedule *schedule;
  PlanCursor cursor;
  PlanSection section;
  guint32 *first;       /* by buffer array: index of its first piece in `buffers` */
  BufferState *buffers; /* every piece of every buffer */
  Clock *events;
  gboolean *recorded;
  Clock streams[PLAN_N_STREAMS];
} Checker;

G_GNUC_PRINTF (4, 5)
static gboolean
fail (const Checker *c, const PlanOp *op, GError **error, const char *format, ...)
{
  va_list args;
  va_start (args, format);
  g_autofree char *message = g_strdup_vprintf (format, args);
  va_end (args);
  GString *loops = g_string_new (NULL);
  for (gint8 d = 0; d < c->cursor.depth; d++)
    g_string_append_printf (
        loops, ", %s=%" G_GINT64_FORMAT,
        plan_schedule_variable (c->schedule,
                                plan_schedule_node (c->schedule, c->cursor.loop[d].node)),
        c->cursor.loop[d].value);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "schedule: %s, op %u (%s on %s%s): %s",
               plan_section_name (c->section), c->cursor.node, plan_op_name (op->kind),
               plan_stream_name (op->stream), loops->str, message);
  g_string_free (loops, TRUE);
  return FALSE;
}

static BufferState *
state_of (const Checker *c, guint array, gint64 index)
{
  const PlanBuffer *buffer = plan_schedule_buffer (c->schedule, array);
  return &c->buffers[c->first[array] + (guint32)index * buffer->pieces];
}

/* The index that a reference gives within its array, or -1 where it is outside. */
static gint64
index_in (const Checker *c, const PlanRef *ref, guint32 count)
{
  const gint64 i = plan_cursor_index (&c->cursor, ref);
  return i >= 0 && i < (gint64)count ? i : -1;
}

static void
join (Clock *clock, const Clock *other)
{
  for (guint s = 0; s < PLAN_N_STREAMS; s++)
    clock->happened[s] = MAX (clock->happened[s], other->happened[s]);
}

static gboolean
check_waits (Checker *c, const PlanOp *op, GError **error)
{
  Clock *own = &c->streams[op->stream];
  for (guint i = 0; i < op->n_waits; i++)
    {
      const PlanEvent *event = plan_schedule_event (c->schedule, (guint)op->waits[i].array);
      const gint64 index = index_in (c, &op->waits[i], event->count);
      if (index < 0)
        return fail (c, op, error, "waits for an event outside %s[%u]", event->name, event->count);
      const guint32 id = event->first + (guint32)index;
      if (!c->recorded[id])
        return fail (c, op, error,
                     "waits for %s[%" G_GINT64_FORMAT "], which nothing records before",
                     event->name, index);
      join (own, &c->events[id]);
    }
  return TRUE;
}

/* Whether everything done to a buffer so far is certain to have ended for a stream with that
 * clock. */
static gboolean
is_behind (const BufferState *state, const Clock *clock, gboolean and_reads)
{
  if (clock->happened[state->writer] < state->written)
    return FALSE;
  for (guint s = 0; and_reads && s < PLAN_N_STREAMS; s++)
    if (clock->happened[s] < state->read[s])
      return FALSE;
  return TRUE;
}

/* Copied into states in few instructions; a memset of this size is a slow one (rep stos). */
static const BufferState nothing_done;

static gboolean
check_memory (Checker *c, const PlanOp *op, const char *name, BufferState *state, GError **error)
{
  const Clock *clock = &c->streams[op->stream];
  const gboolean takes = op->kind == PLAN_OP_ALLOC;
  if (op->kind == PLAN_OP_TOUCH && state->is_live)
    return TRUE;
  if (state->is_live == takes)
    return fail (c, op, error, takes ? "%s is taken already" : "%s is not taken", name);
  if (!takes && !is_behind (state, clock, TRUE))
    return fail (c, op, error, "%s may still be in use on another stream", name);
  *state = nothing_done;
  state->is_live = takes;
  state->writer = op->stream;
  state->written = clock->happened[op->stream];
  return TRUE;
}

/* The pieces of a buffer in which an operand lies. */
typedef struct
{
  BufferState *first;
  guint64 n;
} Pieces;

static gboolean
check_piece (Checker *c, const PlanOp *op, guint i, const PlanBuffer *buffer,
             const BufferState *state, GError **error)
{
  const char access = plan_op_ref_access (op->kind, i);
  const gboolean reads = access == 'r' || access == 'u', writes = access != 'r';
  if (!state->is_live)
    return fail (c, op, error, "%s is not taken", buffer->name);
  if (reads && !state->is_defined)
    return fail (c, op, error, "%s is read before anything wrote it", buffer->name);
  if (!is_behind (state, &c->streams[op->stream], writes))
    return fail (c, op, error, "nothing orders this behind the last use of %s", buffer->name);
  return TRUE;
}

static gboolean
check_access (Checker *c, const PlanOp *op, guint i, const PlanBuffer *buffer, Pieces *pieces,
              GError **error)
{
  const gint64 from = plan_cursor_at (&c->cursor, &op->refs[i]);
  const guint64 at = from < 0 ? G_MAXUINT64 : (guint64)from;
  const guint64 used
      = plan_op_ref_access (op->kind, i) == 's'
            ? plan_scratch_least_elements (op->kind, op->dims)
            : plan_op_ref_elements (op, i, plan_schedule_group_size (c->schedule, op));
  if (pieces->first->is_live && (at > buffer->elements || used > buffer->elements - at))
    return fail (c, op, error,
                 "%s needs %" G_GUINT64_FORMAT " elements from %" G_GUINT64_FORMAT
                 ", and has %" G_GUINT64_FORMAT,
                 buffer->name, used, at, buffer->elements);
  if (pieces->first->is_live && buffer->pieces > 1 && used > 0)
    {
      const guint64 size = buffer->elements / buffer->pieces;
      pieces->first += at / size;
      pieces->n = (at + used - 1) / size - at / size + 1;
    }
  for (guint64 p = 0; p < pieces->n; p++)
    if (!check_piece (c, op, i, buffer, &pieces->first[p], error))
      return FALSE;
  return TRUE;
}

/* Notes an access, after all operands were checked, since an op may read and write one buffer. */
static void
note_access (const PlanOp *op, guint i, BufferState *state, guint64 count)
{
  const char access = plan_op_ref_access (op->kind, i);
  if (access != 'w' && access != 's')
    state->read[op->stream] = count;
  if (access == 'r')
    return;
  state->writer = op->stream;
  state->written = count;
  state->is_defined |= access != 's';
}

static gboolean
check_operand (Checker *c, const PlanOp *op, guint i, Pieces *out_pieces, GError **error)
{
  const guint array = (guint)op->refs[i].array;
  const PlanBuffer *buffer = plan_schedule_buffer (c->schedule, array);
  const gint64 index = index_in (c, &op->refs[i], buffer->count);
  if (index < 0)
    return fail (c, op, error, "%s lies outside %s[%u]", plan_op_ref_name (op->kind, i),
                 buffer->name, buffer->count);
  *out_pieces = (Pieces){ state_of (c, array, index), buffer->pieces };
  if (plan_op_class (op->kind) != PLAN_CLASS_MEMORY)
    return check_access (c, op, i, buffer, out_pieces, error);
  for (guint64 p = 0; p < out_pieces->n; p++)
    if (!check_memory (c, op, buffer->name, &out_pieces->first[p], error))
      return FALSE;
  return TRUE;
}

static gboolean
check_record (Checker *c, const PlanOp *op, GError **error)
{
  if (op->record.array < 0)
    return TRUE;
  const PlanEvent *event = plan_schedule_event (c->schedule, (guint)op->record.array);
  const gint64 index = index_in (c, &op->record, event->count);
  if (index < 0)
    return fail (c, op, error, "records an event outside %s[%u]", event->name, event->count);
  c->events[event->first + index] = c->streams[op->stream];
  c->recorded[event->first + index] = TRUE;
  return TRUE;
}

static gboolean
check_op (Checker *c, const PlanOp *op, GError **error)
{
  Clock *own = &c->streams[op->stream];
  Pieces operands[PLAN_MAX_REFS];
  const guint n = plan_op_n_refs (op->kind);

  if ((op->group >= 0) != (plan_op_class (op->kind) == PLAN_CLASS_COLLECTIVE))
    return fail (c, op, error, "only collectives have a group");
  join (own, &c->streams[PLAN_STREAM_HOST]);
  if (!check_waits (c, op, error))
    return FALSE;
  for (guint i = 0; i < n; i++)
    if (op->refs[i].array >= 0 && !check_operand (c, op, i, &operands[i], error))
      return FALSE;
  if (plan_op_class (op->kind) != PLAN_CLASS_MEMORY)
    {
      own->happened[op->stream]++;
      for (guint i = 0; i < n; i++)
        for (guint64 p = 0; op->refs[i].array >= 0 && p < operands[i].n; p++)
          note_access (op, i, &operands[i].first[p], own->happened[op->stream]);
    }
  return check_record (c, op, error);
}

static gboolean
check_section (Checker *c, PlanSection section, GError **error)
{
  const PlanOp *op;
  c->section = section;
  plan_cursor_start (&c->cursor, c->schedule, section);
  while ((op = plan_cursor_next (&c->cursor)))
    if (!check_op (c, op, error))
      return FALSE;
  return TRUE;
}

/* Checks which buffers are live; `expected` is by buffer id, NULL for none. */
static gboolean
check_live (const Checker *c, const gboolean *expected, const char *when, GError **error)
{
  for (guint array = 0; array < c->schedule->buffers->len; array++)
    {
      const PlanBuffer *buffer = plan_schedule_buffer (c->schedule, array);
      for (guint32 i = 0; i < buffer->count; i++)
        {
          const gboolean wanted = expected && expected[buffer->first + i];
          if (state_of (c, array, i)->is_live == wanted)
            continue;
          g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "schedule: %s[%u] is %s after %s",
                       buffer->name, i, wanted ? "given back" : "still taken", when);
          return FALSE;
        }
    }
  return TRUE;
}

static gboolean
check_sections (Checker *c, GError **error)
{
  const guint32 n = plan_schedule_n_buffer_ids (c->schedule);
  g_autofree gboolean *resting = g_new0 (gboolean, n + 1);
  if (!check_section (c, PLAN_SECTION_SETUP, error))
    return FALSE;
  for (guint array = 0; array < c->schedule->buffers->len; array++)
    {
      const PlanBuffer *buffer = plan_schedule_buffer (c->schedule, array);
      for (guint32 i = 0; i < buffer->count; i++)
        resting[buffer->first + i] = state_of (c, array, i)->is_live;
    }
  for (guint step = 0; step < 2; step++)
    if (!check_section (c, PLAN_SECTION_STEP, error) || !check_live (c, resting, "a step", error))
      return FALSE;
  return check_section (c, PLAN_SECTION_TEARDOWN, error) && check_live (c, NULL, "teardown", error);
}

gboolean
plan_schedule_check (const PlanSchedule *self, GError **error)
{
  g_autofree guint32 *first = g_new0 (guint32, self->buffers->len + 1);
  guint32 n = 0;
  for (guint array = 0; array < self->buffers->len; array++)
    {
      const PlanBuffer *buffer = plan_schedule_buffer (self, array);
      first[array] = n;
      n += buffer->count * buffer->pieces;
    }
  g_autofree BufferState *buffers = g_new0 (BufferState, n + 1);
  g_autofree Clock *events = g_new0 (Clock, plan_schedule_n_event_ids (self) + 1);
  g_autofree gboolean *recorded = g_new0 (gboolean, plan_schedule_n_event_ids (self) + 1);
  Checker checker = {
    .schedule = self, .first = first, .buffers = buffers, .events = events, .recorded = recorded
  };
  return check_sections (&checker, error);
}
