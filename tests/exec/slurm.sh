#!/bin/sh
# A Slurm of two nodes with eight GPUs each, which runs on this machine for this test alone. A question
# is asked and answered with a plan; its job is written, submitted unchanged, run on CPUs, stored, and
# used to calibrate. It uses a quarter of the GPUs unless GPUS gives another number per node.
set -u
skip () { echo "$*"; exit 77; }
gpus=${GPUS-2}
test "$(id -u)" = 0 || skip "not root: nodes and devices cannot be played"
for program in munged slurmctld slurmd srun sbatch sinfo timeout unshare; do
  command -v $program >/dev/null || skip "no $program: apt-get install slurm-wlm munge"
done
unshare --uts true 2>/dev/null || skip "nodes cannot have names of their own"
tiny="--model llama-tiny --gbs 8 --seq 16 --steps 2 --db :memory:"
if timeout 100 fsdplan run $tiny --comm mpi 2>&1 | grep -q 'built without MPI'; then skip "built without MPI"; fi

work=$(mktemp -d)
export SLURM_CONF=$work/slurm.conf XDG_DATA_HOME=$work/data OMPI_MCA_btl_tcp_if_include=lo
unset $(env | sed -n 's/^\(SLURM[A-Z]*_[A-Z_]*\)=.*/\1/p' | grep -v SLURM_CONF)
deadline=$(($(date +%s) + 300))

# All processes of this Slurm have its configuration in their environment.
end ()
{
  for signal in TERM KILL; do
    for process in $(grep -lsz "^SLURM_CONF=$work/" /proc/[0-9]*/environ); do
      pid=${process#/proc/}
      case ${pid%/environ} in $$) ;; *) kill -s $signal "${pid%/environ}" 2>/dev/null ;; esac
    done
    wait
  done
  rm -rf "$work"
}
trap end EXIT
trap 'exit 1' HUP INT TERM

bad=0
complain () { echo "slurm.sh: $*"; bad=1; }
give_up () { echo "slurm.sh: $*"; tail -n 20 "$work"/*.log; exit 1; }

# --- two nodes ------------------------------------------------------------------------------

is_free () { ! grep -qi ":$(printf %04X "$1") [0-9A-F]*:0000 0A" /proc/net/tcp /proc/net/tcp6 2>/dev/null; }
port=$((20000 + $$ % 10000))
until is_free $port && is_free $((port + 1)) && is_free $((port + 2)); do port=$((port + 3)); done

host=$(hostname -s)
for folder in state devices tmp-n1 tmp-n2 spool/n1 spool/n2 job; do mkdir -p "$work/$folder"; done
for gpu in 0 1 2 3 4 5 6 7; do mknod "$work/devices/gpu$gpu" c 1 3 || skip "devices cannot be made here"; done
head -c 128 /dev/urandom >"$work/key"
chmod 600 "$work/key"
cat >"$work/slurm.conf" <<END
ClusterName=fsdplan
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$work/munge.socket
CredType=cred/munge
MpiDefault=none
KillWait=2
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd-%n.pid
SlurmdSpoolDir=$work/spool/%n
StateSaveLocation=$work/state
SlurmdParameters=config_overrides
TmpFS=$work/tmp-%n
GresTypes=gpu
NodeName=n[1-2] NodeHostname=$host NodeAddr=127.0.0.1 Port=[$((port + 1))-$((port + 2))] CPUs=8 RealMemory=1000 Gres=gpu:h200:8 State=UNKNOWN
PartitionName=local Nodes=ALL Default=YES DefaultTime=5 MaxTime=5 State=UP
END
echo "NodeName=n[1-2] Name=gpu Type=h200 File=$work/devices/gpu[0-7]" >"$work/gres.conf"

# daemon NAME COMMAND...: runs it in the background, with a limit of time
daemon () { name=$1; shift; timeout -k 5 400 "$@" >"$work/$name.log" 2>&1 </dev/null & }

# Each node has its own host name: MPI then keeps the nodes' shared memory apart, and messages name the
# node.
node () { daemon "slurmd-$1" unshare --uts sh -c "hostname $1 && exec slurmd -D -N $1"; }

daemon munged munged --foreground --force --key-file="$work/key" --socket="$work/munge.socket" \
  --pid-file="$work/munged.pid" --log-file="$work/munged.log" --seed-file="$work/munge.seed"
daemon slurmctld slurmctld -D
node n1
node n2
until test "$(timeout 20 sinfo -h -o '%T %D' 2>/dev/null)" = "idle 2"; do
  test "$(date +%s)" -lt $((deadline - 200)) || give_up "no two nodes"
done

cd "$work/job" || exit 1

# submit COMMAND...: runs it within the time that this test has. Open MPI has leaks of its own.
submit ()
{
  left=$((deadline - $(date +%s)))
  test $left -gt 0 || give_up "no time is left"
  ASAN_OPTIONS=detect_leaks=0 timeout -k 5 $left "$@" >"$work/out" 2>"$work/err" </dev/null
}

# --- what the nodes give ----------------------------------------------------------------------

submit srun -N 2 --ntasks-per-node=1 --gpus-per-node=8 sh -c 'echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES'
test "$(sort "$work/out")" = "n1 0,1,2,3,4,5,6,7
n2 0,1,2,3,4,5,6,7" || give_up "not two nodes of eight GPUs: $(cat "$work/out" "$work/err")"

# --- from the question to what was learned ------------------------------------------------------

fsdplan show --cluster dgx-h200:2 --format=ini >whole.ini
sed "s/^devices_per_node=8/devices_per_node=$gpus/; s/^nvlink_domain=8/nvlink_domain=$gpus/" whole.ini >nodes.ini
fsdplan query --model llama-tiny --cluster nodes.ini --gbs 32 --seq 16 --set stack=native --set dp_outer=2 \
  --set cuda_graph=off --set grad_accum_fusion=off --top 1 --format=csv >"$work/plans" || give_up "no plan"
id=$(sed -n 's/^1,\(@[0-9]*\),.*/\1/p' "$work/plans")
fsdplan emit --as slurm --plan "$id" --cluster nodes.ini -o job.sh || give_up "no job"
for line in --nodes=2 "--ntasks-per-node=$gpus" "--gpus-per-node=$gpus"; do
  grep -qx "#SBATCH $line" job.sh || complain "the job lacks $line"
done
submit sbatch --wait job.sh || give_up "the job failed: $(cat "$work/err" llama-tiny-*.log)"
cat llama-tiny-*.log >"$work/said"
grep -q '^step_ms  *[0-9]' "$work/said" || complain "nothing predicted beside measured: $(cat "$work/said")"
grep -q '^slowest: rank [0-9]* on n[12], ' "$work/said" || complain "nobody is the slowest on a node"
test "$(grep -c MPI_ABORT "$work/said")" = 0 || complain "a rank aborted"

run=$(fsdplan db list --format=csv | sed -n 's/^\([0-9]*\),.*,done,cpu,mpi,'$((2 * gpus))',100,.*/\1/p')
test "$run" = 1 || give_up "not one whole run of all ranks in the store: $(fsdplan db list)"
fsdplan db list | grep -q 'local/[0-9a-f]*:2  *'$((2 * gpus))'  *1 ' || complain "the run's cluster is not two nodes"
fsdplan db check | grep -qx 'no faults' || complain "the store is not whole"

# The same plan on threads of one process gives the same numbers, bit for bit.
fsdplan run --plan plan-*.txt --ranks $((2 * gpus)) --steps 5 --db "$work/threads.db" >/dev/null 2>"$work/err" ||
  complain "threads: $(cat "$work/err")"
losses () { fsdplan db list --kind=steps --db "$1" --format=csv | awk -F, 'NR > 1 && NR <= 6 { print $2, $3, $4 }'; }
losses "$work/data/fsdplan/fsdplan.db" >"$work/by-slurm"
losses "$work/threads.db" >"$work/by-threads"
test "$(wc -l <"$work/by-slurm")" = 5 || complain "no five steps: $(cat "$work/by-slurm")"
diff -u "$work/by-threads" "$work/by-slurm" || complain "other numbers than by threads"

fsdplan calibrate --folds 0 --id here >"$work/fit" 2>"$work/err" || complain "calibrate: $(cat "$work/err")"
fsdplan validate --stored --rows --format=csv >"$work/rows" 2>"$work/err" || complain "validate: $(cat "$work/err")"
test "$(grep -c ',native,yes,' "$work/rows")" = 1 || { cat "$work/rows"; complain "the run is not among what is validated"; }

# --- what goes wrong --------------------------------------------------------------------------

# says MESSAGE STATUS WORD...: checks that srun with two tasks per node ends with that status, and
# prints the message once
says ()
{
  message=$1 status=$2 got=0
  shift 2
  submit srun -N 2 --ntasks-per-node=2 "$@" || got=$?
  test $got = "$status" || complain "exit status $got instead of $status: $*"
  grep -qF -e "$message" "$work/err" || { cat "$work/err"; complain "does not say '$message'"; }
  if grep -q MPI_ABORT "$work/err"; then complain "all ranks know why, and one aborts: $*"; fi
}
says "srun started 4 tasks and nothing that joins them: start them by srun --mpi=pmix" 1 --mpi=none fsdplan run $tiny
says "ranks 0 and 1 are of one sharding group of 2, and lie on n1 and n2" \
  2 --mpi=pmix --distribution=cyclic fsdplan run $tiny --set dp_outer=2
says "the plan is for 16 ranks, 2 x 8 of dgx-h200, and the launcher started 4: 12 too few (ranks on n1: 0-1; n2: 2-3)" \
  2 --mpi=pmix fsdplan run $tiny --cluster dgx-h200:2
says "tp_overlap=async beside products with scales of blocks, which lie behind whole matrices, is modelled and not" \
  1 --mpi=pmix fsdplan run $tiny --set tp=2 --set sp=on --set compute=mxfp8 --set tp_overlap=async

# Collectives inside a node and between nodes are timed apart.
submit srun -N 2 --ntasks-per-node=2 --mpi=pmix fsdplan bench --only collective --seconds 1 --format=csv ||
  complain "bench: $(cat "$work/err")"
fsdplan db export ops | grep -q 'between nodes",cpu,mpi,4,all_reduce,count=256 nodes=2,' || complain "nothing between nodes"
submit srun -N 2 --ntasks-per-node=2 --mpi=pmix fsdplan bench --only collective --dry-run --format=csv
for op in all_gather reduce_scatter all_reduce; do
  for level in ',[^,]*,2' ' nodes=2,[^,]*,2' ' nodes=2,[^,]*,4'; do
    grep -q "^collective,$op,count=256$level," "$work/out" || complain "no $op of '$level'"
  done
done

# --- a node that is gone ------------------------------------------------------------------------

# The daemons of the node and all processes that they started, which have the node's host name.
on_node ()
{
  names=$(readlink "/proc/$(pgrep -f "^slurmd -D -N $1" | head -n 1)/ns/uts") || return
  test "$names" != "$(readlink /proc/$$/ns/uts)" || return
  for process in /proc/[0-9]*; do
    test "$(readlink "$process/ns/uts" 2>/dev/null)" != "$names" || echo "${process#/proc/}"
  done
}

submit srun -N 2 --ntasks-per-node=2 --mpi=pmix --kill-on-bad-exit=1 \
  fsdplan run $tiny --steps 1000000 --save kept --save-every 1 --timeout 5 --db "$work/gone.db" &
run=$!
until test -e kept/manifest; do
  kill -0 $run 2>/dev/null || give_up "ended before its first step: $(cat "$work/err")"
done
gone=$(on_node n2)
test -n "$gone" || give_up "nothing runs on n2"
kill -KILL $gone 2>/dev/null # some end by themselves meanwhile
status=0
wait $run || status=$?
case $status in 0 | 124 | 137) complain "a run that lost a node ends with $status" ;; esac
fsdplan db list --db "$work/gone.db" --format=csv | grep -q ',failed,.*no sign of rank 2 on n2, rank 3 on n2 within the 5 s' ||
  { cat "$work/err"; complain "the ranks of the lost node are not named: $(fsdplan db list --db "$work/gone.db")"; }
fsdplan db check --db "$work/gone.db" | grep -qx 'no faults' || complain "the store of a run that lost a node is not whole"
exit $bad
