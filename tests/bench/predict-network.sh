#!/bin/sh
# How well the model of a network between nodes predicts it: two hosts that are network namespaces, joined at
# so many megabytes per second. Times ops that compute, learns from runs at 5 and 20 MB/s, then predicts
# collectives and steps at 10 and 40 MB/s, and times them. As root, in a store of its own; two minutes, in
# which nothing else should run.
program=$(realpath "$1")
XDG_DATA_HOME=$(mktemp -d) || exit 1
export XDG_DATA_HOME
trap 'rm -rf "$XDG_DATA_HOME"' EXIT
model=layers=2,hidden=128,ffn=384,heads=4,kv_heads=2,head_dim=32,vocab=1024,max_seq=512

# at RATE COMMAND OPTION...: the program on two hosts
at ()
{
  rate=$1 command=$2
  shift 2
  "$program" show --cluster local-cpu:1 --format=ini | sed 's/^\[.*/[played]/; s/^nodes=1$/nodes=2/' >"$XDG_DATA_HOME/$rate.ini"
  printf 'nics_per_node=1\nnic_rate=%s MB/s\nnic_bandwidth=%s MB/s\nnic_latency=30 us\n' "$rate" "$rate" \
    >>"$XDG_DATA_HOME/$rate.ini"
  "$top_srcdir/tests/exec/two-hosts.sh" $((8 * rate))mbit "$program" "$command" --cluster "$XDG_DATA_HOME/$rate.ini" "$@"
}

# steps RATE: each strategy's step, predicted and measured
steps ()
{
  for strategy in optim_grads_params optim no_shard; do
    at "$1" run --model $model --gbs 4 --seq 64 --steps 12 --set strategy=$strategy 2>/dev/null |
      awk -v rate="$1" -v what=$strategy '$1 == "step_ms" { print rate, what, $2, $3, $4 }'
  done
}

at 100 bench --only product,attention,norm,activation,rope,loss,optimizer,copy,reduction,embed,embed_bwd \
  --seconds 10 >/dev/null 2>"$XDG_DATA_HOME/err" || { status=$?; cat "$XDG_DATA_HOME/err"; exit $status; }
{ steps 5; steps 20; } >/dev/null
"$program" calibrate >/dev/null || exit 1

echo "mb_per_s what predicted_ms measured_ms error_pct"
for rate in 10 40; do
  steps $rate
  at $rate bench --only collective --seconds 3 --format=csv 2>/dev/null |
    awk -F, -v rate=$rate '$2 ~ /all_gather|reduce_scatter|all_reduce/ && $3 !~ /count=256 / {
      gsub (" ", "_"); printf "%s %s,%s,%s %.3f %.3f %.1f\n", rate, $2, $3, $4, $10 / 1000, $7 / 1000, 100 * ($10 / $7 - 1) }'
done | tee "$XDG_DATA_HOME/lines"
for what in steps collectives; do
  awk -v what=$what '($2 ~ /count=/) == (what == "collectives") { print $5 < 0 ? -$5 : $5 }' "$XDG_DATA_HOME/lines" | sort -n |
    awk -v what=$what '{ e[NR] = $1 } END {
      if (NR) printf "%s: median error %.1f %%, worst of %d %.1f %%\n", what, (e[int ((NR + 1) / 2)] + e[int (NR / 2) + 1]) / 2, NR, e[NR] }'
done
