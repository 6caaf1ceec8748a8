#!/bin/sh
# tests/gpu/sections.sh with programs that only play theirs: what is done is kept and not done again, what
# fails or has no GPU is, and wrong usage is told.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sections=$top_srcdir/tests/gpu/sections.sh
build=$work/build
mkdir -p "$build/tests/gpu"

fail () { echo "gpu-sections.sh: $*"; cat "$work/out" "$work/err"; exit 1; }

# program NAME: its text from standard input; it notes that it ran
program () {
  { printf '#!/bin/sh\necho %s >>"%s/ran"\n' "$1" "$work"; cat; } >"$build/$1"
  chmod +x "$build/$1"
}

# sections STATUS NAME...
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
# its GPU is the CPU, and large models are not run
program fsdplan <<E
case "\$*" in
bench*) echo x >"$work/results/bench.db"
  echo "fsdplan: 3 ops are not timed: this plan keeps out in mxfp8" >&2
  printf 'class,op\nproduct,gemm\nrope,rope\nproduct,gemm\n' ;;
calibrate*) test -s "$work/results/bench.db" ;;
*--cluster*) printf '61000 tokens/s with 1 ranks\nstep_ms 250 268.5 -6.9\nmax_allocated_mib 8 9 0\n' ;;
*) exec "$real" \$(echo "\$*" | sed 's/--backend cuda/--backend cpu/') ;;
esac
E

# an interpreter that has a PyTorch, which cannot race in one way
program python <<'E'
case "$*" in
-c*) exit ;;
*flash*) echo "RuntimeError: no kernel" >&2 && exit 1 ;;
*) echo "torch 2.11.0 $5 | 60000 tokens/s" ;;
esac
E
PYTHON=$build/python
export PYTHON

# no GPU for one of them
sections 0 kernels attention
has 'kernels: done'
has 'attention: skipped: no CUDA device'
has 'kernels | tests | 100 % of 7 passed'
has 'kernels | add 3100 GB/s'
test -s "$work/results/kernels.log" || fail "no log"

# what was skipped is tried again, what is done is not; a failure is told and its rows are shown
program tests/gpu/test-cudnn.tap <<'E'
echo "50%: Checks: 2, Failures: 1, Errors: 0"
exit 1
E
sections 1 kernels attention
has 'kernels: done before'
has "attention: failed with 1: see $work/results/attention.log"
has 'attention | tests | 50 % of 2 passed'
test "$(cat "$work/ran")" = tests/gpu/test-cudnn.tap || fail "what is done was done again"

# one that does not end is ended
program tests/gpu/test-cudnn.tap <<'E'
exec tail -f /dev/null
E
SECTION_SECONDS=0.1 sections 1 attention
has "attention: not done in 0.1 seconds: see $work/results/attention.log"

# a folder that is carried: which libraries of NVIDIA's it finds, and one that is missing
sections 0 carried
has "carried: skipped: $build is no folder of make carried"
mkdir "$build/lib"
program ldd <<'E'
echo "	libnccl.so.2 => /opt/libnccl.so.2 (0x1)"
echo "	libm.so.6 => /lib/libm.so.6 (0x1)"
E
sections 0 carried
has 'carried: done'
has 'carried | libnccl.so.2 | /opt/libnccl.so.2'
test "$(grep -c '^carried | .* | losses differ by 0, at most ' "$work/out")" = 2 || fail "not both formats"
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
rm "$work/results/carried.rows"
sections 1 carried
has 'carried | 	libcudnn.so.9 => not found'
rmdir "$build/lib"

# all of them; losses of the CPU are those of the CPU
program tests/gpu/test-cudnn.tap <<'E'
echo "100%: Checks: 2, Failures: 0, Errors: 0"
E
sections 1
has 'attention: done'
has 'gemm | add 3100 GB/s'
has 'nccl | add 3100 GB/s'
has 'batched | from here on | attention batched'
has 'batched | from here on | attention plain'
test "$(grep -c '^batched | .* | losses differ by 0, at most ' "$work/out")" = 6 || fail "not every way"
has 'walk | --set compute=fp32 | losses differ by 0, at most 5e-06'
test "$(grep -c '^walk | ' "$work/out")" = 5 || fail "not every plan"
test "$(grep -c '^fp8walk | .* | losses differ by 0, at most 0.0125' "$work/out")" = 6 || fail "not every recipe"
has 'throughput | llama3.2-1b --gbs 4 --seq 4096 | 61000 tokens/s, step 268.5 ms, predicted 250, 9 MiB, predicted 8'
test "$(grep -c '^fp8 | ' "$work/out")" = 4 || fail "not every format"
has 'bench | product | 2 ops timed'
has 'bench | fsdplan: 3 ops are not timed: this plan keeps out in mxfp8'
test "$(grep -c '^predict | .* | step 268.5 ms, predicted 250: off by -6.9 %; 9 MiB, predicted 8: off by -11.1 %' \
  "$work/out")" = 8 || fail "not every model"
has 'torch | torch 2.11.0 bf16+compile+cudnn | 60000 tokens/s'
has 'torch | bf16+compile+flash | failed: RuntimeError: no kernel'
has "torch: failed with 1: see $work/results/torch.log"
printf '#!/bin/sh\nexit 1\n' >"$build/python"
sections 0 torch torch1b
has "torch: skipped: $build/python has no PyTorch (PYTHON names another)"
touch "$work/results/torch.rows" "$work/results/torch1b.rows"
sections 0
test ! -s "$work/ran" || fail "what is done was done again"

# a loss that is too far away, and none at all
rm "$work/results/walk.rows"
program fsdplan <<'E'
case "$*" in
*"--backend cuda"*) printf 'step,loss,grad_norm,step_ms\n1,5.5,2,1\n2,5.43,2,1\n' ;;
*) printf 'step,loss,grad_norm,step_ms\n1,5.5,2,1\n2,5.4,2,1\n' ;;
esac
E
sections 1 walk
has 'walk | --set compute=fp32 | losses differ by 0.0056, at most 5e-06'
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
grep -q 'there is no section nothing, but carried kernels gemm attention batched nccl walk fp8walk' "$work/err" || fail "usage"
test "$(sh "$sections" --list | tail -1)" = torch1b || fail "--list"
