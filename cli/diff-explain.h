/* fsdplan diff --explain memory, or time */
#pragma once
#include "advise/predict.h"
#include "cli/io/output.h"
G_BEGIN_DECLS

/* Rows of what, a, b and change, as cli_compare_costs adds them: what adds up to a device's memory
 * in MiB, then the buffers live at the peak that differ, those that change most first. */
void cli_compare_memory (CliTable *table, const AdvisePrediction *a, const AdvisePrediction *b);

/* Ops that differ, by stream, kind and what they write, in milliseconds of a step, those that
 * change most first. */
gboolean cli_compare_time (CliTable *table, const AdviseInput *const inputs[2],
                           const AdvisePrediction *const predictions[2], GError **error);

G_END_DECLS
