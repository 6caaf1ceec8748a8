/* SPDX-License-Identifier: Apache-2.0 */
/* What is illegal about CUDA graphs of parts of layers (graph_modules). Each row has a predicate
 * that is true if the rule is broken. Rules cite Megatron-LM by file at d98e8a64 (2026-08-22),
 * Transformer Engine at d0067d0d. */
#include "config.h"

#include "planner/model/layer-kinds.h"
#include "planner/plan/rules-private.h"

#define HAS_GRAPH(f, id) HAS_MODULE (f, GRAPH_MODULES, id)

static gboolean
has_graphs (const PlanFacts *f)
{
  return f->value[PLAN_GRAPH_MODULES] != 0;
}

static gboolean
elsewhere (const PlanFacts *f)
{
  return has_graphs (f) && !is_stack (f, PLAN_STACK_MEGATRON)
         && !is_stack (f, PLAN_STACK_MEGATRON_FSDP);
}

static gboolean
beside_whole_step (const PlanFacts *f)
{
  return has_graphs (f) && IS (f, CUDA_GRAPH, ON);
}

/* Whether a module is named that no layer of the model has. */
static gboolean
of_nothing (const PlanFacts *f)
{
  gint64 layers[PLAN_N_LAYER_KINDS] = { 0 };
  gboolean attends = FALSE, scans = FALSE, is_dense = FALSE, has_experts = FALSE;
  if (!has_graphs (f))
    return FALSE;
  plan_model_count_kinds (f->model, f->value[PLAN_SEQ], layers);
  for (guint kind = 0; kind < PLAN_N_LAYER_KINDS; kind++)
    {
      const gboolean is_ssm = kind & PLAN_LAYER_RECURRENT && f->model->ssm.heads > 0;
      if (layers[kind] == 0)
        continue;
      attends |= plan_layer_mixes (kind) && !is_ssm;
      scans |= plan_layer_mixes (kind) && is_ssm;
      has_experts |= plan_layer_feeds (kind) && (kind & PLAN_LAYER_EXPERTS);
      is_dense |= plan_layer_feeds (kind) && !(kind & PLAN_LAYER_EXPERTS);
    }
  return (HAS_GRAPH (f, ATTN) && !attends) || (HAS_GRAPH (f, MAMBA) && !scans)
         || (HAS_GRAPH (f, MLP) && !is_dense)
         || ((HAS_GRAPH (f, MOE) || HAS_GRAPH (f, MOE_ROUTER) || HAS_GRAPH (f, MOE_PREPROCESS))
             && !has_experts);
}

static gboolean
of_experts_twice (const PlanFacts *f)
{
  return HAS_GRAPH (f, MOE) && HAS_GRAPH (f, MOE_ROUTER);
}

static gboolean
of_preprocess_alone (const PlanFacts *f)
{
  return HAS_GRAPH (f, MOE_PREPROCESS) && !HAS_GRAPH (f, MOE_ROUTER);
}

static gboolean
of_rows_that_vary (const PlanFacts *f)
{
  return HAS_GRAPH (f, MOE) && !IS (f, MOE_PAD_TO_CAPACITY, ON);
}

/* Whether the host would wait within a graph for how many rows there are. */
static gboolean
of_waits (const PlanFacts *f)
{
  return HAS_GRAPH (f, MOE_PREPROCESS) && IS (f, MOE_DISPATCHER, ALLTOALL)
         && f->value[PLAN_MOE_CAPACITY] > 0 && !IS (f, MOE_PAD_TO_CAPACITY, ON);
}

static gboolean
around_recompute (const PlanFacts *f)
{
  return has_graphs (f)
         && (IS (f, RECOMPUTE, FULL)
             || (IS (f, RECOMPUTE, SELECTIVE) && HAS_MODULE (f, RECOMPUTE_MODULES, MOE)
                 && HAS_GRAPH (f, MOE_ROUTER)));
}

/* Whether a graph would replay the random numbers with which a module was dropped out, where it is
 * recomputed. */
static gboolean
with_dropout_again (const PlanFacts *f)
{
  return IS (f, RECOMPUTE, SELECTIVE)
         && ((f->value[PLAN_ATTENTION_DROPOUT] > 0 && HAS_GRAPH (f, ATTN)
              && HAS_MODULE (f, RECOMPUTE_MODULES, CORE_ATTN))
             || (f->value[PLAN_HIDDEN_DROPOUT] > 0
                 && ((HAS_GRAPH (f, MLP) && HAS_MODULE (f, RECOMPUTE_MODULES, MLP))
                     || (HAS_GRAPH (f, MOE) && HAS_MODULE (f, RECOMPUTE_MODULES, MOE)))));
}

static gboolean
with_offloaded_layers (const PlanFacts *f)
{
  return has_graphs (f) && f->value[PLAN_OFFLOAD_LAYERS] > 0;
}

static gboolean
around_exchanges_beside (const PlanFacts *f)
{
  return IS (f, EP_OVERLAP, ON)
         && (HAS_GRAPH (f, MLP) || HAS_GRAPH (f, MOE)
             || (has_graphs (f) && is_stack (f, PLAN_STACK_MEGATRON_FSDP)));
}

/* Whether gradients of weights that a graph makes later would be added up where memory is not
 * static, or biases are among them. */
static gboolean
with_late_gradients (const PlanFacts *f)
{
  const gboolean has_shared = HAS_GRAPH (f, MOE_ROUTER) && f->model->shared_ffn > 0;
  return IS (f, EP_DELAY_WGRAD, ON) && (HAS_GRAPH (f, ATTN) || has_shared)
         && (IS (f, GRAD_ACCUM_FUSION, OFF)
             || (HAS_GRAPH (f, ATTN) && (f->model->proj_bias || f->model->qkv_bias)));
}

/* Whether modules are offloaded that a graph may hold. Experts are in a graph with `moe` alone. */
static gboolean
offloads_graphed (const PlanFacts *f)
{
  const gint64 of_experts
      = 1 << PLAN_OFFLOAD_MODULES_EXPERT_FC1 | 1 << PLAN_OFFLOAD_MODULES_MOE_ACT;
  const gint64 modules = f->value[PLAN_OFFLOAD_MODULES];
  return (modules & ~of_experts) != 0 || (modules != 0 && HAS_GRAPH (f, MOE));
}

/* Modules that are copied to the host out of a graph, packed documents, evaluation; and
 * Megatron-FSDP, where graphs would read gathered weights, whose places only pools of its own keep
 * (megatron_fsdp.md).
 */
static gboolean
otherwise (const PlanFacts *f)
{
  return has_graphs (f)
         && (!is_stack (f, PLAN_STACK_MEGATRON) || offloads_graphed (f)
             || f->value[PLAN_DOC_TOKENS] > 0 || !IS (f, TASK, TRAIN));
}

/* clang-format off */
static const PlanRuleEntry rules[] = {
  { { "graph-modules-are-megatron-s", "graph_modules needs stack=megatron, whose layers record graphs of themselves",
      "Megatron-LM cuda_graphs.py", PLAN_ERROR_INVALID },
    elsewhere, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_GRAPH_MODULES), PLAN_OF_BLOCKS },
  { { "graph-modules-or-step", "graph_modules and cuda_graph=on exclude each other: a graph of the step holds all modules",
      "Megatron-LM transformer_config.py 2794", PLAN_ERROR_INVALID },
    beside_whole_step, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_CUDA_GRAPH, PLAN_GRAPH_MODULES), PLAN_OF_BLOCKS },
  { { "graph-modules-exist", "graph_modules may name only modules of the model: mlp needs layers without experts, moe, moe_router and "
      "moe_preprocess experts, mamba state spaces, attn attention", "Megatron-LM transformer_config.py 2825", PLAN_ERROR_INVALID },
    of_nothing, PLAN_ADD_NAME, PLAN_SHOW (PLAN_GRAPH_MODULES), PLAN_OF_BLOCKS },
  { { "graph-moe-or-router", "graph_modules may not name both moe and moe_router, which is a part of it",
      "Megatron-LM transformer_config.py 2817", PLAN_ERROR_INVALID },
    of_experts_twice, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_GRAPH_MODULES), PLAN_OF_BLOCKS },
  { { "graph-preprocess-needs-router", "graph_modules with moe_preprocess needs moe_router beside it",
      "Megatron-LM transformer_config.py 2822", PLAN_ERROR_INVALID },
    of_preprocess_alone, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_GRAPH_MODULES), PLAN_OF_BLOCKS },
  { { "graph-moe-needs-padding", "graph_modules with moe needs moe_pad_to_capacity=on: a graph always has as many rows",
      "Megatron-LM transformer_config.py 2842", PLAN_ERROR_INVALID },
    of_rows_that_vary, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_GRAPH_MODULES, PLAN_MOE_CAPACITY, PLAN_MOE_PAD_TO_CAPACITY), PLAN_OF_BLOCKS },
  { { "graph-preprocess-does-not-wait", "graph_modules with moe_preprocess and moe_dispatcher=alltoall needs moe_capacity=none, or "
      "moe_pad_to_capacity=on: else the host waits there", "Megatron-LM transformer_config.py 2845", PLAN_ERROR_INVALID },
    of_waits, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_GRAPH_MODULES, PLAN_MOE_CAPACITY, PLAN_MOE_PAD_TO_CAPACITY), PLAN_OF_BLOCKS },
  { { "graph-modules-within-recompute", "graph_modules needs recompute other than full, and moe_router no moe among recompute_modules: what is "
      "recomputed may not go around a graph", "Megatron-LM transformer_config.py 2854", PLAN_ERROR_INVALID },
    around_recompute, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_GRAPH_MODULES, PLAN_RECOMPUTE, PLAN_RECOMPUTE_MODULES), PLAN_OF_BLOCKS },
  { { "graph-modules-recompute-no-dropout", "graph_modules with attn needs attention_dropout=0 where recompute_modules has core_attn, and with mlp "
      "or moe hidden_dropout=0 where that has them", "Megatron-LM transformer_config.py 2878", PLAN_ERROR_INVALID },
    with_dropout_again, PLAN_ADD_NOTHING,
    PLAN_SHOW (PLAN_GRAPH_MODULES, PLAN_RECOMPUTE_MODULES, PLAN_HIDDEN_DROPOUT, PLAN_ATTENTION_DROPOUT), PLAN_OF_BLOCKS },
  { { "graph-modules-or-offload-layers", "graph_modules needs offload_layers=0", "Megatron-LM transformer_config.py 2800",
      PLAN_ERROR_INVALID },
    with_offloaded_layers, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_GRAPH_MODULES, PLAN_OFFLOAD_LAYERS), PLAN_OF_BLOCKS },
  { { "graph-modules-beside-ep-overlap", "graph_modules with mlp or moe, or on stack=megatron-fsdp, needs ep_overlap=off",
      "Megatron-LM transformer_config.py 3063; mcore_fsdp_adapter.py 182",
      PLAN_ERROR_INVALID },
    around_exchanges_beside, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_GRAPH_MODULES, PLAN_EP_OVERLAP), PLAN_OF_BLOCKS },
  { { "graph-modules-delay-wgrad", "graph_modules with attn, or moe_router of shared experts, and ep_delay_wgrad=on needs grad_accum_fusion=on, "
      "and attention without biases", "Megatron-LM training/arguments.py 1910", PLAN_ERROR_INVALID },
    with_late_gradients, PLAN_ADD_NAME, PLAN_SHOW (PLAN_GRAPH_MODULES, PLAN_EP_DELAY_WGRAD, PLAN_GRAD_ACCUM_FUSION), PLAN_OF_BLOCKS },
  { { "not-built-yet-graph_modules", "graph_modules is modelled for stack=megatron with task=train, doc_tokens=0 and offload_modules=none, or without "
      "moe also expert_fc1 and moe_act, by this version",
      "a limit of this version, not of a framework", PLAN_ERROR_UNSUPPORTED },
    otherwise, PLAN_ADD_CHANGED, PLAN_SHOW (PLAN_STACK, PLAN_TASK, PLAN_DOC_TOKENS, PLAN_OFFLOAD_MODULES, PLAN_GRAPH_MODULES), PLAN_OF_BLOCKS },
};
/* clang-format on */

const PlanRuleTable plan_rules_of_graphs = { rules, G_N_ELEMENTS (rules) };
