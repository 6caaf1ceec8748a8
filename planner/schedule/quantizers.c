/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/schedule/quantizers.h"

PlanTensorRole
plan_site_weight (guint product)
{
  static const PlanTensorRole weights[PLAN_SITE_PRODUCTS]
      = { PLAN_TENSOR_QKV, PLAN_TENSOR_PROJ, PLAN_TENSOR_GATE_UP, PLAN_TENSOR_DOWN };
  g_assert (product < PLAN_SITE_PRODUCTS);
  return weights[product];
}

guint
plan_site_of (PlanTensorRole weight, PlanSite site)
{
  guint product = 0;
  while (plan_site_weight (product) != weight)
    product++;
  return product * PLAN_SITES_OF_PRODUCT + site;
}
