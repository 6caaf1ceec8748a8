/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/meet.h"

static guint
ranks_of_stage (const SimPipeline *self)
{
  return plan_schedule_ranks (self->schedules[0]) / self->n;
}

gboolean
sim_meet_is_meeting (const SimPipeline *self, guint stage, const PlanOp *op)
{
  if (self->n == 1 || op->group < 0)
    return FALSE;
  const PlanGroup *group = plan_schedule_group (self->schedules[stage], (guint)op->group);
  return (group->size - 1) * group->stride >= ranks_of_stage (self);
}

/* The stage with which this one exchanges in a trade. */
static guint
peer_of (const SimPipeline *self, guint stage, const PlanOp *op)
{
  const PlanGroup *group = plan_schedule_group (self->schedules[stage], (guint)op->group);
  const guint rank = plan_schedule_rank (self->schedules[stage]);
  const guint first = rank - rank / group->stride % group->size * group->stride;
  return (first + (guint)op->dims[PLAN_DIM_TRADE_peer] * group->stride) / ranks_of_stage (self);
}

gboolean
sim_meet_reaches (const SimPipeline *self, guint stage, const PlanOp *op, guint other)
{
  if (op->kind == PLAN_OP_TRADE)
    return other == stage || other == peer_of (self, stage, op);
  const PlanGroup *group = plan_schedule_group (self->schedules[stage], (guint)op->group);
  const guint rank = plan_schedule_rank (self->schedules[stage]);
  const guint first = rank - rank / group->stride % group->size * group->stride;
  for (guint member = 0; member < group->size; member++)
    if ((first + member * group->stride) / ranks_of_stage (self) == other)
      return TRUE;
  return FALSE;
}

/* Whether stage `other` waits at the same meeting as stage `stage`. */
static gboolean
is_at (const SimPipeline *self, guint stage, const PlanOp *const *ops, guint other)
{
  return ops[other] && ops[other]->kind == ops[stage]->kind
         && sim_meet_reaches (self, other, ops[other], stage);
}

guint
sim_meet_all (const SimPipeline *self, guint stage, const PlanOp *const *ops, guint *out_who)
{
  guint n = 0;
  if (ops[stage]->kind == PLAN_OP_TRADE)
    {
      const guint peer = peer_of (self, stage, ops[stage]);
      out_who[0] = MIN (stage, peer);
      out_who[1] = MAX (stage, peer);
      return is_at (self, stage, ops, peer) ? 2 : 0;
    }
  for (guint other = 0; other < self->n; other++)
    if (sim_meet_reaches (self, stage, ops[stage], other))
      {
        out_who[n++] = other;
        if (!is_at (self, stage, ops, other))
          return 0;
      }
  return n;
}
