/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/megatron/megatron-table.h"

#include "planner/base/text.h"

#include <stdlib.h>
#include <string.h>

static const char others_text[] =
#include "planner/data/megatron-flags.txt.inc"
    ;

static const struct
{
  const char *name, *key, *initial, *choices;
  PlanMegatronType type;
} flags[] = {
#define X(id, key, flag, type, initial, choices) \
  { "--" flag, key, initial, choices, PLAN_MEGATRON_TYPE_##type },
  PLAN_MEGATRON_FLAG_LIST (X)
#undef X
};

/* Tables by name with values PlanMegatronFlagInfo; `names` is for hints. */
static GHashTable *by_flag, *by_key;
static const char **names;

static void
insert (GHashTable *table, char *name, PlanMegatronFlagInfo info)
{
  PlanMegatronFlagInfo *copy = g_new (PlanMegatronFlagInfo, 1);
  *copy = info;
  g_hash_table_insert (table, name, copy);
}

static void
add (const char *flag, PlanMegatronFlagInfo info)
{
  insert (by_flag, g_strdup (flag), info);
  g_autofree char *key = g_strdelimit (g_strdup (flag), "-", '_');
  /* A flag that switches on what another one that is used switches off has the key of that one. */
  if (info.class != PLAN_MEGATRON_CLASS_USED && !g_hash_table_contains (by_key, key))
    insert (by_key, g_steal_pointer (&key), info);
}

/* Adds the flags of a line, each with its default where a log shows one. */
static void
add_names (char *text, PlanMegatronFlagInfo info)
{
  char *rest = NULL;
  for (char *name = strtok_r (text, " ", &rest); name; name = strtok_r (NULL, " ", &rest))
    {
      char *const equals = strchr (name, '=');
      if (equals)
        *equals = '\0';
      info.initial = equals ? g_intern_string (equals + 1) : NULL;
      add (name, info);
    }
}

static PlanMegatronFlagInfo
read_class (char *line)
{
  static const struct
  {
    const char *word;
    PlanMegatronClass class;
  } classes[] = { { "ignored ", PLAN_MEGATRON_CLASS_IGNORED },
                  { "noted ", PLAN_MEGATRON_CLASS_NOTED },
                  { "refused ", PLAN_MEGATRON_CLASS_REFUSED } };
  for (guint i = 0; i < G_N_ELEMENTS (classes); i++)
    if (g_str_has_prefix (line, classes[i].word))
      {
        const char *const arity = line + strlen (classes[i].word);
        g_assert (strchr ("01+", *arity));
        return (PlanMegatronFlagInfo){ .class = classes[i].class,
                                       .arity = *arity == '0'   ? PLAN_MEGATRON_ARITY_NONE
                                                : *arity == '1' ? PLAN_MEGATRON_ARITY_ONE
                                                                : PLAN_MEGATRON_ARITY_MANY,
                                       .reason = arity[1] ? g_intern_string (arity + 2) : NULL };
      }
  g_assert_not_reached (); /* no other class is in the table, as tests make sure */
}

static void
read_others (void)
{
  PlanMegatronFlagInfo info = { 0 };
  g_auto (GStrv) lines = g_strsplit (others_text, "\n", -1);
  for (char **line = lines; *line; line++)
    if (g_str_has_prefix (*line, "alias "))
      {
        g_auto (GStrv) words = g_strsplit (*line, " ", 3);
        const PlanMegatronFlagInfo *other = g_hash_table_lookup (by_flag, words[2]);
        add (words[1], *other);
      }
    else if (**line == ' ')
      add_names (*line, info);
    else if (**line && **line != '#')
      info = read_class (*line);
}

static int
compare_names (const void *a, const void *b)
{
  return strcmp (*(const char *const *)a, *(const char *const *)b);
}

static void
ensure (void)
{
  static gsize ready = 0;
  if (!g_once_init_enter (&ready))
    return;
  by_flag = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, g_free);
  by_key = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, g_free);
  for (guint i = 0; i < G_N_ELEMENTS (flags); i++)
    {
      const PlanMegatronFlagInfo info
          = { .class = PLAN_MEGATRON_CLASS_USED, .flag = (PlanMegatronFlag)i };
      if (flags[i].name[2])
        add (flags[i].name + 2, info);
      insert (by_key, g_strdup (flags[i].key), info);
    }
  read_others ();
  names = (const char **)g_hash_table_get_keys_as_array (by_flag, NULL);
  const guint n = g_hash_table_size (by_flag);
  qsort (names, n, sizeof *names, compare_names);
  g_once_init_leave (&ready, 1);
}

static PlanMegatronFlagInfo
find (GHashTable *table, const char *name)
{
  const PlanMegatronFlagInfo *info = g_hash_table_lookup (table, name);
  return info ? *info : (PlanMegatronFlagInfo){ .class = PLAN_MEGATRON_CLASS_UNKNOWN };
}

PlanMegatronFlagInfo
plan_megatron_flag_find (const char *flag)
{
  ensure ();
  return find (by_flag, flag);
}

PlanMegatronFlagInfo
plan_megatron_key_find (const char *key)
{
  ensure ();
  return find (by_key, key);
}

char *
plan_megatron_flag_suggest (const char *flag)
{
  ensure ();
  char *hint = plan_text_suggest (flag, names);
  if (g_str_has_prefix (hint, "did"))
    return hint;
  g_free (hint);
  return g_strdup ("");
}

const char *
plan_megatron_flag_name (PlanMegatronFlag flag)
{
  g_return_val_if_fail ((guint)flag < PLAN_MEGATRON_N_FLAGS, NULL);
  return flags[flag].name;
}

const char *
plan_megatron_flag_key (PlanMegatronFlag flag)
{
  g_return_val_if_fail ((guint)flag < PLAN_MEGATRON_N_FLAGS, NULL);
  return flags[flag].key;
}

PlanMegatronType
plan_megatron_flag_type (PlanMegatronFlag flag)
{
  g_return_val_if_fail ((guint)flag < PLAN_MEGATRON_N_FLAGS, PLAN_MEGATRON_TYPE_TEXT);
  return flags[flag].type;
}

const char *
plan_megatron_flag_initial (PlanMegatronFlag flag)
{
  g_return_val_if_fail ((guint)flag < PLAN_MEGATRON_N_FLAGS, NULL);
  return flags[flag].initial;
}

const char *
plan_megatron_flag_choices (PlanMegatronFlag flag)
{
  g_return_val_if_fail ((guint)flag < PLAN_MEGATRON_N_FLAGS, NULL);
  return flags[flag].choices;
}
