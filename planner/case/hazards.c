/* SPDX-License-Identifier: Apache-2.0 */
/* The hazards: costs, silent losses of overlap or precision, and known faults of frameworks. Each
 * is a row with a predicate that says when it applies, and a level if it is more than a cost. */
#include "config.h"

#include "planner/case/hazards.h"

#include "planner/plan/native.h"
#include "planner/plan/rules-private.h"

static gboolean
is_megatron_fsdp (const PlanFacts *f)
{
  return is_stack (f, PLAN_STACK_MEGATRON_FSDP);
}

static gboolean
is_low_precision (const PlanFacts *f)
{
  return f->value[PLAN_COMPUTE] >= PLAN_COMPUTE_FP8_DELAYED;
}

static gboolean
shards_grads (const PlanFacts *f)
{
  return IS (f, STRATEGY, OPTIM_GRADS) || IS (f, STRATEGY, OPTIM_GRADS_PARAMS);
}

static gboolean
copies_weights (const PlanFacts *f)
{
  return (is_megatron_fsdp (f) || is_stack (f, PLAN_STACK_MEGATRON)) && is_low_precision (f)
         && IS (f, PARAM_GATHER, COMPUTE);
}

static gboolean
casts_grads (const PlanFacts *f)
{
  return f->stack && f->stack->optimizer.kind == PLAN_OPTIMIZER_DISTRIBUTED
         && IS (f, PRECISION_AWARE, OFF) && !IS (f, MAIN_PARAMS, AUTO)
         && plan_field_dtype (f->plan, PLAN_MAIN_GRADS)
                != plan_field_dtype (f->plan, PLAN_MAIN_PARAMS);
}

static gboolean
recomputes_fused_attention (const PlanFacts *f)
{
  return IS (f, RECOMPUTE, SELECTIVE) && HAS_MODULE (f, RECOMPUTE_MODULES, CORE_ATTN);
}

static gboolean
recomputes_fused_norms (const PlanFacts *f)
{
  return is_megatron_fsdp (f) && f->model->experts == 0 && IS (f, RECOMPUTE, SELECTIVE)
         && HAS_MODULE (f, RECOMPUTE_MODULES, LAYERNORM);
}

static gboolean
syncs_unsharded (const PlanFacts *f)
{
  return IS (f, SYNC_EVERY_MICRO_BATCH, ON) && (!shards_grads (f) || f->value[PLAN_DP_OUTER] > 1);
}

static gboolean
norm_per_replica (const PlanFacts *f)
{
  return is_megatron_fsdp (f) && IS (f, OUTER_STRATEGY, OPTIM);
}

/* Whether compute may reach a third unit before anything has waited for the first one's reduction.
 * The smallest bucket that is reduced before the last unit decides: a unit's, or the head's. */
static gboolean
queues_two_units (const PlanFacts *f)
{
  g_autoptr (PlanCase) made
      = f->of ? NULL : plan_case_new (f->model, f->cluster, f->plan, NULL, NULL);
  const PlanCase *of = f->of ? f->of : made;
  if (!of)
    return FALSE;
  const PlanBucket *const b = of->layout.buckets;
  const PlanBucketKind pooled = of->layout.pooled;
  guint64 least = b[pooled].padded + b[plan_bucket_plain (pooled)].padded;
  if (plan_layout_has (&of->layout, PLAN_BUCKET_HEAD))
    least = MIN (least, b[PLAN_BUCKET_HEAD].padded);
  return !of->layout.by_size && of->layout.shards > 1
         && plan_layout_comm_unit (&of->layout, of->stack, &of->plan) >= (gint64)least;
}

/* Whether a pooled gradient buffer may be overwritten while it is still being reduced. The order of
 * waits, unit after unit in the backward pass, by lines of param_and_grad_buffer.py:
 *
 * - 3915, before unit k - 1 is reduced: compute waits for k only where k alone is more elements
 * than the communication unit;
 * - 4041: the reductions' stream waits for compute, and not the other way;
 * - 3099, before unit k - 2's first gradient is written, where both pooled buffers are taken:
 * _enforce_double_buffer_limit puts the wait for k on the reductions' stream (3977), which is
 * behind k anyway, and gives k's buffer back; compute fills it.
 *
 * What hides this elsewhere is the gather of k - 2's weights, for which compute waits (4608): on
 * the communicator that reduces k, it runs behind that reduction. But strategy=optim_grads gathers
 * no weights there, and ag_group=on gathers them on another communicator. */
static gboolean
pool_races (const PlanFacts *f)
{
  return f->stack && f->stack->grads.pool != PLAN_GRAD_POOL_AWAITED && !IS (f, DOUBLE_BUFFER, OFF)
         && shards_grads (f) && (IS (f, AG_GROUP, ON) || IS (f, STRATEGY, OPTIM_GRADS))
         && queues_two_units (f);
}

static gboolean
pool_unused (const PlanFacts *f)
{
  return IS (f, STRATEGY, NO_SHARD) && !IS (f, DOUBLE_BUFFER, OFF);
}

static gboolean
all_to_all_unused (const PlanFacts *f)
{
  return IS (f, REDUCE_ALGO, A2A) && IS (f, STRATEGY, NO_SHARD);
}

/* Whether a ring rounds partial sums. Symmetric kernels and all-to-all sum in fp32, whatever format
 * travels (plan-fields.h). */
static gboolean
rounds_per_hop (const PlanFacts *f)
{
  const gint64 version = f->value[PLAN_NCCL];
  const gboolean is_symmetric = IS (f, NCCL_UB, ON) && version >= 2027 && shards_grads (f);
  return f->cluster->kind == PLAN_DEVICE_GPU && !IS (f, GRAD_COMM, FP32) && IS (f, MAIN_GRADS, FP32)
         && IS (f, REDUCE_ALGO, RS) && !is_symmetric
         && plan_data_parallel (f->plan, f->cluster) > 1;
}

static gboolean
scales_in_bf16 (const PlanFacts *f)
{
  return is_megatron_fsdp (f) && IS (f, PER_TOKEN_LOSS, OFF) && IS (f, GRAD_COMM, BF16);
}

static gboolean
wants_one_connection (const PlanFacts *f)
{
  return is_megatron_fsdp (f) && f->cluster->compute_capability < 100
         && (f->value[PLAN_TP] > 1 || f->value[PLAN_CP] > 1);
}

static gboolean
forces_fine_grained (const PlanFacts *f)
{
  return is_megatron_fsdp (f) && IS (f, PARAM_GATHER, MXFP8) && IS (f, RECOMPUTE, NONE);
}

static gboolean
loses_small_squares (const PlanFacts *f)
{
  return IS (f, EXP_AVG_SQ, FP8);
}

/* Whether gradients of experts are reduced over a single rank: they are reduced only over the ranks
 * that hold the same experts. */
static gboolean
experts_reduce_alone (const PlanFacts *f)
{
  const gint64 *const v = f->value;
  return is_megatron_fsdp (f) && f->model->experts > 0 && shards_grads (f) && v[PLAN_EP] > 1
         && plan_cluster_devices (f->cluster)
                == v[PLAN_EP] * v[PLAN_ETP] * v[PLAN_PP] * v[PLAN_DP_OUTER]
         && plan_micro_batches (f->plan, f->cluster) > 1;
}

static gboolean
is_of_experts (const PlanFacts *f)
{
  return f->model->experts > 0 && !is_stack (f, PLAN_STACK_NATIVE);
}

static gboolean
waits_for_tokens (const PlanFacts *f)
{
  return (is_stack (f, PLAN_STACK_MEGATRON) || is_stack (f, PLAN_STACK_MEGATRON_FSDP))
         && f->value[PLAN_EP] > 1 && IS (f, EP_OVERLAP, OFF) && !IS (f, MOE_DISPATCHER, ALLGATHER)
         && f->model->delta.attn_every == 0 && !f->model->attn_gate
         && !*f->model->pattern.of; /* not-built-yet-with-delta, -with-pattern */
}

static gboolean
overlaps_experts (const PlanFacts *f)
{
  return IS (f, EP_OVERLAP, ON);
}

static gboolean
gathers_late (const PlanFacts *f)
{
  return IS (f, EP_OVERLAP, ON) && plan_shards_weights (f->plan)
         && plan_micro_batches (f->plan, f->cluster) > 1;
}

static gboolean
wants_deepep (const PlanFacts *f)
{
  return f->model->experts > 0 && f->value[PLAN_EP] > 1
         && (IS (f, MOE_DISPATCHER, DEEPEP) || IS (f, MOE_DISPATCHER, HYBRIDEP));
}

static gboolean
wants_fla (const PlanFacts *f)
{
  return f->model->delta.attn_every > 0;
}

static gboolean
wants_mamba (const PlanFacts *f)
{
  return f->model->ssm.heads > 0;
}

static gboolean
is_deepep_on_grace (const PlanFacts *f)
{
  return wants_deepep (f) && IS (f, MOE_DISPATCHER, DEEPEP)
         && g_str_has_prefix (f->cluster->device_name, "gb");
}

/* Whether a library sends tokens over the network. */
static gboolean
sends_far (const PlanFacts *f)
{
  return wants_deepep (f)
         && f->value[PLAN_EP] * f->value[PLAN_ETP]
                > MAX (f->cluster->devices_per_node, f->cluster->nvlink_domain);
}

static gboolean
is_not_sent (const PlanFacts *f)
{
  return sends_far (f) && f->cluster->ibgda == PLAN_ANSWER_NO;
}

static gboolean
cuts_unevenly (const PlanFacts *f)
{
  return sends_far (f) && IS (f, MOE_DISPATCHER, DEEPEP)
         && plan_model_expert_width (f->model) % 256 != 0;
}

/* Before Hopper there are no bulk copies between memories (TMA), by which all kernels of HybridEP
 * move tokens, and DeepEP's between nodes. */
static gboolean
wants_hopper (const PlanFacts *f)
{
  return wants_deepep (f) && f->cluster->kind == PLAN_DEVICE_GPU
         && f->cluster->compute_capability < 90
         && (IS (f, MOE_DISPATCHER, HYBRIDEP) || sends_far (f));
}

/* Whether no NVLink joins the devices, which both libraries write to each other's memory by. */
static gboolean
wants_nvlink (const PlanFacts *f)
{
  return wants_deepep (f) && f->cluster->kind == PLAN_DEVICE_GPU && f->cluster->devices_per_node > 1
         && f->cluster->nvlink_domain < 2;
}

/* Whether a queue of the network is too short for a rank's tokens, counted by 64: it holds three
 * requests of each and one more, and is shorter than 65,536. */
static gboolean
overfills_queue (const PlanFacts *f)
{
  const gint64 *const v = f->value;
  const gint64 tokens = v[PLAN_MBS] * v[PLAN_SEQ] / (v[PLAN_TP] * v[PLAN_CP]);
  return sends_far (f) && IS (f, MOE_DISPATCHER, HYBRIDEP)
         && 3 * ((tokens + 63) / 64 * 64) + 1 >= 65536;
}

#define HOPPER 90 /* where alone cuBLASLt multiplies numbers with fp32 scales of blocks */

static gboolean
is_not_run (const PlanFacts *f)
{
  return is_stack (f, PLAN_STACK_NATIVE)
         && (!plan_native_runs (f->plan, f->model, plan_data_parallel (f->plan, f->cluster), NULL)
             || !plan_native_has_whole_blocks (f->plan, f->model)
             || (IS (f, COMPUTE, FP8_BLOCKWISE) && f->cluster->kind == PLAN_DEVICE_GPU
                 && f->cluster->compute_capability != HOPPER));
}

/* Whether nothing starts the plan: the programs that fsdplan emit writes for FSDP2 hold dense
 * models alone, around Megatron-FSDP they split no experts; torchtitan's models with experts have
 * none of Llama 4's parts, and neither its norms nor Megatron-LM's are over all heads. */
static gboolean
is_not_written (const PlanFacts *f)
{
  const PlanModel *m = f->model;
  const gboolean is_full = m->qk_norm == PLAN_QK_NORM_FULL;
  const gboolean is_llama4
      = m->nope_every > 0 || m->qk_l2_norm != PLAN_QK_L2_OFF || m->scores_on_input;
  return m->experts > 0
         && (is_stack (f, PLAN_STACK_FSDP2)
                 ? is_full || is_llama4
                 : is_stack (f, PLAN_STACK_MEGATRON_FSDP) && is_full && f->value[PLAN_EP] > 1);
}

/* Whether torchtitan alone starts the plan, as programs of one's own have neither stages nor
 * experts, and does not recompute some layers of all. */
static gboolean
recomputes_some (const PlanFacts *f)
{
  return is_stack (f, PLAN_STACK_FSDP2) && (f->value[PLAN_PP] > 1 || f->model->experts > 0)
         && IS (f, RECOMPUTE, FULL) && IS (f, RECOMPUTE_METHOD, BLOCK);
}

/* Whether no more rows than the mean have room. With a capacity of the mean or less no expert takes
 * more, and padded experts have room for all that they take. */
static gboolean
has_room_for_mean (const PlanFacts *f)
{
  Plan initial;
  plan_init (&initial);
  const gint64 capacity = f->value[PLAN_MOE_CAPACITY];
  const gboolean is_bounded = IS (f, MOE_PAD_TO_CAPACITY, ON)
                              || (capacity > 0 && capacity <= initial.value[PLAN_MOE_IMBALANCE]);
  return !is_bounded && is_stack (f, PLAN_STACK_NATIVE) && f->model->experts > 0
         && f->value[PLAN_EP] > 1
         && f->value[PLAN_MOE_IMBALANCE] == initial.value[PLAN_MOE_IMBALANCE];
}

/* Asked of cases alone: a search asks millions of plans for hazards, and this of those that it
 * scores (plan_space_admits). */
static gboolean
overfills_host (const PlanFacts *f)
{
  return f->of && !plan_case_fits_host (f->of);
}

static gboolean
attends_plainly (const PlanFacts *f)
{
  return is_stack (f, PLAN_STACK_NATIVE) && f->value[PLAN_CP] > 1
         && f->cluster->kind == PLAN_DEVICE_GPU;
}

static gboolean
waits_for_stages (const PlanFacts *f)
{
  return plan_micro_batches (f->plan, f->cluster) < f->value[PLAN_PP];
}

static gboolean
is_on_rocm (const PlanFacts *f)
{
  return f->cluster->rocm == PLAN_ANSWER_YES;
}

/* clang-format off */
static const PlanRuleEntry hazards[] = {
  { { "native-runs-less", "fsdplan's own runtime does not execute all that is modelled: not an offloaded optimizer with moments in fp8 or CUDA graphs, "
      "moments in fp8 of an embedding that two stages share, matrices that are not of whole blocks of the compute format, "
      "fp8-blockwise on GPUs other than Hopper, and some kinds of models; fsdplan run names which",
      "a limit of this version", 0 },
    is_not_run, PLAN_ADD_MODEL, PLAN_SHOW (PLAN_TP, PLAN_CP, PLAN_PP, PLAN_COMPUTE, PLAN_EXP_AVG, PLAN_EXP_AVG_SQ,
      PLAN_CUDA_GRAPH, PLAN_OFFLOAD_OPTIMIZER),
    PLAN_LEVEL (NOT_RUN) },
  { { "dispatcher-wants-ibgda", "over the network moe_dispatcher=deepep and hybridep let GPUs start transfers (IBGDA), which ConnectX "
      "ports do and AWS's EFA and Google's GPUDirect-TCPX do not: the first step fails; ep within NVLink or moe_dispatcher=alltoall "
      "runs, and --hw ibgda=yes says that your DeepEP is built for this network",
      "Megatron-Bridge issue #3343 (2026-04-15), DeepEP issues #369, #759", 0 },
    is_not_sent, PLAN_ADD_DEVICES, PLAN_SHOW (PLAN_MOE_DISPATCHER, PLAN_EP, PLAN_ETP), PLAN_LEVEL (NOT_RUN) },
  { { "deepep-not-on-grace", "DeepEP is for Ampere, Hopper, B200 and B300: on GB200 and GB300, whose NVLink joins many hosts, "
      "Megatron-Bridge refuses it; moe_dispatcher=hybridep is made for them",
      "Megatron-Bridge training/flex_dispatcher_backend.py (067f987d), issue #5992", 0 },
    is_deepep_on_grace, PLAN_ADD_DEVICES, PLAN_SHOW (PLAN_MOE_DISPATCHER, PLAN_EP), PLAN_LEVEL (NOT_RUN) },
  { { "deepep-wants-even-tokens", "over the network DeepEP moves tokens by 32 pieces of 16 bytes and stops where hidden is no "
      "multiple of 256; moe_dispatcher=hybridep or alltoall runs, or ep within NVLink", "DeepEP issue #506", 0 },
    cuts_unevenly, PLAN_ADD_NAME, PLAN_SHOW (PLAN_MOE_DISPATCHER, PLAN_EP), PLAN_LEVEL (NOT_RUN) },
  { { "dispatcher-wants-hopper", "before Hopper moe_dispatcher=hybridep does not compile, as its kernels copy by TMA, and deepep has "
      "no kernels between nodes (DISABLE_SM90_FEATURES); moe_dispatcher=alltoall runs, or deepep within NVLink",
      "DeepEP branch hybrid-ep (94a9f8f6), hybrid_ep_backend.cuh 1332, setup.py 249; DeepEP issue #149", 0 },
    wants_hopper, PLAN_ADD_DEVICES, PLAN_SHOW (PLAN_MOE_DISPATCHER, PLAN_EP, PLAN_ETP), PLAN_LEVEL (NOT_RUN) },
  { { "dispatcher-wants-nvlink", "moe_dispatcher=deepep and hybridep send within a node by NVLink, which the cluster does not have; "
      "moe_dispatcher=alltoall runs", "DeepEP README.md, Requirements (94a9f8f6); DeepEP issue #162", 0 },
    wants_nvlink, PLAN_ADD_DEVICES, PLAN_SHOW (PLAN_MOE_DISPATCHER, PLAN_EP), PLAN_LEVEL (NOT_RUN) },
  { { "hybridep-has-short-queues", "over the network HybridEP takes at most 21824 tokens of a rank's micro batch (mbs x seq / tp / cp), "
      "or stops when it makes its buffers: a smaller mbs, a larger tp or cp, ep within NVLink or moe_dispatcher=alltoall runs",
      "DeepEP branch hybrid-ep (94a9f8f6), csrc/hybrid_ep/config.cuh 18-62 and 384-398", 0 },
    overfills_queue, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_MOE_DISPATCHER, PLAN_EP, PLAN_MBS, PLAN_SEQ, PLAN_TP, PLAN_CP), PLAN_LEVEL (NOT_RUN) },
  { { "cp-attends-plainly", "on GPUs fsdplan's own runtime attends to other ranks' keys by a kernel that does not use tensor "
      "cores; its time is predicted as cuDNN's", "a limit of this version", 0 },
    attends_plainly, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_CP), PLAN_LEVEL (NOT_TIMED) },
  { { "nothing-starts-it", "nothing starts models with experts and, on stack=fsdp2, parts of Llama 4, which torchtitan has removed, or "
      "qk_norm=full, nor on stack=megatron-fsdp those with qk_norm=full and ep above 1: norms are of each head in torchtitan and "
      "Megatron-LM, and fsdplan emit writes programs of one's own for dense models and for ep=1 on stack=megatron-fsdp: use that, "
      "or stack=native", "torchtitan PR #3573 (2026-06-08)", 0 },
    is_not_written, PLAN_ADD_NAME, PLAN_SHOW (PLAN_STACK, PLAN_EP), PLAN_LEVEL (NOT_RUN) },
  { { "torchtitan-recomputes-all", "torchtitan, which alone starts stack=fsdp2 with pp above 1 or experts, recomputes all layers or none: "
      "use recompute_method=uniform", "torchtitan distributed/activation_checkpoint.py", 0 },
    recomputes_some, PLAN_ADD_NAME, PLAN_SHOW (PLAN_PP, PLAN_RECOMPUTE_METHOD), PLAN_LEVEL (NOT_RUN) },
  { { "room-for-the-mean", "with ep above 1 and moe_imbalance=1 a rank of fsdplan's own runtime has room for the rows that come to "
      "it in the mean; routers send more to some ranks, at the first step already, where the run then ends: say what yours do, "
      "or ep, which is enough for all", "docs/guide/experts.md", 0 },
    has_room_for_mean, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_EP, PLAN_MOE_IMBALANCE), PLAN_LEVEL (STOPS) },
  { { "host-memory-is-short", "offload_optimizer puts more of the optimizer's state into a node's host than it has memory "
      "(host_memory): weights, moments and gradients of all its ranks; a smaller share, or more nodes, fits",
      "Megatron-LM cpu_offloading/hybrid_optimizer.py", 0 },
    overfills_host, PLAN_ADD_DEVICES, PLAN_SHOW (PLAN_OFFLOAD_OPTIMIZER), PLAN_LEVEL (STOPS) },
  { { "fp8-copies-weights", "fp8 compute without quantised param_gather keeps quantised copies of every linear weight "
      "on every rank, unsharded: about 2 bytes per parameter of them; param_gather=fp8 or mxfp8 avoids it",
      "Transformer Engine module/base.py, as read: only FSDP2 modules are treated otherwise", 0 },
    copies_weights, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_COMPUTE, PLAN_PARAM_GATHER) },
  { { "experts-vary", "experts are known less well than the rest: published runs of releases before 2026-06 took up to 1.5 times "
      "what is predicted; recipes since then overlap, graph and fuse what is not modelled, and take down to 0.7 times",
      "docs/accuracy.md, Experts", 0 },
    is_of_experts, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_EP) },
  { { "rocm-is-not-fitted", "nothing was fitted to runs on AMD's GPUs: kernels have the rates of published tests, frameworks do what they do "
      "on NVIDIA's; stack=megatron and megatron-fsdp mean ROCm's fork of Megatron-LM, in which Megatron-FSDP is tried with tp=1",
      "db/data/parameters.csv, default-cdna3-1; ROCm/Megatron-LM PRs #102 and #113", 0 },
    is_on_rocm, PLAN_ADD_DEVICES, PLAN_SHOW (PLAN_STACK) },
  { { "grads-are-cast", "gradients in another format than the main weights are cast for the optimizer: 4 bytes per "
      "parameter of the shard more, until they are next zeroed; precision_aware=on avoids it",
      "Megatron-LM param_and_grad_buffer.py", 0 },
    casts_grads, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_MAIN_GRADS, PLAN_MAIN_PARAMS, PLAN_PRECISION_AWARE) },
  { { "core-attn-saves-little", "recomputing core_attn with fused attention saves almost nothing and runs attention again: "
      "recompute mlp instead", "Megatron-LM transformer_config.py warns of it", 0 },
    recomputes_fused_attention, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_RECOMPUTE_MODULES) },
  { { "layernorm-saves-nothing", "recomputing layernorm does nothing in models without experts, whose norms "
      "Transformer Engine fuses into the products behind them", "Megatron-LM transformer_layer.py", 0 },
    recomputes_fused_norms, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_RECOMPUTE_MODULES) },
  { { "sync-reduces-again", "sync_every_micro_batch reduces the same buffer in every micro batch where gradients are not "
      "sharded, or replicated: the caller must zero it each time",
      "Megatron-LM megatron_fsdp.py 1225, which warns of it; PR #3067", 0 },
    syncs_unsharded, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STRATEGY, PLAN_DP_OUTER), PLAN_LEVEL (LEARNING) },
  { { "norm-per-replica", "the gradient norm is taken within one replica, which under outer_strategy=optim holds only "
      "its part: each replica clips by a smaller norm, of its own",
      "Megatron-LM optimizer/__init__.py 674 and 1146, clip_grads.py 127, as read", 0 },
    norm_per_replica, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_OUTER_STRATEGY, PLAN_DP_OUTER), PLAN_LEVEL (LEARNING) },
  { { "grad-pool-may-race", "a pooled buffer of gradients is filled again without a wait for the reduction that reads it; the gather "
      "that hides this is on another communicator or absent here. comm_unit below the elements of a unit, and of the head, makes "
      "compute wait", "Megatron-LM param_and_grad_buffer.py 3915, 3977, 3099; since PR #4054; as read", 0 },
    pool_races, PLAN_ADD_MODEL, PLAN_SHOW (PLAN_DOUBLE_BUFFER, PLAN_AG_GROUP, PLAN_STRATEGY, PLAN_COMM_UNIT), PLAN_LEVEL (LEARNING) },
  { { "double-buffer-unused", "double_buffer has no effect with strategy=no_shard, which has no units",
      "Megatron-LM param_and_grad_buffer.py", 0 },
    pool_unused, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_DOUBLE_BUFFER) },
  { { "all-to-all-unused", "reduce_algo=a2a has no effect with strategy=no_shard, which has no shards to sum: gradients are "
      "all-reduced", "Megatron-LM param_and_grad_buffer.py", 0 },
    all_to_all_unused, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_REDUCE_ALGO, PLAN_STRATEGY) },
  { { "sum-rounds-per-hop", "grad_comm narrower than main_grads rounds the sum at every hop of a ring; nccl_ub=on with "
      "NCCL 2.27 or newer (inside NVLink, where its symmetric kernel is taken) or, on stack=native, reduce_algo=a2a sums in fp32",
      "NCCL symmetric kernels; Megatron-LM PR #3067", 0 },
    rounds_per_hop, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_GRAD_COMM, PLAN_MAIN_GRADS, PLAN_NCCL_UB, PLAN_NCCL) },
  { { "scales-in-bf16", "per_token_loss=off scales every bf16 bucket by 1/DP before it is reduced: one more pass over it, "
      "and one more rounding", "Megatron-LM param_and_grad_buffer.py", 0 },
    scales_in_bf16, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_PER_TOKEN_LOSS, PLAN_GRAD_COMM) },
  { { "wants-one-connection", "tp or cp above 1 before Blackwell wants CUDA_DEVICE_MAX_CONNECTIONS=1, which Megatron-FSDP "
      "forbids: their communication overlaps less", "Megatron-LM arguments.py warns of it", 0 },
    wants_one_connection, PLAN_ADD_DEVICES, PLAN_SHOW (PLAN_TP, PLAN_CP) },
  { { "fine-grained-is-forced", "param_gather=mxfp8 brings fine_grained=on, though only recomputing needs it",
      "Megatron-LM PR #4181", 0 },
    forces_fine_grained, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_FINE_GRAINED, PLAN_RECOMPUTE) },
  { { "fp8-loses-small-squares", "exp_avg_sq=fp8 has one scale per parameter tensor: squares below a 450,000th of the "
      "largest become 0, and their weights take steps that are too long; bf16 keeps them",
      "fsdplan run, 0.8M parameters: after 150 steps a loss of 2.10 where fp32 and bf16 have 1.76", 0 },
    loses_small_squares, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_EXP_AVG_SQ), PLAN_LEVEL (LEARNING) },
  { { "lone-experts-add-again", "where ep leaves no two ranks with the same experts in a sharding group, Megatron-FSDP reduces their "
      "gradients onto themselves: what has accumulated doubles, or is scaled again, with every micro batch; a smaller ep, or one "
      "micro batch, avoids it", "Megatron-LM issue #6660", 0 },
    experts_reduce_alone, PLAN_ADD_DEVICES, PLAN_SHOW (PLAN_EP, PLAN_ETP, PLAN_DP_OUTER, PLAN_GBS, PLAN_MBS), PLAN_LEVEL (LEARNING) },
  { { "pipeline-waits", "with fewer micro batches than pipeline stages every stage waits for others for at least half of the step: a larger "
      "gbs, a smaller mbs or a smaller pp shortens that",
      "1F1B: of micro batches + pp - 1 turns pp - 1 are empty (arXiv 2104.04473, section 2.2)", 0 },
    waits_for_stages, PLAN_ADD_DEVICES, PLAN_SHOW (PLAN_PP, PLAN_GBS, PLAN_MBS) },
  { { "tokens-are-waited-for", "compute waits for tokens that are sent to experts; with ep_overlap=on they travel beside another micro "
      "batch, with pp=1 or vpp above 1, which query tries on the best plans, and on all with --only ep_overlap=off,on", "Megatron-LM combined_1f1b.py", 0 },
    waits_for_tokens, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_EP, PLAN_EP_OVERLAP) },
  { { "overlap-saves-less", "what ep_overlap=on saves is known from two pairs of published runs alone, and was less than is predicted: "
      "26 % of a step where 37 % is, and 11 % where 28 % is; measure it before you count on it", "docs/accuracy.md, Experts", 0 },
    overlaps_experts, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_EP, PLAN_EP_OVERLAP) },
  { { "weights-come-late", "with ep_overlap=on hooks of a forward pass take it for recompute as long as the backward pass beside it has not "
      "left the layer, and gather nothing ahead: compute waits for the weights of half of its layers; with strategy=optim_grads they "
      "are there", "Megatron-LM megatron_fsdp.py 796", 0 },
    gathers_late, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STRATEGY, PLAN_EP_OVERLAP) },
  { { "dispatcher-is-a-library", "moe_dispatcher=deepep and hybridep call DeepEP (hybridep its branch hybrid-ep), which must be built for "
      "the cluster's network; moe_dispatcher=alltoall needs NCCL alone", "Megatron-LM transformer/moe/fused_a2a.py", 0 },
    wants_deepep, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_MOE_DISPATCHER, PLAN_EP) },
  { { "delta-rule-is-a-library", "linear attention by the gated delta rule runs kernels of flash-linear-attention, without which "
      "Megatron-LM stops (pip install flash-linear-attention)", "Megatron-LM ssm/gated_delta_net/common.py, HAVE_FLA", 0 },
    wants_fla, PLAN_ADD_NAME, PLAN_SHOW (PLAN_STACK) },
  { { "state-space-is-a-library", "layers M of a pattern run kernels of mamba_ssm and causal_conv1d, without which Megatron-LM stops (pip "
      "install mamba-ssm causal-conv1d)", "Megatron-LM ssm/mamba_mixer.py, HAVE_MAMBA_SSM", 0 },
    wants_mamba, PLAN_ADD_NAME, PLAN_SHOW (PLAN_STACK) },
};
/* clang-format on */

static const PlanRuleEntry *
hazard_at (guint i)
{
  return i < G_N_ELEMENTS (hazards) ? &hazards[i] : NULL;
}

GPtrArray *
plan_hazards_of (const PlanCase *of)
{
  static const char *const beginnings[] = {
#define X(id, words) words,
    PLAN_HAZARD_LEVELS (X)
#undef X
  };
  const PlanFacts facts = { .value = of->plan.value,
                            .plan = &of->plan,
                            .model = of->model,
                            .cluster = of->cluster,
                            .stack = of->stack,
                            .of = of };
  GPtrArray *texts = g_ptr_array_new_with_free_func (g_free);
  for (guint level = G_N_ELEMENTS (beginnings); level-- > 0;)
    for (guint i = 0; hazard_at (i); i++)
      {
        const PlanRuleEntry *const entry = hazard_at (i);
        if (entry->level != level || !entry->is_broken (&facts))
          continue;
        g_autofree char *text = plan_rules_describe (entry, &facts);
        g_ptr_array_add (texts,
                         g_strdup_printf ("%s: %s%s", entry->rule.name, beginnings[level], text));
      }
  return texts;
}

PlanHazardLevel
plan_hazards_level (const Plan *resolved, const PlanModel *model, const PlanCluster *cluster)
{
  const PlanFacts facts = plan_rules_facts (resolved, model, cluster);
  PlanHazardLevel level = PLAN_HAZARD_COST;
  const PlanRuleEntry *entry;
  for (guint i = 0; (entry = hazard_at (i)); i++)
    if (entry->level > level && entry->is_broken (&facts))
      level = entry->level;
  return level;
}

guint
plan_hazards_n (void)
{
  guint n = 0;
  while (hazard_at (n))
    n++;
  return n;
}

const PlanRule *
plan_hazards_get (guint i, PlanHazardLevel *out_level)
{
  const PlanRuleEntry *entry = hazard_at (i);
  g_return_val_if_fail (entry, NULL);
  if (out_level)
    *out_level = entry->level;
  return &entry->rule;
}
