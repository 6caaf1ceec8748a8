/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "advise/stages.h"

#include "advise/predict.h"
#include "planner/base/units.h"
#include "planner/lower/lower.h"
#include "planner/schedule/check-stages.h"
#include "sim/fast/passes.h"
#include "sim/sim.h"

static void
append (GString *text, const char *part)
{
  g_string_append_printf (text, "%s%s", text->len > 0 ? ", " : "", part);
}

/* Appends "4-7", or "4" for one layer, or nothing. */
static void
append_layers (GString *text, const PlanStage *stage, const PlanStage *part)
{
  const gint64 n = part->layers - part->modules; /* of the decoder */
  const gint64 first = plan_stage_layer (stage, part->first), last = first + n - 1;
  g_autofree char *layers = NULL;
  if (n == 0)
    return;
  layers = first == last ? g_strdup_printf ("%" G_GINT64_FORMAT, first)
                         : g_strdup_printf ("%" G_GINT64_FORMAT "-%" G_GINT64_FORMAT, first, last);
  append (text, layers);
}

/* Of many virtual stages only the first two and the last are named. */
char *
advise_stage_describe (const AdviseStage *self)
{
  const PlanStage *stage = &self->part;
  GString *text = g_string_new (stage->has_embedding ? "embedding" : "");
  for (gint64 i = 0; i < stage->n_virtual; i++)
    {
      const PlanStage part = plan_stage_virtual (stage, i);
      if (i == 2 && stage->n_virtual > 4)
        {
          append (text, "...");
          i = stage->n_virtual - 2; /* so that the last one comes next */
          continue;
        }
      append_layers (text, stage, &part);
    }
  if (stage->modules > 0)
    append (text, "mtp");
  if (stage->has_head)
    append (text, "head");
  if (plan_stage_reads_logits (stage))
    append (text, !stage->has_loss ? "logits in fp32" : "loss");
  return g_string_free (text, FALSE);
}

gint64
advise_stage_exposed_ns (const AdviseStage *self)
{
  const PlanTrace *t = self->totals;
  return t->exposed_tensor_ns + t->exposed_gather_ns + t->exposed_reduce_ns + t->exposed_copy_ns;
}

void
advise_stages_clear (AdviseStages *self)
{
  for (guint i = 0; i < self->n; i++)
    {
      g_clear_pointer (&self->schedules[i], plan_schedule_free);
      g_clear_pointer (&self->costs[i], sim_cost_free);
    }
  g_clear_pointer (&self->schedules, g_free);
  g_clear_pointer (&self->costs, g_free);
  self->n = 0;
}

void
advise_stages_start (AdviseStages *self, const PlanCase *of, gboolean is_brief)
{
  const guint n = (guint)of->plan.value[PLAN_PP];
  *self = (AdviseStages){ .n = n,
                          .is_brief = is_brief,
                          .schedules = g_new0 (PlanSchedule *, n),
                          .costs = g_new0 (SimCost *, n) };
}

const PlanSchedule *
advise_stages_lower (AdviseStages *self, const PlanCase *of, guint stage, GError **error)
{
  const guint ranks_per_stage = (guint)plan_cluster_devices (of->cluster) / self->n;
  if (!self->schedules[stage])
    self->schedules[stage] = self->is_brief ? plan_lower_brief (of, stage * ranks_per_stage)
                                            : plan_lower (of, stage * ranks_per_stage, error);
  return self->schedules[stage];
}

/* Finds one stage's schedule and costs. */
static gboolean
finish (AdviseStages *self, const AdviseInput *input, const PlanCase *of, guint stage,
        GError **error)
{
  return advise_stages_lower (self, of, stage, error)
         && (self->costs[stage] = advise_cost_of (input, of, self->schedules[stage], error));
}

gboolean
advise_stages_finish (AdviseStages *self, const AdviseInput *input, const PlanCase *of,
                      GError **error)
{
  for (guint i = 0; i < self->n; i++)
    if (!finish (self, input, of, i, error))
      return FALSE;
  return self->is_brief || !g_getenv ("FSDPLAN_DEBUG_CHECK")
         || plan_schedule_check_stages ((const PlanSchedule *const *)self->schedules, self->n,
                                        error);
}

gboolean
advise_stages_init (AdviseStages *self, const AdviseInput *input, const PlanCase *of,
                    GError **error)
{
  advise_stages_start (self, of, FALSE);
  return advise_stages_finish (self, input, of, error);
}

static SimPipeline
pipeline_of (const AdviseStages *self)
{
  return (SimPipeline){ (const PlanSchedule *const *)self->schedules, self->n };
}

gboolean
advise_stages_run (const AdviseStages *self, const PlanCase *of, PlanTrace **out_traces,
                   gint64 *out_offsets, GError **error)
{
  const SimPipeline pipeline = pipeline_of (self);
  return sim_run_stages (&pipeline, (const SimCost *const *)self->costs, of->stack, out_traces,
                         out_offsets, error);
}

/* Whether nothing of one stage is under way as it meets another (sim/fast/stages.h). Virtual stages
 * exchange beside compute, and some hosts issue on while stages meet. */
static gboolean
meets_drained (const PlanCase *of)
{
  return of->plan.value[PLAN_VPP] == 1 && of->stack->pipeline.trades != PLAN_TRADES_ON_DEVICE;
}

static SimSummary
summary_of (const PlanTrace *t)
{
  return (SimSummary){ .step_ns = t->step_ns,
                       .compute_ns = t->compute_ns,
                       .exposed_tensor_ns = t->exposed_tensor_ns,
                       .exposed_gather_ns = t->exposed_gather_ns,
                       .exposed_reduce_ns = t->exposed_reduce_ns,
                       .exposed_copy_ns = t->exposed_copy_ns,
                       .host_ns = t->host_ns,
                       .idle_ns = t->idle_ns };
}

/* Measures times from one step that is simulated op by op. */
static gboolean
time_slowly (const AdviseStages *self, SimSummary *out_summaries, guint *out_n_steps,
             GError **error)
{
  const SimPipeline pipeline = pipeline_of (self);
  const SimCost *const *costs = (const SimCost *const *)self->costs;
  PlanTrace *traces[SIM_MAX_STAGES] = { NULL };
  SimPasses passes;
  if (sim_passes_run (&pipeline, costs, traces, &passes))
    *out_n_steps = passes.n_steps;
  else if (!sim_time_stages (&pipeline, costs, traces, out_n_steps, error))
    return FALSE;
  for (guint i = 0; i < self->n; i++)
    {
      out_summaries[i] = summary_of (traces[i]);
      plan_trace_free (traces[i]);
    }
  return TRUE;
}

/* Measures times from what stages do between meetings; FALSE where that does not suffice. */
static gboolean
time_fast (const AdviseStages *self, const PlanCase *of, SimStages *stages,
           SimSummary *out_summaries)
{
  if (!meets_drained (of) || !sim_stages_run (stages))
    return FALSE;
  for (guint i = 0; i < self->n; i++)
    {
      SimSummary *s = &out_summaries[i];
      SimShares shares;
      *s = (SimSummary){ .step_ns = sim_stages_step_ns (stages) };
      sim_stages_split (stages, i, &shares, &s->idle_ns);
      s->compute_ns = shares.compute_ns;
      s->exposed_tensor_ns = shares.exposed_tensor_ns;
      s->exposed_gather_ns = shares.exposed_gather_ns;
      s->exposed_reduce_ns = shares.exposed_reduce_ns;
      s->exposed_copy_ns = shares.exposed_copy_ns;
      s->host_ns = shares.host_ns;
    }
  return TRUE;
}

guint
advise_stages_fullest (const SimSummary *summaries, guint n)
{
  guint fullest = 0;
  for (guint i = 1; i < n; i++)
    if (summaries[i].memory.device > summaries[fullest].memory.device)
      fullest = i;
  return fullest;
}

gboolean
advise_stages_measure (const AdviseStages *self, const PlanCase *of, SimSummary *out_summaries,
                       SimStages **out_stages, GError **error)
{
  const SimPipeline pipeline = pipeline_of (self);
  g_autoptr (SimStages) stages = sim_stages_new (&pipeline, (const SimCost *const *)self->costs);
  const gboolean is_fast = time_fast (self, of, stages, out_summaries);
  guint n_steps = is_fast ? sim_stages_n_steps (stages) : 0;
  if (out_stages)
    *out_stages = NULL;
  if (!is_fast && !time_slowly (self, out_summaries, &n_steps, error))
    return FALSE;
  for (guint i = 0; i < self->n; i++)
    if (!sim_measure_memory (self->schedules[i], self->costs[i], of->stack, n_steps, G_MAXUINT64,
                             advise_workspace (), &out_summaries[i].memory, error))
      return FALSE;
  if (out_stages && is_fast)
    *out_stages = g_steal_pointer (&stages);
  return TRUE;
}

gint64
advise_stages_time (const AdviseStages *self, const PlanCase *of, guint *out_n_steps)
{
  const SimPipeline pipeline = pipeline_of (self);
  return sim_measure_stages_step (&pipeline, (const SimCost *const *)self->costs,
                                  meets_drained (of), out_n_steps);
}

/* The most that an allocator is assumed to hold of memory that nothing lives in: a share of what
 * lives, or some times what it holds so on the fullest stage, and a few segments more. Of 4,848
 * stages of 631 pipelines it held at most 9 % of what lives under Megatron-LM, 21 % under PyTorch
 * and 31 % under nanotron, which was no more than a sixteenth of that, or than what it held so on
 * the fullest stage, 1.8 times. tests/prop/prop-pipeline.c looks at random ones. */
#define LOST_SHARE 8
#define LOST_TIMES 3
#define FEW_SEGMENTS (256 * PLAN_MIB)

/* The stage with the most live bytes of those that are left, the first of equal ones. */
static guint
next_fullest (const guint64 *live, const gboolean *is_done, guint n)
{
  guint next = n;
  for (guint i = 0; i < n; i++)
    if (!is_done[i] && (next == n || live[i] > live[next]))
      next = i;
  return next;
}

guint
advise_stages_memory (AdviseStages *self, const AdviseInput *input, const PlanCase *of,
                      const guint64 *live, guint n_steps, guint64 enough_bytes, guint64 *out_bytes,
                      GError **error)
{
  g_autofree gboolean *is_done = g_new0 (gboolean, self->n);
  guint fullest = self->n;
  guint64 most = 0, lost = 0;
  for (guint k = 0; k < self->n && most <= enough_bytes; k++)
    {
      const guint i = next_fullest (live, is_done, self->n);
      PlanMemory memory;
      if (k > 0 && live[i] + MAX (LOST_TIMES * lost, live[i] / LOST_SHARE) + FEW_SEGMENTS < most)
        break;
      if (!finish (self, input, of, i, error)
          || !sim_measure_memory (self->schedules[i], self->costs[i], of->stack, n_steps,
                                  enough_bytes, advise_workspace (), &memory, error))
        return self->n;
      is_done[i] = TRUE;
      lost = k == 0 ? memory.device - live[i] : lost;
      if (memory.device < most || (memory.device == most && i > fullest))
        continue;
      fullest = i;
      most = memory.device;
    }
  *out_bytes = most;
  return fullest;
}
