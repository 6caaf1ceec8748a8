#!/bin/sh
# Ranks that are processes make the same bits as ranks that are threads.
set -eu
command -v mpirun >/dev/null || { echo "no mpirun"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if ! mpirun -n 1 true >"$work/probe" 2>&1; then
  echo "mpirun does not work here:"
  cat "$work/probe"
  exit 77
fi
if mpirun -n 2 fsdplan run --model llama-tiny --gbs 2 --seq 8 --steps 1 --comm mpi --db :memory: \
    2>&1 | grep -q 'built without MPI'; then
  echo "built without MPI"
  exit 77
fi

# same RANKS OPTION...: compares the losses and norms of both, digit by digit
same () {
  ranks=$1
  shift
  set -- --model llama-tiny --seq 16 --steps 3 --db :memory: --format=csv "$@"
  fsdplan run "$@" --ranks "$ranks" | cut -d, -f1-3 >"$work/threads.csv"
  mpirun -n "$ranks" fsdplan run "$@" | cut -d, -f1-3 >"$work/mpi.csv"
  diff -u "$work/threads.csv" "$work/mpi.csv"
  test "$(wc -l <"$work/mpi.csv")" = 4
}

for ranks in 2 3; do
  for strategy in no_shard optim optim_grads optim_grads_params; do
    same $ranks --gbs 6 --set strategy=$strategy --set grad_comm=bf16
  done
done

# two replicas, each of which is a sharding group; with or without state sharded over the replicas, too
same 4 --gbs 8 --set dp_outer=2
same 4 --gbs 8 --set dp_outer=2 --set strategy=optim --set grad_comm=bf16
same 4 --gbs 8 --set dp_outer=2 --set outer_strategy=optim --set reduce_algo=a2a --set grad_comm=bf16

# tensor parallelism, with and without sequence parallelism
same 4 --gbs 4 --set tp=2
same 4 --gbs 4 --set tp=2 --set compute=fp8-tensorwise
same 2 --gbs 2 --set tp=2 --set sp=off --set compute=fp32

# pipelines with stages of two ranks that shard gradients, or of one rank; two stages share a matrix
same 4 --gbs 8 --set pp=2
same 4 --gbs 8 --set pp=4 --set strategy=optim --model llama-tiny,layers=5,tied=on --set pp_first_layers=2
same 4 --gbs 2 --set pp=2 --set tp=2
same 4 --gbs 8 --set pp=2 --set vpp=2 --set strategy=optim
same 4 --gbs 8 --set pp=2 --set vpp=2 --set strategy=optim_grads_params
same 4 --gbs 8 --set pp=4 --set pp_schedule=afab
same 4 --gbs 8 --set pp=4 --set doc_tokens=6

# experts padded to a capacity, one half on each of two ranks
experts=family=mixtral,layers=2,hidden=32,ffn=32,heads=2,vocab=64,max_seq=16,experts=4,topk=2
padded='--set ep=2 --set moe_capacity=0.8 --set moe_pad_to_capacity=on'
same 2 --gbs 4 --model $experts $padded
same 2 --gbs 4 --model $experts $padded --set compute=fp8-delayed
# and experts that two ranks split
same 4 --gbs 4 --model $experts --set ep=2 --set etp=2 --set moe_imbalance=2

# scales on which ranks agree, and scales of what a single rank updates
same 3 --gbs 6 --set compute=fp8-delayed --set param_gather=fp8
same 2 --gbs 4 --set precision_aware=on --set exp_avg=fp8 --set exp_avg_sq=fp8
same 4 --gbs 8 --set pp=2 --set precision_aware=on --set exp_avg=fp8 --set exp_avg_sq=fp8

# A process that is killed between two steps, or in one, ends the run: the message names the rank, and
# no other rank hangs.
mpirun -n 3 fsdplan run --model llama-tiny --gbs 6 --seq 16 --steps 1000000 --db :memory: \
  --save "$work/kept" --save-every 1 >"$work/out" 2>"$work/err" &
run=$!
until test -e "$work/kept/manifest"; do kill -0 $run; done
for pid in $(pgrep -P $run); do
  if tr '\0' '\n' <"/proc/$pid/environ" | grep -qx 'OMPI_COMM_WORLD_RANK=1\|PMIX_RANK=1'; then kill -9 "$pid"; fi
done
if wait $run; then echo "a run that lost a rank must fail"; exit 1; fi
grep -qi 'rank 1.*signal 9\|rank 1.*killed' "$work/err" "$work/out" || {
  echo "nobody names the rank that was killed:"
  cat "$work/err" "$work/out"
  exit 1
}
if pgrep -P $run >"$work/left"; then echo "processes are left"; exit 1; fi
# the steps before that are stored
step=$(sed -n 's/^step=//p' "$work/kept/manifest")
fsdplan run --model llama-tiny --gbs 6 --seq 16 --steps $((step + 1)) --resume "$work/kept" --db :memory: --format=csv |
  grep -q "^$((step + 1)),"
