/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/plan/stack.h"

#include "planner/base/error.h"
#include "planner/base/units.h"
#include "planner/plan/stack-private.h"
#include "planner/schedule/meter.h"

static const PlanFramework *const frameworks[] = {
  &plan_framework_megatron_fsdp, &plan_framework_megatron, &plan_framework_fsdp2,
  &plan_framework_fsdp1,         &plan_framework_nanotron, &plan_framework_native,
};

const PlanFramework *
plan_framework_of (gint64 stack)
{
  for (guint i = 0; i < G_N_ELEMENTS (frameworks); i++)
    if (frameworks[i]->newest.id == stack)
      return frameworks[i];
  g_assert_not_reached ();
}

static const PlanStack *
of_date (const PlanStack *stack, gint64 date, GError **error)
{
  if (date == 0)
    return stack;
  if (date < stack->oldest || date > stack->newest)
    {
      g_autofree char *oldest = plan_stack_date_text (stack->oldest);
      g_autofree char *latest = plan_stack_date_text (stack->newest);
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
                   "stack=%s is known from %s to %s: give a date between them, or none for the "
                   "newest",
                   stack->name, oldest, latest);
      return NULL;
    }
  return plan_stack_at (stack, date);
}

/* The stack for host memory, which has no context and no NCCL buffers. */
static const PlanStack *
on_processors (const PlanStack *stack)
{
  static PlanStack made;
  static gsize ready = 0;
  if (g_once_init_enter (&ready))
    {
      made = *stack;
      made.memory.context_bytes = made.memory.communicator_bytes = 0;
      made.memory.is_host_memory = TRUE;
      g_once_init_leave (&ready, 1);
    }
  return &made;
}

const PlanStack *
plan_stack_of (const Plan *plan, PlanDeviceKind device, GError **error)
{
  const gint64 which = plan->value[PLAN_STACK] % PLAN_STACK_BASE;
  const gint64 date = plan->value[PLAN_STACK] / PLAN_STACK_BASE;
  if (device == PLAN_DEVICE_GPU || which == PLAN_STACK_NATIVE)
    {
      const PlanStack *stack = of_date (&plan_framework_of (which)->newest, date, error);
      return stack && device == PLAN_DEVICE_CPU ? on_processors (stack) : stack;
    }
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
               "stack=%s does not run on a CPU: use stack=native or a cluster of GPUs",
               plan_field_names (PLAN_STACK)[which]);
  return NULL;
}

guint
plan_stack_n (void)
{
  return G_N_ELEMENTS (frameworks);
}

const PlanStack *
plan_stack_get (guint i)
{
  g_return_val_if_fail (i < plan_stack_n (), NULL);
  return &frameworks[i]->newest;
}

gint64
plan_stack_padded_vocab (const PlanStack *self, gint64 vocab, gint64 tp)
{
  return (gint64)plan_units_round_up ((guint64)vocab, (guint64)(self->vocab_multiple * tp));
}

gboolean
plan_stack_sums_shared_first (const PlanStack *self)
{
  return self->buckets.bucketing == PLAN_BUCKETING_MODULES && self->grads.fresh != PLAN_GRADS_LEFT;
}

gboolean
plan_stack_scales_slices (const PlanStack *self, const Plan *plan)
{
  return self->layer.kernels == PLAN_KERNELS_OWN && plan->value[PLAN_TP] > 1
         && plan->value[PLAN_COMPUTE] != PLAN_COMPUTE_FP8_DELAYED;
}

gboolean
plan_stack_collects (const PlanStack *self)
{
  return self->grads.fresh == PLAN_GRADS_COLLECTED
         || self->grads.fresh == PLAN_GRADS_COLLECTED_WIDE;
}

PlanLoss
plan_stack_loss (const PlanStack *self, const Plan *plan)
{
  const gboolean rounds = (self->loss.rounded == PLAN_ROUNDED_IF_FUSED
                           && plan->value[PLAN_CE_FUSION] == PLAN_CE_FUSION_ON)
                          || (self->loss.rounded == PLAN_ROUNDED_IF_COMPILED
                              && plan->value[PLAN_COMPILE] == PLAN_COMPILE_ON);
  return rounds ? PLAN_LOSS_ROUNDED : self->loss.kind;
}

guint64
plan_stack_outside_bytes (const PlanStack *self, const PlanSchedule *schedule)
{
  guint64 bytes = self->memory.context_bytes
                  + (self->memory.is_host_memory ? plan_meter_host_bytes (schedule) : 0);
  for (guint g = 0; g < plan_schedule_n_groups (schedule); g++)
    if (plan_schedule_group (schedule, g)->size > 1)
      bytes
          += self->memory.communicator_bytes + plan_schedule_group (schedule, g)->registered_bytes;
  return bytes;
}
