#!/bin/sh
# A run that was recorded in a file can be imported into a store later. Importing it again adds nothing,
# and the store is then as if the run had been stored at once.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tiny="--model llama-tiny --gbs 4 --seq 16 --ranks 2"
home=$work/home
mkdir "$home"

XDG_DATA_HOME=$home fsdplan run $tiny --steps 4 --record "$work/a.sql" >"$work/out" 2>"$work/err"
grep -q "^recorded in $work/a.sql: fsdplan import $work/a.sql$" "$work/out"
test ! -e "$home/fsdplan" # no store was made
if ls "$work" | grep '^a.sql.'; then echo "a piece of the record is left"; exit 1; fi
fsdplan run $tiny --steps 2 --seed 7 --record "$work/b.sql" >"$work/out" 2>"$work/err"

# into a store that has a run already: imported runs get new numbers
db=$work/store.db
fsdplan run $tiny --steps 1 --db "$db" >"$work/out" 2>"$work/err"
for times in 1 2; do
  fsdplan import "$work/a.sql" "$work/b.sql" --db "$db" >"$work/out" 2>"$work/err"
  test "$(fsdplan db list --db "$db" --format=csv | grep -c ',done,cpu,threads,2,')" = 3
done
fsdplan db list --kind=steps --db "$db" --format=csv >"$work/steps"
test "$(wc -l <"$work/steps")" = 8
fsdplan db show 2 --db "$db" | grep -q '^settings lr=0.001 beta1=0.9 '
test "$(fsdplan db export 2 --db "$db" | grep -c '^trace 1 ')" = 2
fsdplan db check --db "$db" | grep -qx 'no faults'

# a run that is killed leaves a record that can be imported; one whose record cannot be written does not
# begin
if fsdplan run $tiny --steps 1 --record "$work/none/c.sql" >"$work/out" 2>"$work/err"; then exit 1; fi
grep -q "^fsdplan: .*$work/none/c.sql" "$work/err"
test ! -s "$work/out"
fsdplan run $tiny --steps 1000000000 --record "$work/d.sql" >"$work/out" 2>"$work/err" &
pid=$!
until test -e "$work/d.sql"; do kill -0 $pid; done
kill -KILL $pid
wait $pid 2>/dev/null || true
fsdplan import "$work/d.sql" --db "$work/killed.db" >"$work/out" 2>"$work/err"
fsdplan db list --db "$work/killed.db" --format=csv | grep -q '^1,.*,interrupted,cpu,threads,2,'
fsdplan db check --db "$work/killed.db" | grep -qx 'no faults'
