/* Checks plan_bound_leanest: the plan that it makes of a plan, by more sharding and narrower state,
 * to see whether any such plan could fit. */
#pragma once
#include "planner/case/case.h"
#include "planner/search/bound.h"
#include <check.h>
G_BEGIN_DECLS

/* A plan takes `device_bytes`. The lower bound on the memory of its leanest form must not be
 * higher, whether that shards as much state or more, with and without narrower gradients and
 * moments. */
static inline void
check_leanest (const PlanCase *of, guint64 device_bytes)
{
  for (gint64 s = of->plan.value[PLAN_STRATEGY]; s <= PLAN_STRATEGY_OPTIM_GRADS_PARAMS; s++)
    for (guint narrow = 0; narrow < 2; narrow++)
      {
        const PlanLean lean = { s, narrow, narrow, narrow ? PLAN_EXP_AVG_FP8 : PLAN_UNSET };
        Plan plan;
        plan_bound_leanest (&of->plan, &lean, &plan);
        g_autoptr (PlanCase) leanest = plan_case_new (of->model, of->cluster, &plan, NULL, NULL);
        ck_assert (!leanest || plan_bound_memory_of_loss (leanest) <= device_bytes);
      }
}

G_END_DECLS
