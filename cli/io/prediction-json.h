/* Predictions as JSON, member by member, as the contract of the command line has it. */
#pragma once
#include "advise/predict.h"
#include <json-glib/json-glib.h>
G_BEGIN_DECLS

/* The members "uncertainty_pct", "uncertainty_runs" and "p_fits"; null for what is not known. */
void cli_uncertainty_to_json (const AdvisePrediction *self, JsonBuilder *builder);

/* The members of a result as in the contract of the command line, into an open object. */
void cli_prediction_to_json (const AdvisePrediction *self, const AdviseInput *input,
                             JsonBuilder *builder);

/* The member "plan": every field of a plan for such a model; "hazards": an array of texts. */
void cli_plan_to_json (const Plan *plan, const PlanModel *model, JsonBuilder *builder);
void cli_hazards_to_json (GPtrArray *hazards, JsonBuilder *builder);

/* The member "provenance": shares of the time by where costs are from. */
void cli_provenance_to_json (const AdvisePrediction *self, JsonBuilder *builder);

/* "{…}" of memory columns, for measured traces too. */
void cli_memory_to_json (const PlanMemory *memory, const PlanSchedule *schedule,
                         JsonBuilder *builder);

G_END_DECLS
