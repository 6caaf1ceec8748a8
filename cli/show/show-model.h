/* fsdplan show for models: dimensions, properties, and what follows from them. */
#pragma once
#include "cli/io/output.h"
#include "planner/model/model.h"
#include <glib.h>
G_BEGIN_DECLS

/* Prints a model. `seq` is the value of --seq; NULL: the model's longest sequence. */
gboolean cli_show_model (const PlanModel *model, const char *seq, CliFormat format, GError **error);

/* Prints every key of a model's text form, with its values and meaning. */
void cli_show_model_keys (CliFormat format);

G_END_DECLS
