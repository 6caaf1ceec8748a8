/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/stack.h"

#include "planner/error.h"
#include "planner/units.h"

/* Facts per framework; megatron-fsdp from its source at the date given (communication unit, hooks)
 * and from the memory its authors logged (loss image, constant residual: fitted, see README). What
 * lies outside the allocator and what issuing an op costs are assumed, of the right order. */
static const PlanStack stacks[] = {
  {
      .name = "megatron-fsdp",
      .newest = 20260822,
      .source = "Megatron-LM main at d98e8a64 (2026-08-22)",
      .vocab_multiple = 128,
      .comm_unit_floor = 1000000000,
      .prefetches_past_head = TRUE,
      .casts_grads = TRUE,
      .recomputes_outputs = TRUE,
      .separate_loss_image = TRUE,
      .allocation_bytes = 512,
      .caching_allocator = TRUE,
      .fixed_bytes = 105 * PLAN_MIB,
      .context_bytes = 1536 * PLAN_MIB,
      .launch_ns = 5000,
  },
  {
      .name = "native",
      .newest = 20261101,
      .source = "this program's own runtime",
      .vocab_multiple = 1,
      .comm_unit_floor = 0,
      .needs_kernel_scratch = TRUE,
      .allocation_bytes = 64,
      .launch_ns = 1000,
  },
};

/* Behaviour changed from version to version; only the newest is known here. */
static const PlanStack *
of_date (const PlanStack *stack, gint64 date, GError **error)
{
  if (date == 0 || date == stack->newest)
    return stack;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
               "stack=%s is modelled as of %04d-%02d-%02d only: leave the date out", stack->name,
               (int)(stack->newest / 10000), (int)(stack->newest / 100 % 100),
               (int)(stack->newest % 100));
  return NULL;
}

const PlanStack *
plan_stack_of (const Plan *plan, PlanDeviceKind device, GError **error)
{
  const gint64 which = plan->value[PLAN_STACK] % PLAN_STACK_BASE;
  const gint64 date = plan->value[PLAN_STACK] / PLAN_STACK_BASE;
  if (which == PLAN_STACK_MEGATRON_FSDP && device == PLAN_DEVICE_GPU)
    return of_date (&stacks[0], date, error);
  if (which == PLAN_STACK_NATIVE)
    return of_date (&stacks[1], date, error);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
               which == PLAN_STACK_MEGATRON_FSDP
                   ? "stack=%s does not run on a CPU: use stack=native or a cluster of GPUs"
                   : "stack=%s is not modelled yet: use megatron-fsdp or native",
               plan_field_names (PLAN_STACK)[which]);
  return NULL;
}

gint64
plan_stack_padded_vocab (const PlanStack *self, gint64 vocab, gint64 tp)
{
  return (gint64)plan_units_round_up ((guint64)vocab, (guint64)(self->vocab_multiple * tp));
}
