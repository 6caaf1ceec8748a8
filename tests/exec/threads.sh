#!/bin/sh
# Threads within ranks: any number of them gives the same losses and checkpoints, also under MPI, and
# timings with one number of threads are not used for another one.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
model="family=llama,layers=1,hidden=128,ffn=384,heads=4,kv_heads=2,vocab=640,max_seq=256"
job="--model $model --gbs 4 --mbs 2 --seq 256 --set compute=bf16 --steps 2 --db :memory: --format=csv"

fail () { echo "threads.sh: $*"; exit 1; }

# run NAME COMMAND...: keeps the losses and norms, and the checkpoint without the run's name
run ()
{
  name=$1
  shift
  "$@" $job --save "$work/$name" 2>"$work/err" | cut -d, -f1-3 >"$work/$name.csv" || { cat "$work/err"; fail "$name"; }
  test "$(wc -l <"$work/$name.csv")" = 3 || fail "$name: no losses"
  (cd "$work/$name" && find . -name '*.safetensors' | sort | xargs sha256sum) >"$work/$name.sums"
  test -s "$work/$name.sums" || { find "$work/$name"; fail "$name: no checkpoint"; }
}

for threads in 1 2 3; do
  run "one$threads" fsdplan run --threads $threads
  cmp "$work/one1.csv" "$work/one$threads.csv" || fail "$threads threads have other losses"
  cmp "$work/one1.sums" "$work/one$threads.sums" || fail "$threads threads have another checkpoint"
  run "two$threads" fsdplan run --ranks 2 --threads $threads
  cmp "$work/two1.csv" "$work/two$threads.csv" || fail "2 ranks of $threads threads have other losses"
  cmp "$work/two1.sums" "$work/two$threads.sums" || fail "2 ranks of $threads threads have another checkpoint"
done
if command -v mpirun >/dev/null && mpirun -n 1 true >/dev/null 2>&1 &&
  ! mpirun -n 2 fsdplan run $job --comm mpi 2>&1 | grep -q 'built without MPI'; then
  run mpi mpirun -n 2 fsdplan run --threads 2
  cmp "$work/two1.csv" "$work/mpi.csv" || fail "processes of 2 threads have other losses"
  cmp "$work/two1.sums" "$work/mpi.sums" || fail "processes of 2 threads have another checkpoint"
fi

# The number of threads is printed, stored with the run, and given by the same option everywhere.
db=$work/store.db
tiny="--model llama-tiny --gbs 4 --seq 16 --set compute=fp32"
fsdplan run $tiny --ranks 2 --threads 3 --steps 2 --db "$db" >"$work/out" 2>/dev/null
grep -q ' tokens/s with 2 ranks (threads) of 3 threads, ' "$work/out" || { cat "$work/out"; fail "not said"; }
grep -q 'bench --ranks 2 --threads 3 --db' "$work/out" || { cat "$work/out"; fail "no way to time it"; }
fsdplan run $tiny --threads 3 --steps 2 --db "$db" --format=json 2>/dev/null | grep -q '"threads" : 3,' || fail json
fsdplan db export runs --db "$db" | grep -q 'threads=3' || fail "not kept"
fsdplan show --cluster local-cpu:2x3 --format=csv >"$work/cluster"
grep -q '^threads,3,' "$work/cluster" && grep -q '^device,.*-3-threads,' "$work/cluster" ||
  { cat "$work/cluster"; fail local-cpu:2x3; }
fsdplan run $tiny --cluster local-cpu:2x3 --steps 1 --db :memory: 2>/dev/null | grep -q '2 ranks (threads) of 3 threads' ||
  fail "the cluster's threads"

# says MESSAGE COMMAND...: checks that the command fails, with that message on standard error.
says ()
{
  message=$1
  shift
  "$@" >"$work/out" 2>"$work/err" && fail "$*: accepted"
  grep -qF -e "$message" "$work/err" || { cat "$work/err"; fail "$*"; }
}

says "--threads: '0' is out of range" fsdplan run $tiny --threads 0
says "--threads: '0' is out of range" fsdplan bench --threads 0
says "threads of a rank: 'some' is not a whole number" fsdplan show --cluster local-cpu:2xsome

# Timings with two threads are not used for one.
fsdplan bench --only reduction,rope --threads 2 --seconds 1 --memory 1MiB --db "$db" >/dev/null 2>&1
untimed ()
{
  fsdplan sim $tiny --set stack=native --cluster "$1" --db "$db" --format=json >"$work/sim"
  grep -q '"measured_pct" : 0.0,' "$work/sim" && grep -q '"interpolated_pct" : 0.0,' "$work/sim"
}
untimed local-cpu:1x2 && fail "times of two threads are not taken for two"
untimed local-cpu:1x1 || fail "times of two threads are taken for one"
