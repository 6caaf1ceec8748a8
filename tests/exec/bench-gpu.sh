#!/bin/sh
# fsdplan bench on fake GPUs, as a user runs it: rows are stored under the name of the GPU that predictions
# look for, with the communicator that was used; ops in formats that the GPU lacks are counted; predictions
# rest on the rows, and calibrate fits to runs. The fake clock counts calls, so no time here means anything.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
db=$work/store.db
cp "$top_builddir/tests/fake/nvml-fake.so" "$work/libnvidia-ml.so.1"
FAKE_GPUS=2 XDG_DATA_HOME=$work/data
export FAKE_GPUS XDG_DATA_HOME
gpus=$top_builddir/tests/fake/exec-cuda

fail () { echo "bench-gpu.sh: $*"; cat "$work/out" "$work/err"; exit 1; }

# gpu STATUS WORD...: fsdplan-exec-cuda, where the loader finds the fake driver's library
gpu ()
{
  expected=$1 status=0
  shift
  LD_LIBRARY_PATH=$work${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} "$gpus" "$@" >"$work/out" 2>"$work/err" || status=$?
  test "$status" = "$expected" || fail "$* ended with $status"
}

bench="bench --seconds 3600 --memory 100KiB --only copy,reduction,optimizer,collective --db $db --format=csv"

# One rank; two with a GPU each, by NCCL; two that share one.
gpu 0 bench --seconds 3600 --memory 100KiB --only copy,reduction,optimizer --db "$db" --format=csv
one=$(($(wc -l <"$work/out") - 1))
test "$one" -gt 10 || fail "$one rows"
awk -F, 'NR > 1 && !($5 == 1 && $6 > 0 && $8 > 0 && $8 <= $7 && $7 <= $9)' "$work/out" | grep . &&
  fail "not positive, or not ordered"
grep -q '^fsdplan: not timed: products of compute=mxfp8: h100-80gb has no rate for them$' "$work/err" || fail "mxfp8"
gpu 0 $bench --ranks 2
two=$(($(wc -l <"$work/out") - 1))
grep -q '^collective,all_gather,count=4096,out=bf16 in=bf16,2,' "$work/out" || fail "no collective"
gpu 0 $bench --ranks 2 --comm threads
shared=$(($(wc -l <"$work/out") - 1))
fsdplan db export ops --db "$db" >"$work/ops"
test "$(($(wc -l <"$work/ops") - 1))" = $((one + two + shared)) || fail "the store has other rows"
rows () { test "$(grep -cE "$2" "$work/ops")" = "$1" || fail "not $1 rows of $2"; }
rows $((one + two + shared)) '"h100-80gb, [^"]*cuBLASLt [0-9]+[^"]*",cuda,'
rows "$one" ',cuda,self,1,'
rows 0 ',cuda,threads,1,'
rows "$shared" ',cuda,threads,2,'
test "$(grep -cE ',cuda,(self|nccl),2,' "$work/ops")" = "$two" || fail "not $two rows of two ranks with a GPU each"
rows "$(grep -c '^collective' "$work/out")" ',cuda,nccl,2,'
fsdplan db check --db "$db" >/dev/null

# step STORE WORD...: the milliseconds that are predicted
step ()
{
  from=$1
  shift
  fsdplan sim --model llama3.2-1b --seq 4096 --gbs 2 --set compute=bf16 --db "$from" --format=json "$@" \
    >"$work/out" 2>"$work/err" || fail "sim $*"
  grep '"step_ms"' "$work/out" || fail "no step"
}

# takes WORD...: whether the prediction differs from the one without the store's rows
takes () { test "$(step "$db" "$@")" != "$(step "$work/none.db" "$@")"; }

# Predictions for such GPUs rest on the rows, but only those of stack=native.
takes --cluster h100-80gb:2 --set stack=native || fail "nothing timed is in the prediction"
takes --cluster h100-80gb:1 --set stack=native || fail "nothing timed on one is in the prediction"
takes --cluster h100-80gb:2 --set stack=megatron-fsdp && fail "another runtime takes them"
takes --cluster a100-80gb:2 --set stack=native && fail "another GPU takes them"

# Runs are predicted from the rows, and calibrate fits the rest of the error.
run="run --model llama-tiny --seq 16 --steps 2 --set compute=bf16 --db $db --format=json"
gpu 0 $run --gbs 2
gpu 0 $run --gbs 4
fsdplan calibrate --folds 0 --id mine --db "$db" --format=csv >"$work/out" 2>"$work/err" || fail calibrate
grep -q '^native,[^,]*,2,' "$work/out" || fail "not fitted to both runs"

# Ops that a device refuses are counted, with the reason: blocks that cuBLASLt multiplies on Hopper alone.
FAKE_CAPABILITY=100 gpu 0 bench --dry-run --memory 4MiB --only product --db "$db" --format=csv
grep -qE '^fsdplan: [1-9][0-9]* ops are not timed: .* in fp8-1x128, which cuBLASLt multiplies on GPUs of compute' \
  "$work/err" || fail "not counted"
grep -q 'fp8-1x128' "$work/out" && fail "refused, and timed"

# A cuDNN of an unknown version wants more workspace: it is asked before the plan is made, which then has
# room for it. Attention that cuDNN refuses is done by batched products; that is said once and stored with
# the run.
batched='batched products take it$'
long="run --model llama-tiny --seq 128 --steps 2 --set compute=bf16 --gbs 1 --db $work/asked.db --format=json"
FAKE_CUDNN_MORE=100000 gpu 0 $long
grep "$batched" "$work/err" && fail "not asked"
FAKE_CUDNN=90701 gpu 0 $long
test "$(grep -c "attention backwards.*$batched" "$work/err")" = 1 || fail "not told once"
fsdplan db show 2 --db "$work/asked.db" | grep -q "attention backwards.*$batched" || fail "not kept"

# NCCL wants more than one core of a rank.
if command -v taskset >/dev/null; then
  real=$gpus
  core=$(taskset -cp $$ | sed 's/.*: *\([0-9]*\).*/\1/')
  printf '#!/bin/sh\nexec taskset -c "%s" "%s" "$@"\n' "$core" "$real" >"$work/one-core"
  chmod +x "$work/one-core"
  gpus=$work/one-core
  gpu 0 $run --gbs 2 --ranks 2 --comm nccl
  gpus=$real
  test "$(grep -c '^fsdplan: a rank has one core to itself' "$work/err")" = 1 || fail "one core"
fi

# What is refused.
gpu 2 bench --cluster a100-80gb:1 --db "$db"
grep -q 'its GPUs are a100-80gb, and those of this machine, which are timed here, h100-80gb' "$work/err" || fail "name"
gpu 2 bench --cluster local-cpu --db "$db"
grep -q 'its devices are no GPUs, which --backend cuda times' "$work/err" || fail "processors"
gpu 2 bench --ranks 2 --comm mpi --db "$db"
grep -q "'mpi' does not join these ranks: it must be nccl, with a GPU for each, or threads" "$work/err" || fail "mpi"
gpu 2 bench --memory 5 --only rope --db "$db"
grep -q "memory: no op.s operands take as little" "$work/err" || fail "nothing is that small"
