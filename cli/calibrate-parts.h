/* CliPart: a held-out part of the runs, for cross-validation. Parameters are fitted to all other
 * runs and predict this part. A part is a source, a GPU, the runs on many devices, or those of
 * newer software. */
#pragma once
#include "advise/validate.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  const char *way; /* source, gpu, scale or time */
  const char *name;
  gint64 middle; /* the median day of the runs' stacks; yyyymmdd */
} CliPart;

gboolean cli_part_check_way (const char *way, GError **error);

/* The name of the part that a run belongs to by `self->way`; the caller frees. NULL: the run is
 * never held out. */
char *cli_part_of (const CliPart *self, const AdviseRun *run);

/* Whether the run is in the part. */
gboolean cli_part_has (const CliPart *self, const AdviseRun *run);

/* The median day of the runs' versions of their stacks; `runs` has AdviseRun *. */
gint64 cli_part_middle (const GPtrArray *runs);

G_END_DECLS
