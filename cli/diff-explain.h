/* fsdplan diff --explain memory, and --explain time. */
#pragma once
#include "advise/predict.h"
#include "cli/io/output.h"
G_BEGIN_DECLS

/* Adds rows as cli_compare_costs does: the parts of a device's memory in MiB; then the buffers live
 * at the peak that differ, largest difference first. */
void cli_compare_memory (CliTable *table, const AdvisePrediction *a, const AdvisePrediction *b);

/* Adds rows for ops that differ, by stream, kind and output, in ms of a step, largest difference
 * first. */
gboolean cli_compare_time (CliTable *table, const AdviseInput *const inputs[2],
                           const AdvisePrediction *const predictions[2], GError **error);

G_END_DECLS
