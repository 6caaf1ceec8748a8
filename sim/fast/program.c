/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/fast/program.h"

#include <string.h>

#define MAX_UNROLL 16

/* A list while it is being made, with the repeats that are open around the next item. */
typedef struct
{
  SimList *list;
  guint open[PLAN_MAX_DEPTH];         /* items of the open repeats */
  guint64 length[PLAN_MAX_DEPTH + 1]; /* ops so far, at each depth */
  guint launches;                     /* launches since the last item */
  guint depth;
} Builder;

typedef struct
{
  SimProgram *program;
  const PlanSchedule *schedule;
  guint n_events; /* number of event arrays */
  Builder time, memory;
} Compiler;

static SimItem *
item_at (const SimList *list, guint i)
{
  return &g_array_index (list->items, SimItem, i);
}

static SimLoop *
loop_at (const SimList *list, guint item)
{
  return &g_array_index (list->loops, SimLoop, item_at (list, item)->index);
}

/* A new last element of an array that has room for it. */
#define ADD(array, Type) (&g_array_index ((array), Type, (array)->len++))

static void
begin_repeat (Builder *self, const PlanOp *op)
{
  self->open[self->depth] = self->list->items->len;
  *ADD (self->list->items, SimItem) = (SimItem){ .kind = SIM_ITEM_REPEAT,
                                                 .index = self->list->loops->len,
                                                 .launches = self->launches };
  *ADD (self->list->loops, SimLoop) = (SimLoop){ .from = op->dims[PLAN_REPEAT_FROM],
                                                 .count = op->dims[PLAN_REPEAT_COUNT],
                                                 .step = op->dims[PLAN_REPEAT_STEP],
                                                 .depth = (guint8)self->depth,
                                                 .unroll = 1 };
  self->launches = 0;
  self->length[++self->depth] = 0;
}

static SimItem *
next_item (Builder *self)
{
  self->length[self->depth]++;
  return ADD (self->list->items, SimItem);
}

/* Ends a repeat. FALSE: it was empty and is dropped. */
static gboolean
end_repeat (Builder *self)
{
  const guint item = self->open[--self->depth];
  const gboolean is_empty = item + 1 == self->list->items->len;
  SimLoop *loop = loop_at (self->list, item);
  loop->end = self->list->items->len;
  loop->launches = self->launches;
  self->launches = 0;
  loop->length = self->length[self->depth + 1];
  self->length[self->depth] += loop->length * (guint64)loop->count;
  if (is_empty)
    {
      self->launches = item_at (self->list, item)->launches + (guint)loop->count * loop->launches;
      g_array_set_size (self->list->loops, item_at (self->list, item)->index);
      g_array_set_size (self->list->items, item);
    }
  return !is_empty;
}

/* Notes that a loop uses the elements of an array in turns (modulus), so that it comes back to an
 * element only after that many iterations. */
static void
note_turns (SimLoop *loop, const PlanRef *ref)
{
  guint turns = loop->unroll;
  while (turns % ref->modulus != 0)
    turns += loop->unroll;
  loop->unroll = turns;
}

static guint8 *
uses_of (const Compiler *self, guint loop)
{
  return &g_array_index (self->program->uses, guint8, (gsize)loop * self->n_events);
}

/* Resolves a reference to an event, and notes how every open repeat uses it. */
static SimRef
use_event (Compiler *self, const PlanRef *ref, guint8 how)
{
  const Builder *time = &self->time;
  for (guint depth = 0; depth < time->depth; depth++)
    {
      SimLoop *loop = loop_at (time->list, time->open[depth]);
      const gboolean moves_with_loop = ref->loop == (gint8)depth;
      uses_of (self, item_at (time->list, time->open[depth])->index)[ref->array]
          |= how | (moves_with_loop && !ref->modulus ? SIM_USE_MOVING : SIM_USE_FIXED);
      if (moves_with_loop && ref->modulus)
        note_turns (loop, ref);
      loop->has_moving = loop->has_moving || (moves_with_loop && !ref->modulus);
    }
  return (SimRef){ .first = plan_schedule_event (self->schedule, (guint)ref->array)->first,
                   .offset = ref->offset,
                   .loop = ref->loop,
                   .modulus = ref->modulus };
}

static gint8
level_of (const PlanRef *ref)
{
  return ref->modulus || ref->loop >= SIM_LEVELS ? -1 : ref->loop;
}

static void
add_time (Compiler *self, const PlanOp *op, guint node, const SimCost *cost)
{
  const SimIssueKind kind = sim_issue_kind (op->kind);
  if (kind == SIM_ISSUE_HOLD && op->n_waits == 0 && op->record.array < 0)
    return;
  *next_item (&self->time)
      = (SimItem){ .kind = SIM_ITEM_OP, .index = self->program->ops->len, .node = node };
  SimOp *compact = ADD (self->program->ops, SimOp);
  SimIssue *issue = &compact->issue;
  issue->kind = kind;
  issue->stream = op->stream;
  issue->group = op->group;
  issue->n_waits = op->n_waits;
  issue->record = op->record.array;
  issue->record_level = -1;
  issue->ns = sim_cost_ns (cost, node);
  issue->load = sim_cost_load (cost, node);
  issue->launch_ns = sim_cost_launch_ns (cost, node);
  for (guint i = 0; i < op->n_waits; i++)
    {
      compact->waits[i] = use_event (self, &op->waits[i], 0);
      issue->wait_level[i] = level_of (&op->waits[i]);
    }
  if (op->record.array >= 0)
    {
      compact->record = use_event (self, &op->record, SIM_USE_RECORDED);
      issue->record_level = level_of (&op->record);
    }
}

static void
add_memory (Compiler *self, const PlanOp *op, guint node)
{
  Builder *memory = &self->memory;
  const PlanRef *ref = &op->refs[PLAN_REF_ALLOC_buf];
  *next_item (memory) = (SimItem){
    .kind = op->kind == PLAN_OP_ALLOC   ? SIM_ITEM_OP
            : op->kind == PLAN_OP_TOUCH ? SIM_ITEM_TOUCH
                                        : SIM_ITEM_FREE,
    .index = (guint32)ref->array,
    .node = node,
    .stream = op->stream,
    .is_of_graph = op->graph != PLAN_GRAPH_NONE,
    .launches = memory->launches,
    .buffer = { .first = plan_schedule_buffer (self->schedule, (guint)ref->array)->first,
                .offset = ref->offset,
                .loop = ref->loop,
                .modulus = ref->modulus },
  };
  memory->launches = 0;
  if (ref->loop >= 0)
    {
      SimLoop *loop = loop_at (memory->list, memory->open[ref->loop]);
      loop->has_moving = loop->has_moving || !ref->modulus;
      if (ref->modulus)
        note_turns (loop, ref);
    }
}

/* Finds the clocks of streams and groups, and of the events that a loop's ops name. */
static void
find_touched (Compiler *self, SimLoop *loop, const guint8 *uses)
{
  GArray *ranges = self->program->ranges;
  const SimRange clocks = { .begin = SIM_CLOCK_STREAMS,
                            .end = SIM_CLOCK_GROUPS + plan_schedule_n_groups (self->schedule) };
  loop->first_touched = ranges->len;
  g_array_append_val (ranges, clocks);
  for (guint e = 0; e < self->n_events; e++)
    {
      const PlanEvent *event = plan_schedule_event (self->schedule, e);
      const SimRange range = { .begin = SIM_CLOCK_EVENTS + event->first,
                               .end = SIM_CLOCK_EVENTS + event->first + event->count };
      if (uses[e])
        g_array_append_val (ranges, range);
    }
  loop->n_touched = ranges->len - loop->first_touched;
}

/* Finds whether iterations of a loop differ only by moving elements, and which clocks they
 * share. */
static void
finish_loop (Compiler *self, SimLoop *loop, const guint8 *uses)
{
  const SimRange clocks
      = { .begin = 0, .end = SIM_CLOCK_GROUPS + plan_schedule_n_groups (self->schedule) };
  GArray *ranges = self->program->ranges;
  loop->first_range = ranges->len;
  loop->is_uniform = loop->depth < SIM_LEVELS && loop->unroll <= MAX_UNROLL;
  g_array_append_val (ranges, clocks);
  for (guint s = 0; s < PLAN_N_STREAMS; s++)
    {
      const guint first = SIM_CLOCK_SPELLS + s * SIM_SPELLS * 2;
      const SimRange spells = { .begin = first, .end = first + SIM_SPELLS * 2 };
      if (self->program->shared & 1u << s)
        g_array_append_val (ranges, spells);
    }
  for (guint e = 0; e < self->n_events; e++)
    {
      const PlanEvent *event = plan_schedule_event (self->schedule, e);
      const SimRange range = { .begin = SIM_CLOCK_EVENTS + event->first,
                               .end = SIM_CLOCK_EVENTS + event->first + event->count };
      const guint8 both = SIM_USE_FIXED | SIM_USE_MOVING;
      if ((uses[e] & both) == both && (uses[e] & SIM_USE_RECORDED))
        loop->is_uniform = FALSE;
      if ((uses[e] & both) == SIM_USE_FIXED)
        g_array_append_val (ranges, range);
    }
  loop->n_ranges = ranges->len - loop->first_range;
  find_touched (self, loop, uses);
}

static void
add_node (Compiler *self, guint node, const SimCost *cost)
{
  const PlanOp *op = plan_schedule_node (self->schedule, node);
  if (op->kind == PLAN_OP_REPEAT)
    {
      begin_repeat (&self->time, op);
      begin_repeat (&self->memory, op);
      g_array_set_size (self->program->uses, self->time.list->loops->len * self->n_events);
      return;
    }
  if (op->kind != PLAN_OP_END)
    {
      if (plan_op_class (op->kind) == PLAN_CLASS_MEMORY
          && plan_schedule_buffer (self->schedule, (guint)op->refs[PLAN_REF_ALLOC_buf].array)
                     ->category
                 != PLAN_CATEGORY_HOST)
        add_memory (self, op, node);
      self->memory.launches += sim_cost_launches (cost, node);
      add_time (self, op, node, cost);
      return;
    }
  end_repeat (&self->memory);
  if (end_repeat (&self->time))
    {
      const guint item = self->time.open[self->time.depth];
      finish_loop (self, loop_at (self->time.list, item),
                   uses_of (self, item_at (self->time.list, item)->index));
    }
  g_array_set_size (self->program->uses, self->time.list->loops->len * self->n_events);
}

/* Whether ops make as many launches as when the program was compiled. The memory list counts
 * launches, so it has to be made anew where they differ. */
static gboolean
has_same_launches (const SimProgram *self, const SimCost *cost)
{
  for (guint node = 0; node < self->launches->len; node++)
    if (g_array_index (self->launches, guint8, node) != sim_cost_launches (cost, node))
      return FALSE;
  return TRUE;
}

/* Replaces the costs in a program of the same schedule. FALSE: it has to be compiled anew. */
static gboolean
renew (SimProgram *self, const SimCost *cost, gboolean *out_differs)
{
  guint shared = 0;
  if (self->is_serial != sim_cost_is_serial (cost) || !has_same_launches (self, cost))
    return FALSE;
  for (guint i = 0; i < self->time.items->len; i++)
    {
      const SimItem *item = item_at (&self->time, i);
      if (item->kind != SIM_ITEM_OP)
        continue;
      SimIssue *issue = &g_array_index (self->ops, SimOp, item->index).issue;
      const gint64 ns = sim_cost_ns (cost, item->node);
      const gint64 launch_ns = sim_cost_launch_ns (cost, item->node);
      const SimLoad load = sim_cost_load (cost, item->node);
      *out_differs = *out_differs || ns != issue->ns || launch_ns != issue->launch_ns
                     || memcmp (&load, &issue->load, sizeof load) != 0;
      issue->ns = ns;
      issue->launch_ns = launch_ns;
      issue->load = load;
      shared |= ns > 0 ? 1u << issue->stream : 0;
    }
  return (shared & ~(1u << PLAN_STREAM_COMPUTE)) == self->shared;
}

/* Empties an array, with room reserved. */
static void
reset (GArray *array, guint room)
{
  g_array_set_size (array, room);
  g_array_set_size (array, 0);
}

static void
list_reset (SimList *self, guint room)
{
  if (!self->items)
    {
      self->items = g_array_new (FALSE, FALSE, sizeof (SimItem));
      self->loops = g_array_new (FALSE, FALSE, sizeof (SimLoop));
    }
  reset (self->items, room);
  reset (self->loops, room);
}

static void
note_source (SimProgram *self, const PlanSchedule *schedule, const SimCost *cost)
{
  const guint n = plan_schedule_n_nodes (schedule);
  guint streams = 0;
  self->serial = plan_schedule_serial (schedule);
  self->is_serial = sim_cost_is_serial (cost);
  g_array_set_size (self->launches, n);
  for (guint node = 0; node < n; node++)
    {
      g_array_index (self->launches, guint8, node) = (guint8)sim_cost_launches (cost, node);
      if (sim_cost_ns (cost, node) > 0)
        streams |= 1u << plan_schedule_node (schedule, node)->stream;
    }
  self->shared = streams & ~(1u << PLAN_STREAM_COMPUTE);
}

static void
compile (SimProgram *self, const PlanSchedule *schedule, const SimCost *cost)
{
  if (!self->ops)
    {
      self->ops = g_array_new (FALSE, FALSE, sizeof (SimOp));
      self->ranges = g_array_new (FALSE, FALSE, sizeof (SimRange));
      self->uses = g_array_new (FALSE, TRUE, 1);
      self->launches = g_array_new (FALSE, FALSE, 1);
    }
  note_source (self, schedule, cost);
  const guint n = plan_schedule_n_nodes (schedule);
  reset (self->ops, n);
  g_array_set_size (self->ranges, 0);
  g_array_set_size (self->uses, 0);
  list_reset (&self->time, n);
  list_reset (&self->memory, n);
  Compiler compiler = { .program = self,
                        .schedule = schedule,
                        .n_events = plan_schedule_n_events (schedule),
                        .time = { .list = &self->time },
                        .memory = { .list = &self->memory } };
  for (PlanSection s = PLAN_SECTION_SETUP; s < PLAN_N_SECTIONS; s++)
    {
      self->time.sections[s].begin = self->time.items->len;
      self->memory.sections[s].begin = self->memory.items->len;
      for (guint node = plan_schedule_section_node (schedule, s);
           node < plan_schedule_section_node (schedule, s + 1); node++)
        add_node (&compiler, node, cost);
      compiler.memory.launches = 0; /* the host waits for the device at the end of a section */
      self->time.sections[s].end = self->time.items->len;
      self->memory.sections[s].end = self->memory.items->len;
    }
}

gboolean
sim_program_compile (SimProgram *self, const PlanSchedule *schedule, const SimCost *cost)
{
  gboolean differs = FALSE;
  if (self->serial == plan_schedule_serial (schedule) && renew (self, cost, &differs))
    return differs;
  compile (self, schedule, cost);
  return TRUE;
}

static void
list_clear (SimList *self)
{
  g_clear_pointer (&self->items, g_array_unref);
  g_clear_pointer (&self->loops, g_array_unref);
}

void
sim_program_clear (SimProgram *self)
{
  list_clear (&self->time);
  list_clear (&self->memory);
  g_clear_pointer (&self->ops, g_array_unref);
  g_clear_pointer (&self->ranges, g_array_unref);
  g_clear_pointer (&self->uses, g_array_unref);
  g_clear_pointer (&self->launches, g_array_unref);
}
