#!/bin/sh
# The package of `make carried` on a machine without our libraries: moved to another folder and started
# with an empty environment, its programs find libraries beside them, and otherwise only the C library's
# and, for GPUs, NVIDIA's. Skipped (77) unless configured with --enable-static-deps.
set -eu
grep -qx 'STATIC_DEPS = yes' "$top_builddir/Makefile" ||
  { echo "not configured with --enable-static-deps" && exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail () { echo "carried.sh: $*"; exit 1; }

"${MAKE:-make}" -C "$top_builddir" carried >"$work/log" 2>&1 || { cat "$work/log" && exit 1; }
grep -q '^carried: [0-9]* MiB, for machines with glibc 2\.[0-9]* or later$' "$work/log" || fail "the version of glibc is not named"
mv "$top_builddir/carried" "$work/of another name"
folder="$work/of another name"

# Libraries that are linked as archives are in the programs; of the toolkit's libraries only those
# listed here are needed.
for program in "$folder"/fsdplan*; do
  needs=$(readelf -d "$program" | sed -n 's/.*(NEEDED).*\[\(.*\)\]$/\1/p')
  readelf -d "$program" | grep -q 'RPATH.*\[$ORIGIN/lib\]' || fail "$program does not look beside itself"
  for name in $needs; do
    case $name in
    libsqlite3.so* | libcudart.so* | libstdc++.so* | libgcc_s.so* | libmpi* | libz.so*)
      fail "$program needs $name" ;;
    ld-linux* | libc.so.6 | libm.so.6 | libdl.so.2 | libpthread.so.0 | librt.so.1) ;;
    libcublasLt.so.*) # NCCL and cuDNN are loaded when they are needed
      case $program in *-exec-cuda) ;; *) fail "$program needs $name" ;; esac ;;
    *) test -f "$folder/lib/$name" || fail "$program needs $name, which the package lacks" ;;
    esac
  done
done

# The tests of GPUs find their libraries where tests/gpu/sections.sh says.
for program in "$folder"/tests/gpu/*.tap; do
  test -e "$program" || continue
  for name in $(readelf -d "$program" | sed -n 's/.*(NEEDED).*\[\(.*\)\]$/\1/p'); do
    case $name in
    ld-linux* | libc.so.6 | libm.so.6 | libdl.so.2 | libpthread.so.0 | librt.so.1) ;;
    libcublasLt.so.* | libcudnn.so.* | libnccl.so.*) ;;
    *) test -f "$folder/lib/$name" || fail "$program needs $name, which the package lacks" ;;
    esac
  done
done

sh "$folder/tests/gpu/sections.sh" --list | grep -qx kernels || fail "no sections"
test -f "$folder/tests/gpu/race-torch.py" || fail "no race"

# bare COMMAND...: runs it with an environment that only has a folder for its store, and, for GPUs, that
# of NVIDIA's libraries.
cuda=$(sed -n 's/^CUDA_LIBS = *-L\([^ ]*\).*/\1/p' "$top_builddir/Makefile")
bare () { (cd / && env -i HOME="$work" LD_LIBRARY_PATH="$libraries" "$@"); }

libraries=
bare "$(command -v ldd)" "$folder/fsdplan" >"$work/found"
! grep 'not found' "$work/found" || fail "not all is found"
! grep '=>' "$work/found" | grep -v -F "$folder/lib/" |
  grep -vE '^[[:space:]]*lib(c|m|dl|pthread|rt|resolv)\.so' || fail "those come from elsewhere"
bare "$folder/fsdplan" --help | grep -q '^  query ' || fail "no help"
bare "$folder/fsdplan" query --model llama-tiny --cluster h100:2 --gbs 8 --seq 64 --set stack=native \
  >"$work/query" || fail "no query"
grep -q 'strategy=' "$work/query" || { cat "$work/query"; fail "no plan"; }
bare "$folder/fsdplan" run --backend cpu --db :memory: --model llama-tiny --gbs 2 --seq 16 --steps 2 \
  --set stack=native --set compute=fp32 >"$work/run" || fail "no run"
grep -q 'tokens/s' "$work/run" || { cat "$work/run"; fail "no speed"; }

# The program for GPUs starts, and runs or says that there is no GPU.
if [ -e "$folder/fsdplan-exec-cuda" ]; then
  libraries=$cuda
  bare "$folder/fsdplan" run --backend cuda --db :memory: --model llama-tiny --gbs 2 --seq 16 --steps 2 \
    --set stack=native >"$work/run" 2>&1 || grep -q 'no CUDA device' "$work/run" ||
    { cat "$work/run"; fail "fsdplan-exec-cuda does not start"; }
fi
