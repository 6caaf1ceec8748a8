/* AdviseStages: the schedules and costs of all stages of a pipeline, and their simulation. */
#pragma once
#include "advise/input.h"
#include "planner/case/case.h"
#include "planner/model/stage.h"
#include "planner/schedule/trace.h"
#include "sim/fast/measure.h"
#include "sim/fast/stages.h"
G_BEGIN_DECLS

typedef struct
{
  PlanStage part;
  PlanTrace *totals; /* without spans and samples; idle is what it waits for other stages */
} AdviseStage;

/* "embedding, 0-19": its layers in words; the caller frees. */
char *advise_stage_describe (const AdviseStage *self);

/* Communication that nothing hides, also with other stages. */
gint64 advise_stage_exposed_ns (const AdviseStage *self);

typedef struct
{
  guint n;
  PlanSchedule **schedules; /* of one rank of each stage */
  SimCost **costs;
} AdviseStages;

void advise_stages_clear (AdviseStages *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (AdviseStages, advise_stages_clear)

gboolean advise_stages_init (AdviseStages *self, const AdviseInput *input, const PlanCase *of,
                             GError **error);

/* The same in parts, for those who may need few: nothing yet; one stage's schedule, borrowed; the
 * rest. */
void advise_stages_start (AdviseStages *self, const PlanCase *of);
const PlanSchedule *advise_stages_lower (AdviseStages *self, const PlanCase *of, guint stage,
                                         GError **error);
gboolean advise_stages_finish (AdviseStages *self, const AdviseInput *input, const PlanCase *of,
                               GError **error);

/* Totals of the steady step, by stage: `out_summaries` has room for n. Returns the simulation, to
 * be asked for more; NULL with the totals set where it is one op by op (sim_time_stages), or with
 * an error. */
gboolean advise_stages_measure (const AdviseStages *self, const PlanCase *of,
                                SimSummary *out_summaries, SimStages **out_stages, GError **error);

/* The stage that takes most on the device, the first of equal ones. */
guint advise_stages_fullest (const SimSummary *summaries, guint n);

/* sim_run_stages: a trace of each stage. */
gboolean advise_stages_run (const AdviseStages *self, const PlanCase *of, PlanTrace **out_traces,
                            gint64 *out_offsets, GError **error);

/* The step's time alone, below 0 where it cannot be told, and the steps that it took to find it.
 * Then what the fullest stage takes on the device; returns which it is, n where that cannot be
 * told. Any stage and bytes above `enough_bytes` will do where one takes more. */
gint64 advise_stages_time (const AdviseStages *self, const PlanCase *of, guint *out_n_steps);
guint advise_stages_memory (const AdviseStages *self, const PlanCase *of, guint n_steps,
                            guint64 enough_bytes, guint64 *out_bytes, GError **error);

G_END_DECLS
