/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/data/tokens.h"

#include "exec/data/data.h"
#include "exec/data/indexed.h"
#include "planner/base/error.h"
#include "planner/base/text.h"

#include <string.h>

/* Bytes at the beginning of a file that are hashed to identify it. */
#define LOOKED_AT_BYTES ((gsize)1 << 20)

struct _ExecTokens
{
  char *path;
  GMappedFile *file;
  gint64 vocab, seq;
  guint64 bytes;       /* bytes of a token */
  guint64 count;       /* number of tokens */
  gint64 end;          /* token that ends a document; -1: none */
  GMappedFile *index;  /* NULL: there is none */
  ExecIndexed indexed; /* the parsed index */
};

void
exec_tokens_free (ExecTokens *self)
{
  if (!self)
    return;
  g_clear_pointer (&self->file, g_mapped_file_unref);
  g_clear_pointer (&self->index, g_mapped_file_unref);
  g_free (self->path);
  g_free (self);
}

static gboolean
check_size (ExecTokens *self, GError **error)
{
  const guint64 size = g_mapped_file_get_length (self->file);
  const guint64 told = self->count * self->bytes; /* by the index */
  if (!self->index)
    self->count = size / self->bytes;
  if (self->index && size != told)
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                 "%s: %" G_GUINT64_FORMAT " bytes, and its index has %" G_GUINT64_FORMAT
                 " tokens of %" G_GUINT64_FORMAT " bytes: it must have %" G_GUINT64_FORMAT
                 ": the file is %s",
                 self->path, size, self->count, self->bytes, told,
                 size < told ? "truncated" : "of another index");
  else if (size % self->bytes != 0)
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                 "%s: %" G_GUINT64_FORMAT
                 " bytes are no whole number of tokens of %" G_GUINT64_FORMAT
                 " bytes: the file is truncated, or its name must end in .u16 or .u32",
                 self->path, size, self->bytes);
  else if (self->count <= (guint64)self->seq)
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                 "%s: %" G_GUINT64_FORMAT " tokens are too few: a sequence of seq=%" G_GINT64_FORMAT
                 " needs one more than that",
                 self->path, self->count, self->seq);
  else
    return TRUE;
  return FALSE;
}

/* The prefix "a" of a Megatron-LM data set that is given as "a", "a.bin" or "a.idx"; NULL where
 * `path` is not one. The caller frees. */
static char *
find_data_set (const char *path)
{
  const gsize length = strlen (path);
  const gboolean is_bin = g_str_has_suffix (path, ".bin"), is_idx = g_str_has_suffix (path, ".idx");
  g_autofree char *prefix = g_strndup (path, length - (is_bin || is_idx ? strlen (".bin") : 0));
  g_autofree char *index = g_strconcat (prefix, ".idx", NULL);
  const gboolean is_plain = !is_bin && g_file_test (path, G_FILE_TEST_IS_REGULAR);
  if (is_idx || (!is_plain && g_file_test (index, G_FILE_TEST_EXISTS)))
    return g_steal_pointer (&prefix);
  return NULL;
}

static gboolean
read_index (ExecTokens *self, const char *prefix, GError **error)
{
  g_autofree char *path = g_strconcat (prefix, ".idx", NULL);
  g_autoptr (GMappedFile) file = plan_text_map_file (path, error);
  if (!file
      || !exec_indexed_parse (g_mapped_file_get_contents (file), g_mapped_file_get_length (file),
                              path, &self->indexed, error))
    return FALSE;
  self->path = g_strconcat (prefix, ".bin", NULL);
  self->bytes = self->indexed.bytes;
  self->count = self->indexed.tokens;
  self->index = g_steal_pointer (&file);
  return TRUE;
}

ExecTokens *
exec_tokens_open (const char *path, gint64 vocab, gint64 seq, GError **error)
{
  g_autoptr (ExecTokens) self = g_new0 (ExecTokens, 1);
  g_autofree char *prefix = find_data_set (path);
  const gboolean is_wide
      = g_str_has_suffix (path, ".u32") || (vocab > 0x10000 && !g_str_has_suffix (path, ".u16"));
  self->vocab = vocab;
  self->seq = seq;
  self->end = -1;
  if (prefix && !read_index (self, prefix, error))
    return NULL;
  if (!prefix)
    {
      self->path = g_strdup (path);
      self->bytes = is_wide ? 4 : 2;
    }
  if (!(self->file = plan_text_map_file (self->path, error)))
    return NULL;
  return check_size (self, error) ? g_steal_pointer (&self) : NULL;
}

const char *
exec_tokens_path (const ExecTokens *self)
{
  return self->path;
}

guint64
exec_tokens_sequences (const ExecTokens *self)
{
  return (self->count - 1) / (guint64)self->seq;
}

char *
exec_tokens_describe (const ExecTokens *self)
{
  const gsize bytes = g_mapped_file_get_length (self->file);
  g_autofree char *digest = g_compute_checksum_for_data (
      G_CHECKSUM_SHA256, (const guchar *)g_mapped_file_get_contents (self->file),
      MIN (bytes, LOOKED_AT_BYTES));
  return g_strdup_printf ("%" G_GUINT64_FORMAT " tokens of %d bits, %.16s", self->count,
                          8 * (gint)self->bytes, digest);
}

static gint64
token_at (const ExecTokens *self, guint64 at)
{
  const guint64 unused = 64 - 8 * self->bytes;
  guint64 token = 0;
  memcpy (&token, g_mapped_file_get_contents (self->file) + at * self->bytes, self->bytes);
  token = GUINT64_FROM_LE (token);
  return self->indexed.is_signed ? (gint64)(token << unused) >> unused : (gint64)token;
}

/* --- shuffled documents ------------------------------------------------------------------- */

struct _ExecOrder
{
  guint64 epoch, n;
  guint64 *begin, *from; /* where each document begins: in this order, and in the file */
};

ExecOrder *
exec_order_new (const ExecTokens *self, guint64 seed, guint64 source, guint64 epoch)
{
  const guint64 n = self->index ? self->indexed.sequences : 0;
  if (n == 0)
    return NULL;
  ExecOrder *order = g_atomic_rc_box_new0 (ExecOrder);
  order->epoch = epoch;
  order->n = n;
  order->begin = g_new (guint64, n);
  order->from = g_new (guint64, n);
  for (guint64 at = 0, begin = 0; at < n; at++)
    {
      /* Documents get other shuffles than sequences do, whose sources count from 0. */
      const guint64 which = exec_data_shuffle (seed, G_MAXUINT64 - source, epoch, n, at);
      order->begin[at] = begin;
      order->from[at] = exec_indexed_begin (&self->indexed, which);
      begin += exec_indexed_end (&self->indexed, which) - order->from[at];
    }
  return order;
}

ExecOrder *
exec_order_ref (ExecOrder *self)
{
  return g_atomic_rc_box_acquire (self);
}

static void
clear_order (gpointer data)
{
  ExecOrder *self = data;
  g_free (self->begin);
  g_free (self->from);
}

void
exec_order_unref (ExecOrder *self)
{
  g_atomic_rc_box_release_full (self, clear_order);
}

guint64
exec_order_epoch (const ExecOrder *self)
{
  return self->epoch;
}

/* The document, by its place in the order, that a token is in. */
static guint64
document_at (const ExecOrder *self, guint64 at)
{
  guint64 from = 0, to = self->n;
  while (to - from > 1)
    {
      const guint64 middle = from + (to - from) / 2;
      if (self->begin[middle] <= at)
        from = middle;
      else
        to = middle;
    }
  return from;
}

/* The place in the file of a token of the ordered text; `order` may be NULL. */
static guint64
in_file (const ExecOrder *order, guint64 at)
{
  if (!order)
    return at;
  const guint64 document = document_at (order, at);
  return order->from[document] + at - order->begin[document];
}

/* --- documents ---------------------------------------------------------------------------- */

void
exec_tokens_set_end (ExecTokens *self, gint64 token)
{
  self->end = token;
}

gboolean
exec_tokens_has_documents (const ExecTokens *self)
{
  return self->index || self->end >= 0;
}

/* Wraps around: the first sequence follows the last whole one. At the seam stands the token that
 * the file has behind the last sequence, in place of the file's first token. */
static guint64
place_of (const ExecTokens *self, guint64 at)
{
  const guint64 period = exec_tokens_sequences (self) * (guint64)self->seq;
  return at > period ? at - period : at;
}

/* Whether a document begins at token `at` of the ordered text. */
static gboolean
is_first (const ExecTokens *self, const ExecOrder *order, guint64 at)
{
  if (at == 0 || self->end >= 0)
    return at == 0 || token_at (self, in_file (order, at - 1)) == self->end;
  if (order)
    return order->begin[document_at (order, at)] == at;
  return exec_indexed_begin (&self->indexed, exec_indexed_sequence_at (&self->indexed, at)) == at;
}

void
exec_tokens_places (const ExecTokens *self, const ExecOrder *order, guint64 first,
                    gint32 *out_places)
{
  first %= exec_tokens_sequences (self) * (guint64)self->seq;
  out_places[0] = 0;
  for (guint64 t = 1; t < (guint64)self->seq; t++)
    {
      const guint64 at = place_of (self, first + t);
      const gboolean begins
          = at != place_of (self, first + t - 1) + 1 || is_first (self, order, at);
      out_places[t] = begins ? 0 : out_places[t - 1] + 1;
    }
}

double
exec_tokens_mean_document (const ExecTokens *self)
{
  const guint64 seq = (guint64)self->seq, all = exec_tokens_sequences (self) * seq;
  double squares = 0;
  if (!self->index || self->end >= 0)
    return 0;
  for (guint64 at = 0, end; at < all; at = end) /* up to the next boundary */
    {
      const guint64 sequence = exec_indexed_sequence_at (&self->indexed, at);
      end = MIN ((at / seq + 1) * seq, exec_indexed_end (&self->indexed, sequence));
      squares += (double)(end - at) * (double)(end - at);
    }
  return squares / (double)all;
}

gboolean
exec_tokens_read (const ExecTokens *self, const ExecOrder *order, guint64 first, gint32 *out_tokens,
                  gint32 *out_targets, GError **error)
{
  const guint64 period = exec_tokens_sequences (self) * (guint64)self->seq;
  first %= period;
  for (guint64 t = 0; t <= (guint64)self->seq; t++)
    {
      const guint64 at = in_file (order, place_of (self, first + t));
      const gint64 token = token_at (self, at);
      if (token < 0 || token >= self->vocab)
        {
          g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                       "%s: token %" G_GINT64_FORMAT " at place %" G_GUINT64_FORMAT
                       " is outside the model's vocabulary of %" G_GINT64_FORMAT
                       ": another tokenizer made this file%s",
                       self->path, token, at, self->vocab,
                       self->index        ? ""
                       : self->bytes == 2 ? ", or its tokens have 32 bits"
                                          : ", or its tokens have 16 bits");
          return FALSE;
        }
      if (t < (guint64)self->seq)
        out_tokens[t] = (gint32)token;
      if (t > 0)
        out_targets[t - 1] = (gint32)token;
    }
  return TRUE;
}
