/* CliPrediction: a plan lowered and simulated, with the figures people ask for. */
#pragma once
#include "planner/cli/options.h"
#include "planner/cli/split.h"
#include "planner/plan/stack.h"
#include "planner/schedule/schedule.h"
#include "planner/schedule/trace.h"
#include "sim/cost/cost.h"
#include "sim/fast/measure.h"
#include <json-glib/json-glib.h>
G_BEGIN_DECLS

typedef struct
{
  Plan plan; /* resolved */
  const PlanStack *stack;
  PlanSchedule *schedule;
  PlanTrace *trace; /* totals; spans and samples once they are asked for */
  const char *params_id;
  double step_ms, tokens_per_s_per_gpu, tflops_per_gpu, mfu;
  SimDoubt doubt;                           /* of step_ms; below 0: not known */
  double p_fits;                            /* in the cluster's device memory; below 0: not known */
  double slowed_ms;                         /* that compute takes longer for what runs beside it */
  double provenance_pct[SIM_N_PROVENANCES]; /* shares of the time on all streams */
  CliSplit split;                           /* of compute */
  gboolean fits;                            /* device memory within the cluster's */
  GPtrArray *hazards;                       /* texts: what to know before it runs */
} CliPrediction;

void cli_prediction_clear (CliPrediction *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (CliPrediction, cli_prediction_clear)

gboolean cli_predict (const CliInput *input, CliPrediction *out_prediction, GError **error);

#define CLI_MAX_SPANS 500000

/* How many ops a step has, micro batch by micro batch; whether that is at most CLI_MAX_SPANS. */
guint64 cli_prediction_n_ops (const CliPrediction *self);
gboolean cli_prediction_can_expand (const CliPrediction *self);

/* Goes through a step op by op, for what wants its spans. UNSUPPORTED where there are more than
 * CLI_MAX_SPANS: says which global batch would do. */
gboolean cli_prediction_expand (CliPrediction *self, const CliInput *input, GError **error);

/* What a resolved plan's schedule costs, from the best sources there are. */
SimCost *cli_cost_of (const CliInput *input, const Plan *resolved, const PlanSchedule *schedule,
                      const PlanStack *stack, GError **error);

/* What this thread simulates in. */
SimWorkspace *cli_workspace (void);

/* The members "uncertainty_pct", "uncertainty_runs" and "p_fits"; null for what is not known. */
void cli_doubt_to_json (const CliPrediction *self, JsonBuilder *builder);

/* "of 10 such predictions 8 were within 5.1 %, from 26 groups of runs"; the caller frees. */
char *cli_describe_doubt (SimDoubt doubt);

/* The totals of a resolved plan. */
gboolean cli_measure_plan (const CliInput *input, const Plan *resolved, SimSummary *out_summary,
                           GError **error);

/* The members of a result as in the contract of the command line, into an open object. */
void cli_prediction_to_json (const CliPrediction *self, const CliInput *input,
                             JsonBuilder *builder);

/* The member "plan": every field by its name; "hazards": an array of texts. */
void cli_plan_to_json (const Plan *plan, JsonBuilder *builder);
void cli_hazards_to_json (GPtrArray *hazards, JsonBuilder *builder);

/* The member "provenance": shares of the time by where costs are from. */
void cli_provenance_to_json (const CliPrediction *self, JsonBuilder *builder);

/* The same in words, behind the parameter set's name; the caller frees. */
char *cli_describe_costs (const CliPrediction *self);

/* "{…}" of memory columns, for measured traces too. */
void cli_memory_to_json (const PlanMemory *memory, const PlanSchedule *schedule,
                         JsonBuilder *builder);

/* "cross_entropy scratch of unit 3": the op at which memory peaks, in words; the caller frees. */
char *cli_peak_name (const PlanMemory *memory, const PlanSchedule *schedule);

double cli_mib (guint64 bytes);

/* Several plans: every combination of the values given as FIELD=V1,V2,… (all of an ENUM's values
 * where no list follows). Each is a copy of `plan` with some fields changed. */
GArray *cli_sweep (const Plan *plan, char *const *sweeps, GError **error); /* of Plan */

/* "recompute=full": the swept fields of one such plan, but for strategy and mbs, which have columns
 * of their own; the caller frees. */
char *cli_describe_swept (const Plan *plan, char *const *sweeps);

G_END_DECLS
