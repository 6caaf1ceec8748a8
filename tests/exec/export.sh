#!/bin/sh
# Weights are exported under Hugging Face's names and read again: bit for bit, for every family and from
# any sharding. An export that fails leaves nothing behind.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail () { echo "export.sh: $*"; exit 1; }
sizes=layers=2,hidden=32,ffn=48,heads=4,vocab=61,max_seq=32
step="--gbs 6 --seq 8 --db :memory: --lr 0.01"

# compare CHECKPOINT FOLDER: by an independent reader of both, where there is Python
compare ()
{
  ! command -v python3 >"$work/out" || PYTHONDONTWRITEBYTECODE=1 python3 -I "$top_srcdir/tests/exec/export-files.py" "$@"
}

# check MODEL OPTION...: the exported weights are those of the checkpoint; and runs that start from either,
# at a learning rate of 0, export the same weights again
n=0
check ()
{
  model=$1 at=$work/$((n += 1)) still=
  shift
  case $model in
    *glm4_moe*) still="--bias-rate 0" ;; # router biases move at a rate of their own
  esac
  mkdir "$at"
  fsdplan run --model "$model" $step --steps 2 --ranks 2 --save "$at/saved" "$@" >"$work/out"
  fsdplan export "$at/saved" -o "$at/hf" --dtype fp32 --shard-size 10kB >"$work/out"
  compare "$at/saved" "$at/hf"
  fsdplan export "$at/saved" -o "$at/whole/" --dtype fp32 >"$work/out"
  for from in hf saved; do
    fsdplan run --model "$model" $step --steps 1 --ranks 3 --lr 0 $still --set strategy=optim --init "$at/$from" \
      --save "$at/from-$from" >"$work/out"
    grep -qx step=1 "$at/from-$from/manifest"
    fsdplan export "$at/from-$from" -o "$at/again-$from" --dtype fp32 >"$work/out"
    cmp "$at/whole/model.safetensors" "$at/again-$from/model.safetensors" || fail "$model from $from"
  done
}

check family=llama,$sizes,kv_heads=2,tied=on,qkv_bias=on,proj_bias=on,mlp_bias=on --set strategy=optim_grads_params
check family=mistral,$sizes,kv_heads=1,head_dim=6,window=4 --set strategy=optim_grads
check family=qwen2,$sizes,kv_heads=2 --set strategy=optim --set main_params=bf16 --set precision_aware=on
check family=qwen3,$sizes,kv_heads=2,head_dim=16 --set strategy=no_shard
check family=gpt2,$sizes --set strategy=optim_grads_params
check family=gpt2,$sizes,tied=off --set compute=fp32
check family=mixtral,$sizes,kv_heads=2,experts=3 --set strategy=optim_grads_params
check family=qwen3_moe,$sizes,kv_heads=2,head_dim=8,experts=4,topk=3,expert_ffn=10,dense_layers=1 --set strategy=optim
latent=kv_lora=6,nope_dim=6,rope_dim=4,v_dim=5
experts=experts=4,topk=2,expert_ffn=10,shared_ffn=20,dense_layers=1
check family=deepseek_v2,$sizes,$experts,q_lora=7,$latent --set strategy=optim_grads_params
check family=deepseek_v2,$sizes,$experts,q_lora=0,$latent,router_scale=1.5 --set strategy=optim --set tp=2
check family=qwen2_moe,$sizes,kv_heads=2,experts=4,topk=3,expert_ffn=10,shared_ffn=12,dense_layers=1 --set strategy=optim
check family=gpt_oss,$sizes,kv_heads=2,head_dim=8,experts=4,topk=2,window=8 --set strategy=optim
check family=glm4_moe,$sizes,kv_heads=2,head_dim=8,experts=6,topk=2,expert_ffn=10,shared_ffn=10,dense_layers=1,\
router_groups=3,router_group_topk=2,router_scale=2.5 --bias-rate 0.1 --set strategy=optim_grads_params
check family=smollm3,$sizes,kv_heads=2,nope_every=2 --set strategy=optim_grads
for every in 1 2; do
  check family=llama4_text,$sizes,kv_heads=2,head_dim=8,experts=4,expert_ffn=10,shared_ffn=10,window=8,full_every=2,\
nope_every=2,moe_every=$every --set strategy=optim_grads_params
done
check family=gemma2,$sizes,kv_heads=2,head_dim=6,window=4 --set strategy=optim_grads_params
check family=gemma3_text,$sizes,kv_heads=2,head_dim=6,window=4,full_every=2 --set strategy=optim
check family=phi3,$sizes,kv_heads=2,rope_fraction=0.5 --set strategy=optim
check family=gpt_neox,$sizes,rope_fraction=0.5 --set strategy=optim_grads_params
check family=bloom,layers=2,hidden=32,ffn=128,heads=4,vocab=61,max_seq=32 --set strategy=optim_grads_params
check family=falcon,$sizes,kv_heads=1 --set strategy=optim
check family=falcon,$sizes,kv_heads=2,shared_norm=off,qkv_bias=on,proj_bias=on,mlp_bias=on --set strategy=no_shard
check family=mpt,layers=2,hidden=32,ffn=128,heads=4,vocab=61,max_seq=32 --set strategy=optim_grads

# number formats: by default that of products; fp16 if asked for
at=$work/1
fsdplan export "$at/saved" -o "$at/bf16" | grep -q "34 tensors in bf16, 35.0 KiB in 1 file"
fsdplan export "$at/saved" -o "$at/fp16" --dtype fp16 >"$work/out"
fsdplan export "$work/6/saved/step-2.0" -o "$at/unsaid" | grep -q "tensors in fp32"
for form in bf16 fp16; do
  compare "$at/saved" "$at/$form"
done
grep -q '"torch_dtype": "float16"' "$at/fp16/config.json"

# a run from an exported folder, config.json and weights, has the losses of one from the checkpoint
fsdplan run --model "$at/whole" --init "$at/whole" $step --steps 1 --format=csv | cut -d, -f2 >"$work/a"
fsdplan run --model "$at/whole" --init "$at/saved" $step --steps 1 --format=csv | cut -d, -f2 >"$work/b"
cmp "$work/a" "$work/b"

# refused STATUS PATTERN COMMAND...
refused ()
{
  status=0 want=$1 pattern=$2
  shift 2
  "$@" >"$work/out" 2>"$work/err" || status=$?
  grep -q -- "$pattern" "$work/err" && test $status = "$want" || { cat "$work/err"; fail "$status: $*"; }
}
alike=family=llama,layers=2,hidden=32,ffn=48,vocab=61,max_seq=32,tied=on,qkv_bias=on,proj_bias=on,mlp_bias=on
refused 2 "the checkpoint has the weights of another model" \
  fsdplan run --model llama-tiny $step --seq 8 --init "$at/saved"
refused 2 "another model, .*heads=4,kv_heads=2,head_dim=8,.* than this one, .*heads=2,kv_heads=1,head_dim=16," \
  fsdplan run --model "$alike,heads=2,kv_heads=1,head_dim=16" $step --init "$at/saved"
refused 2 "named as llama's have no gate_up of 48 rows, which this model has" \
  fsdplan run --model family=llama,$sizes,kv_heads=2,gated=off $step --init "$at/hf"
mkdir "$work/empty" "$work/full"
fsdplan export "$at/saved" -o "$work/empty" >"$work/out"
refused 2 "$work/empty: is there already, and is not an empty folder" fsdplan export "$at/saved" -o "$work/empty"
refused 1 "$work/full/hf.part-.*/model.safetensors: File too large" \
  sh -c "trap '' XFSZ; ulimit -f 8; fsdplan export '$at/saved' -o '$work/full/hf'"
refused 1 "/dev/full/hf: Not a directory" fsdplan export "$at/saved" -o /dev/full/hf
test -z "$(ls -A "$work/full")" || fail "left behind: $(ls -A "$work/full")"
cp -r "$at/saved" "$work/broken"
printf x >>"$work/broken/step-2.0/rank-1.safetensors"
refused 1 "rank-1.safetensors: is not what the manifest says" fsdplan export "$work/broken" -o "$work/full/hf"
