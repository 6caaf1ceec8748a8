/* The map by which rows are sorted by expert and put back. PLAN_OP_ROW_MAP makes it, kernels that
 * move rows read it. */
#pragma once
#include "planner/schedule/op.h"
#include <glib.h>
G_BEGIN_DECLS

/* Entries of a map of routes, one for each row and expert. 0: the row did not choose the expert. */
#define EXEC_ROUTE_TAKEN 1
#define EXEC_ROUTE_DROPPED 2 /* chosen, and dropped by a capacity */

/* The numbers at the head of a map. */
#define EXEC_ROW_MAP_SLOTS 0   /* sorted copies of each row */
#define EXEC_ROW_MAP_COLUMNS 1 /* columns of the matrix of routing weights */
#define EXEC_ROW_MAP_MOST 2    /* rows for the fullest rank, with those it has no room for */
#define EXEC_ROW_MAP_DROPPED 3 /* rows that a capacity dropped, which are not in the map */

/* Sorted rows are in the order of their experts, and those of one expert in their original order.
 * Where experts lie on several ranks, each rank's rows begin at a fixed multiple, with a gap
 * before. */
typedef struct
{
  gint64 slots, columns, groups;
  gint32 *source; /* [sorted]: index row * columns + expert of its routing weight; -1: a gap, or a
                     row of zeros that fills up an expert's to a multiple */
  gint32 *place;  /* [rows * slots]: the sorted row of each copy of a row; -1: none */
  gint32 *counts; /* [groups]: number of sorted rows of each expert, with those of zeros */
} ExecRowMap;

/* The parts of a map in which `rows` rows become `sorted` sorted ones. */
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

/* The parts of a map that has been made. */
static inline ExecRowMap
exec_row_map_of (gint32 *map, gint64 rows, gint64 sorted, gint64 entries)
{
  return exec_row_map (map, rows, sorted, map[EXEC_ROW_MAP_SLOTS], map[EXEC_ROW_MAP_COLUMNS],
                       entries);
}

G_END_DECLS
