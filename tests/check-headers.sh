#!/bin/sh
# Every header says "#pragma once" and compiles alone.
cd "$top_srcdir" || exit 99
failed=0
for header in $(find planner advise cli sim exec db plots tests -name '*.h' | sort); do
  grep -q '^#pragma once$' "$header" || { echo "$header: no #pragma once"; failed=1; }
  echo "#include \"$header\"" |
    $CC -std=gnu11 -Wall -Werror -fsyntax-only -I. $HEADER_CPPFLAGS -x c - ||
    { echo "$header: does not compile alone"; failed=1; }
done
exit $failed
