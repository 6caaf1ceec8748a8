/* SPDX-License-Identifier: Apache-2.0 */
/* Most segments of large blocks are never split. Whole segments of one size are interchangeable, so
 * they are only counted, free and in use; blocks are kept for the parts of split segments. */
#include "config.h"

#include "sim/fast/blocks.h"

#include "planner/base/units.h"
#include "sim/fast/blocks-private.h"
#include "sim/memory.h"

#include <string.h>

#define WORD SIM_BLOCKS_WORD
#define MAX_SIZES 512 /* sizes kept from run to run */
#define MOST_TAKEN 2  /* most new blocks that one request needs */

/* SELDOM code is kept out of the way of OFTEN code. */
#define SELDOM __attribute__ ((noinline))
#define OFTEN static inline __attribute__ ((always_inline))

#define RECENT_BITS 12
#define N_RECENT (1 << RECENT_BITS)

/* A size that was looked up before. */
struct _SimRecent
{
  guint64 key; /* pool and bytes; 0: none */
  guint32 queue;
};

static inline guint
n_words (guint n_bits)
{
  return (n_bits + WORD - 1) / WORD;
}

static void
forget_sizes (SimBlocks *self)
{
  self->n_queues = 0;
  for (guint pool = 0; pool < SIM_MEMORY_POOLS; pool++)
    self->sizes[pool].n = 0;
  memset (self->recent, 0, N_RECENT * sizeof *self->recent);
}

/* Adds a queue and returns its number. */
static guint32
queue_new (SimBlocks *self, const SimQueue *queue)
{
  if (self->n_queues == self->queues_room)
    {
      self->queues_room = 2 * self->queues_room + WORD;
      self->queues = g_renew (SimQueue, self->queues, self->queues_room);
    }
  self->queues[self->n_queues] = *queue;
  return self->n_queues++;
}

static void
set_end (SimSizes *self)
{
  self->used_bits[self->n / WORD] |= G_GUINT64_CONSTANT (1) << self->n % WORD;
}

/* Inserts one bit below the end; the last word has room for it. */
static void
insert_bit (SimSizes *self, guint rank)
{
  const guint64 below = (G_GUINT64_CONSTANT (1) << rank % WORD) - 1;
  for (guint i = self->n / WORD; i > rank / WORD; i--)
    self->used_bits[i] = self->used_bits[i] << 1 | self->used_bits[i - 1] >> (WORD - 1);
  guint64 *word = &self->used_bits[rank / WORD];
  *word = (*word & below) | (*word & ~below) << 1;
}

/* Doubles the room of every pool, so that pool and rank give the index of a bit. */
static void
make_room (SimBlocks *self)
{
  const guint before = self->sizes_room;
  self->sizes_room = 2 * before + WORD;
  self->used_bits
      = g_renew (guint64, self->used_bits, SIM_MEMORY_POOLS * n_words (self->sizes_room));
  for (guint pool = SIM_MEMORY_POOLS; pool-- > 0;)
    {
      SimSizes *sizes = &self->sizes[pool];
      sizes->sizes = g_renew (guint64, sizes->sizes, self->sizes_room);
      sizes->numbers = g_renew (guint32, sizes->numbers, self->sizes_room);
      sizes->used_bits = &self->used_bits[pool * n_words (self->sizes_room)];
      memmove (sizes->used_bits, &self->used_bits[pool * n_words (before)], before / 8);
      memset (sizes->used_bits + n_words (before), 0, (self->sizes_room - before) / 8);
      for (guint i = 0; i < sizes->n; i++)
        self->queues[sizes->numbers[i]].bit = pool * self->sizes_room + i;
    }
}

/* Empties all queues. They are kept, since empty queues change no decision and sizes that were met
 * once are likely to come again. */
static void
queues_begin (SimBlocks *self)
{
  if (self->n_queues > MAX_SIZES)
    forget_sizes (self);
  for (guint32 i = 0; i < self->n_queues; i++)
    {
      self->queues[i].first = self->queues[i].last = NONE;
      self->queues[i].n_whole = 0;
    }
  if (self->n_queues == 0)
    queue_new (self, &(SimQueue){ .first = NONE, .last = NONE });
  if (self->sizes_room == 0)
    make_room (self);
  memset (self->used_bits, 0, SIM_MEMORY_POOLS * self->sizes_room / 8);
  for (guint pool = 0; pool < SIM_MEMORY_POOLS; pool++)
    {
      set_end (&self->sizes[pool]);
      self->version[pool]++;
    }
}

void
sim_blocks_begin (SimBlocks *self, guint64 granule, gboolean expands)
{
  if (!self->roles)
    {
      self->roles = g_array_new (FALSE, FALSE, sizeof (guint32));
      self->next = g_array_new (FALSE, FALSE, sizeof (guint32));
      self->cycle = g_array_new (FALSE, FALSE, sizeof (guint32));
      self->recent = g_new0 (SimRecent, N_RECENT);
    }
  self->expands = expands;
  for (guint i = 0; i < SIM_MEMORY_POOLS; i++)
    {
      self->least_rest[i]
          = sim_memory_pool_is_small (i) || expands ? granule : (guint64)SIM_MEMORY_SMALL + 1;
      self->last[i] = NONE;
    }
  self->reserved = 0;
  self->n_blocks = self->n_unused = 0;
  queues_begin (self);
}

void
sim_blocks_clear (SimBlocks *self)
{
  if (self->blocks)
    g_free (block_at (self, NONE));
  self->blocks = NULL;
  g_clear_pointer (&self->notes, g_free);
  g_clear_pointer (&self->unused, g_free);
  g_clear_pointer (&self->queues, g_free);
  g_clear_pointer (&self->roles, g_array_unref);
  g_clear_pointer (&self->next, g_array_unref);
  g_clear_pointer (&self->cycle, g_array_unref);
  for (guint i = 0; i < SIM_MEMORY_POOLS; i++)
    {
      g_clear_pointer (&self->sizes[i].sizes, g_free);
      g_clear_pointer (&self->sizes[i].numbers, g_free);
    }
  g_clear_pointer (&self->used_bits, g_free);
  g_clear_pointer (&self->recent, g_free);
}

/* Adds a queue for a size that was never free before, which happens a few times per run. */
static guint32
add_queue (SimBlocks *self, guint pool, guint rank, guint64 bytes)
{
  SimSizes *sizes = &self->sizes[pool];
  if (sizes->n + 1 == self->sizes_room) /* the end takes one, too */
    make_room (self);
  const guint last = sizes->n++, first_bit = pool * self->sizes_room;
  insert_bit (sizes, rank);
  for (guint i = last; i > rank; i--)
    {
      sizes->sizes[i] = sizes->sizes[i - 1];
      sizes->numbers[i] = sizes->numbers[i - 1];
      self->queues[sizes->numbers[i]].bit = first_bit + i;
    }
  sizes->sizes[rank] = bytes;
  self->version[pool]++;
  return sizes->numbers[rank] = queue_new (self, &(SimQueue){ .bytes = bytes,
                                                              .first = NONE,
                                                              .last = NONE,
                                                              .bit = first_bit + rank,
                                                              .pool = pool });
}

static inline guint64
key_of (guint pool, guint64 bytes)
{
  return bytes * 8 + pool;
}

/* The hash slot of a size. Few sizes come again and again, and a bisection mispredicts every other
 * branch. */
static inline SimRecent *
recent_of (SimBlocks *self, guint64 key)
{
  return &self->recent[(key * G_GUINT64_CONSTANT (0x9e3779b97f4a7c15)) >> (64 - RECENT_BITS)];
}

static SELDOM guint32
find_queue (SimBlocks *self, guint pool, guint64 bytes)
{
  const SimSizes *sizes = &self->sizes[pool];
  const guint64 key = key_of (pool, bytes);
  const guint rank = rank_of (sizes, bytes);
  const guint32 queue = rank < sizes->n && sizes->sizes[rank] == bytes
                            ? sizes->numbers[rank]
                            : add_queue (self, pool, rank, bytes);
  *recent_of (self, key) = (SimRecent){ key, queue };
  return queue;
}

static inline guint32
queue_of (SimBlocks *self, guint pool, guint64 bytes)
{
  const guint64 key = key_of (pool, bytes);
  const SimRecent *recent = recent_of (self, key);
  return G_LIKELY (recent->key == key) ? recent->queue : find_queue (self, pool, bytes);
}

/* Makes room for blocks, and never less: arrays that were once long enough stay so. */
static SELDOM void
make_room_for_blocks (SimBlocks *self)
{
  const guint32 before = self->room;
  self->room = 2 * self->n_blocks + WORD;
  self->blocks
      = g_renew (SimBlock, self->blocks ? block_at (self, NONE) : NULL, self->room + 1) + 1;
  if (before == 0)
    *block_at (self, NONE) = (SimBlock){ .bytes = 0 };
  self->notes = g_renew (SimNote, self->notes, self->room);
  self->unused = g_renew (guint32, self->unused, self->room);
  /* notes start at 0 only here: a block that reuses a number finds an outdated description in it */
  for (guint32 i = before; i < self->room; i++)
    *note_at (self, i) = (SimNote){ 0 };
}

/* Returns an unused number for a block; there must be room for the block. */
static inline guint32
new_number (SimBlocks *self)
{
  return G_LIKELY (self->n_unused > 0) ? self->unused[--self->n_unused] : self->n_blocks++;
}

static guint32
new_block (SimBlocks *self, const SimBlock *block)
{
  if (self->n_blocks == self->room)
    make_room_for_blocks (self);
  const guint32 index = new_number (self);
  *block_at (self, index) = *block;
  return index;
}

static inline void
block_forget (SimBlocks *self, guint32 block)
{
  self->unused[self->n_unused++] = block;
}

/* Selects without a branch, which would be mispredicted: neighbours are as good as random. */
static inline guint32
choose (gboolean is_first, guint32 first, guint32 second)
{
  return second ^ ((first ^ second) & -(guint32)is_first);
}

OFTEN void
append (SimBlocks *self, SimQueue *queue, guint32 block)
{
  SimBlock *b = block_at (self, block);
  b->is_free = TRUE;
  b->ahead = queue->last;
  b->behind = NONE;
  block_at (self, queue->last)->behind = block;
  queue->first = choose (queue->first == NONE, block, queue->first);
  queue->last = block;
}

/* Closes the count of whole segments that were freed, so that they stay ahead, in the queue, of
 * blocks freed later. */
static SELDOM void
close_run (SimBlocks *self, SimQueue *queue)
{
  const guint32 run = new_block (self, &(SimBlock){ .is_run = TRUE });
  note_at (self, run)->n_whole = queue->n_whole;
  queue->n_whole = 0;
  append (self, queue, run);
}

static inline gboolean
is_whole_segment (const SimBlocks *self, const SimBlock *b)
{
  return (b->before & b->after) == NONE && !self->expands;
}

static void list_block (SimBlocks *self, guint32 block);

/* Does what list_block seldom has to do first. */
static SELDOM void
list_slowly (SimBlocks *self, guint32 block)
{
  const SimBlock *b = block_at (self, block);
  const guint32 number = queue_of (self, b->pool, b->bytes);
  SimQueue *queue = &self->queues[number];
  if (!is_whole_segment (self, b) && queue->n_whole > 0)
    close_run (self, queue);
  list_block (self, block);
}

/* Puts a block that is not a whole segment into its queue. */
OFTEN void
list_part (SimBlocks *self, guint32 block, guint64 bytes, guint pool)
{
  const guint64 key = key_of (pool, bytes);
  const SimRecent *recent = recent_of (self, key);
  SimQueue *queue = &self->queues[recent->queue];
  if (G_UNLIKELY (recent->key != key || queue->n_whole > 0))
    {
      list_slowly (self, block);
      return;
    }
  SimBlock *b = block_at (self, block);
  b->queue = recent->queue;
  sim_blocks_set_used (self, queue, TRUE);
  append (self, queue, block);
}

/* Puts a free block into its queue. */
static void
list_block (SimBlocks *self, guint32 block)
{
  const SimBlock *b = block_at (self, block);
  if (!is_whole_segment (self, b))
    {
      list_part (self, block, b->bytes, b->pool);
      return;
    }
  const guint64 key = key_of (b->pool, b->bytes);
  const SimRecent *recent = recent_of (self, key);
  if (G_UNLIKELY (recent->key != key))
    {
      list_slowly (self, block);
      return;
    }
  block_forget (self, block);
  sim_blocks_give_back (self, SIM_BLOCKS_WHOLE | recent->queue);
}

OFTEN void
unlist (SimBlocks *self, SimQueue *queue, guint32 block)
{
  SimBlock *b = block_at (self, block);
  const guint32 ahead = b->ahead, behind = b->behind;
  b->is_free = FALSE;
  block_at (self, ahead)->behind = behind;
  block_at (self, behind)->ahead = ahead;
  queue->first = choose (ahead == NONE, behind, queue->first);
  queue->last = choose (behind == NONE, ahead, queue->last);
  sim_blocks_set_used (self, queue, (queue->first != NONE) | (queue->n_whole > 0));
}

static void
unlist_block (SimBlocks *self, guint32 block)
{
  unlist (self, &self->queues[block_at (self, block)->queue], block);
}

/* Takes the oldest block of a queue that is not empty. */
OFTEN guint32
pop (SimBlocks *self, guint32 number)
{
  SimQueue *queue = &self->queues[number];
  const guint32 first = queue->first;
  if (first == NONE)
    {
      if (--queue->n_whole == 0)
        sim_blocks_set_used (self, queue, FALSE);
      return SIM_BLOCKS_WHOLE | number;
    }
  if (G_LIKELY (!block_at (self, first)->is_run))
    {
      unlist (self, queue, first);
      return first;
    }
  if (--note_at (self, first)->n_whole == 0)
    {
      unlist (self, queue, first);
      block_forget (self, first);
    }
  return SIM_BLOCKS_WHOLE | number;
}

/* Splits a block; there must be room for another one. */
OFTEN void
split (SimBlocks *self, guint32 block, guint64 bytes)
{
  SimBlock *whole = block_at (self, block);
  const guint64 rest = whole->bytes - bytes;
  const guint pool = whole->pool;
  if (!is_kept (self, pool, rest))
    return;
  const guint32 index = new_number (self);
  SimBlock *tail = block_at (self, index);
  tail->bytes = rest;
  tail->before = block;
  tail->after = whole->after;
  tail->pool = (guint8)pool;
  tail->walls = 0;
  tail->is_run = FALSE;
  block_at (self, whole->after)->before = index;
  if (self->expands && whole->after == NONE)
    self->last[pool] = index;
  whole->bytes = bytes;
  whole->after = index;
  list_part (self, index, rest, pool);
}

/* Takes what was asked for from a whole segment: all of it, or a part. There must be room for two
 * blocks. */
static guint32
cut (SimBlocks *self, guint32 whole, guint64 bytes)
{
  const guint32 number = whole - SIM_BLOCKS_WHOLE;
  const SimQueue *queue = &self->queues[number];
  if (!is_kept (self, queue->pool, queue->bytes - bytes))
    return whole;
  const guint32 index = new_number (self);
  SimBlock *fresh = block_at (self, index);
  fresh->bytes = queue->bytes;
  fresh->before = fresh->after = NONE;
  fresh->is_free = FALSE;
  fresh->pool = (guint8)queue->pool;
  fresh->walls = 0;
  fresh->is_run = FALSE;
  split (self, index, bytes);
  return index;
}

/* Makes the end of an expandable segment large enough. */
static guint32
grow (SimBlocks *self, guint64 bytes, guint pool)
{
  const gboolean is_small = sim_memory_pool_is_small (pool);
  const guint32 last = self->last[pool];
  if (last != NONE && block_at (self, last)->is_free)
    {
      const guint64 missing = bytes - block_at (self, last)->bytes;
      const guint64 growth = sim_memory_growth_bytes (missing, is_small);
      unlist_block (self, last);
      block_at (self, last)->bytes += growth;
      self->reserved += growth;
      return last;
    }
  const SimBlock fresh = { .bytes = sim_memory_growth_bytes (bytes, is_small),
                           .pool = (guint8)pool,
                           .before = last,
                           .after = NONE };
  const guint32 block = new_block (self, &fresh);
  if (last != NONE)
    block_at (self, last)->after = block;
  self->last[pool] = block;
  self->reserved += fresh.bytes;
  return block;
}

/* Finds what a request will meet: whether the smallest size that is large enough is used without a
 * split, and whether a new segment would be. */
static void
find_hint (SimBlocks *self, guint64 bytes, guint pool, SimBlocksHint *hint)
{
  const SimSizes *sizes = &self->sizes[pool];
  const guint64 segment = self->expands ? 0 : sim_memory_segment_bytes (bytes);
  *hint = (SimBlocksHint){ .segment = NONE, .segment_bytes = segment };
  if (segment > 0 && !is_kept (self, pool, segment - bytes))
    hint->segment = SIM_BLOCKS_WHOLE | queue_of (self, pool, segment);
  hint->rank = rank_of (sizes, bytes);
  if (hint->rank < sizes->n && !is_kept (self, pool, sizes->sizes[hint->rank] - bytes))
    hint->queue = sizes->numbers[hint->rank];
  hint->version = self->version[pool];
}

/* Serves a request for which no free block is large enough. */
static guint32
take_new (SimBlocks *self, guint64 bytes, guint pool, const SimBlocksHint *hint)
{
  if (self->n_blocks + MOST_TAKEN > self->room)
    make_room_for_blocks (self);
  if (self->expands)
    {
      const guint32 block = grow (self, bytes, pool);
      split (self, block, bytes);
      return block;
    }
  self->reserved += hint->segment_bytes;
  return hint->segment != NONE
             ? hint->segment
             : cut (self, SIM_BLOCKS_WHOLE | queue_of (self, pool, hint->segment_bytes), bytes);
}

/* Does what sim_blocks_take_part seldom has to do first. */
static SELDOM guint32
take_slowly (SimBlocks *self, guint64 bytes, guint pool, SimBlocksHint *hint)
{
  if (self->n_blocks + MOST_TAKEN > self->room)
    make_room_for_blocks (self);
  if (hint->version != self->version[pool])
    find_hint (self, bytes, pool, hint);
  return sim_blocks_take_part (self, bytes, pool, hint);
}

guint32
sim_blocks_take_part (SimBlocks *self, guint64 bytes, guint pool, SimBlocksHint *hint)
{
  if (G_UNLIKELY (hint->version != self->version[pool] || self->n_blocks + MOST_TAKEN > self->room))
    return take_slowly (self, bytes, pool, hint);
  if (self->queues[hint->queue].first != NONE)
    return pop (self, hint->queue);
  const SimSizes *sizes = &self->sizes[pool];
  const guint rank = find_used (sizes, hint->rank);
  if (rank == sizes->n)
    return take_new (self, bytes, pool, hint);
  const guint32 block = pop (self, sizes->numbers[rank]);
  if (is_whole (block))
    return cut (self, block, bytes);
  split (self, block, bytes);
  return block;
}

OFTEN void
absorb_right (SimBlocks *self, guint32 block)
{
  SimBlock *b = block_at (self, block);
  const guint32 right = b->after;
  const SimBlock *gone = block_at (self, right);
  b->bytes += gone->bytes;
  b->after = gone->after;
  block_at (self, gone->after)->before = block;
  if (self->expands && gone->after == NONE)
    self->last[gone->pool] = block;
  block_forget (self, right);
}

void
sim_blocks_give_back_part (SimBlocks *self, guint32 block)
{
  const guint32 left = block_at (self, block)->before, right = block_at (self, block)->after;
  if (block_at (self, right)->is_free)
    {
      unlist (self, &self->queues[block_at (self, right)->queue], right);
      absorb_right (self, block);
    }
  if (block_at (self, left)->is_free)
    {
      unlist (self, &self->queues[block_at (self, left)->queue], left);
      absorb_right (self, left);
      block = left;
    }
  list_block (self, block);
}
