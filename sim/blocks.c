/* SPDX-License-Identifier: Apache-2.0 */
/* Most segments of large blocks are never split. In one piece, those of one size are all the same:
 * they are counted, in use as well as free, and only parts of segments are blocks one by one. */
#include "config.h"

#include "sim/blocks.h"

#include "planner/units.h"
#include "sim/blocks-private.h"
#include "sim/memory.h"

#define WORD 64
#define MAX_SIZES 1024 /* kept from run to run */

static inline guint
n_words (guint n_bits)
{
  return (n_bits + WORD - 1) / WORD;
}

/* Empty queues change no decision: sizes that were met once are likely to be met again. */
static void
queues_begin (SimQueues *self)
{
  self->n = self->n <= MAX_SIZES ? self->n : 0;
  for (guint i = 0; i < self->n; i++)
    {
      self->queues[i].first = self->queues[i].last = NONE;
      self->queues[i].n_whole = 0;
    }
  for (guint i = 0; i < n_words (self->n); i++)
    self->is_used[i] = 0;
  self->version++;
  for (guint i = 0; self->n == 0 && i < SIM_BLOCKS_RECENT; i++)
    self->recent_sizes[i] = 0; /* no block is empty */
}

void
sim_blocks_begin (SimBlocks *self, guint64 granule, gboolean expands)
{
  if (!self->roles)
    {
      self->roles = g_array_new (FALSE, FALSE, sizeof (guint32));
      self->next = g_array_new (FALSE, FALSE, sizeof (guint32));
      self->cycle = g_array_new (FALSE, FALSE, sizeof (guint32));
    }
  self->granule = granule;
  self->expands = expands;
  for (guint i = 0; i < SIM_MEMORY_POOLS; i++)
    self->last[i] = NONE;
  self->reserved = 0;
  self->n_blocks = self->n_unused = 0;
  for (guint i = 0; i < SIM_MEMORY_POOLS; i++)
    queues_begin (&self->queues[i]);
}

void
sim_blocks_clear (SimBlocks *self)
{
  g_clear_pointer (&self->blocks, g_free);
  g_clear_pointer (&self->notes, g_free);
  g_clear_pointer (&self->unused, g_free);
  g_clear_pointer (&self->roles, g_array_unref);
  g_clear_pointer (&self->next, g_array_unref);
  g_clear_pointer (&self->cycle, g_array_unref);
  for (guint i = 0; i < SIM_MEMORY_POOLS; i++)
    {
      g_clear_pointer (&self->queues[i].sizes, g_free);
      g_clear_pointer (&self->queues[i].numbers, g_free);
      g_clear_pointer (&self->queues[i].is_used, g_free);
      g_clear_pointer (&self->queues[i].queues, g_free);
    }
}

/* The first size of at least that many bytes. */
static guint
rank_of (const SimQueues *self, guint64 bytes)
{
  guint low = 0, high = self->n;
  while (low < high)
    {
      const guint middle = (low + high) / 2;
      if (self->sizes[middle] < bytes)
        low = middle + 1;
      else
        high = middle;
    }
  return low;
}

static inline void
set_used (SimQueues *self, guint rank, gboolean is_used)
{
  const guint64 bit = G_GUINT64_CONSTANT (1) << rank % WORD;
  if (is_used)
    self->is_used[rank / WORD] |= bit;
  else
    self->is_used[rank / WORD] &= ~bit;
}

/* Makes room for one bit; the last word has room for it. */
static void
insert_bit (SimQueues *self, guint rank)
{
  const guint64 below = (G_GUINT64_CONSTANT (1) << rank % WORD) - 1;
  for (guint i = n_words (self->n) - 1; i > rank / WORD; i--)
    self->is_used[i] = self->is_used[i] << 1 | self->is_used[i - 1] >> (WORD - 1);
  guint64 *word = &self->is_used[rank / WORD];
  *word = (*word & below) | (*word & ~below) << 1;
}

static void
make_room (SimQueues *self)
{
  self->room = 2 * self->room + WORD;
  self->sizes = g_renew (guint64, self->sizes, self->room);
  self->numbers = g_renew (guint32, self->numbers, self->room);
  self->is_used = g_renew (guint64, self->is_used, n_words (self->room));
  self->queues = g_renew (SimQueue, self->queues, self->room);
}

/* A size that was never free before: happens a few times per run. */
static guint32
add_queue (SimQueues *self, guint rank, guint64 bytes)
{
  const guint32 number = self->n++;
  if (self->n > self->room)
    make_room (self);
  if (number % WORD == 0)
    self->is_used[number / WORD] = 0;
  insert_bit (self, rank);
  for (guint i = number; i > rank; i--)
    {
      self->sizes[i] = self->sizes[i - 1];
      self->numbers[i] = self->numbers[i - 1];
      queue_at_rank (self, i)->rank = i;
    }
  self->sizes[rank] = bytes;
  self->numbers[rank] = number;
  self->queues[number] = (SimQueue){ .bytes = bytes, .first = NONE, .last = NONE, .rank = rank };
  self->version++;
  return number;
}

static guint32
find_queue (SimQueues *self, guint64 bytes)
{
  const guint rank = rank_of (self, bytes);
  return rank < self->n && self->sizes[rank] == bytes ? self->numbers[rank]
                                                      : add_queue (self, rank, bytes);
}

/* Bisection guesses wrong at every other turn; the same few sizes come again and again. */
static guint32
queue_of (SimQueues *self, guint64 bytes)
{
  const guint slot
      = (guint)((bytes * G_GUINT64_CONSTANT (0x9e3779b97f4a7c15)) >> (64 - SIM_BLOCKS_RECENT_BITS));
  if (self->recent_sizes[slot] != bytes)
    {
      self->recent_queues[slot] = find_queue (self, bytes);
      self->recent_sizes[slot] = bytes;
    }
  return self->recent_queues[slot];
}

/* The smallest size from that rank on of which something is free; the number of sizes if none is.
 */
static guint
find_used (const SimQueues *self, guint rank)
{
  if (rank >= self->n)
    return self->n;
  guint word = rank / WORD;
  guint64 bits = self->is_used[word] & (~G_GUINT64_CONSTANT (0) << rank % WORD);
  while (bits == 0)
    {
      if (++word * WORD >= self->n)
        return self->n;
      bits = self->is_used[word];
    }
  return word * WORD + (guint)__builtin_ctzll (bits);
}

/* Room is kept beyond what is used: arrays that were once long enough stay so. */
static guint32
block_new (SimBlocks *self, const SimBlock *block)
{
  guint32 index = self->n_blocks;
  if (self->n_unused > 0)
    index = self->unused[--self->n_unused];
  else if (self->n_blocks++ == self->room)
    {
      self->room = 2 * self->n_blocks + WORD;
      self->blocks = g_renew (SimBlock, self->blocks, self->room);
      self->notes = g_renew (SimNote, self->notes, self->room);
      self->unused = g_renew (guint32, self->unused, self->room);
      /* A later block's note may be of one that is gone, but never of a description to come. */
      for (guint32 i = index; i < self->room; i++)
        *note_at (self, i) = (SimNote){ 0 };
    }
  *block_at (self, index) = *block;
  return index;
}

static void
block_forget (SimBlocks *self, guint32 block)
{
  self->unused[self->n_unused++] = block;
}

static void
append (SimBlocks *self, SimQueue *queue, guint32 block)
{
  SimBlock *b = block_at (self, block);
  b->is_free = TRUE;
  b->ahead = queue->last;
  b->behind = NONE;
  if (queue->last != NONE)
    block_at (self, queue->last)->behind = block;
  else
    queue->first = block;
  queue->last = block;
}

static inline void
list_whole (SimQueues *queues, guint32 number)
{
  SimQueue *queue = &queues->queues[number];
  if (queue->n_whole++ == 0 && queue->first == NONE)
    set_used (queues, queue->rank, TRUE);
}

/* The segments that came free before what follows are to stay before it. */
static void
close_run (SimBlocks *self, SimQueue *queue)
{
  const guint32 run = block_new (self, &(SimBlock){ .is_run = TRUE });
  note_at (self, run)->n_whole = queue->n_whole;
  queue->n_whole = 0;
  append (self, queue, run);
}

static void
list_free (SimBlocks *self, guint32 block)
{
  SimBlock *b = block_at (self, block);
  SimQueues *queues = &self->queues[b->pool];
  if (b->queue == NONE)
    b->queue = queue_of (queues, b->bytes);
  if (b->before == NONE && b->after == NONE && !self->expands)
    {
      list_whole (queues, b->queue);
      block_forget (self, block);
      return;
    }
  SimQueue *queue = &queues->queues[b->queue];
  if (queue->n_whole > 0)
    close_run (self, queue);
  else if (queue->first == NONE)
    set_used (queues, queue->rank, TRUE);
  append (self, queue, block);
}

static void
unlist (SimBlocks *self, SimQueues *queues, SimQueue *queue, guint32 block)
{
  SimBlock *b = block_at (self, block);
  b->is_free = FALSE;
  if (b->ahead != NONE)
    block_at (self, b->ahead)->behind = b->behind;
  else
    queue->first = b->behind;
  if (b->behind != NONE)
    block_at (self, b->behind)->ahead = b->ahead;
  else
    queue->last = b->ahead;
  if (queue->first == NONE && queue->n_whole == 0)
    set_used (queues, queue->rank, FALSE);
}

static void
unlist_free (SimBlocks *self, guint32 block)
{
  const SimBlock *b = block_at (self, block);
  SimQueues *queues = &self->queues[b->pool];
  unlist (self, queues, &queues->queues[b->queue], block);
}

static inline guint32
pop_whole (SimQueues *queues, guint pool, guint32 number)
{
  SimQueue *queue = &queues->queues[number];
  if (--queue->n_whole == 0)
    set_used (queues, queue->rank, FALSE);
  return whole_of (pool, number);
}

/* The oldest of a queue that is not empty. */
static guint32
pop (SimBlocks *self, guint pool, guint32 number)
{
  SimQueues *queues = &self->queues[pool];
  SimQueue *queue = &queues->queues[number];
  const guint32 first = queue->first;
  if (first == NONE)
    return pop_whole (queues, pool, number);
  if (!block_at (self, first)->is_run)
    {
      unlist (self, queues, queue, first);
      return first;
    }
  if (--note_at (self, first)->n_whole == 0)
    {
      unlist (self, queues, queue, first);
      block_forget (self, first);
    }
  return whole_of (pool, number);
}

/* Whether what is left of a free block remains one. */
static inline gboolean
is_kept (const SimBlocks *self, guint pool, guint64 rest)
{
  return sim_memory_pool_is_small (pool) || self->expands ? rest >= self->granule
                                                          : rest > SIM_MEMORY_SMALL;
}

static void
split (SimBlocks *self, guint32 block, guint64 bytes)
{
  SimBlock *whole = block_at (self, block);
  const guint64 rest = whole->bytes - bytes;
  if (!is_kept (self, whole->pool, rest))
    return;
  const SimBlock tail = {
    .bytes = rest, .pool = whole->pool, .before = block, .after = whole->after, .queue = NONE
  };
  const guint32 index = block_new (self, &tail);
  whole = block_at (self, block);
  whole->bytes = bytes;
  whole->queue = NONE;
  if (whole->after != NONE)
    block_at (self, whole->after)->before = index;
  else
    self->last[whole->pool] = index;
  whole->after = index;
  list_free (self, index);
}

/* What was asked for, of a whole segment: all of it, or a part. */
static guint32
cut (SimBlocks *self, guint32 whole, guint64 segment_bytes, guint64 bytes)
{
  const guint pool = pool_of_whole (whole);
  if (!is_kept (self, pool, segment_bytes - bytes))
    return whole;
  const SimBlock fresh = { .bytes = segment_bytes,
                           .pool = (guint8)pool,
                           .before = NONE,
                           .after = NONE,
                           .queue = queue_of_whole (whole) };
  const guint32 block = block_new (self, &fresh);
  split (self, block, bytes);
  return block;
}

/* The segment's end, made large enough. */
static guint32
grow (SimBlocks *self, guint64 bytes, guint pool)
{
  const gboolean is_small = sim_memory_pool_is_small (pool);
  const guint32 last = self->last[pool];
  if (last != NONE && block_at (self, last)->is_free)
    {
      const guint64 missing = bytes - block_at (self, last)->bytes;
      const guint64 growth = sim_memory_growth_bytes (missing, is_small);
      unlist_free (self, last);
      block_at (self, last)->bytes += growth;
      block_at (self, last)->queue = NONE;
      self->reserved += growth;
      return last;
    }
  const SimBlock fresh = { .bytes = sim_memory_growth_bytes (bytes, is_small),
                           .pool = (guint8)pool,
                           .before = last,
                           .after = NONE,
                           .queue = NONE };
  const guint32 block = block_new (self, &fresh);
  if (last != NONE)
    block_at (self, last)->after = block;
  self->last[pool] = block;
  self->reserved += fresh.bytes;
  return block;
}

/* Whether the smallest block that is large enough is the one that is looked at first, and all of it
 * is needed. */
static G_GNUC_NO_INLINE SimBlocksHint
hint_of (const SimBlocks *self, guint64 bytes, guint pool)
{
  const SimQueues *queues = &self->queues[pool];
  SimBlocksHint hint = { .version = queues->version, .pool = pool, .queue = NONE };
  hint.rank = rank_of (queues, bytes);
  if (hint.rank < queues->n && !is_kept (self, pool, queues->sizes[hint.rank] - bytes))
    hint.queue = queues->numbers[hint.rank];
  return hint;
}

/* A part of a segment, or a segment that has yet to be cut or made. */
static G_GNUC_NO_INLINE guint32
take_part (SimBlocks *self, guint64 bytes, guint pool, guint least_rank)
{
  SimQueues *queues = &self->queues[pool];
  const guint rank = find_used (queues, least_rank);
  guint32 block;
  if (rank < queues->n)
    {
      block = pop (self, pool, queues->numbers[rank]);
      if (is_whole (block))
        return cut (self, block, queues->sizes[rank], bytes);
    }
  else if (self->expands)
    block = grow (self, bytes, pool);
  else
    {
      const guint64 segment = sim_memory_segment_bytes (bytes);
      self->reserved += segment;
      return cut (self, whole_of (pool, queue_of (queues, segment)), segment, bytes);
    }
  split (self, block, bytes);
  return block;
}

guint32
sim_blocks_take (SimBlocks *self, guint64 bytes, guint pool, SimBlocksHint *hint)
{
  SimQueues *queues = &self->queues[pool];
  if (G_UNLIKELY (hint->version != queues->version || hint->pool != pool))
    *hint = hint_of (self, bytes, pool);
  if (hint->queue != NONE && queues->queues[hint->queue].first == NONE
      && queues->queues[hint->queue].n_whole > 0)
    return pop_whole (queues, pool, hint->queue);
  return take_part (self, bytes, pool, hint->rank);
}

static void
absorb_right (SimBlocks *self, guint32 block)
{
  SimBlock *b = block_at (self, block);
  const guint32 right = b->after;
  const SimBlock *gone = block_at (self, right);
  b->bytes += gone->bytes;
  b->queue = NONE;
  b->after = gone->after;
  if (gone->after != NONE)
    block_at (self, gone->after)->before = block;
  else
    self->last[gone->pool] = block;
  block_forget (self, right);
}

static G_GNUC_NO_INLINE void
give_back_part (SimBlocks *self, guint32 block)
{
  const guint32 left = block_at (self, block)->before, right = block_at (self, block)->after;
  if (right != NONE && block_at (self, right)->is_free)
    {
      unlist_free (self, right);
      absorb_right (self, block);
    }
  if (left != NONE && block_at (self, left)->is_free)
    {
      unlist_free (self, left);
      absorb_right (self, left);
      block = left;
    }
  list_free (self, block);
}

void
sim_blocks_give_back (SimBlocks *self, guint32 block)
{
  if (is_whole (block))
    list_whole (&self->queues[pool_of_whole (block)], queue_of_whole (block));
  else
    give_back_part (self, block);
}
