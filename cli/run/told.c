/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/run/told.h"

#include <stdio.h>

static GMutex mutex;
static GPtrArray *told; /* char *: each message once, in order */

static void
tell (const char *domain, GLogLevelFlags level, const char *text, gpointer user_data)
{
  g_mutex_lock (&mutex);
  if (!g_ptr_array_find_with_equal_func (told, text, g_str_equal, NULL))
    {
      g_ptr_array_add (told, g_strdup (text));
      if (GPOINTER_TO_INT (user_data))
        fprintf (stderr, "fsdplan: %s\n", text);
    }
  g_mutex_unlock (&mutex);
}

void
cli_told_begin (gboolean is_root)
{
  told = g_ptr_array_new_with_free_func (g_free);
  g_log_set_handler (G_LOG_DOMAIN, G_LOG_LEVEL_MESSAGE, tell, GINT_TO_POINTER (is_root));
}

char *
cli_told_text (void)
{
  g_autoptr (GPtrArray) lines = g_ptr_array_new ();
  char *text = NULL;
  g_mutex_lock (&mutex);
  for (guint i = 0; told && i < told->len; i++)
    g_ptr_array_add (lines, told->pdata[i]);
  if (lines->len > 0)
    {
      g_ptr_array_add (lines, NULL);
      text = g_strjoinv ("\n", (char **)lines->pdata);
    }
  g_mutex_unlock (&mutex);
  return text;
}
