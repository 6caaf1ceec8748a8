#!/bin/sh
# The store as a user has it: it survives a kill, is exported and imported, checked and protected, and
# refused where it is faulty.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
db=$work/store.db
tiny="--model llama-tiny --gbs 2 --seq 8"

killed=$work/killed.db
# a run that is killed keeps its steps, and is listed as dead
fsdplan-exec-cpu $tiny --steps 100000000 --db "$killed" >"$work/out" 2>&1 &
pid=$!
until fsdplan db list --kind=steps --db "$killed" --format=csv 2>"$work/err" | grep -q ',1,'; do
  kill -0 $pid
done
fsdplan db list --db "$killed" --format=csv | grep -q '^1,.*,running,'
kill -9 $pid
wait $pid 2>/dev/null || true
fsdplan db list --db "$killed" --format=csv | grep -q '^1,.*,interrupted,'
# the run was long enough for the machine's ops to be timed first
test "$(fsdplan db list --kind=ops --db "$killed" --format=csv | wc -l)" -gt 1
test "$(fsdplan db show 1 --db "$killed" | grep -cE '^ *[0-9]+ +[0-9.]+ +[0-9.]+ +[0-9.]+$')" -gt 0
fsdplan db show 1 --db "$killed" | grep -q '^settings lr=0.001 beta1=0.9 '
fsdplan db check --db "$killed" | grep -qx 'no faults'

# a run whose loss is not finite ends, and leaves the last good checkpoint
status=0
fsdplan run $tiny --steps 3 --lr 1e6 --weight-decay-of all --save "$work/kept" --save-every 1 --db :memory: >"$work/out" 2>"$work/err" ||
  status=$?
test $status = 1
grep -q '^fsdplan: step 3: the loss is nan and the gradient norm nan' "$work/err"
grep -qx 'step=2' "$work/kept/manifest"

# an export can be imported, also a loss that is NaN; the second time nothing is added
fsdplan run $tiny --steps 3 --lr 1e6 --weight-decay-of all --db "$db" >"$work/out" || true
fsdplan run $tiny --steps 3 --lr 1e6 --weight-decay-of all --skip-nonfinite 1 --db "$db" >"$work/out"
fsdplan db delete 1 --db "$db"
fsdplan db export --db "$db" >"$work/all.sql"
fsdplan db export --format=json --db "$db" >"$work/all.json"
fsdplan db export runs --db "$db" >"$work/runs.csv"
fsdplan db export steps --format=csv --db "$db" >"$work/steps.csv"
for files in all.sql all.json "runs.csv steps.csv"; do
  rm -f "$work/copy.db"
  for times in 1 2; do
    (cd "$work" && fsdplan db import $files --db copy.db >out)
    fsdplan db export --format=json --db "$work/copy.db" | cmp - "$work/all.json"
  done
  test "$(awk 'NR > 1 { n += $2 } END { print n + 0 }' "$work/out")" = 0
done
fsdplan db import - --db "$work/piped.db" <"$work/all.sql" >"$work/out"
fsdplan db export --db "$work/piped.db" | cmp - "$work/all.sql"

# a dry run makes no file
fsdplan db import --dry-run "$work/all.sql" --db "$work/none.db" >"$work/out" 2>"$work/err"
grep -q '^runs *1 *0$' "$work/out"
grep -q 'nothing was stored' "$work/err"
test ! -e "$work/none.db"

# a full disk, or a path that is no folder: the run continues and says that nothing was stored
fsdplan run $tiny --steps 2 --db "$work/none/store.db" >"$work/out" 2>"$work/err" || test $? = 5
grep -q 'nothing will be kept: .*No such file' "$work/err"
grep -q 'tokens/s' "$work/out"
if grep -q 'stored as run' "$work/out"; then exit 1; fi
XDG_DATA_HOME=$work/all.sql fsdplan run $tiny --steps 2 >"$work/out" 2>"$work/err" || test $? = 5
grep -q 'nothing will be kept: .*Not a directory' "$work/err"
XDG_DATA_HOME=$work/all.sql fsdplan sim --model llama3-8b --cluster dgx-h100:1 --gbs 8 --seq 128 \
  >"$work/out" 2>"$work/err"
test ! -s "$work/err"
(ulimit -f 40 && fsdplan run $tiny --steps 2 --db "$work/small.db") >"$work/out" 2>"$work/err" || test $? = 5
grep -q 'kept.*: .*limit on the size of files' "$work/err"
grep -q 'tokens/s' "$work/out"
if [ -e /dev/full ]; then
  if fsdplan db export --db "$db" >/dev/full 2>"$work/err"; then exit 1; fi
  grep -q 'standard output: No space left' "$work/err"
fi

# texts from other people are printed so that a terminal does not obey them
escape=$(printf '\033')
fsdplan db export runs --db "$db" | sed "s/,cpu,/,c$escape[31mpu,/" >"$work/escapes.csv"
grep -q "$escape" "$work/escapes.csv"
fsdplan db import "$work/escapes.csv" --db "$work/escapes.db" >"$work/out"
id=$(fsdplan db list --db "$work/escapes.db" --format=csv | sed -n '2s/,.*//p')
fsdplan db show "$id" --db "$work/escapes.db" >"$work/out"
fsdplan db list --db "$work/escapes.db" >>"$work/out"
test "$(grep -cF 'c\x1b[31mpu' "$work/out")" -ge 2
if grep -q "$escape" "$work/out"; then exit 1; fi
if script -qc true /dev/null >"$work/out" 2>&1 </dev/null; then
  script -qc "fsdplan db export --db '$work/escapes.db'" /dev/null </dev/null >"$work/out"
  grep -qF 'c\x1b[31mpu' "$work/out"
  if grep -q "$escape" "$work/out"; then exit 1; fi
fi

# faults are reported, with exit status 1; where stores are checked when they are opened, the store is
# refused
sqlite=$(command -v sqlite3 || true)
if [ -n "$sqlite" ]; then
  $sqlite "$db" 'DROP INDEX run_by_plan'
  status=0
  env -u FSDPLAN_DEBUG_CHECK fsdplan db check --db "$db" >"$work/out" 2>"$work/err" || status=$?
  test $status = 1
  grep -qx 'index run_by_plan is missing' "$work/out"
  grep -q '1 fault; --repair mends' "$work/err"
  if FSDPLAN_DEBUG_CHECK=1 fsdplan db list --db "$db" >"$work/out" 2>"$work/err"; then exit 1; fi
  $sqlite "$work/foreign.db" <"$work/all.sql"
  fsdplan db check --db "$work/foreign.db" | grep -qx 'no faults'

  # a store whose run numbers are used up, and parameters that cannot be read: neither can be imported,
  # both can be repaired
  $sqlite "$work/foreign.db" "UPDATE sqlite_sequence SET seq = 9223372036854775807 WHERE name = 'plan';
    INSERT INTO param_set VALUES ('mine', '2026-11-01T00:00:00Z', '0.1.0', 'nonsense', 'none', 1)"
  if env -u FSDPLAN_DEBUG_CHECK fsdplan db check --db "$work/foreign.db" >"$work/out" 2>"$work/err"; then exit 1; fi
  grep -q '^the last number of a plan is beyond .*, which leaves none to give' "$work/out"
  env -u FSDPLAN_DEBUG_CHECK fsdplan db export --db "$work/foreign.db" >"$work/used-up.sql"
  if fsdplan db import "$work/used-up.sql" --db "$work/new.db" 2>"$work/err"; then exit 1; fi
  grep -q 'used-up.sql: .*leaves none to give' "$work/err"
  printf 'id,created,program_version,text,validation,error_pct\nmine,2026-11-01T00:00:00Z,0.1.0,nonsense,none,1\n' \
    >"$work/params.csv"
  for import in 'db import' import; do
    # shellcheck disable=SC2086 # words
    if fsdplan $import "$work/params.csv" --db "$work/new.db" 2>"$work/err"; then exit 1; fi
    grep -q 'params.csv: parameter set mine cannot be read, .*a set begins with' "$work/err"
  done
  env -u FSDPLAN_DEBUG_CHECK fsdplan db check --repair --db "$work/foreign.db" >"$work/out"
  test "$(grep -c '^repaired: ' "$work/out")" = 2
  fsdplan db check --db "$work/foreign.db" | grep -qx 'no faults'
fi
