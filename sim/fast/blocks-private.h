/* What sim/fast/blocks.c and its descriptions (sim/fast/blocks-state.c) share. */
#pragma once
#include "sim/fast/blocks.h"
G_BEGIN_DECLS

#define NONE SIM_BLOCKS_NONE

struct _SimBlock
{
  guint64 bytes;
  guint32 before, after; /* neighbours in the segment */
  guint32 ahead, behind; /* in its queue, while it is free */
  guint32 queue;         /* that it stands in, while it is free */
  guint8 is_free, pool;
  guint8 walls;  /* a bit per kind of wall that it is */
  guint8 is_run; /* it stands in a queue for whole segments */
};

/* What is seldom asked about a block: half a line of cache holds the rest. */
struct _SimNote
{
  guint32 description, number; /* the latest description that named it, and how */
  guint32 n_whole;             /* segments of a run */
};

static inline gboolean
is_whole (guint32 block)
{
  return block >= SIM_BLOCKS_WHOLE && block != NONE;
}

/* What is before the first and behind the last one is a block, too: NONE is in use, and what is
 * written to it as a neighbour is never read. */
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

/* The first size of at least that many bytes. */
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

/* The smallest size from that rank on of which something is free; the number of sizes if none is:
 * that bit is always set. */
static inline guint
find_used (const SimSizes *self, guint rank)
{
  guint word = rank / SIM_BLOCKS_WORD;
  guint64 bits = self->is_used[word] & (~G_GUINT64_CONSTANT (0) << rank % SIM_BLOCKS_WORD);
  while (bits == 0)
    bits = self->is_used[++word];
  return word * SIM_BLOCKS_WORD + (guint)__builtin_ctzll (bits);
}

/* Whether what is left of a free block remains one. */
static inline gboolean
is_kept (const SimBlocks *self, guint pool, guint64 rest)
{
  return rest >= self->least_rest[pool];
}

G_END_DECLS
