#!/bin/sh
# A run that is killed goes on from its last checkpoint, on another number of ranks too, as if nothing
# had happened: in fp32, with one micro batch per rank, the sums are those of one rank.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

args="--model llama-tiny --gbs 4 --seq 16 --db :memory: --format=csv --set compute=fp32"
args="$args --steps 400 --decay cosine --warmup 10 --clip 0"
steps () { cut -d, -f1-3 | sed 1d; }

fsdplan run $args --ranks 4 | steps >"$work/whole.csv"

# killed as soon as a checkpoint of a later step is there, twice; what is left is whole
fsdplan run $args --ranks 4 --save "$work/kept" --save-every 1 >"$work/out" &
pid=$!
until grep -qE '^step=[1-9]' "$work/kept/manifest" 2>"$work/err"; do kill -0 $pid; done
kill -9 $pid
wait $pid 2>"$work/err" || true
first=$(sed -n 's/^step=//p' "$work/kept/manifest")
test "$first" -lt 400

fsdplan run $args --ranks 1 --resume "$work/kept" \
  --save "$work/kept" --save-every 1 >"$work/out" &
pid=$!
until test "$(sed -n 's/^step=//p' "$work/kept/manifest")" -gt $((first + 3)); do kill -0 $pid; done
kill -9 $pid
wait $pid 2>"$work/err" || true
second=$(sed -n 's/^step=//p' "$work/kept/manifest")

fsdplan run $args --ranks 4 --set strategy=optim_grads --resume "$work/kept" | steps >"$work/rest.csv"
test "$(wc -l <"$work/rest.csv")" = $((400 - second))
sed "1,${second}d" "$work/whole.csv" | diff - "$work/rest.csv" >"$work/diff" || {
  echo "resumed from step $second:"
  head "$work/diff"
  exit 1
}

# a folder that cannot be written ends the run with a message that names it, and nothing hangs
: >"$work/file"
if fsdplan run $args --ranks 4 --steps 2 --warmup 1 --save "$work/file" >"$work/out" 2>"$work/err"; then exit 1; fi
grep -q "$work/file: File exists\|$work/file: Not a directory" "$work/err"
