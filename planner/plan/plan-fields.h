/* Every knob of a plan, once. The enum, text form, CLI options, help, rules and documentation are
 * made from these lists; the summary says what a field means.
 *
 * PLAN_FIELD_LIST (X): X (ID, "name", TYPE, values, default, NUMERICS, "summary")
 *   TYPE      ENUM   one of `values`            INT   integer >= 1; PLAN_UNSET: not given
 *             COUNT  integer >= 0               SHARE 0 to 1, stored in millionths
 *             NAMES  set of `values`, a bit mask, printed joined by +
 *             FACTOR number >= 1, in millionths AUTO   integer >= 1 or `auto`
 *             LIMIT  number > 0, in millionths; 0 is `none`
 *             LAYOUT layers of virtual stages (pp-layout.h)
 *             STACK  one of `values`, then @yyyy-mm-dd; VERSION major.minor
 *   NUMERICS  TRUE if a change alters arithmetic
 */
#pragma once

#define PLAN_VALUES_NONE(V, F)
#define PLAN_VALUES_DROP(V, F) V (F, PROBS, "probs") V (F, POSITION, "position")
#define PLAN_VALUES_SWITCH(V, F) V (F, OFF, "off") V (F, ON, "on")
#define PLAN_VALUES_CE_FUSION(V, F) V (F, OFF, "off") V (F, ON, "on") V (F, TE, "te")
#define PLAN_VALUES_STACK(V, F) \
  V (F, MEGATRON_FSDP, "megatron-fsdp") \
  V (F, MEGATRON, "megatron") \
  V (F, FSDP2, "fsdp2") \
  V (F, FSDP1, "fsdp1") V (F, NANOTRON, "nanotron") V (F, NATIVE, "native")
#define PLAN_VALUES_STRATEGY(V, F) \
  V (F, NO_SHARD, "no_shard") \
  V (F, OPTIM, "optim") \
  V (F, OPTIM_GRADS, "optim_grads") V (F, OPTIM_GRADS_PARAMS, "optim_grads_params")
#define PLAN_VALUES_OUTER(V, F) V (F, NO_SHARD, "no_shard") V (F, OPTIM, "optim")
#define PLAN_VALUES_UNIT(V, F) V (F, LAYER, "layer") V (F, BLOCK, "block")
#define PLAN_VALUES_BUFFER(V, F) V (F, OFF, "off") V (F, ON, "on") V (F, MAX_POOL, "max_pool")
#define PLAN_VALUES_SCHEDULE(V, F) V (F, 1F1B, "1f1b") V (F, AFAB, "afab")
#define PLAN_VALUES_PP_OVERLAP(V, F) \
  V (F, OFF, "off") V (F, ON, "on") V (F, WARMUP_FLUSH, "warmup_flush")
#define PLAN_VALUES_SHARP(V, F) \
  V (F, OFF, "off") V (F, NVL, "nvl") V (F, IB, "ib") V (F, NVL_IB, "nvl+ib")
#define PLAN_VALUES_REDUCE(V, F) V (F, RS, "rs") V (F, A2A, "a2a")
#define PLAN_VALUES_TP_OVERLAP(V, F) V (F, NONE, "none") V (F, ASYNC, "async") V (F, UB, "ub")
#define PLAN_VALUES_COMPUTE(V, F) \
  V (F, FP32, "fp32") \
  V (F, FP16, "fp16") \
  V (F, BF16, "bf16") \
  V (F, FP8_DELAYED, "fp8-delayed") \
  V (F, FP8_TENSORWISE, "fp8-tensorwise") \
  V (F, FP8_BLOCKWISE, "fp8-blockwise") V (F, MXFP8, "mxfp8") V (F, NVFP4, "nvfp4")
#define PLAN_VALUES_GATHER(V, F) \
  V (F, COMPUTE, "compute") V (F, FP8, "fp8") V (F, MXFP8, "mxfp8") V (F, NVFP4, "nvfp4")
#define PLAN_VALUES_STATE(V, F) \
  V (F, FP32, "fp32") V (F, BF16, "bf16") V (F, FP16, "fp16") V (F, AUTO, "auto")
#define PLAN_VALUES_MOMENT(V, F) \
  V (F, FP32, "fp32") V (F, BF16, "bf16") V (F, FP16, "fp16") V (F, FP8, "fp8")
#define PLAN_VALUES_OPTIMIZER(V, F) V (F, ADAMW, "adamw") V (F, SGD, "sgd")
#define PLAN_VALUES_RECOMPUTE(V, F) \
  V (F, NONE, "none") V (F, SELECTIVE, "selective") V (F, FULL, "full")
#define PLAN_VALUES_MODULES(V, F) \
  V (F, CORE_ATTN, "core_attn") \
  V (F, MLP, "mlp") \
  V (F, LAYERNORM, "layernorm") \
  V (F, MOE, "moe") \
  V (F, MOE_ACT, "moe_act") \
  V (F, SHARED_EXPERTS, "shared_experts") \
  V (F, MLA_UP_PROJ, "mla_up_proj") V (F, OP_SAC, "op-sac")
#define PLAN_VALUES_OFFLOAD(V, F) \
  V (F, ATTN_NORM, "attn_norm") \
  V (F, QKV_LINEAR, "qkv_linear") \
  V (F, CORE_ATTN, "core_attn") \
  V (F, ATTN_PROJ, "attn_proj") \
  V (F, MLP_NORM, "mlp_norm") V (F, EXPERT_FC1, "expert_fc1") V (F, MOE_ACT, "moe_act")
#define PLAN_VALUES_GRAPHS(V, F) \
  V (F, ATTN, "attn") \
  V (F, MLP, "mlp") \
  V (F, MOE, "moe") \
  V (F, MOE_ROUTER, "moe_router") \
  V (F, MOE_PREPROCESS, "moe_preprocess") V (F, MAMBA, "mamba")
#define PLAN_VALUES_METHOD(V, F) V (F, UNIFORM, "uniform") V (F, BLOCK, "block")
#define PLAN_VALUES_NAN(V, F) V (F, OFF, "off") V (F, LOSS, "loss") V (F, PARAMS, "params")
#define PLAN_VALUES_GRAD_SYNC(V, F) V (F, EVERY, "every") V (F, LAST, "last")
#define PLAN_VALUES_DISPATCHER(V, F) \
  V (F, ALLTOALL, "alltoall") \
  V (F, ALLGATHER, "allgather") V (F, DEEPEP, "deepep") V (F, HYBRIDEP, "hybridep")
#define PLAN_VALUES_ROUTER(V, F) V (F, FP32, "fp32") V (F, BF16, "bf16")
#define PLAN_VALUES_TASK(V, F) V (F, TRAIN, "train") V (F, EVAL, "eval")

/* clang-format off */
#define PLAN_FIELD_LIST(X)                                                                                                     \
  X (STACK, "stack", STACK, PLAN_VALUES_STACK, PLAN_STACK_MEGATRON_FSDP, FALSE, "framework whose behaviour is modelled, with its date") \
  X (NCCL, "nccl", VERSION, PLAN_VALUES_NONE, 2028, FALSE, "NCCL version; decides symmetric kernels and copy-engine gathers")  \
  X (STRATEGY, "strategy", ENUM, PLAN_VALUES_STRATEGY, PLAN_STRATEGY_OPTIM_GRADS_PARAMS, FALSE, "what is sharded over the inner data-parallel group") \
  X (DP_OUTER, "dp_outer", INT, PLAN_VALUES_NONE, 1, FALSE, "replicas of the sharding group (hybrid)")                         \
  X (OUTER_STRATEGY, "outer_strategy", ENUM, PLAN_VALUES_OUTER, PLAN_OUTER_STRATEGY_NO_SHARD, FALSE, "what is sharded over the replicas") \
  X (TP, "tp", INT, PLAN_VALUES_NONE, 1, FALSE, "tensor-parallel size")                                                        \
  X (CP, "cp", INT, PLAN_VALUES_NONE, 1, FALSE, "context-parallel size")                                                       \
  X (EP, "ep", INT, PLAN_VALUES_NONE, 1, FALSE, "expert-parallel size")                                                        \
  X (PP, "pp", INT, PLAN_VALUES_NONE, 1, FALSE, "pipeline-parallel size")                                                      \
  X (VPP, "vpp", INT, PLAN_VALUES_NONE, 1, FALSE, "virtual stages of each pipeline stage, interleaved") \
  X (PP_GROUP, "pp_group", AUTO, PLAN_VALUES_NONE, PLAN_UNSET, FALSE, "micro batches that go through a virtual stage before the next one's turn; auto: pp") \
  X (PP_SCHEDULE, "pp_schedule", ENUM, PLAN_VALUES_SCHEDULE, PLAN_PP_SCHEDULE_1F1B, FALSE, "order of a pipeline stage's passes: one forward, one backward in turn, interleaved where vpp > 1; or all forward, then all backward") \
  X (PP_OVERLAP, "pp_overlap", ENUM, PLAN_VALUES_PP_OVERLAP, PLAN_PP_OVERLAP_ON, FALSE, "interleaved stages exchange beside compute; warmup_flush: also while the pipeline fills and drains; off: in batches for which the host waits (both megatron)") \
  X (PP_FIRST_LAYERS, "pp_first_layers", AUTO, PLAN_VALUES_NONE, PLAN_UNSET, FALSE, "layers of the first pipeline stage; auto: as the stack deals them out") \
  X (PP_LAST_LAYERS, "pp_last_layers", AUTO, PLAN_VALUES_NONE, PLAN_UNSET, FALSE, "layers of the last pipeline stage, likewise") \
  X (PP_COUNT_EMBEDDING, "pp_count_embedding", ENUM, PLAN_VALUES_SWITCH, PLAN_PP_COUNT_EMBEDDING_OFF, FALSE, "the embedding counts as a layer when layers are dealt out to stages") \
  X (PP_COUNT_LOSS, "pp_count_loss", ENUM, PLAN_VALUES_SWITCH, PLAN_PP_COUNT_LOSS_OFF, FALSE, "output layer and loss count as a layer, likewise") \
  X (PP_LAST_SHORT, "pp_last_short", COUNT, PLAN_VALUES_NONE, 0, FALSE, "layers that the last virtual stage has less than the others, as a layout string says it") \
  X (PP_LAYOUT, "pp_layout", LAYOUT, PLAN_VALUES_NONE, PLAN_UNSET, FALSE, "layers of every virtual stage, as Megatron-LM's layout string; auto: as the fields above say") \
  X (SP, "sp", ENUM, PLAN_VALUES_SWITCH, PLAN_UNSET, FALSE, "sequence parallelism; on when tp > 1 by default")                \
  X (MBS, "mbs", INT, PLAN_VALUES_NONE, PLAN_UNSET, FALSE, "micro batch, in sequences")                                        \
  X (GBS, "gbs", INT, PLAN_VALUES_NONE, PLAN_UNSET, FALSE, "global batch, in sequences")                                       \
  X (SEQ, "seq", INT, PLAN_VALUES_NONE, PLAN_UNSET, FALSE, "tokens per sequence; the model's by default")                     \
  X (FINE_GRAINED, "fine_grained", ENUM, PLAN_VALUES_SWITCH, PLAN_FINE_GRAINED_OFF, FALSE, "gather parameters per module instead of per unit") \
  X (UNIT, "unit", ENUM, PLAN_VALUES_UNIT, PLAN_UNIT_LAYER, FALSE, "what one FSDP unit is")                                    \
  X (COMM_UNIT, "comm_unit", AUTO, PLAN_VALUES_NONE, PLAN_UNSET, FALSE, "communication unit in elements: prefetch depth and reduce queue") \
  X (DOUBLE_BUFFER, "double_buffer", ENUM, PLAN_VALUES_BUFFER, PLAN_DOUBLE_BUFFER_OFF, FALSE, "two persistent sets of communication buffers") \
  X (NCCL_UB, "nccl_ub", ENUM, PLAN_VALUES_SWITCH, PLAN_NCCL_UB_OFF, FALSE, "register user buffers with NCCL")                 \
  X (AG_GROUP, "ag_group", ENUM, PLAN_VALUES_SWITCH, PLAN_AG_GROUP_OFF, FALSE, "a communicator of its own for gathers")        \
  X (SHARP, "sharp", ENUM, PLAN_VALUES_SHARP, PLAN_SHARP_OFF, FALSE, "in-network reduction")                                   \
  X (REDUCE_ALGO, "reduce_algo", ENUM, PLAN_VALUES_REDUCE, PLAN_REDUCE_ALGO_RS, TRUE, "reduce-scatter, or all-to-all and a local fp32 sum") \
  X (OVERLAP_GRAD_REDUCE, "overlap_grad_reduce", ENUM, PLAN_VALUES_SWITCH, PLAN_OVERLAP_GRAD_REDUCE_ON, FALSE, "reduce gradients beside the backward pass") \
  X (OVERLAP_PARAM_GATHER, "overlap_param_gather", ENUM, PLAN_VALUES_SWITCH, PLAN_OVERLAP_PARAM_GATHER_ON, FALSE, "gather parameters beside compute") \
  X (TP_OVERLAP, "tp_overlap", ENUM, PLAN_VALUES_TP_OVERLAP, PLAN_TP_OVERLAP_NONE, FALSE, "products in pieces, beside their tensor-parallel communication: async as PyTorch's compiler does and our own runtime, ub by Transformer Engine's user buffers") \
  X (COMPUTE, "compute", ENUM, PLAN_VALUES_COMPUTE, PLAN_COMPUTE_BF16, TRUE, "number format of matrix products")               \
  X (PARAM_GATHER, "param_gather", ENUM, PLAN_VALUES_GATHER, PLAN_PARAM_GATHER_COMPUTE, TRUE, "number format in which parameters travel") \
  X (KEEP_TRANSPOSE, "keep_transpose", ENUM, PLAN_VALUES_SWITCH, PLAN_KEEP_TRANSPOSE_OFF, FALSE, "keep fp8 transposes between uses") \
  X (MAIN_PARAMS, "main_params", ENUM, PLAN_VALUES_STATE, PLAN_MAIN_PARAMS_FP32, TRUE, "number format of the weights the optimizer updates") \
  X (MAIN_GRADS, "main_grads", ENUM, PLAN_VALUES_STATE, PLAN_MAIN_GRADS_FP32, TRUE, "number format in which gradients accumulate") \
  X (GRAD_COMM, "grad_comm", ENUM, PLAN_VALUES_STATE, PLAN_GRAD_COMM_FP32, TRUE, "number format in which gradients travel")    \
  X (EXP_AVG, "exp_avg", ENUM, PLAN_VALUES_MOMENT, PLAN_EXP_AVG_FP32, TRUE, "number format of Adam's first moment")            \
  X (EXP_AVG_SQ, "exp_avg_sq", ENUM, PLAN_VALUES_MOMENT, PLAN_EXP_AVG_SQ_FP32, TRUE, "number format of Adam's second moment")  \
  X (PRECISION_AWARE, "precision_aware", ENUM, PLAN_VALUES_SWITCH, PLAN_PRECISION_AWARE_OFF, FALSE, "optimizer reads gradients as they are (decoupled)") \
  X (FUSED_MASTERS, "fused_masters", ENUM, PLAN_VALUES_SWITCH, PLAN_FUSED_MASTERS_OFF, FALSE, "the optimizer keeps fp32 masters of its own") \
  X (OPTIMIZER, "optimizer", ENUM, PLAN_VALUES_OPTIMIZER, PLAN_OPTIMIZER_ADAMW, TRUE, "update rule")                           \
  X (OFFLOAD_OPTIMIZER, "offload_optimizer", SHARE, PLAN_VALUES_NONE, 0, FALSE, "share of the optimizer state kept on the host") \
  X (OFFLOAD_LAYERS, "offload_layers", COUNT, PLAN_VALUES_NONE, 0, FALSE, "layers whose activations go to the host")           \
  X (OFFLOAD_MODULES, "offload_modules", NAMES, PLAN_VALUES_OFFLOAD, 0, FALSE, "modules whose inputs go to the host")          \
  X (RECOMPUTE, "recompute", ENUM, PLAN_VALUES_RECOMPUTE, PLAN_RECOMPUTE_NONE, FALSE, "activations recomputed in the backward pass") \
  X (RECOMPUTE_MODULES, "recompute_modules", NAMES, PLAN_VALUES_MODULES, 1, FALSE, "modules recomputed when selective")        \
  X (RECOMPUTE_METHOD, "recompute_method", ENUM, PLAN_VALUES_METHOD, PLAN_RECOMPUTE_METHOD_UNIFORM, FALSE, "which layers when full") \
  X (RECOMPUTE_LAYERS, "recompute_layers", INT, PLAN_VALUES_NONE, 1, FALSE, "layers per chunk (uniform) or recomputed (block)") \
  X (GRAD_ACCUM_FUSION, "grad_accum_fusion", ENUM, PLAN_VALUES_SWITCH, PLAN_GRAD_ACCUM_FUSION_OFF, FALSE, "weight gradients written straight into their buffer") \
  X (PER_TOKEN_LOSS, "per_token_loss", ENUM, PLAN_VALUES_SWITCH, PLAN_PER_TOKEN_LOSS_ON, TRUE, "divide once by the global token count") \
  X (CE_FUSION, "ce_fusion", ENUM, PLAN_VALUES_CE_FUSION, PLAN_CE_FUSION_ON, FALSE, "fused cross entropy; te: Transformer Engine's, in place of the logits")                        \
  X (LOSS_CHUNKS, "loss_chunks", INT, PLAN_VALUES_NONE, 1, TRUE, "pieces of a micro batch whose logits are made, and their gradient used, one after the other")\
  X (HIDDEN_DROPOUT, "hidden_dropout", SHARE, PLAN_VALUES_NONE, 0, TRUE, "share of the embedding and of what each branch adds that is zeroed at random") \
  X (ATTENTION_DROPOUT, "attention_dropout", SHARE, PLAN_VALUES_NONE, 0, TRUE, "share of attention's weights that is zeroed at random") \
  X (NAN_CHECK, "nan_check", ENUM, PLAN_VALUES_NAN, PLAN_NAN_CHECK_OFF, FALSE, "look for NaN in the loss or in every gradient") \
  X (SYNC_EVERY_MICRO_BATCH, "sync_every_micro_batch", ENUM, PLAN_VALUES_SWITCH, PLAN_SYNC_EVERY_MICRO_BATCH_OFF, FALSE, "finish reductions in every micro batch") \
  X (GRAD_SYNC, "grad_sync", ENUM, PLAN_VALUES_GRAD_SYNC, PLAN_GRAD_SYNC_EVERY, TRUE, "micro batches that reduce sharded gradients; last: the others keep whole ones (PyTorch's no_sync)") \
  X (ADAM_FOREACH, "adam_foreach", ENUM, PLAN_VALUES_SWITCH, PLAN_ADAM_FOREACH_OFF, FALSE, "AdamW does each of its ops to all tensors in turn (PyTorch's foreach), and keeps the roots of all second moments meanwhile") \
  X (CUDA_GRAPH, "cuda_graph", ENUM, PLAN_VALUES_SWITCH, PLAN_CUDA_GRAPH_OFF, FALSE, "replay the step as a CUDA graph")        \
  X (GRAPH_MODULES, "graph_modules", NAMES, PLAN_VALUES_GRAPHS, 0, FALSE, "modules of each layer that are replayed as one CUDA graph in each pass (megatron)") \
  X (DETERMINISTIC, "deterministic", ENUM, PLAN_VALUES_SWITCH, PLAN_DETERMINISTIC_OFF, FALSE, "only run-to-run identical kernels") \
  X (EMPTY_CACHE, "empty_cache", ENUM, PLAN_VALUES_SWITCH, PLAN_EMPTY_CACHE_OFF, FALSE, "give the allocator's unused memory back to the device in every step") \
  X (COMPILE, "compile", ENUM, PLAN_VALUES_SWITCH, PLAN_COMPILE_OFF, FALSE, "torch.compile (fsdp2)")                           \
  X (ETP, "etp", INT, PLAN_VALUES_NONE, 1, FALSE, "tensor-parallel size of the experts; Megatron-LM's own default is tp") \
  X (MOE_DISPATCHER, "moe_dispatcher", ENUM, PLAN_VALUES_DISPATCHER, PLAN_MOE_DISPATCHER_ALLTOALL, FALSE, "how tokens travel to their experts and back") \
  X (MOE_GROUPED_GEMM, "moe_grouped_gemm", ENUM, PLAN_VALUES_SWITCH, PLAN_MOE_GROUPED_GEMM_ON, FALSE, "the experts of a rank are one module, else one after the other") \
  X (MOE_PERMUTE_FUSION, "moe_permute_fusion", ENUM, PLAN_VALUES_SWITCH, PLAN_MOE_PERMUTE_FUSION_ON, FALSE, "fused kernels sort tokens by expert and back") \
  X (MOE_ROUTER_FUSION, "moe_router_fusion", ENUM, PLAN_VALUES_SWITCH, PLAN_MOE_ROUTER_FUSION_OFF, FALSE, "fused kernels choose the experts") \
  X (ROUTER_DTYPE, "router_dtype", ENUM, PLAN_VALUES_ROUTER, PLAN_ROUTER_DTYPE_FP32, TRUE, "number format of the router's scores") \
  X (MOE_IMBALANCE, "moe_imbalance", FACTOR, PLAN_VALUES_NONE, 1000000, FALSE, "tokens that the experts of the fullest rank see, over their mean") \
  X (MOE_CAPACITY, "moe_capacity", LIMIT, PLAN_VALUES_NONE, 0, TRUE, "tokens that an expert takes of a rank at most, over their mean; the others are dropped") \
  X (MOE_PAD_TO_CAPACITY, "moe_pad_to_capacity", ENUM, PLAN_VALUES_SWITCH, PLAN_MOE_PAD_TO_CAPACITY_OFF, TRUE, "an expert takes just as many as that of every rank, by padding") \
  X (MOE_DROP, "moe_drop", ENUM, PLAN_VALUES_DROP, PLAN_MOE_DROP_PROBS, TRUE, "which tokens are dropped: those of the smallest shares, or the last") \
  X (MOE_AUX_LOSS, "moe_aux_loss", LIMIT, PLAN_VALUES_NONE, 0, TRUE, "coefficient of the loss that has routers treat experts alike, as Megatron-LM's aux_loss; none: there is no such loss (native)") \
  X (MOE_SHARED_OVERLAP, "moe_shared_overlap", ENUM, PLAN_VALUES_SWITCH, PLAN_MOE_SHARED_OVERLAP_OFF, FALSE, "shared experts compute while tokens travel") \
  X (EP_OVERLAP, "ep_overlap", ENUM, PLAN_VALUES_SWITCH, PLAN_EP_OVERLAP_OFF, FALSE, "tokens of one micro batch travel while another computes") \
  X (EP_DELAY_WGRAD, "ep_delay_wgrad", ENUM, PLAN_VALUES_SWITCH, PLAN_EP_DELAY_WGRAD_OFF, FALSE, "beside ep_overlap: weight gradients are computed later, while tokens travel") \
  X (DOC_TOKENS, "doc_tokens", COUNT, PLAN_VALUES_NONE, 0, TRUE, "attention stays within documents, positions begin anew in each: so many tokens has the one that a token is in, on average; 0: whole sequences") \
  X (EOD_MASK_LOSS, "eod_mask_loss", ENUM, PLAN_VALUES_SWITCH, PLAN_EOD_MASK_LOSS_OFF, TRUE, "what comes behind the token that ends a document is not learned: the loss is the mean over all other tokens") \
  X (TASK, "task", ENUM, PLAN_VALUES_TASK, PLAN_TASK_TRAIN, FALSE, "a training step, or evaluation")
/* clang-format on */
