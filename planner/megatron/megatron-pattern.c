/* SPDX-License-Identifier: Apache-2.0 */
/* Megatron-LM evaluates these texts with Python's eval. Only what makes a list is read here: sums
 * of lists, a list times a number, parentheses.
 *
 *   sum     = product {"+" product}
 *   product = atom {"*" atom}
 *   atom    = number | "(" sum ")" | "[" [number {"," number}] "]" */
#include "config.h"

#include "planner/megatron/megatron-pattern.h"

#include "planner/base/error.h"
#include "planner/base/text.h"

#include <string.h>

#define MAX_DEPTH 32

/* The value of an expression: a number, or a list of marks. */
typedef struct
{
  GByteArray *marks; /* NULL: a number */
  gint64 number;
} Value;

typedef struct
{
  const char *at;
  guint depth;
} Reader;

static void
value_clear (Value *self)
{
  g_clear_pointer (&self->marks, g_byte_array_unref);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Value, value_clear)

static gboolean read_sum (Reader *reader, Value *out_value);

static gboolean
skip (Reader *reader, char c)
{
  while (*reader->at == ' ')
    reader->at++;
  if (*reader->at != c)
    return FALSE;
  reader->at++;
  return TRUE;
}

static gboolean
read_number (Reader *reader, gint64 *out_number)
{
  while (*reader->at == ' ')
    reader->at++;
  const char *const start = reader->at;
  gint64 number = 0;
  for (; g_ascii_isdigit (*reader->at); reader->at++)
    number = MIN (10 * number + (*reader->at - '0'), PLAN_MEGATRON_PATTERN_MAX + 1);
  *out_number = number;
  return reader->at > start;
}

static gboolean
read_list (Reader *reader, Value *out_value)
{
  out_value->marks = g_byte_array_new ();
  gboolean is_more = !skip (reader, ']');
  while (is_more)
    {
      gint64 number;
      if (!read_number (reader, &number) || number > 1
          || out_value->marks->len >= PLAN_MEGATRON_PATTERN_MAX)
        return FALSE;
      const guint8 mark = (guint8)number;
      g_byte_array_append (out_value->marks, &mark, 1);
      is_more = skip (reader, ',');
      if (!is_more && !skip (reader, ']'))
        return FALSE;
    }
  return TRUE;
}

static gboolean
read_atom (Reader *reader, Value *out_value)
{
  if (skip (reader, '['))
    return read_list (reader, out_value);
  if (!skip (reader, '('))
    return read_number (reader, &out_value->number);
  if (reader->depth == MAX_DEPTH)
    return FALSE;
  reader->depth++;
  const gboolean ok = read_sum (reader, out_value) && skip (reader, ')');
  reader->depth--;
  return ok;
}

/* value *= other */
static gboolean
multiply (Value *value, Value *other)
{
  if (value->marks && other->marks)
    return FALSE;
  if (other->marks)
    {
      value->marks = g_steal_pointer (&other->marks);
      other->number = value->number;
    }
  else if (!value->marks)
    {
      value->number *= other->number;
      return value->number <= PLAN_MEGATRON_PATTERN_MAX;
    }
  const guint length = value->marks->len;
  const guint64 product = (guint64)length * (guint64)other->number;
  if (product > PLAN_MEGATRON_PATTERN_MAX)
    return FALSE;
  g_byte_array_set_size (value->marks, (guint)product);
  for (guint i = length; i < product; i++)
    value->marks->data[i] = value->marks->data[i - length];
  return TRUE;
}

/* value += other */
static gboolean
append (Value *value, const Value *other)
{
  if (!value->marks != !other->marks)
    return FALSE;
  if (!value->marks)
    {
      value->number += other->number;
      return value->number <= PLAN_MEGATRON_PATTERN_MAX;
    }
  g_byte_array_append (value->marks, other->marks->data, other->marks->len);
  return value->marks->len <= PLAN_MEGATRON_PATTERN_MAX;
}

static gboolean
read_product (Reader *reader, Value *out_value)
{
  if (!read_atom (reader, out_value))
    return FALSE;
  while (skip (reader, '*'))
    {
      g_auto (Value) other = { 0 };
      if (!read_atom (reader, &other) || !multiply (out_value, &other))
        return FALSE;
    }
  return TRUE;
}

static gboolean
read_sum (Reader *reader, Value *out_value)
{
  if (!read_product (reader, out_value))
    return FALSE;
  while (skip (reader, '+'))
    {
      g_auto (Value) other = { 0 };
      if (!read_product (reader, &other) || !append (out_value, &other))
        return FALSE;
    }
  return TRUE;
}

guint8 *
plan_megatron_pattern_parse (const char *text, const char *what, guint layers, GError **error)
{
  g_auto (Value) value = { 0 };
  Reader reader = { .at = text };
  const gboolean is_read = read_sum (&reader, &value) && (skip (&reader, ' '), !*reader.at);
  if (is_read && value.marks && value.marks->len == layers)
    return g_byte_array_free (g_steal_pointer (&value.marks), FALSE);
  g_autofree char *shown = plan_text_quote (text);
  if (is_read && value.marks)
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                 "%s: %s has %u marks, but there are %u layers", what, shown, value.marks->len,
                 layers);
  else
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                 "%s: %s is neither a number nor a list of 0 and 1 such as ([0]*3+[1]*58)", what,
                 shown);
  return NULL;
}

gboolean
plan_megatron_pattern_rhythm (const guint8 *marks, guint layers, guint *out_first, guint *out_every)
{
  guint first = 0;
  while (first < layers && !marks[first])
    first++;
  guint next = first + 1;
  while (next < layers && !marks[next])
    next++;
  *out_first = first;
  *out_every = next - first;
  return first < layers;
}
