/* SimShape, SimLook: long segments by themselves, and short ones, of up to SIM_MEMORY_SHORT bytes.
 *
 * What is in short ones matters to requests that small only, and those seldom meet long ones. */
#pragma once
#include "sim/fast/blocks.h"
#include <glib.h>
G_BEGIN_DECLS

/* A free long size. */
typedef struct
{
  guint32 queue, first, last, n_whole;
} SimLongSize;

/* All that is long, but for how many whole segments are in use. */
typedef struct
{
  GArray *sizes;   /* SimLongSize */
  GArray *parts;   /* of segments */
  GArray *numbers; /* guint32: that no part has */
} SimShape;

/* Begins a stretch for SimShape: what comes and goes is marked from here on. */
void sim_blocks_mark (SimBlocks *self);

/* FALSE: there are too many parts. */
gboolean sim_blocks_shape (const SimBlocks *self, SimShape *out);

/* The same, but for how many of a size are free in one piece. */
gboolean sim_shape_is_same (const SimShape *a, const SimShape *b);
void sim_shape_clear (SimShape *self);

/* What a request meets first. */
typedef struct
{
  guint64
      found_bytes;   /* the smallest size that will do of what is free; none: no number is larger */
  guint n_whole;     /* of that size there are so many in one piece; 0: a part comes first */
  gboolean has_long; /* something long is free */
} SimLook;

SimLook sim_blocks_look (SimBlocks *self, guint64 bytes, guint pool, SimBlocksHint *hint);

/* The same as without `short`, where nothing long is met; else nothing happens: SIM_BLOCKS_NONE,
 * FALSE. `may_add`: nothing long is free by then, though it may be here. Of requests that follow
 * one another in a pool, those of one size take from one block for as long as it lasts, which is
 * put back only when the row ends: before anything else happens. */
guint32 sim_blocks_take_short (SimBlocks *self, guint64 bytes, guint pool, gboolean may_add,
                               SimBlocksHint *hint);
gboolean sim_blocks_give_back_short (SimBlocks *self, guint32 block);
void sim_blocks_end_rows (SimBlocks *self);
gboolean sim_blocks_is_short (const SimBlocks *self, guint32 block);

/* Taken and given back at once, so much changes nothing, and meets nothing long. */
gboolean sim_blocks_passes (SimBlocks *self, guint64 bytes, guint pool, SimBlocksHint *hint);

/* Whole segments of a size come free, or are taken. */
void sim_blocks_count (SimBlocks *self, guint32 queue, gint64 more);

G_END_DECLS
