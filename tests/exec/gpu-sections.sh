#!/bin/sh
# tests/gpu/sections.sh with programs that only imitate the real ones: sections that are done are
# recorded and not done again, those that fail or have no GPU are run again, and wrong usage is
# reported.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sections=$top_srcdir/tests/gpu/sections.sh
build=$work/build
mkdir -p "$build/tests/gpu"

fail () { echo "gpu-sections.sh: $*"; cat "$work/out" "$work/err"; exit 1; }

# program NAME: makes a program from the text on standard input; it notes that it has run
program () {
  { printf '#!/bin/sh\necho %s >>"%s/ran"\n' "$1" "$work"; cat; } >"$build/$1"
  chmod +x "$build/$1"
}

# sections STATUS NAME...: runs these sections, and checks the exit status
sections () {
  expected=$1
  shift
  : >"$work/ran"
  got=0
  sh "$sections" "$build" "$work/results" "$@" >"$work/out" 2>"$work/err" || got=$?
  test "$got" = "$expected" || fail "$* ended with $got"
}

has () { grep -qxF "$1" "$work/out" || fail "no line '$1'"; }

real=$(command -v fsdplan)
program tests/gpu/test-cuda-kernels.tap <<'E'
echo "100%: Checks: 7, Failures: 0, Errors: 0"
echo "# add    3100 GB/s" >&2
E
cp "$build/tests/gpu/test-cuda-kernels.tap" "$build/tests/gpu/test-cuda-gemm.tap"
cp "$build/tests/gpu/test-cuda-kernels.tap" "$build/tests/gpu/test-nccl.tap"
cp "$build/tests/gpu/test-cuda-kernels.tap" "$build/tests/gpu/test-cuda-attention.tap"
program tests/gpu/test-cudnn.tap <<'E'
echo "1..0 # SKIP no CUDA device"
E
# the CPU takes the place of the GPU, and large models are not run
ours='{"step_ms":{"median":268.5},"losses":[5.5,5.25],"memory":{"max_allocated_mib":9},
"predicted":{"step_ms":250,"memory":{"max_allocated_mib":8}}}'
program fsdplan <<E
case "\$*" in
show*) echo peak_bf16,1000e12 ;;
bench*) echo x >"$work/results/bench.db"
  echo "fsdplan: 3 ops are not timed: this plan keeps out in mxfp8" >&2
  printf 'class,op\nproduct,gemm\nrope,rope\nproduct,gemm\n' ;;
calibrate*) test -s "$work/results/bench.db" ;;
*json*) echo '$ours' | tr -d '\n' ;;
*--save*) mkdir -p "$work/results/half" ; printf '1,5.5,2,1\n' ;;
*--resume*) printf 'step,loss,grad_norm,step_ms\n2,5.4,2,1\n' ;;
*vocab=[1-9]*" --db $work/results/bench.db"*)
  printf '61000 tokens/s with 1 ranks\nstep_ms 250 268.5 -6.9\nmax_allocated_mib 8 9 0\n' ;;
*) printf 'step,loss,grad_norm,step_ms\n1,5.5,2,1\n2,5.4,2,1\n' ;;
esac
E

# an interpreter with a PyTorch that lacks one of the ways to race
program python <<'E'
case "$*" in
-c*) exit ;;
*) echo "bf16+compile+cudnn | 60000 tokens/s"
  case "$*" in *tied*) exit 0 ;; *) echo "bf16+compile+flash | failed: RuntimeError: no kernel" && exit 1 ;; esac ;;
esac
E
PYTHON=$build/python
export PYTHON

# one of them finds no GPU
sections 0 kernels attention
has 'kernels: done'
has 'attention: skipped: no CUDA device'
has 'kernels | tests | 100 % of 7 passed'
has 'kernels | add 3100 GB/s'
test -s "$work/results/kernels.log" || fail "no log"

# skipped sections are run again, finished ones are not; a failure is reported and its rows are shown
program tests/gpu/test-cudnn.tap <<'E'
echo "50%: Checks: 2, Failures: 1, Errors: 0"
exit 1
E
sections 1 kernels attention
has 'kernels: done before'
has "attention: failed with 1: see $work/results/attention.log"
has 'attention | tests | 50 % of 2 passed'
test "$(sort -u "$work/ran")" = tests/gpu/test-cudnn.tap || fail "what is done was done again"

# where a program lists cases each runs in a process of its own: if one crashes the others still run
cp "$build/tests/gpu/test-cuda-gemm.tap" "$work/gemm"
program tests/gpu/test-cuda-gemm.tap <<'E'
test "${1-}" = --cases && echo "case add" && echo "case rope" && echo "case norm" && exit
test "$CK_RUN_CASE" != rope || kill -SEGV $$
echo "100%: Checks: 3, Failures: 0, Errors: 0"
E
sections 1 gemm
has "gemm: failed with 1: see $work/results/gemm.log"
has 'gemm | tests | 100 % of 6 passed'
cp "$work/gemm" "$build/tests/gpu/test-cuda-gemm.tap"
sections 0 two
has 'two: skipped: 0 GPUs are here, and it needs 2'

# a case that does not end is killed
program tests/gpu/test-cudnn.tap <<'E'
exec tail -f /dev/null
E
SECTION_SECONDS=0.1 sections 1 attention
has "attention: not done in 0.1 seconds: see $work/results/attention.log"

# the libraries of NVIDIA's that it finds, and one that is missing
program fsdplan-exec-cuda </dev/null
mkdir "$build/lib"
program nvidia-smi <<'E'
echo "NVIDIA H200, 580.159.03, 143771 MiB"
E
program ldd <<'E'
echo "	libnccl.so.2 => /opt/libnccl.so.2 (0x1)"
echo "	libm.so.6 => /lib/libm.so.6 (0x1)"
E
sections 0 machine
has 'machine: done'
has 'machine | GPU | NVIDIA H200, 580.159.03, 143771 MiB'
has 'machine | libnccl.so.2 | /opt/libnccl.so.2'
test "$(grep -c '^machine | .* | losses differ by 0, at most ' "$work/out")" = 2 || fail "not both formats"
program tests/gpu/test-nccl.tap <<E
test "\${LD_LIBRARY_PATH%%:*}" = "$build/lib" && echo "100%: Checks: 3, Failures: 0, Errors: 0"
E
sections 0 nccl
has 'nccl | tests | 100 % of 3 passed'
rm "$work/results/nccl.rows"
cp "$build/tests/gpu/test-cuda-gemm.tap" "$build/tests/gpu/test-nccl.tap"
program ldd <<'E'
echo "	libcudnn.so.9 => not found"
E
rm "$work/results/machine.rows"
sections 1 machine
has 'machine | 	libcudnn.so.9 => not found'
rmdir "$build/lib"
rm "$build/ldd" "$build/fsdplan-exec-cuda"

# all sections; losses of the CPU are compared with the CPU's
program tests/gpu/test-cudnn.tap <<'E'
echo "100%: Checks: 2, Failures: 0, Errors: 0"
E
program compute-sanitizer <<'E'
echo "========= ERROR SUMMARY: 0 errors"
E
PACK=$work/packed.tar.gz sections 1
has 'attention: done'
has 'gemm | add 3100 GB/s'
has 'nccl | add 3100 GB/s'
test "$(grep -c '^batched | attention batched .* | losses differ by 0, at most ' "$work/out")" = 3 || fail "not every way"
test "$(grep -c '^batched | attention plain .* | losses differ by 0, at most ' "$work/out")" = 3 || fail "not every way"
has 'machine | --set compute=fp32 | losses differ by 0, at most 5e-06'
test "$(grep -c '^walk | ' "$work/out")" = 9 || fail "not every plan"
test "$(grep -c '^bits | .* | equal, digit by digit' "$work/out")" = 26 || fail "not every run"
test "$(grep -c '^fp8walk | .* | losses differ by 0, at most 0.0125' "$work/out")" = 6 || fail "not every recipe"
has 'bench | product | 2 ops timed'
has 'bench | fsdplan: 3 ops are not timed: this plan keeps out in mxfp8'
test "$(grep -c '^predict | .* | step 268.5 ms, predicted 250: off by -6.9 %; 9 MiB, predicted 8: off by -11.1 %' \
  "$work/out")" = 8 || fail "not every model"
has 'race8b | bf16+compile+cudnn | 60000 tokens/s'
has 'race8b | bf16+compile+flash | failed: RuntimeError: no kernel'
has "race8b: failed with 1: see $work/results/race8b.log"
has 'race1b: done'
has 'sanitize | memcheck test-cuda-kernels.tap  | ERROR SUMMARY: 0 errors'
tar -tzf "$work/packed.tar.gz" | grep -qx results/sanitize.rows || fail "not packed"
rm "$work/packed.tar.gz"

# only fsdplan's own time, reported by the script that races; none without an interpreter
if command -v python3 >/dev/null; then
  printf '#!/bin/sh\ntest "$*" != "-c import torch" && exec python3 "$@"\n' >"$build/python"
  sections 0 race8b racelong racefp8
  has "race8b | PyTorch | $build/python has none (PYTHON names another)"
  # 16384 tokens of 6 x (4 x 218103808 + 32000 x 4096) + 6 x 4 x 4096 x 4096 FLOPs, in 268.5 ms, of 1000 TFLOP/s
  has "race8b | fsdplan | 61020 tokens/s, step 268.50 ms (268.50 to 268.50), MFU 39.2 % (scores whole: 41.7 %), 9 MiB,\
 loss 5.2500, predicted 250.00 ms: off by -6.9 %, 8 MiB: off by -11.1 %"
  has 'racefp8 | fp8-delayed | 1.000 times as fast as fsdplan'
fi
printf '#!/bin/sh\nexit 1\n' >"$build/python"
rm -f "$work/results/race8b.rows"
sections 0 race8b
has "race8b: skipped: $build/python does not run (PYTHON names another)"
touch "$work/results/race8b.rows" "$work/results/racelong.rows" "$work/results/racefp8.rows" \
  "$work/results/two.rows" "$work/results/eight.rows" "$work/results/tp2.rows" "$work/results/tp8.rows" \
  "$work/results/ep2.rows" "$work/results/ep8.rows" "$work/results/fp8two.rows"
sections 0
test ! -s "$work/ran" || fail "what is done was done again"

# no time is left for the other sections
rm "$work/results/walk.rows"
TOTAL_SECONDS=20 sections 1
has 'walk: left for the next time'

# results from before a section was interrupted are not computed again
program fsdplan <<'E'
case "$*" in
*"--ranks 4"*) kill "$PPID" ;;
*) printf 'step,loss,grad_norm,step_ms\n1,5.5,2,1\n2,5.4,2,1\n' ;;
esac
E
sections 1 walk
has 'walk | --set compute=bf16 --set recompute=full | losses differ by 0, at most 0.0025'
program fsdplan <<'E'
printf 'step,loss,grad_norm,step_ms\n1,5.5,2,1\n2,5.4,2,1\n'
E
sections 0 walk
test "$(grep -c '^walk | ' "$work/out")" = 9 || fail "not every plan"
test "$(grep -c . "$work/ran")" = 16 || fail "what was found was looked for again"

# a loss that is too far off, and no loss at all
rm "$work/results/walk.rows"
program fsdplan <<'E'
case "$*" in
*"--backend cuda"*) printf 'step,loss,grad_norm,step_ms\n1,5.5,2,1\n2,5.43,2,1\n' ;;
*) printf 'step,loss,grad_norm,step_ms\n1,5.5,2,1\n2,5.4,2,1\n' ;;
esac
E
sections 1 walk
has 'walk | --set compute=bf16 --set recompute=full | losses differ by 0.0056, at most 0.0025'
program fsdplan <<'E'
echo "fsdplan: no CUDA device: no driver" >&2
exit 1
E
sections 0 walk
has 'walk: skipped: no CUDA device: no driver'
rm "$work/results/bench.rows" "$work/results/predict.rows" "$work/results/bench.db"
sections 0 bench predict
has 'bench: skipped: no CUDA device: no driver'
has 'predict: skipped: nothing was timed: run the section bench first'
rm "$work/results/gemm.rows" "$build/tests/gpu/test-cuda-gemm.tap"
sections 0 gemm
has "gemm: skipped: there is no $build/tests/gpu/test-cuda-gemm.tap: make check builds it where CUDA is found"

sections 2 nothing
grep -q 'there is no section nothing, but machine kernels gemm attention walk bits race8b' "$work/err" || fail "usage"
test "$(sh "$sections" --list | tail -1)" = sanitize || fail "--list"
