#!/bin/sh
# What the library exports is made of instructions that every x86-64 has: wider ones are in copies that
# the loader picks from (name.avx2), and in what is called after the processor was asked. Only one that
# lacks them would stop at them. Skips (77) elsewhere, and where all of it was compiled for a machine.
cd "$top_builddir" || exit 99
[ "$(uname -m)" = x86_64 ] || { echo "not an x86-64" && exit 77; }
command -v objdump >/dev/null || { echo "no objdump" && exit 77; }
flags=$(sed -n 's/^CFLAGS = //p' Makefile)
# shellcheck disable=SC2086 # flags are words
if echo | $CC $flags -dM -E - | grep -q __AVX__; then echo "compiled for a machine: $flags" && exit 77; fi

list=$(mktemp) || exit 99
trap 'rm -f "$list"' EXIT
nm -g --defined-only libexec.a 2>/dev/null | awk 'NF == 3 && $2 == "T" { print $3 }' |
  grep -v '\.' >"$list"
[ -s "$list" ] || { echo "libexec.a exports nothing" && exit 1; }
objdump -d --no-show-raw-insn libexec.a | awk -v list="$list" '
  BEGIN { while ((getline name < list) > 0) is_exported["<" name ">:"] = 1 }
  /^[0-9a-f]+ </ { here = $2 }
  is_exported[here] && /\t(v[a-z0-9]+|tile[a-z]+|tdp[a-z0-9]+)( |$)/ && !seen[here]++ { print here, $0; found = 1 }
  END { exit found }'
