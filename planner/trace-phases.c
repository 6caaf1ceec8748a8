/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/trace.h"

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

/* The phase that an op begins, or the one that it goes on with. */
static PlanPhase
phase_of (PlanOpKind kind, PlanPhase now)
{
  switch ((int)kind)
    {
    case PLAN_OP_LOAD:
    case PLAN_OP_EMBED:
    case PLAN_OP_CROSS_ENTROPY_BWD: /* the softmax is still there */
    case PLAN_OP_LOSS_GRAD:
      return PLAN_PHASE_LOSS;
    case PLAN_OP_EMBED_BWD:
    case PLAN_OP_POSITIONS_BWD:
      return PLAN_PHASE_BACKWARD_END;
    case PLAN_OP_NORM_SQ:
    case PLAN_OP_CLIP:
      return PLAN_PHASE_OPTIMIZER;
    default:
      return now;
    }
}

/* A walk over the spans, with what is live. */
typedef struct
{
  const PlanTrace *trace;
  const PlanSchedule *schedule;
  gboolean is_training;
  guint32 next;
  PlanPhase phase;
  PlanOpKind last;
  gint64 total;
  guint64 *peaks;
} Walk;

/* Leaves the gradient that a backward pass begins with. */
static gboolean
ends_loss (const Walk *walk, PlanOpKind kind)
{
  return kind == PLAN_OP_CROSS_ENTROPY_BWD || (kind == PLAN_OP_LOSS_GRAD && walk->is_training);
}

/* An evaluation has no backward pass. */
static gboolean
is_training (const PlanSchedule *schedule)
{
  for (guint i = 0; i < plan_schedule_n_nodes (schedule); i++)
    if (plan_schedule_node (schedule, i)->kind == PLAN_OP_EMBED_BWD)
      return TRUE;
  return FALSE;
}

static void
note (Walk *walk)
{
  walk->peaks[walk->phase] = MAX (walk->peaks[walk->phase], (guint64)walk->total);
}

/* Up to and with span `to`: memory is taken for the op that is issued next. */
static void
walk_to (Walk *walk, guint32 to)
{
  for (; walk->next <= to && walk->next < walk->trace->spans->len; walk->next++)
    {
      const PlanSpan *span = &g_array_index (walk->trace->spans, PlanSpan, walk->next);
      const PlanOpKind kind = plan_schedule_node (walk->schedule, span->node)->kind;
      const gboolean leaves_loss = ends_loss (walk, walk->last) && !ends_loss (walk, kind);
      walk->phase = leaves_loss ? PLAN_PHASE_BACKWARD : phase_of (kind, walk->phase);
      walk->last = kind;
      note (walk);
    }
}

void
plan_trace_phase_peaks (const PlanTrace *self, const PlanSchedule *schedule,
                        guint64 out_bytes[PLAN_N_PHASES])
{
  Walk walk = { .trace = self,
                .schedule = schedule,
                .is_training = is_training (schedule),
                .phase = PLAN_PHASE_LOSS,
                .last = PLAN_OP_LOAD,
                .peaks = out_bytes };
  gint64 live[PLAN_N_CATEGORIES];
  for (guint c = 0; c < PLAN_N_CATEGORIES; c++)
    walk.total += live[c] = (gint64)self->memory.resting[c];
  for (guint p = 0; p < PLAN_N_PHASES; p++)
    out_bytes[p] = 0;
  for (guint i = 0; i < self->samples->len; i++)
    {
      const PlanMemorySample *sample = &g_array_index (self->samples, PlanMemorySample, i);
      walk_to (&walk, sample->span);
      walk.total += sample->live_bytes - live[sample->category];
      live[sample->category] = sample->live_bytes;
      note (&walk);
    }
  walk_to (&walk, G_MAXUINT32 - 1);
}
