/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/walk/tokens.h"

#include "exec/walk/indexed.h"
#include "planner/base/error.h"
#include "planner/base/text.h"

#include <string.h>

/* From the beginning of a file, to tell it from others. */
#define LOOKED_AT_BYTES ((gsize)1 << 20)

struct _ExecTokens
{
  char *path;
  GMappedFile *file;
  gint64 vocab, seq;
  guint64 bytes; /* of a token */
  guint64 count; /* of tokens */
  gboolean is_signed, is_indexed;
};

void
exec_tokens_free (ExecTokens *self)
{
  if (!self)
    return;
  g_clear_pointer (&self->file, g_mapped_file_unref);
  g_free (self->path);
  g_free (self);
}

static gboolean
check_size (ExecTokens *self, GError **error)
{
  const guint64 size = g_mapped_file_get_length (self->file);
  const guint64 told = self->count * self->bytes; /* by an index */
  if (!self->is_indexed)
    self->count = size / self->bytes;
  if (self->is_indexed && size != told)
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

/* Of "a", "a.bin" or "a.idx", one of Megatron-LM's data sets, "a"; else NULL. The caller frees. */
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
  ExecIndexed indexed;
  g_autofree char *path = g_strconcat (prefix, ".idx", NULL);
  g_autoptr (GMappedFile) file = plan_text_map_file (path, error);
  if (!file
      || !exec_indexed_parse (g_mapped_file_get_contents (file), g_mapped_file_get_length (file),
                              path, &indexed, error))
    return FALSE;
  self->path = g_strconcat (prefix, ".bin", NULL);
  self->bytes = indexed.bytes;
  self->is_signed = indexed.is_signed;
  self->count = indexed.tokens;
  self->is_indexed = TRUE;
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
  return self->is_signed ? (gint64)(token << unused) >> unused : (gint64)token;
}

gboolean
exec_tokens_read (const ExecTokens *self, guint64 first, gint32 *out_tokens, gint32 *out_targets,
                  GError **error)
{
  const guint64 period = exec_tokens_sequences (self) * (guint64)self->seq;
  first %= period;
  for (guint64 t = 0; t <= (guint64)self->seq; t++)
    {
      const guint64 at = first + t > period ? first + t - period : first + t;
      const gint64 token = token_at (self, at);
      if (token < 0 || token >= self->vocab)
        {
          g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                       "%s: token %" G_GINT64_FORMAT " at place %" G_GUINT64_FORMAT
                       " is outside the model's vocabulary of %" G_GINT64_FORMAT
                       ": another tokenizer made this file%s",
                       self->path, token, at, self->vocab,
                       self->is_indexed   ? ""
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
