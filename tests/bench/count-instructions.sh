#!/bin/sh
# Instructions of one simulation of each plan that bench-sim knows by number, by callgrind.
program=$1
if ! command -v valgrind >/dev/null; then
  echo "bench-instructions: skipped, there is no valgrind"
  exit 0
fi
# count PLAN TIMES: instructions of the whole program
count ()
{
  valgrind --tool=callgrind --callgrind-out-file=/dev/null "$program" "$1" "$2" 2>&1 |
    awk '/refs:/ { gsub (",", ""); print $NF }'
}
for plan in 0 1 2 3 4; do
  few=$(count $plan 1) many=$(count $plan 101)
  echo "$("$program" $plan 0): $(((many - few) / 100)) instructions"
done
