dnl SPDX-License-Identifier: Apache-2.0
dnl NCCL: beside the CUDA toolkit or in a folder of its own. Symmetric windows (2.27) and gathers
dnl that take no SMs (2.28) are used where its version has them.
FSDPLAN_WITH([nccl], [NCCL], [NCCL],
  [AS_IF([test $have_cuda = no], [why="needs CUDA"],
     [dir=${dir:-$cuda_dir}
      version=`$SED -n 's/^.define NCCL_VERSION_CODE *\([[0-9]]*\).*/\1/p' "$dir/include/nccl.h" 2>&AS_MESSAGE_LOG_FD`
      found="$version in $dir"
      AS_IF([test ${version:-22100} -lt 22100],
        [why="NCCL 2.21 or newer is needed, not $version in $dir"])
      NCCL_CPPFLAGS="-isystem $dir/include $CUDA_CPPFLAGS"
      NCCL_LIBS="-L`fsdplan_libdir "$dir"` -lnccl $CUDA_LIBS"])],
  [[#include <nccl.h>]],
  [[int version; return ncclGetVersion (&version) != ncclSuccess;]])
