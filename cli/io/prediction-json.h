/* Predictions as JSON members, as docs/schema describes them. */
#pragma once
#include "advise/predict.h"
#include <json-glib/json-glib.h>
G_BEGIN_DECLS

/* Adds "uncertainty_pct", "uncertainty_runs" and "p_fits"; null where unknown. */
void cli_uncertainty_to_json (const AdvisePrediction *self, JsonBuilder *builder);

/* Adds all members of a prediction to the open object. */
void cli_prediction_to_json (const AdvisePrediction *self, const AdviseInput *input,
                             JsonBuilder *builder);

/* Adds "plan", with every field that the model uses; adds "hazards", an array of texts. */
void cli_plan_to_json (const Plan *plan, const PlanModel *model, JsonBuilder *builder);
void cli_hazards_to_json (GPtrArray *hazards, JsonBuilder *builder);

/* Adds "provenance": shares of the step's time by where their costs come from. */
void cli_provenance_to_json (const AdvisePrediction *self, JsonBuilder *builder);

/* Adds an object of memory columns, for predicted and for measured memory. */
void cli_memory_to_json (const PlanMemory *memory, const PlanSchedule *schedule,
                         JsonBuilder *builder);

G_END_DECLS
