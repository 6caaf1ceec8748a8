/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/base/error.h"
#include "planner/megatron/megatron.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* A llama and a batch; what a case adds comes behind it. */
#define MODEL \
  "--num-layers 4 --hidden-size 64 --ffn-hidden-size 176 --num-attention-heads 4 " \
  "--group-query-attention --num-query-groups 2 --max-position-embeddings 128 " \
  "--position-embedding-type rope --swiglu --normalization RMSNorm --disable-bias-linear " \
  "--untie-embeddings-and-output-weights --vocab-size 256 "
#define BATCH "--seq-length 128 --micro-batch-size 1 --global-batch-size 8 --bf16 "
#define FSDP \
  "--use-megatron-fsdp --ckpt-format fsdp_dtensor --use-distributed-optimizer " \
  "--overlap-grad-reduce --overlap-param-gather "
#define ALL "torchrun --nproc_per_node 8 pretrain_gpt.py " MODEL BATCH

static void
read_text (const char *text, gint64 date, PlanMegatron *out)
{
  g_autoptr (GError) error = NULL;
  ck_assert_msg (plan_megatron_parse (text, "t.sh", date, out, &error), "%s: %s", text,
                 error ? error->message : "");
}

static void
assert_field (const PlanMegatron *self, const char *name, const char *value, const char *text)
{
  PlanField field;
  ck_assert (plan_field_parse (name, &field, NULL));
  g_autofree char *got = plan_field_print (field, self->plan.value[field]);
  ck_assert_msg (strcmp (got, value) == 0, "%s=%s, not %s, from %s", name, got, value, text);
}

/* Flags, date, and the fields that they must give: "field=value field=value". */
static const struct
{
  const char *flags;
  gint64 date;
  const char *fields;
} meanings[] = {
  { ALL FSDP, 0,
    "stack=megatron-fsdp strategy=optim_grads_params main_params=fp32 main_grads=auto "
    "grad_comm=auto mbs=1 gbs=8 seq=128 per_token_loss=off ce_fusion=off grad_accum_fusion=on "
    "nan_check=loss overlap_grad_reduce=on overlap_param_gather=on compute=bf16" },
  { ALL FSDP, 20260201, "strategy=no_shard main_grads=fp32 grad_comm=fp32" },
  { ALL FSDP "--grad-reduce-in-bf16", 20260201, "main_grads=auto grad_comm=auto" },
  { ALL FSDP, 20260310, "main_grads=fp32 grad_comm=fp32" },
  { ALL FSDP "--megatron-fsdp-grad-comm-dtype bf16", 20260310, "main_grads=fp32 grad_comm=bf16" },
  { ALL FSDP "--megatron-fsdp-grad-comm-dtype bf16", 20260401, "main_grads=fp32 grad_comm=fp32" },
  { ALL FSDP "--grad-reduce-in-bf16", 20260401, "main_grads=auto grad_comm=auto" },
  { ALL FSDP, 20260331, "strategy=no_shard" },
  { ALL FSDP, 20260401, "strategy=optim_grads_params stack=megatron-fsdp@2026-04-01" },
  { ALL FSDP "--use-precision-aware-optimizer", 20260409, "fused_masters=on" },
  { ALL FSDP "--use-precision-aware-optimizer", 20260410, "fused_masters=off" },
  { ALL, 0,
    "stack=megatron strategy=no_shard main_grads=fp32 grad_comm=fp32 overlap_grad_reduce=off "
    "overlap_param_gather=off" },
  { ALL "--overlap-grad-reduce", 0, "overlap_grad_reduce=on overlap_param_gather=on" },
  { ALL "--use-distributed-optimizer", 0, "stack=megatron strategy=optim overlap_grad_reduce=off" },
  { ALL "--grad-reduce-in-bf16 --ddp-reduce-scatter-with-fp32-accumulation", 0,
    "main_grads=bf16 grad_comm=bf16 reduce_algo=a2a" },
  { ALL "--use-torch-fsdp2 --no-gradient-accumulation-fusion", 0,
    "stack=fsdp2 strategy=optim_grads_params" },
  { ALL "--use-torch-fsdp2 --torch-fsdp2-no-reshard-after-forward", 0, "strategy=optim_grads" },
  { ALL FSDP "--fp8-format hybrid", 0, "compute=fp8-delayed param_gather=compute" },
  { ALL FSDP "--fp8-format hybrid --fp8-recipe mxfp8 --fp8-param-gather", 0,
    "compute=mxfp8 param_gather=mxfp8" },
  { ALL FSDP "--fp8-format e4m3 --fp8-recipe=blockwise --fp8-param-gather", 0,
    "compute=fp8-blockwise param_gather=fp8" },
  { ALL FSDP "--fp4-format e2m1", 0, "compute=nvfp4 param_gather=compute" },
  { ALL FSDP "--fp8-recipe mxfp8", 0, "compute=bf16" },
  { ALL FSDP "--recompute-activations", 0, "recompute=selective recompute_modules=core_attn" },
  { ALL FSDP "--recompute-granularity selective --recompute-modules mlp layernorm", 0,
    "recompute=selective recompute_modules=mlp+layernorm" },
  { ALL FSDP "--recompute-granularity full --recompute-method block --recompute-num-layers 3", 0,
    "recompute=full recompute_method=block recompute_layers=3" },
  { ALL FSDP "--num-distributed-optimizer-instances 2 --outer-dp-sharding-strategy optim", 0,
    "dp_outer=2 outer_strategy=optim" },
  { ALL FSDP "--use-nccl-ub --create-all-gather-group --use-sharp", 0,
    "nccl_ub=on ag_group=on sharp=ib" },
  { "export NCCL_NVLS_ENABLE=1\n" ALL FSDP, 0, "sharp=nvl" },
  { "env NCCL_NVLS_ENABLE=1 " ALL FSDP "--use-sharp", 0, "sharp=nvl+ib" },
  { "export NCCL_NVLS_ENABLE=0\n" ALL FSDP, 0, "sharp=off" },
  { ALL FSDP "--fsdp-double-buffer", 0, "double_buffer=on" },
  { ALL FSDP "--megatron-fsdp-max-pool-double-buffer", 0, "double_buffer=max_pool" },
  { ALL FSDP "--suggested-communication-unit-size 1000000", 0, "comm_unit=1000000" },
  { ALL FSDP "--use-precision-aware-optimizer --optimizer-cpu-offload", 0, "offload_optimizer=1" },
  { ALL FSDP "--fine-grained-activation-offloading --offload-modules core_attn attn_proj", 0,
    "offload_modules=core_attn+attn_proj" },
  { ALL FSDP "--cpu-offloading-num-layers 2", 0, "offload_layers=2" },
  { ALL FSDP "--tensor-model-parallel-size 2", 0, "tp=2 sp=off" },
  { ALL FSDP "--tensor-model-parallel-size 2 --sequence-parallel", 0, "tp=2 sp=on" },
  { ALL FSDP "--tensor-model-parallel-size 2 --sequence-parallel --tp-comm-overlap", 0,
    "tp=2 tp_overlap=ub" },
  { ALL FSDP "--empty-unused-memory-level 1", 0, "empty_cache=on" },
  { ALL FSDP "--cuda-graph-impl full_iteration --deterministic-mode", 0,
    "cuda_graph=on deterministic=on" },
  { ALL FSDP "--optimizer sgd", 0, "optimizer=sgd" },
  { ALL FSDP, 0, "hidden_dropout=0.1 attention_dropout=0.1" }, /* as transformer_config.py has it */
  { ALL FSDP "--hidden-dropout 0 --attention-dropout 0.25", 0,
    "hidden_dropout=0 attention_dropout=0.25" },
  { ALL FSDP "--fake-process-group", 0, "nan_check=off" },
  { ALL "--micro-batch-size 2 --micro-batch-size 4", 0, "mbs=4" }, /* the last one counts */
  { "torchrun --nproc_per_node 8 --nnodes 2 x.py " MODEL "--seq-length 64 --micro-batch-size 2", 0,
    "gbs=32 seq=64 compute=fp32 main_grads=fp32" },
};

START_TEST (flags_mean_fields)
{
  g_auto (PlanMegatron) megatron = { 0 };
  read_text (meanings[_i].flags, meanings[_i].date, &megatron);
  g_auto (GStrv) fields = g_strsplit (meanings[_i].fields, " ", -1);
  for (char **f = fields; *f; f++)
    {
      char *const value = strchr (*f, '=');
      *value = '\0';
      assert_field (&megatron, *f, value + 1, meanings[_i].flags);
    }
}
END_TEST

/* Shell text, and the layers, nodes and devices in it. */
static const struct
{
  const char *text;
  gint64 layers, nodes, devices;
} scripts[] = {
  { "torchrun --nnodes=2 --nproc-per-node=4 p.py --num-layers 3", 3, 2, 8 },
  { "torchrun p.py --num-layers=3", 3, 1, 1 },
  { "python -m torch.distributed.run --nproc_per_node 8 p.py --num-layers 3", 3, 1, 8 },
  { "srun -N 4 --ntasks-per-node=8 python -u p.py --num-layers 3 # all", 3, 4, 32 },
  { "srun -N 4 --ntasks-per-node=8 bash -c \"python p.py --num-layers 3\"", 3, 4, 32 },
  { "#SBATCH --nodes=2\n#SBATCH --gpus-per-node 8\nsrun python p.py --num-layers 3", 3, 2, 16 },
  { "#SBATCH -N 2\ntorchrun --nnodes $SLURM_NNODES --nproc_per_node 8 p.py --num-layers 3", 3, 2,
    16 },
  { "mpirun -np 16 python p.py --num-layers 3", 3, 0, 16 },
  { "WORLD_SIZE=64 python p.py --num-layers 3", 3, 0, 64 },
  { "env WORLD_SIZE=64 python p.py --num-layers 3", 3, 0, 64 },
  { "torchrun --nnodes 1:4 p.py --num-layers 3", 3, 0, 0 },
  { "torchrun --nnodes $N p.py --num-layers 3", 3, 0, 0 },
  { "--num-layers 3\n--hidden-size 4", 3, 0, 0 },
  { "L=3; torchrun p.py --num-layers $L", 3, 1, 1 },
  { "L=3\nL=5\ntorchrun p.py --num-layers ${L}", 5, 1, 1 },
  { "torchrun p.py --num-layers ${L:-7}", 7, 1, 1 },
  { "K=4; torchrun p.py --num-layers ${L-${K}}", 4, 1, 1 },
  { "L=3; torchrun p.py --num-layers $((L * 2 + (8 - 2) / 3))", 8, 1, 1 },
  { "A=(--num-layers # layers\n  3\n)\nA+=(--bf16)\ntorchrun p.py ${A[@]}", 3, 1, 1 },
  { "A=(--num-layers 3)\ntorchrun p.py \"${A[@]}\" --bf16", 3, 1, 1 },
  { "A=\"--num-layers 3\"\nA+=\" --bf16\"\ntorchrun p.py $A", 3, 1, 1 },
  { "A=\"--num-layers 3 \\\n --bf16\"\nCMD=\"torchrun p.py $A\"\neval $CMD", 3, 1, 1 },
  { "CMD='torchrun p.py --num-layers 3'\necho $CMD --seq-length 9\n$CMD", 3, 1, 1 },
  { "torchrun p.py \\\r\n  --num-layers \\\r\n 3\r\n", 3, 1, 1 },
  { "torchrun p.py '--num-layers' \"3\" > out.log 2>&1 &", 3, 1, 1 },
  { "if true; then\n  torchrun p.py --num-layers 3 | tee log\nfi", 3, 1, 1 },
  { "run() {\n  torchrun p.py --num-layers 3\n}\nrun", 3, 1, 1 },
  { "srun bash <<'EOF'\ntorchrun --nproc_per_node 2 p.py --num-layers 3\nEOF\n", 3, 1, 2 },
  { "cat > x.json <<EOF\n{ \"a\": \"it's\" }\nEOF\ntorchrun p.py --num-layers 3", 3, 1, 1 },
  { "python prepare.py --num-layers 9\ntorchrun p.py --num-layers 3 --hidden-size 64", 3, 1, 1 },
};

START_TEST (scripts_are_read)
{
  g_auto (PlanMegatron) megatron = { 0 };
  read_text (scripts[_i].text, 0, &megatron);
  ck_assert_msg (megatron.shape.layers == scripts[_i].layers, "%s: %d layers", scripts[_i].text,
                 (int)megatron.shape.layers);
  ck_assert_msg (megatron.nodes == scripts[_i].nodes && megatron.devices == scripts[_i].devices,
                 "%s: %d nodes, %d devices", scripts[_i].text, (int)megatron.nodes,
                 (int)megatron.devices);
}
END_TEST

#define PIPELINE "torchrun p.py --num-layers 12 --pipeline-model-parallel-size 2 "
#define LAYOUT "--pipeline-model-parallel-layout "

/* How layers are dealt out, and by which fields a plan says so. */
static const struct
{
  const char *flags;
  gint64 n_virtual, group, first, last;
  gboolean counts_embedding, counts_loss;
  const char *layout;
} dealt[] = {
  { "", 1, -1, -1, -1, FALSE, FALSE, NULL },
  { "--num-virtual-stages-per-pipeline-rank 3", 3, -1, -1, -1, FALSE, FALSE, NULL },
  { "--num-layers-per-virtual-pipeline-stage 2", 3, -1, -1, -1, FALSE, FALSE, NULL },
  { "--num-layers-per-virtual-pipeline-stage 6", 1, -1, -1, -1, FALSE, FALSE, NULL },
  { "--num-virtual-stages-per-pipeline-rank 2 "
    "--microbatch-group-size-per-virtual-pipeline-stage 2",
    2, -1, -1, -1, FALSE, FALSE, NULL },
  { "--num-virtual-stages-per-pipeline-rank 2 "
    "--microbatch-group-size-per-virtual-pipeline-stage 5",
    2, 5, -1, -1, FALSE, FALSE, NULL },
  { "--num-layers-per-virtual-pipeline-stage 7 --account-for-embedding-in-pipeline-split "
    "--account-for-loss-in-pipeline-split",
    1, -1, -1, -1, TRUE, TRUE, NULL },
  { LAYOUT "'Et*6|t*6L'", 1, -1, -1, -1, FALSE, FALSE, NULL },
  { LAYOUT "'Et*3|(ttt|)*2,ttt,L'", 2, -1, -1, -1, FALSE, FALSE, NULL },
  { LAYOUT "'E(t*3|)*3t*3L'", 2, -1, -1, -1, FALSE, FALSE, NULL },
  { LAYOUT "'Et*5|t*7mL' --mtp-num-layers 1", 1, -1, 5, 7, FALSE, FALSE, NULL },
  { LAYOUT "'Ett|tttt|tt|ttttL'", 2, -1, 4, 8, FALSE, FALSE, NULL },
  { LAYOUT "'Et*6|t*5|t|L'", 2, -1, -1, -1, FALSE, FALSE, "Et*6|t*5|t|L" },
  { LAYOUT "'Ettt|(tt|)*4,tL,'", 3, -1, -1, -1, FALSE, FALSE, "Et*3|(t*2|)*4tL" },
};

START_TEST (layers_are_dealt_out)
{
  g_auto (PlanMegatron) megatron = { 0 };
  g_autofree char *text = g_strconcat (PIPELINE, dealt[_i].flags, NULL);
  read_text (text, 0, &megatron);
  const gint64 *value = megatron.plan.value;
  ck_assert_int_eq (value[PLAN_VPP], dealt[_i].n_virtual);
  ck_assert_int_eq (value[PLAN_PP_GROUP], dealt[_i].group < 0 ? PLAN_UNSET : dealt[_i].group);
  ck_assert_int_eq (value[PLAN_PP_FIRST_LAYERS],
                    dealt[_i].first < 0 ? PLAN_UNSET : dealt[_i].first);
  ck_assert_int_eq (value[PLAN_PP_LAST_LAYERS], dealt[_i].last < 0 ? PLAN_UNSET : dealt[_i].last);
  ck_assert_int_eq (value[PLAN_PP_COUNT_EMBEDDING] == PLAN_PP_COUNT_EMBEDDING_ON,
                    dealt[_i].counts_embedding);
  ck_assert_int_eq (value[PLAN_PP_COUNT_LOSS] == PLAN_PP_COUNT_LOSS_ON, dealt[_i].counts_loss);
  g_autofree char *layout = plan_field_print (PLAN_PP_LAYOUT, value[PLAN_PP_LAYOUT]);
  ck_assert_str_eq (layout, dealt[_i].layout ? dealt[_i].layout : "auto");
}
END_TEST

static const struct
{
  const char *text, *message;
} failures[] = {
  { "", "t.sh:1: neither a command" },
  { "echo hello\n", "t.sh:1: neither a command" },
  { "torchrun p.py \\\n  --num-layers 'a", "t.sh:2: a single quote is never closed" },
  { "torchrun p.py \\\n  --num-layers \"a\n\n", "t.sh:2: a double quote is never closed" },
  { "\nA=(1 2\n", "t.sh:2: the bracket of an array is never closed" },
  { "A=(1 ; 2)", "t.sh:1: ';' cannot stand in an array" },
  { "x\necho ${A", "t.sh:2: '${' is never closed" },
  { "x $(y", "t.sh:1: '$(' is never closed" },
  { "x `y", "t.sh:1: a backtick is never closed" },
  { "x <<END\ny", "t.sh:2: no line with 'END' ends the here-document" },
  { "torchrun p.py --num-layers 3 \\ \n --bf16", "a blank behind the backslash" },
  { "torchrun p.py --num-layers", "t.sh:1: --num-layers: needs a value" },
  { "torchrun p.py --num-layers --bf16", "t.sh:1: --num-layers: needs a value" },
  { "torchrun p.py --num-layers 3 --lr", "t.sh:1: --lr: needs a value" },
  { "torchrun p.py --num-layers 3 --recompute-modules", "--recompute-modules: needs a value" },
  { "torchrun p.py --bf16=1", "--bf16: is a switch" },
  { "torchrun p.py --num-layers abc", "t.sh:1: --num-layers: 'abc'" },
  { "torchrun p.py --num-layers 99999999999999999999", "t.sh:1: --num-layers:" },
  { "torchrun p.py --num-layers -3", "t.sh:1: --num-layers:" },
  { "torchrun p.py --attention-dropout x", "t.sh:1: --attention-dropout:" },
  { "torchrun p.py --fp8-recipe delay", "'delay' is not one of tensorwise|delayed" },
  { "torchrun p.py --recompute-modules mlp atn", "'atn' is not one of" },
  { "torchrun p.py --num-layers $L", "t.sh:1: --num-layers: '$L' cannot be known" },
  { "L=$(x y); torchrun p.py --num-layers $L", "'$(x y)' cannot be known" },
  { "torchrun p.py --num-layers `x`", "'`x`' cannot be known" },
  { "torchrun p.py --num-layers $((3 / 0))", "cannot be known" },
  { "torchrun p.py --num-layers $((9223372036854775807 + 1))", "cannot be known" },
  { "torchrun p.py --num-layers ${L%x}", "cannot be known" },
  { "torchrun p.py --micro-batch-size 4000000000", "--micro-batch-size: mbs:" },
  { "torchrun p.py --num-layers 3 --optimizer muon", "t.sh: --optimizer muon is not modelled" },
  { "torchrun p.py --fp8-format e4m3 --fp8-recipe custom", "a recipe of one's own" },
  { "torchrun p.py --num-experts 2 --moe-token-dispatcher-type flex "
    "--moe-flex-dispatcher-backend ncclep",
    "ncclep is not modelled" },
  { PIPELINE "--num-layers-per-virtual-pipeline-stage 5",
    "stage is 5: --pipeline-model-parallel-size" },
  { PIPELINE "--num-layers-per-virtual-pipeline-stage 3 --decoder-last-pipeline-num-layers 3",
    "give --num-virtual-stages-per-pipeline-rank" },
  { PIPELINE "--num-layers-per-virtual-pipeline-stage 3 --num-virtual-stages-per-pipeline-rank 2",
    "and --num-virtual-stages-per-pipeline-rank exclude each other" },
  { PIPELINE LAYOUT "'Et*3|t*3|t*3|t*3'", "layout is 'Et*3|t*3|t*3|t*3': stages are separated by" },
  { PIPELINE LAYOUT "'E(((((((((((((((((((t'", "x*n repeats a letter" },
  { PIPELINE LAYOUT "'E(t*60000)*60000L'", "x*n repeats a letter" },
  { PIPELINE LAYOUT "'Et*6|t*3|t*3L'", "has 3 stages: their number must be a multiple of" },
  { PIPELINE LAYOUT "'Et*6|t*3L'", "places 9 layers (t), and --num-layers is 12" },
  { PIPELINE LAYOUT "'Et*6|t*6mL'", "places 1 prediction modules (m), and --mtp-num-layers is 0" },
  { PIPELINE LAYOUT "'Et*6m|t*6L' --mtp-num-layers 1", "elsewhere than just before the loss (L)" },
  { "x\n--- arguments ---\n---- arguments ----\n", "t.sh:3: the argument list has no line" },
  { "---- arguments ----\n  num_layers ..... many\n", "t.sh:2: num_layers: 'many'" },
};

START_TEST (failures_are_explained)
{
  g_auto (PlanMegatron) megatron = { 0 };
  g_autoptr (GError) error = NULL;
  ck_assert_msg (!plan_megatron_parse (failures[_i].text, "t.sh", 0, &megatron, &error), "%s",
                 failures[_i].text);
  ck_assert (error->domain == PLAN_ERROR);
  ck_assert_msg (strstr (error->message, failures[_i].message) != NULL, "%s: %s", failures[_i].text,
                 error->message);
}
END_TEST

#define E PLAN_MEGATRON_ERROR
#define W PLAN_MEGATRON_WARNING
#define N PLAN_MEGATRON_NOTE

#define MOE "--num-experts 8 --disable-bias-linear "
#define FLEX "--moe-token-dispatcher-type flex --expert-model-parallel-size 2 "

static const struct
{
  const char *text;
  PlanMegatronSeverity severity;
  const char *flag, *message;
} notes[] = {
  { ALL "--use-megatron-fsdp", E, "--ckpt-format", "fsdp_dtensor" },
  { ALL "--use-rope-scaling --rope-scaling-factor 32", W, "--rope-scaling-factor", "keeps 8" },
  { ALL "--rotary-seq-len-interpolation-factor 4", W, "--rotary-seq-len-interpolation-factor",
    "does not reach the model" },
  { ALL "--use-megatron-fsdp", W, "--use-distributed-optimizer", "switches it on" },
  { ALL "--use-megatron-fsdp", W, "--overlap-grad-reduce", "one bucket" },
  { "export CUDA_DEVICE_MAX_CONNECTIONS=1\n" ALL FSDP, E, "--use-megatron-fsdp", "unset it" },
  { "CUDA_DEVICE_MAX_CONNECTIONS=1 " ALL FSDP, E, "--use-megatron-fsdp", "unset it" },
  { ALL FSDP "--optimizer sgd --use-precision-aware-optimizer", E,
    "--use-precision-aware-optimizer", "adam" },
  { ALL FSDP "--use-torch-fsdp2", E, "--use-torch-fsdp2", "exclude" },
  { ALL FSDP "--pipeline-model-parallel-size 2", E, "--pipeline-model-parallel-size", "pipeline" },
  { ALL FSDP "--check-weight-hash-across-dp-replicas-interval 10", E,
    "--check-weight-hash-across-dp-replicas-interval", "replicas" },
  { ALL FSDP "--data-parallel-sharding-strategy no_shard --init-model-with-meta-device", E,
    "--init-model-with-meta-device", "no_shard" },
  { ALL "--tp-comm-overlap", E, "--tp-comm-overlap", "needs --sequence-parallel" },
  { ALL "--overlap-param-gather --use-distributed-optimizer", E, "--overlap-param-gather",
    "--overlap-grad-reduce" },
  { ALL FSDP "--grad-reduce-in-bf16", W, "--grad-reduce-in-bf16", "no effect" },
  { ALL FSDP "--accumulate-allreduce-grads-in-fp32", W, "--accumulate-allreduce-grads-in-fp32",
    "no effect" },
  { ALL FSDP "--fp8-format hybrid", W, "--fp8-format", "--fp8-param-gather" },
  { ALL FSDP "--fp8-param-gather", E, "--fp8-param-gather", "--fp8-format" },
  { ALL FSDP "--reuse-grad-buf-for-mxfp8-param-ag", W, "--reuse-grad-buf-for-mxfp8-param-ag",
    "switches it off" },
  { ALL FSDP "--fp8-format hybrid --fp4-format e2m1", E, "--fp4-format", "exclude" },
  { ALL FSDP "--fp8-format hybrid --fp8-recipe delayed --first-last-layers-bf16", E,
    "--first-last-layers-bf16", "delayed" },
  { ALL FSDP "--outer-dp-sharding-strategy optim", E, "--outer-dp-sharding-strategy",
    "one optimizer instance" },
  { ALL FSDP "--num-distributed-optimizer-instances 2 --outer-dp-sharding-strategy optim", W,
    "--calculate-per-token-loss", "summed" },
  { ALL FSDP "--num-distributed-optimizer-instances 2 --create-all-gather-group", W,
    "--create-all-gather-group", "inner" },
  { "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n" ALL FSDP "--use-nccl-ub", W,
    "--use-nccl-ub", "2.11" },
  { ALL FSDP "--fsdp-manual-registration", E, "--fsdp-manual-registration", "--use-nccl-ub" },
  { ALL FSDP "--exp-avg-sq-dtype bf16", E, "--exp-avg-sq-dtype", "precision-aware" },
  { ALL FSDP "--optimizer-cpu-offload", E, "--optimizer-cpu-offload", "precision-aware" },
  { ALL FSDP "--recompute-granularity full", E, "--recompute-granularity", "--recompute-method" },
  { ALL FSDP "--recompute-activations --recompute-method block", E, "--recompute-method",
    "selective" },
  { ALL FSDP "--recompute-granularity full --recompute-method block --recompute-num-layers 5", E,
    "--recompute-num-layers", "from 1 to" },
  { ALL FSDP "--cpu-offloading-num-layers 1 --recompute-activations", E,
    "--cpu-offloading-num-layers", "recompute" },
  { ALL FSDP "--fine-grained-activation-offloading --offload-modules attn_proj", E,
    "--offload-modules", "core_attn" },
  { ALL FSDP "--fine-grained-activation-offloading --offload-modules core_attn", W,
    "--fine-grained-activation-offloading", "NVTE_CPU_OFFLOAD_V1" },
  { ALL FSDP "--megatron-fsdp-version 2", E, "--use-distributed-optimizer", "version 2" },
  { ALL FSDP "--megatron-fsdp-version 2 --suggested-communication-unit-size 1", E,
    "--suggested-communication-unit-size", "version 2" },
  { ALL FSDP "--cross-entropy-loss-fusion --deterministic-mode", E, "--deterministic-mode",
    "remove one" },
  { ALL FSDP "--cross-entropy-loss-fusion --cross-entropy-fusion-impl te", E,
    "--cross-entropy-fusion-impl", "native" },
  { ALL FSDP "--rampup-batch-size 1 1 8", W, "--rampup-batch-size", "full one" },
  { ALL FSDP "--tensor-model-parallel-size 2", W, "--tensor-model-parallel-size", "Blackwell" },
  { ALL FSDP, N, "--attention-dropout", "0.1 by default" },
  { ALL FSDP, N, "--no-check-for-nan-in-loss-and-grad", "micro batch" },
  { ALL FSDP "--attention-backend flash", N, "--attention-backend", "unfused attention keeps" },
  { ALL FSDP "--vocab-size 1000 --make-vocab-size-divisible-by 1", N, "--vocab-size",
    "to 1000 rows, here to 1024" },
  { ALL FSDP "--manual-gc", N, "--manual-gc", "garbage" },
  { ALL FSDP "--perform-rl-step", E, "--perform-rl-step", "reinforcement" },
  { ALL FSDP "--batch-size 4", E, "--batch-size", "--micro-batch-size" },
  { ALL FSDP "--num-layer 3", N, "--num-layer", "did you mean 'num-layers'?" },
  { ALL FSDP "$MORE", W, NULL, "'$MORE' cannot be known" },
  { ALL FSDP "stray", W, NULL, "'stray' belongs to no flag" },
  { ALL "--bf16 \\\n # a comment\n --swiglu", W, "--swiglu", "belongs to no command" },
  { "if x; then L=3; fi\n" ALL "--num-layers $L", W, "--num-layers", "under a condition" },
  { ALL "--squared-relu", E, "--swiglu", "excludes --squared-relu" },
  { ALL "--mtp-num-layers 1 --position-embedding-type learned_absolute", E, "--mtp-num-layers",
    "rope or none" },
  { "torchrun p.py --num-experts 2 --moe-shared-expert-intermediate-size 8", E,
    "--moe-shared-expert-intermediate-size", "--disable-bias-linear" },
  { ALL "--seq-length 512", E, "--seq-length", "--max-position-embeddings" },
  { ALL "--expert-model-parallel-size 2", E, "--expert-model-parallel-size", "--num-experts" },
  { ALL MOE "--expert-model-parallel-size 3", E, "--expert-model-parallel-size", "must divide" },
  { ALL MOE "--use-torch-fsdp2 --expert-model-parallel-size 2", E, "--use-torch-fsdp2",
    "excludes expert parallelism" },
  { ALL MOE "--tensor-model-parallel-size 2", E, "--tensor-model-parallel-size",
    "--sequence-parallel" },
  { "torchrun p.py --num-experts 2 --tensor-model-parallel-size 2", E, "--num-experts",
    "--expert-tensor-parallel-size 1" },
  { ALL MOE "--moe-router-enable-expert-bias", E, "--moe-router-enable-expert-bias", "sigmoid" },
  { ALL MOE "--moe-router-topk 1", E, "--moe-router-topk", "--moe-router-pre-softmax" },
  { ALL MOE "--moe-router-group-topk 1", E, "--moe-router-group-topk", "--moe-router-num-groups" },
  { ALL MOE "--moe-router-group-topk 3 --moe-router-num-groups 2", E, "--moe-router-group-topk",
    "must not be above" },
  { ALL MOE "--moe-token-dispatcher-type flex", E, "--moe-token-dispatcher-type",
    "expert parallelism" },
  { ALL MOE "--moe-shared-expert-overlap", E, "--moe-shared-expert-overlap", "alltoall or flex" },
  { ALL MOE FLEX "--moe-shared-expert-overlap --recompute-granularity selective "
                 "--recompute-modules shared_experts",
    E, "--moe-shared-expert-overlap", "exclude each other" },
  { ALL MOE "--recompute-granularity selective --recompute-modules moe_act", E,
    "--recompute-modules", "--moe-grouped-gemm" },
  { ALL MOE "--overlap-moe-expert-parallel-comm", E, "--overlap-moe-expert-parallel-comm",
    "needs expert parallelism" },
  { "torchrun p.py " MOE FLEX "--overlap-moe-expert-parallel-comm", E,
    "--overlap-moe-expert-parallel-comm", "--bf16" },
  { ALL MOE FLEX "--overlap-moe-expert-parallel-comm --moe-shared-expert-overlap", E,
    "--overlap-moe-expert-parallel-comm", "exclude each other" },
  { ALL MOE FLEX "--overlap-moe-expert-parallel-comm --mtp-num-layers 2", E,
    "--overlap-moe-expert-parallel-comm", "prediction module" },
  { ALL MOE FLEX "--overlap-moe-expert-parallel-comm --recompute-granularity selective "
                 "--recompute-modules moe",
    E, "--overlap-moe-expert-parallel-comm", "excludes recomputing moe" },
  { ALL MOE "--delay-wgrad-compute", E, "--delay-wgrad-compute", "--overlap-moe" },
  { ALL FSDP MOE FLEX "--ddp-average-in-collective", W, "--ddp-average-in-collective",
    "too large" },
  { ALL FSDP MOE FLEX "--megatron-fsdp-version 2 --moe-flex-dispatcher-backend hybridep", W,
    "--moe-flex-dispatcher-backend", "#7400" },
};

START_TEST (hazards_are_noted)
{
  g_auto (PlanMegatron) megatron = { 0 };
  gboolean found = FALSE;
  read_text (notes[_i].text, 0, &megatron);
  for (guint i = 0; i < megatron.notes->len; i++)
    {
      const PlanMegatronNote *note = g_ptr_array_index (megatron.notes, i);
      found
          = found
            || (note->severity == notes[_i].severity && g_strcmp0 (note->flag, notes[_i].flag) == 0
                && strstr (note->text, notes[_i].message));
    }
  ck_assert_msg (found, "no note on %s from %s", notes[_i].flag ? notes[_i].flag : "the text",
                 notes[_i].text);
}
END_TEST

START_TEST (what_is_right_has_no_notes)
{
  g_auto (PlanMegatron) megatron = { 0 };
  read_text ("unset CUDA_DEVICE_MAX_CONNECTIONS\n" ALL FSDP
             "--attention-dropout 0 --hidden-dropout 0 --no-check-for-nan-in-loss-and-grad "
             "--no-gradient-accumulation-fusion --init-model-with-meta-device --lr 1 --save x",
             0, &megatron);
  for (guint i = 0; i < megatron.notes->len; i++)
    ck_abort_msg ("%s", ((PlanMegatronNote *)g_ptr_array_index (megatron.notes, i))->text);
}
END_TEST

/* The vocabulary as Megatron-LM pads it, and as it is told here. */
static const struct
{
  const char *flags;
  gint64 date, vocab, padded;
} vocabularies[] = {
  { "--vocab-size 128256 --tokenizer-type NullTokenizer", 0, 128256, 128256 },
  { "--vocab-size 128256 --tokenizer-type NullTokenizer", 20260421, 128257, 128384 },
  { "--vocab-size 128256", 20260421, 128256, 128256 },
  { "--vocab-size 1000", 0, 1000, 1024 },
  { "--vocab-size 1000 --make-vocab-size-divisible-by 1", 0, 1000, 1000 },
  { "--vocab-size 1000 --tensor-model-parallel-size 16", 0, 1000, 2048 },
  { "--vocab-size 1000 --padded-vocab-size 4096", 0, 4096, 4096 },
  { "--tokenizer-type HuggingFaceTokenizer", 0, 0, 0 },
};

START_TEST (vocabulary_is_padded_as_upstream)
{
  g_auto (PlanMegatron) megatron = { 0 };
  g_autofree char *text
      = g_strdup_printf ("torchrun p.py --num-layers 3 %s", vocabularies[_i].flags);
  read_text (text, vocabularies[_i].date, &megatron);
  ck_assert_int_eq (megatron.shape.padded_vocab, vocabularies[_i].padded);
  ck_assert_int_eq (megatron.shape.vocab, vocabularies[_i].vocab);
}
END_TEST

/* Doubling variables, deep nesting and many words end in an error, not in the machine's memory. */
START_TEST (bombs_do_not_explode)
{
  g_autoptr (GString) text = g_string_new ("A=x\n");
  for (guint i = 0; i < 64; i++)
    g_string_append (text, "A=\"$A$A\"\n");
  g_autoptr (GError) error = NULL;
  PlanMegatron megatron;
  ck_assert (!plan_megatron_parse (text->str, "bomb", 0, &megatron, &error));
  ck_assert_ptr_nonnull (strstr (error->message, "grows beyond 1 MiB"));
  g_clear_error (&error);

  g_string_assign (text, "A=(x)\n");
  for (guint i = 0; i < 64; i++)
    g_string_append (text, "A=(\"${A[@]}\" \"${A[@]}\")\n");
  ck_assert (!plan_megatron_parse (text->str, "bomb", 0, &megatron, &error));
  ck_assert_ptr_nonnull (strstr (error->message, "grows beyond"));
  g_clear_error (&error);

  g_string_assign (text, "A=(\"\")\n"); /* of nothing, but many */
  for (guint i = 0; i < 64; i++)
    g_string_append (text, "A=(\"${A[@]}\" \"${A[@]}\")\n");
  ck_assert (!plan_megatron_parse (text->str, "bomb", 0, &megatron, &error));
  ck_assert_ptr_nonnull (strstr (error->message, "grows beyond"));
  g_clear_error (&error);

  g_string_assign (text, "x ");
  for (guint i = 0; i < 1000; i++)
    g_string_append (text, "${A:-");
  for (guint i = 0; i < 1000; i++)
    g_string_append (text, "}");
  ck_assert (!plan_megatron_parse (text->str, "bomb", 0, &megatron, &error));
  ck_assert_ptr_nonnull (strstr (error->message, "within one another"));
  g_clear_error (&error);

  g_string_truncate (text, 0);
  while (text->len <= 10 * 1024 * 1024)
    g_string_append (text, "--num-layers 3 ");
  ck_assert (!plan_megatron_parse (text->str, "large", 0, &megatron, &error));
  ck_assert_ptr_nonnull (strstr (error->message, "larger than"));
}
END_TEST

START_TEST (every_flag_is_found_by_both_names)
{
  for (guint i = 0; i < PLAN_MEGATRON_N_FLAGS; i++)
    {
      const PlanMegatronFlag flag = (PlanMegatronFlag)i;
      const PlanMegatronFlagInfo by_key = plan_megatron_key_find (plan_megatron_flag_key (flag));
      ck_assert_int_eq (by_key.class, PLAN_MEGATRON_CLASS_USED);
      ck_assert_int_eq (by_key.flag, flag);
      const char *const name = plan_megatron_flag_name (flag) + 2;
      if (!*name)
        continue; /* only in logs */
      const PlanMegatronFlagInfo by_flag = plan_megatron_flag_find (name);
      ck_assert_msg (by_flag.class == PLAN_MEGATRON_CLASS_USED && by_flag.flag == flag, "%s", name);
    }
  ck_assert_int_eq (plan_megatron_flag_find ("lr").class, PLAN_MEGATRON_CLASS_IGNORED);
  ck_assert_int_eq (plan_megatron_flag_find ("batch-size").class, PLAN_MEGATRON_CLASS_REFUSED);
  ck_assert_int_eq (plan_megatron_flag_find ("layernorm-epsilon").flag, PLAN_MEGATRON_NORM_EPSILON);
  ck_assert_int_eq (plan_megatron_flag_find ("nonsense").class, PLAN_MEGATRON_CLASS_UNKNOWN);
}
END_TEST

/* Values that Megatron-FSDP's flags can say. */
static const struct
{
  const char *field, *values;
} choices[] = {
  { "strategy", "no_shard optim optim_grads optim_grads_params" },
  { "dp_outer", "1 2 4" },
  { "outer_strategy", "no_shard optim" },
  { "cp", "1 2 4" },
  { "ep", "1" },
  { "pp", "1" },
  { "mbs", "1 2 3" },
  { "gbs", "8 64 1024" },
  { "seq", "64 128" },
  { "fine_grained", "off on" },
  { "comm_unit", "auto 1 1000000000" },
  { "double_buffer", "off on max_pool" },
  { "nccl_ub", "off on" },
  { "ag_group", "off on" },
  { "sharp", "off ib" },
  { "compute", "fp32 fp16 bf16 fp8-delayed fp8-tensorwise fp8-blockwise mxfp8 nvfp4" },
  { "keep_transpose", "off on" },
  { "main_params", "fp32 bf16 fp16 auto" },
  { "main_grads", "fp32 bf16 fp16 auto" },
  { "grad_comm", "fp32 bf16 fp16 auto" },
  { "exp_avg", "fp32 bf16 fp16 fp8" },
  { "exp_avg_sq", "fp32 bf16 fp16 fp8" },
  { "precision_aware", "off on" },
  { "optimizer", "adamw sgd" },
  { "offload_optimizer", "0 0.25 1" },
  { "offload_layers", "0 2" },
  { "offload_modules", "none core_attn qkv_linear+mlp_norm" },
  { "recompute", "none selective full" },
  { "grad_accum_fusion", "off on" },
  { "per_token_loss", "off on" },
  { "ce_fusion", "off on" },
  { "nan_check", "off loss" },
  { "cuda_graph", "off on" },
  { "hidden_dropout", "0 0.1" },
  { "attention_dropout", "0 0.25" },
  { "empty_cache", "off on" },
  { "deterministic", "off on" },
};

/* A plan of them, at random. */
static void
random_plan (GRand *rand, Plan *plan)
{
  plan_init (plan);
  for (guint i = 0; i < G_N_ELEMENTS (choices); i++)
    {
      g_auto (GStrv) values = g_strsplit (choices[i].values, " ", -1);
      const gint32 at = g_rand_int_range (rand, 0, (gint32)g_strv_length (values));
      ck_assert (plan_set (plan, choices[i].field, values[at], NULL));
    }
  if (plan->value[PLAN_RECOMPUTE] == PLAN_RECOMPUTE_SELECTIVE)
    plan->value[PLAN_RECOMPUTE_MODULES] = g_rand_int_range (rand, 1, 1 << 7);
  if (plan->value[PLAN_RECOMPUTE] == PLAN_RECOMPUTE_FULL)
    {
      plan->value[PLAN_RECOMPUTE_METHOD] = g_rand_int_range (rand, 0, 2);
      plan->value[PLAN_RECOMPUTE_LAYERS] = g_rand_int_range (rand, 1, 4);
    }
  if (plan->value[PLAN_COMPUTE] >= PLAN_COMPUTE_FP8_DELAYED && g_rand_boolean (rand))
    plan->value[PLAN_PARAM_GATHER]
        = plan->value[PLAN_COMPUTE] == PLAN_COMPUTE_MXFP8   ? PLAN_PARAM_GATHER_MXFP8
          : plan->value[PLAN_COMPUTE] == PLAN_COMPUTE_NVFP4 ? PLAN_PARAM_GATHER_NVFP4
                                                            : PLAN_PARAM_GATHER_FP8;
  if (g_rand_boolean (rand))
    {
      plan->value[PLAN_TP] = 2;
      plan->value[PLAN_SP] = g_rand_int_range (rand, 0, 2);
    }
}

static void
write_flag (GString *text, PlanMegatronFlag flag, const char *value)
{
  const char *const name = plan_megatron_flag_name (flag);
  const PlanMegatronType type = plan_megatron_flag_type (flag);
  g_autofree char *words = g_strdelimit (g_strdup (value), "+", ' ');
  if (type == PLAN_MEGATRON_TYPE_ON || type == PLAN_MEGATRON_TYPE_OFF)
    {
      if (g_str_equal (value, "on") == (type == PLAN_MEGATRON_TYPE_ON))
        g_string_append_printf (text, " \\\n  %s", name);
    }
  else if (type != PLAN_MEGATRON_TYPE_LIST && text->len % 2)
    g_string_append_printf (text, " \\\n  %s=%s", name, words);
  else
    g_string_append_printf (text, " %s %s", name, words);
}

static void
write_field (GString *text, const Plan *plan, PlanField field, PlanMegatronFlag flag)
{
  g_autofree char *value = plan_field_print (field, plan->value[field]);
  write_flag (text, flag, field == PLAN_MOE_CAPACITY && !plan->value[field] ? "-1" : value);
}

static void
write_compute (GString *text, const Plan *plan)
{
  const char *const compute = plan_field_names (PLAN_COMPUTE)[plan->value[PLAN_COMPUTE]];
  const gboolean gathers = plan->value[PLAN_PARAM_GATHER] != PLAN_PARAM_GATHER_COMPUTE;
  if (plan->value[PLAN_COMPUTE] != PLAN_COMPUTE_FP32)
    write_flag (text,
                plan->value[PLAN_COMPUTE] == PLAN_COMPUTE_FP16 ? PLAN_MEGATRON_FP16
                                                               : PLAN_MEGATRON_BF16,
                "on");
  if (g_str_equal (compute, "nvfp4"))
    {
      write_flag (text, PLAN_MEGATRON_FP4, "e2m1");
      write_flag (text, PLAN_MEGATRON_FP4_PARAM, gathers ? "on" : "off");
    }
  else if (plan->value[PLAN_COMPUTE] >= PLAN_COMPUTE_FP8_DELAYED)
    {
      write_flag (text, PLAN_MEGATRON_FP8, "hybrid");
      write_flag (text, PLAN_MEGATRON_FP8_RECIPE,
                  g_str_has_prefix (compute, "fp8-") ? compute + 4 : compute);
      write_flag (text, PLAN_MEGATRON_FP8_PARAM, gathers ? "on" : "off");
    }
}

static char *
write_plan (const Plan *plan)
{
  GString *text
      = g_string_new ("torchrun --nproc_per_node 8 pretrain_gpt.py " MODEL FSDP "--loss-scale 1");
  for (PlanField field = 0; field < PLAN_N_FIELDS; field++)
    {
      PlanMegatronFlag flag;
      if (plan_megatron_flag_of_field (field, &flag) && plan->value[field] != PLAN_UNSET)
        write_field (text, plan, field, flag);
    }
  write_compute (text, plan);
  write_flag (text, PLAN_MEGATRON_NAN_CHECK, plan->value[PLAN_NAN_CHECK] ? "on" : "off");
  write_flag (text, PLAN_MEGATRON_USE_SHARP, plan->value[PLAN_SHARP] ? "on" : "off");
  write_flag (text, PLAN_MEGATRON_SEQUENCE_PARALLEL, plan->value[PLAN_SP] == 1 ? "on" : "off");
  write_flag (text, PLAN_MEGATRON_CUDA_GRAPH,
              plan->value[PLAN_CUDA_GRAPH] ? "full_iteration" : "none");
  write_flag (text, PLAN_MEGATRON_EMPTY_CACHE, plan->value[PLAN_EMPTY_CACHE] ? "2" : "0");
  write_flag (text, PLAN_MEGATRON_OPTIMIZER, plan->value[PLAN_OPTIMIZER] ? "sgd" : "adam");
  write_flag (text, PLAN_MEGATRON_DOUBLE_BUFFER, plan->value[PLAN_DOUBLE_BUFFER] ? "on" : "off");
  write_flag (text, PLAN_MEGATRON_MAX_POOL, plan->value[PLAN_DOUBLE_BUFFER] == 2 ? "on" : "off");
  if (plan->value[PLAN_OFFLOAD_OPTIMIZER] > 0)
    {
      write_flag (text, PLAN_MEGATRON_OPTIMIZER_OFFLOAD, "on");
      write_field (text, plan, PLAN_OFFLOAD_OPTIMIZER, PLAN_MEGATRON_OFFLOAD_FRACTION);
    }
  if (plan->value[PLAN_OFFLOAD_MODULES])
    {
      write_flag (text, PLAN_MEGATRON_OFFLOAD_ACTIVATIONS, "on");
      write_field (text, plan, PLAN_OFFLOAD_MODULES, PLAN_MEGATRON_OFFLOAD_MODULES);
    }
  if (plan->value[PLAN_RECOMPUTE] != PLAN_RECOMPUTE_NONE)
    write_field (text, plan, PLAN_RECOMPUTE, PLAN_MEGATRON_RECOMPUTE);
  if (plan->value[PLAN_RECOMPUTE] == PLAN_RECOMPUTE_SELECTIVE)
    write_field (text, plan, PLAN_RECOMPUTE_MODULES, PLAN_MEGATRON_RECOMPUTE_MODULES);
  if (plan->value[PLAN_RECOMPUTE] == PLAN_RECOMPUTE_FULL)
    {
      write_field (text, plan, PLAN_RECOMPUTE_METHOD, PLAN_MEGATRON_RECOMPUTE_METHOD);
      write_field (text, plan, PLAN_RECOMPUTE_LAYERS, PLAN_MEGATRON_RECOMPUTE_LAYERS);
    }
  return g_string_free (text, FALSE);
}

START_TEST (written_plans_are_read_back)
{
  GRand *rand = g_rand_new_with_seed ((guint32)_i);
  g_auto (PlanMegatron) megatron = { 0 };
  Plan plan;
  random_plan (rand, &plan);
  g_rand_free (rand);
  g_autofree char *text = write_plan (&plan);
  read_text (text, 0, &megatron);
  g_autofree char *said = plan_print (&plan), *got = plan_print (&megatron.plan);
  ck_assert_msg (strcmp (said, got) == 0, "seed %d\n%s\nbecame\n%s\nfrom %s", _i, said, got, text);
}
END_TEST

/* The same settings on a command line and in a log are the same plan and model. */
START_TEST (logs_say_what_command_lines_say)
{
  static const char *const models[]
      = { "", " --num-experts 8 --moe-layer-freq '([0]+[1]*3)' --moe-ffn-hidden-size 32",
          " --multi-latent-attention --qk-layernorm --q-lora-rank 16",
          " --window-size '(63, 0)' --window-attn-skip-freq 2 --add-qkv-bias",
          " --mtp-num-layers 1 --rotary-percent 0.5 --norm-epsilon 1e-6" };
  GRand *rand = g_rand_new_with_seed ((guint32)_i);
  g_auto (PlanMegatron) of_flags = { 0 }, of_log = { 0 };
  g_autoptr (GPtrArray) ignored = plan_megatron_notes_new ();
  g_auto (PlanMegatronSettings) settings = { 0 };
  g_autoptr (GString) log = g_string_new ("0: ------------ arguments ------------\n");
  Plan plan;
  random_plan (rand, &plan);
  g_autofree char *flags = write_plan (&plan);
  g_autofree char *text = g_strconcat (flags, models[_i % (int)G_N_ELEMENTS (models)], NULL);
  read_text (text, 0, &of_flags);
  ck_assert (plan_megatron_settings_read (text, "t.sh", ignored, &settings, NULL));
  for (guint i = 0; i < PLAN_MEGATRON_N_FLAGS; i++)
    {
      const char *const value = plan_megatron_value (&settings, (PlanMegatronFlag)i);
      const char *const key = plan_megatron_flag_key ((PlanMegatronFlag)i);
      const gsize n = strlen (key);
      const char *const shown = !value                        ? "None"
                                : g_str_equal (value, "on")   ? "True"
                                : g_str_equal (value, "off")  ? "False"
                                : g_str_equal (value, "auto") ? "None"
                                : g_str_equal (value, "bf16") ? "torch.bfloat16"
                                                              : value;
      g_string_append_printf (log, "0: \033[1m  %s ", key);
      for (gsize dot = n; dot < 48; dot++)
        g_string_append_c (log, '.');
      g_string_append_printf (log, " %s\033[0m\n%s", shown, i % 5 ? "" : "1: hello .. there\n");
    }
  g_string_append (log, "0: -------- end of arguments --------\n");
  read_text (log->str, 0, &of_log);
  g_autofree char *a = plan_print (&of_flags.plan), *b = plan_print (&of_log.plan);
  ck_assert_msg (strcmp (a, b) == 0, "seed %d\n%s\nin the log\n%s\n%s", _i, a, b, log->str);
  g_autoptr (PlanModel) of_a = plan_megatron_model (&of_flags, NULL);
  g_autoptr (PlanModel) of_b = plan_megatron_model (&of_log, NULL);
  g_autofree char *said = of_a ? plan_model_print (of_a) : NULL;
  g_autofree char *got = of_b ? plan_model_print (of_b) : NULL;
  ck_assert_msg (said && g_strcmp0 (said, got) == 0, "%s\nin the log\n%s\n%s", said, got, text);
  g_rand_free (rand);
}
END_TEST

int
main (void)
{
  TCase *tcase = tcase_create ("megatron");
  tcase_add_loop_test (tcase, flags_mean_fields, 0, G_N_ELEMENTS (meanings));
  tcase_add_loop_test (tcase, scripts_are_read, 0, G_N_ELEMENTS (scripts));
  tcase_add_loop_test (tcase, layers_are_dealt_out, 0, G_N_ELEMENTS (dealt));
  tcase_add_loop_test (tcase, failures_are_explained, 0, G_N_ELEMENTS (failures));
  tcase_add_loop_test (tcase, hazards_are_noted, 0, G_N_ELEMENTS (notes));
  tcase_add_test (tcase, what_is_right_has_no_notes);
  tcase_add_loop_test (tcase, vocabulary_is_padded_as_upstream, 0, G_N_ELEMENTS (vocabularies));
  tcase_add_test (tcase, bombs_do_not_explode);
  tcase_add_test (tcase, every_flag_is_found_by_both_names);
  tcase_add_loop_test (tcase, written_plans_are_read_back, 0, 300);
  tcase_add_loop_test (tcase, logs_say_what_command_lines_say, 0, 100);
  Suite *suite = suite_create ("megatron");
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int n_failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
