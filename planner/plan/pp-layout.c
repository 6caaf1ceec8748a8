/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/plan/pp-layout.h"

#include "planner/base/error.h"

#include <string.h>

#define MOST_LETTERS 65536 /* most letters of a layout */
#define MOST_BRACKETS 16   /* most brackets within one another */

static GMutex lock;
static GPtrArray *known;      /* by number: PlanPpLayout */
static GHashTable *number_of; /* canonical text -> number */

/* Expands "Et*2|(tt|)*2L" to "Ett|tt|tt|L": a letter or a bracket may be followed by how often it
 * is repeated. FALSE where the text has another form. */
static gboolean
unroll (const char **at, guint depth, GString *out)
{
  while (**at && !(depth > 0 && **at == ')'))
    {
      g_autoptr (GString) item = g_string_new (NULL);
      guint64 times = 1;
      const char c = *(*at)++;
      if (c == '(')
        {
          if (depth == MOST_BRACKETS || !unroll (at, depth + 1, item) || *(*at)++ != ')')
            return FALSE;
        }
      else if (strchr ("EtmL|", c))
        g_string_append_c (item, c);
      else if (c != ',')
        return FALSE;
      if (**at == '*')
        {
          char *end;
          if (!g_ascii_isdigit ((*at)[1]))
            return FALSE;
          times = g_ascii_strtoull (*at + 1, &end, 10);
          *at = end;
        }
      if (times > MOST_LETTERS)
        return FALSE;
      for (guint64 i = 0; i < times; i++)
        {
          g_string_append_len (out, item->str, (gssize)item->len);
          if (out->len > MOST_LETTERS)
            return FALSE;
        }
    }
  return TRUE;
}

/* Appends n layers: "t*4", "t", or nothing. */
static void
append_layers (GString *text, gint64 layers)
{
  if (layers > 0)
    g_string_append_c (text, 't');
  if (layers > 1)
    g_string_append_printf (text, "*%" G_GINT64_FORMAT, layers);
}

static char *
print (const gint64 *layers, gint64 n, gint64 modules)
{
  GString *text = g_string_new ("E");
  for (gint64 i = 0, same; i < n; i += same)
    {
      same = 1;
      while (i > 0 && i + same < n - 1 && layers[i + same] == layers[i])
        same++;
      if (same > 1)
        g_string_append_c (text, '(');
      append_layers (text, layers[i]);
      if (i + same < n)
        g_string_append_c (text, '|');
      if (same > 1)
        g_string_append_printf (text, ")*%" G_GINT64_FORMAT, same);
    }
  for (gint64 i = 0; i < modules; i++)
    g_string_append_c (text, 'm');
  g_string_append_c (text, 'L');
  return g_string_free (text, FALSE);
}

gint64
plan_pp_layout_number (const gint64 *layers, gint64 n, gint64 modules)
{
  g_autofree char *text = print (layers, n, modules);
  gpointer found;
  g_mutex_lock (&lock);
  if (!known)
    {
      known = g_ptr_array_new ();
      number_of = g_hash_table_new (g_str_hash, g_str_equal);
    }
  if (!g_hash_table_lookup_extended (number_of, text, NULL, &found))
    {
      PlanPpLayout *layout = g_new (PlanPpLayout, 1);
      gint64 *before = g_new (gint64, n + 1);
      before[0] = 0;
      for (gint64 i = 0; i < n; i++)
        before[i + 1] = before[i] + layers[i];
      *layout = (PlanPpLayout){ .n = n, .before = before, .modules = modules };
      found = GUINT_TO_POINTER (known->len);
      g_ptr_array_add (known, layout);
      g_hash_table_insert (number_of, g_steal_pointer (&text), found);
    }
  g_mutex_unlock (&lock);
  return GPOINTER_TO_UINT (found);
}

const PlanPpLayout *
plan_pp_layout_of (gint64 number)
{
  g_mutex_lock (&lock);
  const PlanPpLayout *layout
      = known && number >= 0 && number < known->len ? known->pdata[number] : NULL;
  g_mutex_unlock (&lock);
  return layout;
}

char *
plan_pp_layout_print (gint64 number)
{
  const PlanPpLayout *layout = plan_pp_layout_of (number);
  g_return_val_if_fail (layout != NULL, NULL);
  g_autofree gint64 *layers = g_new (gint64, layout->n);
  for (gint64 i = 0; i < layout->n; i++)
    layers[i] = layout->before[i + 1] - layout->before[i];
  return print (layers, layout->n, layout->modules);
}

/* Checks that one embedding begins, and that one loss ends, with all prediction modules right
 * before it. */
static gboolean
check_letters (const char *text, const char *letters, GError **error)
{
  const char *embedding = strchr (letters, 'E'), *loss = strchr (letters, 'L');
  const char *module = strchr (letters, 'm');
  if (embedding != letters || !loss || strchr (loss + 1, 'L') || strchr (embedding + 1, 'E')
      || loss[1] != '\0')
    {
      g_set_error (
          error, PLAN_ERROR, PLAN_ERROR_INVALID,
          "is '%s': stages are separated by '|', one E begins the first, t is a layer, one L ends "
          "the last, x*n repeats a letter and (...)*n a group, as in 'Et*3|(t*4|)*2t*3L'",
          text);
      return FALSE;
    }
  if (module && module + strspn (module, "m") != loss)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
                   "places prediction modules (m) elsewhere than just before the loss (L), as in "
                   "'Et*4|(t*4|)*2t*3mL', which is not modelled");
      return FALSE;
    }
  return TRUE;
}

gboolean
plan_pp_layout_parse (const char *text, gint64 *out_number, GError **error)
{
  g_autoptr (GString) letters = g_string_new (NULL);
  g_autoptr (GArray) layers = g_array_new (FALSE, TRUE, sizeof (gint64));
  const char *at = text;
  gint64 modules = 0;
  const gboolean is_read = unroll (&at, 0, letters);
  if (!check_letters (text, is_read ? letters->str : "", error))
    return FALSE;
  g_array_set_size (layers, 1);
  for (const char *c = letters->str; *c; c++)
    if (*c == '|')
      g_array_set_size (layers, layers->len + 1);
    else if (*c == 't')
      g_array_index (layers, gint64, layers->len - 1)++;
    else if (*c == 'm')
      modules++;
  *out_number = plan_pp_layout_number (&g_array_index (layers, gint64, 0), layers->len, modules);
  return TRUE;
}
