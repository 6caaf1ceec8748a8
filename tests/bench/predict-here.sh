#!/bin/sh
# How well steps are predicted on this machine's processors: times its ops, learns from eight runs of
# sharded data parallelism, and then predicts twelve others, with other models, sizes, strategies and
# recomputation, and sixteen that are split in other ways, and times them. In a store of its own; six
# minutes, in which nothing else should run.
program=$1
XDG_DATA_HOME=$(mktemp -d) || exit 1
export XDG_DATA_HOME
trap 'rm -rf "$XDG_DATA_HOME"' EXIT

small=layers=2,hidden=128,ffn=384,heads=4,kv_heads=2,head_dim=32,vocab=1024,max_seq=512
deep=layers=4,hidden=256,ffn=768,heads=8,kv_heads=4,head_dim=32,vocab=2048,max_seq=512
wide=layers=3,hidden=320,ffn=896,heads=5,kv_heads=5,head_dim=64,vocab=1024,max_seq=512
words=layers=6,hidden=192,ffn=512,heads=6,kv_heads=6,head_dim=32,vocab=4096,max_seq=512
gpt2=family=gpt2,layers=3,hidden=192,ffn=768,heads=6,head_dim=32,vocab=2048,max_seq=256
qwen3=family=qwen3,layers=4,hidden=256,ffn=640,heads=4,kv_heads=2,head_dim=64,vocab=2048,max_seq=512
long=layers=2,hidden=256,ffn=768,heads=8,kv_heads=4,head_dim=32,vocab=2048,max_seq=1024
mixtral=family=mixtral,layers=4,hidden=128,ffn=256,heads=4,kv_heads=2,head_dim=32,vocab=1024,max_seq=512,experts=8,topk=2
latent=family=deepseek_v3,layers=4,hidden=128,ffn=512,heads=4,q_lora=64,kv_lora=64,nope_dim=32,rope_dim=16,v_dim=32
latent=$latent,vocab=1024,max_seq=512,experts=8,topk=2,expert_ffn=128,shared_ffn=128,dense_layers=1

# step RANKS MODEL GBS SEQ [--set FIELD=VALUE]...: ranks, predicted and measured ms, error, what it was
step ()
{
  ranks=$1 model=$2 gbs=$3 seq=$4
  shift 4
  "$program" run --ranks "$ranks" --model "$model" --gbs "$gbs" --seq "$seq" --steps 15 "$@" 2>/dev/null |
    awk -v what="$model gbs=$gbs seq=$seq $*" -v ranks="$ranks" \
      '$1 == "step_ms" { print ranks, $2, $3, $4, what }'
}

for ranks in 1 2; do
  "$program" bench --ranks $ranks >/dev/null || exit 1
done
{
  step 1 $small 4 128; step 1 $deep 2 256; step 1 $gpt2 2 128; step 1 $words 4 64
  step 2 $small 8 64; step 2 $deep 4 128; step 2 $wide 4 64; step 2 $words 4 128
} >/dev/null
"$program" calibrate >/dev/null || exit 1
echo "ranks predicted_ms measured_ms error_pct plan"
{
  step 1 $wide 4 128
  step 1 $qwen3 2 256
  step 1 $deep 8 64 --set recompute=full
  step 1 $words 2 256
  step 1 $gpt2 4 256 --set recompute=full
  step 1 $small 16 64
  step 2 $qwen3 4 128 --set strategy=optim
  step 2 $gpt2 4 128 --set strategy=optim --set recompute=full
  step 2 $deep 8 64 --set strategy=optim_grads
  step 2 $small 8 256 --set recompute=full
  step 2 $wide 8 128 --set strategy=no_shard
  step 2 $words 8 64 --set strategy=optim --set recompute=full
} | tee "$XDG_DATA_HOME/sharded"
{
  step 2 $deep 4 256 --set tp=2
  step 2 $gpt2 8 128 --set tp=2 --set sp=on
  step 2 $qwen3 2 512 --set tp=2 --set sp=on --set tp_overlap=async
  step 2 $words 4 256 --set tp=2 --set sp=on --set recompute=full
  step 2 $long 2 1024 --set cp=2
  step 2 $deep 4 512 --set cp=2
  step 2 $deep 8 256 --set pp=2
  step 2 $qwen3 8 128 --set pp=2 --set recompute=full
  step 2 $deep 8 128 --set pp=2 --set vpp=2
  step 2 $mixtral 4 256 --set ep=2 --set moe_imbalance=2
  step 2 $mixtral 8 128 --set ep=2 --set moe_imbalance=2 --set strategy=optim
  step 2 $mixtral 4 128 --set pp=2
  step 2 $latent 4 128 --set ep=2 --set moe_imbalance=2
  step 2 $latent 4 256 --set tp=2
  step 2 $gpt2 4 128 --set hidden_dropout=0.1 --set attention_dropout=0.1
  step 2 $deep 4 256 --set precision_aware=on --set offload_optimizer=0.5
} | tee "$XDG_DATA_HOME/split"
# median WHAT RANKS FILE
median ()
{
  awk -v ranks="$2" '$1 == ranks { print $4 < 0 ? -$4 : $4 }' "$XDG_DATA_HOME/$3" | sort -n |
    awk -v what="$1" '{ e[NR] = $1 } END {
      printf "%s: median error %.1f %%, worst of %d %.1f %%\n", what,
        (e[int ((NR + 1) / 2)] + e[int (NR / 2) + 1]) / 2, NR, e[NR] }'
}
median "1 rank" 1 sharded
median "2 ranks" 2 sharded
median "2 ranks, split in other ways" 2 split
