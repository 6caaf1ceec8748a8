#!/bin/sh
# A run that is killed resumes from its last checkpoint, also on another number of ranks, and ends as if
# nothing had happened: in fp32, with one micro batch per rank, the sums are those of one rank.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

args="--model llama-tiny --gbs 4 --seq 16 --db :memory: --format=csv --set compute=fp32"
args="$args --steps 400 --decay cosine --warmup 10 --clip 0"
steps () { cut -d, -f1-3 | sed 1d; }

fsdplan run $args --ranks 4 | steps >"$work/whole.csv"

# killed, twice, as soon as there is a checkpoint of a later step; the checkpoints that are left are
# whole
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

# a resumed run is evaluated on the same text as every run; the older of two checkpoints is whole
short="--model llama-tiny --gbs 4 --seq 16 --db :memory: --format=csv --eval-every 1"
evals () { cut -d, -f1,5 | tail -n "$1"; }
fsdplan run $short --steps 4 --save "$work/two" --save-every 1 | evals 2 >"$work/all"
for from in two two/step-3.0; do
  test -e "$work/$from/manifest"
done
fsdplan run $short --steps 4 --resume "$work/two/step-3.0" | evals 1 >"$work/last"
tail -n 1 "$work/all" | diff - "$work/last"

# four ranks that share sequences resume where one rank stopped, and the other way round
near () { paste -d, "$1" "$2" | awk -F, '{ d = $2 - $5; if (d * d > 1e-10) exit 1 } END { if (NR != 2) exit 1 }'; }
parts="--model llama-tiny --gbs 4 --seq 16 --db :memory: --format=csv --set compute=fp32"
fsdplan run $parts --steps 4 | steps >"$work/whole4"
fsdplan run $parts --steps 2 --save "$work/parts" --ranks 4 --set cp=4 | steps >"$work/first2"
fsdplan run $parts --steps 4 --resume "$work/parts" --ranks 2 --set cp=2 | steps >"$work/last2"
head -n 2 "$work/whole4" | near - "$work/first2"
tail -n 2 "$work/whole4" | near - "$work/last2"

# differences are reported; other data, or another optimizer, are refused unless they are forced
refused () { # PATTERN OPTION...
  pattern=$1
  shift
  if fsdplan run $short --steps 5 --resume "$work/two" "$@" >"$work/out" 2>"$work/err"; then
    echo "not refused: $*"
    exit 1
  fi
  grep -q -- "$pattern" "$work/err" || { cat "$work/err"; exit 1; }
}
head -c 4000 /dev/zero >"$work/tokens.bin"
refused "data is 'synthetic, seed 2', and was 'synthetic, seed 1'.*--force begins it anew" --seed 2
refused "data is '2000 tokens of 16 bits" --data "$work/tokens.bin" --eval-data "$work/tokens.bin"
refused "optimizer is 'sgd', and was 'adamw'" --set optimizer=sgd
fsdplan run $short --steps 5 --resume "$work/two" --seed 2 --force >"$work/out" 2>"$work/err"
grep -qx 'fsdplan: goes on with data synthetic, seed 2, which was synthetic, seed 1' "$work/err"
fsdplan run $short --steps 5 --resume "$work/two" --lr 0.5 --clip 0 --warmup 1 --weight-decay 0 --gbs 2 --seq 8 \
  --decay linear >"$work/out" 2>"$work/err"
for words in 'lr 0.5, which was 0.001' 'clip 0, which was 1' 'warmup 1, which was 0' 'gbs 2, which was 4' \
  'weight-decay 0, which was 0.1' 'seq 8, which was 16' 'decay linear, which was none'; do
  grep -qx "fsdplan: goes on with $words" "$work/err"
done

# a run that begins anew where another one saved says so, and leaves that one's checkpoint whole
fsdplan run $short --steps 2 --save "$work/anew" >"$work/out" 2>"$work/err"
if grep 'another run' "$work/err"; then exit 1; fi
fsdplan run $short --steps 1 --save "$work/anew" >"$work/out" 2>"$work/err"
grep -q "anew has a checkpoint of another run after step 2: this one begins anew" "$work/err"
fsdplan run $short --steps 3 --resume "$work/anew/step-2.0" --save "$work/anew" >"$work/out" 2>"$work/err"
if grep 'another run' "$work/err"; then exit 1; fi

# biases of routers are saved: a run that other ranks resume half-way ends as without a stop, and so do
# its evaluations
routed="--gbs 8 --seq 16 --lr 0.01 --bias-rate 0.25 --eval-every 1 --db :memory: --format=csv --model \
family=qwen3_moe,layers=2,hidden=16,ffn=8,heads=2,kv_heads=1,head_dim=8,vocab=32,max_seq=16,experts=6,topk=2,\
expert_ffn=8,router_score=sigmoid,router_bias=on,router_groups=3,router_group_topk=2"
figures () { cut -d, -f1-3,5 | tail -n 2; }
fsdplan run $routed --steps 4 --ranks 2 | figures >"$work/unbroken"
fsdplan run $routed --steps 2 --ranks 4 --set pp=2 --save "$work/routed" >"$work/out"
fsdplan run $routed --steps 4 --ranks 2 --set strategy=optim --resume "$work/routed" | figures | diff "$work/unbroken" -
fsdplan run $routed --steps 4 --ranks 2 --bias-rate 0 --resume "$work/routed" 2>"$work/err" | figures >"$work/still"
grep -qx 'fsdplan: goes on with bias-rate 0, which was 0.25' "$work/err"
if cmp -s "$work/unbroken" "$work/still"; then
  echo "biases move nothing"
  exit 1
fi

# a checkpoint from before there was an option for parameters without weight decay says so
cp -r "$work/two" "$work/older"
sed -i '/^weight-decay-of=/d' "$work/older/manifest"
fsdplan run $short --steps 5 --resume "$work/older" >"$work/out" 2>"$work/err"
grep -qx 'fsdplan: goes on with weight-decay-of matrices, which was all' "$work/err"

# the place in the data is counted in tokens: half as many sequences of twice the length continue at the
# same place
fsdplan run --model llama-tiny --gbs 4 --seq 16 --db :memory: --steps 1 --save "$work/kept16" >"$work/out"
fsdplan run --model llama-tiny --gbs 2 --seq 32 --db :memory: --steps 2 --resume "$work/kept16" \
  --save "$work/kept32" >"$work/out" 2>"$work/err"
grep -qx 'tokens=128' "$work/kept32/manifest"

# a shuffled blend continues exactly, on other ranks, in another epoch; with other sequences the place
# would not exist
head -c 1000 "$work/two/manifest" | iconv -f ascii -t utf-16le >"$work/whole.u16"
head -c 100 "$work/two/manifest" | iconv -f ascii -t utf-16le >"$work/part.u16"
blend="--model llama-tiny --gbs 4 --db :memory: --format=csv --set compute=fp32 --clip 0 --shuffle"
blend="$blend --data 0.6:$work/whole.u16,0.4:$work/part.u16"
fsdplan run $blend --seq 16 --steps 6 --ranks 4 2>"$work/err" | steps | tail -n 3 >"$work/all"
grep -qx "fsdplan: the run of 6 steps takes 9 sequences of 16 tokens from $work/part.u16, which has 6: it is seen 1.5 \
times" "$work/err"
fsdplan run $blend --seq 16 --steps 3 --ranks 4 --save "$work/blend" >"$work/out" 2>"$work/err"
fsdplan run $blend --seq 16 --steps 6 --ranks 1 --resume "$work/blend" 2>"$work/err" | steps | diff "$work/all" -
fsdplan run $blend --format=json --seq 16 --steps 6 --resume "$work/blend" 2>"$work/err" | tr -d ' \n' >"$work/json"
grep -qF "{\"file\":\"$work/part.u16\",\"sequences\":6,\"taken\":9,\"epochs\":1.5}]" "$work/json"
test "$(fsdplan run $blend --seq 16 --epochs 2 --resume "$work/blend" 2>"$work/err" | tail -n 1 | cut -d, -f1)" = 7
if fsdplan run $blend --seq 8 --steps 6 --resume "$work/blend" >"$work/out" 2>"$work/err"; then exit 1; fi
grep -q "in sequences of 8 shuffled by seed 1'.*the place in it would mean nothing" "$work/err"

# two runs cannot save to one folder, whichever is first
(flock 9 && if fsdplan run $short --save "$work/two" >"$work/out" 2>"$work/err"; then exit 1; fi) 9>"$work/two/lock"
grep -q "another run saves its checkpoints here" "$work/err"

# a folder that cannot be written ends the run with a message that names it, and no rank hangs
: >"$work/file"
if fsdplan run $args --ranks 4 --steps 2 --warmup 1 --save "$work/file" >"$work/out" 2>"$work/err"; then exit 1; fi
grep -q "$work/file: File exists\|$work/file: Not a directory" "$work/err"
