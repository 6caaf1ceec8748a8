dnl SPDX-License-Identifier: Apache-2.0
dnl Finds Open MPI by its pkg-config file, or else by the flags that its compiler wrapper names (--showme),
dnl so that CC stays the compiler.
FSDPLAN_WITH([mpi], [MPI], [MPI],
  [AS_IF([test -z "$dir" && $PKG_CONFIG --exists ompi-c],
     [found="Open MPI `$PKG_CONFIG --modversion ompi-c`"
      MPI_CPPFLAGS=`$PKG_CONFIG --cflags ompi-c`
      MPI_LIBS=`$PKG_CONFIG --libs ompi-c`],
     [mpicc=${dir:+$dir/bin/}mpicc
      AS_IF([MPI_CPPFLAGS=`$mpicc --showme:compile 2>/dev/null`],
        [found=`$mpicc --showme:version | $SED 's/^[[^:]]*: *//; s/ (.*//'`
         MPI_LIBS=`$mpicc --showme:link`],
        [why="neither pkg-config ompi-c nor mpicc --showme knows Open MPI"])])
   MPI_CPPFLAGS=`AS_ECHO(["$MPI_CPPFLAGS"]) | $SED 's/-I/-isystem /g'`],
  [[#include <mpi.h>]],
  [[int flag; MPI_Initialized (&flag);]])
