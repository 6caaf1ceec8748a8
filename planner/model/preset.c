/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/model/preset.h"

#include "planner/base/error.h"
#include "planner/base/text.h"
#include "planner/base/units.h"
#include "planner/model/model-private.h"

#include <string.h>

static const char presets_text[] =
#include "planner/data/models.ini.inc"
    ;

const char *const *
plan_model_presets (void)
{
  static gsize ready = 0;
  static char **names;
  if (g_once_init_enter (&ready))
    {
      g_autoptr (GKeyFile) file = plan_text_built_in (presets_text);
      names = g_key_file_get_groups (file, NULL);
      g_once_init_leave (&ready, 1);
    }
  return (const char *const *)names;
}

static gboolean
read_preset (PlanModel *self, GKeyFile *file, const char *name, GError **error)
{
  g_auto (GStrv) found = g_key_file_get_keys (file, name, NULL, error);
  PlanModelSeen seen = { { 0 } };
  gint64 published = 0;
  for (guint i = 0; found && found[i]; i++)
    {
      g_autofree char *value = g_key_file_get_value (file, name, found[i], NULL);
      if (g_str_equal (found[i], "hf"))
        continue;
      if (g_str_equal (found[i], "parameters")
              ? !plan_units_parse_int (value, found[i], 1, G_MAXINT64, &published, error)
              : !plan_model_set (self, &seen, found[i], value, error))
        return FALSE;
    }
  if (!found || !plan_model_complete (self, error))
    return FALSE;
  if (plan_model_parameters (self) != (guint64)published)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "parameters: %" G_GINT64_FORMAT
                   " published, but the dimensions have %" G_GUINT64_FORMAT,
                   published, plan_model_parameters (self));
      return FALSE;
    }
  return TRUE;
}

/* Letters and digits of a name alone, in lower case. */
static char *
fold (const char *name)
{
  GString *folded = g_string_new (NULL);
  for (; *name; name++)
    if (g_ascii_isalnum (*name))
      g_string_append_c (folded, g_ascii_tolower (*name));
  return g_string_free (folded, FALSE);
}

static const char *
without_organisation (const char *name)
{
  const char *slash = strchr (name, '/');
  return slash ? slash + 1 : name;
}

/* What every shipped model is called: `names` for suggestions, in the order of the file, and the
 * model of each name, folded. */
typedef struct
{
  GPtrArray *names;
  GHashTable *models;
} Called;

static void
call (Called *self, const char *name, const char *model)
{
  g_ptr_array_add (self->names, g_ascii_strdown (name, -1));
  g_hash_table_insert (self->models, fold (name), (gpointer)model);
}

static const Called *
all_names (void)
{
  static gsize ready = 0;
  static Called all;
  if (g_once_init_enter (&ready))
    {
      g_autoptr (GKeyFile) file = plan_text_built_in (presets_text);
      all = (Called){ g_ptr_array_new (),
                      g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL) };
      for (const char *const *model = plan_model_presets (); *model; model++)
        {
          g_autofree char *published = g_key_file_get_value (file, *model, "hf", NULL);
          g_auto (GStrv) names = g_strsplit (published ? published : "", " ", -1);
          call (&all, *model, *model);
          for (char **name = names; *name; name++)
            {
              g_hash_table_insert (all.models, fold (*name), (gpointer)*model);
              call (&all, without_organisation (*name), *model);
            }
        }
      g_ptr_array_add (all.names, NULL);
      g_once_init_leave (&ready, 1);
    }
  return &all;
}

/* Whether the last part of a name is a kind of fine-tuning or a date of release. Such models have
 * the dimensions of the one without it. */
static gboolean
is_variant (const char *end)
{
  static const char *const variants[]
      = { "base", "chat", "hf", "instruct", "it", "pt", "thinking", NULL };
  g_autofree char *lower = g_ascii_strdown (end, -1);
  return g_strv_contains (variants, lower)
         || (strlen (end) == 4 && strspn (end, "0123456789") == 4);
}

const char *
plan_model_preset_named (const char *name)
{
  g_autofree char *typed = g_strdup (name);
  for (;;)
    {
      g_autofree char *folded = fold (typed);
      const char *found = g_hash_table_lookup (all_names ()->models, folded);
      char *dash = strrchr (typed, '-');
      if (found || !dash || !is_variant (dash + 1))
        return found;
      *dash = '\0';
    }
}

/* The longest name that `typed` begins with, else the first that begins with it, else the one that
 * differs least; NULL: none. Fewer letters begin too many names. */
#define ENOUGH_LETTERS 6
static const char *
nearest (const char *typed)
{
  const char *const *names = (const char *const *)all_names ()->names->pdata;
  const char *found = NULL;
  g_autofree char *lower = g_ascii_strdown (typed, -1);
  for (const char *const *name = names; *name; name++)
    if (g_str_has_prefix (lower, *name) && (!found || strlen (*name) > strlen (found)))
      found = *name;
  for (const char *const *name = names; !found && strlen (lower) >= ENOUGH_LETTERS && *name; name++)
    if (g_str_has_prefix (*name, lower))
      found = *name;
  return found ? found : plan_text_closest (lower, names);
}

static void
refuse_name (const char *name, GError **error)
{
  const char *const near = nearest (without_organisation (name));
  g_autofree char *shown = plan_text_quote (name);
  g_autofree char *hint
      = near ? plan_text_suggest (plan_model_preset_named (near), plan_model_presets ())
             : g_strdup ("fsdplan show, without options, names those that are shipped");
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
               "model: %s is neither a shipped model nor a file nor a list such as "
               "layers=4,hidden=64,...: %s",
               shown, hint);
}

PlanModel *
plan_model_new_preset (const char *name, GError **error)
{
  const char *const model = plan_model_preset_named (name);
  if (!model)
    {
      refuse_name (name, error);
      return NULL;
    }
  g_autoptr (GKeyFile) file = plan_text_built_in (presets_text);
  g_autofree char *family = g_key_file_get_value (file, model, "family", NULL);
  g_autoptr (PlanModel) self = plan_model_new_family (family ? family : "llama", model, error);
  if (!self || !read_preset (self, file, model, error))
    {
      g_prefix_error (error, "models.ini: [%s] ", model);
      return NULL;
    }
  return g_steal_pointer (&self);
}

static gboolean
sets_key (char *const *items, const char *item)
{
  const gsize length = strcspn (item, "=") + 1;
  for (; *items; items++)
    if (strncmp (*items, item, length) == 0)
      return TRUE;
  return FALSE;
}

/* Makes a shipped model of which some keys are changed: "deepseek-v3,mtp=0". */
static PlanModel *
new_changed (const char *spec, GError **error)
{
  g_auto (GStrv) items = g_strsplit (spec, ",", -1);
  g_autoptr (PlanModel) base = plan_model_new_preset (items[0], error);
  if (!base)
    return NULL;
  g_autofree char *text = plan_model_print (base);
  g_auto (GStrv) keys = g_strsplit (text, ",", -1);
  g_autoptr (GString) changed = g_string_new (NULL);
  for (char **key = keys; *key; key++)
    if (!sets_key (items + 1, *key) && !g_str_has_prefix (*key, "name="))
      g_string_append_printf (changed, "%s%s", changed->len > 0 ? "," : "", *key);
  for (char **item = items + 1; *item; item++)
    g_string_append_printf (changed, ",%s", *item);
  return plan_model_parse (changed->str, error);
}

/* Whether a text that names no model can only be a file: "organisation/model" can be either. */
static gboolean
is_path (const char *spec)
{
  const char *slash = strchr (spec, '/');
  return g_file_test (spec, G_FILE_TEST_EXISTS) || g_str_has_suffix (spec, ".json")
         || (slash && (slash == spec || *spec == '.' || strchr (slash + 1, '/')));
}

PlanModel *
plan_model_new (const char *spec, GError **error)
{
  const gboolean is_shipped = g_strv_contains (plan_model_presets (), spec);
  const gsize first = strcspn (spec, ",=");
  g_autofree char *name = g_strndup (spec, first);
  if (spec[first] == ',' && (!strchr (spec, '/') || plan_model_preset_named (name)))
    return new_changed (spec, error);
  if (!is_shipped && strchr (spec, '=') && !strchr (spec, '/'))
    return plan_model_parse (spec, error);
  if (!is_shipped && is_path (spec))
    return plan_model_new_from_config (spec, error);
  return plan_model_new_preset (spec, error);
}
