/* Where the time and the memory of a prediction go, as tables; of a pipeline: of its fullest stage.
 */
#pragma once
#include "advise/predict.h"
#include "cli/io/output.h"
G_BEGIN_DECLS

/* The parts of a step; its compute by kind, with the rates that it reaches; memory by category. The
 * caller frees. */
CliTable *cli_table_of_time (const AdvisePrediction *self);
CliTable *cli_table_of_compute (const AdvisePrediction *self);
CliTable *cli_table_of_memory (const AdvisePrediction *self);

G_END_DECLS
