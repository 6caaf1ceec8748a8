dnl SPDX-License-Identifier: Apache-2.0
dnl CUDA: nvcc, the runtime and cuBLASLt of one toolkit. cuDNN: beside it or in a folder of its own.
dnl NVCCFLAGS says what kernels are compiled for: by default code for the data-centre GPUs of three
dnl generations (Ampere; Hopper with its own instructions, sm_90a; Blackwell where nvcc knows it), and
dnl portable PTX, which drivers translate for later GPUs. A trial shows that nvcc compiles with it, as
dnl nvcc accepts few versions of gcc. Where warnings are errors, so are register spills.
dnl Headers are given as -isystem: our own warnings must not fire inside them.

# fsdplan_libdir DIR: where a toolkit or library folder keeps its libraries.
fsdplan_libdir ()
{
  AS_IF([test -d "$[]1/lib64"], [AS_ECHO(["$[]1/lib64"])], [AS_ECHO(["$[]1/lib"])])
}

AC_ARG_VAR([NVCCFLAGS], [nvcc flags: which GPUs to compile for, optimisation])
AS_IF([test "$enable_werror" = yes], [NVCC_WERROR="-Werror all-warnings -Xptxas -Werror,-warn-spills -Xcompiler -Werror"], [NVCC_WERROR=])
AC_SUBST([NVCC_WERROR])

# fsdplan_nvcc_default_flags: for what NVCC can compile to.
fsdplan_nvcc_default_flags ()
{
  flags=-O3 archs="80 90a" newest=90
  AS_IF([test -n "`"$NVCC" --list-gpu-arch 2>/dev/null | $SED -n '/compute_100$/p'`"],
    [archs="$archs 100" newest=100])
  for arch in $archs; do
    flags="$flags -gencode arch=compute_$arch,code=sm_$arch"
  done
  AS_ECHO(["$flags -gencode arch=compute_$newest,code=compute_$newest"])
}

FSDPLAN_WITH([cuda], [CUDA], [CUDA with cuBLASLt],
  [AS_IF([test -z "$dir"],
     [AC_PATH_PROG([NVCC], [nvcc], [], [$PATH$PATH_SEPARATOR/usr/local/cuda/bin])
      AS_IF([test -n "$NVCC"],
        [dir=`dirname "$NVCC"`; dir=`dirname "$dir"`],
        [why="no nvcc in the PATH or in /usr/local/cuda"])],
     [NVCC=$dir/bin/nvcc
      AS_IF([test ! -x "$NVCC"], [why="no $NVCC"])])
   AS_IF([test -z "$why"],
     [cuda_dir=$dir
      version=`"$NVCC" --version 2>&AS_MESSAGE_LOG_FD | $SED -n 's/.*release \([[0-9.]]*\).*/\1/p'`
      found="$version in $dir"
      NVCCFLAGS=${NVCCFLAGS:-`fsdplan_nvcc_default_flags`}
      AS_ECHO(["__global__ void kernel () {}"]) >conftest.cu
      AS_VERSION_COMPARE([${version:-0}], [12.4],
        [why="CUDA 12.4 or newer is needed, not ${version:-what has no version} in $dir"])
      AS_IF([test -n "$why"], [], ["$NVCC" $NVCCFLAGS -c conftest.cu -o conftest.o >&AS_MESSAGE_LOG_FD 2>&1], [],
        [why="$NVCC $NVCCFLAGS does not compile"])
      rm -f conftest.cu conftest.o
      CUDA_CPPFLAGS="-isystem $dir/include"
      CUDA_LIBS="-L`fsdplan_libdir "$dir"` -lcublasLt -lcudart -lstdc++"])],
  [[#include <cublasLt.h>
#include <cuda_runtime.h>]],
  [[int version; return cublasLtGetVersion () == 0 || cudaRuntimeGetVersion (&version) != 0;]])
AC_SUBST([NVCC])

# fsdplan_cudnn_version HEADER: "9.19.0"; nothing where there is none.
fsdplan_cudnn_version ()
{
  $SED -n 's/^.define CUDNN_\(MAJOR\|MINOR\|PATCHLEVEL\) *\([[0-9]]*\).*/\2/p' "$[]1" | paste -sd. -
}

FSDPLAN_WITH([cudnn], [CUDNN], [cuDNN],
  [AS_IF([test $have_cuda = no], [why="needs CUDA"],
     [dir=${dir:-$cuda_dir}
      header=$dir/include/cudnn_version.h
      version=`fsdplan_cudnn_version "$header" 2>&AS_MESSAGE_LOG_FD`
      found="$version in $dir"
      AS_VERSION_COMPARE([${version:-9.8}], [9.8],
        [why="cuDNN 9.8 or newer is needed, not $version in $dir"])
      CUDNN_CPPFLAGS="-isystem $dir/include $CUDA_CPPFLAGS"
      CUDNN_LIBS="-L`fsdplan_libdir "$dir"` -lcudnn $CUDA_LIBS"])],
  [[#include <stdbool.h>
#include <cudnn.h>]],
  [[return cudnnGetVersion () == 0;]])
