#!/bin/sh
# Every command has help on stdout; wrong usage says why on stderr only, and how it ends is as promised.
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0

complain () { echo "$*"; cat "$work/out" "$work/err"; bad=1; }

# expect STATUS PATTERN-ON-STDERR COMMAND...
expect () {
  status=$1 pattern=$2
  shift 2
  "$@" >"$work/out" 2>"$work/err" </dev/null
  got=$?
  test $got = "$status" || complain "exit $got, not $status: $*"
  grep -q -- "$pattern" "$work/err" || complain "no '$pattern': $*"
  test "$status" = 0 || test ! -s "$work/out" || complain "results beside an error: $*"
  test "$(wc -l <"$work/err")" -le 2 || complain "more than a message: $*"
}

for command in show sim diff lower plot run db; do
  if ! fsdplan $command --help >"$work/out" 2>"$work/err" || test -s "$work/err" \
      || ! grep -q "^Usage:" "$work/out"; then
    complain "no help: $command"
  fi
  fsdplan --help | grep -q "^  $command " || complain "not in fsdplan --help: $command"
done

expect 2 "Usage: fsdplan" sh -c 'fsdplan 2>&1 >/dev/null | head -n 1 >&2; exit 2'
expect 2 "there is no command 'dance'" fsdplan dance
expect 2 "a model is needed" fsdplan sim
expect 2 "a cluster is needed" fsdplan sim --model llama3-8b
expect 2 "gbs" fsdplan sim --model llama3-8b --cluster dgx-h100:1
expect 2 "nonsense" fsdplan sim --nonsense
expect 2 "is not FIELD=VALUE" fsdplan sim --model llama3-8b --cluster dgx-h100:1 --gbs 8 --set mbs
expect 2 "straetgy" fsdplan sim --model llama3-8b --cluster dgx-h100:1 --gbs 8 --set straetgy=optim
expect 2 "table, csv, json" fsdplan show --format=xml
expect 2 "unexpected 'now'" fsdplan sim now
expect 2 "llama3-8" fsdplan show --model llama3-8
expect 2 "diff: give two plans" fsdplan diff --model llama-tiny --cluster dgx-h100:1 --gbs 8
expect 2 "plan b: rule" fsdplan diff --model llama-tiny --cluster dgx-h100:1 --gbs 8 --to gbs=9
expect 2 "one picture is needed" fsdplan plot
expect 2 "no picture 'mona-lisa'" fsdplan plot mona-lisa --model llama-tiny
expect 2 "--rank: this plan has ranks 0 to 7" \
  fsdplan lower --model llama3-8b --cluster dgx-h100:1 --gbs 8 --rank 8
expect 2 "pipeline" fsdplan sim --model llama3-8b --cluster dgx-h100:1 --gbs 8 --set pp=2
expect 1 "is known from 2026-01-21 to 2026-08-22" fsdplan sim --model llama3-8b --cluster dgx-h100:1 --gbs 8 \
  --set stack=megatron-fsdp@2026-01-01
expect 1 "only pp = 1" fsdplan sim --model llama3-8b --cluster dgx-h100:1 --gbs 8 --set stack=native \
  --set pp=2
expect 1 "needs the op exchange, which is modelled and not executed" \
  fsdplan run --model llama-tiny --gbs 4 --ranks 2 --set cp=2
for field in task=eval nan_check=loss cuda_graph=on sync_every_micro_batch=on; do
  expect 1 "$field is modelled and not executed" \
    fsdplan run --model llama-tiny --gbs 4 --ranks 2 --set $field
done
expect 1 "no host_bandwidth is known, which offloading needs" \
  fsdplan run --model llama-tiny --gbs 4 --ranks 2 --set offload_layers=1
expect 1 "needs the op row_stat" fsdplan run --model llama-tiny --gbs 4 --ranks 2 --set ce_fusion=off
expect 1 "needs the op all_to_all" fsdplan run --model llama-tiny --gbs 4 --ranks 2 --set reduce_algo=a2a
expect 1 "modelled and not executed" fsdplan run --model llama-tiny --gbs 4 --ranks 4 --set dp_outer=2
expect 1 "modelled and not executed" fsdplan run --model gpt2 --gbs 1 --seq 64 --db :memory:
expect 1 "modelled and not executed" fsdplan run --model llama-tiny --gbs 2 --seq 32 --db :memory: \
  --set main_params=bf16
expect 1 "cannot be read\|No such file\|not there\|no store" fsdplan db list --db "$work/none/none.db"
expect 2 "db: use list" fsdplan db
expect 2 "db: use list" fsdplan db delete
expect 2 "did you mean 'steps'" fsdplan db list --kind=step
expect 1 "No such file" fsdplan db import "$work/none.csv" --db "$work/some.db"
expect 1 "nothing was stored yet" fsdplan db delete 1 --db "$work/some.db"
expect 2 "there is no backend 'abacus'" fsdplan run --backend abacus
expect 1 "cuda is not in this version" fsdplan run --backend cuda
expect 2 "is one rank" fsdplan run --model llama-tiny --gbs 2 --comm self --ranks 2
expect 3 "this machine has" fsdplan run --model llama3.1-405b --gbs 1 --seq 128 --db :memory:

# a plan that does not fit is shown, and ends with 3
fsdplan sim --model llama3-70b --cluster dgx-h100:1 --gbs 8 --set strategy=no_shard \
  >"$work/out" 2>"$work/err"
test $? = 3 || complain "a plan that does not fit must end with 3"
grep -q "does not fit" "$work/out" || complain "nothing says that it does not fit"

exit $bad
