/* SPDX-License-Identifier: Apache-2.0 */
/* Describes the state of an allocator in words, which tell apart only what decides about later
 * requests, and applies what led from one state to an equal one again. */
#include "config.h"

#include "sim/fast/blocks-private.h"

#include "sim/memory.h"

void
sim_blocks_set_wall (SimBlocks *self, guint32 block, guint kind, gboolean is_wall)
{
  if (is_whole (block)) /* nothing lies beside a whole segment */
    return;
  SimBlock *b = block_at (self, block);
  b->walls = (guint8)(is_wall ? b->walls | 1 << kind : b->walls & ~(1 << kind));
}

static inline gboolean
is_end (const SimBlocks *self, guint32 block, guint kind)
{
  return block == NONE || (block_at (self, block)->walls >> kind & 1);
}

/* Whether a place is all of a segment. Segments without walls are interchangeable, so the blocks in
 * such a place need not be moved. */
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

/* Numbers blocks in the order in which they are met, together with everything between the walls
 * around them. Returns where the description goes on. */
static guint64 *
describe_block (SimBlocks *self, guint32 block, guint kind, guint64 *words, GArray *places)
{
  if (note_at (self, block)->description != self->description)
    {
      const SimPlace place = place_of (self, block, kind);
      for (guint32 i = place.first; i != place.right; i = block_at (self, i)->after)
        {
          const SimBlock *b = block_at (self, i);
          /* the last block of a segment may grow; a block that fills its segment may become
           * whole */
          *words++ = b->bytes << 7 | (guint64)is_anywhere (&place) << 6
                     | (guint64)(self->expands && b->after == NONE) << 5 | (guint64)b->pool << 2
                     | b->is_free << 1 | (i == place.last);
          note_at (self, i)->description = self->description;
          note_at (self, i)->number = self->n_numbered++;
        }
      g_array_append_val (places, place);
    }
  *words++ = note_at (self, block)->number;
  return words;
}

#define END_OF_POOL G_MAXUINT64
#define RUN (G_MAXUINT64 - 1)

static guint64 *
describe_run (guint64 *words, guint64 bytes, guint64 *n_whole)
{
  if (*n_whole > 0)
    {
      *words++ = RUN;
      *words++ = bytes;
      *words++ = *n_whole;
    }
  *n_whole = 0;
  return words;
}

static guint64 *
describe_queue (SimBlocks *self, const SimQueue *queue, guint kind, guint64 *words, GArray *places)
{
  guint64 n_whole = 0; /* total of the runs that follow one another */
  for (guint32 i = queue->first; i != NONE; i = block_at (self, i)->behind)
    if (block_at (self, i)->is_run)
      n_whole += note_at (self, i)->n_whole;
    else
      {
        words = describe_run (words, queue->bytes, &n_whole);
        words = describe_block (self, i, kind, words, places);
      }
  n_whole += queue->n_whole;
  return describe_run (words, queue->bytes, &n_whole);
}

/* The first owner, from `i` on, that holds a block. Most hold none. */
static inline guint
next_held (const guint32 *held, guint i, guint n)
{
  while (i + 4 <= n && (held[i] & held[i + 1] & held[i + 2] & held[i + 3]) == NONE)
    i += 4;
  while (i < n && held[i] == NONE)
    i++;
  return i;
}

void
sim_blocks_describe (SimBlocks *self, const guint32 *held, guint n_held, guint kind, GArray *out,
                     GArray *places)
{
  const guint begin = out->len;
  guint n_words = 2 * n_held; /* an owner and its block */
  for (guint pool = 0; pool < SIM_MEMORY_POOLS; pool++)
    n_words += 3 * self->sizes[pool].n + 1; /* the latest run of each size, and an end */
  /* three words per block at most: its own and its number, or the three of a run */
  g_array_set_size (out, begin + n_words + 3 * self->n_blocks);
  guint64 *words = &g_array_index (out, guint64, begin);
  self->description++;
  self->n_numbered = 0;
  g_array_set_size (places, 0);
  for (guint i = next_held (held, 0, n_held); i < n_held; i = next_held (held, i + 1, n_held))
    if (is_whole (held[i]))
      {
        *words++ = i;
        *words++ = held[i];
      }
    else if (!is_end (self, held[i], kind))
      {
        *words++ = i;
        words = describe_block (self, held[i], kind, words, places);
      }
  for (guint pool = 0; pool < SIM_MEMORY_POOLS; pool++)
    {
      const SimSizes *sizes = &self->sizes[pool];
      *words++ = END_OF_POOL;
      for (guint rank = find_used (sizes, 0); rank < sizes->n; rank = find_used (sizes, rank + 1))
        words = describe_queue (self, &self->queues[sizes->numbers[rank]], kind, words, places);
    }
  g_array_set_size (out, (guint)(words - (guint64 *)(gpointer)out->data));
}

guint64
sim_blocks_fingerprint (const SimBlocks *self)
{
  const guint n_words = SIM_MEMORY_POOLS * self->sizes_room / SIM_BLOCKS_WORD;
  guint64 print = self->reserved + self->n_blocks - self->n_unused;
  for (guint i = 0; i < n_words; i++)
    print = (print ^ self->used_bits[i]) * G_GUINT64_CONSTANT (0x9e3779b97f4a7c15);
  return print;
}

/* The entry of `roles` that holds the index of a place: that of the wall to its left, or else of
 * the one to its right. */
static inline guint32 *
role_of (const SimBlocks *self, const SimPlace *place)
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

/* Repeats a change of state `times` times. What lay in place j before the change lay in place
 * next[j] after it, and will lie in next[next[j]] after the next one; so the blocks of each cycle
 * of `next` are moved on by `times`. */
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
      *role_of (self, &g_array_index (before, SimPlace, j)) = j;
  for (guint j = 0; j < n; j++)
    next[j] = is_anywhere (&lay[j]) ? NONE : *role_of (self, &lay[j]);
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
