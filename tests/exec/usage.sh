#!/bin/sh
# Every command has help on standard output. Wrong usage is explained on standard error alone, and the
# exit status is the documented one.
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0

complain () { echo "$*"; cat "$work/out" "$work/err"; bad=1; }

# expect STATUS PATTERN COMMAND...: checks the exit status and standard error of the command.
expect () {
  status=$1 pattern=$2
  shift 2
  "$@" >"$work/out" 2>"$work/err" </dev/null
  got=$?
  case $got in $status) ;; *) false ;; esac || complain "exit $got, not $status: $*"
  grep -q -- "$pattern" "$work/err" || complain "no '$pattern': $*"
  test "$status" = 0 || test ! -s "$work/out" || complain "results beside an error: $*"
  test "$(wc -l <"$work/err")" -le 2 || complain "more than a message: $*"
}

commands=$(fsdplan __complete "" | cut -f 1 | grep -vx help)
for command in $commands; do
  if ! fsdplan $command --help >"$work/out" 2>"$work/err" || test -s "$work/err" \
      || ! grep -q "^Usage:" "$work/out"; then
    complain "no help: $command"
  fi
  fsdplan --help | grep -q "^  $command " || complain "not in fsdplan --help: $command"
done

# Words are UTF-8 in every locale, and a word that is not UTF-8 is an error.
mkdir "$work/modèle"
echo '{}' >"$work/modèle/config.json"
for locale in C C.UTF-8 xx_XX.UTF-8; do
  expect 2 "modèle/config.json: " env LC_ALL=$locale fsdplan show --model "$work/modèle"
  expect 2 "^fsdplan: --model: 'caf.xe9' is not UTF-8$" env LC_ALL=$locale fsdplan show --model "$(printf 'caf\351')"
done

# A name cannot add lines to plans and jobs.
expect 2 "cluster: 'x.x0aEND.x0a' has a line break" fsdplan emit --as slurm --model llama-tiny --gbs 8 \
  --cluster "x
END
"

expect 2 "Usage: fsdplan" sh -c 'fsdplan 2>&1 >/dev/null | head -n 1 >&2; exit 2'
expect 2 "there is no command 'dance'; see" fsdplan dance
expect 2 "did you mean 'llama3.1-405b'?" fsdplan show --model llama3-405b
expect 2 "did you mean 'sim'?" fsdplan simm
expect 2 "did you mean 'sim'?" fsdplan help simm
expect 2 "one command at a time" fsdplan help sim show
expect 2 "did you mean '--model'?" fsdplan sim --modle llama-tiny
expect 2 "one shell is needed" fsdplan completion csh
expect 2 "a model is needed" fsdplan sim
expect 2 "a cluster is needed" fsdplan sim --model llama3-8b
expect 2 "gbs" fsdplan sim --model llama3-8b --cluster dgx-h100:1
expect 2 "is not FIELD=VALUE" fsdplan sim --model llama3-8b --cluster dgx-h100:1 --gbs 8 --set mbs
expect 2 "straetgy" fsdplan sim --model llama3-8b --cluster dgx-h100:1 --gbs 8 --set straetgy=optim
expect 2 "table, csv, json" fsdplan show --format=xml
expect 2 "llama3-8" fsdplan show --model llama3-8
expect 2 "diff: give two plans" fsdplan diff --model llama-tiny --cluster dgx-h100:1 --gbs 8
expect 2 "plan b: rule" fsdplan diff --model llama-tiny --cluster dgx-h100:1 --gbs 8 --to gbs=9
expect 2 "one picture is needed" fsdplan plot
expect 2 "PyTorch's fsdp2" fsdplan emit --as fully_shard
expect 2 "did you mean 'slurm'" fsdplan emit --as slrum
expect 2 "did you mean 'fsdplan'" fsdplan emit --as slurm --runtime fsdplam
expect 2 "it is for --as slurm" fsdplan emit --as plan --runtime fsdplan --model llama3-8b \
  --cluster dgx-h100:1 --gbs 8
expect 2 "a model is needed" fsdplan emit --as megatron
expect 2 "pipeline" fsdplan emit --as megatron --model llama3-8b --cluster dgx-h100:1 --gbs 8 --set pp=2
expect 1 "has no GPUs" fsdplan emit --as torchrun --model llama-tiny --cluster local-cpu:2 --gbs 8
expect 1 "cannot express this plan: stack=native" fsdplan emit --as megatron_fsdp --model llama3-8b \
  --cluster dgx-h100:1 --gbs 8 --set stack=native
expect 2 "no picture 'mona-lisa'" fsdplan plot mona-lisa --model llama-tiny
plot_tiny="--model llama-tiny --cluster h100:8 --gbs 8 --seq 128"
expect 2 "--run is for timeline, memory and loss" fsdplan plot pareto $plot_tiny --run 1
expect 2 "--sweep is for pareto, tradeoff, breakdown and scaling" fsdplan plot memory $plot_tiny --sweep mbs=1
expect 2 "--gpus is for scaling" fsdplan plot tradeoff $plot_tiny --gpus 8
expect 2 "--weak is for scaling" fsdplan plot timeline $plot_tiny --weak
expect 2 "--top is for breakdown" fsdplan plot scaling $plot_tiny --top 3
expect 2 "--from is for accuracy" fsdplan plot scaling $plot_tiny --from x.csv
expect 2 "naming a plan or a log is for breakdown and loss" fsdplan plot pareto $plot_tiny a.plan
expect 2 "--top: '9' is out of range: it must be from 1 to 8" fsdplan plot breakdown $plot_tiny --top 9
expect 2 "one or two fields are to vary" fsdplan plot tradeoff $plot_tiny
expect 2 "plans are named, or swept, or found" fsdplan plot breakdown $plot_tiny --sweep mbs=1 a.plan
expect 1 "plan $work/none: .*No such file" fsdplan plot breakdown $plot_tiny "$work/none"
expect 2 "gbs is needed" fsdplan plot scaling --model llama-tiny --cluster h100:8
for sizes in "" , 8,,16 8.. ..8 8..x 0 -8 8.5; do
  expect 2 "--gpus: " fsdplan plot scaling $plot_tiny "--gpus=$sizes"
done
expect 2 "12 devices of dgx-h100 are neither" fsdplan plot scaling $plot_tiny --gpus 8,12
expect 3 "none of these 4 plans is allowed, the first because: rule" fsdplan plot scaling $plot_tiny --gpus 16
printf 'a,b\n1,2\n' >"$work/a.csv"
printf 'predicted_step_ms,measured_step_ms\n1,x\n' >"$work/b.csv"
printf 'predicted_step_ms,measured_step_ms\n1,0\n' >"$work/c.csv"
printf 'measured_step_ms,predicted_step_ms\n1,\n' >"$work/d.csv"
expect 2 "a.csv: its first line has no column predicted_step_ms" fsdplan plot accuracy --from "$work/a.csv"
expect 2 "b.csv:2: measured_step_ms: 'x' is not" fsdplan plot accuracy --from "$work/b.csv"
expect 2 "c.csv:2: measured_step_ms: '0' is out of range" fsdplan plot accuracy --from "$work/c.csv"
expect 2 "d.csv: no row has both" fsdplan plot accuracy --from "$work/d.csv"
printf 'predicted_step_ms,measured_step_ms,time_ok\n1,1,no\n' >"$work/e.csv"
printf 'predicted_step_ms,measured_step_ms\n1,"1\n' >"$work/f.csv"
expect 2 "e.csv: no row has both" fsdplan plot accuracy --from "$work/e.csv"
expect 2 "f.csv:2: " fsdplan plot accuracy --from "$work/f.csv"
expect 2 "no column predicted_device_mib" fsdplan plot accuracy --from "$work/d.csv" --of device_mib
expect 2 "--of: 'device_mb' is not predicted: did you mean 'device_mib'?" \
  fsdplan plot accuracy --from "$work/d.csv" --of device_mb
expect 2 "no column colour" fsdplan plot accuracy --from "$work/d.csv" --by colour
expect 2 "--of and --by are for tables" fsdplan plot accuracy --by stack
expect 1 "nothing.db: cannot open the store" fsdplan plot accuracy --db "$work/nothing.db"
expect 2 "--rank: this plan has ranks 0 to 7" \
  fsdplan lower --model llama3-8b --cluster dgx-h100:1 --gbs 8 --rank 8
expect 2 "pipeline" fsdplan sim --model llama3-8b --cluster dgx-h100:1 --gbs 8 --set pp=2
expect 1 "is known from 2026-01-21 to 2026-08-22" fsdplan sim --model llama3-8b --cluster dgx-h100:1 --gbs 8 \
  --set stack=megatron-fsdp@2026-01-01
expect 1 "pp above 1 is modelled for" fsdplan sim --model llama3-8b --cluster dgx-h100:1 --gbs 8 --set stack=fsdp1 \
  --set pp=2
expect 1 "tp_overlap=async beside products with scales of blocks, which lie behind whole matrices, is modelled and not" \
  fsdplan run --model llama-tiny --gbs 4 --ranks 4 --set tp=2 --set sp=on --set compute=mxfp8 \
  --set tp_overlap=async
expect 1 "would sum again what is a sum already" fsdplan run --model llama-tiny --gbs 4 --ranks 2 \
  --set sync_every_micro_batch=on --set strategy=optim
expect 1 "task=eval is modelled and not executed" \
  fsdplan run --model llama-tiny --gbs 4 --ranks 2 --set task=eval
expect 2 "rule graphs-need-gpus: cuda_graph=on and graph_modules need a cluster of GPUs" \
  fsdplan run --model llama-tiny --gbs 4 --ranks 2 --set cuda_graph=on
expect 1 "no host_memory_bandwidth is known, which offloading needs: --hw host_memory_bandwidth=400GB/s or a" \
  fsdplan sim --model llama-tiny --cluster l40s --gbs 4 --set offload_optimizer=1 --set precision_aware=on
: >"$work/empty.plan"
expect 2 "empty.plan names none: a model is needed: --model llama3-8b, for example$" fsdplan emit --plan "$work/empty.plan"
printf '[ours]\nnodes=2\ndevices_per_node=8\ndevice=h100-80gb\nnics_per_node=1\n' >"$work/ours.ini"
expect 1 "no link_bandwidth is known, .*: --hw nvlink_domain=8 where NVLink joins them, else --hw link_bandwidth=" \
  fsdplan sim --model llama3-8b --gbs 16 --seq 128 --cluster "$work/ours.ini"
expect 1 "no nic_rate is known, which more than one node needs: --hw nic_rate=200Gbit/s" \
  fsdplan sim --model llama3-8b --gbs 16 --seq 128 --cluster "$work/ours.ini" --hw nvlink_domain=8
expect 1 "fsdplan: cluster l40s-8x: no nic_bandwidth is known, which more than one node needs: --hw nic_bandwidth=" \
  fsdplan query --model llama3-8b --cluster l40s-8x:2 --gbs 64 --seq 4096
expect 1 "fsdplan: --allow offload: cluster l40s-8x: no host_memory_bandwidth is known" \
  fsdplan query --model llama3-8b --cluster l40s-8x --gbs 64 --seq 4096 --allow offload
expect 3 "of one node, shorter sequences nor any other class of --allow makes it fit; more nodes were not tried: clus" \
  fsdplan query --model llama3-70b --cluster l40s-8x --gbs 64 --seq 4096
expect 1 "exp_avg=fp8 beside offload_optimizer above 0 is modelled and not executed yet: it must be fp32" fsdplan run \
  --model llama-tiny --gbs 4 --ranks 2 --set precision_aware=on --set exp_avg=fp8 --set offload_optimizer=0.5
expect 2 "rule experts-need-sp" fsdplan run --gbs 2 --ranks 2 --set tp=2 --set sp=off --seq 8 --db :memory: \
  --model family=gpt_oss,layers=2,hidden=32,ffn=64,heads=2,kv_heads=2,head_dim=16,vocab=64,max_seq=32,experts=4,topk=2,expert_ffn=32
expect 1 "modelled and not executed" fsdplan run --gbs 2 --seq 32 --db :memory: \
  --model family=phi3,layers=2,hidden=32,ffn=64,heads=2,kv_heads=2,head_dim=16,vocab=64,max_seq=32,rope_scaling=longrope
run="fsdplan run --model llama-tiny --gbs 4 --seq 16 --db :memory:"
printf '\001\000\377' >"$work/odd.bin"
printf '\001\000\377\377%.0s' $(seq 40) >"$work/other.bin"
: >"$work/x.idx"
head -c 100 /dev/zero >"$work/zeros.u16"
expect 2 "3 bytes are no whole number of tokens of 2 bytes: the file is truncated" $run --data "$work/odd.bin"
expect 2 "token 65535 at place 1 is outside the model's vocabulary of 256" $run --data "$work/other.bin"
expect 1 "No such file" $run --data "$work/none.bin"
expect 1 "^fsdplan: $work: is a directory, not a file" $run --data "$work"
expect 2 "say on what beside --data with --eval-data" $run --data "$work/other.bin" --eval-every 2
expect 1 "^fsdplan: --data: several are WEIGHT:FILE,WEIGHT:FILE" $run --data "0.5 $work/a 0.5 $work/b"
expect 2 "x.idx: header: it has 34 bytes, and the file 0: it is truncated" $run --data "$work/x"
expect 2 "^fsdplan: --shuffle needs --data FILE: synthetic text" $run --shuffle
expect 2 "^fsdplan: --epochs and --steps each say how long" $run --data "$work/zeros.u16" --epochs 1 --steps 2
expect 2 "zeros.u16 has no index, which would say where documents end" $run --data "$work/zeros.u16" --set doc_tokens=3
expect 2 "zeros.u16 has no index, which would say where documents begin" $run --data "$work/zeros.u16" --shuffle-documents
expect 2 "--shuffle-documents needs --data FILE: synthetic text" $run --shuffle-documents
expect 2 "--document-end: attention goes over whole sequences and every token is learned" $run --data "$work/zeros.u16" --document-end 0
expect 2 "eod_mask_loss=on: say which token ends documents with --document-end TOKEN" $run --set eod_mask_loss=on
expect 1 "eod_mask_loss=on with a mean for each micro batch is modelled and not executed yet: use per_token_loss=on" \
  $run --set eod_mask_loss=on --set per_token_loss=off --document-end 0
expect 2 "--document-end: '256' is out of range" $run --data "$work/zeros.u16" --document-end 256 --set doc_tokens=3
expect 2 "--epochs 1: the data has 3 sequences for it, and a step takes gbs=4" $run --data "$work/zeros.u16" --epochs 1
expect 2 "^fsdplan: --eval-batches: say when with --eval-every" $run --eval-batches 2
expect 2 "no .safetensors file is here" $run --init "$work"
expect 1 "No such file" $run --init "$work/none"
expect 1 "no checkpoint: .*/manifest" $run --resume "$work"
expect 2 "each give the weights: use one" $run --resume "$work" --init "$work"
expect 2 "say where with --save" $run --save-every 2
expect 2 "^fsdplan: --keep: say where with --save" $run --keep 2
expect 2 "^fsdplan: --keep: '0' is out of range" $run --save "$work/x" --keep 0
expect 2 "'hourly' is not one of none, linear, cosine" $run --decay hourly
expect 2 "--min-lr" $run --lr 0.1 --min-lr 0.2
expect 2 "--warmup" $run --steps 2 --warmup 3
expect 1 "/dev/null: Not a directory" $run --save /dev/null
expect 1 "cannot be read\|No such file\|not there\|no store" fsdplan db list --db "$work/none/none.db"
expect 2 "db: use list" fsdplan db
expect 2 "db: use list" fsdplan db delete
expect 2 "did you mean 'steps'" fsdplan db list --kind=step
expect 1 "No such file" fsdplan db import "$work/none.csv" --db "$work/some.db"
expect 1 "nothing was stored yet" fsdplan db delete 1 --db "$work/some.db"
expect 2 "there is no backend 'abacus'" fsdplan run --backend abacus
expect 1 "no CUDA device\|cuda is not in this build" env CUDA_VISIBLE_DEVICES= fsdplan run --backend cuda
expect 2 "is one rank" fsdplan run --model llama-tiny --gbs 2 --comm self --ranks 2
expect 3 "this machine has" fsdplan run --model llama3.1-405b --gbs 1 --seq 128 --db :memory:

# Every option that takes a number, but for fields of plans, with a word that is no number and with a number
# out of range; test-units has more of both.
asked="fsdplan query --model llama-tiny --cluster h100:8 --gbs 8 --seq 128 --no-keep"
while read -r option words; do
  for value in nan -1 ""; do
    expect 2 "^fsdplan: $option: '$value' " $words "$option=$value"
  done
done <<END
--top $asked
--apart $asked
--front $asked
--headroom $asked
--step $asked --max seq
--gpus $asked
--tokens $asked
--deadline $asked --tokens 1T
--price $asked --tokens 1T
--budget $asked --tokens 1T --price 2
--tokens fsdplan sim $plot_tiny
--price fsdplan sim $plot_tiny --tokens 1T
--top fsdplan plot breakdown $plot_tiny
--rank fsdplan lower $plot_tiny
--run fsdplan plot memory
--folds fsdplan calibrate
--seconds fsdplan bench
--ranks fsdplan bench
--lr $run
--min-lr $run
--clip $run
--weight-decay $run
--bias-rate $run
--steps $run
--warmup $run
--seed $run
--save-every $run --save x
--keep $run --save x
--skip-nonfinite $run
--eval-every $run
--eval-batches $run --eval-every 1
--epochs $run --data $work/zeros.u16
--timeout $run
--ranks $run
END
expect 2 "^fsdplan: --top: '0' " $asked --top 0
expect 2 "^fsdplan: --tokens: '0' " $asked --tokens 0
expect 2 "^fsdplan: --price: '0' " $asked --tokens 1T --price 0
expect 2 "^fsdplan: --budget: '0' " $asked --tokens 1T --price 2 --budget 0
expect 2 "^fsdplan: --deadline: '0' " $asked --tokens 1T --deadline 0d
expect 2 "^fsdplan: --price: 'dgx-h10' is no cluster that is asked about: these are dgx-h100$" \
  $asked --tokens 1T --price dgx-h10=2
expect 2 "'dgx-h10' is no cluster that is asked about: these are dgx-h100, dgx-a100$" \
  $asked --cluster dgx-a100 --tokens 1T --price dgx-h100=2,dgx-h10=1
expect 2 "'dgx-a100' is no cluster that is asked about" fsdplan sim $plot_tiny --tokens 1T --price dgx-a100=2

expect 2 "^fsdplan: --plan: '' names no file" fsdplan sim --plan=
expect 2 "^fsdplan: --trace: '' names no file" fsdplan sim $plot_tiny --trace ""
expect 2 "^fsdplan: --memory: '80' is less than any device has" $asked --memory 80
expect 2 "^fsdplan: --only: 'mbs=' is not FIELD=VALUE" $asked --only mbs=
expect 2 "^fsdplan: --step is for --max seq" $asked --step 7
expect 2 "^fsdplan: --price: write one price for all" $asked --tokens 15t --price 1,2

expect 2 "^fsdplan: db: --dry-run is for import" fsdplan db delete 1 --dry-run
expect 2 "^fsdplan: --op: 'all_gahter' is no collective: did you mean 'all_gather'" fsdplan import - --op all_gahter

# A message is one line, and repeats only a part of a long word.
long=$(printf '%05000d' 0 | tr 0 z)
while read -r words; do
  expect "[12]" "^fsdplan: " fsdplan $words
  test "$(wc -c <"$work/err")" -lt 1200 || complain "too many words: $words"
done <<END
$long
sim --plan $long
show --cluster $long
show --model folder/$long
sim $plot_tiny --set $long
sim $plot_tiny --sweep mbs=$long
query $plot_tiny --only $long
validate --where $long
import $long
run --comm $long --model llama-tiny --gbs 2
plot $long
db list --kind $long
db list --db $long
END
lines=$(printf 'a\nb\033[31m')
expect 1 '^fsdplan: a.x0ab.x1b.31m: No such file' fsdplan import "$lines"

expect 2 "--rank: 'x' is not" fsdplan lower --model llama3-8b --rank x
expect 2 "diff: only one of the plans" fsdplan diff - -
expect 2 "each give a plan: use one" fsdplan sim --plan a --from-megatron b

# Every command with an unknown option, with each of its options without its value, with a value for an
# option that takes none, and with a word too many.
for command in $commands; do
  expect 2 "there is no option '--nonsense'" fsdplan $command --nonsense
  expect 2 "there is no option '-y'" fsdplan $command -y
  for option in $(fsdplan $command --help | grep -oE -e '^  (-[a-z], )?--[a-z-]+=' | grep -oE -e '--[a-z-]+'); do
    expect 2 "$option needs a value: " fsdplan $command $option
  done
  for option in $(fsdplan $command --help | grep -oE -e '^  --[a-z-]+ ' | tr -d ' '); do
    expect 2 "$option takes no value" fsdplan $command $option=3
  done
  case $(fsdplan $command --help | head -n 1) in
    *"[OPTION…]" | *"[OPTION...]") expect 2 "unexpected 'now'" fsdplan $command now ;;
    *" FILE…") expect 1 "now: No such file" fsdplan $command now ;;
    *) expect 2 "$command: \|no picture" fsdplan $command now now now ;;
  esac
done

# Every way to name a file, with files that cannot be used: the message is one line that names the file,
# the exit status tells mistakes of the user from failures of the machine, and nothing is written.
files=$work/files
mkdir -p "$files/folder" "$files/folder.json" "$files/folder.ini"
for kind in empty binary large unreadable; do
  for name in $kind $kind.json $kind.ini; do : >"$files/$name"; done
done
for name in binary binary.json binary.ini; do printf '\377\000\001\n\n\n' >"$files/$name"; done
for name in large large.json large.ini; do truncate -s 100M "$files/$name"; done
chmod 0 "$files"/unreadable*
list () { (cd "$files" && ls -lnR --time-style=full-iso) ; }
list >"$work/before"

# refuse STATUS KIND PATTERN: checks every way to name a file of that kind.
refuse () {
  kind=$files/$2
  for command in show sim lower "emit --as plan" run; do
    expect $1 "$3" fsdplan $command --plan "$kind" --model llama-tiny --cluster dgx-h100:1 --gbs 8
    expect $1 "$3" fsdplan $command --from-megatron "$kind" --cluster dgx-h100:1
    expect $1 "$3" fsdplan $command --model "$kind.json" --cluster dgx-h100:1 --gbs 8
    expect $1 "$3" fsdplan $command --cluster "$kind.ini" --model llama-tiny --gbs 8
  done
  expect $1 "$3" fsdplan show --model "$kind.json"
  expect $1 "$3" fsdplan show --cluster "$kind.ini"
  expect $1 "$3" fsdplan show --from-megatron "$kind"
  expect $1 "$3" fsdplan diff "$kind" "$kind" --model llama-tiny --cluster dgx-h100:1
  expect $1 "$3" fsdplan plot memory --plan "$kind" --model llama-tiny --cluster dgx-h100:1
  for verb in list "show 1" "export 1" "delete 1" check; do
    expect $1 "$kind: cannot open the store\|$kind: nothing was stored" fsdplan db $verb --db "$kind"
  done
  expect $1 "$kind: " fsdplan db import "$kind" --db "$work/store.db"
  expect $1 "$kind: cannot open the store" fsdplan sim --plan @1 --db "$kind"
  expect $1 "$kind: cannot open the store" fsdplan plot memory --run 1 --db "$kind"
}
refuse 1 missing "No such file"
refuse 1 folder "is a directory\|/config.json: No such file"
refuse 2 binary "is not UTF-8 text"
refuse 2 large "larger than"
# Every command that would read the store says first that a file is no store.
for words in "query $plot_tiny" "sim $plot_tiny --params defaults" validate "calibrate --folds 0" \
  "run --model llama-tiny --gbs 2" "show --cluster mine" "plot memory $plot_tiny" "db list"; do
  expect 2 "^fsdplan: $files/binary: cannot open the store: " fsdplan $words --db "$files/binary"
done
expect 1 "cannot open the store: it is a directory" fsdplan query $plot_tiny --db "$files/folder"
expect 1 "cannot open the store: it is no regular file; :memory:" fsdplan query $plot_tiny --db /dev/null
test -r "$files/unreadable" || refuse 1 unreadable "ermission denied"

# An empty file is a plan, which leaves all fields open; it is no other kind of file.
fsdplan sim --plan "$files/empty" --model llama3-8b --cluster dgx-h100:1 --gbs 8 >"$work/out" 2>&1 ||
  complain "an empty plan is a plan"
expect 2 "a model is needed" fsdplan sim --plan "$files/empty"
expect 2 "nor the argument list" fsdplan sim --from-megatron "$files/empty" --cluster dgx-h100:1
expect 2 "not a JSON object" fsdplan show --model "$files/empty.json"
expect 2 "no section" fsdplan show --cluster "$files/empty.ini"
expect 1 "nothing was stored yet" fsdplan db list --db "$files/empty"
expect 1 "nothing was stored yet" fsdplan db delete 1 --db "$files/empty"

# Places that cannot be written.
plan="--model llama3-8b --cluster dgx-h100:1 --gbs 8"
expect 1 "No such file\|cannot" fsdplan sim $plan --trace "$files/none/trace.json"
expect 1 "directory" fsdplan sim $plan --trace "$files/folder"
expect 1 "No such file" fsdplan emit --as plan $plan -o "$files/none/plan"
expect 1 "directory" fsdplan emit --as plan $plan -o "$files/folder"
expect 2 "extension\|svg" fsdplan plot memory $plan -o "$files/picture.xyz"
list | diff "$work/before" - || complain "something was written"

# a plan that does not fit is shown, and ends with 3
fsdplan sim --model llama3-70b --cluster dgx-h100:1 --gbs 8 --set strategy=no_shard \
  >"$work/out" 2>"$work/err"
test $? = 3 || complain "a plan that does not fit must end with 3"
grep -q "does not fit" "$work/out" || complain "nothing says that it does not fit"

exit $bad
