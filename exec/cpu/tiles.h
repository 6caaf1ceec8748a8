/* Cuts a matrix product into tiles. A library's sums depend on the sizes that it is called with, so
 * tiles follow from the product's sizes alone: results are then the same on any number of threads.
 * Tiles are large enough for most of the library's speed, and there are at most EXEC_MOST_TILES of
 * them. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

#define EXEC_TILE_SIDE 256
#define EXEC_MOST_TILES 32

typedef struct
{
  gint64 rows, cols, side, across;
  guint64 n;
} ExecTiles;

typedef struct
{
  gint64 row, col, rows, cols;
} ExecTile;

static inline gint64
exec_tiles_along (gint64 lines, gint64 side)
{
  return (lines + side - 1) / side;
}

static inline ExecTiles
exec_tiles_of (gint64 rows, gint64 cols)
{
  ExecTiles self = { .rows = rows, .cols = cols, .side = EXEC_TILE_SIDE };

  while (exec_tiles_along (rows, self.side) * exec_tiles_along (cols, self.side) > EXEC_MOST_TILES)
    self.side *= 2;
  self.across = exec_tiles_along (cols, self.side);
  self.n = (guint64)(exec_tiles_along (rows, self.side) * self.across);
  return self;
}

static inline ExecTile
exec_tiles_at (const ExecTiles *self, guint64 i)
{
  const gint64 row = (gint64)i / self->across * self->side,
               col = (gint64)i % self->across * self->side;

  return (ExecTile){ row, col, MIN (self->side, self->rows - row),
                     MIN (self->side, self->cols - col) };
}

G_END_DECLS
