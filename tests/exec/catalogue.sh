#!/bin/sh
# The catalogue: each build gives the same bytes, broken tables leave no half-made one, and the program
# finds it beside itself.
scratch=$(mktemp -d) || exit 99
trap 'rm -rf "$scratch"' EXIT
data=$top_srcdir/db/data
build=$top_builddir/db/catalogue-build
failed=0

fail () { echo "catalogue.sh: $*"; failed=1; }

"$build" "$scratch/once.db" "$data" && "$build" "$scratch/twice.db" "$data" || fail "does not build"
cmp "$scratch/once.db" "$scratch/twice.db" || fail "builds differ"
cmp "$scratch/once.db" "$top_builddir/db/catalogue.db" || fail "not what was built"

# broken TABLE SED-SCRIPT MESSAGE: a copy of the tables with one line changed is refused by name.
broken ()
{
  rm -rf "$scratch/data"
  mkdir "$scratch/data"
  cp "$data"/*.csv "$scratch/data"
  chmod u+w "$scratch/data"/* # a distribution is read-only
  sed "$2" "$data/$1" >"$scratch/data/$1"
  "$build" "$scratch/broken.db" "$scratch/data" 2>"$scratch/err" && fail "$1, $2: accepted"
  grep -qF -e "$3" "$scratch/err" || { fail "$1, $2:"; cat "$scratch/err"; }
  [ ! -e "$scratch/broken.db" ] || fail "$1, $2: left half a catalogue"
}
broken points.csv '1s/size/sice/' 'points.csv:1: the header must be curve,size_bytes,bus_gb_s'
broken points.csv '3s/,[^,]*$//' 'points.csv:3: not 5 fields'
broken points.csv '3s/$/,more/' 'points.csv:3: not 5 fields'
broken points.csv '3s/,[0-9]*,/,big,/' "points.csv:3: 'big' is not a whole number"
broken points.csv '3s/,[0-9]*,/,-8,/' 'points.csv:3: CHECK constraint failed'
broken points.csv '3s/^[^,]*/nowhere/' 'points.csv:3: FOREIGN KEY constraint failed'
broken points.csv 's/coll-0018$/coll-0017/' 'points.csv:3: UNIQUE constraint failed'
broken curves.csv '2s/,a100-80gb,/,a100-81gb,/' 'curves.csv:2: FOREIGN KEY constraint failed'
broken curves.csv '2s/all_reduce,auto/all_reduce,magic/' 'curves.csv:2: CHECK constraint failed'
broken products.csv '2s/,no,/,perhaps,/' 'products.csv:2: NOT NULL constraint failed'
broken attention.csv '2s/[0-9.]*$//' "attention.csv:2: '' is not a decimal number"
broken sources.csv '4s/^.*$//' 'sources.csv:4: not 2 fields'
rm "$scratch/data/sources.csv"
"$build" "$scratch/broken.db" "$scratch/data" 2>"$scratch/err" && fail "a missing table: accepted"
grep -q 'sources.csv: No such file' "$scratch/err" || fail "a missing table: not named"

# Without FSDPLAN_CATALOGUE the catalogue beside the program is used.
unset FSDPLAN_CATALOGUE
rows=$("$top_builddir/fsdplan" show --costs --format=csv | wc -l)
[ "$rows" -gt 800 ] || fail "not found beside the program: $rows rows"
FSDPLAN_CATALOGUE=$scratch/none.db "$top_builddir/fsdplan" show --costs 2>"$scratch/err"
[ $? -eq 1 ] && grep -q 'none.db: there is no catalogue here' "$scratch/err" || fail "none: not said"

exit $failed
