#!/bin/sh
# Whether the GPU backend compiles against the headers of older toolkits than the one that is
# installed, as configure says it does: the oldest that it takes, and one between. They come from
# NVIDIA's Python packages, some 2 GB, by pip; of a release, not of a gate. Kernels are not compiled:
# nvcc is in no package. From the build's folder, by `make check-toolkits`.
set -eu
src=${srcdir-.}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
command -v pip >/dev/null || { echo "no pip"; exit 77; }
failed=0

# toolkit NAME PACKAGE==VERSION...
toolkit ()
{
  name=$1 flags=
  shift
  mkdir "$work/$name"
  for package in "$@"; do
    pip download -q --no-deps -d "$work/$name" "$package" || { echo "no $package"; exit 77; }
  done
  for wheel in "$work/$name"/*.whl; do
    python3 -c 'import sys, zipfile
z = zipfile.ZipFile (sys.argv[1])
z.extractall (sys.argv[2], [n for n in z.namelist () if "/include/" in n])' "$wheel" "$work/$name"
    rm "$wheel"
  done
  for folder in "$work/$name"/nvidia/*/include; do flags="$flags -isystem $folder"; done
  for file in "$src"/exec/cuda/*.c "$src"/exec/nccl/*.c "$src/cli/run/backend-cuda.c"; do
    # shellcheck disable=SC2086 # flags are words
    ${CC-cc} -fsyntax-only -std=gnu11 -Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers \
      -Werror -DG_LOG_DOMAIN='"fsdplan"' -I. -I"$src" $flags $GLIB_CFLAGS "$file" || failed=1
  done
  echo "$name: $#"' packages'
}

toolkit 12.4 nvidia-cuda-runtime-cu12==12.4.127 nvidia-cuda-nvcc-cu12==12.4.131 nvidia-cublas-cu12==12.4.5.8 \
  nvidia-cudnn-cu12==9.8.0.87 nvidia-nccl-cu12==2.21.5
toolkit 12.8 nvidia-cuda-runtime-cu12==12.8.90 nvidia-cuda-nvcc-cu12==12.8.93 nvidia-cublas-cu12==12.8.4.1 \
  nvidia-cudnn-cu12==9.10.2.21 nvidia-nccl-cu12==2.27.3
exit $failed
