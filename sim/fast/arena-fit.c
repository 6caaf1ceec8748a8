/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/fast/arena-fit.h"

typedef struct
{
  guint64 offset, bytes;
} Gap;

static Gap *
gap_at (const SimArenaFit *self, guint i)
{
  return &g_array_index (self->gaps, Gap, i);
}

void
sim_arena_fit_begin (SimArenaFit *self)
{
  if (!self->gaps)
    self->gaps = g_array_new (FALSE, FALSE, sizeof (Gap));
  g_array_set_size (self->gaps, 0);
  self->end = self->size = 0;
}

void
sim_arena_fit_clear (SimArenaFit *self)
{
  g_clear_pointer (&self->gaps, g_array_unref);
}

guint64
sim_arena_fit_take (SimArenaFit *self, guint64 bytes)
{
  for (guint i = 0; i < self->gaps->len; i++)
    {
      Gap *gap = gap_at (self, i);
      const guint64 offset = gap->offset;
      if (gap->bytes < bytes)
        continue;
      gap->offset += bytes;
      gap->bytes -= bytes;
      if (gap->bytes == 0)
        g_array_remove_index (self->gaps, i);
      return offset;
    }
  self->end += bytes;
  self->size = MAX (self->size, self->end);
  return self->end - bytes;
}

/* The first gap at or behind an offset. */
static guint
find_behind (const SimArenaFit *self, guint64 offset)
{
  guint low = 0, high = self->gaps->len;
  while (low < high)
    {
      const guint middle = (low + high) / 2;
      if (gap_at (self, middle)->offset < offset)
        low = middle + 1;
      else
        high = middle;
    }
  return low;
}

void
sim_arena_fit_give_back (SimArenaFit *self, guint64 offset, guint64 bytes)
{
  const guint i = find_behind (self, offset);
  const guint64 end = offset + bytes;
  Gap *behind = i < self->gaps->len ? gap_at (self, i) : NULL;
  Gap *before = i > 0 ? gap_at (self, i - 1) : NULL;
  const gboolean joins_before = before && before->offset + before->bytes == offset;
  const gboolean joins_behind = behind && behind->offset == end;
  if (end == self->end)
    {
      self->end = joins_before ? before->offset : offset;
      if (joins_before)
        g_array_set_size (self->gaps, i - 1);
    }
  else if (joins_before)
    {
      before->bytes += bytes + (joins_behind ? behind->bytes : 0);
      if (joins_behind)
        g_array_remove_index (self->gaps, i);
    }
  else if (joins_behind)
    {
      behind->offset = offset;
      behind->bytes += bytes;
    }
  else
    {
      const Gap gap = { offset, bytes };
      g_array_insert_val (self->gaps, i, gap);
    }
}

void
sim_arena_fit_describe (const SimArenaFit *self, GArray *out)
{
  g_array_append_val (out, self->end);
  g_array_append_vals (out, self->gaps->data, 2 * self->gaps->len);
}
