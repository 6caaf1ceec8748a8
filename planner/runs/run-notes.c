/* SPDX-License-Identifier: Apache-2.0 */
/* Switches without a column of their own: what each key of `notes` means for the plan. */
#include "config.h"

#include "planner/plan/stack.h"
#include "planner/runs/run-private.h"

#include <string.h>

/* What a key means. Keys that are neither set nor forbidden are left out of the plan, and the row
 * says so. */
typedef enum
{
  MEANS_SET,    /* sets `text`: "FIELD=VALUE", or "FIELD=" for the key's own value */
  MEANS_FORBID, /* skips the row: `text` is what the plan cannot express */
  MEANS_REMARK, /* has little effect: `text` is what the prediction lacks */
} Meaning;

/* A NULL value stands for every value without an earlier entry. */
static const struct
{
  const char *key, *value;
  Meaning meaning;
  const char *text;
} switches[] = {
  { "deterministic", "yes", MEANS_SET, "deterministic=on" },
  { "ce_fusion", "yes", MEANS_SET, "ce_fusion=on" },
  { "ce_fusion", "te", MEANS_SET, "ce_fusion=te" },
  { "ce_fusion", "no", MEANS_SET, "ce_fusion=off" },
  { "grad_accumulation_fusion", "yes", MEANS_SET, "grad_accum_fusion=on" },
  { "grad_accumulation_fusion", "no", MEANS_SET, "grad_accum_fusion=off" },
  { "overlap_grad_reduce", "yes", MEANS_SET, "overlap_grad_reduce=on" },
  { "overlap_grad_reduce", "no", MEANS_SET, "overlap_grad_reduce=off" },
  { "overlap_param_gather", "yes", MEANS_SET, "overlap_param_gather=on" },
  { "overlap_param_gather", "no", MEANS_SET, "overlap_param_gather=off" },
  { "overlap", "none", MEANS_SET, "overlap_grad_reduce=off" },
  { "overlap", "none", MEANS_SET, "overlap_param_gather=off" },
  { "per_token_loss", "yes", MEANS_SET, "per_token_loss=on" },
  { "per_token_loss", "no", MEANS_SET, "per_token_loss=off" },
  { "nan_check", "report_nan_in_param_grad", MEANS_SET, "nan_check=params" },
  { "fused_adam_master_weights", "yes", MEANS_SET, "fused_masters=on" },
  { "keep_fp8_transpose", "yes", MEANS_SET, "keep_transpose=on" },
  { "communication_unit_size", NULL, MEANS_SET, "comm_unit=" },
  { "all_to_all_reduce", "yes", MEANS_SET, "reduce_algo=a2a" },
  { "cuda_graph", "yes", MEANS_SET, "cuda_graph=on" },
  { "cuda_graph", "no", MEANS_SET, "cuda_graph=off" },
  { "cuda_graph", "none", MEANS_SET, "cuda_graph=off" },
  { "attention", "unfused", MEANS_FORBID, "scores that are kept and read again" },
  { "attention", "local", MEANS_FORBID, "scores that are kept and read again" },
  { "attention", "fp8", MEANS_FORBID, "products of attention in fp8" },
  { "transformer_impl", "local", MEANS_FORBID, "layers that keep other tensors" },
  { "activations", NULL, MEANS_FORBID, "activations in another format than compute" },
  { "packed", "yes", MEANS_FORBID, "sequences packed of shorter ones" },
  { "ce", "chunked", MEANS_SET, "loss_chunks=8" }, /* num_chunks of ChunkedLossWrapper */
  { "ce", "whole", MEANS_SET, "loss_chunks=1" },
  { "ce", "fused_linear", MEANS_FORBID, "a loss in one kernel with the last product" },
  { "loss", "eager", MEANS_REMARK, "a loss op by op in fp32 beside compiled layers" },
  { "adam", "foreach", MEANS_SET, "adam_foreach=on" },
  { "kernels", NULL, MEANS_REMARK, "kernels that a source puts in place of the stack's" },
  { "grad_sync", "last", MEANS_SET, "grad_sync=last" },
  { "loss_parallel", "no", MEANS_REMARK, "a loss of the whole vocabulary on each rank" },
  { "experts", "padded", MEANS_FORBID, "experts padded to the busiest one" },
  { "embed_layernorm", "yes", MEANS_FORBID, "a norm behind the embedding" },
  { "sliding_window", PLAN_RUN_ALTERNATING_WINDOW, MEANS_REMARK, NULL }, /* as the model has it */
  { "sliding_window", NULL, MEANS_FORBID, "windows of attention in words" },
  { "etp", NULL, MEANS_SET, "etp=" },
  { "moe_token_dispatcher_type", "flex", MEANS_SET, "moe_dispatcher=deepep" },
  { "moe_token_dispatcher_type", NULL, MEANS_SET, "moe_dispatcher=" },
  { "moe_flex_backend", NULL, MEANS_SET, "moe_dispatcher=" },
  { "moe_transport", NULL, MEANS_FORBID, "rows of experts that a library of its own sends" },
  { "moe_permute_fusion", NULL, MEANS_SET, "moe_permute_fusion=" },
  { "moe_router_fusion", NULL, MEANS_SET, "moe_router_fusion=" },
  { "moe_grouped_gemm", NULL, MEANS_SET, "moe_grouped_gemm=" },
  { "router_dtype", NULL, MEANS_SET, "router_dtype=" },
  { "ep_overlap", NULL, MEANS_SET, "ep_overlap=" },
  { "router_gate", NULL, MEANS_REMARK, "a router in another format" },
  { "capacity_factor", NULL, MEANS_SET, "moe_capacity=" },
  { "pad_to_capacity", "yes", MEANS_SET, "moe_pad_to_capacity=on" },
  { "delay_wgrad", "yes", MEANS_REMARK, "weight gradients of experts that wait" },
  { "graph_trainer", "yes", MEANS_FORBID, "a compiled trainer" },
  { "offload", "fine-grained activations: expert_fc1 and moe_act", MEANS_SET,
    "offload_modules=expert_fc1+moe_act" },
  { "offload", NULL, MEANS_FORBID, "parts on the host that have no field" },
  { "dropout", NULL, MEANS_SET, "hidden_dropout=" },
  { "dropout", NULL, MEANS_SET, "attention_dropout=" },
  { "nccl", NULL, MEANS_REMARK, "NCCL held to some algorithms" },
  { "tp_overlap", "none", MEANS_SET, "tp_overlap=none" },
  { "tp_overlap", "ub", MEANS_SET, "tp_overlap=ub" },
  { "tp_overlap", "async", MEANS_SET, "tp_overlap=async" },
  { "tp_overlap", NULL, MEANS_REMARK, "tensor-parallel communication beside products" },
  { "cp_comm", NULL, MEANS_REMARK, "context parallelism by other collectives" },
  { "composer_mixed_precision", "DEFAULT", MEANS_REMARK, "which formats travel is not certain" },
  { "network_state", "fast", MEANS_REMARK, NULL },
  { "network_state", "slow", MEANS_REMARK, NULL },
  { "network_state", NULL, MEANS_REMARK, "a network below its rate" },
  { "reshard_after_forward", NULL, MEANS_REMARK, "when gathered weights are let go of" },
  { "pipeline_balance", NULL, MEANS_REMARK, NULL },
  { "te_op_fuser", "yes", MEANS_REMARK, "operations that Transformer Engine fuses" },
  { "overlap_param_gather_with_optimizer_step", "yes", MEANS_REMARK,
    "gathers beside the optimizer's step" },
};

/* Settings that all runs of a source have in common and that its table does not say, with how each
 * is known. Megatron-LM's tests state every flag that they set; the others have their defaults
 * (megatron/training/arguments.py). Both pull requests logged far less reserved memory after a step
 * than at its peak, such as 21 of 66 GiB, because their script (examples/llama) sets
 * empty_unused_memory_level. That script divides the loss by tokens at the end; but NCCL's log in
 * #3067 shows fp32 reductions of registered buffers on rings, where NCCL would use its symmetric
 * kernels for plain sums (symmetric_sched.cc), so these reductions also scaled. PyTorch's own loss,
 * not a fused one, is in fms_fsdp/utils/train_utils.py, in the model that ATorch's example loads
 * (transformers), and in torchtitan's train.py. dgxc-benchmarking's release of 2025-04 runs NeMo's
 * recipes in their performance mode, which overlaps tensor-parallel communication where there is
 * any (llama3.1/pretrain_llama31.py; NeMo llm/recipes/llama31_405b.py and nemotron4_15b.py).
 * Megatron-Bridge's recipes of Llama do the same (recipes/llama/h100/llama3.py and
 * perf_recipes/llama at 9d9bd1c5), except those in nvfp4, which say that they do not. */
static const struct
{
  const char *source, *setting;
  const char *family, *except; /* for this family; not for this compute format */
  gboolean is_split;           /* only where tp is above 1 */
} defaults[] = {
  { "NVIDIA/Megatron-LM tests/", "ce_fusion=off", NULL, NULL, FALSE },
  { "NVIDIA/Megatron-LM tests/", "per_token_loss=off", NULL, NULL, FALSE },
  { "NVIDIA/Megatron-LM tests/", "grad_accum_fusion=on", NULL, NULL, FALSE },
  { "NVIDIA/Megatron-LM PR #3067", "empty_cache=on", NULL, NULL, FALSE },
  { "NVIDIA/Megatron-LM PR #3067", "per_token_loss=off", NULL, NULL, FALSE },
  { "NVIDIA/Megatron-LM PR #4133", "empty_cache=on", NULL, NULL, FALSE },
  { "NVIDIA/dgxc-benchmarking llama3.1/README.md@v25.04", "tp_overlap=ub", NULL, NULL, TRUE },
  { "NVIDIA/dgxc-benchmarking nemotron/README.md@v25.04", "tp_overlap=ub", NULL, NULL, TRUE },
  { "NVIDIA-NeMo/Megatron-Bridge", "tp_overlap=ub", "llama", "nvfp4", TRUE },
  { "foundation-model-stack/fms-fsdp", "ce_fusion=off", NULL, NULL, FALSE },
  { "intelligent-machine-learning/dlrover", "ce_fusion=off", NULL, NULL, FALSE },
  { "pytorch/torchtitan", "ce_fusion=off", NULL, NULL, FALSE },
};

/* Whether the i-th default holds for a run. */
static gboolean
is_default_of (guint i, const PlanRunRow *row)
{
  return g_str_has_prefix (row->cell[PLAN_RUN_SOURCE], defaults[i].source)
         && (!defaults[i].family || plan_run_row_is (row, PLAN_RUN_FAMILY, defaults[i].family))
         && !(defaults[i].except && plan_run_row_is (row, PLAN_RUN_COMPUTE, defaults[i].except))
         && !(defaults[i].is_split && row->plan.value[PLAN_TP] == 1);
}

/* Sets loss chunks where the stack's own configurations use them from some date on and the row says
 * nothing. */
static void
set_loss_chunks (PlanRunRow *row)
{
  const PlanStack *stack = plan_stack_of (&row->plan, PLAN_DEVICE_GPU, NULL);
  if (stack && stack->loss.pieces == PLAN_PIECES_AUTOGRAD && row->model
      && !row->model->tied_embeddings)
    row->plan.value[PLAN_LOSS_CHUNKS] = stack->loss.chunks;
}

static gboolean
set_field (PlanRunRow *row, const char *text, const char *value, GError **error)
{
  g_auto (GStrv) halves = g_strsplit (text, "=", 2);
  if (plan_set (&row->plan, halves[0], *halves[1] ? halves[1] : value, error))
    return TRUE;
  g_prefix_error (error, "notes: ");
  return FALSE;
}

/* Whether a switch applies to a value. An entry that names the value comes before one for every
 * other value. */
static gboolean
applies (guint i, const char *value)
{
  if (switches[i].value)
    return g_str_equal (switches[i].value, value);
  for (guint j = 0; j < i; j++)
    if (switches[j].value && g_str_equal (switches[j].key, switches[i].key)
        && g_str_equal (switches[j].value, value))
      return FALSE;
  return TRUE;
}

/* CUDA graphs of parts of layers, or of the step where a row names another kind: as the recipe of
 * the row's release says, else as the row itself does. What a row took from a recipe file of
 * another date is no word of its own. */
static gboolean
apply_graphs (PlanRunRow *self, GError **error)
{
  g_autofree char *step = plan_run_row_known (self, "cuda_graph");
  g_autofree char *modules = plan_run_row_known (self, "graph_modules");
  g_autofree char *note = plan_run_row_note (self, "cuda_graph");
  g_autofree char *scope = plan_run_row_note (self, "cuda_graph_scope");
  g_autofree char *of = plan_run_row_note (self, "recompute_source");
  const gboolean is_own = scope && !(of && g_str_has_prefix (of, "recipe file"));
  if (step || modules)
    return (!step || set_field (self, "cuda_graph=", step, error))
           && (!modules || set_field (self, "graph_modules=", modules, error));
  if (!note || g_str_equal (note, "yes") || g_str_equal (note, "no") || g_str_equal (note, "none"))
    return TRUE;
  if (g_str_equal (note, "layers")) /* of models without experts */
    return set_field (self, "graph_modules=attn+mlp", NULL, error);
  if (g_str_equal (note, "transformer_engine") && is_own)
    return set_field (self, "graph_modules=", scope, error);
  self->is_partial = TRUE;
  plan_run_row_remark (self, "cuda_graph=%s is not modelled: CUDA graphs of parts of a step", note);
  return TRUE;
}

gboolean
plan_run_row_apply_notes (PlanRunRow *self, GError **error)
{
  /* the default of Megatron-LM, NeMo and Megatron-Bridge (arguments.py,
   * --no-gradient-accumulation-fusion) */
  if (self->plan.value[PLAN_STACK] % PLAN_STACK_BASE == PLAN_STACK_MEGATRON)
    self->plan.value[PLAN_GRAD_ACCUM_FUSION] = PLAN_GRAD_ACCUM_FUSION_ON;
  set_loss_chunks (self);
  for (guint i = 0; i < G_N_ELEMENTS (defaults); i++)
    if (is_default_of (i, self) && !set_field (self, defaults[i].setting, NULL, error))
      return FALSE;
  g_autofree char *value = NULL;
  for (guint i = 0; i < G_N_ELEMENTS (switches); i++)
    {
      if (i == 0 || !g_str_equal (switches[i].key, switches[i - 1].key))
        {
          g_free (value);
          value = plan_run_row_note (self, switches[i].key);
        }
      if (!value || !applies (i, value))
        continue;
      switch (switches[i].meaning)
        {
        case MEANS_SET:
          if (!set_field (self, switches[i].text, value, error))
            return FALSE;
          break;
        case MEANS_FORBID:
          plan_run_row_skip (self, "%s=%s: %s", switches[i].key, value, switches[i].text);
          break;
        case MEANS_REMARK:
          if (!switches[i].text)
            break;
          self->is_partial = TRUE;
          plan_run_row_remark (self, "%s=%s is not modelled: %s", switches[i].key, value,
                               switches[i].text);
          break;
        }
    }
  return apply_graphs (self, error);
}
