#!/bin/sh
# Ranks on two hosts with a slow link between them, which network namespaces imitate: timings within a
# node and between nodes are kept apart, and only used for that network.
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
db=$work/store.db bad=0
complain () { echo "network.sh: $*"; bad=1; }
two_hosts () { EACH=2 LIMIT=120 "$top_srcdir/tests/exec/two-hosts.sh" "$@" >"$work/out" 2>"$work/err"; }

# cluster RATE: two nodes of two ranks, with so many megabytes per second for each rank.
fsdplan show --cluster local-cpu:2 --format=ini >"$work/one.ini" || exit 1
cluster ()
{
  sed 's/^\[.*/[played]/; s/^nodes=1$/nodes=2/' "$work/one.ini"
  printf 'nics_per_node=1\nnic_rate=%s MB/s\nnic_bandwidth=%s MB/s\nnic_latency=30 us\n' $((2 * $1)) "$1"
}

# A faster network is never predicted slower; these are predictions, not timings.
last=
for rate in 80 40 20 10 5; do
  cluster $rate >"$work/at-$rate.ini"
  ms=$(fsdplan sim --model llama-100m --cluster "$work/at-$rate.ini" --gbs 4 --seq 16 --db "$work/none.db" \
    --format=json | sed -n 's/^ *"step_ms" : \([0-9.]*\),.*/\1/p' | head -n 1)
  test -n "$ms" || complain "no prediction at $rate MB/s"
  test -z "$last" || awk "BEGIN { exit !($ms > $last) }" || complain "at $rate MB/s $ms ms, at twice that $last"
  last=$ms
done

two_hosts 320mbit fsdplan run --model llama-tiny --gbs 8 --seq 16 --steps 1 --db :memory:
status=$?
if test $status = 77 || grep -q 'built without MPI' "$work/err"; then
  cat "$work/err"
  test $bad = 0 || exit 1
  exit 77
fi
test $status = 0 || { cat "$work/err"; complain "two hosts do not run"; exit 1; }

# --- levels -----------------------------------------------------------------------------------

two_hosts 320mbit fsdplan bench --only collective --cluster "$work/at-20.ini" --dry-run --format=csv ||
  { cat "$work/err"; complain "what would be timed"; }
for op in all_gather reduce_scatter all_reduce; do
  for level in ',[^,]*,2' ' nodes=2,[^,]*,2' ' nodes=2,[^,]*,4'; do
    grep -q "^collective,$op,count=256$level," "$work/out" || complain "no $op of '$level'"
  done
done
two_hosts 320mbit fsdplan bench --only collective --seconds 1 --cluster "$work/at-20.ini" --db "$db" --format=csv ||
  { cat "$work/err"; complain "bench"; }
awk -F, 'NR > 1 { factor = ($5 - 1) / $5 * ($2 == "all_reduce" ? 2 : 1); bus = $12 * factor
  if ($13 - bus > 0.0015 || bus - $13 > 0.0015) { print; exit 1 } }' "$work/out" || complain "not the bus bandwidth"
fsdplan db export ops --db "$db" >"$work/ops"
grep ' nodes=2' "$work/ops" | grep -v ', 2 x 20 MB/s between nodes"' && complain "the network is not named"
grep -v ' nodes=2' "$work/ops" | grep 'between nodes' && complain "a network inside a node"
grep -q ',mpi,4,all_reduce,count=256 nodes=2,buf=fp32,' "$work/ops" || complain "what is timed first is not in the store"

# Timings between nodes are used for that network, and for no other.
step ()
{
  fsdplan sim --model llama-tiny --cluster "$work/at-$1.ini" --gbs 8 --seq 16 --set strategy=no_shard --db "$2" \
    --format=csv
}
test "$(step 40 "$db")" = "$(step 40 "$work/none.db")" || complain "what was timed on another network is taken"
test "$(step 20 "$db")" != "$(step 20 "$work/none.db")" || complain "what was timed is not taken"

# --- a run, and what it teaches -----------------------------------------------------------------

two_hosts 320mbit fsdplan run --model llama-tiny --gbs 8 --seq 16 --steps 4 --set dp_outer=2 --cluster "$work/at-20.ini" \
  --db "$db" || { cat "$work/err"; complain "a run on two hosts"; }
grep -q '^slowest: rank [0-3] on n[12], ' "$work/out" || complain "hosts are not named"
two_hosts 320mbit fsdplan run --model llama-tiny --gbs 8 --seq 16 --steps 4 --db "$db" ||
  { cat "$work/err"; complain "a run where nobody says what the network is"; }
fsdplan db list --db "$db" >"$work/list"
grep -q ' played:2 ' "$work/list" && grep -q ' local/[0-9a-f]*:2 ' "$work/list" || { cat "$work/list"; complain "not two nodes"; }
fsdplan calibrate --folds 0 --id here --db "$db" --format=csv >"$work/fit" 2>"$work/err" ||
  { cat "$work/err"; complain "calibrate"; }
grep -q '^native,[^,]*,2,' "$work/fit" || { cat "$work/fit"; complain "not fitted to both runs"; }

# The ranks do not lie where the cluster says.
two_hosts 320mbit fsdplan bench --only collective --cluster local-cpu:4 --db "$db"
test $? = 2 || complain "a cluster of one node: exit status"
grep -q 'ranks 0 and 2 are of one node of the plan and lie on n1 and n2' "$work/err" ||
  { cat "$work/err"; complain "does not say where ranks lie"; }
exit $bad
