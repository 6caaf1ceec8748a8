/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/plan/stages.h"

#include "planner/plan/pp-layout.h"

static gint64
is_on (gint64 value)
{
  return value == PLAN_PP_COUNT_LOSS_ON ? 1 : 0;
}

/* Multiply-adds for a token in one layer's matrices, as nanotron counts them (models/base.py). */
static gint64
block_cost (const PlanModel *model)
{
  return 4 * model->heads * model->head_dim * model->hidden + 3 * model->ffn * model->hidden;
}

/* The blocks that nanotron deals out after the layers. Only layers and the output layer have a
 * cost. */
typedef enum
{
  BLOCK_FINAL_NORM,
  BLOCK_OUTPUT_LAYER,
  BLOCK_CAST,
  BLOCK_LOSS,
  N_BLOCKS_BEHIND
} BlockBehind;

static void
add_block (PlanStage *stage, const PlanModel *model, gint64 block)
{
  stage->layers += block < model->layers ? 1 : 0;
  stage->has_head |= block == model->layers + BLOCK_OUTPUT_LAYER;
  stage->has_cast |= block == model->layers + BLOCK_CAST;
  stage->has_loss |= block == model->layers + BLOCK_LOSS;
}

/* nanotron adds blocks to a stage until the sum of costs exceeds the even share of all stages so
 * far; then the next stage begins (models/base.py 203-240). The embedding costs nothing, the output
 * layer costs its product. Versions differ if sum and share are equal, so what the first stage
 * holds can be given. */
static PlanStage
stage_by_cost (const PlanModel *model, const Plan *plan, gint64 number)
{
  const gint64 stages = plan->value[PLAN_PP], given = plan->value[PLAN_PP_FIRST_LAYERS];
  const gint64 layer = block_cost (model), head = model->vocab * model->hidden;
  const gint64 total = layer * model->layers + head;
  const gboolean closes_on_edge
      = given != PLAN_UNSET && given <= model->layers && given * layer * stages == total;
  PlanStage stage = { .has_embedding = number == 0, .n_virtual = 1 };
  gint64 at = 0, cost = 0;
  for (gint64 i = 0; i < model->layers + N_BLOCKS_BEHIND; i++)
    {
      if (at == number && stage.layers == 0)
        stage.first = MIN (i, model->layers);
      if (at == number)
        add_block (&stage, model, i);
      cost += i < model->layers ? layer : i == model->layers + BLOCK_OUTPUT_LAYER ? head : 0;
      const double share = (double)total * (double)(at + 1) / (double)stages;
      const gboolean is_full = at == 0 && given != PLAN_UNSET ? i + 1 == given
                               : closes_on_edge               ? (double)cost >= share
                                                              : (double)cost > share;
      at += is_full && at + 1 < stages ? 1 : 0;
    }
  return stage;
}

/* Megatron-LM deals out equally many layers to each virtual stage (transformer_block.py 76-203).
 * Embedding and loss can count as one layer each, or the last virtual stage can be short of more;
 * or the numbers of the first and the last stage are given and the others share the rest. */
static PlanStage
stage_evenly (const PlanModel *model, const Plan *plan, gint64 number)
{
  const gint64 *value = plan->value;
  const gint64 last = value[PLAN_PP] - 1, n_virtual = value[PLAN_VPP];
  const gint64 before = is_on (value[PLAN_PP_COUNT_EMBEDDING]);
  const gint64 behind = is_on (value[PLAN_PP_COUNT_LOSS]) + value[PLAN_PP_LAST_SHORT];
  const gint64 first_given = value[PLAN_PP_FIRST_LAYERS], last_given = value[PLAN_PP_LAST_LAYERS];
  const gboolean has_first = first_given != PLAN_UNSET, has_last = last_given != PLAN_UNSET;
  const gint64 others = value[PLAN_PP] - (has_first ? 1 : 0) - (has_last ? 1 : 0);
  const gint64 left = model->layers + before + behind - (has_first ? first_given : 0)
                      - (has_last ? last_given : 0);
  const gint64 even = others > 0 ? left / others / n_virtual : 0;
  const gint64 at_first = has_first ? first_given / n_virtual : even;
  const gint64 at_last = has_last ? last_given / n_virtual : even;
  const gint64 each = number == 0 ? at_first : number == last ? at_last : even;
  const gint64 missing = number == 0 ? before : 0;
  return (PlanStage){ .first = number == 0 ? 0 : at_first - before + (number - 1) * even,
                      .layers = n_virtual * each - missing - (number == last ? behind : 0),
                      .has_embedding = number == 0,
                      .has_head = number == last,
                      .has_cast = number == last,
                      .has_loss = number == last,
                      .n_virtual = n_virtual,
                      .each = each,
                      .missing = missing,
                      .distance = at_first + (last - 1) * even + at_last };
}

/* The layers, and what counts as some. */
static gint64
counted_layers (const PlanModel *model, const Plan *plan)
{
  const gint64 *value = plan->value;
  return model->layers + is_on (value[PLAN_PP_COUNT_EMBEDDING]) + is_on (value[PLAN_PP_COUNT_LOSS])
         + value[PLAN_PP_LAST_SHORT];
}

/* The layers before virtual stage `at`, if torchtitan deals them out: the embedding and what stands
 * behind the layers count as layers, and of what does not divide the first stages get one each
 * (distributed/pipeline_parallel.py, _generate_llm_fqn_per_model_part). */
static gint64
layers_before (const PlanModel *model, const Plan *plan, gint64 at)
{
  const gint64 *value = plan->value;
  const gint64 n = value[PLAN_PP] * value[PLAN_VPP];
  const gint64 before = is_on (value[PLAN_PP_COUNT_EMBEDDING]);
  const gint64 all
      = model->layers + before + is_on (value[PLAN_PP_COUNT_LOSS]) + value[PLAN_PP_LAST_SHORT];
  if (at == n)
    return model->layers;
  return at * (all / n) + MIN (at, all % n) - (at > 0 ? before : 0);
}

static gint64
layers_of (const PlanModel *model, const Plan *plan, gint64 at)
{
  return layers_before (model, plan, at + 1) - layers_before (model, plan, at);
}

static PlanStage
stage_of_layout (const PlanPpLayout *layout, const Plan *plan, gint64 number)
{
  const gint64 stages = plan->value[PLAN_PP], n_virtual = plan->value[PLAN_VPP];
  const gboolean is_last = number + 1 == stages;
  PlanStage stage = { .first = layout->before[number],
                      .has_embedding = number == 0,
                      .has_head = is_last,
                      .has_cast = is_last,
                      .has_loss = is_last,
                      .n_virtual = n_virtual };
  for (gint64 i = number; i < layout->n; i += stages)
    stage.layers += layout->before[i + 1] - layout->before[i];
  if (n_virtual > 1)
    stage.dealt = (PlanModelDealt){ &layout->before[number], stages };
  return stage;
}

/* The layout that torchtitan makes; NULL where a virtual stage would have less than nothing. */
static const PlanPpLayout *
layout_with_rest (const PlanModel *model, const Plan *plan)
{
  const gint64 n = plan->value[PLAN_PP] * plan->value[PLAN_VPP];
  if (n > model->layers + 2)
    return NULL;
  g_autofree gint64 *layers = g_new (gint64, n);
  for (gint64 i = 0; i < n; i++)
    {
      layers[i] = layers_of (model, plan, i);
      if (layers[i] < 0)
        return NULL;
    }
  return plan_pp_layout_of (plan_pp_layout_number (layers, n, 0));
}

static PlanStage
stage_with_rest (const PlanModel *model, const Plan *plan, gint64 number)
{
  const gint64 stages = plan->value[PLAN_PP], n_virtual = plan->value[PLAN_VPP];
  const gboolean is_last = number + 1 == stages;
  PlanStage stage = { .first = layers_before (model, plan, number),
                      .has_embedding = number == 0,
                      .has_head = is_last,
                      .has_cast = is_last,
                      .has_loss = is_last,
                      .n_virtual = n_virtual };
  const gint64 before = number == 0 ? is_on (plan->value[PLAN_PP_COUNT_EMBEDDING]) : 0;
  const gint64 behind
      = is_last ? is_on (plan->value[PLAN_PP_COUNT_LOSS]) + plan->value[PLAN_PP_LAST_SHORT] : 0;
  const gint64 all = counted_layers (model, plan), rest = all % (stages * n_virtual);
  const gint64 more = rest > number ? (rest - number + stages - 1) / stages : 0;
  stage.layers = n_virtual * (all / (stages * n_virtual)) + more - before - behind;
  if (n_virtual == 1)
    return stage;
  const PlanPpLayout *layout = n_virtual > 2 && rest != 0 ? layout_with_rest (model, plan) : NULL;
  if (layout)
    return stage_of_layout (layout, plan, number);
  /* With two virtual stages, `each` is the larger of both. */
  const gint64 one = layers_of (model, plan, number),
               two = layers_of (model, plan, stages + number);
  stage.each = n_virtual > 2 ? two : MAX (one, two);
  stage.missing = stage.each - one;
  stage.distance = stage.each + layers_before (model, plan, stages + number)
                   - layers_before (model, plan, number + 1);
  return stage;
}

/* The plan's layout, if it has a stage for each of the plan's, and the model's layers. */
static const PlanPpLayout *
layout_of (const PlanModel *model, const Plan *plan)
{
  const gint64 *value = plan->value;
  const PlanPpLayout *layout
      = value[PLAN_PP_LAYOUT] == PLAN_UNSET ? NULL : plan_pp_layout_of (value[PLAN_PP_LAYOUT]);
  return layout && layout->n == value[PLAN_PP] * value[PLAN_VPP]
                 && layout->before[layout->n] == model->layers
             ? layout
             : NULL;
}

static gboolean
has_given_ends (const Plan *plan)
{
  return plan->value[PLAN_PP_FIRST_LAYERS] != PLAN_UNSET
         || plan->value[PLAN_PP_LAST_LAYERS] != PLAN_UNSET;
}

PlanStage
plan_stage_of (const PlanModel *model, const PlanStack *stack, const Plan *plan, gint64 number)
{
  PlanStage stage = { .layers = model->layers,
                      .has_embedding = TRUE,
                      .has_head = TRUE,
                      .has_cast = TRUE,
                      .has_loss = TRUE,
                      .n_virtual = 1 };
  const PlanPpLayout *layout = layout_of (model, plan);
  if (plan->value[PLAN_PP] > 1)
    stage = layout                                   ? stage_of_layout (layout, plan, number)
            : stack->pipeline.deal == PLAN_DEAL_COST ? stage_by_cost (model, plan, number)
            : stack->pipeline.deal == PLAN_DEAL_REST && !has_given_ends (plan)
                ? stage_with_rest (model, plan, number)
                : stage_evenly (model, plan, number);
  /* Megatron-LM deals out the layers without prediction modules (multi_token_prediction.py,
   * mtp_on_this_rank). */
  stage.modules = stage.has_head ? model->mtp : 0;
  stage.layers += stage.modules;
  return stage;
}

gint64
plan_stages_head (const PlanModel *model, const PlanStack *stack, const Plan *plan)
{
  gint64 number = plan->value[PLAN_PP] - 1;
  while (!plan_stage_of (model, stack, plan, number).has_head)
    number--;
  return number;
}

/* The layers of every virtual stage, in order; the caller frees. */
static gint64 *
layers_of_all (const PlanModel *model, const PlanStack *stack, const Plan *plan)
{
  const gint64 stages = plan->value[PLAN_PP], n = stages * plan->value[PLAN_VPP];
  gint64 *layers = g_new (gint64, n);
  for (gint64 i = 0; i < n; i++)
    {
      const PlanStage stage = plan_stage_of (model, stack, plan, i % stages);
      const PlanStage part = plan_stage_virtual (&stage, i / stages);
      layers[i] = part.layers - part.modules;
    }
  return layers;
}

gint64
plan_stages_layout (const PlanModel *model, const PlanStack *stack, const Plan *plan)
{
  g_autofree gint64 *layers = layers_of_all (model, stack, plan);
  return plan_pp_layout_number (layers, plan->value[PLAN_PP] * plan->value[PLAN_VPP], model->mtp);
}

gboolean
plan_stages_divide (const PlanModel *model, const PlanStack *stack, const Plan *plan)
{
  const gint64 first = plan->value[PLAN_PP_FIRST_LAYERS];
  gint64 layers = 0;
  if ((first != PLAN_UNSET && first > model->layers) || plan->value[PLAN_VPP] > model->layers)
    return FALSE;
  for (gint64 turn = 0; turn < plan->value[PLAN_VPP]; turn++)
    for (gint64 number = 0; number < plan->value[PLAN_PP]; number++)
      {
        const PlanStage stage = plan_stage_of (model, stack, plan, number);
        const PlanStage part = plan_stage_virtual (&stage, turn);
        const gint64 dealt = part.layers - part.modules;
        if (dealt < 0 || (dealt > 0 && plan_stage_layer (&stage, part.first) != layers))
          return FALSE;
        layers += dealt;
      }
  return layers == model->layers;
}

/* Whether the plan deals layers out as that layout does. */
static gboolean
is_that_layout (const PlanModel *model, const PlanStack *stack, const Plan *plan, gint64 number)
{
  return plan_stages_divide (model, stack, plan)
         && plan_stages_layout (model, stack, plan) == number;
}

/* Whether layers are dealt out evenly, except that the last virtual stage has `last_short` fewer.
 * Tries whether the embedding counts as a layer and, unless the last one is shorter anyway, whether
 * the loss does. */
static gboolean
find_even (const PlanModel *model, const PlanStack *stack, Plan *plan, gint64 number,
           gint64 last_short)
{
  gint64 *value = plan->value;
  value[PLAN_PP_FIRST_LAYERS] = value[PLAN_PP_LAST_LAYERS] = PLAN_UNSET;
  value[PLAN_PP_LAST_SHORT] = last_short;
  for (guint i = 0; i < (last_short > 0 ? 2 : 4); i++)
    {
      value[PLAN_PP_COUNT_EMBEDDING]
          = i & 1 ? PLAN_PP_COUNT_EMBEDDING_ON : PLAN_PP_COUNT_EMBEDDING_OFF;
      value[PLAN_PP_COUNT_LOSS] = i & 2 ? PLAN_PP_COUNT_LOSS_ON : PLAN_PP_COUNT_LOSS_OFF;
      if (is_that_layout (model, stack, plan, number))
        return TRUE;
    }
  return FALSE;
}

static gboolean
find_ends (const PlanModel *model, const PlanStack *stack, Plan *plan, gint64 number, gint64 first,
           gint64 last)
{
  gint64 *value = plan->value;
  value[PLAN_PP_COUNT_EMBEDDING] = PLAN_PP_COUNT_EMBEDDING_OFF;
  value[PLAN_PP_COUNT_LOSS] = PLAN_PP_COUNT_LOSS_OFF;
  value[PLAN_PP_FIRST_LAYERS] = value[PLAN_VPP] * first;
  value[PLAN_PP_LAST_LAYERS] = value[PLAN_VPP] * last;
  return first > 0 && last > 0 && is_that_layout (model, stack, plan, number);
}

/* Expresses the layout by other fields; FALSE where that is not possible. */
static gboolean
find_fields (const PlanModel *model, const PlanStack *stack, Plan *plan, gint64 number)
{
  const PlanPpLayout *layout = plan_pp_layout_of (number);
  const gint64 *before = layout->before, n = layout->n, others = n > 2 ? 1 : 0;
  const gint64 first = before[1], last = before[n] - before[n - 1];
  const gint64 last_short = before[others + 1] - before[others] - last;
  plan->value[PLAN_PP_LAYOUT] = PLAN_UNSET;
  return find_even (model, stack, plan, number, 0)
         || find_ends (model, stack, plan, number, first, last)
         || (last_short > 1 && n > plan->value[PLAN_PP]
             && find_even (model, stack, plan, number, last_short));
}

void
plan_stages_settle (Plan *plan, const PlanModel *model)
{
  const gint64 number = plan->value[PLAN_PP_LAYOUT], stages = plan->value[PLAN_PP];
  if (number == PLAN_UNSET || stages < 2)
    return;
  const PlanStack *stack = plan_stack_of (plan, PLAN_DEVICE_GPU, NULL);
  const PlanPpLayout *layout = plan_pp_layout_of (number);
  Plan plain = *plan;
  if (plan->value[PLAN_VPP] == 1 && layout->n % stages == 0)
    plan->value[PLAN_VPP] = layout->n / stages;
  plan_stages_clear (&plain);
  plain.value[PLAN_PP] = stages;
  plain.value[PLAN_VPP] = plan->value[PLAN_VPP];
  if (!plan_stages_are_given (plan) && layout_of (model, plan) && layout->modules == model->mtp
      && stack && stack->pipeline.deal != PLAN_DEAL_COST
      && find_fields (model, stack, &plain, number))
    *plan = plain;
}

gboolean
plan_stages_are_given (const Plan *plan)
{
  const gint64 *value = plan->value;
  return value[PLAN_PP_FIRST_LAYERS] != PLAN_UNSET || value[PLAN_PP_LAST_LAYERS] != PLAN_UNSET
         || value[PLAN_PP_COUNT_EMBEDDING] == PLAN_PP_COUNT_EMBEDDING_ON
         || value[PLAN_PP_COUNT_LOSS] == PLAN_PP_COUNT_LOSS_ON || value[PLAN_PP_LAST_SHORT] > 0;
}

void
plan_stages_clear (Plan *plan)
{
  gint64 *value = plan->value;
  value[PLAN_PP] = value[PLAN_VPP] = 1;
  value[PLAN_PP_FIRST_LAYERS] = value[PLAN_PP_LAST_LAYERS] = PLAN_UNSET;
  value[PLAN_PP_COUNT_EMBEDDING] = PLAN_PP_COUNT_EMBEDDING_OFF;
  value[PLAN_PP_COUNT_LOSS] = PLAN_PP_COUNT_LOSS_OFF;
  value[PLAN_PP_LAST_SHORT] = 0;
  value[PLAN_PP_LAYOUT] = PLAN_UNSET;
}

gboolean
plan_stages_leave_one_empty (const PlanModel *model, const PlanStack *stack, const Plan *plan)
{
  for (gint64 number = 0; number < plan->value[PLAN_PP]; number++)
    {
      const PlanStage stage = plan_stage_of (model, stack, plan, number);
      for (gint64 turn = 0; turn < stage.n_virtual; turn++)
        {
          const PlanStage part = plan_stage_virtual (&stage, turn);
          if (plan_stage_is_empty (&part))
            return TRUE;
        }
    }
  return FALSE;
}

gint64
plan_stage_group (const Plan *plan)
{
  return plan->value[PLAN_PP_GROUP] == PLAN_UNSET ? plan->value[PLAN_PP]
                                                  : plan->value[PLAN_PP_GROUP];
}

gint64
plan_stage_passes (const Plan *plan, gint64 micro_batches)
{
  return micro_batches * plan->value[PLAN_VPP];
}

gint64
plan_stage_whole_groups (const Plan *plan, gint64 micro_batches)
{
  return micro_batches - micro_batches % plan_stage_group (plan);
}

PlanStagePass
plan_stage_pass (const Plan *plan, gint64 micro_batches, gint64 at, gboolean is_backward)
{
  const gint64 n_virtual = plan->value[PLAN_VPP];
  const gint64 most = n_virtual > 1 ? plan_stage_group (plan) : micro_batches;
  const gint64 before = at / (most * n_virtual) * most, group = MIN (most, micro_batches - before);
  const gint64 inside = at - before * n_virtual, turn = inside / group;
  return (PlanStagePass){ .virtual_stage = is_backward ? n_virtual - 1 - turn : turn,
                          .micro_batch = before + inside % group };
}

gboolean
plan_stage_is_afab (const Plan *plan)
{
  return plan->value[PLAN_PP_SCHEDULE] == PLAN_PP_SCHEDULE_AFAB;
}

/* When interleaved, as in Megatron-LM's schedules.py 956-977. With ep_overlap the backward pass of
 * a turn is of an earlier micro batch than its forward pass, on the last virtual stage, too. */
gint64
plan_stage_warm_up (const Plan *plan, gint64 number, gint64 micro_batches)
{
  const gint64 behind = plan->value[PLAN_PP] - 1 - number, n_virtual = plan->value[PLAN_VPP];
  const gint64 more = plan->value[PLAN_EP_OVERLAP] == PLAN_EP_OVERLAP_ON ? 1 : 0;
  const gint64 passes
      = n_virtual > 1 ? 2 * behind + (n_virtual - 1) * plan_stage_group (plan) + more : behind;
  const gint64 all = plan_stage_passes (plan, micro_batches);
  return plan_stage_is_afab (plan) ? all : MIN (passes, all);
}

gint64
plan_stage_held (const Plan *plan, gint64 number, gint64 micro_batches)
{
  return MIN (plan_stage_warm_up (plan, number, micro_batches) + 1,
              plan_stage_passes (plan, micro_batches));
}

PlanStagePass
plan_stage_nth_pass (const Plan *plan, gint64 number, gint64 micro_batches, gint64 n)
{
  const gint64 passes = plan_stage_passes (plan, micro_batches);
  const gint64 ahead = plan_stage_warm_up (plan, number, micro_batches);
  const gint64 in_turns = 2 * (passes - ahead), i = n - ahead;
  const gboolean is_backward = i >= in_turns || (i >= 0 && i % 2 == 1);
  const gint64 at = i < 0 ? n : i >= in_turns ? n - passes : is_backward ? i / 2 : ahead + i / 2;
  return plan_stage_pass (plan, micro_batches, at, is_backward);
}

gboolean
plan_stage_received (const Plan *plan, gint64 number, gint64 micro_batches, gint64 at,
                     gboolean is_backward, PlanStagePass *out_pass, gint64 *out_place)
{
  const gint64 last_stage = plan->value[PLAN_PP] - 1;
  const gboolean is_end = number == (is_backward ? last_stage : 0);
  const gint64 last = is_backward ? 0 : plan->value[PLAN_VPP] - 1;
  const gint64 from = is_end ? at - last_stage : at + 1;
  if (from < 0 || from >= plan_stage_passes (plan, micro_batches))
    return FALSE;
  *out_pass = plan_stage_pass (plan, micro_batches, from, is_backward);
  *out_place = from;
  if (!is_end)
    return TRUE;
  if (out_pass->virtual_stage == last)
    return FALSE;
  out_pass->virtual_stage += is_backward ? -1 : 1;
  return TRUE;
}

gint64
plan_stage_batch_there (const Plan *plan, gint64 number, gint64 micro_batches, gboolean is_next,
                        gboolean is_backward, gint64 place)
{
  const gint64 stages = plan->value[PLAN_PP];
  const gint64 there = (number + (is_next ? 1 : stages - 1)) % stages;
  const gint64 ahead = plan_stage_warm_up (plan, there, micro_batches);
  const gint64 passes = plan_stage_passes (plan, micro_batches);
  const gboolean is_ring = (is_next ? there : number) == 0;
  const gint64 later
      = is_ring ? stages - 1 : -1; /* passes from a pass's own batch to the receipt */
  if (!is_backward)
    return 2 * (is_next ? place + later : place);
  if (!is_next && !is_ring && place == 0 && ahead == passes)
    return 2 * passes - 1;
  return 2 * (ahead + (is_next ? place : place + later));
}

/* The rows are so many groups of micro batches that a row is free again when its turn comes. A row
 * is held longest in the first virtual stage, whose forward pass is a group's first and whose
 * backward pass is its last. `apart` counts the passes from the one to the other, and those by
 * which the next input may arrive early and the gradient may be sent late. */
gint64
plan_stage_rows (const Plan *plan, gint64 number, gint64 micro_batches)
{
  const gint64 stages = plan->value[PLAN_PP], n_virtual = plan->value[PLAN_VPP];
  const gint64 group = plan_stage_group (plan);
  if (n_virtual == 1)
    return plan_stage_held (plan, number, micro_batches);
  const gint64 early = group - stages + 1, late = 2;
  const gint64 apart
      = plan_stage_warm_up (plan, number, micro_batches) + (n_virtual - 1) * group + early + late;
  const gint64 groups = (apart + n_virtual * group - 1) / (n_virtual * group);
  return MIN (groups * group, micro_batches);
}
