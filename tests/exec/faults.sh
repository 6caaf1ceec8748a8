#!/bin/sh
# What goes wrong on many machines, on ranks that are processes: whoever is at fault is named, nothing
# hangs, the store stays whole. Every wait has a deadline: the run's own, or that of timeout(1).
set -eu
command -v mpirun >/dev/null || { echo "no mpirun"; exit 77; }
work=$(mktemp -d)
run=
trap 'test -z "$run" || kill $run 2>/dev/null || true; rm -rf "$work"' EXIT
db=$work/store.db
if ! mpirun -n 2 fsdplan run --model llama-tiny --gbs 2 --seq 8 --steps 1 --db :memory: \
    >"$work/probe" 2>&1; then
  echo "ranks as processes do not work here:"
  cat "$work/probe"
  exit 77
fi

fail () { echo "faults.sh: $*"; cat "$work/err" "$work/out"; exit 1; }

tiny="--model llama-tiny --gbs 12 --seq 16"

# begin RANKS OPTION...: a long run in the background; it has done a step when this returns
begin () {
  ranks=$1
  shift
  rm -rf "$work/kept"
  timeout -k 20 200 mpirun -n "$ranks" sh -c \
    'SLURMD_NODENAME=host$((OMPI_COMM_WORLD_RANK / 2)) exec fsdplan run "$@"' \
    sh $tiny --steps 1000000 --save "$work/kept" --save-every 1 "$@" >"$work/out" 2>"$work/err" &
  run=$!
  until test -e "$work/kept/manifest"; do
    kill -0 $run || fail "ended before its first step"
  done
}

# signal NAME RANK: to a rank of that run
signal () {
  sent=0
  for pid in $(pgrep -f "^run .*$work/kept"); do
    if tr '\0' '\n' 2>/dev/null <"/proc/$pid/environ" | grep -qx "OMPI_COMM_WORLD_RANK=$2\|PMIX_RANK=$2"
    then
      kill -"$1" "$pid" 2>/dev/null && sent=1
    fi
  done
  test $sent = 1 || fail "no rank $2"
}

# end: the exit status is in $status, and no process of the run is left
end () {
  status=0
  wait $run || status=$?
  run=
  test $status != 124 || fail "hung"
  tries=0
  while pgrep -f "^run .*$work/kept" >"$work/left"; do
    tries=$((tries + 1))
    test $tries -lt 5000 || fail "processes are left: $(cat "$work/left")"
  done
}

state () { fsdplan db list --db "$db" --format=csv | sed -n "s/^$1,[^,]*,\([a-z]*\),.*/\1/p"; }
whole () { fsdplan db check --db "$db" | grep -qx 'no faults' || fail "the store is broken"; }

# --- a rank that stops answering: the others end, and say which it was and in what
begin 4 --timeout 2 --db "$db"
signal STOP 3
end
test $status != 0 || fail "a run that lost a rank must fail"
grep -Eq 'rank [0-9], (before step [0-9]+|checkpoint of step [0-9]+|step [0-9]+, op [0-9]+ \([a-z_]+, unit -?[0-9]+\)): [a-z_]+: no sign of rank 3 on host1 within the 2 s' \
  "$work/err" || fail "nobody names the rank that was stopped"
if grep -q 'no sign of.*rank [012]' "$work/err"; then fail "others are blamed"; fi
test "$(state 1)" = failed || fail "the run is '$(state 1)' in the store"
fsdplan db list --db "$db" --format=csv | grep -q 'no sign of rank 3 on host1' || fail "no message is kept"
whole

# --- a rank that finds nobody does not blame the others alone: it may be the one that was stopped
begin 3 --timeout 2 --db :memory:
signal STOP 1
signal STOP 2
end
test $status != 0 || fail "a run that lost two ranks must fail"
grep -q 'no other rank answers within the 2 s of --timeout, not rank 1 on host0, rank 2 on host1' "$work/err" ||
  fail "rank 0 does not say that it is alone"

# --- the rank that stores: another one says so
begin 3 --timeout 2 --db "$db"
signal STOP 0
end
test $status != 0 || fail "a run that lost rank 0 must fail"
grep -q 'rank 1 on host0 failed: .*no sign of rank 0 on host0' "$work/err" || fail "rank 0 is not named"
tries=0
until test "$(state 2)" = interrupted; do # as soon as the process is gone
  tries=$((tries + 1))
  test $tries -lt 1000 || fail "the run is '$(state 2)' in the store"
done
whole

# --- a node that is gone, with all that ran on it
begin 4 --timeout 2 --db "$db"
signal KILL 2
signal KILL 3 2>/dev/null || true # the launcher may have been faster
end
test $status != 0 || fail "a run that lost a node must fail"
grep -qi 'rank [23].*signal 9\|rank [23].*killed\|no sign of rank [23]' "$work/err" "$work/out" ||
  fail "nobody names the ranks of the lost node"
whole

# --- a rank that is stopped, or killed, when it starts, prepares, saves or loads: the others end in time
# and name it; a rank that is slow for less than the timeout is waited for
# faulty RANK PLACE SIGNAL OPTION...: a run in which that rank gets the signal when it opens a file whose
# path has PLACE in it (start: when it starts); the status is in $status
faulty () {
  rank=$1 place=$2 number=$3
  shift 3
  status=0
  FAULT_RANK=$rank FAULT_AT=$place FAULT_SIGNAL=$number timeout -k 20 60 mpirun -n 3 sh -c "
    LD_PRELOAD=$top_builddir/tests/fake/fault-rank.so exec fsdplan run $tiny --timeout 2 --db :memory: \"\$@\"" \
    sh "$@" >"$work/out" 2>"$work/err" || status=$?
}
# names REGEXP: that run failed in time, with a message like this
names () {
  test $status != 0 && test $status != 124 || fail "$place: exit status $status"
  grep -Eqi "$1" "$work/err" "$work/out" || fail "$place: nobody says '$1'"
}
if ! grep -q __asan_init "$(command -v fsdplan-exec-cpu)"; then
  mpirun -n 3 fsdplan run $tiny --steps 2 --save "$work/first" --db :memory: >"$work/out" 2>"$work/err"
  faulty 1 start 19 --steps 3
  names 'rank [02] on .* has waited 10 s for the others to start'
  faulty 2 catalogue.db 19 --steps 3
  names 'rank 0 on .* failed: all_to_all: no sign of rank 2 on [^ ]* within the 2 s of --timeout$'
  faulty 1 .safetensors 19 --steps 3 --save "$work/saved"
  names 'checkpoint of step 3: all_gather: no sign of rank 1 on [^ ]* within the 2 s of --timeout$'
  faulty 0 first/manifest 19 --steps 3 --resume "$work/first"
  names 'rank 1 on .* failed: all_to_all: no sign of rank 0 on [^ ]* within the 2 s of --timeout$'
  faulty 2 .safetensors 9 --steps 3 --resume "$work/first"
  names 'rank 2.*signal 9|rank 2.*killed'
  FAULT_SECONDS=1 faulty 1 .safetensors 0 --steps 3 --save "$work/saved"
  test $status = 0 || fail "a rank that is slow to save"
  # The same on GPUs while NCCL makes its communicators. The fake NCCL joins threads alone, so these
  # processes would wait for ever. The rank is stopped just before, when it looks for its cores.
  gpus=$top_builddir/tests/fake/exec-cuda
  if test -x "$gpus"; then
    place=NCCL status=0
    FAULT_RANK=2 FAULT_AT=/proc/self/cgroup FAULT_SIGNAL=19 FAKE_GPUS=3 timeout -k 20 60 mpirun -n 3 sh -c "
      LD_PRELOAD=$top_builddir/tests/fake/fault-rank.so exec $gpus $tiny --timeout 2 --db :memory: --steps 3" \
      >"$work/out" 2>"$work/err" || status=$?
    names 'rank 0 failed: ncclCommInitRankConfig among 3 ranks .*: no sign of rank 2 within the 2 s of --timeout$'
  fi
fi

# --- SIGTERM on any rank: all stop after the step, with a checkpoint and exit status 4, also where a
# rank was stopped before for less than the timeout
begin 3 --db "$db"
signal STOP 2
signal CONT 2
signal TERM 1
end
test $status = 4 || fail "exit status $status instead of 4"
done_steps=$(sed -n 's/^step=//p' "$work/kept/manifest")
grep -q "^fsdplan: asked to end: $done_steps steps are done, and --resume $work/kept goes on" \
  "$work/err" || fail "what was done is not said"
test "$(state 4)" = failed || fail "the run is '$(state 4)' in the store"
whole

# --- preemption: the run resumes from its checkpoint on two ranks with the same losses as on three
args="$tiny --set compute=fp32 --clip 0 --db :memory: --format=csv"
begin 3 --set compute=fp32 --clip 0 --db :memory:
signal TERM 2
end
test $status = 4 || fail "exit status $status instead of 4"
first=$(sed -n 's/^step=//p' "$work/kept/manifest")
last=$((first + 3))
losses () { cut -d, -f1-3 | tail -n 3; }
mpirun -n 2 fsdplan run $args --steps $last --resume "$work/kept" 2>"$work/err" | losses >"$work/two"
mpirun -n 3 fsdplan run $args --steps $last --resume "$work/kept" 2>"$work/err" | losses >"$work/three"
test "$(wc -l <"$work/two")" = 3 || fail "no steps after the resume"
test "$(sed -n '1s/,.*//p' "$work/two")" = $((first + 1)) || fail "went on at another step"
awk -F, 'NR == FNR { loss[$1] = $2; next }
         { d = loss[$1] - $2; if (d > 1e-4 || d < -1e-4) { print $1, loss[$1], $2; exit 1 } }' \
  "$work/two" "$work/three" || fail "two ranks go on otherwise than three"

# --- without --save there is no checkpoint; ranks that are threads end in the same way
timeout -k 20 200 fsdplan run $tiny --ranks 2 --steps 1000000 --db "$work/threads.db" \
  >"$work/out" 2>"$work/err" &
run=$!
until fsdplan db list --kind=steps --db "$work/threads.db" --format=csv 2>/dev/null | grep -q ',1,'; do
  kill -0 $run || fail "ended before its first step"
done
pkill -TERM -P $run
status=0
wait $run || status=$?
run=
test $status = 4 || fail "exit status $status instead of 4"
grep -q '^fsdplan: asked to end: [0-9]* steps are done$' "$work/err" || fail "not said"
