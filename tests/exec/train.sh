#!/bin/sh
# Trains as a user would: the loss falls, memory is as predicted, the run is stored, and its pictures
# are drawn.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
db=$work/store.db

fsdplan run --model llama-tiny --gbs 8 --seq 32 --ranks 2 --steps 30 --lr 0.003 --db "$db" \
  >"$work/run.txt"

awk '/^ *[0-9]+ +[0-9.]+ +[0-9.]+ +[0-9.]+$/ { if (!n++) first = $2; last = $2 }
     END { if (n < 2 || last >= first - 1) { print "loss went from", first, "to", last; exit 1 } }' \
  "$work/run.txt"

# every memory line reads predicted = measured
awk '/_mib|at peak/ { n++; if ($(NF-2) != $(NF-1)) { print "differs: " $0; bad = 1 } }
     END { exit bad || n < 4 }' "$work/run.txt"

fsdplan db list --db "$db" --format=csv >"$work/list.csv"
grep -q '^1,.*,done,cpu,threads,2,30,' "$work/list.csv"

# the printed loss curve is the stored one
fsdplan db show 1 --db "$db" >"$work/show.txt"
test "$(grep -cE '^ *[0-9]+ +[0-9.]+ +[0-9.]+ +[0-9.]+$' "$work/show.txt")" = 30
awk '/^ *30 +[0-9.]+ / { loss[++n] = $2 }
     END { d = loss[1] - loss[2]; if (n != 2 || d > 1e-5 || d < -1e-5) { print loss[1], loss[2]; exit 1 } }' \
  "$work/run.txt" "$work/show.txt"

fsdplan db export 1 --db "$db" >"$work/traces.txt"
test "$(grep -c '^trace 1 ' "$work/traces.txt")" = 2
fsdplan lower --plan @run1 --db "$db" | grep -q '^schedule 2 rank=0 ranks=2'

# compares two stored runs on one cluster, and one with a field changed
fsdplan run --plan @run1 --set mbs=2 --steps 1 --db "$db" >"$work/2.txt"
fsdplan diff @run1 @run2 --db "$db" --format=csv >"$work/two.csv"
fsdplan diff @run1 --to mbs=2 --db "$db" --format=csv | diff - "$work/two.csv"
grep -qx 'mbs,1,2,' "$work/two.csv"

if command -v gnuplot >/dev/null; then
  for kind in timeline memory; do
    fsdplan plot $kind --run 1 --db "$db" -o "$work/$kind.svg"
    grep -q '</svg>' "$work/$kind.svg"
  done
  # a run's number is not its plan's if that plan has run before; stages are drawn one by one
  for run in 3 4; do
    fsdplan run --model llama-tiny --gbs 8 --seq 32 --ranks 2 --set pp=2 --steps 1 --db "$db" >"$work/$run.txt"
  done
  fsdplan plot timeline --run 4 --db "$db" >"$work/stages"
  grep -A 1 'stage 1 |.*[FB]' "$work/stages" | grep -q 'measured |.*[FB]'
  fsdplan db delete 3 --db "$db"
  fsdplan db delete 4 --db "$db"
fi

fsdplan db delete 1 --db "$db"
test "$(fsdplan db list --db "$db" --format=csv | wc -l)" = 2

# rotary positions have the model's frequencies
loss () {
  fsdplan run --model "layers=2,hidden=16,ffn=24,heads=2,vocab=32,max_seq=64$1" --gbs 2 --seq 64 --steps 2 \
    --format=csv --db :memory: | cut -d, -f2
}
test "$(loss '')" != "$(loss ,rope_scaling=llama3,rope_factor=8,rope_original=16)"

# room for the mean of experts' rows is too little: said before a run begins, and it ends at its first step
experts=family=mixtral,layers=2,hidden=32,ffn=32,heads=2,vocab=64,max_seq=16,experts=4,topk=2
if fsdplan run --model $experts --gbs 4 --seq 16 --ranks 4 --steps 2 --set compute=fp32 --set ep=2 --db :memory: \
  >"$work/out" 2>"$work/err"; then
  echo "a run without room for its rows must fail"
  exit 1
fi
head -1 "$work/err" | grep -q '^fsdplan: room-for-the-mean: stops a run early: ' || {
  cat "$work/err"
  exit 1
}
grep -q 'moe_imbalance=2 for whatever the router does' "$work/err"
