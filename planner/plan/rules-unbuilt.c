/* SPDX-License-Identifier: Apache-2.0 */
/* What is legal and not modelled by this version yet. A line goes when its feature arrives. */
#include "config.h"

#include "planner/plan/rules-private.h"

#define LIMIT "a limit of this version, not of a framework"

/* X (FIELD, "field", "values that are modelled", mask of these values) */
/* clang-format off */
#define BIT(field, id) (1u << PLAN_##field##_##id)
#define UNBUILT_LIST(X)                                                                                          \
  X (UNIT, "unit", "layer", BIT (UNIT, LAYER))
/* clang-format on */

static gboolean
is_outside (gint64 value, guint mask)
{
  return value < 0 || value >= 32 || (mask >> value & 1) == 0;
}

#define X(id, name, allowed, mask) \
  static gboolean is_outside_##id (const PlanFacts *f) \
  { \
    const gint64 base = PLAN_##id == PLAN_STACK ? PLAN_STACK_BASE : G_MAXINT64; \
    return is_outside (f->value[PLAN_##id] % base, mask); \
  }
UNBUILT_LIST (X)
#undef X

/* Frameworks that fuse norms do not recompute them, and our runtime does not yet. */
static gboolean
recomputes_other_modules (const PlanFacts *f)
{
  return IS (f, RECOMPUTE, SELECTIVE) && HAS_MODULE (f, RECOMPUTE_MODULES, LAYERNORM)
         && is_stack (f, PLAN_STACK_NATIVE);
}

/* Sinks, and biases of experts, as gpt-oss has them. They are modelled for our own runtime and,
 * without cp and with weights gathered in the compute format, for Megatron-LM's stacks, as
 * Transformer Engine has kernels for sinks, and for torchtitan. */
static gboolean
has_sinks (const PlanFacts *f)
{
  const gboolean is_known = is_stack (f, PLAN_STACK_MEGATRON_FSDP)
                            || is_stack (f, PLAN_STACK_MEGATRON) || is_stack (f, PLAN_STACK_FSDP2);
  return (f->model->sinks || f->model->expert_bias) && !is_stack (f, PLAN_STACK_NATIVE)
         && (!is_known || f->value[PLAN_CP] > 1 || !IS (f, PARAM_GATHER, COMPUTE));
}

/* With HFSDP the state of experts that no other rank of a replica has would be split over replicas
 * alone. */
static gboolean
splits_lone_experts (const PlanFacts *f)
{
  const gint64 *const v = f->value;
  return f->model->experts > 0 && v[PLAN_EP] > 1 && IS (f, OUTER_STRATEGY, OPTIM)
         && plan_cluster_devices (f->cluster)
                == v[PLAN_EP] * v[PLAN_ETP] * v[PLAN_PP] * v[PLAN_DP_OUTER];
}

/* Parts of Llama 4: layers without rotary positions, norms without weights, chunks of tokens,
 * scores on the input of experts. In a ring of ranks chunks lie on some of them, which our own
 * runtime alone knows to attend in. */
static gboolean
has_llama4_parts (const PlanFacts *f)
{
  const PlanModel *m = f->model;
  const gboolean is_native = is_stack (f, PLAN_STACK_NATIVE);
  const gboolean is_known = is_native || is_stack (f, PLAN_STACK_MEGATRON_FSDP)
                            || is_stack (f, PLAN_STACK_MEGATRON) || is_stack (f, PLAN_STACK_FSDP2);
  const gboolean has_chunks = m->window_chunks && m->window < f->value[PLAN_SEQ];
  return (has_chunks && f->value[PLAN_CP] > 1 && !is_native)
         || (!is_known
             && (m->window_chunks || m->nope_every > 0 || m->qk_l2_norm != PLAN_QK_L2_OFF
                 || m->scores_on_input));
}

static gboolean
has_experts (const PlanFacts *f)
{
  return f->model->experts > 0 || f->model->kv_lora > 0;
}

/* Whether it is not known how the stack runs experts and latent attention. */
static gboolean
is_of_another_stack (const PlanFacts *f)
{
  return has_experts (f) && !is_stack (f, PLAN_STACK_NATIVE)
         && !is_stack (f, PLAN_STACK_MEGATRON_FSDP) && !is_stack (f, PLAN_STACK_MEGATRON)
         && !is_stack (f, PLAN_STACK_FSDP2);
}

static gboolean
splits_latent_attention (const PlanFacts *f)
{
  const gboolean is_elsewhere = is_stack (f, PLAN_STACK_FSDP2) || IS (f, SP, OFF);
  return f->model->kv_lora > 0
         && ((f->value[PLAN_TP] > 1 && is_elsewhere) || f->value[PLAN_CP] > 1);
}

static gboolean
has_other_modules (const PlanFacts *f)
{
  const PlanModel *m = f->model;
  return m->mtp > 1
         || (m->mtp > 0
             && (m->experts == 0 || m->moe_every != 1
                 || (m->delta.attn_every > 0 && m->layers % m->delta.attn_every != 0)
                 || m->tied_embeddings || m->window > 0 || m->nope_every > 0
                 || m->positions != PLAN_POSITIONS_ROPE));
}

static gboolean
predicts_elsewhere (const PlanFacts *f)
{
  return f->model->mtp > 0
         && ((!is_stack (f, PLAN_STACK_MEGATRON_FSDP) && !is_stack (f, PLAN_STACK_MEGATRON))
             || f->value[PLAN_HIDDEN_DROPOUT] > 0);
}

/* Whether a model with experts or latent attention has parts that are not modelled with these. */
static gboolean
has_other_parts (const PlanFacts *f)
{
  const PlanModel *m = f->model;
  return has_experts (f)
         && (m->post_norms || m->parallel
             || (m->kv_lora > 0 && (m->window > 0 || m->qkv_bias || m->proj_bias)));
}

static gboolean
gates_elsewhere (const PlanFacts *f)
{
  return f->model->shared_gate && is_stack (f, PLAN_STACK_FSDP2);
}

/* If attention and MLP share a norm, two products would quantise or gather its output. */
static gboolean
shares_norm (const PlanFacts *f)
{
  return f->model->shared_norm
         && (f->value[PLAN_TP] > 1
             || plan_field_dtype (f->plan, PLAN_COMPUTE) != plan_weights_dtype (f->plan));
}

static gboolean
splits_experts_otherwise (const PlanFacts *f)
{
  return f->value[PLAN_ETP] > 1
         && (IS (f, MOE_DISPATCHER, DEEPEP) || IS (f, MOE_DISPATCHER, HYBRIDEP));
}

static gboolean
sends_otherwise (const PlanFacts *f)
{
  return !IS (f, MOE_DISPATCHER, ALLTOALL) && is_stack (f, PLAN_STACK_NATIVE);
}

/* In narrow formats rows of experts are padded by copies, each by itself (Megatron-LM's experts.py,
 * SequentialMLP). */
static gboolean
goes_through_experts (const PlanFacts *f)
{
  return IS (f, MOE_GROUPED_GEMM, OFF)
         && (is_stack (f, PLAN_STACK_NATIVE) || f->model->expert_bias || f->model->scores_on_input
             || IS (f, EP_DELAY_WGRAD, ON)
             || plan_field_dtype (f->plan, PLAN_COMPUTE) != plan_weights_dtype (f->plan));
}

static gboolean
moves_rows_eagerly (const PlanFacts *f)
{
  return IS (f, MOE_PERMUTE_FUSION, OFF) && is_stack (f, PLAN_STACK_NATIVE);
}

static gboolean
overlaps_shared (const PlanFacts *f)
{
  return IS (f, MOE_SHARED_OVERLAP, ON) && is_stack (f, PLAN_STACK_NATIVE);
}

/* The overlap is modelled with experts that are not split. Megatron-FSDP gathers sharded weights
 * module by module there, and drops them by rules of its own. */
static gboolean
overlaps_elsewhere (const PlanFacts *f)
{
  const gboolean is_fsdp = is_stack (f, PLAN_STACK_MEGATRON_FSDP);
  return IS (f, EP_OVERLAP, ON)
         && ((!is_stack (f, PLAN_STACK_MEGATRON) && !is_fsdp)
             || (is_fsdp && !IS (f, PARAM_GATHER, COMPUTE)));
}

/* Whether experts' GEMMs in this format are modelled. fsdp2 quantises experts in kernels of its
 * own; delayed scaling belongs to GEMMs that run in every step, which a single expert's may not:
 * our own runtime has one scale for all experts of a layer. */
static gboolean
computes_experts (const PlanFacts *f)
{
  const gboolean is_quantised
      = IS (f, COMPUTE, FP8_TENSORWISE) || IS (f, COMPUTE, FP8_BLOCKWISE) || IS (f, COMPUTE, MXFP8);
  const gboolean is_native = is_stack (f, PLAN_STACK_NATIVE);
  return IS (f, COMPUTE, BF16)
         || (is_native
             && (IS (f, COMPUTE, FP32) || IS (f, COMPUTE, NVFP4) || IS (f, COMPUTE, FP8_DELAYED)))
         || (is_quantised && !is_stack (f, PLAN_STACK_FSDP2));
}

/* Whether buffers are pooled otherwise than in Megatron-FSDP's FixedPoolAllocator, for the most
 * layers that are alike (plan_layout_is_pooled). These must follow at equal distances. */
static gboolean
pools_otherwise (const PlanFacts *f)
{
  const gboolean is_even
      = f->model->moe_every <= 1 || (f->model->moe_every == 2 && f->model->dense_layers == 0);
  return !IS (f, DOUBLE_BUFFER, OFF)
         && !(IS (f, DOUBLE_BUFFER, ON) && is_stack (f, PLAN_STACK_MEGATRON_FSDP) && is_even);
}

/* Whether it is not modelled how exchanges of a tensor-parallel group run beside products. On
 * Megatron's stacks they do in attention, and not in experts. */
static gboolean
overlaps_products (const PlanFacts *f)
{
  const gboolean is_megatron
      = is_stack (f, PLAN_STACK_MEGATRON_FSDP) || is_stack (f, PLAN_STACK_MEGATRON);
  return !IS (f, TP_OVERLAP, NONE)
         && !(IS (f, TP_OVERLAP, UB) && is_megatron && f->model->kv_lora == 0
              && f->model->shared_ffn == 0);
}

/* Whether a step would be kept as a graph in which the host waits for numbers of rows, or which is
 * not modelled. */
static gboolean
keeps_waits (const PlanFacts *f)
{
  return !IS (f, CUDA_GRAPH, OFF)
         && !(IS (f, MOE_PAD_TO_CAPACITY, ON) && is_stack (f, PLAN_STACK_NATIVE));
}

/* What is not modelled of models with experts or latent attention, one field after another. */
#define EXPERTS_OTHERWISE(does, condition) \
  static gboolean does##_experts_otherwise (const PlanFacts *f) \
  { \
    return has_experts (f) && (condition); \
  }
EXPERTS_OTHERWISE (computes, !computes_experts (f))
EXPERTS_OTHERWISE (pools, pools_otherwise (f))
EXPERTS_OTHERWISE (overlaps, overlaps_products (f))
EXPERTS_OTHERWISE (graphs, keeps_waits (f))
EXPERTS_OTHERWISE (evaluates, !IS (f, TASK, TRAIN) && !is_stack (f, PLAN_STACK_NATIVE))
EXPERTS_OTHERWISE (offloads, f->value[PLAN_OFFLOAD_LAYERS] > 0
                                 || (f->value[PLAN_OFFLOAD_MODULES] != 0 && !IS (f, EP_OVERLAP, OFF)
                                     && f->value[PLAN_CP] > 1))

/* Activations that no module of Megatron-LM saves, so that it does not offload them: a checkpointed
 * layer saves its input, and checkpointed attention its queries, keys and values, outside of the
 * hooks by which modules are offloaded. */
static gboolean
offloads_checkpointed (const PlanFacts *f)
{
  const gboolean is_megatron
      = is_stack (f, PLAN_STACK_MEGATRON_FSDP) || is_stack (f, PLAN_STACK_MEGATRON);
  const gboolean both = IS (f, RECOMPUTE, SELECTIVE) && HAS_MODULE (f, RECOMPUTE_MODULES, CORE_ATTN)
                        && HAS_MODULE (f, OFFLOAD_MODULES, CORE_ATTN);
  return is_megatron && f->value[PLAN_OFFLOAD_MODULES] != 0 && (IS (f, RECOMPUTE, FULL) || both);
}

/* What was measured, or read, on NVIDIA's GPUs alone: memory registered with NCCL, reductions by
 * switches, GEMMs in pieces, whole steps as graphs, scales of blocks, libraries for experts. */
static gboolean
has_nvidia_parts (const PlanFacts *f)
{
  return f->cluster->rocm == PLAN_ANSWER_YES
         && (!IS (f, NCCL_UB, OFF) || !IS (f, SHARP, OFF) || !IS (f, TP_OVERLAP, NONE)
             || !IS (f, CUDA_GRAPH, OFF) || f->value[PLAN_GRAPH_MODULES] != 0
             || IS (f, COMPUTE, FP8_BLOCKWISE) || IS (f, MOE_DISPATCHER, DEEPEP)
             || IS (f, MOE_DISPATCHER, HYBRIDEP));
}

static gboolean
splits_full_norms (const PlanFacts *f)
{
  return f->model->qk_norm == PLAN_QK_NORM_FULL && f->value[PLAN_TP] > 1;
}

/* Layers of the gated delta rule, and gates of attention's output. Our own runtime has no kernels
 * for them; how torchtitan runs them was not read. */
static gboolean
has_delta_elsewhere (const PlanFacts *f)
{
  return (f->model->delta.attn_every > 0 || f->model->attn_gate)
         && !is_stack (f, PLAN_STACK_MEGATRON_FSDP) && !is_stack (f, PLAN_STACK_MEGATRON);
}

static gboolean
has_delta_of_some (const PlanFacts *f)
{
  return f->model->delta.attn_every > 0 && (f->model->dense_layers > 0 || f->model->moe_every > 1);
}

/* The rule's kernels are in bf16. With context parallelism Megatron-LM sends heads in place of
 * tokens, twice per layer; where computing is deterministic it runs the rule op by op; documents
 * would need the packed format, in which states begin anew (gated_delta_net/gdn.py). */
static gboolean
computes_block_otherwise (const PlanFacts *f)
{
  const gboolean is_known = IS (f, COMPUTE, BF16) || IS (f, COMPUTE, FP8_TENSORWISE)
                            || IS (f, COMPUTE, FP8_BLOCKWISE) || IS (f, COMPUTE, MXFP8);
  return (f->model->delta.attn_every > 0 || f->model->attn_gate)
         && (!is_known || !IS (f, TP_OVERLAP, NONE) || !IS (f, CUDA_GRAPH, OFF)
             || f->value[PLAN_GRAPH_MODULES] != 0 || !IS (f, TASK, TRAIN)
             || !IS (f, EP_OVERLAP, OFF) || !IS (f, DETERMINISTIC, OFF) || f->value[PLAN_CP] > 1
             || f->value[PLAN_DOC_TOKENS] > 0 || f->value[PLAN_OFFLOAD_LAYERS] > 0
             || f->value[PLAN_OFFLOAD_MODULES] != 0);
}

/* Layers by a pattern: our own runtime has no kernels of state spaces, and how torchtitan or
 * nanotron would run them was not read. */
static gboolean
has_pattern_elsewhere (const PlanFacts *f)
{
  return *f->model->pattern.of && !is_stack (f, PLAN_STACK_MEGATRON_FSDP)
         && !is_stack (f, PLAN_STACK_MEGATRON);
}

/* What is not modelled of layers by a pattern. With context parallelism Megatron-LM sends heads in
 * place of tokens (mamba_context_parallel.py); where computing is deterministic kernels take other
 * paths; documents begin states anew (seq_idx). Interleaved stages and layers offloaded or computed
 * beside each other count on layers that are alike. */
static gboolean
computes_pattern_otherwise (const PlanFacts *f)
{
  const gboolean is_known = IS (f, COMPUTE, BF16) || IS (f, COMPUTE, FP8_DELAYED)
                            || IS (f, COMPUTE, FP8_TENSORWISE) || IS (f, COMPUTE, FP8_BLOCKWISE)
                            || IS (f, COMPUTE, MXFP8);
  return *f->model->pattern.of
         && (!is_known || !IS (f, DOUBLE_BUFFER, OFF) || !IS (f, TP_OVERLAP, NONE)
             || !IS (f, CUDA_GRAPH, OFF) || !IS (f, TASK, TRAIN) || !IS (f, EP_OVERLAP, OFF)
             || !IS (f, DETERMINISTIC, OFF) || f->value[PLAN_CP] > 1 || f->value[PLAN_VPP] > 1
             || f->value[PLAN_DOC_TOKENS] > 0 || f->value[PLAN_OFFLOAD_LAYERS] > 0
             || f->value[PLAN_OFFLOAD_MODULES] != 0);
}

static gboolean
computes_delta_otherwise (const PlanFacts *f)
{
  return computes_block_otherwise (f)
         || ((f->model->delta.attn_every > 0 || f->model->attn_gate)
             && !IS (f, DOUBLE_BUFFER, OFF));
}

static gboolean
computes_narrow_experts_otherwise (const PlanFacts *f)
{
  const gboolean is_megatron
      = is_stack (f, PLAN_STACK_MEGATRON_FSDP) || is_stack (f, PLAN_STACK_MEGATRON);
  return f->model->expert_hidden > 0 && (!is_megatron || IS (f, EP_OVERLAP, ON));
}

static gboolean
splits_documents (const PlanFacts *f)
{
  return f->value[PLAN_DOC_TOKENS] > 0 && (f->value[PLAN_CP] > 1 || IS (f, CUDA_GRAPH, ON));
}

#define MOST_MICRO_BATCHES 131072
#define MOST_MICRO_BATCHES_OF_STAGES 8192 /* each of which is simulated */

static gboolean
has_too_many_micro_batches (const PlanFacts *f)
{
  return plan_micro_batches (f->plan, f->cluster)
         > (f->value[PLAN_PP] > 1 ? MOST_MICRO_BATCHES_OF_STAGES : MOST_MICRO_BATCHES);
}

/* clang-format off */
static const PlanRuleEntry rules[] = {
  /* Rules about the model alone: no other plan would be legal. */
  { { "not-built-yet-prediction-modules", "of models with multi-token prediction (mtp) those with one module, experts in all layers but "
      "the first dense_layers, rotary positions, no windows and untied embeddings are planned by this version: plan others without "
      "modules, by mtp=0 behind the model's name or in its list", LIMIT, PLAN_ERROR_UNSUPPORTED },
    has_other_modules, PLAN_ADD_NAME, PLAN_SHOW (PLAN_SEQ), PLAN_OF_MODEL, PLAN_OF_BLOCKS },
  { { "not-built-yet-model-parts", "of models with experts or latent attention, those with "
      "norms behind branches, parallel branches or biases of latent attention are not planned by this version", LIMIT,
      PLAN_ERROR_UNSUPPORTED },
    has_other_parts, PLAN_ADD_NAME, PLAN_SHOW (PLAN_SEQ), PLAN_OF_MODEL, PLAN_OF_BLOCKS },
  { { "not-built-yet-shared-norm", "models whose attention and MLP share a norm are modelled with tp=1 and compute=fp32, bf16 or "
      "fp16 by this version", LIMIT, PLAN_ERROR_UNSUPPORTED },
    shares_norm, PLAN_ADD_NAME, PLAN_SHOW (PLAN_TP, PLAN_COMPUTE), PLAN_OF_BLOCKS },
  { { "not-built-yet-full-norms", "models that norm queries and keys over all heads together (qk_norm=full) are modelled with tp=1 by "
      "this version: with more, ranks would have to add up the squares of each other's heads", LIMIT, PLAN_ERROR_UNSUPPORTED },
    splits_full_norms, PLAN_ADD_NAME, PLAN_SHOW (PLAN_TP), PLAN_OF_BLOCKS },
  { { "not-built-yet-delta", "linear attention by the gated delta rule (attn_every) and gates of attention's output (attn_gate) are "
      "planned for stack=megatron-fsdp and stack=megatron by this version", LIMIT, PLAN_ERROR_UNSUPPORTED },
    has_delta_elsewhere, PLAN_ADD_NAME, PLAN_SHOW (PLAN_STACK), PLAN_OF_MODEL, PLAN_OF_BLOCKS },
  { { "not-built-yet-delta-of-some", "of models with linear attention (attn_every) those with experts in all layers or in none "
      "(dense_layers=0, moe_every=1) are planned by this version", LIMIT, PLAN_ERROR_UNSUPPORTED },
    has_delta_of_some, PLAN_ADD_NAME, PLAN_SHOW (PLAN_STACK), PLAN_OF_MODEL, PLAN_OF_BLOCKS },
  { { "not-built-yet-with-delta", "models with linear attention (attn_every) or a gate on attention's output (attn_gate) are modelled with "
      "compute=bf16, fp8-tensorwise, fp8-blockwise and mxfp8, cp=1, doc_tokens=0, deterministic=off, double_buffer=off, "
      "tp_overlap=none, cuda_graph=off, graph_modules=none, ep_overlap=off, task=train and no activations offloaded by this version", LIMIT,
      PLAN_ERROR_UNSUPPORTED },
    computes_delta_otherwise, PLAN_ADD_NAME,
    PLAN_SHOW (PLAN_COMPUTE, PLAN_CP, PLAN_DOC_TOKENS, PLAN_DETERMINISTIC, PLAN_DOUBLE_BUFFER, PLAN_TP_OVERLAP,
      PLAN_CUDA_GRAPH, PLAN_GRAPH_MODULES, PLAN_EP_OVERLAP, PLAN_TASK, PLAN_OFFLOAD_LAYERS, PLAN_OFFLOAD_MODULES),
    PLAN_BREAKS_BLOCKS (computes_block_otherwise) },
  { { "not-built-yet-pattern", "models whose layers follow a pattern, with state spaces (Mamba-2) among them, are planned for "
      "stack=megatron-fsdp and stack=megatron by this version", LIMIT, PLAN_ERROR_UNSUPPORTED },
    has_pattern_elsewhere, PLAN_ADD_NAME, PLAN_SHOW (PLAN_STACK), PLAN_OF_MODEL },
  { { "not-built-yet-with-pattern", "models whose layers follow a pattern are modelled with compute=bf16, fp8-delayed, fp8-tensorwise, "
      "fp8-blockwise and mxfp8, cp=1, vpp=1, doc_tokens=0, deterministic=off, double_buffer=off, tp_overlap=none, "
      "cuda_graph=off, ep_overlap=off, task=train and no activations offloaded by this version", LIMIT, PLAN_ERROR_UNSUPPORTED },
    computes_pattern_otherwise, PLAN_ADD_NAME,
    PLAN_SHOW (PLAN_COMPUTE, PLAN_CP, PLAN_VPP, PLAN_DOC_TOKENS, PLAN_DETERMINISTIC, PLAN_DOUBLE_BUFFER,
      PLAN_TP_OVERLAP, PLAN_CUDA_GRAPH, PLAN_EP_OVERLAP, PLAN_TASK, PLAN_OFFLOAD_LAYERS, PLAN_OFFLOAD_MODULES) },
  { { "not-built-yet-expert_hidden", "experts that read and make another width than the model's (expert_hidden) are planned for "
      "stack=megatron-fsdp and stack=megatron with ep_overlap=off by this version", LIMIT, PLAN_ERROR_UNSUPPORTED },
    computes_narrow_experts_otherwise, PLAN_ADD_NAME, PLAN_SHOW (PLAN_STACK, PLAN_EP_OVERLAP), PLAN_OF_MODEL, PLAN_OF_BLOCKS },
  { { "not-built-yet-prediction", "multi-token prediction (mtp) is planned for stack=megatron-fsdp and stack=megatron, without "
      "hidden_dropout: use one of them, or leave the module out, by mtp=0 behind the model's name (deepseek-v3,mtp=0) or in its list",
      LIMIT, PLAN_ERROR_UNSUPPORTED },
    predicts_elsewhere, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_HIDDEN_DROPOUT), PLAN_OF_MODEL, PLAN_OF_BLOCKS },
#define X(id, name, allowed, mask) \
  { { "not-built-yet-" name, "only " name " = " allowed " is modelled by this version", LIMIT, \
      PLAN_ERROR_UNSUPPORTED }, \
    is_outside_##id, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_##id), PLAN_OF_BLOCKS },
  UNBUILT_LIST (X)
#undef X
  { { "not-built-yet-moe_dispatcher", "stack=native sends rows to experts by moe_dispatcher=alltoall alone in this version", LIMIT, PLAN_ERROR_UNSUPPORTED },
    sends_otherwise, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_MOE_DISPATCHER), PLAN_OF_BLOCKS },
  { { "not-built-yet-etp", "etp above 1 is modelled with moe_dispatcher=alltoall or allgather by this version", LIMIT,
      PLAN_ERROR_UNSUPPORTED },
    splits_experts_otherwise, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_ETP, PLAN_MOE_DISPATCHER), PLAN_OF_BLOCKS },
  { { "not-built-yet-moe_grouped_gemm", "moe_grouped_gemm=off is modelled for stack=megatron-fsdp and stack=megatron, with "
      "unquantised compute, ep_delay_wgrad=off, no biases of experts and scores_on_input=off, by this version", LIMIT, PLAN_ERROR_UNSUPPORTED },
    goes_through_experts, PLAN_ADD_NAME, PLAN_SHOW (PLAN_STACK, PLAN_MOE_GROUPED_GEMM, PLAN_COMPUTE, PLAN_EP_DELAY_WGRAD), PLAN_OF_BLOCKS },
  { { "not-built-yet-moe_permute_fusion", "moe_permute_fusion=off is modelled for stack=megatron-fsdp and stack=megatron by this "
      "version", LIMIT, PLAN_ERROR_UNSUPPORTED },
    moves_rows_eagerly, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_MOE_PERMUTE_FUSION), PLAN_OF_BLOCKS },
  { { "not-built-yet-moe_shared_overlap", "moe_shared_overlap=on is modelled for stack=megatron-fsdp and stack=megatron by this "
      "version", LIMIT, PLAN_ERROR_UNSUPPORTED },
    overlaps_shared, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_MOE_SHARED_OVERLAP), PLAN_OF_BLOCKS },
  { { "not-built-yet-ep_overlap", "ep_overlap is modelled for stack=megatron, and for stack=megatron-fsdp with param_gather=compute, "
      "by this version", LIMIT, PLAN_ERROR_UNSUPPORTED },
    overlaps_elsewhere, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_PARAM_GATHER) },
  { { "not-built-yet-on-rocm", "on AMD's GPUs nccl_ub, sharp, tp_overlap, cuda_graph, graph_modules, compute=fp8-blockwise and "
      "moe_dispatcher=deepep and hybridep are not modelled by this version, as nothing of them was measured there: leave them as they are by default", LIMIT,
      PLAN_ERROR_UNSUPPORTED },
    has_nvidia_parts, PLAN_ADD_CHANGED, PLAN_SHOW (PLAN_NCCL_UB, PLAN_SHARP, PLAN_TP_OVERLAP, PLAN_CUDA_GRAPH, PLAN_GRAPH_MODULES,
      PLAN_COMPUTE, PLAN_MOE_DISPATCHER) },
  { { "not-built-yet-documents", "doc_tokens is modelled with cp=1 and cuda_graph=off by this version", LIMIT,
      PLAN_ERROR_UNSUPPORTED },
    splits_documents, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_DOC_TOKENS, PLAN_CP, PLAN_CUDA_GRAPH), PLAN_OF_BLOCKS },
  { { "not-built-yet-recompute-modules", "recompute_modules=layernorm is not modelled for stack=native by this version",
      LIMIT, PLAN_ERROR_UNSUPPORTED },
    recomputes_other_modules, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_RECOMPUTE_MODULES), PLAN_OF_BLOCKS },
  { { "not-built-yet-sinks", "a learned score in attention's softmax (sinks) and biases of experts are planned for "
      "stack=megatron-fsdp, megatron and fsdp2 with cp=1 and param_gather=compute, and for stack=native, by this version", LIMIT,
      PLAN_ERROR_UNSUPPORTED },
    has_sinks, PLAN_ADD_NAME, PLAN_SHOW (PLAN_STACK, PLAN_CP, PLAN_PARAM_GATHER), PLAN_OF_MODEL, PLAN_OF_BLOCKS },
  { { "not-built-yet-lone-experts", "outer_strategy=optim is modelled where several ranks of a replica have the same experts, by this "
      "version: ep x etp must be less than the devices of a replica", LIMIT, PLAN_ERROR_UNSUPPORTED },
    splits_lone_experts, PLAN_ADD_DEVICES, PLAN_SHOW (PLAN_OUTER_STRATEGY, PLAN_EP, PLAN_ETP, PLAN_DP_OUTER) },
  { { "not-built-yet-llama4", "layers without rotary positions (nope_every), norms without weights (qk_l2_norm), window_chunks and "
      "scores_on_input are planned for stack=megatron-fsdp, megatron, fsdp2 and native, chunks shorter than seq with cp=1 or for "
      "stack=native, by this version", LIMIT, PLAN_ERROR_UNSUPPORTED },
    has_llama4_parts, PLAN_ADD_NAME, PLAN_SHOW (PLAN_STACK, PLAN_SEQ, PLAN_CP), PLAN_OF_BLOCKS },
  { { "not-built-yet-experts-of-stack", "models with experts or latent attention are planned for stack=megatron-fsdp, "
      "megatron, fsdp2 and native by this version", LIMIT, PLAN_ERROR_UNSUPPORTED },
    is_of_another_stack, PLAN_ADD_NAME, PLAN_SHOW (PLAN_STACK), PLAN_OF_BLOCKS },
  { { "not-built-yet-shared-gate", "gated shared experts are modelled for stack=megatron-fsdp, stack=megatron and stack=native by this version",
      LIMIT, PLAN_ERROR_UNSUPPORTED },
    gates_elsewhere, PLAN_ADD_NAME, PLAN_SHOW (PLAN_STACK), PLAN_OF_MODEL, PLAN_OF_BLOCKS },
  { { "not-built-yet-latent-split", "latent attention is modelled with cp=1 by this version, and tp above 1 with sp=on on stack=megatron-fsdp, "
      "megatron and native", LIMIT,
      PLAN_ERROR_UNSUPPORTED },
    splits_latent_attention, PLAN_ADD_NAME, PLAN_SHOW (PLAN_STACK, PLAN_TP, PLAN_SP, PLAN_CP), PLAN_OF_BLOCKS },
  /* Of models with experts or latent attention. */
#define OF_EXPERTS(name, what, does, ...) \
  { { "not-built-yet-" name "-of-experts", "models with experts or latent attention are modelled with " what " by this version", LIMIT, \
      PLAN_ERROR_UNSUPPORTED }, does##_experts_otherwise, PLAN_ADD_NAME, __VA_ARGS__ }
  OF_EXPERTS ("compute", "compute=bf16, on Megatron's stacks and stack=native also fp8-tensorwise, fp8-blockwise and mxfp8, on stack=native also "
    "fp32, nvfp4 and fp8-delayed,", computes, PLAN_SHOW (PLAN_STACK, PLAN_COMPUTE), PLAN_OF_BLOCKS),
  OF_EXPERTS ("double_buffer", "double_buffer=off, on stack=megatron-fsdp also on where every layer has experts, or every second, or all "
    "but the first,", pools, PLAN_SHOW (PLAN_STACK, PLAN_DOUBLE_BUFFER)),
  OF_EXPERTS ("tp_overlap", "tp_overlap=none, on Megatron's stacks also ub without shared experts and latent attention,", overlaps,
    PLAN_SHOW (PLAN_STACK, PLAN_TP_OVERLAP), PLAN_OF_BLOCKS),
  OF_EXPERTS ("cuda_graph", "cuda_graph=off, as the host waits for numbers of rows, on stack=native also on with moe_pad_to_capacity=on,",
    graphs, PLAN_SHOW (PLAN_STACK, PLAN_CUDA_GRAPH, PLAN_MOE_PAD_TO_CAPACITY), PLAN_OF_BLOCKS),
  OF_EXPERTS ("task", "task=train, on stack=native also eval,", evaluates, PLAN_SHOW (PLAN_STACK, PLAN_TASK), PLAN_OF_BLOCKS),
  OF_EXPERTS ("offload", "offload_layers=0, and cp=1 with offload_modules and ep_overlap=on,", offloads,
    PLAN_SHOW (PLAN_OFFLOAD_LAYERS, PLAN_OFFLOAD_MODULES, PLAN_EP_OVERLAP, PLAN_CP), PLAN_OF_BLOCKS),
#undef OF_EXPERTS
  { { "not-built-yet-offload-of-checkpoints", "offload_modules on Megatron's stacks is modelled with recompute other than full, and core_attn "
      "in one of offload_modules and recompute_modules alone, by this version: what a checkpoint saves stays on the device there",
      "Megatron-LM tensor_parallel/random.py 616, transformer/attention.py 1555", PLAN_ERROR_UNSUPPORTED },
    offloads_checkpointed, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_OFFLOAD_MODULES, PLAN_RECOMPUTE, PLAN_RECOMPUTE_MODULES),
    PLAN_OF_BLOCKS },
  { { "not-built-yet-micro-batches", "steps of at most 131072 micro batches, and of 8192 with pp above 1, are planned by this "
      "version: gbs / mbs / the data-parallel size (devices / tp / cp / pp) must not be more; gbs counts sequences, not tokens",
      LIMIT, PLAN_ERROR_UNSUPPORTED },
    has_too_many_micro_batches, PLAN_ADD_DEVICES, PLAN_SHOW (PLAN_GBS, PLAN_MBS, PLAN_TP, PLAN_CP, PLAN_PP), PLAN_OF_BLOCKS },
};
/* clang-format on */

const PlanRuleTable plan_rules_unbuilt = { rules, G_N_ELEMENTS (rules) };
