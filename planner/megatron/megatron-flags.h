/* Megatron-LM's flags that decide a model, a plan or a batch, once: PLAN_MEGATRON_FLAG_LIST (X):
 *
 *   X (ID, "key", "flag", TYPE, "initial", "choices")
 *     key      its name in the argument list at the head of a log
 *     flag     its name on the command line, behind --
 *     TYPE     ON: the flag switches on; OFF: it switches off; INT, REAL, TEXT, WORD (one of
 *              `choices`), LIST (words)
 *     initial  Megatron-LM's default; "" where it has none; megatron.c has the older ones
 *
 * Source: Megatron-LM main at d98e8a64 (2026-08-22), megatron/training/arguments.py. All other
 * flags are in data/megatron-flags.txt. */
#pragma once

#define PLAN_MEGATRON_STATES "fp32|bf16|fp16|auto"
#define PLAN_MEGATRON_MOMENTS "fp32|fp16|bf16|fp8"

#define PLAN_MEGATRON_GRAPHS \
  "attn|mlp|moe|moe_router|moe_preprocess|mamba|full|full_iteration|full_iteration_inference"

/* clang-format off */
#define PLAN_MEGATRON_MODEL_FLAGS(X) \
  X (NUM_LAYERS, "num_layers", "num-layers", INT, "", "") \
  X (HIDDEN_SIZE, "hidden_size", "hidden-size", INT, "", "") \
  X (FFN_HIDDEN_SIZE, "ffn_hidden_size", "ffn-hidden-size", INT, "", "") \
  X (NUM_ATTENTION_HEADS, "num_attention_heads", "num-attention-heads", INT, "", "") \
  X (GROUP_QUERY_ATTENTION, "group_query_attention", "group-query-attention", ON, "off", "") \
  X (NUM_QUERY_GROUPS, "num_query_groups", "num-query-groups", INT, "1", "") \
  X (KV_CHANNELS, "kv_channels", "kv-channels", INT, "", "") \
  X (MAX_POSITION_EMBEDDINGS, "max_position_embeddings", "max-position-embeddings", INT, "", "") \
  X (POSITION_EMBEDDING_TYPE, "position_embedding_type", "position-embedding-type", WORD, "learned_absolute", "learned_absolute|rope|yarn|mrope|relative|none") \
  X (USE_ROTARY, "use_rotary_position_embeddings", "use-rotary-position-embeddings", ON, "off", "") \
  X (ROTARY_BASE, "rotary_base", "rotary-base", INT, "10000", "") \
  X (ROTARY_PERCENT, "rotary_percent", "rotary-percent", REAL, "1.0", "") \
  X (NO_ROPE_FREQ, "no_rope_freq", "no-rope-freq", TEXT, "", "") \
  X (USE_ROPE_SCALING, "use_rope_scaling", "use-rope-scaling", ON, "off", "") \
  X (ROPE_SCALING_FACTOR, "rope_scaling_factor", "rope-scaling-factor", REAL, "8.0", "") \
  X (ROPE_INTERPOLATION, "rotary_seq_len_interpolation_factor", "rotary-seq-len-interpolation-factor", INT, "", "") \
  X (ROPE_TYPE, "rope_type", "rope-type", WORD, "", "rope|yarn") \
  X (ROTARY_SCALING_FACTOR, "rotary_scaling_factor", "rotary-scaling-factor", REAL, "1.0", "") \
  X (MSCALE, "mscale", "mscale", REAL, "1.0", "") \
  X (MSCALE_ALL_DIM, "mscale_all_dim", "mscale-all-dim", REAL, "0.0", "") \
  X (YARN_ORIGINAL, "yarn_original_max_position_embeddings", "yarn-original-max-position-embeddings", INT, "4096", "") \
  X (YARN_ROUNDS, "yarn_correction_range_round_to_int", "no-yarn-correction-range-round-to-int", OFF, "on", "") \
  X (YARN_BETA_FAST, "yarn_beta_fast", "yarn-beta-fast", REAL, "32.0", "") \
  X (YARN_BETA_SLOW, "yarn_beta_slow", "yarn-beta-slow", REAL, "1.0", "") \
  X (NORMALIZATION, "normalization", "normalization", WORD, "LayerNorm", "LayerNorm|RMSNorm") \
  X (NORM_EPSILON, "layernorm_epsilon", "norm-epsilon", REAL, "1e-05", "") \
  X (NORM_ONE_PLUS, "layernorm_zero_centered_gamma", "apply-layernorm-1p", ON, "off", "") \
  X (SWIGLU, "swiglu", "swiglu", ON, "off", "") \
  X (SQUARED_RELU, "squared_relu", "squared-relu", ON, "off", "") \
  X (QUICK_GEGLU, "quick_geglu", "quick-geglu", ON, "off", "") \
  X (ACTIVATION_CLAMP, "activation_func_clamp_value", "activation-func-clamp-value", REAL, "", "") \
  X (GLU_OFFSET, "glu_linear_offset", "glu-linear-offset", REAL, "0.0", "") \
  X (BIAS_GELU_FUSION, "bias_gelu_fusion", "no-bias-gelu-fusion", OFF, "on", "") \
  X (ADD_BIAS_LINEAR, "add_bias_linear", "disable-bias-linear", OFF, "on", "") \
  X (ADD_QKV_BIAS, "add_qkv_bias", "add-qkv-bias", ON, "off", "") \
  X (QK_LAYERNORM, "qk_layernorm", "qk-layernorm", ON, "off", "") \
  X (QK_L2_NORM, "qk_l2_norm", "qk-l2-norm", ON, "off", "") \
  X (ATTENTION_OUTPUT_GATE, "attention_output_gate", "attention-output-gate", ON, "off", "") \
  X (WINDOW_SIZE, "window_size", "window-size", TEXT, "", "") \
  X (WINDOW_SKIP_FREQ, "window_attn_skip_freq", "window-attn-skip-freq", TEXT, "", "") \
  X (UNTIE, "untie_embeddings_and_output_weights", "untie-embeddings-and-output-weights", ON, "off", "") \
  X (VOCAB_SIZE, "vocab_size", "vocab-size", INT, "", "") \
  X (PADDED_VOCAB_SIZE, "padded_vocab_size", "padded-vocab-size", INT, "", "") \
  X (VOCAB_MULTIPLE, "make_vocab_size_divisible_by", "make-vocab-size-divisible-by", INT, "128", "") \
  X (TOKENIZER_TYPE, "tokenizer_type", "tokenizer-type", TEXT, "", "") \
  X (NUM_EXPERTS, "num_experts", "num-experts", INT, "", "") \
  X (MOE_FFN_HIDDEN_SIZE, "moe_ffn_hidden_size", "moe-ffn-hidden-size", INT, "", "") \
  X (MOE_ROUTER_TOPK, "moe_router_topk", "moe-router-topk", INT, "2", "") \
  X (MOE_SHARED_SIZE, "moe_shared_expert_intermediate_size", "moe-shared-expert-intermediate-size", INT, "", "") \
  X (MOE_SHARED_GATE, "moe_shared_expert_gate", "moe-shared-expert-gate", ON, "off", "") \
  X (MOE_PROBS_ON_INPUT, "moe_apply_probs_on_input", "moe-apply-probs-on-input", ON, "off", "") \
  X (MOE_EXPERT_BIAS, "moe_router_enable_expert_bias", "moe-router-enable-expert-bias", ON, "off", "") \
  X (MOE_SCORE_FUNCTION, "moe_router_score_function", "moe-router-score-function", WORD, "softmax", "softmax|sigmoid|sqrtsoftplus") \
  X (MOE_PRE_SOFTMAX, "moe_router_pre_softmax", "moe-router-pre-softmax", ON, "off", "") \
  X (MOE_NUM_GROUPS, "moe_router_num_groups", "moe-router-num-groups", INT, "", "") \
  X (MOE_GROUP_TOPK, "moe_router_group_topk", "moe-router-group-topk", INT, "", "") \
  X (MOE_SCALING_FACTOR, "moe_router_topk_scaling_factor", "moe-router-topk-scaling-factor", REAL, "", "") \
  X (MOE_LATENT_SIZE, "moe_latent_size", "moe-latent-size", INT, "", "") \
  X (MOE_LAYER_FREQ, "moe_layer_freq", "moe-layer-freq", TEXT, "1", "") \
  X (MULTI_LATENT_ATTENTION, "multi_latent_attention", "multi-latent-attention", ON, "off", "") \
  X (Q_LORA_RANK, "q_lora_rank", "q-lora-rank", INT, "", "") \
  X (KV_LORA_RANK, "kv_lora_rank", "kv-lora-rank", INT, "32", "") \
  X (QK_HEAD_DIM, "qk_head_dim", "qk-head-dim", INT, "128", "") \
  X (QK_POS_EMB_HEAD_DIM, "qk_pos_emb_head_dim", "qk-pos-emb-head-dim", INT, "64", "") \
  X (V_HEAD_DIM, "v_head_dim", "v-head-dim", INT, "128", "") \
  X (SOFTMAX_TYPE, "softmax_type", "softmax-type", WORD, "vanilla", "vanilla|off-by-one|learnable") \
  X (MTP_NUM_LAYERS, "mtp_num_layers", "mtp-num-layers", INT, "", "") \
  X (HYBRID_LAYER_PATTERN, "hybrid_layer_pattern", "hybrid-layer-pattern", TEXT, "", "") \
  X (MAMBA_HEADS, "mamba_num_heads", "mamba-num-heads", INT, "", "") \
  X (MAMBA_HEAD_DIM, "mamba_head_dim", "mamba-head-dim", INT, "64", "") \
  X (MAMBA_GROUPS, "mamba_num_groups", "mamba-num-groups", INT, "8", "") \
  X (MAMBA_STATE, "mamba_state_dim", "mamba-state-dim", INT, "128", "") \
  X (LINEAR_ATTENTION, "experimental_attention_variant", "experimental-attention-variant", WORD, "", "gdn|gdn2|dsa|gated_delta_net") \
  X (LINEAR_ATTENTION_FREQ, "linear_attention_freq", "linear-attention-freq", TEXT, "", "") \
  X (LINEAR_CONV_DIM, "linear_conv_kernel_dim", "linear-conv-kernel-dim", INT, "4", "") \
  X (LINEAR_KEY_DIM, "linear_key_head_dim", "linear-key-head-dim", INT, "128", "") \
  X (LINEAR_VALUE_DIM, "linear_value_head_dim", "linear-value-head-dim", INT, "128", "") \
  X (LINEAR_KEY_HEADS, "linear_num_key_heads", "linear-num-key-heads", INT, "16", "") \
  X (LINEAR_VALUE_HEADS, "linear_num_value_heads", "linear-num-value-heads", INT, "32", "") \
  X (HETEROGENEOUS, "heterogeneous_layers_config_path", "heterogeneous-layers-config-path", TEXT, "", "") \
  X (MHC, "enable_mhc_connections", "enable-mhc-connections", ON, "off", "") \
  X (CHECKPOINT_ARGS, "use_checkpoint_args", "use-checkpoint-args", ON, "off", "") \
  X (YAML, "yaml_cfg", "yaml-cfg", TEXT, "", "")

#define PLAN_MEGATRON_PLAN_FLAGS(X) \
  X (SEQ_LENGTH, "seq_length", "seq-length", INT, "", "") \
  X (MBS, "micro_batch_size", "micro-batch-size", INT, "", "") \
  X (GBS, "global_batch_size", "global-batch-size", INT, "", "") \
  X (TP, "tensor_model_parallel_size", "tensor-model-parallel-size", INT, "1", "") \
  X (PP, "pipeline_model_parallel_size", "pipeline-model-parallel-size", INT, "1", "") \
  X (PP_FIRST_LAYERS, "num_layers_in_first_pipeline_stage", "decoder-first-pipeline-num-layers", INT, "", "") \
  X (PP_LAST_LAYERS, "num_layers_in_last_pipeline_stage", "decoder-last-pipeline-num-layers", INT, "", "") \
  X (PP_COUNT_EMBEDDING, "account_for_embedding_in_pipeline_split", "account-for-embedding-in-pipeline-split", ON, "off", "") \
  X (PP_COUNT_LOSS, "account_for_loss_in_pipeline_split", "account-for-loss-in-pipeline-split", ON, "off", "") \
  X (VPP, "num_virtual_stages_per_pipeline_rank", "num-virtual-stages-per-pipeline-rank", INT, "", "") \
  X (VIRTUAL_LAYERS, "num_layers_per_virtual_pipeline_stage", "num-layers-per-virtual-pipeline-stage", INT, "", "") \
  X (PP_LAYOUT, "pipeline_model_parallel_layout", "pipeline-model-parallel-layout", TEXT, "", "") \
  X (PP_GROUP, "microbatch_group_size_per_vp_stage", "microbatch-group-size-per-virtual-pipeline-stage", INT, "", "") \
  X (PP_OVERLAP, "overlap_p2p_comm", "no-overlap-p2p-communication", OFF, "on", "") \
  X (PP_WARMUP_FLUSH, "overlap_p2p_comm_warmup_flush", "overlap-p2p-communication-warmup-flush", ON, "off", "") \
  X (CP, "context_parallel_size", "context-parallel-size", INT, "1", "") \
  X (EP, "expert_model_parallel_size", "expert-model-parallel-size", INT, "1", "") \
  X (ETP, "expert_tensor_parallel_size", "expert-tensor-parallel-size", INT, "", "") \
  X (SEQUENCE_PARALLEL, "sequence_parallel", "sequence-parallel", ON, "off", "") \
  X (TP_COMM_OVERLAP, "tp_comm_overlap", "tp-comm-overlap", ON, "off", "") \
  X (MEGATRON_FSDP, "use_megatron_fsdp", "use-megatron-fsdp", ON, "off", "") \
  X (CUSTOM_FSDP, "use_custom_fsdp", "use-custom-fsdp", ON, "off", "") \
  X (FSDP_VERSION, "megatron_fsdp_version", "megatron-fsdp-version", INT, "1", "") \
  X (TORCH_FSDP2, "use_torch_fsdp2", "use-torch-fsdp2", ON, "off", "") \
  X (FSDP2_RESHARD, "torch_fsdp2_reshard_after_forward", "torch-fsdp2-no-reshard-after-forward", OFF, "on", "") \
  X (DISTRIBUTED_OPTIMIZER, "use_distributed_optimizer", "use-distributed-optimizer", ON, "off", "") \
  X (STRATEGY, "data_parallel_sharding_strategy", "data-parallel-sharding-strategy", WORD, "optim_grads_params", "no_shard|optim|optim_grads|optim_grads_params") \
  X (OPTIMIZER_INSTANCES, "num_distributed_optimizer_instances", "num-distributed-optimizer-instances", INT, "1", "") \
  X (OUTER_STRATEGY, "outer_dp_sharding_strategy", "outer-dp-sharding-strategy", WORD, "no_shard", "no_shard|optim") \
  X (CKPT_FORMAT, "ckpt_format", "ckpt-format", TEXT, "torch_dist", "") \
  X (META_DEVICE, "init_model_with_meta_device", "init-model-with-meta-device", ON, "off", "") \
  X (OVERLAP_GRAD_REDUCE, "overlap_grad_reduce", "overlap-grad-reduce", ON, "off", "") \
  X (OVERLAP_PARAM_GATHER, "overlap_param_gather", "overlap-param-gather", ON, "off", "") \
  X (PER_TOKEN_LOSS, "calculate_per_token_loss", "calculate-per-token-loss", ON, "off", "") \
  X (EOD_MASK_LOSS, "eod_mask_loss", "eod-mask-loss", ON, "off", "") \
  X (AVERAGE_IN_COLLECTIVE, "ddp_average_in_collective", "ddp-average-in-collective", ON, "off", "") \
  X (FP32_ACCUMULATION, "ddp_reduce_scatter_with_fp32_accumulation", "ddp-reduce-scatter-with-fp32-accumulation", ON, "off", "") \
  X (NUM_BUCKETS, "ddp_num_buckets", "ddp-num-buckets", INT, "", "") \
  X (GRAD_ACCUM_FUSION, "gradient_accumulation_fusion", "no-gradient-accumulation-fusion", OFF, "on", "") \
  X (NAN_CHECK, "check_for_nan_in_loss_and_grad", "no-check-for-nan-in-loss-and-grad", OFF, "on", "") \
  X (FAKE_GROUP, "fake_process_group", "fake-process-group", ON, "off", "") \
  X (WEIGHT_HASH, "check_weight_hash_across_dp_replicas_interval", "check-weight-hash-across-dp-replicas-interval", INT, "", "") \
  X (COMM_UNIT, "suggested_communication_unit_size", "suggested-communication-unit-size", INT, "", "") \
  X (DOUBLE_BUFFER, "fsdp_double_buffer", "fsdp-double-buffer", ON, "off", "") \
  X (MAX_POOL, "megatron_fsdp_max_pool_double_buffer", "megatron-fsdp-max-pool-double-buffer", ON, "off", "") \
  X (PERSIST_ON_FAIL, "fsdp_db_use_persist_buf_on_alloc_fail", "fsdp-db-use-persist-buf-on-alloc-fail", ON, "off", "") \
  X (NCCL_UB, "nccl_ub", "use-nccl-ub", ON, "off", "") \
  X (MANUAL_REGISTRATION, "fsdp_manual_registration", "fsdp-manual-registration", ON, "off", "") \
  X (NO_SYMMETRIC, "disable_symmetric_registration", "disable-symmetric-registration", ON, "off", "") \
  X (AG_GROUP, "create_all_gather_group", "create-all-gather-group", ON, "off", "") \
  X (KEEP_TRANSPOSE, "keep_fp8_transpose_cache", "keep-fp8-transpose-cache", ON, "off", "") \
  X (USE_SHARP, "use_sharp", "use-sharp", ON, "off", "") \
  X (FINE_GRAINED, "megatron_fsdp_enable_fine_grained_param_gather", "megatron-fsdp-enable-fine-grained-param-gather", ON, "off", "") \
  X (FSDP_MAIN_PARAMS, "megatron_fsdp_main_params_dtype", "megatron-fsdp-main-params-dtype", WORD, "fp32", PLAN_MEGATRON_STATES) \
  X (FSDP_MAIN_GRADS, "megatron_fsdp_main_grads_dtype", "megatron-fsdp-main-grads-dtype", WORD, "auto", PLAN_MEGATRON_STATES) \
  X (FSDP_GRAD_COMM, "megatron_fsdp_grad_comm_dtype", "megatron-fsdp-grad-comm-dtype", WORD, "auto", PLAN_MEGATRON_STATES) \
  X (MAIN_PARAMS, "main_params_dtype", "main-params-dtype", WORD, "fp32", "fp32|fp16") \
  X (MAIN_GRADS, "main_grads_dtype", "main-grads-dtype", WORD, "fp32", "fp32|bf16") \
  X (ACCUMULATE_FP32, "accumulate_allreduce_grads_in_fp32", "accumulate-allreduce-grads-in-fp32", ON, "off", "") \
  X (REDUCE_BF16, "grad_reduce_in_bf16", "grad-reduce-in-bf16", ON, "off", "") \
  X (BF16, "bf16", "bf16", ON, "off", "") \
  X (FP16, "fp16", "fp16", ON, "off", "") \
  X (LOSS_SCALE, "loss_scale", "loss-scale", REAL, "", "") \
  X (FP8, "fp8", "fp8-format", WORD, "", "e4m3|hybrid") \
  X (FP8_RECIPE, "fp8_recipe", "fp8-recipe", WORD, "delayed", "tensorwise|delayed|mxfp8|blockwise|custom") \
  X (FP8_PARAM, "fp8_param_gather", "fp8-param-gather", ON, "off", "") \
  X (FP8_OUTPUT, "fp8_output_proj", "fp8-output-proj", ON, "off", "") \
  X (ENDS_BF16, "first_last_layers_bf16", "first-last-layers-bf16", ON, "off", "") \
  X (FP4, "fp4", "fp4-format", WORD, "", "e2m1") \
  X (FP4_RECIPE, "fp4_recipe", "fp4-recipe", WORD, "nvfp4", "nvfp4|custom") \
  X (FP4_PARAM, "fp4_param_gather", "fp4-param-gather", ON, "off", "") \
  X (REUSE_GRAD_BUFFER, "reuse_grad_buf_for_mxfp8_param_ag", "reuse-grad-buf-for-mxfp8-param-ag", ON, "off", "") \
  X (OPTIMIZER, "optimizer", "optimizer", TEXT, "adam", "") \
  X (PRECISION_AWARE, "use_precision_aware_optimizer", "use-precision-aware-optimizer", ON, "off", "") \
  X (EXP_AVG, "exp_avg_dtype", "exp-avg-dtype", WORD, "fp32", PLAN_MEGATRON_MOMENTS) \
  X (EXP_AVG_SQ, "exp_avg_sq_dtype", "exp-avg-sq-dtype", WORD, "fp32", PLAN_MEGATRON_MOMENTS) \
  X (OPTIMIZER_OFFLOAD, "optimizer_cpu_offload", "optimizer-cpu-offload", ON, "off", "") \
  X (OFFLOAD_FRACTION, "optimizer_offload_fraction", "optimizer-offload-fraction", REAL, "1.0", "") \
  X (RECOMPUTE_ACTIVATIONS, "recompute_activations", "recompute-activations", ON, "off", "") \
  X (RECOMPUTE, "recompute_granularity", "recompute-granularity", WORD, "", "full|selective") \
  X (RECOMPUTE_METHOD, "recompute_method", "recompute-method", WORD, "", "uniform|block") \
  X (RECOMPUTE_LAYERS, "recompute_num_layers", "recompute-num-layers", INT, "", "") \
  X (RECOMPUTE_MODULES, "recompute_modules", "recompute-modules", LIST, "", "core_attn|mlp|layernorm|moe|moe_act|shared_experts|mla_up_proj|gdn_norm_out|gdp_in_proj|gdp_qkv|mhc") \
  X (MOE_LAYER_RECOMPUTE, "moe_layer_recompute", "moe-layer-recompute", ON, "off", "") \
  X (DISTRIBUTE_SAVED, "distribute_saved_activations", "distribute-saved-activations", ON, "off", "") \
  X (OFFLOAD_LAYERS, "cpu_offloading_num_layers", "cpu-offloading-num-layers", INT, "0", "") \
  X (OFFLOAD_ACTIVATIONS, "fine_grained_activation_offloading", "fine-grained-activation-offloading", ON, "off", "") \
  X (OFFLOAD_MODULES, "offload_modules", "offload-modules", LIST, "", "attn_norm|qkv_linear|core_attn|attn_proj|mlp_norm|expert_fc1|moe_act|fused_group_mlp|gdp_qkv") \
  X (CE_FUSION, "cross_entropy_loss_fusion", "cross-entropy-loss-fusion", ON, "off", "") \
  X (CE_IMPL, "cross_entropy_fusion_impl", "cross-entropy-fusion-impl", WORD, "native", "native|te") \
  X (CUDA_GRAPH, "cuda_graph_impl", "cuda-graph-impl", WORD, "none", "none|local|transformer_engine|full_iteration") \
  X (CUDA_GRAPH_MODULES, "cuda_graph_modules", "cuda-graph-modules", LIST, "", PLAN_MEGATRON_GRAPHS) \
  X (CUDA_GRAPH_SCOPE, "cuda_graph_scope", "cuda-graph-scope", LIST, "", PLAN_MEGATRON_GRAPHS) \
  X (ENABLE_CUDA_GRAPH, "enable_cuda_graph", "enable-cuda-graph", ON, "off", "") \
  X (EXTERNAL_CUDA_GRAPH, "external_cuda_graph", "external-cuda-graph", ON, "off", "") \
  X (EMPTY_CACHE, "empty_unused_memory_level", "empty-unused-memory-level", WORD, "0", "0|1|2") \
  X (DETERMINISTIC, "deterministic_mode", "deterministic-mode", ON, "off", "") \
  X (TRANSFORMER_IMPL, "transformer_impl", "transformer-impl", TEXT, "transformer_engine", "") \
  X (HYBRID_CP, "hybrid_context_parallel", "hybrid-context-parallel", ON, "off", "") \
  X (MOE_DISPATCHER, "moe_token_dispatcher_type", "moe-token-dispatcher-type", WORD, "allgather", "allgather|alltoall|alltoall_seq|flex") \
  X (MOE_FLEX_BACKEND, "moe_flex_dispatcher_backend", "moe-flex-dispatcher-backend", WORD, "deepep", "deepep|hybridep|ncclep") \
  X (MOE_ENABLE_DEEPEP, "moe_enable_deepep", "moe-enable-deepep", ON, "off", "") \
  X (MOE_GROUPED_GEMM, "moe_grouped_gemm", "moe-grouped-gemm", ON, "off", "") \
  X (MOE_PERMUTE_FUSION, "moe_permute_fusion", "moe-permute-fusion", ON, "off", "") \
  X (MOE_ROUTER_FUSION, "moe_router_fusion", "moe-router-fusion", ON, "off", "") \
  X (MOE_ROUTER_DTYPE, "moe_router_dtype", "moe-router-dtype", WORD, "", "fp32|fp64") \
  X (MOE_CAPACITY, "moe_expert_capacity_factor", "moe-expert-capacity-factor", TEXT, "", "") \
  X (MOE_PAD_TO_CAPACITY, "moe_pad_expert_input_to_capacity", "moe-pad-expert-input-to-capacity", ON, "off", "") \
  X (MOE_DROP, "moe_token_drop_policy", "moe-token-drop-policy", WORD, "probs", "probs|position") \
  X (MOE_SHARED_OVERLAP, "moe_shared_expert_overlap", "moe-shared-expert-overlap", ON, "off", "") \
  X (EP_OVERLAP, "overlap_moe_expert_parallel_comm", "overlap-moe-expert-parallel-comm", ON, "off", "") \
  X (DELAY_WGRAD, "delay_wgrad_compute", "delay-wgrad-compute", ON, "off", "") \
  X (GROUPED_WEIGHT, "moe_single_grouped_weight", "moe-single-grouped-weight", ON, "off", "") \
  X (GROUPED_BIAS, "moe_single_grouped_bias", "moe-single-grouped-bias", ON, "off", "") \
  X (ATTENTION_DROPOUT, "attention_dropout", "attention-dropout", REAL, "0.1", "") \
  X (HIDDEN_DROPOUT, "hidden_dropout", "hidden-dropout", REAL, "0.1", "") \
  X (RAMPUP, "rampup_batch_size", "rampup-batch-size", LIST, "", "") \
  X (STEP_SCHEDULE, "step_batch_size_schedule", "step-batch-size-schedule", TEXT, "", "") \
  X (WORLD_SIZE, "world_size", "", INT, "", "")
/* clang-format on */

#define PLAN_MEGATRON_FLAG_LIST(X) \
  PLAN_MEGATRON_MODEL_FLAGS (X) \
  PLAN_MEGATRON_PLAN_FLAGS (X)
