dnl SPDX-License-Identifier: Apache-2.0
dnl hwloc: what this machine is. Without it, what the kernel says in /proc.
FSDPLAN_WITH([hwloc], [HWLOC], [hwloc],
  [AS_IF([test -n "$dir"],
     [found="in $dir"
      HWLOC_CPPFLAGS="-isystem $dir/include"
      HWLOC_LIBS="-L$dir/lib -lhwloc"],
     [PKG_CHECK_EXISTS([hwloc >= 2.1],
        [found=`$PKG_CONFIG --modversion hwloc`
         HWLOC_CPPFLAGS=`$PKG_CONFIG --cflags hwloc | $SED 's/-I/-isystem /g'`
         HWLOC_LIBS=`$PKG_CONFIG --libs hwloc`],
        [why="pkg-config knows no hwloc >= 2.1"])])],
  [[#include <hwloc.h>]],
  [[hwloc_topology_t topology; return hwloc_topology_init (&topology);]])
