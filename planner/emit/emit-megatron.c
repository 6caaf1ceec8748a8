/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a plan in Megatron-LM's flags, the inverse of megatron.c. Comments cite files of
 * Megatron-LM at d98e8a64 (2026-08-22). */
#include "config.h"

#include "planner/base/units.h"
#include "planner/emit/emit-private.h"
#include "planner/megatron/megatron.h"
#include "planner/plan/pp-layout.h"
#include "planner/plan/stages.h"
#include "planner/schedule/quantizers.h"

#define F(id) PLAN_MEGATRON_##id
#define IS(field, id) (e->value[PLAN_##field] == PLAN_##field##_##id)
#define SAID (-2) /* a default that no field ever has, so that the flag is always written */

typedef struct
{
  const PlanEmitSubject *subject;
  const gint64 *value;
  PlanEmitCommand *command;
  GPtrArray *reasons;
  gboolean is_ddp; /* stack=megatron: data parallelism, possibly with the distributed optimizer */
} Emit;

/* Fields with a flag of the same values, in the order in which they are written, and the value that
 * needs no flag because it is Megatron-LM's default. */
static const struct
{
  PlanField field;
  PlanEmitGroup group;
  gint64 unsaid;
  gboolean is_fsdp; /* acts on Megatron-FSDP only */
} fields[] = {
  { PLAN_SEQ, PLAN_EMIT_GROUP_BATCH, SAID, FALSE },
  { PLAN_MBS, PLAN_EMIT_GROUP_BATCH, SAID, FALSE },
  { PLAN_GBS, PLAN_EMIT_GROUP_BATCH, SAID, FALSE },
  { PLAN_TP, PLAN_EMIT_GROUP_BATCH, SAID, FALSE },
  { PLAN_CP, PLAN_EMIT_GROUP_BATCH, SAID, FALSE },
  { PLAN_PP, PLAN_EMIT_GROUP_BATCH, SAID, FALSE },
  { PLAN_VPP, PLAN_EMIT_GROUP_BATCH, 1, FALSE },
  { PLAN_PP_GROUP, PLAN_EMIT_GROUP_BATCH, PLAN_UNSET, FALSE },
  { PLAN_PP_OVERLAP, PLAN_EMIT_GROUP_BATCH, PLAN_PP_OVERLAP_ON, FALSE },
  { PLAN_PP_FIRST_LAYERS, PLAN_EMIT_GROUP_BATCH, PLAN_UNSET, FALSE },
  { PLAN_PP_LAST_LAYERS, PLAN_EMIT_GROUP_BATCH, PLAN_UNSET, FALSE },
  { PLAN_PP_COUNT_EMBEDDING, PLAN_EMIT_GROUP_BATCH, SAID, FALSE },
  { PLAN_PP_COUNT_LOSS, PLAN_EMIT_GROUP_BATCH, SAID, FALSE },
  { PLAN_EP, PLAN_EMIT_GROUP_BATCH, 1, FALSE },
  { PLAN_ETP, PLAN_EMIT_GROUP_EXPERTS, SAID, FALSE }, /* Megatron-LM's default is tp */
  { PLAN_MOE_GROUPED_GEMM, PLAN_EMIT_GROUP_EXPERTS, SAID, FALSE },
  { PLAN_MOE_PERMUTE_FUSION, PLAN_EMIT_GROUP_EXPERTS, SAID, FALSE },
  { PLAN_MOE_ROUTER_FUSION, PLAN_EMIT_GROUP_EXPERTS, SAID, FALSE },
  { PLAN_MOE_CAPACITY, PLAN_EMIT_GROUP_EXPERTS, 0, FALSE },
  { PLAN_MOE_PAD_TO_CAPACITY, PLAN_EMIT_GROUP_EXPERTS, SAID, FALSE },
  { PLAN_MOE_DROP, PLAN_EMIT_GROUP_EXPERTS, PLAN_MOE_DROP_PROBS, FALSE },
  { PLAN_MOE_SHARED_OVERLAP, PLAN_EMIT_GROUP_EXPERTS, SAID, FALSE },
  { PLAN_EP_OVERLAP, PLAN_EMIT_GROUP_EXPERTS, SAID, FALSE },
  { PLAN_EP_DELAY_WGRAD, PLAN_EMIT_GROUP_EXPERTS, SAID, FALSE },
  { PLAN_STRATEGY, PLAN_EMIT_GROUP_SHARDING, SAID, TRUE },
  { PLAN_DP_OUTER, PLAN_EMIT_GROUP_SHARDING, 1, FALSE },
  { PLAN_OUTER_STRATEGY, PLAN_EMIT_GROUP_SHARDING, PLAN_OUTER_STRATEGY_NO_SHARD, TRUE },
  { PLAN_PER_TOKEN_LOSS, PLAN_EMIT_GROUP_SHARDING, SAID, FALSE },
  { PLAN_EOD_MASK_LOSS, PLAN_EMIT_GROUP_DATA, SAID, FALSE },
  { PLAN_MAIN_PARAMS, PLAN_EMIT_GROUP_SHARDING, SAID, TRUE },
  { PLAN_MAIN_GRADS, PLAN_EMIT_GROUP_SHARDING, SAID, TRUE },
  { PLAN_GRAD_COMM, PLAN_EMIT_GROUP_SHARDING, SAID, TRUE },
  { PLAN_GRAD_ACCUM_FUSION, PLAN_EMIT_GROUP_SHARDING, SAID, FALSE },
  { PLAN_COMM_UNIT, PLAN_EMIT_GROUP_SHARDING, PLAN_UNSET, TRUE },
  { PLAN_NCCL_UB, PLAN_EMIT_GROUP_SHARDING, SAID, TRUE },
  { PLAN_AG_GROUP, PLAN_EMIT_GROUP_SHARDING, SAID, TRUE },
  { PLAN_FINE_GRAINED, PLAN_EMIT_GROUP_SHARDING, SAID, TRUE },
  { PLAN_KEEP_TRANSPOSE, PLAN_EMIT_GROUP_SHARDING, SAID, TRUE },
  { PLAN_ATTENTION_DROPOUT, PLAN_EMIT_GROUP_MODEL, SAID, FALSE },
  { PLAN_HIDDEN_DROPOUT, PLAN_EMIT_GROUP_MODEL, SAID, FALSE },
  { PLAN_CE_FUSION, PLAN_EMIT_GROUP_PRECISION, SAID, FALSE },
  { PLAN_DETERMINISTIC, PLAN_EMIT_GROUP_PRECISION, SAID, FALSE },
  { PLAN_PRECISION_AWARE, PLAN_EMIT_GROUP_MEMORY, SAID, FALSE },
  { PLAN_EXP_AVG, PLAN_EMIT_GROUP_MEMORY, PLAN_EXP_AVG_FP32, FALSE },
  { PLAN_EXP_AVG_SQ, PLAN_EMIT_GROUP_MEMORY, PLAN_EXP_AVG_SQ_FP32, FALSE },
  { PLAN_OFFLOAD_LAYERS, PLAN_EMIT_GROUP_MEMORY, 0, FALSE },
};

static void
add (const Emit *e, PlanEmitGroup group, PlanMegatronFlag flag, const char *value)
{
  plan_emit_line (e->command->groups[group], "%s%s%s", plan_megatron_flag_name (flag),
                  value ? " " : "", value ? value : "");
}

static void
add_if (const Emit *e, gboolean is_so, PlanEmitGroup group, PlanMegatronFlag flag,
        const char *value)
{
  if (is_so)
    add (e, group, flag, value);
}

/* Adds the flags that every run of this stack needs. */
static void
add_always (const Emit *e)
{
  e->command->unsets_connections = !e->is_ddp;
  if (e->is_ddp)
    {
      add_if (e, IS (STRATEGY, OPTIM), PLAN_EMIT_GROUP_SHARDING, F (DISTRIBUTED_OPTIMIZER), NULL);
      plan_emit_line (e->command->environment, "CUDA_DEVICE_MAX_CONNECTIONS=%d",
                      IS (EP_OVERLAP, ON) ? 32 : 1); /* required by arguments.py 1466 */
      return;
    }
  add (e, PLAN_EMIT_GROUP_SHARDING, F (MEGATRON_FSDP), NULL);
  add (e, PLAN_EMIT_GROUP_SHARDING, F (CKPT_FORMAT), "fsdp_dtensor");
  add (e, PLAN_EMIT_GROUP_SHARDING, F (DISTRIBUTED_OPTIMIZER), NULL);
  add_if (e, !IS (STRATEGY, NO_SHARD), PLAN_EMIT_GROUP_SHARDING, F (META_DEVICE), NULL);
}

/* Whether a layout string is written, which alone can say how layers are dealt out. */
static gboolean
has_layout (const Emit *e)
{
  return e->value[PLAN_PP_LAST_SHORT] > 0 || e->value[PLAN_PP_LAYOUT] != PLAN_UNSET;
}

/* Whether a field of the pipeline is written as a part of the layout string. */
static gboolean
is_in_layout (const Emit *e, PlanField field)
{
  return has_layout (e) && (field == PLAN_VPP || field == PLAN_PP_COUNT_EMBEDDING);
}

static void
add_stages (const Emit *e)
{
  add_if (e, IS (PP_OVERLAP, WARMUP_FLUSH), PLAN_EMIT_GROUP_BATCH, F (PP_WARMUP_FLUSH), NULL);
  if (!has_layout (e))
    return;
  const PlanCase *of = e->subject->of;
  g_autofree char *layout
      = plan_pp_layout_print (plan_stages_layout (of->model, of->stack, &of->plan));
  g_autofree char *quoted = g_strdup_printf ("'%s'", layout);
  add (e, PLAN_EMIT_GROUP_BATCH, F (PP_LAYOUT), quoted);
}

static void
add_fields (const Emit *e)
{
  for (guint i = 0; i < G_N_ELEMENTS (fields); i++)
    {
      const PlanField field = fields[i].field;
      PlanMegatronFlag flag;
      if ((e->is_ddp && fields[i].is_fsdp) || !plan_field_is_of (field, e->subject->of->model)
          || is_in_layout (e, field))
        continue;
      if (!plan_megatron_flag_of_field (field, &flag))
        g_return_if_reached ();
      const PlanMegatronType type = plan_megatron_flag_type (flag);
      const gint64 value = e->value[field];
      g_autofree char *text = plan_field_print (field, value);
      if (type == PLAN_MEGATRON_TYPE_ON || type == PLAN_MEGATRON_TYPE_OFF)
        add_if (e, (value != 0) == (type == PLAN_MEGATRON_TYPE_ON), fields[i].group, flag, NULL);
      else
        add_if (e, value != fields[i].unsaid, fields[i].group, flag, text);
    }
}

/* Adds the flags of experts that `fields` does not list. */
static void
add_experts (const Emit *e)
{
  static const char *const dispatchers[] = { [PLAN_MOE_DISPATCHER_ALLTOALL] = "alltoall",
                                             [PLAN_MOE_DISPATCHER_ALLGATHER] = "allgather",
                                             [PLAN_MOE_DISPATCHER_DEEPEP] = "flex",
                                             [PLAN_MOE_DISPATCHER_HYBRIDEP] = "flex" };
  const PlanEmitGroup group = PLAN_EMIT_GROUP_EXPERTS;
  const gint64 dispatcher = e->value[PLAN_MOE_DISPATCHER];
  if (e->subject->of->model->experts == 0)
    return;
  add (e, group, F (MOE_DISPATCHER), dispatchers[dispatcher]);
  add_if (e, g_str_equal (dispatchers[dispatcher], "flex"), group, F (MOE_FLEX_BACKEND),
          plan_field_names (PLAN_MOE_DISPATCHER)[dispatcher]);
  add_if (e, IS (ROUTER_DTYPE, FP32) && !IS (COMPUTE, FP32), group, F (MOE_ROUTER_DTYPE), "fp32");
}

static void
add_overlap (const Emit *e)
{
  const PlanEmitGroup group = PLAN_EMIT_GROUP_SHARDING;
  add_if (e, IS (SP, ON), PLAN_EMIT_GROUP_BATCH, F (SEQUENCE_PARALLEL), NULL);
  add_if (e, IS (TP_OVERLAP, UB), PLAN_EMIT_GROUP_BATCH, F (TP_COMM_OVERLAP), NULL);
  add_if (e, IS (OVERLAP_GRAD_REDUCE, ON), group, F (OVERLAP_GRAD_REDUCE), NULL);
  add_if (e, IS (OVERLAP_PARAM_GATHER, ON) && !(e->is_ddp && IS (STRATEGY, NO_SHARD)), group,
          F (OVERLAP_PARAM_GATHER), NULL);
  add_if (e, !IS (DOUBLE_BUFFER, OFF), group, F (DOUBLE_BUFFER), NULL);
  add_if (e, IS (DOUBLE_BUFFER, MAX_POOL), group, F (MAX_POOL), NULL);
  add_if (e, IS (NCCL_UB, ON), group, F (MANUAL_REGISTRATION), NULL);
  add_if (e, IS (SHARP, IB) || IS (SHARP, NVL_IB), group, F (USE_SHARP), NULL);
  if (IS (SHARP, NVL) || IS (SHARP, NVL_IB))
    plan_emit_line (e->command->environment, "NCCL_NVLS_ENABLE=1");
}

/* Adds the formats of stack=megatron, which keeps and sends gradients in one format. */
static void
add_states (const Emit *e)
{
  const PlanEmitGroup group = PLAN_EMIT_GROUP_SHARDING;
  if (!e->is_ddp)
    return;
  add_if (e, IS (MAIN_GRADS, FP32) && !IS (COMPUTE, FP32), group, F (ACCUMULATE_FP32), NULL);
  add_if (e, IS (MAIN_GRADS, BF16), group, F (REDUCE_BF16), NULL);
  add_if (e, IS (MAIN_PARAMS, FP16), group, F (MAIN_PARAMS), "fp16");
  add_if (e, IS (REDUCE_ALGO, A2A), group, F (FP32_ACCUMULATION), NULL);
}

static void
add_compute (const Emit *e)
{
  static const char *const recipes[PLAN_COMPUTE_N_VALUES]
      = { [PLAN_COMPUTE_FP8_DELAYED] = "delayed",
          [PLAN_COMPUTE_FP8_TENSORWISE] = "tensorwise",
          [PLAN_COMPUTE_FP8_BLOCKWISE] = "blockwise",
          [PLAN_COMPUTE_MXFP8] = "mxfp8" };
  const PlanEmitGroup group = PLAN_EMIT_GROUP_PRECISION;
  const char *const recipe = recipes[e->value[PLAN_COMPUTE]];
  const gboolean is_hybrid = plan_grad_dtype (&e->subject->of->plan) == PLAN_DTYPE_E5M2;
  add_if (e, IS (COMPUTE, FP16), group, F (FP16), NULL);
  add_if (e, !IS (COMPUTE, FP16) && !IS (COMPUTE, FP32), group, F (BF16), NULL);
  if (recipe)
    {
      add (e, group, F (FP8), is_hybrid ? "hybrid" : "e4m3");
      add (e, group, F (FP8_RECIPE), recipe);
    }
  if (IS (COMPUTE,
          FP8_DELAYED)) /* as in Megatron-LM's own example; the default is a history of one step */
    {
      plan_emit_line (e->command->groups[group], "--fp8-amax-history-len %d",
                      PLAN_QUANTIZER_HISTORY);
      plan_emit_line (e->command->groups[group], "--fp8-amax-compute-algo max");
    }
  add_if (e, recipe && !IS (PARAM_GATHER, COMPUTE), group, F (FP8_PARAM), NULL);
  add_if (e,
          plan_layout_lends_grads (PLAN_BUCKET_LAYER, e->subject->of->stack, &e->subject->of->plan),
          group, F (REUSE_GRAD_BUFFER), NULL);
  add_if (e, IS (COMPUTE, NVFP4), group, F (FP4), "e2m1");
  add_if (e, IS (COMPUTE, NVFP4), group, F (FP4_RECIPE), "nvfp4");
}

/* The names in a mask, joined by blanks. */
static char *
names_of (const Emit *e, PlanField field)
{
  char *text = plan_field_print (field, e->value[field]);
  return g_strdelimit (text, "+", ' ');
}

static void
add_memory (const Emit *e)
{
  const PlanEmitGroup group = PLAN_EMIT_GROUP_MEMORY;
  g_autofree char *modules = names_of (e, PLAN_RECOMPUTE_MODULES);
  g_autofree char *offloaded = names_of (e, PLAN_OFFLOAD_MODULES);
  g_autofree char *layers
      = plan_field_print (PLAN_RECOMPUTE_LAYERS, e->value[PLAN_RECOMPUTE_LAYERS]);
  g_autofree char *method
      = plan_field_print (PLAN_RECOMPUTE_METHOD, e->value[PLAN_RECOMPUTE_METHOD]);
  g_autofree char *share
      = plan_field_print (PLAN_OFFLOAD_OPTIMIZER, e->value[PLAN_OFFLOAD_OPTIMIZER]);
  add_if (e, e->value[PLAN_OFFLOAD_OPTIMIZER] > 0, group, F (OPTIMIZER_OFFLOAD), NULL);
  add_if (e, e->value[PLAN_OFFLOAD_OPTIMIZER] > 0, group, F (OFFLOAD_FRACTION), share);
  add_if (e, IS (RECOMPUTE, FULL), group, F (RECOMPUTE), "full");
  add_if (e, IS (RECOMPUTE, FULL), group, F (RECOMPUTE_METHOD), method);
  add_if (e, IS (RECOMPUTE, FULL), group, F (RECOMPUTE_LAYERS), layers);
  add_if (e, IS (RECOMPUTE, SELECTIVE), group, F (RECOMPUTE), "selective");
  add_if (e, IS (RECOMPUTE, SELECTIVE), group, F (RECOMPUTE_MODULES), modules);
  if (e->value[PLAN_OFFLOAD_MODULES] == 0)
    return;
  add (e, group, F (OFFLOAD_ACTIVATIONS), NULL);
  add (e, group, F (OFFLOAD_MODULES), offloaded);
  plan_emit_line (e->command->environment, "NVTE_CPU_OFFLOAD_V1=1");
}

/* Adds the flags for checks and CUDA graphs of a step. */
static void
add_step (const Emit *e)
{
  const gboolean is_graph = IS (CUDA_GRAPH, ON);
  add_if (e, IS (NAN_CHECK, OFF), PLAN_EMIT_GROUP_PRECISION, F (NAN_CHECK), NULL);
  g_autofree char *graphs = names_of (e, PLAN_GRAPH_MODULES);
  add_if (e, is_graph, PLAN_EMIT_GROUP_MEMORY, F (CUDA_GRAPH), "full_iteration");
  if (e->value[PLAN_GRAPH_MODULES] != 0)
    {
      add (e, PLAN_EMIT_GROUP_MEMORY, F (CUDA_GRAPH), "transformer_engine");
      add (e, PLAN_EMIT_GROUP_MEMORY, F (CUDA_GRAPH_MODULES), graphs);
    }
  add_if (e, IS (EMPTY_CACHE, ON), PLAN_EMIT_GROUP_MEMORY, F (EMPTY_CACHE), "1");
  if (is_graph && e->value[PLAN_OFFLOAD_MODULES] != 0) /* transformer_config.py wants a number */
    plan_emit_line (e->command->groups[PLAN_EMIT_GROUP_MEMORY],
                    "--fine-grained-offloading-max-inflight-offloads 1");
}

static void
add_data_and_training (const Emit *e)
{
  static const char *const training[] = { "--train-iters 100",        "--lr 1.5e-4",
                                          "--min-lr 1.5e-5",          "--lr-warmup-iters 5",
                                          "--weight-decay 0.1",       "--lr-decay-style cosine",
                                          "--clip-grad 1.0",          "--seed 1234",
                                          "--log-interval 1",         "--log-throughput",
                                          "--eval-iters 0",           "--manual-gc",
                                          "--manual-gc-interval 100", "--log-memory-interval 10" };
  GPtrArray *const data = e->command->groups[PLAN_EMIT_GROUP_DATA];
  plan_emit_line (data, "--mock-data");
  add (e, PLAN_EMIT_GROUP_DATA, F (TOKENIZER_TYPE), "NullTokenizer");
  plan_emit_line (data, "%s %" G_GINT64_FORMAT, plan_megatron_flag_name (F (VOCAB_SIZE)),
                  e->subject->of->model->vocab);
  plan_emit_line (data, "--split 99,1,0");
  plan_emit_line (data, "--no-create-attention-mask-in-dataloader");
  if (e->value[PLAN_DOC_TOKENS] > 0)
    plan_emit_line (data, "--dataloader-inter-document-masking");
  add (e, PLAN_EMIT_GROUP_TRAINING, F (OPTIMIZER), IS (OPTIMIZER, SGD) ? "sgd" : "adam");
  if (IS (OPTIMIZER, ADAMW)) /* Megatron-LM's default is 0.999 */
    plan_emit_line (e->command->groups[PLAN_EMIT_GROUP_TRAINING], "--adam-beta2 0.95");
  for (guint i = 0; i < G_N_ELEMENTS (training); i++)
    plan_emit_line (e->command->groups[PLAN_EMIT_GROUP_TRAINING], "%s", training[i]);
}

/* Refuses what no flag expresses, or what another flag of the plan excludes. */
static void
refuse (const Emit *e)
{
  GPtrArray *const reasons = e->reasons;
  plan_emit_refuse_common (e->subject, TRUE, reasons);
  plan_emit_refuse (reasons, IS (NAN_CHECK, PARAMS),
                    "nan_check=params: there is no flag for it: use loss or off, or --as "
                    "megatron_fsdp");
  plan_emit_refuse (reasons,
                    e->is_ddp && IS (STRATEGY, NO_SHARD) && IS (OVERLAP_PARAM_GATHER, OFF)
                        && IS (OVERLAP_GRAD_REDUCE, ON),
                    "overlap_param_gather=off: strategy=no_shard gathers nothing: use on");
  plan_emit_refuse (reasons, IS (SYNC_EVERY_MICRO_BATCH, ON),
                    "sync_every_micro_batch=on: Megatron-LM's loop does not: use off, or --as "
                    "megatron_fsdp");
  plan_emit_refuse (reasons, IS (TASK, EVAL),
                    "task=eval: Megatron-LM evaluates within training only: use train");
  plan_emit_refuse (reasons, IS (ROUTER_DTYPE, BF16) && IS (COMPUTE, FP32),
                    "router_dtype=bf16: a router computes in fp32, or as all else does: use fp32");
}

void
plan_emit_megatron (const PlanEmitSubject *subject, PlanEmitCommand *out_command,
                    GPtrArray *reasons)
{
  const gint64 *const value = subject->of->plan.value;
  const Emit emit = { .subject = subject,
                      .value = value,
                      .command = out_command,
                      .reasons = reasons,
                      .is_ddp = value[PLAN_STACK] % PLAN_STACK_BASE == PLAN_STACK_MEGATRON };
  const Emit *const e = &emit;
  for (guint i = 0; i < PLAN_EMIT_N_GROUPS; i++)
    out_command->groups[i] = g_ptr_array_new_with_free_func (g_free);
  out_command->environment = g_ptr_array_new_with_free_func (g_free);
  refuse (e);
  plan_emit_megatron_model (subject->of->model, e->value[PLAN_SEQ],
                            out_command->groups[PLAN_EMIT_GROUP_MODEL], reasons);
  add_data_and_training (e); /* first: its hint names the first two lines of the data */
  add_compute (e);
  add_always (e);
  add_fields (e);
  add_stages (e);
  add_experts (e);
  add_states (e);
  add_overlap (e);
  add_memory (e);
  add_step (e);
}
