/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/fast/measure.h"

#include "sim/fast/fold.h"
#include "sim/fast/footprint.h"
#include "sim/fast/passes.h"
#include "sim/fast/stages.h"
#include "sim/sim.h"

#include <string.h>

#define LEAST_STEPS 3 /* fewest steps: two that are alike, and the one that is reported */

struct _SimWorkspace
{
  SimProgram program;
  SimFold fold;
  SimFootprint footprint;
  /* gint64 per clock: how much later than the host it is, after the last step and after the one
   * before it. */
  GArray *ahead[2];
  SimOccupancy occupancy[2];
  guint n_steps;    /* number of steps run until one was steady */
  gint64 period_ns; /* duration of the steady step */
};

SimWorkspace *
sim_workspace_new (void)
{
  SimWorkspace *self = g_new0 (SimWorkspace, 1);
  for (guint i = 0; i < 2; i++)
    self->ahead[i] = g_array_new (FALSE, FALSE, sizeof (gint64));
  return self;
}

void
sim_workspace_free (SimWorkspace *self)
{
  if (!self)
    return;
  sim_program_clear (&self->program);
  sim_fold_clear (&self->fold);
  sim_footprint_clear (&self->footprint);
  for (guint i = 0; i < 2; i++)
    g_array_unref (self->ahead[i]);
  g_free (self);
}

const gint64 *
sim_measure_node_ns (const SimWorkspace *self)
{
  return (const gint64 *)(gconstpointer)self->fold.tally.ns->data;
}

/* Notes the clocks relative to the host. Clocks that are not later than the host count as equal to
 * it, since nothing begins before the host issues it. */
static void
note_ahead (SimWorkspace *self)
{
  const SimEngine *engine = &self->fold.engine;
  const SimClock *clocks = sim_engine_clock (engine, 0);
  GArray *now = self->ahead[1];
  self->ahead[1] = self->ahead[0];
  self->ahead[0] = now;
  g_array_set_size (now, engine->n_clocks);
  self->occupancy[1] = self->occupancy[0];
  self->occupancy[0] = engine->occupancy;
  for (guint i = 0; i < engine->n_clocks; i++)
    g_array_index (now, gint64, i) = MAX (clocks[i].at - clocks[SIM_CLOCK_HOST].at, 0);
}

static gboolean
recurs (const SimWorkspace *self, guint first, guint n)
{
  return memcmp (&g_array_index (self->ahead[0], gint64, first),
                 &g_array_index (self->ahead[1], gint64, first), n * sizeof (gint64))
         == 0;
}

static gboolean
is_same_again (const SimWorkspace *self)
{
  return recurs (self, 0, self->fold.engine.n_clocks)
         && memcmp (&self->occupancy[0], &self->occupancy[1], sizeof self->occupancy[0]) == 0;
}

/* Runs steps as sim_run does, except those that would repeat the last one exactly. Returns the
 * period of the last step; its spells are in the fold. */
static gint64
run_steps (SimWorkspace *self)
{
  gint64 period = -1, before;
  guint n_run = 0;
  gboolean is_last_again = FALSE;
  sim_fold_run (&self->fold, PLAN_SECTION_SETUP);
  note_ahead (self);
  do
    {
      before = period;
      n_run++;
      if (!is_last_again)
        period = sim_fold_run (&self->fold, PLAN_SECTION_STEP);
      note_ahead (self);
      is_last_again = is_last_again || is_same_again (self);
    }
  while ((period != before || !recurs (self, SIM_CLOCK_STREAMS, PLAN_N_STREAMS))
         && n_run < SIM_MAX_STEPS);
  self->n_steps = n_run + 1;
  return is_last_again ? period : sim_fold_run (&self->fold, PLAN_SECTION_STEP);
}

/* Splits a step's time by a full trace, where SimExposed cannot. */
static gboolean
split_slowly (const PlanSchedule *schedule, const SimCost *cost, SimShares *out, GError **error)
{
  g_autoptr (PlanTrace) trace = sim_run (schedule, cost, NULL, error);
  if (!trace)
    return FALSE;
  *out = (SimShares){ trace->compute_ns,        trace->exposed_tensor_ns, trace->exposed_gather_ns,
                      trace->exposed_reduce_ns, trace->exposed_copy_ns,   trace->host_ns };
  return TRUE;
}

static gint64
measure_step (const PlanSchedule *schedule, const SimCost *cost, gboolean splits,
              SimWorkspace *workspace)
{
  if (!sim_program_compile (&workspace->program, schedule, cost) && !splits)
    return workspace->period_ns;
  workspace->fold.splits = splits;
  sim_fold_begin (&workspace->fold, schedule, &workspace->program, cost);
  return workspace->period_ns = run_steps (workspace);
}

gint64
sim_measure_step (const PlanSchedule *schedule, const SimCost *cost, SimWorkspace *workspace)
{
  return measure_step (schedule, cost, FALSE, workspace);
}

gint64
sim_measure_stages_step (const SimPipeline *pipeline, const SimCost *const *costs, gboolean drains,
                         guint *out_n_steps)
{
  g_autoptr (SimStages) stages = sim_stages_new (pipeline, costs);
  PlanTrace *traces[SIM_MAX_STAGES] = { NULL };
  SimPasses passes;
  gint64 step_ns;
  if (drains && sim_stages_run (stages))
    {
      *out_n_steps = sim_stages_n_steps (stages);
      return sim_stages_step_ns (stages);
    }
  if (sim_passes_run (pipeline, costs, NULL, &passes))
    {
      *out_n_steps = passes.n_steps;
      return passes.step_ns;
    }
  if (!sim_time_stages (pipeline, costs, traces, out_n_steps, NULL))
    return -1;
  step_ns = traces[0]->step_ns;
  for (guint i = 0; i < pipeline->n; i++)
    plan_trace_free (traces[i]);
  return step_ns;
}

gboolean
sim_measure_device_bytes (const PlanSchedule *schedule, const SimCost *cost, const PlanStack *stack,
                          guint64 enough_bytes, SimWorkspace *workspace, guint64 *out_bytes,
                          gboolean *out_is_settled, GError **error)
{
  PlanMemory memory;
  workspace->footprint.enough_bytes = enough_bytes;
  if (!sim_footprint_run (&workspace->footprint, schedule, &workspace->program, cost, stack,
                          workspace->n_steps, &memory, error))
    return FALSE;
  *out_bytes = memory.device;
  *out_is_settled = workspace->footprint.n_taken <= LEAST_STEPS;
  return TRUE;
}

gboolean
sim_measure_memory (const PlanSchedule *schedule, const SimCost *cost, const PlanStack *stack,
                    guint n_steps, guint64 enough_bytes, SimWorkspace *workspace,
                    PlanMemory *out_memory, GError **error)
{
  sim_program_compile (&workspace->program, schedule, cost);
  workspace->footprint.enough_bytes = enough_bytes;
  return sim_footprint_run (&workspace->footprint, schedule, &workspace->program, cost, stack,
                            n_steps, out_memory, error);
}

guint64
sim_measure_least_bytes (const PlanSchedule *schedule, const PlanStack *stack)
{
  const gboolean has_blocks = stack->memory.allocator != PLAN_ALLOCATOR_ARENA;
  return plan_meter_peak_bytes (schedule, has_blocks ? stack->memory.allocation_bytes : 1)
         + (has_blocks ? stack->memory.fixed_bytes : 0)
         + plan_stack_outside_bytes (stack, schedule);
}

guint64
sim_measure_resting_bytes (const PlanSchedule *schedule, const PlanStack *stack)
{
  return plan_meter_resting_bytes (schedule, stack->memory.allocation_bytes)
         + stack->memory.fixed_bytes;
}

gboolean
sim_measure (const PlanSchedule *schedule, const SimCost *cost, const PlanStack *stack,
             SimWorkspace *workspace, SimSummary *out_summary, GError **error)
{
  SimSummary summary = { 0 };
  SimShares shares;
  summary.step_ns = measure_step (schedule, cost, TRUE, workspace);
  if (!sim_exposed_split (&workspace->fold.busy, summary.step_ns, &shares)
      && !split_slowly (schedule, cost, &shares, error))
    return FALSE;
  workspace->footprint.enough_bytes = G_MAXUINT64;
  if (!sim_footprint_run (&workspace->footprint, schedule, &workspace->program, cost, stack,
                          workspace->n_steps, &summary.memory, error))
    return FALSE;
  summary.compute_ns = shares.compute_ns;
  summary.exposed_tensor_ns = shares.exposed_tensor_ns;
  summary.exposed_gather_ns = shares.exposed_gather_ns;
  summary.exposed_reduce_ns = shares.exposed_reduce_ns;
  summary.exposed_copy_ns = shares.exposed_copy_ns;
  summary.host_ns = shares.host_ns;
  summary.n_ops = workspace->fold.n_ops;
  summary.n_walked = workspace->fold.n_walked;
  *out_summary = summary;
  return TRUE;
}
