dnl SPDX-License-Identifier: Apache-2.0
dnl NCCL: beside the CUDA toolkit or in a folder of its own.
FSDPLAN_WITH([nccl], [NCCL], [NCCL],
  [AS_IF([test $have_cuda = no], [why="needs CUDA"],
     [dir=${dir:-$cuda_dir}
      found="in $dir"
      NCCL_CPPFLAGS="-isystem $dir/include $CUDA_CPPFLAGS"
      NCCL_LIBS="-L`fsdplan_libdir "$dir"` -lnccl $CUDA_LIBS"])],
  [[#include <nccl.h>]],
  [[int version; return ncclGetVersion (&version) != ncclSuccess;]])
