/* SPDX-License-Identifier: Apache-2.0 */
/* Translates flags. Most fields of a plan have a flag with the same values; these are in a table,
 * for reading and for writing. The rest is derived, field by field. */
#include "config.h"

#include "planner/megatron/megatron.h"

#include "planner/base/error.h"
#include "planner/megatron/megatron-rules.h"
#include "planner/megatron/megatron-stages.h"

#include <string.h>

#define NEWEST G_GINT64_CONSTANT (99999999)
#define FUSED_MASTERS_GONE 20260410 /* fused master weights were removed: PR #4133 */

#define F(id) PLAN_MEGATRON_##id

/* The stacks on which a flag acts. */
typedef enum
{
  ANY,
  FSDP,
  EXPERTS, /* any stack, for models with experts */
} Reach;

static const struct
{
  PlanField field;
  PlanMegatronFlag flag;
  Reach reach;
} same[] = {
  { PLAN_DP_OUTER, F (OPTIMIZER_INSTANCES), ANY },
  { PLAN_TP, F (TP), ANY },
  { PLAN_CP, F (CP), ANY },
  { PLAN_EP, F (EP), ANY },
  { PLAN_PP, F (PP), ANY },
  { PLAN_VPP, F (VPP), ANY },
  { PLAN_PP_GROUP, F (PP_GROUP), ANY },
  { PLAN_PP_OVERLAP, F (PP_OVERLAP), ANY },
  { PLAN_PP_FIRST_LAYERS, F (PP_FIRST_LAYERS), ANY },
  { PLAN_PP_LAST_LAYERS, F (PP_LAST_LAYERS), ANY },
  { PLAN_PP_COUNT_EMBEDDING, F (PP_COUNT_EMBEDDING), ANY },
  { PLAN_PP_COUNT_LOSS, F (PP_COUNT_LOSS), ANY },
  { PLAN_MBS, F (MBS), ANY },
  { PLAN_GBS, F (GBS), ANY },
  { PLAN_SEQ, F (SEQ_LENGTH), ANY },
  { PLAN_EXP_AVG, F (EXP_AVG), ANY },
  { PLAN_EXP_AVG_SQ, F (EXP_AVG_SQ), ANY },
  { PLAN_PRECISION_AWARE, F (PRECISION_AWARE), ANY },
  { PLAN_OFFLOAD_LAYERS, F (OFFLOAD_LAYERS), ANY },
  { PLAN_GRAD_ACCUM_FUSION, F (GRAD_ACCUM_FUSION), ANY },
  { PLAN_PER_TOKEN_LOSS, F (PER_TOKEN_LOSS), ANY },
  { PLAN_EOD_MASK_LOSS, F (EOD_MASK_LOSS), ANY },
  { PLAN_CE_FUSION, F (CE_FUSION), ANY },
  { PLAN_HIDDEN_DROPOUT, F (HIDDEN_DROPOUT), ANY },
  { PLAN_ATTENTION_DROPOUT, F (ATTENTION_DROPOUT), ANY },
  { PLAN_DETERMINISTIC, F (DETERMINISTIC), ANY },
  { PLAN_NCCL_UB, F (NCCL_UB), ANY },
  { PLAN_ETP, F (ETP), EXPERTS },
  { PLAN_MOE_GROUPED_GEMM, F (MOE_GROUPED_GEMM), EXPERTS },
  { PLAN_MOE_PERMUTE_FUSION, F (MOE_PERMUTE_FUSION), EXPERTS },
  { PLAN_MOE_ROUTER_FUSION, F (MOE_ROUTER_FUSION), EXPERTS },
  { PLAN_MOE_CAPACITY, F (MOE_CAPACITY), EXPERTS },
  { PLAN_MOE_PAD_TO_CAPACITY, F (MOE_PAD_TO_CAPACITY), EXPERTS },
  { PLAN_MOE_DROP, F (MOE_DROP), EXPERTS },
  { PLAN_MOE_SHARED_OVERLAP, F (MOE_SHARED_OVERLAP), EXPERTS },
  { PLAN_EP_OVERLAP, F (EP_OVERLAP), EXPERTS },
  { PLAN_EP_DELAY_WGRAD, F (DELAY_WGRAD), EXPERTS },
  { PLAN_STRATEGY, F (STRATEGY), FSDP },
  { PLAN_OUTER_STRATEGY, F (OUTER_STRATEGY), FSDP },
  { PLAN_COMM_UNIT, F (COMM_UNIT), FSDP },
  { PLAN_AG_GROUP, F (AG_GROUP), FSDP },
  { PLAN_FINE_GRAINED, F (FINE_GRAINED), FSDP },
  { PLAN_KEEP_TRANSPOSE, F (KEEP_TRANSPOSE), FSDP },
  { PLAN_MAIN_PARAMS, F (FSDP_MAIN_PARAMS), FSDP },
  { PLAN_MAIN_GRADS, F (FSDP_MAIN_GRADS), FSDP },
  { PLAN_GRAD_COMM, F (FSDP_GRAD_COMM), FSDP },
};

/* Defaults of older versions of Megatron-LM, each valid from `since` until the next entry of the
 * same flag. The last entry of a flag is the value in megatron-flags.h. */
static const struct
{
  PlanMegatronFlag flag;
  gint64 since;
  const char *initial;
} history[] = {
  { F (STRATEGY), 0, "no_shard" },
  { F (STRATEGY), 20260401, "optim_grads_params" }, /* PR #3691 */
  { F (FSDP_MAIN_GRADS), 0, "auto" },        /* no such flag yet: 'auto' with forced_fp32 below */
  { F (FSDP_MAIN_GRADS), 20260302, "fp32" }, /* PR #3067 */
  { F (FSDP_MAIN_GRADS), 20260316, "auto" }, /* PR #3810 */
  { F (FSDP_GRAD_COMM), 0, "auto" },
  { F (FSDP_GRAD_COMM), 20260302, "fp32" },
  { F (FSDP_GRAD_COMM), 20260316, "auto" },
};

/* Older versions of Megatron-FSDP accumulated in fp32 wherever the distributed optimizer did so, as
 * it does by default for bf16. Each entry says, from `since` on, for which of the two formats. */
static const struct
{
  gint64 since;
  gboolean main_grads, grad_comm;
} forced_fp32[] = {
  { 0, TRUE, TRUE },
  { 20260302, TRUE, FALSE }, /* PR #3067 */
  { 20260316, TRUE, TRUE },  /* PR #3810 */
  { 20260701, FALSE, FALSE } /* PR #5462 */
};

/* Flags that versions before `since` do not have. */
static const struct
{
  PlanMegatronFlag flag;
  gint64 since;
} arrivals[] = {
  { F (MEGATRON_FSDP), 20250821 },
  { F (OUTER_STRATEGY), 20260126 },
  { F (AG_GROUP), 20260126 },
  { F (FSDP_MAIN_PARAMS), 20260302 },
  { F (FSDP_MAIN_GRADS), 20260302 },
  { F (FSDP_GRAD_COMM), 20260302 },
  { F (FINE_GRAINED), 20260521 },
  { F (MAX_POOL), 20260701 },
  { F (PERSIST_ON_FAIL), 20260701 },
  { F (FSDP_VERSION), 20260731 },
  { F (MANUAL_REGISTRATION), 20251224 },
};

gboolean
plan_megatron_flag_of_field (PlanField field, PlanMegatronFlag *out_flag)
{
  for (guint i = 0; i < G_N_ELEMENTS (same); i++)
    if (same[i].field == field)
      {
        *out_flag = same[i].flag;
        return TRUE;
      }
  return FALSE;
}

static void
apply_history (PlanMegatronSettings *settings, gint64 date, GPtrArray *notes)
{
  for (guint i = 0; i < G_N_ELEMENTS (history); i++)
    if (date >= history[i].since)
      settings->of[history[i].flag].initial = history[i].initial;
  for (guint i = 0; !settings->is_log && i < G_N_ELEMENTS (arrivals); i++)
    if (date < arrivals[i].since && plan_megatron_is_given (settings, arrivals[i].flag))
      plan_megatron_notes_add (notes, PLAN_MEGATRON_ERROR, settings->of[arrivals[i].flag].line,
                               plan_megatron_flag_name (arrivals[i].flag),
                               "came on %04d-%02d-%02d: the version asked for does not know it",
                               (int)(arrivals[i].since / 10000),
                               (int)(arrivals[i].since / 100 % 100),
                               (int)(arrivals[i].since % 100));
}

/* Whether the distributed optimizer accumulates and reduces in fp32, which arguments.py makes the
 * default for bf16. */
static gboolean
accumulates_fp32 (const PlanMegatronSettings *s)
{
  if (plan_megatron_is_on (s, F (BF16)))
    return !plan_megatron_is_on (s, F (REDUCE_BF16))
           && (plan_megatron_is_on (s, F (ACCUMULATE_FP32))
               || plan_megatron_is (s, F (MAIN_GRADS), "fp32"));
  return plan_megatron_is_on (s, F (ACCUMULATE_FP32)) || !plan_megatron_is_on (s, F (FP16));
}

static void
set_stack (Plan *plan, const PlanMegatronSettings *s, gint64 stack_date)
{
  gint64 *const value = plan->value;
  const gboolean is_fsdp = plan_megatron_is_fsdp (s);
  const gboolean is_torch = plan_megatron_is_on (s, F (TORCH_FSDP2));
  value[PLAN_STACK] = (is_fsdp    ? PLAN_STACK_MEGATRON_FSDP
                       : is_torch ? PLAN_STACK_FSDP2
                                  : PLAN_STACK_MEGATRON)
                      + PLAN_STACK_BASE * stack_date;
  if (!is_fsdp && is_torch)
    value[PLAN_STRATEGY] = plan_megatron_is_on (s, F (FSDP2_RESHARD))
                               ? PLAN_STRATEGY_OPTIM_GRADS_PARAMS
                               : PLAN_STRATEGY_OPTIM_GRADS;
  else if (!is_fsdp)
    value[PLAN_STRATEGY] = plan_megatron_is_on (s, F (DISTRIBUTED_OPTIMIZER))
                               ? PLAN_STRATEGY_OPTIM
                               : PLAN_STRATEGY_NO_SHARD;
}

static gboolean
set_same (Plan *plan, const PlanMegatronSettings *s, GError **error)
{
  const gboolean reaches[] = { [ANY] = TRUE,
                               [FSDP] = plan_megatron_is_fsdp (s),
                               [EXPERTS] = plan_megatron_int (s, F (NUM_EXPERTS)) > 0 };
  for (guint i = 0; i < G_N_ELEMENTS (same); i++)
    {
      const char *const given = plan_megatron_value (s, same[i].flag);
      const gboolean is_none /* a negative capacity means none (transformer_config.py 1837) */
          = given && same[i].flag == F (MOE_CAPACITY) && given[0] == '-';
      const char *const value = is_none ? "none" : given;
      if (value && reaches[same[i].reach]
          && !plan_set (plan, plan_field_name (same[i].field), value, error))
        {
          g_prefix_error (error, "%s: ", plan_megatron_flag_name (same[i].flag));
          return FALSE;
        }
    }
  if (plan->value[PLAN_PP] == 1) /* one stage has all layers, whatever its ends count as */
    {
      plan->value[PLAN_PP_COUNT_EMBEDDING] = PLAN_PP_COUNT_EMBEDDING_OFF;
      plan->value[PLAN_PP_COUNT_LOSS] = PLAN_PP_COUNT_LOSS_OFF;
    }
  return TRUE;
}

static gboolean
set_experts (Plan *plan, const PlanMegatronSettings *s, GError **error)
{
  gint64 *const value = plan->value;
  const gboolean is_flex = plan_megatron_is (s, F (MOE_DISPATCHER), "flex");
  const gboolean is_half = plan_megatron_is_on (s, F (BF16)) || plan_megatron_is_on (s, F (FP16));
  if (plan_megatron_int (s, F (NUM_EXPERTS)) == 0)
    return TRUE;
  if (is_flex && plan_megatron_is (s, F (MOE_FLEX_BACKEND), "ncclep"))
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
                   "--moe-flex-dispatcher-backend ncclep is not modelled, only deepep and hybridep "
                   "are");
      return FALSE;
    }
  if (!plan_megatron_is_given (s, F (ETP)))
    value[PLAN_ETP] = value[PLAN_TP]; /* the default of etp (arguments.py 587) */
  value[PLAN_MOE_DISPATCHER] = plan_megatron_is (s, F (MOE_DISPATCHER), "allgather")
                                   ? PLAN_MOE_DISPATCHER_ALLGATHER
                               : !is_flex ? PLAN_MOE_DISPATCHER_ALLTOALL
                               : plan_megatron_is (s, F (MOE_FLEX_BACKEND), "hybridep")
                                       && !plan_megatron_is_on (s, F (MOE_ENABLE_DEEPEP))
                                   ? PLAN_MOE_DISPATCHER_HYBRIDEP
                                   : PLAN_MOE_DISPATCHER_DEEPEP;
  value[PLAN_ROUTER_DTYPE] = plan_megatron_is_given (s, F (MOE_ROUTER_DTYPE)) || !is_half
                                 ? PLAN_ROUTER_DTYPE_FP32
                                 : PLAN_ROUTER_DTYPE_BF16;
  return TRUE;
}

static gboolean
set_compute (Plan *plan, const PlanMegatronSettings *s, GError **error)
{
  static const struct
  {
    const char *recipe;
    gint64 compute, gather;
  } recipes[] = { { "delayed", PLAN_COMPUTE_FP8_DELAYED, PLAN_PARAM_GATHER_FP8 },
                  { "tensorwise", PLAN_COMPUTE_FP8_TENSORWISE, PLAN_PARAM_GATHER_FP8 },
                  { "blockwise", PLAN_COMPUTE_FP8_BLOCKWISE, PLAN_PARAM_GATHER_FP8 },
                  { "mxfp8", PLAN_COMPUTE_MXFP8, PLAN_PARAM_GATHER_MXFP8 } };
  gint64 *const value = plan->value;
  const gboolean is_fp8 = plan_megatron_is_given (s, F (FP8));
  const gboolean is_fp4 = plan_megatron_is_given (s, F (FP4));
  value[PLAN_COMPUTE] = plan_megatron_is_on (s, F (BF16))   ? PLAN_COMPUTE_BF16
                        : plan_megatron_is_on (s, F (FP16)) ? PLAN_COMPUTE_FP16
                                                            : PLAN_COMPUTE_FP32;
  if ((is_fp8 && plan_megatron_is (s, F (FP8_RECIPE), "custom"))
      || (is_fp4 && plan_megatron_is (s, F (FP4_RECIPE), "custom")))
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
                   "%s custom: a recipe of one's own cannot be modelled",
                   is_fp8 ? "--fp8-recipe" : "--fp4-recipe");
      return FALSE;
    }
  for (guint i = 0; is_fp8 && i < G_N_ELEMENTS (recipes); i++)
    if (plan_megatron_is (s, F (FP8_RECIPE), recipes[i].recipe))
      {
        value[PLAN_COMPUTE] = recipes[i].compute;
        if (plan_megatron_is_on (s, F (FP8_PARAM)))
          value[PLAN_PARAM_GATHER] = recipes[i].gather;
      }
  if (is_fp4 && !is_fp8)
    {
      value[PLAN_COMPUTE] = PLAN_COMPUTE_NVFP4;
      if (plan_megatron_is_on (s, F (FP4_PARAM)))
        value[PLAN_PARAM_GATHER] = PLAN_PARAM_GATHER_NVFP4;
    }
  return TRUE;
}

/* Sets the formats of main weights and gradients that do not simply follow from a flag. */
static void
set_states (Plan *plan, const PlanMegatronSettings *s, gint64 date)
{
  gint64 *const value = plan->value;
  const gboolean in_fp32 = accumulates_fp32 (s);
  if (plan_megatron_is_fsdp (s))
    {
      guint era = 0;
      while (era + 1 < G_N_ELEMENTS (forced_fp32) && date >= forced_fp32[era + 1].since)
        era++;
      if (in_fp32 && forced_fp32[era].main_grads)
        value[PLAN_MAIN_GRADS] = PLAN_MAIN_GRADS_FP32;
      if (in_fp32 && forced_fp32[era].grad_comm)
        value[PLAN_GRAD_COMM] = PLAN_GRAD_COMM_FP32;
      return;
    }
  const gint64 low
      = plan_megatron_is_on (s, F (FP16)) ? PLAN_MAIN_GRADS_FP16 : PLAN_MAIN_GRADS_BF16;
  value[PLAN_MAIN_PARAMS] = plan_megatron_is (s, F (MAIN_PARAMS), "fp16") ? PLAN_MAIN_PARAMS_FP16
                                                                          : PLAN_MAIN_PARAMS_FP32;
  value[PLAN_MAIN_GRADS] = in_fp32 ? PLAN_MAIN_GRADS_FP32 : low;
  value[PLAN_GRAD_COMM] = value[PLAN_MAIN_GRADS];
  if (plan_megatron_is_on (s, F (FP32_ACCUMULATION)) && !in_fp32)
    value[PLAN_REDUCE_ALGO] = PLAN_REDUCE_ALGO_A2A;
}

/* Sets overlap. ZeRO-2 and 3 of Megatron-FSDP always overlap reductions with the backward pass, and
 * ZeRO-3 gathers with compute, whatever the flags say. */
static void
set_overlap (Plan *plan, const PlanMegatronSettings *s)
{
  gint64 *const value = plan->value;
  const gboolean is_fsdp = plan_megatron_is_fsdp (s);
  const gboolean is_full = value[PLAN_STRATEGY] == PLAN_STRATEGY_OPTIM_GRADS_PARAMS;
  const gboolean shards_grads = is_full || value[PLAN_STRATEGY] == PLAN_STRATEGY_OPTIM_GRADS;
  const gboolean is_torch = value[PLAN_STACK] % PLAN_STACK_BASE == PLAN_STACK_FSDP2;
  const gboolean reduces
      = plan_megatron_is_on (s, F (OVERLAP_GRAD_REDUCE)) || is_torch || (is_fsdp && shards_grads);
  const gboolean is_moot = !is_fsdp && value[PLAN_STRATEGY] == PLAN_STRATEGY_NO_SHARD;
  const gboolean gathers = plan_megatron_is_on (s, F (OVERLAP_PARAM_GATHER)) || is_torch
                           || (is_fsdp && is_full) || (is_moot && reduces);
  value[PLAN_OVERLAP_GRAD_REDUCE]
      = reduces ? PLAN_OVERLAP_GRAD_REDUCE_ON : PLAN_OVERLAP_GRAD_REDUCE_OFF;
  value[PLAN_OVERLAP_PARAM_GATHER]
      = gathers ? PLAN_OVERLAP_PARAM_GATHER_ON : PLAN_OVERLAP_PARAM_GATHER_OFF;
  value[PLAN_TP_OVERLAP]
      = plan_megatron_is_on (s, F (TP_COMM_OVERLAP)) ? PLAN_TP_OVERLAP_UB : PLAN_TP_OVERLAP_NONE;
  if (plan_megatron_is_on (s, F (CE_FUSION))
      && g_strcmp0 (plan_megatron_value (s, F (CE_IMPL)), "te") == 0)
    value[PLAN_CE_FUSION] = PLAN_CE_FUSION_TE;
  if (value[PLAN_TP] > 1)
    value[PLAN_SP] = plan_megatron_is_on (s, F (SEQUENCE_PARALLEL)) ? PLAN_SP_ON : PLAN_SP_OFF;
  if (!is_fsdp)
    return;
  value[PLAN_DOUBLE_BUFFER] = plan_megatron_is_on (s, F (MAX_POOL)) ? PLAN_DOUBLE_BUFFER_MAX_POOL
                              : plan_megatron_is_on (s, F (DOUBLE_BUFFER)) ? PLAN_DOUBLE_BUFFER_ON
                                                                           : PLAN_DOUBLE_BUFFER_OFF;
}

/* The mask of those words of a list that are values of a field; notes the others. */
static gint64
names_of (const PlanMegatronSettings *s, PlanMegatronFlag flag, PlanField field, GPtrArray *notes)
{
  const char *const list = plan_megatron_value (s, flag);
  const char *const *names = plan_field_names (field);
  g_auto (GStrv) words = g_strsplit (list ? list : "", " ", -1);
  gint64 mask = 0;
  for (char **w = words; *w; w++)
    {
      guint i = 0;
      while (names[i] && strcmp (names[i], *w) != 0)
        i++;
      if (names[i])
        mask |= G_GINT64_CONSTANT (1) << i;
      else if (**w)
        plan_megatron_notes_add (notes, PLAN_MEGATRON_WARNING, s->of[flag].line,
                                 plan_megatron_flag_name (flag), "%s is not modelled", *w);
    }
  return mask;
}

static gboolean
set_activations (Plan *plan, const PlanMegatronSettings *s, GPtrArray *notes, GError **error)
{
  gint64 *const value = plan->value;
  if (plan_megatron_is_on (s, F (OFFLOAD_ACTIVATIONS)))
    value[PLAN_OFFLOAD_MODULES] = names_of (s, F (OFFLOAD_MODULES), PLAN_OFFLOAD_MODULES, notes);
  if (plan_megatron_is_on (s, F (OPTIMIZER_OFFLOAD))
      && !plan_set (plan, "offload_optimizer", plan_megatron_value (s, F (OFFLOAD_FRACTION)),
                    error))
    {
      g_prefix_error (error, "--optimizer-offload-fraction: ");
      return FALSE;
    }
  const gboolean is_of_experts = plan_megatron_is_on (s, F (MOE_LAYER_RECOMPUTE))
                                 && plan_megatron_int (s, F (NUM_EXPERTS)) > 0;
  if (plan_megatron_is_on (s, F (RECOMPUTE_ACTIVATIONS)) || is_of_experts
      || plan_megatron_is (s, F (RECOMPUTE), "selective"))
    {
      value[PLAN_RECOMPUTE] = PLAN_RECOMPUTE_SELECTIVE;
      if (plan_megatron_is_given (s, F (RECOMPUTE_MODULES)))
        value[PLAN_RECOMPUTE_MODULES]
            = names_of (s, F (RECOMPUTE_MODULES), PLAN_RECOMPUTE_MODULES, notes);
      if (is_of_experts) /* added to what is recomputed already (transformer_config.py 2014) */
        value[PLAN_RECOMPUTE_MODULES] |= 1 << PLAN_RECOMPUTE_MODULES_MOE;
    }
  else if (plan_megatron_is (s, F (RECOMPUTE), "full"))
    {
      value[PLAN_RECOMPUTE] = PLAN_RECOMPUTE_FULL;
      if (plan_megatron_is (s, F (RECOMPUTE_METHOD), "block"))
        value[PLAN_RECOMPUTE_METHOD] = PLAN_RECOMPUTE_METHOD_BLOCK;
      value[PLAN_RECOMPUTE_LAYERS]
          = CLAMP (plan_megatron_int (s, F (RECOMPUTE_LAYERS)), 1, G_MAXINT32);
    }
  return TRUE;
}

/* The value of `sharp`: SHARP of the network has a flag; SHARP in NVLink is requested by NCCL's own
 * variable. */
static gint64
sharp_of (const PlanMegatronSettings *s)
{
  const char *const nvls
      = s->environment ? g_hash_table_lookup (s->environment, "NCCL_NVLS_ENABLE") : NULL;
  const gboolean in_nvlink = g_strcmp0 (nvls, "1") == 0;
  if (plan_megatron_is_on (s, F (USE_SHARP)))
    return in_nvlink ? PLAN_SHARP_NVL_IB : PLAN_SHARP_IB;
  return in_nvlink ? PLAN_SHARP_NVL : PLAN_SHARP_OFF;
}

#define GRAPH(id) (G_GINT64_CONSTANT (1) << PLAN_GRAPH_MODULES_##id)

/* The modules of whole layers, which graphs hold where none are named. */
static gint64
modules_of_layers (const PlanMegatronSettings *s)
{
  const char *const pattern = plan_megatron_value (s, F (HYBRID_LAYER_PATTERN));
  const gboolean has_experts = plan_megatron_int (s, F (NUM_EXPERTS)) > 0;
  if (pattern)
    return (strchr (pattern, 'M') ? GRAPH (MAMBA) : 0) | (strchr (pattern, '*') ? GRAPH (ATTN) : 0)
           | (strchr (pattern, '-') ? GRAPH (MLP) : 0) | (strchr (pattern, 'E') ? GRAPH (MOE) : 0);
  return GRAPH (ATTN) | (has_experts ? GRAPH (MOE) : GRAPH (MLP))
         | (plan_megatron_is (s, F (MOE_LAYER_FREQ), "1") ? 0 : GRAPH (MLP));
}

/* CUDA graphs of the step, or of parts of layers, by names old and new: the scope full_iteration
 * became an implementation, and modules what was a scope (Megatron-LM PR #4292). Graphs that layers
 * record by themselves (local) are taken for Transformer Engine's; they have no preprocessing apart
 * from the router (transformer_config.py 2805). */
static void
set_graphs (Plan *plan, const PlanMegatronSettings *s, GPtrArray *notes)
{
  const gboolean is_local = plan_megatron_is (s, F (CUDA_GRAPH), "local")
                            || plan_megatron_is_on (s, F (ENABLE_CUDA_GRAPH));
  const gboolean is_step = plan_megatron_list_has (s, F (CUDA_GRAPH_SCOPE), "full_iteration")
                           || plan_megatron_list_has (s, F (CUDA_GRAPH_MODULES), "full_iteration");
  gint64 *const value = plan->value;
  if (plan_megatron_is (s, F (CUDA_GRAPH), "full_iteration") || (is_local && is_step))
    value[PLAN_CUDA_GRAPH] = PLAN_CUDA_GRAPH_ON;
  else if (is_local || plan_megatron_is (s, F (CUDA_GRAPH), "transformer_engine")
           || plan_megatron_is_on (s, F (EXTERNAL_CUDA_GRAPH)))
    {
      const PlanMegatronFlag flag = plan_megatron_is_given (s, F (CUDA_GRAPH_MODULES))
                                        ? F (CUDA_GRAPH_MODULES)
                                        : F (CUDA_GRAPH_SCOPE);
      const gint64 named = plan_megatron_list_has (s, flag, "full")
                               ? 0
                               : names_of (s, flag, PLAN_GRAPH_MODULES, notes);
      value[PLAN_GRAPH_MODULES] = named ? named : modules_of_layers (s);
      if (is_local && (named & (GRAPH (MOE_ROUTER) | GRAPH (MOE_PREPROCESS))))
        value[PLAN_GRAPH_MODULES] |= GRAPH (MOE_ROUTER) | GRAPH (MOE_PREPROCESS);
      if (is_local)
        plan_megatron_notes_add (notes, PLAN_MEGATRON_NOTE, 0,
                                 plan_megatron_flag_name (F (CUDA_GRAPH)),
                                 "local shares memory between graphs otherwise: "
                                 "transformer_engine's are planned");
    }
}

static gboolean
set_rest (Plan *plan, const PlanMegatronSettings *s, gint64 date, GError **error)
{
  gint64 *const value = plan->value;
  const gboolean scales
      = plan_megatron_is_on (s, F (FP16)) && !plan_megatron_is_given (s, F (LOSS_SCALE));
  const gboolean checks = plan_megatron_is_on (s, F (NAN_CHECK))
                          && !plan_megatron_is_on (s, F (FAKE_GROUP)) && !scales;
  value[PLAN_NAN_CHECK] = checks ? PLAN_NAN_CHECK_LOSS : PLAN_NAN_CHECK_OFF;
  value[PLAN_SHARP] = sharp_of (s);
  if (!plan_megatron_is (s, F (EMPTY_CACHE), "0"))
    value[PLAN_EMPTY_CACHE] = PLAN_EMPTY_CACHE_ON;
  if (date < FUSED_MASTERS_GONE && plan_megatron_is_fsdp (s)
      && plan_megatron_is_on (s, F (PRECISION_AWARE)))
    value[PLAN_FUSED_MASTERS] = PLAN_FUSED_MASTERS_ON;
  if (plan_megatron_is (s, F (OPTIMIZER), "sgd"))
    value[PLAN_OPTIMIZER] = PLAN_OPTIMIZER_SGD;
  else if (!plan_megatron_is (s, F (OPTIMIZER), "adam"))
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
                   "--optimizer %s is not modelled, only adam and sgd are",
                   plan_megatron_value (s, F (OPTIMIZER)));
      return FALSE;
    }
  return TRUE;
}

/* Derives gbs: without --global-batch-size every rank runs one micro batch. */
static void
derive_gbs (Plan *plan, gint64 devices, GPtrArray *notes)
{
  gint64 *const value = plan->value;
  if (value[PLAN_GBS] != PLAN_UNSET)
    return;
  gint64 ranks = devices;
  const PlanField split[] = { PLAN_TP, PLAN_CP, PLAN_PP };
  for (guint i = 0; i < G_N_ELEMENTS (split); i++)
    ranks /= value[split[i]];
  if (ranks > 0 && value[PLAN_MBS] > 0 && ranks <= G_MAXINT32 / value[PLAN_MBS])
    value[PLAN_GBS] = ranks * value[PLAN_MBS];
  plan_megatron_notes_add (notes, PLAN_MEGATRON_NOTE, 0, "--global-batch-size",
                           value[PLAN_GBS] == PLAN_UNSET
                               ? "is missing: micro batch times data-parallel size, which this "
                                 "text does not tell; give it with --gbs"
                               : "is missing: it is micro batch times data-parallel size");
}

static void
note_vocabulary (const PlanMegatronShape *shape, const PlanMegatronSettings *s, gint64 tp,
                 GPtrArray *notes)
{
  const gint64 here = plan_megatron_shape_padded_here (shape, tp);
  if (here != shape->padded_vocab)
    plan_megatron_notes_add (notes, PLAN_MEGATRON_NOTE, s->of[F (VOCAB_SIZE)].line, "--vocab-size",
                             "is padded to %" G_GINT64_FORMAT " rows, here to %" G_GINT64_FORMAT,
                             shape->padded_vocab, here);
}

static gint
compare_lines (gconstpointer a, gconstpointer b)
{
  const PlanMegatronNote *const x = *(PlanMegatronNote *const *)a;
  const PlanMegatronNote *const y = *(PlanMegatronNote *const *)b;
  if (x->line != y->line)
    return x->line < y->line ? -1 : 1;
  const int order = g_strcmp0 (x->flag, y->flag);
  return order ? order : strcmp (x->text, y->text);
}

static gboolean
interpret (const PlanMegatronSettings *s, gint64 stack_date, gint64 date, PlanMegatron *self,
           GError **error)
{
  Plan *const plan = &self->plan;
  plan_init (plan);
  set_stack (plan, s, stack_date);
  if (!set_same (plan, s, error) || !plan_megatron_set_stages (plan, s, error)
      || !set_experts (plan, s, error) || !set_compute (plan, s, error)
      || !set_activations (plan, s, self->notes, error) || !set_rest (plan, s, date, error))
    return FALSE;
  set_graphs (plan, s, self->notes);
  set_states (plan, s, date);
  set_overlap (plan, s);
  derive_gbs (plan, s->devices, self->notes);
  plan_megatron_shape_init (&self->shape, s, date);
  note_vocabulary (&self->shape, s, plan->value[PLAN_TP], self->notes);
  self->nodes = s->nodes;
  self->devices = s->devices;
  return TRUE;
}

gboolean
plan_megatron_parse (const char *text, const char *origin, gint64 stack_date, PlanMegatron *out,
                     GError **error)
{
  g_auto (PlanMegatronSettings) settings = { 0 };
  g_auto (PlanMegatron) self = { .notes = plan_megatron_notes_new () };
  const gint64 date = stack_date ? stack_date : NEWEST;
  if (!plan_megatron_settings_read (text, origin, self.notes, &settings, error))
    return FALSE;
  apply_history (&settings, date, self.notes);
  if (!interpret (&settings, stack_date, date, &self, error))
    {
      g_prefix_error (error, "%s: ", origin);
      return FALSE;
    }
  plan_megatron_rules_check (&settings, date, self.notes);
  g_ptr_array_sort (self.notes, compare_lines);
  *out = self;
  self = (PlanMegatron){ 0 };
  return TRUE;
}

void
plan_megatron_clear (PlanMegatron *self)
{
  plan_megatron_shape_clear (&self->shape);
  g_clear_pointer (&self->notes, g_ptr_array_unref);
}

PlanModel *
plan_megatron_model (const PlanMegatron *self, GError **error)
{
  return plan_megatron_shape_model (&self->shape, error);
}

void
plan_megatron_note_other_model (PlanMegatron *self, const char *name, const PlanModel *model)
{
  g_autoptr (GError) why = NULL;
  g_autofree char *differences = plan_megatron_shape_compare (&self->shape, model, &why);
  if (why)
    plan_megatron_notes_add (self->notes, PLAN_MEGATRON_NOTE, 0, NULL,
                             "its model cannot be compared with --model %s, which counts: %s", name,
                             why->message);
  else if (differences)
    plan_megatron_notes_add (self->notes, PLAN_MEGATRON_WARNING, 0, NULL,
                             "describes another model than --model %s, which counts: %s", name,
                             differences);
}

guint
plan_megatron_count (const PlanMegatron *self, PlanMegatronSeverity severity)
{
  guint n = 0;
  for (guint i = 0; i < self->notes->len; i++)
    n += ((const PlanMegatronNote *)g_ptr_array_index (self->notes, i))->severity == severity;
  return n;
}

char *
plan_megatron_note_print (const PlanMegatronNote *note, const char *origin)
{
  static const char *const names[] = { "note", "warning", "error" };
  g_autofree char *place
      = note->line ? g_strdup_printf ("%s:%u", origin, note->line) : g_strdup (origin);
  return g_strdup_printf ("%s: %s: %s%s%s", place, names[note->severity],
                          note->flag ? note->flag : "", note->flag ? ": " : "", note->text);
}
