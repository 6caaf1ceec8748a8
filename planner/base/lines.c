/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/base/lines.h"

#include <string.h>

struct _PlanLines
{
  PlanLineFunc func;
  gpointer user_data;
  GString *text;
  guint64 line;
};

PlanLines *
plan_lines_new (PlanLineFunc func, gpointer user_data)
{
  PlanLines *self = g_new0 (PlanLines, 1);
  self->func = func;
  self->user_data = user_data;
  self->text = g_string_new (NULL);
  self->line = 1;
  return self;
}

void
plan_lines_free (PlanLines *self)
{
  if (!self)
    return;
  g_string_free (self->text, TRUE);
  g_free (self);
}

void
plan_lines_strip_colours (char *line)
{
  char *to = line;
  for (const char *from = line; *from;)
    if (from[0] == '\033' && from[1] == '[')
      {
        from += 2;
        from += strspn (from, "0123456789;?");
        from += *from != '\0';
      }
    else
      *to++ = *from++;
  *to = '\0';
}

static void
end_line (PlanLines *self)
{
  if (self->text->len > 0)
    {
      plan_lines_strip_colours (self->text->str);
      self->func (self->line, self->text->str, self->user_data);
    }
  g_string_truncate (self->text, 0);
}

/* Number of bytes up to the next one that ends a line or cannot be in a text. */
static gsize
length_of_run (const char *text, gsize length)
{
  gsize n = 0;
  while (n < length && text[n] != '\n' && text[n] != '\r' && text[n] != '\0')
    n++;
  return n;
}

void
plan_lines_feed (PlanLines *self, const char *text, gsize length)
{
  while (length > 0)
    {
      const gsize n = length_of_run (text, length);
      const gsize room = PLAN_LINES_MAX - MIN (self->text->len, PLAN_LINES_MAX);
      g_string_append_len (self->text, text, (gssize)MIN (n, room));
      text += n;
      length -= n;
      if (length == 0)
        return;
      if (*text != '\0')
        end_line (self);
      self->line += *text == '\n';
      text++;
      length--;
    }
}

void
plan_lines_end (PlanLines *self)
{
  gsize n = self->text->len;
  while (n > 0 && !g_ascii_isspace (self->text->str[n - 1]))
    n--;
  g_string_truncate (self->text, n);
  end_line (self);
}
