#!/bin/sh
# Leaves out sources of published runs in turn, as if each were a cluster that nobody has reported.
# Calibrating to five runs of a source brings the predictions of its other runs nearer, and changes
# those of no other GPU or stack.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
runs=$top_srcdir/db/data/runs.csv
db=$work/store.db

fail () { echo "sources.sh: $*"; exit 1; }

# rows_of IDS: prints the table of runs with these identifiers.
rows_of () { awk -F, 'NR == FNR { wanted[$1]; next } FNR == 1 || $1 in wanted' "$1" "$runs"; }

# predict TABLE PARAMS: prints a line per run that has a time.
predict ()
{
  fsdplan validate "$1" --rows --format=csv --db "$db" --params "$2" | awk -F, '$5 == "yes" && $9'
}

# fit TABLE BASE ID: calibrates the set ID to the table, on top of BASE
fit ()
{
  fsdplan calibrate "$1" --base "$2" --id "$3" --folds 0 --db "$db" >"$work/out" 2>&1 ||
    { cat "$work/out"; fail "calibrate: $3"; }
}

mean_error () { awk -F, '{ sum += $9 < 0 ? -$9 : $9 } END { print sum / NR }' "$1"; }

# Runs without pipelines.
fsdplan validate "$runs" --stack megatron --where pp=1 --rows --format=csv --db "$db" --params defaults |
  awk -F, '$5 == "yes" && $7 { print $1 }' >"$work/ids"
rows_of "$work/ids" >"$work/all.csv"
printf 'foundry-0001\nnt-0063\npr3067-a3\n' >"$work/ids"
rows_of "$work/ids" >"$work/strangers.csv"
grep ',b200,' "$work/all.csv" >>"$work/strangers.csv"

n=0
for source in nemotron/README_15b.md llama3.1/README_8b.md nemotron/README.md; do
  n=$((n + 1))
  head -n 1 "$work/all.csv" | tee "$work/five.csv" >"$work/rest.csv"
  grep -F -v " $source@" "$work/all.csv" >"$work/others.csv"
  grep -F " $source@" "$work/all.csv" >"$work/own"
  awk -F, '$3 == "fit"' "$work/own" >"$work/fit"
  awk -v n="$(wc -l <"$work/fit")" 'BEGIN { for (k = 0; k < 5; k++) is[int ((2 * k + 1) * n / 10) + 1] }
    NR in is' "$work/fit" >>"$work/five.csv"
  grep -F -x -v -f "$work/five.csv" "$work/own" >>"$work/rest.csv"
  test "$(wc -l <"$work/five.csv")" = 6 || fail "$source: no five runs"
  fit "$work/others.csv" defaults "without-$n"
  fit "$work/five.csv" "without-$n" "with-$n"
  for set in without with; do
    predict "$work/rest.csv" "$set-$n" >"$work/rest.$set"
    predict "$work/strangers.csv" "$set-$n" >"$work/strangers.$set"
  done
  test "$(wc -l <"$work/strangers.without")" -gt 9 || fail "$source: nobody else"
  cmp "$work/strangers.without" "$work/strangers.with" || fail "$source: predictions of others moved"
  before=$(mean_error "$work/rest.without") after=$(mean_error "$work/rest.with")
  echo "$source: $(wc -l <"$work/rest.with") other runs, $before -> $after % off"
  awk -v before="$before" -v after="$after" 'BEGIN { exit !(after < before) }' ||
    fail "$source: not nearer"
done
