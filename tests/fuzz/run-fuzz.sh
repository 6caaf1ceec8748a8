#!/bin/sh
# run-fuzz.sh SECONDS SEED CORPUS FUZZER...: each fuzzer for that long, from CORPUS/<parser>; what it
# finds stays beside it in the build folder. SEED 0 is another one every time; any other makes the same
# inputs of the same build. Closes with counts as the test harness prints them.
seconds=$1 seed=$2 corpus=$3
shift 3
[ $# -gt 0 ] || { echo "no fuzzers here: configure with CC=clang --enable-fuzzers"; exit 1; }
passed=0 failed=0
for fuzzer; do
  parser=${fuzzer##*/fuzz-}
  mkdir -p "$fuzzer.found" || exit 1
  if "$fuzzer" -max_total_time="$seconds" -seed="$seed" -timeout=30 -print_final_stats=1 \
    -artifact_prefix="$fuzzer.found/" "$fuzzer.found" "$corpus/$parser" >"$fuzzer.log" 2>&1; then
    passed=$((passed + 1))
    echo "PASS: $fuzzer ($(sed -n 's/^# accepted: //p' "$fuzzer.log") inputs accepted)"
  else
    failed=$((failed + 1))
    echo "FAIL: $fuzzer"
    tail -n 40 "$fuzzer.log"
  fi
done
echo "# PASS:  $passed"
echo "# FAIL:  $failed"
test "$failed" -eq 0
