/* AdvisePrediction: a plan lowered and simulated, with the figures people ask for. */
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
  PlanCase *of;           /* of the input's model and cluster, which need not outlive the rest */
  PlanSchedule *schedule; /* of a pipeline: of the stage that takes most memory */
  PlanTrace *trace;       /* its totals; spans and samples once they are asked for */
  GArray *stages;         /* AdviseStage: of a pipeline, in order; else empty */
  guint fullest;          /* of them */
  GArray *expanded;       /* PlanTraceView: of each, once spans are asked for; else empty */
  const char *params_id;
  double step_ms, tokens_per_s_per_gpu, tflops_per_gpu, mfu;
  SimErrorRange error_range;                /* of step_ms; below 0: not known */
  double p_fits;                            /* in the cluster's device memory; below 0: not known */
  double slowed_ms;                         /* that compute takes longer for what runs beside it */
  double provenance_pct[SIM_N_PROVENANCES]; /* shares of the time on all streams */
  AdviseSplit split;                        /* of compute */
  gboolean fits;                            /* device memory within the cluster's */
  GPtrArray *hazards;                       /* texts: what to know before it runs */
} AdvisePrediction;

void advise_prediction_clear (AdvisePrediction *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (AdvisePrediction, advise_prediction_clear)

gboolean advise_predict (const AdviseInput *input, AdvisePrediction *out_prediction,
                         GError **error);

#define ADVISE_MAX_SPANS 500000

/* How many ops a step has, micro batch by micro batch; whether that is at most ADVISE_MAX_SPANS. */
guint64 advise_prediction_n_ops (const AdvisePrediction *self);
gboolean advise_prediction_can_expand (const AdvisePrediction *self);

/* Goes through a step op by op, for what wants its spans. UNSUPPORTED where there are more than
 * ADVISE_MAX_SPANS: says which global batch would do. */
gboolean advise_prediction_expand (AdvisePrediction *self, const AdviseInput *input,
                                   GError **error);

/* The cost of each op of the case's schedule: measured where the store has it, else modelled. */
SimCost *advise_cost_of (const AdviseInput *input, const PlanCase *of, const PlanSchedule *schedule,
                         GError **error);

/* What this thread simulates in. */
SimWorkspace *advise_workspace (void);

/* "of 10 such predictions 8 were within 5.1 %, from 26 groups of runs"; the caller frees. */
char *advise_describe_uncertainty (SimErrorRange error_range);

/* The totals of a case, of each stage of its pipeline: up to SIM_MAX_STAGES. */
gboolean advise_measure_case (const AdviseInput *input, const PlanCase *of,
                              SimSummary *out_summaries, GError **error);

/* Where costs are from, in words behind the parameter set's name; the caller frees. */
char *advise_describe_costs (const AdvisePrediction *self);

/* "cross_entropy scratch of unit 3": the op at which memory peaks, in words; the caller frees. */
char *advise_peak_name (const PlanMemory *memory, const PlanSchedule *schedule);

double advise_mib (guint64 bytes);

G_END_DECLS
