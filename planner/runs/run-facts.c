/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of measured runs beyond their rows (data/runs.ini), and who ran them. */
#include "config.h"

#include "planner/runs/run-private.h"

#include "planner/base/text.h"

#include <string.h>

static const char known_text[] =
#include "planner/data/runs.ini.inc"
    ;

static gpointer
read_known (gpointer unused)
{
  (void)unused;
  return plan_text_built_in (known_text);
}

/* The section for a row: that of its network in the state that it was in, that of its network, or
 * that of its source; NULL: none. The caller frees. */
static char *
find_section (GKeyFile *file, const PlanRunRow *row)
{
  const char *const source = row->cell[PLAN_RUN_SOURCE];
  g_autofree char *network = plan_run_row_note (row, "network");
  g_autofree char *state = plan_run_row_note (row, "network_state");
  g_autofree char *of_state = network && state ? g_strdup_printf ("%s/%s", network, state) : NULL;
  g_auto (GStrv) sections = g_key_file_get_groups (file, NULL);
  if (of_state && g_key_file_has_group (file, of_state))
    return g_steal_pointer (&of_state);
  if (network && g_key_file_has_group (file, network))
    return g_steal_pointer (&network);
  for (guint i = 0; source && sections[i]; i++)
    {
      const gsize length = strlen (sections[i]);
      if (strncmp (source, sections[i], length) == 0 && (source[length] == ' ' || !source[length]))
        return g_strdup (sections[i]);
    }
  return NULL;
}

/* The value of a key in a section with those of the names behind it that `which` has a bit for.
 * NULL: there is none. The caller frees. */
static char *
known_of (GKeyFile *file, const char *section, const char *key, const char *const *names,
          guint n_names, guint which)
{
  GString *whole = g_string_new (key);
  for (guint i = 0; i < n_names; i++)
    if (which & (1u << (n_names - 1 - i)))
      g_string_append_printf (whole, ".%s", names[i] ? names[i] : "");
  char *value = g_key_file_get_string (file, section, whole->str, NULL);
  g_string_free (whole, TRUE);
  return value;
}

char *
plan_run_row_known (const PlanRunRow *self, const char *key)
{
  static GOnce once = G_ONCE_INIT;
  GKeyFile *file = g_once (&once, read_known, NULL);
  g_autofree char *section = find_section (file, self);
  g_autofree char *model = plan_run_row_note (self, "model");
  const char *const names[] = { model, self->cell[PLAN_RUN_GPU], self->cell[PLAN_RUN_STACK_DATE] };
  const guint n_names = G_N_ELEMENTS (names);
  char *value = NULL;
  /* What holds for more of the three is looked for first. */
  for (guint which = 1u << n_names; section && !value && which-- > 0;)
    value = known_of (file, section, key, names, n_names, which);
  char *source = value ? strchr (value, '#') : NULL;
  if (source)
    *source = '\0';
  return value ? g_strchomp (value) : NULL;
}

char *
plan_run_row_site (const PlanRunRow *self)
{
  const char *const source = self->cell[PLAN_RUN_SOURCE];
  GString *name = g_string_new (NULL);
  for (const char *c = source ? source : ""; *c && !strchr ("(@[,", *c); c++)
    {
      const gboolean is_kept = g_ascii_isalnum (*c) || strchr ("._+-", *c);
      if (is_kept)
        g_string_append_c (name, *c);
      else if (name->len > 0 && name->str[name->len - 1] != '-')
        g_string_append_c (name, '-');
    }
  while (name->len > 0 && name->str[name->len - 1] == '-')
    g_string_truncate (name, name->len - 1);
  return g_string_free (name, name->len == 0);
}
