/* SPDX-License-Identifier: Apache-2.0 */
/* Completion of a word on the command line. Which values an option takes is known by the name that
 * its value has in help. */
#include "config.h"

#include "cli/io/context.h"

#include "db/tables.h"
#include "planner/cluster/cluster.h"
#include "planner/emit/emit.h"
#include "planner/model/model.h"
#include "planner/model/preset.h"
#include "planner/plan/plan.h"

#include <stdio.h>
#include <string.h>

void
cli_complete_word (const char *typed, const char *word, const char *meaning)
{
  if (g_str_has_prefix (word, typed))
    printf ("%s\t%s\n", word, meaning);
}

/* Prints each word that begins with `typed`, with `kept` before it: the part of the command line's
 * word that is not completed. */
static void
print_words (const char *kept, const char *typed, const char *const *words, const char *behind,
             const char *meaning)
{
  for (; *words; words++)
    if (g_str_has_prefix (*words, typed))
      printf ("%s%s%s\t%s\n", kept, *words, behind, meaning);
}

static void
print_files (void)
{
  puts ("\tfiles");
}

/* The part of a word behind its last separator: "hi" of "layers=4,hi". *out_kept becomes `kept` and
 * the part before. */
static const char *
last_part (const char *kept, const char *typed, const char *separators, char **out_kept)
{
  const char *part = typed;
  for (const char *c = typed; *c; c++)
    if (strchr (separators, *c))
      part = c + 1;
  *out_kept = g_strdup_printf ("%s%.*s", kept, (int)(part - typed), typed);
  return part;
}

static void
complete_model (const char *kept, const char *typed)
{
  if (!strchr (typed, '='))
    {
      print_words (kept, typed, plan_model_presets (), "", "a shipped model");
      print_files ();
      return;
    }
  g_autofree char *before = NULL;
  const char *const part = last_part (kept, typed, ",", &before);
  guint n;
  const PlanModelKey *keys = plan_model_keys (&n);
  if (g_str_has_prefix (part, "family="))
    {
      g_autofree char *inside = g_strconcat (before, "family=", NULL);
      print_words (inside, part + strlen ("family="), plan_model_families (), "", "a family");
    }
  for (guint i = 0; i < n; i++)
    if (g_str_has_prefix (keys[i].name, part))
      printf ("%s%s=\t%s\n", before, keys[i].name, keys[i].meaning);
}

static void
complete_cluster (const char *kept, const char *typed)
{
  static const char *const here[] = { "local", "local-cpu", NULL };
  print_words (kept, typed, plan_cluster_presets (), "", "a shipped cluster");
  print_words (kept, typed, plan_cluster_devices_shipped (), "", "a shipped device");
  print_words (kept, typed, here, "", "this machine");
  print_files ();
}

/* Completes FIELD=VALUE; with `is_list` the value may be several, joined by commas. */
static void
complete_field (const char *kept, const char *typed, gboolean is_list)
{
  const char *const equals = strchr (typed, '=');
  if (!equals)
    {
      for (PlanField f = 0; f < PLAN_N_FIELDS; f++)
        if (g_str_has_prefix (plan_field_name (f), typed))
          printf ("%s%s=\t%s\n", kept, plan_field_name (f), plan_field_summary (f));
      return;
    }
  PlanField field;
  g_autofree char *name = g_strndup (typed, (gsize)(equals - typed));
  g_autofree char *inside = g_strdup_printf ("%s%s=", kept, name);
  if (!plan_field_parse (name, &field, NULL))
    return;
  g_autofree char *before = NULL;
  g_autofree char *meaning = plan_field_values (field);
  const char *const part = last_part (inside, equals + 1, is_list ? ",+" : "+", &before);
  if (plan_field_names (field))
    print_words (before, part, plan_field_names (field), "", meaning);
}

static void
complete_choice (const char *kept, const char *typed, const char *choices)
{
  g_auto (GStrv) words = g_strsplit (choices, "|", -1);
  print_words (kept, typed, (const char *const *)words, "", "");
}

static void
complete_kind (const char *kept, const char *typed)
{
  const char *names[DB_N_KINDS + 1] = { NULL };
  for (DbKind kind = 0; kind < DB_N_KINDS; kind++)
    names[kind] = db_kind_name (kind);
  print_words (kept, typed, names, "", "");
}

/* Completes a value that help calls `what`. */
static void
complete_value (const char *what, const char *kept, const char *typed)
{
  if (strcmp (what, "MODEL") == 0)
    complete_model (kept, typed);
  else if (strcmp (what, "CLUSTER") == 0)
    complete_cluster (kept, typed);
  else if (strcmp (what, "KIND") == 0)
    complete_kind (kept, typed);
  else if (strcmp (what, "TARGET") == 0)
    print_words (kept, typed, plan_emit_kinds (), "", "");
  else if (g_str_has_prefix (what, "FIELD"))
    complete_field (kept, typed, what[strlen ("FIELD")] == '[');
  else if (strstr (what, "FILE") || strstr (what, "PLAN"))
    print_files ();
  else if (strchr (what, '|'))
    complete_choice (kept, typed, what);
}

/* The option in a word such as --model or --model=x; NULL where the word is none. */
static const GOptionEntry *
option_of (const GOptionEntry *entries, guint n, const char *word)
{
  for (guint i = 0; i < n; i++)
    {
      const gsize length = strlen (entries[i].long_name);
      if ((g_str_has_prefix (word, "--") && strncmp (word + 2, entries[i].long_name, length) == 0
           && strchr ("=", word[2 + length]))
          || (word[0] == '-' && entries[i].short_name && word[1] == entries[i].short_name
              && !word[2]))
        return &entries[i];
    }
  return NULL;
}

static gboolean
takes_next (const GOptionEntry *entry, const char *word)
{
  return entry && entry->arg != G_OPTION_ARG_NONE && !strchr (word, '=');
}

/* Completes the n-th argument; `arguments` names them all, as "list|show [ID]". */
static void
complete_argument (const char *arguments, guint n, const char *typed)
{
  g_autofree char *bare = g_strdelimit (g_strdup (arguments), "[]", ' ');
  g_auto (GStrv) words = g_strsplit (g_strstrip (bare), " ", -1);
  for (char **w = words; *w; w++)
    if (**w && n-- == 0)
      complete_value (*w, "", typed);
}

void
cli_complete (const GOptionEntry *entries, guint n_entries, const char *arguments,
              char *const *words, guint n_words)
{
  const char *const typed = words[n_words - 1];
  const GOptionEntry *pending = NULL; /* the option that takes the next word as its value */
  guint n_arguments = 0;
  for (guint i = 0; i + 1 < n_words; i++)
    {
      const GOptionEntry *entry = pending ? NULL : option_of (entries, n_entries, words[i]);
      n_arguments += !pending && words[i][0] != '-';
      pending = takes_next (entry, words[i]) ? entry : NULL;
    }
  const char *const equals = strchr (typed, '=');
  const GOptionEntry *here = equals ? option_of (entries, n_entries, typed) : NULL;
  if (pending)
    complete_value (pending->arg_description, "", typed);
  else if (here && here->arg != G_OPTION_ARG_NONE)
    {
      g_autofree char *kept = g_strndup (typed, (gsize)(equals + 1 - typed));
      complete_value (here->arg_description, kept, equals + 1);
    }
  else if (typed[0] != '-' && arguments)
    complete_argument (arguments, n_arguments, typed);
  if (pending || here || (typed[0] && typed[0] != '-'))
    return;
  for (guint i = 0; i < n_entries; i++)
    {
      g_autofree char *name = g_strconcat ("--", entries[i].long_name, NULL);
      cli_complete_word (typed, name, entries[i].description);
    }
  cli_complete_word (typed, "--help", "what the command takes");
}
