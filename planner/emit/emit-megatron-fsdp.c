/* SPDX-License-Identifier: Apache-2.0 */
/* Writes calls of fully_shard and fully_shard_model in Megatron-LM's
 * megatron/core/distributed/fsdp/src/megatron_fsdp/fully_shard.py. */
#include "config.h"

#include "planner/emit/emit-private.h"

#define INT "%" G_GINT64_FORMAT
#define IS(field, id) (value[PLAN_##field] == PLAN_##field##_##id)

/* Fields that are an argument of the call, which is True where the field is on. */
static const struct
{
  const char *argument;
  PlanField field;
} switches[] = {
  { "overlap_grad_reduce", PLAN_OVERLAP_GRAD_REDUCE },
  { "overlap_param_gather", PLAN_OVERLAP_PARAM_GATHER },
  { "sync_model_each_microbatch", PLAN_SYNC_EVERY_MICRO_BATCH },
  { "calculate_per_token_loss", PLAN_PER_TOKEN_LOSS },
  { "keep_fp8_transpose_cache", PLAN_KEEP_TRANSPOSE },
  { "nccl_ub", PLAN_NCCL_UB },
  { "use_decoupled_grad", PLAN_PRECISION_AWARE },
  { "cuda_graph_mode", PLAN_CUDA_GRAPH },
};

/* Fields that the program around the call decides: by its model, its optimizer, its loop. */
static const PlanEmitSaid around[] = {
  { PLAN_MBS, PLAN_EMIT_ANY, "sequences in a micro batch" },
  { PLAN_GBS, PLAN_EMIT_ANY, "sequences in a step" },
  { PLAN_SEQ, PLAN_EMIT_ANY, "tokens in a sequence" },
  { PLAN_COMPUTE, PLAN_EMIT_ANY,
    "bf16 and fp16 by the model's dtype, fp8 by Transformer Engine's autocast" },
  { PLAN_PARAM_GATHER, PLAN_EMIT_ANY,
    "quantised weights by Transformer Engine's quantized_model_init" },
  { PLAN_TP, PLAN_EMIT_ANY, "the model's own layers, on the mesh's \"tp\"" },
  { PLAN_TP_OVERLAP, PLAN_EMIT_ANY,
    "user buffers of Transformer Engine's layers, or torch.compile of the model's" },
  { PLAN_CP, PLAN_EMIT_ANY, "attention's own, within \"dp_shard\"" },
  { PLAN_NCCL_UB, PLAN_EMIT_ANY,
    "symmetric memory is of megatron-core's allocator, which must be there too" },
  { PLAN_OPTIMIZER, PLAN_EMIT_ANY, "which one is given" },
  { PLAN_PRECISION_AWARE, PLAN_EMIT_ANY, "use_decoupled_grad of Transformer Engine's FusedAdam" },
  { PLAN_EXP_AVG, PLAN_EMIT_ANY, "a setting of Transformer Engine's FusedAdam" },
  { PLAN_EXP_AVG_SQ, PLAN_EMIT_ANY, "a setting of Transformer Engine's FusedAdam" },
  { PLAN_RECOMPUTE, PLAN_EMIT_ANY, "torch.utils.checkpoint in the model" },
  { PLAN_RECOMPUTE_METHOD, PLAN_EMIT_ANY, "which layers" },
  { PLAN_RECOMPUTE_LAYERS, PLAN_EMIT_ANY, "how many of them" },
  { PLAN_RECOMPUTE_MODULES, PLAN_EMIT_ANY, "which modules" },
  { PLAN_GRAD_ACCUM_FUSION, PLAN_EMIT_ANY,
    "fuse_wgrad_accumulation of Transformer Engine's layers" },
  { PLAN_CE_FUSION, PLAN_EMIT_ANY, "the loss" },
  { PLAN_EOD_MASK_LOSS, PLAN_EMIT_ANY,
    "targets of the loss: those behind the end of a document are its ignore_index" },
  { PLAN_HIDDEN_DROPOUT, PLAN_EMIT_ANY, "of the model's own layers" },
  { PLAN_ATTENTION_DROPOUT, PLAN_EMIT_ANY, "of the model's own attention" },
  { PLAN_CUDA_GRAPH, PLAN_EMIT_ANY, "the loop's capture" },
  { PLAN_EMPTY_CACHE, PLAN_EMIT_ANY, "torch.cuda.empty_cache before the optimizer's step" },
  { PLAN_DETERMINISTIC, PLAN_EMIT_ANY, "torch.use_deterministic_algorithms" },
  { PLAN_TASK, PLAN_EMIT_ANY, "evaluation is forward only, under torch.no_grad" },
};
static const PlanEmitTarget target
    = { .name = "megatron_fsdp", .said = around, .n_said = G_N_ELEMENTS (around) };

static void
refuse (const PlanEmitSubject *subject, GPtrArray *reasons)
{
  const gint64 *const value = subject->of->plan.value;
  plan_emit_refuse_common (subject, FALSE, reasons);
  plan_emit_refuse (reasons, value[PLAN_EP] > 1, "ep: a mesh of experts is not written: use 1");
  plan_emit_refuse (reasons, value[PLAN_COMM_UNIT] != PLAN_UNSET,
                    "comm_unit: the call takes none: use auto, or --as megatron");
  plan_emit_refuse (reasons, !IS (SHARP, OFF),
                    "sharp: the call makes no communicators for it: use off, or --as megatron");
  plan_emit_refuse (reasons, value[PLAN_OFFLOAD_OPTIMIZER] > 0,
                    "offload_optimizer: it is of Megatron-LM's optimizer: use 0, or --as megatron");
  plan_emit_refuse (reasons, value[PLAN_OFFLOAD_LAYERS] > 0,
                    "offload_layers: it is of Megatron-LM's layers: use 0, or --as megatron");
  plan_emit_refuse (reasons, value[PLAN_OFFLOAD_MODULES] != 0,
                    "offload_modules: it is of Megatron-LM's layers: use none, or --as megatron");
  plan_emit_refuse (reasons, IS (NAN_CHECK, LOSS),
                    "nan_check=loss: the call does not see the loss: use params or off");
}

static void
append_switch (GString *text, const char *argument, gboolean is_on)
{
  g_string_append_printf (text, "        %s=%s,\n", argument, is_on ? "True" : "False");
}

static const char *
dtype_of (gint64 state)
{
  return state == PLAN_MAIN_PARAMS_FP32   ? "torch.float32"
         : state == PLAN_MAIN_PARAMS_BF16 ? "torch.bfloat16"
         : state == PLAN_MAIN_PARAMS_FP16 ? "torch.float16"
                                          : "None";
}

static void
append_head (GString *text, const PlanEmitSubject *subject)
{
  const gint64 *const value = subject->of->plan.value;
  g_autofree char *launch = plan_emit_torchrun (subject->of->cluster, " \\\n#       ");
  g_autofree char *nccl = plan_field_print (PLAN_NCCL, value[PLAN_NCCL]);
  plan_emit_head (text, subject, PLAN_EMIT_MEGATRON_FSDP);
  g_string_append_printf (text,
                          "# For megatron_fsdp of %s, with NCCL %s\n#\n"
                          "# One process per GPU, for a program train.py that imports this:\n"
                          "#   env -u CUDA_DEVICE_MAX_CONNECTIONS %s train.py\n#\n"
                          "# The program's own part of the plan:\n",
                          PLAN_EMIT_VERSION, nccl, launch);
  plan_emit_own (text, subject, &target);
  if (value[PLAN_TP] > 1)
    g_string_append_printf (text, "#   sp=%s: the same layers' too\n", IS (SP, ON) ? "on" : "off");
  if (IS (SYNC_EVERY_MICRO_BATCH, OFF))
    g_string_append (text, "#   sync_every_micro_batch=off: model.set_model_auto_sync(True) before "
                           "the last one of a step, False behind it\n");
}

/* Adds the device mesh. Ranks of tensor parallelism are neighbours, then come those that shard,
 * then replicas. */
static void
append_mesh (GString *text, const PlanEmitSubject *subject)
{
  const gint64 *const value = subject->of->plan.value;
  const gint64 tp = value[PLAN_TP], outer = value[PLAN_DP_OUTER];
  const gint64 shards = plan_cluster_devices (subject->of->cluster) / tp / outer;
  g_string_append (text, "    mesh = init_device_mesh(\n        \"cuda\",\n");
  if (outer > 1)
    g_string_append_printf (text,
                            "        (" INT ", " INT ", " INT "),\n"
                            "        mesh_dim_names=(\"dp_outer\", \"dp_shard\", \"tp\"),\n    )\n"
                            "    replicas = mesh[\"dp_outer\", \"dp_shard\"]._flatten(\"dp\")\n",
                            outer, shards, tp);
  else
    g_string_append_printf (text,
                            "        (" INT ", " INT "),\n"
                            "        mesh_dim_names=(\"dp_shard\", \"tp\"),\n    )\n",
                            shards, tp);
  if (IS (AG_GROUP, ON) && tp == 1)
    g_string_append (text, "    gathers = torch.distributed.new_group()\n");
  else if (IS (AG_GROUP, ON))
    g_string_append_printf (text,
                            "    gathers, _ = torch.distributed.new_subgroups_by_enumeration(\n"
                            "        [list(range(i, " INT ", " INT ")) for i in range(" INT ")]\n"
                            "    )\n",
                            plan_cluster_devices (subject->of->cluster), tp, tp);
}

static void
append_arguments (GString *text, const PlanEmitSubject *subject)
{
  const gint64 *const value = subject->of->plan.value;
  const gboolean is_hybrid = value[PLAN_DP_OUTER] > 1;
  g_string_append_printf (text,
                          "        device_mesh=mesh,\n        dp_shard_dim=\"dp_shard\",\n%s"
                          "        tp_dim=\"tp\",\n%s%s"
                          "        fsdp_unit_modules=%s,\n"
                          "        zero_dp_strategy=\"%s\",\n"
                          "        outer_dp_sharding_strategy=\"%s\",\n"
                          "        mixed_precision_policy=MixedPrecisionPolicy(\n"
                          "            main_params_dtype=%s,\n            main_grads_dtype=%s,\n"
                          "            grad_comm_dtype=%s,\n        ),\n",
                          is_hybrid ? "        dp_outer_dim=\"dp_outer\",\n" : "",
                          is_hybrid ? "        hybrid_fsdp_group=replicas.get_group(),\n" : "",
                          IS (AG_GROUP, ON) ? "        fsdp_group_ag=gathers,\n" : "",
                          IS (STRATEGY, NO_SHARD) ? "None" : "unit_modules",
                          plan_field_names (PLAN_STRATEGY)[value[PLAN_STRATEGY]],
                          plan_field_names (PLAN_OUTER_STRATEGY)[value[PLAN_OUTER_STRATEGY]],
                          dtype_of (value[PLAN_MAIN_PARAMS]), dtype_of (value[PLAN_MAIN_GRADS]),
                          dtype_of (value[PLAN_GRAD_COMM]));
  if (!IS (STRATEGY, NO_SHARD)) /* with no_shard the call refuses this argument */
    g_string_append (text, "        init_model_with_meta_device=is_meta,\n");
  for (guint i = 0; i < G_N_ELEMENTS (switches); i++)
    append_switch (text, switches[i].argument, value[switches[i].field] != 0);
  append_switch (text, "fsdp_double_buffer", !IS (DOUBLE_BUFFER, OFF));
  append_switch (text, "maxpool_double_buffer", IS (DOUBLE_BUFFER, MAX_POOL));
  append_switch (text, "report_nan_in_param_grad", IS (NAN_CHECK, PARAMS));
}

char *
plan_emit_megatron_fsdp (const PlanEmitSubject *subject, GPtrArray *reasons)
{
  const gint64 *const value = subject->of->plan.value;
  /* fully_shard takes enable_fine_grained_param_gather but does not pass it on */
  const gboolean in_two = IS (FINE_GRAINED, ON);
  GString *text = g_string_new (NULL);
  refuse (subject, reasons);
  append_head (text, subject);
  g_string_append_printf (text,
                          "\nimport torch\nfrom megatron_fsdp import MixedPrecisionPolicy, %s\n"
                          "from torch.distributed.device_mesh import init_device_mesh\n\n\n"
                          "def shard(module, optimizer, unit_modules, is_meta=False):\n"
                          "    \"\"\"unit_modules: the classes of the layers, each gathered as "
                          "one;\n    is_meta: the module was made on the meta "
                          "device.\"\"\"\n",
                          in_two ? "fully_shard_model, fully_shard_optimizer" : "fully_shard");
  append_mesh (text, subject);
  g_string_append (text, in_two ? "    model = fully_shard_model(\n        module=module,\n"
                                : "    return fully_shard(\n        module=module,\n"
                                  "        optimizer=optimizer,\n");
  append_arguments (text, subject);
  if (in_two)
    append_switch (text, "enable_fine_grained_param_gather", TRUE);
  g_string_append (text, "    )\n");
  if (in_two)
    g_string_append (
        text, "    # As fully_shard goes on, which does not pass that argument to the model.\n"
              "    model._replace_param_with_distributed_if_needed()\n"
              "    optimizer.param_groups.clear()\n"
              "    optimizer.state.clear()\n"
              "    optimizer.add_param_group({\"params\": model.parameters()})\n"
              "    return model, fully_shard_optimizer(optimizer)\n");
  return g_string_free (text, FALSE);
}
