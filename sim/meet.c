/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/meet.h"

static guint
ranks_of_stage (const SimMeeting *self)
{
  return plan_schedule_ranks (self->schedules[0]) / self->n;
}

gboolean
sim_meet_is_meeting (const SimMeeting *self, guint stage, const PlanOp *op)
{
  if (self->n == 1 || op->group < 0)
    return FALSE;
  const PlanGroup *group = plan_schedule_group (self->schedules[stage], (guint)op->group);
  return (group->size - 1) * group->stride >= ranks_of_stage (self);
}

gboolean
sim_meet_reaches (const SimMeeting *self, guint stage, const PlanOp *op, guint other)
{
  const PlanGroup *group = plan_schedule_group (self->schedules[stage], (guint)op->group);
  const guint rank = plan_schedule_rank (self->schedules[stage]);
  const guint mine = rank / group->stride % group->size, first = rank - mine * group->stride;
  if (op->kind == PLAN_OP_TRADE)
    return other == stage
           || other
                  == (first + (guint)op->dims[PLAN_DIM_TRADE_peer] * group->stride)
                         / ranks_of_stage (self);
  for (guint member = 0; member < group->size; member++)
    if ((first + member * group->stride) / ranks_of_stage (self) == other)
      return TRUE;
  return FALSE;
}

gboolean
sim_meet_is_complete (const SimMeeting *self, guint stage, const PlanOp *const *ops,
                      gboolean *out_who)
{
  for (guint other = 0; other < self->n; other++)
    {
      out_who[other] = sim_meet_reaches (self, stage, ops[stage], other);
      if (out_who[other]
          && (!ops[other] || ops[other]->kind != ops[stage]->kind
              || !sim_meet_reaches (self, other, ops[other], stage)))
        return FALSE;
    }
  return TRUE;
}
