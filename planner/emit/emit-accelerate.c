/* SPDX-License-Identifier: Apache-2.0 */
/* Writes Accelerate's configuration: ClusterConfig (src/accelerate/commands/config/config_args.py),
 * and the arguments of its launcher (commands/launch.py) without their dashes. */
#include "config.h"

#include "planner/emit/emit-private.h"

#define INT "%" G_GINT64_FORMAT
#define IS(field, id) (value[PLAN_##field] == PLAN_##field##_##id)

/* clang-format off */
static const PlanEmitSaid said[] = {
  CAN_SAY (STRATEGY), CAN_SAY (DP_OUTER), CAN_SAY (GRAD_COMM), CAN_SAY (COMPILE), CAN_SAY (SP), CAN_SAY (GRAD_SYNC),
  CAN_ONLY (MAIN_PARAMS, FP32), CAN_ONLY (MAIN_GRADS, FP32), CAN_ONLY (EXP_AVG, FP32),
  CAN_ONLY (EXP_AVG_SQ, FP32),
  CAN_SAY (RECOMPUTE_MODULES), CAN_SAY (RECOMPUTE_METHOD), CAN_SAY (RECOMPUTE_LAYERS),
  { PLAN_RECOMPUTE, PLAN_EMIT_ONLY (RECOMPUTE, NONE) | PLAN_EMIT_ONLY (RECOMPUTE, FULL), NULL },
  { PLAN_COMPUTE, PLAN_EMIT_ONLY (COMPUTE, FP32) | PLAN_EMIT_ONLY (COMPUTE, FP16)
      | PLAN_EMIT_ONLY (COMPUTE, BF16), NULL },
  IS_OWN (TP, "tp_plan=\"auto\" where the model is made by transformers"),
  IS_OWN (CP, "accelerator.maybe_context_parallel around the forward and backward pass"),
  IS_OWN (MBS, "the batch size of the data loader"),
  IS_OWN (GBS, "see gradient accumulation below"),
  IS_OWN (SEQ, "tokens of each sequence that the data loader gives"),
  IS_OWN (OPTIMIZER, "torch.optim.SGD"),
  IS_OWN (PER_TOKEN_LOSS, "the loss is the mean of each micro batch"),
  IS_OWN (CE_FUSION, "the loss: PyTorch's own"),
  IS_OWN (LOSS_CHUNKS, "the loss: pieces of a micro batch, one after the other"),
  IS_OWN (EOD_MASK_LOSS, "targets of the loss: those behind the end of a document are its ignore_index"),
  IS_OWN (TASK, "evaluation is forward only, under torch.no_grad"),
  IS_OWN (HIDDEN_DROPOUT, "of the model's own layers"),
  IS_OWN (ATTENTION_DROPOUT, "of the model's own attention"),
  IS_OWN (DETERMINISTIC, "torch.use_deterministic_algorithms"),
};
/* clang-format on */

static const PlanEmitTarget target = {
  .name = "Accelerate",
  .version = "Accelerate main at 16cb6eb8 (2026-07-24)",
  .stacks = 1 << PLAN_STACK_FSDP1 | 1 << PLAN_STACK_FSDP2,
  .said = said,
  .n_said = G_N_ELEMENTS (said),
};

static gboolean
is_fsdp2 (const gint64 *value)
{
  return value[PLAN_STACK] % PLAN_STACK_BASE == PLAN_STACK_FSDP2;
}

static void
refuse (const PlanEmitSubject *subject, GPtrArray *reasons)
{
  const gint64 *const value = subject->of->plan.value;
  const gint64 recomputed = plan_emit_recomputed (subject);
  const gboolean is_hybrid = value[PLAN_DP_OUTER] > 1;
  const char *const kind = is_fsdp2 (value) ? "fsdp2" : "fsdp1";
  const PlanDtype weights = plan_weights_dtype (&subject->of->plan);
  plan_emit_refuse_target (subject, &target, reasons);
  plan_emit_refuse_experts (subject->of->model, reasons);
  plan_emit_refuse (reasons, plan_field_dtype (&subject->of->plan, PLAN_GRAD_COMM) != weights,
                    "grad_comm: Accelerate's mixed_precision reduces gradients in the format of "
                    "compute: use grad_comm=%s, or --as %s",
                    plan_dtype_name (weights), kind);
  plan_emit_refuse (reasons, recomputed > 0 && recomputed < subject->of->model->layers,
                    "recompute_layers: Accelerate recomputes all layers or none: use "
                    "recompute_method=uniform, or --as %s",
                    kind);
  plan_emit_refuse (
      reasons,
      is_hybrid && !is_fsdp2 (value) && value[PLAN_DP_OUTER] != subject->of->cluster->nodes,
      "dp_outer: Accelerate's HYBRID_SHARD shards over a node: use dp_outer=" INT ", or --as fsdp1",
      subject->of->cluster->nodes);
}

static void
append_head (GString *text, const PlanEmitSubject *subject)
{
  const gint64 *const value = subject->of->plan.value;
  const gint64 n = plan_micro_batches (&subject->of->plan, subject->of->cluster);
  const gint64 dp = plan_data_parallel (&subject->of->plan, subject->of->cluster);
  plan_emit_head (text, subject, PLAN_EMIT_ACCELERATE);
  plan_emit_for (text, subject, target.version);
  g_string_append_printf (text,
                          ", and a program train.py of yours that makes\n# the "
                          "model, its data and its loss. As accelerate_plan.yaml%s:\n"
                          "#   accelerate launch --config_file accelerate_plan.yaml%s train.py\n#\n"
                          "# The program's own part of the plan:\n",
                          subject->of->cluster->nodes > 1 ? ", on every node" : "",
                          subject->of->cluster->nodes > 1
                              ? " \\\n#     --machine_rank RANK --main_process_ip FIRST_NODE "
                                "--main_process_port 29500"
                              : "");
  plan_emit_own (text, subject, &target);
  g_string_append_printf (
      text,
      "#   GradientAccumulationPlugin(num_steps=" INT ", sync_each_batch=%s), which keeps %s: " INT
      " x " INT " ranks x " INT " = " INT " sequences in a step\n"
      "# Units are the classes that transformers' model names in "
      "_no_split_modules; for other models\n"
      "# add fsdp_transformer_layer_cls_to_wrap.\n",
      n, IS (GRAD_SYNC, LAST) ? "False" : "True",
      IS (GRAD_SYNC, LAST) ? "whole gradients up to the last one,\n#   not shards"
                           : "shards of gradients, not whole\n#   ones",
      value[PLAN_MBS], dp, n, value[PLAN_GBS]);
  if (!IS (RECOMPUTE, NONE))
    g_string_append (text, "# recompute: layers run twice, so models of transformers are made with "
                           "use_cache=False.\n");
  if (!is_fsdp2 (value) && IS (CE_FUSION, ON))
    g_string_append (text, "# ce_fusion=on: flash-attention's cross entropy.\n");
  if (IS (PER_TOKEN_LOSS, ON))
    g_string_append (text, "# per_token_loss=on: give the loss function num_items_in_batch of all "
                           "micro batches and ranks.\n");
}

static void
append_fsdp (GString *text, const PlanEmitSubject *subject)
{
  const gint64 *const value = subject->of->plan.value;
  const gboolean is_full = IS (STRATEGY, OPTIM_GRADS_PARAMS), is_hybrid = value[PLAN_DP_OUTER] > 1;
  g_string_append_printf (text,
                          "fsdp_config:\n  fsdp_version: %d\n"
                          "  fsdp_activation_checkpointing: %s\n"
                          "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
                          "  fsdp_cpu_ram_efficient_loading: false\n"
                          "  fsdp_offload_params: false\n"
                          "  fsdp_state_dict_type: SHARDED_STATE_DICT\n",
                          is_fsdp2 (value) ? 2 : 1,
                          plan_emit_recomputed (subject) > 0 ? "true" : "false");
  if (is_fsdp2 (value))
    g_string_append_printf (text, "  fsdp_reshard_after_forward: %s\n", is_full ? "true" : "false");
  else
    g_string_append_printf (text,
                            "  fsdp_sharding_strategy: %s\n"
                            "  fsdp_backward_prefetch: BACKWARD_PRE\n"
                            "  fsdp_forward_prefetch: false\n  fsdp_sync_module_states: false\n"
                            "  fsdp_use_orig_params: true\n",
                            is_hybrid && is_full ? "HYBRID_SHARD"
                            : is_hybrid          ? "HYBRID_SHARD_ZERO2"
                            : is_full            ? "FULL_SHARD"
                                                 : "SHARD_GRAD_OP");
}

static void
append_parallelism (GString *text, const PlanEmitSubject *subject)
{
  const gint64 *const value = subject->of->plan.value;
  const gint64 tp = value[PLAN_TP], cp = value[PLAN_CP], outer = value[PLAN_DP_OUTER];
  if (!is_fsdp2 (value) || (tp == 1 && cp == 1 && outer == 1))
    return;
  g_string_append_printf (text,
                          "parallelism_config:\n"
                          "  parallelism_config_dp_replicate_size: " INT "\n"
                          "  parallelism_config_dp_shard_size: " INT "\n"
                          "  parallelism_config_tp_size: " INT "\n"
                          "  parallelism_config_cp_size: " INT "\n",
                          outer, plan_cluster_devices (subject->of->cluster) / tp / cp / outer, tp,
                          cp);
}

char *
plan_emit_accelerate (const PlanEmitSubject *subject, GPtrArray *reasons)
{
  const gint64 *const value = subject->of->plan.value;
  const PlanCluster *const c = subject->of->cluster;
  GString *text = g_string_new (NULL);
  refuse (subject, reasons);
  append_head (text, subject);
  g_string_append_printf (text,
                          "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\n"
                          "num_machines: " INT "\nnum_processes: " INT "\n"
                          "machine_rank: 0\nrdzv_backend: %s\nmain_training_function: main\n"
                          "mixed_precision: '%s'\nuse_cpu: false\n",
                          c->nodes, plan_cluster_devices (c), c->nodes > 1 ? "c10d" : "static",
                          IS (COMPUTE, FP32)   ? "no"
                          : IS (COMPUTE, FP16) ? "fp16"
                                               : "bf16");
  append_fsdp (text, subject);
  append_parallelism (text, subject);
  if (IS (COMPILE, ON))
    g_string_append (text, "dynamo_config:\n  dynamo_backend: INDUCTOR\n"
                           "  dynamo_use_regional_compilation: true\n");
  return g_string_free (text, FALSE);
}
