#!/bin/sh
# This machine as a cluster: it is stored and found again; also with a fake NVML, which imitates
# NVIDIA's driver.
scratch=$(mktemp -d) || exit 99
trap 'rm -rf "$scratch"' EXIT
db=$scratch/store.db
failed=0

fail () { echo "local.sh: $*"; failed=1; }

# says MESSAGE COMMAND...: checks that the command fails, with that message on standard error.
says ()
{
  message=$1
  shift
  "$@" >"$scratch/out" 2>"$scratch/err" && fail "$*: accepted"
  grep -qF -e "$message" "$scratch/err" || { fail "$*:"; cat "$scratch/err"; }
}

fsdplan show --cluster local-cpu --keep --db "$db" >"$scratch/kept" || fail "--keep"
name=$(sed -n '1s/:.*//p' "$scratch/kept")
case $name in local/????????) ;; *) fail "a name of '$name'" ;; esac
fsdplan show --cluster "$name" --db "$db" | cmp - "$scratch/kept" || fail "the stored cluster differs"
fsdplan show --cluster "$name:3" --db "$db" --format=csv | grep -q '^nodes,3,' || fail "$name:3"
says "'0' is out of range" fsdplan show --cluster "$name:0" --db "$db"
says "local/none: No such file" fsdplan show --cluster local/none --db "$db"
says "'many' is not a whole number" fsdplan show --cluster local:many
says "--format=ini is for --cluster alone" fsdplan show --format=ini
says "--keep is for --cluster alone" fsdplan show --keep --gpus
says "--keep: dgx-h100 is a name of fsdplan's own" fsdplan show --cluster dgx-h100 --keep --db "$db"

# The printed text can be used as a cluster file.
fsdplan show --cluster local-cpu:2 --format=ini >"$scratch/mine.ini"
fsdplan show --cluster "$scratch/mine.ini" --format=ini | cmp - "$scratch/mine.ini" || fail "mine.ini"

# Eight GPUs, reported by a driver's library where the loader looks for it.
cp "$top_builddir/tests/fake/nvml-fake.so" "$scratch/libnvidia-ml.so.1" || exit 99
LD_LIBRARY_PATH=$scratch${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
fsdplan show --cluster local:4 --format=csv >"$scratch/gpus" || fail "local:4"
for line in device,h100-80gb, devices_per_node,4, power,650,W,NVML, linked_devices,4, \
  nvlink_bandwidth,450000000000,B/s,NVML,; do
  grep -q "^$line" "$scratch/gpus" || { fail "no line $line"; cat "$scratch/gpus"; }
done
fsdplan sim --model llama3-8b --cluster local --gbs 128 --seq 8192 --format=json >"$scratch/sim" ||
  fail "a plan for local"
says "this machine has 8 of NVIDIA H100 80GB HBM3, not 9" fsdplan show --cluster local:9
FAKE_NVML=init says "libnvidia-ml.so.1: nvmlInit_v2: the fake was told to fail" \
  fsdplan show --cluster local
fsdplan show --cluster local-cpu:2 --format=csv | grep -q '^devices_per_node,2,' || fail "local-cpu:2"

exit $failed
