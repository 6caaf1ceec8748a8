#!/bin/sh
# Ranks that a launcher started: on which hosts they are, whether they run the same job, and which ranks
# are slow.
set -eu
command -v mpirun >/dev/null || { echo "no mpirun"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tiny="--model llama-tiny --gbs 8 --seq 16 --steps 3 --db :memory:"
if ! mpirun -n 2 fsdplan run $tiny >"$work/probe" 2>&1; then
  echo "ranks as processes do not work here:"
  cat "$work/probe"
  exit 77
fi
bad=0
complain () { echo "ranks.sh: $*"; cat "$work/err"; bad=1; }

status_of_refusal=2
# says MESSAGE RANKS SCRIPT: checks that a run is refused before it begins; the script sets HOST from
# the rank $r
says () {
  status=0
  mpirun -n "$2" sh -c 'r=${OMPI_COMM_WORLD_RANK:-$PMIX_RANK}; '"$3" >"$work/out" 2>"$work/err" || status=$?
  test $status = $status_of_refusal || complain "exit status $status instead of $status_of_refusal: $3"
  grep -qF -e "$1" "$work/err" || complain "does not say '$1'"
  if grep -q MPI_ABORT "$work/err"; then complain "all ranks know why, and one aborts"; fi
  test ! -s "$work/out" || complain "prints a result"
}

says "the plan is for 4 ranks, 1 x 4 of dgx-a100, and the launcher started 2: 2 too few (ranks on" \
  2 "exec fsdplan run $tiny --cluster a100-80gb:4"
says "ranks 0 and 1 are of one node of the plan and lie on n0 and n1: place 4 ranks" \
  4 "SLURMD_NODENAME=n\$((r % 2)) exec fsdplan run $tiny --cluster a100-80gb:4"
says "ranks 0 and 1 are of one sharding group of 2, and lie on n0 and n1" \
  4 "SLURMD_NODENAME=n\$((r % 2)) exec fsdplan run $tiny --set dp_outer=2"
says "rank 1 on b has another plan than rank 0 on a: grad_comm=bf16, which rank 0 does not have" \
  2 "if test \$r = 1; then SLURMD_NODENAME=b exec fsdplan run $tiny --set grad_comm=bf16; fi
     SLURMD_NODENAME=a exec fsdplan run $tiny"
says "rank 2 on c has another settings than rank 0 on c: seed=2, not seed=1" \
  3 "export SLURMD_NODENAME=c; if test \$r = 2; then exec fsdplan run $tiny --gbs 6 --seed 2; fi
     exec fsdplan run $tiny --gbs 6"
mkdir "$work/other"
cp "$(command -v fsdplan-exec-cpu)" "$work/other/fsdplan-exec-cpu"
echo other >>"$work/other/fsdplan-exec-cpu"
says "rank 1 on d runs another program than rank 0 on d: fsdplan" \
  2 "export SLURMD_NODENAME=d; if test \$r = 1; then exec $work/other/fsdplan-exec-cpu $tiny; fi
     exec fsdplan-exec-cpu $tiny"

# ranks that lie as the plan wants run
mpirun -n 4 sh -c "SLURMD_NODENAME=n\$((\${OMPI_COMM_WORLD_RANK:-\$PMIX_RANK} / 2)) exec fsdplan run $tiny \
  --set dp_outer=2 --format=json" >"$work/out" 2>"$work/err" || complain "two hosts of two"
test "$(grep -c '"host" : "n1"' "$work/out")" = 2 || complain "hosts are not in the result"

# launchers without the library that joins their processes
for variables in "RANK=1 WORLD_SIZE=4 LOCAL_RANK=1 MASTER_ADDR=a" "SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=1"; do
  status=0
  env $variables fsdplan run $tiny >"$work/out" 2>"$work/err" || status=$?
  test $status = 1 || complain "exit status $status instead of 1: $variables"
  grep -q 'started 4 .*srun --mpi=pmix, or one .* with --ranks 4' "$work/err" || complain "$variables"
  status=0
  env $variables fsdplan bench --only collective --db :memory: >"$work/out" 2>"$work/err" || status=$?
  test $status = 1 || complain "bench: exit status $status instead of 1: $variables"
  grep -q 'started 4 .*srun --mpi=pmix, or one .* with --ranks 4' "$work/err" || complain "bench: $variables"
done
RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 fsdplan run $tiny >"$work/out" 2>"$work/err" || complain "a launcher of one"

# an error that all ranks have is printed once
once () { says "$@"; test "$(grep -cF -e "$1" "$work/err")" = 1 || complain "said more than once: $1"; }
once "--only: no class is called 'collectiv'" 2 "exec fsdplan bench --only collectiv --db :memory:"
once "--cluster h100:2: its devices are not this machine's processors" \
  2 "exec fsdplan bench --cluster h100:2 --db :memory:"
once "the plan is for 4 ranks, 1 x 4 of " 2 "exec fsdplan bench --cluster local-cpu:4 --db :memory:"
status_of_refusal=1
once "tp_overlap=async beside products with scales of blocks" 2 \
  "exec fsdplan run $tiny --set tp=2 --set tp_overlap=async --set compute=mxfp8"
status_of_refusal=2
says "rule gbs-divides: gbs must be a multiple of" 3 "exec fsdplan run $tiny"
test "$(grep -c gbs-divides "$work/err")" = 1 || complain "said more than once"

# a slow rank is named, and the run goes on
fsdplan run $tiny >"$work/out" 2>"$work/err"
if grep -q OpenBLAS "$work/out" && ! grep -q __asan_init "$(command -v fsdplan-exec-cpu)"; then
  slow="LD_PRELOAD=$top_builddir/tests/fake/slow-rank.so exec fsdplan run $tiny --gbs 6"
  SLOW_RANK=1 mpirun -n 3 sh -c "$slow" >"$work/out" 2>"$work/err" || complain "a slow rank"
  grep -q '^slowest: rank 1 on ' "$work/out" || complain "the slow rank is not the slowest"
  grep -q '^straggler: rank 1 on .* over the median of ' "$work/out" || complain "the slow rank is not named"
  SLOW_RANK=2 mpirun -n 3 sh -c "$slow --format=json" >"$work/out" 2>"$work/err" || complain "a slow rank"
  grep -q '"slowest" : 2' "$work/out" || complain "the slow rank is not the slowest in JSON"
fi
exit $bad
