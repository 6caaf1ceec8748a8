#!/bin/sh
# run-golden.sh FILE.test: runs the command in FILE.test and compares its output with FILE.expected.
#
#   command: fsdplan show --model llama3-8b     run by sh in this folder; $tmp is an empty folder
#   exit: 2                                     expected exit status, 0 unless told
#   stdin: FILE                                 in this folder; /dev/null unless told
#   stderr: yes                                 compare stderr too, as one stream with stdout
#
# UPDATE_GOLDEN=1 writes FILE.expected from what comes out, to be read in the diff.
test_file=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
expected=${test_file%.test}.expected

value () { sed -n "s/^$1: *//p" "$test_file"; }

command=$(value command) status=$(value exit) input=$(value stdin) merge=$(value stderr)
test -n "$command" || { echo "$1: no command"; exit 99; }
scratch=$(mktemp -d) || exit 99
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/tmp" && cd "$(dirname "$test_file")" || exit 99
tmp=$scratch/tmp
XDG_DATA_HOME=$tmp/data # a store of its own
export tmp XDG_DATA_HOME

if [ "$merge" = yes ]; then
  sh -c "$command" <"${input:-/dev/null}" >"$scratch/out" 2>&1
else
  sh -c "$command" <"${input:-/dev/null}" >"$scratch/out" 2>"$scratch/err"
fi
got=$?

if [ $got -ne "${status:-0}" ]; then
  echo "$1: exit status $got instead of ${status:-0}: $command"
  cat "$scratch/out" "$scratch/err" 2>/dev/null
  exit 1
fi
if [ -n "$UPDATE_GOLDEN" ]; then
  cmp -s "$scratch/out" "$expected" || cp "$scratch/out" "$expected" || exit 99
  exit 0
fi
diff -u "$expected" "$scratch/out" && exit 0
echo "$1: output differs: $command"
echo "When it should: UPDATE_GOLDEN=1 make check, and read the diff."
exit 1
