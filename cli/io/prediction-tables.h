/* Tables of where a prediction's time and memory go; for a pipeline those of its fullest stage. */
#pragma once
#include "advise/predict.h"
#include "cli/io/output.h"
G_BEGIN_DECLS

/* The parts of the step; compute by kind of work, with the rates it reaches; memory by category.
 * The caller frees. */
CliTable *cli_table_of_time (const AdvisePrediction *self);
CliTable *cli_table_of_compute (const AdvisePrediction *self);
CliTable *cli_table_of_memory (const AdvisePrediction *self);

G_END_DECLS
