/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/fast/blocks-long.h"

#include "sim/fast/blocks-private.h"
#include "sim/memory.h"

#include <string.h>

#define MOST_PARTS 128 /* more take longer to compare than to walk */

typedef struct
{
  SimBlock block;
  guint64 n_whole; /* where it is a run, now or before */
} Part;

void
sim_blocks_mark (SimBlocks *self)
{
  self->is_marked = TRUE;
  self->stamp++;
  self->n_mixed = 0;
}

static void
shape_sizes (const SimBlocks *self, SimShape *out)
{
  g_array_set_size (out->sizes, 0);
  for (guint pool = 0; pool < SIM_MEMORY_POOLS; pool++)
    {
      const SimSizes *sizes = &self->sizes[pool];
      const guint from = rank_of (sizes, (guint64)SIM_MEMORY_SHORT + 1);
      for (guint rank = find_used (sizes, from); rank < sizes->n;
           rank = find_used (sizes, rank + 1))
        {
          const guint32 number = sizes->numbers[rank];
          const SimQueue *queue = &self->queues[number];
          const SimLongSize size = { number, queue->first, queue->last, queue->n_whole };
          g_array_append_val (out->sizes, size);
        }
    }
}

gboolean
sim_blocks_shape (const SimBlocks *self, SimShape *out)
{
  if (!out->sizes)
    {
      out->sizes = g_array_new (FALSE, FALSE, sizeof (SimLongSize));
      out->parts = g_array_new (FALSE, FALSE, sizeof (Part));
      out->numbers = g_array_new (FALSE, FALSE, sizeof (guint32));
    }
  shape_sizes (self, out);
  g_array_set_size (out->parts, 0);
  g_array_set_size (out->numbers, 0);
  if (self->n_longs > MOST_PARTS)
    return FALSE;
  g_array_set_size (out->parts, self->n_longs);
  for (guint32 i = 0; i < self->n_longs; i++)
    g_array_index (out->parts, Part, i)
        = (Part){ *block_at (self, self->longs[i]), note_at (self, self->longs[i])->n_whole };
  g_array_append_vals (out->numbers, self->unused[TRUE], self->n_unused[TRUE]);
  return TRUE;
}

static gboolean
are_equal (const GArray *a, const GArray *b, gsize element_bytes)
{
  return a->len == b->len
         && (a->len == 0 || memcmp (a->data, b->data, a->len * element_bytes) == 0);
}

gboolean
sim_shape_is_same (const SimShape *a, const SimShape *b)
{
  if (a->sizes->len != b->sizes->len || !are_equal (a->parts, b->parts, sizeof (Part))
      || !are_equal (a->numbers, b->numbers, sizeof (guint32)))
    return FALSE;
  for (guint i = 0; i < a->sizes->len; i++)
    {
      const SimLongSize *one = &g_array_index (a->sizes, SimLongSize, i),
                        *other = &g_array_index (b->sizes, SimLongSize, i);
      if (one->queue != other->queue || one->first != other->first || one->last != other->last)
        return FALSE;
    }
  return TRUE;
}

void
sim_shape_clear (SimShape *self)
{
  g_clear_pointer (&self->sizes, g_array_unref);
  g_clear_pointer (&self->parts, g_array_unref);
  g_clear_pointer (&self->numbers, g_array_unref);
}

SimLook
sim_blocks_look (SimBlocks *self, guint64 bytes, guint pool, SimBlocksHint *hint)
{
  if (hint->version != self->version[pool])
    sim_blocks_find_hint (self, bytes, pool, hint);
  const SimSizes *sizes = &self->sizes[pool];
  const guint found = find_used (sizes, hint->rank);
  if (found == sizes->n)
    return (SimLook){ .found_bytes = G_MAXUINT64 };
  const SimQueue *queue = &self->queues[sizes->numbers[found]];
  return (SimLook){
    .found_bytes = queue->bytes,
    .n_whole = queue->first == NONE ? queue->n_whole : 0,
    .has_long = is_long (queue->bytes)
                || find_used (sizes, rank_of (sizes, (guint64)SIM_MEMORY_SHORT + 1)) < sizes->n,
  };
}

static void
end_row (SimBlocks *self, guint pool)
{
  const guint32 block = self->rows[pool].block;
  self->rows[pool].block = NONE;
  if (block != NONE)
    sim_blocks_list (self, block);
}

void
sim_blocks_end_rows (SimBlocks *self)
{
  for (guint pool = 0; pool < SIM_MEMORY_POOLS; pool++)
    end_row (self, pool);
}

/* Something is left of the block when that is taken. */
static inline gboolean
lasts (const SimBlocks *self, guint32 block, guint64 bytes)
{
  const SimBlock *b = block_at (self, block);
  return b->bytes > bytes && is_kept (self, b->pool, b->bytes - bytes);
}

/* The next of a row. What is left is smaller than any other that would do: the block was the
 * smallest. */
static guint32
take_front (SimBlocks *self, const SimRow *row)
{
  SimBlock front = *block_at (self, row->block);
  front.bytes = row->bytes;
  front.after = row->block;
  const guint32 index = sim_blocks_new_block (self, &front);
  SimBlock *rest = block_at (self, row->block);
  if (rest->before != NONE)
    block_at (self, rest->before)->after = index;
  rest->before = index;
  rest->bytes -= row->bytes;
  return index;
}

guint32
sim_blocks_take_short (SimBlocks *self, guint64 bytes, guint pool, gboolean may_add,
                       SimBlocksHint *hint)
{
  SimRow *row = &self->rows[pool];
  if (row->block != NONE && row->bytes == bytes && lasts (self, row->block, bytes))
    return take_front (self, row);
  end_row (self, pool);
  if (hint->version != self->version[pool])
    sim_blocks_find_hint (self, bytes, pool, hint);
  const SimSizes *sizes = &self->sizes[pool];
  const guint rank = find_used (sizes, hint->rank);
  if (rank == sizes->n || is_long (sizes->sizes[rank]))
    return may_add ? sim_blocks_take_new (self, bytes, pool, hint) : NONE;
  const guint32 first = self->queues[sizes->numbers[rank]].first;
  if (first != NONE && block_at (self, first)->is_long)
    return NONE;
  if (first == NONE || block_at (self, first)->is_run || !lasts (self, first, bytes))
    return sim_blocks_take (self, bytes, pool, hint);
  sim_blocks_unlist (self, first);
  *row = (SimRow){ first, bytes };
  return take_front (self, row);
}

gboolean
sim_blocks_is_short (const SimBlocks *self, guint32 block)
{
  return is_whole (block) ? !is_long (self->queues[block - SIM_BLOCKS_WHOLE].bytes)
                          : !block_at (self, block)->is_long;
}

gboolean
sim_blocks_give_back_short (SimBlocks *self, guint32 block)
{
  if (block == NONE || !sim_blocks_is_short (self, block))
    return FALSE;
  end_row (self, is_whole (block) ? self->queues[block - SIM_BLOCKS_WHOLE].pool
                                  : block_at (self, block)->pool);
  sim_blocks_give_back (self, block);
  return TRUE;
}

/* What comes back is behind all others of its size: where it was if there are none. Segments in one
 * piece are all the same. */
gboolean
sim_blocks_passes (SimBlocks *self, guint64 bytes, guint pool, SimBlocksHint *hint)
{
  end_row (self, pool);
  if (hint->version != self->version[pool])
    sim_blocks_find_hint (self, bytes, pool, hint);
  const SimSizes *sizes = &self->sizes[pool];
  const guint rank = find_used (sizes, hint->rank);
  if (rank == sizes->n || is_long (sizes->sizes[rank]))
    return FALSE;
  const SimQueue *queue = &self->queues[sizes->numbers[rank]];
  return queue->first == NONE
         || (queue->first == queue->last && queue->n_whole == 0
             && !block_at (self, queue->first)->is_long);
}

void
sim_blocks_count (SimBlocks *self, guint32 number, gint64 more)
{
  SimQueue *queue = &self->queues[number];
  queue->n_whole = (guint32)(queue->n_whole + more);
  sim_blocks_set_used (self, queue, queue->n_whole > 0 || queue->first != NONE);
}
