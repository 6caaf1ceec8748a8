/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/base/csv.h"

#include "planner/base/text.h"

/* A cell that is larger is one whose quote was forgotten. */
#define MAX_CELL_BYTES (1024 * 1024)
#define MAX_CELLS 4096

typedef enum
{
  STATE_START,  /* at the start of a cell */
  STATE_PLAIN,  /* within a cell without quotes */
  STATE_QUOTED, /* within quotes */
  STATE_QUOTE,  /* behind a quote that ends them, or is the first of two */
  STATE_RETURN, /* behind a carriage return */
  STATE_BROKEN, /* in the rest of a line that is left out */
} State;

struct _PlanCsv
{
  PlanCsvFunc func;
  gpointer user_data;
  State state;
  guint64 line, first_line; /* number of the line that is read, and of the record's first line */
  gboolean is_empty;        /* nothing of the record was seen yet */
  gboolean has_quotes;      /* the cell had quotes */
  guint64 n_bytes, n_mark;  /* bytes read, and how many of them were a byte order mark */
  GString *cell;
  GPtrArray *cells;
};

PlanCsv *
plan_csv_new (PlanCsvFunc func, gpointer user_data)
{
  PlanCsv *self = g_new0 (PlanCsv, 1);
  self->func = func;
  self->user_data = user_data;
  self->line = self->first_line = 1;
  self->is_empty = TRUE;
  self->cell = g_string_new (NULL);
  self->cells = g_ptr_array_new_with_free_func (g_free);
  return self;
}

void
plan_csv_free (PlanCsv *self)
{
  if (!self)
    return;
  g_string_free (self->cell, TRUE);
  g_ptr_array_unref (self->cells);
  g_free (self);
}

static void
end_cell (PlanCsv *self)
{
  const gboolean is_there = self->has_quotes || self->cell->len > 0;
  g_ptr_array_add (self->cells, is_there ? g_strdup (self->cell->str) : NULL);
  g_string_truncate (self->cell, 0);
  self->has_quotes = FALSE;
  self->state = STATE_START;
}

static void
begin_record (PlanCsv *self)
{
  g_ptr_array_set_size (self->cells, 0);
  g_string_truncate (self->cell, 0);
  self->has_quotes = FALSE;
  self->is_empty = TRUE;
  self->state = STATE_START;
  self->first_line = self->line;
}

static void
end_record (PlanCsv *self)
{
  if (!self->is_empty)
    {
      end_cell (self);
      self->func (self->first_line, self->cells, NULL, self->user_data);
    }
  begin_record (self);
}

static void
refuse (PlanCsv *self, const char *how)
{
  self->func (self->first_line, NULL, how, self->user_data);
  begin_record (self);
  self->state = STATE_BROKEN;
}

static void
add (PlanCsv *self, char c)
{
  if (c == '\0')
    refuse (self, "a NUL byte, which no text has");
  else if (self->cell->len >= MAX_CELL_BYTES)
    refuse (self, "a cell of more than 1 MiB: a quote is missing");
  else
    g_string_append_c (self->cell, c);
}

/* Takes a character outside of quotes. */
static void
take_plain (PlanCsv *self, char c)
{
  if (c == ',' && self->cells->len + 1 == MAX_CELLS)
    refuse (self, "too many cells");
  else if (c == ',')
    end_cell (self);
  else if (c == '\r')
    self->state = STATE_RETURN;
  else if (self->state == STATE_QUOTE)
    refuse (self, "a quoted cell goes on after its end");
  else if (c == '"' && self->state == STATE_START)
    {
      self->state = STATE_QUOTED;
      self->has_quotes = TRUE;
    }
  else if (c == '"')
    refuse (self, "a quote within a cell that does not begin with one");
  else
    {
      self->state = STATE_PLAIN;
      add (self, c);
    }
}

static void
take (PlanCsv *self, char c)
{
  if (self->state == STATE_QUOTED)
    {
      if (c == '"')
        self->state = STATE_QUOTE;
      else
        add (self, c);
      return;
    }
  if (c == '\n')
    {
      if (self->state != STATE_BROKEN)
        end_record (self);
      self->state = STATE_START;
      self->first_line = self->line + 1;
      return;
    }
  if (self->state == STATE_BROKEN)
    return;
  if (c != '\r')
    self->is_empty = FALSE;
  if (self->state == STATE_RETURN)
    refuse (self, "a carriage return within a line");
  else if (self->state == STATE_QUOTE && c == '"') /* the second of two quotes */
    {
      self->state = STATE_QUOTED;
      add (self, c);
    }
  else
    take_plain (self, c);
}

void
plan_csv_feed (PlanCsv *self, const char *text, gsize length)
{
  for (gsize i = 0; i < length; i++)
    {
      if (self->n_mark == self->n_bytes++ && self->n_mark < strlen (PLAN_TEXT_BYTE_ORDER_MARK)
          && text[i] == PLAN_TEXT_BYTE_ORDER_MARK[self->n_mark])
        {
          self->n_mark++;
          continue;
        }
      take (self, text[i]);
      self->line += text[i] == '\n';
    }
}

void
plan_csv_end (PlanCsv *self)
{
  if (self->state == STATE_QUOTED)
    refuse (self, "a quoted cell does not end");
  else if (self->state != STATE_BROKEN)
    end_record (self);
  begin_record (self);
}
