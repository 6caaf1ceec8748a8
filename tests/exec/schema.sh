#!/bin/sh
# The JSON that commands print is valid by docs/schema, each command by its own schema; members that are
# missing or unknown, other types and other versions are found.
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 99
export XDG_DATA_HOME="$work/data"
check=$top_builddir/tests/exec/schema-check schemas=$top_srcdir/docs/schema golden=$top_srcdir/tests/golden
bad=0 n=0

complain () { echo "$*"; bad=1; }

# as SCHEMA STATUS COMMAND...: checks the output and exit status of the command. Each of its lines is
# kept under COMMAND's name.
as ()
{
  schema=$1 wanted=$2 n=$((n + 1))
  shift 2
  fsdplan "$@" --format=json >"$n-$schema.json" 2>err
  status=$?
  test $status -eq "$wanted" || complain "fsdplan $*: exit status $status: $(cat err)"
  "$check" "$schemas/$schema.json" "$n-$schema.json" || complain "fsdplan $*"
}

tiny='--model llama-tiny --cluster h100-80gb:2 --gbs 8 --seq 128'
large='--model llama3-8b --cluster dgx-h100:1 --gbs 128 --seq 8192'
pipeline='--cluster dgx-h100:8 --gbs 512 --set stack=megatron --set strategy=optim --set tp=8 --set sp=on --set pp=4'
# shellcheck disable=SC2086 # options are words
{
  as query 0 query $tiny --top 2
  as query 0 query $tiny --no-keep --only tp=1
  as query 0 query $tiny --explain mbs=2
  as query 0 query $tiny --explain mbs=3
  as query 0 query $tiny --gpus 1,2 --tokens 1B --price 2
  as query 0 query $tiny --set stack=fsdp2,megatron-fsdp
  as query 0 query --model llama-tiny --cluster h100-80gb:2 --gbs 8 --max seq
  as query 0 query --model mixtral-8x7b --cluster dgx-h100:4 --gbs 32 --only ep=8 --only tp=2 --top 1
  as error 3 query --model llama3-70b --cluster h100-80gb:1 --gbs 8
  as sim 0 sim $large
  as sim 0 sim $tiny --tokens 1B --price 2
  as sim 0 sim --model llama3-70b $pipeline
  as sim 0 sim --model llama3-70b $pipeline --set vpp=2
  as sim 0 sim --model llama-tiny --cluster local-cpu:2 --gbs 8
  as sim 3 sim $large --set strategy=no_shard
  as sim 0 sim $tiny --sweep mbs=1,2,3
  as sim 0 sim $tiny --explain memory
  as sim 0 sim $tiny --explain time
  as error 2 sim $tiny --set stack=none
  as diff 0 diff $tiny --to mbs=2
  as diff 0 diff $tiny --to mbs=2 --explain memory
  as diff 0 diff $tiny --to mbs=2 --explain time
  as diff 0 diff $large --to stack=megatron --to strategy=optim --to tp=2
  as show 0 show
  for model in llama3-8b gpt2 deepseek-v3 gemma2-9b mixtral-8x7b gpt-oss-20b; do as show 0 show --model $model; done
  for cluster in dgx-h100 gb200-nvl72:2 local-cpu:2 "RTX 4090:2"; do as show 0 show --cluster "$cluster"; done
  as show 0 show $tiny
  as show 0 show --model llama3-70b $pipeline
  for list in fields model-keys rules stacks gpus costs; do as show 0 show --$list; done
  as validate 0 validate "$golden/runs-small.csv"
  as validate 0 validate "$golden/runs-sites.csv" --reliability
  as run 0 run --model llama-tiny --ranks 2 --gbs 4 --seq 16 --steps 2 --eval-every 1
  as run 0 run --model llama-tiny --gbs 4 --seq 16 --steps 1 --db :memory: --set offload_layers=1
  as bench 0 bench --dry-run --only copy
  as bench 0 bench --only copy --memory 4KiB --seconds 1
  as validate 0 validate --stored
  as calibrate 0 calibrate "$golden/runs-small.csv" --dry-run --folds 0
  as calibrate 0 calibrate "$golden/runs-small.csv" --folds 0 --leave-out=source
  as import 0 import "$golden/logs/megatron.txt" --cluster dgx-h100
  as db 0 db import "$golden/store-small.json"
  for kind in runs plans queries clusters steps measurements ops cudnn params fitted; do
    as db 0 db list --kind $kind
    as db 0 db export $kind
  done
  as db 0 db show 1
  as db 0 db export
}
# An export contains its version and can be imported; that one of a newer version cannot is reported.
fsdplan db export --format=json >whole.json && fsdplan db import whole.json --db new.db >/dev/null ||
  complain "an export is not read"
sed 's/"schema_version" : 1/"schema_version" : 2/' whole.json >newer.json
fsdplan db import newer.json --db new.db 2>err && complain "an export of a newer version is read"
grep -q 'newer one' err || complain "of a newer version: $(cat err)"

# Planted faults. The tenth document is the prediction of a plan.
fault ()
{
  sed "$2" 10-sim.json >fault.json
  cmp -s fault.json 10-sim.json && complain "$1: nothing changed"
  "$check" "$schemas/sim.json" fault.json >out && complain "$1: not found"
  test $? -gt 1 && complain "$1: $(cat out)"
  grep -qF "$3" out || complain "$1: $(cat out)"
}
fault "a member that is missing" '/"mfu"/d' '$: lacks mfu'
fault "one too many" 's/"mfu" :/"new" : 1, &/' '$.new: is not in the schema'
fault "another type" 's/"fits" : true/"fits" : "yes"/' '$.fits: is no boolean'
fault "another type inside" 's/"peak_op" : "[^"]*"/"peak_op" : 1/' '$.memory.peak_op: is no string'
fault "another version" 's/"schema_version" : 1/"schema_version" : 2/' '$.schema_version: another value'
fault "no document" '$d' 'fault.json'
test $n -gt 60 || complain "only $n documents"
exit $bad
