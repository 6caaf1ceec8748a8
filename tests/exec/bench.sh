#!/bin/sh
# A tiny bench as a user runs it: it prints rows whose quartiles are in order and stores them; a second
# one adds rows and changes none; predictions then rest on them.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
db=$work/store.db
tiny="--model llama-tiny --cluster local-cpu --gbs 2 --seq 16 --set stack=native --set compute=fp32"

fail () { echo "bench.sh: $*"; exit 1; }

fsdplan bench --only reduction,rope --seconds 1 --db "$db" --format=csv >"$work/first" 2>"$work/err" ||
  { cat "$work/err"; fail "the first one"; }
test "$(head -1 "$work/first")" = \
  class,op,shape,format,ranks,repeats,median_us,q1_us,q3_us,model_us,gflop_s,gb_s,bus_gb_s
rows=$(($(wc -l <"$work/first") - 1))
test "$rows" -gt 5 || fail "$rows rows"
awk -F, 'NR > 1 && !($6 > 0 && $8 > 0 && $8 <= $7 && $7 <= $9)' "$work/first" | grep . &&
  fail "not positive, or not ordered"

# The store has all rows, with the machine and the backend that they are of.
fsdplan db export ops --db "$db" >"$work/ops1"
test "$(($(wc -l <"$work/ops1") - 1))" = "$rows" || fail "the store has other rows"
grep -q ',cpu,self,1,rope,"*rows=16 ' "$work/ops1" || { cat "$work/ops1"; fail "no rope"; }
fsdplan db check --db "$db" >/dev/null

# Predictions take them.
fsdplan sim $tiny --db "$work/none.db" --format=json | grep -q '"measured_pct" : 0.0,' || fail none
fsdplan sim $tiny --db "$work/none.db" | grep -q 'a guess: 0 % of it are ops' || fail "not a guess"
fsdplan sim $tiny --db "$db" --format=json >"$work/sim"
grep -q '"uncertainty_pct" : null' "$work/sim" || fail "as far off as published runs of GPUs"
grep -E '"(measured|interpolated|fitted)_pct" : 0.0,' "$work/sim" &&
  fail "nothing that was timed is in the prediction"
fsdplan run --model llama-tiny --gbs 2 --seq 16 --steps 2 --set compute=fp32 --db "$db" --format=json |
  grep -q '"interpolated_pct"' || fail "run does not say where costs are from"

# Calibrate fits parameters to the user's own runs; these cannot be deleted while the parameters are
# stored.
fsdplan run --model llama-tiny --gbs 4 --seq 16 --steps 3 --set compute=fp32 --db "$db" >/dev/null
fsdplan calibrate --folds 0 --id mine --db "$db" --format=csv >"$work/fit" 2>"$work/err" ||
  { cat "$work/err"; fail calibrate; }
grep -q '^native,[^,]*,2,' "$work/fit" || { cat "$work/fit"; fail "not fitted to both runs"; }
fsdplan sim $tiny --db "$db" --format=json | grep -q '"params_id" : "mine"' || fail "not in force"
fsdplan db delete 1 --db "$db" 2>"$work/err" && fail "a run that was fitted to is deleted"
grep -q 'a parameter set was fitted to it' "$work/err" || { cat "$work/err"; fail "not told why"; }

# A second bench adds rows; ops of two ranks have rows of their own.
fsdplan bench --only reduction --ranks 2 --seconds 1 --db "$db" >"$work/table" 2>&1
grep -q 'median_us' "$work/table" || { cat "$work/table"; fail "no table"; }
fsdplan db export ops --db "$db" | head -n "$(wc -l <"$work/ops1")" | cmp - "$work/ops1" ||
  fail "rows were changed"
fsdplan db export ops --db "$db" | grep -q ',cpu,self,2,norm_sq,' || fail "no rows of two ranks"

# Asked to end before or while it times ops, bench leaves a sound store and says so by its status.
fsdplan-exec-cpu bench --seconds 3600 --db "$work/stopped.db" >"$work/stopped" 2>&1 &
pid=$!
# The signal must reach bench itself, after it has set its handler, and not the shell that execs it.
until grep -q '^fsdplan-exec' /proc/$pid/comm && test "$(awk '/SigCgt/ { print substr($2, 13, 1) }' \
  /proc/$pid/status)" = 4; do kill -0 $pid; done
kill -TERM $pid
status=0
wait $pid || status=$?
test $status -eq 4 || fail "asked to end, and status $status"
grep -q 'interrupted: the [0-9]* ops that were timed until then are kept' "$work/stopped" ||
  { cat "$work/stopped"; fail "not told so"; }
test ! -e "$work/stopped.db" || fsdplan db check --db "$work/stopped.db" >/dev/null
