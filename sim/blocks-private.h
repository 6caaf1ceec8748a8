/* What sim/blocks.c and its descriptions (sim/blocks-state.c) share. */
#pragma once
#include "sim/blocks.h"
G_BEGIN_DECLS

#define NONE SIM_BLOCKS_NONE

struct _SimBlock
{
  guint64 bytes;
  guint32 before, after; /* neighbours in the segment */
  guint32 ahead, behind; /* in its queue, while it is free */
  guint32 queue;         /* of its size, where that was looked up */
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

/* Free blocks of one size: the first and the last, and how many whole segments came free since. */
struct _SimQueue
{
  guint64 bytes;
  guint32 first, last, n_whole;
  guint32 rank; /* of its size */
};

/* A whole segment in use is known by its pool and its queue. */
#define WHOLE (1u << 31)
#define WHOLE_POOL 28

static inline gboolean
is_whole (guint32 block)
{
  return block >= WHOLE && block != NONE;
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

static inline SimBlock *
block_at (const SimBlocks *self, guint32 block)
{
  return &self->blocks[block];
}

static inline SimNote *
note_at (const SimBlocks *self, guint32 block)
{
  return &self->notes[block];
}

static inline SimQueue *
queue_at_rank (const SimQueues *self, guint rank)
{
  return &self->queues[self->numbers[rank]];
}

G_END_DECLS
