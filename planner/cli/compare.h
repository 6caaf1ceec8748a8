/* Two plans side by side, as rows of a table of four columns: what, the one, the other, and what
 * changes from the one to the other. */
#pragma once
#include "planner/cli/output.h"
#include "planner/cli/predict.h"
G_BEGIN_DECLS

/* What differs in model and cluster. */
void cli_compare_inputs (CliTable *table, const CliInput *a, const CliInput *b);

/* Fields that differ. */
void cli_compare_fields (CliTable *table, const Plan *a, const Plan *b);

/* Time and memory by part. */
void cli_compare_costs (CliTable *table, const CliPrediction *a, const CliPrediction *b);

/* How sure a prediction is, as three cells of any table; one that is NULL says nothing. */
void cli_add_doubt (CliTable *table, const CliPrediction *prediction);

G_END_DECLS
