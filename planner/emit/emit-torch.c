/* SPDX-License-Identifier: Apache-2.0 */
/* Parts that the files for both of PyTorch's ways of sharding share. */
#include "config.h"

#include "planner/emit/emit-private.h"

#define INT "%" G_GINT64_FORMAT
#define IS(field, id) (value[PLAN_##field] == PLAN_##field##_##id)

const char *
plan_emit_torch_dtype (PlanDtype dtype)
{
  return dtype == PLAN_DTYPE_FP16   ? "torch.float16"
         : dtype == PLAN_DTYPE_BF16 ? "torch.bfloat16"
                                    : "torch.float32";
}

gint64
plan_emit_recomputed (const PlanEmitSubject *subject)
{
  const gint64 *const value = subject->of->plan.value;
  const gint64 layers = subject->of->model->layers;
  if (IS (RECOMPUTE, NONE))
    return 0;
  return IS (RECOMPUTE, FULL) && IS (RECOMPUTE_METHOD, BLOCK)
             ? MIN (value[PLAN_RECOMPUTE_LAYERS], layers)
             : layers;
}

/* Whether moments are in bf16 while main weights are in fp32. */
static gboolean
has_narrow_moments (const Plan *plan)
{
  return plan_field_dtype (plan, PLAN_MAIN_PARAMS) == PLAN_DTYPE_FP32
         && plan_field_dtype (plan, PLAN_EXP_AVG) == PLAN_DTYPE_BF16
         && plan_field_dtype (plan, PLAN_EXP_AVG_SQ) == PLAN_DTYPE_BF16;
}

void
plan_emit_refuse_torch (const PlanEmitSubject *subject, GPtrArray *reasons)
{
  const Plan *const plan = &subject->of->plan;
  const PlanDtype params = plan_field_dtype (plan, PLAN_MAIN_PARAMS);
  plan_emit_refuse (reasons, plan_field_dtype (plan, PLAN_MAIN_GRADS) != params,
                    "main_grads: PyTorch keeps reduced gradients in the format of the weights that "
                    "the optimizer updates: use main_grads=%s",
                    plan_dtype_name (params));
}

void
plan_emit_torch_imports (GString *text, const PlanEmitSubject *subject)
{
  const gint64 *const value = subject->of->plan.value;
  if (!IS (RECOMPUTE, NONE))
    g_string_append (text, "#   recompute: layers run twice, so models of transformers are made "
                           "with use_cache=False\n");
  g_string_append (text, "\nimport torch\n");
  if (!IS (RECOMPUTE, NONE))
    g_string_append (text, "from torch.distributed.algorithms._checkpoint.checkpoint_wrapper "
                           "import checkpoint_wrapper\n");
  if (IS (RECOMPUTE, SELECTIVE))
    g_string_append (text, "from torch.utils.checkpoint import CheckpointPolicy, "
                           "create_selective_checkpoint_contexts\n");
}

void
plan_emit_torch_batch (GString *text, const PlanEmitSubject *subject)
{
  const gint64 *const value = subject->of->plan.value;
  const gint64 n = plan_micro_batches (&subject->of->plan, subject->of->cluster);
  g_string_append_printf (
      text,
      "\nMICRO_BATCH = " INT "  # sequences of a rank, forward and backward\n"
      "MICRO_BATCHES = " INT "  # before each step of the optimizer\n"
      "DATA_PARALLEL = " INT "  # ranks with sequences of their own: " INT " x " INT " x " INT
      " = " INT " in a step\n"
      "SEQUENCE = " INT "  # tokens\n",
      value[PLAN_MBS], n, plan_data_parallel (&subject->of->plan, subject->of->cluster),
      value[PLAN_MBS], n, plan_data_parallel (&subject->of->plan, subject->of->cluster),
      value[PLAN_GBS], value[PLAN_SEQ]);
  if (IS (DETERMINISTIC, ON))
    g_string_append (text, "\ntorch.use_deterministic_algorithms(True)\n");
}

/* The policy of torchtitan's selective checkpointing: outputs of GEMMs and attention are kept, but
 * of GEMMs without bias only every second one. */
void
plan_emit_torch_policy (GString *text, const PlanEmitSubject *subject)
{
  const gint64 *const value = subject->of->plan.value;
  if (!IS (RECOMPUTE, SELECTIVE))
    return;
  g_string_append (
      text,
      "\nPRODUCT = torch.ops.aten.mm.default\n"
      "KEPT = {\n"
      "    torch.ops.aten.addmm.default,  # products with biases\n"
      "    torch.ops.aten.bmm.default,\n"
      "    torch.ops.aten._scaled_dot_product_flash_attention.default,\n"
      "    torch.ops.aten._scaled_dot_product_efficient_attention.default,\n"
      "    torch.ops.aten._scaled_dot_product_cudnn_attention.default,\n"
      "    torch.ops._c10d_functional.reduce_scatter_tensor.default,\n"
      "}\n\n\n"
      "def selected():\n"
      "    \"\"\"Attention, reductions and every second plain product are kept, the rest is done "
      "again.\"\"\"\n"
      "    products = {False: 0, True: 0}\n\n"
      "    def policy(context, op, *args, **kwargs):\n"
      "        if op == PRODUCT:\n"
      "            products[context.is_recompute] += 1\n"
      "        odd = products[context.is_recompute] % 2 == 1\n"
      "        keep = op in KEPT or (op == PRODUCT and odd)\n"
      "        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE\n\n"
      "    return create_selective_checkpoint_contexts(policy)\n");
}

/* Creates the moments before the first step. Fused AdamW keeps the state that it finds, and
 * computes in fp32 with moments in bf16 (torchtitan PR #2732). */
static void
append_narrow_moments (GString *text)
{
  g_string_append (
      text, "    for p in model.parameters():\n"
            "        # There before the first step: AdamW would make them in fp32, and so does\n"
            "        # load_state_dict.\n"
            "        optimizer.state[p] = {\n"
            "            \"step\": torch.zeros((), dtype=torch.float32, device=p.device),\n"
            "            \"exp_avg\": torch.zeros_like(p, dtype=torch.bfloat16),\n"
            "            \"exp_avg_sq\": torch.zeros_like(p, dtype=torch.bfloat16),\n"
            "        }\n");
}

void
plan_emit_torch_optimizer (GString *text, const PlanEmitSubject *subject)
{
  const gint64 *const value = subject->of->plan.value;
  const gboolean is_narrow = IS (OPTIMIZER, ADAMW) && has_narrow_moments (&subject->of->plan);
  g_string_append (text, "\n\ndef optimizer_of(model, lr):\n");
  g_string_append (text, IS (OPTIMIZER, SGD)
                             ? "    return torch.optim.SGD(model.parameters(), lr=lr, fused=True)\n"
                         : is_narrow ? "    optimizer = torch.optim.AdamW("
                                     : "    return torch.optim.AdamW(");
  if (IS (OPTIMIZER, ADAMW))
    g_string_append_printf (text,
                            "\n        model.parameters(), lr=lr, betas=(0.9, 0.95), "
                            "weight_decay=0.1, %s=True\n    )\n",
                            IS (ADAM_FOREACH, ON) ? "foreach" : "fused");
  if (is_narrow)
    {
      append_narrow_moments (text);
      g_string_append (text, "    return optimizer\n");
    }
}
