/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/schedule/trace.h"

#include "planner/base/units.h"

const char *
plan_phase_name (PlanPhase phase)
{
  static const char *const names[] = {
#define X(id, name) name,
    PLAN_PHASE_LIST (X)
#undef X
  };
  return names[phase];
}

/* The phase that an op begins, or else the present one. */
static PlanPhase
phase_of (PlanOpKind kind, PlanPhase now)
{
  switch (kind)
    {
    case PLAN_OP_LOAD:
    case PLAN_OP_EMBED:
    case PLAN_OP_CROSS_ENTROPY_BWD: /* the softmax is still live, as in the loss */
    case PLAN_OP_LOSS_GRAD:
      return PLAN_PHASE_LOSS;
    case PLAN_OP_EMBED_BWD:
    case PLAN_OP_POSITIONS_BWD:
      return PLAN_PHASE_BACKWARD_END;
    case PLAN_OP_NORM_SQ:
    case PLAN_OP_CLIP:
      return PLAN_PHASE_OPTIMIZER;
    default: /* any other op belongs to the phase that it lies in */
      return now;
    }
}

/* A walk over a step's nodes that follows the live bytes. Memory that is taken counts for the op
 * that is issued next. */
typedef struct
{
  const PlanSchedule *schedule;
  guint64 granule;
  gboolean is_training;
  PlanPhase phase;
  PlanOpKind last;
  guint64 n_issued;
  gint64 total;       /* live bytes when the last op was issued */
  gint64 since, most; /* change since then, and the most of it at any moment */
  guint64 *peaks;
} Walk;

/* Whether an op leaves the gradient with which the backward pass begins. */
static gboolean
ends_loss (const Walk *walk, PlanOpKind kind)
{
  return kind == PLAN_OP_CROSS_ENTROPY_BWD || (kind == PLAN_OP_LOSS_GRAD && walk->is_training);
}

/* Whether a schedule trains; an evaluation has no backward pass. */
static gboolean
is_training (const PlanSchedule *schedule)
{
  for (guint i = 0; i < plan_schedule_n_nodes (schedule); i++)
    if (plan_schedule_node (schedule, i)->kind == PLAN_OP_EMBED_BWD)
      return TRUE;
  return FALSE;
}

static void
take (Walk *walk, gint64 bytes)
{
  walk->since += bytes;
  walk->most = MAX (walk->most, walk->since);
}

static void
note_taken (Walk *walk)
{
  walk->peaks[walk->phase] = MAX (walk->peaks[walk->phase], (guint64)(walk->total + walk->most));
  walk->total += walk->since;
  walk->since = walk->most = 0;
}

static void
issue (Walk *walk, PlanOpKind kind)
{
  const gboolean leaves_loss = ends_loss (walk, walk->last) && !ends_loss (walk, kind);
  walk->phase = leaves_loss ? PLAN_PHASE_BACKWARD : phase_of (kind, walk->phase);
  walk->last = kind;
  walk->n_issued++;
  note_taken (walk);
}

static void
walk_op (Walk *walk, const PlanOp *op)
{
  if (plan_op_class (op->kind) != PLAN_CLASS_MEMORY)
    {
      issue (walk, op->kind);
      return;
    }
  const guint array = (guint)op->refs[PLAN_REF_ALLOC_buf].array;
  const gint64 bytes = (gint64)plan_units_round_up (
      plan_schedule_buffer_bytes (walk->schedule, array), walk->granule);
  if (op->kind != PLAN_OP_TOUCH
      && plan_schedule_buffer (walk->schedule, array)->category != PLAN_CATEGORY_HOST)
    take (walk, op->kind == PLAN_OP_FREE ? -bytes : bytes);
}

static guint walk_repeat (Walk *walk, guint node);

/* Walks up to the end of the repeat that contains `node`, or to `end`. Returns where that is. */
static guint
walk_nodes (Walk *walk, guint node, guint end)
{
  for (; node < end; node++)
    {
      const PlanOp *op = plan_schedule_node (walk->schedule, node);
      if (op->kind == PLAN_OP_END)
        return node;
      if (op->kind == PLAN_OP_REPEAT)
        node = walk_repeat (walk, node);
      else
        walk_op (walk, op);
    }
  return end;
}

/* Walks a repeat. From the second iteration on all are alike except for what each leaves behind, so
 * the first two and the last one give the peaks of all. */
static guint
walk_repeat (Walk *walk, guint node)
{
  const gint64 count = plan_schedule_node (walk->schedule, node)->dims[PLAN_REPEAT_COUNT];
  const guint end = plan_schedule_n_nodes (walk->schedule);
  gint64 left_behind = 0;
  guint64 n_issued = 0;
  guint last = node;
  for (gint64 i = 0; i < MIN (count, 3); i++)
    {
      if (i == 2 && walk->n_issued > n_issued)
        walk->total += (count - 3) * left_behind;
      else if (i == 2)
        take (walk, (count - 3) * left_behind);
      left_behind = -walk->total - walk->since;
      n_issued = walk->n_issued;
      last = walk_nodes (walk, node + 1, end);
      left_behind += walk->total + walk->since;
    }
  for (gint depth = count > 0 ? 0 : 1; depth > 0;)
    {
      const PlanOpKind kind = plan_schedule_node (walk->schedule, ++last)->kind;
      depth += kind == PLAN_OP_REPEAT ? 1 : kind == PLAN_OP_END ? -1 : 0;
    }
  return last;
}

void
plan_memory_phase_peaks (const PlanMemory *self, const PlanSchedule *schedule, guint64 granule,
                         guint64 out_bytes[PLAN_N_PHASES])
{
  Walk walk = { .schedule = schedule,
                .granule = granule,
                .is_training = is_training (schedule),
                .phase = PLAN_PHASE_LOSS,
                .last = PLAN_OP_LOAD,
                .peaks = out_bytes };
  for (guint c = 0; c < PLAN_N_CATEGORIES; c++)
    walk.total += (gint64)self->resting[c];
  for (guint p = 0; p < PLAN_N_PHASES; p++)
    out_bytes[p] = 0;
  walk_nodes (&walk, plan_schedule_section_node (schedule, PLAN_SECTION_STEP),
              plan_schedule_section_node (schedule, PLAN_SECTION_TEARDOWN));
  note_taken (&walk);
}
