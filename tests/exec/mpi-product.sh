#!/bin/sh
# Ranks that are processes make the evaluator's bits, for plans that together have every pair of values
# of any two fields (tests/prop/product-pairs).
set -eu
command -v mpirun >/dev/null || { echo "no mpirun"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if ! mpirun -n 1 true >"$work/probe" 2>&1; then
  echo "mpirun does not work here:"
  cat "$work/probe"
  exit 77
fi
pairs=$top_builddir/tests/prop/product-pairs
test -x "$pairs" || { echo "built without Check"; exit 77; }
"$pairs" list >"$work/plans"
for ranks in $("$pairs" ranks "$work/plans"); do
  if ! mpirun -n "$ranks" "$pairs" run "$work/plans" >"$work/out" 2>&1; then
    if grep -q 'built without MPI' "$work/out"; then cat "$work/out"; exit 77; fi
    cat "$work/out"
    exit 1
  fi
  grep "plans on $ranks ranks" "$work/out"
done
