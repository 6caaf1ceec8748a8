/* CliPart: the runs that are left out of a fit together, and predicted by what is fitted to the
 * others: those of a source or a GPU, those on many devices, or those of newer software. */
#pragma once
#include "advise/validate.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  const char *way; /* source, gpu, scale or time */
  const char *name;
  gint64 middle; /* the day up to which half of the runs are; yyyymmdd */
} CliPart;

gboolean cli_part_check_way (const char *way, GError **error);

/* The part, of all that `self->way` tells apart, that a run is in; the caller frees. NULL: it is
 * never left out. */
char *cli_part_of (const CliPart *self, const AdviseRun *run);

/* Whether the run is in the part. */
gboolean cli_part_has (const CliPart *self, const AdviseRun *run);

/* The day up to which half of the runs' software is, of AdviseRun *. */
gint64 cli_part_middle (const GPtrArray *runs);

G_END_DECLS
