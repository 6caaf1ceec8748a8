#!/bin/sh
# network-split.sh BUILD: root: two hosts of two ranks each, played by network namespaces, whose link is
# cut in the middle of a run. Each host names the ranks of the other after --timeout, and its last rank has
# ended within a minute more. (mpirun itself waits for the other host until TCP gives up.)
set -eu
top_srcdir=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "$1" && pwd)
export PATH="$build:$PATH" FSDPLAN_CATALOGUE="$build/db/catalogue.db" OPENBLAS_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 \
  OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
timeout=20
work=$(mktemp -d)
launcher=
trap 'test -z "$launcher" || kill "$launcher" 2>/dev/null || true; rm -rf "$work"' EXIT
cat >"$work/rank.sh" <<END
if [ \$OMPI_COMM_WORLD_RANK = 2 ]; then
  (until test -e $work/kept/manifest; do sleep 0.1; done; ip link set eth0 down; date +%s >$work/cut) &
fi
exec fsdplan run --model llama-tiny --gbs 8 --seq 16 --steps 1000000 --timeout $timeout --threads 1 \
  --save $work/kept --save-every 1 --db :memory: >$work/out.\$OMPI_COMM_WORLD_RANK 2>$work/err.\$OMPI_COMM_WORLD_RANK
END
EACH=2 LIMIT=300 "$top_srcdir/tests/exec/two-hosts.sh" 320mbit sh "$work/rank.sh" >"$work/out" 2>"$work/err" &
launcher=$!
until test -e "$work/cut"; do
  kill -0 $launcher 2>/dev/null || { cat "$work"/err*; exit 77; }
  sleep 0.1
done
while pgrep -f "^run .*$work/kept" >"$work/left"; do
  test $(($(date +%s) - $(cat "$work/cut"))) -lt $((timeout + 60)) || { echo "left: $(cat "$work/left")"; exit 1; }
  sleep 0.1
done
echo "all ranks have ended $(($(date +%s) - $(cat "$work/cut"))) s after the cut, with --timeout $timeout"
grep -hE 'no sign of|failed' "$work"/err.*
grep -qE 'no sign of rank 2 on n2, rank 3 on n2 within' "$work"/err.[01]
grep -qE 'no sign of rank 0 on n1, rank 1 on n1 within' "$work"/err.[23]
