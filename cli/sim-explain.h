/* fsdplan sim --explain memory, or time */
#pragma once
#include "advise/predict.h"
#include "cli/io/output.h"
G_BEGIN_DECLS

/* The usual arithmetic beside the plan, and what is live at the peak; as CSV the latter alone. */
void cli_explain_memory (const AdvisePrediction *prediction, CliFormat format);

/* Op by op. */
gboolean cli_explain_time (const AdviseInput *input, const AdvisePrediction *prediction,
                           CliFormat format, GError **error);

G_END_DECLS
