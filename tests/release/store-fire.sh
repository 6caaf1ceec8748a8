#!/bin/bash
# store-fire.sh BUILD [KILLS [FLIPS]]: a store loses nothing that was acknowledged, whatever happens to
# it: ten writers that are killed at random moments, a full disk, a file of a newer version, flipped bits,
# a clock that goes back, locks that fail. As root it fills a small disk; else a limit of the size of
# files stands for the disk. At the end it prints every message that was seen, with how often: read them.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$1" && pwd) kills=${2:-1000} flips=${3:-500} writers=10
export PATH=$build:$PATH FSDPLAN_CATALOGUE=$build/db/catalogue.db OPENBLAS_NUM_THREADS=1
unset FSDPLAN_DEBUG_CHECK
work=$(mktemp -d)
db=$work/store.db said=$work/said
export XDG_DATA_HOME=$work
trap 'umount "$work/disk" 2>/dev/null || true; rm -rf "$work"' EXIT
tiny=(--model llama-tiny --gbs 2 --seq 8 --steps 2 --threads 1)
fail () { echo "FAIL: $*"; exit 1; }
runs=$here/../../db/data/runs.csv

# table NAME: a row of that name.
table () { sed -n "1p;2s/^[^,]*,[^,]*,/$1,$1,/p" "$runs"; }
# rows DB: names of rows, and numbers of runs, that it holds.
rows () {
  fsdplan db export measurements --format=csv --db "$1" | awk -F, 'NR > 1 { print $4 }' | sort
  fsdplan db list --db "$1" --format=csv | awk -F, 'NR > 1 && $1 + 0 == $1 { print "run " $1 }' | sort
}
# sound DB TOLD: no faults, and all that was told to be stored is there.
sound () {
  fsdplan db check --db "$1" >"$work/check" 2>&1 || fail "db check: $(cat "$work/check")"
  rows "$1" | sort -u >"$work/has"
  sort -u "$2" | comm -23 - "$work/has" >"$work/lost"
  test ! -s "$work/lost" || fail "lost: $(tr '\n' ' ' <"$work/lost")"
}
# judge STATUS FILE: fails unless a command may end with this status; a failure needs a reason in FILE.
# Messages are collected.
judge () {
  grep -hE '^fsdplan|error|warning' "$2" | sed "s|$work|DIR|g; s/[0-9][0-9.:+-]*/N/g" >>"$said" || true
  case $1 in 0 | 1 | 5) ;; *) fail "status $1: $(cat "$2")" ;; esac
  test "$1" != 1 || grep -q '^fsdplan: ' "$2" || fail "no reason: $(cat "$2")"
}

# --- writers that are killed ---------------------------------------------------------------------
# One writer. It makes attempts until its share of the kills is reached. Each attempt is killed after a
# random time, of at most twice the time that the last attempt took which was not killed.
writer () {
  local me=$1 killed=0 n=0 most=100 delay status began
  RANDOM=$me
  while [ $killed -lt $((kills / writers)) ]; do
    n=$((n + 1))
    delay=$(printf '0.%03d' $((RANDOM % (most < 990 ? most : 990) + 1)))
    began=$(date +%s%3N) status=0
    if [ $((n % 4)) = 0 ]; then
      timeout -s KILL "$delay" fsdplan run "${tiny[@]}" --db "$db" >"$work/$me.out" 2>"$work/$me.err" || status=$?
      [ $status != 0 ] || sed -n 's/^stored as \(run [0-9]*\).*/\1/p' "$work/$me.out" >>"$work/$me.told"
    else
      table "w$me-$n" >"$work/$me.csv"
      timeout -s KILL "$delay" fsdplan import "$work/$me.csv" --db "$db" >"$work/$me.out" 2>"$work/$me.err" || status=$?
      [ $status != 0 ] || echo "w$me-$n" >>"$work/$me.told"
    fi
    case $status in
      0) most=$((2 * ($(date +%s%3N) - began) + 1)) ;;
      137) killed=$((killed + 1)) most=$((most + most / 10)) ;;
    esac
    [ $status = 137 ] || judge $status "$work/$me.err"
  done
  echo "$n" >"$work/$me.attempts"
}
for me in $(seq $writers); do writer "$me" 2>"$work/shell" & done # the shell reports the kills there
for job in $(jobs -p); do wait "$job" || fail "a writer ended with an error"; done
cat "$work"/*.told >"$work/told"
sound "$db" "$work/told"
echo "killed: $writers writers, $kills kills in $(cat "$work"/*.attempts | paste -sd+ | bc) attempts," \
  "$(wc -l <"$work/told") acknowledged, none lost"
cp "$work/told" "$work/told.before"

# --- a full disk ---------------------------------------------------------------------------------
mkdir "$work/disk"
if mount -t tmpfs -o size=600k none "$work/disk" 2>"$work/err"; then limit=unlimited; else limit=400; fi
: >"$work/told"
full=0
for n in $(seq 400); do
  table "d$n" >"$work/row.csv"
  status=0
  if [ $((n % 8)) = 0 ]; then
    (ulimit -f $limit && fsdplan run "${tiny[@]}" --db "$work/disk/store.db") >"$work/out" 2>"$work/err" || status=$?
    [ $status != 0 ] || sed -n 's/^stored as \(run [0-9]*\).*/\1/p' "$work/out" >>"$work/told"
  else
    (ulimit -f $limit && fsdplan import "$work/row.csv" --db "$work/disk/store.db") >"$work/out" 2>"$work/err" || status=$?
    [ $status != 0 ] || echo "d$n" >>"$work/told"
  fi
  judge $status "$work/err"
  [ $status = 0 ] || full=$((full + 1))
  [ $full -lt 40 ] || break
done
[ $full -gt 0 ] || fail "the disk was never full"
sound "$work/disk/store.db" "$work/told"
[ $limit != unlimited ] || mount -o remount,size=8m "$work/disk"
fsdplan import "$work/row.csv" --db "$work/disk/store.db" >"$work/out" 2>"$work/err"
sound "$work/disk/store.db" "$work/told"
echo "full disk: $full refusals, $(wc -l <"$work/told") acknowledged, none lost; goes on with room again"

# --- a newer version -----------------------------------------------------------------------------
cp "$db" "$work/newer.db"
sqlite3 "$work/newer.db" 'PRAGMA user_version = 99'
cksum <"$work/newer.db" >"$work/before"
for command in 'db list' 'db check' 'db export' "import $work/row.csv" "run ${tiny[*]}" 'db delete 1' \
  'db check --repair' 'sim --model llama3-8b --cluster dgx-h100:1 --gbs 8' 'validate --stored' 'calibrate --dry-run'; do
  status=0
  # shellcheck disable=SC2086 # words
  fsdplan $command --db "$work/newer.db" >"$work/out" 2>"$work/err" || status=$?
  judge $status "$work/err"
  test $status = 1 || fail "$command on a newer store: $status" # predictions rest on it, too
done
cksum <"$work/newer.db" | cmp -s - "$work/before" || fail "a newer store was changed"
echo "newer version: refused, not changed"

# --- flipped bits --------------------------------------------------------------------------------
fsdplan db export --db "$db" >"$work/all.sql"
sqlite3 "$db" 'PRAGMA wal_checkpoint (TRUNCATE)' >"$work/out"
size=$(stat -c %s "$db") refused=0 same=0 other=0
RANDOM=7
for n in $(seq "$flips"); do
  cp "$db" "$work/flipped.db"
  rm -f "$work/flipped.db-wal" "$work/flipped.db-shm"
  at=$(((RANDOM * 32768 + RANDOM) % size))
  [ $((n % 4)) != 0 ] || at=$((RANDOM % 4096)) # headers and the schema more often
  byte=$(od -An -tu1 -j $at -N 1 "$db")
  # shellcheck disable=SC2059 # a number of its own
  printf "\\x$(printf %02x $((byte ^ (1 << (RANDOM % 8)))))" |
    dd of="$work/flipped.db" bs=1 seek=$at conv=notrunc status=none
  bad=0
  for command in 'db check' 'db list' 'db export'; do
    status=0
    # shellcheck disable=SC2086
    fsdplan $command --db "$work/flipped.db" >"$work/out" 2>"$work/err" || status=$?
    judge $status "$work/err"
    [ $status = 0 ] || bad=1
  done
  if [ $bad = 1 ]; then
    refused=$((refused + 1))
  elif cmp -s "$work/out" "$work/all.sql"; then
    same=$((same + 1))
  else
    other=$((other + 1)) # a letter or a digit of a cell: the file has no checksums
  fi
done
echo "flipped bits: of $flips, $refused refused, $same without effect, $other another value in a cell"

# --- a clock that goes back, locks that fail -----------------------------------------------------
${CC:-cc} -shared -fPIC -O1 -Wall -I "$build" -o "$work/odd.so" "$here/odd-system.c" -ldl
cp "$work/told.before" "$work/told"
for n in $(seq 20); do
  table "c$n" >"$work/row.csv"
  for command in "import $work/row.csv" "run ${tiny[*]}" 'db list' 'validate --stored'; do
    status=0
    # shellcheck disable=SC2086
    LD_PRELOAD=$work/odd.so FSDPLAN_CLOCK=back fsdplan $command --db "$db" >"$work/out" 2>"$work/err" || status=$?
    judge $status "$work/err"
    test $status = 0 || fail "$command with a clock that goes back: $(cat "$work/err")"
    sed -n 's/^stored as \(run [0-9]*\).*/\1/p' "$work/out" >>"$work/told"
  done
  echo "c$n" >>"$work/told"
done
sound "$db" "$work/told"
echo "clock: goes back with every look: $(wc -l <"$work/told") acknowledged, none lost"
rows "$db" >"$work/before"
for command in "import $work/row.csv" "run ${tiny[*]}" 'db list' 'db delete 1'; do # they wait for half a minute
  status=0
  # shellcheck disable=SC2086
  LD_PRELOAD=$work/odd.so FSDPLAN_LOCKS=none timeout 300 fsdplan $command --db "$db" >"$work/out" 2>"$work/err" || status=$?
  judge $status "$work/err"
  test $status != 0 || fail "$command without locks was done"
done
rows "$db" | cmp -s - "$work/before" || fail "without locks the store changed"
sound "$db" "$work/told"
echo "locks that fail: refused, nothing lost"

echo "what was said:"
sort "$said" | uniq -c | sort -rn
