/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/lower/lower-layer.h"
#include "planner/lower/lower-step.h"
#include "planner/plan/stages.h"

#define IS(self, field, id) ((self)->plan->value[PLAN_##field] == PLAN_##field##_##id)

static gint8
group (PlanLower *self, const char *name, gint64 size, gint64 stride)
{
  return size > 1 ? plan_schedule_add_group (self->schedule, name, (guint)size, (guint)stride) : -1;
}

/* Neighbouring ranks share one expert (etp); neighbours of those hold different experts (ep); every
 * ep * etp-th rank holds the same experts (Megatron-LM's parallel_state.py, which orders expert
 * ranks so). */
static void
declare_expert_groups (PlanLower *self)
{
  const gint64 etp = self->plan->value[PLAN_ETP], ep = self->plan->value[PLAN_EP];
  self->comm.expert = self->comm.expert_inner = self->comm.expert_gather = -1;
  self->joined.group = -1;
  if (self->model->experts == 0)
    return;
  if (IS (self, MOE_DISPATCHER, ALLGATHER))
    self->joined.group = group (self, "expert_all", ep * etp, 1);
  else
    {
      self->joined.group = group (self, "expert_tensor", etp, 1);
      self->comm.expert = group (self, "expert", ep, etp);
    }
  if (self->comm.expert >= 0)
    plan_schedule_register (self->schedule, (guint)self->comm.expert,
                            plan_lower_dispatch_bytes (self));
  self->comm.expert_inner = group (self, "expert_inner", self->place.expert_ranks, ep * etp);
  self->comm.expert_gather = IS (self, AG_GROUP, ON)
                                 ? group (self, "expert_gather", self->place.expert_ranks, ep * etp)
                                 : self->comm.expert_inner;
}

/* Declares the ranks that have parts of the same sequences, of which an auxiliary loss counts the
 * tokens of each expert: a tensor-parallel group, which splits them beside experts, or a
 * context-parallel one, or both (Megatron-LM's router.py, tp_cp_group). */
static void
declare_sequence_group (PlanLower *self)
{
  const gint64 tp = self->plan->value[PLAN_TP], cp = self->plan->value[PLAN_CP];
  const gboolean is_needed
      = self->stage.layers > 0 && !self->policy.is_eval && self->plan->value[PLAN_MOE_AUX_LOSS] > 0;
  self->comm.sequence = !is_needed ? -1
                        : cp == 1  ? self->comm.tensor
                        : tp == 1  ? self->comm.context
                                   : group (self, "sequence", tp * cp, 1);
}

/* Declares the groups of exchanges between stages. Interleaved stages have a communicator for each
 * direction, so that exchanges with the next stage and with the previous one run side by side
 * (p2p_communication.py 73-80). Exchanges in batches are side by side, too; their one communicator
 * has connections to both neighbours, and is taken for two. */
static void
declare_neighbours (PlanLower *self, gint64 stages, gint64 of_stage)
{
  const gboolean is_alone = self->stage.n_virtual == 1;
  self->comm.next = group (self, is_alone ? "pipeline" : "next", stages, of_stage);
  self->comm.prev = is_alone ? self->comm.next : group (self, "prev", stages, of_stage);
}

/* The order of ranks: first within tensor-parallel groups, then within context-parallel groups,
 * then within the group that shards. That group contains whole context-parallel groups. */
void
plan_lower_declare_groups (PlanLower *self)
{
  const gint64 tp = self->plan->value[PLAN_TP];
  self->comm.tensor = group (self, "tensor", tp, 1);
  self->comm.inner = group (self, "inner", self->place.ranks, tp);
  self->comm.gather
      = IS (self, AG_GROUP, ON) ? group (self, "gather", self->place.ranks, tp) : self->comm.inner;
  self->comm.context = group (self, "context", self->plan->value[PLAN_CP], tp);
  self->comm.outer = group (self, "outer", self->place.replicas, tp * self->place.ranks);
  declare_expert_groups (self);
  declare_sequence_group (self);
  const gint64 stages = self->plan->value[PLAN_PP];
  const gint64 of_stage = plan_schedule_ranks (self->schedule) / stages;
  declare_neighbours (self, stages, of_stage);
  self->comm.embedding
      = self->model->cut.shares_embedding && !self->policy.sums_shared_first
                && !self->policy.is_eval
            ? group (self, "embedding", 2,
                     of_stage * plan_stages_head (self->whole, self->stack, self->plan))
            : -1;
  self->comm.world = group (self, "world", plan_schedule_ranks (self->schedule), 1);
}
