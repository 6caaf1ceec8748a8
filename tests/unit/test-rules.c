/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/unit/test-plan-case.h"

/* One plan per rule that breaks it; the first message must be that rule's. */
#define GRAPHS "gbs=64 stack=megatron strategy=optim "

static const struct
{
  const char *rule, *cluster, *words;
} broken[] = {
  { "sizes-fit", "dgx-h100", "gbs=8 seq=2147483647" },
  { "sizes-fit", "dgx-h100", "gbs=2147483640 mbs=268435455 seq=1000" },
  { "not-built-yet-micro-batches", "dgx-h100", "gbs=1000000007 tp=8" },
  { "not-built-yet-micro-batches", "dgx-h100", "gbs=131073 tp=8" },
  { "not-built-yet-micro-batches", "dgx-h100",
    "gbs=16386 stack=megatron strategy=optim pp=2 tp=2" },
  { "devices-divide", "dgx-h100", "gbs=8 tp=3" },
  { "devices-divide", "dgx-h100", "gbs=8 tp=4 dp_outer=4" },
  { "devices-divide", "dgx-h100", "gbs=8 tp=2147483647 cp=2147483647 dp_outer=2147483647" },
  { "gbs-divides", "dgx-h100", "gbs=9" },
  { "gbs-divides", "dgx-h100", "gbs=8 mbs=2" },
  { "tp-divides-model", "dgx-h100:2", "gbs=8 tp=16" },
  { "sp-needs-tp", "dgx-h100", "gbs=8 sp=on" },
  { "native-needs-cuda", "mi300x-8x", "gbs=8 stack=native" },
  { "not-built-yet-on-rocm", "mi300x-8x", "gbs=8 cuda_graph=on" },
  { "not-built-yet-on-rocm", "mi300x-8x", "gbs=8 nccl_ub=on" },
  { "not-built-yet-on-rocm", "mi325x-8x", "gbs=8 tp=2 tp_overlap=ub" },
  { "not-built-yet-on-rocm", "mi325x-8x", "gbs=8 compute=fp8-blockwise" },
  { "not-built-yet-on-rocm", "mi325x-8x:2", "gbs=16 sharp=ib" },
  { "compute-needs-rate", "mi325x-8x", "gbs=8 compute=mxfp8" },
  { "compute-needs-rate", "mi325x-8x", "gbs=8 compute=nvfp4" },
  { "sp-divides-seq", "dgx-h100", "gbs=8 tp=2 seq=101" },
  { "pieces-need-sp", "dgx-h100", "gbs=8 tp=2 sp=off tp_overlap=ub" },
  { "pieces-need-links", "gh200-1x:2", "gbs=8 tp=2 tp_overlap=ub" },
  { "cp-divides-seq", "dgx-h100", "gbs=8 cp=2 seq=102" },
  { "ep-needs-experts", "dgx-h100", "gbs=8 ep=2" },
  { "fsdp-has-no-pipeline", "dgx-h100", "gbs=8 pp=2" },
  { "pp-fields-need-pp", "dgx-h100", "gbs=8 pp_first_layers=2" },
  { "pp-fields-need-pp", "dgx-h100", "gbs=8 stack=megatron strategy=optim pp_count_loss=on" },
  { "pp-fields-need-pp", "dgx-h100", "gbs=8 stack=native pp_schedule=afab" },
  { "megatron-has-no-afab", "dgx-h100",
    "gbs=8 stack=megatron strategy=optim pp=2 pp_schedule=afab" },
  { "not-built-yet-looped-afab", "dgx-h100",
    "gbs=8 stack=fsdp2 strategy=optim_grads pp=2 vpp=2 pp_schedule=afab" },
  { "pp-overlap-needs-vpp", "dgx-h100",
    "gbs=16 stack=megatron strategy=optim pp=4 pp_overlap=off" },
  { "pp-overlap-needs-vpp", "dgx-h100",
    "gbs=16 stack=megatron strategy=optim pp=4 pp_overlap=warmup_flush" },
  { "not-built-yet-overlap-of-two", "dgx-h100",
    "gbs=16 stack=megatron strategy=optim pp=2 vpp=2 pp_overlap=warmup_flush" },
  { "pp-overlap-of-stack", "dgx-h100",
    "gbs=16 stack=fsdp2 strategy=optim_grads pp=4 vpp=2 pp_overlap=warmup_flush" },
  { "pp-overlap-of-stack", "dgx-h100",
    "gbs=16 stack=native strategy=optim pp=4 vpp=2 pp_overlap=off" },
  { "pp-overlap-needs-stages", "dgx-h100",
    "gbs=16 stack=megatron strategy=optim pp=2 vpp=2 pp_overlap=off" },
  { "pp-ends", "dgx-h100",
    "gbs=8 stack=megatron strategy=optim pp=2 pp_last_layers=1 pp_count_embedding=on" },
  { "nanotron-stages", "dgx-h100", "gbs=8 stack=nanotron strategy=optim pp=2 pp_last_layers=1" },
  { "pp-last-short", "dgx-h100", "gbs=8 stack=megatron strategy=optim pp=2 pp_last_short=2" },
  { "pp-last-short", "dgx-h100", "gbs=8 stack=megatron strategy=optim pp=2 vpp=2 pp_last_short=1" },
  { "pp-layout-alone", "dgx-h100",
    "gbs=8 stack=megatron strategy=optim pp=2 pp_count_loss=on pp_layout=Et*15|t*17L" },
  { "pp-fields-need-pp", "dgx-h100", "gbs=8 stack=megatron strategy=optim pp_layout=Et*32L" },
  { "nanotron-stages", "dgx-h100",
    "gbs=8 stack=nanotron strategy=optim pp=2 pp_layout=Et*15|t*17L" },
  { "pp-layout-stages", "dgx-h100",
    "gbs=8 stack=megatron strategy=optim pp=2 pp_layout=Et*15|t*7|t*10L" },
  { "pp-layout-layers", "dgx-h100",
    "gbs=8 stack=megatron strategy=optim pp=2 pp_layout=Et*15|t*18L" },
  { "pp-layout-layers", "dgx-h100",
    "gbs=8 stack=megatron strategy=optim pp=2 pp_layout=Et*15|t*17mL" },
  { "pp-divides", "dgx-h100", "gbs=8 stack=megatron strategy=optim pp=8 pp_count_loss=on" },
  { "pp-divides", "dgx-h100", "gbs=8 stack=megatron strategy=optim pp=2 pp_first_layers=400" },
  { "pp-fields-need-pp", "dgx-h100", "gbs=8 stack=megatron strategy=optim vpp=2" },
  { "pp-divides", "dgx-h100", "gbs=8 stack=megatron strategy=optim pp=2 vpp=3" },
  { "pp-divides", "dgx-h100", "gbs=8 stack=megatron strategy=optim pp=2 vpp=2147483647" },
  { "pp-divides", "dgx-h100",
    "gbs=8 stack=megatron strategy=optim pp=2 vpp=2 pp_first_layers=15 pp_last_layers=17" },
  { "nanotron-stages", "dgx-h100", "gbs=8 stack=nanotron strategy=optim pp=2 vpp=2" },
  { "pp-group-needs-vpp", "dgx-h100", "gbs=8 stack=megatron strategy=optim pp=2 pp_group=2" },
  { "pp-group", "dgx-h100", "gbs=8 stack=megatron strategy=optim pp=4 vpp=2 mbs=2" },
  { "pp-group", "dgx-h100", "gbs=16 stack=megatron strategy=optim pp=4 vpp=2 pp_group=3" },
  { "pp-group", "dgx-h100", "gbs=18 stack=megatron strategy=optim pp=4 vpp=2" },
  { "pp-group", "dgx-h100",
    "gbs=16 stack=megatron strategy=optim pp=4 vpp=2 pp_group=1000000000000000" },
  { "pp-group", "dgx-h100", "gbs=20 stack=megatron strategy=optim pp=4 vpp=2 pp_group=8" },
  { "recompute-within-stage", "dgx-h100",
    "gbs=8 stack=megatron strategy=optim pp=2 vpp=4 recompute=full recompute_layers=5" },
  { "recompute-within-stage", "dgx-h100",
    "gbs=8 stack=megatron strategy=optim pp=2 vpp=2 recompute=full recompute_layers=11 "
    "pp_layout=Et*10|t*7|t*9|t*6L" },
  { "not-built-yet-empty-stages", "dgx-h100",
    "gbs=8 stack=megatron strategy=optim pp=2 pp_layout=Et*15|t*10||t*7L" },
  { "recompute-within-stage", "dgx-h100",
    "gbs=8 stack=megatron strategy=optim pp=2 recompute=full recompute_layers=20" },
  { "pp-divides", "dgx-h100",
    "gbs=8 stack=nanotron strategy=optim pp=2 pp_first_layers=1000000000000000" },
  { "nanotron-micro-batches", "dgx-h100", "gbs=2 stack=nanotron strategy=optim pp=4" },
  { "torch-stages", "dgx-h100",
    "gbs=16 stack=fsdp2 strategy=optim_grads pp=2 vpp=2147483647 pp_count_loss=on" },
  { "torch-stages", "dgx-h100",
    "gbs=16 stack=fsdp2 strategy=optim_grads pp=4 vpp=2 pp_last_short=6" },
  { "torch-micro-batches", "dgx-h100", "gbs=6 stack=fsdp2 strategy=optim_grads pp=4" },
  { "torch-rounds", "dgx-h100", "gbs=16 stack=fsdp2 strategy=optim_grads pp=4 vpp=2 pp_group=8" },
  { "torch-stages-sync-last", "dgx-h100",
    "gbs=8 stack=fsdp2 strategy=optim_grads pp=2 grad_sync=last" },
  { "not-built-yet-torch-resharding", "dgx-h100", "gbs=8 stack=fsdp2 pp=2" },
  { "not-built-yet-pp", "dgx-h100", "gbs=8 stack=fsdp1 pp=2" },
  { "not-built-yet-empty-stages", "dgx-h100",
    "gbs=8 stack=megatron strategy=optim pp=4 pp_first_layers=16 pp_last_layers=16" },
  { "not-built-yet-with-pp", "dgx-h100", "gbs=8 stack=megatron strategy=optim pp=2 cuda_graph=on" },
  { "not-built-yet-with-pp", "dgx-h100", "gbs=8 stack=megatron strategy=optim pp=2 task=eval" },
  { "not-built-yet-with-pp", "dgx-h100",
    "gbs=8 stack=megatron strategy=optim pp=2 offload_layers=1" },
  { "not-built-yet-with-pp", "dgx-h100",
    "gbs=8 stack=native strategy=optim pp=2 offload_layers=1" },
  { "hfsdp-needs-full-sharding", "dgx-h100",
    "gbs=8 dp_outer=2 outer_strategy=optim strategy=optim" },
  { "hfsdp-needs-replicas", "dgx-h100", "gbs=8 outer_strategy=optim" },
  { "hfsdp-needs-shards", "dgx-h100", "gbs=8 dp_outer=8 outer_strategy=optim" },
  { "hfsdp-needs-per-token-loss", "dgx-h100",
    "gbs=8 dp_outer=2 outer_strategy=optim per_token_loss=off" },
  { "hybrid-needs-overlap", "dgx-h100",
    "gbs=8 dp_outer=2 strategy=optim overlap_grad_reduce=off overlap_param_gather=off" },
  { "ag-group-needs-one-group", "dgx-h100", "gbs=8 dp_outer=2 ag_group=on" },
  { "gather-overlap-needs-reduce-overlap", "dgx-h100", "gbs=8 overlap_grad_reduce=off" },
  { "compute-needs-rate", "dgx-h100", "gbs=8 compute=mxfp8" },
  { "compute-needs-rate", "dgx-a100", "gbs=8 compute=fp8-delayed" },
  { "compute-needs-rate", "dgx-h200", "gbs=8 compute=nvfp4" },
  { "fp8-gather-needs-fp8", "dgx-h100", "gbs=8 param_gather=fp8" },
  { "mxfp8-gather-needs-mxfp8", "dgx-h100", "gbs=8 param_gather=mxfp8" },
  { "nvfp4-gather-is-native", "dgx-b200", "gbs=8 compute=nvfp4 param_gather=nvfp4" },
  { "nvfp4-gather-needs-nvfp4", "dgx-b200", "gbs=8 stack=native param_gather=nvfp4" },
  { "quantised-params-need-sharding", "dgx-h100",
    "gbs=8 strategy=no_shard compute=fp8-delayed param_gather=fp8" },
  { "quantised-params-need-full-sharding", "dgx-h100",
    "gbs=8 strategy=optim compute=fp8-delayed param_gather=fp8" },
  { "quantised-params-need-main", "dgx-h100",
    "gbs=8 compute=fp8-delayed param_gather=fp8 main_params=auto" },
  { "blockwise-outgrows-pool", "dgx-h100",
    "gbs=8 compute=fp8-blockwise param_gather=fp8 nccl_ub=on" },
  { "keep-transpose-needs-fp8-params", "dgx-h100", "gbs=8 keep_transpose=on" },
  { "mxfp8-selective-needs-fine-grained", "dgx-b200",
    "gbs=8 stack=native compute=mxfp8 param_gather=mxfp8 recompute=selective" },
  { "fp8-needs-aligned-shapes", "dgx-h100", "gbs=8 compute=fp8-delayed seq=1032" },
  { "fp8-needs-aligned-shapes", "dgx-b200", "gbs=8 compute=mxfp8 seq=1040" },
  { "fine-grained-since-2026-05-20", "dgx-h100",
    "gbs=8 fine_grained=on stack=megatron-fsdp@2026-05-19" },
  { "max-pool-since-2026-07-02", "dgx-h100",
    "gbs=8 double_buffer=max_pool stack=megatron-fsdp@core_v0.18.0" },
  { "precision-aware-needs-adam", "dgx-h100", "gbs=8 precision_aware=on optimizer=sgd" },
  { "moments-need-precision-aware", "dgx-h100", "gbs=8 exp_avg=bf16" },
  { "moments-need-precision-aware", "dgx-h100", "gbs=8 exp_avg_sq=fp8" },
  { "fused-masters-need-precision-aware", "dgx-h100", "gbs=8 fused_masters=on" },
  { "fused-masters-before-2026-04-10", "dgx-h100", "gbs=8 fused_masters=on precision_aware=on" },
  { "fused-masters-before-2026-04-10", "dgx-h100",
    "gbs=8 fused_masters=on precision_aware=on stack=megatron-fsdp@2026-04-10" },
  { "offload-needs-precision-aware", "dgx-h100", "gbs=8 offload_optimizer=0.5" },
  { "offload-of-fp8-is-delayed", "dgx-h100",
    "gbs=8 offload_optimizer=1 precision_aware=on compute=fp8-tensorwise param_gather=fp8" },
  { "recompute-modules-are-selective", "dgx-h100", "gbs=8 recompute_modules=mlp" },
  { "selective-needs-modules", "dgx-h100", "gbs=8 recompute=selective recompute_modules=none" },
  { "recompute-modules-exist", "dgx-h100", "gbs=8 recompute=selective recompute_modules=mlp+moe" },
  { "norms-not-with-delayed", "dgx-h100",
    "gbs=8 compute=fp8-delayed recompute=selective recompute_modules=layernorm" },
  { "recompute-method-is-full", "dgx-h100", "gbs=8 recompute_method=block" },
  { "recompute-method-is-full", "dgx-h100", "gbs=8 recompute=selective recompute_layers=2" },
  { "recompute-layers-exist", "dgx-h100", "gbs=8 recompute=full recompute_layers=33" },
  { "offload-layers-exist", "dgx-h100", "gbs=8 offload_layers=33" },
  { "offload-layers-or-recompute", "dgx-h100", "gbs=8 offload_layers=1 recompute=full" },
  { "offload-layers-or-cuda-graph", "dgx-h100", "gbs=8 offload_layers=1 cuda_graph=on" },
  { "offload-layers-or-modules", "dgx-h100", "gbs=8 offload_layers=1 offload_modules=mlp_norm" },
  { "not-built-yet-offload-of-checkpoints", "dgx-h100",
    "gbs=8 offload_modules=attn_norm recompute=full" },
  { "not-built-yet-offload-of-checkpoints", "dgx-h100",
    "gbs=8 stack=megatron strategy=optim offload_modules=core_attn recompute=selective" },
  { "offload-proj-needs-core", "dgx-h100", "gbs=8 offload_modules=attn_proj" },
  { "loss-chunks-of-stack", "dgx-h100", "gbs=8 loss_chunks=2" },
  { "loss-chunks-of-stack", "dgx-h100", "gbs=8 stack=fsdp2@2026-04-26 loss_chunks=2" },
  { "loss-chunks-divide", "dgx-h100", "gbs=8 stack=fsdp2 seq=100 loss_chunks=8" },
  { "loss-chunks-divide", "dgx-h100", "gbs=8 stack=native seq=100 loss_chunks=8" },
  { "loss-chunks-divide", "dgx-h100", "gbs=8 stack=native seq=32 cp=8 loss_chunks=8" },

  { "ddp-shards-the-optimizer", "dgx-h100", "gbs=8 stack=megatron" },
  { "ddp-shards-the-optimizer", "dgx-h100", "gbs=8 stack=nanotron strategy=optim_grads" },
  { "torch-shards-gradients", "dgx-h100", "gbs=8 stack=fsdp2 strategy=optim" },
  { "torch-shards-gradients", "dgx-h100", "gbs=8 stack=fsdp1 strategy=no_shard" },
  { "buffers-are-megatron-fsdp-s", "dgx-h100", "gbs=8 stack=fsdp2 double_buffer=on" },
  { "foreach-is-torch-s", "dgx-h100", "gbs=16 adam_foreach=on" },
  { "foreach-is-torch-s", "dgx-h100",
    "gbs=16 stack=fsdp2 exp_avg=bf16 exp_avg_sq=bf16 adam_foreach=on" },
  { "whole-gradients-are-torch-s", "dgx-h100", "gbs=16 grad_sync=last" },
  { "buffers-are-megatron-fsdp-s", "dgx-h100", "gbs=8 stack=megatron strategy=optim comm_unit=5" },
  { "hfsdp-is-megatron-fsdp-s", "dgx-h100", "gbs=8 stack=fsdp2 dp_outer=2 outer_strategy=optim" },
  { "optimizer-is-megatron-s", "dgx-h100", "gbs=8 stack=fsdp2 precision_aware=on" },
  { "optimizer-is-megatron-s", "dgx-h100",
    "gbs=8 stack=nanotron strategy=optim grad_accum_fusion=on" },
  { "activation-offload-is-megatron-s", "dgx-h100", "gbs=8 stack=fsdp1 offload_layers=1" },
  { "quantised-gather-of-stack", "dgx-h100",
    "gbs=8 stack=fsdp2 compute=fp8-tensorwise param_gather=fp8" },
  { "moments-of-stack", "dgx-h100", "gbs=8 stack=fsdp2 exp_avg=bf16" },
  { "moments-of-stack", "dgx-h100", "gbs=8 stack=fsdp2 exp_avg=fp8 exp_avg_sq=fp8" },
  { "moments-of-stack", "dgx-h100", "gbs=8 stack=fsdp2@2026-04-14 exp_avg=bf16 exp_avg_sq=bf16" },
  { "moments-of-stack", "dgx-h100", "gbs=8 stack=fsdp1 exp_avg=bf16 exp_avg_sq=bf16" },
  { "moments-of-stack", "dgx-h100", "gbs=8 stack=fsdp2 main_params=bf16 main_grads=bf16" },
  { "moments-of-stack", "dgx-h100",
    "gbs=8 stack=nanotron strategy=optim exp_avg=bf16 exp_avg_sq=bf16" },
  { "compute-of-stack", "dgx-h100", "gbs=8 stack=nanotron strategy=optim compute=fp16" },
  { "compute-of-stack", "dgx-h100", "gbs=8 stack=fsdp2 compute=fp8-delayed" },
  { "compute-of-stack", "dgx-h100", "gbs=8 stack=fsdp1 compute=fp8-tensorwise" },
  { "torch-overlaps", "dgx-h100", "gbs=8 stack=fsdp2 overlap_param_gather=off" },
  { "chunks-are-megatron-s", "dgx-h100", "gbs=8 stack=fsdp2 recompute=full recompute_layers=2" },
  { "selective-is-op-sac", "dgx-h100", "gbs=8 stack=fsdp2 recompute=selective" },
  { "selective-is-op-sac", "dgx-h100",
    "gbs=8 stack=nanotron strategy=optim recompute=selective recompute_modules=mlp" },
  { "op-sac-is-torch-s", "dgx-h100", "gbs=8 recompute=selective recompute_modules=op-sac" },
  { "nanotron-gradients-are-fp32", "dgx-h100",
    "gbs=8 stack=nanotron strategy=optim grad_comm=bf16" },
  { "nanotron-gradients-are-fp32", "dgx-h100",
    "gbs=8 stack=nanotron strategy=optim reduce_algo=a2a" },
  { "nanotron-has-one-group", "dgx-h100", "gbs=8 stack=nanotron strategy=optim dp_outer=2" },
  { "flat-parameters-are-whole", "dgx-h100", "gbs=8 stack=fsdp1 tp=2" },
  { "graphs-recompute-no-dropout", "dgx-h100",
    "gbs=8 cuda_graph=on recompute=selective recompute_modules=mlp hidden_dropout=0.1" },
  { "graphs-recompute-no-dropout", "dgx-h100",
    "gbs=8 stack=megatron cuda_graph=on recompute=selective recompute_modules=core_attn "
    "attention_dropout=0.1 strategy=optim" },
  { "graphs-are-megatron-s", "dgx-h100", "gbs=8 stack=fsdp2 cuda_graph=on" },
  { "graph-modules-are-megatron-s", "dgx-h100", "gbs=8 stack=fsdp2 graph_modules=attn" },
  { "graph-modules-are-megatron-s", "dgx-h100", "gbs=8 stack=native graph_modules=attn" },
  { "graph-modules-or-step", "dgx-h100", GRAPHS "cuda_graph=on graph_modules=attn" },
  { "graph-modules-exist", "dgx-h100", GRAPHS "graph_modules=attn+mamba" },
  { "graph-modules-exist", "dgx-h100", GRAPHS "graph_modules=moe_router" },
  { "graph-modules-within-recompute", "dgx-h100", GRAPHS "graph_modules=attn recompute=full" },
  { "graph-modules-recompute-no-dropout", "dgx-h100",
    GRAPHS "graph_modules=attn recompute=selective recompute_modules=core_attn "
           "attention_dropout=0.1" },
  { "graph-modules-recompute-no-dropout", "dgx-h100",
    GRAPHS "graph_modules=mlp recompute=selective recompute_modules=mlp hidden_dropout=0.1" },
  { "graph-modules-or-offload-layers", "dgx-h100", GRAPHS "graph_modules=attn offload_layers=1" },
  { "not-built-yet-graph_modules", "dgx-h100", "gbs=8 graph_modules=attn" },
  { "not-built-yet-graph_modules", "dgx-h100",
    GRAPHS "graph_modules=attn offload_modules=core_attn" },
  { "not-built-yet-graph_modules", "dgx-h100", GRAPHS "graph_modules=attn doc_tokens=100" },
  { "not-built-yet-graph_modules", "dgx-h100", GRAPHS "graph_modules=attn task=eval" },
  { "megatron-empties-its-cache", "dgx-h100", "gbs=8 stack=fsdp2 empty_cache=on" },
  { "async-is-compiled", "dgx-h100", "gbs=8 stack=fsdp2 tp=2 tp_overlap=async" },
  { "user-buffers-are-transformer-engine-s", "dgx-h100", "gbs=8 stack=fsdp2 tp=2 tp_overlap=ub" },
  { "nanotron-drops-nothing", "dgx-h100",
    "gbs=8 stack=nanotron strategy=optim hidden_dropout=0.1" },
  { "nanotron-recomputes-all", "dgx-h100",
    "gbs=8 stack=nanotron strategy=optim recompute=full recompute_method=block" },
  { "documents-of-stack", "dgx-h100", "gbs=8 stack=fsdp2 doc_tokens=100" },
  { "compile-is-fsdp2", "dgx-h100", "gbs=8 compile=on" },
  { "mxfp8-recomputes-all", "dgx-b200",
    "gbs=8 stack=fsdp2 compute=mxfp8 recompute=full recompute_method=block recompute_layers=2" },
  { "all-to-all-of-stack", "dgx-h100", "gbs=8 reduce_algo=a2a" },
  { "all-to-all-of-stack", "dgx-h100", "gbs=8 stack=fsdp2 reduce_algo=a2a" },
  { "all-to-all-sums-halves", "dgx-h100", "gbs=8 stack=megatron strategy=optim reduce_algo=a2a" },
  { "all-to-all-sums-halves", "dgx-h100",
    "gbs=8 stack=megatron strategy=optim dp_outer=2 reduce_algo=a2a main_grads=bf16 "
    "grad_comm=bf16" },
  { "all-to-all-sums-halves", "dgx-h100",
    "gbs=8 stack=megatron strategy=no_shard reduce_algo=a2a main_grads=bf16 grad_comm=bf16" },
  { "sharded-gradients-overlap", "dgx-h100",
    "gbs=8 strategy=optim_grads overlap_grad_reduce=off overlap_param_gather=off" },
  { "sharded-params-overlap", "dgx-h100", "gbs=8 overlap_param_gather=off" },
  { "megatron-main-params", "dgx-h100", "gbs=8 stack=megatron strategy=optim main_params=auto" },
  { "megatron-main-params", "dgx-h100", "gbs=8 stack=megatron strategy=optim main_params=fp16" },
  { "megatron-main-grads", "dgx-h100",
    "gbs=8 stack=megatron strategy=optim main_grads=fp16 grad_comm=fp16" },
  { "megatron-main-grads", "dgx-h100", "gbs=8 stack=megatron strategy=optim grad_comm=bf16" },
  { "megatron-optimizer-is-distributed", "dgx-h100",
    "gbs=8 stack=megatron strategy=no_shard dp_outer=2" },
  { "megatron-optimizer-is-distributed", "dgx-h100",
    "gbs=8 stack=megatron strategy=no_shard precision_aware=on" },
  { "transposes-are-megatron-fsdp-s", "dgx-h100",
    "gbs=8 stack=megatron strategy=optim compute=fp8-delayed param_gather=fp8 keep_transpose=on" },
  { "megatron-checks-the-loss", "dgx-h100",
    "gbs=8 stack=megatron strategy=optim nan_check=params" },
  { "nan-check-needs-the-host", "dgx-h100", "gbs=8 nan_check=loss compute=fp16" },
  { "nan-check-needs-the-host", "dgx-h100", "gbs=8 nan_check=loss cuda_graph=on" },
  { "te-loss-was-megatron-s", "dgx-h100", "gbs=8 ce_fusion=te" },
  { "deterministic-sums-in-one-order", "dgx-h100", "gbs=8 deterministic=on" },
  { "deterministic-sums-in-one-order", "dgx-h100",
    "gbs=8 deterministic=on ce_fusion=off sharp=nvl" },
  { "deterministic-sums-in-one-order", "dgx-h100",
    "gbs=8 deterministic=on ce_fusion=off tp=2 tp_overlap=ub" },
  { "last-layer-stays", "dgx-h100", "gbs=8 offload_layers=32" },
  { "not-built-yet-unit", "dgx-h100", "gbs=8 unit=block" },
  { "not-built-yet-documents", "dgx-h100", "gbs=8 cp=2 doc_tokens=100" },
  { "not-built-yet-recompute-modules", "dgx-h100",
    "gbs=8 stack=native recompute=selective recompute_modules=layernorm" },
};

static const PlanRule *
rule_named (const char *name)
{
  for (guint i = 0; i < plan_rules_n (); i++)
    if (g_str_equal (plan_rules_get (i)->name, name))
      return plan_rules_get (i);
  ck_abort_msg ("no rule %s", name);
}

START_TEST (rule_speaks)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *start = g_strdup_printf ("rule %s: ", broken[_i].rule);
  const PlanRule *rule = rule_named (broken[_i].rule);
  Plan plan;
  ck_assert (!resolve (MODEL, broken[_i].cluster, broken[_i].words, &plan, &error));
  ck_assert_msg (g_str_has_prefix (error->message, start), "%s", error->message);
  ck_assert (g_error_matches (error, PLAN_ERROR, (int)rule->code));
  ck_assert_msg (strstr (error->message, rule->reason), "%s", error->message);
  ck_assert_msg (strstr (error->message, rule->citation), "%s", error->message);
}
END_TEST

/* Models that can be described, but not planned yet, or not with these settings. */
static const struct
{
  const char *rule, *model, *words;
} unplanned[] = {
#define LATENT \
  "family=llama,layers=4,hidden=64,ffn=256,heads=4,kv_lora=8,nope_dim=4,rope_dim=4,v_dim=4,vocab=" \
  "64," \
  "max_seq=64"
#define FALCON "family=falcon,layers=4,hidden=64,ffn=256,heads=4,kv_heads=2,vocab=64,max_seq=64"
  { "torch-stages-are-untied", "gpt2", "gbs=64 stack=fsdp2 strategy=optim_grads pp=2" },
  { "not-built-yet-cuda_graph-of-experts", "mixtral-8x7b", "gbs=64 stack=native cuda_graph=on" },
  { "graph-modules-exist", "mixtral-8x7b", GRAPHS "graph_modules=attn+mlp" },
  { "graph-moe-or-router", "mixtral-8x7b", GRAPHS "graph_modules=moe+moe_router" },
  { "graph-preprocess-needs-router", "mixtral-8x7b", GRAPHS "graph_modules=moe_preprocess" },
  { "graph-moe-needs-padding", "mixtral-8x7b", GRAPHS "graph_modules=moe moe_capacity=1" },
  { "graph-preprocess-does-not-wait", "mixtral-8x7b",
    GRAPHS "graph_modules=moe_router+moe_preprocess moe_capacity=1" },
  { "graph-modules-within-recompute", "mixtral-8x7b",
    GRAPHS "graph_modules=moe_router recompute=selective recompute_modules=moe" },
  { "graph-modules-beside-ep-overlap", "deepseek-v3",
    GRAPHS "ep=8 graph_modules=mlp ep_overlap=on grad_accum_fusion=on" },
  { "graph-modules-beside-ep-overlap", "mixtral-8x7b",
    "gbs=64 ep=8 graph_modules=attn ep_overlap=on" },
  { "graph-modules-delay-wgrad", "mixtral-8x7b",
    GRAPHS "ep=8 graph_modules=attn ep_overlap=on ep_delay_wgrad=on grad_accum_fusion=off" },
  { "not-built-yet-with-delta", "qwen3-next-80b-a3b", GRAPHS "ep=8 graph_modules=attn" },
  { "not-built-yet-offload-of-experts", "mixtral-8x7b", "gbs=64 stack=native offload_layers=1" },
  { "not-built-yet-compute-of-experts", "deepseek-v2-lite", "gbs=64 compute=fp8-delayed" },
  { "not-built-yet-experts-of-stack", "deepseek-v3,mtp=0", "gbs=64 stack=fsdp1" },
  { "not-built-yet-latent-split", "deepseek-v3,mtp=0", "gbs=64 cp=2" },
  { "not-built-yet-latent-split", "deepseek-v3,mtp=0", "gbs=64 tp=2 stack=fsdp2" },
  { "not-built-yet-latent-split", LATENT, "gbs=64 tp=2 sp=off stack=native" },
  { "not-built-yet-full-norms", "minimax-m2", "gbs=64 tp=2 sp=on" },
  { "not-built-yet-shared-norm", FALCON, "gbs=64 tp=2" },
  { "not-built-yet-shared-norm", FALCON, "gbs=64 stack=native compute=fp8-tensorwise" },
  { "not-built-yet-prediction-modules", "deepseek-v3,mtp=2", "gbs=64" },
  { "not-built-yet-prediction-modules", "llama3-8b,mtp=1", "gbs=64" },
  { "not-built-yet-prediction", "deepseek-v3", "gbs=64 stack=fsdp2" },
  { "not-built-yet-prediction", "deepseek-v3", "gbs=63 stack=fsdp2 cp=3" },
  { "not-built-yet-prediction", "deepseek-v3", "gbs=64 hidden_dropout=0.1" },
  { "not-built-yet-model-parts", "mixtral-8x7b,post_norms=on", "gbs=64" },
  { "not-built-yet-shared-gate", "qwen2-57b-a14b", "gbs=64 stack=fsdp2" },
  { "not-built-yet-compute-of-experts", "mixtral-8x7b", "gbs=64 compute=fp8-delayed" },
  { "not-built-yet-double_buffer-of-experts", "deepseek-v3", "gbs=64 double_buffer=max_pool" },
  { "not-built-yet-double_buffer-of-experts", "qwen3-30b-a3b,moe_every=2,dense_layers=1",
    "gbs=64 double_buffer=on" },
  { "not-built-yet-tp_overlap-of-experts", "deepseek-v3,mtp=0", "gbs=64 tp=2 sp=on tp_overlap=ub" },
  { "not-built-yet-cuda_graph-of-experts", "mixtral-8x7b", "gbs=64 cuda_graph=on" },
  { "not-built-yet-task-of-experts", "mixtral-8x7b", "gbs=64 task=eval" },
  { "not-built-yet-offload-of-experts", "mixtral-8x7b", "gbs=64 offload_layers=1" },
  { "not-built-yet-offload-of-experts", "mixtral-8x7b",
    "gbs=64 ep=8 cp=2 ep_overlap=on offload_modules=attn_norm" },
  { "offload-of-experts-needs-experts", "llama3-8b", "gbs=64 offload_modules=moe_act" },
  { "offload-of-experts-needs-grouped-gemm", "mixtral-8x7b",
    "gbs=64 moe_grouped_gemm=off offload_modules=expert_fc1" },
  { "offload-or-recompute-experts", "mixtral-8x7b",
    "gbs=64 offload_modules=moe_act recompute=selective recompute_modules=moe" },
  { "recompute-modules-exist", "mixtral-8x7b",
    "gbs=64 recompute=selective recompute_modules=shared_experts" },
  { "recompute-modules-exist", "mixtral-8x7b",
    "gbs=64 recompute=selective recompute_modules=mla_up_proj" },
  { "seq-within-positions", "gpt2", "gbs=64 seq=1025" },
  { "loss-chunks-of-stack", "gpt2", "gbs=64 stack=fsdp2 loss_chunks=2" },
  { "model-of-megatron-lm", "gemma2-9b", "gbs=64 stack=megatron strategy=optim" },
  { "settings-of-megatron-lm", "gemma2-9b", "gbs=64 comm_unit=1000" },
  { "model-of-nanotron", "qwen3-8b", "gbs=64 stack=nanotron strategy=optim" },
  { "model-of-nanotron", "llama3.1-8b", "gbs=64 stack=nanotron strategy=optim" },
  { "model-of-nanotron", "mixtral-8x7b", "gbs=64 stack=nanotron strategy=optim" },
  { "model-of-nanotron", "mixtral-8x7b", "gbs=63 stack=nanotron ep=16" },
  { "sizes-fit",
    "layers=6000,hidden=64,ffn=64,heads=1,vocab=256,max_seq=128,experts=8,topk=8,expert_ffn=100000",
    "gbs=64 seq=1000000" },
  { "expert-settings-need-experts", "llama3-8b", "gbs=64 etp=2" },
  { "expert-settings-need-experts", "llama3-8b", "gbs=64 moe_imbalance=1.25" },
  { "expert-settings-need-experts", "llama3-8b", "gbs=64 ep_overlap=on" },
  { "ep-divides-experts", "mixtral-8x7b", "gbs=64 ep=16" },
  { "etp-divides-experts", "qwen3-30b-a3b", "gbs=64 etp=5" },
  { "biased-experts-are-whole", "gpt-oss-20b", "gbs=64 etp=2" },
  { "not-built-yet-lone-experts", "mixtral-8x7b",
    "gbs=64 ep=8 etp=4 dp_outer=2 outer_strategy=optim" },
  { "not-built-yet-lone-experts", "qwen3-30b-a3b",
    "gbs=64 stack=native ep=32 dp_outer=2 outer_strategy=optim" },
  { "not-built-yet-sinks", "gpt-oss-20b", "gbs=64 stack=fsdp2 cp=2" },
  { "not-built-yet-delta", "qwen3.5-9b", "gbs=64 stack=native" },
  { "not-built-yet-delta", "qwen3.5-9b", "gbs=64 stack=fsdp2" },
  { "not-built-yet-delta", "llama3-8b,attn_gate=on", "gbs=64 stack=nanotron" },
  { "not-built-yet-delta-of-some", "qwen3-next-80b-a3b,moe_every=2,mtp=0", "gbs=64" },
  { "not-built-yet-delta-of-some", "qwen3-next-80b-a3b,dense_layers=1", "gbs=64" },
  { "not-built-yet-prediction-modules", "qwen3-next-80b-a3b,layers=47", "gbs=64" },
  { "not-built-yet-with-delta", "qwen3.5-9b", "gbs=64 cp=2" },
  { "not-built-yet-with-delta", "qwen3.5-9b", "gbs=64 compute=fp8-delayed" },
  { "not-built-yet-with-delta", "qwen3.5-9b", "gbs=64 deterministic=on ce_fusion=off" },
  { "not-built-yet-with-delta", "qwen3.5-9b", "gbs=64 doc_tokens=64" },
  { "not-built-yet-with-delta", "qwen3.5-9b", "gbs=64 offload_layers=1" },
  { "not-built-yet-pattern", "nemotron-h-8b", "gbs=64 stack=native" },
  { "not-built-yet-pattern", "nemotron-h-8b", "gbs=64 stack=fsdp2" },
  { "not-built-yet-pattern", "nemotron-h-8b", "gbs=64 stack=fsdp1" },
  { "not-built-yet-with-pattern", "nemotron-h-8b", "gbs=64 cp=2" },
  { "not-built-yet-with-pattern", "nemotron-h-8b", "gbs=64 compute=fp16" },
  { "not-built-yet-with-pattern", "nemotron-h-8b", "gbs=64 doc_tokens=64" },
  { "not-built-yet-with-pattern", "nemotron-h-8b", "gbs=64 deterministic=on ce_fusion=off" },
  { "not-built-yet-with-pattern", "nemotron-h-8b",
    "gbs=64 stack=megatron strategy=optim pp=2 vpp=2" },
  { "not-built-yet-expert_hidden", "qwen3-30b-a3b,expert_hidden=512", "gbs=64 stack=fsdp2" },
  { "not-built-yet-expert_hidden", "qwen3-30b-a3b,expert_hidden=512",
    "gbs=64 stack=megatron strategy=optim ep=8 ep_overlap=on" },
  { "not-built-yet-expert_hidden", "qwen3-30b-a3b,expert_hidden=512", "gbs=64 stack=native" },
  { "tp-divides-model", "nemotron-h-8b,ssm_groups=2", "gbs=64 tp=4" },
  { "fp8-needs-aligned-shapes", "nemotron-h-8b,ssm_heads=136",
    "gbs=64 compute=fp8-tensorwise tp=2 sp=on" },
  { "delta-since-2026-01-17", "qwen3.5-9b", "gbs=64 stack=megatron-fsdp@2026-01-16" },
  { "tp-divides-model", "qwen3.5-9b,delta_key_heads=2", "gbs=64 tp=4" },
  { "fp8-needs-aligned-shapes", "qwen3.5-9b,delta_key_dim=101",
    "gbs=64 compute=fp8-tensorwise tp=4" },
  { "not-built-yet-llama4", "llama3-8b,nope_every=4", "gbs=64 stack=fsdp1" },
  { "not-built-yet-llama4", "llama3-8b,qk_l2_norm=all", "gbs=64 stack=fsdp1" },
  { "not-built-yet-llama4", "llama3-8b,window=64,window_chunks=on", "gbs=64 stack=fsdp1" },
  { "not-built-yet-llama4", "mixtral-8x7b,topk=1,scores_on_input=on", "gbs=64 stack=fsdp1" },
  { "not-built-yet-llama4", "llama3-8b,window=64,window_chunks=on", "gbs=64 stack=fsdp2 cp=2" },
  { "not-built-yet-llama4", "llama4-scout", "gbs=64 seq=16384 cp=2" },
  { "not-built-yet-moe_grouped_gemm", "llama4-scout", "gbs=64 moe_grouped_gemm=off" },
  { "not-built-yet-sinks", "gpt-oss-20b", "gbs=64 cp=2" },
  { "not-built-yet-sinks", "gpt-oss-20b", "gbs=64 compute=fp8-tensorwise param_gather=fp8" },
  { "expert-devices-divide", "qwen3-30b-a3b", "gbs=64 ep=128" },
  { "expert-devices-divide", "qwen3-30b-a3b", "gbs=64 ep=32 etp=2 dp_outer=2" },
  { "experts-need-sp", "mixtral-8x7b", "gbs=64 tp=2 sp=off" },
  { "experts-need-sp", "mixtral-8x7b", "gbs=64 stack=native tp=2 sp=off task=eval" },
  { "deepep-needs-ranks", "mixtral-8x7b", "gbs=64 moe_dispatcher=deepep" },
  { "deepep-needs-fp32-scores", "mixtral-8x7b",
    "gbs=64 ep=8 moe_dispatcher=deepep router_dtype=bf16" },
  { "not-built-yet-shared-gradients", "llama3.2-1b",
    "gbs=64 stack=native pp=2 strategy=optim_grads" },
  { "dropping-needs-a-capacity", "mixtral-8x7b", "gbs=64 moe_pad_to_capacity=on" },
  { "dropping-needs-a-capacity", "mixtral-8x7b", "gbs=64 moe_drop=position" },
  { "aux-loss-is-native-s", "mixtral-8x7b", "gbs=64 moe_aux_loss=0.01" },
  { "deepep-pads-nothing", "mixtral-8x7b",
    "gbs=64 ep=2 moe_dispatcher=deepep moe_capacity=1 moe_pad_to_capacity=on" },
  { "padding-is-of-tokens", "mixtral-8x7b", "gbs=64 moe_capacity=4.5 moe_pad_to_capacity=on" },
  { "shared-overlap-needs-both", "mixtral-8x7b", "gbs=64 moe_shared_overlap=on" },
  { "shared-overlap-needs-both", "deepseek-v3",
    "gbs=64 ep=8 moe_shared_overlap=on moe_dispatcher=allgather" },
  { "shared-overlap-needs-one-width", "qwen2-57b-a14b,expert_hidden=512",
    "gbs=64 ep=8 moe_shared_overlap=on" },
  { "shared-overlap-or-recompute", "deepseek-v3",
    "gbs=64 moe_shared_overlap=on recompute=selective recompute_modules=shared_experts" },
  { "moe-act-needs-grouped-gemm", "mixtral-8x7b",
    "gbs=64 moe_grouped_gemm=off recompute=selective recompute_modules=moe_act" },
  { "norms-not-with-delayed", "mixtral-8x7b",
    "gbs=64 compute=fp8-delayed recompute=selective recompute_modules=moe_act" },
  { "fp8-needs-aligned-shapes", "qwen3-30b-a3b", "gbs=64 compute=fp8-delayed etp=64" },
  { "ep-overlap-needs-ep", "mixtral-8x7b", "gbs=64 ep_overlap=on" },
  { "ep-overlap-needs-ep", "mixtral-8x7b", "gbs=64 ep=8 ep_overlap=on compute=fp32" },
  { "ep-overlap-or-recompute", "mixtral-8x7b", "gbs=64 ep=8 ep_overlap=on recompute=full" },
  { "ep-overlap-or-recompute", "mixtral-8x7b",
    "gbs=64 ep=8 ep_overlap=on recompute=selective recompute_modules=moe" },
  { "ep-overlap-alone", "deepseek-v3", "gbs=64 ep=8 ep_overlap=on moe_shared_overlap=on" },
  { "ep-overlap-since-2026-05-16", "mixtral-8x7b",
    "gbs=64 stack=megatron-fsdp@2026-05-15 ep=8 ep_overlap=on" },
  { "ep-overlap-has-no-pool", "mixtral-8x7b", "gbs=64 ep=8 ep_overlap=on double_buffer=on" },
  { "ep-overlap-needs-interleaving", "mixtral-8x7b",
    "gbs=64 stack=megatron strategy=optim ep=8 pp=2 ep_overlap=on" },
  { "module-recomputes-alone", "deepseek-v3",
    "gbs=64 recompute=full recompute_method=uniform recompute_layers=2" },
  { "ep-needs-a-mesh", "mixtral-8x7b", "gbs=64 stack=fsdp1 ep=2" },
  { "expert-settings-are-megatron-s", "mixtral-8x7b", "gbs=64 stack=fsdp2 router_dtype=bf16" },
  { "expert-settings-are-megatron-s", "mixtral-8x7b", "gbs=64 stack=fsdp2 moe_capacity=1.25" },
  { "expert-settings-are-megatron-s", "mixtral-8x7b",
    "gbs=64 stack=fsdp2 ep=2 moe_dispatcher=allgather" },
  { "not-built-yet-etp", "mixtral-8x7b", "gbs=64 ep=2 etp=2 moe_dispatcher=hybridep" },
  { "not-built-yet-moe_dispatcher", "mixtral-8x7b",
    "gbs=64 stack=native moe_dispatcher=allgather" },
  { "not-built-yet-moe_dispatcher", "mixtral-8x7b",
    "gbs=64 stack=native ep=2 moe_dispatcher=deepep" },
  { "not-built-yet-moe_permute_fusion", "mixtral-8x7b",
    "gbs=64 stack=native moe_permute_fusion=off" },
  { "not-built-yet-moe_grouped_gemm", "mixtral-8x7b", "gbs=64 stack=native moe_grouped_gemm=off" },
  { "not-built-yet-moe_grouped_gemm", "mixtral-8x7b",
    "gbs=64 ep=8 compute=fp8-tensorwise moe_grouped_gemm=off" },
  { "not-built-yet-moe_shared_overlap", "deepseek-v3,mtp=0",
    "gbs=64 stack=native moe_shared_overlap=on" },
  { "delay-needs-ep-overlap", "mixtral-8x7b", "gbs=64 ep=8 ep_delay_wgrad=on" },
  { "not-built-yet-ep_overlap", "mixtral-8x7b",
    "gbs=64 ep=8 strategy=optim_grads_params ep_overlap=on compute=fp8-tensorwise "
    "param_gather=fp8" },
};

START_TEST (model_is_not_planned)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *start = g_strdup_printf ("rule %s: ", unplanned[_i].rule);
  const PlanRule *rule = rule_named (unplanned[_i].rule);
  Plan plan;
  ck_assert (!resolve (unplanned[_i].model, "dgx-h100:8", unplanned[_i].words, &plan, &error));
  ck_assert_msg (g_str_has_prefix (error->message, start), "%s", error->message);
  ck_assert (g_error_matches (error, PLAN_ERROR, (int)rule->code));
  const char *change = strchr (unplanned[_i].model, ',');
  if (g_str_equal (rule->name, "not-built-yet-model-parts"))
    ck_assert_msg (strstr (error->message, change ? change + 1 : unplanned[_i].model), "%s",
                   error->message);
}
END_TEST

START_TEST (graphs_need_gpus)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanModel) model = plan_model_new (MODEL, NULL);
  g_autoptr (PlanCluster) cluster = plan_cluster_new ("dgx-h100", NULL);
  const PlanRule *rule = rule_named ("graphs-need-gpus");
  Plan plan, resolved;
  plan_init (&plan);
  ck_assert (plan_set (&plan, "gbs", "8", NULL) && plan_set (&plan, "stack", "native", NULL));
  cluster->kind = PLAN_DEVICE_CPU;
  ck_assert (plan_resolve (&plan, model, cluster, &resolved, NULL));
  ck_assert (plan_set (&plan, "cuda_graph", "on", NULL));
  ck_assert (!plan_resolve (&plan, model, cluster, &resolved, &error));
  ck_assert_msg (strstr (error->message, rule->reason), "%s", error->message);
  g_clear_error (&error);
  ck_assert (plan_set (&plan, "cuda_graph", "off", NULL));
  ck_assert (plan_set (&plan, "graph_modules", "attn", NULL));
  ck_assert (!plan_resolve (&plan, model, cluster, &resolved, &error));
  ck_assert_msg (strstr (error->message, rule->reason), "%s", error->message);
}
END_TEST

/* A rule with a date holds from that date on. */
START_TEST (rules_keep_their_dates)
{
  static const struct
  {
    const char *words;
    gboolean is_legal;
  } dated[] = {
    { "gbs=8 stack=megatron-fsdp@2026-03-31 dp_outer=2 outer_strategy=optim per_token_loss=off",
      TRUE },
    { "gbs=8 stack=megatron-fsdp@2026-04-01 dp_outer=2 outer_strategy=optim per_token_loss=off",
      FALSE },
    { "gbs=8 stack=fsdp2@2026-04-27 loss_chunks=8", TRUE },
  };
  g_autoptr (GError) error = NULL;
  Plan plan;
  ck_assert_int_eq (resolve (MODEL, "dgx-h100", dated[_i].words, &plan, &error),
                    dated[_i].is_legal);
}
END_TEST

START_TEST (message_in_full)
{
  g_autoptr (GError) error = NULL;
  Plan plan;
  ck_assert (!resolve (MODEL, "dgx-h100", "gbs=12", &plan, &error));
  ck_assert_str_eq (
      error->message,
      "rule gbs-divides: gbs must be a multiple of mbs x the data-parallel size (devices "
      "/ tp / cp / pp), so that every rank runs whole micro batches; here gbs=12, mbs=1, "
      "tp=1, cp=1, pp=1 on 8 x h100-80gb; gbs=8 and gbs=16 would do (Megatron-LM "
      "num_microbatches_calculator.py)");
  g_clear_error (&error);
  ck_assert (!resolve (MODEL, "dgx-h100", "gbs=7 mbs=2", &plan, &error));
  ck_assert_ptr_nonnull (strstr (error->message, "on 8 x h100-80gb; gbs=16 would do (Megatron"));
  g_clear_error (&error);
  ck_assert (!resolve (MODEL, "dgx-h100", "gbs=8 unit=block", &plan, &error));
  ck_assert_str_eq (error->message,
                    "rule not-built-yet-unit: only unit = layer is modelled by this version; "
                    "here unit=block (a limit of this version, not of a framework)");
}
END_TEST

/* Plans that no version could run are refused with that reason before those that only this version
 * cannot run yet. */
START_TEST (illegal_comes_before_unbuilt)
{
  gboolean unbuilt = FALSE;
  for (guint i = 0; i < plan_rules_n (); i++)
    {
      const PlanRule *rule = plan_rules_get (i);
      const gboolean is_unbuilt = g_str_has_prefix (rule->name, "not-built-yet-");
      ck_assert (!unbuilt || is_unbuilt);
      ck_assert (!is_unbuilt || rule->code == PLAN_ERROR_UNSUPPORTED);
      unbuilt = is_unbuilt;
      ck_assert_ptr_eq (rule_named (rule->name), rule); /* names are unique */
    }
  ck_assert (unbuilt);
}
END_TEST

/* A rule that only a test of its own breaks, on a cluster of CPUs. */
static const char *const hidden[] = { "graphs-need-gpus", NULL };

START_TEST (every_rule_is_tested)
{
  for (guint i = 0; i < plan_rules_n (); i++)
    {
      const char *name = plan_rules_get (i)->name;
      gboolean found = g_strv_contains (hidden, name);
      for (guint j = 0; j < G_N_ELEMENTS (broken); j++)
        found = found || g_str_equal (broken[j].rule, name);
      for (guint j = 0; j < G_N_ELEMENTS (unplanned); j++)
        found = found || g_str_equal (unplanned[j].rule, name);
      ck_assert_msg (found, "%s has no test", name);
    }
}
END_TEST

static const struct
{
  const char *model, *cluster, *words;
} legal[] = {
  { "gpt2", "dgx-h100", "gbs=64" },
  { "llama4-scout", "dgx-h100:8", "gbs=64 seq=8192 cp=2" },
  { "llama4-scout", "dgx-h100:8", "gbs=64 seq=16384 stack=megatron strategy=optim" },
  { "llama4-maverick", "dgx-h100:8", "gbs=64 seq=16384 stack=fsdp2" },
  { "qwen2.5-7b", "dgx-h100", "gbs=64 seq=4096 tp=2" },
  { "qwen3-8b", "dgx-b200", "gbs=64 compute=nvfp4" },
  { "gemma2-9b", "dgx-h100", "gbs=64 dp_outer=2" },
  { "mistral-7b", "dgx-h100", "gbs=64" },
  { "llama-tiny", "h100-80gb:1", "gbs=1" },
  { "llama3-8b", "dgx-h100", "gbs=128" },
  { "llama3-8b", "dgx-h100:16", "gbs=128 stack=native@2026-11-01" },
  { "llama3-8b", "dgx-h100", "gbs=8 stack=megatron-fsdp@2026-08-22 strategy=no_shard" },
  { "llama3-8b", "dgx-h100", "gbs=8 stack=fsdp2@2026-04-15 exp_avg=bf16 exp_avg_sq=bf16" },
  { "llama3-8b", "dgx-h100",
    "gbs=8 stack=fsdp1 main_params=bf16 main_grads=bf16 exp_avg=bf16 exp_avg_sq=bf16" },
  { "llama3-8b", "dgx-h100", "gbs=8 stack=fsdp2 main_params=bf16 optimizer=sgd" },
  { "llama3-70b", "dgx-h100:8",
    "gbs=128 mbs=2 seq=1024 strategy=optim_grads main_grads=bf16 "
    "grad_comm=bf16" },
  { "llama3.1-405b", "dgx-b200:512", "gbs=4096 comm_unit=1000000 nccl=2.27" },
  { "llama2-7b", "l40s:4", "gbs=16 strategy=optim compute=fp32" },
  { "mistral-7b", "dgx-h100", "gbs=8 seq=4096" }, /* its window is as long as the sequences */
};

START_TEST (legal_plan_passes_and_stays)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanModel) model = plan_model_new (legal[_i].model, NULL);
  g_autoptr (PlanCluster) cluster = plan_cluster_new (legal[_i].cluster, NULL);
  Plan plan, again;
  ck_assert_msg (resolve (legal[_i].model, legal[_i].cluster, legal[_i].words, &plan, &error), "%s",
                 error ? error->message : "");
  ck_assert (plan_resolve (&plan, model, cluster, &again, NULL));
  ck_assert_mem_eq (&plan, &again, sizeof plan);
}
END_TEST

/* Plans for a CPU need no rates. */
START_TEST (cpu_without_rates)
{
  g_autoptr (PlanCluster) cluster
      = plan_cluster_parse ("[here]\ndevices_per_node=2\ndevice=cpu\nkind=cpu\n", "c.ini", NULL);
  g_autoptr (PlanModel) model = plan_model_new ("llama-tiny", NULL);
  const Plan plan = plan_of ("stack=native gbs=4 compute=fp32");
  Plan resolved;
  ck_assert (plan_resolve (&plan, model, cluster, &resolved, NULL));
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("rules");
  TCase *tcase = tcase_create ("rules");
  tcase_add_loop_test (tcase, rule_speaks, 0, G_N_ELEMENTS (broken));
  tcase_add_loop_test (tcase, model_is_not_planned, 0, G_N_ELEMENTS (unplanned));
  tcase_add_loop_test (tcase, rules_keep_their_dates, 0, 3);
  tcase_add_test (tcase, message_in_full);
  tcase_add_test (tcase, illegal_comes_before_unbuilt);
  tcase_add_test (tcase, every_rule_is_tested);
  tcase_add_test (tcase, graphs_need_gpus);
  tcase_add_loop_test (tcase, legal_plan_passes_and_stays, 0, G_N_ELEMENTS (legal));
  tcase_add_test (tcase, cpu_without_rates);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
