/* Shared by sim/fast/blocks.c and the descriptions of its state (sim/fast/blocks-state.c). */
#pragma once
#include "sim/fast/blocks.h"
G_BEGIN_DECLS

#define NONE SIM_BLOCKS_NONE

struct _SimBlock
{
  guint64 bytes;
  guint32 before, after; /* neighbours in the segment */
  guint32 ahead, behind; /* neighbours in its queue, while it is free */
  guint32 queue;         /* number of its queue, while it is free */
  guint8 is_free, pool;
  guint8 walls;  /* a bit per kind of wall (SimPlace) that this block is */
  guint8 is_run; /* no memory of its own: it stands in its queue for `n_whole` whole segments */
};

/* Facts about a block that are seldom needed, kept apart so that SimBlock fits half a cache
 * line. */
struct _SimNote
{
  guint32 description, number; /* latest description that named the block, and its number there */
  guint32 n_whole;             /* of a block that is a run: how many whole segments it stands for */
};

/* Whether a block's name is that of a whole segment (SIM_BLOCKS_WHOLE). */
static inline gboolean
is_whole (guint32 block)
{
  return block >= SIM_BLOCKS_WHOLE && block != NONE;
}

/* The block with a number. NONE is a valid one, element -1 of the array: it stands for what lies
 * before the first and behind the last block of a segment. It is never free, and what is written to
 * it as a neighbour is never read. */
static inline SimBlock *
block_at (const SimBlocks *self, guint32 block)
{
  return &self->blocks[(gint32)block];
}

static inline SimNote *
note_at (const SimBlocks *self, guint32 block)
{
  return &self->notes[block];
}

/* The rank, which is the index among ascending sizes, of the first size of at least that many
 * bytes. */
static inline guint
rank_of (const SimSizes *self, guint64 bytes)
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

/* The rank of the smallest size, from that rank on, of which something is free. The number of sizes
 * if there is none, because the bit behind the last size is always set. */
static inline guint
find_used (const SimSizes *self, guint rank)
{
  guint word = rank / SIM_BLOCKS_WORD;
  guint64 bits = self->used_bits[word] & (~G_GUINT64_CONSTANT (0) << rank % SIM_BLOCKS_WORD);
  while (bits == 0)
    bits = self->used_bits[++word];
  return word * SIM_BLOCKS_WORD + (guint)__builtin_ctzll (bits);
}

/* Whether the rest of a split block stays a block of its own. */
static inline gboolean
is_kept (const SimBlocks *self, guint pool, guint64 rest)
{
  return rest >= self->least_rest[pool];
}

G_END_DECLS
