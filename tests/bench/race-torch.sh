#!/bin/sh
# A step of a llama of 100M parameters here and in PyTorch, on the same cores and tokens, in turns:
# medians and ranges of the wall's and the processors' seconds. PYTHON names an interpreter that has
# PyTorch 2.5 or newer; without one the race is left out. ROUNDS, CORES, FORMATS and HOW (eager,
# compile) say what is run. Nothing else should be at work.
program=$1
here=$(dirname "$0")
python=${PYTHON:-python3}
if ! "$python" -c 'import torch; torch.nn.RMSNorm' 2>/dev/null; then
  echo "race with PyTorch left out: $python has none that is 2.5 or newer (PYTHON names another)"
  exit 0
fi
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
model=family=llama,layers=12,hidden=768,ffn=2048,heads=12,kv_heads=4,head_dim=64,vocab=32000,max_seq=512,tied=on
steps=4

"$python" -c 'import array, random, sys
random.seed (1)
array.array ("H", (random.randrange (32000) for _ in range (6000))).tofile (sys.stdout.buffer)' \
  >"$work/tokens.u16" || exit 1

# Processor seconds of programs' own code that this shell waited for, into a file (a subshell has waited
# for nothing). Not the system's: what it takes to find memory for a run differs from run to run by more
# than a step.
spent ()
{
  times >"$1"
}

# ours CORES FORMAT MAIN: lines of wall and processor seconds of the steps after the first, with main weights
# in the format MAIN. Threads are ranks, each with a part of the batch.
ours ()
{
  for n in 1 $steps; do
    spent "$work/before"
    taskset -c "0-$(($1 - 1))" "$program" run --model "$model" --ranks "$1" --gbs 2 --mbs $((2 / $1)) --seq 512 \
      --data "$work/tokens.u16" --steps $n --set compute="$2" --set main_params="$3" \
      --db :memory: --format=csv >"$work/$n.csv" 2>"$work/err" || { cat "$work/err" >&2; exit 1; }
    spent "$work/after"
    awk 'FNR == 2 { split ($1, u, "m"); t = u[1] * 60 + u[2] - t }
         END { print t }' "$work/before" "$work/after" >"$work/$n.cpu"
  done
  awk -F, -v one="$(cat "$work/1.cpu")" -v all="$(cat "$work/$steps.cpu")" -v steps=$steps \
    'NR > 2 { printf "%.3f %.3f\n", $4 / 1000, (all - one) / (steps - 1) }' "$work/$steps.csv"
}

# theirs CORES FORMAT [compile]: the same lines of PyTorch
theirs ()
{
  taskset -c "0-$(($1 - 1))" "$python" "$here/race-torch.py" "$work/tokens.u16" "$2" "$1" $steps $3 2>/dev/null |
    tail -n +2
}

# middle FILE COLUMN: median and range of a column
middle ()
{
  awk -v c="$2" '{ print $c }' "$1" | sort -n |
    awk '{ v[NR] = $1 } END { printf "%8.3f (%.3f to %.3f)", (v[int ((NR + 1) / 2)] + v[int (NR / 2) + 1]) / 2, v[1], v[NR] }'
}

"$program" run --help >/dev/null || exit 1
for cores in ${CORES:-1 2}; do
  for format in ${FORMATS:-fp32 bf16}; do
    main=auto
    [ "$format" = bf16 ] && main=fp32
    rm -f "$work"/of-*
    for round in $(seq "${ROUNDS:-3}"); do
      ours "$cores" "$format" $main >>"$work/of-fsdplan" || exit 1
      for how in ${HOW:-eager compile}; do
        theirs "$cores" "$format" "$(echo "$how" | sed 's/eager//')" >>"$work/of-torch-$how"
      done
    done
    for file in "$work"/of-*; do
      printf '%d core(s) %s %-14s %s s wall, %s s of processors\n' "$cores" "$format" \
        "$(basename "$file" | sed 's/of-//')" "$(middle "$file" 1)" "$(middle "$file" 2)"
    done
  done
done
