#!/bin/sh
# What emit writes is started as a user would, with launchers that only note their arguments. The script,
# the torchrun line and the Slurm job give Megatron-LM the same arguments; the Python call gets a device
# mesh of all ranks.
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0

complain () { echo "$*"; bad=1; }

mkdir "$work/bin" "$work/run"
cat >"$work/bin/torchrun" <<'END'
#!/bin/sh
echo "connections ${CUDA_DEVICE_MAX_CONNECTIONS-none}, nvls ${NCCL_NVLS_ENABLE-none}" >words
for word; do printf '%s\n' "$word"; done >>words
END
cat >"$work/bin/srun" <<'END'
#!/bin/sh
echo "$*" >srun-words
while :; do
  case $1 in --*) shift ;; *) exec "$@" ;; esac
done
END
cat >"$work/bin/scontrol" <<'END'
#!/bin/sh
test "$*" = "show hostnames n[1-4]" && printf 'n1\nn2\nn3\nn4\n'
END
chmod +x "$work"/bin/*
command -v bash >/dev/null || exit 77

# words KIND ADDRESS: the arguments that torchrun gets from what emit writes as KIND for $plan.
words ()
{
  fsdplan emit --as "$1" $plan >"$work/$1" 2>"$work/err" || complain "$1: $plan: $(cat "$work/err")"
  bash -n "$work/$1" || complain "$1: bash does not read it: $plan"
  (cd "$work/run" && rm -f words && PATH=$work/bin:$PATH CUDA_DEVICE_MAX_CONNECTIONS=1 \
    MASTER_ADDR=$2 SLURM_JOB_NODELIST='n[1-4]' bash "$work/$1") || complain "$1: fails: $plan"
  mv "$work/run/words" "$work/$1.words" || complain "$1: starts nothing: $plan"
}

# same_words MODEL CLUSTER OPTION...
same_words ()
{
  plan="--model $1 --cluster $2 --gbs 128"
  shift 2
  for option; do plan="$plan --set $option"; done
  words megatron n1
  words torchrun n1
  words slurm wrong
  sh -n "$work/torchrun" || complain "sh does not read the line: $plan"
  cmp -s "$work/megatron.words" "$work/torchrun.words" || complain "script and line differ: $plan"
  cmp -s "$work/megatron.words" "$work/slurm.words" || complain "script and job differ: $plan"
  grep -q "^connections $connections" "$work/megatron.words" || complain "CUDA_DEVICE_MAX_CONNECTIONS: $plan"
  test "$(grep -c "^pretrain_gpt.py$" "$work/megatron.words")" = 1 || complain "what runs: $plan"
}

connections=none
same_words llama3-8b dgx-h100:1 seq=1024
grep -qx -e --standalone "$work/slurm.words" || complain "one node needs no address"
same_words llama3-8b dgx-h100:4 nccl_ub=on sharp=nvl+ib
grep -qx "n1:29500" "$work/slurm.words" || complain "the job does not name its first node"
grep -q "nvls 1$" "$work/slurm.words" || complain "variables do not arrive"
same_words gpt2 dgx-b200:2 offload_modules=core_attn+mlp_norm compute=mxfp8 tp=2
same_words layers=5,hidden=64,ffn=176,heads=4,vocab=256,max_seq=2048,window=128,window_from=1,window_every=2 \
  dgx-h100:2 recompute=selective recompute_modules=mlp+core_attn
grep -qx "\[0\]\*1+(\[1\]+\[0\]\*1)\*2" "$work/slurm.words" || complain "a pattern is not one word"

connections=1
same_words llama3-8b dgx-h100:2 stack=megatron strategy=optim tp=2
connections=none

# A script for several nodes fails with a message if MASTER_ADDR, the first node's name, is not set.
plan="--model llama3-8b --cluster dgx-h100:4 --gbs 128"
fsdplan emit --as megatron $plan >"$work/megatron"
(cd "$work/run" && rm -f words && unset MASTER_ADDR && PATH=$work/bin:$PATH bash "$work/megatron") \
  2>"$work/err" && complain "runs without MASTER_ADDR"
grep -q "MASTER_ADDR: the first node" "$work/err" || complain "does not ask for MASTER_ADDR"
test ! -e "$work/run/words" || complain "starts without MASTER_ADDR"

# Our own runtime: the plan lies beside the job, as --as plan writes it.
printf '#!/bin/sh\n' >"$work/bin/fsdplan"
chmod +x "$work/bin/fsdplan"
plan="--model llama3-8b --cluster dgx-h100:2 --gbs 128 --set stack=native"
fsdplan emit --as slurm $plan >"$work/own" && fsdplan emit --as plan $plan >"$work/plan"
(cd "$work/run" && PATH=$work/bin:$PATH SLURM_JOB_ID=7 bash "$work/own") || complain "the own job fails"
cmp "$work/plan" "$work/run/plan-7.txt" || complain "the job's plan is another"
grep -q "fsdplan run --plan plan-7.txt --backend cuda " "$work/run/srun-words" || complain "the job runs another plan"
fsdplan show --plan "$work/run/plan-7.txt" >/dev/null || complain "the job's plan is none"
rm "$work/bin/fsdplan"

# The mpirun line has the options of the same plan.
fsdplan emit --as mpirun $plan --set dp_outer=2 --set recompute=selective \
  --set recompute_modules=mlp+core_attn >"$work/line" || complain "no line"
grep -q "^mpirun -n 16 --map-by ppr:8:node fsdplan run " "$work/line" || complain "ranks of the line"
sed 's/.*fsdplan run /fsdplan emit --as plan /; s/ --backend cuda --steps .*//' "$work/line" | sh >"$work/said"
fsdplan emit --as plan $plan --set dp_outer=2 --set recompute=selective \
  --set recompute_modules=mlp+core_attn | cmp - "$work/said" || complain "the line is of another plan"

# On processors there is no backend to name.
fsdplan emit --model llama-tiny --cluster local-cpu:2 --gbs 8 --set stack=native >"$work/line" || complain "no line"
grep -q "^mpirun -n 2 fsdplan run .* --steps" "$work/line" || complain "not the line of the stack"
grep -q backend "$work/line" && complain "a backend of GPUs on processors"

# A file is written whole or stays as it was.
echo precious >"$work/file"
fsdplan emit --as megatron $plan -o "$work/file" 2>/dev/null && complain "native is not Megatron's"
test "$(cat "$work/file")" = precious || complain "a refusal changed the file"
fsdplan emit --as slurm $plan -o "$work/file" || complain "-o"
cmp "$work/file" "$work/own" || complain "-o writes something else"
fsdplan emit --as slurm $plan -o "$work" 2>"$work/err" && complain "writes over a folder"
test "$(ls "$work" | grep -c '^file')" = 1 || complain "leaves a half-written file behind"

# The call in Python, with modules that look at what they are given.
if command -v python3 >/dev/null; then
  mkdir -p "$work/py/torch/distributed"
  cat >"$work/py/torch/__init__.py" <<'END'
from . import distributed
float32, bfloat16, float16 = "fp32", "bf16", "fp16"
END
  cat >"$work/py/torch/distributed/__init__.py" <<'END'
def new_group():
    return "all"
def new_subgroups_by_enumeration(ranks):
    assert sorted(sum(ranks, [])) == list(range(32))
    return ranks[0], ranks
END
  cat >"$work/py/torch/distributed/device_mesh.py" <<'END'
class Mesh:
    def __init__(self, shape, names):
        self.shape, self.names = shape, names
    def __getitem__(self, names):
        assert all(name in self.names for name in names)
        return self
    def _flatten(self, name):
        return self
    def get_group(self):
        return "group"
def init_device_mesh(device, shape, mesh_dim_names):
    n = 1
    for size in shape:
        n *= size
    assert device == "cuda" and n == 32 and len(shape) == len(mesh_dim_names)
    return Mesh(shape, mesh_dim_names)
END
  cat >"$work/py/megatron_fsdp.py" <<'END'
def MixedPrecisionPolicy(main_params_dtype, main_grads_dtype, grad_comm_dtype):
    return main_params_dtype, main_grads_dtype, grad_comm_dtype
class Model:
    def _replace_param_with_distributed_if_needed(self):
        pass
    def parameters(self):
        return []
def fully_shard_model(module, device_mesh, dp_shard_dim, tp_dim, **rest):
    assert dp_shard_dim in device_mesh.names and tp_dim in device_mesh.names
    assert ("dp_outer_dim" in rest) == ("hybrid_fsdp_group" in rest)
    print(*sorted(rest))
    return Model()
def fully_shard_optimizer(optimizer):
    return optimizer
def fully_shard(module, optimizer, **rest):
    return fully_shard_model(module, **rest), optimizer
END
  cat >"$work/py/train.py" <<'END'
import call
class Optimizer:
    param_groups, state = [], {}
    def add_param_group(self, group):
        self.param_groups.append(group)
model, optimizer = call.shard("module", Optimizer(), ["Layer"])
assert model and optimizer
END
  for options in dp_outer=1 "dp_outer=4 tp=2" ag_group=on "ag_group=on tp=4 cp=2" strategy=no_shard \
      "fine_grained=on main_params=auto" "fine_grained=on dp_outer=2 outer_strategy=optim"; do
    plan="--model llama3-8b --cluster dgx-h100:4 --gbs 128"
    for option in $options; do plan="$plan --set $option"; done
    fsdplan emit --as megatron_fsdp $plan -o "$work/py/call.py" || complain "megatron_fsdp: $options"
    (cd "$work/py" && PYTHONDONTWRITEBYTECODE=1 python3 -I -c \
      'import sys; sys.path.insert(0, "."); import train' >"$work/out" 2>&1) ||
      complain "the call fails: $options: $(cat "$work/out")"
  done
fi
exit $bad
