#!/bin/sh
# A run says what it does as it does it: on standard error, as lines of JSON that import and plot read,
# and as events that TensorBoard reads.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tiny="--model llama-tiny --gbs 4 --seq 16 --db :memory:"
log=$work/log.jsonl

# 6 steps, then 4 more from the checkpoint: one file, two runs
fsdplan run $tiny --ranks 2 --steps 6 --eval-every 3 --save "$work/saved" --log "$log" \
  --tensorboard "$work/board" >"$work/out" 2>"$work/err"
test "$(grep -c '^step [1-6]/6  loss [0-9.]*.*  norm [0-9.]*  lr 0.001  [0-9]* tokens/s  [0-9]* s left$' "$work/err")" = 6
head -n 4 "$log" >"$work/killed.jsonl"
fsdplan run $tiny --steps 10 --resume "$work/saved" --log "$log" --log-every 4 >"$work/out" 2>"$work/err"
test "$(grep -c '^step' "$work/err")" = 2 # 8 and 10
test "$(grep -c '^{"run":' "$log")" = 2
test "$(grep -c '^{"step":[0-9]*,"loss":5' "$log")" = 10
test "$(grep -c '"eval_loss":5' "$log")" = 2
test "$(grep -c '^{"end":{"state":"done"' "$log")" = 2

# a log that is imported while its run goes on can be imported again, which adds the steps since then; a run
# that the store has already is not added again
db=$work/store.db
sed 's/"plan_hash":"[^"]*",//' "$log" >"$work/lacks.jsonl"
if fsdplan import "$work/lacks.jsonl" --db "$db" 2>"$work/err"; then exit 1; fi
grep -q 'lacks.jsonl:1: run.plan_hash is missing$' "$work/err"
fsdplan import "$work/killed.jsonl" --db "$db" >"$work/out" 2>"$work/err"
fsdplan db list --db "$db" --format=csv | grep -q '^1,.*,\(running\|interrupted\),'
for added in 8 0; do # 3 steps of the first run, the second one and its 4 steps
  fsdplan import "$log" --db "$db" >"$work/out" 2>"$work/err"
  grep -q "^$added rows added" "$work/err"
done
test "$(fsdplan db list --db "$db" --format=csv | grep -c ',done,cpu,')" = 2
test "$(fsdplan db show 1 --db "$db" | grep -cE '^ *[0-9]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+$')" = 2
fsdplan db check --db "$db" | grep -qx 'no faults'
fsdplan run $tiny --steps 2 --log "$work/both.jsonl" --db "$db" >"$work/out" 2>"$work/err"
fsdplan import "$work/both.jsonl" --db "$db" >"$work/out" 2>"$work/err"
grep -q '^0 rows added, 3 there already' "$work/err"

# pictures: of a log, of a stored run, of a run that goes on from another
fsdplan plot loss "$log" -o "$work/loss.svg" >"$work/out"
grep -q 'evaluations of' "$work/loss.svg"
fsdplan plot loss --run 1 @run2 "$work/killed.jsonl" --db "$db" | grep -q 'evaluations of run 1'

# a log that can no longer be written does not end the run; one that cannot be begun does
fsdplan run $tiny --steps 2 --log "$log" --tensorboard "$work/board" >"$work/out" 2>"$work/err"
if fsdplan run $tiny --steps 2 --log /dev/full >"$work/out" 2>"$work/err"; then exit 1; fi
grep -q '^fsdplan: /dev/full: No space left on device$' "$work/err"
if fsdplan run $tiny --steps 2 --tensorboard "$log/x" >"$work/out" 2>"$work/err"; then exit 1; fi
grep -q 'log.jsonl/x: Not a directory$' "$work/err"
(
  trap '' XFSZ 2>/dev/null || true
  ulimit -f 4
  fsdplan run $tiny --steps 60 --log "$work/short.jsonl" >"$work/out" 2>"$work/err"
)
grep -q 'no more of this run will be logged: .*short.jsonl: File too large$' "$work/err"
grep -q 'tokens/s with 1 ranks' "$work/out"

# TensorBoard itself reads the events, where it is
command -v python3 >/dev/null || exit 0
python3 - "$work/board" <<'END'
import sys
try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError:
    sys.exit(0)
events = EventAccumulator(sys.argv[1])
events.Reload()
assert {"loss", "eval_loss", "grad_norm", "learning_rate"} <= set(events.Tags()["scalars"])
assert [e.step for e in events.Scalars("loss")][:6] == [1, 2, 3, 4, 5, 6]
END
