/* What fsdplan show says of a plan, and of what plans are made of. */
#pragma once
#include "cli/io/options.h"
#include "cli/io/output.h"
#include <glib.h>
G_BEGIN_DECLS

/* The plan resolved, with what follows from it and what to know about it. As a table it is a
 * complete plan file, but for the cluster of a stored run. */
gboolean cli_show_plan (const AdviseInput *input, CliFormat format, GError **error);

/* Every field with its values; every rule and hazard; every stack with what changed when. */
void cli_show_fields (CliFormat format);
void cli_show_rules (CliFormat format);
void cli_show_stacks (CliFormat format);

G_END_DECLS
