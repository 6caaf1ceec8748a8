#!/bin/sh
# run-fuzz.sh SECONDS SEED CORPUS FUZZER...: each fuzzer for that long, as many at once as there are processors,
# from CORPUS/<parser>; what it finds stays beside it in the build folder. SEED 0 is another one every time; any
# other makes the same inputs of the same build. Closes with counts as the test harness prints them.
export seconds="$1" seed="$2" corpus="$3"
shift 3
[ $# -gt 0 ] || { echo "no fuzzers here: configure with CC=clang --enable-fuzzers"; exit 1; }

# Says how one fuzzer went, and nothing before it has ended: others write, too.
# shellcheck disable=SC2016 # expanded by the shell of each
one='
  mkdir -p "$1.found" || exit 255
  if "$1" -max_total_time="$seconds" -seed="$seed" -timeout=30 -print_final_stats=1 \
    -artifact_prefix="$1.found/" "$1.found" "$corpus/${1##*/fuzz-}" >"$1.log" 2>&1; then
    echo "PASS: $1 ($(sed -n "s/^# accepted: //p" "$1.log") inputs accepted)"
  else
    printf "%s\n" "FAIL: $1
$(tail -n 40 "$1.log")"
  fi'
results=$(printf '%s\n' "$@" | xargs -n 1 -P "$(nproc 2>/dev/null || echo 1)" sh -c "$one" one) || exit 1
printf '%s\n' "$results"
passed=$(printf '%s\n' "$results" | grep -c '^PASS: ')
echo "# PASS:  $passed"
echo "# FAIL:  $(($# - passed))"
test "$passed" -eq $#
