/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/plan/native.h"

#include "planner/base/error.h"
#include "planner/model/layer-kinds.h"
#include "planner/model/tensor.h"

#define LATER "is modelled and not executed yet"

static gboolean
refuse_field (const Plan *plan, PlanField field, const char *why, GError **error)
{
  g_autofree char *value = plan_field_print (field, plan->value[field]);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED, "%s=%s %s", plan_field_name (field),
               value, why);
  return FALSE;
}

/* Refuses fields that the runtime would ignore, because a schedule does not show what they do, or
 * that it does not execute yet. */
static gboolean
check_fields (const Plan *plan, gint64 ranks, GError **error)
{
  const gint64 *value = plan->value;
  const gboolean shards_grads = plan_shards_grads (plan) && ranks > value[PLAN_DP_OUTER];
  if (value[PLAN_TP_OVERLAP] == PLAN_TP_OVERLAP_UB)
    return refuse_field (plan, PLAN_TP_OVERLAP, LATER ": it must be async or none", error);
  if (value[PLAN_EP] > 1 && value[PLAN_MOE_DISPATCHER] != PLAN_MOE_DISPATCHER_ALLTOALL)
    return refuse_field (plan, PLAN_MOE_DISPATCHER, LATER ": it must be alltoall", error);
  if (value[PLAN_EOD_MASK_LOSS] == PLAN_EOD_MASK_LOSS_ON
      && value[PLAN_PER_TOKEN_LOSS] == PLAN_PER_TOKEN_LOSS_OFF)
    return refuse_field (plan, PLAN_EOD_MASK_LOSS,
                         "with a mean for each micro batch " LATER ": use per_token_loss=on",
                         error);
  if (value[PLAN_CUDA_GRAPH] == PLAN_CUDA_GRAPH_ON && value[PLAN_OFFLOAD_OPTIMIZER] > 0)
    return refuse_field (plan, PLAN_CUDA_GRAPH,
                         "cannot keep a step of which the host does a part: it must be off, or "
                         "offload_optimizer=0",
                         error);
  if (value[PLAN_EMPTY_CACHE] == PLAN_EMPTY_CACHE_ON)
    return refuse_field (
        plan, PLAN_EMPTY_CACHE,
        "has nothing to give back here, where memory is taken once: it must be off", error);
  if (value[PLAN_SYNC_EVERY_MICRO_BATCH] == PLAN_SYNC_EVERY_MICRO_BATCH_ON && ranks > 1
      && (!shards_grads || value[PLAN_DP_OUTER] > 1))
    return refuse_field (
        plan, PLAN_SYNC_EVERY_MICRO_BATCH,
        "would sum again what is a sum already, since gradients are not sharded or "
        "are replicated: it must be off, or strategy=optim_grads(_params) and "
        "dp_outer=1",
        error);
  return TRUE;
}

/* Refuses what does not run yet with tensor parallelism. */
static gboolean
check_split (const Plan *plan, GError **error)
{
  if (plan->value[PLAN_TP] == 1)
    return TRUE;
  if (plan->value[PLAN_TP_OVERLAP] != PLAN_TP_OVERLAP_NONE
      && plan_field_dtype (plan, PLAN_COMPUTE) != plan_weights_dtype (plan)
      && plan->value[PLAN_COMPUTE] != PLAN_COMPUTE_FP8_DELAYED
      && plan->value[PLAN_COMPUTE] != PLAN_COMPUTE_FP8_TENSORWISE)
    return refuse_field (
        plan, PLAN_TP_OVERLAP,
        "beside products with scales of blocks, which lie behind whole matrices, " LATER
        ": it must be none, or compute fp32, bf16, fp16, fp8-delayed or "
        "fp8-tensorwise",
        error);
  return TRUE;
}

/* Refuses moments in eight bits, which have a scale for each part of a parameter, where those of a
 * parameter lie in several places; and where ranks of two stages have other parts of a tied
 * embedding. */
static gboolean
check_moments (const Plan *plan, const PlanModel *model, gint64 ranks, GError **error)
{
  const PlanField moments[] = { PLAN_EXP_AVG, PLAN_EXP_AVG_SQ };
  const gboolean is_hosted = plan->value[PLAN_OFFLOAD_OPTIMIZER] > 0;
  const gboolean drifts = plan->value[PLAN_PP] > 1 && model->tied_embeddings && ranks > 1
                          && plan->value[PLAN_STRATEGY] != PLAN_STRATEGY_NO_SHARD;
  for (guint i = 0; i < G_N_ELEMENTS (moments); i++)
    if ((is_hosted || drifts) && plan_field_dtype (plan, moments[i]) == PLAN_DTYPE_E4M3)
      return refuse_field (
          plan, moments[i],
          is_hosted ? "beside offload_optimizer above 0 " LATER ": it must be fp32, bf16 or fp16"
                    : "would have other scales on both stages of a tied embedding, "
                      "whose copies would drift apart: it must be fp32, bf16 or "
                      "fp16, or strategy=no_shard",
          error);
  return TRUE;
}

/* Refuses models with parts that no kernel computes. */
static gboolean
check_model (const PlanModel *model, GError **error)
{
  const struct
  {
    gboolean is_there;
    const char *name;
  } beyond[] = {
    { model->rope.scaling == PLAN_ROPE_SCALING_LONGROPE && model->rope.shorter.n == 0,
      "rope_scaling=longrope without rope_short and rope_long" },
    { model->kv_lora > 0 && model->norm == PLAN_NORM_LAYERNORM,
      "latent attention with norm=layernorm" },
    { model->kv_lora > 0 && model->rope_fraction < 1,
      "latent attention with rope_fraction below 1" },
  };
  for (guint i = 0; i < G_N_ELEMENTS (beyond); i++)
    if (beyond[i].is_there)
      {
        g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED, "model: %s has %s, which " LATER,
                     model->name, beyond[i].name);
        return FALSE;
      }
  return TRUE;
}

gboolean
plan_native_runs (const Plan *resolved, const PlanModel *model, gint64 ranks, GError **error)
{
  return check_fields (resolved, ranks, error) && check_split (resolved, error)
         && check_moments (resolved, model, ranks, error) && check_model (model, error);
}

/* Into how many parts ranks split the outputs (rows) of a matrix, and its inputs. */
static void
find_parts (const Plan *plan, const PlanTensor *tensor, gint64 *out_rows, gint64 *out_cols)
{
  const gint64 tp = plan->value[PLAN_TP], etp = plan->value[PLAN_ETP];
  *out_rows = *out_cols = 1;
  switch ((int)tensor->role)
    {
    case PLAN_TENSOR_PROJ:
    case PLAN_TENSOR_DOWN:
    case PLAN_TENSOR_SHARED_DOWN:
      *out_cols = tp;
      break;
    case PLAN_TENSOR_EXPERT_DOWN:
      *out_cols = etp;
      break;
    case PLAN_TENSOR_EXPERT_GATE_UP:
      *out_rows = etp;
      break;
    case PLAN_TENSOR_Q_DOWN:
    case PLAN_TENSOR_KV_DOWN:
      break;
    default:
      *out_rows = tp;
    }
}

gboolean
plan_native_has_whole_blocks (const Plan *resolved, const PlanModel *model)
{
  const gint64 *value = resolved->value;
  const gint64 block = plan_dtype_block (plan_field_dtype (resolved, PLAN_COMPUTE));
  const gint64 split = model->kv_lora > 0 ? value[PLAN_TP] : 1;
  guint kind = G_MAXUINT;
  gboolean are_whole
      = block == 0 || value[PLAN_MBS] * value[PLAN_SEQ] / value[PLAN_CP] / split % block == 0;
  for (gint64 layer = 0; block > 0 && are_whole && layer < model->layers; layer++)
    {
      PlanTensor tensors[PLAN_N_TENSORS];
      if (plan_model_layer_kind (model, layer, 1) == kind)
        continue;
      kind = plan_model_layer_kind (model, layer, 1);
      for (guint i = 0, n = plan_model_layer_tensors (model, layer, tensors); i < n; i++)
        {
          gint64 rows, cols;
          find_parts (resolved, &tensors[i], &rows, &cols);
          are_whole = are_whole
                      && (tensors[i].kind != PLAN_TENSOR_KIND_LINEAR
                          || ((gint64)tensors[i].rows / rows % block == 0
                              && (gint64)tensors[i].cols / cols % block == 0));
        }
    }
  return are_whole;
}
