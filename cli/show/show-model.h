/* A model as understood: its dimensions and properties, and what follows from them. */
#pragma once
#include "cli/io/output.h"
#include "planner/model/model.h"
#include <glib.h>
G_BEGIN_DECLS

/* `seq` as --seq was given, or NULL: the model's longest. */
gboolean cli_show_model (const PlanModel *model, const char *seq, CliFormat format, GError **error);

/* Every key of a list of dimensions, with its values and meaning. */
void cli_show_model_keys (CliFormat format);

G_END_DECLS
