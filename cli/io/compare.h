/* Two plans side by side, as rows of a table of four columns: what, the one, the other, and what
 * changes from the one to the other. */
#pragma once
#include "advise/predict.h"
#include "cli/io/output.h"
G_BEGIN_DECLS

/* What differs in model and cluster. */
void cli_compare_inputs (CliTable *table, const AdviseInput *a, const AdviseInput *b);

/* Fields that differ. */
void cli_compare_fields (CliTable *table, const Plan *a, const Plan *b);

/* Time and memory by part. */
void cli_compare_costs (CliTable *table, const AdvisePrediction *a, const AdvisePrediction *b);

/* How sure a prediction is, as three cells of any table; one that is NULL says nothing. */
void cli_add_uncertainty (CliTable *table, const AdvisePrediction *prediction);

G_END_DECLS
