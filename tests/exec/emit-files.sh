#!/bin/sh
# The files that emit writes for other projects parse, and use only names that the project knows: for
# models and plans of each stack.
set -u
command -v python3 >/dev/null || { echo "no python3"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0
QWEN3=layers=40,hidden=5120,ffn=17408,heads=40,kv_heads=8,head_dim=128,vocab=151936,max_seq=40960,qk_norm=on,norm_eps=1e-06

# check KIND=FILE...
check ()
{
  PYTHONDONTWRITEBYTECODE=1 python3 -I "$top_srcdir/tests/exec/emit-files.py" \
    "$top_srcdir/planner/data/emit-names.txt" "$@"
}

# written KIND MODEL FIELD=VALUE...: one more file for Python to read.
n=0 all=
written ()
{
  kind=$1 plan="--model $2 --cluster dgx-b200:2 --gbs 128 --seq 1024" n=$((n + 1))
  shift 2
  for field; do plan="$plan --set $field"; done
  fsdplan emit --as $kind $plan -o "$work/$n" || { echo "$kind: $plan"; bad=1; }
  all="$all $kind=$work/$n"
}

written torchtitan llama3-8b stack=fsdp2 loss_chunks=8 tp=2 cp=2 dp_outer=2 compile=on
written torchtitan qwen2.5-32b stack=fsdp2 recompute=full compute=mxfp8 strategy=optim_grads
written torchtitan $QWEN3 stack=fsdp2 recompute=selective recompute_modules=op-sac deterministic=on
written torchtitan llama3.2-1b stack=fsdp2 compute=fp32
written torchtitan gpt-oss-20b stack=fsdp2 ep=8 recompute=selective recompute_modules=op-sac
written fsdp2 llama3-70b stack=fsdp2 tp=2 cp=2 dp_outer=2 recompute=selective recompute_modules=op-sac grad_comm=bf16
written fsdp2 gpt2 stack=fsdp2 compute=fp8-tensorwise recompute=full recompute_method=block recompute_layers=3
written fsdp2 llama-tiny stack=fsdp2 seq=128 compile=on tp=2 tp_overlap=async optimizer=sgd per_token_loss=off
written fsdp1 gpt2 stack=fsdp1 dp_outer=2 recompute=selective recompute_modules=op-sac
written fsdp1 llama3-8b stack=fsdp1 strategy=optim_grads recompute=full optimizer=sgd compute=fp16
written accelerate gpt2 stack=fsdp1 dp_outer=2 grad_comm=bf16 recompute=full
written accelerate llama3-70b stack=fsdp2 tp=2 dp_outer=2 grad_comm=bf16 compile=on
written nanotron llama3-8b stack=nanotron strategy=optim tp=2 recompute=full
written nanotron llama-tiny stack=nanotron strategy=no_shard seq=128
written bridge gpt2 nan_check=loss deterministic=on ce_fusion=off recompute=selective recompute_modules=mlp
written bridge qwen2.5-32b stack=megatron strategy=optim tp=2 tp_overlap=ub main_grads=bf16 grad_comm=bf16 \
  reduce_algo=a2a precision_aware=on exp_avg=fp8 exp_avg_sq=bf16 sharp=nvl+ib
written bridge $QWEN3 dp_outer=2 outer_strategy=optim compute=mxfp8 param_gather=mxfp8 double_buffer=max_pool \
  comm_unit=1000000 offload_modules=core_attn cuda_graph=on empty_cache=on
written bridge mistral-7b compute=fp8-delayed param_gather=fp8 keep_transpose=on offload_optimizer=0.5 \
  precision_aware=on recompute=full
written bridge nemotron-3-nano-30b-a3b stack=megatron strategy=optim ep=8 recompute=none
written bridge llama3-8b compute=nvfp4 offload_layers=4 optimizer=sgd main_params=auto

check $all || bad=1

# A name that the project does not know is found.
sed 's/data_parallel_sharding_strategy/data_parallel_sharding_strategi/' "$work/$n" >"$work/wrong"
check bridge="$work/wrong" | grep -q "cfg.ddp has no data_parallel_sharding_strategi" ||
  { echo "a wrong name passes"; bad=1; }
exit $bad
