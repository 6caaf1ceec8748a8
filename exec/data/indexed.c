/* SPDX-License-Identifier: Apache-2.0 */
/* The index of Megatron-LM's data sets (megatron/core/datasets/indexed_dataset.py): a header of 34
 * bytes (magic, version, type of a token, two counts); the length of each sequence; where each
 * begins in the .bin; and a 0, followed by the number of sequences up to the end of each
 * document. */
#include "config.h"

#include "exec/data/indexed.h"

#include "planner/base/error.h"

#include <string.h>

#define MAGIC "MMIDIDX\0" /* and one more 0, which ends the string */
#define HEADER_BYTES 34
#define VERSION_AT 9
#define DTYPE_AT 17
#define SEQUENCES_AT 18
#define DOCUMENTS_AT 26

/* The types of tokens, by code from 1 on. */
static const struct
{
  const char *name;
  guint bytes; /* 0: not a type for tokens */
  gboolean is_signed;
} dtypes[] = {
  { "uint8", 1, FALSE }, { "int8", 1, TRUE },     { "int16", 2, TRUE },    { "int32", 4, TRUE },
  { "int64", 8, TRUE },  { "float64", 0, FALSE }, { "float32", 0, FALSE }, { "uint16", 2, FALSE },
};

typedef struct
{
  const guint8 *data;
  guint64 size;
  const char *origin;
  ExecIndexed indexed;
} Reader;

static guint64
read_u64 (const guint8 *at)
{
  guint64 value;
  memcpy (&value, at, sizeof value);
  return GUINT64_FROM_LE (value);
}

static gint64
length_of (const Reader *self, guint64 sequence)
{
  gint32 length;
  memcpy (&length, self->data + HEADER_BYTES + sequence * sizeof length, sizeof length);
  return GINT32_FROM_LE (length);
}

static gint64
pointer_of (const Reader *self, guint64 sequence)
{
  return (gint64)read_u64 (self->data + HEADER_BYTES + 4 * self->indexed.sequences + 8 * sequence);
}

/* The number of sequences up to the end of a document; 0 for document 0, since documents count from
 * 1 here. */
static gint64
end_of (const Reader *self, guint64 document)
{
  return (gint64)read_u64 (self->data + HEADER_BYTES + 12 * self->indexed.sequences + 8 * document);
}

static gboolean
check_header (const Reader *self, GError **error)
{
  if (self->size < HEADER_BYTES)
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                 "%s: header: it has %d bytes, and the file %" G_GUINT64_FORMAT
                 ": it is truncated, or no index of Megatron-LM's",
                 self->origin, HEADER_BYTES, self->size);
  else if (memcmp (self->data, MAGIC, VERSION_AT) != 0)
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                 "%s: magic: the file does not begin with MMIDIDX and two zeros: it is no index "
                 "of Megatron-LM's",
                 self->origin);
  else if (read_u64 (self->data + VERSION_AT) != 1)
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                 "%s: version: %" G_GUINT64_FORMAT " is not known: it must be 1", self->origin,
                 read_u64 (self->data + VERSION_AT));
  else
    return TRUE;
  return FALSE;
}

static gboolean
read_dtype (Reader *self, GError **error)
{
  const guint code = self->data[DTYPE_AT];
  const gboolean is_known = code >= 1 && code <= G_N_ELEMENTS (dtypes);
  if (is_known && dtypes[code - 1].bytes > 0)
    {
      self->indexed.bytes = dtypes[code - 1].bytes;
      self->indexed.is_signed = dtypes[code - 1].is_signed;
      return TRUE;
    }
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
               "%s: dtype: code %u%s%s%s is no type of tokens: it must be 1 (uint8), 2 (int8), "
               "3 (int16), 4 (int32), 5 (int64) or 8 (uint16)",
               self->origin, code, is_known ? " (" : "", is_known ? dtypes[code - 1].name : "",
               is_known ? ")" : "");
  return FALSE;
}

/* Checks the counts against the size of the file. A longer file has one mode per sequence at its
 * end, which multimodal data sets have. */
static gboolean
read_counts (Reader *self, GError **error)
{
  const guint64 sequences = read_u64 (self->data + SEQUENCES_AT);
  const guint64 indices = read_u64 (self->data + DOCUMENTS_AT);
  const guint64 left = self->size - HEADER_BYTES;
  const gboolean is_possible = sequences <= left / 12 && indices <= left / 8;
  if (indices < 1)
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                 "%s: document count: 0 is too few: it counts the 0 before the first document, too",
                 self->origin);
  else if (!is_possible || 12 * sequences + 8 * indices > left)
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                 "%s: sequence count, document count: %" G_GUINT64_FORMAT
                 " sequences of 12 bytes and %" G_GUINT64_FORMAT
                 " indices of 8 are more than the %" G_GUINT64_FORMAT
                 " bytes behind the header: the file is truncated",
                 self->origin, sequences, indices, left);
  else if (12 * sequences + 8 * indices < left)
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                 "%s: %" G_GUINT64_FORMAT
                 " bytes are behind the last document's index, where the file must end: data of "
                 "several modes is not read",
                 self->origin, left - 12 * sequences - 8 * indices);
  else
    {
      self->indexed.sequences = sequences;
      self->indexed.documents = indices - 1;
      return TRUE;
    }
  return FALSE;
}

static gboolean
check_sequences (Reader *self, GError **error)
{
  for (guint64 s = 0; s < self->indexed.sequences; s++)
    {
      const gint64 length = length_of (self, s), pointer = pointer_of (self, s);
      const gint64 due = (gint64)(self->indexed.tokens * self->indexed.bytes);
      if (length < 0)
        g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                     "%s: sequence lengths: %" G_GINT64_FORMAT " of sequence %" G_GUINT64_FORMAT
                     " is below 0",
                     self->origin, length, s);
      else if (pointer != due)
        g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                     "%s: sequence pointers: sequence %" G_GUINT64_FORMAT
                     " begins at byte %" G_GINT64_FORMAT ": it must be %" G_GINT64_FORMAT
                     ", where those before it end",
                     self->origin, s, pointer, due);
      else
        {
          self->indexed.tokens += (guint64)length;
          continue;
        }
      return FALSE;
    }
  return TRUE;
}

static gboolean
check_documents (const Reader *self, GError **error)
{
  const gint64 all = (gint64)self->indexed.sequences;
  gint64 before = 0;
  for (guint64 d = 0; d <= self->indexed.documents; d++)
    {
      const gint64 end = end_of (self, d), most = d == 0 ? 0 : all;
      if (end < before || end > most)
        {
          g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                       "%s: document indices: %" G_GINT64_FORMAT " at place %" G_GUINT64_FORMAT
                       ": it must be from %" G_GINT64_FORMAT " to %" G_GINT64_FORMAT,
                       self->origin, end, d, before, most);
          return FALSE;
        }
      before = end;
    }
  if (before == all)
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
               "%s: document indices: the last is %" G_GINT64_FORMAT
               ": it must be %" G_GINT64_FORMAT ", the sequence count",
               self->origin, before, all);
  return FALSE;
}

gboolean
exec_indexed_parse (const void *data, gsize size, const char *origin, ExecIndexed *out_indexed,
                    GError **error)
{
  Reader self = { .data = data, .size = size, .origin = origin };
  if (!check_header (&self, error) || !read_dtype (&self, error) || !read_counts (&self, error)
      || !check_sequences (&self, error) || !check_documents (&self, error))
    return FALSE;
  self.indexed.pointers = self.data + HEADER_BYTES + 4 * self.indexed.sequences;
  *out_indexed = self.indexed;
  return TRUE;
}

guint64
exec_indexed_begin (const ExecIndexed *self, guint64 sequence)
{
  return read_u64 (self->pointers + 8 * sequence) / self->bytes;
}

guint64
exec_indexed_end (const ExecIndexed *self, guint64 sequence)
{
  return sequence + 1 < self->sequences ? exec_indexed_begin (self, sequence + 1) : self->tokens;
}

guint64
exec_indexed_sequence_at (const ExecIndexed *self, guint64 token)
{
  guint64 from = 0, to = self->sequences;
  while (to - from > 1)
    {
      const guint64 middle = from + (to - from) / 2;
      if (exec_indexed_begin (self, middle) <= token)
        from = middle;
      else
        to = middle;
    }
  return from;
}
