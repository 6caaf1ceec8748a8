/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of pipelines: how layers are dealt out to stages, and what this version does not model. */
#include "config.h"

#include "planner/plan/rules-private.h"

#include "planner/plan/pp-layout.h"
#include "planner/plan/stages.h"

static gboolean
has_stages (const PlanFacts *f)
{
  return f->value[PLAN_PP] > 1;
}

static gboolean
has_ends (const PlanFacts *f)
{
  return f->value[PLAN_PP_FIRST_LAYERS] != PLAN_UNSET
         || f->value[PLAN_PP_LAST_LAYERS] != PLAN_UNSET;
}

static const PlanPpLayout *
layout_of (const PlanFacts *f)
{
  return f->value[PLAN_PP_LAYOUT] == PLAN_UNSET ? NULL
                                                : plan_pp_layout_of (f->value[PLAN_PP_LAYOUT]);
}

static gboolean
counts_ends (const PlanFacts *f)
{
  return IS (f, PP_COUNT_EMBEDDING, ON) || IS (f, PP_COUNT_LOSS, ON)
         || f->value[PLAN_PP_LAST_SHORT] > 0;
}

static gboolean
stages_without_pipeline (const PlanFacts *f)
{
  return !has_stages (f)
         && (plan_stages_are_given (f->plan) || layout_of (f) || f->value[PLAN_VPP] > 1
             || plan_stage_is_afab (f->plan));
}

static gboolean
lacks_afab (const PlanFacts *f)
{
  return plan_stage_is_afab (f->plan) && f->stack && (f->stack->offers & PLAN_OFFERS_PIPELINES)
         && !(f->stack->offers & PLAN_OFFERS_AFAB);
}

static gboolean
overlaps_without_virtual_stages (const PlanFacts *f)
{
  return !IS (f, PP_OVERLAP, ON) && f->value[PLAN_VPP] == 1;
}

static gboolean
batches_between_two (const PlanFacts *f)
{
  return IS (f, PP_OVERLAP, OFF) && f->value[PLAN_PP] < 3;
}

static gboolean
exchanges_elsewhere (const PlanFacts *f)
{
  return !IS (f, PP_OVERLAP, ON) && !is_stack (f, PLAN_STACK_MEGATRON);
}

static gboolean
groups_without_virtual_stages (const PlanFacts *f)
{
  return f->value[PLAN_VPP] == 1 && f->value[PLAN_PP_GROUP] != PLAN_UNSET;
}

/* A group must have a micro batch for each stage, also the last group, which has what is left. */
static gboolean
groups_do_not_fit (const PlanFacts *f)
{
  const gint64 stages = f->value[PLAN_PP], group = plan_stage_group (f->plan);
  const gint64 m = plan_micro_batches (f->plan, f->cluster);
  return f->value[PLAN_VPP] > 1
         && (group < stages || group > m || (m % group != 0 && m % group < stages));
}

static gboolean
ends_twice (const PlanFacts *f)
{
  return (has_ends (f) && counts_ends (f))
         || (IS (f, PP_COUNT_LOSS, ON) && f->value[PLAN_PP_LAST_SHORT] > 0);
}

/* Each layout of stages must be one plan: one layer less is pp_count_loss=on, and without virtual
 * stages pp_last_layers says what the last stage holds. */
static gboolean
shortens_otherwise (const PlanFacts *f)
{
  return f->value[PLAN_PP_LAST_SHORT] == 1
         || (f->value[PLAN_PP_LAST_SHORT] > 0 && f->value[PLAN_VPP] == 1);
}

static gboolean
has_layout_beside (const PlanFacts *f)
{
  return layout_of (f) && plan_stages_are_given (f->plan);
}

static gboolean
has_other_stages (const PlanFacts *f)
{
  const PlanPpLayout *layout = layout_of (f);
  return layout && layout->n != f->value[PLAN_PP] * f->value[PLAN_VPP];
}

static gboolean
places_other_layers (const PlanFacts *f)
{
  const PlanPpLayout *layout = layout_of (f);
  return layout
         && (layout->before[layout->n] != f->model->layers || layout->modules != f->model->mtp);
}

static gboolean
deals_out_otherwise (const PlanFacts *f)
{
  return has_stages (f) && f->stack && f->stack->pipeline.deal == PLAN_DEAL_COST
         && (counts_ends (f) || f->value[PLAN_PP_LAST_LAYERS] != PLAN_UNSET || layout_of (f)
             || f->value[PLAN_VPP] > 1);
}

/* Whether layers that do not divide go to the first stages, one more each. */
static gboolean
deals_rest (const PlanFacts *f)
{
  return has_stages (f) && f->stack && f->stack->pipeline.deal == PLAN_DEAL_REST && !has_ends (f)
         && !layout_of (f);
}

static gboolean
layers_do_not_divide (const PlanFacts *f)
{
  return has_stages (f) && f->stack && !deals_rest (f)
         && !plan_stages_divide (f->model, f->stack, f->plan);
}

/* torchtitan checks the least share of a stage against what its ends count as. */
static gboolean
ends_outweigh_stages (const PlanFacts *f)
{
  const gint64 before = IS (f, PP_COUNT_EMBEDDING, ON) ? 1 : 0;
  const gint64 behind = (IS (f, PP_COUNT_LOSS, ON) ? 1 : 0) + f->value[PLAN_PP_LAST_SHORT];
  const gint64 least
      = (f->model->layers + before + behind) / (f->value[PLAN_PP] * f->value[PLAN_VPP]);
  return deals_rest (f) && (least < 1 || behind > least);
}

/* With full recompute, recompute_layers counts layers within each virtual stage (Megatron-LM's
 * recompute.py 157-181). */
static gboolean
recomputes_past_stage (const PlanFacts *f)
{
  gint64 most = 0;
  if (!has_stages (f) || !f->stack || !IS (f, RECOMPUTE, FULL))
    return FALSE;
  for (gint64 number = 0; number < f->value[PLAN_PP]; number++)
    {
      const PlanStage stage = plan_stage_of (f->model, f->stack, f->plan, number);
      for (gint64 i = 0; i < stage.n_virtual; i++)
        {
          const PlanStage part = plan_stage_virtual (&stage, i);
          most = MAX (most, part.layers - part.modules);
        }
    }
  return f->value[PLAN_RECOMPUTE_LAYERS] > most;
}

static gboolean
too_few_micro_batches (const PlanFacts *f)
{
  return f->stack && f->stack->pipeline.fill == PLAN_FILL_BUT_ONE && !plan_stage_is_afab (f->plan)
         && plan_micro_batches (f->plan, f->cluster) < f->value[PLAN_PP] - 1;
}

static gboolean
has_torch_stages (const PlanFacts *f)
{
  return has_stages (f) && is_stack (f, PLAN_STACK_FSDP2);
}

static gboolean
too_few_for_torch (const PlanFacts *f)
{
  return f->stack && f->stack->pipeline.fill == PLAN_FILL_ALL && f->value[PLAN_VPP] == 1
         && !plan_stage_is_afab (f->plan)
         && plan_micro_batches (f->plan, f->cluster) < f->value[PLAN_PP];
}

static gboolean
ties_torch_stages (const PlanFacts *f)
{
  return has_torch_stages (f) && f->model->tied_embeddings;
}

/* PyTorch's interleaved schedule makes as many rounds as there are whole groups of pp micro
 * batches. */
static gboolean
rounds_differ (const PlanFacts *f)
{
  const gint64 m = plan_micro_batches (f->plan, f->cluster);
  const gint64 rounds = MAX (m / f->value[PLAN_PP], 1);
  return has_torch_stages (f) && f->value[PLAN_VPP] > 1
         && (m % rounds != 0 || plan_stage_group (f->plan) != m / rounds);
}

static gboolean
gathers_anew (const PlanFacts *f)
{
  return has_torch_stages (f) && IS (f, STRATEGY, OPTIM_GRADS_PARAMS);
}

/* PyTorch's stages keep gradients whole by themselves. */
static gboolean
syncs_twice (const PlanFacts *f)
{
  return has_torch_stages (f) && IS (f, GRAD_SYNC, LAST);
}

static gboolean
is_of_another_stack (const PlanFacts *f)
{
  return has_stages (f) && f->stack && !(f->stack->offers & PLAN_OFFERS_PIPELINES);
}

static gboolean
has_other_fields_of_block (const PlanFacts *f)
{
  return has_stages (f)
         && ((!IS (f, TASK, TRAIN) && !is_stack (f, PLAN_STACK_NATIVE)) || !IS (f, CUDA_GRAPH, OFF)
             || f->value[PLAN_OFFLOAD_LAYERS] > 0);
}

static gboolean
has_other_fields (const PlanFacts *f)
{
  return has_other_fields_of_block (f) || (has_stages (f) && f->value[PLAN_DP_OUTER] > 1);
}

/* Whether the two neighbours of a stage are one stage: its send and its receive, in flight at the
 * same time, would then share a buffer. */
static gboolean
overlaps_two (const PlanFacts *f)
{
  return IS (f, PP_OVERLAP, WARMUP_FLUSH) && f->value[PLAN_PP] < 3;
}

static gboolean
interleaves_afab (const PlanFacts *f)
{
  return plan_stage_is_afab (f->plan) && f->value[PLAN_VPP] > 1;
}

/* Our runtime sums a tied embedding's gradients over its two stages after the last micro batch,
 * before the ranks of a stage reduce them. If gradients are sharded, ranks reduce them in every
 * micro batch, and there is nothing to sum then. */
static gboolean
shards_shared_gradients (const PlanFacts *f)
{
  return has_stages (f) && is_stack (f, PLAN_STACK_NATIVE) && f->model->tied_embeddings
         && plan_shards_grads (f->plan) && plan_data_parallel (f->plan, f->cluster) > 1;
}

static gboolean
leaves_one_empty (const PlanFacts *f)
{
  return has_stages (f) && f->stack && plan_stages_leave_one_empty (f->model, f->stack, f->plan);
}

/* clang-format off */
static const PlanRuleEntry rules[] = {
  { { "pp-fields-need-pp", "vpp, and fields that begin with pp_, say how layers are dealt out to stages: they need pp above 1",
      "Megatron-LM transformer_config.py 2229-2366, arguments.py 1000-1009", PLAN_ERROR_INVALID },
    stages_without_pipeline, PLAN_ADD_CHANGED, PLAN_SHOW (PLAN_VPP, PLAN_PP_SCHEDULE, PLAN_PP_FIRST_LAYERS, PLAN_PP_LAST_LAYERS,
      PLAN_PP_COUNT_EMBEDDING, PLAN_PP_COUNT_LOSS, PLAN_PP_LAST_SHORT, PLAN_PP_LAYOUT), PLAN_OF_BLOCKS },
  { { "megatron-has-no-afab", "stack=megatron runs its stages under 1F1B, plain or interleaved: pp_schedule=afab is of stack=nanotron, "
      "stack=fsdp2 and stack=native", "Megatron-LM schedules.py, get_forward_backward_func", PLAN_ERROR_INVALID },
    lacks_afab, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_PP, PLAN_PP_SCHEDULE), PLAN_OF_BLOCKS },
  { { "pp-group-needs-vpp", "pp_group says how many micro batches go through one virtual stage before the next one: it needs vpp "
      "above 1", "Megatron-LM schedules.py 989-1016", PLAN_ERROR_INVALID },
    groups_without_virtual_stages, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_PP_GROUP, PLAN_VPP), PLAN_OF_BLOCKS },
  { { "pp-overlap-needs-vpp", "pp_overlap=off and pp_overlap=warmup_flush say how interleaved stages exchange: they need vpp above 1; "
      "other stages exchange in batches as it is", "Megatron-LM arguments.py 1010-1017, schedules.py 2182, model_parallel_config.py 570", PLAN_ERROR_INVALID },
    overlaps_without_virtual_stages, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_PP_OVERLAP, PLAN_VPP), PLAN_OF_BLOCKS },
  { { "pp-overlap-of-stack", "pp_overlap=off and pp_overlap=warmup_flush are Megatron-LM's --no-overlap-p2p-communication and "
      "--overlap-p2p-communication-warmup-flush: they need stack=megatron", "Megatron-LM arguments.py 1000-1017", PLAN_ERROR_INVALID },
    exchanges_elsewhere, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_PP_OVERLAP), PLAN_OF_BLOCKS },
  { { "pp-overlap-needs-stages", "interleaved stages without overlap of their exchanges (pp_overlap=off) need pp above 2",
      "Megatron-LM arguments.py 1000-1009", PLAN_ERROR_INVALID },
    batches_between_two, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_PP_OVERLAP, PLAN_PP), PLAN_OF_BLOCKS },
  { { "pp-ends", "pp_first_layers and pp_last_layers say what the ends hold: beside them pp_count_embedding and pp_count_loss must be "
      "off and pp_last_short 0; beside pp_last_short pp_count_loss must be off",
      "Megatron-LM transformer_config.py 2229-2239", PLAN_ERROR_INVALID },
    ends_twice, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_PP_FIRST_LAYERS, PLAN_PP_LAST_LAYERS,
      PLAN_PP_COUNT_EMBEDDING, PLAN_PP_COUNT_LOSS, PLAN_PP_LAST_SHORT), PLAN_OF_BLOCKS },
  { { "pp-last-short", "pp_last_short needs vpp above 1, and is at least 2: without virtual stages pp_last_layers says it, and one "
      "layer is pp_count_loss=on", "Megatron-LM pipeline_parallel_layer_layout.py", PLAN_ERROR_INVALID },
    shortens_otherwise, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_PP_LAST_SHORT, PLAN_VPP), PLAN_OF_BLOCKS },
  { { "pp-layout-alone", "pp_layout says what every virtual stage holds: beside it pp_first_layers and pp_last_layers must be auto, "
      "pp_count_embedding and pp_count_loss off and pp_last_short 0", "Megatron-LM transformer_config.py 2244-2259", PLAN_ERROR_INVALID },
    has_layout_beside, PLAN_ADD_CHANGED, PLAN_SHOW (PLAN_PP_FIRST_LAYERS, PLAN_PP_LAST_LAYERS,
      PLAN_PP_COUNT_EMBEDDING, PLAN_PP_COUNT_LOSS, PLAN_PP_LAST_SHORT, PLAN_PP_LAYOUT), PLAN_OF_BLOCKS },
  { { "nanotron-stages", "stack=nanotron deals layers out by their cost, behind pp_first_layers where that is given: it has no "
      "other setting", "nanotron models/base.py 203-240", PLAN_ERROR_INVALID },
    deals_out_otherwise, PLAN_ADD_CHANGED, PLAN_SHOW (PLAN_VPP, PLAN_PP_LAST_LAYERS, PLAN_PP_COUNT_EMBEDDING,
      PLAN_PP_COUNT_LOSS, PLAN_PP_LAST_SHORT, PLAN_PP_LAYOUT), PLAN_OF_BLOCKS },
  { { "pp-layout-stages", "pp_layout must have pp x vpp stages, separated by '|'", "Megatron-LM arguments.py 941-952", PLAN_ERROR_INVALID },
    has_other_stages, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_PP, PLAN_VPP, PLAN_PP_LAYOUT), PLAN_OF_BLOCKS },
  { { "pp-layout-layers", "pp_layout must place as many layers (t) and prediction modules (m) as the model has",
      "Megatron-LM pipeline_parallel_layer_layout.py, validate_layer_layout", PLAN_ERROR_INVALID },
    places_other_layers, PLAN_ADD_MODEL, PLAN_SHOW (PLAN_PP_LAYOUT), PLAN_OF_BLOCKS },
  { { "torch-stages", "on stack=fsdp2 each of pp x vpp stages needs a layer, embedding and loss counted as pp_count_embedding, "
      "pp_count_loss and pp_last_short say, and these may not count for more than the least share of a stage: use a smaller pp or vpp",
      "torchtitan distributed/pipeline_parallel.py, _generate_llm_fqn_per_model_part", PLAN_ERROR_INVALID },
    ends_outweigh_stages, PLAN_ADD_MODEL, PLAN_SHOW (PLAN_PP, PLAN_VPP, PLAN_PP_COUNT_EMBEDDING, PLAN_PP_COUNT_LOSS,
      PLAN_PP_LAST_SHORT), PLAN_OF_BLOCKS },
  { { "pp-divides", "pp x vpp must divide the layers, embedding and loss counted as pp_count_embedding, pp_count_loss and "
      "pp_last_short say; with "
      "pp_first_layers or pp_last_layers the other stages must divide what those leave, and vpp the layers of each stage",
      "Megatron-LM transformer_block.py 156-180, transformer_config.py 2296-2415", PLAN_ERROR_INVALID },
    layers_do_not_divide, PLAN_ADD_MODEL, PLAN_SHOW (PLAN_PP, PLAN_VPP, PLAN_PP_FIRST_LAYERS, PLAN_PP_LAST_LAYERS,
      PLAN_PP_COUNT_EMBEDDING, PLAN_PP_COUNT_LOSS, PLAN_PP_LAST_SHORT), PLAN_OF_BLOCKS },
  { { "pp-group", "interleaved stages (vpp above 1) take micro batches in groups of pp_group, by default pp: there must be pp of "
      "them at least, also in the last group, and no more than there are micro batches", "Megatron-LM schedules.py 1161-1180",
      PLAN_ERROR_INVALID },
    groups_do_not_fit, PLAN_ADD_DEVICES, PLAN_SHOW (PLAN_PP, PLAN_VPP, PLAN_PP_GROUP, PLAN_GBS, PLAN_MBS), PLAN_OF_BLOCKS },
  { { "recompute-within-stage", "recompute_layers counts the layers of a virtual pipeline stage: it may not be more than the largest "
      "one has; recompute_method=uniform with recompute_layers=1 recomputes all", "Megatron-LM transformer/transformer_block.py",
      PLAN_ERROR_INVALID },
    recomputes_past_stage, PLAN_ADD_MODEL, PLAN_SHOW (PLAN_RECOMPUTE_LAYERS, PLAN_PP, PLAN_VPP), PLAN_OF_BLOCKS },
  { { "torch-micro-batches", "pp above 1 on stack=fsdp2 needs pp micro batches or more in a step: use a larger gbs or a smaller mbs, "
      "or pp_schedule=afab",
      "PyTorch distributed/pipelining/schedules.py, Schedule1F1B", PLAN_ERROR_INVALID },
    too_few_for_torch, PLAN_ADD_DEVICES, PLAN_SHOW (PLAN_PP, PLAN_GBS, PLAN_MBS), PLAN_OF_BLOCKS },
  { { "torch-rounds", "vpp above 1 on stack=fsdp2 needs micro batches that are a multiple of the number of rounds, which is how often pp "
      "is in them (at least 1), and pp_group = micro batches / rounds", "PyTorch distributed/pipelining/schedules.py, "
      "ScheduleInterleaved1F1B", PLAN_ERROR_INVALID },
    rounds_differ, PLAN_ADD_DEVICES, PLAN_SHOW (PLAN_PP, PLAN_VPP, PLAN_PP_GROUP, PLAN_GBS, PLAN_MBS), PLAN_OF_BLOCKS },
  { { "torch-stages-are-untied", "pp above 1 on stack=fsdp2 needs a model whose output layer is not its embedding (tied=off)",
      "torchtitan models/common/decoder.py 168", PLAN_ERROR_INVALID },
    ties_torch_stages, PLAN_ADD_MODEL, PLAN_SHOW (PLAN_STACK, PLAN_PP), PLAN_OF_BLOCKS },
  { { "torch-stages-sync-last", "pp above 1 on stack=fsdp2 needs grad_sync=every: stages of a pipeline keep gradients whole up to the last "
      "micro batch by themselves", "PyTorch distributed/pipelining/stage.py, backward_maybe_with_nosync", PLAN_ERROR_INVALID },
    syncs_twice, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_PP, PLAN_GRAD_SYNC), PLAN_OF_BLOCKS },
  { { "nanotron-micro-batches", "stack=nanotron needs at least pp - 1 micro batches in a step, unless pp_schedule=afab",
      "nanotron parallel/pipeline_parallel/engine.py 252", PLAN_ERROR_INVALID },
    too_few_micro_batches, PLAN_ADD_DEVICES, PLAN_SHOW (PLAN_PP, PLAN_GBS, PLAN_MBS), PLAN_OF_BLOCKS },
};

#define LIMIT "a limit of this version, not of a framework"

static const PlanRuleEntry unbuilt[] = {
  { { "not-built-yet-pp", "pp above 1 is modelled for stack=megatron, stack=nanotron, stack=fsdp2 and stack=native by this version", LIMIT,
      PLAN_ERROR_UNSUPPORTED },
    is_of_another_stack, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_PP), PLAN_OF_BLOCKS },
  { { "not-built-yet-with-pp", "pp above 1 is modelled with task=train (stack=native: also task=eval), cuda_graph=off, dp_outer=1 and "
      "offload_layers=0 by this version", LIMIT, PLAN_ERROR_UNSUPPORTED },
    has_other_fields, PLAN_ADD_CHANGED, PLAN_SHOW (PLAN_TASK, PLAN_CUDA_GRAPH, PLAN_DP_OUTER,
      PLAN_OFFLOAD_LAYERS),
    PLAN_BREAKS_BLOCKS (has_other_fields_of_block) },
  { { "not-built-yet-overlap-of-two", "pp_overlap=warmup_flush is modelled with pp above 2 by this version: with two stages use pp_overlap=on",
      LIMIT, PLAN_ERROR_UNSUPPORTED },
    overlaps_two, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_PP_OVERLAP, PLAN_PP), PLAN_OF_BLOCKS },
  { { "not-built-yet-looped-afab", "pp_schedule=afab is modelled with vpp=1 by this version: PyTorch's LoopedBFS, which runs all forward passes "
      "of several virtual stages first, is not", LIMIT, PLAN_ERROR_UNSUPPORTED },
    interleaves_afab, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_VPP, PLAN_PP_SCHEDULE), PLAN_OF_BLOCKS },
  { { "not-built-yet-torch-resharding", "pp above 1 on stack=fsdp2 needs strategy=optim_grads in this version: torchtitan's own choice beside "
      "pipelines (fsdp_reshard_after_forward=default), with which weights stay gathered for the step", LIMIT, PLAN_ERROR_UNSUPPORTED },
    gathers_anew, PLAN_ADD_NOTHING, PLAN_SHOW (PLAN_STACK, PLAN_PP, PLAN_STRATEGY) },
  { { "not-built-yet-shared-gradients", "on stack=native, stages that share the embedding (a model with tied embeddings) need gradients that "
      "stay whole in this version: strategy=no_shard or strategy=optim", LIMIT, PLAN_ERROR_UNSUPPORTED },
    shards_shared_gradients, PLAN_ADD_MODEL, PLAN_SHOW (PLAN_STACK, PLAN_PP, PLAN_STRATEGY) },
  { { "not-built-yet-empty-stages", "a pipeline stage with neither layers nor the embedding or the output layer is not modelled by this version: "
      "use a smaller pp or vpp",
      LIMIT, PLAN_ERROR_UNSUPPORTED },
    leaves_one_empty, PLAN_ADD_MODEL, PLAN_SHOW (PLAN_PP, PLAN_VPP, PLAN_PP_FIRST_LAYERS, PLAN_PP_LAST_LAYERS, PLAN_PP_LAYOUT), PLAN_OF_BLOCKS },
};
/* clang-format on */

const PlanRuleTable plan_rules_of_pipelines = { rules, G_N_ELEMENTS (rules) };

const PlanRuleTable plan_rules_unbuilt_pipelines = { unbuilt, G_N_ELEMENTS (unbuilt) };
