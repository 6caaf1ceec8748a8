#!/bin/sh
# Limits that a run meets in the middle of its work: little memory, a quota, a store that cannot be
# written, a file that is cut short while it is read, and Ctrl-C.
set -u
work=$(mktemp -d)
run=
trap 'test -z "$run" || kill -9 $run 2>/dev/null; rm -rf "$work"' EXIT
bad=0

complain () { echo "$*"; head -n 20 "$work/out" "$work/err"; bad=1; }

# expect STATUS PATTERN WORDS...: checks the exit status, and a line on standard error.
expect ()
{
  status=$1 pattern=$2
  shift 2
  "$@" >"$work/out" 2>"$work/err"
  test $? = "$status" || complain "must end with $status: $*"
  grep -q "$pattern" "$work/err" || complain "no $pattern: $*"
}
within () { ( ulimit "$1" "$2" && shift 2 && "$@" ) }
tiny="--model llama-tiny --cluster h100:8 --gbs 8 --seq 128 --top 1"
train="run --model llama-tiny --gbs 4 --seq 16 --lr 0"

# --- memory
if ! ldd "$top_builddir/fsdplan" | grep -q libasan; then # which takes terabytes of addresses
  expect 1 '^fsdplan: a limit of 97 MiB of address space (ulimit -v) is too little' \
    within -v 100000 fsdplan query $tiny --no-keep
  expect 1 '^fsdplan: a limit of 292 MiB of address space (ulimit -v) is too little' \
    within -v 300000 fsdplan $train --steps 1 --db :memory:
fi

# --- what the store could not keep
expect 5 "nothing was kept: $work/small.db: .*is there a quota" within -f 8 fsdplan query $tiny --db "$work/small.db"
grep -q '^ *1 ' "$work/out" || complain "an answer that is not kept must still be given"
expect 5 "nothing was kept: $work/none/x.db: " fsdplan query $tiny --db "$work/none/x.db"
grep -q '^next  *with --db FILE' "$work/out" || complain "what was not kept must not be blamed on --no-keep"
expect 5 "nothing will be kept: $work/none/x.db: " fsdplan $train --steps 1 --db "$work/none/x.db"
fsdplan query $tiny --db "$work/own.db" >"$work/out" 2>"$work/err" || complain "nothing is stored"
test "$(stat -c %a "$work/own.db")" = 600 || complain "a new store must be its owner's alone"

# begin WORDS...: starts a run without end in the background; returns after its first step.
begin ()
{
  rm -f "$work/log"
  env --default-signal=INT fsdplan $train --steps 1000000 --log "$work/log" --db :memory: "$@" \
    >"$work/out" 2>"$work/err" &
  run=$!
  until grep -qs '"step"' "$work/log"; do
    kill -0 $run 2>/dev/null || { complain "ended before its first step"; return; }
  done
}
end ()
{
  status=0
  wait $run || status=$?
  run=
}

# --- Ctrl-C: saved after the step, and it goes on from there
if env --default-signal=INT true 2>"$work/err"; then
  begin --ranks 2 --save "$work/kept"
  kill -INT $run
  end
  test $status = 130 || complain "exit status $status instead of 130"
  done_steps=$(sed -n 's/^step=//p' "$work/kept/manifest")
  grep -q "^fsdplan: asked to end: $done_steps steps are done, and --resume $work/kept goes on" "$work/err" ||
    complain "what was done is not said"
  fsdplan $train --steps $((done_steps + 1)) --resume "$work/kept" --db :memory: >"$work/out" 2>"$work/err" ||
    complain "it does not go on"
fi

# --- data that are cut short while they are read
head -c 100000 /dev/zero >"$work/data.u16"
begin --data "$work/data.u16"
: >"$work/data.u16"
end
test $status = 1 || complain "exit status $status instead of 1"
grep -q "^fsdplan: .*/data.u16: cannot be read any more: it was truncated" "$work/err" ||
  complain "the file is not named"

exit $bad
