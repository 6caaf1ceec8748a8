/* PlanSchedule: what one rank does in one training step.
 *
 * A list of ops in issue order, with repeats kept as repeats. An op starts when
 * the host has issued it, its stream is free and every event it waits for has
 * happened. Built once, then only read: sim and exec walk it with a PlanCursor. */
#pragma once
#include "planner/schedule/manner.h"
#include "planner/schedule/op.h"
G_BEGIN_DECLS

/* The three parts: `setup` and `teardown` happen once, `step` again and again. */
typedef enum
{
  PLAN_SECTION_SETUP,
  PLAN_SECTION_STEP,
  PLAN_SECTION_TEARDOWN,
  PLAN_N_SECTIONS
} PlanSection;

/* An array of `count` equal buffers. */
typedef struct
{
  char *name;
  guint32 count;
  guint32 first; /* id of element 0 among all buffers */
  guint64 elements;
  guint32 pieces; /* equal parts that ops of several streams use one by one; mostly 1 */
  PlanDtype dtype;
  PlanCategory category;
} PlanBuffer;

typedef struct
{
  char *name;
  guint32 count;
  guint32 first;
} PlanEvent;

/* Ranks that communicate: `size` of them, every `stride`th, around this one. Rank r is member
 * r / stride % size. */
typedef struct
{
  char *name;
  guint size, stride;
  guint64 registered_bytes; /* buffers of its own, outside any allocator's memory */
} PlanGroup;

typedef struct _PlanSchedule PlanSchedule;
PlanSchedule *plan_schedule_new (guint rank, guint ranks);
void plan_schedule_free (PlanSchedule *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (PlanSchedule, plan_schedule_free)

/* Building, in issue order; a programmer's mistake is a critical, not an error. */
gint32 plan_schedule_add_buffer (PlanSchedule *self, const char *name, guint32 count,
                                 guint64 elements, PlanDtype dtype, PlanCategory category);
gint32 plan_schedule_add_event (PlanSchedule *self, const char *name, guint32 count);
gint8 plan_schedule_add_group (PlanSchedule *self, const char *name, guint size, guint stride);
void plan_schedule_begin_section (PlanSchedule *self, PlanSection section);
void plan_schedule_begin_repeat (PlanSchedule *self, const char *variable, gint64 from,
                                 gint64 count, gint64 step);
/* Operands that move along do so by so many elements with each turn of the repeat last begun. */
void plan_schedule_move_along (PlanSchedule *self, gint64 elements);
void plan_schedule_end_repeat (PlanSchedule *self);
void plan_schedule_add (PlanSchedule *self, const PlanOp *op);
/* The same without operands, waits and event: to be filled in before the next is added. */
PlanOp *plan_schedule_add_op (PlanSchedule *self, PlanOpKind kind, PlanStream stream);
guint16 plan_schedule_add_manner (PlanSchedule *self, const PlanManner *manner); /* its number */
const PlanManner *plan_schedule_manner (const PlanSchedule *self, const PlanOp *op);

/* The step is issued as a whole, as a CUDA graph is: no op costs the host anything. */
void plan_schedule_set_graph (PlanSchedule *self);
gboolean plan_schedule_is_graph (const PlanSchedule *self);

/* Checks every invariant over the whole expansion: references in range, memory taken before use
 * and given back, every read and every reuse ordered behind what it needs; names the first op
 * that breaks one. Walks two steps in a row, so what one leaves to the next is covered. */
gboolean plan_schedule_check (const PlanSchedule *self, GError **error);

/* Text form; grammar in schedule-text.c. parse (print (x)) equals x. */
char *plan_schedule_print (const PlanSchedule *self);
PlanSchedule *plan_schedule_parse (const char *text, const char *origin, GError **error);
const char *plan_section_name (PlanSection section);

/* First 16 hex digits of the SHA-256 of the text form; the caller frees. */
char *plan_schedule_hash (const PlanSchedule *self);

guint64 plan_schedule_serial (const PlanSchedule *self); /* among those of this process, from 1 */
guint plan_schedule_rank (const PlanSchedule *self);
guint plan_schedule_ranks (const PlanSchedule *self);
guint plan_schedule_n_groups (const PlanSchedule *self);
const PlanGroup *plan_schedule_group (const PlanSchedule *self, guint group);
guint plan_schedule_group_size (const PlanSchedule *self, const PlanOp *op); /* 1 without one */
guint plan_schedule_n_nodes (const PlanSchedule *self);                      /* ops and structure */
const PlanOp *plan_schedule_node (const PlanSchedule *self, guint node);
guint plan_schedule_n_buffers (const PlanSchedule *self); /* arrays */
const PlanBuffer *plan_schedule_buffer (const PlanSchedule *self, guint array);
guint plan_schedule_n_events (const PlanSchedule *self); /* arrays */
const PlanEvent *plan_schedule_event (const PlanSchedule *self, guint array);
guint32 plan_schedule_n_buffer_ids (const PlanSchedule *self); /* all elements */
guint32 plan_schedule_n_event_ids (const PlanSchedule *self);
guint plan_schedule_section_node (const PlanSchedule *self, PlanSection section);
guint64 plan_schedule_buffer_bytes (const PlanSchedule *self, guint array);

/* While it is built: room for more nodes; a buffer is used in pieces, or gets another size; a
 * group's own memory; one more operand of an op that has been added. */
void plan_schedule_reserve (PlanSchedule *self, guint nodes);
void plan_schedule_cut_buffer (PlanSchedule *self, guint array, guint32 pieces);
void plan_schedule_register (PlanSchedule *self, guint group, guint64 bytes);
void plan_schedule_resize_buffer (PlanSchedule *self, guint array, guint64 elements);
void plan_schedule_set_operand (PlanSchedule *self, guint node, guint operand, PlanRef ref);

/* Walks one section with its repeats unrolled. */
typedef struct
{
  const PlanSchedule *schedule;
  guint32 next, end, node;               /* node: of the op last returned */
  guint32 echo, at_echo, back, back_end; /* the next echo; where an echo under way leads back to */
  gint8 depth;
  struct
  {
    guint32 node;
    gint64 value, left;
  } loop[PLAN_MAX_DEPTH];
} PlanCursor;

void plan_cursor_start (PlanCursor *self, const PlanSchedule *schedule, PlanSection section);
const PlanOp *plan_cursor_next (PlanCursor *self); /* NULL at the end */

/* Tells how often each op of a section runs, without a walk: plan_times_next takes the section's
 * nodes in order, and returns 0 for those that begin or end a repeat. Starts as zeros. */
typedef struct
{
  gint64 times[PLAN_MAX_DEPTH];
  guint depth;
} PlanTimes;

gint64 plan_times_next (PlanTimes *self, const PlanOp *op);

/* Which buffer or event of its array a reference names here; the first element used of a buffer. */
gint64 plan_cursor_index (const PlanCursor *self, const PlanRef *ref);
gint64 plan_cursor_at (const PlanCursor *self, const PlanRef *ref);
/* Its id among all buffers or events, in [0, n_buffer_ids) or [0, n_event_ids). */
guint32 plan_cursor_buffer (const PlanCursor *self, const PlanRef *ref);
guint32 plan_cursor_event (const PlanCursor *self, const PlanRef *ref);

/* Which unit an op works for: the index of its first operand that lies in an array; -1 if none. */
gint64 plan_cursor_unit (const PlanCursor *self, const PlanOp *op);

G_END_DECLS
