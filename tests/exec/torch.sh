#!/bin/sh
# A hundred steps against PyTorch's, which torch-losses.py wrote to torch-losses.csv: in fp32 on one
# rank and on four within 1e-5, in bf16 within 0.02 of the same losses.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# compare FILE BOUND: losses of FILE against PyTorch's.
compare ()
{
  awk -F, -v bound="$2" '
    NR == FNR { loss[$1] = $2; next }
    FNR > 1   { n++; d = $2 - loss[$1]; if (d < 0) d = -d
                if (!(d <= bound)) { print "step " $1 ": " $2 ", not " loss[$1]; bad = 1 }
                if (d > worst) worst = d }
    END       { print n " steps, worst difference " worst; exit bad || n != 100 }' \
    "$top_srcdir/tests/exec/torch-losses.csv" "$1"
}

set -- --model llama-tiny --gbs 8 --seq 32 --steps 100 --lr 0.003 --seed 1 --db :memory: --format=csv
fsdplan run "$@" --set compute=fp32 >"$work/one.csv"
compare "$work/one.csv" 1e-5
fsdplan run "$@" --set compute=fp32 --ranks 4 >"$work/four.csv"
compare "$work/four.csv" 1e-5
fsdplan run "$@" --set compute=bf16 --ranks 2 >"$work/bf16.csv"
compare "$work/bf16.csv" 0.02
