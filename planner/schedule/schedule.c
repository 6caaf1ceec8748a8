/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/schedule/schedule-private.h"

#define USUAL_NODES 4096 /* room at first, since growing copies the nodes */

const char *
plan_section_name (PlanSection section)
{
  static const char *const names[] = { "setup", "step", "teardown" };
  return names[section];
}

static void
clear_buffer (gpointer data)
{
  g_free (((PlanBuffer *)data)->name);
}

static void
clear_event (gpointer data)
{
  g_free (((PlanEvent *)data)->name);
}

static void
clear_group (gpointer data)
{
  g_free (((PlanGroup *)data)->name);
}

static void
clear_variable (gpointer data)
{
  g_free (*(char **)data);
}

static gsize n_made;

PlanSchedule *
plan_schedule_new (guint rank, guint ranks)
{
  g_return_val_if_fail (rank < ranks, NULL);
  PlanSchedule *self = g_new0 (PlanSchedule, 1);
  self->rank = rank;
  self->ranks = ranks;
  self->serial = (guint64)g_atomic_pointer_add (&n_made, 1) + 1;
  self->nodes = g_new (PlanOp, USUAL_NODES);
  self->room = USUAL_NODES;
  self->buffers = g_array_new (FALSE, TRUE, sizeof (PlanBuffer));
  self->events = g_array_new (FALSE, TRUE, sizeof (PlanEvent));
  self->echoes = g_array_new (FALSE, FALSE, sizeof (PlanEcho));
  self->groups = g_array_new (FALSE, TRUE, sizeof (PlanGroup));
  self->variables = g_array_new (FALSE, TRUE, sizeof (char *));
  self->manners = g_array_new (FALSE, TRUE, sizeof (PlanManner));
  g_array_set_size (self->manners, 1);
  g_array_set_clear_func (self->buffers, clear_buffer);
  g_array_set_clear_func (self->events, clear_event);
  g_array_set_clear_func (self->groups, clear_group);
  g_array_set_clear_func (self->variables, clear_variable);
  return self;
}

void
plan_schedule_free (PlanSchedule *self)
{
  if (!self)
    return;
  g_free (self->nodes);
  g_array_unref (self->buffers);
  g_array_unref (self->events);
  g_array_unref (self->echoes);
  g_array_unref (self->groups);
  g_array_unref (self->variables);
  g_array_unref (self->manners);
  g_free (self);
}

void
plan_schedule_set_graph (PlanSchedule *self)
{
  self->is_graph = TRUE;
}

gboolean
plan_schedule_is_graph (const PlanSchedule *self)
{
  return self->is_graph;
}

gint32
plan_schedule_add_buffer (PlanSchedule *self, const char *name, guint32 count, guint64 elements,
                          PlanDtype dtype, PlanCategory category)
{
  g_return_val_if_fail (count > 0, -1);
  const PlanBuffer buffer = { .name = g_strdup (name),
                              .count = count,
                              .first = plan_schedule_n_buffer_ids (self),
                              .elements = elements,
                              .pieces = 1,
                              .dtype = dtype,
                              .category = category };
  g_array_append_val (self->buffers, buffer);
  return (gint32)self->buffers->len - 1;
}

void
plan_schedule_cut_buffer (PlanSchedule *self, guint array, guint32 pieces)
{
  g_return_if_fail (array < self->buffers->len && pieces > 0);
  PlanBuffer *buffer = &g_array_index (self->buffers, PlanBuffer, array);
  g_return_if_fail (buffer->elements % pieces == 0);
  buffer->pieces = pieces;
}

void
plan_schedule_register (PlanSchedule *self, guint group, guint64 bytes)
{
  g_return_if_fail (group < self->groups->len);
  g_array_index (self->groups, PlanGroup, group).registered_bytes = bytes;
}

void
plan_schedule_resize_buffer (PlanSchedule *self, guint array, guint64 elements)
{
  g_return_if_fail (array < self->buffers->len);
  g_array_index (self->buffers, PlanBuffer, array).elements = elements;
}

gint32
plan_schedule_add_event (PlanSchedule *self, const char *name, guint32 count)
{
  g_return_val_if_fail (count > 0, -1);
  const PlanEvent event
      = { .name = g_strdup (name), .count = count, .first = plan_schedule_n_event_ids (self) };
  g_array_append_val (self->events, event);
  return (gint32)self->events->len - 1;
}

gint8
plan_schedule_add_group (PlanSchedule *self, const char *name, guint size, guint stride)
{
  g_return_val_if_fail (size > 0 && stride > 0 && self->groups->len < PLAN_MAX_GROUPS, -1);
  const PlanGroup group = { .name = g_strdup (name), .size = size, .stride = stride };
  g_array_append_val (self->groups, group);
  return (gint8)(self->groups->len - 1);
}

void
plan_schedule_begin_section (PlanSchedule *self, PlanSection section)
{
  g_return_if_fail (self->depth == 0 && self->n_sections_begun == (guint)section);
  for (guint s = section; s <= PLAN_N_SECTIONS; s++)
    self->section_start[s] = self->n_nodes;
  self->n_sections_begun = section + 1;
}

void
plan_schedule_begin_repeat (PlanSchedule *self, const char *variable, gint64 from, gint64 count,
                            gint64 step)
{
  g_return_if_fail (self->depth < PLAN_MAX_DEPTH && count > 0 && self->n_sections_begun > 0);
  char *name = g_strdup (variable);
  g_array_append_val (self->variables, name);
  self->open[self->depth++] = self->n_nodes;
  PlanOp *repeat = plan_schedule_add_op (self, PLAN_OP_REPEAT, PLAN_STREAM_HOST);
  repeat->dims[PLAN_REPEAT_FROM] = from;
  repeat->dims[PLAN_REPEAT_COUNT] = count;
  repeat->dims[PLAN_REPEAT_STEP] = step;
  repeat->dims[PLAN_REPEAT_VARIABLE] = self->variables->len - 1;
}

void
plan_schedule_move_along (PlanSchedule *self, gint64 elements)
{
  g_return_if_fail (self->depth > 0);
  self->nodes[self->open[self->depth - 1]].dims[PLAN_REPEAT_ALONG] = elements;
}

void
plan_schedule_end_repeat (PlanSchedule *self)
{
  g_return_if_fail (self->depth > 0);
  const guint repeat = self->open[--self->depth];
  self->nodes[repeat].dims[PLAN_REPEAT_END] = self->n_nodes;
  plan_schedule_add_op (self, PLAN_OP_END, PLAN_STREAM_HOST)->dims[0] = repeat;
}

void
plan_schedule_reserve (PlanSchedule *self, guint nodes)
{
  if (self->n_nodes + nodes <= self->room)
    return;
  self->room = self->n_nodes + nodes;
  self->nodes = g_renew (PlanOp, self->nodes, self->room);
}

PlanOp *
plan_schedule_add_op (PlanSchedule *self, PlanOpKind kind, PlanStream stream)
{
  g_return_val_if_fail (self->n_sections_begun > 0, NULL);
  if (self->n_nodes == self->room)
    self->nodes = g_renew (PlanOp, self->nodes, self->room *= 2);
  PlanOp *op = &self->nodes[self->n_nodes++];
  for (guint s = self->n_sections_begun; s <= PLAN_N_SECTIONS; s++)
    self->section_start[s] = self->n_nodes;
  plan_op_init (op, kind, stream);
  return op;
}

void
plan_schedule_add (PlanSchedule *self, const PlanOp *op)
{
  *plan_schedule_add_op (self, op->kind, op->stream) = *op;
}

guint16
plan_schedule_add_manner (PlanSchedule *self, const PlanManner *manner)
{
  guint i = 0;
  while (i < self->manners->len
         && memcmp (&g_array_index (self->manners, PlanManner, i), manner, sizeof *manner) != 0)
    i++;
  g_assert (i <= G_MAXUINT16);
  if (i == self->manners->len)
    g_array_append_val (self->manners, *manner);
  return (guint16)i;
}

const PlanManner *
plan_schedule_manner (const PlanSchedule *self, const PlanOp *op)
{
  return &g_array_index (self->manners, PlanManner, op->manner);
}

const char *
plan_schedule_variable (const PlanSchedule *self, const PlanOp *repeat)
{
  return g_array_index (self->variables, char *, repeat->dims[PLAN_REPEAT_VARIABLE]);
}

guint64
plan_schedule_serial (const PlanSchedule *self)
{
  return self->serial;
}

guint
plan_schedule_rank (const PlanSchedule *self)
{
  return self->rank;
}

guint
plan_schedule_ranks (const PlanSchedule *self)
{
  return self->ranks;
}

guint
plan_schedule_n_groups (const PlanSchedule *self)
{
  return self->groups->len;
}

const PlanGroup *
plan_schedule_group (const PlanSchedule *self, guint group)
{
  return &g_array_index (self->groups, PlanGroup, group);
}

guint
plan_schedule_group_size (const PlanSchedule *self, const PlanOp *op)
{
  return op->group < 0 ? 1 : plan_schedule_group (self, (guint)op->group)->size;
}

guint
plan_schedule_n_nodes (const PlanSchedule *self)
{
  return self->n_nodes;
}

const PlanOp *
plan_schedule_node (const PlanSchedule *self, guint node)
{
  return &self->nodes[node];
}

void
plan_schedule_set_operand (PlanSchedule *self, guint node, guint operand, PlanRef ref)
{
  self->nodes[node].refs[operand] = ref;
}

guint
plan_schedule_n_buffers (const PlanSchedule *self)
{
  return self->buffers->len;
}

const PlanBuffer *
plan_schedule_buffer (const PlanSchedule *self, guint array)
{
  return &g_array_index (self->buffers, PlanBuffer, array);
}

guint
plan_schedule_n_events (const PlanSchedule *self)
{
  return self->events->len;
}

const PlanEvent *
plan_schedule_event (const PlanSchedule *self, guint array)
{
  return &g_array_index (self->events, PlanEvent, array);
}

guint32
plan_schedule_n_buffer_ids (const PlanSchedule *self)
{
  if (self->buffers->len == 0)
    return 0;
  const PlanBuffer *last = plan_schedule_buffer (self, self->buffers->len - 1);
  return last->first + last->count;
}

guint32
plan_schedule_n_event_ids (const PlanSchedule *self)
{
  if (self->events->len == 0)
    return 0;
  const PlanEvent *last = plan_schedule_event (self, self->events->len - 1);
  return last->first + last->count;
}

guint
plan_schedule_section_node (const PlanSchedule *self, PlanSection section)
{
  return self->section_start[section];
}

guint64
plan_schedule_buffer_bytes (const PlanSchedule *self, guint array)
{
  const PlanBuffer *buffer = plan_schedule_buffer (self, array);
  return plan_dtype_bytes (buffer->dtype, buffer->elements);
}

void
plan_schedule_add_echo (PlanSchedule *self, guint begin, guint end)
{
  const PlanEcho echo = { self->n_nodes, begin, end };
  g_return_if_fail (begin < end && end <= self->n_nodes);
  g_array_append_val (self->echoes, echo);
}

guint
plan_schedule_find_echo (const PlanSchedule *self, guint node)
{
  guint from = 0, end = self->echoes->len;
  while (from < end)
    {
      const guint middle = (from + end) / 2;
      if (g_array_index (self->echoes, PlanEcho, middle).at < node)
        from = middle + 1;
      else
        end = middle;
    }
  return from;
}

const PlanEcho *
plan_schedule_echo (const PlanSchedule *self, guint number)
{
  return number < self->echoes->len ? &g_array_index (self->echoes, PlanEcho, number) : NULL;
}

gboolean
plan_schedule_find_repeat (const PlanSchedule *self, const char *variable, guint *out_begin,
                           guint *out_end)
{
  guint depth = 0, begin = 0;
  for (guint node = self->section_start[PLAN_SECTION_STEP];
       node < self->section_start[PLAN_SECTION_STEP + 1]; node++)
    {
      const PlanOp *op = &self->nodes[node];
      if (op->kind == PLAN_OP_REPEAT && depth++ == 0
          && g_str_equal (plan_schedule_variable (self, op), variable))
        begin = node + 1;
      if (op->kind == PLAN_OP_END && --depth == 0 && begin > 0)
        {
          *out_begin = begin;
          *out_end = node;
          return TRUE;
        }
    }
  return FALSE;
}

const PlanEcho *
plan_schedule_echo_at (const PlanSchedule *self, guint number, guint node)
{
  const PlanEcho *echo = plan_schedule_echo (self, number);
  return echo && echo->at == node ? echo : NULL;
}

/* Sets the next echo of a cursor. No echo is at node 0, so that this says that there is none. */
static void
await_echo (PlanCursor *self, guint number)
{
  const PlanEcho *echo = plan_schedule_echo (self->schedule, number);
  self->echo = number;
  self->at_echo = echo ? echo->at : 0;
}

static void
enter_echo (PlanCursor *self)
{
  const PlanEcho *echo = plan_schedule_echo (self->schedule, self->echo);
  self->back = self->next;
  self->back_end = self->end;
  self->next = echo->begin;
  self->end = echo->end;
}

/* Goes back to where the echo under way is; FALSE: there is none. */
static gboolean
leave_echo (PlanCursor *self)
{
  if (self->back == 0)
    return FALSE;
  self->next = self->back;
  self->end = self->back_end;
  self->back = 0;
  await_echo (self, self->echo + 1);
  return TRUE;
}

const PlanEcho *
plan_cursor_echo (const PlanCursor *self)
{
  return self->back == 0 && self->next < self->end && self->next == self->at_echo
                 && self->at_echo > 0
             ? plan_schedule_echo (self->schedule, self->echo)
             : NULL;
}

void
plan_cursor_skip_echo (PlanCursor *self)
{
  await_echo (self, self->echo + 1);
}

void
plan_cursor_start (PlanCursor *self, const PlanSchedule *schedule, PlanSection section)
{
  *self = (PlanCursor){ .schedule = schedule,
                        .next = schedule->section_start[section],
                        .end = schedule->section_start[section + 1] };
  await_echo (self, plan_schedule_find_echo (schedule, self->next));
}

const PlanOp *
plan_cursor_next (PlanCursor *self)
{
  const PlanOp *nodes = self->schedule->nodes;
  while (self->next < self->end || leave_echo (self))
    {
      const PlanOp *op = &nodes[self->next];
      if (self->next == self->at_echo && self->at_echo > 0)
        enter_echo (self);
      else if (op->kind == PLAN_OP_REPEAT)
        {
          self->loop[self->depth].node = self->next++;
          self->loop[self->depth].value = op->dims[PLAN_REPEAT_FROM];
          self->loop[self->depth].left = op->dims[PLAN_REPEAT_COUNT];
          self->depth++;
        }
      else if (op->kind == PLAN_OP_END)
        {
          const guint top = (guint)self->depth - 1;
          const PlanOp *repeat = &nodes[self->loop[top].node];
          if (--self->loop[top].left > 0)
            {
              self->loop[top].value += repeat->dims[PLAN_REPEAT_STEP];
              self->next = self->loop[top].node + 1;
              if (self->back == 0 && self->schedule->echoes->len > 0)
                await_echo (self, plan_schedule_find_echo (self->schedule, self->next));
            }
          else
            {
              self->depth--;
              self->next++;
            }
        }
      else
        {
          self->node = self->next++;
          return op;
        }
    }
  return NULL;
}

/* The index of a reference before it wraps around. */
static inline gint64
ref_value (const PlanCursor *self, const PlanRef *ref)
{
  return ref->offset + (ref->loop >= 0 && !ref->moves ? self->loop[ref->loop].value : 0);
}

gint64
plan_times_next (PlanTimes *self, const PlanOp *op)
{
  const gint64 around = self->depth > 0 ? self->times[self->depth - 1] : 1;
  if (op->kind == PLAN_OP_REPEAT)
    self->times[self->depth++] = around * op->dims[PLAN_REPEAT_COUNT];
  else if (op->kind == PLAN_OP_END)
    self->depth--;
  return op->kind < PLAN_N_OPS ? around : 0;
}

gint64
plan_cursor_index (const PlanCursor *self, const PlanRef *ref)
{
  const gint64 value = ref_value (self, ref);
  return ref->modulus ? value % ref->modulus : value;
}

gint64
plan_cursor_at (const PlanCursor *self, const PlanRef *ref)
{
  if (!ref->moves)
    return (gint64)ref->at;
  const PlanOp *repeat = plan_schedule_node (self->schedule, self->loop[ref->loop].node);
  const gint64 turn = repeat->dims[PLAN_REPEAT_COUNT] - self->loop[ref->loop].left;
  return (gint64)ref->at + turn * repeat->dims[PLAN_REPEAT_ALONG];
}

guint32
plan_cursor_buffer (const PlanCursor *self, const PlanRef *ref)
{
  return (guint32)(plan_schedule_buffer (self->schedule, (guint)ref->array)->first
                   + plan_cursor_index (self, ref));
}

guint32
plan_cursor_event (const PlanCursor *self, const PlanRef *ref)
{
  return (guint32)(plan_schedule_event (self->schedule, (guint)ref->array)->first
                   + plan_cursor_index (self, ref));
}

gint64
plan_cursor_unit (const PlanCursor *self, const PlanOp *op)
{
  for (guint i = 0; i < PLAN_MAX_REFS; i++)
    if (op->refs[i].array >= 0
        && plan_schedule_buffer (self->schedule, (guint)op->refs[i].array)->count > 1)
      return ref_value (self, &op->refs[i]);
  return -1;
}
