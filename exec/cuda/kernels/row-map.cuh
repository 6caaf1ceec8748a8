/* SPDX-License-Identifier: Apache-2.0 */
/* The map by which rows are sorted by expert (exec/cpu/row-map.h), as kernels read it. */
#pragma once
#include "exec/cpu/row-map.h"
#include "exec/cuda/kernels/launch.cuh"

namespace
{

struct RowMap
{
  uint64_t slots, columns;
  int32_t *source, *place; /* [sorted], [rows * slots] */
};

/* The parts of a map whose head says how many copies each row has, of `sorted` sorted rows. */
__device__ inline RowMap
row_map_of (int32_t *map, uint64_t sorted)
{
  int32_t *source = map + PLAN_ROW_MAP_HEAD;

  return { (uint64_t)map[EXEC_ROW_MAP_SLOTS], (uint64_t)map[EXEC_ROW_MAP_COLUMNS], source,
           source + sorted };
}

}
