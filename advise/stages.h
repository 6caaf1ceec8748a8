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
  PlanTrace *totals; /* without spans and samples; idle is the time waiting for other stages */
} AdviseStage;

/* A stage's layers in words, "embedding, 0-19"; the caller frees. */
char *advise_stage_describe (const AdviseStage *self);

/* Exposed communication of all kinds, trades with other stages included. */
gint64 advise_stage_exposed_ns (const AdviseStage *self);

typedef struct
{
  guint n;
  gboolean is_brief;        /* schedules are those of plan_lower_brief, which tell no memory */
  PlanSchedule **schedules; /* of one rank of each stage */
  SimCost **costs;
} AdviseStages;

void advise_stages_clear (AdviseStages *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (AdviseStages, advise_stages_clear)

gboolean advise_stages_init (AdviseStages *self, const AdviseInput *input, const PlanCase *of,
                             GError **error);

/* advise_stages_init in parts, for callers that may need only some: first nothing, then one stage's
 * schedule (borrowed), then all the rest. */
void advise_stages_start (AdviseStages *self, const PlanCase *of, gboolean is_brief);
const PlanSchedule *advise_stages_lower (AdviseStages *self, const PlanCase *of, guint stage,
                                         GError **error);
gboolean advise_stages_finish (AdviseStages *self, const AdviseInput *input, const PlanCase *of,
                               GError **error);

/* The totals of the steady step, by stage; `out_summaries` has room for n. `*out_stages` is the
 * simulation, which can be asked for more; NULL where it was simulated op by op (sim_time_stages).
 * `out_stages` may be NULL. */
gboolean advise_stages_measure (const AdviseStages *self, const PlanCase *of,
                                SimSummary *out_summaries, SimStages **out_stages, GError **error);

/* The stage that takes most device memory, the first of equal ones. */
guint advise_stages_fullest (const SimSummary *summaries, guint n);

/* Records a trace of each stage, with sim_run_stages. */
gboolean advise_stages_run (const AdviseStages *self, const PlanCase *of, PlanTrace **out_traces,
                            gint64 *out_offsets, GError **error);

/* Only the step's time (below 0 where it cannot be found) and the number of steps simulated. */
gint64 advise_stages_time (const AdviseStages *self, const PlanCase *of, guint *out_n_steps);

/* The device bytes of the fullest stage of a pipeline that was only started, after so many steps.
 * Returns which stage that is, the first of equal ones, or n where it cannot be found. `live` are
 * the stages' sim_measure_least_bytes: stages are lowered one by one, those with most live bytes
 * first, until no other can be the fullest, by what an allocator may hold besides. Once one takes
 * more than `enough_bytes`, it may return that stage and any bytes above. */
guint advise_stages_memory (AdviseStages *self, const AdviseInput *input, const PlanCase *of,
                            const guint64 *live, guint n_steps, guint64 enough_bytes,
                            guint64 *out_bytes, GError **error);

G_END_DECLS
