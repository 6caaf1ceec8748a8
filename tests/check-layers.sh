#!/bin/sh
# Layers point down: who may include what, who may start programs, and what the planning program
# links.
cd "$top_srcdir" || exit 99
bad=$(mktemp) includes=$(mktemp) || exit 99
trap 'rm -f "$bad" "$includes"' EXIT
folders="planner advise cli sim exec db plots"

# "FILE HEADER" of every include.
# shellcheck disable=SC2086 # folders are words
grep -rnE '^ *# *include' --include='*.[ch]' --include='*.cu*' --include='*.cpp' --include='*.hpp' \
  $folders tests | sed 's/:[0-9]*: *# *include *[<"]\([^>"]*\).*/ \1/' >"$includes"

# First line whose pattern matches the header decides; the files that may include it are on its right.
# The floors of planner/ stand on each other in the order given: none includes one behind it.
awk '
    function rule(header, files) { headers[++n] = "^" header; allowed[n] = "^" files }
    BEGIN {
      n_floors = split("base model cluster schedule plan layout graph case lower search megatron emit runs", floors, " ")
      for (i = 1; i <= n_floors; i++)
        floor["planner/" floors[i]] = i
      rule("cli/", "(cli|tests)/")
      rule("advise/", "(advise|cli|tests)/")
      rule("planner/", "")
      rule("sim/", "(sim|advise|cli|tests)/")
      rule("exec/", "(exec|cli|tests)/")
      rule("db/", "(db|advise|cli|tests)/")
      rule("plots/", "(plots|cli|tests)/")
      rule("tests/", "tests/")
      rule("check\\.h", "tests/")
      rule("json-glib/", "(planner|db|cli|tests)/")
      rule("sqlite3", "(db/|tests/unit/test-store)")
      rule("libsmartcols/", "cli/")
      rule("nlopt", "sim/fit/")
      rule("hwloc|nvml", "exec/probe/probe-hwloc\\.c")
      rule("(openblas_)?cblas|openblas", "exec/cpu/gemm-blas\\.c")
      rule("mpi\\.h", "exec/mpi/")
      rule("nccl", "(exec/nccl|tests/fake)/")
      rule("cuda_runtime_api\\.h", "(exec/(cuda|nccl)|tests/(gpu|fake))/")
      rule("cuda_runtime\\.h", "(exec/cuda|tests/(gpu|fake))/")
      rule("cu(da|blas|dnn)", "(exec/cuda|tests/fake)/")
    }
    function folder(path) { sub("/[^/]*$", "", path); return path }
    {
      from = floor[folder($1)]
      to = floor[folder($2)]
      if (from && to > from)
        print $1 ": is on a floor below that of " $2
      for (i = 1; i <= n; i++)
        if ($2 ~ headers[i])
          {
            if ($1 !~ allowed[i])
              print $1 ": may not include " $2
            next
          }
    }' "$includes" >>"$bad"

# Folders include each other in one direction only.
awk '
    function folder(path) { sub("/[^/]*$", "", path); return path }
    $1 !~ "^tests/" && $2 ~ "^(planner|advise|cli|sim|exec|db|plots)/" && folder($1) != folder($2) {
      print folder($1), folder($2)
    }' "$includes" | sort -u | tsort 2>&1 >/dev/null |
  sed 's/^tsort: */folders include each other in a circle: /' >>"$bad"

# shellcheck disable=SC2086
find $folders tests -name '*.[ch]' -o -name '*.cu*' | sed 's,/[^/]*$,,' | sort | uniq -c |
  awk '$2 !~ "^tests" && $1 > 40 { print $2 ": " $1 " sources of its own, more than 40" }' >>"$bad"

# shellcheck disable=SC2086
grep -rnE '\b(g_spawn_|g_subprocess_|(popen|system|posix_spawnp?) \()' --include='*.[ch]' $folders |
  grep -v '^plots/' | sed 's/$/   (only plots\/ starts a program)/' >>"$bad"

needed=$(readelf -d "$top_builddir/fsdplan") || exit 99
echo "$needed" | grep NEEDED | grep -E 'mpi|blas|cuda|cudnn|nccl' |
  sed 's/^/fsdplan must run without: /' >>"$bad"

cat "$bad"
test ! -s "$bad"
