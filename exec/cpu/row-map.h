/* The map by which rows are sorted by expert, and go back: what PLAN_OP_ROW_MAP leaves, and what
 * kernels that move rows read. */
#pragma once
#include "planner/schedule/op.h"
#include <glib.h>
G_BEGIN_DECLS

/* Numbers before the sources. */
#define EXEC_ROW_MAP_SLOTS 0   /* places that each row goes to */
#define EXEC_ROW_MAP_COLUMNS 1 /* of the matrix of shares that sources point into */
#define EXEC_ROW_MAP_MOST \
  2 /* rows that the fullest rank is to get; what has no room is not there */

/* Sorted rows are in the order of their experts, those of one expert in the order they were in;
 * where experts lie on several ranks, each rank's begin at as many of them, behind a gap. */
typedef struct
{
  gint64 slots, columns, groups;
  gint32 *source; /* of each sorted row: row x columns + expert before; -1: it is none's */
  gint32 *place;  /* of each row's slots, by expert: which sorted row; -1: none */
  gint32 *counts; /* sorted rows of each expert */
} ExecRowMap;

/* `sorted` rows were made of `rows`. */
static inline ExecRowMap
exec_row_map (gint32 *map, gint64 rows, gint64 sorted, gint64 slots, gint64 columns, gint64 entries)
{
  gint32 *place = map + PLAN_ROW_MAP_HEAD + sorted, *counts = place + rows * slots;
  return (ExecRowMap){ .slots = slots,
                       .columns = columns,
                       .groups = map + entries - counts,
                       .source = map + PLAN_ROW_MAP_HEAD,
                       .place = place,
                       .counts = counts };
}

/* One that is made already. */
static inline ExecRowMap
exec_row_map_of (gint32 *map, gint64 rows, gint64 sorted, gint64 entries)
{
  return exec_row_map (map, rows, sorted, map[EXEC_ROW_MAP_SLOTS], map[EXEC_ROW_MAP_COLUMNS],
                       entries);
}

G_END_DECLS
