/* AdvisePrediction: a plan, lowered and simulated, with the figures that people ask for. */
#pragma once
#include "advise/compute-split.h"
#include "advise/input.h"
#include "advise/stages.h"
#include "planner/case/case.h"
#include "planner/schedule/schedule.h"
#include "planner/schedule/trace.h"
#include "sim/cost/cost.h"
#include "sim/fast/measure.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  PlanCase *of;           /* points to the input's model and cluster; no other member does */
  PlanSchedule *schedule; /* in a pipeline, of the stage that takes most memory */
  PlanTrace *trace;       /* totals; spans and samples are added by advise_prediction_expand */
  GArray *stages;         /* AdviseStage: in a pipeline, all stages in order; else empty */
  guint fullest;          /* index of the stage that takes most memory */
  GArray *expanded; /* PlanTraceView: of each stage, after advise_prediction_expand; else empty */
  const char *params_id;
  double step_ms, tokens_per_s_per_gpu, tflops_per_gpu, mfu;
  SimErrorRange error_range; /* of step_ms; below 0: unknown */
  char *unlike;              /* what few or none of the runs behind it had; NULL: nothing */
  double p_fits;             /* probability of fitting the device's memory; below 0: unknown */
  double slowed_ms;          /* how much longer compute takes because of what overlaps it */
  double provenance_pct[SIM_N_PROVENANCES]; /* shares of the time on all streams, by where costs
                                               come from */
  AdviseSplit split;                        /* of compute */
  gboolean fits;                            /* predicted device memory is within the cluster's */
  GPtrArray *hazards;                       /* texts: what to know before the plan is run */
} AdvisePrediction;

void advise_prediction_clear (AdvisePrediction *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (AdvisePrediction, advise_prediction_clear)

gboolean advise_predict (const AdviseInput *input, AdvisePrediction *out_prediction,
                         GError **error);

#define ADVISE_MAX_SPANS 500000

/* The number of ops in a step, with every micro batch counted; and whether it is at most
 * ADVISE_MAX_SPANS. */
guint64 advise_prediction_n_ops (const AdvisePrediction *self);
gboolean advise_prediction_can_expand (const AdvisePrediction *self);

/* Simulates a step op by op to record its spans. UNSUPPORTED where there would be more than
 * ADVISE_MAX_SPANS; the message names a global batch that works. */
gboolean advise_prediction_expand (AdvisePrediction *self, const AdviseInput *input,
                                   GError **error);

/* The cost of each op of the case's schedule: measured where the store has it, else modelled. */
SimCost *advise_cost_of (const AdviseInput *input, const PlanCase *of, const PlanSchedule *schedule,
                         GError **error);

/* The workspace in which this thread simulates. */
SimWorkspace *advise_workspace (void);

/* "of 10 such predictions for clusters without runs 8 lie within 15.1 %, from 26 groups of runs of
 * 2 sources"; of the user's own runs, by which a set was fitted: "of 10 such predictions 8 lie
 * within 5.1 %, from 26 groups of runs". The caller frees. */
char *advise_describe_uncertainty (const AdvisePrediction *self);

/* The totals of a case, or of each stage of its pipeline (up to SIM_MAX_STAGES). */
gboolean advise_measure_case (const AdviseInput *input, const PlanCase *of,
                              SimSummary *out_summaries, GError **error);

/* Words on where costs come from, to follow the parameter set's name; the caller frees. */
char *advise_describe_costs (const AdvisePrediction *self);

/* The op at which memory peaks, in words: "cross_entropy scratch of unit 3"; the caller frees. */
char *advise_peak_name (const PlanMemory *memory, const PlanSchedule *schedule);

double advise_mib (guint64 bytes);

G_END_DECLS
