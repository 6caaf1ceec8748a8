/* SPDX-License-Identifier: Apache-2.0 */
/* A row's pipeline: what its columns and notes tell of the stages. */
#include "config.h"

#include "planner/runs/run-private.h"

#include "planner/plan/stages.h"

#include <math.h>
#include <stdlib.h>

/* Reads a number of elements such as "940M"; 0: the text is no such number. */
static double
read_count (const char *text)
{
  char *end;
  const double value = g_ascii_strtod (text, &end);
  return value * (*end == 'G' ? 1e9 : *end == 'M' ? 1e6 : *end == 'K' ? 1e3 : 0);
}

/* Sets how many layers the first stage has, from how many parameters nanotron's log says the first
 * rank has: its layers, and the embedding. They differ from what the public rule gives where two
 * cuts cost nearly the same. */
static void
take_first_layers (PlanRunRow *row, const PlanStack *stack)
{
  const PlanModel *m = row->model;
  gint64 *value = row->plan.value;
  g_autofree char *said = plan_run_row_note (row, "local_parameters");
  const double table = (double)(m->vocab * m->hidden);
  const double rest = (double)(plan_model_parameters (m) - (guint64)m->hidden)
                      - table * (m->tied_embeddings ? 1 : 2);
  const double layer = rest / (double)m->layers;
  const double local = said ? read_count (said) * (double)value[PLAN_TP] : 0;
  const double layers = round ((local - table) / layer); /* the note may say anything at all */
  if (layers > 0 && layers <= (double)m->layers
      && (gint64)layers != plan_stage_of (m, stack, &row->plan, 0).layers)
    value[PLAN_PP_FIRST_LAYERS] = (gint64)layers;
}

/* Leaves the time of a run out where the last stages cannot be known. In 2025-01 nanotron's scan
 * went on with software that is not public and balances stages. The public rule would put the loss
 * on a stage by itself where the output layer costs more than an even share. But times of such runs
 * hardly depend on whether the last two stages share a node, so no logits travelled between them.
 * What the first stage holds is known; what each other stage holds is not. */
static void
doubt_last_stages (PlanRunRow *row, const PlanStack *stack)
{
  g_autofree char *balances = plan_run_row_note (row, "pipeline_balance");
  const PlanStage last
      = plan_stage_of (row->model, stack, &row->plan, row->plan.value[PLAN_PP] - 1);
  if (g_strcmp0 (balances, "yes") != 0 || !plan_stage_reads_logits (&last))
    return;
  row->time_ok = FALSE;
  plan_run_row_remark (row, "its stages were balanced in a way that is not public: no time counts");
}

/* Deals layers out as Megatron-Bridge's layouts for DeepSeek-V3 do: all virtual stages have equally
 * many layers, except that the last one has those that are left, before the prediction module and
 * the loss. Where that is not enough, the first one has a layer less, for the embedding
 * ("Et*4|(t*4|)*14tmL", "Et|(tt|)*30mL": recipes/deepseek/h100/deepseek_v3.py and perf_recipes). */
static void
shorten_last (PlanRunRow *row)
{
  gint64 *value = row->plan.value;
  const gint64 layers = row->model->layers, stages = value[PLAN_PP] * value[PLAN_VPP];
  const gint64 each = (layers + stages - 1) / stages, left = each * stages - layers;
  if (left > each + 1)
    return;
  if (value[PLAN_VPP] == 1)
    value[PLAN_PP_LAST_LAYERS] = each - left;
  else
    value[PLAN_PP_LAST_SHORT] = MIN (left, each);
  if (left > each)
    value[PLAN_PP_COUNT_EMBEDDING] = PLAN_PP_COUNT_EMBEDDING_ON;
  plan_run_row_remark (row, "layers do not divide: dealt out as Megatron-Bridge's recipe does");
}

/* Lets embedding and loss count as layers where layers do not divide evenly. Megatron-LM deals
 * layers out evenly, and every recipe that was looked into has both settings on where it has to,
 * except that of DeepSeek-V3. Runs of other frameworks that call Megatron-LM's function say so
 * (`layers_dealt_by`). */
static void
count_ends (PlanRunRow *row)
{
  gint64 *value = row->plan.value;
  const gint64 layers = row->model->layers, stages = value[PLAN_PP] * value[PLAN_VPP];
  g_autofree char *name = plan_run_row_note (row, "model");
  g_autofree char *dealt_by = plan_run_row_note (row, "layers_dealt_by");
  if (layers % stages == 0)
    return;
  if (g_strcmp0 (dealt_by, "megatron-bridge") == 0
      || (g_strcmp0 (name, "deepseek-v3-671b") == 0
          && strstr (row->cell[PLAN_RUN_SOURCE], "Megatron-Bridge")))
    shorten_last (row);
  if ((layers + 2) % stages != 0)
    return;
  value[PLAN_PP_COUNT_EMBEDDING] = PLAN_PP_COUNT_EMBEDDING_ON;
  value[PLAN_PP_COUNT_LOSS] = PLAN_PP_COUNT_LOSS_ON;
  plan_run_row_remark (row,
                       "layers do not divide: embedding and loss are taken to count as layers");
}

/* Takes a pipeline to be as torchtitan's defaults are: embedding and output layer count as a layer
 * each (config/configs.py, pipeline_parallel_first_stage_less_layers), and weights stay gathered
 * (fsdp_reshard_after_forward=default; distributed/fsdp.py 113-132). */
static void
take_torch_defaults (PlanRunRow *row)
{
  gint64 *value = row->plan.value;
  value[PLAN_PP_COUNT_EMBEDDING] = PLAN_PP_COUNT_EMBEDDING_ON;
  value[PLAN_PP_COUNT_LOSS] = PLAN_PP_COUNT_LOSS_ON;
  if (value[PLAN_STRATEGY] == PLAN_STRATEGY_OPTIM_GRADS_PARAMS)
    value[PLAN_STRATEGY] = PLAN_STRATEGY_OPTIM_GRADS;
  plan_run_row_remark (row, "weights are taken to stay gathered, as torchtitan's defaults have it");
}

void
plan_run_row_set_stages (PlanRunRow *row)
{
  gint64 *value = row->plan.value;
  const PlanStack *stack = plan_stack_of (&row->plan, PLAN_DEVICE_GPU, NULL);
  const char *virtual_stages = row->cell[PLAN_RUN_VPP];
  g_autofree char *name = plan_run_row_note (row, "model");
  value[PLAN_VPP] = MAX (plan_run_row_int (row, PLAN_RUN_VPP), 1);
  if (value[PLAN_PP] == 1 || !stack || !row->model)
    return;
  if (stack->pipeline.deal == PLAN_DEAL_COST)
    {
      take_first_layers (row, stack);
      doubt_last_stages (row, stack);
    }
  else if (stack->pipeline.deal == PLAN_DEAL_REST
           && strstr (row->cell[PLAN_RUN_SOURCE], "torchtitan"))
    take_torch_defaults (row);
  else if (stack->offers & PLAN_OFFERS_PIPELINES)
    count_ends (row);
  if (value[PLAN_STACK] % PLAN_STACK_BASE == PLAN_STACK_MEGATRON
      && (!virtual_stages || atoi (virtual_stages) == 0))
    plan_run_row_skip (row, "vpp is not known");
  if (name && strstr (name, "uneven_pipeline"))
    plan_run_row_skip (row, "layers of the first and the last stage are not said");
}

PlanRunMemoryStage
plan_run_row_memory_stage (const PlanRunRow *self)
{
  g_autofree char *rank = plan_run_row_note (self, "memory_rank");
  const gint64 devices = plan_run_row_int (self, PLAN_RUN_GPUS), stages = self->plan.value[PLAN_PP];
  const gint64 stage = rank && g_ascii_isdigit (*rank) && stages > 1 && devices >= stages
                           ? g_ascii_strtoll (rank, NULL, 10) / (devices / stages)
                           : -1;
  return g_strcmp0 (rank, "first") == 0 || stage == 0           ? PLAN_RUN_FIRST_STAGE
         : g_strcmp0 (rank, "last") == 0 || stage == stages - 1 ? PLAN_RUN_LAST_STAGE
                                                                : PLAN_RUN_FULLEST_STAGE;
}
