/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/runnable.h"

#include "planner/error.h"

#define LATER "is modelled and not executed yet"

/* Formats that kernels read and write; narrow ones in products alone. */
static gboolean
is_runnable (const ExecKernels *kernels, PlanDtype dtype)
{
  switch ((int)dtype)
    {
    case PLAN_DTYPE_FP32:
    case PLAN_DTYPE_BF16:
    case PLAN_DTYPE_E4M3:
    case PLAN_DTYPE_E5M2:
    case PLAN_DTYPE_MXFP8:
    case PLAN_DTYPE_NVFP4:
    case PLAN_DTYPE_FP8_1X128:
    case PLAN_DTYPE_FP8_128X128:
    case PLAN_DTYPE_I32:
    case PLAN_DTYPE_I64:
      return TRUE;
    default:
      return (kernels->more_formats >> dtype & 1) != 0;
    }
}

static gboolean
check_op (const ExecJob *job, const PlanSchedule *schedule, const PlanOp *op, GError **error)
{
  const gboolean computes = plan_op_class (op->kind) == PLAN_CLASS_COMPUTE;
  if (computes ? job->kernels->run[op->kind] || job->kernels->launch[op->kind]
               : op->kind != PLAN_OP_EXCHANGE)
    return !computes || job->kernels->check (schedule, op, error);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
               "this plan needs the op %s, which is modelled and not executed by %s yet",
               plan_op_name (op->kind), job->kernels->name);
  return FALSE;
}

/* Scales belong to whole blocks of rows, in both directions. */
static gboolean
check_blocks (const PlanSchedule *schedule, const PlanOp *op, GError **error)
{
  const PlanBuffer *out = plan_schedule_buffer (schedule, (guint)op->refs[0].array);
  const gint64 block = plan_dtype_block (out->dtype);
  if (block == 0 || (op->dims[0] % block == 0 && op->dims[1] % block == 0))
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
               "%s of %" G_GINT64_FORMAT " x %" G_GINT64_FORMAT
               " is not of whole blocks of %s: each must be a multiple of %" G_GINT64_FORMAT,
               out->name, op->dims[0], op->dims[1], plan_dtype_name (out->dtype), block);
  return FALSE;
}

static gboolean
refuse_field (const Plan *plan, PlanField field, const char *why, GError **error)
{
  g_autofree char *value = plan_field_print (field, plan->value[field]);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED, "%s=%s %s", plan_field_name (field),
               value, why);
  return FALSE;
}

/* What a schedule does not show, or shows as something else. */
static gboolean
check_fields (const Plan *plan, guint ranks, GError **error)
{
  const gint64 *value = plan->value;
  const gboolean shards_grads
      = value[PLAN_STRATEGY] >= PLAN_STRATEGY_OPTIM_GRADS && ranks > value[PLAN_DP_OUTER];
  if (value[PLAN_TP_OVERLAP] != PLAN_TP_OVERLAP_NONE)
    return refuse_field (plan, PLAN_TP_OVERLAP, LATER ": it must be none", error);
  if (value[PLAN_TP] > 1)
    return refuse_field (plan, PLAN_TP, LATER ": it must be 1", error);
  if (value[PLAN_CP] > 1)
    return refuse_field (plan, PLAN_CP, LATER ": it must be 1", error);
  if (value[PLAN_HIDDEN_DROPOUT] > 0 || value[PLAN_ATTENTION_DROPOUT] > 0)
    return refuse_field (
        plan, value[PLAN_HIDDEN_DROPOUT] > 0 ? PLAN_HIDDEN_DROPOUT : PLAN_ATTENTION_DROPOUT,
        LATER ": it must be 0", error);
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

/* In all of its layers: an op does not say of which layer it is. */
static gboolean
is_windowed (const PlanModel *model)
{
  return model->window_from == 0 && (model->window_every == 1 || model->layers == 1);
}

/* What none of the kernels computes, though their ops do not say so. */
static gboolean
check_model (const PlanModel *model, gint64 seq, GError **error)
{
  const struct
  {
    gboolean is_there;
    const char *name;
  } beyond[] = {
    { model->norm_1p, "norm_1p=on" },
    { model->post_norms, "post_norms=on" },
    { model->parallel, "parallel=on" },
    { model->embed_scale, "embed_scale=on" },
    { model->positions == PLAN_POSITIONS_ALIBI, "positions=alibi" },
    { model->positions == PLAN_POSITIONS_ROPE && model->rope_fraction < 1,
      "rope_fraction below 1" },
    { model->window > 0 && model->window < seq && !is_windowed (model),
      "a window in some of its layers" },
    { model->attn_scalar > 0 && model->attn_scalar != (double)model->head_dim,
      "attn_scalar other than head_dim" },
    { model->attn_softcap > 0, "attn_softcap" },
    { model->logit_softcap > 0, "logit_softcap" },
    { model->kv_lora > 0, "latent attention" },
    { model->experts > 0, "experts" },
  };
  for (guint i = 0; i < G_N_ELEMENTS (beyond); i++)
    if (beyond[i].is_there)
      {
        g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED, "%s: a model with %s " LATER,
                     model->name, beyond[i].name);
        return FALSE;
      }
  return TRUE;
}

static gboolean
check_buffers (const ExecKernels *kernels, const PlanSchedule *schedule, GError **error)
{
  for (guint i = 0; i < plan_schedule_n_buffers (schedule); i++)
    {
      const PlanBuffer *buffer = plan_schedule_buffer (schedule, i);
      if (is_runnable (kernels, buffer->dtype))
        continue;
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
                   "this plan keeps %s in %s, which is modelled and not executed by %s yet",
                   buffer->name, plan_dtype_name (buffer->dtype), kernels->name);
      return FALSE;
    }
  return TRUE;
}

gboolean
exec_runnable_check (const ExecJob *job, const Plan *plan, const PlanSchedule *schedule,
                     GError **error)
{
  if (!check_fields (plan, plan_schedule_ranks (schedule), error)
      || !check_model (job->model, plan->value[PLAN_SEQ], error)
      || !check_buffers (job->kernels, schedule, error))
    return FALSE;
  for (guint i = 0; i < plan_schedule_n_nodes (schedule); i++)
    {
      const PlanOp *op = plan_schedule_node (schedule, i);
      if (op->kind >= PLAN_N_OPS)
        continue;
      if ((op->kind == PLAN_OP_QUANTIZE && !check_blocks (schedule, op, error))
          || !check_op (job, schedule, op, error))
        return FALSE;
    }
  return TRUE;
}
