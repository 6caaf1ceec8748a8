/* SPDX-License-Identifier: Apache-2.0 */
/* Most segments of large blocks are never split. In one piece, those of one size are all the same:
 * they are counted, in use as well as free, and only parts of segments are blocks one by one. */
#include "config.h"

#include "sim/blocks.h"

#include "planner/units.h"
#include "sim/memory.h"

#include <string.h>

#define NONE SIM_BLOCKS_NONE
#define WORD 64
#define MAX_SIZES 1024 /* kept from run to run */

typedef struct
{
  guint64 bytes;
  guint32 before, after; /* neighbours in the segment */
  guint32 ahead, behind; /* in its queue, while it is free */
  guint32 queue;         /* of its size, where that was looked up */
  guint8 is_free, pool;
  guint8 walls;  /* a bit per kind of wall that it is */
  guint8 is_run; /* it stands in a queue for whole segments */
} Block;

/* What is seldom asked about a block: half a line of cache holds the rest. */
typedef struct
{
  guint32 description, number; /* the latest description that named it, and how */
  guint32 n_whole;             /* segments of a run */
} Note;

/* A queue: its first and last block, and how many whole segments came free since. */
typedef struct
{
  guint32 first, last, n_whole;
} Ends;

/* A whole segment in use is known by its pool and its queue. */
#define WHOLE (1u << 31)
#define WHOLE_POOL 28

static inline gboolean
is_whole (guint32 block)
{
  return block >= WHOLE;
}

static inline guint32
whole_of (guint pool, guint32 queue)
{
  return WHOLE | pool << WHOLE_POOL | queue;
}

static inline guint
pool_of_whole (guint32 whole)
{
  return whole >> WHOLE_POOL & 7;
}

static inline guint32
queue_of_whole (guint32 whole)
{
  return whole & ((1u << WHOLE_POOL) - 1);
}

static inline Block *
block_at (const SimBlocks *self, guint32 block)
{
  return &((Block *)(gpointer)self->blocks->data)[block];
}

static inline Note *
note_at (const SimBlocks *self, guint32 block)
{
  return &((Note *)(gpointer)self->notes->data)[block];
}

static inline Ends *
ends_at (const SimQueues *self, guint32 queue)
{
  return &((Ends *)(gpointer)self->ends->data)[queue];
}

static inline guint32 *
rank_at (const SimQueues *self, guint32 queue)
{
  return &((guint32 *)(gpointer)self->ranks->data)[queue];
}

static inline guint64 *
word_at (const SimQueues *self, guint rank)
{
  return &((guint64 *)(gpointer)self->is_used->data)[rank / WORD];
}

/* Empty queues change no decision: sizes that were met once are likely to be met again. */
static void
queues_begin (SimQueues *self)
{
  const guint n = self->sizes->len <= MAX_SIZES ? self->sizes->len : 0;
  g_array_set_size (self->sizes, n);
  g_array_set_size (self->queues, n);
  g_array_set_size (self->ends, n);
  g_array_set_size (self->ranks, n);
  for (guint queue = 0; queue < n; queue++)
    *ends_at (self, queue) = (Ends){ NONE, NONE, 0 };
  g_array_set_size (self->is_used, 0);
  g_array_set_size (self->is_used, (n + WORD - 1) / WORD);
  self->version++;
  if (n == 0)
    memset (self->recent_sizes, 0, sizeof self->recent_sizes); /* no block is empty */
}

void
sim_blocks_begin (SimBlocks *self, guint64 granule, gboolean expands)
{
  if (!self->blocks)
    {
      self->blocks = g_array_new (FALSE, FALSE, sizeof (Block));
      self->unused = g_array_new (FALSE, FALSE, sizeof (guint32));
      self->notes = g_array_new (FALSE, FALSE, sizeof (Note));
      self->roles = g_array_new (FALSE, FALSE, sizeof (guint32));
      self->next = g_array_new (FALSE, FALSE, sizeof (guint32));
      self->cycle = g_array_new (FALSE, FALSE, sizeof (guint32));
      for (guint i = 0; i < SIM_MEMORY_POOLS; i++)
        self->queues[i] = (SimQueues){ .sizes = g_array_new (FALSE, FALSE, sizeof (guint64)),
                                       .queues = g_array_new (FALSE, FALSE, sizeof (guint32)),
                                       .ends = g_array_new (FALSE, FALSE, sizeof (Ends)),
                                       .ranks = g_array_new (FALSE, FALSE, sizeof (guint32)),
                                       .is_used = g_array_new (FALSE, TRUE, sizeof (guint64)) };
    }
  self->granule = granule;
  self->expands = expands;
  memset (self->last, 0xff, sizeof self->last); /* NONE */
  self->reserved = 0;
  self->n_blocks = self->n_unused = 0;
  for (guint i = 0; i < SIM_MEMORY_POOLS; i++)
    queues_begin (&self->queues[i]);
}

void
sim_blocks_clear (SimBlocks *self)
{
  g_clear_pointer (&self->blocks, g_array_unref);
  g_clear_pointer (&self->unused, g_array_unref);
  g_clear_pointer (&self->notes, g_array_unref);
  g_clear_pointer (&self->roles, g_array_unref);
  g_clear_pointer (&self->next, g_array_unref);
  g_clear_pointer (&self->cycle, g_array_unref);
  for (guint i = 0; i < SIM_MEMORY_POOLS; i++)
    {
      g_clear_pointer (&self->queues[i].sizes, g_array_unref);
      g_clear_pointer (&self->queues[i].queues, g_array_unref);
      g_clear_pointer (&self->queues[i].ends, g_array_unref);
      g_clear_pointer (&self->queues[i].ranks, g_array_unref);
      g_clear_pointer (&self->queues[i].is_used, g_array_unref);
    }
}

/* The first size of at least that many bytes. */
static guint
rank_of (const SimQueues *self, guint64 bytes)
{
  const guint64 *sizes = (const guint64 *)(gpointer)self->sizes->data;
  guint low = 0, high = self->sizes->len;
  while (low < high)
    {
      const guint middle = (low + high) / 2;
      if (sizes[middle] < bytes)
        low = middle + 1;
      else
        high = middle;
    }
  return low;
}

static void
set_used (SimQueues *self, guint rank, gboolean is_used)
{
  const guint64 bit = G_GUINT64_CONSTANT (1) << rank % WORD;
  if (is_used)
    *word_at (self, rank) |= bit;
  else
    *word_at (self, rank) &= ~bit;
}

/* Makes room for one bit; the last word has room for it. */
static void
insert_bit (SimQueues *self, guint rank)
{
  const guint64 below = (G_GUINT64_CONSTANT (1) << rank % WORD) - 1;
  guint64 *words = word_at (self, 0);
  for (guint i = self->is_used->len - 1; i > rank / WORD; i--)
    words[i] = words[i] << 1 | words[i - 1] >> (WORD - 1);
  guint64 *word = &words[rank / WORD];
  *word = (*word & below) | (*word & ~below) << 1;
}

/* A size that was never free before: happens a few times per run. */
static guint32
add_queue (SimQueues *self, guint rank, guint64 bytes)
{
  const guint32 queue = self->ends->len;
  const Ends empty = { NONE, NONE, 0 };
  g_array_insert_val (self->sizes, rank, bytes);
  g_array_insert_val (self->queues, rank, queue);
  g_array_append_val (self->ends, empty);
  g_array_append_val (self->ranks, rank);
  g_array_set_size (self->is_used, (self->sizes->len + WORD - 1) / WORD);
  insert_bit (self, rank);
  for (guint i = rank + 1; i < self->sizes->len; i++)
    *rank_at (self, g_array_index (self->queues, guint32, i)) = i;
  self->version++;
  return queue;
}

static guint32
find_queue (SimQueues *self, guint64 bytes)
{
  const guint rank = rank_of (self, bytes);
  if (rank < self->sizes->len && g_array_index (self->sizes, guint64, rank) == bytes)
    return g_array_index (self->queues, guint32, rank);
  return add_queue (self, rank, bytes);
}

/* Bisection guesses wrong at every other turn; the same few sizes come again and again. */
static guint32
queue_of (SimQueues *self, guint64 bytes)
{
  const guint slot = (guint)((bytes * G_GUINT64_CONSTANT (0x9e3779b97f4a7c15)) >> 54);
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
  const guint n = self->sizes->len;
  if (rank >= n)
    return n;
  guint word = rank / WORD;
  guint64 bits = *word_at (self, word * WORD) & (~G_GUINT64_CONSTANT (0) << rank % WORD);
  while (bits == 0)
    {
      if (++word * WORD >= n)
        return n;
      bits = *word_at (self, word * WORD);
    }
  return word * WORD + (guint)__builtin_ctzll (bits);
}

/* Room is kept beyond what is used: arrays that were once long enough stay so. */
static guint32
block_new (SimBlocks *self, const Block *block)
{
  guint32 index = self->n_blocks;
  if (self->n_unused > 0)
    index = g_array_index (self->unused, guint32, --self->n_unused);
  else if (self->n_blocks++ == self->blocks->len)
    {
      g_array_set_size (self->blocks, 2 * self->n_blocks + 64);
      g_array_set_size (self->unused, self->blocks->len);
      g_array_set_size (self->notes, self->blocks->len);
    }
  *block_at (self, index) = *block;
  *note_at (self, index) = (Note){ 0 };
  return index;
}

static void
append (SimBlocks *self, SimQueues *queues, guint32 queue, guint32 block)
{
  Ends *ends = ends_at (queues, queue);
  Block *b = block_at (self, block);
  b->is_free = TRUE;
  b->ahead = ends->last;
  b->behind = NONE;
  if (ends->last != NONE)
    block_at (self, ends->last)->behind = block;
  else
    ends->first = block;
  ends->last = block;
}

static void
list_whole (SimQueues *queues, guint32 queue)
{
  Ends *ends = ends_at (queues, queue);
  if (ends->n_whole++ == 0 && ends->first == NONE)
    set_used (queues, *rank_at (queues, queue), TRUE);
}

/* The segments that came free before what follows are to stay before it. */
static void
close_run (SimBlocks *self, SimQueues *queues, guint32 queue)
{
  Ends *ends = ends_at (queues, queue);
  const guint32 run = block_new (self, &(Block){ .is_run = TRUE });
  note_at (self, run)->n_whole = ends->n_whole;
  ends->n_whole = 0;
  append (self, queues, queue, run);
}

static void
list_free (SimBlocks *self, guint32 block)
{
  Block *b = block_at (self, block);
  SimQueues *queues = &self->queues[b->pool];
  if (b->queue == NONE)
    b->queue = queue_of (queues, b->bytes);
  const guint32 queue = b->queue;
  if (b->before == NONE && b->after == NONE && !self->expands)
    {
      g_array_index (self->unused, guint32, self->n_unused++) = block;
      list_whole (queues, queue);
      return;
    }
  if (ends_at (queues, queue)->n_whole > 0)
    close_run (self, queues, queue);
  else if (ends_at (queues, queue)->first == NONE)
    set_used (queues, *rank_at (queues, queue), TRUE);
  append (self, queues, queue, block);
}

static void
unlist (SimBlocks *self, SimQueues *queues, guint32 queue, guint32 block)
{
  Block *b = block_at (self, block);
  Ends *ends = ends_at (queues, queue);
  b->is_free = FALSE;
  if (b->ahead != NONE)
    block_at (self, b->ahead)->behind = b->behind;
  else
    ends->first = b->behind;
  if (b->behind != NONE)
    block_at (self, b->behind)->ahead = b->ahead;
  else
    ends->last = b->ahead;
  if (ends->first == NONE && ends->n_whole == 0)
    set_used (queues, *rank_at (queues, queue), FALSE);
}

static void
unlist_free (SimBlocks *self, guint32 block)
{
  const Block *b = block_at (self, block);
  unlist (self, &self->queues[b->pool], b->queue, block);
}

/* The oldest of a queue that is not empty. */
static guint32
pop (SimBlocks *self, guint pool, guint32 queue)
{
  SimQueues *queues = &self->queues[pool];
  Ends *ends = ends_at (queues, queue);
  const guint32 first = ends->first;
  if (first == NONE)
    {
      if (--ends->n_whole == 0)
        set_used (queues, *rank_at (queues, queue), FALSE);
      return whole_of (pool, queue);
    }
  if (!block_at (self, first)->is_run)
    {
      unlist (self, queues, queue, first);
      return first;
    }
  if (--note_at (self, first)->n_whole == 0)
    {
      unlist (self, queues, queue, first);
      g_array_index (self->unused, guint32, self->n_unused++) = first;
    }
  return whole_of (pool, queue);
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
  Block *whole = block_at (self, block);
  const guint64 rest = whole->bytes - bytes;
  if (!is_kept (self, whole->pool, rest))
    return;
  const Block tail = {
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
  const Block fresh = { .bytes = segment_bytes,
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
  const Block fresh = { .bytes = sim_memory_growth_bytes (bytes, is_small),
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

guint32
sim_blocks_take (SimBlocks *self, guint64 bytes, guint pool, SimBlocksHint *hint)
{
  SimQueues *queues = &self->queues[pool];
  if (hint->version != queues->version || hint->pool != pool)
    *hint = (SimBlocksHint){ queues->version, rank_of (queues, bytes), pool };
  const guint rank = find_used (queues, hint->rank);
  guint32 block;
  if (rank < queues->sizes->len)
    {
      block = pop (self, pool, g_array_index (queues->queues, guint32, rank));
      if (is_whole (block))
        return cut (self, block, g_array_index (queues->sizes, guint64, rank), bytes);
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

static void
absorb_right (SimBlocks *self, guint32 block)
{
  Block *b = block_at (self, block);
  const guint32 right = b->after;
  const Block *gone = block_at (self, right);
  b->bytes += gone->bytes;
  b->queue = NONE;
  b->after = gone->after;
  if (gone->after != NONE)
    block_at (self, gone->after)->before = block;
  else
    self->last[gone->pool] = block;
  g_array_index (self->unused, guint32, self->n_unused++) = right;
}

void
sim_blocks_give_back (SimBlocks *self, guint32 block)
{
  if (is_whole (block))
    {
      list_whole (&self->queues[pool_of_whole (block)], queue_of_whole (block));
      return;
    }
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
sim_blocks_set_wall (SimBlocks *self, guint32 block, guint kind, gboolean is_wall)
{
  if (is_whole (block)) /* nothing lies beside it */
    return;
  Block *b = block_at (self, block);
  b->walls = (guint8)(is_wall ? b->walls | 1 << kind : b->walls & ~(1 << kind));
}

static inline gboolean
is_end (const SimBlocks *self, guint32 block, guint kind)
{
  return block == NONE || (block_at (self, block)->walls >> kind & 1);
}

/* Segments without walls are all alike: whatever lies in one may as well stay there. */
static inline gboolean
is_anywhere (const SimPlace *place)
{
  return place->left == NONE && place->right == NONE;
}

static SimPlace
place_of (const SimBlocks *self, guint32 block, guint kind)
{
  SimPlace place = { .first = block, .last = block };
  while (!is_end (self, block_at (self, place.first)->before, kind))
    place.first = block_at (self, place.first)->before;
  while (!is_end (self, block_at (self, place.last)->after, kind))
    place.last = block_at (self, place.last)->after;
  place.left = block_at (self, place.first)->before;
  place.right = block_at (self, place.last)->after;
  return place;
}

/* Numbers blocks in the order in which they are met, with all between the walls around them.
 * Returns where the text goes on. */
static guint64 *
describe_block (SimBlocks *self, guint32 block, guint kind, guint64 *text, GArray *places)
{
  if (note_at (self, block)->description != self->description)
    {
      const SimPlace place = place_of (self, block, kind);
      for (guint32 i = place.first; i != place.right; i = block_at (self, i)->after)
        {
          const Block *b = block_at (self, i);
          /* Where a segment ends it may grow; one that is all there is may be whole again. */
          *text++ = b->bytes << 7 | (guint64)is_anywhere (&place) << 6
                    | (guint64)(self->expands && b->after == NONE) << 5 | (guint64)b->pool << 2
                    | b->is_free << 1 | (i == place.last);
          note_at (self, i)->description = self->description;
          note_at (self, i)->number = self->n_numbered++;
        }
      g_array_append_val (places, place);
    }
  *text++ = note_at (self, block)->number;
  return text;
}

#define END_OF_POOL G_MAXUINT64
#define RUN (G_MAXUINT64 - 1)

static guint64 *
describe_run (guint64 *text, guint64 bytes, guint64 *n_whole)
{
  if (*n_whole > 0)
    {
      *text++ = RUN;
      *text++ = bytes;
      *text++ = *n_whole;
    }
  *n_whole = 0;
  return text;
}

static guint64 *
describe_queue (SimBlocks *self, const SimQueues *queues, guint rank, guint kind, guint64 *text,
                GArray *places)
{
  const Ends *ends = ends_at (queues, g_array_index (queues->queues, guint32, rank));
  const guint64 bytes = g_array_index (queues->sizes, guint64, rank);
  guint64 n_whole = 0; /* of runs that follow one another */
  for (guint32 i = ends->first; i != NONE; i = block_at (self, i)->behind)
    if (block_at (self, i)->is_run)
      n_whole += note_at (self, i)->n_whole;
    else
      {
        text = describe_run (text, bytes, &n_whole);
        text = describe_block (self, i, kind, text, places);
      }
  n_whole += ends->n_whole;
  return describe_run (text, bytes, &n_whole);
}

void
sim_blocks_describe (SimBlocks *self, const guint32 *held, guint n_held, guint kind, GArray *out,
                     GArray *places)
{
  const guint begin = out->len;
  guint n_words = 2 * n_held; /* an owner and what it holds */
  for (guint pool = 0; pool < SIM_MEMORY_POOLS; pool++)
    n_words += 3 * self->queues[pool].sizes->len + 1; /* the latest run of each, and an end */
  /* A word per block, one where it is named and, for a run, one more. */
  g_array_set_size (out, begin + n_words + 3 * self->n_blocks);
  guint64 *text = &g_array_index (out, guint64, begin);
  self->description++;
  self->n_numbered = 0;
  g_array_set_size (places, 0);
  for (guint i = 0; i < n_held; i++)
    if (held[i] != NONE && is_whole (held[i]))
      {
        *text++ = i;
        *text++ = held[i];
      }
    else if (!is_end (self, held[i], kind))
      {
        *text++ = i;
        text = describe_block (self, held[i], kind, text, places);
      }
  for (guint pool = 0; pool < SIM_MEMORY_POOLS; pool++)
    {
      const SimQueues *queues = &self->queues[pool];
      *text++ = END_OF_POOL;
      for (guint rank = 0; rank < queues->sizes->len; rank++)
        text = describe_queue (self, queues, rank, kind, text, places);
    }
  g_array_set_size (out, (guint)(text - (guint64 *)(gpointer)out->data));
}

/* Where a place between walls is remembered: by the one to its left, or by the one to its right. */
static inline guint32 *
memory_of (const SimBlocks *self, const SimPlace *place)
{
  return &g_array_index (self->roles, guint32,
                         place->left != NONE ? place->left : self->n_blocks + place->right);
}

static void
move (SimBlocks *self, const SimPlace *what, const SimPlace *where)
{
  block_at (self, what->first)->before = where->left;
  block_at (self, what->last)->after = where->right;
  if (where->left != NONE)
    block_at (self, where->left)->after = what->first;
  if (where->right != NONE)
    block_at (self, where->right)->before = what->last;
  else
    self->last[block_at (self, what->last)->pool] = what->last;
}

/* What lay in place j before lay in place next[j] afterwards, so in next[next[j]] after the same
 * again. */
void
sim_blocks_repeat (SimBlocks *self, const GArray *before, const GArray *after, const GArray *now,
                   guint64 times)
{
  const guint n = now->len;
  const SimPlace *lay = (const SimPlace *)(gpointer)after->data;
  const SimPlace *places = (const SimPlace *)(gpointer)now->data;
  g_array_set_size (self->roles, 2 * self->n_blocks);
  g_array_set_size (self->cycle, 0);
  g_array_set_size (self->next, n);
  guint32 *next = (guint32 *)(gpointer)self->next->data;
  for (guint j = 0; j < n; j++)
    if (!is_anywhere (&lay[j]))
      *memory_of (self, &g_array_index (before, SimPlace, j)) = j;
  for (guint j = 0; j < n; j++)
    next[j] = is_anywhere (&lay[j]) ? NONE : *memory_of (self, &lay[j]);
  for (guint j = 0; j < n; j++)
    {
      g_array_set_size (self->cycle, 0);
      for (guint32 i = j; next[i] != NONE;)
        {
          const guint32 following = next[i];
          g_array_append_val (self->cycle, i);
          next[i] = NONE;
          i = following;
        }
      const guint length = self->cycle->len;
      for (guint i = 0; i < length; i++)
        move (self, &places[g_array_index (self->cycle, guint32, i)],
              &places[g_array_index (self->cycle, guint32, (i + times) % length)]);
    }
}
