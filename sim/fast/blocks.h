/* SimBlocks: the caching allocator of sim/memory.c, made fast. tests/prop/prop-blocks.c compares.
 *
 * Free blocks of one size form a queue, oldest first. Queues are found by bisection over sizes and
 * a bit per size. A whole segment is one that is not split; whole segments of a size are only
 * counted. Memory is reused from run to run. */
#pragma once
#include "sim/memory.h"
#include <glib.h>
G_BEGIN_DECLS

#define SIM_BLOCKS_WORD 64 /* bits */

typedef struct _SimBlock SimBlock;
typedef struct _SimNote SimNote;
typedef struct _SimRecent SimRecent;

/* The free blocks of one size: a list, and how many whole segments came free after its last one. */
typedef struct
{
  guint64 bytes;
  guint32 first, last, n_whole;
  guint32 bit; /* index of its size among the bits of all pools */
  guint32 pool;
} SimQueue;

/* The sizes of a pool of which blocks are or were free. */
typedef struct
{
  guint n;            /* sizes that were ever free, in this run or an earlier one */
  guint64 *sizes;     /* ascending */
  guint32 *numbers;   /* of their queues */
  guint64 *used_bits; /* a bit per size: something of it is free */
} SimSizes;

typedef struct
{
  guint64 least_rest[SIM_MEMORY_POOLS]; /* smallest rest of a split block that stays a block */
  gboolean expands;                     /* there is one segment per pool, which grows at its end */
  guint32 last[SIM_MEMORY_POOLS];       /* the last block of that segment */
  guint64 reserved;
  SimBlock *blocks;
  SimNote *notes;
  guint32 *unused; /* numbers of blocks that are gone, for reuse */
  guint32 n_blocks, n_unused, room;
  SimSizes sizes[SIM_MEMORY_POOLS];
  guint64 *used_bits; /* a bit per size, set where a block is free, pool after pool */
  guint sizes_room;   /* bits per pool, in whole words */
  SimQueue *queues;   /* of all pools, by number; number 0 is of no size */
  guint32 n_queues, queues_room;
  guint version[SIM_MEMORY_POOLS]; /* of `sizes`; a new one when indices of sizes change */
  guint32 description, n_numbered; /* of the latest description; blocks that it has numbered */
  GArray *roles, *next, *cycle;    /* guint32 work space of sim_blocks_repeat */
  SimRecent *recent;               /* hash table of sizes that were looked up */
} SimBlocks;

/* What is remembered for requests of one size to one pool. */
typedef struct
{
  guint version, rank;
  guint32 queue;         /* of blocks that serve the request without being split */
  guint32 segment;       /* whole segment made for it; SIM_BLOCKS_NONE if a new segment is split */
  guint64 segment_bytes; /* bytes of a new segment */
} SimBlocksHint;

#define SIM_BLOCKS_NONE G_MAXUINT32

/* A whole segment in use is named by this bit and the number of its queue. */
#define SIM_BLOCKS_WHOLE (1u << 31)

/* Makes an allocator that holds nothing. */
void sim_blocks_begin (SimBlocks *self, guint64 granule, gboolean expands);
void sim_blocks_clear (SimBlocks *self);

/* Used by the inline functions below, for everything but counting whole segments. */
guint32 sim_blocks_take_part (SimBlocks *self, guint64 bytes, guint pool, SimBlocksHint *hint);
void sim_blocks_give_back_part (SimBlocks *self, guint32 block);

/* `is_used`: TRUE or FALSE, and nothing else. */
static inline void
sim_blocks_set_used (SimBlocks *self, const SimQueue *queue, gboolean is_used)
{
  guint64 *word = &self->used_bits[queue->bit / SIM_BLOCKS_WORD];
  const guint at = queue->bit % SIM_BLOCKS_WORD;
  *word = (*word & ~(G_GUINT64_CONSTANT (1) << at)) | (guint64)is_used << at;
}

/* Takes a block. Returns it, or the name that whole segments of its size share. `hint` starts as
 * zeros; one serves all requests of that size to that pool. */
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

/* A stretch of a segment between two walls. Walls are blocks that are not freed in the loop that is
 * looked at, so nothing beyond them matters to it. There is a kind of wall per depth, up to 8. */
typedef struct
{
  guint32 left, right; /* walls, SIM_BLOCKS_NONE at the ends of the segment */
  guint32 first, last; /* first and last block in it */
} SimPlace;

void sim_blocks_set_wall (SimBlocks *self, guint32 block, guint kind, gboolean is_wall);

/* Appends to `out` (guint64) what decides about later requests, and sets `out_places` to the places
 * in the order in which it names them. States with equal descriptions behave alike, but for a
 * permutation of places. `held` has the blocks in use, by owner, SIM_BLOCKS_NONE for none. */
void sim_blocks_describe (SimBlocks *self, const guint32 *held, guint n_held, guint kind,
                          GArray *out, GArray *out_places);

/* A hash of the state. It differs for most states with different descriptions; it may also differ
 * for states with equal ones. */
guint64 sim_blocks_fingerprint (const SimBlocks *self);

/* What led from one state to another with the same description happens `times` more. `places_now`
 * are the places of the present state, which has that description as well. */
void sim_blocks_repeat (SimBlocks *self, const GArray *places_before, const GArray *places_after,
                        const GArray *places_now, guint64 times);

G_END_DECLS
