#!/bin/sh
# tests/gpu/sections.sh with the programs themselves, on fake GPUs and tiny models: the programs accept its
# options, it understands what they print, and losses, digits and bytes are right. Times on fake GPUs mean
# nothing. The unit tests of tests/gpu run on the fake device in tests/fake, so here a stand-in does.
set -eu
# With sanitizers the sections run out of time; tests/fake makes the same calls.
if ldd "$top_builddir/fsdplan" | grep -q libasan; then echo "sanitizers are too slow for it" && exit 77; fi
[ "${FSDPLAN_SHARE:-1}" = 1 ] || { echo "left to who runs all of it" && exit 77; } # two minutes
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail () { echo "gpu-rehearsal.sh: $*"; cat "$work/out"; tail -n 5 "$work/results"/*.log; exit 1; }

# Programs find each other, and the catalogue, by where they are.
mkdir -p "$work/build/tests/gpu" "$work/build/db" "$work/driver"
cp "$top_builddir/fsdplan" "$top_builddir/fsdplan-exec-cpu" "$work/build"
cp "$top_builddir/tests/fake/exec-cuda" "$work/build/fsdplan-exec-cuda"
cp "$top_builddir/db/catalogue.db" "$work/build/db"
cp "$top_builddir/tests/fake/nvml-fake.so" "$work/driver/libnvidia-ml.so.1"
printf '#!/bin/sh\necho "100%%: Checks: 7, Failures: 0, Errors: 0"\n' >"$work/build/tests/gpu/test-cuda-kernels.tap"
chmod +x "$work/build/tests/gpu/test-cuda-kernels.tap"

LD_LIBRARY_PATH=$work/driver${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
SIZES=tiny RACE_ROUNDS=2 RACE_STEPS=1 BENCH_SECONDS=3600 BENCH_OPTIONS='--memory 20KiB'
PYTHON=$work/python # without PyTorch: that takes longer than all the rest
export LD_LIBRARY_PATH SIZES RACE_ROUNDS RACE_STEPS BENCH_SECONDS BENCH_OPTIONS PYTHON
printf '#!/bin/sh\ntest "$*" != "-c import torch" && exec python3 "$@"\n' >"$PYTHON"
chmod +x "$PYTHON"

sections () { sh "$top_srcdir/tests/gpu/sections.sh" "$work/build" "$work/results" "$@" >"$work/out" 2>&1; }
rows () { test "$(grep -c "$2" "$work/out")" = "$1" || fail "not $1 rows of $2"; }

printf '#!/bin/sh\ntest "$*" = -L && printf "GPU 0: fake\nGPU 1: fake\n"\n' >"$work/build/nvidia-smi"
chmod +x "$work/build/nvidia-smi"
FAKE_GPUS=2
export FAKE_GPUS

names='machine kernels walk bits race8b bench predict two tp2 ep2 fp8two'
sections $names || fail "ended with $?"
rows 2 '^machine | .* | losses differ by .*, at most '
rows 1 '^kernels | tests | 100 % of 7 passed$'
rows 9 '^walk | .* | losses differ by .*, at most '
rows 26 '^bits | .* | equal, digit by digit$'
if command -v python3 >/dev/null; then
  rows 3 '^race8b | fsdplan.* tokens/s, .* loss 4\..* MiB: off by 0\.0 %$'
fi
rows 1 '^bench | copy | [0-9]* ops timed$'
rows 8 '^predict | .* | step .* MiB, predicted .*: off by 0\.0 %$'
rows 1 '^predict | from here on | '
rows 10 '^two | .* | losses differ by .*, at most '
rows 6 '^two | 2 ranks .* tokens/s; step .* ms, predicted .*; device .* MiB, predicted '
rows 5 '^tp2 | .* | losses differ by .*, at most '
rows 4 '^tp2 | 2 ranks .* tokens/s; step .* ms, predicted .*; device .* MiB, predicted '
rows 5 '^ep2 | .* | losses differ by .*, at most '
rows 3 '^ep2 | 2 ranks .* tokens/s; step .* ms, predicted .*; device .* MiB, predicted '

rows 4 '^fp8two | .* | losses differ by .*, at most '
rows 1 '^fp8two | 2 ranks .* tokens/s; step .* ms, predicted .*; device .* MiB, predicted '

# All of it is there, and is not done again.
sections $names || fail "ended with $?, the second time"
test "$(grep -c ': done before$' "$work/out")" -ge 6 || fail "done again"
rows 26 '^bits | .* | equal, digit by digit$'
