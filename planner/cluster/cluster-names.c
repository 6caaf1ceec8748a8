/* SPDX-License-Identifier: Apache-2.0 */
/* The shipped devices and clusters, and the names that people use for them. Words are compared
 * without case, separators and makers' prefixes: "NVIDIA RTX PRO 6000" becomes rtxpro6000. */
#include "config.h"

#include "planner/base/error.h"
#include "planner/base/text.h"
#include "planner/cluster/cluster-private.h"

#include <string.h>

static const char presets_text[] =
#include "planner/data/clusters.ini.inc"
    ;
static const char devices_text[] =
#include "planner/data/gpus.ini.inc"
    ;

/* A name of a device or of a cluster. */
typedef struct
{
  char *word; /* the word as it is compared */
  const char *section;
} Name;

/* A shipped file, read once and kept. */
typedef struct
{
  GKeyFile *file;
  char **sections;
} Shipped;

/* The form in which a word is compared; the caller frees. */
static char *
plain (const char *word)
{
  static const char *const makers[] = { "nvidia", "tesla", "geforce" };
  GString *out = g_string_new (NULL);
  for (const char *c = word; *c; c++)
    if (!strchr (" -_", *c))
      g_string_append_c (out, g_ascii_tolower (*c));
  for (guint i = 0; i < G_N_ELEMENTS (makers); i++)
    if (g_str_has_prefix (out->str, makers[i]))
      g_string_erase (out, 0, (gssize)strlen (makers[i]));
  return g_string_free (out, FALSE);
}

static void
add_name (GArray *names, const char *word, const char *section)
{
  const Name name = { .word = plain (word), .section = section };
  g_array_append_val (names, name);
}

/* Collects all names, and removes the key `aliases` from every section, so that only facts are
 * left. */
static GArray *
take_names (const Shipped *shipped)
{
  GArray *names = g_array_new (FALSE, FALSE, sizeof (Name));
  for (char **section = shipped->sections; *section; section++)
    {
      g_auto (GStrv) words
          = g_key_file_get_string_list (shipped->file, *section, "aliases", NULL, NULL);
      g_key_file_remove_key (shipped->file, *section, "aliases", NULL);
      add_name (names, *section, *section);
      for (char **word = words; word && *word; word++)
        add_name (names, *word, *section);
    }
  return names;
}

static GArray *
read_shipped (Shipped *shipped, const char *text)
{
  shipped->file = plan_text_built_in (text);
  g_key_file_set_list_separator (shipped->file, ',');
  shipped->sections = g_key_file_get_groups (shipped->file, NULL);
  return take_names (shipped);
}

/* All names of shipped devices, in the order of the devices. `out_shipped` may be NULL. */
static const GArray * /* array of Name */
device_names (const Shipped **out_shipped)
{
  static Shipped shipped;
  static GArray *names;
  static gsize ready = 0;
  if (g_once_init_enter (&ready))
    {
      names = read_shipped (&shipped, devices_text);
      g_once_init_leave (&ready, 1);
    }
  if (out_shipped)
    *out_shipped = &shipped;
  return names;
}

/* Does for shipped clusters what device_names does for devices. */
static const GArray * /* array of Name */
preset_names (const Shipped **out_shipped)
{
  static Shipped shipped;
  static GArray *names;
  static gsize ready = 0;
  if (g_once_init_enter (&ready))
    {
      names = read_shipped (&shipped, presets_text);
      g_once_init_leave (&ready, 1);
    }
  if (out_shipped)
    *out_shipped = &shipped;
  return names;
}

GKeyFile *
plan_cluster_preset_file (void)
{
  const Shipped *shipped;
  preset_names (&shipped);
  return shipped->file;
}

GKeyFile *
plan_cluster_device_file (void)
{
  const Shipped *devices;
  device_names (&devices);
  return devices->file;
}

const char *const *
plan_cluster_presets (void)
{
  const Shipped *shipped;
  preset_names (&shipped);
  return (const char *const *)shipped->sections;
}

const char *const *
plan_cluster_devices_shipped (void)
{
  const Shipped *devices;
  device_names (&devices);
  return (const char *const *)devices->sections;
}

/* The devices that a word may stand for. */
static GPtrArray *
find_devices (const char *word)
{
  const GArray *names = device_names (NULL);
  GPtrArray *found = g_ptr_array_new ();
  g_autofree char *asked = plain (word);
  for (guint i = 0; i < names->len; i++)
    {
      const Name *name = &g_array_index (names, Name, i);
      if (g_str_equal (name->word, asked) && !g_ptr_array_find (found, name->section, NULL))
        g_ptr_array_add (found, (gpointer)name->section);
    }
  return found;
}

const char *
plan_cluster_find_preset (const char *word)
{
  const GArray *names = preset_names (NULL);
  g_autofree char *asked = plain (word);
  for (guint i = 0; i < names->len; i++)
    if (g_str_equal (g_array_index (names, Name, i).word, asked))
      return g_array_index (names, Name, i).section;
  return NULL;
}

gboolean
plan_cluster_is_shipped (const char *name)
{
  g_autoptr (GPtrArray) found = find_devices (name);
  return found->len > 0 || plan_cluster_find_preset (name);
}

#define COUNT_DIGITS 7 /* most digits of a number of nodes or devices */

/* Removes "8x", "8 x " or "8*" from the front and returns the number; 0 for none. */
static gint64
take_leading (const char **at)
{
  const gsize digits = strspn (*at, "0123456789");
  const char *const sign = *at + digits + strspn (*at + digits, " ");
  if (digits == 0 || digits > COUNT_DIGITS || !*sign || !strchr ("xX*", *sign))
    return 0;
  const gint64 n = g_ascii_strtoll (*at, NULL, 10);
  *at = sign + 1 + strspn (sign + 1, " ");
  return n;
}

/* Removes a number from the end, as of "H100x8", and returns it; 0 for none. */
static gint64
take_trailing (const char *name, char **out_rest)
{
  gsize end = strlen (name), digits = 0;
  while (digits < end && g_ascii_isdigit (name[end - digits - 1]))
    digits++;
  end -= digits;
  while (end > 0 && name[end - 1] == ' ')
    end--;
  if (digits == 0 || digits > COUNT_DIGITS || end < 2 || !strchr ("xX*", name[end - 1]))
    return 0;
  *out_rest = g_strchomp (g_strndup (name, end - 1));
  return g_ascii_strtoll (name + strlen (name) - digits, NULL, 10);
}

void
plan_cluster_take_counts (char **name, gint64 *out_nodes, gint64 *out_count)
{
  const char *at = *name;
  g_autofree char *rest = NULL;
  *out_nodes = *out_count = 0;
  if (plan_cluster_is_shipped (*name))
    return;
  gint64 first = take_leading (&at), second = first ? take_leading (&at) : 0;
  if (plan_cluster_is_shipped (at))
    rest = g_strdup (at);
  else if ((first = take_trailing (*name, &rest)) == 0 || !plan_cluster_is_shipped (rest))
    return;
  else
    second = 0;
  *out_nodes = second ? first : 0;
  *out_count = second ? second : first;
  g_free (*name);
  *name = g_steal_pointer (&rest);
}

gboolean
plan_cluster_find_device (const char *word, const char **out_device, GError **error)
{
  g_autoptr (GPtrArray) found = find_devices (word);
  *out_device = NULL;
  if (found->len <= 1)
    {
      *out_device = found->len == 1 ? found->pdata[0] : NULL;
      return TRUE;
    }
  g_autofree char *shown = plan_text_quote (word);
  const char *const last = found->pdata[found->len - 1];
  g_ptr_array_add (found, NULL);
  g_autofree char *all = g_strjoinv (", ", (char **)found->pdata);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
               "%s may be any of %s: write one of these, as in %s:8", shown, all, last);
  return FALSE;
}

/* The names that begin as the word does. */
static GPtrArray *
find_alike (const char *word, const char *const *names)
{
  GPtrArray *alike = g_ptr_array_new ();
  g_autofree char *asked = plain (word);
  for (; *names && *asked; names++)
    {
      g_autofree char *name = plain (*names);
      if (g_str_has_prefix (name, asked))
        g_ptr_array_add (alike, (gpointer)*names);
    }
  return alike;
}

/* The shipped cluster or device with the closest name; NULL when none is close. */
static const char *
find_closest (const char *word)
{
  const GArray *const lists[] = { preset_names (NULL), device_names (NULL) };
  g_autoptr (GPtrArray) words = g_ptr_array_new (), sections = g_ptr_array_new ();
  g_autofree char *asked = plain (word);
  for (guint l = 0; l < G_N_ELEMENTS (lists); l++)
    for (guint i = 0; i < lists[l]->len; i++)
      {
        const Name *name = &g_array_index (lists[l], Name, i);
        g_ptr_array_add (words, name->word);
        g_ptr_array_add (sections, (gpointer)name->section);
      }
  g_ptr_array_add (words, NULL);
  const char *const close = plan_text_closest (asked, (const char *const *)words->pdata);
  guint found;
  return close && g_ptr_array_find (words, close, &found) ? sections->pdata[found] : NULL;
}

char *
plan_cluster_suggest (const char *word)
{
  g_autoptr (GPtrArray) names = g_ptr_array_new ();
  const char *const *const lists[] = { plan_cluster_presets (), plan_cluster_devices_shipped () };
  for (guint i = 0; i < G_N_ELEMENTS (lists); i++)
    for (const char *const *known = lists[i]; *known; known++)
      g_ptr_array_add (names, (gpointer)*known);
  g_ptr_array_add (names, NULL);
  const char *const *const all = (const char *const *)names->pdata;
  g_autoptr (GPtrArray) alike = find_alike (word, all);
  if (alike->len > 1)
    {
      g_ptr_array_add (alike, NULL);
      g_autofree char *them = g_strjoinv (", ", (char **)alike->pdata);
      return g_strdup_printf ("did you mean one of %s?", them);
    }
  const char *const one = alike->len == 1 ? alike->pdata[0] : find_closest (word);
  if (one)
    return g_strdup_printf ("did you mean '%s'?", one);
  g_autofree char *known = g_strjoinv (", ", (char **)all);
  return g_strdup_printf ("known are %s", known);
}
