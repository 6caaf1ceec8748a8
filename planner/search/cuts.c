/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/search/cuts.h"

#include "planner/plan/pp-layout.h"

/* An uneven layout is tried only if its slowest stage takes less than this share of the time of the
 * even layout's. */
#define GAIN 0.99
#define LEAST_PART 4096 /* fewest columns of an expert's part that are worth a cut (assumed) */
#define LOPSIDED 1.5    /* a stage must not have more than this multiple of its even share */

static gboolean
can_be_cut (const PlanModel *model, gint64 parts, gboolean counts_ends)
{
  return (model->layers + (counts_ends ? 2 : 0)) % parts == 0;
}

/* How many layers take as long as the loss together with the multi-token-prediction modules. */
static double
layers_of_loss (const PlanModel *model, gint64 seq)
{
  PlanModel plain = *model;
  plain.mtp = 0;
  const double layers = plan_model_flops_per_token (&plain, seq, 0);
  const double all = plan_model_flops_per_token (model, seq, model->vocab);
  return (all - layers) / layers * (double)model->layers;
}

/* Whether the layers divide evenly for some number of virtual stages, with embedding and loss
 * counted as layers or not. */
static gboolean
divides_virtually (const PlanModel *model, gint64 stages)
{
  for (gint64 n = 2; n <= model->layers / stages; n++)
    if (can_be_cut (model, stages * n, FALSE) || can_be_cut (model, stages * n, TRUE))
      return TRUE;
  return FALSE;
}

/* Divides the layers as torchtitan does by itself, with embedding and loss counted as a layer each,
 * and gives the load of the slowest stage, in layers. */
static gboolean
cut_with_rest (const PlanModel *model, double loss, PlanCut *cut, double *out_slowest)
{
  const gint64 parts = cut->stages * cut->n_virtual, all = model->layers + 2;
  const gint64 each = all / cut->stages, rest = all % cut->stages;
  cut->first_layers = cut->last_layers = PLAN_UNSET;
  cut->counts_ends = parts > 1;
  cut->last_short = 0;
  *out_slowest = MAX ((double)(each + (rest > 0 ? 1 : 0)), (double)(each - 1) + loss);
  return parts == 1 || all >= parts;
}

/* Divides the layers evenly and gives the load of the slowest stage, in layers. Where no number of
 * virtual stages divides them, the last virtual stage may have fewer. FALSE where there is no such
 * cut. */
static gboolean
cut_evenly (const PlanModel *model, double loss, PlanCut *cut, double *out_slowest)
{
  const gint64 parts = cut->stages * cut->n_virtual;
  const gint64 most = (model->layers + parts - 1) / parts;
  cut->first_layers = cut->last_layers = PLAN_UNSET;
  cut->counts_ends = !can_be_cut (model, parts, FALSE) && can_be_cut (model, parts, TRUE);
  cut->last_short = cut->n_virtual == 1 || divides_virtually (model, cut->stages)
                        ? 0
                        : most * parts - model->layers;
  const gint64 each = (model->layers + (cut->counts_ends ? 2 : 0) + cut->last_short) / cut->stages;
  *out_slowest
      = (double)each + MAX (loss - (double)(cut->last_short + (cut->counts_ends ? 1 : 0)), 0);
  return cut->last_short > 0 ? cut->last_short <= most
                             : can_be_cut (model, parts, cut->counts_ends);
}

/* Finds the layout whose slowest stage is quickest. All stages between the ends have equally many
 * layers; the last stage, which also computes the loss, has few; the first takes the rest. Among
 * equals the one with the fewest layers on the first stage wins, since that stage holds the most
 * activations. FALSE where there is none. */
static gboolean
cut_by_loss (const PlanModel *model, double loss, PlanCut *cut, double *out_slowest)
{
  const gint64 n = cut->n_virtual, between = cut->stages - 2;
  *out_slowest = G_MAXDOUBLE;
  for (gint64 each = n; each <= model->layers; each += n)
    for (gint64 last = n; last < model->layers; last += n)
      {
        const gint64 first = model->layers - each * between - last;
        const double slowest
            = MAX ((double)MAX (first, between > 0 ? each : 0), (double)last + loss);
        if (first < n || first % n != 0 || slowest > *out_slowest)
          continue;
        cut->first_layers = first != each && between > 0 ? first : PLAN_UNSET;
        cut->last_layers = last;
        *out_slowest = slowest;
      }
  return *out_slowest <= LOPSIDED * ((double)model->layers + loss) / (double)cut->stages;
}

/* Adds a cut with overlap_param_gather on, off, or both. In some stacks, while
 * the pipeline fills with it on, stages gather one after the other (with virtual stages, all at the
 * same time). With it off, all stages gather at the same time before they compute, which is quicker
 * where stages are many. */
static void
add_cut (GArray *cuts, PlanCut cut, const PlanStack *stack, PlanCutFixed fixed)
{
  const gboolean is_plain = cut.n_virtual == 1;
  cut.gathers_beside = TRUE;
  if (fixed.has_gathers || !is_plain || cut.stages <= 2
      || stack->weights.whole != PLAN_WHOLE_IN_TURN)
    g_array_append_val (cuts, cut);
  cut.gathers_beside = FALSE;
  if (fixed.has_gathers || (is_plain && cut.stages > 1))
    g_array_append_val (cuts, cut);
}

/* Adds the even layout, or the one balanced for the loss where that is quicker or no even one
 * exists. FALSE where there is neither. */
static gboolean
add_layout (GArray *cuts, const PlanModel *model, const PlanStack *stack, PlanCut cut, double loss,
            PlanCutFixed fixed)
{
  double slowest, by_loss;
  PlanCut other = cut;
  const gboolean is_even = stack->pipeline.deal == PLAN_DEAL_REST
                               ? cut_with_rest (model, loss, &cut, &slowest)
                               : cut_evenly (model, loss, &cut, &slowest);
  const gboolean has_other = !fixed.has_layout && cut.stages > 1
                             && cut_by_loss (model, loss, &other, &by_loss)
                             && !(is_even && by_loss > GAIN * slowest);
  if (has_other)
    add_cut (cuts, other, stack, fixed);
  else if (is_even || fixed.has_layout || (fixed.has_virtual && cut.n_virtual > 1))
    add_cut (cuts, cut, stack, fixed);
  else
    return FALSE;
  return TRUE;
}

static void
add_cuts (GArray *cuts, const PlanModel *model, const PlanStack *stack, gint64 stages, double loss,
          PlanCutFixed fixed)
{
  /* Our own runtime is offered no virtual stages unless they are asked for: its steps are short
   * where it has stages, and interleaved schedules take long to simulate. */
  const gboolean is_plain = stages == 1 || (stack->id == PLAN_STACK_NATIVE && !fixed.has_virtual);
  gint64 last = 0;
  for (gint64 n = 1; n <= (is_plain ? 1 : model->layers / stages); n++)
    {
      const PlanCut cut = { .stages = stages, .n_virtual = n };
      if (fixed.parts > 0 && n * stages != fixed.parts)
        continue;
      if ((fixed.has_virtual || n >= 2 * last) && add_layout (cuts, model, stack, cut, loss, fixed))
        last = n;
    }
}

gboolean
plan_cuts_any (const PlanStack *stack, const PlanCluster *cluster)
{
  return stack && (stack->offers & PLAN_OFFERS_PIPELINES) && stack->id != PLAN_STACK_FSDP2
         && (stack->id != PLAN_STACK_NATIVE || cluster->kind == PLAN_DEVICE_CPU);
}

gint64
plan_cuts_fixed (const Plan *base)
{
  const gint64 number = base->value[PLAN_PP_LAYOUT];
  return number == PLAN_UNSET ? 0 : plan_pp_layout_of (number)->n;
}

GArray *
plan_cuts_of (const PlanModel *model, const PlanCluster *cluster, const PlanStack *stack,
              gint64 seq, PlanCutFixed fixed)
{
  GArray *cuts = g_array_new (FALSE, FALSE, sizeof (PlanCut));
  const double loss = layers_of_loss (model, seq);
  const gint64 devices = plan_cluster_devices (cluster);
  for (gint64 stages = 1; stages <= MIN (model->layers, devices); stages++)
    {
      const PlanCut cut = { .stages = stages, .n_virtual = 1 };
      if (devices % stages != 0)
        continue;
      if (stack->pipeline.deal == PLAN_DEAL_COST)
        g_array_append_val (cuts, cut);
      else
        add_cuts (cuts, model, stack, stages, loss, fixed);
    }
  return cuts;
}

static gboolean
has_layers_to_recompute (const Plan *plan, const Plan *base, const PlanModel *model)
{
  const gint64 n = plan->value[PLAN_RECOMPUTE_LAYERS];
  const gint64 parts = plan->value[PLAN_PP] * plan->value[PLAN_VPP];
  return n == base->value[PLAN_RECOMPUTE_LAYERS] || parts < 2
         || n <= (model->layers + 2 + parts - 1) / parts;
}

/* Whether so many virtual stages still help: the bubble of n is (stages - 1) / (micro batches * n)
 * of the compute. */
static gboolean
gains_by_virtual (const Plan *plan, const Plan *base, const PlanCluster *cluster)
{
  const gint64 *value = plan->value, n = value[PLAN_VPP];
  const gint64 per_rank = value[PLAN_GBS] / MAX (plan_data_parallel (plan, cluster), 1);
  return n == base->value[PLAN_VPP]
         || per_rank / value[PLAN_MBS] * n <= 2 * 100 * (value[PLAN_PP] - 1);
}

gboolean
plan_cut_may_help (const Plan *plan, const Plan *base, const PlanModel *model,
                   const PlanCluster *cluster)
{
  return has_layers_to_recompute (plan, base, model) && gains_by_virtual (plan, base, cluster);
}

gint64
plan_cuts_of_expert (const PlanModel *model, const PlanCluster *cluster, const Plan *base)
{
  const gint64 stack = base->value[PLAN_STACK] % PLAN_STACK_BASE;
  const gboolean splits = stack == PLAN_STACK_MEGATRON_FSDP || stack == PLAN_STACK_MEGATRON
                          || stack == PLAN_STACK_NATIVE;
  return splits ? CLAMP (model->expert_ffn / LEAST_PART, 1, plan_cluster_linked_devices (cluster))
                : 1;
}
