#!/bin/sh
# sections.sh BUILD RESULTS [SECTION...]: what is to be known of a machine's GPU, measured in sections of
# a few minutes each, all of them unless some are named; --list names them.
#
# A section that is done leaves RESULTS/SECTION.rows, and all that it saw in RESULTS/SECTION.log; it is
# not run again until its rows are removed, so a script that is cut short is gone on with by the same
# command. Without a GPU a section is skipped; one that fails is told, and tried again the next time. A
# table of all rows comes last. SECTION_SECONDS is how long a section may take, 500 unless set.
#
# BUILD may be the folder that make carried makes, with its test programs. NVIDIA's libraries are this
# machine's, where LD_LIBRARY_PATH or ld.so knows them, or PYTHON has them as packages.
#
#   carried     where such a folder's program finds each library; losses by it against the CPU's
#   kernels     every CUDA kernel against the CPU's; bytes per second
#   gemm        cuBLASLt's products against the plain kernel's; TFLOP/s of a known layer
#   attention   cuDNN's attention against the CPU's; TFLOP/s of known models
#   batched     attention by products in batches, likewise; losses of runs by it, and by the plain kernel, against the CPU's
#   nccl        NCCL's collectives on all of its GPUs against sums in a loop
#   walk        losses of whole runs against the CPU's, by plan
#   fp8walk     the same of recipes that quantise, which Hopper has
#   throughput  tokens per second; milliseconds and MiB predicted and measured, of known models
#   fp8         the same of layers in bf16 and in each of those recipes
#   bench       the store filled with this GPU's ops, timed one by one
#   predict     from those and three runs: milliseconds and MiB of other models' steps, predicted and measured
#   torch       the same layers in PyTorch, of the interpreter that PYTHON names; torch1b: the small model
all='carried kernels gemm attention batched nccl walk fp8walk throughput fp8 bench predict torch torch1b'
here=h200-141gb

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
export PATH XDG_DATA_HOME

# With what is carried, the folders of NVIDIA's Python packages, behind what LD_LIBRARY_PATH names.
if test -d "$build/lib"; then
  packages=$("${PYTHON:-python3}" -c '
import glob, os, sys
print(":".join(sorted(f for p in sys.path for f in glob.glob(os.path.join(p, "nvidia", "*", "lib")))))' \
    2>/dev/null) || packages=
  test -z "$packages" || LD_LIBRARY_PATH=${LD_LIBRARY_PATH-}${LD_LIBRARY_PATH:+:}$packages
  test -z "${LD_LIBRARY_PATH-}" || export LD_LIBRARY_PATH
fi

skip () { echo "$asked: skipped: $*" >&3; exit 77; }

# A program of Check's, whose information on stderr is speed; rows of both.
check ()
{
  test -x "$build/$1" || skip "there is no $build/$1: make check builds it where CUDA is found"
  libraries=${LD_LIBRARY_PATH-}
  test ! -d "$build/lib" || libraries=$build/lib${libraries:+:}$libraries
  LD_LIBRARY_PATH=$libraries "$build/$1" >"$results/check" 2>"$results/speed"
  status=$?
  cat "$results/check" "$results/speed"
  grep -q '^1\.\.0 # SKIP' "$results/check" && skip "$(sed 's/^1\.\.0 # SKIP //' "$results/check")"
  sed -n 's/^\([0-9]*\)%: Checks: \([0-9]*\), .*/tests | \1 % of \2 passed/p' "$results/check" >&3
  sed -n 's/^# *//p' "$results/speed" | tr -s ' ' >&3
  return $status
}

# train BACKEND FILE OPTION...: prints and keeps what a run prints
train ()
{
  backend=$1 kept=$2
  shift 2
  fsdplan run --backend "$backend" --db :memory: "$@" >"$kept" 2>"$kept.err"
  status=$?
  cat "$kept" "$kept.err"
  grep -q 'no CUDA device\|is not in this build' "$kept.err" &&
    skip "$(sed 's/^fsdplan: //' "$kept.err")"
  return $status
}

# NVIDIA's are those that are not in the folder, nor the C library's.
section_carried ()
{
  test -d "$build/lib" || skip "$build is no folder of make carried"
  ldd "$build/fsdplan-exec-cuda" >"$results/ldd" || return 1
  cat "$results/ldd"
  ! grep 'not found' "$results/ldd" >&3 || return 1
  awk '$2 == "=>" && $1 ~ /cublas|cudnn|nccl/ { print $1 " | " $3 }' "$results/ldd" >&3
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
  set -- --model llama-tiny --gbs 4 --seq 64 --steps 20 --set stack=native --set deterministic=on \
    --format csv "$@"
  train cuda "$results/cuda" "$@" && train cpu "$results/cpu" "$@" || return 1
  awk -F, -v bound="$bound" -v what="$*" '
    $1 !~ /^[0-9]+$/ { next }
    NR == FNR { cuda[$1] = $2; next }
    { n++; d = cuda[$1] / $2 - 1; d = d < 0 ? -d : d; if (!($1 in cuda)) d = 1
      worst = d > worst ? d : worst }
    END { sub (/.*--format csv */, "", what)
      printf "%s | losses differ by %.2g, at most %g\n", what, worst, bound
      exit n == 0 || worst > bound }' "$results/cuda" "$results/cpu" >&3
}

# Whole runs whose attention is another one than cuDNN's.
section_batched ()
{
  check tests/gpu/test-cuda-attention.tap || return 1
  for way in batched plain; do
    FSDPLAN_ATTENTION=$way
    export FSDPLAN_ATTENTION
    echo "from here on | attention $way" >&3
    near 5e-6 --set compute=fp32 && near 0.0025 --set compute=bf16 &&
      near 0.0025 --ranks 2 --comm threads --set compute=bf16 --set strategy=optim_grads_params || return 1
  done
}

section_walk ()
{
  near 5e-6 --set compute=fp32 && near 0.0025 --set compute=bf16 &&
    near 0.0025 --set compute=bf16 --set recompute=full &&
    near 0.0025 --ranks 4 --comm threads --set compute=bf16 --set strategy=no_shard &&
    near 0.0025 --ranks 4 --comm threads --set compute=bf16 --set strategy=optim_grads_params
}

# A value next to the middle of two codes falls to the other: 2^-4 of it, in few places.
section_fp8walk ()
{
  squares=family=llama,layers=2,hidden=256,ffn=512,heads=4,kv_heads=2,head_dim=64,vocab=512,max_seq=128
  for recipe in fp8-tensorwise fp8-delayed; do
    near 0.0125 --set compute=$recipe &&
      near 0.0125 --ranks 2 --comm threads --set compute=$recipe --set param_gather=fp8 || return 1
  done
  near 0.0125 --model $squares --seq 128 --set compute=fp8-blockwise &&
    near 0.0125 --model $squares --seq 128 --ranks 2 --comm threads --set compute=fp8-blockwise \
      --set param_gather=fp8
}

# speed MODEL OPTION...
speed ()
{
  model=$1
  shift
  train cuda "$results/cuda" --model "$model" --cluster $here --steps 15 --set stack=native "$@" || return 1
  awk -v what="$model $*" '
    $2 == "tokens/s" { speed = $1 }
    $1 == "step_ms" { ms = $3; predicted = $2 }
    $1 == "max_allocated_mib" { mib = $3; predicted_mib = $2 }
    END { printf "%s | %s tokens/s, step %s ms, predicted %s, %s MiB, predicted %s\n", what, speed, ms, predicted,
        mib, predicted_mib
      exit speed == "" }' "$results/cuda" >&3
}

layer=hidden=4096,ffn=14336,heads=32,kv_heads=8,head_dim=128,max_seq=32768,vocab=32000

section_throughput ()
{
  speed llama3.2-1b --gbs 4 --seq 4096 && speed "layers=4,$layer" --gbs 4 --seq 4096 &&
    speed "layers=2,$layer" --gbs 1 --seq 32768
}

section_fp8 ()
{
  for recipe in bf16 fp8-tensorwise fp8-delayed fp8-blockwise; do
    speed "layers=4,$layer" --gbs 4 --seq 4096 --set compute=$recipe || return 1
  done
}

# What `bench` keeps, and runs, are in a store of their own. Its largest ops come last: what it has no
# time for is told, and predicted in proportion.
store=$results/bench.db

section_bench ()
{
  fsdplan bench --backend cuda --seconds "${BENCH_SECONDS:-120}" --db "$store" --format csv \
    >"$results/bench.csv" 2>"$results/bench.err"
  status=$?
  cat "$results/bench.csv" "$results/bench.err"
  grep -q 'no CUDA device\|is not in this build' "$results/bench.err" &&
    skip "$(sed 's/^fsdplan: //' "$results/bench.err")"
  awk -F, 'NR > 1 { n[$1]++ } END { for (c in n) printf "%s | %d ops timed\n", c, n[c] }' "$results/bench.csv" |
    sort >&3
  grep 'are not timed\|were timed' "$results/bench.err" >&3
  return $status
}

# step MODEL OPTION...: a run that is kept; its step, predicted from all that was learned before
step ()
{
  model=$1
  shift
  fsdplan run --backend cuda --model "$model" --cluster $here --steps 15 --set stack=native --db "$store" "$@" \
    >"$results/cuda" 2>"$results/cuda.err"
  status=$?
  cat "$results/cuda" "$results/cuda.err"
  test $status = 0 || return 1
  awk -v what="$model $*" '
    $1 == "step_ms" { ms = $3; predicted = $2 }
    $1 == "max_allocated_mib" { mib = $3; predicted_mib = $2 }
    END { if (ms == "") exit 1
      printf "%s | step %s ms, predicted %s: off by %.1f %%; %s MiB, predicted %s: off by %.1f %%\n", what, ms,
        predicted, 100 * (predicted / ms - 1), mib, predicted_mib, 100 * (predicted_mib / mib - 1) }' "$results/cuda" >&3
}

# Widths, lengths and batches that are at no corner of what was timed, nor among the runs that teach.
section_predict ()
{
  test -s "$store" || skip "nothing was timed: run the section bench first"
  middle=hidden=3072,ffn=8192,heads=24,kv_heads=8,head_dim=128,max_seq=32768,vocab=32000
  step "layers=4,$layer" --gbs 2 --seq 4096 && step "layers=2,$layer" --gbs 4 --seq 8192 &&
    step llama3.2-1b --gbs 2 --seq 4096 || return 1
  fsdplan calibrate --folds 0 --id bench --db "$store" --format csv || return 1
  echo "from here on | by what these three taught" >&3
  step "layers=6,$middle" --gbs 3 --seq 6144 && step "layers=8,$middle" --gbs 6 --seq 3072 &&
    step llama3.2-1b --gbs 5 --seq 3072 && step "layers=3,$layer" --gbs 1 --seq 16384 &&
    step "layers=6,$middle" --gbs 3 --seq 6144 --set compute=fp8-tensorwise
}

# race SHAPE BATCH SEQ HOW...: one that fails is told, and the others run
race ()
{
  shape=$1 batch=$2 seq=$3 raced=0
  shift 3
  python=${PYTHON:-python3}
  "$python" -c 'import torch' 2>/dev/null || skip "$python has no PyTorch (PYTHON names another)"
  for how in "$@"; do
    "$python" "$scripts/race-torch.py" "$shape" "$batch" "$seq" "$how" >"$results/race" 2>"$results/race.err" ||
      { raced=1 && echo "$how | failed: $(tail -n 1 "$results/race.err")" >&3; }
    cat "$results/race" "$results/race.err"
    grep -q 'no CUDA device' "$results/race.err" && skip "no CUDA device"
    cat "$results/race" >&3
  done
  return $raced
}

section_torch ()
{
  race 4,4096,14336,32,8,128,32000 4 4096 bf16+compile+cudnn bf16+compile+flash fsdp2+compile+cudnn \
    fp8+compile+cudnn
}

section_torch1b ()
{
  race 16,2048,8192,32,8,64,128256 4 4096 bf16+tied+compile+cudnn bf16+tied+compile+flash \
    fsdp2+tied+compile+cudnn
}

# run NAME: its rows are kept only once it is whole
failed=0
run ()
{
  if test -e "$results/$1.rows"; then
    echo "$1: done before"
    return
  fi
  timeout -k 10 "${SECTION_SECONDS:-500}" sh "$0" "$build" "$results" --inside "$1" \
    3>"$results/$1.part" >"$results/$1.log" 2>&1
  status=$?
  case $status in
  0) mv "$results/$1.part" "$results/$1.rows" && echo "$1: done" ;;
  77) cat "$results/$1.part" && rm "$results/$1.part" ;;
  124 | 137) failed=1 && echo "$1: not done in ${SECTION_SECONDS:-500} seconds: see $results/$1.log" ;;
  *) failed=1 && echo "$1: failed with $status: see $results/$1.log" ;;
  esac
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
