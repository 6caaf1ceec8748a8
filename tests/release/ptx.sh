#!/bin/sh
# ptx.sh BUILD: a second opinion on the GPU backend's kernels. nvcc makes PTX of them, inline
# assembly and all. The tests that compare every kernel with the CPU's interpret this PTX on the fake
# device (tests/fake/ptx.hpp), instead of running what a host compiler makes of the same source. Then faults are planted in
# the PTX, such as a compiler or a wrong operand would make, and each has to be found. The variable ARCH says for which
# GPU: sm_90a by default.
set -eu
source=$(cd "$(dirname "$0")/../.." && pwd)
cd "$1"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
nvcc=$(sed -n 's/^NVCC = //p' Makefile)
[ -n "$nvcc" ] || { echo 'no nvcc' && exit 77; }
make tests/fake/test-cuda-kernels.tap
for kernel in "$source"/exec/cuda/kernels/*.cu; do
  # shellcheck disable=SC2046 # words
  "$nvcc" -DHAVE_CONFIG_H -I. -I"$source" $(pkg-config --cflags glib-2.0 | sed 's/-pthread//') -std=c++17 \
    -fmad=false -O3 -arch="${ARCH-sm_90a}" -diag-suppress 1217 -ptx "$kernel" \
    -o "$folder/$(basename "$kernel" .cu).ptx" 2>"$folder/log" || { cat "$folder/log" && exit 1; }
done
export FSDPLAN_SHARE="${FSDPLAN_SHARE-10}" CK_DEFAULT_TIMEOUT=600

# run CASE: the tests of one kernel, or of all, on the PTX of the folder.
run () { env FAKE_CUDA_PTX="$folder" ${1:+CK_RUN_CASE="$1"} tests/fake/test-cuda-kernels.tap >"$folder/log" 2>&1; }

run '' || { grep -v ':P:' "$folder/log" && exit 1; }
grep '^#\|^[0-9]*%' "$folder/log"

# planted CASE FILE EXPRESSION: sed's expression changes a file, after which the case fails.
planted ()
{
  cp "$folder/$2.ptx" "$folder/kept"
  sed -i "$3" "$folder/$2.ptx"
  cmp -s "$folder/$2.ptx" "$folder/kept" && { echo "nothing planted: $3" && exit 1; }
  run "$1" && { echo "not found: $3" && exit 1; }
  mv "$folder/kept" "$folder/$2.ptx"
}
planted swiglu elementwise '/swigluE/,/^}/s/mul\.rn\.f32/add.rn.f32/'
planted quantize quantize 's/\(cvt\.rn\.satfinite\.e4m3x2\.f32[^,]*\), \(%f[0-9]*\), \(%f[0-9]*\);/\1, \3, \2;/'
planted cast elementwise 's/\(cvt\.rn\.bf16x2\.f32[^,]*\), \(%f[0-9]*\), \(%f[0-9]*\);/\1, \3, \2;/'
planted rmsnorm norm 's/shfl\.sync\.bfly/shfl.sync.down/'
planted norm_sq optimizer 's/shr\.u64/shr.s64/;s/and\.b64/or.b64/'
planted embed_bwd embedding 's/setp\.ge\.u64/setp.gt.u64/'
echo 'every planted fault was found'
