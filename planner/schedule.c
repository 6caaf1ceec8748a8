/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/schedule-private.h"

#include <string.h>

#define MAX_NAME 20

/* One row of the op list, its operand and dim strings taken apart. */
typedef struct
{
  const char *name;
  PlanOpClass class;
  const char *operands;
  const char *dims;
  guint n_refs, n_dims;
  char ref_name[PLAN_MAX_REFS][MAX_NAME];
  char ref_access[PLAN_MAX_REFS];
  char dim_name[PLAN_MAX_DIMS][MAX_NAME];
} OpFacts;

static OpFacts op_facts[PLAN_N_OPS] = {
#define X(id, op_name, op_class, op_operands, op_dims, summary) \
  [PLAN_OP_##id] = { \
    .name = op_name, .class = PLAN_CLASS_##op_class, .operands = op_operands, .dims = op_dims \
  },
  PLAN_OP_LIST (X)
#undef X
};

static void
take_facts_apart (OpFacts *facts)
{
  g_auto (GStrv) operands = g_strsplit (facts->operands, " ", -1);
  g_auto (GStrv) dims = g_strsplit (facts->dims, " ", -1);

  for (char **o = operands; *o && **o; o++)
    {
      char *colon = strchr (*o, ':');
      g_assert (facts->n_refs < PLAN_MAX_REFS && colon && colon - *o < MAX_NAME);
      facts->ref_access[facts->n_refs] = colon[1];
      g_strlcpy (facts->ref_name[facts->n_refs], *o, (gsize)(colon - *o) + 1);
      facts->n_refs++;
    }
  for (char **d = dims; *d && **d; d++)
    {
      g_assert (facts->n_dims < PLAN_MAX_DIMS);
      g_strlcpy (facts->dim_name[facts->n_dims++], *d, MAX_NAME);
    }
}

static const OpFacts *
facts_of (PlanOpKind kind)
{
  static gsize ready = 0;
  if (g_once_init_enter (&ready))
    {
      for (guint i = 0; i < PLAN_N_OPS; i++)
        take_facts_apart (&op_facts[i]);
      g_once_init_leave (&ready, 1);
    }
  g_assert (kind < PLAN_N_OPS);
  return &op_facts[kind];
}

void
plan_op_init (PlanOp *self, PlanOpKind kind, PlanStream stream)
{
  *self = (PlanOp){ .kind = kind, .stream = stream, .record = PLAN_REF_NONE };
  for (guint i = 0; i < PLAN_MAX_REFS; i++)
    self->refs[i] = PLAN_REF_NONE;
  for (guint i = 0; i < PLAN_MAX_WAITS; i++)
    self->waits[i] = PLAN_REF_NONE;
}

const char *
plan_op_name (PlanOpKind kind)
{
  return facts_of (kind)->name;
}

PlanOpClass
plan_op_class (PlanOpKind kind)
{
  return facts_of (kind)->class;
}

guint
plan_op_n_refs (PlanOpKind kind)
{
  return facts_of (kind)->n_refs;
}

guint
plan_op_n_dims (PlanOpKind kind)
{
  return facts_of (kind)->n_dims;
}

const char *
plan_op_ref_name (PlanOpKind kind, guint i)
{
  return facts_of (kind)->ref_name[i];
}

char
plan_op_ref_access (PlanOpKind kind, guint i)
{
  return facts_of (kind)->ref_access[i];
}

const char *
plan_op_dim_name (PlanOpKind kind, guint i)
{
  return facts_of (kind)->dim_name[i];
}

const char *
plan_stream_name (PlanStream stream)
{
  static const char *const names[] = {
#define X(id, name, summary) name,
    PLAN_STREAM_LIST (X)
#undef X
  };
  return names[stream];
}

const char *
plan_category_name (PlanCategory category)
{
  static const char *const names[] = {
#define X(id, name, summary) name,
    PLAN_CATEGORY_LIST (X)
#undef X
  };
  return names[category];
}

const char *
plan_section_name (PlanSection section)
{
  static const char *const names[] = { "setup", "step", "teardown" };
  return names[section];
}

double
plan_op_flops (const PlanOp *op)
{
  const gint64 *d = op->dims;
  switch ((int)op->kind)
    {
    case PLAN_OP_GEMM:
      return 2.0 * (double)d[0] * (double)d[1] * (double)d[2];
    case PLAN_OP_ATTENTION: /* two products of [seq, seq] per head, half of each masked */
      return 2.0 * (double)d[0] * (double)d[1] * (double)d[1] * (double)d[2] * (double)d[4];
    case PLAN_OP_ATTENTION_BWD: /* five products */
      return 5.0 * (double)d[0] * (double)d[1] * (double)d[1] * (double)d[2] * (double)d[4];
    default:
      return 0;
    }
}

/* Elements of operand `i` of ops on rows of tokens; dims begin "rows cols". */
static guint64
row_op_elements (const PlanOp *op, guint i)
{
  const guint64 rows = (guint64)op->dims[0], cols = (guint64)op->dims[1];
  const guint64 matrix = rows * cols;
  switch ((int)op->kind)
    {
    case PLAN_OP_EMBED:
      return (guint64[]){ matrix, (guint64)op->dims[2] * cols, rows }[i];
    case PLAN_OP_EMBED_BWD:
      return (guint64[]){ (guint64)op->dims[2] * cols, matrix, rows, 0 }[i];
    case PLAN_OP_RMSNORM:
      return (guint64[]){ matrix, rows, matrix, cols }[i];
    case PLAN_OP_RMSNORM_BWD:
      return (guint64[]){ matrix, cols, matrix, matrix, cols, rows, 0 }[i];
    case PLAN_OP_SWIGLU:
      return (guint64[]){ matrix, 2 * matrix }[i];
    case PLAN_OP_SWIGLU_BWD:
      return (guint64[]){ 2 * matrix, matrix, 2 * matrix }[i];
    case PLAN_OP_CROSS_ENTROPY:
      return (guint64[]){ PLAN_EXACT_LIMBS, matrix, matrix, rows }[i];
    case PLAN_OP_CROSS_ENTROPY_BWD:
      return (guint64[]){ matrix, matrix, rows }[i];
    default:
      g_assert_not_reached ();
    }
}

static guint64
attention_elements (const PlanOp *op, guint i)
{
  const guint64 rows = (guint64)op->dims[0] * (guint64)op->dims[1];
  const guint64 out = rows * (guint64)(op->dims[2] * op->dims[4]);
  const guint64 qkv = rows * (guint64)((op->dims[2] + 2 * op->dims[3]) * op->dims[4]);
  const guint64 lse = rows * (guint64)op->dims[2];
  if (op->kind == PLAN_OP_ATTENTION)
    return (guint64[]){ out, lse, qkv, 0 }[i];
  return (guint64[]){ qkv, out, out, lse, qkv, 0 }[i];
}

guint64
plan_op_ref_elements (const PlanOp *op, guint i, guint ranks)
{
  const guint64 d0 = (guint64)op->dims[0];
  switch (op->kind)
    {
    case PLAN_OP_ALLOC:
    case PLAN_OP_FREE:
    case PLAN_OP_INIT:
    case PLAN_OP_SYNC:
    case PLAN_OP_REPEAT:
    case PLAN_OP_END:
      return 0;
    case PLAN_OP_LOAD:
    case PLAN_OP_ZERO:
    case PLAN_OP_CAST:
    case PLAN_OP_ACCUMULATE:
    case PLAN_OP_ADD:
    case PLAN_OP_ALL_REDUCE:
      return d0;
    case PLAN_OP_GEMM:
      {
        const guint64 n = (guint64)op->dims[1], k = (guint64)op->dims[2];
        return (guint64[]){ d0 * n, d0 * k, k * n, 0 }[i];
      }
    case PLAN_OP_ROPE:
      return d0 * (guint64)((op->dims[2] + 2 * op->dims[3]) * op->dims[4]);
    case PLAN_OP_ATTENTION:
    case PLAN_OP_ATTENTION_BWD:
      return attention_elements (op, i);
    case PLAN_OP_EMBED:
    case PLAN_OP_EMBED_BWD:
    case PLAN_OP_RMSNORM:
    case PLAN_OP_RMSNORM_BWD:
    case PLAN_OP_SWIGLU:
    case PLAN_OP_SWIGLU_BWD:
    case PLAN_OP_CROSS_ENTROPY:
    case PLAN_OP_CROSS_ENTROPY_BWD:
      return row_op_elements (op, i);
    case PLAN_OP_NORM_SQ:
      return i == 0 ? PLAN_EXACT_LIMBS : d0;
    case PLAN_OP_CLIP:
      return i == 0 ? 4 : 2 * PLAN_EXACT_LIMBS * d0;
    case PLAN_OP_ADAMW:
      return i == 4 ? 4 : d0;
    case PLAN_OP_ALL_GATHER:
      return i == 0 ? d0 * ranks : d0;
    case PLAN_OP_REDUCE_SCATTER:
      return i == 0 ? d0 : d0 * ranks;
    }
  g_assert_not_reached ();
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
clear_variable (gpointer data)
{
  g_free (*(char **)data);
}

PlanSchedule *
plan_schedule_new (guint rank, guint ranks)
{
  g_return_val_if_fail (rank < ranks, NULL);
  PlanSchedule *self = g_new0 (PlanSchedule, 1);
  self->rank = rank;
  self->ranks = ranks;
  self->nodes = g_array_new (FALSE, TRUE, sizeof (PlanOp));
  self->buffers = g_array_new (FALSE, TRUE, sizeof (PlanBuffer));
  self->events = g_array_new (FALSE, TRUE, sizeof (PlanEvent));
  self->variables = g_array_new (FALSE, TRUE, sizeof (char *));
  g_array_set_clear_func (self->buffers, clear_buffer);
  g_array_set_clear_func (self->events, clear_event);
  g_array_set_clear_func (self->variables, clear_variable);
  return self;
}

void
plan_schedule_free (PlanSchedule *self)
{
  if (!self)
    return;
  g_array_unref (self->nodes);
  g_array_unref (self->buffers);
  g_array_unref (self->events);
  g_array_unref (self->variables);
  g_free (self);
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
                              .dtype = dtype,
                              .category = category };
  g_array_append_val (self->buffers, buffer);
  return (gint32)self->buffers->len - 1;
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

void
plan_schedule_begin_section (PlanSchedule *self, PlanSection section)
{
  g_return_if_fail (self->depth == 0 && self->n_sections_begun == (guint)section);
  for (guint s = section; s <= PLAN_N_SECTIONS; s++)
    self->section_start[s] = self->nodes->len;
  self->n_sections_begun = section + 1;
}

void
plan_schedule_begin_repeat (PlanSchedule *self, const char *variable, gint64 from, gint64 count,
                            gint64 step)
{
  g_return_if_fail (self->depth < PLAN_MAX_DEPTH && count > 0 && self->n_sections_begun > 0);
  char *name = g_strdup (variable);
  g_array_append_val (self->variables, name);
  PlanOp repeat;
  plan_op_init (&repeat, PLAN_OP_REPEAT, PLAN_STREAM_HOST);
  repeat.dims[PLAN_REPEAT_FROM] = from;
  repeat.dims[PLAN_REPEAT_COUNT] = count;
  repeat.dims[PLAN_REPEAT_STEP] = step;
  repeat.dims[PLAN_REPEAT_VARIABLE] = self->variables->len - 1;
  self->open[self->depth++] = self->nodes->len;
  plan_schedule_add (self, &repeat);
}

void
plan_schedule_end_repeat (PlanSchedule *self)
{
  g_return_if_fail (self->depth > 0);
  const guint repeat = self->open[--self->depth];
  g_array_index (self->nodes, PlanOp, repeat).dims[PLAN_REPEAT_END] = self->nodes->len;
  PlanOp end;
  plan_op_init (&end, PLAN_OP_END, PLAN_STREAM_HOST);
  end.dims[0] = repeat;
  plan_schedule_add (self, &end);
}

void
plan_schedule_add (PlanSchedule *self, const PlanOp *op)
{
  g_return_if_fail (self->n_sections_begun > 0);
  g_array_append_vals (self->nodes, op, 1);
  for (guint s = self->n_sections_begun; s <= PLAN_N_SECTIONS; s++)
    self->section_start[s] = self->nodes->len;
}

const char *
plan_schedule_variable (const PlanSchedule *self, const PlanOp *repeat)
{
  return g_array_index (self->variables, char *, repeat->dims[PLAN_REPEAT_VARIABLE]);
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
plan_schedule_n_nodes (const PlanSchedule *self)
{
  return self->nodes->len;
}

const PlanOp *
plan_schedule_node (const PlanSchedule *self, guint node)
{
  return &g_array_index (self->nodes, PlanOp, node);
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
plan_cursor_start (PlanCursor *self, const PlanSchedule *schedule, PlanSection section)
{
  *self = (PlanCursor){ .schedule = schedule,
                        .next = schedule->section_start[section],
                        .end = schedule->section_start[section + 1] };
}

const PlanOp *
plan_cursor_next (PlanCursor *self)
{
  const PlanOp *nodes = (const PlanOp *)(gpointer)self->schedule->nodes->data;
  while (self->next < self->end)
    {
      const PlanOp *op = &nodes[self->next];
      if (op->kind == PLAN_OP_REPEAT)
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

static inline gint64
ref_index (const PlanCursor *self, const PlanRef *ref)
{
  return ref->offset + (ref->loop >= 0 ? self->loop[ref->loop].value : 0);
}

guint32
plan_cursor_buffer (const PlanCursor *self, const PlanRef *ref)
{
  return (guint32)(plan_schedule_buffer (self->schedule, (guint)ref->array)->first
                   + ref_index (self, ref));
}

guint32
plan_cursor_event (const PlanCursor *self, const PlanRef *ref)
{
  return (guint32)(plan_schedule_event (self->schedule, (guint)ref->array)->first
                   + ref_index (self, ref));
}

gint64
plan_cursor_unit (const PlanCursor *self, const PlanOp *op)
{
  for (guint i = 0; i < PLAN_MAX_REFS; i++)
    if (op->refs[i].array >= 0
        && plan_schedule_buffer (self->schedule, (guint)op->refs[i].array)->count > 1)
      return ref_index (self, &op->refs[i]);
  return -1;
}
