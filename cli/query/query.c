/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/query/query.h"

#include "cli/io/config.h"
#include "cli/io/watch.h"
#include "cli/query/query-keep.h"
#include "planner/base/error.h"
#include "planner/base/units.h"

#include <stdio.h>
#include <string.h>

#define MOST_PERCENT 1000

void
cli_question_clear (CliQuestion *self)
{
  AdviseQuestion *question = &self->question;
  g_strfreev (question->only);
  g_free (question->memory);
  g_free (question->headroom);
  g_free (question->p_fits);
  g_free (question->allow);
  g_free (question->words);
  g_free (self->top);
  g_free (self->apart);
  g_free (self->front);
}

void
cli_question_add_options (CliQuestion *self, CliContext *context)
{
  AdviseQuestion *question = &self->question;
  const GOptionEntry entries[] = {
    { "only", 0, 0, G_OPTION_ARG_STRING_ARRAY, &question->only,
      "search these values of a field only", "FIELD=V1,V2,…" },
    { "memory", 0, 0, G_OPTION_ARG_STRING, &question->memory,
      "what a plan may take on a device; the cluster's by default", "SIZE" },
    { "headroom", 0, 0, G_OPTION_ARG_STRING, &question->headroom, "part of it that stays free",
      "PERCENT" },
    { "p-fits", 0, 0, G_OPTION_ARG_STRING, &question->p_fits,
      "probability with which a plan has to fit, from 0.5, at which only the prediction has to, to "
      "0.999; 0.95 by default",
      "P|PERCENT" },
    { "allow", 0, 0, G_OPTION_ARG_STRING, &question->allow,
      "beyond exact sums, states on the device and plans without known faults: mixed, lowbit, "
      "moments, offload, hazards",
      "CLASS,…" },
    { "top", 0, 0, G_OPTION_ARG_STRING, &self->top, "answers, best first; 5 by default", "N" },
    { "apart", 0, 0, G_OPTION_ARG_STRING, &self->apart,
      "each answer is so much slower than the one before; 0.5 by default; above 2 each is of the "
      "front of memory and time",
      "PCT" },
    { "front", 0, 0, G_OPTION_ARG_STRING, &self->front,
      "the front of memory and time goes so far beyond the best's time; 30 by default", "PERCENT" },
    { "no-keep", 0, 0, G_OPTION_ARG_NONE, &question->keeps_nothing,
      "leave no plan in the store, and give them no numbers", NULL },
    G_OPTION_ENTRY_NULL,
  };
  cli_context_add (context, entries);
}

gboolean
cli_question_read (CliQuestion *self, GError **error)
{
  AdviseQuestion *question = &self->question;
  gint64 top = 5;
  question->apart = ADVISE_APART;
  question->front = 30;
  if ((self->top && !plan_units_parse_int (self->top, "--top", 1, 1000, &top, error))
      || (self->apart
          && !plan_units_parse_percent (self->apart, "--apart", 0, MOST_PERCENT, &question->apart,
                                        error))
      || (self->front
          && !plan_units_parse_percent (self->front, "--front", 0, MOST_PERCENT, &question->front,
                                        error)))
    return FALSE;
  question->top = (gint)top;
  return cli_config_default (CLI_CONFIG_HEADROOM, &question->headroom, error);
}

gboolean
cli_query_check (const AdviseInput *input, GError **error)
{
  if (input->plan.value[PLAN_GBS] != PLAN_UNSET)
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
               "gbs is needed: --gbs N, in sequences per step over all devices");
  return FALSE;
}

/* Draws the progress of a search (a PlanSearchProgress). */
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

gboolean
cli_query_ask (AdviseChoice *out_choice, const AdviseQuestion *question, const AdviseInput *input,
               AdviseQuery *out_query, GError **error)
{
  if (!cli_query_choose (out_choice, question, input, error)
      || !advise_query_ask (out_choice, (guint)question->top, out_query, error))
    return FALSE;
  g_autofree char *counts = cli_query_counts (out_query, out_choice);
  cli_tell ("searched %s", counts);
  if (out_query->answers->len == 0 && cli_watch_is_interrupted ())
    return cli_watch_refuse ("no plan that fits was found yet", error);
  if (out_query->answers->len == 0)
    return advise_query_refuse (out_choice, error);
  cli_query_keep_answers (question, input, out_query->answers);
  return TRUE;
}

char **
cli_query_clusters (int argc, char **argv)
{
  g_autoptr (GPtrArray) specs = g_ptr_array_new_with_free_func (g_free);
  for (int i = 1; i < argc; i++)
    if (g_str_has_prefix (argv[i], "--cluster="))
      g_ptr_array_add (specs, g_strdup (argv[i] + strlen ("--cluster=")));
    else if (strcmp (argv[i], "--cluster") == 0 && i + 1 < argc)
      g_ptr_array_add (specs, g_strdup (argv[++i]));
  if (specs->len < 2)
    return NULL;
  g_ptr_array_add (specs, NULL);
  return (char **)g_ptr_array_free (g_steal_pointer (&specs), FALSE);
}

char **
cli_query_stacks (char **set)
{
  const char *const field = "stack=";
  char **last = NULL;
  for (char **s = set; s && *s; s++)
    if (g_str_has_prefix (*s, field))
      last = s;
  if (!last || !strchr (*last, ','))
    return NULL;
  char **stacks = g_strsplit (*last + strlen (field), ",", -1);
  g_free (*last);
  *last = g_strconcat (field, stacks[0], NULL);
  return stacks;
}
