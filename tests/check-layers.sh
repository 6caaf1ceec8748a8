#!/bin/sh
# Layers point down: who may include what, who may start programs, and what the planning program
# links.
cd "$top_srcdir" || exit 99
bad=$(mktemp) || exit 99
trap 'rm -f "$bad"' EXIT

# First line whose pattern matches the header decides; the files that may include it are on its right.
grep -rnE '^ *# *include' --include='*.[ch]' --include='*.cu*' --include='*.cpp' --include='*.hpp' planner sim exec db plots tests |
  sed 's/:[0-9]*: *# *include *[<"]\([^>"]*\).*/ \1/' |
  awk '
    function rule(header, files) { headers[++n] = "^" header; allowed[n] = "^" files }
    BEGIN {
      rule("planner/cli/", "(planner/cli|tests)/")
      rule("planner/", "")
      rule("sim/", "(sim|planner/cli|tests)/")
      rule("exec/", "(exec|planner/cli|tests)/")
      rule("db/", "(db|planner/cli|tests)/")
      rule("plots/", "(plots|planner/cli|tests)/")
      rule("tests/", "tests/")
      rule("check\\.h", "tests/")
      rule("json-glib/", "(planner|db|tests)/")
      rule("sqlite3", "(db/|tests/unit/test-store)")
      rule("libsmartcols/", "planner/cli/")
      rule("nlopt", "sim/")
      rule("hwloc|nvml", "exec/probe/probe-hwloc\\.c")
      rule("(openblas_)?cblas|openblas", "exec/gemm-blas\\.c")
      rule("mpi\\.h", "exec/mpi/")
      rule("nccl", "(exec/nccl|tests/fake)/")
      rule("cuda_runtime_api\\.h", "(exec/(cuda|nccl)|tests/(gpu|fake))/")
      rule("cuda_runtime\\.h", "(exec/cuda|tests/(gpu|fake))/")
      rule("cu(da|blas|dnn)", "(exec/cuda|tests/fake)/")
    }
    {
      for (i = 1; i <= n; i++)
        if ($2 ~ headers[i])
          {
            if ($1 !~ allowed[i])
              print $1 ": may not include " $2
            next
          }
    }' >>"$bad"

grep -rnE '\b(g_spawn_|g_subprocess_|(popen|system|posix_spawnp?) \()' --include='*.[ch]' planner sim exec db |
  sed 's/$/   (only plots\/ starts a program)/' >>"$bad"

needed=$(readelf -d "$top_builddir/fsdplan") || exit 99
echo "$needed" | grep NEEDED | grep -E 'mpi|blas|cuda|cudnn|nccl' |
  sed 's/^/fsdplan must run without: /' >>"$bad"

cat "$bad"
test ! -s "$bad"
