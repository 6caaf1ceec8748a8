/* Shared by tests of costs: a schedule from text, its costs, and a machine with simple numbers. */
#pragma once
#include "sim/cost/cost.h"

#include <check.h>

static const PlanStack plain = { .memory.allocation_bytes = 1 };

static inline PlanSchedule *
parse (const char *text)
{
  g_autoptr (GError) error = NULL;
  PlanSchedule *schedule = plan_schedule_parse (text, "text", &error);
  ck_assert_msg (schedule != NULL, "%s", error ? error->message : "");
  return schedule;
}

static inline SimCost *
cost_of (const SimCostInput *input)
{
  g_autoptr (GError) error = NULL;
  SimCost *cost = sim_cost_new (input, &error);
  ck_assert_msg (cost != NULL, "%s", error ? error->message : "");
  return cost;
}

/* The parameters of an ideal machine: full rates are reached, and nothing has a latency or overhead
 * but what a test sets. */
static inline SimParams
ideal (void)
{
  SimParams params = { .id = "ideal" };
  for (SimParam p = 0; p < SIM_N_PARAMS; p++)
    params.value[p] = g_str_equal (sim_param_unit (p), "ns") ? 0 : 1;
  params.value[SIM_PARAM_PRODUCT_FILL] = 0;
  params.value[SIM_PARAM_ATTENTION_HALF] = params.value[SIM_PARAM_ATTENTION_BWD_HALF] = 0;
  params.value[SIM_PARAM_ATTENTION_HEAD] = 0;
  params.value[SIM_PARAM_LL_SHARE] = params.value[SIM_PARAM_LL128_SHARE] = 0;
  return params;
}
