/* SPDX-License-Identifier: Apache-2.0 */
/* The order of ops is checked with vector clocks: every stream knows, for each other stream, which
 * of its ops are certain to have ended. Setup, two steps and teardown are walked, so that what one
 * step leaves to the next is covered. Taking and freeing memory count as accesses by the stream
 * that does it, so whoever gets the same bytes next must be ordered behind.
 *
 * Turns of a repeat that are alike are walked until one leaves everything as the one before it did,
 * but for higher numbers of ops. Only the order of such numbers is ever asked for, so the turns
 * left, and what follows them, find what this one and its followers would. */
#include "config.h"

#include "planner/schedule/schedule-private.h"

#include "planner/base/error.h"
#include "planner/schedule/scratch.h"

#include <string.h>

typedef struct
{
  guint64 happened[PLAN_N_STREAMS];
} Clock;

typedef struct
{
  gboolean is_live, is_defined;
  PlanStream writer;
  guint readers;   /* bits of the streams that read it */
  guint64 written; /* number of the op on the writer's stream */
  guint64 read[PLAN_N_STREAMS];
} BufferState;

/* The state of the check at the start of a turn of an outermost repeat. */
typedef struct
{
  guint32 repeat, end;  /* its nodes */
  gint64 left;          /* turns, with this one */
  gboolean are_alike;   /* no operand, wait or event of a turn depends on which it is */
  BufferState *buffers; /* as in Checker */
  Clock *events;
  gboolean *recorded;
  Clock streams[PLAN_N_STREAMS];
} Turn;

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
  guint64 said, heard[PLAN_N_STREAMS]; /* changes of the host's clock; those that a stream joined */
  guint32 n_pieces, n_events;
  Turn turn;
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
  for (guint s = 0, left = and_reads ? state->readers : 0; left != 0; s++, left >>= 1)
    if ((left & 1) && clock->happened[s] < state->read[s])
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
    {
      state->read[op->stream] = count;
      state->readers |= 1u << op->stream;
    }
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
  if (c->heard[op->stream] != c->said)
    join (own, &c->streams[PLAN_STREAM_HOST]);
  c->heard[op->stream] = c->said;
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
  c->said += op->stream == PLAN_STREAM_HOST;
  return check_record (c, op, error);
}

static gboolean
depends_on_turn (const PlanRef *ref)
{
  return ref->array >= 0 && ref->loop == 0 && ref->modulus != 1;
}

/* Finds the end of the outermost repeat that the cursor has entered, and whether its turns are
 * alike. */
static void
look_through (Checker *c)
{
  Turn *turn = &c->turn;
  guint depth = 1;
  turn->repeat = turn->end = c->cursor.loop[0].node;
  turn->are_alike = TRUE;
  while (depth > 0)
    {
      const PlanOp *op = plan_schedule_node (c->schedule, ++turn->end);
      depth += op->kind == PLAN_OP_REPEAT;
      depth -= op->kind == PLAN_OP_END;
      if (op->kind == PLAN_OP_REPEAT || op->kind == PLAN_OP_END)
        continue;
      turn->are_alike &= !depends_on_turn (&op->record);
      for (guint i = 0; i < plan_op_n_refs (op->kind); i++)
        turn->are_alike &= !depends_on_turn (&op->refs[i]);
      for (guint i = 0; i < op->n_waits; i++)
        turn->are_alike &= !depends_on_turn (&op->waits[i]);
    }
}

static void
keep_turn (Checker *c)
{
  Turn *turn = &c->turn;
  if (!turn->buffers)
    {
      turn->buffers = g_new (BufferState, c->n_pieces + 1);
      turn->events = g_new (Clock, c->n_events + 1);
      turn->recorded = g_new (gboolean, c->n_events + 1);
    }
  memcpy (turn->buffers, c->buffers, c->n_pieces * sizeof *c->buffers);
  memcpy (turn->events, c->events, c->n_events * sizeof *c->events);
  memcpy (turn->recorded, c->recorded, c->n_events * sizeof *c->recorded);
  memcpy (turn->streams, c->streams, sizeof c->streams);
}

/* How numbers of one stream's ops changed during a turn: by its ops, from some number on. */
typedef struct
{
  guint64 ops, kept_to, moved_from;
} Change;

static gboolean
note_change (Change *change, guint64 before, guint64 now)
{
  if (now == before)
    change->kept_to = MAX (change->kept_to, before);
  else if (now == before + change->ops)
    change->moved_from = MIN (change->moved_from, before);
  else
    return FALSE;
  return TRUE;
}

static gboolean
note_clocks (Change changes[PLAN_N_STREAMS], const Clock *before, const Clock *now, guint n)
{
  for (guint i = 0; i < n; i++)
    for (guint s = 0; s < PLAN_N_STREAMS; s++)
      if (!note_change (&changes[s], before[i].happened[s], now[i].happened[s]))
        return FALSE;
  return TRUE;
}

static gboolean
note_buffer (Change changes[PLAN_N_STREAMS], const BufferState *before, const BufferState *now)
{
  if (before->is_live != now->is_live || before->is_defined != now->is_defined
      || before->writer != now->writer || before->readers != now->readers
      || !note_change (&changes[now->writer], before->written, now->written))
    return FALSE;
  for (guint s = 0, left = now->readers; left != 0; s++, left >>= 1)
    if ((left & 1) && !note_change (&changes[s], before->read[s], now->read[s]))
      return FALSE;
  return TRUE;
}

/* Whether the turn before left all as it found it, but for numbers that went up in step: those that
 * did lie above those that did not, before as now. */
static gboolean
is_steady (const Checker *c)
{
  const Turn *turn = &c->turn;
  Change changes[PLAN_N_STREAMS];
  for (guint s = 0; s < PLAN_N_STREAMS; s++)
    changes[s]
        = (Change){ c->streams[s].happened[s] - turn->streams[s].happened[s], 0, G_MAXUINT64 };
  if (!note_clocks (changes, turn->streams, c->streams, PLAN_N_STREAMS)
      || !note_clocks (changes, turn->events, c->events, c->n_events)
      || memcmp (turn->recorded, c->recorded, c->n_events * sizeof *c->recorded) != 0)
    return FALSE;
  for (guint32 i = 0; i < c->n_pieces; i++)
    if (!note_buffer (changes, &turn->buffers[i], &c->buffers[i]))
      return FALSE;
  for (guint s = 0; s < PLAN_N_STREAMS; s++)
    if (changes[s].kept_to >= changes[s].moved_from)
      return FALSE;
  return TRUE;
}

/* Where a turn of an outermost repeat begins with the op that the cursor is at: goes to the
 * repeat's end if this and the others would find nothing new. */
static gboolean
skip_turns (Checker *c)
{
  const guint32 repeat = c->cursor.loop[0].node;
  const gint64 left = c->cursor.loop[0].left;
  Turn *turn = &c->turn;
  if (turn->repeat == repeat && turn->left == left)
    return FALSE;
  const gboolean follows = turn->repeat == repeat && turn->left == left + 1;
  if (turn->repeat != repeat)
    look_through (c);
  turn->left = left;
  if (!turn->are_alike)
    return FALSE;
  if (!follows || !is_steady (c))
    {
      if (left > 1)
        keep_turn (c);
      return FALSE;
    }
  c->cursor.depth = 1;
  c->cursor.loop[0].left = 1;
  c->cursor.next = turn->end;
  return TRUE;
}

static gboolean
check_section (Checker *c, PlanSection section, GError **error)
{
  const PlanOp *op;
  c->section = section;
  c->turn.repeat = G_MAXUINT32;
  plan_cursor_start (&c->cursor, c->schedule, section);
  while ((op = plan_cursor_next (&c->cursor)))
    if (!(c->cursor.depth > 0 && skip_turns (c)) && !check_op (c, op, error))
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
  Checker checker = { .schedule = self,
                      .first = first,
                      .buffers = buffers,
                      .events = events,
                      .recorded = recorded,
                      .n_pieces = n,
                      .n_events = plan_schedule_n_event_ids (self) };
  const gboolean is_sound = check_sections (&checker, error);
  g_free (checker.turn.buffers);
  g_free (checker.turn.events);
  g_free (checker.turn.recorded);
  return is_sound;
}
