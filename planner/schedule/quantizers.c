/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/schedule/quantizers.h"

/* Whether layers of a model, of any kind, have a GEMM with that weight. */
static gboolean
has_product (const PlanModel *model, PlanTensorRole weight)
{
  const gint64 moe = plan_model_moe_layers (model);
  switch ((int)weight)
    {
    case PLAN_TENSOR_QKV:
      return model->kv_lora == 0;
    case PLAN_TENSOR_Q:
      return model->kv_lora > 0 && model->q_lora == 0;
    case PLAN_TENSOR_Q_DOWN:
    case PLAN_TENSOR_Q_UP:
      return model->q_lora > 0;
    case PLAN_TENSOR_KV_DOWN:
    case PLAN_TENSOR_KV_UP:
      return model->kv_lora > 0;
    case PLAN_TENSOR_GATE_UP:
    case PLAN_TENSOR_DOWN:
      return moe < model->layers;
    case PLAN_TENSOR_EXPERT_GATE_UP:
    case PLAN_TENSOR_EXPERT_DOWN:
      return moe > 0;
    case PLAN_TENSOR_SHARED_GATE_UP:
    case PLAN_TENSOR_SHARED_DOWN:
      return moe > 0 && model->shared_ffn > 0;
    default:
      return TRUE;
    }
}

/* Finds the `product`th GEMM; returns how many there are if there is none. */
static guint
find (const PlanModel *model, guint product, PlanTensorRole *out_weight)
{
  static const PlanTensorRole weights[] = { PLAN_TENSOR_QKV,         PLAN_TENSOR_Q,
                                            PLAN_TENSOR_Q_DOWN,      PLAN_TENSOR_Q_UP,
                                            PLAN_TENSOR_KV_DOWN,     PLAN_TENSOR_KV_UP,
                                            PLAN_TENSOR_PROJ,        PLAN_TENSOR_GATE_UP,
                                            PLAN_TENSOR_DOWN,        PLAN_TENSOR_EXPERT_GATE_UP,
                                            PLAN_TENSOR_EXPERT_DOWN, PLAN_TENSOR_SHARED_GATE_UP,
                                            PLAN_TENSOR_SHARED_DOWN };
  guint n = 0;
  *out_weight = PLAN_N_TENSORS;
  for (guint i = 0; i < G_N_ELEMENTS (weights); i++)
    if (has_product (model, weights[i]) && n++ == product)
      {
        *out_weight = weights[i];
        break;
      }
  return n;
}

/* A state space's products have the places of attention's, which its layer has not. */
static PlanTensorRole
in_place_of (PlanTensorRole weight)
{
  switch ((int)weight)
    {
    case PLAN_TENSOR_SSM_IN:
      return PLAN_TENSOR_QKV;
    case PLAN_TENSOR_SSM_OUT:
      return PLAN_TENSOR_PROJ;
    default:
      return weight;
    }
}

guint
plan_quantizer_products (const PlanModel *model)
{
  PlanTensorRole none;
  return find (model, G_MAXUINT, &none);
}

PlanTensorRole
plan_quantizer_weight (const PlanModel *model, guint product)
{
  PlanTensorRole weight;
  find (model, product, &weight);
  g_assert (weight != PLAN_N_TENSORS);
  return weight;
}

guint
plan_quantizers_of_layer (const PlanModel *model)
{
  return plan_quantizer_products (model) * PLAN_QUANTIZERS_OF_PRODUCT;
}

guint
plan_quantizer_of (const PlanModel *model, PlanTensorRole weight, PlanQuantizer site)
{
  const PlanTensorRole placed = in_place_of (weight);
  guint product = 0;
  while (plan_quantizer_weight (model, product) != placed)
    product++;
  return product * PLAN_QUANTIZERS_OF_PRODUCT + site;
}
