/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/io/config.h"

#include "planner/base/error.h"
#include "planner/base/text.h"

#include <stdio.h>
#include <string.h>

static const char *const keys[] = {
#define X(name, key, meaning) key,
  CLI_CONFIG_LIST (X)
#undef X
      NULL
};

static struct
{
  gboolean is_read;
  char *path;
  char *values[CLI_N_CONFIG];
  guint lines[CLI_N_CONFIG];
  gboolean is_taken[CLI_N_CONFIG];
} file;

static gboolean
refuse (guint line, GError **error, const char *format, ...)
{
  va_list args;
  va_start (args, format);
  g_autofree char *what = g_strdup_vprintf (format, args);
  va_end (args);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s:%u: %s", file.path, line, what);
  return FALSE;
}

static gboolean
refuse_key (guint line, const char *key, GError **error)
{
  g_autofree char *shown = plan_text_quote (key);
  g_autofree char *hint = plan_text_suggest (key, keys);
  return refuse (line, error, "there is no %s to set: %s", shown, hint);
}

/* Reads a line: blank, "# comment" or KEY=VALUE, where blanks around each part are ignored. */
static gboolean
read_line (char *text, guint line, GError **error)
{
  g_strstrip (text);
  if (!*text || *text == '#')
    return TRUE;
  char *equals = strchr (text, '=');
  if (!equals)
    {
      g_autofree char *shown = plan_text_quote (text);
      return refuse (line, error, "%s is not KEY=VALUE", shown);
    }
  *equals = '\0';
  const char *key = g_strstrip (text), *value = g_strstrip (equals + 1);
  guint k = 0;
  while (k < CLI_N_CONFIG && strcmp (keys[k], key) != 0)
    k++;
  if (k == CLI_N_CONFIG)
    return refuse_key (line, key, error);
  if (!*value)
    return refuse (line, error, "%s has no value: leave the line out", key);
  if (file.values[k])
    return refuse (line, error, "%s was said in line %u", key, file.lines[k]);
  file.values[k] = g_strdup (value);
  file.lines[k] = line;
  return TRUE;
}

static gboolean
read_file (GError **error)
{
  g_autofree char *text = NULL;
  gsize length;
  if (file.is_read)
    return TRUE;
  if (!file.path)
    file.path = g_build_filename (g_get_user_config_dir (), "fsdplan", "config.ini", NULL);
  if (!g_file_test (file.path, G_FILE_TEST_EXISTS))
    return file.is_read = TRUE;
  if (!plan_text_read_file (file.path, &text, &length, error))
    return FALSE;
  g_auto (GStrv) lines = g_strsplit (text, "\n", -1);
  for (guint i = 0; lines[i]; i++)
    if (!read_line (lines[i], i + 1, error))
      return FALSE;
  return file.is_read = TRUE;
}

gboolean
cli_config_default (CliConfigKey key, char **text, GError **error)
{
  if (*text)
    return TRUE;
  if (!read_file (error))
    return FALSE;
  *text = g_strdup (file.values[key]);
  file.is_taken[key] = *text != NULL;
  return TRUE;
}

void
cli_config_report (void)
{
  for (guint k = 0; k < CLI_N_CONFIG; k++)
    if (file.is_taken[k])
      {
        g_autofree char *value = plan_text_line (file.values[k]);
        g_autofree char *path = plan_text_line (file.path);
        fprintf (stderr, "fsdplan: %s=%s, as %s:%u says\n", keys[k], value, path, file.lines[k]);
      }
}
