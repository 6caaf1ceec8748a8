#!/bin/sh
# sections.sh BUILD RESULTS [SECTION...]: what is to be known of a machine's GPU, measured in sections of
# a few minutes each, all of them unless some are named; --list names them, the most telling first.
#
# A section that is done leaves RESULTS/SECTION.rows, and all that it printed in RESULTS/SECTION.log. It is
# not run again until its rows are removed, so the same command goes on with a script that was cut short;
# a section that was cut short keeps the rows that it has. Without a GPU a section is skipped; one that
# fails is reported, and tried again the next time. A table of all rows comes last. In the environment:
#
#   SECTION_SECONDS  how long a section may take, 500 unless set
#   TOTAL_SECONDS    how long all sections together may take: those that do not fit are left for the next time
#   PACK             a file that all of RESULTS is packed into after each section, for machines whose disk
#                    is lost when they are given back: unpack it and go on
#   PYTHON           an interpreter that has PyTorch, and NVIDIA's libraries as packages
#   RACE_ROUNDS, RACE_STEPS, BENCH_SECONDS, BENCH_OPTIONS   how much of these; SIZES=tiny: a rehearsal
#
# BUILD may be the folder that make carried makes, with its test programs. NVIDIA's libraries are this
# machine's, where LD_LIBRARY_PATH or ld.so knows them, or PYTHON has them.
#
#   machine     its GPU, where the program finds NVIDIA's libraries; losses against the CPU's
#   kernels     every CUDA kernel against the CPU's; bytes per second, as a share of a copy's
#   gemm        cuBLASLt's products against the plain kernel's; TFLOP/s of a known layer
#   attention   cuDNN's attention against the CPU's; TFLOP/s of known models
#   walk        losses of whole runs against the CPU's, by plan
#   bits        runs that declare the same sums, digit by digit: again, as ranks that share the GPU, by
#               strategy, recomputed, offloaded, as a graph, resumed
#   race8b      four layers of Llama 3 8B in turns with PyTorch: tokens per second, MFU, loss, and
#               milliseconds and MiB predicted; race1b: Llama 3.2 1B; racelong: 32768 tokens
#   bench       the store filled with this GPU's ops, timed one by one
#   predict     from those and three runs: milliseconds and MiB of other models' steps, predicted and measured
#   racefp8     the layers in bf16 and in each recipe of fp8
#   fp8walk     losses of recipes that quantise, which Hopper has
#   batched     attention by products in batches, as in `attention`; losses of runs with it, and with the plain kernel,
#               against the CPU's
#   nccl        NCCL's collectives on all of its GPUs against sums in a loop
#   two, eight  on so many GPUs: losses of runs over NCCL against the CPU's, by plan; a process for each GPU
#               that sees it alone; one that stops; tokens per second, milliseconds and MiB predicted
#   tp2, tp8    the same of ranks that have layers together: tensor parallelism over two and over all of so many
#   ep2, ep8    the same of models with experts: on every rank, on two ranks together, and on all of so many
#   fp8two      on two GPUs: losses of runs that gather weights in eight bits over NCCL, also as graphs; tokens per second
#   sanitize    the kernels, and a run, under compute-sanitizer
all='machine kernels gemm attention walk bits race8b race1b bench predict racefp8 racelong fp8walk batched nccl two tp2 ep2 fp8two eight tp8 ep8 sanitize'

usage () { echo "sections.sh: $*; usage: sections.sh --list | BUILD RESULTS [SECTION...]" >&2; exit 2; }

test "${1-}" = --list && { printf '%s\n' $all; exit 0; }
test $# -ge 2 || usage "a build and a folder of results are needed"
build=$1 results=$2
shift 2
asked=
test "${1-}" = --inside && asked=$2 && shift 2 # by this script itself
for name in "$@"; do
  case " $all " in *" $name "*) ;; *) usage "there is no section $name, but $all" ;; esac
done
test -x "$build/fsdplan" || usage "no $build/fsdplan"
build=$(cd "$build" && pwd) && mkdir -p "$results" && results=$(cd "$results" && pwd) || exit 1
scripts=$(cd "$(dirname "$0")" && pwd)
PATH=$build:$PATH
XDG_DATA_HOME=$results/data # products' fastest algorithms are found once
python=${PYTHON:-python3}
export PATH XDG_DATA_HOME

# Folders to append to LD_LIBRARY_PATH: of NVIDIA's Python packages, if BUILD is a carried folder; then those
# where containers have the driver's libraries, which ld.so may not know.
find_libraries ()
{
  test ! -d "$build/lib" || "$python" -c '
import glob, os, sys
print("\n".join(sorted(f for p in sys.path for f in glob.glob(os.path.join(p, "nvidia", "*", "lib")))))' 2>/dev/null
  for folder in /usr/local/nvidia/lib64 /usr/local/nvidia/lib; do
    test ! -d $folder || echo $folder
  done
}
if test -z "$asked"; then
  for folder in $(find_libraries); do
    LD_LIBRARY_PATH=${LD_LIBRARY_PATH-}${LD_LIBRARY_PATH:+:}$folder
  done
  test -z "${LD_LIBRARY_PATH-}" || export LD_LIBRARY_PATH
fi

# Shapes as LAYERS,HIDDEN,FFN,HEADS,KV_HEADS,DIM,VOCAB; tokens of sequences.
big=4096,14336,32,8,128,32000 small=16,2048,8192,32,8,64,128256 middle=3072,8192,24,8,128,32000
k3=3072 k4=4096 k6=6144 k8=8192 k16=16384 k32=32768 tokens=64 steps=20
experts=family=mixtral,layers=2,hidden=64,ffn=48,heads=4,kv_heads=2,head_dim=16,vocab=256,max_seq=64,experts=8,topk=2
mixtral=family=mixtral,layers=2,hidden=4096,ffn=14336,heads=32,kv_heads=8,head_dim=128,vocab=32000,max_seq=32768,experts=8,topk=2
recipes='fp8-tensorwise fp8-delayed fp8-blockwise' race_steps=${RACE_STEPS:-10}
if test "${SIZES-}" = tiny; then
  mixtral=$experts
  big=32,48,4,2,8,96 small=2,32,64,2,1,16,128 middle=48,64,6,2,8,96
  k3=12 k4=16 k6=24 k8=32 k16=40 k32=48 tokens=16 steps=3
  recipes='fp8-tensorwise fp8-delayed' race_steps=${RACE_STEPS:-2}
fi

# The model of a shape, of which PyTorch has the same.
model_of ()
{
  echo "$1" | awk -F, -v more="${2-}" '
    { printf "family=llama,layers=%s,hidden=%s,ffn=%s,heads=%s,kv_heads=%s,head_dim=%s,vocab=%s,max_seq=32768%s\n",
        $1, $2, $3, $4, $5, $6, $7, more }'
}

skip () { echo "$asked: skipped: $*" >&3; exit 77; }

# row LABEL TEXT: writes a row, and keeps it for the case that this section is cut short
row ()
{
  echo "$1 | $2" | tee -a "$results/$asked.kept" >&3
}

# known LABEL: whether a row with this label was kept when this section was cut short; if so, writes it again
known ()
{
  test -e "$results/$asked.kept" || return 1
  awk -v label="$1 | " 'index ($0, label) == 1 { line = $0 } END { if (line == "") exit 1; print line }' \
    "$results/$asked.kept" >&3
}

# What Check's program $1 sees: case by case where it names some, each a process of its own, so that what
# poisons one's context fails that one alone.
run_cases ()
{
  cases=$("$1" --cases 2>/dev/null </dev/null | sed -n 's/^case //p')
  : >"$results/check"
  : >"$results/speed"
  test -n "$cases" || { "$1" >"$results/check" 2>"$results/speed"; return; }
  bad=0
  for case in $cases; do
    CK_RUN_CASE=$case timeout -k 10 200 "$1" >>"$results/check" 2>>"$results/speed" || bad=1
    grep -q '^1\.\.0 # SKIP' "$results/check" && break
  done
  return $bad
}

# check PROGRAM: runs a program of Check's, which prints speeds on stderr; rows of its tests and of these
check ()
{
  test -x "$build/$1" || skip "there is no $build/$1: make check builds it where CUDA is found"
  libraries=${LD_LIBRARY_PATH-}
  test ! -d "$build/lib" || libraries=$build/lib${libraries:+:}$libraries
  (LD_LIBRARY_PATH=$libraries && export LD_LIBRARY_PATH && run_cases "$build/$1")
  status=$?
  cat "$results/check" "$results/speed"
  grep -q '^1\.\.0 # SKIP' "$results/check" && skip "$(sed 's/^1\.\.0 # SKIP //' "$results/check")"
  awk -F'[:,] *' '/^[0-9]+%: Checks: / { n += $3; bad += $5 + $7 }
    END { if (n) print "tests | " int (100 * (n - bad) / n) " % of " n " passed" }' "$results/check" >&3
  sed -n 's/^# *//p' "$results/speed" | tr -s ' ' >&3
  return $status
}

no_gpu='no CUDA device\|no GPU: \|is not in this build'

# train BACKEND FILE OPTION...: prints and keeps what a run prints
train ()
{
  backend=$1 kept=$2
  shift 2
  fsdplan run --backend "$backend" --db :memory: "$@" >"$kept" 2>"$kept.err"
  status=$?
  cat "$kept" "$kept.err"
  grep -q "$no_gpu" "$kept.err" &&
    skip "$(sed 's/^fsdplan: //' "$kept.err")"
  return $status
}

# NVIDIA's libraries, and, of a folder that is carried, whether all others are there.
section_machine ()
{
  gpu=$(nvidia-smi --query-gpu=name,driver_version,memory.total,power.limit,clocks.max.sm --format=csv,noheader) &&
    echo "GPU | $gpu" >&3
  echo "C library | $(ldd --version 2>/dev/null | head -n 1)" >&3
  if test -x "$build/fsdplan-exec-cuda"; then
    ldd "$build/fsdplan-exec-cuda" >"$results/ldd" || return 1
    cat "$results/ldd"
    ! grep 'not found' "$results/ldd" >&3 || return 1
    awk '$2 == "=>" && $1 ~ /cublas|cudnn|nccl/ { print $1 " | " $3 }' "$results/ldd" >&3
  fi
  near 5e-6 --set compute=fp32 && near 0.0025 --set compute=bf16
}

section_kernels () { check tests/gpu/test-cuda-kernels.tap; }
section_gemm () { check tests/gpu/test-cuda-gemm.tap; }
section_attention () { check tests/gpu/test-cudnn.tap; }
section_nccl () { check tests/gpu/test-nccl.tap; }

# near BOUND OPTION...: the largest distance of a step's losses, as a share of them
near ()
{
  bound=$1
  shift
  label="$way$*"
  known "$label" && return
  set -- --model llama-tiny --gbs 4 --seq $tokens --steps $steps --set stack=native --set deterministic=on \
    --format csv "$@"
  # shellcheck disable=SC2086 # options are words
  train cuda "$results/cuda" $joined "$@" && train cpu "$results/cpu" "$@" || return 1
  found=$(awk -F, -v bound="$bound" '
    $1 !~ /^[0-9]+$/ { next }
    NR == FNR { cuda[$1] = $2; next }
    { n++; d = cuda[$1] / $2 - 1; d = d < 0 ? -d : d; if (!($1 in cuda) || d != d) d = 1
      worst = d > worst ? d : worst }
    END { printf "losses differ by %.2g, at most %g\n", worst, bound
      exit n == 0 || worst > bound }' "$results/cuda" "$results/cpu") ||
    { echo "$label | $found" >&3 && return 1; }
  row "$label" "$found"
}
way= joined=

# Whole runs whose attention is another one than cuDNN's.
section_batched ()
{
  bad=0
  check tests/gpu/test-cuda-attention.tap || bad=1
  for FSDPLAN_ATTENTION in batched plain; do
    export FSDPLAN_ATTENTION
    way="attention $FSDPLAN_ATTENTION "
    near 5e-6 --set compute=fp32 || bad=1
    near 0.0025 --set compute=bf16 || bad=1
    near 0.0025 --ranks 2 --comm threads --set compute=bf16 --set strategy=optim_grads_params || bad=1
  done
  return $bad
}

section_walk ()
{
  bad=0
  near 0.0025 --set compute=bf16 --set recompute=full || bad=1
  near 0.0025 --ranks 4 --comm threads --set compute=bf16 --set strategy=no_shard || bad=1
  near 0.0025 --ranks 4 --comm threads --set compute=bf16 --set strategy=optim_grads_params || bad=1
  near 0.0025 --ranks 4 --comm threads --set compute=bf16 --set tp=2 --set sp=on || bad=1
  near 0.0025 --ranks 4 --comm threads --set compute=bf16 --set pp=2 || bad=1
  near 0.0025 --set compute=bf16 --set attention_dropout=0.1 --set doc_tokens=40 || bad=1
  near 0.0001 --model $experts --set compute=fp32 || bad=1
  near 0.0001 --model $experts --ranks 4 --comm threads --set compute=fp32 --set ep=2 --set moe_imbalance=2 || bad=1
  near 0.0001 --model $experts --ranks 2 --comm threads --set compute=fp32 --set etp=2 || bad=1
  return $bad
}

# same FORMAT OPTION...: losses and norms of steps are, digit by digit, those of the first call for the
# format, which is of one rank alone
same ()
{
  format=$1
  shift
  label="$format $*"
  known "$label" && return
  train cuda "$results/cuda" --model llama-tiny --gbs 4 --seq $tokens --steps 6 --set stack=native \
    --set deterministic=on --set compute="$format" --format csv "$@" || { echo "$label | failed" >&3 && return 1; }
  cut -d, -f1-3 "$results/cuda" | grep '^[0-9]' >"$results/bits"
  test -s "$results/bits" || return 1
  test -e "$results/bits-$format" || cp "$results/bits" "$results/bits-$format"
  # a run that was resumed has the last steps alone
  tail -n "$(grep -c . "$results/bits")" "$results/bits-$format" | cmp - "$results/bits" ||
    { echo "$label | differs" >&3 && return 1; }
  row "$label" "equal, digit by digit"
}

# One rank takes the micro batches of all, in their order: sums are the same where each rank has one.
section_bits ()
{
  bad=0
  for number in fp32 bf16; do
    same $number || bad=1
    same $number --seed 1 || bad=1 # again
    for strategy in no_shard optim optim_grads optim_grads_params; do
      same $number --ranks 4 --comm threads --set strategy=$strategy || bad=1
    done
    same $number --ranks 4 --comm threads --set double_buffer=on || bad=1
    same $number --ranks 2 --comm threads --set pp=2 || bad=1
    same $number --set recompute=full || bad=1
    same $number --set offload_layers=2 || bad=1
    same $number --set cuda_graph=on || bad=1
    same $number --ranks 4 --comm threads --set cuda_graph=on || bad=1
    rm -rf "$results/half"
    train cuda "$results/cuda" --model llama-tiny --gbs 4 --seq $tokens --steps 3 --set stack=native \
      --set deterministic=on --set compute=$number --format csv --save "$results/half" &&
      same $number --ranks 4 --comm threads --resume "$results/half" || bad=1
    rm -rf "$results/half"
  done
  return $bad
}

# launch N OPTION...: so many processes as torchrun starts them, each with a GPU of its own that it sees alone;
# $pids are theirs, and what rank R prints is in RESULTS/rank-R
launch ()
{
  n=$1 r=0 pids=
  shift
  port=$((20000 + $$ % 20000))
  while test $r -lt "$n"; do
    CUDA_VISIBLE_DEVICES=$r RANK=$r WORLD_SIZE=$n LOCAL_RANK=$r MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
      fsdplan run --backend cuda --db :memory: --model llama-tiny --gbs "$n" --seq $tokens --set stack=native "$@" \
      >"$results/rank-$r" 2>"$results/rank-$r.err" </dev/null &
    pids="$pids $!"
    r=$((r + 1))
  done
}

# processes N OPTION...: they find each other without MPI, and train
processes ()
{
  n=$1
  shift
  label="$n processes, a visible GPU each${1+ $*}"
  known "$label" && return
  launch "$n" --steps 5 --timeout 60 --format csv "$@"
  status=0
  for pid in $pids; do wait "$pid" || status=$?; done
  cat "$results"/rank-*.err
  test $status = 0 || { echo "$label | failed: $(tail -n 1 "$results/rank-0.err")" >&3 && return 1; }
  row "$label" "$(grep -c '^[0-9]' "$results/rank-0") steps"
}

# stopped N: the last of them stands still between two steps, and the others end instead of waiting for ever
stopped ()
{
  known "one of $1 stops" && return
  rm -f "$results/steps"
  launch "$1" --steps 1000000 --timeout 20 --log "$results/steps"
  tries=0
  until test "$(grep -c step_ms "$results/steps" 2>/dev/null)" -ge 3; do
    tries=$((tries + 1))
    test $tries -le 120 && kill -0 "${pids##* }" && sleep 1 || break
  done
  kill -STOP "${pids##* }"
  begins=$(date +%s)
  for pid in $pids; do
    test "$pid" = "${pids##* }" && continue
    (sleep 120 && kill -KILL "$pid") 2>/dev/null &
    wait "$pid"
  done
  took=$(($(date +%s) - begins))
  kill -KILL "${pids##* }"
  cat "$results"/rank-*.err
  test $took -lt 100 || { echo "one of $1 stops | the others were waiting after $took s" >&3 && return 1; }
  row "one of $1 stops" "the others ended after $took s: $(tail -n 1 "$results/rank-0.err")"
}

# speed N OPTION...: a row for eight layers of Llama 3 8B, unless a model is named; and one for each message
# that the run does without a library's feature
speed ()
{
  n=$1
  shift
  label="$n ranks $*"
  known "$label" && return
  train cuda "$results/cuda" --model "$(model_of 8,$big)" --gbs "$n" --mbs 1 --seq $k8 --steps $((race_steps + 3)) \
    --ranks "$n" --comm nccl --set stack=native --set compute=bf16 "$@" ||
    { echo "$label | failed: $(tail -n 1 "$results/cuda.err")" >&3 && return 1; }
  sed -n "s/^fsdplan: \(.* take.\{0,1\} it\)$/$n ranks | \1/p" "$results/cuda.err" | sort -u >&3
  row "$label" "$(awk '/tokens\/s with/ { speed = $1 } $1 == "step_ms" { step = $3 " ms, predicted " $2 }
    $1 == "device_mib" { device = $3 " MiB, predicted " $2 }
    END { print speed " tokens/s; step " step "; device " device }' "$results/cuda")"
}

gpus ()
{
  here=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ')
  test "$here" -ge "$1" || skip "$here GPUs are here, and it needs $1"
}

many ()
{
  gpus "$1"
  bad=0 sharded='--set strategy=optim_grads_params' joined='--comm nccl'
  for plan in '--set strategy=no_shard' '--set strategy=optim' '--set strategy=optim_grads' "$sharded" \
    "$sharded --set nccl_ub=on" "$sharded --set ag_group=on" "$sharded --set reduce_algo=a2a" "$sharded --set pp=2" \
    '--set strategy=optim --set pp=2 --set vpp=2'; do
    # shellcheck disable=SC2086 # options are words
    near 0.0025 --gbs "$1" --ranks "$1" --set compute=bf16 $plan || bad=1
  done
  # shellcheck disable=SC2086
  way='as graphs ' joined='--comm nccl --set cuda_graph=on' && near 0.0025 --gbs "$1" --ranks "$1" --set compute=bf16 \
    $sharded || bad=1
  if test "${SIZES-}" != tiny; then # the fake NCCL is one process's
    processes "$1" || bad=1
    stopped "$1" || bad=1
  fi
  for plan in '' '--set nccl_ub=on' '--set ag_group=on' '--set grad_accum_fusion=on' '--set cuda_graph=on' \
    "--set pp=2 --gbs $((4 * $1))"; do
    # shellcheck disable=SC2086
    speed "$1" $sharded $plan || bad=1
  done
  return $bad
}
section_two () { many 2; }
section_eight () { many 8; }

# On so many GPUs: tensor parallelism over two ranks, and over all; where it is over two, the pairs have
# other sequences.
together ()
{
  gpus "$1"
  bad=0 joined='--comm nccl' sharded='--set strategy=optim_grads_params'
  heads=family=llama,layers=2,hidden=64,ffn=96,heads=8,kv_heads=8,head_dim=8,vocab=500,max_seq=64
  for plan in '--set tp=2 --set sp=off' "--set tp=2 --set sp=on $sharded" "--set tp=$1 --set sp=on" \
    "--set tp=2 --set sp=on --set nccl_ub=on"; do
    # shellcheck disable=SC2086 # options are words
    near 0.0025 --model $heads --gbs "$1" --ranks "$1" --set compute=bf16 $plan || bad=1
  done
  way='as graphs ' joined='--comm nccl --set cuda_graph=on'
  near 0.0025 --model $heads --gbs "$1" --ranks "$1" --set compute=bf16 --set tp=2 || bad=1
  test "${SIZES-}" = tiny || processes "$1" --set tp=2 || bad=1
  for plan in '--set tp=2' '--set tp=2 --set sp=off' '--set tp=2 --set cuda_graph=on' "--set tp=$1 --set nccl_ub=on"; do
    # shellcheck disable=SC2086
    speed "$1" $sharded $plan || bad=1
  done
  return $bad
}
section_tp2 () { together 2; }
section_tp8 () { together 8; }

# On so many GPUs: each has all experts, two share them, or all do, or two split each. Rounding may send a token to another
# expert, so losses are compared in fp32.
of_experts ()
{
  gpus "$1"
  bad=0 joined='--comm nccl' sharded='--set strategy=optim_grads_params'
  for plan in "$sharded" "--set ep=2 --set moe_imbalance=2 $sharded" "--set ep=2 --set moe_imbalance=2 --set strategy=optim" \
    "--set ep=$1 --set moe_imbalance=$1 --set strategy=optim_grads" "--set etp=2 --set strategy=optim"; do
    # shellcheck disable=SC2086 # options are words
    near 0.0001 --model $experts --gbs "$1" --ranks "$1" --set compute=fp32 $plan || bad=1
  done
  test "${SIZES-}" = tiny || processes "$1" --model $experts --set ep=2 --set moe_imbalance=2 || bad=1
  for plan in '' '--set ep=2 --set moe_imbalance=2' "--set ep=$1 --set moe_imbalance=2"; do
    # shellcheck disable=SC2086
    speed "$1" --model $mixtral --seq $k4 $sharded $plan || bad=1
  done
  return $bad
}
section_ep2 () { of_experts 2; }
section_ep8 () { of_experts 8; }

# A value near the middle between two codes may be rounded to either: few values differ, by 2^-4 of them.
section_fp8walk ()
{
  squares=family=llama,layers=2,hidden=256,ffn=512,heads=4,kv_heads=2,head_dim=64,vocab=512,max_seq=128
  bad=0
  for recipe in fp8-tensorwise fp8-delayed; do
    near 0.0125 --set compute=$recipe || bad=1
    near 0.0125 --ranks 2 --comm threads --set compute=$recipe --set param_gather=fp8 || bad=1
  done
  near 0.0125 --model $squares --seq 128 --set compute=fp8-blockwise || bad=1
  near 0.0125 --model $squares --seq 128 --ranks 2 --comm threads --set compute=fp8-blockwise \
    --set param_gather=fp8 || bad=1
  return $bad
}

# On two GPUs: weights that are gathered in eight bits, with the small collectives that NCCL gets in groups behind them.
section_fp8two ()
{
  gpus 2
  bad=0 gathered='--gbs 2 --ranks 2 --set strategy=optim_grads_params --set param_gather=fp8'
  for joined in '--comm nccl' '--comm nccl --set cuda_graph=on'; do
    way="$joined "
    # shellcheck disable=SC2086 # options are words
    for recipe in fp8-tensorwise fp8-delayed; do near 0.0125 $gathered --set compute=$recipe || bad=1; done
  done
  # shellcheck disable=SC2086
  speed 2 --set compute=fp8-tensorwise --set strategy=optim_grads_params --set param_gather=fp8 || bad=1
  return $bad
}

# ours NAME OPTION...: a contestant of a race: a whole batch at once, as PyTorch has it
ours ()
{
  name=$1
  shift
  echo "$name=fsdplan run --backend cuda --db :memory: --model $model --gbs $batch --mbs $batch --seq $seq \
    --steps $((race_steps + 3)) --set stack=native --set grad_accum_fusion=on --format json $*"
}

# PyTorch's plain bf16 has nothing in fp32: what fsdplan's own has here, too.
narrow="--set main_params=bf16 --set main_grads=bf16 --set grad_comm=bf16 --set exp_avg=bf16 \
  --set exp_avg_sq=bf16 --set precision_aware=on"

# race WHO...: of $shape, $batch and $seq; words of PyTorch's ways have no =
race ()
{
  "$python" -c '' || skip "$python does not run (PYTHON names another)"
  if ! "$python" -c 'import torch' 2>/dev/null; then
    echo "PyTorch | $python has none (PYTHON names another)" >&3
    for who in "$@"; do
      shift
      case $who in *=*) set -- "$@" "$who" ;; esac
    done
  fi
  peak=$(fsdplan show --cluster local --format=csv | awk -F, '$1 == "peak_bf16" { print $2 / 1e12 }')
  TORCHINDUCTOR_CACHE_DIR=$results/cache "$python" "$scripts/race-torch.py" "$shape" "$batch" "$seq" \
    --rounds "${RACE_ROUNDS:-3}" --steps "$race_steps" --peak "${peak:-0}" ${RACE_DEVICE:+--device $RACE_DEVICE} \
    "$@" 2>"$results/race.err" >&3
  status=$?
  cat "$results/race.err"
  ! grep -q "$no_gpu" "$results/race.err" || skip "$(grep -m 1 "$no_gpu" "$results/race.err" | sed 's/^fsdplan: //')"
  return $status
}

section_race8b ()
{
  shape=4,$big batch=4 seq=$k4 model=$(model_of "4,$big")
  race "$(ours fsdplan)" "$(ours fsdplan-bf16 $narrow)" "$(ours fsdplan-graph --set cuda_graph=on)" \
    bf16+compile+cudnn bf16+compile+flash fsdp2+compile+cudnn
}

section_race1b ()
{
  shape=$small batch=4 seq=$k4 model=$(model_of $small ,tied=on)
  race "$(ours fsdplan)" "$(ours fsdplan-bf16 $narrow)" bf16+tied+compile+cudnn bf16+tied+compile+flash \
    fsdp2+tied+compile+cudnn
}

section_racelong ()
{
  shape=2,$big batch=1 seq=$k32 model=$(model_of "2,$big")
  race "$(ours fsdplan)" "$(ours fsdplan-bf16 $narrow)" bf16+compile+cudnn bf16+compile+flash \
    fsdp2+compile+cudnn
}

section_racefp8 ()
{
  shape=4,$big batch=4 seq=$k4 model=$(model_of "4,$big")
  set -- "$(ours fsdplan)"
  for recipe in $recipes; do
    set -- "$@" "$(ours $recipe --set compute=$recipe)"
  done
  race "$@" fp8+compile+cudnn
}

# The rows that `bench` measures, and runs, are in a store of their own. Its largest ops come last: it names
# those that it has no time for, and they are predicted in proportion.
store=$results/bench.db

section_bench ()
{
  fsdplan bench --backend cuda --seconds "${BENCH_SECONDS:-80}" ${BENCH_OPTIONS:---memory 6GiB} --db "$store" --format csv \
    >"$results/bench.csv" 2>"$results/bench.err"
  status=$?
  cat "$results/bench.csv" "$results/bench.err"
  grep -q "$no_gpu" "$results/bench.err" &&
    skip "$(sed 's/^fsdplan: //' "$results/bench.err")"
  awk -F, 'NR > 1 { n[$1]++ } END { for (c in n) printf "%s | %d ops timed\n", c, n[c] }' "$results/bench.csv" |
    sort >&3
  grep 'are not timed\|were timed' "$results/bench.err" >&3
  return $status
}

# step LAYERS SHAPE OPTION...: a run that is kept; its step, predicted from all that was learned before
step ()
{
  model=$(model_of "$1")
  label="$*"
  known "$label" && return
  shift
  fsdplan run --backend cuda --model "$model" --steps 15 --set stack=native --db "$store" "$@" \
    >"$results/cuda" 2>"$results/cuda.err"
  status=$?
  cat "$results/cuda" "$results/cuda.err"
  test $status = 0 || { echo "$label | failed: $(tail -n 1 "$results/cuda.err")" >&3 && return 1; }
  found=$(awk '
    $1 == "step_ms" { ms = $3; predicted = $2 }
    $1 == "max_allocated_mib" { mib = $3; predicted_mib = $2 }
    END { if (ms == "") exit 1
      printf "step %s ms, predicted %s: off by %.1f %%; %s MiB, predicted %s: off by %.1f %%\n", ms, predicted,
        100 * (predicted / ms - 1), mib, predicted_mib, 100 * (predicted_mib / mib - 1) }' "$results/cuda") || return 1
  row "$label" "$found"
}

# The steps to predict have widths, lengths and batches that were not timed, nor are among the three runs
# that calibration learns from.
section_predict ()
{
  test -s "$store" || skip "nothing was timed: run the section bench first"
  bad=0
  step 4,$big --gbs 2 --seq $k4 && step 2,$big --gbs 4 --mbs 2 --seq $k8 && step $small --gbs 2 --seq $k4 || return 1
  known "from here on" || {
    fsdplan calibrate --folds 0 --id bench --db "$store" --format csv || return 1
    row "from here on" "by what these three taught"
  }
  step 6,$middle --gbs 3 --mbs 3 --seq $k6 || bad=1
  step 8,$middle --gbs 6 --mbs 2 --seq $k3 || bad=1
  step $small --gbs 5 --mbs 5 --seq $k3 || bad=1
  step 3,$big --gbs 1 --seq $k16 || bad=1
  step 6,$middle --gbs 3 --mbs 3 --seq $k6 --set compute=fp8-tensorwise || bad=1
  return $bad
}

# sanitize TOOL PROGRAM...: what it finds wrong, of each program
sanitize ()
{
  tool=$1
  shift
  label="$tool $(basename "$1") ${2-}"
  known "$label" && return
  timeout -k 10 "${SANITIZE_SECONDS:-200}" "$sanitizer" --tool "$tool" --error-exitcode 99 --print-limit 20 "$@" \
    >"$results/sanitize" 2>&1
  status=$?
  cat "$results/sanitize"
  ! grep -q '^1\.\.0 # SKIP\|no CUDA device' "$results/sanitize" || skip "no CUDA device"
  found=$(grep 'ERROR SUMMARY\|RACECHECK SUMMARY' "$results/sanitize" | sed 's/^=* *//' | tail -n 1)
  test $status = 0 && test -n "$found" || { echo "$label | ended with $status; $found" >&3 && return 1; }
  row "$label" "$found"
}

# No speed is measured there. racecheck and synccheck run on the kernels alone: others' code is in whole runs.
section_sanitize ()
{
  for folder in "$(dirname "$(command -v compute-sanitizer)" 2>/dev/null)" /usr/local/cuda/bin; do
    sanitizer=$folder/compute-sanitizer
    test ! -x "$sanitizer" || break
  done
  test -x "$sanitizer" || skip "no compute-sanitizer"
  kernels=$build/tests/gpu/test-cuda-kernels.tap
  test -x "$kernels" || skip "there is no $kernels: make check builds it where CUDA is found"
  test ! -d "$build/lib" || LD_LIBRARY_PATH=$build/lib${LD_LIBRARY_PATH:+:}${LD_LIBRARY_PATH-}
  CK_EXCLUDE_TAGS=speed CK_FORK=no
  export CK_EXCLUDE_TAGS CK_FORK
  bad=0
  sanitize memcheck "$kernels" || bad=1
  sanitize racecheck "$kernels" || bad=1
  sanitize synccheck "$kernels" || bad=1
  sanitize memcheck "$build/fsdplan-exec-cuda" run --model llama-tiny --gbs 2 --seq $tokens --steps 2 --db :memory: \
    --set stack=native --ranks 2 --comm threads || bad=1
  return $bad
}

# The fewest seconds that a section is begun with; where fewer are left, one that needs less may follow.
wants ()
{
  case $1 in
  race* | bench | predict | sanitize) echo 150 ;;
  *) echo 30 ;;
  esac
}

begun=$(date +%s)

# run NAME: its rows are kept only once it is whole
failed=0
run ()
{
  if test -e "$results/$1.rows"; then
    echo "$1: done before"
    return
  fi
  seconds=${SECTION_SECONDS:-500}
  if test -n "${TOTAL_SECONDS-}"; then
    left=$((TOTAL_SECONDS - $(date +%s) + begun - 15)) # to end in
    test $left -ge "$(wants "$1")" || { failed=1 && echo "$1: left for the next time" && return; }
    test $left -ge "${seconds%.*}" || seconds=$left
  fi
  test ! -e "$results/$1.log" || cat "$results/$1.log" >>"$results/$1.log.before"
  timeout -k 10 "$seconds" sh "$0" "$build" "$results" --inside "$1" 3>"$results/$1.part" >"$results/$1.log" 2>&1
  status=$?
  case $status in
  0) mv "$results/$1.part" "$results/$1.rows" && rm -f "$results/$1.kept" && echo "$1: done" ;;
  77) cat "$results/$1.part" && rm "$results/$1.part" ;;
  124 | 137) failed=1 && echo "$1: not done in $seconds seconds: see $results/$1.log" ;;
  *) failed=1 && echo "$1: failed with $status: see $results/$1.log" ;;
  esac
  test -z "${PACK-}" || { tar -C "$(dirname "$results")" --exclude="$(basename "$results")/cache" -czf "$PACK.new" \
    "$(basename "$results")" && mv "$PACK.new" "$PACK"; }
}

if test -n "$asked"; then
  "section_$asked"
  exit
fi
for name in ${*:-$all}; do
  run "$name"
done
echo
for name in $all; do
  for rows in "$results/$name.rows" "$results/$name.part"; do
    test ! -e "$rows" || sed "s/^/$name | /" "$rows"
  done
done
exit $failed
