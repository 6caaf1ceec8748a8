#!/bin/sh
# Instructions, counted by callgrind, of one simulation of each plan that bench-sim knows by number: as in a
# search, from nothing; with its schedule there; and, with costs there too, for all totals.
program=$1
if ! command -v valgrind >/dev/null; then
  echo "bench-instructions: skipped, there is no valgrind"
  exit 0
fi
# count PLAN WHAT TIMES: instructions of the whole program
count ()
{
  valgrind --tool=callgrind --callgrind-out-file=/dev/null "$program" "$1" "$2" "$3" 2>&1 |
    awk '/refs:/ { gsub (",", ""); print $NF }'
}
# each PLAN WHAT: instructions of one
each ()
{
  few=$(count "$1" "$2" 1) many=$(count "$1" "$2" 21)
  echo $(((many - few) / 20))
}
for plan in 0 1 2 3 4 5; do
  echo "$("$program" $plan none 0): $(each $plan nothing) from nothing, $(each $plan shared) with its" \
    "schedule there, $(each $plan totals) for its totals"
done
