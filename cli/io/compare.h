/* Compares two plans, as rows of a table with four columns: quantity, first plan, second plan, and
 * the change from the first to the second. */
#pragma once
#include "advise/predict.h"
#include "cli/io/output.h"
G_BEGIN_DECLS

/* Adds the properties of model and cluster that differ. */
void cli_compare_inputs (CliTable *table, const AdviseInput *a, const AdviseInput *b);

/* Adds the fields that differ. */
void cli_compare_fields (CliTable *table, const Plan *a, const Plan *b);

/* Adds time and memory, part by part. */
void cli_compare_costs (CliTable *table, const AdvisePrediction *a, const AdvisePrediction *b);

/* Adds three cells that say how uncertain a prediction is; empty ones if `prediction` is NULL. */
void cli_add_uncertainty (CliTable *table, const AdvisePrediction *prediction);

G_END_DECLS
