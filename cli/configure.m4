dnl SPDX-License-Identifier: Apache-2.0
dnl Programs that travel: --enable-static-deps links the archives there are; what has none stays shared,
dnl and `make carried` puts it beside the programs, where these look first. MPI does not travel.
AC_ARG_ENABLE([static-deps],
  [AS_HELP_STRING([--enable-static-deps],
     [link libraries as archives, for machines that lack them (see `make carried')])],
  [], [enable_static_deps=no])
static_archives= static_shared=

# fsdplan_archives MODULE: all that pkg-config says it needs, archives by their paths; those that are
# not there are in $missing then.
fsdplan_archives ()
{
  missing= archives= folders=
  for word in `$PKG_CONFIG --static --libs "$[]1"`; do
    AS_CASE([$word],
      [-L*], [folders="$folders `AS_ECHO(["$word"]) | $SED 's/^-L//'`"],
      [-lm|-ldl|-lpthread|-lrt|-pthread], [archives="$archives $word"],
      [-l*], [
        name=`AS_ECHO(["$word"]) | $SED 's/^-l\(.*\)/lib\1.a/'`
        path=`$CC -print-file-name=$name`
        for folder in $folders; do
          AS_IF([test -f "$folder/$name"], [path=$folder/$name])
        done
        AS_CASE([$path], [*/*], [archives="$archives $path"],
          [AS_CASE([" $missing "], [*" $name "*], [], [missing="$missing $name"])])],
      [archives="$archives $word"])
  done
}

dnl FSDPLAN_STATIC (VARIABLE, module): VARIABLE_LIBS by archives, if there are all it needs.
AC_DEFUN([FSDPLAN_STATIC],
  [fsdplan_archives $2
   AS_IF([test -z "$missing"],
     [$1_LIBS=$archives static_archives="$static_archives $2"],
     [static_shared="$static_shared
                $2 (there is no$missing)"])])

# fsdplan_static_cuda WORDS...: the toolkit's runtime, and that of C++, as archives.
fsdplan_static_cuda ()
{
  words=
  for word in "$[]@"; do
    AS_CASE([$word],
      [-lcudart], [word="-lcudart_static -lrt -lpthread $DL_LIBS"],
      [-lstdc++], [word=`$CC -print-file-name=libstdc++.a`])
    words="$words $word"
  done
  AS_ECHO(["$words"])
}

dnl FSDPLAN_STATIC_ALL: once every library has been looked for. There is one GLib in a program: its
dnl archive is of use where json-glib, which needs it, has one.
AC_DEFUN([FSDPLAN_STATIC_ALL], [
AS_IF([test "$enable_static_deps" = yes], [
  FSDPLAN_STATIC([SQLITE], [sqlite3])
  FSDPLAN_STATIC([NLOPT], [nlopt])
  FSDPLAN_STATIC([SMARTCOLS], [smartcols])
  FSDPLAN_STATIC([JSON], [json-glib-1.0])
  AS_IF([test -z "$missing"], [FSDPLAN_STATIC([GLIB], [glib-2.0])],
    [static_shared="$static_shared
                glib-2.0 (json-glib needs the same)"])
  AS_IF([test $have_hwloc = yes], [FSDPLAN_STATIC([HWLOC], [hwloc])])
  AS_IF([test $have_blas = yes && $PKG_CONFIG --exists openblas],
    [FSDPLAN_STATIC([BLAS], [openblas])])
  AS_IF([test $have_cuda = yes], [
    AS_IF([test ! -f "`fsdplan_libdir "$cuda_dir"`/libcudart_static.a"],
      [AC_MSG_ERROR([--enable-static-deps: no libcudart_static.a in `fsdplan_libdir "$cuda_dir"`])])
    CUDA_LIBS=`fsdplan_static_cuda $CUDA_LIBS`
    CUDNN_LIBS=`fsdplan_static_cuda $CUDNN_LIBS`
    NCCL_LIBS=`fsdplan_static_cuda $NCCL_LIBS`
    static_archives="$static_archives cudart libstdc++"])
  CARRIED_LDFLAGS="-static-libgcc -Wl,--disable-new-dtags -Wl,-rpath,'\$\$ORIGIN/lib'"
  AC_MSG_NOTICE([archives:$static_archives; shared, for make carried to put beside programs:$static_shared])])
AC_SUBST([CARRIED_LDFLAGS])
AC_SUBST([STATIC_DEPS], [$enable_static_deps])])
