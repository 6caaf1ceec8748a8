/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/schedule/quantizers.h"

PlanTensorRole
plan_quantizer_weight (guint product)
{
  static const PlanTensorRole weights[PLAN_QUANTIZER_PRODUCTS]
      = { PLAN_TENSOR_QKV, PLAN_TENSOR_PROJ, PLAN_TENSOR_GATE_UP, PLAN_TENSOR_DOWN };
  g_assert (product < PLAN_QUANTIZER_PRODUCTS);
  return weights[product];
}

guint
plan_quantizer_of (PlanTensorRole weight, PlanQuantizer site)
{
  guint product = 0;
  while (plan_quantizer_weight (product) != weight)
    product++;
  return product * PLAN_QUANTIZERS_OF_PRODUCT + site;
}
