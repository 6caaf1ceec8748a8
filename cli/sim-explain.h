/* fsdplan sim --explain memory, and --explain time. */
#pragma once
#include "advise/predict.h"
#include "cli/io/output.h"
G_BEGIN_DECLS

/* Prints memory by the usual formulas beside the plan's, and the buffers live at the peak; as CSV
 * only the latter. */
void cli_explain_memory (const AdvisePrediction *prediction, CliFormat format);

/* Prints time op by op. */
gboolean cli_explain_time (const AdviseInput *input, const AdvisePrediction *prediction,
                           CliFormat format, GError **error);

G_END_DECLS
