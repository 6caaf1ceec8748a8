#!/bin/sh
# cuDNN is asked about GPUs that are not there: its answers are stored, predictions use them, and they
# equal the shipped ones where these are of the same version.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
db=$work/store.db
# The library that cuDNN compiles kernels with is unloaded without freeing its memory.
export ASAN_OPTIONS=detect_leaks=0

fail () { echo "workspaces.sh: $*"; cat "$work/err"; exit 1; }

fsdplan bench --workspaces --model llama-tiny --seq 64 --dry-run >/dev/null 2>"$work/err" || {
  grep -E 'not in this build|built without cuDNN' "$work/err" || fail "nothing to ask"
  exit 77
}
ask="fsdplan bench --workspaces --db $db --format=csv"
$ask --model llama3-8b --seq 2048,4096 --mbs 2 >"$work/said" 2>"$work/err" || {
  grep 'stub of one' "$work/err" && exit 77
  fail "cuDNN was not asked"
}
# Three architectures, three passes, two lengths; the second time nothing new is asked.
test "$(wc -l <"$work/said")" = 19 || fail "$(wc -l <"$work/said") lines"
$ask --model llama3-8b --seq 2048,4096 --mbs 2 2>"$work/err" | cmp - "$work/said" || fail "differs"
fsdplan db export cudnn --db "$db" | cut -d, -f4- | tail -n +2 | sort >"$work/stored"
tail -n +2 "$work/said" | sort | cmp - "$work/stored" || fail "the store has other rows"
fsdplan db check --db "$db" >/dev/null

# The shipped figures are cuDNN's answers.
shipped=$top_srcdir/db/data/workspaces.csv
if [ "$(sed -n 2p "$shipped" | cut -d, -f2)" = "$(sed -n 2p "$work/said" | cut -d, -f1)" ]; then
  cut -d, -f2- "$shipped" | sort >"$work/shipped"
  comm -23 "$work/stored" "$work/shipped" | grep . && fail "not what is shipped"
fi

# A shape for which no figure is shipped.
plan="--model llama-tiny --cluster h100-80gb:1 --gbs 3 --mbs 3 --seq 48 --db $db"
fsdplan sim $plan | grep -q 'by rule: of this shape' || fail "taken from nowhere"
$ask --model llama-tiny --seq 48 --mbs 3 --cluster h100-80gb:1 >"$work/odd" 2>"$work/err" || fail odd
fsdplan sim $plan | grep -q 'attention backwards works in .*, as cuDNN [0-9.]* says' ||
  fail "not in the prediction"
bytes=$(awk -F, '$3 == "backward" { print $11 }' "$work/odd")
fsdplan lower $plan --set stack=native |
  grep -q "^buffer attention_work elements=$((bytes / 4 + 64)) " || fail "not in the schedule"

# Refusals name the reason.
fsdplan bench --workspaces --model deepseek-v3 2>"$work/err" && fail "deepseek-v3 was asked about"
grep -q 'not plainly causal' "$work/err" || fail "deepseek-v3"
fsdplan bench --workspaces --seq 0 2>"$work/err" && fail "--seq 0"
grep -q -- '--seq' "$work/err" || fail "--seq 0"
