/* SimBlocks: the caching allocator of sim/memory.c, made for speed.
 *
 * Takes the same decisions. Free blocks of one size form a queue, oldest first; queues are found by
 * bisection and a bit each. Segments in one piece are counted. Memory is reused from run to run. */
#pragma once
#include "sim/memory.h"
#include <glib.h>
G_BEGIN_DECLS

#define SIM_BLOCKS_WORD 64 /* bits */

typedef struct _SimBlock SimBlock;
typedef struct _SimNote SimNote;
typedef struct _SimRecent SimRecent;

/* Free blocks of one size: the first and the last, and how many whole segments came free since. */
typedef struct
{
  guint64 bytes;
  guint32 first, last, n_whole;
  guint32 bit; /* of its size, among those of all pools */
  guint32 pool;
} SimQueue;

/* Which sizes are free in a pool. */
typedef struct
{
  guint n;          /* sizes that were ever free, here or in a run before */
  guint64 *sizes;   /* ascending */
  guint32 *numbers; /* of their queues */
  guint64 *is_used; /* a bit per size, of all that there are */
} SimSizes;

typedef struct
{
  guint64 least_rest[SIM_MEMORY_POOLS]; /* of a block, that is worth keeping */
  gboolean expands;                     /* one segment per pool, which grows at its end */
  guint32 last[SIM_MEMORY_POOLS];       /* the block there */
  guint64 reserved;
  SimBlock *blocks;
  SimNote *notes;
  guint32 *unused; /* numbers of blocks that are gone, to be given to others */
  guint32 n_blocks, n_unused, room;
  SimSizes sizes[SIM_MEMORY_POOLS];
  guint64 *is_used; /* a bit per size, set where a block is free, pool after pool */
  guint sizes_room; /* of a pool, whole words */
  SimQueue *queues; /* of all pools, by number; the first one is of nothing */
  guint32 n_queues, queues_room;
  guint version[SIM_MEMORY_POOLS]; /* of `sizes` */
  guint32 description, n_numbered; /* number of the latest description, and of its blocks */
  GArray *roles, *next, *cycle;    /* guint32, while places change */
  SimRecent *recent;               /* sizes that were looked up before, by hash */
} SimBlocks;

/* Where a request of some size is looked for first. */
typedef struct
{
  guint version, rank;
  guint32 queue;         /* of those whose segments are handed out as they are */
  guint32 segment;       /* one made for it, SIM_BLOCKS_NONE if that is cut */
  guint64 segment_bytes; /* it has */
} SimBlocksHint;

#define SIM_BLOCKS_NONE G_MAXUINT32

/* A whole segment in use is known by its queue. */
#define SIM_BLOCKS_WHOLE (1u << 31)

/* An allocator that holds nothing. */
void sim_blocks_begin (SimBlocks *self, guint64 granule, gboolean expands);
void sim_blocks_clear (SimBlocks *self);

/* For the two below: where it is not done with counting. */
guint32 sim_blocks_take_part (SimBlocks *self, guint64 bytes, guint pool, SimBlocksHint *hint);
void sim_blocks_give_back_part (SimBlocks *self, guint32 block);

/* `is_used`: TRUE or FALSE, and nothing else. */
static inline void
sim_blocks_set_used (SimBlocks *self, const SimQueue *queue, gboolean is_used)
{
  guint64 *word = &self->is_used[queue->bit / SIM_BLOCKS_WORD];
  const guint at = queue->bit % SIM_BLOCKS_WORD;
  *word = (*word & ~(G_GUINT64_CONSTANT (1) << at)) | (guint64)is_used << at;
}

/* Returns a block, or a name that it shares with others that are as good; `hint` starts as zeros,
 * one for all requests of that size to that pool. */
static inline guint32
sim_blocks_take (SimBlocks *self, guint64 bytes, guint pool, SimBlocksHint *hint)
{
  SimQueue *queue = &self->queues[hint->queue];
  if (hint->version != self->version[pool] || queue->first != SIM_BLOCKS_NONE
      || queue->n_whole == 0)
    return sim_blocks_take_part (self, bytes, pool, hint);
  if (--queue->n_whole == 0)
    sim_blocks_set_used (self, queue, FALSE);
  return SIM_BLOCKS_WHOLE | hint->queue;
}

static inline void
sim_blocks_give_back (SimBlocks *self, guint32 block)
{
  if (block < SIM_BLOCKS_WHOLE)
    {
      sim_blocks_give_back_part (self, block);
      return;
    }
  SimQueue *queue = &self->queues[block - SIM_BLOCKS_WHOLE];
  if (queue->n_whole++ == 0 && queue->first == SIM_BLOCKS_NONE)
    sim_blocks_set_used (self, queue, TRUE);
}

/* A stretch of a segment between two walls: blocks that do not come free in what is looked at, so
 * that nothing beyond them matters to it. Walls are of up to 8 kinds. */
typedef struct
{
  guint32 left, right; /* walls, SIM_BLOCKS_NONE at the ends of the segment */
  guint32 first, last; /* blocks in it */
} SimPlace;

void sim_blocks_set_wall (SimBlocks *self, guint32 block, guint kind, gboolean is_wall);

/* Appends to `out` (guint64) what decides about the future, and sets `out_places` to the places in
 * the order in which it speaks of them: two states that write the same behave the same, but for
 * which place is which. `held` are the blocks in use, by owner, SIM_BLOCKS_NONE where there is
 * none. */
void sim_blocks_describe (SimBlocks *self, const guint32 *held, guint n_held, guint kind,
                          GArray *out, GArray *out_places);

/* Differs for most states that write something else, and for others where sizes are new. */
guint64 sim_blocks_fingerprint (const SimBlocks *self);

/* What led from one state to another that writes the same happens `times` more; `now` are the
 * places of this state, which writes that, too. */
void sim_blocks_repeat (SimBlocks *self, const GArray *places_before, const GArray *places_after,
                        const GArray *places_now, guint64 times);

G_END_DECLS
