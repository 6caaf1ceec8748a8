/* fsdplan show for plans, fields, rules and stacks. */
#pragma once
#include "cli/io/options.h"
#include "cli/io/output.h"
#include <glib.h>
G_BEGIN_DECLS

/* Prints the resolved plan, numbers that follow from it, and its hazards. As a table it is a
 * plan file that other commands read; it has no cluster line if the cluster is that of a stored
 * run. */
gboolean cli_show_plan (const AdviseInput *input, CliFormat format, GError **error);

/* Print every field with its values; every rule and hazard; every stack with its changes by
 * date. */
void cli_show_fields (CliFormat format);
void cli_show_rules (CliFormat format);
void cli_show_stacks (CliFormat format);

G_END_DECLS
