/* SPDX-License-Identifier: Apache-2.0 */
/* Writes calls of PyTorch's FullyShardedDataParallel
 * (torch/distributed/fsdp/fully_sharded_data_parallel.py). */
#include "config.h"

#include "planner/emit/emit-private.h"

#define INT "%" G_GINT64_FORMAT
#define IS(field, id) (value[PLAN_##field] == PLAN_##field##_##id)

/* clang-format off */
static const PlanEmitSaid said[] = {
  CAN_SAY (STRATEGY), CAN_SAY (DP_OUTER), CAN_SAY (MBS), CAN_SAY (GBS), CAN_SAY (SEQ), CAN_SAY (MAIN_PARAMS),
  CAN_SAY (MAIN_GRADS), CAN_SAY (GRAD_COMM), CAN_SAY (EXP_AVG), CAN_SAY (EXP_AVG_SQ), CAN_SAY (OPTIMIZER),
  CAN_SAY (RECOMPUTE), CAN_SAY (RECOMPUTE_MODULES), CAN_SAY (RECOMPUTE_METHOD), CAN_SAY (RECOMPUTE_LAYERS),
  CAN_SAY (DETERMINISTIC), CAN_SAY (PER_TOKEN_LOSS), CAN_SAY (SP), CAN_SAY (GRAD_SYNC), CAN_SAY (ADAM_FOREACH),
  { PLAN_COMPUTE, PLAN_EMIT_ONLY (COMPUTE, FP32) | PLAN_EMIT_ONLY (COMPUTE, FP16)
      | PLAN_EMIT_ONLY (COMPUTE, BF16), NULL },
  IS_OWN (CE_FUSION, "the loss: PyTorch's own, flash-attention's where it is on"),
  IS_OWN (EOD_MASK_LOSS, "targets of the loss: those behind the end of a document are its ignore_index"),
  IS_OWN (TASK, "evaluation is forward only, under torch.no_grad"),
  IS_OWN (HIDDEN_DROPOUT, "of the model's own layers"),
  IS_OWN (ATTENTION_DROPOUT, "of the model's own attention"),
};
/* clang-format on */

static const PlanEmitTarget target = {
  .name = "PyTorch's FullyShardedDataParallel",
  .version = "PyTorch 2.2 and newer (names as in 2.15)",
  .stacks = 1 << PLAN_STACK_FSDP1,
  .said = said,
  .n_said = G_N_ELEMENTS (said),
};

static void
append_head (GString *text, const PlanEmitSubject *subject)
{
  const gint64 *const value = subject->of->plan.value;
  g_autofree char *launch = plan_emit_torchrun (subject->of->cluster, " \\\n#       ");
  plan_emit_head (text, subject, PLAN_EMIT_FSDP1);
  plan_emit_for (text, subject, target.version);
  g_string_append_printf (
      text,
      "\n#\n"
      "# One process per GPU, for a program train.py of yours that imports this: it makes the "
      "model,"
      "\n# its data and its loss.\n"
      "#   %s train.py\n#\n"
      "# The program's own part of the plan:\n"
      "#   %s\n",
      launch,
      IS (GRAD_SYNC, LAST)
          ? "grad_sync=last: all micro batches of a step but the last one run under model.no_sync()"
          : "gradients are reduced in every micro batch: no no_sync(), which would keep whole "
            "ones");
  plan_emit_own (text, subject, &target);
  if (IS (PER_TOKEN_LOSS, ON))
    g_string_append (text, "#   per_token_loss=on: the loss is a sum over tokens times "
                           "DATA_PARALLEL, divided by those of the whole step: gradients are means "
                           "over ranks\n");
  if (IS (CE_FUSION, ON))
    g_string_append (text, "#   ce_fusion=on: flash-attention's cross entropy\n");
  if (IS (COMPUTE, FP16))
    g_string_append (text, "#   compute=fp16: ShardedGradScaler around the loss\n");
}

static const char *
strategy_of (const gint64 *value)
{
  const gboolean is_full = IS (STRATEGY, OPTIM_GRADS_PARAMS);
  if (value[PLAN_DP_OUTER] > 1)
    return is_full ? "HYBRID_SHARD" : "_HYBRID_SHARD_ZERO2";
  return is_full ? "FULL_SHARD" : "SHARD_GRAD_OP";
}

static void
append_shard (GString *text, const PlanEmitSubject *subject)
{
  const Plan *const plan = &subject->of->plan;
  const gint64 *const value = plan->value;
  const gint64 outer = value[PLAN_DP_OUTER];
  const gint64 recomputed = plan_emit_recomputed (subject);
  const char *const compute = plan_emit_torch_dtype (plan_weights_dtype (plan));
  g_string_append_printf (
      text,
      "\n\ndef shard(model, layers):\n    \"\"\"layers: a list of " INT ", each a unit.\"\"\"\n"
      "    model.to(%s)  # the weights that the optimizer updates\n"
      "    layers = list(layers)\n    model = FullyShardedDataParallel(\n        model,\n",
      subject->of->model->layers,
      plan_emit_torch_dtype (plan_field_dtype (plan, PLAN_MAIN_PARAMS)));
  if (outer > 1)
    g_string_append_printf (text,
                            "        device_mesh=init_device_mesh(\n            \"cuda\", (" INT
                            ", " INT
                            "), mesh_dim_names=(\"dp_replicate\", \"dp_shard\")\n        ),\n",
                            outer, plan_cluster_devices (subject->of->cluster) / outer);
  g_string_append_printf (text,
                          "        sharding_strategy=ShardingStrategy.%s,\n"
                          "        auto_wrap_policy=ModuleWrapPolicy({type(layer) for layer in "
                          "layers}),\n"
                          "        mixed_precision=MixedPrecision(\n            param_dtype=%s,\n"
                          "            reduce_dtype=%s,\n            buffer_dtype=%s,\n        ),\n"
                          "        backward_prefetch=BackwardPrefetch.BACKWARD_PRE,\n"
                          "        limit_all_gathers=True,\n        use_orig_params=True,\n"
                          "        device_id=torch.cuda.current_device(),\n    )\n",
                          strategy_of (value), compute,
                          plan_emit_torch_dtype (plan_field_dtype (plan, PLAN_GRAD_COMM)), compute);
  if (recomputed > 0)
    g_string_append_printf (
        text,
        "    apply_activation_checkpointing(\n        model,\n"
        "        checkpoint_wrapper_fn=%s,\n"
        "        check_fn=lambda m: any(m is layer for layer in layers[:" INT "]),\n    )\n",
        IS (RECOMPUTE, SELECTIVE) ? "partial(checkpoint_wrapper, context_fn=selected)"
                                  : "checkpoint_wrapper",
        recomputed);
  g_string_append (text, "    return model\n");
}

char *
plan_emit_fsdp1 (const PlanEmitSubject *subject, GPtrArray *reasons)
{
  const gint64 *const value = subject->of->plan.value;
  GString *text = g_string_new (NULL);
  plan_emit_refuse_target (subject, &target, reasons);
  plan_emit_refuse_torch (subject, reasons);
  plan_emit_refuse_experts (subject->of->model, reasons);
  append_head (text, subject);
  if (IS (RECOMPUTE, SELECTIVE))
    g_string_append (text, "\nfrom functools import partial\n");
  plan_emit_torch_imports (text, subject);
  if (!IS (RECOMPUTE, NONE))
    g_string_append (text, "from torch.distributed.algorithms._checkpoint.checkpoint_wrapper "
                           "import apply_activation_checkpointing\n");
  if (value[PLAN_DP_OUTER] > 1)
    g_string_append (text, "from torch.distributed.device_mesh import init_device_mesh\n");
  g_string_append (text, "from torch.distributed.fsdp import (\n    BackwardPrefetch,\n"
                         "    FullyShardedDataParallel,\n    MixedPrecision,\n"
                         "    ShardingStrategy,\n)\n"
                         "from torch.distributed.fsdp.wrap import ModuleWrapPolicy\n");
  plan_emit_torch_batch (text, subject);
  plan_emit_torch_policy (text, subject);
  append_shard (text, subject);
  plan_emit_torch_optimizer (text, subject);
  return g_string_free (text, FALSE);
}
