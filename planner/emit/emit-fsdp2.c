/* SPDX-License-Identifier: Apache-2.0 */
/* Writes calls of PyTorch's fully_shard with its MixedPrecisionPolicy
 * (torch/distributed/fsdp/_fully_shard/_fully_shard.py and _fsdp_api.py). */
#include "config.h"

#include "planner/emit/emit-private.h"

#define INT "%" G_GINT64_FORMAT
#define IS(field, id) (value[PLAN_##field] == PLAN_##field##_##id)

/* clang-format off */
static const PlanEmitSaid said[] = {
  CAN_SAY (STRATEGY), CAN_SAY (DP_OUTER), CAN_SAY (MBS), CAN_SAY (GBS), CAN_SAY (SEQ), CAN_SAY (MAIN_PARAMS),
  CAN_SAY (MAIN_GRADS), CAN_SAY (GRAD_COMM), CAN_SAY (EXP_AVG), CAN_SAY (EXP_AVG_SQ), CAN_SAY (OPTIMIZER),
  CAN_SAY (RECOMPUTE), CAN_SAY (RECOMPUTE_MODULES), CAN_SAY (RECOMPUTE_METHOD), CAN_SAY (RECOMPUTE_LAYERS),
  CAN_SAY (COMPILE), CAN_SAY (DETERMINISTIC), CAN_SAY (PER_TOKEN_LOSS), CAN_SAY (TP_OVERLAP),
  CAN_SAY (GRAD_SYNC), CAN_SAY (ADAM_FOREACH),
  { PLAN_COMPUTE, PLAN_EMIT_ONLY (COMPUTE, FP32) | PLAN_EMIT_ONLY (COMPUTE, FP16)
      | PLAN_EMIT_ONLY (COMPUTE, BF16) | PLAN_EMIT_ONLY (COMPUTE, FP8_TENSORWISE), NULL },
  IS_OWN (TP, "parallelize_module of the model's own layers over tensor_mesh(), before shard()"),
  IS_OWN (SP, "the same layers' too"),
  IS_OWN (CP, "torch.distributed.tensor.experimental.context_parallel over context_mesh()"),
  IS_OWN (CE_FUSION, "the loss"),
  IS_OWN (LOSS_CHUNKS, "the loss: pieces of a micro batch, one after the other"),
  IS_OWN (EOD_MASK_LOSS, "targets of the loss: those behind the end of a document are its ignore_index"),
  IS_OWN (TASK, "evaluation is forward only, under torch.no_grad"),
  IS_OWN (HIDDEN_DROPOUT, "of the model's own layers"),
  IS_OWN (ATTENTION_DROPOUT, "of the model's own attention"),
};
/* clang-format on */

static const PlanEmitTarget target = {
  .name = "PyTorch's fully_shard",
  .version = "PyTorch 2.6 and newer (names as in 2.15)",
  .stacks = 1 << PLAN_STACK_FSDP2,
  .said = said,
  .n_said = G_N_ELEMENTS (said),
};

static void
append_head (GString *text, const PlanEmitSubject *subject)
{
  const gint64 *const value = subject->of->plan.value;
  g_autofree char *launch = plan_emit_torchrun (subject->of->cluster, " \\\n#       ");
  plan_emit_head (text, subject, PLAN_EMIT_FSDP2);
  plan_emit_for (text, subject, target.version);
  g_string_append_printf (text,
                          "\n#\n"
                          "# One process per GPU, for a program train.py of yours that imports "
                          "this: it makes the model,"
                          "\n# its data and its loss.\n"
                          "#   PYTORCH_ALLOC_CONF=expandable_segments:True %s train.py\n#\n"
                          "# The program's own part of the plan:\n",
                          launch);
  plan_emit_own (text, subject, &target);
  if (IS (PER_TOKEN_LOSS, ON))
    g_string_append (text, "#   per_token_loss=on: the loss is a sum over tokens, divided by those "
                           "of the whole step; shard() makes gradients sums over ranks\n");
  if (IS (GRAD_SYNC, LAST))
    g_string_append (text, "#   grad_sync=last: model.set_requires_gradient_sync(is_last) before "
                           "each micro batch\n");
  if (IS (COMPUTE, FP16))
    g_string_append (text, "#   compute=fp16: torch.amp.GradScaler around the loss\n");
  if (IS (COMPILE, ON))
    g_string_append (text, "#   compile=on: torch.compile of the loss, too; shard() compiles "
                           "layers\n");
}

static void
append_imports (GString *text, const PlanEmitSubject *subject)
{
  const gint64 *const value = subject->of->plan.value;
  plan_emit_torch_imports (text, subject);
  g_string_append (text, "from torch.distributed.device_mesh import init_device_mesh\n");
  g_string_append_printf (
      text, "from torch.distributed.fsdp import %sMixedPrecisionPolicy, fully_shard\n",
      IS (PER_TOKEN_LOSS, ON) ? "FSDPModule, " : "");
  if (IS (COMPUTE, FP8_TENSORWISE))
    g_string_append (text, "from torchao.float8 import Float8LinearConfig, "
                           "convert_to_float8_training\n");
}

/* Adds the device meshes. Ranks of tensor parallelism are neighbours, then come those of one
 * sequence, those that shard, and replicas; parameters are sharded over the ranks of a sequence as
 * well. */
static void
append_meshes (GString *text, const PlanEmitSubject *subject)
{
  const gint64 *const value = subject->of->plan.value;
  const gint64 tp = value[PLAN_TP], cp = value[PLAN_CP], outer = value[PLAN_DP_OUTER];
  const gint64 devices = plan_cluster_devices (subject->of->cluster);
  g_string_append (text, "\nMESH = init_device_mesh(\n    \"cuda\",\n    (");
  if (outer > 1)
    g_string_append_printf (text, INT ", ", outer);
  g_string_append_printf (text, INT ",", devices / tp / outer);
  if (tp > 1)
    g_string_append_printf (text, " " INT, tp);
  g_string_append_printf (text, "),\n    mesh_dim_names=(%s\"dp_shard\",%s),\n)\n",
                          outer > 1 ? "\"dp_replicate\", " : "", tp > 1 ? " \"tp\"" : "");
  if (tp > 1)
    g_string_append (text, "\n\ndef tensor_mesh():\n    return MESH[\"tp\"]\n");
  if (cp > 1)
    g_string_append_printf (text,
                            "\n\ndef context_mesh():\n    mesh = init_device_mesh(\n"
                            "        \"cuda\",\n        (" INT ", " INT ", " INT "),\n"
                            "        mesh_dim_names=(\"dp\", \"cp\", \"tp\"),\n    )\n"
                            "    return mesh[\"cp\"]\n",
                            devices / cp / tp, cp, tp);
}

/* Adds what is done with each layer before it is sharded. */
static void
append_layers (GString *text, const PlanEmitSubject *subject)
{
  const gint64 *const value = subject->of->plan.value;
  const gint64 recomputed = plan_emit_recomputed (subject);
  if (IS (COMPUTE, FP8_TENSORWISE))
    g_string_append (text, "    recipe = Float8LinearConfig.from_recipe_name(\"tensorwise\")\n"
                           "    for layer in layers:\n"
                           "        convert_to_float8_training(layer, config=recipe)\n");
  if (recomputed > 0)
    g_string_append_printf (text,
                            "    for i in range(" INT "):\n"
                            "        layers[i] = checkpoint_wrapper(layers[i]%s)\n",
                            recomputed, IS (RECOMPUTE, SELECTIVE) ? ", context_fn=selected" : "");
  if (IS (TP_OVERLAP, ASYNC))
    g_string_append (text,
                     "    torch._inductor.config._micro_pipeline_tp = True  # products in pieces\n"
                     "    torch.distributed._symmetric_memory.enable_symm_mem_for_group(\n"
                     "        tensor_mesh().get_group().group_name\n    )\n");
  if (IS (COMPILE, ON))
    g_string_append (text, "    for layer in layers:\n        layer.compile(fullgraph=True)\n");
}

static void
append_shard (GString *text, const PlanEmitSubject *subject)
{
  const Plan *const plan = &subject->of->plan;
  const gint64 *const value = plan->value;
  const gboolean is_tied = subject->of->model->tied_embeddings;
  const char *const resharded = plan_emit_python (IS (STRATEGY, OPTIM_GRADS_PARAMS));
  g_string_append_printf (text,
                          "\n\ndef shard(model, embedding, layers, head):\n"
                          "    \"\"\"layers: a ModuleList of " INT
                          "; head: [the last norm, the output layer].\"\"\"\n"
                          "    model.to(%s)  # the weights that the optimizer updates\n",
                          subject->of->model->layers,
                          plan_emit_torch_dtype (plan_field_dtype (plan, PLAN_MAIN_PARAMS)));
  append_layers (text, subject);
  g_string_append_printf (text,
                          "    policy = MixedPrecisionPolicy(\n        param_dtype=%s,\n"
                          "        reduce_dtype=%s,\n    )\n"
                          "    options = {\"mesh\": MESH[%s], \"mp_policy\": policy}\n",
                          plan_emit_torch_dtype (plan_weights_dtype (plan)),
                          plan_emit_torch_dtype (plan_field_dtype (plan, PLAN_GRAD_COMM)),
                          value[PLAN_DP_OUTER] > 1 ? "\"dp_replicate\", \"dp_shard\""
                                                   : "\"dp_shard\"");
  g_string_append_printf (text,
                          "    for layer in layers:\n"
                          "        fully_shard(layer, **options, reshard_after_forward=%s)\n",
                          resharded);
  if (is_tied) /* the tied weight is in one unit */
    g_string_append (text, "    fully_shard([embedding, *head], **options, "
                           "reshard_after_forward=False)\n");
  else
    g_string_append_printf (
        text,
        "    fully_shard(embedding, **options, reshard_after_forward=%s)\n"
        "    fully_shard(head, **options, reshard_after_forward=False)  # it is needed at once\n",
        resharded);
  g_string_append (text, "    fully_shard(model, **options)\n");
  if (IS (PER_TOKEN_LOSS, ON))
    g_string_append (text, "    for module in model.modules():\n"
                           "        if isinstance(module, FSDPModule):\n"
                           "            module.set_gradient_divide_factor(1.0)\n");
  g_string_append (text, "    return model\n");
}

char *
plan_emit_fsdp2 (const PlanEmitSubject *subject, GPtrArray *reasons)
{
  GString *text = g_string_new (NULL);
  plan_emit_refuse_target (subject, &target, reasons);
  plan_emit_refuse_torch (subject, reasons);
  plan_emit_refuse_experts (subject->of->model, reasons);
  append_head (text, subject);
  append_imports (text, subject);
  plan_emit_torch_batch (text, subject);
  append_meshes (text, subject);
  plan_emit_torch_policy (text, subject);
  append_shard (text, subject);
  plan_emit_torch_optimizer (text, subject);
  return g_string_free (text, FALSE);
}
