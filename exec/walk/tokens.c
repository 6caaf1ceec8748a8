/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/walk/tokens.h"

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
  self->count = size / self->bytes;
  if (size % self->bytes != 0)
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

ExecTokens *
exec_tokens_open (const char *path, gint64 vocab, gint64 seq, GError **error)
{
  g_autoptr (ExecTokens) self = g_new0 (ExecTokens, 1);
  const gboolean is_wide
      = g_str_has_suffix (path, ".u32") || (vocab > 0x10000 && !g_str_has_suffix (path, ".u16"));
  self->path = g_strdup (path);
  self->vocab = vocab;
  self->seq = seq;
  self->bytes = is_wide ? 4 : 2;
  if (!(self->file = plan_text_map_file (path, error)))
    return NULL;
  return check_size (self, error) ? g_steal_pointer (&self) : NULL;
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

static guint32
token_at (const ExecTokens *self, guint64 at)
{
  guint32 token = 0;
  memcpy (&token, g_mapped_file_get_contents (self->file) + at * self->bytes, self->bytes);
  return GUINT32_FROM_LE (token);
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
      const guint32 token = token_at (self, at);
      if (token >= (guint64)self->vocab)
        {
          g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                       "%s: token %u at place %" G_GUINT64_FORMAT
                       " is outside the model's vocabulary of %" G_GINT64_FORMAT
                       ": another tokenizer made this file, or its tokens have %s bits",
                       self->path, token, at, self->vocab, self->bytes == 2 ? "32" : "16");
          return FALSE;
        }
      if (t < (guint64)self->seq)
        out_tokens[t] = (gint32)token;
      if (t > 0)
        out_targets[t - 1] = (gint32)token;
    }
  return TRUE;
}
