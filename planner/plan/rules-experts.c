/* SPDX-License-Identifier: Apache-2.0 */
/* What is illegal about experts. Each row has a predicate that is true if the rule is broken. Rules
 * cite Megatron-LM by file at d98e8a64 (2026-08-22). */
#include "config.h"

#include "planner/plan/rules-private.h"

/* Whether Megatron-LM's training loop runs the stack. */
static gboolean
runs_megatron (const PlanFacts *f)
{
  return is_stack (f, PLAN_STACK_MEGATRON_FSDP) || is_stack (f, PLAN_STACK_MEGATRON);
}

static gboolean
settings_without_experts (const PlanFacts *f)
{
  Plan initial;
  plan_init (&initial);
  for (PlanField field = 0; field < PLAN_N_FIELDS; field++)
    if (!plan_field_is_of (field, f->model) && f->value[field] != initial.value[field])
      return TRUE;
  return FALSE;
}

static gboolean
ep_does_not_divide (const PlanFacts *f)
{
  return f->model->experts % f->value[PLAN_EP] != 0;
}

static gboolean
etp_does_not_divide (const PlanFacts *f)
{
  return f->model->experts > 0 && f->model->expert_ffn % f->value[PLAN_ETP] != 0;
}

static gboolean
biases_are_split (const PlanFacts *f)
{
  return runs_megatron (f) && f->model->expert_bias && f->value[PLAN_ETP] > 1;
}

/* Experts are laid out over all devices of a stage and a replica, whatever tp and cp are. */
static gboolean
devices_do_not_divide (const PlanFacts *f)
{
  static const PlanField degrees[] = { PLAN_EP, PLAN_ETP, PLAN_PP, PLAN_DP_OUTER };
  return !plan_rules_degrees_divide (f, degrees, G_N_ELEMENTS (degrees));
}

static gboolean
replicas_do_not_divide (const PlanFacts *f)
{
  static const PlanField degrees[] = { PLAN_EP, PLAN_ETP, PLAN_PP };
  return !plan_rules_degrees_divide (f, degrees, G_N_ELEMENTS (degrees));
}

static gboolean
splits_without_sp (const PlanFacts *f)
{
  return f->model->experts > 0 && f->value[PLAN_TP] > 1 && IS (f, SP, OFF)
         && (is_stack (f, PLAN_STACK_NATIVE) || (runs_megatron (f) && IS (f, TASK, TRAIN)));
}

static gboolean
deepep_of_one (const PlanFacts *f)
{
  return IS (f, MOE_DISPATCHER, DEEPEP) && f->value[PLAN_EP] * f->value[PLAN_ETP] == 1;
}

static gboolean
deepep_of_half_scores (const PlanFacts *f)
{
  return IS (f, MOE_DISPATCHER, DEEPEP) && IS (f, ROUTER_DTYPE, BF16);
}

static gboolean
drops_by_no_capacity (const PlanFacts *f)
{
  return f->value[PLAN_MOE_CAPACITY] == 0
         && (IS (f, MOE_PAD_TO_CAPACITY, ON) || !IS (f, MOE_DROP, PROBS));
}

static gboolean
pads_what_deepep_sends (const PlanFacts *f)
{
  return IS (f, MOE_PAD_TO_CAPACITY, ON) && IS (f, MOE_DISPATCHER, DEEPEP);
}

/* An expert would be padded to more than all tokens of a rank. */
static gboolean
pads_beyond_all (const PlanFacts *f)
{
  return IS (f, MOE_PAD_TO_CAPACITY, ON)
         && (double)f->value[PLAN_MOE_CAPACITY] / 1e6 * (double)f->model->topk
                > (double)f->model->experts;
}

static gboolean
overlaps_no_shared (const PlanFacts *f)
{
  return IS (f, MOE_SHARED_OVERLAP, ON)
         && (f->model->shared_ffn == 0 || IS (f, MOE_DISPATCHER, ALLGATHER));
}

static gboolean
overlaps_beside_narrow (const PlanFacts *f)
{
  return IS (f, MOE_SHARED_OVERLAP, ON) && f->model->expert_hidden > 0;
}

static gboolean
overlaps_and_recomputes_shared (const PlanFacts *f)
{
  return IS (f, MOE_SHARED_OVERLAP, ON) && IS (f, RECOMPUTE, SELECTIVE)
         && HAS_MODULE (f, RECOMPUTE_MODULES, SHARED_EXPERTS);
}

static gboolean
recomputes_act_of_each (const PlanFacts *f)
{
  return IS (f, MOE_GROUPED_GEMM, OFF) && IS (f, RECOMPUTE, SELECTIVE)
         && HAS_MODULE (f, RECOMPUTE_MODULES, MOE_ACT);
}

static gboolean
offloads_experts (const PlanFacts *f)
{
  return HAS_MODULE (f, OFFLOAD_MODULES, EXPERT_FC1) || HAS_MODULE (f, OFFLOAD_MODULES, MOE_ACT);
}

static gboolean
offloads_no_experts (const PlanFacts *f)
{
  return offloads_experts (f) && f->model->experts == 0;
}

static gboolean
offloads_each_expert (const PlanFacts *f)
{
  return offloads_experts (f) && IS (f, MOE_GROUPED_GEMM, OFF);
}

static gboolean
offloads_and_recomputes_experts (const PlanFacts *f)
{
  return offloads_experts (f) && IS (f, RECOMPUTE, SELECTIVE)
         && HAS_MODULE (f, RECOMPUTE_MODULES, MOE);
}

static gboolean
overlaps_nothing (const PlanFacts *f)
{
  return IS (f, EP_OVERLAP, ON)
         && (f->value[PLAN_EP] == 1 || IS (f, MOE_DISPATCHER, ALLGATHER) || IS (f, COMPUTE, FP32));
}

static gboolean
overlaps_and_recomputes (const PlanFacts *f)
{
  return IS (f, EP_OVERLAP, ON)
         && (IS (f, RECOMPUTE, FULL)
             || (IS (f, RECOMPUTE, SELECTIVE) && HAS_MODULE (f, RECOMPUTE_MODULES, MOE)));
}

static gboolean
overlaps_twice (const PlanFacts *f)
{
  return IS (f, EP_OVERLAP, ON) && (IS (f, MOE_SHARED_OVERLAP, ON) || f->model->mtp > 1);
}

static gboolean
overlaps_in_pool (const PlanFacts *f)
{
  return IS (f, EP_OVERLAP, ON) && is_stack (f, PLAN_STACK_MEGATRON_FSDP)
         && !IS (f, DOUBLE_BUFFER, OFF);
}

static gboolean
overlaps_too_early (const PlanFacts *f)
{
  const gint64 date = f->value[PLAN_STACK] / PLAN_STACK_BASE;
  return IS (f, EP_OVERLAP, ON) && is_stack (f, PLAN_STACK_MEGATRON_FSDP) && date > 0
         && date < 20260516;
}

static gboolean
overlaps_plain_stages (const PlanFacts *f)
{
  return IS (f, EP_OVERLAP, ON) && f->value[PLAN_PP] > 1 && f->value[PLAN_VPP] == 1;
}

static gboolean
delays_for_nothing (const PlanFacts *f)
{
  return IS (f, EP_DELAY_WGRAD, ON) && IS (f, EP_OVERLAP, OFF);
}

static gboolean
recomputes_module_with_others (const PlanFacts *f)
{
  return f->model->mtp > 0 && IS (f, RECOMPUTE, FULL) && IS (f, RECOMPUTE_METHOD, UNIFORM)
         && f->value[PLAN_RECOMPUTE_LAYERS] > 1;
}

/* clang-format off */
static const PlanRuleEntry rules[] = {
  { { "expert-settings-need-experts", "etp, router_dtype, ep_overlap, ep_delay_wgrad and fields that begin with moe_ need a model with experts; "
      "this one is dense: leave them out", "Megatron-LM arguments.py", PLAN_ERROR_INVALID },
    settings_without_experts, PLAN_ADD_CHANGED, PLAN_SHOW (PLAN_ETP, PLAN_MOE_DISPATCHER, PLAN_MOE_GROUPED_GEMM,
      PLAN_MOE_PERMUTE_FUSION, PLAN_MOE_ROUTER_FUSION, PLAN_ROUTER_DTYPE, PLAN_MOE_IMBALANCE, PLAN_MOE_CAPACITY,
      PLAN_MOE_PAD_TO_CAPACITY, PLAN_MOE_DROP, PLAN_MOE_AUX_LOSS, PLAN_MOE_SHARED_OVERLAP, PLAN_EP_OVERLAP, PLAN_EP_DELAY_WGRAD),
    PLAN_OF_BLOCKS },
  { { "ep-divides-experts", "ep must divide the experts, of which each rank has as many",
      "Megatron-LM arguments.py 1657", PLAN_ERROR_INVALID },
    ep_does_not_divide, PLAN_ADD_MODEL, PLAN_SHOW (PLAN_EP), PLAN_OF_BLOCKS },
  { { "etp-divides-experts", "etp must divide expert_ffn, the width of an expert, which it splits",
      "Megatron-LM transformer/moe/experts.py", PLAN_ERROR_INVALID },
    etp_does_not_divide, PLAN_ADD_MODEL, PLAN_SHOW (PLAN_ETP), PLAN_OF_BLOCKS },
  { { "biased-experts-are-whole", "experts with biases need etp=1 on stack=megatron-fsdp and stack=megatron",
      "Megatron-LM transformer_config.py 2612", PLAN_ERROR_INVALID },
    biases_are_split, PLAN_ADD_MODEL, PLAN_SHOW (PLAN_ETP), PLAN_OF_BLOCKS },
  { { "expert-devices-divide", "the devices must be a multiple of ep x etp x pp x dp_outer: experts have a mesh of their own, "
      "in which what is left shards them", "Megatron-LM parallel_state.py, mcore_fsdp_adapter.py 405-461; torchtitan "
      "distributed/parallel_dims.py", PLAN_ERROR_INVALID },
    devices_do_not_divide, PLAN_ADD_DEVICES, PLAN_SHOW (PLAN_EP, PLAN_ETP, PLAN_PP, PLAN_DP_OUTER),
    PLAN_BREAKS_BLOCKS (replicas_do_not_divide) },
  { { "experts-need-sp", "experts beside tp above 1 need sp=on on stack=megatron-fsdp and stack=megatron, where training without it "
      "is refused, and on stack=native, where each rank sends the tokens that it alone has", "Megatron-LM transformer/moe/moe_layer.py 636", PLAN_ERROR_INVALID },
    splits_without_sp, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_TP, PLAN_SP), PLAN_OF_BLOCKS },
  { { "deepep-needs-ranks", "moe_dispatcher=deepep needs ep x etp above 1: it sends between ranks",
      "Megatron-LM transformer/moe/token_dispatcher.py 1836", PLAN_ERROR_INVALID },
    deepep_of_one, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_MOE_DISPATCHER, PLAN_EP, PLAN_ETP), PLAN_OF_BLOCKS },
  { { "deepep-needs-fp32-scores", "moe_dispatcher=deepep needs router_dtype=fp32, the only format of scores that it sends",
      "Megatron-LM transformer/moe/token_dispatcher.py 1439", PLAN_ERROR_INVALID },
    deepep_of_half_scores, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_MOE_DISPATCHER, PLAN_ROUTER_DTYPE), PLAN_OF_BLOCKS },
  { { "dropping-needs-a-capacity", "moe_pad_to_capacity=on and moe_drop=position need moe_capacity, beyond which tokens are dropped",
      "Megatron-LM transformer_config.py 1862", PLAN_ERROR_INVALID },
    drops_by_no_capacity, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_MOE_CAPACITY, PLAN_MOE_PAD_TO_CAPACITY, PLAN_MOE_DROP), PLAN_OF_BLOCKS },
  { { "deepep-pads-nothing", "moe_pad_to_capacity=on needs a moe_dispatcher other than deepep",
      "Megatron-LM transformer_config.py 1755", PLAN_ERROR_INVALID },
    pads_what_deepep_sends, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_MOE_PAD_TO_CAPACITY, PLAN_MOE_DISPATCHER), PLAN_OF_BLOCKS },
  { { "padding-is-of-tokens", "moe_pad_to_capacity=on needs moe_capacity of at most experts / topk, with which each expert takes every "
      "token of a rank", "Megatron-LM transformer/moe/moe_utils.py 440 and 1058, as read", PLAN_ERROR_INVALID },
    pads_beyond_all, PLAN_ADD_MODEL, PLAN_SHOW (PLAN_MOE_CAPACITY, PLAN_MOE_PAD_TO_CAPACITY), PLAN_OF_BLOCKS },
  { { "shared-overlap-needs-both", "moe_shared_overlap=on needs a model with shared experts, and a moe_dispatcher other than "
      "allgather", "Megatron-LM transformer_config.py 1820", PLAN_ERROR_INVALID },
    overlaps_no_shared, PLAN_ADD_MODEL, PLAN_SHOW (PLAN_MOE_SHARED_OVERLAP, PLAN_MOE_DISPATCHER), PLAN_OF_BLOCKS },
  { { "shared-overlap-needs-one-width", "moe_shared_overlap=on needs experts that read the model's width (expert_hidden=0)",
      "Megatron-LM transformer/moe/moe_layer.py 476", PLAN_ERROR_INVALID },
    overlaps_beside_narrow, PLAN_ADD_NAME, PLAN_SHOW (PLAN_MOE_SHARED_OVERLAP), PLAN_OF_BLOCKS },
  { { "shared-overlap-or-recompute", "moe_shared_overlap=on and recompute_modules with shared_experts exclude each other: use one",
      "Megatron-LM transformer_config.py 1992", PLAN_ERROR_INVALID },
    overlaps_and_recomputes_shared, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_MOE_SHARED_OVERLAP, PLAN_RECOMPUTE_MODULES), PLAN_OF_BLOCKS },
  { { "moe-act-needs-grouped-gemm", "recompute_modules with moe_act needs moe_grouped_gemm=on",
      "Megatron-LM transformer_config.py 1964", PLAN_ERROR_INVALID },
    recomputes_act_of_each, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_MOE_GROUPED_GEMM, PLAN_RECOMPUTE_MODULES), PLAN_OF_BLOCKS },
  { { "offload-of-experts-needs-experts", "offload_modules with expert_fc1 or moe_act needs a model with experts",
      "Megatron-LM docs/user-guide/features/fine_grained_activation_offloading.md", PLAN_ERROR_INVALID },
    offloads_no_experts, PLAN_ADD_NAME, PLAN_SHOW (PLAN_OFFLOAD_MODULES), PLAN_OF_BLOCKS },
  { { "offload-of-experts-needs-grouped-gemm", "offload_modules with expert_fc1 or moe_act needs moe_grouped_gemm=on",
      "Megatron-LM transformer/moe/experts.py 254", PLAN_ERROR_INVALID },
    offloads_each_expert, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_MOE_GROUPED_GEMM, PLAN_OFFLOAD_MODULES), PLAN_OF_BLOCKS },
  { { "offload-or-recompute-experts", "offload_modules with expert_fc1 or moe_act and recompute_modules with moe exclude each other: use one",
      "Megatron-LM transformer_config.py 2165", PLAN_ERROR_INVALID },
    offloads_and_recomputes_experts, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_OFFLOAD_MODULES, PLAN_RECOMPUTE_MODULES), PLAN_OF_BLOCKS },
  { { "ep-overlap-needs-ep", "ep_overlap=on needs ep above 1, a moe_dispatcher other than allgather, and compute other than fp32",
      "Megatron-LM transformer_config.py 3011", PLAN_ERROR_INVALID },
    overlaps_nothing, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_EP, PLAN_MOE_DISPATCHER, PLAN_COMPUTE), PLAN_OF_BLOCKS },
  { { "ep-overlap-or-recompute", "ep_overlap=on needs recompute other than full, and no moe among recompute_modules",
      "Megatron-LM transformer_config.py 3021", PLAN_ERROR_INVALID },
    overlaps_and_recomputes, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_RECOMPUTE, PLAN_RECOMPUTE_MODULES), PLAN_OF_BLOCKS },
  { { "ep-overlap-alone", "ep_overlap=on needs moe_shared_overlap=off, and at most one prediction module",
      "Megatron-LM transformer_config.py 3039", PLAN_ERROR_INVALID },
    overlaps_twice, PLAN_ADD_MODEL, PLAN_SHOW (PLAN_MOE_SHARED_OVERLAP), PLAN_OF_BLOCKS },
  { { "ep-overlap-since-2026-05-16", "ep_overlap=on on stack=megatron-fsdp needs a stack date of 2026-05-16 or later",
      "Megatron-LM PR #3797, merged 2026-05-16", PLAN_ERROR_INVALID },
    overlaps_too_early, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_EP_OVERLAP), PLAN_OF_BLOCKS },
  { { "ep-overlap-has-no-pool", "ep_overlap=on on stack=megatron-fsdp needs double_buffer=off and nccl_ub=off",
      "Megatron-LM mcore_fsdp_adapter.py 177", PLAN_ERROR_INVALID },
    overlaps_in_pool, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_DOUBLE_BUFFER, PLAN_NCCL_UB) },
  { { "ep-overlap-needs-interleaving", "ep_overlap=on with pp above 1 needs vpp above 1",
      "Megatron-LM transformer_config.py 3007", PLAN_ERROR_INVALID },
    overlaps_plain_stages, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_PP, PLAN_VPP, PLAN_EP_OVERLAP), PLAN_OF_BLOCKS },
  { { "delay-needs-ep-overlap", "ep_delay_wgrad=on needs ep_overlap=on", "Megatron-LM transformer_config.py 3074",
      PLAN_ERROR_INVALID },
    delays_for_nothing, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_EP_OVERLAP, PLAN_EP_DELAY_WGRAD), PLAN_OF_BLOCKS },
  { { "module-recomputes-alone", "recompute_method=uniform needs recompute_layers=1 beside multi-token prediction (mtp)",
      "Megatron-LM multi_token_prediction.py 1620", PLAN_ERROR_INVALID },
    recomputes_module_with_others, PLAN_ADD_MODEL, PLAN_SHOW (PLAN_RECOMPUTE_METHOD, PLAN_RECOMPUTE_LAYERS), PLAN_OF_BLOCKS },
};
/* clang-format on */

const PlanRuleTable plan_rules_of_experts = { rules, G_N_ELEMENTS (rules) };
