/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/cuda/gemm-grouped.h"

#include "exec/cuda/cuda-check.h"
#include "exec/cuda/gemm-lt.h"
#include "exec/cuda/kernels/experts.h"
#include "exec/cuda/kernels/kernels.h"
#include "exec/grouped-gemm.h"
#include "planner/base/error.h"

#include <cuda_runtime_api.h>
#include <string.h>

/* The counts of one map. */
typedef struct
{
  gint32 *rows;       /* in pinned memory, as many as there is room for */
  cudaEvent_t copied; /* behind the last copy */
} Counts;

/* The counts of all maps that a step makes. */
typedef struct
{
  ExecComm *comm;
  gint32 *rows; /* pinned memory; NULL: there are no maps */
  Counts *counts;
  guint n;
  guint experts;      /* that each of them has room for */
  GHashTable *places; /* where a map's counts are on the device -> its index in `counts` */
} Maps;

/* Maps of each device that the thread has opened; ops are for the last one. */
static __thread GPtrArray *opened;

/* Whether a row map gives the counts by which products are issued: a map by which rows are sent to
 * other ranks does not; the receiver's own map does. Padded experts have equally many rows, which
 * nothing counts. */
static gboolean
is_of_products (const PlanOp *op, const PlanManner *manner)
{
  return op->kind == PLAN_OP_ROW_MAP && (!manner || manner->value[PLAN_MANNER_CAPACITY] == 0)
         && (op->refs[PLAN_REF_ROW_MAP_routes].array < 0 || op->dims[PLAN_DIM_ROW_MAP_ranks] == 1);
}

/* Counts the maps of a step, and the most experts that one of them has. Maps that are made one
 * after the other may lie in the same place, so there are at most as many places as maps. */
static guint
count_maps (const PlanSchedule *schedule, guint *out_experts)
{
  const PlanOp *op;
  PlanCursor cursor;
  guint n = 0;
  *out_experts = 0;
  plan_cursor_start (&cursor, schedule, PLAN_SECTION_STEP);
  while ((op = plan_cursor_next (&cursor)))
    if (is_of_products (op, plan_schedule_manner (schedule, op)))
      {
        n++;
        *out_experts = MAX (*out_experts, (guint)op->dims[PLAN_DIM_ROW_MAP_experts]);
      }
  return n;
}

/* Pinned memory is taken before anything is under way: to take it may wait for GPUs. */
static gboolean
take_counts (Maps *self, GError **error)
{
  void *memory;
  if (self->n == 0)
    return TRUE;
  CUDA_TRY (cudaMallocHost (&memory, (gsize)self->n * self->experts * sizeof (gint32)), error);
  self->rows = memory;
  for (guint i = 0; i < self->n; i++)
    {
      self->counts[i].rows = self->rows + (gsize)i * self->experts;
      CUDA_TRY (cudaEventCreateWithFlags (&self->counts[i].copied, cudaEventDisableTiming), error);
    }
  return TRUE;
}

gboolean
exec_cuda_grouped_open (ExecComm *comm, const PlanSchedule *schedule, GError **error)
{
  Maps *self = g_new0 (Maps, 1);
  if (!opened)
    opened = g_ptr_array_new ();
  g_ptr_array_add (opened, self);
  self->comm = comm;
  self->n = count_maps (schedule, &self->experts);
  self->counts = g_new0 (Counts, self->n + 1);
  self->places = g_hash_table_new (NULL, NULL);
  if (take_counts (self, error))
    return TRUE;
  exec_cuda_grouped_close ();
  return FALSE;
}

void
exec_cuda_grouped_close (void)
{
  g_assert (opened && opened->len > 0);
  Maps *self = g_ptr_array_remove_index (opened, opened->len - 1);
  for (guint i = 0; i < self->n; i++)
    if (self->counts[i].copied)
      CUDA_WARN (cudaEventDestroy (self->counts[i].copied));
  if (self->rows)
    CUDA_WARN (cudaFreeHost (self->rows));
  g_hash_table_unref (self->places);
  g_free (self->counts);
  g_free (self);
  if (opened->len == 0)
    g_clear_pointer (&opened, g_ptr_array_unref);
}

/* The maps of the device that ops are for; NULL: none is open. */
static Maps *
current (void)
{
  return opened ? opened->pdata[opened->len - 1] : NULL;
}

/* Finds the counts of the map whose counts lie at `at` on the device; NULL if there are none.
 * `adds`: a place that is not known yet gets new ones. */
static Counts *
find_counts (const Maps *self, const void *at, gboolean adds)
{
  gpointer index;
  if (!self)
    return NULL;
  if (g_hash_table_lookup_extended (self->places, at, NULL, &index))
    return &self->counts[GPOINTER_TO_UINT (index)];
  const guint n = g_hash_table_size (self->places);
  if (!adds || n == self->n)
    return NULL;
  g_hash_table_insert (self->places, (gpointer)at, GUINT_TO_POINTER (n));
  return &self->counts[n];
}

/* A code for what can only be a mistake of this program's. */
static int
fail (const char *what)
{
  return exec_cuda_error_code (
      g_error_new (PLAN_ERROR, PLAN_ERROR_BACKEND, "the rows of experts: %s", what));
}

int
exec_cuda_row_map (const ExecArgs *args, void *stream)
{
  const gint64 *dims = args->op->dims, experts = dims[PLAN_DIM_ROW_MAP_experts];
  const gint32 *at
      = (const gint32 *)args->ptr[PLAN_REF_ROW_MAP_map] + dims[PLAN_DIM_ROW_MAP_entries] - experts;
  int code = exec_cuda_sort_rows (args, stream);
  if (code != 0 || !is_of_products (args->op, args->manner))
    return code;
  Counts *counts = find_counts (current (), at, TRUE);
  if (!counts || experts > current ()->experts)
    return fail ("there are more maps than the schedule has");
  code = (int)cudaMemcpyAsync (counts->rows, at, (gsize)experts * sizeof *at,
                               cudaMemcpyDeviceToHost, stream);
  return code != 0 ? code : (int)cudaEventRecord (counts->copied, stream);
}

/* Waits until the host has the counts of `groups` experts, and checks that there is `room` for them
 * all. Experts have equally many rows where nothing counts them (`at` is NULL). */
static int
await_counts (const void *at, gint64 groups, gint64 room, const gint32 **out_rows)
{
  const Counts *counts = at ? find_counts (current (), at, FALSE) : NULL;
  GError *error = NULL;
  gint64 sum = 0;
  *out_rows = NULL;
  if (!at)
    return 0;
  if (!counts)
    return fail ("no map has counted them");
  if (!exec_cuda_await (current ()->comm, counts->copied, &error))
    return exec_cuda_error_code (error);
  for (gint64 i = 0; i < groups; i++)
    {
      sum += counts->rows[i];
      if (counts->rows[i] < 0 || sum > room)
        return fail ("there are more than there is room for");
    }
  *out_rows = counts->rows;
  return 0;
}

/* Moves an operand on to the next expert's elements, and to their scale where they have one for
 * all, or to their blocks' scales in an array of their own. */
static void
advance_operand (ExecArgs *args, guint operand, gint64 elements)
{
  if (!args->ptr[operand])
    return;
  args->ptr[operand]
      = (guint8 *)args->ptr[operand] + plan_dtype_bytes (args->dtype[operand], (guint64)elements);
  if (args->scale[operand])
    args->scale[operand]++;
  if (args->blocks[operand].scales)
    args->blocks[operand].scales += args->blocks[operand].apart;
}

int
exec_cuda_grouped_quantize (const ExecArgs *args, void *stream)
{
  const gint64 *dims = args->op->dims;
  const gint64 all = dims[PLAN_DIM_GROUPED_QUANTIZE_rows],
               cols = dims[PLAN_DIM_GROUPED_QUANTIZE_cols],
               groups = dims[PLAN_DIM_GROUPED_QUANTIZE_groups];
  const void *at = args->ptr[PLAN_REF_GROUPED_QUANTIZE_counts];
  PlanOp op = { .kind = PLAN_OP_QUANTIZE, .dims = { [PLAN_DIM_QUANTIZE_cols] = cols } };
  ExecArgs each = *args;
  const gint32 *counts;
  int code = await_counts (at, groups, all, &counts);
  each.op = &op;
  each.ptr[PLAN_REF_QUANTIZE_scale] = args->ptr[PLAN_REF_GROUPED_QUANTIZE_scale];
  each.ptr[PLAN_REF_QUANTIZE_amax] = args->ptr[PLAN_REF_GROUPED_QUANTIZE_amax];
  each.ptr[PLAN_REF_QUANTIZE_largest] = NULL;
  for (gint64 group = 0; group < groups && code == 0; group++)
    {
      const gint64 rows = counts ? counts[group] : all / groups;

      op.dims[PLAN_DIM_QUANTIZE_rows] = rows;
      if (rows > 0)
        code = exec_cuda_quantize (&each, stream);
      for (guint i = 0; i <= PLAN_REF_QUANTIZE_in; i++)
        advance_operand (&each, i, rows * cols);
    }
  return code;
}

int
exec_cuda_grouped_transpose (const ExecArgs *args, void *stream)
{
  const gint64 *dims = args->op->dims;
  const gint64 groups = dims[PLAN_DIM_GROUPED_TRANSPOSE_groups],
               rows = dims[PLAN_DIM_GROUPED_TRANSPOSE_rows] / groups,
               cols = dims[PLAN_DIM_GROUPED_TRANSPOSE_cols];
  PlanOp op = { .kind = PLAN_OP_TRANSPOSE,
                .dims = { [PLAN_DIM_TRANSPOSE_rows] = rows, [PLAN_DIM_TRANSPOSE_cols] = cols } };
  ExecArgs each = *args;
  int code = 0;
  each.op = &op;
  for (gint64 group = 0; group < groups && code == 0; group++)
    {
      code = exec_cuda_transpose (&each, stream);
      advance_operand (&each, PLAN_REF_TRANSPOSE_out, rows * cols);
      advance_operand (&each, PLAN_REF_TRANSPOSE_in, rows * cols);
    }
  return code;
}

/* The weights of an expert without rows get a gradient of 0. */
int
exec_cuda_grouped_gemm (const ExecArgs *args, void *stream)
{
  const gint64 *dims = args->op->dims;
  const gboolean adds = args->op->kind == PLAN_OP_GROUPED_GEMM_ADD;
  const gint64 layout = dims[PLAN_DIM_GROUPED_GEMM_layout];
  const gboolean is_gradient = exec_grouped_is_gradient (layout);
  PlanOp op = { .kind = adds ? PLAN_OP_GEMM_ADD : PLAN_OP_GEMM };
  ExecArgs each = *args;
  const gint64 groups = dims[PLAN_DIM_GROUPED_GEMM_groups],
               all = dims[is_gradient ? PLAN_DIM_GROUPED_GEMM_k : PLAN_DIM_GROUPED_GEMM_m];
  const gint32 *counts;
  int code = await_counts (args->ptr[PLAN_REF_GROUPED_GEMM_counts], groups, all, &counts);
  memcpy (op.dims, dims, PLAN_N_DIMS_GEMM * sizeof *dims);
  op.dims[PLAN_DIM_GEMM_layout] = exec_grouped_layout_of_each (layout);
  each.op = &op;
  each.ptr[PLAN_REF_GROUPED_GEMM_counts] = NULL;
  each.ptr[adds ? PLAN_REF_GEMM_ADD_work : PLAN_REF_GEMM_work]
      = args->ptr[PLAN_REF_GROUPED_GEMM_work];
  for (gint64 group = 0; group < groups && code == 0; group++)
    {
      const gint64 rows = counts ? counts[group] : all / groups;
      const gint64 m = is_gradient ? op.dims[PLAN_DIM_GEMM_m] : rows, n = op.dims[PLAN_DIM_GEMM_n],
                   k = is_gradient ? rows : op.dims[PLAN_DIM_GEMM_k];

      op.dims[is_gradient ? PLAN_DIM_GEMM_k : PLAN_DIM_GEMM_m] = rows;
      if (rows > 0)
        code = exec_cuda_gemm_any_size (&each, adds, is_gradient, stream);
      else if (is_gradient && !adds)
        code = (int)cudaMemsetAsync (
            each.ptr[PLAN_REF_GEMM_out], 0,
            plan_dtype_bytes (each.dtype[PLAN_REF_GEMM_out], (guint64)(m * n)), stream);
      advance_operand (&each, PLAN_REF_GEMM_out, m * n);
      advance_operand (&each, PLAN_REF_GEMM_a, m * k);
      advance_operand (&each, PLAN_REF_GEMM_b, is_gradient ? k * n : op.dims[PLAN_DIM_GEMM_k] * n);
    }
  return code;
}
