/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/query/query.h"

#include "cli/io/watch.h"

#include <stdio.h>

/* Draws how far a search is; PlanSearchProgress. */
static gboolean
show_progress (guint64 done, guint64 total, gpointer user_data)
{
  if (total == 0)
    cli_watch_erase ();
  else if (cli_watch_is_due ())
    fprintf (stderr, "\r%5.1f %% of %" G_GUINT64_FORMAT " plans",
             100.0 * (double)done / (double)total, total);
  return !cli_watch_is_interrupted ();
}

gboolean
cli_query_choose (AdviseChoice *self, const AdviseQuestion *question, const AdviseInput *input,
                  GError **error)
{
  if (!advise_choice_init (self, question, input, error))
    return FALSE;
  self->progress = show_progress;
  cli_watch_interrupts ();
  return TRUE;
}
