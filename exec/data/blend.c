/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/data/blend.h"

#include "exec/data/data.h"
#include "planner/base/error.h"
#include "planner/base/units.h"

#include <string.h>

/* A weight is kept as a whole number of millionths. */
#define PARTS 1e6
#define MAX_WEIGHT 1e9

void
exec_blend_free (ExecBlend *self)
{
  if (!self)
    return;
  for (guint i = 0; i < self->sources->len; i++)
    {
      ExecBlendSource *source = &g_array_index (self->sources, ExecBlendSource, i);
      g_clear_pointer (&source->orders[0], exec_order_unref);
      g_clear_pointer (&source->orders[1], exec_order_unref);
      exec_tokens_free (source->tokens);
    }
  g_array_unref (self->sources);
  g_free (self->turns);
  g_mutex_clear (&self->mutex);
  g_free (self);
}

static ExecBlendSource *
source_at (const ExecBlend *self, guint64 i)
{
  return &g_array_index (self->sources, ExecBlendSource, i);
}

/* --- the user's specification -------------------------------------------------------------- */

/* The text after the weight and colon that it begins with; NULL where it begins with none. */
static const char *
skip_weight (const char *text)
{
  const gsize length = strspn (text, "0123456789.");
  return length > 0 && text[length] == ':' ? text + length + 1 : NULL;
}

/* The end of a path: a comma before the next weight and colon, or the end of the text. */
static const char *
find_end (const char *path)
{
  const char *end = path;
  while (*end && !(*end == ',' && skip_weight (end + 1)))
    end++;
  return end;
}

static gboolean
add_source (ExecBlend *self, const char *path, guint64 share, gint64 vocab, GError **error)
{
  const ExecBlendSource source
      = { .tokens = exec_tokens_open (path, vocab, self->seq, error), .share = share };
  if (source.tokens)
    g_array_append_val (self->sources, source);
  return source.tokens != NULL;
}

static gboolean
add_weighed (ExecBlend *self, const char **text, const char *what, gint64 vocab, GError **error)
{
  const char *path = skip_weight (*text), *end = find_end (path);
  g_autofree char *weight = g_strndup (*text, path - 1 - *text);
  g_autofree char *name = g_strndup (path, end - path);
  g_autofree char *of = g_strdup_printf ("%s: weight of %s", what, name);
  double value;
  if (!plan_units_parse_real (weight, of, 1 / PARTS, MAX_WEIGHT, &value, error)
      || !add_source (self, name, (guint64)(value * PARTS + 0.5), vocab, error))
    return FALSE;
  *text = *end ? end + 1 : end;
  return TRUE;
}

static guint64
common_divisor (guint64 a, guint64 b)
{
  return b == 0 ? a : common_divisor (b, a % b);
}

static guint64
divide_shares (ExecBlend *self)
{
  guint64 divisor = 0, sum = 0;
  for (guint i = 0; i < self->sources->len; i++)
    divisor = common_divisor (source_at (self, i)->share, divisor);
  for (guint i = 0; i < self->sources->len; i++)
    sum += source_at (self, i)->share /= divisor;
  return sum;
}

/* Turns weights into shares whose sum, the period, is small enough for a table of turns: exactly as
 * given if possible, else rounded. */
static void
find_shares (ExecBlend *self)
{
  self->period = divide_shares (self);
  if (self->period <= EXEC_BLEND_MAX_PERIOD)
    return;
  for (guint i = 0; i < self->sources->len; i++)
    {
      guint64 *share = &source_at (self, i)->share;
      const double part = (double)*share / (double)self->period;
      *share = MAX ((guint64)(part * EXEC_BLEND_MAX_PERIOD + 0.5), 1);
    }
  self->period = divide_shares (self);
}

/* --- the order of sources ------------------------------------------------------------------- */

typedef struct
{
  guint64 number, from, until; /* of the source's next sequence; turns at which it may come */
} Due;

static Due
due_at (const ExecBlend *self, guint source, guint64 number)
{
  const guint64 share = source_at (self, source)->share;
  return (Due){ .number = number,
                .from = number * self->period / share,
                .until = ((number + 1) * self->period + share - 1) / share };
}

/* Assigns every turn of a period to a source. Some source is always due, since the sources' parts
 * of any number of turns add up to that number. */
static void
find_turns (ExecBlend *self)
{
  g_autofree Due *due = g_new (Due, self->sources->len);
  self->turns = g_malloc_n (self->period, sizeof *self->turns);
  for (guint i = 0; i < self->sources->len; i++)
    due[i] = due_at (self, i, 0);
  for (guint64 turn = 0; turn < self->period; turn++)
    {
      guint next = self->sources->len;
      for (guint i = 0; i < self->sources->len; i++)
        if (due[i].from <= turn && (next == self->sources->len || due[i].until < due[next].until))
          next = i;
      g_assert (next < self->sources->len);
      self->turns[turn].source = next;
      self->turns[turn].number = (guint32)due[next].number;
      due[next] = due_at (self, next, due[next].number + 1);
    }
}

ExecBlend *
exec_blend_open (const char *spec, const char *what, gint64 vocab, gint64 seq, GError **error)
{
  g_autoptr (ExecBlend) self = g_new0 (ExecBlend, 1);
  self->seq = seq;
  self->end = -1;
  g_mutex_init (&self->mutex);
  self->sources = g_array_new (FALSE, FALSE, sizeof (ExecBlendSource));
  if (!skip_weight (spec) && !add_source (self, spec, 1, vocab, error))
    {
      if (strpbrk (spec, " ,"))
        g_prefix_error (error, "%s: several are WEIGHT:FILE,WEIGHT:FILE: ", what);
      return NULL;
    }
  while (skip_weight (spec))
    if (!add_weighed (self, &spec, what, vocab, error))
      return NULL;
  find_shares (self);
  find_turns (self);
  return g_steal_pointer (&self);
}

void
exec_blend_shuffle (ExecBlend *self, guint64 seed)
{
  self->is_shuffled = TRUE;
  self->seed = seed;
}

gboolean
exec_blend_shuffle_documents (ExecBlend *self, guint64 seed, GError **error)
{
  for (guint i = 0; i < self->sources->len; i++)
    {
      const ExecTokens *tokens = source_at (self, i)->tokens;
      ExecOrder *order = exec_order_new (tokens, seed, i, 0);
      if (!order)
        {
          g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                       "--shuffle-documents: %s has no index, which would say where documents "
                       "begin: shuffle sequences with --shuffle",
                       exec_tokens_path (tokens));
          return FALSE;
        }
      source_at (self, i)->orders[0] = order;
    }
  exec_blend_shuffle (self, seed);
  self->shuffles_documents = TRUE;
  return TRUE;
}

/* The order of a source's documents in an epoch; the caller unrefs. The last two epochs are kept,
 * because ranks that are threads ask for the same epoch or for neighbouring ones. */
static ExecOrder *
order_of (ExecBlend *self, guint32 i, guint64 epoch)
{
  ExecBlendSource *source = source_at (self, i);
  if (!self->shuffles_documents)
    return NULL;
  g_mutex_lock (&self->mutex);
  if (exec_order_epoch (source->orders[0]) != epoch)
    {
      ExecOrder *before = source->orders[0];
      source->orders[0] = source->orders[1];
      source->orders[1] = before;
    }
  if (!source->orders[0] || exec_order_epoch (source->orders[0]) != epoch)
    {
      g_clear_pointer (&source->orders[0], exec_order_unref);
      source->orders[0] = exec_order_new (source->tokens, self->seed, i, epoch);
    }
  ExecOrder *order = exec_order_ref (source->orders[0]);
  g_mutex_unlock (&self->mutex);
  return order;
}

guint64
exec_blend_taken (const ExecBlend *self, guint source, guint64 sequences)
{
  guint64 taken = sequences / self->period * source_at (self, source)->share;
  for (guint64 turn = 0; turn < sequences % self->period; turn++)
    taken += self->turns[turn].source == source;
  return taken;
}

guint64
exec_blend_sequences (const ExecBlend *self, guint64 epochs)
{
  guint64 least = G_MAXUINT64;
  for (guint64 turn = 0; turn < self->period; turn++)
    {
      const ExecBlendSource *source = source_at (self, self->turns[turn].source);
      const guint64 number = epochs * exec_tokens_sequences (source->tokens);
      if (self->turns[turn].number == number % source->share)
        least = MIN (least, number / source->share * self->period + turn);
    }
  return least;
}

/* Whether tokens are read straight from one source. Otherwise a place in the data selects a whole
 * sequence. */
static gboolean
is_plain (const ExecBlend *self)
{
  return self->sources->len == 1 && !self->is_shuffled;
}

char *
exec_blend_describe (const ExecBlend *self)
{
  GString *text = g_string_new (NULL);
  for (guint i = 0; i < self->sources->len; i++)
    {
      const ExecBlendSource *source = source_at (self, i);
      g_autofree char *tokens = exec_tokens_describe (source->tokens);
      if (self->sources->len > 1)
        g_string_append_printf (text, "%s%" G_GUINT64_FORMAT " of %" G_GUINT64_FORMAT " from ",
                                i > 0 ? "; " : "", source->share, self->period);
      g_string_append (text, tokens);
    }
  if (!is_plain (self))
    g_string_append_printf (text, "; in sequences of %" G_GINT64_FORMAT, self->seq);
  if (self->is_shuffled)
    g_string_append_printf (text, " shuffled by seed %" G_GUINT64_FORMAT "%s", self->seed,
                            self->shuffles_documents ? " as their documents are" : "");
  if (self->end >= 0)
    g_string_append_printf (text, "; documents end with token %" G_GINT64_FORMAT, self->end);
  return g_string_free (text, FALSE);
}

void
exec_blend_set_end (ExecBlend *self, gint64 token)
{
  self->end = token;
  for (guint i = 0; i < self->sources->len; i++)
    exec_tokens_set_end (source_at (self, i)->tokens, token);
}

/* Where a sequence begins: its source, and the index of its first token there. */
typedef struct
{
  const ExecTokens *tokens;
  ExecOrder *order; /* of the source's documents; NULL: as in the file */
  guint64 at;
} Place;

static Place
find (const ExecBlend *self, guint64 first)
{
  const guint64 seq = (guint64)self->seq;
  if (is_plain (self))
    return (Place){ .tokens = source_at (self, 0)->tokens, .at = first };
  const guint64 sequence = (first + seq - 1) / seq, turn = sequence % self->period;
  const guint32 i = self->turns[turn].source;
  const ExecBlendSource *source = source_at (self, i);
  const guint64 n = exec_tokens_sequences (source->tokens);
  const guint64 number = sequence / self->period * source->share + self->turns[turn].number;
  const guint64 epoch = number / n;
  const guint64 at
      = self->is_shuffled ? exec_data_shuffle (self->seed, i, epoch, n, number % n) : number % n;
  return (Place){ .tokens = source->tokens,
                  .order = order_of ((ExecBlend *)self, i, epoch),
                  .at = at * seq };
}

gboolean
exec_blend_read (const ExecBlend *self, guint64 first, gint32 *out_tokens, gint32 *out_targets,
                 gint32 *out_places, GError **error)
{
  const Place place = find (self, first);
  if (out_places)
    exec_tokens_places (place.tokens, place.order, place.at, out_places);
  const gboolean ok
      = exec_tokens_read (place.tokens, place.order, place.at, out_tokens, out_targets, error);
  if (place.order)
    exec_order_unref (place.order);
  return ok;
}
