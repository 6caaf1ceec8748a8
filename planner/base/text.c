/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/base/text.h"

#include "planner/base/error.h"

#include <errno.h>
#include <glib/gstdio.h>
#include <stdio.h>
#include <string.h>

#define SHOWN_BYTES 40
#define LINE_BYTES 160
#define LONGEST_NAME 32
#define MOST_NAMED 6 /* names that a suggestion has at most */

gboolean
plan_text_check (const char *text, gsize length, const char *origin, GError **error)
{
  const char *end;
  if (length > PLAN_TEXT_MAX_BYTES)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "%s: larger than %d bytes, which no such file is", origin, PLAN_TEXT_MAX_BYTES);
      return FALSE;
    }
  if (g_utf8_validate_len (text, length, &end))
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
               "%s: byte %" G_GSIZE_FORMAT " is not UTF-8 text", origin, (gsize)(end - text));
  return FALSE;
}

gboolean
plan_text_read_file (const char *path, char **out_text, gsize *out_length, GError **error)
{
  g_autoptr (GError) cause = NULL;
  g_autofree char *text = NULL;
  gsize length;
  GStatBuf info;

  if (g_stat (path, &info) != 0)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_IO, "%s: %s", path, g_strerror (errno));
      return FALSE;
    }
  if (!S_ISREG (info.st_mode))
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_IO, "%s: %s", path,
                   S_ISDIR (info.st_mode) ? "is a directory, not a file" : "not a regular file");
      return FALSE;
    }
  if (info.st_size > PLAN_TEXT_MAX_BYTES) /* refused before it is read */
    return plan_text_check ("", (gsize)info.st_size, path, error);
  if (!g_file_get_contents (path, &text, &length, &cause))
    {
      g_set_error_literal (error, PLAN_ERROR, PLAN_ERROR_IO, cause->message);
      return FALSE;
    }
  if (!plan_text_check (text, length, path, error))
    return FALSE;
  const gsize mark
      = g_str_has_prefix (text, PLAN_TEXT_BYTE_ORDER_MARK) ? strlen (PLAN_TEXT_BYTE_ORDER_MARK) : 0;
  *out_length = length - mark;
  memmove (text, text + mark, *out_length + 1);
  *out_text = g_steal_pointer (&text);
  return TRUE;
}

static gboolean
fail (const char *path, int code, GError **error)
{
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_IO, "%s: %s", path, g_strerror (code));
  return FALSE;
}

/* GLib's messages name files twice, or one that nobody asked for; the reason stands last. */
static gboolean
fail_as (const char *path, const GError *why, GError **error)
{
  const char *const reason = strrchr (why->message, ':');
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_IO, "%s: %s", path,
               reason ? reason + strspn (reason, ": ") : why->message);
  return FALSE;
}

GMappedFile *
plan_text_map_file (const char *path, GError **error)
{
  GStatBuf info;
  g_autoptr (GError) why = NULL;
  if (g_stat (path, &info) == 0 && !S_ISREG (info.st_mode))
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_IO, "%s: %s", path,
                   S_ISDIR (info.st_mode) ? "is a directory, not a file" : "not a regular file");
      return NULL;
    }
  GMappedFile *const file = g_mapped_file_new (path, FALSE, &why);
  if (!file)
    fail_as (path, why, error);
  return file;
}

static gboolean
write_through (const char *path, const char *bytes, gsize length, GError **error)
{
  FILE *const file = g_fopen (path, "we");
  if (!file)
    return fail (path, errno, error);
  const gboolean is_written = fwrite (bytes, 1, length, file) == length;
  const int code = errno;
  if (fclose (file) != 0)
    return fail (path, errno, error);
  return is_written || fail (path, code, error);
}

gboolean
plan_text_write_file (const char *path, const char *bytes, gsize length, GError **error)
{
  GStatBuf info;
  g_autoptr (GError) why = NULL;
  const gboolean is_there = g_lstat (path, &info) == 0;
  if (is_there && !S_ISREG (info.st_mode))
    return write_through (path, bytes, length, error);
  if (is_there && g_access (path, W_OK) != 0)
    return fail (path, errno, error);
  const int mode = is_there ? (int)(info.st_mode & 07777) : 0666;
  if (!g_file_set_contents_full (path, bytes, (gssize)length, G_FILE_SET_CONTENTS_CONSISTENT, mode,
                                 &why))
    return fail_as (path, why, error);
  return !is_there || g_chmod (path, mode) == 0 || fail (path, errno, error);
}

/* The first `most` bytes of the text. Control characters, but for those in `kept`, and bytes that
 * are not UTF-8 are escaped. */
static char *
print_text (const char *text, gsize most, const char *around, const char *kept)
{
  GString *out = g_string_new (around);
  gsize used = 0;
  while (text[used] && used < most)
    {
      const gunichar c = g_utf8_get_char_validated (text + used, -1);
      const gboolean valid = c < (gunichar)-2;
      const gsize bytes = valid ? (gsize)(g_utf8_next_char (text + used) - (text + used)) : 1;
      if (valid && (g_unichar_isprint (c) || strchr (kept, text[used])))
        g_string_append_len (out, text + used, (gssize)bytes);
      else
        for (gsize i = 0; i < bytes; i++)
          g_string_append_printf (out, "\\x%02x", (guint8)text[used + i]);
      used += bytes;
    }
  g_string_append_printf (out, "%s%s", text[used] ? "..." : "", around);
  return g_string_free (out, FALSE);
}

char *
plan_text_quote (const char *text)
{
  return print_text (text, SHOWN_BYTES, "'", "");
}

char *
plan_text_line (const char *text)
{
  return print_text (text, LINE_BYTES, "", "");
}

char *
plan_text_lines (const char *text)
{
  return print_text (text, G_MAXSIZE, "", "\n\t");
}

/* Edits that turn one word into the other, a swap of neighbours counting once. */
static guint
distance (const char *a, const char *b)
{
  guint row[3][LONGEST_NAME + 1];
  const guint a_length = (guint)strlen (a), b_length = (guint)strlen (b);
  if (a_length > LONGEST_NAME || b_length > LONGEST_NAME)
    return G_MAXUINT;
  guint *before = row[0], *last = row[1], *now = row[2];
  for (guint j = 0; j <= b_length; j++)
    last[j] = before[j] = j;
  for (guint i = 1; i <= a_length; i++)
    {
      now[0] = i;
      for (guint j = 1; j <= b_length; j++)
        {
          now[j] = MIN (last[j - 1] + (a[i - 1] != b[j - 1]), MIN (last[j], now[j - 1]) + 1);
          if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
            now[j] = MIN (now[j], before[j - 2] + 1);
        }
      guint *const spare = before;
      before = last;
      last = now;
      now = spare;
    }
  return last[b_length];
}

/* Whether the name is the word with something added. */
static gboolean
is_word_with_more (const char *name, const char *word)
{
  for (; *name && *word; name++)
    word += *name == *word;
  return *word == '\0';
}

/* Of names that are as near the one wins that says more: whoever writes llama3-405b means
 * llama3.1-405b and not llama3-70b. */
const char *
plan_text_closest (const char *word, const char *const *names)
{
  const char *best = NULL;
  g_autofree char *lower = g_ascii_strdown (word, -1);
  guint least = (guint)strlen (word) / 3 + 1;
  for (; *names; names++)
    {
      const guint edits = distance (lower, *names);
      const gboolean says_more
          = best && is_word_with_more (*names, lower) && !is_word_with_more (best, lower);
      if (edits < least || (edits == least && (!best || says_more)))
        {
          best = *names;
          least = edits;
        }
    }
  return best;
}

/* Whether the word is one of the name's parts: imbalance of moe_imbalance. */
static gboolean
has_part (const char *name, const char *word)
{
  g_auto (GStrv) parts = g_strsplit_set (name, "_-.", -1);
  return g_strv_contains ((const char *const *)parts, word);
}

/* The names that have the word as a part, in quotes; NULL for none, or more than are read at a
 * glance. */
static char *
with_part (const char *word, const char *const *names)
{
  g_autoptr (GString) all = g_string_new (NULL);
  guint n = 0;
  for (; *names; names++)
    if (has_part (*names, word))
      g_string_append_printf (all, "%s'%s'", n++ > 0 ? " or " : "", *names);
  return 0 < n && n <= MOST_NAMED ? g_strdup (all->str) : NULL;
}

char *
plan_text_suggest (const char *word, const char *const *names)
{
  g_autofree char *longer = with_part (word, names);
  const char *const name = longer ? NULL : plan_text_closest (word, names);
  if (longer)
    return g_strdup_printf ("did you mean %s?", longer);
  if (name)
    return g_strdup_printf ("did you mean '%s'?", name);
  g_autofree char *all = g_strjoinv (", ", (char **)names);
  return g_strdup_printf ("known are %s", all);
}

gboolean
plan_text_is_name (const char *text)
{
  for (const char *c = text; *c; c++)
    if (!g_ascii_isalnum (*c) && !strchr ("._+-", *c))
      return FALSE;
  return *text != '\0';
}

GKeyFile *
plan_text_built_in (const char *text)
{
  GKeyFile *file = g_key_file_new ();
  if (!g_key_file_load_from_data (file, text, strlen (text), G_KEY_FILE_NONE, NULL))
    g_assert_not_reached (); /* the tests read every one */
  return file;
}
