#!/bin/sh
# Ranks as processes give the same bits as ranks as threads.
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

# same RANKS OPTION...: losses and norms of both, digit by digit
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

# groups: replicas of the group that shards, sharded once more between them or not
same 4 --gbs 8 --set dp_outer=2
same 4 --gbs 8 --set dp_outer=2 --set strategy=optim --set grad_comm=bf16
same 4 --gbs 8 --set dp_outer=2 --set outer_strategy=optim --set reduce_algo=a2a --set grad_comm=bf16
